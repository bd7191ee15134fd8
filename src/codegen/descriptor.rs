//! From the interface of a module to the descriptor of a model: entry points, arguments, run-time
//! dimensions, parameters.
//!
//! In: the declarations of parameters and entry points. Out: the runtime's [`ModelDescriptor`],
//! without the code (`variants`) and the error sites, which the back end adds. It looks at
//! signatures alone.

use crate::interface::{EntryDecl, Interface, TapDecl};
use crate::runtime::descriptor::{Check, Comparison, DimText, Entry, ModelDescriptor, Param, Symbol, Tap, Tensor};
use crate::runtime::expr::Expr;
use crate::shape::{Dim, Fact, Relation, TensorType};

/// Describes a model. `model` is its name, `doc` its documentation, `target` a target triple.
///
/// # Errors
/// A parameter with a dimension that is not a constant, or a run-time dimension that no argument
/// binds.
pub fn describe(interface: &Interface<'_>, model: &str, doc: &str, target: &str) -> Result<ModelDescriptor, String> {
    let mut params = Vec::new();
    for p in interface.params {
        if let Some(d) = p.ty.shape.iter().find(|d| d.as_const().is_none()) {
            return Err(format!("the dimension {d} of the parameter {} is not known; bind it with --dim", p.name));
        }
        params.push(Param {
            pattern: p.name.clone(),
            extents: p.counts.clone(),
            elem: p.ty.elem,
            dims: p.ty.shape.iter().cloned().map(DimText::canonical).collect(),
        });
    }
    let mut states = Vec::new();
    for s in interface.states {
        if let Some(d) = s.ty.shape.iter().find(|d| d.as_const().is_none()) {
            return Err(format!("the dimension {d} of the state {} is not known; bind it with --dim", s.name));
        }
        let dims = s.ty.shape.iter().cloned().map(DimText::canonical).collect();
        states.push(Tensor { name: s.name.clone(), elem: s.ty.elem, batch: false, dims });
    }
    let entries = interface.entries.iter().map(|e| entry(e, interface)).collect::<Result<_, _>>()?;
    Ok(ModelDescriptor {
        name: model.to_string(),
        doc: doc.to_string(),
        target: target.to_string(),
        params,
        states,
        entries,
        ..ModelDescriptor::default()
    })
}

fn entry(f: &EntryDecl, interface: &Interface<'_>) -> Result<Entry, String> {
    let names = f.run_time_dims();
    let batch = f.args.iter().find(|a| a.batch).and_then(|a| a.ty.shape.first()).and_then(|d| d.as_symbol());
    let mut symbols = Vec::new();
    for name in &names {
        symbols.push(binding(f, name, batch == Some(name))?);
    }
    let mut checks = Vec::new();
    for (fact, loc) in &f.checks {
        let place = if loc.line == 0 { String::new() } else { loc.text(interface.file, interface.files) };
        checks.push(check(fact, place, &names)?);
    }
    let several = f.results.len() > 1;
    let results = f.results.iter().enumerate().map(|(i, r)| {
        let name = if several { format!("result.{i}") } else { "result".to_string() };
        tensor(&name, &r.ty, r.batch)
    });
    Ok(Entry {
        name: f.name.clone(),
        doc: f.doc.clone(),
        signature: signature(f),
        symbols,
        batch_symbol: batch.and_then(|b| names.iter().position(|n| n == b)),
        args: f.args.iter().map(|a| tensor(&a.name, &a.ty, a.batch)).collect(),
        checks,
        results: results.collect(),
        taps: f.taps.iter().map(|t| tap(t, batch)).collect(),
        sets_states: f.sets_states,
    })
}

/// A condition on run-time dimensions, in the form that calls check.
///
/// # Errors
/// A dimension whose expression is too large.
pub(super) fn check(fact: &Fact, place: String, names: &[impl AsRef<str>]) -> Result<Check, String> {
    let expr = |d: &Dim| Expr::from_dim(d, names).ok_or_else(|| format!("the dimension {d} is too large to evaluate"));
    let Fact { left, relation, right } = fact;
    let (left, right) = (expr(left)?, expr(right)?);
    let (left, comparison, right) = match relation {
        Relation::Eq => (left, Comparison::Eq, right),
        Relation::Ne => (left, Comparison::Ne, right),
        Relation::Le => (left, Comparison::Le, right),
        Relation::Lt => (left, Comparison::Lt, right),
        Relation::Divisible => (left.modulo(right), Comparison::Eq, Expr::constant(0)),
    };
    Ok(Check { left, comparison, right, text: fact.to_string(), place })
}

fn tensor(name: &str, ty: &TensorType, batch: bool) -> Tensor {
    let dims = ty.shape.iter().skip(usize::from(batch)).cloned().map(DimText::canonical).collect();
    Tensor { name: name.to_string(), elem: ty.elem, batch, dims }
}

/// The first argument axis whose extent is `c * symbol + k`; a bare symbol is preferred.
fn binding(f: &EntryDecl, name: &str, is_batch: bool) -> Result<Symbol, String> {
    let mut best: Option<Symbol> = None;
    for (arg, a) in f.args.iter().enumerate() {
        for (i, d) in a.ty.shape.iter().enumerate() {
            let Some((symbol, scale, offset)) = d.as_linear() else { continue };
            let better = best.as_ref().is_none_or(|b| (b.scale, b.offset) != (1, 0) && (scale, offset) == (1, 0));
            if symbol == name && scale >= 1 && better {
                let axis = i.saturating_sub(usize::from(a.batch));
                best = Some(Symbol { name: name.into(), text: name.into(), arg, axis, scale, offset });
            }
        }
    }
    match best {
        Some(mut s) => {
            if is_batch {
                s.text = "..".into();
            }
            Ok(s)
        }
        None => Err(format!("no argument of {} binds the dimension {name}; bind it with --dim", f.name)),
    }
}

/// `batch` is the flattened batch of the entry point.
fn tap(declared: &TapDecl, batch: Option<&str>) -> Tap {
    let TapDecl { name, extents, ty } = declared;
    let arrays = declared.arrays();
    let stacked = extents.get(arrays.len()..).unwrap_or_default();
    // The batch axes can be restored only if the batch is the first axis.
    let first = ty.shape.first().and_then(|d| d.as_symbol());
    let is_batch = stacked.is_empty() && batch.is_some() && first == batch;
    let dims = stacked.iter().chain(ty.shape.iter().skip(usize::from(is_batch))).cloned();
    Tap {
        pattern: name.clone(),
        extents: arrays.iter().filter_map(|d| u64::try_from(d.as_const()?).ok()).collect(),
        elem: ty.elem,
        batch: is_batch,
        dims: dims.map(DimText::canonical).collect(),
        stacked: stacked.len(),
        cost: String::new(),
    }
}

/// The signature in the program's syntax.
fn signature(f: &EntryDecl) -> String {
    let spell = |ty: &TensorType, batch: bool| {
        let mut dims: Vec<String> = ty.shape.iter().skip(usize::from(batch)).map(Dim::to_string).collect();
        if batch {
            dims.insert(0, "..".to_string());
        }
        if dims.is_empty() { ty.elem.to_string() } else { format!("{}[{}]", ty.elem, dims.join(", ")) }
    };
    let args: Vec<String> = f.args.iter().map(|a| format!("{}: {}", a.name, spell(&a.ty, a.batch))).collect();
    let results: Vec<String> = f.results.iter().map(|r| spell(&r.ty, r.batch)).collect();
    let mut out = format!("{}({})", f.name, args.join(", "));
    match results.as_slice() {
        [] => {}
        [one] => out += &format!(" -> {one}"),
        many => out += &format!(" -> ({})", many.join(", ")),
    }
    // Callers need not know constraints on sizes.
    let facts: Vec<String> =
        f.checks.iter().map(|(fact, _)| fact).filter(|fact| !fact.is_fit()).map(Fact::to_string).collect();
    if !facts.is_empty() {
        out += &format!(" where {}", facts.join(", "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::{ArgDecl, ResultDecl};
    use crate::shape::Elem;

    fn describe_entry(f: EntryDecl) -> Result<ModelDescriptor, String> {
        describe(&Interface { params: &[], states: &[], entries: vec![f].into(), file: "m", files: &[] }, "M", "", "t")
    }

    #[test]
    fn dimensions_are_bound_by_bare_symbols_first() {
        let s = Dim::symbol("S");
        let twice = s.mul(&Dim::from(2));
        let mut f = EntryDecl { name: "forward".into(), ..EntryDecl::default() };
        for (name, d) in [("a", &twice), ("b", &s)] {
            let ty = TensorType::new(Elem::F32, vec![Dim::from(3), d.clone()]);
            f.args.push(ArgDecl { name: name.into(), ty, batch: false });
        }
        f.results.push(ResultDecl { ty: TensorType::new(Elem::F32, vec![s]), batch: false });
        let d = describe_entry(f).unwrap();
        let e = &d.entries[0];
        assert_eq!(e.signature, "forward(a: f32[3, 2*S], b: f32[3, S]) -> f32[S]");
        assert_eq!((e.symbols[0].arg, e.symbols[0].axis, e.symbols[0].scale), (1, 1, 1));
        assert_eq!(e.args[0].dims[1].text, "2*S");
    }

    #[test]
    fn a_dimension_that_nothing_binds_is_refused() {
        let mut f = EntryDecl { name: "forward".into(), ..EntryDecl::default() };
        f.results.push(ResultDecl { ty: TensorType::new(Elem::F32, vec![Dim::symbol("S")]), batch: false });
        assert!(describe_entry(f).unwrap_err().contains("binds the dimension S"));
    }
}
