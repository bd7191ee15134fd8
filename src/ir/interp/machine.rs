//! The interpreter loop: executes the instructions of a function, block by block.
//!
//! In: a function, its arguments, the values of its symbols. Out: its results, and taps along the
//! way. Work and sizes are counted before anything is allocated.

#![warn(clippy::wildcard_enum_match_arm, reason = "a new operation is met by an error here")]

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use cranelift_entity::SecondaryMap;

use super::array::{Array, Data, count};
use super::contraction;
use super::entry::{Symbols, check, extent, value};
use super::gradients::{Gradients, floats, gradient};
use super::{Call, EvalError, Limits, Params, Real, elementwise, gradients};
use crate::ir::requirements::length_checks;
use crate::ir::{Function, Inst, InstData, Loc, Module, Op, Terminator, Type, Value, param_named, taps};
use crate::shape::{Dim, Elem, Fact, TensorType};

/// The run-time value of an SSA value.
#[derive(Clone, Debug)]
enum RuntimeValue<F> {
    Index(i64),
    Array(Rc<Array<F>>),
}

type RuntimeValues<F> = SecondaryMap<Value, Option<RuntimeValue<F>>>;

pub(super) struct Interpreter<'a, F> {
    module: &'a Module,
    params: &'a dyn Params,
    limits: Limits,
    symbols: Symbols,
    /// The checks to be made after each `length`.
    checks: BTreeMap<Inst, Vec<(Fact, Loc)>>,
    pub taps: BTreeMap<String, Array<F>>,
    /// For each tap, the iterations of loops over time that wrote it.
    pub written: BTreeMap<String, BTreeSet<usize>>,
    /// The taps that were written after the first uncertain comparison.
    pub doubtful: BTreeSet<String>,
    pub certain: bool,
    pub work: u64,
    gradients: Gradients<F>,
    /// The states of the session; a missing state is zero.
    pub states: BTreeMap<String, Array<F>>,
}

impl<'a, F: Real> Interpreter<'a, F> {
    pub(super) fn new(module: &'a Module, call: &Call<'a>, symbols: Symbols) -> Interpreter<'a, F> {
        let (params, limits) = (call.params, call.limits);
        Interpreter {
            module,
            params,
            limits,
            symbols,
            checks: BTreeMap::new(),
            taps: BTreeMap::new(),
            written: BTreeMap::new(),
            doubtful: BTreeSet::new(),
            certain: true,
            work: 0,
            gradients: Gradients::default(),
            states: BTreeMap::new(),
        }
    }

    pub(super) fn function(&mut self, f: &Function, args: Vec<Array<F>>) -> Result<Vec<Array<F>>, EvalError> {
        let args = args.into_iter().map(|a| RuntimeValue::Array(Rc::new(a))).collect();
        self.checks = length_checks(f);
        self.gradients = Gradients::wanted(f);
        let results = self.blocks(f, args)?;
        results
            .into_iter()
            .map(|r| match r {
                RuntimeValue::Array(a) => Ok(Rc::unwrap_or_clone(a)),
                RuntimeValue::Index(_) => Err(EvalError::internal("a result is an index")),
            })
            .collect()
    }

    fn blocks(&mut self, f: &Function, args: Vec<RuntimeValue<F>>) -> Result<Vec<RuntimeValue<F>>, EvalError> {
        let mut items: RuntimeValues<F> = SecondaryMap::new();
        let mut block = f.entry();
        let mut given = args;
        loop {
            self.spend(1)?;
            let data = f.block(block);
            for (v, item) in data.args.iter().zip(given) {
                items[*v] = Some(self.marked(f, *v, item));
            }
            for i in &data.insts {
                let inst = f.inst(*i);
                if let Op::Length { name, most } = &inst.op {
                    self.length(name, most, inst, &items).map_err(|e| e.at(inst.loc))?;
                    for (fact, loc) in self.checks.get(i).into_iter().flatten() {
                        check(fact, &self.symbols).map_err(|e| e.at(*loc))?;
                    }
                    continue;
                }
                let result = self.inst(f, inst, &items).map_err(|e| e.at(inst.loc))?;
                if let (Some(v), Some(item)) = (inst.result, result) {
                    items[v] = Some(self.marked(f, v, item));
                }
            }
            let call = match &data.terminator {
                Terminator::Return(vs) => return vs.iter().map(|v| get(&items, *v).cloned()).collect(),
                Terminator::Roles(never) => match *never {},
                Terminator::Br(c) => c,
                Terminator::BrIf { condition, then, otherwise } => match get(&items, *condition)? {
                    RuntimeValue::Array(a) if matches!(&a.data, Data::Bool(v) if v.first() == Some(&true)) => then,
                    RuntimeValue::Array(_) => otherwise,
                    RuntimeValue::Index(_) => return Err(EvalError::internal("a condition is an index")),
                },
            };
            given = call
                .args
                .iter()
                .map(|v| get(&items, *v).cloned())
                .collect::<Result<Vec<RuntimeValue<F>>, EvalError>>()?;
            block = call.block;
        }
    }

    /// Sets a dimension to a value.
    fn length(&mut self, name: &str, most: &Dim, inst: &InstData, items: &RuntimeValues<F>) -> Result<(), EvalError> {
        let (n, limit) = (number(items, operand(inst, 0)?)?, value(most, &self.symbols)?);
        if !(0..=limit).contains(&n) {
            return Err(EvalError::new(format!("{name} must be from 0 to {most}, which is {limit}, and is {n}")));
        }
        self.symbols.insert(name.into(), n);
        Ok(())
    }

    fn spend(&mut self, work: u64) -> Result<(), EvalError> {
        self.work = self.work.saturating_add(work);
        if self.work > self.limits.work {
            return Err(EvalError::new("the program does more than the limit allows"));
        }
        Ok(())
    }

    /// The extents of a type, checked against the limits.
    fn shape(&mut self, t: &TensorType) -> Result<Vec<usize>, EvalError> {
        let shape = t.shape.iter().map(|d| extent(d, &self.symbols)).collect::<Result<Vec<usize>, EvalError>>()?;
        // An extent of 0 does not excuse the others: intermediate products must fit too.
        let elements = shape.iter().map(|n| (*n).max(1) as u64).try_fold(1u64, u64::checked_mul);
        match elements {
            Some(n) if n <= self.limits.elements => self.spend(n)?,
            _ => {
                let most = self.limits.elements;
                return Err(EvalError::new(format!(
                    "a tensor of shape {shape:?} is larger than the interpreter allows: {most} elements"
                )));
            }
        }
        Ok(shape)
    }

    fn inst(
        &mut self,
        f: &Function,
        inst: &InstData,
        items: &RuntimeValues<F>,
    ) -> Result<Option<RuntimeValue<F>>, EvalError> {
        self.spend(1)?;
        let index = |i: usize| match get(items, operand(inst, i)?)? {
            RuntimeValue::Index(n) => Ok(*n),
            RuntimeValue::Array(_) => Err(EvalError::internal("an index is a tensor")),
        };
        if let Op::Tap { name, extents } = &inst.op {
            let indices = (1..inst.operands.len()).map(index).collect::<Result<Vec<i64>, EvalError>>()?;
            let x = array(items, operand(inst, 0)?)?;
            self.tap(name, extents, &indices, x)?;
            return Ok(None);
        }
        if let Op::SetState { name } = &inst.op {
            let x = array(items, operand(inst, 0)?)?.clone();
            self.states.insert(name.clone(), x);
            return Ok(None);
        }
        let ty = inst.result.map(|v| f.ty(v));
        let Some(Type::Tensor(ty)) = ty else {
            let n = if let Op::Const(s) = &inst.op {
                s.as_i64()
            } else if let Op::DimValue(d) = &inst.op {
                value(d, &self.symbols)?
            } else if let Op::Binary(op) = &inst.op {
                op.eval_int(index(0)?, index(1)?)
            } else {
                return Err(EvalError::internal(format!("`{}` results in an index", inst.op)));
            };
            return Ok(Some(RuntimeValue::Index(n)));
        };
        let shape = self.shape(ty)?;
        let x = |i: usize| array(items, operand(inst, i)?);
        let out = match &inst.op {
            Op::Const(s) => Array::splat(ty.elem, shape, F::literal(s.as_f64(), ty.elem), s.as_i64()),
            Op::DimValue(d) => {
                let n = value(d, &self.symbols)?;
                Array::splat(ty.elem, shape, F::from_int(n, ty.elem), n)
            }
            Op::Iota { axis } => iota(ty.elem, shape, *axis),
            Op::Causal => match shape.as_slice() {
                [s, t] => contraction::causal(*s, *t),
                _ => return Err(EvalError::internal("causal is a matrix")),
            },
            Op::Param { name } => {
                let indices = (0..inst.operands.len()).map(index).collect::<Result<Vec<i64>, EvalError>>()?;
                return self.param(name, &indices, ty.elem, shape).map(|a| Some(RuntimeValue::Array(Rc::new(a))));
            }
            Op::Unary(op) => elementwise::unary(*op, x(0)?)?,
            Op::Binary(op) => elementwise::binary(*op, x(0)?, x(1)?, &shape)?,
            Op::Compare(op) if get(items, operand(inst, 0)?).is_ok_and(|i| matches!(i, RuntimeValue::Index(_))) => {
                Array::splat(Elem::Bool, shape, F::literal(0.0, Elem::F32), i64::from(op.eval(index(0)?, index(1)?)))
            }
            Op::Compare(op) => elementwise::compare(*op, x(0)?, x(1)?, &shape, &mut self.certain)?,
            Op::Where => elementwise::select(x(0)?, x(1)?, x(2)?, &shape)?,
            Op::Cast { elem } => elementwise::cast(x(0)?, *elem, &mut self.certain),
            Op::Reshape => {
                let x = x(0)?;
                if count(&x.shape) != count(&shape) {
                    return Err(EvalError::new(format!("{:?} does not reshape to {shape:?}", x.shape)));
                }
                Array { shape, ..x.clone() }
            }
            Op::Transpose { perm } => x(0)?.transpose(perm),
            Op::Broadcast => x(0)?.broadcast(&shape),
            Op::Slice { axis, start, stop } => {
                let x = x(0)?;
                let (a, b) = (value(start, &self.symbols)?, value(stop, &self.symbols)?);
                let n = x.shape[*axis];
                match (usize::try_from(a), usize::try_from(b)) {
                    (Ok(from), Ok(to)) if from <= to && to <= n => x.slice(*axis, from, to - from),
                    _ => return Err(EvalError::new(format!("the slice {a}..{b} is outside of an axis of {n}"))),
                }
            }
            Op::Windows { axis, stride } => {
                let x = x(0)?;
                let (count, length, n) = (shape[*axis], shape[*axis + 1], x.shape[*axis]);
                let step = usize::try_from(stride.unsigned_abs()).unwrap_or(usize::MAX);
                let end = count.checked_sub(1).map_or(Some(0), |last| last.checked_mul(step)?.checked_add(length));
                if end.is_none_or(|end| end > n) {
                    return Err(EvalError::new(format!("{count} windows of {length} are outside of an axis of {n}")));
                }
                x.windows(*axis, step, *stride < 0, shape)
            }
            Op::Index { axis } => {
                let at = number(items, operand(inst, 1)?)?;
                let x = x(0)?;
                let at = in_range(at, x.shape[*axis])?;
                x.index(*axis, at)
            }
            Op::Concat { axis } => {
                let parts = (0..inst.operands.len()).map(x).collect::<Result<Vec<&Array<F>>, EvalError>>()?;
                Array::concat(&parts, *axis)
            }
            Op::Pad { axis, low, high } => {
                x(0)?.pad(x(1)?, *axis, extent(low, &self.symbols)?, extent(high, &self.symbols)?)
            }
            Op::Gather { axis, batch } => {
                let (table, at) = (x(0)?, x(1)?);
                let rows = places(ints(at)?, &table.shape, *axis)?;
                table.gather((*axis, *batch), &rows, &at.shape)
            }
            Op::Scatter { axis, add } => {
                let (target, at, value) = (x(0)?, x(1)?, x(2)?);
                self.spend(count(&value.shape) as u64)?;
                target.scattered(*axis, &places(ints(at)?, &target.shape, *axis)?, value, *add)
            }
            Op::Cumsum { axis } => {
                let x = x(0)?;
                self.spend(count(&x.shape) as u64)?;
                contraction::cumsum(x, *axis)?
            }
            Op::Argsort { axis, descending, first } => {
                let (x, first) = (x(0)?, extent(first, &self.symbols)?);
                self.spend(count(&x.shape) as u64)?;
                contraction::argsort(x, *axis, *descending, first, &mut self.certain)?
            }
            Op::Extract { axes } => {
                let x = x(0)?;
                let start = starts(inst, items, 1, axes, &x.shape, &shape)?;
                x.window(&start, &shape)
            }
            Op::Update { axes } => {
                let (x, value) = (x(0)?, x(1)?);
                let start = starts(inst, items, 2, axes, &x.shape, &value.shape)?;
                x.replaced(&start, value)
            }
            Op::Reduce { kind, axes, keep: _ } => {
                let x = x(0)?;
                self.spend(count(&x.shape) as u64)?;
                contraction::reduce(*kind, x, axes, shape, &mut self.certain)?
            }
            Op::Grad { of } => {
                let loss = floats(x(0)?)?.first().copied().ok_or_else(|| EvalError::internal("a loss is empty"))?;
                let data = match inst.operands.get(1) {
                    Some(_) => gradient(loss, floats(x(1)?)?)?,
                    None => self.param_gradient(loss, of, count(&shape))?,
                };
                Array { elem: ty.elem, shape, data: Data::Float(data) }
            }
            Op::Stop => gradients::constants(x(0)?),
            Op::Softmax { axis } => contraction::softmax(x(0)?, *axis, false, &mut self.certain)?,
            Op::LogSoftmax { axis } => contraction::softmax(x(0)?, *axis, true, &mut self.certain)?,
            Op::Matmul => {
                let (a, b) = (x(0)?, x(1)?);
                self.spend(product(&shape, a.shape.last()))?;
                contraction::matmul(a, b, shape, ty.elem)?
            }
            Op::Attention { masks } => {
                let (q, k, v, scale) = (x(0)?, x(1)?, x(2)?, x(3)?);
                let keys = k.shape.len().checked_sub(2).map_or(1, |i| k.shape[i]);
                let scores: Vec<usize> = shape.iter().copied().take(shape.len() - 1).chain([keys]).collect();
                if product(&scores, None) > self.limits.elements {
                    let most = self.limits.elements;
                    return Err(EvalError::new(format!(
                        "the scores of an attention are {scores:?}, larger than the interpreter allows: {most} elements"
                    )));
                }
                self.spend(product(&shape, Some(&keys)).saturating_add(product(&scores, q.shape.last())))?;
                let rest = (4..inst.operands.len()).map(x).collect::<Result<Vec<&Array<F>>, EvalError>>()?;
                contraction::attention([q, k, v, scale], &shape, masks, &rest, &mut self.certain)?
            }
            Op::Fused { kind: _, body } => {
                let args = inst
                    .operands
                    .iter()
                    .map(|v| get(items, *v).cloned())
                    .collect::<Result<Vec<RuntimeValue<F>>, EvalError>>()?;
                return Ok(self.blocks(body, args)?.pop());
            }
            Op::State { name } => match self.states.get(name) {
                Some(kept) => gradients::constants(kept),
                None => self.initial(name, ty.elem, shape)?,
            },
            Op::Tap { .. } | Op::SetState { .. } | Op::Length { .. } => return Ok(None),
        };
        Ok(Some(RuntimeValue::Array(Rc::new(out))))
    }

    fn param(&mut self, name: &str, indices: &[i64], elem: Elem, shape: Vec<usize>) -> Result<Array<F>, EvalError> {
        let counts = param_named(&self.module.params, name).map_or(&[][..], |p| &p.counts);
        for (i, n) in indices.iter().zip(counts) {
            in_range(*i, usize::try_from(*n).unwrap_or(usize::MAX))?;
        }
        let path = path(name, indices);
        let Some(t) = self.params.tensor(&path) else {
            return Err(EvalError::new(format!("the parameter \"{path}\" is missing")));
        };
        if t.elem() != elem || t.shape() != shape {
            let (e, s) = (t.elem(), t.shape());
            return Err(EvalError::new(format!("the parameter \"{path}\" is {e}{s:?}, expected {elem}{shape:?}")));
        }
        let read = Array::from_tensor(&t);
        Ok(if self.gradients.params.contains(name) { self.gradients.read(path, read) } else { read })
    }

    /// A state when the session begins: zeros, or the values of the parameter with its name.
    fn initial(&mut self, name: &str, elem: Elem, shape: Vec<usize>) -> Result<Array<F>, EvalError> {
        let Some(decl) = param_named(&self.module.params, name).cloned() else { return Ok(zeros(elem, shape)) };
        let own = shape.get(decl.counts.len()..).unwrap_or_default().to_vec();
        let size = own.iter().product();
        let mut data = Data::with_capacity(elem, size);
        for member in 0..decl.counts.iter().product() {
            let part = self.param(name, &indices_of(member, &decl.counts), elem, own.clone())?;
            data.extend(&part.data, 0, size);
        }
        Ok(Array { elem, shape, data })
    }

    /// A value, as variables if the function takes a gradient with respect to it.
    fn marked(&self, f: &Function, v: Value, item: RuntimeValue<F>) -> RuntimeValue<F> {
        match &item {
            RuntimeValue::Array(a) if self.gradients.are_wanted(f, v) => {
                RuntimeValue::Array(Rc::new(gradients::variables(a)))
            }
            RuntimeValue::Array(_) | RuntimeValue::Index(_) => item,
        }
    }

    /// The derivatives with respect to all tensors of a parameter, read or not.
    fn param_gradient(&mut self, loss: F, name: &str, n: usize) -> Result<Vec<F>, EvalError> {
        let counts = param_named(&self.module.params, name).map_or(&[][..], |p| &p.counts);
        let members = counts.iter().fold(1u64, |n, count| n.saturating_mul(*count));
        let mut out = Vec::with_capacity(n);
        for member in 0..members {
            self.spend(1)?;
            let path = path(name, &indices_of(member, counts));
            match self.gradients.reads.get(&path) {
                Some(read) => out.extend(gradient(loss, floats(read)?)?),
                None => out.resize(out.len() + n / usize::try_from(members).unwrap_or(1), F::literal(0.0, Elem::F32)),
            }
        }
        Ok(out)
    }

    /// The taps of a function that the run did not reach, as zeros.
    pub(super) fn silent_taps(&mut self, f: &Function) -> Result<BTreeMap<String, Array<F>>, EvalError> {
        let mut out = BTreeMap::new();
        for tap in taps(f) {
            let stars = tap.name.matches('*').count().min(tap.extents.len());
            let (arrays, stacked) = tap.extents.split_at(stars);
            let counts = arrays.iter().map(|d| extent(d, &self.symbols).map(|n| n as u64));
            let counts = counts.collect::<Result<Vec<u64>, EvalError>>()?;
            let dims: Vec<Dim> = stacked.iter().chain(&tap.ty.shape).cloned().collect();
            let total = counts.iter().copied().fold(1u64, u64::saturating_mul);
            for member in 0..total {
                self.spend(1)?;
                let path = path(&tap.name, &indices_of(member, &counts));
                if !self.taps.contains_key(&path) {
                    let shape = self.shape(&TensorType::new(tap.ty.elem, dims.clone()))?;
                    out.insert(path, zeros(tap.ty.elem, shape));
                }
            }
        }
        Ok(out)
    }

    /// Records a tapped value, stacked along the loops over time.
    fn tap(&mut self, name: &str, extents: &[Dim], indices: &[i64], x: &Array<F>) -> Result<(), EvalError> {
        let stars = name.matches('*').count();
        let path = path(name, indices);
        let mut lead = Vec::new();
        let mut position: usize = 0;
        for (k, (d, i)) in extents.iter().zip(indices).enumerate() {
            let n = extent(d, &self.symbols)?;
            let i = in_range(*i, n)?;
            if k >= stars {
                position = position.saturating_mul(n).saturating_add(i);
                lead.push(n);
            }
        }
        let dims = lead.iter().chain(&x.shape).map(|n| Dim::from(i64::try_from(*n).unwrap_or(i64::MAX)));
        let shape = self.shape(&TensorType::new(x.elem, dims.collect::<Vec<Dim>>()))?;
        let empty = || zeros(x.elem, shape.clone());
        self.written.entry(path.clone()).or_default().insert(position);
        if !self.certain {
            self.doubtful.insert(path.clone());
        }
        let slot = self.taps.entry(path).or_insert_with(empty);
        if slot.shape != shape {
            *slot = empty();
        }
        slot.data.write(position * count(&x.shape), &x.data);
        Ok(())
    }
}

/// The indices of an element of arrays, which are numbered in row-major order.
fn indices_of(member: u64, counts: &[u64]) -> Vec<i64> {
    let mut rest = member;
    let mut indices = vec![0; counts.len()];
    for (i, n) in indices.iter_mut().zip(counts).rev() {
        (*i, rest) = ((rest % n) as i64, rest / n);
    }
    indices
}

/// The initial value of a tap.
fn zeros<F: Real>(elem: Elem, shape: Vec<usize>) -> Array<F> {
    Array::splat(elem, shape, F::literal(0.0, elem), 0)
}

/// A path with its indices substituted.
fn path(name: &str, indices: &[i64]) -> String {
    let mut out = String::new();
    let mut indices = indices.iter();
    for (i, part) in name.split('*').enumerate() {
        if i > 0 {
            out += &indices.next().map_or("*".to_string(), i64::to_string);
        }
        out += part;
    }
    out
}

fn product(shape: &[usize], more: Option<&usize>) -> u64 {
    shape.iter().chain(more).fold(1, |n: u64, d| n.saturating_mul(*d as u64))
}

fn iota<F: Real>(elem: Elem, shape: Vec<usize>, axis: usize) -> Array<F> {
    let (_, n, inner) = super::array::around(&shape, axis);
    let numbers = (0..count(&shape)).map(|i| ((i / inner.max(1)) % n.max(1)) as i64);
    let data = if elem.is_float() {
        Data::Float(numbers.map(|n| F::from_int(n, elem)).collect())
    } else {
        Data::Int(numbers.map(|n| super::array::wrap(n, elem)).collect())
    };
    Array { elem, shape, data }
}

fn operand(inst: &InstData, i: usize) -> Result<Value, EvalError> {
    inst.operands.get(i).copied().ok_or_else(|| EvalError::internal("an operand is missing"))
}

fn get<F: Real>(items: &RuntimeValues<F>, v: Value) -> Result<&RuntimeValue<F>, EvalError> {
    items[v].as_ref().ok_or_else(|| EvalError::internal("a value is used before it is defined"))
}

fn array<F: Real>(items: &RuntimeValues<F>, v: Value) -> Result<&Array<F>, EvalError> {
    match get(items, v)? {
        RuntimeValue::Array(a) => Ok(a),
        RuntimeValue::Index(_) => Err(EvalError::internal("a tensor is an index")),
    }
}

/// An index, or the element of an integer scalar.
fn number<F: Real>(items: &RuntimeValues<F>, v: Value) -> Result<i64, EvalError> {
    match get(items, v)? {
        RuntimeValue::Index(n) => Ok(*n),
        RuntimeValue::Array(a) => Ok(ints(a)?.first().copied().unwrap_or(-1)),
    }
}

/// The start of a window along each axis; operands from `first` on give it for some axes.
fn starts<F: Real>(
    inst: &InstData,
    items: &RuntimeValues<F>,
    first: usize,
    axes: &[usize],
    shape: &[usize],
    window: &[usize],
) -> Result<Vec<usize>, EvalError> {
    let mut out = vec![0; shape.len()];
    for (k, axis) in axes.iter().enumerate() {
        let at = number(items, operand(inst, first + k)?)?;
        let (length, extent) = (window[*axis], shape[*axis]);
        out[*axis] = match usize::try_from(at) {
            Ok(at) if at.checked_add(length).is_some_and(|end| end <= extent) => at,
            _ if length == 1 => {
                return Err(EvalError::new(format!("the index {at} is out of range for an axis of {extent}")));
            }
            _ => {
                let message = format!("{length} elements from index {at} are out of range for an axis of {extent}");
                return Err(EvalError::new(message));
            }
        };
    }
    Ok(out)
}

fn ints<F>(a: &Array<F>) -> Result<&[i64], EvalError> {
    match &a.data {
        Data::Int(v) => Ok(v),
        Data::Float(_) | Data::Bool(_) => Err(EvalError::internal("an index is not an integer")),
    }
}

/// Converts integers to indices along an axis. If a slice has no elements, nothing is read or
/// written, wherever they point.
fn places(at: &[i64], shape: &[usize], axis: usize) -> Result<Vec<usize>, EvalError> {
    let is_empty = shape.iter().enumerate().any(|(i, d)| i != axis && *d == 0);
    at.iter().map(|i| if is_empty { Ok(0) } else { in_range(*i, shape[axis]) }).collect()
}

fn in_range(i: i64, n: usize) -> Result<usize, EvalError> {
    match usize::try_from(i) {
        Ok(i) if i < n => Ok(i),
        _ => Err(EvalError::new(format!("the index {i} is out of range for an axis of {n}"))),
    }
}
