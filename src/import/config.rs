//! Reads a `config.json`, field by field.
//!
//! In: untrusted JSON. Out: values of the types that a family requires, and at the end the check
//! that every field with an effect was read ([`Config::all_known`]): a field that was not might
//! change the results.

use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Maximum number of tokens that are never written.
const MAX_BANNED: usize = 1024;

/// Generation fields, which `generation_config.json` overrides.
const OF_WRITING: [&str; 5] =
    ["decoder_start_token_id", "forced_bos_token_id", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens"];

/// Fields that do not affect what a model computes from tokens or pixels at inference; the comments
/// say what they are for.
const WITHOUT_EFFECT: &[&str] = &[
    // Origin of the file.
    "_name_or_path",
    "_commit_hash",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "transformers_version",
    "transformers.js_config",
    "finetuning_task",
    "_num_labels",
    "language",
    "license",
    "is_llama_config",
    // Storage format, and how a framework runs the model.
    "dtype",
    "torch_dtype",
    "torchscript",
    "use_bfloat16",
    "extra_pos_embeddings",
    "add_bias_logits",
    "tf_legacy_loss",
    "use_cache",
    "pretraining_tp",
    "chunk_size_feed_forward",
    "gradient_checkpointing",
    "low_cpu_mem_usage",
    "reorder_and_upcast_attn",
    "return_dict",
    "return_dict_in_generate",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "output_past",
    "hybrid_kernel",
    // From the original BERT code, whose encoder ignores them.
    "directionality",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
    // Training only.
    "initializer_range",
    "initializer_factor",
    "init_std",
    "attention_dropout",
    "attention_probs_dropout_prob",
    "attn_pdrop",
    "embd_pdrop",
    "resid_pdrop",
    "dropout",
    "dropout_rate",
    "activation_dropout",
    "hidden_dropout_prob",
    "hidden_dropout",
    "classifier_dropout",
    "classifier_dropout_prob",
    "summary_last_dropout",
    "seq_classif_dropout",
    "qa_dropout",
    "encoder_layerdrop",
    "decoder_layerdrop",
    "router_aux_loss_coef",
    "apply_spec_augment",
    "mask_time_prob",
    "mask_time_length",
    "mask_time_min_masks",
    "mask_feature_prob",
    "mask_feature_length",
    "mask_feature_min_masks",
    "median_filter_width",
    "problem_type",
    "sinusoidal_pos_embds",
    "gradient_accumulation_steps",
    // Tokens and labels that only the caller uses.
    "bos_token_id",
    "eos_token_id",
    "sep_token_id",
    "cls_token_id",
    "mask_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "suppress_tokens",
    "begin_suppress_tokens",
    "task_specific_params",
    "tokenizer_class",
    "prefix",
    "id2label",
    "label2id",
    "n_ctx",
    "max_sequence_length",
    "model_max_length",
    "max_length",
    "summary_type",
    "summary_use_proj",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_activation_fn",
    "encoder_stride",
    "is_encoder_decoder",
    "tie_weights_",
    "forced_decoder_ids",
    "n_positions",
    "cache_implementation",
    // Search options of `transformers`; here the caller chooses.
    "early_stopping",
    "num_beams",
    "no_repeat_ngram_size",
    "length_penalty",
    "min_length",
    "classif_dropout",
];

/// Why a checkpoint cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error message.
    pub message: String,
    /// A suggestion, if there is one.
    pub help: Option<String>,
}

impl Refusal {
    /// An error about the tensors.
    pub(super) fn checkpoint(message: String) -> Refusal {
        Refusal { message, help: None }
    }

    fn config(message: String) -> Refusal {
        Refusal { message, help: None }
    }
}

/// How a sentence encoder makes one vector of the hidden states `x: f32[S, D]` of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pooling {
    /// The vector has this many times D elements.
    pub(super) count: usize,
    /// The end of a function in the language.
    pub(super) body: String,
}

/// The fields of a configuration. It records which of them were read.
#[derive(Debug)]
pub struct Config {
    fields: Map<String, Value>,
    /// The values of [`OF_WRITING`] in `generation_config.json`.
    writing: Map<String, Value>,
    /// How a sentence encoder makes one vector.
    pooling: Option<Pooling>,
    read: RefCell<BTreeSet<String>>,
    ignored: BTreeSet<String>,
}

/// Texts, and how many times they are repeated.
pub(super) type Repeated = (Vec<String>, i64);

impl Config {
    /// Parses a configuration. Fields in `ignored` are taken to have no effect.
    ///
    /// # Errors
    /// The text is not a JSON object, or an ignored field does not exist.
    pub fn parse(text: &str, ignored: &[String]) -> Result<Config, Refusal> {
        let value: Value = serde_json::from_str(text).map_err(|e| Refusal::config(format!("it is not JSON: {e}")))?;
        let Value::Object(fields) = value else {
            return Err(Refusal::config("it is JSON, but not an object".to_owned()));
        };
        Config::from_fields(fields, ignored)
    }

    /// A configuration with these fields.
    pub(super) fn from_fields(fields: Map<String, Value>, ignored: &[String]) -> Result<Config, Refusal> {
        if let Some(name) = ignored.iter().find(|name| !fields.contains_key(*name)) {
            return Err(Refusal::config(format!("it has no field `{name}` that could be ignored")));
        }
        Ok(Config {
            fields,
            writing: Map::new(),
            pooling: None,
            read: RefCell::default(),
            ignored: ignored.iter().cloned().collect(),
        })
    }

    /// Overrides the forced first tokens and the banned tokens by a `generation_config.json`.
    ///
    /// # Errors
    /// The text is not a JSON object.
    pub fn writes_by(&mut self, text: &str) -> Result<(), Refusal> {
        self.writing = Config::parse(text, &[])?.fields;
        self.writing.retain(|name, value| OF_WRITING.contains(&name.as_str()) && !value.is_null());
        Ok(())
    }

    /// Makes a sentence encoder of it.
    pub fn pools_by(&mut self, pooling: Pooling) {
        self.pooling = Some(pooling);
    }

    /// How a sentence encoder makes one vector.
    pub(super) fn pooling(&self) -> Option<&Pooling> {
        self.pooling.as_ref()
    }

    /// The value of a field; `None` if it is missing or `null`.
    fn get(&self, name: &str) -> Option<&Value> {
        self.read.borrow_mut().insert(name.to_owned());
        self.writing.get(name).or_else(|| self.fields.get(name)).filter(|value| !value.is_null())
    }

    fn needed(&self, name: &str) -> Result<&Value, Refusal> {
        self.get(name).ok_or_else(|| Refusal::config(format!("it has no field `{name}`")))
    }

    /// Does the field exist, with a value other than `null`?
    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The error for a field's value; `wanted` describes the supported values.
    pub(super) fn refuse(&self, name: &str, wanted: &str) -> Refusal {
        let mut shown = self.get(name).map_or("nothing".to_owned(), Value::to_string);
        if shown.chars().count() > 60 {
            shown = shown.chars().take(57).chain("...".chars()).collect();
        }
        Refusal::config(format!("its field `{name}` is {shown}; attnc can import {wanted}"))
    }

    /// A size: an integer from 1 to 2^31 - 1.
    pub(super) fn size(&self, name: &str) -> Result<i64, Refusal> {
        let value = self.needed(name)?.as_i64().filter(|n| (1..=i64::from(i32::MAX)).contains(n));
        value.ok_or_else(|| self.refuse(name, "an integer from 1 to 2147483647"))
    }

    /// A size, or a default.
    pub(super) fn size_or(&self, name: &str, default: i64) -> Result<i64, Refusal> {
        if self.has(name) { self.size(name) } else { Ok(default) }
    }

    /// A token, if given: an integer from 0 to 2^31 - 1.
    pub(super) fn token(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let token = value.as_i64().filter(|n| (0..=i64::from(i32::MAX)).contains(n));
        token.map(Some).ok_or_else(|| self.refuse(name, "an integer from 0 to 2147483647"))
    }

    /// `pad_token_id` of a family that uses it only in training; -1 means none.
    pub(super) fn padding(&self) -> Result<Option<i64>, Refusal> {
        let name = "pad_token_id";
        if self.get(name).is_some_and(|value| *value == -1) { Ok(None) } else { self.token(name) }
    }

    /// A condition in the language for the tokens that are never written: `bad_words_ids`, a list
    /// of one-token lists, and `suppress_tokens`, except for the token `end`; may be empty.
    pub(super) fn banned(&self, end: Option<i64>) -> Result<String, Refusal> {
        let token = |value: &Value| value.as_i64().filter(|n| (0..=i64::from(i32::MAX)).contains(n));
        let one = |text: &Value| match text.as_array()?.as_slice() {
            [one] => token(one),
            _ => None,
        };
        let list = |name: &str, of: &dyn Fn(&Value) -> Option<i64>, wanted: &str| {
            let Some(value) = self.get(name) else { return Ok(Vec::new()) };
            let found: Option<Vec<i64>> = value.as_array().and_then(|list| list.iter().map(of).collect());
            found.ok_or_else(|| self.refuse(name, wanted))
        };
        let mut all = list("bad_words_ids", &one, "a list of lists of one token each")?;
        all.extend(list("suppress_tokens", &token, "a list of tokens")?);
        all.retain(|token| Some(*token) != end);
        self.is_one_of("suppress_tokens", &all)
    }

    /// The same for the first token that is written.
    pub(super) fn banned_first(&self) -> Result<String, Refusal> {
        let name = "begin_suppress_tokens";
        self.is_one_of(name, &self.numbers(name)?.unwrap_or_default())
    }

    /// A condition for tokens of a list.
    fn is_one_of(&self, name: &str, tokens: &[i64]) -> Result<String, Refusal> {
        if tokens.len() > MAX_BANNED {
            return Err(self.refuse(name, &format!("at most {MAX_BANNED} tokens")));
        }
        let each: Vec<String> = tokens.iter().map(|token| format!("iota(V) == {token}")).collect();
        Ok(each.join(" or "))
    }

    /// A finite number, or a default.
    pub(super) fn number_or(&self, name: &str, default: f64) -> Result<f64, Refusal> {
        let Some(value) = self.get(name) else { return Ok(default) };
        let found = value.as_f64().filter(|x| (*x as f32).is_finite());
        found.ok_or_else(|| self.refuse(name, "a number"))
    }

    /// A number above 0, or a default.
    pub(super) fn positive_or(&self, name: &str, default: f64) -> Result<f64, Refusal> {
        let found = self.number_or(name, default)?;
        if found > 0.0 { Ok(found) } else { Err(self.refuse(name, "a number above 0")) }
    }

    /// The epsilon added to a variance: a number that is at least 0, or a default.
    pub(super) fn epsilon_or(&self, name: &str, default: f64) -> Result<f64, Refusal> {
        let found = self.number_or(name, default)?;
        if found >= 0.0 { Ok(found) } else { Err(self.refuse(name, "a number from 0 on")) }
    }

    /// Requires a field to exist: `null` is a value, but a missing field would mean another.
    pub(super) fn present(&self, name: &str) -> Result<(), Refusal> {
        match self.fields.contains_key(name) {
            true => Ok(()),
            false => Err(Refusal::config(format!("it has no field `{name}`"))),
        }
    }

    /// A truth value, or a default.
    pub(super) fn flag_or(&self, name: &str, default: bool) -> Result<bool, Refusal> {
        let Some(value) = self.get(name) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.refuse(name, "true or false"))
    }

    /// A string.
    pub(super) fn text(&self, name: &str) -> Result<String, Refusal> {
        let text = self.needed(name)?.as_str().map(str::to_owned);
        text.ok_or_else(|| self.refuse(name, "a text"))
    }

    /// A string, or a default.
    pub(super) fn text_or(&self, name: &str, default: &str) -> Result<String, Refusal> {
        if self.has(name) { self.text(name) } else { Ok(default.to_owned()) }
    }

    /// A list of strings, if given.
    pub(super) fn texts(&self, name: &str) -> Result<Option<Vec<String>>, Refusal> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let list: Option<Vec<String>> =
            value.as_array().and_then(|list| list.iter().map(|v| v.as_str().map(str::to_owned)).collect());
        list.map(Some).ok_or_else(|| self.refuse(name, "a list of texts"))
    }

    /// A list of strings, or one string with this between them; none by default.
    pub(super) fn texts_or_text(&self, name: &str, between: char) -> Result<Vec<String>, Refusal> {
        match self.get(name).and_then(Value::as_str) {
            Some(text) => Ok(text.split(between).map(|part| part.trim().to_owned()).collect()),
            None => Ok(self.texts(name)?.unwrap_or_default()),
        }
    }

    /// A list of numbers, if given.
    pub(super) fn floats(&self, name: &str) -> Result<Option<Vec<f64>>, Refusal> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let list: Option<Vec<f64>> = value.as_array().and_then(|list| list.iter().map(Value::as_f64).collect());
        list.map(Some).ok_or_else(|| self.refuse(name, "a list of numbers"))
    }

    /// A list of integers, if given.
    pub(super) fn numbers(&self, name: &str) -> Result<Option<Vec<i64>>, Refusal> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let list: Option<Vec<i64>> = value.as_array().and_then(|list| list.iter().map(Value::as_i64).collect());
        list.map(Some).ok_or_else(|| self.refuse(name, "a list of integers"))
    }

    /// A list of lists of strings, each with a number, if given: `[[["global", "local"], 12]]`.
    pub(super) fn groups(&self, name: &str) -> Result<Option<Vec<Repeated>>, Refusal> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let texts = |list: &Value| -> Option<Vec<String>> {
            list.as_array()?.iter().map(|v| v.as_str().map(str::to_owned)).collect()
        };
        let group = |pair: &Value| match pair.as_array()?.as_slice() {
            [list, times] => Some((texts(list)?, times.as_i64()?)),
            _ => None,
        };
        let list: Option<Vec<Repeated>> = value.as_array().and_then(|list| list.iter().map(group).collect());
        list.map(Some).ok_or_else(|| self.refuse(name, "a list of lists of texts, each with a number"))
    }

    /// A field that is an object, as a configuration of its own, if given.
    pub(super) fn object(&self, name: &str) -> Result<Option<Config>, Refusal> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let Value::Object(fields) = value else { return Err(self.refuse(name, "an object")) };
        Config::from_fields(fields.clone(), &[]).map(Some)
    }

    /// Are all fields and values equal?
    pub(super) fn says_the_same(&self, other: &Config) -> bool {
        self.fields == other.fields
    }

    /// Are its fields also in another, with the same values?
    pub(super) fn is_in(&self, other: &Config) -> bool {
        self.fields.iter().all(|(name, value)| other.fields.get(name) == Some(value))
    }

    /// The number of fields.
    pub(super) fn count(&self) -> usize {
        self.fields.len()
    }

    /// Requires a truth value to be `wanted`.
    pub(super) fn only(&self, name: &str, wanted: bool) -> Result<(), Refusal> {
        match self.flag_or(name, wanted)? == wanted {
            true => Ok(()),
            false => Err(self.refuse(name, if wanted { "only true" } else { "only false" })),
        }
    }

    /// The suffix after `class` in `architectures`, one of `known`; the first of them by default.
    pub(super) fn architecture(&self, class: &str, known: &[&'static str]) -> Result<&'static str, Refusal> {
        let Some(list) = self.texts("architectures")? else { return Ok(known.first().unwrap_or(&"")) };
        let found = match list.as_slice() {
            [one] => known.iter().copied().find(|end| one.strip_prefix(class) == Some(end)),
            _ => None,
        };
        found.ok_or_else(|| {
            let names: Vec<String> = known.iter().map(|end| format!("{class}{end}")).collect();
            self.refuse("architectures", &names.join(" or "))
        })
    }

    /// Checks that every field with an effect was read.
    pub(super) fn all_known(&self) -> Result<(), Refusal> {
        let read = self.read.borrow();
        let means_nothing = |value: &Value| match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(list) => list.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            Value::Bool(true) | Value::Number(_) | Value::String(_) => false,
        };
        let unknown: Vec<&str> = self
            .fields
            .iter()
            .filter(|(name, value)| {
                let name = name.as_str();
                !read.contains(name)
                    && !WITHOUT_EFFECT.contains(&name)
                    && !self.ignored.contains(name)
                    && !means_nothing(value)
            })
            .map(|(name, _)| name.as_str())
            .collect();
        let Some(first) = unknown.first() else { return Ok(()) };
        let message = match unknown.as_slice() {
            [one] => format!("attnc does not know its field `{one}`, which may change what the model computes"),
            several => {
                let list: Vec<String> = several.iter().take(12).map(|name| format!("`{name}`")).collect();
                let more = if several.len() > 12 { ", ..." } else { "" };
                format!(
                    "attnc does not know its fields {}{more}, which may change what the model computes",
                    list.join(", ")
                )
            }
        };
        let help = format!("if a field changes nothing in the results, add `--ignore {first}`");
        Err(Refusal { message, help: Some(help) })
    }
}
