//! Conditions on dimensions, evaluated with the dimensions that are bound.
//!
//! In: a condition, and values of dimensions. Out: whether it holds, or what must be checked on
//! entry. This must not know where a condition comes from.

use std::collections::BTreeMap;

use super::{LowerError, Res};
use crate::diagnostics::codes::dimensions;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::shape::{Dim, Fact, Relation};
use crate::types::typed::Condition;

/// Result of evaluating a condition.
pub(super) enum Decision {
    Holds,
    /// It does not hold; the error has been reported.
    Fails,
    /// It depends on run-time dimensions, and must be checked on entry.
    Open(Fact),
}

/// Evaluates a condition with the bound dimensions.
pub(super) fn decide(
    condition: &Condition,
    dims: &BTreeMap<String, Dim>,
    diagnostics: &mut Diagnostics,
) -> Res<Decision> {
    let fact = &condition.fact;
    let labels = |mut diagnostic: Diagnostic| {
        for span in &condition.through {
            diagnostic = diagnostic.also(*span, "needed here");
        }
        diagnostic
    };
    let Some(bound) = fact.substitute(&|name| dims.get(name).cloned()) else {
        let message = format!("`{fact}` divides by zero with the values that are bound");
        diagnostics.push(labels(Diagnostic::error(dimensions::DIVISION_BY_ZERO, message).at(condition.span, "")));
        return Err(LowerError::Reported);
    };
    match bound.decide() {
        // A name fixed by an equality has been replaced by the other side, so the equality holds.
        None if bound.relation == Relation::Eq && bound.left == bound.right => Ok(Decision::Holds),
        Some(true) => Ok(Decision::Holds),
        // A quotient that is not an integer satisfies no condition.
        None if !(bound.left.is_const() && bound.right.is_const()) => Ok(Decision::Open(bound)),
        Some(false) | None => {
            let diagnostic =
                Diagnostic::error(dimensions::WHERE_VIOLATED, format!("`{}` does not hold", fact.as_written()))
                    .at(condition.span, sides(fact, &bound));
            diagnostics.push(labels(diagnostic).help("bind other values with `--dim NAME=VALUE`"));
            Ok(Decision::Fails)
        }
    }
}

/// `D is 10, H is 3`
fn sides(fact: &Fact, bound: &Fact) -> String {
    let mut parts = Vec::new();
    for (name, value) in [(&fact.left, &bound.left), (&fact.right, &bound.right)] {
        if !name.is_const() {
            parts.push(format!("{name} is {value}"));
        }
    }
    parts.join(", ")
}
