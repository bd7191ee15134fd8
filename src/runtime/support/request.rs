//! What every call has, on a CPU (`call.rs`) and on a GPU (`cuda/call.rs`): the request, what the session keeps between calls, the
//! caller's question whether to continue, and the text of an error that generated code reports.

use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::c_void;

use crate::abi::{EntryDesc, ModelDesc, PlanContext, PlanDesc, VariantDesc};
use crate::bind::Bound;
use crate::cuda::copier::At;
use crate::cuda::session;
use crate::cuda::upload::Loaded;
use crate::error::{Error, Result, Status, fail};
use crate::pool::{Pool, Report};
use crate::profile::Profile;
use crate::sys::{Buffer, clock};
use crate::weights::Weights;

/// What a session keeps between calls.
pub(crate) struct Memory {
    pub(crate) arena: Buffer,
    pub(crate) scratch: Buffer,
    states: Vec<Buffer>,
    pub(crate) state_data: Vec<*mut u8>,
    pub(crate) profile: Profile,
    /// Asked in calls whether to continue.
    pub(crate) poll: Option<Poll>,
    /// What it has on a GPU, where its model runs there. Then all memory above is empty.
    pub(crate) cuda: Option<session::Session>,
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
    pub(crate) fn new(model: &ModelDesc, loaded: Option<&Loaded>) -> Result<Memory> {
        let (mut states, mut state_data) = (Vec::new(), Vec::new());
        if let Some(loaded) = loaded {
            let session = session::Session::new(&loaded.gpu, model)?;
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
            profile: Profile::new(false),
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
        self.cuda.as_ref().map_or(Ok(()), session::Session::reset)?;
        self.changing.end();
        Ok(())
    }
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
    pub(crate) cuda: Option<&'a Loaded>,
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
    pub(crate) args_at: &'a [At<'a>],
    pub(crate) outs_at: &'a [At<'a>],
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
