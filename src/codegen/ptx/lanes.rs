//! Operations on one element, as PTX.
//!
//! In: operations of the tile IR on elements, and operands as [`Lane`]s. Out: results. Elementary
//! functions match vector IR bit for bit, for a machine with FMA; `f32` additions are not
//! contracted.
//!
//! | element | register |
//! |---|---|
//! | `f32` | `.f32` |
//! | `i32` | `.b32` |
//! | `i64` | `.b64` |
//! | `bool` | `.pred`; in shared memory 4 bytes, all ones for true |

use super::emit::{Emit, at};
use crate::ptx::words::{
    Compare, Ftz, Half, LoadCache, Nan, ReadOnly, Relu, Round, RoundInt, Sat, Shuffle, StoreCache, Vector,
};
use crate::ptx::{Op, Operand, Reg, RegType, Type};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp};
use crate::shape::Elem;
use crate::vector::expand::{Expanded, Need, expanded, shift};
use crate::vector::{self, Features, Function, library};

/// Features that functions of vector IR may use. Rounding to integers has its own instructions
/// here.
const FEATURES: Features = Features { fma: true, ..Features::PLAIN };

/// An element in the type in which it is computed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lane {
    /// Its register, or a constant.
    pub(super) value: Operand,
    /// `f32`, `i32`, `i64` or `bool`.
    pub(super) elem: Elem,
}

/// The PTX type of a computed element.
pub(super) fn ptx_type(elem: Elem) -> Type {
    match elem.computed() {
        Elem::F32 | Elem::BF16 | Elem::F16 => Type::F32,
        Elem::I32 | Elem::I8 => Type::S32,
        Elem::I64 => Type::S64,
        Elem::Bool => Type::Pred,
    }
}

/// The comparison in an opcode.
fn compare_word(op: CmpOp, is_float: bool) -> Compare {
    match op {
        CmpOp::Eq => Compare::Eq,
        // True for NaN.
        CmpOp::Ne if is_float => Compare::NeUnordered,
        CmpOp::Ne => Compare::Ne,
        CmpOp::Lt => Compare::Lt,
        CmpOp::Le => Compare::Le,
        CmpOp::Gt => Compare::Gt,
        CmpOp::Ge => Compare::Ge,
    }
}

fn float(x: f32) -> Operand {
    Operand::F32(x.to_bits())
}

const KEEP: Ftz = Ftz::Keep;
const WRAP: Sat = Sat::Wrap;
const NEAREST: Round = Round::Nearest;

impl Emit {
    pub(super) fn literal(&mut self, s: Scalar, elem: Elem) -> Lane {
        let value = match elem.computed() {
            Elem::F32 | Elem::BF16 | Elem::F16 => float(s.as_f64() as f32),
            Elem::I32 | Elem::I8 => Operand::Int(i64::from(s.as_i64() as i32)),
            Elem::I64 => Operand::Int(s.as_i64()),
            Elem::Bool => {
                let n = i64::from(s.as_f64() != 0.0);
                self.compare("p", Compare::Ne, Type::S32, &Operand::Int(n), &Operand::Int(0))
            }
        };
        Lane { value, elem: elem.computed() }
    }

    fn float_op(&mut self, name: &str, op: Op, operands: &[Operand]) -> Operand {
        self.make(name, op, Type::F32, operands)
    }

    /// A unary operation.
    ///
    /// # Errors
    /// An operation that is neither an instruction nor a library function: a bug in attnc.
    pub(super) fn unary(&mut self, name: &str, op: UnaryOp, x: &Lane) -> Result<Lane, String> {
        let ty = ptx_type(x.elem);
        let a = std::slice::from_ref(&x.value);
        let round = |round| Op::CvtRoundInt { round, ftz: KEEP, ty: Type::F32 };
        let value = match (x.elem, op) {
            (Elem::F32, UnaryOp::Neg) => self.make(name, Op::NegFloat { ftz: KEEP, ty }, ty, a),
            (Elem::F32, UnaryOp::Abs) => self.make(name, Op::AbsFloat { ftz: KEEP, ty }, ty, a),
            (Elem::F32, UnaryOp::Sqrt) => self.make(name, Op::Sqrt { round: NEAREST, ftz: KEEP, ty }, ty, a),
            (Elem::F32, UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc | UnaryOp::Round) => {
                let x = self.in_reg(&x.value, ty);
                let way = match op {
                    UnaryOp::Floor => RoundInt::Down,
                    UnaryOp::Ceil => RoundInt::Up,
                    UnaryOp::Trunc => RoundInt::Zero,
                    _ => RoundInt::Nearest,
                };
                self.make(name, round(way), ty, &[x])
            }
            (Elem::F32, _) => {
                let function = library::unary(op).ok_or_else(|| format!("{op} is not defined for floats"))?;
                self.function(name, function, a)?
            }
            (Elem::Bool, _) => self.make(name, Op::Not { ty: Type::Pred }, ty, a),
            (_, UnaryOp::Neg) => self.make(name, Op::Neg { ty }, ty, a),
            (_, UnaryOp::Abs) => {
                // The least integer is its own magnitude; the instruction leaves it unspecified.
                let negative = self.make("n", Op::Neg { ty }, ty, a);
                self.make(name, Op::Max { ty }, ty, &[x.value.clone(), negative])
            }
            (elem, _) => {
                let range = op.integer_range().ok_or_else(|| format!("{op} is not defined for integers"))?;
                let mut value = x.value.clone();
                let limit = |n: i64| if elem == Elem::I32 { i64::from(n as i32) } else { n };
                if let Some(low) = range[0] {
                    value = self.make(name, Op::Max { ty }, ty, &[value, Operand::Int(limit(low))]);
                }
                if let Some(high) = range[1] {
                    value = self.make(name, Op::Min { ty }, ty, &[value, Operand::Int(limit(high))]);
                }
                value
            }
        };
        Ok(Lane { value, elem: x.elem })
    }

    /// A binary operation.
    ///
    /// # Errors
    /// A function missing from the library: a bug in attnc.
    pub(super) fn binary(&mut self, name: &str, op: BinaryOp, x: &Lane, y: &Lane) -> Result<Lane, String> {
        let ty = ptx_type(x.elem);
        let (a, b) = (x.value.clone(), y.value.clone());
        let bits = if ty.bits() == 64 { Type::B64 } else { Type::B32 };
        let value = match (x.elem, op) {
            (Elem::F32, BinaryOp::Add) => {
                self.float_op(name, Op::AddFloat { round: NEAREST, ftz: KEEP, sat: WRAP, ty }, &[a, b])
            }
            (Elem::F32, BinaryOp::Sub) => {
                self.float_op(name, Op::SubFloat { round: NEAREST, ftz: KEEP, sat: WRAP, ty }, &[a, b])
            }
            (Elem::F32, BinaryOp::Mul) => {
                self.float_op(name, Op::MulFloat { round: NEAREST, ftz: KEEP, sat: WRAP, ty }, &[a, b])
            }
            (Elem::F32, BinaryOp::Div) => self.float_op(name, Op::DivFloat { round: NEAREST, ftz: KEEP, ty }, &[a, b]),
            // For zeros of different signs the result is either.
            (Elem::F32, BinaryOp::Max) => self.float_op(name, Op::MaxFloat { ftz: KEEP, nan: Nan::Nan, ty }, &[a, b]),
            (Elem::F32, BinaryOp::Min) => self.float_op(name, Op::MinFloat { ftz: KEEP, nan: Nan::Nan, ty }, &[a, b]),
            (Elem::F32, _) => {
                let function = library::binary(op, vector::Type::F32).ok_or_else(|| format!("{op} of floats"))?;
                self.function(name, function, &[a, b])?
            }
            (Elem::Bool, BinaryOp::Or | BinaryOp::Max | BinaryOp::Add) => self.make(name, Op::Or { ty }, ty, &[a, b]),
            (Elem::Bool, _) => self.make(name, Op::And { ty }, ty, &[a, b]),
            (_, BinaryOp::Add) => self.add(name, ty, &a, &b),
            (_, BinaryOp::Sub) => self.sub(name, ty, &a, &b),
            (_, BinaryOp::Mul) => self.mul(name, ty, &a, &b),
            (_, BinaryOp::Max) => self.make(name, Op::Max { ty }, ty, &[a, b]),
            (_, BinaryOp::Min) => self.make(name, Op::Min { ty }, ty, &[a, b]),
            (_, BinaryOp::And | BinaryOp::BitAnd) => self.make(name, Op::And { ty: bits }, ty, &[a, b]),
            (_, BinaryOp::Or | BinaryOp::BitOr) => self.make(name, Op::Or { ty: bits }, ty, &[a, b]),
            (_, BinaryOp::BitXor) => self.make(name, Op::Xor { ty: bits }, ty, &[a, b]),
            (_, BinaryOp::ShiftLeft) => self.shifted(name, true, x.elem, &a, &b),
            (_, BinaryOp::ShiftRight) => self.shifted(name, false, x.elem, &a, &b),
            (_, BinaryOp::Div) => self.divide(name, ty, &a, &b).0,
            (_, BinaryOp::Rem) => self.divide(name, ty, &a, &b).1,
            (_, BinaryOp::Pow) => self.power(name, ty, &a, &b),
        };
        Ok(Lane { value, elem: x.elem })
    }

    pub(super) fn compare_lanes(&mut self, name: &str, op: CmpOp, x: &Lane, y: &Lane) -> Lane {
        let (mut a, mut b, mut ty) = (x.value.clone(), y.value.clone(), ptx_type(x.elem));
        if x.elem == Elem::Bool {
            (a, b, ty) = (self.number_of_truth(&a), self.number_of_truth(&b), Type::S32);
        }
        let value = self.compare(name, compare_word(op, x.elem == Elem::F32), ty, &a, &b);
        Lane { value, elem: Elem::Bool }
    }

    /// 1 for true, 0 for false.
    fn number_of_truth(&mut self, p: &Operand) -> Operand {
        self.select("b", Type::S32, p, &Operand::Int(1), &Operand::Int(0))
    }

    /// `condition ? x : y`
    pub(super) fn select_lanes(&mut self, name: &str, condition: &Lane, x: &Lane, y: &Lane) -> Lane {
        let value = if x.elem == Elem::Bool {
            let (a, b) = (self.number_of_truth(&x.value), self.number_of_truth(&y.value));
            let chosen = self.select("b", Type::S32, &condition.value, &a, &b);
            self.compare(name, Compare::Ne, Type::S32, &chosen, &Operand::Int(0))
        } else {
            self.select(name, ptx_type(x.elem), &condition.value, &x.value, &y.value)
        };
        Lane { value, elem: x.elem }
    }

    /// Converts between element types: float to integer truncates and saturates (NaN gives 0).
    pub(super) fn cast(&mut self, name: &str, x: &Lane, to: Elem) -> Lane {
        let to = to.computed();
        let (from_ty, ty) = (ptx_type(x.elem), ptx_type(to));
        let given = x.value.clone();
        let value = match (x.elem, to) {
            (a, b) if a == b => given,
            (Elem::F32, Elem::I32) => {
                let x = self.in_reg(&given, from_ty);
                self.make(name, Op::CvtToInt { round: RoundInt::Zero, ftz: KEEP, to: ty, from: from_ty }, ty, &[x])
            }
            (Elem::F32, Elem::I64) => {
                // NaN gives 0; the instruction would set the highest bit.
                let x = self.in_reg(&given, from_ty);
                let cut = Op::CvtToInt { round: RoundInt::Zero, ftz: KEEP, to: ty, from: from_ty };
                let cut = self.make("i", cut, ty, std::slice::from_ref(&x));
                let number = self.compare("number", Compare::Number, from_ty, &x, &x);
                self.select(name, ty, &number, &cut, &Operand::Int(0))
            }
            (Elem::F32, _) => self.compare(name, Compare::NeUnordered, from_ty, &given, &float(0.0)),
            (Elem::I32 | Elem::I64, Elem::F32) => {
                let x = self.in_reg(&given, from_ty);
                self.make(name, Op::CvtToFloat { round: NEAREST, to: ty, from: from_ty }, ty, &[x])
            }
            (Elem::I32, Elem::I64) => self.widen(&given),
            (Elem::I64, Elem::I32) => self.low(name, &given),
            (Elem::Bool, Elem::F32) => self.select(name, ty, &given, &float(1.0), &float(0.0)),
            (Elem::Bool, _) => self.select(name, ty, &given, &Operand::Int(1), &Operand::Int(0)),
            (_, Elem::Bool) => self.compare(name, Compare::Ne, from_ty, &given, &Operand::Int(0)),
            // Other types are converted when loaded and stored.
            (_, _) => given,
        };
        Lane { value, elem: to }
    }

    /// Rounds to a narrower type: `bf16` and `f16` to nearest even, `i8` wraps.
    pub(super) fn narrow(&mut self, name: &str, x: &Lane, to: Elem) -> Lane {
        let value = match to {
            Elem::BF16 | Elem::F16 => {
                let half = self.half_of(&x.value, to);
                self.float_of_half(name, &half, to)
            }
            Elem::I8 => {
                let x = self.in_reg(&x.value, Type::S32);
                let op = Op::Bfe { ty: Type::S32 };
                self.make(name, op, Type::S32, &[x, Operand::Int(0), Operand::Int(8)])
            }
            Elem::F32 | Elem::I32 | Elem::I64 | Elem::Bool => x.value.clone(),
        };
        Lane { value, elem: x.elem }
    }

    /// Rounds to the 16 bits of `bf16` or `f16`.
    fn half_of(&mut self, x: &Operand, to: Elem) -> Operand {
        let ty = if to == Elem::F16 { Type::F16 } else { Type::Bf16 };
        let x = self.in_reg(x, Type::F32);
        let op = Op::CvtNarrow { round: NEAREST, ftz: KEEP, relu: Relu::No, to: ty, from: Type::F32 };
        self.make("h", op, ty, &[x])
    }

    /// Widens 16 bits to `f32`.
    fn float_of_half(&mut self, name: &str, half: &Operand, from: Elem) -> Operand {
        if from == Elem::F16 {
            let op = Op::CvtWiden { ftz: KEEP, to: Type::F32, from: Type::F16 };
            return self.make(name, op, Type::F32, std::slice::from_ref(half));
        }
        // The bits of `bf16` are the upper ones of `f32`; the conversion instruction is newer than
        // PTX 7.0.
        let zero = self.make("z", Op::Mov { ty: Type::B16 }, Type::B16, &[Operand::Int(0)]);
        let d = self.reg(name, RegType::F32);
        let both = match (&zero, half) {
            (Operand::Reg(low), Operand::Reg(high)) => vec![*low, *high],
            _ => Vec::new(),
        };
        self.push(Op::Pack { ty: Type::B32 }, [Operand::Reg(d), Operand::Vector(both)]);
        Operand::Reg(d)
    }

    /// The type of an access to an element in memory.
    fn memory_type(elem: Elem) -> Type {
        match elem {
            Elem::F32 => Type::F32,
            Elem::I32 => Type::S32,
            Elem::I64 => Type::S64,
            Elem::BF16 | Elem::F16 => Type::B16,
            Elem::I8 => Type::S8,
            Elem::Bool => Type::U8,
        }
    }

    /// Loads an element from global memory. `read_only`: it is not written while the kernel runs.
    /// If `condition` is false, it is not accessed and the result is 0.
    pub(super) fn load(
        &mut self,
        name: &str,
        elem: Elem,
        address: &Operand,
        read_only: bool,
        condition: Option<&Operand>,
    ) -> Lane {
        let ty = Emit::memory_type(elem);
        let vector = Vector::One;
        let op = match read_only {
            true => Op::LdReadOnly { cache: ReadOnly::Default, vector, ty },
            false => Op::Ld { cache: LoadCache::Default, vector, ty },
        };
        let raw_name = if ty == ptx_type(elem) { name } else { "m" };
        let d = self.reg(raw_name, RegType::for_type(ty));
        if let Some(condition) = condition {
            self.zero(d, ty);
            self.push_if(condition, op, [Operand::Reg(d), at(address, 0)]);
        } else {
            self.push(op, [Operand::Reg(d), at(address, 0)]);
        }
        self.loaded_lane(name, elem, Operand::Reg(d))
    }

    /// Sets the register of an access to 0.
    fn zero(&mut self, d: Reg, ty: Type) {
        let zero = if ty == Type::F32 { float(0.0) } else { Operand::Int(0) };
        let moved = if ty.bits() <= 16 { Type::B16 } else { ty };
        self.push(Op::Mov { ty: moved }, [Operand::Reg(d), zero]);
    }

    /// Converts a loaded element to the type of computation.
    fn loaded_lane(&mut self, name: &str, elem: Elem, raw: Operand) -> Lane {
        let value = match elem {
            Elem::F32 | Elem::I32 | Elem::I64 => raw,
            Elem::BF16 | Elem::F16 => self.float_of_half(name, &raw, elem),
            Elem::I8 => {
                let op = Op::CvtInt { sat: WRAP, to: Type::S32, from: Type::S8 };
                self.make(name, op, Type::S32, &[raw])
            }
            Elem::Bool => self.compare(name, Compare::Ne, Type::B16, &raw, &Operand::Int(0)),
        };
        Lane { value, elem: elem.computed() }
    }

    /// Loads contiguous elements from global memory with vector accesses; the address must be
    /// aligned to their size. If `condition` is false, they are not accessed and the results are 0.
    pub(super) fn load_wide(
        &mut self,
        name: &str,
        elem: Elem,
        address: &Operand,
        read_only: bool,
        count: usize,
        condition: Option<&Operand>,
    ) -> Vec<Lane> {
        let ty = Emit::memory_type(elem);
        let mut raw = Vec::new();
        for (vector, offset) in parts(count, ty) {
            let op = match read_only {
                true => Op::LdReadOnly { cache: ReadOnly::Default, vector, ty },
                false => Op::Ld { cache: LoadCache::Default, vector, ty },
            };
            let raw_name = if ty == ptx_type(elem) { name } else { "m" };
            let regs: Vec<Reg> = (0..vector.count()).map(|_| self.reg(raw_name, RegType::for_type(ty))).collect();
            let operands = [Operand::Vector(regs.clone()), at(address, offset)];
            match condition {
                Some(condition) => {
                    regs.iter().for_each(|r| self.zero(*r, ty));
                    self.push_if(condition, op, operands);
                }
                None => self.push(op, operands),
            }
            raw.extend(regs);
        }
        raw.into_iter().map(|r| self.loaded_lane(name, elem, Operand::Reg(r))).collect()
    }

    /// Stores contiguous elements to global memory; the counterpart of [`Emit::load_wide`].
    pub(super) fn store_wide(&mut self, elem: Elem, address: &Operand, xs: &[Lane]) {
        let ty = Emit::memory_type(elem);
        let values: Vec<Operand> = xs.iter().map(|x| self.stored_bits(elem, x)).collect();
        let mut rest = values.as_slice();
        for (vector, offset) in parts(xs.len(), ty) {
            let (now, later) = rest.split_at((vector.count() as usize).min(rest.len()));
            rest = later;
            self.push(Op::St { cache: StoreCache::Default, vector, ty }, [at(address, offset), together(now)]);
        }
    }

    /// Loads contiguous elements from shared memory.
    pub(super) fn load_shared_wide(
        &mut self,
        name: &str,
        elem: Elem,
        address: &Operand,
        start: i32,
        count: usize,
    ) -> Vec<Lane> {
        let ty = if elem == Elem::Bool { Type::S32 } else { ptx_type(elem) };
        let raw_name = if elem == Elem::Bool { "m" } else { name };
        let mut raw = Vec::new();
        for (vector, offset) in parts(count, ty) {
            let regs: Vec<Reg> = (0..vector.count()).map(|_| self.reg(raw_name, RegType::for_type(ty))).collect();
            let operands = [Operand::Vector(regs.clone()), at(address, start + offset)];
            self.push(Op::LdShared { vector, ty }, operands);
            raw.extend(regs.into_iter().map(Operand::Reg));
        }
        let as_lane = |s: &mut Emit, x: Operand| Lane { value: s.lane_of_shared(name, elem, x), elem };
        raw.into_iter().map(|x| as_lane(self, x)).collect()
    }

    /// Stores contiguous elements to shared memory.
    pub(super) fn store_shared_wide(&mut self, address: &Operand, start: i32, xs: &[Lane]) {
        let Some(first) = xs.first() else { return };
        let ty = if first.elem == Elem::Bool { Type::S32 } else { ptx_type(first.elem) };
        let values: Vec<Operand> = xs.iter().map(|x| self.shared_bits(x)).collect();
        let mut rest = values.as_slice();
        for (vector, offset) in parts(xs.len(), ty) {
            let (now, later) = rest.split_at((vector.count() as usize).min(rest.len()));
            rest = later;
            self.push(Op::StShared { vector, ty }, [at(address, start + offset), together(now)]);
        }
    }

    /// Stores an element to global memory, rounded to its type.
    pub(super) fn store(&mut self, elem: Elem, address: &Operand, x: &Lane) {
        let ty = Emit::memory_type(elem);
        let value = self.stored_bits(elem, x);
        self.push(Op::St { cache: StoreCache::Default, vector: Vector::One, ty }, [at(address, 0), value]);
    }

    /// Converts an element to the bits to store, in a register.
    fn stored_bits(&mut self, elem: Elem, x: &Lane) -> Operand {
        let ty = Emit::memory_type(elem);
        let value = match elem {
            Elem::F32 | Elem::I32 | Elem::I64 => x.value.clone(),
            Elem::BF16 | Elem::F16 => self.half_of(&x.value, elem),
            Elem::I8 => {
                let x = self.in_reg(&x.value, Type::S32);
                self.make("m", Op::CvtInt { sat: WRAP, to: Type::S8, from: Type::S32 }, Type::S16, &[x])
            }
            Elem::Bool => {
                let word = self.number_of_truth(&x.value);
                self.make("m", Op::CvtInt { sat: WRAP, to: Type::U8, from: Type::U32 }, Type::U16, &[word])
            }
        };
        self.in_reg(&value, ptx_type_of_register(ty))
    }

    /// Loads an element from shared memory.
    pub(super) fn load_shared(&mut self, name: &str, elem: Elem, address: &Operand, offset: i32) -> Lane {
        let ty = if elem == Elem::Bool { Type::S32 } else { ptx_type(elem) };
        let op = Op::LdShared { vector: Vector::One, ty };
        let raw_name = if elem == Elem::Bool { "m" } else { name };
        let raw = self.make(raw_name, op, ty, &[at(address, offset)]);
        Lane { value: self.lane_of_shared(name, elem, raw), elem }
    }

    /// Converts the shared memory representation to an element.
    fn lane_of_shared(&mut self, name: &str, elem: Elem, raw: Operand) -> Operand {
        match elem {
            Elem::Bool => self.compare(name, Compare::Ne, Type::S32, &raw, &Operand::Int(0)),
            _ => raw,
        }
    }

    /// Stores an element to shared memory.
    pub(super) fn store_shared(&mut self, address: &Operand, offset: i32, x: &Lane) {
        let ty = if x.elem == Elem::Bool { Type::S32 } else { ptx_type(x.elem) };
        let value = self.shared_bits(x);
        self.push(Op::StShared { vector: Vector::One, ty }, [at(address, offset), value]);
    }

    /// Converts an element to its shared memory representation, in a register.
    fn shared_bits(&mut self, x: &Lane) -> Operand {
        match x.elem {
            Elem::Bool => self.select("b", Type::S32, &x.value, &Operand::Int(-1), &Operand::Int(0)),
            elem => self.in_reg(&x.value, ptx_type(elem)),
        }
    }

    /// Combines two partial results of a reduction.
    ///
    /// # Errors
    /// As [`Emit::binary`].
    pub(super) fn combine(&mut self, kind: ReduceKind, x: &Lane, y: &Lane) -> Result<Lane, String> {
        self.binary("acc", kind.combination().unwrap_or(BinaryOp::Max), x, y)
    }

    /// The value in lane `lane ^ distance` (`shfl.bfly`).
    pub(super) fn exchanged(&mut self, x: &Lane, distance: u32) -> Lane {
        let shuffle = |s: &mut Emit, x: Operand, ty: Type| {
            let operands = [x, Operand::Int(i64::from(distance)), Operand::Int(31), Operand::Int(-1)];
            s.make("other", Op::Shfl { mode: Shuffle::Butterfly }, ty, &operands)
        };
        let value = match x.elem {
            Elem::Bool => {
                let word = self.number_of_truth(&x.value);
                let other = shuffle(self, word, Type::S32);
                self.compare("other", Compare::Ne, Type::S32, &other, &Operand::Int(0))
            }
            Elem::I64 => {
                let whole = self.in_reg(&x.value, Type::B64);
                let halves = [self.reg("low", RegType::B32), self.reg("high", RegType::B32)];
                self.push(Op::Unpack { ty: Type::B64 }, [Operand::Vector(halves.to_vec()), whole]);
                let moved = halves.map(|half| shuffle(self, Operand::Reg(half), Type::B32));
                let parts =
                    moved.iter().filter_map(|m| if let Operand::Reg(r) = m { Some(*r) } else { None }).collect();
                self.make("other", Op::Pack { ty: Type::B64 }, Type::B64, &[Operand::Vector(parts)])
            }
            elem => {
                let value = self.in_reg(&x.value, ptx_type(elem));
                shuffle(self, value, ptx_type(elem))
            }
        };
        Lane { value, elem: x.elem }
    }

    /// The comparison of `argmax`: is `x` greater, or NaN while `y` is not?
    pub(super) fn beats(&mut self, x: &Lane, y: &Lane) -> Operand {
        let ty = ptx_type(x.elem);
        if x.elem != Elem::F32 {
            return self.compare_lanes("beats", CmpOp::Gt, x, y).value;
        }
        // Greater or unordered, and `y` is not NaN.
        let greater = self.compare("beats", Compare::GtUnordered, ty, &x.value, &y.value);
        let number = self.compare("number", Compare::Number, ty, &y.value, &y.value);
        self.make("beats", Op::And { ty: Type::Pred }, Type::Pred, &[greater, number])
    }

    /// Emits a function of the library.
    fn function(&mut self, name: &str, function: &str, args: &[Operand]) -> Result<Operand, String> {
        let Expanded { function: f, needs } = expanded(function, FEATURES)?;
        let mut values: Vec<Option<Operand>> = args.iter().cloned().map(Some).collect();
        let last = f.result.index();
        for (inst, need) in f.insts.iter().zip(needs) {
            let own = if values.len() == last { name } else { "t" };
            let value = match need {
                Need::Value => Some(self.step(own, f, inst, &values)?),
                Need::Number | Need::Nothing => None,
            };
            values.push(value);
        }
        values.get(last).cloned().flatten().ok_or_else(|| format!("@{function} returns nothing"))
    }

    fn step(
        &mut self,
        name: &str,
        f: &Function,
        inst: &vector::Inst,
        values: &[Option<Operand>],
    ) -> Result<Operand, String> {
        use vector::Op as V;
        let get = |i: usize| {
            let value = inst.operands.get(i).and_then(|v| values.get(v.index()).cloned().flatten());
            value.ok_or_else(|| format!("{}: an operand is missing", inst.op.name()))
        };
        let bits = || {
            let n = inst.operands.get(1).and_then(|v| shift(f, *v));
            n.map(|n| Operand::Int(i64::from(n))).ok_or("a shift by a value that is not constant")
        };
        let (f32, s32) = (Type::F32, Type::S32);
        let fma = Op::Fma { round: NEAREST, ftz: KEEP, sat: WRAP, relu: Relu::No, ty: f32 };
        let neg = Op::NegFloat { ftz: KEEP, ty: f32 };
        let two = |s: &mut Emit, op: Op, ty: Type| -> Result<Operand, String> {
            Ok(s.make(name, op, ty, &[get(0)?, get(1)?]))
        };
        Ok(match &inst.op {
            V::Add => two(self, Op::AddFloat { round: NEAREST, ftz: KEEP, sat: WRAP, ty: f32 }, f32)?,
            V::Sub => two(self, Op::SubFloat { round: NEAREST, ftz: KEEP, sat: WRAP, ty: f32 }, f32)?,
            V::Mul => two(self, Op::MulFloat { round: NEAREST, ftz: KEEP, sat: WRAP, ty: f32 }, f32)?,
            V::Div => two(self, Op::DivFloat { round: NEAREST, ftz: KEEP, ty: f32 }, f32)?,
            V::Fma => self.make(name, fma, f32, &[get(0)?, get(1)?, get(2)?]),
            V::Fnma => {
                let a = self.make("t", neg, f32, &[get(0)?]);
                self.make(name, fma, f32, &[a, get(1)?, get(2)?])
            }
            V::Min | V::Max => {
                let (a, b) = (get(0)?, get(1)?);
                let word = if inst.op == V::Min { Compare::Lt } else { Compare::Gt };
                let first = self.compare("p", word, f32, &a, &b);
                self.select(name, f32, &first, &a, &b)
            }
            V::Sqrt => self.make(name, Op::Sqrt { round: NEAREST, ftz: KEEP, ty: f32 }, f32, &[get(0)?]),
            V::Neg => self.make(name, neg, f32, &[get(0)?]),
            V::Abs => self.make(name, Op::AbsFloat { ftz: KEEP, ty: f32 }, f32, &[get(0)?]),
            V::NegAbs => {
                let a = self.make("t", Op::AbsFloat { ftz: KEEP, ty: f32 }, f32, &[get(0)?]);
                self.make(name, neg, f32, &[a])
            }
            // PTX takes the sign operand first.
            V::CopySign => self.make(name, Op::CopySign { ty: f32 }, f32, &[get(1)?, get(0)?]),
            V::Truncate => {
                let x = self.in_reg(&get(0)?, f32);
                self.make(name, Op::CvtToInt { round: RoundInt::Zero, ftz: KEEP, to: s32, from: f32 }, s32, &[x])
            }
            V::ToFloat => {
                let x = self.in_reg(&get(0)?, s32);
                self.make(name, Op::CvtToFloat { round: NEAREST, to: f32, from: s32 }, f32, &[x])
            }
            V::Bits => self.make(name, Op::Mov { ty: Type::B32 }, Type::B32, &[get(0)?]),
            V::FromBits => {
                let x = self.in_reg(&get(0)?, s32);
                let d = self.reg(name, RegType::F32);
                self.push(Op::Mov { ty: Type::B32 }, [Operand::Reg(d), x]);
                Operand::Reg(d)
            }
            V::AddI => two(self, Op::Add { sat: WRAP, ty: s32 }, s32)?,
            V::SubI => two(self, Op::Sub { sat: WRAP, ty: s32 }, s32)?,
            V::MulI => two(self, Op::Mul { half: Half::Low, ty: s32 }, s32)?,
            V::MulHigh => two(self, Op::Mul { half: Half::High, ty: Type::U32 }, Type::U32)?,
            V::AndI => two(self, Op::And { ty: Type::B32 }, s32)?,
            V::XorI => two(self, Op::Xor { ty: Type::B32 }, s32)?,
            V::ShiftLeft => self.make(name, Op::Shl { ty: Type::B32 }, s32, &[get(0)?, bits()?]),
            V::ShiftSigned => self.make(name, Op::Shr { ty: s32 }, s32, &[get(0)?, bits()?]),
            V::ShiftRight => self.make(name, Op::Shr { ty: Type::U32 }, s32, &[get(0)?, bits()?]),
            V::Less => self.compare(name, Compare::Lt, f32, &get(0)?, &get(1)?),
            V::Equal => self.compare(name, Compare::Eq, f32, &get(0)?, &get(1)?),
            V::LessI => self.compare(name, Compare::Lt, s32, &get(0)?, &get(1)?),
            V::Select => self.select(name, f32, &get(0)?, &get(1)?, &get(2)?),
            V::SelectI => self.select(name, s32, &get(0)?, &get(1)?, &get(2)?),
            V::Const(bits) if inst.ty == vector::Type::F32 => Operand::F32(*bits),
            V::Const(bits) => Operand::Int(i64::from(bits.cast_signed())),
            op @ (V::Floor | V::Fraction | V::Scale | V::Nearest | V::Polynomial(_) | V::Call(_)) => {
                return Err(format!("{} is not supported by every target", op.name()));
            }
        })
    }
}

/// Splits a vector access into parts of at most 16 bytes and four elements: width and byte offset
/// of each.
fn parts(count: usize, ty: Type) -> Vec<(Vector, i32)> {
    let (vector, each) = if ty.bits() > 32 { (Vector::Two, 2) } else { (Vector::Four, 4) };
    let bytes = each * ty.bytes() as usize;
    (0..count.div_ceil(each)).map(|n| (vector, (n * bytes) as i32)).collect()
}

/// Packs registers into a vector operand.
fn together(values: &[Operand]) -> Operand {
    Operand::Vector(values.iter().filter_map(|x| if let Operand::Reg(r) = x { Some(*r) } else { None }).collect())
}

/// The register type for an access type.
fn ptx_type_of_register(ty: Type) -> Type {
    if ty.bits() <= 16 { Type::B16 } else { ty }
}
