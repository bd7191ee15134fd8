//! Matmuls of few rows (mode `split`): the right operand is read once, 16 bytes per thread at a
//! time, and its `k` steps are divided among the threads.
//!
//! In: a `dot` whose right operand is a window or a panel of integers in chunks of 16 bytes (see
//! `DotMode::Split`). Out: its result in shared memory.
//!
//! ```text
//! steps contiguous:       a warp has a column (or some) and its lanes the chunks of its steps
//!                         sums of a column: one a lane, added by shuffles
//! columns contiguous:     some lanes have the chunks of a step's columns, the others other steps
//!                         sums of a chunk's columns: one for each, added by shuffles and through shared memory
//! ```
//!
//! Several chunks are loaded before the first one is used, since such a matmul is bound by memory.
//! Must not know: why a matmul has this mode.

use super::emit::at;
use super::kernel::{Code, WARP, offset_of};
use super::lanes::Lane;
use super::mapping::power_of_two;
use super::scales::Scaled;
use crate::ptx::words::{Compare, Ftz, LoadCache, ReadOnly, Relu, Round, Sat, Vector};
use crate::ptx::{Op as P, Operand, Reg, RegType, Type as PtxType};
use crate::scalar::BinaryOp;
use crate::shape::Elem;
use crate::tile::{InstData, Op, TileType, Value};

/// Bytes of a chunk.
const CHUNK: i64 = 16;
/// Chunks that a thread loads together, if it has that many.
const TOGETHER: i64 = 4;
/// The type of places.
const S32: PtxType = PtxType::S32;

/// An operand in memory: address of its first element, strides in bytes between steps and between
/// rows (or columns), element type.
#[derive(Clone)]
struct OperandMemory {
    base: Operand,
    step: Operand,
    other: Operand,
    elem: Elem,
    read_only: bool,
    scaled: Option<Scaled>,
}

/// State of compiling a matmul.
struct Split<'c, 'a> {
    code: &'c mut Code<'a>,
    left: OperandMemory,
    right: OperandMemory,
    /// Elements of a chunk of the right operand (two per byte with 4 bits).
    width: i64,
    rows: i64,
    /// Capacity and number of columns.
    cols: i64,
    col_limit: Operand,
    /// Are all columns known to exist?
    all_cols: bool,
    steps: Operand,
    /// Initial value of each sum, the tile to add, and the result.
    first: Option<Lane>,
    adds: Option<TileType>,
    result: TileType,
}

impl Code<'_> {
    /// Compiles a matmul of few rows.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(super) fn split(&mut self, data: &InstData) -> Result<(), String> {
        let body = self.body;
        let ([a, b, acc], Some(v)) = (data.operands.as_slice(), data.result) else {
            return Err("a matmul needs two operands and an accumulator".into());
        };
        let tile = |v: &Value| body.ty(*v).tile().cloned().ok_or("a matmul operand is not a tile");
        let (a_tile, result) = (tile(a)?, tile(&v)?);
        let (left, right) = (self.place(*a, 0)?, self.place(*b, 1)?);
        let first = if body.ty(*acc).tile().is_none() { Some(self.scalar(*acc)?) } else { None };
        let width = CHUNK / i64::try_from(right.elem.size()).unwrap_or(1);
        let cols = result.cols.capacity();
        let split = Split {
            width,
            rows: result.rows.capacity(),
            cols,
            col_limit: self.extent(result.cols)?,
            all_cols: result.cols.bound().is_none(),
            steps: self.extent(a_tile.cols)?,
            first,
            adds: body.ty(*acc).tile().cloned(),
            result,
            left,
            right,
            code: self,
        };
        if split.right.step == Operand::Int(CHUNK / width) && split.right.scaled.is_none() {
            split.of_steps()
        } else {
            split.of_columns()
        }
    }

    /// The location of an operand; `other` is the axis of its tile that is not along steps.
    fn place(&mut self, v: Value, other: usize) -> Result<OperandMemory, String> {
        let Some(InstData { op, operands, .. }) = self.body.def_inst(v) else {
            return Err("an operand is not in memory".into());
        };
        let (buffer, mut indices) = operands.split_first().ok_or("an operand without a buffer")?;
        let (along, scaled) = match op {
            Op::Window { rows, cols } => ([*rows, *cols], None),
            Op::LoadScaled { bits } => {
                let (scales, places) = indices.split_last().ok_or("a panel without scales")?;
                indices = places;
                let axis = indices.len().checked_sub(2).ok_or("a panel has fewer than two axes")?;
                ([Some(axis), Some(axis + 1)], Some(self.scales(*scales, indices, *bits)?))
            }
            _ => return Err("an operand is not in memory".into()),
        };
        let base = self.address(*buffer, indices)?;
        let (_, strides, elem, read_only) = self.buffer(*buffer)?;
        let bytes = along.map(|axis| axis.and_then(|a| strides.get(a).cloned()).unwrap_or(Operand::Int(0)));
        let [rows, cols] = bytes.map(|stride| self.stride_bytes(&stride, elem));
        let (step, other) = if other == 0 { (cols, rows) } else { (rows, cols) };
        Ok(OperandMemory { base, step, other, elem, read_only, scaled })
    }
}

impl Split<'_, '_> {
    /// Registers of `f32` that are zero.
    fn zeros(&mut self, name: &str, count: i64) -> Vec<Reg> {
        let e = &mut self.code.e;
        let one = |_| {
            let r = e.reg(name, RegType::F32);
            e.assign(r, PtxType::F32, &Operand::F32(0));
            r
        };
        (0..count).map(one).collect()
    }

    /// Loads 16 bytes; zeros if `there` is false. `read_only`: the memory is not written by the
    /// kernel.
    fn chunk(
        &mut self,
        name: &str,
        read_only: bool,
        (address, offset): (&Operand, i32),
        there: Option<&Operand>,
    ) -> Vec<Reg> {
        let e = &mut self.code.e;
        let list: Vec<Reg> = (0..4).map(|_| e.reg(name, RegType::B32)).collect();
        let (vector, ty) = (Vector::Four, PtxType::B32);
        let op = match read_only {
            true => P::LdReadOnly { cache: ReadOnly::Default, vector, ty },
            false => P::Ld { cache: LoadCache::Default, vector, ty },
        };
        let operands = [Operand::Vector(list.clone()), at(address, offset)];
        match there {
            None => e.push(op, operands),
            Some(p) => {
                list.iter().for_each(|r| e.assign(*r, PtxType::B32, &Operand::Int(0)));
                e.push_if(p, op, operands);
            }
        }
        list
    }

    /// Widens packed floats to `f32`.
    fn floats(&mut self, words: &[Reg], elem: Elem) -> Vec<Operand> {
        let e = &mut self.code.e;
        let mut out = Vec::new();
        for word in words.iter().map(|r| Operand::Reg(*r)) {
            match elem {
                Elem::BF16 => {
                    let low = e.make("low", P::Shl { ty: PtxType::B32 }, S32, &[word.clone(), Operand::Int(16)]);
                    let mask = Operand::Int(0xffff_0000);
                    let high = e.make("high", P::And { ty: PtxType::B32 }, S32, &[word, mask]);
                    out.extend([low, high]);
                }
                Elem::F16 => {
                    let halves = [e.reg("low", RegType::B16), e.reg("high", RegType::B16)];
                    e.push(P::Unpack { ty: PtxType::B32 }, [Operand::Vector(halves.to_vec()), word]);
                    let op = P::CvtWiden { ftz: Ftz::Keep, to: PtxType::F32, from: PtxType::F16 };
                    out.extend(halves.map(|h| e.make("x", op, PtxType::F32, &[Operand::Reg(h)])));
                }
                _ => out.push(word),
            }
        }
        out
    }

    /// `sum = a b + sum`
    fn add(&mut self, sum: Reg, a: &Operand, b: &Operand) {
        let ty = PtxType::F32;
        let op = P::Fma { round: Round::Nearest, ftz: Ftz::Keep, sat: Sat::Wrap, relu: Relu::No, ty };
        let sum = Operand::Reg(sum);
        self.code.e.push(op, [sum.clone(), a.clone(), b.clone(), sum]);
    }

    /// Sums over lanes whose indices differ in bits `least` and above.
    fn over_lanes(&mut self, sum: Reg, least: u32) -> Result<Lane, String> {
        let mut x = Lane { value: Operand::Reg(sum), elem: Elem::F32 };
        let mut distance = WARP / 2;
        while distance >= least {
            let other = self.code.e.exchanged(&x, distance);
            x = self.code.e.binary("sum", BinaryOp::Add, &x, &other)?;
            distance /= 2;
        }
        Ok(x)
    }

    /// Stores a sum as an element of the result.
    fn leave(&mut self, row: i64, col: &Operand, sum: Lane) -> Result<(), String> {
        let place = [Operand::Int(row), col.clone()];
        let mut x = sum;
        if let Some(first) = &self.first {
            x = self.code.e.binary("sum", BinaryOp::Add, first, &x)?;
        }
        if let Some(t) = self.adds.clone() {
            let from = self.code.scratch_address(&t, &place);
            let before = self.code.e.load_shared("acc", Elem::F32, &from, offset_of(&t)?);
            x = self.code.e.binary("sum", BinaryOp::Add, &before, &x)?;
        }
        let address = self.code.scratch_address(&self.result, &place);
        self.code.e.store_shared(&address, offset_of(&self.result)?, &x);
        Ok(())
    }

    /// A uniform loop over steps from 0 to `end`, a fixed number at a time.
    fn each(
        &mut self,
        end: &Operand,
        by: i64,
        body: impl FnOnce(&mut Self, &Operand) -> Result<(), String>,
    ) -> Result<(), String> {
        let e = &mut self.code.e;
        let counter = e.reg("step", RegType::B32);
        let k = Operand::Reg(counter);
        let (top, done) = (e.new_label("steps"), e.new_label("summed"));
        e.assign(counter, PtxType::B32, &Operand::Int(0));
        e.label(&top);
        let none = e.compare("none", Compare::Ge, S32, &k, end);
        e.jump_if(&none, false, true, &done);
        body(self, &k)?;
        let e = &mut self.code.e;
        e.push(P::Add { sat: Sat::Wrap, ty: S32 }, [k.clone(), k, Operand::Int(by)]);
        e.jump(&top);
        e.label(&done);
        Ok(())
    }

    /// This thread's index in its group of `of` threads, and the group's index.
    fn thread(&mut self, of: i64) -> (Operand, Operand) {
        let (ty, tid) = (PtxType::U32, self.code.tid.clone());
        let e = &mut self.code.e;
        let own = e.make("lane", P::And { ty: PtxType::B32 }, ty, &[tid.clone(), Operand::Int(of - 1)]);
        let bits = Operand::Int(i64::from(of.trailing_zeros()));
        (own, e.make("group", P::Shr { ty }, ty, &[tid, bits]))
    }

    /// Steps are contiguous.
    fn of_steps(mut self) -> Result<(), String> {
        let warps = i64::from(self.code.threads / WARP);
        let (lane, warp) = self.thread(i64::from(WARP));
        let most = (self.cols + warps - 1) / warps;
        // A thread processes some columns at a time, and some chunks of each.
        let own = [4, 2, 1].into_iter().find(|n| most % n == 0 && n * self.rows <= 16).unwrap_or(1);
        let deep = TOGETHER / own;
        let sizes = [self.left.elem, self.right.elem].map(|e| i64::try_from(e.size()).unwrap_or(1));
        let (width, lanes) = (self.width, i64::from(WARP));
        let own_step = self.code.e.mul("own", S32, &lane, &Operand::Int(width));
        for group in 0..most / own {
            let mut cols = Vec::new();
            for n in 0..own {
                let col = self.code.e.add("col", S32, &warp, &Operand::Int(warps * (group * own + n)));
                let exact = self.all_cols && self.cols % warps == 0;
                let limit = self.col_limit.clone();
                let there = (!exact).then(|| self.code.e.compare("there", Compare::Lt, S32, &col, &limit));
                let from = self.code.e.advance(&self.right.base, &col, &self.right.other);
                cols.push((col, there, from));
            }
            let rows: Vec<Operand> = (0..self.rows)
                .map(|r| self.code.e.advance(&self.left.base, &Operand::Int(r), &self.left.other))
                .collect();
            let sums = self.zeros("sum", own * self.rows);
            let by = lanes * width * deep;
            let exact = matches!(self.steps, Operand::Int(n) if n % by == 0);
            let end = self.steps.clone();
            self.each(&end, by, |s, k| {
                let mut loaded = Vec::new();
                for n in 0..deep {
                    let step = s.code.e.add("own", S32, k, &own_step);
                    let step = s.code.e.add("own", S32, &step, &Operand::Int(n * lanes * width));
                    let inside = (!exact).then(|| s.code.e.compare("in", Compare::Lt, S32, &step, &s.steps.clone()));
                    let mut of_cols = Vec::new();
                    for (_, there, from) in &cols {
                        let at = s.code.e.advance(from, &step, &Operand::Int(sizes[1]));
                        let p = s.code.e.both(inside.clone(), there.clone());
                        of_cols.push(s.chunk("w", s.right.read_only, (&at, 0), p.as_ref()));
                    }
                    let mut of_rows = Vec::new();
                    for row in &rows {
                        let at = s.code.e.advance(row, &step, &Operand::Int(sizes[0]));
                        let count = width * sizes[0] / CHUNK;
                        let mut words = Vec::new();
                        if count == 0 {
                            return Err("a left operand in half chunks".into());
                        }
                        for part in 0..count {
                            let from = (&at, (part * CHUNK) as i32);
                            words.extend(s.chunk("x", s.left.read_only, from, inside.as_ref()));
                        }
                        of_rows.push(words);
                    }
                    loaded.push((of_cols, of_rows));
                }
                for (of_cols, of_rows) in loaded {
                    let of_cols: Vec<Vec<Operand>> = of_cols.iter().map(|w| s.floats(w, s.right.elem)).collect();
                    for (row, words) in of_rows.iter().enumerate() {
                        let x = s.floats(words, s.left.elem);
                        for (col, w) in of_cols.iter().enumerate() {
                            let sum = *sums.get(row * of_cols.len() + col).ok_or("a sum is missing")?;
                            for (x, w) in x.iter().zip(w) {
                                s.add(sum, x, w);
                            }
                        }
                    }
                }
                Ok(())
            })?;
            let leads = self.code.e.compare("leads", Compare::Eq, PtxType::U32, &lane, &Operand::Int(0));
            for row in 0..self.rows {
                for (n, (col, there, _)) in cols.iter().enumerate() {
                    let at = usize::try_from(row * own).unwrap_or(0) + n;
                    let sum = self.over_lanes(*sums.get(at).ok_or("a sum is missing")?, 1)?;
                    let skip = self.code.e.new_label("others");
                    let writes = self.code.e.both(Some(leads.clone()), there.clone());
                    if let Some(p) = &writes {
                        self.code.e.jump_if(p, true, false, &skip);
                    }
                    self.leave(row, col, sum)?;
                    self.code.e.label(&skip);
                }
            }
        }
        Ok(())
    }

    /// Columns are contiguous.
    fn of_columns(mut self) -> Result<(), String> {
        let width = self.width;
        let lanes = i64::from(power_of_two((self.cols + width - 1) / width)).min(i64::from(WARP));
        let threads = i64::from(self.code.threads);
        let (lane, slow) = self.thread(lanes);
        let col = self.code.e.mul("col", S32, &lane, &Operand::Int(width));
        let exact = self.all_cols && self.cols == lanes * width;
        let limit = self.col_limit.clone();
        let there = (!exact).then(|| self.code.e.compare("there", Compare::Lt, S32, &col, &limit));
        let size = i64::try_from(self.right.elem.size()).unwrap_or(1);
        let from = self.code.e.advance(&self.right.base, &col, &Operand::Int(size));
        // Steps of a row of the buffer.
        let halves = self.right.scaled.as_ref().is_some_and(|s| s.bits == 4);
        let each = if halves { 2 } else { 1 };
        let end = match (halves, self.steps.clone()) {
            (false, steps) => steps,
            (true, steps) => {
                let up = self.code.e.add("bytes", S32, &steps, &Operand::Int(1));
                match up {
                    Operand::Int(n) => Operand::Int(n / 2),
                    up => self.code.e.make("bytes", P::Shr { ty: PtxType::U32 }, S32, &[up, Operand::Int(1)]),
                }
            }
        };
        let deep = if self.right.scaled.is_some() { 1 } else { TOGETHER };
        let apart = threads / lanes;
        let by = apart * deep;
        let whole = matches!(end, Operand::Int(n) if n % by == 0) && there.is_none();
        let odd = !matches!(self.steps, Operand::Int(n) if n % each == 0);
        let sums = self.zeros("sum", self.rows * width);
        let bound = end.clone();
        self.each(&bound, by, |s, k| {
            let mut loaded = Vec::new();
            for n in 0..deep {
                let row = s.code.e.add("own", S32, k, &slow);
                let row = s.code.e.add("own", S32, &row, &Operand::Int(n * apart));
                let inside = (!whole).then(|| s.code.e.compare("in", Compare::Lt, S32, &row, &end));
                let p = s.code.e.both(inside.clone(), there.clone());
                let at = s.code.e.advance(&from, &row, &s.right.step.clone());
                let words = s.chunk("w", s.right.read_only, (&at, 0), p.as_ref());
                // Left elements, and scales.
                let first = s.code.e.mul("own", S32, &row, &Operand::Int(each));
                let mut xs = Vec::new();
                for half in 0..each {
                    let step = s.code.e.add("own", S32, &first, &Operand::Int(half));
                    let last =
                        (half > 0 && odd).then(|| s.code.e.compare("in", Compare::Lt, S32, &step, &s.steps.clone()));
                    let p = s.code.e.both(inside.clone(), last);
                    for r in 0..s.rows {
                        let at = s.code.e.advance(&s.left.base.clone(), &Operand::Int(r), &s.left.other.clone());
                        let at = s.code.e.advance(&at, &step, &s.left.step.clone());
                        xs.push(s.code.e.load("x", s.left.elem, &at, s.left.read_only, p.as_ref()).value);
                    }
                }
                let scales = match s.right.scaled.clone() {
                    None => Vec::new(),
                    Some(scaled) => s.row_of_scales(&scaled, &first, &col, p.as_ref()),
                };
                loaded.push((words, xs, scales));
            }
            for (words, xs, scales) in loaded {
                for half in 0..each {
                    let w = if scales.is_empty() {
                        s.floats(&words, s.right.elem)
                    } else {
                        s.numbers(&words, &scales, (each == 2).then_some(half))?
                    };
                    for (n, w) in w.iter().enumerate() {
                        for r in 0..s.rows {
                            let x =
                                xs.get(usize::try_from(half * s.rows + r).unwrap_or(0)).ok_or("a row is missing")?;
                            let at = usize::try_from(r * width).unwrap_or(0) + n;
                            let sum = *sums.get(at).ok_or("a sum is missing")?;
                            s.add(sum, x, w);
                        }
                    }
                }
            }
            Ok(())
        })?;
        self.over_warps(&sums, (lanes, &lane))
    }

    /// The scales of a chunk's columns at a step.
    fn row_of_scales(&mut self, scaled: &Scaled, step: &Operand, col: &Operand, there: Option<&Operand>) -> Vec<Reg> {
        let e = &mut self.code.e;
        let bits = Operand::Int(i64::from(crate::tile::GROUP.trailing_zeros()));
        let group = e.make("group", P::Shr { ty: PtxType::U32 }, S32, &[step.clone(), bits]);
        let from = e.advance(&scaled.base, &group, &scaled.strides[0]);
        let from = e.advance(&from, col, &scaled.strides[1]);
        let mut out = Vec::new();
        for n in 0..self.width / 4 {
            out.extend(self.chunk("scale", scaled.read_only, (&from, (n * CHUNK) as i32), there));
        }
        out
    }

    /// Multiplies integers by their scales; `half` selects one of two steps per byte.
    fn numbers(&mut self, words: &[Reg], scales: &[Reg], half: Option<i64>) -> Result<Vec<Operand>, String> {
        let mut out = Vec::new();
        for (n, scale) in scales.iter().enumerate() {
            let word = Operand::Reg(*words.get(n / 4).ok_or("a number is missing")?);
            let byte = i64::try_from(n % 4).unwrap_or(0);
            // Shift its bits to the top, then arithmetically down.
            let (up, down) = match half {
                None => (24 - 8 * byte, 24),
                Some(half) => (28 - 8 * byte - 4 * half, 28),
            };
            let e = &mut self.code.e;
            let high = e.make("number", P::Shl { ty: PtxType::B32 }, S32, &[word, Operand::Int(up)]);
            let value = e.make("number", P::Shr { ty: S32 }, S32, &[high, Operand::Int(down)]);
            let number = e.cast("number", &Lane { value, elem: Elem::I32 }, Elem::F32);
            let scale = Lane { value: Operand::Reg(*scale), elem: Elem::F32 };
            out.push(e.binary("w", BinaryOp::Mul, &number, &scale)?.value);
        }
        Ok(out)
    }

    /// Adds the sums of all threads with the same columns: within a warp, then row by row through
    /// shared memory.
    fn over_warps(&mut self, sums: &[Reg], (lanes, lane): (i64, &Operand)) -> Result<(), String> {
        let warps = self.code.threads / WARP;
        let width = self.width;
        let pitch = u32::try_from(lanes * width * 4).unwrap_or(0);
        let room = self.code.transient_room(pitch * warps);
        let room = i32::try_from(room).map_err(|_| "the offset in shared memory is too large")?;
        let shared = self.code.shared.clone();
        let (in_warp, warp) = self.thread(i64::from(WARP));
        let e = &mut self.code.e;
        let line = e.mad32("line", &warp, pitch, &shared);
        let to = e.mad32("to", lane, u32::try_from(width * 4).unwrap_or(0), &line);
        let writes = e.compare("writes", Compare::Lt, PtxType::U32, &in_warp, &Operand::Int(lanes));
        let (tid, limit) = (self.code.tid.clone(), self.col_limit.clone());
        for row in 0..self.rows {
            let first = usize::try_from(row * width).unwrap_or(0);
            let mut own = Vec::new();
            for sum in sums.get(first..first + usize::try_from(width).unwrap_or(0)).ok_or("a sum is missing")? {
                own.push(self.over_lanes(*sum, u32::try_from(lanes).unwrap_or(WARP))?);
            }
            self.code.e.barrier();
            let e = &mut self.code.e;
            for (n, x) in own.iter().enumerate() {
                let offset = room + 4 * i32::try_from(n).unwrap_or(0);
                let op = P::StShared { vector: Vector::One, ty: PtxType::F32 };
                e.push_if(&writes, op, [at(&to, offset), x.value.clone()]);
            }
            e.barrier();
            let skip = e.new_label("others");
            let none = e.compare("none", Compare::Ge, S32, &tid, &limit);
            e.jump_if(&none, false, false, &skip);
            let from = e.mad32("from", &tid, 4, &shared);
            let mut sum: Option<Lane> = None;
            for warp in 0..warps {
                let offset = room + i32::try_from(warp * pitch).unwrap_or(0);
                let x = self.code.e.load_shared("part", Elem::F32, &from, offset);
                sum = Some(match sum {
                    None => x,
                    Some(sum) => self.code.e.binary("sum", BinaryOp::Add, &sum, &x)?,
                });
            }
            self.leave(row, &tid, sum.ok_or("the block has no warps")?)?;
            self.code.e.label(&skip);
        }
        Ok(())
    }
}
