//! The verifier: the contract of a routine.
//!
//! In: any routine. Out: all errors, each with its location.
//!
//! # Checks, in this order
//!
//! 1. Vectors have a power of two of lanes, 1 to 64.
//! 2. Parameters are scalars, indices and addresses, all different.
//! 3. Blocks, instructions and jumps are what [`crate::ssa::verify`] requires of every body; the
//!    entry has no arguments, and a routine returns nothing. Definitions dominate uses.
//! 4. Values have a type that exists; lanes are one, or as many as the routine's vectors have.
//! 5. Operands and result fit the operation (`rules`), constants their type.
//!
//! # Not checked
//!
//! That accesses lie in memory that the routine may touch (what made it has proved that of its
//! tiles; the interpreter checks each), and that loops end.

#![warn(clippy::wildcard_enum_match_arm, reason = "a new operation is met by an error here")]

use super::{Dialect as _, Op, Routine, Terminator, Type, VectorIr, rules};
use crate::scalar::Scalar;
use crate::shape::Elem;
use crate::ssa::Value;
use crate::ssa::verify::{ErrorLocation, structure, uses};

/// Something that is wrong, and what it is about.
pub type Error = (ErrorLocation, String);

/// Checks a routine.
///
/// # Errors
/// Everything that is wrong.
pub fn verify(routine: &Routine) -> Result<(), Vec<Error>> {
    let mut errors: Vec<Error> = Vec::new();
    let body = &routine.body;
    if !routine.lanes.is_power_of_two() || !(1..=rules::MAX_LANES).contains(&routine.lanes) {
        errors.push((ErrorLocation::Head, format!("a vector of {} lanes", routine.lanes)));
    }
    for (n, (v, _)) in routine.params.iter().enumerate() {
        if !body.has_value(*v) || routine.params.iter().take(n).any(|(other, _)| other == v) {
            errors.push((ErrorLocation::Head, format!("parameter {n} does not exist, or occurs twice")));
        } else if matches!(body.ty(*v), Type::Lanes(_, lanes) if *lanes != 1) {
            errors.push((ErrorLocation::Head, format!("parameter {n} is {}, no scalar", body.ty(*v))));
        }
    }
    let given: Vec<Value> = routine.params.iter().map(|(v, _)| *v).collect();
    let definitions = structure(body, given, &mut |at, message| errors.push((at, message)));
    if !errors.is_empty() {
        return Err(errors);
    }
    if !body.block(body.entry()).args.is_empty() {
        errors.push((ErrorLocation::Block(body.entry()), "the entry has arguments".to_string()));
    }
    let cfg = body.cfg();
    uses(body, &definitions, &cfg, &mut |at, message| errors.push((at, message)));
    let fits = |v: Value| match body.ty(v) {
        Type::Lanes(_, lanes) => rules::is_type(*body.ty(v)) && (*lanes == 1 || *lanes == routine.lanes),
        Type::Index | Type::Address => true,
    };
    let no_type = |v: Value| format!("there is no type {} here", body.ty(v));
    for (v, _) in routine.params.iter().filter(|(v, _)| !fits(*v)) {
        errors.push((ErrorLocation::Head, no_type(*v)));
    }
    for b in &body.layout {
        for v in body.block(*b).args.iter().filter(|v| !fits(**v)) {
            errors.push((ErrorLocation::Block(*b), no_type(*v)));
        }
        if matches!(&body.block(*b).terminator, Terminator::Return(vs) if !vs.is_empty()) {
            errors.push((ErrorLocation::Terminator(*b), "a routine returns nothing".to_string()));
        }
    }
    for (_, i, data) in body.insts() {
        let operands: Vec<&Type> = data.operands.iter().map(|v| body.ty(*v)).collect();
        let declared = data.result.map(|v| body.ty(v));
        match VectorIr::result_type(&data.op, &operands, declared) {
            Ok(ty) if ty.as_ref() == declared => {}
            Ok(Some(ty)) => errors.push((ErrorLocation::Inst(i), format!("`{}` gives {ty}", data.op))),
            Ok(None) => errors.push((ErrorLocation::Inst(i), format!("`{}` gives nothing", data.op))),
            Err(message) => errors.push((ErrorLocation::Inst(i), format!("`{}` {message}", data.op))),
        }
        if let Some(v) = data.result.filter(|v| !fits(*v)) {
            errors.push((ErrorLocation::Inst(i), no_type(v)));
        }
        if let (Op::Const(Scalar::Int(n)), Some(Type::Lanes(Elem::I32, _))) = (&data.op, declared)
            && i32::try_from(*n).is_err()
        {
            errors.push((ErrorLocation::Inst(i), format!("{n} is not an i32")));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}
