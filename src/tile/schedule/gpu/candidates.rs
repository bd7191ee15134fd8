//! select-candidates: top-k along a long axis selects candidates in each chunk, and then compares
//! only these.
//!
//! In: an unscheduled module. Out: the same module, in which a launch of a top-k kernel along a
//! potentially long axis ([`why_not`]; [`Order`], descending) becomes four: ranks within chunks,
//! candidates, their ranks, and the indices in order of rank. They communicate through slots. Other
//! orders, and shorter axes, use ranks over the whole axis ([`super::ranks`]).
//!
//! Comparing all elements with all others takes n^2 comparisons, most of them with elements that
//! are far from the top. The k greatest elements are among the k greatest of their chunks, so most
//! can be discarded after comparisons within a chunk:
//!
//! ```text
//! fn f(x: f32[5000]) -> i32[2] {
//!     let (_, places) = top_k(x, 2)
//!     places
//! }
//! ...
//! kernel @top.0(%0: in f32[5000], %1: inout i32[2]) computes(sort, descending=true, site=0) {
//! ...
//!   launch @top.0(%0, %1)
//! ->
//!   %6 = view %3 : buf f32[20]
//!   %7 = view %4 : buf i32[20]
//!   launch @ranks_in_chunks.0(%0, %2)
//!   launch @candidates.0(%0, %2, %3, %4)
//!   launch @ranks.0(%6, %5)
//!   launch @chosen.0(%5, %7, %1)
//! ```

use super::super::step::{Changed, Log};
use super::in_steps::{self, Operand, Steps, When, have_slots};
use crate::shape::{Dim, Elem};
use crate::tile::sort::{self, CANDIDATES_OF, Order};
use crate::tile::{BufferType, Machine, Module, computed, row_major};

/// Candidates pay off for at least this many elements: with fewer, all comparisons take less time
/// than two more launches.
const MIN_ELEMENTS: i64 = 8 * CANDIDATES_OF;

/// Applies the rewrite to top-k kernels; returns the names of the new kernels.
///
/// # Errors
/// As [`in_steps::replace`].
pub(in super::super) fn run(module: &mut Module, _: &Machine, log: &mut Log<'_>) -> Result<Changed, String> {
    in_steps::replace(module, |module, kernel| {
        let found = Order::of_kernel(kernel)?;
        let steps = steps(&found)?;
        let late = || "how many candidates there are is known late".to_string();
        let why = why_not(&found).or_else(|| (!have_slots(module, &kernel.name, &steps.slots)).then(late));
        if let Some(why) = why {
            log.note(&kernel.name, &format!("without candidates: {why}"));
            return None;
        }
        let form =
            format!("the greatest of each {CANDIDATES_OF} are candidates, whose ranks are counted, in 4 launches");
        log.form(&kernel.name, &form);
        Some(steps)
    })
}

/// Why there are no candidates.
fn why_not(found: &Order) -> Option<String> {
    let is_long = found.x.shape.last().is_some_and(|d| d.as_const().is_none_or(|n| n >= MIN_ELEMENTS));
    if found.room.is_some() {
        Some("more than a few are wanted".to_string())
    } else if !found.descending {
        Some("the least come first".to_string())
    } else {
        (!is_long).then(|| format!("an axis of less than {MIN_ELEMENTS}"))
    }
}

/// The replacement kernels, and the slots between them.
fn steps(found: &Order) -> Option<Steps> {
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
    // The same, with the chunks merged into one axis.
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
