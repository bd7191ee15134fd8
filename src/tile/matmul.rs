//! Writes the kernel of a matmul that is not scheduled yet.
//!
//! In: a description, and a kernel's parameters: the operands, `[points.., M, K]` and
//! `[points.., K, N]`, others, and last the result. Out: the loops that compute a tile of the
//! result. Lowering describes a matmul of two matrices; when a step of the schedule chooses tile
//! sizes, panels or a block of k indices, it changes the description and has the kernel written
//! again ([`rewrite`]).
//!
//! ```text
//! grid (points.., ceil(M, 64), ceil(N, 64))
//!   acc = 0 + A tile @ B tile;  epilogue;  store
//! ```
//!
//! If K is a constant of at most 2^20, one `dot` covers it, unless the description has a block.
//! Otherwise a loop sums 256 elements of K at a time. For a plain matmul (without an epilogue) the
//! last iteration is peeled, next to the store, so that the sums need not go through scratch.

use super::description::{Matmul, PanelLayout};
use super::epilogue::{Epilogue, ResultTile};
use super::{
    BufferType, Compute, Extent, Inst, InstData, Kernel, KernelBuilder, MAX_EXTENT, Op, ParamMode, Position, Type,
    Value, computed, tile_size,
};
use crate::scalar::{BinaryOp, Scalar};
use crate::shape::{Dim, Elem};

/// The parameters that hold the operands.
pub(crate) const LEFT: usize = 0;
pub(crate) const RIGHT: usize = 1;
/// Elements of the inner dimension per iteration, if it is not constant or too long for a tile.
pub(super) const STEPS: i64 = 256;

/// Adds the grid and the loops to a kernel that has only its parameters. `None` if these are not
/// operands and result of such a matmul.
pub(crate) fn write(kb: &mut KernelBuilder, matmul: &Matmul) -> Option<ResultTile> {
    let [a, b, result] = [kb.param(LEFT)?, kb.param(RIGHT)?, kb.last_param()?];
    let (of_a, of_b, result) = (kb.ty(a).buffer()?.clone(), kb.ty(b).buffer()?, kb.ty(result).buffer()?);
    let (lead, [m, k]) = of_a.shape.split_last_chunk::<2>()?;
    let (shape, rank_of_b) = ([lead, &[m.clone(), result.shape.last()?.clone()]].concat(), of_b.shape.len());
    let at = Position::over(kb, &shape, matmul.tile);
    let (starts, rank) = (at.starts(), shape.len());
    let (points, row, col) = (starts.get(..rank - 2)?, *starts.get(rank - 2)?, *starts.get(rank - 1)?);
    let panels = match &matmul.panels {
        Some(panels) => {
            let points = panels.points.iter().map(|n| points.get(*n).copied()).collect::<Option<Vec<Value>>>()?;
            let is_fit = rank_of_b == points.len() + panels.layout.rank();
            let number = kb.grid_point(rank - 1).filter(|_| is_fit)?;
            Some(Panel { layout: panels.layout, buffer: b, scales: kb.param(RIGHT + 1)?, points, number })
        }
        None => None,
    };
    // i8 and the integers accumulate in their own type, floats in f32.
    let elem = computed(of_a.elem);
    let init = if elem == Elem::F32 { Scalar::Float(0.0) } else { Scalar::Int(0) };
    let acc = kb.full(init, elem, at.rows, at.cols);
    let along = (Some(rank - 2), Some(rank - 1));
    let product = |kb: &mut KernelBuilder, step, steps: Extent, acc| {
        let a = kb.load(a, &[points, &[row, step]].concat(), along, at.rows, steps);
        let b = match &panels {
            Some(panel) => panel.load(kb, step, Type::Tile(KernelBuilder::tile_type(elem, steps, at.cols))),
            None => kb.load(b, &[points, &[step, col]].concat(), along, steps, at.cols),
        };
        kb.dot(a, b, acc)
    };
    let result = match (matmul.block, whole_steps(k)) {
        (None, Some(all)) => {
            let start = kb.index(0);
            product(kb, start, Extent::Static(all), acc)
        }
        (block, _) => kb.summed(k, block.unwrap_or_else(|| tile_size(k, STEPS)), matmul.plain, acc, product),
    };
    Some(ResultTile { result, at })
}

/// The panel of a grid point.
struct Panel {
    layout: PanelLayout,
    buffer: Value,
    /// The next parameter: scales, if it is quantised.
    scales: Value,
    /// Its indices along the axes of points, and its number among the columns.
    points: Vec<Value>,
    number: Value,
}

impl Panel {
    /// Loads the k indices of a tile of this type, from `k`.
    fn load(&self, kb: &mut KernelBuilder, k: Value, ty: Type) -> Value {
        let n = self.points.len();
        let (op, at) = match self.layout {
            PanelLayout::Single => {
                (Op::Load { rows: Some(n + 1), cols: Some(n + 2) }, vec![self.number, k, kb.index(0)])
            }
            PanelLayout::Interleaved(count) => {
                let count = kb.index(count);
                let place = kb.index_binary(BinaryOp::Rem, self.number, count);
                let group = kb.index_binary(BinaryOp::Div, self.number, count);
                (Op::Load { rows: Some(n + 1), cols: Some(n + 3) }, vec![group, k, place, kb.index(0)])
            }
            PanelLayout::Pairs => {
                let (two, first) = (kb.index(2), kb.index(0));
                (Op::LoadPairs, vec![self.number, kb.index_binary(BinaryOp::Div, k, two), first, first])
            }
            PanelLayout::Scaled { bits } => {
                // A byte holds two 4-bit integers.
                let steps = kb.index(i64::from(8 / bits.clamp(1, 8)));
                let row = kb.index_binary(BinaryOp::Div, k, steps);
                (Op::LoadScaled { bits }, vec![self.number, row, kb.index(0), self.scales])
            }
        };
        kb.value(op, [&[self.buffer], self.points.as_slice(), &at].concat(), ty)
    }
}

impl PanelLayout {
    /// Number of axes, without the points.
    fn rank(self) -> usize {
        match self {
            PanelLayout::Single | PanelLayout::Scaled { .. } => 3,
            PanelLayout::Interleaved(_) | PanelLayout::Pairs => 4,
        }
    }
}

/// The inner dimension of a matmul as a number, if a single `dot` covers it.
pub(crate) fn whole_steps(k: &Dim) -> Option<i64> {
    k.as_const().filter(|n| (1..=MAX_EXTENT).contains(n))
}

/// A kernel's matmul instruction.
pub(crate) fn dot(kernel: &Kernel) -> Option<&InstData> {
    kernel.body.insts().map(|(_, _, d)| d).find(|d| matches!(d.op, Op::Dot { .. }))
}

/// The epilogue of a kernel that was generated by [`write`].
pub(crate) fn epilogue(kernel: &Kernel) -> Option<Epilogue> {
    let body = &kernel.body;
    let insts = Epilogue::last_insts(body)?;
    // After the last `dot`, or after the loop, whose head has the counter and the sum as arguments.
    let is_dot = |i: &Inst| matches!(body.inst(*i).op, Op::Dot { .. });
    let (result, rest) = match insts.iter().rposition(is_dot) {
        Some(n) => (body.inst(*insts.get(n)?).result?, insts.get(n + 1..)?),
        None => (*body.block(*body.layout.get(1)?).args.get(1)?, insts),
    };
    let tile = body.ty(result).tile()?;
    // The start of a tile is the index of the grid point times the step.
    let start = |n: usize| {
        let point = kernel.grid.get(n)?.value;
        let is_start = |d: &&InstData| d.op == Op::Binary(BinaryOp::Mul) && d.operands.contains(&point);
        let data = body.block(body.entry()).insts.iter().map(|i| body.inst(*i)).find(is_start);
        data.map_or(Some(point), |d| d.result)
    };
    let last = kernel.grid.len().checked_sub(1)?;
    let starts = [start(last.checked_sub(1)?)?, start(last)?];
    Epilogue::from_insts(kernel, starts, [tile.rows, tile.cols], result, rest)
}

/// The kernel of a matmul written again, by another description and with parameters of these types;
/// if they are one more, the scales of the right operand are among them. `None` if they do not fit.
pub(crate) fn rewrite(kernel: &Kernel, epilogue: &Epilogue, matmul: Matmul, types: Vec<BufferType>) -> Option<Kernel> {
    let mut kb = KernelBuilder::new(&kernel.name);
    let more = types.len().checked_sub(kernel.params.len())?;
    let mut modes: Vec<ParamMode> = kernel.params.iter().map(|p| p.mode).collect();
    modes.splice(RIGHT + 1..RIGHT + 1, vec![ParamMode::In; more]);
    for (ty, mode) in types.into_iter().zip(modes) {
        kb.buffer(ty, mode);
    }
    kb.at(dot(kernel)?.loc);
    let tile = write(&mut kb, &matmul)?;
    let now = epilogue.copy_with(kernel, &mut kb, &tile, |kb, n| kb.param(if n > RIGHT { n + more } else { n }))?;
    let mut made = Kernel { compute: Some(Compute::Matmul(matmul)), ..kb.finish() };
    for (old, new) in now {
        made.body.set_name(new, kernel.body.name(old));
    }
    Some(made)
}
