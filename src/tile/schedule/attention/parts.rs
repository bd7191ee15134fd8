//! Split keys (flash decoding): on a GPU, a call with few queries, as in token-by-token generation,
//! divides the keys among blocks.
//!
//! In: an attention and a GPU architecture. Out: the number of parts, their bounds, the buffers for
//! partial results, and the kernel that combines them (Dao et al. 2023, "Flash-Decoding for
//! long-context inference"). Each head and query has one block, so without this a call of one query
//! and 32 heads has 32 blocks, on 132 multiprocessors. This must not know how a part is computed.
//! Two kernels do that, one with tensor core fragments (`tensor_cores::split`) and one that works
//! in runs ([`super::part`]).
//!
//! ```text
//! part     grid (batch and heads.., queries, parts):
//!          as the kernel of all keys, but for one part's blocks of keys; stores
//!          the weighted values                      [.., S, parts, E]
//!          and each query's maximum m_i, sum l_i    [.., S, parts, 2]
//! combine  grid (batch and heads.., S, ceil(E, 256)):
//!          m = max of all m_i;  w_i = 2^((m_i - m) f)
//!          y = sum w_i acc_i / sum w_i l_i;  epilogue;  store
//! ```
//!
//! The number of parts is fixed at compile time ([`Reads::parts`]); their length follows from the
//! number of keys of the call: equal numbers of blocks, except that the last parts may have fewer
//! or none. A part that sees no key has a maximum of `-inf` and a weight of 0. The first part
//! counts a sink. Terms with a weight of 0 are left out.

use super::{ONE, WIDTH, first_hiding, formula_of, normalised};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp};
use crate::shape::{Dim, Elem};
use crate::tile::attention::{Described, KEYS, Node, QUERIES, Step, VALUES};
use crate::tile::epilogue::ResultTile;
use crate::tile::machine::LAUNCH_BYTES;
use crate::tile::{
    AxisRole, BufferType, Extent, Gpu, GpuArch, Kernel, KernelBuilder, Machine, ParamMode, Position, Value, row_major,
    tile_size,
};

/// Largest number of queries for which keys are divided.
pub(in crate::tile::schedule) const FEW_QUERIES: i64 = 16;
/// Largest number of parts: the combining kernel reads the results of all of them.
const MAX_PARTS: i64 = 32;
/// Largest number of heads that share a block: each has its own maximum, sum, result and partial
/// sums in registers.
const MAX_HEADS: i64 = 8;
/// Bytes of shared memory that a block of several heads may need, on every GPU, beside those
/// reserved for matmuls and reductions.
const SHARED: i64 = 80 << 10;
/// Assumed number of keys where it is known only at run time.
const UNKNOWN: i64 = 4096;

/// The memory traffic of a call of few queries.
pub(in crate::tile::schedule) struct Reads<'a> {
    pub(in crate::tile::schedule) arch: GpuArch,
    /// Extents of the grid without parts: heads, or groups of heads that a block reads keys for at
    /// once.
    pub(in crate::tile::schedule) points: &'a [Dim],
    /// Queries.
    pub(in crate::tile::schedule) queries: &'a Dim,
    /// Number of keys, keys per block, and bytes of a key with its value.
    pub(in crate::tile::schedule) keys: &'a Dim,
    pub(in crate::tile::schedule) block: i64,
    pub(in crate::tile::schedule) bytes: i64,
    /// Blocks per multiprocessor that saturate memory bandwidth: some wait for memory while others
    /// compute.
    pub(in crate::tile::schedule) busy: i64,
}

/// Why keys are not divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tile::schedule) enum Whole {
    /// There are more queries than [`FEW_QUERIES`] in all calls.
    ManyQueries,
    /// Queries and keys have the same extent, so few queries mean few keys.
    AsManyKeys,
    /// There are enough blocks for all multiprocessors.
    EnoughBlocks,
    /// A part would have fewer than two blocks of keys.
    FewKeys,
    /// Another launch costs more than the faster reads save.
    FewBytes,
}

/// The remark on a number of parts, or on why keys are not divided.
pub(in crate::tile::schedule) fn remark_on_parts(parts: Result<i64, Whole>) -> String {
    let why = match parts {
        Ok(parts) => return format!("calls of at most {FEW_QUERIES} queries divide their keys into {parts} parts"),
        Err(Whole::ManyQueries) => format!("there are more than {FEW_QUERIES} queries"),
        Err(Whole::AsManyKeys) => "there are as many as queries".to_string(),
        Err(Whole::EnoughBlocks) => "heads alone are work for all multiprocessors".to_string(),
        Err(Whole::FewKeys) => "there are too few".to_string(),
        Err(Whole::FewBytes) => "reading them takes less than another launch".to_string(),
    };
    format!("keys are not divided among blocks: {why}")
}

impl Reads<'_> {
    /// The number of parts: as many as let all blocks run at once with [`Reads::busy`] of them on
    /// every multiprocessor, but with at least two blocks of keys in each part, since the first
    /// block's reads are not hidden behind computation; and at most [`MAX_PARTS`].
    ///
    /// With fewer blocks, memory is read proportionally slower; parts cost a second launch and the
    /// stores of their results. So 32 heads of 4096 keys, 134 MB of `f32`, read by 32 blocks of
    /// 528, take as long as 2.2 GB, and in 16 parts as 145 MB. Gains below a fifth are ignored: the
    /// numbers are rough. An unknown extent counts as 1, an unknown number of keys as [`UNKNOWN`].
    pub(in crate::tile::schedule) fn parts(&self) -> Result<i64, Whole> {
        if self.queries == self.keys {
            return Err(Whole::AsManyKeys);
        }
        if self.queries.as_const().is_some_and(|n| n > FEW_QUERIES) {
            return Err(Whole::ManyQueries);
        }
        let known = self.points.iter().map(|d| d.as_const().unwrap_or(1).max(1));
        let blocks = known.fold(1, i64::saturating_mul);
        let enough = self.busy * Gpu::for_arch(self.arch).processors;
        let keys = self.keys.as_const().unwrap_or(UNKNOWN).max(0);
        let of_keys = keys.saturating_add(self.block - 1) / self.block;
        if enough / blocks < 2 {
            return Err(Whole::EnoughBlocks);
        }
        if of_keys < 4 {
            return Err(Whole::FewKeys);
        }
        let parts = (enough / blocks).min(of_keys / 2).min(MAX_PARTS);
        let all = [blocks, keys, self.bytes].into_iter().fold(1, i64::saturating_mul);
        let read = |parts: i64| all.saturating_mul(enough) / (blocks * parts).min(enough);
        let pays = read(parts).saturating_add(LAUNCH_BYTES).saturating_mul(5) <= read(1).saturating_mul(4);
        if pays { Ok(parts) } else { Err(Whole::FewBytes) }
    }
}

/// Shape of the partial results of the parts, in `f32`.
pub(in crate::tile::schedule) struct PartialResults {
    /// Extents of the leading axes, and of queries: at most [`FEW_QUERIES`].
    lead: Vec<Dim>,
    pub(in crate::tile::schedule) queries: Dim,
    pub(in crate::tile::schedule) parts: i64,
    /// Columns of the result.
    width: Dim,
}

/// The part of the keys that a block processes.
#[derive(Clone, Copy)]
pub(in crate::tile::schedule) struct KeyRange {
    /// Index of the part, a grid point.
    pub(in crate::tile::schedule) number: Value,
    /// First key, and the end of the keys (exclusive).
    pub(in crate::tile::schedule) start: Value,
    pub(in crate::tile::schedule) end: Value,
    /// Buffers of weighted values, and of maxima and sums.
    pub(in crate::tile::schedule) sums: Value,
    pub(in crate::tile::schedule) statistics: Value,
}

impl PartialResults {
    /// Partial results of `parts` parts, for queries, keys and values of these extents.
    pub(in crate::tile::schedule) fn new(lead: &[Dim], queries: &Dim, parts: i64, width: &Dim) -> PartialResults {
        // More than [`FEW_QUERIES`] are never computed this way.
        let queries = queries.min_with(&FEW_QUERIES.into());
        PartialResults { lead: lead.to_vec(), queries, parts, width: width.clone() }
    }

    /// Types of the weighted values of all parts, and of their maxima and sums.
    pub(in crate::tile::schedule) fn types(&self) -> [BufferType; 2] {
        let of = |cols: Dim| {
            let shape = [self.lead.as_slice(), &[self.queries.clone(), self.parts.into(), cols]].concat();
            BufferType { elem: Elem::F32, strides: row_major(&shape), shape }
        };
        [of(self.width.clone()), of(2.into())]
    }

    /// The part of a block, whose index is a grid point; the results are the parameters starting at
    /// index `own`.
    pub(in crate::tile::schedule) fn part(
        &self,
        kb: &mut KernelBuilder,
        own: usize,
        keys: &Dim,
        block: i64,
    ) -> Option<KeyRange> {
        let (sums, statistics) = (kb.param(own)?, kb.param(own + 1)?);
        let number = kb.grid_axis(&self.parts.into(), 1);
        let all = kb.dim(keys);
        let (size, count) = (kb.index(block), kb.index(self.parts));
        let up = kb.plus(all, block - 1);
        let blocks = kb.index_binary(BinaryOp::Div, up, size);
        let up = kb.plus(blocks, self.parts - 1);
        let blocks = kb.index_binary(BinaryOp::Div, up, count);
        let length = kb.times(blocks, block);
        let start = kb.index_binary(BinaryOp::Mul, number, length);
        let end = kb.index_binary(BinaryOp::Add, start, length);
        Some(KeyRange { number, start, end, sums, statistics })
    }

    /// The kernel that combines the parts; its parameters are the attention's, then the partial
    /// results. Differences of maxima times `exponents` are exponents of 2.
    pub(in crate::tile::schedule) fn combine(
        &self,
        unscheduled: &Kernel,
        found: &Described,
        exponents: f64,
    ) -> Option<Kernel> {
        let locations = found.attention.locations;
        let mut kb = KernelBuilder::new("combine_parts");
        kb.at(locations.values);
        for p in &unscheduled.params {
            kb.buffer(unscheduled.body.ty(p.value).buffer()?.clone(), p.mode);
        }
        let [sums, statistics] = self.types().map(|ty| kb.buffer(ty, ParamMode::In));
        let points: Vec<Value> = self.lead.iter().map(|extent| kb.grid_axis(extent, 1)).collect();
        let row = kb.grid_axis(&self.queries, 1);
        let size = tile_size(&self.width, WIDTH);
        let col = kb.grid_axis(&self.width, size);
        let col = kb.times(col, size);
        let width = kb.extent_at(&self.width, col, size);
        kb.at(locations.softmax);
        let (parts, axis) = (Extent::Static(self.parts), points.len() + 1);
        let (zero, one) = (kb.index(0), kb.index(1));
        let at = |col: Value| [points.as_slice(), &[row, zero, col]].concat();
        let highest = kb.load(statistics, &at(zero), (Some(axis), None), parts, ONE);
        let of_parts = kb.load(statistics, &at(one), (Some(axis), None), parts, ONE);
        let bottom = kb.scalar(Scalar::Float(f64::NEG_INFINITY), Elem::F32);
        let nothing = kb.scalar(Scalar::Float(0.0), Elem::F32);
        let most = kb.reduce(ReduceKind::Max, 0, highest);
        let unseen = kb.compare(CmpOp::Eq, most, bottom);
        let base = kb.select(unseen, nothing, most);
        let mut x = kb.binary(BinaryOp::Sub, highest, base);
        if exponents != 1.0 {
            let factor = kb.scalar(Scalar::Float(exponents), Elem::F32);
            x = kb.binary(BinaryOp::Mul, x, factor);
        }
        let weights = kb.unary(UnaryOp::Exp2, x);
        let weighted = kb.binary(BinaryOp::Mul, of_parts, weights);
        let sum = kb.reduce(ReduceKind::Sum, 0, weighted);
        kb.at(locations.values);
        let values = kb.load(sums, &at(col), (Some(axis), Some(axis + 1)), parts, width);
        let none = kb.compare(CmpOp::Eq, weights, nothing);
        let products = kb.binary(BinaryOp::Mul, values, weights);
        let products = kb.select(none, nothing, products);
        let result = kb.reduce(ReduceKind::Sum, 0, products);
        let result = normalised(&mut kb, locations, sum, result);
        let mut axes: Vec<(AxisRole, Value)> = points.iter().map(|p| (AxisRole::Point, *p)).collect();
        axes.extend([(AxisRole::Rows, row), (AxisRole::Cols, col)]);
        let at = Position { axes, rows: ONE, cols: width };
        found.epilogue.copy(unscheduled, &mut kb, &ResultTile { result, at })?;
        Some(kb.finish())
    }
}

impl KeyRange {
    /// The initial maximum and sum: a sink's score and weight for the first part, `-inf` and 0 for
    /// the others.
    pub(in crate::tile::schedule) fn of_first(self, kb: &mut KernelBuilder, [highest, sum]: [Value; 2]) -> [Value; 2] {
        let zero = kb.index(0);
        let is_first = kb.compare_scalars(CmpOp::Eq, self.number, zero);
        let bottom = kb.scalar(Scalar::Float(f64::NEG_INFINITY), Elem::F32);
        let nothing = kb.scalar(Scalar::Float(0.0), Elem::F32);
        [kb.select(is_first, highest, bottom), kb.select(is_first, sum, nothing)]
    }

    /// The smaller of `end` and the end of the part.
    pub(in crate::tile::schedule) fn end_before(self, kb: &mut KernelBuilder, end: Value) -> Value {
        kb.index_binary(BinaryOp::Min, end, self.end)
    }
}

/// The last leading axis along which keys and values repeat: heads that share them (grouped-query
/// attention).
pub(in crate::tile::schedule) fn shared_axis(lead: &[Dim], k: &BufferType, v: &BufferType) -> Option<usize> {
    let repeats = |b: &BufferType, axis: usize| b.strides.get(axis).is_some_and(|d| *d == Dim::zero());
    let heads = |axis: usize| lead.get(axis).and_then(Dim::as_const).is_some_and(|n| n > 1);
    (0..lead.len()).rev().find(|axis| heads(*axis) && repeats(k, *axis) && repeats(v, *axis))
}

/// Heads that share keys and values and one block, with keys in lanes: the block reads them once
/// for all of these heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// The axis of heads.
    pub(super) axis: usize,
    /// Heads per block; divides the axis' extent.
    pub(super) heads: i64,
}

impl Group {
    /// The group of an attention on a GPU, with as many heads as fit. Heads whose width is unknown
    /// or exceeds a tile are not grouped, nor are heads with different masks where masks decide
    /// which blocks are visited.
    pub(super) fn find(unscheduled: &Kernel, found: &Described, machine: Machine) -> Option<Group> {
        machine.gpu()?;
        let ty = |n: usize| unscheduled.buffer_type(n);
        let (lead, [_, width]) = ty(QUERIES)?.shape.split_last_chunk::<2>()?;
        let width = width.as_const().filter(|n| (1..=WIDTH).contains(n))?;
        let values = tile_size(ty(VALUES)?.shape.last()?, WIDTH);
        let axis = shared_axis(lead, ty(KEYS)?, ty(VALUES)?)?;
        let all = lead.get(axis)?.as_const()?;
        // Shared values are kept; each head has its own queries, two results and scores.
        let bytes = |heads: i64| 4 * machine.keys * values + heads * (4 * (width + 2 * values) + 1024);
        // A schedule for which this is still too large tries tiles of fewer columns.
        let most = MAX_HEADS.min(machine.queries / 4);
        let heads = (2..=most).rev().find(|n| all % n == 0 && bytes(*n) <= SHARED)?;
        let steps = &found.attention.steps;
        let from = first_hiding(steps.iter()).unwrap_or(steps.len());
        let varies = |n: usize| {
            let stride = ty(n).and_then(|b| b.strides.get(axis));
            stride.is_some_and(|d| *d != Dim::zero())
        };
        let differs = |step: &Step| {
            formula_of(step).is_some_and(|formula| {
                formula.nodes().any(|node| matches!(node, Node::Position(of, _) if *of == axis))
                    || formula.buffers().any(varies)
            })
        };
        let is_same = !steps.iter().skip(from).any(differs);
        is_same.then_some(Group { axis, heads })
    }
}

/// The kernel of a part without the attention's output parameters, and the indices of the
/// attention's parameters that it keeps.
pub(in crate::tile::schedule) fn without_results(mut kernel: Kernel, unscheduled: &Kernel) -> (Kernel, Vec<usize>) {
    let is_read = |n: usize| unscheduled.params.get(n).is_some_and(|p| p.mode == ParamMode::In);
    let own = unscheduled.params.len();
    let mut n = 0..;
    kernel.params.retain(|_| n.next().is_none_or(|n| n >= own || is_read(n)));
    kernel.find_symbols();
    (kernel, (0..own).filter(|n| is_read(*n)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts for `heads` heads, keys in blocks of 64, 1 KiB each with its value.
    fn count_parts(heads: &[Dim], keys: impl Into<Dim>) -> Result<i64, Whole> {
        let keys = &keys.into();
        let queries = &1.into();
        Reads { arch: GpuArch::Sm90a, points: heads, queries, keys, block: 64, bytes: 1024, busy: 4 }.parts()
    }

    #[test]
    fn keys_are_divided_so_that_every_multiprocessor_has_work() {
        let unknown = Dim::symbol("T");
        // 4 blocks for each of 132 multiprocessors, not more: a second wave would take as long
        // again.
        assert_eq!(count_parts(&[32.into()], unknown.clone()), Ok(16));
        assert_eq!(count_parts(&[60.into()], unknown.clone()), Ok(8));
        assert_eq!(count_parts(&[Dim::symbol("B"), 8.into()], 65536), Ok(MAX_PARTS));
        // Two blocks of keys each.
        assert_eq!(count_parts(&[8.into()], 64 * 9), Ok(4));
        assert_eq!(count_parts(&[8.into()], 64 * 3), Err(Whole::FewKeys));
        assert_eq!(count_parts(&[8.into()], 0), Err(Whole::FewKeys));
        assert_eq!(count_parts(&[265.into()], unknown.clone()), Err(Whole::EnoughBlocks));
        assert_eq!(count_parts(&[264.into()], unknown), Ok(2));
    }

    #[test]
    fn parts_pay_for_a_launch() {
        // One head of 260 keys: 0.27 MB, read by one block of 528 as slowly as 140 MB, and in two
        // parts as half of that. With 20 bytes per key, parts do not pay.
        let of = |bytes: i64| {
            let (queries, keys) = (&Dim::symbol("S"), &260.into());
            Reads { arch: GpuArch::Sm90a, points: &[], queries, keys, block: 64, bytes, busy: 4 }.parts()
        };
        assert_eq!((of(1024), of(20)), (Ok(2), Err(Whole::FewBytes)));
    }

    #[test]
    fn more_points_than_a_number_can_count() {
        // The product is 2^64, or 0 where it wraps.
        assert_eq!(count_parts(&[Dim::from(1 << 32), Dim::from(1 << 32)], Dim::symbol("T")), Err(Whole::EnoughBlocks));
        assert_eq!(count_parts(&[], i64::MAX), Ok(MAX_PARTS));
    }
}
