//! Does `--backend llvm` make libraries and objects that run, where attnc is built with LLVM, and say how to build it where
//! it is not?

use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str = "model Double { pub fn forward(x: f32[S]) -> f32[S] { exp(x) + x } }\n";

/// Compiles the program with some options, in a folder.
fn attnc(folder: &Path, options: &[&str]) -> Output {
    let program = folder.join("double.attn");
    std::fs::write(&program, PROGRAM).expect("a program");
    let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
    command.current_dir(folder).arg(&program).args(options).output().expect("attnc starts")
}

#[cfg(not(feature = "llvm"))]
#[test]
fn without_llvm_the_command_says_how_to_build_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let done = attnc(folder.path(), &["--backend", "llvm", "-o", "model.so"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.starts_with("error: ") && said.contains("--features llvm") && said.contains("llvm-19-dev"), "{said}");
    assert!(!folder.path().join("model.so").exists());
}

#[cfg(feature = "llvm")]
mod with_llvm {
    use super::*;
    use attnc::runtime::link;
    use attnc::runtime::load::CompiledModel;
    use attnc::shape::Elem;
    use attnc::tensor::Tensor;

    fn made(folder: &Path, options: &[&str]) -> String {
        let done = attnc(folder, options);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    fn check(so: &Path) {
        // SAFETY: made by the command just before.
        let model = unsafe { CompiledModel::open(so, None, 1) }.unwrap_or_else(|e| panic!("{e}"));
        let xs: Vec<f64> = (0..37).map(|i| f64::from(i) / 8.0 - 2.0).collect();
        let x = Tensor::from_floats(Elem::F32, vec![xs.len()], &xs).expect("a tensor");
        let mut session = model.session().unwrap_or_else(|e| panic!("{e}"));
        let entry = model.entry("forward").unwrap_or_else(|e| panic!("{e}"));
        let got = session.call(entry, &[x]).unwrap_or_else(|e| panic!("{e}"));
        for (y, x) in got[0].to_f64().iter().zip(&xs) {
            assert!((y - (x.exp() + x)).abs() < 1e-5, "{x}: {y}");
        }
    }

    #[test]
    fn libraries_and_objects_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        made(folder.path(), &["--backend", "llvm", "--emit", "so=model.so,obj=model.o"]);
        check(&path("model.so"));
        let object = std::fs::read(path("model.o")).expect("an object");
        link::link(&[&object], &path("again.so")).unwrap_or_else(|e| panic!("{e}"));
        check(&path("again.so"));
        // The same input gives the same bytes.
        let first = std::fs::read(path("model.so")).expect("a library");
        made(folder.path(), &["--backend", "llvm", "--emit", "so=model.so"]);
        assert!(first == std::fs::read(path("model.so")).expect("a library"));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn vectors_are_as_wide_as_the_level() {
        let folder = tempfile::tempdir().expect("a folder");
        for (level, register, wider) in
            [("portable", "%xmm", "%ymm"), ("avx2", "%ymm", "%zmm"), ("avx512", "%zmm", "%none")]
        {
            let text = made(folder.path(), &["--backend", "llvm", "--cpu", level, "--emit", "asm=-"]);
            assert!(text.contains(register) && !text.contains(wider), "{level}:\n{text}");
        }
    }

    /// Whole numbers and pairs of `bf16` go through the instructions that the level has for them, and through no others.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn narrow_products_have_their_instructions() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = "model M<K = 64, N = 40> {
    w: f32[K, N]
    v: bf16[K, N]
    pub fn forward(x: f32[S, K]) -> f32[S, N] { x @ w + cast<f32>(cast<bf16>(x) @ v) }
}
";
        std::fs::write(folder.path().join("narrow.attn"), source).expect("a program");
        let listing = |level: &str, pack: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
            command.current_dir(folder.path()).args(["narrow.attn", "--backend", "llvm", "--emit", "asm=-"]);
            let done = command.args(["--cpu", level, "--pack", pack]).output().expect("attnc starts");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            String::from_utf8_lossy(&done.stdout).into_owned()
        };
        for (level, pack, bytes, pairs) in [
            ("avx2", "int8", false, false),
            ("avx2vnni", "int8", true, false),
            ("avx512", "int4", true, false),
            ("avx512", "f32", false, false),
            // Weights of `bf16` are quantised then, too.
            ("avx512bf16", "int8", true, false),
            ("avx512bf16", "f32", false, true),
        ] {
            let text = listing(level, pack);
            assert_eq!(text.contains("vpdpbusd"), bytes, "{level}, {pack}");
            assert_eq!(text.contains("vdpbf16ps"), pairs, "{level}, {pack}");
        }
        // There is no code for tiles: the best level below is made.
        let of = |level| listing(level, "f32").lines().skip(1).map(str::to_string).collect::<Vec<_>>();
        assert!(of("amx") == of("avx512bf16"));
    }
}
