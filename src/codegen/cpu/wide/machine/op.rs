//! The instructions: one table of names and encodings, and what each does with its operands.
//!
//! In: an operation and a width. Out: its encoding, the classes and views of its operands. What this must not know: what
//! instructions are selected for, which registers they get.

use iced_x86::Code;

#[cfg(test)]
use super::Class;
use crate::tile::Width;

/// How much of a register an operand names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum View {
    /// All of a vector, a mask, or 64 bits.
    Full,
    /// Half of a vector, or 32 bits.
    Half,
    /// 128 bits, or 16.
    Low,
    /// 8 bits.
    Byte,
}

/// Declares the instructions: name, code at AVX-512, code at AVX2, may its last register be in memory.
macro_rules! instructions {
    ($($name:ident: $wide:ident, $narrow:ident, $fold:literal;)*) => {
        /// An instruction; the table is in this file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the table says what they are")]
        pub(in super::super) enum Op { $($name,)* }

        impl Op {
            /// The instruction's encoding at a width; `INVALID` where there is none.
            pub(in super::super) fn code(self, width: Width) -> Code {
                match (self, width) {
                    $((Op::$name, Width::V512) => Code::$wide,)*
                    $((Op::$name, Width::V256) => Code::$narrow,)*
                    (_, Width::V128) => Code::INVALID,
                }
            }

            /// Its name in the table.
            #[cfg(test)]
            fn declared(self) -> &'static str {
                match self { $(Op::$name => stringify!($name),)* }
            }

            /// May its last register operand be a whole vector in memory?
            pub(in super::super) fn folds(self) -> bool {
                match self { $(Op::$name => $fold,)* }
            }
        }
    };
}

instructions! {
    // f32
    Add: EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vaddps_ymm_ymm_ymmm256, true;
    Sub: EVEX_Vsubps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vsubps_ymm_ymm_ymmm256, true;
    Mul: EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vmulps_ymm_ymm_ymmm256, true;
    Div: EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vdivps_ymm_ymm_ymmm256, true;
    Min: EVEX_Vminps_zmm_k1z_zmm_zmmm512b32_sae, VEX_Vminps_ymm_ymm_ymmm256, true;
    Max: EVEX_Vmaxps_zmm_k1z_zmm_zmmm512b32_sae, VEX_Vmaxps_ymm_ymm_ymmm256, true;
    Sqrt: EVEX_Vsqrtps_zmm_k1z_zmmm512b32_er, VEX_Vsqrtps_ymm_ymmm256, true;
    // tied: tied * b + c, and tied - b * c
    Fma: EVEX_Vfmadd213ps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vfmadd213ps_ymm_ymm_ymmm256, true;
    Fnma: EVEX_Vfnmadd231ps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vfnmadd231ps_ymm_ymm_ymmm256, true;
    // a * 2^floor(b)
    Scale: EVEX_Vscalefps_zmm_k1z_zmm_zmmm512b32_er, INVALID, true;
    Round: EVEX_Vrndscaleps_zmm_k1z_zmmm512b32_imm8_sae, VEX_Vroundps_ymm_ymmm256_imm8, false;
    // What rounding leaves: a - round(a)
    Reduce: EVEX_Vreduceps_zmm_k1z_zmmm512b32_imm8_sae, INVALID, false;
    // Comparisons, into a mask or a vector
    CompareF: EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae, VEX_Vcmpps_ymm_ymm_ymmm256_imm8, false;
    CompareI: EVEX_Vpcmpd_kr_k1_zmm_zmmm512b32_imm8, INVALID, false;
    EqualI: INVALID, VEX_Vpcmpeqd_ymm_ymm_ymmm256, true;
    GreaterI: INVALID, VEX_Vpcmpgtd_ymm_ymm_ymmm256, true;
    TestI: EVEX_Vptestmd_kr_k1_zmm_zmmm512b32, INVALID, false;
    // Bits
    And: EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32, VEX_Vpand_ymm_ymm_ymmm256, true;
    Or: EVEX_Vpord_zmm_k1z_zmm_zmmm512b32, VEX_Vpor_ymm_ymm_ymmm256, true;
    Xor: EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32, VEX_Vpxor_ymm_ymm_ymmm256, true;
    // !a & b
    AndNot: EVEX_Vpandnd_zmm_k1z_zmm_zmmm512b32, VEX_Vpandn_ymm_ymm_ymmm256, true;
    // i32
    AddI: EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32, VEX_Vpaddd_ymm_ymm_ymmm256, true;
    SubI: EVEX_Vpsubd_zmm_k1z_zmm_zmmm512b32, VEX_Vpsubd_ymm_ymm_ymmm256, true;
    MulI: EVEX_Vpmulld_zmm_k1z_zmm_zmmm512b32, VEX_Vpmulld_ymm_ymm_ymmm256, true;
    // Unsigned products of even lanes, 64 bits each; every odd lane in its place and the one before
    MulEven: EVEX_Vpmuludq_zmm_k1z_zmm_zmmm512b64, VEX_Vpmuludq_ymm_ymm_ymmm256, false;
    OddTwice: EVEX_Vmovshdup_zmm_k1z_zmmm512, VEX_Vmovshdup_ymm_ymmm256, false;
    MaxI: EVEX_Vpmaxsd_zmm_k1z_zmm_zmmm512b32, VEX_Vpmaxsd_ymm_ymm_ymmm256, true;
    MinI: EVEX_Vpminsd_zmm_k1z_zmm_zmmm512b32, VEX_Vpminsd_ymm_ymm_ymmm256, true;
    AbsI: EVEX_Vpabsd_zmm_k1z_zmmm512b32, VEX_Vpabsd_ymm_ymmm256, true;
    ShiftLeft: EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8, VEX_Vpslld_ymm_ymm_imm8, false;
    ShiftRight: EVEX_Vpsrld_zmm_k1z_zmmm512b32_imm8, VEX_Vpsrld_ymm_ymm_imm8, false;
    ShiftSigned: EVEX_Vpsrad_zmm_k1z_zmmm512b32_imm8, VEX_Vpsrad_ymm_ymm_imm8, false;
    ShiftLeft64: EVEX_Vpsllq_zmm_k1z_zmmm512b64_imm8, VEX_Vpsllq_ymm_ymm_imm8, false;
    ShiftRight64: EVEX_Vpsrlq_zmm_k1z_zmmm512b64_imm8, VEX_Vpsrlq_ymm_ymm_imm8, false;
    // Conversions
    FromInt: EVEX_Vcvtdq2ps_zmm_k1z_zmmm512b32_er, VEX_Vcvtdq2ps_ymm_ymmm256, true;
    Truncate: EVEX_Vcvttps2dq_zmm_k1z_zmmm512b32_sae, VEX_Vcvttps2dq_ymm_ymmm256, true;
    Nearest: EVEX_Vcvtps2dq_zmm_k1z_zmmm512b32_er, VEX_Vcvtps2dq_ymm_ymmm256, true;
    FromHalf: EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae, VEX_Vcvtph2ps_ymm_xmmm128, false;
    ToHalf: EVEX_Vcvtps2ph_ymmm256_k1z_zmm_imm8_sae, VEX_Vcvtps2ph_xmmm128_ymm_imm8, false;
    // Moves
    Copy: EVEX_Vmovaps_zmm_k1z_zmmm512, VEX_Vmovaps_ymm_ymmm256, false;
    Load: EVEX_Vmovups_zmm_k1z_zmmm512, VEX_Vmovups_ymm_ymmm256, false;
    Store: EVEX_Vmovups_zmmm512_k1z_zmm, VEX_Vmovups_ymmm256_ymm, false;
    StoreLow: EVEX_Vmovss_m32_k1_xmm, VEX_Vmovss_m32_xmm, false;
    MaskLoad: INVALID, VEX_Vmaskmovps_ymm_ymm_m256, false;
    MaskStore: INVALID, VEX_Vmaskmovps_m256_ymm_ymm, false;
    // mask ? b : a (at AVX2 the mask is the last operand)
    Blend: EVEX_Vblendmps_zmm_k1z_zmm_zmmm512b32, VEX_Vblendvps_ymm_ymm_ymmm256_ymm, false;
    // One element to all lanes: from memory, from a general register, from a vector's lane 0
    Spread: EVEX_Vbroadcastss_zmm_k1z_xmmm32, VEX_Vbroadcastss_ymm_m32, false;
    Spread16: EVEX_Vpbroadcastw_zmm_k1z_xmmm16, VEX_Vpbroadcastw_ymm_xmmm16, false;
    Spread8: EVEX_Vpbroadcastb_zmm_k1z_xmmm8, VEX_Vpbroadcastb_ymm_xmmm8, false;
    SpreadGeneral: EVEX_Vpbroadcastd_zmm_k1z_r32, INVALID, false;
    FromGeneral: INVALID, VEX_Vmovd_xmm_rm32, false;
    SpreadLow: INVALID, VEX_Vpbroadcastd_ymm_xmmm32, false;
    // Narrow memory
    Unsigned16: EVEX_Vpmovzxwd_zmm_k1z_ymmm256, VEX_Vpmovzxwd_ymm_xmmm128, false;
    Unsigned8: EVEX_Vpmovzxbd_zmm_k1z_xmmm128, VEX_Vpmovzxbd_ymm_xmmm64, false;
    Signed8: EVEX_Vpmovsxbd_zmm_k1z_xmmm128, VEX_Vpmovsxbd_ymm_xmmm64, false;
    Store16: EVEX_Vpmovdw_ymmm256_k1z_zmm, INVALID, false;
    // f32 rounded to half a vector of bf16 (AVX512-BF16); half a vector to memory
    Shorten: EVEX_Vcvtneps2bf16_ymm_k1z_zmmm512b32, INVALID, false;
    StoreShort: EVEX_Vmovdqu16_ymmm256_k1z_ymm, INVALID, false;
    Store8: EVEX_Vpmovdb_xmmm128_k1z_zmm, INVALID, false;
    // 128-bit parts exchanged; elements within each part exchanged
    Parts: EVEX_Vshuff32x4_zmm_k1z_zmm_zmmm512b32_imm8, VEX_Vperm2f128_ymm_ymm_ymmm256_imm8, false;
    Within: EVEX_Vpermilps_zmm_k1z_zmmm512b32_imm8, VEX_Vpermilps_ymm_ymmm256_imm8, false;
    // Masks
    MaskAnd: VEX_Kandw_kr_kr_kr, INVALID, false;
    MaskOr: VEX_Korw_kr_kr_kr, INVALID, false;
    MaskXor: VEX_Kxorw_kr_kr_kr, INVALID, false;
    MaskAndNot: VEX_Kandnw_kr_kr_kr, INVALID, false;
    MaskNot: VEX_Knotw_kr_kr, INVALID, false;
    MaskCopy: VEX_Kmovw_kr_km16, INVALID, false;
    MaskSpill: VEX_Kmovw_m16_kr, INVALID, false;
    MaskToVector: EVEX_Vpmovm2d_zmm_kr, INVALID, false;
    MaskFromVector: EVEX_Vpmovd2m_kr_zmm, INVALID, false;
    // General registers
    Mov: Mov_r64_rm64, Mov_r64_rm64, true;
    MovImm: Mov_rm64_imm32, Mov_rm64_imm32, false;
    Lea: Lea_r64_m, Lea_r64_m, false;
    // A line is fetched for writing
    Fetch: Prefetchw_m8, Prefetchw_m8, false;
    Spill: Mov_rm64_r64, Mov_rm64_r64, false;
    Plus: Add_r64_rm64, Add_r64_rm64, true;
    PlusImm: Add_rm64_imm32, Add_rm64_imm32, false;
    Times: Imul_r64_rm64, Imul_r64_rm64, true;
    TimesImm: Imul_r64_rm64_imm32, Imul_r64_rm64_imm32, false;
    AndImm: And_rm64_imm8, And_rm64_imm8, false;
    Compare: Cmp_r64_rm64, Cmp_r64_rm64, true;
    CompareImm: Cmp_rm64_imm32, Cmp_rm64_imm32, false;
    Get32: Mov_r32_rm32, Mov_r32_rm32, false;
    Get16: Movzx_r32_rm16, Movzx_r32_rm16, false;
    Get8: Movzx_r32_rm8, Movzx_r32_rm8, false;
    Put32: Mov_rm32_r32, Mov_rm32_r32, false;
    Put16: Mov_rm16_r16, Mov_rm16_r16, false;
    Put8: Mov_rm8_r8, Mov_rm8_r8, false;
}

impl Op {
    /// Name in the text form: `PlusImm` is `plus_imm`.
    #[cfg(test)]
    pub(in super::super) fn name(self) -> String {
        let mut name = String::new();
        for c in self.declared().chars() {
            if c.is_ascii_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(c.to_ascii_lowercase());
        }
        name
    }

    /// The class of its result; `None` where it writes memory, or flags, alone.
    #[cfg(test)]
    pub(in super::super) fn result(self, wide: bool) -> Option<Class> {
        match self {
            Op::Store | Op::StoreLow | Op::MaskStore | Op::Store16 | Op::StoreShort | Op::Store8 => None,
            Op::MaskSpill | Op::Spill | Op::Put32 | Op::Put16 | Op::Put8 | Op::Fetch | Op::Compare | Op::CompareImm => {
                None
            }
            Op::CompareF if !wide => Some(Class::Vector),
            Op::CompareF | Op::CompareI | Op::TestI | Op::MaskFromVector => Some(Class::Mask),
            Op::MaskAnd | Op::MaskOr | Op::MaskXor | Op::MaskAndNot | Op::MaskNot | Op::MaskCopy => Some(Class::Mask),
            Op::Mov | Op::MovImm | Op::Lea | Op::Plus | Op::PlusImm | Op::Times | Op::TimesImm | Op::AndImm => {
                Some(Class::General)
            }
            Op::Get32 | Op::Get16 | Op::Get8 => Some(Class::General),
            _ => Some(Class::Vector),
        }
    }

    /// The class of the registers that it reads, addresses and the mask of lanes aside.
    #[cfg(test)]
    pub(in super::super) fn operands(self) -> Class {
        match self {
            Op::MaskAnd | Op::MaskOr | Op::MaskXor | Op::MaskAndNot | Op::MaskNot => Class::Mask,
            Op::MaskCopy | Op::MaskSpill | Op::MaskToVector => Class::Mask,
            Op::Mov | Op::MovImm | Op::Lea | Op::Plus | Op::PlusImm | Op::Times | Op::TimesImm | Op::AndImm => {
                Class::General
            }
            Op::Spill | Op::Compare | Op::CompareImm | Op::SpreadGeneral | Op::FromGeneral => Class::General,
            Op::Put32 | Op::Put16 | Op::Put8 => Class::General,
            _ => Class::Vector,
        }
    }

    /// Is its result a register that it also reads, in the encoding? Such an operand is *tied*.
    #[cfg(test)]
    pub(in super::super) fn is_tied(self) -> bool {
        matches!(self, Op::Fma | Op::Fnma | Op::Plus | Op::PlusImm | Op::Times | Op::AndImm)
    }

    /// Is it a copy from register to register?
    pub(in super::super) fn is_copy(self) -> bool {
        matches!(self, Op::Copy | Op::Mov | Op::MaskCopy)
    }

    /// How much of its register an operand names; the result counts as operand 0.
    pub(in super::super) fn view(self, operand: usize) -> View {
        match (self, operand) {
            (Op::FromHalf | Op::Unsigned16 | Op::StoreShort, 1) => View::Half,
            (Op::ToHalf | Op::Shorten | Op::Get32 | Op::Get16 | Op::Get8, 0) => View::Half,
            (Op::SpreadGeneral | Op::FromGeneral | Op::Put32, 1) => View::Half,
            (Op::StoreLow, 1) | (Op::FromGeneral, 0) | (Op::SpreadLow, 1) | (Op::Put16, 1) => View::Low,
            (Op::Put8, 1) => View::Byte,
            _ => View::Full,
        }
    }

    /// Does exchanging its first two register sources leave the result?
    pub(in super::super) fn commutes(self) -> bool {
        matches!(self, Op::Add | Op::Mul | Op::And | Op::Or | Op::Xor | Op::AddI | Op::MulI | Op::MaxI | Op::MinI)
    }
}
