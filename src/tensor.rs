//! Host tensors: arguments and results of calls.
//!
//! In: elements as Rust values or as raw bytes. Out: a [`Tensor`], with little-endian, row-major
//! elements, as in safetensors, `.npy` and DLPack. It does not know IR, files or machines.

use crate::shape::Elem;

/// A tensor in host memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    elem: Elem,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Tensor {
    /// A tensor from bytes (little-endian, row-major); `None` if their number does not match the
    /// shape, or a `bool` byte is neither 0 nor 1.
    pub fn new(elem: Elem, shape: Vec<usize>, bytes: Vec<u8>) -> Option<Tensor> {
        let size = usize::try_from(elem.size()).ok()?;
        let count = shape.iter().try_fold(size, |n, d| n.checked_mul(*d))?;
        let truths = elem != Elem::Bool || bytes.iter().all(|b| *b <= 1);
        (count == bytes.len() && truths).then_some(Tensor { elem, shape, bytes })
    }

    /// A float tensor from `f64` values, rounded to nearest even; `None` if their number does not
    /// match the shape.
    pub fn from_floats(elem: Elem, shape: Vec<usize>, values: &[f64]) -> Option<Tensor> {
        let bytes = match elem {
            Elem::F32 => values.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect(),
            Elem::BF16 => values.iter().flat_map(|x| half::bf16::from_f32(*x as f32).to_le_bytes()).collect(),
            Elem::F16 => values.iter().flat_map(|x| half::f16::from_f32(*x as f32).to_le_bytes()).collect(),
            Elem::I8 | Elem::I32 | Elem::I64 | Elem::Bool => return None,
        };
        Tensor::new(elem, shape, bytes)
    }

    /// An `f32` tensor; `None` if the number of values does not match the shape.
    pub fn from_f32(shape: Vec<usize>, values: &[f32]) -> Option<Tensor> {
        Tensor::new(Elem::F32, shape, values.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    /// A tensor of integers or truth values, each wrapped to the element type; `None` if their
    /// number does not match the shape.
    pub fn from_ints(elem: Elem, shape: Vec<usize>, values: &[i64]) -> Option<Tensor> {
        let bytes = match elem {
            Elem::I8 => values.iter().flat_map(|x| (*x as i8).to_le_bytes()).collect(),
            Elem::I32 => values.iter().flat_map(|x| (*x as i32).to_le_bytes()).collect(),
            Elem::I64 => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Elem::Bool => values.iter().map(|x| u8::from(*x != 0)).collect(),
            Elem::F32 | Elem::BF16 | Elem::F16 => return None,
        };
        Tensor::new(elem, shape, bytes)
    }

    /// Element type.
    pub fn elem(&self) -> Elem {
        self.elem
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements as bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// The same elements with another shape; `None` if the number of elements differs.
    pub fn reshaped(self, shape: Vec<usize>) -> Option<Tensor> {
        Tensor::new(self.elem, shape, self.bytes)
    }

    /// All elements converted to `f64`.
    pub fn to_f64(&self) -> Vec<f64> {
        match self.elem {
            Elem::F32 => self.bytes.as_chunks::<4>().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect(),
            Elem::BF16 => {
                self.bytes.as_chunks::<2>().0.iter().map(|b| half::bf16::from_le_bytes(*b).to_f64()).collect()
            }
            Elem::F16 => self.bytes.as_chunks::<2>().0.iter().map(|b| half::f16::from_le_bytes(*b).to_f64()).collect(),
            Elem::I8 | Elem::I32 | Elem::I64 | Elem::Bool => self.to_i64().into_iter().map(|n| n as f64).collect(),
        }
    }

    /// The elements converted to `f32`: floats exactly, others rounded.
    pub fn to_f32(&self) -> Vec<f32> {
        match self.elem {
            Elem::F32 => self.bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
            _ => self.to_f64().into_iter().map(|x| x as f32).collect(),
        }
    }

    /// The elements converted to `i64`: integers and truth values exactly, floats truncated.
    pub fn to_i64(&self) -> Vec<i64> {
        match self.elem {
            Elem::I8 => self.bytes.iter().map(|b| i64::from(b.cast_signed())).collect(),
            Elem::I32 => self.bytes.as_chunks::<4>().0.iter().map(|b| i64::from(i32::from_le_bytes(*b))).collect(),
            Elem::I64 => self.bytes.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b)).collect(),
            Elem::Bool => self.bytes.iter().map(|b| i64::from(*b)).collect(),
            Elem::F32 | Elem::BF16 | Elem::F16 => self.to_f64().into_iter().map(|x| x as i64).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_read_back() {
        let t = Tensor::from_floats(Elem::BF16, vec![2], &[1.0, f64::NEG_INFINITY]).unwrap();
        assert_eq!((t.to_f32(), t.bytes().len()), (vec![1.0, f32::NEG_INFINITY], 4));
        let t = Tensor::from_ints(Elem::I8, vec![3], &[-1, 127, 128]).unwrap();
        assert_eq!(t.to_i64(), [-1, 127, -128]);
        assert!(Tensor::from_f32(vec![2, 2], &[0.0; 3]).is_none());
        assert!(Tensor::new(Elem::Bool, vec![1], vec![2]).is_none());
        assert!(Tensor::new(Elem::F32, vec![usize::MAX, 2], vec![]).is_none());
        assert_eq!(Tensor::from_f32(vec![0, 7], &[]).unwrap().count(), 0);
    }
}
