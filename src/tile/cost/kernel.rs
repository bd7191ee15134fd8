//! The cost of one kernel: grid points are evaluated, on indices only. Along an axis whose points
//! do the same at other places (`axes`), three points stand for all.
//!
//! In: a kernel, values of its dimensions and index parameters. Out: operation counts, and for each
//! parameter the bounding boxes of what is read and written.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;

use super::{Cost, axes, dim};
use crate::scalar::BinaryOp;
use crate::shape::Dim;
use crate::tile::{
    Body, BufferType, Extent, GROUP, Inst, InstData, Kernel, Op, ParamMode, Terminator, TileType, Type, Value,
};

/// Abstract value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AbstractValue {
    /// An index, or an integer or truth value computed from indices.
    Number(i64),
    /// Data loaded from the parameter of this number.
    From(usize),
    /// Other data.
    #[default]
    Nothing,
}

impl AbstractValue {
    fn number(self) -> Option<i64> {
        match self {
            AbstractValue::Number(n) => Some(n),
            AbstractValue::From(_) | AbstractValue::Nothing => None,
        }
    }
}

/// The accessed elements of a buffer.
#[derive(Clone, Debug, Default)]
struct Touched {
    /// First and last accessed index along each axis, over all known accesses; empty if there were
    /// none.
    spans: Vec<(i64, i64)>,
    /// Number of accessed elements at data-dependent indices.
    scattered: u64,
}

impl Touched {
    /// Adds a box of `counts` elements that begins at `start`, for this number of grid points.
    fn add(&mut self, start: &[AbstractValue], counts: &[i64], points: u64) {
        if counts.iter().any(|n| *n <= 0) {
            return;
        }
        let start: Option<Vec<i64>> = start.iter().map(|x| x.number()).collect();
        let Some(start) = start else {
            let elements = counts.iter().fold(1u64, |n, c| n.saturating_mul(c.unsigned_abs()));
            self.scattered = self.scattered.saturating_add(elements.saturating_mul(points));
            return;
        };
        let spans = start.iter().zip(counts).map(|(s, n)| (*s, s.saturating_add(n - 1)));
        if self.spans.is_empty() {
            self.spans = spans.collect();
            // A buffer without axes has one element.
            if start.is_empty() {
                self.spans.push((0, 0));
            }
            return;
        }
        for (old, new) in self.spans.iter_mut().zip(spans) {
            *old = (old.0.min(new.0), old.1.max(new.1));
        }
    }

    /// Size of the accessed elements, each counted once; an axis of stride 0 has one element.
    fn bytes(&self, extents: &[i64], strides: &[i64], size: u64) -> u64 {
        let alive = |axis: usize| strides.get(axis).is_none_or(|s| *s != 0);
        let product = |counts: &mut dyn Iterator<Item = (usize, u64)>| {
            counts.filter(|(axis, _)| alive(*axis)).fold(1u64, |n, (_, c)| n.saturating_mul(c))
        };
        let all = product(&mut extents.iter().map(|e| e.max(&0).unsigned_abs()).enumerate());
        let boxed = if self.spans.is_empty() {
            0
        } else {
            let lengths = self.spans.iter().enumerate().map(|(axis, (first, last))| {
                let end = extents.get(axis).map_or(*last, |e| (e - 1).min(*last));
                (axis, (end - (*first).max(0) + 1).max(0).unsigned_abs())
            });
            product(&mut { lengths })
        };
        boxed.saturating_add(self.scattered).min(all).saturating_mul(size)
    }
}

/// A parameter that is a buffer.
struct Parameter {
    read: u64,
    written: u64,
}

/// Work of a kernel with certain sizes.
pub(super) struct Done {
    flops: u64,
    pub(super) points: i64,
    exact: bool,
    uncounted: bool,
    /// By parameter number; empty for indices.
    params: Vec<Parameter>,
    /// Parameters whose elements are used as indices, with their smallest bound.
    pub(super) bounds: BTreeMap<usize, i64>,
}

impl Done {
    /// The cost if some parameters alias earlier ones: `same[i]` is the number of the earlier one.
    pub(super) fn cost(&self, same: &[Option<usize>]) -> Cost {
        let mut cost = Cost { flops: self.flops, exact: self.exact, uncounted: self.uncounted, ..Cost::default() };
        for (i, p) in self.params.iter().enumerate() {
            let twice = same.get(i).copied().flatten().and_then(|j| self.params.get(j));
            // Bytes already read through an earlier parameter are not counted again.
            let read = p.read.saturating_sub(twice.map_or(0, |q| q.read));
            cost.read = cost.read.saturating_add(read);
            cost.written = cost.written.saturating_add(p.written);
        }
        cost
    }

    /// Adopts the operation counts of another kernel.
    pub(super) fn multiplies_as(&mut self, other: &Done) {
        (self.flops, self.exact, self.uncounted) = (other.flops, other.exact, other.uncounted);
    }

    /// Bytes read from the selected parameters.
    pub(super) fn read_of(&self, of: impl Fn(usize) -> bool) -> u64 {
        let read = self.params.iter().enumerate().filter(|(i, _)| of(*i)).map(|(_, p)| p.read);
        read.fold(0, u64::saturating_add)
    }
}

/// Extents of a kernel's grid, in points.
fn grid(kernel: &Kernel, symbols: &BTreeMap<String, i64>) -> Result<Vec<i64>, String> {
    let count = |g: &crate::tile::GridAxis| {
        let step = g.step.max(1);
        Ok(dim(&g.extent, symbols)?.max(0).saturating_add(step - 1) / step)
    };
    kernel.grid.iter().map(count).collect()
}

/// Number of grid points.
pub(super) fn points(kernel: &Kernel, symbols: &BTreeMap<String, i64>) -> Result<i64, String> {
    let counts = grid(kernel, symbols)?;
    Ok(counts.iter().try_fold(1i64, |n, c| n.checked_mul(*c)).ok_or("the grid is too large")?)
}

/// Upper bound for a kernel that is too long to evaluate: every buffer is read or written in full.
pub(super) fn all_of(kernel: &Kernel, points: i64, symbols: &BTreeMap<String, i64>) -> Result<Done, String> {
    let mut params = Vec::new();
    for p in &kernel.params {
        let Some(ty) = kernel.body.ty(p.value).buffer() else {
            params.push(Parameter { read: 0, written: 0 });
            continue;
        };
        let extents = ty.shape.iter().map(|d| dim(d, symbols)).collect::<Result<Vec<i64>, _>>()?;
        let mut all = Touched::default();
        all.add(&vec![AbstractValue::Number(0); extents.len()], &extents, 1);
        let nothing = Touched::default();
        let (read, written) = match p.mode {
            ParamMode::In => (&all, &nothing),
            ParamMode::Out => (&nothing, &all),
            _ => (&all, &all),
        };
        params.push(parameter(ty, symbols, read, written, p.mode)?);
    }
    Ok(Done { flops: 0, points, exact: false, uncounted: true, params, bounds: BTreeMap::new() })
}

/// Evaluates a kernel over its grid.
pub(super) fn walk(
    kernel: &Kernel,
    symbols: &BTreeMap<String, i64>,
    indices: &[i64],
    steps: &mut u64,
) -> Result<Done, String> {
    walk_by(kernel, symbols, indices, steps, axes::regular(kernel))
}

/// The same, with these axes as regular as far as their points agree.
pub(super) fn walk_by(
    kernel: &Kernel,
    symbols: &BTreeMap<String, i64>,
    indices: &[i64],
    steps: &mut u64,
    mut regular: Vec<bool>,
) -> Result<Done, String> {
    let mut frame: SecondaryMap<Value, AbstractValue> = SecondaryMap::new();
    let mut param_of: SecondaryMap<Value, Option<usize>> = SecondaryMap::new();
    let mut given = indices.iter();
    for (i, p) in kernel.params.iter().enumerate() {
        match kernel.body.ty(p.value) {
            Type::Index => {
                let n = given.next().ok_or_else(|| format!("{} takes more indices", kernel.name))?;
                frame[p.value] = AbstractValue::Number(*n);
            }
            _ => param_of[p.value] = Some(i),
        }
    }
    let counts = grid(kernel, symbols)?;
    let points = points(kernel, symbols)?;
    let dims = dims_of(&kernel.body, symbols)?;
    let w = loop {
        let mut w = Walk {
            kernel,
            body: &kernel.body,
            frame: frame.clone(),
            param_of: &param_of,
            dims: &dims,
            flops: 0,
            exact: true,
            read: vec![Touched::default(); kernel.params.len()],
            written: vec![Touched::default(); kernel.params.len()],
            bounds: BTreeMap::new(),
            alike: 1,
            trace: 0,
            steps: &mut *steps,
        };
        match w.grid(&counts, &regular)? {
            Some(axis) => regular[axis] = false,
            None => break w,
        }
    };
    let mut params = Vec::new();
    for ((p, read), written) in kernel.params.iter().zip(&w.read).zip(&w.written) {
        params.push(match kernel.body.ty(p.value).buffer() {
            Some(ty) => parameter(ty, symbols, read, written, p.mode)?,
            None => Parameter { read: 0, written: 0 },
        });
    }
    Ok(Done { flops: w.flops, points, exact: w.exact, uncounted: false, params, bounds: w.bounds })
}

fn parameter(
    ty: &BufferType,
    symbols: &BTreeMap<String, i64>,
    read: &Touched,
    written: &Touched,
    mode: ParamMode,
) -> Result<Parameter, String> {
    let values = |ds: &[Dim]| ds.iter().map(|d| dim(d, symbols)).collect::<Result<Vec<i64>, _>>();
    let (extents, strides) = (values(&ty.shape)?, values(&ty.strides)?);
    let bytes = |t: &Touched| t.bytes(&extents, &strides, ty.elem.size());
    let read = if mode == ParamMode::Out { 0 } else { bytes(read) };
    Ok(Parameter { read, written: bytes(written) })
}

/// The values of the dimensions in instructions, computed once per evaluation.
pub(super) fn dims_of(body: &Body, symbols: &BTreeMap<String, i64>) -> Result<SecondaryMap<Inst, i64>, String> {
    let mut dims = SecondaryMap::new();
    for (_, i, data) in body.insts() {
        if let Op::DimValue(d) = &data.op {
            dims[i] = dim(d, symbols)?;
        }
    }
    Ok(dims)
}

/// Operations that kernels and plans share; `None` for others.
pub(super) fn simple(
    body: &Body,
    i: Inst,
    dims: &SecondaryMap<Inst, i64>,
    x: &dyn Fn(Value) -> AbstractValue,
) -> Option<AbstractValue> {
    let data = body.inst(i);
    let number = |v: &Value| x(*v).number();
    let whole = data.result.is_some_and(|v| match body.ty(v) {
        Type::Index => true,
        Type::Scalar(e) => !e.is_float(),
        _ => false,
    });
    let both = |a: &Value, b: &Value| number(a).zip(number(b));
    Some(match (&data.op, data.operands.as_slice()) {
        (_, _) if data.result.is_none_or(|v| !matches!(body.ty(v), Type::Index | Type::Scalar(_))) => return None,
        (Op::Const(s), _) if whole => AbstractValue::Number(s.as_i64()),
        (Op::DimValue(_), _) if whole => AbstractValue::Number(dims[i]),
        (Op::Binary(op), [a, b]) if whole => {
            both(a, b).map_or(AbstractValue::Nothing, |(a, b)| AbstractValue::Number(op.eval_int(a, b)))
        }
        (Op::Unary(op), [a]) if whole => {
            number(a).and_then(|n| op.eval_int(n)).map_or(AbstractValue::Nothing, AbstractValue::Number)
        }
        (Op::Compare(op), [a, b]) if !body.ty(*a).elem().is_some_and(|e| e.is_float()) => {
            both(a, b).map_or(AbstractValue::Nothing, |(a, b)| AbstractValue::Number(i64::from(op.eval(a, b))))
        }
        (Op::Select, [c, a, b]) if whole => match number(c) {
            Some(c) => x(if c != 0 { *a } else { *b }),
            None => AbstractValue::Nothing,
        },
        (Op::Cast | Op::CheckIndex { .. }, [a, ..]) if whole => x(*a),
        (Op::Const(_) | Op::DimValue(_) | Op::Binary(_) | Op::Compare(_) | Op::Select | Op::Cast, _) => {
            AbstractValue::Nothing
        }
        (Op::Unary(_) | Op::Narrow { .. } | Op::CheckIndex { .. }, _) => AbstractValue::Nothing,
        _ => return None,
    })
}

/// The target of a terminator; an error if it depends on data.
pub(super) fn target<'a>(
    t: &'a Terminator,
    x: &dyn Fn(Value) -> AbstractValue,
) -> Result<Option<&'a crate::tile::BlockCall>, String> {
    match t {
        Terminator::Return(_) => Ok(None),
        Terminator::Br(c) => Ok(Some(c)),
        Terminator::BrIf { condition, then, otherwise } => match x(*condition) {
            AbstractValue::Number(n) => Ok(Some(if n != 0 { then } else { otherwise })),
            AbstractValue::From(_) | AbstractValue::Nothing => Err("data decides where it goes on".to_string()),
        },
        Terminator::Roles(_) => Err("warps are not walked".to_string()),
    }
}

struct Walk<'a> {
    kernel: &'a Kernel,
    body: &'a Body,
    frame: SecondaryMap<Value, AbstractValue>,
    param_of: &'a SecondaryMap<Value, Option<usize>>,
    dims: &'a SecondaryMap<Inst, i64>,
    flops: u64,
    exact: bool,
    read: Vec<Touched>,
    written: Vec<Touched>,
    bounds: BTreeMap<usize, i64>,
    /// The number of grid points that the present one stands for.
    alike: u64,
    /// Digest of the extents, minima and maxima at the present point.
    trace: u64,
    steps: &'a mut u64,
}

impl Walk<'_> {
    /// Evaluates a grid with these numbers of points: along regular axes the first, which stands
    /// for all but the last two, and these. Returns an axis along which these points are not
    /// alike, if there is one; the counts are then wrong.
    fn grid(&mut self, counts: &[i64], regular: &[bool]) -> Result<Option<usize>, String> {
        let is_short = |n: &usize| regular.get(*n) == Some(&true) && counts.get(*n).is_some_and(|count| *count > 3);
        // The short axes go fastest.
        let (short, long): (Vec<usize>, Vec<usize>) = (0..counts.len()).partition(is_short);
        let chosen = |n: &usize| if is_short(n) { 3 } else { counts.get(*n).copied().unwrap_or_default() };
        let order: Vec<usize> = long.iter().chain(&short).copied().collect();
        let all = order.iter().map(chosen).try_fold(1i64, i64::checked_mul);
        let too_long = || "its work is too long to count".to_string();
        let all = all.filter(|all| all.unsigned_abs() <= *self.steps).ok_or_else(too_long)?;
        let together = short.iter().fold(1, |n, _| n * 3);
        let mut traces: Vec<u64> = Vec::new();
        for number in 0..all {
            let mut rest = number;
            (self.alike, self.trace) = (1, 1);
            for n in order.iter().rev() {
                let (choice, count) = (rest % chosen(n), counts.get(*n).copied().unwrap_or_default());
                rest /= chosen(n);
                let point = match choice {
                    choice if !is_short(n) => choice,
                    0 => {
                        self.alike = self.alike.saturating_mul((count - 2).unsigned_abs());
                        0
                    }
                    choice => count - 3 + choice,
                };
                if let Some(axis) = self.kernel.grid.get(*n) {
                    self.frame[axis.value] = AbstractValue::Number(point);
                }
            }
            self.point()?;
            traces.push(self.trace);
            if traces.len() < together {
                continue;
            }
            // The first point and the last but one, all other indices being the same.
            let mut apart = 1;
            for n in short.iter().rev() {
                let pairs = traces.iter().zip(traces.iter().skip(apart)).enumerate();
                if pairs.filter(|(at, _)| at / apart % 3 == 0).any(|(_, (first, second))| first != second) {
                    return Ok(Some(*n));
                }
                apart *= 3;
            }
            traces.clear();
        }
        Ok(None)
    }

    /// Adds a number to the digest (FNV-1a).
    fn note(&mut self, n: i64) {
        self.trace = (self.trace ^ n.cast_unsigned()).wrapping_mul(0x0100_0000_01b3);
    }

    fn point(&mut self) -> Result<(), String> {
        let body = self.body;
        let mut block = body.entry();
        loop {
            // Counted per block, so that a loop of empty blocks ends too.
            *self.steps = self.steps.checked_sub(1).ok_or("its work is too long to count")?;
            for i in &body.block(block).insts {
                self.instruction(*i)?;
                if let Op::Run { insts, .. } = &body.inst(*i).op {
                    for inner in insts {
                        self.instruction(*inner)?;
                    }
                }
            }
            let goes = match &body.block(block).terminator {
                // Whether a block of keys is visited depends on data in a mask: counted as if it
                // was.
                Terminator::BrIf { condition, then, .. } if self.frame[*condition].number().is_none() => {
                    self.exact = false;
                    Some(then)
                }
                t => target(t, &|v| self.frame[v]).map_err(|e| format!("{}: {e}", self.kernel.name))?,
            };
            let Some(call) = goes else { return Ok(()) };
            let values: Vec<AbstractValue> = call.args.iter().map(|v| self.frame[*v]).collect();
            for (arg, x) in body.block(call.block).args.iter().zip(values) {
                self.frame[*arg] = x;
            }
            block = call.block;
        }
    }

    fn instruction(&mut self, i: Inst) -> Result<(), String> {
        *self.steps = self.steps.checked_sub(1).ok_or("its work is too long to count")?;
        let body = self.body;
        let data = body.inst(i);
        if let Some(x) = simple(body, i, self.dims, &|v| self.frame[v]) {
            if let (Op::CheckIndex { .. }, [index, bound]) = (&data.op, data.operands.as_slice())
                && let (AbstractValue::From(param), AbstractValue::Number(bound)) =
                    (self.frame[*index], self.frame[*bound])
            {
                let least = self.bounds.entry(param).or_insert(bound);
                *least = bound.min(*least);
            }
            if let (Op::Binary(BinaryOp::Min | BinaryOp::Max), Some(n)) = (&data.op, x.number()) {
                self.note(n);
            }
            if let Some(v) = data.result {
                self.frame[v] = x;
            }
            return Ok(());
        }
        let result = data.result.and_then(|v| body.ty(v).tile());
        let operand = |n: usize| data.operands.get(n).and_then(|v| body.ty(*v).tile());
        match &data.op {
            Op::Unary(_) | Op::Binary(_) => {
                if let Some(t) = result.filter(|t| t.elem.is_float()) {
                    let n = self.elements(t);
                    self.add(n);
                }
            }
            Op::Reduce { .. } => {
                if let Some(t) = operand(0).filter(|t| t.elem.is_float()) {
                    let n = self.elements(t);
                    self.add(n);
                }
            }
            Op::Dot { .. } => {
                if let (Some(a), Some(sums)) = (operand(0), result) {
                    let inner = if matches!(data.op, Op::Dot { .. }) { a.cols } else { a.rows };
                    let inner = self.extent(inner).unsigned_abs();
                    let n = self.elements(sums).saturating_mul(inner).saturating_mul(2);
                    self.add(n);
                }
            }
            Op::Load { rows, cols } | Op::Window { rows, cols } => {
                if let Some(t) = result {
                    let counts = (self.extent(t.rows), self.extent(t.cols));
                    self.touch(data, 0, (*rows, *cols), counts, false);
                }
            }
            Op::LoadScaled { bits } => {
                if let Some(t) = result {
                    let counts = (self.extent(t.rows), self.extent(t.cols));
                    self.touch_scaled(data, i64::from(8 / (*bits).clamp(1, 8)), counts);
                }
            }
            Op::LoadPairs => {
                if let Some(t) = result {
                    let counts = (self.extent(t.rows), self.extent(t.cols));
                    self.touch_pairs(data, counts);
                }
            }
            // Conditions on tiles test whether something is not finite; assume that it is finite.
            Op::Element => {
                if let Some(v) = data.result {
                    self.frame[v] = AbstractValue::Number(0);
                }
            }
            Op::LoadScalar => {
                self.touch(data, 0, (None, None), (1, 1), false);
                if let (Some(v), Some(b)) = (data.result, data.operands.first()) {
                    self.frame[v] = self.param_of[*b].map_or(AbstractValue::Nothing, AbstractValue::From);
                }
            }
            Op::Store { rows, cols } => {
                if let Some(t) = data.operands.last().and_then(|v| body.ty(*v).tile()) {
                    let counts = (self.extent(t.rows), self.extent(t.cols));
                    self.touch(data, 1, (*rows, *cols), counts, true);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, flops: u64) {
        self.flops = self.flops.saturating_add(flops.saturating_mul(self.alike));
    }

    fn extent(&mut self, e: Extent) -> i64 {
        match e {
            Extent::Static(n) => n,
            Extent::Bounded { value, max } => match self.frame[value] {
                AbstractValue::Number(n) => {
                    let n = n.clamp(0, max);
                    self.note(n);
                    n
                }
                AbstractValue::From(_) | AbstractValue::Nothing => {
                    self.exact = false;
                    max
                }
            },
        }
    }

    fn elements(&mut self, t: &TileType) -> u64 {
        self.extent(t.rows).unsigned_abs().saturating_mul(self.extent(t.cols).unsigned_abs())
    }

    /// An access: a buffer, then its indices, then `after` further operands.
    fn touch(
        &mut self,
        data: &InstData,
        after: usize,
        (row_axis, col_axis): (Option<usize>, Option<usize>),
        (rows, cols): (i64, i64),
        write: bool,
    ) {
        let end = data.operands.len().saturating_sub(after);
        let Some((buffer, indices)) = data.operands.get(..end).and_then(<[Value]>::split_first) else { return };
        let start: Vec<AbstractValue> = indices.iter().map(|v| self.frame[*v]).collect();
        self.touch_at(*buffer, start, (row_axis, col_axis), (rows, cols), write);
    }

    /// A panel of integers with `steps` k indices per byte, and its scales.
    fn touch_scaled(&mut self, data: &InstData, steps: i64, (rows, cols): (i64, i64)) {
        let [buffer, indices @ .., scales] = data.operands.as_slice() else { return };
        let mut start: Vec<AbstractValue> = indices.iter().map(|v| self.frame[*v]).collect();
        let Some(axis) = start.len().checked_sub(2) else { return };
        let axes = (Some(axis), Some(axis + 1));
        let up = |n: i64, by: i64| n.saturating_add(by - 1).div_euclid(by);
        self.touch_at(*buffer, start.clone(), axes, (up(rows, steps), cols), false);
        let group = i64::from(GROUP);
        if let AbstractValue::Number(n) = &mut start[axis] {
            *n = n.saturating_mul(steps).div_euclid(group);
        }
        self.touch_at(*scales, start, axes, (up(rows, group), cols), false);
    }

    /// A panel of pairs of k indices.
    fn touch_pairs(&mut self, data: &InstData, (rows, cols): (i64, i64)) {
        let [buffer, indices @ ..] = data.operands.as_slice() else { return };
        let start: Vec<AbstractValue> = indices.iter().map(|v| self.frame[*v]).collect();
        let mut counts = vec![1; start.len()];
        if let Some(last) = counts.last_chunk_mut::<3>() {
            *last = [rows.saturating_add(1).div_euclid(2), cols, 2];
        }
        self.touch_box(*buffer, start, counts, false);
    }

    fn touch_at(
        &mut self,
        buffer: Value,
        start: Vec<AbstractValue>,
        (row_axis, col_axis): (Option<usize>, Option<usize>),
        (rows, cols): (i64, i64),
        write: bool,
    ) {
        let mut counts = vec![1; start.len()];
        for (axis, n) in [(row_axis, rows), (col_axis, cols)] {
            if let Some(c) = axis.and_then(|a| counts.get_mut(a)) {
                *c = n;
            }
        }
        if rows > 0 && cols > 0 {
            self.touch_box(buffer, start, counts, write);
        }
    }

    /// Marks a box of `counts` elements along the axes as accessed.
    fn touch_box(&mut self, buffer: Value, start: Vec<AbstractValue>, counts: Vec<i64>, write: bool) {
        let Some(param) = self.param_of[buffer] else { return };
        if counts.iter().any(|n| *n <= 0) {
            return;
        }
        self.exact &= start.iter().all(|x| x.number().is_some());
        let side = if write { &mut self.written } else { &mut self.read };
        if let Some(t) = side.get_mut(param) {
            t.add(&start, &counts, self.alike);
        }
    }
}
