//! Tile IR: a kernel for each fused region, and for each entry point a plan that launches them.
//!
//! Contents: the data structures, the operations ([`Op`], one table), builders, the text form, the
//! verifier, the interpreter, the schedule. In: kernels and plans from `lowering::tile`, or text.
//! Out: scheduled kernels, which back ends translate instruction by instruction. It must not know
//! the graph IR's operations, source syntax, Cranelift.
//!
//! # The IR in one page
//!
//! A [`Kernel`] works on buffers: strided views of memory whose extents and strides are expressions
//! over the kernel's run-time dimensions. Points of its grid may run in parallel. Its body is SSA
//! in CFG form; values are indices (64-bit), scalars and *tiles* of rank 2. An extent of a tile is
//! a constant, or *bounded*: `%r<=64` is the run-time value `%r`, at most 64. Elements past a
//! bounded extent do not exist, so the last tile of an axis is simply smaller: there are no masks,
//! and an empty axis has tiles without rows. A schedule for a machine that computes full tiles
//! turns bounds into masks.
//!
//! A [`Plan`] is the host program of an entry point: its buffers are arguments, results, parameters
//! and slots of the arena; it makes views of them, and launches kernels, with loops and branches.
//!
//! Unscheduled, a tile is just a value. Scheduled for the CPU, `run` regions group the work of one
//! loop nest over rows and columns; inside, tiles are vector registers (`@reg`); a tile that lives
//! longer is in the worker's scratch (`@l1(OFFSET)`), where `dot` and `transpose` find their
//! operands. Nothing is left to decide. For a GPU, scratch is the block's shared memory, and rows
//! may be padded (`@l1(OFFSET, padded)`) to avoid bank conflicts in columns.
//!
//! The same text form has schedules for wider CPUs (packed panels, accumulators that stay in vector
//! registers) and for GPUs (shared memory, fragments, asynchronous copies and waits, barriers, warp
//! specialisation). The schedule for GPUs makes the latter for matmuls and attention of 16-bit
//! floats (`schedule/tensor_cores`); the programs in `tests/witnesses` are handwritten, as a
//! yardstick, and the verifier rejects incorrect ones. Asynchronous operations have linear types
//! (`slot`, `pending`, `group`): each value is used exactly once, and only a wait turns it into a
//! tile.
//!
//! The contract is in [`verify`], the syntax in [`text`], and the semantics, by definition, in
//! [`interp`].

pub(crate) mod alignment;
mod arena;
pub(crate) mod attention;
mod body;
mod builder;
mod compute;
pub mod cost;
mod cpu;
mod description;
mod dot;
pub mod encode;
pub(crate) mod epilogue;
pub mod fits;
pub mod interp;
mod kernel;
mod kernels;
pub(crate) mod loops;
mod machine;
pub(crate) mod matmul;
pub(crate) mod multiples;
mod op;
pub(crate) mod packed_area;
pub mod rules;
pub(crate) mod scan;
mod schedule;
mod simplify;
pub(crate) mod sort;
pub mod text;
mod tiling;
mod types;
pub mod verify;
mod view;

pub use crate::ssa::{Block, BlockCall, Inst, Value, ValueDef};
pub use arena::share_slots;
pub use body::{BlockData, Body, InstData, Role, Terminator, TileIr};
pub(crate) use builder::tile_size;
pub use builder::{KernelBuilder, PlanBuilder};
pub use cpu::{Cpu, Feature, Features, Width};
pub use description::{Compute, Matmul, PanelLayout, PanelOperand};
pub use dot::{DotMode, MAX_PANEL_PITCH};
pub use kernel::{
    GpuArch, GridAxis, Kernel, KernelOrPlan, Module, Origin, Param, ParamMode, Plan, PlanVariant, SlotData, State,
    Tiled,
};
pub(crate) use kernels::Kernels;
pub use machine::{Gpu, Machine, PairsOfSteps, Processor};
pub(crate) use op::computed;
pub use op::{AllowedIn, GROUP, GpuOp, Op, PlanOp, TapPart};
pub use schedule::{
    CPU_STEPS, GPU_STEPS, Loss, PackedWeight, Remark, ScheduleError, ScheduleOptions, Step, WeightChoice, WeightFormat,
    find_step, packed_weights, run_steps, schedule, schedule_for, schedule_for_gpu, schedule_for_gpu_with,
    schedule_kernel, steps_named, steps_of, tensor_core_kernel,
};
pub use simplify::simplify;
pub(crate) use tiling::{AxisRole, ELEMENTWISE, Position, copy, merge_axes, rows_axis};
pub use types::{BufferType, Extent, Fragment, MAX_EXTENT, Pitch, Queue, Space, TileType, Type, flat, row_major};
pub(crate) use view::View;
