//! The instructions, declared once (the columns are explained in `table`).
//!
//! All modifiers are explicit: `add.rn.f32`, not `add.f32`, which the assembler may contract to an
//! FMA. An opcode has one spelling; accesses name their state space, atomic operations their
//! ordering and scope.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::operand::{OperandKind, Slot};
use super::table::instructions;
use super::target::{Needs, Processors, Version};
use super::words::{
    Atomic, Cluster, Columns, Compare, Fence, Ftz, Funnel, Half, Hint, Level, LoadCache, Matrices, MaxReg, Mma,
    Multicast, Nan, Ordering, Prefetch, Property, Rank, Read, ReadOnly, Redux, Relu, Round, RoundInt, Sat, Scope,
    Shuffle, Space, StoreCache, Trans, Type, Vector, Vote, Wgmma, Word,
};
use Type::{B8, B16, B32, B64, Bf16, Bf16x2, F16, F16x2, F32, F64, Pred, S8, S16, S32, S64, Tf32, U8, U16, U32, U64};

const INTEGERS: &[Type] = &[U16, U32, U64, S16, S32, S64];
const BITS: &[Type] = &[B16, B32, B64];
const LOGIC: &[Type] = &[Pred, B16, B32, B64];
const WORDS: &[Type] = &[B32, B64];
const SHIFTED: &[Type] = &[B16, B32, B64, U16, U32, U64, S16, S32, S64];
const MOVED: &[Type] = &[Pred, B16, B32, U32, S32, B64, U64, S64, F32, F64];
const MEMORY: &[Type] = &[B8, U8, S8, B16, U16, S16, B32, U32, S32, F32, B64, U64, S64, F64];
const FLOATS: &[Type] = &[F32, F64, F16, F16x2, Bf16, Bf16x2];
const COMPARED: &[Type] = &[B16, B32, B64, U16, U32, U64, S16, S32, S64, F32, F64, F16, Bf16];
const ALL_INTEGERS: &[Type] = &[U8, U16, U32, U64, S8, S16, S32, S64];
const SHARED: Space = Space::Shared;
const GLOBAL: Space = Space::Global;
/// The mask of participating lanes.
const FULL: Slot = Slot::value("membermask", U32);

const BASE: Needs = Needs::BASE;
const HOPPER: Needs = Needs::from(7, 8, 90);
const HOPPER_8: Needs = Needs::from(8, 0, 90);
const WGMMA: Needs = Needs { version: Version(8, 0), processors: Processors::Alone(&[90]) };

fn d(ty: Type) -> Slot {
    Slot::out(ty)
}

fn a(ty: Type) -> Slot {
    Slot::value("a", ty)
}

fn b(ty: Type) -> Slot {
    Slot::value("b", ty)
}

fn c(ty: Type) -> Slot {
    Slot::value("c", ty)
}

/// The elements of a load or store: a register, or several in braces.
fn elements(n: u32, ty: Type) -> OperandKind {
    if n == 1 { OperandKind::Register(ty) } else { OperandKind::Vector(n, ty) }
}

/// The type twice as wide.
fn wide(ty: Type) -> Type {
    match ty {
        U16 => U32,
        S16 => S32,
        U32 => U64,
        _ => S64,
    }
}

fn is_half(ty: Type) -> bool {
    matches!(ty, F16 | F16x2)
}

fn is_brain(ty: Type) -> bool {
    matches!(ty, Bf16 | Bf16x2)
}

/// Is this combination of rounding, flushing and saturation legal for arithmetic of a type?
fn arithmetic(round: Round, ftz: Ftz, sat: Sat, ty: Type) -> bool {
    match ty {
        F32 => true,
        F64 => ftz == Ftz::Keep && sat == Sat::Wrap,
        F16 | F16x2 => round == Round::Nearest,
        _ => round == Round::Nearest && ftz == Ftz::Keep && sat == Sat::Wrap,
    }
}

/// `bf16` arithmetic other than `fma` came with Hopper.
fn brain_needs(ty: Type) -> Needs {
    Needs::when(is_brain(ty), HOPPER, BASE)
}

/// Is `.ftz` legal for this type?
fn flushes(ftz: Ftz, ty: Type) -> bool {
    ftz == Ftz::Keep || matches!(ty, F32 | F16 | F16x2)
}

fn compares(cmp: Compare, ftz: Ftz, ty: Type) -> bool {
    let is_float = matches!(ty, F32 | F64 | F16 | Bf16);
    let plain = match cmp {
        Compare::Eq | Compare::Ne => true,
        Compare::Lt | Compare::Le | Compare::Gt | Compare::Ge => is_float || ty.is_integer(),
        _ => is_float,
    };
    plain && (ftz == Ftz::Keep || matches!(ty, F32 | F16))
}

/// Can an integer of type `from` be out of the range of `to`?
fn narrows(to: Type, from: Type) -> bool {
    match (to.is_signed(), from.is_signed()) {
        (false, true) => true,
        (true, false) => to.bits() <= from.bits(),
        _ => to.bits() < from.bits(),
    }
}

/// Float conversions that round.
fn rounds(round: Round, ftz: Ftz, relu: Relu, to: Type, from: Type) -> bool {
    match (to, from) {
        (F32, F64) => relu == Relu::No,
        (F16, F64) => relu == Relu::No && ftz == Ftz::Keep,
        (F16, F32) => {
            let nearest = matches!(round, Round::Nearest | Round::Zero);
            if relu == Relu::Yes { nearest && ftz == Ftz::Keep } else { true }
        }
        (Bf16, F32) => matches!(round, Round::Nearest | Round::Zero) && ftz == Ftz::Keep,
        _ => false,
    }
}

fn atomic(op: Atomic, ty: Type) -> bool {
    match op {
        Atomic::Add => matches!(ty, U32 | S32 | U64 | F32 | F64),
        Atomic::Min | Atomic::Max => matches!(ty, U32 | S32 | U64 | S64),
        Atomic::And | Atomic::Or | Atomic::Xor | Atomic::Exchange => matches!(ty, B32 | B64),
        Atomic::Increment | Atomic::Decrement => ty == U32,
    }
}

fn scope_needs(scope: Scope) -> Needs {
    Needs::when(scope == Scope::Cluster, HOPPER, BASE)
}

/// The operands of `wgmma`: A from registers or by its descriptor.
fn wgmma(columns: Columns, kind: Wgmma, in_registers: bool) -> Vec<Slot> {
    let (ty, registers) = kind.d(columns);
    let a = if in_registers { OperandKind::Fragment(4, U32) } else { OperandKind::Register(U64) };
    let mut slots = vec![
        Slot::update("d", OperandKind::Fragment(registers, ty)),
        Slot::read("a", a),
        Slot::register("b-desc", U64),
        Slot::read("scale-d", OperandKind::Flag(Pred)),
    ];
    if kind.has_scales() {
        slots.extend([
            Slot::read("imm-scale-a", OperandKind::OneOf(&[-1, 1])),
            Slot::read("imm-scale-b", OperandKind::OneOf(&[-1, 1])),
        ]);
    }
    if kind.has_transposes() && !in_registers {
        slots.push(Slot::read("imm-trans-a", OperandKind::OneOf(&[0, 1])));
    }
    if kind.has_transposes() {
        slots.push(Slot::read("imm-trans-b", OperandKind::OneOf(&[0, 1])));
    }
    slots
}

/// 8 to 256 columns in steps of 8; above 32, integers have steps of 16, and 24 is also legal.
fn columns() -> Vec<Columns> {
    (1..=32).map(|n| Columns(8 * n)).collect()
}

fn has_columns(columns: Columns, kind: Wgmma) -> bool {
    kind != Wgmma::S32S8 || columns.0 <= 32 || columns.0.is_multiple_of(16)
}

/// Operands of a tensor copy into shared memory: destination, source, the mbarrier that counts its
/// bytes, optional modifiers.
fn box_load(rank: Rank, multicast: Multicast, hint: Hint) -> Vec<Slot> {
    let mut slots = vec![
        Slot::read("dstMem", OperandKind::Opaque(U32)),
        Slot::read("tensorMap", OperandKind::Tensor(rank.0)),
        Slot::read("mbar", OperandKind::Opaque(U32)),
    ];
    if multicast == Multicast::Many {
        slots.push(Slot::register("ctaMask", B16));
    }
    if hint == Hint::Policy {
        slots.push(Slot::register("cache-policy", U64));
    }
    slots
}

fn ranks() -> [Rank; 5] {
    [1, 2, 3, 4, 5].map(Rank)
}

instructions! {
    // Moving and converting.
    Mov { ty: Type = MOVED } ["mov" ty];
        [d(ty), Slot::read("a", OperandKind::Source(ty))]; BASE;
        "Data Movement and Conversion Instructions: mov", "A register from a register, a number, a special register or an address.";
    Pack { ty: Type = WORDS } ["mov" ty];
        [d(ty), Slot::read("a", OperandKind::Vector(2, if ty == B32 { B16 } else { B32 }))]; BASE;
        "Data Movement and Conversion Instructions: mov", "Two registers as one of twice the width, the first in the low half.";
    Unpack { ty: Type = WORDS } ["mov" ty];
        [Slot::write("d", OperandKind::Vector(2, if ty == B32 { B16 } else { B32 })), Slot::register("a", ty)]; BASE;
        "Data Movement and Conversion Instructions: mov", "The halves of a register, the low one first.";
    LdParam { ty: Type = MEMORY } ["ld.param" ty];
        [d(ty), Slot::at("a", Space::Param, ty.bytes())]; BASE;
        "Data Movement and Conversion Instructions: ld", "Reads a parameter of the kernel.";
    Ld { cache: LoadCache = LoadCache::ALL, vector: Vector = Vector::ALL, ty: Type = MEMORY } ["ld.global" cache vector ty]
        if vector.count() * ty.bits() <= 128;
        [Slot::write("d", elements(vector.count(), ty)), Slot::at("a", GLOBAL, vector.count() * ty.bytes())]; BASE;
        "Data Movement and Conversion Instructions: ld", "Reads global memory; 8 bits are extended, with the sign for signed types.";
    LdReadOnly { cache: ReadOnly = ReadOnly::ALL, vector: Vector = Vector::ALL, ty: Type = MEMORY } ["ld.global" cache vector ty]
        if vector.count() * ty.bits() <= 128;
        [Slot::write("d", elements(vector.count(), ty)), Slot::at("a", GLOBAL, vector.count() * ty.bytes())];
        Needs::when(cache == ReadOnly::NoAllocate, Needs::from(7, 4, 80), BASE);
        "Data Movement and Conversion Instructions: ld.global.nc", "Reads global memory that is not written while the kernel runs.";
    LdShared { vector: Vector = Vector::ALL, ty: Type = MEMORY } ["ld.shared" vector ty] if vector.count() * ty.bits() <= 128;
        [Slot::write("d", elements(vector.count(), ty)), Slot::at("a", SHARED, vector.count() * ty.bytes())]; BASE;
        "Data Movement and Conversion Instructions: ld", "Reads shared memory.";
    LdOrdered { order: Ordering = [Ordering::Relaxed, Ordering::Acquire], scope: Scope = Scope::ALL, space: Space = [GLOBAL, SHARED],
        ty: Type = [B32, U32, S32, F32, B64, U64] } ["ld" order scope space ty];
        [d(ty), Slot::at("a", space, ty.bytes())]; scope_needs(scope);
        "Data Movement and Conversion Instructions: ld", "Reads memory that other threads write concurrently; `acquire` synchronises with their earlier writes.";
    St { cache: StoreCache = StoreCache::ALL, vector: Vector = Vector::ALL, ty: Type = MEMORY } ["st.global" cache vector ty]
        if vector.count() * ty.bits() <= 128;
        [Slot::at("a", GLOBAL, vector.count() * ty.bytes()), Slot::read("b", elements(vector.count(), ty))]; BASE;
        "Data Movement and Conversion Instructions: st", "Writes global memory.";
    StShared { vector: Vector = Vector::ALL, ty: Type = MEMORY } ["st.shared" vector ty] if vector.count() * ty.bits() <= 128;
        [Slot::at("a", SHARED, vector.count() * ty.bytes()), Slot::read("b", elements(vector.count(), ty))]; BASE;
        "Data Movement and Conversion Instructions: st", "Writes shared memory.";
    StOrdered { order: Ordering = [Ordering::Relaxed, Ordering::Release], scope: Scope = Scope::ALL, space: Space = [GLOBAL, SHARED],
        ty: Type = [B32, U32, S32, F32, B64, U64] } ["st" order scope space ty];
        [Slot::at("a", space, ty.bytes()), Slot::register("b", ty)]; scope_needs(scope);
        "Data Movement and Conversion Instructions: st", "Writes memory that other threads read concurrently; `release` publishes earlier writes.";
    CvtaToGlobal {} ["cvta.to.global.u64"]; [d(U64), Slot::register("a", U64)]; BASE;
        "Data Movement and Conversion Instructions: cvta", "Converts a generic pointer argument to a global address.";
    CvtaParam {} ["cvta.param.u64"]; [d(U64), Slot::register("a", U64)]; Needs::from(7, 7, 80);
        "Data Movement and Conversion Instructions: cvta", "Converts the address of a parameter to a generic one, as used for tensor maps.";
    PrefetchGlobal { level: Level = Level::ALL } ["prefetch.global" level]; [Slot::read("a", OperandKind::Opaque(U64))]; BASE;
        "Data Movement and Conversion Instructions: prefetch", "Brings a line into a cache; it never affects results.";
    PrefetchTensorMap {} ["prefetch.tensormap"]; [Slot::read("a", OperandKind::Opaque(U64))]; HOPPER_8;
        "Data Movement and Conversion Instructions: prefetch", "Brings a tensor map into its cache.";
    CreatePolicyFirst {} ["createpolicy.fractional.L2::evict_first.b64"]; [d(U64), Slot::read("fraction", OperandKind::Fraction)]; Needs::from(7, 4, 80);
        "Data Movement and Conversion Instructions: createpolicy", "The L2 policy evict-first.";
    CreatePolicyLast {} ["createpolicy.fractional.L2::evict_last.b64"]; [d(U64), Slot::read("fraction", OperandKind::Fraction)]; Needs::from(7, 4, 80);
        "Data Movement and Conversion Instructions: createpolicy", "The L2 policy evict-last.";
    CvtInt { sat: Sat = Sat::ALL, to: Type = ALL_INTEGERS, from: Type = ALL_INTEGERS } ["cvt" sat to from]
        if to != from && (sat == Sat::Wrap || narrows(to, from));
        [d(to), Slot::register("a", from)]; BASE;
        "Data Movement and Conversion Instructions: cvt", "An integer as another: extended by its own sign, or cut off, or with `sat` the nearest.";
    CvtToFloat { round: Round = Round::ALL, to: Type = [F16, F32, F64], from: Type = ALL_INTEGERS } ["cvt" round to from];
        [d(to), Slot::register("a", from)]; BASE;
        "Data Movement and Conversion Instructions: cvt", "An integer as a float.";
    CvtToInt { round: RoundInt = RoundInt::ALL, ftz: Ftz = Ftz::ALL, to: Type = ALL_INTEGERS, from: Type = [F16, F32, F64] }
        ["cvt" round ftz to from] if ftz == Ftz::Keep || from == F32;
        [d(to), Slot::register("a", from)]; BASE;
        "Data Movement and Conversion Instructions: cvt", "A float as an integer, saturated; NaN is 0, or for 64 bits only the highest bit.";
    CvtRoundInt { round: RoundInt = RoundInt::ALL, ftz: Ftz = Ftz::ALL, ty: Type = [F16, F32, F64] } ["cvt" round ftz ty ty]
        if ftz == Ftz::Keep || ty == F32;
        [d(ty), Slot::register("a", ty)]; BASE;
        "Data Movement and Conversion Instructions: cvt", "A float rounded to an integer, still a float.";
    CvtNarrow { round: Round = Round::ALL, ftz: Ftz = Ftz::ALL, relu: Relu = Relu::ALL, to: Type = [F16, Bf16, F32], from: Type = [F32, F64] }
        ["cvt" round ftz relu to from] if rounds(round, ftz, relu, to, from);
        [d(to), Slot::register("a", from)]; BASE;
        "Data Movement and Conversion Instructions: cvt", "A float as a narrower one.";
    CvtWiden { ftz: Ftz = Ftz::ALL, to: Type = [F32, F64], from: Type = [F16, Bf16, F32] } ["cvt" ftz to from]
        if to != from && (ftz == Ftz::Keep || from == F32 || (to == F32 && from == F16)) && (from != Bf16 || to == F32);
        [d(to), Slot::register("a", from)]; Needs::when(from == Bf16, Needs::from(7, 1, 80), BASE);
        "Data Movement and Conversion Instructions: cvt", "A float as a wider one, the same number.";
    CvtPack { round: Round = [Round::Nearest, Round::Zero], relu: Relu = Relu::ALL, to: Type = [F16x2, Bf16x2] } ["cvt" round relu to ".f32"];
        [d(to), Slot::register("a", F32), Slot::register("b", F32)]; BASE;
        "Data Movement and Conversion Instructions: cvt", "Two floats narrowed into one register: `a` in the high half, `b` in the low one.";
    CvtTf32 {} ["cvt.rna.tf32.f32"]; [d(Tf32), Slot::register("a", F32)]; BASE;
        "Data Movement and Conversion Instructions: cvt", "A float with 10 bits behind the point, rounded to nearest, ties away from zero; the bits below are unspecified.";

    // Integers and bits.
    Add { sat: Sat = Sat::ALL, ty: Type = INTEGERS } ["add" sat ty] if sat == Sat::Wrap || ty == S32;
        [d(ty), a(ty), b(ty)]; BASE; "Integer Arithmetic Instructions: add", "The sum, modulo the width or saturated.";
    Sub { sat: Sat = Sat::ALL, ty: Type = INTEGERS } ["sub" sat ty] if sat == Sat::Wrap || ty == S32;
        [d(ty), a(ty), b(ty)]; BASE; "Integer Arithmetic Instructions: sub", "The difference, modulo the width or saturated.";
    Mul { half: Half = Half::ALL, ty: Type = INTEGERS } ["mul" half ty];
        [d(ty), a(ty), b(ty)]; BASE; "Integer Arithmetic Instructions: mul", "A half of the product.";
    MulWide { ty: Type = [U16, S16, U32, S32] } ["mul.wide" ty];
        [d(wide(ty)), a(ty), b(ty)]; BASE; "Integer Arithmetic Instructions: mul", "The whole product, twice as wide.";
    Mad { half: Half = Half::ALL, ty: Type = INTEGERS } ["mad" half ty];
        [d(ty), a(ty), b(ty), c(ty)]; BASE; "Integer Arithmetic Instructions: mad", "A half of the product plus `c`.";
    MadWide { ty: Type = [U16, S16, U32, S32] } ["mad.wide" ty];
        [d(wide(ty)), a(ty), b(ty), c(wide(ty))]; BASE; "Integer Arithmetic Instructions: mad", "The whole product plus `c`.";
    Div { ty: Type = INTEGERS } ["div" ty]; [d(ty), a(ty), b(ty)]; BASE;
        "Integer Arithmetic Instructions: div", "The quotient toward zero; by zero it is unspecified.";
    Rem { ty: Type = INTEGERS } ["rem" ty]; [d(ty), a(ty), b(ty)]; BASE;
        "Integer Arithmetic Instructions: rem", "The remainder, with the sign of `a`; by zero it is unspecified.";
    Abs { ty: Type = [S16, S32, S64] } ["abs" ty]; [d(ty), a(ty)]; BASE; "Integer Arithmetic Instructions: abs", "The absolute value.";
    Neg { ty: Type = [S16, S32, S64] } ["neg" ty]; [d(ty), a(ty)]; BASE; "Integer Arithmetic Instructions: neg", "The negative.";
    Min { ty: Type = INTEGERS } ["min" ty]; [d(ty), a(ty), b(ty)]; BASE; "Integer Arithmetic Instructions: min", "The lesser.";
    Max { ty: Type = INTEGERS } ["max" ty]; [d(ty), a(ty), b(ty)]; BASE; "Integer Arithmetic Instructions: max", "The greater.";
    Popc { ty: Type = WORDS } ["popc" ty]; [d(U32), a(ty)]; BASE; "Integer Arithmetic Instructions: popc", "The number of set bits.";
    Clz { ty: Type = WORDS } ["clz" ty]; [d(U32), a(ty)]; BASE; "Integer Arithmetic Instructions: clz", "The number of leading zeros.";
    Brev { ty: Type = WORDS } ["brev" ty]; [d(ty), a(ty)]; BASE; "Integer Arithmetic Instructions: brev", "The bits in reverse.";
    Bfe { ty: Type = [U32, U64, S32, S64] } ["bfe" ty]; [d(ty), a(ty), b(U32), c(U32)]; BASE;
        "Integer Arithmetic Instructions: bfe", "The `c` bits of `a` starting at bit `b`, extended.";
    Bfi { ty: Type = WORDS } ["bfi" ty]; [d(ty), a(ty), b(ty), c(U32), Slot::value("d", U32)]; BASE;
        "Integer Arithmetic Instructions: bfi", "`b` with the bit field starting at bit `c` replaced by the low bits of `a`.";
    Dp4a { at: Type = [U32, S32], bt: Type = [U32, S32] } ["dp4a" at bt];
        [d(if at == S32 || bt == S32 { S32 } else { U32 }), a(at), b(bt), c(if at == S32 || bt == S32 { S32 } else { U32 })]; BASE;
        "Integer Arithmetic Instructions: dp4a", "The dot product of four bytes each, plus `c`.";
    And { ty: Type = LOGIC } ["and" ty]; [d(ty), a(ty), b(ty)]; BASE; "Logic and Shift Instructions: and", "Bitwise and.";
    Or { ty: Type = LOGIC } ["or" ty]; [d(ty), a(ty), b(ty)]; BASE; "Logic and Shift Instructions: or", "Bitwise or.";
    Xor { ty: Type = LOGIC } ["xor" ty]; [d(ty), a(ty), b(ty)]; BASE; "Logic and Shift Instructions: xor", "Bitwise exclusive or.";
    Not { ty: Type = LOGIC } ["not" ty]; [d(ty), a(ty)]; BASE; "Logic and Shift Instructions: not", "Bitwise complement.";
    Shl { ty: Type = BITS } ["shl" ty]; [d(ty), a(ty), b(U32)]; BASE; "Logic and Shift Instructions: shl", "Shifted to the left; by the width or more it is 0.";
    Shr { ty: Type = SHIFTED } ["shr" ty]; [d(ty), a(ty), b(U32)]; BASE; "Logic and Shift Instructions: shr", "Shifted to the right, filled with the sign where the type has one.";
    ShfLeft { mode: Funnel = Funnel::ALL } ["shf.l" mode ".b32"]; [d(B32), a(B32), b(B32), c(U32)]; BASE;
        "Logic and Shift Instructions: shf", "The high half of `b` and `a` (64 bits, `a` low) shifted to the left.";
    ShfRight { mode: Funnel = Funnel::ALL } ["shf.r" mode ".b32"]; [d(B32), a(B32), b(B32), c(U32)]; BASE;
        "Logic and Shift Instructions: shf", "The low half of `b` and `a` shifted to the right.";
    Lop3 {} ["lop3.b32"]; [d(B32), a(B32), b(B32), c(B32), Slot::read("immLut", OperandKind::Number(0, 255, 1))]; BASE;
        "Logic and Shift Instructions: lop3", "Any function of three bits, by its table: its value for 0xF0, 0xCC, 0xAA.";
    Prmt {} ["prmt.b32"]; [d(B32), a(B32), b(B32), c(B32)]; BASE;
        "Data Movement and Conversion Instructions: prmt", "Four bytes of the eight of `b` and `a`, each chosen by 4 bits of `c`; the highest of them repeats the byte's sign.";

    // Floats.
    AddFloat { round: Round = Round::ALL, ftz: Ftz = Ftz::ALL, sat: Sat = Sat::ALL, ty: Type = FLOATS } ["add" round ftz sat ty]
        if arithmetic(round, ftz, sat, ty);
        [d(ty), a(ty), b(ty)]; brain_needs(ty); "Floating Point Instructions: add", "The rounded sum.";
    SubFloat { round: Round = Round::ALL, ftz: Ftz = Ftz::ALL, sat: Sat = Sat::ALL, ty: Type = FLOATS } ["sub" round ftz sat ty]
        if arithmetic(round, ftz, sat, ty);
        [d(ty), a(ty), b(ty)]; brain_needs(ty); "Floating Point Instructions: sub", "The rounded difference.";
    MulFloat { round: Round = Round::ALL, ftz: Ftz = Ftz::ALL, sat: Sat = Sat::ALL, ty: Type = FLOATS } ["mul" round ftz sat ty]
        if arithmetic(round, ftz, sat, ty);
        [d(ty), a(ty), b(ty)]; brain_needs(ty); "Floating Point Instructions: mul", "The rounded product.";
    Fma { round: Round = Round::ALL, ftz: Ftz = Ftz::ALL, sat: Sat = Sat::ALL, relu: Relu = Relu::ALL, ty: Type = FLOATS }
        ["fma" round ftz sat relu ty]
        if arithmetic(round, ftz, sat, ty) && (relu == Relu::No || (sat == Sat::Wrap && (is_half(ty) || is_brain(ty))));
        [d(ty), a(ty), b(ty), c(ty)]; BASE; "Floating Point Instructions: fma", "The product plus `c`, rounded once.";
    DivFloat { round: Round = Round::ALL, ftz: Ftz = Ftz::ALL, ty: Type = [F32, F64] } ["div" round ftz ty] if flushes(ftz, ty);
        [d(ty), a(ty), b(ty)]; BASE; "Floating Point Instructions: div", "The rounded quotient.";
    DivApprox { ftz: Ftz = Ftz::ALL } ["div.full" ftz ".f32"]; [d(F32), a(F32), b(F32)]; BASE;
        "Floating Point Instructions: div", "The quotient within 2 units in the last place, for all operands.";
    AbsFloat { ftz: Ftz = Ftz::ALL, ty: Type = FLOATS } ["abs" ftz ty] if flushes(ftz, ty); [d(ty), a(ty)]; BASE;
        "Floating Point Instructions: abs", "The absolute value.";
    NegFloat { ftz: Ftz = Ftz::ALL, ty: Type = FLOATS } ["neg" ftz ty] if flushes(ftz, ty); [d(ty), a(ty)]; BASE;
        "Floating Point Instructions: neg", "The negative.";
    MinFloat { ftz: Ftz = Ftz::ALL, nan: Nan = Nan::ALL, ty: Type = FLOATS } ["min" ftz nan ty] if flushes(ftz, ty) && (nan == Nan::Other || ty != F64);
        [d(ty), a(ty), b(ty)]; BASE; "Floating Point Instructions: min", "The lesser; -0 is less than +0.";
    MaxFloat { ftz: Ftz = Ftz::ALL, nan: Nan = Nan::ALL, ty: Type = FLOATS } ["max" ftz nan ty] if flushes(ftz, ty) && (nan == Nan::Other || ty != F64);
        [d(ty), a(ty), b(ty)]; BASE; "Floating Point Instructions: max", "The greater; +0 is greater than -0.";
    Rcp { round: Round = Round::ALL, ftz: Ftz = Ftz::ALL, ty: Type = [F32, F64] } ["rcp" round ftz ty] if flushes(ftz, ty);
        [d(ty), a(ty)]; BASE; "Floating Point Instructions: rcp", "The rounded reciprocal.";
    RcpApprox { ftz: Ftz = Ftz::ALL } ["rcp.approx" ftz ".f32"]; [d(F32), a(F32)]; BASE;
        "Floating Point Instructions: rcp", "The reciprocal within 1 unit in the last place.";
    Sqrt { round: Round = Round::ALL, ftz: Ftz = Ftz::ALL, ty: Type = [F32, F64] } ["sqrt" round ftz ty] if flushes(ftz, ty);
        [d(ty), a(ty)]; BASE; "Floating Point Instructions: sqrt", "The rounded square root.";
    SqrtApprox { ftz: Ftz = Ftz::ALL } ["sqrt.approx" ftz ".f32"]; [d(F32), a(F32)]; BASE;
        "Floating Point Instructions: sqrt", "The square root with a relative error of 2^-23.";
    RsqrtApprox { ftz: Ftz = Ftz::ALL } ["rsqrt.approx" ftz ".f32"]; [d(F32), a(F32)]; BASE;
        "Floating Point Instructions: rsqrt", "The reciprocal of the square root with a relative error of 2^-22.9.";
    SinApprox { ftz: Ftz = Ftz::ALL } ["sin.approx" ftz ".f32"]; [d(F32), a(F32)]; BASE;
        "Floating Point Instructions: sin", "The sine with an error of 2^-20.5 between -pi and pi.";
    CosApprox { ftz: Ftz = Ftz::ALL } ["cos.approx" ftz ".f32"]; [d(F32), a(F32)]; BASE;
        "Floating Point Instructions: cos", "The cosine with an error of 2^-20.5 between -pi and pi.";
    Lg2Approx { ftz: Ftz = Ftz::ALL } ["lg2.approx" ftz ".f32"]; [d(F32), a(F32)]; BASE;
        "Floating Point Instructions: lg2", "The logarithm to base 2, with an error of 2^-22 near 1, relative elsewhere.";
    Ex2Approx { ftz: Ftz = Ftz::ALL, ty: Type = [F32, F16, F16x2, Bf16, Bf16x2] } ["ex2.approx" ftz ty]
        if if is_brain(ty) { ftz == Ftz::Flush } else { ty == F32 || ftz == Ftz::Keep };
        [d(ty), Slot::register("a", ty)]; brain_needs(ty);
        "Floating Point Instructions: ex2", "2 to the power of `a`: f32 with 2 units in the last place and a relative error of 2^-22, f16 of 2^-9.9, bf16 of 2^-7.";
    TanhApprox { ty: Type = [F32, F16, F16x2, Bf16, Bf16x2] } ["tanh.approx" ty];
        [d(ty), Slot::register("a", ty)]; brain_needs(ty);
        "Floating Point Instructions: tanh", "The hyperbolic tangent: f32 with a relative error of 2^-11, f16 an error of 2^-10.987, bf16 2^-8.";
    CopySign { ty: Type = [F32, F64] } ["copysign" ty]; [d(ty), a(ty), b(ty)]; BASE;
        "Floating Point Instructions: copysign", "`b` with the sign of `a`.";
    TestFloat { property: Property = Property::ALL, ty: Type = [F32, F64] } ["testp" property ty]; [d(Pred), a(ty)]; BASE;
        "Floating Point Instructions: testp", "Is the float of this kind?";

    // Comparing and choosing.
    SetP { compare: Compare = Compare::ALL, ftz: Ftz = Ftz::ALL, ty: Type = COMPARED } ["setp" compare ftz ty] if compares(compare, ftz, ty);
        [d(Pred), a(ty), b(ty)]; brain_needs(ty); "Comparison and Selection Instructions: setp", "Does the comparison hold?";
    SelP { ty: Type = [B16, B32, B64, F32, F64] } ["selp" ty];
        [d(ty), a(ty), b(ty), Slot::register("c", Pred)]; BASE; "Comparison and Selection Instructions: selp", "`c ? a : b`";

    // Control.
    Bra {} ["bra"]; [Slot::read("tgt", OperandKind::Label)]; BASE; "Control Flow Instructions: bra", "Branches to the label.";
    BraUniform {} ["bra.uni"]; [Slot::read("tgt", OperandKind::Label)]; BASE; "Control Flow Instructions: bra",
        "Branches to the label; uniform for the active threads of the warp.";
    Ret {} ["ret"]; []; BASE; "Control Flow Instructions: ret", "Ends the thread.";
    Exit {} ["exit"]; []; BASE; "Control Flow Instructions: exit", "Ends the thread.";
    Trap {} ["trap"]; []; BASE; "Miscellaneous Instructions: trap", "Ends the launch with an error.";

    // Threads of a block.
    BarSync {} ["bar.sync"]; [Slot::read("a", OperandKind::Number(0, 15, 1)), Slot::read("b", OperandKind::Number(32, 1024, 32)).optional()]; BASE;
        "Parallel Synchronization and Communication Instructions: bar", "Waits until all threads of the block, or `b` of them, are at the barrier.";
    BarArrive {} ["bar.arrive"]; [Slot::read("a", OperandKind::Number(0, 15, 1)), Slot::read("b", OperandKind::Number(32, 1024, 32))]; BASE;
        "Parallel Synchronization and Communication Instructions: bar", "Arrives at the barrier without waiting.";
    BarAny {} ["bar.red.or.pred"];
        [d(Pred), Slot::read("a", OperandKind::Number(0, 15, 1)), Slot::read("b", OperandKind::Number(32, 1024, 32)), Slot::register("c", Pred)]; BASE;
        "Parallel Synchronization and Communication Instructions: bar", "Waits as `bar.sync` does; does `c` hold in any of the threads there?";
    BarWarp {} ["bar.warp.sync"]; [FULL]; BASE;
        "Parallel Synchronization and Communication Instructions: bar.warp.sync", "Waits for the lanes of the mask, and orders memory among them.";
    Fence { kind: Fence = Fence::ALL, scope: Scope = Scope::ALL } ["fence" kind scope]; []; scope_needs(scope);
        "Parallel Synchronization and Communication Instructions: fence", "Orders this thread's accesses for threads of the scope.";
    Shfl { mode: Shuffle = Shuffle::ALL } ["shfl.sync" mode ".b32"]; [d(B32), Slot::register("a", B32), b(U32), c(U32), FULL]; BASE;
        "Parallel Synchronization and Communication Instructions: shfl.sync", "The value of another lane.";
    ShflPred { mode: Shuffle = Shuffle::ALL } ["shfl.sync" mode ".b32"];
        [Slot::write("d|p", OperandKind::Pair(B32)), Slot::register("a", B32), b(U32), c(U32), FULL]; BASE;
        "Parallel Synchronization and Communication Instructions: shfl.sync", "The value of another lane, and whether there is one.";
    Vote { vote: Vote = Vote::ALL } ["vote.sync" vote ".pred"]; [d(Pred), Slot::register("a", Pred), FULL]; BASE;
        "Parallel Synchronization and Communication Instructions: vote.sync", "Do all, any, or equal lanes have the predicate?";
    Ballot {} ["vote.sync.ballot.b32"]; [d(U32), Slot::register("a", Pred), FULL]; BASE;
        "Parallel Synchronization and Communication Instructions: vote.sync", "The lanes that have the predicate.";
    ActiveMask {} ["activemask.b32"]; [d(U32)]; BASE;
        "Parallel Synchronization and Communication Instructions: activemask", "The mask of active lanes.";
    Redux { op: Redux = Redux::ALL, ty: Type = [U32, S32, B32] } ["redux.sync" op ty]
        if matches!(op, Redux::And | Redux::Or | Redux::Xor) == (ty == B32);
        [d(if ty == B32 { U32 } else { ty }), Slot::register("a", if ty == B32 { U32 } else { ty }), FULL]; BASE;
        "Parallel Synchronization and Communication Instructions: redux.sync", "The reduction over the lanes of the mask.";
    Elect {} ["elect.sync"]; [Slot::write("d|p", OperandKind::SunkPair(U32)), FULL]; HOPPER_8;
        "Parallel Synchronization and Communication Instructions: elect.sync", "One lane of the mask, and whether this is it.";
    Atom { order: Ordering = Ordering::ALL, scope: Scope = Scope::ALL, space: Space = [GLOBAL, SHARED], op: Atomic = Atomic::ALL,
        ty: Type = [U32, S32, B32, F32, U64, S64, B64, F64] } ["atom" order scope space op ty] if atomic(op, ty);
        [d(ty), Slot::at("a", space, ty.bytes()), b(ty)]; scope_needs(scope);
        "Parallel Synchronization and Communication Instructions: atom", "Updates memory atomically, and returns the old value.";
    Cas { order: Ordering = Ordering::ALL, scope: Scope = Scope::ALL, space: Space = [GLOBAL, SHARED], ty: Type = WORDS }
        ["atom" order scope space ".cas" ty];
        [d(ty), Slot::at("a", space, ty.bytes()), b(ty), c(ty)]; scope_needs(scope);
        "Parallel Synchronization and Communication Instructions: atom", "Compare-and-swap: writes `c` if the old value is `b`; returns the old value.";
    Red { order: Ordering = [Ordering::Relaxed, Ordering::Release], scope: Scope = Scope::ALL, space: Space = [GLOBAL, SHARED],
        op: Atomic = Atomic::ALL, ty: Type = [U32, S32, B32, F32, U64, S64, B64, F64] } ["red" order scope space op ty]
        if atomic(op, ty) && op != Atomic::Exchange;
        [Slot::at("a", space, ty.bytes()), b(ty)]; scope_needs(scope);
        "Parallel Synchronization and Communication Instructions: red", "Updates memory atomically.";

    // Asynchronous copies, and warp matrices.
    CpAsync { prefetch: Prefetch = Prefetch::ALL } ["cp.async.ca.shared.global" prefetch];
        [Slot::read("dst", OperandKind::Sized(SHARED, 2)), Slot::read("src", OperandKind::Sized(GLOBAL, 2)), Slot::read("cp-size", OperandKind::OneOf(&[4, 8, 16])),
            Slot::read("src-size", OperandKind::AtMost(2)).optional()];
        Needs::when(prefetch == Prefetch::Default, BASE, Needs::from(7, 4, 80));
        "Data Movement and Conversion Instructions: cp.async", "Copies bytes from global to shared memory; bytes past `src-size` become 0.";
    CpAsyncGlobal { prefetch: Prefetch = Prefetch::ALL } ["cp.async.cg.shared.global" prefetch];
        [Slot::read("dst", OperandKind::Sized(SHARED, 2)), Slot::read("src", OperandKind::Sized(GLOBAL, 2)), Slot::read("cp-size", OperandKind::OneOf(&[16])),
            Slot::read("src-size", OperandKind::AtMost(2)).optional()];
        Needs::when(prefetch == Prefetch::Default, BASE, Needs::from(7, 4, 80));
        "Data Movement and Conversion Instructions: cp.async", "The same bypassing L1, 16 bytes at a time.";
    CpCommit {} ["cp.async.commit_group"]; []; BASE;
        "Data Movement and Conversion Instructions: cp.async.commit_group", "Commits the thread's copies since the last group as a group.";
    CpWait {} ["cp.async.wait_group"]; [Slot::read("N", OperandKind::Number(0, 255, 1))]; BASE;
        "Data Movement and Conversion Instructions: cp.async.wait_group", "Waits until at most the last N groups of the thread are pending.";
    CpWaitAll {} ["cp.async.wait_all"]; []; BASE;
        "Data Movement and Conversion Instructions: cp.async.wait_group", "Waits for all copies of the thread.";
    LdMatrix { count: Matrices = Matrices::ALL, trans: Trans = Trans::ALL } ["ldmatrix.sync.aligned.m8n8" count trans ".shared.b16"];
        [Slot::write("r", OperandKind::Fragment(count.count(), U32)), Slot::at("p", SHARED, 16)]; BASE;
        "Warp Level Matrix Instructions: ldmatrix", "Loads 8x8 matrices of 16 bits; lanes supply row addresses, 8 lanes for each matrix.";
    StMatrix { count: Matrices = Matrices::ALL, trans: Trans = Trans::ALL } ["stmatrix.sync.aligned.m8n8" count trans ".shared.b16"];
        [Slot::at("p", SHARED, 16), Slot::read("r", OperandKind::Fragment(count.count(), U32))]; HOPPER;
        "Warp Level Matrix Instructions: stmatrix", "Stores 8x8 matrices; lanes supply row addresses.";
    Mma { kind: Mma = Mma::ALL } ["mma.sync.aligned" kind];
        [Slot::write("d", OperandKind::Fragment(kind.shape().d_registers(), kind.shape().d_type())),
            Slot::read("a", OperandKind::Fragment(kind.shape().a_registers(), U32)),
            Slot::read("b", OperandKind::Fragment(kind.shape().b_registers(), U32)),
            Slot::read("c", OperandKind::Fragment(kind.shape().d_registers(), kind.shape().d_type()))]; BASE;
        "Warp Level Matrix Instructions: mma", "D = A B + C over fragments that the lanes of a warp hold.";

    // Hopper: mbarriers, tensor copies, warpgroup matmuls.
    BarrierInit {} ["mbarrier.init.shared.b64"]; [Slot::at("addr", SHARED, 8), Slot::value("count", U32)]; BASE;
        "Parallel Synchronization and Communication Instructions: mbarrier.init", "Initialises an mbarrier that expects `count` arrivals.";
    BarrierInvalidate {} ["mbarrier.inval.shared.b64"]; [Slot::at("addr", SHARED, 8)]; BASE;
        "Parallel Synchronization and Communication Instructions: mbarrier.inval", "Invalidates an mbarrier, so that its memory can be reused.";
    BarrierArrive {} ["mbarrier.arrive.shared.b64"]; [Slot::write("state", OperandKind::Register(U64)), Slot::at("addr", SHARED, 8)]; BASE;
        "Parallel Synchronization and Communication Instructions: mbarrier.arrive", "Arrives; returns the phase.";
    BarrierArriveExpect {} ["mbarrier.arrive.expect_tx.shared.b64"];
        [Slot::write("state", OperandKind::Sunk(U64)), Slot::at("addr", SHARED, 8), Slot::value("tx-count", U32)]; HOPPER_8;
        "Parallel Synchronization and Communication Instructions: mbarrier.arrive", "Adds expected bytes, then arrives.";
    BarrierExpect {} ["mbarrier.expect_tx.relaxed.cta.shared.b64"]; [Slot::at("addr", SHARED, 8), Slot::value("tx-count", U32)]; HOPPER_8;
        "Parallel Synchronization and Communication Instructions: mbarrier.expect_tx", "Adds expected bytes.";
    BarrierArriveRemote {} ["mbarrier.arrive.release.cluster.shared::cluster.b64"];
        [Slot::write("state", OperandKind::Nothing), Slot::read("addr", OperandKind::Opaque(U32))]; HOPPER_8;
        "Parallel Synchronization and Communication Instructions: mbarrier.arrive", "Arrives at an mbarrier of any block of the cluster; returns no phase.";
    BarrierTryWait {} ["mbarrier.try_wait.parity.shared.b64"]; [d(Pred), Slot::at("addr", SHARED, 8), Slot::read("phaseParity", OperandKind::Flag(U32))]; HOPPER;
        "Parallel Synchronization and Communication Instructions: mbarrier.try_wait", "Waits for a limited time: is the phase of this parity complete?";
    BarrierTestWait {} ["mbarrier.test_wait.parity.shared.b64"]; [d(Pred), Slot::at("addr", SHARED, 8), Slot::read("phaseParity", OperandKind::Flag(U32))]; Needs::from(7, 1, 80);
        "Parallel Synchronization and Communication Instructions: mbarrier.test_wait", "Is the phase of this parity complete?";
    FenceBarrierInit {} ["fence.mbarrier_init.release.cluster"]; []; HOPPER_8;
        "Parallel Synchronization and Communication Instructions: fence", "Makes initialised mbarriers visible to the cluster.";
    FenceProxy {} ["fence.proxy.async"]; []; HOPPER_8;
        "Parallel Synchronization and Communication Instructions: fence", "Proxy fence: orders accesses of threads before `wgmma` and bulk copies.";
    FenceProxyShared { place: Cluster = Cluster::ALL } ["fence.proxy.async" place]; []; HOPPER_8;
        "Parallel Synchronization and Communication Instructions: fence", "The same for shared memory alone.";
    BoxLoad { rank: Rank = ranks(), multicast: Multicast = Multicast::ALL, hint: Hint = Hint::ALL }
        ["cp.async.bulk.tensor" rank ".shared::cluster.global.tile.mbarrier::complete_tx::bytes" multicast hint];
        box_load(rank, multicast, hint); HOPPER_8;
        "Data Movement and Conversion Instructions: cp.async.bulk.tensor", "Copies a box of a tensor to shared memory, and counts its bytes at a barrier.";
    BoxStore { rank: Rank = ranks() } ["cp.async.bulk.tensor" rank ".global.shared::cta.tile.bulk_group"];
        [Slot::read("tensorMap", OperandKind::Tensor(rank.0)), Slot::read("srcMem", OperandKind::Opaque(U32))]; HOPPER_8;
        "Data Movement and Conversion Instructions: cp.async.bulk.tensor", "Copies a box from shared memory to a tensor.";
    BoxAdd { rank: Rank = ranks() } ["cp.reduce.async.bulk.tensor" rank ".global.shared::cta.add.tile.bulk_group"];
        [Slot::read("tensorMap", OperandKind::Tensor(rank.0)), Slot::read("srcMem", OperandKind::Opaque(U32))]; HOPPER_8;
        "Data Movement and Conversion Instructions: cp.reduce.async.bulk.tensor", "Adds a box from shared memory to a tensor.";
    BulkLoad {} ["cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"];
        [Slot::read("dstMem", OperandKind::Opaque(U32)), Slot::read("srcMem", OperandKind::Opaque(U64)), Slot::read("size", OperandKind::Bytes16), Slot::read("mbar", OperandKind::Opaque(U32))]; HOPPER_8;
        "Data Movement and Conversion Instructions: cp.async.bulk", "Copies bytes to shared memory, a multiple of 16, and counts them at a barrier.";
    BulkStore {} ["cp.async.bulk.global.shared::cta.bulk_group"];
        [Slot::read("dstMem", OperandKind::Opaque(U64)), Slot::read("srcMem", OperandKind::Opaque(U32)), Slot::read("size", OperandKind::Bytes16)]; HOPPER_8;
        "Data Movement and Conversion Instructions: cp.async.bulk", "Copies bytes from shared to global memory.";
    BulkCommit {} ["cp.async.bulk.commit_group"]; []; HOPPER_8;
        "Data Movement and Conversion Instructions: cp.async.bulk.commit_group", "Commits the thread's bulk stores since the last group as a group.";
    BulkWait { read: Read = Read::ALL } ["cp.async.bulk.wait_group" read]; [Slot::read("N", OperandKind::Number(0, 255, 1))]; HOPPER_8;
        "Data Movement and Conversion Instructions: cp.async.bulk.wait_group", "Waits until at most the last N groups are pending.";
    WgmmaFence {} ["wgmma.fence.sync.aligned"]; []; WGMMA;
        "Asynchronous Warpgroup Level Matrix Instructions: wgmma.fence", "Orders register accesses before the following `wgmma`.";
    WgmmaCommit {} ["wgmma.commit_group.sync.aligned"]; []; WGMMA;
        "Asynchronous Warpgroup Level Matrix Instructions: wgmma.commit_group", "Commits the `wgmma` since the last group as a group.";
    WgmmaWait {} ["wgmma.wait_group.sync.aligned"]; [Slot::read("N", OperandKind::Number(0, 7, 1))]; WGMMA;
        "Asynchronous Warpgroup Level Matrix Instructions: wgmma.wait_group", "Waits until at most the last N groups are pending.";
    Wgmma { columns: Columns = columns(), kind: Wgmma = Wgmma::ALL }
        ["wgmma.mma_async.sync.aligned.m64n" columns (kind.depth()) kind] if has_columns(columns, kind);
        wgmma(columns, kind, false); WGMMA;
        "Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async", "D = A B + D, or A B, over four warps; both operands from shared memory.";
    WgmmaRegisters { columns: Columns = columns(), kind: Wgmma = Wgmma::ALL }
        ["wgmma.mma_async.sync.aligned.m64n" columns (kind.depth()) kind] if has_columns(columns, kind);
        wgmma(columns, kind, true); WGMMA;
        "Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async", "The same with A from registers.";
    SetMaxReg { action: MaxReg = MaxReg::ALL } ["setmaxnreg" action ".sync.aligned.u32"]; [Slot::read("imm-reg-count", OperandKind::Number(24, 256, 8))];
        Needs { version: Version(8, 0), processors: Processors::Alone(&[90, 100, 120]) };
        "Miscellaneous Instructions: setmaxnreg", "Sets the number of registers per thread of this warp.";
    ClusterArrive {} ["barrier.cluster.arrive.release.aligned"]; []; HOPPER_8;
        "Parallel Synchronization and Communication Instructions: barrier.cluster", "Arrives at the cluster's barrier.";
    ClusterWait {} ["barrier.cluster.wait.acquire.aligned"]; []; HOPPER_8;
        "Parallel Synchronization and Communication Instructions: barrier.cluster", "Waits for all threads of the cluster.";
    MapShared {} ["mapa.shared::cluster.u32"]; [d(U32), Slot::register("a", U32), b(U32)]; HOPPER;
        "Data Movement and Conversion Instructions: mapa", "The address in another block of the cluster that corresponds to `a`.";
    GridWait {} ["griddepcontrol.wait"]; []; HOPPER;
        "Miscellaneous Instructions: griddepcontrol", "Waits for prerequisite launches.";
    GridLaunch {} ["griddepcontrol.launch_dependents"]; []; HOPPER;
        "Miscellaneous Instructions: griddepcontrol", "Allows dependent launches to begin.";
}

impl Op {
    /// The legal opcodes with this text; several if operands distinguish them.
    pub fn named(text: &str) -> &'static [Op] {
        static NAMES: OnceLock<HashMap<String, Vec<Op>>> = OnceLock::new();
        let names = NAMES.get_or_init(|| {
            let mut names: HashMap<String, Vec<Op>> = HashMap::new();
            for op in Op::all() {
                names.entry(op.text()).or_default().push(*op);
            }
            names
        });
        names.get(text).map_or(&[], Vec::as_slice)
    }

    /// Is it in the list of legal opcodes?
    pub fn is_legal(self) -> bool {
        Op::named(&self.text()).contains(&self)
    }

    /// Does control never continue after it (if unguarded)?
    pub fn ends(self) -> bool {
        matches!(self, Op::Bra {} | Op::BraUniform {} | Op::Ret {} | Op::Exit {} | Op::Trap {})
    }
}
