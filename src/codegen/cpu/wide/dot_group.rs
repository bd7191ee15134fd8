//! The micro-kernel for a few rows and several panels: the `dot` leaf of matmuls that share their
//! left operand.
//!
//! In: up to four panels of `f32` at separate addresses, and one left operand, dense along the
//! inner axis. Out: code for each number of rows up to [`most_rows`], with these arguments: `a`,
//! its row stride in bytes, steps, rows, the initial value of all sums, then the addresses of the
//! panels and of the accumulators.
//!
//! A row by one panel has only two FMA chains (the vectors of a panel), and each FMA waits for the
//! previous one: 128 bytes of the panel in four cycles with AVX-512. Four panels together have
//! eight chains, and cache bandwidth is the limit. Every element is computed by the same FMA chain
//! as in `dot`.
//!
//! The left rows are prefetched as a whole: another core may have just written them, and the
//! broadcasts would wait for each line in turn. Panels are not prefetched: they are cached from the
//! previous step of a loop over time (`tile/schedule/jam.rs`).

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::super::origins::Comments;
use super::asm::Asm;
use super::dot::unroll;
use super::registers::{self, at, vector};
use crate::tile::Width;

/// Maximum number of matmuls per call.
pub(super) const MAX_PANELS: usize = 4;

/// The static layout of the operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct GroupShape {
    pub(super) panels: i32,
    /// Vectors of columns per panel.
    pub(super) vectors: i32,
    /// Bytes from a row of a panel to the next.
    pub(super) b_pitch: i32,
    /// Bytes from a row of an accumulator to the next.
    pub(super) acc_pitch: i32,
}

/// Maximum number of rows: the sums of four panels must fit the registers.
pub(super) fn most_rows(width: Width) -> i32 {
    if width == Width::V512 { 2 } else { 1 }
}

/// Offsets of the arguments.
const A_WORD: i32 = 0;
const STRIDE_WORD: i32 = 8;
const STEPS_WORD: i32 = 16;
const ROWS_WORD: i32 = 24;
const START_WORD: i32 = 32;
const FIRST_PANEL: i32 = 40;

const WORDS: Register = Register::RDI;
const A: Register = Register::RAX;
const STRIDE: Register = Register::R11;
const STEPS: Register = Register::RSI;
const ROWS: Register = Register::RCX;
/// Pointers into the panels.
const PANELS: [Register; MAX_PANELS] = [Register::R8, Register::R9, Register::R10, Register::RDX];

/// Generates the leaf. It uses only caller-saved registers.
///
/// # Errors
/// An instruction that cannot be encoded (a bug in attnc), or a layout too large for a
/// displacement.
pub(super) fn dot_group(width: Width, shape: GroupShape, commented: bool) -> Result<(Vec<u8>, Comments), String> {
    let mut g = Group { asm: Asm::new(commented), width, shape };
    g.function();
    g.asm.finish()
}

struct Group {
    asm: Asm,
    width: Width,
    shape: GroupShape,
}

impl Group {
    fn function(&mut self) {
        let words = [(A_WORD, A), (STRIDE_WORD, STRIDE), (STEPS_WORD, STEPS), (ROWS_WORD, ROWS)];
        for (word, r) in words.into_iter().chain((FIRST_PANEL..).step_by(8).zip(self.panels().to_vec())) {
            self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, r, at(WORDS, word)));
        }
        let done = self.asm.label();
        let heights: Vec<_> = (1..=most_rows(self.width)).map(|h| (h, self.asm.label())).collect();
        for (h, label) in &heights {
            self.asm.emit(Instruction::with2(Code::Cmp_rm64_imm8, ROWS, *h));
            self.asm.jump(Code::Je_rel32_64, *label);
        }
        self.asm.jump(Code::Jmp_rel32_64, done);
        for (h, label) in heights {
            self.asm.bind(label);
            self.asm.comment(format!("{h} rows x {} panels of {} vectors", self.shape.panels, self.shape.vectors));
            self.rows(h);
            self.asm.jump(Code::Jmp_rel32_64, done);
        }
        self.asm.bind(done);
        self.asm.emit(Ok(Instruction::with(Code::VEX_Vzeroupper)));
        self.asm.emit(Ok(Instruction::with(Code::Retnq)));
    }

    fn panels(&self) -> &'static [Register] {
        PANELS.get(..usize::try_from(self.shape.panels).unwrap_or(0)).unwrap_or(&PANELS)
    }

    /// The register that accumulates a row and a vector of columns of a panel.
    fn sum(&self, row: i32, panel: i32, v: i32) -> Register {
        let vectors = self.shape.panels * self.shape.vectors;
        vector(self.width, row * vectors + panel * self.shape.vectors + v)
    }

    fn rows(&mut self, height: i32) {
        let (spread, _) = registers::spread_and_fma(self.width);
        let (copy, (_, store)) = (registers::copy(self.width), registers::moves(self.width));
        let (panels, vectors) = (self.shape.panels, self.shape.vectors);
        for r in 0..height {
            self.fetch_row(r);
        }
        let first = vector(self.width, 0);
        self.asm.emit(Instruction::with2(spread, first, at(WORDS, START_WORD)));
        for n in 1..height * panels * vectors {
            self.asm.emit(Instruction::with2(copy, vector(self.width, n), first));
        }
        let (rest, sums, unroll) = (self.asm.label(), self.asm.label(), unroll(self.shape.b_pitch));
        self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, STEPS, unroll));
        self.asm.jump(Code::Jl_rel32_64, rest);
        let several = self.asm.here();
        self.steps(height, unroll);
        self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, STEPS, unroll));
        self.asm.jump(Code::Jge_rel32_64, several);
        self.asm.bind(rest);
        self.asm.emit(Instruction::with2(Code::Add_rm64_imm8, STEPS, unroll));
        self.asm.jump(Code::Jle_rel32_64, sums);
        let one = self.asm.here();
        self.steps(height, 1);
        self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, STEPS, 1));
        self.asm.jump(Code::Jne_rel32_64, one);
        self.asm.bind(sums);
        for panel in 0..panels {
            let place = FIRST_PANEL + 8 * (panels + panel);
            self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, A, at(WORDS, place)));
            for (r, v) in (0..height).flat_map(|r| (0..vectors).map(move |v| (r, v))) {
                let place = at(A, r * self.shape.acc_pitch + v * registers::bytes(self.width));
                self.asm.emit(Instruction::with2(store, place, self.sum(r, panel, v)));
            }
        }
    }

    /// Prefetches row 0 or 1, from its end to its start. Clobbers the number of rows.
    fn fetch_row(&mut self, row: i32) {
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, ROWS, STEPS));
        let skip = self.asm.label();
        self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, ROWS, 1));
        self.asm.jump(Code::Jl_rel32_64, skip);
        if row > 0 {
            self.asm.emit(Instruction::with2(Code::Add_r64_rm64, A, STRIDE));
        }
        let next = self.asm.here();
        let place = MemoryOperand::with_base_index_scale(A, ROWS, 4);
        self.asm.emit(Instruction::with1(Code::Prefetcht0_m8, place));
        self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, ROWS, 64 / 4));
        self.asm.jump(Code::Jge_rel32_64, next);
        if row > 0 {
            self.asm.emit(Instruction::with2(Code::Sub_r64_rm64, A, STRIDE));
        }
        self.asm.bind(skip);
    }

    /// Emits `count` steps and advances the pointers.
    fn steps(&mut self, height: i32, count: i32) {
        let (spread, fma) = registers::spread_and_fma(self.width);
        let (load, _) = registers::moves(self.width);
        let (panels, vectors) = (self.shape.panels, self.shape.vectors);
        let free = height * panels * vectors;
        for u in 0..count {
            for r in 0..height {
                let place = match r {
                    0 => at(A, 4 * u),
                    _ => MemoryOperand::with_base_index_scale_displ_size(A, STRIDE, 1, i64::from(4 * u), 1),
                };
                self.asm.emit(Instruction::with2(spread, vector(self.width, free + r), place));
            }
            for (panel, from) in (0..panels).zip(self.panels()) {
                for v in 0..vectors {
                    let place = at(*from, u * self.shape.b_pitch + v * registers::bytes(self.width));
                    if height == 1 {
                        let (sum, element) = (self.sum(0, panel, v), vector(self.width, free));
                        self.asm.emit(Instruction::with3(fma, sum, element, place));
                        continue;
                    }
                    // Vectors of the panels rotate through the remaining registers.
                    let turns = (registers::count(self.width) - free - height).max(1);
                    let column = vector(self.width, free + height + (panel * vectors + v) % turns);
                    self.asm.emit(Instruction::with2(load, column, place));
                    for r in 0..height {
                        let (sum, element) = (self.sum(r, panel, v), vector(self.width, free + r));
                        self.asm.emit(Instruction::with3(fma, sum, element, column));
                    }
                }
            }
        }
        self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, A, 4 * count));
        for from in self.panels() {
            self.asm.emit(Instruction::with2(Code::Add_rm64_imm32, *from, count * self.shape.b_pitch));
        }
    }
}
