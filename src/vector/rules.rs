//! The types of operations of elementary functions, one rule for each kind of row.
//!
//! In: the types of an operation's operands, the type that is declared for its result, its
//! attributes. Out: the type of the result, or what does not fit, in words.

use super::Type::{self, F32, I32, Mask};
use crate::table;

type OperandTypes<'a> = table::OperandTypes<'a, Type>;

/// The type of a result, or what does not fit.
type Result = std::result::Result<Option<Type>, String>;

/// A result of one type, of operands of these.
fn signature(given: OperandTypes<'_>, takes: &[Type], gives: Type) -> Result {
    let list = |types: &mut dyn Iterator<Item = Type>| types.map(Type::name).collect::<Vec<_>>().join(", ");
    if given.types.iter().copied().eq(takes) {
        return Ok(Some(gives));
    }
    let (wanted, found) = (list(&mut takes.iter().copied()), list(&mut given.types.iter().map(|ty| **ty)));
    Err(format!("takes ({wanted}), and its operands are ({found})"))
}

pub(super) fn floats(given: OperandTypes<'_>) -> Result {
    signature(given, [F32; 3].get(..given.types.len()).unwrap_or_default(), F32)
}

pub(super) fn ints(given: OperandTypes<'_>) -> Result {
    signature(given, &[I32, I32], I32)
}

pub(super) fn float_to_int(given: OperandTypes<'_>) -> Result {
    signature(given, &[F32], I32)
}

pub(super) fn int_to_float(given: OperandTypes<'_>) -> Result {
    signature(given, &[I32], F32)
}

pub(super) fn compare_floats(given: OperandTypes<'_>) -> Result {
    signature(given, &[F32, F32], Mask)
}

pub(super) fn compare_ints(given: OperandTypes<'_>) -> Result {
    signature(given, &[I32, I32], Mask)
}

pub(super) fn select_floats(given: OperandTypes<'_>) -> Result {
    signature(given, &[Mask, F32, F32], F32)
}

pub(super) fn select_ints(given: OperandTypes<'_>) -> Result {
    signature(given, &[Mask, I32, I32], I32)
}

pub(super) fn constant(given: OperandTypes<'_>, _: &u32) -> Result {
    match given.declared {
        Some(ty @ (F32 | I32)) => Ok(Some(*ty)),
        Some(Mask) | None => Err("is f32 or i32".to_string()),
    }
}

pub(super) fn polynomial(given: OperandTypes<'_>, coefficients: &[f32]) -> Result {
    if coefficients.is_empty() {
        return Err("has at least one coefficient".to_string());
    }
    signature(given, &[F32], F32)
}

/// The callee's signature is checked when the call is expanded.
pub(super) fn call(given: OperandTypes<'_>, _: &str) -> Result {
    match given.declared {
        Some(ty) => Ok(Some(*ty)),
        None => Err("has a declared type".to_string()),
    }
}
