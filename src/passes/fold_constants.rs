//! fold-constants: evaluates operations on literals at compile time.
//!
//! ```text
//! func @f(%0 "x": f32[S, 4]) -> (f32[S, 4], bool[S]) {
//! ^bb0:
//!   %1 = sqrt 64.0                        : f32[]
//!   %2 = div %0, %1                       : f32[S, 4]
//!   %3 = const 2.0                        : f32[4]
//!   %4 = mul %3, %1                       : f32[4]
//!   %5 = add %2, %4                       : f32[S, 4]
//!   %6 = dim 3                            : index
//!   %7 = lt %6, 5                         : bool[]
//!   %8 = broadcast %7                     : bool[S]
//!   return %5, %8
//! }
//! ->
//! func @f(%0 "x": f32[S, 4]) -> (f32[S, 4], bool[S]) {
//! ^bb0:
//!   %1 = div %0, 8.0                      : f32[S, 4]
//!   %2 = const 16.0                       : f32[4]
//!   %3 = add %1, %2                       : f32[S, 4]
//!   %4 = const true                       : bool[S]
//!   return %3, %4
//! }
//! ```
//!
//! # Conditions
//!
//! Every operand is a literal of any shape; all elements of a literal are equal, so all elements of
//! the result are. The element is computed as the interpreter computes it, rounded to its type, so
//! it is exact. Indices and dimensions with a constant value fold too. A transpose, slice, or
//! padding with itself, of a literal is the same literal in another shape.
//!
//! # Limits
//!
//! Matmuls and reductions of literals stay, and so do counters (`iota`): a constant has a single
//! distinct element, it is not data. The instruction becomes a constant of the same type; the
//! literals that it used are left for `dce`.

use super::{Changed, Context};
use crate::ir::interp::Real;
use crate::ir::{Function, InstData, Op, Scalar, Type, Value};
use crate::scalar::{BinaryOp, CmpOp};
use crate::shape::Elem;

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut folded = 0;
    for b in f.layout.clone() {
        for i in f.block(b).insts.clone() {
            if let Some(s) = fold(f, f.inst(i)) {
                let inst = f.inst_mut(i);
                (inst.op, inst.operands) = (Op::Const(s), Vec::new());
                folded += 1;
            }
        }
    }
    ctx.count("instructions folded", folded);
    Changed::from(folded > 0)
}

/// The value of all elements of the result, if it is known.
fn fold(f: &Function, inst: &InstData) -> Option<Scalar> {
    let result = f.ty(inst.result?);
    let literal = |i: usize| f.as_const(*inst.operands.get(i)?);
    let elem = |i: usize| element_type(f, *inst.operands.get(i)?);
    match &inst.op {
        Op::DimValue(d) => {
            let n = d.as_const()?;
            match result {
                Type::Index => Some(Scalar::Int(n)),
                Type::Tensor(t) => Some(integer(n, t.elem)),
            }
        }
        Op::Unary(op) => {
            let elem = elem(0)?;
            match literal(0)? {
                Scalar::Float(x) => Some(float(f32::unary(*op, f32::literal(x, elem), elem))),
                Scalar::Int(n) => Some(wrapped(op.eval_int(n)?, elem)),
                Scalar::Bool(b) => Some(Scalar::Bool(op.eval_int(i64::from(b))? != 0)),
            }
        }
        Op::Binary(op) => binary(*op, literal(0)?, literal(1)?, elem(0)),
        Op::Compare(op) => compare(*op, literal(0)?, literal(1)?, elem(0)),
        Op::Where => {
            let Scalar::Bool(c) = literal(0)? else { return None };
            // The other operand may be anything, but its shape must be that of the result.
            literal(if c { 1 } else { 2 })
        }
        Op::Cast { elem: to } => Some(cast(literal(0)?, elem(0)?, *to)),
        Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Slice { .. } => {
            // The bounds of a slice may be out of range at run time; that error must be kept.
            let checked = match &inst.op {
                Op::Slice { start, stop, .. } => start.as_const().is_some() && stop.as_const().is_some(),
                _ => true,
            };
            let fixed = |v: &Value| f.tensor(*v).is_some_and(|t| t.shape.iter().all(|d| d.as_const().is_some()));
            if checked && (!matches!(inst.op, Op::Slice { .. }) || inst.operands.iter().all(fixed)) {
                literal(0)
            } else {
                None
            }
        }
        Op::Concat { .. } | Op::Pad { .. } => {
            let padding = match &inst.op {
                Op::Pad { low, high, .. } => low.as_const().is_some() && high.as_const().is_some(),
                _ => true,
            };
            let first = literal(0)?;
            let alike = (1..inst.operands.len()).all(|i| literal(i) == Some(first));
            (padding && alike).then_some(first)
        }
        // Elements of the remaining operations differ, or are unknown at compile time.
        _ => None,
    }
}

/// The element type of a tensor; `i64` for an index.
fn element_type(f: &Function, v: Value) -> Option<Elem> {
    Some(f.tensor(v).map_or(Elem::I64, |t| t.elem))
}

fn float(x: f32) -> Scalar {
    Scalar::Float(f64::from(x))
}

fn wrapped(n: i64, elem: Elem) -> Scalar {
    Scalar::Int(match elem {
        Elem::I8 => i64::from(n as i8),
        Elem::I32 => i64::from(n as i32),
        Elem::I64 | Elem::F32 | Elem::BF16 | Elem::F16 | Elem::Bool => n,
    })
}

/// An integer as an element of any type.
fn integer(n: i64, elem: Elem) -> Scalar {
    match elem {
        Elem::F32 | Elem::BF16 | Elem::F16 => float(f32::from_int(n, elem)),
        Elem::I8 | Elem::I32 | Elem::I64 => wrapped(n, elem),
        Elem::Bool => Scalar::Bool(n != 0),
    }
}

fn binary(op: BinaryOp, a: Scalar, b: Scalar, elem: Option<Elem>) -> Option<Scalar> {
    let elem = elem?;
    match (a, b) {
        (Scalar::Float(x), Scalar::Float(y)) => {
            Some(float(f32::binary(op, f32::literal(x, elem), f32::literal(y, elem), elem)))
        }
        (Scalar::Int(x), Scalar::Int(y)) => Some(wrapped(op.eval_int(x, y), elem)),
        (Scalar::Bool(x), Scalar::Bool(y)) => Some(Scalar::Bool(op.eval_int(i64::from(x), i64::from(y)) != 0)),
        (Scalar::Float(_) | Scalar::Int(_) | Scalar::Bool(_), _) => None,
    }
}

fn compare(op: CmpOp, a: Scalar, b: Scalar, elem: Option<Elem>) -> Option<Scalar> {
    let elem = elem?;
    match (a, b) {
        (Scalar::Float(x), Scalar::Float(y)) => {
            Some(Scalar::Bool(op.eval(f32::literal(x, elem), f32::literal(y, elem))))
        }
        (Scalar::Int(x), Scalar::Int(y)) => Some(Scalar::Bool(op.eval(x, y))),
        (Scalar::Bool(x), Scalar::Bool(y)) => Some(Scalar::Bool(op.eval(x, y))),
        (Scalar::Float(_) | Scalar::Int(_) | Scalar::Bool(_), _) => None,
    }
}

fn cast(s: Scalar, from: Elem, to: Elem) -> Scalar {
    match (s, to) {
        (Scalar::Float(x), Elem::F32 | Elem::BF16 | Elem::F16) => float(f32::literal(x, from).cast(to)),
        (Scalar::Float(x), Elem::Bool) => Scalar::Bool(f32::literal(x, from) != 0.0),
        (Scalar::Float(x), Elem::I8) => Scalar::Int(i64::from(f32::literal(x, from) as i8)),
        (Scalar::Float(x), Elem::I32) => Scalar::Int(i64::from(f32::literal(x, from) as i32)),
        (Scalar::Float(x), Elem::I64) => Scalar::Int(f32::literal(x, from) as i64),
        (Scalar::Int(n), to) => integer(n, to),
        (Scalar::Bool(b), to) => integer(i64::from(b), to),
    }
}
