//! Pending copies: their parts, and how threads wait for them.

use std::collections::{BTreeMap, VecDeque};

/// A contiguous part of a copy between global and shared memory; without a global address it is
/// filled with zeros or NaN.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopySegment {
    pub(super) shared: usize,
    pub(super) global: Option<u64>,
    pub(super) bytes: u32,
    /// Fill value for elements outside of a tensor.
    pub(super) fill: u64,
}

/// A copy to shared memory that completes at an mbarrier.
pub(super) struct Pending {
    pub(super) parts: Vec<CopySegment>,
    /// Index of the block, and address of the mbarrier.
    pub(super) at: (u32, u32),
    pub(super) epoch: u32,
    pub(super) bytes: u32,
    pub(super) pc: u32,
    pub(super) warp: u32,
    /// Arrival cycle in the timing model.
    pub(super) due: u64,
}

impl Pending {
    pub(super) fn mbarrier(&self) -> Option<(u32, u32)> {
        Some(self.at)
    }
}

/// A copy that its thread waits for by groups.
pub(super) struct Small {
    pub(super) parts: Vec<CopySegment>,
    /// Data already read from shared memory, to be written to global memory.
    pub(super) taken: Option<Vec<u64>>,
    /// Element type of a reduction; `None` for a plain store.
    pub(super) adds: Option<crate::ptx::Type>,
}

/// Copies of a kind that a thread has issued.
#[derive(Default)]
pub(super) struct Groups {
    pub(super) open: Vec<Small>,
    pub(super) closed: VecDeque<Vec<Small>>,
    /// Number of committed groups.
    pub(super) count: u32,
}

/// Pending copies of a warp's threads.
#[derive(Default)]
pub(super) struct Copies {
    pub(super) loads: BTreeMap<u32, Groups>,
    pub(super) stores: BTreeMap<u32, Groups>,
}

/// Splits a shared memory address of a cluster: rank of the block (`None` for its own), and address
/// within it.
pub(super) fn split(address: u64) -> (Option<u32>, u32) {
    let address = address as u32;
    ((address >> 24).checked_sub(1), address & 0xff_ffff)
}

/// Maps an address to a block of the cluster.
pub(super) fn remote(address: u32, rank: u32) -> u64 {
    u64::from((rank + 1) << 24 | address & 0xff_ffff)
}
