//! Remarks: what a pass did, or which condition kept it from doing it, and where.
//!
//! In: remarks as data, pushed by passes through [`Context`]. Out: lines of text with places in the source.

use std::fmt::Write as _;

use super::Context;
use crate::ir::{Function, Loc, Module};

/// Was it done?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The rewrite was made.
    Done,
    /// It was not made, for the named condition.
    Missed(Condition),
}

/// The conditions that a fusion must prove. A missed one is named in the remark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Condition {
    /// The softmax, or the reduction, is over the last axis.
    Axis,
    /// No intermediate is used elsewhere.
    Uses,
    /// What multiplies the scores is one number.
    Scale,
    /// What hides scores is a boolean or additive mask that leaves their shape.
    Mask,
    /// The operands of the matmuls are as the fused form needs them.
    Transposition,
    /// Element types stay the same throughout.
    Types,
    /// Everything is in one block.
    Block,
    /// The float mode allows it.
    Float,
    /// No row of the softmax is all `-inf`.
    Rows,
    /// Nothing else is in between.
    Chain,
    /// Shapes are those of one kernel.
    Shape,
    /// The kernel, or what is kept in memory, stays small enough.
    Size,
    /// The loop has as many iterations as there are steps to compute.
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

/// What a pass did or did not do at one place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Remark {
    /// The pass.
    pub pass: &'static str,
    /// The entry point.
    pub function: String,
    /// Is it the variant that fills its taps?
    pub tapped: bool,
    /// The place in the source.
    pub loc: Loc,
    /// Was it done?
    pub outcome: Outcome,
    /// What was done, or what is wrong, in one line.
    pub message: String,
    /// Other places that matter, each with a line.
    pub notes: Vec<(Loc, String)>,
}

impl Context {
    /// Tells of a rewrite.
    pub fn done(&mut self, function: &Function, loc: Loc, message: impl Into<String>) {
        self.remark(function, loc, Outcome::Done, message.into(), Vec::new());
    }

    /// Tells of a rewrite that was not made, with other places that matter.
    pub fn missed(
        &mut self,
        function: &Function,
        loc: Loc,
        condition: Condition,
        message: impl Into<String>,
        notes: Vec<(Loc, String)>,
    ) {
        self.remark(function, loc, Outcome::Missed(condition), message.into(), notes);
    }

    fn remark(&mut self, function: &Function, loc: Loc, outcome: Outcome, message: String, notes: Vec<(Loc, String)>) {
        let (name, tapped) = (function.name.clone(), function.tapped);
        let remark = Remark { pass: self.pass, function: name, tapped, loc, outcome, message, notes };
        // A pass that runs twice says the same only once.
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }
}

/// `gpt2.attn:22:26`, or the module's name alone where there is no place.
pub fn place_of(loc: Loc, module: &Module) -> String {
    loc.text(&module.name, &module.files)
}

/// The remarks as text, in order of place; those of equal place in the order in which they were made.
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
