//! Panels of integers with scales (`load_scaled`): an element is its number times its scale, rounded once.
//!
//! In: a panel, a step and a column in it. Out: the row of bytes where the number lies, and what it is multiplied by. What this must not
//! know: which thread reads what.

use super::emit::Emit;
use super::kernel::Code;
use super::lanes::Lane;
use crate::ptx::{Op as P, Operand, Type as PtxType};
use crate::scalar::BinaryOp;
use crate::shape::Elem;
use crate::tile::{GROUP, Value};

/// What a panel of integers is multiplied by: its first row of scales, the bytes between rows and between columns of scales, and the bits
/// of an integer.
#[derive(Clone)]
pub(super) struct Scaled {
    pub(super) base: Operand,
    pub(super) strides: [Operand; 2],
    pub(super) bits: u8,
    pub(super) read_only: bool,
}

impl Code<'_> {
    /// The scales of a panel of integers that begins at some indices of its numbers.
    pub(super) fn scales(&mut self, scales: Value, indices: &[Value], bits: u8) -> Result<Scaled, String> {
        let (mut base, strides, elem, read_only) = self.buffer(scales)?;
        let axis = indices.len().saturating_sub(2);
        for (n, (stride, i)) in strides.iter().zip(indices).enumerate() {
            let mut i = self.index(*i)?;
            if n == axis {
                // A row of scales is one of so many rows of numbers.
                let rows = i64::from(GROUP) * i64::from(bits) / 8;
                i = match i {
                    Operand::Int(i) => Operand::Int(i / rows),
                    i => self.e.make("group", P::Div { ty: PtxType::S64 }, PtxType::S64, &[i, Operand::Int(rows)]),
                };
            }
            let bytes = self.stride_bytes(stride, elem);
            base = self.e.mad("scales", &i, &bytes, &base);
        }
        let [row, col] = [axis, axis + 1].map(|n| strides.get(n).cloned());
        let (Some(row), Some(col)) = (row, col) else { return Err("scales of less than two axes".into()) };
        let strides = [self.stride_bytes(&row, elem), self.stride_bytes(&col, elem)];
        Ok(Scaled { base, strides, bits, read_only })
    }
}

/// The scale of an integer that was loaded, and how far its bits are moved to the left, so that they are the highest.
pub(super) struct Scale {
    factor: Lane,
    shift: Option<Operand>,
}

impl Emit {
    /// The row of numbers in which a step lies, and what its numbers are multiplied by.
    pub(super) fn scale_of(
        &mut self,
        scaled: &Scaled,
        step: &Operand,
        col: &Operand,
        there: Option<&Operand>,
    ) -> (Operand, Option<Scale>) {
        let (ty, s32) = (PtxType::U32, PtxType::S32);
        let bits = Operand::Int(i64::from(GROUP.trailing_zeros()));
        let group = self.make("group", P::Shr { ty }, s32, &[step.clone(), bits]);
        let at = self.advance(&scaled.base, &group, &scaled.strides[0]);
        let at = self.advance(&at, col, &scaled.strides[1]);
        let factor = self.load("scale", Elem::F32, &at, scaled.read_only, there);
        if scaled.bits == 8 {
            return (step.clone(), Some(Scale { factor, shift: None }));
        }
        // The lower half of a byte has the even step.
        let row = self.make("byte", P::Shr { ty }, s32, &[step.clone(), Operand::Int(1)]);
        let odd = self.make("odd", P::And { ty: PtxType::B32 }, s32, &[step.clone(), Operand::Int(1)]);
        let less = self.mul("less", s32, &odd, &Operand::Int(4));
        let shift = self.sub("shift", s32, &Operand::Int(28), &less);
        (row, Some(Scale { factor, shift: Some(shift) }))
    }

    /// A number times its scale, rounded once.
    pub(super) fn times_scale(&mut self, number: &Lane, scale: &Scale) -> Result<Lane, String> {
        let mut number = number.clone();
        if let Some(shift) = &scale.shift {
            let high = self.make("half", P::Shl { ty: PtxType::B32 }, PtxType::S32, &[number.value, shift.clone()]);
            let ty = PtxType::S32;
            number.value = self.make("half", P::Shr { ty }, ty, &[high, Operand::Int(28)]);
        }
        let number = self.cast("number", &number, Elem::F32);
        self.binary("x", BinaryOp::Mul, &number, &scale.factor)
    }
}
