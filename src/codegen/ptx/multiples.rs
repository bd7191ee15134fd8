//! Divisibility analysis of a kernel's indices, for the alignment of vector accesses.
//!
//! In: a kernel. Out: for each index the largest power of two, at most 16, that is known to divide
//! it; for an access of a run whether a thread's adjacent elements are contiguous and aligned.
//!
//! It concludes nothing that the PTX verifier cannot conclude from the instructions
//! (`ptx::verify`): it handles sums, products, minimum, maximum and jumps. Block arguments start at
//! 16 and are lowered to what all jumps pass, until a fixed point.

use cranelift_entity::SecondaryMap;

use crate::scalar::BinaryOp;
use crate::shape::Dim;
use crate::tile::{Body, Extent, InstData, Kernel, Op, Type, Value};

/// Adjacent elements that a thread processes together.
pub(super) const WIDTH: i64 = 4;

/// Larger divisors are not tracked.
const MAX_DIVISOR: i64 = 16;

/// The largest power of two that divides a number, at most 16.
fn power(n: i64) -> i64 {
    1 << n.trailing_zeros().min(MAX_DIVISOR.trailing_zeros())
}

/// Known divisor of a dimension, for all values of its symbols.
fn of_dim(d: &Dim) -> i64 {
    [16, 8, 4, 2].into_iter().find(|n| d.is_multiple_of(*n)).unwrap_or(1)
}

/// Known divisors in a kernel.
pub(super) struct Multiples {
    of: SecondaryMap<Value, i64>,
    aligned: Vec<Value>,
}

impl Multiples {
    pub(super) fn analyse(kernel: &Kernel) -> Multiples {
        let body = &kernel.body;
        let mut of: SecondaryMap<Value, i64> = SecondaryMap::with_default(1);
        let order = body.reverse_postorder();
        for v in order.iter().flat_map(|b| &body.block(*b).args) {
            of[*v] = MAX_DIVISOR;
        }
        loop {
            let mut changed = false;
            for block in &order {
                let data = body.block(*block);
                for i in &data.insts {
                    let inst = body.inst(*i);
                    if let Some(v) = inst.result.filter(|v| *body.ty(*v) == Type::Index) {
                        of[v] = result(inst, &of);
                    }
                }
                for call in data.terminator.targets() {
                    for (arg, v) in body.block(call.block).args.iter().zip(&call.args) {
                        if of[*v] < of[*arg] {
                            of[*arg] = of[*v];
                            changed = true;
                        }
                    }
                }
            }
            if !changed {
                break;
            }
        }
        let aligned = kernel.params.iter().filter(|p| p.aligned).map(|p| p.value).collect();
        Multiples { of, aligned }
    }

    /// Is an extent a multiple of [`WIDTH`]?
    pub(super) fn is_whole(&self, extent: Extent) -> bool {
        match extent {
            Extent::Static(n) => n % WIDTH == 0,
            Extent::Bounded { value, .. } => self.of[value] % WIDTH == 0,
        }
    }

    /// Are [`WIDTH`] adjacent elements of a buffer access, along an axis of the run, contiguous and
    /// aligned to their total size?
    pub(super) fn is_wide(&self, body: &Body, data: &InstData, inner: usize) -> bool {
        let (Op::Load { rows, cols } | Op::Store { rows, cols } | Op::Window { rows, cols }) = data.op else {
            return false;
        };
        let Some(buffer) = data.operands.first().filter(|b| self.aligned.contains(b)) else { return false };
        let tile = match data.op {
            Op::Store { .. } => data.operands.last().copied(),
            _ => data.result,
        };
        let (Some(ty), Some(t)) = (body.ty(*buffer).buffer(), tile.and_then(|v| body.ty(v).tile())) else {
            return false;
        };
        let along = [rows, cols];
        let varies = [!t.rows.is_one(), !t.cols.is_one()];
        let Some(dense) = along[inner].filter(|axis| varies[inner] && ty.is_dense(*axis)) else { return false };
        let moves = along[1 - inner].filter(|_| varies[1 - inner]);
        let mut indices = data.operands.iter().skip(1);
        ty.strides.iter().enumerate().all(|(axis, stride)| {
            let start = indices.next().map_or(1, |v| self.of[*v]);
            let stride = of_dim(stride);
            // The other axis of the run advances by one.
            let step = if moves == Some(axis) { 1 } else { start };
            let start = if axis == dense { start } else { step.min(start) * stride };
            start % WIDTH == 0
        })
    }
}

/// Known divisor of the result of an operation on indices.
fn result(inst: &InstData, of: &SecondaryMap<Value, i64>) -> i64 {
    let operand = |n: usize| inst.operands.get(n).map_or(1, |v| of[*v]);
    match &inst.op {
        Op::Const(s) => power(s.as_i64()),
        Op::DimValue(d) => of_dim(d),
        Op::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Min | BinaryOp::Max) => operand(0).min(operand(1)),
        Op::Binary(BinaryOp::Mul) => (operand(0) * operand(1)).min(MAX_DIVISOR),
        Op::Select => operand(1).min(operand(2)),
        Op::CheckIndex { .. } => operand(0),
        _ => 1,
    }
}
