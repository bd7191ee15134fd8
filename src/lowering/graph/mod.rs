//! From the typed AST to graph IR: layers and calls are inlined, dimensions bound; attention is
//! still a formula.
//!
//! In: a checked [`Program`], the model to compile, and values for dimensions. Out: a
//! [`Module`](crate::ir::Module) with the model's parameters and one function per entry point (and
//! a second one, `tapped`, where the program has taps). Contents:
//!
//! * `bind`: selects the model, binds its dimensions, checks its `where` clauses, collects its
//!   parameters;
//! * `builder`: a function under construction, with the limits on sizes and lengths;
//! * `layers`: the position of a layer in the model, and so the names of its parameters and taps;
//! * `trains`: which rule each parameter has; `training`: the steps of a `train`;
//! * `conditions`: whether a condition on dimensions holds;
//! * `entry`, `call`, `stmt`, `expr`, `movement`, `einsum`: one construct of the language each.
//!
//! It must not know syntax, target machines or passes; nothing is fused or simplified here.
//!
//! Dimensions that the arguments of a call bind stay symbolic. Conditions that depend on them
//! become entry checks ([`Function::checks`](crate::ir::Function::checks)).

mod bind;
mod builder;
mod call;
mod conditions;
mod counters;
mod einsum;
mod entry;
mod expr;
mod frame;
mod layers;
mod movement;
mod stmt;
mod training;
mod trains;

use std::collections::BTreeMap;

use crate::diagnostics::Diagnostics;
use crate::ir::Module;
use crate::source::SourceMap;
use crate::stack::with_large_stack;
use crate::types::typed::Program;

/// Options of lowering, from the command line.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The model to compile (`--entry`); may be omitted if there is only one.
    pub model: Option<String>,
    /// Values for dimensions (`--dim S=128`): generics of the model, or dimensions of its entry
    /// points.
    pub dims: BTreeMap<String, i64>,
}

/// Why lowering failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LowerError {
    /// The program or the command line is wrong; see the diagnostics.
    Reported,
    /// An internal compiler error.
    Bug(String),
}

type Res<T> = Result<T, LowerError>;

/// Lowers a model of a checked program.
///
/// # Errors
/// [`LowerError::Reported`] where the model cannot be compiled with these options; the reasons are
/// in `diagnostics`.
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
