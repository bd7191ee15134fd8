//! New operations of a gradient, at the end of the current block.
//!
//! In: values. Out: values of the types that the shape rules of the operations give. It knows no
//! derivatives.

use super::{Refusal, Res};
use crate::ir::{Block, Function, Loc, Op, Scalar, Type, Value};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use crate::shape::{Dim, Elem, TensorType};

/// A function, and where new instructions go.
pub(super) struct Emitter<'f> {
    pub f: &'f mut Function,
    pub block: Block,
    /// The location of the operation whose gradient is computed.
    pub loc: Loc,
    /// The blocks that were added.
    pub made: Vec<Block>,
}

impl Emitter<'_> {
    pub(super) fn refuse<T>(&self, message: impl Into<String>) -> Res<T> {
        Err(Refusal::new(self.loc, message))
    }

    fn made(&self, made: Result<Option<Value>, String>) -> Res<Value> {
        match made {
            Ok(Some(v)) => Ok(v),
            Ok(None) => self.refuse("a gradient needs a value of an operation that has none"),
            Err(message) => self.refuse(format!("the gradient of this operation has no type: {message}")),
        }
    }

    pub(super) fn op(&mut self, op: Op, operands: &[Value]) -> Res<Value> {
        let made = self.f.append(self.block, op, operands.to_vec(), None, self.loc);
        self.made(made)
    }

    pub(super) fn typed(&mut self, op: Op, operands: &[Value], ty: TensorType) -> Res<Value> {
        let made = self.f.append(self.block, op, operands.to_vec(), Some(Type::Tensor(ty)), self.loc);
        self.made(made)
    }

    /// The type of a tensor.
    pub(super) fn ty(&self, v: Value) -> Res<TensorType> {
        match self.f.tensor(v) {
            Some(t) => Ok(t.clone()),
            None => self.refuse("a gradient of an index"),
        }
    }

    pub(super) fn splat(&mut self, x: f64, ty: TensorType) -> Res<Value> {
        let scalar = match ty.elem {
            Elem::Bool => Scalar::Bool(x != 0.0),
            Elem::I8 | Elem::I32 | Elem::I64 => Scalar::Int(x as i64),
            Elem::F32 | Elem::BF16 | Elem::F16 => Scalar::Float(x),
        };
        self.typed(Op::Const(scalar), &[], ty)
    }

    pub(super) fn number(&mut self, x: f64, elem: Elem) -> Res<Value> {
        self.splat(x, TensorType::scalar(elem))
    }

    /// Zeros of a value's type.
    pub(super) fn zeros_like(&mut self, v: Value) -> Res<Value> {
        let ty = self.ty(v)?;
        self.splat(0.0, ty)
    }

    /// An index with the value of a dimension.
    pub(super) fn index(&mut self, d: &Dim) -> Res<Value> {
        let op = match d.as_const() {
            Some(n) => Op::Const(Scalar::Int(n)),
            None => Op::DimValue(d.clone()),
        };
        let made = self.f.append(self.block, op, Vec::new(), Some(Type::Index), self.loc);
        self.made(made)
    }

    pub(super) fn unary(&mut self, op: UnaryOp, x: Value) -> Res<Value> {
        self.op(Op::Unary(op), &[x])
    }

    pub(super) fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Res<Value> {
        self.op(Op::Binary(op), &[a, b])
    }

    pub(super) fn compare(&mut self, op: CmpOp, a: Value, b: Value) -> Res<Value> {
        self.op(Op::Compare(op), &[a, b])
    }

    pub(super) fn select(&mut self, condition: Value, a: Value, b: Value) -> Res<Value> {
        self.op(Op::Where, &[condition, a, b])
    }

    pub(super) fn cast(&mut self, x: Value, elem: Elem) -> Res<Value> {
        let ty = self.ty(x)?;
        if ty.elem == elem { Ok(x) } else { self.typed(Op::Cast { elem }, &[x], ty.with_elem(elem)) }
    }

    pub(super) fn reshape(&mut self, x: Value, shape: Vec<Dim>) -> Res<Value> {
        let ty = self.ty(x)?;
        if ty.shape == shape { Ok(x) } else { self.typed(Op::Reshape, &[x], TensorType::new(ty.elem, shape)) }
    }

    pub(super) fn broadcast(&mut self, x: Value, shape: Vec<Dim>) -> Res<Value> {
        let ty = self.ty(x)?;
        if ty.shape == shape { Ok(x) } else { self.typed(Op::Broadcast, &[x], TensorType::new(ty.elem, shape)) }
    }

    pub(super) fn transpose(&mut self, x: Value, perm: Vec<usize>) -> Res<Value> {
        if perm.is_sorted() { Ok(x) } else { self.op(Op::Transpose { perm }, &[x]) }
    }

    /// The last two axes exchanged.
    pub(super) fn transposed(&mut self, x: Value) -> Res<Value> {
        let rank = self.ty(x)?.rank();
        self.transpose(x, super::super::rewrite::swap_last(rank))
    }

    /// Elements `start..stop` of an axis.
    pub(super) fn slice(&mut self, x: Value, axis: usize, start: &Dim, stop: &Dim) -> Res<Value> {
        self.op(Op::Slice { axis, start: start.clone(), stop: stop.clone() }, &[x])
    }

    pub(super) fn sum(&mut self, x: Value, axes: Vec<usize>, keep: bool) -> Res<Value> {
        if axes.is_empty() { Ok(x) } else { self.op(Op::Reduce { kind: ReduceKind::Sum, axes, keep }, &[x]) }
    }

    /// The sum over the axes along which a tensor of this shape was broadcast.
    pub(super) fn sum_to(&mut self, x: Value, shape: &[Dim]) -> Res<Value> {
        let from = self.ty(x)?.shape;
        let lead = from.len().saturating_sub(shape.len());
        let grown = |i: &usize| *i < lead || (shape[*i - lead] == Dim::one() && from[*i] != Dim::one());
        let axes: Vec<usize> = (0..from.len()).filter(grown).collect();
        let summed = self.sum(x, axes, false)?;
        self.reshape(summed, shape.to_vec())
    }

    /// The result of a reduction, or its gradient, with the reduced axes, of extent 1.
    pub(super) fn kept(&mut self, x: Value, of: &TensorType, axes: &[usize]) -> Res<Value> {
        let shape = of.shape.iter().enumerate().map(|(i, d)| if axes.contains(&i) { Dim::one() } else { d.clone() });
        self.reshape(x, shape.collect())
    }

    /// A new block, and its arguments.
    pub(super) fn add_block(&mut self, args: &[Value]) -> (Block, Vec<Value>) {
        let block = self.f.add_block();
        self.made.push(block);
        let types: Vec<Type> = args.iter().map(|v| self.f.ty(*v).clone()).collect();
        let args = types.into_iter().map(|ty| self.f.add_block_arg(block, ty)).collect();
        (block, args)
    }
}
