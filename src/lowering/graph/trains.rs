//! `train`: the rule of each parameter.
//!
//! A parameter that some `train` changes is a state with the parameter's name, which begins with
//! its values; the states of its rule are `h.*.weight.AdamW.m` and so on. Nothing else of the
//! compiler knows of training.

use std::collections::BTreeMap;

use super::conditions::{Decision, decide};
use super::{LowerError, Res};
use crate::diagnostics::codes::parameters;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::interface::{matches, meant_by};
use crate::ir::ParamDecl;
use crate::shape::{Dim, TensorType};
use crate::types::axes::Axis;
use crate::types::typed::{self, Arm, FieldType, FunctionId, LayerId, Program, Train};

/// The step of one parameter.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) param: ParamDecl,
    /// Index of the arm.
    pub(super) arm: usize,
    pub(super) rule: (LayerId, FunctionId),
    /// The generics of the rule, and the axes that its `..` stands for.
    pub(super) dims: BTreeMap<String, Dim>,
    pub(super) rest: Vec<Dim>,
}

/// By function, and index in [`typed::Function::trains`].
pub(super) type Trains = BTreeMap<(FunctionId, usize), Vec<Step>>;

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
        let why = if of_rank { " with this number of axes".to_string() } else { meant_by(&arm.pattern, params) };
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
