//! A hook for executing launches by other means, such as a GPU simulator, on this interpreter's
//! memory.
//!
//! In: a launch that a plan reaches. Out: its operands and their storage, passed to an
//! implementation of [`Launches`], which writes the kernel's results to storage.

use std::collections::BTreeMap;

use super::frame::RuntimeValue;
use super::memory::Storage;
use super::{EvalError, broken, fail};
use crate::tile::Module;

/// An operand of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchArgument {
    /// A buffer, by storage number and byte offset of its first element.
    Buffer {
        /// Storage number.
        storage: usize,
        /// Byte offset.
        start: i64,
    },
    /// An index.
    Index(i64),
}

/// Why a launch failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchError {
    /// An index is out of range at a check of the module.
    Check {
        /// Number of the check's message in the module.
        site: u64,
        /// The index.
        index: i64,
        /// Its exclusive bound.
        bound: i64,
    },
    /// Any other failure.
    Failed(String),
}

/// The storage of a call.
pub struct LaunchMemory<'a>(&'a mut Vec<Storage>);

impl LaunchMemory<'_> {
    /// The bytes of a storage, and which of them are initialised.
    pub fn bytes(&self, storage: usize) -> Option<(&[u8], &[bool])> {
        self.0.get(storage).map(|s| (s.bytes.as_slice(), s.written.as_slice()))
    }

    /// Replaces the contents of a storage; its size is unchanged.
    pub fn replace(&mut self, storage: usize, bytes: &[u8], written: &[bool]) {
        if let Some(s) = self.0.get_mut(storage)
            && (s.bytes.len(), s.written.len()) == (bytes.len(), written.len())
        {
            s.bytes.copy_from_slice(bytes);
            s.written.copy_from_slice(written);
        }
    }
}

/// Executes launches in place of the interpreter.
pub trait Launches {
    /// Executes a launch of a kernel with these values of dimensions.
    ///
    /// # Errors
    /// Why it failed.
    fn launch(
        &self,
        kernel: &str,
        symbols: &BTreeMap<String, i64>,
        args: &[LaunchArgument],
        memory: &mut LaunchMemory<'_>,
    ) -> Result<(), LaunchError>;
}

/// Delegates a launch.
pub(super) fn launch(
    by: &dyn Launches,
    (module, kernel): (&Module, &str),
    symbols: &BTreeMap<String, i64>,
    args: &[RuntimeValue],
    memory: &mut Vec<Storage>,
) -> Result<(), EvalError> {
    let mut given = Vec::new();
    for x in args {
        given.push(match x {
            RuntimeValue::Buffer(view) => LaunchArgument::Buffer { storage: view.storage, start: view.start },
            RuntimeValue::Index(n) => LaunchArgument::Index(*n),
            _ => return broken("an operand of a launch is neither a buffer nor an index"),
        });
    }
    match by.launch(kernel, symbols, &given, &mut LaunchMemory(memory)) {
        Ok(()) => Ok(()),
        Err(LaunchError::Failed(why)) => fail(why),
        Err(LaunchError::Check { site, index, bound }) => {
            let site = usize::try_from(site).ok().and_then(|site| module.sites.get(site));
            let text = site.map_or("index out of range", String::as_str);
            fail(text.replace("{0}", &index.to_string()).replace("{1}", &bound.to_string()).replace("{2}", "0"))
        }
    }
}
