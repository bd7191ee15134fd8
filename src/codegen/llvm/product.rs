//! Code common to all matmuls: operands, register tiles, their sums.
//!
//! In: operands of a `dot`. Out: their addresses and strides, loops over register tiles, and LLVM
//! IR for initialising and storing sums. Must not know: how a step is computed.

use inkwell::values::{IntValue, PointerValue};

use super::code::{Code, Stride};
use super::emit::EmitResult;
use super::lanes::Lane;
use crate::scalar::BinaryOp;
use crate::shape::Elem;
use crate::tile::{self, Op, Space, TileType};

/// An operand of a matmul; strides in bytes.
#[derive(Clone, Copy)]
pub(super) struct Factor<'c> {
    pub(super) start: PointerValue<'c>,
    pub(super) row: IntValue<'c>,
    pub(super) col: IntValue<'c>,
    /// Element type in memory.
    pub(super) elem: Elem,
}

/// Values that all loops of one matmul use.
pub(super) struct DotValues<'c> {
    pub(super) a: Factor<'c>,
    pub(super) b: RightOperand<'c>,
    pub(super) acc: PointerValue<'c>,
    /// Initial value of every sum. `None`: sums start with 0, and the accumulator's contents are
    /// added at the end.
    pub(super) start: Option<Lane<'c>>,
    pub(super) pitch: i64,
    pub(super) inner: IntValue<'c>,
    pub(super) elem: Elem,
    pub(super) lanes: u32,
    pub(super) bytes: i64,
}

/// A register tile: number of rows and vectors, first row and column.
#[derive(Clone, Copy)]
pub(super) struct RegisterTile<'c> {
    pub(super) height: i64,
    pub(super) vectors: i64,
    pub(super) row: IntValue<'c>,
    pub(super) col: IntValue<'c>,
}

/// The sums of a register tile, row by row: for each vector its address in the accumulator, and the
/// variable that holds it.
pub(super) type Sums<'c> = Vec<(PointerValue<'c>, PointerValue<'c>)>;

/// The extent of a loop that is processed in chunks of several sizes.
#[derive(Clone, Copy)]
pub(super) enum Count<'c> {
    Known(i64),
    Value(IntValue<'c>),
}

/// A right operand: start address and row stride in bytes.
#[derive(Clone, Copy)]
pub(super) struct RightOperand<'c> {
    pub(super) start: PointerValue<'c>,
    pub(super) row: IntValue<'c>,
    pub(super) kind: Right<'c>,
}

/// Elements of a right operand in memory.
#[derive(Clone, Copy)]
pub(super) enum Right<'c> {
    /// Elements of a type; a row is a step.
    Elements(Elem),
    /// Pairs of `bf16`; a row is two steps.
    Pairs,
    /// Integers, times a scale.
    Scaled(Scaled<'c>),
}

/// Integers and their scales.
#[derive(Clone, Copy)]
pub(super) struct Scaled<'c> {
    /// 4 or 8. With 4, a row is two steps, the first in the lower halves.
    pub(super) bits: u8,
    /// The scales of the first group.
    pub(super) scales: PointerValue<'c>,
    /// Bytes from group to group.
    pub(super) group: i64,
}

impl RightOperand<'_> {
    /// Bytes from column to column.
    pub(super) fn bytes(&self) -> i64 {
        match self.kind {
            Right::Elements(elem) => i64::try_from(elem.size()).unwrap_or(1),
            Right::Pairs => 4,
            Right::Scaled(_) => 1,
        }
    }
}

impl<'c> Code<'_, '_, 'c> {
    /// The address of a tile in scratch.
    pub(super) fn in_scratch(&self, t: &TileType, scratch: PointerValue<'c>) -> EmitResult<PointerValue<'c>> {
        let Space::L1(offset, _) = t.space else { return Err("an operand is not in scratch".into()) };
        self.e.offset(scratch, self.e.int(i64::from(offset)))
    }

    /// An operand in scratch, or read in place from its buffer.
    pub(super) fn factor(&self, v: tile::Value, t: &TileType, scratch: PointerValue<'c>) -> EmitResult<Factor<'c>> {
        if t.space != Space::Window {
            let (row, col) = (self.e.int(i64::from(t.pitch())), self.e.int(i64::from(t.element_bytes())));
            return Ok(Factor { start: self.in_scratch(t, scratch)?, row, col, elem: t.elem });
        }
        let data = self.body.def_inst(v).ok_or("a window without a definition")?;
        let Op::Window { rows, cols } = data.op else { return Err("an operand of a matmul is not a window".into()) };
        let [buffer, indices @ ..] = data.operands.as_slice() else { return Err("a window without a buffer".into()) };
        let (_, strides, elem) = self.buffer(*buffer)?;
        let along = |axis: Option<usize>| axis.and_then(|a| strides.get(a)).copied().unwrap_or(Stride::Const(0));
        let (row, col) = (self.stride_bytes(along(rows), elem)?, self.stride_bytes(along(cols), elem)?);
        Ok(Factor { start: self.address(*buffer, indices)?, row, col, elem })
    }

    /// Splits a count into chunks of some sizes, largest first: a given number of each if the count
    /// is known, else as many as fit.
    pub(super) fn in_steps(
        &mut self,
        count: Count<'c>,
        sizes: &[(i64, i64)],
        mut body: impl FnMut(&mut Self, i64, IntValue<'c>) -> EmitResult<()>,
    ) -> EmitResult<()> {
        let (mut known, mut at) = (0, self.e.int(0));
        for (size, times) in sizes {
            match count {
                Count::Known(_) if *size == 0 || *times == 0 => {}
                Count::Known(_) if *times == 1 => {
                    body(self, *size, self.e.int(known))?;
                    known += size;
                }
                Count::Known(_) => {
                    let (from, to) = (self.e.int(known), self.e.int(known + size * times));
                    self.counted(from, to, *size, |code, at| body(code, *size, at))?;
                    known += size * times;
                }
                Count::Value(all) => {
                    let end = self.e.b.build_int_sub(all, self.e.int(size - 1), "")?;
                    at = self.counted(at, end, *size, |code, at| body(code, *size, at))?;
                }
            }
        }
        Ok(())
    }

    /// Initialises the sums of a register tile.
    pub(super) fn start_sums(&self, p: &DotValues<'c>, place: RegisterTile<'c>) -> EmitResult<Sums<'c>> {
        let vector_bytes = i64::from(p.lanes) * p.bytes;
        let col_bytes = self.e.b.build_int_mul(place.col, self.e.int(p.bytes), "")?;
        let acc = self.steps(p.acc, place.row, self.e.int(p.pitch))?;
        let acc = self.e.offset(acc, col_bytes)?;
        let ty = self.e.lanes_of(p.elem, p.lanes);
        let mut sums = Vec::new();
        for r in 0..place.height {
            for v in 0..place.vectors {
                let home = self.e.offset(acc, self.e.int(r * p.pitch + v * vector_bytes))?;
                let sum = self.e.variable(ty)?;
                let first = match p.start {
                    Some(x) => self.e.spread(x, p.lanes)?,
                    None => Lane { value: ty.const_zero(), elem: p.elem },
                };
                self.e.b.build_store(sum, first.value)?;
                sums.push((home, sum));
            }
        }
        Ok(sums)
    }

    /// Adds the accumulator's contents, unless the sums started with a constant, and stores them.
    pub(super) fn store_sums(&self, p: &DotValues<'c>, sums: &Sums<'c>) -> EmitResult<()> {
        let ty = self.e.lanes_of(p.elem, p.lanes);
        for (home, sum) in sums {
            let value = self.e.b.build_load(ty, *sum, "")?.into_vector_value();
            let mut x = Lane { value, elem: p.elem };
            if p.start.is_none() {
                let acc = self.e.load_scratch(p.elem, *home, p.lanes)?;
                x = self.e.lane_binary(BinaryOp::Add, acc, x)?;
            }
            self.e.store_scratch(x, *home)?;
        }
        Ok(())
    }
}
