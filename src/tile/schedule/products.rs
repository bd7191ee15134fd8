//! Matmul kernels: recognises them in unscheduled form, and changes their tile sizes and right
//! operands.
//!
//! In: an unscheduled kernel that multiplies two row-major (or strided) buffers, as made by
//! `lowering::tile::matmul`: a grid of points, rows and columns, matmuls of tiles over some k
//! indices, and an elementwise epilogue. Out: the same with other tiles, with a subset of its
//! columns, or with another right operand.
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
//!   The length of partial sums limits what is prefetched: 512 x 32 floats are 64 KiB;
//! * the accumulator goes to scratch and back once per partial sum, one cycle in some hundred;
//! * a panel that is not packed yet is copied once per `ROWS` rows: with 128 rows that is two
//!   cycles in a hundred, if it is cached. Parameters are packed before all calls, and operands of
//!   matmuls with many rows just before (`packing`).
//!
//! If matmuls use pairs of `bf16` k indices (`pairs`), the same bytes are twice the k indices.
//!
//! Other kernels are unchanged. It must not know plans, nor the reasons for an operand's layout.

use cranelift_entity::SecondaryMap;

use super::packing::Panels;
use crate::scalar::{BinaryOp, Scalar};
use crate::shape::Dim;
use crate::source::Loc;
use crate::ssa::{Use, remove_dead};
use crate::tile::{
    Block, Body, BufferType, Extent, Inst, Kernel, Op, Param, ParamMode, State, TileType, Type, Value, tile_size,
};

/// Minimum and maximum number of rows of a result tile.
pub(super) const LEAST_ROWS: i64 = 64;
const MOST_ROWS: i64 = 256;
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
    let mut rows = MOST_ROWS;
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
pub(super) struct Product {
    /// Parameter numbers of the operands.
    pub(super) left: usize,
    pub(super) right: usize,
    rows: Axis,
    cols: Axis,
    /// The loads of the operands.
    left_loads: Vec<Inst>,
    right_loads: Vec<Inst>,
}

impl Product {
    /// The matmul of a kernel, if it has the structure above.
    pub(super) fn find(kernel: &Kernel) -> Option<Product> {
        let body = &kernel.body;
        if kernel.state != State::Unscheduled || kernel.grid.len() < 2 {
            return None;
        }
        let (mut left_loads, mut right_loads) = (Vec::new(), Vec::new());
        let mut buffers = None;
        for (_, _, data) in body.insts() {
            match (&data.op, data.operands.as_slice()) {
                (Op::Dot { .. }, [a, b, _]) => {
                    let ((a, from), (b, of)) = (body.definition(*a)?, body.definition(*b)?);
                    let pair = (*from.operands.first()?, *of.operands.first()?);
                    if *buffers.get_or_insert(pair) != pair {
                        return None;
                    }
                    left_loads.push(a);
                    right_loads.push(b);
                }
                (op, _) if !op.is_elementwise() => return None,
                _ => {}
            }
        }
        let (a, b) = buffers.filter(|(a, b)| a != b)?;
        let place = |v: Value| kernel.params.iter().position(|p| p.value == v && p.mode == ParamMode::In);
        let (left, right) = (place(a)?, place(b)?);
        let rank = body.ty(b).buffer()?.shape.len();
        let n = kernel.grid.len();
        if rank != n || body.ty(a).buffer()?.shape.len() != n {
            return None;
        }
        let axis = |number: usize, of: usize| -> Option<Axis> {
            // Some load has the tile's start along this axis.
            let load = if of == 0 { left_loads.first()? } else { right_loads.first()? };
            let start = *body.inst(*load).operands.get(1 + number)?;
            let ty = body.ty(body.inst(*load).result?).tile()?;
            let extent = if of == 0 { ty.rows } else { ty.cols };
            let axis = Axis { number, start, extent };
            axis.is_regular(kernel).then_some(axis)
        };
        let (rows, cols) = (axis(n - 2, 0)?, axis(n - 1, 1)?);
        let product = Product { left, right, rows, cols, left_loads, right_loads };
        product.is_regular(kernel).then_some(product)
    }

    /// Do all accesses along rows and columns belong to one tile, and all accesses to operands to a
    /// matmul?
    fn is_regular(&self, kernel: &Kernel) -> bool {
        let body = &kernel.body;
        let uses = body.uses();
        let points: Vec<Value> = kernel.grid.iter().take(self.rows.number).map(|g| g.value).collect();
        let tile_axes = (Some(self.rows.number), Some(self.cols.number));
        let load = |i: &Inst| match &body.inst(*i).op {
            Op::Load { rows, cols } if (*rows, *cols) == tile_axes => body.inst(*i).operands.get(1..),
            _ => None,
        };
        // Each dot must cover the same k indices of both operands.
        let operands = self.left_loads.iter().zip(&self.right_loads).all(|(a, b)| match (load(a), load(b)) {
            (Some([lead @ .., row, k]), Some([others @ .., step, col])) => {
                lead == points && others == points && k == step && (*row, *col) == (self.rows.start, self.cols.start)
            }
            _ => false,
        });
        let alone = |number: usize, loads: &[Inst]| {
            let all = kernel.params.get(number).map(|p| &uses[p.value]);
            all.is_some_and(|all| all.iter().all(|u| matches!(u, Use::Operand(i, 0) if loads.contains(i))))
        };
        let only_dots = |loads: &[Inst]| {
            let results = loads.iter().filter_map(|i| body.inst(*i).result);
            results.into_iter().all(|v| {
                uses[v].iter().all(|u| matches!(u, Use::Operand(i, _) if matches!(body.inst(*i).op, Op::Dot { .. })))
            })
        };
        operands
            && alone(self.left, &self.left_loads)
            && alone(self.right, &self.right_loads)
            && only_dots(&self.left_loads)
            && only_dots(&self.right_loads)
            && self.starts_are_used_well(kernel, &uses)
            && tiles(body).into_iter().all(|(v, t)| self.is_of_tile(body, v, &t))
    }

    /// Are the starts of the tile used only as such: as indices along their axes, as starts of
    /// counters, and to compute extents?
    fn starts_are_used_well(&self, kernel: &Kernel, uses: &SecondaryMap<Value, Vec<Use>>) -> bool {
        let body = &kernel.body;
        let is_extent = |rest: Value| {
            uses[rest].iter().all(|u| match u {
                Use::Operand(i, _) => {
                    let min = body.inst(*i);
                    min.op == Op::Binary(BinaryOp::Min) && min.result.is_some_and(|v| uses[v].is_empty())
                }
                Use::Terminator(_) => false,
            })
        };
        [(self.rows, 0), (self.cols, 1)].into_iter().all(|(axis, along)| {
            uses[axis.start].iter().all(|u| {
                let Use::Operand(i, place) = u else { return false };
                let data = body.inst(*i);
                match &data.op {
                    Op::Load { rows, cols } | Op::Store { rows, cols } => {
                        *place == axis.number + 1 && [*rows, *cols][along] == Some(axis.number)
                    }
                    Op::Iota { axis } => *axis == along,
                    // The rest of the axis, which may only be used for an extent.
                    Op::Binary(BinaryOp::Sub) => *place == 1 && data.result.is_some_and(is_extent),
                    _ => false,
                }
            })
        }) && body.insts().all(|(_, _, d)| self.access_is_whole(body, &d.op, &d.operands, d.result))
    }

    /// Does an access that covers rows or columns of the tile begin at the tile's start?
    fn access_is_whole(&self, body: &Body, op: &Op, operands: &[Value], result: Option<Value>) -> bool {
        let tile = match op {
            Op::Load { .. } => result,
            Op::Store { .. } => operands.last().copied(),
            Op::Iota { .. } => {
                let start = operands.first();
                return start == Some(&self.rows.start) || start == Some(&self.cols.start);
            }
            _ => return true,
        };
        let (Op::Load { rows, cols } | Op::Store { rows, cols }) = op else { return true };
        let Some(ty) = tile.and_then(|v| body.ty(v).tile()) else { return false };
        let inner = |v: &Option<Value>| {
            v.is_some_and(|v| self.loads(body, v, &self.left_loads) || self.loads(body, v, &self.right_loads))
        };
        let starts = |extent: Extent, axis: Option<usize>, of: Axis| {
            extent.is_one() || axis == Some(of.number) && operands.get(1 + of.number) == Some(&of.start)
        };
        matches!(op, Op::Load { .. }) && inner(&tile)
            || starts(ty.rows, *rows, self.rows) && starts(ty.cols, *cols, self.cols)
    }

    fn loads(&self, body: &Body, v: Value, loads: &[Inst]) -> bool {
        loads.iter().any(|i| body.inst(*i).result == Some(v))
    }

    /// Does a tile have the height and width of the others, or 1? The inner extents of operands do
    /// not count.
    fn is_of_tile(&self, body: &Body, v: Value, t: &TileType) -> bool {
        let rows = t.rows.is_one() || t.rows == self.rows.extent || self.loads(body, v, &self.right_loads);
        let cols = t.cols.is_one() || t.cols == self.cols.extent || self.loads(body, v, &self.left_loads);
        rows && cols
    }

    /// The buffer types of the operands.
    pub(super) fn operands<'a>(&self, kernel: &'a Kernel) -> Option<[&'a BufferType; 2]> {
        let ty = |i: usize| kernel.params.get(i).and_then(|p| kernel.body.ty(p.value).buffer());
        Some([ty(self.left)?, ty(self.right)?])
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
        let alike = all.iter().all(|i| {
            let ty = kernel.params.get(*i).and_then(|p| body.ty(p.value).buffer());
            ty.and_then(|ty| ty.shape.get(self.cols.number)) == extent
        });
        alike.then_some(all)
    }

    fn a(&self, kernel: &Kernel) -> Value {
        kernel.params.get(self.left).map_or(Value::from_u32(u32::MAX), |p| p.value)
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
    }

    /// Replaces the right operand by panels, whose leading axes are the grid axes in `own`.
    pub(super) fn read_panels(&self, kernel: &mut Kernel, panels: &Panels, own: &[usize]) {
        let (rank, n) = (panels.numbers.shape.len(), kernel.grid.len());
        let Some(buffer) = kernel.params.get(self.right).map(|p| p.value) else { return };
        kernel.body.set_ty(buffer, Type::Buffer(panels.numbers.buffer_type()));
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
    /// Is the start the grid index times the step, and the extent the rest of the axis, at most a
    /// step?
    fn is_regular(&self, kernel: &Kernel) -> bool {
        let body = &kernel.body;
        let Some(axis) = kernel.grid.get(self.number) else { return false };
        let literal = |v: Value| match body.def_inst(v).map(|d| &d.op) {
            Some(Op::Const(Scalar::Int(n))) => Some(*n),
            _ => None,
        };
        let binary = |v: Value, wanted: BinaryOp| match body.def_inst(v).map(|d| (&d.op, d.operands.as_slice())) {
            Some((Op::Binary(op), [a, b])) if *op == wanted => Some((*a, *b)),
            _ => None,
        };
        let is_start = if axis.step == 1 {
            self.start == axis.value
        } else {
            binary(self.start, BinaryOp::Mul).is_some_and(|(a, b)| a == axis.value && literal(b) == Some(axis.step))
        };
        let is_extent = match self.extent {
            Extent::Static(n) => n == axis.step && axis.extent.as_const().is_some_and(|all| all > 0 && all % n == 0),
            Extent::Bounded { value, max } => {
                let rest = binary(value, BinaryOp::Min).filter(|(_, most)| literal(*most) == Some(max));
                let parts = rest.and_then(|(rest, _)| binary(rest, BinaryOp::Sub));
                let end = |v: Value| match body.def_inst(v).map(|d| &d.op) {
                    Some(Op::DimValue(d)) => *d == axis.extent,
                    Some(Op::Const(Scalar::Int(n))) => axis.extent.as_const() == Some(*n),
                    _ => false,
                };
                max == axis.step && parts.is_some_and(|(all, start)| end(all) && start == self.start)
            }
        };
        // The grid index itself has no other uses.
        let uses = body.uses();
        let alone = axis.step == 1 || uses[axis.value].len() == 1;
        is_start && is_extent && alone
    }

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
