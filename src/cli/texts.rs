//! The options of the commands that read and write texts: `generate`, `chat` and `embed`.

use super::options::{MessageOptions, PassOptions, ProgramOptions, TargetOptions};
use super::values::{CodeBackend, Stop, above_zero, at_least_zero, probability};
use clap::Args;
use std::path::PathBuf;

/// A program that is compiled in memory, with its weights.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Call")]
pub struct ModelOptions {
    /// The program, or IR text; `-` is stdin
    #[arg(help_heading = "Arguments")]
    pub file: PathBuf,
    /// The weights: a safetensors file, or the index of several (`model.safetensors.index.json`)
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// Use random weights, without `--weights`; the same seed gives the same weights
    #[arg(long, value_name = "SEED", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub random: Option<u64>,
    /// How text is converted to tokens: `bytes` (one token per byte), or a `tokenizer.json` of the
    /// Hugging Face hub
    #[arg(long, value_name = "FILE")]
    pub tokenizer: PathBuf,
    /// Code generator for the kernels
    #[arg(long, value_enum, default_value_t = CodeBackend::Cranelift)]
    pub backend: CodeBackend,
    /// Number of threads; one per processor if omitted
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    /// Bound dimensions, entry.
    #[command(flatten)]
    pub program: ProgramOptions,
    /// Target.
    #[command(flatten)]
    pub target: TargetOptions,
    /// Dumps and limits of passes.
    #[command(flatten)]
    pub passes: PassOptions,
    /// Messages.
    #[command(flatten)]
    pub messages: MessageOptions,
}

/// How a model writes.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Text")]
pub struct WriteOptions {
    /// How written tokens are converted to text, if the model writes in another vocabulary than it
    /// reads
    #[arg(long, value_name = "FILE")]
    pub output_tokenizer: Option<PathBuf>,
    /// Maximum number of tokens to write
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub max_tokens: u64,
    /// Stop before this text, or before the token of this number (`--stop text:7` is the text `7`);
    /// may be repeated
    ///
    /// The model also stops before the tokens `eos_token_id` of a `generation_config.json` beside
    /// the tokenizer.
    #[arg(long, value_name = "TEXT|ID", allow_hyphen_values = true)]
    pub stop: Vec<Stop>,
    /// 0: always the most probable token; below 1 the better tokens gain, above 1 the others
    /// [default: 1]
    #[arg(long, value_name = "T", value_parser = at_least_zero, help_heading = "Choice of tokens")]
    pub temperature: Option<f64>,
    /// Choose among the K best tokens [default: all]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=0x7fff_ffff), help_heading = "Choice of tokens")]
    pub top_k: Option<u32>,
    /// Choose among the fewest tokens whose probabilities together reach P [default: 1]
    #[arg(long, value_name = "P", value_parser = probability, help_heading = "Choice of tokens")]
    pub top_p: Option<f64>,
    /// Above 1, makes tokens that occurred before less probable [default: 1]
    #[arg(long, value_name = "R", value_parser = above_zero, help_heading = "Choice of tokens")]
    pub repetition_penalty: Option<f64>,
    /// The same seed gives the same text [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = "Choice of tokens")]
    pub seed: Option<i64>,
    /// The entry point that takes tokens and returns the next one
    #[arg(long, value_name = "NAME", default_value = "next", help_heading = "Call")]
    pub function: String,
}

/// `attnc generate model.attn --weights w.safetensors --tokenizer bytes --prompt "ROMEO:"`
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Text")]
pub struct GenerateOptions {
    /// The text to continue; `-` reads it from stdin
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: String,
    /// Write the prompt before the generated text
    #[arg(long)]
    pub echo: bool,
    /// How the model writes.
    #[command(flatten)]
    pub write: WriteOptions,
    /// The model.
    #[command(flatten)]
    pub model: ModelOptions,
}

/// `attnc chat model.attn --weights w.safetensors --tokenizer tokenizer.json`
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Conversation")]
pub struct ChatOptions {
    /// A message that the conversation begins with, and that says how to answer
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub system: Option<String>,
    /// The chat template, a file in Jinja; if omitted, `chat_template.jinja` or that of
    /// `tokenizer_config.json`, beside the tokenizer
    #[arg(long, value_name = "FILE")]
    pub template: Option<PathBuf>,
    /// How the model writes.
    #[command(flatten)]
    pub write: WriteOptions,
    /// The model.
    #[command(flatten)]
    pub model: ModelOptions,
}

/// `attnc embed model.attn --weights w.safetensors --tokenizer tokenizer.json --input texts.txt`
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Texts")]
pub struct EmbedOptions {
    /// The texts, one per line; `-` is stdin
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub input: PathBuf,
    /// Write the vectors as rows of a NumPy file, instead of a line of JSON each to stdout
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// Put this before each text, as some models require (`"query: "`)
    #[arg(long, value_name = "TEXT", default_value = "", allow_hyphen_values = true)]
    pub prompt: String,
    /// The entry point that takes the tokens of a text and returns its vector
    #[arg(long, value_name = "NAME", default_value = "embed", help_heading = "Call")]
    pub function: String,
    /// The model.
    #[command(flatten)]
    pub model: ModelOptions,
}
