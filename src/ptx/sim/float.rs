//! Semantics of float instructions, lane by lane, with their rounding. Approximate instructions are
//! correctly rounded, which is within every error bound.

use super::lanes::{V, one, three, two, zero};
use super::rounding::{directed, flushed, nan, number, odd, rounded, sum};
use crate::ptx::words::{Compare, Ftz, Nan, Property, Relu, Round, Sat};
use crate::ptx::{Op, Type};

/// The element format of a packed type.
fn halves(ty: Type) -> Option<Type> {
    match ty {
        Type::F16x2 => Some(Type::F16),
        Type::Bf16x2 => Some(Type::Bf16),
        _ => None,
    }
}

/// Applies a scalar function to operands of a type; to both halves of packed types.
fn each(ty: Type, args: [u64; 3], f: impl Fn(Type, [u64; 3]) -> u64) -> u64 {
    match halves(ty) {
        None => f(ty, args.map(|a| zero(a, ty.bits()))),
        Some(half) => {
            let low = f(half, args.map(|a| a & 0xffff));
            let high = f(half, args.map(|a| a >> 16 & 0xffff));
            high << 16 | low & 0xffff
        }
    }
}

/// Applies flushing before and after, saturation and `relu` after a function.
fn shaped(ty: Type, ftz: Ftz, sat: Sat, args: [u64; 3], f: impl Fn([u64; 3]) -> u64) -> u64 {
    let flushes = |bits: u64| match (ftz, ty) {
        (Ftz::Flush, Type::F32) => flushed(bits),
        (Ftz::Flush, Type::F16) if bits & 0x7c00 == 0 => bits & 0x8000,
        _ => bits,
    };
    let mut d = flushes(f(args.map(flushes)));
    if sat == Sat::Clamp {
        let x = number(d, ty);
        // NaN becomes 0.
        d = if x >= 1.0 {
            rounded(1.0, ty, Round::Nearest)
        } else if x > 0.0 {
            d
        } else {
            0
        };
    }
    d
}

/// Rounds an exact result, given as an `f64` and its rounding error.
fn arithmetic(ty: Type, round: Round, x: (f64, f64)) -> u64 {
    let (s, missing) = x;
    if s.is_nan() {
        return nan(ty);
    }
    if ty == Type::F64 {
        return directed(s, missing, round).to_bits();
    }
    let s = odd(s, missing);
    rounded(s, ty, round)
}

/// Signs of zero sums: x + (-x) is -0 only when rounding down.
fn zero_sum(x: (f64, f64), a: f64, b: f64, round: Round) -> (f64, f64) {
    if x.0 == 0.0 && x.1 == 0.0 && !(a == 0.0 && b == 0.0 && a.is_sign_negative() == b.is_sign_negative()) {
        return (if round == Round::Down { -0.0 } else { 0.0 }, 0.0);
    }
    x
}

fn add(ty: Type, round: Round, a: u64, b: u64) -> u64 {
    if ty == Type::F32 && round == Round::Nearest {
        let d = f32::from_bits(a as u32) + f32::from_bits(b as u32);
        return if d.is_nan() { nan(ty) } else { u64::from(d.to_bits()) };
    }
    let (a, b) = (number(a, ty), number(b, ty));
    arithmetic(ty, round, zero_sum(sum(a, b), a, b, round))
}

fn multiply(ty: Type, round: Round, a: u64, b: u64) -> u64 {
    let (a, b) = (number(a, ty), number(b, ty));
    let p = a * b;
    // Products of the narrower formats are exact.
    let missing = if ty == Type::F64 && p.is_finite() { a.mul_add(b, -p) } else { 0.0 };
    arithmetic(ty, round, (p, missing))
}

fn fma(ty: Type, round: Round, a: u64, b: u64, c: u64) -> u64 {
    if ty == Type::F32 && round == Round::Nearest {
        let d = f32::from_bits(a as u32).mul_add(f32::from_bits(b as u32), f32::from_bits(c as u32));
        return if d.is_nan() { nan(ty) } else { u64::from(d.to_bits()) };
    }
    let (a, b, c) = (number(a, ty), number(b, ty), number(c, ty));
    let p = a * b;
    if ty == Type::F64 {
        let d = a.mul_add(b, c);
        if round == Round::Nearest || !d.is_finite() {
            return if d.is_nan() { nan(ty) } else { d.to_bits() };
        }
        if d == 0.0 {
            return arithmetic(ty, round, zero_sum((d, 0.0), p, c, round));
        }
        let low = a.mul_add(b, -p);
        let (s, e) = sum(p, c);
        return directed(d, (s - d) + (e + low), round).to_bits();
    }
    arithmetic(ty, round, zero_sum(sum(p, c), p, c, round))
}

fn divide(ty: Type, round: Round, a: u64, b: u64) -> u64 {
    let (a, b) = (number(a, ty), number(b, ty));
    let q = a / b;
    let rest = if q.is_finite() && b.is_finite() { (-q).mul_add(b, a) } else { 0.0 };
    arithmetic(ty, round, (q, if b < 0.0 { -rest } else { rest } * f64::MIN_POSITIVE.sqrt()))
}

fn root(ty: Type, round: Round, a: u64) -> u64 {
    let a = number(a, ty);
    let r = a.sqrt();
    let rest = if r.is_finite() { (-r).mul_add(r, a) } else { 0.0 };
    arithmetic(ty, round, (r, rest))
}

/// The lesser or greater.
fn extreme(ty: Type, nan_rule: Nan, greater: bool, a: u64, b: u64) -> u64 {
    let (x, y) = (number(a, ty), number(b, ty));
    match (x.is_nan(), y.is_nan()) {
        (true, true) => return nan(ty),
        (true, false) | (false, true) if nan_rule == Nan::Nan => return nan(ty),
        (true, false) => return b,
        (false, true) => return a,
        (false, false) => {}
    }
    let first = if x == y { x.is_sign_negative() != greater } else { (x < y) != greater };
    if first { a } else { b }
}

fn clamp_negative(ty: Type, d: u64) -> u64 {
    let x = number(d, ty);
    if x.is_nan() {
        nan(ty)
    } else if x.is_sign_negative() {
        0
    } else {
        d
    }
}

/// A function value, rounded to nearest.
fn function(ty: Type, a: u64, f: impl Fn(f64) -> f64) -> u64 {
    rounded(f(number(a, ty)), ty, Round::Nearest)
}

/// Executes an instruction of this kind. False for all others.
pub(super) fn eval(op: Op, x: &[V; 4], d: &mut V) -> bool {
    let keep = Sat::Wrap;
    match op {
        Op::AddFloat { round: Round::Nearest, ftz: Ftz::Keep, sat: Sat::Wrap, ty: Type::F32 } => {
            two(x, d, |a, b| add(Type::F32, Round::Nearest, a, b));
        }
        Op::Fma { round: Round::Nearest, ftz: Ftz::Keep, sat: Sat::Wrap, relu: Relu::No, ty: Type::F32 } => {
            three(x, d, |a, b, c| fma(Type::F32, Round::Nearest, a, b, c));
        }
        Op::AddFloat { round, ftz, sat, ty } => {
            two(x, d, |a, b| each(ty, [a, b, 0], |ty, v| shaped(ty, ftz, sat, v, |v| add(ty, round, v[0], v[1]))))
        }
        Op::SubFloat { round, ftz, sat, ty } => two(x, d, |a, b| {
            each(ty, [a, b, 0], |ty, v| shaped(ty, ftz, sat, v, |v| add(ty, round, v[0], negated(ty, v[1]))))
        }),
        Op::MulFloat { round, ftz, sat, ty } => {
            two(x, d, |a, b| each(ty, [a, b, 0], |ty, v| shaped(ty, ftz, sat, v, |v| multiply(ty, round, v[0], v[1]))))
        }
        Op::Fma { round, ftz, sat, relu, ty } => three(x, d, |a, b, c| {
            each(ty, [a, b, c], |ty, v| {
                let d = shaped(ty, ftz, sat, v, |v| fma(ty, round, v[0], v[1], v[2]));
                if relu == Relu::Yes { clamp_negative(ty, d) } else { d }
            })
        }),
        Op::DivFloat { round, ftz, ty } => {
            two(x, d, |a, b| shaped(ty, ftz, keep, [a, b, 0], |v| divide(ty, round, v[0], v[1])));
        }
        Op::DivApprox { ftz } => {
            two(x, d, |a, b| {
                shaped(Type::F32, ftz, keep, [a, b, 0], |v| divide(Type::F32, Round::Nearest, v[0], v[1]))
            });
        }
        Op::AbsFloat { ftz, ty } => {
            one(x, d, |a| each(ty, [a, 0, 0], |ty, v| shaped(ty, ftz, keep, v, |v| v[0] & !(1 << (ty.bits() - 1)))))
        }
        Op::NegFloat { ftz, ty } => {
            one(x, d, |a| each(ty, [a, 0, 0], |ty, v| shaped(ty, ftz, keep, v, |v| negated(ty, v[0]))));
        }
        Op::MinFloat { ftz, nan, ty } => two(x, d, |a, b| {
            each(ty, [a, b, 0], |ty, v| shaped(ty, ftz, keep, v, |v| extreme(ty, nan, false, v[0], v[1])))
        }),
        Op::MaxFloat { ftz, nan, ty } => two(x, d, |a, b| {
            each(ty, [a, b, 0], |ty, v| shaped(ty, ftz, keep, v, |v| extreme(ty, nan, true, v[0], v[1])))
        }),
        Op::Rcp { round, ftz, ty } => {
            let unit = rounded(1.0, ty, Round::Nearest);
            one(x, d, |a| shaped(ty, ftz, keep, [a, 0, 0], |v| divide(ty, round, unit, v[0])));
        }
        Op::RcpApprox { ftz } => approximate(x, d, ftz, |a| 1.0 / a),
        Op::Sqrt { round, ftz, ty } => one(x, d, |a| shaped(ty, ftz, keep, [a, 0, 0], |v| root(ty, round, v[0]))),
        Op::SqrtApprox { ftz } => approximate(x, d, ftz, f64::sqrt),
        Op::RsqrtApprox { ftz } => approximate(x, d, ftz, |a| 1.0 / a.sqrt()),
        Op::SinApprox { ftz } => approximate(x, d, ftz, f64::sin),
        Op::CosApprox { ftz } => approximate(x, d, ftz, f64::cos),
        Op::Lg2Approx { ftz } => approximate(x, d, ftz, f64::log2),
        Op::Ex2Approx { ftz, ty } => {
            one(x, d, |a| each(ty, [a, 0, 0], |ty, v| shaped(ty, ftz, keep, v, |v| function(ty, v[0], f64::exp2))))
        }
        Op::TanhApprox { ty } => one(x, d, |a| each(ty, [a, 0, 0], |ty, v| function(ty, v[0], f64::tanh))),
        Op::CopySign { ty } => {
            let top = 1 << (ty.bits() - 1);
            two(x, d, |a, b| a & top | b & (top - 1));
        }
        _ => return false,
    }
    true
}

fn negated(ty: Type, bits: u64) -> u64 {
    bits ^ 1 << (ty.bits() - 1)
}

fn approximate(x: &[V; 4], d: &mut V, ftz: Ftz, f: impl Fn(f64) -> f64) {
    one(x, d, |a| shaped(Type::F32, ftz, Sat::Wrap, [a, 0, 0], |v| function(Type::F32, v[0], &f)));
}

/// Does a comparison hold? `order` is `None` if an operand is NaN.
pub(super) fn holds(compare: Compare, order: Option<std::cmp::Ordering>) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let unordered = order.is_none();
    match compare {
        Compare::Eq => order == Some(Equal),
        Compare::Ne => matches!(order, Some(Less | Greater)),
        Compare::Lt => order == Some(Less),
        Compare::Le => matches!(order, Some(Less | Equal)),
        Compare::Gt => order == Some(Greater),
        Compare::Ge => matches!(order, Some(Greater | Equal)),
        Compare::EqUnordered => unordered || order == Some(Equal),
        Compare::NeUnordered => unordered || order != Some(Equal),
        Compare::LtUnordered => unordered || order == Some(Less),
        Compare::LeUnordered => unordered || order != Some(Greater),
        Compare::GtUnordered => unordered || order == Some(Greater),
        Compare::GeUnordered => unordered || order != Some(Less),
        Compare::Number => !unordered,
        Compare::Unordered => unordered,
    }
}

/// Does a comparison of two values of a type hold?
pub(super) fn compares(compare: Compare, ftz: Ftz, ty: Type, a: u64, b: u64) -> bool {
    match ty {
        Type::F32 | Type::F64 | Type::F16 | Type::Bf16 => {
            let read = |v: u64| {
                let flushes = ftz == Ftz::Flush && ty == Type::F32;
                let small = ftz == Ftz::Flush && ty == Type::F16 && v & 0x7c00 == 0;
                number(
                    if flushes {
                        flushed(v)
                    } else if small {
                        v & 0x8000
                    } else {
                        v
                    },
                    ty,
                )
            };
            holds(compare, read(a).partial_cmp(&read(b)))
        }
        _ if ty.is_signed() => {
            holds(compare, Some(super::lanes::sign(a, ty.bits()).cmp(&super::lanes::sign(b, ty.bits()))))
        }
        _ => holds(compare, Some(zero(a, ty.bits()).cmp(&zero(b, ty.bits())))),
    }
}

/// Is a float of a kind?
pub(super) fn is_kind(property: Property, ty: Type, bits: u64) -> bool {
    let x = number(bits, ty);
    let subnormal = match ty {
        Type::F64 => x.is_subnormal(),
        _ => f32::from_bits(bits as u32).is_subnormal(),
    };
    match property {
        Property::Finite => x.is_finite(),
        Property::Infinite => x.is_infinite(),
        Property::Number => !x.is_nan(),
        Property::NotANumber => x.is_nan(),
        Property::Normal => x.is_finite() && x != 0.0 && !subnormal,
        Property::Subnormal => subnormal,
    }
}
