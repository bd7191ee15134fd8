//! Runs: the iteration space of rows and columns divided among the threads of a block, one element at a time.
//!
//! In: a `run`. Out: loops of each thread over its elements, and what is done at an element.
//!
//! ```text
//! threads: fast x slow, tid = slow * FAST + fast          FAST, SLOW: powers of two
//! for row = slow; row < rows; row += SLOW                 what changes with the row alone
//!   for col = fast; col < cols; col += FAST               loads, work, stores, partial results
//! ```
//!
//! The fast axis is that along which most of the buffers lie side by side: neighbouring threads access neighbouring elements. Tiles of
//! the run are registers; what lies in shared memory from before is read where it is used, and what the run leaves there is written at
//! the end of an element, so that a result may lie over an operand.
//!
//! A run that reduces has the axis that stays outside and the reduced one inside ([`super::reduce`]).

use std::collections::{BTreeMap, BTreeSet};

use super::emit::Emit;
use super::kernel::{Code, offset_of};
use super::lanes::Lane;
use super::partial::Accumulator;
use crate::ptx::words::{Compare, Sat};
use crate::ptx::{Op as P, Operand, RegType, Type as PtxType};
use crate::shape::Elem;
use crate::tile::{Extent, Inst, InstData, Op, Space, TileType, Type, Value};

/// Rows, columns.
const AXES: [usize; 2] = [0, 1];

/// The least power of two that is no less.
pub(super) fn power_of_two(n: i64) -> u32 {
    u32::try_from(n.max(1)).ok().and_then(u32::checked_next_power_of_two).unwrap_or(1 << 31)
}

/// Which threads take which rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// The axis of neighbouring threads.
    pub(super) fast: usize,
    /// How many threads share each axis; their product is the block's.
    pub(super) threads: [u32; 2],
}

impl Mapping {
    /// Of all threads, as many along the fast axis as it has elements; the others along the other.
    pub(super) fn new(fast: usize, capacity: i64, threads: u32) -> Mapping {
        let along = power_of_two(capacity).min(threads);
        let mut all = [threads / along; 2];
        all[fast] = along;
        Mapping { fast, threads: all }
    }
}

/// A run that is being made.
pub(super) struct Run<'r, 'a> {
    pub(super) code: &'r mut Code<'a>,
    insts: &'r [Inst],
    /// What its instructions make.
    made: BTreeSet<Value>,
    /// Rows, columns.
    extents: [Extent; 2],
    limits: [Operand; 2],
    pub(super) mapping: Mapping,
    /// The axis of the outer loop.
    pub(super) outer: usize,
    /// At which depth an instruction is done: before the loops, in the outer one, in the inner one.
    depths: BTreeMap<Inst, usize>,
    /// Elements that are known at each depth.
    known: [BTreeMap<Value, Lane>; 3],
    /// Where the tiles of accesses begin.
    addresses: BTreeMap<Inst, Operand>,
    /// The row and the column.
    pub(super) place: [Operand; 2],
    /// What it reduces, with partial results.
    pub(super) accumulators: Vec<Accumulator>,
}

impl Code<'_> {
    /// Makes a run.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(super) fn run(&mut self, rows: Extent, cols: Extent, insts: &[Inst]) -> Result<(), String> {
        let extents = [rows, cols];
        let limits = [self.extent(rows)?, self.extent(cols)?];
        let fast = self.fast_axis(extents, insts);
        let reduced = insts.iter().find_map(|i| match self.body.inst(*i).op {
            Op::Reduce { axis, .. } => Some(axis),
            _ => None,
        });
        let capacity = extents.map(Extent::capacity);
        let (mapping, outer) = match reduced {
            Some(axis) if axis == fast => {
                // Within a warp, unless there are more threads than results.
                let results = power_of_two(capacity[1 - axis]).min(self.threads);
                let most = (self.threads / results).max(super::kernel::WARP.min(self.threads));
                (Mapping::new(axis, capacity[axis].min(i64::from(most)), self.threads), 1 - axis)
            }
            Some(axis) => (Mapping::new(fast, capacity[fast], self.threads), 1 - axis),
            None => (Mapping::new(fast, capacity[fast], self.threads), 1 - fast),
        };
        let made = insts.iter().filter_map(|i| self.body.inst(*i).result).collect();
        let mut run = Run {
            insts,
            made,
            extents,
            limits,
            mapping,
            outer,
            depths: BTreeMap::new(),
            known: Default::default(),
            addresses: Default::default(),
            place: [Operand::Int(0), Operand::Int(0)],
            accumulators: Vec::new(),
            code: self,
        };
        run.find_depths();
        run.make(reduced.is_some())
    }

    /// The axis along which most accesses to buffers find their elements side by side; columns, if neither.
    fn fast_axis(&self, extents: [Extent; 2], insts: &[Inst]) -> usize {
        let mut votes = AXES.map(|_| 0);
        for i in insts {
            let data = self.body.inst(*i);
            let (Op::Load { rows, cols } | Op::Store { rows, cols }) = data.op else { continue };
            let buffer = data.operands.first().and_then(|b| self.body.ty(*b).buffer());
            for (axis, along) in AXES.into_iter().zip([rows, cols]) {
                let dense = along.is_some_and(|along| buffer.is_some_and(|b| b.is_dense(along)));
                votes[axis] += u32::from(dense && extents[axis].capacity() > 1);
            }
        }
        let single = |axis: usize| extents[axis].capacity() <= 1;
        usize::from(single(0) || !single(1) && votes[0] <= votes[1])
    }

    /// Rows of a tile become columns.
    ///
    /// # Errors
    /// As [`Code::run`].
    pub(super) fn transpose(&mut self, data: &InstData) -> Result<(), String> {
        let (Some(x), Some(v)) = (data.operands.first(), data.result) else {
            return Err("a transpose of nothing".into());
        };
        let (Some(from), Some(to)) = (self.body.ty(*x).tile().cloned(), self.body.ty(v).tile().cloned()) else {
            return Err("a transpose of no tile".into());
        };
        let offsets = (offset_of(&from)?, offset_of(&to)?);
        let limits = [self.extent(to.rows)?, self.extent(to.cols)?];
        let mut run = Run {
            insts: &[],
            made: BTreeSet::new(),
            extents: [to.rows, to.cols],
            limits,
            mapping: Mapping::new(1, to.cols.capacity(), self.threads),
            outer: 0,
            depths: BTreeMap::new(),
            known: Default::default(),
            addresses: Default::default(),
            place: [Operand::Int(0), Operand::Int(0)],
            accumulators: Vec::new(),
            code: self,
        };
        run.each_place(&mut |_| Ok(()), &mut |s| {
            let [row, col] = s.place.clone();
            let source = s.code.scratch_address(&from, &[col.clone(), row.clone()]);
            let element = s.code.e.load_shared("x", from.elem, &source, offsets.0);
            let target = s.code.scratch_address(&to, &[row, col]);
            s.code.e.store_shared(&target, offsets.1, &element);
            Ok(())
        })
    }

    /// The address of a tile's element in shared memory, but for the tile's offset.
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
    /// `address + index * bytes`, of an index of 32 bits.
    pub(super) fn advance(&mut self, address: &Operand, index: &Operand, bytes: &Operand) -> Operand {
        match (index, bytes) {
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

impl Run<'_, '_> {
    fn inner(&self) -> usize {
        1 - self.outer
    }

    /// The depth at which a tile changes.
    fn depth_of(&self, t: &TileType) -> usize {
        let varies = [!t.rows.is_one(), !t.cols.is_one()];
        match (varies[self.inner()], varies[self.outer]) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => 0,
        }
    }

    /// The depth at which a tile in shared memory, or a buffer, is read. What has an element for each place is read by the thread of the place alone,
    /// which may write there.
    fn read_depth(&self, t: &TileType) -> usize {
        let depth = self.depth_of(t);
        let own = [t.rows, t.cols] == self.extents;
        if own || !self.is_filled_within(depth) { 2 } else { depth }
    }

    /// Are there elements further inside, whatever happens? Only then may memory be read further out.
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
                // Effects happen where the elements are, each once.
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
                    return Err("an access to no buffer".into());
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

    /// The place of this thread along an axis.
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

    /// Every place that is this thread's: `outside` for each of the outer axis, `inside` for each of both.
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

    /// The places of this thread along an axis, from its first one on.
    pub(super) fn each(
        &mut self,
        axis: usize,
        first: &Operand,
        body: &mut dyn FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let (threads, limit, ty) = (i64::from(self.mapping.threads[axis]), self.limits[axis].clone(), PtxType::S32);
        let extent = self.extents[axis];
        let depth = if axis == self.outer { 1 } else { 2 };
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

    /// Goes to a place of the outer axis (depth 1) or of the inner one (2): what was known at another is forgotten.
    pub(super) fn enter(&mut self, depth: usize, place: Operand) {
        let axis = if depth == 1 { self.outer } else { self.inner() };
        self.place[axis] = place;
        self.known[depth..].iter_mut().for_each(BTreeMap::clear);
    }

    /// Everything that is done at one depth.
    pub(super) fn at_depth(&mut self, depth: usize) -> Result<(), String> {
        let body = self.code.body;
        if depth == 0 {
            self.known = Default::default();
        }
        if depth < 2 {
            // What lies in shared memory and does not change further inside.
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
                self.instruction(*i, depth)?;
            }
        }
        if depth == 2 {
            self.leave()?;
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
                let x = self.operand(*data.operands.last().ok_or("a store of nothing")?, depth)?;
                self.code.e.store(elem, &address, &x);
                return Ok(());
            }
            Op::Reduce { .. } => return self.accumulate(i, depth),
            Op::Iota { axis } => {
                let start = self.code.index(*data.operands.first().ok_or("a counter without a start")?)?;
                let elem = data.result.and_then(|v| body.ty(v).elem()).unwrap_or(Elem::I32);
                let place = self.place[*axis].clone();
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
            self.known[depth].insert(v, made);
        }
        Ok(())
    }

    /// An element of an operand at the place.
    pub(super) fn operand(&mut self, v: Value, depth: usize) -> Result<Lane, String> {
        if let Some(x) = self.known.iter().find_map(|known| known.get(&v)) {
            return Ok(x.clone());
        }
        let body = self.code.body;
        match body.ty(v) {
            Type::Scalar(_) => self.code.scalar(v),
            Type::Tile(t) if !self.made.contains(&v) => {
                let address = self.code.scratch_address(t, &self.place.clone());
                let name = self.code.name(v);
                let x = self.code.e.load_shared(&name, t.elem, &address, offset_of(t)?);
                self.known[depth].insert(v, x.clone());
                Ok(x)
            }
            _ => Err(format!("{v} is used before it is made")),
        }
    }

    /// The address of an access at the place, the type of its elements, and whether nothing writes them.
    fn access(&mut self, i: Inst, data: &InstData, along: [Option<usize>; 2]) -> Result<(Operand, Elem, bool), String> {
        let buffer = *data.operands.first().ok_or("an access to no buffer")?;
        let (_, strides, elem, read_only) = self.code.buffer(buffer)?;
        let ty = match data.op {
            Op::Store { .. } => data.operands.last().copied(),
            _ => data.result,
        };
        let t = ty.and_then(|v| self.code.body.ty(v).tile().cloned()).ok_or("an access of no tile")?;
        let varies = [!t.rows.is_one(), !t.cols.is_one()];
        let mut address = self.addresses.get(&i).cloned().ok_or("an access without an address")?;
        for axis in [self.outer, self.inner()] {
            if let Some(stride) = along[axis].filter(|_| varies[axis]).and_then(|a| strides.get(a)) {
                let bytes = self.code.stride_bytes(stride, elem);
                address = self.code.e.advance(&address, &self.place[axis].clone(), &bytes);
            }
        }
        Ok((address, elem, read_only))
    }

    /// Writes what the run leaves in shared memory. A tile that does not change along an axis is written at its beginning.
    fn leave(&mut self) -> Result<(), String> {
        let body = self.code.body;
        for i in self.insts {
            let data = body.inst(*i);
            let Some((v, t)) = data.result.and_then(|v| Some((v, body.ty(v).tile()?))) else { continue };
            if !matches!(t.space, Space::L1(_)) || matches!(data.op, Op::Reduce { .. }) {
                continue;
            }
            let x = self.operand(v, 2)?;
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
            let address = self.code.scratch_address(t, &self.place.clone());
            self.code.e.store_shared(&address, offset_of(t)?, &x);
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

    /// How many places an axis has at most, and how many it has.
    pub(super) fn axis(&self, axis: usize) -> (Extent, Operand) {
        (self.extents[axis], self.limits[axis].clone())
    }
}
