//! The greatest few of many: only the greatest of each chunk are compared with each other.
//!
//! In: an unscheduled module. Out: the same module; a launch of a kernel that finds the first few elements of an axis, greatest first ([`sort::find`]), is
//! four, where the axis may be long ([`pays`]): ranks within chunks, candidates, their ranks, and the indices of those whose ranks are asked for. What each gives
//! the next lies in slots of its own. Other orders, and shorter axes, have ranks among all ([`super::ranks`]).

use std::collections::BTreeSet;

use super::in_steps::{self, Operand, Steps, When};
use crate::shape::{Dim, Elem};
use crate::tile::sort::{self, CANDIDATES_OF, Found};
use crate::tile::{BufferType, Module, computed, row_major};

/// From so many elements on there are candidates: of fewer, all comparisons take less time than two more launches.
const MANY: i64 = 8 * CANDIDATES_OF;

/// Does it; the names of the kernels that are new.
///
/// # Errors
/// As [`in_steps::replace`].
pub(super) fn expand(module: &mut Module) -> Result<BTreeSet<String>, String> {
    in_steps::replace(module, |_, kernel| sort::find(kernel).filter(pays).and_then(|found| steps(&found)))
}

/// Are the greatest few wanted, of many as far as is known?
fn pays(found: &Found) -> bool {
    let is_long = found.x.shape.last().is_some_and(|d| d.as_const().is_none_or(|n| n >= MANY));
    found.room.is_none() && found.descending && is_long
}

/// The kernels, and what is between them.
fn steps(found: &Found) -> Option<Steps> {
    let (length, lead) = found.x.shape.split_last()?;
    let (count, chunks) = (found.out.shape.last()?, sort::chunks(length)?);
    let all = chunks.mul(count);
    let of = |elem: Elem, rest: &[&Dim]| {
        let shape: Vec<Dim> = lead.iter().chain(rest.iter().copied()).cloned().collect();
        BufferType { elem, strides: row_major(&shape), shape }
    };
    let elem = computed(found.x.elem);
    let one = Dim::one();
    let ranks = of(Elem::I32, &[&one, length]);
    let [values, indices] = [elem, Elem::I32].map(|elem| of(elem, &[&chunks, count]));
    // The same, one chunk after another.
    let [flat_values, flat_indices] = [elem, Elem::I32].map(|elem| of(elem, &[&all]));
    let of_candidates = of(Elem::I32, &[&one, &all]);
    let in_chunks = sort::ranks_in_chunks("ranks_in_chunks", &found.x, &ranks)?;
    let candidates = sort::candidates("candidates", &found.x, &ranks, [&values, &indices])?;
    let among_candidates = sort::ranks("ranks", &flat_values, true, &of_candidates)?;
    let chosen = sort::chosen("chosen", &of_candidates, &flat_indices, &found.out)?;
    let kernels = vec![
        (in_chunks, vec![Operand::Own(0), Operand::Slot(0)]),
        (candidates, vec![Operand::Own(0), Operand::Slot(0), Operand::Slot(1), Operand::Slot(2)]),
        (among_candidates, vec![Operand::As(1, flat_values), Operand::Slot(3)]),
        (chosen, vec![Operand::Slot(3), Operand::As(2, flat_indices), Operand::Own(1)]),
    ];
    Some(Steps { when: When::default(), slots: vec![ranks, values, indices, of_candidates], kernels })
}
