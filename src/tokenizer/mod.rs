//! Converts text to tokens, and back.
//!
//! In: a text, or the tokens that a model produces. Out: the tokens of a text; the bytes of each
//! token, and ([`Text`]) the prefix of them that is valid text so far. It knows nothing of models.
//!
//! The crate `tokenizers` 0.22 (without default features, with `fancy-regex`) adds 39 crates that
//! nothing else here needs: 38 s of CPU time in a first build at `opt-level = 1`, on an x86-64
//! machine with two cores in November 2026. Tests compare with its Python package.

mod added;
mod bpe;
mod budget;
mod charsmap;
mod chat;
mod hub;
mod normalize;
mod pattern;
mod pieces;
mod search;
mod text;
mod unigram;
mod words;

pub use budget::LONGEST;
pub use chat::{ChatTemplate, Message};
pub use hub::Hub;
pub use text::{Shown, Text};

/// Tokens that a tokenizer adds to a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// None: the text has them already.
    None,
    /// Tokens that mark its beginning: the text continues.
    Begin,
    /// Tokens that mark its beginning and end: the text is complete.
    Both,
}

/// How a text is divided into tokens.
#[derive(Debug)]
pub enum Tokenizer {
    /// Each byte is a token.
    Bytes,
    /// Described by a `tokenizer.json`.
    Hub(Box<Hub>),
}

impl Tokenizer {
    /// Parses a `tokenizer.json`.
    ///
    /// # Errors
    /// A message about an invalid or unsupported part.
    pub fn read(text: &str) -> Result<Tokenizer, String> {
        Hub::read(text).map(|hub| Tokenizer::Hub(Box::new(hub)))
    }

    /// Vocabulary size: one more than the greatest token.
    pub fn vocabulary(&self) -> u64 {
        match self {
            Tokenizer::Bytes => 256,
            Tokenizer::Hub(hub) => hub.vocabulary(),
        }
    }

    /// The tokens of a text.
    ///
    /// # Errors
    /// A message about the part of the text that has no token.
    pub fn encode(&self, text: &[u8], marks: Marks) -> Result<Vec<u32>, String> {
        match self {
            Tokenizer::Bytes => Ok(text.iter().copied().map(u32::from).collect()),
            Tokenizer::Hub(hub) => {
                let text = std::str::from_utf8(text);
                hub.encode(
                    text.map_err(|error| format!("it is not UTF-8 from byte {} on", error.valid_up_to()))?,
                    marks,
                )
            }
        }
    }

    /// The bytes that a token adds to a text: empty for a marker. `None` if it is not a token.
    pub fn bytes(&self, token: u32) -> Option<Vec<u8>> {
        match self {
            Tokenizer::Bytes => Some(vec![u8::try_from(token).ok()?]),
            Tokenizer::Hub(hub) => hub.bytes(token),
        }
    }
}
