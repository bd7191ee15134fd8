//! Which values a function needs whether or not a call requests taps.
//!
//! In: a function. Out: for each value whether it is needed. What only a tap needs is computed only in calls that request
//! the tap: passes keep such instructions apart from the others (`passes::separate_taps`), and lowering puts
//! them after a jump.

use cranelift_entity::SecondaryMap;

use super::{Block, Function, Op, Value, ValueDef};

/// The values that are needed whether or not a call requests taps: for other effects, and for all that jumps and returns give.
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
