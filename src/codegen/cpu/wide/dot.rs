//! `dot` as a leaf function: `acc + a @ b` in register tiles.
//!
//! In: the width and what is known of the three tiles' layout ([`DotShape`], `dot_shape`). Out: code over virtual registers that takes words: `a`, the stride
//! of `a` (in bytes, along its axis that is not dense), `b`, `acc`, rows, inner, the scales of `b` where it has any (rows
//! of as many as `b` has columns), the number that the sums start with where they are not read, how this processor's
//! memory is best read (`dot_few`), and, where asked for, the place of the result and the bytes from row to row there.
//!
//! A register tile is `h` rows by up to two vectors of columns, `h` at most 14 (AVX-512: 28 accumulators, two registers
//! for a row of `b`, two for elements of `a`) or 6 (AVX2: 12, two, one). Rows are split evenly: `rows` in
//! `ceil(rows / MR)` tiles whose heights differ by at most one, so no tile is left so low that its few chains of sums
//! wait for the latency of an FMA. Each height has its own code. Within a tile the whole inner extent is gone through,
//! four steps written out; a step loads one row of `b` and spreads one element of each row of `a` over a register:
//! spreading costs a load that a plain FMA does not wait for, and each is used by two FMAs. So a register tile is described
//! once: how a vector of a row of `b` is loaded ([`Dot::column`], one way for each kind of right operand), what is added to a
//! sum ([`Dot::accumulate`]), where sums begin and where they go.
//!
//! Every element is one chain `fma(a, b, sum)` from 0 in the order of the inner index, whatever the tile, and what lies in
//! the accumulator's place is added to its end (`tile::Op::Dot`). Pairs of `bf16` go through `vdpbf16ps`, the odd step of
//! each pair first, without subnormals; whole numbers at AVX-512 and with AVX-VNNI are summed exactly in groups, by left
//! operands in 8 bits (`dot_whole`, `dot_bytes`).
//!
//! A left operand whose rows are whole pages apart has all their lines in one set of the first-level cache, which has
//! twelve: tiles then have fewer rows than that ([`ALIASED_ROWS`]), and the lines stay while their elements are used.
//!
//! Where the result goes from the accumulator's place is known to most kernels before the product ([`DotShape::result`]).
//! Its lines are fetched for writing meanwhile, a row in each turn of the inner loop, or all the stores of a kernel's tile
//! would come at once and wait for memory. At AVX-512 the sums of a kernel that does nothing else with them go there at
//! once ([`DotShape::direct`]), each register tile's while the next one is computed; masks leave out what is beyond the
//! last column.
//!
//! The register allocator finds what was once written down by hand: no value of an inner loop lies in memory but the last row of
//! the result, and nothing is moved. Old code beside new on one core of a Xeon with AVX-512, least of hundreds of calls that find
//! their operands in the caches: tall products 0.97 to 1.01 of the time; calls of one or two rows, some microseconds
//! long, up to 20 nanoseconds more for entering and leaving, which wait for memory where it matters.
//!
//! Where one tile has all rows and `b` comes from memory, it is read by code of its own (`dot_few`).
//!
//! `b` may be narrower than what is computed ([`Right`]): it is widened where it is loaded, so that a product of few rows
//! reads fewer bytes. Whole numbers are multiplied by their column's scale, which changes every [`GROUP`] steps; two
//! registers hold the scales, and the tiles are lower by two rows.

use super::super::origins::Comments;
use super::Stages;
use super::allocate::allocate;
use super::dot_few::Way;
pub(super) use super::dot_shape::{DotShape, Right, word};
use super::encode::encode_commented;
use super::groups;
use super::machine::{Block, Class, Constant, Function, Machine, Mem, Op, Operand, Reg, When};
use crate::tile::Width;

/// Steps of the inner index for which a scale holds.
const GROUP: i32 = crate::tile::GROUP;

/// Steps of the inner index that are written out.
pub(super) const UNROLL: i32 = 4;

/// How far the scales of whole numbers are fetched ahead: they are a stream of their own.
pub(super) const SCALES_AHEAD: i32 = 2048;

/// Bytes of a cache line.
pub(super) const LINE: i32 = 64;
/// Bytes of a page, the distance from one line of a set of the first-level cache to the next.
const PAGE: i32 = 4096;
/// Rows of a register tile whose lines would all be in one set: of its twelve, one is left for what passes.
const ALIASED_ROWS: i32 = 11;
/// Lines that are fetched for later in each turn of the inner loop: half of what a turn reads of `b`, or a quarter.
const FAR_LINES: i32 = 2;

/// The code, comments on it, and what it was before, but for what multiplies in groups (`groups`), which stands before it.
///
/// # Errors
/// A form that cannot be encoded: a mistake of ours, or a layout too large for a displacement.
pub(super) fn dot(width: Width, shape: DotShape, commented: bool) -> Result<(Vec<u8>, Comments, Stages), String> {
    let (mut code, mut comments) = match groups::are_there(width, &shape) {
        true => groups::groups(width, shape, commented)?,
        false => Default::default(),
    };
    let selected = select(width, shape);
    let allocated = allocate(&selected).ok_or("a product without registers")?;
    let (own, _, more) = encode_commented(&allocated, commented).ok_or("a product that has no encoding")?;
    let start = u32::try_from(code.len()).map_err(|_| "a product is too long")?;
    comments.extend(more.into_iter().map(|(at, text)| (start + at, text)));
    code.extend(own);
    Ok((code, comments, Stages { selected, allocated: allocated.function }))
}

/// The code over virtual registers.
fn select(width: Width, shape: DotShape) -> Function {
    let mut d = Dot { m: Machine::new(width), shape, masks: [None; 2], way: Way::Pages };
    d.function();
    d.m.finish()
}

/// The register tiles of a width: rows at most.
pub(super) fn most_rows(width: Width, right: Right) -> i32 {
    let rows = i32::try_from(width.dot_rows()).unwrap_or(4);
    if right.scaled() { rows - 2 } else { rows }
}

pub(super) struct Dot {
    pub(super) m: Machine,
    pub(super) shape: DotShape,
    /// The columns of each vector that the result has, where the sums go there.
    masks: [Option<Reg>; 2],
    /// How what comes next is fetched, in the code that is being made.
    pub(super) way: Way,
}

/// A register tile: rows, vectors of columns, and the first of these among all.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) height: i32,
    pub(super) vectors: i32,
    pub(super) first: i32,
}

/// What a product goes on from and comes to, tile by tile.
#[derive(Clone, Copy)]
struct Place {
    /// First row of the tile in `a` and in the accumulator.
    a: Reg,
    acc: Reg,
    /// The row of the result where its sums go, if they go there.
    result: Option<Reg>,
    /// What is fetched next into the second-level cache, and the row of the result that is fetched next.
    far: Option<Reg>,
    fetched: Option<Reg>,
}

impl Place {
    fn registers(&self) -> Vec<Reg> {
        [Some(self.a), Some(self.acc), self.result, self.far, self.fetched].into_iter().flatten().collect()
    }

    /// The same with other registers, in the same order.
    fn with(&self, registers: &[Reg]) -> Place {
        let mut all = registers.iter().copied();
        let mut next = |old: Option<Reg>| old.and_then(|_| all.next());
        Place {
            a: next(Some(self.a)).unwrap_or(self.a),
            acc: next(Some(self.acc)).unwrap_or(self.acc),
            result: next(self.result),
            far: next(self.far),
            fetched: next(self.fetched),
        }
    }
}

/// What changes from step to step of a tile.
#[derive(Clone)]
pub(super) struct Steps {
    /// Row of `b`.
    pub(super) b_row: Reg,
    /// Where the rows of `a` are: each pointer serves three, at once, twice the stride. Where rows are dense, one serves all.
    pub(super) pointers: Vec<Reg>,
    /// What is fetched next, as in [`Place`].
    far: Option<Reg>,
    fetched: Option<Reg>,
    /// The sums, row by row.
    pub(super) sums: Vec<Reg>,
}

impl Steps {
    /// Steps that fetch nothing.
    pub(super) fn new(b_row: Reg, pointers: Vec<Reg>, sums: Vec<Reg>) -> Steps {
        Steps { b_row, pointers, far: None, fetched: None, sums }
    }

    pub(super) fn registers(&self) -> Vec<Reg> {
        let mut all = vec![self.b_row];
        all.extend(&self.pointers);
        all.extend(self.far);
        all.extend(self.fetched);
        all.extend(&self.sums);
        all
    }

    /// The same with other registers, in the same order.
    pub(super) fn with(&self, registers: &[Reg]) -> Steps {
        let mut all = registers.iter().copied();
        let mut next = |old: Reg| all.next().unwrap_or(old);
        Steps {
            b_row: next(self.b_row),
            pointers: self.pointers.iter().map(|r| next(*r)).collect(),
            far: self.far.map(&mut next),
            fetched: self.fetched.map(&mut next),
            sums: self.sums.iter().map(|r| next(*r)).collect(),
        }
    }
}

/// What stays the same in all steps of a tile.
#[derive(Clone)]
pub(super) struct Fixed {
    pub(super) tile: Tile,
    pub(super) stride: Reg,
    /// Three times the stride, where rows of `a` are dense.
    three: Option<Reg>,
    /// The last row of the result, where lines of it are fetched.
    last: Option<Reg>,
    /// The scales of each vector of columns.
    scales: Vec<Reg>,
}

impl Fixed {
    /// Of a tile that fetches no lines of the result and has no scales.
    pub(super) fn new(d: &mut Dot, tile: Tile, stride: Reg) -> Fixed {
        let three = (!d.shape.inner_dense).then(|| {
            let three = Mem::at(stride).indexed(stride, 2);
            d.m.make(Class::General, Op::Lea, vec![three.into()])
        });
        Fixed { tile, stride, three, last: None, scales: Vec::new() }
    }
}

impl Dot {
    pub(super) fn vector_bytes(&self) -> i32 {
        4 * i32::try_from(self.m.lanes()).unwrap_or(4)
    }

    pub(super) fn most_rows(&self) -> i32 {
        most_rows(self.m.width(), self.shape.right)
    }

    /// A word in a register.
    pub(super) fn word(&mut self, n: usize) -> Reg {
        self.m.make(Class::General, Op::Mov, vec![Mem::word(n).into()])
    }

    /// A general register with a number added.
    pub(super) fn plus(&mut self, r: Reg, n: i32) -> Reg {
        if n == 0 { r } else { self.m.tied(Op::PlusImm, r, vec![Operand::Imm(n)]) }
    }

    fn function(&mut self) {
        let done = self.m.block(&[]);
        if groups::are_there(self.m.width(), &self.shape) {
            self.m
                .comment("where steps are not whole groups; those are multiplied by the code before this".to_string());
            let rest = self.m.block(&[]);
            self.m.join(rest, &[]);
        }
        if self.shape.direct {
            self.masks = [0, 2].map(|at| {
                let place = Mem::word(word::MASKS).plus(at);
                Some(self.m.make(Class::Mask, Op::MaskCopy, vec![place.into()]))
            });
        }
        if self.is_few() {
            self.few(done);
        }
        let (mut first, mut left) = (0, self.shape.vectors);
        while left > 0 {
            let n = left.min(2);
            let next = self.m.block(&[]);
            self.columns(first, n, next, done);
            self.m.start(next);
            first += n;
            left -= n;
        }
        self.m.jump(done, &[]);
        self.m.start(done);
    }

    /// Leaves if there is nothing to do: without steps, unless the accumulator is still to be filled, or to go elsewhere.
    pub(super) fn leave_without_steps(&mut self, inner: Reg, done: Block) {
        if !self.shape.filled && !self.shape.direct {
            self.m.leave_if((inner, When::Less, Operand::Imm(1)), done, &[]);
        }
    }

    /// All rows of `vectors` vectors of columns, from vector `first` on; then on to `next`.
    fn columns(&mut self, first: i32, vectors: i32, next: Block, done: Block) {
        self.m.comment(format!("{vectors} vectors of columns from vector {first}"));
        let rows = self.word(word::ROWS);
        self.m.leave_if((rows, When::Less, Operand::Imm(1)), done, &[]);
        let inner = self.word(word::INNER);
        self.leave_without_steps(inner, done);
        let [a, stride, b, acc] = [word::A, word::STRIDE, word::B, word::ACC].map(|n| self.word(n));
        let (b, acc) = (self.plus(b, first * self.right_bytes()), self.plus(acc, first * self.vector_bytes()));
        let [tiles, height, lower] = self.tiles(rows, stride);
        let result = self.shape.direct.then(|| self.word(word::RESULT));
        let (mut fetched, mut last) = (None, None);
        if self.shape.result > 0 {
            // From the first row of the result to the last one.
            let start = self.word(word::RESULT);
            let down = self.plus(rows, -1);
            let down = self.m.tied(Op::Times, down, vec![Mem::word(word::RESULT_PITCH).into()]);
            last = Some(self.m.tied(Op::Plus, down, vec![start.into()]));
            fetched = Some(start);
        }
        let (mut far, mut end) = (None, None);
        if self.shape.far {
            // What comes after `b`, as long as it.
            let bytes = self.m.make(Class::General, Op::TimesImm, vec![inner.into(), Operand::Imm(self.shape.b_pitch)]);
            let behind = self.m.make(Class::General, Op::Lea, vec![Mem::at(b).indexed(bytes, 1).into()]);
            end = Some(self.m.tied(Op::Plus, bytes, vec![behind.into()]));
            far = Some(behind);
        }
        let mut place = Place { a, acc, result, far, fetched };

        // Tiles of one height, then those that are a row lower.
        let (top, counts) = self.m.begin_loop(&[&[tiles, height, lower], place.registers().as_slice()].concat());
        place = place.with(&counts[3..]);
        let [tiles, height, lower] = [counts[0], counts[1], counts[2]];
        let after = self.m.block_for(&place.registers());
        for h in (1..=self.most_rows()).rev() {
            let (here, other) = (self.m.block(&[]), self.m.block(&[]));
            self.m.branch((height, When::Less, Operand::Imm(h)), (other, &[]), (here, &[]));
            self.m.start(here);
            self.m.comment(format!("{h} rows x {vectors} vectors"));
            let fixed = Fixed { last, ..Fixed::new(self, Tile { height: h, vectors, first }, stride) };
            let there = self.tile(&fixed, place, (b, end), inner);
            self.m.jump(after, &there.registers());
            self.m.start(other);
        }
        self.m.jump(done, &[]);
        let params = self.m.start(after);
        place = place.with(&params);
        let left = self.plus(tiles, -1);
        let again = [&[left, height, lower], place.registers().as_slice()].concat();
        self.m.end_loop(top, (left, When::GreaterEqual, Operand::Imm(1)), &again);
        self.m.leave_if((lower, When::Less, Operand::Imm(1)), next, &[]);
        let (height, none) = (self.plus(height, -1), self.m.number(0));
        self.m.jump(top, &[&[lower, height, none], place.registers().as_slice()].concat());
    }

    /// How rows are split: so many tiles of a height, and so many of a row less. As few as there can be,
    /// `tiles = ceil(rows / most)`; what they could have more, `tiles * most - rows`, is taken from each in turn.
    fn tiles(&mut self, rows: Reg, stride: Reg) -> [Reg; 3] {
        let most = self.m.number(self.most_rows());
        let mut most = most;
        if self.shape.inner_dense && self.most_rows() > ALIASED_ROWS {
            let (chosen, aliased) = (self.m.block(&[Class::General]), self.m.block(&[]));
            let inside = self.m.tied(Op::AndImm, stride, vec![Operand::Imm(PAGE - 1)]);
            self.m.branch((inside, When::Less, Operand::Imm(1)), (aliased, &[]), (chosen, &[most]));
            self.m.start(aliased);
            let fewer = self.m.number(ALIASED_ROWS);
            self.m.jump(chosen, &[fewer]);
            most = self.m.start(chosen)[0];
        }
        let (none, left) = (self.m.number(0), self.m.copy(rows));
        let (top, counted) = self.m.begin_loop(&[none, left]);
        let tiles = self.plus(counted[0], 1);
        let left = self.m.tied(Op::Minus, counted[1], vec![most.into()]);
        self.m.end_loop(top, (left, When::GreaterEqual, Operand::Imm(1)), &[tiles, left]);
        let zero = self.m.number(0);
        let spare = self.m.tied(Op::Minus, zero, vec![left.into()]);
        let shared = self.m.block(&[Class::General, Class::General]);
        let more = self.m.block(&[]);
        self.m.branch((spare, When::Less, tiles.into()), (shared, &[most, spare]), (more, &[]));
        self.m.start(more);
        let (top, now) = self.m.begin_loop(&[most, spare]);
        let height = self.plus(now[0], -1);
        let spare = self.m.tied(Op::Minus, now[1], vec![tiles.into()]);
        self.m.end_loop(top, (spare, When::GreaterEqual, tiles.into()), &[height, spare]);
        self.m.jump(shared, &[height, spare]);
        let params = self.m.start(shared);
        let high = self.m.tied(Op::Minus, tiles, vec![params[1].into()]);
        [high, params[0], params[1]]
    }

    /// One register tile; what the next one goes on from. `end` is the end of what is fetched for later.
    fn tile(&mut self, fixed: &Fixed, place: Place, (b, end): (Reg, Option<Reg>), inner: Reg) -> Place {
        let Tile { height, .. } = fixed.tile;
        let mut far = place.far;
        if let (Some(now), Some(end)) = (far, end) {
            // All of it is asked for: again what is near costs next to nothing, and what is behind it may not be wanted.
            let (near, go_on) = (self.m.block(&[]), self.m.block(&[Class::General]));
            self.m.branch((now, When::Less, end.into()), (go_on, &[now]), (near, &[]));
            self.m.start(near);
            self.m.jump(go_on, &[b]);
            far = Some(self.m.start(go_on)[0]);
        }
        let sums = self.start_sums(fixed.tile);
        let (b_row, pointers) = (self.m.copy(b), self.pointers(place.a, fixed));
        let mut steps = Steps { b_row, pointers, far, fetched: place.fetched, sums };
        let count = self.m.copy(inner);
        steps = if self.shape.right.scaled() {
            self.groups(fixed, steps, count)
        } else {
            self.counted_steps(fixed, steps, count)
        };
        let result = self.store_sums(fixed.tile, &steps.sums, place.acc, place.result);
        let acc = self.plus(place.acc, height * self.shape.acc_pitch);
        let a = if self.shape.inner_dense {
            let rows = vec![fixed.stride.into(), Operand::Imm(height)];
            let further = self.m.make(Class::General, Op::TimesImm, rows);
            self.m.tied(Op::Plus, place.a, vec![further.into()])
        } else {
            self.plus(place.a, 4 * height)
        };
        Place { a, acc, result, far: steps.far, fetched: steps.fetched }
    }

    /// What the sums of a tile start with.
    pub(super) fn start_sums(&mut self, tile: Tile) -> Vec<Reg> {
        let (op, srcs) = match self.shape.filled {
            true => (Op::Spread, vec![Mem::word(word::FIRST).into()]),
            false => (Op::Zero, Vec::new()),
        };
        (0..tile.height * tile.vectors).map(|_| self.m.vector(op, srcs.clone())).collect()
    }

    /// Adds what lies in the accumulator's place, and puts the sums of a tile where they belong; where those of the next one go.
    pub(super) fn store_sums(&mut self, tile: Tile, sums: &[Reg], acc: Reg, result: Option<Reg>) -> Option<Reg> {
        let mut result = result;
        let mut sums = sums.iter().copied();
        for r in 0..tile.height {
            for v in 0..tile.vectors {
                let Some(mut sum) = sums.next() else { continue };
                let place = Mem::at(acc).plus(r * self.shape.acc_pitch + v * self.vector_bytes());
                if !self.shape.filled {
                    sum = self.m.vector(Op::Add, vec![sum.into(), place.into()]);
                }
                match result {
                    Some(row) => {
                        let (place, mask) =
                            (Mem::at(row).plus(v * self.vector_bytes()), self.masks[usize::from(v > 0)]);
                        self.m.masked_effect(Op::Store, mask, vec![place.into(), sum.into()]);
                    }
                    None => self.m.effect(Op::Store, vec![place.into(), sum.into()]),
                }
            }
            result = result.map(|row| self.m.tied(Op::Plus, row, vec![Mem::word(word::RESULT_PITCH).into()]));
        }
        result
    }

    /// Pointers to the rows of `a`, from the first of them on.
    pub(super) fn pointers(&mut self, a: Reg, fixed: &Fixed) -> Vec<Reg> {
        let mut pointers = vec![self.m.copy(a)];
        if self.shape.inner_dense {
            for _ in 1..(fixed.tile.height + 2) / 3 {
                let last = pointers[pointers.len() - 1];
                let two = Mem::at(last).indexed(fixed.stride, 2);
                let two = self.m.make(Class::General, Op::Lea, vec![two.into()]);
                pointers.push(self.m.tied(Op::Plus, two, vec![fixed.stride.into()]));
            }
        }
        pointers
    }

    /// Goes on with some steps as long as so many are left; what is left of them, at most one less, and where it has come to.
    pub(super) fn while_left(
        &mut self,
        (steps, left, count): (Steps, Reg, i32),
        code: impl FnOnce(&mut Self, Steps) -> Steps,
    ) -> (Steps, Reg) {
        // Counted so much lower, the last addition says whether the loop goes on.
        let lower = self.plus(left, -count);
        let carried = [&[lower], steps.registers().as_slice()].concat();
        let (go, end) = (self.m.block(&[]), self.m.block_for(&carried));
        self.m.branch((lower, When::Less, Operand::Imm(0)), (end, &carried), (go, &[]));
        self.m.start(go);
        let (top, params) = self.m.begin_loop(&carried);
        let after = code(self, steps.with(&params[1..]));
        let left = self.plus(params[0], -count);
        let carried = [&[left], after.registers().as_slice()].concat();
        self.m.end_loop(top, (left, When::GreaterEqual, Operand::Imm(0)), &carried);
        self.m.jump(end, &carried);
        let params = self.m.start(end);
        (steps.with(&params[1..]), self.plus(params[0], count))
    }

    /// As many steps as are said.
    fn counted_steps(&mut self, fixed: &Fixed, steps: Steps, count: Reg) -> Steps {
        let (mut steps, mut left) = self.while_left((steps, count, UNROLL), |d, s| d.steps(fixed, s, UNROLL));
        // Of half bytes, a whole byte's two steps, then perhaps the lower half of one.
        let rest: &[i32] = if self.shape.right == Right::Nibbles { &[2, 1] } else { &[1] };
        for n in rest {
            (steps, left) = self.while_left((steps, left, *n), |d, s| d.steps(fixed, s, *n));
        }
        steps
    }

    /// All steps, group by group, each with its scales.
    fn groups(&mut self, fixed: &Fixed, steps: Steps, inner: Reg) -> Steps {
        let bytes = self.vector_bytes();
        let scales = self.word(word::SCALES);
        let carried = [&[inner, scales], steps.registers().as_slice()].concat();
        let (go, end) = (self.m.block(&[]), self.m.block_for(&steps.registers()));
        self.m.branch((inner, When::Less, Operand::Imm(1)), (end, &steps.registers()), (go, &[]));
        self.m.start(go);
        let (top, params) = self.m.begin_loop(&carried);
        let (left, scales) = (params[0], params[1]);
        let own = (0..fixed.tile.vectors).map(|v| {
            let place = Mem::at(scales).plus((fixed.tile.first + v) * bytes);
            self.m.vector(Op::Load, vec![place.into()])
        });
        let fixed = Fixed { scales: own.collect(), ..fixed.clone() };
        // A row of scales is as long as a row of `b`, in elements.
        let scales = self.plus(scales, 4 * self.shape.b_pitch);
        let (whole, some) = (self.m.block(&[]), self.m.block(&[Class::General]));
        self.m.branch((left, When::Less, Operand::Imm(GROUP)), (some, &[left]), (whole, &[]));
        self.m.start(whole);
        let group = self.m.number(GROUP);
        self.m.jump(some, &[group]);
        let count = self.m.start(some)[0];
        let after = self.counted_steps(&fixed, steps.with(&params[2..]), count);
        let left = self.plus(left, -GROUP);
        let again = [&[left, scales], after.registers().as_slice()].concat();
        self.m.end_loop(top, (left, When::GreaterEqual, Operand::Imm(1)), &again);
        self.m.jump(end, &after.registers());
        let params = self.m.start(end);
        steps.with(&params)
    }

    /// Bytes that a vector of columns of `b` takes.
    pub(super) fn right_bytes(&self) -> i32 {
        match self.shape.right {
            Right::F32 | Right::Pairs => self.vector_bytes(),
            Right::Bf16 => self.vector_bytes() / 2,
            Right::Bytes | Right::Nibbles => self.vector_bytes() / 4,
        }
    }

    /// Vector `v` of the row of `b` at step `u`, as `f32`. `halves` has the bytes of two rows of half bytes.
    fn column(&mut self, fixed: &Fixed, b_row: Reg, (u, v): (i32, i32), halves: &mut [Option<Reg>; 2]) -> Reg {
        let row = if self.shape.right == Right::Nibbles { u / 2 } else { u };
        let place = Operand::Mem(Mem::at(b_row).plus(row * self.shape.b_pitch + v * self.right_bytes()));
        let at = usize::from(v > 0);
        let number = match self.shape.right {
            Right::F32 | Right::Pairs => return self.m.vector(Op::Load, vec![place]),
            Right::Bf16 => {
                let x = self.m.vector(Op::Unsigned16, vec![place]);
                return self.m.vector(Op::ShiftLeft, vec![x.into(), Operand::Imm(16)]);
            }
            Right::Bytes => {
                let n = self.m.vector(Op::Signed8, vec![place]);
                self.m.vector(Op::FromInt, vec![n.into()])
            }
            Right::Nibbles => {
                let both = match halves[at].filter(|_| u % 2 == 1) {
                    Some(both) => both,
                    None => self.m.vector(Op::Unsigned8, vec![place]),
                };
                if self.m.wide() {
                    // The permutation looks at the lowest four bits alone.
                    let n = match u % 2 {
                        0 => both,
                        _ => self.m.vector(Op::ShiftRight, vec![both.into(), Operand::Imm(4)]),
                    };
                    halves[at] = Some(both);
                    let table = self.m.constant(Constant::Nibbles);
                    self.m.two(Op::Permute, n, table)
                } else {
                    halves[at] = Some(both);
                    let up = if u % 2 == 0 { 28 } else { 24 };
                    let n = self.m.vector(Op::ShiftLeft, vec![both.into(), Operand::Imm(up)]);
                    let n = self.m.vector(Op::ShiftSigned, vec![n.into(), Operand::Imm(28)]);
                    self.m.vector(Op::FromInt, vec![n.into()])
                }
            }
        };
        self.m.two(Op::Mul, number, fixed.scales[at])
    }

    /// A sum and a product more.
    fn accumulate(&mut self, sum: Reg, element: Reg, column: Reg) -> Reg {
        let op = if self.shape.right == Right::Pairs { Op::AccumulatePairs } else { Op::Accumulate };
        self.m.tied(op, sum, vec![element.into(), column.into()])
    }

    /// Some steps of the inner index, and on.
    pub(super) fn steps(&mut self, fixed: &Fixed, from: Steps, count: i32) -> Steps {
        let Tile { height, vectors, .. } = fixed.tile;
        let mut s = from;
        let mut halves = [None; 2];
        for u in 0..count {
            if let Some(far) = s.far.filter(|_| count == UNROLL && u < FAR_LINES) {
                self.m.effect(Op::FetchSecond, vec![Mem::at(far).plus(LINE * u).into()]);
            }
            let columns: Vec<Reg> = (0..vectors).map(|v| self.column(fixed, s.b_row, (u, v), &mut halves)).collect();
            let mut sums = s.sums.iter().copied();
            let mut after = Vec::with_capacity(s.sums.len());
            for r in 0..height {
                let place = self.element(fixed, &s, (r, u));
                let element = self.m.vector(Op::Spread, vec![place.into()]);
                for (column, sum) in columns.iter().zip(&mut sums) {
                    after.push(self.accumulate(sum, element, *column));
                }
            }
            s.sums = after;
        }
        let rows_of_b = if self.shape.right == Right::Nibbles { (count + 1) / 2 } else { count };
        s.b_row = self.plus(s.b_row, rows_of_b * self.shape.b_pitch);
        if count == UNROLL {
            s.far = s.far.map(|far| self.plus(far, LINE * FAR_LINES));
            s.fetched = s.fetched.map(|row| self.fetch_result(row, fixed.last.unwrap_or(row)));
        }
        s.pointers = match self.shape.inner_dense {
            true => s.pointers.iter().map(|p| self.plus(*p, 4 * count)).collect(),
            false => {
                let scale = u8::try_from(count).unwrap_or(1);
                let further = Mem::at(s.pointers[0]).indexed(fixed.stride, scale);
                vec![self.m.make(Class::General, Op::Lea, vec![further.into()])]
            }
        };
        s
    }

    /// Fetches a row of the result for writing; the next one, or the last again and again, once it is reached.
    fn fetch_result(&mut self, row: Reg, last: Reg) -> Reg {
        for line in 0..self.shape.result {
            self.m.effect(Op::Fetch, vec![Mem::at(row).plus(LINE * line).into()]);
        }
        let row = self.m.tied(Op::Plus, row, vec![Mem::word(word::RESULT_PITCH).into()]);
        let (beyond, go_on) = (self.m.block(&[]), self.m.block(&[Class::General]));
        self.m.branch((row, When::Less, last.into()), (go_on, &[row]), (beyond, &[]));
        self.m.start(beyond);
        self.m.jump(go_on, &[last]);
        self.m.start(go_on)[0]
    }

    /// Where the element of row `r` and step `u` lies.
    fn element(&self, fixed: &Fixed, s: &Steps, (r, u): (i32, i32)) -> Mem {
        let scaled = |base, scale: i32| match u8::try_from(scale).unwrap_or(0) {
            0 => Mem::at(base),
            scale => Mem::at(base).indexed(fixed.stride, scale),
        };
        if self.shape.inner_dense {
            scaled(s.pointers[usize::try_from(r / 3).unwrap_or(0)], r % 3).plus(4 * u)
        } else {
            match fixed.three.filter(|_| u == 3) {
                Some(three) => Mem::at(s.pointers[0]).indexed(three, 1).plus(4 * r),
                None => scaled(s.pointers[0], u).plus(4 * r),
            }
        }
    }
}
