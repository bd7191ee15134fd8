//! Reductions in runs: partial results per thread, and their combination.
//!
//! ```text
//! for each result, some threads together               the same number of times for all threads
//!   for the elements of each thread: combine            in order
//!   shuffles                                            where the threads are neighbours within a warp
//!   shared memory, two barriers                         where they are further apart
//!   the first thread writes the result
//! ```
//!
//! The order of combination depends only on extents and threads, so results are deterministic.

use super::hazards::{Meeting, MemoryRange};
use super::kernel::{WARP, offset_of};
use super::lanes::{Lane, ptx_type};
use super::partial::Accumulator;
use super::run::Run;
use crate::ptx::words::Compare;
use crate::ptx::{Op as P, Operand, RegType, Type as PtxType};
use crate::scalar::{CmpOp, ReduceKind, Scalar};
use crate::shape::Elem;
use crate::tile::{Inst, Op, Value};

/// Bytes of a partial result in shared memory, whatever its type.
const PARTIAL: u32 = 8;

impl Run<'_, '_> {
    /// Compiles a run with reductions.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(super) fn reduce(&mut self) -> Result<(), String> {
        let body = self.code.body;
        for i in self.insts().to_vec() {
            let data = body.inst(i);
            let (Op::Reduce { kind, .. }, Some(result)) = (&data.op, data.result) else { continue };
            let elem = data.operands.first().and_then(|v| body.ty(*v).elem()).unwrap_or(Elem::F32);
            let name = format!("{}_part", self.code.name(result));
            let value = self.code.e.reg(&name, RegType::for_type(ptx_type(elem)));
            let index = (*kind == ReduceKind::ArgMax).then(|| self.code.e.reg(&format!("{name}_at"), RegType::B32));
            self.accumulators.push(Accumulator { inst: i, kind: *kind, elem, value, index, result });
        }
        let (outer, inner) = (self.outer, 1 - self.outer);
        let first = [0, 1].map(|axis| self.thread(axis));
        let (extent, limit) = self.axis(outer);
        let (threads, ty) = (self.mapping.threads[outer], PtxType::S32);
        let once = extent.capacity() <= i64::from(threads);
        let exact = matches!(extent, crate::tile::Extent::Static(n) if n % i64::from(threads) == 0);
        // Threads past the last result take part in shuffles and barriers, but read and write
        // nothing.
        let base = self.code.e.reg("results", RegType::B32);
        let (top, done) = (self.code.e.new_label("results"), self.code.e.new_label("reduced"));
        let counter = Operand::Reg(base);
        if !once {
            self.code.e.assign(base, PtxType::B32, &Operand::Int(0));
            self.code.e.label(&top);
            let none = self.code.e.compare("none", Compare::Ge, ty, &counter, &limit);
            self.code.e.jump_if(&none, false, true, &done);
        }
        let place = match once {
            true => first[outer].clone(),
            false => self.code.e.add(if outer == 0 { "row" } else { "col" }, ty, &counter, &first[outer]),
        };
        let valid = (!exact).then(|| self.code.e.compare("valid", Compare::Lt, ty, &place, &limit));
        for a in self.accumulators.clone() {
            let identity = self.code.e.literal(Scalar::identity(a.kind, a.elem), a.elem);
            self.code.e.assign(a.value, moved_type(a.elem), &identity.value);
            if let Some(index) = a.index {
                self.code.e.assign(index, PtxType::B32, &Operand::Int(i64::from(i32::MAX)));
            }
        }
        let skip = self.code.e.new_label("skip");
        if let Some(valid) = &valid {
            self.code.e.jump_if(valid, true, false, &skip);
        }
        self.enter(1, place);
        self.at_depth(1)?;
        self.each(inner, &first[inner].clone(), &mut |s| s.at_depth(2))?;
        if valid.is_some() {
            self.code.e.label(&skip);
        }
        let alone = self.mapping.threads[inner] == 1;
        if !alone {
            self.together(inner)?;
        }
        if let Some(who) = self.overwrites(alone) {
            self.code.meet(who);
        }
        self.write(&first[inner], valid, alone)?;
        if !once {
            let step = [counter.clone(), counter, Operand::Int(i64::from(threads))];
            self.code.e.push(P::Add { sat: crate::ptx::words::Sat::Wrap, ty }, step);
            self.code.e.jump(&top);
            self.code.e.label(&done);
        }
        Ok(())
    }

    /// Combines an element with the partial result of its reduction.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(super) fn accumulate(&mut self, inst: Inst, depth: usize) -> Result<(), String> {
        let v = *self.code.body.inst(inst).operands.first().ok_or("a reduction without an operand")?;
        let x = self.operand(v, depth)?;
        let a = self.accumulators.iter().find(|a| a.inst == inst).cloned().ok_or("an unknown reduction")?;
        let index = Lane { value: self.here()[1 - self.outer].clone(), elem: Elem::I32 };
        self.merge(&a, &x, &index)
    }

    /// Combines a partial result with another.
    fn merge(&mut self, a: &Accumulator, x: &Lane, at: &Lane) -> Result<(), String> {
        let e = &mut self.code.e;
        let (own, ty) = (a.lane(), moved_type(a.elem));
        let (Some(index), Some(own_index)) = (a.index, a.index_lane()) else {
            let both = e.combine(a.kind, &own, x)?;
            e.assign(a.value, ty, &both.value);
            return Ok(());
        };
        // The greater one; the first of equal ones.
        let pred = PtxType::Pred;
        let greater = e.beats(x, &own);
        let less = e.beats(&own, x);
        let before = e.compare_lanes("before", CmpOp::Lt, at, &own_index).value;
        let not_less = e.make("not", P::Not { ty: pred }, pred, &[less]);
        let equal = e.make("equal", P::And { ty: pred }, pred, &[not_less, before]);
        let takes = Lane { value: e.make("takes", P::Or { ty: pred }, pred, &[greater, equal]), elem: Elem::Bool };
        let value = e.select_lanes("acc", &takes, x, &own);
        e.assign(a.value, ty, &value.value);
        let place = e.select_lanes("at", &takes, at, &own_index);
        e.assign(index, PtxType::B32, &place.value);
        Ok(())
    }

    /// Combines the partial results of the threads along the inner axis, in the first of them.
    fn together(&mut self, inner: usize) -> Result<(), String> {
        let threads = self.mapping.threads[inner];
        let near = inner == self.mapping.fast;
        if near {
            let mut distance = threads.min(WARP) / 2;
            while distance > 0 {
                for a in self.accumulators.clone() {
                    let x = self.code.e.exchanged(&a.lane(), distance);
                    let at = match a.index_lane() {
                        Some(index) => self.code.e.exchanged(&index, distance),
                        None => x.clone(),
                    };
                    self.merge(&a, &x, &at)?;
                }
                distance /= 2;
            }
            if threads <= WARP {
                return Ok(());
            }
        }
        // Through shared memory: number and distance of the parts of a result.
        let (parts, distance) = if near { (threads / WARP, 1) } else { (threads, self.mapping.threads[1 - inner]) };
        let all = self.code.threads / if near { WARP } else { 1 };
        let places: u32 = self.accumulators.iter().map(|a| 1 + u32::from(a.index.is_some())).sum();
        let start = self.code.transient_room(places * all * PARTIAL);
        let (ty, tid) = (PtxType::U32, self.code.tid.clone());
        let own = match near {
            true => self.code.e.make("warp", P::Shr { ty }, ty, &[tid.clone(), Operand::Int(5)]),
            false => tid.clone(),
        };
        let shared = self.code.shared.clone();
        let address = self.code.e.mad32("part", &own, PARTIAL, &shared);
        self.code.e.barrier();
        let skip = self.code.e.new_label("skip");
        if near {
            let lane = self.code.e.make("lane", P::And { ty: PtxType::B32 }, ty, &[tid, Operand::Int(31)]);
            let other = self.code.e.compare("other", Compare::Ne, ty, &lane, &Operand::Int(0));
            self.code.e.jump_if(&other, false, false, &skip);
        }
        let lanes: Vec<Lane> =
            self.accumulators.iter().flat_map(|a| std::iter::once(a.lane()).chain(a.index_lane())).collect();
        for (n, lane) in (0..).zip(&lanes) {
            self.code.e.store_shared(&address, offset(start + n * all * PARTIAL), lane);
        }
        if near {
            self.code.e.label(&skip);
        }
        self.code.e.barrier();
        // Only the first thread of each result needs it.
        let first = self.thread(inner);
        let (rest, end) = (self.code.e.new_label("parts"), self.code.e.new_label("whole"));
        let other = self.code.e.compare("other", Compare::Ne, ty, &first, &Operand::Int(0));
        self.code.e.jump_if(&other, false, false, &end);
        let counter = self.code.e.reg("part", RegType::B32);
        let from = self.code.e.reg("from", RegType::B32);
        let (n, source) = (Operand::Reg(counter), Operand::Reg(from));
        self.code.e.assign(counter, PtxType::B32, &Operand::Int(1));
        self.code.e.assign(from, PtxType::B32, &address);
        self.code.e.label(&rest);
        let wrap = crate::ptx::words::Sat::Wrap;
        let step = i64::from(distance * PARTIAL);
        self.code.e.push(P::Add { sat: wrap, ty }, [source.clone(), source.clone(), Operand::Int(step)]);
        let mut place = 0;
        for a in self.accumulators.clone() {
            let x = self.code.e.load_shared("other", a.elem, &source, offset(start + place * all * PARTIAL));
            place += 1;
            let mut at = x.clone();
            if a.index.is_some() {
                at = self.code.e.load_shared("other", Elem::I32, &source, offset(start + place * all * PARTIAL));
                place += 1;
            }
            self.merge(&a, &x, &at)?;
        }
        self.code.e.push(P::Add { sat: wrap, ty }, [n.clone(), n.clone(), Operand::Int(1)]);
        let more = self.code.e.compare("more", Compare::Lt, ty, &n, &Operand::Int(i64::from(parts)));
        self.code.e.jump_if(&more, false, false, &rest);
        self.code.e.label(&end);
        Ok(())
    }

    /// The barrier needed because a result overwrites a tile that other threads of the run read.
    /// `alone`: does one thread have all elements of a result? Tiles that are the same for all
    /// results are read by all threads before their first result.
    fn overwrites(&self, alone: bool) -> Option<Meeting> {
        let (body, by_warp, outer) = (self.code.body, self.code.rows_by_warp, self.outer);
        let place = |v: Value| body.ty(v).tile().and_then(MemoryRange::from_tile);
        let is_common = |v: Value| body.ty(v).tile().is_none_or(|t| [t.rows, t.cols][outer].is_one());
        let operands = self.insts().iter().flat_map(|i| &body.inst(*i).operands);
        let read: Vec<(MemoryRange, bool)> = operands.filter_map(|v| Some((place(*v)?, is_common(*v)))).collect();
        let written = self.accumulators.iter().filter_map(|a| place(a.result));
        let meetings = written.flat_map(|w| {
            let of_others = read.iter().filter(move |(r, common)| !alone || *common || *r != w);
            of_others.filter_map(move |(r, _)| w.meeting(*r, by_warp))
        });
        meetings.max()
    }

    fn write(&mut self, first: &Operand, valid: Option<Operand>, alone: bool) -> Result<(), String> {
        let owner = (!alone).then(|| self.code.e.compare("owner", Compare::Eq, PtxType::U32, first, &Operand::Int(0)));
        // A thread may be past the end of the axis.
        let writes = self.code.e.both(valid, owner);
        let skip = self.code.e.new_label("skip");
        if let Some(p) = &writes {
            self.code.e.jump_if(p, true, false, &skip);
        }
        let mut place = self.place.clone();
        place[1 - self.outer] = Operand::Int(0);
        for a in self.accumulators.clone() {
            let Some(t) = self.code.body.ty(a.result).tile() else { continue };
            let address = self.code.scratch_address(t, &place);
            let x = a.index_lane().unwrap_or_else(|| a.lane());
            self.code.e.store_shared(&address, offset_of(t)?, &x);
        }
        if writes.is_some() {
            self.code.e.label(&skip);
        }
        Ok(())
    }
}

fn offset(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// The type of `mov` for an element's register.
fn moved_type(elem: Elem) -> PtxType {
    match ptx_type(elem) {
        PtxType::S32 => PtxType::B32,
        PtxType::S64 => PtxType::B64,
        ty => ty,
    }
}
