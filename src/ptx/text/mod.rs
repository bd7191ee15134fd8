//! PTX text: [`print()`] and [`parse`] are inverse.

mod lexer;
mod parse;
mod print;

use std::fmt;

pub(crate) use lexer::is_identifier;
pub use parse::parse;
pub use print::{Printed, inst as print_inst, print, printed};

/// A syntax error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The message, without the position.
    pub message: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}
