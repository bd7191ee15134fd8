//! Options of a run of passes: the optimisation level, the float mode, and what is printed.
//!
//! In: names as on the command line. Out: plain values that `manager` and `pipeline` read.

use std::fmt;

use crate::observe::Watch;

/// Permitted rewrites of floating-point arithmetic (`--float`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Float {
    /// Every operation rounds as written; results are bit-identical.
    Strict,
    /// Fused multiply-add, reassociation inside a single reduction, and the named rewrites of the
    /// attention, scale and norm passes, each within its stated bound.
    #[default]
    Contract,
    /// Also rewrites that hold only for real numbers, and rewrites that drop a NaN.
    Fast,
}

impl Float {
    /// All modes, strictest first.
    pub const ALL: [Float; 3] = [Float::Strict, Float::Contract, Float::Fast];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Float::Strict => "strict",
            Float::Contract => "contract",
            Float::Fast => "fast",
        }
    }

    /// Parses the name of a mode.
    pub fn from_name(name: &str) -> Option<Float> {
        Float::ALL.into_iter().find(|m| m.name() == name)
    }
}

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The optimisation level (`-O0` to `-O2`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No passes: the program as written, one kernel per operation.
    O0,
    /// Removes dead and redundant operations, folds constants, fuses elementwise operations.
    /// Results are bit-identical to the program as written.
    O1,
    /// Also canonicalises and fuses attention.
    #[default]
    O2,
}

impl Level {
    /// All levels, lowest first.
    pub const ALL: [Level; 3] = [Level::O0, Level::O1, Level::O2];

    /// Parses the digit of a level.
    pub fn from_digit(digit: u8) -> Option<Level> {
        Level::ALL.get(usize::from(digit)).copied()
    }
}

/// The options of a run of passes.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Optimisation level.
    pub level: Level,
    /// Permitted rewrites of floating-point arithmetic.
    pub float: Float,
    /// Dumps, and the last pass.
    pub watch: Watch,
    /// Report the counters of the passes.
    pub stats: bool,
    /// Report the remarks of the passes.
    pub remarks: bool,
}
