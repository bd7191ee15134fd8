//! Instructions over virtual registers.
//!
//! In: calls of [`Machine`]'s methods, from instruction selection. Out: a list of [`Item`]s for `allocate`, which gives
//! each virtual register a place. Registers are of three classes: vectors of the level's whole width, masks (at
//! AVX-512 only) and general registers of 64 bits. Loops are marked, so that what is live in one is live through all of it.
//! What this must not know: tiles.
//!
//! An instruction writes at most one register. Where it also reads what it writes (`FMA`, additions of general registers,
//! merging under a mask), it is *tied*. Constants are registers that are set once before everything else; the allocator
//! may leave them in memory and fold them into their uses.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::Code;

use crate::tile::{self, CpuLevel};

/// A virtual register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Reg(pub(super) u32);

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Class {
    /// A vector of the level's width.
    Vector,
    /// A bit for each lane.
    Mask,
    /// 64 bits.
    General,
}

/// Where code goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Label(pub(super) u32);

/// What an address starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// A general register.
    Reg(Reg),
    /// The words that the leaf was called with.
    Words,
    /// The frame on the stack.
    Frame,
    /// A constant; at AVX-512 one element, which the instruction spreads.
    Pool(u32),
}

/// A place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mem {
    /// From where.
    pub(super) base: Base,
    /// An index, and its scale.
    pub(super) index: Option<(Reg, u8)>,
    /// Bytes further.
    pub(super) offset: i32,
}

impl Mem {
    /// An address in a register.
    pub(super) fn at(base: Reg) -> Mem {
        Mem { base: Base::Reg(base), index: None, offset: 0 }
    }

    /// A word of the call.
    pub(super) fn word(n: usize) -> Mem {
        Mem { base: Base::Words, index: None, offset: i32::try_from(8 * n).unwrap_or(i32::MAX) }
    }

    /// So many bytes from the start of the frame.
    pub(super) fn frame(offset: i32) -> Mem {
        Mem { base: Base::Frame, index: None, offset }
    }

    /// So many bytes further.
    pub(super) fn plus(self, offset: i32) -> Mem {
        Mem { offset: self.offset.wrapping_add(offset), ..self }
    }

    /// An index register further.
    pub(super) fn indexed(self, index: Reg, scale: u8) -> Mem {
        Mem { index: Some((index, scale)), ..self }
    }

    /// The registers that it reads.
    pub(super) fn regs(&self) -> impl Iterator<Item = Reg> {
        let base = match self.base {
            Base::Reg(r) => Some(r),
            Base::Words | Base::Frame | Base::Pool(_) => None,
        };
        base.into_iter().chain(self.index.map(|(r, _)| r))
    }
}

/// An operand that is read (or, for a store, the place that is written).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    /// A register.
    Reg(Reg),
    /// Memory.
    Mem(Mem),
    /// A number.
    Imm(i32),
}

impl From<Reg> for Operand {
    fn from(r: Reg) -> Operand {
        Operand::Reg(r)
    }
}

impl From<Mem> for Operand {
    fn from(m: Mem) -> Operand {
        Operand::Mem(m)
    }
}

/// How much of a register an operand names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
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
        pub(super) enum Op { $($name,)* }

        impl Op {
            /// The instruction's encoding at a level; `INVALID` where there is none.
            pub(super) fn code(self, level: CpuLevel) -> Code {
                match (self, level) {
                    $((Op::$name, CpuLevel::Avx512 | CpuLevel::Avx512Bf16 | CpuLevel::Amx) => Code::$wide,)*
                    $((Op::$name, CpuLevel::Avx2 | CpuLevel::Avx2Vnni) => Code::$narrow,)*
                    (_, CpuLevel::Portable) => Code::INVALID,
                }
            }

            /// May its last register operand be a whole vector in memory?
            pub(super) fn folds(self) -> bool {
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
    /// How much of its register an operand names; the result counts as operand 0.
    pub(super) fn view(self, operand: usize) -> View {
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
    pub(super) fn commutes(self) -> bool {
        matches!(self, Op::Add | Op::Mul | Op::And | Op::Or | Op::Xor | Op::AddI | Op::MulI | Op::MaxI | Op::MinI)
    }
}

/// An instruction.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Inst {
    /// Which.
    pub(super) op: Op,
    /// What it writes.
    pub(super) dst: Option<Reg>,
    /// Does it read what it writes?
    pub(super) tied: bool,
    /// The other operands, in the order of the encoding.
    pub(super) srcs: Vec<Operand>,
    /// The lanes that it works on (AVX-512), and whether the others become zero.
    pub(super) mask: Option<(Reg, bool)>,
}

impl Inst {
    /// What it reads.
    pub(super) fn reads(&self) -> impl Iterator<Item = Reg> {
        let operands = self.srcs.iter().flat_map(|s| match s {
            Operand::Reg(r) => vec![*r],
            Operand::Mem(m) => m.regs().collect(),
            Operand::Imm(_) => Vec::new(),
        });
        operands.chain(self.mask.map(|m| m.0)).chain(self.dst.filter(|_| self.tied))
    }
}

/// When a jump is taken, after a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Signed less.
    Less,
    /// Signed greater or equal.
    GreaterEqual,
}

/// A piece of a function.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    /// An instruction.
    Inst(Inst),
    /// A place to jump to.
    Label(Label),
    /// A jump.
    Jump(When, Label),
    /// A loop begins: what is in it is done many times.
    Begin,
    /// The innermost loop ends.
    End,
    /// What follows is code of an operation of the tile IR, or of none.
    From(Option<tile::Inst>),
}

/// A constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Constant {
    /// The same 32 bits in every lane.
    Same(u32),
    /// 0, 1, 2, ..
    Count,
}

/// A function being made.
pub(super) struct Machine {
    /// Its level.
    pub(super) level: CpuLevel,
    /// Class of each register.
    pub(super) classes: Vec<Class>,
    /// What comes before everything else: constants.
    pub(super) prelude: Vec<Item>,
    /// The rest.
    pub(super) items: Vec<Item>,
    /// Constants, in order.
    pub(super) pool: Vec<Constant>,
    /// Which register holds which constant.
    pub(super) constants: BTreeMap<Reg, u32>,
    /// Bytes of the frame that are used for other than spills, a multiple of 64.
    pub(super) frame: i32,
    /// Registers whose lanes are `bf16` already, the lower halves zero.
    pub(super) short: BTreeSet<Reg>,
    /// Does one instruction round to `bf16`? It takes subnormals as 0.
    pub(super) shortens: bool,
    /// Of registers whose lanes it rounded, the half vectors that it made.
    pub(super) halves: BTreeMap<Reg, Reg>,
    /// What is wrong with a function of the library that was asked for: a mistake of ours.
    pub(super) wrong: Option<String>,
    labels: u32,
    known: BTreeMap<Constant, Reg>,
}

impl Machine {
    /// An empty function.
    pub(super) fn new(level: CpuLevel) -> Machine {
        Machine {
            level,
            classes: Vec::new(),
            prelude: Vec::new(),
            items: Vec::new(),
            pool: Vec::new(),
            constants: BTreeMap::new(),
            frame: 0,
            short: BTreeSet::new(),
            shortens: false,
            halves: BTreeMap::new(),
            wrong: None,
            labels: 0,
            known: BTreeMap::new(),
        }
    }

    /// Is this AVX-512?
    pub(super) fn wide(&self) -> bool {
        self.level == CpuLevel::Avx512
    }

    /// `f32` lanes of a vector.
    pub(super) fn lanes(&self) -> i64 {
        i64::from(self.level.lanes())
    }

    /// A new register.
    pub(super) fn reg(&mut self, class: Class) -> Reg {
        let r = Reg(u32::try_from(self.classes.len()).unwrap_or(u32::MAX));
        self.classes.push(class);
        r
    }

    /// A new label.
    pub(super) fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels)
    }

    /// Appends an instruction.
    pub(super) fn push(&mut self, inst: Inst) {
        self.items.push(Item::Inst(inst));
    }

    /// An instruction with a new register as its result.
    pub(super) fn make(&mut self, class: Class, op: Op, srcs: Vec<Operand>) -> Reg {
        let dst = self.reg(class);
        self.push(Inst { op, dst: Some(dst), tied: false, srcs, mask: None });
        dst
    }

    /// An instruction with a new vector as its result.
    pub(super) fn vector(&mut self, op: Op, srcs: Vec<Operand>) -> Reg {
        self.make(Class::Vector, op, srcs)
    }

    /// The same under a mask (AVX-512); other lanes are zero.
    pub(super) fn zeroed(&mut self, op: Op, mask: Reg, srcs: Vec<Operand>) -> Reg {
        let dst = self.reg(Class::Vector);
        self.push(Inst { op, dst: Some(dst), tied: false, srcs, mask: Some((mask, true)) });
        dst
    }

    /// An instruction on two vectors.
    pub(super) fn two(&mut self, op: Op, a: Reg, b: Reg) -> Reg {
        self.vector(op, vec![a.into(), b.into()])
    }

    /// An instruction that writes a register that is there already and, if `tied`, reads it.
    pub(super) fn set(&mut self, op: Op, dst: Reg, tied: bool, srcs: Vec<Operand>) {
        self.push(Inst { op, dst: Some(dst), tied, srcs, mask: None });
    }

    /// An instruction without a result.
    pub(super) fn effect(&mut self, op: Op, srcs: Vec<Operand>) {
        self.push(Inst { op, dst: None, tied: false, srcs, mask: None });
    }

    /// The register's value in a new register.
    pub(super) fn copy(&mut self, r: Reg) -> Reg {
        let class = self.class(r);
        let op = match class {
            Class::Vector => Op::Copy,
            Class::Mask => Op::MaskCopy,
            Class::General => Op::Mov,
        };
        self.make(class, op, vec![r.into()])
    }

    /// A register's class.
    pub(super) fn class(&self, r: Reg) -> Class {
        self.classes.get(r.0 as usize).copied().unwrap_or(Class::General)
    }

    /// A constant, which stays in its register (or in memory) through the function.
    pub(super) fn constant(&mut self, c: Constant) -> Reg {
        if let Some(r) = self.known.get(&c) {
            return *r;
        }
        let dst = self.reg(Class::Vector);
        let n = u32::try_from(self.pool.len()).unwrap_or(u32::MAX);
        let op = if c == Constant::Count { Op::Load } else { Op::Spread };
        let from = Mem { base: Base::Pool(n), index: None, offset: 0 };
        let inst = Inst { op, dst: Some(dst), tied: false, srcs: vec![from.into()], mask: None };
        self.prelude.push(Item::Inst(inst));
        if let Constant::Same(_) = c {
            self.constants.insert(dst, n);
        }
        self.pool.push(c.clone());
        self.known.insert(c, dst);
        dst
    }

    /// An `f32` in every lane.
    pub(super) fn float(&mut self, x: f32) -> Reg {
        self.constant(Constant::Same(x.to_bits()))
    }

    /// An `i32` in every lane.
    pub(super) fn int(&mut self, n: i32) -> Reg {
        self.constant(Constant::Same(n.cast_unsigned()))
    }

    /// A number in a general register.
    pub(super) fn number(&mut self, n: i32) -> Reg {
        self.make(Class::General, Op::MovImm, vec![Operand::Imm(n)])
    }

    /// Marks a place.
    pub(super) fn place(&mut self, l: Label) {
        self.items.push(Item::Label(l));
    }

    /// A jump, after a comparison.
    pub(super) fn jump(&mut self, when: When, to: Label) {
        self.items.push(Item::Jump(when, to));
    }

    /// Says whose code follows.
    pub(super) fn code_of(&mut self, inst: Option<tile::Inst>) {
        self.items.push(Item::From(inst));
    }

    /// Room in the frame, a multiple of 64 bytes.
    pub(super) fn room(&mut self, bytes: i32) -> i32 {
        let at = self.frame;
        self.frame += (bytes + 63) / 64 * 64;
        at
    }
}
