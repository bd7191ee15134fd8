//! Does a C program that knows `model.h` alone run the encoder, and is its memory in order?

use crate::{compiled, fixtures, front};

use std::path::Path;
use std::process::Command;

use attnc::codegen::{cpu, descriptor};
use attnc::lowering::graph::Options;
use attnc::passes;
use attnc::runtime::{header, link};
use safetensors::tensor::TensorView;

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success())
}

fn output(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{command:?}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

/// The functions of the system's libraries that the library needs, and the libraries that it names.
fn check_undefined(so: &Path) {
    let text = output(Command::new("nm").args(["-D", "--undefined-only"]).arg(so));
    for line in text.lines() {
        // Weak symbols (`w`) need not be there.
        let strong = line.split_whitespace().rev().nth(1) == Some("U");
        assert!(!strong || line.contains("@GLIBC"), "{line}");
    }
    let libraries = output(Command::new("readelf").args(["-d"]).arg(so));
    for line in libraries.lines().filter(|l| l.contains("(NEEDED)")) {
        let known = ["libc.so", "libm.so", "libpthread.so", "libdl.so"].iter().any(|l| line.contains(l));
        assert!(known, "{line}");
    }
}

#[test]
fn a_c_program_runs_the_encoder() {
    let fixture = fixtures::load("07_encoder");
    let source = std::fs::read_to_string(fixtures::program("07_encoder")).unwrap();
    let options = Options { model: None, dims: fixture.dims.iter().cloned().collect() };
    let module = front::module("07_encoder.attn", &source, &options).unwrap();
    let module = compiled::optimised(module, &passes::Options::default());
    let tiles: Vec<_> = cpu::levels().iter().map(|level| (*level, compiled::scheduled(&module, *level))).collect();
    let tiers: Vec<_> = tiles.iter().map(|(level, module)| compiled::tier(*level, module)).collect();
    let model =
        descriptor::describe(&module.interface(), "Encoder", "", &cpu::Arch::host().triple().to_string()).unwrap();
    let code = compiled::compile(&tiers, &model);
    let folder = tempfile::tempdir().unwrap();
    let so = folder.path().join("model.so");
    link::link(&code.objects(), &so).unwrap();
    check_undefined(&so);
    if !is_there("cc") {
        eprintln!("no C compiler: no program built");
        return;
    }
    std::fs::write(folder.path().join("model.h"), header::header(&model)).unwrap();
    let weights = folder.path().join("weights.safetensors");
    let tensors = fixture.weights();
    let views: Vec<(String, TensorView<'_>)> = tensors
        .iter()
        .map(|(name, t)| (name.clone(), TensorView::new(t.dtype, t.shape.clone(), &t.bytes).unwrap()))
        .collect();
    safetensors::serialize_to_file(views, None, &weights).unwrap();
    let program = folder.path().join("encoder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/encoder.c");
    output(
        Command::new("cc")
            .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-I"])
            .arg(folder.path())
            .args([&source, &so])
            .arg("-lm")
            .arg(format!("-Wl,-rpath,{}", folder.path().display()))
            .arg("-o")
            .arg(&program),
    );
    for (n, case) in fixture.cases.iter().enumerate() {
        let input = folder.path().join("input");
        let tensor = |name: &str| &case.inputs.iter().find(|(n, _)| n == name).unwrap().1;
        let mut bytes: Vec<u8> = tensor("x").shape.iter().flat_map(|d| (*d as i64).to_le_bytes()).collect();
        bytes.extend(&tensor("x").bytes);
        bytes.extend(&tensor("keep").bytes);
        bytes.extend(&case.output.bytes);
        std::fs::write(&input, bytes).unwrap();
        let far: f32 = output(Command::new(&program).args([&weights, &input])).trim().parse().unwrap();
        // The fixture's tolerance is relative to the largest magnitude.
        let scale = case.output.to_f32().iter().fold(1.0f32, |a, x| a.max(x.abs()));
        assert!(f64::from(far) <= case.tolerance * f64::from(scale), "{}: {far}", case.name);
        if n == 0 && is_there("valgrind") {
            let mut checked = Command::new("valgrind");
            checked.args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=all"]);
            output(checked.arg(&program).args([&weights, &input]));
        }
    }
}

/// Two models by the command line, in one program: each serves its own calls, whatever their names and the order of linking.
#[test]
fn a_c_program_calls_two_models() {
    if !is_there("cc") {
        eprintln!("no C compiler: no program built");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let attnc = |arguments: &[&str]| {
        output(Command::new(env!("CARGO_BIN_EXE_attnc")).args(arguments).current_dir(folder.path()));
    };
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    for (stem, model, factor) in [("a", "Twice", 2), ("b", "Thrice", 3), ("c", "Twice", 5)] {
        let file = format!("{stem}.attn");
        write(&file, &format!("model {model} {{ pub fn forward(x: f32[S]) -> f32[S] {{ x * {factor}.0 }} }}\n"));
        // The header by itself is that of the library.
        attnc(&[&file, "-o", &format!("{stem}.so")]);
        attnc(&[&file, "-o", &format!("{stem}.h"), "--emit", "header"]);
        let prefix = model.to_lowercase();
        write(
            &format!("{stem}.c"),
            &format!(
                "#include \"{stem}.h\"\n#include <stdlib.h>\nfloat {stem}(float x);\nfloat {stem}(float x)\n{{\n    attnc_model \
                 *m = 0;\n    attnc_session *s = 0;\n    float y;\n    if (attnc_model_open(0, 1, &m) || \
                 attnc_session_open(m, &s) || {prefix}_forward(s, 1, &x, &y)) {{\n        exit(1);\n    }}\n    \
                 attnc_session_close(s);\n    attnc_model_close(m);\n    return y;\n}}\n"
            ),
        );
    }
    write(
        "main.c",
        "#include <stdio.h>\nfloat a(float), b(float), c(float);\nint main(void)\n{\n    printf(\"%g %g %g\\n\", a(1), b(1), \
         c(1));\n    return 0;\n}\n",
    );
    for libraries in [["./a.so", "./b.so", "./c.so"], ["./c.so", "./b.so", "./a.so"]] {
        let mut cc = Command::new("cc");
        cc.args(["-Wall", "-Wextra", "-Werror", "main.c", "a.c", "b.c", "c.c"]).args(libraries);
        output(cc.args(["-Wl,-rpath,$ORIGIN", "-o", "program"]).current_dir(folder.path()));
        // The program names its libraries by where they were when it was linked.
        let told = output(Command::new("./program").current_dir(folder.path()));
        assert_eq!(told, "2 3 5\n", "{libraries:?}");
    }
}
