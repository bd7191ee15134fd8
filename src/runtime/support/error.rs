//! Errors: a status for programs, a message for people.

use core::fmt;

use alloc::string::String;
use alloc::vec::Vec;

/// What a call returns. The numbers are part of the ABI.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Status {
    /// Done.
    Ok = 0,
    /// A wrong call: a null pointer, a wrong count, no such entry point or tap.
    Call = 1,
    /// A tensor that does not fit: device, type, shape, strides.
    Tensor = 2,
    /// A weights file that is broken or does not fit the model.
    Weights = 3,
    /// A file that cannot be read.
    File = 4,
    /// No memory.
    Memory = 5,
    /// An index out of range, found while running.
    Range = 6,
    /// This processor cannot run the model.
    Processor = 7,
    /// A bug in attnc.
    Internal = 8,
    /// The caller stopped it.
    Interrupted = 9,
    /// No device of the kind that was asked for, or none that runs the code.
    Device = 10,
    /// The GPU failed: a launch, a copy, or whatever the process did with it before.
    Gpu = 11,
    /// An earlier call failed while it changed the session's states.
    States = 12,
}

/// A status other than `Ok`, and why.
pub(crate) struct Error {
    pub(crate) status: Status,
    pub(crate) text: String,
}

impl Error {
    /// No memory for `bytes` bytes of `what`.
    pub(crate) fn memory(bytes: u64, what: &str) -> Error {
        Error { status: Status::Memory, text: alloc::format!("out of memory: {bytes} bytes for {what}") }
    }
}

/// Adds to a list whose length comes from outside; an error where there is no memory for `what`.
pub(crate) fn push<T>(list: &mut Vec<T>, value: T, what: &str) -> Result<()> {
    if list.try_reserve(1).is_err() {
        return Err(Error::memory(size_of::<T>() as u64, what));
    }
    list.push(value);
    Ok(())
}

/// Returns an error with a formatted text.
macro_rules! fail {
    ($status:ident, $($text:tt)*) => {
        return Err($crate::error::Error {
            status: $crate::error::Status::$status,
            text: alloc::format!($($text)*),
        })
    };
}
pub(crate) use fail;

/// A result with an [`Error`].
pub(crate) type Result<T> = core::result::Result<T, Error>;

/// A text that C can read: no NUL inside, one at the end.
pub(crate) struct CText(Vec<u8>);

impl CText {
    /// The text; a NUL inside becomes `?`.
    pub(crate) fn new(text: &str) -> CText {
        let mut bytes: Vec<u8> = text.bytes().map(|b| if b == 0 { b'?' } else { b }).collect();
        bytes.push(0);
        CText(bytes)
    }

    /// The same, for what is kept; `None` where there is no memory.
    pub(crate) fn try_new(text: &str) -> Option<CText> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(text.len().checked_add(1)?).ok()?;
        bytes.extend(text.bytes().map(|b| if b == 0 { b'?' } else { b }));
        bytes.push(0);
        Some(CText(bytes))
    }

    /// As C reads it.
    pub(crate) fn pointer(&self) -> *const core::ffi::c_char {
        self.0.as_ptr().cast()
    }

    /// With the NUL.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A name from outside, fit for a message: control characters escaped, cut where it is long.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 120;
        for (i, c) in self.0.chars().enumerate() {
            if i == LONGEST {
                return f.write_str("...");
            }
            if c.is_control() { write!(f, "{}", c.escape_unicode())? } else { write!(f, "{c}")? }
        }
        Ok(())
    }
}

/// A list as `[2, 3]`.
pub(crate) struct List<'a, T>(pub(crate) &'a [T]);

impl<T: fmt::Display> fmt::Display for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, v) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{v}")?;
        }
        f.write_str("]")
    }
}
