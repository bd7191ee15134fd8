//! Converts text to token numbers, and back.
//!
//! In: a text, or the tokens that a model produces. Out: the token numbers of a text; the bytes of each token, and ([`Text`]) the part
//! of them that can already be shown as text. It knows nothing of models.
//!
//! The crate `tokenizers` 0.22 (without default features, with `fancy-regex`) adds 39 crates that nothing else here needs: 38 s of CPU in a
//! first build at `opt-level = 1`, of two cores of an x86-64 machine in November 2026. The tests compare with it, by its Python package.

mod added;
mod bpe;
mod budget;
mod charsmap;
mod hub;
mod normalize;
mod pattern;
mod pieces;
mod search;
mod text;
mod unigram;

pub use budget::LONGEST;
pub use hub::Hub;
pub use text::{Shown, Text};

/// How a text is divided into tokens.
#[derive(Debug)]
pub enum Tokenizer {
    /// A token is a byte, its number the byte's value.
    Bytes,
    /// Described by a `tokenizer.json`.
    Hub(Box<Hub>),
}

impl Tokenizer {
    /// Reads the text of a `tokenizer.json`.
    ///
    /// # Errors
    /// What is wrong with it, or not supported, in words.
    pub fn read(text: &str) -> Result<Tokenizer, String> {
        Hub::read(text).map(|hub| Tokenizer::Hub(Box::new(hub)))
    }

    /// The number of token numbers: one more than the greatest.
    pub fn vocabulary(&self) -> u64 {
        match self {
            Tokenizer::Bytes => 256,
            Tokenizer::Hub(hub) => hub.vocabulary(),
        }
    }

    /// The tokens of a text: as the beginning of one that goes on, or as a whole one, with those that mark its end too.
    ///
    /// # Errors
    /// The part of the text that has no token, in words.
    pub fn encode(&self, text: &[u8], is_whole: bool) -> Result<Vec<u32>, String> {
        match self {
            Tokenizer::Bytes => Ok(text.iter().copied().map(u32::from).collect()),
            Tokenizer::Hub(hub) => {
                let text = std::str::from_utf8(text);
                hub.encode(
                    text.map_err(|error| format!("it is not UTF-8 from byte {} on", error.valid_up_to()))?,
                    is_whole,
                )
            }
        }
    }

    /// What a token adds to a text: nothing if it is only a marker. `None` for a number that is not a token.
    pub fn bytes(&self, token: u32) -> Option<Vec<u8>> {
        match self {
            Tokenizer::Bytes => Some(vec![u8::try_from(token).ok()?]),
            Tokenizer::Hub(hub) => hub.bytes(token),
        }
    }
}
