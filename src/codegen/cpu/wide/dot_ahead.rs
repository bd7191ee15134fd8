//! Prefetches in matmul leaves: the right operand of the next matmul comes into the L2 cache while
//! this one computes.
//!
//! In: where it will be. Out: a few prefetches in each iteration of the inner loop, until the end.
//! Otherwise the first register tile of a panel would wait for memory, or the copy of the
//! next rows: 32 rows times a matrix of 4 MiB, which is copied block by block, took 1.14 times as
//! long on a Granite Rapids. A core has 16 requests of its L1 cache in flight, which are 10 GB/s
//! from L3, so prefetches must be spread over the time in which it computes.
//!
//! This must not know whether a next matmul comes. Addresses may be outside of the operand, since a
//! prefetch never fails.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::dot::{Ahead, B, Dot, END, INNER, LINE, NEXT, STEPS, WORDS};
use super::registers::at;

/// Lines of the next panel that are prefetched in each iteration of the inner loop: half of what an
/// iteration reads of `b`, or a quarter. With half everywhere, weights were read from memory in
/// bursts: 12 layers of 768, 128 rows, were 6 % slower on a Granite Rapids.
const PANEL_LINES: i32 = 2;
/// Steps of the inner loop for each row of [`Ahead::Rows`]: with a row for each step, the first
/// register tile would wait for all of them.
const STEPS_PER_ROW: i32 = 2;

/// In the red zone: the distance of rows that are prefetched; 0 after the last one.
const PITCH: i32 = -56;
/// Offsets of the arguments for [`Ahead::Rows`].
const ROWS_WORD: i32 = 8 * ROWS_ARGUMENT;
const PITCH_WORD: i32 = ROWS_WORD + 8;
/// Number of the first of these arguments.
pub(super) const ROWS_ARGUMENT: i32 = 12;

impl Dot {
    /// Sets the first address to prefetch, and the end, for columns from vector `first`.
    pub(super) fn start_prefetches(&mut self, first: i32) {
        match self.shape.ahead {
            Ahead::Nothing => return,
            // The panel after `b`, of the same size.
            Ahead::Panel => {
                let bytes = self.shape.b_pitch;
                self.asm.emit(Instruction::with3(Code::Imul_r64_rm64_imm32, Register::RAX, INNER, bytes));
                let after = MemoryOperand::with_base_index(B, Register::RAX);
                self.asm.emit(Instruction::with2(Code::Lea_r64_m, NEXT, after));
            }
            Ahead::Rows => {
                self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, NEXT, at(WORDS, ROWS_WORD)));
                self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, Register::RAX, at(WORDS, PITCH_WORD)));
                self.asm.emit(Instruction::with2(Code::Mov_rm64_r64, at(Register::RSP, PITCH), Register::RAX));
                self.asm.emit(Instruction::with2(Code::Imul_r64_rm64, Register::RAX, INNER));
                if first > 0 {
                    let skip = first * self.vector_bytes();
                    self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, NEXT, skip));
                }
            }
        }
        self.asm.emit(Instruction::with2(Code::Add_r64_rm64, Register::RAX, NEXT));
        self.asm.emit(Instruction::with2(Code::Mov_rm64_r64, at(Register::RSP, END), Register::RAX));
    }

    /// Before a tile: stops at the end. Prefetching cached lines again costs almost nothing, but
    /// the lines after the end may not be needed.
    pub(super) fn stop_prefetches(&mut self) {
        let pitch = at(Register::RSP, PITCH);
        match self.shape.ahead {
            Ahead::Nothing => return,
            Ahead::Panel => {}
            Ahead::Rows => {
                self.asm.emit(Instruction::with2(Code::Xor_r32_rm32, Register::EAX, Register::EAX));
                self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, STEPS, pitch));
            }
        }
        self.asm.emit(Instruction::with2(Code::Cmp_r64_rm64, NEXT, at(Register::RSP, END)));
        self.asm.emit(Instruction::with2(Code::Cmovae_r64_rm64, NEXT, B));
        if self.shape.ahead == Ahead::Rows {
            self.asm.emit(Instruction::with2(Code::Cmovae_r64_rm64, STEPS, Register::RAX));
            self.asm.emit(Instruction::with2(Code::Mov_rm64_r64, pitch, STEPS));
        }
    }

    /// The prefetches of step `u` of an iteration.
    pub(super) fn prefetch_step(&mut self, vectors: i32, u: i32) {
        match self.shape.ahead {
            Ahead::Panel if u < PANEL_LINES => {
                self.asm.emit(Instruction::with1(Code::Prefetcht1_m8, at(NEXT, LINE * u)));
            }
            Ahead::Rows if u % STEPS_PER_ROW == 0 => {
                let bytes = vectors * self.vector_bytes();
                for line in 0..(bytes + LINE - 1) / LINE {
                    self.asm.emit(Instruction::with1(Code::Prefetcht1_m8, at(NEXT, LINE * line)));
                }
                self.asm.emit(Instruction::with2(Code::Add_r64_rm64, NEXT, at(Register::RSP, PITCH)));
            }
            _ => {}
        }
    }

    /// After an iteration.
    pub(super) fn advance_prefetches(&mut self) {
        if self.shape.ahead == Ahead::Panel {
            self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, NEXT, LINE * PANEL_LINES));
        }
    }
}
