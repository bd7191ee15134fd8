//! `counters(x)`: numbers that tell apart all elements of all calls, for random numbers.
//!
//! ```text
//! (site + iteration) * 2^40 + position
//! ```
//!
//! A tensor has at most 2^40 elements. Each call that is inlined has a site of its own, and one for
//! each iteration of the loops over dimensions or layers around it. Entry points count from 0, so
//! the same function draws the same numbers wherever it is called first.

use super::Res;
use super::builder::Builder;
use crate::ir::{Op, Scalar, Type, Value};
use crate::scalar::BinaryOp;
use crate::shape::{Dim, Elem, TensorType};
use crate::source::Span;

/// The number of positions of a site.
const POSITIONS: i64 = 1 << 40;

impl Builder<'_> {
    /// The numbers of the elements of a tensor of this type.
    pub(super) fn numbered(&mut self, ty: TensorType, span: Span) -> Res<Value> {
        let around: Vec<(Value, Dim)> =
            self.loops.iter().filter_map(|l| Some((l.counter?, l.range.clone()?.1))).collect();
        let sites = self.sites.clone();
        let mut site = self.dim_scalar(&sites, Elem::I64, span)?;
        let mut count = Dim::one();
        for (counter, end) in around {
            let scale = self.dim_scalar(&count, Elem::I64, span)?;
            let at = self.counter_value(counter, Elem::I64, span)?;
            let at = self.emit(Op::Binary(BinaryOp::Mul), vec![at, scale], None, span)?;
            site = self.emit(Op::Binary(BinaryOp::Add), vec![site, at], None, span)?;
            count = count.mul(&end);
        }
        self.sites = self.sites.add(&count);
        let positions = self.scalar(Scalar::Int(POSITIONS), Elem::I64, span)?;
        let first = self.emit(Op::Binary(BinaryOp::Mul), vec![site, positions], None, span)?;
        let whole = ty.shape.iter().fold(Dim::one(), |n, extent| n.mul(extent));
        let line = Type::Tensor(TensorType::new(Elem::I64, vec![whole]));
        let line = self.emit(Op::Iota { axis: 0 }, Vec::new(), Some(line), span)?;
        let position = self.reshape(line, ty.shape.clone(), span)?;
        let first = self.broadcast(first, ty.shape, span)?;
        self.emit(Op::Binary(BinaryOp::Add), vec![first, position], None, span)
    }
}
