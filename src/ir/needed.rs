//! Liveness without taps: the values that a function needs even if a call requests no taps.
//!
//! In: a function. Out: for each value, whether it is needed. Operations that only a tap needs run
//! only in calls that request the tap: passes keep such instructions apart from the others
//! (`passes::separate_taps`), and lowering puts them behind a branch.

use cranelift_entity::SecondaryMap;

use super::{Block, Function, Op, Value, ValueDef};

/// The values that are needed even without taps: by other effects, jumps and returns.
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
