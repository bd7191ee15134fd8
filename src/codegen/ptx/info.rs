//! What a launch must know of a kernel besides its code: threads, grid, shared memory, what is passed, and maps of tensors.
//!
//! In: nothing; code generation fills it in. Out: data that a host runtime, a simulator or a test launches a kernel by. What it must not
//! know: how a launch is made.
//!
//! # What a kernel is passed
//!
//! In this order, each a `.param` of the PTX kernel:
//!
//! 1. a `u64` for each of [`KernelInfo::symbols`], the value of that run-time dimension;
//! 2. for each of [`KernelInfo::params`] a pointer to global memory, or an index as `u64`;
//! 3. `fault`, a pointer to six `u64` in global memory: `[0]` is 0, or the number of a site plus 1, by compare-and-swap, after a check
//!    of an index failed; `[1]` is the index then, `[2]` its bound. The block that found it returns, others go on, of a grid whose blocks
//!    meet up to the next barrier. `[4]` counts arrivals at barriers of the grid and `[5]` the blocks that have ended: both are 0
//!    before a launch and after it;
//! 4. for each of [`KernelInfo::tensor_maps`] its 128 bytes.
//!
//! The words of 1 and 2 are those that a plan passes to a launch on a CPU, in the same order.

use crate::ptx::Swizzle;
use crate::shape::{Dim, Elem};
use crate::tile::{GpuOp, Kernel, Op};

/// What a kernel takes in a place of its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamInfo {
    /// A buffer in global memory.
    Buffer {
        /// Is it read?
        read: bool,
        /// Is it written?
        written: bool,
    },
    /// A 64-bit integer.
    Index,
}

/// How many blocks a launch has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grid {
    /// The product of `ceil(extent / step)` over the axes, along x: the kernel takes its place apart, the last axis going fastest. No
    /// axes: one block. Where the product is 0, nothing is launched.
    Axes(Vec<(Dim, i64)>),
    /// As many blocks along x as run at a time, at most that product: each block takes points until none is left.
    Persistent(Vec<(Dim, i64)>),
    /// The same of blocks that wait for each other, so that all must run together: a cooperative launch.
    Meeting(Vec<(Dim, i64)>),
    /// These extents along x, y and z.
    Extents([Dim; 3]),
}

impl Grid {
    /// That of a kernel: as many blocks as points, or as many as run at a time where it asks how many these are, or launches others.
    pub(super) fn of(kernel: &Kernel) -> Grid {
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

/// A map of a tensor, which the host encodes before a launch (`cuTensorMapEncodeTiled`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMapInfo {
    /// The place among [`KernelInfo::params`] of the buffer that it maps.
    pub param: usize,
    /// Type of its elements.
    pub elem: Elem,
    /// Its extents, the innermost first.
    pub extents: Vec<Dim>,
    /// Bytes between neighbours along each axis but the innermost, whose are side by side: one fewer than extents.
    pub byte_strides: Vec<Dim>,
    /// Extents of a box, the innermost first.
    pub boxes: Vec<u32>,
    /// Of how many elements along each axis one is taken: 1 everywhere, as a rule.
    pub element_strides: Vec<u32>,
    /// How a box lies in shared memory.
    pub swizzle: Swizzle,
}

/// A kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelInfo {
    /// Its name in the PTX module.
    pub name: String,
    /// Its name in the tile IR.
    pub kernel: String,
    /// The run-time dimensions that it is passed, in order.
    pub symbols: Vec<String>,
    /// Its parameters behind those, in order.
    pub params: Vec<ParamInfo>,
    /// Extents of a block.
    pub threads: [u32; 3],
    /// How many blocks.
    pub grid: Grid,
    /// Bytes of shared memory that its code declares.
    pub static_shared: u32,
    /// Bytes of shared memory that a launch adds. Above 48 KiB in all, a launch must ask for it (`cuFuncSetAttribute`).
    pub dynamic_shared: u32,
    /// Maps of tensors, in order.
    pub tensor_maps: Vec<TensorMapInfo>,
    /// Extents of a cluster, if its blocks form some.
    pub cluster: Option<[u32; 3]>,
}

impl KernelInfo {
    /// Threads of a block.
    pub fn block_size(&self) -> u32 {
        self.threads.iter().product()
    }
}
