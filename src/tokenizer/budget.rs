//! Limits the time and memory of one tokenizer call. Tokenizer files and prompts are untrusted, and
//! a few characters of either can require an arbitrary amount of both.
//!
//! In: the length of the call's input. Out: a [`Budget`], which every loop over text, patterns or
//! tokens charges, and an error that names the limit once the budget is exhausted. Work is counted
//! in steps, not in seconds, so that results do not depend on the machine.

use std::cell::Cell;

/// Maximum length of a prompt or file, in bytes.
pub const LONGEST: usize = 64 << 20;
/// Steps allowed per call: a constant, plus a number per byte of input. A step takes a few
/// nanoseconds.
const STEPS_PER_CALL: (usize, usize) = (1 << 26, 256);
/// Bytes of intermediate text allowed per call: a constant, plus a number per byte of input.
const BYTES: (usize, usize) = (1 << 20, 8);

/// The steps and bytes that remain.
#[derive(Debug)]
pub(super) struct Budget {
    steps: Cell<usize>,
    bytes: Cell<usize>,
}

fn allowed(limit: (usize, usize), length: usize) -> usize {
    length.saturating_mul(limit.1).saturating_add(limit.0)
}

impl Budget {
    /// The budget of a call whose input has this length in bytes.
    ///
    /// # Errors
    /// The input is longer than [`LONGEST`].
    pub(super) fn for_length(length: usize) -> Result<Budget, String> {
        if length > LONGEST {
            return Err(format!("it is longer than {} MiB, the limit", LONGEST >> 20));
        }
        Ok(Budget { steps: Cell::new(allowed(STEPS_PER_CALL, length)), bytes: Cell::new(allowed(BYTES, length)) })
    }

    /// Charges a number of steps.
    ///
    /// # Errors
    /// Fewer steps remain; names the limit.
    #[inline]
    pub(super) fn work(&self, steps: usize) -> Result<(), String> {
        match self.steps.get().checked_sub(steps) {
            Some(left) => {
                self.steps.set(left);
                Ok(())
            }
            None => Err(format!(
                "this takes more work than the limit, 2^{} steps and {} for each byte of its input",
                STEPS_PER_CALL.0.ilog2(),
                STEPS_PER_CALL.1
            )),
        }
    }

    /// Charges a number of bytes that stay allocated, and a step for each.
    ///
    /// # Errors
    /// Fewer bytes or steps remain; names the limit.
    pub(super) fn keep(&self, bytes: usize) -> Result<(), String> {
        self.fits(bytes)?;
        self.bytes.set(self.bytes.get() - bytes);
        self.work(bytes)
    }

    /// Checks, without charging anything, that this many bytes remain.
    ///
    /// # Errors
    /// Fewer bytes remain; names the limit.
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
