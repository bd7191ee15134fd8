//! What an IR must define for a body of its operations and types.

use std::fmt;
use std::hash::Hasher;

use super::{Inst, Jumps, Value};

/// What of one kind an operation reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touches {
    /// Nothing but operands and result.
    Nothing,
    /// What no call changes: the model's parameters, the types and numbers of the call.
    Parameters,
    /// What may change while the body runs: memory, taps, what is under way, the end of the run itself.
    State,
}

/// What an operation reads and writes besides operands and result. Passes decide by this what may be merged, moved or
/// left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effects {
    /// What it reads.
    pub reads: Touches,
    /// What it writes. Whatever writes is kept though nothing uses its result.
    pub writes: Touches,
    /// Can it be an error of the call, for some operands? Then it is not executed where the program does not. (Where such an
    /// error must be reported though nothing uses the result, the operation *writes* state.)
    pub fails: bool,
}

impl Effects {
    /// Operands alone decide the result.
    pub const NONE: Effects = Effects { reads: Touches::Nothing, writes: Touches::Nothing, fails: false };
    /// Operands alone decide the result, or that there is an error.
    pub const FAILS: Effects = Effects { fails: true, ..Effects::NONE };
    /// Reads what no call changes; an index out of range is an error.
    pub const PARAMETERS: Effects = Effects { reads: Touches::Parameters, fails: true, ..Effects::NONE };
    /// Reads what may change.
    pub const READS: Effects = Effects { reads: Touches::State, ..Effects::NONE };
    /// Writes, and does not look at what was there.
    pub const WRITES: Effects = Effects { writes: Touches::State, ..Effects::NONE };
    /// Reads and writes.
    pub const BOTH: Effects = Effects { reads: Touches::State, ..Effects::WRITES };

    /// Must the operation stay though nothing uses its result?
    pub fn is_kept(self) -> bool {
        self.writes != Touches::Nothing
    }

    /// Does it give the same for the same operands, however often and wherever it stands?
    pub fn is_repeatable(self) -> bool {
        self.writes == Touches::Nothing && self.reads != Touches::State
    }

    /// In a word or two, for the reference.
    pub fn text(self) -> &'static str {
        match (self.reads, self.writes, self.fails) {
            (Touches::Nothing, Touches::Nothing, false) => "none",
            (Touches::Nothing, Touches::Nothing, true) => "may fail",
            (Touches::Parameters, Touches::Nothing, false) => "reads parameters",
            (Touches::Parameters, Touches::Nothing, true) => "reads parameters, may fail",
            (Touches::State, Touches::Nothing, false) => "reads",
            (Touches::State, Touches::Nothing, true) => "reads, may fail",
            (Touches::Nothing | Touches::Parameters, _, false) => "writes",
            (Touches::Nothing | Touches::Parameters, _, true) => "writes, may fail",
            (Touches::State, _, false) => "reads and writes",
            (Touches::State, _, true) => "reads and writes, may fail",
        }
    }
}

/// The operations and types of an IR.
pub trait Dialect: Clone + fmt::Debug {
    /// An operation with its attributes.
    type Op: Clone + fmt::Debug + fmt::Display + PartialEq;
    /// The type of a value.
    type Type: Clone + fmt::Debug + fmt::Display + PartialEq;
    /// How those who run a body part ([`super::Terminator::Roles`]).
    type Roles: Clone + fmt::Debug + PartialEq + Jumps;

    /// How the type of a condition is written.
    const CONDITION: &'static str;

    /// Is this the type of a condition?
    fn is_condition(ty: &Self::Type) -> bool;

    /// The type that a result must have; `None` where there is none.
    ///
    /// # Errors
    /// What does not fit, in words that follow the operation's name.
    fn result_type(
        op: &Self::Op,
        operands: &[&Self::Type],
        declared: Option<&Self::Type>,
    ) -> Result<Option<Self::Type>, String>;

    /// What an operation reads and writes.
    fn effects(op: &Self::Op) -> Effects;

    /// Name of an operation in the text form.
    fn name(op: &Self::Op) -> &'static str;

    /// Hashes an operation: the same for equal ones, and for others rarely.
    fn digest(op: &Self::Op, h: &mut impl Hasher);

    /// May the two operands be exchanged?
    fn is_commutative(op: &Self::Op) -> bool;

    /// The operation as it is kept, which may be a simpler way of saying the same.
    fn canonical(op: Self::Op, _ty: Option<&Self::Type>) -> Self::Op {
        op
    }

    /// The instructions that an operation holds, which are of the same body and stand in no block.
    fn inner(_op: &Self::Op) -> &[Inst] {
        &[]
    }

    /// The same, to be changed.
    fn inner_mut(_op: &mut Self::Op) -> Option<&mut Vec<Inst>> {
        None
    }

    /// Calls `f` on every value that a type names.
    fn for_each_value_of_type(_ty: &Self::Type, _f: &mut dyn FnMut(Value)) {}

    /// The same, to be changed.
    fn for_each_value_of_type_mut(_ty: &mut Self::Type, _f: &mut dyn FnMut(&mut Value)) {}

    /// Calls `f` on every value that an operation's attributes name.
    fn for_each_value_of_op(_op: &Self::Op, _f: &mut dyn FnMut(Value)) {}

    /// The same, to be changed.
    fn for_each_value_of_op_mut(_op: &mut Self::Op, _f: &mut dyn FnMut(&mut Value)) {}
}
