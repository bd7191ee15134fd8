//! Profiling: how long each launch of a session's last call took.
//!
//! A launch is identified by its position in the call, which only the plan decides. Without profiling, a call does not read the
//! clock for it.

use alloc::vec::Vec;

/// A launch that has ended.
#[derive(Clone, Copy)]
pub(crate) struct Launched {
    /// Points of its grid.
    pub(crate) points: i64,
    /// Nanoseconds from its beginning to its end.
    pub(crate) time: i64,
}

/// The launches of the last call.
pub(crate) struct Profile {
    on: bool,
    launches: Vec<Launched>,
}

impl Profile {
    /// One that keeps the launches of each call, or nothing.
    pub(crate) const fn new(on: bool) -> Profile {
        Profile { on, launches: Vec::new() }
    }

    /// The launches of the last call; empty where they were not timed.
    pub(crate) fn launches(&self) -> &[Launched] {
        &self.launches
    }

    /// A call begins: forgets the last one. `None` where nobody asks.
    pub(crate) fn begin(&mut self) -> Option<&mut Vec<Launched>> {
        self.launches.clear();
        self.on.then_some(&mut self.launches)
    }
}
