//! `train`: the step that each parameter takes.
//!
//! In: the rule of each parameter (`trains`), and a loss. Out: its gradients, their norm, and new
//! values of the states. The layers of an array take their steps in a loop.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::Res;
use super::builder::{Builder, Loop};
use super::frame::{Frame, LayerInstance, Local};
use super::trains::Step;
use crate::ir::{Op, Scalar, Type, Value};
use crate::scalar::{BinaryOp, ReduceKind, UnaryOp};
use crate::shape::{Dim, Elem};
use crate::source::Span;

/// The number that makes the quotient with a norm of 0 finite, as in PyTorch's `clip_grad_norm_`.
const TINY: f64 = 1e-6;

impl<'a> Builder<'a> {
    /// The gradients of all parameters, clipped, and a step for each; the value is the norm.
    pub(super) fn train(&mut self, frame: &mut Frame<'a>, at: usize, span: Span) -> Res<Value> {
        let (Some(train), Some(id)) = (frame.function.trains.get(at), self.calls.last().copied()) else {
            return Err(self.bug(span, "a `train` of another function"));
        };
        let Some(steps) = self.trains.get(&(id, at)).cloned().filter(|_| self.is_model(frame)) else {
            return Err(self.bug(span, "a `train` of a model that is a layer"));
        };
        let loss = self.value(frame, &train.loss)?;
        let clip = train.clip.as_ref().map(|clip| self.value(frame, clip)).transpose()?;
        let clip_value = train.clip_value.as_ref().map(|clip| self.value(frame, clip)).transpose()?;
        let mut args: Vec<Vec<Value>> = Vec::new();
        for arm in &train.arms {
            args.push(arm.args.iter().map(|arg| self.value(frame, arg)).collect::<Res<Vec<Value>>>()?);
        }
        let mut gradients = Vec::new();
        for step in &steps {
            let (of, place) = (step.param.name.clone(), train.arms.get(step.arm).map_or(span, |arm| arm.pattern_span));
            let whole = self.whole(&of, span)?;
            let ty = Some(Type::Tensor(self.tensor(whole, span)?));
            gradients.push(self.emit(Op::Grad { of }, vec![loss, whole], ty, place)?);
        }
        let norm = self.norm(&gradients, span)?;
        let mut factor = None;
        if let Some(clip) = clip {
            let tiny = self.scalar(Scalar::Float(TINY), Elem::F32, span)?;
            let one = self.scalar(Scalar::Float(1.0), Elem::F32, span)?;
            let below = self.emit(Op::Binary(BinaryOp::Add), vec![norm, tiny], None, span)?;
            let quotient = self.emit(Op::Binary(BinaryOp::Div), vec![clip, below], None, span)?;
            factor = Some(self.emit(Op::Binary(BinaryOp::Min), vec![quotient, one], None, span)?);
        }
        for (step, gradient) in steps.iter().zip(gradients) {
            let place = train.arms.get(step.arm).map_or(span, |arm| arm.span);
            let given = args.get(step.arm).map_or(&[][..], Vec::as_slice);
            let mut gradient = gradient;
            if let Some(factor) = factor {
                let factor = self.cast(factor, step.param.ty.elem, span)?;
                gradient = self.emit(Op::Binary(BinaryOp::Mul), vec![gradient, factor], None, span)?;
            }
            if let Some(most) = clip_value {
                let most = self.cast(most, step.param.ty.elem, span)?;
                let least = self.emit(Op::Unary(UnaryOp::Neg), vec![most], None, span)?;
                gradient = self.emit(Op::Binary(BinaryOp::Min), vec![gradient, most], None, span)?;
                gradient = self.emit(Op::Binary(BinaryOp::Max), vec![gradient, least], None, span)?;
            }
            self.steps(frame, step, gradient, given, &mut Vec::new(), place)?;
        }
        Ok(norm)
    }

    fn is_model(&self, frame: &Frame<'a>) -> bool {
        frame.place.as_ref().is_some_and(|place| place.path.is_empty())
    }

    /// The current value of a state with this name.
    fn whole(&mut self, name: &str, span: Span) -> Res<Value> {
        match self.states.iter().find(|state| state.name == name).map(|state| state.value) {
            Some(value) => Ok(value),
            None => Err(self.bug(span, &format!("there is no state `{name}`"))),
        }
    }

    /// The square root of the sum of all squares.
    fn norm(&mut self, parts: &[Value], span: Span) -> Res<Value> {
        let mut sum = self.scalar(Scalar::Float(0.0), Elem::F32, span)?;
        for part in parts {
            let part = self.cast(*part, Elem::F32, span)?;
            let mut squares = self.emit(Op::Binary(BinaryOp::Mul), vec![part, part], None, span)?;
            let axes: Vec<usize> = (0..self.tensor(squares, span)?.rank()).collect();
            if !axes.is_empty() {
                let op = Op::Reduce { kind: ReduceKind::Sum, axes, keep: false };
                squares = self.emit(op, vec![squares], None, span)?;
            }
            sum = self.emit(Op::Binary(BinaryOp::Add), vec![sum, squares], None, span)?;
        }
        self.emit(Op::Unary(UnaryOp::Sqrt), vec![sum], None, span)
    }

    /// A step for each element of the arrays of layers, from the one at these indices on.
    fn steps(
        &mut self,
        frame: &mut Frame<'a>,
        step: &Step,
        gradient: Value,
        args: &[Value],
        at: &mut Vec<Value>,
        span: Span,
    ) -> Res<()> {
        let Some(count) = step.param.counts.get(at.len()) else { return self.step(step, gradient, args, at, span) };
        let end = Dim::from(i64::try_from(*count).unwrap_or(i64::MAX));
        if *count == 0 {
            return Ok(());
        }
        let (first, last) = (self.index(&Dim::zero(), span)?, self.index(&end, span)?);
        let around = Loop { counter: None, range: Some((Dim::zero(), end)), breaks: Vec::new(), carried: Vec::new() };
        self.counted_loop(frame, (first, last), around, span, |this, frame, i| {
            if let Some(around) = this.loops.last_mut() {
                around.counter = Some(i);
            }
            at.push(i);
            this.steps(frame, step, gradient, args, at, span)?;
            at.pop();
            this.index(&Dim::one(), span)
        })
    }

    /// The step of one tensor.
    fn step(&mut self, step: &Step, gradient: Value, args: &[Value], at: &[Value], span: Span) -> Res<()> {
        let (layer, function) = (self.program.layer(step.rule.0), self.program.function(step.rule.1));
        let whole = self.whole(&step.param.name, span)?;
        let (mut p, mut g) = (whole, gradient);
        for index in at {
            p = self.emit(Op::Index { axis: 0 }, vec![p, *index], None, span)?;
            g = self.emit(Op::Index { axis: 0 }, vec![g, *index], None, span)?;
        }
        let path = format!("{}.{}", step.param.name, layer.name);
        let mut place = LayerInstance::model(step.rule.0, step.dims.clone(), BTreeMap::new());
        (place.tap_path, place.path) = (path.clone(), path);
        place.indices = at.to_vec();
        let counts = step.param.stacked().shape;
        place.tap_indices = at.iter().copied().zip(counts).collect();
        let mut inner = Frame::new(function, Some(Rc::new(place)));
        inner.rest.clone_from(&step.rest);
        for (param, value) in function.params.iter().zip([p, g].iter().chain(args)) {
            inner.set(param.local, Local::Tensor(*value));
        }
        let Local::Tensor(made) = self.inline(step.rule.1, &mut inner, span)? else {
            return Err(self.bug(span, "a rule gives no tensor"));
        };
        let mut value = made;
        if !at.is_empty() {
            let shape: Vec<Dim> = at.iter().map(|_| Dim::one()).chain(self.tensor(made, span)?.shape).collect();
            value = self.reshape(made, shape, span)?;
            let target = self.whole(&step.param.name, span)?;
            let operands = [target, value].into_iter().chain(at.iter().copied()).collect();
            value = self.emit(Op::Update { axes: (0..at.len()).collect() }, operands, None, span)?;
        }
        if let Some(state) = self.states.iter_mut().find(|state| state.name == step.param.name) {
            state.value = value;
        }
        Ok(())
    }
}
