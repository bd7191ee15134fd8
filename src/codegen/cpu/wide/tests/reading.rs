//! The text of virtual-register code is complete: it parses back to the same function, with the
//! same machine code.

use super::super::allocate::allocate;
use super::super::encode::encode;
use super::super::machine::{Function, parse, print};
use super::super::run_leaf;
use crate::diagnostics::Diagnostics;
use crate::ir;
use crate::lowering;
use crate::passes::{Collected, Options, optimise};
use crate::source::SourceMap;
use crate::tile::{self, Cpu, Kernel, Op};

/// Parses a function's text back, with and without origin comments.
fn reads_back(f: &Function) {
    let commented = print("leaf", f, &|inst| format!("{inst}"));
    let code = |f: &Function| encode(&allocate(f).expect("registers")).expect("bytes").0;
    let parsed = parse(&commented).unwrap_or_else(|e| panic!("{e}\n{commented}"));
    let [(name, again)] = parsed.as_slice() else { panic!("one leaf\n{commented}") };
    let without: String = commented.lines().filter(|l| !l.starts_with("  // ")).map(|l| format!("{l}\n")).collect();
    assert_eq!((name.as_str(), print("leaf", again, &|inst| format!("{inst}"))), ("leaf", without));
    assert!(code(again) == code(f), "other bytes\n{commented}");
}

/// Parses the text of all leaves of a kernel's runs back; returns their number.
fn leaves_read_back(level: Cpu, kernel: &Kernel) -> usize {
    let mut count = 0;
    for (_, _, data) in kernel.body.insts() {
        if let Op::Run { rows, cols, insts } = &data.op
            && let Ok(leaf) = run_leaf(level, &kernel.body, *rows, *cols, insts)
        {
            reads_back(&leaf.stages.selected);
            count += 1;
        }
    }
    count
}

#[test]
fn leaves_of_random_kernels_read_back() {
    for seed in 0..40 {
        let kernel = super::kernel(&super::random::random_kernel(seed));
        for level in [Cpu::AVX512_BF16, Cpu::AVX512, Cpu::AVX2] {
            assert!(leaves_read_back(level, &kernel) > 0, "seed {seed}");
        }
    }
}

#[test]
fn leaves_of_examples_read_back() {
    for example in ["02_self_attention", "03_masks", "06_encoder_layer", "08_gpt2"] {
        let path = format!("{}/examples/{example}.attn", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(path).expect("an example");
        let (mut sources, mut diagnostics) = (SourceMap::new(), Diagnostics::new());
        let file = sources.add(example, &source);
        let tree = crate::syntax::parse(file, &source, &mut diagnostics);
        let program = crate::types::check(&tree, &mut sources, &mut diagnostics);
        let options = lowering::graph::Options::default();
        let Ok(mut module) = lowering::graph::lower(&program, &sources, &options, &mut diagnostics) else {
            panic!("{example} has no graph")
        };
        optimise(&mut module, &Options::default(), &mut Collected::default()).unwrap_or_else(|e| panic!("{e}"));
        for level in [Cpu::AVX512, Cpu::AVX2] {
            let verified = ir::verify(&module).unwrap_or_else(|e| panic!("{example}: {e}"));
            let tiles = lowering::tile::lower(verified).unwrap_or_else(|e| panic!("{example}: {e}"));
            let tiles = tile::schedule(&tiles, level, &tile::WeightChoice::default());
            let tiles = tiles.unwrap_or_else(|e| panic!("{example}: {e}"));
            let mut count = 0;
            for kernel in &tiles.kernels {
                count += leaves_read_back(level, kernel);
            }
            assert!(count > 3, "{example} has {count} leaves");
        }
    }
}

#[test]
fn texts_that_are_wrong_are_refused() {
    let leaf =
        |line: &str| format!("leaf @x, vectors=512, frame=0 {{\n^bb0:\n  %0 = mov [words]\n  {line}\n  return\n}}\n");
    assert!(parse(&leaf("%1 = plus_imm tied(%0), 4")).is_ok());
    for (line, message) in [
        ("%1 = plus_imm %0, 4", "a tied operand is missing or unexpected"),
        ("%1 = plus_imm tied(%0)", "operands are missing"),
        ("%1 = plus_imm tied(%0), 4, 5", "it has too many operands"),
        ("%1 = add %0, %0", "%0 is not a vector register"),
        ("%1 = load %0", "%0 is not a memory"),
        ("%1 = equal_i %0, %0", "the instruction does not exist"),
        ("%1 = mov [%2]", "undefined register"),
        ("%1 = lea [%0+%0*3]", "invalid scale of an index: 3"),
        ("%1 = spread [c0]", "a constant is out of range"),
        ("spill [%0], 4", "Imm(4) is not a general"),
        ("%0 = store [%0], %0", "this instruction has no result"),
        ("%1 = fetch_all [%0]", "there is no instruction `fetch_all`"),
        ("branch %0 > 4, ^bb0, ^bb0", "expected `<` or `>=`"),
    ] {
        let e = parse(&leaf(line)).map(|_| ()).expect_err(line);
        assert!(e.to_string().contains(message), "{line}: {e}");
    }
}
