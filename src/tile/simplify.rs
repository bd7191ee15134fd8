//! Constant folding, CSE and DCE for indices and scalars.
//!
//! In: the body of a kernel or plan from lowering, where each part computes its own operands. Out:
//! the same without constant expressions, repeated or unused operations; so a dump has `const 128`
//! only once. It must not know machines and schedules.
//!
//! ```text
//! %3 = const 128        : index            %3 = const 128        : index
//! %4 = dim 768          : index            %4 = const 768        : index
//! %5 = const 128        : index     ->
//! %6 = mul %2, %3       : index            %6 = mul %2, %3       : index
//! %7 = sub %4, %6       : index            %7 = sub %4, %6       : index
//! %8 = min %7, %5       : index            %8 = min %7, %3       : index
//! ```
//!
//! Operations on tiles are unchanged: the schedule decides where and how often each is computed. So
//! are buffers, which a plan defines where they are used.

use super::body::InstData;
use super::{Body, Op, Type, Value};
use crate::scalar::BinaryOp;
use crate::scalar::Scalar;
use crate::ssa::{self, Simplified};

/// Folds constants, and runs CSE and DCE.
pub fn simplify(body: &mut Body) {
    let is_small = |body: &Body, result: Value| matches!(body.ty(result), Type::Index | Type::Scalar(_));
    ssa::fold_and_merge(
        body,
        |body, data, result| known(body, data, body.ty(result)),
        |body, _, result| is_small(body, result).then_some(0),
    );
    ssa::remove_dead(body);
}

/// The constant or operand that an instruction is equal to, if its constant operands determine
/// that.
fn known(body: &Body, data: &InstData, ty: &Type) -> Option<Simplified<Op>> {
    let literal_of = |s: Scalar| Simplified::Literal(Op::Const(s));
    let literal = |v: Value| match body.def_inst(v)?.op {
        Op::Const(s) => Some(s),
        _ => None,
    };
    let number = |v: Value| match literal(v)? {
        Scalar::Int(n) => Some(n),
        Scalar::Float(_) | Scalar::Bool(_) => None,
    };
    match (&data.op, data.operands.as_slice(), ty) {
        (Op::DimValue(d), _, Type::Index) => d.as_const().map(|n| literal_of(Scalar::Int(n))),
        (Op::Binary(op), [a, b], Type::Index) => match (op, number(*a), number(*b)) {
            (_, Some(x), Some(y)) => exact(*op, x, y).map(|n| literal_of(Scalar::Int(n))),
            (BinaryOp::Add | BinaryOp::Sub, _, Some(0)) | (BinaryOp::Mul | BinaryOp::Div, _, Some(1)) => {
                Some(Simplified::Value(*a))
            }
            (BinaryOp::Add, Some(0), _) | (BinaryOp::Mul, Some(1), _) => Some(Simplified::Value(*b)),
            (BinaryOp::Mul, Some(0), _) | (BinaryOp::Mul, _, Some(0)) => Some(literal_of(Scalar::Int(0))),
            _ => None,
        },
        (Op::Compare(op), [a, b], _) => {
            let (x, y) = (number(*a)?, number(*b)?);
            Some(literal_of(Scalar::Bool(op.eval(x, y))))
        }
        (Op::Select, [condition, a, b], Type::Index | Type::Scalar(_)) => match literal(*condition)? {
            Scalar::Bool(c) => Some(Simplified::Value(if c { *a } else { *b })),
            Scalar::Int(_) | Scalar::Float(_) => None,
        },
        _ => None,
    }
}

/// The result on indices if it does not overflow; otherwise it is left to the machine, or an error.
fn exact(op: BinaryOp, x: i64, y: i64) -> Option<i64> {
    match op {
        BinaryOp::Add => x.checked_add(y),
        BinaryOp::Sub => x.checked_sub(y),
        BinaryOp::Mul => x.checked_mul(y),
        BinaryOp::Div | BinaryOp::Rem => (y > 0).then(|| op.eval_int(x, y)),
        BinaryOp::Max | BinaryOp::Min => Some(op.eval_int(x, y)),
        BinaryOp::Pow
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::BitAnd
        | BinaryOp::BitOr
        | BinaryOp::BitXor
        | BinaryOp::ShiftLeft
        | BinaryOp::ShiftRight => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::tile::text::{parse, print};

    #[test]
    fn indices_are_said_once() {
        let text = "module \"m\"\n\nkernel @k(%x: in f32[S, 768], %y: out f32[S, 768]) symbols(S) grid(%i: S) {\n^bb0:\n  \
                    %a = const 4 : index\n  %b = dim 768 : index\n  %c = const 4 : index\n  %d = mul %a, %c : index\n  \
                    %e = sub %b, %d : index\n  %f = const 0 : index\n  %g = add %i, %f : index\n  %h = const 1 : index\n  \
                    %j = mul %f, %i : index\n  %t = load %x[%g, %j], cols=1 : tile f32[1, 768]\n  \
                    %u = lt %a, %c : bool\n  %v = select %u, %e, %j : index\n  %w = dim S : index\n  %z = min %w, %w : index\n  \
                    store %y[%i, %v], %t, cols=1\n  return\n}\n";
        let mut module = parse(text, Default::default()).unwrap().module;
        super::simplify(&mut module.kernels[0].body);
        let lines: Vec<String> =
            print(&module).lines().skip(4).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "%f = const 0 : index",
                "%t = load %x[%i, %f], cols=1 : tile f32[1, 768]",
                "store %y[%i, %f], %t, cols=1",
                "return",
                "}"
            ]
        );
    }
}
