//! `tests/live/compare_gpu.py` at tiny sizes: what it would time on a GPU computes what it should.

use std::path::Path;

use crate::standin::{printed, python, with_driver};

#[test]
fn what_is_timed_on_a_gpu_is_right() {
    let Some(python) = python() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/compare_gpu.py");
    let mut compare = with_driver(python, "latest,capability=90");
    compare.arg("-B").arg(script).args(["--quick", "--attnc", env!("CARGO_BIN_EXE_attnc")]);
    let said = printed(&mut compare);
    assert_eq!(said.lines().filter(|line| line.starts_with("ok ")).count(), 13, "{said}");
}
