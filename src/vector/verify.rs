//! The verifier of functions: operands are defined before their uses and have the types of the
//! table, shift counts are constants, the result has the declared type.
//!
//! In: a function. Out: nothing, or an error message.

#![warn(clippy::wildcard_enum_match_arm, reason = "a new operation is reported as an error here")]

use super::{Function, Inst, Op, Type, Value};
use crate::table::OperandTypes;

/// Verifies a function.
///
/// # Errors
/// The first violation.
pub fn verify(f: &Function) -> Result<(), String> {
    for (at, inst) in f.insts.iter().enumerate() {
        check(f, at, inst)?;
    }
    returned(f)
}

/// Checks the last instruction.
pub(super) fn last(f: &Function) -> Result<(), String> {
    match f.insts.split_last() {
        Some((inst, before)) => check(f, before.len(), inst),
        None => Ok(()),
    }
}

/// Checks the returned value.
pub(super) fn returned(f: &Function) -> Result<(), String> {
    match f.ty(f.result) {
        Some(ty) if ty == f.result_type => Ok(()),
        Some(ty) => Err(format!("%{} is {ty}, and @{} gives {}", f.name_of(f.result), f.name, f.result_type)),
        None => Err("what is returned does not exist".to_string()),
    }
}

fn check(f: &Function, at: usize, inst: &Inst) -> Result<(), String> {
    let row = inst.op.info();
    let name = row.name;
    let types = inst.operands.iter().map(|v| {
        let is_before = v.index() < f.params.len() + at;
        f.ty(*v).filter(|_| is_before).ok_or_else(|| format!("{name}: an operand does not stand before it"))
    });
    let types = types.collect::<Result<Vec<Type>, String>>()?;
    let types: Vec<&Type> = types.iter().collect();
    match inst.op.rule(OperandTypes { types: &types, declared: Some(&inst.ty) }).map_err(|e| format!("{name} {e}"))? {
        Some(ty) if ty != inst.ty => return Err(format!("{name} gives {ty}, not {}", inst.ty)),
        _ => {}
    }
    let needs = row.class.features();
    if !f.requires.include(needs) {
        return Err(format!("{name} needs `requires({})`", needs.names().join(", ")));
    }
    if inst.op.is_shift() && inst.operands.get(1).and_then(|v| shift(f, *v)).is_none() {
        return Err(format!("{name}: the number of bits is a constant from 0 to 31"));
    }
    Ok(())
}

/// The shift count, if it is a constant from 0 to 31.
pub fn shift(f: &Function, v: Value) -> Option<u8> {
    let inst = f.insts.get(v.index().checked_sub(f.params.len())?)?;
    let Op::Const(bits @ 0..32) = inst.op else { return None };
    u8::try_from(bits).ok()
}
