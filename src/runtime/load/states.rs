//! The states of a session that is loaded: their names and types, and their elements.

use std::ffi::{CString, c_void};

use super::{CompiledModel, LoadError, MAX_RANK, Room, Session, error, text};
use crate::shape::Elem;
use crate::tensor::Tensor;

/// A state of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// With a `*` for each index into an array of layers, along which it is stacked.
    pub name: String,
    /// Its element type.
    pub elem: Elem,
    /// Its extents.
    pub shape: Vec<usize>,
}

impl CompiledModel {
    /// The states of a session, in the order of the program.
    pub fn states(&self) -> Vec<State> {
        let f = &self.functions;
        // SAFETY: indices below the count; strings of the `.so`; space for `capacity` extents.
        let state = |i| unsafe {
            let (mut shape, mut rank) = ([0i64; MAX_RANK], 0);
            if (f.attnc_state_shape)(i, shape.as_mut_ptr(), MAX_RANK as u64, &mut rank) != 0 {
                return None;
            }
            let shape = shape.get(..usize::try_from(rank).ok()?)?;
            let shape = shape.iter().map(|n| usize::try_from(*n).ok()).collect::<Option<_>>()?;
            Some(State {
                name: text((f.attnc_state_name)(i)),
                elem: Elem::from_name(&text((f.attnc_state_type)(i)))?,
                shape,
            })
        };
        // SAFETY: takes nothing.
        (0..unsafe { (f.attnc_state_count)() }).filter_map(state).collect()
    }

    /// The index of a state.
    fn state_index(&self, name: &str) -> Result<u64, LoadError> {
        let unknown = || error(1, format!("there is no state `{name}`"));
        let text = CString::new(name).map_err(|_| unknown())?;
        // SAFETY: a C string.
        u64::try_from(unsafe { (self.functions.attnc_state_index)(text.as_ptr()) }).map_err(|_| unknown())
    }
}

impl Session<'_> {
    /// The elements of a state.
    ///
    /// # Errors
    /// No such state; a failed call has lost the states; no memory.
    pub fn state(&self, name: &str) -> Result<Tensor, LoadError> {
        let index = self.model.state_index(name)?;
        let state = self.model.states().into_iter().nth(usize::try_from(index).unwrap_or(usize::MAX));
        let shape = |state: &State| state.shape.iter().map(|n| i64::try_from(*n).unwrap_or(-1)).collect::<Vec<_>>();
        let room = state.and_then(|state| Room::new(state.elem, &shape(&state)));
        let mut room = room.ok_or_else(|| error(5, "out of memory for a state"))?;
        let (to, bytes) = (room.bytes.as_mut_ptr().cast::<c_void>(), room.bytes.len() as u64);
        // SAFETY: a live handle; `bytes` bytes.
        match unsafe { (self.model.functions.attnc_session_state)(self.handle, index, to, bytes) } {
            0 => room.filled().ok_or_else(|| error(8, format!("the state `{name}` does not match its type"))),
            status => Err(self.error(status)),
        }
    }

    /// Sets the elements of a state.
    ///
    /// # Errors
    /// No such state, or it has another type or shape; a failed call has lost the states.
    pub fn set_state(&mut self, name: &str, value: &Tensor) -> Result<(), LoadError> {
        let index = self.model.state_index(name)?;
        let state = self.model.states().into_iter().nth(usize::try_from(index).unwrap_or(usize::MAX));
        if let Some(State { elem, shape, .. }) = state.filter(|s| s.elem != value.elem() || s.shape != value.shape()) {
            let (found, extents) = (value.elem(), value.shape());
            return Err(error(2, format!("state `{name}`: expected {elem}{shape:?}, found {found}{extents:?}")));
        }
        let bytes = value.bytes();
        let from = bytes.as_ptr().cast::<c_void>();
        // SAFETY: a live handle; as many bytes, which are only read.
        match unsafe { (self.model.functions.attnc_session_set_state)(self.handle, index, from, bytes.len() as u64) } {
            0 => Ok(()),
            status => Err(self.error(status)),
        }
    }
}
