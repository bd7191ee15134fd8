//! Environment variables read when a model is opened: `ATTNC_CPU` and `ATTNC_THREADS`.
//!
//! In: the variables. Out: the highest instruction set that may be used, and a number of threads.
//! An invalid value is an error of the call.

use crate::abi::{VariantDesc, level};
use crate::error::{Result, fail};
use crate::sys::variable;

/// Returns a function that says whether `ATTNC_CPU` permits a variant, and whether it names that
/// variant. Without the variable, all are permitted.
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

/// The number of threads if the caller passes 0: the value of `ATTNC_THREADS`, or 0.
pub(crate) fn threads() -> Result<usize> {
    match variable(c"ATTNC_THREADS").map(|text| (text.parse::<usize>(), text)) {
        None => Ok(0),
        Some((Ok(n), _)) => Ok(n),
        Some((Err(_), text)) => fail!(Call, "ATTNC_THREADS is `{text}`; expected a number of threads"),
    }
}
