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

use super::dot::{Dot, DotShape, Fixed, LINE, Right, Steps, Tile, UNROLL, word};
use super::machine::{Block, Mem, Op, Operand, Reg, When};

/// Places at which is fetched in turn, a page apart.
const PLACES: i32 = 4;
/// Bytes of a page, and of a window.
const PAGE: i32 = 4096;
const WINDOW: i32 = PLACES * PAGE;
/// Up to so many rows may be multiplied by weights that are not to be kept; more wait for memory less.
const PASSING_ROWS: i32 = 4;

/// How what comes next is fetched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// At several pages at once.
    Pages,
    /// In the order of addresses.
    Order,
    /// In the order of addresses, past the caches.
    Passing,
}

/// A line that is fetched.
#[derive(Clone, Copy)]
pub(super) enum Line {
    /// So many bytes after what is multiplied.
    Behind(i32),
    /// So many bytes into the window that is multiplied, and on by a part of how far into it that is ([`INSIDE`]).
    InWindow(i32),
}

/// How far into each page of the next window is fetched: these bits of the address, shifted so far, whole lines of it.
pub(super) const INSIDE: (i32, i32, i32) = (WINDOW - 1, PLACES.trailing_zeros().cast_signed(), -LINE);

/// The lines to fetch, part `part` of `parts` of as many bytes of what comes next as are being multiplied.
pub(super) fn lines(way: Way, right: Right, bytes: i32, (part, parts): (i32, i32)) -> Vec<Line> {
    let lines = bytes / LINE;
    let lines = part * lines / parts..(part + 1) * lines / parts;
    match way {
        Way::Pages => lines.map(|n| Line::InWindow(WINDOW + n % PLACES * PAGE + n / PLACES * LINE)).collect(),
        Way::Order | Way::Passing => lines.map(|n| Line::Behind(ahead(way, right) + n * LINE)).collect(),
    }
}

/// Bytes from what is multiplied to what is fetched, in order.
fn ahead(way: Way, right: Right) -> i32 {
    let narrow = right != Right::F32;
    if right.scaled() || (narrow && way == Way::Passing) { PAGE + PAGE / 2 } else { PAGE }
}

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

    /// Does everything if there are few rows; else, goes on behind.
    pub(super) fn few(&mut self, done: Block) {
        let height = self.most_rows();
        let (many, few) = (self.m.block(&[]), self.m.block(&[]));
        let rows = self.word(word::ROWS);
        self.m.branch((rows, When::Less, Operand::Imm(height + 1)), (few, &[]), (many, &[]));
        self.m.start(few);
        self.m.leave_if((rows, When::Less, Operand::Imm(1)), done, &[]);
        let inner = self.word(word::INNER);
        self.leave_without_steps(inner, done);
        // Steps of this part do not fetch on their own; what they are to fetch of the result is little.
        let shape = self.shape;
        self.shape = DotShape { far: false, result: 0, ..shape };
        let way = self.word(word::WAY);
        let (kept, passing, order, pages) =
            (self.m.block(&[]), self.m.block(&[]), self.m.block(&[]), self.m.block(&[]));
        self.m.leave_if((way, When::Less, Operand::Imm(2)), kept, &[]);
        let most = height.min(PASSING_ROWS);
        self.m.branch((rows, When::Less, Operand::Imm(most + 1)), (passing, &[]), (kept, &[]));
        self.m.start(passing);
        self.m.comment("memory past the caches".to_string());
        self.way = Way::Passing;
        self.heights((rows, most), inner, done);
        self.m.start(kept);
        self.m.branch((way, When::Less, Operand::Imm(1)), (pages, &[]), (order, &[]));
        self.m.start(pages);
        self.m.comment("memory at several pages at once".to_string());
        self.way = Way::Pages;
        self.heights((rows, height), inner, done);
        self.m.start(order);
        self.m.comment("memory in the order of addresses".to_string());
        self.way = Way::Order;
        self.heights((rows, height), inner, done);
        self.shape = shape;
        self.m.start(many);
    }

    /// Code for each number of rows up to some.
    fn heights(&mut self, (rows, most): (Reg, i32), inner: Reg, done: Block) {
        let vectors = self.shape.vectors;
        for height in 1..=most {
            let (here, higher) = (self.m.block(&[]), self.m.block(&[]));
            self.m.branch((rows, When::Less, Operand::Imm(height + 1)), (here, &[]), (higher, &[]));
            self.m.start(here);
            self.m.comment(format!("all of {height} rows x {vectors} vectors"));
            let [a, stride, b_row, acc] = [word::A, word::STRIDE, word::B, word::ACC].map(|n| self.word(n));
            let result = self.shape.direct.then(|| self.word(word::RESULT));
            let tile = Tile { height, vectors, first: 0 };
            let fixed = Fixed::new(self, tile, stride);
            let (sums, pointers) = (self.start_sums(tile), self.pointers(a, &fixed));
            let steps = self.fetching_steps(&fixed, Steps::new(b_row, pointers, sums), inner);
            self.store_sums(tile, &steps.sums, acc, result);
            self.m.jump(done, &[]);
            self.m.start(higher);
        }
        self.m.jump(done, &[]);
    }

    /// All steps.
    fn fetching_steps(&mut self, fixed: &Fixed, steps: Steps, inner: Reg) -> Steps {
        let round = self.round();
        let left = self.m.copy(inner);
        let (steps, left) = self.while_left((steps, left, round), |d, mut s| {
            d.fetch(s.b_row, round * d.shape.b_pitch);
            for _ in 0..round / UNROLL {
                s = d.steps(fixed, s, UNROLL);
            }
            s
        });
        self.while_left((steps, left, 1), |d, s| d.steps(fixed, s, 1)).0
    }

    /// Fetches as many bytes of what comes next as are being multiplied, from a row of `b` on.
    fn fetch(&mut self, b_row: Reg, bytes: i32) {
        let op = if self.way == Way::Passing { Op::FetchPassing } else { Op::FetchFirst };
        let mut window = None;
        for line in lines(self.way, self.shape.right, bytes, (0, 1)) {
            let place = match line {
                Line::Behind(further) => Mem::at(b_row).plus(further),
                Line::InWindow(further) => {
                    let (here, inside) = *window.get_or_insert_with(|| self.window(b_row));
                    Mem::at(here).indexed(inside, 1).plus(further)
                }
            };
            self.m.effect(op, vec![place.into()]);
        }
    }

    /// The window that is multiplied, and how far into each page of the next one is fetched.
    fn window(&mut self, b_row: Reg) -> (Reg, Reg) {
        let (bits, shift, whole) = INSIDE;
        let within = self.m.tied(Op::AndImm, b_row, vec![Operand::Imm(bits)]);
        let here = self.m.tied(Op::Minus, b_row, vec![within.into()]);
        let inside = self.m.tied(Op::Halve, within, vec![Operand::Imm(shift)]);
        (here, self.m.tied(Op::AndImm, inside, vec![Operand::Imm(whole)]))
    }
}
