//! Strict JSON parser for safetensors headers, objects of `name: {"dtype", "shape",
//! "data_offsets"}`, and for the index of a checkpoint that is split over several files.
//!
//! In: untrusted text. Out: an entry for each tensor, or the position of a syntax error.
//! `safetensors.rs` checks the numbers.

use alloc::string::String;
use alloc::vec::Vec;

use crate::error::{Error, Result, Shown, fail, push};

/// A tensor's entry in the header.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// Maximum rank of a tensor.
const MAX_RANK: usize = 64;
/// Maximum number of files in an index.
const MAX_FILES: usize = 4096;
/// Maximum nesting of values that are skipped.
const MAX_DEPTH: u32 = 32;

/// Parses a header.
pub(crate) fn parse(text: &str) -> Result<Vec<Entry>> {
    let mut c = Cursor { text, at: 0 };
    let mut entries = Vec::new();
    c.object(&mut |c, name| {
        if name == "__metadata__" {
            return c.object(&mut |c, _| c.string().map(drop));
        }
        let entry = tensor(c, name)?;
        push(&mut entries, entry, "the header")
    })?;
    c.end()?;
    Ok(entries)
}

/// Parses an index (`model.safetensors.index.json`): the distinct file names in its `weight_map`,
/// in order of first occurrence.
pub(crate) fn parse_index(text: &str) -> Result<Vec<String>> {
    let mut c = Cursor { text, at: 0 };
    let (mut files, mut tensors, mut found) = (Vec::new(), Vec::new(), false);
    c.object(&mut |c, key| {
        if key != "weight_map" {
            return c.skip(MAX_DEPTH);
        }
        if core::mem::replace(&mut found, true) {
            fail!(Weights, "it has `weight_map` twice");
        }
        c.object(&mut |c, tensor| {
            push(&mut tensors, tensor, "the names of tensors")?;
            let file = c.string()?;
            // The tensors of a file are mostly adjacent.
            if files.last() == Some(&file) || files.contains(&file) {
                return Ok(());
            }
            if files.len() == MAX_FILES {
                fail!(Weights, "it names more than {MAX_FILES} files");
            }
            push(&mut files, file, "the names of files")
        })
    })?;
    c.end()?;
    if !found {
        fail!(Weights, "it has no object `weight_map`");
    }
    tensors.sort_unstable();
    if let Some([name, _]) = tensors.array_windows().find(|[a, b]| a == b) {
        fail!(Weights, "it has `{}` twice", Shown(name));
    }
    Ok(files)
}

fn tensor(c: &mut Cursor<'_>, name: String) -> Result<Entry> {
    let (mut dtype, mut shape, mut offsets) = (None, None, None);
    c.object(&mut |c, key| {
        let again = match key.as_str() {
            "dtype" => dtype.replace(c.string()?).is_some(),
            "shape" => shape.replace(c.numbers()?).is_some(),
            "data_offsets" => offsets.replace(c.numbers()?).is_some(),
            _ => {
                c.skip(MAX_DEPTH)?;
                false
            }
        };
        if again {
            fail!(Weights, "the header has `{}` of one tensor twice", Shown(&key));
        }
        Ok(())
    })?;
    let (Some(dtype), Some(shape), Some(offsets)) = (dtype, shape, offsets) else {
        fail!(Weights, "tensor `{}` lacks dtype, shape or data_offsets", Shown(&name))
    };
    let &[begin, end] = offsets.as_slice() else {
        fail!(Weights, "tensor `{}`: data_offsets are not two numbers", Shown(&name))
    };
    Ok(Entry { name, dtype, shape, begin, end })
}

/// Appends a character, fallibly.
fn add(text: &mut String, c: char) -> Result<()> {
    if text.try_reserve(c.len_utf8()).is_err() {
        return Err(Error::memory(text.len() as u64, "the header"));
    }
    text.push(c);
    Ok(())
}

/// A position in the text.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn wrong<T>(&self, expected: &str) -> Result<T> {
        match self.text.get(self.at..).and_then(|t| t.chars().next()) {
            Some(c) => fail!(
                Weights,
                "invalid header: byte {} is `{}`, expected {expected}",
                self.at,
                Shown(c.encode_utf8(&mut [0; 4]))
            ),
            None => fail!(Weights, "the header ends early: expected {expected}"),
        }
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Expects the end, after optional space.
    fn end(&mut self) -> Result<()> {
        self.space();
        if self.at != self.text.len() { self.wrong("the end of the header") } else { Ok(()) }
    }

    /// Consumes `byte` after optional space, if it is next.
    fn take(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8, name: &str) -> Result<()> {
        if self.take(byte) { Ok(()) } else { self.wrong(name) }
    }

    /// Parses an object; `field` receives each key and parses its value.
    fn object(&mut self, field: &mut dyn FnMut(&mut Self, String) -> Result<()>) -> Result<()> {
        self.expect(b'{', "`{`")?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            let key = self.string()?;
            self.expect(b':', "`:`")?;
            field(self, key)?;
            if self.take(b'}') {
                return Ok(());
            }
            self.expect(b',', "`,` or `}`")?;
        }
    }

    fn string(&mut self) -> Result<String> {
        self.expect(b'"', "a string")?;
        let mut out = String::new();
        loop {
            let Some(c) = self.text.get(self.at..).and_then(|t| t.chars().next()) else {
                return self.wrong("the end of a string");
            };
            if u32::from(c) < 0x20 {
                return self.wrong("a character of a string");
            }
            self.at += c.len_utf8();
            match c {
                '"' => return Ok(out),
                '\\' => add(&mut out, self.escape()?)?,
                c => add(&mut out, c)?,
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let Some(c) = self.peek() else { return self.wrong("an escape") };
        let plain = match c {
            b'"' | b'\\' | b'/' => Some(char::from(c)),
            b'b' => Some('\u{8}'),
            b'f' => Some('\u{c}'),
            b'n' => Some('\n'),
            b'r' => Some('\r'),
            b't' => Some('\t'),
            b'u' => None,
            _ => return self.wrong("an escape"),
        };
        self.at += 1;
        if let Some(plain) = plain {
            return Ok(plain);
        }
        let mut code = self.hex()?;
        // A surrogate pair encodes one character.
        if (0xd800..0xdc00).contains(&code) {
            if self.text.get(self.at..self.at.saturating_add(2)) != Some("\\u") {
                return self.wrong("the second half of a surrogate pair");
            }
            self.at += 2;
            let low = self.hex()?;
            if !(0xdc00..0xe000).contains(&low) {
                return self.wrong("the second half of a surrogate pair before this");
            }
            code = 0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        }
        match char::from_u32(code) {
            Some(c) => Ok(c),
            None => self.wrong("a first half of a surrogate pair before the second"),
        }
    }

    fn hex(&mut self) -> Result<u32> {
        let mut code = 0;
        for _ in 0..4 {
            let Some(digit) = self.peek().and_then(|c| char::from(c).to_digit(16)) else {
                return self.wrong("four hexadecimal digits");
            };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }

    /// A list of non-negative integers.
    fn numbers(&mut self) -> Result<Vec<u64>> {
        self.expect(b'[', "`[`")?;
        let mut out = Vec::new();
        if self.take(b']') {
            return Ok(out);
        }
        loop {
            self.space();
            let start = self.at;
            let mut value = 0u64;
            while let Some(digit @ b'0'..=b'9') = self.peek() {
                let Some(v) = value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit - b'0'))) else {
                    return self.wrong("a number below 2^64");
                };
                value = v;
                self.at += 1;
            }
            let digits = self.text.get(start..self.at).unwrap_or("");
            if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
                return self.wrong("an integer");
            }
            if out.len() == MAX_RANK {
                fail!(Weights, "the header has a list of more than {MAX_RANK} numbers");
            }
            push(&mut out, value, "the header")?;
            if self.take(b']') {
                return Ok(out);
            }
            self.expect(b',', "`,` or `]`")?;
        }
    }

    /// Skips a value.
    fn skip(&mut self, depth: u32) -> Result<()> {
        let Some(depth) = depth.checked_sub(1) else {
            fail!(Weights, "the header is nested more than {MAX_DEPTH} deep")
        };
        self.space();
        match self.peek() {
            Some(b'"') => self.string().map(drop),
            Some(b'{') => self.object(&mut |c, _| c.skip(depth)),
            Some(b'[') => {
                self.at += 1;
                if self.take(b']') {
                    return Ok(());
                }
                loop {
                    self.skip(depth)?;
                    if self.take(b']') {
                        return Ok(());
                    }
                    self.expect(b',', "`,` or `]`")?;
                }
            }
            _ => {
                let start = self.at;
                while matches!(self.peek(), Some(b'-' | b'+' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'E')) {
                    self.at += 1;
                }
                if self.at == start { self.wrong("a value") } else { Ok(()) }
            }
        }
    }
}
