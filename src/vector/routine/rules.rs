//! The types of operations.
//!
//! In: an operation, the types of its operands, the type that is declared for its result. Out: the type of the result, or
//! what does not fit, in words.

use super::{Op, Type};
use crate::scalar::Scalar;
use crate::scalar::{BinaryOp, ReduceKind, UnaryOp};
use crate::shape::Elem;

/// The most lanes of a vector.
pub(super) const MAX_LANES: u32 = 64;

/// Is it a type that values can have?
pub(super) fn is_type(ty: Type) -> bool {
    match ty {
        Type::Lanes(elem, lanes) => elem.computed() == elem && lanes.is_power_of_two() && lanes <= MAX_LANES,
        Type::Index | Type::Address => true,
    }
}

/// The type of an operation's result.
pub(super) fn result_type(op: &Op, operands: &[Type], declared: Option<Type>) -> Result<Option<Type>, String> {
    const BOOL: Type = Type::Lanes(Elem::Bool, 1);
    use Type::{Address, Index, Lanes};
    let types = || operands.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
    let unfit = || Err(format!("does not take ({})", types()));
    // The lanes of the declared type, where its elements are these.
    let lanes_of = |elem: Elem| match declared {
        Some(Lanes(e, n)) if e == elem => Ok(n),
        _ => Err(format!("gives lanes of {elem}")),
    };
    let place = op.place().map(|p| match (p.scale, operands) {
        (0, [Address, rest @ ..]) | (1 | 2 | 4 | 8, [Address, Index, rest @ ..]) => Ok(rest),
        (0 | 1 | 2 | 4 | 8, _) => Err(format!("takes a place, not ({})", types())),
        (n, _) => Err(format!("multiplies an index by {n}, not 1, 2, 4 or 8")),
    });
    let rest = place.transpose()?.unwrap_or(operands);
    let result = match (op, rest) {
        (Op::Const(Scalar::Int(_)), []) => match declared {
            Some(ty @ (Index | Lanes(Elem::I32 | Elem::I64, _))) => ty,
            _ => return Err("of an integer is an index or lanes of integers".into()),
        },
        (Op::Const(Scalar::Float(_)), []) => Lanes(Elem::F32, lanes_of(Elem::F32)?),
        (Op::Lanes, []) => Lanes(Elem::I32, lanes_of(Elem::I32)?),
        (Op::Unary(op), [x @ Lanes(elem, _)]) if is_unary(*op, *elem) => *x,
        (Op::Binary(BinaryOp::Add), [Address, Index]) => Address,
        (Op::Binary(BinaryOp::Add | BinaryOp::Mul | BinaryOp::Rem | BinaryOp::Min), [Index, Index]) => Index,
        (Op::Binary(op), [x @ Lanes(elem, _), y]) if x == y && is_binary(*op, *elem) => *x,
        (Op::Compare(_), [Index, Index]) => BOOL,
        (Op::Compare(_), [x @ Lanes(_, n), y]) if x == y => Lanes(Elem::Bool, *n),
        (Op::Select, [Lanes(Elem::Bool, n), x @ Lanes(_, m), y]) if n == m && x == y => *x,
        (Op::Cast, [Lanes(_, n)]) => match declared {
            Some(ty @ Lanes(_, m)) if m == *n => ty,
            _ => return Err(format!("gives {n} lanes")),
        },
        (Op::Narrow(Elem::BF16 | Elem::F16), [x @ Lanes(Elem::F32, _)]) => *x,
        (Op::Narrow(Elem::I8), [x @ Lanes(Elem::I32, _)]) => *x,
        (Op::BitAnd | Op::BitOr, [x @ Lanes(Elem::I32, _), y]) if x == y => *x,
        (Op::MaxOrSecond | Op::MinOrSecond, [x @ Lanes(Elem::F32, _), y]) if x == y => *x,
        (Op::Unordered, [x @ Lanes(Elem::F32, n), y]) if x == y => Lanes(Elem::Bool, *n),
        (Op::Beats, [x @ Lanes(Elem::F32 | Elem::I32 | Elem::I64, n), y]) if x == y => Lanes(Elem::Bool, *n),
        (Op::Splat, [Lanes(elem, 1)]) => Lanes(*elem, lanes_of(*elem)?),
        (Op::Splat, [Index]) => match declared {
            Some(ty @ Lanes(Elem::I32 | Elem::I64, _)) => ty,
            _ => return Err("of an index gives lanes of integers".into()),
        },
        (Op::LanesBelow, [Index]) => Lanes(Elem::Bool, lanes_of(Elem::Bool)?),
        (Op::MaskBits, [Lanes(Elem::Bool, n)]) => Lanes(Elem::I32, *n),
        (Op::MaskOfBits, [Lanes(Elem::I32, n)]) => Lanes(Elem::Bool, *n),
        (Op::Reduce(kind), [Lanes(elem, _)]) if is_reduction(*kind, *elem) => Lanes(*elem, 1),
        (Op::First, [Lanes(elem, _)]) => Lanes(*elem, 1),
        (Op::Extract(lane), [Lanes(elem, n)]) if lane < n => Lanes(*elem, 1),
        (Op::Build, [first @ Lanes(elem, 1), rest @ ..]) if rest.iter().all(|x| x == first) => match lanes_of(*elem)? {
            n if usize::try_from(n) == Ok(operands.len()) => Lanes(*elem, n),
            n => return Err(format!("gives {n} lanes and takes {} scalars", operands.len())),
        },
        (Op::Exchange(distance), [x @ Lanes(_, n)]) if distance.is_power_of_two() && distance < n => *x,
        (Op::Address(_), []) => Address,
        (Op::Load { elem, masked: false, .. }, []) => Lanes(elem.computed(), lanes_of(elem.computed())?),
        (Op::Load { elem, masked: true, .. }, [Lanes(Elem::Bool, n)]) => {
            let lanes = lanes_of(elem.computed())?;
            if lanes != *n {
                return Err(format!("has {lanes} lanes and a mask of {n}"));
            }
            Lanes(elem.computed(), lanes)
        }
        (Op::LoadApart(elem), [Address, Index] | [Address, Index, Index]) => {
            Lanes(elem.computed(), lanes_of(elem.computed())?)
        }
        (Op::Store { elem, masked: false, .. }, [Lanes(e, _)]) if *e == elem.computed() => return Ok(None),
        (Op::Store { elem, masked: true, .. }, [Lanes(e, n), Lanes(Elem::Bool, m)])
            if *e == elem.computed() && n == m =>
        {
            return Ok(None);
        }
        (Op::StoreApart(elem), [Address, Index, Lanes(e, _)] | [Address, Index, Lanes(e, _), Index])
            if *e == elem.computed() =>
        {
            return Ok(None);
        }
        (Op::Prefetch(_), []) => return Ok(None),
        _ => return unfit(),
    };
    Ok(Some(result))
}

fn is_unary(op: UnaryOp, elem: Elem) -> bool {
    match elem {
        Elem::F32 => op != UnaryOp::Not,
        Elem::Bool => op == UnaryOp::Not,
        _ => op != UnaryOp::Not && op.eval_int(0).is_some(),
    }
}

fn is_binary(op: BinaryOp, elem: Elem) -> bool {
    op.takes(elem)
}

fn is_reduction(kind: ReduceKind, elem: Elem) -> bool {
    match kind {
        ReduceKind::Sum | ReduceKind::Max | ReduceKind::Min => elem != Elem::Bool,
        ReduceKind::All | ReduceKind::Any => elem == Elem::I32,
        ReduceKind::Mean | ReduceKind::ArgMax => false,
    }
}
