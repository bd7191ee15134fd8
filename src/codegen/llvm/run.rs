//! A `run`: one loop nest over rows and columns, in vectors of the level's lanes.
//!
//! In: a run of a scheduled kernel. Out: LLVM IR. For each row: what does not change along the row is read once; then whole
//! vectors of columns; then the rest of the columns as one more vector with a mask; then the row's reductions are put
//! together and written. A run that reduces rows away goes the other way: for each vector of columns all rows in order, and
//! what they add up to is in a register all the while. In each step every operand in scratch is read before anything is
//! written, so a result may lie where an operand did.

use std::collections::BTreeMap;

use inkwell::IntPredicate;
use inkwell::values::{IntValue, PointerValue, VectorValue};

use super::code::{Code, CodeValue, Stride};
use super::emit::Made;
use super::lanes::Lane;
use crate::scalar::{BinaryOp, CmpOp, ReduceKind};
use crate::shape::Elem;
use crate::tile::{self, Extent, Inst, InstData, Op, Space, TileType, Type};

/// Where a load or store goes, worked out before the loops.
#[derive(Clone, Copy)]
struct Access<'c> {
    /// Address of the tile's first element.
    start: PointerValue<'c>,
    /// Bytes from row to row; `None`: all rows are the same.
    row: Option<IntValue<'c>>,
    /// Along the columns.
    col: Step<'c>,
    /// Element type in memory.
    elem: Elem,
}

/// How a tile goes along its columns in memory.
#[derive(Clone, Copy)]
enum Step<'c> {
    /// The same element in every column.
    Same,
    /// Side by side.
    Unit,
    /// So many bytes apart.
    Bytes(IntValue<'c>),
}

/// Columns of a block of a sum.
const BLOCK: i64 = 512;

/// The accumulator of a reduction while its row, or its columns, go on: variables.
struct Accumulator<'c> {
    kind: ReduceKind,
    /// Element type of the operand.
    elem: Elem,
    sum: PointerValue<'c>,
    /// Of a sum of floats along rows, the sums of the blocks before this one.
    before: Option<PointerValue<'c>>,
    /// The index of the best so far, for `argmax`.
    place: Option<PointerValue<'c>>,
}

/// One run being emitted.
struct Run<'r, 'c> {
    insts: &'r [Inst],
    accesses: BTreeMap<Inst, Access<'c>>,
    accumulators: BTreeMap<Inst, Accumulator<'c>>,
    /// Are its reductions along rows, so that columns are the outer loop?
    down: bool,
    scratch: PointerValue<'c>,
    /// Lanes of a step.
    lanes: u32,
}

/// A step's columns.
#[derive(Clone, Copy)]
struct Columns<'c> {
    /// The first.
    first: IntValue<'c>,
    /// Which of the lanes are there; all if none says.
    mask: Option<VectorValue<'c>>,
}

/// What is known inside the loops.
#[derive(Clone, Default)]
struct Env<'c> {
    lanes: BTreeMap<tile::Value, Lane<'c>>,
    /// What is the same in every step of the inner loop, by load.
    loads: BTreeMap<Inst, Lane<'c>>,
}

impl<'c> Code<'_, '_, 'c> {
    /// Emits a run.
    pub(super) fn run(&mut self, rows: Extent, cols: Extent, insts: &[Inst], scratch: PointerValue<'c>) -> Made<()> {
        let ops = || insts.iter().map(|i| &self.body.inst(*i).op);
        let down = ops().any(|op| matches!(op, Op::Reduce { axis: 0, .. }));
        // The first of the best is found one by one.
        let singly = cols.is_one() || ops().any(|op| matches!(op, Op::Reduce { kind: ReduceKind::ArgMax, .. }));
        let lanes = if singly { 1 } else { self.e.level.lanes() };
        let mut run = Run { insts, accesses: BTreeMap::new(), accumulators: BTreeMap::new(), down, scratch, lanes };
        for i in insts {
            let data = self.body.inst(*i).clone();
            match &data.op {
                Op::Load { rows, cols } | Op::Store { rows, cols } => {
                    run.accesses.insert(*i, self.access(&data, *rows, *cols)?);
                }
                Op::Reduce { kind, .. } => {
                    let x = data.operands.first().copied().ok_or("a reduction of nothing")?;
                    let elem = self.tile(x)?.elem;
                    let places = self.e.lanes_of(Elem::I32, lanes);
                    let place = match kind {
                        ReduceKind::ArgMax => Some(self.e.variable(places)?),
                        _ => None,
                    };
                    let sum = self.e.variable(self.e.lanes_of(elem, lanes))?;
                    let in_blocks = !down && *kind == ReduceKind::Sum && elem == Elem::F32 && cols.capacity() > BLOCK;
                    let before = if in_blocks { Some(self.e.variable(self.e.lanes_of(elem, lanes))?) } else { None };
                    run.accumulators.insert(*i, Accumulator { kind: *kind, elem, sum, before, place });
                }
                _ => {}
            }
        }
        let rows = self.extent(rows)?;
        if down {
            return self.each_column(cols, lanes, None, |code, at| code.column(&run, rows, at));
        }
        let in_blocks = run.accumulators.values().any(|a| a.before.is_some());
        self.counted(self.e.int(0), rows, 1, |code, row| {
            let mut env = Env::default();
            code.start_row(&run, &mut env, row)?;
            let blocks = in_blocks.then_some(&run);
            code.each_column(cols, lanes, blocks, |code, at| code.step(&run, &env, row, at))?;
            code.finish_row(&run, row)
        })?;
        Ok(())
    }

    /// Goes through the columns: whole vectors, in blocks if a run is given that has sums in blocks, and then what is left as
    /// one with a mask.
    fn each_column(
        &mut self,
        cols: Extent,
        lanes: u32,
        blocks: Option<&Run<'_, 'c>>,
        mut body: impl FnMut(&mut Self, Columns<'c>) -> Made<()>,
    ) -> Made<()> {
        let (zero, n) = (self.e.int(0), i64::from(lanes));
        let whole = match cols {
            Extent::Static(k) => self.e.int(k - k % n),
            Extent::Bounded { .. } => self.e.b.build_and(self.extent(cols)?, self.e.int(-n), "")?,
        };
        if matches!(cols, Extent::Static(k) if k == n) {
            return body(self, Columns { first: zero, mask: None });
        }
        if let Some(run) = blocks {
            self.counted(zero, whole, BLOCK, |code, start| {
                let next = code.e.b.build_int_add(start, code.e.int(BLOCK), "")?;
                let is_whole = code.e.less(next, whole)?;
                let end = code.e.b.build_select(is_whole, next, whole, "")?.into_int_value();
                code.counted(start, end, n, |code, first| body(code, Columns { first, mask: None }))?;
                code.finish_block(run)
            })?;
        } else if !matches!(cols, Extent::Static(k) if k < n) {
            self.counted(zero, whole, n, |code, first| body(code, Columns { first, mask: None }))?;
        }
        if lanes == 1 || matches!(cols, Extent::Static(k) if k % n == 0) {
            return Ok(());
        }
        let end = self.extent(cols)?;
        let left = self.e.b.build_int_sub(end, whole, "")?;
        let left = self.e.spread_index(left, lanes)?;
        let counting = self.e.counting(Elem::I64, lanes).value;
        let mask = Some(self.e.b.build_int_compare(IntPredicate::SLT, counting, left, "")?);
        let at = Columns { first: whole, mask };
        match cols {
            Extent::Static(_) => body(self, at),
            Extent::Bounded { .. } => self.when(self.e.less(whole, end)?, |code| body(code, at)),
        }
    }

    /// All rows of a step's columns, and their reductions.
    fn column(&mut self, run: &Run<'_, 'c>, rows: IntValue<'c>, at: Columns<'c>) -> Made<()> {
        let zero = self.e.int(0);
        let mut env = Env::default();
        for i in run.insts {
            let data = self.body.inst(*i).clone();
            if let (Op::Load { .. }, Some(access)) = (&data.op, run.accesses.get(i))
                && access.row.is_none()
            {
                env.loads.insert(*i, self.load(access, run.lanes, zero, at)?);
            }
            for v in &data.operands {
                if let Some(t) = self.lies_before(run, *v)
                    && t.rows.is_one()
                    && !env.lanes.contains_key(v)
                {
                    env.lanes.insert(*v, self.load_tile(run, &t, zero, at)?);
                }
            }
        }
        self.start_accumulators(run)?;
        self.counted(zero, rows, 1, |code, row| code.step(run, &env, row, at))?;
        for (i, a) in &run.accumulators {
            let t = self.tile(self.body.inst(*i).result.ok_or("a reduction without a result")?)?;
            let total = self.total(a, run.lanes)?;
            let place = self.scratch_address(run.scratch, &t, None, Some(at.first))?;
            self.e.store_scratch(total, place, at.mask)?;
        }
        Ok(())
    }

    fn access(&self, data: &InstData, rows: Option<usize>, cols: Option<usize>) -> Made<Access<'c>> {
        let buffer = data.operands.first().copied().ok_or("an access without a buffer")?;
        let is_store = matches!(data.op, Op::Store { .. });
        let end = data.operands.len() - usize::from(is_store);
        let start = self.address(buffer, data.operands.get(1..end).unwrap_or_default())?;
        let (_, strides, elem) = self.buffer(buffer)?;
        let along = |axis: Option<usize>| axis.and_then(|a| strides.get(a)).copied();
        let row = match along(rows) {
            None | Some(Stride::Const(0)) => None,
            Some(s) => Some(self.stride_bytes(s, elem)?),
        };
        let col = match along(cols) {
            None | Some(Stride::Const(0)) => Step::Same,
            Some(Stride::Const(1)) => Step::Unit,
            Some(s) => Step::Bytes(self.stride_bytes(s, elem)?),
        };
        Ok(Access { start, row, col, elem })
    }

    /// The address of an element of a tile in scratch.
    fn scratch_address(
        &self,
        scratch: PointerValue<'c>,
        t: &TileType,
        row: Option<IntValue<'c>>,
        col: Option<IntValue<'c>>,
    ) -> Made<PointerValue<'c>> {
        let Space::L1(offset) = t.space else { return Err("a tile is not in scratch".into()) };
        let mut at = self.e.offset(scratch, self.e.int(i64::from(offset)))?;
        if let Some(r) = row.filter(|_| !t.rows.is_one()) {
            at = self.steps(at, r, self.e.int(i64::from(t.pitch())))?;
        }
        if let Some(c) = col.filter(|_| !t.cols.is_one()) {
            at = self.steps(at, c, self.e.int(i64::from(t.element_bytes())))?;
        }
        Ok(at)
    }

    /// Reads what is the same along a row, and empties the accumulators.
    fn start_row(&mut self, run: &Run<'_, 'c>, env: &mut Env<'c>, row: IntValue<'c>) -> Made<()> {
        for i in run.insts {
            let data = self.body.inst(*i).clone();
            if let (Op::Load { .. }, Some(access)) = (&data.op, run.accesses.get(i))
                && matches!(access.col, Step::Same)
            {
                let at = self.row_address(access, row)?;
                env.loads.insert(*i, self.e.load_memory(access.elem, at, None, 1, None)?);
            }
            for v in &data.operands {
                if let Some(t) = self.lies_before(run, *v)
                    && t.cols.is_one()
                    && !env.lanes.contains_key(v)
                {
                    let at = self.scratch_address(run.scratch, &t, Some(row), None)?;
                    env.lanes.insert(*v, self.e.load_scratch(t.elem, at, 1, None)?);
                }
            }
        }
        self.start_accumulators(run)
    }

    /// Adds the sums of a block to those of the blocks before it.
    fn finish_block(&self, run: &Run<'_, 'c>) -> Made<()> {
        for a in run.accumulators.values() {
            if let Some(before) = a.before {
                self.e.b.build_store(before, self.total(a, run.lanes)?.value)?;
                self.e.b.build_store(a.sum, self.e.identity(a.kind, a.elem, run.lanes).value)?;
            }
        }
        Ok(())
    }

    fn start_accumulators(&self, run: &Run<'_, 'c>) -> Made<()> {
        for a in run.accumulators.values() {
            for sum in std::iter::once(a.sum).chain(a.before) {
                self.e.b.build_store(sum, self.e.identity(a.kind, a.elem, run.lanes).value)?;
            }
            if let Some(place) = a.place {
                self.e.b.build_store(place, self.e.ints(0, run.lanes))?;
            }
        }
        Ok(())
    }

    fn read(&self, variable: PointerValue<'c>, elem: Elem, n: u32) -> Made<Lane<'c>> {
        let value = self.e.b.build_load(self.e.lanes_of(elem, n), variable, "")?.into_vector_value();
        Ok(Lane { value, elem })
    }

    /// What an accumulator holds: of `argmax`, the place.
    fn total(&self, a: &Accumulator<'c>, n: u32) -> Made<Lane<'c>> {
        match a.place {
            Some(place) => self.read(place, Elem::I32, n),
            None => {
                let sum = self.read(a.sum, a.elem, n)?;
                match a.before {
                    Some(before) => self.e.combine(a.kind, self.read(before, a.elem, n)?, sum),
                    None => Ok(sum),
                }
            }
        }
    }

    /// The tile of a value that lies in scratch from before the run.
    fn lies_before(&self, run: &Run<'_, 'c>, v: tile::Value) -> Option<TileType> {
        let t = self.body.ty(v).tile().filter(|t| matches!(t.space, Space::L1(_)))?;
        let made_here = run.insts.iter().any(|i| self.body.inst(*i).result == Some(v));
        (!made_here).then(|| t.clone())
    }

    /// Reads a tile in scratch at a place of the iteration space; a single element where all columns are the same.
    fn load_tile(&self, run: &Run<'_, 'c>, t: &TileType, row: IntValue<'c>, at: Columns<'c>) -> Made<Lane<'c>> {
        let place = self.scratch_address(run.scratch, t, Some(row), Some(at.first))?;
        if t.cols.is_one() {
            return self.e.load_scratch(t.elem, place, 1, None);
        }
        self.e.load_scratch(t.elem, place, run.lanes, at.mask)
    }

    /// Reads a buffer at a place of the iteration space; a single element where all columns are the same.
    fn load(&self, access: &Access<'c>, n: u32, row: IntValue<'c>, at: Columns<'c>) -> Made<Lane<'c>> {
        let place = self.element_address(access, row, at.first)?;
        match access.col {
            Step::Same => self.e.load_memory(access.elem, place, None, 1, None),
            Step::Unit => self.e.load_memory(access.elem, place, None, n, at.mask),
            Step::Bytes(b) => self.e.load_memory(access.elem, place, Some(b), n, at.mask),
        }
    }

    fn row_address(&self, access: &Access<'c>, row: IntValue<'c>) -> Made<PointerValue<'c>> {
        match access.row {
            None => Ok(access.start),
            Some(bytes) => self.steps(access.start, row, bytes),
        }
    }

    fn element_address(&self, access: &Access<'c>, row: IntValue<'c>, col: IntValue<'c>) -> Made<PointerValue<'c>> {
        let at = self.row_address(access, row)?;
        match access.col {
            Step::Same => Ok(at),
            Step::Unit => self.steps(at, col, self.e.int(i64::try_from(access.elem.size()).unwrap_or(1))),
            Step::Bytes(b) => self.steps(at, col, b),
        }
    }

    /// Everything that is done at one place of the iteration space.
    fn step(&mut self, run: &Run<'_, 'c>, env: &Env<'c>, row: IntValue<'c>, at: Columns<'c>) -> Made<()> {
        let n = run.lanes;
        let mut lanes = BTreeMap::new();
        for (v, x) in &env.lanes {
            lanes.insert(*v, self.e.spread(*x, n)?);
        }
        // What comes from scratch, before anything is written there.
        for i in run.insts {
            for v in &self.body.inst(*i).operands {
                if let Some(t) = self.lies_before(run, *v)
                    && !lanes.contains_key(v)
                {
                    lanes.insert(*v, self.load_tile(run, &t, row, at)?);
                }
            }
        }
        for i in run.insts {
            let data = self.body.inst(*i).clone();
            let mut operands = Vec::new();
            for v in &data.operands {
                let x = match (lanes.get(v), &self.values[*v], self.body.ty(*v)) {
                    (Some(x), _, _) => Some(*x),
                    (None, Some(CodeValue::Scalar(x)), _) => Some(*x),
                    (None, _, Type::Tile(_)) => return Err("a tile is used before it is made".into()),
                    (None, _, _) => None,
                };
                operands.push(x.map(|x| self.e.spread(x, n)).transpose()?);
            }
            let get = |k: usize| operands.get(k).copied().flatten().ok_or("an operand is missing");
            let made = match &data.op {
                Op::Load { .. } => {
                    let access = run.accesses.get(i).ok_or("a load without an access")?;
                    let x = match env.loads.get(i) {
                        Some(x) => *x,
                        None => self.load(access, n, row, at)?,
                    };
                    Some(self.e.spread(x, n)?)
                }
                Op::Store { .. } => {
                    let access = run.accesses.get(i).ok_or("a store without an access")?;
                    let x = operands.last().copied().flatten().ok_or("a store of nothing")?;
                    let place = self.element_address(access, row, at.first)?;
                    let step = match access.col {
                        Step::Bytes(b) => Some(b),
                        Step::Unit | Step::Same => None,
                    };
                    self.e.store_memory(access.elem, x, place, step, at.mask)?;
                    None
                }
                Op::Full | Op::Copy => Some(get(0)?),
                Op::Iota { axis } => Some(self.iota(&data, *axis, n, row, at.first)?),
                Op::Unary(op) => Some(self.e.lane_unary(*op, get(0)?)?),
                Op::Binary(op) => Some(self.e.lane_binary(*op, get(0)?, get(1)?)?),
                Op::Compare(op) => Some(self.e.lane_compare(*op, get(0)?, get(1)?)?),
                Op::Select => Some(self.e.lane_select(get(0)?, get(1)?, get(2)?)?),
                Op::Narrow { elem } => Some(self.e.lane_narrow(get(0)?, *elem)?),
                Op::Cast => {
                    let result = data.result.ok_or("a cast without a result")?;
                    Some(self.e.lane_cast(get(0)?, self.tile(result)?.elem)?)
                }
                Op::Reduce { .. } => {
                    let a = run.accumulators.get(i).ok_or("a reduction without an accumulator")?;
                    // Along rows, lanes that are not there add up to what is not read.
                    let (place, mask) = if run.down { (row, None) } else { (at.first, at.mask) };
                    self.accumulate(a, get(0)?, place, mask)?;
                    None
                }
                op => return Err(format!("{} has no place in a run", op.info().name).into()),
            };
            if let (Some(v), Some(x)) = (data.result, made) {
                lanes.insert(v, x);
                let t = self.tile(v)?;
                if matches!(t.space, Space::L1(_)) {
                    let place = self.scratch_address(run.scratch, &t, Some(row), Some(at.first))?;
                    self.e.store_scratch(x, place, at.mask)?;
                }
            }
        }
        Ok(())
    }

    fn iota(&self, data: &InstData, axis: usize, n: u32, row: IntValue<'c>, col: IntValue<'c>) -> Made<Lane<'c>> {
        let start = self.index(data.operands.first().copied().ok_or("iota without a start")?)?;
        let elem = self.tile(data.result.ok_or("iota without a result")?)?.elem;
        let first = self.e.b.build_int_add(start, if axis == 0 { row } else { col }, "")?;
        let first = self.e.lane_cast(self.e.one(first, Elem::I64)?, elem)?;
        let all = self.e.spread(first, n)?;
        if axis == 0 { Ok(all) } else { self.e.lane_binary(BinaryOp::Add, all, self.e.counting(elem, n)) }
    }

    /// The elements of one more step, at a place along the axis of the reduction.
    fn accumulate(
        &self,
        a: &Accumulator<'c>,
        x: Lane<'c>,
        at: IntValue<'c>,
        mask: Option<VectorValue<'c>>,
    ) -> Made<()> {
        let e = &self.e;
        let n = x.count();
        let so_far = self.read(a.sum, a.elem, n)?;
        let Some(place) = a.place else {
            let x = match mask {
                Some(mask) => Lane { value: e.choose(mask, x.value, e.identity(a.kind, a.elem, n).value)?, ..x },
                None => x,
            };
            e.b.build_store(a.sum, e.combine(a.kind, so_far, x)?.value)?;
            return Ok(());
        };
        let greater = e.lane_compare(CmpOp::Gt, x, so_far)?;
        let nan = e.lane_compare(CmpOp::Ne, x, x)?;
        let number = e.lane_compare(CmpOp::Eq, so_far, so_far)?;
        let first_nan = e.lane_binary(BinaryOp::And, nan, number)?;
        let better = e.lane_binary(BinaryOp::Or, greater, first_nan)?;
        e.b.build_store(a.sum, e.lane_select(better, x, so_far)?.value)?;
        let here = e.spread(e.lane_cast(e.one(at, Elem::I64)?, Elem::I32)?, n)?;
        let old = self.read(place, Elem::I32, n)?;
        e.b.build_store(place, e.lane_select(better, here, old)?.value)?;
        Ok(())
    }

    /// Puts the row's reductions together and writes them.
    fn finish_row(&mut self, run: &Run<'_, 'c>, row: IntValue<'c>) -> Made<()> {
        for (i, a) in &run.accumulators {
            let t = self.tile(self.body.inst(*i).result.ok_or("a reduction without a result")?)?;
            let total = self.e.fold(a.kind, self.total(a, run.lanes)?)?;
            let at = self.scratch_address(run.scratch, &t, Some(row), None)?;
            self.e.store_scratch(total, at, None)?;
        }
        Ok(())
    }
}
