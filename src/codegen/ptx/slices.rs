//! Slices: some `k` steps of a matmul's window, staged in shared memory.
//!
//! In: a window, and a range of steps. Out: loads into registers, and stores to a slice, which is
//! ordered by step with the rows (or columns) of a step contiguous, and zero past the end of the
//! window. Between loads and stores the matmul works on another slice.
//!
//! Mapping to threads:
//!
//! | the window | a thread loads | and stores | neighbouring threads |
//! |---|---|---|---|
//! | dense along steps, aligned | 4 steps of a row | to 4 steps | 2 groups of steps, then rows: a warp's stores of a step are 16 rows, and 16 of 4 steps on, which lie 16 banks apart |
//! | dense along rows, aligned | 4 rows of a step | 16 bytes | rows |
//! | any other | one element | one element | contiguous elements |
//!
//! (Rows are rows of the left operand, or columns of the right one.)

use super::emit::at;
use super::lanes::{Lane, ptx_type};
use super::mapping::power_of_two;
use super::multiples::WIDTH;
use super::product::{DotEmitter, Source, size};
use crate::ptx::words::{Compare, Vector};
use crate::ptx::{Op as P, Operand, Type as PtxType};
use crate::tile::Extent;

/// The part of each slice that a thread copies.
pub(super) struct Item {
    /// Source address at step 0 of the slice; for integers with scales, of the window.
    from: Operand,
    /// Its row, and its first step within the slice.
    own: Operand,
    step: Operand,
    /// Destination in the first slice.
    to: Operand,
    /// Predicates, unless always true: is it in the slice; is its row in the window?
    inside: Option<Operand>,
    there: Option<Operand>,
    /// Its shape.
    group: Group,
}

/// Elements copied together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    One,
    Steps,
    Rows,
}

impl DotEmitter<'_, '_> {
    /// The items that this thread copies for a side, whose block begins at `start`.
    pub(super) fn items(&mut self, side: usize, start: &Operand) -> Vec<Item> {
        let (Some(w), Source::Slice { offset, pitch }) = (&self.windows[side], &self.sources[side]) else {
            return Vec::new();
        };
        let (offset, pitch) = (*offset, *pitch);
        let (own_axis, step_axis) = if side == 0 { (0, 1) } else { (1, 0) };
        let (base, own_bytes, step_bytes) = (w.base.clone(), w.strides[own_axis].clone(), w.strides[step_axis].clone());
        let (width, depth) = (self.width(side), self.depth);
        let whole = |extent| self.code.multiples.is_whole(extent);
        let power = width >= 16 && width & (width - 1) == 0;
        let group = match w.wide {
            Some(axis) if axis == step_axis && power && whole(self.step_extent) => Group::Steps,
            Some(axis) if axis == own_axis && power && whole(self.sides[side].extent) => Group::Rows,
            _ => Group::One,
        };
        let is_scaled = w.scaled.is_some();
        let steps_first = w.dense[step_axis] && !w.dense[own_axis];
        let exact = matches!(self.sides[side].extent, Extent::Static(n) if n % width == 0);
        let (limit, shared, size) = (self.sides[side].limit.clone(), self.code.shared.clone(), size(self.elem));
        let places = self.places(group, width, depth, steps_first);
        let e = &mut self.code.e;
        let mut out = Vec::new();
        for (own_at, step, inside) in places {
            let own = e.add("own", PtxType::S32, start, &own_at);
            let mut there = inside.clone();
            if !exact {
                let p = e.compare("there", Compare::Lt, PtxType::S32, &own, &limit);
                there = e.both(there, Some(p));
            }
            let mut from = e.advance(&base, &own, &own_bytes);
            if !is_scaled {
                from = e.advance(&from, &step, &step_bytes);
            }
            let to = e.mad32("to", &step, pitch, &shared);
            let to = e.mad32("to", &own_at, size, &to);
            let to = e.add("to", PtxType::S32, &to, &Operand::Int(i64::from(offset)));
            out.push(Item { from, own, step, to, inside, there, group });
        }
        out
    }

    /// First row and step of each item of this thread, and whether it is in the slice, unless
    /// always true.
    fn places(
        &mut self,
        group: Group,
        width: i64,
        depth: i64,
        steps_first: bool,
    ) -> Vec<(Operand, Operand, Option<Operand>)> {
        let (threads, tid) = (i64::from(self.code.threads), self.code.tid.clone());
        let (ty, s32, bits) = (PtxType::U32, PtxType::S32, PtxType::B32);
        let e = &mut self.code.e;
        let mut out = Vec::new();
        let low = |e: &mut super::emit::Emit, x: &Operand, n: i64| {
            e.make("low", P::And { ty: bits }, ty, &[x.clone(), Operand::Int(n - 1)])
        };
        let high = |e: &mut super::emit::Emit, x: &Operand, n: i64| {
            e.make("high", P::Shr { ty }, ty, &[x.clone(), Operand::Int(i64::from(n.trailing_zeros()))])
        };
        if group != Group::One {
            let all = width * depth / WIDTH;
            let mut first = 0;
            while first < all {
                let n = e.add("group", s32, &tid, &Operand::Int(first));
                let inside =
                    (first + threads > all).then(|| e.compare("inside", Compare::Lt, s32, &n, &Operand::Int(all)));
                let (own, step) = if group == Group::Steps {
                    // Two groups of steps, all rows, the other groups of steps.
                    let (pair, rest) = (low(e, &n, 2), high(e, &n, 2));
                    let (own, more) = (low(e, &rest, width), high(e, &rest, width));
                    let more = e.mul("steps", s32, &more, &Operand::Int(2));
                    let steps = e.add("steps", s32, &more, &pair);
                    (own, e.mul("first", s32, &steps, &Operand::Int(WIDTH)))
                } else {
                    let (own, step) = (low(e, &n, width / WIDTH), high(e, &n, width / WIDTH));
                    (e.mul("first", s32, &own, &Operand::Int(WIDTH)), step)
                };
                out.push((own, step, inside));
                first += threads;
            }
            return out;
        }
        // The fast axis of the copy, and the number of threads along it.
        let (fast_extent, slow_extent) = if steps_first { (depth, width) } else { (width, depth) };
        let fast_threads = i64::from(power_of_two(fast_extent)).min(threads);
        let slow_threads = threads / fast_threads;
        let (fast, slow) = (low(e, &tid, fast_threads), high(e, &tid, fast_threads));
        let mut f = 0;
        while f < fast_extent {
            let mut s = 0;
            while s < slow_extent {
                let fast_at = e.add("fast", s32, &fast, &Operand::Int(f));
                let slow_at = e.add("slow", s32, &slow, &Operand::Int(s));
                let mut inside = None;
                for (at, first, extent, threads) in
                    [(&fast_at, f, fast_extent, fast_threads), (&slow_at, s, slow_extent, slow_threads)]
                {
                    if first + threads > extent {
                        let p = e.compare("inside", Compare::Lt, s32, at, &Operand::Int(extent));
                        inside = e.both(inside, Some(p));
                    }
                }
                out.push(if steps_first { (slow_at, fast_at, inside) } else { (fast_at, slow_at, inside) });
                s += slow_threads;
            }
            f += fast_threads;
        }
        out
    }

    /// Loads the items of a slice whose first step is `k`; zeros past the end of the window, or if
    /// `more` is false.
    ///
    /// # Errors
    /// As operations on elements.
    pub(super) fn fetch(
        &mut self,
        side: usize,
        items: &[Item],
        k: &Operand,
        more: Option<&Operand>,
    ) -> Result<Vec<Vec<Lane>>, String> {
        let Some(w) = &self.windows[side] else { return Ok(Vec::new()) };
        let scaled = w.scaled.clone();
        let step_bytes = w.strides[1 - side].clone();
        let (elem, read_only) = (w.elem, w.read_only);
        let exact = matches!(self.step_extent, Extent::Static(n) if n > 0 && n % self.depth == 0);
        let (steps, computed) = (self.steps.clone(), self.elem);
        let e = &mut self.code.e;
        let mut loaded = Vec::new();
        for item in items {
            let mut there = e.both(item.there.clone(), more.cloned());
            if !exact {
                let step = e.add("at_step", PtxType::S32, k, &item.step);
                let p = e.compare("there", Compare::Lt, PtxType::S32, &step, &steps);
                there = e.both(there, Some(p));
            }
            let (mut at_step, mut scale) = (k.clone(), None);
            if let Some(s) = &scaled {
                let step = e.add("at_step", PtxType::S32, k, &item.step);
                (at_step, scale) = e.scale_of(s, &step, &item.own, there.as_ref());
            }
            let address = e.advance(&item.from, &at_step, &step_bytes);
            let lanes = match item.group {
                Group::One => vec![e.load("x", elem, &address, read_only, there.as_ref())],
                Group::Steps | Group::Rows => {
                    e.load_wide("x", elem, &address, read_only, WIDTH as usize, there.as_ref())
                }
            };
            loaded.push((lanes, scale));
        }
        let mut out = Vec::new();
        for (lanes, scale) in loaded {
            let lanes = lanes.iter().map(|x| match &scale {
                None => Ok(e.cast("x", x, computed)),
                Some(scale) => e.times_scale(x, scale),
            });
            out.push(lanes.collect::<Result<_, String>>()?);
        }
        Ok(out)
    }

    /// Stores loaded items to a slice, `phase` bytes after the first one.
    pub(super) fn put(&mut self, side: usize, items: &[Item], loaded: &[Vec<Lane>], phase: &Operand) {
        let Source::Slice { pitch, .. } = &self.sources[side] else { return };
        let pitch = i32::try_from(*pitch).unwrap_or(0);
        let ty = ptx_type(self.elem);
        let e = &mut self.code.e;
        for (item, lanes) in items.iter().zip(loaded) {
            let to = e.add("to", PtxType::S32, &item.to, phase);
            if item.group == Group::Rows && item.inside.is_none() {
                e.store_shared_wide(&to, 0, lanes);
                continue;
            }
            let distance = if item.group == Group::Steps { pitch } else { ty.bytes() as i32 };
            for (n, lane) in (0..).zip(lanes) {
                let value = e.in_reg(&lane.value, ty);
                let operands = [at(&to, n * distance), value];
                let op = P::StShared { vector: Vector::One, ty };
                match &item.inside {
                    Some(p) => e.push_if(p, op, operands),
                    None => e.push(op, operands),
                }
            }
        }
    }
}
