//! A call on the CPU: allocates memory for the plan, runs it, and reports its errors.

use alloc::vec::Vec;

use crate::abi::{Kernel, ModelDesc, Plan, PlanContext, VariantDesc};
use crate::ahead::{Next, Turns};
use crate::cuda::call as gpu;
use crate::error::{Error, Result, fail};
use crate::expr::eval;
use crate::float_mode::DefaultMode;
use crate::pool::{Pool, Report, Work};
use crate::profile::Launched;
use crate::request::{Call, Memory, Poll, Polling, report, site_error};
use crate::sys::{Buffer, clock};
use crate::weights::Weights;

/// State for a plan's launches, referenced by [`PlanContext::runtime`] of the plan's own context.
#[repr(C)]
struct Running<'a> {
    /// Must be first, because a failing kernel accesses only this (`Work::run` gives each worker a
    /// report of its own).
    report: Report,
    pool: &'a Pool,
    /// The pool has no threads.
    alone: bool,
    stride: usize,
    turns: Turns,
    /// Timed launches, if requested.
    launched: Option<&'a mut Vec<Launched>>,
    /// The caller's poll function, and whether it has ended the call.
    polling: Option<Polling>,
    interrupted: bool,
}

/// Runs the entry's plan.
pub(crate) fn run(call: &Call<'_>, memory: &mut Memory) -> Result<()> {
    if let Some(loaded) = call.cuda {
        return gpu::run(call, loaded, memory);
    }
    let tapped = !call.data.taps.is_empty();
    let (plan, arena) =
        if tapped { (call.plan.tapped, call.plan.tapped_arena) } else { (call.plan.plan, call.plan.arena) };
    let Some(plan) = plan else {
        fail!(Internal, "{} has no code in variant {}", call.entry.name.get(), call.variant.name.get())
    };
    let arena = u64::try_from(eval(&arena, &call.bound.dims)?).unwrap_or(0);
    if !memory.arena.reserve(arena) {
        return Err(Error::memory(arena, "intermediate results"));
    }
    let stride = scratch_stride(call.plan.scratch);
    let scratch = stride.saturating_mul(call.pool.width() as u64);
    if !memory.scratch.reserve(scratch) {
        return Err(Error::memory(scratch, "the kernels' scratch"));
    }
    let context = PlanContext {
        dims: call.bound.dims.as_ptr(),
        args: call.data.args.as_ptr(),
        outs: call.data.outs.as_ptr(),
        params: call.weights.roots(),
        taps: call.data.taps.as_ptr(),
        arena: memory.arena.pointer(),
        scratch: memory.scratch.pointer(),
        packed: call.packed.pointer(),
        states: memory.state_data.as_ptr(),
        launch: Some(launch),
        fail: Some(report),
        failed: 0,
        in_order: call.in_order,
        read: None,
        runtime: core::ptr::null_mut(),
    };
    memory.changing.begin(call.entry)?;
    let poll = call.poll.or(memory.poll);
    let extras = Extras { launched: memory.profile.begin(), poll };
    // SAFETY: a plan of this model, with the memory that it says it needs.
    unsafe { execute(plan, context, call.model, call.entry.name.get(), call.pool, stride, extras) }
}

/// Distance in bytes between the scratch areas of two threads.
fn scratch_stride(bytes: u64) -> u64 {
    bytes.saturating_add(63) & !63
}

/// Packs the weights of a model that is being opened.
pub(crate) fn prepare(model: &ModelDesc, variant: &VariantDesc, weights: &Weights, pool: &Pool) -> Result<Buffer> {
    let Some(plan) = variant.prepare else { return Ok(Buffer::empty()) };
    let Some(packed) = Buffer::new(variant.packed_bytes) else {
        return Err(Error::memory(variant.packed_bytes, "packed weights"));
    };
    let scratch_bytes = variant.entries.get().iter().map(|p| p.scratch).max().unwrap_or(0);
    let stride = scratch_stride(scratch_bytes);
    let scratch_bytes = stride.saturating_mul(pool.width() as u64);
    let Some(scratch) = Buffer::new(scratch_bytes) else {
        return Err(Error::memory(scratch_bytes, "the kernels' scratch"));
    };
    let context = PlanContext {
        dims: core::ptr::null(),
        args: core::ptr::null(),
        outs: core::ptr::null(),
        params: weights.roots(),
        taps: core::ptr::null(),
        arena: core::ptr::null_mut(),
        scratch: scratch.pointer(),
        packed: packed.pointer(),
        states: core::ptr::null(),
        launch: Some(launch),
        fail: Some(report),
        failed: 0,
        in_order: 0,
        read: None,
        runtime: core::ptr::null_mut(),
    };
    // SAFETY: a plan of this model, with the memory that it says it needs.
    unsafe { execute(plan, context, model, "packing weights", pool, stride, Extras::default())? };
    Ok(packed)
}

/// Optional features of a call.
#[derive(Default)]
struct Extras<'a> {
    /// Receives timed launches.
    launched: Option<&'a mut Vec<Launched>>,
    /// Asked whether to continue.
    poll: Option<Poll>,
}

/// Runs `plan` in the default floating-point mode; converts its report to an error.
///
/// # Safety
/// The context has the memory that the plan needs.
unsafe fn execute(
    plan: Plan,
    mut context: PlanContext,
    model: &ModelDesc,
    name: &str,
    pool: &Pool,
    stride: u64,
    extras: Extras<'_>,
) -> Result<()> {
    let alone = !pool.has_threads();
    let Extras { launched, poll } = extras;
    let polling = poll.map(Polling::new);
    let stride = stride as usize;
    let turns = Turns::new();
    let mut running =
        Running { report: Report::NONE, pool, alone, stride, turns, launched, polling, interrupted: false };
    context.runtime = (&raw mut running).cast();
    let mode = DefaultMode::enter();
    // SAFETY: by the contract above.
    let status = unsafe { plan(&mut context) };
    drop(mode);
    let Report { site, values, .. } = running.report;
    if let Ok(site) = u64::try_from(site) {
        return Err(site_error(model, name, site, &values));
    }
    if running.interrupted {
        fail!(Interrupted, "{name}: interrupted");
    }
    if status != 0 || context.failed != 0 {
        fail!(Internal, "{name}: the compiled code failed without reporting an error");
    }
    Ok(())
}

/// [`crate::abi::Launch`].
unsafe extern "C" fn launch(
    ctx: *mut PlanContext,
    kernel: Kernel,
    args: *const u64,
    total: i64,
    bytes: i64,
    next: *const u8,
    next_bytes: i64,
) -> i32 {
    // SAFETY: the plan passes the context that it received, and one of its kernels with matching
    // arguments.
    unsafe {
        let running = (*ctx).runtime.cast::<Running<'_>>();
        if let Some(polling) = &mut (*running).polling
            && polling.ends(bytes)
        {
            (*running).interrupted = true;
            (*ctx).failed = 1;
        }
        let failed = (*ctx).failed != 0;
        // A launch with null arguments only polls.
        if args.is_null() {
            return i32::from(failed);
        }
        let start = if (*running).launched.is_some() { clock() } else { 0 };
        if total > 0 && !failed {
            let hint = Next { start: next, bytes: next_bytes.unsigned_abs() };
            let (next, backward) = (*running).turns.launch(hint, next_bytes < 0);
            let (scratch, stride) = ((*ctx).scratch, (*running).stride);
            let work = Work { kernel, args, start: 0, end: total, scratch, stride, bytes, next, backward };
            let report = if (*running).alone { work.run_all(ctx) } else { (*running).pool.run(ctx, work) };
            if report.site >= 0 {
                (*running).report = report;
                (*ctx).failed = 1;
            }
        }
        if let Some(launched) = &mut (*running).launched {
            // If there is no memory to record a launch, it is omitted.
            if launched.try_reserve(1).is_ok() {
                launched.push(Launched { points: total.max(0), time: clock() - start });
            }
        }
        i32::from((*ctx).failed != 0)
    }
}
