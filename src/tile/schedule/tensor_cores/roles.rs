//! Warp-specialised kernels for Hopper: one warpgroup fills rings of tiles through the tensor
//! memory accelerator, two warpgroups multiply, 64 rows each.
//!
//! In: matmuls and attentions with operands as shared memory tiles. Out: their kernels.
//!
//! ```text
//! "producer", 4 warps:   for each tile:  wait until its slot in the ring is empty;  start to copy it
//! "consumer", 4 warps, twice:  for each tile:  wait until it is copied;  multiply;  release its slot
//! ```
//!
//! A matmul with more tiles than concurrent blocks has fewer blocks, which loop over the tiles
//! ([`Tiles`]).
//!
//! A consumer of a matmul waits for each `wgmma` before it releases the operands; meanwhile the
//! other consumer's run.
//!
//! A consumer of an attention starts the matmul for the scores of a tile together with that for the
//! values of the previous tile, and overlaps the softmax of the former with the latter (Shah et al.
//! 2024, arXiv:2407.08608, section 3). The two consumers take turns in starting matmuls, by named
//! barriers ([`Turn`]), so that one's softmax overlaps with the other's matmuls ("ping-pong"):
//!
//! ```text
//! producer     K0  K1 V0   K2 V1   K3 V2   ...      copies
//! consumer 0   K0 | K1 V0 | softmax 1 | K2 V1 | softmax 2 | K3 V2 | ...
//! consumer 1   K0 |       | K1 V0 | softmax 1 | K2 V1 | softmax 2 | ...
//!                  turn of 0  turn of 1   0       1       0
//!
//! Kn: scores of tile n, Q Kn^T;  Vn: weighted values of tile n, Pn Vn
//! ```
//!
//! So the keys of a tile are needed together with the values of the previous one: the producer
//! copies keys one tile ahead of values, and a consumer waits for values after the scores' matmul
//! has started and occupies the tensor cores. The first tile of keys is computed with all masks,
//! the following tiles that all queries see without, the rest with them again.
//!
//! With formula masks, the producer and the consumers each determine the next visible tile
//! ([`Visited`]). They agree, because they all use the block's queries. Data that differs between
//! queries or keys (document ids) can only be read by whole warps, so before the warps diverge they
//! determine the first and the last tile that such masks leave visible.

use super::super::attention::{Hiding, Masks};
use super::attention::AttentionTiles;
use super::build::{self, KAxis, RingAt, SharedTile};
use super::products::{MatmulTiles, TilePosition};
use super::scores::{Scores, Softmax};
use crate::scalar::{BinaryOp, CmpOp};
use crate::tile::attention::{KEYS, QUERIES, VALUES};
use crate::tile::{Block, BlockCall, Gpu, GpuOp, Kernel, KernelBuilder, Op, Role, Type, Value};

/// Rows per consumer.
const ROWS: i64 = 64;
/// Consumers per block.
const CONSUMERS: i64 = 2;
/// Warps per warpgroup.
const WARPGROUP: u32 = 4;
/// Registers per thread that only starts copies, and per thread that multiplies: 128 and 256
/// threads with these numbers use all registers of a multiprocessor.
const FEW_REGISTERS: u32 = 24;
const MANY_REGISTERS: u32 = 240;
/// Stages of keys and of values.
const STAGES: i64 = 2;
/// Bytes of a ring's barriers per stage.
const BARRIERS: i64 = 16;

/// Branches by role: to a producer, and to consumers, which receive their number.
fn branch_by_role(kb: &mut KernelBuilder, produce: Block, consume: Block) {
    let numbers: Vec<Value> = (0..CONSUMERS).map(|n| kb.index(n)).collect();
    let mut roles = vec![Role {
        name: "producer".into(),
        warps: WARPGROUP,
        registers: FEW_REGISTERS,
        target: BlockCall { block: produce, args: Vec::new() },
    }];
    roles.extend(numbers.into_iter().map(|n| Role {
        name: "consumer".into(),
        warps: WARPGROUP,
        registers: MANY_REGISTERS,
        target: BlockCall { block: consume, args: vec![n] },
    }));
    kb.roles(roles);
}

/// Number of warps of a block.
fn warps() -> Option<u32> {
    u32::try_from(CONSUMERS + 1).ok().map(|groups| groups * WARPGROUP)
}

/// Allocates shared memory consecutively.
struct SharedMemory {
    next: i64,
}

impl SharedMemory {
    fn allocate(&mut self, bytes: i64) -> i64 {
        let at = self.next;
        self.next += bytes;
        at
    }
}

/// A loop over iterations from `from` to `end`; the body computes the next carried values from the
/// current ones. Returns their final values.
fn counted(
    kb: &mut KernelBuilder,
    from: Value,
    end: Value,
    carried: &[Value],
    body: impl FnOnce(&mut KernelBuilder, Value, &[Value]) -> Option<Vec<Value>>,
) -> Option<Vec<Value>> {
    let iterations = kb.begin_loop(&[&[from], carried].concat());
    let (n, now) = iterations.args.split_first()?;
    let more = kb.compare_scalars(CmpOp::Lt, *n, end);
    kb.enter_loop(&iterations, more);
    let then = body(kb, *n, now)?;
    let next = kb.plus(*n, 1);
    kb.br(iterations.head, &[&[next], then.as_slice()].concat());
    kb.switch_to(iterations.done);
    Some(now.to_vec())
}

/// The tiles of a matmul that a block computes.
enum Tiles {
    /// The tile at its position in the grid.
    One(TilePosition),
    /// Every `apart`-th of all tiles, starting at `first`.
    Several { first: Value, apart: Value, all: Value, group: i64 },
}

impl MatmulTiles<'_> {
    /// The kernel of a matmul with rings.
    ///
    /// If there are more tiles than concurrent blocks, there are only as many blocks as run
    /// concurrently, and each computes tile after tile: while the consumers store a result, the
    /// producer already fills the rings for the next tile, and there is no new setup. The stages of
    /// a ring continue from tile to tile, each of which has the same number of iterations.
    pub(super) fn with_rings(&self, gpu: &Gpu) -> Option<Kernel> {
        let [points @ .., rows, cols] = self.kernel.grid.as_slice() else { return None };
        let extents = [&rows.extent, &cols.extent];
        let group = gpu.group(&self.tile, extents);
        let (mut kb, tiles) = match self.all_tiles().filter(|_| points.is_empty() && gpu.has_waves(&self.tile, extents))
        {
            Some(all) => {
                let mut kb = self.with_buffers()?;
                let first = kb.grid_axis(&all, 1);
                let (apart, all) = (kb.value(Op::Gpu(GpuOp::Blocks), Vec::new(), Type::Index), kb.dim(&all));
                (kb, Tiles::Several { first, apart, all, group })
            }
            None => {
                let (kb, place) = self.begin(group)?;
                (kb, Tiles::One(place))
            }
        };
        kb.at(self.dot_loc());
        let stages = self.tile.stages;
        // Each consumer has a tile of A of its own.
        let left = SharedTile { rows: ROWS, ..self.left.clone() };
        let right = &self.right;
        let mut shared = SharedMemory { next: 0 };
        let (of_left, of_right) =
            (shared.allocate(CONSUMERS * stages * left.bytes()), shared.allocate(stages * right.bytes()));
        let (barriers_left, barriers_right) =
            (shared.allocate(CONSUMERS * stages * BARRIERS), shared.allocate(stages * BARRIERS));
        let readers = WARPGROUP * u32::try_from(CONSUMERS).ok()?;
        let at_left =
            RingAt { stages: CONSUMERS * stages, offset: of_left, barriers: barriers_left, readers: WARPGROUP };
        let at_right = RingAt { stages, offset: of_right, barriers: barriers_right, readers };
        let ring_left = build::ring(&mut kb, &left, at_left);
        let ring_right = build::ring(&mut kb, right, at_right);
        let zero = kb.index(0);
        let iterations = (self.steps + self.tile.steps - 1) / self.tile.steps;
        let count = kb.index(iterations);
        let (produce, _) = kb.new_block(Vec::new());
        let (consume, args) = kb.new_block(vec![Type::Index]);
        branch_by_role(&mut kb, produce, consume);

        kb.switch_to(produce);
        self.for_each_tile(&mut kb, &tiles, iterations, |kb, place, before| {
            counted(kb, zero, count, &[], |kb, k, _| {
                let step = kb.times(k, self.tile.steps);
                let n = before.iteration(kb, k);
                let first = kb.times(n, CONSUMERS);
                for w in 0..CONSUMERS {
                    let row = kb.plus(place.row, w * ROWS);
                    let own = TilePosition { row, ..place.clone() };
                    let [(at, axes), _] = self.starts(&own, step);
                    let iteration = kb.plus(first, w);
                    build::fill(kb, &left, (ring_left, iteration), place.left, &at, axes);
                }
                let [_, (at, axes)] = self.starts(place, step);
                build::fill(kb, right, (ring_right, n), place.right, &at, axes);
                Some(Vec::new())
            })?;
            Some(())
        })?;

        kb.switch_to(consume);
        let w = *args.first()?;
        let shift = kb.times(w, ROWS);
        self.for_each_tile(&mut kb, &tiles, iterations, |kb, place, before| {
            let row = kb.index_binary(BinaryOp::Add, place.row, shift);
            let none = build::zeros(kb, ROWS, self.tile.cols);
            let sums = counted(kb, zero, count, &[none], |kb, k, now| {
                let n = before.iteration(kb, k);
                let first = kb.times(n, CONSUMERS);
                let own = kb.index_binary(BinaryOp::Add, first, w);
                let a = build::full_tile(kb, &left, ring_left, own);
                let b = build::full_tile(kb, right, ring_right, n);
                build::fence(kb);
                let group = build::start_matmul(kb, a, b, *now.first()?, self.right_k)?;
                let sums = build::result_of(kb, group, 0)?;
                build::empty_tile(kb, ring_left, a);
                build::empty_tile(kb, ring_right, b);
                Some(vec![sums])
            })?;
            self.epilogue(kb, &TilePosition { row, ..place.clone() }, *sums.first()?, [ROWS, self.tile.cols])
        })?;
        build::spread(kb.finish(), gpu.arch, warps()?, shared.next)
    }

    /// Emits the loop of a role over the tiles of its block; the body receives the tile's position
    /// and the number of earlier ring iterations.
    fn for_each_tile(
        &self,
        kb: &mut KernelBuilder,
        tiles: &Tiles,
        iterations: i64,
        body: impl FnOnce(&mut KernelBuilder, &TilePosition, Before) -> Option<()>,
    ) -> Option<()> {
        let (first, apart, all, group) = match tiles {
            Tiles::One(place) => return body(kb, place, Before(None)),
            Tiles::Several { first, apart, all, group } => (*first, *apart, *all, *group),
        };
        let none = kb.index(0);
        let walk = kb.begin_loop(&[first, none]);
        let [tile, before] = *walk.args.as_slice() else { return None };
        let more = kb.compare_scalars(CmpOp::Lt, tile, all);
        kb.enter_loop(&walk, more);
        let place = self.place_of(kb, tile, group)?;
        body(kb, &place, Before(Some(before)))?;
        let next = kb.index_binary(BinaryOp::Add, tile, apart);
        let before = kb.plus(before, iterations);
        kb.br(walk.head, &[next, before]);
        kb.switch_to(walk.done);
        Some(())
    }
}

/// The number of ring iterations before a tile, if there are earlier tiles.
#[derive(Clone, Copy)]
struct Before(Option<Value>);

impl Before {
    /// The ring iteration of one of the tile's own iterations.
    fn iteration(self, kb: &mut KernelBuilder, k: Value) -> Value {
        self.0.map_or(k, |before| kb.index_binary(BinaryOp::Add, before, k))
    }
}

impl AttentionTiles<'_> {
    /// The kernel of an attention with rings.
    pub(super) fn with_rings(&self, gpu: &Gpu) -> Option<Kernel> {
        let all_rows = ROWS * CONSUMERS;
        let keys = gpu.keys(self.width.max(self.values));
        let (mut kb, points, row) = self.begin(all_rows, &[])?;
        let [q, k, v] = [kb.param(QUERIES)?, kb.param(KEYS)?, kb.param(VALUES)?];
        let tiles = [self.tile(ROWS, self.width), self.tile(keys, self.width), self.tile(keys, self.values)];
        let [of_queries, of_keys, of_values] = &tiles;
        let readers = WARPGROUP * u32::try_from(CONSUMERS).ok()?;
        let mut shared = SharedMemory { next: 0 };
        let stages = [CONSUMERS, STAGES, STAGES];
        let offsets = [0, 1, 2].map(|n: usize| shared.allocate(stages[n] * tiles[n].bytes()));
        let barriers = stages.map(|stages| shared.allocate(stages * BARRIERS));
        kb.at(self.found.attention.locations.scores);
        let mut rings = Vec::new();
        for n in 0..3 {
            let readers = if n == 0 { WARPGROUP } else { readers };
            let at = RingAt { stages: stages[n], offset: offsets[n], barriers: barriers[n], readers };
            rings.push(build::ring(&mut kb, &tiles[n], at));
        }
        let [ring_q, ring_k, ring_v] = *rings.as_slice() else { return None };
        // Tiles of keys that some query of the block sees.
        let all = self.scores(&mut kb, &points, (row, all_rows), keys)?;
        let visited = Visited::find(&mut kb, &all)?;
        let (produce, _) = kb.new_block(Vec::new());
        let (consume, args) = kb.new_block(vec![Type::Index]);
        branch_by_role(&mut kb, produce, consume);

        kb.switch_to(produce);
        let zero = kb.index(0);
        let axes = (points.len(), points.len() + 1);
        let at = |row: Value| [points.as_slice(), &[row, zero]].concat();
        for w in 0..CONSUMERS {
            let (n, first) = (kb.index(w), kb.plus(row, w * ROWS));
            build::fill(&mut kb, of_queries, (ring_q, n), q, &at(first), axes);
        }
        let first = visited.first(&mut kb)?;
        let fill_keys_before_end = |kb: &mut KernelBuilder, n: Value, key: Value| {
            let [(some, _), (then, _)] = [0, 1].map(|_| kb.new_block(Vec::new()));
            let is_before_end = visited.is_before_end(kb, key);
            kb.br_if(is_before_end, (some, &[]), (then, &[]));
            kb.switch_to(some);
            build::fill(kb, of_keys, (ring_k, n), k, &at(key), axes);
            kb.br(then, &[]);
            kb.switch_to(then);
        };
        fill_keys_before_end(&mut kb, zero, first);
        let tiles = kb.begin_loop(&[zero, first]);
        let [n, first] = *tiles.args.as_slice() else { return None };
        let more = visited.is_before_end(&mut kb, first);
        kb.enter_loop(&tiles, more);
        let (after, next) = (kb.plus(n, 1), visited.next(&mut kb, first)?);
        fill_keys_before_end(&mut kb, after, next);
        build::fill(&mut kb, of_values, (ring_v, n), v, &at(first), axes);
        kb.br(tiles.head, &[after, next]);
        kb.switch_to(tiles.done);

        kb.switch_to(consume);
        let w = *args.first()?;
        let shift = kb.times(w, ROWS);
        let own_row = kb.index_binary(BinaryOp::Add, row, shift);
        let scores = Scores { row: own_row, rows: ROWS, ..all.clone() };
        let queries = build::full_tile(&mut kb, of_queries, ring_q, w);
        let before = scores.begin(&mut kb, None)?;
        let none = scores.no_result(&mut kb, self.values);
        let (first, _) = kb.new_block(Vec::new());
        let (nothing, _) = kb.new_block(Vec::new());
        let start = visited.first(&mut kb)?;
        let some = visited.is_before_end(&mut kb, start);
        kb.br_if(some, (first, &[]), (nothing, &[]));
        kb.switch_to(nothing);
        build::empty_tile(&mut kb, ring_q, queries);
        self.finish(&mut kb, &scores, before.sum, none)?;

        let consumer = Consumer { parts: self, scores: &scores, of_keys, of_values, ring_k, ring_v, queries, w };
        kb.switch_to(first);
        let (softmax, packed) = consumer.first_tile(&mut kb, start, before)?;
        let one = kb.index(1);
        let next = visited.next(&mut kb, start)?;
        let mut now = vec![one, next, softmax.highest, softmax.sum, none, packed];
        let is_second = kb.compare_scalars(CmpOp::Eq, w, one);
        let (second, _) = kb.new_block(Vec::new());
        let (first, _) = kb.new_block(Vec::new());
        let (tiles, _) = kb.new_block(Vec::new());
        kb.br_if(is_second, (second, &[]), (first, &[]));
        kb.switch_to(second);
        Turn::give_to_first(&mut kb);
        kb.br(tiles, &[]);
        kb.switch_to(first);
        kb.br(tiles, &[]);
        kb.switch_to(tiles);
        if visited.hiding.is_none() {
            let whole_end = scores.whole_end(&mut kb);
            now = consumer.tiles_up_to(&mut kb, &visited, &now, whole_end, Masks::NotCausal)?;
        }
        now = consumer.tiles_up_to(&mut kb, &visited, &now, visited.end, Masks::All)?;
        let [n, _, highest, sum, result, packed] = *now.as_slice() else { return None };
        let last = kb.index_binary(BinaryOp::Sub, n, one);
        kb.at(self.found.attention.locations.values);
        let values = build::full_tile(&mut kb, of_values, ring_v, last);
        build::fence(&mut kb);
        let group = build::start_matmul(&mut kb, packed, values, result, KAxis::Rows)?;
        let result = build::result_of(&mut kb, group, 0)?;
        build::empty_tile(&mut kb, ring_v, values);
        build::empty_tile(&mut kb, ring_q, queries);
        let now = (Softmax { highest, sum }, result);
        let (softmax, result) = self.again_if_special(&mut kb, &scores, (start, visited.end), before, now)?;
        self.finish(&mut kb, &scores, softmax.sum, result)?;
        build::spread(kb.finish(), gpu.arch, warps()?, shared.next)
    }
}

/// The tiles of keys that a block visits.
struct Visited<'a> {
    scores: &'a Scores<'a>,
    /// The formula masks, without data that only whole warps can read, and the position of the
    /// first of them.
    hiding: Option<(Hiding<'a>, usize)>,
    /// The first key that may be visible, and the end of those keys.
    start: Value,
    end: Value,
}

impl<'a> Visited<'a> {
    /// Determines the tiles that the queries of some scores see; executed by all warps.
    fn find(kb: &mut KernelBuilder, scores: &'a Scores<'a>) -> Option<Visited<'a>> {
        let zero = kb.index(0);
        let Some((all, from)) = scores.hiding(kb) else {
            let end = scores.end(kb, scores.rows);
            return Some(Visited { scores, hiding: None, start: zero, end });
        };
        let mut end = all.end(kb);
        let mut start = zero;
        if all.reads_vectors(kb) {
            // The first visible tile, and the end of the last one.
            let search = kb.begin_loop(&[zero, end, zero]);
            let [at, first, last] = *search.args.as_slice() else { return None };
            let more = kb.compare_scalars(CmpOp::Lt, at, end);
            kb.enter_loop(&search, more);
            let next = kb.plus(at, scores.keys);
            let seen = all.block_at(kb, at, end)?.ever;
            let (sooner, later) = (kb.index_binary(BinaryOp::Min, first, at), next);
            let (first_then, last_then) = match seen {
                Some(seen) => {
                    let mut pick = |a, b| kb.value(Op::Select, vec![seen, a, b], Type::Index);
                    (pick(sooner, first), pick(later, last))
                }
                None => (sooner, later),
            };
            kb.br(search.head, &[next, first_then, last_then]);
            kb.switch_to(search.done);
            (start, end) = (first, kb.index_binary(BinaryOp::Min, end, last));
        }
        let (hiding, _) = scores.hiding_without_vectors(kb)?;
        Some(Visited { scores, hiding: Some((hiding, from)), start, end })
    }

    /// The first tile; at or after the end if there is no visible tile.
    fn first(&self, kb: &mut KernelBuilder) -> Option<Value> {
        match &self.hiding {
            Some((hiding, _)) => hiding.next_seen(kb, self.start, self.end),
            None => Some(self.start),
        }
    }

    /// The next visible tile.
    fn next(&self, kb: &mut KernelBuilder, first: Value) -> Option<Value> {
        let next = kb.plus(first, self.scores.keys);
        match &self.hiding {
            Some((hiding, _)) => hiding.next_seen(kb, next, self.end),
            None => Some(next),
        }
    }

    fn is_before_end(&self, kb: &mut KernelBuilder, first: Value) -> Value {
        kb.compare_scalars(CmpOp::Lt, first, self.end)
    }
}

/// The named barriers by which two consumers take turns in starting matmuls. Barrier 0 is the whole
/// block's; at barrier `w + 1` consumer `w` waits until the other one arrives, whose matmuls have
/// started.
struct Turn {
    own: Value,
    other: Value,
}

impl Turn {
    /// The barriers of a consumer, and of the other one.
    fn barriers(kb: &mut KernelBuilder, w: Value) -> Turn {
        let own = kb.plus(w, 1);
        let both = kb.index(CONSUMERS);
        Turn { own, other: kb.index_binary(BinaryOp::Sub, both, w) }
    }

    /// Number of threads that meet at a barrier: all threads of all consumers.
    fn threads() -> u32 {
        WARPGROUP * 32 * u32::try_from(CONSUMERS).unwrap_or(1)
    }

    /// Waits for this consumer's turn.
    fn take(&self, kb: &mut KernelBuilder) {
        build::barrier_sync(kb, self.own, Turn::threads());
    }

    /// Gives the turn to the other consumer.
    fn give(&self, kb: &mut KernelBuilder) {
        build::barrier_arrive(kb, self.other, Turn::threads());
    }

    /// The first turn is consumer 0's; the other one, which starts nothing before, gives it.
    fn give_to_first(kb: &mut KernelBuilder) {
        let first = kb.index(1);
        build::barrier_arrive(kb, first, Turn::threads());
    }
}

/// A consumer of an attention.
struct Consumer<'a> {
    parts: &'a AttentionTiles<'a>,
    scores: &'a Scores<'a>,
    of_keys: &'a SharedTile,
    of_values: &'a SharedTile,
    ring_k: Value,
    ring_v: Value,
    /// Its queries, and its number.
    queries: Value,
    w: Value,
}

impl Consumer<'_> {
    /// Processes the first tile of keys: maxima, sums, weights.
    fn first_tile(&self, kb: &mut KernelBuilder, first: Value, before: Softmax) -> Option<(Softmax, Value)> {
        kb.at(self.scores.attention.locations.scores);
        let zero = kb.index(0);
        let keys = build::full_tile(kb, self.of_keys, self.ring_k, zero);
        let none = build::zeros(kb, ROWS, self.scores.keys);
        build::fence(kb);
        let group = build::start_matmul(kb, self.queries, keys, none, KAxis::Cols)?;
        let products = build::result_of(kb, group, 0)?;
        build::empty_tile(kb, self.ring_k, keys);
        let masked = self.scores.masked(kb, products, first, Masks::All)?;
        let weights = self.scores.step(kb, before, masked);
        Some((weights.now, build::pack(kb, weights.weights, self.parts.elem)?))
    }

    /// A loop over tiles of keys up to `end`.
    fn tiles_up_to(
        &self,
        kb: &mut KernelBuilder,
        visited: &Visited<'_>,
        now: &[Value],
        end: Value,
        masks: Masks,
    ) -> Option<Vec<Value>> {
        let tiles = kb.begin_loop(now);
        let now = tiles.args.as_slice();
        let [n, first, ..] = *now else { return None };
        let more = kb.compare_scalars(CmpOp::Lt, first, end);
        kb.enter_loop(&tiles, more);
        let next = [kb.plus(n, 1), visited.next(kb, first)?];
        if let Some((hiding, from)) = &visited.hiding
            && let Some(all) = self.scores.all_seen(kb, hiding, first, end)
        {
            let (without, _) = kb.new_block(Vec::new());
            let (with, _) = kb.new_block(Vec::new());
            kb.br_if(all, (without, &[]), (with, &[]));
            kb.switch_to(without);
            let then = self.tile(kb, now, Masks::Before(*from))?;
            kb.br(tiles.head, &[next.as_slice(), then.as_slice()].concat());
            kb.switch_to(with);
        }
        let then = self.tile(kb, now, masks)?;
        kb.br(tiles.head, &[next.as_slice(), then.as_slice()].concat());
        kb.switch_to(tiles.done);
        Some(tiles.args)
    }

    /// Processes a tile of keys, and the values of the previous one.
    fn tile(&self, kb: &mut KernelBuilder, now: &[Value], masks: Masks) -> Option<Vec<Value>> {
        let [n, first, highest, sum, result, packed] = *now else { return None };
        let locations = self.scores.attention.locations;
        kb.at(locations.scores);
        let turn = Turn::barriers(kb, self.w);
        let one = kb.index(1);
        let before = kb.index_binary(BinaryOp::Sub, n, one);
        let keys = build::full_tile(kb, self.of_keys, self.ring_k, n);
        let none = build::zeros(kb, ROWS, self.scores.keys);
        turn.take(kb);
        build::fence(kb);
        let of_scores = build::start_matmul(kb, self.queries, keys, none, KAxis::Cols)?;
        kb.at(locations.values);
        let values = build::full_tile(kb, self.of_values, self.ring_v, before);
        build::fence(kb);
        let of_values = build::start_matmul(kb, packed, values, result, KAxis::Rows)?;
        turn.give(kb);
        kb.at(locations.scores);
        let products = build::result_of(kb, of_scores, 1)?;
        build::empty_tile(kb, self.ring_k, keys);
        let masked = self.scores.masked(kb, products, first, masks)?;
        let weights = self.scores.step(kb, Softmax { highest, sum }, masked);
        kb.at(locations.values);
        let result = build::result_of(kb, of_values, 0)?;
        build::empty_tile(kb, self.ring_v, values);
        let result = kb.binary(BinaryOp::Mul, result, weights.kept);
        let packed = build::pack(kb, weights.weights, self.parts.elem)?;
        Some(vec![weights.now.highest, weights.now.sum, result, packed])
    }
}
