//! Construction helpers for tensor core kernels: shared memory tiles, copies, fragments.
//!
//! In: a kernel under construction. Out: typed operations of the tile IR for a GPU. Tiles of
//! elementwise work have no layout during construction; [`spread`] assigns the layout of their
//! shape at the end.

use crate::scalar::{BinaryOp, CmpOp, Scalar};
use crate::shape::{Dim, Elem};
use crate::tile::{
    BufferType, Extent, Fragment, GpuArch, GpuOp, Kernel, KernelBuilder, Op, Queue, Space, State, TileType, Type, Value,
};

pub(super) const ONE: Extent = Extent::Static(1);

/// A shared memory tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SharedTile {
    pub(super) elem: Elem,
    pub(super) rows: i64,
    pub(super) cols: i64,
}

impl SharedTile {
    /// Swizzle width in bytes: a row, or a row of a quantised panel.
    pub(super) fn swizzle(&self) -> u32 {
        if self.elem == Elem::I8 {
            return 32;
        }
        let row = self.cols * i64::try_from(self.elem.size()).unwrap_or(1);
        if row % 128 == 0 { 128 } else { 64 }
    }

    pub(super) fn ty(&self) -> TileType {
        let space = Space::Shared { swizzle: self.swizzle() };
        TileType { elem: self.elem, rows: Extent::Static(self.rows), cols: Extent::Static(self.cols), space }
    }

    pub(super) fn bytes(&self) -> i64 {
        self.rows * self.cols * i64::try_from(self.elem.size()).unwrap_or(1)
    }

    /// Its type as a matmul operand in fragments.
    fn fragment(&self, layout: Fragment) -> Type {
        Type::Tile(TileType { space: Space::Fragment(layout), ..self.ty() })
    }
}

/// Width rounded up to whole swizzled rows: panels of 64 or 128 bytes.
pub(super) fn whole_columns(width: i64, elem: Elem) -> i64 {
    let panel = 64 / i64::try_from(elem.size()).unwrap_or(1);
    (width + panel - 1) / panel * panel
}

/// Can tiles of a buffer be copied in 16-byte chunks: is an axis contiguous, and are all other
/// strides multiples of 16 bytes?
pub(super) fn has_rows_of_chunks(b: &BufferType, dense: usize) -> bool {
    let chunk = 16 / i64::try_from(b.elem.size()).unwrap_or(1);
    let mut others = b.neighbours().filter(|(axis, _)| *axis != dense);
    b.is_dense(dense) && others.all(|(_, d)| d.is_multiple_of(chunk))
}

/// An empty slot in shared memory.
pub(super) fn slot(kb: &mut KernelBuilder, t: &SharedTile, offset: i64) -> Value {
    let offset = u32::try_from(offset).unwrap_or(u32::MAX);
    kb.value(Op::Gpu(GpuOp::SharedSlot { offset }), Vec::new(), Type::Slot(t.ty()))
}

/// The buffer axes along which a tile's rows and columns go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Along {
    pub(super) rows: usize,
    pub(super) cols: usize,
    /// The panel axis, if columns continue in the next panel.
    pub(super) panels: Option<usize>,
}

impl From<(usize, usize)> for Along {
    fn from((rows, cols): (usize, usize)) -> Along {
        Along { rows, cols, panels: None }
    }
}

/// Starts copying a tile, as a group of its own.
pub(super) fn copy(
    kb: &mut KernelBuilder,
    t: &SharedTile,
    slot: Value,
    buffer: Value,
    at: &[Value],
    along: impl Into<Along>,
) -> Value {
    let operands = [&[slot, buffer], at].concat();
    let Along { rows, cols, panels } = along.into();
    let op = Op::Gpu(GpuOp::CopyAsync { rows: Some(rows), cols: Some(cols), panels });
    let pending = kb.value(op, operands, Type::Pending(Queue::Copy, t.ty()));
    kb.value(Op::Gpu(GpuOp::Commit), vec![pending], group(t))
}

/// The type of a group of copies.
pub(super) fn group(t: &SharedTile) -> Type {
    Type::Group(Queue::Copy, t.ty())
}

/// Waits for the oldest copy.
pub(super) fn wait(kb: &mut KernelBuilder, t: &SharedTile, group: Value, pending: u32) -> Value {
    kb.value(Op::Gpu(GpuOp::Wait { pending }), vec![group], Type::Tile(t.ty()))
}

/// Releases a tile's slot.
pub(super) fn release(kb: &mut KernelBuilder, t: &SharedTile, tile: Value) -> Value {
    kb.value(Op::Gpu(GpuOp::Release), vec![tile], Type::Slot(t.ty()))
}

/// Loads a tile into fragments.
pub(super) fn fragment(kb: &mut KernelBuilder, t: &SharedTile, tile: Value, layout: Fragment) -> Value {
    kb.value(Op::Gpu(GpuOp::LoadFragment), vec![tile], t.fragment(layout))
}

/// A matmul of fragments.
pub(super) fn mma(kb: &mut KernelBuilder, a: Value, b: Value, acc: Value) -> Value {
    let ty = kb.ty(acc).clone();
    kb.value(Op::Gpu(GpuOp::Mma), vec![a, b, acc], ty)
}

/// A matmul of fragments by integers of this width, in shared memory tiles with their scales.
pub(super) fn mma_scaled(
    kb: &mut KernelBuilder,
    a: Value,
    [numbers, scales]: [Value; 2],
    acc: Value,
    bits: u8,
) -> Value {
    let ty = kb.ty(acc).clone();
    kb.value(Op::Gpu(GpuOp::MmaScaled { bits }), vec![a, numbers, scales, acc], ty)
}

/// Converts an accumulator of such matmuls to the layout of all others.
pub(super) fn convert_layout(kb: &mut KernelBuilder, x: Value) -> Option<Value> {
    let t = kb.ty(x).tile()?.clone();
    let ty = TileType { space: Space::Fragment(Fragment::Acc), ..t };
    Some(kb.value(Op::Gpu(GpuOp::ConvertLayout), vec![x], Type::Tile(ty)))
}

/// Converts an accumulator to a left operand.
pub(super) fn pack(kb: &mut KernelBuilder, x: Value, elem: Elem) -> Option<Value> {
    let t = kb.ty(x).tile()?.clone();
    let ty = TileType { elem, space: Space::Fragment(Fragment::A), ..t };
    Some(kb.value(Op::Gpu(GpuOp::Pack), vec![x], Type::Tile(ty)))
}

/// A zero accumulator, or a column of one.
pub(super) fn zeros(kb: &mut KernelBuilder, rows: i64, cols: i64) -> Value {
    let zero = Scalar::Float(0.0);
    kb.full(zero, Elem::F32, Extent::Static(rows), Extent::Static(cols))
}

/// A zero accumulator for matmuls by integers.
pub(super) fn zeros_in_quads(kb: &mut KernelBuilder, rows: i64, cols: i64) -> Value {
    let zero = kb.scalar(crate::scalar::Scalar::Float(0.0), Elem::F32);
    let (rows, cols) = (Extent::Static(rows), Extent::Static(cols));
    let ty = TileType { elem: Elem::F32, rows, cols, space: Space::Fragment(Fragment::Quads) };
    kb.value(Op::Full, vec![zero], Type::Tile(ty))
}

/// Multiplies values that may be infinite or NaN by factors; a factor of 0 yields 0.
pub(super) fn scaled(kb: &mut KernelBuilder, x: Value, factor: Value) -> Value {
    let nothing = kb.scalar(Scalar::Float(0.0), Elem::F32);
    let none = kb.compare(CmpOp::Eq, factor, nothing);
    let product = kb.binary(BinaryOp::Mul, x, factor);
    kb.select(none, nothing, product)
}

/// Finishes a GPU kernel: tiles without a layout get that of their shape.
pub(super) fn spread(mut kernel: Kernel, arch: GpuArch, warps: u32, scratch: i64) -> Option<Kernel> {
    let body = &mut kernel.body;
    let mut all: Vec<Value> = Vec::new();
    for block in &body.layout {
        let data = body.block(*block);
        all.extend(data.args.iter().copied().chain(data.insts.iter().filter_map(|i| body.inst(*i).result)));
    }
    let layout_of = |t: &TileType| match (t.rows == ONE, t.cols == ONE) {
        (false, true) => Fragment::Row,
        (true, false) => Fragment::Col,
        (false, false) | (true, true) => Fragment::Acc,
    };
    for v in all {
        let ty = match body.ty(v).clone() {
            Type::Tile(t) if t.space == Space::Any => {
                Type::Tile(TileType { space: Space::Fragment(layout_of(&t)), ..t })
            }
            Type::Pending(q, t) if t.space == Space::Any => {
                Type::Pending(q, TileType { space: Space::Fragment(layout_of(&t)), ..t })
            }
            Type::Group(q, t) if t.space == Space::Any => {
                Type::Group(q, TileType { space: Space::Fragment(layout_of(&t)), ..t })
            }
            _ => continue,
        };
        body.set_ty(v, ty);
    }
    kernel.scratch = u64::try_from(scratch).ok()?;
    kernel.state = State::Gpu { arch, warps };
    Some(kernel)
}

/// The extent of an axis, if it is a positive constant.
pub(super) fn known(d: &Dim) -> Option<i64> {
    d.as_const().filter(|n| *n > 0)
}

/// A ring of shared memory tiles between warps: number of stages, offsets of tiles and barriers.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingAt {
    pub(super) stages: i64,
    pub(super) offset: i64,
    pub(super) barriers: i64,
    /// Number of warps that read each tile.
    pub(super) readers: u32,
}

/// Creates a ring.
pub(super) fn ring(kb: &mut KernelBuilder, t: &SharedTile, at: RingAt) -> Value {
    let small = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
    let op = Op::Gpu(GpuOp::Ring { offset: small(at.offset), barriers: small(at.barriers), readers: at.readers });
    kb.value(op, Vec::new(), Type::Ring { stages: small(at.stages), tile: t.ty() })
}

/// Fills the tile of a ring's iteration, once it is empty.
pub(super) fn fill(
    kb: &mut KernelBuilder,
    t: &SharedTile,
    (ring, n): (Value, Value),
    buffer: Value,
    at: &[Value],
    (rows, cols): (usize, usize),
) {
    let slot = kb.value(Op::Gpu(GpuOp::RingAcquire), vec![ring, n], Type::Slot(t.ty()));
    let operands = [&[slot, buffer], at].concat();
    kb.push(Op::Gpu(GpuOp::TmaLoad { rows: Some(rows), cols: Some(cols) }), operands, None);
}

/// The tile of a ring's iteration, once it is full.
pub(super) fn full_tile(kb: &mut KernelBuilder, t: &SharedTile, ring: Value, n: Value) -> Value {
    kb.value(Op::Gpu(GpuOp::RingWait), vec![ring, n], Type::Tile(t.ty()))
}

/// Releases a tile of a ring.
pub(super) fn empty_tile(kb: &mut KernelBuilder, ring: Value, tile: Value) {
    kb.push(Op::Gpu(GpuOp::RingRelease), vec![ring, tile], None);
}

/// Makes earlier register writes visible to matmuls.
pub(super) fn fence(kb: &mut KernelBuilder) {
    kb.push(Op::Gpu(GpuOp::WgmmaFence), Vec::new(), None);
}

/// The axis of a matmul's right operand along which k goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KAxis {
    /// `B[k, n]`: values in attention, weights of `x @ w`.
    Rows,
    /// `B[n, k]`: keys in attention, weights of `x @ w.T`.
    Cols,
}

/// Starts a matmul of a warpgroup as a group of its own.
pub(super) fn start_matmul(kb: &mut KernelBuilder, a: Value, b: Value, acc: Value, k: KAxis) -> Option<Value> {
    let t = kb.ty(acc).tile()?.clone();
    let pending = Type::Pending(Queue::Mma, t.clone());
    let made = kb.value(Op::Gpu(GpuOp::Wgmma { trans_b: k == KAxis::Cols }), vec![a, b, acc], pending);
    Some(kb.value(Op::Gpu(GpuOp::Commit), vec![made], Type::Group(Queue::Mma, t)))
}

/// The result of the oldest outstanding matmul.
pub(super) fn result_of(kb: &mut KernelBuilder, group: Value, pending: u32) -> Option<Value> {
    let t = kb.ty(group).any_tile()?.clone();
    Some(kb.value(Op::Gpu(GpuOp::Wait { pending }), vec![group], Type::Tile(t)))
}

/// Arrives at a named barrier, and waits until as many threads have (`bar.sync`).
pub(super) fn barrier_sync(kb: &mut KernelBuilder, barrier: Value, threads: u32) {
    kb.push(Op::Gpu(GpuOp::NamedBarrier { threads, wait: true }), vec![barrier], None);
}

/// Arrives at a named barrier without waiting (`bar.arrive`).
pub(super) fn barrier_arrive(kb: &mut KernelBuilder, barrier: Value, threads: u32) {
    kb.push(Op::Gpu(GpuOp::NamedBarrier { threads, wait: false }), vec![barrier], None);
}
