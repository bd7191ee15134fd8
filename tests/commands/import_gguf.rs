//! Do GGUF files become programs that compute what `transformers` computes from them, and is every other file refused in words?
//!
//! The files stand in tests/fixtures/gguf, with the script that made them (by the package `gguf`) beside that folder.

use crate::{fixtures, host};

use std::path::{Path, PathBuf};
use std::process::Command;

use attnc::import::gguf;
use attnc::runtime::npy;
use attnc::runtime::weights::WeightsFile;
use attnc::threads;
use host::host;

/// How far results may be from the reference; see [`fixtures::difference`].
const TOLERANCE: f64 = 1e-5;

const MODELS: [&str; 12] = [
    "gemma2_f32",
    "gemma3_f32",
    "gemma_f32",
    "gpt2_q8_0",
    "llama31_f32",
    "llama_bf16",
    "llama_f32",
    "llama_k",
    "llama_q4_0",
    "llama_q8_0",
    "qwen2_f16",
    "qwen3_q8_0",
];

fn file(model: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf").join(model).join("model.gguf")
}

/// Exit code, stdout and stderr of a command in a folder.
fn attnc(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_attnc")).args(args).current_dir(folder).output().expect("attnc starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (done.status.code().unwrap_or(-1), text(&done.stdout), text(&done.stderr))
}

/// Imports a file into a folder, as `model.attn` and `model.safetensors`.
fn imported(folder: &Path, file: &Path) {
    let done = attnc(folder, &["import", file.to_str().expect("UTF-8"), "-o", "model.attn"]);
    let (code, out, err) = &done;
    assert!(*code == 0 && out.is_empty(), "{}: {done:?}", file.display());
    // Only quantised files become larger, and are told to.
    let is_quantised = ["_k/", "_q4_0/", "_q8_0/"].iter().any(|end| file.display().to_string().contains(end));
    assert_eq!(is_quantised, err.starts_with("note: `model.safetensors` has the quantised tensors ("), "{err}");
    assert!(is_quantised || err.is_empty(), "{err}");
}

#[test]
fn models_compute_what_transformers_computes_from_the_file() {
    threads::each(MODELS, threads::all(), computes_what_transformers_does);
}

fn computes_what_transformers_does(model: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    imported(folder.path(), &file(model));
    let (tensors, _) = fixtures::read(&format!("gguf/{model}/expected"));
    let of = |path: &str| &tensors.iter().find(|(name, _)| *name == path).expect("a tensor").1;
    for case in ["batch", "one"] {
        let tokens = host(of(&format!("{case}/in/tokens")));
        std::fs::write(folder.path().join("tokens.npy"), npy::to_bytes(&tokens)).expect("a file");
        let want = of(&format!("{case}/out"));
        for backend in ["interp", "cpu"] {
            let call = [
                "run",
                "model.attn",
                "--function",
                "forward",
                "--weights",
                "model.safetensors",
                "--input",
                "tokens=tokens.npy",
            ];
            let (code, _, err) = attnc(folder.path(), &[&call[..], &["--backend", backend, "-o", "out.npy"]].concat());
            assert_eq!(code, 0, "{model} {backend}: {err}");
            let out = npy::parse(&std::fs::read(folder.path().join("out.npy")).expect("a file")).expect("an array");
            assert_eq!(out.shape(), want.shape, "{model} {case}");
            let far = fixtures::difference(&out.to_f32(), &want.to_f32());
            assert!(far <= TOLERANCE, "{model} {case} {backend}: {far:e}");
        }
    }
}

/// Blocks of Q8_0 are the packed form of `--pack int8`: the same scales and integers, whatever order the rows have.
#[test]
fn integers_are_packed_as_they_were() {
    let folder = tempfile::tempdir().expect("a folder");
    imported(folder.path(), &file("llama_q8_0"));
    let call = [
        "run",
        "model.attn",
        "--function",
        "forward",
        "--weights",
        "model.safetensors",
        "--input",
        "tokens=[1, 2, 3]",
        "--pack",
        "int8",
    ];
    let (code, _, err) = attnc(folder.path(), &[&call[..], &["--verbose"]].concat());
    assert_eq!(code, 0, "{err}");
    let exact = err.lines().filter(|line| line.contains("_proj.weight")).collect::<Vec<_>>();
    assert!(exact.len() == 7 && exact.iter().all(|line| line.ends_with("  0.00e0  0.00e0")), "{err}");
}

/// Each type of quantised blocks as `gguf` and `transformers` read it: all bits are the same.
#[test]
fn quantised_types_have_the_values_of_the_reference() {
    let folder = tempfile::tempdir().expect("a folder");
    imported(folder.path(), &file("llama_k"));
    let written = WeightsFile::open(&folder.path().join("model.safetensors")).expect("weights");
    let (tensors, _) = fixtures::read("gguf/llama_k/expected");
    let mut compared = 0;
    for (name, want) in &tensors {
        let Some(name) = name.strip_prefix("weights/").filter(|name| *name != "lm_head.weight") else { continue };
        let (got, want) = (written.tensor(name).expect("a tensor").to_f64(), want.to_f32());
        let got: Vec<u64> = got.iter().take(want.len()).map(|x| x.to_bits()).collect();
        assert_eq!(got, want.iter().map(|x| f64::from(*x).to_bits()).collect::<Vec<u64>>(), "{name}");
        compared += 1;
    }
    assert_eq!(compared, 8);
}

/// The elements of one tensor by the definition of its format, in f64, from the bytes of the file.
#[test]
fn blocks_are_read_by_their_definition() {
    for (model, name, there) in
        [("llama_q8_0", "blk.1.ffn_up.weight", "mlp.up_proj"), ("llama_q4_0", "blk.1.ffn_down.weight", "mlp.down_proj")]
    {
        let folder = tempfile::tempdir().expect("a folder");
        imported(folder.path(), &file(model));
        let written = WeightsFile::open(&folder.path().join("model.safetensors")).expect("weights");
        let got = written.tensor(&format!("model.layers.1.{there}.weight")).expect("a tensor").to_f64();
        let bytes = std::fs::read(file(model)).expect("a file");
        let read = gguf::read(&bytes).expect("a GGUF file");
        let data = read.tensors.iter().find(|tensor| tensor.name == name).expect("a tensor").data;
        let size = if model.ends_with("q8_0") { 34 } else { 18 };
        let want = data.chunks(size).flat_map(|block| {
            let scale = f64::from(half::f16::from_le_bytes([block[0], block[1]]));
            let quant = move |i: usize| match size {
                34 => f64::from(block[2 + i] as i8),
                _ if i < 16 => f64::from(block[2 + i] & 15) - 8.0,
                _ => f64::from(block[2 + i - 16] >> 4) - 8.0,
            };
            (0..32).map(move |i| scale * quant(i))
        });
        assert_eq!(got, want.collect::<Vec<f64>>(), "{model}");
    }
}

/// What the library says of bytes: the error, or that it can be written.
fn said(bytes: &[u8]) -> Result<usize, String> {
    let read = gguf::read(bytes).and_then(|file| gguf::model(file, &[]));
    let model = read.map_err(|refusal| refusal.message)?;
    let mut out = Vec::new();
    model.write(&mut out).expect("memory");
    Ok(out.len())
}

/// A file is never trusted: whatever it says, it is refused in words or read within its bounds.
#[test]
fn broken_files_are_refused_or_read_in_bounds() {
    let whole = std::fs::read(file("llama_q4_0")).expect("a file");
    assert!(said(&whole).is_ok());
    let data = gguf::read(&whole).expect("a GGUF file").tensors[0].data.as_ptr() as usize - whole.as_ptr() as usize;
    for length in (0..data + 64).chain((data + 64..whole.len()).step_by(97)) {
        let told = said(&whole[..length]).expect_err("a truncated file");
        assert!(told.starts_with("it is not a valid GGUF file: "), "{length}: {told}");
    }
    let mut refused = 0;
    for at in 0..data {
        for value in [0x00, 0x01, 0x7f, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            refused += usize::from(said(&bytes).is_err_and(|told| !told.is_empty()));
        }
    }
    assert!(refused > data, "{refused} of {data}");
    // Counts and lengths of 64 bits.
    for at in (0..data.min(400)).step_by(4) {
        for value in [u64::MAX, 1 << 63, 1 << 40, u64::from(u32::MAX)] {
            let mut bytes = whole.clone();
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            let _ = said(&bytes);
        }
    }
}

/// The bytes of a file of version 3 with these values of metadata (name, type, bytes) and tensors (name, extents innermost
/// first, type, offset), and so many bytes of data.
fn made(values: &[(&str, u32, Vec<u8>)], tensors: &[(&str, &[u64], u32, u64)], data: usize) -> Vec<u8> {
    let text = |s: &str| [&(s.len() as u64).to_le_bytes()[..], s.as_bytes()].concat();
    let mut out = [&b"GGUF"[..], &3u32.to_le_bytes()].concat();
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((values.len() as u64).to_le_bytes());
    for (name, kind, bytes) in values {
        out.extend([&text(name)[..], &kind.to_le_bytes(), bytes].concat());
    }
    for (name, shape, kind, offset) in tensors {
        out.extend(text(name));
        out.extend((shape.len() as u32).to_le_bytes());
        shape.iter().for_each(|d| out.extend(d.to_le_bytes()));
        out.extend([&kind.to_le_bytes()[..], &offset.to_le_bytes()].concat());
    }
    out.resize(out.len().next_multiple_of(32) + data, 0);
    out
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    let text = |s: &str| [&(s.len() as u64).to_le_bytes()[..], s.as_bytes()].concat();
    let of = |name: &str| ("general.architecture", 8, text(name));
    let llama = || vec![of("llama")];
    let embedding: (&str, &[u64], u32, u64) = ("token_embd.weight", &[32, 2], 0, 0);
    let many: &[u64] = &[1 << 40, 1 << 40];
    for (values, tensors, told) in [
        (vec![of("mamba")], vec![], "its field `general.architecture` is \"mamba\"; attnc can import one of llama, "),
        (vec![], vec![], "it has no field `general.architecture`"),
        (llama(), vec![], "it has no tensor `token_embd.weight`"),
        (llama(), vec![embedding], "it has no field `llama.embedding_length`"),
        (
            llama(),
            vec![("w", &[32, 2][..], 20, 0)],
            "its tensor `w` is IQ4_NL; attnc reads F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K",
        ),
        (
            llama(),
            vec![("w", &[32, 8], 14, 0)],
            "the tensor `w` of shape [8, 32] is Q6_K, in blocks of 256 elements, which do not divide its rows",
        ),
        (llama(), vec![("w", &[32, 2], 77, 0)], "its tensor `w` is of type 77"),
        (llama(), vec![("w", &[33, 2], 8, 0)], "the tensor `w` of shape [2, 33] is Q8_0, in blocks of 32 elements"),
        (
            llama(),
            vec![("w", many, 0, 0)],
            "the tensor `w` of shape [1099511627776, 1099511627776] has too many elements",
        ),
        (llama(), vec![("w", &[1, 1, 1, 1, 1], 0, 0)], "the tensor `w` has 5 axes"),
        (
            llama(),
            vec![("w", &[32, 9999], 0, 0)],
            "it is cut off: the tensor `w` ends at byte 1280000, the file at byte 640",
        ),
        (llama(), vec![("w", &[32], 0, 1 << 63)], "it is cut off: the tensor `w` ends at byte 9223372036854"),
        (
            llama(),
            vec![("w", &[32], 0, 5)],
            "tensor `w` has the offset 5, which is not a multiple of the alignment, 32",
        ),
        (llama(), vec![("v", &[32], 0, 0), ("w", &[32], 0, 64)], "the tensors `v` and `w` overlap"),
        (llama(), vec![("w", &[32], 0, 0), ("w", &[32], 0, 128)], "two of its tensors have the same name"),
        (vec![of("llama"), of("llama")], vec![], "`general.architecture` is given twice"),
        (vec![("x", 6, f32::NAN.to_le_bytes().to_vec())], vec![], "`x` is not a finite number"),
        (vec![("y", 12, f64::INFINITY.to_le_bytes().to_vec())], vec![], "`y` is not a finite number"),
        (vec![("x", 13, vec![0])], vec![], "a value has the unknown type 13"),
        (vec![("x", 9, [9u32.to_le_bytes(), [0; 4], [0; 4]].concat())], vec![], "a list of lists"),
        (vec![("x", 9, [&4u32.to_le_bytes()[..], &u64::MAX.to_le_bytes()].concat())], vec![], "a list is too long"),
        (vec![("x", 9, [&8u32.to_le_bytes()[..], &u64::MAX.to_le_bytes()].concat())], vec![], "it ends at byte"),
        (
            vec![("general.alignment", 4, 3u32.to_le_bytes().to_vec())],
            vec![],
            "`general.alignment` is not a power of two",
        ),
    ] {
        let found = said(&made(&values, &tensors, 512)).expect_err(told);
        assert!(found.contains(told), "{told}: {found}");
    }
    for (bytes, told) in [
        (b"PK\x03\x04 a zip file".to_vec(), "it does not begin with `GGUF`"),
        ([&b"GGUF"[..], &1u32.to_le_bytes(), &[0; 16]].concat(), "its version is 1;"),
        ([&b"GGUF"[..], &3u32.to_be_bytes(), &[0; 16]].concat(), "in big-endian order"),
    ] {
        let found = said(&bytes).expect_err(told);
        assert!(found.contains(told), "{told}: {found}");
    }
}

/// The metadata of a real file with one value more or another one.
fn changed(model: &str, name: &str, value: serde_json::Value) -> Result<(), String> {
    let bytes = std::fs::read(file(model)).expect("a file");
    let mut read = gguf::read(&bytes).expect("a GGUF file");
    read.metadata.insert(name.to_owned(), value);
    gguf::model(read, &[]).map(|_| ()).map_err(|refusal| refusal.message)
}

#[test]
fn what_a_program_would_not_follow_is_refused_by_its_field() {
    use serde_json::json;
    for (model, name, value, told) in [
        ("llama_f32", "llama.expert_count", json!(8), "attnc does not know its field `llama.expert_count`"),
        (
            "llama_f32",
            "llama.rope.scaling.type",
            json!("yarn"),
            "`llama.rope.scaling.type` is \"yarn\"; attnc can import none",
        ),
        ("llama_f32", "llama.rope.dimension_count", json!(4), "attnc can import the width of a head, 8"),
        ("llama_f32", "llama.attention.head_count_kv", json!([2, 1]), "`llama.attention.head_count_kv` is [2,1]"),
        ("llama_f32", "llama.vocab_size", json!(54), "as many as `token_embd.weight` has rows"),
        ("llama_f32", "split.count", json!(3), "attnc can import a model in one file"),
        ("gemma_f32", "gemma.attention.value_length", json!(8), "the width of a head, 16"),
        ("gemma2_f32", "gemma2.attention.sliding_window", json!(0), "`gemma2.attention.sliding_window` is 0"),
        ("gemma3_f32", "gemma3.rope.dimension_count_swa", json!(6), "its field `gemma3.rope.dimension_count_swa`"),
        ("gpt2_q8_0", "gpt2.block_count", json!(0), "`gpt2.block_count` is 0"),
    ] {
        let found = changed(model, name, value).expect_err(told);
        assert!(found.contains(told), "{told}: {found}");
    }
    assert_eq!(changed("llama_f32", "general.author", json!("nobody")), Ok(()));
    let bytes = std::fs::read(file("llama_f32")).expect("a file");
    for shape in [vec![], vec![0, 32]] {
        let mut read = gguf::read(&bytes).expect("a GGUF file");
        let query = read.tensors.iter_mut().find(|tensor| tensor.name == "blk.0.attn_q.weight").expect("a tensor");
        query.shape.clone_from(&shape);
        let found = gguf::model(read, &[]).expect_err("no rows").message;
        assert!(found.contains(&format!("`blk.0.attn_q.weight` has the shape {shape:?}")), "{found}");
    }
}

/// A program and its weights are written side by side; a broken file leaves nothing.
#[test]
fn the_command_says_what_it_needs() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = file("llama_f32");
    let path = whole.to_str().expect("UTF-8");
    let (code, out, err) = attnc(folder.path(), &["import", path]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("-o model.attn"), "{err}");
    let bytes = std::fs::read(&whole).expect("a file");
    std::fs::write(folder.path().join("half.gguf"), &bytes[..bytes.len() / 2]).expect("a file");
    let (code, _, err) = attnc(folder.path(), &["import", "half.gguf", "-o", "half.attn"]);
    assert_eq!(code, 3);
    assert!(err.contains("E0008") && err.contains("it is cut off: the tensor `"), "{err}");
    std::fs::write(folder.path().join("mine.safetensors"), "mine").expect("a file");
    let (code, _, err) = attnc(folder.path(), &["import", path, "-o", "mine.attn"]);
    assert!(code == 3 && err.contains("would overwrite `mine.safetensors`") && err.contains("another place"), "{err}");
    assert_eq!(std::fs::read(folder.path().join("mine.safetensors")).expect("a file"), b"mine");
    assert!(!folder.path().join("mine.attn").exists());
    // The command does not name the weights, and somebody else may have made the link.
    std::os::unix::fs::symlink("outside", folder.path().join("linked.safetensors")).expect("a link");
    let (code, _, err) = attnc(folder.path(), &["import", path, "-o", "linked.attn"]);
    assert!(code == 3 && err.contains("`linked.safetensors`: it is a symbolic link"), "{err}");
    assert!(!folder.path().join("outside").exists() && !folder.path().join("linked.attn").exists());
    std::fs::write(folder.path().join("none.gguf"), "").expect("a file");
    let (code, _, err) = attnc(folder.path(), &["import", "none.gguf", "-o", "none.attn"]);
    assert!(code == 3 && err.contains("it does not begin with `GGUF`"), "{err}");
    for name in ["half.attn", "half.safetensors", "none.attn", "none.safetensors"] {
        assert!(!folder.path().join(name).exists(), "{name}");
    }
}
