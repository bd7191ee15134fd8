//! Checks across functions and layers: cycles, and conditions that propagate from callees and
//! sub-layers to their users.
//!
//! In: the items and their checked bodies. Out: for each layer and each function, the conditions
//! that its users must satisfy, over its own names. If the user's facts prove a condition, it is
//! dropped; if they refute it, that is an error; otherwise it becomes a condition of the user.
//! There is no recursion, so a long chain of calls cannot overflow the stack.

use std::collections::BTreeMap;

use super::body::MadeCall;
use super::dims::DimScope;
use super::items::Items;
use super::typed::{Condition, FieldType};
use crate::diagnostics::codes::{dimensions, names, parameters};
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::shape::Dim;
use crate::source::Span;

/// A use of a callee or sub-layer: its index, its dimensions there, and the location.
struct Use<'c> {
    of: usize,
    dims: &'c BTreeMap<String, Dim>,
    span: Span,
}

/// The conditions of each layer.
pub(super) fn layers(items: &Items<'_>, diagnostics: &mut Diagnostics) -> Vec<Vec<Condition>> {
    let uses: Vec<Vec<Use<'_>>> = items
        .layers
        .iter()
        .map(|layer| {
            let fields = layer.fields.iter().flatten();
            let instances = fields.filter_map(|field| match &field.ty {
                FieldType::Param(_) | FieldType::State(_) => None,
                FieldType::Layer(instance) | FieldType::Array(instance, _) => {
                    Some(Use { of: instance.layer.0 as usize, dims: &instance.dims, span: field.span })
                }
            });
            instances.collect()
        })
        .collect();
    let order = order(&uses, |path, span| {
        let names: Vec<&str> =
            path.iter().filter_map(|id| items.layers.get(*id)).map(|layer| layer.ast.name.name.as_str()).collect();
        let Some(first) = names.first() else { return };
        let message = match names.len() {
            1 => format!("the layer `{first}` contains itself"),
            _ => format!("the layer `{first}` contains itself: {} -> {first}", names.join(" -> ")),
        };
        diagnostics.push(
            Diagnostic::error(parameters::LAYER_CYCLE, message)
                .at(span, "infinite recursion")
                .help("repeat a layer with an array: `[Block<D>; L]`"),
        );
    });
    let mut conditions: Vec<Vec<Condition>> = items.layers.iter().map(|layer| layer.own.clone()).collect();
    for id in order {
        let (Some(layer), Some(uses)) = (items.layers.get(id), uses.get(id)) else { continue };
        hand_over(id, uses, &layer.scope, &mut conditions, &[], diagnostics);
    }
    conditions
}

/// The conditions of each function. `calls` and `own` come from the checked bodies.
pub(super) fn functions(
    items: &Items<'_>,
    calls: &[Vec<MadeCall>],
    own: Vec<Vec<Condition>>,
    lengths: &[&[String]],
    diagnostics: &mut Diagnostics,
) -> Vec<Vec<Condition>> {
    let uses: Vec<Vec<Use<'_>>> = calls
        .iter()
        .map(|calls| {
            calls.iter().map(|call| Use { of: call.function.0 as usize, dims: &call.dims, span: call.span }).collect()
        })
        .collect();
    let order = order(&uses, |path, span| {
        let names: Vec<String> = path
            .iter()
            .filter_map(|id| items.functions.get(*id))
            .map(|function| match function.owner {
                Some(owner) => format!("{}.{}", items.layer(owner).ast.name.name, function.ast.name.name),
                None => function.ast.name.name.clone(),
            })
            .collect();
        let Some(first) = names.first() else { return };
        let message = match names.len() {
            1 => format!("the function `{first}` calls itself"),
            _ => format!("the function `{first}` calls itself: {} -> {first}", names.join(" -> ")),
        };
        diagnostics.push(
            Diagnostic::error(names::RECURSION, message).at(span, "infinite recursion").help("repeat with `for`"),
        );
    });
    let mut conditions = own;
    for id in order {
        let (Some(function), Some(uses)) = (items.functions.get(id), uses.get(id)) else { continue };
        hand_over(id, uses, &function.scope, &mut conditions, lengths, diagnostics);
    }
    conditions
}

/// Topological order, users last. Calls `cycle` for each cycle, with its nodes and the use that
/// closes it.
fn order(uses: &[Vec<Use<'_>>], mut cycle: impl FnMut(&[usize], Span)) -> Vec<usize> {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let mut state = vec![State::New; uses.len()];
    let mut order = Vec::with_capacity(uses.len());
    for root in 0..uses.len() {
        if state.get(root) != Some(&State::New) {
            continue;
        }
        // The path from the root, each node with the next use to visit.
        let mut path: Vec<(usize, usize)> = vec![(root, 0)];
        if let Some(slot) = state.get_mut(root) {
            *slot = State::Open;
        }
        while let Some((node, next)) = path.last_mut() {
            let node = *node;
            let Some(used) = uses.get(node).and_then(|uses| uses.get(*next)) else {
                path.pop();
                order.push(node);
                if let Some(slot) = state.get_mut(node) {
                    *slot = State::Done;
                }
                continue;
            };
            *next += 1;
            match state.get(used.of).copied() {
                Some(State::New) => {
                    if let Some(slot) = state.get_mut(used.of) {
                        *slot = State::Open;
                    }
                    path.push((used.of, 0));
                }
                Some(State::Open) => {
                    let from = path.iter().position(|(node, _)| *node == used.of).unwrap_or(0);
                    let nodes: Vec<usize> = path.iter().skip(from).map(|(node, _)| *node).collect();
                    cycle(&nodes, used.span);
                }
                Some(State::Done) | None => {}
            }
        }
    }
    order
}

/// The maximum number of conditions that are kept for one layer or function.
const MAX_CONDITIONS: usize = 256;

fn hand_over(
    id: usize,
    uses: &[Use<'_>],
    scope: &DimScope,
    conditions: &mut [Vec<Condition>],
    lengths: &[&[String]],
    diagnostics: &mut Diagnostics,
) {
    let mut out = conditions.get(id).cloned().unwrap_or_default();
    for used in uses {
        // A condition on a dimension that the callee sets is checked there.
        let inside = lengths.get(used.of).copied().unwrap_or_default();
        let is_own = |condition: &Condition| condition.fact.names_any(inside);
        for condition in conditions.get(used.of).cloned().unwrap_or_default().into_iter().filter(|c| !is_own(c)) {
            let Some(fact) = condition.fact.substitute(&|symbol| used.dims.get(symbol).cloned()) else {
                diagnostics.push(
                    Diagnostic::error(
                        dimensions::DIVISION_BY_ZERO,
                        format!("`{}` divides by zero here", condition.fact.as_written()),
                    )
                    .at(used.span, "")
                    .also(condition.span, "needed here"),
                );
                continue;
            };
            match scope.decide(&fact) {
                Some(true) => {}
                Some(false) => {
                    let shown = condition.fact.as_written();
                    let here = fact.as_written();
                    let mut diagnostic = Diagnostic::error(
                        dimensions::WHERE_VIOLATED,
                        format!("`{here}` does not hold, and is needed here"),
                    )
                    .at(
                        used.span,
                        if here == shown { "used here".to_string() } else { format!("here `{shown}` is `{here}`") },
                    )
                    .also(condition.span, "needed here");
                    for span in &condition.through {
                        diagnostic = diagnostic.also(*span, "through this");
                    }
                    diagnostics.push(diagnostic);
                }
                None if out.len() >= MAX_CONDITIONS || out.iter().any(|known| known.fact == fact) => {}
                None => {
                    let mut through = condition.through.clone();
                    through.insert(0, used.span);
                    out.push(Condition { fact, span: condition.span, through });
                }
            }
        }
    }
    if let Some(slot) = conditions.get_mut(id) {
        *slot = out;
    }
}
