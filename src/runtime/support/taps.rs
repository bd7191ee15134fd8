//! Taps of a call: which are asked for, their memory, and the single tensors under their own paths.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::{c_char, c_void};

use crate::abi::{EntryDesc, PlanDesc};
use crate::bind::{Bound, bytes};
use crate::desc::elem_size;
use crate::dlpack::{CPU, DLDevice, DLTensor, type_of};
use crate::error::{CText, Error, Result, Shown, fail};
use crate::glob::{family_size, matches, member_name};
use crate::sys::{self, Buffer};

/// The taps of a finished call, as the caller holds them.
pub struct Taps {
    tensors: Vec<Named>,
    _buffers: Vec<Buffer>,
}

struct Named {
    name: CText,
    tensor: DLTensor,
    _shape: Box<[i64]>,
}

impl Taps {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Path of a tap.
    pub(crate) fn name(&self, index: u64) -> Option<*const c_char> {
        self.tensors.get(usize::try_from(index).ok()?).map(|t| t.name.pointer())
    }

    /// Its tensor.
    pub(crate) fn tensor(&self, index: u64) -> Option<*const DLTensor> {
        self.tensors.get(usize::try_from(index).ok()?).map(|t| &raw const t.tensor)
    }
}

/// What is asked for, before the call.
pub(crate) struct Wanted {
    /// For each family of taps the members that are asked for.
    members: Vec<Vec<u64>>,
    buffers: Vec<Buffer>,
    /// For generated code: the buffer of each family, or null.
    pub(crate) data: Vec<*mut u8>,
}

/// Reads the patterns and makes room.
///
/// # Safety
/// `globs` is null or has `count` pointers, each null or a C string.
pub(crate) unsafe fn want(
    entry: &EntryDesc,
    plan: &PlanDesc,
    bound: &Bound,
    globs: *const *const c_char,
    count: u64,
) -> Result<Wanted> {
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
            Ok(text) => patterns.push((text, false)),
            Err(_) => fail!(Call, "{name}: the name of tap {i} is not UTF-8"),
        }
    }
    let mut out = Wanted { members: Vec::new(), buffers: Vec::new(), data: Vec::new() };
    for t in entry.taps.get() {
        let extents = t.extents.get();
        let Some(size) = family_size(extents) else { fail!(Internal, "too many taps") };
        let mut members = Vec::new();
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
                members.push(i);
            }
        }
        if members.is_empty() && plan.taps_together == 0 {
            out.data.push(core::ptr::null_mut());
            out.buffers.push(Buffer::empty());
        } else {
            let each = bytes(&bound.shape(t.batch != 0, t.dims.get())?, t.elem)?;
            let all = each.saturating_mul(size);
            let Some(buffer) = Buffer::new(all) else {
                return Err(Error::memory(all, &alloc::format!("tap `{}`", t.pattern.get())));
            };
            out.data.push(buffer.pointer());
            out.buffers.push(buffer);
        }
        out.members.push(members);
    }
    if let Some((pattern, _)) = patterns.iter().find(|(_, met)| !met) {
        let known: Vec<&str> = entry.taps.get().iter().map(|t| t.pattern.get()).collect();
        if known.is_empty() {
            fail!(Call, "{name} has no taps, and `{}` was asked for", Shown(pattern));
        }
        fail!(Call, "{name} has no tap `{}`; it has {}", Shown(pattern), known.join(", "));
    }
    Ok(out)
}

/// The tensors of a call that has run.
pub(crate) fn collect(entry: &EntryDesc, bound: &Bound, wanted: Wanted) -> Result<Taps> {
    let mut tensors = Vec::new();
    for ((t, members), buffer) in entry.taps.get().iter().zip(&wanted.members).zip(&wanted.buffers) {
        let shape = bound.shape(t.batch != 0, t.dims.get())?;
        let each = bytes(&shape, t.elem)?;
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
            let name = CText::new(&member_name(t.pattern.get(), t.extents.get(), *i));
            tensors.push(Named { name, tensor, _shape: shape });
        }
    }
    Ok(Taps { tensors, _buffers: wanted.buffers })
}
