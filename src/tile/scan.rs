//! Kernels for running sums (inclusive prefix sums) along an axis.
//!
//! ```text
//! cumsum:   grid (other axes.., ceil(lanes, 64))
//!   for j in 0..axis:  sum += a row of x at j;  store it
//! ```
//!
//! The columns of a tile are along another axis than the sum (`lanes`), so that each lane has its
//! own sum; a tensor of one axis is a single lane. Sums of floats are compensated: a second sum
//! keeps the rounding errors (Neumaier 1974), so the error of an element does not grow with its
//! index.
//!
//! GPUs use other kernels, in three phases (Blelloch 1990, "Prefix sums and their applications").
//! A kernel's axis is in its description ([`RunningSums::of_kernel`]).
//!
//! ```text
//! totals:   grid (other axes.., ceil(axis, 128))    the sum of a chunk of 128 elements
//! offsets:  grid (other axes.., ceil(chunks, 8))    for each chunk: the sum of the totals of all chunks before it
//! chunks:   grid (other axes.., ceil(axis, 128))    for each element of a chunk: the sum of the chunk's elements up to it, plus the chunk's offset
//! ```
//!
//! So `n` elements take `128 n + (n / 128)^2` additions, most of them independent: 2 10^8 for a
//! million elements. The order of additions follows from the source alone, not from the number of
//! threads or multiprocessors. Integers wrap, so their sums do not depend on it. Floats are summed
//! 128 at a time in all three phases, and the rounding errors of adding up totals are kept for the
//! offsets: the error of an element is at most `384 * 2^-24` times the sum of the magnitudes up to
//! it, at any index. Elements after a NaN are NaN, those before it are not: terms are selected, not
//! multiplied by 0.

use super::loops::counted;
use super::{
    BufferType, Compute, Extent, Kernel, KernelBuilder, Op, ParamMode, Type, Value, computed, row_major, simplify,
    tile_size,
};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar};
use crate::shape::Elem;

/// Maximum columns of a tile.
const COLS: i64 = 64;
/// Elements of a chunk, and chunks whose totals are added at a time.
pub(crate) const CHUNK: i64 = 128;
/// Chunks per grid point of [`offsets`].
const OWN: i64 = 8;

const ONE: Extent = Extent::Static(1);

/// A rounded sum and its exact rounding error, which is NaN if the sum is not finite.
pub(crate) fn two_sum(kb: &mut KernelBuilder, a: Value, b: Value) -> (Value, Value) {
    let sum = kb.binary(BinaryOp::Add, a, b);
    let of_b = kb.binary(BinaryOp::Sub, sum, a);
    let of_a = kb.binary(BinaryOp::Sub, sum, of_b);
    let (a, b) = (kb.binary(BinaryOp::Sub, a, of_a), kb.binary(BinaryOp::Sub, b, of_b));
    (sum, kb.binary(BinaryOp::Add, a, b))
}

/// Initial sums of 0; for floats followed by a second tile, the accumulated rounding errors.
fn no_sums(kb: &mut KernelBuilder, elem: Elem, rows: Extent, cols: Extent) -> Vec<Value> {
    let count = if elem.is_float() { 2 } else { 1 };
    (0..count).map(|_| kb.full(Scalar::zero(elem), elem, rows, cols)).collect()
}

/// Adds a term to the sums.
fn with_term(kb: &mut KernelBuilder, sums: &[Value], term: Value) -> Vec<Value> {
    match sums {
        [sum, lost] => {
            let (sum, more) = two_sum(kb, *sum, term);
            vec![sum, kb.binary(BinaryOp::Add, *lost, more)]
        }
        sums => sums.iter().map(|sum| kb.binary(BinaryOp::Add, *sum, term)).collect(),
    }
}

/// The final sums; an infinite sum, whose rounding error is NaN, is not corrected.
fn total(kb: &mut KernelBuilder, sums: &[Value]) -> Value {
    match sums {
        [sum, lost] => {
            let both = kb.binary(BinaryOp::Add, *sum, *lost);
            let known = kb.compare(CmpOp::Eq, *lost, *lost);
            kb.select(known, both, *sum)
        }
        sums => sums[0],
    }
}

/// The kernel that writes the running sums of `x` along `axis` to `out`.
pub(super) fn cumsum(name: &str, x: &BufferType, axis: usize, out: &BufferType) -> Option<Kernel> {
    let length = x.shape.get(axis).filter(|_| x.shape == out.shape)?;
    let mut kb = KernelBuilder::new(name);
    let source = kb.buffer(x.clone(), ParamMode::In);
    let target = kb.buffer(out.clone(), ParamMode::Out);
    // The columns of a tile are contiguous in memory if another axis than the sum's is dense.
    let others = (0..x.shape.len()).rev().filter(|i| *i != axis);
    let lanes = others.clone().find(|i| x.is_dense(*i));
    let lanes = lanes.or_else(|| others.clone().next());
    let (mut starts, mut cols) = (Vec::new(), ONE);
    for (i, extent) in x.shape.iter().enumerate() {
        if i == axis {
            starts.push(kb.index(0));
            continue;
        }
        let max = if Some(i) == lanes { tile_size(extent, COLS) } else { 1 };
        let point = kb.grid_axis(extent, max);
        let start = kb.times(point, max);
        if Some(i) == lanes {
            cols = kb.extent_at(extent, start, max);
        }
        starts.push(start);
    }
    let sums = no_sums(&mut kb, computed(x.elem), ONE, cols);
    let (start, end) = (kb.index(0), kb.dim(length));
    counted(&mut kb, (start, end, 1), &sums, |kb, j, sums| {
        starts[axis] = j;
        let tile = kb.load(source, &starts, (None, lanes), ONE, cols);
        let next = with_term(kb, sums, tile);
        let result = total(kb, &next);
        let result = kb.narrow(result, out.elem);
        kb.store(target, &starts, (None, lanes), result);
        next
    });
    Some(kb.finish())
}

/// The running sums that a kernel computes.
#[derive(Clone, Debug)]
pub(crate) struct RunningSums {
    pub(crate) x: BufferType,
    pub(crate) axis: usize,
    pub(crate) out: BufferType,
}

impl RunningSums {
    /// Reads a kernel's description.
    pub(crate) fn of_kernel(kernel: &Kernel) -> Option<RunningSums> {
        let Some(Compute::Scan { axis }) = kernel.compute else { return None };
        let [x, out] = kernel.buffer_types()?.try_into().ok()?;
        Some(RunningSums { x, axis, out })
    }
}

/// The type of the totals of chunks along an axis, and of their offsets.
pub(crate) fn of_chunks(x: &BufferType, axis: usize) -> Option<BufferType> {
    let mut shape = x.shape.clone();
    let extent = shape.get_mut(axis)?;
    *extent = extent.ceil_div(&CHUNK.into())?;
    Some(BufferType { elem: computed(x.elem), strides: row_major(&shape), shape })
}

/// A grid point: one index per axis, except along `axis`, which is divided into tiles.
struct Places {
    at: Vec<Value>,
    axis: usize,
}

impl Places {
    /// A grid over a buffer with tiles of `step` elements along `axis`. Also returns the number,
    /// start and extent of the tile.
    fn new(kb: &mut KernelBuilder, b: &BufferType, axis: usize, step: i64) -> (Places, Value, Value, Extent) {
        let (mut at, mut along) = (Vec::new(), None);
        for (i, extent) in b.shape.iter().enumerate() {
            let point = kb.grid_axis(extent, if i == axis { step } else { 1 });
            at.push(point);
            if i == axis {
                let start = kb.times(point, step);
                along = Some((point, start, kb.extent_at(extent, start, step)));
            }
        }
        let (point, start, length) = along.unwrap_or_else(|| {
            let first = kb.index(0);
            (first, first, ONE)
        });
        (Places { at, axis }, point, start, length)
    }

    /// The indices with `along` for the tiled axis.
    fn with(&self, along: Value) -> Vec<Value> {
        let mut at = self.at.clone();
        if let Some(own) = at.get_mut(self.axis) {
            *own = along;
        }
        at
    }
}

/// Broadcasts a row over the rows of a tile and zeroes the elements that do not count: those whose
/// position does not compare by `op` with the position of the tile's row.
fn those_before(
    kb: &mut KernelBuilder,
    op: CmpOp,
    (own, rows): (Value, Extent),
    (other, cols): (Value, Extent),
    row: Value,
) -> Value {
    let elem = kb.ty(row).elem().unwrap_or(Elem::F32);
    let full = Type::Tile(KernelBuilder::tile_type(elem, rows, cols));
    // Broadcast first, so that all later operations are on tiles of the same shape.
    let row = if *kb.ty(row) == full { row } else { kb.value(Op::Copy, vec![row], full) };
    let own_at = kb.iota(0, own, Elem::I32, rows, ONE);
    let other_at = kb.iota(1, other, Elem::I32, ONE, cols);
    let counts = kb.compare(op, other_at, own_at);
    let none = kb.scalar(Scalar::zero(elem), elem);
    kb.select(counts, row, none)
}

/// The kernel that writes the sum of each chunk of `x` to `totals`.
pub(crate) fn totals(name: &str, x: &BufferType, axis: usize, totals: &BufferType) -> Kernel {
    let mut kb = KernelBuilder::new(name);
    let (from, to) = (kb.buffer(x.clone(), ParamMode::In), kb.buffer(totals.clone(), ParamMode::Out));
    let (places, chunk, start, length) = Places::new(&mut kb, x, axis, CHUNK);
    let row = kb.load(from, &places.with(start), (None, Some(axis)), ONE, length);
    let sum = kb.reduce(ReduceKind::Sum, 1, row);
    kb.store(to, &places.with(chunk), (None, None), sum);
    simplified(kb.finish())
}

/// The kernel that writes, for each chunk, the sum of the totals of all chunks before it.
pub(crate) fn offsets(name: &str, totals: &BufferType, axis: usize) -> Kernel {
    let mut kb = KernelBuilder::new(name);
    let (from, to) = (kb.buffer(totals.clone(), ParamMode::In), kb.buffer(totals.clone(), ParamMode::Out));
    let length = totals.shape.get(axis).cloned().unwrap_or_default();
    let (places, _, start, rows) = Places::new(&mut kb, totals, axis, tile_size(&length, OWN));
    let sums = no_sums(&mut kb, totals.elem, rows, ONE);
    let (first, end, step) = (kb.index(0), kb.dim(&length), tile_size(&length, CHUNK));
    let sums = counted(&mut kb, (first, end, step), &sums, |kb, j, sums| {
        let cols = kb.extent_at(&length, j, step);
        let row = kb.load(from, &places.with(j), (None, Some(axis)), ONE, cols);
        let terms = those_before(kb, CmpOp::Lt, (start, rows), (j, cols), row);
        let term = kb.reduce(ReduceKind::Sum, 1, terms);
        with_term(kb, sums, term)
    });
    let sum = total(&mut kb, &sums);
    kb.store(to, &places.with(start), (Some(axis), None), sum);
    simplified(kb.finish())
}

/// The kernel that writes the running sums of `x` to `out`: the running sums within each chunk plus
/// the chunk's offset.
pub(crate) fn chunks(name: &str, x: &BufferType, axis: usize, offsets: &BufferType, out: &BufferType) -> Kernel {
    let mut kb = KernelBuilder::new(name);
    let (from, before) = (kb.buffer(x.clone(), ParamMode::In), kb.buffer(offsets.clone(), ParamMode::In));
    let to = kb.buffer(out.clone(), ParamMode::Out);
    let (places, chunk, start, length) = Places::new(&mut kb, x, axis, CHUNK);
    let row = kb.load(from, &places.with(start), (None, Some(axis)), ONE, length);
    let first = kb.index(0);
    let terms = those_before(&mut kb, CmpOp::Le, (first, length), (first, length), row);
    let sum = kb.reduce(ReduceKind::Sum, 1, terms);
    let offset = kb.load(before, &places.with(chunk), (None, None), ONE, ONE);
    let sum = kb.binary(BinaryOp::Add, sum, offset);
    let sum = kb.narrow(sum, out.elem);
    kb.store(to, &places.with(start), (Some(axis), None), sum);
    simplified(kb.finish())
}

fn simplified(mut kernel: Kernel) -> Kernel {
    simplify(&mut kernel.body);
    kernel
}
