//! The kernels of the examples: verified PTX, which NVIDIA's assembler takes for every kind of GPU, without spills and without the
//! messages that mean that something was serialised.

use std::collections::BTreeSet;
use std::path::Path;

use attnc::codegen::ptx::{self, KernelInfo};
use attnc::ptx::text::print;
use attnc::ptx::{Kernel, Module};
use attnc::tile::verify::VerifiedModule;
use attnc::tile::{GpuArch, schedule_for_gpu};
use attnc::{ir, lowering, passes};

use crate::{fixtures, front, ptxas};

/// The unscheduled tile IR of a program.
fn tiles(name: &str, source: &str, dims: &[(&str, i64)]) -> VerifiedModule {
    let mut module = front::module(name, source, &front::options(dims)).unwrap_or_else(|e| panic!("{e}"));
    passes::optimise(&mut module, &passes::Options::default(), &mut passes::Collected::default())
        .unwrap_or_else(|e| panic!("{e}"));
    let graph = ir::verify(&module).unwrap_or_else(|e| panic!("{e}"));
    lowering::tile::lower(graph).unwrap_or_else(|e| panic!("{e}"))
}

/// The PTX of a module for a kind of GPU.
fn compiled(tiles: &VerifiedModule, arch: GpuArch) -> (Module, Vec<KernelInfo>) {
    let scheduled = schedule_for_gpu(tiles, arch).unwrap_or_else(|e| panic!("{e}"));
    ptx::compile(&scheduled, arch).unwrap_or_else(|e| panic!("{e}"))
}

/// A kernel without what its text says of where it comes from: the same one in two examples is assembled once.
fn anonymous(k: &Kernel) -> Kernel {
    let body = k.body.iter().filter(|line| !matches!(line, attnc::ptx::Line::Comment(_))).cloned().collect();
    Kernel { name: String::new(), comments: Vec::new(), body, ..k.clone() }
}

/// What is wrong with what the assembler says of a module.
fn complaints(ptxas: &Path, module: &Module, infos: &[KernelInfo], processor: &str) -> Vec<String> {
    let said = ptxas::assemble(ptxas, &print(module), processor, &[]);
    let mut wrong = Vec::new();
    if !said.ok {
        wrong.extend(
            said.text.lines().filter(|line| line.contains("error") || line.contains("fatal")).map(String::from),
        );
    }
    let mut kernel = "";
    for line in said.text.lines() {
        if let Some((_, rest)) = line.split_once("Function properties for ") {
            kernel = rest;
        }
        if let Some((_, used)) = line.split_once("Used ") {
            let k = module.kernels.iter().find(|k| k.name == kernel);
            let info = infos.iter().find(|info| info.name == kernel);
            let (Some(k), Some(info)) = (k, info) else { panic!("a kernel {kernel} that nobody knows") };
            wrong.extend(unlike_planned(used, k, info).map(|why| format!("{processor}, {kernel}: {why}")));
        }
        let spills = line.contains("spill") && !line.contains(" 0 bytes spill stores, 0 bytes spill loads");
        let serialised = ["C7508", "C7511", "C7517", "C7518", "C7519"].iter().any(|code| line.contains(code));
        if spills || serialised {
            wrong.push(format!("{processor}, {kernel}: {}", line.trim()));
        }
    }
    wrong
}

/// Registers of a multiprocessor, and the multiple in which a warp of 32 threads gets them.
const REGISTERS: u32 = 65536;
const REGISTERS_OF_WARP: u32 = 256;

/// What a kernel uses that is not as planned: as many blocks fit a multiprocessor as it says, and shared memory is what its launch
/// is told.
fn unlike_planned(used: &str, kernel: &Kernel, info: &KernelInfo) -> Option<String> {
    let number = |behind: &str| -> u32 {
        let parts: Vec<&str> = used.split([' ', ',']).filter(|w| !w.is_empty()).collect();
        let at = parts.windows(2).position(|w| w[1].starts_with(behind));
        at.map_or(0, |at| parts[at].parse().expect("a number"))
    };
    let registers = number("registers");
    assert!(registers > 0, "{used}");
    let shared = used
        .split(", ")
        .find_map(|part| part.trim().strip_suffix(" bytes smem"))
        .map_or(0, |n| n.parse().expect("a number"));
    if shared != info.static_shared {
        return Some(format!("{shared} bytes of shared memory, planned are {}", info.static_shared));
    }
    let of_warp = (registers * 32).next_multiple_of(REGISTERS_OF_WARP);
    let of_blocks = of_warp * info.block_size().div_ceil(32) * kernel.min_blocks.unwrap_or(1);
    (of_blocks > REGISTERS)
        .then(|| format!("{registers} registers a thread; the planned blocks have {of_blocks} of {REGISTERS}"))
}

/// Assembles the kernels of all examples that are not the same as others, every so many of them.
fn assemble(arch: GpuArch, processor: &str, every: usize) {
    ptxas::with(&format!("the kernels of the examples for {processor}"), |ptxas| {
        let (mut seen, mut wrong, mut count) = (BTreeSet::new(), Vec::new(), 0);
        for example in fixtures::EXAMPLES {
            let source = std::fs::read_to_string(fixtures::program(example)).expect("an example");
            let fixture = fixtures::load(example);
            let dims: Vec<(&str, i64)> = fixture.dims.iter().map(|(name, n)| (name.as_str(), *n)).collect();
            let (mut module, infos) = compiled(&tiles(example, &source, &dims), arch);
            module.kernels.retain(|k| {
                let new = seen.insert(format!("{:?}", anonymous(k)));
                count += usize::from(new);
                new && count % every == 0
            });
            if !module.kernels.is_empty() {
                wrong.extend(complaints(ptxas, &module, &infos, processor).iter().map(|e| format!("{example}: {e}")));
            }
        }
        assert!(count > 300, "only {count} different kernels");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

#[test]
fn kernels_of_the_examples_are_assembled_for_ampere() {
    assemble(GpuArch::Sm80, "sm_80", 4);
}

#[test]
fn kernels_of_the_examples_are_assembled_for_hopper() {
    assemble(GpuArch::Sm90a, "sm_90a", 16);
}

#[test]
fn kernels_of_the_examples_are_assembled_for_blackwell() {
    assemble(GpuArch::Sm80, "sm_100", 16);
}

/// GPT-2 of `bf16`, weights and activations, with the widths of its smallest size and others: the products take the largest tiles, and read
/// biases and residuals.
#[test]
fn kernels_of_gpt2_of_bf16_are_assembled() {
    ptxas::with("the kernels of GPT-2 of bf16", |ptxas| {
        let mut source =
            std::fs::read_to_string(fixtures::program("08_gpt2")).expect("an example").replace("f32", "bf16");
        for layer in ["LayerNorm<D>", "Conv1D<D, 3*D>", "Conv1D<D, D>", "Conv1D<D, F>", "Conv1D<F, D>"] {
            source = source.replace(layer, &layer.replace('>', ", E = bf16>"));
        }
        let mut wrong = Vec::new();
        // Heads of 64 columns; of 8, with rows that are no multiple of any tile; and a vocabulary of even size.
        for dims in [&[][..], &[("D", 776), ("H", 97)], &[("D", 1600), ("H", 25), ("V", 50_000)]] {
            let tiles = tiles("gpt2.attn", &source, dims);
            for (arch, processors) in [(GpuArch::Sm80, &["sm_80", "sm_100"][..]), (GpuArch::Sm90a, &["sm_90a"])] {
                let (mut module, infos) = compiled(&tiles, arch);
                module.kernels.retain(|k| k.name.starts_with("matmul"));
                assert!(module.kernels.len() >= 5, "{dims:?}: {} products", module.kernels.len());
                for processor in processors {
                    wrong
                        .extend(complaints(ptxas, &module, &infos, processor).iter().map(|e| format!("{dims:?}: {e}")));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}
