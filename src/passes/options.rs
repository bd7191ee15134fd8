//! Options of a run of passes: the optimisation level, the float mode, and what is printed.
//!
//! In: names as on the command line. Out: plain values that `manager` and `pipeline` read.

use std::fmt;

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

/// The passes that a printing option selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Select {
    /// No pass.
    #[default]
    None,
    /// The passes with these names.
    Named(Vec<String>),
    /// Every pass.
    All,
}

impl Select {
    /// Parses `all` or a comma-separated list of names.
    pub fn parse(text: &str) -> Select {
        let names: Vec<String> = text.split(',').map(str::trim).filter(|n| !n.is_empty()).map(String::from).collect();
        match names.as_slice() {
            [] => Select::None,
            [one] if one == "all" => Select::All,
            _ => Select::Named(names),
        }
    }

    /// Is this pass selected?
    pub fn has(&self, pass: &str) -> bool {
        match self {
            Select::None => false,
            Select::Named(names) => names.iter().any(|n| n == pass),
            Select::All => true,
        }
    }

    /// The names that were listed individually; the caller checks that such passes exist.
    pub fn names(&self) -> &[String] {
        match self {
            Select::Named(names) => names,
            Select::None | Select::All => &[],
        }
    }
}

/// What `--print-changed` prints after a pass that changes the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrintChanged {
    /// Nothing.
    #[default]
    No,
    /// The whole IR.
    Whole,
    /// A diff with context lines.
    Diff,
}

/// The options of a run of passes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Optimisation level.
    pub level: Level,
    /// Permitted rewrites of floating-point arithmetic.
    pub float: Float,
    /// Dump before these passes.
    pub print_before: Select,
    /// Dump after these passes.
    pub print_after: Select,
    /// Dump after passes that change the module.
    pub print_changed: PrintChanged,
    /// Run the verifier after every pass.
    pub verify_each: bool,
    /// Stop after the first run of this pass.
    pub stop_after: Option<String>,
    /// Skip every run of a pass on a function beyond this number, to find a faulty run by
    /// bisection.
    pub bisect_limit: Option<u64>,
    /// Report the time of each pass.
    pub time_passes: bool,
    /// Report the counters of the passes.
    pub stats: bool,
    /// Report the remarks of the passes.
    pub remarks: bool,
    /// Pass the IR after each pass to [`super::Sink::file`].
    pub dump_files: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            level: Level::default(),
            float: Float::default(),
            print_before: Select::None,
            print_after: Select::None,
            print_changed: PrintChanged::No,
            verify_each: true,
            stop_after: None,
            bisect_limit: None,
            time_passes: false,
            stats: false,
            remarks: false,
            dump_files: false,
        }
    }
}
