//! The GPU part of a session: a stream, states, and memory that calls reuse.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::CStr;

use super::device::Gpu;
use super::driver::{self, Address};
use super::graphs::Graphs;
use super::memory::{DeviceBuffer, OwnStream, Queue, aligned};
use super::tape::Tape;
use super::upload::Loaded;
use crate::abi::ModelDesc;
use crate::abi::cuda::fault;
use crate::bind::{self, Bound};
use crate::error::Result;
use crate::sys;

/// See the head of this file.
pub(crate) struct Session {
    /// Intermediate results.
    pub(crate) arena: Option<DeviceBuffer>,
    /// Arguments and results that are in host memory, and taps.
    pub(crate) staging: Option<DeviceBuffer>,
    /// Where kernels report an index out of range; all zero between calls.
    pub(crate) fault: DeviceBuffer,
    /// All states, and the offset and size of each.
    states: Option<DeviceBuffer>,
    state_bytes: u64,
    pub(crate) state_data: Vec<*mut u8>,
    own: OwnStream,
    /// The caller's stream, used instead of the session's own.
    theirs: Option<driver::Stream>,
    /// Wait after each launch, so that an error names its kernel.
    pub(crate) each: bool,
    pub(crate) timer: Option<Timer>,
    /// Launches of the current call, and the graphs of earlier ones.
    pub(crate) tape: Tape,
    pub(crate) graphs: Graphs,
    pub(crate) gpu: Arc<Gpu>,
}

impl Session {
    /// A new session with its initial states.
    pub(crate) fn new(loaded: &Loaded, model: &ModelDesc) -> Result<Session> {
        let gpu = &loaded.gpu;
        let _entered = gpu.enter()?;
        let none = Bound { lead: Vec::new(), dims: Vec::new() };
        let (mut offsets, mut state_bytes) = (Vec::new(), 0u64);
        for s in model.states.get() {
            offsets.push(state_bytes);
            let bytes = bind::bytes(&none.shape(false, s.dims.get())?, s.elem)?;
            state_bytes = state_bytes.saturating_add(aligned(bytes));
        }
        let states = if state_bytes > 0 { Some(DeviceBuffer::new(gpu, state_bytes, "the states")?) } else { None };
        // Not null even if a state is empty.
        let base = states.as_ref().map_or(super::memory::ALIGN, DeviceBuffer::address);
        let state_data = offsets.iter().map(|o| core::ptr::without_provenance_mut((base + o) as usize)).collect();
        let fault = DeviceBuffer::new(gpu, fault::BYTES, "the error report")?;
        let own = OwnStream::new(gpu)?;
        let each = is_on(c"ATTNC_SYNC", false);
        let session = Session {
            arena: None,
            staging: None,
            fault,
            states,
            state_bytes,
            state_data,
            own,
            theirs: None,
            each,
            timer: None,
            tape: Tape::default(),
            graphs: Graphs::new(gpu, !each && is_on(c"ATTNC_CUDA_GRAPHS", true)),
            gpu: gpu.clone(),
        };
        session.clear_fault()?;
        session.begin(loaded, model)?;
        session.queue().wait("a new session")?;
        drop(_entered);
        Ok(session)
    }

    /// The stream used by calls.
    pub(crate) fn stream(&self) -> driver::Stream {
        self.theirs.unwrap_or(self.own.get())
    }

    /// Sets the stream used by calls; `None` is the session's own. Between calls no work of the
    /// session is queued, so there is no need to wait for the previous stream, which its owner may
    /// have destroyed.
    pub(crate) fn use_stream(&mut self, stream: Option<driver::Stream>) {
        self.theirs = stream;
    }

    /// The queue used by calls.
    pub(crate) fn queue(&self) -> Queue<'_> {
        Queue { gpu: &self.gpu, stream: self.stream() }
    }

    /// Sets all states to their initial values.
    pub(crate) fn reset(&self, loaded: &Loaded, model: &ModelDesc) -> Result<()> {
        let _entered = self.gpu.enter()?;
        self.begin(loaded, model)?;
        self.queue().wait("the states")
    }

    /// Zeroes all states, then copies the parameters into the states with their names.
    fn begin(&self, loaded: &Loaded, model: &ModelDesc) -> Result<()> {
        let Some(states) = &self.states else { return Ok(()) };
        // SAFETY: the buffer has this size.
        unsafe { self.queue().clear(states.address(), self.state_bytes, "the states")? };
        let none = Bound { lead: Vec::new(), dims: Vec::new() };
        for (s, to) in model.states.get().iter().zip(&self.state_data) {
            let at = model.params.get().iter().position(|p| p.pattern.get() == s.name.get());
            let tensors = at.and_then(|at| loaded.tables().get(at)).map_or(&[][..], Vec::as_slice);
            let each = bind::bytes(&none.shape(false, s.dims.get())?, s.elem)? / (tensors.len() as u64).max(1);
            for (i, from) in tensors.iter().enumerate() {
                let to = to.addr() as u64 + i as u64 * each;
                // SAFETY: the state has the type of all tensors together, one after another.
                unsafe { self.queue().copy_within(to, from.addr() as u64, each, "the states")? };
            }
        }
        Ok(())
    }

    /// Clears the kernels' report.
    pub(crate) fn clear_fault(&self) -> Result<()> {
        // SAFETY: the buffer has this size.
        unsafe { self.queue().clear(self.fault.address(), fault::BYTES, "the error report") }
    }

    /// Copies from the GPU and waits.
    ///
    /// # Safety
    /// `from` has `bytes` bytes in GPU memory, `to` in host memory.
    pub(crate) unsafe fn copy_to_host(&self, from: Address, to: *mut u8, bytes: u64, what: &str) -> Result<()> {
        let _entered = self.gpu.enter()?;
        // SAFETY: by the contract above.
        unsafe { self.queue().copy_out(to, from, bytes, what)? };
        self.queue().wait(what)
    }

    /// Copies to the GPU and waits.
    ///
    /// # Safety
    /// `to` has `bytes` bytes in GPU memory, `from` in host memory.
    pub(crate) unsafe fn copy_from_host(&self, to: Address, from: *const u8, bytes: u64, what: &str) -> Result<()> {
        let _entered = self.gpu.enter()?;
        // SAFETY: by the contract above.
        unsafe { self.queue().copy_in(to, from, bytes, what)? };
        self.queue().wait(what)
    }

    /// Creates a timer for launches. The context must be current.
    pub(crate) fn new_timer(gpu: &Arc<Gpu>) -> Result<Timer> {
        // `Drop` destroys the events, also if the second cannot be created.
        let mut timer = Timer { events: [core::ptr::null_mut(); 2], gpu: gpu.clone() };
        for event in &mut timer.events {
            // SAFETY: an out pointer for an event.
            gpu.check(unsafe { (gpu.driver.create_event)(event, 0) }, "an event of the GPU")?;
        }
        Ok(timer)
    }
}

/// Is a switch in the environment on? Any value except `0` is.
fn is_on(name: &CStr, otherwise: bool) -> bool {
    sys::variable(name).map_or(otherwise, |value| value != "0")
}

/// Two events around a launch.
pub(crate) struct Timer {
    events: [driver::Event; 2],
    gpu: Arc<Gpu>,
}

impl Timer {
    /// Records the first event, before a launch.
    pub(crate) fn start(&self, stream: driver::Stream) -> Result<()> {
        // SAFETY: an event and a stream that are there.
        self.gpu.check(unsafe { (self.gpu.driver.record_event)(self.events[0], stream) }, "timing")
    }

    /// Records the second event and waits; returns nanoseconds since the first.
    pub(crate) fn stop(&self, stream: driver::Stream) -> Result<i64> {
        let mut milliseconds = 0f32;
        // SAFETY: events and a stream that are there; an out pointer for a number.
        unsafe {
            self.gpu.check((self.gpu.driver.record_event)(self.events[1], stream), "timing")?;
            self.gpu.check((self.gpu.driver.wait_for_event)(self.events[1]), "timing")?;
            let code = (self.gpu.driver.elapsed)(&mut milliseconds, self.events[0], self.events[1]);
            self.gpu.check(code, "timing")?;
        }
        Ok((f64::from(milliseconds) * 1e6) as i64)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(_entered) = self.gpu.enter_to_free() {
            for event in self.events.into_iter().filter(|event| !event.is_null()) {
                // SAFETY: created once and no longer used.
                unsafe { (self.gpu.driver.destroy_event)(event) };
            }
        }
    }
}
