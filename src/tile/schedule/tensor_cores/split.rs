//! Attention of few queries, as in writing token by token: its keys are divided among blocks.
//!
//! In: an attention that fits tensor cores. Out: a kernel whose grid has parts of the keys too, and one that combines what the parts
//! give (Dao et al. 2023, "Flash-Decoding for long-context inference"). One query of each head has a tile of queries, so without this a
//! call of 32 heads has 32 blocks, on 132 multiprocessors.
//!
//! ```text
//! part     grid (batch and heads.., ceil(S, 64), parts):  as the kernel of all keys, for tiles of keys from one on; stores the
//!          weighted values, and the maximum and the sum of each query                   [.., S, parts, E], [.., S, parts, 2]
//! combine  grid (batch and heads.., ceil(S, 16), ceil(E, 8)):
//!          m = max of all m_i;  w_i = 2^(m_i f - m f);  y = sum w_i acc_i / sum w_i l_i;  epilogue;  store
//! ```
//!
//! Heads of a group share keys and values. Where there are fewer queries than that, a tile has the heads of a group as its rows, all of one
//! query, which is a point of the grid: so a group reads its keys once, and not each of its heads.
//!
//! ```text
//! part     grid (batch and groups.., ceil(heads of a group, 64), S, parts)
//! ```
//!
//! How many parts there are is known when the kernel is compiled ([`Machine::parts`]); how long they are follows from the number of
//! keys of the call: equal numbers of tiles, the last of which may have none. A part that sees no key has a maximum of `-inf` and a
//! weight of 0. A sink is counted by the first part.

use super::super::attention::{Divided, first_hiding};
use super::attention::Parts;
use super::build::{self, ONE};
use super::machine::Machine;
use super::scores::{Scores, Softmax};
use crate::scalar::{BinaryOp, CmpOp, Scalar, UnaryOp};
use crate::shape::{Dim, Elem};
use crate::tile::attention::ResultTile;
use crate::tile::{AxisRole, BufferType, Extent, Kernel, KernelBuilder, ParamMode, Position, Value, row_major};

/// The most queries of such a call: rows of a block of the unit.
const QUERIES: i64 = 16;
/// Columns of a tile of the result that a block combines: a sector of memory, so that a thread has registers for all parts.
const COLUMNS: i64 = 8;
/// Columns of a tile of maxima and sums, of which two are stored: the fewest that an accumulator has.
const STATISTICS: i64 = 8;

/// The part of the keys that a block goes through.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// Its number.
    pub(super) number: Value,
    /// The first key, and where they end.
    pub(super) start: Value,
    pub(super) end: Value,
    /// Buffers of weighted values, and of maxima and sums.
    sums: Value,
    statistics: Value,
}

impl Parts<'_> {
    /// The kernels of a call of few queries, beside the one of many; `None` where keys are not divided.
    pub(super) fn divided(&self, machine: &Machine, whole: &Kernel) -> Option<Divided> {
        let keys = self.keys_of_copies(machine);
        // Formulas hide keys from queries, whose tiles are looked for by them.
        let is_formula = first_hiding(self.found.attention.steps.iter()).is_some();
        let group = self.group_axis().filter(|_| !is_formula);
        // Heads of a group are one tile.
        let points = self.lead.iter().enumerate().filter(|(n, _)| Some(*n) != group).map(|(_, d)| d.clone());
        let parts = machine.parts(&points.collect::<Vec<_>>(), &self.t, keys);
        let (few, known) = (group.map_or(QUERIES, |axis| self.queries_of_groups(axis)), self.s.as_const());
        if self.s == self.t || known.is_some_and(|n| n > QUERIES) {
            return None;
        }
        let of_groups = match group {
            Some(_) if known.is_none_or(|n| n <= few) => Some((few, self.part(machine, parts, group)?.0)),
            _ => None,
        };
        if parts < 2 && of_groups.is_none() {
            return None;
        }
        let (part, params) = self.part(machine, parts, None)?;
        let [sums, statistics] = self.partial_results(parts);
        // More queries than that have no kernel of their own, if their heads alone have work for all multiprocessors.
        let is_divided = machine.parts(&self.lead, &self.t, keys) > 1;
        Some(Divided {
            queries: if is_divided { QUERIES } else { few },
            whole: whole.clone(),
            part,
            of_groups,
            params,
            combine: self.combine(machine, parts)?,
            results: [sums.shape, statistics.shape],
        })
    }

    /// The most queries whose heads are better taken group by group: each reads the keys once then, else each head does.
    pub(super) fn queries_of_groups(&self, axis: usize) -> i64 {
        let heads = self.lead.get(axis).and_then(Dim::as_const).unwrap_or(1);
        (heads - 1).clamp(1, QUERIES)
    }

    /// The weighted values of all parts, and their maxima and sums.
    fn partial_results(&self, parts: i64) -> [BufferType; 2] {
        // Of the queries that there are: what nobody writes, nobody reads.
        let queries = self.s.min_with(&QUERIES.into());
        let of = |cols: Dim| {
            let shape = [self.lead.as_slice(), &[queries.clone(), parts.into(), cols]].concat();
            BufferType { elem: Elem::F32, strides: row_major(&shape), shape }
        };
        [of(self.e.clone()), of(2.into())]
    }

    /// The kernel of a part, and which parameters of the attention's it has.
    fn part(&self, machine: &Machine, parts: i64, group: Option<usize>) -> Option<(Kernel, Vec<usize>)> {
        let buffers = self.partial_results(parts).map(|ty| (ty, ParamMode::Out));
        let mut kernel = self.copies(machine, &buffers, Some(parts), group)?;
        let own = self.kernel.params.len();
        let kept: Vec<usize> =
            (0..own).filter(|n| self.kernel.params.get(*n).is_some_and(|p| p.mode == ParamMode::In)).collect();
        let mut n = 0;
        kernel.params.retain(|_| {
            n += 1;
            n > own || kept.contains(&(n - 1))
        });
        kernel.find_symbols();
        Some((kernel, kept))
    }

    /// The part of a block, whose number is a point of the grid.
    pub(super) fn part_of(&self, kb: &mut KernelBuilder, parts: i64, keys: i64) -> Option<Part> {
        let own = self.kernel.params.len();
        let (sums, statistics) = (kb.param(own)?, kb.param(own + 1)?);
        let number = kb.grid_axis(&parts.into(), 1);
        let all = kb.dim(&self.t);
        let (size, count) = (kb.index(keys), kb.index(parts));
        let up = kb.plus(all, keys - 1);
        let tiles = kb.index_binary(BinaryOp::Div, up, size);
        let up = kb.plus(tiles, parts - 1);
        let tiles = kb.index_binary(BinaryOp::Div, up, count);
        let length = kb.times(tiles, keys);
        let start = kb.index_binary(BinaryOp::Mul, number, length);
        let end = kb.index_binary(BinaryOp::Add, start, length);
        Some(Part { number, start, end, sums, statistics })
    }

    /// Stores what a part gives.
    pub(super) fn store_part(
        &self,
        kb: &mut KernelBuilder,
        scores: &Scores<'_>,
        part: Part,
        now: Softmax,
        result: Value,
    ) {
        let zero = kb.index(0);
        let at = [scores.points.as_slice(), &[scores.row, part.number, zero]].concat();
        let (rows, cols) = (Some(scores.of_rows), Some(scores.points.len() + 2));
        kb.store(part.sums, &at, (rows, cols), result);
        kb.at(self.found.attention.locations.softmax);
        let nothing = build::zeros(kb, scores.rows, STATISTICS);
        let col = kb.iota(1, zero, Elem::I32, ONE, Extent::Static(STATISTICS));
        let first = kb.scalar(Scalar::Int(0), Elem::I32);
        let is_first = kb.compare(CmpOp::Eq, col, first);
        let both = kb.select(is_first, now.highest, now.sum);
        let both = kb.binary(BinaryOp::Add, both, nothing);
        kb.store(part.statistics, &at, (rows, cols), both);
    }

    /// The kernel that combines the parts.
    fn combine(&self, machine: &Machine, parts: i64) -> Option<Kernel> {
        let buffers = self.partial_results(parts).map(|ty| (ty, ParamMode::In));
        let (mut kb, points, row) = self.begin(QUERIES, &buffers)?;
        let col = kb.grid_axis(&self.e, COLUMNS);
        let col = kb.times(col, COLUMNS);
        let own = self.kernel.params.len();
        let (sums, statistics) = (kb.param(own)?, kb.param(own + 1)?);
        let scores = self.scores(&mut kb, &points, (row, QUERIES), STATISTICS)?;
        kb.at(self.found.attention.locations.softmax);
        let (rows, one) = (Extent::Static(QUERIES), kb.index(1));
        let zero = kb.index(0);
        let axis = points.len();
        let numbers: Vec<Value> = (0..parts).map(|n| kb.index(n)).collect();
        let at = |n: Value, col: Value| [points.as_slice(), &[row, n, col]].concat();
        let of = |kb: &mut KernelBuilder, col: Value| -> Vec<Value> {
            numbers.iter().map(|n| kb.load(statistics, &at(*n, col), (Some(axis), None), rows, ONE)).collect()
        };
        let (highest, of_parts) = (of(&mut kb, zero), of(&mut kb, one));
        let bottom = kb.scalar(Scalar::Float(f64::NEG_INFINITY), Elem::F32);
        let nothing = kb.scalar(Scalar::Float(0.0), Elem::F32);
        let most = highest.iter().copied().reduce(|a, b| kb.binary(BinaryOp::Max, a, b))?;
        let unseen = kb.compare(CmpOp::Eq, most, bottom);
        let base = kb.select(unseen, nothing, most);
        let base = kb.binary(BinaryOp::Mul, base, scores.exponents);
        let mut sum = kb.full(Scalar::Float(0.0), Elem::F32, rows, ONE);
        let mut result = build::zeros(&mut kb, QUERIES, COLUMNS);
        for ((n, highest), of_part) in numbers.iter().zip(highest).zip(of_parts) {
            let x = kb.binary(BinaryOp::Mul, highest, scores.exponents);
            let x = kb.binary(BinaryOp::Sub, x, base);
            let weight = kb.unary(UnaryOp::Exp2, x);
            let more = kb.binary(BinaryOp::Mul, of_part, weight);
            sum = kb.binary(BinaryOp::Add, sum, more);
            let values = kb.load(sums, &at(*n, col), (Some(axis), Some(axis + 2)), rows, Extent::Static(COLUMNS));
            let more = build::scaled(&mut kb, values, weight);
            result = kb.binary(BinaryOp::Add, result, more);
        }
        let y = scores.end_of_rows(&mut kb, sum, result);
        kb.at(self.found.attention.locations.values);
        let mut axes: Vec<(AxisRole, Value)> = points.iter().map(|p| (AxisRole::Point, *p)).collect();
        axes.extend([(AxisRole::Rows, row), (AxisRole::Cols, col)]);
        let at = Position { axes, rows, cols: Extent::Static(COLUMNS) };
        self.found.copy_epilogue(self.kernel, &mut kb, &ResultTile { result: y, at })?;
        build::spread(kb.finish(), machine.arch, 1, 0)
    }
}
