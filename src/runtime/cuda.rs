//! What a variant for NVIDIA GPUs adds to the descriptor: PTX, and how its kernels are launched.
//!
//! In: values that `codegen` fills. Out: the same, for `cuda_rows.rs` to write. It must not know how the kernels were made.

use super::expr::Expr;

/// The GPU part of a variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cuda {
    /// The lowest compute capability that it runs on, ten times the major number and the minor one.
    pub capability: u64,
    /// Does it run on that capability alone?
    pub only: bool,
    /// The lowest version of the driver that takes the PTX, as `cuDriverGetVersion` gives it.
    pub driver: u64,
    /// The PTX.
    pub ptx: String,
    /// The same as machine code, for some GPUs.
    pub cubins: Vec<Cubin>,
    /// Kernels, in the order that plans number them.
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

/// How many blocks a launch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// One for each point.
    ForEachPoint,
    /// At most as many as run at the same time, each of which does several points.
    AtATime,
    /// As many, which wait for each other.
    Together,
}

/// How a kernel is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Name in the PTX.
    pub name: String,
    /// How many run-time dimensions it is passed.
    pub symbols: usize,
    /// How many buffers and indices follow them.
    pub params: usize,
    /// Extents of a block.
    pub threads: [u32; 3],
    /// Blocks along each axis of the grid, over its dimensions; none: one for each point of the launch.
    pub grid: Vec<Expr>,
    /// How many blocks there are, where the grid says nothing.
    pub blocks: Blocks,
    /// Bytes of shared memory that it declares.
    pub static_shared: u32,
    /// Bytes of shared memory that a launch adds.
    pub dynamic_shared: u32,
    /// Its tensor maps.
    pub tensor_maps: Vec<TensorMap>,
}

/// A tensor map; numbers as `cuTensorMapEncodeTiled` takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// Which of the kernel's buffers and indices it is of.
    pub param: usize,
    /// `CUtensorMapDataType`.
    pub elem: u64,
    /// `CUtensorMapSwizzle`.
    pub swizzle: u64,
    /// Its axes, the fastest first.
    pub axes: Vec<Axis>,
}

/// An axis of a tensor map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Elements.
    pub extent: Expr,
    /// Bytes between neighbours; not looked at for the first axis.
    pub stride: Expr,
    /// Elements of a box.
    pub part: u32,
    /// Of how many elements one is taken.
    pub step: u32,
}
