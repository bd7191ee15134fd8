//! The interpreter of elementary functions: computes one lane, bit for bit like compiled code.
//!
//! In: a function expanded by [`super::expand`], and the bits of its arguments. Out: the bits of
//! its result. A mask is 0 or 1.

#![warn(clippy::wildcard_enum_match_arm, reason = "a new operation is reported as an error here")]

use super::{Function, Op, Value};

/// Evaluates one lane.
///
/// # Errors
/// An operation that must be expanded first; a value that does not exist.
pub fn eval(f: &Function, args: &[u32]) -> Result<u32, String> {
    if args.len() != f.params.len() {
        return Err(format!("@{} has {} parameters, and {} were given", f.name, f.params.len(), args.len()));
    }
    let mut values = args.to_vec();
    for inst in &f.insts {
        let mut operands = [0; 3];
        for (to, v) in operands.iter_mut().zip(&inst.operands) {
            *to = get(&values, *v)?;
        }
        let result = operation(&inst.op, operands)?;
        values.push(result);
    }
    get(&values, f.result)
}

fn get(values: &[u32], v: Value) -> Result<u32, String> {
    values.get(v.index()).copied().ok_or_else(|| "a value that does not exist".to_string())
}

fn operation(op: &Op, x: [u32; 3]) -> Result<u32, String> {
    let bits = |i: usize| x[i];
    let float = |i: usize| f32::from_bits(bits(i));
    let (a, b, c) = (float(0), float(1), float(2));
    Ok(match op {
        Op::Add => (a + b).to_bits(),
        Op::Sub => (a - b).to_bits(),
        Op::Mul => (a * b).to_bits(),
        Op::Div => (a / b).to_bits(),
        Op::Fma => a.mul_add(b, c).to_bits(),
        Op::Fnma => (-a).mul_add(b, c).to_bits(),
        Op::Min => {
            if a < b {
                bits(0)
            } else {
                bits(1)
            }
        }
        Op::Max => {
            if a > b {
                bits(0)
            } else {
                bits(1)
            }
        }
        Op::Sqrt => a.sqrt().to_bits(),
        Op::Neg => bits(0) ^ (1 << 31),
        Op::Abs => bits(0) & !(1 << 31),
        Op::NegAbs => bits(0) | (1 << 31),
        Op::CopySign => bits(0) & !(1 << 31) | bits(1) & (1 << 31),
        Op::Floor => a.floor().to_bits(),
        Op::Fraction => fraction(a).to_bits(),
        Op::Scale => scale(a, b).to_bits(),
        Op::Nearest => nearest(a).cast_unsigned(),
        Op::Truncate => (a as i32).cast_unsigned(),
        Op::ToFloat => (bits(0).cast_signed() as f32).to_bits(),
        Op::Bits | Op::FromBits => bits(0),
        Op::AddI => bits(0).wrapping_add(bits(1)),
        Op::SubI => bits(0).wrapping_sub(bits(1)),
        Op::MulI => bits(0).wrapping_mul(bits(1)),
        Op::MulHigh => ((u64::from(bits(0)) * u64::from(bits(1))) >> 32) as u32,
        Op::AndI => bits(0) & bits(1),
        Op::XorI => bits(0) ^ bits(1),
        Op::ShiftLeft => bits(0).wrapping_shl(bits(1)),
        Op::ShiftSigned => bits(0).cast_signed().wrapping_shr(bits(1)).cast_unsigned(),
        Op::ShiftRight => bits(0).wrapping_shr(bits(1)),
        Op::Less => u32::from(a < b),
        Op::Equal => u32::from(a == b),
        Op::LessI => u32::from(bits(0).cast_signed() < bits(1).cast_signed()),
        Op::Select | Op::SelectI => {
            if bits(0) != 0 {
                bits(1)
            } else {
                bits(2)
            }
        }
        Op::Const(bits) => *bits,
        Op::Polynomial(_) | Op::Call(_) => return Err(format!("{} must be expanded first", op.info().name)),
    })
}

/// The nearest integer, or the least `i32`, like `cvtps2dq`.
fn nearest(a: f32) -> i32 {
    let n = a.round_ties_even();
    if (-2_147_483_648.0..2_147_483_648.0).contains(&n) { n as i32 } else { i32::MIN }
}

/// `a - floor(a)`, rounded down.
fn fraction(a: f32) -> f32 {
    if a.is_infinite() {
        return 0.0;
    }
    let exact = f64::from(a) - f64::from(a.floor());
    let near = exact as f32;
    if exact == 0.0 {
        // Rounding down, a difference of equal numbers is -0.
        return -0.0;
    }
    // A value just below 1 may have been rounded to 1, also in f64.
    if f64::from(near) > exact || near == 1.0 { near.next_down() } else { near }
}

/// `a * 2^floor(b)`, rounded once, with the rules of infinities that `vscalefps` has (Intel SDM,
/// table 5-38).
fn scale(a: f32, b: f32) -> f32 {
    if b.is_nan() || a.is_nan() && b.is_finite() {
        return f32::NAN;
    }
    if a.is_nan() {
        return if b > 0.0 { f32::INFINITY } else { 0.0 };
    }
    if b == f32::INFINITY {
        return if a == 0.0 { f32::NAN } else { f32::INFINITY.copysign(a) };
    }
    if b == f32::NEG_INFINITY {
        return if a.is_infinite() { f32::NAN } else { 0f32.copysign(a) };
    }
    // Outside of this range every finite result overflows or underflows; inside, the product is
    // exact in f64.
    let n = b.floor().clamp(-400.0, 400.0) as i32;
    (f64::from(a) * 2f64.powi(n)) as f32
}
