//! Machines that kernels are scheduled for: all numbers that depend on the machine.
//!
//! In: a CPU or a GPU architecture. Out: a [`Machine`], which is plain data; the steps of the
//! schedule read it. A new processor is a row of these tables. Features, registers and widths of
//! CPUs are compared only here, in `cpu` and in the schedule. It must not know kernels.
//!
//! Sources: for CPUs, measurements that each field names; for GPUs, the CUDA C++ Programming Guide,
//! "Technical Specifications per Compute Capability", and the data sheets of A100 and H100.

use super::{Cpu, Feature, GpuArch, Width};

/// Dot products of `bf16` pairs, whose right operand is interleaved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairsOfSteps {
    /// Do they support an odd number of k indices?
    pub odd: bool,
}

/// A machine that kernels are scheduled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The CPU, or the GPU with its numbers.
    pub processor: Processor,
    /// Columns of a packed panel. On a CPU, of a matmul's register tile.
    pub panel: i64,
    /// Queries per tile of attention.
    pub queries: i64,
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
}

/// A CPU or a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// A CPU.
    Cpu(Cpu),
    /// A GPU.
    Gpu(Gpu),
}

/// The numbers of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// The architecture.
    pub arch: GpuArch,
    /// Maximum shared memory per block, in bytes. For code that runs on all GPUs from 8.0 on, the
    /// least of them.
    pub shared: i64,
    /// Part of it reserved for use within one operation: slices of operands, partial results.
    pub transient: i64,
    /// Number of multiprocessors: of an A100, of an H100.
    pub processors: i64,
}

/// Threads per warp.
pub(super) const WARP: i64 = 32;
/// Maximum number of warps per block of runs. Two such blocks, with 128 registers per thread, fill
/// a multiprocessor's registers.
pub(super) const MAX_WARPS: i64 = 8;
/// Number of blocks that saturates memory bandwidth: 2.3 MB in flight, [`BYTES_IN_FLIGHT`] per
/// block.
pub(super) const ENOUGH_BLOCKS: i64 = 144;
/// Bytes that a block has in flight: a chunk of `f32`. Chunks of narrower elements are smaller, but
/// take as long.
pub(super) const BYTES_IN_FLIGHT: i64 = 16 << 10;
/// Bytes that could be read in the time of a launch: some 2 microseconds at 3.35 TB/s.
pub(super) const LAUNCH_BYTES: i64 = 6_700_000;
/// Columns of a packed panel of weights on a GPU, and of the tile of a matmul with few rows by
/// them: few, so that there are many blocks.
pub(super) const INTEGER_PANEL: i64 = 32;

impl From<Cpu> for Machine {
    fn from(cpu: Cpu) -> Machine {
        let pairs = PairsOfSteps { odd: cpu.has(Feature::Amx) };
        Machine {
            processor: Processor::Cpu(cpu),
            panel: i64::from(cpu.dot_cols()),
            queries: i64::from(cpu.dot_cols()),
            pairs: cpu.has(Feature::Bf16).then_some(pairs),
            single_queries: if cpu.width() == Width::V128 { 1 } else { 4 },
            few_rows: match cpu.width() {
                Width::V128 => 0,
                Width::V256 => 1,
                Width::V512 => 2,
            },
            keys: 256,
            reads_in_place: false,
        }
    }
}

impl From<GpuArch> for Machine {
    fn from(arch: GpuArch) -> Machine {
        Machine {
            processor: Processor::Gpu(Gpu::for_arch(arch)),
            panel: INTEGER_PANEL,
            queries: 32,
            pairs: None,
            single_queries: 4,
            few_rows: 0,
            keys: 64,
            reads_in_place: true,
        }
    }
}

impl Machine {
    /// The CPU, if it is one.
    pub fn cpu(&self) -> Option<Cpu> {
        match self.processor {
            Processor::Cpu(cpu) => Some(cpu),
            Processor::Gpu(_) => None,
        }
    }

    /// The GPU, if it is one.
    pub fn gpu(&self) -> Option<Gpu> {
        match self.processor {
            Processor::Cpu(_) => None,
            Processor::Gpu(gpu) => Some(gpu),
        }
    }

    /// The name of its CPU or GPU architecture.
    pub fn name(&self) -> String {
        match self.processor {
            Processor::Cpu(cpu) => cpu.name(),
            Processor::Gpu(gpu) => gpu.arch.name().to_string(),
        }
    }
}

impl Gpu {
    /// The numbers of an architecture.
    pub const fn for_arch(arch: GpuArch) -> Gpu {
        let transient = 18 << 10;
        match arch {
            GpuArch::Sm80 => Gpu { arch, shared: 99 << 10, transient, processors: 108 },
            GpuArch::Sm90a => Gpu { arch, shared: 227 << 10, transient, processors: 132 },
        }
    }
}
