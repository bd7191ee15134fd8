//! Launch info of a kernel: threads, grid, shared memory, parameters, tensor maps.
//!
//! Filled in by code generation; used by the host runtime, the simulator and tests to launch a
//! kernel. Must not know: how a launch is made.
//!
//! # Parameters of a kernel
//!
//! In this order, each a `.param` of the PTX kernel:
//!
//! 1. a `u64` for each of [`KernelInfo::symbols`], the value of that run-time dimension;
//! 2. for each of [`KernelInfo::params`] a pointer to global memory, or an index as `u64`;
//! 3. `fault`, a pointer to six `u64` in global memory: `[0]` is 0, or after a failed index check
//!    the diagnostics site plus 1, set by compare-and-swap; `[1]` is then the index, `[2]` its
//!    bound. The failing block returns; others continue, in a cooperative grid up to the next
//!    barrier. `[4]` counts arrivals at barriers of the grid and `[5]` the blocks that have ended:
//!    both are 0 before a launch and after it;
//! 4. for each of [`KernelInfo::tensor_maps`] its 128 bytes.
//!
//! 1 and 2 are the same `u64`s that a plan passes to a CPU kernel, in the same order.

use crate::ptx::Swizzle;
use crate::shape::{Dim, Elem};
use crate::tile::{GpuOp, Kernel, Op};

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamInfo {
    /// A buffer in global memory.
    Buffer {
        /// Does the kernel read it?
        read: bool,
        /// Does the kernel write it?
        written: bool,
    },
    /// A 64-bit integer.
    Index,
}

/// Number of blocks of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grid {
    /// The product of `ceil(extent / step)` over the axes, along x; the kernel delinearises its
    /// block index, last axis fastest. No axes: one block. If the product is 0, nothing is
    /// launched.
    Axes(Vec<(Dim, i64)>),
    /// As many blocks along x as are resident at once, at most that product: each block processes
    /// points until none is left.
    Persistent(Vec<(Dim, i64)>),
    /// The same with blocks that wait for each other, so that all must be resident: a cooperative
    /// launch.
    Meeting(Vec<(Dim, i64)>),
    /// These extents along x, y and z.
    Extents([Dim; 3]),
}

impl Grid {
    /// The grid of a kernel: one block per point, or as many as are resident if the kernel reads
    /// the number of blocks, or launches other kernels.
    pub(super) fn for_kernel(kernel: &Kernel) -> Grid {
        let axes = kernel.grid.iter().map(|g| (g.extent.clone(), g.step)).collect();
        if kernel.is_persistent() {
            return Grid::Meeting(axes);
        }
        if kernel.body.insts().any(|(_, _, d)| d.op == Op::Gpu(GpuOp::Blocks)) {
            Grid::Persistent(axes)
        } else {
            Grid::Axes(axes)
        }
    }
}

/// A tensor map, which the host encodes before a launch (`cuTensorMapEncodeTiled`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMapInfo {
    /// Index in [`KernelInfo::params`] of the mapped buffer.
    pub param: usize,
    /// Type of its elements.
    pub elem: Elem,
    /// Its extents, the innermost first.
    pub extents: Vec<Dim>,
    /// Strides in bytes of all axes but the innermost, which is dense: one fewer than extents.
    pub byte_strides: Vec<Dim>,
    /// Extents of a box, the innermost first.
    pub boxes: Vec<u32>,
    /// Element strides of the traversal along each axis; usually all 1.
    pub element_strides: Vec<u32>,
    /// Layout of a box in shared memory.
    pub swizzle: Swizzle,
}

/// Everything that a launch needs besides the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelInfo {
    /// Its name in the PTX module.
    pub name: String,
    /// Its name in the tile IR.
    pub kernel: String,
    /// Run-time dimensions passed to it, in order.
    pub symbols: Vec<String>,
    /// The parameters after those, in order.
    pub params: Vec<ParamInfo>,
    /// Extents of a block.
    pub threads: [u32; 3],
    /// Grid size as a function of the dimensions.
    pub grid: Grid,
    /// Bytes of shared memory that its code declares.
    pub static_shared: u32,
    /// Bytes of dynamic shared memory. Above 48 KiB in total, a launch must opt in
    /// (`cuFuncSetAttribute`).
    pub dynamic_shared: u32,
    /// Maps of tensors, in order.
    pub tensor_maps: Vec<TensorMapInfo>,
    /// Extents of a cluster, if its blocks form clusters.
    pub cluster: Option<[u32; 3]>,
}

impl KernelInfo {
    /// Threads of a block.
    pub fn block_size(&self) -> u32 {
        self.threads.iter().product()
    }
}
