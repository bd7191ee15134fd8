//! The instructions: one table of names, operands, meanings and encodings.
//!
//! In: an operation and a width. Out: its encoding, the register classes and views of its operands.
//! `attnc list mir` shows the table. Must not know: instruction selection, allocation.

use iced_x86::Code;

use super::Class;
use crate::tile::Width;

/// The width at which an operand uses a register.
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

/// Kinds of operands and results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum OperandKind {
    /// A vector register.
    Vector,
    /// A mask register.
    Mask,
    /// A general register.
    General,
    /// A boolean for each lane: a mask register with AVX-512 (as an operand: the instruction's
    /// mask), a vector with AVX2.
    Lanes,
    /// A memory operand.
    Memory,
    /// An immediate.
    Number,
    /// A register shared with the result.
    Tied,
    /// No result register: writes memory or flags.
    Nothing,
}

impl OperandKind {
    /// The class of its registers; `None` where it has none, or that of the result.
    pub(in super::super) fn class(self, wide: bool) -> Option<Class> {
        match self {
            OperandKind::Vector => Some(Class::Vector),
            OperandKind::Mask => Some(Class::Mask),
            OperandKind::General => Some(Class::General),
            OperandKind::Lanes => Some(if wide { Class::Mask } else { Class::Vector }),
            OperandKind::Memory | OperandKind::Number | OperandKind::Tied | OperandKind::Nothing => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            OperandKind::Vector => "vector",
            OperandKind::Mask => "mask",
            OperandKind::General => "general",
            OperandKind::Lanes => "lanes",
            OperandKind::Memory => "memory",
            OperandKind::Number => "number",
            OperandKind::Tied => "tied",
            OperandKind::Nothing => "nothing",
        }
    }
}

/// Declares the instructions: name, operands, result, meaning of the result (`a` is the first
/// operand that is not tied), AVX-512 encoding, AVX2 encoding, may the last register operand be in
/// memory.
macro_rules! instructions {
    ($($name:ident($($takes:ident),*) -> $gives:ident, $meaning:literal: $wide:ident, $narrow:ident, $fold:literal;)*) => {
        /// An instruction; the table is in this file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the table describes them")]
        pub(in super::super) enum Op { $($name,)* }

        impl Op {
            /// Every instruction, in the order of the table.
            pub(in super::super) const ALL: &'static [Op] = &[$(Op::$name,)*];

            /// The instruction's encoding at a width; `INVALID` if it does not exist.
            pub(in super::super) fn code(self, width: Width) -> Code {
                match (self, width) {
                    $((Op::$name, Width::V512) => Code::$wide,)*
                    $((Op::$name, Width::V256) => Code::$narrow,)*
                    (_, Width::V128) => Code::INVALID,
                }
            }

            /// Its name in the table.
            fn declared(self) -> &'static str {
                match self { $(Op::$name => stringify!($name),)* }
            }

            /// Kinds of its operands and of its result.
            pub(in super::super) fn signature(self) -> (&'static [OperandKind], OperandKind) {
                match self { $(Op::$name => (&[$(OperandKind::$takes),*], OperandKind::$gives),)* }
            }

            /// One-line description of the result.
            pub(in super::super) fn meaning(self) -> &'static str {
                match self { $(Op::$name => $meaning,)* }
            }

            /// May its last register operand be a full vector in memory?
            pub(in super::super) fn folds(self) -> bool {
                match self { $(Op::$name => $fold,)* }
            }
        }
    };
}

instructions! {
    // f32
    Add(Vector, Vector) -> Vector, "a + b": EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vaddps_ymm_ymm_ymmm256, true;
    Sub(Vector, Vector) -> Vector, "a - b": EVEX_Vsubps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vsubps_ymm_ymm_ymmm256, true;
    Mul(Vector, Vector) -> Vector, "a * b": EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vmulps_ymm_ymm_ymmm256, true;
    Div(Vector, Vector) -> Vector, "a / b": EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vdivps_ymm_ymm_ymmm256, true;
    Min(Vector, Vector) -> Vector, "a if a < b, else b":
        EVEX_Vminps_zmm_k1z_zmm_zmmm512b32_sae, VEX_Vminps_ymm_ymm_ymmm256, true;
    Max(Vector, Vector) -> Vector, "a if a > b, else b":
        EVEX_Vmaxps_zmm_k1z_zmm_zmmm512b32_sae, VEX_Vmaxps_ymm_ymm_ymmm256, true;
    Sqrt(Vector) -> Vector, "square root": EVEX_Vsqrtps_zmm_k1z_zmmm512b32_er, VEX_Vsqrtps_ymm_ymmm256, true;
    Fma(Tied, Vector, Vector) -> Vector, "tied * a + b":
        EVEX_Vfmadd213ps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vfmadd213ps_ymm_ymm_ymmm256, true;
    Fnma(Tied, Vector, Vector) -> Vector, "tied - a * b":
        EVEX_Vfnmadd231ps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vfnmadd231ps_ymm_ymm_ymmm256, true;
    Scale(Vector, Vector) -> Vector, "a * 2^floor(b)": EVEX_Vscalefps_zmm_k1z_zmm_zmmm512b32_er, INVALID, true;
    Round(Vector, Number) -> Vector, "rounded to an integer, in the mode given by the number":
        EVEX_Vrndscaleps_zmm_k1z_zmmm512b32_imm8_sae, VEX_Vroundps_ymm_ymmm256_imm8, false;
    Reduce(Vector, Number) -> Vector, "remainder of rounding: a - round(a)":
        EVEX_Vreduceps_zmm_k1z_zmmm512b32_imm8_sae, INVALID, false;
    // Comparisons; with AVX2 the result is a vector with all bits of a lane set if true
    CompareF(Vector, Vector, Number) -> Lanes, "which f32 lanes satisfy the predicate given by the number":
        EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae, VEX_Vcmpps_ymm_ymm_ymmm256_imm8, false;
    CompareI(Vector, Vector, Number) -> Mask, "which i32 lanes satisfy the predicate given by the number":
        EVEX_Vpcmpd_kr_k1_zmm_zmmm512b32_imm8, INVALID, false;
    EqualI(Vector, Vector) -> Vector, "all bits of a lane set where i32 lanes are equal":
        INVALID, VEX_Vpcmpeqd_ymm_ymm_ymmm256, true;
    GreaterI(Vector, Vector) -> Vector, "all bits of a lane set where a > b as i32":
        INVALID, VEX_Vpcmpgtd_ymm_ymm_ymmm256, true;
    TestI(Vector, Vector) -> Mask, "which lanes of a & b are not 0": EVEX_Vptestmd_kr_k1_zmm_zmmm512b32, INVALID, false;
    // Bits
    And(Vector, Vector) -> Vector, "a & b": EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32, VEX_Vpand_ymm_ymm_ymmm256, true;
    Or(Vector, Vector) -> Vector, "a | b": EVEX_Vpord_zmm_k1z_zmm_zmmm512b32, VEX_Vpor_ymm_ymm_ymmm256, true;
    Xor(Vector, Vector) -> Vector, "bits that differ":
        EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32, VEX_Vpxor_ymm_ymm_ymmm256, true;
    AndNot(Vector, Vector) -> Vector, "!a & b": EVEX_Vpandnd_zmm_k1z_zmm_zmmm512b32, VEX_Vpandn_ymm_ymm_ymmm256, true;
    // i32
    AddI(Vector, Vector) -> Vector, "a + b as i32":
        EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32, VEX_Vpaddd_ymm_ymm_ymmm256, true;
    SubI(Vector, Vector) -> Vector, "a - b as i32":
        EVEX_Vpsubd_zmm_k1z_zmm_zmmm512b32, VEX_Vpsubd_ymm_ymm_ymmm256, true;
    MulI(Vector, Vector) -> Vector, "a * b as i32, the low 32 bits":
        EVEX_Vpmulld_zmm_k1z_zmm_zmmm512b32, VEX_Vpmulld_ymm_ymm_ymmm256, true;
    MulEven(Vector, Vector) -> Vector, "unsigned products of even lanes, 64 bits each":
        EVEX_Vpmuludq_zmm_k1z_zmm_zmmm512b64, VEX_Vpmuludq_ymm_ymm_ymmm256, false;
    OddTwice(Vector) -> Vector, "odd lanes, each also copied to the even lane before it":
        EVEX_Vmovshdup_zmm_k1z_zmmm512, VEX_Vmovshdup_ymm_ymmm256, false;
    MaxI(Vector, Vector) -> Vector, "the larger as i32":
        EVEX_Vpmaxsd_zmm_k1z_zmm_zmmm512b32, VEX_Vpmaxsd_ymm_ymm_ymmm256, true;
    MinI(Vector, Vector) -> Vector, "the smaller as i32":
        EVEX_Vpminsd_zmm_k1z_zmm_zmmm512b32, VEX_Vpminsd_ymm_ymm_ymmm256, true;
    AbsI(Vector) -> Vector, "magnitude as i32": EVEX_Vpabsd_zmm_k1z_zmmm512b32, VEX_Vpabsd_ymm_ymmm256, true;
    ShiftLeft(Vector, Number) -> Vector, "32-bit lanes shifted left":
        EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8, VEX_Vpslld_ymm_ymm_imm8, false;
    ShiftRight(Vector, Number) -> Vector, "32-bit lanes shifted right, zero-filled":
        EVEX_Vpsrld_zmm_k1z_zmmm512b32_imm8, VEX_Vpsrld_ymm_ymm_imm8, false;
    ShiftSigned(Vector, Number) -> Vector, "32-bit lanes shifted right, sign-filled":
        EVEX_Vpsrad_zmm_k1z_zmmm512b32_imm8, VEX_Vpsrad_ymm_ymm_imm8, false;
    ShiftLeft64(Vector, Number) -> Vector, "64-bit lanes shifted left":
        EVEX_Vpsllq_zmm_k1z_zmmm512b64_imm8, VEX_Vpsllq_ymm_ymm_imm8, false;
    ShiftRight64(Vector, Number) -> Vector, "64-bit lanes shifted right, zero-filled":
        EVEX_Vpsrlq_zmm_k1z_zmmm512b64_imm8, VEX_Vpsrlq_ymm_ymm_imm8, false;
    // Conversions
    FromInt(Vector) -> Vector, "i32 to f32": EVEX_Vcvtdq2ps_zmm_k1z_zmmm512b32_er, VEX_Vcvtdq2ps_ymm_ymmm256, true;
    Truncate(Vector) -> Vector, "f32 to i32, towards 0":
        EVEX_Vcvttps2dq_zmm_k1z_zmmm512b32_sae, VEX_Vcvttps2dq_ymm_ymmm256, true;
    Nearest(Vector) -> Vector, "f32 to i32, to nearest even":
        EVEX_Vcvtps2dq_zmm_k1z_zmmm512b32_er, VEX_Vcvtps2dq_ymm_ymmm256, true;
    FromHalf(Vector) -> Vector, "f16 in half a vector, or in memory, to f32":
        EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae, VEX_Vcvtph2ps_ymm_xmmm128, false;
    ToHalf(Vector, Number) -> Vector, "f32 to f16 in half a vector, or in memory":
        EVEX_Vcvtps2ph_ymmm256_k1z_zmm_imm8_sae, VEX_Vcvtps2ph_xmmm128_ymm_imm8, false;
    // Moves
    Copy(Vector) -> Vector, "the same vector": EVEX_Vmovaps_zmm_k1z_zmmm512, VEX_Vmovaps_ymm_ymmm256, false;
    Load(Memory) -> Vector, "a vector from memory": EVEX_Vmovups_zmm_k1z_zmmm512, VEX_Vmovups_ymm_ymmm256, false;
    Store(Memory, Vector) -> Nothing, "a vector to memory":
        EVEX_Vmovups_zmmm512_k1z_zmm, VEX_Vmovups_ymmm256_ymm, false;
    StoreLow(Memory, Vector) -> Nothing, "lane 0 to memory": EVEX_Vmovss_m32_k1_xmm, VEX_Vmovss_m32_xmm, false;
    MaskLoad(Vector, Memory) -> Vector, "the lanes of memory where the sign bit of a is set, else 0 (AVX2)":
        INVALID, VEX_Vmaskmovps_ymm_ymm_m256, false;
    MaskStore(Memory, Vector, Vector) -> Nothing, "the lanes of b to memory where the sign bit of a is set (AVX2)":
        INVALID, VEX_Vmaskmovps_m256_ymm_ymm, false;
    Blend(Vector, Vector, Lanes) -> Vector, "lanes of b where the mask is set, else of a":
        EVEX_Vblendmps_zmm_k1z_zmm_zmmm512b32, VEX_Vblendvps_ymm_ymm_ymmm256_ymm, false;
    // One element to all lanes
    Spread(Vector) -> Vector, "one 32-bit element, from memory or lane 0":
        EVEX_Vbroadcastss_zmm_k1z_xmmm32, VEX_Vbroadcastss_ymm_m32, false;
    Spread16(Vector) -> Vector, "one 16-bit element, from memory or lane 0":
        EVEX_Vpbroadcastw_zmm_k1z_xmmm16, VEX_Vpbroadcastw_ymm_xmmm16, false;
    Spread8(Vector) -> Vector, "one 8-bit element, from memory or lane 0":
        EVEX_Vpbroadcastb_zmm_k1z_xmmm8, VEX_Vpbroadcastb_ymm_xmmm8, false;
    SpreadGeneral(General) -> Vector, "the low 32 bits of a general register":
        EVEX_Vpbroadcastd_zmm_k1z_r32, INVALID, false;
    FromGeneral(General) -> Vector, "the low 32 bits of a general register to lane 0":
        INVALID, VEX_Vmovd_xmm_rm32, false;
    SpreadLow(Vector) -> Vector, "lane 0 to every lane": INVALID, VEX_Vpbroadcastd_ymm_xmmm32, false;
    // Narrow memory
    Unsigned16(Vector) -> Vector, "16-bit elements, zero-extended":
        EVEX_Vpmovzxwd_zmm_k1z_ymmm256, VEX_Vpmovzxwd_ymm_xmmm128, false;
    Unsigned8(Vector) -> Vector, "8-bit elements, zero-extended":
        EVEX_Vpmovzxbd_zmm_k1z_xmmm128, VEX_Vpmovzxbd_ymm_xmmm64, false;
    Signed8(Vector) -> Vector, "8-bit elements, sign-extended":
        EVEX_Vpmovsxbd_zmm_k1z_xmmm128, VEX_Vpmovsxbd_ymm_xmmm64, false;
    Store16(Memory, Vector) -> Nothing, "the low 16 bits of each lane to memory":
        EVEX_Vpmovdw_ymmm256_k1z_zmm, INVALID, false;
    Shorten(Vector) -> Vector, "f32 rounded to half a vector of bf16":
        EVEX_Vcvtneps2bf16_ymm_k1z_zmmm512b32, INVALID, false;
    StoreShort(Memory, Vector) -> Nothing, "half a vector to memory": EVEX_Vmovdqu16_ymmm256_k1z_ymm, INVALID, false;
    Store8(Memory, Vector) -> Nothing, "the low 8 bits of each lane to memory":
        EVEX_Vpmovdb_xmmm128_k1z_zmm, INVALID, false;
    // Lanes exchanged
    Parts(Vector, Vector, Number) -> Vector, "128-bit parts of a and b, chosen by the number":
        EVEX_Vshuff32x4_zmm_k1z_zmm_zmmm512b32_imm8, VEX_Vperm2f128_ymm_ymm_ymmm256_imm8, false;
    Within(Vector, Number) -> Vector, "elements within each 128-bit part, chosen by the number":
        EVEX_Vpermilps_zmm_k1z_zmmm512b32_imm8, VEX_Vpermilps_ymm_ymmm256_imm8, false;
    // Masks
    MaskAnd(Mask, Mask) -> Mask, "a & b": VEX_Kandw_kr_kr_kr, INVALID, false;
    MaskOr(Mask, Mask) -> Mask, "a | b": VEX_Korw_kr_kr_kr, INVALID, false;
    MaskXor(Mask, Mask) -> Mask, "bits that differ": VEX_Kxorw_kr_kr_kr, INVALID, false;
    MaskAndNot(Mask, Mask) -> Mask, "!a & b": VEX_Kandnw_kr_kr_kr, INVALID, false;
    MaskNot(Mask) -> Mask, "!a": VEX_Knotw_kr_kr, INVALID, false;
    MaskCopy(Mask) -> Mask, "the same mask, from a register or memory": VEX_Kmovw_kr_km16, INVALID, false;
    MaskSpill(Memory, Mask) -> Nothing, "a mask to memory": VEX_Kmovw_m16_kr, INVALID, false;
    MaskToVector(Mask) -> Vector, "all bits of a lane set where the mask is": EVEX_Vpmovm2d_zmm_kr, INVALID, false;
    MaskFromVector(Vector) -> Mask, "the sign bit of each lane": EVEX_Vpmovd2m_kr_zmm, INVALID, false;
    // General registers
    Mov(General) -> General, "the same 64 bits, from a register or memory": Mov_r64_rm64, Mov_r64_rm64, true;
    MovImm(Number) -> General, "a number": Mov_rm64_imm32, Mov_rm64_imm32, false;
    Lea(Memory) -> General, "an address": Lea_r64_m, Lea_r64_m, false;
    Fetch(Memory) -> Nothing, "prefetches a line for writing": Prefetchw_m8, Prefetchw_m8, false;
    Spill(Memory, General) -> Nothing, "64 bits to memory": Mov_rm64_r64, Mov_rm64_r64, false;
    Plus(Tied, General) -> General, "tied + a": Add_r64_rm64, Add_r64_rm64, true;
    PlusImm(Tied, Number) -> General, "tied + a number": Add_rm64_imm32, Add_rm64_imm32, false;
    Times(Tied, General) -> General, "tied * a": Imul_r64_rm64, Imul_r64_rm64, true;
    TimesImm(General, Number) -> General, "a * a number": Imul_r64_rm64_imm32, Imul_r64_rm64_imm32, false;
    AndImm(Tied, Number) -> General, "tied & a number": And_rm64_imm8, And_rm64_imm8, false;
    Compare(General, General) -> Nothing, "flags of a - b": Cmp_r64_rm64, Cmp_r64_rm64, true;
    CompareImm(General, Number) -> Nothing, "flags of a - a number": Cmp_rm64_imm32, Cmp_rm64_imm32, false;
    Get32(Memory) -> General, "32 bits from memory": Mov_r32_rm32, Mov_r32_rm32, false;
    Get16(Memory) -> General, "16 bits from memory, zero-extended": Movzx_r32_rm16, Movzx_r32_rm16, false;
    Get8(Memory) -> General, "8 bits from memory, zero-extended": Movzx_r32_rm8, Movzx_r32_rm8, false;
    Put32(Memory, General) -> Nothing, "the low 32 bits to memory": Mov_rm32_r32, Mov_rm32_r32, false;
    Put16(Memory, General) -> Nothing, "the low 16 bits to memory": Mov_rm16_r16, Mov_rm16_r16, false;
    Put8(Memory, General) -> Nothing, "the low 8 bits to memory": Mov_rm8_r8, Mov_rm8_r8, false;
}

impl Op {
    /// Name in the text form: `PlusImm` is `plus_imm`.
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

    /// Its name, operands and result: `fma tied, vector, vector -> vector`.
    pub(in super::super) fn form(self) -> String {
        let (takes, gives) = self.signature();
        let takes: Vec<&str> = takes.iter().map(|kind| kind.name()).collect();
        format!("{} {} -> {}", self.name(), takes.join(", "), gives.name())
    }

    /// The class of its result; `None` if it only writes memory or flags.
    pub(in super::super) fn result(self, wide: bool) -> Option<Class> {
        self.signature().1.class(wide)
    }

    /// Does the encoding overwrite an operand with the result? Such an operand is *tied*.
    pub(in super::super) fn is_tied(self) -> bool {
        self.signature().0.first() == Some(&OperandKind::Tied)
    }

    /// Is it a copy from register to register?
    pub(in super::super) fn is_copy(self) -> bool {
        matches!(self, Op::Copy | Op::Mov | Op::MaskCopy)
    }

    /// The width at which an operand uses its register; the result counts as operand 0.
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

    /// Is it commutative in its first two register sources?
    pub(in super::super) fn commutes(self) -> bool {
        matches!(self, Op::Add | Op::Mul | Op::And | Op::Or | Op::Xor | Op::AddI | Op::MulI | Op::MaxI | Op::MinI)
    }
}
