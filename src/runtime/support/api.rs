//! Functions of the interface that open, query and close handles: models, sessions (and the profile
//! of their last call), taps. Functions that can fail return a [`Status`] as a number, and the
//! handle keeps the message. (Calls are in `entry.rs`.)
//!
//! Invalid calls return an error instead of crashing, as far as a callee can detect them: null
//! pointers, wrong counts, shapes that overflow. Dangling pointers and most uses of closed handles
//! cannot be detected.

use core::ffi::{c_char, c_void};
use core::ptr::{null, null_mut};

use crate::cuda::upload::no_gpu;
use crate::desc::model;
use crate::dlpack::DLTensor;
use crate::error::{CText, Result, Status, fail};
use crate::handle::{Model, Opened, Session};
use crate::profile::{Launched, Profile};
use crate::request::{Memory, Poll};
use crate::taps::Taps;

/// A short description of a status.
pub(crate) extern "C" fn attnc_status_text(status: i32) -> *const c_char {
    const NAMES: [&[u8]; 13] = [
        b"ok\0",
        b"wrong call\0",
        b"tensor does not match\0",
        b"weights do not match\0",
        b"cannot read file\0",
        b"out of memory\0",
        b"index out of range\0",
        b"processor not supported\0",
        b"internal error\0",
        b"interrupted\0",
        b"device not available\0",
        b"the GPU failed\0",
        b"states lost\0",
    ];
    usize::try_from(status).ok().and_then(|i| NAMES.get(i)).map_or(null(), |n| n.as_ptr().cast())
}

/// Opens the model with the weights file at `weights` (null for a model without parameters).
/// `threads` is the number of threads to use; 0 means the value of `ATTNC_THREADS`, or else one per
/// processor. `*out` receives a handle even if opening fails, for its error message; it must be
/// closed in either case.
///
/// # Safety
/// `weights` is null or a C string; `out` is null or writable.
pub(crate) unsafe extern "C" fn attnc_model_open(weights: *const c_char, threads: i32, out: *mut *mut Model) -> i32 {
    // SAFETY: by the contract above.
    unsafe { attnc_model_open_on(null(), weights, threads, out) }
}

/// [`attnc_model_open`] on a device: `cpu`, `cuda`, `cuda:N`, or `auto` (a GPU if it can be used,
/// else the CPU). Null or an empty string means the value of `ATTNC_DEVICE`, or else `cuda` if the
/// library has code for GPUs, or else `cpu`.
///
/// # Safety
/// `device` and `weights` are null or C strings; `out` is null or writable.
pub(crate) unsafe extern "C" fn attnc_model_open_on(
    device: *const c_char,
    weights: *const c_char,
    threads: i32,
    out: *mut *mut Model,
) -> i32 {
    let (false, Ok(threads)) = (out.is_null(), usize::try_from(threads)) else { return Status::Call as i32 };
    // SAFETY: by the contract above.
    unsafe {
        let (handle, status) = Model::open(weights, threads, device);
        *out = handle;
        status as i32
    }
}

/// The device that the model runs on: `cpu`, `cuda:0`; null if opening failed.
///
/// # Safety
/// `handle` is null or live.
pub(crate) unsafe extern "C" fn attnc_model_device(handle: *const Model) -> *const c_char {
    // SAFETY: by the contract above.
    let opened = unsafe { Model::get(handle) }.and_then(|m| m.opened().ok());
    opened.map_or(null(), |o| o.device.pointer())
}

/// Why a model opened on `auto` runs on the CPU although it has code for GPUs; empty if this is not
/// the case.
///
/// # Safety
/// `handle` is null or live.
pub(crate) unsafe extern "C" fn attnc_model_device_note(handle: *const Model) -> *const c_char {
    // SAFETY: by the contract above.
    let opened = unsafe { Model::get(handle) }.and_then(|m| m.opened().ok());
    opened.map_or(null(), |o| o.device_note.pointer())
}

/// The stream that the session's calls use (`CUstream`); null if the model does not run on a GPU.
///
/// # Safety
/// `handle` is null or live.
pub(crate) unsafe extern "C" fn attnc_session_stream(handle: *mut Session) -> *mut c_void {
    let mut stream = null_mut();
    let query = |_: &Opened, memory: &mut Memory| {
        stream = memory.cuda.as_ref().map_or(null_mut(), |c| c.stream());
        Ok(())
    };
    // SAFETY: by the contract above.
    unsafe { with_session(handle, query) };
    stream
}

/// Makes calls use the caller's stream; if `own` is not 0, the session's own stream, and `stream`
/// is ignored. A null stream is the legacy default stream.
///
/// # Safety
/// `handle` is null or live; `stream` belongs to the model's device, and exists until another
/// stream is set.
pub(crate) unsafe extern "C" fn attnc_session_use_stream(handle: *mut Session, stream: *mut c_void, own: i32) -> i32 {
    let set = |_: &Opened, memory: &mut Memory| match &mut memory.cuda {
        Some(session) => {
            session.use_stream((own == 0).then_some(stream));
            Ok(())
        }
        None => no_gpu(),
    };
    // SAFETY: by the contract above.
    unsafe { with_session(handle, set) }
}

/// Closes a model; its memory is freed when its sessions are closed as well. Null is ignored.
///
/// # Safety
/// `handle` is null or live, and not used again.
pub(crate) unsafe extern "C" fn attnc_model_close(handle: *mut Model) {
    // SAFETY: by the contract above.
    unsafe {
        if Model::get(handle).is_some() {
            Model::release(handle);
        }
    }
}

/// The model's last error message, initially empty; valid until its next error.
///
/// # Safety
/// `handle` is null or live.
pub(crate) unsafe extern "C" fn attnc_model_error(handle: *const Model) -> *const c_char {
    // SAFETY: by the contract above.
    match unsafe { Model::get(handle) } {
        Some(m) => m.error(|t| t.as_ptr().cast()),
        None => NOT_A_MODEL.as_ptr().cast(),
    }
}

const NOT_A_MODEL: &[u8] = b"not a model handle\0";
const NOT_A_SESSION: &[u8] = b"not a session handle\0";

/// Copies the model's last error message, truncated to `capacity` bytes including the NUL. Returns
/// its full length.
///
/// # Safety
/// `handle` is null or live; `buffer` is null or has `capacity` bytes.
pub(crate) unsafe extern "C" fn attnc_model_copy_error(
    handle: *const Model,
    buffer: *mut c_char,
    capacity: u64,
) -> u64 {
    // SAFETY: by the contract above.
    unsafe {
        match Model::get(handle) {
            Some(m) => m.error(|t| copy_text(t, buffer, capacity)),
            None => copy_text(NOT_A_MODEL, buffer, capacity),
        }
    }
}

/// Copies a NUL-terminated string; returns its length without the NUL.
///
/// # Safety
/// `buffer` is null or has `capacity` bytes.
unsafe fn copy_text(text: &[u8], buffer: *mut c_char, capacity: u64) -> u64 {
    let length = text.len().saturating_sub(1);
    if !buffer.is_null() && capacity > 0 {
        let n = length.min(usize::try_from(capacity - 1).unwrap_or(usize::MAX));
        // SAFETY: `n` is below both lengths.
        unsafe {
            core::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, n);
            *buffer.add(n) = 0;
        }
    }
    length as u64
}

/// Name of the variant in use; null if opening failed.
///
/// # Safety
/// `handle` is null or live.
pub(crate) unsafe extern "C" fn attnc_model_variant(handle: *const Model) -> *const c_char {
    // SAFETY: by the contract above.
    let opened = unsafe { Model::get(handle) }.and_then(|m| m.opened().ok());
    opened.map_or(null(), |o| o.variant.name.ptr.cast())
}

/// Number of tensors in the weights file that the model does not use.
///
/// # Safety
/// `handle` is null or live.
pub(crate) unsafe extern "C" fn attnc_unused_weight_count(handle: *const Model) -> u64 {
    // SAFETY: by the contract above.
    let opened = unsafe { Model::get(handle) }.and_then(|m| m.opened().ok());
    opened.map_or(0, |o| o.weights.unused().len() as u64)
}

/// Name of a tensor that the model does not use.
///
/// # Safety
/// `handle` is null or live.
pub(crate) unsafe extern "C" fn attnc_unused_weight(handle: *const Model, index: u64) -> *const c_char {
    // SAFETY: by the contract above.
    let opened = unsafe { Model::get(handle) }.and_then(|m| m.opened().ok());
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    opened.and_then(|o| o.weights.unused().get(index)).map_or(null(), CText::pointer)
}

/// Number of tensors that were converted in memory, from `bf16` or `f16` in the weights file to the
/// model's `f32`.
///
/// # Safety
/// `handle` is null or live.
pub(crate) unsafe extern "C" fn attnc_converted_weight_count(handle: *const Model) -> u64 {
    // SAFETY: by the contract above.
    let opened = unsafe { Model::get(handle) }.and_then(|m| m.opened().ok());
    opened.map_or(0, |o| o.weights.converted().len() as u64)
}

/// Name of a tensor that was converted.
///
/// # Safety
/// `handle` is null or live.
pub(crate) unsafe extern "C" fn attnc_converted_weight(handle: *const Model, index: u64) -> *const c_char {
    // SAFETY: by the contract above.
    let opened = unsafe { Model::get(handle) }.and_then(|m| m.opened().ok());
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    opened.and_then(|o| o.weights.converted().get(index)).map_or(null(), CText::pointer)
}

/// Opens a session. If that fails, the model has the error message.
///
/// # Safety
/// `handle` is null or live; `out` is null or writable.
pub(crate) unsafe extern "C" fn attnc_session_open(handle: *const Model, out: *mut *mut Session) -> i32 {
    // SAFETY: by the contract above.
    let Some(m) = (unsafe { Model::get(handle) }) else { return Status::Call as i32 };
    let status = m.guarded(|| {
        if out.is_null() {
            fail!(Call, "the pointer for the session is null");
        }
        // SAFETY: by the contract above; the handle is live.
        unsafe {
            *out = null_mut();
            *out = Session::open(handle)?;
        }
        Ok(())
    });
    status as i32
}

/// Closes a session. Null is ignored.
///
/// # Safety
/// `handle` is null or live, not in use by another thread, and not used again.
pub(crate) unsafe extern "C" fn attnc_session_close(handle: *mut Session) {
    // SAFETY: by the contract above.
    unsafe {
        if Session::get(handle).is_some() {
            Session::close(handle);
        }
    }
}

/// Sets the session's states to their initial values: zeros, or the values of a parameter.
///
/// # Safety
/// `handle` is null or live.
pub(crate) unsafe extern "C" fn attnc_session_reset(handle: *mut Session) -> i32 {
    let reset = |opened: &Opened, memory: &mut Memory| memory.reset(model(), &opened.weights, opened.cuda.as_ref());
    // SAFETY: by the contract above.
    unsafe { with_session(handle, reset) }
}

/// Sets a callback that the session's calls poll between launches to ask whether to continue; null
/// removes it.
///
/// # Safety
/// `handle` is null or live; `poll` may be called with `context` during calls.
pub(crate) unsafe extern "C" fn attnc_session_poll(
    handle: *mut Session,
    poll: Option<unsafe extern "C" fn(*mut c_void) -> i32>,
    context: *mut c_void,
) -> i32 {
    let set = |_: &Opened, memory: &mut Memory| {
        memory.poll = poll.map(|ask| Poll { ask, context });
        Ok(())
    };
    // SAFETY: by the contract above.
    unsafe { with_session(handle, set) }
}

/// The session's last error message, initially empty; valid until its next error.
///
/// # Safety
/// `handle` is null or live.
pub(crate) unsafe extern "C" fn attnc_session_error(handle: *const Session) -> *const c_char {
    // SAFETY: by the contract above.
    match unsafe { Session::get(handle) } {
        Some(s) => s.error(|t| t.as_ptr().cast()),
        None => NOT_A_SESSION.as_ptr().cast(),
    }
}

/// Copies the session's last error message, truncated to `capacity` bytes including the NUL.
/// Returns its full length.
///
/// # Safety
/// `handle` is null or live; `buffer` is null or has `capacity` bytes.
pub(crate) unsafe extern "C" fn attnc_session_copy_error(
    handle: *const Session,
    buffer: *mut c_char,
    capacity: u64,
) -> u64 {
    // SAFETY: by the contract above.
    unsafe {
        match Session::get(handle) {
            Some(s) => s.error(|t| copy_text(t, buffer, capacity)),
            None => copy_text(NOT_A_SESSION, buffer, capacity),
        }
    }
}

/// Calls `f` with the session, if the handle is valid.
///
/// # Safety
/// `handle` is null or live.
pub(crate) unsafe fn with_session(handle: *const Session, f: impl FnOnce(&Opened, &mut Memory) -> Result<()>) -> i32 {
    // SAFETY: by the contract above.
    match unsafe { Session::get(handle) } {
        Some(s) => s.guarded(f) as i32,
        None => Status::Call as i32,
    }
}

/// Number of taps that a call returned.
///
/// # Safety
/// `taps` is null or live.
pub(crate) unsafe extern "C" fn attnc_taps_count(taps: *const Taps) -> u64 {
    // SAFETY: by the contract above.
    unsafe { Taps::get(taps) }.map_or(0, |t| t.len() as u64)
}

/// Path of a tap: `h.3.attn.weights`.
///
/// # Safety
/// `taps` is null or live.
pub(crate) unsafe extern "C" fn attnc_taps_name(taps: *const Taps, index: u64) -> *const c_char {
    // SAFETY: by the contract above.
    unsafe { Taps::get(taps) }.and_then(|t| t.name(index)).unwrap_or(null())
}

/// Tensor of a tap; valid until the taps are closed.
///
/// # Safety
/// `taps` is null or live.
pub(crate) unsafe extern "C" fn attnc_taps_tensor(taps: *const Taps, index: u64) -> *const DLTensor {
    // SAFETY: by the contract above.
    unsafe { Taps::get(taps) }.and_then(|t| t.tensor(index)).unwrap_or(null())
}

/// Number of iterations that wrote a tap, 0 if the call did not reach it; -1 if there is no such
/// tap.
///
/// # Safety
/// `taps` is null or live.
pub(crate) unsafe extern "C" fn attnc_taps_written(taps: *const Taps, index: u64) -> i64 {
    // SAFETY: by the contract above.
    unsafe { Taps::get(taps) }.and_then(|t| t.written(index)).unwrap_or(-1)
}

/// Frees taps. Null is ignored.
///
/// # Safety
/// `taps` is null or live, and not used again.
pub(crate) unsafe extern "C" fn attnc_taps_close(taps: *mut Taps) {
    // SAFETY: by the contract above.
    unsafe {
        if Taps::get(taps).is_some() {
            Taps::close(taps);
        }
    }
}

/// Switches the timing of launches on (not 0) or off, and clears earlier measurements.
///
/// # Safety
/// `session` is null or live.
pub(crate) unsafe extern "C" fn attnc_session_profile(session: *mut Session, on: i32) -> i32 {
    // SAFETY: by the contract above.
    unsafe {
        with_session(session, |_, memory| {
            memory.profile = Profile::new(on != 0);
            Ok(())
        })
    }
}

/// Number of timed launches of the session's last call.
///
/// # Safety
/// `session` is null or live.
pub(crate) unsafe extern "C" fn attnc_launch_count(session: *const Session) -> u64 {
    let mut count = 0;
    // SAFETY: by the contract above.
    unsafe {
        with_session(session, |_, memory| {
            count = memory.profile.launches().len() as u64;
            Ok(())
        })
    };
    count
}

/// Duration in nanoseconds of a launch of the session's last call, or -1 if there is no such
/// launch.
///
/// # Safety
/// `session` is null or live.
pub(crate) unsafe extern "C" fn attnc_launch_nanoseconds(session: *const Session, index: u64) -> i64 {
    // SAFETY: by the contract above.
    unsafe { launched(session, index) }.map_or(-1, |l| l.time)
}

/// Grid points of a launch of the session's last call, or -1 if there is no such launch.
///
/// # Safety
/// `session` is null or live.
pub(crate) unsafe extern "C" fn attnc_launch_points(session: *const Session, index: u64) -> i64 {
    // SAFETY: by the contract above.
    unsafe { launched(session, index) }.map_or(-1, |l| l.points)
}

/// # Safety
/// `session` is null or live.
unsafe fn launched(session: *const Session, index: u64) -> Option<Launched> {
    let mut found = None;
    // SAFETY: by the contract above.
    unsafe {
        with_session(session, |_, memory| {
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            found = memory.profile.launches().get(index).copied();
            Ok(())
        })
    };
    found
}
