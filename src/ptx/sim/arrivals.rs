//! What barriers have counted: named ones of a block, mbarriers in shared memory, that of a cluster.

use std::rc::Rc;

use super::clock::{Gather, Know, Label};

/// A named barrier.
#[derive(Default)]
pub(super) struct Barrier {
    /// Threads that it waits for; 0 while nobody is there.
    pub(super) expected: u32,
    pub(super) arrived: u32,
    /// Does it wait for the whole block?
    pub(super) whole: bool,
    pub(super) warps: Vec<u32>,
    pub(super) gather: Gather,
    /// Those that ask whether something holds in any thread, with the registers for the answer; and the answer so far.
    pub(super) asks: Vec<(u32, u32)>,
    pub(super) any: bool,
}

/// An mbarrier.
pub(super) struct Mbarrier {
    /// How many were made before it in the block.
    pub(super) number: u32,
    pub(super) count: u32,
    /// Arrivals that are missing in this phase.
    pub(super) pending: u32,
    /// Bytes that are expected and have not come.
    pub(super) bytes: i64,
    pub(super) phase: u64,
    pub(super) gather: Gather,
    /// What was known when the last phase ended.
    pub(super) done: Rc<Know>,
    pub(super) made_by: Label,
    /// Has its maker shown it to the asynchronous proxy?
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

/// Most bytes that an mbarrier counts.
const MOST_BYTES: i64 = (1 << 20) - 1;

impl Mbarrier {
    /// The epoch of copies that complete in this phase.
    pub(super) fn epoch(&self) -> u32 {
        self.phase as u32 + 1
    }

    /// Ends the phase if nothing is missing. Did it?
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
        if self.bytes > MOST_BYTES {
            return Err(format!("{} bytes are expected; at most {MOST_BYTES} can be", self.bytes));
        }
        Ok(())
    }
}
