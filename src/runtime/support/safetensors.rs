//! Safetensors files: an 8-byte header length, the header, the data.
//!
//! In: the bytes of an untrusted file. Out: a [`Table`] in which every offset is within the data,
//! tensors do not overlap, every byte belongs to a tensor, and every size matches its shape.
//! Alignment is not guaranteed.

use alloc::string::String;
use alloc::vec::Vec;

use crate::error::{List, Result, Shown, fail};
use crate::header::{self, Entry};

/// Maximum header length, from the specification.
const MAX_HEADER: u64 = 100_000_000;

/// The tensors of a file, sorted by name.
pub(crate) struct Table {
    entries: Vec<Entry>,
    /// Offset of the data in the file.
    data: usize,
}

/// Parses the header and checks it against the size of the file.
pub(crate) fn parse(file: &[u8]) -> Result<Table> {
    let Some((length, rest)) = file.split_first_chunk::<8>() else {
        fail!(Weights, "it has {} bytes, but a safetensors file begins with an 8-byte header length", file.len())
    };
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER {
        fail!(Weights, "its header would be {length} bytes long; the format allows {MAX_HEADER}");
    }
    let Some((text, data)) = usize::try_from(length).ok().and_then(|n| rest.split_at_checked(n)) else {
        fail!(Weights, "its header is {length} bytes long, but only {} follow: the file is truncated", rest.len())
    };
    let Ok(text) = core::str::from_utf8(text) else { fail!(Weights, "its header is not UTF-8") };
    let mut entries = header::parse(text)?;
    check_layout(&mut entries, data.len() as u64)?;
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    for (a, b) in entries.iter().zip(entries.iter().skip(1)) {
        if a.name == b.name {
            fail!(Weights, "it has two tensors `{}`", Shown(&a.name));
        }
    }
    Ok(Table { entries, data: file.len() - data.len() })
}

/// Sizes must match shapes, and the tensors must fill the data without gap or overlap.
fn check_layout(entries: &mut [Entry], size: u64) -> Result<()> {
    for e in entries.iter() {
        let Some(bytes) = e.end.checked_sub(e.begin) else {
            fail!(Weights, "tensor `{}` ends ({}) before it begins ({})", Shown(&e.name), e.end, e.begin)
        };
        if e.end > size {
            fail!(
                Weights,
                "tensor `{}` ends at byte {} of the data, which has {size}: the file is truncated",
                Shown(&e.name),
                e.end
            );
        }
        // Unknown types are permitted as long as they are not read.
        let Some(each) = elem_size(&e.dtype) else { continue };
        let expected = e.shape.iter().try_fold(each, |n, d| n.checked_mul(*d));
        if expected != Some(bytes) {
            fail!(
                Weights,
                "tensor `{}` of shape {} and type {} does not match its {bytes} bytes",
                Shown(&e.name),
                List(&e.shape),
                Shown(&e.dtype)
            );
        }
    }
    entries.sort_unstable_by_key(|e| (e.begin, e.end));
    let mut end = 0;
    for e in entries.iter() {
        if e.begin < end {
            fail!(Weights, "tensor `{}` overlaps the one before it in the data", Shown(&e.name));
        }
        if e.begin > end {
            fail!(Weights, "{} bytes before tensor `{}` belong to no tensor", e.begin - end, Shown(&e.name));
        }
        end = e.end;
    }
    if end != size {
        fail!(Weights, "the last {} bytes belong to no tensor", size - end);
    }
    Ok(())
}

/// Element size in bytes of a type of the format, if it is a whole number.
fn elem_size(dtype: &str) -> Option<u64> {
    match dtype {
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" => Some(1),
        "I16" | "U16" | "F16" | "BF16" => Some(2),
        "I32" | "U32" | "F32" => Some(4),
        "I64" | "U64" | "F64" | "C64" => Some(8),
        _ => None,
    }
}

impl Table {
    /// Every tensor, sorted by name.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The data of a tensor; `file` must be the bytes that the table was parsed from.
    pub(crate) fn data<'a>(&self, file: &'a [u8], e: &Entry) -> &'a [u8] {
        let range = self.data.saturating_add(e.begin as usize)..self.data.saturating_add(e.end as usize);
        file.get(range).unwrap_or(&[])
    }
}

/// The language's name for a type of the format: `f32`.
pub(crate) fn type_name(dtype: &str) -> String {
    dtype.to_ascii_lowercase()
}
