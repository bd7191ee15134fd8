//! Kernels that sort along an axis and write the indices of the first elements, or of all.
//!
//! ```text
//! few:  grid (leading axes..)
//!   for each 64 elements whose best comes before the last one kept:  insert each into the sorted list of kept ones
//! all:  grid (leading axes..)
//!   merge neighbouring runs of 1, 2, 4, .. indices, from one half of the scratch buffer to the other and back;  copy the first ones
//! ```
//!
//! The sorted axis is the last one; views arrange that. The sort is stable: an element moves ahead
//! of one with a lower index only if it compares strictly before it, in the insertion and in the
//! merge. Only the best of 64 elements is computed with vectors; all else is scalar. Each index
//! read back from a buffer is bounds-checked, since the verifier could not prove it otherwise.
//!
//! GPUs use other kernels, which sort by rank counting ([`ranks`], [`order`]). A kernel's direction
//! and buffers are in its description ([`Order::of_kernel`]).
//!
//! ```text
//! ranks:  grid (leading axes.., elements)    rank = number of elements before this one         the sum over all others of 1 or 0
//! order:  grid (leading axes.., positions)   the index of the element with this rank           the sum over all ranks of its index or 0
//! ```
//!
//! That is n^2 comparisons instead of n log n, but they are independent: a GPU does some 10^13
//! comparisons a second (0.25 ms for 50,000 elements), while a thread that merges waits half a
//! microsecond for memory at each step.
//!
//! Top-k runs in two levels: the top k of each chunk, then the ranks of these candidates
//! ([`ranks_in_chunks`], [`candidates`], then [`ranks`] of these, and [`chosen`]):
//!
//! ```text
//! ranks in chunks:  grid (leading axes.., chunks of 512, elements)    rank = number of elements of the chunk before this one
//! candidates:       grid (leading axes.., chunks, positions)          the value and index of the chunk's element with this rank
//! ranks:            grid (leading axes.., candidates)                 as above
//! chosen:           grid (leading axes.., positions)                  the index of the candidate with this rank
//! ```
//!
//! For `k` of `n` that is `512 n + (k n / 512)^2` comparisons: 5 10^7 for 50 of 50,000, instead of
//! 2.5 10^9. Candidates are ordered by chunk, then by rank in the chunk, so equal ones keep the
//! order of their indices. A last chunk of fewer than `k` elements is padded with candidates of the
//! least value, which come after all others and so sort last.

use super::loops::{branch, counted, repeated, truth};
use super::{
    BufferType, Compute, Extent, Kernel, KernelBuilder, Op, ParamMode, Type, Value, computed, simplify, tile_size,
};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar};
use crate::shape::{Dim, Elem};

/// The most elements that [`few`] keeps sorted while it reads the others.
pub(crate) const FEW: i64 = 128;
/// Elements whose best is compared with the last one kept.
const CHUNK: i64 = 64;
/// Columns of the tiles in which indices are initialised and copied.
const COLS: i64 = 256;

/// The input of a kernel that sorts.
struct Sort {
    x: Value,
    /// The index of the row along the leading axes.
    lead: Vec<Value>,
    length: Dim,
    elem: Elem,
    descending: bool,
    site: u32,
}

impl Sort {
    fn new(kb: &mut KernelBuilder, x: &BufferType, descending: bool, site: u32) -> Option<Sort> {
        let (length, lead) = x.shape.split_last()?;
        let buffer = kb.buffer(x.clone(), ParamMode::In);
        let lead = lead.iter().map(|extent| kb.grid_axis(extent, 1)).collect();
        Some(Sort { x: buffer, lead, length: length.clone(), elem: x.elem, descending, site })
    }

    fn at(&self, places: &[Value]) -> Vec<Value> {
        [self.lead.as_slice(), places].concat()
    }

    fn element(&self, kb: &mut KernelBuilder, i: Value) -> Value {
        kb.load_scalar(self.x, &self.at(&[i]))
    }

    /// An index that is in bounds by construction, checked at run time for the verifier.
    fn within(&self, kb: &mut KernelBuilder, i: Value, bound: &Dim) -> Value {
        let bound = kb.dim(bound);
        kb.check_index(i, bound, self.site)
    }

    /// Reads an index along the axis from a buffer.
    fn index(&self, kb: &mut KernelBuilder, buffer: Value, places: &[Value]) -> Value {
        let i = kb.load_scalar(buffer, &self.at(places));
        let i = kb.to_index(i);
        self.within(kb, i, &self.length)
    }

    fn write(&self, kb: &mut KernelBuilder, buffer: Value, places: &[Value], i: Value) {
        let i = kb.value(Op::Cast, vec![i], Type::Scalar(Elem::I32));
        let one = Extent::Static(1);
        let tile = kb.value(Op::Full, vec![i], Type::Tile(KernelBuilder::tile_type(Elem::I32, one, one)));
        kb.store(buffer, &self.at(places), (None, None), tile);
    }

    /// Does `a` come strictly before `b`? NaN is greater than every number. For scalars.
    fn before(&self, kb: &mut KernelBuilder, a: Value, b: Value) -> Value {
        self.before_by(kb, a, b, &KernelBuilder::compare_scalars)
    }

    /// The same for tiles, which are broadcast.
    fn comes_before(&self, kb: &mut KernelBuilder, a: Value, b: Value) -> Value {
        self.before_by(kb, a, b, &KernelBuilder::compare)
    }

    fn before_by(
        &self,
        kb: &mut KernelBuilder,
        a: Value,
        b: Value,
        compare: &dyn Fn(&mut KernelBuilder, CmpOp, Value, Value) -> Value,
    ) -> Value {
        let op = if self.descending { CmpOp::Gt } else { CmpOp::Lt };
        let before = compare(kb, op, a, b);
        if !self.elem.is_float() {
            return before;
        }
        let (nan, number) = if self.descending { (a, b) } else { (b, a) };
        let nan = compare(kb, CmpOp::Ne, nan, nan);
        let number = compare(kb, CmpOp::Eq, number, number);
        let apart = kb.binary(BinaryOp::And, nan, number);
        kb.binary(BinaryOp::Or, before, apart)
    }
}

/// The kernel that writes the indices of the first elements of each row of `x`, at least 1 and at
/// most [`FEW`], to `out`.
pub(super) fn few(name: &str, x: &BufferType, descending: bool, out: &BufferType, site: u32) -> Option<Kernel> {
    let count = out.shape.last()?.as_const().filter(|k| (1..=FEW).contains(k))?;
    let mut kb = KernelBuilder::new(name);
    let sort = Sort::new(&mut kb, x, descending, site)?;
    let kept = kb.buffer(out.clone(), ParamMode::InOut);
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
                // The best of a row with a NaN is NaN.
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
    Some(kb.finish())
}

/// Inserts an element into the sorted list of `filled` kept ones; if the list is full, its last
/// element is dropped.
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

/// The kernel that orders the indices of each row of `x` in the scratch buffer `room`
/// (`[.., 2, n]`), and writes the first of them to `out`.
pub(super) fn all(
    name: &str,
    x: &BufferType,
    descending: bool,
    room: &BufferType,
    out: &BufferType,
    site: u32,
) -> Option<Kernel> {
    let mut kb = KernelBuilder::new(name);
    let sort = Sort::new(&mut kb, x, descending, site)?;
    let halves = kb.buffer(room.clone(), ParamMode::InOut);
    let target = kb.buffer(out.clone(), ParamMode::Out);
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
    Some(kb.finish())
}

/// Merges each pair of neighbouring runs of `width` indices in one half of the scratch buffer into
/// one run in the other.
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

/// The operands of a sort.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) x: BufferType,
    /// The scratch buffer of a merge sort.
    pub(crate) room: Option<BufferType>,
    /// The indices of the first elements.
    pub(crate) out: BufferType,
    /// Do greater elements come first?
    pub(crate) descending: bool,
}

impl Order {
    /// Reads a kernel's description.
    pub(crate) fn of_kernel(kernel: &Kernel) -> Option<Order> {
        let Some(Compute::Sort { descending, .. }) = kernel.compute else { return None };
        let mut types = kernel.buffer_types()?;
        let (out, x) = (types.pop()?, types.first()?.clone());
        Some(Order { x, room: types.get(1).cloned(), out, descending })
    }
}

/// Elements or positions per grid point of [`ranks`] and [`order`], and how many of the other
/// elements are compared with them at a time.
const OWN: i64 = 8;
const OTHERS: i64 = 512;

/// For each of [`OWN`] items along an axis, the sum of `term` over all others, tile by tile.
/// Returns the sums and the index of the first item.
fn sums(
    kb: &mut KernelBuilder,
    (own, all): (&Dim, &Dim),
    term: impl FnOnce(&mut KernelBuilder, (Value, Extent), (Value, Extent)) -> Value,
) -> (Value, Value) {
    let one = Extent::Static(1);
    let step = tile_size(own, OWN);
    let point = kb.grid_axis(own, step);
    let start = kb.times(point, step);
    let rows = kb.extent_at(own, start, step);
    let nothing = kb.full(Scalar::Int(0), Elem::I32, rows, one);
    let (zero, end, chunk) = (kb.index(0), kb.dim(all), tile_size(all, OTHERS));
    let sums = counted(kb, (zero, end, chunk), &[nothing], |kb, j, sums| {
        let cols = kb.extent_at(all, j, chunk);
        let terms = term(kb, (start, rows), (j, cols));
        let more = kb.reduce(ReduceKind::Sum, 1, terms);
        vec![kb.binary(BinaryOp::Add, sums[0], more)]
    });
    (sums[0], start)
}

/// The kernel that writes the rank of each element of each row of `x`, the number of elements
/// before it, to `[.., 0, i]` of `ranks`.
pub(crate) fn ranks(name: &str, x: &BufferType, descending: bool, ranks: &BufferType) -> Option<Kernel> {
    let mut kb = KernelBuilder::new(name);
    let sort = Sort::new(&mut kb, x, descending, 0)?;
    let to = kb.buffer(ranks.clone(), ParamMode::Out);
    let (axis, one) = (sort.lead.len(), Extent::Static(1));
    let (sum, start) = sums(&mut kb, (&sort.length, &sort.length), |kb, (i, rows), (j, cols)| {
        let own = kb.load(sort.x, &sort.at(&[i]), (Some(axis), None), rows, one);
        let other = kb.load(sort.x, &sort.at(&[j]), (None, Some(axis)), one, cols);
        come_before(kb, &sort, (own, i, rows), (other, j, cols))
    });
    let zero = kb.index(0);
    kb.store(to, &sort.at(&[zero, start]), (Some(axis + 1), None), sum);
    Some(simplified(kb.finish()))
}

/// Elements of a chunk, the first of which are candidates for top-k.
pub(crate) const CANDIDATES_OF: i64 = 512;

/// Number of chunks in a row of `length` elements.
pub(crate) fn chunks(length: &Dim) -> Option<Dim> {
    length.ceil_div(&CANDIDATES_OF.into())
}

/// For each of `own`, 1 where an element of `other` comes before it, and 0 elsewhere: the sum is
/// its rank. Ties are broken by index.
fn come_before(
    kb: &mut KernelBuilder,
    sort: &Sort,
    (own, i, rows): (Value, Value, Extent),
    (other, j, cols): (Value, Value, Extent),
) -> Value {
    let one = Extent::Static(1);
    // Broadcast first, so that all later operations are on tiles of the same shape.
    let full = Type::Tile(KernelBuilder::tile_type(computed(sort.elem), rows, cols));
    let [own, other] =
        [own, other].map(|x| if *kb.ty(x) == full { x } else { kb.value(Op::Copy, vec![x], full.clone()) });
    let own_at = kb.iota(0, i, Elem::I32, rows, one);
    let other_at = kb.iota(1, j, Elem::I32, one, cols);
    let (first, later) = (sort.comes_before(kb, other, own), sort.comes_before(kb, own, other));
    let lower = kb.compare(CmpOp::Lt, other_at, own_at);
    let (yes, no) = (kb.scalar(Scalar::Int(1), Elem::I32), kb.scalar(Scalar::Int(0), Elem::I32));
    let lower = kb.select(lower, yes, no);
    let equal = kb.select(later, no, lower);
    kb.select(first, yes, equal)
}

/// The kernel that writes the rank of each element of each row of `x` within its chunk to
/// `[.., 0, i]` of `ranks`.
pub(crate) fn ranks_in_chunks(name: &str, x: &BufferType, ranks: &BufferType) -> Option<Kernel> {
    let mut kb = KernelBuilder::new(name);
    let sort = Sort::new(&mut kb, x, true, 0)?;
    let to = kb.buffer(ranks.clone(), ParamMode::Out);
    let (axis, one) = (sort.lead.len(), Extent::Static(1));
    let chunk = kb.grid_axis(&sort.length, CANDIDATES_OF);
    let group = kb.grid_axis(&CANDIDATES_OF.into(), OWN);
    let from = kb.times(chunk, CANDIDATES_OF);
    let cols = kb.extent_at(&sort.length, from, CANDIDATES_OF);
    // If the last chunk is shorter, groups beyond its end have no elements.
    let (within, end) = (kb.times(group, OWN), kb.dim(&sort.length));
    let start = kb.index_binary(BinaryOp::Add, from, within);
    let start = kb.index_binary(BinaryOp::Min, start, end);
    let (rest, most) = (kb.index_binary(BinaryOp::Sub, end, start), kb.index(OWN));
    let rows = Extent::Bounded { value: kb.index_binary(BinaryOp::Min, rest, most), max: OWN };
    let own = kb.load(sort.x, &sort.at(&[start]), (Some(axis), None), rows, one);
    let other = kb.load(sort.x, &sort.at(&[from]), (None, Some(axis)), one, cols);
    let terms = come_before(&mut kb, &sort, (own, start, rows), (other, from, cols));
    let sum = kb.reduce(ReduceKind::Sum, 1, terms);
    let zero = kb.index(0);
    kb.store(to, &sort.at(&[zero, start]), (Some(axis + 1), None), sum);
    Some(simplified(kb.finish()))
}

/// The kernel that writes the first elements of each chunk of each row of `x`, ordered by rank, to
/// `values`, and their indices to `indices`, both `[.., chunks, positions]`.
pub(crate) fn candidates(
    name: &str,
    x: &BufferType,
    ranks: &BufferType,
    [values, indices]: [&BufferType; 2],
) -> Option<Kernel> {
    let mut kb = KernelBuilder::new(name);
    let sort = Sort::new(&mut kb, x, true, 0)?;
    let ranks = kb.buffer(ranks.clone(), ParamMode::In);
    let [to, to_indices] = [values, indices].map(|ty| kb.buffer(ty.clone(), ParamMode::Out));
    let (axis, one) = (sort.lead.len(), Extent::Static(1));
    let chunk = kb.grid_axis(&sort.length, CANDIDATES_OF);
    let count = values.shape.last()?;
    let step = tile_size(count, OWN);
    let point = kb.grid_axis(count, step);
    let (from, place, zero) = (kb.times(chunk, CANDIDATES_OF), kb.times(point, step), kb.index(0));
    let cols = kb.extent_at(&sort.length, from, CANDIDATES_OF);
    let rows = kb.extent_at(count, place, step);
    let rank = kb.load(ranks, &sort.at(&[zero, from]), (None, Some(axis + 1)), one, cols);
    let x = kb.load(sort.x, &sort.at(&[from]), (None, Some(axis)), one, cols);
    let wanted = kb.iota(0, place, Elem::I32, rows, one);
    let index = kb.iota(1, from, Elem::I32, one, cols);
    let here = kb.compare(CmpOp::Eq, rank, wanted);
    let (none, least) = (kb.scalar(Scalar::Int(0), Elem::I32), Scalar::identity(ReduceKind::Max, sort.elem));
    let least = kb.scalar(least, computed(sort.elem));
    let value = kb.select(here, x, least);
    let value = kb.reduce(ReduceKind::Max, 1, value);
    let index = kb.select(here, index, none);
    let index = kb.reduce(ReduceKind::Sum, 1, index);
    let at = sort.at(&[chunk, place]);
    kb.store(to, &at, (Some(axis + 1), None), value);
    kb.store(to_indices, &at, (Some(axis + 1), None), index);
    Some(simplified(kb.finish()))
}

/// The kernel that writes the indices of the candidates whose ranks are 0, 1, .. to each row of
/// `out`.
pub(crate) fn chosen(name: &str, ranks: &BufferType, indices: &BufferType, out: &BufferType) -> Option<Kernel> {
    let mut kb = KernelBuilder::new(name);
    let [from, indices] = [ranks, indices].map(|ty| kb.buffer(ty.clone(), ParamMode::In));
    picked(kb, (from, ranks), Some(indices), out)
}

/// The kernel that writes the indices whose ranks are 0, 1, .. to each row of `out`.
pub(crate) fn order(name: &str, ranks: &BufferType, out: &BufferType) -> Option<Kernel> {
    let mut kb = KernelBuilder::new(name);
    let from = kb.buffer(ranks.clone(), ParamMode::In);
    picked(kb, (from, ranks), None, out)
}

/// The kernel that writes, for the ranks 0, 1, .., the position of the element with this rank, or
/// the value of `indices` at that position.
fn picked(
    mut kb: KernelBuilder,
    (from, ranks): (Value, &BufferType),
    indices: Option<Value>,
    out: &BufferType,
) -> Option<Kernel> {
    let to = kb.buffer(out.clone(), ParamMode::Out);
    let (count, before) = out.shape.split_last()?;
    let all = ranks.shape.last()?;
    let lead: Vec<Value> = before.iter().map(|extent| kb.grid_axis(extent, 1)).collect();
    let (axis, one) = (lead.len(), Extent::Static(1));
    let zero = kb.index(0);
    let (sum, start) = sums(&mut kb, (count, all), |kb, (p, rows), (i, cols)| {
        let at = [lead.as_slice(), &[zero, i]].concat();
        let rank = kb.load(from, &at, (None, Some(axis + 1)), one, cols);
        let place = kb.iota(0, p, Elem::I32, rows, one);
        let index = match indices {
            Some(indices) => kb.load(indices, &[lead.as_slice(), &[i]].concat(), (None, Some(axis)), one, cols),
            None => kb.iota(1, i, Elem::I32, one, cols),
        };
        let here = kb.compare(CmpOp::Eq, rank, place);
        let none = kb.scalar(Scalar::Int(0), Elem::I32);
        kb.select(here, index, none)
    });
    let at = [lead.as_slice(), &[start]].concat();
    kb.store(to, &at, (Some(axis), None), sum);
    Some(simplified(kb.finish()))
}

fn simplified(mut kernel: Kernel) -> Kernel {
    simplify(&mut kernel.body);
    kernel
}
