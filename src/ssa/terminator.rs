//! Terminators: how blocks end.

use std::convert::Infallible;

use super::{Block, Value};

/// A jump to a block with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockCall {
    /// The target block.
    pub block: Block,
    /// Values for the target's arguments.
    pub args: Vec<Value>,
}

/// An IR's additional terminators, seen as a list of jumps.
pub trait Jumps {
    /// The jumps, in order.
    fn targets(&self) -> Vec<&BlockCall>;
    /// The jumps, mutable.
    fn targets_mut(&mut self) -> Vec<&mut BlockCall>;
}

impl Jumps for Infallible {
    fn targets(&self) -> Vec<&BlockCall> {
        match *self {}
    }

    fn targets_mut(&mut self) -> Vec<&mut BlockCall> {
        match *self {}
    }
}

/// The end of a block. `R`: an IR's terminator that splits threads into roles, if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Terminator<R> {
    /// An unconditional jump.
    Br(BlockCall),
    /// A conditional branch.
    BrIf {
        /// The condition, a boolean.
        condition: Value,
        /// Target if the condition holds.
        then: BlockCall,
        /// Target if it does not.
        otherwise: BlockCall,
    },
    /// Returns the results of the body.
    Return(Vec<Value>),
    /// Splits threads into roles, each with its own blocks; they never join again.
    Roles(R),
}

impl<R: Jumps> Terminator<R> {
    /// The jumps, in order.
    pub fn targets(&self) -> Vec<&BlockCall> {
        match self {
            Terminator::Br(c) => vec![c],
            Terminator::BrIf { then, otherwise, .. } => vec![then, otherwise],
            Terminator::Return(_) => Vec::new(),
            Terminator::Roles(roles) => roles.targets(),
        }
    }

    /// The jumps, mutable.
    pub fn targets_mut(&mut self) -> Vec<&mut BlockCall> {
        match self {
            Terminator::Br(c) => vec![c],
            Terminator::BrIf { then, otherwise, .. } => vec![then, otherwise],
            Terminator::Return(_) => Vec::new(),
            Terminator::Roles(roles) => roles.targets_mut(),
        }
    }

    /// Calls `f` on every used value.
    pub fn for_each_value(&self, mut f: impl FnMut(Value)) {
        match self {
            Terminator::Br(c) => c.args.iter().for_each(|v| f(*v)),
            Terminator::BrIf { condition, then, otherwise } => {
                f(*condition);
                then.args.iter().chain(&otherwise.args).for_each(|v| f(*v));
            }
            Terminator::Return(vs) => vs.iter().for_each(|v| f(*v)),
            Terminator::Roles(roles) => roles.targets().iter().flat_map(|c| &c.args).for_each(|v| f(*v)),
        }
    }

    /// Calls `f` on every used value, mutable.
    pub fn for_each_value_mut(&mut self, mut f: impl FnMut(&mut Value)) {
        match self {
            Terminator::Br(c) => c.args.iter_mut().for_each(f),
            Terminator::BrIf { condition, then, otherwise } => {
                f(condition);
                then.args.iter_mut().chain(&mut otherwise.args).for_each(f);
            }
            Terminator::Return(vs) => vs.iter_mut().for_each(f),
            Terminator::Roles(roles) => roles.targets_mut().into_iter().flat_map(|c| &mut c.args).for_each(f),
        }
    }

    /// The used values.
    pub fn values(&self) -> Vec<Value> {
        let mut out = Vec::new();
        self.for_each_value(|v| out.push(v));
        out
    }
}
