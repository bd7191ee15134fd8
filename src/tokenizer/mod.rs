//! Text to the numbers of tokens, and back.
//!
//! In: a text, or tokens as a model gives them. Out: the numbers of its tokens; the bytes of each token, and ([`Text`]) what of them
//! can be shown as text already. It knows nothing of models.

mod text;

pub use text::{Shown, Text};

/// How a text is divided into tokens.
#[derive(Debug)]
pub enum Tokenizer {
    /// A token is a byte, its number the byte's value.
    Bytes,
}

impl Tokenizer {
    /// How many numbers there are for tokens: one more than the greatest.
    pub fn vocabulary(&self) -> u64 {
        match self {
            Tokenizer::Bytes => 256,
        }
    }

    /// The tokens of a text.
    ///
    /// # Errors
    /// What in the text has no token, in words.
    pub fn encode(&self, text: &[u8]) -> Result<Vec<u32>, String> {
        match self {
            Tokenizer::Bytes => Ok(text.iter().copied().map(u32::from).collect()),
        }
    }

    /// What a token adds to a text: nothing where it only marks something. `None` for a number that is no token's.
    pub fn bytes(&self, token: u32) -> Option<Vec<u8>> {
        match self {
            Tokenizer::Bytes => Some(vec![u8::try_from(token).ok()?]),
        }
    }
}
