//! Indices and scalars in few words: what is computed from numbers alone is a number, and nothing is computed twice.
//!
//! In: the body of a kernel or plan as lowering makes it, where each part computes what it needs. Out: the same, without what
//! is known, repeated or unused; so a dump says `const 128` once. What it must not know: machines and schedules.
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
//! Tiles stay as they are: how often one is computed, and where, is for the schedule to say. So do buffers, whose places in a
//! plan are where they are used.

use cranelift_entity::SecondaryMap;

use super::body::InstData;
use super::{Body, Op, Type, Value};
use crate::scalar::BinaryOp;
use crate::scalar::Scalar;
use crate::ssa;

/// Folds, merges and removes.
pub fn simplify(body: &mut Body) {
    fold(body);
    ssa::merge_common(body, |body, _, result| matches!(body.ty(result), Type::Index | Type::Scalar(_)).then_some(0));
    ssa::remove_dead(body);
}

/// What an instruction becomes.
enum Known {
    Literal(Scalar),
    Same(Value),
}

/// One walk in which definitions come before uses, so that it finds chains.
fn fold(body: &mut Body) {
    let mut replaced: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    let mut any = false;
    for block in body.cfg().dominator_order() {
        for i in body.block(block).insts.clone() {
            for v in &mut body.inst_mut(i).operands {
                *v = replaced[*v].unwrap_or(*v);
            }
            let data = body.inst(i);
            let Some(result) = data.result else { continue };
            match known(body, data, body.ty(result)) {
                Some(Known::Literal(s)) => {
                    let data = body.inst_mut(i);
                    (data.op, data.operands) = (Op::Const(s), Vec::new());
                }
                Some(Known::Same(v)) => {
                    replaced[result] = Some(v);
                    any = true;
                }
                None => {}
            }
        }
    }
    if any {
        body.replace_uses(&replaced);
    }
}

fn known(body: &Body, data: &InstData, ty: &Type) -> Option<Known> {
    let literal = |v: Value| match body.def_inst(v)?.op {
        Op::Const(s) => Some(s),
        _ => None,
    };
    let number = |v: Value| match literal(v)? {
        Scalar::Int(n) => Some(n),
        Scalar::Float(_) | Scalar::Bool(_) => None,
    };
    match (&data.op, data.operands.as_slice(), ty) {
        (Op::DimValue(d), _, Type::Index) => d.as_const().map(|n| Known::Literal(Scalar::Int(n))),
        (Op::Binary(op), [a, b], Type::Index) => match (op, number(*a), number(*b)) {
            (_, Some(x), Some(y)) => exact(*op, x, y).map(|n| Known::Literal(Scalar::Int(n))),
            (BinaryOp::Add | BinaryOp::Sub, _, Some(0)) | (BinaryOp::Mul | BinaryOp::Div, _, Some(1)) => {
                Some(Known::Same(*a))
            }
            (BinaryOp::Add, Some(0), _) | (BinaryOp::Mul, Some(1), _) => Some(Known::Same(*b)),
            (BinaryOp::Mul, Some(0), _) | (BinaryOp::Mul, _, Some(0)) => Some(Known::Literal(Scalar::Int(0))),
            _ => None,
        },
        (Op::Compare(op), [a, b], _) => {
            let (x, y) = (number(*a)?, number(*b)?);
            Some(Known::Literal(Scalar::Bool(op.eval(x, y))))
        }
        (Op::Select, [condition, a, b], Type::Index | Type::Scalar(_)) => match literal(*condition)? {
            Scalar::Bool(c) => Some(Known::Same(if c { *a } else { *b })),
            Scalar::Int(_) | Scalar::Float(_) => None,
        },
        _ => None,
    }
}

/// The result on indices where it fits; what does not is for the machine, or for an error.
fn exact(op: BinaryOp, x: i64, y: i64) -> Option<i64> {
    match op {
        BinaryOp::Add => x.checked_add(y),
        BinaryOp::Sub => x.checked_sub(y),
        BinaryOp::Mul => x.checked_mul(y),
        BinaryOp::Div | BinaryOp::Rem => (y > 0).then(|| op.eval_int(x, y)),
        BinaryOp::Max | BinaryOp::Min => Some(op.eval_int(x, y)),
        BinaryOp::Pow | BinaryOp::And | BinaryOp::Or => None,
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
