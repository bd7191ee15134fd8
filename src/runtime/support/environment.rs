//! The environment variables that are read when a model is opened: `ATTNC_CPU` and `ATTNC_THREADS`.
//!
//! In: the variables. Out: the highest instruction set level whose code may run, and a number of threads. An invalid
//! value is an error of the call.

use crate::abi::{VariantDesc, level};
use crate::error::{Result, fail};
use crate::sys::variable;

/// Is a variant's level at most the one that `ATTNC_CPU` names, and is it the one? Without the variable every one is allowed.
pub(crate) fn allows() -> Result<impl Fn(&VariantDesc) -> (bool, bool)> {
    let rank = |name: &str| level::NAMES.iter().position(|n| *n == name);
    let highest = match variable(c"ATTNC_CPU") {
        None => None,
        Some(name) => match rank(&name) {
            Some(highest) => Some(highest),
            None => fail!(Call, "ATTNC_CPU is `{name}`; expected {}", level::NAMES.join(", ")),
        },
    };
    Ok(move |v: &VariantDesc| match (rank(v.name.get()), highest) {
        (Some(own), Some(highest)) => (own <= highest, own == highest),
        _ => (true, false),
    })
}

/// The threads to use where the caller says 0: what `ATTNC_THREADS` says, else 0.
pub(crate) fn threads() -> Result<usize> {
    match variable(c"ATTNC_THREADS").map(|text| (text.parse::<usize>(), text)) {
        None => Ok(0),
        Some((Ok(n), _)) => Ok(n),
        Some((Err(_), text)) => fail!(Call, "ATTNC_THREADS is `{text}`; expected a number of threads"),
    }
}
