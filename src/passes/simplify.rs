//! simplify: identities of single operations.
//!
//! ```text
//! func @f(%0 "x": f32[S, 4], %1 "b": f32[4]) -> (f32[4, S], f32[S, 4]) {
//! ^bb0:
//!   %2 = mul %0, 1.0                      : f32[S, 4]
//!   %3 = transpose %2, perm=[1, 0]        : f32[4, S]
//!   %4 = transpose %3, perm=[1, 0]        : f32[S, 4]
//!   %5 = reshape %4                       : f32[4*S]
//!   %6 = reshape %5                       : f32[S, 4]
//!   %7 = slice %6, axis=0, start=0, stop=S : f32[S, 4]
//!   %8 = broadcast %1                     : f32[S, 4]
//!   %9 = add %7, %8                       : f32[S, 4]
//!   %10 = div %9, 8.0                     : f32[S, 4]
//!   return %3, %10
//! }
//! ->
//! func @f(%0 "x": f32[S, 4], %1 "b": f32[4]) -> (f32[4, S], f32[S, 4]) {
//! ^bb0:
//!   %2 = transpose %0, perm=[1, 0]        : f32[4, S]
//!   %3 = add %0, %1                       : f32[S, 4]
//!   %4 = mul %3, 0.125                    : f32[S, 4]
//!   return %2, %4
//! }
//! ```
//!
//! # Rewrites
//!
//! All are exact, bit for bit, for every input, including NaN, infinities and `-0.0`; so `x + 0.0`
//! is missing (it turns `-0.0` into `0.0`), and so are `x * 0.0` and `x - x`. If `x` and the result
//! differ in shape, `x` is broadcast.
//!
//! | name | rewrite |
//! |---|---|
//! | neutral | `x * 1`, `x / 1`, `x + -0.0`, `x - 0.0`, `x^1`, `max(x, -inf)`, `min(x, inf)`, integers: `x + 0`, `x - 0`; `x and true`, `x or false`: `x` |
//! | absorbing | integers: `x * 0`, `x - x`: 0; `x and false`: false; `x or true`: true; `x == x` of integers: true; `iota` along an axis of 1: 0 |
//! | twice | `-(-x)`, `not not x`: `x`; `abs`, `relu`, `floor`, `max(x, x)`, `min`, `and`, `or` of a result of the same operation: once |
//! | power-of-two | `x / c` to `x * (1/c)`, where `1/c` is a normal number |
//! | square | `x^2` to `x * x`; `x * -1` to `-x` |
//! | same-way | `where(c, x, x)`: `x`; `where(c, true, false)`: `c`; `where(true, x, y)`: `x` |
//! | there-and-back | a cast to the same type; to a type that holds every value, and back |
//! | compose | `transpose` of `transpose`, `reshape` of `reshape`, `broadcast` of `broadcast`, `slice` of `slice` of one axis: one; `transpose` of a `broadcast` scalar, `reshape` of a `broadcast` that leaves the axes of its operand: `broadcast`; `transpose` of `iota`, `reshape` of `iota` that only adds or drops axes of 1: `iota` |
//! | no-move | `transpose` in order, `reshape` and `broadcast` to the same shape, `slice` of all, `pad` by nothing, `concat` of one |
//! | implicit-broadcast | an operand of an elementwise operation that was broadcast, where the result's shape is the same without |
//!
//! # Limits
//!
//! No rewrites that hold only for real numbers: no reassociation, no distribution. It does not look
//! into fused regions. Operations that become unused are left for `dce`.

use cranelift_entity::SecondaryMap;

use super::rewrite::{Cursor, made_by, round_to, splat};
use super::{Changed, Context};
use crate::ir::{Block, Class, Function, Inst, Op, Scalar, Type, Value, result_type};
use crate::scalar::{BinaryOp, CmpOp, UnaryOp};
use crate::shape::{Dim, Elem, TensorType};

/// The maximum number of consecutive rewrites of one instruction.
const MAX_REWRITES: usize = 8;
/// The maximum number of sweeps over the function; each rewrite simplifies it, so this is seldom
/// reached.
const MAX_ROUNDS: usize = 8;

/// The replacement of an instruction.
enum Rewrite {
    /// An existing value.
    Value(Value),
    /// Another operation, with its operands.
    Op(Op, Vec<Value>),
    /// A literal of the same type.
    Literal(Scalar),
    /// An operation on the first operand and a literal of rank 0.
    WithLiteral(BinaryOp, Value, Scalar, Elem),
}

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut changed = 0;
    // In a loop, an operand may be simplified after its user was visited.
    for _ in 0..MAX_ROUNDS {
        let now = once(f, ctx);
        changed += now;
        if now == 0 {
            break;
        }
    }
    Changed::from(changed > 0)
}

/// Visits every instruction once; returns the number of rewrites.
fn once(f: &mut Function, ctx: &mut Context) -> usize {
    let mut replaced: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    let mut changed = 0;
    for b in f.cfg().dominator_order() {
        for i in f.block(b).insts.clone() {
            for _ in 0..MAX_REWRITES {
                let mut operands = f.inst(i).operands.clone();
                operands.iter_mut().for_each(|v| *v = resolve(&replaced, *v));
                f.inst_mut(i).operands = operands;
                let Some((name, rewrite)) = find(f, i) else { break };
                if !apply(f, b, i, rewrite, &mut replaced) {
                    break;
                }
                ctx.count(name, 1);
                changed += 1;
                if f.inst(i).result.is_some_and(|v| replaced[v].is_some()) {
                    break;
                }
            }
        }
    }
    if changed > 0 {
        f.replace_uses(&replaced);
        f.remove_insts(|_, d| d.result.is_some_and(|v| replaced[v].is_some()));
    }
    changed
}

fn resolve(replaced: &SecondaryMap<Value, Option<Value>>, mut v: Value) -> Value {
    // A replacement is an operand, whose definition dominates the replaced value; so there is no
    // cycle.
    while let Some(w) = replaced[v] {
        v = w;
    }
    v
}

/// Applies a rewrite; `false` if its result would have another type.
fn apply(
    f: &mut Function,
    b: Block,
    i: Inst,
    rewrite: Rewrite,
    replaced: &mut SecondaryMap<Value, Option<Value>>,
) -> bool {
    let Some(result) = f.inst(i).result else { return false };
    let become_op = |f: &mut Function, op: Op, operands: Vec<Value>| {
        let types: Vec<&Type> = operands.iter().map(|v| f.ty(*v)).collect();
        let fits = result_type(&op, &types, Some(f.ty(result))).is_ok();
        if fits {
            let inst = f.inst_mut(i);
            (inst.op, inst.operands) = (op, operands);
        }
        fits
    };
    match rewrite {
        Rewrite::Value(v) if f.ty(v) == f.ty(result) => {
            replaced[result] = Some(v);
            true
        }
        Rewrite::Value(v) => become_op(f, Op::Broadcast, vec![v]),
        Rewrite::Op(op, operands) => become_op(f, op, operands),
        Rewrite::Literal(s) => become_op(f, Op::Const(s), Vec::new()),
        Rewrite::WithLiteral(op, x, s, elem) => {
            let at = Cursor::before(f, b, i);
            at.constant(f, s, elem).is_ok_and(|c| become_op(f, Op::Binary(op), vec![x, c]))
        }
    }
}

/// The rewrite that applies to an instruction, with its name.
fn find(f: &Function, i: Inst) -> Option<(&'static str, Rewrite)> {
    let inst = f.inst(i);
    let result = inst.result?;
    let operand = |k: usize| inst.operands.get(k).copied();
    let ty = f.ty(result);
    match &inst.op {
        Op::Iota { axis } if f.tensor(result)?.shape.get(*axis)? == &Dim::one() && !is_float(f, result) => {
            Some(("absorbing", Rewrite::Literal(Scalar::Int(0))))
        }
        Op::Unary(op) => unary(f, *op, operand(0)?),
        Op::Binary(op) => binary(f, *op, operand(0)?, operand(1)?).or_else(|| implicit(f, i)),
        Op::Compare(op) => {
            let (a, b) = (operand(0)?, operand(1)?);
            let reflexive = matches!(op, CmpOp::Eq | CmpOp::Le | CmpOp::Ge);
            if a == b && !is_float(f, a) {
                return Some(("absorbing", Rewrite::Literal(Scalar::Bool(reflexive))));
            }
            implicit(f, i)
        }
        Op::Where => select(f, operand(0)?, operand(1)?, operand(2)?).or_else(|| implicit(f, i)),
        Op::Cast { elem } => cast(f, operand(0)?, *elem),
        Op::Reshape => {
            let x = operand(0)?;
            if f.ty(x) == ty {
                return Some(("no-move", Rewrite::Value(x)));
            }
            match made_by(f, x)? {
                (_, Op::Reshape, [y]) => Some(("compose", Rewrite::Op(Op::Reshape, vec![*y]))),
                (_, Op::Broadcast, [y]) if leaves_last(f, x, result, f.tensor(*y)?.rank()) => {
                    Some(("compose", Rewrite::Op(Op::Broadcast, vec![*y])))
                }
                (_, Op::Iota { axis }, []) => {
                    let axis = same_axis(f.tensor(x)?, *axis, f.tensor(result)?)?;
                    Some(("compose", Rewrite::Op(Op::Iota { axis }, Vec::new())))
                }
                _ => None,
            }
        }
        Op::Broadcast => {
            let x = operand(0)?;
            if f.ty(x) == ty {
                return Some(("no-move", Rewrite::Value(x)));
            }
            match made_by(f, x)? {
                (_, Op::Broadcast, [y]) => Some(("compose", Rewrite::Op(Op::Broadcast, vec![*y]))),
                _ => None,
            }
        }
        Op::Transpose { perm } => {
            let x = operand(0)?;
            if perm.is_sorted() {
                return Some(("no-move", Rewrite::Value(x)));
            }
            match made_by(f, x)? {
                (_, Op::Transpose { perm: first }, [y]) => {
                    let perm = perm.iter().map(|p| first.get(*p).copied()).collect::<Option<Vec<usize>>>()?;
                    Some(("compose", Rewrite::Op(Op::Transpose { perm }, vec![*y])))
                }
                (_, Op::Broadcast, [y]) if is_rank_0(f, *y) => Some(("compose", Rewrite::Op(Op::Broadcast, vec![*y]))),
                (_, Op::Iota { axis }, []) => {
                    let axis = perm.iter().position(|p| p == axis)?;
                    Some(("compose", Rewrite::Op(Op::Iota { axis }, Vec::new())))
                }
                _ => None,
            }
        }
        Op::Slice { axis, start, stop } => {
            let x = operand(0)?;
            if *start == Dim::zero() && f.tensor(x)?.shape.get(*axis) == Some(stop) {
                return Some(("no-move", Rewrite::Value(x)));
            }
            match made_by(f, x)? {
                // The shape rule compared constants, so neither slice can be out of range at run
                // time.
                (_, Op::Slice { axis: inner, start: from, .. }, [y])
                    if inner == axis
                        && [start, stop, from].iter().all(|d| d.as_const().is_some())
                        && [x, *y].iter().all(|v| fixed(f, *v, *axis)) =>
                {
                    let op = Op::Slice { axis: *axis, start: from.add(start), stop: from.add(stop) };
                    Some(("compose", Rewrite::Op(op, vec![*y])))
                }
                _ => None,
            }
        }
        Op::Pad { low, high, .. } if *low == Dim::zero() && *high == Dim::zero() => {
            Some(("no-move", Rewrite::Value(operand(0)?)))
        }
        Op::Concat { .. } if inst.operands.len() == 1 => Some(("no-move", Rewrite::Value(operand(0)?))),
        // All other operations stay.
        _ => None,
    }
}

fn is_rank_0(f: &Function, v: Value) -> bool {
    f.tensor(v).is_some_and(|t| t.rank() == 0)
}

fn is_float(f: &Function, v: Value) -> bool {
    f.tensor(v).is_some_and(|t| t.elem.is_float())
}

/// Do two values have the same last `n` axes? A reshape between them then affects only the axes
/// before.
fn leaves_last(f: &Function, from: Value, to: Value, n: usize) -> bool {
    let last = |v: Value| f.tensor(v).and_then(|t| t.shape.get(t.rank().checked_sub(n)?..));
    last(from).is_some_and(|axes| last(to) == Some(axes))
}

/// The index of an axis after a reshape that only adds or drops axes of 1; `None` if it does more,
/// or the axis has extent 1.
fn same_axis(from: &TensorType, axis: usize, to: &TensorType) -> Option<usize> {
    let longer = |t: &TensorType| {
        let axes = t.shape.iter().enumerate().filter(|(_, d)| **d != Dim::one());
        axes.map(|(n, d)| (n, d.clone())).collect::<Vec<_>>()
    };
    let (old, new) = (longer(from), longer(to));
    let place = old.iter().position(|(n, _)| *n == axis)?;
    let same = old.len() == new.len() && old.iter().zip(&new).all(|((_, a), (_, b))| a == b);
    new.get(place).filter(|_| same).map(|(n, _)| *n)
}

/// Is the extent of an axis a constant?
fn fixed(f: &Function, v: Value, axis: usize) -> bool {
    f.tensor(v).and_then(|t| t.shape.get(axis)).is_some_and(|d| d.as_const().is_some())
}

fn unary(f: &Function, op: UnaryOp, x: Value) -> Option<(&'static str, Rewrite)> {
    let (_, Op::Unary(inner), [y]) = made_by(f, x)? else { return None };
    match (op, inner) {
        (UnaryOp::Neg, UnaryOp::Neg) | (UnaryOp::Not, UnaryOp::Not) => Some(("twice", Rewrite::Value(*y))),
        (UnaryOp::Abs, UnaryOp::Abs) | (UnaryOp::Relu, UnaryOp::Relu) | (UnaryOp::Floor, UnaryOp::Floor) => {
            Some(("twice", Rewrite::Value(x)))
        }
        (UnaryOp::Abs, UnaryOp::Neg) => Some(("twice", Rewrite::Op(Op::Unary(UnaryOp::Abs), vec![*y]))),
        _ => None,
    }
}

fn binary(f: &Function, op: BinaryOp, a: Value, b: Value) -> Option<(&'static str, Rewrite)> {
    let (left, right) = (splat(f, a), splat(f, b));
    let neutral = |op: BinaryOp, s: Option<Scalar>, right: bool| match (op, s) {
        (BinaryOp::Mul, Some(Scalar::Float(x))) => x == 1.0,
        (BinaryOp::Add, Some(Scalar::Float(x))) => x == 0.0 && x.is_sign_negative(),
        (BinaryOp::Max, Some(Scalar::Float(x))) => x == f64::NEG_INFINITY,
        (BinaryOp::Min, Some(Scalar::Float(x))) => x == f64::INFINITY,
        (BinaryOp::Sub, Some(Scalar::Float(x))) => right && x == 0.0 && x.is_sign_positive(),
        (BinaryOp::Div | BinaryOp::Pow, Some(Scalar::Float(x))) => right && x == 1.0,
        (BinaryOp::Mul, Some(Scalar::Int(n))) => n == 1,
        (BinaryOp::Add, Some(Scalar::Int(n))) => n == 0,
        (BinaryOp::Sub, Some(Scalar::Int(n))) => right && n == 0,
        (BinaryOp::Div, Some(Scalar::Int(n))) => right && n == 1,
        (BinaryOp::And, Some(Scalar::Bool(t))) => t,
        (BinaryOp::Or, Some(Scalar::Bool(t))) => !t,
        (BinaryOp::BitAnd, Some(Scalar::Int(n))) => n == -1,
        (BinaryOp::BitOr | BinaryOp::BitXor, Some(Scalar::Int(n))) => n == 0,
        (BinaryOp::ShiftLeft | BinaryOp::ShiftRight, Some(Scalar::Int(n))) => right && n == 0,
        _ => false,
    };
    if neutral(op, right, true) {
        return Some(("neutral", Rewrite::Value(a)));
    }
    if neutral(op, left, false) {
        return Some(("neutral", Rewrite::Value(b)));
    }
    let absorbing = |s: Option<Scalar>| match (op, s) {
        (BinaryOp::Mul, Some(Scalar::Int(0))) => Some(Scalar::Int(0)),
        (BinaryOp::And, Some(Scalar::Bool(false))) => Some(Scalar::Bool(false)),
        (BinaryOp::Or, Some(Scalar::Bool(true))) => Some(Scalar::Bool(true)),
        (BinaryOp::BitAnd, Some(Scalar::Int(0))) => Some(Scalar::Int(0)),
        (BinaryOp::BitOr, Some(Scalar::Int(-1))) => Some(Scalar::Int(-1)),
        _ => None,
    };
    if let Some(s) = absorbing(left).or(absorbing(right)) {
        return Some(("absorbing", Rewrite::Literal(s)));
    }
    if a == b {
        match op {
            BinaryOp::Max | BinaryOp::Min | BinaryOp::And | BinaryOp::Or | BinaryOp::BitAnd | BinaryOp::BitOr => {
                return Some(("twice", Rewrite::Value(a)));
            }
            BinaryOp::BitXor => return Some(("absorbing", Rewrite::Literal(Scalar::Int(0)))),
            BinaryOp::Sub if !is_float(f, a) => return Some(("absorbing", Rewrite::Literal(Scalar::Int(0)))),
            _ => {}
        }
    }
    let elem = f.tensor(a)?.elem;
    match (op, left, right) {
        (BinaryOp::Mul, _, Some(Scalar::Float(-1.0))) if f.ty(a) != f.ty(b) || left.is_none() => {
            Some(("square", Rewrite::Op(Op::Unary(UnaryOp::Neg), vec![a])))
        }
        (BinaryOp::Pow, _, Some(Scalar::Float(2.0))) => {
            Some(("square", Rewrite::Op(Op::Binary(BinaryOp::Mul), vec![a, a])))
        }
        (BinaryOp::Div, _, Some(Scalar::Float(c))) => {
            let inverse = power_of_two_inverse(c, elem)?;
            Some(("power-of-two", Rewrite::WithLiteral(BinaryOp::Mul, a, Scalar::Float(inverse), elem)))
        }
        _ => None,
    }
}

/// `1/c`, if dividing by `c` and multiplying by `1/c` are equivalent: both are powers of two and
/// normal numbers.
fn power_of_two_inverse(c: f64, elem: Elem) -> Option<f64> {
    let inverse = 1.0 / c;
    let smallest = match elem {
        Elem::F16 => 6.103_515_625e-5,
        _ => f64::from(f32::MIN_POSITIVE),
    };
    let power = |x: f64| x.is_normal() && x.to_bits() & ((1 << 52) - 1) == 0;
    let normal = |x: f64| x.abs() >= smallest && round_to(elem, x) == x;
    (power(c) && normal(c) && normal(inverse)).then_some(inverse)
}

fn select(f: &Function, c: Value, a: Value, b: Value) -> Option<(&'static str, Rewrite)> {
    if let Some(Scalar::Bool(t)) = splat(f, c) {
        return Some(("same-way", Rewrite::Value(if t { a } else { b })));
    }
    if a == b {
        return Some(("same-way", Rewrite::Value(a)));
    }
    match (splat(f, a), splat(f, b)) {
        (Some(Scalar::Bool(true)), Some(Scalar::Bool(false))) => Some(("same-way", Rewrite::Value(c))),
        _ => None,
    }
}

fn cast(f: &Function, x: Value, to: Elem) -> Option<(&'static str, Rewrite)> {
    let from = f.tensor(x)?.elem;
    if from == to {
        return Some(("there-and-back", Rewrite::Value(x)));
    }
    let (_, Op::Cast { .. }, [y]) = made_by(f, x)? else { return None };
    let first = f.tensor(*y)?.elem;
    (first == to && holds(from, first)).then_some(("there-and-back", Rewrite::Value(*y)))
}

/// Can `wide` represent every value of `narrow`?
fn holds(wide: Elem, narrow: Elem) -> bool {
    match narrow {
        Elem::Bool => true,
        Elem::BF16 | Elem::F16 => wide == Elem::F32,
        Elem::I8 => matches!(wide, Elem::I32 | Elem::I64 | Elem::F32 | Elem::BF16 | Elem::F16),
        Elem::I32 => wide == Elem::I64,
        Elem::F32 | Elem::I64 => wide == narrow,
    }
}

/// Replaces broadcast operands of an elementwise operation by their sources, if the shape of the
/// result stays.
fn implicit(f: &Function, i: Inst) -> Option<(&'static str, Rewrite)> {
    let inst = f.inst(i);
    if inst.op.info().class != Class::Elementwise {
        return None;
    }
    let mut operands = inst.operands.clone();
    for k in 0..operands.len() {
        let mut tried = operands.clone();
        tried[k] = match made_by(f, operands[k]) {
            Some((_, Op::Broadcast, [y])) => *y,
            // Broadcasting adds leading axes of 1 anyway.
            Some((_, Op::Reshape, [y])) if adds_leading_ones(f.tensor(*y)?, f.tensor(operands[k])?) => *y,
            _ => continue,
        };
        let types: Vec<&Type> = tried.iter().map(|v| f.ty(*v)).collect();
        if result_type(&inst.op, &types, Some(f.ty(inst.result?))).is_ok() {
            operands = tried;
        }
    }
    (operands != inst.operands).then(|| ("implicit-broadcast", Rewrite::Op(inst.op.clone(), operands)))
}

fn adds_leading_ones(from: &TensorType, to: &TensorType) -> bool {
    let Some(more) = to.rank().checked_sub(from.rank()) else { return false };
    more > 0 && to.shape[more..] == from.shape && to.shape[..more].iter().all(|d| *d == Dim::one())
}
