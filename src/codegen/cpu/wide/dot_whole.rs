//! The micro-kernel of the `dot` leaf for panels of quantised weights at AVX-512: byte dot products
//! (VNNI).
//!
//! In: a matmul whose right operand is 8-bit or 4-bit integers with scales. Out: code for any
//! number of rows, where the inner extent is a multiple of the group; else the generic code of the
//! leaf runs, which widens the weights to `f32`.
//!
//! Widened, each weight costs an FMA, and the FMA chain takes longer than reading the bytes from
//! memory. So the elements of a row of `a` are quantised to 8 bits too: in each group of [`GROUP`]
//! steps, `t = max |a| / 127`, `q = round(a / t)`. One instruction then adds four products exactly,
//! in 32-bit integers, and
//!
//! ```text
//! sum = fma(sum of q * w, t * scale, sum)        for each group, in order
//! ```
//!
//! so an element depends only on its row and column, as everywhere. The quantisation error of a
//! result is bounded in `lowering::tile::quantise`. `t` is at least that of a group with maximum
//! 1e-30, so smaller groups are rounded more coarsely; a NaN or an infinity in a group makes `t`
//! and the result NaN.
//!
//! * The instruction multiplies unsigned bytes by signed ones: `q + 128` by `w`. The excess, the
//!   sum of `128 w`, is computed too and subtracted, once for all rows.
//! * A panel's rows are `k` steps; the instruction takes four adjacent steps of a column. One
//!   permutation (VBMI) gathers them from two rows of 32 columns. 4-bit weights are moved to the
//!   upper half of their byte and masked: 16 times their value, sign included.
//! * Up to four rows of `a` at a time: two integer and two `f32` sums each.
//! * Prefetching is as in `dot_few`.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::asm::Label;
use super::dot::{A, ACC, B_ROW, Dot, INNER, Right, SCALES_AHEAD, STEPS, STRIDE, WORDS};
use super::registers::{at, frame, xmm, ymm, zmm};
use crate::tile::Width;

/// Steps of a group.
const GROUP: i32 = crate::tile::GROUP;
/// Rows at a time.
const ROWS: i32 = 4;

/// First row of `b`; remaining rows of `a`; current group of the first row; three times the stride;
/// scales of this group.
const PANEL: Register = Register::R13;
const ROWS_LEFT: Register = Register::R14;
const A_AT: Register = Register::RAX;
const THREE_STRIDES: Register = Register::R12;
const SCALES: Register = Register::R15;

/// Stack frame: 32 bytes of quantised values per row, then `t` per row, then constants.
const FRAME: i32 = 192;
const UNITS: i32 = 128;
const MIN_MAGNITUDE: i32 = 144;
const MAX_INTEGER: i32 = 148;
const INVERSE_MAX: i32 = 152;

/// Vector registers. The `f32` sums are the first eight, see `Dot::start_sums`.
const SUMS: u32 = 8;
const NUMBERS: u32 = 16;
const SCALE: u32 = 20;
const OFFSET: u32 = 22;
const GATHER: u32 = 24;
const SHIFTS: u32 = 26;
const UPPER: u32 = 27;
const HALVES: u32 = 28;
const ELEMENTS: u32 = 29;
const MIDDLE: u32 = 31;

/// Vector register `n` plus the index of row `r` and vector of columns `v`.
fn tile_register(n: u32, r: i32, v: i32) -> Register {
    zmm(n + u32::try_from(2 * r + v).unwrap_or(0))
}

impl Dot {
    /// Does this leaf have a part that multiplies bytes?
    pub(super) fn is_whole(&self) -> bool {
        let s = &self.shape;
        let fits = s.inner_dense && s.vectors == 2 && s.b_pitch == 32;
        self.width == Width::V512 && s.groups && fits
    }

    /// Computes everything and jumps to `done` if the inner extent is a multiple of the group; else
    /// falls through. `WORDS` still points to the arguments.
    pub(super) fn whole(&mut self, done: Label) {
        let other = self.asm.label();
        let words = [(0, A), (1, STRIDE), (2, PANEL), (3, ACC), (4, ROWS_LEFT), (5, INNER)];
        for (word, r) in words {
            self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, r, at(WORDS, 8 * word)));
        }
        self.asm.emit(Instruction::with2(Code::Test_rm64_imm32, INNER, GROUP - 1));
        self.asm.jump(Code::Jne_rel32_64, other);
        // Without steps there is nothing to do, unless the accumulator must still be initialised.
        let needed: &[Register] = if self.shape.filled { &[ROWS_LEFT] } else { &[ROWS_LEFT, INNER] };
        for r in needed {
            self.asm.emit(Instruction::with2(Code::Test_rm64_r64, *r, *r));
            self.asm.jump(Code::Jle_rel32_64, done);
        }
        let three = MemoryOperand::with_base_index_scale(STRIDE, STRIDE, 2);
        self.asm.emit(Instruction::with2(Code::Lea_r64_m, THREE_STRIDES, three));
        self.constants();
        self.in_both_ways(|d| {
            let next = d.asm.label();
            let heights: Vec<_> = (1..=ROWS).map(|h| (h, d.asm.label())).collect();
            d.asm.bind(next);
            for (h, label) in heights.iter().rev() {
                let code = if *h == ROWS { Code::Jge_rel32_64 } else { Code::Je_rel32_64 };
                d.asm.emit(Instruction::with2(Code::Cmp_rm64_imm8, ROWS_LEFT, *h));
                d.asm.jump(code, *label);
            }
            d.asm.jump(Code::Jmp_rel32_64, done);
            for (h, label) in heights {
                d.asm.bind(label);
                d.asm.comment(format!("{h} rows rounded to integers"));
                d.start_sums(h, 2);
                d.whole_rows(h);
                d.store_sums(h, 2);
                d.asm.emit(Instruction::with2(Code::Add_rm64_imm32, ACC, h * d.shape.acc_pitch));
                d.asm.emit(Instruction::with3(Code::Imul_r64_rm64_imm32, A_AT, STRIDE, h));
                d.asm.emit(Instruction::with2(Code::Add_r64_rm64, A, A_AT));
                d.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, ROWS_LEFT, h));
                d.asm.jump(Code::Jg_rel32_64, next);
                d.asm.jump(Code::Jmp_rel32_64, done);
            }
        });
        self.asm.bind(other);
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, WORDS, at(Register::RSP, 0)));
        if self.shape.right == Right::Nibbles {
            self.nibble_table();
        }
    }

    /// Sets up constants in registers.
    fn constants(&mut self) {
        let x = xmm(NUMBERS);
        let spread = |d: &mut Self, n: u32, bits: i32| {
            d.asm.emit(Instruction::with2(Code::Mov_r32_imm32, Register::EAX, bits));
            d.asm.emit(Instruction::with2(Code::EVEX_Vpbroadcastd_zmm_k1z_r32, zmm(n), Register::EAX));
        };
        // For each column c of a vector: bytes c and 32 + c (two rows of 32), twice.
        for (half, bytes) in [0x0706_0504_0302_0100_u64, 0x0f0e_0d0c_0b0a_0908].into_iter().enumerate() {
            self.asm.emit(Instruction::with2(Code::Mov_r64_imm64, Register::RAX, bytes));
            if half == 0 {
                self.asm.emit(Instruction::with2(Code::EVEX_Vmovq_xmm_rm64, x, Register::RAX));
            } else {
                let code = Code::EVEX_Vpinsrq_xmm_xmm_rm64_imm8;
                self.asm.emit(Instruction::with4(code, x, x, Register::RAX, 1));
            }
        }
        let columns = zmm(GATHER);
        self.asm.emit(Instruction::with2(Code::EVEX_Vpmovzxbd_zmm_k1z_xmmm128, columns, x));
        let (multiply, add) = (Code::EVEX_Vpmulld_zmm_k1z_zmm_zmmm512b32, Code::EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32);
        spread(self, NUMBERS, 0x0101_0101);
        self.asm.emit(Instruction::with3(multiply, columns, columns, zmm(NUMBERS)));
        spread(self, NUMBERS, 0x2000_2000);
        self.asm.emit(Instruction::with3(add, columns, columns, zmm(NUMBERS)));
        spread(self, NUMBERS, 0x1010_1010);
        self.asm.emit(Instruction::with3(add, zmm(GATHER + 1), columns, zmm(NUMBERS)));
        if self.shape.right == Right::Nibbles {
            // Shift the lower halves of both rows up; the upper ones are in position.
            spread(self, SHIFTS, 4);
            spread(self, UPPER, 0xf0f0_f0f0_u32.cast_signed());
        } else {
            // The third and the fourth step are in the second pair of rows.
            self.asm.emit(Instruction::with2(Code::Mov_r64_imm64, Register::RAX, 0xcccc_cccc_cccc_cccc_u64));
            self.asm.emit(Instruction::with2(Code::VEX_Kmovq_kr_r64, Register::K1, Register::RAX));
        }
        spread(self, HALVES, 0x8080_8080_u32.cast_signed());
        spread(self, MIDDLE, 128.0_f32.to_bits().cast_signed());
    }

    /// All steps of `height` rows.
    fn whole_rows(&mut self, height: i32) {
        let nibbles = self.shape.right == Right::Nibbles;
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, SCALES, at(Register::RSP, 0)));
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, SCALES, at(SCALES, 48)));
        self.asm.emit(Instruction::with2(Code::Sub_rm64_imm32, Register::RSP, FRAME));
        for (place, bits) in [MIN_MAGNITUDE, MAX_INTEGER, INVERSE_MAX].into_iter().zip(self.shape.right.rounding()) {
            self.asm.emit(Instruction::with2(Code::Mov_rm32_imm32, frame(place), bits.cast_signed()));
        }
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, A_AT, A));
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, B_ROW, PANEL));
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, STEPS, INNER));
        let done = self.asm.label();
        self.asm.emit(Instruction::with2(Code::Test_rm64_r64, STEPS, STEPS));
        self.asm.jump(Code::Jle_rel32_64, done);
        let bytes = if nibbles { GROUP * 16 } else { GROUP * 32 };
        let group = self.asm.here();
        self.group(height, bytes);
        self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, SCALES, 128));
        self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, A_AT, 4 * GROUP));
        self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, B_ROW, bytes));
        self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, STEPS, GROUP));
        self.asm.jump(Code::Jg_rel32_64, group);
        self.asm.bind(done);
        self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, Register::RSP, FRAME));
    }

    /// A group of steps; `bytes` is its size in the panel.
    fn group(&mut self, height: i32, bytes: i32) {
        for r in 0..height {
            self.round_row(r);
        }
        let zero = |d: &mut Self, r| d.asm.emit(Instruction::with3(Code::EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32, r, r, r));
        for v in 0..2 {
            zero(self, tile_register(OFFSET, 0, v));
            let scale =
                Instruction::with2(Code::EVEX_Vmovups_zmm_k1z_zmmm512, tile_register(SCALE, 0, v), at(SCALES, 64 * v));
            self.asm.emit(scale);
            self.asm.emit(Instruction::with1(Code::Prefetcht0_m8, at(SCALES, SCALES_AHEAD + 64 * v)));
            for r in 0..height {
                zero(self, tile_register(SUMS, r, v));
            }
        }
        let sum = Code::EVEX_Vpdpbusd_zmm_k1z_zmm_zmmm512b32;
        for four in 0..GROUP / 4 {
            self.gather(four);
            self.fetch_part(bytes, four, GROUP / 4);
            for v in 0..2 {
                self.asm.emit(Instruction::with3(
                    sum,
                    tile_register(OFFSET, 0, v),
                    zmm(HALVES),
                    tile_register(NUMBERS, 0, v),
                ));
            }
            for r in 0..height {
                let q = zmm(ELEMENTS + u32::from(r % 2 == 1));
                let place = frame(32 * r + 4 * four);
                self.asm.emit(Instruction::with2(Code::EVEX_Vpbroadcastd_zmm_k1z_xmmm32, q, place));
                for v in 0..2 {
                    self.asm.emit(Instruction::with3(sum, tile_register(SUMS, r, v), q, tile_register(NUMBERS, 0, v)));
                }
            }
        }
        for r in 0..height {
            for v in 0..2 {
                let (x, unit) = (tile_register(SUMS, r, v), tile_register(NUMBERS, 0, v));
                let subtract = Code::EVEX_Vpsubd_zmm_k1z_zmm_zmmm512b32;
                self.asm.emit(Instruction::with3(subtract, x, x, tile_register(OFFSET, 0, v)));
                self.asm.emit(Instruction::with2(Code::EVEX_Vcvtdq2ps_zmm_k1z_zmmm512b32_er, x, x));
                let multiply = Code::EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er;
                let scaled = Instruction::with3(multiply, unit, tile_register(SCALE, 0, v), frame(UNITS + 4 * r));
                self.asm.emit(scaled.map(broadcast));
                let fma = Code::EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er;
                self.asm.emit(Instruction::with3(fma, tile_register(0, r, v), x, unit));
            }
        }
    }

    /// Gathers four adjacent steps of each column into the two weight registers.
    fn gather(&mut self, four: i32) {
        let permute = Code::EVEX_Vpermb_zmm_k1z_zmm_zmmm512;
        for v in 0..2 {
            let (to, columns) = (tile_register(NUMBERS, 0, v), tile_register(GATHER, 0, v));
            if self.shape.right == Right::Nibbles {
                self.asm.emit(Instruction::with3(permute, to, columns, at(B_ROW, 64 * four)));
                self.asm.emit(Instruction::with3(Code::EVEX_Vpsllvw_zmm_k1z_zmm_zmmm512, to, to, zmm(SHIFTS)));
                self.asm.emit(Instruction::with3(Code::EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32, to, to, zmm(UPPER)));
            } else {
                self.asm.emit(Instruction::with3(permute, to, columns, at(B_ROW, 128 * four)));
                let second = Instruction::with3(permute, to, columns, at(B_ROW, 128 * four + 64));
                let masked = second.map(|mut i| {
                    i.set_op_mask(Register::K1);
                    i
                });
                self.asm.emit(masked);
            }
        }
    }

    /// Quantises a group of row `r` of `a`: `q + 128` and `t`, on the stack.
    fn round_row(&mut self, r: i32) {
        let (x, y) = (ELEMENTS, ELEMENTS + 1);
        let (m, n) = (NUMBERS, NUMBERS + 1);
        let place = |further: i32| match r {
            0 => at(A_AT, further),
            3 => MemoryOperand::with_base_index_scale_displ_size(A_AT, THREE_STRIDES, 1, i64::from(further), 1),
            r => {
                let scale = u32::try_from(r).unwrap_or(1);
                MemoryOperand::with_base_index_scale_displ_size(A_AT, STRIDE, scale, i64::from(further), 1)
            }
        };
        for (vector, to, twice) in [(0, x, m), (1, y, n)] {
            self.asm.emit(Instruction::with2(Code::EVEX_Vmovups_zmm_k1z_zmmm512, zmm(to), place(64 * vector)));
            let shift = Code::EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8;
            self.asm.emit(Instruction::with3(shift, zmm(twice), zmm(to), 1));
        }
        // The largest magnitude.
        self.asm.emit(Instruction::with3(Code::EVEX_Vpmaxud_zmm_k1z_zmm_zmmm512b32, zmm(m), zmm(m), zmm(n)));
        self.asm.emit(Instruction::with3(Code::EVEX_Vextracti64x4_ymmm256_k1z_zmm_imm8, ymm(n), zmm(m), 1));
        self.asm.emit(Instruction::with3(Code::EVEX_Vpmaxud_ymm_k1z_ymm_ymmm256b32, ymm(m), ymm(m), ymm(n)));
        self.asm.emit(Instruction::with3(Code::EVEX_Vextracti32x4_xmmm128_k1z_ymm_imm8, xmm(n), ymm(m), 1));
        let larger = Code::EVEX_Vpmaxud_xmm_k1z_xmm_xmmm128b32;
        self.asm.emit(Instruction::with3(larger, xmm(m), xmm(m), xmm(n)));
        for order in [0x4e, 0xb1] {
            self.asm.emit(Instruction::with3(Code::EVEX_Vpshufd_xmm_k1z_xmmm128b32_imm8, xmm(n), xmm(m), order));
            self.asm.emit(Instruction::with3(larger, xmm(m), xmm(m), xmm(n)));
        }
        self.asm.emit(Instruction::with3(larger, xmm(m), xmm(m), frame(MIN_MAGNITUDE)).map(broadcast));
        self.asm.emit(Instruction::with3(Code::EVEX_Vpsrld_xmm_k1z_xmmm128b32_imm8, xmm(m), xmm(m), 1));
        // max - max is NaN if the maximum is infinite or NaN, else 0; it is added to `t`.
        self.asm.emit(Instruction::with3(Code::EVEX_Vsubss_xmm_k1z_xmm_xmmm32_er, xmm(n), xmm(m), xmm(m)));
        let multiply = Code::EVEX_Vfmadd231ss_xmm_k1z_xmm_xmmm32_er;
        self.asm.emit(Instruction::with3(multiply, xmm(n), xmm(m), frame(INVERSE_MAX)));
        self.asm.emit(Instruction::with2(Code::EVEX_Vmovss_m32_k1_xmm, frame(UNITS + 4 * r), xmm(n)));
        self.asm.emit(Instruction::with2(Code::EVEX_Vmovss_xmm_k1z_m32, xmm(n), frame(MAX_INTEGER)));
        self.asm.emit(Instruction::with3(Code::EVEX_Vdivss_xmm_k1z_xmm_xmmm32_er, xmm(n), xmm(n), xmm(m)));
        self.asm.emit(Instruction::with2(Code::EVEX_Vbroadcastss_zmm_k1z_xmmm32, zmm(n), xmm(n)));
        for (vector, from) in [(0, x), (1, y)] {
            let register = zmm(from);
            let fma = Code::EVEX_Vfmadd213ps_zmm_k1z_zmm_zmmm512b32_er;
            self.asm.emit(Instruction::with3(fma, register, zmm(n), zmm(MIDDLE)));
            self.asm.emit(Instruction::with2(Code::EVEX_Vcvtps2dq_zmm_k1z_zmmm512b32_er, register, register));
            if self.shape.right == Right::Nibbles {
                // Swap the second and third of each four steps, as in `gather`.
                let code = Code::EVEX_Vpshufd_zmm_k1z_zmmm512b32_imm8;
                self.asm.emit(Instruction::with3(code, register, register, 0xd8));
            }
            let to = frame(32 * r + 16 * vector);
            self.asm.emit(Instruction::with2(Code::EVEX_Vpmovusdb_xmmm128_k1z_zmm, to, register));
        }
    }
}

/// Marks the memory operand as a broadcast of one element.
fn broadcast(mut i: Instruction) -> Instruction {
    i.set_is_broadcast(true);
    i
}
