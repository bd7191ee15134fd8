//! The formatter: one layout for each program, without options.
//!
//! In: the text of a program. Out: the same program in the style of the examples, or its syntax
//! errors. It must not know types.
//!
//! ```text
//! layer Mlp<D,F>{                         layer Mlp<D, F> {
//!   up: Linear<D, F>; // wide                 up:   Linear<D, F>  // wide
//!   down: Linear<F,D>               ->        down: Linear<F, D>
//!   fn forward(x:f32[..,D])->f32[..,D]{
//!     down(gelu(up(x))) }                     fn forward(x: f32[.., D]) -> f32[.., D] {
//! }                                               down(gelu(up(x)))
//!                                             }
//!                                         }
//! ```
//!
//! The tree says how tokens belong together; the tokens themselves are copied from the text, one
//! after another, with the comments between them. So literals keep their spelling, and no comment
//! is lost. The author decides where blank lines are (one of several is kept), and whether
//! a block of one statement is on one line. It adds and removes only commas at the ends of lists,
//! and replaces `;` by newlines.
//!
//! Newlines have a meaning in the language, so the result is parsed again, and must have the same
//! tokens and comments as the text.

mod doc;
mod exprs;
mod items;
mod lists;
mod spacing;
mod tokens;

use crate::diagnostics::codes::syntax as codes;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::source::{FileId, SourceMap, Span};
use crate::syntax::token::Lexeme;
use crate::syntax::{self, ast, dump};
use tokens::{Cursor, Docs};

/// The text in the style of the examples; `None` if it has syntax errors, which are in
/// `diagnostics`.
pub fn format(file: FileId, text: &str, diagnostics: &mut Diagnostics) -> Option<String> {
    let (tree, tokens) = parse(file, text, diagnostics)?;
    let mut cursor = Cursor::new(text, &tokens);
    let mut parts = Docs::new();
    items::file(&mut cursor, &tree, &mut parts);
    let out = doc::print(&parts);
    let again = parse(file, &out, &mut Diagnostics::new());
    let before = meaning(&tree, text, &tokens);
    if again.is_none_or(|(tree, tokens)| meaning(&tree, &out, &tokens) != before) {
        let start = Span::new(file, 0, 0);
        let message = "this program cannot be formatted without changing it";
        diagnostics.push(Diagnostic::error(codes::UNEXPECTED, message).at(start, "").note("this is a bug in attnc"));
        return None;
    }
    Some(out)
}

/// The tree of a text and its tokens; `None` if it has errors, which are in `diagnostics`.
fn parse<'a>(file: FileId, text: &'a str, diagnostics: &mut Diagnostics) -> Option<(ast::File, Vec<Lexeme<'a>>)> {
    let mut found = Diagnostics::new();
    let tokens = syntax::tokens(file, text, &mut found);
    let tree = syntax::parse_tokens(file, text, &tokens, &mut found);
    let is_sound = !found.has_errors();
    if !is_sound {
        diagnostics.append(found);
    }
    is_sound.then_some((tree, tokens))
}

/// The parts of a program that formatting keeps: the tree, without places, and the comments.
fn meaning(tree: &ast::File, text: &str, tokens: &[Lexeme<'_>]) -> (Vec<String>, Vec<String>) {
    let mut sources = SourceMap::new();
    let file = sources.add(String::new(), text.to_string());
    let dump = sources.get(file).map_or(String::new(), |source| dump::ast(tree, source));
    let lines = dump.lines().map(|line| line.split_once(' ').map_or("", |(_, rest)| rest).trim_start().to_string());
    (lines.collect(), Cursor::new(text, tokens).all_comments())
}
