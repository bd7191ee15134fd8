//! The committed reference results of tests/fixtures, and the weights they were made with.
//!
//! In: the name of an example. Out: its parameters, made anew by the counter-based
//! generator that tests/fixtures/prng.py describes, and its cases (inputs, results, taps).
//! It knows nothing of the compiler: a test brings the two together.
//!
//! A test program takes it in by `#[path = "../common/fixtures.rs"] mod fixtures;`.

#![allow(dead_code, reason = "each test program that takes this module in uses its own part of it")]

use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

/// A tensor with its elements in little-endian bytes, row-major.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl Tensor {
    /// An f32 tensor of these elements.
    pub(crate) fn from_f32(shape: &[usize], values: &[f32]) -> Tensor {
        assert_eq!(shape.iter().product::<usize>(), values.len());
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor { dtype: Dtype::F32, shape: shape.to_vec(), bytes }
    }

    /// The elements of an f32 tensor.
    pub(crate) fn to_f32(&self) -> Vec<f32> {
        assert_eq!(self.dtype, Dtype::F32);
        self.bytes.as_chunks::<4>().0.iter().map(|raw| f32::from_le_bytes(*raw)).collect()
    }

    /// The elements of an i32 tensor.
    pub(crate) fn to_i32(&self) -> Vec<i32> {
        assert_eq!(self.dtype, Dtype::I32);
        self.bytes.as_chunks::<4>().0.iter().map(|raw| i32::from_le_bytes(*raw)).collect()
    }
}

/// One call of an entry point, and what it must return.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) entry: String,
    /// See [`difference`].
    pub(crate) tolerance: f64,
    /// By the argument's name, in alphabetical order.
    pub(crate) inputs: Vec<(String, Tensor)>,
    pub(crate) output: Tensor,
    /// By the tap's path.
    pub(crate) taps: Vec<(String, Tensor)>,
}

/// The reference results of one example.
#[derive(Clone, Debug)]
pub(crate) struct Fixture {
    /// The example's file name without its ending.
    pub(crate) example: String,
    /// What `--dim` must bind.
    pub(crate) dims: Vec<(String, i64)>,
    /// Name and shape of each parameter.
    pub(crate) parameters: Vec<(String, Vec<usize>)>,
    pub(crate) cases: Vec<Case>,
}

/// The examples that have reference results, in learning order.
pub(crate) const EXAMPLES: [&str; 34] = [
    "01_linear",
    "02_self_attention",
    "03_masks",
    "04_multi_head_attention",
    "05_cross_attention",
    "06_encoder_layer",
    "07_encoder",
    "08_gpt2",
    "09_minilm",
    "10_positions",
    "11_norms",
    "12_losses",
    "13_recurrent",
    "14_seq2seq",
    "15_encoder_decoder",
    "16_bert",
    "17_linformer",
    "18_windows",
    "19_llama",
    "20_t5",
    "21_bart",
    "22_vit",
    "23_swin",
    "24_gemma",
    "25_mamba",
    "26_mixture",
    "27_bleu",
    "28_whisper",
    "29_generate",
    "30_voice",
    "31_beam",
    "32_speculative",
    "33_translate",
    "34_train_gpt",
];

/// The examples that train with a `learn` of their own kind. Their references are the losses of ten calls of it.
pub(crate) const SYSTEMS: [&str; 7] = [
    "35_train_lstm",
    "36_train_translate",
    "37_train_bert",
    "38_train_vit",
    "39_train_sentences",
    "40_train_lora",
    "41_train_student",
];

/// The path of an example's program.
pub(crate) fn program(example: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(example).with_extension("attn")
}

/// The tensors of a file of tests/fixtures, in alphabetical order, and its metadata by key.
pub(crate) fn read(stem: &str) -> (Vec<(String, Tensor)>, impl Fn(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(stem).with_extension("safetensors");
    let raw = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (_, header) = SafeTensors::read_metadata(&raw).expect("a committed safetensors file");
    let metadata = header.metadata().clone().unwrap_or_default();
    let file = SafeTensors::deserialize(&raw).expect("a committed safetensors file");
    let mut tensors: Vec<(String, Tensor)> = file
        .iter()
        .map(|(name, view)| {
            let tensor = Tensor { dtype: view.dtype(), shape: view.shape().to_vec(), bytes: view.data().to_vec() };
            (name.to_owned(), tensor)
        })
        .collect();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    (tensors, move |key: &str| metadata.get(key).cloned().unwrap_or_default())
}

/// The reference results of an example.
pub(crate) fn load(example: &str) -> Fixture {
    let (tensors, metadata) = read(example);
    let dims = metadata("dims")
        .split_whitespace()
        .map(|bound| {
            let (name, value) = bound.split_once('=').expect("NAME=VALUE");
            (name.to_owned(), value.parse().expect("a number"))
        })
        .collect();
    let parameters = metadata("parameters")
        .lines()
        .map(|line| {
            let (name, shape) = line.split_once(' ').expect("a name and a shape");
            (name.to_owned(), shape.split('x').map(|extent| extent.parse().expect("a number")).collect())
        })
        .collect();
    let cases = metadata("cases")
        .lines()
        .map(|line| {
            let [name, entry, tolerance] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("a name, an entry point and a tolerance: {line}")
            };
            let under = |folder: &str| -> Vec<(String, Tensor)> {
                let prefix = format!("{name}/{folder}");
                let inside = tensors.iter().filter_map(|(path, tensor)| Some((path.strip_prefix(&prefix)?, tensor)));
                inside.map(|(rest, tensor)| (rest.to_owned(), tensor.clone())).collect()
            };
            Case {
                name: name.to_owned(),
                entry: entry.to_owned(),
                tolerance: tolerance.parse().expect("a number"),
                inputs: under("in/"),
                output: under("out").pop().expect("a result").1,
                taps: under("tap/"),
            }
        })
        .collect();
    Fixture { example: example.to_owned(), dims, parameters, cases }
}

impl Fixture {
    /// The fixture's weights, by name.
    pub(crate) fn weights(&self) -> Vec<(String, Tensor)> {
        self.parameters.iter().map(|(name, shape)| (name.clone(), parameter(name, shape))).collect()
    }

    /// Writes the fixture's weights as a safetensors file.
    pub(crate) fn write_weights(&self, path: &Path) {
        let weights = self.weights();
        let views = weights.iter().map(|(name, tensor)| {
            let view =
                TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes).expect("shape and bytes agree");
            (name.as_str(), view)
        });
        safetensors::serialize_to_file(views, None, path).expect("a file that can be written");
    }
}

/// How far a result is from its reference, as a part of `max(1, largest |reference|)`.
/// A NaN, or another shape, is infinitely far away.
pub(crate) fn difference(result: &[f32], reference: &[f32]) -> f64 {
    if result.len() != reference.len() {
        return f64::INFINITY;
    }
    let largest = reference.iter().fold(1.0, |largest: f64, value| largest.max(f64::from(value.abs())));
    let differences =
        result.iter().zip(reference).map(|(a, b)| if a == b { 0.0 } else { f64::from(*a) - f64::from(*b) });
    differences.fold(0.0, |worst: f64, d| if d.is_nan() { f64::INFINITY } else { worst.max(d.abs() / largest) })
}

/// FNV-1a, 64 bits.
fn key(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Word `index` of the stream called `name`.
pub(crate) fn bits(name: &str, index: u64) -> u64 {
    let mut z = key(name).wrapping_add((index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Number `index` of the stream called `name`: a multiple of 2^-23 in [-1, 1).
pub(crate) fn uniform(name: &str, index: u64) -> f64 {
    (bits(name, index) >> 40) as f64 / f64::from(1 << 23) - 1.0
}

/// The parameter of this name and shape.
pub(crate) fn parameter(name: &str, shape: &[usize]) -> Tensor {
    let count = shape.iter().product::<usize>() as u64;
    let value = |index| match shape {
        [.., _, last] => uniform(name, index) * (3.0 / *last as f64).sqrt(),
        _ if name.ends_with("weight") => 1.0 + uniform(name, index) / 4.0,
        _ => uniform(name, index) / 4.0,
    };
    let values: Vec<f32> = (0..count).map(|index| value(index) as f32).collect();
    Tensor::from_f32(shape, &values)
}
