//! The GPU part of a variant in the descriptor: PTX, and how its kernels are launched.
//!
//! In: values filled in by `codegen`. Out: the same, for `cuda_rows.rs` to serialise. It must not
//! know how the kernels were made.

use super::expr::Expr;

/// The kernels of a variant for GPUs, with their requirements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cuda {
    /// Minimum compute capability: ten times the major number plus the minor number.
    pub capability: u64,
    /// Whether it runs on that generation only.
    pub only: bool,
    /// Lowest driver version that supports the PTX, in the format of `cuDriverGetVersion`.
    pub driver: u64,
    /// The PTX.
    pub ptx: String,
    /// The same code as machine code, for some GPUs.
    pub cubins: Vec<Cubin>,
    /// Kernels, in the order of their numbers in plans.
    pub kernels: Vec<Kernel>,
}

/// Machine code for one kind of GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cubin {
    /// The compute capability that it was made for.
    pub capability: u64,
    /// The image.
    pub image: Vec<u8>,
}

/// Number of blocks of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// One per point.
    ForEachPoint,
    /// At most as many as run concurrently; each computes several points.
    AtATime,
    /// As before, and the blocks synchronise with each other.
    Together,
}

/// How a kernel is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Name in the PTX.
    pub name: String,
    /// Number of run-time dimensions, its first parameters.
    pub symbols: usize,
    /// Number of buffers and indices that follow.
    pub params: usize,
    /// Block dimensions.
    pub threads: [u32; 3],
    /// Number of blocks along each axis, over its dimensions; empty: see `blocks`.
    pub grid: Vec<Expr>,
    /// How many blocks there are if `grid` is empty.
    pub blocks: Blocks,
    /// Bytes of shared memory declared by the kernel.
    pub static_shared: u32,
    /// Bytes of dynamic shared memory per block.
    pub dynamic_shared: u32,
    /// Its tensor maps.
    pub tensor_maps: Vec<TensorMap>,
}

/// A tensor map, with the constants of `cuTensorMapEncodeTiled`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// Index among the kernel's buffers and indices.
    pub param: usize,
    /// `CUtensorMapDataType`.
    pub elem: u64,
    /// `CUtensorMapSwizzle`.
    pub swizzle: u64,
    /// Its axes, innermost first.
    pub axes: Vec<Axis>,
}

/// An axis of a tensor map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Number of elements.
    pub extent: Expr,
    /// Stride in bytes; ignored for the first axis.
    pub stride: Expr,
    /// Extent of a box.
    pub part: u32,
    /// Element stride within a box.
    pub step: u32,
}
