//! Products of warpgroups that are under way, and what they do with registers.

use std::collections::VecDeque;

use super::code::Code;
use crate::ptx::words::{Columns, Wgmma};

/// The left operand.
#[derive(Clone)]
pub(super) enum Left {
    Registers(Vec<u32>),
    Shared(u64, bool),
}

/// A product that is under way.
#[derive(Clone)]
pub(super) struct Product {
    pub(super) columns: u32,
    pub(super) kind: Wgmma,
    pub(super) d: Vec<u32>,
    pub(super) left: Left,
    pub(super) right: u64,
    pub(super) right_transposed: bool,
    pub(super) adds: bool,
    pub(super) negative: bool,
}

/// What a warp knows of its products.
#[derive(Default)]
pub(super) struct Products {
    pub(super) open: Vec<Product>,
    pub(super) groups: VecDeque<Vec<Product>>,
    /// Groups that were committed.
    pub(super) count: u32,
    /// Fences so far, plus 1.
    pub(super) fences: u32,
    /// For each register, in which interval between fences a thread accessed it last.
    pub(super) touched: Vec<u32>,
    /// For each register the group that has it as a result, and as an operand; 0 for none.
    pub(super) result_of: Vec<u32>,
    pub(super) operand_of: Vec<u32>,
    /// For each register the interval and shape of the product that had it last as its result.
    pub(super) shape: Vec<(u32, Columns, Option<Wgmma>)>,
}

/// The products that the warps of a warpgroup have executed: all must be the same.
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
    /// How many products its warps have not executed that others have.
    pub(super) fn is_even(&self) -> bool {
        self.at.iter().all(|n| *n == self.at[0])
    }
}
