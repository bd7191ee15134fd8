//! Elementwise work whose operands or results are contiguous along different axes, as in `x.T + y`:
//! on a GPU, tiles are transposed in shared memory.
//!
//! In: an unscheduled kernel. Out: the same with square tiles, and the accesses that get runs of
//! their own (`Tiled::apart`). It must not know how threads
//! are mapped to elements, nor which sizes are good ([`cost::turned_tile`] decides).
//!
//! ```text
//! before                                   after
//!   %a = load %x[..]   dense along rows      run (32, 32) { %a = load %x[..] @l1(0, padded) }      neighbouring threads along rows
//!   %b = load %y[..]   dense along cols      (barrier)
//!   %c = add %a, %b                          run (32, 32) { %b = load; %c = add %a, %b; store }    neighbouring threads along columns
//!   store %z[..], %c   dense along cols
//! ```
//!
//! The axis of the work is the one along which most accesses are contiguous; in a tie, the axis of
//! a result. Tiles contiguous along the other axis are loaded before, in a run of their own, or
//! stored after, in another. Padded rows let threads access columns of shared memory without bank
//! conflicts.
//!
//! Kernels with a single block, whose tile operations are all elementwise, loads or stores, and
//! that load nothing they have stored. Reductions are unchanged: each reads its input along the
//! axis that most of its accesses take.

use std::collections::BTreeSet;

use super::cost;
use super::tiles::{Along, Axes};
use crate::shape::Elem;
use crate::tile::schedule::runs::is_elementwise;
use crate::tile::{Body, Inst, InstData, Kernel, Op, TileType};

/// Accesses to tiles with several rows and columns, by the axis along which they are contiguous in
/// memory.
struct Accesses {
    /// Along rows; along columns.
    along: [Vec<Inst>; 2],
    /// Size of the narrowest element of either.
    bytes: [u64; 2],
}

impl Accesses {
    /// Finds them, in a suitable kernel that has both.
    fn find(kernel: &Kernel) -> Option<Accesses> {
        let body = &kernel.body;
        if body.layout.len() != 1 || !body.insts().all(|(_, _, data)| is_simple(body, data)) {
            return None;
        }
        let mut found = Accesses { along: [Vec::new(), Vec::new()], bytes: [u64::MAX; 2] };
        let mut written = BTreeSet::new();
        for (_, i, data) in body.insts() {
            let buffer = data.operands.first();
            match &data.op {
                Op::Load { .. } if buffer.is_some_and(|b| written.contains(b)) => return None,
                Op::Store { .. } => written.extend(buffer.copied()),
                _ => {}
            }
            if let Some((axis, elem)) = lies_along(body, data) {
                found.along[axis].push(i);
                found.bytes[axis] = found.bytes[axis].min(elem.size());
            }
        }
        found.along.iter().all(|a| !a.is_empty()).then_some(found)
    }

    /// The accesses that are not contiguous along the axis of the work.
    fn apart(&self, body: &Body) -> &[Inst] {
        let [rows, cols] = &self.along;
        let stores = |all: &[Inst]| all.iter().any(|i| matches!(body.inst(*i).op, Op::Store { .. }));
        let rows_are_work = rows.len() > cols.len() || rows.len() == cols.len() && stores(rows) && !stores(cols);
        if rows_are_work { cols } else { rows }
    }
}

/// Is an operation a tile access, elementwise, or computed from indices alone?
fn is_simple(body: &Body, data: &InstData) -> bool {
    let has_tile = |v| body.ty(v).any_tile().is_some();
    match &data.op {
        Op::Load { .. } | Op::Store { .. } | Op::Full | Op::Iota { .. } => true,
        Op::LoadScalar | Op::Length { .. } => false,
        op => is_elementwise(op) || !data.operands.iter().chain(&data.result).any(|v| has_tile(*v)),
    }
}

/// The tile of an access.
fn tile_of<'a>(body: &'a Body, data: &InstData) -> Option<&'a TileType> {
    body.ty(data.result.or(data.operands.last().copied())?).tile()
}

/// The axis along which a tile with several rows and columns is contiguous in memory, if there is
/// one, and the element type there.
fn lies_along(body: &Body, data: &InstData) -> Option<(usize, Elem)> {
    let (Op::Load { rows, cols } | Op::Store { rows, cols }) = data.op else { return None };
    let tile = tile_of(body, data)?;
    let buffer = body.ty(*data.operands.first()?).buffer()?;
    // An axis of stride 0 is read once for many elements.
    let repeats = |one: bool, axis: Option<usize>| one || axis.is_none_or(|axis| buffer.repeats(axis));
    if repeats(tile.rows.is_one(), rows) || repeats(tile.cols.is_one(), cols) {
        return None;
    }
    let is_dense = |axis: Option<usize>| axis.is_some_and(|axis| buffer.is_dense(axis));
    let axis = [1, 0].into_iter().find(|side| is_dense([rows, cols][*side]))?;
    Some((axis, buffer.elem))
}

/// The grid axes along which tiles go: rows, columns. `None` if there are several for either.
fn sides(axes: &Axes) -> Option<[usize; 2]> {
    let of = |side| {
        let mut all = (0..axes.0.len()).filter(|n| axes.0[*n].side == Some(side));
        let found = all.next().filter(|n| matches!(axes.0[*n].along, Along::Grid(_)));
        found.filter(|_| all.next().is_none())
    };
    Some([of(0)?, of(1)?])
}

/// The tile's rows and columns; `None` if tiles are not to be transposed.
fn sizes(kernel: &Kernel, accesses: &Accesses, axes: &Axes, sides: [usize; 2]) -> Option<[i64; 2]> {
    let body = &kernel.body;
    let tiles = accesses.apart(body).iter().map(|i| body.inst(*i)).filter_map(|d| tile_of(body, d));
    let shared = tiles.map(|t| i64::from(t.element_bytes())).sum();
    let bytes = accesses.bytes[0].min(accesses.bytes[1]);
    let along: Vec<usize> = sides.iter().filter_map(|n| grid_axis(axes, *n)).collect();
    let others = kernel.grid.iter().enumerate().filter(|(n, _)| !along.contains(n));
    let points = others.map(|(_, g)| g.extent.as_const().unwrap_or(1).max(0)).fold(1, i64::saturating_mul);
    cost::turned_tile(sides.map(|n| axes.0[n].all), points, bytes, shared)
}

fn grid_axis(axes: &Axes, n: usize) -> Option<usize> {
    match axes.0.get(n)?.along {
        Along::Grid(g) => Some(g),
        Along::Loop => None,
    }
}

/// Gives a kernel with operands contiguous along both axes tiles with which both are accessed in
/// whole sectors. Returns the accesses that get runs of their own, or `None` if the kernel is
/// unchanged; and a remark.
pub(super) fn turn(kernel: &mut Kernel) -> Option<(Option<BTreeSet<Inst>>, String)> {
    let accesses = Accesses::find(kernel)?;
    let mut axes = Axes::find(kernel)?;
    let sides = sides(&axes)?;
    let why = "memory is accessed along rows and along columns";
    let apart: BTreeSet<Inst> = accesses.apart(&kernel.body).iter().copied().collect();
    let before = (kernel.clone(), axes.clone());
    let resized = |kernel: &mut Kernel, axes: &mut Axes| {
        let [rows, cols] = sizes(kernel, &accesses, axes, sides)?;
        let mut each = sides.into_iter().zip([rows, cols]);
        let fit = each.all(|(n, size)| axes.resize(kernel, n, size) || axes.resize_bounded(kernel, n, size));
        fit.then(|| format!("{rows} by {cols}"))
    };
    let Some(size) = resized(kernel, &mut axes) else {
        (*kernel, axes) = before;
        let not = match sides.into_iter().filter_map(|n| axes.0[n].all).min() {
            Some(n) if n < cost::SHORT => format!("an axis has only {n} elements"),
            _ => format!("{} tiles do not fit", apart.len()),
        };
        return Some((None, format!("{why}; no tiles are turned in shared memory: {not}")));
    };
    // Indices first, then the loads that the rest depends on, so that everything else is one run.
    let entry = kernel.body.entry();
    let mut insts = std::mem::take(&mut kernel.body.block_mut(entry).insts);
    insts.sort_by_key(|i| {
        let data = kernel.body.inst(*i);
        match data.result.and_then(|v| kernel.body.ty(v).tile()) {
            None if !matches!(data.op, Op::Store { .. }) => 0,
            Some(_) if apart.contains(i) => 1,
            _ => 2,
        }
    });
    kernel.body.block_mut(entry).insts = insts;
    let which = match apart.len() {
        1 => format!("a tile of {size} elements is"),
        n => format!("{n} tiles of {size} elements are"),
    };
    Some((Some(apart), format!("{which} turned in shared memory, since {why}")))
}
