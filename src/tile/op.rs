//! The operations of the tile IR, declared once.
//!
//! [`Op`] carries the attributes; the table below it has a row for each (the columns are explained in `crate::table`): name,
//! operands, attributes, where it may stand, effects, type rule, meaning. Every `match` on [`Op`] that decides something lists all
//! of them.

use std::fmt;

use super::{DotMode, Extent, Inst, Type, rules};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp};
use crate::shape::{Dim, Elem};
use crate::ssa::Effects;
use crate::table::operations;

/// Steps of a product's inner index for which a scale of [`Op::LoadScaled`] holds.
pub const GROUP: i32 = 32;

/// Where an operation may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedIn {
    /// In kernels and in plans.
    Both,
    /// In kernels.
    Kernel,
    /// In kernels that are scheduled.
    Scheduled,
    /// In kernels that are scheduled for a CPU.
    CpuKernel,
    /// In kernels that are scheduled for a GPU.
    GpuKernel,
    /// In kernels for a GPU that launch others.
    Persistent,
    /// In plans, and in kernels for a GPU that launch others.
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
    /// A literal index (an integer) or scalar, as the result's type says.
    Const(Scalar),
    /// The value of a dimension expression: an index, or a scalar of the result's type.
    DimValue(Dim),
    /// An operation on each element; of a tile or a scalar.
    Unary(UnaryOp),
    /// An operation on pairs of elements. Of tiles, where extents of 1 and scalars are broadcast; of scalars; of
    /// indices, where `div` and `rem` round down.
    Binary(BinaryOp),
    /// A comparison, as [`Op::Binary`]; the result is `bool`. Of tiles, scalars or indices.
    Compare(CmpOp),
    /// `condition ? a : b`, as [`Op::Binary`]; of tiles, scalars or indices (with a scalar condition).
    Select,
    /// Conversion to another element type in computation, or between an index and an integer scalar (the result's type
    /// says which).
    Cast,
    /// The nearest value of a narrower type, still in the type of computation: `bf16` and `f16` round to nearest even,
    /// `i8` wraps. Of a tile or a scalar.
    Narrow {
        /// The narrower type.
        elem: Elem,
    },
    /// One element of a buffer, converted to the type in which it is computed. Operands: buffer, an index for each axis.
    LoadScalar,
    /// An index that is certainly in `0..bound`: the first operand. If it is not, that is reported, and the kernel (or the
    /// plan) stops at once. Operands: index, bound.
    CheckIndex {
        /// What the report says: index of a string in `Module::sites`.
        site: u32,
    },

    /// Gives a dimension its value: its operand, which is certainly from 0 to `most`. Types and attributes of what this
    /// dominates may name it, and the kernels that are launched there; nothing else may.
    Length {
        /// The dimension's name, which is none of the plan's symbols.
        name: String,
        /// What it is at most.
        most: Dim,
    },

    // Tiles.
    /// A tile of a buffer. Operands: buffer, an index for each axis (the tile's first element). Each tile axis walks along
    /// a buffer axis, or along none (its extent is then 1).
    Load {
        /// The buffer axis along which rows go.
        rows: Option<usize>,
        /// The buffer axis along which columns go.
        cols: Option<usize>,
    },
    /// Writes a tile into a buffer. Operands: buffer, an index for each axis, tile. No result. On a GPU, elements outside
    /// of the buffer are omitted.
    Store {
        /// The buffer axis along which rows go.
        rows: Option<usize>,
        /// The buffer axis along which columns go.
        cols: Option<usize>,
    },
    /// A tile (of the result's type) with the same scalar everywhere.
    Full,
    /// The same elements; a row, a column or a single element is spread to the result's extents.
    Copy,
    /// `start + i` along an axis, the same along the other: a tile of `i32` or `i64`. Operand: the index `start`.
    Iota {
        /// 0 counts rows, 1 counts columns.
        axis: usize,
    },
    /// A reduction along an axis, which stays with extent 1. `mean` does not occur; `argmax` gives `i32`.
    Reduce {
        /// What is computed.
        kind: ReduceKind,
        /// 0 reduces rows away, 1 columns.
        axis: usize,
    },
    /// The element of a tile of one, as a scalar of its type.
    Element,
    /// Rows and columns exchanged.
    Transpose,
    /// A panel of integers times their scales, as `f32`: the right operand of products alone. Operands: a buffer of
    /// `i8`, an index for each axis, a buffer of scales with as many axes. Rows (the steps of the product) go along the axis
    /// before the last, columns along the last. With 4 bits, a byte has two steps, the first in its lower half, in two's
    /// complement, and indices along that axis count bytes. Each [`GROUP`] steps have a row of scales; the tile starts with
    /// a group. An element is its number, times its scale, rounded once ([`DotMode::Groups`] multiplies by the numbers
    /// themselves).
    LoadScaled {
        /// Bits of a number, 8 or 4.
        bits: u8,
    },
    /// A panel of `bf16` whose steps lie in pairs, as `f32`: the right operand of products alone, whose left operand may
    /// then be a window of `bf16`. Operands: a buffer `[.., pairs, columns, 2]` of `bf16`, an index for each axis (the last
    /// one 0). Rows (the steps of the product) go two to a pair; the tile starts with a pair. Where the number of
    /// steps is odd, the second half of the last pair is zero.
    LoadPairs,
    /// A tile of `f32`, each element the nearest `bf16`, whose rows lie in pairs: the right operand of products alone, whose
    /// left operand may then be a window of `bf16`. Operand: a tile. The result may have a row more than that, of zeros,
    /// so that their number is even; where the number is known at run time alone, it is the result's that counts: rows
    /// after the operand's are zeros, and rows after its own are omitted. In scratch, a row of the result is two of its
    /// rows, those of a column side by side in 4 bytes; it may lie over the operand.
    PairRows,
    /// `acc + a @ b`. Operands: a, b, acc; `f32`, or all `i32` or `i64`. An element of `a @ b` is a sum of its own, over all
    /// steps of this operation: what is summed over more steps than one operation takes is a sum of partial sums, and
    /// its rounding errors grow with the steps of an operation, and with how many operations there are, not with their product.
    /// `acc` is a tile, added to the end of the sum, or a scalar with which each sum starts (else with 0).
    Dot {
        /// How the sum is computed: the schedule says it, and an unscheduled product has none. Until then the sum is that of
        /// the numbers, and which rounding errors it will have is open; the interpreter computes [`DotMode::Chain`].
        mode: Option<DotMode>,
    },

    // Scheduled for a CPU, or for a GPU in runs.
    /// One loop nest over rows and columns that does all the operations inside for each vector of elements. Its
    /// instructions are in the same body; those whose result lies in scratch can be used after it. Reductions are all
    /// along rows or all along columns; their results can be used after the run only. At each place of the iteration
    /// space, what lies in scratch from before the run is read before anything is written. A row's reductions are written
    /// at its end; so are a column's, which take its rows in order. On a GPU the threads of the block divide the places among
    /// them, and partial results of a reduction become one in an order of their own.
    Run {
        /// Rows of the iteration space.
        rows: Extent,
        /// Columns of the iteration space.
        cols: Extent,
        /// The instructions, in order.
        insts: Vec<Inst>,
    },

    /// A tile in place: it is read where it is used. Operands: buffer, an index for each axis, as [`Op::Load`]. The kernel
    /// does not write the buffer. On a CPU its elements are of the type in which they are computed; those of a right operand
    /// of `dot` may be `bf16`, and those of a left one whose right operand is `load_pairs` or `pair_rows`. On a GPU they are of
    /// any type: they are converted on the way.
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

/// An operation of kernels that are scheduled for a GPU: shared memory, fragments, asynchronous copies and barriers.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum GpuOp {
    /// Room in shared memory, empty.
    SharedSlot {
        /// Where, in bytes.
        offset: u32,
    },
    /// Starts to copy a tile of a buffer into a slot (`cp.async`, 16 bytes a thread). Outside of the buffer: zeros.
    /// Operands: slot, buffer, an index for each axis.
    CopyAsync {
        /// The buffer axis along which rows go.
        rows: Option<usize>,
        /// The buffer axis along which columns go.
        cols: Option<usize>,
        /// The buffer axis of panels, if columns go on in the next panel where one ends. A panel has as many columns as a
        /// tile of shared memory has within which chunks are exchanged; the tile begins with one.
        panels: Option<usize>,
    },
    /// Closes a group: what its operand is the last operation of.
    Commit,
    /// The tile of a group, once at most `pending` later groups are under way; after a group of copies the whole block
    /// meets, so that every thread sees the tile.
    Wait {
        /// How many groups that were committed later stay under way.
        pending: u32,
    },
    /// A tile of shared memory becomes a slot again. It is filled only after the block has met.
    Release,
    /// All threads of the block meet (`bar.sync 0`).
    Barrier,
    /// Reads a tile of shared memory into fragments: `ldmatrix`, with `.trans` for a right operand whose inner index is
    /// along the rows (`@fragment(b)`). `f32` is rounded to `tf32`: 11 significant bits, to nearest, ties away from zero.
    LoadFragment,
    /// Rounds an accumulator to 16 bits as a left operand; nothing moves between threads.
    Pack,
    /// `acc + a @ b` on fragments (`mma.sync.m16n8k16`, of `tf32` `m16n8k8`), done when it returns. The layout of `b` says how it is stored.
    Mma,
    /// `acc + a @ b` where `b` are integers of a panel times their scales (`mma.sync.m16n8k16` on integers that become 16-bit floats in
    /// registers, exactly). Operands: `a` in fragments, a tile of shared memory of `i8`, one of scales with a row for each [`GROUP`]
    /// steps, and an accumulator in the layout `quads`. The sum over a group is multiplied by the group's scale. With 4 bits a byte
    /// has two steps, as in [`Op::LoadScaled`].
    MmaScaled {
        /// Bits of a number, 8 or 4.
        bits: u8,
    },
    /// An accumulator of the layout `quads` in the layout `acc`: elements move between the lanes of a quad.
    ConvertLayout,
    /// Tiles of shared memory, each with a barrier *full* and a barrier *empty*.
    Ring {
        /// Where the first tile lies in shared memory, in bytes; the others follow.
        offset: u32,
        /// Where the barriers lie in shared memory, in bytes: the full ones, then the empty ones, 8 bytes each.
        barriers: u32,
        /// How many times a tile is released before it is empty: once by each warp that reads it.
        readers: u32,
    },
    /// The slot of iteration `n` of a ring (stage `n` mod stages), once it is empty. Operands: ring, n.
    RingAcquire,
    /// Fills a slot of a ring through the tensor memory accelerator, which signals its *full* barrier. Outside of the
    /// buffer: zeros. Operands: slot, buffer, an index for each axis.
    TmaLoad {
        /// The buffer axis along which rows go.
        rows: Option<usize>,
        /// The buffer axis along which columns go.
        cols: Option<usize>,
    },
    /// The tile of iteration `n` of a ring, once it is full. Operands: ring, n.
    RingWait,
    /// Signals the *empty* barrier of a tile that this warp no longer reads it. Operands: ring, tile.
    RingRelease,
    /// Makes registers written so far visible to the products that follow (`wgmma.fence`).
    WgmmaFence,
    /// Starts `acc + a @ b` (`wgmma.mma_async`): `a` in fragments or in shared memory, `b` in shared memory.
    Wgmma {
        /// Is the inner index of `b` along its columns?
        trans_b: bool,
    },
    /// How many blocks run: as many as do at the same time, at most one for each point of the grid. A kernel that asks does the points
    /// that are so many apart, from its own one on.
    Blocks,
    /// Some warps meet: waits at a barrier (`bar.sync id, threads`), or only arrives at it (`bar.arrive`). Operand: its
    /// number, 1 to 15.
    NamedBarrier {
        /// How many threads take part, those that only arrive included.
        threads: u32,
        /// Does this warp wait?
        wait: bool,
    },
    /// All blocks of the grid meet: each sees what the others wrote before. In a kernel that launches others.
    GridBarrier,
}

/// An operation of plans: the memory of a call, views of it, and launches.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum PlanOp {
    /// The data of an argument of the entry point, row-major.
    Arg(u32),
    /// The data of a result of the entry point, row-major.
    Out(u32),
    /// The data of a tap, row-major: `[extents.., shape..]`; or, by [`TapPart`], one `bool` for each of the extents, in which
    /// true says that this was written; or one for each of those of the arrays of layers alone, in which true says that the
    /// call requests it.
    Tap {
        /// Its path, `*` for each array index; with a mark after for what is not its data.
        name: String,
    },
    /// The data of a parameter. Operands index the arrays of layers on its path.
    Param {
        /// Its path, `*` for each array index.
        name: String,
    },
    /// What the session keeps under a name, row-major.
    State {
        /// Its name.
        name: String,
    },
    /// Room in the arena.
    Slot(u32),
    /// Part of the packed area, which the plan that prepares fills and the others read.
    Packed {
        /// Where it starts, in bytes.
        offset: u64,
    },
    /// Another window (the result's type) into a buffer's storage, which starts `offset` elements further, plus each index
    /// operand times its stride. Operands: buffer, indices.
    View {
        /// Elements to skip.
        offset: Dim,
        /// One for each index operand.
        strides: Vec<Dim>,
    },
    /// Runs a kernel over its grid. Operands: its parameters, in order. Kernels see the run-time dimensions by name. In a kernel for a
    /// GPU the blocks that run this one divide the points of that grid among themselves, and none waits for another.
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
    Copy "copy", ["x"], [], Kernel NONE, Declared rules::copy, "the same elements, spread to the result's extents";
    Iota { axis } "iota", ["start"], [axis: usize], Kernel NONE, Declared rules::iota, "start + i along an axis";
    Reduce { kind, axis } each kind: ReduceKind, ["x"], [axis: usize], Kernel NONE, Computed rules::reduce,;
    Element "element", ["x"], [], Kernel NONE, Computed rules::element, "the element of a tile of one, as a scalar";
    Transpose "transpose", ["x"], [], Kernel NONE, Computed rules::transpose, "rows and columns exchanged";
    LoadScaled { bits } "load_scaled", ["buffer", "index*", "scales"], [bits: u8], Kernel READS, Declared rules::scaled,
        "a panel of integers times scales";
    LoadPairs "load_pairs", ["buffer", "index*"], [], Kernel READS, Declared rules::pairs, "a panel of pairs of steps";
    PairRows "pair_rows", ["x"], [], Kernel NONE, Declared rules::pair_rows, "the nearest bf16, two rows side by side";
    Dot { mode } "dot", ["a", "b", "acc"], [mode: Option<DotMode> = None], Kernel NONE, Computed rules::dot, "acc + a @ b";

    Run { rows, cols, insts } "run", [], own, Scheduled BOTH, Nothing rules::run, "one loop nest over rows and columns";
    Window { rows, cols } "window", ["buffer", "index*"], [rows: Option<usize> = None, cols: Option<usize> = None],
        Scheduled READS, Declared rules::load, "a tile in place in a buffer";
}

operations! {
    GpuOp of AllowedIn, types Type;

    SharedSlot { offset } "shared", [], [offset: u32], GpuKernel BOTH, Declared rules::shared,
        "empty room in shared memory";
    CopyAsync { rows, cols, panels } "copy_async", ["slot", "buffer", "index*"],
        [rows: Option<usize> = None, cols: Option<usize> = None, panels: Option<usize> = None],
        GpuKernel BOTH, Computed rules::copy_async,
        "starts to fill a slot";
    Commit "commit", ["pending"], [], GpuKernel BOTH, Computed rules::commit, "closes a group of asynchronous operations";
    Wait { pending } "wait", ["group"], [pending: u32], GpuKernel BOTH, Computed rules::wait,
        "the tile of a group, once it is there";
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
        GpuKernel BOTH, Declared rules::ring_of, "tiles that warps hand to and fro";
    RingAcquire "ring_acquire", ["ring", "n"], [], GpuKernel BOTH, Computed rules::ring_acquire, "an empty slot of a ring";
    TmaLoad { rows, cols } "tma_load", ["slot", "buffer", "index*"],
        [rows: Option<usize> = None, cols: Option<usize> = None], GpuKernel BOTH, Nothing rules::tma_load,
        "fills a slot of a ring";
    RingWait "ring_wait", ["ring", "n"], [], GpuKernel BOTH, Computed rules::ring_wait, "a full tile of a ring";
    RingRelease "ring_release", ["ring", "tile"], [], GpuKernel BOTH, Nothing rules::ring_release,
        "gives a tile of a ring back";
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
    /// May it stand in a kernel that launches others: does it launch, make windows, or compute indices and scalars?
    pub(crate) fn stands_beside_launches(&self) -> bool {
        let place = self.info().class;
        matches!(self, Op::Unary(_)) || matches!(place, AllowedIn::Both | AllowedIn::Launching | AllowedIn::Persistent)
    }

    /// Does it compute an element of a tile from those at the same place, or nothing of a tile?
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

    /// The dimensions in its attributes.
    pub fn dims(&self) -> Vec<&Dim> {
        match self {
            Op::DimValue(d) => vec![d],
            op => op.listed_dims(),
        }
    }

    /// Which operand is a buffer that is read or written at indices, which follow it.
    pub fn accessed(&self) -> Option<usize> {
        let operands = self.info().operands;
        let at = operands.iter().position(|o| *o == "buffer")?;
        (operands.get(at + 1) == Some(&"index*")).then_some(at)
    }
}

impl fmt::Display for Op {
    /// The name alone; attributes are the text form's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}

/// The element type in computation for a buffer's element type: small floats as `f32`, `i8` as `i32`.
pub(crate) fn computed(elem: Elem) -> Elem {
    super::types::computed(elem)
}

/// What a [`Op::Tap`] of a plan is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapPart {
    /// The tap's data: its path alone.
    Data,
    /// What was written of it: its path and `?`.
    Written,
    /// What the call requests of it: its path and `!`.
    Asked,
}

impl TapPart {
    /// The name of this part of a tap.
    pub fn of(self, tap: &str) -> String {
        match self {
            TapPart::Data => tap.to_string(),
            TapPart::Written => format!("{tap}?"),
            TapPart::Asked => format!("{tap}!"),
        }
    }

    /// The tap that a name belongs to, and which part of it.
    pub fn read(name: &str) -> (&str, TapPart) {
        match (name.strip_suffix('?'), name.strip_suffix('!')) {
            (Some(tap), _) => (tap, TapPart::Written),
            (_, Some(tap)) => (tap, TapPart::Asked),
            (None, None) => (name, TapPart::Data),
        }
    }
}
