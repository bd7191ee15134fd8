//! The operations of the tile IR, declared once.
//!
//! [`Op`] carries the attributes, [`Op::info`] is the table: name, operands, where it may stand. Every `match` on [`Op`]
//! lists all of them.

use std::fmt;

use super::{DotMode, Extent, Inst};
use crate::ir::Scalar;
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use crate::shape::{Dim, Elem};
use crate::ssa::Effects;

/// Steps of a product's inner index for which a scale of [`Op::LoadScaled`] holds.
pub const GROUP: i32 = 32;

/// Where an operation may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In kernels and in plans.
    Both,
    /// In kernels.
    Kernel,
    /// In kernels that are scheduled for a CPU.
    CpuKernel,
    /// In kernels that are scheduled for a GPU.
    GpuKernel,
    /// In plans.
    Plan,
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
        /// What the report says: index of a text in `Module::sites`.
        site: u32,
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
    /// of the buffer are left out.
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
    /// A panel of whole numbers times their scales, as `f32`: the right operand of products alone. Operands: a buffer of
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
    /// behind the operand's are zeros, and rows behind its own are left out. In scratch, a row of the result is two of its
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

    // Scheduled for a CPU.
    /// One loop nest over rows and columns that does all the operations inside for each vector of elements. Its
    /// instructions are in the same body; those whose result lies in scratch can be used after it. Reductions are all
    /// along rows or all along columns; their results can be used after the run only. At each place of the iteration
    /// space, what lies in scratch from before the run is read before anything is written. A row's reductions are written
    /// at its end; so are a column's, which take its rows in order.
    Run {
        /// Rows of the iteration space.
        rows: Extent,
        /// Columns of the iteration space.
        cols: Extent,
        /// The instructions, in order.
        insts: Vec<Inst>,
    },

    /// A tile in place: it is read where it is used. Operands: buffer, an index for each axis, as [`Op::Load`]. The kernel
    /// does not write the buffer, and its elements are of the type in which they are computed; those of a right operand
    /// of `dot` may be `bf16`, and those of a left one whose right operand is `load_pairs` or `pair_rows`.
    Window {
        /// The buffer axis along which rows go.
        rows: Option<usize>,
        /// The buffer axis along which columns go.
        cols: Option<usize>,
    },
    /// A template: `acc + a^T @ b` with `acc` in vector registers. `a` is a packed panel, inner index along the rows (so
    /// that a step of the inner index is one row of `a` and one of `b`); both have room for whole registers, whatever
    /// their extents. Each step loads one row of `b` into registers and broadcasts the elements of one row of `a`.
    /// Its sums are those of [`DotMode::Fma`].
    DotPanels {
        /// Steps of the inner index that are written out.
        unroll: u32,
    },

    // Scheduled for a GPU.
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
    /// along the rows (`@fragment(b)`).
    LoadFragment,
    /// Rounds an accumulator to 16 bits as a left operand; nothing moves between threads.
    Pack,
    /// `acc + a @ b` on fragments (`mma.sync.m16n8k16`), done when it returns. The layout of `b` says how it is stored.
    Mma,
    /// Tiles of shared memory, each with a barrier *full* and a barrier *empty*.
    Ring {
        /// Where the first tile lies in shared memory, in bytes; the others follow.
        offset: u32,
        /// Where the barriers lie in shared memory, in bytes: the full ones, then the empty ones, 8 bytes each.
        barriers: u32,
        /// How many times a tile is released before it is empty: once by each warp that reads it.
        readers: u32,
    },
    /// The slot of turn `n` of a ring (stage `n` mod stages), once it is empty. Operands: ring, n.
    RingAcquire,
    /// Fills a slot of a ring through the tensor memory accelerator, which tells its *full* barrier. Outside of the
    /// buffer: zeros. Operands: slot, buffer, an index for each axis.
    TmaLoad {
        /// The buffer axis along which rows go.
        rows: Option<usize>,
        /// The buffer axis along which columns go.
        cols: Option<usize>,
    },
    /// The tile of turn `n` of a ring, once it is full. Operands: ring, n.
    RingWait,
    /// Tells the *empty* barrier of a tile that this warp no longer reads it. Operands: ring, tile.
    RingRelease,
    /// Makes registers written so far visible to the products that follow (`wgmma.fence`).
    WgmmaFence,
    /// Starts `acc + a @ b` (`wgmma.mma_async`): `a` in fragments or in shared memory, `b` in shared memory.
    Wgmma {
        /// Is the inner index of `b` along its columns?
        trans_b: bool,
    },
    /// Some warps meet: waits at a barrier (`bar.sync id, threads`), or only arrives at it (`bar.arrive`). Operand: its
    /// number, 1 to 15.
    NamedBarrier {
        /// How many threads take part, those that only arrive included.
        threads: u32,
        /// Does this warp wait?
        wait: bool,
    },

    // Plans.
    /// The data of an argument of the entry point, row-major.
    Arg(u32),
    /// The data of a result of the entry point, row-major.
    Out(u32),
    /// The data of a tap, row-major: `[extents.., shape..]`; or, by [`TapPart`], one `bool` for each of the extents, in which
    /// true says that this was written; or one for each of those of the arrays of layers alone, in which true says that the
    /// call asks for it.
    Tap {
        /// Its path, `*` for each array index; with a mark behind for what is not its data.
        name: String,
    },
    /// The data of a parameter. Operands index the arrays of layers on its path.
    Param {
        /// Its path, `*` for each array index.
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
    /// Runs a kernel over its grid. Operands: its parameters, in order. Kernels see the run-time dimensions by name.
    Launch {
        /// Name of the kernel.
        kernel: String,
    },
}

/// A row of the table of operations.
#[derive(Clone, Copy, Debug)]
pub struct OpInfo {
    /// Name in the text form.
    pub name: &'static str,
    /// Names of the operands; a last one that ends in `*` stands for any number.
    pub operands: &'static [&'static str],
    /// Where it may stand.
    pub place: Place,
    /// What it reads and writes besides operands and result.
    pub effects: Effects,
    /// Does it have results?
    pub has_result: bool,
    /// One line for the reference.
    pub summary: &'static str,
}

const fn row(
    name: &'static str,
    operands: &'static [&'static str],
    place: Place,
    effects: Effects,
    has_result: bool,
    summary: &'static str,
) -> OpInfo {
    OpInfo { name, operands, place, effects, has_result, summary }
}

impl Op {
    /// The table of operations.
    pub fn info(&self) -> OpInfo {
        use Place::{Both, CpuKernel, GpuKernel, Kernel, Plan};
        const NONE: Effects = Effects::NONE;
        const READS: Effects = Effects::READS;
        const WRITES: Effects = Effects::WRITES;
        const BOTH: Effects = Effects::BOTH;
        match self {
            Op::Const(_) => row("const", &[], Both, NONE, true, "a literal index or scalar"),
            Op::DimValue(_) => row("dim", &[], Both, NONE, true, "the value of a dimension expression"),
            Op::Unary(op) => row(op.name(), &["x"], Kernel, NONE, true, "an operation on each element"),
            Op::Binary(op) => row(op.name(), &["a", "b"], Both, NONE, true, "an operation on pairs, broadcast"),
            Op::Compare(op) => row(op.name(), &["a", "b"], Both, NONE, true, "a comparison of pairs, broadcast"),
            Op::Select => row("select", &["condition", "a", "b"], Both, NONE, true, "condition ? a : b, broadcast"),
            Op::Cast => row("cast", &["x"], Both, NONE, true, "conversion to the result's type"),
            Op::Narrow { .. } => row("narrow", &["x"], Kernel, NONE, true, "the nearest value of a narrower type"),
            Op::LoadScalar => row("load_scalar", &["buffer", "index*"], Both, READS, true, "one element of a buffer"),
            Op::CheckIndex { .. } => row(
                "check_index",
                &["index", "bound"],
                Both,
                Effects { fails: true, ..WRITES },
                true,
                "an index within its bound",
            ),
            Op::Load { .. } => row("load", &["buffer", "index*"], Kernel, READS, true, "a tile of a buffer"),
            Op::Store { .. } => row("store", &["buffer", "index*", "tile"], Kernel, WRITES, false, "writes a tile"),
            Op::Full => row("full", &["x"], Kernel, NONE, true, "a tile of one scalar"),
            Op::Copy => row("copy", &["x"], Kernel, NONE, true, "the same elements, spread to the result's extents"),
            Op::Iota { .. } => row("iota", &["start"], Kernel, NONE, true, "start + i along an axis"),
            Op::Reduce { kind, .. } => {
                row(crate::ir::reduce_name(*kind), &["x"], Kernel, NONE, true, "a reduction along an axis")
            }
            Op::Element => row("element", &["x"], Kernel, NONE, true, "the element of a tile of one, as a scalar"),
            Op::Transpose => row("transpose", &["x"], Kernel, NONE, true, "rows and columns exchanged"),
            Op::PairRows => row("pair_rows", &["x"], Kernel, NONE, true, "the nearest bf16, two rows side by side"),
            Op::LoadScaled { .. } => row(
                "load_scaled",
                &["buffer", "index*", "scales"],
                Kernel,
                READS,
                true,
                "a panel of whole numbers times scales",
            ),
            Op::LoadPairs => row("load_pairs", &["buffer", "index*"], Kernel, READS, true, "a panel of pairs of steps"),
            Op::Dot { .. } => row("dot", &["a", "b", "acc"], Kernel, NONE, true, "acc + a @ b"),
            Op::Run { .. } => row("run", &[], CpuKernel, BOTH, false, "one loop nest over rows and columns"),
            Op::Window { .. } => {
                row("window", &["buffer", "index*"], CpuKernel, READS, true, "a tile in place in a buffer")
            }
            Op::DotPanels { .. } => {
                row("dot_panels", &["a", "b", "acc"], CpuKernel, NONE, true, "acc + a^T @ b in registers")
            }
            Op::SharedSlot { .. } => row("shared", &[], GpuKernel, BOTH, true, "empty room in shared memory"),
            Op::CopyAsync { .. } => {
                row("copy_async", &["slot", "buffer", "index*"], GpuKernel, BOTH, true, "starts to fill a slot")
            }
            Op::Commit => {
                row("commit", &["pending"], GpuKernel, BOTH, true, "closes a group of asynchronous operations")
            }
            Op::Wait { .. } => row("wait", &["group"], GpuKernel, BOTH, true, "the tile of a group, once it is there"),
            Op::Release => {
                row("release", &["tile"], GpuKernel, BOTH, true, "a tile of shared memory becomes a slot again")
            }
            Op::Barrier => row("barrier", &[], GpuKernel, BOTH, false, "all threads of the block meet"),
            Op::LoadFragment => row("load_fragment", &["tile"], GpuKernel, READS, true, "shared memory to fragments"),
            Op::Pack => row("pack", &["acc"], GpuKernel, NONE, true, "an accumulator as a 16-bit left operand"),
            Op::Mma => row("mma", &["a", "b", "acc"], GpuKernel, NONE, true, "acc + a @ b on fragments"),
            Op::Ring { .. } => row("ring", &[], GpuKernel, BOTH, true, "tiles that warps hand to and fro"),
            Op::RingAcquire => row("ring_acquire", &["ring", "n"], GpuKernel, BOTH, true, "an empty slot of a ring"),
            Op::TmaLoad { .. } => {
                row("tma_load", &["slot", "buffer", "index*"], GpuKernel, BOTH, false, "fills a slot of a ring")
            }
            Op::RingWait => row("ring_wait", &["ring", "n"], GpuKernel, BOTH, true, "a full tile of a ring"),
            Op::RingRelease => {
                row("ring_release", &["ring", "tile"], GpuKernel, BOTH, false, "gives a tile of a ring back")
            }
            Op::WgmmaFence => row("wgmma_fence", &[], GpuKernel, BOTH, false, "registers become visible to products"),
            Op::Wgmma { .. } => row("wgmma", &["a", "b", "acc"], GpuKernel, BOTH, true, "starts acc + a @ b"),
            Op::NamedBarrier { .. } => {
                row("named_barrier", &["id"], GpuKernel, BOTH, false, "some warps of the block meet")
            }
            Op::Arg(_) => row("arg", &[], Plan, NONE, true, "an argument of the entry point"),
            Op::Out(_) => row("out", &[], Plan, NONE, true, "a result of the entry point"),
            Op::Tap { .. } => row("tap", &[], Plan, NONE, true, "the data of a tap"),
            Op::Param { .. } => row("param", &["index*"], Plan, Effects::PARAMETERS, true, "the data of a parameter"),
            Op::Slot(_) => row("slot", &[], Plan, NONE, true, "room in the arena"),
            Op::Packed { .. } => row("packed", &[], Plan, NONE, true, "part of the packed area"),
            Op::View { .. } => row("view", &["buffer", "index*"], Plan, NONE, true, "another window into a buffer"),
            Op::Launch { .. } => row("launch", &["buffer*"], Plan, BOTH, false, "runs a kernel over its grid"),
        }
    }
}

impl Op {
    /// Which operand is a buffer that is read or written at indices, which follow it.
    pub fn accessed(&self) -> Option<usize> {
        let at = self.info().operands.iter().position(|o| *o == "buffer")?;
        (self.info().operands.get(at + 1) == Some(&"index*")).then_some(at)
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
    /// What the call asks for of it: its path and `!`.
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
