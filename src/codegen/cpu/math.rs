//! Elementary functions on four `f32` lanes, as CLIF.
//!
//! In: a function under construction and `F32X4` values. Out: `F32X4` values. `exp`, `tanh`, `erf` and what is made of
//! them (sigmoid, SiLU, both GELUs) are polynomials of our own, fitted by Lawson's iteration (Lawson 1961; near-minimax
//! in the relative, for erfc the absolute, error); a test compares each with `f64` over its range and holds it to the bound
//! stated here. `log`, `sin`, `cos`, `pow` and the remainder are calls of libm, lane by lane.
//!
//! Nothing here may assume more than SSE2: no `floor`, `nearest` or `fma` instruction of CLIF, which become a library call
//! for each lane there; rounding to whole numbers adds and subtracts 1.5 * 2^23.
//!
//! | function | error bound |
//! |---|---|
//! | exp, exp2 | 2 ulp (subnormal results: 1 ulp of the smallest subnormal) |
//! | tanh | 3 ulp |
//! | erf | 3 ulp |
//! | sigmoid | 4 ulp |
//! | silu | 4 ulp, or 1e-42 absolute |
//! | gelu, gelu_tanh | 1e-6 relative or 2e-7 absolute |

use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{ConstantData, FuncRef, InstBuilder, MemFlagsData, Value, types};
use cranelift_frontend::FunctionBuilder;

use crate::scalar::{BinaryOp, UnaryOp};

/// Functions of libm that generated code may call, declared in the function under construction.
#[derive(Clone, Copy, Debug)]
pub struct Libm {
    /// `float logf(float)`
    pub logf: FuncRef,
    /// `float sinf(float)`
    pub sinf: FuncRef,
    /// `float cosf(float)`
    pub cosf: FuncRef,
    /// `float powf(float, float)`
    pub powf: FuncRef,
    /// `float fmodf(float, float)`
    pub fmodf: FuncRef,
}

/// `e^r = 1 + r + r^2 P(r)` on `|r| <= ln 2 / 2`, lowest coefficient first.
pub(in crate::codegen) const EXP: [f32; 6] =
    [0.5, 0.166_666_66, 0.041_666_295, 0.008_333_498, 0.001_394_475_9, 0.000_197_902_48];
/// `2^r = 1 + r P(r)` on `|r| <= 1/2`, lowest coefficient first.
pub(in crate::codegen) const EXP2: [f32; 6] =
    [std::f32::consts::LN_2, 0.240_226_48, 0.055_503_324, 0.009_618_438, 0.001_339_893, 0.000_153_532_9];
/// `tanh x = x + x z P(z)`, `z = x^2`, on `|x| <= 0.625`.
pub(in crate::codegen) const TANH: [f32; 6] =
    [-0.333_333_3, 0.133_332_04, -0.053_946_454, 0.021_698_69, -0.008_171_705, 0.002_137_162_7];
/// `erf x = x P(x^2)` on `|x| <= 1`.
pub(in crate::codegen) const ERF: [f32; 7] = [
    std::f32::consts::FRAC_2_SQRT_PI,
    -0.376_126_26,
    0.112_835_854,
    -0.026_853_811,
    0.005_188_327_7,
    -0.000_801_019_25,
    7.853_858e-5,
];
/// `erfc x = exp(-P(x))` on `0.95 <= x <= 4`.
pub(in crate::codegen) const ERFC: [f32; 9] = [
    -0.000_178_124_17,
    1.129_527_3,
    0.633_332_85,
    0.108_278_48,
    -0.025_101_762,
    0.004_153_776_4,
    -0.000_426_505_43,
    1.926_273_8e-5,
    1.697_456_8e-7,
];
/// Adding this rounds an `f32` of magnitude below 2^22 to a whole number, which then stands in the low bits.
pub(in crate::codegen) const ROUND: f32 = 12_582_912.0;

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

    fn scale(&mut self, a: Value, by: f32) -> Value {
        let by = self.splat(by);
        self.mul(a, by)
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

    /// Horner's scheme, lowest coefficient first.
    fn polynomial(&mut self, x: Value, coefficients: &[f32]) -> Value {
        let mut rest = coefficients.iter().rev();
        let mut sum = self.splat(rest.next().copied().unwrap_or(0.0));
        for c in rest {
            let c = self.splat(*c);
            let product = self.mul(sum, x);
            sum = self.add(product, c);
        }
        sum
    }

    /// `2^n` for a vector of integers between -126 and 127.
    fn power_of_two(&mut self, n: Value) -> Value {
        let bias = self.splat_int(127);
        let e = self.builder.ins().iadd(n, bias);
        let e = self.builder.ins().ishl_imm_u(e, 23);
        self.as_float(e)
    }

    /// `e^x`: `x = n ln 2 + r` with `ln 2` in two parts (Cody & Waite 1980, chapter 6), the scaling by `2^n` in two
    /// steps, so that overflow gives inf and underflow is gradual.
    pub fn exp(&mut self, x: Value) -> Value {
        let (high, low) = (self.splat(89.0), self.splat(-104.5));
        // NaN fails both comparisons and stays.
        let x = self.select(FloatCC::GreaterThan, x, high, high, x);
        let x = self.select(FloatCC::LessThan, x, low, low, x);
        let round = self.splat(ROUND);
        let t = self.scale(x, std::f32::consts::LOG2_E);
        let shifted = self.add(t, round);
        let n = self.sub(shifted, round);
        let hi = self.scale(n, 0.693_359_4);
        let lo = self.scale(n, -2.121_944_4e-4);
        let r = self.sub(x, hi);
        let r = self.sub(r, lo);
        let p = self.polynomial(r, &EXP);
        let r2 = self.mul(r, r);
        let p = self.mul(p, r2);
        let p = self.add(p, r);
        let one = self.splat(1.0);
        let p = self.add(p, one);
        self.scaled(p, shifted)
    }

    /// `p 2^n` in two steps, `n` being in the low bits of a number that [`ROUND`] was added to.
    fn scaled(&mut self, p: Value, shifted: Value) -> Value {
        let (bits, base) = (self.as_int(shifted), self.splat_int(ROUND.to_bits().cast_signed()));
        let n = self.builder.ins().isub(bits, base);
        let half = self.builder.ins().sshr_imm_u(n, 1);
        let rest = self.builder.ins().isub(n, half);
        let (a, b) = (self.power_of_two(half), self.power_of_two(rest));
        let p = self.mul(p, a);
        self.mul(p, b)
    }

    /// `2^x`, as `e^x`; nothing is lost where `x` is parted into a whole number and the rest.
    fn exp2(&mut self, x: Value) -> Value {
        let (high, low) = (self.splat(129.0), self.splat(-151.0));
        let x = self.select(FloatCC::GreaterThan, x, high, high, x);
        let x = self.select(FloatCC::LessThan, x, low, low, x);
        let round = self.splat(ROUND);
        let shifted = self.add(x, round);
        let n = self.sub(shifted, round);
        let r = self.sub(x, n);
        let p = self.polynomial(r, &EXP2);
        let p = self.mul(p, r);
        let one = self.splat(1.0);
        let p = self.add(p, one);
        self.scaled(p, shifted)
    }

    /// `tanh x`: a polynomial near 0, `1 - 2 / (e^2x + 1)` beyond.
    pub fn tanh(&mut self, x: Value) -> Value {
        let z = self.mul(x, x);
        let p = self.polynomial(z, &TANH);
        let p = self.mul(p, z);
        let p = self.mul(p, x);
        let near = self.add(p, x);
        let a = self.builder.ins().fabs(x);
        let two_a = self.add(a, a);
        let e = self.exp(two_a);
        let (one, two) = (self.splat(1.0), self.splat(2.0));
        let d = self.add(e, one);
        let q = self.div(two, d);
        let far = self.sub(one, q);
        let far = self.with_sign(far, x);
        let limit = self.splat(0.625);
        self.select(FloatCC::LessThan, a, limit, near, far)
    }

    /// `erf` near 0 and `erfc |x|` beyond, and whether `|x| < 1` (as operands of a selection: `|x|` and 1).
    fn erf_parts(&mut self, x: Value) -> (Value, Value, Value, Value) {
        let z = self.mul(x, x);
        let p = self.polynomial(z, &ERF);
        let near = self.mul(p, x);
        let a = self.builder.ins().fabs(x);
        let four = self.splat(4.0);
        let clamped = self.select(FloatCC::GreaterThan, a, four, four, a);
        let q = self.polynomial(clamped, &ERFC);
        let q = self.builder.ins().fneg(q);
        let e = self.exp(q);
        let zero = self.splat(0.0);
        let erfc = self.select(FloatCC::GreaterThan, a, four, zero, e);
        let one = self.splat(1.0);
        (near, erfc, a, one)
    }

    /// `erf x`: a polynomial near 0, `1 - erfc` beyond.
    pub fn erf(&mut self, x: Value) -> Value {
        let (near, erfc, a, one) = self.erf_parts(x);
        let far = self.sub(one, erfc);
        let far = self.with_sign(far, x);
        self.select(FloatCC::LessThan, a, one, near, far)
    }

    /// `1 / (1 + e^-x)`, for negative `x` as `e^x / (1 + e^x)`, which does not overflow.
    pub fn sigmoid(&mut self, x: Value) -> Value {
        let a = self.builder.ins().fabs(x);
        let n = self.builder.ins().fneg(a);
        let e = self.exp(n);
        let (zero, one) = (self.splat(0.0), self.splat(1.0));
        let d = self.add(e, one);
        let top = self.select(FloatCC::LessThan, x, zero, e, one);
        self.div(top, d)
    }

    /// `x * sigmoid(x)`; -0 at -inf.
    pub fn silu(&mut self, x: Value) -> Value {
        let s = self.sigmoid(x);
        let y = self.mul(x, s);
        self.zero_at_minus_infinity(x, y)
    }

    /// -0 where `x` is -inf, else `y`.
    fn zero_at_minus_infinity(&mut self, x: Value, y: Value) -> Value {
        let (bottom, zero) = (self.splat(f32::NEG_INFINITY), self.splat(-0.0));
        self.select(FloatCC::Equal, x, bottom, zero, y)
    }

    /// GELU by erf; for negative `x` by erfc, which does not cancel.
    pub fn gelu(&mut self, x: Value) -> Value {
        let u = self.scale(x, std::f32::consts::FRAC_1_SQRT_2);
        let (near, erfc, a, one) = self.erf_parts(u);
        let near = self.add(near, one);
        let two = self.splat(2.0);
        let positive = self.sub(two, erfc);
        let zero = self.splat(0.0);
        let far = self.select(FloatCC::LessThan, x, zero, erfc, positive);
        let sum = self.select(FloatCC::LessThan, a, one, near, far);
        let half = self.scale(x, 0.5);
        let y = self.mul(half, sum);
        self.zero_at_minus_infinity(x, y)
    }

    /// GELU's tanh approximation, as `x * sigmoid(2 * inner)`, which does not cancel.
    pub fn gelu_tanh(&mut self, x: Value) -> Value {
        let z = self.mul(x, x);
        let cubic = self.scale(z, 0.044_715);
        let one = self.splat(1.0);
        let cubic = self.add(cubic, one);
        let inner = self.mul(cubic, x);
        // 2 sqrt(2 / pi)
        let doubled = self.scale(inner, 1.595_769);
        let s = self.sigmoid(doubled);
        let y = self.mul(x, s);
        self.zero_at_minus_infinity(x, y)
    }

    /// Largest whole number at most `x`: exact, without SSE4.1's instruction.
    pub fn floor(&mut self, x: Value) -> Value {
        let round = self.splat(8_388_608.0);
        let a = self.builder.ins().fabs(x);
        let t = self.add(a, round);
        let t = self.sub(t, round);
        let nearest = self.with_sign(t, x);
        let one = self.splat(1.0);
        let below = self.sub(nearest, one);
        let y = self.select(FloatCC::GreaterThan, nearest, x, below, nearest);
        let y = self.with_sign(y, x);
        // From 2^23 on every f32 is whole; NaN goes this way too.
        self.select(FloatCC::LessThan, a, round, y, x)
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
    pub fn unary(&mut self, op: UnaryOp, x: Value) -> Value {
        match op {
            UnaryOp::Neg => self.builder.ins().fneg(x),
            UnaryOp::Abs => self.builder.ins().fabs(x),
            UnaryOp::Exp => self.exp(x),
            UnaryOp::Exp2 => self.exp2(x),
            UnaryOp::Log => self.each_lane(self.libm.logf, &[x]),
            UnaryOp::Sqrt => self.builder.ins().sqrt(x),
            UnaryOp::Rsqrt => {
                let root = self.builder.ins().sqrt(x);
                let one = self.splat(1.0);
                self.div(one, root)
            }
            UnaryOp::Sin => self.each_lane(self.libm.sinf, &[x]),
            UnaryOp::Cos => self.each_lane(self.libm.cosf, &[x]),
            UnaryOp::Tanh => self.tanh(x),
            UnaryOp::Erf => self.erf(x),
            UnaryOp::Sigmoid => self.sigmoid(x),
            UnaryOp::Relu => {
                let zero = self.splat(0.0);
                self.select(FloatCC::LessThan, x, zero, zero, x)
            }
            UnaryOp::Gelu => self.gelu(x),
            UnaryOp::GeluTanh => self.gelu_tanh(x),
            UnaryOp::Silu => self.silu(x),
            UnaryOp::Floor => self.floor(x),
            UnaryOp::Not => {
                let (zero, one) = (self.splat(0.0), self.splat(1.0));
                self.select(FloatCC::Equal, x, zero, one, zero)
            }
        }
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
            logf: declare("logf", 1),
            sinf: declare("sinf", 1),
            cosf: declare("cosf", 1),
            powf: declare("powf", 2),
            fmodf: declare("fmodf", 2),
        };
        let (source, target) = (builder.block_params(block)[0], builder.block_params(block)[1]);
        let x = builder.ins().load(types::F32X4, MemFlagsData::new(), source, 0);
        let mut lanes = Lanes { builder: &mut builder, libm };
        let y = lanes.unary(op, x);
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

    /// Distance in units of the last place of the correctly rounded result.
    fn ulps(got: f32, want: f64) -> f64 {
        let rounded = want as f32;
        if got.to_bits() == rounded.to_bits() || (got.is_nan() && want.is_nan()) {
            return 0.0;
        }
        let exponent = rounded.abs().max(f32::MIN_POSITIVE).to_bits() >> 23;
        let ulp = 2f64.powi(exponent.cast_signed() - 127 - 23);
        (f64::from(got) - want).abs() / ulp
    }

    /// Every 1,009th float, so that all exponents and both signs are met, and the special ones.
    fn samples() -> Vec<f32> {
        let mut xs: Vec<f32> = (0..=u32::MAX).step_by(1009).map(f32::from_bits).collect();
        xs.extend((0..400_000).map(|i| (i as f32 - 200_000.0) * 5e-5));
        xs.extend([0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE]);
        while !xs.len().is_multiple_of(4) {
            xs.push(0.0);
        }
        xs
    }

    fn worst(op: UnaryOp, error: impl Fn(f32, f64) -> f64) -> (f64, f32) {
        let xs = samples();
        let ys = compiled(op, &xs);
        xs.iter()
            .zip(&ys)
            .map(|(x, y)| (error(*y, op.eval_f64(f64::from(*x))), *x))
            .fold((0.0, 0.0), |a, b| if b.0 > a.0 || b.0.is_nan() { b } else { a })
    }

    #[test]
    fn errors_are_within_their_bounds() {
        for (op, bound) in [
            (UnaryOp::Exp, 2.0),
            (UnaryOp::Exp2, 2.0),
            (UnaryOp::Tanh, 3.0),
            (UnaryOp::Erf, 3.0),
            (UnaryOp::Sigmoid, 4.0),
            (UnaryOp::Rsqrt, 1.5),
            (UnaryOp::Sqrt, 0.5),
            (UnaryOp::Floor, 0.0),
            (UnaryOp::Relu, 0.0),
            (UnaryOp::Log, 1.0),
        ] {
            let (error, at) = worst(op, ulps);
            assert!(error <= bound, "{op} is off by {error} ulp at {at:e}");
        }
    }

    #[test]
    fn silu_error_is_within_its_bound() {
        let (error, at) =
            worst(UnaryOp::Silu, |got, want| if (f64::from(got) - want).abs() < 1e-42 { 0.0 } else { ulps(got, want) });
        assert!(error <= 4.0, "silu is off by {error} ulp at {at:e}");
    }

    #[test]
    fn gelu_errors_are_within_their_bounds() {
        for op in [UnaryOp::Gelu, UnaryOp::GeluTanh] {
            let (error, at) = worst(op, |got, want| {
                if got.is_nan() && want.is_nan() || f64::from(got) == want || got == want as f32 {
                    return 0.0;
                }
                ((f64::from(got) - want).abs() / 2e-7).min((f64::from(got) - want).abs() / want.abs() / 1e-6)
            });
            assert!(error <= 1.0, "{op} is off by {error} times its bound at {at:e}");
        }
    }
}
