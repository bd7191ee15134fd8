//! Elementary functions on four `f32` lanes, as CLIF: vector IR, printed.
//!
//! In: a function under construction and `F32X4` values. Out: `F32X4` values. What a function computes, and its error,
//! stands in its text (`vector::library`); here is one case for each operation. `sin`, `cos`, `pow` and the remainder are
//! calls of libm, lane by lane.
//!
//! Nothing here may assume more than SSE2: no `floor`, `nearest` or `fma` instruction of CLIF, which become a library call
//! for each lane there.

use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{ConstantData, FuncRef, InstBuilder, MemFlagsData, Value, types};
use cranelift_frontend::FunctionBuilder;

use crate::scalar::{BinaryOp, UnaryOp};
use crate::vector::expand::{self, Need};
use crate::vector::{Features, Function, Inst, Op, Type};

/// Functions of libm that generated code may call, declared in the function under construction.
#[derive(Clone, Copy, Debug)]
pub struct Libm {
    /// `float sinf(float)`
    pub sinf: FuncRef,
    /// `float cosf(float)`
    pub cosf: FuncRef,
    /// `float powf(float, float)`
    pub powf: FuncRef,
    /// `float fmodf(float, float)`
    pub fmodf: FuncRef,
}

/// Emits operations on `F32X4` values.
pub struct Lanes<'a, 'b> {
    /// The function under construction.
    pub builder: &'a mut FunctionBuilder<'b>,
    /// Functions it may call.
    pub libm: Libm,
}

impl Lanes<'_, '_> {
    /// Four times the same number.
    pub fn splat(&mut self, x: f32) -> Value {
        let bytes: Vec<u8> = x.to_le_bytes().repeat(4);
        let constant = self.builder.func.dfg.constants.insert(ConstantData::from(bytes));
        self.builder.ins().vconst(types::F32X4, constant)
    }

    fn splat_int(&mut self, x: i32) -> Value {
        let bytes: Vec<u8> = x.to_le_bytes().repeat(4);
        let constant = self.builder.func.dfg.constants.insert(ConstantData::from(bytes));
        self.builder.ins().vconst(types::I32X4, constant)
    }

    fn as_float(&mut self, x: Value) -> Value {
        self.builder.ins().bitcast(types::F32X4, MemFlagsData::new().with_endianness(LITTLE), x)
    }

    fn as_int(&mut self, x: Value) -> Value {
        self.builder.ins().bitcast(types::I32X4, MemFlagsData::new().with_endianness(LITTLE), x)
    }

    fn add(&mut self, a: Value, b: Value) -> Value {
        self.builder.ins().fadd(a, b)
    }

    fn sub(&mut self, a: Value, b: Value) -> Value {
        self.builder.ins().fsub(a, b)
    }

    fn mul(&mut self, a: Value, b: Value) -> Value {
        self.builder.ins().fmul(a, b)
    }

    fn div(&mut self, a: Value, b: Value) -> Value {
        self.builder.ins().fdiv(a, b)
    }

    /// `a` where `x CC y`, else `b`.
    fn select(&mut self, cc: FloatCC, x: Value, y: Value, a: Value, b: Value) -> Value {
        let mask = self.builder.ins().fcmp(cc, x, y);
        let mask = self.as_float(mask);
        self.builder.ins().bitselect(mask, a, b)
    }

    /// The magnitude of `a` with the sign of `x`; CLIF's `fcopysign` is for scalars only.
    fn with_sign(&mut self, a: Value, x: Value) -> Value {
        let sign = self.splat(-0.0);
        self.builder.ins().bitselect(sign, x, a)
    }

    /// A function of the library, printed.
    fn function(&mut self, name: &str, x: Value) -> Result<Value, String> {
        let f = expand::expand(name, Features::PLAIN)?;
        let mut values = vec![Some(x)];
        for (inst, need) in f.insts.iter().zip(expand::needs(&f)) {
            let value = match need {
                Need::Value => Some(self.operation(&f, inst, &values)?),
                Need::Number | Need::Nothing => None,
            };
            values.push(value);
        }
        values.get(f.result.index()).copied().flatten().ok_or_else(|| format!("@{name} returns nothing"))
    }

    fn operation(&mut self, f: &Function, inst: &Inst, values: &[Option<Value>]) -> Result<Value, String> {
        let get = |i: usize| {
            let value = inst.operands.get(i).and_then(|v| values.get(v.index()).copied().flatten());
            value.ok_or_else(|| format!("{}: an operand is missing", inst.op.name()))
        };
        let bits = || {
            let n = inst.operands.get(1).and_then(|v| expand::shift(f, *v));
            n.map(i64::from).ok_or("a shift by what is no constant")
        };
        Ok(match &inst.op {
            Op::Add => self.add(get(0)?, get(1)?),
            Op::Sub => self.sub(get(0)?, get(1)?),
            Op::Mul => self.mul(get(0)?, get(1)?),
            Op::Div => self.div(get(0)?, get(1)?),
            Op::Min => {
                let (a, b) = (get(0)?, get(1)?);
                self.select(FloatCC::LessThan, a, b, a, b)
            }
            Op::Max => {
                let (a, b) = (get(0)?, get(1)?);
                self.select(FloatCC::GreaterThan, a, b, a, b)
            }
            Op::Sqrt => self.builder.ins().sqrt(get(0)?),
            Op::Neg => self.builder.ins().fneg(get(0)?),
            Op::Abs => self.builder.ins().fabs(get(0)?),
            Op::NegAbs => {
                let a = self.builder.ins().fabs(get(0)?);
                self.builder.ins().fneg(a)
            }
            Op::CopySign => self.with_sign(get(0)?, get(1)?),
            Op::ToFloat => self.builder.ins().fcvt_from_sint(types::F32X4, get(0)?),
            Op::Bits => self.as_int(get(0)?),
            Op::FromBits => self.as_float(get(0)?),
            Op::AddI => self.builder.ins().iadd(get(0)?, get(1)?),
            Op::SubI => self.builder.ins().isub(get(0)?, get(1)?),
            Op::AndI => self.builder.ins().band(get(0)?, get(1)?),
            Op::ShiftLeft => self.builder.ins().ishl_imm_u(get(0)?, bits()?),
            Op::ShiftSigned => self.builder.ins().sshr_imm_u(get(0)?, bits()?),
            Op::ShiftRight => self.builder.ins().ushr_imm_u(get(0)?, bits()?),
            Op::Less => self.builder.ins().fcmp(FloatCC::LessThan, get(0)?, get(1)?),
            Op::Equal => self.builder.ins().fcmp(FloatCC::Equal, get(0)?, get(1)?),
            Op::Select => {
                let mask = self.as_float(get(0)?);
                self.builder.ins().bitselect(mask, get(1)?, get(2)?)
            }
            Op::Const(bits) if inst.ty == Type::F32 => self.splat(f32::from_bits(*bits)),
            Op::Const(bits) => self.splat_int(bits.cast_signed()),
            op @ (Op::Fma
            | Op::Fnma
            | Op::Floor
            | Op::Fraction
            | Op::Scale
            | Op::Nearest
            | Op::Polynomial(_)
            | Op::Call(_)) => return Err(format!("{} is not for every machine", op.name())),
        })
    }

    fn each_lane(&mut self, f: FuncRef, operands: &[Value]) -> Value {
        let mut out = None;
        for lane in 0..4 {
            let args: Vec<Value> = operands.iter().map(|v| self.builder.ins().extractlane(*v, lane)).collect();
            let call = self.builder.ins().call(f, &args);
            let y = self.builder.inst_results(call)[0];
            out = Some(match out {
                None => self.builder.ins().splat(types::F32X4, y),
                Some(v) => self.builder.ins().insertlane(v, y, lane),
            });
        }
        match out {
            Some(v) => v,
            None => self.splat(0.0),
        }
    }

    /// Any unary operation on floats. Truth values in float lanes are 0 and 1.
    ///
    /// # Errors
    /// A function that the library lacks, or says wrongly; a mistake of ours.
    pub fn unary(&mut self, op: UnaryOp, x: Value) -> Result<Value, String> {
        Ok(match op {
            UnaryOp::Neg => self.builder.ins().fneg(x),
            UnaryOp::Abs => self.builder.ins().fabs(x),
            UnaryOp::Sqrt => self.builder.ins().sqrt(x),
            UnaryOp::Sin => self.each_lane(self.libm.sinf, &[x]),
            UnaryOp::Cos => self.each_lane(self.libm.cosf, &[x]),
            UnaryOp::Not => {
                let (zero, one) = (self.splat(0.0), self.splat(1.0));
                self.select(FloatCC::Equal, x, zero, one, zero)
            }
            UnaryOp::Exp
            | UnaryOp::Exp2
            | UnaryOp::Log
            | UnaryOp::Rsqrt
            | UnaryOp::Tanh
            | UnaryOp::Erf
            | UnaryOp::Sigmoid
            | UnaryOp::Relu
            | UnaryOp::Gelu
            | UnaryOp::GeluTanh
            | UnaryOp::Silu
            | UnaryOp::Floor => return self.function(op.name(), x),
        })
    }

    /// The remainder with the sign of the divisor: that of libm, which is exact and has the sign of `x`, and the divisor more
    /// where the signs differ.
    fn remainder(&mut self, x: Value, y: Value) -> Value {
        let r = self.each_lane(self.libm.fmodf, &[x, y]);
        let (zero, more) = (self.splat(0.0), self.add(r, y));
        let by_positive = self.select(FloatCC::LessThan, r, zero, more, r);
        let by_negative = self.select(FloatCC::GreaterThan, r, zero, more, r);
        let signed = self.select(FloatCC::LessThan, y, zero, by_negative, by_positive);
        let nothing = self.with_sign(zero, y);
        self.select(FloatCC::Equal, r, zero, nothing, signed)
    }

    /// Any binary operation on floats.
    pub fn binary(&mut self, op: BinaryOp, x: Value, y: Value) -> Value {
        match op {
            BinaryOp::Add => self.add(x, y),
            BinaryOp::Sub => self.sub(x, y),
            BinaryOp::Mul => self.mul(x, y),
            BinaryOp::Div => self.div(x, y),
            BinaryOp::Rem => self.remainder(x, y),
            BinaryOp::Pow => self.each_lane(self.libm.powf, &[x, y]),
            // A comparison with NaN is false, which takes `y`; a NaN in `x` is put back.
            BinaryOp::Max | BinaryOp::Min => {
                let cc = if op == BinaryOp::Max { FloatCC::GreaterThan } else { FloatCC::LessThan };
                let m = self.select(cc, x, y, x, y);
                self.select(FloatCC::Unordered, x, x, x, m)
            }
            BinaryOp::And => self.mul(x, y),
            BinaryOp::Or => self.binary(BinaryOp::Max, x, y),
        }
    }
}

const LITTLE: cranelift_codegen::ir::Endianness = cranelift_codegen::ir::Endianness::Little;

#[cfg(test)]
mod tests {
    use cranelift_codegen::ir::{AbiParam, UserFuncName};
    use cranelift_codegen::settings::{self, Configurable};
    use cranelift_frontend::FunctionBuilderContext;
    use cranelift_jit::{JITBuilder, JITModule};
    use cranelift_module::{Linkage, Module, default_libcall_names};

    use super::*;
    use crate::vector::tests::{excess, samples};
    use crate::vector::{interp, library};

    /// Evaluates an operation on many floats through compiled code for plain x86-64.
    fn compiled(op: UnaryOp, xs: &[f32]) -> Vec<f32> {
        let mut flags = settings::builder();
        flags.set("opt_level", "speed").expect("a setting of Cranelift");
        let isa = cranelift_codegen::isa::lookup(target_lexicon::Triple::host())
            .expect("the host is a target")
            .finish(settings::Flags::new(flags))
            .expect("flags fit the host");
        let mut module = JITModule::new(JITBuilder::with_isa(isa, default_libcall_names()));
        let pointer = module.target_config().pointer_type();
        let mut ctx = module.make_context();
        ctx.func.signature.params.extend([AbiParam::new(pointer), AbiParam::new(pointer)]);
        ctx.func.name = UserFuncName::user(0, 0);
        let mut frontend = FunctionBuilderContext::new();
        let mut builder = FunctionBuilder::new(&mut ctx.func, &mut frontend);
        let block = builder.create_block();
        builder.append_block_params_for_function_params(block);
        builder.switch_to_block(block);
        builder.seal_block(block);
        let mut declare = |name: &str, params: usize| {
            let mut signature = module.make_signature();
            signature.params.extend(vec![AbiParam::new(types::F32); params]);
            signature.returns.push(AbiParam::new(types::F32));
            let id = module.declare_function(name, Linkage::Import, &signature).expect("a fresh name");
            module.declare_func_in_func(id, builder.func)
        };
        let libm = Libm {
            sinf: declare("sinf", 1),
            cosf: declare("cosf", 1),
            powf: declare("powf", 2),
            fmodf: declare("fmodf", 2),
        };
        let (source, target) = (builder.block_params(block)[0], builder.block_params(block)[1]);
        let x = builder.ins().load(types::F32X4, MemFlagsData::new(), source, 0);
        let mut lanes = Lanes { builder: &mut builder, libm };
        let y = lanes.unary(op, x).expect("a function of the library");
        builder.ins().store(MemFlagsData::new(), y, target, 0);
        builder.ins().return_(&[]);
        builder.finalize(module.target_config());
        let id = module.declare_anonymous_function(&ctx.func.signature).expect("a function");
        module.define_function(id, &mut ctx).expect("it compiles");
        module.finalize_definitions().expect("it links");
        let code = module.get_finalized_function(id);
        // SAFETY: the code was compiled with this signature just above, and reads and writes 16 bytes.
        let f = unsafe { std::mem::transmute::<*const u8, extern "C" fn(*const f32, *mut f32)>(code) };
        let mut out = vec![0.0; xs.len()];
        for (source, target) in xs.chunks_exact(4).zip(out.chunks_exact_mut(4)) {
            f(source.as_ptr(), target.as_mut_ptr());
        }
        out
    }

    #[test]
    fn functions_compute_what_their_texts_say() {
        let mut xs = samples();
        while !xs.len().is_multiple_of(4) {
            xs.push(0.0);
        }
        for name in library::names() {
            let op = UnaryOp::from_name(name).expect("an operation");
            let f = expand::expand(name, Features::PLAIN).expect("a function of the library");
            for (x, y) in xs.iter().zip(compiled(op, &xs)) {
                let said = f32::from_bits(interp::eval(&f, &[x.to_bits()]).expect("a function that is expanded"));
                let same = y.to_bits() == said.to_bits() || y.is_nan() && said.is_nan();
                assert!(same, "{op} of {x:e} is {y:e}, and its text says {said:e}");
                let excess = excess(f.bound.expect("an error"), y, op.eval_f64(f64::from(*x)));
                assert!(excess <= 1.0, "{op} is off by {excess} times its bound at {x:e}");
            }
        }
    }
}
