//! Operations on single integers that take several CLIF instructions: floor division, shifts by any
//! number of bits, powers.
//!
//! In: integers of one type. Out: the result that the language defines, also where the machine's
//! instruction traps.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};

use super::math::Lanes;

impl Lanes<'_, '_> {
    /// Floor division: quotient and remainder; both are 0 for a zero divisor.
    pub(super) fn divide(&mut self, x: Value, y: Value) -> (Value, Value) {
        let b = &mut *self.builder;
        let ty = b.func.dfg.value_type(x);
        let (zero, one) = (b.ins().iconst(ty, 0), b.ins().iconst(ty, 1));
        let is_zero = b.ins().icmp_imm_s(IntCC::Equal, y, 0);
        // A divisor of -1 is a negation, which wraps where the instruction would trap.
        let is_minus = b.ins().icmp_imm_s(IntCC::Equal, y, -1);
        let unsafe_divisor = b.ins().bor(is_zero, is_minus);
        let safe = b.ins().select(unsafe_divisor, one, y);
        let q = b.ins().sdiv(x, safe);
        let p = b.ins().imul(q, safe);
        let r = b.ins().isub(x, p);
        let inexact = b.ins().icmp_imm_s(IntCC::NotEqual, r, 0);
        let signs = b.ins().bxor(r, safe);
        let differ = b.ins().icmp_imm_s(IntCC::SignedLessThan, signs, 0);
        let down = b.ins().band(inexact, differ);
        let less = b.ins().isub(q, one);
        let q = b.ins().select(down, less, q);
        let more = b.ins().iadd(r, safe);
        let r = b.ins().select(down, more, r);
        let negated = b.ins().ineg(x);
        let q = b.ins().select(is_minus, negated, q);
        let q = b.ins().select(is_zero, zero, q);
        let r = b.ins().select(unsafe_divisor, zero, r);
        (q, r)
    }

    /// Shifts a single integer by any number of bits (the instruction reduces the count modulo the
    /// width).
    pub(super) fn shift(&mut self, left: bool, x: Value, y: Value) -> Value {
        let b = &mut *self.builder;
        let ty = b.func.dfg.value_type(x);
        let (zero, last) = (b.ins().iconst(ty, 0), b.ins().iconst(ty, i64::from(ty.bits()) - 1));
        let is_far = b.ins().icmp(IntCC::UnsignedGreaterThan, y, last);
        if left {
            let shifted = b.ins().ishl(x, y);
            b.ins().select(is_far, zero, shifted)
        } else {
            let near = b.ins().select(is_far, last, y);
            b.ins().sshr(x, near)
        }
    }

    /// `x^y` of single integers by repeated squaring, wrapping; a negative exponent is treated as
    /// 0.
    pub(super) fn power(&mut self, x: Value, y: Value) -> Value {
        let b = &mut *self.builder;
        let ty = b.func.dfg.value_type(x);
        let (zero, one) = (b.ins().iconst(ty, 0), b.ins().iconst(ty, 1));
        let y = b.ins().smax(y, zero);
        let (head, body, done) = (b.create_block(), b.create_block(), b.create_block());
        let (result, base, rest) =
            (b.append_block_param(head, ty), b.append_block_param(head, ty), b.append_block_param(head, ty));
        b.ins().jump(head, &[one.into(), x.into(), y.into()]);
        b.switch_to_block(head);
        b.ins().brif(rest, body, &[], done, &[]);
        b.switch_to_block(body);
        b.seal_block(body);
        let odd = b.ins().band_imm_u(rest, 1);
        let product = b.ins().imul(result, base);
        let result_next = b.ins().select(odd, product, result);
        let square = b.ins().imul(base, base);
        let half = b.ins().ushr_imm_u(rest, 1);
        b.ins().jump(head, &[result_next.into(), square.into(), half.into()]);
        b.seal_block(head);
        b.seal_block(done);
        b.switch_to_block(done);
        result
    }
}
