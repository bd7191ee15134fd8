//! Does `attnc run` take arguments from its command line, and draw those that are not given?

use std::process::Command;

/// What may run a program.
const BACKENDS: &[&str] = if cfg!(feature = "llvm") { &["interp", "cpu", "llvm"] } else { &["interp", "cpu"] };

/// Exit code, stdout and stderr.
fn attnc(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_attnc")).args(args).output().expect("attnc starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// Arguments may stand on the command line.
#[test]
fn literals_are_arguments() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.attn").to_string_lossy().into_owned();
    let text = "model M {
    pub fn scale(x: f32[S, 2], n: i32, keep: bool[S]) -> f32[S, 2] {
        x * cast<f32>(n)
    }
    pub fn count(x: i64[S]) -> i64 { sum(x) }
}
";
    std::fs::write(&path, text).expect("a program");
    for backend in BACKENDS {
        let run = |more: &[&str]| attnc(&[&["run", path.as_str(), "--backend", backend], more].concat());
        let scale = ["--function", "scale", "--input", "n=-3", "--input", "keep=[true, false]"];
        let (code, out, err) = run(&[&scale[..], &["--input", "x=[[1, 2.5], [-4, 1e1]]"]].concat());
        assert_eq!((code, err.as_str()), (0, ""));
        assert_eq!(out, "result: f32[2, 2]\n  [-3.000000, -7.500000]\n  [12.000000, -30.000000]\n", "{backend}");
        let (code, out, err) = run(&["--function", "count", "--input", "x=[]"]);
        assert_eq!((code, err.as_str()), (0, ""));
        assert_eq!(out, "result: i64[]\n  0\n", "{backend}");
        for (more, code, text) in [
            (&["--input", "x=[[1, 2], [3]]"][..], 2, "different lengths"),
            (&["--input", "x=[[1, true]]"], 2, "expected f32, found `true`"),
            (&["--input", "x=[[1, 2"], 2, "expected `]`"),
            (&["--input", "x=[1, 2]"], 1, "E0803"),
            (&["--input", "x=[[1, 2]]"], 1, "E0803"),
        ] {
            let (exit, out, err) = run(&[&scale[..], more].concat());
            assert_eq!((exit, out.as_str()), (code, ""), "{backend} {more:?}: {err}");
            assert!(err.contains(text), "{backend} {more:?}: {err}");
        }
        let (code, _, err) = run(&["--function", "scale", "--input", "x=[]", "--input", "n=2.5"]);
        assert!(code == 2 && err.contains("expected i32, found `2.5`"), "{err}");
    }
}

/// What is not given may be drawn at random: the same for the same seed, of the sizes that are given or that follow from
/// the arguments, and indices that are in range.
#[test]
fn what_is_not_given_may_be_random() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.attn").to_string_lossy().into_owned();
    let text = "model M<V = 7, D = 3> {
    table: f32[V, D]
    pub fn f(tokens: i32[.., S], bias: f32[.., S, D], t: f32[2 * T + 1]) -> f32[.., S, D] {
        table[tokens] + bias + sum(t)
    }
}
";
    std::fs::write(&path, text).expect("a program");
    for backend in BACKENDS {
        let run = |more: &[&str]| attnc(&[&["run", path.as_str(), "--backend", backend], more].concat());
        let sizes = ["--random=5", "--size", "S=40,T=2"];
        let (code, out, err) = run(&sizes);
        assert_eq!((code, err.as_str()), (0, ""), "{backend}");
        assert!(out.starts_with("result: f32[1, 40, 3]\n"), "{out}");
        assert_eq!(run(&sizes).1, out, "{backend}");
        assert_ne!(run(&["--random=6", "--size", "S=40,T=2"]).1, out, "{backend}");
        assert!(run(&["--random", "--size", "S=2,T=0,batch=4"]).1.starts_with("result: f32[4, 2, 3]\n"), "{backend}");
        // S and the leading axes follow from the arguments.
        let (code, out, err) = run(&["--random", "--input", "tokens=[[[0], [1]]]", "--input", "t=[1, 2, 3]"]);
        assert_eq!((code, err.as_str()), (0, ""), "{backend}");
        assert!(out.starts_with("result: f32[1, 2, 1, 3]\n"), "{out}");
        for (more, code, text) in [
            (&["--random"][..], 2, "use `--size S=N,T=N`"),
            (&["--random", "--size", "S=3"], 2, "use `--size T=N`"),
            (&["--random", "--size", "S=3,U=3"], 2, "no run-time dimension `U`"),
            (&["--random", "--size", "S=99999999999,T=1"], 2, "too large"),
            (&["--size", "S=3"], 2, "--random"),
            (&["--input", "t=[1]"], 2, "`tokens: i32[.., S]` is missing"),
        ] {
            let (exit, out, err) = run(more);
            assert_eq!((exit, out.as_str()), (code, ""), "{backend} {more:?}: {err}");
            assert!(err.contains(text), "{backend} {more:?}: {err}");
        }
    }
}

/// Extents beyond those of a tile, formulas of many terms: they run, or are refused when they are compiled.
#[test]
fn large_programs_run_or_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let d = (1 << 20) + 1;
    let ones = attnc::tensor::Tensor::from_f32(vec![1, d], &vec![1.0; d]).expect("values");
    std::fs::write(path("x.npy"), attnc::runtime::npy::to_bytes(&ones)).expect("an input");
    let wide = format!(
        "model M<D = {d}> {{
    pub fn product(x: f32[S, D]) -> f32[S, S] {{ x @ x.T }}
    pub fn attention(x: f32[S, D]) -> f32[S] {{ sum(softmax(x @ x.T) @ x) }}
}}
"
    );
    std::fs::write(path("wide.attn"), wide).expect("a program");
    let names = |n: usize, of: &dyn Fn(usize) -> String, by: &str| (0..n).map(of).collect::<Vec<_>>().join(by);
    let sum = names(64, &|i| format!("A{i}"), " + ");
    let args = names(64, &|i| format!("x{i}: f32[A{i}]"), ", ");
    let long = format!("model M {{ pub fn f({args}, y: f32[{sum}]) -> f32[{sum}] {{ softmax(y) + y }} }}\n");
    std::fs::write(path("long.attn"), long).expect("a program");
    let ones = format!("y=[{}]", names(64, &|_| "1".to_string(), ","));
    let given: Vec<String> = (0..64).flat_map(|i| ["--input".to_string(), format!("x{i}=[1]")]).collect();
    for backend in BACKENDS {
        for function in ["product", "attention"] {
            let input = format!("x={}", path("x.npy"));
            let (code, out, err) =
                attnc(&["run", &path("wide.attn"), "--backend", backend, "--function", function, "--input", &input]);
            assert_eq!((code, err.as_str()), (0, ""), "{backend} {function}");
            assert!(out.contains("1048577.000000"), "{backend} {function}: {out}");
        }
        let mut all = vec!["run".to_string(), path("long.attn"), "--backend".to_string(), (*backend).to_string()];
        all.extend(given.iter().cloned().chain(["--input".to_string(), ones.clone()]));
        let (code, out, err) = attnc(&all.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((code, err.as_str()), (0, ""), "{backend}");
        assert!(out.starts_with("result: f32[64]\n  [1.015625, 1.015625"), "{backend}: {out}");
    }
    let axes = |n: usize| vec!["1"; n].join(", ");
    for (text, what) in [
        (format!("pub fn f(x: f32[{}], y: f32[2]) -> f32[2] {{ y }}", axes(65)), "the argument `x` of `f` has 65 axes"),
        (
            format!("pub fn f(x: f32[1]) -> f32[{}] {{ rearrange(x, \"a -> a{}\") }}", axes(65), " 1".repeat(64)),
            "result 0 of `f` has 65 axes",
        ),
    ] {
        std::fs::write(path("axes.attn"), format!("model M {{ {text} }}\n")).expect("a program");
        for args in [&["check", &path("axes.attn")][..], &[&path("axes.attn"), "-o", &path("axes.so")]] {
            let (code, _, err) = attnc(args);
            assert!(code == 1 && err.contains(what), "{args:?}: {err}");
        }
    }
    for (name, text) in [
        ("nul.air", "module \"a\\u{0}b\"\n".to_string()),
        ("nul.tir", "module \"a\0b\"\n".to_string()),
        (
            "nul.attn",
            "model M { #[name = \"a\0b\"] w: f32[2]\n pub fn f(x: f32[2]) -> f32[2] { x * w } }\n".to_string(),
        ),
    ] {
        std::fs::write(path(name), text).expect("a text");
        let (code, _, err) = attnc(&["check", &path(name)]);
        assert!(code == 1 && err.contains("NUL"), "{name}: {err}");
    }
}
