//! A `run`: its vector IR routine, translated to LLVM IR in place.
//!
//! In: a run of a scheduled kernel. Out: LLVM IR. Loops, unrolling, masks, accumulators and the
//! order of reductions are decided in `lowering::vector`; here is one case for each operation of a
//! routine. Its parameters are values of the kernel, its blocks become blocks of the kernel's
//! function, their arguments phis, and its return a jump to the rest of the kernel. LLVM supports
//! masked accesses of every width, gathers and vectors of `i64` directly.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;
use inkwell::FloatPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::types::BasicTypeEnum;
use inkwell::values::{BasicValue, BasicValueEnum, IntValue, PhiValue, PointerValue};

use super::code::Code;
use super::emit::{Emit, EmitResult};
use super::lanes::Lane;
use crate::lowering::vector::{Lowered, Shape, Word, lower};
use crate::scalar::{BinaryOp, CmpOp};
use crate::shape::Elem;
use crate::ssa::{Block, BlockCall, Value};
use crate::tile::{Extent, Inst};
use crate::vector::routine::{AddressMode, Body, InstData, Op, Terminator, Type};

/// The LLVM counterpart of a routine's value.
#[derive(Clone, Copy)]
enum ValueLocation<'c> {
    /// Lanes; a scalar is one.
    Lanes(Lane<'c>),
    /// The result of comparing indices.
    Test(IntValue<'c>),
    Index(IntValue<'c>),
    Address(PointerValue<'c>),
}

impl<'c> Code<'_, '_, 'c> {
    pub(super) fn run(&self, extents: (Extent, Extent), insts: &[Inst], scratch: PointerValue<'c>) -> EmitResult<()> {
        // LLVM legalises masked accesses itself.
        let shape = Shape { features: self.e.features(), masks: true, ..Shape::for_cpu(self.e.level) };
        let lowered = lower("run", self.body, extents, insts, shape).map_err(|e| format!("a run: {e}"))?;
        let Lowered { routine, words, .. } = lowered;
        let mut values = SecondaryMap::new();
        for ((v, _), word) in routine.params.iter().zip(&words) {
            values[*v] = Some(self.word(word, scratch)?);
        }
        let (blocks, phis) = (BTreeMap::new(), SecondaryMap::new());
        Print { e: &self.e, body: &routine.body, values, blocks, phis }.routine()
    }

    /// Computes an argument of the routine.
    fn word(&self, word: &Word, scratch: PointerValue<'c>) -> EmitResult<ValueLocation<'c>> {
        Ok(match word {
            Word::Index(v) => ValueLocation::Index(self.index(*v)?),
            Word::Scalar(v) => ValueLocation::Lanes(self.scalar(*v)?),
            Word::Address { buffer, indices } => ValueLocation::Address(self.address(*buffer, indices)?),
            Word::StrideBytes { buffer, axis } => {
                let (_, strides, elem) = self.buffer(*buffer)?;
                let stride = strides.get(*axis).ok_or("a stride along an unknown axis")?;
                ValueLocation::Index(self.stride_bytes(*stride, elem)?)
            }
            Word::Scratch => ValueLocation::Address(scratch),
        })
    }
}

/// State of the translation of one routine.
struct Print<'p, 'm, 'c> {
    e: &'p Emit<'m, 'c>,
    body: &'p Body,
    values: SecondaryMap<Value, Option<ValueLocation<'c>>>,
    blocks: BTreeMap<Block, BasicBlock<'c>>,
    /// Phis of block arguments.
    phis: SecondaryMap<Value, Option<PhiValue<'c>>>,
}

impl<'c> Print<'_, '_, 'c> {
    /// Translates the routine, starting in the current block, and continues in a new one.
    fn routine(&mut self) -> EmitResult<()> {
        let (body, entry, next) = (self.body, self.e.here()?, self.e.block());
        for b in body.layout.iter().skip(1) {
            let here = self.e.block();
            self.blocks.insert(*b, here);
            self.e.b.position_at_end(here);
            for v in &body.block(*b).args {
                let phi = self.e.b.build_phi(self.type_of(*body.ty(*v)), "")?;
                self.phis[*v] = Some(phi);
                self.values[*v] = Some(self.argument(*v, phi));
            }
        }
        for (n, b) in body.layout.iter().enumerate() {
            self.e.b.position_at_end(if n == 0 { entry } else { self.target(*b)? });
            for i in &body.block(*b).insts {
                let inst = body.inst(*i);
                let held = self.instruction(inst)?;
                if let Some(v) = inst.result {
                    self.values[v] = held;
                }
            }
            match &body.block(*b).terminator {
                Terminator::Return(_) => self.e.b.build_unconditional_branch(next)?,
                Terminator::Br(call) => {
                    self.give(call)?;
                    self.e.b.build_unconditional_branch(self.target(call.block)?)?
                }
                Terminator::BrIf { condition, then, otherwise } => {
                    let condition = match self.held(*condition)? {
                        ValueLocation::Test(x) => x,
                        _ => self.e.first_int(self.lanes(*condition)?)?,
                    };
                    self.give(then)?;
                    self.give(otherwise)?;
                    let (then, otherwise) = (self.target(then.block)?, self.target(otherwise.block)?);
                    self.e.b.build_conditional_branch(condition, then, otherwise)?
                }
                Terminator::Roles(roles) => match *roles {},
            };
        }
        self.e.b.position_at_end(next);
        Ok(())
    }

    fn target(&self, block: Block) -> EmitResult<BasicBlock<'c>> {
        Ok(*self.blocks.get(&block).ok_or("a block without a counterpart")?)
    }

    /// Adds the arguments of a jump from the current block to the phis.
    fn give(&self, call: &BlockCall) -> EmitResult<()> {
        let from = self.e.here()?;
        for (arg, v) in self.body.block(call.block).args.iter().zip(&call.args) {
            let phi = self.phis[*arg].ok_or("an argument without a phi")?;
            let x: BasicValueEnum<'c> = match self.held(*v)? {
                ValueLocation::Index(x) => x.into(),
                ValueLocation::Address(x) => x.into(),
                ValueLocation::Lanes(_) | ValueLocation::Test(_) => self.lanes(*v)?.value.into(),
            };
            phi.add_incoming(&[(&x as &dyn BasicValue<'c>, from)]);
        }
        Ok(())
    }

    fn type_of(&self, ty: Type) -> BasicTypeEnum<'c> {
        match ty {
            Type::Lanes(elem, n) => self.e.lanes_of(elem, n).into(),
            Type::Index => self.e.cx.i64_type().into(),
            Type::Address => self.e.pointer().into(),
        }
    }

    fn argument(&self, v: Value, phi: PhiValue<'c>) -> ValueLocation<'c> {
        let x = phi.as_basic_value();
        match *self.body.ty(v) {
            Type::Lanes(elem, _) => ValueLocation::Lanes(Lane { value: x.into_vector_value(), elem }),
            Type::Index => ValueLocation::Index(x.into_int_value()),
            Type::Address => ValueLocation::Address(x.into_pointer_value()),
        }
    }

    fn held(&self, v: Value) -> EmitResult<ValueLocation<'c>> {
        Ok(self.values[v].ok_or("a value is used before its definition")?)
    }

    fn lanes(&self, v: Value) -> EmitResult<Lane<'c>> {
        match self.held(v)? {
            ValueLocation::Lanes(x) => Ok(x),
            ValueLocation::Test(x) => self.e.one(x, Elem::Bool),
            ValueLocation::Index(_) | ValueLocation::Address(_) => Err("a value is not a vector".into()),
        }
    }

    fn index(&self, v: Value) -> EmitResult<IntValue<'c>> {
        match self.held(v)? {
            ValueLocation::Index(x) => Ok(x),
            ValueLocation::Lanes(_) | ValueLocation::Test(_) | ValueLocation::Address(_) => {
                Err("a value is not an index".into())
            }
        }
    }

    fn address(&self, v: Value) -> EmitResult<PointerValue<'c>> {
        match self.held(v)? {
            ValueLocation::Address(x) => Ok(x),
            ValueLocation::Lanes(_) | ValueLocation::Test(_) | ValueLocation::Index(_) => {
                Err("a value is not an address".into())
            }
        }
    }

    /// Splits off an addressing mode: address, remaining operands.
    fn place<'o>(&self, place: AddressMode, operands: &'o [Value]) -> EmitResult<(PointerValue<'c>, &'o [Value])> {
        let (of_place, rest) = operands.split_at_checked(place.operands()).ok_or("a place without an address")?;
        let e = self.e;
        let mut at = self.address(*of_place.first().ok_or("a place without an address")?)?;
        if let Some(index) = of_place.get(1) {
            let scaled = e.b.build_int_mul(self.index(*index)?, e.int(i64::from(place.scale)), "")?;
            at = e.offset(at, scaled)?;
        }
        if place.offset != 0 {
            at = e.offset(at, e.int(i64::from(place.offset)))?;
        }
        Ok((at, rest))
    }

    /// The mask of the first `count` lanes.
    fn lanes_below(&self, count: IntValue<'c>, n: u32) -> EmitResult<Lane<'c>> {
        // In 32 bits, like the masked lanes; `count` is at most `n`.
        let e = self.e;
        let count = e.index_binary(BinaryOp::Min, count, e.int(i64::from(n)))?;
        let count = e.index_binary(BinaryOp::Max, count, e.int(0))?;
        let count = e.spread(e.lane_cast(e.one(count, Elem::I64)?, Elem::I32)?, n)?;
        e.lane_compare(CmpOp::Lt, e.counting(Elem::I32, n), count)
    }

    /// The mask of the optional count, the last operand.
    fn counted(&self, count: &[Value], n: u32) -> EmitResult<Option<Lane<'c>>> {
        count.first().map(|count| self.lanes_below(self.index(*count)?, n)).transpose()
    }

    fn instruction(&self, inst: &InstData) -> EmitResult<Option<ValueLocation<'c>>> {
        let e = self.e;
        let ty = inst.result.map(|v| *self.body.ty(v));
        let lanes = match ty {
            Some(Type::Lanes(_, n)) => n,
            _ => 1,
        };
        let held = match (&inst.op, inst.operands.as_slice()) {
            (Op::Const(s), []) if ty == Some(Type::Index) => ValueLocation::Index(e.int(s.as_i64())),
            (Op::Binary(BinaryOp::Add), [a, b]) if ty == Some(Type::Address) => {
                ValueLocation::Address(e.offset(self.address(*a)?, self.index(*b)?)?)
            }
            (Op::Binary(op), [a, b]) if ty == Some(Type::Index) => {
                ValueLocation::Index(e.index_binary(*op, self.index(*a)?, self.index(*b)?)?)
            }
            (Op::Compare(op), [a, b]) if *self.body.ty(*a) == Type::Index => {
                ValueLocation::Test(e.compare_ints(*op, self.index(*a)?, self.index(*b)?)?)
            }
            (Op::Address(place), operands) => ValueLocation::Address(self.place(*place, operands)?.0),
            (Op::Store { elem, place, .. }, operands) => {
                let (at, rest) = self.place(*place, operands)?;
                let [x, mask @ ..] = rest else { return Err("a store without a value".into()) };
                let mask = mask.first().map(|m| self.lanes(*m)).transpose()?;
                e.store_memory(*elem, self.lanes(*x)?, at, None, mask.map(|m| m.value))?;
                return Ok(None);
            }
            (Op::StoreApart(elem), [start, step, x, count @ ..]) => {
                let x = self.lanes(*x)?;
                let mask = self.counted(count, x.count())?;
                let (at, step) = (self.address(*start)?, self.index(*step)?);
                e.store_memory(*elem, x, at, Some(step), mask.map(|m| m.value))?;
                return Ok(None);
            }
            (Op::Prefetch(place), operands) => {
                e.prefetch(self.place(*place, operands)?.0)?;
                return Ok(None);
            }
            (op, operands) => {
                let elem = ty.and_then(Type::elem).ok_or_else(|| format!("`{op}` is not supported"))?;
                ValueLocation::Lanes(self.on_lanes(op, operands, elem, lanes)?)
            }
        };
        Ok(Some(held))
    }

    /// Operations with `n` lanes of type `to` as the result.
    fn on_lanes(&self, op: &Op, operands: &[Value], to: Elem, n: u32) -> EmitResult<Lane<'c>> {
        let e = self.e;
        match (op, operands) {
            (Op::Load { elem, place, .. }, _) => {
                let (at, mask) = self.place(*place, operands)?;
                let mask = mask.first().map(|m| self.lanes(*m)).transpose()?;
                return e.load_memory(*elem, at, None, n, mask.map(|m| m.value));
            }
            (Op::LoadApart(elem), [start, step, count @ ..]) => {
                let mask = self.counted(count, n)?;
                let (at, step) = (self.address(*start)?, self.index(*step)?);
                return e.load_memory(*elem, at, Some(step), n, mask.map(|m| m.value));
            }
            (Op::LanesBelow, [count]) => return self.lanes_below(self.index(*count)?, n),
            (Op::Splat, [x]) if *self.body.ty(*x) == Type::Index => {
                let one = e.one(self.index(*x)?, Elem::I64)?;
                return e.spread(e.lane_cast(one, to)?, n);
            }
            _ => {}
        }
        let operands = operands.iter().map(|v| self.lanes(*v)).collect::<EmitResult<Vec<Lane<'c>>>>()?;
        let lane = |value, elem| Lane { value, elem };
        let floats = |predicate, x: &Lane<'c>, y: &Lane<'c>| -> EmitResult<Lane<'c>> {
            Ok(lane(e.b.build_float_compare(predicate, x.value, y.value, "")?, Elem::Bool))
        };
        Ok(match (op, operands.as_slice()) {
            (Op::Const(s), []) => e.constant(*s, to, n),
            (Op::Lanes, []) => e.counting(Elem::I32, n),
            (Op::Unary(op), [x]) => e.lane_unary(*op, *x)?,
            (Op::Binary(op), [x, y]) => e.lane_binary(*op, *x, *y)?,
            (Op::Compare(op), [x, y]) => e.lane_compare(*op, *x, *y)?,
            (Op::Select, [condition, x, y]) => e.lane_select(*condition, *x, *y)?,
            (Op::Cast, [x]) => e.lane_cast(*x, to)?,
            (Op::Narrow(elem), [x]) => e.lane_narrow(*x, *elem)?,
            (Op::BitAnd, [x, y]) => lane(e.b.build_and(x.value, y.value, "")?, to),
            (Op::BitOr, [x, y]) => lane(e.b.build_or(x.value, y.value, "")?, to),
            (Op::MaxOrSecond, [x, y]) => e.lane_select(floats(FloatPredicate::OGT, x, y)?, *x, *y)?,
            (Op::MinOrSecond, [x, y]) => e.lane_select(floats(FloatPredicate::OLT, x, y)?, *x, *y)?,
            (Op::Unordered, [x, y]) => floats(FloatPredicate::UNO, x, y)?,
            (Op::Beats, [x, y]) if x.elem == Elem::F32 => {
                let greater = floats(FloatPredicate::OGT, x, y)?;
                let (nan, number) = (floats(FloatPredicate::UNO, x, x)?, floats(FloatPredicate::ORD, y, y)?);
                let first_nan = e.lane_binary(BinaryOp::And, nan, number)?;
                e.lane_binary(BinaryOp::Or, greater, first_nan)?
            }
            (Op::Beats, [x, y]) => e.lane_compare(CmpOp::Gt, *x, *y)?,
            (Op::Splat, [x]) => e.spread(*x, n)?,
            (Op::MaskBits, [x]) => e.mask_bits(*x)?,
            (Op::MaskOfBits, [x]) => e.mask_of_bits(*x)?,
            (Op::Reduce(kind), [x]) => e.fold(kind.kind(), *x)?,
            (Op::First, [x]) => lane(e.shuffle(x.value, x.value, &[0])?, to),
            (Op::Extract(n), [x]) => lane(e.shuffle(x.value, x.value, &[*n])?, to),
            (Op::Build, parts) => {
                let mut all = e.lanes_of(to, n).get_poison();
                for (at, x) in (0..).zip(parts) {
                    all = e.b.build_insert_element(all, e.first(*x)?, e.int(at), "")?;
                }
                lane(all, to)
            }
            (Op::Exchange(distance), [x]) => {
                let lanes: Vec<u32> = (0..n).map(|lane| lane ^ distance).collect();
                lane(e.shuffle(x.value, x.value, &lanes)?, to)
            }
            (op, _) => return Err(format!("`{op}` is not supported").into()),
        })
    }
}
