//! A model that was just compiled, opened in this process.
//!
//! In: scheduled modules, the model's description, its weights. Out: a [`CompiledModel`] to call. The library lies in a temporary
//! folder that is gone when the model is open.

use super::arguments;
use super::session::{CommandError, Session};
use super::stages::{self, Tiers};
use crate::codegen::{Generator, cpu::EmitOptions};
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::weights as codes;
use crate::runtime::descriptor::ModelDescriptor;
use crate::runtime::load::CompiledModel;
use std::path::Path;

/// How a model is compiled and opened.
pub(super) struct How {
    /// What makes the kernels.
    pub(super) generator: Generator,
    /// Are remarks of code generation shown?
    pub(super) remarks: bool,
    /// Threads; one for each core if absent.
    pub(super) threads: Option<u32>,
}

/// Generates code, links it and opens the model with its weights.
pub(super) fn opened(
    s: &mut Session,
    tiers: &Tiers,
    model: &ModelDescriptor,
    how: &How,
    weights: Option<&Path>,
) -> Result<CompiledModel, CommandError> {
    s.stage("generate code");
    let wanted = EmitOptions { remarks: how.remarks, ..EmitOptions::default() };
    let code = stages::machine_code(s, how.generator, tiers, model, wanted)?;
    s.stage("link");
    let folder = stages::temporary(s)?;
    let so = folder.path().join("model.so");
    stages::link(s, &code, &so)?;

    s.stage("load");
    let threads = how.threads.map_or(0, |n| i32::try_from(n).unwrap_or(i32::MAX));
    // SAFETY: the file was just linked from code of our own.
    unsafe { CompiledModel::open(&so, weights, threads) }.map_err(|error| {
        s.fail(match () {
            () if error.is_about_device() => Diagnostic::error(codes::DEVICE, error.text),
            () if error.is_about_weights() => arguments::wrong_weights(error.text),
            () => Diagnostic::error(codes::OPEN, error.text),
        })
    })
}
