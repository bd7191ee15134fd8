//! A decoder with a cache, in `bf16` on Hopper's own instructions: several calls of one session, as the interpreter of graph IR makes them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use attnc::runtime::npy;
use attnc::tensor::Tensor;

use crate::examples::agree;
use crate::standin::{attnc, file, folder, printed};

/// How many tokens each call reads; 0 stands for `reset`, by the library or by the program.
const CALLS: [usize; 8] = [70, 1, 3, 0, 20, 1, 0, 1];

/// The calls as `attnc run --calls` takes them.
fn calls() -> String {
    let (mut out, mut begun, mut next) = (String::new(), 0, 7);
    for n in CALLS {
        if n == 0 {
            begun += 1;
            out += if begun % 2 == 1 { "reset\n" } else { "forget()\n" };
            continue;
        }
        let mut token = || {
            next = (next * 5 + 3) % 37;
            next.to_string()
        };
        let tokens: Vec<String> = (0..n).map(|_| token()).collect();
        writeln!(out, "read(tokens = [{}])", tokens.join(", ")).expect("text");
    }
    out
}

/// The results of all calls, by their names.
fn results(place: &Path, options: &[&str], settings: &str) -> BTreeMap<String, Tensor> {
    let list = folder().join("decoder.calls");
    std::fs::write(&list, calls()).expect("written");
    let mut run = attnc(settings);
    run.arg("run").arg(file("decoder.attn")).arg("--random=5").arg("--calls").arg(&list).args(options);
    printed(run.arg("-o").arg(place));
    let read = |path: &Path| npy::parse(&std::fs::read(path).expect("a file")).expect("a tensor");
    let files = std::fs::read_dir(place).expect("a folder").map(|entry| entry.expect("a file"));
    files.map(|f| (f.file_name().to_string_lossy().into_owned(), read(&f.path()))).collect()
}

#[test]
fn a_session_of_a_decoder_keeps_its_states_on_hopper() {
    let mut emit = attnc("");
    emit.arg(file("decoder.attn")).args(["--target", "cuda", "--gpu", "sm_90a", "--emit", "tile=-"]);
    let tiles = printed(&mut emit);
    for word in ["wgmma", "tma_load", "@attention_part.0", "@combine_parts.0"] {
        assert!(tiles.contains(word), "no {word}:\n{tiles}");
    }
    let want = results(&folder().join("decoder.interp"), &["--backend", "interp"], "");
    assert_eq!(want.len(), CALLS.iter().filter(|n| **n > 0).count() + 1, "{:?}", want.keys());
    let got = results(&folder().join("decoder.cuda"), &["--target", "cuda"], "latest,capability=90,seed=4");
    assert_eq!(want.keys().collect::<Vec<_>>(), got.keys().collect::<Vec<_>>());
    for (name, want) in &want {
        agree(name, want, &got[name], 1.0 / 64.0);
    }
}
