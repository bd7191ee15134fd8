//! DLPack tensors of callers: validation, and strided reads and writes.

use core::fmt;

use crate::abi::elem;
use crate::dlpack_abi::code::{BFLOAT, BOOL, COMPLEX, FLOAT, INT, UINT};
pub(crate) use crate::dlpack_abi::{CPU, CUDA, DLDataType, DLDevice, DLManagedTensor, DLTensor};
use crate::dlpack_abi::{CUDA_HOST, CUDA_MANAGED};
use crate::error::{Result, fail};

/// Maximum rank.
pub(crate) const MAX_RANK: usize = 64;

/// The DLPack type of one of the language's element types.
pub(crate) fn type_of(code: u64) -> DLDataType {
    let (code, bits) = match code {
        elem::F32 => (FLOAT, 32),
        elem::BF16 => (BFLOAT, 16),
        elem::F16 => (FLOAT, 16),
        elem::I8 => (INT, 8),
        elem::I32 => (INT, 32),
        elem::I64 => (INT, 64),
        _ => (BOOL, 8),
    };
    DLDataType { code, bits, lanes: 1 }
}

impl fmt::Display for DLDataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            INT => write!(f, "i{}", self.bits)?,
            UINT => write!(f, "u{}", self.bits)?,
            FLOAT => write!(f, "f{}", self.bits)?,
            BFLOAT => write!(f, "bf{}", self.bits)?,
            COMPLEX => write!(f, "complex{}", self.bits)?,
            BOOL => f.write_str("bool")?,
            code => write!(f, "type code {code} of {} bits", self.bits)?,
        }
        if self.lanes != 1 { write!(f, " x {} lanes", self.lanes) } else { Ok(()) }
    }
}

/// How an argument's elements are converted to the declared type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// No conversion.
    Same,
    /// `i64` to `i32`.
    Narrow,
    /// `i32` to `i64`.
    Widen,
    /// Bytes to truth values; any value but 0 is true.
    Truth,
}

/// The conversion from `given` to type `code`, if supported.
pub(crate) fn conversion(code: u64, given: DLDataType) -> Option<Conversion> {
    if given.lanes != 1 {
        return None;
    }
    match (code, given.code, given.bits) {
        (elem::BOOL, BOOL | UINT, 8) => Some(Conversion::Truth),
        (elem::I32, INT, 64) => Some(Conversion::Narrow),
        (elem::I64, INT, 32) => Some(Conversion::Widen),
        _ => (given == type_of(code)).then_some(Conversion::Same),
    }
}

/// A validated tensor: its shape, its device, and that the data pointer is not null unless it is
/// empty.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// First element, including the byte offset; must not be used if `count` is 0.
    pub(crate) data: *mut u8,
    pub(crate) shape: &'a [i64],
    strides: Option<&'a [i64]>,
    pub(crate) dtype: DLDataType,
    /// Number of elements.
    pub(crate) count: u64,
    /// Is it in the memory of the model's GPU (otherwise, the CPU's)?
    pub(crate) on_device: bool,
}

impl<'a> View<'a> {
    /// Validates `tensor`, which messages call `name`. `gpu` is the number of the GPU that the
    /// model runs on, if any.
    ///
    /// # Safety
    /// `tensor` is null or points to a tensor whose shape and strides are null or have `ndim`
    /// numbers.
    pub(crate) unsafe fn new(tensor: *const DLTensor, name: &str, gpu: Option<i32>) -> Result<View<'a>> {
        // SAFETY: by the contract above.
        let Some(t) = (unsafe { tensor.as_ref() }) else { fail!(Call, "{name} is a null pointer") };
        let rank = match usize::try_from(t.ndim) {
            Ok(rank) if rank <= MAX_RANK => rank,
            _ => fail!(Tensor, "{name} has {} axes; 0 to {MAX_RANK} are possible", t.ndim),
        };
        let shape: &[i64] = if rank == 0 {
            &[]
        } else if t.shape.is_null() {
            fail!(Call, "{name} has {rank} axes and a null pointer for its shape")
        } else {
            // SAFETY: by the contract above.
            unsafe { core::slice::from_raw_parts(t.shape, rank) }
        };
        let strides = if rank == 0 || t.strides.is_null() {
            None
        } else {
            // SAFETY: by the contract above.
            Some(unsafe { core::slice::from_raw_parts(t.strides, rank) })
        };
        if let Some(axis) = shape.iter().position(|d| *d < 0) {
            fail!(Tensor, "{name}: axis {axis} has a negative extent");
        }
        let on_device = match (t.device.device_type, gpu) {
            (CPU | CUDA_HOST, _) => false,
            (CUDA | CUDA_MANAGED, Some(own)) if t.device.device_id == own => true,
            (CUDA | CUDA_MANAGED, Some(own)) => {
                fail!(Tensor, "{name} is on cuda:{}, but the model runs on cuda:{own}", t.device.device_id)
            }
            (CUDA | CUDA_MANAGED, None) => {
                fail!(Tensor, "{name} is on cuda:{}, but the model runs on the CPU", t.device.device_id)
            }
            (other, Some(_)) => {
                fail!(Tensor, "{name} is neither in the CPU's memory nor on the GPU (DLPack device type {other})")
            }
            (other, None) => fail!(Tensor, "{name} is not in the CPU's memory (DLPack device type {other})"),
        };
        let empty = shape.contains(&0);
        let count = if empty { Some(0) } else { shape.iter().try_fold(1i64, |n, d| n.checked_mul(*d)) };
        // No element has more than 16 bytes.
        let Some(count) = count.filter(|n| *n <= i64::MAX / 16) else {
            fail!(Tensor, "{name} has more elements than memory can hold")
        };
        let address = (t.data as usize).checked_add(usize::try_from(t.byte_offset).unwrap_or(usize::MAX));
        let data = match address {
            _ if count == 0 => core::ptr::null_mut(),
            Some(_) if !t.data.is_null() => t.data.cast::<u8>().wrapping_add(t.byte_offset as usize),
            Some(_) => fail!(Call, "{name} has elements and a null pointer for its data"),
            None => fail!(Tensor, "{name}: its byte offset is too large"),
        };
        Ok(View { data, shape, strides, dtype: t.dtype, count: count.unsigned_abs(), on_device })
    }

    /// Is it contiguous and row-major? Strides of extents up to 1 are ignored.
    pub(crate) fn is_contiguous(&self) -> bool {
        let Some(strides) = self.strides else { return true };
        let mut expected = 1i64;
        self.count == 0
            || self.shape.iter().zip(strides).rev().all(|(d, s)| {
                let fits = *d == 1 || *s == expected;
                expected = expected.wrapping_mul(*d);
                fits
            })
    }

    /// The address range of the elements, half open. Fails if strides exceed the address space.
    pub(crate) fn span(&self, size: u64, name: &str) -> Result<(usize, usize)> {
        if self.count == 0 {
            return Ok((0, 0));
        }
        let mut range = Some((0i64, 0i64));
        for (axis, d) in self.shape.iter().enumerate() {
            let reach = self.stride(axis).checked_mul(d - 1);
            range = range
                .zip(reach)
                .and_then(|((low, high), r)| Some((low.checked_add(r.min(0))?, high.checked_add(r.max(0))?)));
        }
        let start = self.data as usize;
        let ends = range.and_then(|(low, high)| {
            let size = i64::try_from(size).ok()?;
            let low = start.checked_add_signed(isize::try_from(low.checked_mul(size)?).ok()?)?;
            let high = start.checked_add_signed(isize::try_from(high.checked_add(1)?.checked_mul(size)?).ok()?)?;
            (low > 0).then_some((low, high))
        });
        match ends {
            Some(ends) => Ok(ends),
            None => fail!(Tensor, "{name}: its strides lead out of memory"),
        }
    }

    /// Stride of `axis` in elements.
    fn stride(&self, axis: usize) -> i64 {
        if self.shape.get(axis).is_none_or(|d| *d <= 1) {
            return 0;
        }
        match self.strides {
            Some(s) => s.get(axis).copied().unwrap_or(0),
            None => self.shape.iter().skip(axis + 1).fold(1i64, |n, d| n.wrapping_mul(*d)),
        }
    }

    /// Extent and byte stride of each axis, for elements of `size` bytes.
    pub(crate) fn steps(&self, size: u64) -> impl Iterator<Item = (u64, i64)> {
        let extents = self.shape.iter().map(|d| d.unsigned_abs()).enumerate();
        extents.map(move |(axis, d)| (d, self.stride(axis).wrapping_mul(size.cast_signed())))
    }

    /// Calls `f` with the address of each row along the last axis, in order.
    fn rows(&self, size: u64, mut f: impl FnMut(*mut u8)) {
        if self.count == 0 {
            return;
        }
        let outer = self.shape.len().saturating_sub(1);
        let mut index = [0i64; MAX_RANK];
        let mut at = self.data;
        let bytes =
            |axis: usize, steps: i64| self.stride(axis).wrapping_mul(steps).wrapping_mul(size.cast_signed()) as isize;
        loop {
            f(at);
            // Advance the indices of the outer axes like an odometer.
            let mut axis = outer;
            loop {
                let Some(before) = axis.checked_sub(1) else { return };
                axis = before;
                let (Some(i), Some(d)) = (index.get_mut(axis), self.shape.get(axis)) else { return };
                *i += 1;
                at = at.wrapping_offset(bytes(axis, 1));
                if *i < *d {
                    break;
                }
                at = at.wrapping_offset(bytes(axis, -*d));
                *i = 0;
            }
        }
    }

    /// Extent and stride of the last axis.
    fn run(&self) -> (usize, i64) {
        match self.shape.len().checked_sub(1) {
            None => (1, 1),
            Some(last) => {
                let n = self.shape.get(last).copied().unwrap_or(1);
                (n as usize, if n == 1 { 1 } else { self.stride(last) })
            }
        }
    }

    /// Copies the elements of `size` bytes to `to`, contiguously.
    ///
    /// # Safety
    /// [`View::span`] has succeeded, its bytes are readable, and `to` is large enough.
    pub(crate) unsafe fn copy_to(&self, size: u64, to: *mut u8) {
        let (n, stride) = self.run();
        let mut to = to;
        self.rows(size, |row| {
            // SAFETY: as the caller promises.
            unsafe { copy_run(row, stride, to, 1, n, size as usize) };
            to = to.wrapping_add(n * size as usize);
        });
    }

    /// Copies contiguous elements from `from` to this tensor.
    ///
    /// # Safety
    /// [`View::span`] has succeeded, its bytes are writable, and `from` has as many elements.
    pub(crate) unsafe fn copy_from(&self, size: u64, from: *const u8) {
        let (n, stride) = self.run();
        let mut from = from;
        self.rows(size, |row| {
            // SAFETY: as the caller promises.
            unsafe { copy_run(from, 1, row, stride, n, size as usize) };
            from = from.wrapping_add(n * size as usize);
        });
    }
}

/// Copies `n` elements of `size` bytes; strides are in elements.
///
/// # Safety
/// Both pointers are valid for the elements, and the ranges do not overlap.
unsafe fn copy_run(from: *const u8, from_stride: i64, to: *mut u8, to_stride: i64, n: usize, size: usize) {
    if from_stride == 1 && to_stride == 1 {
        // SAFETY: as the caller promises.
        unsafe { core::ptr::copy_nonoverlapping(from, to, n * size) };
        return;
    }
    let step = |stride: i64| (stride as isize).wrapping_mul(size as isize);
    let (mut from, mut to) = (from, to);
    for _ in 0..n {
        // SAFETY: as the caller promises.
        unsafe { core::ptr::copy_nonoverlapping(from, to, size) };
        from = from.wrapping_offset(step(from_stride));
        to = to.wrapping_offset(step(to_stride));
    }
}
