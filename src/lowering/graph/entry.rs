//! Entry points: their arguments, results and checks on entry, and the module that holds them all.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::bind::{Bound, fixed_by_equalities};
use super::builder::{Builder, Files, State};
use super::conditions::{Decision, decide};
use super::frame::{Frame, LayerInstance, Local};
use super::{LowerError, Res};
use crate::diagnostics::codes::{dimensions, entries};
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::interface::param_named;
use crate::ir::requirements::lengths;
use crate::ir::{ArgDecl, Function, Module, Op, ResultDecl, Terminator, Type};
use crate::shape::{Dim, Fact, Relation, TensorType};
use crate::source::{SourceMap, Span};
use crate::types::typed::{self, Condition, FunctionId, GenericKind, Program};

/// Lowers every entry point of a bound model.
pub(super) fn module(
    program: &Program,
    sources: &SourceMap,
    bound: &Bound,
    diagnostics: &mut Diagnostics,
) -> Res<Module> {
    let main = program.layer(bound.model).span.file;
    let mut files = Files::new(main);
    let mut functions = Vec::new();
    let mut failed = None;
    for id in &bound.entries {
        let mut lower = |with_taps: bool| lower(program, sources, bound, &mut files, *id, with_taps, diagnostics);
        // An error in one entry point must not hide errors in another.
        match lower(false) {
            Ok((function, has_taps)) => {
                functions.push(function);
                if has_taps {
                    match lower(true) {
                        Ok((tapped, _)) => functions.push(tapped),
                        Err(failure) => failed = Some(failure),
                    }
                }
            }
            Err(LowerError::Reported) => failed = failed.or(Some(LowerError::Reported)),
            Err(LowerError::Bug(text)) => return Err(LowerError::Bug(text)),
        }
    }
    if let Some(failure) = failed {
        return Err(failure);
    }
    Ok(Module {
        name: sources.get(main).map_or(String::new(), |file| file.base_name().to_string()),
        files: files.names(sources),
        model: program.layer(bound.model).name.clone(),
        doc: program.layer(bound.model).docs.clone(),
        params: bound.params.clone(),
        states: bound.states.clone(),
        functions,
    })
}

/// Lowers one entry point; also returns whether it has taps.
fn lower(
    program: &Program,
    sources: &SourceMap,
    bound: &Bound,
    files: &mut Files,
    id: FunctionId,
    with_taps: bool,
    diagnostics: &mut Diagnostics,
) -> Res<(Function, bool)> {
    let function = program.function(id);
    let mut builder = Builder::new(program, sources, diagnostics, files, &function.name);
    builder.with_taps = with_taps;
    builder.trains.clone_from(&bound.trains);
    builder.f.doc.clone_from(&function.docs);
    builder.f.tapped = with_taps;
    let place = LayerInstance::model(bound.model, bound.dims.clone(), bound.constants.clone());
    let mut frame = Frame::new(function, Some(Rc::new(place)));
    for name in &function.dims {
        let dim = bound.signature_dims.get(name).cloned().unwrap_or_else(|| Dim::symbol(name));
        frame.dims.insert(name.clone(), dim);
    }
    own_generics(&mut builder, &mut frame, bound)?;
    fixed_by_equalities(&function.equal, &mut frame.dims, |name| !bound.signature_dims.contains_key(name));
    let mut bound_equalities = Vec::new();
    for (name, other) in &function.equal {
        // For a generic, the where clause itself is checked.
        if let Some(value) = bound.signature_dims.get(name)
            && !frame.dims.contains_key(name)
        {
            frame.dims.insert(name.clone(), value.clone());
            let fact = Fact { left: other.clone(), relation: Relation::Eq, right: Dim::symbol(name) };
            bound_equalities.push(Condition { fact, span: function.span, through: Vec::new() });
        }
    }
    frame.rest = vec![Dim::symbol(&unused(&frame.dims, "batch"))];
    let dims = frame.dims.values().chain(&frame.rest).flat_map(Dim::symbols);
    builder.taken = dims.map(|s| s.to_string()).collect();
    arguments(&mut builder, &mut frame)?;
    conditions(&mut builder, &frame, bound, &bound_equalities)?;

    for state in &bound.states {
        let op = Op::State { name: state.name.clone() };
        let value = builder.emit(op, Vec::new(), Some(Type::Tensor(state.ty.clone())), function.span)?;
        let is_parameter = param_named(&bound.params, &state.name).is_some();
        builder.states.push(State { name: state.name.clone(), value, before: value, is_parameter });
    }
    let value = builder.inline(id, &mut frame, function.span)?;
    let values = builder.flatten(&value, function.span)?;
    for (value, batch) in values.iter().zip(batches(&function.result)) {
        let ty = builder.tensor(*value, function.span)?;
        builder.f.results.push(ResultDecl { ty, batch });
    }
    for state in std::mem::take(&mut builder.states) {
        if state.value != state.before {
            builder.effect(Op::SetState { name: state.name }, vec![state.value], function.span)?;
        }
    }
    let block = builder.block;
    builder.f.terminate(block, Terminator::Return(values));
    every_dimension_is_bound(&mut builder, bound, function)?;
    Ok((builder.f, !builder.taps.is_empty()))
}

/// Binds the generics of the entry point itself: given values, defaults, or their own symbols where
/// arguments bind them.
fn own_generics(builder: &mut Builder, frame: &mut Frame, bound: &Bound) -> Res<()> {
    for generic in &frame.function.generics {
        let name = &generic.name;
        match &generic.kind {
            GenericKind::Dim { default } => {
                let value = match (bound.signature_dims.get(name), default) {
                    (Some(value), _) => Some(value.clone()),
                    (None, Some(default)) => default.substitute(&|symbol| frame.dims.get(symbol).cloned()),
                    (None, None) => Some(Dim::symbol(name)),
                };
                let Some(value) = value else {
                    let message = format!("the default of `{name}` divides by zero");
                    let diagnostic = Diagnostic::error(dimensions::DIVISION_BY_ZERO, message).at(generic.span, "");
                    return Err(builder.report(diagnostic));
                };
                frame.dims.insert(name.clone(), value);
            }
            GenericKind::Const { default: Some(value), .. } => drop(frame.constants.insert(name.clone(), *value)),
            GenericKind::Const { default: None, .. } => {
                let message = format!("the constant `{name}` of `{}` has no value", frame.function.name);
                let diagnostic = Diagnostic::error(entries::UNBOUND_GENERIC, message)
                    .at(generic.span, "no default")
                    .help(format!("give it a default: `{name} = 1.0`"));
                return Err(builder.report(diagnostic));
            }
            GenericKind::Elem(_) => {}
        }
    }
    Ok(())
}

fn arguments(builder: &mut Builder, frame: &mut Frame) -> Res<()> {
    let entry = builder.f.entry();
    for param in &frame.function.params {
        let local = frame.function.local(param.local);
        let typed::Type::Tensor(tensor) = &local.ty else {
            return Err(builder.bug(local.span, "an argument of an entry point is not a tensor"));
        };
        let batch = match tensor.shape.rest() {
            None => false,
            Some(0) => true,
            Some(_) => {
                let message = format!("`..` of the argument `{}` must come first in an entry point", local.name);
                let diagnostic = Diagnostic::error(dimensions::REST_PLACE, message).at(local.span, "");
                return Err(builder.report(diagnostic));
            }
        };
        let ty = builder.tensor_type(tensor, &frame.dims, &frame.rest, local.span)?;
        builder.check_size(&ty, local.span)?;
        builder.f.args.push(ArgDecl { name: local.name.clone(), ty: ty.clone(), batch });
        let value = builder.f.add_block_arg(entry, Type::Tensor(ty));
        frame.set(param.local, Local::Tensor(value));
    }
    Ok(())
}

/// Evaluates the conditions of the entry point; conditions of the model that are still open become
/// entry checks.
fn conditions(builder: &mut Builder, frame: &Frame, bound: &Bound, equalities: &[Condition]) -> Res<()> {
    let mut ok = true;
    for (fact, span) in &bound.open {
        builder.require(fact.clone(), *span);
    }
    // A condition on a dimension that gets its value later is checked there.
    let own = frame.function.conditions.iter().filter(|c| !c.fact.names_any(&frame.function.lengths));
    for condition in own.chain(equalities) {
        match decide(condition, &frame.dims, builder.diagnostics)? {
            Decision::Holds => {}
            Decision::Open(fact) => builder.require(fact, condition.span),
            Decision::Fails => ok = false,
        }
    }
    if ok { Ok(()) } else { Err(LowerError::Reported) }
}

/// For each tensor of a result: does it begin with `..`?
fn batches(ty: &typed::Type) -> Vec<bool> {
    match ty {
        typed::Type::Tensor(tensor) => vec![tensor.shape.rest() == Some(0)],
        typed::Type::Tuple(parts) => parts.iter().flat_map(batches).collect(),
    }
}

/// A dimension name that is not in use.
fn unused(dims: &BTreeMap<String, Dim>, wanted: &str) -> String {
    let taken = |name: &str| {
        dims.contains_key(name) || dims.values().any(|dim| dim.symbols().iter().any(|symbol| **symbol == *name))
    };
    let mut name = wanted.to_string();
    while taken(&name) {
        name.push('_');
    }
    name
}

/// Reports dimensions that no argument's shape determines.
fn every_dimension_is_bound(builder: &mut Builder, bound: &Bound, function: &typed::Function) -> Res<()> {
    let span = function.span;
    let by_arguments: Vec<String> = builder
        .f
        .args
        .iter()
        .flat_map(|arg| arg.ty.shape.iter().filter_map(|dim| dim.as_linear().map(|(name, ..)| name.to_string())))
        .chain(lengths(&builder.f).into_iter().map(|length| length.name.to_string()))
        .collect();
    let mut used: Vec<(String, Span)> = Vec::new();
    let mut add = |dim: &Dim| used.extend(dim.symbols().iter().map(|s| (s.to_string(), span)));
    let mut tensor = |ty: &TensorType| ty.shape.iter().for_each(&mut add);
    for arg in &builder.f.args {
        tensor(&arg.ty);
    }
    for (_, _, inst) in builder.f.insts() {
        if let Some(Type::Tensor(ty)) = inst.result.map(|value| builder.f.ty(value)) {
            tensor(ty);
        }
        match &inst.op {
            Op::DimValue(dim) => tensor(&TensorType::new(crate::shape::Elem::I64, vec![dim.clone()])),
            Op::Slice { start, stop, .. } => {
                tensor(&TensorType::new(crate::shape::Elem::I64, vec![start.clone(), stop.clone()]));
            }
            _ => {}
        }
    }
    for (fact, _) in &builder.f.checks {
        tensor(&TensorType::new(crate::shape::Elem::I64, vec![fact.left.clone(), fact.right.clone()]));
    }
    let Some((name, _)) = used.into_iter().find(|(name, _)| !by_arguments.contains(name)) else { return Ok(()) };
    let model = builder.program.layer(bound.model);
    let generic = model.generics.iter().find(|g| g.name == name && matches!(g.kind, GenericKind::Dim { .. }));
    let entry = builder.f.name.clone();
    let diagnostic = match generic {
        Some(generic) => Diagnostic::error(
            entries::UNBOUND_GENERIC,
            format!("`{name}` of model `{}` has no value, and no argument of `{entry}` gives it one", model.name),
        )
        .at(generic.span, "no default")
        .help(format!("give it a default, or bind it with `--dim {name}=VALUE`")),
        None => Diagnostic::error(
            dimensions::NOT_INFERRED,
            format!("the arguments of `{entry}` do not give `{name}` a value"),
        )
        .at(function.generics.iter().find(|generic| generic.name == name).map_or(span, |generic| generic.span), "")
        .help(format!("an argument with an axis of length `{name}`, or `--dim {name}=VALUE`, would do")),
    };
    Err(builder.report(diagnostic))
}
