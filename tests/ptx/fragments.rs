//! Kernels of tensor cores: the two witnesses as PTX, and what the assembler makes of them.

use std::path::Path;

use attnc::codegen::ptx::compile;
use attnc::codegen::ptx::info::KernelInfo;
use attnc::ptx::Module;
use attnc::ptx::Swizzle;
use attnc::ptx::text::{parse, print};
use attnc::source::SourceMap;
use attnc::tile::verify::VerifiedModule;
use attnc::tile::{self, GpuArch};

use crate::ptxas;

pub(crate) const SM80: &str = include_str!("../witnesses/attention_sm80.tir");
pub(crate) const SM90A: &str = include_str!("../witnesses/attention_sm90a.tir");

/// A tile IR text as PTX. (The code generator verifies what it makes.)
fn compiled(source: &str, arch: GpuArch) -> (Module, Vec<KernelInfo>) {
    let mut sources = SourceMap::new();
    let file = sources.add("witness.tir", source);
    let parsed = tile::text::parse(source, file);
    let module = parsed.unwrap_or_else(|d| panic!("{}", attnc::diagnostics::render_all(&d, &sources, false))).module;
    let module = VerifiedModule::new(module).unwrap_or_else(|e| panic!("{e}"));
    let (module, infos) = compile(&module, arch).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(parse(&print(&module)).as_ref(), Ok(&module), "what is printed reads back");
    (module, infos)
}

/// Is a module assembled without spills, and without products that wait for each other? If not, what the assembler says.
pub(crate) fn assembles(ptxas: &Path, module: &Module, processor: &str) -> Result<(), String> {
    let text = print(module);
    let said = ptxas::assemble(ptxas, &text, processor, &[]);
    let message = || format!("{} for {processor}: {}", module.kernels[0].name, said.text);
    let mut told = said.text.lines().filter(|line| line.contains("spill stores")).peekable();
    let nothing = told.peek().is_some() && told.all(|l| l.contains(" 0 bytes spill stores, 0 bytes spill loads"));
    if !said.ok || !nothing {
        return Err(message());
    }
    match ["C7508", "C7511", "C7517", "C7518", "C7519"].iter().any(|code| said.text.contains(code)) {
        true => Err(message()),
        false => Ok(()),
    }
}

#[test]
fn the_witness_for_ampere_is_assembled_without_spills() {
    let (module, infos) = compiled(SM80, GpuArch::Sm80);
    assert_eq!((infos[0].dynamic_shared, infos[0].threads), (40_960, [128, 1, 1]));
    assert_eq!((module.version.to_string(), module.target.to_string()), ("7.0".into(), "sm_80".into()));
    ptxas::with("attention for sm_80", |ptxas| {
        for processor in ["sm_80", "sm_90a", "sm_100"] {
            assembles(ptxas, &module, processor).unwrap_or_else(|e| panic!("{e}"));
        }
    });
}

/// How many instructions have a name.
fn count(code: &[String], name: &str) -> usize {
    code.iter().filter(|l| l.contains(name)).count()
}

/// The stretches of code from a wait for all products but one to the next wait, which is for all: work beside a product.
fn beside_products(code: &[String]) -> Vec<&[String]> {
    let waits: Vec<usize> = (0..code.len()).filter(|n| code[*n].contains("WARPGROUP.DEPBAR")).collect();
    let pairs = waits.windows(2).filter(|w| code[w[0]].contains("0x1"));
    pairs.map(|w| &code[w[0]..w[1]]).collect()
}

#[test]
fn the_witness_for_hopper_is_assembled_without_spills_and_overlaps() {
    let (module, infos) = compiled(SM90A, GpuArch::Sm90a);
    assert_eq!(module.target.to_string(), "sm_90a");
    let info = &infos[0];
    assert_eq!((info.dynamic_shared, info.threads), (163_936, [384, 1, 1]));
    let maps: Vec<(usize, &[u32], Swizzle)> =
        info.tensor_maps.iter().map(|m| (m.param, m.boxes.as_slice(), m.swizzle)).collect();
    let swizzle = Swizzle::Bytes128;
    assert_eq!(maps, [(0, &[64, 64, 1][..], swizzle), (1, &[64, 128, 1], swizzle), (2, &[64, 128, 1], swizzle)]);
    let [t, h] = ["T", "H"].map(attnc::shape::Dim::symbol);
    let of_keys = &info.tensor_maps[1];
    assert_eq!(of_keys.extents, [128.into(), t.max_with(&1.into()), h.max_with(&1.into())]);
    assert_eq!(of_keys.byte_strides, [256.into(), t.mul(&256.into()).max_with(&16.into())]);
    ptxas::with("attention for sm_90a", |ptxas| {
        assembles(ptxas, &module, "sm_90a").unwrap_or_else(|e| panic!("{e}"));
        let Some(code) = ptxas::disassemble(ptxas, &print(&module), "sm_90a") else { return };
        // Two consumers; each has the scores of the first tile, both products of the others, and the values of the last one.
        assert_eq!(count(&code, "HGMMA.64x128x16.F32.BF16"), 2 * (8 + 16 + 8));
        assert_eq!((count(&code, "UTMALDG.3D"), count(&code, "STL"), count(&code, "LDL")), (8, 0, 0));
        // The softmax of a tile (64 scores and two rescalings a thread) runs beside the product of values.
        let beside: Vec<usize> = beside_products(&code).iter().map(|part| count(part, "MUFU.EX2")).collect();
        assert_eq!(beside, [66, 66]);
        let ring_waits = 2 * (1 + 1 + 2 + 1 + 1) + 2 + 2;
        assert!(count(&code, "SYNCS.PHASECHK") >= ring_waits, "{}", count(&code, "SYNCS.PHASECHK"));
    });
}
