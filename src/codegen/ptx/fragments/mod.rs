//! Kernels of tensor cores: scheduled tile IR whose tiles are fragments of registers, as PTX.
//!
//! In: a verified kernel for a GPU in which the warps of a block share each tile (`Space::Fragment`, `Space::Shared`). Out: a
//! PTX kernel, and what its launch must know. Every operation of the tile IR is a template over whole tiles here; which
//! `ldmatrix`, `mma.sync` or `wgmma` it becomes follows from layout, swizzle and extents (`layout`). Nothing is decided
//! about tiles, stages or warps: the schedule did.
//!
//! ```text
//!   code      registers, names, indices, dimensions, scalars
//!   flow      blocks, jumps, roles; which values are live
//!   elements  elementwise work and reductions, element by element
//!   memory    loads and stores of fragments
//!   copies    shared memory: `cp.async`, `ldmatrix`
//!   products  `mma.sync`, `wgmma`
//!   rings     barriers in shared memory, tensor memory accelerator
//! ```
//!
//! # Parameters of a kernel
//!
//! One `.u64` for each symbol, one for each parameter (a pointer or an index), then `fault`, then the tensor maps.

mod code;
mod copies;
mod elements;
mod flow;
mod layout;
mod memory;
mod products;
mod rings;

use crate::ptx;
use crate::shape::Elem;
use crate::tile::{Kernel, Op, State};
use code::Code;

/// The name of the shared memory that a launch sizes.
pub(crate) const DYNAMIC: &str = "dynamic_shared";

/// A box of a buffer that the tensor memory accelerator copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// The parameter of the tile kernel that is read, by its place.
    pub param: usize,
    /// The axes of the buffer that the map has, the innermost first; its element stride is 1.
    pub axes: Vec<usize>,
    /// Extents of a box, one for each of these axes.
    pub extents: Vec<u32>,
    /// Element type.
    pub elem: Elem,
    /// Bytes within which chunks of 16 are exchanged: 0, 64 or 128.
    pub swizzle: u32,
}

/// A PTX kernel and what its launch must know.
#[derive(Clone, Debug)]
pub struct Made {
    /// The kernel. It names [`DYNAMIC`], which its module declares.
    pub kernel: ptx::Kernel,
    /// Bytes of shared memory that a launch adds.
    pub shared_bytes: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Its tensor maps, in the order of its last parameters.
    pub maps: Vec<TensorMap>,
}

/// Is a kernel one of these: for a GPU, and without loop nests?
pub fn is_of_fragments(kernel: &Kernel) -> bool {
    let has_run = kernel.body.insts().any(|(_, _, d)| matches!(d.op, Op::Run { .. }));
    matches!(kernel.state, State::Gpu { .. }) && !has_run
}

/// The code of a kernel under a name.
///
/// # Errors
/// What these templates do not cover, in words.
pub fn compile(kernel: &Kernel, name: &str) -> Result<Made, String> {
    let State::Gpu { warps, .. } = kernel.state else { return Err("the kernel is not scheduled for a GPU".into()) };
    let mut code = Code::new(kernel, name, i64::from(warps))?;
    code.whole()?;
    Ok(Made { kernel: code.out, shared_bytes: kernel.scratch, threads: warps * 32, maps: code.maps })
}

/// The declaration of the shared memory that launches size.
pub fn dynamic_shared() -> ptx::Shared {
    ptx::Shared { name: DYNAMIC.into(), align: 1024, bytes: None }
}
