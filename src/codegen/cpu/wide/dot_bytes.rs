//! The micro-kernel of the `dot` leaf for panels of quantised weights at 256 bits: byte dot
//! products (AVX-VNNI).
//!
//! In: a matmul whose right operand is 8-bit or 4-bit integers with scales, and whose left one is
//! quantised in groups. Out: code for any number of rows, where the inner extent is a multiple of
//! the group; else the generic code of the leaf runs, which widens the weights to `f32`. The result
//! is that of `dot_whole`, bit for bit; the code differs, because there are only 16 registers and
//! no permutation of bytes across a register:
//!
//! ```text
//! for each 16 rows, for each group of 32 steps
//!   the weights: four steps of a column adjacent, as signed bytes, on the stack; 128 times their sums
//!   for each row, of the next group: q + 128 in bytes, t
//!   for each row: whole = sum of (q + 128) w - 128 w;  sum = fma(whole, t * scale, sum)
//! ```
//!
//! * A panel's row has 16 columns, one half of a register. Two rows are loaded at a time, one to
//!   each half, and four such pairs are interleaved by bytes and then by pairs of bytes: each half
//!   of a register then has four steps of four columns, the even steps in one and the odd ones in
//!   the other (4 bits: the even and the odd rows of the panel). The sums of both halves are added
//!   at the end. Nothing crosses between the halves.
//! * The bytes of a row of the left operand are permuted into the same order once for each group; a
//!   block is the eight steps whose bytes then have the same position in each half.
//! * 4-bit weights are moved to the upper half of their byte: 16 times their value, sign included.
//! * The `f32` sums stay in memory and each group adds to them once: in the accumulator, or, if
//!   they must be added to its previous contents, on the stack until they are complete.
//! * Prefetching is as in `dot_few`.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::asm::Label;
use super::dot::{A, ACC, B_ROW, Dot, INNER, Right, SCALES_AHEAD, STRIDE, WORDS};
use super::registers::{at, frame, xmm, ymm};
use crate::tile::Width;

/// Steps of a group, and of a block of it.
const GROUP: i32 = crate::tile::GROUP;
const BLOCKS: i32 = 4;

const SCALES: Register = Register::R15;
/// Saved stack pointer of the rest of the leaf.
const OUTSIDE: Register = Register::R13;
/// Remaining rows, and how many of them are processed together.
const LEFT: Register = Register::RBX;
const SOME: Register = Register::R12;
const ROWS_AT_ONCE: i32 = 16;
/// Quantised rows are double-buffered: offset in bytes of the current buffer.
const OTHER: Register = Register::R14;
const PLACE: i32 = 64 * ROWS_AT_ONCE;
/// Inside a group: pointer into a row of `a`, the row's accumulators, its quantised group,
/// remaining rows.
const A_AT: Register = Register::RAX;
const ACC_AT: Register = Register::RDX;
const ROUNDED_AT: Register = Register::RDI;
const COUNT: Register = Register::RCX;

/// Stack offsets, aligned to a cache line: a group's weights, the order of a row's bytes,
/// constants, two lines (double-buffered) for each row: its bytes and `t`; and a line for each row:
/// its sums.
const ORDER: i32 = 16 * GROUP;
const MIN_MAGNITUDE: i32 = ORDER + 32;
const MAX_INTEGER: i32 = MIN_MAGNITUDE + 16;
const INVERSE_MAX: i32 = MAX_INTEGER + 4;
const MIDDLE: i32 = INVERSE_MAX + 4;
const HALVES: i32 = MIDDLE + 4;
const UPPER: i32 = HALVES + 4;
const ROUNDED: i32 = ORDER + 128;
const SUMS: i32 = ROUNDED + 2 * PLACE;
const SUMS_PITCH: i32 = 64;
const FRAME: i32 = SUMS + SUMS_PITCH * ROWS_AT_ONCE + 64;

/// Reserved vector registers: -128 times the sums of a group's weights; its scales; 128; the byte
/// order.
const OFFSET: u32 = 8;
const SCALE: u32 = 12;
const MIDDLES: u32 = 14;
const ORDERS: u32 = 15;
/// `t` of a row.
const UNIT: u32 = 7;

/// Byte order of a half register: first the even steps (4 bits: rows) of two blocks.
fn order(right: Right) -> [u64; 2] {
    let bytes: [u8; 16] = match right {
        Right::Nibbles => [0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15],
        _ => [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15],
    };
    let word = |half: &[u8]| half.iter().rev().fold(0u64, |word, b| word << 8 | u64::from(*b));
    [word(&bytes[..8]), word(&bytes[8..])]
}

impl Dot {
    /// Does this leaf have a part that multiplies bytes?
    pub(super) fn is_of_bytes(&self) -> bool {
        let s = &self.shape;
        let fits = s.inner_dense && s.vectors == 2 && s.b_pitch == 16;
        self.width == Width::V256 && s.groups && fits
    }

    /// Computes everything and jumps to `done` if the inner extent is a multiple of the group; else
    /// falls through. `WORDS` still points to the arguments.
    pub(super) fn of_bytes(&mut self, done: Label) {
        let other = self.asm.label();
        for (word, r) in [(0, A), (1, STRIDE), (3, ACC), (4, LEFT), (5, INNER)] {
            self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, r, at(WORDS, 8 * word)));
        }
        self.asm.emit(Instruction::with2(Code::Test_rm64_imm32, INNER, GROUP - 1));
        self.asm.jump(Code::Jne_rel32_64, other);
        self.asm.emit(Instruction::with2(Code::Test_rm64_r64, LEFT, LEFT));
        self.asm.jump(Code::Jle_rel32_64, done);
        if self.shape.filled {
            self.fill_sums();
        }
        self.asm.emit(Instruction::with2(Code::Test_rm64_r64, INNER, INNER));
        self.asm.jump(Code::Jle_rel32_64, done);
        self.asm.comment("all rows rounded to integers");
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, OUTSIDE, Register::RSP));
        self.asm.emit(Instruction::with2(Code::Sub_rm64_imm32, Register::RSP, FRAME));
        self.asm.emit(Instruction::with2(Code::And_rm64_imm8, Register::RSP, -64));
        self.byte_constants();
        let bytes = if self.shape.right == Right::Nibbles { GROUP * 8 } else { GROUP * 16 };
        self.in_both_ways(|d| {
            let (some, last) = (d.asm.here(), d.asm.label());
            d.start_rows();
            d.round_rows();
            let group = d.asm.here();
            d.group_numbers(bytes);
            // The next group is quantised before this one is multiplied, to hide the latency of
            // quantising.
            d.asm.emit(Instruction::with2(Code::Cmp_rm64_imm8, INNER, GROUP));
            d.asm.jump(Code::Jle_rel32_64, last);
            d.asm.emit(Instruction::with2(Code::Xor_rm64_imm32, OTHER, PLACE));
            d.round_rows();
            d.asm.emit(Instruction::with2(Code::Xor_rm64_imm32, OTHER, PLACE));
            d.asm.bind(last);
            d.add_rows();
            d.asm.emit(Instruction::with2(Code::Xor_rm64_imm32, OTHER, PLACE));
            d.asm.emit(Instruction::with2(Code::Add_rm64_imm32, SCALES, 64));
            d.asm.emit(Instruction::with2(Code::Add_rm64_imm32, B_ROW, bytes));
            d.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, INNER, GROUP));
            d.asm.jump(Code::Jg_rel32_64, group);
            if !d.shape.filled {
                d.add_to_accumulators();
            }
            d.next_rows();
            d.asm.jump(Code::Jg_rel32_64, some);
            d.asm.emit(Instruction::with2(Code::Mov_r64_rm64, Register::RSP, OUTSIDE));
            d.asm.jump(Code::Jmp_rel32_64, done);
        });
        self.asm.bind(other);
    }

    /// Initialises all accumulators.
    fn fill_sums(&mut self) {
        self.asm.emit(Instruction::with2(Code::VEX_Vbroadcastss_ymm_m32, ymm(0), at(WORDS, 56)));
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, ACC_AT, ACC));
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, COUNT, LEFT));
        let row = self.asm.here();
        for v in 0..2 {
            self.asm.emit(Instruction::with2(Code::VEX_Vmovups_ymmm256_ymm, at(ACC_AT, 32 * v), ymm(0)));
        }
        self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, ACC_AT, self.shape.acc_pitch));
        self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, COUNT, 1));
        self.asm.jump(Code::Jne_rel32_64, row);
    }

    /// Sets up constants on the stack and in registers.
    fn byte_constants(&mut self) {
        for (i, word) in order(self.shape.right).into_iter().enumerate() {
            self.asm.emit(Instruction::with2(Code::Mov_r64_imm64, Register::RAX, word));
            for half in 0..2 {
                let place = frame(ORDER + 16 * half + if i == 0 { 0 } else { 8 });
                self.asm.emit(Instruction::with2(Code::Mov_rm64_r64, place, Register::RAX));
            }
        }
        let rounding = [MIN_MAGNITUDE, MAX_INTEGER, INVERSE_MAX].into_iter().zip(self.shape.right.rounding());
        let others = [(MIDDLE, 128.0_f32.to_bits()), (HALVES, 0x8080_8080), (UPPER, 0xf0f0_f0f0)];
        for (place, bits) in rounding.chain(others) {
            self.asm.emit(Instruction::with2(Code::Mov_rm32_imm32, frame(place), bits.cast_signed()));
        }
        self.asm.emit(Instruction::with2(Code::VEX_Vbroadcastss_ymm_m32, ymm(MIDDLES), frame(MIDDLE)));
        self.asm.emit(Instruction::with2(Code::VEX_Vmovdqa_ymm_ymmm256, ymm(ORDERS), frame(ORDER)));
    }

    /// Repacks a group's weights onto the stack, four steps of each column adjacent; loads its
    /// offsets and scales.
    fn group_numbers(&mut self, bytes: i32) {
        let (halves, upper) = (ymm(7), ymm(6));
        self.asm.emit(Instruction::with2(Code::VEX_Vpbroadcastd_ymm_xmmm32, halves, frame(HALVES)));
        if self.shape.right == Right::Nibbles {
            self.asm.emit(Instruction::with2(Code::VEX_Vpbroadcastd_ymm_xmmm32, upper, frame(UPPER)));
        }
        for j in 0..4 {
            self.clear(ymm(OFFSET + j));
        }
        for block in 0..BLOCKS {
            self.fetch_part(bytes, block, BLOCKS);
            let numbers =
                if self.shape.right == Right::Nibbles { self.half_bytes(block) } else { self.whole_bytes(block) };
            for (j, n) in (0u32..).zip(numbers) {
                let place = 128 * block + 32 * i32::try_from(j).unwrap_or(0);
                self.asm.emit(Instruction::with2(Code::VEX_Vmovdqa_ymmm256_ymm, frame(place), n));
                let sum = Code::VEX_Vpdpbusd_ymm_ymm_ymmm256;
                self.asm.emit(Instruction::with3(sum, ymm(OFFSET + j), halves, n));
            }
        }
        let zero = ymm(0);
        self.clear(zero);
        for j in 0..4 {
            let offset = ymm(OFFSET + j);
            self.asm.emit(Instruction::with3(Code::VEX_Vpsubd_ymm_ymm_ymmm256, offset, zero, offset));
        }
        for v in 0..2 {
            let scale = ymm(SCALE + u32::from(v == 1));
            self.asm.emit(Instruction::with2(Code::VEX_Vmovups_ymm_ymmm256, scale, at(SCALES, 32 * v)));
        }
        self.asm.emit(Instruction::with1(Code::Prefetcht0_m8, at(SCALES, SCALES_AHEAD)));
    }

    fn clear(&mut self, r: Register) {
        self.asm.emit(Instruction::with3(Code::VEX_Vpxor_ymm_ymm_ymmm256, r, r, r));
    }

    /// Emits a three-operand vector instruction, `to = code(a, b)`.
    fn three(&mut self, code: Code, to: u32, a: u32, b: u32) {
        self.asm.emit(Instruction::with3(code, ymm(to), ymm(a), ymm(b)));
    }

    /// Loads pairs of rows into consecutive registers, starting with `first`.
    fn load_pairs(&mut self, first: u32, pairs: &[i32]) {
        for (n, pair) in (first..).zip(pairs) {
            self.asm.emit(Instruction::with2(Code::VEX_Vmovdqu_ymm_ymmm256, ymm(n), at(B_ROW, 32 * pair)));
        }
    }

    /// Eight steps of 8-bit weights, four columns per register.
    fn whole_bytes(&mut self, block: i32) -> [Register; 4] {
        let (low, high) = (Code::VEX_Vpunpcklbw_ymm_ymm_ymmm256, Code::VEX_Vpunpckhbw_ymm_ymm_ymmm256);
        // Even steps 0, 2, 8, 10 and the odd ones beside them; 16, ..; 4, ..; 20, ..
        let first = block % 2 * 8 + block / 2 * 2;
        self.load_pairs(0, &[first, first + 1]);
        self.three(low, 4, 0, 1);
        self.three(high, 0, 0, 1);
        self.load_pairs(1, &[first + 4, first + 5]);
        self.three(low, 3, 1, 2);
        self.three(high, 1, 1, 2);
        let (low, high) = (Code::VEX_Vpunpcklwd_ymm_ymm_ymmm256, Code::VEX_Vpunpckhwd_ymm_ymm_ymmm256);
        self.three(low, 2, 4, 3);
        self.three(high, 4, 4, 3);
        self.three(low, 3, 0, 1);
        self.three(high, 0, 0, 1);
        [2, 4, 3, 0].map(ymm)
    }

    /// Eight steps of 4-bit weights, four columns per register.
    fn half_bytes(&mut self, block: i32) -> [Register; 4] {
        let (low, high) = (Code::VEX_Vpunpcklbw_ymm_ymm_ymmm256, Code::VEX_Vpunpckhbw_ymm_ymm_ymmm256);
        let (shift, and) = (Code::VEX_Vpsllw_ymm_ymm_imm8, Code::VEX_Vpand_ymm_ymm_ymmm256);
        // Even rows 0, 4 and the odd ones beside them; 8, ..; 2, ..; 10, ..
        let first = block % 2 * 4 + block / 2;
        self.load_pairs(0, &[first, first + 2]);
        self.three(low, 4, 0, 1);
        self.three(high, 0, 0, 1);
        for (from, lower) in [(4, 1), (0, 2)] {
            self.asm.emit(Instruction::with3(shift, ymm(lower), ymm(from), 4));
            self.three(and, lower, lower, 6);
            self.three(and, from, from, 6);
        }
        let (low, high) = (Code::VEX_Vpunpcklwd_ymm_ymm_ymmm256, Code::VEX_Vpunpckhwd_ymm_ymm_ymmm256);
        self.three(low, 3, 1, 4);
        self.three(high, 1, 1, 4);
        self.three(low, 4, 2, 0);
        self.three(high, 2, 2, 0);
        [3, 1, 4, 2].map(ymm)
    }

    /// Starts the next batch of rows at their first group.
    fn start_rows(&mut self) {
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, WORDS, at(OUTSIDE, 0)));
        for (word, r) in [(2, B_ROW), (5, INNER), (6, SCALES)] {
            self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, r, at(WORDS, 8 * word)));
        }
        self.asm.emit(Instruction::with2(Code::Mov_rm64_imm32, SOME, ROWS_AT_ONCE));
        self.asm.emit(Instruction::with2(Code::Cmp_rm64_imm8, LEFT, ROWS_AT_ONCE));
        self.asm.emit(Instruction::with2(Code::Cmovl_r64_rm64, SOME, LEFT));
        self.asm.emit(Instruction::with2(Code::Xor_r64_rm64, OTHER, OTHER));
        if !self.shape.filled {
            self.clear(ymm(0));
            for place in (SUMS..SUMS + SUMS_PITCH * ROWS_AT_ONCE).step_by(32) {
                self.asm.emit(Instruction::with2(Code::VEX_Vmovups_ymmm256_ymm, frame(place), ymm(0)));
            }
        }
    }

    /// Adds the sums of the current rows on the stack to the accumulator.
    fn add_to_accumulators(&mut self) {
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, ACC_AT, ACC));
        self.asm.emit(Instruction::with2(Code::Lea_r64_m, ROUNDED_AT, frame(SUMS)));
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, COUNT, SOME));
        let row = self.asm.here();
        for v in 0..2 {
            let sum = ymm(u32::from(v == 1));
            self.asm.emit(Instruction::with2(Code::VEX_Vmovups_ymm_ymmm256, sum, at(ROUNDED_AT, 32 * v)));
            self.asm.emit(Instruction::with3(Code::VEX_Vaddps_ymm_ymm_ymmm256, sum, sum, at(ACC_AT, 32 * v)));
            self.asm.emit(Instruction::with2(Code::VEX_Vmovups_ymmm256_ymm, at(ACC_AT, 32 * v), sum));
        }
        self.asm.emit(Instruction::with2(Code::Add_rm64_imm8, ROUNDED_AT, SUMS_PITCH));
        self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, ACC_AT, self.shape.acc_pitch));
        self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, COUNT, 1));
        self.asm.jump(Code::Jne_rel32_64, row);
    }

    /// Advances to the next rows; sets the flags to "greater" if there are any.
    fn next_rows(&mut self) {
        let further = A_AT;
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, WORDS, at(OUTSIDE, 0)));
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, further, at(WORDS, 40)));
        self.asm.emit(Instruction::with2(Code::Shl_rm64_imm8, further, 2));
        self.asm.emit(Instruction::with2(Code::Sub_r64_rm64, A, further));
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, further, STRIDE));
        self.asm.emit(Instruction::with2(Code::Imul_r64_rm64, further, SOME));
        self.asm.emit(Instruction::with2(Code::Add_r64_rm64, A, further));
        self.asm.emit(Instruction::with3(Code::Imul_r64_rm64_imm32, further, SOME, self.shape.acc_pitch));
        self.asm.emit(Instruction::with2(Code::Add_r64_rm64, ACC, further));
        self.asm.emit(Instruction::with2(Code::Sub_r64_rm64, LEFT, SOME));
    }

    /// Emits a loop over the current rows; `ROUNDED_AT` points to the row's quantised group.
    fn each_row(&mut self, code: impl Fn(&mut Self)) {
        let place = MemoryOperand::with_base_index_scale_displ_size(Register::RSP, OTHER, 1, i64::from(ROUNDED), 1);
        self.asm.emit(Instruction::with2(Code::Lea_r64_m, ROUNDED_AT, place));
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, COUNT, SOME));
        let row = self.asm.here();
        code(self);
        self.asm.emit(Instruction::with2(Code::Add_rm64_imm8, ROUNDED_AT, 64));
        self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, COUNT, 1));
        self.asm.jump(Code::Jne_rel32_64, row);
    }

    /// Quantises the group at `A` of the current rows, and advances `A`.
    fn round_rows(&mut self) {
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, A_AT, A));
        self.each_row(|d| {
            d.row_as_bytes();
            d.asm.emit(Instruction::with2(Code::VEX_Vmovdqa_ymmm256_ymm, at(ROUNDED_AT, 0), ymm(4)));
            d.asm.emit(Instruction::with2(Code::VEX_Vmovss_m32_xmm, at(ROUNDED_AT, 32), xmm(UNIT)));
            d.asm.emit(Instruction::with2(Code::Add_r64_rm64, A_AT, STRIDE));
        });
        self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, A, 4 * GROUP));
    }

    /// Multiplies the quantised group of the current rows and adds to their sums.
    fn add_rows(&mut self) {
        let (filled, pitch) = (self.shape.filled, if self.shape.filled { self.shape.acc_pitch } else { SUMS_PITCH });
        if filled {
            self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, ACC_AT, ACC));
        } else {
            self.asm.emit(Instruction::with2(Code::Lea_r64_m, ACC_AT, frame(SUMS)));
        }
        self.each_row(|d| {
            d.asm.emit(Instruction::with2(Code::VEX_Vmovdqa_ymm_ymmm256, ymm(4), at(ROUNDED_AT, 0)));
            d.asm.emit(Instruction::with2(Code::VEX_Vbroadcastss_ymm_m32, ymm(UNIT), at(ROUNDED_AT, 32)));
            d.row_of_group();
            d.asm.emit(Instruction::with2(Code::Add_rm64_imm32, ACC_AT, pitch));
        });
    }

    /// Quantises the group at `A_AT`: `q + 128` as bytes, permuted, in register 4, and `t`.
    fn row_as_bytes(&mut self) {
        let (m, n, unit) = (4, 5, UNIT);
        for i in 0..4 {
            let place = at(A_AT, 32 * i);
            let (x, twice) = (ymm(u32::from(i.unsigned_abs() as u8)), ymm(if i == 0 { m } else { n }));
            self.asm.emit(Instruction::with2(Code::VEX_Vmovups_ymm_ymmm256, x, place));
            self.asm.emit(Instruction::with3(Code::VEX_Vpslld_ymm_ymm_imm8, twice, x, 1));
            if i > 0 {
                self.three(Code::VEX_Vpmaxud_ymm_ymm_ymmm256, m, m, n);
            }
        }
        // The largest magnitude.
        let larger = Code::VEX_Vpmaxud_xmm_xmm_xmmm128;
        self.asm.emit(Instruction::with3(Code::VEX_Vextracti128_xmmm128_ymm_imm8, xmm(n), ymm(m), 1));
        self.asm.emit(Instruction::with3(larger, xmm(m), xmm(m), xmm(n)));
        for order in [0x4e, 0xb1] {
            self.asm.emit(Instruction::with3(Code::VEX_Vpshufd_xmm_xmmm128_imm8, xmm(n), xmm(m), order));
            self.asm.emit(Instruction::with3(larger, xmm(m), xmm(m), xmm(n)));
        }
        self.asm.emit(Instruction::with3(larger, xmm(m), xmm(m), frame(MIN_MAGNITUDE)));
        self.asm.emit(Instruction::with3(Code::VEX_Vpsrld_xmm_xmm_imm8, xmm(m), xmm(m), 1));
        // max - max is NaN if the maximum is infinite or NaN, else 0; it is added to `t`.
        self.asm.emit(Instruction::with3(Code::VEX_Vsubss_xmm_xmm_xmmm32, xmm(unit), xmm(m), xmm(m)));
        self.asm.emit(Instruction::with3(Code::VEX_Vfmadd231ss_xmm_xmm_xmmm32, xmm(unit), xmm(m), frame(INVERSE_MAX)));
        self.asm.emit(Instruction::with2(Code::VEX_Vmovss_xmm_m32, xmm(n), frame(MAX_INTEGER)));
        self.asm.emit(Instruction::with3(Code::VEX_Vdivss_xmm_xmm_xmmm32, xmm(n), xmm(n), xmm(m)));
        self.asm.emit(Instruction::with2(Code::VEX_Vbroadcastss_ymm_xmm, ymm(n), xmm(n)));
        for i in 0..4 {
            self.three(Code::VEX_Vfmadd213ps_ymm_ymm_ymmm256, i, n, MIDDLES);
            self.asm.emit(Instruction::with2(Code::VEX_Vcvtps2dq_ymm_ymmm256, ymm(i), ymm(i)));
        }
        self.three(Code::VEX_Vpackssdw_ymm_ymm_ymmm256, 0, 0, 1);
        self.three(Code::VEX_Vpackssdw_ymm_ymm_ymmm256, 2, 2, 3);
        self.three(Code::VEX_Vpackuswb_ymm_ymm_ymmm256, 0, 0, 2);
        self.three(Code::VEX_Vpshufb_ymm_ymm_ymmm256, 0, 0, ORDERS);
        // Gather the bytes for the lower half from both halves.
        self.asm.emit(Instruction::with3(Code::VEX_Vpermq_ymm_ymmm256_imm8, ymm(m), ymm(0), 0b11_01_10_00));
    }

    /// Adds the products of a row's group (bytes in register 4) to the sums at `ACC_AT`.
    fn row_of_group(&mut self) {
        let sum = Code::VEX_Vpdpbusd_ymm_ymm_ymmm256;
        for j in 0..4 {
            self.asm.emit(Instruction::with2(Code::VEX_Vmovdqa_ymm_ymmm256, ymm(j), ymm(OFFSET + j)));
        }
        for block in 0..BLOCKS {
            self.asm.emit(Instruction::with3(Code::VEX_Vpshufd_ymm_ymmm256_imm8, ymm(5), ymm(4), 0x55 * block));
            for (j, place) in (0u32..4).zip((128 * block..).step_by(32)) {
                self.asm.emit(Instruction::with3(sum, ymm(j), ymm(5), frame(place)));
            }
        }
        let half = Code::VEX_Vperm2i128_ymm_ymm_ymmm256_imm8;
        for v in 0..2 {
            let (one, other) = (ymm(2 * v), ymm(2 * v + 1));
            self.asm.emit(Instruction::with4(half, ymm(4), one, other, 0x20));
            self.asm.emit(Instruction::with4(half, ymm(5), one, other, 0x31));
            self.three(Code::VEX_Vpaddd_ymm_ymm_ymmm256, 4, 4, 5);
            self.asm.emit(Instruction::with2(Code::VEX_Vcvtdq2ps_ymm_ymmm256, ymm(4), ymm(4)));
            self.three(Code::VEX_Vmulps_ymm_ymm_ymmm256, 5, SCALE + v, UNIT);
            let place = at(ACC_AT, if v == 0 { 0 } else { 32 });
            // x * unit + acc
            self.asm.emit(Instruction::with3(Code::VEX_Vfmadd213ps_ymm_ymm_ymmm256, ymm(4), ymm(5), place));
            self.asm.emit(Instruction::with2(Code::VEX_Vmovups_ymmm256_ymm, place, ymm(4)));
        }
    }
}
