//! Shared by `attnc run`, its sequences of calls, and `attnc bench`: entry points by name,
//! parameters, notes about weights.
//!
//! In: a module after the passes, a weights file. Out: parameters for an interpreter, values by
//! name. Nothing is called here.

use super::arguments;
use super::session::{CommandError, Session, message};
use crate::diagnostics::codes::weights;
use crate::diagnostics::{Diagnostic, Severity};
use crate::interface::ArgDecl;
use crate::runtime::descriptor::ModelDescriptor;
use crate::runtime::load::CompiledModel;
use crate::runtime::weights::WeightsFile;
use crate::tensor::Tensor;
use std::collections::BTreeMap;
use std::path::Path;

/// Results and taps, by name.
pub(super) type Values = Vec<(String, Tensor)>;

/// The call to make.
pub(super) struct Call<'a> {
    pub(super) name: &'a str,
    pub(super) args: &'a [Tensor],
    pub(super) taps: &'a [String],
    pub(super) weights: Option<&'a Path>,
    pub(super) remarks: bool,
}

/// The entry point of this name, or the only one; otherwise an error message.
pub(super) fn function<'m>(
    entries: Vec<(&'m str, &'m [ArgDecl])>,
    name: Option<&str>,
) -> Result<(&'m str, &'m [ArgDecl]), String> {
    let names = || entries.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match (name, entries.as_slice()) {
        (None, [one]) => Ok(*one),
        (None, _) => Err(format!("the model has several entry points; choose one with `--function`: {}", names())),
        (Some(name), _) => match entries.iter().find(|(known, _)| *known == name) {
            Some(found) => Ok(*found),
            None => Err(format!("there is no entry point `{name}`; the entry points are {}", names())),
        },
    }
}

/// The parameters in a weights file.
pub(super) fn parameters(
    s: &mut Session,
    model: &ModelDescriptor,
    path: Option<&Path>,
) -> Result<BTreeMap<String, Tensor>, CommandError> {
    s.stage("read weights");
    let Some(path) = path else { return Ok(BTreeMap::new()) };
    let read = WeightsFile::open(path).and_then(|file| Ok((file.names(), file.read(&model.params)?)));
    let (names, read) = read.map_err(|message| s.fail(arguments::wrong_weights(message)))?;
    converted(&read.converted);
    let params: BTreeMap<String, Tensor> = read.tensors.into_iter().collect();
    let is_state = |name: &String| model.states.iter().any(|state| state.name == *name);
    unused(s, names.into_iter().filter(|name| !params.contains_key(name) && !is_state(name)).collect());
    Ok(params)
}

/// Reports weights that a loaded model does not use, and weights that were converted.
pub(super) fn told(s: &mut Session, model: &CompiledModel) {
    unused(s, model.unused_weights());
    converted(&model.converted_weights());
}

/// The error of a call that failed.
pub(super) fn call_failed(s: &mut Session, message: &str) -> CommandError {
    s.diagnostics.push(Diagnostic::error(weights::CALL, message));
    CommandError::Program
}

/// The first name, and the number of others.
fn first_of(names: &[String]) -> Option<String> {
    let (first, others) = names.split_first()?;
    Some(if others.is_empty() { format!("`{first}`") } else { format!("`{first}` and {} more", others.len()) })
}

/// Warns about tensors in the weights file that the program does not use.
pub(super) fn unused(s: &mut Session, names: Vec<String>) {
    let Some(some) = first_of(&names) else { return };
    let message = format!("the weights file has unused tensors: {some}");
    s.diagnostics.push(Diagnostic::warning(weights::UNUSED, message));
}

/// Notes which tensors were converted to `f32`.
pub(super) fn converted(names: &[String]) {
    let Some(some) = first_of(names) else { return };
    let text = format!("weights were converted from the bf16 or f16 of the file to the f32 of the program: {some}");
    let note = "this is exact but takes memory; parameters declared with the type in the file are mapped instead";
    message(Severity::Note, &text, &[note.to_string()]);
}

/// Results by name: `result`, or `result.0`, `result.1`; then the taps.
pub(super) fn named(results: Vec<Tensor>, taps: Values) -> Values {
    let one = results.len() == 1;
    let name = |i: usize| if one { "result".to_string() } else { format!("result.{i}") };
    let results = results.into_iter().enumerate().map(|(i, tensor)| (name(i), tensor));
    results.chain(taps).collect()
}
