//! The elementary functions: `functions/NAME.vec` has `@NAME`, and its parts, `@NAME.part`.
//!
//! In: the files, which the build script lists. Out: functions by name, as they are written or as a machine computes them, and
//! which operation on elements is which function. A file is read when one of its functions is first requested.

use std::sync::OnceLock;

use super::{Features, Function, Type, text};
use crate::scalar::{BinaryOp, UnaryOp};

// `FILES`: each file's name without its ending, in order, and its text.
include!(concat!(env!("OUT_DIR"), "/vector_functions.rs"));

/// What is computed once, or why it cannot be.
type Once<T> = OnceLock<Result<T, String>>;

/// The names of all files, each of which defines the function that it is named after.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The function that computes a unary operation on floats; `None` where that is an instruction on every machine.
pub fn unary(op: UnaryOp) -> Option<&'static str> {
    op.is_function().then(|| op.name())
}

/// The function that computes a binary operation on numbers of a type; `None` where a few instructions do.
pub fn binary(op: BinaryOp, ty: Type) -> Option<&'static str> {
    match (op, ty) {
        (BinaryOp::Pow, Type::F32) => Some("pow"),
        (BinaryOp::Rem, Type::F32) => Some("rem"),
        (BinaryOp::Div, Type::I32) => Some("idiv"),
        (BinaryOp::Rem, Type::I32) => Some("irem"),
        (_, Type::F32 | Type::I32 | Type::Mask) => None,
    }
}

/// How many files there are.
pub(super) const COUNT: usize = FILES.len();

/// The number of a file.
pub(super) fn number(name: &str) -> Result<usize, String> {
    FILES.binary_search_by(|(file, _)| (*file).cmp(name)).map_err(|_| format!("there is no function @{name}"))
}

/// The text of a file.
pub fn source(name: &str) -> Option<&'static str> {
    number(name).ok().map(|at| FILES[at].1)
}

/// All versions of all functions of a file.
///
/// # Errors
/// No such file; a text that is wrong.
pub fn file(name: &str) -> Result<&'static [Function], String> {
    static READ: [Once<Vec<Function>>; FILES.len()] = [const { OnceLock::new() }; FILES.len()];
    let at = number(name)?;
    let read = READ[at].get_or_init(|| text::parse(FILES[at].1).map_err(|e| format!("{name}.vec:{e}")));
    read.as_deref().map_err(Clone::clone)
}

/// The version of a function for a machine with these features: the first of its file that requires no others.
///
/// # Errors
/// No such function, none for these features.
pub fn version(name: &str, features: Features) -> Result<&'static Function, String> {
    let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
    let found = file(stem)?.iter().find(|f| f.name == name && features.include(f.requires));
    found.ok_or_else(|| format!("there is no function @{name} for a machine with ({})", features.names().join(", ")))
}
