//! AMX micro-kernel of the `dot` leaf for `bf16`: `acc + a @ b` by `tdpbf16ps`.
//!
//! In: the static layout ([`TilesShape`]). Out: code with six arguments: `a`, the row stride of `a`
//! in bytes, `b`, `acc`, rows, inner extent. Rows of `a` are dense; `b` has a row for each pair of
//! `k` steps, in which the two elements of a column are adjacent; `acc` is `f32`.
//!
//! A tile register is 16 rows of 64 bytes. Four hold sums: two bands of 16 rows by two vectors of
//! columns; two hold `a` (a band, 32 steps), two hold `b` (16 pairs of steps, a vector of columns).
//! So each loaded tile is used twice, and four accumulator chains run in parallel: four tile
//! products for four loads, each load placed right after the last product that reads its register.
//! The last rows have smaller bands, or only one band.
//!
//! If the sums overwrite the accumulator and there are more than two bands, `k` is blocked by
//! [`BLOCK`]: all bands process one block before the next, with the partial sums kept in the
//! accumulator (the bits are the same). A block of `b` is 16 KiB for two vectors of columns, as
//! much as two bands of `a`, so it stays in L1 (48 KiB) while `a` streams through: of four loaded
//! tiles, two come from L2 instead of four. A tile product takes 16 cycles, in which L2 delivers
//! some 500 bytes (`cpu.md`'s 1958 GFLOP/s on two cores), half a tile. The cost is four loads and
//! four stores of sums for each 32 tile products. Tests count this in an emulator; it was not
//! measured on a machine with AMX.
//!
//! The next part of `b` is prefetched meanwhile. Two bands prefetch the next panel, four lines for
//! each 32 steps, so that eight pairs of bands (256 rows) have prefetched all of it. A single band,
//! the last one, prefetches as much as it reads, at four positions in the 16 KiB window after the
//! current one (one stream of addresses does not saturate memory, see `dot_few`). On a Sapphire
//! Rapids this makes 12 layers of 512 rows a ninth faster.
//!
//! The remaining steps after the last 32 need tiles of another size, hence another tile
//! configuration, and reconfiguring zeroes all tiles: the sums go to memory and back. Sums that are
//! added to the accumulator also start with 0 and are added at the end (`tile::Op::Dot`); until
//! then they are on the stack. The remaining elements of `a` are copied to the stack and
//! zero-padded, so that nothing is read past an odd number of steps.
//!
//! An element is, by Intel's definition: for each 32 steps, two FMA chains from 0, over the even
//! and the odd steps in order; their sum is added to the previous value. Everything is rounded to
//! nearest even. Products of `bf16` are exact in `f32`, so with n steps a product is rounded at
//! most 18 + n / 32 times, and never more than n + 2 times: the error is within the bound for any
//! order of summation, (n + 2) 2^-24 times the sum of the products' magnitudes. Subnormals are
//! flushed to 0, in and out. That adds at most 2^-126 for each sum, and for a subnormal factor the
//! whole product: less than 2^-126 times the other factor. An element does not depend on the rows
//! and columns around it.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::super::origins::Comments;
use super::asm::Asm;
use super::registers::at;

/// The static layout of the operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TilesShape {
    /// Bytes from a pair of steps of `b` to the next.
    pub(super) b_pitch: i32,
    /// Bytes from a row of the accumulator to the next.
    pub(super) acc_pitch: i32,
    /// Vectors of columns, 1 or 2.
    pub(super) vectors: i32,
    /// Do the sums overwrite the accumulator? Else they are added to it.
    pub(super) zero: bool,
}

const WORDS: Register = Register::RDI;
/// Pointers: first row of the bands in `a`, `b`, first row of the bands in the accumulator; `a` and
/// `b` at the block's first step.
const A: Register = Register::R8;
const B: Register = Register::R9;
const ACC: Register = Register::R10;
/// Row strides in bytes: of `a`, `b`, the accumulator.
const A_STRIDE: Register = Register::R11;
const B_STRIDE: Register = Register::R14;
const ACC_STRIDE: Register = Register::R15;
/// Remaining rows, steps of the block.
const ROWS: Register = Register::RDX;
const INNER: Register = Register::RSI;
/// In the inner loop: pointers into `a` for both bands, `b`'s row, the count, the accumulator's
/// second band.
const UPPER: Register = Register::RAX;
const LOWER: Register = Register::R12;
const B_ROW: Register = Register::R13;
const COUNT: Register = Register::RCX;
const ACC_LOWER: Register = Register::RBX;
/// Address of the next prefetch.
const NEXT: Register = Register::RDI;

/// Stack offsets: the tile configuration, 32 rows of 32 elements of `a`, the end of the prefetched
/// range, a saved register, the arguments, the steps before the block, the next prefetch in the
/// next panel, 32 rows of two vectors of sums.
const CONFIG: i32 = 0;
const REST: i32 = 64;
const END: i32 = REST + 32 * 64;
const SAVED: i32 = END + 8;
const GIVEN: i32 = SAVED + 8;
const BEFORE: i32 = GIVEN + 8;
const PANEL: i32 = BEFORE + 8;
const SUMS: i32 = END + 64;
const FRAME: i32 = SUMS + 32 * SUMS_PITCH;
/// Row stride in bytes of the sums on the stack.
const SUMS_PITCH: i32 = 128;
/// Fields of a tile configuration: bytes per row (`u16` for each tile), rows (`u8` for each tile).
const WIDTHS: i32 = CONFIG + 16;
const HEIGHTS: i32 = CONFIG + 48;

/// Rows of a tile.
const BAND: i32 = 16;
/// Steps of a tile.
const TILE_STEPS: i32 = 32;
/// Steps of a block.
const BLOCK: i32 = 256;
/// Bytes of a line of the cache.
const LINE: i32 = 64;
/// Lines that two bands prefetch for each tile of steps.
const LINES: i32 = 4;
/// Positions at which a single band prefetches, and the tiles of steps that are divided among them.
const PLACES: i32 = 4;
const WINDOW: i32 = 8;

/// The tile register of the sums of a band and a vector of columns.
fn sums(band: i32, vector: i32) -> Register {
    register(2 * band + vector)
}

/// The tile register of `a` for a band.
fn left(band: i32) -> Register {
    register(4 + band)
}

/// The tile register of `b` for a vector of columns.
fn right(vector: i32) -> Register {
    register(6 + vector)
}

fn register(n: i32) -> Register {
    Register::TMM0 + u32::try_from(n).unwrap_or(0)
}

/// A tile operand: rows `stride` bytes apart, starting at `base + displacement`.
fn rows(base: Register, stride: Register, displacement: i32) -> MemoryOperand {
    MemoryOperand::with_base_index_scale_displ_size(base, stride, 1, i64::from(displacement), 1)
}

/// Generates the leaf.
///
/// # Errors
/// An instruction that cannot be encoded (a bug in attnc), or a layout too large for a
/// displacement.
pub(super) fn tiles(shape: TilesShape, commented: bool) -> Result<(Vec<u8>, Comments), String> {
    let mut t = Tiles { asm: Asm::new(commented), shape };
    t.function();
    t.asm.finish()
}

/// Addresses of the tiles of some steps.
struct Operands {
    /// The tiles of `a`, one for each band.
    left: [MemoryOperand; 2],
    /// The tiles of `b`: bytes from its current row.
    right: i32,
}

impl Operands {
    fn here() -> Operands {
        Operands { left: [UPPER, LOWER].map(|r| rows(r, A_STRIDE, 0)), right: 0 }
    }

    /// The operands of the next steps; `step_bytes` is the size of a tile of steps in `b`.
    fn further(step_bytes: i32) -> Operands {
        Operands { left: [UPPER, LOWER].map(|r| rows(r, A_STRIDE, 2 * TILE_STEPS)), right: step_bytes }
    }

    /// The tile of `b` for a vector of columns.
    fn right(&self, vector: i32) -> MemoryOperand {
        rows(B_ROW, B_STRIDE, self.right + 64 * vector)
    }
}

struct Tiles {
    asm: Asm,
    shape: TilesShape,
}

impl Tiles {
    fn two(&mut self, code: Code, to: Register, from: Register) {
        self.asm.emit(Instruction::with2(code, to, from));
    }

    fn number(&mut self, code: Code, to: Register, n: i32) {
        self.asm.emit(Instruction::with2(code, to, n));
    }

    fn function(&mut self) {
        let saved = [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];
        for r in saved {
            self.asm.emit(Instruction::with1(Code::Push_r64, r));
        }
        self.two(Code::Mov_r64_rm64, Register::RBP, Register::RSP);
        self.number(Code::Sub_rm64_imm32, Register::RSP, FRAME);
        self.number(Code::And_rm64_imm8, Register::RSP, -64);
        self.asm.emit(Instruction::with2(Code::Mov_rm64_r64, at(Register::RSP, GIVEN), WORDS));
        self.words(&[A, A_STRIDE, B, ACC, ROWS, INNER]);
        let (block, done) = (self.asm.label(), self.asm.label());
        self.two(Code::Test_rm64_r64, ROWS, ROWS);
        self.asm.jump(Code::Jle_rel32_64, done);
        self.number(Code::Mov_rm64_imm32, B_STRIDE, self.shape.b_pitch);
        self.number(Code::Mov_rm64_imm32, ACC_STRIDE, if self.shape.zero { self.shape.acc_pitch } else { SUMS_PITCH });
        self.write_configuration();
        // The panel after `b`, of the same size.
        self.asm.emit(Instruction::with3(Code::Imul_r64_rm64_imm32, UPPER, INNER, self.shape.b_pitch / 2));
        self.asm.emit(Instruction::with2(Code::Lea_r64_m, NEXT, MemoryOperand::with_base_index(B, UPPER)));
        self.two(Code::Add_r64_rm64, UPPER, NEXT);
        self.asm.emit(Instruction::with2(Code::Mov_rm64_r64, at(Register::RSP, END), UPPER));
        if !self.is_blocked() {
            self.all_bands();
            self.asm.bind(done);
            self.leave(&saved);
            return;
        }
        self.asm.emit(Instruction::with2(Code::Mov_rm64_imm32, at(Register::RSP, BEFORE), 0));
        self.number(Code::Cmp_rm64_imm8, ROWS, 2 * BAND);
        self.asm.jump(Code::Jle_rel32_64, block);
        self.number(Code::Cmp_rm64_imm32, INNER, BLOCK);
        self.asm.jump(Code::Jle_rel32_64, block);
        self.number(Code::Mov_rm64_imm32, INNER, BLOCK);
        self.asm.bind(block);
        self.all_bands();
        // Advance to the next block: the arguments hold the start addresses.
        self.asm.emit(Instruction::with2(Code::Mov_rm64_r64, at(Register::RSP, SAVED), NEXT));
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, COUNT, at(Register::RSP, BEFORE)));
        self.two(Code::Add_r64_rm64, COUNT, INNER);
        self.asm.emit(Instruction::with2(Code::Mov_rm64_r64, at(Register::RSP, BEFORE), COUNT));
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, WORDS, at(Register::RSP, GIVEN)));
        self.words(&[A, A_STRIDE, B, ACC, ROWS, INNER]);
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, NEXT, at(Register::RSP, SAVED)));
        self.two(Code::Sub_r64_rm64, INNER, COUNT);
        self.asm.jump(Code::Jle_rel32_64, done);
        self.asm.emit(Instruction::with2(Code::Lea_r64_m, A, MemoryOperand::with_base_index_scale(A, COUNT, 2)));
        self.asm.emit(Instruction::with3(Code::Imul_r64_rm64_imm32, COUNT, COUNT, self.shape.b_pitch / 2));
        self.two(Code::Add_r64_rm64, B, COUNT);
        self.number(Code::Mov_rm64_imm32, COUNT, BLOCK);
        self.two(Code::Cmp_r64_rm64, INNER, COUNT);
        self.two(Code::Cmovg_r64_rm64, INNER, COUNT);
        self.whole_heights();
        self.asm.jump(Code::Jmp_rel32_64, block);
        self.asm.bind(done);
        self.leave(&saved);
    }

    /// Is `k` blocked? Sums that are added at the end are on the stack, which has space for only
    /// two bands.
    fn is_blocked(&self) -> bool {
        self.shape.zero
    }

    /// Loads the first arguments into registers.
    fn words(&mut self, registers: &[Register]) {
        for (place, r) in (0i32..).step_by(8).zip(registers) {
            self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, *r, at(WORDS, place)));
        }
    }

    fn leave(&mut self, saved: &[Register]) {
        self.asm.emit(Ok(Instruction::with(Code::VEX_Tilerelease)));
        self.two(Code::Mov_r64_rm64, Register::RSP, Register::RBP);
        for r in saved.iter().rev() {
            self.asm.emit(Instruction::with1(Code::Pop_r64, *r));
        }
        self.asm.emit(Ok(Instruction::with(Code::VEX_Vzeroupper)));
        self.asm.emit(Ok(Instruction::with(Code::Retnq)));
    }

    /// All bands of rows, for the steps of a block. Expects the configuration of full tiles.
    fn all_bands(&mut self) {
        let (next, one_band, full, done) = (self.asm.here(), self.asm.label(), self.asm.label(), self.asm.label());
        self.number(Code::Cmp_rm64_imm8, ROWS, 2 * BAND);
        self.asm.jump(Code::Jge_rel32_64, full);
        self.number(Code::Cmp_rm64_imm8, ROWS, BAND);
        self.asm.jump(Code::Jle_rel32_64, one_band);
        self.asm.emit(Instruction::with2(Code::Lea_r64_m, COUNT, at(ROWS, -BAND)));
        self.heights(1);
        self.asm.bind(full);
        self.asm.comment("two bands of rows");
        self.bands(2);
        self.number(Code::Add_rm64_imm32, ACC, 2 * BAND * self.shape.acc_pitch);
        self.two(Code::Mov_r64_rm64, UPPER, A_STRIDE);
        self.number(Code::Shl_rm64_imm8, UPPER, 5);
        self.two(Code::Add_r64_rm64, A, UPPER);
        self.number(Code::Sub_rm64_imm8, ROWS, 2 * BAND);
        self.asm.jump(Code::Jg_rel32_64, next);
        self.asm.jump(Code::Jmp_rel32_64, done);
        self.asm.bind(one_band);
        self.asm.comment("one band of rows");
        self.two(Code::Mov_r64_rm64, COUNT, ROWS);
        self.heights(0);
        // A single band prefetches elsewhere.
        self.asm.emit(Instruction::with2(Code::Mov_rm64_r64, at(Register::RSP, PANEL), NEXT));
        self.bands(1);
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, NEXT, at(Register::RSP, PANEL)));
        self.asm.bind(done);
    }

    /// Writes the configuration of full tiles to the stack and loads it.
    fn write_configuration(&mut self) {
        let zero = Register::ZMM0;
        self.asm.comment("tiles of 16 rows of 64 bytes");
        self.asm.emit(Instruction::with3(Code::EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32, zero, zero, zero));
        let store = Code::EVEX_Vmovups_zmmm512_k1z_zmm;
        self.asm.emit(Instruction::with2(store, at(Register::RSP, CONFIG), zero));
        self.asm.emit(Instruction::with2(Code::Mov_rm8_imm8, at(Register::RSP, CONFIG), 1));
        self.asm.emit(Instruction::with2(Code::Mov_r64_imm64, Register::RAX, 0x0040_0040_0040_0040_u64));
        for half in [0, 8] {
            self.asm.emit(Instruction::with2(Code::Mov_rm64_r64, at(Register::RSP, WIDTHS + half), Register::RAX));
        }
        self.whole_heights();
    }

    /// Sets the height of all tiles to 16 rows, in memory.
    fn whole_heights(&mut self) {
        self.asm.emit(Instruction::with2(Code::Mov_r64_imm64, Register::RAX, 0x1010_1010_1010_1010_u64));
        self.asm.emit(Instruction::with2(Code::Mov_rm64_r64, at(Register::RSP, HEIGHTS), Register::RAX));
        self.configure();
    }

    fn configure(&mut self) {
        self.asm.emit(Instruction::with1(Code::VEX_Ldtilecfg_m512, at(Register::RSP, CONFIG)));
    }

    /// Sets the height of the tiles of a band to `COUNT` rows.
    fn heights(&mut self, band: i32) {
        for tile in [2 * band, 2 * band + 1, 4 + band] {
            self.asm.emit(Instruction::with2(Code::Mov_rm8_r8, at(Register::RSP, HEIGHTS + tile), Register::CL));
        }
        self.configure();
    }

    /// Tile registers of the sums of the bands, with their addresses.
    fn each_sum(&self, bands: i32) -> Vec<(Register, MemoryOperand)> {
        let each = (0..bands).flat_map(|band| (0..self.shape.vectors).map(move |v| (band, v)));
        let place = |(band, v): (i32, i32)| match (self.shape.zero, band) {
            (true, 0) => rows(ACC, ACC_STRIDE, 64 * v),
            (true, _) => rows(ACC_LOWER, ACC_STRIDE, 64 * v),
            (false, _) => rows(Register::RSP, ACC_STRIDE, SUMS + band * BAND * SUMS_PITCH + 64 * v),
        };
        each.map(|(band, v)| (sums(band, v), place((band, v)))).collect()
    }

    /// Adds the sums on the stack to the accumulator, for the rows of the bands.
    fn add_sums(&mut self, bands: i32) {
        let (left, from) = (COUNT, UPPER);
        self.number(Code::Mov_rm64_imm32, left, bands * BAND);
        self.two(Code::Cmp_r64_rm64, left, ROWS);
        self.two(Code::Cmovg_r64_rm64, left, ROWS);
        self.asm.emit(Instruction::with2(Code::Lea_r64_m, from, at(Register::RSP, SUMS)));
        self.two(Code::Mov_r64_rm64, ACC_LOWER, ACC);
        let row = self.asm.here();
        for v in 0..self.shape.vectors {
            let sum = Register::ZMM0 + u32::try_from(v).unwrap_or(0);
            self.asm.emit(Instruction::with2(Code::EVEX_Vmovups_zmm_k1z_zmmm512, sum, at(from, 64 * v)));
            let add = Code::EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er;
            self.asm.emit(Instruction::with3(add, sum, sum, at(ACC_LOWER, 64 * v)));
            self.asm.emit(Instruction::with2(Code::EVEX_Vmovups_zmmm512_k1z_zmm, at(ACC_LOWER, 64 * v), sum));
        }
        self.number(Code::Add_rm64_imm32, from, SUMS_PITCH);
        self.number(Code::Add_rm64_imm32, ACC_LOWER, self.shape.acc_pitch);
        self.number(Code::Sub_rm64_imm8, left, 1);
        self.asm.jump(Code::Jne_rel32_64, row);
    }

    fn load_sums(&mut self, bands: i32) {
        for (tile, place) in self.each_sum(bands) {
            self.asm.emit(Instruction::with2(Code::VEX_Tileloadd_tmm_sibmem, tile, place));
        }
    }

    fn store_sums(&mut self, bands: i32) {
        for (tile, place) in self.each_sum(bands) {
            self.asm.emit(Instruction::with2(Code::VEX_Tilestored_sibmem_tmm, place, tile));
        }
    }

    /// All steps of one or two bands of rows.
    fn bands(&mut self, bands: i32) {
        self.two(Code::Mov_r64_rm64, UPPER, A);
        self.two(Code::Mov_r64_rm64, LOWER, A_STRIDE);
        self.number(Code::Shl_rm64_imm8, LOWER, 4);
        self.two(Code::Add_r64_rm64, LOWER, A);
        self.two(Code::Mov_r64_rm64, ACC_LOWER, ACC);
        self.number(Code::Add_rm64_imm32, ACC_LOWER, BAND * self.shape.acc_pitch);
        let (zero, started) = (self.asm.label(), self.asm.label());
        if self.is_blocked() {
            self.asm.emit(Instruction::with2(Code::Cmp_rm64_imm8, at(Register::RSP, BEFORE), 0));
            self.asm.jump(Code::Je_rel32_64, zero);
            self.load_sums(bands);
            self.asm.jump(Code::Jmp_rel32_64, started);
        }
        self.asm.bind(zero);
        for (tile, _) in self.each_sum(bands) {
            self.asm.emit(Instruction::with1(Code::VEX_Tilezero_tmm, tile));
        }
        self.asm.bind(started);
        self.two(Code::Mov_r64_rm64, B_ROW, B);
        if bands == 2 {
            // Stop at the end: prefetching cached lines again costs almost nothing, but the lines
            // after it may not be needed.
            self.asm.emit(Instruction::with2(Code::Cmp_r64_rm64, NEXT, at(Register::RSP, END)));
            self.two(Code::Cmovae_r64_rm64, NEXT, B);
        } else {
            self.asm.emit(Instruction::with2(Code::Lea_r64_m, NEXT, at(B, WINDOW * self.step_bytes())));
        }
        self.two(Code::Mov_r64_rm64, COUNT, INNER);
        let (rest, after) = (self.asm.label(), self.asm.label());
        self.number(Code::Shr_rm64_imm8, COUNT, 5);
        self.asm.jump(Code::Je_rel32_64, rest);
        let (again, last) = (self.asm.label(), self.asm.label());
        self.load_operands(bands, &Operands::here());
        self.number(Code::Sub_rm64_imm8, COUNT, 1);
        self.asm.jump(Code::Je_rel32_64, last);
        self.asm.bind(again);
        self.fetch(bands);
        self.products(bands, Some(&Operands::further(self.step_bytes())));
        self.further(bands);
        if bands == 1 {
            // At the end of a window, advance to the start of the next; `NEXT` has already moved by
            // a quarter.
            let inside = self.asm.label();
            self.number(Code::Test_rm64_imm32, COUNT, WINDOW - 1);
            self.asm.jump(Code::Jne_rel32_64, inside);
            let skipped = (PLACES - 1) * (WINDOW * self.step_bytes() / PLACES);
            self.number(Code::Add_rm64_imm32, NEXT, skipped);
            self.asm.bind(inside);
        }
        self.number(Code::Sub_rm64_imm8, COUNT, 1);
        self.asm.jump(Code::Jne_rel32_64, again);
        self.asm.bind(last);
        self.fetch(bands);
        self.products(bands, None);
        self.further(bands);
        self.asm.bind(rest);
        self.store_sums(bands);
        self.two(Code::Mov_r64_rm64, COUNT, INNER);
        self.number(Code::And_rm64_imm8, COUNT, TILE_STEPS - 1);
        self.asm.jump(Code::Je_rel32_64, after);
        self.rest(bands);
        self.asm.bind(after);
        if !self.shape.zero {
            self.add_sums(bands);
        }
    }

    /// Bytes of `b` per tile of steps.
    fn step_bytes(&self) -> i32 {
        TILE_STEPS / 2 * self.shape.b_pitch
    }

    /// Prefetches part of the next panel or window.
    fn fetch(&mut self, bands: i32) {
        let step_bytes = self.step_bytes();
        let mut ask = |place| self.asm.emit(Instruction::with1(Code::Prefetcht0_m8, place));
        let (lines, places) = if bands == 2 { (LINES, 1) } else { (step_bytes / LINE / PLACES, PLACES) };
        for line in 0..lines {
            for place in 0..places {
                ask(at(NEXT, line * LINE + place * (WINDOW * step_bytes / PLACES)));
            }
        }
        self.number(Code::Add_rm64_imm32, NEXT, lines * LINE);
    }

    /// Advances the pointers by a tile of steps.
    fn further(&mut self, bands: i32) {
        self.number(Code::Add_rm64_imm8, UPPER, 2 * TILE_STEPS);
        if bands == 2 {
            self.number(Code::Add_rm64_imm8, LOWER, 2 * TILE_STEPS);
        }
        self.number(Code::Add_rm64_imm32, B_ROW, self.step_bytes());
    }

    fn load(&mut self, tile: Register, place: MemoryOperand) {
        self.asm.emit(Instruction::with2(Code::VEX_Tileloadd_tmm_sibmem, tile, place));
    }

    /// Loads the tiles of both operands.
    fn load_operands(&mut self, bands: i32, from: &Operands) {
        for band in 0..bands {
            self.load(left(band), from.left[usize::from(band > 0)]);
        }
        for v in 0..self.shape.vectors {
            self.load(right(v), from.right(v));
        }
    }

    /// Multiplies a tile of steps. After the last product that reads a tile, the tile of the next
    /// steps is loaded, if any.
    fn products(&mut self, bands: i32, next: Option<&Operands>) {
        let vectors = self.shape.vectors;
        for (band, v) in (0..bands).flat_map(|band| (0..vectors).map(move |v| (band, v))) {
            let code = Code::VEX_Tdpbf16ps_tmm_tmm_tmm;
            self.asm.emit(Instruction::with3(code, sums(band, v), left(band), right(v)));
            let Some(next) = next else { continue };
            if v == vectors - 1 {
                self.load(left(band), next.left[usize::from(band > 0)]);
            }
            if band == bands - 1 {
                self.load(right(v), next.right(v));
            }
        }
    }

    /// The last `COUNT` steps, fewer than a tile; the sums are in memory before and after.
    fn rest(&mut self, bands: i32) {
        let (to, left_over) = (Register::RDI, LOWER);
        self.asm.comment("the last steps");
        self.asm.emit(Instruction::with2(Code::Mov_rm64_r64, at(Register::RSP, SAVED), NEXT));
        self.number(Code::Mov_rm64_imm32, to, 1);
        self.two(Code::Shl_rm64_CL, to, Register::CL);
        self.number(Code::Sub_rm64_imm8, to, 1);
        self.two(Code::VEX_Kmovd_kr_r32, Register::K1, Register::EDI);
        // At most all rows of the bands.
        self.number(Code::Mov_rm64_imm32, left_over, bands * BAND);
        self.two(Code::Cmp_r64_rm64, left_over, ROWS);
        self.two(Code::Cmovg_r64_rm64, left_over, ROWS);
        self.asm.emit(Instruction::with2(Code::Lea_r64_m, to, at(Register::RSP, REST)));
        let row = self.asm.here();
        let load = Instruction::with2(Code::EVEX_Vmovdqu16_zmm_k1z_zmmm512, Register::ZMM0, at(UPPER, 0));
        self.asm.emit(load.map(|mut i| {
            i.set_op_mask(Register::K1);
            i.set_zeroing_masking(true);
            i
        }));
        self.asm.emit(Instruction::with2(Code::EVEX_Vmovups_zmmm512_k1z_zmm, at(to, 0), Register::ZMM0));
        self.two(Code::Add_r64_rm64, UPPER, A_STRIDE);
        self.number(Code::Add_rm64_imm8, to, 64);
        self.number(Code::Sub_rm64_imm8, left_over, 1);
        self.asm.jump(Code::Jne_rel32_64, row);
        // Tile sizes for the remaining pairs.
        self.number(Code::Add_rm64_imm8, COUNT, 1);
        self.number(Code::Shr_rm64_imm8, COUNT, 1);
        for v in 0..2 {
            self.asm.emit(Instruction::with2(Code::Mov_rm8_r8, at(Register::RSP, HEIGHTS + 6 + v), Register::CL));
        }
        self.number(Code::Shl_rm64_imm8, COUNT, 2);
        for band in 0..2 {
            let place = at(Register::RSP, WIDTHS + 2 * (4 + band));
            self.asm.emit(Instruction::with2(Code::Mov_rm8_r8, place, Register::CL));
        }
        self.configure();
        self.load_sums(bands);
        self.number(Code::Mov_rm64_imm32, to, 64);
        let left = [0, 1].map(|band| rows(Register::RSP, to, REST + 64 * BAND * band));
        self.load_operands(bands, &Operands { left, right: 0 });
        self.products(bands, None);
        self.store_sums(bands);
        for v in 0..2 {
            self.asm.emit(Instruction::with2(Code::Mov_rm8_imm8, at(Register::RSP, HEIGHTS + 6 + v), BAND));
            let place = at(Register::RSP, WIDTHS + 2 * (4 + v));
            self.asm.emit(Instruction::with2(Code::Mov_rm8_imm8, place, 64));
        }
        self.configure();
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, NEXT, at(Register::RSP, SAVED)));
    }
}
