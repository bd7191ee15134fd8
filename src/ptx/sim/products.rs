//! Pending `wgmma` operations, and their use of registers.

use std::collections::VecDeque;

use super::code::Code;
use crate::ptx::words::{Columns, Wgmma};

#[derive(Clone)]
pub(super) enum Left {
    Registers(Vec<u32>),
    Shared(u64, bool),
}

/// A pending `wgmma`.
#[derive(Clone)]
pub(super) struct PendingWgmma {
    pub(super) columns: u32,
    pub(super) kind: Wgmma,
    pub(super) d: Vec<u32>,
    pub(super) left: Left,
    pub(super) right: u64,
    pub(super) right_transposed: bool,
    pub(super) adds: bool,
    pub(super) negative: bool,
}

/// The `wgmma` state of a warp.
#[derive(Default)]
pub(super) struct Products {
    pub(super) open: Vec<PendingWgmma>,
    pub(super) groups: VecDeque<Vec<PendingWgmma>>,
    /// Committed groups.
    pub(super) count: u32,
    /// Fences so far, plus 1.
    pub(super) fences: u32,
    /// For each register the fence interval in which a thread last accessed it.
    pub(super) touched: Vec<u32>,
    /// For each register the pending group that writes it, or reads it; 0 for none.
    pub(super) result_of: Vec<u32>,
    pub(super) operand_of: Vec<u32>,
    /// For each register the fence interval and shape of the last `wgmma` that wrote it.
    pub(super) shape: Vec<(u32, Columns, Option<Wgmma>)>,
}

/// The `wgmma` sequence of a warpgroup: all its warps must execute the same.
#[derive(Default)]
pub(super) struct Sequence {
    pub(super) log: Vec<(u32, u64, u64)>,
    pub(super) at: [usize; 4],
}

impl Products {
    pub(super) fn start(&mut self, code: &Code) {
        let n = if code.has_wgmma { code.widths.len() } else { 0 };
        *self = Products {
            fences: 1,
            touched: vec![0; n],
            result_of: vec![0; n],
            operand_of: vec![0; n],
            shape: vec![(0, Columns(0), None); n],
            ..Products::default()
        };
    }
}

impl Sequence {
    /// Have all warps executed the same number?
    pub(super) fn is_even(&self) -> bool {
        self.at.iter().all(|n| *n == self.at[0])
    }
}
