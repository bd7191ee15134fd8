//! The options of `attnc train`.

use super::options::{MessageOptions, PassOptions, ProgramOptions, TargetOptions};
use super::values::{CodeBackend, at_least_zero};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// How the bytes of a data set are its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TokenFormat {
    /// Each byte is a token
    Bytes,
    /// 16-bit unsigned integers, little-endian
    U16,
    /// 32-bit unsigned integers, little-endian
    U32,
}

/// The data of a held-out loss.
#[derive(Clone, Debug, PartialEq)]
pub enum HeldOut {
    /// The last part of the data, which is then not trained on.
    Fraction(f64),
    /// Another file.
    File(PathBuf),
}

/// Parses `--held-out`.
fn held_out(text: &str) -> Result<HeldOut, String> {
    match text.parse::<f64>() {
        Ok(part) if part > 0.0 && part < 1.0 => Ok(HeldOut::Fraction(part)),
        Ok(_) => Err("a fraction is between 0 and 1".to_string()),
        Err(_) => Ok(HeldOut::File(PathBuf::from(text))),
    }
}

/// `attnc train model.attn --data text.txt -o weights.safetensors`
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Training")]
#[command(
    after_help = "The entry point contains a `train`. It takes the tokens of B windows, i32[B, S], and for each the token after \
    it, i32[B, S]; its first result is the loss, f32[]. It may also take scalars: `step`, the number of the step from 1, `seed`, and \
    `rate`.\n\n\
    Without `--weights`, matrices and tensors of more axes are drawn from a normal distribution with the variance 2 / (m + n), where \
    m and n are the last two extents (Glorot and Bengio, 2010); other floats are 0 if the name is `bias` or `b`, or ends so after a \
    `.` or `_`, and else 1. The same seed gives the same values.\n\n\
    Ctrl-C finishes the step, writes the checkpoint, and exits with code 130; a second one ends at once."
)]
pub struct TrainOptions {
    /// The program, or IR text; `-` is stdin
    #[arg(help_heading = "Arguments")]
    pub file: PathBuf,
    /// The data set: a text or binary file, or a NumPy array of integers (`.npy`)
    #[arg(long, value_name = "FILE", help_heading = "Data")]
    pub data: PathBuf,
    /// How the bytes of the data are tokens [default: bytes, or the type of the `.npy` file]
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with = "tokenizer", help_heading = "Data")]
    pub tokens: Option<TokenFormat>,
    /// The data is a text: read it with this `tokenizer.json` of the Hugging Face hub
    #[arg(long, value_name = "FILE", help_heading = "Data")]
    pub tokenizer: Option<PathBuf>,
    /// Windows of a step [default: that of the checkpoint or the program, else 8]
    #[arg(long, value_name = "B", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Data")]
    pub batch: Option<u32>,
    /// Tokens of a window [default: that of the checkpoint or the program, else the most that its
    /// `where` clauses allow]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Data")]
    pub length: Option<u32>,
    /// Compute the loss of data that is not trained on: the last part (`0.1`), or a file
    #[arg(long, value_name = "FRACTION|FILE", value_parser = held_out, help_heading = "Data")]
    pub held_out: Option<HeldOut>,
    /// Number of the last step; a run that is resumed counts on from its checkpoint
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: u64,
    /// Determines the first weights, the windows of each step, and the argument `seed` [default:
    /// that of the checkpoint, else 0]
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub seed: Option<i64>,
    /// The argument `rate`, usually a factor of the learning rate [default: 1]
    #[arg(long, value_name = "R", value_parser = at_least_zero)]
    pub rate: Option<f64>,
    /// The weights to begin with, a safetensors file or the index of several
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub weights: Option<PathBuf>,
    /// Continue from a checkpoint, with the steps that would have followed
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// The entry point that trains, if there are several
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// The entry point that computes the held-out loss [default: the first that takes the tokens,
    /// has one result, f32[], and changes no state]
    #[arg(long, value_name = "NAME")]
    pub loss: Option<String>,
    /// Code generator for the kernels
    #[arg(long, value_enum, default_value_t = CodeBackend::Cranelift)]
    pub backend: CodeBackend,
    /// Number of threads; one per processor if omitted. The result does not depend on it
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    /// The weights, with all that is needed to resume: a safetensors file
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: PathBuf,
    /// Steps between checkpoints, held-out losses and lines of progress [default: a tenth of all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Output")]
    pub every: Option<u64>,
    /// Write a JSON object for each step: `step`, `loss`, other scalar results, `held_out`,
    /// `seconds`
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub log: Option<PathBuf>,
    /// Draw the losses over the steps
    #[arg(long, value_name = "FILE.svg", help_heading = "Output")]
    pub plot: Option<PathBuf>,
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
