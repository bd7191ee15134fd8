//! Products and attention of 16-bit floats get tensor cores: what the schedule makes of them is verified, assembled, and has the
//! operations of the witnesses.

use attnc::codegen::ptx::compile;
use attnc::codegen::ptx::info::KernelInfo;
use attnc::lowering::tile::lower;
use attnc::passes::{self, Collected};
use attnc::ptx::Module;
use attnc::ptx::text::print;
use attnc::tile::verify::VerifiedModule;
use attnc::tile::{self, GpuArch, tensor_core_kernel};

use crate::fragments::assembles;
use crate::{front, ptxas};

/// The kernels of a program that get tensor cores, and how many do not.
fn kernels(source: &str, arch: GpuArch) -> (tile::Module, usize) {
    let options = front::options(&[]);
    let mut module = front::module("test.attn", source, &options).unwrap_or_else(|e| panic!("{e}"));
    let all = passes::Options::default();
    passes::optimise(&mut module, &all, &mut Collected::default()).unwrap_or_else(|e| panic!("{e}"));
    let verified = attnc::ir::verify(&module).unwrap_or_else(|e| panic!("{e}"));
    let mut tiles = lower(verified).unwrap_or_else(|e| panic!("{e}")).into_module();
    let count = tiles.kernels.len();
    tiles.kernels = tiles.kernels.iter().filter_map(|k| tensor_core_kernel(k, arch)).collect();
    // Kernels alone are looked at.
    tiles.plans.clear();
    tiles.entries.clear();
    let others = count - tiles.kernels.len();
    (tiles, others)
}

/// The PTX of those kernels; all kernels of the program are among them.
fn compiled(source: &str, arch: GpuArch) -> (tile::Module, Module, Vec<KernelInfo>) {
    let (tiles, others) = kernels(source, arch);
    assert_eq!(others, 0, "{}", tile::text::print(&tiles));
    let verified = VerifiedModule::new(tiles.clone()).unwrap_or_else(|e| panic!("{}\n{e}", tile::text::print(&tiles)));
    let (module, infos) = compile(&verified, arch).unwrap_or_else(|e| panic!("{}\n{e}", tile::text::print(&tiles)));
    (tiles, module, infos)
}

/// Programs of one kernel, with a name each.
fn programs() -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut add = |name: &str, arguments: &str, result: &str, body: &str| {
        let source =
            format!("model Test {{\n    pub fn forward({arguments}) -> {result} {{\n        {body}\n    }}\n}}\n");
        all.push((name.to_string(), source));
    };
    for d in [32, 64, 80, 96, 128, 256] {
        let operands = format!("q: bf16[H, S, {d}], k: bf16[H, T, {d}], v: bf16[H, T, {d}]");
        let body = format!("softmax(q @ k.T / sqrt({d})) @ v");
        add(&format!("attention_{d}"), &operands, &format!("bf16[H, S, {d}]"), &body);
    }
    let operands = "q: f16[H, S, 64], k: f16[H, T, 64], v: f16[H, T, 64]";
    let causal = "softmax(where(causal(S, T), q @ k.T / sqrt(64), -inf)) @ v";
    add("causal", operands, "f16[H, S, 64]", causal);
    let added = "softmax(q @ k.T / sqrt(64) + m) @ v";
    add("added", &format!("{operands}, m: f16[S, T]"), "f16[H, S, 64]", added);
    add("product", "x: bf16[M, 512], w: bf16[512, 768]", "bf16[M, 768]", "x @ w");
    add("transposed", "x: bf16[M, 512], w: bf16[768, 512]", "bf16[M, 768]", "x @ w.T");
    let operands = "x: f16[M, 512], w: f16[512, 200], b: f16[200], y: f16[M, 200]";
    add("epilogue", operands, "f16[M, 200]", "relu(x @ w + b) + y");
    all
}

#[test]
fn programs_get_tensor_cores() {
    let mut wrong = Vec::new();
    for (name, source) in programs() {
        for arch in GpuArch::ALL {
            let (tiles, mut module, _) = compiled(&source, arch);
            assert_eq!(tiles.kernels.len(), 1, "{name}");
            module.kernels[0].name = format!("{name}_{}", arch.name());
            if let Some(folder) = std::env::var_os("ATTNC_KEEP_PTX") {
                let path = std::path::Path::new(&folder).join(&module.kernels[0].name);
                std::fs::write(path.with_extension("tir"), tile::text::print(&tiles)).expect("written");
                std::fs::write(path.with_extension("ptx"), print(&module)).expect("written");
            }
            ptxas::with(&name, |ptxas| wrong.extend(assembles(ptxas, &module, arch.name()).err()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
