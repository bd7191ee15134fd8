//! Elementary functions on vectors of `f32`, of any number of lanes: vector IR, translated to LLVM
//! IR.
//!
//! In: vectors. Out: vectors. The definition of a function and its error bound are in its source
//! (`vector::library`); here is one case for each operation.

use inkwell::types::VectorType;
use inkwell::values::VectorValue;
use inkwell::{FloatPredicate, IntPredicate};

use super::emit::{Emit, EmitResult};
use crate::scalar::{BinaryOp, UnaryOp};
use crate::shape::Elem;
use crate::tile::Feature;
use crate::vector::{Features, Inst, Op, Type, expand, library};

impl<'c> Emit<'_, 'c> {
    fn plus(&self, a: VectorValue<'c>, b: VectorValue<'c>) -> EmitResult<VectorValue<'c>> {
        Ok(self.b.build_float_add(a, b, "")?)
    }

    fn minus(&self, a: VectorValue<'c>, b: VectorValue<'c>) -> EmitResult<VectorValue<'c>> {
        Ok(self.b.build_float_sub(a, b, "")?)
    }

    fn times(&self, a: VectorValue<'c>, b: VectorValue<'c>) -> EmitResult<VectorValue<'c>> {
        Ok(self.b.build_float_mul(a, b, "")?)
    }

    fn over(&self, a: VectorValue<'c>, b: VectorValue<'c>) -> EmitResult<VectorValue<'c>> {
        Ok(self.b.build_float_div(a, b, "")?)
    }

    /// `a * b + c`, rounded once if the instruction set has FMA.
    pub(super) fn mul_add(
        &self,
        a: VectorValue<'c>,
        b: VectorValue<'c>,
        c: VectorValue<'c>,
    ) -> EmitResult<VectorValue<'c>> {
        match self.level.has(Feature::Fma) {
            false => self.plus(self.times(a, b)?, c),
            true => self.floats_intrinsic("llvm.fma", &[a, b, c]),
        }
    }

    fn floats_intrinsic(&self, name: &str, args: &[VectorValue<'c>]) -> EmitResult<VectorValue<'c>> {
        let ty = args.first().ok_or("a function without arguments")?.get_type();
        let args: Vec<_> = args.iter().map(|x| (*x).into()).collect();
        self.vector_intrinsic(name, &[ty.into()], &args)
    }

    /// `a` where `x CC y`, else `b`.
    fn where_is(
        &self,
        (predicate, x, y): (FloatPredicate, VectorValue<'c>, VectorValue<'c>),
        a: VectorValue<'c>,
        b: VectorValue<'c>,
    ) -> EmitResult<VectorValue<'c>> {
        let holds = self.b.build_float_compare(predicate, x, y, "")?;
        self.choose(holds, a, b)
    }

    /// `|x|`
    pub(super) fn absolute(&self, x: VectorValue<'c>) -> EmitResult<VectorValue<'c>> {
        self.floats_intrinsic("llvm.fabs", &[x])
    }

    /// The magnitude of `a` with the sign of `x`.
    pub(super) fn with_sign(&self, a: VectorValue<'c>, x: VectorValue<'c>) -> EmitResult<VectorValue<'c>> {
        self.floats_intrinsic("llvm.copysign", &[a, x])
    }

    /// The features that elementary functions may use.
    pub(super) fn features(&self) -> Features {
        // LLVM's conversion to integers is more than one instruction, so `round` gains nothing.
        Features { fma: self.level.has(Feature::Fma), ..Features::PLAIN }
    }

    /// Emits a function of the library.
    fn function(&self, name: &str, args: &[VectorValue<'c>]) -> EmitResult<VectorValue<'c>> {
        let f = &expand::expanded(name, self.features())?.function;
        let n = args.first().ok_or("a function without arguments")?.get_type().get_size();
        let mut values = args.to_vec();
        for inst in &f.insts {
            let operands = inst.operands.iter().map(|v| values.get(v.index()).copied());
            let operands = operands.collect::<Option<Vec<VectorValue<'c>>>>().ok_or("an operand is missing")?;
            values.push(self.operation(inst, &operands, n)?);
        }
        Ok(values.get(f.result.index()).copied().ok_or("a function without a result")?)
    }

    /// The high halves of unsigned products.
    fn high_product(&self, x: VectorValue<'c>, y: VectorValue<'c>) -> EmitResult<VectorValue<'c>> {
        let (b, narrow) = (&self.b, x.get_type());
        let wide = self.lanes_of(Elem::I64, narrow.get_size());
        let (x, y) = (b.build_int_z_extend(x, wide, "")?, b.build_int_z_extend(y, wide, "")?);
        let product = b.build_int_mul(x, y, "")?;
        let half = VectorType::const_vector(&vec![self.int(32); narrow.get_size() as usize]);
        let high = b.build_right_shift(product, half, false, "")?;
        Ok(b.build_int_truncate(high, narrow, "")?)
    }

    fn operation(&self, inst: &Inst, operands: &[VectorValue<'c>], n: u32) -> EmitResult<VectorValue<'c>> {
        let b = &self.b;
        match (&inst.op, operands) {
            (Op::Add, [x, y]) => self.plus(*x, *y),
            (Op::Sub, [x, y]) => self.minus(*x, *y),
            (Op::Mul, [x, y]) => self.times(*x, *y),
            (Op::Div, [x, y]) => self.over(*x, *y),
            (Op::Fma, [x, y, z]) => self.mul_add(*x, *y, *z),
            (Op::Fnma, [x, y, z]) => self.mul_add(b.build_float_neg(*x, "")?, *y, *z),
            (Op::Min, [x, y]) => self.where_is((FloatPredicate::OLT, *x, *y), *x, *y),
            (Op::Max, [x, y]) => self.where_is((FloatPredicate::OGT, *x, *y), *x, *y),
            (Op::Sqrt, [_]) => self.floats_intrinsic("llvm.sqrt", operands),
            (Op::Neg, [x]) => Ok(b.build_float_neg(*x, "")?),
            (Op::Abs, [x]) => self.absolute(*x),
            (Op::NegAbs, [x]) => Ok(b.build_float_neg(self.absolute(*x)?, "")?),
            (Op::CopySign, [x, y]) => self.with_sign(*x, *y),
            (Op::Truncate, [x]) => {
                let types = [self.lanes_of(Elem::I32, n).into(), x.get_type().into()];
                self.vector_intrinsic("llvm.fptosi.sat", &types, &[(*x).into()])
            }
            (Op::ToFloat, [x]) => {
                let floats = self.lanes_of(Elem::F32, n);
                Ok(b.build_signed_int_to_float(*x, floats, "")?)
            }
            (Op::Bits, [x]) => self.as_ints(*x),
            (Op::FromBits, [x]) => self.as_floats(*x),
            (Op::AddI, [x, y]) => Ok(b.build_int_add(*x, *y, "")?),
            (Op::SubI, [x, y]) => Ok(b.build_int_sub(*x, *y, "")?),
            (Op::MulI, [x, y]) => Ok(b.build_int_mul(*x, *y, "")?),
            (Op::MulHigh, [x, y]) => self.high_product(*x, *y),
            (Op::XorI, [x, y]) => Ok(b.build_xor(*x, *y, "")?),
            (Op::LessI, [x, y]) => Ok(b.build_int_compare(IntPredicate::SLT, *x, *y, "")?),
            (Op::AndI, [x, y]) => Ok(b.build_and(*x, *y, "")?),
            (Op::ShiftLeft, [x, y]) => Ok(b.build_left_shift(*x, *y, "")?),
            (Op::ShiftSigned, [x, y]) => Ok(b.build_right_shift(*x, *y, true, "")?),
            (Op::ShiftRight, [x, y]) => Ok(b.build_right_shift(*x, *y, false, "")?),
            (Op::Less, [x, y]) => Ok(b.build_float_compare(FloatPredicate::OLT, *x, *y, "")?),
            (Op::Equal, [x, y]) => Ok(b.build_float_compare(FloatPredicate::OEQ, *x, *y, "")?),
            (Op::Select | Op::SelectI, [condition, x, y]) => self.choose(*condition, *x, *y),
            (Op::Const(bits), []) if inst.ty == Type::F32 => Ok(self.floats(f32::from_bits(*bits), n)),
            (Op::Const(bits), []) => Ok(self.ints(bits.cast_signed(), n)),
            (op, _) => Err(format!("{} is not supported by every target", op.name()).into()),
        }
    }

    /// Any unary operation on floats.
    pub(super) fn float_unary(&self, op: UnaryOp, x: VectorValue<'c>) -> EmitResult<VectorValue<'c>> {
        let n = x.get_type().get_size();
        match (op, library::unary(op)) {
            // LLVM selects an instruction or a library call.
            (UnaryOp::Floor, _) => self.floats_intrinsic("llvm.floor", &[x]),
            (_, Some(name)) => self.function(name, &[x]),
            (UnaryOp::Neg, None) => Ok(self.b.build_float_neg(x, "")?),
            (UnaryOp::Abs, None) => self.absolute(x),
            (UnaryOp::Sqrt, None) => self.floats_intrinsic("llvm.sqrt", &[x]),
            (UnaryOp::Not, None) => {
                let (zero, one) = (self.floats(0.0, n), self.floats(1.0, n));
                self.where_is((FloatPredicate::OEQ, x, zero), one, zero)
            }
            (_, None) => Err(format!("{op} is neither an instruction nor a library function").into()),
        }
    }

    /// Any binary operation on floats.
    pub(super) fn float_binary(
        &self,
        op: BinaryOp,
        x: VectorValue<'c>,
        y: VectorValue<'c>,
    ) -> EmitResult<VectorValue<'c>> {
        match (op, library::binary(op, Type::F32)) {
            (_, Some(name)) => self.function(name, &[x, y]),
            (BinaryOp::Add, None) => self.plus(x, y),
            (BinaryOp::Sub, None) => self.minus(x, y),
            (BinaryOp::Mul, None) => self.times(x, y),
            (BinaryOp::Div, None) => self.over(x, y),
            // A comparison with NaN is false and selects `y`, so a NaN in `x` is selected
            // afterwards.
            (BinaryOp::Max | BinaryOp::Min, None) => {
                let predicate = if op == BinaryOp::Min { FloatPredicate::OLT } else { FloatPredicate::OGT };
                let m = self.where_is((predicate, x, y), x, y)?;
                self.where_is((FloatPredicate::UNO, x, x), x, m)
            }
            (_, None) => Err(format!("{op} of floats is neither an instruction nor a library function").into()),
        }
    }
}
