//! `transpose` of a tile in scratch as a leaf function, in square blocks of a vector's lanes.
//!
//! In: the width and the tiles' layout ([`TransposeShape`]). Out: code with two arguments: the
//! addresses of the operand and of the result. Elements are of 4 bytes.
//!
//! A block of 16 x 16 (AVX-512) or 8 x 8 (AVX2) is loaded by rows and transposed in registers:
//! pairs of rows are interleaved by elements, then by pairs, which puts a block of 4 x 4 in each
//! 128-bit lane in its final order, then the 128-bit lanes are exchanged. That is one shuffle for
//! each register and stage, 64 or 24 in all. For the rows and columns of a block past the last
//! ones, existing rows are read, and the results are written to padding or not at all.

use iced_x86::{Code, Instruction, Register};

use super::super::origins::Comments;
use super::asm::Asm;
use super::registers::{self, at, vector};
use crate::tile::Width;

/// The operand's capacities, and the row stride of both tiles in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct TransposeShape {
    /// Rows of the operand.
    pub(super) rows: i32,
    /// Columns of the operand.
    pub(super) cols: i32,
    /// Bytes from a row of the operand to the next.
    pub(super) pitch: i32,
    /// Bytes from a row of the result to the next.
    pub(super) result_pitch: i32,
}

const WORDS: Register = Register::RDI;
/// Current row of blocks, current block, and the same in the result.
const FROM_ROW: Register = Register::RSI;
const TO_ROW: Register = Register::RDX;
const FROM: Register = Register::R8;
const TO: Register = Register::R9;
/// Remaining blocks in the row of blocks, and remaining rows of blocks.
const BLOCKS: Register = Register::RAX;
const ROWS: Register = Register::RCX;

/// Generates the leaf.
///
/// # Errors
/// An instruction that cannot be encoded (a bug in attnc), or a layout too large for a
/// displacement.
pub(super) fn transpose(width: Width, shape: TransposeShape, commented: bool) -> Result<(Vec<u8>, Comments), String> {
    let mut t = Transpose { asm: Asm::new(commented), width, shape };
    t.function();
    t.asm.finish()
}

struct Transpose {
    asm: Asm,
    width: Width,
    shape: TransposeShape,
}

impl Transpose {
    fn lanes(&self) -> i32 {
        registers::bytes(self.width) / 4
    }

    fn function(&mut self) {
        let lanes = self.lanes();
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, FROM_ROW, at(WORDS, 0)));
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, TO_ROW, at(WORDS, 8)));
        let (whole, rest) = (self.shape.rows / lanes, self.shape.rows % lanes);
        if whole > 0 {
            self.asm.emit(Instruction::with2(Code::Mov_rm64_imm32, ROWS, whole));
            let next = self.asm.here();
            self.row_of_blocks(lanes);
            self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, FROM_ROW, lanes * self.shape.pitch));
            self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, TO_ROW, 4 * lanes));
            self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, ROWS, 1));
            self.asm.jump(Code::Jne_rel32_64, next);
        }
        if rest > 0 {
            self.row_of_blocks(rest);
        }
        self.asm.emit(Ok(Instruction::with(Code::VEX_Vzeroupper)));
        self.asm.emit(Ok(Instruction::with(Code::Retnq)));
    }

    /// Blocks that have `rows` rows of the operand.
    fn row_of_blocks(&mut self, rows: i32) {
        let lanes = self.lanes();
        let (whole, rest) = (self.shape.cols / lanes, self.shape.cols % lanes);
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, FROM, FROM_ROW));
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, TO, TO_ROW));
        if whole > 0 {
            self.asm.emit(Instruction::with2(Code::Mov_rm64_imm32, BLOCKS, whole));
            let next = self.asm.here();
            self.block(rows, lanes);
            self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, FROM, 4 * lanes));
            self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, TO, lanes * self.shape.result_pitch));
            self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, BLOCKS, 1));
            self.asm.jump(Code::Jne_rel32_64, next);
        }
        if rest > 0 {
            self.block(rows, rest);
        }
    }

    /// Transposes one block with `rows` valid rows of the operand and `cols` valid rows of the
    /// result.
    fn block(&mut self, rows: i32, cols: i32) {
        let lanes = self.lanes();
        let (load, store) = registers::moves(self.width);
        let width = self.width;
        let r = |n: i32| vector(width, n);
        self.asm.comment(format!("{rows} x {cols}"));
        for n in 0..lanes {
            let place = at(FROM, n.min(rows - 1) * self.shape.pitch);
            self.asm.emit(Instruction::with2(load, r(n), place));
        }
        // Two sets of registers alternate: 0.. and lanes.. .
        let [low, high] = registers::unpack_singles(width);
        for i in 0..lanes / 2 {
            let (a, b) = (r(2 * i), r(2 * i + 1));
            self.asm.emit(Instruction::with3(low, r(lanes + 2 * i), a, b));
            self.asm.emit(Instruction::with3(high, r(lanes + 2 * i + 1), a, b));
        }
        let [low, high] = registers::unpack_pairs(width);
        for g in 0..lanes / 4 {
            let t = |n: i32| r(lanes + 4 * g + n);
            self.asm.emit(Instruction::with3(low, r(4 * g), t(0), t(2)));
            self.asm.emit(Instruction::with3(high, r(4 * g + 1), t(0), t(2)));
            self.asm.emit(Instruction::with3(low, r(4 * g + 2), t(1), t(3)));
            self.asm.emit(Instruction::with3(high, r(4 * g + 3), t(1), t(3)));
        }
        // Register 4 g + j holds, in its 128-bit lane l, column 4 l + j of rows 4 g to 4 g + 3.
        if width == Width::V512 {
            let shuffle = Code::EVEX_Vshuff32x4_zmm_k1z_zmm_zmmm512b32_imm8;
            let (even, odd) = (0x88, 0xdd);
            for j in 0..4 {
                for (half, order) in [(0, even), (1, odd)] {
                    for pair in 0..2 {
                        let to = r(16 + 4 * j + 2 * half + pair);
                        let (a, b) = (r(8 * pair + j), r(8 * pair + 4 + j));
                        self.asm.emit(Instruction::with4(shuffle, to, a, b, order));
                    }
                }
            }
            for j in 0..4 {
                for half in 0..2 {
                    let (a, b) = (r(16 + 4 * j + 2 * half), r(16 + 4 * j + 2 * half + 1));
                    // The even lanes' halves hold columns j and 8 + j, the odd ones' 4 + j and 12 +
                    // j.
                    self.asm.emit(Instruction::with4(shuffle, r(4 * half + j), a, b, even));
                    self.asm.emit(Instruction::with4(shuffle, r(8 + 4 * half + j), a, b, odd));
                }
            }
        } else {
            let permute = Code::VEX_Vperm2f128_ymm_ymm_ymmm256_imm8;
            for j in 0..4 {
                self.asm.emit(Instruction::with4(permute, r(8 + j), r(j), r(4 + j), 0x20));
                self.asm.emit(Instruction::with4(permute, r(12 + j), r(j), r(4 + j), 0x31));
            }
        }
        let first = if width == Width::V512 { 0 } else { lanes };
        for n in 0..cols {
            let place = at(TO, n * self.shape.result_pitch);
            self.asm.emit(Instruction::with2(store, place, r(first + n)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Executable;
    use super::*;
    use crate::tile::Cpu;

    #[test]
    fn rows_and_columns_are_exchanged() {
        for cpu in [Cpu::AVX512, Cpu::AVX2] {
            for (rows, cols) in
                [(1, 2), (2, 1), (3, 100), (5, 9), (8, 8), (16, 16), (17, 33), (32, 64), (64, 32), (100, 3), (128, 128)]
            {
                let up = |n: usize| n.next_multiple_of(16);
                let (pitch, result_pitch) = (up(cols), up(rows));
                let number = |n: usize| i32::try_from(n).expect("a small number");
                let shape = TransposeShape {
                    rows: number(rows),
                    cols: number(cols),
                    pitch: number(4 * pitch),
                    result_pitch: number(4 * result_pitch),
                };
                let (code, _) = transpose(cpu.width(), shape, false).expect("it can be encoded");
                let Some(leaf) = Executable::new(cpu, &code) else { continue };
                let from: Vec<u32> = (0..u32::try_from(rows * pitch).expect("a small number")).collect();
                let mut to = vec![u32::MAX; cols * result_pitch + 64];
                // SAFETY: both tiles have full padded rows, and the result has space for them.
                unsafe { leaf.call(&[from.as_ptr() as u64, to.as_mut_ptr() as u64]) };
                for r in 0..rows {
                    for c in 0..cols {
                        assert_eq!(to[c * result_pitch + r], from[r * pitch + c], "{rows} x {cols} at {r}, {c}");
                    }
                }
                assert!(to[cols * result_pitch..].iter().all(|x| *x == u32::MAX), "{rows} x {cols}: past the end");
            }
        }
    }
}
