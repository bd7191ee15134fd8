//! Matmul kernels: changes their tile sizes and right operands.
//!
//! In: an unscheduled kernel whose description says that it multiplies two buffers
//! (`tile::matmul`), with an elementwise epilogue. Out: the same with other tiles, with a subset of
//! its columns, or with another right operand.
//!
//! ```text
//! grid(%h: H, %i: ceil(M, 64), %j: ceil(N, 64))     ->  grid(%h: H, %i: ceil(M, 128), %j: ceil(N, 32))
//!   %c = mul %j, 64                                       %c = mul %j, 32
//!   %b = load %w[%h, %k, %c] : tile f32[512, 64]          %b = load %p[%h, %j, %k, 0] : tile f32[512, 32]
//! ```
//!
//! A tile is one panel wide: NR columns, the width of the machine's register tile. The sizes follow
//! from the caches in which operands should stay while they are reused:
//!
//! * the tile's rows of A, over all of K, are read once for each panel, by consecutive grid points,
//!   so they should stay in the L2 cache, beside the panels that stream through it: `ROWS` is 64,
//!   128 or 256, such that `ROWS x K` floats take at most 384 KiB, a fifth to a third of that cache
//!   (but never below 64 rows);
//! * a panel of B is read once for each register tile of rows, from the L2 cache: a register tile
//!   of 14 rows takes 14 cycles for a k index's 128 bytes. It comes from memory once per `ROWS`
//!   rows, half a byte to two bytes per cycle; while one panel is used, the leaf function
//!   prefetches the next one (`far`), otherwise every first register tile would wait for memory.
//!   The length of partial sums limits what is prefetched: 256 x 32 floats are 32 KiB;
//! * the accumulator goes to scratch and back once per partial sum, one cycle in some seventy;
//! * a panel that is not packed yet is copied once per `ROWS` rows: with 128 rows that is two
//!   cycles in a hundred, if it is cached. Parameters are packed before all calls, and operands of
//!   matmuls with many rows just before (`packing`).
//!
//! If matmuls use pairs of `bf16` k indices (`pairs`), the same bytes are twice the k indices.
//!
//! A changed kernel has no description. This must not know plans, nor the reasons for an operand's
//! layout.

use cranelift_entity::SecondaryMap;

use super::packing::Panels;
use crate::scalar::{BinaryOp, Scalar};
use crate::shape::Dim;
use crate::source::Loc;
use crate::ssa::remove_dead;
use crate::tile::compute::difference;
use crate::tile::epilogue::Epilogue;
use crate::tile::matmul::{self, LEFT, RIGHT};
use crate::tile::{
    Block, Body, BufferType, Compute, Extent, Inst, Kernel, Op, Param, ParamMode, Position, TileType, Type, Value,
    tile_size,
};

/// Minimum and maximum number of rows of a result tile.
pub(super) const LEAST_ROWS: i64 = 64;
const MAX_ROWS: i64 = 256;
/// Maximum number of elements of the left operand that a tile reads, over all of K.
const LEFT_ELEMENTS: i64 = 128 * 768;
/// Assumed K if it is not a constant.
const UNKNOWN_STEPS: i64 = 1024;
/// The same for a `bf16` matmul: twice as many bytes, because it processes k several times as fast,
/// and panels must come from memory correspondingly less often.
const LEFT_PAIRS: i64 = 4 * LEFT_ELEMENTS;

/// Rows of a result tile of a matmul with this K.
pub(super) fn tile_rows(k: &Dim, in_pairs: bool) -> i64 {
    let steps = k.as_const().unwrap_or(UNKNOWN_STEPS).max(1);
    let most = if in_pairs { LEFT_PAIRS } else { LEFT_ELEMENTS };
    let mut rows = MAX_ROWS;
    while rows > LEAST_ROWS && rows.saturating_mul(steps) > most {
        rows /= 2;
    }
    rows
}

/// A grid axis along which there are tiles.
#[derive(Clone, Copy)]
struct Axis {
    /// Its number in the grid.
    number: usize,
    /// Start of the tile: the grid index times the step.
    start: Value,
    /// Extent of the tile along it.
    extent: Extent,
}

/// The parts of a matmul in a kernel.
pub(super) struct MatmulParts {
    rows: Axis,
    cols: Axis,
    /// The work on its result.
    pub(super) epilogue: Epilogue,
    /// The loads of the operands.
    left_loads: Vec<Inst>,
    right_loads: Vec<Inst>,
}

impl MatmulParts {
    /// The matmul that a kernel's description states, if its epilogue is the same for other tiles.
    pub(super) fn find(kernel: &Kernel) -> Option<MatmulParts> {
        let Some(Compute::Matmul { .. }) = kernel.compute else { return None };
        let epilogue = matmul::epilogue(kernel)?;
        let is_read = |n: usize| kernel.params.get(n).is_some_and(|p| p.mode == ParamMode::In);
        let others = !epilogue.uses(kernel, &[LEFT, RIGHT]) && is_read(LEFT) && is_read(RIGHT);
        if !others || !epilogue.is_elementwise(kernel) {
            return None;
        }
        let loads_of = |n: usize| {
            let dots = kernel.body.insts().filter(|(_, _, d)| matches!(d.op, Op::Dot { .. }));
            let loads = dots.map(|(_, _, d)| Some(kernel.body.definition(*d.operands.get(n)?)?.0));
            loads.collect::<Option<Vec<Inst>>>()
        };
        let Position { axes, rows, cols } = &epilogue.tile.at;
        let axis = |number: usize, extent: Extent| Some(Axis { number, start: axes.get(number)?.1, extent });
        let n = kernel.grid.len();
        let (rows, cols) = (axis(n - 2, *rows)?, axis(n - 1, *cols)?);
        let [left_loads, right_loads] = [loads_of(0)?, loads_of(1)?];
        Some(MatmulParts { rows, cols, epilogue, left_loads, right_loads })
    }

    fn loads(&self, body: &Body, v: Value, loads: &[Inst]) -> bool {
        loads.iter().any(|i| body.inst(*i).result == Some(v))
    }

    /// The buffer types of the operands.
    pub(super) fn operands<'a>(&self, kernel: &'a Kernel) -> Option<[&'a BufferType; 2]> {
        Some([kernel.buffer_type(LEFT)?, kernel.buffer_type(RIGHT)?])
    }

    /// Start of a tile along rows and columns.
    pub(super) fn starts(&self) -> [Value; 2] {
        [self.rows.start, self.cols.start]
    }

    /// Total number of rows.
    pub(super) fn row_count(&self, kernel: &Kernel) -> Dim {
        kernel.grid.get(self.rows.number).map(|g| g.extent.clone()).unwrap_or_default()
    }

    /// Parameters with columns along the tile's columns, if the kernel can be restricted to fewer
    /// columns: it must not count columns.
    pub(super) fn with_columns(&self, kernel: &Kernel) -> Option<Vec<usize>> {
        let body = &kernel.body;
        if body.insts().any(|(_, _, d)| matches!(d.op, Op::Iota { .. })) {
            return None;
        }
        let has = |p: &Param| {
            body.insts().any(|(_, _, d)| match &d.op {
                Op::Load { cols, .. } | Op::Store { cols, .. } => {
                    d.operands.first() == Some(&p.value) && *cols == Some(self.cols.number) && p.value != self.a(kernel)
                }
                _ => false,
            })
        };
        let all = kernel.params.iter().enumerate().filter(|(_, p)| has(p)).map(|(i, _)| i).collect::<Vec<usize>>();
        let extent = kernel.grid.get(self.cols.number).map(|g| &g.extent);
        let alike = all.iter().all(|i| kernel.buffer_type(*i).and_then(|ty| ty.shape.get(self.cols.number)) == extent);
        alike.then_some(all)
    }

    fn a(&self, kernel: &Kernel) -> Value {
        kernel.params.get(LEFT).map_or(Value::from_u32(u32::MAX), |p| p.value)
    }

    /// Restricts the kernel to this number of columns of those parameters.
    pub(super) fn narrow(&self, kernel: &mut Kernel, columns: &Dim, of: &[usize]) {
        for i in of {
            let Some(v) = kernel.params.get(*i).map(|p| p.value) else { continue };
            if let Type::Buffer(mut ty) = kernel.body.ty(v).clone() {
                if let Some(n) = ty.shape.get_mut(self.cols.number) {
                    *n = columns.clone();
                }
                kernel.body.set_ty(v, Type::Buffer(ty));
            }
        }
        if let Some(axis) = kernel.grid.get_mut(self.cols.number) {
            axis.extent = columns.clone();
        }
        if difference(kernel).is_some() {
            kernel.compute = None;
        }
    }

    /// Changes the tile size.
    pub(super) fn retile(&self, kernel: &mut Kernel, rows: i64, cols: i64) {
        for (axis, size, along) in [(self.rows, rows, 0), (self.cols, cols, 1)] {
            let Some(new) = axis.resize(kernel, size) else { continue };
            for (v, mut t) in tiles(&kernel.body) {
                let inner = if along == 0 { &self.right_loads } else { &self.left_loads };
                let extent = if along == 0 { &mut t.rows } else { &mut t.cols };
                if *extent == axis.extent && !extent.is_one() && !self.loads(&kernel.body, v, inner) {
                    *extent = new;
                    kernel.body.set_ty(v, Type::Tile(t));
                }
            }
        }
        // Removes the computations of the old sizes, so that nothing is merged with them.
        remove_dead(&mut kernel.body);
        kernel.compute = None;
    }

    /// Replaces the right operand by panels, whose leading axes are the grid axes in `own`.
    pub(super) fn read_panels(&self, kernel: &mut Kernel, panels: &Panels, own: &[usize]) {
        let (rank, n) = (panels.numbers.shape.len(), kernel.grid.len());
        let Some(buffer) = kernel.params.get(RIGHT).map(|p| p.value) else { return };
        kernel.body.set_ty(buffer, Type::Buffer(panels.numbers.buffer_type()));
        kernel.compute = None;
        let scales = panels.scales.as_ref().map(|(view, bits)| {
            let value = kernel.body.add_param(Type::Buffer(view.buffer_type()));
            kernel.params.insert(RIGHT + 1, Param::new(value, ParamMode::In));
            (value, *bits)
        });
        let points: Vec<Value> = own.iter().filter_map(|i| kernel.grid.get(*i).map(|g| g.value)).collect();
        let Some(panel) = kernel.grid.last().map(|g| g.value) else { return };
        for inst in &self.right_loads {
            let Some(k) = kernel.body.inst(*inst).operands.get(n - 1).copied() else { continue };
            let Some(mut at) = Before::new(&mut kernel.body, *inst) else { continue };
            let (op, mut operands) = match scales {
                Some((scales, bits)) => {
                    // A byte holds two 4-bit integers.
                    let steps = at.index(i64::from(8 / bits.clamp(1, 8)));
                    let row = at.binary(BinaryOp::Div, k, steps);
                    (Op::LoadScaled { bits }, vec![panel, row, at.index(0), scales])
                }
                None if panels.in_pairs => {
                    let (two, first) = (at.index(2), at.index(0));
                    let pair = at.binary(BinaryOp::Div, k, two);
                    (Op::LoadPairs, vec![panel, pair, first, first])
                }
                None if panels.abreast > 1 => {
                    let op = Op::Load { rows: Some(rank - 3), cols: Some(rank - 1) };
                    let count = at.index(panels.abreast);
                    let place = at.binary(BinaryOp::Rem, panel, count);
                    (op, vec![at.binary(BinaryOp::Div, panel, count), k, place, at.index(0)])
                }
                None => {
                    let op = Op::Load { rows: Some(rank - 2), cols: Some(rank - 1) };
                    (op, vec![panel, k, at.index(0)])
                }
            };
            operands = [&[buffer], points.as_slice(), &operands].concat();
            let data = kernel.body.inst_mut(*inst);
            (data.op, data.operands) = (op, operands);
        }
    }
}

impl Axis {
    /// Changes the step of the axis; returns the new extent of a tile. Unchanged if one point
    /// covers everything already.
    fn resize(&self, kernel: &mut Kernel, size: i64) -> Option<Extent> {
        let axis = kernel.grid.get_mut(self.number)?;
        let size = tile_size(&axis.extent, size);
        let (point, all) = (axis.value, axis.extent.clone());
        if axis.step == 1 {
            return None;
        }
        axis.step = size;
        let (inst, _) = kernel.body.definition(self.start)?;
        let mut at = Before::new(&mut kernel.body, inst)?;
        let step = at.index(size);
        let start = at.binary(BinaryOp::Mul, point, step);
        let extent = if size == 1 || all.as_const().is_some_and(|n| n > 0 && n % size == 0) {
            Extent::Static(size)
        } else {
            let end = at.dim(&all);
            let rest = at.binary(BinaryOp::Sub, end, start);
            Extent::Bounded { value: at.binary(BinaryOp::Min, rest, step), max: size }
        };
        let mut by = SecondaryMap::new();
        by[self.start] = Some(start);
        kernel.body.replace_uses(&by);
        Some(extent)
    }
}

/// Inserts instructions before another one.
struct Before<'a> {
    body: &'a mut Body,
    block: Block,
    inst: Inst,
    loc: Loc,
}

impl Before<'_> {
    fn new(body: &mut Body, inst: Inst) -> Option<Before<'_>> {
        let block = body.block_of(inst)?;
        let loc = body.inst(inst).loc;
        Some(Before { body, block, inst, loc })
    }

    fn make(&mut self, op: Op, operands: Vec<Value>) -> Value {
        let made = self.body.make_inst(op, operands, Some(Type::Index), self.loc);
        self.body.insert_before(self.block, self.inst, made);
        match self.body.inst(made).result {
            Some(v) => v,
            None => unreachable!("an instruction that is given a type has a result"),
        }
    }

    fn index(&mut self, n: i64) -> Value {
        self.make(Op::Const(Scalar::Int(n)), Vec::new())
    }

    fn dim(&mut self, d: &Dim) -> Value {
        match d.as_const() {
            Some(n) => self.index(n),
            None => self.make(Op::DimValue(d.clone()), Vec::new()),
        }
    }

    fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        self.make(Op::Binary(op), vec![a, b])
    }
}

/// Every tile of a body, with its type.
fn tiles(body: &Body) -> Vec<(Value, TileType)> {
    let mut out = Vec::new();
    for block in &body.layout {
        let data = body.block(*block);
        let results = data.insts.iter().filter_map(|i| body.inst(*i).result);
        for v in data.args.iter().copied().chain(results) {
            out.extend(body.ty(v).tile().map(|t| (v, t.clone())));
        }
    }
    out
}
