//! Kernels of groups of warps with roles of their own, for Hopper: one group fills rings of tiles through the tensor memory accelerator,
//! two groups multiply, 64 rows each.
//!
//! In: products and attentions whose operands are tiles of shared memory. Out: their kernels.
//!
//! ```text
//! "producer", 4 warps:   for each tile:  wait until its place in the ring is empty;  start to copy it
//! "consumer", 4 warps, twice:  for each tile:  wait until it is there;  multiply;  give its place back
//! ```
//!
//! A consumer of a product waits for each of its products before it gives the operands back; meanwhile the other consumer's
//! products run.
//!
//! A consumer of an attention starts the product of scores of a tile and that of the values of the tile before together, and does the
//! softmax of the former beside the latter (Shah et al. 2024, arXiv:2407.08608, section 3). The two take turns at starting products,
//! by named barriers, so that one's softmax runs beside the other's products. The first tile of keys is taken with all masks, those
//! after it that all queries see without, the rest with them again.

use super::attention::Parts as AttentionParts;
use super::build::{self, RingAt, SharedTile};
use super::machine::Machine;
use super::products::{Parts as ProductParts, Place};
use super::scores::{Scores, Softmax};
use crate::scalar::{BinaryOp, CmpOp};
use crate::tile::attention::{KEYS, QUERIES, VALUES};
use crate::tile::{Block, BlockCall, Kernel, KernelBuilder, Role, Value};

/// Rows of a consumer.
const ROWS: i64 = 64;
/// Consumers of a block.
const CONSUMERS: i64 = 2;
/// Warps of a group.
const GROUP: u32 = 4;
/// Registers of a thread that only starts copies, and of one that multiplies: 128 and 256 threads of these are all that a
/// multiprocessor has.
const FEW_REGISTERS: u32 = 24;
const MANY_REGISTERS: u32 = 240;
/// Stages of keys and of values.
const STAGES: i64 = 2;
/// Bytes of a ring's barriers for each stage.
const BARRIERS: i64 = 16;

/// The block's warps part: to a producer, and to consumers that get their number.
fn part(kb: &mut KernelBuilder, produce: Block, consume: Block) {
    let numbers: Vec<Value> = (0..CONSUMERS).map(|n| kb.index(n)).collect();
    let mut roles = vec![Role {
        name: "producer".into(),
        warps: GROUP,
        registers: FEW_REGISTERS,
        target: BlockCall { block: produce, args: Vec::new() },
    }];
    roles.extend(numbers.into_iter().map(|n| Role {
        name: "consumer".into(),
        warps: GROUP,
        registers: MANY_REGISTERS,
        target: BlockCall { block: consume, args: vec![n] },
    }));
    kb.roles(roles);
}

/// All warps of a block.
fn warps() -> Option<u32> {
    u32::try_from(CONSUMERS + 1).ok().map(|groups| groups * GROUP)
}

/// Places in shared memory, one after another.
struct Places {
    next: i64,
}

impl Places {
    fn take(&mut self, bytes: i64) -> i64 {
        let at = self.next;
        self.next += bytes;
        at
    }
}

/// A loop over iterations from `from` to `end`; the body makes what goes on from what is carried. What is carried after it.
fn counted(
    kb: &mut KernelBuilder,
    from: Value,
    end: Value,
    carried: &[Value],
    body: impl FnOnce(&mut KernelBuilder, Value, &[Value]) -> Option<Vec<Value>>,
) -> Option<Vec<Value>> {
    let all = [&[from], carried].concat();
    let (head, args) = kb.new_block(all.iter().map(|v| kb.ty(*v).clone()).collect());
    let (inner, _) = kb.new_block(Vec::new());
    let (done, _) = kb.new_block(Vec::new());
    kb.br(head, &all);
    kb.switch_to(head);
    let (n, now) = args.split_first()?;
    let more = kb.compare_scalars(CmpOp::Lt, *n, end);
    kb.br_if(more, (inner, &[]), (done, &[]));
    kb.switch_to(inner);
    let then = body(kb, *n, now)?;
    let next = kb.plus(*n, 1);
    kb.br(head, &[&[next], then.as_slice()].concat());
    kb.switch_to(done);
    Some(now.to_vec())
}

impl ProductParts<'_> {
    /// The kernel of a product with rings.
    pub(super) fn with_rings(&self, machine: &Machine) -> Option<Kernel> {
        let [.., rows, cols] = self.kernel.grid.as_slice() else { return None };
        let (mut kb, place) = self.begin(machine.group(&self.tile, [&rows.extent, &cols.extent]))?;
        kb.at(self.dot_loc());
        let stages = self.tile.stages;
        // A consumer has a tile of A of its own.
        let left = SharedTile { rows: ROWS, ..self.left.clone() };
        let right = &self.right;
        let mut places = Places { next: 0 };
        let (of_left, of_right) = (places.take(CONSUMERS * stages * left.bytes()), places.take(stages * right.bytes()));
        let (barriers_left, barriers_right) =
            (places.take(CONSUMERS * stages * BARRIERS), places.take(stages * BARRIERS));
        let readers = GROUP * u32::try_from(CONSUMERS).ok()?;
        let at_left = RingAt { stages: CONSUMERS * stages, offset: of_left, barriers: barriers_left, readers: GROUP };
        let at_right = RingAt { stages, offset: of_right, barriers: barriers_right, readers };
        let ring_left = build::ring(&mut kb, &left, at_left);
        let ring_right = build::ring(&mut kb, right, at_right);
        let zero = kb.index(0);
        let count = kb.index((self.steps + self.tile.steps - 1) / self.tile.steps);
        let (produce, _) = kb.new_block(Vec::new());
        let (consume, args) = kb.new_block(vec![crate::tile::Type::Index]);
        part(&mut kb, produce, consume);

        kb.switch_to(produce);
        counted(&mut kb, zero, count, &[], |kb, n, _| {
            let step = kb.times(n, self.tile.steps);
            let first = kb.times(n, CONSUMERS);
            for w in 0..CONSUMERS {
                let row = kb.plus(place.row, w * ROWS);
                let own = Place { points: place.points.clone(), row, ..place };
                let [(at, axes), _] = self.starts(&own, step);
                let iteration = kb.plus(first, w);
                build::fill(kb, &left, (ring_left, iteration), place.left, &at, axes);
            }
            let [_, (at, axes)] = self.starts(&place, step);
            build::fill(kb, right, (ring_right, n), place.right, &at, axes);
            Some(Vec::new())
        })?;

        kb.switch_to(consume);
        let w = *args.first()?;
        let shift = kb.times(w, ROWS);
        let row = kb.index_binary(BinaryOp::Add, place.row, shift);
        let none = build::zeros(&mut kb, ROWS, self.tile.cols);
        let sums = counted(&mut kb, zero, count, &[none], |kb, n, now| {
            let first = kb.times(n, CONSUMERS);
            let own = kb.index_binary(BinaryOp::Add, first, w);
            let a = build::full_tile(kb, &left, ring_left, own);
            let b = build::full_tile(kb, right, ring_right, n);
            build::fence(kb);
            let group = build::start(kb, a, b, *now.first()?, self.transposed)?;
            let sums = build::result_of(kb, group, 0)?;
            build::empty_tile(kb, ring_left, a);
            build::empty_tile(kb, ring_right, b);
            Some(vec![sums])
        })?;
        let own = Place { points: place.points.clone(), row, ..place };
        self.epilogue(&mut kb, &own, *sums.first()?, [ROWS, self.tile.cols])?;
        build::spread(kb.finish(), machine.arch, warps()?, places.next)
    }
}

impl AttentionParts<'_> {
    /// The kernel of an attention with rings.
    pub(super) fn with_rings(&self, machine: &Machine) -> Option<Kernel> {
        let all_rows = ROWS * CONSUMERS;
        let keys = machine.keys(self.width.max(self.values));
        let (mut kb, points, row) = self.begin(all_rows)?;
        let [q, k, v] = [kb.param(QUERIES)?, kb.param(KEYS)?, kb.param(VALUES)?];
        let tiles = [self.tile(ROWS, self.width), self.tile(keys, self.width), self.tile(keys, self.values)];
        let [of_queries, of_keys, of_values] = &tiles;
        let readers = GROUP * u32::try_from(CONSUMERS).ok()?;
        let mut places = Places { next: 0 };
        let stages = [CONSUMERS, STAGES, STAGES];
        let offsets = [0, 1, 2].map(|n: usize| places.take(stages[n] * tiles[n].bytes()));
        let barriers = stages.map(|stages| places.take(stages * BARRIERS));
        kb.at(self.found.attention.locations.scores);
        let mut rings = Vec::new();
        for n in 0..3 {
            let readers = if n == 0 { GROUP } else { readers };
            let at = RingAt { stages: stages[n], offset: offsets[n], barriers: barriers[n], readers };
            rings.push(build::ring(&mut kb, &tiles[n], at));
        }
        let [ring_q, ring_k, ring_v] = *rings.as_slice() else { return None };
        let zero = kb.index(0);
        // Tiles of keys that some query of the block sees.
        let all = self.scores(&mut kb, &points, (row, all_rows), keys)?;
        let end = all.end(&mut kb, all_rows);
        let end = kb.index_binary(BinaryOp::Max, end, zero);
        let up = kb.plus(end, keys - 1);
        let size = kb.index(keys);
        let count = kb.index_binary(BinaryOp::Div, up, size);
        let (produce, _) = kb.new_block(Vec::new());
        let (consume, args) = kb.new_block(vec![crate::tile::Type::Index]);
        part(&mut kb, produce, consume);

        kb.switch_to(produce);
        let axes = (points.len(), points.len() + 1);
        let at = |row: Value| [points.as_slice(), &[row, zero]].concat();
        for w in 0..CONSUMERS {
            let (n, first) = (kb.index(w), kb.plus(row, w * ROWS));
            build::fill(&mut kb, of_queries, (ring_q, n), q, &at(first), axes);
        }
        counted(&mut kb, zero, count, &[], |kb, n, _| {
            let first = kb.times(n, keys);
            build::fill(kb, of_keys, (ring_k, n), k, &at(first), axes);
            build::fill(kb, of_values, (ring_v, n), v, &at(first), axes);
            Some(Vec::new())
        })?;

        kb.switch_to(consume);
        let w = *args.first()?;
        let shift = kb.times(w, ROWS);
        let own_row = kb.index_binary(BinaryOp::Add, row, shift);
        let scores = Scores { row: own_row, rows: ROWS, ..all };
        let queries = build::full_tile(&mut kb, of_queries, ring_q, w);
        let before = scores.begin(&mut kb)?;
        let none = scores.no_result(&mut kb, self.values);
        let (first, _) = kb.new_block(Vec::new());
        let (nothing, _) = kb.new_block(Vec::new());
        let some = kb.compare_scalars(CmpOp::Lt, zero, count);
        kb.br_if(some, (first, &[]), (nothing, &[]));
        kb.switch_to(nothing);
        build::empty_tile(&mut kb, ring_q, queries);
        self.finish(&mut kb, &scores, before.sum, none)?;

        let consumer = Consumer { parts: self, scores: &scores, of_keys, of_values, ring_k, ring_v, queries, w };
        kb.switch_to(first);
        let (softmax, packed) = consumer.first(&mut kb, before)?;
        let one = kb.index(1);
        let whole_end = scores.whole_end(&mut kb);
        let whole = kb.index_binary(BinaryOp::Div, whole_end, size);
        let mut now = vec![softmax.highest, softmax.sum, none, packed];
        // The second consumer lets the first one begin.
        let leads = kb.compare_scalars(CmpOp::Eq, w, one);
        let (lead, _) = kb.new_block(Vec::new());
        let (follow, _) = kb.new_block(Vec::new());
        let (tiles, _) = kb.new_block(Vec::new());
        kb.br_if(leads, (lead, &[]), (follow, &[]));
        kb.switch_to(lead);
        build::meet(&mut kb, one, consumers(), false);
        kb.br(tiles, &[]);
        kb.switch_to(follow);
        kb.br(tiles, &[]);
        kb.switch_to(tiles);
        now = counted(&mut kb, one, whole, &now, |kb, n, now| consumer.tile(kb, n, now, true))?;
        let next = kb.index_binary(BinaryOp::Max, whole, one);
        now = counted(&mut kb, next, count, &now, |kb, n, now| consumer.tile(kb, n, now, false))?;
        let [_, sum, result, packed] = *now.as_slice() else { return None };
        let last = kb.index_binary(BinaryOp::Sub, count, one);
        kb.at(self.found.attention.locations.values);
        let values = build::full_tile(&mut kb, of_values, ring_v, last);
        build::fence(&mut kb);
        let group = build::start(&mut kb, packed, values, result, false)?;
        let result = build::result_of(&mut kb, group, 0)?;
        build::empty_tile(&mut kb, ring_v, values);
        build::empty_tile(&mut kb, ring_q, queries);
        self.finish(&mut kb, &scores, sum, result)?;
        build::spread(kb.finish(), machine.arch, warps()?, places.next)
    }
}

/// Threads of all consumers.
fn consumers() -> u32 {
    GROUP * 32 * u32::try_from(CONSUMERS).unwrap_or(1)
}

/// A consumer of an attention.
struct Consumer<'a> {
    parts: &'a AttentionParts<'a>,
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
    /// The first tile of keys: maxima, sums, weights.
    fn first(&self, kb: &mut KernelBuilder, before: Softmax) -> Option<(Softmax, Value)> {
        kb.at(self.scores.attention.locations.scores);
        let zero = kb.index(0);
        let keys = build::full_tile(kb, self.of_keys, self.ring_k, zero);
        let none = build::zeros(kb, ROWS, self.scores.keys);
        build::fence(kb);
        let group = build::start(kb, self.queries, keys, none, true)?;
        let products = build::result_of(kb, group, 0)?;
        build::empty_tile(kb, self.ring_k, keys);
        let masked = self.scores.masked(kb, products, zero, false)?;
        let weights = self.scores.step(kb, before, masked);
        Some((weights.now, build::pack(kb, weights.weights, self.parts.elem)?))
    }

    /// A tile of keys, and the values of the one before.
    fn tile(&self, kb: &mut KernelBuilder, n: Value, now: &[Value], whole: bool) -> Option<Vec<Value>> {
        let [highest, sum, result, packed] = *now else { return None };
        let locations = self.scores.attention.locations;
        kb.at(locations.scores);
        let one = kb.index(1);
        let own = kb.index_binary(BinaryOp::Add, self.w, one);
        let two = kb.index(2);
        let other = kb.index_binary(BinaryOp::Sub, two, self.w);
        let first = kb.times(n, self.scores.keys);
        let before = kb.index_binary(BinaryOp::Sub, n, one);
        let keys = build::full_tile(kb, self.of_keys, self.ring_k, n);
        let values = build::full_tile(kb, self.of_values, self.ring_v, before);
        let none = build::zeros(kb, ROWS, self.scores.keys);
        build::meet(kb, own, consumers(), true);
        build::fence(kb);
        let of_scores = build::start(kb, self.queries, keys, none, true)?;
        kb.at(locations.values);
        let of_values = build::start(kb, packed, values, result, false)?;
        build::meet(kb, other, consumers(), false);
        kb.at(locations.scores);
        let products = build::result_of(kb, of_scores, 1)?;
        build::empty_tile(kb, self.ring_k, keys);
        let masked = self.scores.masked(kb, products, first, whole)?;
        let weights = self.scores.step(kb, Softmax { highest, sum }, masked);
        kb.at(locations.values);
        let result = build::result_of(kb, of_values, 0)?;
        build::empty_tile(kb, self.ring_v, values);
        let result = kb.binary(BinaryOp::Mul, result, weights.kept);
        let packed = build::pack(kb, weights.weights, self.parts.elem)?;
        Some(vec![weights.now.highest, weights.now.sum, result, packed])
    }
}
