//! The vector registers and the basic instructions of each width.

use iced_x86::{Code, MemoryOperand, Register};

use crate::tile::Width;

/// Vector register `n` of a width.
pub(super) fn vector(width: Width, n: i32) -> Register {
    let n = u32::try_from(n).unwrap_or(0);
    match width {
        Width::V512 => Register::ZMM0 + n % 32,
        Width::V256 => Register::YMM0 + n % 16,
        Width::V128 => Register::XMM0 + n % 16,
    }
}

/// Number of vector registers.
pub(super) fn count(width: Width) -> i32 {
    i32::try_from(width.registers()).unwrap_or(16)
}

/// Bytes of a vector register.
pub(super) fn bytes(width: Width) -> i32 {
    4 * i32::try_from(width.lanes()).unwrap_or(4)
}

/// Maximum rows of a matmul's register tile.
pub(super) fn dot_rows(width: Width) -> i32 {
    i32::try_from(width.dot_rows()).unwrap_or(4)
}

/// The memory operand `[base + displacement]`.
pub(super) fn at(base: Register, displacement: i32) -> MemoryOperand {
    MemoryOperand::with_base_displ(base, i64::from(displacement))
}

/// The memory operand `[rsp + displacement]`.
pub(super) fn frame(displacement: i32) -> MemoryOperand {
    at(Register::RSP, displacement)
}

/// Register `n` of 512 bits.
pub(super) fn zmm(n: u32) -> Register {
    Register::ZMM0 + n
}

/// Register `n` of 256 bits.
pub(super) fn ymm(n: u32) -> Register {
    Register::YMM0 + n
}

/// Register `n` of 128 bits.
pub(super) fn xmm(n: u32) -> Register {
    Register::XMM0 + n
}

/// A load and a store of a whole register, at any alignment.
pub(super) fn moves(width: Width) -> (Code, Code) {
    match width {
        Width::V512 => (Code::EVEX_Vmovups_zmm_k1z_zmmm512, Code::EVEX_Vmovups_zmmm512_k1z_zmm),
        Width::V256 => (Code::VEX_Vmovups_ymm_ymmm256, Code::VEX_Vmovups_ymmm256_ymm),
        Width::V128 => (Code::VEX_Vmovups_xmm_xmmm128, Code::VEX_Vmovups_xmmm128_xmm),
    }
}

/// Copies a vector register.
pub(super) fn copy(width: Width) -> Code {
    match width {
        Width::V512 => Code::EVEX_Vmovaps_zmm_k1z_zmmm512,
        Width::V256 | Width::V128 => Code::VEX_Vmovaps_ymm_ymmm256,
    }
}

/// Bitwise exclusive or; `f32` addition.
pub(super) fn xor_and_add(width: Width) -> (Code, Code) {
    match width {
        Width::V512 => (Code::EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32, Code::EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er),
        Width::V256 | Width::V128 => (Code::VEX_Vpxor_ymm_ymm_ymmm256, Code::VEX_Vaddps_ymm_ymm_ymmm256),
    }
}

/// Broadcast of an element in memory; `sum += a * b`.
pub(super) fn spread_and_fma(width: Width) -> (Code, Code) {
    match width {
        Width::V512 => (Code::EVEX_Vbroadcastss_zmm_k1z_xmmm32, Code::EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er),
        Width::V256 => (Code::VEX_Vbroadcastss_ymm_m32, Code::VEX_Vfmadd231ps_ymm_ymm_ymmm256),
        Width::V128 => (Code::VEX_Vbroadcastss_xmm_m32, Code::VEX_Vfmadd231ps_xmm_xmm_xmmm128),
    }
}

/// Interleaves two registers by elements: low and high half of each 128-bit lane.
pub(super) fn unpack_singles(width: Width) -> [Code; 2] {
    match width {
        Width::V512 => [Code::EVEX_Vunpcklps_zmm_k1z_zmm_zmmm512b32, Code::EVEX_Vunpckhps_zmm_k1z_zmm_zmmm512b32],
        Width::V256 | Width::V128 => [Code::VEX_Vunpcklps_ymm_ymm_ymmm256, Code::VEX_Vunpckhps_ymm_ymm_ymmm256],
    }
}

/// The same by pairs of elements.
pub(super) fn unpack_pairs(width: Width) -> [Code; 2] {
    match width {
        Width::V512 => [Code::EVEX_Vunpcklpd_zmm_k1z_zmm_zmmm512b64, Code::EVEX_Vunpckhpd_zmm_k1z_zmm_zmmm512b64],
        Width::V256 | Width::V128 => [Code::VEX_Vunpcklpd_ymm_ymm_ymmm256, Code::VEX_Vunpckhpd_ymm_ymm_ymmm256],
    }
}

/// Instructions that widen narrow elements to `f32`.
#[derive(Clone, Copy)]
pub(super) struct Widening {
    /// 16 bits to 32, zero-extended.
    pub(super) words: Code,
    /// 8 bits to 32, zero-extended.
    pub(super) bytes: Code,
    /// 8 bits to 32, sign-extended.
    pub(super) signed_bytes: Code,
    /// Shifts of 32-bit elements.
    pub(super) shift_left: Code,
    pub(super) shift_right: Code,
    pub(super) shift_right_signed: Code,
    pub(super) to_float: Code,
    /// `f32` multiplication.
    pub(super) multiply: Code,
}

/// The widening instructions of a width.
pub(super) fn widening(width: Width) -> Widening {
    match width {
        Width::V512 => Widening {
            words: Code::EVEX_Vpmovzxwd_zmm_k1z_ymmm256,
            bytes: Code::EVEX_Vpmovzxbd_zmm_k1z_xmmm128,
            signed_bytes: Code::EVEX_Vpmovsxbd_zmm_k1z_xmmm128,
            shift_left: Code::EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8,
            shift_right: Code::EVEX_Vpsrld_zmm_k1z_zmmm512b32_imm8,
            shift_right_signed: Code::EVEX_Vpsrad_zmm_k1z_zmmm512b32_imm8,
            to_float: Code::EVEX_Vcvtdq2ps_zmm_k1z_zmmm512b32_er,
            multiply: Code::EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er,
        },
        Width::V256 | Width::V128 => Widening {
            words: Code::VEX_Vpmovzxwd_ymm_xmmm128,
            bytes: Code::VEX_Vpmovzxbd_ymm_xmmm64,
            signed_bytes: Code::VEX_Vpmovsxbd_ymm_xmmm64,
            shift_left: Code::VEX_Vpslld_ymm_ymm_imm8,
            shift_right: Code::VEX_Vpsrld_ymm_ymm_imm8,
            shift_right_signed: Code::VEX_Vpsrad_ymm_ymm_imm8,
            to_float: Code::VEX_Vcvtdq2ps_ymm_ymmm256,
            multiply: Code::VEX_Vmulps_ymm_ymm_ymmm256,
        },
    }
}
