//! The language reference: a description of each function, operator, statement and kind of fact. `attnc ref`, the explanations of
//! error codes and `docs/language.md` are made from it.
//!
//! In: `language.txt`, entries by section, the texts of the standard library, and the checker's table of names of other libraries. Out: entries by name ([`find`]), as text for a
//! terminal ([`Entry::text`]), and all of them as one document ([`document`]). `tests/language/reference.rs` compiles every program in it, and
//! compares the entries with the compiler's own tables: of calls, keywords, relations, codes.
//!
//! ```text
//! # Section                     and its introduction
//! ## name, other name           an entry, and the names under which it is found
//! form: softmax(x, axis = -1)   how it is written; the default of each argument that may be omitted
//! takes: floats                 element types of the first argument ([`ElementTypes`])
//! gives: the same type
//! formula: ..
//! codes: E0304                  the codes whose rule it states
//! see: other, entries
//!
//! Text.
//!
//!     fn f(..)                  a program that compiles
//!
//! fails E0304:
//!     fn f(..)                  a program that gives this code
//! ```

mod foreign;
mod library;
mod read;
mod show;

use crate::shape::Elem;
use std::sync::LazyLock;

pub use show::document;

/// The text of the entries.
const LANGUAGE: &str = include_str!("language.txt");

/// A part of the reference.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Its title.
    pub title: String,
    /// What its entries have in common; may be empty.
    pub introduction: String,
    /// Its entries, in order.
    pub entries: Vec<Entry>,
}

/// What is known of a function, an operator, a statement, a kind of fact, or an item of the standard library.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// The names under which it is found; the first is its title.
    pub names: Vec<String>,
    /// How it is written.
    pub forms: Vec<String>,
    /// Which element types its first argument may have, in a word.
    pub takes: Option<String>,
    /// Further facts: a label, and the fact.
    pub facts: Vec<(&'static str, String)>,
    /// Codes whose rule it states.
    pub codes: Vec<String>,
    /// Titles of other entries.
    pub see: Vec<String>,
    /// What it means, with programs.
    pub parts: Vec<Part>,
}

/// A part of an entry's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A paragraph.
    Text(String),
    /// A program, or what the standard library declares.
    Program(String),
    /// A program that gives a code.
    Failing {
        /// The code.
        code: String,
        /// The program.
        program: String,
    },
}

/// The words for sets of element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementTypes {
    /// The word.
    pub word: &'static str,
    /// The types.
    pub types: &'static [Elem],
}

impl ElementTypes {
    /// All of them.
    pub const ALL: [ElementTypes; 6] = [
        ElementTypes { word: "any", types: &Elem::ALL },
        ElementTypes { word: "numbers", types: &[Elem::F32, Elem::BF16, Elem::F16, Elem::I8, Elem::I32, Elem::I64] },
        ElementTypes { word: "floats", types: &[Elem::F32, Elem::BF16, Elem::F16] },
        ElementTypes { word: "integers", types: &[Elem::I8, Elem::I32, Elem::I64] },
        ElementTypes { word: "indices", types: &[Elem::I32, Elem::I64] },
        ElementTypes { word: "bool", types: &[Elem::Bool] },
    ];

    /// The set of this word.
    pub fn of(word: &str) -> Option<ElementTypes> {
        ElementTypes::ALL.into_iter().find(|set| set.word == word)
    }
}

impl Entry {
    /// Its first name.
    pub fn title(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// Does it have this name? `nn.Linear` is also `Linear`.
    fn is_named(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }
}

static SECTIONS: LazyLock<Vec<Section>> = LazyLock::new(|| {
    let mut sections = read::sections(LANGUAGE);
    sections.extend(library::sections());
    sections
});

/// All sections: those of the language, then one for each module of the standard library.
pub fn sections() -> &'static [Section] {
    &SECTIONS
}

/// All entries.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    sections().iter().flat_map(|section| &section.entries)
}

/// The entries with a name, of the language or of other libraries.
pub fn find(name: &str) -> Vec<&'static Entry> {
    entries().chain(foreign::entries()).filter(|entry| entry.is_named(name)).collect()
}

/// The entries that state the rule of a code.
pub fn of_code(code: &str) -> Vec<&'static Entry> {
    entries().filter(|entry| entry.codes.iter().any(|own| own == code)).collect()
}

/// The names of all entries.
pub fn names() -> impl Iterator<Item = &'static str> {
    entries().flat_map(|entry| entry.names.iter().map(String::as_str))
}

/// The names of other libraries that are known.
pub fn foreign_names() -> impl Iterator<Item = &'static str> {
    foreign::entries().iter().map(Entry::title)
}
