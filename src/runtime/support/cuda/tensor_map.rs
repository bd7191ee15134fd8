//! Tensor maps: descriptions of buffers for the tensor memory accelerator of recent GPUs.
//!
//! In: a kernel's description of a map, the values of its dimensions, the buffer's address. Out:
//! the driver's encoding, which is computed on the host alone.

use super::device::Gpu;
use super::driver::{Address, TensorMap};
use crate::abi::cuda::{MAX_AXES, TensorMapDesc};
use crate::error::{Result, fail};
use crate::expr::eval;

/// `CU_TENSOR_MAP_INTERLEAVE_NONE`.
const NO_INTERLEAVE: i32 = 0;
/// `CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE`: elements out of bounds are read as zero.
const NO_FILL: i32 = 0;
/// `CU_TENSOR_MAP_L2_PROMOTION_L2_256B`.
const PROMOTE_256: i32 = 3;

/// Encodes a map of the buffer at `address`.
pub(crate) fn encode(gpu: &Gpu, desc: &TensorMapDesc, dims: &[i64], address: Address) -> Result<TensorMap> {
    let Some(encode) = gpu.driver.encode_tiled else {
        fail!(Device, "the driver is too old: it has no tensor maps (cuTensorMapEncodeTiled)")
    };
    let axes = desc.axes.get();
    if axes.is_empty() || axes.len() > MAX_AXES {
        fail!(Internal, "a tensor map of {} axes", axes.len());
    }
    let (mut extents, mut strides) = ([1u64; MAX_AXES], [0u64; MAX_AXES]);
    let (mut parts, mut steps) = ([1u32; MAX_AXES], [1u32; MAX_AXES]);
    for (i, axis) in axes.iter().enumerate() {
        let extent = eval(&axis.extent, dims)?;
        // A map must not have empty axes. An empty buffer is never accessed.
        let extent = u64::try_from(extent).unwrap_or(0).max(1);
        let stride = if i == 0 { 0 } else { u64::try_from(eval(&axis.stride, dims)?).unwrap_or(0) };
        if let (Some(e), Some(p), Some(s)) = (extents.get_mut(i), parts.get_mut(i), steps.get_mut(i)) {
            (*e, *p, *s) = (extent, axis.part as u32, axis.step as u32);
        }
        // The driver expects no stride for the first axis.
        if let Some(s) = i.checked_sub(1).and_then(|i| strides.get_mut(i)) {
            *s = stride;
        }
    }
    let mut map = TensorMap([0; 128]);
    // SAFETY: an out pointer for a map; as many numbers as axes.
    let code = unsafe {
        encode(
            &mut map,
            desc.elem as i32,
            axes.len() as u32,
            address,
            extents.as_ptr(),
            strides.as_ptr(),
            parts.as_ptr(),
            steps.as_ptr(),
            NO_INTERLEAVE,
            desc.swizzle as i32,
            PROMOTE_256,
            NO_FILL,
        )
    };
    gpu.check(code, "a tensor map")?;
    Ok(map)
}
