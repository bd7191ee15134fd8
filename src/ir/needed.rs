//! Which values a function needs: for everything, or for its results alone.
//!
//! In: a function. Out: for each value whether it is needed. What only a tap needs is computed in a call that asks for the
//! tap, and in no other: passes keep such instructions apart from the others (`passes::separate_taps`), and lowering puts
//! them behind a jump.

use cranelift_entity::SecondaryMap;

use super::{Block, Function, Op, Terminator, Value, ValueDef};

/// The values that are needed: for operations with an effect, conditions of jumps and results. An argument of a block needs
/// what every jump to the block gives for it.
pub fn needed(f: &Function) -> SecondaryMap<Value, bool> {
    let predecessors = f.predecessors();
    let mut work: Vec<Value> = Vec::new();
    for b in &f.layout {
        work.extend(operands_of_effects(f, *b, Op::has_effect));
        match &f.block(*b).terminator {
            Terminator::Br(_) => {}
            Terminator::BrIf { condition, .. } => work.push(*condition),
            Terminator::Return(vs) => work.extend(vs),
        }
    }
    let mut needed: SecondaryMap<Value, bool> = SecondaryMap::new();
    while let Some(v) = work.pop() {
        if std::mem::replace(&mut needed[v], true) {
            continue;
        }
        match f.def(v) {
            ValueDef::Result(i) => work.extend(&f.inst(i).operands),
            ValueDef::Arg(block, at) => {
                for p in &predecessors[block] {
                    let calls = f.block(*p).terminator.targets().into_iter().filter(|c| c.block == block);
                    work.extend(calls.filter_map(|c| c.args.get(at)));
                }
            }
        }
    }
    needed
}

/// The values that are needed whether or not a call asks for taps: for other effects, and for all that jumps and returns give.
pub fn needed_without_taps(f: &Function) -> SecondaryMap<Value, bool> {
    let mut work: Vec<Value> = Vec::new();
    for b in &f.layout {
        work.extend(operands_of_effects(f, *b, |op| op.has_effect() && !matches!(op, Op::Tap { .. })));
        f.block(*b).terminator.for_each_value(|v| work.push(v));
    }
    let mut needed: SecondaryMap<Value, bool> = SecondaryMap::new();
    while let Some(v) = work.pop() {
        if std::mem::replace(&mut needed[v], true) {
            continue;
        }
        if let ValueDef::Result(i) = f.def(v) {
            work.extend(&f.inst(i).operands);
        }
    }
    needed
}

fn operands_of_effects<'a>(
    f: &'a Function,
    block: Block,
    has_effect: impl Fn(&Op) -> bool + 'a,
) -> impl Iterator<Item = Value> + 'a {
    let insts = f.block(block).insts.iter().map(|i| f.inst(*i));
    insts.filter(move |d| has_effect(&d.op)).flat_map(|d| d.operands.iter().copied())
}
