//! Errors: a status for programs and a message for users.

use core::fmt;

use alloc::string::String;
use alloc::vec::Vec;

/// The status of a call. The numbers are part of the ABI.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Status {
    Ok = 0,
    /// An invalid call: a null pointer, a wrong count, no such entry point or tap.
    Call = 1,
    /// A tensor whose device, type, shape or strides do not match.
    Tensor = 2,
    /// A weights file that is invalid or does not match the model.
    Weights = 3,
    /// A file that cannot be read.
    File = 4,
    /// Out of memory.
    Memory = 5,
    /// An index out of range at run time.
    Range = 6,
    /// This processor does not support the model's code.
    Processor = 7,
    /// A bug in attnc.
    Internal = 8,
    /// Interrupted by the caller.
    Interrupted = 9,
    /// The requested device does not exist, or does not support the code.
    Device = 10,
    /// The GPU failed: a launch, a copy, or an earlier operation of the process.
    Gpu = 11,
    /// An earlier call failed while it was changing the session's states.
    States = 12,
}

/// A status other than `Ok`, and why.
pub(crate) struct Error {
    pub(crate) status: Status,
    pub(crate) text: String,
}

impl Error {
    /// Out of memory: `bytes` bytes for `what`.
    pub(crate) fn memory(bytes: u64, what: &str) -> Error {
        Error { status: Status::Memory, text: alloc::format!("out of memory: {bytes} bytes for {what}") }
    }
}

/// Appends to a list whose length is not trusted; returns an error if there is no memory for
/// `what`.
pub(crate) fn push<T>(list: &mut Vec<T>, value: T, what: &str) -> Result<()> {
    if list.try_reserve(1).is_err() {
        return Err(Error::memory(size_of::<T>() as u64, what));
    }
    list.push(value);
    Ok(())
}

/// Returns an error with a formatted message.
macro_rules! fail {
    ($status:ident, $($text:tt)*) => {
        return Err($crate::error::Error {
            status: $crate::error::Status::$status,
            text: alloc::format!($($text)*),
        })
    };
}
pub(crate) use fail;

pub(crate) type Result<T> = core::result::Result<T, Error>;

/// A string for C: NUL-terminated, without NUL inside.
pub(crate) struct CText(Vec<u8>);

impl CText {
    /// Replaces NULs inside by `?`.
    pub(crate) fn new(text: &str) -> CText {
        let mut bytes: Vec<u8> = text.bytes().map(|b| if b == 0 { b'?' } else { b }).collect();
        bytes.push(0);
        CText(bytes)
    }

    /// The same, for long-lived strings; `None` if out of memory.
    pub(crate) fn try_new(text: &str) -> Option<CText> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(text.len().checked_add(1)?).ok()?;
        bytes.extend(text.bytes().map(|b| if b == 0 { b'?' } else { b }));
        bytes.push(0);
        Some(CText(bytes))
    }

    pub(crate) fn pointer(&self) -> *const core::ffi::c_char {
        self.0.as_ptr().cast()
    }

    /// Includes the NUL.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// An untrusted name in a message: control characters are escaped, long names truncated.
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
