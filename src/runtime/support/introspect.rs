//! Functions of the interface that describe the model. They need no handle, and return null, 0 or
//! -1 for anything that does not exist.

use core::ffi::c_char;
use core::ptr::null;

use crate::abi::{EntryDesc, Str};
use crate::desc::{elem_name, model};
use crate::sys;

fn text(s: Option<Str>) -> *const c_char {
    // The compiler terminates every string with a NUL.
    s.map_or(null(), |s| s.ptr.cast())
}

fn entry(index: u64) -> Option<&'static EntryDesc> {
    model().entries.get().get(usize::try_from(index).ok()?)
}

fn nth<T>(rows: &'static [T], index: u64) -> Option<&'static T> {
    rows.get(usize::try_from(index).ok()?)
}

/// A human-readable summary of the model: entry points, parameters, variants.
pub(crate) extern "C" fn attnc_info() -> *const c_char {
    text(Some(model().info))
}

/// Name of the model.
pub(crate) extern "C" fn attnc_model_name() -> *const c_char {
    text(Some(model().name))
}

/// Target triple.
pub(crate) extern "C" fn attnc_target() -> *const c_char {
    text(Some(model().target))
}

/// Number of variants (instruction sets and GPU architectures) in this `.so`.
pub(crate) extern "C" fn attnc_variant_count() -> u64 {
    model().variants.len
}

/// Name of a variant.
pub(crate) extern "C" fn attnc_variant_name(index: u64) -> *const c_char {
    text(nth(model().variants.get(), index).map(|v| v.name))
}

/// Number of entry points.
pub(crate) extern "C" fn attnc_entry_count() -> u64 {
    model().entries.len
}

/// Index of the entry point of this name, or -1.
///
/// # Safety
/// `name` is null or a C string.
pub(crate) unsafe extern "C" fn attnc_entry_index(name: *const c_char) -> i64 {
    if name.is_null() {
        return -1;
    }
    // SAFETY: by the contract above.
    let name = unsafe { sys::c_bytes(name) };
    let found = model().entries.get().iter().position(|e| e.name.get().as_bytes() == name);
    found.map_or(-1, |i| i as i64)
}

/// Name of an entry point.
pub(crate) extern "C" fn attnc_entry_name(index: u64) -> *const c_char {
    text(entry(index).map(|e| e.name))
}

/// Signature of an entry point, as in the source.
pub(crate) extern "C" fn attnc_entry_signature(index: u64) -> *const c_char {
    text(entry(index).map(|e| e.signature))
}

/// Doc comment of an entry point.
pub(crate) extern "C" fn attnc_entry_doc(index: u64) -> *const c_char {
    text(entry(index).map(|e| e.doc))
}

/// Number of run-time dimensions of an entry point.
pub(crate) extern "C" fn attnc_dimension_count(index: u64) -> u64 {
    entry(index).map_or(0, |e| e.symbols.len)
}

/// Name of a run-time dimension; `..` for the flattened batch.
pub(crate) extern "C" fn attnc_dimension_name(index: u64, dimension: u64) -> *const c_char {
    text(entry(index).and_then(|e| nth(e.symbols.get(), dimension)).map(|s| s.name))
}

/// Number of arguments of an entry point.
pub(crate) extern "C" fn attnc_argument_count(index: u64) -> u64 {
    entry(index).map_or(0, |e| e.args.len)
}

/// Name of an argument.
pub(crate) extern "C" fn attnc_argument_name(index: u64, argument: u64) -> *const c_char {
    text(entry(index).and_then(|e| nth(e.args.get(), argument)).map(|t| t.name))
}

/// Element type of an argument.
pub(crate) extern "C" fn attnc_argument_type(index: u64, argument: u64) -> *const c_char {
    type_text(entry(index).and_then(|e| nth(e.args.get(), argument)).map(|t| t.elem))
}

/// Number of results of an entry point.
pub(crate) extern "C" fn attnc_result_count(index: u64) -> u64 {
    entry(index).map_or(0, |e| e.results.len)
}

/// Element type of a result.
pub(crate) extern "C" fn attnc_result_type(index: u64, result: u64) -> *const c_char {
    type_text(entry(index).and_then(|e| nth(e.results.get(), result)).map(|t| t.elem))
}

pub(crate) fn type_text(code: Option<u64>) -> *const c_char {
    use crate::abi::elem;
    let text: &[u8] = match code {
        None => return null(),
        Some(elem::F32) => b"f32\0",
        Some(elem::BF16) => b"bf16\0",
        Some(elem::F16) => b"f16\0",
        Some(elem::I8) => b"i8\0",
        Some(elem::I32) => b"i32\0",
        Some(elem::I64) => b"i64\0",
        Some(_) => b"bool\0",
    };
    debug_assert!(code.is_none_or(|c| text.starts_with(elem_name(c).as_bytes())));
    text.as_ptr().cast()
}

/// Number of families of taps of an entry point.
pub(crate) extern "C" fn attnc_tap_count(index: u64) -> u64 {
    entry(index).map_or(0, |e| e.taps.len)
}

/// Path of a family of taps, with `*` for each index into an array of layers.
pub(crate) extern "C" fn attnc_tap_name(index: u64, tap: u64) -> *const c_char {
    text(entry(index).and_then(|e| nth(e.taps.get(), tap)).map(|t| t.pattern))
}

/// The cost of requesting a tap, in words.
pub(crate) extern "C" fn attnc_tap_cost(index: u64, tap: u64) -> *const c_char {
    text(entry(index).and_then(|e| nth(e.taps.get(), tap)).map(|t| t.cost))
}

/// Number of families of parameters.
pub(crate) extern "C" fn attnc_parameter_count() -> u64 {
    model().params.len
}

/// Name of a family of parameters, with `*` for each index into an array of layers.
pub(crate) extern "C" fn attnc_parameter_name(index: u64) -> *const c_char {
    text(nth(model().params.get(), index).map(|p| p.pattern))
}
