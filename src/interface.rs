//! The interface of a compiled module: declarations of its parameters, entry points and taps, the same for both IRs.
//!
//! In: nothing but names, types and facts. Out: the declarations, which outlive the functions that they were read off: tile
//! modules carry them, and the descriptor of the library is made of them. Nothing here knows of bodies or operations.

use std::borrow::Cow;

use crate::shape::{Dim, Fact, TensorType};
use crate::source::Loc;

/// An argument of an entry point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgDecl {
    /// Name in the program.
    pub name: String,
    /// Its type.
    pub ty: TensorType,
    /// Is its first axis the flattened `..` of the source: any number of leading axes, collapsed on entry?
    pub batch: bool,
}

/// A result of an entry point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultDecl {
    /// Its type.
    pub ty: TensorType,
    /// Is its first axis the flattened `..`?
    pub batch: bool,
}

/// A parameter of a model: one tensor, or as many as the arrays of layers on its path have elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamDecl {
    /// Its path in a weights file, with `*` for each array index.
    pub name: String,
    /// Extents of the arrays, outermost first; one for each `*`.
    pub counts: Vec<u64>,
    /// Type of each tensor.
    pub ty: TensorType,
}

/// What a session of a model keeps between calls; zero when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDecl {
    /// Its path in the model, with `*` for each array of layers.
    pub name: String,
    /// Its type: the extents of the arrays on its path, then its own; all of them numbers.
    pub ty: TensorType,
}

/// The parameter of this name. They are in order of name, so that one of many layers is found in few steps; a text that
/// has them otherwise is gone through.
pub fn param_named<'a>(params: &'a [ParamDecl], name: &str) -> Option<&'a ParamDecl> {
    let found = params.binary_search_by(|p| p.name.as_str().cmp(name));
    match found {
        Ok(at) => params.get(at),
        Err(_) => params.iter().find(|p| p.name == name),
    }
}

/// A step that callers may request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TapDecl {
    /// Its path, `*` for each index into an array of layers.
    pub name: String,
    /// The extents of those arrays, then those of the loops over which it is stacked.
    pub extents: Vec<Dim>,
    /// Type of each value.
    pub ty: TensorType,
}

impl TapDecl {
    /// The extents of the arrays of layers on the path: which of its values a caller can request by themselves.
    pub fn arrays(&self) -> &[Dim] {
        self.extents.get(..arrays_of(&self.name)).unwrap_or(&self.extents)
    }
}

/// How many arrays of layers are on the path of a parameter or tap.
pub fn arrays_of(path: &str) -> usize {
    path.matches('*').count()
}

/// An entry point without its body.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EntryDecl {
    /// Its name.
    pub name: String,
    /// Its documentation.
    pub doc: String,
    /// Its arguments.
    pub args: Vec<ArgDecl>,
    /// Its results.
    pub results: Vec<ResultDecl>,
    /// What a call checks on entry: what is stated, and what the function needs beyond that, each with the place of
    /// what states or needs it.
    pub checks: Vec<(Fact, Loc)>,
    /// Its taps, each once, in order of appearance.
    pub taps: Vec<TapDecl>,
    /// Does a call change what the session keeps? Then the next call goes on from there.
    pub sets_states: bool,
}

impl EntryDecl {
    /// Names of its run-time dimensions, in order of name.
    pub fn run_time_dims(&self) -> Vec<String> {
        symbols(&self.args, &self.results)
    }
}

/// Tensors that the parameters of a model may be, all layers counted: what opens a model finds each by its name.
pub const MOST_TENSORS: u64 = 1 << 20;

/// The tensors of parameters, or what is wrong with their number.
///
/// # Errors
/// More than [`MOST_TENSORS`], in words.
pub fn tensors(params: &[ParamDecl]) -> Result<u64, String> {
    let mut all = 0u64;
    for p in params {
        let own = p.counts.iter().fold(1u64, |n, count| n.saturating_mul(*count));
        all = all.saturating_add(own);
        if all > MOST_TENSORS {
            let layers = p.counts.iter().max().copied().unwrap_or(1);
            let cause = match own {
                0 | 1 => format!("`{}` is one more", p.name),
                _ => format!("`{}` has {own}, in arrays of up to {layers} layers", p.name),
            };
            return Err(format!(
                "the model has more than {MOST_TENSORS} tensors, which is the most that is possible: {cause}"
            ));
        }
    }
    Ok(all)
}

/// The most axes of an argument, result or tap: those that a call can tell its caller.
pub const MOST_AXES: usize = 64;

/// Can these entry points be called?
///
/// # Errors
/// One with a tensor of more than [`MOST_AXES`] axes, in words.
pub fn axes(entries: &[EntryDecl]) -> Result<(), String> {
    for f in entries {
        let args = f.args.iter().map(|a| (format!("the argument `{}` of `{}`", a.name, f.name), &a.ty, a.batch));
        let results = f.results.iter().enumerate();
        let results = results.map(|(i, r)| (format!("result {i} of `{}`", f.name), &r.ty, r.batch));
        for (what, ty, batch) in args.chain(results) {
            let axes = ty.rank() - usize::from(batch);
            if axes > MOST_AXES {
                return Err(format!("{what} has {axes} axes; calls support up to {MOST_AXES}"));
            }
        }
        let axes = |t: &TapDecl| t.ty.rank() + t.extents.len();
        if let Some(t) = f.taps.iter().find(|t| axes(t) > MOST_AXES) {
            return Err(format!("the tap `{}` has {} axes; calls support up to {MOST_AXES}", t.name, axes(t)));
        }
    }
    Ok(())
}

/// Names of the run-time dimensions in the types of arguments and results, in order of name.
pub fn symbols(args: &[ArgDecl], results: &[ResultDecl]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let types = args.iter().map(|a| &a.ty).chain(results.iter().map(|r| &r.ty));
    for d in types.flat_map(|t| &t.shape) {
        names.extend(d.symbols().iter().map(|s| s.to_string()));
    }
    names.sort();
    names.dedup();
    names
}

/// What callers see of a module, whichever IR it is in.
#[derive(Clone, Debug)]
pub struct Interface<'a> {
    /// Its parameters.
    pub params: &'a [ParamDecl],
    /// Its states.
    pub states: &'a [StateDecl],
    /// Its entry points.
    pub entries: Cow<'a, [EntryDecl]>,
    /// The name of its own file.
    pub file: &'a str,
    /// The names of the others, for locations in them.
    pub files: &'a [String],
}
