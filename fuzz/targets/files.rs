//! Targets for the files that attnc reads beside programs: configurations, weights, tokenizers, arrays, calls.

use attnc::import::{self, Config, Names};
use attnc::runtime::npy as arrays;
use attnc::runtime::weights::WeightsFile;
use attnc::tokenizer::{Marks, Tokenizer};

use super::{library, texts};

/// A configuration of the hub: imported; what is made of it checks.
pub(super) fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // A configuration, then, after a NUL byte, the names of the checkpoint's tensors, one a line.
    let (json, names) = text.split_once('\0').unwrap_or((text, ""));
    let Ok(config) = Config::parse(json, &[]) else { return };
    let names: Names = names.lines().map(str::to_string).collect();
    if let Ok(imported) = import::import(&config, &names) {
        assert!(texts::checks(&imported.text), "what was imported does not check:\n{}", imported.text);
    }
}

/// A GGUF file: its configuration, its tensors.
pub(super) fn gguf(data: &[u8]) {
    let Ok(file) = import::gguf::read(data) else { return };
    let Ok(model) = import::gguf::model(file, &[]) else { return };
    let names: Names = model.shapes().map(|(name, _)| name.to_string()).collect();
    let _ = import::import(&model.config, &names);
}

/// A tokenizer, then a prompt after the first NUL byte: encoded, and decoded again.
pub(super) fn tokenizer(data: &[u8]) {
    let at = data.iter().position(|b| *b == 0).unwrap_or(data.len());
    let (json, prompt) = (&data[..at], data.get(at + 1..).unwrap_or_default());
    let Ok(json) = std::str::from_utf8(json) else { return };
    let Ok(tokenizer) = Tokenizer::read(json) else { return };
    for marks in [Marks::None, Marks::Begin, Marks::Both] {
        for token in tokenizer.encode(prompt, marks).unwrap_or_default() {
            assert!(u64::from(token) < tokenizer.vocabulary(), "token {token} is not in the vocabulary");
            tokenizer.bytes(token);
        }
    }
}

/// Weights (or an index of weight files): by the compiler's reader and by the runtime's.
pub(super) fn safetensors(data: &[u8]) {
    let folder = library::scratch();
    let is_index = data.first() == Some(&b'{');
    let path = folder.join(if is_index { "model.safetensors.index.json" } else { "model.safetensors" });
    if std::fs::write(&path, data).is_err() {
        return;
    }
    if let Ok(file) = WeightsFile::open(&path) {
        for name in file.names() {
            file.tensor(&name);
        }
        file.shapes();
    }
    library::open_with(&path);
    let _ = std::fs::remove_file(&path);
}

/// An array of NumPy.
pub(super) fn npy(data: &[u8]) {
    let Ok(tensor) = arrays::parse(data) else { return };
    let again = arrays::parse(&arrays::to_bytes(&tensor)).unwrap_or_else(|error| panic!("does not read back: {error}"));
    assert!(again == tensor, "reads back as another array");
}

/// A file of calls for `attnc run --calls`.
pub(super) fn calls(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = attnc::driver::count_calls(text);
    }
}
