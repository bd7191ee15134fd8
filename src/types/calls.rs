//! Calls of layers and functions: what is called, which argument goes where, what the callee's dimensions are.
//!
//! In: calls as written. Out: typed calls, the callee's dimensions over the caller's names. The body of the callee is
//! not looked at: its signature says everything.

use std::collections::BTreeMap;

use super::axes::{Axis, Misfit, Shape};
use super::body::{Body, MadeCall, Named, type_misfit};
use super::builtins;
use super::items::{FunctionItem, generic_args, not_available};
use super::matching::{Matching, Unfit};
use super::typed::{
    Call, Constant, Element, Expr, ExprKind, FieldType, FunctionId, Generic, GenericKind, Instance, LayerPath, Step,
    Tensor, Type,
};
use super::values::{Ty, Val, coerce};
use crate::diagnostics::codes::{dimensions, names, parameters, shapes};
use crate::diagnostics::{Diagnostic, did_you_mean};
use crate::shape::{Dim, Fact, Relation};
use crate::syntax::ast;
use crate::syntax::span::Span;

/// Something made of layers.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// One layer, its generics over the names known here.
    Layer(Instance, LayerPath),
    /// An array of layers: a field of the layer at the path.
    Array {
        /// What each element is.
        instance: Instance,
        /// The layer that has the array.
        path: LayerPath,
        /// The field.
        field: usize,
        /// How many there are.
        length: Dim,
    },
    /// Wrong, and reported.
    Wrong,
}

/// Arguments in the order of the parameters.
pub(super) struct Slots<'e> {
    /// One for each parameter; none where it was left out.
    pub(super) given: Vec<Option<&'e ast::Arg>>,
    /// Arguments with other names, where these are allowed.
    pub(super) extra: Vec<&'e ast::Arg>,
}

impl<'a> Body<'a> {
    /// The layer or array of layers that an expression stands for; none if it is something else.
    pub(super) fn place(&mut self, expr: &ast::Expr) -> Option<Place> {
        match &expr.kind {
            ast::ExprKind::Name(name) => self.place_of_name(&name.name),
            ast::ExprKind::Field { base, name } => match self.place(base)? {
                Place::Layer(instance, path) => self.member_place(&instance, &path, &name.name),
                Place::Array { .. } => None,
                Place::Wrong => Some(Place::Wrong),
            },
            ast::ExprKind::Index { base, indices } => match self.place(base)? {
                Place::Array { instance, path, field, length } => {
                    Some(self.element(instance, path, field, &length, indices, expr.span))
                }
                Place::Layer(..) => None,
                Place::Wrong => Some(Place::Wrong),
            },
            _ => None,
        }
    }

    fn place_of_name(&mut self, name: &str) -> Option<Place> {
        match self.lookup(name) {
            Some(Named::Layer(instance, path)) => return Some(Place::Layer(instance, path)),
            Some(Named::Error) => return Some(Place::Wrong),
            Some(Named::Local { .. } | Named::Dim(_)) => return None,
            None => {}
        }
        let layer = self.items.layer(self.owner?);
        let index = layer.field(name)?;
        let Some(Some(field)) = layer.fields.get(index) else { return Some(Place::Wrong) };
        match &field.ty {
            FieldType::Param(_) => None,
            FieldType::Layer(instance) => {
                let path = LayerPath { steps: vec![Step { field: index, element: None }] };
                Some(Place::Layer(instance.clone(), path))
            }
            FieldType::Array(instance, length) => Some(Place::Array {
                instance: instance.clone(),
                path: LayerPath::default(),
                field: index,
                length: length.clone(),
            }),
        }
    }

    /// A sub-layer of the layer at a path.
    fn member_place(&mut self, holder: &Instance, path: &LayerPath, name: &str) -> Option<Place> {
        let layer = self.items.layer(holder.layer);
        let index = layer.field(name)?;
        let Some(Some(field)) = layer.fields.get(index) else { return Some(Place::Wrong) };
        match &field.ty {
            FieldType::Param(_) => None,
            FieldType::Layer(instance) => {
                let mut path = path.clone();
                path.steps.push(Step { field: index, element: None });
                Some(Place::Layer(compose(holder, instance), path))
            }
            FieldType::Array(instance, length) => Some(Place::Array {
                instance: compose(holder, instance),
                path: path.clone(),
                field: index,
                length: within(holder, length),
            }),
        }
    }

    fn element(
        &mut self,
        instance: Instance,
        mut path: LayerPath,
        field: usize,
        length: &Dim,
        indices: &[ast::Index],
        span: Span,
    ) -> Place {
        let [ast::Index::Expr(index)] = indices else {
            self.diagnostics.push(
                Diagnostic::error(shapes::INDEX_COUNT, "an array of layers takes one index")
                    .at(span, "one number is needed"),
            );
            return Place::Wrong;
        };
        let value = self.expr(index);
        match &value.ty {
            Ty::Dim(at) => {
                self.in_range(at, length, index.span);
                path.steps.push(Step { field, element: Some(Element::At(at.clone())) });
                Place::Layer(instance, path)
            }
            Ty::Error => Place::Wrong,
            _ => {
                self.diagnostics.push(
                    not_available("an array of layers indexed by a computed number", index.span)
                        .help("go through the array with `for block in blocks`"),
                );
                Place::Wrong
            }
        }
    }

    /// Requires `0 <= at < length`.
    pub(super) fn in_range(&mut self, at: &Dim, length: &Dim, span: Span) {
        let refuted = |at: &Dim| {
            let diagnostic = Diagnostic::error(shapes::OUT_OF_RANGE, format!("the index {at} is out of range"))
                .at(span, format!("the axis has length {length}"));
            if at.as_const().is_some_and(|n| n < 0) {
                diagnostic.help(format!("the last one is at `{}`", length.sub(&Dim::one())))
            } else {
                diagnostic
            }
        };
        let low = Fact { left: Dim::zero(), relation: Relation::Le, right: at.clone() };
        if self.scope.decide(&low) == Some(false) {
            self.diagnostics.push(refuted(at));
            return;
        }
        self.require(low, span, &|| refuted(at));
        let high = Fact { left: at.add(&Dim::one()), relation: Relation::Le, right: length.clone() };
        self.require(high, span, &|| refuted(at));
    }

    /// A call.
    pub(super) fn call(
        &mut self,
        expr: &ast::Expr,
        callee: &ast::Expr,
        generics: &[ast::GenericArg],
        args: &[ast::Arg],
    ) -> Val {
        match self.place(callee) {
            Some(Place::Layer(instance, path)) => {
                let Some(function) = self.items.method(instance.layer, "forward") else {
                    return self.no_forward(&instance, callee.span, args);
                };
                return self.call_function(expr.span, callee.span, function, Some((instance, path)), generics, args);
            }
            Some(Place::Array { .. }) => {
                self.arguments_alone(args);
                self.diagnostics.push(
                    Diagnostic::error(parameters::LAYER_ARRAY, "an array of layers cannot be called")
                        .at(callee.span, "several layers")
                        .help("call each one: `for block in blocks { x = block(x) }`"),
                );
                return Val::error(expr.span);
            }
            Some(Place::Wrong) => {
                self.arguments_alone(args);
                return Val::error(expr.span);
            }
            None => {}
        }
        match &callee.kind {
            ast::ExprKind::Name(name) => self.call_name(expr, name, generics, args),
            ast::ExprKind::Field { base, name } => self.call_member(expr, base, name, generics, args),
            _ => {
                let value = self.expr(callee);
                self.arguments_alone(args);
                if !value.ty.is_error() {
                    self.not_callable(&value.ty.to_string(), callee.span);
                }
                Val::error(expr.span)
            }
        }
    }

    /// Looks at arguments of a call that is wrong, for what is wrong in them.
    pub(super) fn arguments_alone(&mut self, args: &[ast::Arg]) {
        for arg in args {
            if !matches!(arg.value.kind, ast::ExprKind::Str(_) | ast::ExprKind::List(_)) {
                self.expr_or_statement(&arg.value);
            }
        }
    }

    fn not_callable(&mut self, what: &str, span: Span) {
        let mut diagnostic = Diagnostic::error(names::NOT_CALLABLE, format!("{what} cannot be called"))
            .at(span, "not a function or layer");
        if what.contains('[') {
            diagnostic = diagnostic.help("a tensor is indexed with brackets: `x[i]`");
        }
        self.diagnostics.push(diagnostic);
    }

    fn no_forward(&mut self, instance: &Instance, span: Span, args: &[ast::Arg]) -> Val {
        self.arguments_alone(args);
        let layer = self.items.layer(instance.layer);
        let mut diagnostic =
            Diagnostic::error(parameters::NO_FORWARD, format!("the layer `{}` has no `forward`", layer.ast.name.name))
                .at(span, "calling a layer calls its `forward`")
                .also(layer.ast.name.span, "declared here");
        let others: Vec<String> =
            layer.ast.functions.iter().map(|function| format!("`{}`", function.name.name)).collect();
        if !others.is_empty() {
            diagnostic = diagnostic.note(format!("its functions are {}", others.join(", ")));
        }
        self.diagnostics.push(diagnostic);
        Val::error(span)
    }

    fn call_name(
        &mut self,
        expr: &ast::Expr,
        name: &ast::Ident,
        generics: &[ast::GenericArg],
        args: &[ast::Arg],
    ) -> Val {
        let local = self.lookup(&name.name);
        let is_field = || self.owner.is_some_and(|owner| self.items.layer(owner).field(&name.name).is_some());
        if local.is_some() || is_field() {
            let value = self.name(name);
            self.arguments_alone(args);
            if !value.ty.is_error() {
                self.not_callable(&format!("`{}`, which is {},", name.name, value.ty), name.span);
            }
            return Val::error(expr.span);
        }
        if let Some(owner) = self.owner
            && let Some(function) = self.items.method(owner, &name.name)
        {
            let own = self.own_instance();
            return self.call_function(expr.span, name.span, function, own, generics, args);
        }
        if self.scope.names.contains_key(&name.name) || self.scope.constants.contains(&name.name) {
            self.arguments_alone(args);
            self.not_callable(&format!("the dimension `{}`", name.name), name.span);
            return Val::error(expr.span);
        }
        if let Some(function) = self.items.free_function(self.module, &name.name) {
            return self.call_function(expr.span, name.span, function, None, generics, args);
        }
        if let Some(builtin) = builtins::find(&name.name) {
            return self.builtin(expr, name, builtin, generics, args);
        }
        self.arguments_alone(args);
        self.unknown_function(name);
        Val::error(expr.span)
    }

    /// The layer that the function belongs to, as an instance of itself.
    fn own_instance(&self) -> Option<(Instance, LayerPath)> {
        let owner = self.owner?;
        let mut instance = Instance { layer: owner, dims: BTreeMap::new(), constants: BTreeMap::new() };
        for generic in &self.items.layer(owner).generics {
            match generic.kind {
                GenericKind::Dim { .. } => {
                    instance.dims.insert(generic.name.clone(), Dim::symbol(&generic.name));
                }
                GenericKind::Const { .. } => {
                    instance.constants.insert(generic.name.clone(), Constant::Generic(generic.name.clone()));
                }
            }
        }
        Some((instance, LayerPath::default()))
    }

    fn unknown_function(&mut self, name: &ast::Ident) {
        let items = self.items;
        let methods = self.owner.map(|owner| &items.layer(owner).ast.functions);
        let fields = self.owner.map(|owner| &items.layer(owner).ast.fields);
        let known: Vec<&str> = methods
            .into_iter()
            .flatten()
            .map(|function| function.name.name.as_str())
            .chain(fields.into_iter().flatten().map(|field| field.name.name.as_str()))
            .chain(items.function_names(self.module))
            .chain(builtins::names())
            .collect();
        let mut diagnostic = Diagnostic::error(names::UNKNOWN_NAME, format!("there is no function `{}`", name.name))
            .at(name.span, "not known");
        if let Some(near) = did_you_mean(&name.name, known) {
            diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
        } else if let Some(advice) = builtins::foreign(&name.name) {
            diagnostic = diagnostic.help(advice);
        } else if self.items.layers.iter().any(|layer| layer.ast.name.name == name.name) {
            diagnostic =
                diagnostic.note(format!("`{}` is a layer", name.name)).help("make it a field, and call the field");
        }
        self.diagnostics.push(diagnostic);
    }

    fn call_member(
        &mut self,
        expr: &ast::Expr,
        base: &ast::Expr,
        name: &ast::Ident,
        generics: &[ast::GenericArg],
        args: &[ast::Arg],
    ) -> Val {
        match self.place(base) {
            Some(Place::Layer(instance, path)) => {
                if let Some(function) = self.items.method(instance.layer, &name.name) {
                    return self.call_function(expr.span, name.span, function, Some((instance, path)), generics, args);
                }
                let value = self.member(base, name, expr.span);
                self.arguments_alone(args);
                if !value.ty.is_error() {
                    self.not_callable(&value.ty.to_string(), name.span);
                }
                return Val::error(expr.span);
            }
            Some(Place::Wrong) => {
                self.arguments_alone(args);
                return Val::error(expr.span);
            }
            Some(Place::Array { .. }) | None => {}
        }
        if let ast::ExprKind::Name(module) = &base.kind
            && self.lookup(&module.name).is_none()
            && !self.scope.names.contains_key(&module.name)
        {
            if module.name == "random" {
                self.arguments_alone(args);
                self.diagnostics.push(not_available("`random`", expr.span));
                return Val::error(expr.span);
            }
            let here = self.items.modules.get(self.module);
            let used = here.into_iter().flat_map(|m| m.uses.iter().filter_map(|u| self.items.modules.get(*u)));
            let found = used
                .filter(|m| m.path.is_some_and(|path| path.rsplit('.').next() == Some(&module.name)))
                .find_map(|m| m.functions.get(name.name.as_str()).copied());
            if let Some(function) = found {
                return self.call_function(expr.span, name.span, function, None, generics, args);
            }
        }
        let value = self.member(base, name, expr.span);
        self.arguments_alone(args);
        if !value.ty.is_error() {
            self.not_callable(&value.ty.to_string(), expr.span);
        }
        Val::error(expr.span)
    }

    /// Puts arguments in the order of the parameters. The last `optional` parameters may be left out; with `extra`,
    /// names that are no parameters are collected.
    pub(super) fn slots<'e>(
        &mut self,
        what: &str,
        params: &[&str],
        optional: usize,
        extra: bool,
        args: &'e [ast::Arg],
        span: Span,
    ) -> Option<Slots<'e>> {
        let mut slots = Slots { given: vec![None; params.len()], extra: Vec::new() };
        let mut fine = true;
        let mut next = 0;
        for arg in args {
            let index = match &arg.name {
                None => {
                    next += 1;
                    Some(next - 1)
                }
                Some(name) => params.iter().position(|param| *param == name.name),
            };
            match (index, &arg.name) {
                (Some(index), _) if index < params.len() => match slots.given.get_mut(index) {
                    Some(slot) if slot.is_none() => *slot = Some(arg),
                    _ => {
                        let name = params.get(index).copied().unwrap_or_default();
                        self.diagnostics.push(
                            Diagnostic::error(
                                shapes::ARGUMENT_COUNT,
                                format!("the argument `{name}` of `{what}` is given twice"),
                            )
                            .at(arg.span, "given again"),
                        );
                        fine = false;
                    }
                },
                (Some(_), _) => {
                    if fine {
                        let positional = args.iter().filter(|arg| arg.name.is_none()).count();
                        self.diagnostics.push(
                            Diagnostic::error(
                                shapes::ARGUMENT_COUNT,
                                format!("`{what}` takes {}, {positional} are given", count(params.len(), "argument")),
                            )
                            .at(arg.span, format!("it is `{what}({})`", params.join(", "))),
                        );
                    }
                    fine = false;
                }
                (None, _) if extra => slots.extra.push(arg),
                (None, name) => {
                    let (name, at) = name.as_ref().map_or(("", arg.span), |name| (name.name.as_str(), name.span));
                    let mut diagnostic =
                        Diagnostic::error(names::UNKNOWN_ARGUMENT, format!("`{what}` has no argument `{name}`"))
                            .at(at, format!("it is `{what}({})`", params.join(", ")));
                    if let Some(near) = did_you_mean(name, params.iter().copied()) {
                        diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
                    } else if matches!(name, "dim" | "dims") && params.contains(&"axis") {
                        diagnostic = diagnostic.help("did you mean `axis`?");
                    } else if matches!(name, "keepdim" | "keepdims") && params.contains(&"keep") {
                        diagnostic = diagnostic.help("did you mean `keep`?");
                    }
                    self.diagnostics.push(diagnostic);
                    fine = false;
                }
            }
        }
        let needed = params.len().saturating_sub(optional);
        let missing: Vec<String> = params
            .iter()
            .zip(&slots.given)
            .take(needed)
            .filter(|(_, slot)| slot.is_none())
            .map(|(param, _)| format!("`{param}`"))
            .collect();
        if fine && !missing.is_empty() {
            self.diagnostics.push(
                Diagnostic::error(shapes::ARGUMENT_COUNT, format!("`{what}` needs {} as well", missing.join(" and ")))
                    .at(span, format!("it is `{what}({})`", params.join(", "))),
            );
            fine = false;
        }
        if !fine {
            self.arguments_alone(args);
        }
        fine.then_some(slots)
    }

    fn call_function(
        &mut self,
        span: Span,
        callee: Span,
        id: FunctionId,
        receiver: Option<(Instance, LayerPath)>,
        generics: &[ast::GenericArg],
        args: &[ast::Arg],
    ) -> Val {
        let item = self.items.function(id);
        let what = match self.text(callee) {
            Some(text) => text.to_string(),
            None => item.ast.name.name.clone(),
        };
        let params: Vec<&str> = item.ast.params.iter().map(|param| param.name.name.as_str()).collect();
        let slots = self.slots(&what, &params, 0, false, args, span);
        let bound = match self.own_generics(item, &what, generics, span) {
            Some(bound) => bound,
            None => {
                if slots.is_some() {
                    self.arguments_alone(args);
                }
                return Val::error(span);
            }
        };
        let Some(slots) = slots else { return Val::error(span) };
        let values: Vec<Val> = slots.given.iter().flatten().map(|arg| self.expr(&arg.value)).collect();
        let known = receiver.iter().flat_map(|(instance, _)| instance.dims.clone()).chain(bound.dims);
        let scope = self.scope;
        let mut matching = Matching::new(known.map(|(name, dim)| (name, scope.canonical(dim))));
        let poisoned = values.iter().any(|value| value.ty.is_error());
        let Some(args) = self.match_arguments(item, &what, values, &mut matching) else {
            // What is wrong about an argument is said; what the call gives may be known from the others.
            return match &item.result {
                Some(result) if poisoned => self.result_alone(item, result, &matching, span),
                _ => Val::error(span),
            };
        };
        let mut dims = BTreeMap::new();
        for name in item.dims.iter().chain(item.generics.iter().filter_map(dim_name)) {
            let default = item.generics.iter().find(|generic| generic.name == *name).map(|generic| &generic.kind);
            let dim = match (matching.dims.get(name), default) {
                (Some((dim, _)), _) => dim.clone(),
                (None, Some(GenericKind::Dim { default: Some(dim) })) => matching.apply(dim),
                (None, _) => {
                    self.diagnostics.push(
                        Diagnostic::error(
                            dimensions::NOT_INFERRED,
                            format!("the dimension {name} of `{what}` cannot be found from the arguments"),
                        )
                        .at(span, "no argument fixes it")
                        .also(item.ast.name.span, "declared here"),
                    );
                    return Val::error(span);
                }
            };
            dims.insert(name.clone(), dim);
        }
        for fact in std::mem::take(&mut matching.conditions) {
            let shown = super::dims::show_fact(&fact);
            self.require(fact, span, &|| {
                Diagnostic::error(dimensions::NEGATIVE, format!("`{what}` would need {shown}")).at(span, "never so")
            });
        }
        let mut all = receiver.as_ref().map(|(instance, _)| instance.dims.clone()).unwrap_or_default();
        all.extend(dims.clone());
        self.calls.push(MadeCall { function: id, dims: all.clone(), span });
        let rest = matching.rest.unwrap_or_default();
        let Some(result) = &item.result else { return Val::error(span) };
        let Some(ty) = substitute(result, &rest, &all, self) else { return Val::error(span) };
        let call = Call {
            function: id,
            receiver: receiver.map(|(_, path)| path),
            dims,
            constants: bound.constants,
            rest,
            args,
        };
        Val { ty: Ty::of(&ty), expr: Expr { kind: ExprKind::Call(Box::new(call)), ty, span } }
    }

    /// The value of a call with a wrong argument, if the others fix its type.
    fn result_alone(&mut self, item: &FunctionItem<'_>, result: &Type, matching: &Matching, span: Span) -> Val {
        let dims: BTreeMap<String, Dim> =
            matching.dims.iter().map(|(name, (dim, _))| (name.clone(), dim.clone())).collect();
        let has_rest = item.params.iter().flatten().any(|tensor| tensor.shape.rest().is_some());
        let all = item.dims.iter().all(|name| dims.contains_key(name));
        let generics = item.generics.iter().filter_map(dim_name).all(|name| dims.contains_key(name));
        let (true, true, true) = (all, generics, !has_rest || matching.rest.is_some()) else { return Val::error(span) };
        let rest = matching.rest.clone().unwrap_or_default();
        match substitute(result, &rest, &dims, self) {
            Some(ty) => Val { ty: Ty::of(&ty), ..Val::error(span) },
            None => Val::error(span),
        }
    }

    /// Reads the `<..>` of a call.
    fn own_generics(
        &mut self,
        item: &FunctionItem<'_>,
        what: &str,
        args: &[ast::GenericArg],
        span: Span,
    ) -> Option<super::items::Bound> {
        let constants = self.known_constants();
        let mut bound = generic_args(what, &item.generics, args, span, self.scope, &constants, self.diagnostics)?;
        for generic in &item.generics {
            if let GenericKind::Const { default, .. } = &generic.kind
                && !bound.constants.contains_key(&generic.name)
            {
                let Some(value) = default else {
                    self.diagnostics.push(
                        Diagnostic::error(
                            dimensions::GENERIC_COUNT,
                            format!("`{what}` needs the constant `{}`", generic.name),
                        )
                        .at(span, format!("give it: `{what}<{} = ..>(..)`", generic.name)),
                    );
                    return None;
                };
                bound.constants.insert(generic.name.clone(), Constant::Literal(*value));
            }
        }
        Some(bound)
    }

    /// Matches the arguments with the parameters; none where something does not fit.
    fn match_arguments(
        &mut self,
        item: &FunctionItem<'_>,
        what: &str,
        values: Vec<Val>,
        matching: &mut Matching,
    ) -> Option<Vec<Expr>> {
        let mut args = Vec::with_capacity(values.len());
        let mut fine = true;
        let mut spans = Vec::new();
        for (index, value) in values.into_iter().enumerate() {
            spans.push(value.span());
            let Some(Some(declared)) = item.params.get(index) else {
                fine = false;
                continue;
            };
            match self.match_argument(item, what, index, declared, value, matching, &spans) {
                Some(expr) => args.push(expr),
                None => fine = false,
            }
        }
        if fine && let Err((index, unfit)) = matching.finish(&self.scope.facts) {
            let span = spans.get(index).copied().unwrap_or_default();
            if let (Some(Some(declared)), Some(expr)) = (item.params.get(index), args.get(index)) {
                let given = Ty::of(&expr.ty);
                self.unfit(item, what, index, declared, &given, span, &unfit, matching, &spans);
            }
            fine = false;
        }
        fine.then_some(args)
    }

    #[expect(clippy::too_many_arguments, reason = "everything that the message about one argument needs")]
    fn match_argument(
        &mut self,
        item: &FunctionItem<'_>,
        what: &str,
        index: usize,
        declared: &Tensor,
        value: Val,
        matching: &mut Matching,
        spans: &[Span],
    ) -> Option<Expr> {
        let span = value.span();
        let given = match &value.ty {
            Ty::Error => return None,
            Ty::Tensor(tensor) => tensor.clone(),
            Ty::Dim(_) | Ty::Float => Tensor { elem: declared.elem, shape: Shape::scalar() },
            Ty::Tuple(_) => {
                let shown = value.ty.to_string();
                self.not_a_tensor(&shown, span);
                return None;
            }
        };
        let ty = value.ty.clone();
        let name = item.ast.params.get(index).map_or("", |param| param.name.name.as_str());
        let place = item.ast.params.get(index).map_or(span, |param| param.ty.span);
        if given.elem != declared.elem {
            let mut diagnostic = Diagnostic::error(
                shapes::ARGUMENT_ELEM,
                format!("`{what}` takes {} elements for `{name}`, these are {}", declared.elem, given.elem),
            )
            .at(span, ty.to_string())
            .also(place, "declared here");
            diagnostic = match self.text(span) {
                Some(text) => diagnostic.help(format!("convert them: `cast<{}>({text})`", declared.elem)),
                None => diagnostic.help(format!("convert them: `cast<{}>(..)`", declared.elem)),
            };
            self.diagnostics.push(diagnostic);
            return None;
        }
        if let Err(unfit) = matching.argument(index, &declared.shape, &given.shape, &self.scope.facts) {
            self.unfit(item, what, index, declared, &ty, span, &unfit, matching, spans);
            return None;
        }
        match coerce(value, declared.elem) {
            Ok(expr) => Some(expr),
            Err(why) => {
                self.diagnostics.push(
                    Diagnostic::error(shapes::LITERAL, format!("`{what}` takes {} for `{name}`: {why}", declared.elem))
                        .at(span, "")
                        .also(place, "declared here"),
                );
                None
            }
        }
    }

    /// Reports an argument that does not fit.
    #[expect(clippy::too_many_arguments, reason = "everything that the message about one argument needs")]
    fn unfit(
        &mut self,
        item: &FunctionItem<'_>,
        what: &str,
        index: usize,
        declared: &Tensor,
        given: &Ty,
        span: Span,
        unfit: &Unfit,
        matching: &Matching,
        spans: &[Span],
    ) {
        let name = item.ast.params.get(index).map_or("", |param| param.name.name.as_str());
        let place = item.ast.params.get(index).map_or(span, |param| param.ty.span);
        let before = matching.before(index);
        let known = |symbol: &str| before.dims.get(symbol).map(|(dim, _)| dim.clone());
        let rest = [Axis::Rest];
        let wanted = Tensor {
            elem: declared.elem,
            shape: declared.shape.substitute(&rest, &known).unwrap_or_else(|| declared.shape.clone()),
        };
        let diagnostic =
            Diagnostic::error(shapes::ARGUMENT_SHAPE, format!("`{what}` needs {wanted} for `{name}`, this is {given}"))
                .at(span, given.to_string())
                .also(place, format!("declared as {declared} here"));
        let diagnostic = match unfit {
            Unfit::Rank => type_misfit(diagnostic, given, &Ty::Tensor(wanted), self.scope),
            Unfit::Dim { wanted: dim, given: other, fixed_by, .. } => {
                let mut diagnostic =
                    diagnostic.note(format!("{} is not {}", self.scope.describe(other), self.scope.describe(dim)));
                if let Some(by) = fixed_by.and_then(|by| spans.get(by)) {
                    diagnostic = diagnostic.also(*by, format!("{dim} comes from this argument"));
                }
                if let Ty::Tensor(given) = given
                    && let Some((front, back)) = given.shape.split_last(2)
                {
                    let turned = front.followed_by(back.into_iter().rev());
                    let mut again = matching.before(index);
                    if again.argument(index, &declared.shape, &turned, &self.scope.facts).is_ok() {
                        diagnostic = diagnostic.help("`.T` exchanges the last two axes, and would fit");
                    }
                }
                self.scope.label_origins(diagnostic, [other, dim])
            }
            Unfit::Lead(misfit) => {
                let by = spans.get(matching.rest_from).copied().unwrap_or(span);
                let diagnostic = diagnostic
                    .also(by, "`..` comes from this argument")
                    .note("`..` is the same list of dimensions in all arguments, broadcast");
                match misfit {
                    Misfit::Dims { left, right, .. } => {
                        let (left, right) = (left.clone(), right.clone());
                        let diagnostic = diagnostic.note(format!(
                            "{} is not {}",
                            self.scope.describe(&right),
                            self.scope.describe(&left)
                        ));
                        self.scope.label_origins(diagnostic, [&left, &right])
                    }
                    Misfit::Rest => diagnostic,
                }
            }
            Unfit::NotWhole { dividend, divisor, .. } => {
                let diagnostic = diagnostic
                    .note(format!("nothing says that {dividend} is a multiple of {divisor}"))
                    .help(format!("state it: `where {} == 0`", super::dims::remainder(dividend, divisor)));
                self.scope.label_origins(diagnostic, [dividend, divisor])
            }
            Unfit::Rest => diagnostic.note(
                "how many axes `..` stands for is not known, so none of them can be taken for a single dimension",
            ),
        };
        self.diagnostics.push(diagnostic);
    }
}

/// `1 argument`, `2 arguments`
pub(super) fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn dim_name(generic: &Generic) -> Option<&String> {
    matches!(generic.kind, GenericKind::Dim { .. }).then_some(&generic.name)
}

/// A dimension over the generics of a layer, over the names where its instance is.
pub(super) fn within(holder: &Instance, dim: &Dim) -> Dim {
    dim.substitute(&|name| holder.dims.get(name).cloned()).unwrap_or_else(|| dim.clone())
}

/// The instance of a sub-layer, over the names where the instance of its holder is.
fn compose(holder: &Instance, inner: &Instance) -> Instance {
    let constant = |value: &Constant| match value {
        Constant::Literal(_) => value.clone(),
        Constant::Generic(name) => holder.constants.get(name).unwrap_or(value).clone(),
    };
    Instance {
        layer: inner.layer,
        dims: inner.dims.iter().map(|(name, dim)| (name.clone(), within(holder, dim))).collect(),
        constants: inner.constants.iter().map(|(name, value)| (name.clone(), constant(value))).collect(),
    }
}

/// A declared type over the caller's names.
fn substitute(ty: &Type, rest: &[Axis], dims: &BTreeMap<String, Dim>, body: &Body<'_>) -> Option<Type> {
    match ty {
        Type::Tensor(tensor) => {
            let mut shape = tensor.shape.substitute(rest, &|name| dims.get(name).cloned())?;
            for axis in &mut shape.axes {
                if let Axis::Dim(dim) = axis {
                    *dim = body.scope.canonical(std::mem::take(dim));
                }
            }
            Some(Type::Tensor(Tensor { elem: tensor.elem, shape }))
        }
        Type::Tuple(parts) => {
            parts.iter().map(|part| substitute(part, rest, dims, body)).collect::<Option<Vec<Type>>>().map(Type::Tuple)
        }
    }
}
