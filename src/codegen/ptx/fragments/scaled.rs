//! Matmuls by quantised weights: integer panels in shared memory are converted to 16-bit floats in
//! registers, right before `mma.sync`.
//!
//! In: a left operand, a tile of packed integers (`[steps, columns]` bytes; with 4 bits a byte has
//! two steps), a tile of their scales. Out: sums in the layout of quads, which
//! [`Code::convert_layout`] converts to that of all accumulators.
//!
//! ```text
//!   ldmatrix.trans of 16-bit units, each the bytes of two columns. Of columns 2g and 2g + 1 of 16,
//!   a lane gets
//!     8 bits:  the bytes of steps 2q and 2q + 1
//!     4 bits:  the bytes of steps 2q, 2q + 1, 2q + 8, 2q + 9, since lanes supply row addresses in
//!              that order
//!   (g = lane / 4, q = lane % 4: the lane's part of B of m16n8k16, except that columns alternate
//!   between two blocks of 8)
//! ```
//!
//! An integer becomes a float without a conversion: its bits are inserted as the low mantissa bits
//! of a float with unit 1, which is then subtracted (as in Kim et al. 2022, arXiv:2211.10017, and
//! in Marlin, Frantar et al. 2024, arXiv:2408.11743). This is exact.
//!
//! ```text
//!   f16, 8 bits    1024 + (n + 128)  by one lop3, of n with its highest bit exchanged;  - 1152
//!   bf16, 8 bits   has 7 bits only:  (128 + the lower 7)  -  (128, or 256 where n is below 0)
//!   4 bits         128 + (n + 8), or 1024 + (n + 8)
//! ```
//!
//! So the sum over a group of 32 steps is one of integers times the left operand's elements, in
//! `f32`, and is multiplied by the group's scale once: weights are not rounded. Must not know: why
//! weights are packed.

use super::code::{Code, Shared, ValueLocation, address, int, known, word};
use super::copies::{Lines, Side};
use super::layout::{BLOCK_COLS, BLOCK_ROWS, Panels, Share};
use crate::ptx::words::{Ftz, Matrices, Mma, Relu, Round, Sat, Shuffle, Trans, Vector};
use crate::ptx::{Op as P, Operand, Reg, RegType, Type as W};
use crate::shape::Elem;
use crate::tile::{GROUP, InstData, Value};

use super::elements::ALL_LANES;

/// Steps of an instruction.
const MMA_STEPS: i64 = 16;
/// Columns per `ldmatrix`: the bytes of a chunk.
const COLUMNS: i64 = 16;
/// Truth table of `lop3` for `(a & b) ^ c`.
const AND_XOR: i64 = 0x6a;
/// Mask of the lower byte of each 16-bit half.
const BYTES: i64 = 0x00ff_00ff;
/// Mask of the lower 4 bits of each 16-bit half.
const HALF_BYTES: i64 = 0x000f_000f;
const FMA: P = P::Fma { round: Round::Nearest, ftz: Ftz::Keep, sat: Sat::Wrap, relu: Relu::No, ty: W::F32 };

/// Weights and scales of a tile, as a lane reads them.
struct Panel {
    bits: u8,
    numbers: Panels,
    scales: Panels,
    /// Address of the lane's row of weights in the first group, for each starting chunk.
    rows: Vec<Reg>,
    /// Address of the first scales, including the offset of the lane in its quad.
    scales_at: Reg,
    quad: Reg,
}

/// Registers of B for 16 columns (even ones, odd ones), for each 16 steps.
type OfColumns = [Vec<[Reg; 2]>; 2];

/// Constants for converting integers to floats.
struct Magic {
    ty: W,
    elem: Elem,
    /// 1.0 in both halves, and the negated bias.
    one: Reg,
    offset: Reg,
}

impl Code<'_> {
    /// Compiles a matmul of fragments by integers.
    pub(super) fn mma_scaled(&mut self, data: &InstData, bits: u8) -> Result<(), String> {
        let [a, numbers, scales, acc] = data.operands.as_slice() else { return Err("an operand is missing".into()) };
        let (a, acc, v) = (*a, *acc, data.result.ok_or("no result")?);
        let left = self.tile(a)?.clone();
        let share = self.share(self.tile(v)?)?;
        if !share.is_whole() || share.cols % (2 * COLUMNS) != 0 {
            return Err(format!("a matmul of {} x {} by {} warps", share.rows, share.cols, share.warps));
        }
        let (steps, group) = (known(left.cols)?, i64::from(GROUP));
        let kind = if left.elem == Elem::F16 { Mma::F32F16K16 } else { Mma::F32Bf16K16 };
        let panel = self.panel(*numbers, *scales, bits)?;
        // A panel's row must have exactly two chunks.
        if panel.numbers.chunks() != 2 || panel.numbers.count() * 2 * COLUMNS != share.cols {
            return Err(format!("numbers of {} columns in panels of {} chunks", share.cols, panel.numbers.chunks()));
        }
        let magic = self.magic(left.elem, bits);
        let left_lines = match self.held.get(&a).cloned() {
            Some(ValueLocation::Unread(of_a)) => {
                let panels = self.stored(a)?;
                Some(self.lines(panels, of_a, Side::A)?)
            }
            _ => None,
        };
        let name = self.name(v);
        let nothing = self.make("zero", RegType::F32, P::Mov { ty: W::F32 }, &[super::code::float(0.0)]);
        let mut sums = self.elements(acc)?;
        for group in 0..steps / group {
            let mut blocks = Vec::new();
            for step in 0..i64::from(GROUP) / MMA_STEPS {
                let step = group * (i64::from(GROUP) / MMA_STEPS) + step;
                blocks.push(self.left_blocks(a, &left_lines, share, (steps / MMA_STEPS, step))?);
            }
            let mut right = Vec::new();
            for number in 0..panel.numbers.count() {
                right.extend(self.integers(&name, &panel, &magic, (group, number))?);
            }
            for (cols, right) in (0..).zip(right) {
                let scales = self.scales_of(&panel, group, cols)?;
                for row in 0..share.row_blocks() {
                    let at = usize::try_from(row).unwrap_or(0);
                    for (half, of_steps) in right.iter().enumerate() {
                        let mut part = vec![nothing; 4];
                        for (b, blocks) in of_steps.iter().zip(&blocks) {
                            let block = blocks.get(at).ok_or("a fragment is missing")?;
                            let d: Vec<Reg> = (0..4).map(|_| self.reg("part", RegType::F32)).collect();
                            let operands = [d.clone(), block.clone(), b.to_vec(), part].map(Operand::Vector);
                            self.push(P::Mma { kind }, operands);
                            part = d;
                        }
                        let first = share.register(row, 2 * cols + half as i64, 0);
                        for (e, part) in part.into_iter().enumerate() {
                            let scale = *scales.get(2 * (e & 1) + half).ok_or("a scale is missing")?;
                            let sum = sums.get_mut(first + e).ok_or("an element is missing")?;
                            *sum = self.make(&name, RegType::F32, FMA, &[word(part), word(scale), word(*sum)]);
                        }
                    }
                }
            }
        }
        self.held.insert(v, ValueLocation::Elements(sums));
        Ok(())
    }

    /// Left operand of a step: a fragment for each block of rows.
    fn left_blocks(
        &mut self,
        a: Value,
        lines: &Option<Lines>,
        share: Share,
        (steps, step): (i64, i64),
    ) -> Result<Vec<Vec<Reg>>, String> {
        let name = self.name(a);
        let mut out = Vec::new();
        for block in 0..share.row_blocks() {
            out.push(match (lines, self.held.get(&a)) {
                (Some(lines), _) => {
                    self.matrices(&name, lines, block * BLOCK_ROWS, step * 2, Matrices::Four, Trans::No)?
                }
                (None, Some(ValueLocation::Operand(list))) => {
                    let first = usize::try_from((block * steps + step) * 4).unwrap_or(0);
                    list.get(first..first + 4).ok_or("a fragment is missing")?.to_vec()
                }
                _ => return Err(format!("{a} is not a left operand")),
            });
        }
        Ok(out)
    }

    /// Addresses at which this lane reads weights and scales.
    fn panel(&mut self, numbers: Value, scales: Value, bits: u8) -> Result<Panel, String> {
        let of = |code: &Code<'_>, v: Value| Ok::<_, String>((code.panels(code.tile(v)?)?, code.shared(v)?));
        let (layout, Shared { at, .. }) = of(self, numbers)?;
        let (of_scales, Shared { at: scales_at, .. }) = of(self, scales)?;
        let lane = self.group.lane;
        let quad = self.and32("quad", lane, 3);
        let low = self.and32("low", lane, 7);
        // Row within a group, and which of two chunks.
        let (row, chunk) = if bits == 8 {
            (lane, None)
        } else {
            // Rows 0, 4, 1, 5, 2, 6, 3, 7: puts the steps that B needs in one lane next to each
            // other.
            let half = self.shr32("row", low, 1);
            let odd = self.and32("odd", low, 1);
            let four = self.shl32("four", odd, 2);
            let row = self.add32("row", half, word(four));
            let second = self.and32("second", lane, 8);
            let row = self.add32("row", row, word(second));
            (row, Some(self.shr32("chunk", lane, 4)))
        };
        let (shift, mask) = layout.exchange();
        let exchange = self.shr32("bits", row, shift);
        let exchange = self.and32("bits", exchange, mask);
        let line = self.mul32("line", row, layout.pitch());
        let line = self.add32("line", line, word(at));
        let first: Vec<Operand> = chunk.map_or_else(|| vec![int(0), int(1)], |c| vec![word(c)]);
        let mut rows = Vec::new();
        for chunk in first {
            let own = self.make("chunk", RegType::B32, P::Xor { ty: W::B32 }, &[word(exchange), chunk]);
            let own = self.shl32("chunk", own, 4);
            rows.push(self.add32("numbers", line, word(own)));
        }
        Ok(Panel { bits, numbers: layout, scales: of_scales, rows, scales_at, quad })
    }

    /// Constants for converting integers of `bits` bits.
    fn magic(&mut self, elem: Elem, bits: u8) -> Magic {
        let (ty, one, offset) = match (elem, bits) {
            (Elem::F16, 8) => (W::F16x2, 0x3c00, 0xe480),
            (Elem::F16, _) => (W::F16x2, 0x3c00, 0xe408),
            // The bias is subtracted by a multiplication of the other float by -1.
            (_, 8) => (W::Bf16x2, 0xbf80, 0),
            (_, _) => (W::Bf16x2, 0x3f80, 0xc308),
        };
        let mut both =
            |name: &str, half: i64| self.make(name, RegType::B32, P::Mov { ty: W::B32 }, &[int(half << 16 | half)]);
        let (one, offset) = (both("one", one), both("offset", offset));
        Magic { ty, elem, one, offset }
    }

    /// Loads and converts a group of steps: B's registers for each 16 columns.
    fn integers(
        &mut self,
        name: &str,
        panel: &Panel,
        magic: &Magic,
        (group, number): (i64, i64),
    ) -> Result<Vec<OfColumns>, String> {
        let rows = i64::from(GROUP) * i64::from(panel.bits) / 8;
        let offset = number * panel.numbers.panel_bytes() + group * rows * panel.numbers.pitch();
        let mut all = Vec::new();
        for at in &panel.rows {
            let list: Vec<Reg> = (0..4).map(|_| self.reg("unit", RegType::B32)).collect();
            let op = P::LdMatrix { count: Matrices::Four, trans: Trans::Yes };
            self.push(op, [Operand::Vector(list.clone()), address(*at, offset)?]);
            all.push(list);
        }
        let mut out = Vec::new();
        for list in all {
            if panel.bits == 8 {
                // A register for each 8 steps of 16 columns.
                let mut of = OfColumns::default();
                for pair in list.chunks(2) {
                    let [first, second] = pair else { return Err("a register is missing".into()) };
                    let high = [*first, *second].map(|r| self.shr32("byte", r, 8));
                    for (of, units) in of.iter_mut().zip([[*first, *second], high]) {
                        of.push(units.map(|r| self.byte_pair(name, magic, r)));
                    }
                }
                out.push(of);
                continue;
            }
            // One for each 16 steps: the first 16 columns, then the others.
            for units in list.chunks(2) {
                let mut of = OfColumns::default();
                for unit in units {
                    let high = self.shr32("half", *unit, 4);
                    for (column, of) in (0..).zip(of.iter_mut()) {
                        of.push([0, 2].map(|byte| self.half_byte_pair(name, magic, (*unit, high), byte + column)));
                    }
                }
                out.push(of);
            }
        }
        Ok(out)
    }

    /// Converts the lower bytes of both halves to floats.
    fn byte_pair(&mut self, name: &str, magic: &Magic, x: Reg) -> Reg {
        let picked = |code: &mut Self, mask: i64, with: i64| {
            code.make("bits", RegType::B32, P::Lop3 {}, &[word(x), int(mask), int(with), int(AND_XOR)])
        };
        if magic.elem == Elem::F16 {
            let x = picked(self, BYTES, 0x6480_6480);
            return self.subtracted(name, magic, x, magic.one, magic.offset);
        }
        let low = picked(self, 0x007f_007f, 0x4300_4300);
        let sign = picked(self, 0x0080_0080, 0x4300_4300);
        self.subtracted(name, magic, sign, magic.one, low)
    }

    /// Converts the two 4-bit integers of a byte to floats: the lower one in the lower half, the
    /// higher one (which `high` has in its lower bits) in the upper half.
    fn half_byte_pair(&mut self, name: &str, magic: &Magic, (low, high): (Reg, Reg), byte: i64) -> Reg {
        let chosen = byte | (4 + byte) << 8;
        let x = self.make("pair", RegType::B32, P::Prmt {}, &[word(low), word(high), int(chosen)]);
        let with = if magic.elem == Elem::F16 { 0x6408_6408 } else { 0x4308_4308 };
        let x = self.make("bits", RegType::B32, P::Lop3 {}, &[word(x), int(HALF_BYTES), int(with), int(AND_XOR)]);
        self.subtracted(name, magic, x, magic.one, magic.offset)
    }

    fn subtracted(&mut self, name: &str, magic: &Magic, x: Reg, by: Reg, add: Reg) -> Reg {
        let op = P::Fma { round: Round::Nearest, ftz: Ftz::Keep, sat: Sat::Wrap, relu: Relu::No, ty: magic.ty };
        self.make(name, RegType::B32, op, &[word(x), word(by), word(add)])
    }

    /// Scales of a lane's four columns of 16, in order.
    fn scales_of(&mut self, panel: &Panel, group: i64, cols: i64) -> Result<Vec<Reg>, String> {
        let of_panel = panel.scales.pitch() / 4 / COLUMNS;
        let (number, chunk) = (cols / of_panel, cols % of_panel * (COLUMNS / 4));
        let (shift, mask) = panel.scales.exchange();
        let bits = group >> shift & mask;
        let own = self.make("chunk", RegType::B32, P::Xor { ty: W::B32 }, &[word(panel.quad), int(bits ^ chunk)]);
        let own = self.shl32("chunk", own, 4);
        let at = self.add32("scales", panel.scales_at, word(own));
        let offset = number * panel.scales.panel_bytes() + group * panel.scales.pitch();
        let list: Vec<Reg> = (0..4).map(|_| self.reg("scale", RegType::F32)).collect();
        let op = P::LdShared { vector: Vector::Four, ty: W::F32 };
        self.push(op, [Operand::Vector(list.clone()), address(at, offset)?]);
        Ok(list)
    }

    /// Converts an accumulator to the standard layout: lanes of a quad exchange elements of 16
    /// columns.
    ///
    /// ```text
    ///   a lane has columns 4q .. 4q + 3, and needs 2q, 2q + 1 and 2q + 8, 2q + 9: of lane q / 2 and
    ///   of lane 2 + q / 2 it takes the first two columns if q is even, else the last two
    /// ```
    pub(super) fn convert_layout(&mut self, data: &InstData) -> Result<(), String> {
        let (x, v) = (*data.operands.first().ok_or("an operand is missing")?, data.result.ok_or("no result")?);
        let (share, list, name) = (self.share(self.tile(x)?)?, self.elements(x)?, self.name(v));
        if !share.is_whole() || share.cols % (2 * BLOCK_COLS) != 0 {
            return Err("an accumulator in quad layout needs at least 16 columns".into());
        }
        let lane = self.group.lane;
        let quad = self.and32("quad", lane, 3);
        let odd = self.and32("odd", quad, 1);
        let is_odd = self.compare32("odd", crate::ptx::words::Compare::Ne, odd, 0);
        let first = self.and32("quad", lane, 28);
        let half = self.shr32("half", quad, 1);
        let from = self.add32("from", first, word(half));
        let sources = [from, self.add32("from", from, int(2))];
        let mut out = list.clone();
        for row in 0..share.row_blocks() {
            for col in (0..share.col_blocks()).step_by(2) {
                for (number, source) in (0..2).zip(sources) {
                    for e in 0..4 {
                        let (column, below) = (e & 1, e >> 1);
                        let mut moved = Vec::new();
                        for other in 0..2 {
                            let at = share.register(row, col + column, other + 2 * below);
                            let x = *list.get(at).ok_or("an element is missing")?;
                            let op = P::Shfl { mode: Shuffle::Index };
                            let operands = [word(x), word(source), int(31), int(ALL_LANES)];
                            moved.push(word(self.make(&name, RegType::F32, op, &operands)));
                        }
                        let [even, odd] = moved.as_slice() else { return Err("an element is missing".into()) };
                        let op = P::SelP { ty: W::F32 };
                        let r = self.make(&name, RegType::F32, op, &[odd.clone(), even.clone(), word(is_odd)]);
                        let place = share.register(row, col + number, e);
                        *out.get_mut(place).ok_or("an element is missing")? = r;
                    }
                }
            }
        }
        self.held.insert(v, ValueLocation::Elements(out));
        Ok(())
    }
}
