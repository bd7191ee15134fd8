//! Data movement: `rearrange`, `x[..]`, `split`, `unbind`.

use std::collections::BTreeMap;

use super::Res;
use super::builder::Builder;
use super::frame::{Frame, Local};
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::{entries, shapes};
use crate::ir::{Op, Scalar, Value};
use crate::shape::Dim;
use crate::source::Span;
use crate::types::pattern::{Atom, Item, Rearrange, Side};
use crate::types::typed::{Entry, Expr, ExprKind, Order};

impl<'a> Builder<'a> {
    /// Splits axes into their named parts, permutes, and merges again; omits each step that would
    /// change nothing.
    pub(super) fn rearrange(
        &mut self,
        x: Value,
        pattern: &Rearrange,
        lengths: &BTreeMap<&str, Dim>,
        span: Span,
    ) -> Res<Value> {
        let ty = self.tensor(x, span)?;
        let named = pattern.left.iter().filter(|item| **item != Item::Rest).count();
        // The axes of `..`, which stay together.
        let rest_at = pattern.left.iter().position(|item| *item == Item::Rest).unwrap_or(0);
        let rest_len = if pattern.left.contains(&Item::Rest) { ty.rank().saturating_sub(named) } else { 0 };
        let rest: Vec<Dim> = ty.shape.iter().skip(rest_at).take(rest_len).cloned().collect();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (side, parts) in [(&pattern.left, &mut before), (&pattern.right, &mut after)] {
            parts.extend(parts_of(side, rest_len));
        }
        let mut length = |part: &AxisPart| match part {
            AxisPart::Rest(i) => rest.get(*i).cloned(),
            AxisPart::Name(name) => lengths.get(name).cloned(),
        };
        let lengths_before: Option<Vec<Dim>> = before.iter().map(&mut length).collect();
        let perm: Option<Vec<usize>> = after.iter().map(|part| before.iter().position(|p| p == part)).collect();
        let (Some(split), Some(perm)) = (lengths_before, perm) else {
            return Err(self.bug(span, "a pattern part has no length"));
        };
        let mut shape = Vec::new();
        for item in &pattern.right {
            match item {
                Item::Rest => shape.extend(rest.iter().cloned()),
                Item::Axis(atoms) => {
                    shape.push(atoms.iter().fold(Dim::one(), |n, atom| match atom {
                        Atom::Name(name) => n.mul(lengths.get(name.as_str()).unwrap_or(&Dim::one())),
                        Atom::One => n,
                    }));
                }
            }
        }
        // If the order does not change, one reshape is enough.
        if perm.iter().enumerate().all(|(i, p)| i == *p) {
            return self.reshape(x, shape, span);
        }
        let x = self.reshape(x, split, span)?;
        let x = self.transpose(x, perm, span)?;
        self.reshape(x, shape, span)
    }

    /// Equal parts along an axis.
    pub(super) fn split(&mut self, x: Value, axis: usize, parts: usize, span: Span) -> Res<Local> {
        let ty = self.tensor(x, span)?;
        let count = Dim::from(i64::try_from(parts).unwrap_or(i64::MAX));
        let Some(length) = ty.shape.get(axis).and_then(|d| d.div(&count)) else {
            return Err(self.bug(span, "an axis is split that is not there, or into no parts"));
        };
        if length.is_const() && length.as_const().is_none() {
            let message = format!("the axis of {ty} cannot be split into {parts} equal parts");
            return Err(self.report(Diagnostic::error(entries::BOUND_VALUE, message).at(span, "")));
        }
        let mut out = Vec::with_capacity(parts);
        let mut start = Dim::zero();
        for _ in 0..parts {
            let stop = start.add(&length);
            out.push(Local::Tensor(self.slice(x, axis, start, stop.clone(), span)?));
            start = stop;
        }
        Ok(Local::Tuple(out))
    }

    /// One slice per index of an axis; the axis is removed.
    pub(super) fn unbind(&mut self, x: Value, axis: usize, parts: usize, span: Span) -> Res<Local> {
        let mut out = Vec::with_capacity(parts);
        for i in 0..parts {
            let at = Dim::from(i64::try_from(i).unwrap_or(i64::MAX));
            out.push(Local::Tensor(self.element(x, axis, &at, span)?));
        }
        Ok(Local::Tuple(out))
    }

    /// `x[..]`. The last axis is indexed first, so that the numbers of the axes before it stay
    /// valid.
    pub(super) fn subscript(
        &mut self,
        frame: &mut Frame<'a>,
        base: &'a Expr,
        entries: &'a [Entry],
        span: Span,
    ) -> Res<Value> {
        let mut x = self.value(frame, base)?;
        // Evaluation order is source order.
        let mut indices = Vec::with_capacity(entries.len());
        for entry in entries {
            indices.push(self.index_of(frame, entry)?);
        }
        for (i, index) in indices.into_iter().enumerate().rev() {
            let axis = self.entry_axis(frame, base, i)?;
            x = self.apply(x, axis, index, span)?;
        }
        Ok(x)
    }

    /// Functional update: the elements selected by the entries are replaced by a value.
    pub(super) fn update(
        &mut self,
        frame: &mut Frame<'a>,
        base: &'a Expr,
        entries: &'a [Entry],
        value: &'a Expr,
        span: Span,
    ) -> Res<Value> {
        let (given, indices) = self.assigned(frame, entries, value)?;
        let x = self.value(frame, base)?;
        self.update_at(frame, (x, Vec::new()), (base, indices, given), span)
    }

    /// The same for a state; in an array of layers, within the slice of the layer.
    pub(super) fn update_state(
        &mut self,
        frame: &mut Frame<'a>,
        field: usize,
        (base, entries, value): (&'a Expr, &'a [Entry], &'a Expr),
        span: Span,
    ) -> Res<Value> {
        let (given, entries) = self.assigned(frame, entries, value)?;
        let (at, indices) = self.state_of(frame, field, span)?;
        let whole = self.states[at].value;
        self.update_at(frame, (whole, indices), (base, entries, given), span)
    }

    /// Evaluates the assigned value and the indices, before the target is read: they may assign the
    /// target themselves.
    fn assigned(&mut self, frame: &mut Frame<'a>, entries: &'a [Entry], value: &'a Expr) -> Res<(Value, Vec<Index>)> {
        let value = self.value(frame, value)?;
        let mut indices = Vec::with_capacity(entries.len());
        for entry in entries {
            indices.push(self.index_of(frame, entry)?);
        }
        Ok((value, indices))
    }

    /// Updates a tensor whose first axes are already indexed by `outer`.
    fn update_at(
        &mut self,
        frame: &mut Frame<'a>,
        (x, outer): (Value, Vec<Value>),
        (base, entries, value): (&'a Expr, Vec<Index>, Value),
        span: Span,
    ) -> Res<Value> {
        let ty = self.tensor(x, span)?;
        // Start of the updated part, its extents, and which of its axes the value has.
        let mut starts: Vec<Option<Value>> = vec![None; ty.rank()];
        let mut window = ty.shape.clone();
        let mut kept = vec![true; ty.rank()];
        for (axis, index) in outer.iter().enumerate() {
            (starts[axis], window[axis], kept[axis]) = (Some(*index), Dim::one(), false);
        }
        for (i, index) in entries.into_iter().enumerate() {
            let axis = outer.len() + self.entry_axis(frame, base, i)?;
            let Some(extent) = ty.shape.get(axis).cloned() else {
                return Err(self.bug(span, "an assignment to an axis that does not exist"));
            };
            let (start, length, keep) = match index {
                Index::All => continue,
                Index::Range(start, stop) => {
                    self.within(&Dim::zero(), &start, span)?;
                    self.within(&start, &stop, span)?;
                    self.within(&stop, &extent, span)?;
                    if start == Dim::zero() && stop == extent {
                        continue;
                    }
                    (self.index(&start, span)?, stop.sub(&start), true)
                }
                Index::Known(at) => {
                    let at = if at.as_const().is_some_and(|n| n < 0) { at.add(&extent) } else { at };
                    self.within(&Dim::zero(), &at, span)?;
                    self.within(&at.add(&Dim::one()), &extent, span)?;
                    (self.index(&at, span)?, Dim::one(), false)
                }
                Index::Window(start, length) => {
                    self.window_fits(&length, &extent, span)?;
                    (start, length, true)
                }
                Index::At(at) => (at, Dim::one(), false),
                Index::Gather(_) => return Err(self.bug(span, "an assignment at a tensor of indices")),
            };
            (starts[axis], window[axis], kept[axis]) = (Some(start), length, keep);
        }
        let given: Vec<Dim> = window.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(d, _)| d.clone()).collect();
        let value = self.broadcast(value, given, span)?;
        let value = self.reshape(value, window, span)?;
        let axes: Vec<usize> = (0..starts.len()).filter(|axis| starts[*axis].is_some()).collect();
        if axes.is_empty() {
            return Ok(value);
        }
        let operands = [x, value].into_iter().chain(starts.into_iter().flatten()).collect();
        self.emit(Op::Update { axes }, operands, None, span)
    }

    /// `sort` or `argsort` and top-k: the first elements along an axis in order, or their indices.
    pub(super) fn ordered(
        &mut self,
        x: Value,
        order: Order,
        axis: usize,
        descending: bool,
        first: Dim,
        span: Span,
    ) -> Res<Local> {
        let extent = self.tensor(x, span)?.shape.get(axis).cloned().unwrap_or_default();
        self.within(&first, &extent, span)?;
        let places = self.emit(Op::Argsort { axis, descending, first }, vec![x], None, span)?;
        if order == Order::Places {
            return Ok(Local::Tensor(places));
        }
        let values = self.take_along(x, places, axis, span)?;
        Ok(match order {
            Order::Both => Local::Tuple(vec![Local::Tensor(values), Local::Tensor(places)]),
            Order::Values | Order::Places => Local::Tensor(values),
        })
    }

    /// `take_along`: a gather along one axis where all other axes are batch axes.
    pub(super) fn take_along(&mut self, x: Value, at: Value, axis: usize, span: Span) -> Res<Value> {
        let rank = self.tensor(x, span)?.rank();
        let last = rank.saturating_sub(1);
        let perm: Vec<usize> = (0..rank).filter(|i| *i != axis).chain([axis]).collect();
        let mut back = vec![0; rank];
        perm.iter().enumerate().for_each(|(i, p)| back[*p] = i);
        let (x, at) = (self.transpose(x, perm.clone(), span)?, self.transpose(at, perm, span)?);
        let taken = self.emit(Op::Gather { axis: last, batch: last }, vec![x, at], None, span)?;
        self.transpose(taken, back, span)
    }

    /// A stride of a view, which must be a compile-time constant.
    pub(super) fn stride(&mut self, frame: &Frame<'a>, stride: &Dim, span: Span) -> Res<i32> {
        let dim = self.dim(&frame.dims, stride, span)?;
        match dim.as_const().map(i32::try_from) {
            Some(Ok(n)) if n >= 1 => Ok(n),
            _ => {
                let message = format!("a distance of {dim} elements, where a number of at least 1 must be known");
                let diagnostic = Diagnostic::error(entries::BOUND_VALUE, message).at(span, "");
                Err(self.report(diagnostic.help("give the dimension a value: by a default, or `--dim NAME=2`")))
            }
        }
    }

    /// Sliding windows along an axis, which becomes two axes.
    pub(super) fn windows(&mut self, x: Value, axis: usize, stride: i32, shape: Vec<Dim>, span: Span) -> Res<Value> {
        let ty = self.tensor(x, span)?;
        if let ([count, length, ..], Some(extent)) = (shape.get(axis..).unwrap_or_default(), ty.shape.get(axis)) {
            let steps = Dim::from(i64::from(stride));
            let end = count.sub(&Dim::one()).mul(&steps).add(length);
            self.within(&Dim::zero(), count, span)?;
            self.within(&end, extent, span)?;
        }
        let ty = crate::ir::Type::Tensor(crate::shape::TensorType::new(ty.elem, shape));
        self.emit(Op::Windows { axis, stride: stride.into() }, vec![x], Some(ty), span)
    }

    /// Writes slices at indices along an axis, or adds them there. Indices of rank above 1 are
    /// flattened.
    pub(super) fn scatter(&mut self, [x, at, value]: [Value; 3], axis: usize, add: bool, span: Span) -> Res<Value> {
        let (mut shape, indices) = (self.tensor(x, span)?.shape, self.tensor(at, span)?.shape);
        shape.splice(axis..=axis, indices.iter().cloned());
        let value = self.broadcast(value, shape.clone(), span)?;
        let count = Dim::product(&indices);
        shape.splice(axis..axis + indices.len(), [count.clone()]);
        let (at, value) = (self.reshape(at, vec![count], span)?, self.reshape(value, shape, span)?);
        self.emit(Op::Scatter { axis, add }, vec![x, at, value], None, span)
    }

    fn entry_axis(&mut self, frame: &Frame<'a>, base: &Expr, at: usize) -> Res<usize> {
        match &base.ty {
            crate::types::typed::Type::Tensor(tensor) => Ok(tensor.shape.expanded_axis(at, frame.rest.len())),
            crate::types::typed::Type::Tuple(_) => Err(self.bug(base.span, "a tuple is indexed")),
        }
    }

    fn index_of(&mut self, frame: &mut Frame<'a>, entry: &'a Entry) -> Res<Index> {
        match entry {
            Entry::All => Ok(Index::All),
            Entry::Range(start, stop) => {
                let span = frame.function.span;
                Ok(Index::Range(self.dim(&frame.dims, start, span)?, self.dim(&frame.dims, stop, span)?))
            }
            Entry::Window(start, length) => {
                let length = self.dim(&frame.dims, length, start.span)?;
                let at = match self.expr(frame, start)? {
                    Local::Counter(value) | Local::Tensor(value) => value,
                    Local::Tuple(_) => return Err(self.bug(start.span, "a tuple is used as an index")),
                };
                Ok(Index::Window(at, length))
            }
            Entry::At(Expr { kind: ExprKind::Const(Scalar::Int(n)), .. }) => Ok(Index::Known(Dim::from(*n))),
            Entry::At(Expr { kind: ExprKind::Dim(dim), span, .. }) => {
                Ok(Index::Known(self.dim(&frame.dims, dim, *span)?))
            }
            Entry::At(expr) => match self.expr(frame, expr)? {
                Local::Counter(value) | Local::Tensor(value) => Ok(Index::At(value)),
                Local::Tuple(_) => Err(self.bug(expr.span, "a tuple is used as an index")),
            },
            Entry::Gather(expr) => Ok(Index::Gather(self.value(frame, expr)?)),
        }
    }

    fn apply(&mut self, x: Value, axis: usize, index: Index, span: Span) -> Res<Value> {
        let ty = self.tensor(x, span)?;
        let extent = ty.shape.get(axis).cloned();
        match (index, extent) {
            (Index::All, _) => Ok(x),
            (_, None) => Err(self.bug(span, "an index into an axis that does not exist")),
            (Index::Range(start, stop), Some(extent)) => {
                self.within(&Dim::zero(), &start, span)?;
                self.within(&start, &stop, span)?;
                self.within(&stop, &extent, span)?;
                self.slice(x, axis, start, stop, span)
            }
            (Index::Known(at), Some(extent)) => {
                let negative = at.as_const().is_some_and(|n| n < 0);
                let at = if negative { at.add(&extent) } else { at };
                if let Some((n, len)) = at.as_const().zip(extent.as_const())
                    && !(0..len).contains(&n)
                {
                    let message = format!("there is no element {n} on an axis of length {len}");
                    return Err(self.report(Diagnostic::error(shapes::OUT_OF_RANGE, message).at(span, "")));
                }
                self.within(&Dim::zero(), &at, span)?;
                self.within(&at.add(&Dim::one()), &extent, span)?;
                self.element(x, axis, &at, span)
            }
            (Index::At(at), Some(_)) => self.emit(Op::Index { axis }, vec![x, at], None, span),
            (Index::Window(at, length), Some(extent)) => {
                self.window_fits(&length, &extent, span)?;
                let mut shape = ty.shape.clone();
                shape[axis] = length;
                let ty = crate::ir::Type::Tensor(crate::shape::TensorType::new(ty.elem, shape));
                self.emit(Op::Extract { axes: vec![axis] }, vec![x, at], Some(ty), span)
            }
            (Index::Gather(at), Some(_)) => self.emit(Op::Gather { axis, batch: 0 }, vec![x, at], None, span),
        }
    }

    /// Rejects a slice at a computed index that is longer than its axis; everything else about it
    /// is checked at run time.
    fn window_fits(&mut self, length: &Dim, extent: &Dim, span: Span) -> Res<()> {
        match length.as_const().zip(extent.as_const()) {
            Some((n, len)) if n > len => {
                let message = format!("a slice of {n} elements on an axis of length {len}");
                Err(self.report(Diagnostic::error(shapes::OUT_OF_RANGE, message).at(span, "")))
            }
            _ => Ok(()),
        }
    }
}

/// An evaluated [`Entry`].
enum Index {
    All,
    Range(Dim, Dim),
    Known(Dim),
    At(Value),
    Window(Value, Dim),
    Gather(Value),
}

/// A component of an axis, once `..` is expanded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AxisPart<'p> {
    Rest(usize),
    Name(&'p str),
}

/// Parts of one side in order, without parts of length 1.
fn parts_of(side: &Side, rest: usize) -> Vec<AxisPart<'_>> {
    let mut out = Vec::new();
    for item in side {
        match item {
            Item::Rest => out.extend((0..rest).map(AxisPart::Rest)),
            Item::Axis(atoms) => out.extend(atoms.iter().filter_map(|atom| match atom {
                Atom::Name(name) => Some(AxisPart::Name(name.as_str())),
                Atom::One => None,
            })),
        }
    }
    out
}
