//! Terminators: how blocks end.

use std::convert::Infallible;

use super::{Block, Value};

/// A jump to a block with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockCall {
    /// The target.
    pub block: Block,
    /// Values for the target's arguments.
    pub args: Vec<Value>,
}

/// What an IR adds to the ways in which a block can end, by the jumps in it.
pub trait Jumps {
    /// The jumps, in order.
    fn targets(&self) -> Vec<&BlockCall>;
    /// The jumps, to be changed.
    fn targets_mut(&mut self) -> Vec<&mut BlockCall>;
}

/// Nothing is added.
impl Jumps for Infallible {
    fn targets(&self) -> Vec<&BlockCall> {
        match *self {}
    }

    fn targets_mut(&mut self) -> Vec<&mut BlockCall> {
        match *self {}
    }
}

/// How a block ends. `R`: how an IR says that those who run the body part, if it can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Terminator<R> {
    /// Goes on at a block.
    Br(BlockCall),
    /// Goes on at the first block if the condition (a truth value) holds, else at the second.
    BrIf {
        /// The condition.
        condition: Value,
        /// Where it goes if the condition holds.
        then: BlockCall,
        /// Where it goes if not.
        otherwise: BlockCall,
    },
    /// Leaves the body with its results.
    Return(Vec<Value>),
    /// Those who run the body part, each role with blocks of its own; they do not join again.
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

    /// The jumps, to be changed.
    pub fn targets_mut(&mut self) -> Vec<&mut BlockCall> {
        match self {
            Terminator::Br(c) => vec![c],
            Terminator::BrIf { then, otherwise, .. } => vec![then, otherwise],
            Terminator::Return(_) => Vec::new(),
            Terminator::Roles(roles) => roles.targets_mut(),
        }
    }

    /// Calls `f` on every value that is used.
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

    /// Calls `f` on every value that is used, to be changed.
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

    /// The values that are used.
    pub fn values(&self) -> Vec<Value> {
        let mut out = Vec::new();
        self.for_each_value(|v| out.push(v));
        out
    }
}
