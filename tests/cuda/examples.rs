//! The examples on a GPU: what the library computes with PTX is what it computes on the processor.

use std::collections::BTreeMap;
use std::path::Path;

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

/// Results and taps, by the names of their files.
fn results(example: &Example, place: &Path, target: &str, settings: &str) -> BTreeMap<String, Tensor> {
    let mut run = attnc(settings);
    run.arg("run")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(example.name).with_extension("attn"));
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

#[test]
fn examples_compute_the_same_as_on_the_processor() {
    std::thread::scope(|scope| {
        for (i, example) in EXAMPLES.iter().enumerate() {
            let place = move |target: &str| folder().join(format!("{i}.{}.{target}", example.name));
            // Both kinds of code, and both orders of what is asynchronous.
            let settings = if i % 2 == 0 { "capability=80" } else { "latest,capability=90,multiprocessors=1" };
            let compare = move || {
                let want = results(example, &place("cpu"), "cpu", "");
                let got = results(example, &place("cuda"), "cuda", settings);
                assert_eq!(want.keys().collect::<Vec<_>>(), got.keys().collect::<Vec<_>>(), "{}", example.name);
                for (name, want) in &want {
                    agree(&format!("{}: {name}", example.name), want, &got[name]);
                }
            };
            scope.spawn(compare);
        }
    });
}

/// Sums have another order than on the processor.
const TOLERANCE: f64 = 2e-5;

fn agree(what: &str, want: &Tensor, got: &Tensor) {
    assert_eq!((want.elem(), want.shape()), (got.elem(), got.shape()), "{what}");
    let (want, got) = (want.to_f64(), got.to_f64());
    let scale = want.iter().filter(|x| x.is_finite()).fold(1.0, |most: f64, x| most.max(x.abs()));
    for (i, (x, y)) in want.iter().zip(&got).enumerate() {
        let same = x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= TOLERANCE * scale;
        assert!(same, "{what}: element {i} is {y}, on the processor {x}");
    }
}
