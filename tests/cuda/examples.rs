//! The examples on a GPU: what the library computes with PTX is what it computes on the processor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use attnc::runtime::npy;
use attnc::tensor::Tensor;

use crate::standin::{attnc, folder, printed};

/// A call with random weights and arguments, whose results are compared; the words are options of `attnc run`.
struct Example {
    name: &'static str,
    options: &'static [&'static str],
}

/// Each shows something that no other does.
const EXAMPLES: [Example; 14] = [
    Example { name: "01_linear", options: &["--size", "batch=3"] },
    // Taps, and nothing at all.
    Example { name: "02_self_attention", options: &["--dim", "D=32,K=8", "--size", "S=5", "--tap", "*"] },
    Example { name: "02_self_attention", options: &["--dim", "D=32,K=8", "--size", "S=0"] },
    // A mask that is an argument.
    Example { name: "03_masks", options: &["--function", "masked", "--dim", "D=20", "--size", "batch=2,S=7,T=5"] },
    // A table, layers in a loop over their parameters, causal attention.
    Example { name: "08_gpt2", options: &["--entry", "Gpt2", "--dim", "L=2,D=48,H=4,V=97,T=64", "--size", "S=9"] },
    // Weights as integers, those of a list of layers among them, packed by kernels when the model is opened.
    Example {
        name: "08_gpt2",
        options: &[
            "--entry",
            "Gpt2",
            "--dim",
            "L=2,D=48,H=4,V=97,T=64",
            "--size",
            "S=5",
            "--pack",
            "int4",
            "--cpu",
            "portable",
        ],
    },
    Example {
        name: "11_norms",
        options: &["--function", "group_norm", "--dim", "D=9,C=6,G=2,F=11", "--size", "B=2,S=5"],
    },
    Example { name: "12_losses", options: &["--function", "label_smoothing", "--dim", "V=13", "--size", "N=6"] },
    // A loop over time.
    Example { name: "13_recurrent", options: &["--function", "bi_lstm", "--dim", "I=5,H=6,C=3", "--size", "S=7,B=2"] },
    // More points than blocks that run at the same time.
    Example { name: "13_recurrent", options: &["--function", "lstm", "--dim", "I=5,H=200", "--size", "S=3,B=2"] },
    Example { name: "25_mamba", options: &["--dim", "L=2,D=7,I=14,N=3,R=2,V=23", "--size", "B=2,S=7"] },
    // Rows that are sent to the experts that are chosen for them.
    Example { name: "26_mixture", options: &["--dim", "D=7,F=9,X=5,K=2", "--size", "N=6"] },
    // A loop whose end is computed on the GPU and read by the plan, with caches that are states.
    Example {
        name: "33_translate",
        options: &["--function", "translate", "--dim", "L=2,D=18,H=3,F=20,V=31,C=9,N=8", "--size", "T=5"],
    },
    // States.
    Example {
        name: "30_voice",
        options: &["--function", "listen", "--dim", "C=14,K=3,F=8,A=5,B=4,H=7", "--size", "N=3"],
    },
];

/// Examples whose elements are `bf16`, for Hopper: layers, attention with masks of all kinds, recurrent ones, convolutions, experts.
const HALVES: [Example; 14] = [
    Example { name: "03_masks", options: &["--function", "forward", "--dim", "D=64", "--size", "batch=2,S=70,T=80"] },
    Example { name: "03_masks", options: &["--function", "decode", "--dim", "D=32", "--size", "batch=2,S=3,T=80"] },
    Example { name: "03_masks", options: &["--function", "biased", "--dim", "D=64", "--size", "batch=1,S=17,T=20"] },
    Example {
        name: "04_multi_head_attention",
        options: &["--function", "masked", "--dim", "D=64,H=4", "--size", "B=2,S=9"],
    },
    Example { name: "05_cross_attention", options: &["--dim", "D=64,H=2", "--size", "B=2,S=20,T=33"] },
    Example { name: "07_encoder", options: &["--dim", "L=2,D=64,H=2,F=128", "--size", "B=2,S=20"] },
    Example { name: "13_recurrent", options: &["--function", "gru", "--dim", "I=16,H=32", "--size", "S=3,B=10"] },
    Example {
        name: "14_seq2seq",
        options: &["--function", "additive", "--dim", "V=40,D=16,H=32", "--size", "S=3,T=4,B=10"],
    },
    Example { name: "17_linformer", options: &["--dim", "D=64,H=2,S=40,K=16", "--size", "B=2,N=20"] },
    Example {
        name: "18_windows",
        options: &["--function", "big_bird", "--dim", "E=32,W=16,G=2,P=8", "--size", "batch=1,S=40"],
    },
    Example { name: "22_vit", options: &["--dim", "L=1,D=64,H=2,F=128,G=2,P=8,C=2,K=16", "--size", "B=2"] },
    Example { name: "25_mamba", options: &["--dim", "L=1,D=16,I=32,N=4,R=8,V=40", "--size", "B=2,S=7"] },
    Example { name: "26_mixture", options: &["--dim", "D=32,F=64,X=4,K=2", "--size", "N=20"] },
    Example {
        name: "30_voice",
        options: &["--function", "forward", "--dim", "C=16,K=2,F=8,A=16,B=8,H=16", "--size", "N=12"],
    },
];

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name).with_extension("attn")
}

/// A program whose elements are `bf16` instead of `f32`, those of layers of the standard library too.
fn in_bf16(source: &str) -> String {
    let library = include_str!("../../src/types/std/nn.attn").lines();
    let layers = library.filter(|line| line.contains("E = f32")).filter_map(|line| line.strip_prefix("layer "));
    let is_own = |name: &str| source.contains(&format!("layer {name}<"));
    let layers: Vec<&str> = layers.filter_map(|line| line.split('<').next()).filter(|name| !is_own(name)).collect();
    let (mut out, mut word) = (String::new(), String::new());
    // How many brackets are open of the arguments of each of these layers.
    let mut open: Vec<usize> = Vec::new();
    for c in source.chars() {
        if c.is_ascii_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        out += if word == "f32" { "bf16" } else { &word };
        match (c, open.last_mut()) {
            ('<', _) if layers.contains(&word.as_str()) => open.push(1),
            ('<', Some(depth)) => *depth += 1,
            ('>', Some(depth)) => *depth -= 1,
            _ => {}
        }
        if open.last() == Some(&0) {
            open.pop();
            out += ", bf16";
        }
        word.clear();
        out.push(c);
    }
    out
}

/// Results and taps, by the names of their files.
fn results(example: &Example, place: &Path, program: &Path, target: &str, settings: &str) -> BTreeMap<String, Tensor> {
    let mut run = attnc(settings);
    run.arg("run").arg(program);
    run.args(["--random=3", "--target", target]).args(example.options).arg("-o").arg(place);
    printed(&mut run);
    let files = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
    files
        .map(|path| {
            (
                path.file_name().unwrap().to_string_lossy().into_owned(),
                npy::parse(&std::fs::read(&path).unwrap()).unwrap(),
            )
        })
        .collect()
}

/// Compares a program's results on a GPU with those on the processor, which may be apart by a part of the largest.
fn compare(example: &Example, n: usize, program: &Path, settings: &str, tolerance: f64) {
    let stem = program.file_stem().expect("a name").to_string_lossy().into_owned();
    let place = |target: &str| folder().join(format!("{n}.{stem}.{target}"));
    let want = results(example, &place("cpu"), program, "cpu", "");
    let got = results(example, &place("cuda"), program, "cuda", settings);
    assert_eq!(want.keys().collect::<Vec<_>>(), got.keys().collect::<Vec<_>>(), "{stem}");
    for (name, want) in &want {
        agree(&format!("{stem}: {name}"), want, &got[name], tolerance);
    }
}

#[test]
fn examples_compute_the_same_as_on_the_processor() {
    std::thread::scope(|scope| {
        for (i, example) in EXAMPLES.iter().enumerate() {
            // Both kinds of code, and both orders of what is asynchronous.
            let settings = if i % 2 == 0 { "capability=80" } else { "latest,capability=90,multiprocessors=1" };
            scope.spawn(move || compare(example, i, &program(example.name), settings, TOLERANCE));
        }
    });
}

/// Hopper's own instructions are reached: products by groups of warps, tiles that the copy engine brings.
#[test]
fn examples_in_bf16_compute_the_same_on_hopper() {
    std::thread::scope(|scope| {
        for (i, example) in HALVES.iter().enumerate() {
            scope.spawn(move || {
                let source = std::fs::read_to_string(program(example.name)).expect("an example");
                let halves = folder().join(format!("{i}.{}.bf16.attn", example.name));
                std::fs::write(&halves, in_bf16(&source)).expect("written");
                let mut emit = attnc("");
                let dims = example.options.iter().skip_while(|word| **word != "--dim").take(2);
                emit.arg(&halves).args(dims).args(["--target", "cuda", "--gpu", "sm_90a", "--emit", "ptx=-"]);
                let ptx = printed(&mut emit);
                for instruction in ["wgmma.mma_async", "cp.async.bulk.tensor"] {
                    assert!(ptx.contains(instruction), "{}: no {instruction}", example.name);
                }
                // A `bf16` has 8 significant bits, and roundings follow each other.
                compare(example, i, &halves, "latest,capability=90", 1.0 / 64.0);
            });
        }
    });
}

/// Sums have another order than on the processor.
const TOLERANCE: f64 = 2e-5;

pub(crate) fn agree(what: &str, want: &Tensor, got: &Tensor, tolerance: f64) {
    assert_eq!((want.elem(), want.shape()), (got.elem(), got.shape()), "{what}");
    let (want, got) = (want.to_f64(), got.to_f64());
    let scale = want.iter().filter(|x| x.is_finite()).fold(1.0, |most: f64, x| most.max(x.abs()));
    for (i, (x, y)) in want.iter().zip(&got).enumerate() {
        let same = x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= tolerance * scale;
        assert!(same, "{what}: element {i} is {y}, on the processor {x}");
    }
}
