//! The fuzz targets: what each does with an input, the seeds it starts from, and the mutations of the tests.
//!
//! In: bytes that nobody checked. Out: nothing; what is wrong is a panic, a signal, a hang or too much memory. Shared by
//! `fuzz/main.rs` (libFuzzer) and `tests/random/fuzz.rs` (a short run in CI).

mod files;
mod library;
mod seeds;
mod texts;

use std::collections::BTreeSet;

/// One kind of input.
pub(crate) struct Target {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// Feeds an input to attnc.
    pub(crate) run: fn(&[u8]),
    /// Valid inputs to start from.
    pub(crate) seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
#[rustfmt::skip]
pub(crate) const TARGETS: [Target; 13] = [
    // A program: parsed, checked, lowered, interpreted.
    Target { name: "attn", run: texts::attn, seeds: seeds::attn },
    // Graph IR: read, verified, printed, interpreted.
    Target { name: "air", run: texts::air, seeds: seeds::air },
    // Graph IR: the same results, within bounds, after all passes.
    Target { name: "passes", run: texts::passes, seeds: seeds::air },
    // Tile IR: read, verified, printed, interpreted; compiled and called on guarded memory.
    Target { name: "tir", run: texts::tir, seeds: seeds::tir },
    // Vector IR: routines and elementary functions, read, verified, printed, interpreted.
    Target { name: "vir", run: texts::vir, seeds: seeds::vir },
    // Cranelift's IR: read and compiled.
    Target { name: "clif", run: texts::clif, seeds: seeds::clif },
    // A configuration of the hub: imported; what is made of it checks.
    Target { name: "config", run: files::config, seeds: seeds::config },
    // A GGUF file: its configuration, its tensors.
    Target { name: "gguf", run: files::gguf, seeds: seeds::gguf },
    // A tokenizer, then a prompt after the first NUL byte: encoded, and decoded again.
    Target { name: "tokenizer", run: files::tokenizer, seeds: seeds::tokenizer },
    // Weights (or an index of weight files): by the compiler's reader and by the runtime's.
    Target { name: "safetensors", run: files::safetensors, seeds: seeds::safetensors },
    // An array of NumPy.
    Target { name: "npy", run: files::npy, seeds: seeds::npy },
    // A file of calls for `attnc run --calls`.
    Target { name: "calls", run: files::calls, seeds: seeds::calls },
    // Calls of the C interface with tensors of any description, on guarded memory.
    Target { name: "interface", run: library::interface, seeds: seeds::interface },
];

/// The words of the seeds as a dictionary of libFuzzer. It begins with a comment, as libFuzzer refuses an empty file.
#[allow(dead_code, reason = "only libFuzzer's program writes dictionaries")]
pub(crate) fn dictionary(seeds: &[Vec<u8>]) -> String {
    let entries = words(seeds).into_iter().map(|word| format!("\"{word}\"\n"));
    std::iter::once("# The words of the seeds.\n".to_owned()).chain(entries).collect()
}

/// The distinct words and numbers of seeds that are text.
pub(crate) fn words(seeds: &[Vec<u8>]) -> BTreeSet<String> {
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let all = seeds.iter().filter(|seed| seed.is_ascii()).flat_map(|seed| seed.split(move |b| !is_word(b)));
    let short = all.filter(|word| (2..=24).contains(&word.len()));
    short.filter_map(|word| String::from_utf8(word.to_vec()).ok()).take(200_000).collect()
}
