//! Tensor core kernels: compiles scheduled tile IR whose tiles are register fragments to PTX.
//!
//! In: a verified kernel for a GPU in which the warps of a block share each tile
//! (`Space::Fragment`, `Space::Shared`). Out: a PTX kernel, and its launch info. Every operation of
//! the tile IR is a template over whole tiles here; its `ldmatrix`, `mma.sync` or `wgmma`
//! instructions follow from layout, swizzle and extents (`layout`). Tiles, stages and warps were
//! decided by the schedule.
//!
//! ```text
//!   code      registers, names, the head of a kernel, what holds each value
//!   numbers   indices and dimensions
//!   scalars   operations that make an index or a scalar
//!   flow      blocks, jumps, roles; which values are live
//!   elements  elementwise work and reductions, element by element
//!   memory    loads and stores of fragments
//!   copies    shared memory: `cp.async`, `ldmatrix`
//!   products  `mma.sync`, `wgmma`
//!   scaled    `mma.sync` by integers with scales
//!   rings     barriers in shared memory, tensor memory accelerator
//! ```
//!
//! Elements are computed as in all kernels (`lanes`), except `exp2` and `exp`, which use
//! `ex2.approx`: relative error 2.5 * 2^-23 (2 ulp, PTX ISA, "ex2"; for `exp(x)` plus `x 2^-24`),
//! and results below 2^-126 are 0. The exponent `a b - c` of a power of 2 is one FMA. `sigmoid`,
//! `silu`, `gelu_tanh` and `tanh` take the reciprocal of such a power plus 1 by `rcp.approx` (1
//! ulp): their relative error is at most 2^-19 plus `|e| 2^-22` for an exponent `e`, less than half
//! a unit of `bf16` and `f16` wherever the result is not rounded to 0. An `f32` result of such a
//! kernel has that error too.

mod code;
mod copies;
mod elements;
mod flow;
mod layout;
mod memory;
mod numbers;
mod products;
mod rings;
mod scalars;
mod scaled;

use super::info::{Grid, KernelInfo, ParamInfo, TensorMapInfo};
use crate::ptx::{self, Swizzle};
use crate::shape::{Dim, Elem};
use crate::tile::{Kernel, Op, ParamMode, State, Type};
use code::Code;

/// Alignment of a block's shared memory in bytes: the swizzle pattern spans 8 rows of 128 bytes.
pub const SHARED_ALIGN: u32 = 1024;

/// A tensor map: a box of a buffer that the tensor memory accelerator copies.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TensorMap {
    /// Index of the tile kernel's parameter that is read.
    param: usize,
    /// The buffer's axes in the map, innermost first; the innermost has stride 1.
    axes: Vec<usize>,
    /// Extents of a box, one for each of these axes.
    extents: Vec<u32>,
    /// Element type.
    elem: Elem,
    /// Swizzle width in bytes: 0, 64 or 128.
    swizzle: i64,
}

/// Is a kernel compiled here: for a GPU, and without runs?
pub fn is_of_fragments(kernel: &Kernel) -> bool {
    let has_run = kernel.body.insts().any(|(_, _, d)| matches!(d.op, Op::Run { .. }));
    matches!(kernel.state, State::Gpu { .. }) && !has_run && !kernel.is_persistent()
}

/// Compiles a kernel; returns its code and launch info.
///
/// # Errors
/// An operation or layout that these templates do not cover.
pub(super) fn compile(kernel: &Kernel, name: &str) -> Result<(ptx::Kernel, KernelInfo), String> {
    let State::Gpu { warps, .. } = kernel.state else { return Err("it is not scheduled for a GPU".into()) };
    let mut code = Code::new(kernel, name, i64::from(warps))?;
    code.whole()?;
    let tensor_maps = code.maps.iter().map(|m| map_info(kernel, m)).collect::<Option<Vec<_>>>();
    let params = kernel.params.iter().map(|p| match kernel.body.ty(p.value) {
        Type::Buffer(_) => ParamInfo::Buffer { read: p.mode != ParamMode::Out, written: p.mode != ParamMode::In },
        _ => ParamInfo::Index,
    });
    let info = KernelInfo {
        name: name.to_string(),
        kernel: kernel.name.clone(),
        symbols: kernel.symbols.clone(),
        params: params.collect(),
        threads: [warps * 32, 1, 1],
        grid: Grid::for_kernel(kernel),
        static_shared: 0,
        dynamic_shared: u32::try_from(kernel.scratch).map_err(|_| "its shared memory is too large")?,
        tensor_maps: tensor_maps.ok_or("a tensor map without a buffer")?,
        cluster: None,
    };
    Ok((code.e.kernel, info))
}

/// The data that the host encodes for a tensor map.
fn map_info(kernel: &Kernel, map: &TensorMap) -> Option<TensorMapInfo> {
    let ty = kernel.buffer_type(map.param)?;
    let size = Dim::from(i64::try_from(map.elem.size()).ok()?);
    let of = |list: &[Dim], axes: &[usize]| axes.iter().map(|a| list.get(*a).cloned()).collect::<Option<Vec<Dim>>>();
    // An empty axis also has a map, but nothing is copied.
    let at_least = |d: &Dim, n: i64| if d.as_const().is_some() { d.clone() } else { d.max_with(&n.into()) };
    // A map's strides must be multiples of 16 bytes. The stride of an axis of one element may be
    // anything else, but is never used.
    let apart = |axis: &usize| {
        let is_one = ty.shape.get(*axis)?.as_const() == Some(1);
        let stride = ty.strides.get(*axis)?.mul(&size);
        Some(if is_one && !stride.is_multiple_of(16) { Dim::from(16) } else { at_least(&stride, 16) })
    };
    Some(TensorMapInfo {
        param: map.param,
        elem: map.elem,
        extents: of(&ty.shape, &map.axes)?.iter().map(|d| at_least(d, 1)).collect(),
        byte_strides: map.axes.get(1..)?.iter().map(apart).collect::<Option<_>>()?,
        boxes: map.extents.clone(),
        element_strides: vec![1; map.axes.len()],
        swizzle: match map.swizzle {
            128 => Swizzle::Bytes128,
            64 => Swizzle::Bytes64,
            _ => Swizzle::None,
        },
    })
}
