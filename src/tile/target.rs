//! Machine parameters that operand layouts depend on.
//!
//! In: a machine that kernels are scheduled for. Out: a [`Target`], which is plain data: the
//! schedule chooses panels and variants of attention by it. Features, registers and widths of
//! machines are compared only here and in the schedule. It must not know kernels.

use super::{Cpu, Feature, GpuArch, Width};

/// Dot products of `bf16` pairs, whose right operand is interleaved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairsOfSteps {
    /// Do they support an odd number of k indices?
    pub odd: bool,
}

/// Parameters of a machine that operand layouts depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Columns of a matmul's register tile, which is also the panel width, and the number of
    /// queries per tile of attention.
    pub columns: i64,
    /// Dot products of `bf16` pairs, if the machine has them.
    pub pairs: Option<PairsOfSteps>,
    /// Maximum number of queries that attention computes individually. Measured with 12 heads of 64
    /// and 16 to 2048 keys, one query takes a seventh of the time of a whole tile of queries with
    /// 512-bit vectors, a sixth with 256-bit ones, two thirds with 128-bit ones.
    pub single_queries: i64,
    /// Maximum number of rows of a matmul that computes several panels at a time: their sums must
    /// fit the registers.
    pub few_rows: i64,
    /// Maximum number of keys per block of attention: as many scores per query are computed at a
    /// time.
    pub keys: i64,
    /// Matmuls read operands of any type and layout in place, so nothing is copied before.
    pub reads_in_place: bool,
    /// The GPU architecture, if it is a GPU: its tensor cores support integer weights.
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
