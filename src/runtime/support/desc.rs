//! Access to the model's descriptor, which the compiler wrote and the linker placed in the same
//! library.

use core::fmt;
use core::sync::atomic::AtomicU64;

use crate::abi::{DimDesc, Functions, Head, ModelDesc, Slice, Str, TensorDesc, elem};

unsafe extern "C" {
    #[link_name = "attnc_model_descriptor"]
    static DESCRIPTOR: ModelDesc;
    /// The function table, defined in `table.rs`. It is declared `extern` here, because its
    /// functions use handles, which begin with its address.
    safe fn attnc_library() -> *const Functions;
}

/// The model of this `.so`.
pub(crate) fn model() -> &'static ModelDesc {
    // SAFETY: the compiler defines the descriptor with this layout, and nothing writes it.
    unsafe { &DESCRIPTOR }
}

/// The header of a handle of this library.
pub(crate) fn head(mark: u64) -> Head {
    Head { mark: AtomicU64::new(mark), functions: attnc_library(), model: model().id }
}

impl Str {
    pub(crate) fn get(&self) -> &'static str {
        // SAFETY: the compiler writes UTF-8 of this length, which lives as long as the `.so`.
        unsafe { core::str::from_utf8_unchecked(core::slice::from_raw_parts(self.ptr, self.len as usize)) }
    }
}

impl<T> Slice<T> {
    pub(crate) fn get(&self) -> &'static [T] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the compiler writes this many rows, which live as long as the `.so`.
        unsafe { core::slice::from_raw_parts(self.ptr, self.len as usize) }
    }
}

/// Size of an element in bytes.
pub(crate) fn elem_size(code: u64) -> u64 {
    match code {
        elem::F32 | elem::I32 => 4,
        elem::BF16 | elem::F16 => 2,
        elem::I64 => 8,
        _ => 1,
    }
}

/// Name of an element type in the language.
pub(crate) fn elem_name(code: u64) -> &'static str {
    match code {
        elem::F32 => "f32",
        elem::BF16 => "bf16",
        elem::F16 => "f16",
        elem::I8 => "i8",
        elem::I32 => "i32",
        elem::I64 => "i64",
        elem::BOOL => "bool",
        _ => "?",
    }
}

/// A type as written in programs: `f32[.., S, D]`.
pub(crate) struct TypeText {
    pub(crate) elem: u64,
    pub(crate) batch: bool,
    pub(crate) dims: &'static [DimDesc],
}

impl From<&TensorDesc> for TypeText {
    fn from(t: &TensorDesc) -> TypeText {
        TypeText { elem: t.elem, batch: t.batch != 0, dims: t.dims.get() }
    }
}

impl fmt::Display for TypeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", elem_name(self.elem))?;
        if self.batch {
            f.write_str("..")?;
        }
        for (i, d) in self.dims.iter().enumerate() {
            if i > 0 || self.batch {
                f.write_str(", ")?;
            }
            f.write_str(d.text.get())?;
        }
        f.write_str("]")
    }
}
