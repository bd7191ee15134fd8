//! Position of a layer in the model: its dimensions, and the names of its parameters and taps.
//!
//! The elements of an array of layers share their code: the index is an operand, and the path has
//! `*` in its place.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::Res;
use super::bind::{constant, join};
use super::builder::Builder;
use super::frame::{Frame, LayerInstance, Local};
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::{dimensions, entries, shapes};
use crate::ir::requirements::lengths;
use crate::ir::{Op, Type, Value};
use crate::scalar::BinaryOp;
use crate::shape::{Dim, Fact, Relation, TensorType};
use crate::source::Span;
use crate::types::typed::{Element, Expr, ExprKind, FieldType, LayerPath, Tensor};

impl<'a> Builder<'a> {
    /// Substitutes the bound names of a dimension.
    pub(super) fn dim(&mut self, dims: &BTreeMap<String, Dim>, dim: &Dim, span: Span) -> Res<Dim> {
        match dim.substitute(&|name| dims.get(name).cloned()) {
            Some(dim) => Ok(dim),
            None => {
                let message = format!("`{dim}` divides by zero with the values that are bound");
                Err(self.report(Diagnostic::error(dimensions::DIVISION_BY_ZERO, message).at(span, "")))
            }
        }
    }

    /// From the layer of a frame to one of its sub-layers.
    pub(super) fn walk(&mut self, frame: &Frame, path: &LayerPath, span: Span) -> Res<Rc<LayerInstance>> {
        let Some(mut place) = frame.place.clone() else {
            return Err(self.bug(span, "a free function uses a layer"));
        };
        let program = self.program;
        for step in &path.steps {
            let layer = program.layer(place.layer);
            let Some(field) = layer.fields.get(step.field) else {
                return Err(self.bug(span, "a layer has fewer fields than its path says"));
            };
            let mut next =
                LayerInstance { path: join(&place.path, &field.stored_name), ..LayerInstance::clone(&place) };
            next.tap_path = join(&place.tap_path, &field.name);
            let instance = match (&field.ty, &step.element) {
                (FieldType::Layer(instance), None) => instance,
                (FieldType::Array(instance, length), Some(element)) => {
                    let length = self.dim(&place.dims, length, span)?;
                    let (index, known) = self.element_index(frame, element, &length, span)?;
                    next.path = join(&next.path, "*");
                    next.indices.push(index);
                    next.lengths.push(length.clone());
                    match known {
                        Some(n) => next.tap_path = join(&next.tap_path, &n.to_string()),
                        None => {
                            next.tap_path = join(&next.tap_path, "*");
                            next.tap_indices.push((index, length));
                        }
                    }
                    instance
                }
                (FieldType::Param(_) | FieldType::State(_) | FieldType::Layer(_) | FieldType::Array(..), _) => {
                    return Err(self.bug(span, "a step to a layer leads elsewhere"));
                }
            };
            next.layer = instance.layer;
            next.dims = BTreeMap::new();
            for (name, dim) in &instance.dims {
                next.dims.insert(name.clone(), self.dim(&place.dims, dim, span)?);
            }
            next.constants = BTreeMap::new();
            for (name, value) in &instance.constants {
                next.constants.insert(name.clone(), constant(value, &place.constants)?);
            }
            place = Rc::new(next);
        }
        Ok(place)
    }

    /// The index value of an element of an array, and its number if that is a constant.
    fn element_index(
        &mut self,
        frame: &Frame,
        element: &Element,
        length: &Dim,
        span: Span,
    ) -> Res<(Value, Option<i64>)> {
        match element {
            Element::At(dim) => {
                let at = self.dim(&frame.dims, dim, span)?;
                self.within(&Dim::zero(), &at, span)?;
                self.within(&at.add(&Dim::one()), length, span)?;
                Ok((self.index(&at, span)?, at.as_const()))
            }
            Element::Counter { counter, factor, offset } => {
                let Some(Local::Counter(counter)) = frame.local(*counter) else {
                    let message = "an element of an array of layers is chosen by a loop whose ends are dimensions";
                    let diagnostic = Diagnostic::error(shapes::INDEX_TYPE, message).at(span, "chosen by a value");
                    return Err(self.report(diagnostic));
                };
                let range = self.loops.iter().find(|l| l.counter == Some(*counter)).and_then(|l| l.range.clone());
                let Some((start, end)) = range else {
                    return Err(self.bug(span, "a counter is used outside of its loop"));
                };
                let counter = *counter;
                let offset = self.dim(&frame.dims, offset, span)?;
                let at = |i: &Dim| Dim::from(*factor).mul(i).add(&offset);
                let last = end.sub(&Dim::one());
                let (low, high) = if *factor < 0 { (at(&last), at(&start)) } else { (at(&start), at(&last)) };
                self.within(&Dim::zero(), &low, span)?;
                self.within(&high.add(&Dim::one()), length, span)?;
                let mut index = counter;
                if *factor != 1 {
                    let factor = self.index(&Dim::from(*factor), span)?;
                    index = self.emit(Op::Binary(BinaryOp::Mul), vec![index, factor], None, span)?;
                }
                if offset != Dim::zero() {
                    let offset = self.index(&offset, span)?;
                    index = self.emit(Op::Binary(BinaryOp::Add), vec![index, offset], None, span)?;
                }
                Ok((index, None))
            }
        }
    }

    /// Requires `low <= high`, now or by an entry check.
    pub(super) fn within(&mut self, low: &Dim, high: &Dim, span: Span) -> Res<()> {
        let slack = high.sub(low);
        if slack.is_provably_nonnegative() {
            return Ok(());
        }
        let fact = Fact { left: low.clone(), relation: Relation::Le, right: high.clone() };
        match fact.decide() {
            Some(true) => Ok(()),
            Some(false) => {
                let message = format!("out of range with the values that are bound: `{low} <= {high}` does not hold");
                Err(self.report(Diagnostic::error(shapes::OUT_OF_RANGE, message).at(span, "")))
            }
            None => {
                self.require(fact, span);
                Ok(())
            }
        }
    }

    /// Emits a parameter of a layer instance.
    pub(super) fn parameter(&mut self, place: &LayerInstance, field: usize, span: Span) -> Res<Value> {
        let layer = self.program.layer(place.layer);
        let Some(field) = layer.fields.get(field) else {
            return Err(self.bug(span, "a layer has fewer fields than a parameter says"));
        };
        let tensor = match &field.ty {
            FieldType::Param(tensor) => tensor,
            FieldType::State(_) => return self.state(place, &field.stored_name, span),
            FieldType::Layer(_) | FieldType::Array(..) => {
                return Err(self.bug(span, "a layer is used as a parameter"));
            }
        };
        let name = join(&place.path, &field.stored_name);
        // A parameter that a `train` changes is a state.
        if self.states.iter().any(|state| state.name == name) {
            return self.state(place, &field.stored_name, span);
        }
        let ty = self.tensor_type(tensor, &place.dims, &[], span)?;
        self.emit(Op::Param { name }, place.indices.clone(), Some(Type::Tensor(ty)), span)
    }

    /// `grad(loss, x)` for a variable, a parameter, or a tuple of these.
    pub(super) fn gradient(
        &mut self,
        frame: &mut Frame<'a>,
        loss: Value,
        of: &'a Expr,
        name: &str,
        span: Span,
    ) -> Res<Local> {
        if let ExprKind::Tuple(parts) = &of.kind {
            let mut out = Vec::with_capacity(parts.len());
            for part in parts {
                out.push(self.gradient(frame, loss, part, name, span)?);
            }
            return Ok(Local::Tuple(out));
        }
        if let ExprKind::Param { path, field } = &of.kind {
            let place = self.walk(frame, path, span)?;
            if let Some(FieldType::Param(tensor)) =
                self.program.layer(place.layer).fields.get(*field).map(|field| &field.ty)
            {
                return self.parameter_gradient(&place, *field, tensor, loss, span).map(Local::Tensor);
            }
        }
        let x = self.expr(frame, of)?;
        self.gradient_of(loss, x, name, span)
    }

    /// With respect to a value, or to each of a tuple.
    fn gradient_of(&mut self, loss: Value, x: Local, name: &str, span: Span) -> Res<Local> {
        match x {
            Local::Tensor(x) => {
                let ty = self.tensor(x, span)?.clone();
                let op = Op::Grad { of: name.to_string() };
                self.emit(op, vec![loss, x], Some(Type::Tensor(ty)), span).map(Local::Tensor)
            }
            Local::Tuple(parts) => {
                let parts = parts.into_iter().map(|x| self.gradient_of(loss, x, name, span));
                parts.collect::<Res<Vec<Local>>>().map(Local::Tuple)
            }
            Local::Counter(_) => Err(self.bug(span, "a gradient with respect to a counter")),
        }
    }

    /// With respect to a parameter: of all layers of an array at once, of which one is taken.
    fn parameter_gradient(
        &mut self,
        place: &LayerInstance,
        field: usize,
        tensor: &'a Tensor,
        loss: Value,
        span: Span,
    ) -> Res<Value> {
        let own = self.tensor_type(tensor, &place.dims, &[], span)?;
        let Some(field) = self.program.layer(place.layer).fields.get(field) else {
            return Err(self.bug(span, "a layer has fewer fields than a parameter says"));
        };
        let shape: Vec<Dim> = place.lengths.iter().chain(&own.shape).cloned().collect();
        let of = join(&place.path, &field.stored_name);
        let ty = Some(Type::Tensor(TensorType::new(own.elem, shape)));
        let changed = self.states.iter().find(|state| state.name == of).map(|state| state.value);
        let operands = [loss].into_iter().chain(changed).collect();
        let mut value = self.emit(Op::Grad { of }, operands, ty, span)?;
        for index in &place.indices {
            value = self.emit(Op::Index { axis: 0 }, vec![value, *index], None, span)?;
        }
        Ok(value)
    }

    /// Index in [`Builder::states`] of a layer's state.
    fn state_at(&mut self, place: &LayerInstance, field: &str, span: Span) -> Res<usize> {
        let name = join(&place.path, field);
        match self.states.iter().position(|state| state.name == name) {
            Some(at) => Ok(at),
            None => Err(self.bug(span, &format!("there is no state `{name}`"))),
        }
    }

    /// Current value of a state; in an array of layers, the slice of this layer.
    fn state(&mut self, place: &LayerInstance, field: &str, span: Span) -> Res<Value> {
        let at = self.state_at(place, field, span)?;
        let mut value = self.states[at].value;
        for index in &place.indices {
            value = self.emit(Op::Index { axis: 0 }, vec![value, *index], None, span)?;
        }
        Ok(value)
    }

    /// Index of a state of the frame's layer, and the indices of the arrays of layers on its path.
    pub(super) fn state_of(&mut self, frame: &Frame, field: usize, span: Span) -> Res<(usize, Vec<Value>)> {
        let Some(place) = frame.place.clone() else {
            return Err(self.bug(span, "a free function sets a state"));
        };
        let Some(field) = self.program.layer(place.layer).fields.get(field) else {
            return Err(self.bug(span, "a layer has fewer fields than a state says"));
        };
        Ok((self.state_at(&place, &field.stored_name, span)?, place.indices.clone()))
    }

    /// The whole state after the slice of the frame's layer is replaced by `value`.
    pub(super) fn whole_state(&mut self, frame: &Frame, field: usize, value: Value, span: Span) -> Res<Value> {
        let (at, indices) = self.state_of(frame, field, span)?;
        if indices.is_empty() {
            return Ok(value);
        }
        let target = self.states[at].value;
        let mut shape = vec![Dim::one(); indices.len()];
        shape.extend(self.tensor(value, span)?.shape);
        let value = self.reshape(value, shape, span)?;
        let axes = (0..indices.len()).collect();
        self.emit(Op::Update { axes }, [target, value].into_iter().chain(indices).collect(), None, span)
    }

    /// Substitutes dimensions and `..` in a type.
    pub(super) fn tensor_type(
        &mut self,
        tensor: &Tensor,
        dims: &BTreeMap<String, Dim>,
        rest: &[Dim],
        span: Span,
    ) -> Res<TensorType> {
        let mut shape = Vec::with_capacity(tensor.shape.axes.len() + rest.len());
        for axis in &tensor.shape.axes {
            match axis.dim() {
                None => shape.extend(rest.iter().cloned()),
                Some(dim) => shape.push(self.dim(dims, dim, span)?),
            }
        }
        Ok(TensorType::new(tensor.elem, shape))
    }

    /// Records `tap name` under the path of the layer, stacked along the loops whose counters are
    /// not part of the path.
    pub(super) fn tap(&mut self, frame: &Frame, name: &str, value: Value, span: Span) -> Res<()> {
        let (path, mut operands) = match &frame.place {
            Some(place) => (join(&place.tap_path, name), place.tap_indices.clone()),
            None => (name.to_string(), Vec::new()),
        };
        let path = self.unused_tap(path);
        if !self.with_taps {
            return Ok(());
        }
        let on_path: Vec<Value> = operands.iter().map(|(v, _)| *v).collect();
        for around in self.loops.clone() {
            if around.counter.is_some_and(|c| on_path.contains(&c)) {
                continue;
            }
            let (Some(counter), Some((start, end))) = (around.counter, around.range) else {
                let message = format!("`{name}` is tapped in a loop whose length is not known before it runs");
                return Err(self.report(Diagnostic::error(entries::TAP_LENGTH, message).at(span, "tapped here")));
            };
            let index = if start == Dim::zero() {
                counter
            } else {
                let first = self.index(&start, span)?;
                self.emit(Op::Binary(BinaryOp::Sub), vec![counter, first], None, span)?
            };
            // A range that runs backwards is empty.
            let turns = end.sub(&start);
            let turns = if turns.as_const().is_some_and(|n| n < 0) { Dim::zero() } else { turns };
            operands.push((index, turns));
        }
        let extents: Vec<Dim> = operands.iter().map(|(_, extent)| extent.clone()).collect();
        let shape = self.tensor(value, span)?.shape;
        let known = lengths(&self.f);
        let later = extents.iter().chain(&shape).flat_map(Dim::symbols).find(|s| known.iter().any(|l| *l.name == **s));
        if let Some(length) = later {
            let message =
                format!("`{name}` is tapped with the length {length}, which is not known before the call runs");
            return Err(self.report(Diagnostic::error(entries::TAP_LENGTH, message).at(span, "tapped here")));
        }
        let mut values = vec![value];
        values.extend(operands.iter().map(|(v, _)| *v));
        self.effect(Op::Tap { name: path, extents }, values, span)
    }

    /// Makes the path unique: a layer that is called twice taps twice, and the second gets a
    /// numeric suffix.
    fn unused_tap(&mut self, path: String) -> String {
        let taken = |taps: &[String], path: &str| taps.iter().any(|other| overlap(other, path));
        let mut name = path.clone();
        let mut n = 2;
        while taken(&self.taps, &name) {
            name = format!("{path}.{n}");
            n += 1;
        }
        self.taps.push(name.clone());
        name
    }
}

/// Can two paths name the same element? (`*` matches any number.)
fn overlap(a: &str, b: &str) -> bool {
    let is_number = |s: &str| !s.is_empty() && s.bytes().all(|c| c.is_ascii_digit());
    let same = |(x, y): (&str, &str)| x == y || (x == "*" && is_number(y)) || (y == "*" && is_number(x));
    a.split('.').count() == b.split('.').count() && a.split('.').zip(b.split('.')).all(same)
}
