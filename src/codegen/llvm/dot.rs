//! `dot`: a matmul of tiles, in register tiles that fit the instruction set.
//!
//! In: an accumulator in scratch; operands in scratch, windows or panels. Out: LLVM IR. Columns are
//! processed in pairs of vectors, the last of which may reach into the padding; rows are split
//! evenly into register tiles if their number is known, else into tiles of the maximum height, of
//! four, and of one. Every element is summed in a register as the mode prescribes, whatever the
//! tiles; the accumulator is added last.
//!
//! Panels of narrow elements are widened when loaded (`panels`), unless the mode multiplies bytes
//! or pairs of `bf16` (`dot_whole`, `panels`). The AMX mode is not supported.

use inkwell::IntPredicate;
use inkwell::values::{IntValue, PointerValue};

use super::code::Code;
use super::emit::EmitResult;
use super::lanes::Lane;
use super::product::{Count, DotValues, RegisterTile, Right, Sums};
use crate::scalar::BinaryOp;
use crate::tile::{self, DotMode, Extent, InstData, TileType, Type};

impl<'c> Code<'_, '_, 'c> {
    /// Emits `acc + a @ b`; the result overwrites the accumulator or has its own location in
    /// scratch.
    pub(super) fn dot(&mut self, data: &InstData, mode: DotMode, scratch: PointerValue<'c>) -> EmitResult<()> {
        let [a, b, acc] = data.operands.as_slice() else { return Err("a matmul needs three operands".into()) };
        let (ta, tb) = (self.tile(*a)?, self.tile(*b)?);
        let t = self.tile(data.result.ok_or("a matmul without a result")?)?;
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
        // Rows are padded to full vectors: the same number of bytes for all element types.
        let lanes = if t.cols.is_one() { 1 } else { level.lanes() * 4 / t.element_bytes() };
        let p = DotValues {
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
            (DotMode::Tiles, ..) => Err("AMX matmuls are not supported by the LLVM back end".into()),
            (DotMode::Split, ..) => Err("split-k matmuls are only supported on a GPU".into()),
            (DotMode::Groups, Right::Scaled(s), Extent::Static(k)) if k % i64::from(tile::GROUP) == 0 => {
                self.whole(&p, s, rows)
            }
            (DotMode::Groups, Right::Scaled(s), Extent::Bounded { .. }) => {
                // The last group may be incomplete.
                let rest = self.e.b.build_and(p.inner, self.e.int(i64::from(tile::GROUP) - 1), "")?;
                let is_whole = self.e.b.build_int_compare(IntPredicate::EQ, rest, self.e.int(0), "")?;
                self.when(is_whole, |code| code.whole(&p, s, rows))?;
                self.when(self.e.b.build_not(is_whole, "")?, |code| code.chains(&p, &t, mode))
            }
            (DotMode::Chain | DotMode::Fma | DotMode::Pairs | DotMode::Groups, ..) => self.chains(&p, &t, mode),
        }
    }

    /// Computes each element as one chain over all steps, or over pairs of steps.
    fn chains(&mut self, p: &DotValues<'c>, t: &TileType, mode: DotMode) -> EmitResult<()> {
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

    fn register_tile(&mut self, p: &DotValues<'c>, place: RegisterTile<'c>, mode: DotMode) -> EmitResult<()> {
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

    /// Step `k` of a register tile whose operands begin at `a` and `b`, with the scales of the
    /// step's group, if there are any.
    fn product_step(
        &self,
        p: &DotValues<'c>,
        place: RegisterTile<'c>,
        (a, b): (PointerValue<'c>, PointerValue<'c>),
        (k, mode): (IntValue<'c>, DotMode),
        scales: &[Lane<'c>],
        sums: &Sums<'c>,
    ) -> EmitResult<()> {
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
