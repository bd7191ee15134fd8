//! `tests/live/compare_gpu.py` and `first_gpu.py` at tiny sizes: what they would time on a GPU computes what it should.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::standin::{complaint, folder, printed, python, with_driver};

#[test]
fn what_is_timed_on_a_gpu_is_right() {
    let Some(python) = python() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/compare_gpu.py");
    let mut compare = with_driver(python, "latest,capability=90");
    compare.arg("-B").arg(script).args(["--quick", "--attnc", env!("CARGO_BIN_EXE_attnc")]);
    let said = printed(&mut compare);
    assert_eq!(said.lines().filter(|line| line.starts_with("ok ")).count(), 13, "{said}");
}

/// The first ten minutes on a GPU, rehearsed; a wrong number ends them, and what is told then helps to go on.
#[test]
fn the_first_minutes_on_a_gpu_are_rehearsed() {
    let Some(python) = python() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/first_gpu.py");
    let first = |program: &str| {
        let mut command = with_driver(&python, "latest,capability=90");
        command.arg("-B").arg(&script).args(["--quick", "--attnc", program]);
        command
    };
    let said = printed(&mut first(env!("CARGO_BIN_EXE_attnc")));
    assert_eq!(said.lines().filter(|line| line.starts_with("ok ")).count(), 23, "{said}");
    for part in ["Loading", "loading", "numbers", "sanitizer", "attention", "products", "llama", "profile"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // A compiler that puts another number in the place of a mask's.
    let wrong = folder().join("wrong_attnc");
    let text = format!(
        "#!/bin/sh\np=$1; shift\ncase $p in *first.attn) sed 's/-1e30/2.0/' \"$p\" >\"$0.attn\"; p=$0.attn;; esac\nexec {} \"$p\" \"$@\"\n",
        env!("CARGO_BIN_EXE_attnc")
    );
    std::fs::write(&wrong, text).expect("written");
    std::fs::set_permissions(&wrong, PermissionsExt::from_mode(0o755)).expect("executable");
    let said = complaint(first(&wrong.display().to_string()).args(["--only", "numbers"]));
    let line = said.lines().position(|line| line.starts_with("attention, d 64, filled, S 40, T 70 differs by"));
    assert!(line.is_some() && said.contains("--backend ptx-sim") && said.contains("ATTNC_SYNC=1"), "{said}");
}
