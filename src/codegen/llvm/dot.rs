//! `dot`: a product of tiles in scratch or in place, as register tiles of the level's size.
//!
//! In: an accumulator in scratch, operands there, windows, or panels. Out: LLVM IR. Columns go in pairs of vectors, the last
//! of which may reach past the end, into the padding; rows go in register tiles as even as they can be where their number is
//! known, else in tiles of the level's rows, of four, and of one. Every element is summed in a register as the product's mode
//! says, whatever the tiles; the accumulator is added to the end.
//!
//! Panels of narrow numbers are widened step by step (`panels`), unless the mode is one of bytes or of pairs of `bf16`
//! (`dot_whole`, `panels`). Products in tiles have no code here.

use inkwell::IntPredicate;
use inkwell::values::{IntValue, PointerValue};

use super::code::Code;
use super::emit::Made;
use super::lanes::Lane;
use super::product::{Count, Product, RegisterTile, Right, Sums};
use crate::scalar::BinaryOp;
use crate::tile::{self, DotMode, Extent, InstData, TileType, Type};

impl<'c> Code<'_, '_, 'c> {
    /// Emits `acc + a @ b`, the result in the place of the accumulator or in one of its own.
    pub(super) fn dot(&mut self, data: &InstData, mode: DotMode, scratch: PointerValue<'c>) -> Made<()> {
        let [a, b, acc] = data.operands.as_slice() else { return Err("a product of three operands".into()) };
        let (ta, tb) = (self.tile(*a)?, self.tile(*b)?);
        let t = self.tile(data.result.ok_or("a product without a result")?)?;
        let rows = self.extent(t.rows)?;
        let (target, pitch) = (self.in_scratch(&t, scratch)?, i64::from(t.pitch()));
        let start = match self.body.ty(*acc) {
            Type::Scalar(_) => Some(self.scalar(*acc)?),
            _ => {
                let from = self.tile(*acc)?;
                if t.space != from.space {
                    let size = self.e.b.build_int_mul(rows, self.e.int(pitch), "")?;
                    self.e.b.build_memcpy(target, 4, self.in_scratch(&from, scratch)?, 4, size)?;
                }
                None
            }
        };
        let bytes = i64::from(t.element_bytes());
        let level = self.e.level;
        // A vector of the same bytes whatever the elements: what rows are padded to.
        let lanes = if t.cols.is_one() { 1 } else { level.lanes() * 4 / t.element_bytes() };
        let p = Product {
            a: self.factor(*a, &ta, scratch)?,
            b: self.right_operand(*b, &tb, scratch)?,
            acc: target,
            start,
            pitch,
            inner: self.extent(ta.cols)?,
            elem: t.elem,
            lanes,
            bytes,
        };
        match (mode, p.b.kind, ta.cols) {
            (DotMode::Tiles, ..) => Err("products in tiles have no code through LLVM".into()),
            (DotMode::Split, ..) => Err("the steps of a product are divided among threads on a GPU alone".into()),
            (DotMode::Groups, Right::Scaled(s), Extent::Static(k)) if k % i64::from(tile::GROUP) == 0 => {
                self.whole(&p, s, rows)
            }
            (DotMode::Groups, Right::Scaled(s), Extent::Bounded { .. }) => {
                // The last steps may not be full groups.
                let rest = self.e.b.build_and(p.inner, self.e.int(i64::from(tile::GROUP) - 1), "")?;
                let is_whole = self.e.b.build_int_compare(IntPredicate::EQ, rest, self.e.int(0), "")?;
                self.when(is_whole, |code| code.whole(&p, s, rows))?;
                self.when(self.e.b.build_not(is_whole, "")?, |code| code.chains(&p, &t, mode))
            }
            (DotMode::Chain | DotMode::Fma | DotMode::Pairs | DotMode::Groups, ..) => self.chains(&p, &t, mode),
        }
    }

    /// The product as a chain of sums over all steps for each element, or over pairs of steps.
    fn chains(&mut self, p: &Product<'c>, t: &TileType, mode: DotMode) -> Made<()> {
        let (n, level) = (i64::from(p.lanes), self.e.level);
        let rows = self.extent(t.rows)?;
        let vectors = match t.cols {
            Extent::Static(k) => Count::Known((k + n - 1) / n),
            Extent::Bounded { .. } => {
                let sum = self.e.b.build_int_add(self.extent(t.cols)?, self.e.int(n - 1), "")?;
                Count::Value(self.e.b.build_int_signed_div(sum, self.e.int(n), "")?)
            }
        };
        let pairs = match vectors {
            Count::Known(k) => vec![(2, k / 2), (1, k % 2)],
            Count::Value(_) => vec![(2, 0), (1, 0)],
        };
        let highest = i64::from(level.dot_rows());
        let (rows, heights) = match t.rows {
            Extent::Static(k) => {
                let tiles = ((k + highest - 1) / highest).max(1);
                (Count::Known(k), vec![(k / tiles + 1, k % tiles), (k / tiles, tiles - k % tiles)])
            }
            Extent::Bounded { .. } => {
                let sizes = [highest, 4, 1].into_iter().filter(|h| *h <= highest);
                let mut sizes: Vec<(i64, i64)> = sizes.map(|h| (h, 0)).collect();
                sizes.dedup();
                (Count::Value(rows), sizes)
            }
        };
        self.in_steps(vectors, &pairs, |code, vectors, column| {
            let col = code.e.b.build_int_mul(column, code.e.int(n), "")?;
            code.in_steps(rows, &heights, |code, height, row| {
                code.register_tile(p, RegisterTile { height, vectors, row, col }, mode)
            })
        })
    }

    fn register_tile(&mut self, p: &Product<'c>, place: RegisterTile<'c>, mode: DotMode) -> Made<()> {
        let sums = self.start_sums(p, place)?;
        let a = self.steps(p.a.start, place.row, p.a.row)?;
        let b = self.steps(p.b.start, place.col, self.e.int(p.b.bytes()))?;
        let (zero, group) = (self.e.int(0), i64::from(tile::GROUP));
        match p.b.kind {
            Right::Pairs if mode == DotMode::Pairs => {
                self.pairs_of_steps(p, place, (a, b), &sums)?;
            }
            Right::Elements(_) | Right::Pairs => {
                self.counted(zero, p.inner, 1, |code, k| code.product_step(p, place, (a, b), (k, mode), &[], &sums))?;
            }
            Right::Scaled(s) => {
                self.counted(zero, p.inner, group, |code, first| {
                    let scales = code.scales(p, place, s, first)?;
                    let end = code.e.b.build_int_add(first, code.e.int(group), "")?;
                    let all = code.e.less(end, p.inner)?;
                    let end = code.e.b.build_select(all, end, p.inner, "")?.into_int_value();
                    code.counted(first, end, 1, |code, k| {
                        code.product_step(p, place, (a, b), (k, mode), &scales, &sums)
                    })?;
                    Ok(())
                })?;
            }
        }
        self.store_sums(p, &sums)
    }

    /// Step `k` of a register tile whose operands begin at `a` and `b`, with the scales of the step's group, if there are any.
    fn product_step(
        &self,
        p: &Product<'c>,
        place: RegisterTile<'c>,
        (a, b): (PointerValue<'c>, PointerValue<'c>),
        (k, mode): (IntValue<'c>, DotMode),
        scales: &[Lane<'c>],
        sums: &Sums<'c>,
    ) -> Made<()> {
        let ty = self.e.lanes_of(p.elem, p.lanes);
        let a = self.steps(a, k, p.a.col)?;
        let columns = self.columns(p, place, b, k, scales)?;
        let mut rest = sums.iter();
        for r in 0..place.height {
            let at = self.steps(a, self.e.int(r), p.a.row)?;
            let x = self.e.load_memory(p.a.elem, at, None, 1, None)?;
            let x = self.e.spread(x, p.lanes)?;
            for (y, (_, sum)) in columns.iter().zip(&mut rest) {
                let value = self.e.b.build_load(ty, *sum, "")?.into_vector_value();
                let sum_so_far = Lane { value, elem: p.elem };
                let next = match mode {
                    DotMode::Chain => {
                        let product = self.e.lane_binary(BinaryOp::Mul, x, *y)?;
                        self.e.lane_binary(BinaryOp::Add, sum_so_far, product)?
                    }
                    _ => self.e.lane_mul_add(x, *y, sum_so_far)?,
                };
                self.e.b.build_store(*sum, next.value)?;
            }
        }
        Ok(())
    }
}
