//! A `run`: one loop nest over rows and columns, four elements at a time and the rest singly.
//!
//! In: a run of a scheduled kernel. Out: CLIF. For each row: what does not change along the row is read once; then groups
//! of four columns; then single columns; then the row's reductions are put together and written. A run that reduces rows
//! away goes the other way: for each four columns, then for each single one, all rows in order, and what they add up to is
//! in a register all the while. In each step every operand in scratch is read before anything is written, so a result may
//! replace an operand. Sums of floats along a row are made in blocks of columns, whose sums are added.

use std::collections::BTreeMap;

use cranelift_codegen::ir::{InstBuilder, Value, types};
use cranelift_frontend::Variable;

use super::code::{Code, CodeValue, Stride};
use super::lanes::{Lane, Width, clif_type, vectorises};
use crate::scalar::{CmpOp, ReduceKind, Scalar};
use crate::shape::Elem;
use crate::tile::{self, Extent, Inst, InstData, Op, Space, TileType, Type};

/// Where a load or store goes, worked out before the loops.
#[derive(Clone, Copy)]
struct Access {
    /// Address of the tile's first element.
    start: Value,
    /// Bytes from row to row; `None`: all rows are the same.
    row: Option<Value>,
    /// Along the columns.
    col: Step,
    /// Element type in memory.
    elem: Elem,
}

/// How a tile goes along its columns in memory.
#[derive(Clone, Copy)]
enum Step {
    /// The same element in every column.
    Same,
    /// Side by side.
    Unit,
    /// So many bytes apart.
    Bytes(Value),
}

/// The accumulators of a reduction while its row, or its columns, go on.
struct Accumulator {
    kind: ReduceKind,
    /// Element type of the operand.
    elem: Elem,
    four: Option<Variable>,
    one: Variable,
    /// Of a sum of floats along rows, the sums of the blocks before this one: four, and one.
    before: Option<[Variable; 2]>,
    /// The index of the best so far, for `argmax`.
    place: Option<Variable>,
}

impl Accumulator {
    fn variable(&self, width: Width) -> Variable {
        match (width, self.four) {
            (Width::Four, Some(four)) => four,
            (Width::Four | Width::One, _) => self.one,
        }
    }
}

/// Columns of a block of a sum.
const BLOCK: i64 = 512;

/// One run being emitted.
struct Run<'r> {
    insts: &'r [Inst],
    accesses: BTreeMap<Inst, Access>,
    accumulators: BTreeMap<Inst, Accumulator>,
    /// Are its reductions along rows, so that columns are the outer loop?
    down: bool,
    scratch: Value,
}

/// What is known inside the loops.
#[derive(Clone, Default)]
struct Env {
    lanes: BTreeMap<tile::Value, Lane>,
    /// What is the same in every step of the inner loop, by load.
    loads: BTreeMap<Inst, Lane>,
}

impl Code<'_, '_> {
    /// The number of rows or columns.
    pub(super) fn extent(&mut self, e: Extent) -> Result<Value, String> {
        match e {
            Extent::Static(n) => Ok(self.int(n)),
            Extent::Bounded { value, .. } => self.index(value),
        }
    }

    fn tile(&self, v: tile::Value) -> Result<TileType, String> {
        self.body.ty(v).tile().cloned().ok_or_else(|| format!("{v} is no tile"))
    }

    /// Emits a run.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(super) fn run(&mut self, rows: Extent, cols: Extent, insts: &[Inst], scratch: Value) -> Result<(), String> {
        let down = insts.iter().any(|i| matches!(self.body.inst(*i).op, Op::Reduce { axis: 0, .. }));
        let mut run = Run { insts, accesses: BTreeMap::new(), accumulators: BTreeMap::new(), down, scratch };
        let mut vector = !cols.is_one();
        for i in insts {
            let data = self.body.inst(*i).clone();
            vector &= self.has_vector_form(&data)?;
            if let Op::Load { rows, cols } | Op::Store { rows, cols } = &data.op {
                let access = self.access(&data, *rows, *cols)?;
                run.accesses.insert(*i, access);
            }
        }
        for i in insts {
            let data = self.body.inst(*i).clone();
            if let Op::Reduce { kind, .. } = data.op {
                let x = data.operands.first().copied().ok_or("a reduction of nothing")?;
                let elem = self.tile(x)?.elem;
                let in_blocks = !down && kind == ReduceKind::Sum && elem == Elem::F32 && cols.capacity() > BLOCK;
                let accumulator = Accumulator {
                    kind,
                    elem,
                    four: vector.then(|| self.b.declare_var(clif_type(elem, Width::Four))),
                    one: self.b.declare_var(clif_type(elem, Width::One)),
                    before: in_blocks
                        .then(|| [Width::Four, Width::One].map(|width| self.b.declare_var(clif_type(elem, width)))),
                    place: (kind == ReduceKind::ArgMax).then(|| self.b.declare_var(types::I32)),
                };
                run.accumulators.insert(*i, accumulator);
            }
        }
        let (rows, cols_value) = (self.extent(rows)?, self.extent(cols)?);
        if down {
            let start = self.int(0);
            let all = (start, cols_value);
            return self.each_column(cols, all, vector, |code, width, c| code.column(&run, width, rows, c));
        }
        let in_blocks = run.accumulators.values().any(|a| a.before.is_some());
        let row = self.b.declare_var(types::I64);
        let zero = self.int(0);
        self.b.def_var(row, zero);
        self.counted(row, rows, 1, |code| {
            let r = code.b.use_var(row);
            let mut env = Env::default();
            code.start_row(&run, &mut env, r)?;
            let first = code.int(0);
            if in_blocks {
                let block = code.b.declare_var(types::I64);
                code.b.def_var(block, first);
                code.counted(block, cols_value, BLOCK, |code| {
                    let start = code.b.use_var(block);
                    let next = code.b.ins().iadd_imm_s(start, BLOCK);
                    let end = code.b.ins().smin(next, cols_value);
                    code.each_column(cols, (start, end), vector, |code, width, c| code.step(&run, &env, width, r, c))?;
                    code.finish_block(&run);
                    Ok(())
                })?;
            } else {
                let all = (first, cols_value);
                code.each_column(cols, all, vector, |code, width, c| code.step(&run, &env, width, r, c))?;
            }
            code.finish_row(&run, r)
        })
    }

    /// Goes through the columns from one on to another: four at a time if `vector`, and the rest singly.
    fn each_column(
        &mut self,
        cols: Extent,
        (start, end): (Value, Value),
        vector: bool,
        mut body: impl FnMut(&mut Self, Width, Value) -> Result<(), String>,
    ) -> Result<(), String> {
        if cols.is_one() {
            return body(self, Width::One, start);
        }
        let col = self.b.declare_var(types::I64);
        self.b.def_var(col, start);
        if vector {
            let whole = self.b.ins().band_imm_s(end, -4);
            self.counted(col, whole, 4, |code| {
                let c = code.b.use_var(col);
                body(code, Width::Four, c)
            })?;
        }
        if vector && matches!(cols, Extent::Static(n) if n % 4 == 0) {
            return Ok(());
        }
        self.counted(col, end, 1, |code| {
            let c = code.b.use_var(col);
            body(code, Width::One, c)
        })
    }

    /// All rows of one column, or of four, and their reductions.
    fn column(&mut self, run: &Run<'_>, width: Width, rows: Value, col: Value) -> Result<(), String> {
        let row = self.b.declare_var(types::I64);
        let zero = self.int(0);
        self.b.def_var(row, zero);
        let mut env = Env::default();
        for i in run.insts {
            let data = self.body.inst(*i).clone();
            if let (Op::Load { .. }, Some(access)) = (&data.op, run.accesses.get(i).copied())
                && access.row.is_none()
            {
                let x = self.load(&access, width, zero, col);
                env.loads.insert(*i, x);
            }
            for v in &data.operands {
                if let Some(t) = self.lies_before(run, *v)
                    && t.rows.is_one()
                    && !env.lanes.contains_key(v)
                {
                    let x = self.load_tile(run, &t, width, zero, col)?;
                    env.lanes.insert(*v, x);
                }
            }
            if let Some(a) = run.accumulators.get(i) {
                let start = self.lanes().identity(a.kind, a.elem, width);
                self.b.def_var(a.variable(width), start.value);
                if let Some(place) = a.place {
                    let first = self.b.ins().iconst(types::I32, 0);
                    self.b.def_var(place, first);
                }
            }
        }
        self.counted(row, rows, 1, |code| {
            let r = code.b.use_var(row);
            code.step(run, &env, width, r, col)
        })?;
        let run_itself = self.here;
        for (i, a) in &run.accumulators {
            self.at(Some(*i));
            let result = self.body.inst(*i).result.ok_or("a reduction without a result")?;
            let t = self.tile(result)?;
            let total = match a.place {
                Some(place) => Lane { value: self.b.use_var(place), elem: Elem::I32, width },
                None => Lane { value: self.b.use_var(a.variable(width)), elem: a.elem, width },
            };
            let at = self.scratch_address(run.scratch, &t, None, Some(col))?;
            self.lanes().store_scratch(total, at);
        }
        self.at(run_itself);
        Ok(())
    }

    /// A loop while `variable < end`, which it advances by `step`.
    pub(super) fn counted(
        &mut self,
        variable: Variable,
        end: Value,
        step: i64,
        body: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let (head, inner, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        self.b.ins().jump(head, &[]);
        self.b.switch_to_block(head);
        let now = self.b.use_var(variable);
        let more = self.less(now, end);
        self.b.ins().brif(more, inner, &[], done, &[]);
        self.b.switch_to_block(inner);
        self.b.seal_block(inner);
        body(self)?;
        let now = self.b.use_var(variable);
        let next = self.b.ins().iadd_imm_s(now, step);
        self.b.def_var(variable, next);
        self.b.ins().jump(head, &[]);
        self.b.seal_block(head);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        Ok(())
    }

    /// Can the instruction be done on four lanes?
    fn has_vector_form(&self, data: &InstData) -> Result<bool, String> {
        let binary = match data.op {
            Op::Binary(op) => Some(op),
            Op::Reduce { kind: ReduceKind::ArgMax, .. } => return Ok(false),
            _ => None,
        };
        let mut all = true;
        for v in data.operands.iter().copied().chain(data.result) {
            if let Some(elem) = self.body.ty(v).elem() {
                all &= vectorises(elem, binary);
            }
        }
        Ok(all)
    }

    fn access(&mut self, data: &InstData, rows: Option<usize>, cols: Option<usize>) -> Result<Access, String> {
        let buffer = data.operands.first().copied().ok_or("an access without a buffer")?;
        let is_store = matches!(data.op, Op::Store { .. });
        let end = data.operands.len() - usize::from(is_store);
        let start = self.address(buffer, data.operands.get(1..end).unwrap_or_default())?;
        let (_, strides, elem) = self.buffer(buffer)?;
        let along = |axis: Option<usize>| axis.and_then(|a| strides.get(a)).copied();
        let row = match along(rows) {
            None | Some(Stride::Const(0)) => None,
            Some(s) => Some(self.stride_bytes(s, elem)),
        };
        let col = match along(cols) {
            None | Some(Stride::Const(0)) => Step::Same,
            Some(Stride::Const(1)) => Step::Unit,
            Some(s) => Step::Bytes(self.stride_bytes(s, elem)),
        };
        Ok(Access { start, row, col, elem })
    }

    /// The address of an element of a tile in scratch.
    fn scratch_address(
        &mut self,
        scratch: Value,
        t: &TileType,
        row: Option<Value>,
        col: Option<Value>,
    ) -> Result<Value, String> {
        let Space::L1(offset) = t.space else { return Err("a tile is not in scratch".into()) };
        let mut at = self.b.ins().iadd_imm_s(scratch, i64::from(offset));
        if let Some(r) = row.filter(|_| !t.rows.is_one()) {
            let bytes = self.b.ins().imul_imm_s(r, i64::from(t.pitch()));
            at = self.b.ins().iadd(at, bytes);
        }
        if let Some(c) = col.filter(|_| !t.cols.is_one()) {
            let bytes = self.b.ins().imul_imm_s(c, i64::from(t.element_bytes()));
            at = self.b.ins().iadd(at, bytes);
        }
        Ok(at)
    }

    /// Reads what is the same along a row, and empties the accumulators.
    fn start_row(&mut self, run: &Run<'_>, env: &mut Env, row: Value) -> Result<(), String> {
        for i in run.insts {
            let data = self.body.inst(*i).clone();
            if let (Op::Load { .. }, Some(access)) = (&data.op, run.accesses.get(i))
                && matches!(access.col, Step::Same)
            {
                let at = self.row_address(access, row);
                let x = self.lanes().load_element(access.elem, at);
                env.loads.insert(*i, x);
            }
            for v in &data.operands {
                if let Some(t) = self.lies_before(run, *v)
                    && t.cols.is_one()
                    && !env.lanes.contains_key(v)
                {
                    let at = self.scratch_address(run.scratch, &t, Some(row), None)?;
                    let x = self.lanes().load_scratch(t.elem, at, Width::One);
                    env.lanes.insert(*v, x);
                }
            }
            if let Some(a) = run.accumulators.get(i) {
                if let Some(four) = a.four {
                    let start = self.lanes().identity(a.kind, a.elem, Width::Four);
                    self.b.def_var(four, start.value);
                }
                let start = self.lanes().identity(a.kind, a.elem, Width::One);
                self.b.def_var(a.one, start.value);
                for (variable, width) in a.before.into_iter().flatten().zip([Width::Four, Width::One]) {
                    let start = self.lanes().identity(a.kind, a.elem, width);
                    self.b.def_var(variable, start.value);
                }
                if let Some(place) = a.place {
                    let zero = self.b.ins().iconst(types::I32, 0);
                    self.b.def_var(place, zero);
                }
            }
        }
        Ok(())
    }

    /// Adds the sums of a block to those of the blocks before it.
    fn finish_block(&mut self, run: &Run<'_>) {
        for a in run.accumulators.values() {
            let (Some([four, one]), vector) = (a.before, a.four) else { continue };
            for (width, part, total) in [(Width::Four, vector, four), (Width::One, Some(a.one), one)] {
                let Some(part) = part else { continue };
                let lane = |value| Lane { value, elem: a.elem, width };
                let (before, more) = (lane(self.b.use_var(total)), lane(self.b.use_var(part)));
                let sum = self.lanes().combine(a.kind, before, more);
                self.b.def_var(total, sum.value);
                let nothing = self.lanes().identity(a.kind, a.elem, width);
                self.b.def_var(part, nothing.value);
            }
        }
    }

    /// The tile of a value that lies in scratch from before the run.
    fn lies_before(&self, run: &Run<'_>, v: tile::Value) -> Option<TileType> {
        let t = self.body.ty(v).tile().filter(|t| matches!(t.space, Space::L1(_)))?;
        let made_here = run.insts.iter().any(|i| self.body.inst(*i).result == Some(v));
        (!made_here).then(|| t.clone())
    }

    /// Reads a tile in scratch at a place of the iteration space.
    fn load_tile(&mut self, run: &Run<'_>, t: &TileType, width: Width, row: Value, col: Value) -> Result<Lane, String> {
        let at = self.scratch_address(run.scratch, t, Some(row), Some(col))?;
        let width = if t.cols.is_one() { Width::One } else { width };
        Ok(self.lanes().load_scratch(t.elem, at, width))
    }

    /// Reads a buffer at a place of the iteration space; a single element where all columns are the same.
    fn load(&mut self, access: &Access, width: Width, row: Value, col: Value) -> Lane {
        let at = self.element_address(access, row, col);
        match (width, access.col) {
            (Width::One, _) | (_, Step::Same) => self.lanes().load_element(access.elem, at),
            (Width::Four, Step::Unit) => self.lanes().load_four(access.elem, at, None),
            (Width::Four, Step::Bytes(b)) => self.lanes().load_four(access.elem, at, Some(b)),
        }
    }

    fn row_address(&mut self, access: &Access, row: Value) -> Value {
        match access.row {
            None => access.start,
            Some(bytes) => {
                let offset = self.b.ins().imul(row, bytes);
                self.b.ins().iadd(access.start, offset)
            }
        }
    }

    fn element_address(&mut self, access: &Access, row: Value, col: Value) -> Value {
        let at = self.row_address(access, row);
        let bytes = match access.col {
            Step::Same => return at,
            Step::Unit => self.b.ins().imul_imm_s(col, i64::try_from(access.elem.size()).unwrap_or(1)),
            Step::Bytes(b) => self.b.ins().imul(col, b),
        };
        self.b.ins().iadd(at, bytes)
    }

    /// Everything that is done at one place of the iteration space.
    fn step(&mut self, run: &Run<'_>, env: &Env, width: Width, row: Value, col: Value) -> Result<(), String> {
        let mut lanes = BTreeMap::new();
        for (v, x) in &env.lanes {
            let x = if width == Width::Four { self.lanes().spread(*x) } else { *x };
            lanes.insert(*v, x);
        }
        // What comes from scratch, before anything is written there.
        for i in run.insts {
            for v in self.body.inst(*i).operands.clone() {
                if let Some(t) = self.lies_before(run, v)
                    && !lanes.contains_key(&v)
                {
                    let x = self.load_tile(run, &t, width, row, col)?;
                    lanes.insert(v, x);
                }
            }
        }
        let run_itself = self.here;
        for i in run.insts {
            self.at(Some(*i));
            let data = self.body.inst(*i).clone();
            let mut operands = Vec::new();
            for v in &data.operands {
                let x = match (lanes.get(v), &self.values[*v], self.body.ty(*v)) {
                    (Some(x), _, _) => Some(*x),
                    (None, Some(CodeValue::Scalar(x)), _) => Some(*x),
                    (None, _, Type::Tile(_)) => return Err("a tile is used before it is made".into()),
                    (None, _, _) => None,
                };
                operands.push(match x {
                    Some(x) if width == Width::Four => Some(self.lanes().spread(x)),
                    other => other,
                });
            }
            let get = |k: usize| operands.get(k).copied().flatten().ok_or("an operand is missing");
            let made = match &data.op {
                Op::Load { .. } => {
                    let access = run.accesses.get(i).copied().ok_or("a load without an access")?;
                    let x = match env.loads.get(i) {
                        Some(x) => *x,
                        None => self.load(&access, width, row, col),
                    };
                    Some(if width == Width::Four { self.lanes().spread(x) } else { x })
                }
                Op::Store { .. } => {
                    let access = run.accesses.get(i).copied().ok_or("a store without an access")?;
                    let x = operands.last().copied().flatten().ok_or("a store of nothing")?;
                    let at = self.element_address(&access, row, col);
                    match (width, access.col) {
                        (Width::One, _) => self.lanes().store_element(access.elem, x, at),
                        (Width::Four, Step::Bytes(b)) => self.lanes().store_four(access.elem, x, at, Some(b)),
                        (Width::Four, Step::Unit | Step::Same) => self.lanes().store_four(access.elem, x, at, None),
                    }
                    None
                }
                Op::Full | Op::Copy => Some(get(0)?),
                Op::Iota { axis } => Some(self.iota(&data, *axis, width, row, col)?),
                Op::Unary(op) => Some(self.lanes().lane_unary(*op, get(0)?)?),
                Op::Binary(op) => Some(self.lanes().lane_binary(*op, get(0)?, get(1)?)?),
                Op::Compare(op) => Some(self.lanes().lane_compare(*op, get(0)?, get(1)?)),
                Op::Select => Some(self.lanes().lane_select(get(0)?, get(1)?, get(2)?)),
                Op::Narrow { elem } => Some(self.lanes().lane_narrow(get(0)?, *elem)),
                Op::Cast => {
                    let result = data.result.ok_or("a cast without a result")?;
                    let elem = self.tile(result)?.elem;
                    Some(self.lanes().lane_cast(get(0)?, elem))
                }
                Op::Reduce { .. } => {
                    let a = run.accumulators.get(i).ok_or("a reduction without an accumulator")?;
                    self.accumulate(a, get(0)?, if run.down { row } else { col });
                    None
                }
                _ => {
                    Code::unknown(&data)?;
                    None
                }
            };
            if let (Some(v), Some(x)) = (data.result, made) {
                lanes.insert(v, x);
                let t = self.tile(v)?;
                if matches!(t.space, Space::L1(_)) {
                    let at = self.scratch_address(run.scratch, &t, Some(row), Some(col))?;
                    self.lanes().store_scratch(x, at);
                }
            }
        }
        self.at(run_itself);
        Ok(())
    }

    fn iota(&mut self, data: &InstData, axis: usize, width: Width, row: Value, col: Value) -> Result<Lane, String> {
        let start = self.index(data.operands.first().copied().ok_or("iota without a start")?)?;
        let result = data.result.ok_or("iota without a result")?;
        let elem = self.tile(result)?.elem;
        let n = self.b.ins().iadd(start, if axis == 0 { row } else { col });
        let one = Lane { value: n, elem: Elem::I64, width: Width::One };
        let first = self.lanes().lane_cast(one, elem);
        if width == Width::One {
            return Ok(first);
        }
        let all = self.lanes().spread(first);
        if axis == 0 {
            return Ok(all);
        }
        let mut steps = [first; 4];
        for (k, s) in steps.iter_mut().enumerate() {
            *s = self.lanes().constant(Scalar::Int(i64::try_from(k).unwrap_or(0)), elem, Width::One);
        }
        let steps = self.lanes().gather(steps);
        Ok(self.lanes().lane_arithmetic(crate::scalar::BinaryOp::Add, all, steps))
    }

    /// One more element, or four, at a place along the axis of the reduction.
    fn accumulate(&mut self, a: &Accumulator, x: Lane, at: Value) {
        if let Some(place) = a.place {
            let best = Lane { value: self.b.use_var(a.one), elem: a.elem, width: Width::One };
            let mut l = self.lanes();
            let greater = l.lane_compare(CmpOp::Gt, x, best);
            let nan = l.lane_compare(CmpOp::Ne, x, x);
            let number = l.lane_compare(CmpOp::Eq, best, best);
            let first_nan = l.lane_arithmetic(crate::scalar::BinaryOp::And, nan, number);
            let better = l.lane_arithmetic(crate::scalar::BinaryOp::Or, greater, first_nan);
            let best = l.lane_select(better, x, best);
            self.b.def_var(a.one, best.value);
            let here = self.b.ins().ireduce(types::I32, at);
            let old = self.b.use_var(place);
            let new = self.b.ins().select(better.value, here, old);
            self.b.def_var(place, new);
            return;
        }
        let variable = a.variable(x.width);
        let sum = Lane { value: self.b.use_var(variable), elem: a.elem, width: x.width };
        let sum = self.lanes().combine(a.kind, sum, x);
        self.b.def_var(variable, sum.value);
    }

    /// Puts the row's reductions together and writes them.
    fn finish_row(&mut self, run: &Run<'_>, row: Value) -> Result<(), String> {
        let run_itself = self.here;
        for (i, a) in &run.accumulators {
            self.at(Some(*i));
            let result = self.body.inst(*i).result.ok_or("a reduction without a result")?;
            let t = self.tile(result)?;
            let (all_four, one) = match a.before {
                Some([four, one]) => (a.four.map(|_| four), one),
                None => (a.four, a.one),
            };
            let mut total = Lane { value: self.b.use_var(one), elem: a.elem, width: Width::One };
            if let Some(place) = a.place {
                total = Lane { value: self.b.use_var(place), elem: Elem::I32, width: Width::One };
            } else if let Some(four) = all_four {
                let four = Lane { value: self.b.use_var(four), elem: a.elem, width: Width::Four };
                let mut l = self.lanes();
                let [p, q, r, s] = [0, 1, 2, 3].map(|k| l.lane(four, k));
                let (even, odd) = (l.combine(a.kind, p, r), l.combine(a.kind, q, s));
                let lanes = l.combine(a.kind, even, odd);
                total = l.combine(a.kind, lanes, total);
            }
            let at = self.scratch_address(run.scratch, &t, Some(row), None)?;
            self.lanes().store_scratch(total, at);
        }
        self.at(run_itself);
        Ok(())
    }
}
