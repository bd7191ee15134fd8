//! The options of a run of passes: the level, the float mode, and what to print around the passes.
//!
//! In: names as on the command line. Out: plain values that `manager` and `pipeline` read.

use std::fmt;

/// What may be done to floating-point arithmetic (`--float`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Float {
    /// Every operation rounds as written; no rewrite that changes a bit.
    Strict,
    /// Fused multiply-add, reassociation inside a reduction's own sum, and the named rewrites of the attention, scale
    /// and norm passes, each within its stated bound.
    #[default]
    Contract,
    /// Also what is true for real numbers alone, and what drops a NaN.
    Fast,
}

impl Float {
    /// Every mode, from the most careful.
    pub const ALL: [Float; 3] = [Float::Strict, Float::Contract, Float::Fast];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Float::Strict => "strict",
            Float::Contract => "contract",
            Float::Fast => "fast",
        }
    }

    /// The mode of this name.
    pub fn from_name(name: &str) -> Option<Float> {
        Float::ALL.into_iter().find(|m| m.name() == name)
    }
}

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How much is done (`-O0` to `-O2`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No pass at all: the program as written, one kernel for each operation.
    O0,
    /// What is dead, double or constant goes; elementwise work is fused. Bit for bit the program as written.
    O1,
    /// Also the canonical forms and the fusion of attention.
    #[default]
    O2,
}

impl Level {
    /// Every level, from the lowest.
    pub const ALL: [Level; 3] = [Level::O0, Level::O1, Level::O2];

    /// The level of this digit.
    pub fn from_digit(digit: u8) -> Option<Level> {
        Level::ALL.get(usize::from(digit)).copied()
    }
}

/// Which passes a printing option names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Select {
    /// None.
    #[default]
    None,
    /// Those of these names.
    Named(Vec<String>),
    /// `all`.
    All,
}

impl Select {
    /// Reads `all` or a list of names with commas.
    pub fn parse(text: &str) -> Select {
        let names: Vec<String> = text.split(',').map(str::trim).filter(|n| !n.is_empty()).map(String::from).collect();
        match names.as_slice() {
            [] => Select::None,
            [one] if one == "all" => Select::All,
            _ => Select::Named(names),
        }
    }

    /// Is this pass named?
    pub fn has(&self, pass: &str) -> bool {
        match self {
            Select::None => false,
            Select::Named(names) => names.iter().any(|n| n == pass),
            Select::All => true,
        }
    }

    /// The names that were given one by one; the caller checks that such passes exist.
    pub fn names(&self) -> &[String] {
        match self {
            Select::Named(names) => names,
            Select::None | Select::All => &[],
        }
    }
}

/// What `--print-changed` prints after a pass that changed something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrintChanged {
    /// Nothing.
    #[default]
    No,
    /// The IR.
    Whole,
    /// The lines that differ, with some around them.
    Diff,
}

/// The options of a run of passes.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much is done.
    pub level: Level,
    /// What may be done to floats.
    pub float: Float,
    /// Dump before these passes.
    pub print_before: Select,
    /// Dump after these passes.
    pub print_after: Select,
    /// Dump after passes that changed something.
    pub print_changed: PrintChanged,
    /// Run the verifier after every pass.
    pub verify_each: bool,
    /// End after the first run of this pass.
    pub stop_after: Option<String>,
    /// Skip every run of a pass on a function beyond this many, to find by halving which one does harm.
    pub bisect_limit: Option<u64>,
    /// Report the time of each pass.
    pub time_passes: bool,
    /// Report the counters of the passes.
    pub stats: bool,
    /// Report the remarks of the passes.
    pub remarks: bool,
    /// Hand the IR after each pass to [`super::Sink::file`].
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
