//! Code shared by all parts of a kernel: run-time dimensions, indices, scalars, buffers, loops.
//!
//! In: single instructions of a body. Out: LLVM IR. An index is an `i64`; a scalar is a [`Lane`] of
//! one; a buffer is the address of its first element and its strides. Tiles are in scratch, or
//! inside a routine.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;
use inkwell::IntPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::values::{IntValue, PointerValue};

use super::emit::{Emit, EmitResult};
use super::lanes::Lane;
use crate::runtime::abi::context;
use crate::shape::{Dim, Elem, Factor};
use crate::tile::{self, Body, BufferType, Extent, InstData, Op, TileType, Type};

/// A stride in elements.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stride<'c> {
    Const(i64),
    Value(IntValue<'c>),
}

/// The LLVM counterpart of a tile IR value.
#[derive(Clone, Debug)]
pub(super) enum CodeValue<'c> {
    Index(IntValue<'c>),
    Scalar(Lane<'c>),
    /// A buffer: address of its first element, strides, element type.
    Buffer {
        base: PointerValue<'c>,
        strides: Vec<Stride<'c>>,
        elem: Elem,
    },
}

/// A kernel under construction.
pub(super) struct Code<'a, 'm, 'c> {
    pub(super) e: Emit<'m, 'c>,
    /// The tile IR being compiled.
    pub(super) body: &'a Body,
    pub(super) symbols: BTreeMap<String, IntValue<'c>>,
    pub(super) values: SecondaryMap<tile::Value, Option<CodeValue<'c>>>,
    /// The runtime's call context.
    pub(super) context: PointerValue<'c>,
    /// The block that returns after an error.
    pub(super) stop: BasicBlock<'c>,
}

impl<'c> Code<'_, '_, 'c> {
    pub(super) fn index(&self, v: tile::Value) -> EmitResult<IntValue<'c>> {
        match &self.values[v] {
            Some(CodeValue::Index(x)) => Ok(*x),
            _ => Err(format!("{v} is not an index").into()),
        }
    }

    pub(super) fn scalar(&self, v: tile::Value) -> EmitResult<Lane<'c>> {
        match &self.values[v] {
            Some(CodeValue::Scalar(x)) => Ok(*x),
            _ => Err(format!("{v} is not a scalar").into()),
        }
    }

    /// A buffer: address of its first element, strides, element type.
    pub(super) fn buffer(&self, v: tile::Value) -> EmitResult<(PointerValue<'c>, Vec<Stride<'c>>, Elem)> {
        match &self.values[v] {
            Some(CodeValue::Buffer { base, strides, elem }) => Ok((*base, strides.clone(), *elem)),
            _ => Err(format!("{v} is not a buffer").into()),
        }
    }

    pub(super) fn tile(&self, v: tile::Value) -> EmitResult<TileType> {
        Ok(self.body.ty(v).tile().cloned().ok_or_else(|| format!("{v} is not a tile"))?)
    }

    /// Evaluates a number of rows or columns.
    pub(super) fn extent(&self, e: Extent) -> EmitResult<IntValue<'c>> {
        match e {
            Extent::Static(n) => Ok(self.e.int(n)),
            Extent::Bounded { value, .. } => self.index(value),
        }
    }

    /// Evaluates a dimension.
    pub(super) fn dim(&self, d: &Dim) -> EmitResult<IntValue<'c>> {
        if let Some(n) = d.as_const() {
            return Ok(self.e.int(n));
        }
        let (terms, (divisor, factors)) = d.as_fraction();
        let mut sum = self.e.int(0);
        for (coefficient, factors) in &terms {
            sum = self.e.b.build_int_add(sum, self.product(*coefficient, factors)?, "")?;
        }
        if divisor == 1 && factors.is_empty() {
            return Ok(sum);
        }
        let divisor = self.product(divisor, &factors)?;
        self.divide_exactly(sum, divisor)
    }

    /// A division known to be exact. By zero (a dimension of size 0) it yields zero and does not
    /// trap.
    fn divide_exactly(&self, x: IntValue<'c>, y: IntValue<'c>) -> EmitResult<IntValue<'c>> {
        let b = &self.e.b;
        let zero = self.e.int(0);
        let is_zero = b.build_int_compare(IntPredicate::EQ, y, zero, "")?;
        let safe = b.build_select(is_zero, self.e.int(1), y, "")?.into_int_value();
        let q = b.build_int_signed_div(x, safe, "")?;
        Ok(b.build_select(is_zero, zero, q, "")?.into_int_value())
    }

    /// Division that rounds down. The entry point has checked that the divisor is at least 1; for
    /// any other divisor the result is unspecified, but it does not trap.
    fn divide_rounded(&self, x: IntValue<'c>, y: IntValue<'c>) -> EmitResult<IntValue<'c>> {
        let b = &self.e.b;
        let one = self.e.int(1);
        let is_positive = b.build_int_compare(IntPredicate::SGT, y, self.e.int(0), "")?;
        let y = b.build_select(is_positive, y, one, "")?.into_int_value();
        let q = b.build_int_signed_div(x, y, "")?;
        let back = b.build_int_mul(q, y, "")?;
        let below = b.build_int_compare(IntPredicate::SLT, x, back, "")?;
        let less = b.build_int_sub(q, one, "")?;
        Ok(b.build_select(below, less, q, "")?.into_int_value())
    }

    fn product(&self, coefficient: i128, factors: &[(Factor, u32)]) -> EmitResult<IntValue<'c>> {
        let n = i64::try_from(coefficient).map_err(|_| "a coefficient of a dimension is too large")?;
        let mut out = self.e.int(n);
        for (f, exponent) in factors {
            let x = match f {
                Factor::Symbol(s) => {
                    *self.symbols.get(&**s).ok_or_else(|| format!("the dimension {s} is not known"))?
                }
                Factor::Quotient(a, b) => self.divide_exactly(self.dim(a)?, self.dim(b)?)?,
                Factor::Floor(a, b) => self.divide_rounded(self.dim(a)?, self.dim(b)?)?,
                Factor::Min(all) | Factor::Max(all) => {
                    let order = if matches!(f, Factor::Min(_)) { IntPredicate::SLT } else { IntPredicate::SGT };
                    let mut found: Option<IntValue<'c>> = None;
                    for d in all {
                        let d = self.dim(d)?;
                        found = Some(match found {
                            None => d,
                            Some(x) => {
                                let first = self.e.b.build_int_compare(order, x, d, "")?;
                                self.e.b.build_select(first, x, d, "")?.into_int_value()
                            }
                        });
                    }
                    found.ok_or("a `min` or `max` without dimensions")?
                }
            };
            for _ in 0..*exponent {
                out = self.e.b.build_int_mul(out, x, "")?;
            }
        }
        Ok(out)
    }

    /// A buffer whose first element is at `base`.
    pub(super) fn make_buffer(&self, base: PointerValue<'c>, ty: &BufferType) -> EmitResult<CodeValue<'c>> {
        let mut strides = Vec::new();
        for d in &ty.strides {
            strides.push(match d.as_const() {
                Some(n) => Stride::Const(n),
                None => Stride::Value(self.dim(d)?),
            });
        }
        Ok(CodeValue::Buffer { base, strides, elem: ty.elem })
    }

    /// Converts a stride to bytes.
    pub(super) fn stride_bytes(&self, s: Stride<'c>, elem: Elem) -> EmitResult<IntValue<'c>> {
        let size = i64::try_from(elem.size()).unwrap_or(1);
        match s {
            Stride::Const(n) => Ok(self.e.int(n.wrapping_mul(size))),
            Stride::Value(v) => Ok(self.e.b.build_int_mul(v, self.e.int(size), "")?),
        }
    }

    /// The address `from + n * bytes`.
    pub(super) fn steps(
        &self,
        from: PointerValue<'c>,
        n: IntValue<'c>,
        bytes: IntValue<'c>,
    ) -> EmitResult<PointerValue<'c>> {
        self.e.offset(from, self.e.b.build_int_mul(n, bytes, "")?)
    }

    /// The address of an element.
    pub(super) fn address(&self, buffer: tile::Value, indices: &[tile::Value]) -> EmitResult<PointerValue<'c>> {
        let (base, strides, elem) = self.buffer(buffer)?;
        if strides.len() != indices.len() {
            return Err("a buffer is indexed with the wrong number of indices".into());
        }
        let mut at = base;
        for (s, i) in strides.into_iter().zip(indices) {
            if !matches!(s, Stride::Const(0)) {
                at = self.steps(at, self.index(*i)?, self.stride_bytes(s, elem)?)?;
            }
        }
        Ok(at)
    }

    /// An instruction on indices and scalars. False if it is another kind.
    pub(super) fn simple(&mut self, data: &InstData) -> EmitResult<bool> {
        let operand = |i: usize| data.operands.get(i).copied().ok_or("an operand is missing");
        let Some(result) = data.result else { return Ok(false) };
        let ty = self.body.ty(result).clone();
        let e = &self.e;
        let value = match (&data.op, &ty) {
            (Op::Const(s), Type::Index) => CodeValue::Index(e.int(s.as_i64())),
            (Op::Const(s), Type::Scalar(elem)) => CodeValue::Scalar(e.constant(*s, *elem, 1)),
            (Op::DimValue(d), Type::Index) => CodeValue::Index(self.dim(d)?),
            (Op::DimValue(d), Type::Scalar(elem)) => {
                CodeValue::Scalar(e.lane_cast(e.one(self.dim(d)?, Elem::I64)?, *elem)?)
            }
            (Op::Unary(op), Type::Scalar(_)) => CodeValue::Scalar(e.lane_unary(*op, self.scalar(operand(0)?)?)?),
            (Op::Narrow { elem }, Type::Scalar(_)) => {
                CodeValue::Scalar(e.lane_narrow(self.scalar(operand(0)?)?, *elem)?)
            }
            (Op::Binary(op), Type::Index) => {
                CodeValue::Index(e.index_binary(*op, self.index(operand(0)?)?, self.index(operand(1)?)?)?)
            }
            (Op::Binary(op), Type::Scalar(_)) => {
                CodeValue::Scalar(e.lane_binary(*op, self.scalar(operand(0)?)?, self.scalar(operand(1)?)?)?)
            }
            (Op::Compare(op), Type::Scalar(_)) => {
                CodeValue::Scalar(e.lane_compare(*op, self.as_lane(operand(0)?)?, self.as_lane(operand(1)?)?)?)
            }
            (Op::Select, Type::Scalar(_) | Type::Index) => {
                let (a, b) = (self.as_lane(operand(1)?)?, self.as_lane(operand(2)?)?);
                let y = e.lane_select(self.scalar(operand(0)?)?, a, b)?;
                if ty == Type::Index { CodeValue::Index(e.first_int(y)?) } else { CodeValue::Scalar(y) }
            }
            (Op::Cast, Type::Index) => {
                let y = e.lane_cast(self.as_lane(operand(0)?)?, Elem::I64)?;
                CodeValue::Index(e.first_int(y)?)
            }
            (Op::Cast, Type::Scalar(elem)) => CodeValue::Scalar(e.lane_cast(self.as_lane(operand(0)?)?, *elem)?),
            (Op::LoadScalar, Type::Scalar(_)) => {
                let buffer = operand(0)?;
                let at = self.address(buffer, data.operands.get(1..).unwrap_or_default())?;
                let (_, _, elem) = self.buffer(buffer)?;
                CodeValue::Scalar(e.load_memory(elem, at, None, 1, None)?)
            }
            (Op::CheckIndex { site }, Type::Index) => {
                let (i, bound) = (self.index(operand(0)?)?, self.index(operand(1)?)?);
                self.check(i, bound, *site)?;
                CodeValue::Index(i)
            }
            _ => return Ok(false),
        };
        self.values[result] = Some(value);
        Ok(true)
    }

    /// An index or a scalar as a single lane.
    fn as_lane(&self, v: tile::Value) -> EmitResult<Lane<'c>> {
        match &self.values[v] {
            Some(CodeValue::Index(value)) => self.e.one(*value, Elem::I64),
            Some(CodeValue::Scalar(x)) => Ok(*x),
            _ => Err(format!("{v} is neither index nor scalar").into()),
        }
    }

    /// Reports an index out of range and returns from the function.
    fn check(&self, index: IntValue<'c>, bound: IntValue<'c>, site: u32) -> EmitResult<()> {
        let e = &self.e;
        // A negative bound, compared as unsigned, would accept everything.
        let some = e.b.build_int_compare(IntPredicate::SGT, bound, e.int(0), "")?;
        let below = e.b.build_int_compare(IntPredicate::ULT, index, bound, "")?;
        let inside = e.b.build_and(some, below, "")?;
        let (good, bad) = (e.block(), e.block());
        e.b.build_conditional_branch(inside, good, bad)?;
        e.b.position_at_end(bad);
        let place = e.offset(self.context, e.int(i64::from(context::FAIL)))?;
        let fail = e.b.build_load(e.pointer(), place, "")?.into_pointer_value();
        let i64s = e.cx.i64_type().into();
        let ty = e.cx.void_type().fn_type(&[e.pointer().into(), i64s, i64s, i64s, i64s], false);
        let args = [self.context.into(), e.int(i64::from(site)).into(), index.into(), bound.into(), e.int(0).into()];
        e.b.build_indirect_call(ty, fail, &args, "")?;
        e.b.build_unconditional_branch(self.stop)?;
        e.b.position_at_end(good);
        Ok(())
    }

    /// A loop over `start`, `start + step`, .. while less than `end`; returns the first value that
    /// is not.
    pub(super) fn counted(
        &mut self,
        start: IntValue<'c>,
        end: IntValue<'c>,
        step: i64,
        body: impl FnOnce(&mut Self, IntValue<'c>) -> EmitResult<()>,
    ) -> EmitResult<IntValue<'c>> {
        let (before, head, inner, done) = (self.e.here()?, self.e.block(), self.e.block(), self.e.block());
        self.e.b.build_unconditional_branch(head)?;
        self.e.b.position_at_end(head);
        let phi = self.e.b.build_phi(self.e.cx.i64_type(), "")?;
        let now = phi.as_basic_value().into_int_value();
        self.e.b.build_conditional_branch(self.e.less(now, end)?, inner, done)?;
        self.e.b.position_at_end(inner);
        body(self, now)?;
        let next = self.e.b.build_int_add(now, self.e.int(step), "")?;
        phi.add_incoming(&[(&start, before), (&next, self.e.here()?)]);
        self.e.b.build_unconditional_branch(head)?;
        self.e.b.position_at_end(done);
        Ok(now)
    }

    /// Emits code that is executed only if a condition holds.
    pub(super) fn when(
        &mut self,
        condition: IntValue<'c>,
        body: impl FnOnce(&mut Self) -> EmitResult<()>,
    ) -> EmitResult<()> {
        let (inner, done) = (self.e.block(), self.e.block());
        self.e.b.build_conditional_branch(condition, inner, done)?;
        self.e.b.position_at_end(inner);
        body(self)?;
        self.e.b.build_unconditional_branch(done)?;
        self.e.b.position_at_end(done);
        Ok(())
    }
}
