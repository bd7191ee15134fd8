//! Converts metadata to a configuration of the hub, and tensor names to names on the hub.
//!
//! In: a file's metadata and tensors. Out: a configuration, and for each tensor its name on the hub
//! and the conversion of its layout.
//!
//! This undoes the changes of llama.cpp's converter: the permuted rows of Llama's query and key
//! projections, in which the two halves of a head are interleaved; the transposed weights of
//! GPT-2's `Conv1D`; the 1 that is added to Gemma's norms.

use super::read::{File, StorageType, Stored};
use crate::import::decoder::FACTORS;
use crate::import::{Config, Refusal};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// How a tensor's layout differs from the hub's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// The same.
    Same,
    /// The rows of each of this many heads are in pairs `(i, half + i)`; on the hub, all first
    /// halves come before the second ones.
    Heads(u64),
    /// Rows and columns are exchanged.
    Transposed,
    /// 1 was added to each element.
    PlusOne,
}

/// A model in the form of the hub.
#[derive(Debug)]
pub struct Model<'b> {
    /// Its configuration.
    pub config: Config,
    /// Its tensors: name on the hub, layout, and the stored tensor.
    pub(super) tensors: Vec<(String, Layout, Stored<'b>)>,
}

impl Model<'_> {
    /// Names and shapes of its tensors on the hub, outermost extent first.
    pub fn shapes(&self) -> impl Iterator<Item = (&str, Vec<u64>)> {
        self.tensors.iter().map(|(name, layout, stored)| {
            let mut shape = stored.shape.clone();
            if *layout == Layout::Transposed {
                shape.reverse();
            }
            (name.as_str(), shape)
        })
    }
}

/// The architectures that can be imported.
const ARCHITECTURES: [&str; 7] = ["llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gpt2"];

/// Tensors of a block of the Llama kind, and their names on the hub.
const LLAMA: [(&str, &str); 11] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// Additional norms of Gemma 2 and 3: after attention and after feed-forward.
const SANDWICH: [(&str, &str); 3] = [
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// The same for GPT-2.
const GPT2: [(&str, &str); 6] = [
    ("attn_norm", "ln_1"),
    ("attn_qkv", "attn.c_attn"),
    ("attn_output", "attn.c_proj"),
    ("ffn_norm", "ln_2"),
    ("ffn_up", "mlp.c_fc"),
    ("ffn_down", "mlp.c_proj"),
];

/// Reconstructs the model that a file was converted from. Metadata in `ignored` is taken to have no
/// effect.
///
/// # Errors
/// An unknown architecture, value or tensor.
pub fn model<'b>(file: File<'b>, ignored: &[String]) -> Result<Model<'b>, Refusal> {
    let File { mut metadata, tensors } = file;
    // Origin of the file, how it was made, and the tokenizer.
    let is_about = |name: &str| {
        let about = ["general.", "quantize.", "imatrix.", "tokenizer."];
        name != "general.architecture" && about.iter().any(|start| name.starts_with(start))
    };
    metadata.retain(|name, _| !is_about(name));
    let said = Config::from_fields(metadata, ignored)?;
    let architecture = said.text("general.architecture")?;
    if !ARCHITECTURES.contains(&architecture.as_str()) {
        return Err(said.refuse("general.architecture", &format!("one of {}", ARCHITECTURES.join(", "))));
    }
    if said.size_or("split.count", 1)? != 1 {
        let help = "join its parts: `llama-gguf-split --merge FIRST.gguf whole.gguf`".to_owned();
        return Err(Refusal { help: Some(help), ..said.refuse("split.count", "a model in one file") });
    }
    said.token("split.no")?;
    said.token("split.tensors.count")?;
    let names: BTreeSet<String> = tensors.iter().map(|t| t.name.clone()).collect();
    if names.len() < tensors.len() {
        return Err(Refusal::checkpoint("two of its tensors have the same name".to_owned()));
    }
    let vocabulary = tensors.iter().find(|t| t.name == "token_embd.weight").and_then(|t| t.shape.first().copied());
    let Some(vocabulary) = vocabulary else {
        return Err(Refusal::checkpoint("it has no tensor `token_embd.weight`".to_owned()));
    };
    let facts = Facts { said: &said, architecture: &architecture, names: &names, vocabulary };
    let config = if architecture == "gpt2" { facts.gpt2()? } else { facts.llama()? };
    said.all_known()?;
    let place = |stored: Stored<'b>| {
        let (name, layout) = facts.place(&stored.name)?;
        let rows = stored.shape.first().copied().unwrap_or(0);
        let fits = match layout {
            Layout::Same | Layout::PlusOne => true,
            Layout::Heads(heads) => {
                let is_packed = stored.shape.len() < 2 && matches!(stored.kind, StorageType::Quantised(_));
                !is_packed && heads.checked_mul(2).is_some_and(|n| n > 0 && rows > 0 && rows.is_multiple_of(n))
            }
            Layout::Transposed => stored.shape.len() == 2,
        };
        if !fits {
            let message = format!("its tensor `{}` has the shape {:?}", stored.name.escape_debug(), stored.shape);
            return Err(Refusal::checkpoint(message));
        }
        Ok((name, layout, stored))
    };
    let tensors = tensors.into_iter().map(place).collect::<Result<Vec<_>, Refusal>>()?;
    Ok(Model { config: Config::from_fields(config, &[])?, tensors })
}

/// Facts about the model in a file.
struct Facts<'f> {
    said: &'f Config,
    architecture: &'f str,
    names: &'f BTreeSet<String>,
    vocabulary: u64,
}

impl Facts<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    fn size(&self, name: &str) -> Result<i64, Refusal> {
        self.said.size(&self.key(name))
    }

    fn is_gemma(&self) -> bool {
        self.architecture.starts_with("gemma")
    }

    /// Are there norms after attention and feed-forward too?
    fn is_sandwich(&self) -> bool {
        ["gemma2", "gemma3"].contains(&self.architecture)
    }

    fn fields(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }

    /// A configuration of the Llama kind.
    fn llama(&self) -> Result<Map<String, Value>, Refusal> {
        let said = self.said;
        let (d, h) = (self.size("embedding_length")?, self.size("attention.head_count")?);
        let k = said.size_or(&self.key("attention.head_count_kv"), h)?;
        let e = said.size_or(&self.key("attention.key_length"), d / h)?;
        for other in ["attention.value_length", "rope.dimension_count"] {
            if said.size_or(&self.key(other), e)? != e {
                return Err(said.refuse(&self.key(other), &format!("the width of a head, {e}")));
            }
        }
        if said.size_or(&self.key("vocab_size"), self.vocabulary.cast_signed())? != self.vocabulary.cast_signed() {
            return Err(said.refuse(&self.key("vocab_size"), "as many as `token_embd.weight` has rows"));
        }
        let (model_type, class) = match self.architecture {
            "llama" => ("llama", "Llama"),
            "qwen2" => ("qwen2", "Qwen2"),
            "qwen3" => ("qwen3", "Qwen3"),
            "gemma" => ("gemma", "Gemma"),
            "gemma2" => ("gemma2", "Gemma2"),
            _ => ("gemma3_text", "Gemma3"),
        };
        let layers = self.size("block_count")?;
        let mut config = Facts::fields(json!({
            "model_type": model_type,
            "architectures": [format!("{class}ForCausalLM")],
            "hidden_size": d,
            "num_hidden_layers": layers,
            "num_attention_heads": h,
            "num_key_value_heads": k,
            "head_dim": e,
            "intermediate_size": self.size("feed_forward_length")?,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.size("context_length")?,
            "rms_norm_eps": said.epsilon_or(&self.key("attention.layer_norm_rms_epsilon"), 1e-6)?,
            "rope_theta": said.positive_or(&self.key("rope.freq_base"), 10_000.0)?,
            "tie_word_embeddings": !self.names.contains("output.weight"),
        }));
        match said.text_or(&self.key("rope.scaling.type"), "none")?.as_str() {
            "none" => {}
            "linear" => {
                let factor = said.positive_or(&self.key("rope.scaling.factor"), 1.0)?;
                config.insert("rope_scaling".to_owned(), json!({ "rope_type": "linear", "factor": factor }));
            }
            _ => return Err(said.refuse(&self.key("rope.scaling.type"), "none or linear")),
        }
        if self.is_gemma() {
            config.insert("hidden_activation".to_owned(), json!("gelu_pytorch_tanh"));
        }
        if self.is_sandwich() {
            config.insert("sliding_window".to_owned(), json!(self.size("attention.sliding_window")?));
            // Not in the file: the models with this many layers (27 billion parameters) divide by
            // the square root of another width.
            let largest = if self.architecture == "gemma2" { 46 } else { 62 };
            config.insert("query_pre_attn_scalar".to_owned(), json!(if layers == largest { d / h } else { e }));
            for (there, here) in [
                ("attn_logit_softcapping", "attn_logit_softcapping"),
                ("final_logit_softcapping", "final_logit_softcapping"),
                ("rope.freq_base_swa", "rope_local_base_freq"),
            ] {
                let key = self.key(there);
                let value = if said.has(&key) { json!(said.positive_or(&key, 1.0)?) } else { Value::Null };
                config.insert(here.to_owned(), value);
            }
        }
        if self.architecture == "llama" {
            config.insert("attention_bias".to_owned(), json!(self.names.contains("blk.0.attn_q.bias")));
        }
        Ok(config)
    }

    /// A configuration of GPT-2.
    fn gpt2(&self) -> Result<Map<String, Value>, Refusal> {
        Ok(Facts::fields(json!({
            "model_type": "gpt2",
            "architectures": ["GPT2LMHeadModel"],
            "n_embd": self.size("embedding_length")?,
            "n_head": self.size("attention.head_count")?,
            "n_layer": self.size("block_count")?,
            "n_inner": self.size("feed_forward_length")?,
            "n_positions": self.size("context_length")?,
            "vocab_size": self.vocabulary,
            "layer_norm_epsilon": self.said.epsilon_or(&self.key("attention.layer_norm_epsilon"), 1e-5)?,
            "tie_word_embeddings": !self.names.contains("output.weight"),
        })))
    }

    /// The name of a tensor on the hub, and its layout.
    fn place(&self, name: &str) -> Result<(String, Layout), Refusal> {
        let unknown = || Refusal::checkpoint(format!("attnc does not know its tensor `{}`", name.escape_debug()));
        let gpt2 = self.architecture == "gpt2";
        let (part, end) = name.rsplit_once('.').ok_or_else(unknown)?;
        if !["weight", "bias"].contains(&end) {
            return Err(unknown());
        }
        if name == FACTORS && !gpt2 {
            return Ok((FACTORS.to_owned(), Layout::Same));
        }
        let whole = match (part, gpt2) {
            ("token_embd", false) => Some("model.embed_tokens"),
            ("output_norm", false) => Some("model.norm"),
            ("token_embd", true) => Some("transformer.wte"),
            ("position_embd", true) => Some("transformer.wpe"),
            ("output_norm", true) => Some("transformer.ln_f"),
            ("output", _) => Some("lm_head"),
            _ => None,
        };
        let norm = if self.is_gemma() { Layout::PlusOne } else { Layout::Same };
        if let Some(whole) = whole {
            return Ok((format!("{whole}.{end}"), if part == "output_norm" { norm } else { Layout::Same }));
        }
        let (layer, own) = part.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).ok_or_else(unknown)?;
        layer.parse::<u32>().map_err(|_| unknown())?;
        let parts = if gpt2 { &GPT2[..] } else { &LLAMA[..] };
        let more = if self.is_sandwich() { &SANDWICH[..] } else { &[] };
        let (_, there) = more.iter().chain(parts).find(|(here, _)| *here == own).ok_or_else(unknown)?;
        let heads = |name: &str| self.said.size_or(&self.key(name), 1).map(i64::unsigned_abs);
        let layout = match own {
            _ if own.ends_with("_norm") => norm,
            "attn_q" if self.architecture == "llama" => Layout::Heads(heads("attention.head_count")?),
            "attn_k" if self.architecture == "llama" => match self.said.has(&self.key("attention.head_count_kv")) {
                true => Layout::Heads(heads("attention.head_count_kv")?),
                false => Layout::Heads(heads("attention.head_count")?),
            },
            _ if gpt2 && end == "weight" => Layout::Transposed,
            _ => Layout::Same,
        };
        let prefix = if gpt2 { "transformer.h" } else { "model.layers" };
        Ok((format!("{prefix}.{layer}.{there}.{end}"), layout))
    }
}
