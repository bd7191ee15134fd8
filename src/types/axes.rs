//! Shapes in the type checker: dimensions and at most one `..`, and how two shapes broadcast.
//!
//! In: shapes of operands. Out: the shape of the result, or the two dimensions that do not match.
//! The `..` of a function is one opaque list of dimensions, the same in all its arguments, so two
//! `..` are always equal, and nothing but `..` equals it. Nothing here knows of source texts or
//! messages.

use std::fmt;

use crate::shape::Dim;

/// One entry of a shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Axis {
    /// `..`: the leading dimensions of the function's arguments, any number of them.
    Rest,
    /// A single dimension.
    Dim(Dim),
}

impl Axis {
    /// The dimension, unless this is `..`.
    pub fn dim(&self) -> Option<&Dim> {
        match self {
            Axis::Rest => None,
            Axis::Dim(dim) => Some(dim),
        }
    }

    /// Is this the constant 1?
    pub fn is_one(&self) -> bool {
        self.dim().and_then(Dim::as_const) == Some(1)
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Axis::Rest => f.write_str(".."),
            Axis::Dim(dim) => write!(f, "{dim}"),
        }
    }
}

/// The axes of a tensor, outermost first; at most one of them is `..`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Outermost first.
    pub axes: Vec<Axis>,
}

/// Why two shapes do not broadcast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// Two dimensions of one axis are neither equal nor 1.
    Dims {
        /// In the left shape.
        left: Dim,
        /// In the right shape.
        right: Dim,
        /// Index of the axis, counted from the right; 0 is the last.
        from_right: usize,
    },
    /// A dimension is aligned with the `..` of the other shape, so it is not known which axes
    /// correspond.
    Rest,
}

impl Shape {
    /// The shape of rank 0.
    pub fn scalar() -> Shape {
        Shape::default()
    }

    /// A shape without `..`.
    pub fn from_dims(dims: impl IntoIterator<Item = Dim>) -> Shape {
        Shape { axes: dims.into_iter().map(Axis::Dim).collect() }
    }

    /// Number of entries, `..` counted as one.
    pub fn rank(&self) -> usize {
        self.axes.len()
    }

    /// Does the shape have no axes?
    pub fn is_scalar(&self) -> bool {
        self.axes.is_empty()
    }

    /// The index of `..`.
    pub fn rest(&self) -> Option<usize> {
        self.axes.iter().position(|axis| *axis == Axis::Rest)
    }

    /// The index of an axis that a program numbers: `0` is the first, `-1` the last. `None` if
    /// there is no such axis, or if `..` makes it unknown.
    pub fn axis(&self, number: i64) -> Option<usize> {
        let len = self.axes.len();
        let (at, seen) = if number >= 0 {
            let at = usize::try_from(number).ok()?;
            (at, self.axes.get(..at.checked_add(1)?)?)
        } else {
            let at = len.checked_sub(usize::try_from(number.unsigned_abs()).ok()?)?;
            (at, self.axes.get(at..)?)
        };
        seen.iter().all(|axis| *axis != Axis::Rest).then_some(at)
    }

    /// The dimension of an axis found by [`Shape::axis`].
    pub fn dim(&self, at: usize) -> Option<&Dim> {
        self.axes.get(at).and_then(Axis::dim)
    }

    /// The index of an axis once `..` is expanded to `rest` axes; for `..` itself, the index of the
    /// first of them.
    pub fn expanded_axis(&self, at: usize, rest: usize) -> usize {
        match self.rest() {
            Some(place) if place < at => at - 1 + rest,
            Some(_) | None => at,
        }
    }

    /// The shape with the dimension of one axis replaced.
    pub fn with(&self, at: usize, dim: Dim) -> Shape {
        let mut out = self.clone();
        if let Some(axis) = out.axes.get_mut(at) {
            *axis = Axis::Dim(dim);
        }
        out
    }

    /// The shape without one axis.
    pub fn without(&self, at: usize) -> Shape {
        let mut out = self.clone();
        if at < out.axes.len() {
            out.axes.remove(at);
        }
        out
    }

    /// The shape without the last `n` axes, and these; `None` if `..` is among them, or there are
    /// too few.
    pub fn split_last(&self, n: usize) -> Option<(Shape, Vec<Dim>)> {
        let at = self.axes.len().checked_sub(n)?;
        let (front, back) = self.axes.split_at(at);
        let back: Option<Vec<Dim>> = back.iter().map(|axis| axis.dim().cloned()).collect();
        Some((Shape { axes: front.to_vec() }, back?))
    }

    /// The shape with axes appended.
    pub fn followed_by(mut self, dims: impl IntoIterator<Item = Dim>) -> Shape {
        self.axes.extend(dims.into_iter().map(Axis::Dim));
        self
    }

    /// Replaces symbols in all dimensions, and `..` by a list of axes.
    pub fn substitute(&self, rest: &[Axis], f: &dyn Fn(&str) -> Option<Dim>) -> Option<Shape> {
        let mut axes = Vec::with_capacity(self.axes.len());
        for axis in &self.axes {
            match axis {
                Axis::Rest => axes.extend(rest.iter().cloned()),
                Axis::Dim(dim) => axes.push(Axis::Dim(dim.substitute(f)?)),
            }
        }
        Some(Shape { axes })
    }

    /// Broadcasts two shapes by NumPy's rule, right-aligned: equal dimensions stay, a dimension of
    /// 1 stretches to the other.
    ///
    /// # Errors
    /// The first mismatch, from the right.
    pub fn broadcast(&self, other: &Shape) -> Result<Shape, Misfit> {
        match (self.rest(), other.rest()) {
            (None, None) => Ok(Shape { axes: broadcast_dims(&self.axes, &other.axes, 0)? }),
            (Some(at), None) => with_rest(self, at, other, false),
            (None, Some(at)) => with_rest(other, at, self, true),
            (Some(a), Some(b)) => {
                let ((a_front, a_back), (b_front, b_back)) = (around(self, a), around(other, b));
                let mut back = broadcast_dims(a_back, b_back, 0)?;
                if a_back.len() != b_back.len() {
                    return Err(Misfit::Rest);
                }
                let mut axes = broadcast_dims(a_front, b_front, a_back.len() + 1)?;
                axes.push(Axis::Rest);
                axes.append(&mut back);
                Ok(Shape { axes })
            }
        }
    }
}

/// The axes before and after `..`.
fn around(shape: &Shape, at: usize) -> (&[Axis], &[Axis]) {
    (shape.axes.get(..at).unwrap_or_default(), shape.axes.get(at + 1..).unwrap_or_default())
}

/// Broadcasts a shape with `..` at `at` and one without. `swapped` means that the latter is the
/// left one.
fn with_rest(shape: &Shape, at: usize, plain: &Shape, swapped: bool) -> Result<Shape, Misfit> {
    let (front, back) = around(shape, at);
    let mut joined =
        if swapped { broadcast_dims(&plain.axes, back, 0)? } else { broadcast_dims(back, &plain.axes, 0)? };
    if joined.len() > back.len() {
        return Err(Misfit::Rest);
    }
    let mut axes = front.to_vec();
    axes.push(Axis::Rest);
    axes.append(&mut joined);
    Ok(Shape { axes })
}

/// NumPy's rule for axes without `..`, with `skipped` axes to the right of them. Dimensions beyond
/// the end of the shorter list stay.
fn broadcast_dims(a: &[Axis], b: &[Axis], skipped: usize) -> Result<Vec<Axis>, Misfit> {
    let len = a.len().max(b.len());
    let at = |axes: &[Axis], i: usize| axes.len().checked_sub(i + 1).and_then(|k| axes.get(k)).cloned();
    let mut out = Vec::with_capacity(len);
    for i in 0..len {
        out.push(match (at(a, i), at(b, i)) {
            (Some(x), Some(y)) if x == y || y.is_one() => x,
            (Some(x), Some(y)) if x.is_one() => y,
            (Some(Axis::Dim(left)), Some(Axis::Dim(right))) => {
                return Err(Misfit::Dims { left, right, from_right: skipped + i });
            }
            (Some(_), Some(_)) => return Err(Misfit::Rest),
            (Some(x), None) | (None, Some(x)) => x,
            (None, None) => continue,
        });
    }
    out.reverse();
    Ok(out)
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, axis) in self.axes.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{axis}")?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `.. S 1` as a shape.
    fn shape(text: &str) -> Shape {
        let axis = |word: &str| match word {
            ".." => Axis::Rest,
            _ => Axis::Dim(word.parse::<i64>().map_or_else(|_| Dim::symbol(word), Dim::from)),
        };
        Shape { axes: text.split_whitespace().map(axis).collect() }
    }

    #[test]
    fn broadcasting_with_rest() {
        for (a, b, joined) in [
            ("S D", "D", "[S, D]"),
            ("S 1", "D", "[S, D]"),
            (".. D", "D", "[.., D]"),
            ("D", ".. S D", "[.., S, D]"),
            (".. S D", ".. 1 D", "[.., S, D]"),
            ("3 .. S", ".. S", "[3, .., S]"),
            (".. S", "1", "[.., S]"),
            ("", ".. S", "[.., S]"),
        ] {
            assert_eq!(shape(a).broadcast(&shape(b)).map(|s| s.to_string()), Ok(joined.to_string()), "{a} | {b}");
        }
        assert_eq!(shape(".. H S T").broadcast(&shape(".. S T")), Err(Misfit::Rest));
        assert_eq!(shape(".. D").broadcast(&shape("B D")), Err(Misfit::Rest));
        assert_eq!(shape(".. D").broadcast(&shape("1 D")), Err(Misfit::Rest));
        let misfit = Misfit::Dims { left: Dim::symbol("S"), right: Dim::symbol("D"), from_right: 0 };
        assert_eq!(shape("S").broadcast(&shape("D")), Err(misfit));
    }

    #[test]
    fn axes_by_number() {
        let x = shape("3 .. S D");
        assert_eq!(x.axis(0), Some(0));
        assert_eq!(x.axis(1), None);
        assert_eq!(x.axis(-1), Some(3));
        assert_eq!(x.axis(-2), Some(2));
        assert_eq!(x.axis(-3), None);
        assert_eq!(shape("A B").axis(-3), None);
        assert_eq!(shape("A B").axis(i64::MIN), None);
        assert_eq!(shape("A B").axis(i64::MAX), None);
        assert_eq!(x.split_last(2).map(|(front, _)| front.to_string()), Some("[3, ..]".to_string()));
        assert_eq!(x.split_last(3), None);
    }
}
