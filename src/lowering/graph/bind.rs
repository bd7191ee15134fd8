//! Selects the model to compile, binds its dimensions, checks its conditions, and collects its
//! parameters.
//!
//! In: a checked program and the options. Out: [`Bound`], from which all entry points are lowered.
//! All errors in the options are reported here.

use std::collections::BTreeMap;

use super::conditions::{Decision, decide};
use super::trains::{self, Trains};
use super::{LowerError, Options, Res};
use crate::diagnostics::codes::{dimensions, entries, parameters};
use crate::diagnostics::{Diagnostic, Diagnostics, did_you_mean};
use crate::ir::requirements::MAX_ELEMENTS;
use crate::ir::{ParamDecl, Scalar, StateDecl, tensors};
use crate::shape::{Dim, Fact, TensorType};
use crate::source::Span;
use crate::types::axes::Axis;
use crate::types::typed::{
    Constant, FieldType, Function, FunctionId, Generic, GenericKind, Instance, LayerId, LayerKind, Program, Tensor,
};

/// The most parameters (arrays of layers counted once).
const MAX_PARAMS: usize = 1 << 16;
/// The deepest nesting of layers.
const MAX_LAYERS: usize = 256;

/// A model with values for its dimensions.
pub(super) struct Bound {
    pub(super) model: LayerId,
    /// Generic dimensions of the model: numbers, or their own symbols where the arguments of a call
    /// bind them.
    pub(super) dims: BTreeMap<String, Dim>,
    pub(super) constants: BTreeMap<String, Scalar>,
    pub(super) signature_dims: BTreeMap<String, Dim>,
    /// Entry points, in source order.
    pub(super) entries: Vec<FunctionId>,
    /// Sorted by name.
    pub(super) params: Vec<ParamDecl>,
    /// States that a session keeps, sorted by name.
    pub(super) states: Vec<StateDecl>,
    /// The steps of each `train`.
    pub(super) trains: Trains,
    /// Conditions of the model that depend on run-time dimensions.
    pub(super) open: Vec<(Fact, Span)>,
}

/// Chooses the model and binds its dimensions.
pub(super) fn bind(program: &Program, options: &Options, diagnostics: &mut Diagnostics) -> Res<Bound> {
    let model = choose(program, options.model.as_deref(), diagnostics)?;
    let layer = program.layer(model);
    let entries: Vec<FunctionId> =
        layer.functions.iter().copied().filter(|id| program.function(*id).is_entry).collect();
    let mut bound = Bound {
        model,
        dims: BTreeMap::new(),
        constants: BTreeMap::new(),
        signature_dims: BTreeMap::new(),
        entries,
        params: Vec::new(),
        states: Vec::new(),
        trains: Trains::new(),
        open: Vec::new(),
    };
    let mut ok = true;
    for (name, value) in &options.dims {
        if *value < 0 {
            let message = format!("`{name}` cannot be {value}: a dimension is a number of elements, 0 or more");
            diagnostics.push(Diagnostic::error(entries::BOUND_VALUE, message));
            ok = false;
        }
    }
    for generic in &layer.generics {
        match &generic.kind {
            GenericKind::Dim { default } => {
                let value = match (options.dims.get(&generic.name), default) {
                    (Some(n), _) => Some(Dim::from(*n)),
                    (None, Some(default)) => default.substitute(&|name| bound.dims.get(name).cloned()),
                    (None, None) => Some(Dim::symbol(&generic.name)),
                };
                let Some(value) = value else {
                    let message = format!("the default of `{}` divides by zero", generic.name);
                    diagnostics.push(Diagnostic::error(dimensions::DIVISION_BY_ZERO, message).at(generic.span, ""));
                    return Err(LowerError::Reported);
                };
                bound.dims.insert(generic.name.clone(), value);
            }
            GenericKind::Const { elem: _, default } => match default {
                Some(value) => drop(bound.constants.insert(generic.name.clone(), *value)),
                None => {
                    let message = format!("the constant `{}` of model `{}` has no value", generic.name, layer.name);
                    diagnostics.push(
                        Diagnostic::error(entries::UNBOUND_GENERIC, message)
                            .at(generic.span, "no default")
                            .help(format!("give it a default: `{} = 1.0`", generic.name)),
                    );
                    ok = false;
                }
            },
            GenericKind::Elem(_) => {}
        }
    }
    fixed_by_equalities(&layer.equal, &mut bound.dims, |name| !options.dims.contains_key(name));
    signature_dims(program, options, &mut bound, diagnostics)?;
    for condition in &layer.conditions {
        match decide(condition, &bound.dims, diagnostics)? {
            Decision::Holds => {}
            Decision::Open(fact) => bound.open.push((fact, condition.span)),
            Decision::Fails => ok = false,
        }
    }
    if !ok {
        return Err(LowerError::Reported);
    }
    let mut params = BTreeMap::new();
    let mut states = BTreeMap::new();
    let root = Instance { layer: model, dims: bound.dims.clone(), constants: BTreeMap::new() };
    Params { program, diagnostics, params: &mut params, states: &mut states, model: &layer.name }.walk(
        &root,
        "",
        &[],
        0,
    )?;
    bound.params = params.into_values().map(|(decl, _)| decl).collect();
    bound.trains = trains::bind(program, model, &bound.params, &mut states, diagnostics)?;
    bound.states = states.into_iter().map(|(name, ty)| StateDecl { name, ty }).collect();
    Ok(bound)
}

fn choose(program: &Program, name: Option<&str>, diagnostics: &mut Diagnostics) -> Res<LayerId> {
    let models: Vec<(LayerId, &str)> =
        program.models().filter(|(_, l)| l.module.is_none()).map(|(id, l)| (id, l.name.as_str())).collect();
    let list = || models.iter().map(|(_, name)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let diagnostic = match (name, models.as_slice()) {
        (None, [(id, _)]) => return Ok(*id),
        (_, []) => {
            let diagnostic = Diagnostic::error(entries::NO_MODEL, "there is no model to compile");
            match program.layers.iter().find(|l| l.module.is_none() && l.kind == LayerKind::Layer) {
                Some(layer) => diagnostic.help(format!("declare `{}` with `model` to compile it", layer.name)),
                None => diagnostic.help("a program is compiled from a `model` with at least one `pub fn`"),
            }
        }
        (None, _) => Diagnostic::error(entries::WHICH_MODEL, format!("there are several models: {}", list()))
            .help("choose one: `--entry NAME`"),
        (Some(name), _) => {
            if let Some((id, _)) = models.iter().find(|(_, n)| *n == name) {
                return Ok(*id);
            }
            let diagnostic = Diagnostic::error(entries::WHICH_MODEL, format!("there is no model `{name}`"));
            match did_you_mean(name, models.iter().map(|(_, n)| *n)) {
                Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
                None => diagnostic.help(format!("the file has {}", list())),
            }
        }
    };
    diagnostics.push(diagnostic);
    Err(LowerError::Reported)
}

/// Dimension names of an entry point: from its arguments, its own generics, and the names that
/// its equalities define.
fn names_of(function: &Function) -> impl Iterator<Item = &str> {
    let is_dim = |generic: &&Generic| matches!(generic.kind, GenericKind::Dim { .. });
    let generics = function.generics.iter().filter(is_dim).map(|generic| generic.name.as_str());
    function.dims.iter().chain(function.equal.keys()).map(String::as_str).chain(generics)
}

/// Collects the bindings that are not generics of the model: dimensions of entry points.
fn signature_dims(
    program: &Program,
    options: &Options,
    bound: &mut Bound,
    diagnostics: &mut Diagnostics,
) -> Result<(), LowerError> {
    let layer = program.layer(bound.model);
    let of_entries: Vec<&str> = bound.entries.iter().flat_map(|id| names_of(program.function(*id))).collect();
    let mut ok = true;
    for (name, value) in &options.dims {
        if bound.dims.contains_key(name) {
            continue;
        }
        if of_entries.contains(&name.as_str()) {
            bound.signature_dims.insert(name.clone(), Dim::from(*value));
            continue;
        }
        ok = false;
        let is_element = |g: &Generic| g.name == *name && matches!(g.kind, GenericKind::Elem(_));
        let message = if layer.generics.iter().any(is_element) {
            format!("`{name}` is an element type of model `{}`, such as `bf16`, not a number", layer.name)
        } else if bound.constants.contains_key(name) {
            format!("`{name}` is a constant of model `{}`, not a dimension", layer.name)
        } else {
            format!("model `{}` has no dimension `{name}`", layer.name)
        };
        let mut known: Vec<&str> = bound.dims.keys().map(String::as_str).chain(of_entries.iter().copied()).collect();
        known.sort_unstable();
        known.dedup();
        let diagnostic = Diagnostic::error(entries::UNKNOWN_BINDING, message);
        diagnostics.push(match did_you_mean(name, known.iter().copied()) {
            Some(near) => diagnostic.help(format!("did you mean `--dim {near}={value}`?")),
            None if known.is_empty() => diagnostic.note("it has no dimensions at all"),
            None => diagnostic.note(format!("its dimensions are {}", known.join(", "))),
        });
    }
    if ok { Ok(()) } else { Err(LowerError::Reported) }
}

/// Replaces dimensions that are still symbolic, and that an equality fixes, by the other side of
/// the equality.
pub(super) fn fixed_by_equalities(
    equal: &BTreeMap<String, Dim>,
    dims: &mut BTreeMap<String, Dim>,
    is_free: impl Fn(&str) -> bool,
) {
    for (name, other) in equal {
        let unbound = dims.get(name).is_some_and(|dim| dim.as_symbol() == Some(name));
        // With numbers for the others a quotient may not be an integer: the equality then stays
        // open, and is rejected because it cannot hold.
        if unbound
            && is_free(name)
            && let Some(other) = other.substitute(&|symbol| dims.get(symbol).cloned())
        {
            dims.insert(name.clone(), other);
        }
    }
}

/// The walk over a model's fields that finds its parameters.
struct Params<'a> {
    program: &'a Program,
    diagnostics: &'a mut Diagnostics,
    params: &'a mut BTreeMap<String, (ParamDecl, Span)>,
    states: &'a mut BTreeMap<String, TensorType>,
    model: &'a str,
}

impl Params<'_> {
    fn walk(&mut self, instance: &Instance, path: &str, counts: &[u64], depth: usize) -> Res<()> {
        let layer = self.program.layer(instance.layer);
        for field in &layer.fields {
            if depth > MAX_LAYERS || self.params.len() > MAX_PARAMS {
                let message = format!("model `{}` has more than {MAX_PARAMS} parameters", self.model);
                self.diagnostics.push(Diagnostic::error(entries::PROGRAM_SIZE, message).at(field.span, ""));
                return Err(LowerError::Reported);
            }
            if field.stored_name.contains('*') {
                let message = "`*` cannot stand in the name of a tensor: it stands for the index of an array";
                self.diagnostics.push(Diagnostic::error(parameters::NAME_VALUE, message).at(field.span, ""));
                return Err(LowerError::Reported);
            }
            let path = join(path, &field.stored_name);
            match &field.ty {
                FieldType::Param(tensor) => {
                    let decl = self.param(instance, ("parameter", tensor), path, counts, field.span)?;
                    self.add(decl, field.span)?;
                }
                FieldType::State(tensor) => {
                    let decl = self.param(instance, ("state", tensor), path, counts, field.span)?;
                    let lengths = decl.counts.iter().map(|n| Dim::from(i64::try_from(*n).unwrap_or(i64::MAX)));
                    let shape: Vec<Dim> = lengths.chain(decl.ty.shape).collect();
                    if let Some(dim) = shape.iter().find(|d| d.as_const().is_none()) {
                        let message =
                            format!("the state `{}` has the dimension `{dim}`, which has no value", decl.name);
                        let diagnostic = Diagnostic::error(entries::UNBOUND_GENERIC, message).at(field.span, "");
                        let help = format!("give it a default, or bind it with `--dim {dim}=VALUE`");
                        self.diagnostics.push(diagnostic.help(help));
                        return Err(LowerError::Reported);
                    }
                    let ty = TensorType::new(decl.ty.elem, shape);
                    if self.states.contains_key(&decl.name) {
                        let message = format!("two states have the name `{}`", decl.name);
                        let diagnostic = Diagnostic::error(parameters::SAME_NAME, message);
                        let diagnostic = diagnostic.at(field.span, "the path of this one and its name make it");
                        self.diagnostics.push(diagnostic.help("give one of them another `#[name = \"...\"]`"));
                        return Err(LowerError::Reported);
                    }
                    self.states.insert(decl.name, ty);
                }
                FieldType::Layer(inner) => {
                    let inner = self.instance(instance, inner, field.span)?;
                    self.walk(&inner, &path, counts, depth + 1)?;
                }
                FieldType::Array(inner, length) => {
                    let length = self.dim(instance, length, field.span)?;
                    let count = self.number(&length, "parameter", field.span)?;
                    let inner = self.instance(instance, inner, field.span)?;
                    let counts: Vec<u64> = counts.iter().copied().chain([count]).collect();
                    self.walk(&inner, &join(&path, "*"), &counts, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    fn param(
        &mut self,
        at: &Instance,
        (what, tensor): (&str, &Tensor),
        name: String,
        counts: &[u64],
        span: Span,
    ) -> Res<ParamDecl> {
        let mut shape = Vec::new();
        let mut elements: i128 = 1;
        for axis in &tensor.shape.axes {
            let Axis::Dim(dim) = axis else {
                return Err(LowerError::Bug(format!("{what} `{name}` has `..` in its shape")));
            };
            let dim = self.dim(at, dim, span)?;
            let n = self.number(&dim, what, span)?;
            elements = elements.saturating_mul(i128::from(n));
            shape.push(dim);
        }
        let all = counts.iter().fold(elements, |all, n| all.saturating_mul(i128::from(*n)));
        if elements > MAX_ELEMENTS || all > MAX_ELEMENTS {
            let message = format!("{what} `{name}` has {all} elements; at most 2^40 are possible");
            self.diagnostics.push(Diagnostic::error(entries::TENSOR_SIZE, message).at(span, ""));
            return Err(LowerError::Reported);
        }
        Ok(ParamDecl { name, counts: counts.to_vec(), ty: TensorType::new(tensor.elem, shape) })
    }

    fn add(&mut self, decl: ParamDecl, span: Span) -> Res<()> {
        let name = decl.name.clone();
        if let Err(message) = tensors(std::slice::from_ref(&decl)) {
            self.diagnostics.push(Diagnostic::error(entries::PROGRAM_SIZE, message).at(span, ""));
            return Err(LowerError::Reported);
        }
        if let Some((_, first)) = self.params.get(&name) {
            let message = format!("two fields are `{name}` in the weights file");
            let diagnostic = Diagnostic::error(parameters::SAME_NAME, message)
                .at(span, "this one")
                .also(*first, "and this one")
                .help("a tensor that is used twice is one field");
            self.diagnostics.push(diagnostic);
            return Err(LowerError::Reported);
        }
        self.params.insert(name, (decl, span));
        Ok(())
    }

    fn instance(&mut self, owner: &Instance, inner: &Instance, span: Span) -> Res<Instance> {
        let mut dims = BTreeMap::new();
        for (name, dim) in &inner.dims {
            dims.insert(name.clone(), self.dim(owner, dim, span)?);
        }
        Ok(Instance { layer: inner.layer, dims, constants: BTreeMap::new() })
    }

    fn dim(&mut self, at: &Instance, dim: &Dim, span: Span) -> Res<Dim> {
        match dim.substitute(&|name| at.dims.get(name).cloned()) {
            Some(dim) => Ok(dim),
            None => {
                let message = format!("`{dim}` divides by zero with the values that are bound");
                self.diagnostics.push(Diagnostic::error(dimensions::DIVISION_BY_ZERO, message).at(span, ""));
                Err(LowerError::Reported)
            }
        }
    }

    /// The value of a dimension that sizes a parameter or a state.
    fn number(&mut self, dim: &Dim, what: &str, span: Span) -> Res<u64> {
        if let Some(n) = dim.as_const().and_then(|n| u64::try_from(n).ok()) {
            return Ok(n);
        }
        let symbols = dim.symbols();
        let diagnostic = match symbols.first() {
            None => Diagnostic::error(
                entries::BOUND_VALUE,
                format!("with the values that are bound, a dimension would be {dim}"),
            )
            .at(span, "in here"),
            Some(name) => Diagnostic::error(
                entries::UNBOUND_GENERIC,
                format!("`{name}` of model `{}` has no value, and it sizes a {what}", self.model),
            )
            .at(span, "sized here")
            .help(format!("give it a default, or bind it with `--dim {name}=VALUE`")),
        };
        self.diagnostics.push(diagnostic);
        Err(LowerError::Reported)
    }
}

/// Appends a component to a path.
pub(super) fn join(path: &str, part: &str) -> String {
    if path.is_empty() { part.to_string() } else { format!("{path}.{part}") }
}

/// The value of a generic constant in the scope of its instantiation.
pub(super) fn constant(value: &Constant, around: &BTreeMap<String, Scalar>) -> Res<Scalar> {
    match value {
        Constant::Literal(scalar) => Ok(*scalar),
        Constant::Generic(name) => {
            around.get(name).copied().ok_or_else(|| LowerError::Bug(format!("the constant `{name}` has no value")))
        }
    }
}
