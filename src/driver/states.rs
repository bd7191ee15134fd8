//! Sets integer states before each measured call of `attnc bench`.
//!
//! In: graph IR, values for states. Out: an additional entry point that sets them, without
//! arguments and results; so every back end sets states in its usual way.

use std::collections::BTreeMap;

use super::session::{CommandError, command_line_error};
use crate::cli::StateValue;
use crate::diagnostics::did_you_mean;
use crate::ir::{Function, Loc, Module, Op, Scalar, StateDecl, Terminator, Type};
use crate::tile::cost::is_count;

/// The states with their given values.
pub(super) fn given(declared: &[StateDecl], values: &[StateValue]) -> Result<BTreeMap<String, i64>, CommandError> {
    let mut states = BTreeMap::new();
    let known: Vec<&StateDecl> = declared.iter().filter(|s| is_count(&s.ty)).collect();
    for StateValue { name, value } in values {
        let Some(state) = known.iter().find(|s| s.name == *name) else {
            let near = did_you_mean(name, known.iter().map(|s| s.name.as_str()));
            let hint = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            return Err(command_line_error(&format!("the model has no state `{name}` of a few integers{hint}")));
        };
        let elem = state.ty.elem;
        let (least, most) = Scalar::extremes(elem);
        if !(least.as_i64()..=most.as_i64()).contains(value) {
            return Err(command_line_error(&format!("`{name}` is {elem}, which {value} does not fit")));
        }
        if states.insert(name.clone(), *value).is_some() {
            return Err(command_line_error(&format!("`--state {name}` is given twice")));
        }
    }
    Ok(states)
}

/// Adds an entry point that sets all integer states to these values, or to 0; returns its name, if
/// there are such states.
pub(super) fn add_setter(module: &mut Module, values: &BTreeMap<String, i64>) -> Result<Option<String>, String> {
    let mut name = "begin_of_bench".to_string();
    while module.functions.iter().any(|f| f.name == name) {
        name.push('_');
    }
    let mut f = Function::new(&name);
    let entry = f.entry();
    let counts = module.states.iter().filter(|s| is_count(&s.ty));
    for state in counts {
        let value = Scalar::Int(values.get(&state.name).copied().unwrap_or(0));
        let ty = Some(Type::Tensor(state.ty.clone()));
        let value = f.append(entry, Op::Const(value), Vec::new(), ty, Loc::default())?;
        let set = Op::SetState { name: state.name.clone() };
        f.append(entry, set, value.into_iter().collect(), None, Loc::default())?;
    }
    if f.insts().next().is_none() {
        return Ok(None);
    }
    f.terminate(entry, Terminator::Return(Vec::new()));
    module.functions.push(f);
    Ok(Some(name))
}
