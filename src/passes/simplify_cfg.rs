//! simplify-cfg: folds constant branches, removes unreachable blocks and redundant arguments,
//! merges blocks.
//!
//! ```text
//! func @f(%0 "x": f32[S]) -> (f32[S]) {
//! ^bb0:
//!   br_if true, ^bb1(%0, 0), ^bb2
//! ^bb1(%1: f32[S], %2: index):
//!   %3 = lt %2, 3                         : bool[]
//!   br_if %3, ^bb3, ^bb4
//! ^bb2:
//!   %4 = exp %0                           : f32[S]
//!   br ^bb1(%4, 0)
//! ^bb3:
//!   %5 = add %2, 1                        : index
//!   br ^bb1(%1, %5)
//! ^bb4:
//!   %6 = neg %1                           : f32[S]
//!   br ^bb5(%6)
//! ^bb5(%7: f32[S]):
//!   return %7
//! }
//! ->
//! func @f(%0 "x": f32[S]) -> (f32[S]) {
//! ^bb0:
//!   br ^bb1(0)
//! ^bb1(%1: index):
//!   %2 = lt %1, 3                         : bool[]
//!   br_if %2, ^bb2, ^bb3
//! ^bb2:
//!   %3 = add %1, 1                        : index
//!   br ^bb1(%3)
//! ^bb3:
//!   %4 = neg %0                           : f32[S]
//!   return %4
//! }
//! ```
//!
//! # Rewrites
//!
//! | name | rewrite | where |
//! |---|---|---|
//! | decided | `br_if true, a, b` to `br a`; also where both targets are the same | the condition is a literal |
//! | unreachable | the block is removed | no path leads to it from the entry |
//! | same-argument | the argument of a block is replaced by its value | all jumps pass one value (or the argument itself), or equal literals |
//! | merge | a block and the only one it jumps to become one | nothing else jumps there |
//! | single-trip | a loop becomes its body | its condition holds on entry and no longer when its body comes back (`single_trip`) |
//!
//! All are exact. They are repeated until none applies, because each may enable others.
//!
//! # Limits
//!
//! It does not copy blocks, rotate loops, or merge two branches into a `where`.

use cranelift_entity::SecondaryMap;

use super::{Changed, Context, single_trip};
use crate::ir::{Block, Function, Loc, Op, Scalar, Terminator, Value};

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut total = 0;
    loop {
        let counts = [
            ("jumps decided", decide(f)),
            ("blocks removed", remove_unreachable(f)),
            ("loops straightened", single_trip::straighten(f)),
            ("arguments removed", same_arguments(f)),
            ("blocks merged", merge(f)),
        ];
        let changed: usize = counts.iter().map(|(_, n)| n).sum();
        counts.into_iter().for_each(|(what, n)| ctx.count(what, n));
        total += changed;
        // Each rewrite reduces the number of jumps, arguments, blocks or loops, so this terminates.
        if changed == 0 {
            return Changed::from(total > 0);
        }
    }
}

fn decide(f: &mut Function) -> usize {
    let mut decided = 0;
    for b in f.layout.clone() {
        let Terminator::BrIf { condition, then, otherwise } = &f.block(b).terminator else { continue };
        let target = match f.as_const(*condition) {
            Some(Scalar::Bool(true)) => then,
            Some(Scalar::Bool(false)) => otherwise,
            _ if then == otherwise => then,
            _ => continue,
        };
        let target = target.clone();
        f.terminate(b, Terminator::Br(target));
        decided += 1;
    }
    decided
}

fn remove_unreachable(f: &mut Function) -> usize {
    let cfg = f.cfg();
    let before = f.layout.len();
    f.layout.retain(|b| cfg.is_reachable(*b));
    before - f.layout.len()
}

fn same_arguments(f: &mut Function) -> usize {
    let predecessors = f.predecessors();
    let mut replaced: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    let mut removed = 0;
    for b in f.layout.clone().into_iter().skip(1) {
        let args = f.block(b).args.clone();
        let mut same = vec![false; args.len()];
        for (at, arg) in args.iter().enumerate() {
            let mut given: Vec<Value> = Vec::new();
            for p in &predecessors[b] {
                for c in f.block(*p).terminator.targets().into_iter().filter(|c| c.block == b) {
                    given.extend(c.args.get(at).map(|v| resolve(&replaced, *v)).filter(|v| v != arg));
                }
            }
            let Some(v) = one_value(f, b, &given) else { continue };
            replaced[*arg] = Some(v);
            same[at] = true;
            removed += 1;
        }
        f.remove_block_args(b, |i| same.get(i) == Some(&true));
    }
    if removed > 0 {
        f.replace_uses(&replaced);
    }
    removed
}

fn resolve(replaced: &SecondaryMap<Value, Option<Value>>, mut v: Value) -> Value {
    // A replacement was resolved when it was recorded, and is replaced itself at most once per
    // block.
    while let Some(w) = replaced[v] {
        v = w;
    }
    v
}

/// The value that all of `given` equal; for equal literals, a new literal at the head of the block.
fn one_value(f: &mut Function, b: Block, given: &[Value]) -> Option<Value> {
    let first = *given.first()?;
    if given.iter().all(|v| *v == first) {
        return Some(first);
    }
    let literal = f.as_const(first)?;
    let ty = f.ty(first).clone();
    if !given.iter().all(|v| f.as_const(*v) == Some(literal) && *f.ty(*v) == ty) {
        return None;
    }
    let inst = f.make_inst(Op::Const(literal), Vec::new(), Some(ty), Loc::default());
    f.block_mut(b).insts.insert(0, inst);
    f.inst(inst).result
}

fn merge(f: &mut Function) -> usize {
    let mut jumps: SecondaryMap<Block, usize> = SecondaryMap::new();
    for b in &f.layout {
        f.block(*b).terminator.targets().into_iter().for_each(|c| jumps[c.block] += 1);
    }
    let mut gone: SecondaryMap<Block, bool> = SecondaryMap::new();
    let mut replaced: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    let mut merged = 0;
    for b in f.layout.clone() {
        while !gone[b]
            && let Terminator::Br(c) = &f.block(b).terminator
        {
            let (next, given) = (c.block, c.args.clone());
            if next == b || next == f.entry() || jumps[next] != 1 {
                break;
            }
            for (arg, v) in f.block(next).args.clone().into_iter().zip(given) {
                replaced[arg] = Some(v);
            }
            let insts = std::mem::take(&mut f.block_mut(next).insts);
            f.block_mut(b).insts.extend(insts);
            let end = f.block(next).terminator.clone();
            f.terminate(b, end);
            gone[next] = true;
            merged += 1;
        }
    }
    if merged > 0 {
        f.layout.retain(|b| !gone[*b]);
        f.replace_uses(&replaced);
    }
    merged
}
