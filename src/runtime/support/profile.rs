//! Profiling: the duration of each launch of a session's last call.
//!
//! A launch is identified by its position in the call, which is determined by the plan. Without
//! profiling, a call does not read the clock for it.

use alloc::vec::Vec;

/// A completed launch.
#[derive(Clone, Copy)]
pub(crate) struct Launched {
    /// Grid points.
    pub(crate) points: i64,
    /// Duration in nanoseconds.
    pub(crate) time: i64,
}

/// The launches of the last call.
pub(crate) struct Profile {
    on: bool,
    launches: Vec<Launched>,
}

impl Profile {
    /// Records the launches of each call, or nothing.
    pub(crate) const fn new(on: bool) -> Profile {
        Profile { on, launches: Vec::new() }
    }

    /// The launches of the last call; empty if they were not timed.
    pub(crate) fn launches(&self) -> &[Launched] {
        &self.launches
    }

    /// Called at the start of a call: clears the last one. `None` if profiling is off.
    pub(crate) fn begin(&mut self) -> Option<&mut Vec<Launched>> {
        self.launches.clear();
        self.on.then_some(&mut self.launches)
    }
}
