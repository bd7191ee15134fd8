//! `counters(x)`: numbers that tell apart all elements of all calls and layers, for random numbers.
//!
//! ```text
//! (site + layer) * 2^40 + position
//! ```
//!
//! A tensor has at most 2^40 elements. Each call that is inlined has a site of its own, and one for
//! each layer of the arrays around it. Entry points count from 0, so the same function draws the
//! same numbers wherever it is called first.

use super::Res;
use super::builder::Builder;
use super::frame::Frame;
use crate::ir::{Op, Scalar, Type, Value};
use crate::scalar::BinaryOp;
use crate::shape::{Dim, Elem, TensorType};
use crate::source::Span;

/// The number of positions of a site.
const POSITIONS: i64 = 1 << 40;

impl<'a> Builder<'a> {
    /// The numbers of the elements of a tensor of this type.
    pub(super) fn numbered(&mut self, frame: &Frame<'a>, ty: TensorType, span: Span) -> Res<Value> {
        // The layer that the function belongs to, then the layers of loops around its call.
        let mut around: Vec<(Value, Dim)> = frame.place.iter().flat_map(|p| p.tap_indices.iter().cloned()).collect();
        for each in self.loops.iter().filter(|each| each.over_layers) {
            if let (Some(counter), Some((_, end))) = (each.counter, &each.range)
                && !around.iter().any(|(known, _)| *known == counter)
            {
                around.push((counter, end.clone()));
            }
        }
        let sites = self.sites.clone();
        let mut layer = self.dim_scalar(&sites, Elem::I64, span)?;
        let mut count = Dim::one();
        for (index, length) in around {
            let scale = self.dim_scalar(&count, Elem::I64, span)?;
            let numbers = Type::Tensor(TensorType::new(Elem::I64, vec![length.clone()]));
            let numbers = self.emit(Op::Iota { axis: 0 }, Vec::new(), Some(numbers), span)?;
            let at = self.emit(Op::Index { axis: 0 }, vec![numbers, index], None, span)?;
            let at = self.emit(Op::Binary(BinaryOp::Mul), vec![at, scale], None, span)?;
            layer = self.emit(Op::Binary(BinaryOp::Add), vec![layer, at], None, span)?;
            count = count.mul(&length);
        }
        self.sites = self.sites.add(&count);
        let positions = self.scalar(Scalar::Int(POSITIONS), Elem::I64, span)?;
        let first = self.emit(Op::Binary(BinaryOp::Mul), vec![layer, positions], None, span)?;
        let whole = ty.shape.iter().fold(Dim::one(), |n, extent| n.mul(extent));
        let line = Type::Tensor(TensorType::new(Elem::I64, vec![whole]));
        let line = self.emit(Op::Iota { axis: 0 }, Vec::new(), Some(line), span)?;
        let position = self.reshape(line, ty.shape.clone(), span)?;
        let first = self.broadcast(first, ty.shape, span)?;
        self.emit(Op::Binary(BinaryOp::Add), vec![first, position], None, span)
    }
}
