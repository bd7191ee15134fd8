//! From the typed AST to the graph IR: layers and calls inlined, dimensions bound, attention still a formula.
//!
//! What comes in: a checked [`Program`], the model that is compiled, and values for dimensions. What goes out: a
//! [`Module`](crate::ir::Module) with the model's parameters and one function for each entry point (and a second one,
//! `tapped`, where the program has taps). What lives here:
//!
//! * `bind`: which model, what its dimensions are, whether the `where` clauses hold with them, which parameters it has;
//! * `builder`: one function under construction, with the limits on sizes and lengths;
//! * `layers`: where in the model a layer stands, and so what its parameters and taps are called;
//! * `entry`, `call`, `stmt`, `expr`, `movement`, `einsum`: one construct of the language each.
//!
//! What it must not know: syntax, machines, and what passes will do; nothing is fused or simplified here.
//!
//! Dimensions that stay symbolic are those that the arguments of a call bind. What cannot be decided without them
//! becomes a check on entry ([`Function::checks`](crate::ir::Function::checks)).

mod bind;
mod builder;
mod call;
mod einsum;
mod entry;
mod expr;
mod frame;
mod layers;
mod movement;
mod stmt;

use std::collections::BTreeMap;

use crate::diagnostics::Diagnostics;
use crate::ir::Module;
use crate::source::SourceMap;
use crate::stack::with_large_stack;
use crate::types::typed::Program;

/// What the command line says about the model.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The model that is compiled (`--entry`); the only one where none is named.
    pub model: Option<String>,
    /// Values for dimensions (`--dim S=128`): generics of the model, or dimensions of its entry points.
    pub dims: BTreeMap<String, i64>,
}

/// Why there is no module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LowerError {
    /// The program or the command line is wrong; the diagnostics say how.
    Reported,
    /// A mistake of the compiler, in words.
    Bug(String),
}

type Res<T> = Result<T, LowerError>;

/// Lowers a model of a checked program.
///
/// # Errors
/// [`LowerError::Reported`] where the model cannot be compiled with these options; the reasons are in `diagnostics`.
pub fn lower(
    program: &Program,
    sources: &SourceMap,
    options: &Options,
    diagnostics: &mut Diagnostics,
) -> Result<Module, LowerError> {
    // Calls are inlined by recursion.
    with_large_stack(|| {
        let bound = bind::bind(program, options, diagnostics)?;
        entry::module(program, sources, &bound, diagnostics)
    })
}
