//! Kernels of reductions along rows: norms, softmax, sums, with the surrounding elementwise work.
//!
//! The last axis of the iteration space is the row; rows are independent. A short row of constant
//! length is a single tile that stays in scratch: a norm reads its row once for the mean, the
//! variance and the result. A longer row, or one whose length is only known at run time, is
//! processed in chunks, in one pass per level of reductions (the maximum, then the sum that depends
//! on it, ...) and a final pass for the result; elementwise work is recomputed in each pass.
//!
//! ```text
//! grid (points.., ceil(rows, R))
//!   pass 0: for each chunk: partial maximum;  pass 1: partial sum of exp(x - maximum);  last pass: store
//! ```
//!
//! Where one number per row is wanted, and columns are contiguous instead of rows, as in the sum
//! over a batch, tiles are turned: rows go along their columns.
//!
//! The chunks' float sums are added with compensation: the rounding error of each addition (Knuth's
//! two-sum; Neumaier's sum, as in Higham, "Accuracy and Stability of Numerical Algorithms", 2nd
//! ed., 4.3) is accumulated and added at the end. So the error of a sum of any length is that of a
//! chunk's sum, plus two roundings.

use cranelift_entity::SecondaryMap;

use super::region::{AxisRole, Env, Operand, Position, Region, counts_along_axes, merge_axes, tile_size};
use super::{Call, as_tile, output_buffer};
use crate::ir::{self, Function, Op, Scalar, Terminator};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind};
use crate::shape::{Dim, Elem, broadcast};
use crate::tile::scan::two_sum;
use crate::tile::{self, Extent, KernelBuilder, Type, View, computed};

/// Longest row that is a single tile.
const WHOLE_ROW: i64 = 4096;
/// Columns of a chunk of a longer row.
const CHUNK: i64 = 512;
/// Upper limit of elements per tile; short rows are grouped up to it.
const TILE: i64 = 4096;
/// Rows along the columns of a turned tile.
const TURNED: i64 = 32;

/// A reduction of the body, its operand, and its level: 0 if it depends on no other reduction.
struct Reduction {
    result: ir::Value,
    operand: ir::Value,
    kind: ReduceKind,
    level: usize,
    elem: Elem,
}

impl Reduction {
    /// A sum of floats, which needs compensation.
    fn is_of_floats(&self) -> bool {
        self.kind == ReduceKind::Sum && computed(self.elem) == Elem::F32
    }
}

/// The kernel that computes a body of reductions along the last axis and elementwise operations
/// into `out`.
///
/// # Errors
/// A body of another structure, which is a bug in attnc.
pub(super) fn rows(name: &str, body: &Function, operands: &[Operand], out: &View) -> Result<Call, String> {
    let mut body = body.clone();
    super::prepare::expand_rows(&mut body)?;
    let Terminator::Return(results) = &body.block(body.entry()).terminator else {
        return Err("a region does not return".into());
    };
    let result = *results.first().ok_or("a region without a result")?;

    // Iteration space: the broadcast of all values of the body.
    let mut shape = out.shape.clone();
    let entry = body.block(body.entry());
    let values = entry.args.iter().copied().chain(body.insts().filter_map(|(_, _, d)| d.result));
    for v in values {
        let ty = body.tensor(v).ok_or("an index in a region")?;
        shape = broadcast(&shape, &ty.shape).map_err(|(a, b, _)| format!("{a} and {b} in one region of rows"))?;
    }
    let row = shape.last().cloned().ok_or("a region of rows without an axis")?;
    let reduced_result = out.shape.last() != Some(&row);
    let whole = row.as_const().filter(|n| (1..=WHOLE_ROW).contains(n));

    let mut views: Vec<Operand> = operands.to_vec();
    let mut columns = Vec::new();
    for o in &mut views {
        if let Operand::View(v) = o {
            columns.push(whole.is_none() && v.shape.last().is_none_or(|d| d.as_const() == Some(1)));
            *v = v.broadcast(&shape);
        }
    }
    let mut target = out.broadcast(&shape);
    let mut strides = vec![target.strides.clone()];
    strides.extend(views.iter().filter_map(|o| o.view().map(|v| v.strides.clone())));
    let (counts, last) = (counts_along_axes(&body), shape.len() - 1);
    let now = merge_axes(&mut shape, &mut strides, |i| counts || i == last);
    // A value with one element per row exists even if the rows are empty.
    let mut merged = strides.into_iter();
    let mut place = |v: &mut View, is_column: bool| {
        v.shape = shape.clone();
        v.strides = merged.next().unwrap_or_default();
        if let (true, Some(d)) = (is_column, v.shape.last_mut()) {
            *d = Dim::one();
        }
    };
    place(&mut target, reduced_result);
    let mut columns = columns.into_iter();
    for o in &mut views {
        if let Operand::View(v) = o {
            place(v, columns.next().unwrap_or_default());
        }
    }

    let mut kb = KernelBuilder::new(name);
    let mut region = Region::new(&body, views, now);
    region.declare(&mut kb, |_| true);
    let buffer = output_buffer(&mut kb, &target);
    let dense = |axis: Option<usize>| {
        let is_dense = |v: &View| axis.is_some_and(|n| v.strides.get(n).and_then(Dim::as_const) == Some(1));
        region.operands.iter().filter_map(Operand::view).filter(|v| v.shape.last() == Some(&row)).all(is_dense)
    };
    let (last, before) = (shape.len().checked_sub(1), shape.len().checked_sub(2));
    let turned = reduced_result && dense(before) && !dense(last);
    let chunk = match whole {
        Some(n) if !turned => n,
        _ => tile_size(&row, if turned { TILE / TURNED } else { CHUNK }),
    };
    let mut axes = Vec::new();
    let mut tile_rows = Extent::Static(1);
    let rank = shape.len();
    for (i, extent) in shape.iter().enumerate().take(rank - 1) {
        let role = if rank - i == 2 { AxisRole::Rows } else { AxisRole::Point };
        let most = if turned { TURNED } else { (TILE / chunk).clamp(1, 16) };
        let max = if role == AxisRole::Rows { tile_size(extent, most) } else { 1 };
        let point = kb.grid_axis(extent, max);
        let start = kb.times(point, max);
        if role == AxisRole::Rows {
            tile_rows = kb.extent_at(extent, start, max);
        }
        axes.push((if turned && role == AxisRole::Rows { AxisRole::Cols } else { role }, start));
    }
    let lowering = Rows { region: &region, axes, rows: tile_rows, row, chunk, turned };
    let mut env = Env::new();
    if whole.is_some() && !turned {
        lowering.in_one_tile(&mut kb, &mut env, result, reduced_result)?;
        let at = lowering.position(&mut kb, None);
        lowering.store(&mut kb, &mut env, buffer, &at, result, reduced_result)?;
    } else {
        lowering.in_chunks(&mut kb, &mut env, result, buffer, reduced_result)?;
    }
    let mut buffers = region.declared();
    buffers.push(target);
    Ok(Call { kernel: kb.finish(), buffers })
}

struct Rows<'a> {
    region: &'a Region<'a>,
    axes: Vec<(AxisRole, tile::Value)>,
    rows: Extent,
    row: Dim,
    chunk: i64,
    /// Do rows go along the columns of tiles?
    turned: bool,
}

impl Rows<'_> {
    /// The tile that starts at column `start`; the whole row if that is `None`.
    fn position(&self, kb: &mut KernelBuilder, start: Option<tile::Value>) -> Position {
        let (start, cols) = match start {
            Some(j) => (j, kb.extent_at(&self.row, j, self.chunk)),
            None => (kb.index(0), Extent::Static(self.chunk)),
        };
        let mut axes = self.axes.clone();
        if self.turned {
            axes.push((AxisRole::Rows, start));
            return Position { axes, rows: cols, cols: self.rows };
        }
        axes.push((AxisRole::Cols, start));
        Position { axes, rows: self.rows, cols }
    }

    /// Reduces a tile along its rows.
    fn along(&self, kb: &mut KernelBuilder, kind: ReduceKind, x: tile::Value) -> tile::Value {
        kb.reduce(kind, usize::from(!self.turned), x)
    }

    /// The extents of a tile with one element per row.
    fn one_each(&self) -> (Extent, Extent) {
        let one = Extent::Static(1);
        if self.turned { (one, self.rows) } else { (self.rows, one) }
    }

    /// A tile with one element per row.
    fn full(&self, kb: &mut KernelBuilder, value: Scalar, elem: Elem) -> tile::Value {
        let (rows, cols) = self.one_each();
        kb.full(value, elem, rows, cols)
    }

    /// The reductions that `result` depends on, in order.
    fn reductions(&self, result: ir::Value) -> Result<Vec<Reduction>, String> {
        let body = self.region.body;
        let mut needed: SecondaryMap<ir::Value, bool> = SecondaryMap::new();
        let mut work = vec![result];
        while let Some(v) = work.pop() {
            if !std::mem::replace(&mut needed[v], true)
                && let Some((_, d)) = body.definition(v)
            {
                work.extend(d.operands.iter().copied());
            }
        }
        let mut level: SecondaryMap<ir::Value, usize> = SecondaryMap::new();
        let mut out = Vec::new();
        for (_, _, d) in body.insts() {
            let Some(v) = d.result.filter(|v| needed[*v]) else { continue };
            let depth = d.operands.iter().map(|x| level[*x]).max().unwrap_or(0);
            level[v] = depth;
            if let (Op::Reduce { kind, .. }, [operand]) = (&d.op, d.operands.as_slice()) {
                let elem = body.tensor(*operand).ok_or("an index in a region")?.elem;
                out.push(Reduction { result: v, operand: *operand, kind: *kind, level: depth, elem });
                level[v] = depth + 1;
            }
        }
        Ok(out)
    }

    /// Is the value a single column, so that reducing it along the row changes nothing?
    fn is_column(&self, v: ir::Value) -> bool {
        let shape = self.region.body.tensor(v).map(|t| t.shape.as_slice()).unwrap_or_default();
        self.row.as_const() != Some(1) && shape.last().is_none_or(|d| d.as_const() == Some(1))
    }

    /// Reduces a tile, in the element type of the result.
    fn reduce(&self, kb: &mut KernelBuilder, r: &Reduction, tile: tile::Value, at: &Position) -> tile::Value {
        let tile = as_tile(kb, tile, at);
        self.along(kb, r.kind, tile)
    }

    /// Reduces a value that is the same in every column.
    fn reduce_column(&self, kb: &mut KernelBuilder, r: &Reduction, x: tile::Value) -> tile::Value {
        match r.kind {
            ReduceKind::ArgMax => self.full(kb, Scalar::Int(0), Elem::I32),
            ReduceKind::Sum
            | ReduceKind::Mean
            | ReduceKind::LogSumExp
            | ReduceKind::Max
            | ReduceKind::Min
            | ReduceKind::All
            | ReduceKind::Any => x,
        }
    }

    fn in_one_tile(
        &self,
        kb: &mut KernelBuilder,
        env: &mut Env,
        result: ir::Value,
        reduced: bool,
    ) -> Result<(), String> {
        let at = self.position(kb, None);
        // A value that is the same in every column is kept as a column, not as a tile of the row's
        // width.
        let mut columns = env.clone();
        for r in self.reductions(result)? {
            let y = if self.is_column(r.operand) {
                let one = self.one_column(kb);
                self.region.eval(kb, &mut columns, &one, &[r.operand])?;
                let x = columns[r.operand].ok_or("a reduction's operand was not evaluated")?;
                self.reduce_column(kb, &r, x)
            } else {
                self.region.eval(kb, env, &at, &[r.operand])?;
                let x = env[r.operand].ok_or("a reduction's operand was not evaluated")?;
                self.reduce(kb, &r, x, &at)
            };
            let y = kb.narrow(y, self.result_elem(&r));
            (env[r.result], columns[r.result]) = (Some(y), Some(y));
        }
        if reduced {
            let one = self.one_column(kb);
            self.region.eval(kb, &mut columns, &one, &[result])?;
            *env = columns;
            return Ok(());
        }
        self.region.eval(kb, env, &at, &[result])
    }

    /// The element type in which a reduction's result is stored.
    fn result_elem(&self, r: &Reduction) -> Elem {
        self.region.body.tensor(r.result).map_or(r.elem, |t| t.elem)
    }

    fn store(
        &self,
        kb: &mut KernelBuilder,
        env: &mut Env,
        buffer: tile::Value,
        at: &Position,
        result: ir::Value,
        reduced: bool,
    ) -> Result<(), String> {
        let tile = env[result].ok_or("the result was not evaluated")?;
        if reduced {
            let (rows, cols) = self.one_each();
            let tile = as_tile(kb, tile, &Position { rows, cols, ..at.clone() });
            let (rows, cols) = at.tile_axes();
            kb.store(buffer, &at.starts(), if self.turned { (None, cols) } else { (rows, None) }, tile);
        } else {
            let tile = as_tile(kb, tile, at);
            kb.store(buffer, &at.starts(), at.tile_axes(), tile);
        }
        Ok(())
    }

    fn in_chunks(
        &self,
        kb: &mut KernelBuilder,
        env: &mut Env,
        result: ir::Value,
        buffer: tile::Value,
        reduced: bool,
    ) -> Result<(), String> {
        let reductions = self.reductions(result)?;
        let levels = reductions.iter().map(|r| r.level + 1).max().unwrap_or(0);
        for level in 0..levels {
            let here: Vec<&Reduction> = reductions.iter().filter(|r| r.level == level).collect();
            let (columns, chunked): (Vec<&Reduction>, Vec<&Reduction>) =
                here.into_iter().partition(|r| self.is_column(r.operand));
            for r in columns {
                let at = self.one_column(kb);
                self.region.eval(kb, env, &at, &[r.operand])?;
                let x = env[r.operand].ok_or("a reduction's operand was not evaluated")?;
                let y = self.reduce_column(kb, r, x);
                env[r.result] = Some(kb.narrow(y, self.result_elem(r)));
            }
            if !chunked.is_empty() {
                self.pass(kb, env, &chunked)?;
            }
        }
        if reduced {
            let at = self.one_column(kb);
            self.region.eval(kb, env, &at, &[result])?;
            return self.store(kb, env, buffer, &at, result, true);
        }
        let (head, j, body, done) = self.loop_blocks(kb, &[]);
        let mut inner = env.clone();
        let at = self.position(kb, Some(j));
        self.region.eval(kb, &mut inner, &at, &[result])?;
        self.store(kb, &mut inner, buffer, &at, result, false)?;
        self.next_chunk(kb, head, j, &[]);
        let _ = body;
        kb.switch_to(done);
        Ok(())
    }

    /// A position with one column, for values that are the same in every column.
    fn one_column(&self, kb: &mut KernelBuilder) -> Position {
        let mut axes = self.axes.clone();
        axes.push((AxisRole::Point, kb.index(0)));
        let (rows, cols) = self.one_each();
        Position { axes, rows, cols }
    }

    /// Starts a loop over chunks with carried values and continues in its body. Returns the header,
    /// the counter, the body and the exit.
    fn loop_blocks(
        &self,
        kb: &mut KernelBuilder,
        carried: &[tile::Value],
    ) -> (tile::Block, tile::Value, tile::Block, tile::Block) {
        let zero = kb.index(0);
        let mut types = vec![Type::Index];
        types.extend(carried.iter().map(|v| kb.ty(*v).clone()));
        let (head, args) = kb.new_block(types);
        let (body, _) = kb.new_block(Vec::new());
        let (done, _) = kb.new_block(Vec::new());
        let mut start = vec![zero];
        start.extend(carried);
        kb.br(head, &start);
        kb.switch_to(head);
        let j = args[0];
        let end = kb.dim(&self.row);
        let more = kb.compare_scalars(CmpOp::Lt, j, end);
        kb.br_if(more, (body, &[]), (done, &[]));
        kb.switch_to(body);
        (head, j, body, done)
    }

    fn next_chunk(&self, kb: &mut KernelBuilder, head: tile::Block, j: tile::Value, carried: &[tile::Value]) {
        let next = kb.plus(j, self.chunk);
        let mut args = vec![next];
        args.extend(carried);
        kb.br(head, &args);
    }

    /// One pass over the row, for the reductions of one level.
    fn pass(&self, kb: &mut KernelBuilder, env: &mut Env, reductions: &[&Reduction]) -> Result<(), String> {
        let mut initial = Vec::new();
        for r in reductions {
            let elem = computed(r.elem);
            initial.push(self.full(kb, Scalar::identity(r.kind, r.elem), elem));
            if r.kind == ReduceKind::ArgMax {
                initial.push(self.full(kb, Scalar::Int(0), Elem::I32));
            }
            if r.is_of_floats() {
                initial.push(self.full(kb, Scalar::Float(0.0), elem));
            }
        }
        let (head, j, _, done) = self.loop_blocks(kb, &initial);
        let accumulators: Vec<tile::Value> = kb.block_args(head).into_iter().skip(1).collect();
        let at = self.position(kb, Some(j));
        let mut inner = env.clone();
        let operands: Vec<ir::Value> = reductions.iter().map(|r| r.operand).collect();
        self.region.eval(kb, &mut inner, &at, &operands)?;
        let mut carried = Vec::new();
        let mut slots = accumulators.iter().copied();
        let mut next_slot = || slots.next().ok_or("an accumulator is missing");
        for r in reductions {
            let x = inner[r.operand].ok_or("a reduction's operand was not evaluated")?;
            let x = as_tile(kb, x, &at);
            let acc = next_slot()?;
            match r.kind.combination() {
                Some(_) if r.is_of_floats() => {
                    let lost = next_slot()?;
                    let part = self.along(kb, r.kind, x);
                    let (sum, more) = two_sum(kb, acc, part);
                    carried.push(sum);
                    carried.push(kb.binary(BinaryOp::Add, lost, more));
                }
                Some(op) => {
                    let part = self.along(kb, r.kind, x);
                    carried.push(kb.binary(op, acc, part));
                }
                None => {
                    // The current best stays unless a later element is greater, or is the first
                    // NaN.
                    let place = next_slot()?;
                    let best = self.along(kb, ReduceKind::Max, x);
                    let at_best = self.along(kb, ReduceKind::ArgMax, x);
                    let start = kb.value(tile::Op::Cast, vec![j], Type::Scalar(Elem::I32));
                    let at_best = kb.binary(BinaryOp::Add, at_best, start);
                    let greater = kb.compare(CmpOp::Gt, best, acc);
                    let nan = kb.compare(CmpOp::Ne, best, best);
                    let number = kb.compare(CmpOp::Eq, acc, acc);
                    let first_nan = kb.binary(BinaryOp::And, nan, number);
                    let better = kb.binary(BinaryOp::Or, greater, first_nan);
                    carried.push(kb.select(better, best, acc));
                    carried.push(kb.select(better, at_best, place));
                }
            }
        }
        self.next_chunk(kb, head, j, &carried);
        kb.switch_to(done);
        let mut results = accumulators.into_iter();
        for r in reductions {
            let mut v = results.next().ok_or("an accumulator is missing")?;
            if r.kind == ReduceKind::ArgMax {
                v = results.next().ok_or("an accumulator is missing")?;
            }
            if r.is_of_floats() {
                let lost = results.next().ok_or("an accumulator is missing")?;
                let both = kb.binary(BinaryOp::Add, v, lost);
                // Where the sum is infinite, the error term is NaN and must be ignored.
                let known = kb.compare(CmpOp::Eq, lost, lost);
                v = kb.select(known, both, v);
            }
            env[r.result] = Some(kb.narrow(v, self.result_elem(r)));
        }
        Ok(())
    }
}
