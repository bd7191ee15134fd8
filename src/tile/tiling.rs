//! Tiling of iteration spaces: merges axes, computes the position of a grid point's tile, and
//! builds the copy kernel.
//!
//! In: shapes, and the strides of operands and results over them. Out: grid axes with the position
//! of each tile. It must not know what is computed on a tile, nor machines.

use super::{BufferType, Compute, Extent, Kernel, KernelBuilder, ParamMode, Value, View, tile_size};
use crate::shape::Dim;

/// Maximum rows and columns of a tile of elementwise work.
pub(crate) const ELEMENTWISE: [i64; 2] = [16, 256];

/// The role of an axis of the iteration space in a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AxisRole {
    /// The tile covers a single index.
    Point,
    /// The tile's rows go along it.
    Rows,
    /// The tile's columns go along it.
    Cols,
}

/// Position of a tile in the iteration space.
#[derive(Clone, Debug)]
pub(crate) struct Position {
    /// Role and start index per axis.
    pub(crate) axes: Vec<(AxisRole, Value)>,
    /// Number of rows.
    pub(crate) rows: Extent,
    /// Number of columns.
    pub(crate) cols: Extent,
}

impl Position {
    /// Adds a grid over a shape to a kernel: tiles with at most `most` rows and columns along the
    /// last two axes.
    pub(crate) fn over(kb: &mut KernelBuilder, shape: &[Dim], most: [i64; 2]) -> Position {
        Position::with_rows(kb, shape, shape.len().checked_sub(2), most)
    }

    /// The same with rows along another axis, which is not the last.
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

    /// The start index along each axis.
    pub(crate) fn starts(&self) -> Vec<Value> {
        self.axes.iter().map(|(_, v)| *v).collect()
    }

    /// The axis with a role.
    pub(crate) fn axis(&self, role: AxisRole) -> Option<usize> {
        self.axes.iter().position(|(r, _)| *r == role)
    }

    /// The axes of rows and columns, in the form of loads and stores.
    pub(crate) fn tile_axes(&self) -> (Option<usize>, Option<usize>) {
        (self.axis(AxisRole::Rows), self.axis(AxisRole::Cols))
    }
}

/// The axis for the rows of tiles, with columns along the last axis: the one along which most
/// operands and results are contiguous, so that a tile has several elements of each cache line; on
/// a tie, or if no axis is contiguous, the last one. `strides` has a list per view. Views that are
/// constant along columns are not counted: they are read once.
pub(crate) fn rows_axis(shape: &[Dim], strides: &[Vec<Dim>]) -> Option<usize> {
    let last = shape.len().checked_sub(1)?;
    let dense = |axis: usize| {
        let is_one = |s: &Vec<Dim>, axis: usize| s.get(axis).and_then(Dim::as_const) == Some(1);
        let varies = |s: &Vec<Dim>| s.get(last).and_then(Dim::as_const) != Some(0);
        strides.iter().filter(|s| is_one(s, axis) && varies(s)).count()
    };
    (0..last).max_by_key(|axis| dense(*axis))
}

/// Merges adjacent axes of an iteration space where every view permits it, and drops axes with a
/// single element. `strides` has a list per view, over the same axes as `shape`; `fixed` axes are
/// neither merged nor dropped. Returns the new shape and, for each old axis, the new one; `None`
/// for merged and dropped axes.
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

/// The kernel that copies one view to another of the same shape, converting to its type, with its
/// operands. The only supported conversion is from a narrow float to `f32`.
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
