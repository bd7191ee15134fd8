//! The data set of `attnc train`: tokens, and the windows of each step.
//!
//! In: a file. Out: [`Data`]. The windows of a step stand at positions that Philox draws from the
//! seed, the number of the step and of the window. So they depend on nothing that came before.

use super::super::generate::tokenizer;
use super::super::session::{CommandError, Session, command_line_error, reason};
use crate::cli::{HeldOut, TokenFormat, TrainOptions};
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::driver as codes;
use crate::random::philox;
use crate::runtime::npy;
use crate::tokenizer::Marks;
use std::path::Path;

/// Maximum size of a file.
const MAX_DATA: u64 = 64 << 30;
/// Maximum number of batches of a held-out loss.
const MAX_BATCHES: usize = 20;

/// Tokens one after another.
pub(super) struct Data {
    /// Little-endian.
    bytes: Vec<u8>,
    /// Bytes of a token: 1, 2 or 4.
    size: usize,
}

/// Reads the data, and what is held out of it. Both have at least one window and the token after
/// it, and all tokens are below the bound.
pub(super) fn read(
    s: &mut Session,
    options: &TrainOptions,
    batch: usize,
    length: usize,
    vocabulary: Option<u64>,
) -> Result<(Data, Option<Data>), CommandError> {
    batch
        .checked_mul(length)
        .filter(|n| *n <= 1 << 40)
        .ok_or_else(|| command_line_error(&format!("a step of {batch} windows of {length} tokens is too large")))?;
    let mut data = Data::of_file(s, options, &options.data, vocabulary)?;
    let held_out = match &options.held_out {
        None => None,
        Some(HeldOut::File(path)) => Some((Data::of_file(s, options, path, vocabulary)?, path)),
        Some(HeldOut::Fraction(part)) => {
            let count = (data.len() as f64 * part).ceil() as usize;
            let rest = data.bytes.split_off((data.len() - count.min(data.len())) * data.size);
            Some((Data { bytes: rest, size: data.size }, &options.data))
        }
    };
    let own = (&data, options.data.as_path(), "");
    let others = held_out.as_ref().map(|(data, path)| (data, path.as_path(), " held out"));
    if let Some((data, path, part)) = std::iter::once(own).chain(others).find(|(data, ..)| data.len() <= length) {
        let (count, shown, needed) = (data.len(), path.display(), length + 1);
        let message =
            format!("`{shown}` has {count} tokens{part}; a window of {length} and the next token need {needed}");
        return Err(s.fail(Diagnostic::error(codes::DATA, message)));
    }
    Ok((data, held_out.map(|(data, _)| data)))
}

impl Data {
    fn of_file(
        s: &mut Session,
        options: &TrainOptions,
        path: &Path,
        vocabulary: Option<u64>,
    ) -> Result<Data, CommandError> {
        s.reads(path);
        let shown = path.display().to_string();
        let unreadable = |s: &mut Session, why: &str| {
            s.fail(Diagnostic::error(codes::DATA, format!("cannot read the data `{shown}`: {why}")))
        };
        let file = match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => Err("it is a directory".to_string()),
            Ok(found) if !found.is_file() => Err("it is not a regular file".to_string()),
            Ok(found) if found.len() > MAX_DATA => Err(format!("it is longer than {} GiB", MAX_DATA >> 30)),
            Ok(_) => std::fs::read(path).map_err(|error| reason(&error)),
            Err(error) => Err(reason(&error)),
        };
        let file = file.map_err(|why| unreadable(s, &why))?;
        let is_array = path.extension().is_some_and(|ending| ending == "npy");
        let data = match (&options.tokenizer, options.tokens) {
            (Some(file_of), _) => {
                let made = tokenizer(s, "--tokenizer", file_of)?.encode(&file, Marks::Begin);
                let tokens = made.map_err(|why| unreadable(s, &why))?;
                Data { bytes: tokens.into_iter().flat_map(u32::to_le_bytes).collect(), size: 4 }
            }
            (None, None) if is_array => {
                let (size, bytes) = npy::parse_tokens(&file).map_err(|why| unreadable(s, &format!("it {why}")))?;
                Data { bytes, size }
            }
            (None, format) => {
                let size = match format {
                    None | Some(TokenFormat::Bytes) => 1,
                    Some(TokenFormat::U16) => 2,
                    Some(TokenFormat::U32) => 4,
                };
                if !file.len().is_multiple_of(size) {
                    let why = format!("its length, {} bytes, is not a multiple of {size}", file.len());
                    return Err(unreadable(s, &why));
                }
                Data { bytes: file, size }
            }
        };
        let bound = vocabulary.unwrap_or(u64::MAX).min(1 << 31);
        if let Some(at) = (0..data.len()).find(|at| u64::from(data.token(*at)) >= bound) {
            let message =
                format!("token {at} of `{shown}` is {}, but the program takes tokens below {bound}", data.token(at));
            let help = "bind the size of the vocabulary with `--dim`, or choose how the data is read with `--tokens` or `--tokenizer`";
            return Err(s.fail(Diagnostic::error(codes::DATA, message).help(help)));
        }
        Ok(data)
    }

    /// The number of tokens.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() / self.size
    }

    fn token(&self, at: usize) -> u32 {
        let bytes = self.bytes.get(at * self.size..(at + 1) * self.size).unwrap_or_default();
        bytes.iter().rev().fold(0, |n, byte| n << 8 | u32::from(*byte))
    }

    /// The tokens of a window and the one after it.
    fn window(&self, start: usize, length: usize) -> Vec<u32> {
        (start..=start + length).map(|at| self.token(at)).collect()
    }

    /// The windows of a step.
    pub(super) fn drawn(&self, seed: i64, step: u64, batch: usize, length: usize) -> Vec<Vec<u32>> {
        let places = (self.len() - length) as u64;
        let (low, high) = (|n: u64| n as u32, |n: u64| (n >> 32) as u32);
        let seed = seed.cast_unsigned();
        let start = |window: usize| {
            let words =
                philox([low(step), high(step), low(window as u64), high(window as u64)], [low(seed), high(seed)]);
            let word = u64::from(words[1]) << 32 | u64::from(words[0]);
            ((u128::from(word) * u128::from(places)) >> 64) as usize
        };
        (0..batch).map(|window| self.window(start(window), length)).collect()
    }

    /// Batches of windows that are spread evenly over all tokens; together about as long as these,
    /// within [`MAX_BATCHES`].
    pub(super) fn spread(&self, batch: usize, length: usize) -> Vec<Vec<Vec<u32>>> {
        let last = self.len() - length - 1;
        let batches = self.len().div_ceil(batch * length).clamp(1, MAX_BATCHES);
        let most = (batches * batch - 1).max(1);
        let start = |i: usize| (last as u128 * i as u128 / most as u128) as usize;
        let window = |i: usize| self.window(start(i), length);
        (0..batches).map(|b| (b * batch..(b + 1) * batch).map(window).collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Data;

    /// Windows are inside of the data, differ from step to step, and do not depend on others.
    #[test]
    fn windows_are_functions_of_seed_step_and_number() {
        let data = Data { bytes: (0..=255).collect(), size: 1 };
        let steps: Vec<Vec<Vec<u32>>> = (0..50).map(|step| data.drawn(7, step, 3, 10)).collect();
        for windows in &steps {
            for window in windows {
                assert_eq!(window.len(), 11);
                assert!(window.windows(2).all(|pair| pair[1] == pair[0] + 1), "{window:?}");
            }
        }
        assert_eq!(data.drawn(7, 20, 1, 10)[0], steps[20][0]);
        assert_ne!(steps[20], steps[21]);
        assert_ne!(data.drawn(8, 20, 3, 10), steps[20]);
        let exact = Data { bytes: vec![1, 0, 2, 0, 255, 255], size: 2 };
        assert_eq!(exact.drawn(0, 1, 2, 2), [[1, 2, 0xffff], [1, 2, 0xffff]]);
    }

    #[test]
    fn a_spread_reaches_from_the_first_to_the_last_token() {
        let data = Data { bytes: (0..100).collect(), size: 1 };
        let batches = data.spread(3, 7);
        assert_eq!(batches.len(), 5);
        assert_eq!((batches[0][0][0], batches[4][2][7]), (0, 99));
        let one = Data { bytes: vec![5, 6], size: 1 };
        assert_eq!(one.spread(2, 1), [[[5, 6], [5, 6]]]);
    }
}
