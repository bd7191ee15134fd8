//! cse: what was computed before is not computed again (common subexpressions).
//!
//! ```text
//! func @f(%0 "x": f32[S], %1 "y": f32[S], %2 "c": bool[]) -> (f32[S]) {
//! ^bb0:
//!   %3 = mul %0, %1                       : f32[S]
//!   %4 = exp %3                           : f32[S]
//!   br_if %2, ^bb1, ^bb2(%4)
//! ^bb1:
//!   %5 = mul %1, %0                       : f32[S]
//!   %6 = add %5, %4                       : f32[S]
//!   br ^bb2(%6)
//! ^bb2(%7: f32[S]):
//!   %8 = exp %3                           : f32[S]
//!   %9 = sub %7, %8                       : f32[S]
//!   return %9
//! }
//! ->
//! func @f(%0 "x": f32[S], %1 "y": f32[S], %2 "c": bool[]) -> (f32[S]) {
//! ^bb0:
//!   %3 = mul %0, %1                       : f32[S]
//!   %4 = exp %3                           : f32[S]
//!   br_if %2, ^bb1, ^bb2(%4)
//! ^bb1:
//!   %5 = add %3, %4                       : f32[S]
//!   br ^bb2(%5)
//! ^bb2(%6: f32[S]):
//!   %7 = sub %6, %4                       : f32[S]
//!   return %7
//! }
//! ```
//!
//! # Conditions
//!
//! Two instructions are the same if operation, attributes, operands and type are; the operands of a commutative
//! operation in either order. The earlier one stands in a block that dominates the later one's (or before it in the same
//! block). Operations without an effect depend on nothing else: parameters do not change during a call. What only taps need is
//! merged with its like alone: calls that do not ask for the tap do not compute it. It is exact.
//!
//! # What it does not do
//!
//! What is computed on two ways that meet is not moved before them. Taps stay, each for its own path. Fused regions are
//! compared as a whole; constants are compared too, which the text, where they stand in their users, does not show.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;

use super::separate_taps::apart;
use super::{Changed, Context};
use crate::ir::{Block, Cfg, Function, Inst, Op, Value};

/// What candidates have in common, and whether only taps need them; the rest is compared one by one.
type Key = (&'static str, Vec<Value>, bool);

/// Runs the pass.
pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let cfg = Cfg::new(f);
    let needed = apart(f);
    let mut known: BTreeMap<Key, Vec<(Inst, Block)>> = BTreeMap::new();
    let mut replaced: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    let mut dead: SecondaryMap<Inst, bool> = SecondaryMap::new();
    let mut found = 0;
    // Dominators come first, so operands are already those that stay.
    for b in cfg.dominator_order() {
        for i in f.block(b).insts.clone() {
            for v in &mut f.inst_mut(i).operands {
                if let Some(w) = replaced[*v] {
                    *v = w;
                }
            }
            let inst = f.inst(i);
            let Some(result) = inst.result.filter(|_| !inst.op.has_effect()) else { continue };
            let for_taps = needed.as_ref().is_some_and(|needed| !needed[result]);
            let candidates = known.entry(key(&inst.op, &inst.operands, for_taps)).or_default();
            let same = candidates.iter().find_map(|(j, at)| {
                let earlier = f.inst(*j);
                let v = earlier.result?;
                let alike = earlier.op == inst.op && f.ty(v) == f.ty(result) && cfg.dominates(*at, b);
                alike.then_some(v)
            });
            match same {
                Some(v) => {
                    replaced[result] = Some(v);
                    dead[i] = true;
                    found += 1;
                }
                None => candidates.push((i, b)),
            }
        }
    }
    if found > 0 {
        f.replace_uses(&replaced);
        f.remove_insts(|i, _| dead[i]);
    }
    ctx.count("instructions merged", found);
    Changed::from(found > 0)
}

fn key(op: &Op, operands: &[Value], for_taps: bool) -> Key {
    let mut operands = operands.to_vec();
    if matches!(op, Op::Binary(b) if b.is_commutative()) {
        operands.sort_unstable();
    }
    (op.info().name, operands, for_taps)
}
