//! From text to syntax tree: tokens (logos), grammar (LALRPOP, `grammar/attn.lalrpop`), tree.
//!
//! In: a source text. Out: an [`ast::File`] and the diagnostics of all syntax errors. Nothing here
//! knows names, types or shapes.

pub mod ast;
mod comments;
pub mod dump;
pub mod find;
mod habits;
pub mod layout;
pub mod lexer;
mod mistakes;
mod parser;
pub mod token;
pub mod tree;
mod words;

pub use parser::{parse, parse_tokens, tokens};
