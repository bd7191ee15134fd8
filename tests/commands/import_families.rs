//! Configurations of models that people use: each is a program, or refused for a reason that changes numbers.
//!
//! `tests/fixtures/configurations.json` has the facts of their `config.json`, without weights.

use crate::front;
use crate::import::attnc;

use std::collections::BTreeSet;
use std::path::Path;

use attnc::import::{Config, Names, families, import};
use attnc::lowering::graph::Options;
use attnc::threads;
use serde_json::Value;

/// Names of tensors that tell checkpoints apart, of all families.
const NAMES: [&str; 14] = [
    "model.embed_tokens.weight",
    "lm_head.weight",
    "embed_out.weight",
    "transformer.wte.weight",
    "transformer.word_embeddings.weight",
    "gpt_neox.embed_in.weight",
    "model.decoder.embed_tokens.weight",
    "embeddings.word_embeddings.weight",
    "shared.weight",
    "model.shared.weight",
    "vit.embeddings.cls_token",
    "embeddings.cls_token",
    "conv1.weight",
    "text_model.embeddings.token_embedding.weight",
];

#[test]
fn configurations_of_public_models_are_imported_or_refused() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/configurations.json");
    let all: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("a file")).expect("JSON");
    let all = all.as_object().expect("an object").clone();
    assert!(all.len() >= 90, "{}", all.len());
    let imported =
        threads::each(all.into_iter().collect::<Vec<_>>(), threads::all(), |(name, entry): (String, Value)| {
            let config = Config::parse(&entry["config"].to_string(), &[]).unwrap_or_else(|e| panic!("{name}: {e:?}"));
            let names: Names = NAMES.into_iter().map(str::to_owned).collect();
            match (import(&config, &names), entry["refused"].as_str()) {
                (Ok(made), None) => {
                    front::module("imported.attn", &made.text, &Options::default())
                        .unwrap_or_else(|e| panic!("{name}: {e}"));
                    entry["config"]["model_type"].as_str().map(str::to_owned)
                }
                (Err(refusal), Some(told)) => {
                    assert!(refusal.message.contains(told), "{name}: {}", refusal.message);
                    None
                }
                (made, told) => panic!("{name}: {:?}, wanted {told:?}", made.map(|made| made.model)),
            }
        });
    let imported: BTreeSet<String> = imported.into_iter().flatten().collect();
    for family in families().filter(|family| !["gemma3", "nomic_bert", "mbart"].contains(family)) {
        assert!(imported.contains(family), "{family}");
    }
}

/// The guide lists the families, by the names that they have in `model_type`.
#[test]
fn the_guide_has_every_family() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide/importing.md");
    let guide = std::fs::read_to_string(guide).expect("a file");
    let rows = guide.lines().filter(|line| line.starts_with("| ")).collect::<Vec<&str>>().concat();
    let listed: BTreeSet<&str> = rows.split('`').skip(1).step_by(2).collect();
    assert_eq!(listed, families().collect());
}

/// The name of a model on the hub is none of a folder; nothing is fetched.
#[test]
fn names_of_the_hub_are_told_from_folders() {
    let (code, out, err) = attnc(&["import", "meta-llama/Llama-3.2-1B"]);
    assert_eq!((code, out.as_str()), (3, ""), "{err}");
    let way = "`hf download meta-llama/Llama-3.2-1B --local-dir Llama-3.2-1B`, then `attnc import Llama-3.2-1B`";
    assert!(err.contains("attnc downloads nothing") && err.contains(way), "{err}");
    for folder in ["./absent/model", "tests/absent", "absent", "a/b/c", "absent/model.gguf"] {
        let (code, _, err) = attnc(&["import", folder]);
        assert!(code == 3 && !err.contains("hf download"), "{folder}: {err}");
    }
}
