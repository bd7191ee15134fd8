//! Explanations of type mismatches.
//!
//! In: a diagnostic, the actual and the expected type. Out: the diagnostic with the dimensions that
//! differ, and suggestions.

use super::axes::Shape;
use super::dims::DimScope;
use super::typed::Tensor;
use super::values::Ty;
use crate::diagnostics::Diagnostic;
use crate::shape::Dim;

/// Adds explanations to a message about a type mismatch: the dimensions that differ, and
/// suggestions.
pub(super) fn type_misfit(mut diagnostic: Diagnostic, have: &Ty, want: &Ty, scope: &DimScope) -> Diagnostic {
    let (Ty::Tensor(have), Ty::Tensor(want)) = (have, want) else {
        if let (Ty::Dim(_) | Ty::Float, Ty::Tensor(want)) = (have, want)
            && !want.shape.is_scalar()
        {
            diagnostic = diagnostic.help(format!("`full<{}>(value, {})` has that shape", want.elem, want.shape));
        }
        return diagnostic;
    };
    if have.elem != want.elem {
        diagnostic = diagnostic.help(format!("convert the elements: `cast<{}>(..)`", want.elem));
    }
    if have.shape == want.shape {
        return diagnostic;
    }
    let mut differing: Vec<Dim> = Vec::new();
    if have.shape.rank() == want.shape.rank() {
        for (a, b) in have.shape.axes.iter().zip(&want.shape.axes) {
            if a != b {
                let told = a.dim().zip(b.dim()).is_some_and(|(a, b)| differing.contains(a) && differing.contains(b));
                differing.extend([a.dim().cloned(), b.dim().cloned()].into_iter().flatten());
                diagnostic = match (a.dim(), b.dim()) {
                    (Some(a), Some(b)) if !told => diagnostic.note(scope.differ(a, b)),
                    _ => diagnostic,
                };
            }
        }
        let transposed = |shape: &Shape| -> Option<Shape> {
            let (front, back) = shape.split_last(2)?;
            Some(front.followed_by(back.into_iter().rev()))
        };
        if transposed(&have.shape).as_ref() == Some(&want.shape) {
            diagnostic = diagnostic.help("`.T` swaps the last two axes");
        }
    } else {
        diagnostic =
            diagnostic.note(format!("{} has {}, {} has {}", have.shape, axes_of(have), want.shape, axes_of(want)));
    }
    scope.label_origins(diagnostic, &differing)
}

/// The number of axes of a tensor in words: `1 axis`, `2 axes`, `1 axis besides ..`.
pub(super) fn axes_of(tensor: &Tensor) -> String {
    let rest = tensor.shape.rest().is_some();
    let known = tensor.shape.rank().saturating_sub(usize::from(rest));
    let axes = if known == 1 { "1 axis".to_string() } else { format!("{known} axes") };
    if rest { format!("{axes} besides `..`") } else { axes }
}
