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
