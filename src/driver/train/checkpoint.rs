//! Checkpoints of `attnc train`: safetensors files that are also weights files.
//!
//! Parameters have the names of a weights file, one tensor for each layer of an array; all other
//! states of the session have the names of its states, stacked along the arrays. The metadata says
//! which step it was, and what the windows of the next ones depend on.

use super::super::arguments::{self, wrong_weights};
use super::super::session::{CommandError, Session, command_line_error};
use crate::cli::TrainOptions;
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::weights as codes;
use crate::runtime::descriptor::Param;
use crate::runtime::load::{CompiledModel, LoadError, Session as Calls};
use crate::runtime::weights::{self, WeightsFile, members};
use crate::tensor::Tensor;
use std::path::{Path, PathBuf};

/// Parameters and states by name.
pub(super) type Tensors = Vec<(String, Tensor)>;

/// The beginning of a run.
pub(super) struct Start {
    /// The weights or checkpoint; random weights if absent.
    pub(super) weights: Option<PathBuf>,
    /// That of the checkpoint.
    pub(super) progress: Option<Progress>,
}

/// All that the steps after a checkpoint depend on, besides its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// Steps made.
    pub(super) step: u64,
    pub(super) seed: i64,
    pub(super) batch: usize,
    pub(super) length: usize,
    /// Tokens of the data.
    pub(super) tokens: usize,
}

/// Finds the weights, and the progress of a checkpoint.
pub(super) fn start(s: &mut Session, options: &TrainOptions) -> Result<Start, CommandError> {
    if let Some(path) = &options.weights {
        arguments::weights(s, path)?;
    }
    let Some(path) = &options.resume else { return Ok(Start { weights: options.weights.clone(), progress: None }) };
    // The output may replace it: the file that is open stays as it is.
    let file = WeightsFile::open(path).map_err(|message| s.fail(wrong_weights(message)))?;
    let metadata = file.metadata();
    let number = |name: &str| metadata.get(&format!("attnc.{name}"))?.parse::<u64>().ok();
    let size = |name: &str| number(name).and_then(|n| usize::try_from(n).ok());
    let seed = metadata.get("attnc.seed").and_then(|seed| seed.parse::<i64>().ok());
    let found = number("step").zip(seed).zip(size("batch")).zip(size("length")).zip(size("tokens"));
    let Some(((((step, seed), batch), length), tokens)) =
        found.filter(|(((_, batch), length), _)| *batch > 0 && *length > 0)
    else {
        let message =
            format!("`{}` is not a checkpoint: its metadata does not have `attnc.step` and the like", path.display());
        return Err(command_line_error(&format!("{message}; weights are given with `--weights`")));
    };
    Ok(Start { weights: Some(path.clone()), progress: Some(Progress { step, seed, batch, length, tokens }) })
}

/// Is it a parameter that is trained, whose state begins as in the weights file?
fn is_parameter(name: &str, params: &[Param]) -> bool {
    params.iter().any(|p| p.pattern == name)
}

/// Sets the states of a session that are not parameters.
pub(super) fn restore(
    s: &mut Session,
    calls: &mut Calls<'_>,
    loaded: &CompiledModel,
    file: &WeightsFile,
    params: &[Param],
) -> Result<(), CommandError> {
    for state in loaded.states().into_iter().filter(|state| !is_parameter(&state.name, params)) {
        let set = match file.tensor(&state.name) {
            Some(tensor) => calls.set_state(&state.name, &tensor).map_err(|error| error.text),
            None => Err(format!("the checkpoint has no state `{}`", state.name)),
        };
        if let Err(message) = set {
            let help =
                "the program has other states than the one that wrote it; `--weights` takes the parameters alone";
            return Err(s.fail(Diagnostic::error(codes::CHECKPOINT, message).help(help)));
        }
    }
    Ok(())
}

/// All parameters and states, by name.
pub(super) fn tensors(
    calls: &Calls<'_>,
    loaded: &CompiledModel,
    file: &WeightsFile,
    params: &[Param],
) -> Result<Tensors, LoadError> {
    let states = loaded.states();
    let wrong = |name: &str| LoadError { status: -1, text: format!("`{name}` does not match its type") };
    let mut all = Vec::new();
    for param in params {
        let names = members(&param.pattern, &param.extents);
        if !states.iter().any(|state| state.name == param.pattern) {
            let own = Param {
                pattern: param.pattern.clone(),
                extents: param.extents.clone(),
                elem: param.elem,
                dims: param.dims.clone(),
            };
            let read = file.read(&[own]).map_err(|text| LoadError { status: -1, text })?;
            all.extend(read.tensors);
            continue;
        }
        let whole = calls.state(&param.pattern)?;
        let shape = whole.shape().get(param.extents.len()..).unwrap_or_default().to_vec();
        let size = whole.bytes().len() / names.len().max(1);
        for (i, name) in names.into_iter().enumerate() {
            let bytes = whole.bytes().get(i * size..(i + 1) * size).unwrap_or_default().to_vec();
            let made = Tensor::new(whole.elem(), shape.clone(), bytes).ok_or_else(|| wrong(&name))?;
            all.push((name, made));
        }
    }
    for state in states.iter().filter(|state| !is_parameter(&state.name, params)) {
        all.push((state.name.clone(), calls.state(&state.name)?));
    }
    Ok(all)
}

/// The first tensor with an element that is not a number.
pub(super) fn not_a_number(tensors: &[(String, Tensor)]) -> Option<&str> {
    let is_lost = |t: &Tensor| t.elem().is_float() && t.to_f64().iter().any(|x| x.is_nan());
    tensors.iter().find(|(_, t)| is_lost(t)).map(|(name, _)| name.as_str())
}

/// Writes a checkpoint; a reader sees the old file or the new one.
pub(super) fn write(
    s: &mut Session,
    path: &Path,
    progress: &Progress,
    tensors: &[(String, Tensor)],
) -> Result<(), CommandError> {
    let Progress { step, seed, batch, length, tokens } = progress;
    let metadata = [
        ("attnc.batch", batch.to_string()),
        ("attnc.length", length.to_string()),
        ("attnc.seed", seed.to_string()),
        ("attnc.step", step.to_string()),
        ("attnc.tokens", tokens.to_string()),
        ("format", "pt".to_string()),
    ];
    write_file(s, path, &metadata, tensors)
}

/// Writes a safetensors file.
pub(super) fn write_file(
    s: &mut Session,
    path: &Path,
    metadata: &[(&str, String)],
    tensors: &[(String, Tensor)],
) -> Result<(), CommandError> {
    let described = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.elem(), tensor.shape()));
    let header = weights::header_for(metadata, described);
    s.write_whole(path, &|out| {
        out.write_all(&header)?;
        tensors.iter().try_for_each(|(_, tensor)| out.write_all(tensor.bytes()))
    })
}
