//! The passes by name: the one list that `--passes`, `--print-after`, `--stop-after` and the reference read.

use super::{Changed, Context};
use crate::diagnostics::did_you_mean;
use crate::ir::Function;

/// A pass: its name, what it says about itself, and the function.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Name on the command line and in dumps.
    pub name: &'static str,
    /// One line for the reference.
    pub summary: &'static str,
    /// Does it leave every bit of every result as it was, in every float mode?
    pub exact: bool,
    /// The pass.
    pub run: fn(&mut Function, &mut Context) -> Changed,
}

/// Passes are equal if their names are.
impl PartialEq for Pass {
    fn eq(&self, other: &Pass) -> bool {
        self.name == other.name
    }
}

impl Eq for Pass {}

const fn pass(
    name: &'static str,
    exact: bool,
    run: fn(&mut Function, &mut Context) -> Changed,
    summary: &'static str,
) -> Pass {
    Pass { name, summary, exact, run }
}

/// Every pass, in the order in which the pipeline first runs it.
pub const PASSES: &[Pass] = &[];

/// The pass of this name.
///
/// # Errors
/// A line that names the nearest pass there is.
pub fn find_pass(name: &str) -> Result<Pass, String> {
    match PASSES.iter().find(|p| p.name == name) {
        Some(pass) => Ok(*pass),
        None => Err(match did_you_mean(name, PASSES.iter().map(|p| p.name)) {
            Some(near) => format!("there is no pass `{name}`; did you mean `{near}`?"),
            None => format!(
                "there is no pass `{name}`; there are {}",
                PASSES.iter().map(|p| p.name).collect::<Vec<_>>().join(", ")
            ),
        }),
    }
}

/// Reads a list of passes with commas, `cse,fuse-attention`; an empty list is no pass.
///
/// # Errors
/// A line about the first name that is no pass.
pub fn parse_pass_list(list: &str) -> Result<Vec<Pass>, String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(find_pass).collect()
}
