//! `rule` and `train`: how parameters change along the gradient of a loss.
//!
//! In: the declaration of a rule, or a `train` of a function's body. Out: a [`Train`]. Which
//! parameters an arm is for is found where the model is bound, because paths begin at the model.

use super::arguments::count;
use super::axes::Axis;
use super::body::Body;
use super::items::{Items, LayerItem};
use super::misfit::type_misfit;
use super::typed::{Arm, Expr, ExprKind, FieldType, LayerKind, Tensor, Train, Type};
use super::values::{Ty, TypedExpr, scalar};
use crate::diagnostics::codes::{names, parameters, shapes};
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::scalar::CmpOp;
use crate::shape::Elem;
use crate::source::Span;
use crate::syntax::ast;
use std::collections::BTreeMap;

/// The name of the rule that changes nothing.
const FIXED: &str = "Fixed";
/// The number of arguments of `step` that are not given in an arm.
const GIVEN: usize = 2;

/// Checks the declaration of a rule.
pub(super) fn rule(items: &Items<'_>, rule: &LayerItem<'_>, diagnostics: &mut Diagnostics) {
    let name = &rule.ast.name;
    let mut wrong = |span: Span, message: String, label: &str| {
        diagnostics.push(Diagnostic::error(parameters::RULE_FORM, message).at(span, label));
    };
    for field in rule.ast.fields.iter().filter(|field| !field.is_state) {
        let message = format!("`{}` is not a state, and the rule `{}` has only states", field.name.name, name.name);
        wrong(field.span, message, "write `state` before it");
    }
    for generic in rule.ast.generics.iter().filter(|g| g.default.is_some() || g.elem.is_some() || g.ty.is_some()) {
        let message = format!("`{}` of the rule `{}` is not an axis of the parameter", generic.name.name, name.name);
        wrong(generic.span, message, "a name alone");
    }
    let [step] = rule.functions.as_slice() else {
        let message = format!("the rule `{}` has {} functions", name.name, rule.functions.len());
        return wrong(name.span, message, "it needs `fn step(p: f32[..], g: f32[..]) -> f32[..]` alone");
    };
    let step = items.function(*step);
    let head = step.ast.name.span;
    if step.ast.name.name != "step" {
        let message = format!("the function of the rule `{}` is called `{}`", name.name, step.ast.name.name);
        return wrong(head, message, "its name is `step`");
    }
    let params: Option<Vec<&Tensor>> = step.params.iter().map(Option::as_ref).collect();
    let (Some(params), Some(result)) = (params, &step.result) else { return };
    let [p, g, rest @ ..] = params.as_slice() else {
        let message = format!("`step` of the rule `{}` takes {}", name.name, count(params.len(), "argument"));
        return wrong(head, message, "it begins with a parameter and its gradient");
    };
    if p != g || *result != Type::Tensor((*p).clone()) || !p.elem.is_float() {
        let message = format!("`step` of the rule `{}` takes {p} and {g}, and gives {result}", name.name);
        return wrong(head, message, "a parameter, its gradient and the result have one type, of floats");
    }
    let dims: Vec<String> = p.shape.axes.iter().filter_map(|axis| Some(axis.dim()?.as_symbol()?.to_string())).collect();
    let is_plain = |axis: &Axis| matches!(axis, Axis::Rest) || axis.dim().is_some_and(|d| d.as_symbol().is_some());
    let all = rule.generics.iter().all(|generic| dims.contains(&generic.name));
    if !p.shape.axes.iter().all(is_plain) || !all || dims.iter().any(|d| !rule.generics.iter().any(|g| g.name == *d)) {
        let message = format!("the rule `{}` is for parameters {p}", name.name);
        return wrong(head, message, "its generics are the axes after `..`");
    }
    if rest.iter().any(|tensor| !tensor.shape.is_scalar()) {
        let message =
            format!("`step` of the rule `{}` takes a tensor besides the parameter and its gradient", name.name);
        return wrong(head, message, "its other arguments are scalars");
    }
    for field in rule.fields.iter().flatten() {
        if let FieldType::State(tensor) = &field.ty
            && tensor.shape.rest().is_some()
            && p.shape.rest().is_none()
        {
            wrong(field.span, format!("`{}` is {tensor}, but the parameter is {p}", field.name), "there is no `..`");
        }
    }
}

impl Body<'_> {
    /// `train loss, clip = .. { .. }`
    pub(super) fn train(&mut self, train: &ast::Train, span: Span) -> TypedExpr {
        let value = self.expr(&train.loss);
        let loss = self.loss("train", value);
        let in_model = self.owner.is_some_and(|owner| self.items.layer(owner).kind == LayerKind::Model);
        if !in_model {
            let diagnostic = Diagnostic::error(names::TRAIN_PLACE, "`train` stands in a function of a model");
            self.diagnostics.push(diagnostic.at(span, "not a function of a model"));
        }
        let slots = self.slots("train", &["clip", "clip_value"], 2, false, &train.settings, span);
        let mut settings = Vec::new();
        let mut fine = in_model && slots.is_some();
        for (arg, name) in slots.iter().flat_map(|slots| &slots.given).zip(["clip", "clip_value"]) {
            let value = arg.map(|arg| self.scalar_argument(&arg.value, Elem::F32, "train", name));
            fine &= !matches!(value, Some(None));
            settings.push(value.flatten());
        }
        let arms: Vec<Option<Arm>> = train.arms.iter().map(|arm| self.arm(arm)).collect();
        let (Some(loss), Some(arms), true) = (loss, arms.into_iter().collect::<Option<Vec<Arm>>>(), fine) else {
            return TypedExpr::error(span);
        };
        let mut settings = settings.into_iter();
        let (clip, clip_value) = (settings.next().flatten(), settings.next().flatten());
        self.trains.push(Train { loss, clip, clip_value, arms, span });
        let ty = scalar(Elem::F32);
        let kind = ExprKind::Train(self.trains.len() - 1);
        TypedExpr { ty: Ty::from_type(&ty), expr: Expr { kind, ty, span } }
    }

    /// A value that must be a scalar of this type.
    fn scalar_argument(&mut self, value: &ast::Expr, elem: Elem, what: &str, name: &str) -> Option<Expr> {
        let (value, wanted) = (self.expr(value), scalar(elem));
        self.fit(value, &wanted, &|ty, at, scope| {
            let message = format!("`{name}` of `{what}`: expected {wanted}, found {ty}");
            let diagnostic = Diagnostic::error(shapes::ARGUMENT_SHAPE, message).at(at, ty.to_string());
            type_misfit(diagnostic, ty, &Ty::from_type(&wanted), scope)
        })
    }

    fn arm(&mut self, arm: &ast::Arm) -> Option<Arm> {
        let ranks: Vec<Option<(CmpOp, u64)>> = arm.where_clauses.iter().map(|clause| self.rank(clause)).collect();
        let given = arm.args.as_deref().unwrap_or_default();
        let is_fixed = matches!(arm.rule.as_slice(), [name] if name.name == FIXED);
        let (mut rule, mut args) = (None, Vec::new());
        if is_fixed {
            self.slots(FIXED, &[], 0, false, given, arm.span)?;
        } else {
            let Some(id) = self.items.find_rule(self.module, &arm.rule, self.diagnostics) else {
                self.arguments_alone(given);
                return None;
            };
            let items = self.items;
            let step = *items.layer(id).functions.first()?;
            let item = items.function(step);
            let what = &items.layer(id).ast.name.name;
            let names: Vec<&str> = item.ast.params.iter().skip(GIVEN).map(|param| param.name.name.as_str()).collect();
            let optional = item.defaults.iter().skip(GIVEN).rev().take_while(|default| default.is_some()).count();
            let slots = self.slots(what, &names, optional, false, given, arm.span)?;
            let mut values = Vec::new();
            for (at, (arg, name)) in slots.given.iter().zip(names).enumerate() {
                let at = at + GIVEN;
                let elem = item.params.get(at)?.as_ref()?.elem;
                values.push(match arg {
                    Some(arg) => self.scalar_argument(&arg.value, elem, what, name),
                    None => self.default(item, at, &[], &BTreeMap::new(), arm.span),
                });
            }
            args = values.into_iter().collect::<Option<Vec<Expr>>>()?;
            rule = Some((id, step));
        }
        let ranks = ranks.into_iter().collect::<Option<Vec<(CmpOp, u64)>>>()?;
        let (pattern, pattern_span) = (arm.pattern.clone(), arm.pattern_span);
        Some(Arm { pattern, pattern_span, ranks, rule, args, span: arm.span })
    }

    /// `rank == 2`
    fn rank(&mut self, clause: &ast::Expr) -> Option<(CmpOp, u64)> {
        let found = match &clause.kind {
            ast::ExprKind::Binary { op, left, right, .. } => match (&left.kind, &right.kind) {
                (ast::ExprKind::Name(name), ast::ExprKind::Int(n)) if name.name == "rank" => match op {
                    ast::BinaryOp::Eq => Some((CmpOp::Eq, *n)),
                    ast::BinaryOp::Ne => Some((CmpOp::Ne, *n)),
                    ast::BinaryOp::Lt => Some((CmpOp::Lt, *n)),
                    ast::BinaryOp::Le => Some((CmpOp::Le, *n)),
                    ast::BinaryOp::Gt => Some((CmpOp::Gt, *n)),
                    ast::BinaryOp::Ge => Some((CmpOp::Ge, *n)),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        };
        if found.is_none() && clause.kind != ast::ExprKind::Error {
            let message = "a condition of an arm compares the number of axes";
            let diagnostic = Diagnostic::error(parameters::PATTERN, message).at(clause.span, "not of this form");
            self.diagnostics.push(diagnostic.help("write `rank == 2`, with `==`, `!=`, `<`, `<=`, `>` or `>=`"));
        }
        found
    }
}
