//! The types of operations, one rule for each row of the table.
//!
//! In: the types of an operation's operands, the type that is declared for its result, its
//! attributes. Out: the type of the result, or an error message.

use super::Type;
use super::attribute::{AddressMode, Reduction};
use crate::scalar::{BinaryOp, CmpOp, Scalar, UnaryOp};
use crate::shape::Elem;
use crate::table;
use Type::{Address, Index, Lanes};

/// The types of operands, and the declared one.
pub(super) type OperandTypes<'a> = table::OperandTypes<'a, Type>;

/// The result type, if there is a result; or an error message.
type Result = std::result::Result<Option<Type>, String>;

/// Maximum lanes of a vector.
pub(super) const MAX_LANES: u32 = 64;

const BOOL: Type = Lanes(Elem::Bool, 1);

/// Is it a type that values can have?
pub(super) fn is_type(ty: Type) -> bool {
    match ty {
        Lanes(elem, lanes) => elem.computed() == elem && lanes.is_power_of_two() && lanes <= MAX_LANES,
        Index | Address => true,
    }
}

fn list(types: &[&Type]) -> String {
    types.iter().map(|ty| ty.to_string()).collect::<Vec<_>>().join(", ")
}

/// The given result type, or an error for the operands.
fn fits(given: OperandTypes<'_>, result: Option<Type>) -> Result {
    match result {
        Some(ty) => Ok(Some(ty)),
        None => Err(format!("does not take ({})", list(given.types))),
    }
}

/// No result, or an error for the operands.
fn nothing(given: OperandTypes<'_>, fits: bool) -> Result {
    if fits { Ok(None) } else { Err(format!("does not take ({})", list(given.types))) }
}

/// The declared type, which must have these elements.
fn declared(given: OperandTypes<'_>, elem: Elem) -> Result {
    match given.declared {
        Some(Lanes(e, n)) if *e == elem => Ok(Some(Lanes(elem, *n))),
        _ => Err(format!("gives lanes of {elem}")),
    }
}

/// The operands after an addressing mode.
fn after<'a>(given: OperandTypes<'a>, place: AddressMode) -> std::result::Result<&'a [&'a Type], String> {
    match (place.scale, given.types) {
        (0, [Address, rest @ ..]) | (1 | 2 | 4 | 8, [Address, Index, rest @ ..]) => Ok(rest),
        (0 | 1 | 2 | 4 | 8, types) => Err(format!("takes a place, not ({})", list(types))),
        (n, _) => Err(format!("multiplies an index by {n}, not 1, 2, 4 or 8")),
    }
}

pub(super) fn constant(given: OperandTypes<'_>, value: &Scalar) -> Result {
    match (value, given.declared) {
        (Scalar::Int(_), Some(ty @ (Index | Lanes(Elem::I32 | Elem::I64, _)))) => Ok(Some(*ty)),
        (Scalar::Int(_), _) => Err("of an integer is an index or lanes of integers".into()),
        (Scalar::Float(_), _) => declared(given, Elem::F32),
        (Scalar::Bool(_), _) => Err("is a number".into()),
    }
}

pub(super) fn lane_numbers(given: OperandTypes<'_>) -> Result {
    declared(given, Elem::I32)
}

pub(super) fn unary(given: OperandTypes<'_>, op: &UnaryOp) -> Result {
    let result = match given.types {
        [x @ Lanes(elem, _)] if op.takes(*elem) => Some(**x),
        _ => None,
    };
    fits(given, result)
}

pub(super) fn binary(given: OperandTypes<'_>, op: &BinaryOp) -> Result {
    let result = match (op, given.types) {
        (BinaryOp::Add, [Address, Index]) => Some(Address),
        (BinaryOp::Add | BinaryOp::Mul | BinaryOp::Rem | BinaryOp::Min, [Index, Index]) => Some(Index),
        (op, [x @ Lanes(elem, _), y]) if x == y && op.takes(*elem) => Some(**x),
        _ => None,
    };
    fits(given, result)
}

pub(super) fn compare(given: OperandTypes<'_>, _: &CmpOp) -> Result {
    let result = match given.types {
        [Index, Index] => Some(BOOL),
        [x @ Lanes(_, n), y] if x == y => Some(Lanes(Elem::Bool, *n)),
        _ => None,
    };
    fits(given, result)
}

pub(super) fn select(given: OperandTypes<'_>) -> Result {
    let result = match given.types {
        [Lanes(Elem::Bool, n), x @ Lanes(_, m), y] if n == m && x == y => Some(**x),
        _ => None,
    };
    fits(given, result)
}

pub(super) fn cast(given: OperandTypes<'_>) -> Result {
    match (given.types, given.declared) {
        ([Lanes(_, n)], Some(ty @ Lanes(_, m))) if m == n => Ok(Some(*ty)),
        ([Lanes(_, n)], _) => Err(format!("gives {n} lanes")),
        _ => fits(given, None),
    }
}

pub(super) fn narrow(given: OperandTypes<'_>, elem: &Elem) -> Result {
    let result = match (elem, given.types) {
        (Elem::BF16 | Elem::F16, [x @ Lanes(Elem::F32, _)]) | (Elem::I8, [x @ Lanes(Elem::I32, _)]) => Some(**x),
        _ => None,
    };
    fits(given, result)
}

/// Two operands of equal type with `allowed` elements; `result` computes the result type.
fn pair(given: OperandTypes<'_>, allowed: &[Elem], result: impl Fn(Type, u32) -> Type) -> Result {
    let result = match given.types {
        [x @ Lanes(elem, n), y] if x == y && allowed.contains(elem) => Some(result(**x, *n)),
        _ => None,
    };
    fits(given, result)
}

pub(super) fn bits(given: OperandTypes<'_>) -> Result {
    pair(given, &[Elem::I32], |ty, _| ty)
}

pub(super) fn floats(given: OperandTypes<'_>) -> Result {
    pair(given, &[Elem::F32], |ty, _| ty)
}

pub(super) fn unordered(given: OperandTypes<'_>) -> Result {
    pair(given, &[Elem::F32], |_, n| Lanes(Elem::Bool, n))
}

pub(super) fn beats(given: OperandTypes<'_>) -> Result {
    pair(given, &[Elem::F32, Elem::I32, Elem::I64], |_, n| Lanes(Elem::Bool, n))
}

pub(super) fn splat(given: OperandTypes<'_>) -> Result {
    match (given.types, given.declared) {
        ([Lanes(elem, 1)], _) => declared(given, *elem),
        ([Index], Some(ty @ Lanes(Elem::I32 | Elem::I64, _))) => Ok(Some(*ty)),
        ([Index], _) => Err("of an index gives lanes of integers".into()),
        _ => fits(given, None),
    }
}

pub(super) fn lanes_below(given: OperandTypes<'_>) -> Result {
    match given.types {
        [Index] => declared(given, Elem::Bool),
        _ => fits(given, None),
    }
}

pub(super) fn mask_bits(given: OperandTypes<'_>) -> Result {
    let result = match given.types {
        [Lanes(Elem::Bool, n)] => Some(Lanes(Elem::I32, *n)),
        _ => None,
    };
    fits(given, result)
}

pub(super) fn mask_of_bits(given: OperandTypes<'_>) -> Result {
    let result = match given.types {
        [Lanes(Elem::I32, n)] => Some(Lanes(Elem::Bool, *n)),
        _ => None,
    };
    fits(given, result)
}

pub(super) fn reduce(given: OperandTypes<'_>, kind: &Reduction) -> Result {
    let takes = |elem: Elem| match kind {
        Reduction::Sum | Reduction::Max | Reduction::Min => elem != Elem::Bool,
        Reduction::All | Reduction::Any => elem == Elem::I32,
    };
    let result = match given.types {
        [Lanes(elem, _)] if takes(*elem) => Some(Lanes(*elem, 1)),
        _ => None,
    };
    fits(given, result)
}

pub(super) fn first(given: OperandTypes<'_>) -> Result {
    extract(given, &0)
}

pub(super) fn extract(given: OperandTypes<'_>, lane: &u32) -> Result {
    let result = match given.types {
        [Lanes(elem, n)] if lane < n => Some(Lanes(*elem, 1)),
        _ => None,
    };
    fits(given, result)
}

pub(super) fn build(given: OperandTypes<'_>) -> Result {
    match given.types {
        [first @ Lanes(elem, 1), rest @ ..] if rest.iter().all(|x| x == first) => match declared(given, *elem)? {
            Some(Lanes(_, n)) if usize::try_from(n) != Ok(given.types.len()) => {
                Err(format!("gives {n} lanes and takes {} scalars", given.types.len()))
            }
            ty => Ok(ty),
        },
        _ => fits(given, None),
    }
}

pub(super) fn exchange(given: OperandTypes<'_>, distance: &u32) -> Result {
    let result = match given.types {
        [x @ Lanes(_, n)] if distance.is_power_of_two() && distance < n => Some(**x),
        _ => None,
    };
    fits(given, result)
}

pub(super) fn address(given: OperandTypes<'_>, place: &AddressMode) -> Result {
    let is_place = after(given, *place)?.is_empty();
    fits(given, is_place.then_some(Address))
}

pub(super) fn load(given: OperandTypes<'_>, elem: &Elem, place: &AddressMode, masked: &bool) -> Result {
    match (after(given, *place)?, masked) {
        ([], false) => declared(given, elem.computed()),
        ([Lanes(Elem::Bool, n)], true) => match declared(given, elem.computed())? {
            Some(Lanes(_, lanes)) if lanes != *n => Err(format!("has {lanes} lanes and a mask of {n}")),
            ty => Ok(ty),
        },
        _ => fits(given, None),
    }
}

pub(super) fn store(given: OperandTypes<'_>, elem: &Elem, place: &AddressMode, masked: &bool) -> Result {
    let is_fit = match (after(given, *place)?, masked) {
        ([Lanes(e, _)], false) => *e == elem.computed(),
        ([Lanes(e, n), Lanes(Elem::Bool, m)], true) => *e == elem.computed() && n == m,
        _ => false,
    };
    nothing(given, is_fit)
}

pub(super) fn load_apart(given: OperandTypes<'_>, elem: &Elem) -> Result {
    match given.types {
        [Address, Index] | [Address, Index, Index] => declared(given, elem.computed()),
        _ => fits(given, None),
    }
}

pub(super) fn store_apart(given: OperandTypes<'_>, elem: &Elem) -> Result {
    let is_fit = match given.types {
        [Address, Index, Lanes(e, _)] | [Address, Index, Lanes(e, _), Index] => *e == elem.computed(),
        _ => false,
    };
    nothing(given, is_fit)
}

pub(super) fn prefetch(given: OperandTypes<'_>, place: &AddressMode) -> Result {
    let is_fit = after(given, *place)?.is_empty();
    nothing(given, is_fit)
}
