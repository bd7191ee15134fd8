//! The part of the `dot` leaf for few rows: one register tile has them all, and `b` is read from memory once.
//!
//! In: a product whose right operand comes from memory, in panels that follow each other. Out: code for each number of rows
//! up to the height of a register tile; more rows go on to the other part of the leaf, and the sums are the same.
//!
//! Such a product waits for memory alone, and how it asks for memory is all there is to it. Processors differ in what they
//! read fastest, so each way has code, and a word of the leaf says which (`PlanContext::in_order`; what is computed is the same):
//!
//! * at several places at once, for Intel's: one stream of addresses does not keep memory busy there, a core of a Sapphire
//!   Rapids then reads some 14 GB/s where it gets 22 at several places. A panel is one stream. So memory is taken as windows
//!   of [`PLACES`] pages, and while one is multiplied, the one behind it is fetched at all its pages in turn: what is left of
//!   the panel and the panels after it, wherever they begin. Places less than a page apart are a quarter slower (the
//!   processor's own prefetchers keep to a page each), larger windows and more places no faster;
//! * in the order of addresses, for AMD's: a core of a Zen 5 reads 36 GB/s of one stream without any help, 30 at four pages and 21
//!   at sixteen. What lies a page behind is fetched, where its prefetchers begin anew; one and a half are 2 % slower, but
//!   a page is too late for half bytes ([`Dot::ahead`]). Weights that are more than caches hold are fetched past them (`prefetchnta`):
//!   what is not kept need not be written from cache to cache, which is 1 % of the time for `f32` and 2 % for `bf16`.
//!
//! What it must not know: how many panels there are. The last one's successor is fetched in vain.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::asm::Label;
use super::dot::{ACC, B_ROW, Dot, INNER, LINE, POINTERS, Prefetch, Right, STEPS, STRIDE, UNROLL, WORDS};
use super::registers::at;

/// Places at which is fetched in turn, a page apart.
const PLACES: i32 = 4;
/// Bytes of a page, and of a window.
const PAGE: i32 = 4096;
const WINDOW: i32 = PLACES * PAGE;
/// Up to so many rows may be multiplied by weights that are not to be kept; more wait for memory less.
const PASSING_ROWS: i32 = 4;

/// The window that is multiplied, and how far into each page of the next one is fetched.
const HERE: Register = Register::RCX;
const NEXT: Register = Register::R9;

impl Dot {
    /// Is there such a part?
    pub(super) fn is_few(&self) -> bool {
        let plain = matches!(self.shape.right, Right::F32 | Right::Bf16 | Right::Pairs);
        // The bytes of a round of steps are a line at each place, or some.
        let whole = self.round() * self.shape.b_pitch % (PLACES * LINE) == 0;
        self.shape.far && self.shape.vectors <= 2 && plain && whole
    }

    /// Steps that are written out.
    fn round(&self) -> i32 {
        UNROLL * (PLACES * LINE / (UNROLL * self.shape.b_pitch.max(1))).clamp(1, 4)
    }

    /// Does everything if there are few rows; else, goes on behind. `WORDS` is as the leaf was given it.
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
        // Without steps there is nothing to do, unless the accumulator is still to be filled, or to go elsewhere.
        if !self.shape.filled && !self.shape.direct {
            self.asm.emit(Instruction::with2(Code::Test_rm64_r64, INNER, INNER));
            self.asm.jump(Code::Jle_rel32_64, done);
        }
        // Steps of this part do not fetch on their own; what they are to fetch of the result is little.
        let shape = self.shape;
        (self.shape.far, self.shape.result) = (false, 0);
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

    /// Code for each number of rows up to some. `RAX` has the number.
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

    /// Code that does not go on behind, for both ways to fetch. `WORDS` is as the leaf was given it.
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

    /// All steps.
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

    /// Bytes from what is multiplied to what is fetched, in order.
    fn ahead(&self) -> i32 {
        let narrow = self.shape.right != Right::F32;
        if self.shape.right.scaled() || (narrow && self.prefetch == Prefetch::Passing) { PAGE + PAGE / 2 } else { PAGE }
    }

    /// Fetches part `part` of `parts` of as many bytes of what comes next as are being multiplied, from `B_ROW` on.
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
