//! The elementary functions: `functions/NAME.vec` has `@NAME`, and its parts, `@NAME.part`.
//!
//! In: the files, which the build script lists. Out: functions by name. A file is read when one of its functions is first
//! asked for.

use std::sync::OnceLock;

use super::{Features, Function, text};

// `FILES`: each file's name without its ending, in order, and its text.
include!(concat!(env!("OUT_DIR"), "/vector_functions.rs"));

/// The names of all files, each of which defines the function that it is named after.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The text of a file.
pub fn source(name: &str) -> Option<&'static str> {
    FILES.binary_search_by(|(file, _)| (*file).cmp(name)).ok().map(|at| FILES[at].1)
}

/// All versions of all functions of a file.
///
/// # Errors
/// No such file; a text that is wrong.
pub fn file(name: &str) -> Result<&'static [Function], String> {
    static READ: [OnceLock<Result<Vec<Function>, String>>; FILES.len()] = [const { OnceLock::new() }; FILES.len()];
    let at =
        FILES.binary_search_by(|(file, _)| (*file).cmp(name)).map_err(|_| format!("there is no function @{name}"))?;
    let read = READ[at].get_or_init(|| text::parse(FILES[at].1).map_err(|e| format!("{name}.vec:{e}")));
    read.as_deref().map_err(Clone::clone)
}

/// The version of a function for a machine with these features: the first of its file that asks for no others.
///
/// # Errors
/// No such function, none for these features.
pub fn version(name: &str, features: Features) -> Result<&'static Function, String> {
    let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
    let found = file(stem)?.iter().find(|f| f.name == name && features.include(f.requires));
    found.ok_or_else(|| format!("there is no function @{name} for a machine with ({})", features.names().join(", ")))
}
