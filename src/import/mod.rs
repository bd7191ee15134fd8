//! `attnc import`: converts a checkpoint of the Hugging Face hub, or a GGUF file, to a program.
//!
//! In: the text of a `config.json` and the names of a checkpoint's tensors, both untrusted. Out:
//! the text of a program whose dimensions default to the checkpoint's sizes and whose parameters
//! have the names of its tensors, so that it runs with the checkpoint unchanged. A configuration
//! that the program would not implement is rejected, by the name of the field.
//!
//! Each kind of model (decoders, encoders, ..) has a template (`*.attn`): a program with `$name`
//! for values of the configuration, and with conditional lines ([`template`]). A table says for
//! each family the names of its fields and tensors, and its parts. This folder must not know files,
//! the compiler's stages, or the command line.

mod bart;
mod clip;
mod config;
mod decoder;
mod encoder;
pub mod gguf;
mod sentence;
mod t5;
mod template;
mod vit;
mod whisper;

pub use config::{Config, Refusal};
pub use sentence::Modules;

use std::collections::BTreeSet;
use template::Template;

/// A program made from a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Source of the program.
    pub text: String,
    /// Name of its model.
    pub model: String,
}

/// A family: its name in `model_type`, and the function that makes the program.
type Family = (&'static str, fn(&Config, &Names) -> Result<String, Refusal>);

/// Families outside of the tables of [`decoder`] and [`encoder`], in the order of messages.
const FAMILIES: [Family; 14] = [
    ("gemma3", decoder::beside_images),
    ("t5", t5::program),
    ("mt5", t5::program),
    ("bart", bart::program),
    ("marian", bart::program),
    ("mbart", bart::program),
    ("pegasus", bart::program),
    ("m2m_100", bart::program),
    ("vit", vit::program),
    ("deit", vit::program),
    ("dinov2", vit::program),
    ("clip", clip::program),
    ("siglip", clip::program),
    ("whisper", whisper::program),
];

/// Ways forward for families that are not supported.
const OTHER_WAYS: [(&str, &str); 6] = [
    (
        "modernbert",
        "its first layer lacks a norm that the others have, so its layers are no array; nomic_bert is alike",
    ),
    ("deberta", "its attention compares tokens with distances; deberta-v2 is alike"),
    ("mamba", "it has no attention; a Mamba is among the programs of `examples`"),
    ("gpt_oss", "its weights are in 4 bits of a form that attnc does not read"),
    (
        "deepseek_v2",
        "its attention keeps a latent vector for each token, which has no template yet; qwen2_moe is alike",
    ),
    (
        "deepseek_v3",
        "its attention keeps a latent vector for each token, which has no template yet; qwen3_moe is alike",
    ),
];

/// The values of `model_type` that can be imported.
pub fn families() -> impl Iterator<Item = &'static str> {
    decoder::families().chain(encoder::families()).chain(FAMILIES.iter().map(|(name, _)| *name))
}

/// The names of a checkpoint's tensors.
#[derive(Clone, Debug, Default)]
pub struct Names(BTreeSet<String>);

impl FromIterator<String> for Names {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Names {
        Names(names.into_iter().collect())
    }
}

impl Names {
    /// Does a tensor of this name exist?
    fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// The first of these prefixes for which a tensor `name` exists. A checkpoint of a whole model
    /// has `transformer.wte` where one of its base model has `wte`.
    fn prefix(&self, prefixes: &[&'static str], name: &str) -> Result<&'static str, Refusal> {
        let found = prefixes.iter().copied().find(|prefix| self.has(&format!("{prefix}{name}")));
        found.ok_or_else(|| {
            Refusal::checkpoint(format!("the checkpoint has no tensor `{}{name}`", prefixes.first().unwrap_or(&"")))
        })
    }
}

/// Makes the program of a configuration.
///
/// # Errors
/// An unsupported family or value, an unknown field, or a missing tensor.
pub fn import(config: &Config, names: &Names) -> Result<Imported, Refusal> {
    let family = config.text("model_type")?;
    let of_table = || FAMILIES.iter().find(|(name, _)| *name == family).map(|(_, make)| make(config, names));
    let Some(text) =
        decoder::program(&family, config, names).or_else(|| encoder::program(&family, config, names)).or_else(of_table)
    else {
        let known: Vec<&str> = families().collect();
        let help = OTHER_WAYS.iter().find(|(name, _)| *name == family).map_or(
            "the program of another model can be written by hand, from the layers of `attnc ref std.nn`",
            |(_, way)| way,
        );
        let refused = config.refuse("model_type", &format!("one of {}", known.join(", ")));
        return Err(Refusal { help: Some(help.to_owned()), ..refused });
    };
    let text = text?;
    config.all_known()?;
    let model = text.lines().find_map(|line| line.strip_prefix("model ")).unwrap_or_default();
    let model = model.split('<').next().unwrap_or_default().to_owned();
    Ok(Imported { text, model })
}

/// The name at the right of `common=name` in a list.
fn named(list: &'static str, common: &str) -> Option<&'static str> {
    list.split_whitespace().find_map(|pair| pair.strip_prefix(common)?.strip_prefix('='))
}

/// The language's name for an activation function of the hub.
fn activation(config: &Config, field: &str, default: &str) -> Result<&'static str, Refusal> {
    Ok(match config.text_or(field, default)?.as_str() {
        "gelu" => "gelu",
        "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => "gelu_tanh",
        "relu" => "relu",
        "silu" | "swish" => "silu",
        "tanh" => "tanh",
        _ => return Err(config.refuse(field, "gelu, gelu_new, gelu_pytorch_tanh, relu, silu or tanh")),
    })
}

/// An `f32` literal in the language.
fn number(value: f64) -> String {
    let text = format!("{value:?}");
    // `1e-5` and `10000.0` are both literals of the language.
    if text.contains(['.', 'e']) { text } else { format!("{text}.0") }
}
