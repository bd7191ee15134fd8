//! Lists in brackets as layouts.
//!
//! In: the number of entries, and a function that lays out the next one. Out: the parts of a
//! [`Doc`]. It knows no trees.

use super::doc::Doc;
use super::tokens::{Cursor, Docs};
use crate::syntax::token::Token;

/// A list in brackets: its opening bracket is the next token.
pub(super) struct List {
    count: usize,
    /// The comma after the only entry makes it a tuple.
    keeps_comma: bool,
}

impl List {
    pub(super) fn new(count: usize) -> List {
        List { count, keeps_comma: false }
    }

    /// A tuple, which keeps the comma after its only part.
    pub(super) fn tuple(count: usize) -> List {
        List { count, keeps_comma: count == 1 }
    }

    /// Writes the list; `entry` is called for each of the entries.
    pub(super) fn write<'a>(
        self,
        c: &mut Cursor<'a>,
        out: &mut Docs<'a>,
        mut entry: impl FnMut(&mut Cursor<'a>, &mut Docs<'a>),
    ) {
        c.comments(out);
        let mut group = Docs::new();
        c.token(&mut group);
        let mut inside = Docs::new();
        for i in 0..self.count {
            inside.push(if i == 0 { Doc::Soft } else { Doc::Line });
            c.comments(&mut inside);
            entry(c, &mut inside);
            let is_last = i + 1 == self.count;
            inside.push(if is_last && !self.keeps_comma { Doc::IfBroken(",") } else { Doc::Text(",") });
            c.skip(Token::Comma, &mut inside);
        }
        c.comments(&mut inside);
        group.push(Doc::Indent(inside));
        group.push(Doc::Soft);
        c.token(&mut group);
        out.push(Doc::Group(group));
    }
}
