//! Operands of instructions, and the operand kinds that rows of the table declare.

use std::fmt;

use super::words::{Space, Type};

/// A register of a kernel, by its index in `Kernel::registers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(pub u32);

/// An operand of an instruction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// `%x`
    Reg(Reg),
    /// `%x|%p`: two results; either may be missing.
    Pair(Option<Reg>, Option<Reg>),
    /// An integer. A value of 2^63 or more is stored as the negative number with the same bits.
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
    /// `_`: an unused result.
    Sink,
}

/// Base of an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Base {
    /// A register that holds an address.
    Reg(Reg),
    /// A parameter or shared variable.
    Symbol(String),
}

/// A memory operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Register or symbol.
    pub base: Base,
    /// Distance in bytes.
    pub offset: i32,
}

/// Suffixes of the axes of a block or grid.
const AXES: [&str; 3] = [".x", ".y", ".z"];

/// Special registers (PTX ISA, "Special Registers"). The field is the axis: 0, 1 or 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Special {
    /// Index of the thread in its block.
    Tid(u8),
    /// Extents of a block.
    Ntid(u8),
    /// Index of the block in the grid.
    Ctaid(u8),
    /// Extents of the grid.
    Nctaid(u8),
    /// Index of the cluster in the grid of clusters.
    Clusterid(u8),
    /// Index of the thread in its warp.
    Laneid,
    /// Index of the warp in its block; only a hint according to the PTX ISA.
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
    /// Bytes of dynamic shared memory.
    DynamicSmemSize,
    /// Rank of the block in its cluster.
    ClusterCtarank,
    /// Blocks of a cluster.
    ClusterNctarank,
    /// Index of the multiprocessor.
    Smid,
    /// A cycle counter.
    Clock64,
}

impl Special {
    /// All special registers, with every axis.
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

    /// The type of its value.
    pub fn ty(self) -> Type {
        if self == Special::Clock64 { Type::U64 } else { Type::U32 }
    }

    /// Is it specific to clusters, which need `sm_90`?
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

/// Reserved register names, which kernels must not declare.
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
    /// Only read.
    Use,
    /// Only written.
    Def,
    /// Read, then written.
    Both,
}

/// The operand kinds of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandKind {
    /// A register compatible with the type.
    Register(Type),
    /// Such a register, or `_`.
    Sunk(Type),
    /// A register or an immediate.
    Value(Type),
    /// The source of `mov`: a register, an immediate, a special register, or the address of a
    /// variable.
    Source(Type),
    /// A register of the type, or 0 or 1.
    Flag(Type),
    /// A number of bytes: a register, or a multiple of 16.
    Bytes16,
    /// A number of bytes: a register, or an immediate that is at most the operand at this index.
    AtMost(usize),
    /// The bits of an `f32` above 0, at most 1.
    Fraction,
    /// Only `_`.
    Nothing,
    /// This many registers in braces, all of the same declared type.
    Vector(u32, Type),
    /// This many registers in braces, a lane's fragment of a matrix; declared with exactly the
    /// type's register type.
    Fragment(u32, Type),
    /// A register of the type, and a predicate: `%x|%p`.
    Pair(Type),
    /// The same, where `_` may stand for the register.
    SunkPair(Type),
    /// A memory operand: state space, bytes accessed; the address must be a multiple of that
    /// number.
    Address(Space, u32),
    /// A memory operand whose size in bytes is the immediate operand at this index.
    Sized(Space, usize),
    /// An address in any block of the cluster, or of a tensor map: not checked further.
    Opaque(Type),
    /// A box of a tensor with this many coordinates.
    Tensor(u8),
    /// An immediate: minimum, maximum, and a number that must divide it.
    Number(i64, i64, i64),
    /// An immediate out of a list.
    OneOf(&'static [i64]),
    /// The target of a branch.
    Label,
}

/// Declaration of an operand in a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name in the PTX ISA.
    pub name: &'static str,
    /// How the instruction accesses it.
    pub role: Role,
    /// Which operands are allowed.
    pub kind: OperandKind,
    /// May it be omitted, with all operands after it?
    pub optional: bool,
}

impl Slot {
    const fn new(name: &'static str, role: Role, kind: OperandKind) -> Slot {
        Slot { name, role, kind, optional: false }
    }

    /// The result, a register of type `ty`.
    pub const fn out(ty: Type) -> Slot {
        Slot::new("d", Role::Def, OperandKind::Register(ty))
    }

    /// A register or immediate that is read.
    pub const fn value(name: &'static str, ty: Type) -> Slot {
        Slot::new(name, Role::Use, OperandKind::Value(ty))
    }

    /// A register that is read.
    pub const fn register(name: &'static str, ty: Type) -> Slot {
        Slot::new(name, Role::Use, OperandKind::Register(ty))
    }

    /// An operand that is read.
    pub const fn read(name: &'static str, kind: OperandKind) -> Slot {
        Slot::new(name, Role::Use, kind)
    }

    /// An operand that is written.
    pub const fn write(name: &'static str, kind: OperandKind) -> Slot {
        Slot::new(name, Role::Def, kind)
    }

    /// An operand that is read and written.
    pub const fn update(name: &'static str, kind: OperandKind) -> Slot {
        Slot::new(name, Role::Both, kind)
    }

    /// A memory operand.
    pub const fn at(name: &'static str, space: Space, bytes: u32) -> Slot {
        Slot::new(name, Role::Use, OperandKind::Address(space, bytes))
    }

    /// The same, optional.
    pub const fn optional(self) -> Slot {
        Slot { optional: true, ..self }
    }
}
