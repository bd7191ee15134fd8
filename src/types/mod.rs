//! Names resolved, generics over dimensions bound, shapes inferred: from the AST to the typed AST.

pub mod axes;
mod dims;
mod matching;
pub mod pattern;
pub mod typed;
