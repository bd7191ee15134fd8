//! Kernels of chains: a matmul, or a reduction, of a tensor that is computed tile by tile from the
//! results of other matmuls, and never stored.
//!
//! In: a `chain` region (`ir::chain`) and the views of its operands. Out: a kernel. A grid point
//! has some of the result's rows, R, and goes through the axis that the last operation sums over in
//! blocks of C elements, as fused attention goes through the keys (Dao et al. 2022,
//! arXiv:2205.14135, algorithms 1 and 4):
//!
//! ```text
//! fused chain(%q, %k, %v): %s = matmul %q, %k;  %p = exp %s;  matmul %p, %v
//!
//! grid (points.., ceil(S, R))
//!   qt  = transpose(q tile)                                    [D, R]
//!   acc = 0                                                    [N, R]
//!   for each C of T:
//!     s   = k block @ qt                                       [C, R]
//!     p   = exp(s)                                             the formula
//!     acc = acc + v block^T @ p                                [N, R]
//!   y = transpose(acc);  store
//! ```
//!
//! The result's rows are the columns of all tiles, so they are in the lanes of vectors, and the
//! left operands of the matmuls are read in place, one element at a time. The same kernel serves a
//! formula that is the left operand of the last matmul, or the right one, transposed or not: which
//! of its axes goes along the columns of tiles differs.
//!
//! Blocks that `causal` hides, because the formula is 0 (or `-inf`, for a maximum) where it does
//! not hold, are not visited.
//!
//! Sums: the products of a block are added in order, then the blocks in order. So an element's bits
//! depend on neither the number of threads nor its grid point.

use super::region::{AxisRole, Env, Operand, Position, Region, buffer_type, tile_size, with_lead};
use super::{Call, as_tile, output_buffer};
use crate::ir::chain::{Chain, Root};
use crate::ir::{self, Function, Op};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp};
use crate::shape::{Dim, Elem};
use crate::tile::{self, Extent, KernelBuilder, ParamMode, View};

/// Rows of the result of one grid point, two vectors of the widest machine, and elements of the
/// summed axis in a block: the tiles stay in the first cache.
const TILE: [i64; 2] = [32, 128];
/// The same for chains with more matmuls than attention's gradient, or with operands that are
/// wider than [`NARROW`] together: the tiles then fit the shared memory of a GPU's block.
const SMALL_TILE: [i64; 2] = [16, 64];
const NARROW: i64 = 384;

const ONE: Extent = Extent::Static(1);

/// A matmul whose result the formula reads: its left operand is read block by block, its right one
/// is a tile.
struct Inner {
    value: ir::Value,
    elem: Elem,
    /// The operand with the summed axis.
    left: tile::Value,
    /// The axes of rows and columns in the buffer of the left operand.
    along: (usize, usize),
    right: tile::Value,
    steps: i64,
}

/// The kernel that computes a chain into `out`.
///
/// # Errors
/// A body of another structure, which is a bug in attnc.
pub(super) fn chain(name: &str, body: &Function, operands: &[Operand], out: &View) -> Result<Call, String> {
    let chain = Chain::read(body)?;
    let shape_of = |v: ir::Value| body.tensor(v).map(|t| t.shape.clone()).ok_or("an index in a region".to_string());
    let space = shape_of(chain.formula)?;
    let Some((lead, [x, y])) = space.split_last_chunk::<2>() else { return Err("a formula without axes".into()) };
    let (row_axis, col_axis) = (lead.len(), lead.len() + 1);
    // The axis of the result's rows, and the one that is summed.
    let (kept, summed) = if chain.sums_over_rows { (col_axis, row_axis) } else { (row_axis, col_axis) };
    let (kept_extent, summed_extent) = if chain.sums_over_rows { (y, x) } else { (x, y) };
    let args = &body.block(body.entry()).args;
    let view = |v: ir::Value| {
        let operand = args.iter().position(|a| *a == v).and_then(|i| operands.get(i)).and_then(Operand::view);
        operand.ok_or("a matmul of something that is not in memory")
    };
    let matrix = |v: ir::Value| view(v).map(|of| with_lead(of, lead));

    let mut kb = KernelBuilder::new(name);
    let mut buffers = Vec::new();
    let mut declare = |kb: &mut KernelBuilder, v: View| {
        let buffer = kb.buffer(buffer_type(&v), ParamMode::In);
        buffers.push(v);
        buffer
    };
    let mut pairs = Vec::new();
    for i in &chain.matmuls {
        let d = body.inst(*i);
        let [a, b] = d.operands.as_slice() else { return Err("a matmul has two operands".into()) };
        pairs.push((d, declare(&mut kb, matrix(*a)?), declare(&mut kb, matrix(*b)?), last(&shape_of(*a)?)?));
    }
    let other = match chain.root {
        Root::Matmul { other, is_left } => {
            let of_other = shape_of(other)?;
            // Its axes that are not summed over, and summed over.
            let axes = if is_left { (col_axis, row_axis) } else { (row_axis, col_axis) };
            let n = of_other.get(of_other.len() - 2 + axes.0 - row_axis).and_then(Dim::as_const);
            Some((declare(&mut kb, matrix(other)?), axes, n.ok_or("a result of unknown width")?, is_left))
        }
        Root::Reduce(_) => None,
    };
    // Elementwise operands keep the axes along which they are repeated, with extent 1.
    let reads = |v: &ir::Value| body.insts().any(|(_, _, d)| d.op != Op::Matmul && d.operands.contains(v));
    let mut views: Vec<Operand> = operands.to_vec();
    for (o, v) in views.iter_mut().zip(args) {
        let Operand::View(of) = o else { continue };
        if !reads(v) {
            continue;
        }
        let own = shape_of(*v)?;
        let mut full = of.broadcast(&space);
        for axis in [row_axis, col_axis] {
            let here = (own.len() + axis).checked_sub(space.len()).and_then(|i| own.get(i));
            if here.is_none_or(|d| d.as_const() == Some(1)) {
                full.shape[axis] = Dim::one();
            }
        }
        *of = full;
    }
    let mut region = Region::new(body, views, (0..space.len()).map(Some).collect());
    region.declare(&mut kb, |i| args.get(i).is_some_and(reads));
    buffers.extend(region.declared());
    let target = output_buffer(&mut kb, out);
    buffers.push(out.clone());

    // The grid.
    let root = body.insts().last().map(|(_, _, d)| d.loc).unwrap_or_default();
    kb.at(root);
    let points: Vec<tile::Value> = lead.iter().map(|extent| kb.grid_axis(extent, 1)).collect();
    let width: i64 = pairs.iter().map(|p| p.3).chain(other.map(|(_, _, n, _)| n)).sum();
    let [rows, block] = if width > NARROW || pairs.len() > 2 { SMALL_TILE } else { TILE };
    let (most, block) = (tile_size(kept_extent, rows), tile_size(summed_extent, block));
    let point = kb.grid_axis(kept_extent, most);
    let start = kb.times(point, most);
    let cols = kb.extent_at(kept_extent, start, most);
    let zero = kb.index(0);
    let place = |axis: usize, at: tile::Value| {
        let mut indices = points.clone();
        indices.extend([zero, zero]);
        indices[axis] = at;
        indices
    };
    let mut inner = Vec::new();
    for (d, a, b, steps) in pairs {
        kb.at(d.loc);
        let value = d.result.ok_or("a matmul without a result")?;
        let elem = body.tensor(value).ok_or("an index in a region")?.elem;
        // The contracted axis is the last of the left operand, and the one before of the right.
        let (left, along, right, axes) = if chain.sums_over_rows {
            (a, (row_axis, col_axis), b, (row_axis, col_axis))
        } else {
            (b, (col_axis, row_axis), a, (col_axis, row_axis))
        };
        let right = kb.load_dense(right, &place(kept, start), axes, (Extent::Static(steps), cols), |_, x| x);
        inner.push(Inner { value, elem, left, along, right, steps });
    }

    // The blocks.
    kb.at(root);
    let (first, end) = visited(&mut kb, body, &chain, (start, most), (x, y), block);
    let zeros = |kb: &mut KernelBuilder, rows| kb.full(Scalar::Float(0.0), Elem::F32, rows, cols);
    let mut carried = vec![first];
    match (chain.root, other) {
        (Root::Matmul { .. }, Some((_, _, n, _))) => carried.push(zeros(&mut kb, Extent::Static(n))),
        (Root::Reduce(ReduceKind::Max), _) => {
            carried.push(kb.full(Scalar::Float(f64::NEG_INFINITY), Elem::F32, ONE, cols));
        }
        (Root::Matmul { .. } | Root::Reduce(_), _) => carried.push(zeros(&mut kb, ONE)),
    }
    let blocks = kb.begin_loop(&carried);
    let at = *blocks.args.first().ok_or("a loop without a counter")?;
    let more = kb.compare_scalars(CmpOp::Lt, at, end);
    kb.enter_loop(&blocks, more);
    let rows = kb.extent_at(summed_extent, at, block);
    let mut env = Env::new();
    for m in &inner {
        kb.placed(body.definition(m.value).map(|(_, d)| d.loc).unwrap_or_default(), |kb| {
            let none = zeros(kb, rows);
            let steps = Extent::Static(m.steps);
            let left = kb.load(m.left, &place(summed, at), (Some(m.along.0), Some(m.along.1)), rows, steps);
            let product = kb.dot(left, m.right, none);
            env[m.value] = Some(kb.narrow(product, m.elem));
        });
    }
    let mut axes: Vec<(AxisRole, tile::Value)> = points.iter().map(|p| (AxisRole::Point, *p)).collect();
    axes.extend([(AxisRole::Rows, zero), (AxisRole::Rows, zero)]);
    axes[kept] = (AxisRole::Cols, start);
    axes[summed] = (AxisRole::Rows, at);
    let position = Position { axes, rows, cols };
    region.eval(&mut kb, &mut env, &position, &[chain.formula])?;
    let formula = env[chain.formula].ok_or("the formula was not evaluated")?;
    let formula = as_tile(&mut kb, formula, &position);
    kb.at(root);
    let sums = blocks.args.get(1..).unwrap_or_default();
    let next = kb.plus(at, block);
    let mut passed = vec![next];
    match (other, chain.root, sums) {
        (Some((buffer, (own, over), n, _)), _, [acc]) => {
            let left = kb.load(buffer, &place(over, at), (Some(own), Some(over)), Extent::Static(n), rows);
            passed.push(kb.dot(left, formula, *acc));
        }
        (None, Root::Reduce(ReduceKind::Max), [highest]) => {
            let more = kb.reduce(ReduceKind::Max, 0, formula);
            passed.push(kb.binary(BinaryOp::Max, *highest, more));
        }
        (None, Root::Reduce(ReduceKind::Sum), [sum]) => {
            let more = kb.reduce(ReduceKind::Sum, 0, formula);
            passed.push(kb.binary(BinaryOp::Add, *sum, more));
        }
        _ => return Err("a chain of another kind".into()),
    }
    kb.br(blocks.head, &passed);

    // The result, one column for each of its rows.
    kb.switch_to(blocks.done);
    let result = *sums.first().ok_or("a chain without a result")?;
    let elem = body.insts().last().and_then(|(_, _, d)| body.tensor(d.result?)).map_or(Elem::F32, |t| t.elem);
    let result = kb.narrow(result, elem);
    // The axis of the buffer that goes along columns, and the one that goes along rows.
    let (along, across) = match other {
        Some((_, _, _, false)) => (col_axis, row_axis),
        Some((_, _, _, true)) | None => (row_axis, col_axis),
    };
    let indices = place(along, start);
    if kb.is_dense(target, across) && !kb.is_dense(target, along) {
        let turned = kb.transpose(result);
        kb.store(target, &indices, (Some(along), Some(across)), turned);
    } else {
        kb.store(target, &indices, (Some(across), Some(along)), result);
    }
    Ok(Call { kernel: kb.finish(), buffers })
}

fn last(shape: &[Dim]) -> Result<i64, String> {
    shape.last().and_then(Dim::as_const).ok_or_else(|| "a matmul contracts an unknown number of elements".to_string())
}

/// The part of the summed axis `[x, y]` where the formula may differ from what contributes
/// nothing, for `most` rows of the result that begin at `start`. It begins with a whole block.
fn visited(
    kb: &mut KernelBuilder,
    body: &Function,
    chain: &Chain,
    (start, most): (tile::Value, i64),
    (x, y): (&Dim, &Dim),
    block: i64,
) -> (tile::Value, tile::Value) {
    let nothing = match chain.root {
        Root::Reduce(ReduceKind::Max) => f64::NEG_INFINITY,
        Root::Matmul { .. } | Root::Reduce(_) => 0.0,
    };
    let zero = kb.index(0);
    let is_causal = hides(body, chain.formula, nothing);
    // Row `i` sees the columns up to `i + shift`.
    let shift = kb.dim(&y.sub(x));
    if chain.sums_over_rows {
        let end = kb.dim(x);
        if !is_causal {
            return (zero, end);
        }
        let first = kb.index_binary(BinaryOp::Sub, start, shift);
        let first = kb.index_binary(BinaryOp::Max, first, zero);
        let size = kb.index(block);
        let number = kb.index_binary(BinaryOp::Div, first, size);
        (kb.index_binary(BinaryOp::Mul, number, size), end)
    } else {
        let end = kb.dim(y);
        if !is_causal {
            return (zero, end);
        }
        let last = kb.plus(start, most);
        let last = kb.index_binary(BinaryOp::Add, last, shift);
        (zero, kb.index_binary(BinaryOp::Min, last, end))
    }
}

/// Is a value of a formula certainly `number` (0 or `-inf`) wherever `causal` does not hold, unless
/// something in it is infinite or NaN?
fn hides(body: &Function, v: ir::Value, number: f64) -> bool {
    let Some((_, d)) = body.definition(v) else { return false };
    let is_number =
        |v: &ir::Value| matches!(body.definition(*v), Some((_, d)) if d.op == Op::Const(Scalar::Float(number)));
    let is_zero = number == 0.0;
    match (&d.op, d.operands.as_slice()) {
        (Op::Where, [c, a, b]) => is_number(b) && (is_causal(body, *c) || hides(body, *a, number)),
        (Op::Binary(BinaryOp::Mul), [a, b]) => is_zero && (hides(body, *a, number) || hides(body, *b, number)),
        (Op::Binary(BinaryOp::Div), [a, _]) => is_zero && hides(body, *a, number),
        (Op::Binary(BinaryOp::Add), [a, b]) => !is_zero && (hides(body, *a, number) || hides(body, *b, number)),
        (Op::Binary(BinaryOp::Sub), [a, _]) => !is_zero && hides(body, *a, number),
        (Op::Unary(UnaryOp::Exp), [a]) => is_zero && hides(body, *a, f64::NEG_INFINITY),
        (Op::Unary(UnaryOp::Neg), [a]) => is_zero && hides(body, *a, number),
        (Op::Cast { .. } | Op::Broadcast, [a]) => hides(body, *a, number),
        _ => false,
    }
}

/// Does a condition hold only where `causal` does?
fn is_causal(body: &Function, c: ir::Value) -> bool {
    match body.definition(c).map(|(_, d)| (&d.op, d.operands.as_slice())) {
        Some((Op::Causal, _)) => body.tensor(c).is_some_and(|t| t.shape.iter().all(|d| d.as_const() != Some(1))),
        Some((Op::Binary(BinaryOp::And), [a, b])) => is_causal(body, *a) || is_causal(body, *b),
        _ => false,
    }
}
