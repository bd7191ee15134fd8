//! DLPack's structs, as its header declares them, and its codes for our element types.
//!
//! Compiled into both the compiler (to call a `model.so`) and the support library (to be called); it uses only `core`.

#![allow(dead_code, reason = "the compiler and the support library each use their half")]

use core::ffi::c_void;

/// Where a tensor's memory is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLDevice {
    /// [`CPU`], [`CUDA`] or another kind.
    pub device_type: i32,
    /// Which of them.
    pub device_id: i32,
}

/// `kDLCPU`.
pub const CPU: i32 = 1;
/// `kDLCUDA`: memory of an NVIDIA GPU.
pub const CUDA: i32 = 2;
/// `kDLCUDAHost`: memory of the CPU that an NVIDIA GPU reads too.
pub const CUDA_HOST: i32 = 3;
/// `kDLCUDAManaged`: memory that both use under one address.
pub const CUDA_MANAGED: i32 = 13;

/// Type of an element.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    /// One of [`code`].
    pub code: u8,
    /// Size in bits.
    pub bits: u8,
    /// Elements in a vector; 1.
    pub lanes: u16,
}

/// Kinds of elements (`DLDataTypeCode`).
pub mod code {
    /// Signed integer.
    pub const INT: u8 = 0;
    /// Unsigned integer.
    pub const UINT: u8 = 1;
    /// IEEE 754 float.
    pub const FLOAT: u8 = 2;
    /// bfloat16.
    pub const BFLOAT: u8 = 4;
    /// Complex number.
    pub const COMPLEX: u8 = 5;
    /// Truth value of one byte.
    pub const BOOL: u8 = 6;
}

/// A tensor that somebody else owns.
#[repr(C)]
#[derive(Debug)]
pub struct DLTensor {
    /// The memory.
    pub data: *mut c_void,
    /// Where it is.
    pub device: DLDevice,
    /// Number of axes.
    pub ndim: i32,
    /// Type of the elements.
    pub dtype: DLDataType,
    /// Extent of each axis.
    pub shape: *mut i64,
    /// Elements from one index to the next, for each axis; null where contiguous.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// A tensor with its owner.
#[repr(C)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// The owner's.
    pub manager_ctx: *mut c_void,
    /// To be called once, when the tensor is no longer needed.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}
