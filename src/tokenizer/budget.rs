//! What one call of a tokenizer may do: a file of the hub and a prompt are untrusted, and a few characters of either can ask for
//! work or memory without end.
//!
//! In: the length of what the call reads. Out: a [`Budget`], from which every loop over text, patterns or tokens takes; an error that
//! names the limit once nothing is left. Work is counted in steps, not in time, so that the same input always has the same result.

use std::cell::Cell;

/// The longest input, in bytes: of a prompt, or of a file.
pub const LONGEST: usize = 64 << 20;
/// Steps that each call may take, and how many more for each byte of its input. A step is a few nanoseconds.
const STEPS: (usize, usize) = (1 << 26, 256);
/// Bytes that each call may make of its input, and how many more for each of that.
const BYTES: (usize, usize) = (1 << 20, 8);

/// What is left of it.
#[derive(Debug)]
pub(super) struct Budget {
    steps: Cell<usize>,
    bytes: Cell<usize>,
}

fn most(limit: (usize, usize), length: usize) -> usize {
    length.saturating_mul(limit.1).saturating_add(limit.0)
}

impl Budget {
    /// The budget of a call whose input has this length in bytes.
    ///
    /// # Errors
    /// It is longer than [`LONGEST`].
    pub(super) fn of(length: usize) -> Result<Budget, String> {
        if length > LONGEST {
            return Err(format!("it is longer than {} MiB, the limit", LONGEST >> 20));
        }
        Ok(Budget { steps: Cell::new(most(STEPS, length)), bytes: Cell::new(most(BYTES, length)) })
    }

    /// Takes steps.
    ///
    /// # Errors
    /// There are not so many left; the limit, in words.
    #[inline]
    pub(super) fn work(&self, steps: usize) -> Result<(), String> {
        match self.steps.get().checked_sub(steps) {
            Some(left) => {
                self.steps.set(left);
                Ok(())
            }
            None => Err(format!(
                "this takes more work than the limit, 2^{} steps and {} for each byte of its input",
                STEPS.0.ilog2(),
                STEPS.1
            )),
        }
    }

    /// Takes bytes that are kept, and a step for each.
    ///
    /// # Errors
    /// There are not so many left; the limit, in words.
    pub(super) fn keep(&self, bytes: usize) -> Result<(), String> {
        self.fits(bytes)?;
        self.bytes.set(self.bytes.get() - bytes);
        self.work(bytes)
    }

    /// Are so many bytes left?
    ///
    /// # Errors
    /// The limit, in words.
    pub(super) fn fits(&self, bytes: usize) -> Result<(), String> {
        if bytes <= self.bytes.get() {
            return Ok(());
        }
        Err(format!(
            "this takes more memory than the limit, {} MiB and {} bytes for each byte of its input",
            BYTES.0 >> 20,
            BYTES.1
        ))
    }
}
