//! Taps of a call: which are requested, their memory, and the individual tensors under their own
//! paths.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::{c_char, c_void};
use core::sync::atomic::Ordering;

use crate::abi::{EntryDesc, Head, TapDesc, elem, mark};
use crate::bind::{Bound, bytes};
use crate::desc::{elem_size, head};
use crate::dlpack::{CPU, DLDevice, DLTensor, type_of};
use crate::error::{CText, Error, Result, Shown, fail, push};
use crate::glob::{family_size, matches, member_name};
use crate::sys::{self, Buffer, try_box};

/// The taps of a finished call, as a handle.
#[repr(C)]
pub struct Taps {
    head: Head,
    tensors: Vec<Named>,
    _buffers: Vec<Buffer>,
}

struct Named {
    name: CText,
    /// Number of iterations that wrote it.
    written: i64,
    tensor: DLTensor,
    _shape: Box<[i64]>,
}

impl Taps {
    /// The taps of a handle, if it is one.
    ///
    /// # Safety
    /// `handle` is null or came from [`collect`] and has not been closed.
    pub(crate) unsafe fn get<'a>(handle: *const Taps) -> Option<&'a Taps> {
        // SAFETY: by the contract above.
        unsafe { handle.as_ref() }.filter(|t| t.head.mark.load(Ordering::Acquire) == mark::TAPS)
    }

    /// Frees taps.
    ///
    /// # Safety
    /// `handle` is live and not used again.
    pub(crate) unsafe fn close(handle: *mut Taps) {
        // SAFETY: by the contract above.
        unsafe {
            (*handle).head.mark.store(0, Ordering::Release);
            drop(Box::from_raw(handle));
        }
    }

    /// Number of taps.
    pub(crate) fn len(&self) -> usize {
        self.tensors.len()
    }

    pub(crate) fn name(&self, index: u64) -> Option<*const c_char> {
        self.tensors.get(usize::try_from(index).ok()?).map(|t| t.name.pointer())
    }

    /// Number of iterations that wrote it.
    pub(crate) fn written(&self, index: u64) -> Option<i64> {
        self.tensors.get(usize::try_from(index).ok()?).map(|t| t.written)
    }

    pub(crate) fn tensor(&self, index: u64) -> Option<*const DLTensor> {
        self.tensors.get(usize::try_from(index).ok()?).map(|t| &raw const t.tensor)
    }
}

/// Requested taps, before the call.
pub(crate) struct Requested {
    /// The requested members of each family of taps.
    members: Vec<Vec<u64>>,
    buffers: Vec<Buffer>,
    /// Per family: a byte for each iteration of its loops over time, set to 1 once written.
    flags: Vec<Buffer>,
    /// Per family: a byte for each member, 1 if it is requested.
    asked: Vec<Buffer>,
    /// Sizes of the leading buffers in `data`: data and flags.
    pub(crate) bytes: Vec<u64>,
    /// For generated code: data buffers, flag buffers and request buffers, one of each per family;
    /// null if nothing is requested, except for requests.
    pub(crate) data: Vec<*mut u8>,
}

/// Parses the patterns and allocates memory.
///
/// # Safety
/// `globs` is null or has `count` pointers, each null or a C string.
pub(crate) unsafe fn want(
    entry: &EntryDesc,
    bound: &Bound,
    globs: *const *const c_char,
    count: u64,
) -> Result<Requested> {
    let name = entry.name.get();
    let mut patterns = Vec::new();
    if count > 0 && globs.is_null() {
        fail!(Call, "{name}: the list of taps is a null pointer");
    }
    for i in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: by the contract above.
        let glob = unsafe { *globs.add(i) };
        if glob.is_null() {
            fail!(Call, "{name}: the name of tap {i} is a null pointer");
        }
        // SAFETY: by the contract above.
        match core::str::from_utf8(unsafe { sys::c_bytes(glob) }) {
            Ok(text) => push(&mut patterns, (text, false), "the names of taps")?,
            Err(_) => fail!(Call, "{name}: the name of tap {i} is not UTF-8"),
        }
    }
    let mut out = Requested {
        members: Vec::new(),
        buffers: Vec::new(),
        flags: Vec::new(),
        asked: Vec::new(),
        bytes: Vec::new(),
        data: Vec::new(),
    };
    let mut flag_bytes = Vec::new();
    for t in entry.taps.get() {
        let extents = t.extents.get();
        let Some(size) = family_size(extents) else { fail!(Internal, "too many taps") };
        let mut members = Vec::new();
        let Some(each) = Buffer::zeroed(size) else { return Err(Error::memory(size, "the requests of taps")) };
        for i in 0..size {
            let path = member_name(t.pattern.get(), extents, i);
            let mut asked = false;
            for (pattern, met) in &mut patterns {
                if matches(pattern, &path) {
                    *met = true;
                    asked = true;
                }
            }
            if asked {
                push(&mut members, i, "the taps")?;
                // SAFETY: there is one byte per member.
                unsafe { *each.pointer().add(i as usize) = 1 };
            }
        }
        push(&mut out.asked, each, "the taps")?;
        if members.is_empty() {
            out.data.push(core::ptr::null_mut());
            out.bytes.push(0);
            flag_bytes.push(0);
            out.buffers.push(Buffer::empty());
            out.flags.push(Buffer::empty());
        } else {
            let shape = bound.shape(t.batch != 0, t.dims.get())?;
            let all = bytes(&shape, t.elem)?.saturating_mul(size);
            let steps = steps_of(t, &shape)?.saturating_mul(size);
            // A call need not reach every tap.
            let (Some(buffer), Some(flags)) = (Buffer::zeroed(all), Buffer::zeroed(steps)) else {
                return Err(Error::memory(all.saturating_add(steps), &alloc::format!("tap `{}`", t.pattern.get())));
            };
            out.data.push(buffer.pointer());
            out.bytes.push(all);
            flag_bytes.push(steps);
            out.buffers.push(buffer);
            out.flags.push(flags);
        }
        out.members.push(members);
    }
    out.bytes.extend(flag_bytes);
    out.data.extend(out.flags.iter().chain(&out.asked).map(Buffer::pointer));
    if let Some((pattern, _)) = patterns.iter().find(|(_, met)| !met) {
        let known: Vec<&str> = entry.taps.get().iter().map(|t| t.pattern.get()).collect();
        if known.is_empty() {
            fail!(Call, "{name} has no taps, but `{}` was requested", Shown(pattern));
        }
        fail!(Call, "{name} has no tap `{}`; its taps are {}", Shown(pattern), known.join(", "));
    }
    Ok(out)
}

/// Number of iterations of the loops over time that a tap is stacked along; 1 if there are no such
/// loops.
fn steps_of(t: &TapDesc, shape: &[i64]) -> Result<u64> {
    bytes(shape.get(..t.stacked as usize).unwrap_or(shape), elem::BOOL)
}

/// Collects the tensors of a finished call in a handle.
pub(crate) fn collect(entry: &EntryDesc, bound: &Bound, wanted: Requested) -> Result<*mut Taps> {
    let mut tensors = Vec::new();
    let Requested { members, buffers, flags, .. } = wanted;
    for (((t, members), buffer), flags) in entry.taps.get().iter().zip(&members).zip(&buffers).zip(&flags) {
        let shape = bound.shape(t.batch != 0, t.dims.get())?;
        let each = bytes(&shape, t.elem)?;
        let steps = steps_of(t, &shape)? as usize;
        debug_assert!(each % elem_size(t.elem) == 0);
        for i in members {
            let mut shape: Box<[i64]> = shape.clone().into_boxed_slice();
            let data = buffer.pointer().wrapping_add((each * i) as usize);
            let tensor = DLTensor {
                data: data.cast::<c_void>(),
                device: DLDevice { device_type: CPU, device_id: 0 },
                ndim: shape.len() as i32,
                dtype: type_of(t.elem),
                shape: shape.as_mut_ptr(),
                strides: core::ptr::null_mut(),
                byte_offset: 0,
            };
            let from = steps * *i as usize;
            let written =
                flags.bytes().get(from..from + steps).unwrap_or(&[]).iter().filter(|f| **f != 0).count() as i64;
            let Some(name) = CText::try_new(&member_name(t.pattern.get(), t.extents.get(), *i)) else {
                return Err(Error::memory(t.pattern.len, "the name of a tap"));
            };
            push(&mut tensors, Named { name, written, tensor, _shape: shape }, "the taps")?;
        }
    }
    match try_box(Taps { head: head(mark::TAPS), tensors, _buffers: buffers }) {
        Some(taps) => Ok(Box::into_raw(taps)),
        None => Err(Error::memory(size_of::<Taps>() as u64, "the taps")),
    }
}
