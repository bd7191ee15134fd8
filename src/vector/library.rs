//! The elementary functions: `functions/NAME.vec` has `@NAME`, and its parts, `@NAME.part`.
//!
//! In: the files listed by the build script. Out: functions by name and feature set, and the
//! function for each operation on elements. A file is parsed when one of its functions is first
//! requested.

use std::sync::OnceLock;

use super::{Features, Function, Type, text};
use crate::scalar::{BinaryOp, UnaryOp};

// `FILES`: each file's name without extension, sorted, and its contents.
include!(concat!(env!("OUT_DIR"), "/vector_functions.rs"));

/// A cached result or error.
type Once<T> = OnceLock<Result<T, String>>;

/// The names of all files, each of which defines the function that it is named after.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The function that computes a unary operation on floats; `None` if every machine has an
/// instruction.
pub fn unary(op: UnaryOp) -> Option<&'static str> {
    op.is_function().then(|| op.name())
}

/// The function that computes a binary operation on a type; `None` if a few instructions suffice.
pub fn binary(op: BinaryOp, ty: Type) -> Option<&'static str> {
    match (op, ty) {
        (BinaryOp::Pow, Type::F32) => Some("pow"),
        (BinaryOp::Rem, Type::F32) => Some("rem"),
        (BinaryOp::Div, Type::I32) => Some("idiv"),
        (BinaryOp::Rem, Type::I32) => Some("irem"),
        (_, Type::F32 | Type::I32 | Type::Mask) => None,
    }
}

/// Number of files.
pub(super) const COUNT: usize = FILES.len();

/// Index of a file.
pub(super) fn number(name: &str) -> Result<usize, String> {
    FILES.binary_search_by(|(file, _)| (*file).cmp(name)).map_err(|_| format!("there is no function @{name}"))
}

/// The source of a file.
pub fn source(name: &str) -> Option<&'static str> {
    number(name).ok().map(|at| FILES[at].1)
}

/// All versions of all functions of a file.
///
/// # Errors
/// No such file, or an error in its source.
pub fn file(name: &str) -> Result<&'static [Function], String> {
    static READ: [Once<Vec<Function>>; FILES.len()] = [const { OnceLock::new() }; FILES.len()];
    let at = number(name)?;
    let read = READ[at].get_or_init(|| text::parse(FILES[at].1).map_err(|e| format!("{name}.vec:{e}")));
    read.as_deref().map_err(Clone::clone)
}

/// The version of a function for these features: the first in its file that requires no others.
///
/// # Errors
/// No such function, or no version for these features.
pub fn version(name: &str, features: Features) -> Result<&'static Function, String> {
    let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
    let found = file(stem)?.iter().find(|f| f.name == name && features.include(f.requires));
    found.ok_or_else(|| format!("there is no function @{name} for a machine with ({})", features.names().join(", ")))
}
