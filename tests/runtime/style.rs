//! The support library is a crate of its own that cargo does not see: is it formatted and free of lints all the same?

use std::process::Command;

const ROOT: &str = "src/runtime/support/lib.rs";

/// Runs a tool of the toolchain; true where there is none.
fn is_clean(program: &str, arguments: &[&str]) -> bool {
    let done = Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let Ok(done) = done else {
        eprintln!("no {program}: not checked");
        return true;
    };
    eprintln!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    done.status.success()
}

#[test]
fn formatted() {
    assert!(is_clean("rustfmt", &["--edition", "2024", "--check", ROOT]));
}

#[test]
fn no_lints() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("support.rmeta");
    let lints = ["-D", "warnings", "-D", "clippy::undocumented_unsafe_blocks", "-D", "clippy::todo"];
    let mut arguments = vec!["--edition", "2024", "--crate-name", "attnc_support", "--crate-type", "lib"];
    arguments.extend(["-C", "panic=abort", "--emit", "metadata", "-o", out.to_str().unwrap(), ROOT]);
    arguments.extend(lints);
    assert!(is_clean("clippy-driver", &arguments));
}
