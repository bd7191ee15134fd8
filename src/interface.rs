//! The interface of a compiled module: declarations of its parameters, entry points and taps, the
//! same for both IRs.
//!
//! In: names, types and facts. Out: the declarations, which outlive the functions that they
//! describe: tile modules carry them, and the library's descriptor is built from them. It knows no
//! bodies or operations.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::diagnostics::did_you_mean;
use crate::shape::{Dim, Fact, TensorType};
use crate::source::Loc;

/// An argument of an entry point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgDecl {
    /// Name in the program.
    pub name: String,
    /// Its extents may contain run-time dimensions.
    pub ty: TensorType,
    /// Is its first axis the flattened `..` of the source: any number of leading axes, collapsed on
    /// entry?
    pub batch: bool,
}

/// A result of an entry point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultDecl {
    /// Its extents may contain run-time dimensions.
    pub ty: TensorType,
    /// Is its first axis the flattened `..` of the source?
    pub batch: bool,
}

/// A parameter of a model: one tensor, or one for each element of the arrays of layers on its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamDecl {
    /// Its path in a weights file, with `*` for each array index.
    pub name: String,
    /// Extents of the arrays, outermost first; one for each `*`.
    pub counts: Vec<u64>,
    /// Type of each tensor.
    pub ty: TensorType,
}

impl ParamDecl {
    /// The type of all its tensors, stacked along the arrays.
    pub fn stacked(&self) -> TensorType {
        let counts = self.counts.iter().map(|n| Dim::from(i64::try_from(*n).unwrap_or(i64::MAX)));
        TensorType::new(self.ty.elem, counts.chain(self.ty.shape.iter().cloned()).collect::<Vec<Dim>>())
    }
}

/// A value that a session keeps between calls. It is zero when the session begins; a state with the
/// name of a parameter has the values of that parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDecl {
    /// Its path in the model, with `*` for each array of layers.
    pub name: String,
    /// The extents of the arrays on its path, then its own; all are constants.
    pub ty: TensorType,
}

/// The parameter with this name. They are normally sorted by name, which allows a binary search; a
/// text may list them in any order, and is then searched linearly.
pub fn param_named<'a>(params: &'a [ParamDecl], name: &str) -> Option<&'a ParamDecl> {
    let found = params.binary_search_by(|p| p.name.as_str().cmp(name));
    match found {
        Ok(at) => params.get(at),
        Err(_) => params.iter().find(|p| p.name == name),
    }
}

/// Does a path match a pattern? `*` matches any string.
pub fn matches(pattern: &str, path: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| path.strip_prefix(first)) else { return false };
    let mut rest = rest;
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Maximum number of names in a message.
const MAX_NAMES: usize = 8;

/// A suggestion for a pattern that matches no parameter.
pub fn meant_by(pattern: &str, params: &[ParamDecl]) -> String {
    let names = || params.iter().map(|p| p.name.as_str());
    if let Some(near) = did_you_mean(pattern, names()) {
        return format!("; did you mean `{near}`?");
    }
    // Replaces a word that occurs in no name by the closest one that does.
    let known: BTreeSet<&str> =
        names().flat_map(|name| name.split(['.', '*'])).filter(|word| !word.is_empty()).collect();
    let wrong = pattern.split(['.', '*']).filter(|word| !word.is_empty() && !names().any(|name| name.contains(word)));
    for word in wrong {
        if let Some(near) = did_you_mean(word, known.iter().copied()) {
            return format!("; did you mean `{}`?", pattern.replacen(word, near, 1));
        }
    }
    let listed: Vec<String> = names().take(MAX_NAMES).map(|name| format!("`{name}`")).collect();
    let more = if params.len() > MAX_NAMES { ", ..." } else { "" };
    if listed.is_empty() {
        ": the model has none".to_string()
    } else {
        format!("; there is {}{more}", listed.join(", "))
    }
}

/// An intermediate value that callers may request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TapDecl {
    /// Its path, with `*` for each index into an array of layers.
    pub name: String,
    /// The extents of the arrays on its path, then of the loops over which it is stacked.
    pub extents: Vec<Dim>,
    /// Type of each value.
    pub ty: TensorType,
}

impl TapDecl {
    /// The extents of the arrays of layers on the path; a caller can request each of their values
    /// separately.
    pub fn arrays(&self) -> &[Dim] {
        self.extents.get(..arrays_of(&self.name)).unwrap_or(&self.extents)
    }
}

/// The number of arrays of layers on the path of a parameter or tap.
pub fn arrays_of(path: &str) -> usize {
    path.matches('*').count()
}

/// An entry point without its body.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EntryDecl {
    /// Unique in the module.
    pub name: String,
    /// Doc comment of the source.
    pub doc: String,
    /// In the order of the signature.
    pub args: Vec<ArgDecl>,
    /// In the order of the signature.
    pub results: Vec<ResultDecl>,
    /// The checks of a call on entry: stated facts, and facts that the function requires beyond
    /// them, each with the location that states or requires it.
    pub checks: Vec<(Fact, Loc)>,
    /// Without duplicates, in order of appearance.
    pub taps: Vec<TapDecl>,
    /// Can a call change the session? Then the next call continues from the new state.
    pub sets_states: bool,
}

impl EntryDecl {
    /// Names of its run-time dimensions, sorted.
    pub fn run_time_dims(&self) -> Vec<String> {
        symbols(&self.args, &self.results)
    }
}

/// The maximum number of tensors of a model, all layers counted: a model is opened by looking up
/// each by name.
pub const MAX_TENSORS: u64 = 1 << 20;

/// The total number of tensors of these parameters.
///
/// # Errors
/// A message if there are more than [`MAX_TENSORS`].
pub fn tensors(params: &[ParamDecl]) -> Result<u64, String> {
    let mut all = 0u64;
    for p in params {
        let own = p.counts.iter().fold(1u64, |n, count| n.saturating_mul(*count));
        all = all.saturating_add(own);
        if all > MAX_TENSORS {
            let layers = p.counts.iter().max().copied().unwrap_or(1);
            let cause = match own {
                0 | 1 => format!("`{}` is one more", p.name),
                _ => format!("`{}` has {own}, in arrays of up to {layers} layers", p.name),
            };
            return Err(format!("the model has more than {MAX_TENSORS} tensors, the maximum: {cause}"));
        }
    }
    Ok(all)
}

/// The maximum number of axes of an argument, result or tap that the calling convention supports.
pub const MAX_AXES: usize = 64;

/// Checks that these entry points can be called.
///
/// # Errors
/// A message about a tensor with more than [`MAX_AXES`] axes.
pub fn axes(entries: &[EntryDecl]) -> Result<(), String> {
    for f in entries {
        let args = f.args.iter().map(|a| (format!("the argument `{}` of `{}`", a.name, f.name), &a.ty, a.batch));
        let results = f.results.iter().enumerate();
        let results = results.map(|(i, r)| (format!("result {i} of `{}`", f.name), &r.ty, r.batch));
        for (what, ty, batch) in args.chain(results) {
            let axes = ty.rank() - usize::from(batch);
            if axes > MAX_AXES {
                return Err(format!("{what} has {axes} axes; calls support up to {MAX_AXES}"));
            }
        }
        let axes = |t: &TapDecl| t.ty.rank() + t.extents.len();
        if let Some(t) = f.taps.iter().find(|t| axes(t) > MAX_AXES) {
            return Err(format!("the tap `{}` has {} axes; calls support up to {MAX_AXES}", t.name, axes(t)));
        }
    }
    Ok(())
}

/// Names of the run-time dimensions in the types of arguments and results, sorted.
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

/// The part of a module that callers see, for either IR.
#[derive(Clone, Debug)]
pub struct Interface<'a> {
    /// Sorted by name.
    pub params: &'a [ParamDecl],
    /// Empty for a model without sessions.
    pub states: &'a [StateDecl],
    /// In the order of the source.
    pub entries: Cow<'a, [EntryDecl]>,
    /// The name of the module's own file.
    pub file: &'a str,
    /// The names of other files, for locations in them.
    pub files: &'a [String],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_any_text() {
        for (pattern, path, fits) in [
            ("a.b", "a.b", true),
            ("a.b", "a.bc", false),
            ("*", "h.3.attn.weights", true),
            ("h.*.attn.weights", "h.11.attn.weights", true),
            ("h.*.attn.weights", "h.11.attn.scores", false),
            ("*weights", "weights", true),
            ("h.*.*", "h.1.x", true),
            ("h.*.*x", "h.x", false),
        ] {
            assert_eq!(matches(pattern, path), fits, "{pattern} {path}");
        }
    }
}
