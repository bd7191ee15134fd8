//! `train`: which rule each parameter has, and the step that it takes.
//!
//! A parameter that some `train` changes is a state with the parameter's name, which begins with its
//! values; the states of its rule are `h.*.weight.AdamW.m` and so on. Nothing else of the compiler
//! knows of training. The layers of an array take their steps in a loop.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::bind::{Decision, decide};
use super::builder::{Builder, Loop};
use super::frame::{Frame, LayerInstance, Local};
use super::{LowerError, Res};
use crate::diagnostics::codes::parameters;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::interface::{matches, meant_by};
use crate::ir::{Op, ParamDecl, Scalar, Type, Value};
use crate::scalar::{BinaryOp, ReduceKind, UnaryOp};
use crate::shape::{Dim, Elem, TensorType};
use crate::source::Span;
use crate::types::axes::Axis;
use crate::types::train::{Arm, Train};
use crate::types::typed::{self, FieldType, FunctionId, LayerId, Program};

/// What a `train` does with one parameter.
#[derive(Clone, Debug)]
pub(super) struct Step {
    param: ParamDecl,
    /// Index of the arm.
    arm: usize,
    rule: (LayerId, FunctionId),
    /// The generics of the rule, and the axes that its `..` stands for.
    dims: BTreeMap<String, Dim>,
    rest: Vec<Dim>,
}

/// By function, and index in [`typed::Function::trains`].
pub(super) type Trains = BTreeMap<(FunctionId, usize), Vec<Step>>;

/// The number that makes the quotient with a norm of 0 finite, as in PyTorch's `clip_grad_norm_`.
const TINY: f64 = 1e-6;

/// Gives each parameter to an arm of each `train` of a model, and declares the states.
pub(super) fn bind(
    program: &Program,
    model: LayerId,
    params: &[ParamDecl],
    states: &mut BTreeMap<String, TensorType>,
    diagnostics: &mut Diagnostics,
) -> Res<Trains> {
    let mut trains = Trains::new();
    let mut made = BTreeMap::new();
    let mut ok = true;
    for id in &program.layer(model).functions {
        for (at, train) in program.function(*id).trains.iter().enumerate() {
            let steps = steps(program, train, params, diagnostics)?;
            ok &= steps.is_some();
            for step in steps.iter().flatten() {
                for (name, ty) in states_of(program, step)? {
                    let taken = states.get(&name).or_else(|| made.get(&name)).is_some_and(|known| *known != ty);
                    if taken || states.contains_key(&name) {
                        let message = format!("`train` needs a state `{name}`, and the model has one");
                        let diagnostic =
                            Diagnostic::error(parameters::SAME_NAME, message).at(train.span, "needed here");
                        diagnostics.push(diagnostic);
                        ok = false;
                    }
                    made.insert(name, ty);
                }
            }
            trains.insert((*id, at), steps.unwrap_or_default());
        }
    }
    states.extend(made);
    if ok { Ok(trains) } else { Err(LowerError::Reported) }
}

fn fits(arm: &Arm, param: &ParamDecl) -> bool {
    let rank = param.ty.rank() as u64;
    matches(&arm.pattern, &param.name) && arm.ranks.iter().all(|(op, n)| op.eval(rank, *n))
}

/// The steps of a `train`; `None` after an error.
fn steps(
    program: &Program,
    train: &Train,
    params: &[ParamDecl],
    diagnostics: &mut Diagnostics,
) -> Res<Option<Vec<Step>>> {
    let mut ok = true;
    for arm in train.arms.iter().filter(|arm| !params.iter().any(|p| fits(arm, p))) {
        ok = false;
        let of_rank = params.iter().any(|p| matches(&arm.pattern, &p.name));
        let why = if of_rank { " with so many axes".to_string() } else { meant_by(&arm.pattern, params) };
        let message = format!("`{}` fits no parameter{why}", arm.pattern);
        diagnostics.push(Diagnostic::error(parameters::PATTERN, message).at(arm.pattern_span, ""));
    }
    let (mut out, mut left) = (Vec::new(), Vec::new());
    for param in params.iter().filter(|p| p.ty.elem.is_float()) {
        match train.arms.iter().enumerate().find(|(_, arm)| fits(arm, param)) {
            Some((at, arm)) => match arm.rule {
                None => {}
                Some(rule) => match step(program, (at, arm), rule, param, diagnostics)? {
                    Some(step) => out.push(step),
                    None => ok = false,
                },
            },
            None => left.push(format!("`{}`", param.name)),
        }
    }
    if !left.is_empty() {
        ok = false;
        let (shown, more) = (left.iter().take(4), if left.len() > 4 { ", .." } else { "" });
        let list = shown.map(String::as_str).collect::<Vec<&str>>().join(", ");
        let message = format!("`train` has no rule for {list}{more}");
        let diagnostic = Diagnostic::error(parameters::NO_RULE, message).at(train.span, "no pattern fits");
        diagnostics.push(diagnostic.help("to keep the other parameters as they are, add the arm `\"*\": Fixed`"));
    }
    Ok(ok.then_some(out))
}

/// Matches a parameter with the first argument of a rule's `step`.
fn step(
    program: &Program,
    (at, arm): (usize, &Arm),
    rule: (LayerId, FunctionId),
    param: &ParamDecl,
    diagnostics: &mut Diagnostics,
) -> Res<Option<Step>> {
    let (layer, function) = (program.layer(rule.0), program.function(rule.1));
    let first = function.params.first().map(|p| &function.local(p.local).ty);
    let Some(typed::Type::Tensor(wanted)) = first else {
        return Err(LowerError::Bug(format!("the rule `{}` takes no parameter", layer.name)));
    };
    let named: Vec<&Dim> = wanted.shape.axes.iter().filter_map(Axis::dim).collect();
    let shape = &param.ty.shape;
    let misfit = |why: &str| {
        let message = format!("`{}` is {}, and the rule `{}` takes {wanted}{why}", param.name, param.ty, layer.name);
        Diagnostic::error(parameters::RULE_MISFIT, message).at(arm.pattern_span, "it goes to this arm")
    };
    let has_rest = wanted.shape.rest().is_some();
    if shape.len() < named.len() || !has_rest && shape.len() > named.len() {
        let op = if has_rest { ">=" } else { "==" };
        let help = format!("leave the ones that fit: `where rank {op} {}`", named.len());
        diagnostics.push(misfit("").help(help));
        return Ok(None);
    }
    if wanted.elem != param.ty.elem {
        diagnostics.push(misfit(""));
        return Ok(None);
    }
    let (rest, own) = shape.split_at(shape.len() - named.len());
    let mut dims = BTreeMap::new();
    for (name, dim) in named.iter().filter_map(|d| d.as_symbol()).zip(own) {
        if dims.insert(name.to_string(), dim.clone()).is_some_and(|known| known != *dim) {
            diagnostics.push(misfit(", whose axes are equal"));
            return Ok(None);
        }
    }
    for condition in layer.conditions.iter().chain(&function.conditions) {
        if let Decision::Fails = decide(condition, &dims, diagnostics)? {
            diagnostics.push(misfit(", under a condition"));
            return Ok(None);
        }
    }
    Ok(Some(Step { param: param.clone(), arm: at, rule, dims, rest: rest.to_vec() }))
}

/// The states of a parameter with a rule: its own value first.
fn states_of(program: &Program, step: &Step) -> Res<Vec<(String, TensorType)>> {
    let layer = program.layer(step.rule.0);
    let stacked = step.param.stacked();
    let counts = stacked.shape.get(..step.param.counts.len()).unwrap_or_default().to_vec();
    let mut out = vec![(step.param.name.clone(), stacked)];
    for field in &layer.fields {
        let FieldType::State(tensor) = &field.ty else { continue };
        let mut shape = counts.clone();
        for axis in &tensor.shape.axes {
            match axis {
                Axis::Rest => shape.extend(step.rest.iter().cloned()),
                Axis::Dim(dim) => match dim.substitute(&|name| step.dims.get(name).cloned()) {
                    Some(dim) if dim.as_const().is_some_and(|n| n >= 0) => shape.push(dim),
                    _ => return Err(LowerError::Bug(format!("the state `{}` has the axis {dim}", field.name))),
                },
            }
        }
        let name = format!("{}.{}.{}", step.param.name, layer.name, field.stored_name);
        out.push((name, TensorType::new(tensor.elem, shape)));
    }
    Ok(out)
}

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
