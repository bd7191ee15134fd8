//! Common parts of calls on a CPU (`call.rs`) and on a GPU (`cuda/call.rs`): the request, the
//! session's memory, polling the caller, and the message of an error reported by generated code.

use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::c_void;

use crate::abi::{EntryDesc, ModelDesc, PlanContext, PlanDesc, VariantDesc};
use crate::bind::Bound;
use crate::cuda::copier::TensorLocation;
use crate::cuda::session;
use crate::cuda::upload::Loaded;
use crate::error::{Error, Result, Status, fail};
use crate::pool::{Pool, Report};
use crate::profile::Profile;
use crate::sys::{Buffer, clock};
use crate::weights::Weights;

/// Memory that a session keeps between calls.
pub(crate) struct Memory {
    pub(crate) arena: Buffer,
    pub(crate) scratch: Buffer,
    states: Vec<Buffer>,
    pub(crate) state_data: Vec<*mut u8>,
    pub(crate) profile: Profile,
    /// Polled during calls.
    pub(crate) poll: Option<Poll>,
    /// The GPU part, if the model runs on a GPU. Then the other memory is empty.
    pub(crate) cuda: Option<session::Session>,
    pub(crate) changing: Changing,
}

/// The entry point whose call is changing the session's states, if any. It remains set if the call
/// fails: the states may then be partly updated, and calls are rejected until they are reset.
pub(crate) struct Changing(Option<&'static str>);

impl Changing {
    /// Fails where the states were lost.
    pub(crate) fn check(&self, what: &str) -> Result<()> {
        match self.0 {
            Some(failed) => fail!(States, "{what}: {}", lost(failed)),
            None => Ok(()),
        }
    }

    /// A call with valid arguments is about to run.
    pub(crate) fn begin(&mut self, entry: &EntryDesc) -> Result<()> {
        let name = entry.name.get();
        self.check(name)?;
        self.0 = (entry.sets_states != 0).then_some(name);
        Ok(())
    }

    /// The call has succeeded.
    pub(crate) fn end(&mut self) {
        self.0 = None;
    }
}

/// The error for calls after a failed call of `entry`. (The interpreters have the same message.)
fn lost(entry: &str) -> String {
    alloc::format!("the states of this session were lost when a call of `{entry}` failed: reset the session")
}

/// A callback that says whether a call continues: 0, or non-zero to end it.
#[derive(Clone, Copy)]
pub(crate) struct Poll {
    pub(crate) ask: unsafe extern "C" fn(context: *mut c_void) -> i32,
    pub(crate) context: *mut c_void,
}

/// State of a [`Poll`] during a call.
pub(crate) struct Polling {
    poll: Poll,
    /// Buffer bytes of launches since the clock was last read.
    bytes: i64,
    /// Time of the last poll.
    last: i64,
}

impl Polling {
    /// Minimum interval between polls, in nanoseconds.
    const APART: i64 = 50_000_000;
    /// Reading the clock takes longer than a small launch, so it is read once for this many bytes.
    const BYTES: i64 = 256 << 10;
    /// Minimum number of bytes that a launch counts as.
    const LEAST: i64 = 1 << 10;

    pub(crate) fn new(poll: Poll) -> Polling {
        Polling { poll, bytes: 0, last: clock() }
    }

    /// Should the call end, before a launch with this many bytes of buffers?
    ///
    /// # Safety
    /// The callback may be called now, on this thread.
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
    /// Memory of a new session, with its initial states.
    pub(crate) fn new(model: &ModelDesc, weights: &Weights, loaded: Option<&Loaded>) -> Result<Memory> {
        let (mut states, mut state_data) = (Vec::new(), Vec::new());
        if let Some(loaded) = loaded {
            let session = session::Session::new(loaded, model)?;
            return Ok(Memory { cuda: Some(session), ..Memory::with_states(states, state_data) });
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
        let memory = Memory::with_states(states, state_data);
        memory.begin(model, weights);
        Ok(memory)
    }

    /// Copies the parameters into the states with their names, which are stacked along the arrays.
    fn begin(&self, model: &ModelDesc, weights: &Weights) {
        for (s, buffer) in model.states.get().iter().zip(&self.states) {
            let at = model.params.get().iter().position(|p| p.pattern.get() == s.name.get());
            let tensors = at.and_then(|at| weights.tables().get(at)).map_or(&[][..], Vec::as_slice);
            let each = buffer.bytes().len() / tensors.len().max(1);
            for (i, tensor) in tensors.iter().enumerate() {
                // SAFETY: the state has the type of all tensors together, one after another.
                unsafe { core::ptr::copy_nonoverlapping(*tensor, buffer.pointer().add(i * each), each) };
            }
        }
    }

    fn with_states(states: Vec<Buffer>, state_data: Vec<*mut u8>) -> Memory {
        Memory {
            arena: Buffer::empty(),
            scratch: Buffer::empty(),
            states,
            state_data,
            profile: Profile::new(false),
            poll: None,
            cuda: None,
            changing: Changing(None),
        }
    }

    /// Sets every state to its initial value.
    pub(crate) fn reset(&mut self, model: &ModelDesc, weights: &Weights, loaded: Option<&Loaded>) -> Result<()> {
        for s in &mut self.states {
            s.clear();
        }
        self.begin(model, weights);
        if let (Some(session), Some(loaded)) = (&self.cuda, loaded) {
            session.reset(loaded, model)?;
        }
        self.changing.end();
        Ok(())
    }
}

/// Everything needed to run a plan.
pub(crate) struct Call<'a> {
    pub(crate) model: &'a ModelDesc,
    pub(crate) variant: &'a VariantDesc,
    pub(crate) entry: &'a EntryDesc,
    pub(crate) plan: &'a PlanDesc,
    pub(crate) weights: &'a Weights,
    pub(crate) packed: &'a Buffer,
    /// The GPU part, if the model runs on a GPU.
    pub(crate) cuda: Option<&'a Loaded>,
    /// See [`PlanContext::in_order`].
    pub(crate) in_order: i64,
    pub(crate) pool: &'a Pool,
    pub(crate) bound: &'a Bound,
    pub(crate) data: Data<'a>,
    /// Polled instead of the session's callback.
    pub(crate) poll: Option<Poll>,
}

/// The memory that generated code receives from the caller.
#[derive(Clone, Copy)]
pub(crate) struct Data<'a> {
    pub(crate) args: &'a [*const u8],
    pub(crate) outs: &'a [*mut u8],
    /// Empty for a call without taps.
    pub(crate) taps: &'a [*mut u8],
    /// Sizes of the leading buffers in `taps`: data and flags. The requests, which follow, stay in
    /// host memory.
    pub(crate) tap_bytes: &'a [u64],
    /// In which memory arguments and results are.
    pub(crate) args_at: &'a [TensorLocation<'a>],
    pub(crate) outs_at: &'a [TensorLocation<'a>],
}

/// The error that generated code reported at a site, in a call of `name`.
pub(crate) fn site_error(model: &ModelDesc, name: &str, site: u64, values: &[i64; 3]) -> Error {
    let site = usize::try_from(site).unwrap_or(usize::MAX);
    let text = model.sites.get().get(site).map_or("", |s| s.text.get());
    Error { status: Status::Range, text: alloc::format!("{name}: {}", fill(text, values)) }
}

/// Substitutes `{0}`, `{1}`, `{2}` in a site's message.
fn fill(text: &str, values: &[i64; 3]) -> String {
    let mut out = String::from(text);
    for (mark, value) in ["{0}", "{1}", "{2}"].iter().zip(values) {
        out = out.replace(mark, &alloc::format!("{value}"));
    }
    out
}

/// [`crate::abi::Fail`]. Keeps the first report.
pub(crate) unsafe extern "C" fn report(ctx: *mut PlanContext, site: i64, a: i64, b: i64, c: i64) {
    // SAFETY: `runtime` points to a report, or to a struct that begins with one, of a running plan
    // or kernel.
    unsafe {
        let report = (*ctx).runtime.cast::<Report>();
        if (*report).site < 0 {
            (*report).site = site.max(0);
            (*report).values = [a, b, c];
        }
        (*ctx).failed = 1;
    }
}
