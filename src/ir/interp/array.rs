//! Arrays: the tensors that the interpreter computes with.
//!
//! In: host tensors and elements. Out: arrays, whose floats are a [`Real`] and whose integers are
//! `i64`s within the range of their element type. This file moves elements; `elementwise` and
//! `contraction` compute.

use super::Real;
use crate::scalar::BinaryOp;
use crate::shape::Elem;
use crate::tensor::Tensor;

/// The elements of an array.
#[derive(Clone, Debug, PartialEq)]
pub enum Data<F> {
    /// `f32`, `bf16` or `f16`.
    Float(Vec<F>),
    /// `i8`, `i32` or `i64`.
    Int(Vec<i64>),
    /// `bool`.
    Bool(Vec<bool>),
}

/// A tensor of the interpreter, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Array<F> {
    /// The declared type, to which results are rounded or wrapped.
    pub elem: Elem,
    /// Outermost first.
    pub shape: Vec<usize>,
    /// Row-major; the variant fits `elem`.
    pub data: Data<F>,
}

/// Wraps an integer to the range of its type.
pub(super) fn wrap(n: i64, elem: Elem) -> i64 {
    match elem {
        Elem::I8 => i64::from(n as i8),
        Elem::I32 => i64::from(n as i32),
        Elem::I64 | Elem::F32 | Elem::BF16 | Elem::F16 | Elem::Bool => n,
    }
}

impl<F: Real> Data<F> {
    /// An empty vector with capacity `n`.
    pub(super) fn with_capacity(elem: Elem, n: usize) -> Data<F> {
        match elem {
            Elem::F32 | Elem::BF16 | Elem::F16 => Data::Float(Vec::with_capacity(n)),
            Elem::I8 | Elem::I32 | Elem::I64 => Data::Int(Vec::with_capacity(n)),
            Elem::Bool => Data::Bool(Vec::with_capacity(n)),
        }
    }

    /// Appends elements `start..start + n` of another array of the same type.
    pub(super) fn extend(&mut self, from: &Data<F>, start: usize, n: usize) {
        match (self, from) {
            (Data::Float(a), Data::Float(b)) => a.extend(b.iter().skip(start).take(n)),
            (Data::Int(a), Data::Int(b)) => a.extend(b.iter().skip(start).take(n)),
            (Data::Bool(a), Data::Bool(b)) => a.extend(b.iter().skip(start).take(n)),
            (Data::Float(_) | Data::Int(_) | Data::Bool(_), _) => {}
        }
    }

    /// Overwrites the elements from `start` with all elements of another array.
    pub(super) fn write(&mut self, start: usize, from: &Data<F>) {
        match (self, from) {
            (Data::Float(a), Data::Float(b)) => a.iter_mut().skip(start).zip(b).for_each(|(x, y)| *x = *y),
            (Data::Int(a), Data::Int(b)) => a.iter_mut().skip(start).zip(b).for_each(|(x, y)| *x = *y),
            (Data::Bool(a), Data::Bool(b)) => a.iter_mut().skip(start).zip(b).for_each(|(x, y)| *x = *y),
            (Data::Float(_) | Data::Int(_) | Data::Bool(_), _) => {}
        }
    }
}

/// Offsets of all elements of a shape, in row-major order, for these strides.
pub(super) fn positions(shape: &[usize], strides: &[usize]) -> Vec<usize> {
    let mut out = vec![0];
    for (n, stride) in shape.iter().zip(strides) {
        let mut next = Vec::with_capacity(out.len().saturating_mul(*n));
        for base in &out {
            next.extend((0..*n).map(|i| base + i * stride));
        }
        out = next;
    }
    out
}

/// Row-major strides of a shape.
pub(super) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut out = vec![1usize; shape.len()];
    for i in (1..shape.len()).rev() {
        out[i - 1] = out[i].saturating_mul(shape[i]);
    }
    out
}

/// Strides that broadcast a shape to a larger one, right-aligned.
pub(super) fn broadcast_strides(from: &[usize], to: &[usize]) -> Vec<usize> {
    let own = strides(from);
    let lead = to.len().saturating_sub(from.len());
    (0..to.len()).map(|i| if i < lead || from[i - lead] == 1 { 0 } else { own[i - lead] }).collect()
}

pub(super) fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// The number of elements before an axis, its extent, and the number of elements after it.
pub(super) fn around(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    let (before, rest) = shape.split_at(axis.min(shape.len()));
    (count(before), rest.first().copied().unwrap_or(1), count(rest.get(1..).unwrap_or_default()))
}

impl<F: Real> Array<F> {
    /// An array whose elements are all equal.
    pub(super) fn splat(elem: Elem, shape: Vec<usize>, float: F, int: i64) -> Array<F> {
        let n = count(&shape);
        let data = match elem {
            Elem::F32 | Elem::BF16 | Elem::F16 => Data::Float(vec![float; n]),
            Elem::I8 | Elem::I32 | Elem::I64 => Data::Int(vec![wrap(int, elem); n]),
            Elem::Bool => Data::Bool(vec![int != 0; n]),
        };
        Array { elem, shape, data }
    }

    /// Converts a host tensor.
    pub fn from_tensor(t: &Tensor) -> Array<F> {
        let elem = t.elem();
        let data = match elem {
            Elem::F32 | Elem::BF16 | Elem::F16 => {
                Data::Float(t.to_f64().into_iter().map(|x| F::literal(x, elem)).collect())
            }
            Elem::I8 | Elem::I32 | Elem::I64 => Data::Int(t.to_i64()),
            Elem::Bool => Data::Bool(t.to_i64().into_iter().map(|n| n != 0).collect()),
        };
        Array { elem, shape: t.shape().to_vec(), data }
    }

    /// Converts to a host tensor; floats are rounded to the element type.
    pub fn to_tensor(&self) -> Option<Tensor> {
        let shape = self.shape.clone();
        match &self.data {
            Data::Float(v) => Tensor::from_floats(self.elem, shape, &v.iter().map(|x| x.value()).collect::<Vec<_>>()),
            Data::Int(v) => Tensor::from_ints(self.elem, shape, v),
            Data::Bool(v) => Tensor::from_ints(self.elem, shape, &v.iter().map(|b| i64::from(*b)).collect::<Vec<_>>()),
        }
    }

    /// Gathers the elements at these offsets into an array of this shape.
    pub(super) fn take(&self, shape: Vec<usize>, positions: &[usize]) -> Array<F> {
        let data = match &self.data {
            Data::Float(v) => Data::Float(positions.iter().map(|i| v[*i]).collect()),
            Data::Int(v) => Data::Int(positions.iter().map(|i| v[*i]).collect()),
            Data::Bool(v) => Data::Bool(positions.iter().map(|i| v[*i]).collect()),
        };
        Array { elem: self.elem, shape, data }
    }

    pub(super) fn transpose(&self, perm: &[usize]) -> Array<F> {
        let own = strides(&self.shape);
        let shape: Vec<usize> = perm.iter().map(|i| self.shape[*i]).collect();
        let moved: Vec<usize> = perm.iter().map(|i| own[*i]).collect();
        let at = positions(&shape, &moved);
        self.take(shape, &at)
    }

    pub(super) fn broadcast(&self, shape: &[usize]) -> Array<F> {
        if self.shape == shape {
            return self.clone();
        }
        self.take(shape.to_vec(), &positions(shape, &broadcast_strides(&self.shape, shape)))
    }

    /// Elements `start..start + n` along an axis.
    pub(super) fn slice(&self, axis: usize, start: usize, n: usize) -> Array<F> {
        let (outer, extent, inner) = around(&self.shape, axis);
        let mut shape = self.shape.clone();
        shape[axis] = n;
        let mut data = Data::with_capacity(self.elem, count(&shape));
        for o in 0..outer {
            data.extend(&self.data, (o * extent + start) * inner, n * inner);
        }
        Array { elem: self.elem, shape, data }
    }

    /// Windows of an axis, which becomes two axes in `shape`: `step` elements apart, from the end
    /// of the axis if `backwards`.
    pub(super) fn windows(&self, axis: usize, step: usize, backwards: bool, shape: Vec<usize>) -> Array<F> {
        let mut own = strides(&self.shape);
        own.insert(axis, own[axis].saturating_mul(step));
        let mut at = positions(&shape, &own);
        if backwards {
            // Mirrored: window w starts as far before the last window as it otherwise would start
            // after the first.
            let last = self.shape[axis].saturating_sub(shape[axis + 1]) * own[axis + 1];
            let inner: usize = shape[axis + 1..].iter().product();
            for (n, i) in at.iter_mut().enumerate() {
                let window = n / inner % shape[axis];
                *i = *i + last - 2 * window * own[axis];
            }
        }
        self.take(shape, &at)
    }

    /// The slice at one index of an axis, which is removed.
    pub(super) fn index(&self, axis: usize, at: usize) -> Array<F> {
        let mut out = self.slice(axis, at, 1);
        out.shape.remove(axis);
        out
    }

    /// A window of the array, which must lie inside it.
    pub(super) fn window(&self, start: &[usize], shape: &[usize]) -> Array<F> {
        self.take(shape.to_vec(), &self.in_window(start, shape))
    }

    /// The array with the window that begins at `start` replaced; it must lie inside the array.
    pub(super) fn replaced(&self, start: &[usize], by: &Array<F>) -> Array<F> {
        let mut out = self.clone();
        let at = self.in_window(start, &by.shape);
        match (&mut out.data, &by.data) {
            (Data::Float(a), Data::Float(b)) => at.iter().zip(b).for_each(|(i, x)| a[*i] = *x),
            (Data::Int(a), Data::Int(b)) => at.iter().zip(b).for_each(|(i, x)| a[*i] = *x),
            (Data::Bool(a), Data::Bool(b)) => at.iter().zip(b).for_each(|(i, x)| a[*i] = *x),
            (Data::Float(_) | Data::Int(_) | Data::Bool(_), _) => {}
        }
        out
    }

    /// Offsets of the elements of a window.
    fn in_window(&self, start: &[usize], shape: &[usize]) -> Vec<usize> {
        let own = strides(&self.shape);
        let first: usize = start.iter().zip(&own).map(|(i, stride)| i * stride).sum();
        let mut at = positions(shape, &own);
        at.iter_mut().for_each(|i| *i += first);
        at
    }

    /// Slices at indices of an axis, which is replaced by the axes of the indices; the first
    /// `batch` axes of both are shared.
    pub(super) fn gather(&self, (axis, batch): (usize, usize), at: &[usize], shape_of_at: &[usize]) -> Array<F> {
        let (outer, extent, inner) = around(&self.shape, axis);
        let (shared, own) = shape_of_at.split_at(batch);
        let mut shape = self.shape.clone();
        shape.splice(axis..=axis, own.iter().copied());
        let mut data = Data::with_capacity(self.elem, count(&shape));
        // The number of slices per index of the shared axes.
        let (each, taken) = (outer / count(shared).max(1), count(own));
        for o in 0..outer {
            let first = o / each.max(1) * taken;
            for i in &at[first..first + taken] {
                data.extend(&self.data, (o * extent + i) * inner, inner);
            }
        }
        Array { elem: self.elem, shape, data }
    }

    /// The array with slices of another written, or added, in order, at indices of an axis.
    pub(super) fn scattered(&self, axis: usize, at: &[usize], value: &Array<F>, add: bool) -> Array<F> {
        let (outer, extent, inner) = around(&self.shape, axis);
        let mut out = self.clone();
        let elem = self.elem;
        for o in 0..outer {
            for (k, i) in at.iter().enumerate() {
                let (to, from) = ((o * extent + i) * inner, (o * at.len() + k) * inner);
                for n in 0..inner {
                    match (&mut out.data, &value.data) {
                        (Data::Float(a), Data::Float(b)) if add => {
                            a[to + n] = F::binary(BinaryOp::Add, a[to + n], b[from + n], elem);
                        }
                        (Data::Float(a), Data::Float(b)) => a[to + n] = b[from + n],
                        (Data::Int(a), Data::Int(b)) if add => {
                            a[to + n] = wrap(a[to + n].wrapping_add(b[from + n]), elem);
                        }
                        (Data::Int(a), Data::Int(b)) => a[to + n] = b[from + n],
                        (Data::Bool(a), Data::Bool(b)) => a[to + n] = b[from + n],
                        (Data::Float(_) | Data::Int(_) | Data::Bool(_), _) => {}
                    }
                }
            }
        }
        out
    }

    /// Concatenates arrays along an axis; there is at least one.
    pub(super) fn concat(parts: &[&Array<F>], axis: usize) -> Array<F> {
        let elem = parts[0].elem;
        let mut shape = parts[0].shape.clone();
        shape[axis] = parts.iter().map(|p| p.shape[axis]).sum();
        let mut data = Data::with_capacity(elem, count(&shape));
        for o in 0..count(&shape[..axis]) {
            for p in parts {
                let (_, extent, inner) = around(&p.shape, axis);
                data.extend(&p.data, o * extent * inner, extent * inner);
            }
        }
        Array { elem, shape, data }
    }

    /// The array with elements of a scalar added before and after along an axis.
    pub(super) fn pad(&self, value: &Array<F>, axis: usize, low: usize, high: usize) -> Array<F> {
        let filled = |n: usize| {
            let mut shape = self.shape.clone();
            shape[axis] = n;
            value.broadcast(&shape)
        };
        Array::concat(&[&filled(low), self, &filled(high)], axis)
    }
}
