//! Split-K attention for few queries on tensor cores: the kernel for a part of the keys.
//!
//! In: an attention that is suitable for tensor cores. Out: its replacement in calls with few
//! queries (`schedule::attention`, which defines the parts of keys): a kernel whose grid also has
//! parts of the keys, and one that combines the partial results.
//!
//! ```text
//! part     grid (batch and heads.., ceil(S, 64), parts):  as the kernel of all keys, for tiles of keys from one on; stores the
//!          weighted values, and the maximum and the sum of each query                   [.., S, parts, E], [.., S, parts, 2]
//! ```
//!
//! Heads of a group share keys and values. If there are fewer queries than heads per group, a tile
//! has the heads of a group as its rows, all with the same query, which is a grid point: so keys
//! are read once per group, instead of once per head.
//!
//! ```text
//! part     grid (batch and groups.., ceil(heads of a group, 64), S, parts)
//! ```

use super::super::attention::{
    Divided, FEW_QUERIES, KeyRange, PartialResults, Reads, Whole, first_hiding, without_results,
};
use super::attention::AttentionTiles;
use super::build::{self, ONE};
use super::scores::{self, Scores, Softmax};
use crate::scalar::{BinaryOp, CmpOp, Scalar};
use crate::shape::{Dim, Elem};
use crate::tile::{Extent, Gpu, Kernel, KernelBuilder, Value};

/// Columns of a tile of maxima and sums, of which two are stored: the minimum for an accumulator.
const STATISTICS: i64 = 8;

impl AttentionTiles<'_> {
    /// The kernels for calls with few queries, in addition to the one for many; `None` if keys are
    /// not split.
    pub(super) fn divided(&self, gpu: &Gpu, whole: &Kernel) -> Option<Divided> {
        let group = self.heads_in_a_tile();
        let keys = self.parts_of_few(gpu);
        let parts = match keys {
            Ok(parts) => parts,
            Err(Whole::AsManyKeys | Whole::ManyQueries) => return None,
            // Keys are still read only once per group.
            Err(Whole::EnoughBlocks | Whole::FewKeys | Whole::FewBytes) => 1,
        };
        let results = PartialResults::new(&self.lead, &self.s, parts, &self.e);
        let (few, known) = (group.map_or(FEW_QUERIES, |axis| self.queries_of_groups(axis)), self.s.as_const());
        let of_groups = match group {
            Some(_) if known.is_none_or(|n| n <= few) => Some((few, self.part(gpu, &results, group)?.0)),
            _ => None,
        };
        if parts < 2 && of_groups.is_none() {
            return None;
        }
        let (part, params) = self.part(gpu, &results, None)?;
        // More queries than that have no kernel of their own, if the heads alone keep all
        // multiprocessors busy.
        let is_divided = self.parts(gpu, &self.lead).is_ok();
        let combine = results.combine(self.kernel, &self.found, scores::exponents(&self.found.attention))?;
        Some(Divided {
            keys,
            queries: if is_divided { FEW_QUERIES } else { few },
            whole: whole.clone(),
            part,
            of_groups,
            params,
            combine,
            results,
        })
    }

    /// The axis of heads that share keys and values and are rows of one tile, if there is one: not
    /// with formula masks, whose visible tiles depend on the query.
    fn heads_in_a_tile(&self) -> Option<usize> {
        let is_formula = first_hiding(self.found.attention.steps.iter()).is_some();
        self.group_axis().filter(|_| !is_formula)
    }

    /// The number of parts of the keys in a call with few queries.
    pub(super) fn parts_of_few(&self, gpu: &Gpu) -> Result<i64, Whole> {
        let group = self.heads_in_a_tile();
        // Heads of a group are one tile.
        let points = self.lead.iter().enumerate().filter(|(n, _)| Some(*n) != group).map(|(_, d)| d.clone());
        self.parts(gpu, &points.collect::<Vec<_>>())
    }

    /// The number of parts of the keys, if a block reads the keys of one of these points.
    fn parts(&self, gpu: &Gpu, points: &[Dim]) -> Result<i64, Whole> {
        let width = self.width.saturating_add(self.values);
        let bytes = width.saturating_mul(i64::try_from(self.elem.size()).unwrap_or(2));
        let block = self.keys_of_copies(gpu);
        // Copies continue while a block computes.
        let busy = 2;
        Reads { arch: gpu.arch, points, queries: &self.s, keys: &self.t, block, bytes, busy }.parts()
    }

    /// The maximum number of queries for which tiles of heads are better: then keys are read once
    /// per group, otherwise once per head.
    pub(super) fn queries_of_groups(&self, axis: usize) -> i64 {
        let heads = self.lead.get(axis).and_then(Dim::as_const).unwrap_or(1);
        (heads - 1).clamp(1, FEW_QUERIES)
    }

    /// The kernel of a part, and the attention's parameters that it has.
    fn part(&self, gpu: &Gpu, results: &PartialResults, group: Option<usize>) -> Option<(Kernel, Vec<usize>)> {
        let kernel = self.copies(gpu, Some(results), group)?;
        Some(without_results(kernel, self.kernel))
    }

    /// Stores the partial results.
    pub(super) fn store_part(
        &self,
        kb: &mut KernelBuilder,
        scores: &Scores<'_>,
        part: KeyRange,
        now: Softmax,
        result: Value,
    ) {
        let zero = kb.index(0);
        let at = [scores.points.as_slice(), &[scores.row, part.number, zero]].concat();
        let (rows, cols) = (Some(scores.of_rows), Some(scores.points.len() + 2));
        let (sum, result) = scores.with_weights_of_1(kb, now, result);
        kb.store(part.sums, &at, (rows, cols), result);
        kb.at(self.found.attention.locations.softmax);
        let nothing = build::zeros(kb, scores.rows, STATISTICS);
        let col = kb.iota(1, zero, Elem::I32, ONE, Extent::Static(STATISTICS));
        let first = kb.scalar(Scalar::Int(0), Elem::I32);
        let is_first = kb.compare(CmpOp::Eq, col, first);
        let both = kb.select(is_first, now.highest, sum);
        let both = kb.binary(BinaryOp::Add, both, nothing);
        kb.store(part.statistics, &at, (rows, cols), both);
    }
}
