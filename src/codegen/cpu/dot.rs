//! `dot`: a matmul of tiles, in register tiles of four rows by eight columns.
//!
//! In: an accumulator in scratch; operands in scratch, or windows of buffers. Out: CLIF. Rows of a
//! tile are padded to full vectors, so columns are computed in full vectors too; results past the
//! last column are never read. A right operand may be narrower in memory (`bf16`, or integers with
//! scales): it is widened where it is loaded. Sums start with 0 in registers and are finally added
//! to the accumulator.

use cranelift_codegen::ir::{InstBuilder, Value, types};
use cranelift_frontend::Variable;

use super::code::{Code, Stride};
use super::lanes::{Lane, Width, clif_type, plain};
use crate::scalar::{BinaryOp, Scalar};
use crate::shape::Elem;
use crate::tile::{self, InstData, Op, Space, TileType, Type};

/// log2 of the number of `k` steps that share a scale.
const GROUP_BITS: i64 = tile::GROUP.ilog2() as i64;

/// A tile in scratch.
#[derive(Clone, Copy)]
struct Panel {
    start: Value,
    pitch: i64,
}

/// An operand of a matmul; strides in bytes.
#[derive(Clone, Copy)]
struct Factor {
    start: Value,
    row: Value,
    col: Value,
    /// Element type in memory.
    elem: Elem,
}

/// Elements of a right operand in memory.
#[derive(Clone, Copy)]
enum Right {
    /// The type of the sums.
    Same,
    /// `bf16`.
    Bf16,
    /// Pairs of `bf16`.
    Pairs,
    /// Integers of 8 or 4 bits, times the scale of their column and group: address of the first
    /// group's scales, and bytes to the next group's.
    Scaled { bits: u8, scales: Value, group: i64 },
}

/// A panel of integers and its scales; strides in bytes.
pub(super) struct ScaledPanel {
    pub(super) start: Value,
    /// Bytes from row to row.
    pub(super) row: i64,
    /// Address of the scales of the first group.
    pub(super) scales: Value,
    /// Bytes between the scales of two groups.
    pub(super) group: i64,
    /// 4 or 8.
    pub(super) bits: u8,
}

/// Values that all loops of one matmul use.
struct DotValues {
    a: Factor,
    b: Factor,
    right: Right,
    acc: Panel,
    /// Initial value of every sum. `None`: sums start with 0, and the accumulator's contents are
    /// added at the end.
    start: Option<Lane>,
    inner: Value,
    elem: Elem,
    width: Width,
    bytes: i64,
}

impl Code<'_, '_> {
    fn panel(&mut self, t: &TileType, scratch: Value) -> Result<Panel, String> {
        let Space::L1(offset, _) = t.space else { return Err("an operand of a matmul is not in scratch".into()) };
        let start = self.b.ins().iadd_imm_s(scratch, i64::from(offset));
        Ok(Panel { start, pitch: i64::from(t.pitch()) })
    }

    /// An operand in scratch, or read in place from its buffer.
    fn factor(&mut self, v: tile::Value, t: &TileType, scratch: Value) -> Result<Factor, String> {
        if t.space != Space::Window {
            let Panel { start, pitch } = self.panel(t, scratch)?;
            let (row, col) = (self.int(pitch), self.int(i64::from(t.element_bytes())));
            return Ok(Factor { start, row, col, elem: t.elem });
        }
        let data = self.body.def_inst(v).cloned().ok_or("a window without a definition")?;
        let Op::Window { rows, cols } = data.op else { return Err("an operand of a matmul is not a window".into()) };
        let [buffer, indices @ ..] = data.operands.as_slice() else { return Err("a window without a buffer".into()) };
        let (_, strides, elem) = self.buffer(*buffer)?;
        let along = |axis: Option<usize>| axis.and_then(|a| strides.get(a)).copied().unwrap_or(Stride::Const(0));
        let start = self.address(*buffer, indices)?;
        let (row, col) = (self.stride_bytes(along(rows), elem), self.stride_bytes(along(cols), elem));
        Ok(Factor { start, row, col, elem })
    }

    /// The panel that a `load_scaled` reads.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(super) fn scaled_panel(&mut self, data: &InstData) -> Result<ScaledPanel, String> {
        let (Op::LoadScaled { bits }, [buffer, indices @ .., scales]) = (&data.op, data.operands.as_slice()) else {
            return Err("a panel without scales".into());
        };
        let start = self.address(*buffer, indices)?;
        let axis = indices.len().checked_sub(2).ok_or("a panel needs two axes")?;
        let pitch = |strides: &[Stride], size: i64| match strides.get(axis) {
            Some(Stride::Const(n)) => Ok(n.wrapping_mul(size)),
            _ => Err("a panel's row stride is not constant"),
        };
        let (_, strides, _) = self.buffer(*buffer)?;
        let row = pitch(&strides, 1)?;
        let (mut at, strides, elem) = self.buffer(*scales)?;
        let group = pitch(&strides, 4)?;
        for (n, (stride, i)) in strides.iter().zip(indices).enumerate() {
            let mut i = self.index(*i)?;
            if n == axis {
                // From panel rows to groups of `k` steps.
                i = self.b.ins().sshr_imm_u(i, if *bits == 4 { GROUP_BITS - 1 } else { GROUP_BITS });
            }
            let bytes = self.stride_bytes(*stride, elem);
            let further = self.b.ins().imul(i, bytes);
            at = self.b.ins().iadd(at, further);
        }
        Ok(ScaledPanel { start, row, scales: at, group, bits: *bits })
    }

    fn right_factor(&mut self, v: tile::Value, t: &TileType, scratch: Value) -> Result<(Factor, Right), String> {
        match self.body.def_inst(v).cloned() {
            Some(data) if matches!(data.op, Op::LoadScaled { .. }) => {
                let ScaledPanel { start, row, scales, group, bits } = self.scaled_panel(&data)?;
                let (row, col) = (self.int(row), self.int(1));
                Ok((Factor { start, row, col, elem: Elem::I8 }, Right::Scaled { bits, scales, group }))
            }
            Some(InstData { op: Op::LoadPairs, operands, .. }) => {
                let [buffer, indices @ ..] = operands.as_slice() else { return Err("a panel without a buffer".into()) };
                let (_, strides, elem) = self.buffer(*buffer)?;
                let pitch = strides.iter().rev().nth(2).copied().ok_or("a panel has fewer than three axes")?;
                let (row, col) = (self.stride_bytes(pitch, elem), self.int(4));
                Ok((Factor { start: self.address(*buffer, indices)?, row, col, elem }, Right::Pairs))
            }
            Some(InstData { op: Op::PairRows, .. }) => Ok((self.factor(v, t, scratch)?, Right::Pairs)),
            Some(InstData { op: Op::Window { .. }, operands, .. }) => {
                let narrow = match operands.first() {
                    Some(b) => self.buffer(*b)?.2 == Elem::BF16,
                    None => false,
                };
                Ok((self.factor(v, t, scratch)?, if narrow { Right::Bf16 } else { Right::Same }))
            }
            _ => Ok((self.factor(v, t, scratch)?, Right::Same)),
        }
    }

    /// Emits `acc + a @ b`; the result overwrites the accumulator or has its own location in
    /// scratch.
    ///
    /// # Errors
    /// Operands that are neither in scratch nor windows.
    pub(super) fn dot(&mut self, data: &InstData, scratch: Value) -> Result<(), String> {
        let [a, b, acc] = data.operands.as_slice() else { return Err("a matmul needs three operands".into()) };
        let tile = |v| self.body.ty(v).tile().cloned().ok_or("a matmul operand is not a tile");
        let (ta, tb) = (tile(*a)?, tile(*b)?);
        let result = tile(data.result.ok_or("a matmul without a result")?)?;
        let rows = self.extent(result.rows)?;
        let cols = self.extent(result.cols)?;
        let inner = self.extent(ta.cols)?;
        let start = match self.body.ty(*acc) {
            Type::Scalar(_) => Some(self.scalar(*acc)?),
            _ => {
                let from = tile(*acc)?;
                if result.space != from.space {
                    self.copy_rows(&from, &result, rows, scratch)?;
                }
                None
            }
        };
        let width = if result.elem == Elem::I64 || result.cols.is_one() { Width::One } else { Width::Four };
        let a = self.factor(*a, &ta, scratch)?;
        let (b, right) = self.right_factor(*b, &tb, scratch)?;
        let p = DotValues {
            a,
            b,
            right,
            acc: self.panel(&result, scratch)?,
            start,
            inner,
            elem: result.elem,
            width,
            bytes: i64::from(result.element_bytes()),
        };
        let lanes = if width == Width::Four { 4 } else { 1 };
        let (i, j) = (self.b.declare_var(types::I64), self.b.declare_var(types::I64));
        let zero = self.int(0);
        self.b.def_var(j, zero);
        // Two vectors of columns at a time, then one; the last may reach past the end, into the
        // padding.
        let pairs = self.b.ins().iadd_imm_s(cols, -lanes);
        for (vectors, end) in [(2, pairs), (1, cols)] {
            self.counted(j, end, lanes * vectors, |code| {
                let zero = code.int(0);
                code.b.def_var(i, zero);
                let fours = code.b.ins().band_imm_s(rows, -4);
                for (height, end) in [(4, fours), (1, rows)] {
                    code.counted(i, end, height, |code| {
                        let (r, c) = (code.b.use_var(i), code.b.use_var(j));
                        code.register_tile(&p, height, vectors, r, c)
                    })?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Copies a tile within scratch.
    pub(super) fn copy_rows(
        &mut self,
        from: &TileType,
        to: &TileType,
        rows: Value,
        scratch: Value,
    ) -> Result<(), String> {
        let (source, target) = (self.panel(from, scratch)?, self.panel(to, scratch)?);
        let bytes = self.b.ins().imul_imm_s(rows, target.pitch);
        let at = self.b.declare_var(types::I64);
        let zero = self.int(0);
        self.b.def_var(at, zero);
        self.counted(at, bytes, 4, |code| {
            let offset = code.b.use_var(at);
            let x = code.b.ins().iadd(source.start, offset);
            let x = code.b.ins().load(types::I32, plain(), x, 0);
            let y = code.b.ins().iadd(target.start, offset);
            code.b.ins().store(plain(), x, y, 0);
            Ok(())
        })
    }

    /// Loads one vector of a tile.
    fn dot_load(&mut self, p: &DotValues, address: Value, offset: i32) -> Value {
        let ty = clif_type(p.elem, p.width);
        match p.width {
            Width::Four => self.lanes().load_vector(ty, address, offset),
            Width::One => self.b.ins().load(ty, plain(), address, offset),
        }
    }

    /// Loads one vector of narrower elements, widened.
    fn narrow_load(&mut self, p: &DotValues, elem: Elem, at: Value) -> Lane {
        self.lanes().load(elem, p.width, at, 0)
    }

    /// Byte offset of the row of an integer panel that holds step `k`.
    fn scaled_row(&mut self, k: Value, bits: u8, pitch: Value) -> Value {
        let row = if bits == 4 { self.b.ins().sshr_imm_u(k, 1) } else { k };
        self.b.ins().imul(row, pitch)
    }

    /// Loads one vector of integers of step `k`, times their scales.
    fn scaled_load(&mut self, p: &DotValues, bits: u8, k: Value, at: Value, (scales, group): (Value, i64)) -> Lane {
        let mut x = self.narrow_load(p, Elem::I8, at);
        if bits == 4 {
            // Shift the requested half to the top, then arithmetically back down.
            let odd = self.b.ins().band_imm_u(k, 1);
            let odd = self.b.ins().ireduce(types::I32, odd);
            let four = self.b.ins().ishl_imm_u(odd, 2);
            let most = self.b.ins().iconst(types::I32, 28);
            let up = self.b.ins().isub(most, four);
            let top = self.b.ins().ishl(x.value, up);
            x.value = self.b.ins().sshr_imm_u(top, 28);
        }
        let x = self.lanes().lane_cast(x, Elem::F32);
        let number = self.b.ins().sshr_imm_u(k, GROUP_BITS);
        let further = self.b.ins().imul_imm_s(number, group);
        let place = self.b.ins().iadd(scales, further);
        let scale = self.narrow_load(p, Elem::F32, place);
        self.lanes().lane_arithmetic(BinaryOp::Mul, x, scale)
    }

    /// Loads one vector of step `k` of the pairs at `at`: the lower halves if `k` is even, else the
    /// upper ones.
    fn half_of_pair(&mut self, p: &DotValues, k: Value, at: Value) -> Lane {
        let mut x = self.narrow_load(p, Elem::I32, at);
        let odd = self.b.ins().band_imm_u(k, 1);
        let odd = self.b.ins().ireduce(types::I32, odd);
        let down = self.b.ins().ishl_imm_u(odd, 4);
        let sixteen = self.b.ins().iconst(types::I32, 16);
        let up = self.b.ins().isub(sixteen, down);
        let top = self.b.ins().ishl(x.value, up);
        // Clear the other half.
        let kept = self.b.ins().ushr_imm_u(top, 16);
        x.value = self.b.ins().ishl_imm_u(kept, 16);
        self.lanes().floats_of_bits(x)
    }

    fn register_tile(
        &mut self,
        p: &DotValues,
        height: i64,
        vectors: i64,
        row: Value,
        col: Value,
    ) -> Result<(), String> {
        let ty = clif_type(p.elem, p.width);
        let vector_bytes = if p.width == Width::Four { 4 * p.bytes } else { p.bytes };
        let col_bytes = self.b.ins().imul_imm_s(col, p.bytes);
        let down = self.b.ins().imul_imm_s(row, p.acc.pitch);
        let acc_row = self.b.ins().iadd(p.acc.start, down);
        let acc_start = self.b.ins().iadd(acc_row, col_bytes);
        let offset = |n: i64| i32::try_from(n).map_err(|_| "a tile in scratch is too large");
        let nothing = if p.elem == Elem::F32 { Scalar::Float(0.0) } else { Scalar::Int(0) };
        let mut sums: Vec<Variable> = Vec::new();
        for _ in 0..height * vectors {
            let variable = self.b.declare_var(ty);
            let x = match p.start {
                Some(x) if p.width == Width::Four => self.lanes().spread(x).value,
                Some(x) => x.value,
                None => self.lanes().constant(nothing, p.elem, p.width).value,
            };
            self.b.def_var(variable, x);
            sums.push(variable);
        }
        let down = self.b.ins().imul(row, p.a.row);
        let a_start = self.b.ins().iadd(p.a.start, down);
        let rows_of_a: Vec<Value> = (0..height).map(|r| self.b.ins().imul_imm_s(p.a.row, r)).collect();
        let b_start = match p.right {
            Right::Same | Right::Pairs => self.b.ins().iadd(p.b.start, col_bytes),
            Right::Bf16 | Right::Scaled { .. } => {
                let right_bytes = self.b.ins().imul_imm_s(col, if matches!(p.right, Right::Bf16) { 2 } else { 1 });
                self.b.ins().iadd(p.b.start, right_bytes)
            }
        };
        let (k, pa, pb) =
            (self.b.declare_var(types::I64), self.b.declare_var(types::I64), self.b.declare_var(types::I64));
        let zero = self.int(0);
        self.b.def_var(k, zero);
        self.b.def_var(pa, a_start);
        self.b.def_var(pb, b_start);
        let inner = p.inner;
        self.counted(k, inner, 1, |code| {
            let (from_a, from_b) = (code.b.use_var(pa), code.b.use_var(pb));
            let mut columns = Vec::new();
            for v in 0..vectors {
                columns.push(match p.right {
                    Right::Same => {
                        let value = code.dot_load(p, from_b, offset(v * vector_bytes)?);
                        Lane { value, elem: p.elem, width: p.width }
                    }
                    Right::Bf16 => {
                        let at = code.b.ins().iadd_imm_s(from_b, v * vector_bytes / 2);
                        code.narrow_load(p, Elem::BF16, at)
                    }
                    Right::Pairs => {
                        let k = code.b.use_var(k);
                        let pair = code.b.ins().sshr_imm_u(k, 1);
                        let down = code.b.ins().imul(pair, p.b.row);
                        let at = code.b.ins().iadd(b_start, down);
                        let at = code.b.ins().iadd_imm_s(at, v * vector_bytes);
                        code.half_of_pair(p, k, at)
                    }
                    Right::Scaled { bits, scales, group } => {
                        let k = code.b.use_var(k);
                        let scales = code.b.ins().iadd(scales, col_bytes);
                        let scales = code.b.ins().iadd_imm_s(scales, v * vector_bytes);
                        let row = code.scaled_row(k, bits, p.b.row);
                        let at = code.b.ins().iadd(b_start, row);
                        let at = code.b.ins().iadd_imm_s(at, v * vector_bytes / 4);
                        code.scaled_load(p, bits, k, at, (scales, group))
                    }
                });
            }
            for (r, down) in (0..height).zip(&rows_of_a) {
                let one = clif_type(p.elem, Width::One);
                let at = if r == 0 { from_a } else { code.b.ins().iadd(from_a, *down) };
                let mut x = if p.a.elem == Elem::BF16 {
                    code.lanes().load(Elem::BF16, Width::One, at, 0)
                } else {
                    let value = code.b.ins().load(one, plain(), at, 0);
                    Lane { value, elem: p.elem, width: Width::One }
                };
                if p.width == Width::Four {
                    x = code.lanes().spread(x);
                }
                for (v, y) in columns.iter().enumerate() {
                    let index = usize::try_from(r * vectors).unwrap_or(0) + v;
                    let variable = *sums.get(index).ok_or("a register is missing")?;
                    let sum = Lane { value: code.b.use_var(variable), elem: p.elem, width: p.width };
                    let product = code.lanes().lane_arithmetic(BinaryOp::Mul, x, *y);
                    let sum = code.lanes().lane_arithmetic(BinaryOp::Add, sum, product);
                    code.b.def_var(variable, sum.value);
                }
            }
            let next_a = code.b.ins().iadd(from_a, p.a.col);
            let next_b = code.b.ins().iadd(from_b, p.b.row);
            code.b.def_var(pa, next_a);
            code.b.def_var(pb, next_b);
            Ok(())
        })?;
        for (n, variable) in sums.iter().enumerate() {
            let n = i64::try_from(n).unwrap_or(0);
            let (r, v) = (n / vectors, n % vectors);
            let place = offset(r * p.acc.pitch + v * vector_bytes)?;
            let mut x = self.b.use_var(*variable);
            if p.start.is_none() {
                let lane = |value| Lane { value, elem: p.elem, width: p.width };
                let acc = self.dot_load(p, acc_start, place);
                x = self.lanes().lane_arithmetic(BinaryOp::Add, lane(acc), lane(x)).value;
            }
            self.b.ins().store(plain(), x, acc_start, place);
        }
        Ok(())
    }
}
