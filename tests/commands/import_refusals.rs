//! `attnc import` refuses what it cannot say, by the name of the field or of the file.
//!
//! Each configuration is that of a checkpoint in `tests/fixtures/checkpoints`, with some fields changed.

use crate::import::{attnc, changed, folder, weights};

use std::path::Path;

use attnc::import::{Config, Names};
use attnc::runtime::weights::WeightsFile;
use serde_json::{Value, json};

/// What a program would not follow is refused, and the field is named.
#[test]
fn what_is_not_supported_is_refused_by_its_field() {
    for (checkpoint, changes, told) in [
        ("gpt2", json!({"model_type": "mamba"}), "its field `model_type` is \"mamba\"; attnc can import one of gpt2, "),
        ("gpt2", json!({"model_type": null}), "no field `model_type`"),
        ("gpt2", json!({"n_head": 5}), "`n_head` is 5; attnc can import a divisor of n_embd, 24"),
        ("gpt2", json!({"n_head": 0}), "`n_head` is 0; attnc can import an integer from 1"),
        ("gpt2", json!({"n_embd": -24}), "`n_embd` is -24"),
        ("gpt2", json!({"n_embd": 1.5}), "`n_embd` is 1.5"),
        ("gpt2", json!({"n_layer": "three"}), "`n_layer` is \"three\""),
        ("gpt2", json!({"n_layer": 99999999999u64}), "`n_layer` is 99999999999"),
        ("gpt2", json!({"activation_function": "mish"}), "`activation_function` is \"mish\"; attnc can import gelu, "),
        ("gpt2", json!({"scale_attn_by_inverse_layer_idx": true}), "`scale_attn_by_inverse_layer_idx` is true"),
        ("gpt2", json!({"architectures": ["GPT2ForTokenClassification"]}), "`architectures` is [\"GPT2ForToken"),
        (
            "bert",
            json!({"architectures": ["BertForNextSentencePrediction"]}),
            "BertForTokenClassification or BertModel",
        ),
        ("gpt2", json!({"a_new_scale": 2.0}), "does not know its field `a_new_scale`"),
        ("gpt2", json!({"one": 1, "two": "x"}), "does not know its fields `one`, `two`"),
        (
            "llama",
            json!({"num_key_value_heads": 3}),
            "`num_key_value_heads` is 3; attnc can import a divisor of num_att",
        ),
        ("llama", json!({"head_dim": 7}), "`head_dim` is 7"),
        (
            "llama",
            json!({"hidden_size": 30, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": null}),
            "`num_attention_heads` is 4; attnc can import a divisor of hidden_size, 30, such that each head",
        ),
        ("llama", json!({"pad_token_id": -2}), "`pad_token_id` is -2"),
        (
            "gemma",
            json!({"hidden_act": "relu", "hidden_activation": "gelu_pytorch_tanh"}),
            "`hidden_activation` is \"gelu_pytorch_tanh\"; attnc can import the same function as hidden_act",
        ),
        ("roberta_classifier", json!({"pad_token_id": -1}), "`pad_token_id` is -1"),
        (
            "bart",
            json!({"force_bos_token_to_be_generated": true, "bos_token_id": 53}),
            "`bos_token_id` is 53; attnc can import a token below",
        ),
        ("llama", json!({"rope_parameters": {"rope_type": "dynamic", "factor": 4.0}}), "`rope_parameters` is {"),
        (
            "llama",
            json!({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1.0}}),
            "a rope_theta and betas with which yarn has bounds",
        ),
        (
            "llama",
            json!({"rope_parameters": {"rope_type": "yarn", "factor": 9.0, "mscale": 1.0, "mscale_all_dim": -9.0}}),
            "an attention_factor above 0",
        ),
        ("llama_yarn", json!({"rope_parameters": {"rope_type": "yarn", "beta_fast": "x"}}), "`beta_fast` is \"x\""),
        ("llama", json!({"rope_parameters": {"rope_type": "default", "odd": 4.0}}), "without further fields"),
        ("llama", json!({"rms_norm_eps": "small"}), "`rms_norm_eps` is \"small\"; attnc can import a number"),
        ("mistral", json!({"sliding_window": 0}), "`sliding_window` is 0"),
        ("gemma2", json!({"layer_types": ["full_attention"]}), "`layer_types` is [\"full_attention\"]"),
        (
            "gemma3",
            json!({"layer_types": ["full_attention", "full_attention", "full_attention"]}),
            "`layer_types` is [",
        ),
        ("gemma3", json!({"sliding_window": null}), "`sliding_window` is nothing"),
        (
            "gemma3",
            json!({"attn_logit_softcapping": 5.0}),
            "`attn_logit_softcapping` is 5.0; attnc can import only null",
        ),
        ("gemma3", json!({"use_bidirectional_attention": true}), "`use_bidirectional_attention` is true"),
        (
            "gemma3",
            json!({"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}}),
            "default for sliding_attention",
        ),
        (
            "gemma3",
            json!({"rope_parameters": {"odd_attention": {}, "full_attention": null, "x": 2}}),
            "`rope_parameters` is {",
        ),
        ("gemma3_images", json!({"text_config": null}), "`text_config` is nothing"),
        (
            "gemma3_images",
            json!({"text_config": {"model_type": "gemma3_text", "a_new_scale": 2.0}}),
            "does not know its field `a_new_scale`, which may change what the model computes, in `text_config`",
        ),
        ("bert", json!({"position_embedding_type": "relative_key"}), "`position_embedding_type` is \"relative_key\""),
        ("bert", json!({"is_decoder": true}), "`is_decoder` is true"),
        ("t5", json!({"decoder_start_token_id": 53}), "`decoder_start_token_id` is 53; attnc can import a token below"),
        ("t5", json!({"eos_token_id": [1, 2]}), "`eos_token_id` is [1,2]"),
        ("t5", json!({"feed_forward_proj": "gated-mish"}), "`feed_forward_proj` is \"gated-mish\""),
        ("t5", json!({"relative_attention_max_distance": 8}), "`relative_attention_max_distance` is 8"),
        (
            "marian",
            json!({"decoder_vocab_size": 50}),
            "`decoder_vocab_size` is 50; attnc can import vocab_size, 53, as embeddings are shared",
        ),
        (
            "marian_two",
            json!({"eos_token_id": 50}),
            "`eos_token_id` is 50; attnc can import a token below decoder_vocab_size",
        ),
        (
            "marian_untied",
            json!({"eos_token_id": 50}),
            "`eos_token_id` is 50; attnc can import a token below vocab_size, 39",
        ),
        ("marian", json!({"normalize_before": true}), "`normalize_before` is true; attnc can import only false"),
        ("marian", json!({"normalize_embedding": true}), "`normalize_embedding` is true; attnc can import only false"),
        ("marian", json!({"static_position_embeddings": false}), "`static_position_embeddings` is false"),
        ("marian", json!({"d_model": 25}), "`d_model` is 25; attnc can import an even size"),
        (
            "marian",
            json!({"bad_words_ids": [[1], [2, 3]]}),
            "`bad_words_ids` is [[1],[2,3]]; attnc can import a list of",
        ),
        ("marian", json!({"architectures": ["MarianForCausalLM"]}), "attnc can import MarianMTModel or MarianModel"),
        ("mbart", json!({"normalize_before": false}), "`normalize_before` is false; attnc can import only true"),
        ("mbart", json!({"forced_bos_token_id": 53}), "`forced_bos_token_id` is 53; attnc can import a token below"),
        (
            "mbart",
            json!({"architectures": ["MBartForQuestionAnswering"]}),
            "MBartForConditionalGeneration or MBartModel",
        ),
        ("bart", json!({"normalize_before": true}), "`normalize_before` is true; attnc can import only false"),
        ("bart", json!({"decoder_attention_heads": 5}), "`decoder_attention_heads` is 5; attnc can import a divisor"),
        ("bart", json!({"forced_bos_token_id": 53}), "`forced_bos_token_id` is 53; attnc can import a token below"),
        ("bart", json!({"static_position_embeddings": true}), "its field `static_position_embeddings`"),
        ("vit", json!({"patch_size": 5}), "`patch_size` is 5; attnc can import a divisor of image_size, 12"),
        ("gpt2", json!({"architectures": ["GPT2DoubleHeadsModel"]}), "attnc can import GPT2LMHeadModel or GPT2Model"),
        ("bert", json!({"architectures": ["BertLMHeadModel"]}), "`architectures` is [\"BertLMHeadModel\"]"),
        ("llama", json!({"rms_norm_eps": -1e-6}), "`rms_norm_eps` is -1e-6; attnc can import a number from 0 on"),
        ("llama", json!({"rope_parameters": {"rope_type": "default", "rope_theta": -1.0}}), "`rope_theta` is -1.0"),
        (
            "llama3",
            json!({"rope_parameters": {"rope_type": "llama3", "low_freq_factor": 4.0}}),
            "above the low_freq_factor",
        ),
        ("llama", json!({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}), "`rope_scaling` is {"),
        ("gemma2", json!({"query_pre_attn_scalar": 0}), "`query_pre_attn_scalar` is 0"),
        ("gemma2", json!({"attn_logit_softcapping": -2.0}), "`attn_logit_softcapping` is -2.0"),
        ("smollm3", json!({"no_rope_layers": [1, 0, 0, 1, 1]}), "`no_rope_layers` is [1,0,0,1,1]"),
        ("gpt_neo", json!({"attention_types": [[[], 9_000_000_000_000_000i64]]}), "`attention_types` is [[["),
        ("gpt_neo", json!({"attention_types": [[["global"], 9_000_000_000_000_000i64]]}), "`attention_types` is [[["),
        ("opt", json!({"do_layer_norm_before": false}), "`do_layer_norm_before` is false; attnc can import only true"),
        ("opt", json!({"word_embed_proj_dim": 8}), "`word_embed_proj_dim` is 8; attnc can import hidden_size"),
        ("phi", json!({"qk_layernorm": true}), "`qk_layernorm` is true; attnc can import only false"),
        ("gptj", json!({"rotary_dim": 9}), "`rotary_dim` is 9; attnc can import an even part of each head"),
        ("mixtral", json!({"num_experts_per_tok": 4}), "`num_experts_per_tok` is 4; attnc can import at most 3"),
        ("qwen2_moe", json!({"mlp_only_layers": [1]}), "`mlp_only_layers` is [1]"),
        ("bloom", json!({"apply_residual_connection_post_layernorm": true}), "post_layernorm` is true"),
        ("albert", json!({"num_hidden_groups": 2}), "`num_hidden_groups` is 2; attnc can import 1: all layers share"),
        ("deberta_v2", json!({"conv_kernel_size": 3}), "`conv_kernel_size` is 3; attnc can import 0"),
        ("deberta_v2", json!({"pos_att_type": ["c2p"]}), "`pos_att_type` is [\"c2p\"]; attnc can import p2c and c2p"),
        ("mpnet", json!({"relative_attention_num_buckets": 16}), "`relative_attention_num_buckets` is 16"),
        ("clip", json!({"text_config_dict": {"hidden_size": 5}}), "`text_config_dict` is {"),
        ("pegasus", json!({"normalize_before": false}), "`normalize_before` is false; attnc can import only true"),
        ("whisper", json!({"encoder_attention_heads": 5}), "`encoder_attention_heads` is 5"),
    ] {
        let made = changed(checkpoint, &changes);
        let refused = made.expect_err(&format!("{checkpoint} {changes}"));
        assert!(refused.contains(told), "{checkpoint} {changes}: {refused}");
    }
    // Windows where the family has them, and nowhere else.
    let windows =
        |checkpoint: &str, changes| changed(checkpoint, &changes).expect("a program").contains("distance < W");
    let qwen = |first| json!({"use_sliding_window": true, "sliding_window": 4, "layer_types": null, "max_window_layers": first});
    assert!(windows("qwen2", qwen(0)) && !windows("qwen2", qwen(28)) && windows("mistral", json!({})));
    assert!(!windows("llama", json!({"sliding_window": 4})));
    // The first token that BART writes may be given.
    let first = |changes| changed("bart", &changes).expect("a program");
    assert!(first(json!({})).contains("written(full(2, [1]))"));
    let forced = first(json!({"forced_bos_token_id": 0}));
    assert!(forced.contains("written(concat(full(2, [1]), full(0, [1])))"), "{forced}");
    // What `generation_config.json` says of writing holds, and nothing else of it.
    let path = folder().join("bart");
    let text = std::fs::read_to_string(path.join("config.json")).expect("a file");
    let names: Names = WeightsFile::open(&weights(&path)).expect("weights").names().into_iter().collect();
    let written_by = |text_of_writing: &str| {
        let mut config = Config::parse(&text, &[]).map_err(|refusal| refusal.message)?;
        config.writes_by(text_of_writing).map_err(|refusal| refusal.message)?;
        attnc::import::import(&config, &names).map(|made| made.text).map_err(|refusal| refusal.message)
    };
    let said =
        r#"{"forced_bos_token_id": 5, "bad_words_ids": [[2], [9]], "decoder_start_token_id": null, "d_model": 7}"#;
    let made = written_by(said).expect("a program");
    assert!(
        made.contains("concat(full(2, [1]), full(5, [1]))") && made.contains("where(iota(V) == 9, -inf,"),
        "{made}"
    );
    assert_eq!(written_by("{}"), changed("bart", &json!({})));
    assert!(written_by("[]").is_err_and(|why| why.contains("not an object")));
    // A rule for rotary frequencies, and a tensor of factors too.
    let both: Names = WeightsFile::open(&weights(&folder().join("llama3")))
        .expect("weights")
        .names()
        .into_iter()
        .chain(["rope_freqs.weight".to_owned()])
        .collect();
    let config = std::fs::read_to_string(folder().join("llama3/config.json")).expect("a file");
    let config = Config::parse(&config, &[]).unwrap_or_else(|e| panic!("{e:?}"));
    let why = attnc::import::import(&config, &both).expect_err("two rules").message;
    assert!(why.contains("has the tensor `rope_freqs.weight`"), "{why}");
    assert_eq!(first(json!({"force_bos_token_to_be_generated": true})), forced);
    // Fields that change nothing.
    for (checkpoint, changes) in [
        ("llama", json!({"pad_token_id": -1, "is_llama_config": true, "max_sequence_length": 2048})),
        ("gpt2", json!({"pad_token_id": -1})),
        (
            "bert",
            json!({"pad_token_id": -1, "directionality": "bidi", "pooler_fc_size": 768, "pooler_num_attention_heads": 12,
                "pooler_num_fc_layers": 3, "pooler_size_per_head": 128, "pooler_type": "first_token_transform"}),
        ),
        ("gemma", json!({"hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh"})),
        ("gemma", json!({"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"})),
    ] {
        assert_eq!(changed(checkpoint, &changes), changed(checkpoint, &json!({})), "{checkpoint} {changes}");
    }
    // Fields that say nothing are not reported.
    for changes in [json!({"a_new_flag": false}), json!({"a_new_list": []}), json!({"a_new_thing": null})] {
        assert_eq!(changed("gpt2", &changes), changed("gpt2", &json!({})));
    }
}

/// Older files say the same in other words.
#[test]
fn older_configurations_are_read() {
    let now = changed("llama3", &json!({})).expect("a program");
    let scaling = json!({"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16});
    let before = json!({"rope_parameters": null, "rope_theta": 500000.0, "rope_scaling": scaling});
    assert_eq!(changed("llama3", &before).as_ref(), Ok(&now));
    assert!(now.contains("theta = 500000.0"), "{now}");
    let gemma = changed("gemma", &json!({"hidden_act": "gelu", "hidden_activation": null})).expect("a program");
    assert!(gemma.contains("gelu_tanh(gate_proj(x))"), "{gemma}");
    // Gemma 3's two bases, and its pattern in place of a list.
    let before = json!({"rope_parameters": null, "rope_theta": 50000.0, "rope_local_base_freq": 700.0,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "layer_types": null, "_sliding_window_pattern": null,
        "sliding_window_pattern": 3});
    let now = changed("gemma3", &json!({}));
    assert!(now.as_ref().is_ok_and(|program| program.contains("block(x, i % 3 != 2)")), "{now:?}");
    assert_eq!(changed("gemma3", &before), now);
    // Of a list with all layers alike, one base is left.
    let far = changed("gemma3", &json!({"layer_types": vec!["full_attention"; 4]})).expect("a program");
    assert!(far.contains("theta = 50000.0") && !far.contains("local"), "{far}");
    let near = changed("gemma3", &json!({"layer_types": vec!["sliding_attention"; 4]})).expect("a program");
    assert!(near.contains("theta = 700.0") && near.contains("W = 4,") && !near.contains("local"), "{near}");
}

/// Another name, a file of the folder for the folder, and norms with the names of TensorFlow.
#[test]
fn other_names_are_read() {
    let xlm = json!({"model_type": "xlm-roberta", "architectures": ["XLMRobertaForMaskedLM"]});
    let roberta = changed("roberta_masked", &json!({})).expect("a program");
    let renamed = roberta.replace("model Roberta<", "model XLMRoberta<");
    assert!(roberta != renamed && changed("roberta_masked", &xlm) == Ok(renamed));
    let bert = folder().join("bert_masked");
    let import = |path: &Path| attnc(&["import", path.to_str().expect("UTF-8")]);
    let (code, program, err) = import(&bert);
    assert_eq!((code, err.as_str()), (0, ""));
    for file in ["config.json", "model.safetensors"] {
        assert_eq!(import(&bert.join(file)).1, program, "{file}");
    }
    // The header has the same length with the shorter names.
    let made = tempfile::tempdir().expect("a folder");
    std::fs::copy(bert.join("config.json"), made.path().join("config.json")).expect("a file");
    let mut bytes = std::fs::read(bert.join("model.safetensors")).expect("a file");
    let (length, rest) = bytes.split_first_chunk_mut::<8>().expect("a header");
    let header = &mut rest[..usize::try_from(u64::from_le_bytes(*length)).expect("a length")];
    let text = String::from_utf8(header.to_vec()).expect("UTF-8");
    let old = text.replace("LayerNorm.weight\"", "LayerNorm.gamma\" ").replace("LayerNorm.bias\"", "LayerNorm.beta\"");
    assert_ne!(old, text);
    header.copy_from_slice(old.as_bytes());
    std::fs::write(made.path().join("model.safetensors"), bytes).expect("a file");
    let (code, old, err) = import(made.path());
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(old.matches(": OldNorm<D").count(), program.matches(": LayerNorm<D").count());
    // Both compute the same of the same weights.
    let of = |program: &str, folder: &Path| {
        let source = made.path().join("m.attn");
        std::fs::write(&source, program).expect("a file");
        let weights = folder.join("model.safetensors");
        let [source, weights] = [&source, &weights].map(|path| path.to_str().expect("UTF-8"));
        let inputs = ["tokens=[[5, 3, 2]]", "mask=[[1, 1, 0]]", "types=[[0, 1, 0]]"];
        let inputs = inputs.into_iter().flat_map(|input| ["--input", input]);
        let run = ["run", source, "--weights", weights, "--function", "encode", "--backend", "interp"];
        attnc(&run.into_iter().chain(inputs).collect::<Vec<&str>>())
    };
    let now = of(&program, &bert);
    assert_eq!((now.0, of(&old, made.path())), (0, now.clone()), "{now:?}");
}

/// Folders that are none, files that are broken, and the option that takes a field's meaning away.
#[test]
fn the_command_tells_what_is_wrong_with_a_folder() {
    let made = tempfile::tempdir().expect("a folder");
    let folder_of = |name: &str, files: &[(&str, &[u8])]| {
        let path = made.path().join(name);
        std::fs::create_dir(&path).expect("a folder");
        for (file, bytes) in files {
            std::fs::write(path.join(file), bytes).expect("a file");
        }
        path.to_str().expect("UTF-8").to_owned()
    };
    let good = folder().join("gpt2");
    let config = std::fs::read(good.join("config.json")).expect("a file");
    let tensors = std::fs::read(good.join("model.safetensors")).expect("a file");
    let mut more: Value = serde_json::from_slice(&config).expect("JSON");
    more["a_new_scale"] = json!(2.0);
    let more = more.to_string();
    let layers = |n: i64| {
        let mut changed: Value = serde_json::from_slice(&config).expect("JSON");
        changed["n_layer"] = json!(n);
        changed.to_string()
    };
    let (five, very_many) = (layers(5), layers(2_000_000_000));
    let mut wider: Value = serde_json::from_slice(&config).expect("JSON");
    wider["vocab_size"] = json!(wider["vocab_size"].as_i64().expect("a number") + 1);
    let wider = wider.to_string();
    let index = |text: &str| {
        folder_of(
            &format!("index{}", text.len()),
            &[("config.json", &config), ("model.safetensors.index.json", text.as_bytes())],
        )
    };
    for (path, code, told) in [
        (folder_of("empty", &[]), 3, "E0001"),
        (folder_of("no_weights", &[("config.json", &config)]), 3, "neither `model.safetensors` nor"),
        (folder_of("no_json", &[("config.json", b"{"), ("model.safetensors", &tensors)]), 3, "it is not JSON"),
        (folder_of("list", &[("config.json", b"[]"), ("model.safetensors", &tensors)]), 3, "not an object"),
        (folder_of("cut", &[("config.json", &config), ("model.safetensors", &tensors[..999])]), 3, "E0801"),
        (
            folder_of("five", &[("config.json", five.as_bytes()), ("model.safetensors", &tensors)]),
            3,
            "no tensor `transformer.h.3.",
        ),
        (
            folder_of("wider", &[("config.json", wider.as_bytes()), ("model.safetensors", &tensors)]),
            3,
            "the tensor `transformer.wte.weight` has the shape [",
        ),
        (folder_of("many", &[("config.json", very_many.as_bytes()), ("model.safetensors", &tensors)]), 1, "E0611"),
        (
            folder_of("more", &[("config.json", more.as_bytes()), ("model.safetensors", &tensors)]),
            3,
            "--ignore a_new_scale",
        ),
        (index("{}"), 3, "no object `weight_map`"),
        (index(r#"{"weight_map": {"a": "../x.safetensors"}}"#), 3, "which is not beside it"),
        (index(r#"{"weight_map": {"a": "absent.safetensors"}}"#), 3, "cannot read weights file"),
        (index(r#"{"weight_map": {"a": 1}}"#), 3, "which is not beside it"),
    ] {
        let (exit, out, err) = attnc(&["import", &path]);
        assert_eq!((exit, out.as_str()), (code, ""), "{path}: {err}");
        assert!(err.contains(told) && !err.contains("internal error"), "{path}: {err}");
    }
    let path = made.path().join("more");
    let path = path.to_str().expect("UTF-8");
    let (code, ignoring, err) = attnc(&["import", path, "--ignore", "a_new_scale"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(ignoring.contains("model Gpt2<L = 3"), "{ignoring}");
    let (code, _, err) = attnc(&["import", path, "--ignore", "a_new_scale", "--ignore", "another"]);
    assert!(code == 3 && err.contains("no field `another`"), "{err}");
}
