//! Profiling: how long each launch of a session's last call took, and the functions of the interface that return it.
//!
//! A launch is identified by its position in the call, which only the plan decides. Without profiling, a call does not read the
//! clock for it.

use alloc::vec::Vec;

use crate::api::with_session;
use crate::handle::Session;

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
    /// One that keeps nothing.
    pub(crate) const fn off() -> Profile {
        Profile { on: false, launches: Vec::new() }
    }

    /// A call begins: forgets the last one. `None` where nobody asks.
    pub(crate) fn begin(&mut self) -> Option<&mut Vec<Launched>> {
        self.launches.clear();
        self.on.then_some(&mut self.launches)
    }
}

/// Turns the timing of launches on (not 0) or off; what was kept is forgotten.
///
/// # Safety
/// `session` is null or live.
pub(crate) unsafe extern "C" fn attnc_session_profile(session: *mut Session, on: i32) -> i32 {
    // SAFETY: by the contract above.
    unsafe {
        with_session(session, |_, memory| {
            memory.profile = Profile { on: on != 0, launches: Vec::new() };
            Ok(())
        })
    }
}

/// Number of launches of the session's last call; 0 where they were not timed.
///
/// # Safety
/// `session` is null or live.
pub(crate) unsafe extern "C" fn attnc_launch_count(session: *const Session) -> u64 {
    let mut count = 0;
    // SAFETY: by the contract above.
    unsafe {
        with_session(session, |_, memory| {
            count = memory.profile.launches.len() as u64;
            Ok(())
        })
    };
    count
}

/// Nanoseconds that a launch of the session's last call took, or -1 where there is no such launch.
///
/// # Safety
/// `session` is null or live.
pub(crate) unsafe extern "C" fn attnc_launch_nanoseconds(session: *const Session, index: u64) -> i64 {
    // SAFETY: by the contract above.
    unsafe { launched(session, index) }.map_or(-1, |l| l.time)
}

/// Points of the grid of a launch of the session's last call, or -1 where there is no such launch.
///
/// # Safety
/// `session` is null or live.
pub(crate) unsafe extern "C" fn attnc_launch_points(session: *const Session, index: u64) -> i64 {
    // SAFETY: by the contract above.
    unsafe { launched(session, index) }.map_or(-1, |l| l.points)
}

/// # Safety
/// `session` is null or live.
unsafe fn launched(session: *const Session, index: u64) -> Option<Launched> {
    let mut found = None;
    // SAFETY: by the contract above.
    unsafe {
        with_session(session, |_, memory| {
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            found = memory.profile.launches.get(index).copied();
            Ok(())
        })
    };
    found
}
