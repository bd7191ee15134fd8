//! Calls of layers and functions: resolves the callee, its arguments and its dimensions.
//!
//! In: calls of the AST. Out: typed calls, with the callee's dimensions over the caller's names.
//! Only the signature of the callee is used, not its body.

use super::axes::Axis;
use super::body::{Body, MadeCall};
use super::builtins;
use super::generics::{GivenGenerics, generic_args};
use super::items::{ArgDefault, FunctionItem};
use super::layer_refs::LayerRef;
use super::matching::Matching;
use super::typed::{
    Call, Constant, Expr, ExprKind, FunctionId, Generic, GenericKind, Instance, LayerPath, Tensor, Type,
};
use super::values::{Ty, TypedExpr};
use crate::diagnostics::codes::{dimensions, names, parameters};
use crate::diagnostics::{Diagnostic, NameKind};
use crate::shape::Dim;
use crate::source::Span;
use crate::syntax::ast;
use std::collections::BTreeMap;

impl<'a> Body<'a> {
    pub(super) fn call(
        &mut self,
        expr: &ast::Expr,
        callee: &ast::Expr,
        generics: &[ast::GenericArg],
        args: &[ast::Arg],
    ) -> TypedExpr {
        match self.layer_ref(callee) {
            Some(LayerRef::Layer(instance, path)) => {
                if self.list_of(&instance) == Some(ast::LayerList::Sequential) {
                    self.no_generics(callee.span, generics);
                    return self.call_sequential(expr.span, callee.span, (instance, path), args);
                }
                let Some(function) = self.items.method(instance.layer, "forward") else {
                    return self.no_forward(&instance, callee.span, args);
                };
                return self.call_function(expr.span, callee.span, function, Some((instance, path)), generics, args);
            }
            Some(LayerRef::Array { .. }) => {
                self.arguments_alone(args);
                self.diagnostics.push(
                    Diagnostic::error(parameters::LAYER_ARRAY, "an array of layers cannot be called")
                        .at(callee.span, "several layers")
                        .help("call each layer: `for block in blocks { x = block(x) }`"),
                );
                return TypedExpr::error(expr.span);
            }
            Some(LayerRef::Wrong) => {
                self.arguments_alone(args);
                return TypedExpr::error(expr.span);
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
                TypedExpr::error(expr.span)
            }
        }
    }

    /// Checks the arguments of an invalid call for errors of their own.
    pub(super) fn arguments_alone(&mut self, args: &[ast::Arg]) {
        for arg in args {
            if !matches!(arg.value.kind, ast::ExprKind::Str(_) | ast::ExprKind::List(_)) {
                self.expr_or_statement(&arg.value);
            }
        }
    }

    pub(super) fn not_callable(&mut self, what: &str, span: Span) {
        let mut diagnostic = Diagnostic::error(names::NOT_CALLABLE, format!("{what} cannot be called"))
            .at(span, "not a function or layer");
        if what.contains('[') {
            diagnostic = diagnostic.help("index a tensor with brackets: `x[i]`");
        }
        self.diagnostics.push(diagnostic);
    }

    pub(super) fn no_forward(&mut self, instance: &Instance, span: Span, args: &[ast::Arg]) -> TypedExpr {
        self.arguments_alone(args);
        let layer = self.items.layer(instance.layer);
        if layer.ast.list.is_some() {
            let shown = self.written(span);
            self.diagnostics.push(
                Diagnostic::error(parameters::LAYER_ARRAY, "a tuple of layers cannot be called")
                    .at(span, "several layers")
                    .help(format!("call each layer: `{shown}.0(x)`, or `for layer in {shown} {{ x = layer(x) }}`"))
                    .help("a `Sequential<..>` of `std.nn` is called: it applies its layers in turn"),
            );
            return TypedExpr::error(span);
        }
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
        TypedExpr::error(span)
    }

    pub(super) fn call_name(
        &mut self,
        expr: &ast::Expr,
        name: &ast::Ident,
        generics: &[ast::GenericArg],
        args: &[ast::Arg],
    ) -> TypedExpr {
        let local = self.lookup(&name.name);
        let is_field = || self.owner.is_some_and(|owner| self.items.layer(owner).field(&name.name).is_some());
        if local.is_some() || is_field() {
            let value = self.name(name);
            self.arguments_alone(args);
            if !value.ty.is_error() {
                self.not_callable(&format!("`{}`, which is {},", name.name, value.ty), name.span);
            }
            return TypedExpr::error(expr.span);
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
            return TypedExpr::error(expr.span);
        }
        if let Some(function) = self.items.free_function(self.module, &name.name) {
            return self.call_function(expr.span, name.span, function, None, generics, args);
        }
        if let Some(builtin) = builtins::find(&name.name) {
            return self.builtin(expr, name, builtin, generics, args);
        }
        let layer = self.items.layers.iter().any(|layer| layer.ast.name.name == name.name);
        if !layer && let Some(value) = self.foreign_call(expr.span, name, args) {
            return value;
        }
        self.arguments_alone(args);
        self.unknown_function(name, expr.span);
        TypedExpr::error(expr.span)
    }

    /// Reports an unknown function. A similar name is suggested if the call, if it is given,
    /// type-checks with it.
    fn unknown_function(&mut self, name: &ast::Ident, call: Span) {
        let items = self.items;
        let methods = self.owner.map(|owner| &items.layer(owner).ast.functions);
        let fields = self.owner.map(|owner| &items.layer(owner).ast.fields);
        let known = methods
            .into_iter()
            .flatten()
            .map(|function| function.name.name.as_str())
            .chain(fields.into_iter().flatten().map(|field| field.name.name.as_str()))
            .chain(items.function_names(self.module))
            .chain(builtins::names());
        let mut diagnostic = Diagnostic::error(names::UNKNOWN_NAME, format!("there is no function `{}`", name.name))
            .at(name.span, "not found");
        let after = self.written(Span { start: name.span.end, ..call });
        let near = self.nearest(&name.name, known).map(str::to_string);
        let near = near.filter(|near| self.checks(&format!("{near}{after}")).is_some());
        if let Some(near) = near {
            diagnostic = diagnostic.near(name.span, &near);
        } else if self.items.layers.iter().any(|layer| layer.ast.name.name == name.name) {
            diagnostic =
                diagnostic.note(format!("`{}` is a layer", name.name)).help("make it a field, and call the field");
        }
        if !self.is_lost(name) {
            self.diagnostics.push(diagnostic);
        }
        self.poison_name(name);
    }

    pub(super) fn call_member(
        &mut self,
        expr: &ast::Expr,
        base: &ast::Expr,
        name: &ast::Ident,
        generics: &[ast::GenericArg],
        args: &[ast::Arg],
    ) -> TypedExpr {
        match self.layer_ref(base) {
            Some(LayerRef::Layer(instance, path))
                if name.name == "forward" && self.list_of(&instance) == Some(ast::LayerList::Sequential) =>
            {
                self.no_generics(name.span, generics);
                return self.call_sequential(expr.span, base.span, (instance, path), args);
            }
            Some(LayerRef::Layer(instance, path)) => {
                if let Some(function) = self.items.method(instance.layer, &name.name) {
                    return self.call_function(expr.span, name.span, function, Some((instance, path)), generics, args);
                }
                let value = self.member(base, name, expr.span);
                self.arguments_alone(args);
                if !value.ty.is_error() {
                    self.not_callable(&value.ty.to_string(), name.span);
                }
                return TypedExpr::error(expr.span);
            }
            Some(LayerRef::Wrong) => {
                self.arguments_alone(args);
                return TypedExpr::error(expr.span);
            }
            Some(LayerRef::Array { .. }) | None => {}
        }
        if let ast::ExprKind::Name(module) = &base.kind
            && self.lookup(&module.name).is_none()
            && !self.scope.names.contains_key(&module.name)
        {
            let here = self.items.modules.get(self.module);
            let used = here.into_iter().flat_map(|m| m.uses.iter().filter_map(|u| self.items.modules.get(*u)));
            let found = used
                .filter(|m| m.path.is_some_and(|path| path.rsplit('.').next() == Some(&module.name)))
                .find_map(|m| m.functions.get(name.name.as_str()).copied());
            if let Some(function) = found {
                return self.call_function(expr.span, name.span, function, None, generics, args);
            }
            if module.name == "random" {
                self.arguments_alone(args);
                self.no_random(module, name);
                return TypedExpr::error(expr.span);
            }
        }
        if let Some(value) = self.at_update(base, name, args, expr.span) {
            return value;
        }
        if let Some(value) = self.library_call(expr, base, name, args) {
            return value;
        }
        if !matches!(self.layer_ref(base), Some(LayerRef::Array { .. }))
            && let Some(value) = self.method_call(expr, base, name, args)
        {
            return value;
        }
        let value = self.member(base, name, expr.span);
        self.arguments_alone(args);
        if !value.ty.is_error() {
            self.not_callable(&value.ty.to_string(), expr.span);
        }
        TypedExpr::error(expr.span)
    }

    /// Reports a call of a function of `random` that does not exist, or whose module is not used.
    pub(super) fn no_random(&mut self, module: &ast::Ident, name: &ast::Ident) {
        const PATH: &str = "std.random";
        let here = self.items.modules.get(self.module);
        let mut used = here.into_iter().flat_map(|m| m.uses.iter().filter_map(|u| self.items.modules.get(*u)));
        let diagnostic = match used.find(|m| m.path == Some(PATH)) {
            Some(found) => {
                let message = format!("`{PATH}` has no function `{}`", name.name);
                let list: Vec<String> = found.functions.keys().map(|name| format!("`{name}`")).collect();
                Diagnostic::error(names::UNKNOWN_NAME, message)
                    .at(name.span, "not found")
                    .note(format!("its functions are {}", list.join(", ")))
            }
            None => Diagnostic::error(names::UNKNOWN_NAME, "the module `random` is not used here")
                .at(module.span, "not found")
                .help(format!("it is in the standard library: add `use {PATH}`"))
                .fix(Span::new(module.span.file, 0, 0), format!("use {PATH}\n\n")),
        };
        self.diagnostics.push(diagnostic);
    }

    pub(super) fn call_function(
        &mut self,
        span: Span,
        callee: Span,
        id: FunctionId,
        receiver: Option<(Instance, LayerPath)>,
        generics: &[ast::GenericArg],
        args: &[ast::Arg],
    ) -> TypedExpr {
        let item = self.items.function(id);
        self.diagnostics.refer(callee, item.ast.name.span, NameKind::Function);
        for name in args.iter().filter_map(|arg| arg.name.as_ref()) {
            if let Some(param) = item.ast.params.iter().find(|param| param.name.name == name.name) {
                self.diagnostics.refer(name.span, param.name.span, NameKind::Parameter);
            }
        }
        let what = match self.text(callee) {
            Some(text) => text.to_string(),
            None => item.ast.name.name.clone(),
        };
        let params: Vec<&str> = item.ast.params.iter().map(|param| param.name.name.as_str()).collect();
        let optional = item.defaults.iter().rev().take_while(|default| default.is_some()).count();
        let slots = self.slots(&what, &params, optional, false, args, span);
        let bound = match self.own_generics(item, &what, generics, span) {
            Some(bound) => bound,
            None => {
                if slots.is_some() {
                    self.arguments_alone(args);
                }
                return TypedExpr::error(span);
            }
        };
        let Some(slots) = slots else { return TypedExpr::error(span) };
        let values: Vec<Option<TypedExpr>> =
            slots.given.iter().map(|arg| arg.map(|arg| self.expr(&arg.value))).collect();
        self.call_values(span, &what, id, receiver, bound, values)
    }

    /// Calls a layer's function with the value of the previous layer; all other arguments get their
    /// defaults.
    pub(super) fn call_with(
        &mut self,
        span: Span,
        (before, what): (&str, &str),
        id: FunctionId,
        receiver: Option<(Instance, LayerPath)>,
        value: TypedExpr,
    ) -> TypedExpr {
        let item = self.items.function(id);
        let needed = item.defaults.iter().take_while(|default| default.is_none()).count();
        if item.params.is_empty() || needed > 1 {
            let least = if needed < item.params.len() { "at least " } else { "" };
            self.diagnostics.push(
                Diagnostic::error(
                    crate::diagnostics::codes::shapes::ARGUMENT_COUNT,
                    format!("`{what}` must take one argument, the value of `{before}`; it takes {least}{needed}"),
                )
                .at(span, "called here")
                .also(item.ast.name.span, "declared here"),
            );
            return TypedExpr::error(span);
        }
        let Some(bound) = self.own_generics(item, what, &[], span) else { return TypedExpr::error(span) };
        let values = std::iter::once(Some(value)).chain(item.params.iter().skip(1).map(|_| None)).collect();
        self.call_values(span, what, id, receiver, bound, values)
    }

    /// Reports generics where none are allowed.
    fn no_generics(&mut self, callee: Span, generics: &[ast::GenericArg]) {
        if let Some(first) = generics.first() {
            let shown = self.written(callee);
            self.diagnostics.push(
                Diagnostic::error(dimensions::GENERIC_COUNT, format!("`{shown}` has no generics here"))
                    .at(first.span, "remove this"),
            );
        }
    }

    /// Checks a call with values for its arguments, `None` for arguments that get their defaults.
    fn call_values(
        &mut self,
        span: Span,
        what: &str,
        id: FunctionId,
        receiver: Option<(Instance, LayerPath)>,
        bound: GivenGenerics,
        values: Vec<Option<TypedExpr>>,
    ) -> TypedExpr {
        let item = self.items.function(id);
        let known = receiver.iter().flat_map(|(instance, _)| instance.dims.clone()).chain(bound.dims);
        let scope = self.scope.clone();
        let mut matching = Matching::new(known.map(|(name, dim)| (name, scope.canonical(dim))));
        let poisoned = values.iter().flatten().any(|value| value.ty.is_error());
        let Some(args) = self.match_arguments(item, what, values, &mut matching) else {
            // The argument's error was reported; the other arguments may determine the type of the
            // call.
            return match &item.result {
                Some(result) if poisoned => self.result_alone(item, result, &matching, span),
                _ => TypedExpr::error(span),
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
                            format!("the dimension {name} of `{what}` cannot be inferred from the arguments"),
                        )
                        .at(span, "no argument binds it")
                        .also(item.ast.name.span, "declared here"),
                    );
                    return TypedExpr::error(span);
                }
            };
            dims.insert(name.clone(), dim);
        }
        for fact in std::mem::take(&mut matching.conditions) {
            let shown = fact.as_written();
            self.require(fact, span, &|| {
                Diagnostic::error(dimensions::NEGATIVE, format!("`{what}` requires {shown}"))
                    .at(span, "this is never true")
            });
        }
        let mut all = receiver.as_ref().map(|(instance, _)| instance.dims.clone()).unwrap_or_default();
        all.extend(dims.clone());
        self.calls.push(MadeCall { function: id, dims: all.clone(), span });
        let rest = matching.rest.unwrap_or_default();
        let Some(result) = &item.result else { return TypedExpr::error(span) };
        let Some(ty) = substitute(result, &rest, &all, self) else { return TypedExpr::error(span) };
        let parts = args.into_iter().enumerate();
        let args = parts.map(|(index, arg)| arg.or_else(|| self.default(item, index, &rest, &all, span)));
        let Some(args) = args.collect::<Option<Vec<Expr>>>() else { return TypedExpr::error(span) };
        let call = Call {
            function: id,
            receiver: receiver.map(|(_, path)| path),
            dims,
            constants: bound.constants,
            rest,
            args,
        };
        TypedExpr { ty: Ty::from_type(&ty), expr: Expr { kind: ExprKind::Call(Box::new(call)), ty, span } }
    }

    /// The default of an omitted argument, for all elements. `None` if it is invalid, which was
    /// reported.
    pub(super) fn default(
        &self,
        item: &FunctionItem<'_>,
        index: usize,
        rest: &[Axis],
        dims: &BTreeMap<String, Dim>,
        span: Span,
    ) -> Option<Expr> {
        let declared = item.params.get(index)?.as_ref()?;
        let value = match item.defaults.get(index)?.as_ref()? {
            ArgDefault::Literal(value) => {
                Expr { kind: ExprKind::Const(*value), ty: super::values::scalar(declared.elem), span }
            }
            ArgDefault::Dim(dim) => {
                let dim = self.scope.canonical(dim.substitute(&|name| dims.get(name).cloned())?);
                super::values::dim_expr(&dim, declared.elem, span)
            }
            ArgDefault::Error => return None,
        };
        let ty = substitute(&Type::Tensor(declared.clone()), rest, dims, self)?;
        if declared.shape.is_scalar() {
            return Some(value);
        }
        Some(Expr { kind: ExprKind::Full(Box::new(value)), ty, span })
    }

    /// The value of a call with an invalid argument, if the others determine its type.
    pub(super) fn result_alone(
        &mut self,
        item: &FunctionItem<'_>,
        result: &Type,
        matching: &Matching,
        span: Span,
    ) -> TypedExpr {
        let dims: BTreeMap<String, Dim> =
            matching.dims.iter().map(|(name, (dim, _))| (name.clone(), dim.clone())).collect();
        let has_rest = item.params.iter().flatten().any(|tensor| tensor.shape.rest().is_some());
        let all = item.dims.iter().all(|name| dims.contains_key(name));
        let generics = item.generics.iter().filter_map(dim_name).all(|name| dims.contains_key(name));
        let (true, true, true) = (all, generics, !has_rest || matching.rest.is_some()) else {
            return TypedExpr::error(span);
        };
        let rest = matching.rest.clone().unwrap_or_default();
        match substitute(result, &rest, &dims, self) {
            Some(ty) => TypedExpr { ty: Ty::from_type(&ty), ..TypedExpr::error(span) },
            None => TypedExpr::error(span),
        }
    }

    /// Parses the `<..>` of a call.
    pub(super) fn own_generics(
        &mut self,
        item: &FunctionItem<'_>,
        what: &str,
        args: &[ast::GenericArg],
        span: Span,
    ) -> Option<GivenGenerics> {
        let constants = self.known_constants();
        let mut bound = generic_args(what, &item.generics, args, span, &self.scope, &constants, self.diagnostics)?;
        for generic in &item.generics {
            if let GenericKind::Const { default, .. } = &generic.kind
                && !bound.constants.contains_key(&generic.name)
            {
                let Some(value) = default else {
                    self.diagnostics.push(
                        Diagnostic::error(
                            dimensions::GENERIC_COUNT,
                            format!("`{what}` is missing the constant `{}`", generic.name),
                        )
                        .at(span, format!("pass it: `{what}<{} = ..>(..)`", generic.name)),
                    );
                    return None;
                };
                bound.constants.insert(generic.name.clone(), Constant::Literal(*value));
            }
        }
        Some(bound)
    }
}

pub(super) fn dim_name(generic: &Generic) -> Option<&String> {
    matches!(generic.kind, GenericKind::Dim { .. }).then_some(&generic.name)
}

/// Substitutes the caller's dimensions into a declared type.
pub(super) fn substitute(ty: &Type, rest: &[Axis], dims: &BTreeMap<String, Dim>, body: &Body<'_>) -> Option<Type> {
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
