//! Remarks: the rewrites that passes made, and the conditions that prevented others, with source
//! locations.
//!
//! In: remarks as data, pushed by passes through [`Context`]. Out: lines of text with source
//! locations.

use std::fmt::Write as _;

use super::{Context, Edit};
use crate::ir::{Function, Loc, Module};

/// Was the rewrite made?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The rewrite was made.
    Done,
    /// It was not made, because the condition does not hold.
    Missed(Condition),
}

/// The conditions of fusions. A remark names the one that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Condition {
    /// The softmax, or the reduction, is over the last axis.
    Axis,
    /// No intermediate is used elsewhere.
    Uses,
    /// The scores are multiplied by a single number.
    Scale,
    /// The mask is boolean or additive, and keeps the shape of the scores.
    Mask,
    /// The operands of the matmuls have the orientation that the fused operation needs.
    Transposition,
    /// Element types stay the same throughout.
    Types,
    /// Everything is in one block.
    Block,
    /// The float mode permits the rewrite.
    Float,
    /// No row of the softmax is all `-inf`.
    Rows,
    /// No other operation stands in between.
    Chain,
    /// All shapes fit one kernel.
    Shape,
    /// The kernel, or the memory that it keeps live, is small enough.
    Size,
    /// The loop reaches every row to be computed.
    Steps,
}

impl Condition {
    /// Name in remarks.
    pub fn name(self) -> &'static str {
        match self {
            Condition::Axis => "axis",
            Condition::Uses => "uses",
            Condition::Scale => "scale",
            Condition::Mask => "mask",
            Condition::Transposition => "transposition",
            Condition::Types => "types",
            Condition::Block => "block",
            Condition::Float => "float",
            Condition::Rows => "rows",
            Condition::Chain => "chain",
            Condition::Shape => "shape",
            Condition::Size => "size",
            Condition::Steps => "steps",
        }
    }
}

/// One rewrite that a pass made or missed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Remark {
    /// Name of the pass.
    pub pass: &'static str,
    /// Name of the entry point.
    pub function: String,
    /// Is it the variant that computes taps?
    pub tapped: bool,
    /// Location in the source.
    pub loc: Loc,
    /// Made, or the condition that failed.
    pub outcome: Outcome,
    /// One line: what was done, or what is wrong.
    pub message: String,
    /// Related locations, each with a line of text.
    pub notes: Vec<(Loc, String)>,
    /// Edits of the program that may lead to the missed rewrite; the first that does is meant.
    pub edits: Vec<Edit>,
}

impl Remark {
    /// Do both report the same?
    pub fn is_same(&self, other: &Remark) -> bool {
        let key = |r: &Remark| (r.pass, r.tapped, r.loc, r.outcome);
        key(self) == key(other)
            && (&self.function, &self.message, &self.notes) == (&other.function, &other.message, &other.notes)
    }
}

/// An error in the program that a pass found: what it asks for does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Location in the source.
    pub loc: Loc,
    /// One line.
    pub message: String,
    /// Related locations, each with a line of text.
    pub notes: Vec<(Loc, String)>,
}

impl Refusal {
    pub(super) fn new(loc: Loc, message: impl Into<String>) -> Refusal {
        Refusal { loc, message: message.into(), notes: Vec::new() }
    }
}

impl Context {
    /// Reports an error in the program; the pipeline ends with it.
    pub fn refuse(&mut self, function: &Function, refusal: Refusal) {
        // The variant with taps has the same.
        if !self.refused.contains(&refusal) && !function.tapped || self.refused.is_empty() {
            self.refused.push(refusal);
        }
    }

    /// Reports a rewrite.
    pub fn done(&mut self, function: &Function, loc: Loc, message: impl Into<String>) {
        self.remark(function, loc, Outcome::Done, message.into(), Vec::new(), Vec::new());
    }

    /// Reports a missed rewrite, with related locations.
    pub fn missed(
        &mut self,
        function: &Function,
        loc: Loc,
        condition: Condition,
        message: impl Into<String>,
        notes: Vec<(Loc, String)>,
    ) {
        self.missed_with(function, loc, condition, message, notes, Vec::new());
    }

    /// Reports a missed rewrite, with edits of the program that may lead to it.
    pub fn missed_with(
        &mut self,
        function: &Function,
        loc: Loc,
        condition: Condition,
        message: impl Into<String>,
        notes: Vec<(Loc, String)>,
        edits: Vec<Edit>,
    ) {
        self.remark(function, loc, Outcome::Missed(condition), message.into(), notes, edits);
    }

    fn remark(
        &mut self,
        function: &Function,
        loc: Loc,
        outcome: Outcome,
        message: String,
        notes: Vec<(Loc, String)>,
        edits: Vec<Edit>,
    ) {
        let (name, tapped) = (function.name.clone(), function.tapped);
        let remark = Remark { pass: self.pass, function: name, tapped, loc, outcome, message, notes, edits };
        // A pass that runs twice reports the same rewrite only once, with the edits of the first
        // time, when less of the program was rewritten.
        if !self.remarks.iter().any(|known| known.is_same(&remark)) {
            self.remarks.push(remark);
        }
    }
}

/// `gpt2.attn:22:26`, or the module's name if the location is unknown.
pub fn place_of(loc: Loc, module: &Module) -> String {
    loc.text(&module.name, &module.files)
}

/// The remarks as text, ordered by location; at the same location in the order in which they were
/// made.
pub fn render_remarks(remarks: &[Remark], module: &Module) -> String {
    let mut sorted: Vec<&Remark> = remarks.iter().collect();
    let position = |r: &Remark| module.functions.iter().position(|f| f.name == r.function && f.tapped == r.tapped);
    sorted.sort_by_key(|r| (position(r), r.loc));
    let mut out = String::new();
    for r in sorted {
        let place = place_of(r.loc, module);
        let taps = if r.tapped { " with its taps" } else { "" };
        let outcome = match r.outcome {
            Outcome::Done => String::new(),
            Outcome::Missed(condition) => format!("missed ({}): ", condition.name()),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "remark: {place}: {} in `{}`{taps}: {outcome}{}", r.pass, r.function, r.message);
        for (loc, text) in &r.notes {
            let _ = writeln!(out, "  note: {}: {text}", place_of(*loc, module));
        }
    }
    out
}
