//! DLPack's structs, as its header declares them, and its type codes for attnc's element types.
//!
//! Compiled into both the compiler (which calls a `model.so`) and the support library; it uses only
//! `core`.

#![allow(dead_code, reason = "the compiler and the support library each use their half")]

use core::ffi::c_void;

/// The device that holds a tensor's memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLDevice {
    /// [`CPU`], [`CUDA`] or another kind.
    pub device_type: i32,
    /// Index among devices of this type.
    pub device_id: i32,
}

/// `kDLCPU`.
pub const CPU: i32 = 1;
/// `kDLCUDA`: memory of an NVIDIA GPU.
pub const CUDA: i32 = 2;
/// `kDLCUDAHost`: pinned CPU memory that an NVIDIA GPU can access.
pub const CUDA_HOST: i32 = 3;
/// `kDLCUDAManaged`: memory that CPU and GPU share under one address.
pub const CUDA_MANAGED: i32 = 13;

/// Type of an element.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    /// One of [`code`].
    pub code: u8,
    /// Width in bits.
    pub bits: u8,
    /// Elements in a vector; always 1.
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

/// A tensor without ownership.
#[repr(C)]
#[derive(Debug)]
pub struct DLTensor {
    /// The memory.
    pub data: *mut c_void,
    /// Its device.
    pub device: DLDevice,
    /// Number of axes.
    pub ndim: i32,
    /// Type of the elements.
    pub dtype: DLDataType,
    /// Extent of each axis.
    pub shape: *mut i64,
    /// Stride of each axis in elements; null if contiguous.
    pub strides: *mut i64,
    /// Offset of the first element from `data`.
    pub byte_offset: u64,
}

/// A tensor with ownership.
#[repr(C)]
pub struct DLManagedTensor {
    /// The tensor itself.
    pub dl_tensor: DLTensor,
    /// Private data of the owner.
    pub manager_ctx: *mut c_void,
    /// Called once, when the tensor is no longer needed.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}
