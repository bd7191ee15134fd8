//! The part of the descriptor that a variant for NVIDIA GPUs has: its PTX, and how each kernel is launched.
//!
//! A plan for a GPU is host code as every plan: it computes sizes, walks through loops and launches. Only a launch and a read
//! differ. It names a kernel by its place in [`CudaDesc::kernels`]; and all addresses that it is given are device memory, but
//! for the tables of addresses and for what is requested of taps, so an element is read through [`Read`].
//!
//! A PTX kernel's parameters are the words that the plan gives to the launch (dimensions, then buffers and indices), then the
//! address of the call's [`fault`], then its tensor maps.

use super::{ExprOp, PlanContext, Slice, Str};

/// What a variant for GPUs has besides its plans.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CudaDesc {
    /// Compute capability that a GPU must have at least: ten times the major number, and the minor one.
    pub capability: u64,
    /// 1 where no other capability will do: the code uses what only that generation has.
    pub only: u64,
    /// The lowest version of the driver that takes the PTX, as `cuDriverGetVersion` gives it.
    pub driver: u64,
    /// The PTX, which the driver compiles if it takes none of [`CudaDesc::cubins`].
    pub ptx: Str,
    /// The same as machine code.
    pub cubins: Slice<CubinDesc>,
    /// Kernels, in the order that plans number them.
    pub kernels: Slice<CudaKernelDesc>,
}

/// Machine code for one kind of GPU.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CubinDesc {
    /// Compute capability that it is for; it runs on those of the same major number, from this one on.
    pub capability: u64,
    /// The image, an ELF file.
    pub image: Slice<u8>,
}

/// How a kernel is launched.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CudaKernelDesc {
    /// Its name in the PTX.
    pub name: Str,
    /// Run-time dimensions, which come first among the words that the plan gives.
    pub symbols: u64,
    /// Buffers and indices, which follow them.
    pub params: u64,
    /// Threads of a block, along each axis.
    pub threads: [u64; 3],
    /// Blocks of the grid along each axis, over the kernel's dimensions. Of no axis: a block for each point of the launch.
    pub grid: Slice<GridAxis>,
    /// 1 where there are at most as many blocks as run at the same time, each of which does several points; 2 where these wait for each
    /// other too, so that the launch is cooperative.
    pub persistent: u64,
    /// Bytes of shared memory that the kernel declares.
    pub static_shared: u64,
    /// Bytes of shared memory that the launch gives each block besides.
    pub shared: u64,
    /// The tensor maps that it is given, in order.
    pub tensor_maps: Slice<TensorMapDesc>,
}

/// [`CudaKernelDesc::persistent`] of kernels whose blocks wait for each other.
pub const TOGETHER: u64 = 2;

/// An axis of a grid.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GridAxis {
    /// Blocks along it.
    pub extent: Slice<ExprOp>,
}

/// A tensor map of a kernel: what `cuTensorMapEncodeTiled` is told. Expressions are over the kernel's dimensions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TensorMapDesc {
    /// Which of the kernel's [`CudaKernelDesc::params`] it is a map of.
    pub param: u64,
    /// `CUtensorMapDataType`.
    pub elem: u64,
    /// `CUtensorMapSwizzle`.
    pub swizzle: u64,
    /// Its axes, the fastest first.
    pub axes: Slice<TensorMapAxis>,
}

/// An axis of a tensor map.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TensorMapAxis {
    /// Elements along it.
    pub extent: Slice<ExprOp>,
    /// Bytes from one element to the next; not looked at for the first axis, whose elements follow each other.
    pub stride: Slice<ExprOp>,
    /// Elements of a box along it.
    pub part: u64,
    /// Elements from one of a box to the next, 1 or more.
    pub step: u64,
}

/// Axes that a tensor map may have.
pub const MOST_AXES: usize = 5;

/// Words that a launch may be given.
pub const MOST_WORDS: usize = 256;

/// Copies an element out of the GPU's memory, once all that was launched before is done: `bytes` bytes from `from` to `to`. 0, or
/// non-zero once something has failed; the plan then returns that at once.
pub type Read = unsafe extern "C" fn(ctx: *mut PlanContext, from: *const u8, bytes: i64, to: *mut u8) -> i32;

/// The words of device memory that a kernel reports an index out of range in, and that blocks of a grid meet by; all are 0 where none did.
pub mod fault {
    /// Index in [`ModelDesc::sites`](super::super::ModelDesc::sites), and 1. Whoever changes it from 0 writes the others.
    pub const SITE: usize = 0;
    /// The index.
    pub const INDEX: usize = 1;
    /// What it must be below.
    pub const BOUND: usize = 2;
    /// Arrivals at barriers of the grid: 0 between launches.
    pub const ARRIVALS: usize = 4;
    /// Blocks that have ended, of a launch whose blocks meet: 0 between launches.
    pub const ENDED: usize = 5;
    /// How many words there are.
    pub const WORDS: usize = 6;
    /// And bytes.
    pub const BYTES: u64 = WORDS as u64 * 8;
}

const _: () = {
    use core::mem::size_of;
    assert!(size_of::<CudaDesc>() == 72);
    assert!(size_of::<CubinDesc>() == 24);
    assert!(size_of::<CudaKernelDesc>() == 112);
    assert!(size_of::<TensorMapDesc>() == 40);
    assert!(size_of::<TensorMapAxis>() == 48);
    assert!(size_of::<GridAxis>() == 16);
};
