//! Tensor types and NumPy's broadcasting rule over symbolic dimensions.

use std::fmt;

use super::{Dim, Elem};

/// Element type and shape of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// The type in which elements are stored.
    pub elem: Elem,
    /// Extents, outermost first. Empty for a scalar.
    pub shape: Vec<Dim>,
}

impl TensorType {
    /// A tensor of this element type and shape.
    pub fn new(elem: Elem, shape: impl Into<Vec<Dim>>) -> TensorType {
        TensorType { elem, shape: shape.into() }
    }

    /// A tensor of rank 0.
    pub fn scalar(elem: Elem) -> TensorType {
        TensorType { elem, shape: Vec::new() }
    }

    /// Number of axes; 0 for a scalar.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The product of the extents.
    pub fn count(&self) -> Dim {
        Dim::product(&self.shape)
    }

    /// The same shape with another element type.
    pub fn with_elem(&self, elem: Elem) -> TensorType {
        TensorType { elem, shape: self.shape.clone() }
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.elem)?;
        for (i, d) in self.shape.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{d}")?;
        }
        f.write_str("]")
    }
}

/// Broadcasts two shapes, right-aligned: equal dimensions stay, a dimension of 1 stretches to the
/// other.
///
/// # Errors
/// The two dimensions that are neither equal nor 1, and their axis counted from the right (0 is the
/// last).
pub fn broadcast(a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>, (Dim, Dim, usize)> {
    let rank = a.len().max(b.len());
    let at = |s: &[Dim], i: usize| s.len().checked_sub(i + 1).and_then(|k| s.get(k)).cloned();
    let mut out = Vec::with_capacity(rank);
    for i in 0..rank {
        out.push(match (at(a, i), at(b, i)) {
            (Some(x), Some(y)) if x == y => x,
            (Some(x), Some(y)) if x.as_const() == Some(1) => y,
            (Some(x), Some(y)) if y.as_const() == Some(1) => x,
            (Some(x), Some(y)) => return Err((x, y, i)),
            (Some(x), None) | (None, Some(x)) => x,
            (None, None) => Dim::one(),
        });
    }
    out.reverse();
    Ok(out)
}
