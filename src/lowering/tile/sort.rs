//! Kernels that order the elements of an axis: the indices of the first ones, or of all.
//!
//! ```text
//! few:  grid (axes before..)
//!   for each 64 elements whose best comes before the last one kept:  put each in its place among those kept
//! all:  grid (axes before..)
//!   merge neighbouring runs of 1, 2, 4, .. indices, from one half of some room to the other and back;  copy the first ones
//! ```
//!
//! The axis is the last one here; views make it so. Equal elements keep the order of their indices, for an element is put, and
//! one of a later run is taken, only before those that come after it for certain. A kernel has no form in vectors but for the best of
//! 64 elements: it goes from element to element. Each index that it reads back is checked, which proves that it is one.

use super::loops::{branch, counted, repeated, truth};
use super::region::{buffer_type, tile_size};
use super::{Call, output_buffer};
use crate::ir::Scalar;
use crate::scalar::{BinaryOp, CmpOp, ReduceKind};
use crate::shape::{Dim, Elem};
use crate::tile::{self, Extent, KernelBuilder, ParamMode, Type, Value, View};

/// Of so many elements at most the first ones are kept in order while the others go by.
pub(super) const FEW: i64 = 128;
/// Elements that are compared with the last one kept at once.
const CHUNK: i64 = 64;
/// Columns of a tile that is copied.
const COLS: i64 = 256;

/// What the kernels share.
struct Sort {
    x: Value,
    /// The place of the row along the axes before.
    lead: Vec<Value>,
    length: Dim,
    elem: Elem,
    descending: bool,
    site: u32,
}

impl Sort {
    fn new(kb: &mut KernelBuilder, x: &View, descending: bool, site: u32) -> Option<Sort> {
        let (length, lead) = x.shape.split_last()?;
        let buffer = kb.buffer(buffer_type(x), ParamMode::In);
        let lead = lead.iter().map(|extent| kb.grid_axis(extent, 1)).collect();
        Some(Sort { x: buffer, lead, length: length.clone(), elem: x.elem, descending, site })
    }

    fn at(&self, places: &[Value]) -> Vec<Value> {
        [self.lead.as_slice(), places].concat()
    }

    fn element(&self, kb: &mut KernelBuilder, i: Value) -> Value {
        kb.load_scalar(self.x, &self.at(&[i]))
    }

    /// An index that is in bounds by construction, which is proved by looking.
    fn within(&self, kb: &mut KernelBuilder, i: Value, bound: &Dim) -> Value {
        let bound = kb.dim(bound);
        kb.check_index(i, bound, self.site)
    }

    /// An index of the axis that was written to a buffer.
    fn index(&self, kb: &mut KernelBuilder, buffer: Value, places: &[Value]) -> Value {
        let i = kb.load_scalar(buffer, &self.at(places));
        let i = kb.to_index(i);
        self.within(kb, i, &self.length)
    }

    fn write(&self, kb: &mut KernelBuilder, buffer: Value, places: &[Value], i: Value) {
        let i = kb.value(tile::Op::Cast, vec![i], Type::Scalar(Elem::I32));
        let one = Extent::Static(1);
        let tile = kb.value(tile::Op::Full, vec![i], Type::Tile(KernelBuilder::tile_type(Elem::I32, one, one)));
        kb.store(buffer, &self.at(places), (None, None), tile);
    }

    /// Does an element come before another one for certain? NaN is greater than every number.
    fn before(&self, kb: &mut KernelBuilder, a: Value, b: Value) -> Value {
        let op = if self.descending { CmpOp::Gt } else { CmpOp::Lt };
        let before = kb.compare_scalars(op, a, b);
        if !self.elem.is_float() {
            return before;
        }
        let (nan, number) = if self.descending { (a, b) } else { (b, a) };
        let nan = kb.compare_scalars(CmpOp::Ne, nan, nan);
        let number = kb.compare_scalars(CmpOp::Eq, number, number);
        let apart = kb.binary(BinaryOp::And, nan, number);
        kb.binary(BinaryOp::Or, before, apart)
    }
}

/// The kernel that writes the indices of the first `count` elements of each row of `x`, at least 1 and at most [`FEW`], to `out`.
pub(super) fn few(name: &str, x: &View, descending: bool, count: i64, out: &View, site: u32) -> Option<Call> {
    let mut kb = KernelBuilder::new(name);
    let sort = Sort::new(&mut kb, x, descending, site)?;
    let kept = kb.buffer(buffer_type(out), ParamMode::InOut);
    let (zero, end, most) = (kb.index(0), kb.dim(&sort.length), kb.index(count));
    let chunk = tile_size(&sort.length, CHUNK);
    let kind = if descending { ReduceKind::Max } else { ReduceKind::Min };
    let count = Dim::from(count);
    counted(&mut kb, (zero, end, chunk), &[zero], |kb, j, filled| {
        let filled = filled[0];
        let cols = kb.extent_at(&sort.length, j, chunk);
        let tile = kb.load(sort.x, &sort.at(&[j]), (None, Some(sort.lead.len())), Extent::Static(1), cols);
        let best = kb.reduce(kind, 1, tile);
        let best = kb.element(best);
        let is_full = kb.compare_scalars(CmpOp::Ge, filled, most);
        let wanted = truth(
            kb,
            is_full,
            |kb| {
                let last = kb.plus(most, -1);
                let last = sort.index(kb, kept, &[last]);
                let last = sort.element(kb, last);
                let before = sort.before(kb, best, last);
                // Of a row with a NaN, the best is that.
                let nan = kb.compare_scalars(CmpOp::Ne, best, best);
                if sort.elem.is_float() { kb.binary(BinaryOp::Or, before, nan) } else { before }
            },
            |kb| kb.scalar(Scalar::Bool(true), Elem::Bool),
        );
        branch(
            kb,
            wanted,
            |kb| {
                let length = match cols {
                    Extent::Static(n) => kb.index(n),
                    Extent::Bounded { value, .. } => value,
                };
                let end = kb.index_binary(BinaryOp::Add, j, length);
                counted(kb, (j, end, 1), &[filled], |kb, i, filled| {
                    insert(kb, &sort, kept, &count, i, filled[0]);
                    let more = kb.plus(filled[0], 1);
                    vec![kb.index_binary(BinaryOp::Min, more, most)]
                })
            },
            |_| vec![filled],
        )
    });
    Some(Call { kernel: kb.finish(), buffers: vec![x.clone(), out.clone()] })
}

/// Puts an element in its place among the `filled` first ones that are kept; what is after the last place is dropped.
fn insert(kb: &mut KernelBuilder, sort: &Sort, kept: Value, count: &Dim, i: Value, filled: Value) {
    let new = sort.element(kb, i);
    let (zero, most) = (kb.index(0), kb.dim(count));
    let put = |kb: &mut KernelBuilder, place: Value, i: Value| {
        let fits = kb.compare_scalars(CmpOp::Lt, place, most);
        branch(
            kb,
            fits,
            |kb| {
                let place = sort.within(kb, place, count);
                sort.write(kb, kept, &[place], i);
                Vec::new()
            },
            |_| Vec::new(),
        );
    };
    let previous = |kb: &mut KernelBuilder, place: Value| {
        let place = kb.plus(place, -1);
        let place = sort.within(kb, place, count);
        sort.index(kb, kept, &[place])
    };
    let state = repeated(
        kb,
        &[filled],
        |kb, place| {
            let is_first = kb.compare_scalars(CmpOp::Le, place[0], zero);
            truth(
                kb,
                is_first,
                |kb| kb.scalar(Scalar::Bool(false), Elem::Bool),
                |kb| {
                    let other = previous(kb, place[0]);
                    let other = sort.element(kb, other);
                    sort.before(kb, new, other)
                },
            )
        },
        |kb, place| {
            let other = previous(kb, place[0]);
            put(kb, place[0], other);
            vec![kb.plus(place[0], -1)]
        },
    );
    put(kb, state[0], i);
}

/// The kernel that orders the indices of each row of `x` in `room` (`[.., 2, n]`), and writes the first of them to `out`.
pub(super) fn all(name: &str, x: &View, descending: bool, room: &View, out: &View, site: u32) -> Option<Call> {
    let mut kb = KernelBuilder::new(name);
    let sort = Sort::new(&mut kb, x, descending, site)?;
    let halves = kb.buffer(buffer_type(room), ParamMode::InOut);
    let target = output_buffer(&mut kb, out);
    let axis = sort.lead.len();
    let one = Extent::Static(1);
    let (zero, end) = (kb.index(0), kb.dim(&sort.length));
    let chunk = tile_size(&sort.length, COLS);
    counted(&mut kb, (zero, end, chunk), &[], |kb, j, _| {
        let cols = kb.extent_at(&sort.length, j, chunk);
        let places = kb.iota(1, j, Elem::I32, one, cols);
        kb.store(halves, &sort.at(&[zero, j]), (None, Some(axis + 1)), places);
        Vec::new()
    });
    let width = kb.index(1);
    let state = repeated(
        &mut kb,
        &[width, zero],
        |kb, state| kb.compare_scalars(CmpOp::Lt, state[0], end),
        |kb, state| {
            let (width, from) = (state[0], state[1]);
            let other = kb.index(1);
            let to = kb.index_binary(BinaryOp::Sub, other, from);
            let half = |kb: &mut KernelBuilder, i: Value| sort.within(kb, i, &Dim::from(2));
            let (from, to) = (half(kb, from), half(kb, to));
            merge_all(kb, &sort, halves, (from, to), width);
            let two = kb.index(2);
            vec![kb.index_binary(BinaryOp::Mul, width, two), to]
        },
    );
    let from = sort.within(&mut kb, state[1], &Dim::from(2));
    let first = out.shape.last().cloned().unwrap_or_default();
    let (end, chunk) = (kb.dim(&first), tile_size(&first, COLS));
    counted(&mut kb, (zero, end, chunk), &[], |kb, j, _| {
        let cols = kb.extent_at(&first, j, chunk);
        let tile = kb.load(halves, &sort.at(&[from, j]), (None, Some(axis + 1)), one, cols);
        kb.store(target, &sort.at(&[j]), (None, Some(axis)), tile);
        Vec::new()
    });
    Some(Call { kernel: kb.finish(), buffers: vec![x.clone(), room.clone(), out.clone()] })
}

/// Merges each two neighbouring runs of `width` indices from one half of the room into one run of the other.
fn merge_all(kb: &mut KernelBuilder, sort: &Sort, halves: Value, (from, to): (Value, Value), width: Value) {
    let (zero, end) = (kb.index(0), kb.dim(&sort.length));
    repeated(
        kb,
        &[zero],
        |kb, low| kb.compare_scalars(CmpOp::Lt, low[0], end),
        |kb, low| {
            let up = |kb: &mut KernelBuilder, i: Value| {
                let i = kb.index_binary(BinaryOp::Add, i, width);
                kb.index_binary(BinaryOp::Min, i, end)
            };
            let middle = up(kb, low[0]);
            let high = up(kb, middle);
            repeated(
                kb,
                &[low[0], middle, low[0]],
                |kb, state| kb.compare_scalars(CmpOp::Lt, state[2], high),
                |kb, state| {
                    let (left, right, place) = (state[0], state[1], state[2]);
                    let read = |kb: &mut KernelBuilder, i: Value| {
                        let i = sort.within(kb, i, &sort.length);
                        sort.index(kb, halves, &[from, i])
                    };
                    let is_left = kb.compare_scalars(CmpOp::Lt, left, middle);
                    let is_right = kb.compare_scalars(CmpOp::Lt, right, high);
                    let both = kb.binary(BinaryOp::And, is_left, is_right);
                    let takes_right = truth(
                        kb,
                        both,
                        |kb| {
                            let (a, b) = (read(kb, left), read(kb, right));
                            let (a, b) = (sort.element(kb, a), sort.element(kb, b));
                            sort.before(kb, b, a)
                        },
                        |_| is_right,
                    );
                    let one = kb.index(1);
                    let next = branch(
                        kb,
                        takes_right,
                        |kb| {
                            let i = read(kb, right);
                            vec![i, left, kb.index_binary(BinaryOp::Add, right, one)]
                        },
                        |kb| {
                            let i = read(kb, left);
                            vec![i, kb.index_binary(BinaryOp::Add, left, one), right]
                        },
                    );
                    let at = sort.within(kb, place, &sort.length);
                    sort.write(kb, halves, &[to, at], next[0]);
                    vec![next[1], next[2], kb.index_binary(BinaryOp::Add, place, one)]
                },
            );
            vec![high]
        },
    );
}
