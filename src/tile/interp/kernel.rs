//! Executes one grid point of a kernel.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::dot;
use super::elements::{Element, binary, compare, reduce, unary, wrap};
use super::frame::{Frame, RuntimeValue, Tile, buffer, get, index, indices, set};
use super::memory::{Storage, View};
use super::runs::{RunView, Runs};
use super::{Budget, EvalError, broken, dim, fail, located};
use crate::scalar::BinaryOp;
use crate::shape::Elem;
use crate::tile::{
    Block, Body, DotMode, Extent, GROUP, Inst, InstData, Kernel, Op, Space, Terminator, TileType, Type, Value,
};

/// The environment of a kernel.
pub(super) struct KernelRun<'a> {
    pub memory: &'a mut Vec<Storage>,
    pub symbols: &'a BTreeMap<String, i64>,
    pub sites: &'a [String],
    pub budget: &'a mut Budget,
    pub scratch: Storage,
    /// Executes runs, instead of this interpreter.
    pub runs: Option<&'a dyn Runs>,
}

/// The next block.
pub(super) enum Next {
    Block(Block),
    Return,
}

/// Takes a jump: all arguments of the target are assigned simultaneously.
pub(super) fn jump(body: &Body, frame: &mut Frame, t: &Terminator) -> Result<Next, EvalError> {
    let call = match t {
        Terminator::Return(_) => return Ok(Next::Return),
        Terminator::Br(c) => c,
        Terminator::BrIf { condition, then, otherwise } => match get(frame, *condition)? {
            RuntimeValue::Scalar(x) if x.truth() => then,
            RuntimeValue::Scalar(_) => otherwise,
            _ => return broken("a condition that is not a scalar"),
        },
        Terminator::Roles(_) => return broken("roles are not run"),
    };
    let values: Vec<RuntimeValue> = call.args.iter().map(|v| get(frame, *v).cloned()).collect::<Result<_, _>>()?;
    for (arg, x) in body.block(call.block).args.iter().zip(values) {
        set(frame, *arg, x);
    }
    Ok(Next::Block(call.block))
}

impl KernelRun<'_> {
    /// Executes a grid point, whose parameters and grid indices are in the frame.
    pub(super) fn point(&mut self, k: &Kernel, frame: &mut Frame) -> Result<(), EvalError> {
        let body = &k.body;
        self.scratch.written.fill(false);
        let mut block = body.entry();
        loop {
            for i in &body.block(block).insts {
                let data = body.inst(*i);
                self.instruction(body, *i, frame).map_err(|e| located(e, data.loc))?;
            }
            self.budget.spend(1)?;
            match jump(body, frame, &body.block(block).terminator)? {
                Next::Block(b) => block = b,
                Next::Return => return Ok(()),
            }
        }
    }

    fn instruction(&mut self, body: &Body, i: Inst, frame: &mut Frame) -> Result<(), EvalError> {
        let data = body.inst(i);
        if let (Op::Run { insts, .. }, Some(runs)) = (&data.op, self.runs) {
            let done = runs.execute(i, &mut RunView { memory: self.memory, scratch: &mut self.scratch, body, frame });
            for v in insts.iter().filter_map(|k| body.inst(*k).result) {
                set(frame, v, RuntimeValue::Scratch);
            }
            return done.or_else(broken);
        }
        if let Op::Run { insts, .. } = &data.op {
            // The results of the run are written at its end.
            for k in insts {
                let inner = body.inst(*k);
                if let Some(x) = self.operation(body, inner, frame).map_err(|e| located(e, inner.loc))?
                    && let Some(v) = inner.result
                {
                    set(frame, v, x);
                }
            }
            for v in insts.iter().filter_map(|k| body.inst(*k).result) {
                self.settle(body, v, frame)?;
            }
            return Ok(());
        }
        if let Some(x) = self.operation(body, data, frame)?
            && let Some(v) = data.result
        {
            set(frame, v, x);
            self.settle(body, v, frame)?;
        }
        Ok(())
    }

    /// Writes a tile to scratch, if its type says so.
    fn settle(&mut self, body: &Body, v: Value, frame: &mut Frame) -> Result<(), EvalError> {
        let (Some(t), RuntimeValue::Tile(x)) = (body.ty(v).tile(), get(frame, v)?) else { return Ok(()) };
        let Space::L1(offset, _) = t.space else { return Ok(()) };
        for i in 0..x.rows {
            for j in 0..x.cols {
                let Some(e) = x.at(i, j) else { return broken("a tile without its elements") };
                let at = address(t, offset, i, j);
                let (bytes, n) = match t.elem {
                    // Truth values are stored as masks.
                    Elem::Bool => Element::Int(-i64::from(e.truth())).to_bytes(Elem::I32),
                    elem => e.to_bytes(elem),
                };
                self.scratch.write(at, &bytes[..n])?;
            }
        }
        set(frame, v, RuntimeValue::Scratch);
        Ok(())
    }

    fn extent(&self, frame: &Frame, e: Extent) -> Result<usize, EvalError> {
        let n = match e {
            Extent::Static(n) => n,
            Extent::Bounded { value, max } => {
                let n = index(frame, value)?;
                if !(0..=max).contains(&n) {
                    return broken(format!("an extent is {n}, not between 0 and {max}"));
                }
                n
            }
        };
        usize::try_from(n).or_else(|_| broken("a negative extent"))
    }

    /// The elements of a tile, wherever they are stored.
    fn tile(&self, body: &Body, frame: &Frame, v: Value) -> Result<Tile, EvalError> {
        let value = get(frame, v)?;
        if let RuntimeValue::Tile(t) = value {
            return Ok(t.clone());
        }
        let Some(t) = body.ty(v).tile() else { return broken(format!("{v} is not a tile")) };
        let (rows, cols) = (self.extent(frame, t.rows)?, self.extent(frame, t.cols)?);
        match (value, t.space) {
            (RuntimeValue::Scratch, Space::L1(offset, _)) => {
                let mut data = Vec::with_capacity(rows * cols);
                let size = t.element_bytes() as usize;
                for i in 0..rows {
                    for j in 0..cols {
                        let bytes = self.scratch.read(address(t, offset, i, j), size)?;
                        data.push(match t.elem {
                            Elem::Bool => Element::Int(i64::from(bytes.iter().any(|b| *b != 0))),
                            elem => Element::from_bytes(elem, bytes),
                        });
                    }
                }
                Ok(Tile { rows, cols, data: Rc::new(data) })
            }
            (RuntimeValue::Window { view, start, rows: r, cols: c }, _) => self.read(view, start, *r, *c, rows, cols),
            _ => broken(format!("{v} is not where its type says")),
        }
    }

    fn read(
        &self,
        view: &View,
        start: &[i64],
        row_axis: Option<usize>,
        col_axis: Option<usize>,
        rows: usize,
        cols: usize,
    ) -> Result<Tile, EvalError> {
        let mut data = Vec::with_capacity(rows * cols);
        let mut at = start.to_vec();
        for i in 0..rows {
            for j in 0..cols {
                place(&mut at, start, row_axis, col_axis, i, j);
                data.push(view.read(self.memory, &at)?);
            }
        }
        Ok(Tile { rows, cols, data: Rc::new(data) })
    }

    /// An operand as a tile: scalars are broadcast.
    fn spread(&self, body: &Body, frame: &Frame, v: Value) -> Result<Tile, EvalError> {
        match get(frame, v)? {
            RuntimeValue::Scalar(x) => Ok(Tile { rows: 1, cols: 1, data: Rc::new(vec![*x]) }),
            _ => self.tile(body, frame, v),
        }
    }

    /// Applies an operation elementwise, broadcasting to the result's extents.
    fn elementwise(
        &mut self,
        body: &Body,
        data: &InstData,
        frame: &Frame,
        f: &dyn Fn(&[Element]) -> Result<Element, EvalError>,
    ) -> Result<Option<RuntimeValue>, EvalError> {
        let operands: Vec<Tile> =
            data.operands.iter().map(|v| self.spread(body, frame, *v)).collect::<Result<_, _>>()?;
        let mut xs = vec![Element::Int(0); operands.len()];
        match data.result.map(|v| body.ty(v)) {
            Some(Type::Tile(t)) => {
                let (rows, cols) = (self.extent(frame, t.rows)?, self.extent(frame, t.cols)?);
                self.budget.spend((rows * cols) as u64)?;
                if t.elem.is_float() && matches!(data.op, Op::Unary(_) | Op::Binary(_)) {
                    self.budget.flops += (rows * cols) as u64;
                }
                let mut out = Vec::with_capacity(rows * cols);
                for i in 0..rows {
                    for j in 0..cols {
                        for (x, t) in xs.iter_mut().zip(&operands) {
                            *x = t.at(i, j).map_or_else(|| broken("an operand without its elements"), Ok)?;
                        }
                        out.push(f(&xs)?);
                    }
                }
                Ok(Some(RuntimeValue::Tile(Tile { rows, cols, data: Rc::new(out) })))
            }
            _ => {
                for (x, t) in xs.iter_mut().zip(&operands) {
                    *x = t.at(0, 0).map_or_else(|| broken("an operand without its elements"), Ok)?;
                }
                Ok(Some(RuntimeValue::Scalar(f(&xs)?)))
            }
        }
    }

    #[warn(clippy::wildcard_enum_match_arm, reason = "a new operation is met by an error here")]
    fn operation(&mut self, body: &Body, data: &InstData, frame: &Frame) -> Result<Option<RuntimeValue>, EvalError> {
        self.budget.spend(1)?;
        if let Some(x) = scalar_operation(body, data, frame, self.symbols, self.sites)? {
            return Ok(Some(x));
        }
        let elem = data.result.and_then(|v| body.ty(v).elem()).unwrap_or(Elem::F32);
        match &data.op {
            Op::Unary(op) => self.elementwise(body, data, frame, &|x| unary(*op, x[0], elem)),
            Op::Binary(op) => self.elementwise(body, data, frame, &|x| Ok(binary(*op, x[0], x[1], elem))),
            Op::Compare(op) => self.elementwise(body, data, frame, &|x| Ok(compare(*op, x[0], x[1]))),
            Op::Select => self.elementwise(body, data, frame, &|x| Ok(if x[0].truth() { x[1] } else { x[2] })),
            Op::Cast => self.elementwise(body, data, frame, &|x| Ok(x[0].cast(elem))),
            Op::Narrow { elem } => self.elementwise(body, data, frame, &|x| Ok(x[0].narrow(*elem))),
            Op::Full | Op::Copy => self.elementwise(body, data, frame, &|x| Ok(x[0])),
            Op::LoadScalar => {
                let (view, at) = self.access(data, frame, 0, 0)?;
                Ok(Some(RuntimeValue::Scalar(view.read(self.memory, &at)?)))
            }
            Op::Load { rows, cols } => {
                let (view, at) = self.access(data, frame, 0, 0)?;
                let (r, c) = self.result_extents(body, data, frame)?;
                self.budget.spend((r * c) as u64)?;
                Ok(Some(RuntimeValue::Tile(self.read(&view, &at, *rows, *cols, r, c)?)))
            }
            Op::Window { rows, cols } => {
                let (view, start) = self.access(data, frame, 0, 0)?;
                Ok(Some(RuntimeValue::Window { view, start, rows: *rows, cols: *cols }))
            }
            Op::LoadScaled { bits } => self.scaled(body, data, frame, *bits).map(Some),
            Op::LoadPairs => self.pairs(body, data, frame).map(Some),
            Op::Store { rows, cols } => {
                let (view, start) = self.access(data, frame, 0, 1)?;
                let Some(v) = data.operands.last() else { return broken("a store without a tile") };
                let x = self.tile(body, frame, *v)?;
                self.budget.spend((x.rows * x.cols) as u64)?;
                let mut at = start.clone();
                for i in 0..x.rows {
                    for j in 0..x.cols {
                        place(&mut at, &start, *rows, *cols, i, j);
                        let Some(e) = x.at(i, j) else { return broken("a tile without its elements") };
                        view.write(self.memory, &at, e)?;
                    }
                }
                Ok(None)
            }
            Op::Iota { axis } => {
                let Some(start) = data.operands.first() else { return broken("iota without a start") };
                let start = index(frame, *start)?;
                let (r, c) = self.result_extents(body, data, frame)?;
                let count = |i: usize, j: usize| {
                    let n = i64::try_from(if *axis == 0 { i } else { j }).unwrap_or(i64::MAX);
                    Element::Int(wrap(start.wrapping_add(n), elem))
                };
                let out = (0..r).flat_map(|i| (0..c).map(move |j| count(i, j))).collect();
                Ok(Some(RuntimeValue::Tile(Tile { rows: r, cols: c, data: Rc::new(out) })))
            }
            Op::Transpose => {
                let x = self.operand_tile(body, data, frame, 0)?;
                let mut out = Vec::with_capacity(x.data.len());
                for j in 0..x.cols {
                    for i in 0..x.rows {
                        out.extend(x.data.get(i * x.cols + j).copied());
                    }
                }
                Ok(Some(RuntimeValue::Tile(Tile { rows: x.cols, cols: x.rows, data: Rc::new(out) })))
            }
            Op::PairRows => {
                let x = self.operand_tile(body, data, frame, 0)?;
                let (rows, cols) = self.result_extents(body, data, frame)?;
                self.budget.spend((rows * cols) as u64)?;
                let all = (0..rows).flat_map(|i| (0..cols).map(move |j| (i, j)));
                let row = |i, j| if i < x.rows { x.at(i, j) } else { Some(Element::Float(0.0)) };
                let out = all.filter_map(|(i, j)| Some(row(i, j)?.narrow(Elem::BF16))).collect();
                Ok(Some(RuntimeValue::Tile(Tile { rows, cols, data: Rc::new(out) })))
            }
            Op::Element => match self.operand_tile(body, data, frame, 0)?.at(0, 0) {
                Some(x) => Ok(Some(RuntimeValue::Scalar(x))),
                None => broken("a tile of one without its element"),
            },
            Op::Reduce { kind, axis } => {
                let x = self.operand_tile(body, data, frame, 0)?;
                self.budget.spend((x.rows * x.cols) as u64)?;
                let from = data.operands.first().and_then(|v| body.ty(*v).elem()).unwrap_or(Elem::F32);
                if from.is_float() {
                    self.budget.flops += (x.rows * x.cols) as u64;
                }
                let mut out = Vec::new();
                let (rows, cols) = if *axis == 0 { (1, x.cols) } else { (x.rows, 1) };
                let (lines, length) = if *axis == 0 { (x.cols, x.rows) } else { (x.rows, x.cols) };
                for line in 0..lines {
                    let at = |n: usize| if *axis == 0 { n * x.cols + line } else { line * x.cols + n };
                    out.push(reduce(*kind, from, (0..length).filter_map(|n| x.data.get(at(n)).copied()))?);
                }
                Ok(Some(RuntimeValue::Tile(Tile { rows, cols, data: Rc::new(out) })))
            }
            Op::Dot { .. } => self.dot(body, data, frame, elem).map(Some),
            // Handled earlier (`scalar_operation`), part of a run (`runs`) or a plan, or in GPU
            // kernels, which are not executed.
            Op::Const(_)
            | Op::DimValue(_)
            | Op::CheckIndex { .. }
            | Op::Length { .. }
            | Op::Run { .. }
            | Op::Gpu(_)
            | Op::Plan(_) => broken(format!("{} is not run", data.op.info().name)),
        }
    }

    /// Integers and their scales, each row-major: one row of scales per group of k indices.
    fn numbers(
        &mut self,
        data: &InstData,
        frame: &Frame,
        bits: u8,
        (rows, cols): (usize, usize),
    ) -> Result<(Vec<i64>, Vec<f32>), EvalError> {
        let (view, start) = self.access(data, frame, 0, 1)?;
        let Some(scales) = data.operands.last() else { return broken("a panel without scales") };
        let scales = buffer(frame, *scales)?;
        self.budget.spend((rows * cols) as u64)?;
        let (steps, group) = (if bits == 4 { 2 } else { 1 }, i64::from(GROUP));
        let Some(axis) = start.len().checked_sub(2) else { return broken("a panel of less than two axes") };
        let first = start[axis].wrapping_mul(steps);
        if first.rem_euclid(group) != 0 {
            return broken(format!("a panel starts at step {first}, not with a group of {group}"));
        }
        let mut at = start.clone();
        let (mut numbers, mut all_scales) = (Vec::with_capacity(rows * cols), Vec::new());
        for i in 0..rows {
            let step = first.wrapping_add(i64::try_from(i).unwrap_or(i64::MAX));
            for j in 0..cols {
                at[axis] = step.div_euclid(steps);
                at[axis + 1] = start[axis + 1].wrapping_add(i64::try_from(j).unwrap_or(i64::MAX));
                let byte = view.read(self.memory, &at)?.int();
                numbers.push(match bits {
                    4 if step % 2 == 0 => (byte << 60) >> 60,
                    4 => byte >> 4,
                    _ => byte,
                });
                if step % group == 0 {
                    at[axis] = step.div_euclid(group);
                    all_scales.push(scales.read(self.memory, &at)?.float());
                }
            }
        }
        Ok((numbers, all_scales))
    }

    /// Integers times their scales.
    fn scaled(&mut self, body: &Body, data: &InstData, frame: &Frame, bits: u8) -> Result<RuntimeValue, EvalError> {
        let (rows, cols) = self.result_extents(body, data, frame)?;
        let (numbers, scales) = self.numbers(data, frame, bits, (rows, cols))?;
        let group = GROUP.unsigned_abs() as usize * cols;
        let of_groups = numbers.chunks(group.max(1)).zip(scales.chunks(cols.max(1)));
        let products = of_groups.flat_map(|(numbers, scales)| {
            numbers.iter().zip(scales.iter().cycle()).map(|(n, scale)| Element::Float(*n as f32 * scale))
        });
        Ok(RuntimeValue::Tile(Tile { rows, cols, data: Rc::new(products.collect()) }))
    }

    /// Interleaved pairs of k indices.
    fn pairs(&mut self, body: &Body, data: &InstData, frame: &Frame) -> Result<RuntimeValue, EvalError> {
        let (view, start) = self.access(data, frame, 0, 0)?;
        let (rows, cols) = self.result_extents(body, data, frame)?;
        self.budget.spend((rows * cols) as u64)?;
        let [lead @ .., pair, column, _] = start.as_slice() else { return broken("a panel of less than three axes") };
        let mut out = Vec::with_capacity(rows * cols);
        let further = |n: &i64, by: usize| n.wrapping_add(i64::try_from(by).unwrap_or(i64::MAX));
        for i in 0..rows {
            for j in 0..cols {
                let own = [further(pair, i / 2), further(column, j), further(&0, i % 2)];
                out.push(view.read(self.memory, &[lead, &own].concat())?);
            }
        }
        Ok(RuntimeValue::Tile(Tile { rows, cols, data: Rc::new(out) }))
    }

    /// `acc + a @ b`: sums over k, added to the tile `acc`, or starting with the scalar.
    fn dot(&mut self, body: &Body, data: &InstData, frame: &Frame, elem: Elem) -> Result<RuntimeValue, EvalError> {
        let a = self.operand_tile(body, data, frame, 0)?;
        let b = self.operand_tile(body, data, frame, 1)?;
        let Some(start) = data.operands.get(2) else { return broken("an operand is missing") };
        let mut acc = self.spread(body, frame, *start)?;
        let mut first = None;
        if matches!(body.ty(*start), Type::Scalar(_)) {
            let Some(x) = acc.at(0, 0) else { return broken("a scalar without a value") };
            first = Some(x);
            acc = Tile { rows: a.rows, cols: b.cols, data: Rc::new(vec![x; a.rows * b.cols]) };
        }
        let inner = a.cols;
        self.budget.spend((acc.rows * acc.cols * inner) as u64)?;
        self.budget.flops += 2 * (acc.rows * acc.cols * inner) as u64;
        let mut out = Vec::with_capacity(acc.data.len());
        if elem == Elem::F32 {
            let floats = |t: &Tile| t.data.iter().map(|x| x.float()).collect::<Vec<f32>>();
            let (x, y) = (floats(&a), floats(&b));
            let numbers = self.numbers_of_groups(body, data, frame, (inner, b.cols))?;
            let columns: Vec<Vec<f32>> = (0..acc.cols).map(|j| column(&y, j, b.cols)).collect();
            let mode = match data.op {
                Op::Dot { mode } => mode.unwrap_or(DotMode::Chain),
                _ => DotMode::Fma,
            };
            for i in 0..acc.rows {
                let row: Vec<f32> = (0..inner).filter_map(|k| x.get(i * a.cols + k).copied()).collect();
                let start = first.map_or(0.0, Element::float);
                let sums: Vec<f32> = match &numbers {
                    Some((bits, columns)) => {
                        let row = dot::rounded(&row, *bits);
                        let column = |(numbers, scales): &(Vec<i64>, Vec<f32>)| {
                            dot::sum_of_groups(&row, &dot::Numbers { numbers, scales }, start)
                        };
                        columns.iter().map(column).collect()
                    }
                    None => columns.iter().map(|column| dot::sum(mode, &row, column, start)).collect(),
                };
                for (j, sum) in sums.into_iter().enumerate() {
                    let acc = acc.data.get(i * acc.cols + j).map_or(0.0, |x| x.float());
                    out.push(Element::Float(if first.is_some() { sum } else { acc + sum }));
                }
            }
            return Ok(RuntimeValue::Tile(Tile { rows: acc.rows, cols: acc.cols, data: Rc::new(out) }));
        }
        for i in 0..acc.rows {
            for j in 0..acc.cols {
                let Some(acc) = acc.data.get(i * acc.cols + j).copied() else {
                    return broken("an accumulator without its elements");
                };
                let mut sum = first.unwrap_or(Element::zero(elem));
                for k in 0..inner {
                    let (Some(x), Some(y)) = (a.data.get(i * a.cols + k), b.data.get(k * b.cols + j)) else {
                        return broken("an operand of a product without its elements");
                    };
                    sum = binary(BinaryOp::Add, sum, binary(BinaryOp::Mul, *x, *y, elem), elem);
                }
                out.push(if first.is_some() { sum } else { binary(BinaryOp::Add, acc, sum, elem) });
            }
        }
        Ok(RuntimeValue::Tile(Tile { rows: acc.rows, cols: acc.cols, data: Rc::new(out) }))
    }

    /// Bit width, and the quantised columns, of a matmul that sums by groups.
    fn numbers_of_groups(
        &mut self,
        body: &Body,
        data: &InstData,
        frame: &Frame,
        (steps, cols): (usize, usize),
    ) -> Result<Option<ColumnsOfNumbers>, EvalError> {
        let right = data.operands.get(1).and_then(|v| body.def_inst(*v));
        let (Op::Dot { mode: Some(DotMode::Groups) }, Some(load @ InstData { op: Op::LoadScaled { bits }, .. })) =
            (&data.op, right)
        else {
            return Ok(None);
        };
        if !steps.is_multiple_of(GROUP.unsigned_abs() as usize) {
            return Ok(None);
        }
        let (numbers, scales) = self.numbers(load, frame, *bits, (steps, cols))?;
        let both = |j: usize| (column(&numbers, j, cols), column(&scales, j, cols));
        Ok(Some((*bits, (0..cols).map(both).collect())))
    }

    fn operand_tile(&self, body: &Body, data: &InstData, frame: &Frame, n: usize) -> Result<Tile, EvalError> {
        match data.operands.get(n) {
            Some(v) => self.tile(body, frame, *v),
            None => broken("an operand is missing"),
        }
    }

    fn result_extents(&self, body: &Body, data: &InstData, frame: &Frame) -> Result<(usize, usize), EvalError> {
        match data.result.and_then(|v| body.ty(v).tile()) {
            Some(t) => Ok((self.extent(frame, t.rows)?, self.extent(frame, t.cols)?)),
            None => broken("the result is not a tile"),
        }
    }

    /// The buffer operand at a position and the indices after it, without the last `after`
    /// operands.
    fn access(
        &self,
        data: &InstData,
        frame: &Frame,
        at: usize,
        after: usize,
    ) -> Result<(Rc<View>, Vec<i64>), EvalError> {
        let end = data.operands.len().saturating_sub(after);
        match data.operands.get(at..end).and_then(<[Value]>::split_first) {
            Some((b, rest)) => Ok((buffer(frame, *b)?, indices(frame, rest)?)),
            None => broken("a buffer is missing"),
        }
    }
}

/// Bit width, and for each column its integers and scales.
type ColumnsOfNumbers = (u8, Vec<(Vec<i64>, Vec<f32>)>);

/// A column of a row-major matrix.
fn column<T: Copy>(rows: &[T], column: usize, columns: usize) -> Vec<T> {
    rows.iter().skip(column).step_by(columns.max(1)).copied().collect()
}

/// The buffer index of a tile's element.
fn place(at: &mut [i64], start: &[i64], rows: Option<usize>, cols: Option<usize>, i: usize, j: usize) {
    at.copy_from_slice(start);
    for (axis, n) in [(rows, i), (cols, j)] {
        if let Some(x) = axis.and_then(|a| at.get_mut(a)) {
            *x = x.wrapping_add(i64::try_from(n).unwrap_or(i64::MAX));
        }
    }
}

fn address(t: &TileType, offset: u32, i: usize, j: usize) -> i64 {
    let (i, j) = (i64::try_from(i).unwrap_or(i64::MAX), i64::try_from(j).unwrap_or(i64::MAX));
    i64::from(offset) + i.saturating_mul(i64::from(t.pitch())) + j.saturating_mul(i64::from(t.element_bytes()))
}

/// Constants and operations on indices, which kernels and plans share; `None` for others.
pub(super) fn scalar_operation(
    body: &Body,
    data: &InstData,
    frame: &Frame,
    symbols: &BTreeMap<String, i64>,
    sites: &[String],
) -> Result<Option<RuntimeValue>, EvalError> {
    let ty = data.result.map(|v| body.ty(v));
    let is_index = |v: &Value| *body.ty(*v) == Type::Index;
    Ok(match (&data.op, data.operands.as_slice(), ty) {
        (Op::Const(s), _, Some(Type::Index)) => Some(RuntimeValue::Index(s.as_i64())),
        (Op::Const(s), _, Some(Type::Scalar(e))) => Some(RuntimeValue::Scalar(Element::from_scalar(*s, *e))),
        (Op::DimValue(d), _, Some(Type::Scalar(e))) => {
            Some(RuntimeValue::Scalar(Element::Int(dim(d, symbols)?).cast(*e)))
        }
        (Op::DimValue(d), ..) => Some(RuntimeValue::Index(dim(d, symbols)?)),
        (Op::Binary(op), [a, b], Some(Type::Index)) => {
            Some(RuntimeValue::Index(op.eval_int(index(frame, *a)?, index(frame, *b)?)))
        }
        (Op::Compare(op), [a, b], _) if is_index(a) => {
            Some(RuntimeValue::Scalar(Element::Int(i64::from(op.eval(index(frame, *a)?, index(frame, *b)?)))))
        }
        (Op::Select, [c, a, b], Some(Type::Index)) => match get(frame, *c)? {
            RuntimeValue::Scalar(x) => Some(RuntimeValue::Index(index(frame, if x.truth() { *a } else { *b })?)),
            _ => return broken("a condition that is not a scalar"),
        },
        (Op::Cast, [x], Some(Type::Index)) => match get(frame, *x)? {
            RuntimeValue::Scalar(x) => Some(RuntimeValue::Index(x.int())),
            _ => return broken("a cast of no scalar to an index"),
        },
        (Op::Cast, [x], Some(Type::Scalar(e))) if is_index(x) => {
            Some(RuntimeValue::Scalar(Element::Int(index(frame, *x)?).cast(*e)))
        }
        (Op::CheckIndex { site }, [i, bound], _) => {
            let (i, bound) = (index(frame, *i)?, index(frame, *bound)?);
            if !(0..bound).contains(&i) {
                let text = sites.get(*site as usize).map_or("index out of range", String::as_str);
                return fail(
                    text.replace("{0}", &i.to_string()).replace("{1}", &bound.to_string()).replace("{2}", "0"),
                );
            }
            Some(RuntimeValue::Index(i))
        }
        _ => None,
    })
}
