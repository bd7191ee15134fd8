//! dce: what nothing needs goes.
//!
//! ```text
//! func @f(%0 "x": f32[S]) -> (f32[S]) {
//! ^bb0:
//!   %1 = exp %0                           : f32[S]
//!   br ^bb1(0, %0, %1)
//! ^bb1(%2: index, %3: f32[S], %4: f32[S]):
//!   %5 = lt %2, 3                         : bool[]
//!   br_if %5, ^bb2, ^bb3
//! ^bb2:
//!   %6 = add %4, %3                       : f32[S]
//!   %7 = mul %3, 0.5                      : f32[S]
//!   %8 = add %2, 1                        : index
//!   br ^bb1(%8, %7, %6)
//! ^bb3:
//!   return %3
//! }
//! ->
//! func @f(%0 "x": f32[S]) -> (f32[S]) {
//! ^bb0:
//!   br ^bb1(0, %0)
//! ^bb1(%1: index, %2: f32[S]):
//!   %3 = lt %1, 3                         : bool[]
//!   br_if %3, ^bb2, ^bb3
//! ^bb2:
//!   %4 = mul %2, 0.5                      : f32[S]
//!   %5 = add %1, 1                        : index
//!   br ^bb1(%5, %4)
//! ^bb3:
//!   return %2
//! }
//! ```
//!
//! # Conditions
//!
//! Needed are operations with an effect (taps), conditions of jumps, returned values, and the operands of what is needed;
//! an argument of a block needs what every jump to the block gives for it. All else goes, arguments that only feed
//! themselves around a loop among it. It is exact. An index out of range is an error only where its result is needed.
//!
//! # What it does not do
//!
//! A loop whose results are not needed stays, for its end is not proved. The entry's arguments stay: they are the
//! function's signature. It does not look into fused regions, whose makers leave nothing unused.

use cranelift_entity::SecondaryMap;

use super::{Changed, Context};
use crate::ir::{Function, Terminator, Value, ValueDef};

/// Runs the pass.
pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let live = live_values(f);
    let instructions = f.insts().count();
    f.remove_insts(|_, d| !d.op.has_effect() && !d.result.is_some_and(|v| live[v]));
    let removed = instructions - f.insts().count();
    let mut arguments = 0;
    for b in f.layout.clone().into_iter().skip(1) {
        let dead: Vec<bool> = f.block(b).args.iter().map(|v| !live[*v]).collect();
        if dead.contains(&true) {
            arguments += dead.iter().filter(|d| **d).count();
            f.remove_block_args(b, |i| dead.get(i) == Some(&true));
        }
    }
    ctx.count("instructions removed", removed);
    ctx.count("block arguments removed", arguments);
    Changed::from(removed + arguments > 0)
}

/// The values that are needed, found backwards from the roots.
fn live_values(f: &Function) -> SecondaryMap<Value, bool> {
    let predecessors = f.predecessors();
    let mut work: Vec<Value> = Vec::new();
    for b in &f.layout {
        work.extend(
            f.block(*b).insts.iter().filter(|i| f.inst(**i).op.has_effect()).flat_map(|i| &f.inst(*i).operands),
        );
        match &f.block(*b).terminator {
            Terminator::Br(_) => {}
            Terminator::BrIf { condition, .. } => work.push(*condition),
            Terminator::Return(vs) => work.extend(vs),
        }
    }
    let mut live: SecondaryMap<Value, bool> = SecondaryMap::new();
    while let Some(v) = work.pop() {
        if std::mem::replace(&mut live[v], true) {
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
    live
}
