//! The interface of an IR to the shared SSA body.

use std::fmt;
use std::hash::Hasher;

use super::{Inst, Jumps, Value};

/// State that an operation reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touches {
    /// Only operands and result.
    Nothing,
    /// State that is constant during a call: the model's parameters, the call's types and
    /// dimensions.
    Parameters,
    /// State that may change while the body runs: memory, taps, pending operations, termination.
    State,
}

/// Effects of an operation besides operands and result. Passes use them to decide what may be
/// merged, moved or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effects {
    /// State that it reads.
    pub reads: Touches,
    /// State that it writes. An operation that writes is kept even if its result is unused.
    pub writes: Touches,
    /// Can it fail for some operands? Then it must not be executed speculatively. (If the error
    /// must be reported even if the result is unused, the operation *writes* state.)
    pub fails: bool,
}

impl Effects {
    /// Pure: operands determine the result.
    pub const NONE: Effects = Effects { reads: Touches::Nothing, writes: Touches::Nothing, fails: false };
    /// Operands determine the result, or failure.
    pub const FAILS: Effects = Effects { fails: true, ..Effects::NONE };
    /// Reads constant state; an index out of range is an error.
    pub const PARAMETERS: Effects = Effects { reads: Touches::Parameters, fails: true, ..Effects::NONE };
    /// Reads mutable state.
    pub const READS: Effects = Effects { reads: Touches::State, ..Effects::NONE };
    /// Writes without reading.
    pub const WRITES: Effects = Effects { writes: Touches::State, ..Effects::NONE };
    /// Reads and writes mutable state.
    pub const BOTH: Effects = Effects { reads: Touches::State, ..Effects::WRITES };

    /// Must the operation be kept even if its result is unused?
    pub fn is_kept(self) -> bool {
        self.writes != Touches::Nothing
    }

    /// Is the result always the same for the same operands, anywhere and any number of times?
    pub fn is_repeatable(self) -> bool {
        self.writes == Touches::Nothing && self.reads != Touches::State
    }

    /// Short text for the reference.
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
    /// The split of threads into roles ([`super::Terminator::Roles`]).
    type Roles: Clone + fmt::Debug + PartialEq + Jumps;

    /// Text of the type of a condition.
    const CONDITION: &'static str;

    /// Is this the type of a condition?
    fn is_condition(ty: &Self::Type) -> bool;

    /// The type of the result; `None` for an operation without one.
    ///
    /// # Errors
    /// A type error, as text that follows the operation's name.
    fn result_type(
        op: &Self::Op,
        operands: &[&Self::Type],
        declared: Option<&Self::Type>,
    ) -> Result<Option<Self::Type>, String>;

    /// Effects of an operation.
    fn effects(op: &Self::Op) -> Effects;

    /// Name of an operation in the text form.
    fn name(op: &Self::Op) -> &'static str;

    /// Hashes an operation: the same for equal ones, and for others rarely.
    fn digest(op: &Self::Op, h: &mut impl Hasher);

    /// May the two operands be exchanged?
    fn is_commutative(op: &Self::Op) -> bool;

    /// The canonical form of an operation.
    fn canonical(op: Self::Op, _ty: Option<&Self::Type>) -> Self::Op {
        op
    }

    /// The nested instructions of an operation, which belong to the same body but to no block.
    fn inner(_op: &Self::Op) -> &[Inst] {
        &[]
    }

    /// The same, mutable.
    fn inner_mut(_op: &mut Self::Op) -> Option<&mut Vec<Inst>> {
        None
    }

    /// Calls `f` on every value that a type refers to.
    fn for_each_value_of_type(_ty: &Self::Type, _f: &mut dyn FnMut(Value)) {}

    /// The same, mutable.
    fn for_each_value_of_type_mut(_ty: &mut Self::Type, _f: &mut dyn FnMut(&mut Value)) {}

    /// Calls `f` on every value that an operation's attributes refer to.
    fn for_each_value_of_op(_op: &Self::Op, _f: &mut dyn FnMut(Value)) {}

    /// The same, mutable.
    fn for_each_value_of_op_mut(_op: &mut Self::Op, _f: &mut dyn FnMut(&mut Value)) {}
}
