//! Expressions: one instruction each, or a few where the graph IR has no operation of that name.

use super::Res;
use super::builder::Builder;
use super::frame::{Frame, Local};
use crate::ir::{Op, Scalar, Type, Value};
use crate::scalar::{AxisOp, CmpOp};
use crate::shape::{Dim, Elem, TensorType};
use crate::source::Span;
use crate::types::axes::{Axis, Shape};
use crate::types::typed::{self, Expr, ExprKind};

impl<'a> Builder<'a> {
    /// The value of an expression.
    pub(super) fn expr(&mut self, frame: &mut Frame<'a>, expr: &'a Expr) -> Res<Local> {
        let value = self.nested(expr.span, |this| this.kind(frame, expr))?;
        self.check_type(frame, &value, &expr.ty, expr.span)?;
        Ok(value)
    }

    /// The value of an expression that is one tensor.
    pub(super) fn value(&mut self, frame: &mut Frame<'a>, expr: &'a Expr) -> Res<Value> {
        match self.expr(frame, expr)? {
            Local::Tensor(value) => Ok(value),
            Local::Counter(counter) => {
                let elem = match &expr.ty {
                    typed::Type::Tensor(tensor) => tensor.elem,
                    typed::Type::Tuple(_) => Elem::I32,
                };
                self.counter_value(counter, elem, expr.span)
            }
            Local::Tuple(_) => Err(self.bug(expr.span, "a tuple is used as a tensor")),
        }
    }

    fn values(&mut self, frame: &mut Frame<'a>, exprs: &'a [Expr]) -> Res<Vec<Value>> {
        exprs.iter().map(|expr| self.value(frame, expr)).collect()
    }

    /// The type of an expression that is one tensor, with values for the dimensions.
    pub(super) fn type_of(&mut self, frame: &Frame<'a>, expr: &Expr) -> Res<TensorType> {
        match &expr.ty {
            typed::Type::Tensor(tensor) => self.tensor_type(tensor, &frame.dims, &frame.rest, expr.span),
            typed::Type::Tuple(_) => Err(self.bug(expr.span, "a tuple is used as a tensor")),
        }
    }

    fn kind(&mut self, frame: &mut Frame<'a>, expr: &'a Expr) -> Res<Local> {
        let span = expr.span;
        let value = match &expr.kind {
            ExprKind::Local(local) => {
                let Some(value) = frame.local(*local).cloned() else {
                    return Err(self.bug(span, "a variable is used before it has a value"));
                };
                return Ok(value);
            }
            ExprKind::Tuple(parts) => {
                let mut values = Vec::with_capacity(parts.len());
                for part in parts {
                    values.push(self.expr(frame, part)?);
                }
                return Ok(Local::Tuple(values));
            }
            ExprKind::Call(call) => return self.call(frame, call, span),
            ExprKind::If { condition, then, otherwise, carried } => {
                return self.branch(frame, condition, [then, otherwise], carried, span);
            }
            ExprKind::Block(block) => return self.block(frame, block),
            ExprKind::Split { x, axis, parts } => {
                let axis = self.axis(frame, x, *axis)?;
                let x = self.value(frame, x)?;
                return self.split(x, axis, *parts, span);
            }
            ExprKind::Unbind { x, axis } => {
                let axis = self.axis(frame, x, *axis)?;
                let x = self.value(frame, x)?;
                let parts = match &expr.ty {
                    typed::Type::Tuple(parts) => parts.len(),
                    typed::Type::Tensor(_) => return Err(self.bug(span, "unbind gives a tensor")),
                };
                return self.unbind(x, axis, parts, span);
            }
            ExprKind::Train(at) => self.train(frame, *at, span)?,
            ExprKind::Grad { loss, of, name } => {
                let loss = self.value(frame, loss)?;
                return self.gradient(frame, loss, of, name, span);
            }
            ExprKind::Ordered { order, x, axis, descending, first } => {
                let axis = self.axis(frame, x, *axis)?;
                let x = self.value(frame, x)?;
                let first = self.dim(&frame.dims, first, span)?;
                return self.ordered(x, *order, axis, *descending, first, span);
            }
            ExprKind::Const(scalar) => {
                let ty = self.type_of(frame, expr)?;
                self.splat(*scalar, ty, span)?
            }
            ExprKind::Dim(dim) => {
                let elem = self.type_of(frame, expr)?.elem;
                let dim = self.dim(&frame.dims, dim, span)?;
                self.dim_scalar(&dim, elem, span)?
            }
            ExprKind::Generic(name) => {
                let elem = self.type_of(frame, expr)?.elem;
                match frame.constants.get(name) {
                    Some(scalar) => self.scalar(*scalar, elem, span)?,
                    None => return Err(self.bug(span, &format!("the constant `{name}` has no value"))),
                }
            }
            ExprKind::Param { path, field } => {
                let place = self.walk(frame, path, span)?;
                self.parameter(&place, *field, span)?
            }
            ExprKind::Unary(op, x) => {
                let x = self.value(frame, x)?;
                self.emit(Op::Unary(*op), vec![x], None, span)?
            }
            ExprKind::Binary(op, a, b) => {
                let operands = vec![self.value(frame, a)?, self.value(frame, b)?];
                self.emit(Op::Binary(*op), operands, None, span)?
            }
            ExprKind::Compare(op, a, b) => {
                let operands = vec![self.value(frame, a)?, self.value(frame, b)?];
                self.emit(Op::Compare(*op), operands, None, span)?
            }
            ExprKind::Where(condition, a, b) => {
                let operands = vec![self.value(frame, condition)?, self.value(frame, a)?, self.value(frame, b)?];
                self.emit(Op::Where, operands, None, span)?
            }
            // Cast a dimension directly to the requested type: it may not fit an `i32`.
            ExprKind::Cast(x)
                if let ExprKind::Dim(dim) = &x.kind
                    && let Some(n) = self.dim(&frame.dims, dim, span)?.as_const()
                    && i32::try_from(n).is_err() =>
            {
                let elem = self.type_of(frame, expr)?.elem;
                self.scalar(Scalar::Int(n), elem, span)?
            }
            ExprKind::Cast(x) => {
                let elem = self.type_of(frame, expr)?.elem;
                let x = self.value(frame, x)?;
                self.cast(x, elem, span)?
            }
            ExprKind::Matmul(a, b) => {
                let (a, b) = (self.value(frame, a)?, self.value(frame, b)?);
                self.matmul(a, b, span)?
            }
            ExprKind::Transpose(x) => {
                let x = self.value(frame, x)?;
                let rank = self.tensor(x, span)?.rank();
                if rank < 2 {
                    return Err(self.bug(span, "a tensor with less than two axes is transposed"));
                }
                let mut perm: Vec<usize> = (0..rank).collect();
                perm.swap(rank - 1, rank - 2);
                self.transpose(x, perm, span)?
            }
            ExprKind::Einsum(pattern, operands) => {
                let elem = self.type_of(frame, expr)?.elem;
                let operands = self.values(frame, operands)?;
                self.einsum(pattern, operands, elem, span)?
            }
            ExprKind::Rearrange { x, pattern, sizes } => {
                let x = self.value(frame, x)?;
                let mut lengths = std::collections::BTreeMap::new();
                for (name, dim) in sizes {
                    let dim = self.dim(&frame.dims, dim, span)?;
                    lengths.insert(name.as_str(), dim);
                }
                self.rearrange(x, pattern, &lengths, span)?
            }
            ExprKind::Concat(parts, axis) => {
                let axis = match parts.first() {
                    Some(first) => self.axis(frame, first, *axis)?,
                    None => return Err(self.bug(span, "nothing is concatenated")),
                };
                let operands = self.values(frame, parts)?;
                self.emit(Op::Concat { axis }, operands, None, span)?
            }
            ExprKind::Pad { x, axis, low, high, value } => {
                let axis = self.axis(frame, x, *axis)?;
                let operands = vec![self.value(frame, x)?, self.value(frame, value)?];
                let (low, high) = (self.dim(&frame.dims, low, span)?, self.dim(&frame.dims, high, span)?);
                self.within(&Dim::zero(), &low, span)?;
                self.within(&Dim::zero(), &high, span)?;
                self.emit(Op::Pad { axis, low, high }, operands, None, span)?
            }
            ExprKind::Update { base, entries, value } => self.update(frame, base, entries, value, span)?,
            ExprKind::Index { base, entries } => self.subscript(frame, base, entries, span)?,
            ExprKind::Iota(_) => {
                let ty = self.type_of(frame, expr)?;
                self.emit(Op::Iota { axis: 0 }, Vec::new(), Some(Type::Tensor(ty)), span)?
            }
            ExprKind::Full(x) => {
                let ty = self.type_of(frame, expr)?;
                match &x.kind {
                    ExprKind::Const(scalar) => self.splat(*scalar, ty, span)?,
                    _ => {
                        let x = self.value(frame, x)?;
                        self.broadcast(x, ty.shape, span)?
                    }
                }
            }
            ExprKind::Stop(x) => {
                let x = self.value(frame, x)?;
                self.emit(Op::Stop, vec![x], None, span)?
            }
            ExprKind::Counters(_) => {
                let ty = self.type_of(frame, expr)?;
                self.numbered(ty, span)?
            }
            ExprKind::OneHot(x, _) => {
                let ty = self.type_of(frame, expr)?;
                let x = self.value(frame, x)?;
                self.one_hot(x, ty, span)?
            }
            ExprKind::Causal(..) => {
                let ty = self.type_of(frame, expr)?;
                self.emit(Op::Causal, Vec::new(), Some(Type::Tensor(ty)), span)?
            }
            ExprKind::Reduce { kind, x, axes, keep } => {
                let wanted = self.type_of(frame, expr)?.elem;
                let axes = self.axes(frame, x, axes)?;
                let x = self.value(frame, x)?;
                let x = match kind {
                    crate::scalar::ReduceKind::ArgMax => x,
                    _ => self.cast(x, wanted, span)?,
                };
                if axes.is_empty() {
                    x
                } else {
                    self.emit(Op::Reduce { kind: *kind, axes, keep: *keep }, vec![x], None, span)?
                }
            }
            ExprKind::Along(op, x, axis) => {
                let axis = self.axis(frame, x, *axis)?;
                let x = self.value(frame, x)?;
                let op = match op {
                    AxisOp::Softmax => Op::Softmax { axis },
                    AxisOp::LogSoftmax => Op::LogSoftmax { axis },
                    AxisOp::Cumsum => Op::Cumsum { axis },
                };
                self.emit(op, vec![x], None, span)?
            }
            ExprKind::TakeAlong { x, at, axis } => {
                let axis = self.axis(frame, x, *axis)?;
                let (x, at) = (self.value(frame, x)?, self.value(frame, at)?);
                self.take_along(x, at, axis, span)?
            }
            ExprKind::Windows { x, axis, stride } => {
                let (ty, axis) = (self.type_of(frame, expr)?, self.axis(frame, x, *axis)?);
                let stride = self.stride(frame, stride, span)?;
                let x = self.value(frame, x)?;
                self.windows(x, axis, stride, ty.shape, span)?
            }
            ExprKind::Every { x, axis, step } => {
                let (ty, axis) = (self.type_of(frame, expr)?, self.axis(frame, x, *axis)?);
                let step = self.stride(frame, step, span)?;
                let x = self.value(frame, x)?;
                let mut shape = ty.shape.clone();
                shape.insert(axis + 1, Dim::one());
                let ones = self.windows(x, axis, step, shape, span)?;
                self.reshape(ones, ty.shape, span)?
            }
            ExprKind::Scatter { x, at, value, axis, add } => {
                let axis = self.axis(frame, x, *axis)?;
                let (x, at, value) = (self.value(frame, x)?, self.value(frame, at)?, self.value(frame, value)?);
                self.scatter([x, at, value], axis, *add, span)?
            }
        };
        Ok(Local::Tensor(value))
    }

    fn shape<'e>(&mut self, x: &'e Expr) -> Res<&'e Shape> {
        match &x.ty {
            typed::Type::Tensor(tensor) => Ok(&tensor.shape),
            typed::Type::Tuple(_) => Err(self.bug(x.span, "a tuple is used as a tensor")),
        }
    }

    /// Maps an axis of the expression's shape to an axis of the tensor, with `..` expanded.
    fn axis(&mut self, frame: &Frame<'a>, x: &Expr, at: usize) -> Res<usize> {
        Ok(self.shape(x)?.expanded_axis(at, frame.rest.len()))
    }

    /// The same for several axes, ascending; `..` yields all of its axes.
    fn axes(&mut self, frame: &Frame<'a>, x: &Expr, axes: &[usize]) -> Res<Vec<usize>> {
        let shape = self.shape(x)?;
        let mut out = Vec::new();
        for at in axes {
            let first = shape.expanded_axis(*at, frame.rest.len());
            match shape.axes.get(*at) {
                Some(Axis::Rest) => out.extend(first..first + frame.rest.len()),
                Some(Axis::Dim(_)) | None => out.push(first),
            }
        }
        out.sort_unstable();
        out.dedup();
        Ok(out)
    }

    /// `a @ b`; a left operand of one axis is a row, a right one a column.
    pub(super) fn matmul(&mut self, a: Value, b: Value, span: Span) -> Res<Value> {
        let (left, right) = (self.tensor(a, span)?, self.tensor(b, span)?);
        let (row, column) = (left.rank() == 1, right.rank() == 1);
        let one = |shape: &[Dim], at: usize| {
            let mut shape = shape.to_vec();
            shape.insert(at.min(shape.len()), Dim::one());
            shape
        };
        let a = if row { self.reshape(a, one(&left.shape, 0), span)? } else { a };
        let b = if column { self.reshape(b, one(&right.shape, 1), span)? } else { b };
        let product = self.emit(Op::Matmul, vec![a, b], None, span)?;
        if !row && !column {
            return Ok(product);
        }
        let mut shape = self.tensor(product, span)?.shape;
        if column {
            shape.pop();
        }
        if row {
            let at = shape.len().saturating_sub(usize::from(!column) + 1);
            shape.remove(at);
        }
        self.reshape(product, shape, span)
    }

    /// 1 where the index along the new last axis equals the operand's element, else 0.
    fn one_hot(&mut self, x: Value, ty: TensorType, span: Span) -> Res<Value> {
        let given = self.tensor(x, span)?;
        let classes = TensorType::new(given.elem, ty.shape.last().cloned().into_iter().collect::<Vec<_>>());
        let mut shape = given.shape;
        shape.push(Dim::one());
        let x = self.reshape(x, shape, span)?;
        let classes = self.emit(Op::Iota { axis: 0 }, Vec::new(), Some(Type::Tensor(classes)), span)?;
        let same = self.emit(Op::Compare(CmpOp::Eq), vec![x, classes], None, span)?;
        self.cast(same, ty.elem, span)
    }
}
