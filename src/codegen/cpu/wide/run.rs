//! Instruction selection of a `run`: loops over rows and vectors of columns.
//!
//! In: a [`Frame`]. Out: a function over virtual registers; what is done in the loops is in `steps`. Three depths: before the loops (0), in the outer loop (1), in
//! the inner loop (2); each instruction stands at the least depth at which its operands are known. The inner loop goes
//! through columns, several vectors at a time, one vector's work after another's: the processor overlaps them, and few
//! registers are live. Where rows are reduced, it is the inner loop that goes through rows, for a few vectors of columns,
//! and the sums stay in registers.
//!
//! What lies in scratch from before the run and is overwritten in it is read first at each place.
//!
//! Declined are `i64`, powers of integers, stores along an axis that repeats, distances in memory of 2^31 bytes and more, and a run
//! that reduces along both axes.

use std::collections::BTreeMap;

use super::super::math::features;
use super::access::{Distance, Lanes, Spot};
use super::frame::{Access, Count, Frame, Step, Varies};
use super::machine::{Block, Class, Constant, Machine, Mem, Op as Do, Operand, Reg, When};
use super::reduce::Sum;
use super::{Declined, Leaf, Word};
use crate::scalar::{BinaryOp, CmpOp, UnaryOp};
use crate::shape::Elem;
use crate::tile::{Body, Cpu, Extent, Feature, Inst, Op, Space, TileType, Type, Value, Width};
use crate::vector::expand::Expanded;
use crate::vector::library;

/// Some vectors of columns.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    /// The first column is this register's value ..
    pub(super) at: Option<Reg>,
    /// .. and so many further.
    pub(super) offset: i64,
    /// How many vectors.
    pub(super) vectors: usize,
    /// How many lanes of each.
    pub(super) lanes: Lanes,
}

/// Which row is being emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Of two rows the first.
    First,
    /// Of two rows the second.
    Second,
    /// One by itself.
    Single,
}

/// A run being selected.
pub(super) struct Select<'a> {
    pub(super) m: Machine,
    pub(super) f: Frame<'a>,
    pub(super) scratch: usize,
    /// What is known at each depth; for what varies along columns, by vector.
    pub(super) env: [BTreeMap<(Value, usize), Reg>; 3],
    /// `iota` without the place: what it starts from.
    pub(super) starts: BTreeMap<Inst, Reg>,
    /// Accumulators of reductions.
    pub(super) sums: BTreeMap<Inst, Sum>,
    /// Number of the row, and of the column where these are counted.
    pub(super) row: Option<Reg>,
    col: Option<Reg>,
    /// Address of the row: of accesses, and of scratch by the distance of its rows.
    pub(super) pointers: BTreeMap<Inst, Reg>,
    pub(super) scratch_rows: BTreeMap<u32, Reg>,
    pub(super) scratch_start: Reg,
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

/// The leaf of a run, or why it has none.
pub(super) fn select(level: Cpu, body: &Body, rows: Extent, cols: Extent, insts: &[Inst]) -> Result<Leaf, Declined> {
    let Some(mut f) = Frame::new(body, rows, cols, insts) else { return Err(no_frame(body, insts)) };
    let scratch = f.word(Word::Scratch);
    let mut m = Machine::new(level.width());
    m.shortens = level.has(Feature::Bf16);
    let scratch_start = m.make(Class::General, Do::Mov, vec![Mem::word(scratch).into()]);
    let mut s = Select {
        m,
        f,
        scratch,
        env: Default::default(),
        starts: BTreeMap::new(),
        sums: BTreeMap::new(),
        row: None,
        col: None,
        pointers: BTreeMap::new(),
        scratch_rows: BTreeMap::new(),
        scratch_start,
        unroll: 1,
        pairs: false,
        turn: Turn::Single,
        single: false,
        tail: None,
    };
    s.unroll = s.vectors_at_a_time();
    // Both rows of a pair need registers: at AVX2 there are enough for two vectors.
    s.pairs = s.f.cols_outside && s.work() <= LITTLE && (s.m.wide() || s.unroll <= 2);
    let done = s.go();
    let Select { mut m, f, .. } = s;
    if let Some(message) = m.wrong.take() {
        return Err(Declined::Wrong(message));
    }
    if done.is_none() {
        return Err(declined(body, &m, insts));
    }
    let level = if m.uses(Do::Shorten) { level } else { level.vectors() };
    let wrong = |what: &str| Declined::Wrong(what.to_string());
    let allocated = super::allocate::allocate(&m.finish()).ok_or_else(|| wrong("a leaf without registers"))?;
    let (code, places) = super::encode::encode(&allocated).ok_or_else(|| wrong("a leaf that has no encoding"))?;
    Ok(Leaf { name: format!("run.{}", level.name()), code, places, words: f.words })
}

/// Why a run has no frame.
fn no_frame(body: &Body, insts: &[Inst]) -> Declined {
    let is_long = |i: &&Inst| {
        let data = body.inst(**i);
        data.operands.iter().chain(&data.result).any(|v| body.ty(*v).elem() == Some(Elem::I64))
    };
    // One that stands in the program, where there is such.
    if let Some(i) = insts.iter().filter(is_long).min_by_key(|i| body.inst(**i).loc.line == 0) {
        return Declined::Form(*i, format!("`{}` of i64", body.inst(*i).op.info().name));
    }
    let accesses = |i: &&Inst| matches!(body.inst(**i).op, Op::Load { .. } | Op::Store { .. });
    match insts.iter().find(accesses).or(insts.first()) {
        Some(i) => Declined::Form(*i, "loops over both axes, or a store that repeats".into()),
        None => Declined::Wrong("a run of nothing".into()),
    }
}

/// What was being selected when it was declined.
fn declined(body: &Body, m: &Machine, insts: &[Inst]) -> Declined {
    let Some(i) = m.origin().or(insts.first().copied()) else { return Declined::Wrong("a run of nothing".into()) };
    let data = body.inst(i);
    let elem = data.result.and_then(|v| body.ty(v).elem());
    let elem = elem.map_or(String::new(), |elem| format!(" of {elem}"));
    Declined::Form(i, format!("`{}`{elem}", data.op.info().name))
}

/// About how many machine instructions an operation is.
fn cost(op: &Op, width: Width) -> usize {
    match op {
        Op::Unary(UnaryOp::Exp) => 14,
        Op::Unary(UnaryOp::Exp2) => 8,
        Op::Unary(UnaryOp::Tanh | UnaryOp::Sigmoid | UnaryOp::Silu | UnaryOp::Gelu | UnaryOp::GeluTanh) => 25,
        Op::Unary(UnaryOp::Erf) => 45,
        Op::Unary(UnaryOp::Sin | UnaryOp::Cos) => 140,
        Op::Unary(op) => {
            library::unary(*op).and_then(|name| library::expanded(name, features(width)).ok()).map_or(1, Expanded::size)
        }
        Op::Binary(BinaryOp::Pow | BinaryOp::Rem) => 150,
        Op::Narrow { .. } => 6,
        Op::Full | Op::Copy => 0,
        _ => 1,
    }
}

/// What is little work for each vector.
const LITTLE: usize = 12;

impl Select<'_> {
    /// About how many machine instructions there are for each vector.
    fn work(&self) -> usize {
        let width = self.m.width();
        self.f.insts.iter().map(|i| cost(&self.f.body.inst(*i).op, width)).sum()
    }

    /// Four vectors where little is done with each, two where more is.
    fn vectors_at_a_time(&self) -> usize {
        let most = usize::try_from(self.f.cols.most() / self.m.lanes()).unwrap_or(0).max(1);
        let wanted = match self.work() {
            0..=LITTLE => 4,
            13..=60 => 2,
            _ => 1,
        };
        wanted.min(most)
    }

    /// The depth at which something is known.
    pub(super) fn depth(&self, v: Varies) -> usize {
        let (outer, inner) = if self.f.cols_outside { (v.cols, v.rows) } else { (v.rows, v.cols) };
        if inner { 2 } else { usize::from(outer) }
    }

    fn go(&mut self) -> Option<()> {
        if self.f.rows == Count::Static(0) && !self.f.cols_outside
            || self.f.cols == Count::Static(0) && self.f.cols_outside
        {
            return Some(());
        }
        self.start_tail();
        self.start_iotas()?;
        let whole = Chunk { at: None, offset: 0, vectors: 1, lanes: Lanes::All };
        self.step(0, &whole)?;
        if self.f.cols_outside {
            // What has a single column is there even if the run has none.
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
    fn start_tail(&mut self) {
        let lanes = self.m.lanes();
        let count = match self.f.cols {
            Count::Static(n) if n % lanes == 0 => return,
            Count::Static(n) => self.m.number(i32::try_from(n % lanes).unwrap_or(0)),
            Count::Word(w, _) => {
                let n = self.m.make(Class::General, Do::Mov, vec![Mem::word(w).into()]);
                self.m.tied(Do::AndImm, n, vec![Operand::Imm(i32::try_from(lanes - 1).unwrap_or(0))])
            }
        };
        let n = self.m.spread(count);
        let lane = self.m.constant(Constant::Count);
        let Some(mask) = self.m.compare(CmpOp::Gt, Elem::I32, n, lane) else { return };
        self.tail = Some(Lanes::Some { mask, count });
    }

    /// What changes from turn to turn of the loops around what is being emitted.
    fn changing(&mut self) -> impl Iterator<Item = &mut Reg> {
        let sums = self.sums.values_mut().flat_map(Sum::accumulators);
        let counters = self.row.iter_mut().chain(&mut self.col);
        counters.chain(self.pointers.values_mut()).chain(self.scratch_rows.values_mut()).chain(sums)
    }

    fn carried(&mut self) -> Vec<Reg> {
        self.changing().map(|r| *r).collect()
    }

    /// From here on it has these values.
    fn carry(&mut self, values: Vec<Reg>) {
        self.changing().zip(values).for_each(|(r, value)| *r = value);
    }

    /// Goes to a block that takes what changes, if the comparison holds.
    fn leave_if(&mut self, condition: (Reg, When, Operand), to: Block) {
        let carried = self.carried();
        self.m.leave_if(condition, to, &carried);
    }

    /// A block that takes what changes, to be started later.
    fn after(&mut self) -> Block {
        let carried = self.carried();
        self.m.block_for(&carried)
    }

    /// Goes on at such a block.
    fn join(&mut self, block: Block) {
        let carried = self.carried();
        let params = self.m.join(block, &carried);
        self.carry(params);
    }

    /// A loop while a counter is less than an end, which it reaches in steps; done at least once.
    fn repeat(
        &mut self,
        counter: fn(&mut Self) -> &mut Option<Reg>,
        step: i64,
        end: Operand,
        body: &mut dyn FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        let carried = self.carried();
        let (top, params) = self.m.begin_loop(&carried);
        self.carry(params);
        body(self)?;
        let i = (*counter(self))?;
        let next = self.m.tied(Do::PlusImm, i, vec![Operand::Imm(i32::try_from(step).ok()?)]);
        *counter(self) = Some(next);
        let carried = self.carried();
        self.m.end_loop(top, (next, When::Less, end), &carried);
        Some(())
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
        let insts = self.f.insts;
        for i in insts {
            if let Some(access) = self.f.accesses.get(i).copied() {
                let start = Mem::word(access.start).into();
                let pointer = self.m.make(Class::General, Do::Mov, vec![start]);
                self.pointers.insert(*i, pointer);
            }
        }
        for pitch in self.f.pitches.clone() {
            let start = Mem::word(self.scratch).into();
            let pointer = self.m.make(Class::General, Do::Mov, vec![start]);
            self.scratch_rows.insert(pitch, pointer);
        }
        let end = match self.f.rows {
            Count::Static(0) => return Some(()),
            Count::Static(1) => return body(self),
            Count::Static(n) => Operand::Imm(i32::try_from(n).ok()?),
            Count::Word(w, _) => Mem::word(w).into(),
        };
        let first = self.m.number(0);
        self.row = Some(first);
        let static_rows = match self.f.rows {
            Count::Static(n) => Some(n),
            Count::Word(..) => None,
        };
        if self.pairs && !self.single {
            // As long as two rows are left.
            let last = match static_rows {
                Some(n) => Operand::Imm(i32::try_from(n - 1).ok()?),
                None => {
                    let last = self.m.make(Class::General, Do::Mov, vec![end]);
                    self.m.tied(Do::PlusImm, last, vec![Operand::Imm(-1)]).into()
                }
            };
            let done = self.after();
            self.leave_if((first, When::GreaterEqual, last), done);
            self.repeat(Self::row, 1, last, &mut |s| {
                s.turn = Turn::First;
                body(s)?;
                s.next_row()?;
                let row = s.row?;
                s.row = Some(s.m.tied(Do::PlusImm, row, vec![Operand::Imm(1)]));
                s.turn = Turn::Second;
                body(s)?;
                s.next_row()
            })?;
            self.turn = Turn::Single;
            self.join(done);
            if static_rows.is_none_or(|n| n % 2 == 1) {
                let none = self.after();
                let row = self.row?;
                self.leave_if((row, When::GreaterEqual, end), none);
                body(self)?;
                self.join(none);
            }
        } else {
            let none = self.after();
            if static_rows.is_none() {
                self.leave_if((first, When::GreaterEqual, end), none);
            }
            self.repeat(Self::row, 1, end, &mut |s| {
                body(s)?;
                s.next_row()
            })?;
            self.join(none);
        }
        Some(())
    }

    fn row(&mut self) -> &mut Option<Reg> {
        &mut self.row
    }

    fn col(&mut self) -> &mut Option<Reg> {
        &mut self.col
    }

    /// Moves the addresses of the row on.
    fn next_row(&mut self) -> Option<()> {
        for i in self.f.insts {
            if let (Some(p), Some(Access { row: Some(step), .. })) = (self.pointers.get_mut(i), self.f.accesses.get(i))
            {
                *p = self.m.advance(*p, *step);
            }
        }
        for (pitch, p) in &mut self.scratch_rows {
            *p = self.m.advance(*p, Distance::Bytes(i32::try_from(*pitch).ok()?));
        }
        Some(())
    }

    /// The loop over columns.
    fn columns(&mut self, body: &mut dyn FnMut(&mut Self, &Chunk) -> Option<()>) -> Option<()> {
        let lanes = self.m.lanes();
        let some = lanes * i64::try_from(self.unroll).ok()?;
        let chunk = |at, offset, vectors| Chunk { at, offset, vectors, lanes: Lanes::All };
        match self.f.cols {
            Count::Static(n) => {
                let (mut groups, mut rest) = (n / some, (n % some) / lanes);
                if groups == 1 && rest == 0 {
                    (groups, rest) = (0, some / lanes);
                }
                if groups > 0 {
                    self.col = Some(self.m.number(0));
                    let end = Operand::Imm(i32::try_from(groups * some).ok()?);
                    self.repeat(Self::col, some, end, &mut |s| body(s, &chunk(s.col, 0, s.unroll)))?;
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
                self.col = Some(self.m.number(0));
                let mut sizes = vec![self.unroll];
                if self.unroll > 1 {
                    sizes.push(1);
                }
                for size in sizes {
                    let step = lanes * i64::try_from(size).ok()?;
                    if step > most {
                        continue;
                    }
                    // As long as a whole step is left.
                    let end = self.m.make(Class::General, Do::Mov, vec![Mem::word(w).into()]);
                    let less = Operand::Imm(i32::try_from(1 - step).ok()?);
                    let end = self.m.tied(Do::PlusImm, end, vec![less]).into();
                    let done = self.after();
                    let c = self.col?;
                    self.leave_if((c, When::GreaterEqual, end), done);
                    self.repeat(Self::col, step, end, &mut |s| body(s, &chunk(s.col, 0, size)))?;
                    self.join(done);
                }
                let done = self.after();
                let c = self.col?;
                self.leave_if((c, When::GreaterEqual, Mem::word(w).into()), done);
                let tail = self.tail?;
                body(self, &Chunk { at: self.col, offset: 0, vectors: 1, lanes: tail })?;
                self.join(done);
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
                self.m.code_of(Some(*i));
                self.instruction(*i, data, depth, chunk, vector)?;
            }
            self.m.code_of(None);
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
                let overwritten = matches!(t.space, Space::L1(offset) if self.f.written.contains(&offset));
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

    pub(super) fn known(&self, v: Value, vector: usize) -> Option<Reg> {
        let key = (v, if self.f.operand(v).cols { vector } else { 0 });
        self.env.iter().find_map(|e| e.get(&key)).copied()
    }

    pub(super) fn know(&mut self, v: Value, vector: usize, depth: usize, x: Reg) {
        let key = (v, if self.f.operand(v).cols { vector } else { 0 });
        self.env[depth].insert(key, x);
    }

    /// Reads a tile in scratch.
    fn read(&mut self, v: Value, t: &TileType, depth: usize, chunk: &Chunk, vector: usize) -> Option<Reg> {
        let (place, lanes) = self.scratch_place(t, chunk, vector)?;
        let x = if self.f.extents(t).cols {
            self.m.load_scratch(t.elem, place, lanes)?
        } else {
            self.m.load_scratch_same(t.elem, place)
        };
        self.know(v, vector, depth, x);
        Some(x)
    }

    /// Where a vector of a tile in scratch lies, and which of its lanes may be touched.
    pub(super) fn scratch_place(&self, t: &TileType, chunk: &Chunk, vector: usize) -> Option<(Mem, Lanes)> {
        let Space::L1(offset) = t.space else { return None };
        let offset = i32::try_from(offset).ok()?;
        let varies = self.f.extents(t);
        if !varies.cols {
            let at = Mem::at(self.scratch_start).plus(offset);
            let row = self.row.filter(|_| varies.rows);
            return Some((row.map_or(at, |r| at.indexed(r, 4)), Lanes::All));
        }
        let start = if varies.rows { *self.scratch_rows.get(&t.pitch())? } else { self.scratch_start };
        let at = self.column(Mem::at(start).plus(offset), chunk, vector, 4)?;
        let padded = !t.cols.is_one() && i64::from(t.pitch()) % (4 * self.m.lanes()) == 0;
        Some((at, if padded { Lanes::All } else { chunk.lanes }))
    }

    /// The place of a vector of columns.
    fn column(&self, m: Mem, chunk: &Chunk, vector: usize, size: u8) -> Option<Mem> {
        let first = chunk.offset + i64::try_from(vector).ok()? * self.m.lanes();
        let m = m.plus(i32::try_from(first * i64::from(size)).ok()?);
        Some(match chunk.at {
            Some(c) => m.indexed(c, size),
            None => m,
        })
    }

    /// The same in a buffer.
    pub(super) fn spot(&mut self, i: Inst, access: &Access, chunk: &Chunk, vector: usize) -> Option<Spot> {
        let pointer = match self.pointers.get(&i) {
            Some(p) => *p,
            // Before the loops.
            None => self.m.make(Class::General, Do::Mov, vec![Mem::word(access.start).into()]),
        };
        let at = Mem::at(pointer);
        let step = match access.col {
            Step::Same => return Some(Spot::Unit(at)),
            Step::Unit => {
                let size = u8::try_from(access.elem.size()).ok()?;
                return Some(Spot::Unit(self.column(at, chunk, vector, size)?));
            }
            Step::Apart(step) => step,
        };
        let first = chunk.offset + i64::try_from(vector).ok()? * self.m.lanes();
        let first = Operand::Imm(i32::try_from(first).ok()?);
        let c = match chunk.at {
            Some(c) => self.m.tied(Do::PlusImm, c, vec![first]),
            None => self.m.make(Class::General, Do::MovImm, vec![first]),
        };
        match step {
            Distance::Bytes(n) => {
                let distance = vec![c.into(), Operand::Imm(n)];
                let start = self.m.make(Class::General, Do::TimesImm, distance);
                let start = self.m.tied(Do::Plus, start, vec![pointer.into()]);
                Some(Spot::Apart(start, step))
            }
            Distance::Word(w) => {
                let start = self.m.tied(Do::Times, c, vec![Mem::word(w).into()]);
                let start = self.m.tied(Do::Plus, start, vec![pointer.into()]);
                Some(Spot::Apart(start, step))
            }
        }
    }

    /// An operand of an instruction.
    pub(super) fn operand(&mut self, v: Value, depth: usize, chunk: &Chunk, vector: usize) -> Option<Reg> {
        if let Some(x) = self.known(v, vector) {
            return Some(x);
        }
        match self.f.body.ty(v) {
            Type::Scalar(elem) => {
                let w = self.f.word(Word::Scalar(v));
                let x = self.m.vector(Do::Spread, vec![Mem::word(w).into()]);
                let x = if *elem == Elem::Bool { self.m.not_zero(x) } else { x };
                self.know(v, 0, depth, x);
                Some(x)
            }
            Type::Tile(t) if matches!(t.space, Space::L1(_)) && !self.f.made.contains(&v) => {
                self.read(v, t, depth, chunk, vector)
            }
            _ => None,
        }
    }
}
