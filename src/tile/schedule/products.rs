//! Kernels of products: how one is changed to read panels, in tiles of a machine's sizes.
//!
//! In: an unscheduled kernel whose description says that it multiplies two buffers
//! (`tile::matmul`), with elementwise work on the sums. Out: the same with other tiles, of some of
//! its columns, or with another right operand.
//!
//! ```text
//! grid(%h: H, %i: ceil(M, 64), %j: ceil(N, 64))     ->  grid(%h: H, %i: ceil(M, 128), %j: ceil(N, 32))
//!   %c = mul %j, 64                                       %c = mul %j, 32
//!   %b = load %w[%h, %k, %c] : tile f32[512, 64]          %b = load %p[%h, %j, %k, 0] : tile f32[512, 32]
//! ```
//!
//! A tile is one panel wide: NR columns, as many as a register tile of the machine has. The sizes
//! follow from where the operands have to lie while they are used again and again:
//!
//! * the tile's rows of A, all K steps of them, are gone through once for each panel, by the grid
//!   points that follow each other, so they should stay in the second-level cache, beside panels
//!   that pass through it: `ROWS` is 64, 128 or 256, such that `ROWS x K` floats take at most 384
//!   KiB, a fifth to a third of that cache (but not below 64 rows);
//! * a panel of B is gone through once for each register tile of rows, from the second-level cache:
//!   a register tile of 14 rows takes 14 cycles for a step's 128 bytes. It comes from memory once
//!   for each `ROWS` rows, half a byte to two bytes in a cycle; while one panel is used, the leaf
//!   function fetches the next one (`far`), or every first register tile would wait for memory. The
//!   steps that are summed at a time bound what is fetched ahead: 512 x 32 floats are 64 KiB;
//! * the accumulator goes to scratch and back once for each so many steps, one cycle in some
//!   hundred;
//! * a panel that is not packed yet is copied once for each ROWS rows: at 128 rows two cycles in a
//!   hundred, if it is near. Parameters are packed before all calls, and what many rows are
//!   multiplied by just before (`packing`).
//!
//! Where products take pairs of `bf16` steps (`pairs`), as many bytes are twice the steps.
//!
//! A changed kernel has no description. What this must not know: plans, and why an operand lies as
//! it does.

use cranelift_entity::SecondaryMap;

use super::packing::Panels;
use crate::scalar::{BinaryOp, Scalar};
use crate::shape::Dim;
use crate::source::Loc;
use crate::ssa::remove_dead;
use crate::tile::compute::difference;
use crate::tile::matmul::{self, LEFT, RIGHT};
use crate::tile::{
    Block, Body, BufferType, Compute, Extent, Inst, Kernel, Op, Param, ParamMode, Position, TileType, Type, Value,
    tile_size,
};

/// Rows of a tile of the result, at least and at most.
pub(super) const LEAST_ROWS: i64 = 64;
const MOST_ROWS: i64 = 256;
/// Elements of the left operand that a tile may read, all steps together.
const LEFT_ELEMENTS: i64 = 128 * 768;
/// What a number of steps that is not known is taken for.
const UNKNOWN_STEPS: i64 = 1024;
/// The same of a product of `bf16` that is: twice as many bytes, for it takes steps several times
/// as fast, and panels must come from memory so much more seldom.
const LEFT_PAIRS: i64 = 4 * LEFT_ELEMENTS;

/// Rows of a tile of the result of a product with so many steps.
pub(super) fn tile_rows(k: &Dim, in_pairs: bool) -> i64 {
    let steps = k.as_const().unwrap_or(UNKNOWN_STEPS).max(1);
    let most = if in_pairs { LEFT_PAIRS } else { LEFT_ELEMENTS };
    let mut rows = MOST_ROWS;
    while rows > LEAST_ROWS && rows.saturating_mul(steps) > most {
        rows /= 2;
    }
    rows
}

/// An axis of the grid along which tiles follow each other.
#[derive(Clone, Copy)]
struct Axis {
    /// Its place in the grid.
    number: usize,
    /// Where the tile starts: the grid point times the step.
    start: Value,
    /// How much of it a tile has.
    extent: Extent,
}

/// What is a product in a kernel.
pub(super) struct Product {
    /// The places of the operands among the parameters.
    pub(super) left: usize,
    pub(super) right: usize,
    rows: Axis,
    cols: Axis,
    /// The loads of the operands.
    left_loads: Vec<Inst>,
    right_loads: Vec<Inst>,
}

impl Product {
    /// The product that a kernel computes by its description, if other tiles of it have the same
    /// epilogue.
    pub(super) fn of(kernel: &Kernel) -> Option<Product> {
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
        Some(Product { left: LEFT, right: RIGHT, rows, cols, left_loads, right_loads })
    }

    fn loads(&self, body: &Body, v: Value, loads: &[Inst]) -> bool {
        loads.iter().any(|i| body.inst(*i).result == Some(v))
    }

    /// The types of the operands' buffers.
    pub(super) fn operands<'a>(&self, kernel: &'a Kernel) -> Option<[&'a BufferType; 2]> {
        let ty = |i: usize| kernel.params.get(i).and_then(|p| kernel.body.ty(p.value).buffer());
        Some([ty(self.left)?, ty(self.right)?])
    }

    /// Where a tile begins along rows and columns.
    pub(super) fn starts(&self) -> [Value; 2] {
        [self.rows.start, self.cols.start]
    }

    /// How many rows there are.
    pub(super) fn row_count(&self, kernel: &Kernel) -> Dim {
        kernel.grid.get(self.rows.number).map(|g| g.extent.clone()).unwrap_or_default()
    }

    /// The parameters whose columns go along the tile's, if the kernel may be one of fewer columns:
    /// it counts no columns.
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
        let alike = all.iter().all(|i| {
            let ty = kernel.params.get(*i).and_then(|p| body.ty(p.value).buffer());
            ty.and_then(|ty| ty.shape.get(self.cols.number)) == extent
        });
        alike.then_some(all)
    }

    fn a(&self, kernel: &Kernel) -> Value {
        kernel.params.get(self.left).map_or(Value::from_u32(u32::MAX), |p| p.value)
    }

    /// Makes the kernel one of so many columns, of those parameters.
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

    /// Gives the tiles other sizes: as many rows and columns.
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
        // The operations that computed the old sizes are removed, so that nothing is merged with
        // them.
        remove_dead(&mut kernel.body);
        kernel.compute = None;
    }

    /// Makes the right operand panels, whose points are those of the grid but for some.
    pub(super) fn read_panels(&self, kernel: &mut Kernel, panels: &Panels, own: &[usize]) {
        let (rank, n) = (panels.numbers.shape.len(), kernel.grid.len());
        let Some(buffer) = kernel.params.get(self.right).map(|p| p.value) else { return };
        kernel.body.set_ty(buffer, Type::Buffer(panels.numbers.buffer_type()));
        kernel.compute = None;
        let scales = panels.scales.as_ref().map(|(view, bits)| {
            let value = kernel.body.add_param(Type::Buffer(view.buffer_type()));
            kernel.params.insert(self.right + 1, Param::new(value, ParamMode::In));
            (value, *bits)
        });
        let points: Vec<Value> = own.iter().filter_map(|i| kernel.grid.get(*i).map(|g| g.value)).collect();
        let Some(panel) = kernel.grid.last().map(|g| g.value) else { return };
        for inst in &self.right_loads {
            let Some(k) = kernel.body.inst(*inst).operands.get(n - 1).copied() else { continue };
            let Some(mut at) = Before::new(&mut kernel.body, *inst) else { continue };
            let (op, mut operands) = match scales {
                Some((scales, bits)) => {
                    // Bytes of half numbers have two steps.
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
    /// Gives the axis another step; the new extent of a tile. Where one point has it all already,
    /// it stays.
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

/// Instructions put before another one.
struct Before<'a> {
    body: &'a mut Body,
    block: Block,
    inst: Inst,
    loc: Loc,
}

impl Before<'_> {
    fn new(body: &mut Body, inst: Inst) -> Option<Before<'_>> {
        let block = body.layout.iter().copied().find(|b| body.block(*b).insts.contains(&inst))?;
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
