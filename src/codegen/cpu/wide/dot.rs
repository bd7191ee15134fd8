//! `dot` as a leaf function: `acc + a @ b` in register tiles.
//!
//! In: the width and the static layout of the three tiles ([`DotShape`]). Out: code with these
//! arguments: `a`, the stride of `a` (in bytes, along its axis that is not dense), `b`, `acc`,
//! rows, inner extent, the scales of `b` (if any; a row has one for each column of `b`), the
//! initial value of the sums (if they do not start from the accumulator), the order of prefetches
//! for this processor (`dot_few`), and, if requested, address and row stride of the result.
//!
//! A register tile is `h` rows by up to two vectors of columns, `h` at most 14 (AVX-512: 28
//! accumulators, two registers for a row of `b`, two for elements of `a`) or 6 (AVX2: 12, two,
//! one). Rows are split evenly into `ceil(rows / MR)` tiles whose heights differ by at most one, so
//! no tile has so few accumulators that FMA latency is the limit. Each height has its own code. A
//! tile's loop runs over the whole inner extent, unrolled by four; a step loads one row of `b` and
//! broadcasts one element of each row of `a`: a broadcast is a load that an FMA does not wait for,
//! and each is used by two FMAs.
//!
//! Every element is one chain `fma(a, b, sum)` from 0 in the order of the inner index, whatever the
//! tile; the accumulator's previous contents are added last (`tile::Op::Dot`). Pairs of `bf16` go
//! through `vdpbf16ps`, the odd step of each pair first, flushing subnormals; with AVX-512 or
//! AVX-VNNI, integer weights are summed exactly in groups, with left operands quantised to 8 bits
//! (`dot_whole`, `dot_bytes`).
//!
//! If the row stride of the left operand is a multiple of the page size, the lines of all rows map
//! to one set of L1, which has 12 ways: tiles then have fewer rows ([`ALIASED_ROWS`]), so that the
//! lines stay while their elements are used.
//!
//! Most kernels know before the matmul where its result is stored ([`DotShape::result`]). Each
//! register tile begins by prefetching its rows there for writing; otherwise all stores of a
//! kernel's tile would come at once and wait for memory. Doing so in the inner loop, one row per
//! iteration, cost up to 6 % of the time on a Granite Rapids (11 rows, operands in L2), and a
//! quarter where 33 rows also waited for `b`. With AVX-512, sums that are only stored go directly
//! to the result ([`DotShape::direct`]), one register tile while the next is computed; masks cut
//! off the columns past the end.
//!
//! If one tile has all rows and `b` comes from memory, other code reads it (`dot_few`).
//!
//! `b` may be narrower in memory than in computation ([`Right`]): it is widened when loaded, so
//! that a matmul of few rows reads fewer bytes. Integers are multiplied by their column's scale,
//! which changes every [`GROUP`] steps; two registers hold the scales, and tiles have two rows
//! fewer.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::super::origins::Comments;
use super::asm::Asm;
use super::registers::{self, at, vector};
use crate::tile::Width;

/// The static layout of the operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct DotShape {
    /// Is `a` dense along the inner axis? Else it is dense along the row axis.
    pub(super) inner_dense: bool,
    /// Bytes from a row of `b` to the next.
    pub(super) b_pitch: i32,
    /// Bytes from a row of the accumulator to the next.
    pub(super) acc_pitch: i32,
    pub(super) vectors: i32,
    /// Elements of `b` in memory.
    pub(super) right: Right,
    /// Is `a` quantised in groups and multiplied as bytes, if `b` is integers and the inner extent
    /// a multiple of the group?
    pub(super) groups: bool,
    /// Do all sums start with one constant? Else they start with 0, and the accumulator is added at
    /// the end.
    pub(super) filled: bool,
    /// The operand that is prefetched meanwhile.
    pub(super) ahead: Ahead,
    /// Cache lines of a result row that are prefetched for writing; 0 if the destination is
    /// unknown.
    pub(super) result: i32,
    /// Are the sums stored to the result instead of the accumulator? AVX-512 only; at most two
    /// vectors.
    pub(super) direct: bool,
}

/// The right operand that a leaf prefetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Ahead {
    Nothing,
    /// `b` is a panel in memory, followed by the panel that is read next.
    Panel,
    /// `b` was copied from rows of a buffer. Two more arguments are the address of the rows that
    /// are copied next, as many, and their stride in bytes.
    Rows,
}

/// Elements of a right operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Right {
    F32,
    /// `bf16`, the upper half of an `f32`.
    Bf16,
    /// Pairs of `bf16`, of two `k` steps: a step of this code is a pair of both operands
    /// (`vdpbf16ps`).
    Pairs,
    /// `i8`, times a scale.
    Bytes,
    /// 4-bit integers from -8 to 7, times a scale: a byte has the elements of two steps, the first
    /// in the lower half. A row of `b` is then two steps.
    Nibbles,
}

impl Right {
    pub(super) fn scaled(self) -> bool {
        matches!(self, Right::Bytes | Right::Nibbles)
    }

    /// Constants for quantising a row of `a`, where `b` is integers (`dot_whole`): the bits of the
    /// least magnitude, doubled, since magnitudes are compared as doubled bits (which drops the
    /// sign); the bits of the largest integer; and of its inverse, divided by 16 for 4-bit weights,
    /// which are computed as 16 times their value.
    pub(super) fn rounding(self) -> [u32; 3] {
        let largest = 127.0_f32;
        let part = 1.0 / if self == Right::Nibbles { largest * 16.0 } else { largest };
        [1e-30_f32.to_bits() << 1, largest.to_bits(), part.to_bits()]
    }
}

/// `k` steps that share a scale.
const GROUP: i32 = crate::tile::GROUP;

/// Unroll factor of the inner loop.
pub(super) const UNROLL: i32 = 4;

/// Maximum distance in bytes between a load's addresses in consecutive iterations.
const FARTHEST: i32 = 1024;

/// Unroll factor for a row stride of the right operand: a power of two. Hardware prefetchers track
/// each load instruction, up to a maximum stride: on a Zen 5, loads that advance by 1.5 KiB read
/// 250 GB/s from L2, and by 2 KiB only 128. Half the unroll factor suffices for interleaved panels;
/// larger row strides do not occur in panels.
pub(super) fn unroll(b_pitch: i32) -> i32 {
    let half = UNROLL / 2;
    if b_pitch > FARTHEST / UNROLL && b_pitch <= FARTHEST / half { half } else { UNROLL }
}

/// Prefetch distance in bytes of the scales, which are a separate stream.
pub(super) const SCALES_AHEAD: i32 = 2048;

/// Bytes of a cache line.
pub(super) const LINE: i32 = 64;
/// Bytes of a page, and the distance of lines that map to the same L1 set.
const PAGE: i32 = 4096;
/// Maximum rows of a register tile whose lines map to one L1 set: one of its 12 ways is left for
/// other data.
const ALIASED_ROWS: i32 = 11;

pub(super) const WORDS: Register = Register::RDI;
/// Pointers: first row of the tile in `a`, `b` at the current columns, first row of the tile in the
/// accumulator.
pub(super) const A: Register = Register::R8;
pub(super) const B: Register = Register::R9;
pub(super) const ACC: Register = Register::R10;
/// Stride of `a`.
pub(super) const STRIDE: Register = Register::R11;
pub(super) const INNER: Register = Register::RSI;
/// Address of the next prefetch.
pub(super) const NEXT: Register = Register::RBX;
/// Result row at which the next register tile begins, and the row stride in bytes.
const RESULT: Register = Register::RDX;
const RESULT_PITCH: Register = Register::RCX;
/// Inside a tile: current row of `b`, step counter, pointers into `a`.
pub(super) const B_ROW: Register = Register::RBP;
pub(super) const STEPS: Register = Register::RDI;
pub(super) const POINTERS: [Register; 5] = [Register::RAX, Register::R12, Register::R13, Register::R14, Register::R15];
/// With scales, tiles have fewer rows, so the last pointer register is free.
const SCALES: Register = Register::R15;
/// In the red zone (nothing is called here): remaining tiles with one more row, end of the
/// prefetched range, remaining tiles, height of the lower tiles. The remaining steps are at -8.
const HIGH: i32 = -16;
pub(super) const END: i32 = -24;
const TILES: i32 = -32;
const LOW: i32 = -40;
/// Also there: the result row of the next tile, if sums are stored directly.
const PLACE: i32 = -48;
/// Offset of the arguments for the result: its first row, row stride in bytes, and a bit for each
/// column.
const RESULT_WORD: i32 = 8 * 9;
const PITCH_WORD: i32 = 8 * 10;
const MASK_WORD: i32 = 8 * 11;
/// Masks of the result's columns, for direct stores.
const MASKS: [Register; 2] = [Register::K1, Register::K2];
/// The 16 values of 4-bit weights, as `f32`.
const TABLE: Register = Register::ZMM31;

/// Use of a register that is not an accumulator.
#[derive(Clone, Copy)]
enum Spare {
    /// A vector of a row of `b`.
    Column(i32),
    /// The scales of a vector of columns.
    Scale(i32),
    /// Packed 4-bit weights of two rows of a vector of columns.
    Halves(i32),
    /// An element of `a`.
    Element(i32),
}

/// Generates the leaf.
///
/// # Errors
/// An instruction that cannot be encoded (a bug in attnc), or a layout too large for a
/// displacement.
pub(super) fn dot(width: Width, shape: DotShape, commented: bool) -> Result<(Vec<u8>, Comments), String> {
    let mut d = Dot { asm: Asm::new(commented), width, shape, prefetch: Prefetch::Pages };
    d.function();
    d.asm.finish()
}

/// Order in which weights are prefetched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefetch {
    /// From several pages in turn.
    Pages,
    /// In the order of addresses.
    Order,
    /// In the order of addresses, with non-temporal prefetches.
    Passing,
}

pub(super) struct Dot {
    pub(super) asm: Asm,
    pub(super) width: Width,
    pub(super) shape: DotShape,
    /// The prefetch order of the code being generated.
    pub(super) prefetch: Prefetch,
}

impl Dot {
    pub(super) fn vector_bytes(&self) -> i32 {
        registers::bytes(self.width)
    }

    pub(super) fn most_rows(&self) -> i32 {
        let rows = registers::dot_rows(self.width);
        if self.shape.right.scaled() { rows - 2 } else { rows }
    }

    fn function(&mut self) {
        let saved = [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];
        for r in saved {
            self.asm.emit(Instruction::with1(Code::Push_r64, r));
        }
        self.asm.emit(Instruction::with1(Code::Push_r64, WORDS));
        let done = self.asm.label();
        if self.shape.direct {
            self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, Register::RAX, at(WORDS, RESULT_WORD)));
            self.asm.emit(Instruction::with2(Code::Mov_rm64_r64, at(Register::RSP, PLACE), Register::RAX));
            for (mask, word) in MASKS.into_iter().zip([MASK_WORD, MASK_WORD + 2]) {
                self.asm.emit(Instruction::with2(Code::VEX_Kmovw_kr_km16, mask, at(WORDS, word)));
            }
        }
        if self.is_few() {
            self.few(done);
        }
        if self.is_of_bytes() {
            self.of_bytes(done);
        }
        if self.is_whole() {
            self.whole(done);
        } else if self.shape.right == Right::Nibbles && self.width == Width::V512 {
            self.nibble_table();
        }
        let (mut first, mut left) = (0, self.shape.vectors);
        while left > 0 {
            let n = left.min(2);
            self.columns(first, n, done);
            first += n;
            left -= n;
        }
        self.asm.bind(done);
        self.asm.emit(Instruction::with1(Code::Pop_r64, WORDS));
        for r in saved.into_iter().rev() {
            self.asm.emit(Instruction::with1(Code::Pop_r64, r));
        }
        self.asm.emit(Ok(Instruction::with(Code::VEX_Vzeroupper)));
        self.asm.emit(Ok(Instruction::with(Code::Retnq)));
    }

    /// All rows of `vectors` vectors of columns, starting with vector `first`.
    fn columns(&mut self, first: i32, vectors: i32, done: super::asm::Label) {
        let load =
            |d: &mut Self, r, word: i32| d.asm.emit(Instruction::with2(Code::Mov_r64_rm64, r, at(WORDS, 8 * word)));
        self.asm.comment(format!("{vectors} vectors of columns from vector {first}"));
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, WORDS, at(Register::RSP, 0)));
        for (word, r) in [A, STRIDE, B, ACC, Register::RAX, INNER].into_iter().enumerate() {
            load(self, r, i32::try_from(word).unwrap_or(0));
        }
        // Without steps there is nothing to do, unless the accumulator must still be initialised or
        // stored elsewhere.
        let needed: &[Register] =
            if self.shape.filled || self.shape.direct { &[Register::RAX] } else { &[Register::RAX, INNER] };
        for r in needed {
            self.asm.emit(Instruction::with2(Code::Test_rm64_r64, *r, *r));
            self.asm.jump(Code::Jle_rel32_64, done);
        }
        let skip = first * self.vector_bytes();
        if skip != 0 {
            self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, B, first * self.right_bytes()));
            self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, ACC, skip));
        }
        // tiles = ceil(rows / MR); rows = tiles * low + high: `high` tiles have one more row.
        let [high, tiles, low] = [HIGH, TILES, LOW].map(|place| at(Register::RSP, place));
        self.asm.emit(Instruction::with2(Code::Mov_rm64_imm32, Register::RCX, self.most_rows()));
        if self.shape.inner_dense && self.most_rows() > ALIASED_ROWS {
            self.asm.emit(Instruction::with2(Code::Mov_rm64_imm32, Register::RDX, ALIASED_ROWS));
            self.asm.emit(Instruction::with2(Code::Test_rm64_imm32, STRIDE, PAGE - 1));
            self.asm.emit(Instruction::with2(Code::Cmove_r64_rm64, Register::RCX, Register::RDX));
        }
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, NEXT, Register::RAX));
        let up = MemoryOperand::with_base_index_scale_displ_size(Register::RAX, Register::RCX, 1, -1, 1);
        self.asm.emit(Instruction::with2(Code::Lea_r64_m, Register::RAX, up));
        self.asm.emit(Instruction::with2(Code::Xor_r32_rm32, Register::EDX, Register::EDX));
        self.asm.emit(Instruction::with1(Code::Div_rm64, Register::RCX));
        self.asm.emit(Instruction::with2(Code::Mov_rm64_r64, tiles, Register::RAX));
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, Register::RAX, NEXT));
        self.asm.emit(Instruction::with2(Code::Xor_r32_rm32, Register::EDX, Register::EDX));
        self.asm.emit(Instruction::with1(Code::Div_rm64, tiles));
        self.asm.emit(Instruction::with2(Code::Mov_rm64_r64, high, Register::RDX));
        self.asm.emit(Instruction::with2(Code::Mov_rm64_r64, low, Register::RAX));
        if self.shape.result > 0 {
            load(self, RESULT, 9);
            load(self, RESULT_PITCH, 10);
        }
        self.start_prefetches(first);

        let next = self.asm.here();
        let heights: Vec<_> = (1..=self.most_rows()).map(|h| (h, self.asm.label())).collect();
        let after = self.asm.label();
        // rax = height of this tile: LOW, plus one while HIGH > 0.
        self.asm.emit(Instruction::with2(Code::Xor_r32_rm32, Register::EAX, Register::EAX));
        self.asm.emit(Instruction::with2(Code::Cmp_rm64_imm8, high, 0));
        self.asm.emit(Instruction::with1(Code::Setne_rm8, Register::AL));
        self.asm.emit(Instruction::with2(Code::Sub_rm64_r64, high, Register::RAX));
        self.asm.emit(Instruction::with2(Code::Add_r64_rm64, Register::RAX, low));
        for (h, label) in heights.iter().rev() {
            self.asm.emit(Instruction::with2(Code::Cmp_rm64_imm8, Register::RAX, *h));
            self.asm.jump(Code::Je_rel32_64, *label);
        }
        self.asm.jump(Code::Jmp_rel32_64, done);
        for (h, label) in heights {
            self.asm.bind(label);
            self.asm.comment(format!("{h} rows x {vectors} vectors"));
            self.tile(h, first, vectors);
            self.asm.jump(Code::Jmp_rel32_64, after);
        }
        self.asm.bind(after);
        self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, tiles, 1));
        self.asm.jump(Code::Jne_rel32_64, next);
    }

    /// Computes one register tile and advances to the next.
    fn tile(&mut self, height: i32, first: i32, vectors: i32) {
        if self.shape.result > 0 {
            for _ in 0..height {
                for line in 0..self.shape.result {
                    self.asm.emit(Instruction::with1(Code::Prefetchw_m8, at(RESULT, LINE * line)));
                }
                self.asm.emit(Instruction::with2(Code::Add_r64_rm64, RESULT, RESULT_PITCH));
            }
        }
        self.start_sums(height, vectors);
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, B_ROW, B));
        self.stop_prefetches();
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, POINTERS[0], A));
        self.set_pointers(height);
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, STEPS, INNER));
        if self.shape.right.scaled() {
            self.groups(height, first, vectors);
        } else {
            self.counted_steps(height, vectors);
        }
        self.store_sums(height, vectors);
        self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, ACC, height * self.shape.acc_pitch));
        if self.shape.inner_dense {
            self.asm.emit(Instruction::with3(Code::Imul_r64_rm64_imm32, Register::RAX, STRIDE, height));
            self.asm.emit(Instruction::with2(Code::Add_r64_rm64, A, Register::RAX));
        } else {
            self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, A, 4 * height));
        }
    }

    /// Initialises the sums of a tile. `WORDS` is free afterwards.
    pub(super) fn start_sums(&mut self, height: i32, vectors: i32) {
        let width = self.width;
        let acc = |r: i32, v: i32| vector(width, r * vectors + v);
        if self.shape.filled {
            let (spread, _) = registers::spread_and_fma(width);
            self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, WORDS, at(Register::RSP, 0)));
            self.asm.emit(Instruction::with2(spread, acc(0, 0), at(WORDS, 56)));
            for n in 1..height * vectors {
                self.asm.emit(Instruction::with2(registers::copy(width), vector(width, n), acc(0, 0)));
            }
            return;
        }
        let (xor, _) = registers::xor_and_add(width);
        for n in 0..height * vectors {
            let sum = vector(width, n);
            self.asm.emit(Instruction::with3(xor, sum, sum, sum));
        }
    }

    /// Adds the accumulator's contents, unless the sums started with a constant, and stores the
    /// sums of a tile. `WORDS` is free.
    pub(super) fn store_sums(&mut self, height: i32, vectors: i32) {
        if !self.shape.filled {
            let (_, add) = registers::xor_and_add(self.width);
            for (r, v) in (0..height).flat_map(|r| (0..vectors).map(move |v| (r, v))) {
                let place = at(ACC, r * self.shape.acc_pitch + v * self.vector_bytes());
                let sum = vector(self.width, r * vectors + v);
                self.asm.emit(Instruction::with3(add, sum, sum, place));
            }
        }
        let (_, store) = registers::moves(self.width);
        if self.shape.direct {
            let (place, pitch) = (Register::RAX, WORDS);
            self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, pitch, at(Register::RSP, 0)));
            self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, pitch, at(pitch, PITCH_WORD)));
            self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, place, at(Register::RSP, PLACE)));
            for r in 0..height {
                for (v, mask) in (0..vectors).zip(MASKS) {
                    let sum = vector(self.width, r * vectors + v);
                    let masked = Instruction::with2(store, at(place, v * self.vector_bytes()), sum).map(|mut i| {
                        i.set_op_mask(mask);
                        i
                    });
                    self.asm.emit(masked);
                }
                self.asm.emit(Instruction::with2(Code::Add_r64_rm64, place, pitch));
            }
            self.asm.emit(Instruction::with2(Code::Mov_rm64_r64, at(Register::RSP, PLACE), place));
            return;
        }
        for r in 0..height {
            for v in 0..vectors {
                let place = at(ACC, r * self.shape.acc_pitch + v * self.vector_bytes());
                self.asm.emit(Instruction::with2(store, place, vector(self.width, r * vectors + v)));
            }
        }
    }

    /// Sets the pointers into `a`: each serves three rows, by index 0, 1 and 2 times the stride.
    pub(super) fn set_pointers(&mut self, height: i32) {
        if self.shape.inner_dense {
            let groups = usize::try_from((height + 2) / 3).unwrap_or(1);
            for g in 1..groups {
                let two = MemoryOperand::with_base_index_scale(POINTERS[g - 1], STRIDE, 2);
                self.asm.emit(Instruction::with2(Code::Lea_r64_m, POINTERS[g], two));
                self.asm.emit(Instruction::with2(Code::Add_r64_rm64, POINTERS[g], STRIDE));
            }
        } else {
            let two = MemoryOperand::with_base_index_scale(STRIDE, STRIDE, 2);
            self.asm.emit(Instruction::with2(Code::Lea_r64_m, POINTERS[1], two));
        }
    }

    /// A loop over `STEPS` steps, at least one.
    fn counted_steps(&mut self, height: i32, vectors: i32) {
        let (rest, done, several) = (self.asm.label(), self.asm.label(), self.asm.label());
        let unroll = unroll(self.shape.b_pitch);
        self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, STEPS, unroll));
        self.asm.jump(Code::Jl_rel32_64, rest);
        self.asm.bind(several);
        self.steps(height, vectors, unroll);
        self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, STEPS, unroll));
        self.asm.jump(Code::Jge_rel32_64, several);
        self.asm.bind(rest);
        self.asm.emit(Instruction::with2(Code::Add_rm64_imm8, STEPS, unroll));
        self.asm.jump(Code::Je_rel32_64, done);
        if self.shape.right == Right::Nibbles {
            // Both steps of whole bytes, then possibly the lower half of the last one.
            let last = self.asm.label();
            self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, STEPS, 2));
            self.asm.jump(Code::Jl_rel32_64, last);
            self.steps(height, vectors, 2);
            self.asm.emit(Instruction::with2(Code::Test_rm64_r64, STEPS, STEPS));
            self.asm.jump(Code::Je_rel32_64, done);
            self.asm.bind(last);
            self.steps(height, vectors, 1);
        } else {
            let one = self.asm.here();
            self.steps(height, vectors, 1);
            self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, STEPS, 1));
            self.asm.jump(Code::Jne_rel32_64, one);
        }
        self.asm.bind(done);
    }

    /// All steps, group by group, each with its scales.
    fn groups(&mut self, height: i32, first: i32, vectors: i32) {
        let bytes = self.vector_bytes();
        let (load, _) = registers::moves(self.width);
        // The remaining steps are in the red zone; nothing is called here.
        let left = at(Register::RSP, -8);
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, SCALES, at(Register::RSP, 0)));
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, SCALES, at(SCALES, 48)));
        let (next, done) = (self.asm.label(), self.asm.label());
        self.asm.emit(Instruction::with2(Code::Test_rm64_r64, STEPS, STEPS));
        self.asm.jump(Code::Jle_rel32_64, done);
        self.asm.bind(next);
        for v in 0..vectors {
            let scale = self.spare(height, vectors, Spare::Scale(v));
            self.asm.emit(Instruction::with2(load, scale, at(SCALES, (first + v) * bytes)));
        }
        // A row of scales has as many elements as a row of `b`.
        self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, SCALES, 4 * self.shape.b_pitch));
        let part = self.asm.label();
        self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, STEPS, GROUP));
        self.asm.emit(Instruction::with2(Code::Mov_rm64_r64, left, STEPS));
        self.asm.jump(Code::Jle_rel32_64, part);
        self.asm.emit(Instruction::with2(Code::Xor_r32_rm32, Register::EDI, Register::EDI));
        self.asm.bind(part);
        self.asm.emit(Instruction::with2(Code::Add_rm64_imm8, STEPS, GROUP));
        self.counted_steps(height, vectors);
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, STEPS, left));
        self.asm.emit(Instruction::with2(Code::Test_rm64_r64, STEPS, STEPS));
        self.asm.jump(Code::Jg_rel32_64, next);
        self.asm.bind(done);
    }

    /// Bytes of a vector of columns of `b` in memory.
    pub(super) fn right_bytes(&self) -> i32 {
        match self.shape.right {
            Right::F32 | Right::Pairs => self.vector_bytes(),
            Right::Bf16 => self.vector_bytes() / 2,
            Right::Bytes | Right::Nibbles => self.vector_bytes() / 4,
        }
    }

    /// The register for `what`; not an accumulator.
    fn spare(&self, height: i32, vectors: i32, what: Spare) -> Register {
        let first = height * vectors;
        let scaled = self.shape.right.scaled();
        let pairs = if scaled { vectors } else { 0 };
        let halves = if self.shape.right == Right::Nibbles { vectors } else { 0 };
        let n = match what {
            Spare::Column(v) => v,
            Spare::Scale(v) => vectors + v,
            Spare::Halves(v) => vectors + pairs + v,
            Spare::Element(turn) => vectors + pairs + halves + turn,
        };
        vector(self.width, first + n)
    }

    /// Loads the table of 4-bit values into the last register.
    pub(super) fn nibble_table(&mut self) {
        let (low, high) = (0x0706_0504_0302_0100_u64, 0xfffe_fdfc_fbfa_f9f8_u64);
        let x = Register::XMM0;
        self.asm.emit(Instruction::with2(Code::Mov_r64_imm64, Register::RAX, low));
        self.asm.emit(Instruction::with2(Code::VEX_Vmovq_xmm_rm64, x, Register::RAX));
        self.asm.emit(Instruction::with2(Code::Mov_r64_imm64, Register::RAX, high));
        self.asm.emit(Instruction::with4(Code::VEX_Vpinsrq_xmm_xmm_rm64_imm8, x, x, Register::RAX, 1));
        self.asm.emit(Instruction::with2(Code::EVEX_Vpmovsxbd_zmm_k1z_xmmm128, TABLE, x));
        self.asm.emit(Instruction::with2(Code::EVEX_Vcvtdq2ps_zmm_k1z_zmmm512b32_er, TABLE, TABLE));
    }

    /// Vector `v` of the row of `b` at step `u`, as `f32`.
    fn column(&mut self, height: i32, vectors: i32, v: i32, u: i32) {
        let width = self.width;
        let to = self.spare(height, vectors, Spare::Column(v));
        let scale = self.spare(height, vectors, Spare::Scale(v));
        let row = if self.shape.right == Right::Nibbles { u / 2 } else { u };
        let place = at(B_ROW, row * self.shape.b_pitch + v * self.right_bytes());
        let w = registers::widening(width);
        match self.shape.right {
            Right::F32 | Right::Pairs => self.asm.emit(Instruction::with2(registers::moves(width).0, to, place)),
            Right::Bf16 => {
                self.asm.emit(Instruction::with2(w.words, to, place));
                self.asm.emit(Instruction::with3(w.shift_left, to, to, 16));
            }
            Right::Bytes => {
                self.asm.emit(Instruction::with2(w.signed_bytes, to, place));
                self.asm.emit(Instruction::with2(w.to_float, to, to));
                self.asm.emit(Instruction::with3(w.multiply, to, to, scale));
            }
            Right::Nibbles => {
                let halves = self.spare(height, vectors, Spare::Halves(v));
                if u % 2 == 0 {
                    self.asm.emit(Instruction::with2(w.bytes, halves, place));
                }
                if width == Width::V512 {
                    // The permutation uses only the lowest four bits.
                    if u % 2 == 1 {
                        self.asm.emit(Instruction::with3(w.shift_right, halves, halves, 4));
                    }
                    self.asm.emit(Instruction::with3(Code::EVEX_Vpermps_zmm_k1z_zmm_zmmm512b32, to, halves, TABLE));
                } else {
                    let up = if u % 2 == 0 { 28 } else { 24 };
                    self.asm.emit(Instruction::with3(w.shift_left, to, halves, up));
                    self.asm.emit(Instruction::with3(w.shift_right_signed, to, to, 28));
                    self.asm.emit(Instruction::with2(w.to_float, to, to));
                }
                self.asm.emit(Instruction::with3(w.multiply, to, to, scale));
            }
        }
    }

    /// Emits `count` steps and advances the pointers.
    pub(super) fn steps(&mut self, height: i32, vectors: i32, count: i32) {
        let (spread, fma) = match self.shape.right {
            Right::Pairs => (registers::spread_and_fma(self.width).0, Code::EVEX_Vdpbf16ps_zmm_k1z_zmm_zmmm512b32),
            _ => registers::spread_and_fma(self.width),
        };
        // Elements of `a` rotate through the remaining registers.
        let table = i32::from(self.shape.right == Right::Nibbles && self.width == Width::V512);
        let taken = match self.shape.right {
            Right::F32 | Right::Bf16 | Right::Pairs => 1,
            Right::Bytes => 2,
            Right::Nibbles => 3,
        };
        let spare = registers::count(self.width) - height * vectors - taken * vectors - table;
        let turns = spare.clamp(1, 4);
        let mut turn = 0;
        let is_whole = count == unroll(self.shape.b_pitch);
        for u in 0..count {
            if is_whole {
                self.prefetch_step(vectors, u);
            }
            for v in 0..vectors {
                self.column(height, vectors, v, u);
            }
            for r in 0..height {
                let element = self.spare(height, vectors, Spare::Element(turn));
                turn = (turn + 1) % turns;
                let place = self.element(r, u);
                self.asm.emit(Instruction::with2(spread, element, place));
                for v in 0..vectors {
                    let sum = vector(self.width, r * vectors + v);
                    let column = self.spare(height, vectors, Spare::Column(v));
                    self.asm.emit(Instruction::with3(fma, sum, element, column));
                }
            }
        }
        let rows_of_b = if self.shape.right == Right::Nibbles { (count + 1) / 2 } else { count };
        self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, B_ROW, rows_of_b * self.shape.b_pitch));
        if is_whole {
            self.advance_prefetches();
        }
        if self.shape.inner_dense {
            let groups = usize::try_from((height + 2) / 3).unwrap_or(1);
            for p in &POINTERS[..groups] {
                self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, *p, 4 * count));
            }
        } else {
            match count {
                1 => self.asm.emit(Instruction::with2(Code::Add_r64_rm64, POINTERS[0], STRIDE)),
                n => {
                    let scale = u32::try_from(n).unwrap_or(1);
                    let further = MemoryOperand::with_base_index_scale(POINTERS[0], STRIDE, scale);
                    self.asm.emit(Instruction::with2(Code::Lea_r64_m, POINTERS[0], further));
                }
            }
        }
    }

    /// Address of the element of `a` in row `r`, step `u`.
    fn element(&self, r: i32, u: i32) -> MemoryOperand {
        let with = |base, scale: i32, d: i32| match scale {
            0 => at(base, d),
            s => MemoryOperand::with_base_index_scale_displ_size(
                base,
                STRIDE,
                u32::try_from(s).unwrap_or(1),
                i64::from(d),
                1,
            ),
        };
        if self.shape.inner_dense {
            let group = usize::try_from(r / 3).unwrap_or(0);
            with(POINTERS[group], r % 3, 4 * u)
        } else if u == 3 {
            MemoryOperand::with_base_index_scale_displ_size(POINTERS[0], POINTERS[1], 1, i64::from(4 * r), 1)
        } else {
            with(POINTERS[0], u, 4 * r)
        }
    }
}
