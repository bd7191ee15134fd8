//! The pipeline: which passes run at which level, and in which order; read it from top to bottom.
//! It is repeated until nothing changes, so its output is a fixed point: a dump of the IR compiles
//! to the same code as its source.

use super::manager::{Manager, PassError, Step, run_passes};
use super::options::{Level, Options};
use super::registry::{self, Pass};
use super::remarks::Remark;
use crate::diagnostics::Diagnostics;
use crate::ir::{self, Module, text};
use crate::observe::Sink;
use crate::source::FileId;

/// Runs the pipeline of `options.level` over a module.
///
/// # Errors
/// The verifier's errors after a pass.
pub fn optimise(module: &mut Module, options: &Options, sink: &mut dyn Sink) -> Result<Vec<Remark>, PassError> {
    optimise_observed(module, options, sink, &mut |_| {})
}

/// The same; calls `each` after each run of a pass.
///
/// # Errors
/// As [`optimise`].
pub fn optimise_observed(
    module: &mut Module,
    options: &Options,
    sink: &mut dyn Sink,
    each: &mut dyn FnMut(&Step<'_>),
) -> Result<Vec<Remark>, PassError> {
    let mut manager = Manager::new(module, options, sink, each);
    run(&mut manager)?;
    Ok(manager.finish())
}

/// Runs the passes of the manager's optimisation level.
fn run(m: &mut Manager<'_>) -> Result<(), PassError> {
    // Gradients become operations first, while each value is the one that the program names.
    if m.has_gradients() {
        m.run(&registry::DIFFERENTIATE)?;
    }
    // -O0: the program as written.
    if m.options.level == Level::O0 {
        return Ok(());
    }
    m.until_done(steps)
}

fn steps(m: &mut Manager<'_>) -> Result<(), PassError> {
    let level = m.options.level;

    // Removes redundancy that an author writes for clarity: identities, constants, redundant
    // operations, invariant computations in loops. Each pass exposes more work for the others.
    m.until_done(|m| {
        m.run(&registry::FOLD_CONSTANTS)?;
        m.run(&registry::SIMPLIFY)?;
        m.run(&registry::SIMPLIFY_CFG)?;
        m.run(&registry::CSE)?;
        m.run(&registry::LICM)?;
        m.run(&registry::DCE)
    })?;

    // Taps do not prevent fusion: tapped values inside a kernel are recomputed outside of it.
    m.run(&registry::SEPARATE_TAPS)?;

    if level >= Level::O2 {
        // Gradients of attention first: they take copies of the scores, which leave the forward
        // pass one use of its own.
        m.run(&registry::FUSE_CHAIN)?;
        // Attention: its parts are canonicalised, each pass relying on the ones before it; then
        // they are fused.
        m.run(&registry::CANONICALISE_ROW)?;
        m.run(&registry::CANONICALISE_HEADS)?;
        m.run(&registry::CANONICALISE_TRANSPOSE)?;
        m.run(&registry::CANONICALISE_SOFTMAX)?;
        m.run(&registry::CANONICALISE_MASK)?;
        m.run(&registry::CANONICALISE_CAST)?;
        m.run(&registry::CANONICALISE_SCALE)?;
        m.run(&registry::FUSE_ATTENTION)?;
        m.run(&registry::CSE)?;
        m.run(&registry::DCE)?;
    }

    // The remaining operations become regions, one kernel each: the largest kinds first, each pass
    // taking what the earlier ones left.
    m.run(&registry::CANONICALISE_REDUCE)?;
    m.run(&registry::CANONICALISE_ROW)?;
    m.run(&registry::HOIST_PRODUCTS)?;
    m.run(&registry::MERGE_MATMULS)?;
    m.run(&registry::GATHER_DIAGONALS)?;
    m.run(&registry::FUSE_MASK)?;
    m.run(&registry::FUSE_EPILOGUE)?;
    m.run(&registry::FUSE_ROWS)?;
    m.run(&registry::FUSE_MAP)?;
    Ok(())
}

/// An error of `attnc opt`.
#[derive(Clone, Debug)]
pub enum OptError {
    /// The text is not a valid module.
    Text(Diagnostics),
    /// A pass left an invalid module: a bug in attnc.
    Pass(Box<PassError>),
}

/// `attnc opt`: parses textual graph IR, runs passes on it (the pipeline if `passes` is `None`),
/// and prints it. Source locations in diagnostics refer to `file`.
///
/// # Errors
/// Errors in the text, or the verifier's errors after a pass.
pub fn optimise_text(
    text: &str,
    file: FileId,
    passes: Option<&[Pass]>,
    options: &Options,
    sink: &mut dyn Sink,
) -> Result<(String, Vec<Remark>), OptError> {
    let mut parsed = text::parse(text, file).map_err(OptError::Text)?;
    ir::verify(&parsed.module).map_err(|e| OptError::Text(e.diagnostics(&parsed.places)))?;
    let remarks = match passes {
        Some(passes) => run_passes(&mut parsed.module, passes, options, sink),
        None => optimise(&mut parsed.module, options, sink),
    };
    let remarks = remarks.map_err(|e| OptError::Pass(Box::new(e)))?;
    Ok((text::print(&parsed.module), remarks))
}
