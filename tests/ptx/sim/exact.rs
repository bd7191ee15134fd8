//! Floats in exact arithmetic: integers times powers of two, rounded once, in any direction, to any format. Written for the tests alone, so
//! that it shares nothing with the simulator.

use attnc::ptx::Type;
use attnc::ptx::words::Round;

/// A format of floats: bits, bits of the significand with the hidden one, largest exponent.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Format {
    pub(crate) bits: u32,
    precision: u32,
    largest: i32,
}

pub(crate) const F16: Format = Format { bits: 16, precision: 11, largest: 15 };
pub(crate) const BF16: Format = Format { bits: 16, precision: 8, largest: 127 };
pub(crate) const F32: Format = Format { bits: 32, precision: 24, largest: 127 };
pub(crate) const F64: Format = Format { bits: 64, precision: 53, largest: 1023 };

/// The format of a type of one float; of two, that of each.
pub(crate) fn format(ty: Type) -> Option<Format> {
    Some(match ty {
        Type::F16 | Type::F16x2 => F16,
        Type::Bf16 | Type::Bf16x2 => BF16,
        Type::F32 | Type::Tf32 => F32,
        Type::F64 => F64,
        _ => return None,
    })
}

/// A float.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Float {
    Nan,
    Infinite(bool),
    Zero(bool),
    /// Negative? `m` times two to the power of `e`, and, if `more`, a bit beyond that, less than one in the last place of `m`.
    Exact {
        negative: bool,
        m: u128,
        e: i32,
        more: bool,
    },
}

use Float::{Exact, Infinite, Nan, Zero};

impl Float {
    pub(crate) fn is_negative(self) -> bool {
        match self {
            Nan => false,
            Infinite(n) | Zero(n) | Exact { negative: n, .. } => n,
        }
    }

    pub(crate) fn negated(self) -> Float {
        match self {
            Nan => Nan,
            Infinite(n) => Infinite(!n),
            Zero(n) => Zero(!n),
            Exact { negative, m, e, more } => Exact { negative: !negative, m, e, more },
        }
    }

    /// An integer.
    pub(crate) fn integer(n: i128) -> Float {
        if n == 0 { Zero(false) } else { Exact { negative: n < 0, m: n.unsigned_abs(), e: 0, more: false } }
    }

    /// The order of two numbers; none where one is NaN.
    pub(crate) fn order(self, other: Float) -> Option<std::cmp::Ordering> {
        if self == Nan || other == Nan {
            return None;
        }
        let place = |x: Float| match x {
            Infinite(true) => -2,
            Infinite(false) => 2,
            Zero(_) | Nan => 0,
            Exact { negative, .. } => {
                if negative {
                    -1
                } else {
                    1
                }
            }
        };
        let (Exact { negative, .. }, Exact { .. }) = (self, other) else { return Some(place(self).cmp(&place(other))) };
        if place(self) != place(other) {
            return Some(place(self).cmp(&place(other)));
        }
        // The highest bits first, then all below them.
        let key = |x: Float| match x {
            Exact { m, e, .. } => (e + 127 - m.leading_zeros() as i32, m << m.leading_zeros()),
            _ => (0, 0),
        };
        let order = key(self).cmp(&key(other));
        Some(if negative { order.reverse() } else { order })
    }
}

impl Format {
    fn field(self) -> u32 {
        self.precision - 1
    }

    /// What bits mean; `flush` takes subnormals for zeros.
    pub(crate) fn decode(self, bits: u64, flush: bool) -> Float {
        let field = self.field();
        let mantissa = bits & ((1 << field) - 1);
        let exponent = (bits >> field & ((1 << (self.bits - 1 - field)) - 1)) as i32;
        let negative = bits >> (self.bits - 1) & 1 == 1;
        let most = 2 * self.largest + 1;
        if exponent == most {
            return if mantissa == 0 { Infinite(negative) } else { Nan };
        }
        let (m, e) = match exponent {
            0 if mantissa == 0 || flush => return Zero(negative),
            0 => (mantissa, 1),
            _ => (mantissa | 1 << field, exponent),
        };
        Exact { negative, m: u128::from(m), e: e - self.largest - field as i32, more: false }
    }

    /// The bits of a number, rounded; `flush` makes subnormal results zeros. NaN is the canonical one.
    pub(crate) fn round(self, x: Float, round: Round, flush: bool) -> u64 {
        let field = self.field();
        let most = (2 * self.largest + 1) as u64;
        let sign = |n: bool| u64::from(n) << (self.bits - 1);
        match x {
            Nan => (1 << (self.bits - 1)) - 1,
            Infinite(n) => sign(n) | most << field,
            Zero(n) => sign(n),
            Exact { negative, m, e, more } => {
                // The last place of the result: `precision` bits, but not below the smallest subnormal.
                let top = e + 127 - m.leading_zeros() as i32;
                let last = (top - field as i32).max(1 - self.largest - field as i32);
                let shift = last - e;
                let (whole, rest) = match shift {
                    ..=0 => (m << -shift, std::cmp::Ordering::Less),
                    1..=127 => {
                        let low = m & ((1 << shift) - 1);
                        (m >> shift, low.cmp(&(1 << (shift - 1))))
                    }
                    _ => (0, std::cmp::Ordering::Less),
                };
                let exact = !more && (shift <= 0 || shift < 128 && m & ((1 << shift) - 1) == 0);
                let rest = if more && rest == std::cmp::Ordering::Equal { std::cmp::Ordering::Greater } else { rest };
                let up = !exact
                    && match round {
                        Round::Nearest => match rest {
                            std::cmp::Ordering::Greater => true,
                            std::cmp::Ordering::Equal => whole & 1 == 1,
                            std::cmp::Ordering::Less => false,
                        },
                        Round::Zero => false,
                        Round::Down => negative,
                        Round::Up => !negative,
                    };
                let whole = whole as u64 + u64::from(up);
                // A carry into the exponent is what adding to the bits does.
                let exponent = (last + self.largest + field as i32 - 1) as u64;
                let bits = if whole >> field == 0 { whole } else { (exponent << field) + whole };
                if flush && bits >> field == 0 {
                    return sign(negative);
                }
                if bits >= most << field {
                    // Beyond the largest: infinite, or the largest, as the direction says.
                    let stays = match round {
                        Round::Nearest => false,
                        Round::Zero => true,
                        Round::Down => !negative,
                        Round::Up => negative,
                    };
                    return sign(negative) | ((most << field) - u64::from(stays));
                }
                sign(negative) | bits
            }
        }
    }
}

/// The product; exact for significands of up to 63 bits.
pub(crate) fn mul(a: Float, b: Float) -> Float {
    let negative = a.is_negative() != b.is_negative();
    match (a, b) {
        (Nan, _) | (_, Nan) | (Infinite(_), Zero(_)) | (Zero(_), Infinite(_)) => Nan,
        (Infinite(_), _) | (_, Infinite(_)) => Infinite(negative),
        (Zero(_), _) | (_, Zero(_)) => Zero(negative),
        (Exact { m, e, .. }, Exact { m: n, e: f, .. }) => Exact { negative, m: m * n, e: e + f, more: false },
    }
}

/// The sum, whose sign where it is nothing the direction decides.
pub(crate) fn add(a: Float, b: Float, round: Round) -> Float {
    match (a, b) {
        (Nan, _) | (_, Nan) => Nan,
        (Infinite(m), Infinite(n)) if m != n => Nan,
        (Infinite(n), _) | (_, Infinite(n)) => Infinite(n),
        (Zero(m), Zero(n)) => Zero(if m == n { m } else { round == Round::Down }),
        (Zero(_), x) | (x, Zero(_)) => x,
        (Exact { negative, m, e, .. }, Exact { negative: other, m: n, e: f, .. }) => {
            // The one with the higher top, moved up as far as there is room; the other joins it, what falls off is a bit beyond.
            let top = |m: u128, e: i32| e + 127 - m.leading_zeros() as i32;
            let ((big_sign, big, be), (small_sign, small, se)) = if top(m, e) >= top(n, f) {
                ((negative, m, e), (other, n, f))
            } else {
                ((other, n, f), (negative, m, e))
            };
            let room = big.leading_zeros() as i32 - 2;
            let lift = room.min(be - se).max(0);
            let (big, be) = (big << lift, be - lift);
            let shift = be - se;
            let (small, lost) = match shift {
                ..=0 => (small << -shift, false),
                1..=127 => (small >> shift, small & ((1 << shift) - 1) != 0),
                _ => (0, true),
            };
            if big_sign == small_sign {
                return Exact { negative: big_sign, m: big + small, e: be, more: lost };
            }
            // What falls off is taken away: one less, and a bit beyond that.
            let difference = big as i128 - small as i128 - i128::from(lost);
            if difference == 0 && !lost {
                return Zero(round == Round::Down);
            }
            let (sign, m) = if difference < 0 { (small_sign, -difference) } else { (big_sign, difference) };
            Exact { negative: sign, m: m as u128, e: be, more: lost }
        }
    }
}

/// The quotient, with more bits than any format has.
pub(crate) fn div(a: Float, b: Float) -> Float {
    let negative = a.is_negative() != b.is_negative();
    match (a, b) {
        (Nan, _) | (_, Nan) | (Infinite(_), Infinite(_)) | (Zero(_), Zero(_)) => Nan,
        (Infinite(_), _) | (_, Zero(_)) => Infinite(negative),
        (Zero(_), _) | (_, Infinite(_)) => Zero(negative),
        (Exact { m, e, .. }, Exact { m: n, e: f, .. }) => {
            let lift = m.leading_zeros() as i32 - 1;
            let m = m << lift;
            Exact { negative, m: m / n, e: e - lift - f, more: !m.is_multiple_of(n) }
        }
    }
}

/// The square root.
pub(crate) fn sqrt(a: Float) -> Float {
    match a {
        Zero(_) | Nan | Infinite(false) => a,
        _ if a.is_negative() => Nan,
        Infinite(_) => Nan,
        Exact { m, e, .. } => {
            let mut lift = m.leading_zeros() as i32 - 1;
            if (e - lift) % 2 != 0 {
                lift -= 1;
            }
            let m = m << lift;
            let root = m.isqrt();
            Exact { negative: false, m: root, e: (e - lift) / 2, more: root * root != m }
        }
    }
}

#[test]
fn exact_numbers_are_rounded_as_the_host_rounds() {
    let mut random = attnc::random::Random::new(11);
    for _ in 0..20_000 {
        let [a, b, c] = [(); 3].map(|()| f64::from_bits(random.word()));
        let [x, y, z] = [a, b, c].map(|v| F64.decode(v.to_bits(), false));
        let near = |found: Float, wanted: f64| {
            let bits = F64.round(found, Round::Nearest, false);
            if wanted.is_nan() { f64::from_bits(bits).is_nan() } else { bits == wanted.to_bits() }
        };
        let n = Round::Nearest;
        assert!(near(add(x, y, n), a + b) && near(mul(x, y), a * b) && near(div(x, y), a / b), "{a:e} {b:e}");
        assert!(near(sqrt(x), a.sqrt()), "{a:e}");
        assert!(near(add(mul(x, y), z, n), a.mul_add(b, c)), "{a:e} {b:e} {c:e}");
        let near = f64::from_bits(a.to_bits() & !(3 << 61) | 1 << 61);
        let narrow = F32.round(F64.decode(near.to_bits(), false), n, false);
        assert_eq!(narrow, u64::from((near as f32).to_bits()), "{near:e}");
        assert_eq!(x.order(y), a.partial_cmp(&b));
    }
}
