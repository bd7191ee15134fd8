//! The declarations that the names in a program refer to, for editors.
//!
//! In: each name that a stage resolves, with its declaration. Out: a list, in order of resolution;
//! a name that is resolved several times occurs several times. It is kept beside the messages, as
//! name resolution already has those at hand everywhere. Parts of the program with syntax errors,
//! and names of the language, do not occur.

use super::Diagnostics;
use crate::source::Span;

/// The kind of a declaration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NameKind {
    /// An argument of a function.
    Parameter,
    /// A variable, or the layer of an iteration.
    Variable,
    /// A dimension, a generic constant or a generic element type.
    Generic,
    /// A parameter, state or sub-layer of a layer.
    Field,
    /// A function of a file or a layer. A call of a layer refers to its `forward`.
    Function,
    /// A layer or a model.
    Layer,
}

/// A name, or an expression that is called, and its declaration. A declaration refers to itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Use {
    /// The location of the name.
    pub at: Span,
    /// The location of the name in its declaration.
    pub declared: Span,
    /// The kind of the declaration.
    pub kind: NameKind,
}

impl Diagnostics {
    /// Records that the name at a location was declared at another.
    pub fn refer(&mut self, at: Span, declared: Span, kind: NameKind) {
        self.uses.push(Use { at, declared, kind });
    }

    /// The names that were resolved.
    pub fn uses(&self) -> &[Use] {
        &self.uses
    }

    /// Keeps the names that were resolved in an attempt whose messages are dropped.
    pub fn append_uses(&mut self, attempt: Diagnostics) {
        self.uses.extend(attempt.uses);
    }
}
