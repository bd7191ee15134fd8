//! One call: memory for the plan, the plan itself, and what it reports.

use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::abi::{EntryDesc, Kernel, ModelDesc, Plan, PlanContext, PlanDesc, VariantDesc};
use crate::bind::Bound;
use crate::cpu::DefaultMode;
use crate::error::{Error, Result, Status, fail};
use crate::expr::eval;
use crate::sys::Buffer;
use crate::weights::Weights;

/// What a session keeps between calls.
pub(crate) struct Memory {
    arena: Buffer,
    scratch: Buffer,
    states: Vec<Buffer>,
    state_data: Vec<*mut u8>,
}

impl Memory {
    /// For a new session: states are zero.
    pub(crate) fn new(model: &ModelDesc) -> Result<Memory> {
        let (mut states, mut state_data) = (Vec::new(), Vec::new());
        let none = Bound { lead: Vec::new(), dims: Vec::new() };
        for s in model.states.get() {
            let bytes = crate::bind::bytes(&none.shape(false, s.dims.get())?, s.elem)?;
            let Some(buffer) = Buffer::zeroed(bytes) else {
                return Err(Error::memory(bytes, &alloc::format!("state `{}`", s.name.get())));
            };
            state_data.push(buffer.pointer());
            states.push(buffer);
        }
        Ok(Memory { arena: Buffer::empty(), scratch: Buffer::empty(), states, state_data })
    }

    /// Sets every state to zero.
    pub(crate) fn reset(&mut self) {
        for s in &mut self.states {
            s.clear();
        }
    }
}

/// The first error that generated code reported.
struct Report {
    taken: AtomicBool,
    site: i64,
    values: [i64; 3],
}

/// All that a plan is run with.
pub(crate) struct Call<'a> {
    pub(crate) model: &'a ModelDesc,
    pub(crate) variant: &'a VariantDesc,
    pub(crate) entry: &'a EntryDesc,
    pub(crate) plan: &'a PlanDesc,
    pub(crate) weights: &'a Weights,
    pub(crate) packed: &'a Buffer,
    pub(crate) bound: &'a Bound,
    pub(crate) data: Data<'a>,
}

/// The memory of a call that generated code gets from outside.
#[derive(Clone, Copy)]
pub(crate) struct Data<'a> {
    pub(crate) args: &'a [*const u8],
    pub(crate) outs: &'a [*mut u8],
    /// Empty for a call without taps.
    pub(crate) taps: &'a [*mut u8],
}

/// Runs the entry's plan.
pub(crate) fn run(call: &Call<'_>, memory: &mut Memory) -> Result<()> {
    let tapped = !call.data.taps.is_empty();
    let (plan, arena) =
        if tapped { (call.plan.tapped, call.plan.tapped_arena) } else { (call.plan.plan, call.plan.arena) };
    let Some(plan) = plan else {
        fail!(Internal, "{} has no code in variant {}", call.entry.name.get(), call.variant.name.get())
    };
    let arena = u64::try_from(eval(&arena, &call.bound.dims)?).unwrap_or(0);
    if !memory.arena.reserve(arena) {
        return Err(Error::memory(arena, "what the call computes in between"));
    }
    if !memory.scratch.reserve(call.plan.scratch) {
        return Err(Error::memory(call.plan.scratch, "a kernel's scratch"));
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
        runtime: core::ptr::null_mut(),
    };
    // SAFETY: a plan of this model, with the memory that it says it needs.
    unsafe { execute(plan, context, call.model, call.entry.name.get()) }
}

/// Packs the weights of a model that is being opened.
pub(crate) fn prepare(model: &ModelDesc, variant: &VariantDesc, weights: &Weights) -> Result<Buffer> {
    let Some(plan) = variant.prepare else { return Ok(Buffer::empty()) };
    let Some(packed) = Buffer::new(variant.packed_bytes) else {
        return Err(Error::memory(variant.packed_bytes, "packed weights"));
    };
    let scratch_bytes = variant.entries.get().iter().map(|p| p.scratch).max().unwrap_or(0);
    let Some(scratch) = Buffer::new(scratch_bytes) else {
        return Err(Error::memory(scratch_bytes, "a kernel's scratch"));
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
        runtime: core::ptr::null_mut(),
    };
    // SAFETY: a plan of this model, with the memory that it says it needs.
    unsafe { execute(plan, context, model, "packing weights")? };
    Ok(packed)
}

/// Runs `plan` in the default floating-point mode and turns what it reports into an error.
///
/// # Safety
/// The context has the memory that the plan needs.
unsafe fn execute(plan: Plan, mut context: PlanContext, model: &ModelDesc, name: &str) -> Result<()> {
    let mut reported = Report { taken: AtomicBool::new(false), site: -1, values: [0; 3] };
    context.runtime = (&raw mut reported).cast();
    let mode = DefaultMode::enter();
    // SAFETY: by the contract above.
    let status = unsafe { plan(&mut context) };
    drop(mode);
    if reported.taken.load(Ordering::Acquire) {
        let text =
            usize::try_from(reported.site).ok().and_then(|i| model.sites.get().get(i)).map_or("", |s| s.text.get());
        return Err(Error { status: Status::Range, text: alloc::format!("{name}: {}", fill(text, &reported.values)) });
    }
    if status != 0 || context.failed != 0 {
        fail!(Internal, "{name}: the compiled code failed and did not say why");
    }
    Ok(())
}

/// The text of a site with its values: `{0}`, `{1}`, `{2}`.
fn fill(text: &str, values: &[i64; 3]) -> String {
    let mut out = String::from(text);
    for (mark, value) in ["{0}", "{1}", "{2}"].iter().zip(values) {
        out = out.replace(mark, &alloc::format!("{value}"));
    }
    out
}

/// [`crate::abi::Launch`] on the calling thread.
unsafe extern "C" fn launch(ctx: *mut PlanContext, kernel: Kernel, args: *const u64, total: i64) -> i32 {
    // SAFETY: the plan hands on the context that it was given, and its own kernel with that kernel's arguments.
    unsafe {
        if total > 0 && (*ctx).failed == 0 {
            kernel(args, 0, total, (*ctx).scratch, ctx);
        }
        i32::from((*ctx).failed != 0)
    }
}

/// [`crate::abi::Fail`].
unsafe extern "C" fn report(ctx: *mut PlanContext, site: i64, a: i64, b: i64, c: i64) {
    // SAFETY: `runtime` is the report of `execute`, which is still running.
    unsafe {
        let reported = (*ctx).runtime.cast::<Report>();
        if !(*reported).taken.swap(true, Ordering::AcqRel) {
            (*reported).site = site;
            (*reported).values = [a, b, c];
        }
        (*ctx).failed = 1;
    }
}
