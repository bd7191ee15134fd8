//! Summation of matmuls: the modes of [`Op::Dot`], and their requirements on the CPU and on the
//! operands.
//!
//! In: a `dot` whose operands are read in place where they can be, and the CPU that its kernel is
//! scheduled for. Out: whether a mode is possible, and the best one. The schedule writes the mode,
//! the verifier checks it by the same rule, the interpreter executes it bit by bit (except for
//! `split`, whose order depends on the threads of a block; it is executed as `fma`), and back ends
//! follow it without querying the CPU again. It must not know instructions or registers.

use super::{Body, BufferType, Cpu, Extent, Feature, GROUP, InstData, Op, Space, TileType, Type, Value};
use crate::irtext::{Expr, TextError, read};
use crate::scalar::{BinaryOp, Scalar};
use crate::shape::{Dim, Elem};
use crate::table::Attribute;

/// Maximum row pitch of a panel in bytes: the size of the generated prefetch code is proportional
/// to it. Pairs of k indices are no further apart.
pub const MAX_PANEL_PITCH: i32 = 4096;
/// Row pitches below this can be displacements in machine code.
const FARTHEST: i64 = 1 << 24;

/// How an element of a matmul is summed: over `n` k indices in order, with `a[k]` from its row and
/// `b[k]` from its column, each operation in `f32`, rounded to nearest even, unless stated
/// otherwise. The sum starts with `s`: 0, or the scalar operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DotMode {
    /// `s = s + a[k] b[k]` for each k, products and sums rounded separately; integers are exact,
    /// except for wrapping. Any CPU, any operands; on a GPU, integers only.
    Chain,
    /// `s = fma(a[k], b[k], s)` for each k. A column of a quantised panel is its integers times
    /// their scales, rounded once.
    Fma,
    /// `s = fma(a[k + 1], b[k + 1], s)`, then `s = fma(a[k], b[k], s)`, for each pair of k indices:
    /// elements are `bf16`, and the number of k indices is even. Subnormal elements count as 0, and
    /// so do subnormal sums (`vdpbf16ps`).
    Pairs,
    /// For each block of 32 k indices (the last may be shorter), two chains from 0, over the even
    /// and the odd ones: `e = fma(a[k], b[k], e)`, `o = fma(a[k + 1], b[k + 1], o)`; then `s = s +
    /// (e + o)`. Elements are `bf16`; an odd number of k indices is completed by a zero. Subnormal
    /// elements count as 0, and so do subnormal sums (`tdpbf16ps`).
    Tiles,
    /// For a quantised panel of integers `w[k]`, for each group of [`GROUP`] k indices with scale
    /// `c`:
    ///
    /// ```text
    /// m = max |a[k]|, at least 1e-30;   t = fma(m, 1 / 127, m - m)
    /// q[k] = fma(a[k], 127 / m, 128), rounded to the nearest integer, minus 128
    /// s = fma(sum of q[k] w[k], c * t, s)
    /// ```
    ///
    /// The integer dot product is exact. A NaN or an infinity among the `a[k]` makes `t` NaN (the
    /// maximum is of bits without their sign). For 4-bit integers, `w[k]` is sixteen times the
    /// integer, and 1 / 2032 takes the place of 1 / 127. If K is not a multiple of the group size,
    /// the whole operation is [`DotMode::Fma`].
    Groups,
    /// For few rows, on a GPU: the right operand is read once, 16 bytes per thread at a time, and
    /// its k indices are divided among the threads. Each thread computes `p = fma(a[k], b[k], p)`
    /// over its own, from 0; the `p` are added in an order that depends only on the size of the
    /// block and of the tile, and `s` last. So the error bound of an element is that of
    /// [`DotMode::Fma`].
    Split,
}

/// Maximum number of rows in the mode [`DotMode::Split`].
const FEW_ROWS: i64 = 8;
/// Maximum number of sums per thread in that mode, with contiguous columns.
const MAX_SUMS: i64 = 32;
/// Bytes that a thread reads at a time in that mode.
const CHUNK: i64 = 16;
/// Threads per warp.
const WARP: i64 = 32;

impl DotMode {
    /// Every mode.
    pub const ALL: [DotMode; 6] =
        [DotMode::Chain, DotMode::Fma, DotMode::Pairs, DotMode::Tiles, DotMode::Groups, DotMode::Split];

    /// Name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            DotMode::Chain => "chain",
            DotMode::Fma => "fma",
            DotMode::Pairs => "pairs",
            DotMode::Tiles => "tiles",
            DotMode::Groups => "groups",
            DotMode::Split => "split",
        }
    }

    /// The best mode of a scheduled matmul: the one with the most k indices per instruction.
    pub(super) fn best(body: &Body, dot: &InstData, cpu: Cpu) -> DotMode {
        let all = [DotMode::Tiles, DotMode::Pairs, DotMode::Groups, DotMode::Fma];
        all.into_iter().find(|mode| mode.check(body, dot, cpu).is_ok()).unwrap_or(DotMode::Chain)
    }

    /// The mode of a matmul on a GPU whose threads do not divide its k indices.
    pub(super) fn own_of_gpu(body: &Body, dot: &InstData) -> DotMode {
        let is_float = dot.result.and_then(|v| body.ty(v).elem()) == Some(Elem::F32);
        if is_float { DotMode::Fma } else { DotMode::Chain }
    }

    /// Can a matmul computed by a block of this many warps have this mode?
    ///
    /// # Errors
    /// The missing requirement.
    pub(super) fn check_for_gpu(self, body: &Body, dot: &InstData, warps: u32) -> Result<(), String> {
        let own = DotMode::own_of_gpu(body, dot);
        if self == DotMode::Split {
            return DotOperands::from_dot(body, dot)
                .ok_or("it takes three tiles, or two and a scalar")?
                .split(i64::from(warps));
        }
        if self == own { Ok(()) } else { Err(format!("a GPU sums it as `{}`", own.name())) }
    }

    /// Can a scheduled matmul have this mode?
    ///
    /// # Errors
    /// The missing requirement.
    pub(super) fn check(self, body: &Body, dot: &InstData, cpu: Cpu) -> Result<(), String> {
        let has = match self {
            DotMode::Chain => return Ok(()),
            DotMode::Fma => cpu.has(Feature::Fma),
            DotMode::Pairs => cpu.has(Feature::Bf16),
            DotMode::Tiles => cpu.has(Feature::Amx),
            DotMode::Groups => cpu.sums_bytes(),
            DotMode::Split => false,
        };
        if !has {
            return Err(format!("{cpu} does not support it"));
        }
        let p = DotOperands::from_dot(body, dot).ok_or("it takes three tiles, or two and a scalar")?;
        if p.result.elem != Elem::F32 || p.result.cols.is_one() {
            return Err("the result must be `f32`, of more than one column".into());
        }
        if i64::from(p.result.pitch()) >= FARTHEST {
            return Err("the result's rows are too far apart".into());
        }
        match self {
            DotMode::Chain => Ok(()),
            DotMode::Fma => p.floats(cpu),
            DotMode::Pairs if !p.left.cols.is_even(body) => Err("the number of steps must be even".into()),
            DotMode::Pairs | DotMode::Tiles => p.pairs(cpu),
            DotMode::Groups => p.floats(cpu).and_then(|()| p.groups(cpu)),
            DotMode::Split => Err("the threads of a block divide its steps".into()),
        }
    }
}

impl Attribute for Option<DotMode> {
    const KIND: &'static str = "mode";

    fn text(&self) -> String {
        self.map_or(String::new(), |mode| mode.name().to_string())
    }

    fn read(e: &Expr) -> Result<Option<DotMode>, TextError> {
        let name = read::word(e)?;
        let known = DotMode::ALL.into_iter().find(|mode| mode.name() == name);
        known.map_or_else(
            || Err(TextError::new(e.place, format!("`{name}` is not a mode of a product"))),
            |m| Ok(Some(m)),
        )
    }
}

/// The operands of a matmul.
struct DotOperands<'a> {
    body: &'a Body,
    left: &'a TileType,
    right: &'a TileType,
    result: &'a TileType,
    /// The instructions that define the operands; `None` for block arguments.
    made: [Option<&'a InstData>; 2],
    /// The accumulator is a tile, rather than a scalar 0.
    adds: bool,
}

/// Size of an element in bytes.
fn size(elem: Elem) -> i64 {
    i64::try_from(elem.size()).unwrap_or(1)
}

/// Is an axis contiguous, and are all other strides multiples of `width` elements?
fn in_rows_of_chunks(b: &BufferType, axis: usize, width: i64) -> bool {
    b.is_dense(axis) && b.strides.iter().enumerate().all(|(n, d)| n == axis || d.is_multiple_of(width))
}

/// Is an index provably a multiple of a number: a constant, or anything times one?
/// (`tile::multiples` proves more, but depends on operations, which depend on this file.)
fn is_multiple(body: &Body, v: Value, of: i64) -> bool {
    let Some(data) = body.def_inst(v) else { return false };
    match &data.op {
        Op::Const(Scalar::Int(n)) => n % of == 0,
        Op::Binary(BinaryOp::Mul) => data.operands.iter().any(|v| is_multiple(body, *v, of)),
        _ => false,
    }
}

/// The stride of a buffer along an axis, if it is a constant; 0 without an axis.
fn stride(body: &Body, load: &InstData, axis: Option<usize>) -> Option<i64> {
    let buffer = body.ty(*load.operands.first()?).buffer()?;
    axis.map_or(Some(0), |axis| buffer.strides.get(axis)?.as_const())
}

/// The element type of a load's buffer.
fn elem(body: &Body, load: &InstData) -> Option<Elem> {
    body.ty(*load.operands.first()?).buffer().map(|b| b.elem)
}

/// The `n`-th axis before the last of a load's buffer.
fn axis_from_end(body: &Body, load: &InstData, n: usize) -> Option<usize> {
    body.ty(*load.operands.first()?).buffer()?.shape.len().checked_sub(n)
}

impl<'a> DotOperands<'a> {
    fn from_dot(body: &'a Body, dot: &'a InstData) -> Option<DotOperands<'a>> {
        let [a, b, acc] = dot.operands.as_slice() else { return None };
        // Only the defining operation shows whether it is a constant.
        let zero = |d: &InstData| matches!(d.op, Op::Const(Scalar::Float(x)) if x.to_bits() == 0);
        let adds = match body.ty(*acc) {
            Type::Scalar(_) => body.def_inst(*acc).is_some_and(zero),
            _ => true,
        };
        Some(DotOperands {
            body,
            left: body.ty(*a).tile()?,
            right: body.ty(*b).tile()?,
            result: body.ty(dot.result?).tile()?,
            made: [body.def_inst(*a), body.def_inst(*b)],
            adds,
        })
    }

    /// Few rows, with a right operand in 16-byte chunks: along k (then the left one is too), or
    /// along columns. Every chunk is read by one thread of a warp, and every column is finally
    /// summed by one thread.
    fn split(&self, warps: i64) -> Result<(), String> {
        let Extent::Static(rows @ 1..=FEW_ROWS) = self.result.rows else {
            return Err(format!("there must be 1 to {FEW_ROWS} rows"));
        };
        if self.result.elem != Elem::F32 {
            return Err("the result must be `f32`".into());
        }
        let [Some(left), Some(right)] = self.made else { return Err("the operands must be in memory".into()) };
        let (Op::Window { cols: Some(left_steps), .. }, Some(x)) = (&left.op, self.buffer(left, 0)) else {
            return Err("the left operand must be a window".into());
        };
        let b = self.buffer(right, 0).ok_or("the right operand must be in memory")?;
        let (steps, cols, is_scaled) = match right.op {
            Op::Window { rows: Some(rows), cols: Some(cols) } => (rows, cols, false),
            Op::LoadScaled { .. } => {
                let axis = b.shape.len().checked_sub(2).ok_or("a panel has two axes or more")?;
                (axis, axis + 1, true)
            }
            _ => return Err("the right operand must be in memory".into()),
        };
        let is_float = |b: &BufferType| matches!(b.elem, Elem::F32 | Elem::BF16 | Elem::F16);
        if !is_float(x) || !is_scaled && !is_float(b) {
            return Err("the operands must be floats".into());
        }
        let width = CHUNK / size(b.elem);
        let no_chunks = || Err("the right operand must lie in chunks of 16 bytes".into());
        if !is_scaled && b.is_dense(steps) {
            let together = matches!(self.left.cols, Extent::Static(n) if n % width == 0);
            let halves = size(x.elem) < size(b.elem) && width * size(x.elem) % CHUNK != 0;
            return match together
                && !halves
                && self.in_chunks(right, b, steps, width)
                && self.in_chunks(left, x, *left_steps, CHUNK / size(x.elem))
            {
                true => Ok(()),
                false => no_chunks(),
            };
        }
        if rows * width > MAX_SUMS {
            return Err("there are too many rows".into());
        }
        let most = WARP * width.min(warps);
        if self.result.cols.capacity() > most {
            return Err(format!("there must be at most {most} columns, side by side, in a block of {warps} warps"));
        }
        let whole = b.shape.get(cols).is_some_and(|d| d.is_multiple_of(width));
        let scales = match right.operands.last() {
            Some(v) if is_scaled => self.body.ty(*v).buffer().is_some_and(|s| in_rows_of_chunks(s, cols, 4)),
            _ => true,
        };
        if whole && scales && self.in_chunks(right, b, cols, width) { Ok(()) } else { no_chunks() }
    }

    /// The buffer that an operation reads.
    fn buffer(&self, data: &InstData, n: usize) -> Option<&'a BufferType> {
        self.body.ty(*data.operands.get(n)?).buffer()
    }

    /// Are a view's offset, and its stride along an axis, multiples of this many elements?
    fn in_chunks(&self, data: &InstData, b: &BufferType, axis: usize, width: i64) -> bool {
        let start = data.operands.get(axis + 1);
        in_rows_of_chunks(b, axis, width) && start.is_some_and(|v| is_multiple(self.body, *v, width))
    }

    /// Number of vectors per row of columns.
    fn vectors(&self, cpu: Cpu) -> i64 {
        let lanes = i64::from(cpu.lanes());
        self.result.cols.capacity().max(1).saturating_add(lanes - 1).div_euclid(lanes)
    }

    /// The left operand's k axis and element type, if it is read in place.
    fn left_window(&self) -> Option<(Option<i64>, Option<Elem>)> {
        let load = self.made[0]?;
        let Op::Window { cols, .. } = load.op else { return None };
        Some((stride(self.body, load, cols), elem(self.body, load)))
    }

    /// `f32` operands, or such that are widened to it; rows of the right one are read in full
    /// vectors.
    fn floats(&self, cpu: Cpu) -> Result<(), String> {
        if !self.in_scratch(0) && self.left_window().is_none_or(|(_, e)| e != Some(Elem::F32)) {
            return Err("the left operand must be `f32`".into());
        }
        let lanes = self.vectors(cpu).saturating_mul(i64::from(cpu.lanes()));
        let (row, least) = match self.made[1] {
            _ if self.in_scratch(1) && !self.is_in_pairs() => return Ok(()),
            Some(load) => match (&load.op, elem(self.body, load)) {
                (Op::Window { rows, cols }, Some(elem @ (Elem::F32 | Elem::BF16))) => {
                    let size = if elem == Elem::F32 { 4 } else { 2 };
                    let dense = stride(self.body, load, *cols) == Some(1);
                    let row = stride(self.body, load, *rows).filter(|_| dense);
                    (row.map(|n| n.saturating_mul(size)), lanes.saturating_mul(size))
                }
                (Op::LoadScaled { .. }, _) => (self.scaled_row(load), lanes),
                _ => (None, 0),
            },
            None => (None, 0),
        };
        match row {
            Some(row) if (least..FARTHEST).contains(&row) => Ok(()),
            _ => {
                Err("the right operand's rows must be at known distances, whole vectors long, and not in pairs".into())
            }
        }
    }

    /// Is an operand in scratch, or will it be?
    fn in_scratch(&self, n: usize) -> bool {
        match [self.left, self.right][n].space {
            Space::Any => self.made[n].is_none_or(|d| !d.op.is_read_in_place()),
            space => matches!(space, Space::L1(..)),
        }
    }

    fn is_in_pairs(&self) -> bool {
        self.made[1].is_some_and(|d| matches!(d.op, Op::LoadPairs | Op::PairRows))
    }

    /// Row pitch in bytes of a quantised panel whose rows of scales have as many elements.
    fn scaled_row(&self, load: &InstData) -> Option<i64> {
        let axis = axis_from_end(self.body, load, 2)?;
        let row = stride(self.body, load, Some(axis))?;
        let scales = self.body.ty(*load.operands.last()?).buffer()?.strides.get(axis)?.as_const()?;
        (scales == row).then_some(row)
    }

    /// A quantised panel two vectors wide, with K a multiple of the group size.
    fn groups(&self, cpu: Cpu) -> Result<(), String> {
        let dense = self.in_scratch(0) || self.left_window().is_some_and(|(s, _)| s == Some(1));
        if !dense {
            return Err(format!("the left operand must have {GROUP} steps side by side"));
        }
        let columns = 2 * i64::from(cpu.lanes());
        let scaled = self.made[1].filter(|d| matches!(d.op, Op::LoadScaled { .. }));
        if scaled.and_then(|load| self.scaled_row(load)) != Some(columns) || self.vectors(cpu) != 2 {
            return Err(format!("the right operand must be a panel of {columns} columns of integers"));
        }
        Ok(())
    }

    /// A `bf16` left operand in place with contiguous k, and a right one in interleaved pairs.
    fn pairs(&self, cpu: Cpu) -> Result<(), String> {
        if self.left_window() != Some((Some(1), Some(Elem::BF16))) {
            return Err("the left operand must be a window of `bf16` with its steps side by side".into());
        }
        let vectors = self.vectors(cpu);
        if vectors > 2 || !self.adds {
            return Err(
                "the sums must be of two vectors of columns at most, and start with 0 or go on from a tile".into()
            );
        }
        let near = match self.made[1] {
            Some(load) if load.op == Op::LoadPairs => {
                let extent = |n| axis_from_end(self.body, load, n);
                let pair = stride(self.body, load, extent(3)).map(|n| n.saturating_mul(2));
                let shape = self.body.ty(load.operands[0]).buffer().map(|b| &b.shape);
                let columns = extent(2).and_then(|axis| shape?.get(axis)).and_then(Dim::as_const);
                let whole = columns.is_some_and(|n| n >= vectors.saturating_mul(i64::from(cpu.lanes())));
                whole && pair.is_some_and(|n| (0..=i64::from(MAX_PANEL_PITCH)).contains(&n))
            }
            Some(made) => made.op == Op::PairRows,
            None => false,
        };
        if near {
            Ok(())
        } else {
            Err("the right operand must have pairs of steps of whole vectors, near each other".into())
        }
    }
}
