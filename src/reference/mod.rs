//! The language reference: a description of each function, operator, statement and kind of fact.
//! `attnc ref`, `docs/language.md` and the cross-references of error codes come from it.
//!
//! In: `language.txt` (entries by section), the sources of the standard library, and the checker's
//! table of names of other libraries. Out: entries by name ([`find`]), as text for a terminal
//! ([`Entry::text`]), and all of them as one document ([`document`]). `tests/language/reference.rs`
//! compiles every program in it, and compares the entries with the compiler's own tables of calls,
//! keywords, relations and codes.
//!
//! ```text
//! # Section                     and its introduction
//! ## name, other name           an entry, and the names under which it is found
//! form: softmax(x, axis = -1)   its syntax, with the default of each optional argument
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
//!     fn f(..)                  a program that reports this code
//! ```

mod foreign;
mod library;
mod read;
mod show;

use crate::shape::Elem;
use std::sync::LazyLock;

pub use show::document;

/// The source of the language's entries.
const LANGUAGE: &str = include_str!("language.txt");

/// A chapter of the reference.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Heading in the document.
    pub title: String,
    /// Rules that its entries share; may be empty.
    pub introduction: String,
    /// In order of presentation.
    pub entries: Vec<Entry>,
}

/// The description of a function, an operator, a statement, a kind of fact, or an item of the
/// standard library.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// All names by which it is found; the first is its title.
    pub names: Vec<String>,
    /// Its syntax, one line for each variant.
    pub forms: Vec<String>,
    /// The element types of its first argument, as a word of [`ElementTypes`].
    pub takes: Option<String>,
    /// Further properties: label and value.
    pub facts: Vec<(&'static str, String)>,
    /// Error codes whose rule it states.
    pub codes: Vec<String>,
    /// Titles of other entries.
    pub see: Vec<String>,
    /// Its description, with programs.
    pub parts: Vec<Passage>,
}

/// A part of an entry's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passage {
    /// A paragraph of prose.
    Text(String),
    /// A valid program, or a declaration of the standard library.
    Program(String),
    /// A program that reports an error.
    Failing {
        /// The reported code.
        code: String,
        /// Its source text.
        program: String,
    },
}

/// The words for sets of element types in the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementTypes {
    /// Used in `takes:` lines.
    pub word: &'static str,
    /// In the order of [`Elem::ALL`].
    pub types: &'static [Elem],
}

impl ElementTypes {
    /// All sets.
    pub const ALL: [ElementTypes; 6] = [
        ElementTypes { word: "any", types: &Elem::ALL },
        ElementTypes { word: "numbers", types: &[Elem::F32, Elem::BF16, Elem::F16, Elem::I8, Elem::I32, Elem::I64] },
        ElementTypes { word: "floats", types: &[Elem::F32, Elem::BF16, Elem::F16] },
        ElementTypes { word: "integers", types: &[Elem::I8, Elem::I32, Elem::I64] },
        ElementTypes { word: "indices", types: &[Elem::I32, Elem::I64] },
        ElementTypes { word: "bool", types: &[Elem::Bool] },
    ];

    /// The set with this word.
    pub fn find(word: &str) -> Option<ElementTypes> {
        ElementTypes::ALL.into_iter().find(|set| set.word == word)
    }
}

impl Entry {
    /// The first of its names.
    pub fn title(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// Is this one of its names? `nn.Linear` is also `Linear`.
    fn is_named(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }
}

static SECTIONS: LazyLock<Vec<Section>> = LazyLock::new(|| {
    let mut sections = read::sections(LANGUAGE);
    sections.extend(library::sections());
    sections
});

/// All sections: of the language, then one for each module of the standard library.
pub fn sections() -> &'static [Section] {
    &SECTIONS
}

/// The entries of all sections.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    sections().iter().flat_map(|section| &section.entries)
}

/// The entries with this name, in the language or in other libraries.
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

/// The names of other libraries that have an entry.
pub fn foreign_names() -> impl Iterator<Item = &'static str> {
    foreign::entries().iter().map(Entry::title)
}
