//! Panels of integers with scales (`load_scaled`): an element is an integer times its scale,
//! rounded once.
//!
//! In: a panel, a step and a column in it. Out: the row of bytes that contains the integer, and its
//! scale. Must not know: the mapping to threads.

use super::emit::Emit;
use super::kernel::Code;
use super::lanes::Lane;
use crate::ptx::{Op as P, Operand, Type as PtxType};
use crate::scalar::BinaryOp;
use crate::shape::Elem;
use crate::tile::{GROUP, Value};

/// Scales of a panel of integers: address of the first row, strides in bytes between rows and
/// columns of scales, bits of an integer.
#[derive(Clone)]
pub(super) struct Scaled {
    pub(super) base: Operand,
    pub(super) strides: [Operand; 2],
    pub(super) bits: u8,
    pub(super) read_only: bool,
}

impl Code<'_> {
    /// The scales of a panel of integers that begins at the given indices.
    pub(super) fn scales(&mut self, scales: Value, indices: &[Value], bits: u8) -> Result<Scaled, String> {
        let (mut base, strides, elem, read_only) = self.buffer(scales)?;
        let axis = indices.len().saturating_sub(2);
        for (n, (stride, i)) in strides.iter().zip(indices).enumerate() {
            let mut i = self.index(*i)?;
            if n == axis {
                // Rows of integers per row of scales.
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
        let (Some(row), Some(col)) = (row, col) else { return Err("scales have fewer than two axes".into()) };
        let strides = [self.stride_bytes(&row, elem), self.stride_bytes(&col, elem)];
        Ok(Scaled { base, strides, bits, read_only })
    }
}

/// The scale of a loaded integer, and the left shift that moves its bits to the top.
pub(super) struct Scale {
    factor: Lane,
    shift: Option<Operand>,
}

impl Emit {
    /// The row of integers that contains a step, and its scale.
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
        // The even step is in the lower half of a byte.
        let row = self.make("byte", P::Shr { ty }, s32, &[step.clone(), Operand::Int(1)]);
        let odd = self.make("odd", P::And { ty: PtxType::B32 }, s32, &[step.clone(), Operand::Int(1)]);
        let less = self.mul("less", s32, &odd, &Operand::Int(4));
        let shift = self.sub("shift", s32, &Operand::Int(28), &less);
        (row, Some(Scale { factor, shift: Some(shift) }))
    }

    /// An integer times its scale, rounded once.
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
