//! Which products of `bf16` take their steps in pairs where the processor can (`vdpbf16ps`): every back end asks here, so
//! that all of them round alike.
//!
//! In: a `dot` of a scheduled kernel. Out: yes or no. What it must not know: how either back end makes code of it.

use crate::scalar::Scalar;
use crate::shape::Elem;
use crate::tile::{self, Body, InstData, Op, Type, Width};

/// Bytes from row to row of what may be a panel: leaves write out what they fetch ahead, and that grows with it.
pub(in crate::codegen) const MOST_PITCH: i32 = 4096;

/// Do the sums of a product start with a number, and is that 0? `None`: they go on from a tile.
pub(in crate::codegen) fn starts_with_zero(body: &Body, acc: tile::Value) -> Option<bool> {
    // What is a number here is only known by what makes it.
    let zero = |d: &InstData| matches!(d.op, Op::Const(Scalar::Float(x)) if x.to_bits() == 0);
    matches!(body.ty(acc), Type::Scalar(_)).then(|| body.def_inst(acc).is_some_and(zero))
}

/// Does a product take its steps in pairs at 512 bits? Where its right operand has pairs of one or two
/// vectors of columns, its left one is a window of `bf16` with dense steps, and the number of steps is certainly even: all of
/// them are inside of the window, so pairs never reach past it.
pub(in crate::codegen) fn takes_pairs(body: &Body, data: &InstData) -> bool {
    let [a, b, acc] = data.operands.as_slice() else { return false };
    let (Some(left), Some(right)) = (body.def_inst(*a), body.def_inst(*b)) else { return false };
    let Op::Window { cols: Some(axis), .. } = &left.op else { return false };
    let buffer = |d: &InstData| d.operands.first().and_then(|v| body.ty(*v).buffer());
    let near = match right.op {
        Op::LoadPairs => {
            let from_row_to_row = buffer(right).and_then(|panel| panel.strides.iter().rev().nth(2)?.as_const());
            from_row_to_row.is_some_and(|n| (0..=i64::from(MOST_PITCH / 2)).contains(&n))
        }
        Op::PairRows => true,
        _ => false,
    };
    let (Some(rows), Some(ta), Some(t)) =
        (buffer(left), body.ty(*a).tile(), data.result.and_then(|v| body.ty(v).tile()))
    else {
        return false;
    };
    let vectors = !t.cols.is_one() && t.cols.capacity() <= 2 * i64::from(Width::V512.lanes());
    let left_fits = rows.elem == Elem::BF16 && rows.is_dense(*axis);
    left_fits && vectors && near && starts_with_zero(body, *acc) != Some(false) && ta.cols.is_even(body)
}
