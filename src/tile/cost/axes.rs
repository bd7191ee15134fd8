//! Finds the axes of a grid along which a few points stand for all.
//!
//! In: a kernel. Out: for each axis, whether its index is used only for places: multiplied and
//! added, so that an access at a later point is the same, shifted; or compared with the end by
//! `min`, which makes the last tile smaller.
//!
//! ```text
//! %at = mul %i, 64;  %rest = sub S, %at;  %n = min %rest, 64      regular
//! load %x[%at, 0] : tile f32[%n<=64, 8]
//! %end = add %at, 64;  lt %key, %end                              not: later points visit more
//! ```
//!
//! Along a regular axis, points differ only in what `min` and `max` give, and in extents. If these
//! are the same at the first point and at the last but one, they are the same at all points
//! between, since each is a minimum or maximum of a number and a linear function. `kernel` checks
//! that, and the bounding box of accesses has its corners at these points and the last one.

use cranelift_entity::SecondaryMap;

use crate::scalar::BinaryOp;
use crate::tile::{Body, Inst, Kernel, Op, Type, Value};

/// A set of grid axes; those beyond 64 are not regular.
type Axes = u64;

/// The regular axes of a kernel's grid.
pub(super) fn regular(kernel: &Kernel) -> Vec<bool> {
    let body = &kernel.body;
    let mut varies: SecondaryMap<Value, Axes> = SecondaryMap::new();
    for (n, axis) in kernel.grid.iter().take(64).enumerate() {
        varies[axis.value] = 1 << n;
    }
    let mut irregular: Axes = 0;
    let mut changed = true;
    while std::mem::take(&mut changed) {
        for block in &body.layout {
            let data = body.block(*block);
            for i in &data.insts {
                let inner = match &body.inst(*i).op {
                    Op::Run { insts, .. } => insts.as_slice(),
                    _ => &[],
                };
                for i in [i].into_iter().chain(inner) {
                    irregular |= visit(body, *i, &mut varies);
                }
            }
            for call in data.terminator.targets() {
                for (arg, v) in body.block(call.block).args.iter().zip(&call.args) {
                    let all = varies[*arg] | varies[*v];
                    changed |= all != varies[*arg];
                    varies[*arg] = all;
                }
            }
        }
    }
    (0..kernel.grid.len()).map(|n| n < 64 && irregular & (1 << n) == 0).collect()
}

/// Records the axes with which a result varies; returns the ones that are irregular because of this
/// instruction.
fn visit(body: &Body, i: Inst, varies: &mut SecondaryMap<Value, Axes>) -> Axes {
    let data = body.inst(i);
    let Some(result) = data.result.filter(|v| matches!(body.ty(*v), Type::Index | Type::Scalar(_))) else { return 0 };
    let all = data.operands.iter().fold(0, |all, v| all | varies[*v]);
    let both = data.operands.iter().filter(|v| varies[**v] != 0).count() > 1;
    let (is_number, is_regular) = match &data.op {
        // Data is the same at all points, as far as it is known.
        Op::LoadScalar | Op::Element => (false, true),
        Op::Binary(BinaryOp::Add | BinaryOp::Sub) | Op::Cast => (true, true),
        Op::Binary(BinaryOp::Mul) => (true, !both),
        Op::Binary(BinaryOp::Min | BinaryOp::Max) => (true, !both && all.count_ones() <= 1),
        Op::CheckIndex { .. } => (true, data.operands.get(1).is_none_or(|bound| varies[*bound] == 0)),
        _ => (true, false),
    };
    varies[result] = if is_number { all } else { 0 };
    if is_regular { 0 } else { all }
}
