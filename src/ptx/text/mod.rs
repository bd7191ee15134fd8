//! The text of a module: [`print()`] writes it, [`parse`] reads it back, and what is read prints the same again.

mod lexer;
mod parse;
mod print;

use std::fmt;

pub(crate) use lexer::is_identifier;
pub use parse::parse;
pub use print::{Printed, inst as print_inst, print, printed};

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}
