//! split-matmuls: split-K for matmuls with few rows and few columns.
//!
//! In: an unscheduled module. Out: the same, in which a launch of a matmul with too few columns for
//! all multiprocessors becomes two: separate blocks multiply parts of K, and the partial results
//! are added, followed by the kernel's epilogue.
//!
//! ```text
//! fn f(x: f32[1, 4096], w: f32[4096, 64]) -> f32[1, 64] { x @ w }
//! ...
//!   %12 = dot %10, %11, %8 : tile f32[1, 64]
//! ...
//!   launch @matmul.0(%3, %1, %4)
//! ->
//!   %13 = dot %11, %12, %9 : tile f32[1, 64]
//!   store %2[%3, %4, %7], %13, rows=1, cols=2
//! ...
//!   %6 = view %0 : buf f32[16, 1, 256] strides[256, 0, 1]
//!   %7 = view %1 : buf f32[16, 256, 64]
//!   launch @matmul_part.0(%6, %7, %3)
//!   launch @combine_products.0(%3, %5)
//! ```
//!
//! A part is a matmul too, with one more axis of points, so it gets tiles like all others
//! (`few_rows`). Parts are equal, and aligned to 16 bytes like the whole.
//!
//! # Cost
//!
//! By the arithmetic of `few_rows`, a GPU saturates its memory bandwidth if [`ENOUGH_BLOCKS`]
//! blocks have 16 KiB in flight each, and is proportionally slower with fewer. Another launch takes
//! some 2 microseconds, in which 6.7 MB could be read. So 32 blocks are split if together they read
//! at least 3 MB.
//!
//! Limits: it does not split matmuls with quantised weights, whose panels consist of groups.

use std::collections::BTreeSet;

use super::super::plans::{LaunchPosition, buffer, in_entry, new_slot, slot_type};
use super::super::products::MatmulParts;
use super::super::step::{Changed, Log};
use super::few_rows::{ROWS, begin_with_chunks, columns};
use crate::scalar::BinaryOp;
use crate::shape::{Dim, Elem};
use crate::tile::epilogue::ResultTile;
use crate::tile::machine::{ENOUGH_BLOCKS, LAUNCH_BYTES};
use crate::tile::matmul::{self, LEFT, RIGHT};
use crate::tile::{
    BufferType, Compute, Kernel, KernelBuilder, Kernels, Machine, Matmul, Module, Op, ParamMode, Plan, PlanOp,
    PlanVariant, Position, State, View, row_major,
};

/// Possible numbers of parts.
const PARTS: [i64; 4] = [2, 4, 8, 16];
/// The k indices of a part must be a multiple of this: 16 bytes of any type.
const PART_MULTIPLE: i64 = 16;

/// A matmul that is split.
struct Divided {
    parts: i64,
    part: Kernel,
    combine: Kernel,
    /// Type of the partial results.
    results: BufferType,
}

/// Splits the matmuls of a module where that pays; returns the names of the new kernels.
///
/// # Errors
/// A launch of a value that is in no buffer, which is a bug in attnc.
pub(in super::super) fn run(module: &mut Module, _: &Machine, log: &mut Log<'_>) -> Result<Changed, String> {
    let mut found = Vec::new();
    for k in module.kernels.iter().filter(|k| k.state == State::Unscheduled) {
        let launched = |p: &Plan| p.launched().contains(k.name.as_str());
        let prepares = |p: &Plan| p.variant == PlanVariant::Prepare && launched(p);
        if begin_with_chunks(module, k) && !module.plans.iter().any(prepares) && module.plans.iter().any(launched) {
            found.extend(Divided::find(k).map(|divided| (k.name.clone(), divided)));
        }
    }
    let mut changed = BTreeSet::new();
    if found.is_empty() {
        return Ok(changed);
    }
    let mut kernels = Kernels::beside(module.kernels.iter().map(|k| k.name.clone()).collect());
    for (name, divided) in &found {
        let sums = format!("k is divided among {} blocks, whose sums are added, in 2 launches", divided.parts);
        log.form(name, &sums);
        let part = kernels.add(divided.part.clone());
        let combine = kernels.add(divided.combine.clone());
        for plan in &mut module.plans {
            divided.launch(plan, name, [&part, &combine])?;
        }
        changed.extend([part, combine]);
    }
    module.kernels.retain(|k| found.iter().all(|(name, _)| *name != k.name));
    module.kernels.extend(kernels.list);
    Ok(changed)
}

/// The number of parts for a matmul that reads `bytes` with `blocks` blocks, and whose result has
/// `elements` elements.
fn parts(bytes: i64, blocks: i64, elements: i64, steps: i64) -> i64 {
    let time = |parts: i64| {
        let read = bytes.saturating_mul(ENOUGH_BLOCKS) / blocks.saturating_mul(parts).clamp(1, ENOUGH_BLOCKS);
        // Partial results are written and read.
        let more = if parts == 1 { 0 } else { LAUNCH_BYTES.saturating_add(elements.saturating_mul(8 * parts)) };
        read.saturating_add(more)
    };
    let whole = |n: &i64| steps % (n * PART_MULTIPLE) == 0;
    // The model is rough: a gain of less than a fifth does not count.
    let pays = |n: &i64| time(*n).saturating_mul(5) <= time(1).saturating_mul(4);
    PARTS.into_iter().filter(whole).min_by_key(|n| time(*n)).filter(pays).unwrap_or(1)
}

impl Divided {
    fn find(kernel: &Kernel) -> Option<Divided> {
        let product = MatmulParts::find(kernel)?;
        let [a, b] = product.operands(kernel)?;
        let known = |d: &Dim| d.as_const().filter(|n| *n > 0);
        let shape = kernel.grid.iter().map(|g| known(&g.extent)).collect::<Option<Vec<i64>>>()?;
        let (points, [rows, cols]) = shape.split_last_chunk::<2>()?;
        let steps = matmul::whole_steps(a.shape.last()?)?;
        let dot = matmul::dot(kernel)?;
        if *rows > ROWS || kernel.body.ty(dot.result?).elem() != Some(Elem::F32) {
            return None;
        }
        let along_steps = b.is_dense(b.shape.len().checked_sub(2)?);
        let points = points.iter().copied().fold(1, i64::saturating_mul);
        let width = columns(points, &Dim::from(*cols), along_steps);
        let blocks = points.saturating_mul((cols + width - 1) / width);
        let size = i64::try_from(b.elem.size()).ok()?;
        let read = [points, steps, *cols, size].into_iter().fold(1, i64::saturating_mul);
        let elements = [points, *rows, *cols].into_iter().fold(1, i64::saturating_mul);
        let parts = parts(read, blocks, elements, steps);
        if parts < 2 {
            return None;
        }
        let all: Vec<Dim> = [parts].into_iter().chain(shape).map(Dim::from).collect();
        let results = BufferType { elem: Elem::F32, strides: row_major(&all), shape: all };
        let operands = [(a, a.shape.len() - 1), (b, b.shape.len() - 2)].map(|(b, axis)| in_parts(b, axis, parts));
        let [Some(a), Some(b)] = operands else { return None };
        let part = part(&a, &b, &results, dot.loc)?;
        let combine = combine(kernel, &product, parts, &results)?;
        Some(Divided { parts, part, combine, results })
    }

    /// Replaces all launches of a matmul in a plan by the two kernels.
    fn launch(&self, plan: &mut Plan, name: &str, [part, combine]: [&String; 2]) -> Result<(), String> {
        let is_launch = |op: &Op| matches!(op, Op::Plan(PlanOp::Launch { kernel }) if kernel == name);
        let all: Vec<_> = plan.body.insts().filter(|(_, _, d)| is_launch(&d.op)).map(|(b, i, _)| (b, i)).collect();
        let mut added = BTreeSet::new();
        for (block, inst) in all {
            let data = plan.body.inst(inst).clone();
            let at = LaunchPosition { block, inst, loc: data.loc, out: data.operands.last().copied() };
            let bytes = Dim::product(&self.results.shape).mul(&4.into());
            let number = new_slot(plan, &bytes, at, 0);
            let ty = slot_type(plan, &bytes, &self.results);
            let slot = in_entry(plan, &mut added, Op::Plan(PlanOp::Slot(number)), ty, at);
            let BufferType { elem, shape, strides } = self.results.clone();
            let results = View { root: slot, elem, offset: Dim::zero(), dynamic: Vec::new(), shape, strides };
            let body = &mut plan.body;
            let mut operands = Vec::new();
            for (n, back) in [(LEFT, 1), (RIGHT, 2)] {
                let view = data.operands.get(n).and_then(|v| View::trace(body, *v)).ok_or("an operand in no buffer")?;
                let axis = view.shape.len().checked_sub(back).ok_or("an operand without steps")?;
                let parted = in_parts(&view.buffer_type(), axis, self.parts).ok_or("steps that have no parts")?;
                let view = View { shape: parted.shape, strides: parted.strides, ..view };
                operands.push(buffer(body, at, &view));
            }
            let results = buffer(body, at, &results);
            operands.push(results);
            let launch = body.make_inst(Op::Plan(PlanOp::Launch { kernel: part.clone() }), operands, None, data.loc);
            body.insert_before(block, inst, launch);
            let launch = body.inst_mut(inst);
            launch.op = Op::Plan(PlanOp::Launch { kernel: combine.clone() });
            if let Some(left) = launch.operands.get_mut(LEFT) {
                *left = results;
            }
            launch.operands.remove(RIGHT);
        }
        Ok(())
    }
}

/// A buffer with a leading axis of parts, each covering a part of an axis of constant extent.
fn in_parts(b: &BufferType, axis: usize, parts: i64) -> Option<BufferType> {
    let (mut shape, mut strides) = (b.shape.clone(), b.strides.clone());
    let extent = shape.get_mut(axis)?;
    let steps = extent.as_const()? / parts;
    *extent = steps.into();
    let first = strides.get(axis)?.mul(&steps.into());
    shape.insert(0, parts.into());
    strides.insert(0, first);
    Some(BufferType { elem: b.elem, shape, strides })
}

/// The matmul of two operands, `[points.., M, K]` and `[points.., K, N]`.
fn part(a: &BufferType, b: &BufferType, result: &BufferType, loc: crate::source::Loc) -> Option<Kernel> {
    let mut kb = KernelBuilder::new("matmul_part");
    kb.at(loc);
    for ty in [a, b] {
        kb.buffer(ty.clone(), ParamMode::In);
    }
    let to = kb.buffer(result.clone(), ParamMode::Out);
    let description = Matmul::new(true);
    let tile = matmul::write(&mut kb, &description)?;
    kb.store(to, &tile.at.starts(), tile.at.tile_axes(), tile.result);
    Some(Kernel { compute: Some(Compute::Matmul(description)), ..kb.finish() })
}

/// The kernel of a matmul in which the sum of partial results replaces the matmul.
fn combine(kernel: &Kernel, product: &MatmulParts, parts: i64, results: &BufferType) -> Option<Kernel> {
    let mut kb = KernelBuilder::new("combine_products");
    let mut types = kernel.buffer_types()?;
    *types.get_mut(LEFT)? = results.clone();
    for (n, (ty, p)) in types.into_iter().zip(&kernel.params).enumerate().filter(|(n, _)| *n != RIGHT) {
        kb.buffer(ty, if n == LEFT { ParamMode::In } else { p.mode });
    }
    kb.at(matmul::dot(kernel)?.loc);
    let shape: Vec<Dim> = kernel.grid.iter().map(|g| g.extent.clone()).collect();
    let at = Position::over(&mut kb, &shape, product.matmul.tile);
    let (from, starts) = (kb.param(LEFT)?, at.starts());
    let along = (Some(results.shape.len() - 2), Some(results.shape.len() - 1));
    let mut sum = None;
    for n in 0..parts {
        let number = kb.index(n);
        let one = kb.load(from, &[&[number], starts.as_slice()].concat(), along, at.rows, at.cols);
        sum = Some(match sum {
            None => one,
            Some(others) => kb.binary(BinaryOp::Add, others, one),
        });
    }
    let tile = ResultTile { result: sum?, at };
    product.epilogue.copy_with(kernel, &mut kb, &tile, |kb, n| kb.param(n - usize::from(n >= RIGHT)))?;
    Some(kb.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_divided_where_that_pays_for_a_launch() {
        let of = |steps: i64, cols: i64, blocks: i64| parts(steps * cols * 2, blocks, cols, steps);
        // 32 blocks with 8 MB; 4 MB; a gain smaller than a launch; enough blocks.
        assert_eq!([of(8192, 512, 32), of(4096, 512, 32), of(1024, 512, 32), of(8192, 4096, 128)], [8, 8, 1, 1]);
        // 64 blocks read half as fast as all could.
        assert_eq!([of(16384, 512, 64), of(4096, 512, 64)], [4, 1]);
        // Parts are equal, and consist of chunks.
        assert_eq!([of(8192 + 16, 512, 32), of(8192 + 64, 512, 32)], [1, 4]);
    }
}
