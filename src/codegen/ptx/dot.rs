//! SIMT matmuls: each thread accumulates a rectangle of the result in registers over all `k` steps.
//!
//! In: a `dot` whose operands are tiles in shared memory or windows. Out: its result in shared
//! memory. A window is staged through shared memory in slices of some `k` steps
//! ([`super::slices`]), converted to the type of computation on the way. Slices are
//! double-buffered, so that the next one is loaded while the current one is multiplied, and one
//! barrier per slice is enough:
//!
//! ```text
//! sums = start                                            ROWS x COLS registers a thread, up to 8 x 8
//! slice 0 of the windows to shared memory;  barrier       left [DEPTH, M], right [DEPTH, N], zeros outside
//! for k = 0; k < steps; k += DEPTH
//!   load the next slice to registers
//!   for each step: ROWS elements of the left column, COLS of the right row;  sums = fma(left, right, sums)
//!   registers to the other slice;  barrier
//! result = accumulator + sums
//! ```
//!
//! Panels of integers (`load_scaled`) are windows whose elements are multiplied by their scales
//! when loaded.
//!
//! In a slice the elements of a step are contiguous, so a thread reads its rows and columns four at
//! a time. Of eight, the second four come after the first four of all threads, so that a warp's
//! reads have no bank conflicts.

use super::kernel::{Code, offset_of};
use super::lanes::{Lane, ptx_type};
use super::mapping::power_of_two;
use super::product::{DotEmitter, Side, Source, Window, size, whole};
use super::slices::Item;
use crate::ptx::words::{Compare, Half, Relu, Round, Sat, Vector};
use crate::ptx::{Op as P, Operand, Reg, RegType, Type as PtxType};
use crate::scalar::{BinaryOp, Scalar};
use crate::shape::Elem;
use crate::tile::{Extent, InstData, Op, Type, Value};

/// Steps of a slice. For rectangles with more than this many sums it is [`SHORT`], since each step
/// is more work.
const DEPTH: i64 = 16;
const SHORT: i64 = 8;
const MANY: i64 = 16;
/// Maximum rows or columns of a thread's rectangle.
const MAX_RECTANGLE: i64 = 8;
/// Rows or columns per vector load.
const TOGETHER: i64 = 4;
/// Bytes of shared memory for slices; the schedule reserves them beside the tiles.
const ROOM: u32 = 18 << 10;

/// The largest power of two whose square is at most `n`.
fn root(n: i64) -> i64 {
    let mut out = 1;
    while out < MAX_RECTANGLE && 4 * out * out <= n {
        out *= 2;
    }
    out
}

impl Code<'_> {
    /// Compiles a matmul.
    ///
    /// # Errors
    /// IR that the verifier rejects, or that is not supported here.
    pub(super) fn dot(&mut self, data: &InstData) -> Result<(), String> {
        let body = self.body;
        let ([left, right, acc], Some(result)) = (data.operands.as_slice(), data.result) else {
            return Err("a matmul needs two operands and an accumulator".into());
        };
        let tile = |v: &Value| body.ty(*v).tile().cloned().ok_or("a matmul operand is not a tile");
        let (a, b, c) = (tile(left)?, tile(right)?, tile(&result)?);
        let elem = c.elem;
        let (m, n) = (c.rows.capacity(), c.cols.capacity());
        let threads = i64::from(self.threads);
        let each = (m * n / threads).max(1);
        let mut cols = root(each).min(i64::from(power_of_two(n)));
        let windows = [self.window(*left)?, self.window(*right)?];
        // If a row of the tile may end within a thread's columns, they are accessed one by one.
        let col_neighbours = windows[1].is_some() || matches!(c.cols, Extent::Static(n) if n % cols == 0);
        if elem == Elem::I64 {
            cols = 1;
        }
        let along = i64::from(power_of_two((n + cols - 1) / cols)).min(threads);
        let down = threads / along;
        let rows = i64::from(power_of_two((m + down - 1) / down)).min(MAX_RECTANGLE);
        let (ty, tid) = (PtxType::U32, self.tid.clone());
        let bits = Operand::Int(i64::from(along.trailing_zeros()));
        let down_thread = self.e.make("down", P::Shr { ty }, ty, &[tid.clone(), bits]);
        let along_thread = self.e.make("along", P::And { ty: PtxType::B32 }, ty, &[tid, Operand::Int(along - 1)]);
        let limits = [self.extent(c.rows)?, self.extent(c.cols)?];
        let [row_limit, col_limit] = limits.clone();
        let small = |n: i64| u32::try_from(n).unwrap_or(1);
        let sides = [
            Side {
                threads: small(down),
                own: rows,
                neighbours: windows[0].is_some(),
                thread: down_thread,
                extent: c.rows,
                limit: row_limit,
            },
            Side {
                threads: small(along),
                own: cols,
                neighbours: col_neighbours,
                thread: along_thread,
                extent: c.cols,
                limit: col_limit,
            },
        ];
        let depth = if rows * cols > MANY { SHORT } else { DEPTH };
        // Allocate the slices.
        let mut offset = 0;
        let mut sources = Vec::new();
        for (side, (window, t)) in sides.iter().zip(windows.iter().zip([&a, &b])) {
            sources.push(match window {
                Some(_) => {
                    let width = side.stride().min(whole(side));
                    // Padded by 16 bytes, so that steps are in different banks.
                    let pitch = small(width * i64::from(size(elem)) + 16).next_multiple_of(16);
                    let start = offset;
                    offset += pitch * small(depth);
                    Source::Slice { offset: start, pitch }
                }
                None => Source::Tile(t.clone()),
            });
        }
        // Double-buffer if there is enough space.
        let phases = if 2 * offset <= ROOM { 2 } else { 1 };
        let start = if offset > 0 { self.transient_room(phases * offset) } else { 0 };
        for source in &mut sources {
            if let Source::Slice { offset, .. } = source {
                *offset += start;
            }
        }
        let steps = self.extent(a.cols)?;
        let first = match body.ty(*acc) {
            Type::Scalar(_) => self.scalar(*acc)?,
            _ => {
                let zero = if elem == Elem::F32 { Scalar::Float(0.0) } else { Scalar::Int(0) };
                self.e.literal(zero, elem)
            }
        };
        let adds = body.ty(*acc).tile().cloned();
        let mut product = DotEmitter {
            elem,
            sides,
            windows,
            sources,
            depth,
            other: if phases == 2 { offset } else { 0 },
            steps,
            step_extent: a.cols,
            first,
            result: c,
            adds,
            code: self,
        };
        product.make()
    }

    /// The memory access of an operand that is a window.
    fn window(&mut self, v: Value) -> Result<Option<Window>, String> {
        let body = self.body;
        let Some(InstData { op, operands, .. }) = body.def_inst(v) else { return Ok(None) };
        let (Some(buffer), indices) = (operands.first(), operands.get(1..).unwrap_or_default()) else {
            return Ok(None);
        };
        let (rows, cols, indices, scaled) = match op {
            Op::Window { rows, cols } => (*rows, *cols, indices, None),
            Op::LoadScaled { bits } => {
                let Some((scales, indices)) = indices.split_last() else { return Err("a panel without scales".into()) };
                let axis = indices.len().checked_sub(2).ok_or("a panel has fewer than two axes")?;
                (Some(axis), Some(axis + 1), indices, Some(self.scales(*scales, indices, *bits)?))
            }
            _ => return Ok(None),
        };
        let base = self.address(*buffer, indices)?;
        let (_, strides, elem, read_only) = self.buffer(*buffer)?;
        // An axis of one element is never advanced, so its stride does not affect alignment.
        let varies = body.ty(v).tile().map_or([true; 2], |t| [!t.rows.is_one(), !t.cols.is_one()]);
        let along = [rows.filter(|_| varies[0]), cols.filter(|_| varies[1])];
        let mut bytes = [Operand::Int(0), Operand::Int(0)];
        for (bytes, axis) in bytes.iter_mut().zip(along) {
            if let Some(stride) = axis.and_then(|a| strides.get(a)) {
                *bytes = self.stride_bytes(stride, elem);
            }
        }
        let dense = bytes.clone().map(|b| b == Operand::Int(i64::try_from(elem.size()).unwrap_or(0)));
        let wide =
            [0, 1].into_iter().find(|axis| body.def_inst(v).is_some_and(|d| self.multiples.is_wide(body, d, *axis)));
        Ok(Some(Window { base, strides: bytes, dense, wide, elem, read_only, scaled }))
    }
}

impl DotEmitter<'_, '_> {
    /// Computes the result in blocks of all threads' rectangles.
    fn make(&mut self) -> Result<(), String> {
        self.blocks(0, &mut |s, row| {
            let row = row.clone();
            s.blocks(1, &mut |s, col| s.block([&row, col]))
        })
    }

    /// A loop over blocks of rows or columns, uniform in all threads; the body gets the block's
    /// start.
    fn blocks(
        &mut self,
        side: usize,
        body: &mut dyn FnMut(&mut Self, &Operand) -> Result<(), String>,
    ) -> Result<(), String> {
        let (stride, limit) = (self.sides[side].stride(), self.sides[side].limit.clone());
        if self.sides[side].extent.capacity() <= stride {
            return body(self, &Operand::Int(0));
        }
        let e = &mut self.code.e;
        let counter = e.reg(if side == 0 { "row0" } else { "col0" }, RegType::B32);
        let at = Operand::Reg(counter);
        let (top, done) = (e.new_label("block"), e.new_label("blocks_done"));
        e.assign(counter, PtxType::B32, &Operand::Int(0));
        e.label(&top);
        let none = e.compare("none", Compare::Ge, PtxType::S32, &at, &limit);
        e.jump_if(&none, false, true, &done);
        body(self, &at)?;
        let e = &mut self.code.e;
        let step = [at.clone(), at, Operand::Int(stride)];
        e.push(P::Add { sat: Sat::Wrap, ty: PtxType::S32 }, step);
        e.jump(&top);
        e.label(&done);
        Ok(())
    }

    /// Index within a block of a thread's row or column `n`.
    fn within(&mut self, side: usize, n: i64) -> Operand {
        let s = &self.sides[side];
        let (thread, own, threads) = (s.thread.clone(), s.own.min(TOGETHER), i64::from(s.threads));
        let e = &mut self.code.e;
        match s.neighbours {
            true => {
                let first = e.mul("first", PtxType::S32, &thread, &Operand::Int(own));
                e.add("place", PtxType::S32, &first, &Operand::Int(n / own * own * threads + n % own))
            }
            false => e.add("place", PtxType::S32, &thread, &Operand::Int(n * threads)),
        }
    }

    fn block(&mut self, starts: [&Operand; 2]) -> Result<(), String> {
        let elem = self.elem;
        let (rows, cols) = (self.sides[0].own, self.sides[1].own);
        let ty = ptx_type(elem);
        let first = self.first.clone();
        let mut sums: Vec<Reg> = Vec::new();
        for r in 0..rows {
            for c in 0..cols {
                let sum = self.code.e.reg(&format!("sum_{r}_{c}"), RegType::for_type(ty));
                self.code.e.assign(sum, ty, &first.value);
                sums.push(sum);
            }
        }
        // This thread's rows and columns, clamped to the extents.
        let mut own: [Vec<Operand>; 2] = [Vec::new(), Vec::new()];
        for side in [0, 1] {
            let count = self.sides[side].own;
            for n in 0..count {
                let within = self.within(side, n);
                own[side].push(self.code.e.add("place", PtxType::S32, starts[side], &within));
            }
        }
        let bases = [self.read_from(0, starts[0]), self.read_from(1, starts[1])];
        let staged = self.windows.iter().any(Option::is_some);
        let depth = self.depth;
        let e = &mut self.code.e;
        let counter = e.reg("step", RegType::B32);
        let (k, limit) = (Operand::Reg(counter), self.steps.clone());
        let (top, done) = (e.new_label("steps"), e.new_label("summed"));
        e.assign(counter, PtxType::B32, &Operand::Int(0));
        let mut items = [Vec::new(), Vec::new()];
        let mut phase = Operand::Int(0);
        let two = self.other > 0;
        if staged {
            items = [self.items(0, starts[0]), self.items(1, starts[1])];
            self.code.e.barrier();
        }
        if staged && two {
            self.copy(&items, &k, None, &phase)?;
            let e = &mut self.code.e;
            let now = e.reg("slice", RegType::B32);
            e.assign(now, PtxType::B32, &phase);
            phase = Operand::Reg(now);
            e.barrier();
        }
        let e = &mut self.code.e;
        e.label(&top);
        let none = e.compare("none", Compare::Ge, PtxType::S32, &k, &limit);
        e.jump_if(&none, false, true, &done);
        let next = e.add("next", PtxType::S32, &k, &Operand::Int(depth));
        let mut loaded = [Vec::new(), Vec::new()];
        if staged && two {
            let more = e.compare("more", Compare::Lt, PtxType::S32, &next, &limit);
            loaded = [self.fetch(0, &items[0], &next, Some(&more))?, self.fetch(1, &items[1], &next, Some(&more))?];
        } else if staged {
            self.copy(&items, &k, None, &phase)?;
            self.code.e.barrier();
        }
        self.slice(&bases, &k, &phase, &sums)?;
        if staged && two {
            // Switch slices: the phase alternates between 0 and the distance.
            let e = &mut self.code.e;
            let distance = Operand::Int(i64::from(self.other));
            e.push(P::Sub { sat: Sat::Wrap, ty: PtxType::S32 }, [phase.clone(), distance, phase.clone()]);
            [0, 1].into_iter().for_each(|side| self.put(side, &items[side], &loaded[side], &phase));
        }
        if staged {
            self.code.e.barrier();
        }
        let e = &mut self.code.e;
        e.assign(counter, PtxType::B32, &next);
        e.jump(&top);
        e.label(&done);
        self.leave(&own, &sums)
    }

    /// Loads a slice of each window and stores it to shared memory.
    fn copy(
        &mut self,
        items: &[Vec<Item>; 2],
        k: &Operand,
        more: Option<&Operand>,
        phase: &Operand,
    ) -> Result<(), String> {
        let loaded = [self.fetch(0, &items[0], k, more)?, self.fetch(1, &items[1], k, more)?];
        [0, 1].into_iter().for_each(|side| self.put(side, &items[side], &loaded[side], phase));
        Ok(())
    }

    /// Multiplies the slice in shared memory, which starts at step `k`.
    fn slice(&mut self, bases: &[Vec<Operand>; 2], k: &Operand, phase: &Operand, sums: &[Reg]) -> Result<(), String> {
        let (depth, limit) = (self.depth, self.steps.clone());
        let exact = matches!(self.step_extent, Extent::Static(n) if n % depth == 0);
        let both = self.windows.iter().all(Option::is_some);
        let bases = &[self.at_phase(0, &bases[0], phase), self.at_phase(1, &bases[1], phase)];
        if exact || both {
            // Slices are padded with zeros.
            for step in 0..depth {
                self.step(bases, k, &Operand::Int(step), sums)?;
            }
            return Ok(());
        }
        let e = &mut self.code.e;
        let (rest_label, end) = (e.new_label("rest"), e.new_label("slice_done"));
        let left = e.sub("left", PtxType::S32, &limit, k);
        let few = e.compare("few", Compare::Lt, PtxType::S32, &left, &Operand::Int(depth));
        e.jump_if(&few, false, true, &rest_label);
        for step in 0..depth {
            self.step(bases, k, &Operand::Int(step), sums)?;
        }
        let e = &mut self.code.e;
        e.jump(&end);
        e.label(&rest_label);
        let counter = e.reg("one", RegType::B32);
        let one = Operand::Reg(counter);
        e.assign(counter, PtxType::B32, &Operand::Int(0));
        let again = e.new_label("one");
        e.label(&again);
        self.step(bases, k, &one, sums)?;
        let e = &mut self.code.e;
        e.push(P::Add { sat: Sat::Wrap, ty: PtxType::S32 }, [one.clone(), one.clone(), Operand::Int(1)]);
        let more = e.compare("more", Compare::Lt, PtxType::S32, &one, &left);
        e.jump_if(&more, false, true, &again);
        e.label(&end);
        Ok(())
    }

    /// The addresses of a side's rows (or columns) in the current slice.
    fn at_phase(&mut self, side: usize, bases: &[Operand], phase: &Operand) -> Vec<Operand> {
        match self.sources[side] {
            Source::Slice { .. } => {
                // Vector loads use only the first address; ptxas removes the others.
                bases.iter().map(|x| self.code.e.add("now", PtxType::S32, x, phase)).collect()
            }
            Source::Tile(_) => bases.to_vec(),
        }
    }

    /// Rows (or columns) of a slice.
    pub(super) fn width(&self, side: usize) -> i64 {
        self.sides[side].stride().min(whole(&self.sides[side]))
    }

    /// Address of each of a thread's rows (or columns) at step 0. Threads past the end read the
    /// last ones.
    fn read_from(&mut self, side: usize, start: &Operand) -> Vec<Operand> {
        let shared = self.code.shared.clone();
        let s = &self.sides[side];
        let (stride, own, neighbours) = (s.stride(), s.own, s.neighbours);
        let (limit, extent) = (s.limit.clone(), s.extent);
        // Stride in bytes; count, if known; index of the block's first one.
        let (bytes, all, base) = match &self.sources[side] {
            Source::Slice { .. } => (size(self.elem), Some(stride.min(whole(s))), Operand::Int(0)),
            Source::Tile(t) => {
                let bytes = if side == 0 { t.pitch() } else { t.element_bytes() };
                let all = if let Extent::Static(n) = extent { Some(n) } else { None };
                (bytes, all, start.clone())
            }
        };
        let last = match all {
            Some(n) => Operand::Int(n - if neighbours { own.min(TOGETHER) } else { 1 }),
            None => {
                let last = self.code.e.sub("last", PtxType::S32, &limit, &Operand::Int(1));
                self.code.e.make("last", P::Max { ty: PtxType::S32 }, PtxType::S32, &[last, Operand::Int(0)])
            }
        };
        let exact = matches!(all, Some(n) if n % stride == 0);
        let near = |s: &mut Self, n: i64| {
            let within = s.within(side, n);
            let place = s.code.e.add("place", PtxType::S32, &base, &within);
            match exact {
                true => place,
                false => s.code.e.make("near", P::Min { ty: PtxType::S32 }, PtxType::S32, &[place, last.clone()]),
            }
        };
        let mut out = Vec::new();
        let mut first = Operand::Int(0);
        let together = if neighbours { own.min(TOGETHER) } else { 1 };
        for n in 0..own {
            if n % together == 0 {
                first = near(self, n);
            }
            let place = self.code.e.add("place", PtxType::S32, &first, &Operand::Int(n % together));
            out.push(self.code.e.mad32("from", &place, bytes, &shared));
        }
        out
    }

    /// Loads the elements of a thread's rows (or columns) at a step.
    fn elements(
        &mut self,
        side: usize,
        bases: &[Operand],
        k: &Operand,
        step: &Operand,
    ) -> Result<Vec<Operand>, String> {
        let (elem, ty) = (self.elem, ptx_type(self.elem));
        let name = if side == 0 { "a" } else { "b" };
        let (start, pitch, from_start) = match &self.sources[side] {
            Source::Slice { offset, pitch } => (i32::try_from(*offset).unwrap_or(0), *pitch, true),
            Source::Tile(t) => {
                let pitch = if side == 0 { t.element_bytes() } else { t.pitch() };
                (offset_of(t)?, pitch, false)
            }
        };
        // A known step becomes an immediate offset, else part of the address.
        let mut offset = start;
        let mut moving: Vec<Operand> = Vec::new();
        if !from_start {
            moving.push(k.clone());
        }
        match step {
            Operand::Int(n) => offset += i32::try_from(*n * i64::from(pitch)).unwrap_or(0),
            other => moving.push(other.clone()),
        }
        let mut shift = None;
        for x in &moving {
            let e = &mut self.code.e;
            shift = Some(match shift {
                None => x.clone(),
                Some(y) => e.add("at_step", PtxType::S32, &y, x),
            });
        }
        let shift = shift.map(|x| self.code.e.mul("skip", PtxType::S32, &x, &Operand::Int(i64::from(pitch))));
        let wide = self.sides[side].neighbours;
        let count = bases.len();
        let mut out = Vec::new();
        if wide && elem != Elem::I64 && count >= 2 {
            let (vector, together) = if count == 2 { (Vector::Two, 2) } else { (Vector::Four, 4) };
            let e = &mut self.code.e;
            for base in bases.iter().step_by(together) {
                let base = match &shift {
                    Some(shift) => e.add("at", PtxType::S32, base, shift),
                    None => base.clone(),
                };
                let regs: Vec<Reg> = (0..together).map(|_| e.reg(name, RegType::for_type(ty))).collect();
                e.push(P::LdShared { vector, ty }, [Operand::Vector(regs.clone()), super::emit::at(&base, offset)]);
                out.extend(regs.into_iter().map(Operand::Reg));
            }
            return Ok(out);
        }
        for base in bases {
            let e = &mut self.code.e;
            let base = match &shift {
                Some(shift) => e.add("at", PtxType::S32, base, shift),
                None => base.clone(),
            };
            out.push(e.load_shared(name, elem, &base, offset).value);
        }
        Ok(out)
    }

    /// Computes one step of all sums of a thread.
    fn step(&mut self, bases: &[Vec<Operand>; 2], k: &Operand, step: &Operand, sums: &[Reg]) -> Result<(), String> {
        let left = self.elements(0, &bases[0], k, step)?;
        let right = self.elements(1, &bases[1], k, step)?;
        let ty = ptx_type(self.elem);
        let op = match self.elem {
            Elem::F32 => {
                P::Fma { round: Round::Nearest, ftz: crate::ptx::words::Ftz::Keep, sat: Sat::Wrap, relu: Relu::No, ty }
            }
            _ => P::Mad { half: Half::Low, ty },
        };
        for (r, a) in left.iter().enumerate() {
            for (c, b) in right.iter().enumerate() {
                if let Some(sum) = sums.get(r * right.len() + c) {
                    let sum = Operand::Reg(*sum);
                    self.code.e.push(op, [sum.clone(), a.clone(), b.clone(), sum]);
                }
            }
        }
        Ok(())
    }

    /// Number of a thread's columns that can be stored as a vector, if any. They are all within the
    /// tile's allocation; elements beyond its extents are unspecified and belong to no other
    /// thread.
    fn groups_of_columns(&self) -> Option<usize> {
        let [rows, cols] = &self.sides;
        let fits = |s: &Side| s.extent.capacity() % s.stride() == 0;
        let together = cols.own == TOGETHER || cols.own == 2 * TOGETHER;
        let aligned = self.elem != Elem::I64 && self.result.pitch().is_multiple_of(16);
        (fits(rows) && fits(cols) && cols.neighbours && together && aligned).then_some(TOGETHER as usize)
    }

    /// Stores the sums plus the accumulator.
    fn leave(&mut self, own: &[Vec<Operand>; 2], sums: &[Reg]) -> Result<(), String> {
        let s32 = PtxType::S32;
        let (result, adds, elem) = (self.result.clone(), self.adds.clone(), self.elem);
        let exact = [0, 1].map(|side| {
            let s = &self.sides[side];
            matches!(s.extent, Extent::Static(n) if n % s.stride() == 0)
        });
        if let (None, Some(groups)) = (&adds, self.groups_of_columns()) {
            for (r, row) in own[0].iter().enumerate() {
                for c in (0..own[1].len()).step_by(groups) {
                    let address = self.code.scratch_address(&result, &[row.clone(), own[1][c].clone()]);
                    let sums = sums.iter().skip(r * own[1].len() + c).take(groups);
                    let lanes: Vec<Lane> = sums.map(|sum| Lane { value: Operand::Reg(*sum), elem }).collect();
                    self.code.e.store_shared_wide(&address, offset_of(&result)?, &lanes);
                }
            }
            return Ok(());
        }
        let [row_limit, col_limit] = [self.sides[0].limit.clone(), self.sides[1].limit.clone()];
        let e = &mut self.code.e;
        let mut in_cols: Vec<Option<Operand>> = Vec::new();
        for col in &own[1] {
            in_cols.push((!exact[1]).then(|| e.compare("there", Compare::Lt, s32, col, &col_limit)));
        }
        for (r, row) in own[0].iter().enumerate() {
            let in_row = (!exact[0]).then(|| self.code.e.compare("there", Compare::Lt, s32, row, &row_limit));
            for (c, col) in own[1].iter().enumerate() {
                let Some(sum) = sums.get(r * own[1].len() + c) else { continue };
                let there = self.code.e.both(in_row.clone(), in_cols.get(c).cloned().flatten());
                let past = self.code.e.new_label("past");
                if let Some(p) = &there {
                    self.code.e.jump_if(p, true, false, &past);
                }
                let place = [row.clone(), col.clone()];
                let address = self.code.scratch_address(&result, &place);
                let mut x = Lane { value: Operand::Reg(*sum), elem };
                if let Some(t) = &adds {
                    let from = self.code.scratch_address(t, &place);
                    let before = self.code.e.load_shared("acc", elem, &from, offset_of(t)?);
                    x = self.code.e.binary("sum", BinaryOp::Add, &before, &x)?;
                }
                self.code.e.store_shared(&address, offset_of(&result)?, &x);
                if there.is_some() {
                    self.code.e.label(&past);
                }
            }
        }
        Ok(())
    }
}
