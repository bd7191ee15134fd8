//! The micro-kernel of the `dot` leaf for few rows (GEMV and the like): one register tile has all
//! rows, and `b` is read from memory once.
//!
//! In: a matmul whose right operand is read from memory, in consecutive panels. Out: code for each
//! number of rows up to the height of a register tile; more rows take the generic code of the leaf.
//! The sums are the same.
//!
//! Such a matmul is bound by memory bandwidth, so only the order of prefetches matters. The best
//! order depends on the processor, so there is code for each, and an argument selects it
//! (`PlanContext::in_order`; results are the same):
//!
//! * in several pages at once, on Intel's: one stream of addresses does not saturate memory there,
//!   a core of a Sapphire Rapids then reads some 14 GB/s, and 22 from several pages. A panel is one
//!   stream. So memory is divided into windows of [`PLACES`] pages, and while one is multiplied,
//!   the next one is prefetched, alternating between its pages: the rest of the panel and the
//!   panels after it, wherever they begin. Streams less than a page apart are a quarter slower (a
//!   hardware prefetcher stays within a page), larger windows and more streams no faster;
//! * in the order of addresses, on AMD's: a core of a Zen 5 reads 36 GB/s of one stream without any
//!   prefetch, 30 from four pages and 21 from sixteen. The prefetch distance is a page, where the
//!   hardware prefetchers restart; one and a half are 2 % slower, but a page is too short for 4-bit
//!   weights ([`Dot::ahead`]). Weights that exceed the caches are prefetched past them
//!   (`prefetchnta`): lines that are not kept are not evicted from cache to cache, which saves 1 %
//!   of the time for `f32` and 2 % for `bf16`.
//!
//! Must not know: how many panels there are. Memory after the last one is prefetched needlessly.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::asm::Label;
use super::dot::{ACC, Ahead, B_ROW, Dot, INNER, LINE, POINTERS, Prefetch, Right, STEPS, STRIDE, UNROLL, WORDS};
use super::registers::at;

/// Pages of a window, which are prefetched in turn.
const PLACES: i32 = 4;
/// Bytes of a page, and of a window.
const PAGE: i32 = 4096;
const WINDOW: i32 = PLACES * PAGE;
/// Up to this many rows use non-temporal prefetches; with more rows memory is less of a limit.
const PASSING_ROWS: i32 = 4;

/// The current window, and the prefetch offset in each page of the next one.
const HERE: Register = Register::RCX;
const NEXT: Register = Register::R9;

impl Dot {
    /// Does this leaf have code for few rows?
    pub(super) fn is_few(&self) -> bool {
        let plain = matches!(self.shape.right, Right::F32 | Right::Bf16 | Right::Pairs);
        // An unrolled iteration must read a multiple of one line per page.
        let whole = self.round() * self.shape.b_pitch % (PLACES * LINE) == 0;
        self.shape.ahead == Ahead::Panel && self.shape.vectors <= 2 && plain && whole
    }

    /// Unroll factor.
    fn round(&self) -> i32 {
        UNROLL * (PLACES * LINE / (UNROLL * self.shape.b_pitch.max(1))).clamp(1, 4)
    }

    /// Computes everything and jumps to `done` if there are few rows; else falls through. `WORDS`
    /// still points to the arguments.
    pub(super) fn few(&mut self, done: Label) {
        let (height, vectors) = (self.most_rows(), self.shape.vectors);
        let many = self.asm.label();
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, Register::RAX, at(WORDS, 32)));
        self.asm.emit(Instruction::with2(Code::Cmp_rm64_imm8, Register::RAX, height));
        self.asm.jump(Code::Jg_rel32_64, many);
        let words = [(0, POINTERS[4]), (1, STRIDE), (2, B_ROW), (3, ACC), (5, INNER)];
        for (word, r) in words {
            self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, r, at(WORDS, 8 * word)));
        }
        // Without steps there is nothing to do, unless the accumulator must still be initialised or
        // stored elsewhere.
        if !self.shape.filled && !self.shape.direct {
            self.asm.emit(Instruction::with2(Code::Test_rm64_r64, INNER, INNER));
            self.asm.jump(Code::Jle_rel32_64, done);
        }
        // The generic steps must not prefetch here; the result is too small to need prefetching.
        let shape = self.shape;
        (self.shape.ahead, self.shape.result) = (Ahead::Nothing, 0);
        let kept = self.asm.label();
        let passing = height.min(PASSING_ROWS);
        self.asm.emit(Instruction::with2(Code::Cmp_rm64_imm8, at(WORDS, 64), 2));
        self.asm.jump(Code::Jne_rel32_64, kept);
        self.asm.emit(Instruction::with2(Code::Cmp_rm64_imm8, Register::RAX, passing));
        self.asm.jump(Code::Jg_rel32_64, kept);
        self.asm.comment("memory past the caches");
        self.prefetch = Prefetch::Passing;
        self.heights(passing, vectors, done);
        self.asm.bind(kept);
        self.in_both_ways(|d| d.heights(height, vectors, done));
        self.shape = shape;
        self.asm.bind(many);
    }

    /// Code for each number of rows up to `most`; `RAX` holds the number.
    fn heights(&mut self, most: i32, vectors: i32, done: Label) {
        let heights: Vec<_> = (1..=most).map(|h| (h, self.asm.label())).collect();
        for (h, label) in &heights {
            self.asm.emit(Instruction::with2(Code::Cmp_rm64_imm8, Register::RAX, *h));
            self.asm.jump(Code::Je_rel32_64, *label);
        }
        self.asm.jump(Code::Jmp_rel32_64, done);
        for (h, label) in heights {
            self.asm.bind(label);
            self.asm.comment(format!("all of {h} rows x {vectors} vectors"));
            self.start_sums(h, vectors);
            self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, POINTERS[0], POINTERS[4]));
            self.set_pointers(h);
            self.fetching_steps(h, vectors);
            self.store_sums(h, vectors);
            self.asm.jump(Code::Jmp_rel32_64, done);
        }
    }

    /// Emits `code` for both prefetch orders; it must not fall through. `WORDS` still points to the
    /// arguments.
    pub(super) fn in_both_ways(&mut self, code: impl Fn(&mut Self)) {
        self.prefetch = Prefetch::Pages;
        let in_order = self.asm.label();
        self.asm.emit(Instruction::with2(Code::Cmp_rm64_imm8, at(WORDS, 64), 0));
        self.asm.jump(Code::Jne_rel32_64, in_order);
        self.asm.comment("memory at several pages at once");
        code(self);
        self.asm.bind(in_order);
        self.asm.comment("memory in the order of addresses");
        self.prefetch = Prefetch::Order;
        code(self);
    }

    fn fetching_steps(&mut self, height: i32, vectors: i32) {
        let round = self.round();
        let (several, rest, end) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, STEPS, INNER));
        self.asm.emit(Instruction::with2(Code::Test_rm64_r64, STEPS, STEPS));
        self.asm.jump(Code::Jle_rel32_64, end);
        self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, STEPS, round));
        self.asm.jump(Code::Jl_rel32_64, rest);
        self.asm.bind(several);
        self.fetch_part(round * self.shape.b_pitch, 0, 1);
        for _ in 0..round / UNROLL {
            self.steps(height, vectors, UNROLL);
        }
        self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, STEPS, round));
        self.asm.jump(Code::Jge_rel32_64, several);
        self.asm.bind(rest);
        self.asm.emit(Instruction::with2(Code::Add_rm64_imm8, STEPS, round));
        self.asm.jump(Code::Je_rel32_64, end);
        let one = self.asm.here();
        self.steps(height, vectors, 1);
        self.asm.emit(Instruction::with2(Code::Sub_rm64_imm8, STEPS, 1));
        self.asm.jump(Code::Jne_rel32_64, one);
        self.asm.bind(end);
    }

    /// Prefetch distance in bytes, in the order of addresses.
    fn ahead(&self) -> i32 {
        let narrow = self.shape.right != Right::F32;
        if self.shape.right.scaled() || (narrow && self.prefetch == Prefetch::Passing) { PAGE + PAGE / 2 } else { PAGE }
    }

    /// Prefetches part `part` of `parts` of the next `bytes` bytes; `B_ROW` is the current
    /// position.
    pub(super) fn fetch_part(&mut self, bytes: i32, part: i32, parts: i32) {
        let lines = bytes / LINE;
        let lines = part * lines / parts..(part + 1) * lines / parts;
        if self.prefetch != Prefetch::Pages {
            let code = if self.prefetch == Prefetch::Passing { Code::Prefetchnta_m8 } else { Code::Prefetcht0_m8 };
            for n in lines {
                self.asm.emit(Instruction::with1(code, at(B_ROW, self.ahead() + n * LINE)));
            }
            return;
        }
        if part == 0 {
            self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, NEXT, B_ROW));
            self.asm.emit(Instruction::with2(Code::Mov_r64_rm64, HERE, B_ROW));
            self.asm.emit(Instruction::with2(Code::And_rm64_imm32, NEXT, WINDOW - 1));
            self.asm.emit(Instruction::with2(Code::Sub_r64_rm64, HERE, NEXT));
            self.asm.emit(Instruction::with2(Code::Shr_rm64_imm8, NEXT, PLACES.trailing_zeros()));
            self.asm.emit(Instruction::with2(Code::And_rm64_imm8, NEXT, -LINE));
        }
        for n in lines {
            let further = i64::from(WINDOW + n % PLACES * PAGE + n / PLACES * LINE);
            let place = MemoryOperand::with_base_index_scale_displ_size(HERE, NEXT, 1, further, 1);
            self.asm.emit(Instruction::with1(Code::Prefetcht0_m8, place));
        }
    }
}
