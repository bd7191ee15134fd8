//! Tensors on the host as `attnc run` and the tests pass them around: type, shape, bytes.

use std::fmt;

use crate::shape::Elem;

/// A contiguous row-major tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    /// Element type.
    pub elem: Elem,
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    /// The elements, little-endian.
    pub bytes: Vec<u8>,
}

impl HostTensor {
    /// A tensor of these bytes; `None` where they are not as many as the shape needs.
    pub fn new(elem: Elem, shape: Vec<u64>, bytes: Vec<u8>) -> Option<HostTensor> {
        (byte_count(elem, &shape)? == bytes.len() as u64).then_some(HostTensor { elem, shape, bytes })
    }

    /// A tensor of zeros; `None` where it is too large.
    pub fn zeros(elem: Elem, shape: Vec<u64>) -> Option<HostTensor> {
        let size = usize::try_from(byte_count(elem, &shape)?).ok()?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).ok()?;
        bytes.resize(size, 0);
        Some(HostTensor { elem, shape, bytes })
    }

    /// An `f32` tensor; `None` where the values are not as many as the shape needs.
    pub fn from_f32(shape: &[u64], values: &[f32]) -> Option<HostTensor> {
        HostTensor::new(Elem::F32, shape.to_vec(), values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// An `i32` tensor; `None` where the values are not as many as the shape needs.
    pub fn from_i32(shape: &[u64], values: &[i32]) -> Option<HostTensor> {
        HostTensor::new(Elem::I32, shape.to_vec(), values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// An `i64` tensor; `None` where the values are not as many as the shape needs.
    pub fn from_i64(shape: &[u64], values: &[i64]) -> Option<HostTensor> {
        HostTensor::new(Elem::I64, shape.to_vec(), values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// The elements as `f32`, exactly; `None` for another type.
    pub fn to_f32(&self) -> Option<Vec<f32>> {
        (self.elem == Elem::F32).then(|| self.bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
    }

    /// The elements as `i64`; `None` for floats.
    pub fn to_i64(&self) -> Option<Vec<i64>> {
        match self.elem {
            Elem::I8 => Some(self.bytes.iter().map(|b| i64::from(b.cast_signed())).collect()),
            Elem::Bool => Some(self.bytes.iter().map(|b| i64::from(*b)).collect()),
            Elem::I32 => {
                Some(self.bytes.as_chunks::<4>().0.iter().map(|b| i64::from(i32::from_le_bytes(*b))).collect())
            }
            Elem::I64 => Some(self.bytes.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b)).collect()),
            Elem::F32 | Elem::BF16 | Elem::F16 => None,
        }
    }
}

/// Bytes of a tensor; `None` where it is too large.
pub fn byte_count(elem: Elem, shape: &[u64]) -> Option<u64> {
    let count = if shape.contains(&0) { 0 } else { shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d))? };
    count.checked_mul(elem.size()).filter(|n| i64::try_from(*n).is_ok())
}

/// Type and shape: `f32[2, 3]`.
impl fmt::Display for HostTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.elem, self.shape)
    }
}
