//! `pair_rows` as a leaf function: converts `f32` rows in scratch to `bf16` and interleaves each
//! two rows, the layout that `vdpbf16ps` expects.
//!
//! In: the tiles' layout ([`PairRowsShape`]). Out: code with four arguments: the addresses of
//! operand and result, the rows of the operand, the rows of the result. Columns are full vectors;
//! padding is converted along with them.
//!
//! `vcvtne2ps2bf16`, which processors with tiles have too, rounds two vectors to one, to nearest
//! even, with the second row's elements in the upper half; a permutation interleaves them.
//! Subnormals become 0, as in the matmul. The result may overwrite the operand: a pair overwrites
//! only rows that have been read. A missing row is zeros.

use iced_x86::{Code, Instruction, Register};

use super::super::origins::Comments;
use super::asm::Asm;
use super::registers::at;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PairRowsShape {
    pub(super) vectors: i32,
    /// Bytes from a row of the operand to the next.
    pub(super) pitch: i32,
    /// Bytes from a pair of the result to the next.
    pub(super) result_pitch: i32,
}

const WORDS: Register = Register::RDI;
const FROM: Register = Register::RSI;
const TO: Register = Register::RDX;
/// Remaining rows of the operand and of the result.
const THERE: Register = Register::RAX;
const ROWS: Register = Register::RCX;
const VECTOR: i32 = 64;
/// Permutation indices; zeros.
const ORDER: Register = Register::ZMM31;
const ZERO: Register = Register::ZMM30;

/// Generates the leaf.
///
/// # Errors
/// An instruction that cannot be encoded (a bug in attnc), or a layout too large for a
/// displacement.
pub(super) fn pair_rows(shape: PairRowsShape, commented: bool) -> Result<(Vec<u8>, Comments), String> {
    let mut asm = Asm::new(commented);
    for (word, r) in [FROM, TO, THERE, ROWS].into_iter().enumerate() {
        let place = at(WORDS, 8 * i32::try_from(word).unwrap_or(0));
        asm.emit(Instruction::with2(Code::Mov_r64_rm64, r, place));
    }
    // 0, 16, 1, 17, ..: built as 32-bit lanes, with the index in the second row 16 higher.
    let counts = Register::XMM0;
    asm.emit(Instruction::with2(Code::Mov_r64_imm64, Register::R8, 0x0706_0504_0302_0100_u64));
    asm.emit(Instruction::with2(Code::VEX_Vmovq_xmm_rm64, counts, Register::R8));
    asm.emit(Instruction::with2(Code::Mov_r64_imm64, Register::R8, 0x0f0e_0d0c_0b0a_0908_u64));
    asm.emit(Instruction::with4(Code::VEX_Vpinsrq_xmm_xmm_rm64_imm8, counts, counts, Register::R8, 1));
    asm.emit(Instruction::with2(Code::EVEX_Vpmovzxbd_zmm_k1z_xmmm128, ORDER, counts));
    asm.emit(Instruction::with3(Code::EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8, ZERO, ORDER, 16));
    asm.emit(Instruction::with3(Code::EVEX_Vpord_zmm_k1z_zmm_zmmm512b32, ORDER, ORDER, ZERO));
    asm.emit(Instruction::with2(Code::Mov_r32_imm32, Register::R8D, 16 << 16));
    asm.emit(Instruction::with2(Code::EVEX_Vpbroadcastd_zmm_k1z_r32, ZERO, Register::R8D));
    asm.emit(Instruction::with3(Code::EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32, ORDER, ORDER, ZERO));
    asm.emit(Instruction::with3(Code::EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32, ZERO, ZERO, ZERO));

    let (next, single, none, stored, done) = (asm.label(), asm.label(), asm.label(), asm.label(), asm.label());
    asm.bind(next);
    asm.emit(Instruction::with2(Code::Sub_rm64_imm8, ROWS, 1));
    asm.jump(Code::Jl_rel32_64, done);
    asm.emit(Instruction::with2(Code::Cmp_rm64_imm8, THERE, 1));
    asm.jump(Code::Je_rel32_64, single);
    asm.jump(Code::Jl_rel32_64, none);
    for rows in (0..=2).rev() {
        asm.comment(format!("{rows} rows"));
        match rows {
            2 => {}
            1 => asm.bind(single),
            _ => asm.bind(none),
        }
        for v in 0..shape.vectors {
            let load = Code::EVEX_Vmovups_zmm_k1z_zmmm512;
            let (first, second, pair) = (Register::ZMM0, Register::ZMM1, Register::ZMM2);
            if rows > 0 {
                asm.emit(Instruction::with2(load, first, at(FROM, v * VECTOR)));
            }
            if rows > 1 {
                asm.emit(Instruction::with2(load, second, at(FROM, shape.pitch + v * VECTOR)));
            }
            let (first, second) = (if rows > 0 { first } else { ZERO }, if rows > 1 { second } else { ZERO });
            let round = Code::EVEX_Vcvtne2ps2bf16_zmm_k1z_zmm_zmmm512b32;
            asm.emit(Instruction::with3(round, pair, second, first));
            asm.emit(Instruction::with3(Code::EVEX_Vpermw_zmm_k1z_zmm_zmmm512, pair, ORDER, pair));
            asm.emit(Instruction::with2(Code::EVEX_Vmovups_zmmm512_k1z_zmm, at(TO, v * VECTOR), pair));
        }
        if rows > 0 {
            asm.jump(Code::Jmp_rel32_64, stored);
        }
    }
    asm.bind(stored);
    asm.emit(Instruction::with2(Code::Add_rm64_imm32, FROM, 2 * shape.pitch));
    asm.emit(Instruction::with2(Code::Add_rm64_imm32, TO, shape.result_pitch));
    asm.emit(Instruction::with2(Code::Sub_rm64_imm8, THERE, 2));
    asm.emit(Instruction::with2(Code::Sub_rm64_imm8, ROWS, 1));
    asm.jump(Code::Jmp_rel32_64, next);
    asm.bind(done);
    asm.emit(Ok(Instruction::with(Code::VEX_Vzeroupper)));
    asm.emit(Ok(Instruction::with(Code::Retnq)));
    asm.finish()
}

#[cfg(test)]
mod tests {
    use super::super::testing::Executable;
    use super::*;
    use crate::tile::Cpu;

    /// Numbers of many magnitudes and both signs, with all cases of ties, infinities, but no NaN.
    fn number(n: usize) -> f32 {
        let bits = u32::try_from(n).expect("a small number").wrapping_mul(0x9e37_79b9);
        match n % 7 {
            0 => f32::from_bits(0x3f80_8000 | (bits & 0x00ff_0000)),
            1 => f32::INFINITY,
            _ => f32::from_bits(0x3000_0000 | (bits & 0x8fff_ffff)),
        }
    }

    #[test]
    fn pairs_have_both_rows_rounded_and_zeros_where_none_is() {
        for (there, rows, vectors) in
            [(0, 0, 1), (0, 2, 1), (1, 2, 2), (2, 2, 2), (3, 4, 1), (7, 8, 2), (8, 8, 2), (256, 256, 2)]
        {
            let (pitch, columns) = (128, 16 * vectors);
            let shape =
                PairRowsShape { vectors: i32::try_from(vectors).expect("a small number"), pitch, result_pitch: pitch };
            let (code, _) = pair_rows(shape, false).expect("it can be encoded");
            let Some(leaf) = Executable::new(Cpu::AVX512_BF16, &code) else { continue };
            let from: Vec<f32> = (0..32 * there).map(number).collect();
            let half = |r: usize, c: usize| match from.get(32 * r + c) {
                Some(x) if r < there => u32::from(half::bf16::from_f32(*x).to_bits()),
                _ => 0,
            };
            for over in [false, true] {
                // The result overwrites the operand, or follows it.
                let mut room = from.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
                room.resize(32 * (there + rows + 2), u32::MAX);
                let start = if over { 0 } else { 32 * there };
                let address = room.as_mut_ptr() as u64;
                let words = [address, address + 4 * start as u64, there as u64, rows as u64];
                // SAFETY: both tiles are in the buffer, with full padded rows.
                unsafe { leaf.call(&words) };
                for p in 0..rows / 2 {
                    for c in 0..columns {
                        let expected = half(2 * p, c) | half(2 * p + 1, c) << 16;
                        assert_eq!(room[start + 32 * p + c], expected, "{there} rows, pair {p}, column {c}, {over}");
                    }
                }
            }
        }
    }
}
