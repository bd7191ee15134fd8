//! split-scans: replaces serial running sums by three parallel kernels.
//!
//! In: an unscheduled module. Out: the same module, in which a launch of a kernel of running sums
//! ([`RunningSums`]) becomes three, if the axis is long enough and there are not already enough
//! rows for all multiprocessors ([`why_serial`]). Totals and offsets of chunks are in slots. If a
//! result may overwrite the operand, the kernel is unchanged: a block of the last kernel reads
//! elements that other threads write.
//!
//! A running sum is serial as written: each sum needs the one before. But the sum of a chunk does
//! not depend on other chunks. So first all chunks are summed, then the few sums of chunks are
//! added up, and each chunk starts from the sum of the chunks before it:
//!
//! ```text
//! fn f(x: f32[1000]) -> f32[1000] { cumsum(x) }
//! ...
//!   launch @cumsum.0(%0, %1)
//! ->
//! kernel @totals.0(%0: in f32[1000], %1: out f32[8]) grid(%2: ceil(1000, 128)) {
//! ...
//! kernel @offsets.0(%0: in f32[8], %1: out f32[8]) grid(%2: ceil(8, 8)) {
//! ...
//! kernel @sums.0(%0: in f32[1000], %1: in f32[8], %2: out f32[1000]) grid(%3: ceil(1000, 128)) {
//! ...
//!   launch @totals.0(%0, %2)
//!   launch @offsets.0(%2, %3)
//!   launch @sums.0(%0, %3, %1)
//! ```

use super::super::step::{Changed, Log};
use super::in_steps::{self, Operand, Steps, When, have_slots, writes_elsewhere};
use crate::tile::scan::{self, CHUNK, RunningSums};
use crate::tile::{BufferType, Kernel, Machine, Module};

/// With at least this many rows, each is summed by one thread. Serially, an element takes half a
/// microsecond, for any number of rows up to there; three launches do 128 times the additions, of
/// which a GPU does 10^13 per second.
const ROWS: i64 = 40_000;

/// Applies the rewrite; returns the names of the new kernels.
///
/// # Errors
/// As [`in_steps::replace`].
pub(in super::super) fn run(module: &mut Module, _: &Machine, log: &mut Log<'_>) -> Result<Changed, String> {
    in_steps::replace(module, |module, kernel| {
        let found = RunningSums::of_kernel(kernel)?;
        let steps = steps(&found)?;
        let why = why_serial(module, kernel, &found, &steps.slots);
        log.form(
            &kernel.name,
            &match &why {
                None => format!("sums of chunks of {CHUNK}, of those before each, and within each, in 3 launches"),
                Some(why) => format!("elements are added one after another, each row by a thread: {why}"),
            },
        );
        why.is_none().then_some(steps)
    })
}

/// Why running sums are not computed by chunks.
fn why_serial(module: &Module, kernel: &Kernel, found: &RunningSums, slots: &[BufferType]) -> Option<String> {
    let is_long = found.x.shape.get(found.axis).is_some_and(|d| d.as_const().is_none_or(|n| n > CHUNK));
    if !is_long {
        Some(format!("an axis of at most {CHUNK}"))
    } else if rows(found) >= ROWS {
        Some(format!("{} rows leave no thread idle", rows(found)))
    } else if !writes_elsewhere(module, kernel) {
        Some("the sums lie where the elements do".to_string())
    } else {
        (!have_slots(module, &kernel.name, slots)).then(|| "how many chunks there are is known late".to_string())
    }
}

/// The known number of rows.
fn rows(found: &RunningSums) -> i64 {
    let shape = found.x.shape.iter().enumerate();
    let rows = shape.filter(|(i, _)| *i != found.axis).map(|(_, d)| d.as_const().unwrap_or(1));
    rows.fold(1, i64::saturating_mul)
}

/// The replacement kernels, and the slots of totals and offsets between them.
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
