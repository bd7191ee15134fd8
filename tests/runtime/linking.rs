//! Linking: with every linker that is here, the same bytes each time, and a clear error where there is none.

use std::path::{Path, PathBuf};
use std::process::Command;

use attnc::runtime::link::{LinkError, Linker, link_with};
use attnc::runtime::load::CompiledModel;

use crate::toy;

/// The linkers of this machine.
fn linkers() -> Vec<Linker> {
    let path = std::env::var_os("PATH");
    let mut found = vec![Linker::find(path.clone()).expect("a linker")];
    for name in ["ld.lld", "ld", "rust-lld"] {
        let folders = path.iter().flat_map(std::env::split_paths);
        let program = folders.map(|f| f.join(name)).find(|p| p.is_file()).or_else(|| in_rust(name));
        found.extend(program.map(|program| Linker { program, driver: false, flavor: name == "rust-lld" }));
    }
    found
}

fn in_rust(name: &str) -> Option<PathBuf> {
    let done = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let root = PathBuf::from(String::from_utf8(done.stdout).ok()?.trim());
    let targets = std::fs::read_dir(root.join("lib/rustlib")).ok()?;
    targets.flatten().map(|t| t.path().join("bin").join(name)).find(|p| p.is_file())
}

#[test]
fn every_linker_makes_a_model_that_runs() {
    let descriptor = toy::descriptor_object(&toy::descriptor());
    for linker in linkers() {
        let folder = tempfile::tempdir_in(toy::folder()).unwrap();
        // Names that a command line could trip over.
        let odd = folder.path().join("a, folder -o");
        std::fs::create_dir(&odd).unwrap();
        let (first, second) = (folder.path().join("first.so"), odd.join("second.so"));
        for so in [&first, &second] {
            link_with(&linker, &[&descriptor, toy::kernels()], so).unwrap_or_else(|e| panic!("{linker:?}: {e}"));
        }
        assert!(std::fs::read(&first).unwrap() == std::fs::read(&second).unwrap(), "{linker:?}: other bytes");
        for folder in [folder.path(), &odd] {
            let left = std::fs::read_dir(folder)
                .unwrap()
                .flatten()
                .filter(|e| e.file_name().to_string_lossy().starts_with('.'));
            assert_eq!(left.count(), 0, "{linker:?} leaves files behind");
        }
        // SAFETY: the toy is linked from our own objects.
        let model = unsafe { CompiledModel::open(&second, Some(toy::weights()), 0) }.unwrap_or_else(|e| panic!("{e}"));
        let y = model.session().unwrap().call(0, &[toy::counting(&[1, 4])]).unwrap();
        assert_eq!(y[0].to_f32(), toy::scaled(&[0.0, 1.0, 2.0, 3.0]).0, "{linker:?}");
    }
}

#[test]
fn without_a_linker_there_is_an_error() {
    let empty = tempfile::tempdir().unwrap();
    // Rust's own linker is not on PATH, but is found anyway; a machine without Rust has none.
    match Linker::find(Some(empty.path().into())) {
        Ok(linker) => assert!(linker.flavor, "{linker:?}"),
        Err(e) => assert_eq!(
            e.to_string(),
            "no linker found (looked for cc, ld.lld, rust-lld, ld); install a C compiler or LLVM's lld, or write an \
             object file with `--emit obj`"
        ),
    }
}

#[test]
fn what_the_linker_says_is_passed_on() {
    let linker = Linker::find(std::env::var_os("PATH")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let so = folder.path().join("model.so");
    // Without kernels, their names are undefined.
    let descriptor = toy::descriptor_object(&toy::descriptor());
    match link_with(&linker, &[&descriptor], &so) {
        Err(LinkError::Failed { output, .. }) => assert!(output.contains("toy_scale"), "{output}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(link_with(&linker, &[b"no object"], &so), Err(LinkError::Failed { .. })));
    let nowhere = folder.path().join("none").join("model.so");
    assert!(matches!(link_with(&linker, &[&descriptor, toy::kernels()], &nowhere), Err(LinkError::File { .. })));
    let missing = Linker { program: Path::new("/none/cc").to_owned(), ..linker };
    assert!(matches!(link_with(&missing, &[&descriptor], &so), Err(LinkError::Failed { .. })));
    assert!(!so.exists());
    // Nothing is left either where a folder has the output's name.
    std::fs::create_dir(&so).unwrap();
    std::fs::write(so.join("file"), "").unwrap();
    let linker = Linker::find(std::env::var_os("PATH")).unwrap();
    assert!(matches!(link_with(&linker, &[&descriptor, toy::kernels()], &so), Err(LinkError::File { .. })));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
