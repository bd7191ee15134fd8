//! One call: allocates memory for the plan, runs it, and reports its errors.

use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::c_void;

use crate::abi::{EntryDesc, Kernel, ModelDesc, Plan, PlanContext, PlanDesc, VariantDesc};
use crate::ahead::{Next, Turns};
use crate::bind::Bound;
use crate::cuda;
use crate::error::{Error, Result, Status, fail};
use crate::expr::eval;
use crate::float_mode::DefaultMode;
use crate::pool::{Pool, Report, Work};
use crate::profile::{Launched, Profile};
use crate::sys::{Buffer, clock};
use crate::weights::Weights;

/// What a session keeps between calls.
pub(crate) struct Memory {
    arena: Buffer,
    scratch: Buffer,
    states: Vec<Buffer>,
    state_data: Vec<*mut u8>,
    pub(crate) profile: Profile,
    /// Asked in calls whether to continue.
    pub(crate) poll: Option<Poll>,
    /// What it has on a GPU, where its model runs there. Then all memory above is empty.
    pub(crate) cuda: Option<cuda::session::Session>,
    pub(crate) changing: Changing,
}

/// The entry point whose call is changing the session's states, if one is. A call that fails leaves it here: the states are then in
/// part those from before it and in part new, and no call runs until they are set to zero.
pub(crate) struct Changing(Option<&'static str>);

impl Changing {
    /// An entry point, whose arguments were accepted, is about to run.
    pub(crate) fn begin(&mut self, entry: &EntryDesc) -> Result<()> {
        let name = entry.name.get();
        if let Some(failed) = self.0 {
            fail!(States, "{name}: {}", lost(failed));
        }
        self.0 = (entry.sets_states != 0).then_some(name);
        Ok(())
    }

    /// The call was done in full.
    pub(crate) fn end(&mut self) {
        self.0 = None;
    }
}

/// Why no call runs after one of `entry` that failed. (The interpreters say the same.)
fn lost(entry: &str) -> String {
    alloc::format!("the states of this session were lost when a call of `{entry}` failed: reset the session")
}

/// A function of the caller's that says whether a call continues: 0, or anything else to end it.
#[derive(Clone, Copy)]
pub(crate) struct Poll {
    pub(crate) ask: unsafe extern "C" fn(context: *mut c_void) -> i32,
    pub(crate) context: *mut c_void,
}

/// A [`Poll`] during a call.
pub(crate) struct Polling {
    poll: Poll,
    /// Bytes that launches were given since the clock was looked at.
    bytes: i64,
    /// When it was asked last.
    last: i64,
}

impl Polling {
    /// Nanoseconds between two questions.
    const APART: i64 = 50_000_000;
    /// Looking at the clock takes longer than a small launch is worth: it is done once for this many bytes.
    const BYTES: i64 = 256 << 10;
    /// What a launch counts at least.
    const LEAST: i64 = 1 << 10;

    pub(crate) fn new(poll: Poll) -> Polling {
        Polling { poll, bytes: 0, last: clock() }
    }

    /// Shall the call end before a launch that is given this many bytes?
    ///
    /// # Safety
    /// The function may be called now, on this thread.
    pub(crate) unsafe fn ends(&mut self, bytes: i64) -> bool {
        self.bytes = self.bytes.saturating_add(bytes.max(Polling::LEAST));
        if self.bytes < Polling::BYTES {
            return false;
        }
        self.bytes = 0;
        if clock() - self.last < Polling::APART {
            return false;
        }
        // SAFETY: by the contract above.
        let ends = unsafe { (self.poll.ask)(self.poll.context) } != 0;
        self.last = clock();
        ends
    }
}

impl Memory {
    /// For a new session: states are zero.
    pub(crate) fn new(model: &ModelDesc, loaded: Option<&cuda::upload::Loaded>) -> Result<Memory> {
        let (mut states, mut state_data) = (Vec::new(), Vec::new());
        if let Some(loaded) = loaded {
            let session = cuda::session::Session::new(&loaded.gpu, model)?;
            return Ok(Memory { cuda: Some(session), ..Memory::of(states, state_data) });
        }
        let none = Bound { lead: Vec::new(), dims: Vec::new() };
        for s in model.states.get() {
            let bytes = crate::bind::bytes(&none.shape(false, s.dims.get())?, s.elem)?;
            let Some(buffer) = Buffer::zeroed(bytes) else {
                return Err(Error::memory(bytes, &alloc::format!("state `{}`", s.name.get())));
            };
            state_data.push(buffer.pointer());
            states.push(buffer);
        }
        Ok(Memory::of(states, state_data))
    }

    fn of(states: Vec<Buffer>, state_data: Vec<*mut u8>) -> Memory {
        Memory {
            arena: Buffer::empty(),
            scratch: Buffer::empty(),
            states,
            state_data,
            profile: Profile::off(),
            poll: None,
            cuda: None,
            changing: Changing(None),
        }
    }

    /// Sets every state to zero.
    pub(crate) fn reset(&mut self) -> Result<()> {
        for s in &mut self.states {
            s.clear();
        }
        self.cuda.as_ref().map_or(Ok(()), cuda::session::Session::reset)?;
        self.changing.end();
        Ok(())
    }
}

/// What a plan's launches need, after [`PlanContext::runtime`] of the plan's own context.
#[repr(C)]
struct Running<'a> {
    /// First, because kernels that report find only this (`Work::run` gives them a report of their own).
    report: Report,
    pool: &'a Pool,
    /// Has the pool no threads?
    alone: bool,
    stride: usize,
    turns: Turns,
    /// Where launches are timed.
    launched: Option<&'a mut Vec<Launched>>,
    /// Where the caller is asked whether to continue, and whether it has said no.
    polling: Option<Polling>,
    interrupted: bool,
}

/// All that a plan is run with.
pub(crate) struct Call<'a> {
    pub(crate) model: &'a ModelDesc,
    pub(crate) variant: &'a VariantDesc,
    pub(crate) entry: &'a EntryDesc,
    pub(crate) plan: &'a PlanDesc,
    pub(crate) weights: &'a Weights,
    pub(crate) packed: &'a Buffer,
    /// The model on a GPU, where it runs there.
    pub(crate) cuda: Option<&'a cuda::upload::Loaded>,
    /// See [`PlanContext::in_order`].
    pub(crate) in_order: i64,
    pub(crate) pool: &'a Pool,
    pub(crate) bound: &'a Bound,
    pub(crate) data: Data<'a>,
    /// Asked in place of the session's.
    pub(crate) poll: Option<Poll>,
}

/// The memory of a call that generated code gets from outside.
#[derive(Clone, Copy)]
pub(crate) struct Data<'a> {
    pub(crate) args: &'a [*const u8],
    pub(crate) outs: &'a [*mut u8],
    /// Empty for a call without taps.
    pub(crate) taps: &'a [*mut u8],
    /// Bytes of the taps that come first: what is requested, which follows, stays where it is.
    pub(crate) tap_bytes: &'a [u64],
    /// Where arguments and results are.
    pub(crate) args_at: &'a [cuda::copier::At<'a>],
    pub(crate) outs_at: &'a [cuda::copier::At<'a>],
}

/// Runs the entry's plan.
pub(crate) fn run(call: &Call<'_>, memory: &mut Memory) -> Result<()> {
    if let Some(loaded) = call.cuda {
        return cuda::call::run(call, loaded, memory);
    }
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

/// Bytes from one thread's scratch to the next's.
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

/// What some calls want besides.
#[derive(Default)]
struct Extras<'a> {
    /// Where launches are timed.
    launched: Option<&'a mut Vec<Launched>>,
    /// Asked whether the call continues.
    poll: Option<Poll>,
}

/// Runs `plan` in the default floating-point mode and turns what it reports into an error.
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
        fail!(Internal, "{name}: the compiled code failed and did not say why");
    }
    Ok(())
}

/// The error that generated code reported at a site, in a call of `name`.
pub(crate) fn site_error(model: &ModelDesc, name: &str, site: u64, values: &[i64; 3]) -> Error {
    let site = usize::try_from(site).unwrap_or(usize::MAX);
    let text = model.sites.get().get(site).map_or("", |s| s.text.get());
    Error { status: Status::Range, text: alloc::format!("{name}: {}", fill(text, values)) }
}

/// The text of a site with its values: `{0}`, `{1}`, `{2}`.
fn fill(text: &str, values: &[i64; 3]) -> String {
    let mut out = String::from(text);
    for (mark, value) in ["{0}", "{1}", "{2}"].iter().zip(values) {
        out = out.replace(mark, &alloc::format!("{value}"));
    }
    out
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
    // SAFETY: the plan hands on the context that it was given, and its own kernel with that kernel's arguments.
    unsafe {
        let running = (*ctx).runtime.cast::<Running<'_>>();
        if let Some(polling) = &mut (*running).polling
            && polling.ends(bytes)
        {
            (*running).interrupted = true;
            (*ctx).failed = 1;
        }
        let failed = (*ctx).failed != 0;
        // A loop that launches nothing checks whether to continue.
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
            // A launch for which there is no memory is not among them.
            if launched.try_reserve(1).is_ok() {
                launched.push(Launched { points: total.max(0), time: clock() - start });
            }
        }
        i32::from((*ctx).failed != 0)
    }
}

/// [`crate::abi::Fail`]. Keeps the first report.
pub(crate) unsafe extern "C" fn report(ctx: *mut PlanContext, site: i64, a: i64, b: i64, c: i64) {
    // SAFETY: `runtime` is a report, or begins with one, of a plan or kernel that is still running.
    unsafe {
        let report = (*ctx).runtime.cast::<Report>();
        if (*report).site < 0 {
            (*report).site = site.max(0);
            (*report).values = [a, b, c];
        }
        (*ctx).failed = 1;
    }
}
