//! Lowering of a `run`: loops over rows and vectors of columns.
//!
//! In: a [`Frame`]. Out: a routine; the loop bodies are in `steps` and `reduce`. There are three
//! depths: before the loops (0), in the outer loop (1), in the inner loop (2); each instruction is
//! placed at the least depth at which its operands are known. The inner loop goes through columns,
//! several vectors at a time, one after another: out-of-order execution overlaps them, and few
//! registers are live. Where rows are reduced, the inner loop instead goes through rows, for a few
//! vectors of columns, and the sums stay in registers. A partial vector of columns is masked.
//!
//! A scratch tile that was written before the run and is overwritten in it is loaded before each
//! overwrite.

use std::collections::BTreeMap;

use super::accumulators::Sum;
use super::frame::{Access, Count, Distance, Frame, Step, Varies};
use super::{Shape, Word};
use crate::scalar::{BinaryOp, CmpOp, UnaryOp};
use crate::shape::Elem;
use crate::ssa::Block;
// Values of the routine, not of the tile IR.
use crate::ssa::Value as Operand;
use crate::tile::{Inst, Op, Space, TileType, Type, Value};
use crate::vector::expand::{self, Expanded};
use crate::vector::routine::{self, Builder, MemoryOperand, Op as Do};
use crate::vector::{Features, library};

/// The active lanes of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lanes {
    /// All.
    All,
    /// The first ones.
    Some {
        /// The active lanes, as a mask.
        mask: Operand,
        /// Number of active lanes, at least 1.
        count: Operand,
    },
}

impl Lanes {
    /// The mask, unless all lanes are active.
    pub(super) fn mask(self) -> Option<Operand> {
        match self {
            Lanes::All => None,
            Lanes::Some { mask, .. } => Some(mask),
        }
    }

    /// The number of active lanes, unless all are.
    pub(super) fn count(self) -> Option<Operand> {
        match self {
            Lanes::All => None,
            Lanes::Some { count, .. } => Some(count),
        }
    }
}

/// Where a vector's elements are stored.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spot {
    /// Contiguous.
    Unit(MemoryOperand),
    /// Address and stride in bytes.
    Apart(Operand, Operand),
}

/// A group of vectors along the columns.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    /// The first column is this index ..
    pub(super) at: Option<Operand>,
    /// .. plus this constant.
    pub(super) offset: i64,
    /// Number of vectors.
    pub(super) vectors: usize,
    /// Active lanes of each vector.
    pub(super) lanes: Lanes,
}

/// Position of the current row in a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowOfPair {
    First,
    Second,
    /// A row that is not part of a pair.
    Single,
}

/// State of lowering a run.
pub(super) struct Lower<'a> {
    pub(super) b: Builder,
    pub(super) f: Frame<'a>,
    pub(super) shape: Shape,
    /// The routine's parameters, one per word of the frame.
    params: Vec<Operand>,
    /// Values known at each depth; values that vary along columns, per vector.
    pub(super) env: [BTreeMap<(Value, usize), Operand>; 3],
    /// The part of each `iota` that does not depend on the position.
    pub(super) starts: BTreeMap<Inst, Operand>,
    /// Accumulators of reductions, in the order of the run.
    pub(super) sums: Vec<(Inst, Sum)>,
    /// Current row and column numbers, where something counts them.
    pub(super) row: Option<Operand>,
    pub(super) col: Option<Operand>,
    /// Address of the current row: per access, in the order of the run, and for scratch per row
    /// stride.
    pointers: Vec<(Inst, Operand)>,
    scratch_rows: BTreeMap<u32, Operand>,
    /// Unroll factor, in vectors.
    pub(super) unroll: usize,
    /// Do rows go in pairs, and which row of the pair is current?
    pub(super) pairs: bool,
    pub(super) row_of_pair: RowOfPair,
    /// Are single-column tiles being written, in a loop of their own?
    pub(super) single: bool,
    /// The active lanes of the last vector, if it is partial.
    pub(super) tail: Option<Lanes>,
}

/// Approximate number of machine instructions of an operation.
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

/// Up to this many instructions per vector, unroll by four.
const CHEAP_OPS: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    Rows,
    Cols,
}

impl<'a> Lower<'a> {
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
            row_of_pair: RowOfPair::Single,
            single: false,
            tail: None,
        };
        lower.unroll = lower.vectors_at_a_time();
        // Pairs of rows double the accumulators: with 16 registers there are enough for two
        // vectors.
        let enough = shape.unroll > 1 && (shape.registers >= 32 || lower.unroll <= 2);
        lower.pairs = lower.f.cols_outside && lower.work() <= CHEAP_OPS && enough;
        lower
    }

    /// Approximate number of machine instructions per vector.
    fn work(&self) -> usize {
        self.f.insts.iter().map(|i| cost(&self.f.body.inst(*i).op, self.shape.features)).sum()
    }

    /// Lanes per vector.
    pub(super) fn lanes(&self) -> i64 {
        i64::from(self.shape.lanes)
    }

    /// Unroll factor: four for cheap bodies, two for more expensive ones.
    fn vectors_at_a_time(&self) -> usize {
        let most = usize::try_from(self.f.cols.most() / self.lanes()).unwrap_or(0).max(1);
        let wanted = match self.work() {
            0..=CHEAP_OPS => 4,
            13..=60 => 2,
            _ => 1,
        };
        wanted.min(most).min(self.shape.unroll)
    }

    /// The depth at which a value that varies like this is known.
    pub(super) fn depth(&self, v: Varies) -> usize {
        let (outer, inner) = if self.f.cols_outside { (v.cols, v.rows) } else { (v.rows, v.cols) };
        if inner { 2 } else { usize::from(outer) }
    }

    /// The parameter that holds a word.
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

    /// A distance as an index value.
    pub(super) fn distance(&mut self, d: Distance) -> Option<Operand> {
        match d {
            Distance::Bytes(n) => Some(self.b.index(n)),
            Distance::Word(w) => self.word(w),
        }
    }

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
            // A single-column tile is written even if the run has no columns.
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

    /// Computes the mask of the last vector, once.
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

    /// The loop-carried values.
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

    /// Branches to `to` with the carried values if an index has reached an end.
    fn leave_if_reached(&mut self, counter: Counter, (n, end): (Operand, Operand), to: Block) {
        let carried = self.carried(counter);
        let condition = self.b.inst(Do::Compare(CmpOp::Ge), &[n, end]);
        let next = self.b.block_for(&[]);
        self.b.branch(condition, (to, &carried), (next, &[]));
        self.b.start(next);
    }

    /// A block with the carried values as arguments, to be filled later.
    pub(super) fn after(&mut self, counter: Counter) -> Block {
        let carried = self.carried(counter);
        self.b.block_for(&carried)
    }

    /// Jumps to such a block and continues there.
    pub(super) fn join(&mut self, counter: Counter, block: Block) {
        let carried = self.carried(counter);
        self.b.jump(block, &carried);
        self.start(counter, block);
    }

    /// Continues in such a block.
    fn start(&mut self, counter: Counter, block: Block) {
        let args = self.b.start(block);
        self.changing(counter).into_iter().zip(args).for_each(|(v, arg)| *v = arg);
    }

    /// A loop that runs while a counter is less than `end`, which it reaches exactly; executed at
    /// least once.
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
                s.row_of_pair = RowOfPair::First;
                body(s)?;
                s.next_row()?;
                let (row, one) = (s.row?, s.b.index(1));
                s.row = Some(s.b.add(row, one));
                s.row_of_pair = RowOfPair::Second;
                body(s)?;
                s.next_row()
            })?;
            self.row_of_pair = RowOfPair::Single;
            self.join(Counter::Rows, done);
            if static_rows.is_none_or(|n| n % 2 == 1) {
                let none = self.after(Counter::Rows);
                let row = self.row?;
                self.leave_if_reached(Counter::Rows, (row, end), none);
                body(self)?;
                self.join(Counter::Rows, none);
            }
        } else {
            // The loop may be empty.
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

    /// Advances the row addresses.
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
                    // While a full group of vectors remains.
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

    /// Emits the instructions of one depth.
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

    /// Loads tiles from scratch: loop-invariant tiles in the loop headers, tiles that the run
    /// overwrites in the innermost loop.
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

    /// Loads a tile from scratch.
    fn read(&mut self, v: Value, t: &TileType, depth: usize, chunk: &Chunk, vector: usize) -> Option<Operand> {
        let (at, lanes) = self.scratch_place(t, chunk, vector)?;
        // Truth values are stored as 4-byte masks.
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

    /// Loads one element and broadcasts it.
    pub(super) fn load_one(&mut self, elem: Elem, at: &MemoryOperand) -> Operand {
        let computed = elem.computed();
        let x = self.b.load(elem, at, None, routine::Type::Lanes(computed, 1));
        let ty = self.b.vector(computed);
        self.b.typed(Do::Splat, &[x], ty)
    }

    /// The address of a vector of a scratch tile, and its active lanes.
    pub(super) fn scratch_place(
        &mut self,
        t: &TileType,
        chunk: &Chunk,
        vector: usize,
    ) -> Option<(MemoryOperand, Lanes)> {
        let Space::L1(offset, _) = t.space else { return None };
        let offset = i32::try_from(offset).ok()?;
        let size = u8::try_from(t.element_bytes()).ok()?;
        let varies = self.f.extents(t);
        let scratch = self.word_of(Word::Scratch)?;
        if !varies.cols {
            let at = MemoryOperand::new(scratch).plus(offset);
            let row = self.row.filter(|_| varies.rows);
            return Some((row.map_or(at, |r| at.indexed(r, size)), Lanes::All));
        }
        let start = if varies.rows { *self.scratch_rows.get(&t.pitch())? } else { scratch };
        let at = self.column(MemoryOperand::new(start).plus(offset), chunk, vector, size)?;
        let padded = !t.cols.is_one() && i64::from(t.pitch()) % (i64::from(size) * self.lanes()) == 0;
        Some((at, if padded { Lanes::All } else { chunk.lanes }))
    }

    /// The address of a vector of columns.
    fn column(&self, at: MemoryOperand, chunk: &Chunk, vector: usize, size: u8) -> Option<MemoryOperand> {
        let first = chunk.offset + i64::try_from(vector).ok()? * self.lanes();
        let at = at.plus(i32::try_from(first * i64::from(size)).ok()?);
        Some(match chunk.at {
            Some(c) => at.indexed(c, size),
            None => at,
        })
    }

    /// Where a vector of a buffer is stored.
    pub(super) fn spot(&mut self, i: Inst, access: &Access, chunk: &Chunk, vector: usize) -> Option<Spot> {
        let pointer = match self.pointers.iter().find(|(of, _)| *of == i) {
            Some((_, p)) => *p,
            // Outside of the row loop.
            None => self.word(access.start)?,
        };
        let at = MemoryOperand::new(pointer);
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
