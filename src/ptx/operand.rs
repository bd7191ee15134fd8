//! Operands: what an instruction is given, and what a row of the table says that it takes.

use std::fmt;

use super::words::{Space, Type};

/// A register of a kernel, by its place in `Kernel::registers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(pub u32);

/// An operand of an instruction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// `%x`
    Reg(Reg),
    /// `%x|%p`: two results; either may be missing.
    Pair(Option<Reg>, Option<Reg>),
    /// An integer. One that does not fit in 63 bits is written as the negative number of the same bits.
    Int(i64),
    /// `0f3F800000`: the bits of an `f32`.
    F32(u32),
    /// `0d3FF0000000000000`: the bits of an `f64`.
    F64(u64),
    /// `%tid.x`
    Special(Special),
    /// The address of a shared variable or parameter.
    Symbol(String),
    /// `[%x+4]`, `[tile+16]`
    Address(Address),
    /// `{%a, %b}`
    Vector(Vec<Reg>),
    /// `[%map, {%x, %y}]`: a box of a tensor by its map and coordinates.
    Tensor(Reg, Vec<Reg>),
    /// The target of a branch.
    Label(String),
    /// `_`: a result that nobody needs.
    Sink,
}

/// What an address counts from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Base {
    /// A register.
    Reg(Reg),
    /// A parameter or shared variable.
    Symbol(String),
}

/// A place in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// What it counts from.
    pub base: Base,
    /// Distance in bytes.
    pub offset: i32,
}

/// Which axis of a block or grid.
const AXES: [&str; 3] = [".x", ".y", ".z"];

/// Registers that the processor sets (PTX ISA, "Special Registers"). Those of three axes carry theirs: 0, 1 or 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Special {
    /// A thread's place in its block.
    Tid(u8),
    /// Extents of a block.
    Ntid(u8),
    /// A block's place in the grid.
    Ctaid(u8),
    /// Extents of the grid.
    Nctaid(u8),
    /// A cluster's place in the grid of clusters.
    Clusterid(u8),
    /// Number of a thread in its warp.
    Laneid,
    /// Number of a warp in its block; only a hint, as the language has it.
    Warpid,
    /// The bits of the lanes below this one.
    LanemaskLt,
    /// The bits of this lane and those below.
    LanemaskLe,
    /// The bit of this lane.
    LanemaskEq,
    /// The bits of this lane and those above.
    LanemaskGe,
    /// The bits of the lanes above.
    LanemaskGt,
    /// Bytes of shared memory that the launch adds.
    DynamicSmemSize,
    /// A block's number in its cluster.
    ClusterCtarank,
    /// Blocks of a cluster.
    ClusterNctarank,
    /// Number of the multiprocessor.
    Smid,
    /// Cycles that have passed.
    Clock64,
}

impl Special {
    /// All of them.
    pub fn all() -> Vec<Special> {
        let axes: [fn(u8) -> Special; 5] =
            [Special::Tid, Special::Ntid, Special::Ctaid, Special::Nctaid, Special::Clusterid];
        let mut all: Vec<Special> = axes.iter().flat_map(|make| (0..3).map(*make)).collect();
        all.extend([
            Special::Laneid,
            Special::Warpid,
            Special::LanemaskLt,
            Special::LanemaskLe,
            Special::LanemaskEq,
            Special::LanemaskGe,
            Special::LanemaskGt,
            Special::DynamicSmemSize,
            Special::ClusterCtarank,
            Special::ClusterNctarank,
            Special::Smid,
            Special::Clock64,
        ]);
        all
    }

    /// The type that it is read as.
    pub fn ty(self) -> Type {
        if self == Special::Clock64 { Type::U64 } else { Type::U32 }
    }

    /// Does it belong to clusters, which `sm_90` has?
    pub fn is_of_cluster(self) -> bool {
        matches!(self, Special::Clusterid(_) | Special::ClusterCtarank | Special::ClusterNctarank)
    }

    /// Its name without an axis, and the axis.
    fn parts(self) -> (&'static str, Option<u8>) {
        match self {
            Special::Tid(axis) => ("%tid", Some(axis)),
            Special::Ntid(axis) => ("%ntid", Some(axis)),
            Special::Ctaid(axis) => ("%ctaid", Some(axis)),
            Special::Nctaid(axis) => ("%nctaid", Some(axis)),
            Special::Clusterid(axis) => ("%clusterid", Some(axis)),
            Special::Laneid => ("%laneid", None),
            Special::Warpid => ("%warpid", None),
            Special::LanemaskLt => ("%lanemask_lt", None),
            Special::LanemaskLe => ("%lanemask_le", None),
            Special::LanemaskEq => ("%lanemask_eq", None),
            Special::LanemaskGe => ("%lanemask_ge", None),
            Special::LanemaskGt => ("%lanemask_gt", None),
            Special::DynamicSmemSize => ("%dynamic_smem_size", None),
            Special::ClusterCtarank => ("%cluster_ctarank", None),
            Special::ClusterNctarank => ("%cluster_nctarank", None),
            Special::Smid => ("%smid", None),
            Special::Clock64 => ("%clock64", None),
        }
    }
}

impl fmt::Display for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, axis) = self.parts();
        let axis = axis.map_or("", |axis| AXES[usize::from(axis.min(2))]);
        write!(f, "{name}{axis}")
    }
}

/// Names of registers that the language keeps for itself; those of kernels must differ.
pub const RESERVED: &[&str] = &[
    "%tid",
    "%ntid",
    "%laneid",
    "%warpid",
    "%nwarpid",
    "%ctaid",
    "%nctaid",
    "%smid",
    "%nsmid",
    "%gridid",
    "%is_explicit_cluster",
    "%clusterid",
    "%nclusterid",
    "%cluster_ctaid",
    "%cluster_nctaid",
    "%cluster_ctarank",
    "%cluster_nctarank",
    "%lanemask_eq",
    "%lanemask_le",
    "%lanemask_lt",
    "%lanemask_ge",
    "%lanemask_gt",
    "%clock",
    "%clock_hi",
    "%clock64",
    "%globaltimer",
    "%globaltimer_lo",
    "%globaltimer_hi",
    "%total_smem_size",
    "%aggr_smem_size",
    "%dynamic_smem_size",
    "%reserved_smem_offset_begin",
    "%reserved_smem_offset_end",
    "%reserved_smem_offset_cap",
    "%current_graph_exec",
];

/// Is an operand read, written, or both?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Read.
    Use,
    /// Written.
    Def,
    /// Read, then written.
    Both,
}

/// What an operand can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A register that takes the type.
    Register(Type),
    /// Such a register, or `_`.
    Sunk(Type),
    /// A register or a number.
    Value(Type),
    /// What `mov` reads: a register, a number, a special register, or the address of a variable.
    Source(Type),
    /// A register of the type, or 0 or 1.
    Flag(Type),
    /// A number of bytes: a register, or a multiple of 16.
    Bytes16,
    /// A number of bytes: a register, or at most the number that another operand (its place) is.
    AtMost(usize),
    /// The bits of an `f32` above 0, at most 1.
    Fraction,
    /// `_` alone.
    Nothing,
    /// So many registers in braces, all declared alike.
    Vector(u32, Type),
    /// So many registers in braces, a warp's share of a matrix; of exactly the type's kind.
    Fragment(u32, Type),
    /// A register of the type, and a predicate: `%x|%p`.
    Pair(Type),
    /// The same, where `_` may stand for the register.
    SunkPair(Type),
    /// A place in memory, with the bytes that are accessed there, which must be a multiple of their number.
    Address(Space, u32),
    /// A place in memory of which a number among the operands (its place) says how many bytes are accessed.
    Sized(Space, usize),
    /// An address in the memory of any block of the cluster, or of a tensor's map: 64 bits that are not followed.
    Opaque(Type),
    /// A box of a tensor with so many coordinates.
    Tensor(u8),
    /// A number from one to another, a multiple of the third.
    Number(i64, i64, i64),
    /// One of some numbers.
    OneOf(&'static [i64]),
    /// The target of a branch.
    Label,
}

/// What a row of the table says of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name in the language's description.
    pub name: &'static str,
    /// Read or written?
    pub role: Role,
    /// What it can be.
    pub kind: Kind,
    /// May it be left out, with everything behind it?
    pub optional: bool,
}

impl Slot {
    const fn new(name: &'static str, role: Role, kind: Kind) -> Slot {
        Slot { name, role, kind, optional: false }
    }

    /// The result.
    pub const fn out(ty: Type) -> Slot {
        Slot::new("d", Role::Def, Kind::Register(ty))
    }

    /// A register or number that is read.
    pub const fn value(name: &'static str, ty: Type) -> Slot {
        Slot::new(name, Role::Use, Kind::Value(ty))
    }

    /// A register that is read.
    pub const fn register(name: &'static str, ty: Type) -> Slot {
        Slot::new(name, Role::Use, Kind::Register(ty))
    }

    /// Something that is read.
    pub const fn read(name: &'static str, kind: Kind) -> Slot {
        Slot::new(name, Role::Use, kind)
    }

    /// Something that is written.
    pub const fn write(name: &'static str, kind: Kind) -> Slot {
        Slot::new(name, Role::Def, kind)
    }

    /// Something that is read and written.
    pub const fn update(name: &'static str, kind: Kind) -> Slot {
        Slot::new(name, Role::Both, kind)
    }

    /// A place in memory.
    pub const fn at(name: &'static str, space: Space, bytes: u32) -> Slot {
        Slot::new(name, Role::Use, Kind::Address(space, bytes))
    }

    /// The same, not required.
    pub const fn optional(self) -> Slot {
        Slot { optional: true, ..self }
    }
}
