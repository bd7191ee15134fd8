//! The part of the `dot` leaf for integers that are multiplied in groups: what `dot_whole` (AVX-512) and `dot_bytes` (AVX-VNNI) share.
//!
//! In: the shape of a product whose right operand is bytes or half bytes with scales, where the left one is rounded in groups. Out:
//! code that does everything if the inner extent is whole groups; else it goes on behind its end, where the code stands
//! that widens the numbers to `f32`. Both take the same words.
//!
//! Registers follow from the shape, and instructions name them: what rounds a group works on parts of vectors, of 128 and 256 bits,
//! which virtual registers, all of one width, have no words for.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::super::origins::Comments;
use super::asm::Asm;
use super::dot::{DotShape, word};
use super::dot_few::{INSIDE, Line, Way, lines};
use super::registers::at;
use crate::tile::Width;

pub(super) const WORDS: Register = Register::RDI;
/// First row in `a` and in the accumulator, the stride of `a`, the steps.
pub(super) const A: Register = Register::R8;
pub(super) const ACC: Register = Register::R10;
pub(super) const STRIDE: Register = Register::R11;
pub(super) const INNER: Register = Register::RSI;
/// `b`'s row, the count of steps.
pub(super) const B_ROW: Register = Register::RBP;
pub(super) const STEPS: Register = Register::RDI;
/// The window that is multiplied, and how far into each page of the next one is fetched.
const HERE: Register = Register::RCX;
const NEXT: Register = Register::R9;
/// What is given back as it was.
const SAVED: [Register; 6] = [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];

/// Code being made.
pub(super) struct Groups {
    pub(super) asm: Asm,
    pub(super) shape: DotShape,
    /// How what comes next is fetched, in the code that is being made.
    way: Way,
}

/// Is there such a part?
pub(super) fn are_there(width: Width, shape: &DotShape) -> bool {
    // A panel's row has the columns of 32 lanes at AVX-512, of 16 at 256 bits.
    let fits =
        shape.inner_dense && shape.vectors == 2 && shape.b_pitch == 2 * i32::try_from(width.lanes()).unwrap_or(0);
    shape.groups && fits && width != Width::V128
}

/// The code, a multiple of 64 bytes long.
///
/// # Errors
/// A form that cannot be encoded: a mistake of ours, or a layout too large for a displacement.
pub(super) fn groups(width: Width, shape: DotShape, commented: bool) -> Result<(Vec<u8>, Comments), String> {
    let mut g = Groups { asm: Asm::new(commented), shape, way: Way::Pages };
    for r in SAVED.into_iter().chain([WORDS]) {
        g.asm.emit(Instruction::with1(Code::Push_r64, r));
    }
    let (done, other, behind) = (g.asm.label(), g.asm.label(), g.asm.label());
    match width {
        Width::V512 => g.whole(done, other),
        Width::V256 | Width::V128 => g.of_bytes(done, other),
    }
    g.asm.bind(done);
    g.restore();
    g.asm.emit(Ok(Instruction::with(Code::VEX_Vzeroupper)));
    g.asm.emit(Ok(Instruction::with(Code::Retnq)));
    g.asm.bind(other);
    g.restore();
    g.asm.jump(Code::Jmp_rel32_64, behind);
    let end = g.asm.length();
    g.asm.data(&vec![0xcc; end.next_multiple_of(64) - end]);
    g.asm.bind(behind);
    g.asm.finish()
}

impl Groups {
    fn restore(&mut self) {
        for r in SAVED.into_iter().chain([WORDS]).rev() {
            self.asm.emit(Instruction::with1(Code::Pop_r64, r));
        }
    }

    /// A word in a register; `from` points to the words.
    pub(super) fn load_word(&mut self, to: Register, from: Register, n: usize) {
        let place = at(from, i32::try_from(8 * n).unwrap_or(0));
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, to, place));
    }

    /// Code that does not go on behind, for both ways to fetch. `WORDS` is as the leaf was given it.
    pub(super) fn in_both_ways(&mut self, code: impl Fn(&mut Self)) {
        self.way = Way::Pages;
        let in_order = self.asm.label();
        let way = at(WORDS, i32::try_from(8 * word::WAY).unwrap_or(0));
        self.asm.emit(Instruction::with2(Code::Cmp_rm64_imm8, way, 0));
        self.asm.jump(Code::Jne_rel32_64, in_order);
        self.asm.comment("memory at several pages at once");
        code(self);
        self.asm.bind(in_order);
        self.asm.comment("memory in the order of addresses");
        self.way = Way::Order;
        code(self);
    }

    /// Fetches part `part` of `parts` of as many bytes of what comes next as are being multiplied, from `B_ROW` on.
    pub(super) fn fetch_part(&mut self, bytes: i32, part: i32, parts: i32) {
        if self.way == Way::Pages && part == 0 {
            let (bits, shift, whole) = INSIDE;
            self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, NEXT, B_ROW));
            self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, HERE, B_ROW));
            self.asm.emit(Instruction::with2(Code::And_rm64_imm32, NEXT, bits));
            self.asm.emit(Instruction::with2(Code::Sub_r64_rm64, HERE, NEXT));
            self.asm.emit(Instruction::with2(Code::Shr_rm64_imm8, NEXT, shift));
            self.asm.emit(Instruction::with2(Code::And_rm64_imm8, NEXT, whole));
        }
        for line in lines(self.way, self.shape.right, bytes, (part, parts)) {
            let place = match line {
                Line::Behind(further) => at(B_ROW, further),
                Line::InWindow(further) => {
                    MemoryOperand::with_base_index_scale_displ_size(HERE, NEXT, 1, i64::from(further), 1)
                }
            };
            self.asm.emit(Instruction::with1(Code::Prefetcht0_m8, place));
        }
    }
}
