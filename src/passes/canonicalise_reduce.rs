//! canonicalise-reduce: makes a reduction over the last axis keep that axis with extent 1; a
//! `reshape` drops it.
//!
//! ```text
//! func @f(%0 "x": f32[S, 768]) -> (f32[S, 768]) {
//! ^bb0:
//!   %1 = reduce_sum %0, axes=[1]          : f32[S]
//!   %2 = reshape %1                       : f32[S, 1]
//!   %3 = div %0, %2                       : f32[S, 768]
//!   return %3
//! }
//! ->
//! func @f(%0 "x": f32[S, 768]) -> (f32[S, 768]) {
//! ^bb0:
//!   %1 = reduce_sum %0, axes=[1], keep=true : f32[S, 1]
//!   %2 = div %0, %1                       : f32[S, 768]
//!   return %2
//! }
//! ```
//!
//! so that `fuse-rows` sees one number per row, however the author restores the axis. A `reshape`
//! of a `reshape` becomes one, or none if it restores the original shape.
//!
//! # Conditions
//!
//! The reduction is over the last axis alone. The rewrite is exact: it changes only shapes, and
//! `reshape` is a view.
//!
//! # Limits
//!
//! Reductions over other axes, or over several, stay as they are.

use super::rewrite::{Cursor, become_op, made_by, remove_unused, replace_result};
use super::{Changed, Context};
use crate::ir::{Block, Function, Inst, Op};

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut changed = 0;
    for (block, inst) in f.insts().map(|(b, i, _)| (b, i)).collect::<Vec<_>>() {
        // An error of a rule means that the rewrite does not fit; the function is left unchanged.
        if let Ok(true) = rewrite(f, block, inst) {
            changed += 1;
        }
    }
    if changed > 0 {
        remove_unused(f);
    }
    ctx.count("axes kept", changed);
    Changed::from(changed > 0)
}

fn rewrite(f: &mut Function, block: Block, inst: Inst) -> Result<bool, String> {
    let d = f.inst(inst).clone();
    let Some(x) = d.operands.first().copied() else { return Ok(false) };
    match d.op {
        Op::Reduce { kind, axes, keep: false } => {
            let last = f.tensor(x).map(|t| t.rank()).and_then(|r| r.checked_sub(1));
            let [axis] = axes.as_slice() else { return Ok(false) };
            if Some(*axis) != last {
                return Ok(false);
            }
            let at = Cursor::before(f, block, inst);
            let kept = at.insert(f, Op::Reduce { kind, axes, keep: true }, d.operands)?;
            become_op(f, inst, Op::Reshape, vec![kept]);
            Ok(true)
        }
        Op::Reshape => {
            let Some((_, Op::Reshape, [y])) = made_by(f, x) else { return Ok(false) };
            let y = *y;
            if d.result.is_some_and(|v| f.ty(v) == f.ty(y)) {
                replace_result(f, inst, y);
            } else {
                become_op(f, inst, Op::Reshape, vec![y]);
            }
            Ok(true)
        }
        _ => Ok(false),
    }
}
