//! The GPU part of the descriptor, for variants for NVIDIA GPUs: PTX, and how each kernel is
//! launched.
//!
//! A plan for a GPU is host code like any other: it computes sizes, runs loops and launches
//! kernels. Two things differ. A kernel is named by its index in [`CudaDesc::kernels`]; and all
//! addresses are in device memory, except for the tables of addresses and the requests of taps, so
//! elements are read through [`Read`].
//!
//! The parameters of a PTX kernel are the words passed to the launch (dimensions, then buffers and
//! indices), then the address of the call's [`fault`] words, then its tensor maps.

use super::{ExprOp, PlanContext, Slice, Str};

/// The data of a GPU variant besides its plans.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CudaDesc {
    /// Minimum compute capability of the GPU: ten times the major number plus the minor number.
    pub capability: u64,
    /// 1 if the code runs on that generation only, because it uses architecture-specific features.
    pub only: u64,
    /// Lowest driver version that supports the PTX, in the format of `cuDriverGetVersion`.
    pub driver: u64,
    /// The PTX, which the driver compiles if none of [`CudaDesc::cubins`] matches.
    pub ptx: Str,
    /// The same code as machine code.
    pub cubins: Slice<CubinDesc>,
    /// Kernels, in the order of their numbers in plans.
    pub kernels: Slice<CudaKernelDesc>,
}

/// Machine code for one kind of GPU.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CubinDesc {
    /// Its compute capability; it also runs on later ones of the same major number.
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
    /// Number of run-time dimensions, the first of the words passed by the plan.
    pub symbols: u64,
    /// Number of buffers and indices, which follow them.
    pub params: u64,
    /// Block dimensions.
    pub threads: [u64; 3],
    /// Number of blocks along each axis, over the kernel's dimensions. Empty: one block per point
    /// of the launch.
    pub grid: Slice<GridAxis>,
    /// 1 if there are at most as many blocks as run concurrently, each of which computes several
    /// points; 2 if these also synchronise with each other, so that the launch is cooperative.
    pub persistent: u64,
    /// Bytes of shared memory declared by the kernel.
    pub static_shared: u64,
    /// Bytes of dynamic shared memory per block.
    pub shared: u64,
    /// The tensor maps that are passed to it, in order.
    pub tensor_maps: Slice<TensorMapDesc>,
}

/// [`CudaKernelDesc::persistent`] of kernels whose blocks synchronise with each other.
pub const TOGETHER: u64 = 2;

/// An axis of a grid.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GridAxis {
    /// Number of blocks along it.
    pub extent: Slice<ExprOp>,
}

/// A tensor map of a kernel: the arguments of `cuTensorMapEncodeTiled`. Expressions are over the
/// kernel's dimensions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TensorMapDesc {
    /// Index among the kernel's [`CudaKernelDesc::params`].
    pub param: u64,
    /// `CUtensorMapDataType`.
    pub elem: u64,
    /// `CUtensorMapSwizzle`.
    pub swizzle: u64,
    /// Its axes, innermost first.
    pub axes: Slice<TensorMapAxis>,
}

/// An axis of a tensor map.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TensorMapAxis {
    /// Number of elements.
    pub extent: Slice<ExprOp>,
    /// Stride in bytes; ignored for the first axis, which is contiguous.
    pub stride: Slice<ExprOp>,
    /// Extent of a box.
    pub part: u64,
    /// Element stride within a box, at least 1.
    pub step: u64,
}

/// Maximum rank of a tensor map.
pub const MAX_AXES: usize = 5;

/// Maximum number of words passed to a launch.
pub const MAX_WORDS: usize = 256;

/// Copies an element from GPU memory, after all earlier launches have completed: `bytes` bytes from
/// `from` to `to`. Returns 0, or non-zero after a failure; the plan must then return that at once.
pub type Read = unsafe extern "C" fn(ctx: *mut PlanContext, from: *const u8, bytes: i64, to: *mut u8) -> i32;

/// Device memory words through which a kernel reports an index out of range, and for barriers over
/// a grid; initially 0.
pub mod fault {
    /// Index in [`ModelDesc::sites`](super::super::ModelDesc::sites), plus 1. The thread that
    /// changes it from 0 writes the others.
    pub const SITE: usize = 0;
    /// The index.
    pub const INDEX: usize = 1;
    /// The bound that it must be below.
    pub const BOUND: usize = 2;
    /// Arrivals at grid barriers; 0 between launches.
    pub const ARRIVALS: usize = 4;
    /// Blocks that have finished, in launches with grid barriers; 0 between launches.
    pub const ENDED: usize = 5;
    /// Number of words.
    pub const WORDS: usize = 6;
    /// Size in bytes.
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
