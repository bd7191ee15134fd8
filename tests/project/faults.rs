//! Does every fault of `tests/faults/` still fit the source? `run.py` there says what they are for, plants them all in a copy,
//! and prints which tests see which.

use std::process::Command;

#[test]
fn every_fault_fits_in_one_place() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/run.py");
    let Ok(output) = Command::new("python3").args([script, "--list"]).output() else {
        eprintln!("no Python: the lists of faults are not checked");
        return;
    };
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the lists in tests/faults/ do not fit the source any more:\n{wrong}");
    let faults = output.stdout.iter().filter(|b| **b == b'\n').count();
    assert!(faults >= 300, "{faults}");
}
