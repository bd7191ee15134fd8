//! Copies that are under way: what they move, and how they are waited for.

use std::collections::{BTreeMap, VecDeque};

/// A part of global memory that a copy moves to or from a part of shared memory; without an address there is nothing, and zeros
/// or NaN come instead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) shared: usize,
    pub(super) global: Option<u64>,
    pub(super) bytes: u32,
    /// What bytes outside of a tensor become, as one element.
    pub(super) fill: u64,
}

/// A copy to shared memory that completes at an mbarrier.
pub(super) struct Pending {
    pub(super) parts: Vec<Part>,
    /// The block, by its number, and the address of the mbarrier.
    pub(super) at: (u32, u32),
    pub(super) epoch: u32,
    pub(super) bytes: u32,
    /// Who issued it.
    pub(super) pc: u32,
    pub(super) warp: u32,
    /// The cycle at which it arrives, where time passes.
    pub(super) due: u64,
}

impl Pending {
    pub(super) fn mbarrier(&self) -> Option<(u32, u32)> {
        Some(self.at)
    }
}

/// A copy of a thread that it waits for by groups.
pub(super) struct Small {
    pub(super) parts: Vec<Part>,
    /// What is read from shared memory already, to be written to global memory.
    pub(super) taken: Option<Vec<u64>>,
    /// Added to what is there, as elements of this type?
    pub(super) adds: Option<crate::ptx::Type>,
}

/// Copies of a kind that a thread has issued.
#[derive(Default)]
pub(super) struct Groups {
    pub(super) open: Vec<Small>,
    pub(super) closed: VecDeque<Vec<Small>>,
    /// How many groups were closed.
    pub(super) count: u32,
}

/// The copies of a warp's threads.
#[derive(Default)]
pub(super) struct Copies {
    pub(super) loads: BTreeMap<u32, Groups>,
    pub(super) stores: BTreeMap<u32, Groups>,
}

/// An address of shared memory of a cluster: the block's number there, none for the own one, and the address in it.
pub(super) fn split(address: u64) -> (Option<u32>, u32) {
    let address = address as u32;
    ((address >> 24).checked_sub(1), address & 0xff_ffff)
}

/// The address in a block of the cluster.
pub(super) fn remote(address: u32, rank: u32) -> u64 {
    u64::from((rank + 1) << 24 | address & 0xff_ffff)
}
