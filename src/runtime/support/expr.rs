//! Evaluates the descriptor's dimension expressions, with checked arithmetic.

use crate::abi::{ExprOp, Slice, op};
use crate::error::{Result, fail};

/// The value of `e` with `symbols` as the run-time dimensions.
pub(crate) fn eval(e: &Slice<ExprOp>, symbols: &[i64]) -> Result<i64> {
    let mut stack = [0i64; op::STACK];
    let mut depth = 0usize;
    for o in e.get() {
        let value = match o.op {
            op::CONST => Some(o.value),
            op::SYMBOL => usize::try_from(o.value).ok().and_then(|i| symbols.get(i)).copied(),
            _ => {
                let (Some(&a), Some(&b)) = (stack.get(depth.wrapping_sub(2)), stack.get(depth.wrapping_sub(1))) else {
                    fail!(Internal, "a dimension expression ran out of operands")
                };
                depth -= 2;
                binary(o.op, a, b)
            }
        };
        let Some(value) = value else { fail!(Tensor, "a dimension or size is too large, or is not an integer") };
        let Some(slot) = stack.get_mut(depth) else { fail!(Internal, "a dimension expression is too deep") };
        *slot = value;
        depth += 1;
    }
    match (depth, stack.first()) {
        (1, Some(v)) => Ok(*v),
        _ => fail!(Internal, "a dimension expression leaves {depth} values"),
    }
}

fn binary(code: i64, a: i64, b: i64) -> Option<i64> {
    // Floor division, as in the language.
    let floor = || {
        let (q, r) = (a.checked_div(b)?, a.checked_rem(b)?);
        Some(if r != 0 && (r < 0) != (b < 0) { (q.checked_sub(1)?, r.checked_add(b)?) } else { (q, r) })
    };
    match code {
        op::ADD => a.checked_add(b),
        op::SUB => a.checked_sub(b),
        op::MUL => a.checked_mul(b),
        op::DIV_EXACT => floor().and_then(|(q, r)| (r == 0).then_some(q)),
        op::DIV_FLOOR => floor().map(|(q, _)| q),
        op::MOD => floor().map(|(_, r)| r),
        op::MIN => Some(a.min(b)),
        op::MAX => Some(a.max(b)),
        _ => None,
    }
}
