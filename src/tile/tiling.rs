//! Iteration spaces cut into tiles: which axes are one, where the tile of a grid point is, and the kernel that copies.
//!
//! In: shapes, and the strides of what is read and written over them. Out: the axes of a grid with the place of each tile. What
//! it must not know: what is computed at a tile, and machines.

use super::{BufferType, Compute, Extent, Kernel, KernelBuilder, ParamMode, Value, View, tile_size};
use crate::shape::Dim;

/// Rows and columns of a tile of elementwise work.
pub(crate) const ELEMENTWISE: [i64; 2] = [16, 256];

/// What an axis of the iteration space is to a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AxisRole {
    /// The tile is at one place of it.
    Point,
    /// The tile's rows go along it.
    Rows,
    /// The tile's columns go along it.
    Cols,
}

/// A tile's place in the iteration space: for each axis its role and where the tile starts.
#[derive(Clone, Debug)]
pub(crate) struct Position {
    /// AxisRole and start of each axis.
    pub(crate) axes: Vec<(AxisRole, Value)>,
    /// Rows of the tile.
    pub(crate) rows: Extent,
    /// Columns of the tile.
    pub(crate) cols: Extent,
}

impl Position {
    /// Adds a grid over a shape to a kernel: tiles of at most so many rows and columns along the last two axes.
    pub(crate) fn over(kb: &mut KernelBuilder, shape: &[Dim], most: [i64; 2]) -> Position {
        Position::with_rows(kb, shape, shape.len().checked_sub(2), most)
    }

    /// The same with rows along an axis, which is not the last.
    pub(crate) fn with_rows(
        kb: &mut KernelBuilder,
        shape: &[Dim],
        rows: Option<usize>,
        [most_rows, most_cols]: [i64; 2],
    ) -> Position {
        let mut at = Position { axes: Vec::new(), rows: Extent::Static(1), cols: Extent::Static(1) };
        for (i, extent) in shape.iter().enumerate() {
            let (role, max) = match shape.len() - i {
                1 => (AxisRole::Cols, tile_size(extent, most_cols)),
                _ if rows == Some(i) => (AxisRole::Rows, tile_size(extent, most_rows)),
                _ => (AxisRole::Point, 1),
            };
            let point = kb.grid_axis(extent, max);
            let start = kb.times(point, max);
            match role {
                AxisRole::Cols => at.cols = kb.extent_at(extent, start, max),
                AxisRole::Rows => at.rows = kb.extent_at(extent, start, max),
                AxisRole::Point => {}
            }
            at.axes.push((role, start));
        }
        at
    }

    /// The start along each axis.
    pub(crate) fn starts(&self) -> Vec<Value> {
        self.axes.iter().map(|(_, v)| *v).collect()
    }

    /// The axis of a role.
    pub(crate) fn axis(&self, role: AxisRole) -> Option<usize> {
        self.axes.iter().position(|(r, _)| *r == role)
    }

    /// The axes of rows and columns, as loads and stores take them.
    pub(crate) fn tile_axes(&self) -> (Option<usize>, Option<usize>) {
        (self.axis(AxisRole::Rows), self.axis(AxisRole::Cols))
    }
}

/// The axis along which rows of tiles go, where columns go along the last one: that along which most of what is read and written lies side
/// by side, so that a tile has several elements of each line of memory; if there is none, or several, the last of them. `strides` has a
/// list for each view. What is the same for all columns is not counted: it is read once.
pub(crate) fn rows_axis(shape: &[Dim], strides: &[Vec<Dim>]) -> Option<usize> {
    let last = shape.len().checked_sub(1)?;
    let dense = |axis: usize| {
        let is_one = |s: &Vec<Dim>, axis: usize| s.get(axis).and_then(Dim::as_const) == Some(1);
        let varies = |s: &Vec<Dim>| s.get(last).and_then(Dim::as_const) != Some(0);
        strides.iter().filter(|s| is_one(s, axis) && varies(s)).count()
    };
    (0..last).max_by_key(|axis| dense(*axis))
}

/// Merges neighbouring axes of an iteration space where every view allows it, and drops axes of extent 1. `strides` has a
/// list for each view, all over the same axes as `shape`; `fixed` axes are neither merged nor dropped. Returns the new
/// shape and, for each old axis, the new one: of merged axes only the innermost keeps its place, and only if alone.
pub(crate) fn merge_axes(
    shape: &mut Vec<Dim>,
    strides: &mut [Vec<Dim>],
    fixed: impl Fn(usize) -> bool,
) -> Vec<Option<usize>> {
    // Groups of old axes, each becoming one new axis.
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for axis in 0..shape.len() {
        if shape[axis].as_const() == Some(1) && !fixed(axis) {
            continue;
        }
        let joins = groups.last().is_some_and(|g| {
            let inner_fixed = fixed(axis) || g.iter().any(|a| fixed(*a));
            let last = g.last().copied().unwrap_or(0);
            !inner_fixed
                && strides.iter().all(|s| match (s.get(last), s.get(axis), shape.get(axis)) {
                    (Some(outer), Some(inner), Some(extent)) => *outer == inner.mul(extent),
                    _ => false,
                })
        });
        match groups.last_mut() {
            Some(g) if joins => g.push(axis),
            _ => groups.push(vec![axis]),
        }
    }
    let mut now = vec![None; shape.len()];
    for (i, g) in groups.iter().enumerate() {
        if let [only] = g.as_slice() {
            now[*only] = Some(i);
        }
    }
    for s in strides.iter_mut() {
        *s = groups.iter().filter_map(|g| g.last().and_then(|a| s.get(*a)).cloned()).collect();
    }
    *shape = groups.iter().map(|g| Dim::product(g.iter().map(|a| &shape[*a]))).collect();
    now
}

/// The kernel that copies one view into another of the same shape, whose type its elements become, and what it reads and
/// writes. Of the other conversions than from a narrow float to `f32` it knows none.
pub(crate) fn copy(name: &str, from: &View, to: &View) -> (Kernel, [View; 2]) {
    let mut shape = to.shape.clone();
    let mut strides = vec![to.strides.clone(), from.broadcast(&shape).strides];
    merge_axes(&mut shape, &mut strides, |_| false);
    let mut merged = strides.into_iter();
    let mut place = |v: &View| View { shape: shape.clone(), strides: merged.next().unwrap_or_default(), ..v.clone() };
    let (to, from) = (place(to), place(from));
    let kernel = copy_kernel(name, &from.buffer_type(), &to.buffer_type());
    (Kernel { compute: Some(Compute::Copy), ..kernel }, [from, to])
}

/// The kernel that copies a buffer into another of the same shape.
pub(super) fn copy_kernel(name: &str, from: &BufferType, to: &BufferType) -> Kernel {
    let rows = rows_axis(&to.shape, &[to.strides.clone(), from.strides.clone()]);
    let mut kb = KernelBuilder::new(name);
    let source = kb.buffer(from.clone(), ParamMode::In);
    let target = kb.buffer(to.clone(), ParamMode::Out);
    let at = Position::with_rows(&mut kb, &to.shape, rows, ELEMENTWISE);
    let tile = kb.load(source, &at.starts(), at.tile_axes(), at.rows, at.cols);
    kb.store(target, &at.starts(), at.tile_axes(), tile);
    kb.finish()
}
