//! What the indices of a kernel are certainly multiples of, and so whether an access to neighbours is aligned.
//!
//! In: a kernel. Out: for each index the largest power of two, 16 at most, that is known to divide it; for an access of a run whether
//! the elements that a thread takes together lie in one piece of memory, at a multiple of its size.
//!
//! Nothing is concluded here that the verifier of PTX does not conclude from the instructions (`ptx::verify`): it goes through
//! sums, products, the lesser and the greater of two, and jumps. The values of block arguments are found by starting with 16 and
//! taking back what some jump does not give, until nothing changes.

use cranelift_entity::SecondaryMap;

use crate::scalar::BinaryOp;
use crate::shape::Dim;
use crate::tile::{Body, Extent, InstData, Kernel, Op, Type, Value};

/// Neighbours that a thread takes together.
pub(super) const WIDTH: i64 = 4;

/// The most that is asked.
const MOST: i64 = 16;

/// The largest power of two that divides a number, 16 at most.
fn power(n: i64) -> i64 {
    1 << n.trailing_zeros().min(MOST.trailing_zeros())
}

/// What a dimension is a multiple of, whatever its symbols are.
fn of_dim(d: &Dim) -> i64 {
    [16, 8, 4, 2].into_iter().find(|n| d.is_multiple_of(*n)).unwrap_or(1)
}

/// What is known of a kernel.
pub(super) struct Multiples {
    of: SecondaryMap<Value, i64>,
    aligned: Vec<Value>,
}

impl Multiples {
    /// Finds it out.
    pub(super) fn of(kernel: &Kernel) -> Multiples {
        let body = &kernel.body;
        let mut of: SecondaryMap<Value, i64> = SecondaryMap::with_default(1);
        let order = body.reverse_postorder();
        for v in order.iter().flat_map(|b| &body.block(*b).args) {
            of[*v] = MOST;
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

    /// Is an extent a multiple of what a thread takes together?
    pub(super) fn is_whole(&self, extent: Extent) -> bool {
        match extent {
            Extent::Static(n) => n % WIDTH == 0,
            Extent::Bounded { value, .. } => self.of[value] % WIDTH == 0,
        }
    }

    /// Do the elements of an access to a buffer, [`WIDTH`] together along an axis of the run, lie side by side at a multiple of their bytes?
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
            // The other axis of the run goes in steps of one.
            let step = if moves == Some(axis) { 1 } else { start };
            let start = if axis == dense { start } else { step.min(start) * stride };
            start % WIDTH == 0
        })
    }
}

/// What is known of the result of an operation on indices.
fn result(inst: &InstData, of: &SecondaryMap<Value, i64>) -> i64 {
    let operand = |n: usize| inst.operands.get(n).map_or(1, |v| of[*v]);
    match &inst.op {
        Op::Const(s) => power(s.as_i64()),
        Op::DimValue(d) => of_dim(d),
        Op::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Min | BinaryOp::Max) => operand(0).min(operand(1)),
        Op::Binary(BinaryOp::Mul) => (operand(0) * operand(1)).min(MOST),
        Op::Select => operand(1).min(operand(2)),
        Op::CheckIndex { .. } => operand(0),
        _ => 1,
    }
}
