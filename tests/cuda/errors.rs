//! What goes wrong with a GPU is said: each status with a text that names what was expected and what was found. And nothing runs on the CPU
//! that nobody asked for.

use std::path::Path;
use std::process::Command;

use crate::standin::{attnc, complaint, file, folder, printed, small, weights, with_driver};

/// `attnc run` of an entry point of the small model on the machine that the settings describe.
fn run(settings: &str, call: &[&str]) -> Command {
    let mut command = attnc(settings);
    command.arg("run").arg(file("small.attn")).arg("--weights").arg(weights());
    command.args(["--target", "cuda", "--function"]).args(call);
    command
}

const ADD: [&str; 3] = ["add", "--input", "x=[1, 2, 3, 4]"];

#[test]
fn no_driver() {
    let mut command = run("", &ADD);
    let text = complaint(command.env("ATTNC_CUDA_LIB", "/nowhere/libcuda.so.1"));
    assert!(text.contains("no CUDA driver was found: /nowhere/libcuda.so.1: cannot open shared object file"), "{text}");
    let text = complaint(command.env("ATTNC_CUDA_LIB", "libz.so.1"));
    assert!(text.contains("too old: it has no function cuInit") || text.contains("no CUDA driver was found"), "{text}");
}

#[test]
fn no_device() {
    let text = complaint(&mut run("devices=0", &ADD));
    assert!(text.contains("there is no NVIDIA GPU, or none that this process may use"), "{text}");
    assert!(text.contains("CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"), "{text}");
    assert!(text.starts_with("error[E0807]"), "{text}");
    let text = complaint(&mut run("init=803", &ADD));
    assert!(text.contains("the driver of the system and its library are of different versions"), "{text}");
    let text = complaint(run("devices=2", &ADD).env("ATTNC_DEVICE", "cuda:2"));
    assert!(text.contains("there is no device cuda:2: the last of this machine is cuda:1"), "{text}");
    let text = complaint(run("", &ADD).env("ATTNC_DEVICE", "gpu"));
    assert!(text.starts_with("error[E0808]: ATTNC_DEVICE is `gpu`; expected cpu, cuda, cuda:N or auto"), "{text}");
    printed(run("devices=2", &ADD).env("ATTNC_DEVICE", "cuda:1"));
}

#[test]
fn the_driver_is_too_old() {
    let text = complaint(&mut run("driver=10020,capability=80", &ADD));
    assert!(text.contains("the driver is too old: it is for CUDA 10.2, and the kernels of Small need 11."), "{text}");
}

#[test]
fn the_gpu_does_not_run_the_code() {
    let text = complaint(&mut run("capability=75", &ADD));
    assert!(text.contains("was compiled for sm_"), "{text}");
    assert!(text.contains("which cuda:0 (Stand-in GPU, compute capability 7.5) does not run"), "{text}");
}

#[test]
fn the_driver_rejects_the_kernels() {
    let text = complaint(&mut run("reject", &ADD));
    assert!(
        text.contains("the driver, for CUDA 13.0, rejects the kernels on Stand-in GPU: CUDA_ERROR_INVALID_PTX"),
        "{text}"
    );
    assert!(text.contains("ptxas application ptx input, line 1; error   : the stand-in takes no PTX"), "{text}");
}

#[test]
fn the_gpu_is_out_of_memory() {
    let text = complaint(&mut run("memory=100", &ADD));
    assert!(text.contains("the GPU is out of memory: 512 bytes for the weights"), "{text}");
    assert!(text.starts_with("error[E0808]"), "{text}");
    let text = complaint(&mut run("memory=3000", &["affine", "--random", "--size", "batch=1000"]));
    assert!(text.starts_with("error[E0803]: affine: the GPU is out of memory: "), "{text}");
}

#[test]
fn a_launch_fails() {
    let text = complaint(&mut run("refuse=1", &ADD));
    assert!(
        text.contains("add: kernel ") && text.contains("the launch failed: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
        "{text}"
    );
    // It is seen when the call waits; which kernel it was, only if each is waited for.
    let text = complaint(&mut run("crash=1", &ADD));
    assert!(
        text.contains("add: the call: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure; the process cannot"),
        "{text}"
    );
    // So it is with errors that come from elsewhere than the kernel; others leave the context as it is.
    for (code, ends) in [(214, true), (220, true), (226, true), (702, true), (721, true), (810, true), (720, false)] {
        let text = complaint(&mut run(&format!("crash=1,code={code}"), &ADD));
        assert!(text.contains("add: the call: "), "{text}");
        assert_eq!(text.contains("the process cannot use this GPU any more"), ends, "{text}");
    }
    let text = complaint(run("crash=1", &ADD).env("ATTNC_SYNC", "1"));
    assert!(text.contains("add: kernel ") && text.contains("the kernel failed: CUDA_ERROR_LAUNCH_FAILED"), "{text}");
}

/// Calls in one session, so that the launches of the second and the third are a graph.
fn three_steps(settings: &str) -> Command {
    let calls = folder().join("three_steps.txt");
    if !calls.is_file() {
        let made = folder().join(format!("three_steps.{}", settings.replace([',', '='], "_")));
        std::fs::write(&made, "step(tokens = [1, 2], shift = [0, 1, 2, 3])\n".repeat(3)).unwrap();
        std::fs::rename(made, &calls).unwrap();
    }
    let mut command = attnc(settings);
    command.arg("run").arg(file("small.attn")).arg("--weights").arg(weights()).args(["--target", "cuda", "--calls"]);
    command.arg(calls);
    command
}

#[test]
fn a_launch_of_a_graph_fails() {
    // Each call has eight launches.
    let wanted = printed(&mut three_steps(""));
    assert_eq!(printed(three_steps("").env("ATTNC_CUDA_GRAPHS", "0")), wanted);
    // Where the driver refuses a graph, its launches are queued one by one.
    assert_eq!(printed(&mut three_steps("refuse=12")), wanted);
    let text = complaint(three_steps("refuse=12").env("ATTNC_CUDA_GRAPHS", "0"));
    assert!(text.contains("the launch failed: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"), "{text}");
    // What fails while it runs breaks the context, and it is said which call it was.
    let text = complaint(&mut three_steps("crash=12"));
    assert!(text.contains("step: the call: CUDA_ERROR_LAUNCH_FAILED"), "{text}");
    let text = complaint(three_steps("crash=12").env("ATTNC_SYNC", "1"));
    assert!(text.contains("step: kernel ") && text.contains("the kernel failed: CUDA_ERROR_LAUNCH_FAILED"), "{text}");
}

/// Blocks that wait for each other must all run: the driver says so, and no call hangs.
#[test]
fn a_cooperative_launch_is_too_large() {
    let recur = ["recur", "--input", "tokens=[1, 2]", "--input", "start=[[0, 1, 2, 3], [4, 5, 6, 7]]"];
    let text = complaint(&mut run("multiprocessors=0", &recur));
    let why = "the launch failed: CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE: too many blocks in cooperative launch";
    assert!(text.contains("recur: kernel loop_0: ") && text.contains(why), "{text}");
}

#[test]
fn an_index_is_out_of_range() {
    let text = complaint(&mut run("", &["lookup", "--input", "tokens=[1, 0, 7, 2]"]));
    assert!(text.contains("lookup: small.attn:12:9: index 7 is out of range for an axis of 5"), "{text}");
    printed(&mut run("", &["lookup", "--input", "tokens=[1, 0, 4, 2]"]));
}

/// A program that opens a library on a device, and prints its status, its device and the note, or the error.
fn opens(target: &str, device: &str, settings: &str) -> String {
    opened(&small(target), device, settings)
}

/// The same for the library of a folder.
pub(crate) fn opened(folder: &Path, device: &str, settings: &str) -> String {
    let program = folder.join("open");
    if !program.is_file() {
        let made = folder.join(format!("open.{}", std::thread::current().name().unwrap_or_default().replace(':', "_")));
        let mut compile = Command::new("cc");
        compile.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-I"]).arg(folder).arg(file("open.c"));
        printed(compile.arg(folder.join("small.so")).args(["-Wl,-rpath,$ORIGIN", "-ldl", "-o"]).arg(&made));
        std::fs::rename(made, &program).unwrap();
    }
    printed(with_driver(&program, settings).arg(weights()).arg(device))
}

#[test]
fn only_auto_falls_back_to_the_processor() {
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("no C compiler: not checked");
        return;
    }
    assert_eq!(opens("cpu,cuda", "", ""), "0 cuda:0 []\n");
    assert_eq!(opens("cpu,cuda", "cuda", ""), "0 cuda:0 []\n");
    assert_eq!(opens("cpu,cuda", "cpu", ""), "0 cpu []\n");
    assert_eq!(opens("cpu,cuda", "auto", ""), "0 cuda:0 []\n");
    let fell_back = opens("cpu,cuda", "auto", "devices=0");
    assert!(fell_back.starts_with("0 cpu [the CUDA driver does not start: there is no NVIDIA GPU"), "{fell_back}");
    // So it does where the GPU turns out only later to be of no use.
    let rejected = opens("cpu,cuda", "auto", "reject");
    assert!(rejected.starts_with("0 cpu [the driver, for CUDA 13.0, rejects the kernels"), "{rejected}");
    let refused = opens("cpu,cuda", "", "reject");
    assert!(refused.starts_with("10 the driver, for CUDA 13.0, rejects the kernels"), "{refused}");
    let refused = opens("cpu,cuda", "", "devices=0");
    assert!(refused.starts_with("10 the CUDA driver does not start: there is no NVIDIA GPU"), "{refused}");
    assert!(
        refused.ends_with("(the library has code for the CPU too: open it on the device `cpu` or `auto`)\n"),
        "{refused}"
    );
    // What is no lack of a GPU is an error on auto, too.
    let broken = opens("cpu,cuda", "auto", "memory=100");
    assert!(broken.starts_with("5 the GPU is out of memory") && !broken.contains("are left"), "{broken}");
    let full = opens("cpu,cuda", "auto", "memory=0");
    assert!(full.starts_with("5 the GPU's context cannot be created: the GPU is out of memory"), "{full}");
    let rejected = opens("cpu,cuda", "cuda", "reject");
    assert!(
        rejected.starts_with("10 the driver, for CUDA 13.0, rejects") && !rejected.contains("are left"),
        "{rejected}"
    );
    let gpus_only = opens("cuda", "cpu", "");
    assert!(
        gpus_only.starts_with("10 Small has code for GPUs only: compile it with `--target cpu,cuda`"),
        "{gpus_only}"
    );
    let alone = opens("cuda", "auto", "devices=0");
    assert!(alone.starts_with("10 the CUDA driver does not start"), "{alone}");
    let cpus_only = opens("cpu", "cuda", "");
    assert!(cpus_only.starts_with("10 Small has no code for GPUs: compile it with `--target cuda`"), "{cpus_only}");
    assert_eq!(opens("cpu", "auto", ""), "0 cpu []\n");
    assert_eq!(opens("cpu", "fast", ""), "1 the device is `fast`; expected cpu, cuda, cuda:N or auto\n");
}
