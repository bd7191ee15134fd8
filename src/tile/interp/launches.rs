//! A hook for executing launches by other means, such as a GPU's simulator, on this interpreter's memory.
//!
//! In: a launch that a plan reaches. Out: its operands and the storage that they lie in, to an implementation of [`Launches`], which
//! leaves in storage what the kernel writes.

use std::collections::BTreeMap;

use super::frame::RuntimeValue;
use super::memory::Storage;
use super::{EvalError, broken, fail};
use crate::tile::Module;

/// An operand of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchArgument {
    /// A buffer: the number of its storage, and the byte of its first element there.
    Buffer {
        /// The storage.
        storage: usize,
        /// The byte.
        start: i64,
    },
    /// An index.
    Index(i64),
}

/// What goes wrong in a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchError {
    /// An index is not below its bound, at a place where the module checks it.
    Check {
        /// The number of the place among the module's.
        site: u64,
        /// The index.
        index: i64,
        /// The bound.
        bound: i64,
    },
    /// Anything else.
    Failed(String),
}

/// The storage of a call.
pub struct LaunchMemory<'a>(&'a mut Vec<Storage>);

impl LaunchMemory<'_> {
    /// The bytes of a storage, and which of them were written.
    pub fn bytes(&self, storage: usize) -> Option<(&[u8], &[bool])> {
        self.0.get(storage).map(|s| (s.bytes.as_slice(), s.written.as_slice()))
    }

    /// Replaces them. Storage keeps its size.
    pub fn replace(&mut self, storage: usize, bytes: &[u8], written: &[bool]) {
        if let Some(s) = self.0.get_mut(storage)
            && (s.bytes.len(), s.written.len()) == (bytes.len(), written.len())
        {
            s.bytes.copy_from_slice(bytes);
            s.written.copy_from_slice(written);
        }
    }
}

/// Executes launches in the interpreter's place.
pub trait Launches {
    /// Executes a launch of a kernel with the values of dimensions.
    ///
    /// # Errors
    /// What went wrong.
    fn launch(
        &self,
        kernel: &str,
        symbols: &BTreeMap<String, i64>,
        args: &[LaunchArgument],
        memory: &mut LaunchMemory<'_>,
    ) -> Result<(), LaunchError>;
}

/// A launch by others.
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
