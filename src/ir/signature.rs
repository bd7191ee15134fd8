//! What a function's signature says beside its types: run-time dimensions and taps, in the order that everything outside
//! of the IR (plans, the runtime) uses.

use super::{Function, Op};

/// Names of a function's run-time dimensions, in order of name.
pub fn run_time_dims(f: &Function) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let types = f.args.iter().map(|a| &a.ty).chain(f.results.iter().map(|r| &r.ty));
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
