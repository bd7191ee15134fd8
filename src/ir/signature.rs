//! What a module looks like from outside: entry points with their run-time dimensions and taps, in the order that
//! everything outside of the IR (plans, the runtime) uses.
//!
//! In: functions. Out: declarations, which stay with the code when the functions are gone.

use super::requirements::entry_checks;
use super::{ArgDecl, Function, Loc, Module, Op, ParamDecl, ResultDecl};
use crate::shape::{Dim, Fact, TensorType};

/// A step that callers may ask for.
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
    /// The extents of the arrays of layers on the path: which of its values a caller can ask for by themselves.
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

/// The entry points of a module.
pub fn entries(module: &Module) -> Vec<EntryDecl> {
    let plain = module.functions.iter().filter(|f| !f.tapped);
    let declared = plain.map(|f| EntryDecl {
        name: f.name.clone(),
        doc: f.doc.clone(),
        args: f.args.clone(),
        results: f.results.clone(),
        checks: entry_checks(module, &f.name),
        taps: module.functions.iter().find(|g| g.tapped && g.name == f.name).map(taps).unwrap_or_default(),
    });
    declared.collect()
}

/// The taps of a function, each once, in order of appearance.
pub fn taps(f: &Function) -> Vec<TapDecl> {
    let mut out: Vec<TapDecl> = Vec::new();
    for (_, _, inst) in f.insts() {
        let Op::Tap { name, extents } = &inst.op else { continue };
        let Some(ty) = inst.operands.first().and_then(|v| f.tensor(*v)) else { continue };
        if !out.iter().any(|t| t.name == *name) {
            out.push(TapDecl { name: name.clone(), extents: extents.clone(), ty: ty.clone() });
        }
    }
    out
}

/// Names of a function's run-time dimensions, in order of name.
pub fn run_time_dims(f: &Function) -> Vec<String> {
    symbols(&f.args, &f.results)
}

fn symbols(args: &[ArgDecl], results: &[ResultDecl]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let types = args.iter().map(|a| &a.ty).chain(results.iter().map(|r| &r.ty));
    for d in types.flat_map(|t| &t.shape) {
        names.extend(d.symbols().iter().map(|s| s.to_string()));
    }
    names.sort();
    names.dedup();
    names
}

/// The paths of a function's taps, each once, in order of appearance.
pub fn tap_patterns(f: &Function) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for (_, _, inst) in f.insts() {
        if let Op::Tap { name, .. } = &inst.op
            && !out.contains(name)
        {
            out.push(name.clone());
        }
    }
    out
}
