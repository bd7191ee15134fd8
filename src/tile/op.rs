//! The operations of the tile IR, declared once.
//!
//! [`Op`] carries the attributes; the table below it has a row for each operation (the columns are
//! explained in `crate::table`): name, operands, attributes, where it may occur, effects, type
//! rule, meaning. Every `match` on [`Op`] that decides something lists all operations.

use std::fmt;

use super::{DotMode, Extent, Inst, Type, rules};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp};
use crate::shape::{Dim, Elem};
use crate::ssa::Effects;
use crate::table::operations;

/// k indices per scale of [`Op::LoadScaled`].
pub const GROUP: i32 = 32;

/// Where an operation may occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedIn {
    /// In kernels and in plans.
    Both,
    /// In kernels.
    Kernel,
    /// In scheduled kernels.
    Scheduled,
    /// In kernels scheduled for a CPU.
    CpuKernel,
    /// In kernels scheduled for a GPU.
    GpuKernel,
    /// In GPU kernels that launch others.
    Persistent,
    /// In plans, and in GPU kernels that launch others.
    Launching,
    /// In plans.
    Plan,
}

impl AllowedIn {
    /// Name in the reference.
    pub fn text(self) -> &'static str {
        match self {
            AllowedIn::Both => "kernels and plans",
            AllowedIn::Kernel => "kernels",
            AllowedIn::Scheduled => "kernels that are scheduled",
            AllowedIn::CpuKernel => "kernels that are scheduled for a CPU",
            AllowedIn::GpuKernel => "kernels that are scheduled for a GPU",
            AllowedIn::Persistent => "kernels for a GPU that launch others",
            AllowedIn::Launching => "plans, and kernels for a GPU that launch others",
            AllowedIn::Plan => "plans",
        }
    }
}

/// An operation with its attributes.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Op {
    // Indices and scalars.
    /// A constant index (an integer) or scalar, depending on the result's type.
    Const(Scalar),
    /// The value of a dimension expression: an index, or a scalar of the result's type.
    DimValue(Dim),
    /// An elementwise operation; of a tile or a scalar.
    Unary(UnaryOp),
    /// A binary elementwise operation. Of tiles, where extents of 1 and scalars broadcast; of
    /// scalars; of indices, where `div` and `rem` round down.
    Binary(BinaryOp),
    /// A comparison, like [`Op::Binary`]; the result is `bool`. Of tiles, scalars or indices.
    Compare(CmpOp),
    /// `condition ? a : b`, like [`Op::Binary`]; of tiles, scalars or indices (with a scalar
    /// condition).
    Select,
    /// Conversion to another computation type, or between an index and an integer scalar
    /// (determined by the result's type).
    Cast,
    /// Rounds to a narrower type, but stays in the computation type: `bf16` and `f16` round to
    /// nearest even, `i8` wraps. Of a tile or a scalar.
    Narrow {
        /// The narrower type.
        elem: Elem,
    },
    /// Loads one element of a buffer, converted to its computation type. Operands: buffer, an index
    /// for each axis.
    LoadScalar,
    /// The first operand, checked to be in `0..bound`. If it is not, the error is reported, and the
    /// kernel or plan stops at once. Operands: index, bound.
    CheckIndex {
        /// The message: index of a string in `Module::sites`.
        site: u32,
    },

    /// Binds a dimension to the operand, which must be from 0 to `most`. Types and attributes of
    /// instructions that this dominates may use it, and kernels launched by them; nothing else may.
    Length {
        /// Name of the dimension, which must not be one of the plan's symbols.
        name: String,
        /// Its upper bound.
        most: Dim,
    },

    // Tiles.
    /// Loads a tile of a buffer. Operands: buffer, an index for each axis (the tile's first
    /// element). Each tile axis goes along a buffer axis, or along none (its extent is then 1).
    Load {
        /// The buffer axis along which rows go.
        rows: Option<usize>,
        /// The buffer axis along which columns go.
        cols: Option<usize>,
    },
    /// Stores a tile to a buffer. Operands: buffer, an index for each axis, tile. No result. On a
    /// GPU, elements outside of the buffer are omitted.
    Store {
        /// The buffer axis along which rows go.
        rows: Option<usize>,
        /// The buffer axis along which columns go.
        cols: Option<usize>,
    },
    /// A tile (of the result's type) filled with a scalar.
    Full,
    /// The same elements; a row, a column or a single element is broadcast to the result's extents.
    Copy,
    /// `start + i` along one axis, constant along the other: a tile of `i32` or `i64`. Operand: the
    /// index `start`.
    Iota {
        /// 0 counts rows, 1 counts columns.
        axis: usize,
    },
    /// A reduction along an axis, which is kept with extent 1. `mean` does not occur; `argmax`
    /// returns `i32`.
    Reduce {
        /// Kind of reduction.
        kind: ReduceKind,
        /// 0 reduces over rows, 1 over columns.
        axis: usize,
    },
    /// The element of a 1 x 1 tile, as a scalar.
    Element,
    /// Rows and columns exchanged.
    Transpose,
    /// Loads a quantised panel as `f32`: integers times their scales; only as the right operand of
    /// a matmul. Operands: a buffer of `i8`, an index for each axis, a buffer of scales of the same
    /// rank. Rows (k) go along the axis before the last, columns along the last. With 4 bits, a
    /// byte has two k indices, the first in its low half, in two's complement, and indices along
    /// that axis count bytes. Every [`GROUP`] k indices share a row of scales; the tile starts with
    /// a group. An element is its integer times its scale, rounded once ([`DotMode::Groups`]
    /// multiplies by the integers themselves).
    LoadScaled {
        /// Width of an integer, 8 or 4.
        bits: u8,
    },
    /// Loads a panel of `bf16` with interleaved pairs of k indices, as `f32`; only as the right
    /// operand of a matmul, whose left operand may then be a window of `bf16`. Operands: a buffer
    /// `[.., pairs, columns, 2]` of `bf16`, an index for each axis (the last one 0). Two rows (k)
    /// form a pair; the tile starts with a pair. If K is odd, the second half of the last pair is
    /// zero.
    LoadPairs,
    /// Rounds a tile of `f32` to `bf16` and interleaves pairs of rows; only as the right operand of
    /// a matmul, whose left operand may then be a window of `bf16`. Operand: a tile. The result may
    /// have one more row, of zeros, to make their number even; if the number is only known at run
    /// time, the result's number counts: rows after the operand's are zeros, and rows after its own
    /// are omitted. In scratch, a row of the result is two of its rows, with the pair of a column
    /// in 4 contiguous bytes; it may overlap the operand.
    PairRows,
    /// `acc + a @ b`. Operands: a, b, acc; `f32`, or all `i32` or `i64`. An element of `a @ b` is a
    /// sum of its own, over all k indices of this operation; longer sums are sums of partial sums,
    /// whose rounding errors grow with the k indices per operation, and with the number of
    /// operations, but not with their product. `acc` is a tile, added at the end of the sum, or a
    /// scalar with which each sum starts (otherwise, it starts with 0).
    Dot {
        /// How the sum is computed: chosen by the schedule, and absent in an unscheduled matmul.
        /// Until then the sum is that of the real numbers, and its rounding errors are unspecified;
        /// the interpreter computes [`DotMode::Chain`].
        mode: Option<DotMode>,
    },

    // Scheduled for a CPU, or for a GPU in runs.
    /// One loop nest over rows and columns that executes all operations inside for each vector of
    /// elements. Its instructions are in the same body; results in scratch can be used after it.
    /// Reductions are either all along rows or all along columns; their results can be used only
    /// after the run. At each position of the iteration space, scratch tiles from before the run
    /// are read before anything is written. A row's reductions are written at its end; so are a
    /// column's, whose rows are processed in order. On a GPU the threads of the block share the
    /// positions, and partial results of a reduction are combined in an unspecified but fixed
    /// order.
    Run {
        /// Rows of the iteration space.
        rows: Extent,
        /// Columns of the iteration space.
        cols: Extent,
        /// The instructions, in order.
        insts: Vec<Inst>,
    },

    /// A tile in place: it is loaded where it is used. Operands: buffer, an index for each axis, as
    /// in [`Op::Load`]. The kernel must not write the buffer. On a CPU its elements are of their
    /// computation type, except that the right operand of `dot` may be `bf16`, and so may a left
    /// operand whose right operand is `load_pairs` or `pair_rows`. On a GPU they are of any type,
    /// and converted when loaded.
    Window {
        /// The buffer axis along which rows go.
        rows: Option<usize>,
        /// The buffer axis along which columns go.
        cols: Option<usize>,
    },

    /// An operation of kernels that are scheduled for a GPU.
    Gpu(GpuOp),
    /// An operation of plans.
    Plan(PlanOp),
}

/// An operation of kernels that are scheduled for a GPU: shared memory, fragments, asynchronous
/// copies and barriers.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum GpuOp {
    /// An empty slot in shared memory.
    SharedSlot {
        /// Offset in bytes.
        offset: u32,
    },
    /// Starts copying a tile of a buffer to a slot (`cp.async`, 16 bytes per thread), with zeros
    /// outside of the buffer. Operands: slot, buffer, an index for each axis.
    CopyAsync {
        /// The buffer axis along which rows go.
        rows: Option<usize>,
        /// The buffer axis along which columns go.
        cols: Option<usize>,
        /// The buffer axis of panels, if columns continue in the next panel. A panel has as many
        /// columns as a shared memory tile has within a swizzle pattern; the tile starts with a
        /// panel.
        panels: Option<usize>,
    },
    /// Commits a group, whose last operation is its operand.
    Commit,
    /// The tile of a group, after at most `pending` later groups are outstanding; after a group of
    /// copies it includes a barrier of the block, so that every thread sees the tile.
    Wait {
        /// Number of later groups that may be outstanding.
        pending: u32,
    },
    /// Turns a shared memory tile into a slot again. It may be filled only after a barrier of the
    /// block.
    Release,
    /// A barrier of all threads of the block (`bar.sync 0`).
    Barrier,
    /// Loads a shared memory tile into fragments: `ldmatrix`, with `.trans` for a right operand
    /// whose k axis is along the rows (`@fragment(b)`). `f32` is rounded to `tf32`: 11 significant
    /// bits, to nearest, ties away from zero.
    LoadFragment,
    /// Rounds an accumulator to 16 bits as a left operand, without moving data between threads.
    Pack,
    /// `acc + a @ b` on fragments (`mma.sync.m16n8k16`; for `tf32`, `m16n8k8`), synchronous. The
    /// layout of `b` says how it is stored.
    Mma,
    /// `acc + a @ b` where `b` is a quantised panel (`mma.sync.m16n8k16` on integers converted
    /// exactly to 16-bit floats in registers). Operands: `a` in fragments, a shared memory tile of
    /// `i8`, one of scales with a row per [`GROUP`] k indices, and an accumulator with layout
    /// `quads`. The sum over a group is multiplied by the group's scale. With 4 bits a byte has two
    /// k indices, as in [`Op::LoadScaled`].
    MmaScaled {
        /// Width of an integer, 8 or 4.
        bits: u8,
    },
    /// Converts an accumulator from layout `quads` to layout `acc`: elements move between the lanes
    /// of a quad.
    ConvertLayout,
    /// Shared memory tiles, each with a *full* and an *empty* barrier.
    Ring {
        /// Offset of the first tile in shared memory in bytes; the others follow.
        offset: u32,
        /// Offset of the barriers in shared memory in bytes: the full ones, then the empty ones, 8
        /// bytes each.
        barriers: u32,
        /// Number of releases before a tile is empty: one by each warp that reads it.
        readers: u32,
    },
    /// The slot of iteration `n` of a ring (stage `n` mod stages), after it has become empty.
    /// Operands: ring, n.
    RingAcquire,
    /// Fills a slot of a ring through the tensor memory accelerator, which signals its *full*
    /// barrier, with zeros outside of the buffer. Operands: slot, buffer, an index for each axis.
    TmaLoad {
        /// The buffer axis along which rows go.
        rows: Option<usize>,
        /// The buffer axis along which columns go.
        cols: Option<usize>,
    },
    /// The tile of iteration `n` of a ring, after it has become full. Operands: ring, n.
    RingWait,
    /// Signals the *empty* barrier of a tile that this warp has finished reading. Operands: ring,
    /// tile.
    RingRelease,
    /// Makes earlier register writes visible to the following matmuls (`wgmma.fence`).
    WgmmaFence,
    /// Starts `acc + a @ b` (`wgmma.mma_async`): `a` in fragments or in shared memory, `b` in
    /// shared memory.
    Wgmma {
        /// The k axis of `b` is along its columns.
        trans_b: bool,
    },
    /// Number of blocks: as many as run concurrently, at most one per point of the grid. A kernel
    /// that uses it processes every `blocks`-th point, starting with its own.
    Blocks,
    /// A barrier of some warps: waits (`bar.sync id, threads`), or only arrives (`bar.arrive`).
    /// Operand: the barrier's number, 1 to 15.
    NamedBarrier {
        /// Number of participating threads, including arriving ones.
        threads: u32,
        /// Does this warp wait?
        wait: bool,
    },
    /// A barrier of all blocks of the grid: each sees the earlier writes of the others. In a kernel
    /// that launches others.
    GridBarrier,
}

/// An operation of plans: the memory of a call, views of it, and launches.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum PlanOp {
    /// An argument of the entry point, row-major.
    Arg(u32),
    /// A result of the entry point, row-major.
    Out(u32),
    /// A tap, row-major: `[extents.., shape..]`; or, depending on [`TapPart`], a `bool` for each
    /// index in the extents, true if it was written; or a `bool` for each index into the arrays of
    /// layers alone, true if the call requests it.
    Tap {
        /// Its path, `*` for each array index; with a suffix if it is not the data.
        name: String,
    },
    /// A parameter. Operands index the arrays of layers on its path.
    Param {
        /// Its path, `*` for each array index.
        name: String,
    },
    /// A state of the session, row-major.
    State {
        /// Its name.
        name: String,
    },
    /// Memory in the arena.
    Slot(u32),
    /// Part of the packed area, which the preparing plan fills and the others read.
    Packed {
        /// Offset in bytes.
        offset: u64,
    },
    /// Another view (the result's type) of a buffer's memory, which starts `offset` elements
    /// further, plus each index operand times its stride. Operands: buffer, indices.
    View {
        /// Constant offset in elements.
        offset: Dim,
        /// One per index operand.
        strides: Vec<Dim>,
    },
    /// Launches a kernel over its grid. Operands: its parameters, in order. Kernels refer to the
    /// run-time dimensions by name. In a GPU kernel, the blocks that run it share the points of the
    /// launched grid, without waiting for each other.
    Launch {
        /// Name of the kernel.
        kernel: String,
    },
}

const NONE: Effects = Effects::NONE;
const READS: Effects = Effects::READS;
const WRITES: Effects = Effects::WRITES;
const BOTH: Effects = Effects::BOTH;

operations! {
    Op of AllowedIn, types Type, with Gpu: GpuOp, with Plan: PlanOp;

    Const(value) "const", [], own, Both NONE, Declared rules::constant, "a literal index or scalar";
    DimValue(value) "dim", [], own, Both NONE, Declared rules::dimension, "the value of a dimension expression";
    Unary(op) each op: UnaryOp, ["x"], [], Kernel NONE, Computed rules::unary,;
    Binary(op) each op: BinaryOp, ["a", "b"], [], Both NONE, Computed rules::binary,;
    Compare(op) each op: CmpOp, ["a", "b"], [], Both NONE, Computed rules::compare,;
    Select "select", ["condition", "a", "b"], [], Both NONE, Computed rules::select, "condition ? a : b, broadcast";
    Cast "cast", ["x"], [], Both NONE, Declared rules::cast, "conversion to the result's type";
    Narrow { elem } "narrow", ["x"], [elem: Elem], Kernel NONE, Computed rules::narrow,
        "the nearest value of a narrower type";
    LoadScalar "load_scalar", ["buffer", "index*"], [], Both READS, Computed rules::load_scalar, "one element of a buffer";
    CheckIndex { site } "check_index", ["index", "bound"], [site: u32],
        Both Effects { fails: true, ..WRITES }, Computed rules::check_index, "an index within its bound";
    Length { name, most } "length", ["index"], [name: String, most: Dim], Plan WRITES, Nothing rules::length,
        "gives a dimension its value";

    Load { rows, cols } "load", ["buffer", "index*"], [rows: Option<usize> = None, cols: Option<usize> = None],
        Kernel READS, Declared rules::load, "a tile of a buffer";
    Store { rows, cols } "store", ["buffer", "index*", "tile"], [rows: Option<usize> = None, cols: Option<usize> = None],
        Kernel WRITES, Nothing rules::store, "writes a tile";
    Full "full", ["x"], [], Kernel NONE, Declared rules::full, "a tile of one scalar";
    Copy "copy", ["x"], [], Kernel NONE, Declared rules::copy, "the same elements, broadcast to the result's extents";
    Iota { axis } "iota", ["start"], [axis: usize], Kernel NONE, Declared rules::iota, "start + i along an axis";
    Reduce { kind, axis } each kind: ReduceKind, ["x"], [axis: usize], Kernel NONE, Computed rules::reduce,;
    Element "element", ["x"], [], Kernel NONE, Computed rules::element, "the only element of a tile, as a scalar";
    Transpose "transpose", ["x"], [], Kernel NONE, Computed rules::transpose, "rows and columns exchanged";
    LoadScaled { bits } "load_scaled", ["buffer", "index*", "scales"], [bits: u8], Kernel READS, Declared rules::scaled,
        "a panel of integers times scales";
    LoadPairs "load_pairs", ["buffer", "index*"], [], Kernel READS, Declared rules::pairs, "a panel of pairs of steps";
    PairRows "pair_rows", ["x"], [], Kernel NONE, Declared rules::pair_rows, "the nearest bf16, two rows side by side";
    Dot { mode } "dot", ["a", "b", "acc"], [mode: Option<DotMode> = None], Kernel NONE, Computed rules::dot, "acc + a @ b";

    Run { rows, cols, insts } "run", [], own, Scheduled BOTH, Nothing rules::run, "one loop nest over rows and columns";
    Window { rows, cols } "window", ["buffer", "index*"], [rows: Option<usize> = None, cols: Option<usize> = None],
        Kernel READS, Declared rules::load, "a tile in place in a buffer";
}

operations! {
    GpuOp of AllowedIn, types Type;

    SharedSlot { offset } "shared", [], [offset: u32], GpuKernel BOTH, Declared rules::shared,
        "an empty slot in shared memory";
    CopyAsync { rows, cols, panels } "copy_async", ["slot", "buffer", "index*"],
        [rows: Option<usize> = None, cols: Option<usize> = None, panels: Option<usize> = None],
        GpuKernel BOTH, Computed rules::copy_async,
        "starts to fill a slot";
    Commit "commit", ["pending"], [], GpuKernel BOTH, Computed rules::commit, "closes a group of asynchronous operations";
    Wait { pending } "wait", ["group"], [pending: u32], GpuKernel BOTH, Computed rules::wait,
        "waits for a group; its tile";
    Release "release", ["tile"], [], GpuKernel BOTH, Computed rules::release, "a tile of shared memory becomes a slot again";
    Barrier "barrier", [], [], GpuKernel BOTH, Nothing rules::alone, "all threads of the block meet";
    LoadFragment "load_fragment", ["tile"], [], GpuKernel READS, Declared rules::load_fragment,
        "shared memory to fragments";
    Pack "pack", ["acc"], [], GpuKernel NONE, Declared rules::pack, "an accumulator as a 16-bit left operand";
    Mma "mma", ["a", "b", "acc"], [], GpuKernel NONE, Computed rules::mma, "acc + a @ b on fragments";
    MmaScaled { bits } "mma_scaled", ["a", "numbers", "scales", "acc"], [bits: u8], GpuKernel READS, Computed rules::mma_scaled,
        "acc + a @ (numbers * scales) on fragments";
    ConvertLayout "convert_layout", ["acc"], [], GpuKernel NONE, Declared rules::convert_layout,
        "an accumulator in another layout";
    Ring { offset, barriers, readers } "ring", [], [offset: u32, barriers: u32, readers: u32],
        GpuKernel BOTH, Declared rules::ring_of, "tiles passed between warps";
    RingAcquire "ring_acquire", ["ring", "n"], [], GpuKernel BOTH, Computed rules::ring_acquire, "an empty slot of a ring";
    TmaLoad { rows, cols } "tma_load", ["slot", "buffer", "index*"],
        [rows: Option<usize> = None, cols: Option<usize> = None], GpuKernel BOTH, Nothing rules::tma_load,
        "fills a slot of a ring";
    RingWait "ring_wait", ["ring", "n"], [], GpuKernel BOTH, Computed rules::ring_wait, "a full tile of a ring";
    RingRelease "ring_release", ["ring", "tile"], [], GpuKernel BOTH, Nothing rules::ring_release,
        "returns a tile to a ring";
    WgmmaFence "wgmma_fence", [], [], GpuKernel BOTH, Nothing rules::alone, "registers become visible to products";
    Wgmma { trans_b } "wgmma", ["a", "b", "acc"], [trans_b: bool], GpuKernel BOTH, Computed rules::wgmma,
        "starts acc + a @ b";
    Blocks "blocks", [], [], GpuKernel NONE, Computed rules::blocks, "how many blocks run";
    NamedBarrier { threads, wait } "named_barrier", ["id"], [threads: u32, wait: bool],
        GpuKernel BOTH, Nothing rules::named_barrier, "some warps of the block meet";
    GridBarrier "grid_barrier", [], [], Persistent BOTH, Nothing rules::alone, "all blocks of the grid meet";
}

operations! {
    PlanOp of AllowedIn, types Type;

    Arg(n) "arg", [], own, Plan NONE, Declared rules::memory, "an argument of the entry point";
    Out(n) "out", [], own, Plan NONE, Declared rules::memory, "a result of the entry point";
    Tap { name } "tap", [], own, Plan NONE, Declared rules::memory, "the data of a tap";
    Param { name } "param", ["index*"], own, Plan Effects::PARAMETERS, Declared rules::param, "the data of a parameter";
    State { name } "state", [], own, Plan NONE, Declared rules::memory, "what the session keeps";
    Slot(n) "slot", [], own, Plan NONE, Declared rules::memory, "room in the arena";
    Packed { offset } "packed", [], own, Plan NONE, Declared rules::memory, "part of the packed area";
    View { offset, strides } "view", ["buffer", "index*"], [offset: Dim = Dim::zero(), strides: Vec<Dim> = Vec::new()],
        Launching NONE, Declared rules::view, "another window into a buffer";
    Launch { kernel } "launch", ["buffer*"], own, Launching BOTH, Nothing rules::launch, "runs a kernel over its grid";
}

impl Op {
    /// Is its result an operand that matmuls read in place, in its buffer?
    pub(crate) fn is_read_in_place(&self) -> bool {
        matches!(self, Op::Window { .. } | Op::LoadScaled { .. } | Op::LoadPairs)
    }

    /// May it occur in a kernel that launches others: does it launch, make views, or compute
    /// indices and scalars?
    pub(crate) fn stands_beside_launches(&self) -> bool {
        let place = self.info().class;
        matches!(self, Op::Unary(_)) || matches!(place, AllowedIn::Both | AllowedIn::Launching | AllowedIn::Persistent)
    }

    /// Is it elementwise, or does it not compute a tile?
    pub(crate) fn is_elementwise(&self) -> bool {
        matches!(
            self,
            Op::Const(_)
                | Op::DimValue(_)
                | Op::Unary(_)
                | Op::Binary(_)
                | Op::Compare(_)
                | Op::Select
                | Op::Cast
                | Op::Narrow { .. }
                | Op::LoadScalar
                | Op::Load { .. }
                | Op::Store { .. }
                | Op::Full
                | Op::Copy
                | Op::Iota { .. }
        )
    }

    /// The dimension expressions in its attributes.
    pub fn dims(&self) -> Vec<&Dim> {
        match self {
            Op::DimValue(d) => vec![d],
            op => op.listed_dims(),
        }
    }

    /// Position of the buffer operand that is accessed at the indices after it.
    pub fn accessed(&self) -> Option<usize> {
        let operands = self.info().operands;
        let at = operands.iter().position(|o| *o == "buffer")?;
        (operands.get(at + 1) == Some(&"index*")).then_some(at)
    }
}

impl fmt::Display for Op {
    /// The name without attributes, which the text form prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}

/// The computation type of a buffer's element type: small floats as `f32`, `i8` as `i32`.
pub(crate) fn computed(elem: Elem) -> Elem {
    super::types::computed(elem)
}

/// The part of a tap that an [`Op::Tap`] of a plan refers to, encoded in its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapPart {
    /// The data: the path alone.
    Data,
    /// Which elements were written: the path and `?`.
    Written,
    /// Which elements the call requests: the path and `!`.
    Asked,
}

impl TapPart {
    /// The name for this part of a tap.
    pub fn full_name(self, tap: &str) -> String {
        match self {
            TapPart::Data => tap.to_string(),
            TapPart::Written => format!("{tap}?"),
            TapPart::Asked => format!("{tap}!"),
        }
    }

    /// Splits a name into the tap and the part.
    pub fn read(name: &str) -> (&str, TapPart) {
        match (name.strip_suffix('?'), name.strip_suffix('!')) {
            (Some(tap), _) => (tap, TapPart::Written),
            (_, Some(tap)) => (tap, TapPart::Asked),
            (None, None) => (name, TapPart::Data),
        }
    }
}
