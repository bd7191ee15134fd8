//! What the layout of operands depends on: a machine's numbers, and how its products take their operands.
//!
//! In: a machine that kernels are scheduled for. Out: a [`Target`], which is data: what the schedule chooses panels by, and
//! the forms of attention. So what a machine has in hand (features, registers, widths)
//! is compared here and in the schedule alone. What it must not know: kernels.

use super::{Cpu, Feature, GpuArch, Width};

/// Products of `bf16` by `bf16` that take the right operand in pairs of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairsOfSteps {
    /// Do they take an odd number of steps too?
    pub odd: bool,
}

/// A machine as the layout of operands sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Columns of a product's register tile: those of a panel, and the queries of a tile of attention.
    pub columns: i64,
    /// Products of pairs of `bf16` steps, if it has them.
    pub pairs: Option<PairsOfSteps>,
    /// The most queries that attention computes one by one. Measured on 12 heads of 64 and 16 to 2048 keys, one query takes a
    /// seventh of what a whole tile of queries does with 512-bit vectors, a sixth with 256-bit ones, two thirds with 128-bit
    /// ones.
    pub single_queries: i64,
    /// The most rows of a product that are multiplied by several panels at a time: their sums fit the registers.
    pub few_rows: i64,
    /// The most keys of a block of attention: as many scores of each query are there at a time.
    pub keys: i64,
    /// Do products read operands of any type and order where they lie, so that nothing is copied before?
    pub reads_in_place: bool,
    /// The kind of GPU, if it is one: its tensor cores multiply by integers.
    pub gpu: Option<GpuArch>,
}

impl From<Cpu> for Target {
    fn from(cpu: Cpu) -> Target {
        let pairs = PairsOfSteps { odd: cpu.has(Feature::Amx) };
        Target {
            columns: i64::from(cpu.dot_cols()),
            pairs: cpu.has(Feature::Bf16).then_some(pairs),
            single_queries: if cpu.width() == Width::V128 { 1 } else { 4 },
            few_rows: match cpu.width() {
                Width::V128 => 0,
                Width::V256 => 1,
                Width::V512 => 2,
            },
            keys: 256,
            reads_in_place: false,
            gpu: None,
        }
    }
}
