//! Shared memory: slots, copies with `cp.async`, loads into fragments with `ldmatrix`.
//!
//! In: tiles of shared memory in swizzled panels (`layout`). Out: each thread copies chunks of 16
//! bytes, adjacent threads adjacent chunks of a row; each lane of `ldmatrix` supplies the address
//! of a row of 8 elements.

use super::code::{Code, Number, Shared, ValueLocation, address, int, word};
use super::layout::{BLOCK_COLS, BLOCK_ROWS, Panels, steps_of};
use crate::ptx::words::{Matrices, Prefetch, Trans, Vector};
use crate::ptx::{Op as P, Operand, Reg, RegType, Type as W};
use crate::scalar::BinaryOp;
use crate::shape::Elem;
use crate::ssa::Use;
use crate::tile::{BufferType, Extent, Fragment, GpuOp, Inst, InstData, Op, Space, TileType, Value};

/// A left operand, or a right one with its storage order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Rows by steps.
    A,
    /// Steps by columns.
    B,
    /// Columns by steps.
    BT,
}

impl Code<'_> {
    /// Reserves a slot of shared memory.
    pub(super) fn shared_slot(&mut self, data: &InstData, offset: u32) -> Result<(), String> {
        let v = data.result.ok_or("no result")?;
        let at = self.shared_base(i64::from(offset));
        self.held.insert(v, ValueLocation::Shared(Shared { at, barriers: None }));
        Ok(())
    }

    /// Starts an asynchronous copy of a tile.
    pub(super) fn copy_async(
        &mut self,
        data: &InstData,
        axes: [Option<usize>; 2],
        along_panels: Option<usize>,
    ) -> Result<(), String> {
        let [Some(rows), Some(cols)] = axes else {
            return Err("a copy of a single row or column in a kernel of fragments".into());
        };
        let (slot, buffer) = match data.operands.as_slice() {
            [slot, buffer, ..] => (*slot, *buffer),
            _ => return Err("an operand is missing".into()),
        };
        let v = data.result.ok_or("no result")?;
        let t = self.tile(slot)?.clone();
        let (panels, to) = (self.panels(&t)?, self.shared(slot)?);
        let (base, strides, ty) = self.buffer(buffer)?;
        let values: Vec<Value> = data.operands.iter().skip(2).copied().collect();
        let size = i64::try_from(t.elem.size()).unwrap_or(1);
        let along = |axis: usize| strides.get(axis).copied().ok_or("a stride is missing");
        if along(cols)? != Number::Known(1) {
            return Err("a copy of columns that are not contiguous".into());
        }
        let row_extent = ty.shape.get(rows).cloned().ok_or("an extent is missing")?;
        let col_extent = ty.shape.get(cols).cloned().ok_or("an extent is missing")?;
        let start = |n: usize| values.get(n).copied().ok_or("an index is missing");
        let rows_inside = self.fits(start(rows)?, t.rows, &row_extent);
        // A panel contains all columns of the axis.
        let cols_inside = along_panels.is_some() || self.fits(start(cols)?, t.cols, &col_extent);
        let next_panel = match along_panels {
            Some(axis) => Some(self.next_panel(axis, start(axis)?, ty, &strides, &t)?),
            None => None,
        };

        // This thread's chunk in a panel's rows, and its row among those copied at a time.
        let chunks = panels.chunks();
        let threads = 32 * self.group.warps;
        if chunks.count_ones() != 1 || threads % chunks != 0 {
            return Err(format!("a panel of {chunks} chunks is not copied by {threads} threads"));
        }
        let step = threads / chunks;
        let thread = self.group.thread;
        let chunk = self.and32("chunk", thread, chunks - 1);
        let row = self.shr32("line", thread, i64::from(chunks.trailing_zeros()));
        let exchanged = self.exchanged(panels, row, word(chunk));
        let there = self.mul32("to", row, panels.pitch());
        let there = self.add32("to", there, word(exchanged));
        let there = self.add32("to", there, word(to.at));
        if step % 8 != 0 {
            return Err(format!("{threads} threads copy {step} rows at a time, which is not a multiple of 8"));
        }

        // Source address.
        let mut indices = Vec::new();
        for v in &values {
            indices.push(self.index(*v)?);
        }
        let wide_row = self.widened("line", row);
        let first_row = self.arithmetic("line", BinaryOp::Add, Number::Reg(wide_row), index_at(&indices, rows)?)?;
        let wide_chunk = self.widened("chunk", chunk);
        let own_col = self.arithmetic("chunk", BinaryOp::Mul, Number::Reg(wide_chunk), Number::Known(16 / size))?;
        let first_col = self.arithmetic("chunk", BinaryOp::Add, own_col, index_at(&indices, cols)?)?;
        set(&mut indices, rows, first_row);
        set(&mut indices, cols, first_col);
        let from = self.element_address("from", base, &strides, &indices, size)?;
        let stride = self.arithmetic("step", BinaryOp::Mul, along(rows)?, Number::Known(size * step))?;
        let end_row = self.dim(&row_extent)?;
        let end_col = self.dim(&col_extent)?;
        for panel in 0..panels.count() {
            let mut from = Number::Reg(from);
            // Offset of a panel from the first one, and whether it is inside.
            let mut beside = panel * panels.pitch();
            let mut panel_inside = None;
            if let Some(next) = &next_panel {
                beside = 0;
                let way = self.arithmetic("panel", BinaryOp::Mul, next.stride, Number::Known(panel))?;
                from = self.arithmetic("from", BinaryOp::Add, from, way)?;
                if let Some((first, end)) = next.bound {
                    let n = self.arithmetic("panel", BinaryOp::Add, first, Number::Known(panel))?;
                    let n = self.in_register("panel", n);
                    panel_inside = Some(self.inside("inside", n, end));
                }
            }
            // Bytes of this chunk that are inside the columns.
            let bytes = match cols_inside {
                true => panel_inside.map(|inside| {
                    self.make("rest", RegType::B32, P::SelP { ty: W::B32 }, &[int(16), int(0), word(inside)])
                }),
                false => {
                    let col =
                        self.arithmetic("col", BinaryOp::Add, first_col, Number::Known(panel * chunks * 16 / size))?;
                    let rest = self.arithmetic("rest", BinaryOp::Sub, end_col, col)?;
                    let rest = self.arithmetic("rest", BinaryOp::Mul, rest, Number::Known(size))?;
                    let rest = self.arithmetic("rest", BinaryOp::Min, rest, Number::Known(16))?;
                    let low = self.low32("rest", rest);
                    let low = self.in_register32("rest", low);
                    let col = self.in_register("col", col);
                    let inside = self.inside("inside", col, end_col);
                    Some(self.make("rest", RegType::B32, P::SelP { ty: W::B32 }, &[word(low), int(0), word(inside)]))
                }
            };
            let mut n = 0;
            while n * step < panels.rows {
                let at = self.in_register("from", from);
                let size_of = match (rows_inside, bytes) {
                    (true, None) => None,
                    (true, Some(bytes)) => Some(bytes),
                    (false, _) => {
                        let row = self.arithmetic("line", BinaryOp::Add, first_row, Number::Known(n * step))?;
                        let row = self.in_register("line", row);
                        let inside = self.inside("inside", row, end_row);
                        let most = bytes.map_or(int(16), word);
                        let ty = P::SelP { ty: W::B32 };
                        Some(self.make("bytes", RegType::B32, ty, &[most, int(0), word(inside)]))
                    }
                };
                let mut operands = vec![
                    address(there, panel * panels.panel_bytes() + n * step * panels.pitch())?,
                    address(at, beside)?,
                    int(16),
                ];
                operands.extend(size_of.map(word));
                let op = P::CpAsyncGlobal { prefetch: Prefetch::Default };
                // Excess rows of the last round.
                if (n + 1) * step > panels.rows {
                    let left = panels.rows - n * step;
                    let here = self.compare32("here", crate::ptx::words::Compare::Lt, row, left);
                    self.e.kernel.push_if(here, false, op, operands);
                } else {
                    self.push(op, operands);
                }
                from = self.arithmetic("from", BinaryOp::Add, Number::Reg(at), stride)?;
                n += 1;
            }
        }
        self.held.insert(v, ValueLocation::Shared(to));
        Ok(())
    }

    /// Stride to the next panel of a buffer, and the valid panels; no bound if the whole tile is
    /// inside.
    fn next_panel(
        &mut self,
        axis: usize,
        first: Value,
        ty: &BufferType,
        strides: &[Number],
        t: &TileType,
    ) -> Result<NextPanel, String> {
        let size = i64::try_from(t.elem.size()).unwrap_or(1);
        let stride = strides.get(axis).copied().ok_or("a stride is missing")?;
        let stride = self.arithmetic("panel", BinaryOp::Mul, stride, Number::Known(size))?;
        let count = Extent::Static(self.panels(t)?.count());
        let extent = ty.shape.get(axis).ok_or("an extent is missing")?;
        let bound = match self.fits(first, count, extent) {
            true => None,
            false => Some((self.index(first)?, self.dim(extent)?)),
        };
        Ok(NextPanel { stride, bound })
    }

    /// Byte offset of a swizzled chunk in a row; rows that differ by multiples of 8 have the same
    /// swizzle.
    fn exchanged(&mut self, panels: Panels, row: Reg, chunk: Operand) -> Reg {
        let (shift, mask) = panels.exchange();
        let chunk = self.in_register32("chunk", chunk);
        let chunk = if mask == 0 {
            chunk
        } else {
            let bits = if shift == 0 { row } else { self.shr32("bits", row, shift) };
            let bits = self.and32("bits", bits, mask);
            self.make("chunk", RegType::B32, P::Xor { ty: W::B32 }, &[word(chunk), word(bits)])
        };
        self.shl32("chunk", chunk, 4)
    }

    pub(super) fn commit(&mut self, data: &InstData) -> Result<(), String> {
        let (x, v) = (*data.operands.first().ok_or("an operand is missing")?, data.result.ok_or("no result")?);
        let held = self.held.get(&x).cloned().ok_or("the committed copy does not exist")?;
        match held {
            ValueLocation::Shared(_) => self.push(P::CpCommit {}, []),
            _ => self.push(P::WgmmaCommit {}, []),
        }
        self.held.insert(v, held);
        Ok(())
    }

    /// Waits for a commit group.
    pub(super) fn wait(&mut self, inst: Inst, data: &InstData, pending: u32) -> Result<(), String> {
        let (x, v) = (*data.operands.first().ok_or("an operand is missing")?, data.result.ok_or("no result")?);
        let held = self.held.get(&x).cloned().ok_or("the copy to wait for does not exist")?;
        match held {
            ValueLocation::Shared(_) => {
                self.push(P::CpWait {}, [int(i64::from(pending))]);
                self.push(P::BarSync {}, [int(0)]);
            }
            _ => {
                self.keep_work_before(inst, x)?;
                self.push(P::WgmmaWait {}, [int(i64::from(pending))]);
            }
        }
        self.held.insert(v, held);
        Ok(())
    }

    /// Frees a tile of shared memory.
    pub(super) fn release(&mut self, data: &InstData) -> Result<(), String> {
        let (x, v) = (*data.operands.first().ok_or("an operand is missing")?, data.result.ok_or("no result")?);
        let shared = self.shared(x)?;
        self.held.insert(v, ValueLocation::Shared(shared));
        Ok(())
    }

    /// Loads a tile into fragments; deferred to the matmul that uses it if that is the next to
    /// access shared memory, which then loads it step by step.
    pub(super) fn load_fragment(&mut self, inst: Inst, data: &InstData) -> Result<(), String> {
        let (x, v) = (*data.operands.first().ok_or("an operand is missing")?, data.result.ok_or("no result")?);
        let shared = self.shared(x)?;
        let side = side(self.tile(v)?.space)?;
        if self.is_read_by_product(inst, v) {
            self.held.insert(v, ValueLocation::Unread(shared));
            return Ok(());
        }
        if side != Side::A {
            return Err("a right operand in registers is not supported".into());
        }
        let t = self.tile(x)?.clone();
        let share = self.share(&t)?;
        let lines = self.lines(self.panels(&t)?, shared, Side::A)?;
        let name = self.name(v);
        let mut out = Vec::new();
        for block in 0..share.row_blocks() {
            for step in 0..share.cols / steps_of(t.elem) {
                let list = self.matrices(&name, &lines, block * BLOCK_ROWS, step * 2, Matrices::Four, Trans::No)?;
                out.extend(self.as_operands(&name, t.elem, list));
            }
        }
        self.held.insert(v, ValueLocation::Operand(out));
        Ok(())
    }

    /// Is a fragment used once, by a matmul in its block, with no release or wait in between?
    fn is_read_by_product(&self, inst: Inst, v: Value) -> bool {
        let [Use::Operand(user, _)] = self.uses[v].as_slice() else { return false };
        let layout = &self.body.layout;
        let of = layout.iter().map(|b| &self.body.block(*b).insts).find(|list| list.contains(&inst));
        let Some(list) = of else { return false };
        let after = list.iter().skip_while(|i| **i != inst).skip(1);
        for i in after {
            if i == user {
                return true;
            }
            if matches!(
                self.body.inst(*i).op,
                Op::Gpu(GpuOp::Release | GpuOp::Wait { .. } | GpuOp::Barrier | GpuOp::CopyAsync { .. })
            ) {
                return false;
            }
        }
        false
    }

    /// Computes what a lane needs to supply the row addresses of `ldmatrix`.
    pub(super) fn lines(&mut self, panels: Panels, tile: Shared, side: Side) -> Result<Lines, String> {
        let lane = self.group.lane;
        // For four matrices: the row of 16, and which of two adjacent chunks (or blocks of rows).
        let low = self.and32("low", lane, 7);
        let first = self.shr32("bit", lane, 3);
        let first = self.and32("bit", first, 1);
        let second = self.shr32("bit", lane, 4);
        let (down, right) = match side {
            // Rows 0 to 15, then the same of the next chunk.
            Side::A => (first, second),
            // Steps 0 to 15, then the same of the next 8 columns.
            Side::B => (first, second),
            // Columns 0 to 7 with both chunks of steps, then columns 8 to 15.
            Side::BT => (second, first),
        };
        let eight = self.shl32("eight", down, 3);
        let mut row = self.add32("line", low, word(eight));
        if side == Side::A {
            let warp_rows = panels.rows / self.group.warps;
            let warp = self.group.warp;
            let first = self.mul32("line", warp, warp_rows);
            row = self.add32("line", row, word(first));
        }
        let at = self.mul32("line_at", row, panels.pitch());
        let at = self.add32("line_at", at, word(tile.at));
        let (shift, mask) = panels.exchange();
        let bits = if shift == 0 { row } else { self.shr32("bits", row, shift) };
        let bits = self.and32("bits", bits, mask);
        Ok(Lines { panels, at, bits, right })
    }

    /// Loads four matrices, starting at a constant row and even chunk; optionally transposed.
    pub(super) fn matrices(
        &mut self,
        name: &str,
        lines: &Lines,
        row: i64,
        chunk: i64,
        count: Matrices,
        trans: Trans,
    ) -> Result<Vec<Reg>, String> {
        let (panel, chunk) = lines.panels.panel_of(chunk);
        // The swizzled chunk of this lane: `((chunk + right) ^ bits) * 16`. `chunk` is even, so the
        // sum is an `or`.
        let bits = lines.bits;
        let own = self.make("chunk", RegType::B32, P::Or { ty: W::B32 }, &[word(lines.right), int(chunk)]);
        let own = self.make("chunk", RegType::B32, P::Xor { ty: W::B32 }, &[word(own), word(bits)]);
        let own = self.shl32("chunk", own, 4);
        let at = self.add32("at", lines.at, word(own));
        let n = match count {
            Matrices::Four => 4,
            Matrices::Two => 2,
            Matrices::One => 1,
        };
        let list: Vec<Reg> = (0..n).map(|_| self.reg(name, RegType::B32)).collect();
        let from = address(at, panel * lines.panels.panel_bytes() + row * lines.panels.pitch())?;
        self.push(P::LdMatrix { count, trans }, [Operand::Vector(list.clone()), from]);
        Ok(list)
    }

    /// Converts loaded registers to operands of the tensor core: `f32` is rounded to `tf32`.
    pub(super) fn as_operands(&mut self, name: &str, elem: Elem, list: Vec<Reg>) -> Vec<Reg> {
        match elem {
            Elem::F32 => list.into_iter().map(|r| self.make(name, RegType::B32, P::CvtTf32 {}, &[word(r)])).collect(),
            _ => list,
        }
    }

    /// Computes what a lane needs to load `f32` of a right operand with the inner index along the
    /// rows, which `ldmatrix` cannot transpose: of 8 steps and 8 columns, a lane has steps
    /// `lane % 4` and `lane % 4 + 4`, and column `lane / 4`.
    pub(super) fn words(&mut self, panels: Panels, tile: Shared) -> Words {
        let (column, lane) = (self.group.row, self.group.lane);
        let step = self.and32("step", lane, 3);
        let second = self.shr32("chunk", column, 2);
        let within = self.and32("within", column, 3);
        let within = self.shl32("within", within, 2);
        let (shift, mask) = panels.exchange();
        let mut at = Vec::new();
        for half in [0, 4] {
            let row = self.add32("line", step, int(half));
            let line = self.mul32("line_at", row, panels.pitch());
            let line = self.add32("line_at", line, word(tile.at));
            let line = self.add32("line_at", line, word(within));
            let bits = self.shr32("bits", row, shift);
            let bits = self.and32("bits", bits, mask);
            let of_chunks = (0..panels.chunks()).step_by(2).map(|chunk| {
                let own = self.make("chunk", RegType::B32, P::Or { ty: W::B32 }, &[word(second), int(chunk)]);
                let own = self.make("chunk", RegType::B32, P::Xor { ty: W::B32 }, &[word(own), word(bits)]);
                let own = self.shl32("chunk", own, 4);
                self.add32("at", line, word(own))
            });
            at.push(of_chunks.collect());
        }
        Words { panels, at }
    }

    /// Loads the fragment of 8 steps and 8 columns, rounded to `tf32`.
    pub(super) fn step_of_words(
        &mut self,
        name: &str,
        words: &Words,
        step: i64,
        block: i64,
    ) -> Result<Vec<Reg>, String> {
        let Words { panels, at } = words;
        let bytes = BLOCK_COLS * 4 * block;
        let (panel, chunk) = (bytes / panels.pitch(), bytes % panels.pitch() / 16);
        let offset = panel * panels.panel_bytes() + 8 * step * panels.pitch();
        let mut out = Vec::new();
        for half in at {
            let at = usize::try_from(chunk / 2).ok().and_then(|n| half.get(n)).ok_or("a chunk is missing")?;
            let op = P::LdShared { vector: Vector::One, ty: W::B32 };
            out.push(self.make(name, RegType::B32, op, &[address(*at, offset)?]));
        }
        Ok(self.as_operands(name, Elem::F32, out))
    }
}

/// How a copy advances from panel to panel of a buffer.
struct NextPanel {
    /// Bytes between panels.
    stride: Number,
    /// The first panel and the number of panels, if the tile may exceed them.
    bound: Option<(Number, Number)>,
}

/// Addresses at which a lane loads elements of a right operand.
pub(super) struct Words {
    panels: Panels,
    /// For its first and second step: the address in each pair of chunks of a panel's row.
    at: Vec<Vec<Reg>>,
}

/// The row addresses that a lane supplies to `ldmatrix`.
pub(super) struct Lines {
    panels: Panels,
    /// The address of its row in the first panel.
    at: Reg,
    /// Swizzle bits, combined with chunk numbers by `xor`.
    bits: Reg,
    /// Is its chunk the second of two?
    right: Reg,
}

/// The operand for which fragments are laid out.
pub(super) fn side(space: Space) -> Result<Side, String> {
    match space {
        Space::Fragment(Fragment::A) => Ok(Side::A),
        Space::Fragment(Fragment::B) => Ok(Side::B),
        Space::Fragment(Fragment::BT) => Ok(Side::BT),
        _ => Err("not a matmul operand".into()),
    }
}

fn index_at(indices: &[Number], axis: usize) -> Result<Number, String> {
    indices.get(axis).copied().ok_or_else(|| "an index is missing".into())
}

fn set(indices: &mut [Number], axis: usize, n: Number) {
    if let Some(place) = indices.get_mut(axis) {
        *place = n;
    }
}
