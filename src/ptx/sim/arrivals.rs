//! State of barriers: named barriers of a block, mbarriers in shared memory, cluster barriers.

use std::rc::Rc;

use super::clock::{Gather, Know, Label};

#[derive(Default)]
pub(super) struct Barrier {
    /// Threads that it waits for; 0 while no thread has arrived.
    pub(super) expected: u32,
    pub(super) arrived: u32,
    /// Is it a barrier of the whole block?
    pub(super) whole: bool,
    pub(super) warps: Vec<u32>,
    pub(super) gather: Gather,
    /// Waiting `bar.red` warps with their result registers; and the reduction so far.
    pub(super) asks: Vec<(u32, u32)>,
    pub(super) any: bool,
}

pub(super) struct Mbarrier {
    /// Number of mbarriers initialised before it in the block.
    pub(super) number: u32,
    pub(super) count: u32,
    /// Pending arrivals of this phase.
    pub(super) pending: u32,
    /// Pending transaction bytes.
    pub(super) bytes: i64,
    pub(super) phase: u64,
    pub(super) gather: Gather,
    /// Knowledge released by the last completed phase.
    pub(super) done: Rc<Know>,
    pub(super) made_by: Label,
    /// Has its initialisation been made visible to the asynchronous proxy?
    pub(super) shown: bool,
}

/// The barrier of a cluster.
#[derive(Default)]
pub(super) struct ClusterBarrier {
    pub(super) phase: u64,
    pub(super) warps: Vec<(u32, u32)>,
    pub(super) messages: Vec<(u32, Rc<Know>)>,
    pub(super) done: Vec<(u32, Rc<Know>)>,
}

/// Maximum transaction count of an mbarrier.
const MAX_BYTES: i64 = (1 << 20) - 1;

impl Mbarrier {
    /// The epoch of copies that complete in this phase.
    pub(super) fn epoch(&self) -> u32 {
        self.phase as u32 + 1
    }

    /// Completes the phase if nothing is pending; returns whether it did.
    pub(super) fn settle(&mut self) -> bool {
        if self.pending > 0 || self.bytes != 0 {
            return false;
        }
        self.phase += 1;
        self.pending = self.count;
        self.done = Rc::new(self.gather.take());
        true
    }

    pub(super) fn arrive(&mut self) -> Result<(), String> {
        if self.pending == 0 {
            return Err(format!(
                "all {} arrivals of phase {} have happened; this one is too many",
                self.count, self.phase
            ));
        }
        self.pending -= 1;
        Ok(())
    }

    pub(super) fn expect(&mut self, bytes: u32) -> Result<(), String> {
        self.bytes += i64::from(bytes);
        if self.bytes > MAX_BYTES {
            return Err(format!("{} expected bytes; the maximum is {MAX_BYTES}", self.bytes));
        }
        Ok(())
    }
}
