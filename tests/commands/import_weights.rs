//! Does a library read weights that are spread over several files, as large checkpoints are, and refuse an index that is wrong?

use std::process::Command;

use attnc::runtime::load::CompiledModel;
use attnc::runtime::weights::WeightsFile;

/// A library reads weights that are spread over files as the interpreter does, and refuses the same.
#[test]
fn weights_in_several_files() {
    let made = tempfile::tempdir().expect("a folder");
    let at = |name: &str| made.path().join(name);
    let (so, source) = (at("m.so"), at("m.attn"));
    std::fs::write(&source, "model M { a: f32[2], b: f32[2]\n pub fn forward() -> f32[2] { a - b } }").expect("a file");
    let made_by =
        Command::new(env!("CARGO_BIN_EXE_attnc")).arg(&source).arg("-o").arg(&so).output().expect("attnc starts");
    assert!(made_by.status.success(), "{made_by:?}");
    let save = |file: &str, tensors: &[(&str, [f32; 2])]| {
        let bytes: Vec<(String, Vec<u8>)> =
            tensors.iter().map(|(n, v)| ((*n).to_owned(), v.iter().flat_map(|x| x.to_le_bytes()).collect())).collect();
        let views = bytes.iter().map(|(name, data)| {
            (name, safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![2], data).expect("a view"))
        });
        safetensors::serialize_to_file(views, None, &at(file)).expect("a file");
    };
    save("1.safetensors", &[("a", [5.0, 7.0])]);
    save("2.safetensors", &[("b", [1.0, 2.0]), ("c", [0.0, 0.0])]);
    save("3.safetensors", &[("a", [0.0, 0.0])]);
    let index = |text: &str| {
        std::fs::write(at("index.json"), text).expect("a file");
        // SAFETY: the library was compiled above.
        unsafe { CompiledModel::open(&so, Some(&at("index.json")), 1) }
    };
    let (one, two, three) = ("1.safetensors", "2.safetensors", "3.safetensors");
    let good =
        format!(r#"{{"metadata": {{"a": 24, "a": 24}}, "weight_map": {{"a": "{one}", "b": "{two}", "c": "{two}"}}}}"#);
    let model = index(&good).unwrap_or_else(|e| panic!("{e}"));
    let entry = model.entry("forward").unwrap_or_else(|e| panic!("{e}"));
    let result = model.session().and_then(|mut s| s.call(entry, &[])).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(result[0].to_f32(), [4.0, 5.0]);
    assert_eq!(model.unused_weights(), ["c"]);
    let file = WeightsFile::open(&at("index.json")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(file.names(), ["a", "b", "c"]);
    for (text, told) in [
        (format!(r#"{{"weight_map": {{"a": "{one}"}}}}"#), "missing: b"),
        (
            format!(r#"{{"weight_map": {{"a": "{one}", "b": "{two}", "x": "{three}"}}}}"#),
            "two of its files have a tensor `a`",
        ),
        (r#"{"weight_map": {"a": "absent"}}"#.to_owned(), "cannot read weights file"),
        (r#"{"weight_map": {"a": "sub/1.safetensors"}}"#.to_owned(), "which is not beside it"),
        (r#"{"weight_map": {"a": ""}}"#.to_owned(), "which is not beside it"),
        (r#"{"weight_map": {"a": ".."}}"#.to_owned(), "directory"),
        (r#"{"weight_map": {"a": "m.so"}}"#.to_owned(), "m.so"),
        (format!(r#"{{"weight_map": {{"a": "{three}", "b": "{two}", "a": "{one}"}}}}"#), "it has `a` twice"),
        (format!(r#"{{"weight_map": {{"a": "{one}"}}, "weight_map": {{"b": "{two}"}}}}"#), "it has `weight_map` twice"),
        (r#"{"weight_map": []}"#.to_owned(), ""),
        (r#"{"other": {}}"#.to_owned(), "weight_map"),
        ("{".to_owned(), ""),
        ("[".repeat(100_000), ""),
    ] {
        let Err(error) = index(&text) else { panic!("{text} was opened") };
        assert!(error.text.contains(told), "{text}: {}", error.text);
        if told != "missing: b" {
            let Err(error) = WeightsFile::open(&at("index.json")) else { panic!("{text} was opened") };
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
