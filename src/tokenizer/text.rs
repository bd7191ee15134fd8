//! Text that arrives in pieces of bytes: which part of it can be shown.
//!
//! In: bytes, texts to stop at. Out: text. A character is shown once it is complete. What may be the beginning of a text to stop at is
//! held back. What is not UTF-8 is shown as U+FFFD, and so is an incomplete character at the end.

/// What has not been shown yet.
#[derive(Debug, Default)]
pub struct Text {
    /// The beginning of a character.
    bytes: Vec<u8>,
    /// Text that may be the beginning of one to stop at.
    held: String,
    stops: Vec<String>,
}

/// What may be shown after a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// This text; more may follow.
    More(String),
    /// This text is the last: after it comes the second one, a text to stop at.
    Stopped(String, String),
}

impl Text {
    /// An empty text that stops before any of these, none of which is empty.
    pub fn new(stops: Vec<String>) -> Text {
        Text { stops: stops.into_iter().filter(|stop| !stop.is_empty()).collect(), ..Text::default() }
    }

    /// What may be shown once `piece` has arrived.
    pub fn push(&mut self, piece: &[u8]) -> Shown {
        self.bytes.extend_from_slice(piece);
        let complete = complete(&self.bytes);
        let rest = self.bytes.split_off(complete);
        self.held += &String::from_utf8_lossy(&self.bytes);
        self.bytes = rest;
        let found = self.stops.iter().filter_map(|stop| Some((self.held.find(stop.as_str())?, stop)));
        // The first place; there, the longest text.
        if let Some((at, stop)) = found.min_by_key(|(at, stop)| (*at, usize::MAX - stop.len())) {
            let stop = stop.clone();
            let shown = self.held[..at].to_string();
            (self.held, self.bytes) = (String::new(), Vec::new());
            return Shown::Stopped(shown, stop);
        }
        let may_begin = |at: &usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[*at..]));
        let places = self.held.char_indices().map(|(at, _)| at);
        let kept = places.into_iter().find(may_begin).unwrap_or(self.held.len());
        let rest = self.held.split_off(kept);
        Shown::More(std::mem::replace(&mut self.held, rest))
    }

    /// What is left at the end.
    pub fn finish(self) -> String {
        self.held + &String::from_utf8_lossy(&self.bytes)
    }
}

/// How many of these bytes are complete characters or invalid; the others are the beginning of a character.
fn complete(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Err(error) = std::str::from_utf8(&bytes[at..]) {
        match error.error_len() {
            Some(wrong) => at += error.valid_up_to() + wrong,
            None => return at + error.valid_up_to(),
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown after each piece, and at the end.
    fn shown(stops: &[&str], pieces: &[&[u8]]) -> Vec<String> {
        let mut text = Text::new(stops.iter().map(ToString::to_string).collect());
        let mut out = Vec::new();
        for piece in pieces {
            match text.push(piece) {
                Shown::More(more) => out.push(more),
                Shown::Stopped(last, stop) => {
                    out.extend([last, format!("<{stop}>")]);
                    return out;
                }
            }
        }
        out.push(text.finish());
        out
    }

    #[test]
    fn characters_are_shown_when_they_are_complete() {
        assert_eq!(shown(&[], &[b"a", "\u{e9}".as_bytes(), b"b"]), ["a", "\u{e9}", "b", ""]);
        assert_eq!(shown(&[], &[b"\xe2", b"\x82", b"\xac!", b""]), ["", "", "\u{20ac}!", "", ""]);
        // Not UTF-8: a byte that begins nothing, a character that another one interrupts, and one that does not end.
        assert_eq!(shown(&[], &[b"\xff", b"\xe2", b"a", b"\xf0\x9f"]), ["\u{fffd}", "", "\u{fffd}a", "", "\u{fffd}"]);
    }

    #[test]
    fn texts_stop_before_others() {
        assert_eq!(shown(&["END"], &[b"a E", b"N", b"D b"]), ["a ", "", "", "<END>"]);
        assert_eq!(shown(&["END"], &[b"a E", b"N", b"E", b"ND"]), ["a ", "", "EN", "", "<END>"]);
        assert_eq!(shown(&["END"], &[b"EN"]), ["", "EN"]);
        assert_eq!(shown(&["aab"], &[b"a", b"a", b"a", b"b"]), ["", "", "a", "", "<aab>"]);
        assert_eq!(shown(&["\n", "x\n\n"], &[b"ax", b"\n"]), ["a", "x", "<\n>"]);
        assert_eq!(shown(&["bc", "bcd", ""], &[b"abcd"]), ["a", "<bcd>"]);
        assert_eq!(shown(&["\u{20ac}"], &[b"a\xe2\x82", b"\xac"]), ["a", "", "<\u{20ac}>"]);
    }
}
