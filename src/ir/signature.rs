//! The interface of a graph module: its entry points and their taps.
//!
//! In: functions. Out: declarations (`interface`), which are kept with the generated code.

use super::requirements::entry_checks;
use super::{Function, Module, Op, Value};
use crate::interface::{EntryDecl, Interface, TapDecl, symbols};

impl Module {
    /// The part that callers see.
    pub fn interface(&self) -> Interface<'_> {
        let entries = entries(self).into();
        Interface { params: &self.params, states: &self.states, entries, file: &self.name, files: &self.files }
    }
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
        sets_states: sets_states(f),
    });
    declared.collect()
}

/// Can a call of the function change the session? Setting a state to the value read from it does
/// not count.
pub fn sets_states(f: &Function) -> bool {
    let is_read = |v: &Value, name: &str| {
        f.definition(*v).is_some_and(|(_, d)| matches!(&d.op, Op::State { name: read } if read == name))
    };
    f.insts().any(|(_, _, inst)| match &inst.op {
        Op::SetState { name } => !inst.operands.first().is_some_and(|v| is_read(v, name)),
        _ => false,
    })
}

/// The taps of a function, without duplicates, in order of appearance.
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

/// Names of a function's run-time dimensions, sorted.
pub fn run_time_dims(f: &Function) -> Vec<String> {
    symbols(&f.args, &f.results)
}

/// The paths of a function's taps, without duplicates, in order of appearance.
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
