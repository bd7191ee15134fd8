//! Products on tensor cores.
//!
//! In: an unscheduled kernel of one product over a known number of steps and elementwise work on its result
//! (`schedule/products.rs` finds it). Out: the same with fragments. For `mma.sync`, in a loop over tiles of some steps, the next tiles
//! are copied while one is multiplied:
//!
//! ```text
//! grid (points.., ceil(M, rows), ceil(N, cols))
//!   copies of the first stages - 1 tiles of A and B start
//!   for each tile of steps:
//!     wait for the oldest tiles;  start to copy those stages - 1 further;  acc += A tile @ B tile
//!   epilogue;  store
//! ```
//!
//! The epilogue is the kernel's own work, on the accumulator's fragments; it may be anything elementwise. What a tile has beyond the
//! end of the operands is zero, and beyond that of the result not stored.

use std::collections::BTreeMap;

use super::super::products::Product;
use super::build::{self, ONE, SharedTile};
use super::machine::{Machine, ProductTile};
use crate::scalar::{BinaryOp, CmpOp, Scalar};
use crate::shape::{Dim, Elem};
use crate::tile::{Extent, Fragment, GpuArch, Inst, Kernel, KernelBuilder, Op, Param, TileType, Type, Value, ValueDef};

/// Rows and columns below which a product stays as it is.
pub(in super::super) const FEW_ROWS: i64 = 9;
pub(in super::super) const FEW_COLS: i64 = 8;

/// A product with its operands as tiles of shared memory.
pub(super) struct Parts<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) product: Product,
    pub(super) tile: ProductTile,
    /// Number of steps.
    pub(super) steps: i64,
    /// A tile of A, and one of B as it lies.
    pub(super) left: SharedTile,
    pub(super) right: SharedTile,
    /// Are the steps of B along its columns in memory, as in the transpose of a row-major matrix?
    pub(super) transposed: bool,
}

/// The place of a tile in the new kernel.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) points: Vec<Value>,
    pub(super) row: Value,
    pub(super) col: Value,
    pub(super) left: Value,
    pub(super) right: Value,
}

/// The form of a product for tensor cores.
pub(super) fn kernel(kernel: &Kernel, machine: &Machine, aligned: &dyn Fn(&Param) -> bool) -> Option<Kernel> {
    let parts = Parts::find(kernel, machine, aligned)?;
    match machine.arch {
        // `wgmma` would cut `f32` off, and takes no right operand whose steps are along its rows.
        GpuArch::Sm90a if parts.left.elem != Elem::F32 => parts.with_rings(machine),
        GpuArch::Sm80 | GpuArch::Sm90a => parts.with_copies(machine),
    }
}

impl<'a> Parts<'a> {
    fn find(kernel: &'a Kernel, machine: &Machine, aligned: &dyn Fn(&Param) -> bool) -> Option<Parts<'a>> {
        let product = Product::find(kernel)?;
        let [a, b] = product.operands(kernel)?;
        let is_half = matches!(a.elem, Elem::BF16 | Elem::F16);
        let fits = a.elem == b.elem && (is_half || machine.tf32 && a.elem == Elem::F32);
        let rank = kernel.grid.len();
        let steps = build::known(a.shape.last()?)?;
        // One product over all steps that begins with nothing.
        let dots: Vec<_> = kernel.body.insts().filter(|(_, _, d)| matches!(d.op, Op::Dot { .. })).collect();
        let [(_, _, dot)] = dots.as_slice() else { return None };
        let whole = kernel.body.ty(*dot.operands.first()?).tile()?.cols == Extent::Static(steps);
        if !fits || !whole || !begins_with_nothing(kernel, *dot.operands.get(2)?) {
            return None;
        }
        let transposed = !b.is_dense(rank - 1);
        let dense = if transposed { rank - 2 } else { rank - 1 };
        let param = |n: usize| kernel.params.get(n).is_some_and(aligned);
        if !build::has_rows_of_chunks(a, rank - 1)
            || !build::has_rows_of_chunks(b, dense)
            || !param(product.left)
            || !param(product.right)
        {
            return None;
        }
        let shape: Vec<Dim> = kernel.grid.iter().map(|g| g.extent.clone()).collect();
        let (points, [rows, cols]) = shape.split_last_chunk::<2>()?;
        // A product of few rows is bound by memory bandwidth.
        if rows.as_const().is_some_and(|n| n < FEW_ROWS) || cols.as_const().is_some_and(|n| n < FEW_COLS) {
            return None;
        }
        let loads = kernel.body.insts().filter(|(_, _, d)| matches!(d.op, Op::Load { .. })).count();
        let bytes = i64::try_from(a.elem.size()).ok()?;
        let sizes = if is_half { *machine } else { Machine::of(GpuArch::Sm80) };
        let tile = sizes.product(points, [rows, cols], bytes, loads > 2);
        let left = SharedTile { elem: a.elem, rows: tile.rows, cols: tile.steps };
        let right = match transposed {
            true => SharedTile { elem: a.elem, rows: tile.cols, cols: tile.steps },
            false => SharedTile { elem: a.elem, rows: tile.steps, cols: tile.cols },
        };
        Some(Parts { kernel, product, tile, steps, left, right, transposed })
    }

    /// A kernel with the same parameters and a grid of the new tiles, which blocks take in groups of so many rows of tiles; as they come
    /// where that is 1.
    pub(super) fn begin(&self, group: i64) -> Option<(KernelBuilder, Place)> {
        let mut kb = self.with_buffers()?;
        let (points, [rows, cols]) = self.kernel.grid.split_last_chunk::<2>()?;
        let points = points.iter().map(|g| kb.grid_axis(&g.extent, g.step)).collect();
        let row = kb.grid_axis(&rows.extent, self.tile.rows);
        let col = kb.grid_axis(&cols.extent, self.tile.cols);
        let place = self.place(&mut kb, points, [row, col], group)?;
        Some((kb, place))
    }

    /// The kernel without anything, but with its buffers.
    pub(super) fn with_buffers(&self) -> Option<KernelBuilder> {
        let mut kb = KernelBuilder::new(&self.kernel.name);
        for p in &self.kernel.params {
            kb.buffer(self.kernel.body.ty(p.value).buffer()?.clone(), p.mode);
        }
        Some(kb)
    }

    /// How many tiles the product has along rows and columns.
    fn counts(&self) -> Option<[Dim; 2]> {
        let (_, [rows, cols]) = self.kernel.grid.split_last_chunk::<2>()?;
        let count = |d: &Dim, size: i64| d.ceil_div(&Dim::from(size));
        Some([count(&rows.extent, self.tile.rows)?, count(&cols.extent, self.tile.cols)?])
    }

    /// How many it has in all.
    pub(super) fn all_tiles(&self) -> Option<Dim> {
        let [rows, cols] = self.counts()?;
        Some(rows.mul(&cols))
    }

    /// The place of a tile by its number.
    pub(super) fn place_of(&self, kb: &mut KernelBuilder, number: Value, group: i64) -> Option<Place> {
        let [_, cols] = self.counts()?;
        let cols = kb.dim(&cols);
        let row = kb.index_binary(BinaryOp::Div, number, cols);
        let col = kb.index_binary(BinaryOp::Rem, number, cols);
        self.place(kb, Vec::new(), [row, col], group)
    }

    /// The place of the tile in a row and a column of tiles, taken in groups of rows.
    fn place(&self, kb: &mut KernelBuilder, points: Vec<Value>, [row, col]: [Value; 2], group: i64) -> Option<Place> {
        let [row, col] = if group > 1 { in_groups(kb, [row, col], self.counts()?, group) } else { [row, col] };
        let row = kb.times(row, self.tile.rows);
        let col = kb.times(col, self.tile.cols);
        let (left, right) = (kb.param(self.product.left)?, kb.param(self.product.right)?);
        Some(Place { points, row, col, left, right })
    }

    /// Where the tiles of A and B of some steps begin, and the axes along which their rows and columns go.
    pub(super) fn starts(&self, place: &Place, step: Value) -> [(Vec<Value>, (usize, usize)); 2] {
        let n = self.kernel.grid.len();
        let left = [place.points.as_slice(), &[place.row, step]].concat();
        let right = [place.points.as_slice(), &[step, place.col]].concat();
        let axes = if self.transposed { (n - 1, n - 2) } else { (n - 2, n - 1) };
        [(left, (n - 2, n - 1)), (right, axes)]
    }

    /// The kernel for `mma.sync`.
    fn with_copies(&self, machine: &Machine) -> Option<Kernel> {
        let (mut kb, place) = self.begin(1)?;
        let loc = self.dot_loc();
        kb.at(loc);
        let (stages, tile) = (self.tile.stages, self.tile);
        let (left, right) = (&self.left, &self.right);
        let stage = left.bytes() + right.bytes();
        let zero = kb.index(0);
        // Groups of copies in the order in which they are waited for, A before B, then the rooms that are free.
        let mut carried = vec![zero, build::zeros(&mut kb, tile.rows, tile.cols)];
        let mut groups = Vec::new();
        for n in 0..stages - 1 {
            let step = kb.index(n * tile.steps);
            let [(at_left, along_left), (at_right, along_right)] = self.starts(&place, step);
            let room = build::slot(&mut kb, left, n * stage);
            groups.push(build::copy(&mut kb, left, room, place.left, &at_left, along_left));
            let room = build::slot(&mut kb, right, n * stage + left.bytes());
            groups.push(build::copy(&mut kb, right, room, place.right, &at_right, along_right));
        }
        carried.extend(groups);
        carried.push(build::slot(&mut kb, left, (stages - 1) * stage));
        carried.push(build::slot(&mut kb, right, (stages - 1) * stage + left.bytes()));

        let (head, args) = kb.new_block(carried.iter().map(|v| kb.ty(*v).clone()).collect());
        let (inner, _) = kb.new_block(Vec::new());
        let (done, _) = kb.new_block(Vec::new());
        kb.br(head, &carried);
        kb.switch_to(head);
        let (step, sums) = (*args.first()?, *args.get(1)?);
        let in_flight = args.get(2..args.len() - 2)?;
        let (free_left, free_right) = (*args.get(args.len() - 2)?, *args.last()?);
        let end = kb.index(self.steps);
        let more = kb.compare_scalars(CmpOp::Lt, step, end);
        kb.br_if(more, (inner, &[]), (done, &[]));

        kb.switch_to(inner);
        let pending = u32::try_from(in_flight.len()).ok()?;
        let a = build::wait(&mut kb, left, *in_flight.first()?, pending - 1);
        let b = build::wait(&mut kb, right, *in_flight.get(1)?, pending - 2);
        let ahead = kb.plus(step, (stages - 1) * tile.steps);
        let [(at_left, along_left), (at_right, along_right)] = self.starts(&place, ahead);
        let next_left = build::copy(&mut kb, left, free_left, place.left, &at_left, along_left);
        let next_right = build::copy(&mut kb, right, free_right, place.right, &at_right, along_right);
        let fa = build::fragment(&mut kb, left, a, Fragment::A);
        let layout = if self.transposed { Fragment::BT } else { Fragment::B };
        let fb = build::fragment(&mut kb, right, b, layout);
        let more = build::mma(&mut kb, fa, fb, sums);
        let (room_left, room_right) = (build::release(&mut kb, left, a), build::release(&mut kb, right, b));
        let next = kb.plus(step, tile.steps);
        let mut then = vec![next, more];
        then.extend(in_flight.iter().skip(2));
        then.extend([next_left, next_right, room_left, room_right]);
        kb.br(head, &then);

        kb.switch_to(done);
        for (n, group) in in_flight.iter().enumerate() {
            let t = if n % 2 == 0 { left } else { right };
            build::wait(&mut kb, t, *group, u32::try_from(in_flight.len() - 1 - n).ok()?);
        }
        self.epilogue(&mut kb, &place, sums, [tile.rows, tile.cols])?;
        let warps = u32::try_from(tile.warps).ok()?;
        build::spread(kb.finish(), machine.arch, warps, stages * stage)
    }

    pub(super) fn dot_loc(&self) -> crate::source::Loc {
        let dot = self.kernel.body.insts().find(|(_, _, d)| matches!(d.op, Op::Dot { .. }));
        dot.map_or_else(crate::source::Loc::default, |(_, _, d)| d.loc)
    }

    /// What the kernel does with the result, on an accumulator of a tile's extents.
    pub(super) fn epilogue(
        &self,
        kb: &mut KernelBuilder,
        place: &Place,
        result: Value,
        extents: [i64; 2],
    ) -> Option<()> {
        let body = &self.kernel.body;
        let mut copy = Copy { kernel: self.kernel, made: BTreeMap::new(), old: self.extents()?, new: extents };
        for (n, p) in self.kernel.params.iter().enumerate() {
            if n != self.product.left && n != self.product.right {
                copy.made.insert(p.value, kb.param(n)?);
            }
        }
        let (points, _) = self.kernel.grid.split_last_chunk::<2>()?;
        copy.made.extend(points.iter().map(|g| g.value).zip(place.points.iter().copied()));
        let [row, col] = self.product.starts();
        copy.made.extend([(row, place.row), (col, place.col)]);
        let mut stores = Vec::new();
        for (_, i, data) in body.insts() {
            match data.op {
                Op::Dot { .. } => copy.made.extend(data.result.map(|v| (v, result))),
                Op::Store { .. } => stores.push(i),
                _ => {}
            }
        }
        for i in stores {
            copy.inst(kb, i)?;
        }
        Some(())
    }

    /// Extents of the old tiles.
    fn extents(&self) -> Option<[Extent; 2]> {
        let dot = self.kernel.body.insts().find(|(_, _, d)| matches!(d.op, Op::Dot { .. }))?;
        let t = self.kernel.body.ty(dot.2.result?).tile()?;
        Some([t.rows, t.cols])
    }
}

/// The tile of a block in groups of rows of tiles: within a group, column after column, each from top to bottom. So blocks that run at a time
/// have a few rows and a few columns, whose operands the second-level cache holds.
///
/// ```text
/// 0 2 4 6      groups of 2 of 3 rows of 4 tiles: the block of each
/// 1 3 5 7
/// 8 9 10 11
/// ```
fn in_groups(kb: &mut KernelBuilder, [row, col]: [Value; 2], counts: [Dim; 2], group: i64) -> [Value; 2] {
    let [rows, cols] = counts.map(|n| kb.dim(&n));
    let most = kb.index(group);
    let above = kb.index_binary(BinaryOp::Rem, row, most);
    let first = kb.index_binary(BinaryOp::Sub, row, above);
    let left = kb.index_binary(BinaryOp::Sub, rows, first);
    let height = kb.index_binary(BinaryOp::Min, left, most);
    let before = kb.index_binary(BinaryOp::Mul, above, cols);
    let number = kb.index_binary(BinaryOp::Add, before, col);
    let down = kb.index_binary(BinaryOp::Rem, number, height);
    let across = kb.index_binary(BinaryOp::Div, number, height);
    [kb.index_binary(BinaryOp::Add, first, down), across]
}

/// Is a sum zero at the start?
fn begins_with_nothing(kernel: &Kernel, v: Value) -> bool {
    let filled = kernel.body.def_inst(v).filter(|d| d.op == Op::Full);
    let x = filled.and_then(|d| d.operands.first()).and_then(|x| kernel.body.def_inst(*x));
    x.is_some_and(|d| matches!(d.op, Op::Const(Scalar::Float(x)) if x == 0.0))
}

/// Copies elementwise work to a kernel with tiles of other extents.
struct Copy<'a> {
    kernel: &'a Kernel,
    made: BTreeMap<Value, Value>,
    old: [Extent; 2],
    new: [i64; 2],
}

impl Copy<'_> {
    fn value(&mut self, kb: &mut KernelBuilder, v: Value) -> Option<Value> {
        if let Some(v) = self.made.get(&v) {
            return Some(*v);
        }
        let ValueDef::Result(i) = self.kernel.body.def(v) else { return None };
        let made = self.inst(kb, i)??;
        self.made.insert(v, made);
        Some(made)
    }

    /// An instruction and what it needs; its result.
    fn inst(&mut self, kb: &mut KernelBuilder, i: Inst) -> Option<Option<Value>> {
        let data = self.kernel.body.inst(i).clone();
        let makes_index = data.result.is_some_and(|v| *self.kernel.body.ty(v) == Type::Index);
        if !(data.op.is_elementwise() || makes_index && matches!(data.op, Op::Binary(_))) {
            return None;
        }
        let mut operands = Vec::new();
        for v in &data.operands {
            operands.push(self.value(kb, *v)?);
        }
        let ty = match data.result.map(|v| self.kernel.body.ty(v).clone()) {
            Some(Type::Tile(t)) => {
                let [rows, cols] = [(t.rows, 0), (t.cols, 1)].map(|(extent, n)| {
                    if extent == self.old[n] {
                        Some(Extent::Static(self.new[n]))
                    } else {
                        Some(extent).filter(|e| *e == ONE)
                    }
                });
                Some(Type::Tile(TileType { rows: rows?, cols: cols?, ..t }))
            }
            other => other,
        };
        kb.at(data.loc);
        Some(kb.push(data.op, operands, ty))
    }
}
