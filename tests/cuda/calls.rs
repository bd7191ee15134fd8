//! Calls on a GPU from C and from Python: tensors of the host and of the GPU, streams, threads; and everything is freed at the end.

use std::path::PathBuf;
use std::process::Command;

use crate::standin::{driver, file, printed, python, small, weights, with_driver};

/// How kernels are executed: with effects early and late, and warps in another order.
const WAYS: [&str; 3] = ["capability=80", "latest,capability=90", "latest,seed=3"];

/// A C program of this folder, with the library that it calls; none where there is no C compiler.
fn c_program(name: &str, more: &[&str]) -> Option<PathBuf> {
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("no C compiler: not checked");
        return None;
    }
    let folder = small("cuda");
    let program = folder.join(name);
    let mut compile = Command::new("cc");
    compile.args(["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-I"]).arg(&folder).arg(file(&format!("{name}.c")));
    compile.arg(folder.join("small.so")).args(["-Wl,-rpath,$ORIGIN", "-ldl"]).args(more).arg("-o").arg(&program);
    printed(&mut compile);
    Some(program)
}

#[test]
fn a_c_program_with_two_sessions_on_two_threads() {
    let Some(program) = c_program("sessions", &["-pthread", "-lm"]) else { return };
    for way in WAYS {
        assert_eq!(printed(with_driver(&program, way).arg(weights()).arg(driver())), "ok\n", "{way}");
    }
}

/// A session that cannot time launches says so, leaves nothing behind, and goes on without.
#[test]
fn a_gpu_without_a_second_event() {
    let Some(program) = c_program("timing", &[]) else { return };
    assert_eq!(printed(with_driver(&program, "events=1").arg(weights()).arg(driver())), "ok\n");
}

#[test]
fn python_calls_with_arrays_of_the_host_and_of_the_gpu() {
    let Some(python) = python() else { return };
    let folder = small("cuda");
    let calls = |way: &str, graphs: &str| {
        let mut test = with_driver(&python, way);
        test.arg("-B").arg(file("calls_test.py")).arg(weights()).arg(driver()).arg(graphs).env("PYTHONPATH", &folder);
        test
    };
    std::thread::scope(|scope| {
        for way in WAYS {
            scope.spawn(move || assert_eq!(printed(&mut calls(way, "graphs")), "ok\n", "{way}"));
        }
        // A driver that makes no graphs, and one that must not.
        scope.spawn(|| assert_eq!(printed(&mut calls("no-graphs", "none")), "ok\n"));
        let mut off = calls("", "none");
        scope.spawn(move || assert_eq!(printed(off.env("ATTNC_CUDA_GRAPHS", "0")), "ok\n"));
    });
}
