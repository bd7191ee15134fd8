//! Lowering of a `run`: loops over rows and vectors of columns.
//!
//! In: a [`Frame`]. Out: a routine; what is done in the loops is in `steps` and `reduce`. Three depths: before the loops
//! (0), in the outer loop (1), in the inner loop (2); each instruction stands at the least depth at which its operands are
//! known. The inner loop goes through columns, several vectors at a time, one vector's work after another's: the processor
//! overlaps them, and few registers are live. Where rows are reduced, it is the inner loop that goes through rows, for a few
//! vectors of columns, and the sums stay in registers. Columns that are not full vectors are done under a mask.
//!
//! What lies in scratch from before the run and is overwritten in it is read first at each place.

use std::collections::BTreeMap;

use super::accumulators::Sum;
use super::frame::{Access, Count, Distance, Frame, Step, Varies};
use super::{Shape, Word};
use crate::scalar::{BinaryOp, CmpOp, UnaryOp};
use crate::shape::Elem;
use crate::ssa::Block;
// Values of the routine, beside those of the tile IR.
use crate::ssa::Value as Operand;
use crate::tile::{Inst, Op, Space, TileType, Type, Value};
use crate::vector::expand::{self, Expanded};
use crate::vector::routine::{self, At, Builder, Op as Do};
use crate::vector::{Features, library};

/// How many lanes of a vector there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lanes {
    /// All.
    All,
    /// The first ones.
    Some {
        /// Which, as a mask.
        mask: Operand,
        /// How many, at least 1.
        count: Operand,
    },
}

impl Lanes {
    /// The mask, where not all are there.
    pub(super) fn mask(self) -> Option<Operand> {
        match self {
            Lanes::All => None,
            Lanes::Some { mask, .. } => Some(mask),
        }
    }

    /// How many there are, where not all are.
    pub(super) fn count(self) -> Option<Operand> {
        match self {
            Lanes::All => None,
            Lanes::Some { count, .. } => Some(count),
        }
    }
}

/// Where the elements of a vector lie.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spot {
    /// Side by side.
    Unit(At),
    /// From an address on, so many bytes apart.
    Apart(Operand, Operand),
}

/// Some vectors of columns.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    /// The first column is this index ..
    pub(super) at: Option<Operand>,
    /// .. and so many further.
    pub(super) offset: i64,
    /// How many vectors.
    pub(super) vectors: usize,
    /// How many lanes of each.
    pub(super) lanes: Lanes,
}

/// Which row is being lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Of two rows the first.
    First,
    /// Of two rows the second.
    Second,
    /// One by itself.
    Single,
}

/// A run being lowered.
pub(super) struct Lower<'a> {
    pub(super) b: Builder,
    pub(super) f: Frame<'a>,
    pub(super) shape: Shape,
    /// The routine's parameters, one for each word of the frame.
    params: Vec<Operand>,
    /// What is known at each depth; for what varies along columns, by vector.
    pub(super) env: [BTreeMap<(Value, usize), Operand>; 3],
    /// `iota` without the place: what it starts from.
    pub(super) starts: BTreeMap<Inst, Operand>,
    /// Accumulators of reductions, in the run's order.
    pub(super) sums: Vec<(Inst, Sum)>,
    /// Number of the row, and of the column where these are counted.
    pub(super) row: Option<Operand>,
    pub(super) col: Option<Operand>,
    /// Address of the row: of accesses, in the run's order, and of scratch by the distance of its rows.
    pointers: Vec<(Inst, Operand)>,
    scratch_rows: BTreeMap<u32, Operand>,
    /// How many vectors at a time.
    pub(super) unroll: usize,
    /// Do rows go in pairs, and which row is it now?
    pub(super) pairs: bool,
    pub(super) turn: Turn,
    /// Are tiles of a single column being written, in a loop of their own?
    pub(super) single: bool,
    /// The lanes of the last vector, where it is not whole.
    pub(super) tail: Option<Lanes>,
}

/// About how many machine instructions an operation is.
fn cost(op: &Op, features: Features) -> usize {
    match op {
        Op::Unary(UnaryOp::Exp) => 14,
        Op::Unary(UnaryOp::Exp2) => 8,
        Op::Unary(UnaryOp::Tanh | UnaryOp::Sigmoid | UnaryOp::Silu | UnaryOp::Gelu | UnaryOp::GeluTanh) => 25,
        Op::Unary(UnaryOp::Erf) => 45,
        Op::Unary(UnaryOp::Sin | UnaryOp::Cos) => 140,
        Op::Unary(op) => {
            library::unary(*op).and_then(|name| expand::expanded(name, features).ok()).map_or(1, Expanded::size)
        }
        Op::Binary(BinaryOp::Pow | BinaryOp::Rem) => 150,
        Op::Narrow { .. } => 6,
        Op::Full | Op::Copy => 0,
        _ => 1,
    }
}

/// What is little work for each vector.
const LITTLE: usize = 12;

/// Which loop it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    /// Over rows.
    Rows,
    /// Over columns.
    Cols,
}

impl<'a> Lower<'a> {
    /// An empty routine for the run of a frame.
    pub(super) fn new(name: &str, mut f: Frame<'a>, shape: Shape) -> Lower<'a> {
        f.word(Word::Scratch);
        let mut lower = Lower {
            b: Builder::new(name, shape.lanes, shape.features),
            f,
            shape,
            params: Vec::new(),
            env: Default::default(),
            starts: BTreeMap::new(),
            sums: Vec::new(),
            row: None,
            col: None,
            pointers: Vec::new(),
            scratch_rows: BTreeMap::new(),
            unroll: 1,
            pairs: false,
            turn: Turn::Single,
            single: false,
            tail: None,
        };
        lower.unroll = lower.vectors_at_a_time();
        // Both rows of a pair need registers: of 16 there are enough for two vectors.
        let enough = shape.unroll > 1 && (shape.registers >= 32 || lower.unroll <= 2);
        lower.pairs = lower.f.cols_outside && lower.work() <= LITTLE && enough;
        lower
    }

    /// About how many machine instructions there are for each vector.
    fn work(&self) -> usize {
        self.f.insts.iter().map(|i| cost(&self.f.body.inst(*i).op, self.shape.features)).sum()
    }

    /// Lanes of a vector.
    pub(super) fn lanes(&self) -> i64 {
        i64::from(self.shape.lanes)
    }

    /// Four vectors where little is done with each, two where more is.
    fn vectors_at_a_time(&self) -> usize {
        let most = usize::try_from(self.f.cols.most() / self.lanes()).unwrap_or(0).max(1);
        let wanted = match self.work() {
            0..=LITTLE => 4,
            13..=60 => 2,
            _ => 1,
        };
        wanted.min(most).min(self.shape.unroll)
    }

    /// The depth at which something is known.
    pub(super) fn depth(&self, v: Varies) -> usize {
        let (outer, inner) = if self.f.cols_outside { (v.cols, v.rows) } else { (v.rows, v.cols) };
        if inner { 2 } else { usize::from(outer) }
    }

    /// The parameter for a word.
    pub(super) fn word(&mut self, n: usize) -> Option<Operand> {
        for w in self.f.words.get(self.params.len()..).unwrap_or_default() {
            let ty = match w {
                Word::Index(_) | Word::StrideBytes { .. } => routine::Type::Index,
                Word::Scalar(v) => routine::Type::Lanes(self.f.body.ty(*v).elem()?, 1),
                Word::Address { .. } | Word::Scratch => routine::Type::Address,
            };
            let v = self.b.param(ty);
            self.params.push(v);
        }
        self.params.get(n).copied()
    }

    pub(super) fn word_of(&mut self, w: Word) -> Option<Operand> {
        let n = self.f.word(w);
        self.word(n)
    }

    /// A distance as an index.
    pub(super) fn distance(&mut self, d: Distance) -> Option<Operand> {
        match d {
            Distance::Bytes(n) => Some(self.b.index(n)),
            Distance::Word(w) => self.word(w),
        }
    }

    /// Lowers the whole run.
    pub(super) fn go(&mut self) -> Option<()> {
        if self.f.rows == Count::Static(0) && !self.f.cols_outside
            || self.f.cols == Count::Static(0) && self.f.cols_outside
        {
            return Some(());
        }
        self.start_tail()?;
        self.start_iotas()?;
        let whole = Chunk { at: None, offset: 0, vectors: 1, lanes: Lanes::All };
        self.step(0, &whole)?;
        if self.f.cols_outside {
            // A value with a single column exists even if the run has no columns.
            if self.f.writes_single_columns() {
                self.single = true;
                self.rows(&mut |s| {
                    s.env[2].clear();
                    s.step(2, &whole)
                })?;
                self.single = false;
            }
            self.columns(&mut |s, chunk| {
                s.env[1].clear();
                s.step(1, chunk)?;
                s.start_sums(chunk.vectors)?;
                s.rows(&mut |s| {
                    s.env[2].clear();
                    s.step(2, chunk)
                })?;
                s.finish_columns(chunk)
            })
        } else {
            self.rows(&mut |s| {
                s.env[1].clear();
                s.step(1, &whole)?;
                s.start_sums(s.unroll)?;
                s.columns(&mut |s, chunk| {
                    s.env[2].clear();
                    s.step(2, chunk)
                })?;
                s.finish_row()
            })
        }
    }

    /// The mask of the last vector, once for all.
    fn start_tail(&mut self) -> Option<()> {
        let lanes = self.lanes();
        let count = match self.f.cols {
            _ if lanes == 1 => return Some(()),
            Count::Static(n) if n % lanes == 0 => return Some(()),
            Count::Static(n) => self.b.index(n % lanes),
            Count::Word(w, _) => {
                let (n, lanes) = (self.word(w)?, self.b.index(lanes));
                self.b.inst(Do::Binary(BinaryOp::Rem), &[n, lanes])
            }
        };
        let ty = self.b.vector(Elem::Bool);
        let mask = self.b.typed(Do::LanesBelow, &[count], ty);
        self.tail = Some(Lanes::Some { mask, count });
        Some(())
    }

    /// What changes from iteration to iteration of a loop.
    fn changing(&mut self, counter: Counter) -> Vec<&mut Operand> {
        let mut all = Vec::new();
        match counter {
            Counter::Rows => {
                all.extend(self.row.iter_mut());
                let accesses = &self.f.accesses;
                let moves =
                    |i: &Inst| accesses.get(i).is_some_and(|a| !matches!(a.row, None | Some(Distance::Bytes(0))));
                all.extend(self.pointers.iter_mut().filter(|(i, _)| moves(i)).map(|(_, p)| p));
                all.extend(self.scratch_rows.values_mut());
            }
            Counter::Cols => all.extend(self.col.iter_mut()),
        }
        // The inner loop carries the sums.
        if (counter == Counter::Rows) == self.f.cols_outside {
            all.extend(self.sums.iter_mut().flat_map(|(_, sum)| sum.accumulators()));
        }
        all
    }

    pub(super) fn carried(&mut self, counter: Counter) -> Vec<Operand> {
        self.changing(counter).into_iter().map(|v| *v).collect()
    }

    /// Goes to a block that takes what changes, if an index has reached an end.
    fn leave_if_reached(&mut self, counter: Counter, (n, end): (Operand, Operand), to: Block) {
        let carried = self.carried(counter);
        let condition = self.b.inst(Do::Compare(CmpOp::Ge), &[n, end]);
        let next = self.b.block_for(&[]);
        self.b.branch(condition, (to, &carried), (next, &[]));
        self.b.start(next);
    }

    /// A block that takes what changes, to be started later.
    pub(super) fn after(&mut self, counter: Counter) -> Block {
        let carried = self.carried(counter);
        self.b.block_for(&carried)
    }

    /// Goes on at such a block.
    pub(super) fn join(&mut self, counter: Counter, block: Block) {
        let carried = self.carried(counter);
        self.b.jump(block, &carried);
        self.start(counter, block);
    }

    /// What follows stands in such a block.
    fn start(&mut self, counter: Counter, block: Block) {
        let args = self.b.start(block);
        self.changing(counter).into_iter().zip(args).for_each(|(v, arg)| *v = arg);
    }

    /// A loop while a counter is less than an end, which it reaches in steps; done at least once.
    pub(super) fn repeat(
        &mut self,
        counter: Counter,
        step: i64,
        end: Operand,
        body: &mut dyn FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        let top = self.after(counter);
        self.join(counter, top);
        body(self)?;
        let now = self.counter(counter)?;
        let step = self.b.index(step);
        let next = self.b.add(now, step);
        match counter {
            Counter::Rows => self.row = Some(next),
            Counter::Cols => self.col = Some(next),
        }
        let carried = self.carried(counter);
        let condition = self.b.inst(Do::Compare(CmpOp::Lt), &[next, end]);
        let done = self.b.block_for(&[]);
        self.b.branch(condition, (top, &carried), (done, &[]));
        self.b.start(done);
        Some(())
    }

    fn counter(&self, counter: Counter) -> Option<Operand> {
        match counter {
            Counter::Rows => self.row,
            Counter::Cols => self.col,
        }
    }

    /// The loop over rows.
    fn rows(&mut self, body: &mut dyn FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.each_row(body)?;
        self.row = None;
        self.pointers.clear();
        self.scratch_rows.clear();
        Some(())
    }

    fn each_row(&mut self, body: &mut dyn FnMut(&mut Self) -> Option<()>) -> Option<()> {
        for i in self.f.insts {
            if let Some(access) = self.f.accesses.get(i).copied() {
                let start = self.word(access.start)?;
                self.pointers.push((*i, start));
            }
        }
        let scratch = self.word_of(Word::Scratch)?;
        for pitch in self.f.pitches.clone() {
            self.scratch_rows.insert(pitch, scratch);
        }
        let static_rows = match self.f.rows {
            Count::Static(n) => Some(n),
            Count::Word(..) => None,
        };
        let end = match self.f.rows {
            Count::Static(0) => return Some(()),
            Count::Static(1) => return body(self),
            Count::Static(n) => self.b.index(n),
            Count::Word(w, _) => self.word(w)?,
        };
        let first = self.b.index(0);
        self.row = Some(first);
        if self.pairs && !self.single {
            // While two rows remain.
            let last = match static_rows {
                Some(n) => self.b.index(n - 1),
                None => {
                    let less = self.b.index(-1);
                    self.b.add(end, less)
                }
            };
            let done = self.after(Counter::Rows);
            self.leave_if_reached(Counter::Rows, (first, last), done);
            self.repeat(Counter::Rows, 1, last, &mut |s| {
                s.turn = Turn::First;
                body(s)?;
                s.next_row()?;
                let (row, one) = (s.row?, s.b.index(1));
                s.row = Some(s.b.add(row, one));
                s.turn = Turn::Second;
                body(s)?;
                s.next_row()
            })?;
            self.turn = Turn::Single;
            self.join(Counter::Rows, done);
            if static_rows.is_none_or(|n| n % 2 == 1) {
                let none = self.after(Counter::Rows);
                let row = self.row?;
                self.leave_if_reached(Counter::Rows, (row, end), none);
                body(self)?;
                self.join(Counter::Rows, none);
            }
        } else {
            // There may be none.
            let none = static_rows.is_none().then(|| self.after(Counter::Rows));
            if let Some(none) = none {
                self.leave_if_reached(Counter::Rows, (first, end), none);
            }
            self.repeat(Counter::Rows, 1, end, &mut |s| {
                body(s)?;
                s.next_row()
            })?;
            if let Some(none) = none {
                self.join(Counter::Rows, none);
            }
        }
        Some(())
    }

    /// Moves the addresses of the row on.
    fn next_row(&mut self) -> Option<()> {
        for n in 0..self.pointers.len() {
            let (i, p) = self.pointers[n];
            let step = self.f.accesses.get(&i).and_then(|a| a.row).filter(|d| *d != Distance::Bytes(0));
            if let Some(step) = step {
                let step = self.distance(step)?;
                self.pointers[n].1 = self.b.add(p, step);
            }
        }
        for (pitch, p) in self.scratch_rows.clone() {
            let step = self.b.index(i64::from(pitch));
            let next = self.b.add(p, step);
            self.scratch_rows.insert(pitch, next);
        }
        Some(())
    }

    /// The loop over columns.
    fn columns(&mut self, body: &mut dyn FnMut(&mut Self, &Chunk) -> Option<()>) -> Option<()> {
        let lanes = self.lanes();
        let some = lanes * i64::try_from(self.unroll).ok()?;
        let chunk = |at, offset, vectors| Chunk { at, offset, vectors, lanes: Lanes::All };
        match self.f.cols {
            Count::Static(n) => {
                let (mut groups, mut rest) = (n / some, (n % some) / lanes);
                if groups == 1 && rest == 0 {
                    (groups, rest) = (0, some / lanes);
                }
                if groups > 0 {
                    self.col = Some(self.b.index(0));
                    let end = self.b.index(groups * some);
                    self.in_blocks(some, end, &mut |s| body(s, &chunk(s.col, 0, s.unroll)))?;
                    self.col = None;
                }
                if rest > 0 {
                    body(self, &chunk(None, groups * some, usize::try_from(rest).ok()?))?;
                }
                if let Some(tail) = self.tail {
                    body(self, &Chunk { at: None, offset: n / lanes * lanes, vectors: 1, lanes: tail })?;
                }
            }
            Count::Word(w, most) => {
                let cols = self.word(w)?;
                self.col = Some(self.b.index(0));
                let mut sizes = vec![self.unroll];
                if self.unroll > 1 {
                    sizes.push(1);
                }
                for size in sizes {
                    let step = lanes * i64::try_from(size).ok()?;
                    if step > most {
                        continue;
                    }
                    // While a full step remains.
                    let less = self.b.index(1 - step);
                    let end = self.b.add(cols, less);
                    let done = self.after(Counter::Cols);
                    let c = self.col?;
                    self.leave_if_reached(Counter::Cols, (c, end), done);
                    self.in_blocks(step, end, &mut |s| body(s, &chunk(s.col, 0, size)))?;
                    self.join(Counter::Cols, done);
                }
                if let Some(tail) = self.tail {
                    let done = self.after(Counter::Cols);
                    let c = self.col?;
                    self.leave_if_reached(Counter::Cols, (c, cols), done);
                    body(self, &Chunk { at: self.col, offset: 0, vectors: 1, lanes: tail })?;
                    self.join(Counter::Cols, done);
                }
                self.col = None;
            }
        }
        Some(())
    }

    /// Everything that is done at one depth.
    fn step(&mut self, depth: usize, chunk: &Chunk) -> Option<()> {
        for vector in 0..chunk.vectors {
            self.read_first(depth, chunk, vector)?;
            for i in self.f.insts {
                let data = self.f.body.inst(*i);
                self.b.code_of(Some(*i));
                self.instruction(*i, data, depth, chunk, vector)?;
            }
            self.b.code_of(None);
        }
        Some(())
    }

    /// Reads what lies in scratch: in the loops' heads all that does not change within, in the innermost what the run
    /// overwrites.
    fn read_first(&mut self, depth: usize, chunk: &Chunk, vector: usize) -> Option<()> {
        for i in self.f.insts {
            for v in &self.f.body.inst(*i).operands {
                if self.single && self.f.operand(*v).cols {
                    continue;
                }
                if depth == 0 && matches!(self.f.body.ty(*v), Type::Scalar(_)) {
                    self.operand(*v, depth, chunk, vector)?;
                }
                let Some(t) = self.f.body.ty(*v).tile() else { continue };
                let overwritten = matches!(t.space, Space::L1(offset, _) if self.f.written.contains(&offset));
                if !self.f.made.contains(v)
                    && self.depth(self.f.operand(*v)) == depth
                    && (depth < 2 || overwritten)
                    && self.known(*v, vector).is_none()
                {
                    self.read(*v, t, depth, chunk, vector)?;
                }
            }
        }
        Some(())
    }

    pub(super) fn known(&self, v: Value, vector: usize) -> Option<Operand> {
        let key = (v, if self.f.operand(v).cols { vector } else { 0 });
        self.env.iter().find_map(|e| e.get(&key)).copied()
    }

    pub(super) fn know(&mut self, v: Value, vector: usize, depth: usize, x: Operand) {
        let key = (v, if self.f.operand(v).cols { vector } else { 0 });
        self.env[depth].insert(key, x);
    }

    /// Reads a tile in scratch.
    fn read(&mut self, v: Value, t: &TileType, depth: usize, chunk: &Chunk, vector: usize) -> Option<Operand> {
        let (at, lanes) = self.scratch_place(t, chunk, vector)?;
        // Truth values are masks of 4 bytes there.
        let elem = if t.elem == Elem::Bool { Elem::I32 } else { t.elem };
        let mut x = if self.f.extents(t).cols {
            let ty = self.b.vector(elem);
            self.b.load(elem, &at, lanes.mask(), ty)
        } else {
            self.load_one(elem, &at)
        };
        if t.elem == Elem::Bool {
            x = self.b.inst(Do::MaskOfBits, &[x]);
        }
        self.know(v, vector, depth, x);
        Some(x)
    }

    /// Reads one element into all lanes.
    pub(super) fn load_one(&mut self, elem: Elem, at: &At) -> Operand {
        let computed = elem.computed();
        let x = self.b.load(elem, at, None, routine::Type::Lanes(computed, 1));
        let ty = self.b.vector(computed);
        self.b.typed(Do::Splat, &[x], ty)
    }

    /// Where a vector of a tile in scratch lies, and which of its lanes may be touched.
    pub(super) fn scratch_place(&mut self, t: &TileType, chunk: &Chunk, vector: usize) -> Option<(At, Lanes)> {
        let Space::L1(offset, _) = t.space else { return None };
        let offset = i32::try_from(offset).ok()?;
        let size = u8::try_from(t.element_bytes()).ok()?;
        let varies = self.f.extents(t);
        let scratch = self.word_of(Word::Scratch)?;
        if !varies.cols {
            let at = At::new(scratch).plus(offset);
            let row = self.row.filter(|_| varies.rows);
            return Some((row.map_or(at, |r| at.indexed(r, size)), Lanes::All));
        }
        let start = if varies.rows { *self.scratch_rows.get(&t.pitch())? } else { scratch };
        let at = self.column(At::new(start).plus(offset), chunk, vector, size)?;
        let padded = !t.cols.is_one() && i64::from(t.pitch()) % (i64::from(size) * self.lanes()) == 0;
        Some((at, if padded { Lanes::All } else { chunk.lanes }))
    }

    /// The place of a vector of columns.
    fn column(&self, at: At, chunk: &Chunk, vector: usize, size: u8) -> Option<At> {
        let first = chunk.offset + i64::try_from(vector).ok()? * self.lanes();
        let at = at.plus(i32::try_from(first * i64::from(size)).ok()?);
        Some(match chunk.at {
            Some(c) => at.indexed(c, size),
            None => at,
        })
    }

    /// The same in a buffer.
    pub(super) fn spot(&mut self, i: Inst, access: &Access, chunk: &Chunk, vector: usize) -> Option<Spot> {
        let pointer = match self.pointers.iter().find(|(of, _)| *of == i) {
            Some((_, p)) => *p,
            // Before the loops.
            None => self.word(access.start)?,
        };
        let at = At::new(pointer);
        let step = match access.col {
            Step::Same => return Some(Spot::Unit(at)),
            Step::Unit => {
                let size = u8::try_from(access.elem.size()).ok()?;
                return Some(Spot::Unit(self.column(at, chunk, vector, size)?));
            }
            Step::Apart(step) => self.distance(step)?,
        };
        let first = chunk.offset + i64::try_from(vector).ok()? * self.lanes();
        let first = self.b.index(first);
        let c = match chunk.at {
            Some(c) => self.b.add(c, first),
            None => first,
        };
        let start = self.b.inst(Do::Binary(BinaryOp::Mul), &[c, step]);
        Some(Spot::Apart(self.b.add(pointer, start), step))
    }

    /// An operand of an instruction.
    pub(super) fn operand(&mut self, v: Value, depth: usize, chunk: &Chunk, vector: usize) -> Option<Operand> {
        if let Some(x) = self.known(v, vector) {
            return Some(x);
        }
        match self.f.body.ty(v) {
            Type::Scalar(elem) => {
                let x = self.word_of(Word::Scalar(v))?;
                let ty = self.b.vector(*elem);
                let x = self.b.typed(Do::Splat, &[x], ty);
                self.know(v, 0, depth, x);
                Some(x)
            }
            Type::Tile(t) if matches!(t.space, Space::L1(..)) && !self.f.made.contains(&v) => {
                self.read(v, t, depth, chunk, vector)
            }
            _ => None,
        }
    }
}
