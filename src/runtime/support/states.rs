//! Functions of the interface that describe, read and set the states of a session.
//!
//! A state is its elements in row-major order, in host memory whatever the device. The caller says
//! how many bytes there are, and any other number than the state has is an error.

use core::ffi::{c_char, c_void};
use core::ptr::null;

use crate::abi::{TensorDesc, elem};
use crate::api::with_session;
use crate::bind::{self, Bound};
use crate::desc::model;
use crate::error::{Result, Status, fail};
use crate::handle::{Opened, Session};
use crate::introspect::type_text;
use crate::request::Memory;
use crate::sys;

fn state(index: u64) -> Option<&'static TensorDesc> {
    model().states.get().get(usize::try_from(index).ok()?)
}

/// The extents, which are constants.
fn shape(state: &TensorDesc) -> Result<alloc::vec::Vec<i64>> {
    Bound { lead: alloc::vec::Vec::new(), dims: alloc::vec::Vec::new() }.shape(false, state.dims.get())
}

/// Number of states of a session.
pub(crate) extern "C" fn attnc_state_count() -> u64 {
    model().states.len
}

/// Index of the state of this name, or -1.
///
/// # Safety
/// `name` is null or a C string.
pub(crate) unsafe extern "C" fn attnc_state_index(name: *const c_char) -> i64 {
    if name.is_null() {
        return -1;
    }
    // SAFETY: by the contract above.
    let name = unsafe { sys::c_bytes(name) };
    model().states.get().iter().position(|s| s.name.get().as_bytes() == name).map_or(-1, |i| i as i64)
}

/// Name of a state, with a `*` for each index into an array of layers, along which it is stacked.
pub(crate) extern "C" fn attnc_state_name(index: u64) -> *const c_char {
    state(index).map_or(null(), |s| s.name.ptr.cast())
}

/// Element type of a state.
pub(crate) extern "C" fn attnc_state_type(index: u64) -> *const c_char {
    type_text(state(index).map(|s| s.elem))
}

/// The shape of a state: up to `capacity` extents, and in `*ndim` how many it has.
///
/// # Safety
/// `shape` is null or has space for `capacity` extents; `ndim` is null or writable.
pub(crate) unsafe extern "C" fn attnc_state_shape(index: u64, to: *mut i64, capacity: u64, ndim: *mut i32) -> i32 {
    let Some(Ok(extents)) = state(index).map(shape) else { return Status::Call as i32 };
    // SAFETY: by the contract above.
    unsafe {
        if !to.is_null() {
            for (i, extent) in extents.iter().enumerate().take(usize::try_from(capacity).unwrap_or(usize::MAX)) {
                *to.add(i) = *extent;
            }
        }
        if !ndim.is_null() {
            *ndim = i32::try_from(extents.len()).unwrap_or(i32::MAX);
        }
    }
    Status::Ok as i32
}

/// Copies the elements of a state.
///
/// # Safety
/// `session` is null or live; `to` is null or has `bytes` bytes.
pub(crate) unsafe extern "C" fn attnc_session_state(
    session: *mut Session,
    index: u64,
    to: *mut c_void,
    bytes: u64,
) -> i32 {
    let copy = |_: &Opened, memory: &mut Memory| {
        memory.changing.check("reading a state")?;
        let (state, at) = found(memory, index, to.cast_const(), bytes)?;
        match &memory.cuda {
            // SAFETY: by the contract above; the state has this many bytes.
            Some(own) => unsafe { own.copy_to_host(at.addr() as u64, to.cast(), bytes, state.name.get()) },
            None => {
                // SAFETY: as above.
                unsafe { core::ptr::copy_nonoverlapping(at, to.cast(), bytes as usize) };
                Ok(())
            }
        }
    };
    // SAFETY: by the contract above.
    unsafe { with_session(session, copy) }
}

/// Sets the elements of a state.
///
/// # Safety
/// `session` is null or live; `from` is null or has `bytes` bytes.
pub(crate) unsafe extern "C" fn attnc_session_set_state(
    session: *mut Session,
    index: u64,
    from: *const c_void,
    bytes: u64,
) -> i32 {
    let set = |_: &Opened, memory: &mut Memory| {
        memory.changing.check("setting a state")?;
        let (state, at) = found(memory, index, from, bytes)?;
        if state.elem == elem::BOOL {
            for i in 0..bytes as usize {
                // SAFETY: by the contract above.
                let byte = unsafe { *from.cast::<u8>().add(i) };
                if byte > 1 {
                    fail!(Tensor, "state `{}`: element {i} is {byte}, and a bool is 0 or 1", state.name.get());
                }
            }
        }
        match &memory.cuda {
            // SAFETY: by the contract above; the state has this many bytes.
            Some(own) => unsafe { own.copy_from_host(at.addr() as u64, from.cast(), bytes, state.name.get()) },
            None => {
                // SAFETY: as above.
                unsafe { core::ptr::copy_nonoverlapping(from.cast(), at, bytes as usize) };
                Ok(())
            }
        }
    };
    // SAFETY: by the contract above.
    unsafe { with_session(session, set) }
}

/// A state and where it is, if the caller's memory fits.
fn found(memory: &Memory, index: u64, data: *const c_void, bytes: u64) -> Result<(&'static TensorDesc, *mut u8)> {
    let all = memory.cuda.as_ref().map_or(&memory.state_data, |own| &own.state_data);
    let at = usize::try_from(index).ok().and_then(|index| all.get(index));
    let (Some(state), Some(at)) = (state(index), at) else {
        fail!(Call, "there is no state {index}: the model has {}", model().states.len);
    };
    let own = bind::bytes(&shape(state)?, state.elem)?;
    if bytes != own {
        fail!(Tensor, "state `{}` has {own} bytes, found {bytes}", state.name.get());
    }
    if data.is_null() && bytes > 0 {
        fail!(Call, "the pointer for the elements of state `{}` is null", state.name.get());
    }
    Ok((state, *at))
}
