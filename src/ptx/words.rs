//! The modifiers that opcodes are made of: types, state spaces, rounding modes and others.
//!
//! Each is an enum whose variants know their text; a variant without text is the default. The table
//! in `op` defines legal combinations.

use std::fmt;

/// A modifier of an opcode.
pub trait Word {
    /// Writes it, with a leading dot.
    fn put(&self, out: &mut String);
}

impl Word for str {
    fn put(&self, out: &mut String) {
        out.push_str(self);
    }
}

/// Declares enums of modifiers: each variant with its text.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$mdoc:meta])* $member:ident $text:literal),* $(,)? })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$mdoc])* #[doc = concat!("`", $text, "`")] $member),* }

        impl $name {
            /// All variants, in the order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$member),*];

            /// The text in an opcode.
            pub const fn text(self) -> &'static str {
                match self { $($name::$member => $text),* }
            }
        }

        impl Word for $name {
            fn put(&self, out: &mut String) {
                out.push_str(self.text());
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.text())
            }
        }
    )* };
}

words! {
    /// The type of an instruction (PTX ISA, "Fundamental Types").
    Type {
        Pred ".pred",
        B8 ".b8", B16 ".b16", B32 ".b32", B64 ".b64",
        U8 ".u8", U16 ".u16", U32 ".u32", U64 ".u64",
        S8 ".s8", S16 ".s16", S32 ".s32", S64 ".s64",
        F16 ".f16", F16x2 ".f16x2", Bf16 ".bf16", Bf16x2 ".bf16x2", Tf32 ".tf32", F32 ".f32", F64 ".f64",
    }
    /// The declared type of a register. Integers are untyped bits: instructions determine the sign.
    RegType { Pred ".pred", B16 ".b16", B32 ".b32", B64 ".b64", F32 ".f32", F64 ".f64" }
    /// The state space of an access, always explicit: generic addresses are not used.
    Space {
        Global ".global", Shared ".shared",
        /// A kernel's parameters.
        Param ".param",
    }
    /// Rounding modes of floats.
    Round { Nearest ".rn", Zero ".rz", Down ".rm", Up ".rp" }
    /// Rounding modes from float to integer.
    RoundInt { Nearest ".rni", Zero ".rzi", Down ".rmi", Up ".rpi" }
    /// Are subnormal operands and results flushed to zeros of the same sign?
    Ftz { Keep "", Flush ".ftz" }
    /// Is a result clamped to the range of its type (floats: 0 to 1, NaN to 0)?
    Sat { Wrap "", Clamp ".sat" }
    /// Is a negative result (of `fma`, `cvt`) replaced by 0?
    Relu { No "", Yes ".relu" }
    /// Result of `min` and `max` if one operand is NaN: the other operand, or NaN.
    Nan { Other "", Nan ".NaN" }
    /// Half of a product.
    Half { Low ".lo", High ".hi" }
    /// Elements per access.
    Vector { One "", Two ".v2", Four ".v4" }
    /// Cache operators of loads.
    LoadCache {
        Default "", All ".ca", Global ".cg", Streaming ".cs", LastUse ".lu", Volatile ".cv",
    }
    /// Cache operators of `ld.global.nc`: treatment of the line in L1.
    ReadOnly { Default ".nc", All ".nc.ca", Global ".nc.cg", Streaming ".nc.cs", NoAllocate ".nc.L1::no_allocate" }
    /// Cache operators of stores.
    StoreCache { Default "", Back ".wb", Global ".cg", Streaming ".cs", Through ".wt" }
    /// Cache levels.
    Level { L1 ".L1", L2 ".L2" }
    /// Comparisons. For floats they are false if an operand is NaN, except that the `Unordered`
    /// ones are then true.
    Compare {
        Eq ".eq", Ne ".ne", Lt ".lt", Le ".le", Gt ".gt", Ge ".ge",
        EqUnordered ".equ", NeUnordered ".neu", LtUnordered ".ltu", LeUnordered ".leu", GtUnordered ".gtu",
        GeUnordered ".geu",
        /// Is neither a NaN?
        Number ".num",
        /// Is either a NaN?
        Unordered ".nan",
    }
    /// Properties tested by `testp`.
    Property {
        Finite ".finite", Infinite ".infinite", Number ".number", NotANumber ".notanumber", Normal ".normal",
        Subnormal ".subnormal",
    }
    /// Treatment of shift counts above 31 in a funnel shift.
    Funnel { Clamp ".clamp", Wrap ".wrap" }
    /// Source lanes of `shfl`.
    Shuffle { Up ".up", Down ".down", Butterfly ".bfly", Index ".idx" }
    /// Kinds of votes.
    Vote { All ".all", Any ".any", Uniform ".uni" }
    /// Reductions over lanes.
    Redux { Add ".add", Min ".min", Max ".max", And ".and", Or ".or", Xor ".xor" }
    /// Atomic operations.
    Atomic {
        Add ".add", Min ".min", Max ".max", And ".and", Or ".or", Xor ".xor", Increment ".inc", Decrement ".dec",
        Exchange ".exch",
    }
    /// Ordering of a synchronising access.
    Ordering {
        Relaxed ".relaxed", Acquire ".acquire", Release ".release", AcquireRelease ".acq_rel",
    }
    /// Scope of a synchronising access.
    Scope { Block ".cta", Cluster ".cluster", Gpu ".gpu", System ".sys" }
    /// Fences.
    Fence { AcquireRelease ".acq_rel", Sequential ".sc" }
    /// Number of 8x8 matrices per access.
    Matrices { One ".x1", Two ".x2", Four ".x4" }
    /// Are 8x8 matrices transposed when loaded or stored?
    Trans { No "", Yes ".trans" }
    /// L2 prefetch size of `cp.async`.
    Prefetch { Default "", Bytes64 ".L2::64B", Bytes128 ".L2::128B", Bytes256 ".L2::256B" }
    /// Shapes and types of `mma.sync`: A row-major, B column-major; the types of D, A, B and C.
    Mma {
        F32Bf16K16 ".m16n8k16.row.col.f32.bf16.bf16.f32",
        F32Bf16K8 ".m16n8k8.row.col.f32.bf16.bf16.f32",
        F32F16K16 ".m16n8k16.row.col.f32.f16.f16.f32",
        F32F16K8 ".m16n8k8.row.col.f32.f16.f16.f32",
        F16F16K16 ".m16n8k16.row.col.f16.f16.f16.f16",
        F32Tf32K8 ".m16n8k8.row.col.f32.tf32.tf32.f32",
        F32Tf32K4 ".m16n8k4.row.col.f32.tf32.tf32.f32",
        S32S8K32 ".m16n8k32.row.col.s32.s8.s8.s32",
        S32U8S8K32 ".m16n8k32.row.col.s32.u8.s8.s32",
        S32S8U8K32 ".m16n8k32.row.col.s32.s8.u8.s32",
        S32U8K32 ".m16n8k32.row.col.s32.u8.u8.s32",
        S32S8K16 ".m16n8k16.row.col.s32.s8.s8.s32",
    }
    /// Types of `wgmma` (D, A, B), with the depth of a step in the shape.
    Wgmma {
        F32Bf16 ".f32.bf16.bf16", F32F16 ".f32.f16.f16", F16F16 ".f16.f16.f16",
        F32Tf32 ".f32.tf32.tf32", S32S8 ".s32.s8.s8",
    }
    /// Direction of `setmaxnreg`.
    MaxReg { Increase ".inc", Decrease ".dec" }
    /// State space of a remote barrier or copy: this block, or any block of the cluster.
    Cluster { Block ".shared::cta", Cluster ".shared::cluster" }
    /// Is a copy multicast to several blocks of the cluster?
    Multicast { One "", Many ".multicast::cluster" }
    /// Does an access carry a cache policy?
    Hint { None "", Policy ".L2::cache_hint" }
    /// Does a wait only cover the reading of sources?
    Read { All "", Source ".read" }
}

impl Type {
    /// Size in bits; 1 for a predicate, which cannot be in memory.
    pub const fn bits(self) -> u32 {
        match self {
            Type::Pred => 1,
            Type::B8 | Type::U8 | Type::S8 => 8,
            Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::Bf16 => 16,
            Type::B32 | Type::U32 | Type::S32 | Type::F16x2 | Type::Bf16x2 | Type::Tf32 | Type::F32 => 32,
            Type::B64 | Type::U64 | Type::S64 | Type::F64 => 64,
        }
    }

    /// Size in bytes.
    pub const fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// Is it a signed integer?
    pub const fn is_signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }

    /// Is it a signed or unsigned integer?
    pub const fn is_integer(self) -> bool {
        self.is_signed() || matches!(self, Type::U8 | Type::U16 | Type::U32 | Type::U64)
    }

    /// May an operand of this type be a register of type `register`? Bit types match everything of
    /// their size, floats only themselves (PTX ISA, "Operand Type Checking"); 8-bit values are in
    /// the low bits of a wider register.
    pub const fn takes(self, register: RegType) -> bool {
        match self {
            Type::Pred => matches!(register, RegType::Pred),
            Type::B8 | Type::U8 | Type::S8 => matches!(register, RegType::B16 | RegType::B32),
            Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::Bf16 => matches!(register, RegType::B16),
            Type::U32 | Type::S32 | Type::F16x2 | Type::Bf16x2 | Type::Tf32 => matches!(register, RegType::B32),
            Type::B32 | Type::F32 => matches!(register, RegType::B32 | RegType::F32),
            Type::U64 | Type::S64 => matches!(register, RegType::B64),
            Type::B64 | Type::F64 => matches!(register, RegType::B64 | RegType::F64),
        }
    }
}

impl RegType {
    /// Size in bits.
    pub const fn bits(self) -> u32 {
        match self {
            RegType::Pred => 1,
            RegType::B16 => 16,
            RegType::B32 | RegType::F32 => 32,
            RegType::B64 | RegType::F64 => 64,
        }
    }

    /// The register type for values of a type.
    pub const fn for_type(ty: Type) -> RegType {
        match ty {
            Type::Pred => RegType::Pred,
            Type::F32 => RegType::F32,
            Type::F64 => RegType::F64,
            _ => match ty.bits() {
                8 | 16 => RegType::B16,
                32 => RegType::B32,
                _ => RegType::B64,
            },
        }
    }
}

impl Vector {
    /// 1, 2 or 4.
    pub const fn count(self) -> u32 {
        match self {
            Vector::One => 1,
            Vector::Two => 2,
            Vector::Four => 4,
        }
    }
}

impl Matrices {
    /// Number of matrices, and of registers.
    pub const fn count(self) -> u32 {
        match self {
            Matrices::One => 1,
            Matrices::Two => 2,
            Matrices::Four => 4,
        }
    }
}

/// The shape of an `mma.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmaShape {
    /// Columns of A, rows of B.
    pub k: u32,
    /// Element type of D and C.
    pub d: Type,
    /// Element type of A.
    pub a: Type,
    /// Element type of B.
    pub b: Type,
}

impl Mma {
    /// Its shape; all have 16 rows and 8 columns.
    pub const fn shape(self) -> MmaShape {
        let (k, d, a, b) = match self {
            Mma::F32Bf16K16 => (16, Type::F32, Type::Bf16, Type::Bf16),
            Mma::F32Bf16K8 => (8, Type::F32, Type::Bf16, Type::Bf16),
            Mma::F32F16K16 => (16, Type::F32, Type::F16, Type::F16),
            Mma::F32F16K8 => (8, Type::F32, Type::F16, Type::F16),
            Mma::F16F16K16 => (16, Type::F16, Type::F16, Type::F16),
            Mma::F32Tf32K8 => (8, Type::F32, Type::Tf32, Type::Tf32),
            Mma::F32Tf32K4 => (4, Type::F32, Type::Tf32, Type::Tf32),
            Mma::S32S8K32 => (32, Type::S32, Type::S8, Type::S8),
            Mma::S32U8S8K32 => (32, Type::S32, Type::U8, Type::S8),
            Mma::S32S8U8K32 => (32, Type::S32, Type::S8, Type::U8),
            Mma::S32U8K32 => (32, Type::S32, Type::U8, Type::U8),
            Mma::S32S8K16 => (16, Type::S32, Type::S8, Type::S8),
        };
        MmaShape { k, d, a, b }
    }
}

impl MmaShape {
    /// Registers of A: 16 x k elements over 32 lanes, packed in 32 bits.
    pub const fn a_registers(self) -> u32 {
        16 * self.k * self.a.bits() / 1024
    }

    /// Registers of B: k x 8 elements.
    pub const fn b_registers(self) -> u32 {
        8 * self.k * self.b.bits() / 1024
    }

    /// Registers of C and D: 16 x 8 elements.
    pub const fn d_registers(self) -> u32 {
        16 * 8 * self.d.bits() / 1024
    }

    /// The type of one register of C and D.
    pub const fn d_type(self) -> Type {
        match self.d {
            Type::F16 => Type::F16x2,
            other => other,
        }
    }
}

/// The columns of a `wgmma`: 8 to 256, a multiple of 8 (for integers above 32, of 16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Columns(pub u16);

impl Word for Columns {
    fn put(&self, out: &mut String) {
        out.push_str(&self.0.to_string());
    }
}

impl Wgmma {
    /// The depth of one instruction.
    pub const fn k(self) -> u32 {
        match self {
            Wgmma::F32Bf16 | Wgmma::F32F16 | Wgmma::F16F16 => 16,
            Wgmma::F32Tf32 => 8,
            Wgmma::S32S8 => 32,
        }
    }

    /// The depth, as text in a shape.
    pub const fn depth(self) -> &'static str {
        match self.k() {
            16 => "k16",
            8 => "k8",
            _ => "k32",
        }
    }

    /// The type of D's registers, and their number for a number of columns.
    pub const fn d(self, columns: Columns) -> (Type, u32) {
        match self {
            Wgmma::F16F16 => (Type::F16x2, columns.0 as u32 / 4),
            Wgmma::F32Bf16 | Wgmma::F32F16 | Wgmma::F32Tf32 => (Type::F32, columns.0 as u32 / 2),
            Wgmma::S32S8 => (Type::S32, columns.0 as u32 / 2),
        }
    }

    /// May an operand be transposed in shared memory?
    pub const fn has_transposes(self) -> bool {
        matches!(self, Wgmma::F32Bf16 | Wgmma::F32F16 | Wgmma::F16F16)
    }

    /// May operands be negated? Not for integers.
    pub const fn has_scales(self) -> bool {
        !matches!(self, Wgmma::S32S8)
    }
}

/// Rank of a tensor in a tensor copy, 1 to 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rank(pub u8);

impl Word for Rank {
    fn put(&self, out: &mut String) {
        out.push('.');
        out.push_str(&self.0.to_string());
        out.push('d');
    }
}
