//! `attnc bench --target cuda`: with the stand-in it says that there are no times, and counts. The loops that measure a real GPU run too,
//! once, and are assembled.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::cubins::tools;
use crate::standin::{attnc, complaint, file, folder, printed};

fn bench(settings: &str, program: &Path, options: &[&str]) -> Command {
    let mut command = attnc(settings);
    command.arg("bench").arg(program).args(["--target", "cuda", "--seconds", "0.01"]).args(options);
    command
}

/// Two products: one for tensor cores, one of f32; and attention.
fn program() -> PathBuf {
    let path = folder().join("bench.attn");
    let text = "\
/// Measured.
model Measured<D = 64> {
    w: f16[D, D]
    v: f32[D, D]

    /// Products.
    pub fn products(x: f16[S, D], y: f32[S, D]) -> (f16[S, D], f32[S, D]) {
        (x @ w, exp(y @ v))
    }

    /// Attention.
    pub fn attend(q: f16[S, D], k: f16[T, D]) -> f16[S, D] {
        softmax(q @ k.T / 8.0) @ k
    }
}
";
    let made = folder().join(format!("bench.{:?}", std::thread::current().id()));
    std::fs::write(&made, text).expect("written");
    std::fs::rename(made, &path).expect("renamed");
    path
}

#[test]
fn a_simulator_counts_and_has_no_times() {
    let program = program();
    let options = ["--function", "products", "--size", "S=30"];
    let text = printed(&mut bench("capability=80", &program, &options));
    let title = "Measured.products at S=30: sm_80 code, on `Stand-in GPU`, a simulated GPU.\n\
                 Times are not shown, because a simulator does not predict them.\n";
    assert!(text.starts_with(title), "{text}");
    assert!(!text.contains("ms") && !text.contains("GB/s"), "{text}");
    let text = printed(&mut bench("capability=90", &program, &[&options[..], &["--json", "-"]].concat()));
    let value: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value["variant"], "sm_90a");
    assert_eq!((&value["seconds"], &value["ceilings"]), (&Value::Null, &Value::Null));
    assert_eq!(value["gpu"]["simulated"], true);
    let kernels = value["kernels"].as_array().expect("kernels");
    let of = |products: &str| kernels.iter().filter(|k| k["products"] == products).collect::<Vec<_>>();
    let (tensor, plain) = (of("tensor cores"), of("FMA"));
    assert_eq!((tensor.len(), plain.len()), (1, 1), "{text}");
    // Both multiply all rows, and the other takes the exponential of each result.
    let product = 2 * 30 * 64 * 64;
    assert_eq!((&tensor[0]["flops"], &plain[0]["flops"]), (&Value::from(product), &Value::from(product + 30 * 64)));
    let bytes = |size: u64| Value::from(size * (2 * 30 * 64 + 64 * 64));
    assert_eq!((&tensor[0]["bytes"], &plain[0]["bytes"]), (&bytes(2), &bytes(4)));
    assert!(kernels.iter().all(|k| k["exact"] == true && k["launches"] == 1 && k["seconds"] == Value::Null));
    // What cannot be shown is not measured.
    let measures = |options: &[&str], stage: &str| {
        let options = [&["--function", "add", "--time-passes"], options].concat();
        let done = bench("", &file("small.attn"), &options).output().expect("attnc runs");
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        let has = text.lines().any(|line| line.ends_with(&format!("ms  {stage}")));
        (done.status.code(), has, text)
    };
    let (code, has, text) = measures(&[], "measure");
    assert_eq!((code, has), (Some(0), true), "{text}");
    let (code, has, text) = measures(&["--svg", "-"], "measure");
    assert_eq!((code, has), (Some(2), false), "{text}");
    assert!(text.contains("`--svg` shows times; a simulator of a GPU has none"), "{text}");
}

#[test]
fn attention_is_counted_as_it_is_before_it_is_scheduled() {
    // Each query meets each key, one after another; of few queries in parts, which only the schedule has.
    for (queries, keys, kind) in [(30, 70, "attention."), (1, 4000, "attention_part."), (3, 0, "attention")] {
        let size = format!("S={queries},T={keys}");
        let options = ["--function", "attend", "--size", &size, "--json", "-"];
        let value: Value = serde_json::from_str(&printed(&mut bench("", &program(), &options))).expect("JSON");
        let kernels = value["kernels"].as_array().expect("kernels");
        let kernel = kernels.iter().find(|k| k["kernel"].as_str().is_some_and(|name| name.starts_with(kind)));
        let kernel = kernel.unwrap_or_else(|| panic!("{value}"));
        // Two products, and less than half as much besides.
        let products = 2 * 2 * queries * keys * 64;
        let flops = kernel["flops"].as_u64().unwrap_or_else(|| panic!("{value}"));
        assert!((products..=products * 3 / 2 + 1000 * queries).contains(&flops), "{flops} for {products}: {value}");
        assert_eq!(kernel["exact"], true, "{value}");
    }
}

#[test]
fn without_a_driver_it_ends_with_an_error() {
    let mut command = bench("", &file("small.attn"), &["--function", "add"]);
    let text = complaint(command.env("ATTNC_CUDA_LIB", "/nowhere/libcuda.so.1"));
    assert!(text.starts_with("error[E0807]: no CUDA driver was found: /nowhere/libcuda.so.1"), "{text}");
    let text = complaint(&mut bench("devices=0", &file("small.attn"), &["--function", "add"]));
    assert!(text.starts_with("error[E0807]: the CUDA driver does not start: there is no NVIDIA GPU"), "{text}");
    // Where the CPU is asked for in that case, it is measured.
    let mut either =
        bench("devices=0", &file("small.attn"), &["--function", "add", "--target", "cpu,cuda", "--threads", "1"]);
    let text = printed(either.env("ATTNC_DEVICE", "auto"));
    assert!(text.contains(" code, 1 thread, median of "), "{text}");
}

#[test]
fn the_loops_assemble_and_keep_tensor_cores_busy() {
    let Some(home) = tools() else { return };
    let place = folder().join("loops");
    std::fs::create_dir_all(&place).expect("a folder");
    let loops = attnc::bench::gpu::texts().expect("the loops keep the rules");
    for arch in ["sm_80", "sm_100", "sm_90a"] {
        let (_, text) = loops.iter().find(|(target, _)| target.alone == (arch == "sm_90a")).expect("the loops");
        std::fs::write(place.join("loops.ptx"), text).expect("written");
        let mut ptxas = Command::new(home.join("bin/ptxas"));
        ptxas.current_dir(&place).args(["-v", "-arch", arch, "-o", "loops.cubin", "loops.ptx"]);
        let done = ptxas.output().expect("ptxas runs");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && nothing_is_spilled(&said) && !said.contains("(C75"), "{said}");
        let shower = home.join("bin/nvdisasm");
        if arch == "sm_100" || !shower.is_file() {
            continue;
        }
        let done =
            Command::new(shower).current_dir(&place).args(["-c", "loops.cubin"]).output().expect("nvdisasm runs");
        let code = String::from_utf8_lossy(&done.stdout);
        let count = |word: &str| code.matches(word).count();
        if arch == "sm_80" {
            // Nothing was left out: whatever the loops are unrolled by, there are as many of each step.
            let (fma, loads) = (count("FFMA"), count("LDG.E.128"));
            assert!(fma >= 64 && loads >= 4, "{fma} {loads}");
            for product in ["HMMA.16816.F32.BF16", "HMMA.1688.F32.TF32"] {
                assert!(count(product) >= 8 && count(product).is_multiple_of(8), "{product}: {}", count(product));
            }
        } else {
            for product in ["HGMMA.64x256x16.F32.BF16", "HGMMA.64x256x8.F32.TF32"] {
                assert!(count(product) >= 8 && count(product).is_multiple_of(8), "{product}: {}", count(product));
            }
        }
    }
}

/// Does ptxas say of every kernel, one at least, that it spills no register?
pub(crate) fn nothing_is_spilled(said: &str) -> bool {
    let mut told = said.lines().filter(|line| line.contains("spill stores")).peekable();
    told.peek().is_some() && told.all(|line| line.contains(", 0 bytes spill stores, 0 bytes spill loads"))
}
