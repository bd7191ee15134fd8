//! Strided views of a value's storage.
//!
//! In: shapes, and data movement operations. Out: [`View`]s, so that transposing, slicing,
//! indexing, broadcasting and most reshapes move nothing; a kernel reads through the strides. A
//! reshape that strides cannot express gives `None`, and the caller copies first. This module does
//! not know kernels or slots.

use super::{Body, BufferType, Op, PlanOp, Value, row_major};
use crate::shape::{Dim, Elem, TensorType};

/// A strided view. Strides and offset are in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The value that owns the storage: an argument, a parameter, or the result of a kernel.
    pub root: Value,
    /// Element type.
    pub elem: Elem,
    /// First element, as a function of dimensions.
    pub offset: Dim,
    /// Run-time additions to the offset: an index value times a stride, each.
    pub dynamic: Vec<(Value, Dim)>,
    /// Extents.
    pub shape: Vec<Dim>,
    /// Stride of each axis; 0 repeats.
    pub strides: Vec<Dim>,
}

impl View {
    /// The whole of a value in row-major order.
    pub(crate) fn whole(root: Value, ty: &TensorType) -> View {
        View {
            root,
            elem: ty.elem,
            offset: Dim::zero(),
            dynamic: Vec::new(),
            shape: ty.shape.clone(),
            strides: row_major(&ty.shape),
        }
    }

    /// The view that a buffer of a plan is, found through the views before it; its root is the
    /// first value that is not a view.
    pub(crate) fn trace(body: &Body, buffer: Value) -> Option<View> {
        let ty = body.ty(buffer).buffer()?;
        let (elem, shape, strides) = (ty.elem, ty.shape.clone(), ty.strides.clone());
        let mut view = View { root: buffer, elem, offset: Dim::zero(), dynamic: Vec::new(), shape, strides };
        while let Some(data) = body.def_inst(view.root)
            && let (Op::Plan(PlanOp::View { offset, strides }), [from, indices @ ..]) =
                (&data.op, data.operands.as_slice())
        {
            view.offset = view.offset.add(offset);
            let before = indices.iter().copied().zip(strides.iter().cloned());
            view.dynamic = before.chain(std::mem::take(&mut view.dynamic)).collect();
            view.root = *from;
        }
        Some(view)
    }

    /// The view as a buffer type.
    pub(crate) fn buffer_type(&self) -> BufferType {
        BufferType { elem: self.elem, shape: self.shape.clone(), strides: self.strides.clone() }
    }

    /// Is it row-major without gaps, starting at the root's first element?
    pub(crate) fn is_whole(&self) -> bool {
        self.offset == Dim::zero() && self.dynamic.is_empty() && self.is_contiguous()
    }

    /// Is it row-major without gaps? Strides of axes of extent 1 do not matter.
    pub(crate) fn is_contiguous(&self) -> bool {
        let want = row_major(&self.shape);
        self.shape.iter().zip(self.strides.iter().zip(&want)).all(|(d, (s, w))| s == w || d.as_const() == Some(1))
    }

    /// Permutes axes.
    pub(crate) fn transpose(&self, perm: &[usize]) -> View {
        let pick = |list: &[Dim]| perm.iter().filter_map(|i| list.get(*i).cloned()).collect();
        View { shape: pick(&self.shape), strides: pick(&self.strides), ..self.clone() }
    }

    /// Elements `start..stop` along an axis.
    pub(crate) fn slice(&self, axis: usize, start: &Dim, stop: &Dim) -> View {
        let mut out = self.clone();
        if let (Some(d), Some(s)) = (out.shape.get_mut(axis), self.strides.get(axis)) {
            *d = stop.sub(start);
            out.offset = out.offset.add(&s.mul(start));
        }
        out
    }

    /// Sliding windows along an axis, in a shape that has two axes in its place: consecutive
    /// windows are `stride` elements apart. If that is negative, the first window is the last of
    /// the axis.
    pub(crate) fn windows(&self, axis: usize, stride: i64, shape: &[Dim]) -> View {
        let (mut strides, mut offset) = (self.strides.clone(), self.offset.clone());
        if let Some(s) = strides.get(axis).cloned() {
            if let (true, Some(extent), Some(length)) = (stride < 0, self.shape.get(axis), shape.get(axis + 1)) {
                offset = offset.add(&s.mul(&extent.sub(length)));
            }
            strides.insert(axis, s.mul(&Dim::from(stride)));
        }
        View { offset, shape: shape.to_vec(), strides, ..self.clone() }
    }

    /// One element along an axis, at a constant index; removes the axis.
    pub(crate) fn select(&self, axis: usize, at: &Dim) -> View {
        let mut out = self.slice(axis, at, &at.add(&Dim::one()));
        out.drop_axis(axis);
        out
    }

    /// One element along an axis, at a run-time index; removes the axis.
    pub(crate) fn select_at(&self, axis: usize, at: Value) -> View {
        let mut out = self.clone();
        if let Some(s) = self.strides.get(axis) {
            out.dynamic.push((at, s.clone()));
        }
        out.drop_axis(axis);
        out
    }

    /// `length` elements along an axis, starting at a run-time index.
    pub(crate) fn window_at(&self, axis: usize, at: Value, length: &Dim) -> View {
        let mut out = self.clone();
        if let (Some(d), Some(s)) = (out.shape.get_mut(axis), self.strides.get(axis)) {
            *d = length.clone();
            out.dynamic.push((at, s.clone()));
        }
        out
    }

    fn drop_axis(&mut self, axis: usize) {
        if axis < self.shape.len() {
            self.shape.remove(axis);
            self.strides.remove(axis);
        }
    }

    /// Broadcasts to a larger shape, right-aligned.
    pub(crate) fn broadcast(&self, shape: &[Dim]) -> View {
        let lead = shape.len().saturating_sub(self.shape.len());
        let strides = shape
            .iter()
            .enumerate()
            .map(|(i, want)| match i.checked_sub(lead).and_then(|k| Some((self.shape.get(k)?, self.strides.get(k)?))) {
                Some((have, stride)) if have == want => stride.clone(),
                _ => Dim::zero(),
            })
            .collect();
        View { shape: shape.to_vec(), strides, ..self.clone() }
    }

    /// Reshapes in row-major order, if strides can express it. The two shapes are split into the
    /// smallest groups of axes with equal products; a group can be reshaped if its axes are
    /// adjacent without gaps.
    pub(crate) fn reshape(&self, shape: &[Dim]) -> Option<View> {
        // Without elements, any strides are valid.
        if self.shape.iter().chain(shape).any(|d| d.as_const() == Some(0)) {
            return Some(View { shape: shape.to_vec(), strides: row_major(shape), ..self.clone() });
        }
        let one = Some(1);
        let axes: Vec<(&Dim, &Dim)> =
            self.shape.iter().zip(&self.strides).filter(|(d, _)| d.as_const() != one).collect();
        let targets: Vec<usize> = (0..shape.len()).filter(|i| shape[*i].as_const() != one).collect();
        // Axes of extent 1 may have any stride.
        let mut strides = vec![Dim::one(); shape.len()];
        let (mut a, mut b) = (0, 0);
        while a < axes.len() || b < targets.len() {
            let (i, j) = smallest_group(&axes[a..], &targets[b..], shape)?;
            let group = axes.get(a..a + i)?;
            for pair in group.windows(2) {
                if *pair[0].1 != pair[1].1.mul(pair[1].0) {
                    return None;
                }
            }
            let mut stride = group.last()?.1.clone();
            for k in targets.get(b..b + j)?.iter().rev() {
                strides[*k] = stride.clone();
                stride = stride.mul(&shape[*k]);
            }
            a += i;
            b += j;
        }
        Some(View { shape: shape.to_vec(), strides, ..self.clone() })
    }
}

/// The smallest `i` and `j`, both at least 1, for which the first `i` axes have as many elements as
/// the first `j` targets.
fn smallest_group(axes: &[(&Dim, &Dim)], targets: &[usize], shape: &[Dim]) -> Option<(usize, usize)> {
    let products = |dims: Vec<&Dim>| {
        let mut out = Vec::new();
        let mut p = Dim::one();
        for d in dims {
            p = p.mul(d);
            out.push(p.clone());
        }
        out
    };
    let have = products(axes.iter().map(|(d, _)| *d).collect());
    let want = products(targets.iter().map(|k| &shape[*k]).collect());
    let mut best: Option<(usize, usize)> = None;
    for (i, p) in have.iter().enumerate() {
        for (j, q) in want.iter().enumerate() {
            if p == q && best.is_none_or(|(x, y)| i + j + 2 < x + y) {
                best = Some((i + 1, j + 1));
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(n: &str) -> Dim {
        Dim::symbol(n)
    }

    fn n(v: i64) -> Dim {
        Dim::from(v)
    }

    fn whole(shape: Vec<Dim>) -> View {
        View::whole(Value::from_u32(0), &TensorType::new(Elem::F32, shape))
    }

    #[test]
    fn heads_of_a_projection_need_no_copy() {
        // "s (n h d) -> n h s d"
        let v = whole(vec![s("S"), n(2304)]);
        let v = v.reshape(&[s("S"), n(3), n(12), n(64)]).unwrap().transpose(&[1, 2, 0, 3]);
        assert_eq!(v.strides, [n(768), n(64), n(2304), n(1)]);
        let q = v.select(0, &n(1));
        assert_eq!((q.offset, q.strides), (n(768), vec![n(64), n(2304), n(1)]));
    }

    #[test]
    fn merging_transposed_axes_needs_a_copy() {
        let v = whole(vec![n(12), s("S"), n(64)]).transpose(&[1, 0, 2]);
        assert_eq!(v.reshape(&[s("S"), n(768)]), None);
        // The same order of axes over storage that was laid out for it does not.
        let stored = whole(vec![s("S"), n(12), n(64)]);
        assert_eq!(stored.reshape(&[s("S"), n(768)]).unwrap().strides, [n(768), n(1)]);
    }

    #[test]
    fn symbolic_groups_are_found() {
        let v = whole(vec![s("B"), s("S"), s("D")]);
        let flat = v.reshape(&[s("B").mul(&s("S")), s("D")]).unwrap();
        assert_eq!(flat.strides, [s("D"), n(1)]);
        let split = v.reshape(&[s("B"), s("S"), s("H"), s("D").div(&s("H")).unwrap()]).unwrap();
        assert_eq!(split.strides, [s("S").mul(&s("D")), s("D"), s("D").div(&s("H")).unwrap(), n(1)]);
    }

    #[test]
    fn slices_and_broadcasts() {
        let v = whole(vec![s("T"), n(8)]).slice(0, &n(2), &s("S"));
        assert_eq!((v.offset.clone(), v.shape[0].clone()), (n(16), s("S").sub(&n(2))));
        assert!(v.is_contiguous() && !v.is_whole());
        let b = whole(vec![n(8)]).broadcast(&[s("S"), n(8)]);
        assert_eq!(b.strides, [n(0), n(1)]);
        assert_eq!(b.reshape(&[s("S").mul(&n(8))]), None);
        // Of three axes the first two are adjacent without gaps, the last two are not; and vice
        // versa.
        let gap = whole(vec![n(2), n(3), n(4)]).slice(2, &n(0), &n(2));
        assert_eq!(gap.reshape(&[n(12)]), None);
        assert_eq!(gap.reshape(&[n(6), n(2)]).unwrap().strides, [n(4), n(1)]);
        let gap = whole(vec![n(2), n(5), n(4)]).slice(1, &n(1), &n(3));
        assert_eq!((gap.reshape(&[n(16)]), gap.offset.clone()), (None, n(4)));
        assert_eq!(gap.reshape(&[n(2), n(8)]).unwrap().strides, [n(20), n(1)]);
        let transposed = whole(vec![n(3), n(4)]).transpose(&[1, 0]);
        assert!(!transposed.is_contiguous() && transposed.transpose(&[1, 0]).is_whole() && !transposed.is_whole());
        let ones = whole(vec![n(1), n(8), n(1)]).reshape(&[n(8)]).unwrap();
        assert_eq!(ones.strides, [n(1)]);
    }
}
