//! Attention on tensor cores with `mma.sync`.
//!
//! In: the unscheduled kernel of an attention of 16-bit floats (recognised by `tile::attention`).
//! Out: a kernel in which four warps with 16 queries each process tiles of keys and values that are
//! copied asynchronously (Dao 2023, arXiv:2307.08691):
//!
//! ```text
//! grid (batch and heads.., ceil(S, 64))
//!   copies of the queries, the first keys, the first values start
//!   for each tile of keys, whole and seen by all queries; then for each tile that is left, with masks:
//!     find the next tile;   wait for the keys;    start to copy the next keys;    s = q @ k^T;  masks
//!     m' = max(m, s);  p = 2^(s f - b');  c = 2^(b - b');  l = l c + sum p;  acc = acc c      b: m f, rounded (`scores`)
//!     wait for the values;  start to copy the next values;  acc += p @ v
//!   y = acc / l;  epilogue;  store
//! ```
//!
//! So there are two tiles of keys and two of values in shared memory: while one is used the other
//! is filled. Head widths are padded with zeros to multiples of 32.
//!
//! Keys masked for all queries of the tile are skipped. With a causal mask these are the last ones.
//! With formula masks there is one loop; the next tile that is not provably masked by bounds on the
//! formulas is determined before its copy starts, and each tile is computed with masks or without,
//! depending on the bounds (`schedule::attention::Hiding`).

use super::super::attention::{Hiding, Masks, PartialResults, shared_axis};
use super::build::{self, SharedTile};
use super::scores::{self, Scores, Softmax};
use super::{CoreKernels, Reason};
use crate::scalar::{BinaryOp, CmpOp};
use crate::shape::{Dim, Elem};
use crate::tile::attention::{Described, KEYS, QUERIES, ScoreOp, VALUES};
use crate::tile::epilogue::ResultTile;
use crate::tile::{
    AxisRole, BufferType, Extent, Fragment, Gpu, GpuArch, Kernel, KernelBuilder, ParamMode, Position, Value,
};

/// Maximum width of heads and values.
const WIDTH: i64 = 256;
/// Queries per warp with `mma.sync`.
const ROWS: i64 = 16;
/// Warps per block with `mma.sync`.
const WARPS: i64 = 4;
/// Heads wider than this are reloaded for each tile of keys, rather than kept in registers.
const KEPT_WIDTH: i64 = 128;

/// An attention with its operands as shared memory tiles.
pub(super) struct AttentionTiles<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) found: Described,
    pub(super) elem: Elem,
    /// Extents of the leading axes, and numbers of queries and keys.
    pub(super) lead: Vec<Dim>,
    pub(super) s: Dim,
    pub(super) t: Dim,
    /// Number of columns of the result.
    pub(super) e: Dim,
    /// Width of heads and of values, rounded up to whole chunks.
    pub(super) width: i64,
    pub(super) values: i64,
}

/// The tensor core kernels of an attention. Not divided if calls with few queries have no kernels
/// of their own.
pub(super) fn made(kernel: &Kernel, gpu: &Gpu, aligned: &dyn Fn(usize) -> bool) -> Result<CoreKernels, Reason> {
    let tiles = AttentionTiles::find(kernel, aligned)?;
    let whole = tiles.of_many(gpu).ok_or("its masks or its epilogue have no form in fragments")?;
    let divided = tiles.divided(gpu, &whole);
    Ok(CoreKernels { kernel: whole, many_rows: None, keys: Some(tiles.parts_of_few(gpu)), divided })
}

impl<'a> AttentionTiles<'a> {
    fn find(kernel: &'a Kernel, aligned: &dyn Fn(usize) -> bool) -> Result<AttentionTiles<'a>, Reason> {
        let found = Described::from_kernel(kernel)
            .ok_or("its epilogue is not elementwise, or reads keys or values, or it writes an operand")?;
        let [Some(q), Some(k), Some(v)] = [QUERIES, KEYS, VALUES].map(|n| kernel.buffer_type(n)) else {
            return Err("its operands are not buffers".to_string());
        };
        super::check_types(&[q, k, v], false)?;
        let elem = q.elem;
        let ([lead @ .., s, d], [.., t, _], [.., e]) = (q.shape.as_slice(), k.shape.as_slice(), v.shape.as_slice())
        else {
            return Err("its operands have fewer than two axes".to_string());
        };
        for n in [QUERIES, KEYS, VALUES] {
            super::check_chunks(kernel, n, lead.len() + 1, aligned)?;
        }
        let whole = |d: &Dim| match build::known(d) {
            Some(n) if n <= WIDTH => Ok(build::whole_columns(n, elem)),
            Some(n) => Err(format!("heads of {n} elements are wider than {WIDTH}")),
            None => Err(format!("the width of heads, {d}, is not a positive constant")),
        };
        let (width, values) = (whole(d)?, whole(e)?);
        let [s, t, e] = [s, t, e].map(Dim::clone);
        Ok(AttentionTiles { kernel, found, elem, lead: lead.to_vec(), s, t, e, width, values })
    }

    /// The kernel for any number of queries.
    fn of_many(&self, gpu: &Gpu) -> Option<Kernel> {
        match gpu.arch {
            GpuArch::Sm80 => self.copies(gpu, None, None),
            GpuArch::Sm90a => self.with_rings(gpu),
        }
    }

    /// Keys per tile of [`AttentionTiles::copies`].
    pub(super) fn keys_of_copies(&self, gpu: &Gpu) -> i64 {
        Gpu { arch: GpuArch::Sm80, ..*gpu }.keys(self.width.max(self.values))
    }

    /// A kernel with the same parameters and `more`, and a grid with `queries` queries per point;
    /// returns the index along the leading axes, and the first query. If later queries see more
    /// keys, the blocks run in reverse order: the longest go first, so that no long one remains
    /// when others have ended (longest processing time first, Graham 1969).
    pub(super) fn begin(
        &self,
        queries: i64,
        more: &[(BufferType, ParamMode)],
    ) -> Option<(KernelBuilder, Vec<Value>, Value)> {
        let mut kb = self.with_buffers(more)?;
        let points = self.lead.iter().map(|extent| kb.grid_axis(extent, 1)).collect();
        let mut point = kb.grid_axis(&self.s, queries);
        if self.found.attention.steps.iter().any(|s| s.op == ScoreOp::Causal) {
            let last = kb.dim(&self.s.ceil_div(&queries.into())?.sub(&Dim::one()));
            point = kb.index_binary(BinaryOp::Sub, last, point);
        }
        let row = kb.times(point, queries);
        Some((kb, points, row))
    }

    /// The same for tiles of heads along an axis, all with the same query, which is a grid point.
    fn begin_of_heads(
        &self,
        heads: i64,
        (axis, queries): (usize, i64),
        more: &[(BufferType, ParamMode)],
    ) -> Option<(KernelBuilder, Vec<Value>, Value)> {
        let mut kb = self.with_buffers(more)?;
        let mut points = Vec::new();
        for (n, extent) in self.lead.iter().enumerate() {
            points.push(match n == axis {
                true => {
                    let point = kb.grid_axis(extent, heads);
                    kb.times(point, heads)
                }
                false => kb.grid_axis(extent, 1),
            });
        }
        // A call has no more than these.
        let row = kb.grid_axis(&self.s.min_with(&queries.into()), 1);
        Some((kb, points, row))
    }

    /// A kernel with the same parameters and `more`.
    fn with_buffers(&self, more: &[(BufferType, ParamMode)]) -> Option<KernelBuilder> {
        let mut kb = KernelBuilder::new(&self.kernel.name);
        kb.at(self.found.attention.locations.values);
        for p in &self.kernel.params {
            kb.buffer(self.kernel.body.ty(p.value).buffer()?.clone(), p.mode);
        }
        for (ty, mode) in more {
            kb.buffer(ty.clone(), *mode);
        }
        Some(kb)
    }

    /// The scores of a tile of queries starting at one, with tiles of this many keys.
    pub(super) fn scores(
        &self,
        kb: &mut KernelBuilder,
        points: &[Value],
        (row, rows): (Value, i64),
        keys: i64,
    ) -> Option<Scores<'_>> {
        let attention = &self.found.attention;
        let (scale, exponents) = scores::scale(kb, attention)?;
        let numbers = scores::numbers(kb, attention)?;
        let shift = kb.dim(&self.t.sub(&self.s));
        let (rank, points) = (self.lead.len() + 2, points.to_vec());
        let (s, t) = (self.s.clone(), self.t.clone());
        let of_rows = rank - 2;
        Some(Scores { attention, rank, points, row, rows, of_rows, keys, s, t, shift, scale, exponents, numbers })
    }

    /// A shared memory tile with this many rows.
    pub(super) fn tile(&self, rows: i64, cols: i64) -> SharedTile {
        SharedTile { elem: self.elem, rows, cols }
    }

    /// The end of the kernel: the result, its epilogue, its store.
    pub(super) fn finish(&self, kb: &mut KernelBuilder, scores: &Scores<'_>, sum: Value, result: Value) -> Option<()> {
        let y = scores.end_of_rows(kb, sum, result);
        kb.at(self.found.attention.locations.values);
        let col = kb.index(0);
        let mut axes: Vec<(AxisRole, Value)> = scores.points.iter().map(|p| (AxisRole::Point, *p)).collect();
        axes.extend([(AxisRole::Rows, scores.row), (AxisRole::Cols, col)]);
        let at = Position { axes, rows: Extent::Static(scores.rows), cols: Extent::Static(self.values) };
        self.found.epilogue.copy(self.kernel, kb, &ResultTile { result: y, at })
    }

    /// The axis of heads that share keys and values, if there is one.
    pub(super) fn group_axis(&self) -> Option<usize> {
        shared_axis(&self.lead, self.kernel.buffer_type(KEYS)?, self.kernel.buffer_type(VALUES)?)
    }

    /// The kernel for `mma.sync`; for a part of the keys, if they are split, with parameters for
    /// partial results; `group`: an axis of heads that share keys and values, which become the rows
    /// of a tile with the same query.
    pub(super) fn copies(&self, gpu: &Gpu, divided: Option<&PartialResults>, group: Option<usize>) -> Option<Kernel> {
        let more: Vec<_> = divided.iter().flat_map(|results| results.types()).map(|ty| (ty, ParamMode::Out)).collect();
        let more = more.as_slice();
        let rows = ROWS * WARPS;
        let keys = self.keys_of_copies(gpu);
        let (mut kb, points, row) = match group {
            Some(axis) => self.begin_of_heads(rows, (axis, self.queries_of_groups(axis)), more)?,
            None => self.begin(rows, more)?,
        };
        let part = match divided {
            Some(results) => Some(results.part(&mut kb, self.kernel.params.len(), &self.t, keys)?),
            None => None,
        };
        let [q, k, v] = [kb.param(QUERIES)?, kb.param(KEYS)?, kb.param(VALUES)?];
        let mut scores = self.scores(&mut kb, &points, (row, rows), keys)?;
        scores.of_rows = group.unwrap_or(scores.of_rows);
        let tiles = Tiles {
            scores: &scores,
            queries: self.tile(rows, self.width),
            keys: self.tile(keys, self.width),
            values: self.tile(keys, self.values),
            k,
            v,
        };
        let zero = kb.index(0);
        let mut offset = 0;
        kb.at(self.found.attention.locations.scores);
        let mut room = |kb: &mut KernelBuilder, t: &SharedTile| {
            let at = offset;
            offset += t.bytes();
            build::slot(kb, t, at)
        };
        let of_queries = room(&mut kb, &tiles.queries);
        let [of_keys, free_keys] = [0, 1].map(|_| room(&mut kb, &tiles.keys));
        let [of_values, free_values] = [0, 1].map(|_| room(&mut kb, &tiles.values));
        let scratch = offset;
        let axes = (points.len(), points.len() + 1);
        let at = |row: Value| [points.as_slice(), &[row, zero]].concat();
        let of_queries = build::copy(&mut kb, &tiles.queries, of_queries, q, &at(row), (scores.of_rows, axes.1));
        let hiding = if scores.is_of_queries() { scores.hiding(&mut kb) } else { None };
        let start = part.map_or(zero, |part| part.start);
        let before = |kb: &mut KernelBuilder, end: Value| match part {
            Some(part) => part.end_before(kb, end),
            None => end,
        };
        let end = match &hiding {
            Some((hiding, _)) => hiding.end(&mut kb),
            None => scores.end(&mut kb, if scores.is_of_queries() { rows } else { 1 }),
        };
        let end = before(&mut kb, end);
        let first = match &hiding {
            Some((hiding, _)) => hiding.next_seen(&mut kb, start, end)?,
            None => start,
        };
        let of_keys = build::copy(&mut kb, &tiles.keys, of_keys, k, &at(first), axes);
        let of_values = build::copy(&mut kb, &tiles.values, of_values, v, &at(first), axes);
        let queries = build::wait(&mut kb, &tiles.queries, of_queries, 2);
        let queries = if self.width > KEPT_WIDTH {
            Queries::Shared(queries)
        } else {
            Queries::Kept(build::fragment(&mut kb, &tiles.queries, queries, Fragment::A))
        };
        let before_all = scores.begin(&mut kb, part)?;
        let result = scores.no_result(&mut kb, self.values);
        let softmax = before_all;
        let mut now = Running { next: first, softmax, result, of_keys, of_values, free_keys, free_values };
        match &hiding {
            Some((hiding, from)) => now = tiles.visible_round(&mut kb, queries, now, (hiding, *from), end)?,
            None => {
                let whole_end = scores.whole_end(&mut kb);
                let whole_end = before(&mut kb, whole_end);
                now = tiles.round(&mut kb, queries, now, whole_end, Masks::NotCausal)?;
                now = tiles.round(&mut kb, queries, now, end, Masks::All)?;
            }
        }
        build::wait(&mut kb, &tiles.keys, now.of_keys, 1);
        build::wait(&mut kb, &tiles.values, now.of_values, 0);
        let now = (now.softmax, now.result);
        let (softmax, result) = self.again_if_special(&mut kb, &scores, (first, end), before_all, now)?;
        match part {
            Some(part) => self.store_part(&mut kb, &scores, part, softmax, result),
            None => self.finish(&mut kb, &scores, softmax.sum, result)?,
        }
        build::spread(kb.finish(), gpu.arch, u32::try_from(WARPS).ok()?, scratch)
    }
}

/// Queries in registers, or loaded from shared memory for each tile of keys.
#[derive(Clone, Copy)]
enum Queries {
    Kept(Value),
    Shared(Value),
}

/// Values carried from tile to tile.
#[derive(Clone, Copy)]
struct Running {
    /// The first key of the next tile.
    next: Value,
    softmax: Softmax,
    /// The weighted values so far.
    result: Value,
    /// Outstanding copies, and free slots.
    of_keys: Value,
    of_values: Value,
    free_keys: Value,
    free_values: Value,
}

impl Running {
    fn carried(&self) -> [Value; 8] {
        let Softmax { highest, sum } = self.softmax;
        [self.next, highest, sum, self.result, self.of_keys, self.of_values, self.free_keys, self.free_values]
    }

    fn from_values(values: &[Value]) -> Option<Running> {
        let [next, highest, sum, result, of_keys, of_values, free_keys, free_values] = *values else { return None };
        let softmax = Softmax { highest, sum };
        Some(Running { next, softmax, result, of_keys, of_values, free_keys, free_values })
    }
}

/// The tiles of a kernel.
struct Tiles<'a> {
    scores: &'a Scores<'a>,
    queries: SharedTile,
    keys: SharedTile,
    values: SharedTile,
    /// The buffers of keys and values.
    k: Value,
    v: Value,
}

impl Tiles<'_> {
    /// A loop over tiles of keys up to `end`.
    fn round(
        &self,
        kb: &mut KernelBuilder,
        queries: Queries,
        now: Running,
        end: Value,
        masks: Masks,
    ) -> Option<Running> {
        let tiles = kb.begin_loop(&now.carried());
        let now = Running::from_values(&tiles.args)?;
        let more = kb.compare_scalars(CmpOp::Lt, now.next, end);
        kb.enter_loop(&tiles, more);
        let next = kb.plus(now.next, self.scores.keys);
        let then = self.tile(kb, queries, now, next, masks)?;
        kb.br(tiles.head, &then.carried());
        kb.switch_to(tiles.done);
        Some(now)
    }

    /// A loop over the visible tiles of keys; the masks starting at `from` are formula masks.
    fn visible_round(
        &self,
        kb: &mut KernelBuilder,
        queries: Queries,
        now: Running,
        (hiding, from): (&Hiding<'_>, usize),
        end: Value,
    ) -> Option<Running> {
        let tiles = kb.begin_loop(&now.carried());
        let now = Running::from_values(&tiles.args)?;
        let more = kb.compare_scalars(CmpOp::Lt, now.next, end);
        kb.enter_loop(&tiles, more);
        let next = kb.plus(now.next, self.scores.keys);
        let next = hiding.next_seen(kb, next, end)?;
        if let Some(all) = self.scores.all_seen(kb, hiding, now.next, end) {
            let (without, _) = kb.new_block(Vec::new());
            let (with, _) = kb.new_block(Vec::new());
            kb.br_if(all, (without, &[]), (with, &[]));
            kb.switch_to(without);
            let then = self.tile(kb, queries, now, next, Masks::Before(from))?;
            kb.br(tiles.head, &then.carried());
            kb.switch_to(with);
        }
        let then = self.tile(kb, queries, now, next, Masks::All)?;
        kb.br(tiles.head, &then.carried());
        kb.switch_to(tiles.done);
        Some(now)
    }

    /// One tile of keys; the following one begins at `next`.
    fn tile(
        &self,
        kb: &mut KernelBuilder,
        queries: Queries,
        now: Running,
        next: Value,
        masks: Masks,
    ) -> Option<Running> {
        let scores = self.scores;
        let locations = scores.attention.locations;
        let axes = (scores.points.len(), scores.points.len() + 1);
        let zero = kb.index(0);
        let at = [scores.points.as_slice(), &[next, zero]].concat();
        kb.at(locations.scores);
        let keys = build::wait(kb, &self.keys, now.of_keys, 1);
        let of_keys = build::copy(kb, &self.keys, now.free_keys, self.k, &at, axes);
        let q = match queries {
            Queries::Kept(q) => q,
            Queries::Shared(tile) => build::fragment(kb, &self.queries, tile, Fragment::A),
        };
        let fragments = build::fragment(kb, &self.keys, keys, Fragment::BT);
        let none = build::zeros(kb, scores.rows, scores.keys);
        let products = build::mma(kb, q, fragments, none);
        let free_keys = build::release(kb, &self.keys, keys);
        let masked = scores.masked(kb, products, now.next, masks)?;
        let weights = scores.step(kb, now.softmax, masked);
        kb.at(locations.values);
        let kept = kb.binary(BinaryOp::Mul, now.result, weights.kept);
        let packed = build::pack(kb, weights.weights, self.values.elem)?;
        let values = build::wait(kb, &self.values, now.of_values, 1);
        let of_values = build::copy(kb, &self.values, now.free_values, self.v, &at, axes);
        let fragments = build::fragment(kb, &self.values, values, Fragment::B);
        let result = build::mma(kb, packed, fragments, kept);
        let free_values = build::release(kb, &self.values, values);
        Some(Running { next, softmax: weights.now, result, of_keys, of_values, free_keys, free_values })
    }
}
