//! Names of things inside a body: small numbers that print as themselves. Places in a source, which instructions carry.

use cranelift_entity::entity_impl;

/// An SSA value, `%3`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(u32);
entity_impl!(Value, "%");

/// An instruction. Instructions have no name in the text form; their results do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inst(u32);
entity_impl!(Inst, "inst");

/// A basic block, `^bb1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block(u32);
entity_impl!(Block, "^bb");

/// A place in the source: file (0 is the module's own, others index the module's list of files from 1), line and column
/// from 1. Line 0 means that there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Loc {
    /// Number of the file.
    pub file: u32,
    /// Line, from 1; 0 where there is no place.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl Loc {
    /// The name of the place's file; `own` is the module's, `files` are the others.
    pub fn file_name<'a>(self, own: &'a str, files: &'a [String]) -> &'a str {
        match usize::try_from(self.file).ok().and_then(|n| n.checked_sub(1)) {
            None => own,
            Some(n) => files.get(n).map_or("?", String::as_str),
        }
    }

    /// `gpt2.attn:22:26`, or the file's name alone where there is no place.
    pub fn text(self, own: &str, files: &[String]) -> String {
        let file = self.file_name(own, files);
        if self.line == 0 { file.to_string() } else { format!("{file}:{}:{}", self.line, self.column) }
    }
}
