//! From a program's text to graph IR, as the driver does it.
//!
//! A test program takes it in by `#[path = "../common/front.rs"] mod front;`.

#![allow(dead_code, reason = "each test program that takes this module in uses its own part of it")]

use attnc::diagnostics::{Diagnostics, render_all};
use attnc::ir::Module;
use attnc::lowering::graph::{self, LowerError, Options};
use attnc::passes::{self, Collected, find_pass, run_passes};
use attnc::source::SourceMap;
use attnc::{syntax, types};

/// The module of a program, or what is wrong with it as the user sees it.
pub(crate) fn module(name: &str, source: &str, options: &Options) -> Result<Module, String> {
    let mut sources = SourceMap::new();
    let mut diagnostics = Diagnostics::new();
    let file = sources.add(name, source);
    let tree = syntax::parse(file, source, &mut diagnostics);
    let program = types::check(&tree, &mut sources, &mut diagnostics);
    if diagnostics.has_errors() {
        return Err(render_all(&diagnostics, &sources, false));
    }
    match graph::lower(&program, &sources, options, &mut diagnostics) {
        Ok(module) if !diagnostics.has_errors() => Ok(module),
        Ok(_) | Err(LowerError::Reported) => Err(render_all(&diagnostics, &sources, false)),
        Err(LowerError::Bug(text)) => Err(format!("internal error: {text}\n")),
    }
}

/// The module with the values of its gradients, which only a pass computes: an interpreter can run it.
pub(crate) fn differentiated(mut module: Module) -> Module {
    let pass = find_pass("differentiate").unwrap_or_else(|e| panic!("{e}"));
    run_passes(&mut module, &[pass], &passes::Options::default(), &mut Collected::default())
        .unwrap_or_else(|e| panic!("{e}"));
    module
}

/// Options from `NAME=VALUE`.
pub(crate) fn options(dims: &[(&str, i64)]) -> Options {
    Options { model: None, dims: dims.iter().map(|(name, value)| ((*name).to_string(), *value)).collect() }
}
