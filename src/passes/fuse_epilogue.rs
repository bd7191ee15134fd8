//! fuse-epilogue: fuses elementwise operations on the result of a matmul into its kernel.
//!
//! ```text
//! func @f(%0 "x": f32[S, 768], %1 "w": f32[768, 3072], %2 "b": f32[3072]) -> (f32[S, 3072]) {
//! ^bb0:
//!   %3 = matmul %0, %1                    : f32[S, 3072]
//!   %4 = add %3, %2                       : f32[S, 3072]
//!   %5 = gelu %4                          : f32[S, 3072]
//!   return %5
//! }
//! ->
//! func @f(%0 "x": f32[S, 768], %1 "w": f32[768, 3072], %2 "b": f32[3072]) -> (f32[S, 3072]) {
//! ^bb0:
//!   %3 = fused matmul(%4 = %0, %5 = %1, %6 = %2) : f32[S, 3072] {
//!     %7 = matmul %4, %5                  : f32[S, 3072]
//!     %8 = add %7, %6                     : f32[S, 3072]
//!     %9 = gelu %8                        : f32[S, 3072]
//!     yield %9
//!   }
//!   return %3
//! }
//! ```
//!
//! Bias, activation, scale, cast and residual are applied while the tile of the result is in
//! registers: the intermediate results are never stored. An `attention` is treated like a matmul;
//! its masks may be in its region already (`fuse-mask`).
//!
//! # Conditions
//!
//! * The operations are elementwise, in the matmul's block, and have a result of the same shape
//!   (`shape`): an operand that broadcasts the result to a larger shape ends the region.
//! * Each depends on the matmul; an operation on other values alone stays outside, and its result
//!   is an operand.
//! * `uses`: only the last result is used elsewhere. If a result is used twice (by `x *
//!   sigmoid(x)`, say), the uses must join again before the end.
//! * `size`: at most 48 operations and 16 operands.
//!
//! It is exact: the operations are the same, in the same order on each element.
//!
//! # Limits
//!
//! One region has one matmul: in `silu(gate(x)) * up(x)` the multiplication joins the later one.
//! Movement (a transpose of the result) ends a region. A matmul without an epilogue stays as it is.

use std::collections::BTreeMap;

use super::outline::{Index, Scene, names, outline};
use super::rewrite::remove_unused;
use super::{Changed, Condition, Context};
use crate::ir::{Function, FusionKind, Inst, Loc, Op, Terminator, Use};

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut fused = 0;
    let mut index = Index::new(f);
    for block in f.layout.clone() {
        // The last matmul first: an operation between two of them joins the later one.
        for root in index.enter(f, block).into_iter().rev() {
            let Some(kind) = kind(&f.inst(root).op) else { continue };
            let found = epilogue(&Scene::new(f, &index), root);
            if let Some((condition, loc, text)) = found.stopped {
                ctx.missed(f, f.inst(root).loc, condition, text, vec![(loc, "here".to_string())]);
            }
            if found.members.len() > 1 {
                ctx.done(f, f.inst(root).loc, format!("one kernel: {}", names(f, &found.members)));
                let operands = f.inst(root).operands.clone();
                outline(f, &mut index, &found.members, kind, &operands);
                fused += 1;
            }
        }
        index.leave(f);
    }
    if fused > 0 {
        // Constants and counters that were copied into the regions.
        remove_unused(f);
    }
    ctx.count("regions made", fused);
    Changed::from(fused > 0)
}

fn kind(op: &Op) -> Option<FusionKind> {
    match op {
        Op::Matmul => Some(FusionKind::Matmul),
        Op::Attention { .. } => Some(FusionKind::Attention),
        // An attention with its masks, but without an epilogue yet.
        Op::Fused { kind: FusionKind::Attention, body } => {
            let block = body.block(body.entry());
            let last = block.insts.last().map(|i| body.inst(*i))?;
            let gives = |v| matches!(&block.terminator, Terminator::Return(results) if results.as_slice() == [v]);
            let is_plain = matches!(last.op, Op::Attention { .. }) && last.result.is_some_and(gives);
            is_plain.then_some(FusionKind::Attention)
        }
        _ => None,
    }
}

struct Epilogue {
    /// The matmul and its epilogue, in the order of the block.
    members: Vec<Inst>,
    /// Why the region ended, if an author may expect it to be larger.
    stopped: Option<(Condition, Loc, String)>,
}

/// Walks down from the matmul, users in the order of the block, and keeps the longest run of which
/// only the last result is used elsewhere.
fn epilogue(scene: &Scene, root: Inst) -> Epilogue {
    let f = scene.f;
    let mut members = vec![root];
    let mut best = 1;
    let mut stopped = None;
    let Some(shape) = scene.result(root).map(|t| t.shape.clone()) else { return Epilogue { members, stopped } };
    let mut next: BTreeMap<usize, Inst> = BTreeMap::new();
    add_users(scene, root, &mut next);
    while let Some((_, i)) = next.pop_first() {
        let d = f.inst(i);
        let fits_shape = scene.result(i).is_some_and(|t| t.shape == shape);
        if !scene.is_elementwise(i) || !fits_shape {
            // Another user of a member that cannot join ends the region before that member's next
            // user.
            if scene.is_elementwise(i) && members.len() == best {
                let text = format!("`{}` broadcasts the result to another shape", d.op);
                stopped = Some((Condition::Shape, d.loc, text));
            }
            continue;
        }
        members.push(i);
        if !scene.fits(&members) {
            members.pop();
            stopped = Some((Condition::Size, d.loc, format!("`{}` would make the kernel too large", d.op)));
            break;
        }
        add_users(scene, i, &mut next);
        if closed(scene, &members) {
            best = members.len();
        }
    }
    if stopped.is_none() && best < members.len() {
        stopped = second_use(scene, &members, best);
    }
    members.truncate(best);
    Epilogue { members, stopped }
}

/// Adds the users of a result in this block.
fn add_users(scene: &Scene, i: Inst, next: &mut BTreeMap<usize, Inst>) {
    let uses = scene.f.inst(i).result.map_or(&[][..], |v| scene.uses(v));
    for u in uses {
        if let Use::Operand(user, _) = u
            && let Some(at) = scene.position(*user)
        {
            next.insert(at, *user);
        }
    }
}

/// Is every member but the last used by members alone?
fn closed(scene: &Scene, members: &[Inst]) -> bool {
    members.split_last().is_some_and(|(_, others)| others.iter().all(|i| scene.used_only_by(*i, members)))
}

/// The use that ends the region, for a remark.
fn second_use(scene: &Scene, members: &[Inst], best: usize) -> Option<(Condition, Loc, String)> {
    let f = scene.f;
    let next = f.inst(*members.get(best)?);
    let last = f.inst(*members.get(best.checked_sub(1)?)?);
    let elsewhere = scene.uses(last.result?).iter().find_map(|u| match u {
        Use::Operand(i, _) if !members.contains(i) => Some((f.inst(*i).loc, format!("`{}`", f.inst(*i).op))),
        Use::Operand(..) => None,
        Use::Terminator(_) => Some((Loc::default(), "the end of its block".to_string())),
    });
    let (loc, user) = elsewhere?;
    let text = format!("`{}` stays outside: `{}` before it is also used by {user}", next.op, last.op);
    Some((Condition::Uses, if loc.line > 0 { loc } else { next.loc }, text))
}
