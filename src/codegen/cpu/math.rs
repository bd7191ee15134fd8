//! Elementary functions on four `f32` lanes, as CLIF: vector IR, printed.
//!
//! In: a function under construction and `F32X4` values. Out: `F32X4` values. The definition of a
//! function and its error bound are in its source (`vector::library`); here is one case for each
//! operation.
//!
//! Nothing here may assume more than SSE2: no `floor`, `nearest` or `fma` instruction of CLIF,
//! which become a library call for each lane there.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{ConstantData, InstBuilder, MemFlagsData, Value, types};
use cranelift_frontend::FunctionBuilder;

use crate::scalar::UnaryOp;
use crate::tile::Width;
use crate::vector::expand::{self, Expanded, Need};
use crate::vector::{Features, Function, Inst, Op, Type, library};

/// The features that elementary functions may use at a vector width.
pub fn features(width: Width) -> Features {
    match width {
        Width::V128 => Features::PLAIN,
        Width::V256 => Features::AVX2,
        Width::V512 => Features::AVX512,
    }
}

/// Emits operations on `F32X4` values.
pub struct Lanes<'a, 'b> {
    /// The function under construction.
    pub builder: &'a mut FunctionBuilder<'b>,
}

impl Lanes<'_, '_> {
    /// The same constant in four lanes.
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

    /// Emits a function of the library.
    pub(super) fn function(&mut self, name: &str, args: &[Value]) -> Result<Value, String> {
        // Cranelift's code must run on any x86-64.
        let Expanded { function: f, needs } = expand::expanded(name, features(Width::V128))?;
        let mut values: Vec<Option<Value>> = args.iter().copied().map(Some).collect();
        for (inst, need) in f.insts.iter().zip(needs) {
            let value = match need {
                Need::Value => Some(self.operation(f, inst, &values)?),
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
            n.map(i64::from).ok_or("a shift by a value that is not constant")
        };
        Ok(match &inst.op {
            Op::Add => self.builder.ins().fadd(get(0)?, get(1)?),
            Op::Sub => self.builder.ins().fsub(get(0)?, get(1)?),
            Op::Mul => self.builder.ins().fmul(get(0)?, get(1)?),
            Op::Div => self.builder.ins().fdiv(get(0)?, get(1)?),
            Op::Min => {
                let (a, b) = (get(0)?, get(1)?);
                self.select(FloatCC::LessThan, a, b, a, b)
            }
            Op::Max => {
                let (a, b) = (get(0)?, get(1)?);
                self.select(FloatCC::LessThan, b, a, a, b)
            }
            Op::Sqrt => self.builder.ins().sqrt(get(0)?),
            Op::Neg => self.builder.ins().fneg(get(0)?),
            Op::Abs => self.builder.ins().fabs(get(0)?),
            Op::NegAbs => {
                let a = self.builder.ins().fabs(get(0)?);
                self.builder.ins().fneg(a)
            }
            Op::CopySign => self.with_sign(get(0)?, get(1)?),
            Op::Truncate => self.builder.ins().fcvt_to_sint_sat(types::I32X4, get(0)?),
            Op::ToFloat => self.builder.ins().fcvt_from_sint(types::F32X4, get(0)?),
            Op::Bits => self.as_int(get(0)?),
            Op::FromBits => self.as_float(get(0)?),
            Op::AddI => self.builder.ins().iadd(get(0)?, get(1)?),
            Op::SubI => self.builder.ins().isub(get(0)?, get(1)?),
            Op::MulI => self.builder.ins().imul(get(0)?, get(1)?),
            Op::MulHigh => self.high_product(get(0)?, get(1)?),
            Op::AndI => self.builder.ins().band(get(0)?, get(1)?),
            Op::XorI => self.builder.ins().bxor(get(0)?, get(1)?),
            Op::ShiftLeft => self.builder.ins().ishl_imm_u(get(0)?, bits()?),
            Op::ShiftSigned => self.builder.ins().sshr_imm_u(get(0)?, bits()?),
            Op::ShiftRight => self.builder.ins().ushr_imm_u(get(0)?, bits()?),
            Op::Less => self.builder.ins().fcmp(FloatCC::LessThan, get(0)?, get(1)?),
            Op::Equal => self.builder.ins().fcmp(FloatCC::Equal, get(0)?, get(1)?),
            Op::LessI => self.builder.ins().icmp(IntCC::SignedLessThan, get(0)?, get(1)?),
            Op::SelectI => self.builder.ins().bitselect(get(0)?, get(1)?, get(2)?),
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
            | Op::Call(_)) => return Err(format!("{} is not supported by every target", op.name())),
        })
    }

    /// The high halves of unsigned products: two of 64 bits, then the other two.
    fn high_product(&mut self, x: Value, y: Value) -> Value {
        let b = &mut self.builder;
        let (x_low, y_low) = (b.ins().uwiden_low(x), b.ins().uwiden_low(y));
        let low = b.ins().imul(x_low, y_low);
        let (x_high, y_high) = (b.ins().uwiden_high(x), b.ins().uwiden_high(y));
        let high = b.ins().imul(x_high, y_high);
        let bytes = [low, high].map(|v| b.ins().bitcast(types::I8X16, MemFlagsData::new().with_endianness(LITTLE), v));
        let picked = [4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31];
        let mask = b.func.dfg.immediates.push(ConstantData::from(picked.as_slice()));
        let shuffled = b.ins().shuffle(bytes[0], bytes[1], mask);
        self.as_int(shuffled)
    }

    /// Any unary operation on floats. Truth values in float lanes are 0 and 1.
    ///
    /// # Errors
    /// A function that is missing from the library or malformed; a bug in attnc.
    pub fn unary(&mut self, op: UnaryOp, x: Value) -> Result<Value, String> {
        if let Some(name) = library::unary(op) {
            return self.function(name, &[x]);
        }
        Ok(match op {
            UnaryOp::Neg => self.builder.ins().fneg(x),
            UnaryOp::Abs => self.builder.ins().fabs(x),
            UnaryOp::Sqrt => self.builder.ins().sqrt(x),
            UnaryOp::Not => {
                let (zero, one) = (self.splat(0.0), self.splat(1.0));
                self.select(FloatCC::Equal, x, zero, one, zero)
            }
            _ => return Err(format!("{op} is neither an instruction nor a library function")),
        })
    }

    /// Maximum or minimum; NaN if either is NaN. A comparison with NaN is false and selects `y`, so
    /// a NaN in `x` is selected afterwards.
    pub(super) fn extreme(&mut self, is_max: bool, x: Value, y: Value) -> Value {
        // Cranelift matches this operand order to `maxps` or `minps`.
        let (a, b) = if is_max { (y, x) } else { (x, y) };
        let m = self.select(FloatCC::LessThan, a, b, x, y);
        self.select(FloatCC::Unordered, x, x, x, m)
    }
}

const LITTLE: cranelift_codegen::ir::Endianness = cranelift_codegen::ir::Endianness::Little;

#[cfg(test)]
mod tests {
    use cranelift_codegen::ir::{AbiParam, UserFuncName};
    use cranelift_codegen::settings::{self, Configurable};
    use cranelift_frontend::FunctionBuilderContext;
    use cranelift_jit::{JITBuilder, JITModule};
    use cranelift_module::{Module, default_libcall_names};

    use super::*;
    use crate::vector::tests::{arguments, exactly, of_floats, said};

    /// Evaluates a function on arrays of floats, one per parameter, through code compiled for
    /// baseline x86-64.
    fn compiled(name: &str, args: &[Vec<f32>]) -> Vec<f32> {
        let mut flags = settings::builder();
        flags.set("opt_level", "speed").expect("a setting of Cranelift");
        let isa = cranelift_codegen::isa::lookup(target_lexicon::Triple::host())
            .expect("the host is a target")
            .finish(settings::Flags::new(flags))
            .expect("flags fit the host");
        let mut module = JITModule::new(JITBuilder::with_isa(isa, default_libcall_names()));
        let pointer = module.target_config().pointer_type();
        let mut ctx = module.make_context();
        ctx.func.signature.params.extend([AbiParam::new(pointer); 3]);
        ctx.func.name = UserFuncName::user(0, 0);
        let mut frontend = FunctionBuilderContext::new();
        let mut builder = FunctionBuilder::new(&mut ctx.func, &mut frontend);
        let block = builder.create_block();
        builder.append_block_params_for_function_params(block);
        builder.switch_to_block(block);
        builder.seal_block(block);
        let [first, second, target] = [0, 1, 2].map(|n| builder.block_params(block)[n]);
        let given: Vec<Value> = [first, second][..args.len()]
            .iter()
            .map(|source| builder.ins().load(types::F32X4, MemFlagsData::new(), *source, 0))
            .collect();
        let mut lanes = Lanes { builder: &mut builder };
        let y = lanes.function(name, &given).expect("a function of the library");
        builder.ins().store(MemFlagsData::new(), y, target, 0);
        builder.ins().return_(&[]);
        builder.finalize(module.target_config());
        let id = module.declare_anonymous_function(&ctx.func.signature).expect("a function");
        module.define_function(id, &mut ctx).expect("it compiles");
        module.finalize_definitions().expect("it links");
        let code = module.get_finalized_function(id);
        // SAFETY: the code was compiled with this signature just above, reads 16 bytes at each of
        // the first two addresses at most, and writes as many at the last.
        let f = unsafe { std::mem::transmute::<*const u8, extern "C" fn(*const f32, *const f32, *mut f32)>(code) };
        let mut out = vec![0.0; args[0].len()];
        for (n, target) in out.chunks_exact_mut(4).enumerate() {
            let [first, second] = [0, args.len() - 1].map(|i| args[i][4 * n..][..4].as_ptr());
            f(first, second, target.as_mut_ptr());
        }
        out
    }

    #[test]
    fn functions_compute_what_their_texts_say() {
        for name in of_floats() {
            let Expanded { function: f, .. } = expand::expanded(name, Features::PLAIN).expect("a function");
            let mut args = arguments(f);
            for xs in &mut args {
                xs.resize(xs.len().next_multiple_of(4), 0.0);
            }
            for (i, y) in compiled(name, &args).into_iter().enumerate() {
                let x: Vec<f32> = args.iter().map(|xs| xs[i]).collect();
                let said = said(f, &x);
                let same = y.to_bits() == said.to_bits() || y.is_nan() && said.is_nan();
                assert!(same, "{name} of {x:?} is {y:e}, and its text says {said:e}");
                let excess = f.bound.expect("an error").excess(y, exactly(name, &x));
                assert!(excess <= 1.0, "{name} is off by {excess} times its bound at {x:?}");
            }
        }
    }
}
