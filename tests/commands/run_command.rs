//! Does `attnc run` give what the references say, interpreted and compiled, and refuse what does not fit?

use crate::{fixtures, host};

use std::path::Path;
use std::process::Command;

use attnc::runtime::npy;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use host::host;
use safetensors::tensor::Dtype;

/// What may run a program.
const BACKENDS: &[&str] = if cfg!(feature = "llvm") { &["interp", "cpu", "llvm"] } else { &["interp", "cpu"] };

/// Exit code, stdout and stderr.
fn attnc(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_attnc")).args(args).output().expect("attnc starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn read(path: &Path) -> Tensor {
    npy::parse(&std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))).expect("a .npy file")
}

#[test]
fn results_and_taps_are_those_of_the_references() {
    for example in ["01_linear", "02_self_attention", "03_masks", "05_cross_attention"] {
        let fixture = fixtures::load(example);
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let weights = path("weights.safetensors");
        fixture.write_weights(Path::new(&weights));
        let program = fixtures::program(example).to_string_lossy().into_owned();
        let dims: Vec<String> = fixture.dims.iter().map(|(name, value)| format!("--dim={name}={value}")).collect();
        for case in fixture.cases.iter().take(2) {
            let mut args: Vec<String> = ["run", &program, "--weights", &weights, "--function", &case.entry]
                .into_iter()
                .map(String::from)
                .chain(dims.iter().cloned())
                .collect();
            for (name, tensor) in &case.inputs {
                let file = path(&format!("{}.{name}.npy", case.name));
                std::fs::write(&file, npy::to_bytes(&host(tensor))).expect("an input");
                args.extend(["--input".to_string(), format!("{name}={file}")]);
            }
            if !case.taps.is_empty() {
                args.extend(["--tap".to_string(), "*".to_string()]);
            }
            for backend in BACKENDS {
                let out = path(&format!("{}.{backend}", case.name));
                let mut line: Vec<&str> = args.iter().map(String::as_str).collect();
                line.extend(["--backend", backend, "--output", &out]);
                let (code, stdout, stderr) = attnc(&line);
                assert_eq!((code, stdout.as_str()), (0, ""), "{example} {}: {stderr}", case.name);
                let results =
                    [("result".to_string(), case.output.clone())].into_iter().chain(case.taps.iter().cloned());
                for (name, reference) in results {
                    let result = read(&Path::new(&out).join(format!("{name}.npy")));
                    assert_eq!(result.shape(), reference.shape, "{example} {} {name}", case.name);
                    let far = fixtures::difference(&result.to_f32(), &reference.to_f32());
                    assert!(far <= case.tolerance, "{example} {} {backend} {name}: {far}", case.name);
                }
            }
        }
    }
}

/// What is wrong with a call, and whose fault it is.
#[test]
fn calls_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let program = fixtures::program("01_linear").to_string_lossy().into_owned();
    let weights = path("w.safetensors");
    fixtures::load("01_linear").write_weights(Path::new(&weights));
    let dims = fixtures::load("01_linear").dims;
    let file = |name: &str, tensor: Option<Tensor>| {
        let path = path(name);
        std::fs::write(&path, npy::to_bytes(&tensor.expect("a tensor"))).expect("a file");
        path
    };
    let width = dims.iter().find(|(name, _)| name == "I").map_or(4, |(_, n)| usize::try_from(*n).expect("a size"));
    let good = format!("x={}", file("good.npy", Tensor::from_f32(vec![1, width], &vec![1.0; width])));
    let narrow = format!("x={}", file("narrow.npy", Tensor::from_f32(vec![1, 1], &[1.0])));
    let ints = format!("x={}", file("ints.npy", Tensor::from_ints(Elem::I32, vec![1, width], &vec![1; width])));
    let text = path("text.npy");
    std::fs::write(&text, "not NumPy's").expect("a file");
    let text = format!("x={text}");
    let absent = format!("x={}", path("absent.npy"));
    let below_a_file = concat!(env!("CARGO_BIN_EXE_attnc"), "/results");
    let bound: Vec<String> = dims.iter().map(|(name, value)| format!("--dim={name}={value}")).collect();
    for backend in BACKENDS {
        let call = |more: &[&str]| {
            let mut args = vec!["run", program.as_str(), "--backend", backend];
            args.extend(bound.iter().map(String::as_str));
            args.extend(more);
            attnc(&args)
        };
        let (code, out, err) = call(&["--weights", &weights, "--input", &good]);
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(out.starts_with("result: f32[1, "), "{out}");
        for (more, code, text) in [
            (&["--weights", &weights][..], 2, "the argument `x: f32[.., "),
            (&["--input", &good], 2, "--weights"),
            (&["--weights", &weights, "--input", "z=z.npy"], 2, "no argument `z`; it takes `x`"),
            (&["--weights", &weights, "--input", &good, "--input", &good], 2, "given twice"),
            (&["--weights", &weights, "--input", &good, "--function", "backward"], 2, "no entry point `backward`"),
            (&["--weights", &weights, "--input", &absent], 3, "E0001"),
            (&["--weights", &weights, "--input", &text], 3, "E0001"),
            (&["--weights", &absent, "--input", &good], 3, "E0801"),
            (&["--weights", &absent, "--input", &good], 3, "help: weights are a safetensors file"),
            (&["--weights", &text[2..], "--input", &good], 3, "E0801"),
            (&["--weights", &weights, "--input", &narrow], 1, "E0803"),
            (&["--weights", &weights, "--input", &ints], 1, "error[E0803]: argument `x`: expected f32, found i32 in `"),
            (&["--weights", &weights, "--input", &ints], 1, "np.save(path, x.astype(np.float32))"),
            (&["--weights", &weights, "--input", &good, "--output", below_a_file], 3, "E0004"),
        ] {
            let (exit, out, err) = call(more);
            assert_eq!((exit, out.as_str()), (code, ""), "{backend} {more:?}: {err}");
            assert!(err.contains(text) && !err.contains("internal error"), "{backend} {more:?}: {err}");
        }
    }
}

/// Weights in fewer bytes give other results, and it is told by how much.
#[test]
fn narrow_weights_tell_their_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let program = path("m.attn");
    let text = "model M<K = 64, N = 48> {
    w: f32[K, N]
    pub fn forward(x: f32[S, K]) -> f32[S, N] { x @ w }
}";
    std::fs::write(&program, text).expect("a program");
    let weights: Vec<u8> = (0..64 * 48).flat_map(|i| ((i * 37 % 101) as f32 / 101.0 - 0.5).to_le_bytes()).collect();
    let view = safetensors::tensor::TensorView::new(Dtype::F32, vec![64, 48], &weights).expect("a tensor");
    let (file, input) = (path("w.safetensors"), path("x.npy"));
    safetensors::serialize_to_file([("w", view)], None, Path::new(&file)).expect("weights");
    let x =
        Tensor::from_f32(vec![1, 64], &(0..64).map(|i| (i % 5) as f32 - 1.0).collect::<Vec<_>>()).expect("a tensor");
    std::fs::write(&input, npy::to_bytes(&x)).expect("an input");
    let mut last = 0.0;
    for format in ["f32", "bf16", "int8", "int4"] {
        let (x, out) = (format!("x={input}"), path(&format!("{format}.npy")));
        let (code, _, err) =
            attnc(&["run", &program, "--weights", &file, "--input", &x, "--pack", format, "--output", &out]);
        assert_eq!(code, 0, "{err}");
        if format == "f32" {
            assert_eq!(err, "");
            continue;
        }
        let (exact, values) = (read(Path::new(&path("f32.npy"))).to_f64(), read(Path::new(&out)).to_f64());
        let largest = exact.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        let far = exact.iter().zip(&values).fold(0.0f64, |m, (x, y)| m.max((x - y).abs())) / largest;
        assert!(err.starts_with(&format!("result: off by at most {far:.2e} of the largest")), "{format}: {far} {err}");
        assert!(far > last, "{format}: {far}");
        last = far;
    }
}

/// A model with an array of layers, and its weights as `f32` of a file in some type: what the tensors are, and the file's path.
fn layers(folder: &Path, dtype: Dtype) -> (String, Vec<(String, Vec<f32>)>, String) {
    let program = folder.join("layers.attn").to_string_lossy().into_owned();
    let text = "layer Block<D> {
    gate: f32[D, D]
    up:   f32[D, D]
    fn forward(x: f32[S, D]) -> f32[S, D] { (x @ gate) * (x @ up) }
}
model M<L = 2, D = 40> {
    h: [Block<D>; L]
    out: f32[D, D]
    pub fn forward(x: f32[S, D]) -> f32[S, D] {
        var y = x
        for block in h { y = block(y) }
        y @ out
    }
}
";
    std::fs::write(&program, text).expect("a program");
    let mut tensors = Vec::new();
    for (n, name) in ["h.0.gate", "h.0.up", "h.1.gate", "h.1.up", "out"].into_iter().enumerate() {
        let value = |i: usize| ((i * 37 + n * 11) % 101) as f32 / 101.0 - 0.5 + n as f32 / 8.0;
        tensors
            .push((name.to_string(), (0..1600).map(|i| half::bf16::from_f32(value(i)).to_f32()).collect::<Vec<f32>>()));
    }
    let bytes = |x: &f32| match dtype {
        Dtype::BF16 => half::bf16::from_f32(*x).to_le_bytes().to_vec(),
        _ => x.to_le_bytes().to_vec(),
    };
    let data: Vec<Vec<u8>> = tensors.iter().map(|(_, values)| values.iter().flat_map(bytes).collect()).collect();
    let view = |data| safetensors::tensor::TensorView::new(dtype, vec![40, 40], data).expect("a tensor");
    let file = folder.join(format!("{dtype:?}.safetensors")).to_string_lossy().into_owned();
    let named = tensors.iter().zip(&data).map(|((name, _), data)| (name.as_str(), view(data)));
    safetensors::serialize_to_file(named, None, Path::new(&file)).expect("weights");
    (program, tensors, file)
}

/// A checkpoint in `bf16` is that of its numbers in `f32`: the same results, packed or not, by every way of running, and a note.
#[test]
fn narrower_checkpoints_are_converted_with_a_note() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (program, _, wide) = layers(folder.path(), Dtype::F32);
    let (_, _, narrow) = layers(folder.path(), Dtype::BF16);
    let graph = path("m.air");
    assert_eq!(attnc(&[&program, "-O0", "--emit", &format!("ir={graph}")]).0, 0);
    for backend in BACKENDS {
        for (file, pack) in [(&program, "f32"), (&program, "int8"), (&graph, "f32")] {
            let results = [&wide, &narrow].map(|weights| {
                let out = path("y.npy");
                let line = ["run", file, "--weights", weights, "--random", "--size", "S=3", "--pack", pack];
                let (code, _, err) = attnc(&[&line[..], &["--backend", backend, "--output", &out]].concat());
                assert_eq!(code, 0, "{backend} {pack}: {err}");
                let note = "note: weights were converted from the bf16 or f16 of the file to the f32 of the program";
                let times = if weights == &narrow { 1 } else { 0 };
                assert_eq!(err.matches(note).count(), times, "{backend} {pack}: {err}");
                assert_eq!(err.contains("`h.0.gate` and 4 more"), times == 1, "{backend} {pack}: {err}");
                read(Path::new(&out)).bytes().to_vec()
            });
            assert_eq!(results[0], results[1], "{backend} {pack}");
        }
    }
    // The opposite conversion would round.
    let halves = path("halves.attn");
    let text = std::fs::read_to_string(&program).expect("the program");
    std::fs::write(&halves, text.replace("f32[", "bf16[")).expect("a program");
    let (code, _, err) = attnc(&["run", &halves, "--weights", &wide, "--random", "--size", "S=3"]);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("f32 in the file, bf16 in the program (this would round: convert the file"), "{err}");
    let (code, _, err) =
        attnc(&["run", &halves, "--weights", &narrow, "--random", "--size", "S=3", "--output", &path("z.npy")]);
    assert_eq!((code, err.as_str()), (0, ""));
}

/// The error of each packed parameter: its root mean square and its largest, as shares of those of the weights.
fn losses(values: &[&[f32]], most: f32) -> (f64, f64) {
    let (mut squares, mut far_squares, mut largest, mut far) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
    for matrix in values {
        for column in 0..40 {
            for group in [0..32, 32..40] {
                let at = |row: usize| matrix[row * 40 + column];
                let scale = group.clone().fold(0.0f32, |m, row| m.max(at(row).abs())) / most;
                for row in group {
                    let (w, kept) = (f64::from(at(row)), f64::from((at(row) / scale + 0.5).floor() * scale));
                    (squares, far_squares) = (squares + w * w, far_squares + (w - kept) * (w - kept));
                    (largest, far) = (largest.max(w.abs()), far.max((w - kept).abs()));
                }
            }
        }
    }
    ((far_squares / squares).sqrt(), far / largest)
}

#[test]
fn packing_tells_the_error_of_each_parameter_but_those_that_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (program, tensors, weights) = layers(folder.path(), Dtype::F32);
    let values = |name: &str| tensors.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_slice()).expect("a tensor");
    let out = path("y.npy");
    let run = |more: &[&str]| {
        let line = ["run", &program, "--weights", &weights, "--random", "--size", "S=3", "--output", &out];
        attnc(&[&line[..], more].concat())
    };
    let rows = |text: &str| -> Vec<String> {
        let table = text.lines().skip_while(|line| !line.starts_with("weights packed as ")).skip(1);
        table.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    for (format, most) in [("int8", 127.0), ("int4", 7.0)] {
        let expected = [
            ("h.*.gate", losses(&[values("h.0.gate"), values("h.1.gate")], most)),
            ("h.*.up", losses(&[values("h.0.up"), values("h.1.up")], most)),
            ("out", losses(&[values("out")], most)),
        ];
        for kept in [&[][..], &["*.gate"], &["h.*", "out"], &["*"]] {
            let options: Vec<&str> =
                kept.iter().flat_map(|pattern| ["--keep", pattern]).chain(["--pack", format]).collect();
            let (code, _, err) = run(&options);
            assert_eq!(code, 0, "{options:?}: {err}");
            let stays = |name: &str| match kept {
                [] => false,
                ["*.gate"] => name == "h.*.gate",
                _ => true,
            };
            let mut rest: Vec<_> = expected.iter().filter(|(name, _)| !stays(name)).collect();
            rest.sort_by(|(_, a), (_, b)| b.0.total_cmp(&a.0));
            let wanted: Vec<String> =
                rest.iter().map(|(name, (mean, most))| format!("{name} {mean:.2e} {most:.2e}")).collect();
            assert_eq!(rows(&err), wanted, "{options:?}: {err}");
            // If all taps are kept, so are the results.
            let exact = err.contains("result: off by at most 0.00e0");
            assert_eq!(exact, wanted.is_empty(), "{options:?}: {err}");
        }
    }
    for (more, said) in [
        (&["--pack", "int8", "--keep", "*.gates"][..], "`--keep *.gates` matches no parameter; did you mean `*.gate`?"),
        (&["--pack", "int8", "--keep", "h.1.up"], "the layers of an array are packed alike; use `h.*.up`"),
        (
            &["--pack", "int8", "--keep", "out", "--keep", "router"],
            "`--keep router` matches no parameter; there is `h.*.gate`",
        ),
        (&["--keep", "out"], "--pack"),
    ] {
        let (code, _, err) = run(more);
        assert_eq!(code, 2, "{more:?}: {err}");
        assert!(err.contains(said), "{more:?}: {err}");
    }
    // Compiling and measuring keep the same.
    let library = |more: &[&str]| {
        let (code, text, err) = attnc(&[&[program.as_str(), "--pack", "int4", "--emit", "tile=-"][..], more].concat());
        assert_eq!(code, 0, "{err}");
        text
    };
    let packed = |text: &str| text.lines().filter(|line| line.contains("launch @pack_int4")).count();
    assert_eq!((packed(&library(&[])), packed(&library(&["--keep", "*"]))), (3, 0));
    let kept = library(&["--keep", "*.gate"]);
    assert_eq!(packed(&kept), 2);
    assert!(kept.starts_with("// attnc layers.attn --pack int4 --keep \"*.gate\" --emit tile\n"), "{kept}");
    let (code, _, err) =
        attnc(&["bench", &program, "--size", "S=1", "--seconds", "0.01", "--pack", "int4", "--keep", "h.*.down"]);
    assert_eq!(code, 2);
    assert!(err.contains("`--keep h.*.down` matches no parameter"), "{err}");
}

#[test]
fn the_standard_library_can_be_read() {
    let (code, out, _) = attnc(&["std"]);
    assert_eq!((code, out.as_str()), (0, "std.decode\nstd.loss\nstd.nn\nstd.optim\nstd.random\n"));
    let (code, out, err) = attnc(&["std", "nn"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("layer Linear<") && out.contains("layer LayerNorm<"));
    let (code, _, err) = attnc(&["std", "nm"]);
    assert_eq!(code, 2);
    assert!(err.contains("there is no module `nm`"), "{err}");
}

/// Taps in a branch, and in the steps of a loop.
const BRANCHES: &str = "model M {
    pub fn forward(x: f32[4], n: i32) -> f32[4] {
        var y = x
        if n > 5 {
            let big = x * 2.0
            tap big
            y = big
        }
        for t in 0..3 {
            let step = y + 1.0
            if n > t {
                tap step
            }
            y = step
        }
        y
    }
}
";

/// What a call does not come to is zeros, and a warning; both backends agree.
#[test]
fn taps_that_a_call_does_not_come_to_are_zeros() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    std::fs::write(path("m.attn"), BRANCHES).expect("a program");
    let x = Tensor::from_f32(vec![4], &[1.0, 2.0, 3.0, 4.0]).expect("values");
    std::fs::write(path("x.npy"), npy::to_bytes(&x)).expect("an input");
    for backend in BACKENDS {
        for (n, reached, steps) in [(0, false, 0), (2, false, 2), (7, true, 3)] {
            let number = Tensor::from_ints(Elem::I32, vec![], &[n]).expect("a number");
            std::fs::write(path("n.npy"), npy::to_bytes(&number)).expect("an input");
            let out = path(&format!("{backend}.{n}"));
            let inputs = [format!("x={}", path("x.npy")), format!("n={}", path("n.npy"))];
            // Freed memory is not zeros.
            let (code, _, told) = {
                let output = Command::new(env!("CARGO_BIN_EXE_attnc"))
                    .args(["run", &path("m.attn"), "--input", &inputs[0], "--input", &inputs[1], "--tap", "*"])
                    .args(["--backend", backend, "--output", &out])
                    .env("MALLOC_PERTURB_", "165")
                    .output()
                    .expect("attnc starts");
                (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
            };
            assert_eq!(code, Some(0), "{backend} {n}: {told}");
            let tap = |name: &str| read(&Path::new(&out).join(format!("{name}.npy")));
            let factor = if reached { 2.0 } else { 0.0 };
            assert_eq!(tap("big").to_f32(), [1.0, 2.0, 3.0, 4.0].map(|v| v * factor), "{backend} {n}");
            assert_eq!(told.contains("did not reach the tap `big`"), !reached, "{backend} {n}: {told}");
            assert_eq!(told.contains("did not reach the tap `step`"), steps == 0, "{backend} {n}: {told}");
            let first = if reached { 2.0 } else { 1.0 };
            let expected: Vec<f32> = (0..3)
                .flat_map(|t| (1..=4).map(move |v| if t < steps { v as f32 * first + t as f32 + 1.0 } else { 0.0 }))
                .collect();
            assert_eq!((tap("step").shape(), tap("step").to_f32()), (&[3, 4][..], expected), "{backend} {n}");
        }
    }
}

/// Limits are told by name, at once, and without the memory that is not there.
#[test]
fn a_model_of_very_many_layers_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let program = "layer B<D> {\n    w: f32[D]\n    fn apply(x: f32[D]) -> f32[D] { x * w }\n}\n\n\
                   model M<D = 4> {\n    h: [B<D>; 1000000000]\n    pub fn forward(x: f32[D]) -> f32[D] {\n        \
                   var y = x\n        for layer in h {\n            y = layer.apply(y)\n        }\n        y\n    }\n}\n";
    std::fs::write(path("m.attn"), program).expect("a program");
    let x = Tensor::from_f32(vec![4], &[1.0; 4]).expect("values");
    std::fs::write(path("x.npy"), npy::to_bytes(&x)).expect("an input");
    std::fs::write(path("w.safetensors"), [&2u64.to_le_bytes()[..], b"{}"].concat()).expect("weights");
    let input = format!("x={}", path("x.npy"));
    let run = ["run", &path("m.attn"), "--weights", &path("w.safetensors"), "--input", &input, "--backend"];
    let mut commands = vec![vec![path("m.attn"), "-o".into(), path("m.so")]];
    commands.extend(BACKENDS.iter().map(|b| run.iter().map(|a| (*a).to_string()).chain([(*b).to_string()]).collect()));
    for command in commands {
        let (code, _, told) = attnc(&command.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(code, 1, "{command:?}: {told}");
        let expected = "error[E0611]: the model has more than 1048576 tensors, the maximum: `h.*.w` has \
                        1000000000, in arrays of up to 1000000000 layers";
        assert!(told.starts_with(expected), "{command:?}: {told}");
    }
}

/// What has no end, or nobody who writes to it, is no input.
#[test]
fn devices_and_pipes_are_no_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    std::fs::write(path("m.attn"), "model M { w: f32[2]; pub fn forward(q: f32[2]) -> f32[2] { q * w } }\n")
        .expect("a program");
    let q = Tensor::from_f32(vec![2], &[1.0; 2]).expect("values");
    std::fs::write(path("q.npy"), npy::to_bytes(&q)).expect("an input");
    assert!(Command::new("mkfifo").arg(path("pipe")).status().is_ok_and(|s| s.success()));
    for backend in BACKENDS {
        for odd in ["/dev/zero".to_string(), path("pipe")] {
            let input = format!("q={odd}");
            let (code, _, told) =
                attnc(&["run", &path("m.attn"), "--weights", &path("q.npy"), "--input", &input, "--backend", backend]);
            assert_eq!(code, 3, "{backend} {odd}: {told}");
            assert!(
                told.contains(&format!("cannot read `{odd}`: it is not a regular file")),
                "{backend} {odd}: {told}"
            );
            let input = format!("q={}", path("q.npy"));
            let (code, _, told) =
                attnc(&["run", &path("m.attn"), "--weights", &odd, "--input", &input, "--backend", backend]);
            assert_eq!(code, 3, "{backend} {odd}: {told}");
            assert!(told.contains(&format!("weights file `{odd}`")), "{backend} {odd}: {told}");
        }
    }
}

#[test]
fn a_file_of_another_type_is_told_all_that_can_be_read() {
    let header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }\n";
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend([0; 8]);
    let message = npy::parse(&file).expect_err("f64 is none of the types");
    for ty in ["f32", "f16", "bf16", "i8", "i32", "i64", "bool"] {
        assert!(message.split([' ', ',']).any(|word| word == ty), "{ty} is not in: {message}");
    }
}

#[test]
fn the_record_of_a_call_has_its_numbers() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (program, record, html) = (path("m.attn"), path("m.json"), path("m.html"));
    let written =
        "model M {\n    pub fn forward(x: f32[S]) -> f32[S] {\n        let y = x * 3\n        1 / (y - y)\n    }\n}\n";
    std::fs::write(&program, written).expect("a program");
    let outputs = ["--record", &record, "--html", &html];
    let run = |more: &[&str]| {
        attnc(&[&["run", program.as_str(), "-O0", "--error-format=human"], more, &outputs[..]].concat())
    };
    let (code, stdout, stderr) = run(&["--input", "x=[1, -2]"]);
    assert!(code == 0 && stderr.is_empty() && stdout.contains("[inf, inf]"), "{code} {stdout} {stderr}");
    let read =
        || -> serde_json::Value { serde_json::from_slice(&std::fs::read(&record).expect("a record")).expect("JSON") };
    let level = read()["values"]["levels"][1].clone();
    let values = level["values"].as_array().expect("values");
    let fields =
        |n: usize| ["op", "least", "most", "infinite", "nan", "outside"].map(|field| values[n][field].to_string());
    assert_eq!(fields(0), ["\"mul\"", "-6.0", "3.0", "0", "0", "0"]);
    assert_eq!(fields(1)[1..], ["0.0", "0.0", "0", "0", "0"]);
    // 1 / 0 has no bound, since a difference of 0 may be anything small.
    assert_eq!(
        (&fields(2)[1..4], values[2]["unbounded"].as_u64()),
        (&["null", "null", "2"].map(String::from)[..], Some(2))
    );
    assert!(std::fs::read_to_string(&html).expect("a page").contains("attnc-record"));
    // A call that fails has a record without numbers, and says so once.
    let (code, _, stderr) = run(&["--input", "x=[[1]]"]);
    assert!(code == 1 && stderr.matches("error[").count() == 1 && read()["values"].is_null(), "{code} {stderr}");
    let (code, _, stderr) = attnc(&["run", "-", "--random", "--record", &record]);
    assert!(code == 2 && stderr.contains("it must be a file"), "{code} {stderr}");
}
