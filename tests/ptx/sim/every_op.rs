//! Every opcode whose result depends on its operands alone, with all its words: types, directions of rounding, flushing, saturation. Numbers at the
//! edges and random ones are compared with exact arithmetic (`exact`) and with integers of 128 bits.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use attnc::ptx::operand::{OperandKind, Role};
use attnc::ptx::sim::Mode;
use attnc::ptx::words::{Compare, Ftz, Funnel, Half, Nan, Property, Relu, Round, RoundInt, Sat};
use attnc::ptx::{Op, Type};
use attnc::random::Random;

use super::Case;
use super::exact::{BF16, F16, F32, F64, Float, Format, add, div, format, mul, sqrt};

/// Threads of a launch: each takes a row of operands.
const ROWS: u32 = 128;

/// The class of registers of a type, and how memory is loaded into it.
pub(crate) fn class(ty: Type) -> (&'static str, &'static str) {
    match ty {
        Type::Pred => ("pred", ""),
        Type::F32 => ("f32", "f32"),
        Type::F64 => ("f64", "f64"),
        _ => match ty.bits() {
            8 | 16 => ("b16", "u16"),
            32 => ("b32", "b32"),
            _ => ("b64", "b64"),
        },
    }
}

/// The types of the result and of the operands, if all are registers, or numbers that the table of a `lop3` is.
fn types(op: Op) -> Option<(Type, Vec<Option<Type>>)> {
    let mut result = None;
    let mut operands = Vec::new();
    for slot in op.slots() {
        match (slot.role, slot.kind) {
            (Role::Def, OperandKind::Register(ty)) if result.is_none() => result = Some(ty),
            (Role::Use, OperandKind::Register(ty) | OperandKind::Value(ty) | OperandKind::Source(ty)) => {
                operands.push(Some(ty))
            }
            (Role::Use, OperandKind::Number(0, 255, 1)) => operands.push(None),
            _ => return None,
        }
    }
    Some((result?, operands))
}

/// The table of `lop3`.
const TABLE: u64 = 0x9a;

/// What an opcode gives for each row of operands, as the whole register; a predicate as 0 or 1.
fn apply(op: Op, result: Type, operands: &[Option<Type>], rows: &[[u64; 4]]) -> Vec<u64> {
    let mut declared = format!(".reg .b64 %at, %to, %all; .reg .b32 %word; .reg .{} %res;", class(result).0);
    let mut body = String::from("mad.wide.u32 %at, %t, 32, %x;\nmad.wide.u32 %to, %t, 8, %y;\n");
    let mut names = Vec::new();
    for (n, ty) in operands.iter().enumerate() {
        let Some(ty) = ty else {
            names.push(TABLE.to_string());
            continue;
        };
        let (class, load) = class(*ty);
        declared.push_str(&format!(".reg .{class} %op{n};\n"));
        if *ty == Type::Pred {
            body.push_str(&format!(
                "ld.global.b32 %word, [%at+{}];\nand.b32 %word, %word, 1;\nsetp.ne.u32 %op{n}, %word, 0;\n",
                8 * n
            ));
        } else {
            body.push_str(&format!("ld.global.{load} %op{n}, [%at+{}];\n", 8 * n));
        }
        names.push(format!("%op{n}"));
    }
    body.push_str(&format!("{} %res, {};\n", op.text(), names.join(", ")));
    body.push_str(match class(result).0 {
        "pred" => "selp.b64 %all, 1, 0, %res;\n",
        "b16" => "cvt.u64.u16 %all, %res;\n",
        "b32" => "cvt.u64.u32 %all, %res;\n",
        "f32" => "mov.b32 %word, %res;\ncvt.u64.u32 %all, %word;\n",
        _ => "mov.b64 %all, %res;\n",
    });
    body.push_str("st.global.u64 [%to], %all;");
    let target = op.needs().least();
    let target = if target.sm < 90 { "sm_80".to_string() } else { target.to_string() };
    let text = super::text(&target, ROWS, &declared, &body);
    let x: Vec<u8> = rows.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
    let mut case = Case::new(&text, ROWS, &x, 8 * rows.len());
    case.launch(1, 0, Mode::EAGER).unwrap_or_else(|r| panic!("{r}\n{text}"));
    let bytes = case.device.read(case.y, 8 * rows.len()).expect("in a buffer");
    bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes"))).collect()
}

/// What must come out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wanted {
    /// These bits of the register.
    Bits(u64),
    /// NaN of a format, whichever.
    AnyNan(u32),
    /// Within a distance of a number: absolute, relative.
    Near(f64, f64, f64),
    /// It is unspecified.
    Any,
}

use Wanted::{Any, AnyNan, Bits, Near};

pub(crate) fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// An integer as its type has it.
pub(crate) fn value(v: u64, ty: Type) -> i128 {
    let bits = ty.bits();
    let v = i128::from(v & mask(bits));
    if ty.is_signed() && v >> (bits - 1) == 1 { v - (1 << bits) } else { v }
}

/// The bits of an integer in a register of its type; 8 bits are extended.
fn cut(v: i128, ty: Type) -> Wanted {
    let bits = ty.bits();
    let v = (v as u128 & u128::from(mask(bits))) as u64;
    Bits(if bits == 8 { value(v, ty) as u64 & 0xffff } else { v })
}

fn clamp(v: i128, ty: Type) -> i128 {
    let bits = ty.bits();
    let (least, most) =
        if ty.is_signed() { (-(1i128 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) };
    v.clamp(least, most)
}

/// The whole product as 256 bits would have it: the low and the high half of two operands of at most 64 bits.
fn halves(a: i128, b: i128, ty: Type) -> [i128; 2] {
    let bits = ty.bits();
    // a = a1 2^32 + a0, with the sign in the upper part.
    let (a1, a0, b1, b0) = (a >> 32, a & 0xffff_ffff, b >> 32, b & 0xffff_ffff);
    let low = a0 * b0;
    let middle = a1 * b0 + a0 * b1 + (low >> 32);
    let high = a1 * b1 + (middle >> 32);
    let low64 = (middle & 0xffff_ffff) << 32 | low & 0xffff_ffff;
    if bits == 64 { [low64, high] } else { [low64, (a * b) >> bits] }
}

/// Applies a function to a register of one float, or to both floats of one.
fn each(ty: Type, x: [u64; 4], f: impl Fn(Format, [u64; 4]) -> Wanted) -> Wanted {
    let Some(format) = format(ty) else { return Any };
    if !matches!(ty, Type::F16x2 | Type::Bf16x2) {
        return f(format, x);
    }
    match (f(format, x.map(|v| v & 0xffff)), f(format, x.map(|v| v >> 16 & 0xffff))) {
        (Bits(low), Bits(high)) => Bits(high << 16 | low),
        _ => Any,
    }
}

/// The bits of a result that is rounded, flushed, cut to [0, 1], or to what is not negative.
fn finished(f: Format, x: Float, round: Round, ftz: Ftz, (sat, relu): (Sat, Relu)) -> Wanted {
    let bits = f.round(x, round, ftz == Ftz::Flush);
    let result = f.decode(bits, false);
    if sat == Sat::Clamp {
        let one = f.round(Float::integer(1), Round::Nearest, false);
        if result == Float::Nan || result.is_negative() {
            return Bits(0);
        }
        return Bits(if result.order(f.decode(one, false)) == Some(Ordering::Greater) { one } else { bits });
    }
    if relu == Relu::Yes && result.is_negative() {
        return Bits(0);
    }
    // The payload of NaN of 64 bits is unspecified.
    if result == Float::Nan && f == F64 { AnyNan(64) } else { Bits(bits) }
}

/// A float as an integer, in a direction; none for NaN.
fn whole(x: Float, round: RoundInt) -> Option<i128> {
    Some(match x {
        Float::Nan => return None,
        Float::Infinite(n) => {
            if n {
                i128::MIN
            } else {
                i128::MAX
            }
        }
        Float::Zero(_) => 0,
        Float::Exact { negative, m, e, .. } => {
            let (floor, half) = match e {
                0..=70 => (m << e, Ordering::Less),
                71.. => (1 << 126, Ordering::Less),
                -127..0 => (m >> -e, (m & ((1 << -e) - 1)).cmp(&(1 << (-e - 1)))),
                _ => (0, Ordering::Less),
            };
            let exact = e >= 0 || (e > -128 && m & ((1 << -e) - 1) == 0);
            let up = !exact
                && match round {
                    RoundInt::Nearest => half == Ordering::Greater || half == Ordering::Equal && floor & 1 == 1,
                    RoundInt::Zero => false,
                    RoundInt::Down => negative,
                    RoundInt::Up => !negative,
                };
            let n = (floor + u128::from(up)) as i128;
            if negative { -n } else { n }
        }
    })
}

fn host(bits: u64, f: Format) -> f64 {
    match f.bits {
        64 => f64::from_bits(bits),
        32 => f64::from(f32::from_bits(bits as u32)),
        _ if f == BF16 => f64::from(f32::from_bits((bits as u32) << 16)),
        _ => half::f16::from_bits(bits as u16).to_f64(),
    }
}

fn compared(compare: Compare, order: Option<Ordering>) -> bool {
    let Some(order) = order else {
        return matches!(
            compare,
            Compare::Ne
                | Compare::EqUnordered
                | Compare::NeUnordered
                | Compare::LtUnordered
                | Compare::LeUnordered
                | Compare::GtUnordered
                | Compare::GeUnordered
                | Compare::Unordered
        ) && compare != Compare::Ne;
    };
    match compare {
        Compare::Eq | Compare::EqUnordered => order == Ordering::Equal,
        Compare::Ne | Compare::NeUnordered => order != Ordering::Equal,
        Compare::Lt | Compare::LtUnordered => order == Ordering::Less,
        Compare::Le | Compare::LeUnordered => order != Ordering::Greater,
        Compare::Gt | Compare::GtUnordered => order == Ordering::Greater,
        Compare::Ge | Compare::GeUnordered => order != Ordering::Less,
        Compare::Number => true,
        Compare::Unordered => false,
    }
}

/// Is it arithmetic of `f64` in another direction than to nearest, of numbers that are too small or large for the simulator?
fn is_beyond(op: Op, x: [u64; 4]) -> bool {
    let round = match op {
        Op::AddFloat { round, ty: Type::F64, .. }
        | Op::SubFloat { round, ty: Type::F64, .. }
        | Op::MulFloat { round, ty: Type::F64, .. }
        | Op::Fma { round, ty: Type::F64, .. }
        | Op::DivFloat { round, ty: Type::F64, .. }
        | Op::Rcp { round, ty: Type::F64, .. }
        | Op::Sqrt { round, ty: Type::F64, .. } => round,
        _ => Round::Nearest,
    };
    let is_moderate = |v: u64| matches!(v >> 52 & 0x7ff, 693..=1353) || v << 1 == 0;
    round != Round::Nearest && !x.into_iter().all(is_moderate)
}

/// The model of an opcode; none for those that are not of operands alone.
fn model(op: Op, x: [u64; 4]) -> Option<Wanted> {
    let int = |ty: Type| x.map(|v| value(v, ty));
    let plain = (Sat::Wrap, Relu::No);
    let flushes = |ftz: Ftz| ftz == Ftz::Flush;
    let word = |n: usize| x[n] as u32;
    // One float, or both of a register.
    let floats = |ty: Type, ftz: Ftz, f: &dyn Fn(Format, [Float; 4]) -> Wanted| {
        each(ty, x, |format, x| f(format, x.map(|v| format.decode(v & mask(format.bits), flushes(ftz)))))
    };
    let approximates = |ty: Type, f: &dyn Fn(f64) -> f64, absolute: f64, relative: f64| {
        let format = format(ty).expect("floats");
        let flushed = matches!(
            op,
            Op::Ex2Approx { ftz: Ftz::Flush, .. }
                | Op::RcpApprox { ftz: Ftz::Flush }
                | Op::SqrtApprox { ftz: Ftz::Flush }
                | Op::RsqrtApprox { ftz: Ftz::Flush }
                | Op::Lg2Approx { ftz: Ftz::Flush }
        );
        let bits = x[0] & mask(format.bits);
        let is_small = matches!(format.decode(bits, true), Float::Zero(_));
        let y = f(host(if flushed && is_small { bits & 1 << (format.bits - 1) } else { bits }, format));
        if matches!(ty, Type::F16x2 | Type::Bf16x2) {
            return Any;
        }
        let least = [F16, BF16, F32, F64].into_iter().find(|f| *f == format).map_or(0.0, |f| match f.bits {
            16 if f == F16 => 7e-5,
            64 => 1e-300,
            _ => 1.2e-37,
        });
        let is_moderate = y.is_finite() && y.abs() > least && y.abs() < if format == F16 { 65000.0 } else { 3e38 };
        if y.is_nan() {
            AnyNan(format.bits)
        } else if is_moderate {
            Near(y, absolute, relative)
        } else {
            Any
        }
    };
    Some(match op {
        Op::Mov { ty } => Bits(x[0] & mask(ty.bits())),
        Op::CvtInt { sat, to, from } => {
            let v = value(x[0], from);
            cut(if sat == Sat::Clamp { clamp(v, to) } else { v }, to)
        }
        Op::CvtToFloat { round, to, from } => {
            finished(format(to)?, Float::integer(value(x[0], from)), round, Ftz::Keep, plain)
        }
        Op::CvtToInt { round, ftz, to, from } => {
            match whole(format(from)?.decode(x[0] & mask(from.bits()), flushes(ftz)), round) {
                Some(n) => cut(clamp(n, to), to),
                None if to.bits() == 64 => Bits(1 << 63),
                None => Bits(0),
            }
        }
        Op::CvtRoundInt { round, ftz, ty } => floats(ty, ftz, &|f, [a, ..]| match (whole(a, round), a) {
            (None, _) => finished(f, Float::Nan, Round::Nearest, ftz, plain),
            (_, Float::Infinite(_) | Float::Zero(_)) => finished(f, a, Round::Nearest, ftz, plain),
            // Large ones are whole.
            (_, Float::Exact { e: 1.., .. }) => finished(f, a, Round::Nearest, ftz, plain),
            (Some(0), _) => finished(f, Float::Zero(a.is_negative()), Round::Nearest, ftz, plain),
            (Some(n), _) => finished(f, Float::integer(n), Round::Nearest, ftz, plain),
        }),
        Op::CvtNarrow { round, ftz, relu, to, from } => {
            let a = format(from)?.decode(x[0] & mask(from.bits()), flushes(ftz));
            let to_f = format(to)?;
            // Subnormals of `f16` are not flushed.
            let ftz = if to == Type::F32 { ftz } else { Ftz::Keep };
            finished(to_f, a, round, ftz, (Sat::Wrap, relu))
        }
        Op::CvtWiden { ftz, to, from } => {
            let a = format(from)?.decode(x[0] & mask(from.bits()), flushes(ftz) && from != Type::F16);
            finished(format(to)?, a, Round::Nearest, Ftz::Keep, plain)
        }
        Op::CvtPack { round, relu, to } => {
            let half = |v: u64| {
                finished(
                    format(to).unwrap_or(F16),
                    F32.decode(v & mask(32), false),
                    round,
                    Ftz::Keep,
                    (Sat::Wrap, relu),
                )
            };
            match (half(x[0]), half(x[1])) {
                (Bits(high), Bits(low)) => Bits(high << 16 | low),
                _ => Any,
            }
        }
        Op::CvtTf32 {} => {
            let v = word(0);
            let y = f32::from_bits(v);
            if y.is_nan() {
                AnyNan(32)
            } else if y.is_infinite() {
                Bits(u64::from(v))
            } else {
                // Half a place is added to the magnitude, and what is below cut off.
                Bits(u64::from(((v & 0x7fff_ffff) + 0x1000) & !0x1fff | (v & 0x8000_0000)))
            }
        }
        Op::Add { sat, ty } => {
            let [a, b, ..] = int(ty);
            cut(if sat == Sat::Clamp { clamp(a + b, ty) } else { a + b }, ty)
        }
        Op::Sub { sat, ty } => {
            let [a, b, ..] = int(ty);
            cut(if sat == Sat::Clamp { clamp(a - b, ty) } else { a - b }, ty)
        }
        Op::Mul { half, ty } => cut(halves(int(ty)[0], int(ty)[1], ty)[usize::from(half == Half::High)], ty),
        Op::Mad { half, ty } => {
            cut(halves(int(ty)[0], int(ty)[1], ty)[usize::from(half == Half::High)] + int(ty)[2], ty)
        }
        Op::MulWide { ty } => Bits((int(ty)[0] * int(ty)[1]) as u64 & mask(2 * ty.bits())),
        Op::MadWide { ty } => Bits((int(ty)[0] * int(ty)[1] + i128::from(x[2])) as u64 & mask(2 * ty.bits())),
        Op::Div { ty } | Op::Rem { ty } => {
            let [a, b, ..] = int(ty);
            // The quotient of the least number and -1 has no place.
            if b == 0 || ty.is_signed() && b == -1 && a == -(1i128 << (ty.bits() - 1)) {
                Any
            } else if matches!(op, Op::Div { .. }) {
                cut(a / b, ty)
            } else {
                cut(a % b, ty)
            }
        }
        Op::Abs { ty } => cut(int(ty)[0].abs(), ty),
        Op::Neg { ty } => cut(-int(ty)[0], ty),
        Op::Min { ty } => cut(int(ty)[0].min(int(ty)[1]), ty),
        Op::Max { ty } => cut(int(ty)[0].max(int(ty)[1]), ty),
        Op::Popc { ty } => Bits((0..ty.bits()).filter(|n| x[0] >> n & 1 == 1).count() as u64),
        Op::Clz { ty } => Bits((0..ty.bits()).rev().take_while(|n| x[0] >> n & 1 == 0).count() as u64),
        Op::Brev { ty } => Bits((0..ty.bits()).map(|n| (x[0] >> n & 1) << (ty.bits() - 1 - n)).sum()),
        Op::Bfe { ty } => {
            let (from, length, bits) = (x[1] as u32 & 0xff, x[2] as u32 & 0xff, ty.bits());
            // Bit by bit: beyond the top, and beyond the length, the sign of what is taken.
            let top = (from + length).saturating_sub(1).min(bits - 1);
            let sign = if ty.is_signed() && length > 0 { x[0] >> top & 1 } else { 0 };
            let bit = |n: u32| if n < length && from + n < bits { x[0] >> (from + n) & 1 } else { sign };
            Bits((0..bits).map(|n| bit(n) << n).sum())
        }
        Op::Bfi { ty } => {
            let (from, length) = (x[2] as u32 & 0xff, x[3] as u32 & 0xff);
            let bit = |n: u32| if n >= from && n - from < length { x[0] >> (n - from) & 1 } else { x[1] >> n & 1 };
            Bits((0..ty.bits()).map(|n| bit(n) << n).sum())
        }
        Op::Dp4a { at, bt } => {
            let part = |v: u64, ty: Type, n: u32| value(v >> (8 * n), if ty.is_signed() { Type::S8 } else { Type::U8 });
            let sum: i128 = (0..4).map(|n| part(x[0], at, n) * part(x[1], bt, n)).sum();
            Bits((sum + i128::from(word(2))) as u64 & mask(32))
        }
        Op::And { ty } => Bits(x[0] & x[1] & mask(ty.bits())),
        Op::Or { ty } => Bits((x[0] | x[1]) & mask(ty.bits())),
        Op::Xor { ty } => Bits((x[0] ^ x[1]) & mask(ty.bits())),
        Op::Not { ty } => Bits(!x[0] & mask(ty.bits())),
        Op::Shl { ty } => Bits(if word(1) >= ty.bits() { 0 } else { x[0] << word(1) & mask(ty.bits()) }),
        Op::Shr { ty } => cut(value(x[0], ty) >> word(1).min(ty.bits()), ty),
        Op::ShfLeft { mode } | Op::ShfRight { mode } => {
            let wide = u64::from(word(1)) << 32 | u64::from(word(0));
            let by = if mode == Funnel::Wrap { word(2) & 31 } else { word(2).min(32) };
            let left = matches!(op, Op::ShfLeft { .. });
            Bits(if left { (wide << by) >> 32 } else { wide >> by & mask(32) })
        }
        Op::Lop3 {} => {
            let bit = |n: u32| TABLE >> ((x[0] >> n & 1) << 2 | (x[1] >> n & 1) << 1 | x[2] >> n & 1) & 1;
            Bits((0..32).map(|n| bit(n) << n).sum())
        }
        Op::Prmt {} => {
            let bytes = [word(0).to_le_bytes(), word(1).to_le_bytes()].concat();
            let pick = |n: u32| {
                let choice = (x[2] >> (4 * n)) as usize & 15;
                if choice < 8 { bytes[choice] } else { 0u8.wrapping_sub(bytes[choice & 7] >> 7) }
            };
            Bits(u64::from(u32::from_le_bytes([0, 1, 2, 3].map(pick))))
        }
        Op::AddFloat { round, ftz, sat, ty } => {
            floats(ty, ftz, &|f, [a, b, ..]| finished(f, add(a, b, round), round, ftz, (sat, Relu::No)))
        }
        Op::SubFloat { round, ftz, sat, ty } => {
            floats(ty, ftz, &|f, [a, b, ..]| finished(f, add(a, b.negated(), round), round, ftz, (sat, Relu::No)))
        }
        Op::MulFloat { round, ftz, sat, ty } => {
            floats(ty, ftz, &|f, [a, b, ..]| finished(f, mul(a, b), round, ftz, (sat, Relu::No)))
        }
        Op::Fma { round, ftz, sat, relu, ty } => {
            floats(ty, ftz, &|f, [a, b, c, _]| finished(f, add(mul(a, b), c, round), round, ftz, (sat, relu)))
        }
        Op::DivFloat { round, ftz, ty } => floats(ty, ftz, &|f, [a, b, ..]| finished(f, div(a, b), round, ftz, plain)),
        Op::Rcp { round, ftz, ty } => {
            floats(ty, ftz, &|f, [a, ..]| finished(f, div(Float::integer(1), a), round, ftz, plain))
        }
        Op::Sqrt { round, ftz, ty } => floats(ty, ftz, &|f, [a, ..]| finished(f, sqrt(a), round, ftz, plain)),
        Op::AbsFloat { ftz, ty } | Op::NegFloat { ftz, ty } => each(ty, x, |f, [v, ..]| {
            let v = v & mask(f.bits);
            let sign = 1 << (f.bits - 1);
            match f.decode(v, flushes(ftz)) {
                // The sign of NaN is unspecified.
                Float::Nan => {
                    if matches!(ty, Type::F16x2 | Type::Bf16x2) {
                        Any
                    } else {
                        AnyNan(f.bits)
                    }
                }
                a => {
                    let v = if matches!(a, Float::Zero(_)) { v & sign } else { v };
                    Bits(if matches!(op, Op::AbsFloat { .. }) { v & !sign } else { v ^ sign })
                }
            }
        }),
        Op::MinFloat { ftz, nan, ty } | Op::MaxFloat { ftz, nan, ty } => floats(ty, ftz, &|f, [a, b, ..]| {
            let least = matches!(op, Op::MinFloat { .. });
            let picked = match (a, b) {
                (Float::Nan, Float::Nan) => Float::Nan,
                (Float::Nan, x) | (x, Float::Nan) => {
                    if nan == Nan::Nan {
                        Float::Nan
                    } else {
                        x
                    }
                }
                (Float::Zero(m), Float::Zero(n)) => Float::Zero(if least { m || n } else { m && n }),
                _ if (a.order(b) == Some(Ordering::Less)) == least => a,
                _ => b,
            };
            finished(f, picked, Round::Nearest, ftz, plain)
        }),
        Op::CopySign { ty } => {
            let sign = 1 << (ty.bits() - 1);
            Bits(x[1] & (sign - 1) | x[0] & sign)
        }
        Op::TestFloat { property, ty } => {
            let v = x[0] & mask(ty.bits());
            let a = format(ty)?.decode(v, false);
            let is_small = matches!(format(ty)?.decode(v, true), Float::Zero(_));
            Bits(u64::from(match property {
                Property::Finite => matches!(a, Float::Zero(_) | Float::Exact { .. }),
                Property::Infinite => matches!(a, Float::Infinite(_)),
                Property::Number => a != Float::Nan,
                Property::NotANumber => a == Float::Nan,
                Property::Normal => matches!(a, Float::Exact { .. }) && !is_small,
                Property::Subnormal => matches!(a, Float::Exact { .. }) && is_small,
            }))
        }
        Op::SetP { compare, ftz, ty } => {
            let order = match format(ty) {
                Some(f) => {
                    let [a, b, ..] = x.map(|v| f.decode(v & mask(f.bits), flushes(ftz)));
                    a.order(b)
                }
                None => Some(int(ty)[0].cmp(&int(ty)[1])),
            };
            Bits(u64::from(compared(compare, order)))
        }
        Op::SelP { ty } => Bits(if x[2] & 1 == 1 { x[0] } else { x[1] } & mask(ty.bits())),
        Op::DivApprox { ftz } => {
            let [a, b] =
                [0, 1].map(|n| host(F32.round(F32.decode(x[n] & mask(32), flushes(ftz)), Round::Nearest, false), F32));
            let is_moderate = (1e-30..1e30).contains(&(a / b).abs()) && (1e-37..8e37).contains(&b.abs());
            if is_moderate { Near(a / b, 0.0, 2.0 * 2f64.powi(-23)) } else { Any }
        }
        Op::RcpApprox { .. } => approximates(Type::F32, &|a| 1.0 / a, 0.0, 2f64.powi(-23)),
        Op::SqrtApprox { .. } => approximates(Type::F32, &f64::sqrt, 0.0, 2f64.powi(-23)),
        Op::RsqrtApprox { .. } => approximates(Type::F32, &|a| 1.0 / a.sqrt(), 0.0, 2f64.powf(-22.9)),
        Op::SinApprox { .. } | Op::CosApprox { .. } => {
            let a = host(x[0] & mask(32), F32);
            let y = if matches!(op, Op::SinApprox { .. }) { a.sin() } else { a.cos() };
            if a.abs() <= 3.125 { Near(y, 2f64.powf(-20.5), 0.0) } else { Any }
        }
        Op::Lg2Approx { .. } => approximates(Type::F32, &f64::log2, 2f64.powi(-22), 2f64.powi(-22)),
        Op::Ex2Approx { ty, .. } => {
            let relative = if ty == Type::F32 {
                2f64.powi(-22)
            } else if ty == Type::F16 {
                2f64.powf(-9.9)
            } else {
                2f64.powi(-7)
            };
            approximates(ty, &f64::exp2, 0.0, relative)
        }
        Op::TanhApprox { ty } => match ty {
            Type::F32 => approximates(ty, &f64::tanh, 0.0, 2f64.powi(-11)),
            Type::F16 => approximates(ty, &f64::tanh, 2f64.powf(-10.987), 0.0),
            _ => approximates(ty, &f64::tanh, 2f64.powi(-8), 0.0),
        },
        _ => return None,
    })
}

/// Is what came out what must?
fn agrees(found: u64, wanted: Wanted, result: Type) -> bool {
    match wanted {
        Bits(bits) => found == bits,
        AnyNan(_) => format(result).is_some_and(|f| f.decode(found & mask(f.bits), false) == Float::Nan),
        Near(y, absolute, relative) => {
            let Some(f) = format(result) else { return false };
            let y_found = host(found & mask(f.bits), f);
            // And half a place of the format, for functions that are the nearest number of it.
            let place = y.abs()
                * 2f64.powi(match f.bits {
                    16 if f == BF16 => -8,
                    16 => -11,
                    _ => -24,
                });
            (y_found - y).abs() <= absolute + relative * y.abs() + place
        }
        Any => true,
    }
}

/// Operands: numbers at the edges of integers and floats of all widths, floats that are near each other, and any bits.
fn rows(operands: &[Option<Type>], random: &mut Random) -> Vec<[u64; 4]> {
    let edges = [
        0u64,
        1,
        2,
        0x7f,
        0x80,
        0xff,
        0x7fff,
        0x8000,
        0xffff,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        1 << 63,
        u64::MAX >> 1,
        u64::MAX,
    ];
    let one = |random: &mut Random, ty: Option<Type>| {
        let Some(f) = ty.and_then(format) else {
            return if random.chance(40) { random.pick(&edges) } else { random.word() >> random.below(64) };
        };
        let field = match f.bits {
            64 => 52,
            32 => 23,
            _ if f == BF16 => 7,
            _ => 10,
        };
        let most = mask(f.bits - 1 - field);
        let special = [
            0,
            1,
            (1 << field) - 1,
            1 << field,
            most << field,
            most << field | 1 << (field - 1),
            (most << field) - 1,
            (most / 2) << field,
        ];
        let float = |random: &mut Random| {
            let sign = (random.word() & 1) << (f.bits - 1);
            if random.chance(20) {
                return random.pick(&special) | sign;
            }
            let mantissa = random.word() & mask(field);
            // Short ones are halfway between others more often.
            let mantissa = if random.chance(30) { mantissa & !mask(field / 2) } else { mantissa };
            let exponent =
                if random.chance(70) { most / 2 - 6 + random.word() % 12 } else { random.word() % (most + 1) };
            sign | exponent << field | mantissa
        };
        match ty {
            Some(Type::F16x2 | Type::Bf16x2) => float(random) | float(random) << 16,
            _ => float(random),
        }
    };
    let kind = |n: usize| operands.get(n).copied().flatten();
    (0..ROWS)
        .map(|_| {
            let mut row = std::array::from_fn(|n| one(random, kind(n)));
            if random.chance(15) {
                // Sums that cancel, comparisons of equals.
                row[1] = row[0];
            }
            row
        })
        .collect()
}

#[test]
fn every_opcode_of_operands_alone_is_that_of_exact_arithmetic() {
    let mut random = Random::new(5);
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut specified, mut wrong) = (0u64, Vec::new());
    for op in Op::all() {
        let Some((result, operands)) = types(*op) else { continue };
        if model(*op, [0; 4]).is_none() {
            continue;
        }
        let rows = rows(&operands, &mut random);
        let found = apply(*op, result, &operands, &rows);
        let mut checked = 0;
        for (row, found) in rows.iter().zip(found) {
            let used = std::array::from_fn(|n| if n < operands.len() { row[n] } else { 0 });
            let wanted = if is_beyond(*op, used) { Any } else { model(*op, *row).expect("a model") };
            checked += u64::from(wanted != Any);
            if !agrees(found, wanted, result)
                && wrong.len() < 120
                && wrong.iter().filter(|w: &&String| w.starts_with(&op.text())).count() < 2
            {
                wrong.push(format!("{} {row:x?}: {found:x}, wanted {wanted:x?}", op.text()));
            }
        }
        assert!(checked > 0 || matches!(op, Op::Ex2Approx { .. } | Op::TanhApprox { .. }), "{}", op.text());
        specified += checked;
        *kinds.entry(op.meaning()).or_default() += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(kinds.len() >= 50 && kinds.values().sum::<usize>() >= 600 && specified > 50_000, "{kinds:#?} {specified}");
}

/// Each kind of instruction is executed by a test: by a loop over all opcodes here or in `others`, or in a text of another file.
#[test]
fn no_kind_of_instruction_is_left_out() {
    let texts = [
        include_str!("arithmetic.rs"),
        include_str!("warps.rs"),
        include_str!("memory.rs"),
        include_str!("products.rs"),
        include_str!("hopper.rs"),
        include_str!("kernels.rs"),
        include_str!("others.rs"),
        include_str!("mod.rs"),
        include_str!("hints.rs"),
    ];
    let mut kinds: BTreeMap<&str, bool> = BTreeMap::new();
    for op in Op::all() {
        let is_modelled = types(*op).is_some() && model(*op, [0; 4]).is_some();
        let text = format!("{} ", op.text());
        let ends = [format!("{};", op.text()), format!("{}\"", op.text())];
        let is_written = || texts.iter().any(|s| s.contains(&text) || ends.iter().any(|end| s.contains(end)));
        *kinds.entry(op.meaning()).or_default() |= is_modelled || super::others::covers(op) || is_written();
    }
    let left: Vec<&str> = kinds.into_iter().filter(|(_, has)| !has).map(|(kind, _)| kind).collect();
    assert!(left.is_empty(), "no test executes these: {left:#?}");
}
