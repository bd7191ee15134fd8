//! Runs: the iteration space of rows and columns divided among the threads of a block.
//!
//! In: a `run`. Out: loops of each thread over its elements, with the operations inside.
//!
//! ```text
//! threads: fast x slow, tid = slow * FAST + fast          FAST, SLOW: powers of two
//! for row = slow; row < rows; row += SLOW                 what changes with the row alone
//!   for col = W * fast; col < cols; col += W * FAST       loads, work, stores, partial results of W neighbours
//! ```
//!
//! W is [`WIDTH`] if some buffer allows vector accesses of that width along the inner axis
//! ([`super::multiples`]), else 1. Unless the number of columns is known to be a multiple of W, the
//! last ones are processed one by one. Buffers that are not dense, or not known to be aligned, are
//! always accessed one by one.
//!
//! The fast axis is the one along which most buffers are contiguous: adjacent threads access
//! adjacent elements. Tiles of the run are registers; tiles in shared memory are loaded where they
//! are used, and results are stored there at the end of an element, so that a result may overwrite
//! an operand.
//!
//! With a reduction, the reduced axis is the inner one ([`super::reduce`]).

use std::collections::{BTreeMap, BTreeSet};

use super::emit::Emit;
use super::kernel::{Code, WARP, offset_of};
use super::lanes::Lane;
use super::mapping::{AXES, Mapping, fast_axis, power_of_two};
use super::multiples::WIDTH;
use super::partial::Accumulator;
use crate::ptx::words::{Compare, Sat};
use crate::ptx::{Op as P, Operand, RegType, Type as PtxType};
use crate::shape::Elem;
use crate::tile::{Extent, Inst, InstData, Op, Pitch, Space, TileType, Type, Value};

/// State of compiling a run.
pub(super) struct Run<'r, 'a> {
    pub(super) code: &'r mut Code<'a>,
    insts: &'r [Inst],
    /// Values defined in the run.
    made: BTreeSet<Value>,
    /// Rows, columns.
    extents: [Extent; 2],
    limits: [Operand; 2],
    pub(super) mapping: Mapping,
    /// The axis of the outer loop.
    pub(super) outer: usize,
    /// Loop depth of each instruction: 0 before the loops, 1 in the outer, 2 in the inner one.
    depths: BTreeMap<Inst, usize>,
    /// Elements computed at each depth; at the inner one, for each of the adjacent elements.
    known: [BTreeMap<Value, Lane>; 2 + WIDTH as usize],
    /// Number of adjacent elements processed together, and the current one.
    width: usize,
    part: usize,
    /// Is the number of elements along the inner axis a multiple of the width?
    is_whole: bool,
    /// Vector accesses.
    wide: BTreeSet<Inst>,
    /// Start addresses of accesses.
    addresses: BTreeMap<Inst, Operand>,
    /// Current row and column.
    pub(super) place: [Operand; 2],
    /// Reductions, with partial results.
    pub(super) accumulators: Vec<Accumulator>,
}

impl Code<'_> {
    /// Compiles a run.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(super) fn run(&mut self, rows: Extent, cols: Extent, insts: &[Inst]) -> Result<(), String> {
        let extents = [rows, cols];
        let limits = [self.extent(rows)?, self.extent(cols)?];
        let fast = if self.rows_by_warp { 1 } else { fast_axis(self.body, extents, insts) };
        let reduced = insts.iter().find_map(|i| match self.body.inst(*i).op {
            Op::Reduce { axis, .. } => Some(axis),
            _ => None,
        });
        let capacity = extents.map(Extent::capacity);
        let outer = 1 - reduced.unwrap_or(fast);
        // Vector accesses are along the axis of adjacent threads.
        let is_wide = |i: &&Inst| outer != fast && self.multiples.is_wide(self.body, self.body.inst(**i), fast);
        let wide: BTreeSet<Inst> = insts.iter().filter(is_wide).copied().collect();
        let width = if wide.is_empty() || capacity[fast] < WIDTH { 1 } else { WIDTH };
        let groups = capacity[fast] / width + i64::from(capacity[fast] % width != 0);
        let mapping = match reduced {
            _ if self.rows_by_warp => Mapping { fast, threads: [self.threads / WARP, WARP] },
            Some(axis) if axis == fast => {
                // Reduce within a warp, unless there are more threads than results.
                let results = power_of_two(capacity[1 - axis]).min(self.threads);
                let most = (self.threads / results).max(WARP.min(self.threads));
                Mapping::new(axis, groups.min(i64::from(most)), self.threads)
            }
            // Adjacent padded rows, and adjacent columns, are in different banks as long as a warp
            // spans at most as many as there are banks.
            _ if self.uses_padded(insts) => Mapping::new(fast, groups.min(i64::from(WARP) / width), self.threads),
            _ => Mapping::new(fast, groups, self.threads),
        };
        let made = insts.iter().filter_map(|i| self.body.inst(*i).result).collect();
        let mut run = Run::new(self, extents, limits, mapping);
        (run.insts, run.made, run.outer) = (insts, made, outer);
        if width > 1 {
            (run.width, run.wide) = (width as usize, wide);
            run.is_whole = run.code.multiples.is_whole(extents[fast]);
        }
        run.find_depths();
        run.make(reduced.is_some())
    }

    /// Does a run read or write tiles with padded rows?
    fn uses_padded(&self, insts: &[Inst]) -> bool {
        let values = insts.iter().flat_map(|i| self.body.inst(*i).operands.iter().chain(&self.body.inst(*i).result));
        let mut tiles = values.filter_map(|v| self.body.ty(*v).tile());
        tiles.any(|t| matches!(t.space, Space::L1(_, Pitch::Padded)))
    }

    /// Compiles a transpose.
    ///
    /// # Errors
    /// As [`Code::run`].
    pub(super) fn transpose(&mut self, data: &InstData) -> Result<(), String> {
        let (Some(x), Some(v)) = (data.operands.first(), data.result) else {
            return Err("`transpose` without an operand".into());
        };
        let (Some(from), Some(to)) = (self.body.ty(*x).tile().cloned(), self.body.ty(v).tile().cloned()) else {
            return Err("an operand of `transpose` is not a tile".into());
        };
        let offsets = (offset_of(&from)?, offset_of(&to)?);
        let limits = [self.extent(to.rows)?, self.extent(to.cols)?];
        let mapping = Mapping::new(1, to.cols.capacity(), self.threads);
        let mut run = Run::new(self, [to.rows, to.cols], limits, mapping);
        run.each_place(&mut |_| Ok(()), &mut |s| {
            let [row, col] = s.place.clone();
            let source = s.code.scratch_address(&from, &[col.clone(), row.clone()]);
            let element = s.code.e.load_shared("x", from.elem, &source, offsets.0);
            let target = s.code.scratch_address(&to, &[row, col]);
            s.code.e.store_shared(&target, offsets.1, &element);
            Ok(())
        })
    }

    /// Address of a tile's element in shared memory, without the tile's offset.
    pub(super) fn scratch_address(&mut self, t: &TileType, place: &[Operand; 2]) -> Operand {
        let mut address = self.shared.clone();
        if !t.rows.is_one() {
            address = self.e.mad32("at", &place[0], t.pitch(), &address);
        }
        if !t.cols.is_one() {
            address = self.e.mad32("at", &place[1], t.element_bytes(), &address);
        }
        address
    }
}

impl Emit {
    /// `address + index * bytes`, with a 32-bit index.
    pub(super) fn advance(&mut self, address: &Operand, index: &Operand, bytes: &Operand) -> Operand {
        match (index, bytes) {
            (_, Operand::Int(0)) => address.clone(),
            (Operand::Reg(_), Operand::Int(n)) if i32::try_from(*n).is_ok() && *n != 0 => {
                let op = P::MadWide { ty: PtxType::S32 };
                self.make("at", op, PtxType::S64, &[index.clone(), bytes.clone(), address.clone()])
            }
            _ => {
                let index = self.widen(index);
                self.mad("at", &index, bytes, address)
            }
        }
    }
}

impl<'r, 'a> Run<'r, 'a> {
    /// A run without instructions: the outer loop is over rows, and elements are processed one at a
    /// time.
    fn new(code: &'r mut Code<'a>, extents: [Extent; 2], limits: [Operand; 2], mapping: Mapping) -> Run<'r, 'a> {
        Run {
            code,
            insts: &[],
            made: BTreeSet::new(),
            extents,
            limits,
            mapping,
            outer: 0,
            depths: BTreeMap::new(),
            known: Default::default(),
            width: 1,
            part: 0,
            is_whole: true,
            wide: BTreeSet::new(),
            addresses: Default::default(),
            place: [Operand::Int(0), Operand::Int(0)],
            accumulators: Vec::new(),
        }
    }
}

impl Run<'_, '_> {
    fn inner(&self) -> usize {
        1 - self.outer
    }

    /// The innermost depth at which a tile's elements vary.
    fn depth_of(&self, t: &TileType) -> usize {
        let varies = [!t.rows.is_one(), !t.cols.is_one()];
        match (varies[self.inner()], varies[self.outer]) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => 0,
        }
    }

    /// The depth at which a tile in shared memory, or a buffer, is read. A tile with an element for
    /// each position is read only by that position's thread, which may also write there.
    fn read_depth(&self, t: &TileType) -> usize {
        let depth = self.depth_of(t);
        let own = [t.rows, t.cols] == self.extents;
        if own || !self.is_filled_within(depth) { 2 } else { depth }
    }

    /// Is the loop inside never empty? Only then may memory be read outside of it.
    fn is_filled_within(&self, depth: usize) -> bool {
        let filled = |axis: usize| matches!(self.extents[axis], Extent::Static(1..));
        filled(self.inner()) && (depth > 0 || filled(self.outer))
    }

    fn find_depths(&mut self) {
        let body = self.code.body;
        let mut of_values: BTreeMap<Value, usize> = BTreeMap::new();
        for i in self.insts {
            let data = body.inst(*i);
            let own = match (&data.op, data.result.and_then(|v| body.ty(v).tile())) {
                // Effects happen in the inner loop, once per element.
                (Op::Store { .. } | Op::Reduce { .. }, _) | (_, None) => 2,
                (Op::Load { .. }, Some(t)) => self.read_depth(t),
                (_, Some(t)) => self.depth_of(t),
            };
            let operands = data.operands.iter().filter_map(|v| {
                let read = body.ty(*v).tile().filter(|_| !self.made.contains(v)).map(|t| self.read_depth(t));
                of_values.get(v).copied().max(read)
            });
            let depth = operands.fold(own, usize::max);
            self.depths.insert(*i, depth);
            of_values.extend(data.result.map(|v| (v, depth)));
        }
    }

    fn make(&mut self, reduces: bool) -> Result<(), String> {
        for i in self.insts {
            let data = self.code.body.inst(*i);
            if let Op::Load { .. } | Op::Store { .. } = data.op {
                let last = data.operands.len() - usize::from(matches!(data.op, Op::Store { .. }));
                let (Some(buffer), indices) = (data.operands.first(), data.operands.get(1..last).unwrap_or_default())
                else {
                    return Err("an access without a buffer".into());
                };
                let address = self.code.address(*buffer, indices)?;
                self.addresses.insert(*i, address);
            }
        }
        self.at_depth(0)?;
        if reduces {
            return self.reduce();
        }
        self.each_place(&mut |s| s.at_depth(1), &mut |s| s.at_depth(2))
    }

    /// Index of this thread along an axis.
    pub(super) fn thread(&mut self, axis: usize) -> Operand {
        let [own, fast] = [self.mapping.threads[axis], self.mapping.threads[self.mapping.fast]];
        let (ty, all) = (PtxType::U32, self.code.threads);
        let tid = self.code.tid.clone();
        match axis == self.mapping.fast {
            _ if own == 1 => Operand::Int(0),
            _ if own == all => tid,
            true => {
                let mask = Operand::Int(i64::from(own) - 1);
                self.code.e.make("fast", P::And { ty: PtxType::B32 }, ty, &[tid, mask])
            }
            false => {
                let bits = Operand::Int(i64::from(fast.trailing_zeros()));
                self.code.e.make("slow", P::Shr { ty }, ty, &[tid, bits])
            }
        }
    }

    /// Loops over this thread's positions: `outside` once per position of the outer axis, `inside`
    /// once per element.
    pub(super) fn each_place(
        &mut self,
        outside: &mut dyn FnMut(&mut Self) -> Result<(), String>,
        inside: &mut dyn FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let first = AXES.map(|axis| self.thread(axis));
        let (outer, inner) = (self.outer, self.inner());
        self.each(outer, &first[outer].clone(), &mut |s| {
            outside(s)?;
            s.each(inner, &first[inner].clone(), inside)
        })
    }

    /// A loop over this thread's positions along an axis.
    pub(super) fn each(
        &mut self,
        axis: usize,
        first: &Operand,
        body: &mut dyn FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let (limit, ty, extent) = (self.limits[axis].clone(), PtxType::S32, self.extents[axis]);
        let depth = if axis == self.outer { 1 } else { 2 };
        // Elements per iteration of all threads, and this thread's start.
        let width = if depth == 2 { self.width } else { 1 } as i64;
        let threads = i64::from(self.mapping.threads[axis]) * width;
        let first = &self.code.e.mul("first", ty, first, &Operand::Int(width));
        if depth == 2 && !self.is_whole && width > 1 {
            return self.each_with_rest(first, threads, body);
        }
        let mut at = |s: &mut Self, place: Operand| {
            s.enter(depth, place);
            body(s)
        };
        if extent == Extent::Static(threads) {
            return at(self, first.clone());
        }
        if extent.capacity() <= threads {
            let done = self.code.e.new_label("none");
            let outside = self.code.e.compare("outside", Compare::Ge, ty, first, &limit);
            self.code.e.jump_if(&outside, false, false, &done);
            at(self, first.clone())?;
            self.code.e.label(&done);
            return Ok(());
        }
        let name = if axis == 0 { "row" } else { "col" };
        let counter = self.code.e.reg(name, RegType::B32);
        let place = Operand::Reg(counter);
        self.code.e.assign(counter, PtxType::B32, first);
        let top = self.code.e.new_label("each");
        let step = [place.clone(), place.clone(), Operand::Int(threads)];
        if let Extent::Static(n) = extent
            && n % threads == 0
        {
            self.code.e.label(&top);
            at(self, place.clone())?;
            self.code.e.push(P::Add { sat: Sat::Wrap, ty }, step);
            let more = self.code.e.compare("more", Compare::Lt, ty, &place, &limit);
            self.code.e.jump_if(&more, false, false, &top);
            return Ok(());
        }
        let done = self.code.e.new_label("done");
        self.code.e.label(&top);
        let outside = self.code.e.compare("outside", Compare::Ge, ty, &place, &limit);
        self.code.e.jump_if(&outside, false, false, &done);
        at(self, place.clone())?;
        self.code.e.push(P::Add { sat: Sat::Wrap, ty }, step);
        self.code.e.push(P::Bra {}, [Operand::Label(top)]);
        self.code.e.label(&done);
        Ok(())
    }

    /// The same along the inner axis, with a remainder loop if the last vector may be incomplete.
    fn each_with_rest(
        &mut self,
        first: &Operand,
        step: i64,
        body: &mut dyn FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let inner = self.inner();
        let (limit, ty, width) = (self.limits[inner].clone(), PtxType::S32, self.width);
        let once = self.extents[inner].capacity() <= step;
        let e = &mut self.code.e;
        let counter = e.reg(if inner == 0 { "row" } else { "col" }, RegType::B32);
        let place = Operand::Reg(counter);
        e.assign(counter, PtxType::B32, first);
        let (top, rest, done) = (e.new_label("each"), e.new_label("rest"), e.new_label("done"));
        if !once {
            e.label(&top);
        }
        let left = e.sub("left", ty, &limit, &place);
        let few = e.compare("few", Compare::Lt, ty, &left, &Operand::Int(width as i64));
        e.jump_if(&few, false, false, &rest);
        self.enter(2, place.clone());
        body(self)?;
        let e = &mut self.code.e;
        if !once {
            e.push(P::Add { sat: Sat::Wrap, ty }, [place.clone(), place.clone(), Operand::Int(step)]);
        }
        e.push(P::Bra {}, [Operand::Label(if once { done.clone() } else { top })]);
        // The remainder is this thread's last. It needs its own counter, which is not a multiple of
        // the width.
        e.label(&rest);
        let again = e.new_label("one");
        let none = e.compare("none", Compare::Ge, ty, &place, &limit);
        e.jump_if(&none, false, false, &done);
        let counter = e.reg(if inner == 0 { "row" } else { "col" }, RegType::B32);
        e.assign(counter, PtxType::B32, &place);
        let place = Operand::Reg(counter);
        e.label(&again);
        self.width = 1;
        self.enter(2, place.clone());
        body(self)?;
        self.width = width;
        let e = &mut self.code.e;
        e.push(P::Add { sat: Sat::Wrap, ty }, [place.clone(), place.clone(), Operand::Int(1)]);
        let more = e.compare("more", Compare::Lt, ty, &place, &limit);
        e.jump_if(&more, false, false, &again);
        e.label(&done);
        Ok(())
    }

    /// Enters a position of the outer axis (depth 1) or of the inner one (2), and forgets the
    /// values of the previous one.
    pub(super) fn enter(&mut self, depth: usize, place: Operand) {
        let axis = if depth == 1 { self.outer } else { self.inner() };
        self.place[axis] = place;
        self.part = 0;
        self.known[depth..].iter_mut().for_each(BTreeMap::clear);
    }

    /// Index into `known` for a depth.
    fn index_of(&self, depth: usize) -> usize {
        if depth == 2 { 2 + self.part } else { depth }
    }

    /// Position of the current element.
    pub(super) fn here(&mut self) -> [Operand; 2] {
        let mut place = self.place.clone();
        if self.part > 0 {
            let inner = self.inner();
            place[inner] = self.code.e.add("next", PtxType::S32, &place[inner], &Operand::Int(self.part as i64));
        }
        place
    }

    /// Calls `f` for each of the adjacent elements.
    fn each_part<T>(&mut self, f: &mut dyn FnMut(&mut Self) -> Result<T, String>) -> Result<Vec<T>, String> {
        let mut out = Vec::new();
        for part in 0..self.width {
            self.part = part;
            out.push(f(self)?);
        }
        self.part = 0;
        Ok(out)
    }

    /// Emits the instructions of one depth.
    pub(super) fn at_depth(&mut self, depth: usize) -> Result<(), String> {
        let body = self.code.body;
        if depth == 0 {
            self.known = Default::default();
        }
        if depth < 2 {
            // Tiles in shared memory that do not vary further inside.
            for i in self.insts {
                for v in &body.inst(*i).operands {
                    if let Type::Tile(t) = body.ty(*v)
                        && !self.made.contains(v)
                        && self.read_depth(t) == depth
                    {
                        self.operand(*v, depth)?;
                    }
                }
            }
        }
        for i in self.insts {
            if self.depths.get(i) == Some(&depth) {
                self.code.comment(*i, 1);
                match depth {
                    2 if self.width > 1 && self.wide.contains(i) => self.move_together(*i)?,
                    2 => drop(self.each_part(&mut |s| s.instruction(*i, depth))?),
                    _ => self.instruction(*i, depth)?,
                }
            }
        }
        if depth == 2 {
            self.leave()?;
        }
        Ok(())
    }

    /// A vector load or store.
    fn move_together(&mut self, i: Inst) -> Result<(), String> {
        let body = self.code.body;
        let data = body.inst(i);
        match &data.op {
            Op::Load { rows, cols } => {
                let name = data.result.map_or(String::new(), |v| self.code.name(v));
                let (address, elem, read_only) = self.access(i, data, [*rows, *cols])?;
                let lanes = self.code.e.load_wide(&name, elem, &address, read_only, self.width, None);
                for (known, lane) in self.known[2..].iter_mut().zip(lanes) {
                    known.extend(data.result.map(|v| (v, lane)));
                }
            }
            Op::Store { rows, cols } => {
                let x = *data.operands.last().ok_or("a store without a value")?;
                let (address, elem, _) = self.access(i, data, [*rows, *cols])?;
                let xs = self.each_part(&mut |s| s.operand(x, 2))?;
                self.code.e.store_wide(elem, &address, &xs);
            }
            op => return Err(format!("{} moves nothing", op.info().name)),
        }
        Ok(())
    }

    fn instruction(&mut self, i: Inst, depth: usize) -> Result<(), String> {
        let body = self.code.body;
        let data = body.inst(i);
        let name = data.result.map_or(String::new(), |v| self.code.name(v));
        let made = match &data.op {
            Op::Load { rows, cols } => {
                let (address, elem, read_only) = self.access(i, data, [*rows, *cols])?;
                self.code.e.load(&name, elem, &address, read_only, None)
            }
            Op::Store { rows, cols } => {
                let (address, elem, _) = self.access(i, data, [*rows, *cols])?;
                let x = self.operand(*data.operands.last().ok_or("a store without a value")?, depth)?;
                self.code.e.store(elem, &address, &x);
                return Ok(());
            }
            Op::Reduce { .. } => return self.accumulate(i, depth),
            Op::Iota { axis } => {
                let start = self.code.index(*data.operands.first().ok_or("a counter without a start")?)?;
                let elem = data.result.and_then(|v| body.ty(v).elem()).unwrap_or(Elem::I32);
                let place = self.here()[*axis].clone();
                let value = if elem == Elem::I64 {
                    let place = self.code.e.widen(&place);
                    self.code.e.add(&name, PtxType::S64, &start, &place)
                } else {
                    let start = self.code.e.low("start", &start);
                    self.code.e.add(&name, PtxType::S32, &start, &place)
                };
                Lane { value, elem }
            }
            _ if self.code.is_elementwise(data) => {
                let xs = data.operands.iter().map(|v| self.operand(*v, depth)).collect::<Result<Vec<_>, String>>()?;
                let ty = data.result.map(|v| body.ty(v).clone()).ok_or("an operation without a result")?;
                self.code.lanewise(&name, data, &xs, &ty)?
            }
            op => return Err(format!("{} in a run", op.info().name)),
        };
        if let Some(v) = data.result {
            let at = self.index_of(depth);
            self.known[at].insert(v, made);
        }
        Ok(())
    }

    /// An element of an operand at the current position.
    pub(super) fn operand(&mut self, v: Value, depth: usize) -> Result<Lane, String> {
        let part = self.index_of(2);
        if let Some(x) = [0, 1, part].into_iter().find_map(|n| self.known[n].get(&v)) {
            return Ok(x.clone());
        }
        let body = self.code.body;
        match body.ty(v) {
            Type::Scalar(_) => self.code.scalar(v),
            Type::Tile(t) if !self.made.contains(&v) => {
                let name = self.code.name(v);
                if depth == 2 && self.width > 1 && self.lies_together(t) {
                    let address = self.code.scratch_address(t, &self.place.clone());
                    let lanes = self.code.e.load_shared_wide(&name, t.elem, &address, offset_of(t)?, self.width);
                    for (known, lane) in self.known[2..].iter_mut().zip(&lanes) {
                        known.insert(v, lane.clone());
                    }
                    return lanes.get(self.part).cloned().ok_or_else(|| format!("{v} has too few elements"));
                }
                let place = self.here();
                let address = self.code.scratch_address(t, &place);
                let x = self.code.e.load_shared(&name, t.elem, &address, offset_of(t)?);
                let at = self.index_of(depth);
                self.known[at].insert(v, x.clone());
                Ok(x)
            }
            _ => Err(format!("{v} is used before its definition")),
        }
    }

    /// Are adjacent elements contiguous in shared memory? Rows are aligned to 64 bytes.
    fn lies_together(&self, t: &TileType) -> bool {
        self.inner() == 1 && !t.cols.is_one() && t.pitch().is_multiple_of(16)
    }

    /// Address of an access at the current position, element type, is it never written?
    fn access(&mut self, i: Inst, data: &InstData, along: [Option<usize>; 2]) -> Result<(Operand, Elem, bool), String> {
        let buffer = *data.operands.first().ok_or("an access without a buffer")?;
        let (_, strides, elem, read_only) = self.code.buffer(buffer)?;
        let ty = match data.op {
            Op::Store { .. } => data.operands.last().copied(),
            _ => data.result,
        };
        let t = ty.and_then(|v| self.code.body.ty(v).tile().cloned()).ok_or("an access without a tile")?;
        let varies = [!t.rows.is_one(), !t.cols.is_one()];
        let mut address = self.addresses.get(&i).cloned().ok_or("an access without an address")?;
        let place = self.here();
        for axis in [self.outer, self.inner()] {
            if let Some(stride) = along[axis].filter(|_| varies[axis]).and_then(|a| strides.get(a)) {
                let bytes = self.code.stride_bytes(stride, elem);
                address = self.code.e.advance(&address, &place[axis], &bytes);
            }
        }
        Ok((address, elem, read_only))
    }

    /// Stores the run's results to shared memory. A tile that does not vary along an axis is stored
    /// at index 0 of that axis.
    fn leave(&mut self) -> Result<(), String> {
        let body = self.code.body;
        for i in self.insts {
            let data = body.inst(*i);
            let Some((v, t)) = data.result.and_then(|v| Some((v, body.ty(v).tile()?))) else { continue };
            if !matches!(t.space, Space::L1(..)) || matches!(data.op, Op::Reduce { .. }) {
                continue;
            }
            // A tile that does not vary along the inner axis is the same for all adjacent elements;
            // only the first can be at index 0.
            let parts = if self.lies_together(t) { self.width } else { 1 };
            let xs = match [t.rows, t.cols][self.inner()].is_one() {
                true => vec![self.operand(v, 2)?],
                false => self.each_part(&mut |s| s.operand(v, 2))?,
            };
            let mut first = None;
            for (axis, one) in [t.rows.is_one(), t.cols.is_one()].into_iter().enumerate() {
                if one && !self.extents[axis].is_one() {
                    let place = self.place[axis].clone();
                    let begins = self.code.e.compare("first", Compare::Eq, PtxType::S32, &place, &Operand::Int(0));
                    first = self.code.e.both(first, Some(begins));
                }
            }
            let skip = self.code.e.new_label("skip");
            if let Some(p) = &first {
                self.code.e.jump_if(p, true, false, &skip);
            }
            if parts > 1 {
                let address = self.code.scratch_address(t, &self.place.clone());
                self.code.e.store_shared_wide(&address, offset_of(t)?, &xs);
            } else {
                for (part, x) in xs.iter().enumerate() {
                    self.part = part;
                    let place = self.here();
                    let address = self.code.scratch_address(t, &place);
                    self.code.e.store_shared(&address, offset_of(t)?, x);
                }
                self.part = 0;
            }
            if first.is_some() {
                self.code.e.label(&skip);
            }
        }
        Ok(())
    }

    /// The instructions of the run.
    pub(super) fn insts(&self) -> &[Inst] {
        self.insts
    }

    /// Capacity and actual extent of an axis.
    pub(super) fn axis(&self, axis: usize) -> (Extent, Operand) {
        (self.extents[axis], self.limits[axis].clone())
    }
}
