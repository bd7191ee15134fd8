//! The unscheduled kernel of a matrix product.
//!
//! In: a kernel's parameters, of which the first two are the operands, `[points.., M, K]` and
//! `[points.., K, N]`. Out: the loops that compute a tile of the product. They say nothing of a
//! machine: the schedule gives tiles other sizes and the right operand another layout
//! (`schedule/products.rs`).
//!
//! ```text
//! grid (points.., ceil(M, 64), ceil(N, 64))
//!   acc = 0 + A tile @ B tile;  epilogue;  store
//! ```
//!
//! How many of a known number of steps are summed at a time is the schedule's to say too (its
//! `steps`). Where the number is known at run time alone, or beyond 2^20, they are summed 512 at a
//! time, in a loop; of a plain product (without an epilogue) the last of them come after it, next
//! to the store, so that the sums need not go through scratch.

use super::epilogue::{Epilogue, ResultTile};
use super::{Extent, Inst, Kernel, KernelBuilder, Op, Position, computed, tile_size};
use crate::scalar::Scalar;
use crate::shape::Elem;

/// The parameters that hold the operands.
pub(crate) const LEFT: usize = 0;
pub(crate) const RIGHT: usize = 1;
/// Rows and columns of a tile of the result.
const TILE: i64 = 64;
/// How much of the inner dimension is taken at a time where it is not known, or too long for a
/// tile.
const STEPS: i64 = 512;
/// The longest inner dimension of one tile, as the verifier has it.
const MOST_AT_ONCE: i64 = 1 << 20;

/// Writes the loops into a kernel that has its parameters but no grid yet; `None` where the first
/// two are not operands of a product.
pub(crate) fn write(kb: &mut KernelBuilder, plain: bool) -> Option<ResultTile> {
    let [a, b] = [kb.param(LEFT)?, kb.param(RIGHT)?];
    let (of_a, of_b) = (kb.ty(a).buffer()?.clone(), kb.ty(b).buffer()?);
    let (lead, [m, k]) = of_a.shape.split_last_chunk::<2>()?;
    let shape = [lead, &[m.clone(), of_b.shape.last()?.clone()]].concat();
    let at = Position::over(kb, &shape, [TILE, TILE]);
    let (starts, rank) = (at.starts(), shape.len());
    let (points, row, col) = (starts.get(..rank - 2)?, *starts.get(rank - 2)?, *starts.get(rank - 1)?);
    // i8 and the integers accumulate in their own type, floats in f32.
    let elem = computed(of_a.elem);
    let init = if elem == Elem::F32 { Scalar::Float(0.0) } else { Scalar::Int(0) };
    let acc = kb.full(init, elem, at.rows, at.cols);
    let along = (Some(rank - 2), Some(rank - 1));
    let product = |kb: &mut KernelBuilder, step, steps: Extent, acc| {
        let a = kb.load(a, &[points, &[row, step]].concat(), along, at.rows, steps);
        let b = kb.load(b, &[points, &[step, col]].concat(), along, steps, at.cols);
        kb.dot(a, b, acc)
    };
    let result = match k.as_const().filter(|n| (1..=MOST_AT_ONCE).contains(n)) {
        Some(all) => {
            let start = kb.index(0);
            product(kb, start, Extent::Static(all), acc)
        }
        None => kb.summed(k, tile_size(k, STEPS), plain, acc, product),
    };
    Some(ResultTile { result, at })
}

/// What follows the product in a kernel that is written by [`write`].
pub(crate) fn epilogue(kernel: &Kernel) -> Option<Epilogue> {
    let body = &kernel.body;
    let is_dot = |i: &Inst| matches!(body.inst(*i).op, Op::Dot { .. });
    let [a, b, _] = *body.insts().find(|(_, i, _)| is_dot(i))?.2.operands.as_slice() else { return None };
    let insts = Epilogue::last_insts(body)?;
    // After the last product, or after the loop, which hands over its counter and the sum.
    let (result, rest) = match insts.iter().rposition(is_dot) {
        Some(n) => (body.inst(*insts.get(n)?).result?, insts.get(n + 1..)?),
        None => (*body.block(*body.layout.get(1)?).args.get(1)?, insts),
    };
    Epilogue::of(kernel, [body.def_inst(a)?, body.def_inst(b)?], result, rest)
}
