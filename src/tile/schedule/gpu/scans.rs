//! Running sums: kernels in which a thread adds one element after another become three, of which every thread has a part.
//!
//! In: an unscheduled module. Out: the same module; a launch of a kernel of running sums ([`RunningSums`]) is three, where the axis is long enough and
//! there are not so many rows that each multiprocessor has enough to do as it is ([`pays`]). Totals and offsets of chunks lie in slots of their own.
//! Where a result may be written over what is summed, the kernel stays as it is: a block of the last kernel reads elements that another thread of it writes.

use std::collections::BTreeSet;

use super::in_steps::{self, Operand, Steps, When, have_slots, writes_elsewhere};
use crate::tile::scan::{self, CHUNK, RunningSums};
use crate::tile::{Kernel, Module};

/// From so many rows on each is summed by a thread. One after another, an element takes half a microsecond, whatever the number of rows up to
/// there; three launches do 128 times the additions, of which a GPU does 10^13 a second.
const ROWS: i64 = 40_000;

/// Does it; the names of the kernels that are new.
///
/// # Errors
/// As [`in_steps::replace`].
pub(super) fn expand(module: &mut Module) -> Result<BTreeSet<String>, String> {
    in_steps::replace(module, |module, kernel| {
        let found = RunningSums::of_kernel(kernel).filter(pays)?;
        writes_elsewhere(module, kernel).then(|| steps(&found))?
    })
}

/// Is the axis longer than a chunk, as far as is known, and are there few rows?
fn pays(found: &RunningSums) -> bool {
    is_long(found) && rows(found) < ROWS
}

fn is_long(found: &RunningSums) -> bool {
    found.x.shape.get(found.axis).is_some_and(|d| d.as_const().is_none_or(|n| n > CHUNK))
}

/// Rows as far as they are known.
fn rows(found: &RunningSums) -> i64 {
    let shape = found.x.shape.iter().enumerate();
    let rows = shape.filter(|(i, _)| *i != found.axis).map(|(_, d)| d.as_const().unwrap_or(1));
    rows.fold(1, i64::saturating_mul)
}

/// How running sums are added, if a kernel is one of these; if not in chunks, why not.
pub(super) fn form(module: &Module, kernel: &Kernel) -> Option<String> {
    let found = RunningSums::of_kernel(kernel)?;
    let slots = steps(&found)?.slots;
    let why = if !is_long(&found) {
        format!("an axis of at most {CHUNK}")
    } else if rows(&found) >= ROWS {
        format!("{} rows leave no thread idle", rows(&found))
    } else if !writes_elsewhere(module, kernel) {
        "the sums lie where the elements do".to_string()
    } else if !have_slots(module, &kernel.name, &slots) {
        "how many chunks there are is known late".to_string()
    } else {
        return Some(format!("sums of chunks of {CHUNK}, of those before each, and within each, in 3 launches"));
    };
    Some(format!("elements are added one after another, each row by a thread: {why}"))
}

/// The kernels, between which are totals and offsets.
fn steps(found: &RunningSums) -> Option<Steps> {
    let RunningSums { x, axis, out } = found;
    let of_chunks = scan::of_chunks(x, *axis)?;
    let kernels = vec![
        (scan::totals("totals", x, *axis, &of_chunks), vec![Operand::Own(0), Operand::Slot(0)]),
        (scan::offsets("offsets", &of_chunks, *axis), vec![Operand::Slot(0), Operand::Slot(1)]),
        (scan::chunks("sums", x, *axis, &of_chunks, out), vec![Operand::Own(0), Operand::Slot(1), Operand::Own(1)]),
    ];
    Some(Steps { when: When::default(), slots: vec![of_chunks.clone(), of_chunks], kernels })
}
