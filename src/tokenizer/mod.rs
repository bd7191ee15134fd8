//! Text to the numbers of tokens, and back.
//!
//! In: a text, or tokens as a model gives them. Out: the numbers of its tokens; the bytes of each token, and ([`Text`]) what of them
//! can be shown as text already. It knows nothing of models.

mod bpe;
mod hub;
mod pieces;
mod text;

pub use hub::Hub;
pub use text::{Shown, Text};

/// How a text is divided into tokens.
#[derive(Debug)]
pub enum Tokenizer {
    /// A token is a byte, its number the byte's value.
    Bytes,
    /// That of a `tokenizer.json`.
    Hub(Box<Hub>),
}

impl Tokenizer {
    /// Reads the text of a `tokenizer.json`.
    ///
    /// # Errors
    /// What is wrong with it, or cannot be followed, in words.
    pub fn read(text: &str) -> Result<Tokenizer, String> {
        Hub::read(text).map(|hub| Tokenizer::Hub(Box::new(hub)))
    }

    /// How many numbers there are for tokens: one more than the greatest.
    pub fn vocabulary(&self) -> u64 {
        match self {
            Tokenizer::Bytes => 256,
            Tokenizer::Hub(hub) => hub.vocabulary(),
        }
    }

    /// The tokens of a text.
    ///
    /// # Errors
    /// What in the text has no token, in words.
    pub fn encode(&self, text: &[u8]) -> Result<Vec<u32>, String> {
        match self {
            Tokenizer::Bytes => Ok(text.iter().copied().map(u32::from).collect()),
            Tokenizer::Hub(hub) => {
                let text = std::str::from_utf8(text);
                hub.encode(text.map_err(|error| format!("it is not UTF-8 from byte {} on", error.valid_up_to()))?)
            }
        }
    }

    /// What a token adds to a text: nothing where it only marks something. `None` for a number that is no token's.
    pub fn bytes(&self, token: u32) -> Option<Vec<u8>> {
        match self {
            Tokenizer::Bytes => Some(vec![u8::try_from(token).ok()?]),
            Tokenizer::Hub(hub) => hub.bytes(token),
        }
    }
}
