//! A hook for executing runs by other means, such as vector IR, on this interpreter's memory.
//!
//! In: a run that a kernel reaches. Out: the state of the kernel at that point, as a [`RunMemory`]
//! passed to an implementation of [`Runs`]: scalars, addresses of buffers, bytes. The
//! implementation must leave scratch in the state that the run's definition requires.

use super::frame::{Frame, RuntimeValue, buffer, get, index, indices};
use super::memory::Storage;
use super::{EvalError, broken};
use crate::shape::Elem;
use crate::tile::{Body, Inst, Value};

/// The storage number of the worker's scratch.
pub const SCRATCH: usize = usize::MAX;

/// Executes runs in place of the interpreter.
pub trait Runs {
    /// Executes a run.
    ///
    /// # Errors
    /// A message about the failure.
    fn execute(&self, run: Inst, memory: &mut dyn RunMemory) -> Result<(), String>;
}

/// The executor for the runs of a kernel, by the kernel's name; `None` for the interpreter itself.
pub type RunsOf<'a> = &'a dyn Fn(&str) -> Option<&'a dyn Runs>;

/// Values and memory of a kernel at a run.
pub trait RunMemory {
    /// The value of an index.
    ///
    /// # Errors
    /// The value is not an index.
    fn index(&self, v: Value) -> Result<i64, String>;

    /// The bits of a scalar; a truth value is 0 or 1.
    ///
    /// # Errors
    /// The value is not a scalar.
    fn scalar(&self, v: Value) -> Result<u64, String>;

    /// The storage number of a buffer, and the byte offset of an element.
    ///
    /// # Errors
    /// The value is not a buffer.
    fn address(&self, buffer: Value, indices: &[Value]) -> Result<(usize, i64), String>;

    /// The stride of a buffer along an axis, in bytes.
    ///
    /// # Errors
    /// The value is not a buffer, or does not have this axis.
    fn stride_bytes(&self, buffer: Value, axis: usize) -> Result<i64, String>;

    /// Reads bytes of storage, or of [`SCRATCH`], whose padding may be read uninitialised.
    ///
    /// # Errors
    /// Bytes that are out of bounds or uninitialised.
    fn read(&self, storage: usize, at: i64, bytes: &mut [u8]) -> Result<(), String>;

    /// Writes bytes of storage.
    ///
    /// # Errors
    /// Bytes that are out of bounds.
    fn write(&mut self, storage: usize, at: i64, bytes: &[u8]) -> Result<(), String>;
}

/// A kernel at a run.
pub(super) struct RunView<'a> {
    pub(super) memory: &'a mut Vec<Storage>,
    pub(super) scratch: &'a mut Storage,
    pub(super) body: &'a Body,
    pub(super) frame: &'a Frame,
}

fn message<T>(r: Result<T, EvalError>) -> Result<T, String> {
    r.map_err(|e| e.message)
}

fn size(elem: Elem) -> i64 {
    i64::try_from(elem.size()).unwrap_or(8)
}

impl RunMemory for RunView<'_> {
    fn index(&self, v: Value) -> Result<i64, String> {
        message(index(self.frame, v))
    }

    fn scalar(&self, v: Value) -> Result<u64, String> {
        let elem = self.body.ty(v).elem();
        message(match (get(self.frame, v), elem) {
            (Ok(RuntimeValue::Scalar(x)), Some(elem)) => Ok(u64::from_le_bytes(x.to_bytes(elem).0)),
            (Ok(_), _) => broken(format!("{v} is not a scalar")),
            (Err(e), _) => Err(e),
        })
    }

    fn address(&self, buffer_value: Value, at: &[Value]) -> Result<(usize, i64), String> {
        let view = message(buffer(self.frame, buffer_value))?;
        let at = message(indices(self.frame, at))?;
        // An empty tile may start past the end.
        let element = at.iter().zip(&view.strides).fold(0i64, |sum, (i, s)| sum.wrapping_add(i.wrapping_mul(*s)));
        Ok((view.storage, view.start.wrapping_add(element.wrapping_mul(size(view.elem)))))
    }

    fn stride_bytes(&self, buffer_value: Value, axis: usize) -> Result<i64, String> {
        let view = message(buffer(self.frame, buffer_value))?;
        let stride = view.strides.get(axis).ok_or("an axis that is not there")?;
        Ok(stride.wrapping_mul(size(view.elem)))
    }

    fn read(&self, storage: usize, at: i64, bytes: &mut [u8]) -> Result<(), String> {
        let found = match self.memory.get(storage) {
            _ if storage == SCRATCH => self.scratch.at(at, bytes.len()),
            Some(s) => s.read(at, bytes.len()),
            None => broken("no such storage"),
        };
        bytes.copy_from_slice(message(found)?);
        Ok(())
    }

    fn write(&mut self, storage: usize, at: i64, bytes: &[u8]) -> Result<(), String> {
        let s = match self.memory.get_mut(storage) {
            _ if storage == SCRATCH => &mut *self.scratch,
            Some(s) => s,
            None => return Err("no such storage".to_string()),
        };
        message(s.write(at, bytes))
    }
}
