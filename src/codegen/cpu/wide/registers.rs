//! The vector registers and the plain instructions of each width.

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

/// Bytes of a vector register.
pub(super) fn bytes(width: Width) -> i32 {
    4 * i32::try_from(width.lanes()).unwrap_or(4)
}

/// Memory so many bytes from a register.
pub(super) fn at(base: Register, displacement: i32) -> MemoryOperand {
    MemoryOperand::with_base_displ(base, i64::from(displacement))
}

/// Memory so far above the stack pointer.
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

/// Interleaving of two registers by elements, of the low and of the high half of each 128-bit lane.
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
