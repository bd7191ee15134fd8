//! canonicalise-transpose: attention written over transposed scores becomes `softmax(q @ k.T) @ v`.
//!
//! ```text
//! func @f(%0 "q.T": f32[64, S], %1 "k": f32[T, 64], %2 "v": f32[T, 64]) -> (f32[S, 64]) {
//! ^bb0:
//!   %3 = matmul %1, %0                    : f32[T, S]
//!   %4 = softmax %3, axis=0               : f32[T, S]
//!   %5 = transpose %4, perm=[1, 0]        : f32[S, T]
//!   %6 = matmul %5, %2                    : f32[S, 64]
//!   return %6
//! }
//! ->
//! func @f(%0 "q.T": f32[64, S], %1 "k": f32[T, 64], %2 "v": f32[T, 64]) -> (f32[S, 64]) {
//! ^bb0:
//!   %3 = transpose %1, perm=[1, 0]        : f32[64, T]
//!   %4 = transpose %0, perm=[1, 0]        : f32[S, 64]
//!   %5 = matmul %4, %3                    : f32[S, T]
//!   %6 = softmax %5, axis=1               : f32[S, T]
//!   %7 = matmul %6, %2                    : f32[S, 64]
//!   return %7
//! }
//! ```
//!
//! # Rewrites
//!
//! All are exact: the same terms are summed in the same order.
//!
//! | name | rewrite | where |
//! |---|---|---|
//! | compose | `transpose(transpose(x))` to one, and none if that leaves the axes in order | anywhere |
//! | softmax | `transpose(softmax(x, axis=a))` to `softmax(transpose(x), axis=b)`, b being where a went | left of a matmul |
//! | elementwise | `transpose(f(x, y))` to `f(transpose(x), transpose(y))`, numbers as they are | before a softmax |
//! | matmul | `transpose(a @ b)`, last two axes, to `transpose(b) @ transpose(a)` | before a softmax |
//! | weights-right | `a @ transpose(w)`, w from a softmax, to `transpose(w @ transpose(a))` | right of a matmul |
//!
//! A value that is transposed must have no other use, or it would be computed twice.
//!
//! # Limits
//!
//! Other transposes stay where they are: they are views, and free where they feed a matmul.

use super::rewrite::{
    Cursor, Uses, become_op, feeds_softmax, made_by, only_user, remove_unused, replace_result, swap_last,
};
use super::{Changed, Context};
use crate::ir::{Block, Function, Inst, Op, Value};

/// The maximum number of sweeps over the function; each moves a transpose one step up.
const MAX_SWEEPS: usize = 64;

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut changed = 0;
    for _ in 0..MAX_SWEEPS {
        let before = changed;
        // Values created in this round have no entry in `uses`; they wait for the next round.
        let uses = f.uses();
        for (block, inst) in f.insts().map(|(b, i, _)| (b, i)).collect::<Vec<_>>() {
            if let Ok(Some(name)) = rewrite(f, &uses, block, inst) {
                changed += 1;
                ctx.count(name, 1);
            }
        }
        if changed == before {
            break;
        }
        remove_unused(f);
    }
    Changed::from(changed > 0)
}

/// Applies one rewrite at an instruction; returns its name.
fn rewrite(f: &mut Function, uses: &Uses, block: Block, inst: Inst) -> Result<Option<&'static str>, String> {
    match f.inst(inst).op.clone() {
        Op::Transpose { perm } => transpose(f, uses, block, inst, &perm),
        Op::Matmul => weights_right(f, uses, block, inst),
        _ => Ok(None),
    }
}

fn transpose(
    f: &mut Function,
    uses: &Uses,
    block: Block,
    inst: Inst,
    perm: &[usize],
) -> Result<Option<&'static str>, String> {
    let Some(x) = f.inst(inst).operands.first().copied() else { return Ok(None) };
    if perm.is_sorted() {
        replace_result(f, inst, x);
        f.remove_insts(|i, _| i == inst);
        return Ok(Some("compose"));
    }
    let Some((maker, op, operands)) = made_by(f, x).map(|(i, op, o)| (i, op.clone(), o.to_vec())) else {
        return Ok(None);
    };
    if let Op::Transpose { perm: inner } = &op {
        let perm = perm.iter().filter_map(|p| inner.get(*p).copied()).collect();
        become_op(f, inst, Op::Transpose { perm }, operands);
        return Ok(Some("compose"));
    }
    // Only a swap of the last two axes exchanges rows and columns of scores.
    let rank = perm.len();
    let moves_up = matches!(op, Op::Softmax { .. } | Op::Unary(_) | Op::Binary(_) | Op::Where | Op::Matmul);
    if perm != swap_last(rank) || !moves_up {
        return Ok(None);
    }
    if uses[x].len() != 1 || !f.block(block).insts.contains(&maker) {
        return Ok(None);
    }
    let swap = Op::Transpose { perm: perm.to_vec() };
    let at = Cursor { loc: f.inst(maker).loc, ..Cursor::before(f, block, inst) };
    match op {
        Op::Softmax { axis } if is_left_of_matmul(f, uses, inst) => {
            let Some(to) = perm.iter().position(|p| *p == axis) else { return Ok(None) };
            let turned = at.insert(f, swap, operands)?;
            become_op(f, inst, Op::Softmax { axis: to }, vec![turned]);
            f.inst_mut(inst).loc = at.loc;
            Ok(Some("softmax"))
        }
        Op::Unary(_) | Op::Binary(_) | Op::Where if feeds_softmax(f, uses, inst) => {
            let rank_of = |f: &Function, v: Value| f.tensor(v).map(|t| t.rank());
            if !operands.iter().all(|v| matches!(rank_of(f, *v), Some(r) if r == 0 || r == rank)) {
                return Ok(None);
            }
            let mut turned = Vec::new();
            for v in operands {
                turned.push(if rank_of(f, v) == Some(0) { v } else { at.insert(f, swap.clone(), vec![v])? });
            }
            become_op(f, inst, op, turned);
            f.inst_mut(inst).loc = at.loc;
            Ok(Some("elementwise"))
        }
        Op::Matmul if feeds_softmax(f, uses, inst) => {
            let [a, b] = operands.as_slice() else { return Ok(None) };
            let (a, b) = (swapped(f, at, *a)?, swapped(f, at, *b)?);
            become_op(f, inst, Op::Matmul, vec![b, a]);
            f.inst_mut(inst).loc = at.loc;
            Ok(Some("matmul"))
        }
        _ => Ok(None),
    }
}

/// Transposes the last two axes of a value.
fn swapped(f: &mut Function, at: Cursor, v: Value) -> Result<Value, String> {
    let rank = f.tensor(v).map_or(0, |t| t.rank());
    at.insert(f, Op::Transpose { perm: swap_last(rank) }, vec![v])
}

/// Rewrites `a @ transpose(w)` so that the weights are the left operand.
fn weights_right(f: &mut Function, uses: &Uses, block: Block, inst: Inst) -> Result<Option<&'static str>, String> {
    let [a, w] = f.inst(inst).operands.as_slice() else { return Ok(None) };
    let (a, w) = (*a, *w);
    let rank = f.tensor(w).map_or(0, |t| t.rank());
    let weights = match made_by(f, w) {
        Some((_, Op::Transpose { perm }, [x])) if *perm == swap_last(rank) => *x,
        Some((_, Op::Softmax { axis }, _)) if axis + 2 == rank => w,
        _ => return Ok(None),
    };
    if !matches!(made_by(f, weights), Some((_, Op::Softmax { .. }, _)))
        || uses[w].len() != 1
        || uses[weights].len() != 1
    {
        return Ok(None);
    }
    let at = Cursor::before(f, block, inst);
    let left = if weights == w { swapped(f, at, w)? } else { weights };
    let right = swapped(f, at, a)?;
    let product = at.insert(f, Op::Matmul, vec![left, right])?;
    let rank = f.tensor(product).map_or(0, |t| t.rank());
    become_op(f, inst, Op::Transpose { perm: swap_last(rank) }, vec![product]);
    Ok(Some("weights-right"))
}

fn is_left_of_matmul(f: &Function, uses: &Uses, inst: Inst) -> bool {
    only_user(f, uses, inst).is_some_and(|(i, at)| at == 0 && f.inst(i).op == Op::Matmul)
}
