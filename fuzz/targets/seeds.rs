//! Valid inputs of each target, made from the examples and the fixtures of the tests.

use std::path::{Path, PathBuf};

use attnc::codegen::cpu::{Arch, EmitOptions, Tier};
use attnc::codegen::{self, Generator, descriptor};
use attnc::ir::Module;
use attnc::passes::{self, Options};
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::tile::{self, Cpu, WeightFormat};
use attnc::{ir, lowering};

use super::{library, texts};

/// Longer inputs are no seeds: they are mutated at places that do not matter.
const LONGEST: usize = 40_000;

fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    if env!("CARGO_PKG_NAME") == "attnc-fuzz" { own.parent().expect("the root") } else { own }
}

/// The files below a folder with one of these endings, in order.
fn files(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let mut open = vec![root().join(folder)];
    let mut paths: Vec<PathBuf> = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => open.push(path),
                false if path.to_string_lossy().ends_with(ending) => paths.push(path),
                false => {}
            }
        }
    }
    paths.sort();
    let read = |path: &PathBuf| std::fs::read(path).expect("a file");
    paths.iter().map(read).filter(|bytes| bytes.len() <= LONGEST).collect()
}

fn bytes(texts: impl IntoIterator<Item = String>) -> Vec<Vec<u8>> {
    texts.into_iter().map(String::into_bytes).filter(|text| text.len() <= LONGEST).collect()
}

pub(super) fn attn() -> Vec<Vec<u8>> {
    let mut all = files("examples", ".attn");
    all.extend(files("tests", ".attn"));
    all
}

/// Graph IR of the examples that need no choice of dimensions.
fn modules() -> Vec<Module> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    attn().into_iter().map(text).filter_map(|source| texts::lowered(&source)).collect()
}

fn optimised(mut module: Module) -> Module {
    passes::optimise(&mut module, &Options::default(), &mut passes::Collected::default()).expect("the passes");
    module
}

pub(super) fn air() -> Vec<Vec<u8>> {
    let mut all = files("src/ir", ".air");
    for module in modules() {
        all.extend(bytes([ir::text::print(&module), ir::text::print(&optimised(module))]));
    }
    all
}

/// Tile IR as lowering makes it, and scheduled.
fn tiles() -> Vec<tile::Module> {
    let mut all = Vec::new();
    for module in modules() {
        let module = optimised(module);
        let open = lowering::tile::lower(ir::verify(&module).expect("graph IR")).expect("tile IR");
        for level in [Cpu::PORTABLE, Cpu::NAMED[2]] {
            all.push(tile::schedule(&open, level, &WeightFormat::F32.into()).expect("a schedule").into_module());
        }
        all.push(open.into_module());
    }
    all
}

pub(super) fn tir() -> Vec<Vec<u8>> {
    let mut all = files("tests", ".tir");
    all.extend(bytes(tiles().iter().map(tile::text::print)));
    all
}

pub(super) fn vir() -> Vec<Vec<u8>> {
    let mut all = files("src/vector", ".vir");
    all.extend(files("src/vector", ".vec"));
    all
}

pub(super) fn clif() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for module in tiles().iter().filter(|m| tile::text::print(m).len() <= LONGEST).take(12) {
        let Ok(verified) = tile::verify::verify(module) else { continue };
        let Ok(model) = descriptor::describe(&module.interface(), "Fuzz", "", &Arch::host().triple().to_string())
        else {
            continue;
        };
        let tiers = [Tier { level: Cpu::PORTABLE, module: verified, gpu: None }];
        let options = EmitOptions { clif: true, ..EmitOptions::default() };
        if let Ok(code) = codegen::compile(Generator::Cranelift, &tiers, &model, options) {
            all.extend(bytes([code.clif]));
        }
    }
    all
}

pub(super) fn config() -> Vec<Vec<u8>> {
    files("tests/fixtures/checkpoints", "config.json")
}

pub(super) fn gguf() -> Vec<Vec<u8>> {
    files("tests/fixtures/gguf", ".gguf")
}

pub(super) fn tokenizer() -> Vec<Vec<u8>> {
    let small = r#"{"added_tokens":[{"id":3,"content":"<x>","normalized":true}],"normalizer":{"type":"Prepend","prepend":"_"},
        "pre_tokenizer":null,"model":{"type":"BPE","vocab":{"_":0,"a":1,"b":2,"<":4,"x":5,">":6},"merges":[]}}"#;
    let mut all = files("tests/fixtures/tokenizers", ".json");
    all.push(small.as_bytes().to_vec());
    all.iter_mut().for_each(|file| file.extend_from_slice(b"\0Hello, <x> 123 wor\xc3\xb6ld"));
    all
}

pub(super) fn safetensors() -> Vec<Vec<u8>> {
    let index =
        br#"{"metadata":{"total_size":144},"weight_map":{"table":"fixed.safetensors","weight":"fixed.safetensors"}}"#;
    vec![library::fixed_weights(), index.to_vec()]
}

pub(super) fn npy() -> Vec<Vec<u8>> {
    let floats = Tensor::from_f32(vec![2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).expect("a tensor");
    let ints = Tensor::from_ints(Elem::I64, vec![0, 4], &[]).expect("a tensor");
    [floats, ints].iter().map(attnc::runtime::npy::to_bytes).collect()
}

pub(super) fn calls() -> Vec<Vec<u8>> {
    let text = "// A comment.\nprefill(tokens = [464, 3290, 318])\nstep(token = 3)\nreset\n\
                forward(x = inputs/x.npy, mask = \"a file, its name in quotes.npy\", y = [[1.5, -2], [inf, nan]])\n";
    bytes([text.to_string()])
}

pub(super) fn interface() -> Vec<Vec<u8>> {
    (0..10u8)
        .map(|entry| [[2, entry, 1, 0, 0, 0, 1, 4, 0, 3, 2, 1], [1, entry, 1, 4, 0, 0, 1, 3, 0, 1, 0, 0]].concat())
        .collect()
}
