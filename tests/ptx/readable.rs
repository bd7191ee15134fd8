//! Is the PTX readable? A small kernel as a whole, and what a kernel for tensor cores consists of: its comments, and how many instructions of
//! each kind stand below each.

use std::collections::BTreeMap;

use attnc::codegen::ptx;
use attnc::passes;
use attnc::ptx::text::print;
use attnc::tile::{self, GpuArch};

use crate::front;

/// The PTX of a program.
fn text(source: &str, arch: GpuArch) -> String {
    let mut graph = front::module("readable.attn", source, &front::options(&[])).unwrap_or_else(|e| panic!("{e}"));
    passes::optimise(&mut graph, &passes::Options::default(), &mut passes::Collected::default())
        .unwrap_or_else(|e| panic!("{e}"));
    let verified = attnc::ir::verify(&graph).unwrap_or_else(|e| panic!("{e}"));
    let tiles = attnc::lowering::tile::lower(verified).unwrap_or_else(|e| panic!("{e}"));
    let tiles = tile::schedule_for_gpu(&tiles, arch).unwrap_or_else(|e| panic!("{e}"));
    let (kernels, _) = ptx::compile(&tiles, arch).unwrap_or_else(|e| panic!("{e}"));
    print(&kernels)
}

/// The comments of a text, with the instructions below each: the first words of their opcodes, and how many there are.
fn outline(text: &str) -> String {
    let mut out = String::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let flush = |out: &mut String, counts: &mut BTreeMap<String, usize>| {
        let parts: Vec<String> =
            std::mem::take(counts).into_iter().map(|(op, n)| if n == 1 { op } else { format!("{n} {op}") }).collect();
        if !parts.is_empty() {
            out.push_str(&format!("        {}\n", parts.join(", ")));
        }
    };
    let body = text.split_once("\n{\n").map_or("", |(_, body)| body);
    for line in body.lines() {
        let words = line.trim();
        if words.starts_with("//") || words.starts_with('$') {
            flush(&mut out, &mut counts);
            out.push_str(&format!("{line}\n"));
        } else if !words.is_empty() && !words.starts_with('.') {
            let opcode = words.split(' ').find(|w| !w.starts_with('@')).unwrap_or_default();
            let name: Vec<&str> = opcode.trim_end_matches(';').split('.').take(2).collect();
            *counts.entry(name.join(".")).or_default() += 1;
        }
    }
    flush(&mut out, &mut counts);
    out
}

pub(crate) fn assert_readable(name: &str, shown: &str) {
    insta::with_settings!({
        snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/ptx"),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::assert_snapshot!(name, shown);
    });
}

#[test]
fn a_small_kernel() {
    let source = "model M {\n    pub fn forward(x: f32[N, 64], scale: f32[64]) -> f32[N, 64] { relu(x) * scale }\n}\n";
    let text = text(source, GpuArch::Sm80);
    // The line of the program, the operation of the tile IR, a register by the name of its value.
    let is_relu = |l: &&str| l.contains("// | %") && l.contains(" = relu ");
    let line = text.lines().find(is_relu).unwrap_or_else(|| panic!("{text}"));
    let value = line.trim().trim_start_matches("// | %").split(' ').next().expect("a value");
    assert!(line.ends_with("readable.attn:2:67") && text.contains(&format!(" %v{value}, ")), "{line}");
    assert_readable("small_kernel", &text);
}

const PRODUCT: &str =
    "model M {\n    pub fn forward(x: bf16[M, 64], w: bf16[64, 32]) -> bf16[M, 32] { relu(x @ w) }\n}\n";

#[test]
fn a_product_on_tensor_cores() {
    for (arch, unit) in [(GpuArch::Sm80, "mma.sync"), (GpuArch::Sm90a, "wgmma.mma_async")] {
        let shown = outline(&text(PRODUCT, arch));
        assert!(shown.contains(unit), "{shown}");
        assert_readable(&format!("product_{}", arch.name()), &shown);
    }
}
