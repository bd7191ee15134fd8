//! Do the programs that `attnc import` writes compute what `transformers` computes?
//!
//! The checkpoints stand in tests/fixtures/checkpoints, with the script that made them beside that folder.

use crate::{fixtures, front, host};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use attnc::import::{Config, Names, families};
use attnc::ir::{interp, verify};
use attnc::lowering::graph::Options;
use attnc::runtime::load::CompiledModel;
use attnc::runtime::weights::WeightsFile;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::threads;
use host::host;
use serde_json::{Value, json};

/// How far results may be from the reference; see [`fixtures::difference`].
const TOLERANCE: f64 = 1e-5;

/// How many of the checkpoints are of models that write.
const CACHED: usize = 51;

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints")
}

fn checkpoints() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).expect("the folder of checkpoints");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The weights of a checkpoint.
pub(crate) fn weights(checkpoint: &Path) -> PathBuf {
    let whole = checkpoint.join("model.safetensors");
    if whole.exists() { whole } else { checkpoint.join("model.safetensors.index.json") }
}

/// Exit code, stdout and stderr of a command.
pub(crate) fn attnc(args: &[&str]) -> (i32, String, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_attnc")).args(args).output().expect("attnc starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (done.status.code().unwrap_or(-1), text(&done.stdout), text(&done.stderr))
}

/// One call and its result.
struct Case {
    name: String,
    entry: String,
    inputs: BTreeMap<String, Tensor>,
    output: fixtures::Tensor,
}

fn cases(checkpoint: &str) -> Vec<Case> {
    let stem = format!("checkpoints/{checkpoint}/expected");
    let (tensors, metadata) = fixtures::read(&stem);
    let of = |line: &str| {
        let (name, entry) = line.split_once(' ').expect("a name and an entry point");
        let at = |folder: &str| format!("{name}/{folder}");
        let inputs = tensors.iter().filter_map(|(path, t)| Some((path.strip_prefix(&at("in/"))?.to_owned(), host(t))));
        let output = tensors.iter().find(|(path, _)| *path == at("out")).expect("a result").1.clone();
        Case { name: name.to_owned(), entry: entry.to_owned(), inputs: inputs.collect(), output }
    };
    metadata("cases").lines().map(of).collect()
}

/// Interpreted and compiled, on the weights as they lie there: of one file or of several, in f32, f16 and bf16. And models with logits go
/// on from their cache, and write.
#[test]
fn imported_programs_compute_what_transformers_computes() {
    let of_families =
        threads::each(checkpoints(), threads::all(), |checkpoint| computes_what_transformers_does(&checkpoint));
    // Each family has a checkpoint. XLM-RoBERTa is RoBERTa under another name; `import_refusals.rs` compares the two.
    for family in families().filter(|family| *family != "xlm-roberta") {
        assert!(of_families.iter().any(|(known, ..)| known == family), "{family}");
    }
    // Every model with a head that gives the next token has a cache.
    assert_eq!(of_families.iter().filter(|(_, cached, _)| *cached).count(), CACHED);
    assert_eq!(of_families.iter().map(|(.., texts)| texts).sum::<usize>(), 4 * 31);
}

/// Compares the results of the program of a checkpoint with those that stand beside it; the checkpoint's family, whether the program
/// has a cache, and how many texts it wrote as `transformers` did.
fn computes_what_transformers_does(checkpoint: &str) -> (String, bool, usize) {
    let path = folder().join(checkpoint);
    let (code, program, err) = attnc(&["import", path.to_str().expect("UTF-8")]);
    assert_eq!((code, err.as_str()), (0, ""), "{checkpoint}");
    let module = front::module("imported.attn", &program, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let config: Value =
        serde_json::from_str(&std::fs::read_to_string(path.join("config.json")).expect("a file")).expect("JSON");
    let file = WeightsFile::open(&weights(&path)).unwrap_or_else(|e| panic!("{e}"));
    let verified = verify(&module).unwrap_or_else(|e| panic!("{e}"));
    let mut params = BTreeMap::new();
    for name in file.names() {
        if let Some(t) = file.tensor(&name) {
            params.insert(name, Tensor::from_f32(t.shape().to_vec(), &t.to_f32()).expect("a tensor"));
        }
    }
    let made = tempfile::tempdir().expect("a folder");
    let (so, source) = (made.path().join("model.so"), made.path().join("model.attn"));
    std::fs::write(&source, &program).expect("a file");
    let line = [source.to_str(), Some("-o"), so.to_str()].map(|part| part.expect("UTF-8"));
    let (code, _, err) = attnc(&line);
    assert_eq!((code, err.as_str()), (0, ""), "{checkpoint}");
    // SAFETY: it was compiled just above.
    let model = unsafe { CompiledModel::open(&so, Some(&weights(&path)), 1) };
    let model = model.unwrap_or_else(|e| panic!("{checkpoint}: {e}"));
    let mut session = model.session().unwrap_or_else(|e| panic!("{e}"));
    for case in cases(checkpoint) {
        let entry = model.entry(&case.entry).unwrap_or_else(|e| panic!("{e}"));
        let args: Vec<Tensor> = model.arguments(entry).iter().map(|name| case.inputs[name].clone()).collect();
        let call = interp::Call { function: &case.entry, args: &args, params: &params, limits: Default::default() };
        let interpreted = interp::run::<f32>(verified, &call).unwrap_or_else(|e| panic!("{checkpoint}: {e}"));
        let results = session.call(entry, &args).unwrap_or_else(|e| panic!("{checkpoint}: {e}"));
        for (by, result) in
            [("interpreter", interpreted.results[0].to_tensor().expect("a tensor")), ("compiled", results[0].clone())]
        {
            assert_eq!(result.shape(), case.output.shape, "{checkpoint} {} {by}", case.name);
            let far = fixtures::difference(&result.to_f32(), &case.output.to_f32());
            assert!(far <= TOLERANCE, "{checkpoint} {} {by}: {far:e}", case.name);
        }
    }
    let cached = program.contains("pub fn prefill(");
    let mut texts = 0;
    if cached {
        let reads = program.contains("pub fn read(");
        goes_on_from_its_cache(checkpoint, &model, reads, TOLERANCE);
        writes(checkpoint, made.path(), &model, reads);
        texts = writes_what_is_generated(checkpoint, &model);
    }
    (config["model_type"].as_str().expect("a family").to_owned(), cached, texts)
}

/// What `transformers` writes behind each text in `written.safetensors`, with a penalty for what was written, is what `next` gives, token by
/// token. How many texts there are.
fn writes_what_is_generated(checkpoint: &str, model: &CompiledModel) -> usize {
    let stem = format!("checkpoints/{checkpoint}/written");
    if !folder().join(checkpoint).join("written.safetensors").exists() {
        return 0;
    }
    let (tensors, _) = fixtures::read(&stem);
    let of = |path: String| host(&tensors.iter().find(|(name, _)| *name == path).expect("a tensor").1).to_i64();
    let mut session = model.session().unwrap_or_else(|e| panic!("{e}"));
    let entry = |name: &str| model.entry(name).unwrap_or_else(|e| panic!("{checkpoint}: {e}"));
    for text in 0..4 {
        let mut given = of(format!("{text}/in/tokens"));
        for (at, wanted) in of(format!("{text}/out")).into_iter().enumerate() {
            let float = |x: f32| Tensor::from_f32(Vec::new(), &[x]).expect("a number");
            let int = |elem, n: i64| Tensor::from_ints(elem, Vec::new(), &[n]).expect("a number");
            let tokens = Tensor::from_ints(Elem::I32, vec![given.len()], &given).expect("tokens");
            let most = int(Elem::I32, i32::MAX.into());
            let args = [tokens, float(0.0), most, float(1.0), float(1.5), int(Elem::I64, 0)];
            let token = session.call(entry("next"), &args).unwrap_or_else(|e| panic!("{checkpoint}: {e}"))[0].to_i64();
            assert_eq!(token, [wanted], "{checkpoint}: text {text}, token {at}");
            given = token;
        }
        session.call(entry("forget"), &[]).unwrap_or_else(|e| panic!("{checkpoint}: {e}"));
    }
    4
}

/// In half the bytes, a cache gives nearly the same: keys and values are rounded to f16 once.
#[test]
fn caches_may_be_of_f16() {
    for checkpoint in ["gpt2", "gemma3", "mistral", "t5", "marian", "mbart"] {
        let path = folder().join(checkpoint);
        let made = tempfile::tempdir().expect("a folder");
        let (program, so) = (made.path().join("model.attn"), made.path().join("model.so"));
        let [path_text, program, so_text] = [&path, &program, &so].map(|path| path.to_str().expect("UTF-8"));
        let done = attnc(&["import", path_text, "-o", program]);
        assert_eq!(done, (0, String::new(), String::new()), "{checkpoint}");
        let done = attnc(&[program, "-o", so_text, "--dim", "Kept=f16"]);
        assert_eq!(done, (0, String::new(), String::new()), "{checkpoint}");
        // SAFETY: it was compiled just above.
        let model = unsafe { CompiledModel::open(&so, Some(&weights(&path)), 1) };
        let model = model.unwrap_or_else(|e| panic!("{checkpoint}: {e}"));
        let far = goes_on_from_its_cache(checkpoint, &model, ["t5", "marian", "mbart"].contains(&checkpoint), 1e-2);
        // It is rounded, so it differs by more than sums in another order.
        assert!(far > TOLERANCE, "{checkpoint}: {far:e}");
    }
}

/// `attnc generate` gives what is most probable by the logits of all tokens so far, which another entry point gives that has no cache. The
/// program is in a folder.
fn writes(checkpoint: &str, folder: &Path, model: &CompiledModel, reads: bool) {
    let place = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let mut session = model.session().unwrap_or_else(|e| panic!("{e}"));
    let ints =
        |shape: &[usize], values: &[i64]| Tensor::from_ints(Elem::I32, shape.to_vec(), values).expect("a tensor");
    let mut call = |name: &str, args: &[Tensor]| {
        let entry = model.entry(name).unwrap_or_else(|e| panic!("{checkpoint}: {e}"));
        session.call(entry, args).unwrap_or_else(|e| panic!("{checkpoint}: {e}")).remove(0)
    };
    // Those that read and write apart read a token at the end, and begin with another.
    let config = std::fs::read_to_string(self::folder().join(checkpoint).join("config.json")).expect("a file");
    let config: Value = serde_json::from_str(&config).expect("JSON");
    let token = |name: &str| config[name].as_i64().expect("a token");
    let said = std::fs::read_to_string(self::folder().join(checkpoint).join("generation_config.json"));
    let said: Value = said.map_or(Value::Null, |text| serde_json::from_str(&text).expect("JSON"));
    let banned: Vec<i64> =
        said["bad_words_ids"].as_array().into_iter().flatten().filter_map(|text| text[0].as_i64()).collect();
    // The tokenizer puts a token behind a text: a text that is read has it, one that goes on has not.
    let behind = if reads { token("eos_token_id") } else { 7 };
    let prompt = if reads { vec![3, 11, 5, behind] } else { vec![3, 11, 5] };
    let mask = || ints(&[1, prompt.len()], &vec![1; prompt.len()]);
    let (mut tokens, encoded) = match reads {
        true => {
            (vec![token("decoder_start_token_id")], Some(call("encode", &[ints(&[1, prompt.len()], &prompt), mask()])))
        }
        false => (prompt.clone(), None),
    };
    tokens.extend(said["forced_bos_token_id"].as_i64());
    let given = tokens.len();
    let mut vocabulary = 0;
    for _ in 0..5 {
        let logits = match &encoded {
            Some(encoded) => call("decode", &[ints(&[1, tokens.len()], &tokens), encoded.clone(), mask()]),
            None => call("forward", &[ints(&[tokens.len()], &tokens)]),
        };
        vocabulary = *logits.shape().last().expect("an axis");
        let logits = logits.to_f64();
        let mut row = logits[logits.len() - vocabulary..].to_vec();
        let may_not = banned.iter().filter(|banned| **banned != token("eos_token_id"));
        may_not.for_each(|banned| row[usize::try_from(*banned).expect("a token")] = f64::NEG_INFINITY);
        let best = (0..vocabulary).fold(0, |best, i| if row[i] > row[best] { i } else { best });
        tokens.push(i64::try_from(best).expect("a token"));
    }
    // A tokenizer whose tokens show their numbers: of `abc` come 3, 11 and 5.
    let mut words: BTreeMap<String, usize> = (0..vocabulary).map(|n| (format!("<{n}>"), n)).collect();
    for (letter, token) in ["a", "b", "c"].into_iter().zip([3, 11, 5]) {
        words.remove(&format!("<{token}>"));
        words.insert(letter.to_owned(), token);
    }
    let word = |token: &i64| words.iter().find(|(_, n)| i64::try_from(**n) == Ok(*token)).expect("a token").0.as_str();
    let shown: String = tokens[given..].iter().map(word).collect();
    let template = json!({
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "end", "type_id": 0}}],
        "special_tokens": {"end": {"id": "end", "ids": [behind], "tokens": ["end"]}},
    });
    let tokenizer = json!({"model": {"type": "BPE", "vocab": words, "merges": []}, "post_processor": template});
    std::fs::write(place("tokenizer.json"), tokenizer.to_string()).expect("a file");
    let weights = weights(&self::folder().join(checkpoint));
    let (program, tokenizer_file) = (place("model.attn"), place("tokenizer.json"));
    let mut line = vec!["generate", &program, "--weights", weights.to_str().expect("UTF-8"), "--output-tokenizer"];
    // One that has no token of those that are written, where these have a vocabulary of their own.
    let reader = place("reader.json");
    if config["share_encoder_decoder_embeddings"] == json!(false) {
        let words = json!({"a": 3, "b": 11, "c": 5, "</s>": behind});
        let tokenizer = json!({"model": {"type": "BPE", "vocab": words, "merges": []}, "post_processor": template});
        std::fs::write(&reader, tokenizer.to_string()).expect("a file");
        line.extend([&tokenizer_file, "--tokenizer", &reader]);
    } else {
        line.splice(4.., ["--tokenizer", &tokenizer_file]);
    }
    line.extend(["--prompt", "abc", "--max-tokens", "5", "--temperature", "0"]);
    let (code, out, err) = attnc(&line);
    assert_eq!((code, out.trim_end()), (0, shown.as_str()), "{checkpoint}: {err}");
}

/// What a model is given to read, if it reads and writes apart; a text that it goes on with; and the logits behind each token of that.
struct Continued {
    read: Option<Vec<i64>>,
    text: Vec<i64>,
    logits: Vec<f32>,
}

/// The texts of a checkpoint's reference.
fn continued(checkpoint: &str, reads: bool) -> Vec<Continued> {
    let cases = cases(checkpoint);
    let case = |name: &str| cases.iter().find(|case| case.name == name).expect("a case");
    let decoded = case(if reads { "batch_decode" } else { "batch" });
    let rows = decoded.output.shape[1];
    let logits = decoded.output.to_f32();
    let texts = decoded.inputs["tokens"].to_i64();
    let each = texts.chunks(rows).zip(logits.chunks(logits.len() / decoded.output.shape[0])).enumerate();
    let read = |at: usize| {
        let encoded = case("batch_encode");
        let [tokens, mask] = ["tokens", "mask"].map(|name| encoded.inputs[name].to_i64());
        let length = encoded.inputs["tokens"].shape()[1];
        let kept = (at * length..(at + 1) * length).filter(|i| mask[*i] != 0).map(|i| tokens[i]);
        kept.collect::<Vec<i64>>()
    };
    let of = |(at, (text, logits)): (usize, (&[i64], &[f32]))| Continued {
        read: reads.then(|| read(at)),
        text: text.to_vec(),
        logits: logits.to_vec(),
    };
    each.map(of).collect()
}

/// The scores after any part of a text, and after the rest of it, and after each token of it by itself, are those that `transformers`
/// gives for all of it at once. How far they are from those, at most as far as allowed.
fn goes_on_from_its_cache(checkpoint: &str, model: &CompiledModel, reads: bool, allowed: f64) -> f64 {
    let mut worst = 0.0f64;
    let mut session = model.session().unwrap_or_else(|e| panic!("{e}"));
    let ints = |shape: Vec<usize>, values: &[i64]| Tensor::from_ints(Elem::I32, shape, values).expect("a tensor");
    for Continued { read, text, logits: wanted } in continued(checkpoint, reads) {
        let (rows, width) = (text.len(), wanted.len() / text.len());
        let mut near = |what: &str, at: usize, logits: &[Tensor]| {
            let far = fixtures::difference(&logits[0].to_f32(), &wanted[at * width..(at + 1) * width]);
            assert!(far <= allowed, "{checkpoint} {what}, token {at}: {far:e}");
            worst = worst.max(far);
        };
        let mut call = |name: &str, args: &[Tensor]| {
            let entry = model.entry(name).unwrap_or_else(|e| panic!("{checkpoint}: {e}"));
            session.call(entry, args).unwrap_or_else(|e| panic!("{checkpoint}: {e}"))
        };
        let begin = |call: &mut dyn FnMut(&str, &[Tensor]) -> Vec<Tensor>| {
            if let Some(read) = &read {
                let length = call("read", &[ints(vec![read.len()], read)]);
                assert_eq!(length[0].to_i64(), [read.len() as i64], "{checkpoint}");
            }
        };
        for k in 1..=rows {
            begin(&mut call);
            near("the first", k - 1, &call("prefill", &[ints(vec![k], &text[..k])]));
            if k < rows {
                near("the rest", rows - 1, &call("prefill", &[ints(vec![rows - k], &text[k..])]));
            }
            assert_eq!(call("forget", &[])[0].to_i64(), [rows as i64], "{checkpoint}");
        }
        begin(&mut call);
        for (at, token) in text.iter().enumerate() {
            near("one by one", at, &call("step", &[ints(Vec::new(), &[*token])]));
        }
        call("forget", &[]);
        // Several at once behind some that came one by one: in a ring, these stand anywhere.
        for k in 1..rows {
            begin(&mut call);
            for (at, token) in text[..k].iter().enumerate() {
                near("one by one", at, &call("step", &[ints(Vec::new(), &[*token])]));
            }
            near("the rest", rows - 1, &call("prefill", &[ints(vec![rows - k], &text[k..])]));
            call("forget", &[]);
        }
    }
    worst
}

/// The program of a configuration with some fields changed (`null` takes one away), or why there is none.
pub(crate) fn changed(checkpoint: &str, changes: &Value) -> Result<String, String> {
    let path = folder().join(checkpoint);
    let mut config: Value =
        serde_json::from_str(&std::fs::read_to_string(path.join("config.json")).expect("a file")).expect("JSON");
    for (name, value) in changes.as_object().expect("an object") {
        config[name] = value.clone();
    }
    let names: Names = WeightsFile::open(&weights(&path)).expect("weights").names().into_iter().collect();
    let parsed = Config::parse(&config.to_string(), &[]).map_err(|refusal| refusal.message)?;
    attnc::import::import(&parsed, &names).map(|made| made.text).map_err(|refusal| refusal.message)
}

/// The used tensors of a checkpoint are in f32 for the interpreter, whatever the file has: as the library converts them.
#[test]
fn the_checkpoints_cover_the_element_types() {
    let elems = |name: &str| {
        let file = WeightsFile::open(&weights(&folder().join(name))).unwrap_or_else(|e| panic!("{e}"));
        file.names()
            .iter()
            .filter_map(|n| Some(file.tensor(n)?.elem().name()))
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert!(elems("llama").contains("bf16") && elems("qwen2").contains("f16") && elems("gpt2").contains("f32"));
}
