//! Legalisation: replaces operations that a machine does not support well.
//!
//! In: a routine, and the properties of a machine. Out: an equivalent routine.
//!
//! ```text
//!   %5 = lanes_below %4                         : boolx8
//!   %6 = load %0 + 2*%1, elem=bf16, mask=%5     : f32x8
//! ->
//!   %5 = lanes_below %4                         : boolx8
//!   %6 = address %0 + 2*%1                      : address
//!   %7 = load_apart %6, %2, elem=bf16, count=%4 : f32x8       // %2 = const 2
//! ```

#![warn(clippy::wildcard_enum_match_arm, reason = "a new operation is reported as an error here")]

use std::collections::BTreeMap;

use super::op::Access;
use super::{AddressMode, Body, Op, Routine, Type};
use crate::scalar::{BinaryOp, Scalar};
use crate::shape::Elem;
use crate::source::Loc;
use crate::ssa::{Block, Inst, Value};

/// Replaces masked accesses of 8 and 16 bits, and stores of narrow elements, by strided accesses:
/// AVX2 has neither such masks nor narrowing instructions (except for `f16`). The mask must come
/// from `lanes_below`; other masks are kept, and rejected by the back ends of such machines.
/// `made`: called with each new instruction and the one that it replaces.
pub fn part_narrow_accesses(routine: &mut Routine, mut made: impl FnMut(Inst, Inst)) {
    for b in routine.body.layout.clone() {
        for i in routine.body.block(b).insts.clone() {
            let data = routine.body.inst(i);
            let Some(Access { elem, is_store, place: Some(place), masked }) = data.op.access() else { continue };
            let operands = data.operands.clone();
            let (of_place, rest) = operands.split_at(place.operands().min(operands.len()));
            let lanes = rest.first().filter(|_| is_store).or(data.result.as_ref());
            let is_vector = lanes.is_some_and(|v| matches!(routine.body.ty(*v), Type::Lanes(_, n) if *n > 1));
            let unfit = elem.size() < 4 && is_vector && (masked || is_store && elem != Elem::F16);
            let count = rest.last().filter(|_| masked).and_then(|mask| count_of(&routine.body, *mask));
            if !unfit || masked && count.is_none() {
                continue;
            }
            let size = i64::try_from(elem.size()).unwrap_or(1);
            let step = insert(routine, b, i, Op::Const(Scalar::Int(size)), Vec::new(), Type::Index, &mut made);
            let start = insert(routine, b, i, Op::Address(place), of_place.to_vec(), Type::Address, &mut made);
            let mut operands: Vec<Value> = start.into_iter().chain(step).collect();
            operands.extend(rest.first().filter(|_| is_store));
            operands.extend(count);
            let data = routine.body.inst_mut(i);
            data.op = if is_store { Op::StoreApart(elem) } else { Op::LoadApart(elem) };
            data.operands = operands;
        }
    }
}

/// The count of a `lanes_below` mask.
fn count_of(body: &Body, mask: Value) -> Option<Value> {
    let data = body.def_inst(mask)?;
    data.operands.first().copied().filter(|_| data.op == Op::LanesBelow)
}

/// Inserts an instruction before another one.
fn insert(
    routine: &mut Routine,
    block: Block,
    before: Inst,
    op: Op,
    operands: Vec<Value>,
    ty: Type,
    made: &mut impl FnMut(Inst, Inst),
) -> Option<Value> {
    let loc = routine.body.inst(before).loc;
    let inst = routine.body.make_inst(op, operands, Some(ty), loc);
    routine.body.insert_before(block, before, inst);
    made(inst, before);
    routine.body.inst(inst).result
}

/// Removes prefetches, for machines without such an instruction.
pub fn drop_prefetches(routine: &mut Routine) {
    routine.body.remove_insts(|_, data| matches!(data.op, Op::Prefetch(_)));
}

/// Replaces masked and strided accesses by accesses of single elements: SSE2 and NEON have neither.
/// A mask must come from `lanes_below` of at least 1; other masks are kept, and rejected by the
/// back ends of such machines. `made`: as in [`part_narrow_accesses`].
///
/// If the number of elements is only known at run time, lanes past the end access the last element
/// instead, without branches: loads replace their values by 0, and stores go from the last lane to
/// the first, so that the last element's own store comes last. (So strided elements must not
/// overlap.)
///
/// ```text
///   %5 = lanes_below %4                         : boolx4
///   store %0 + 64, %2, elem=f32, mask=%5
/// ->
///   %6 = add %4, %minus_one                     : index
///   %7 = min %three, %6                         : index
///   %8 = extract %2, lane=3                     : f32
///   store %0 + 4*%7 + 64, %8, elem=f32
///   ..
///   %13 = extract %2, lane=0                    : f32
///   store %0 + 64, %13, elem=f32
/// ```
pub fn split_accesses(routine: &mut Routine, made: impl FnMut(Inst, Inst)) {
    let mut split = Split { routine, made, constants: BTreeMap::new(), clamped: BTreeMap::new() };
    for b in split.routine.body.layout.clone() {
        split.clamped.clear();
        for i in std::mem::take(&mut split.routine.body.block_mut(b).insts) {
            split.access(b, i);
        }
    }
    // Constants come first.
    let entry = split.routine.body.entry();
    let constants: Vec<Inst> = split.constants.values().map(|(i, _)| *i).collect();
    split.routine.body.block_mut(entry).insts.splice(0..0, constants);
}

/// Addressing of an access.
#[derive(Clone, Copy)]
enum Elements {
    /// Contiguous: addressing mode, base, optional index.
    Unit(AddressMode, Value, Option<Value>),
    /// Strided: start address, stride in bytes.
    Apart(Value, Value),
}

struct Split<'a, F> {
    routine: &'a mut Routine,
    made: F,
    /// Constants created so far.
    constants: BTreeMap<i64, (Inst, Value)>,
    /// Clamped lane numbers of this block, by count and lane.
    clamped: BTreeMap<(Value, u32), Value>,
}

impl<F: FnMut(Inst, Inst)> Split<'_, F> {
    /// Appends an instruction to a block, split if necessary.
    fn access(&mut self, b: Block, i: Inst) {
        if self.parts(b, i).is_none() {
            self.routine.body.block_mut(b).insts.push(i);
        }
    }

    fn parts(&mut self, b: Block, i: Inst) -> Option<()> {
        let data = self.routine.body.inst(i).clone();
        let Access { elem, is_store, place, .. } = data.op.access().filter(|a| a.masked || a.place.is_none())?;
        let (elements, rest) = match (place, data.operands.as_slice()) {
            (Some(place), operands) => {
                let (of_place, rest) = operands.split_at_checked(place.operands())?;
                (Elements::Unit(place, *of_place.first()?, of_place.get(1).copied()), rest)
            }
            (None, [start, step, rest @ ..]) => (Elements::Apart(*start, *step), rest),
            (None, _) => return None,
        };
        let (x, limit) = if is_store { (rest.first().copied(), rest.get(1)) } else { (None, rest.first()) };
        // A mask, or the count itself.
        let count = match (limit, place) {
            (Some(mask), Some(_)) => Some(count_of(&self.routine.body, *mask)?),
            (limit, _) => limit.copied(),
        };
        let ty = *self.routine.body.ty(x.or(data.result)?);
        let Type::Lanes(computed, lanes) = ty else { return None };
        let known = match count {
            Some(count) => self.number(count).map(|n| u32::try_from(n).unwrap_or(0).min(lanes)),
            None => Some(lanes),
        };
        let scalar = Type::Lanes(computed, 1);
        let unknown = count.filter(|_| known.is_none());
        // The largest possible count.
        let most = known.or_else(|| self.below(count?)).unwrap_or(lanes).min(lanes);
        let elements = match (elements, unknown) {
            (Elements::Unit(place, base, Some(index)), Some(_)) => {
                let start = Op::Address(AddressMode { offset: 0, ..place });
                let start = self.put(b, i, start, vec![base, index], Some(Type::Address))?;
                Elements::Unit(AddressMode { scale: 0, ..place }, start, None)
            }
            _ => elements,
        };
        if let Some(x) = x {
            let (forwards, backwards) = if unknown.is_none() { (0..most, 0..0) } else { (0..0, 0..most) };
            for lane in forwards.chain(backwards.rev()) {
                let (place, mut operands) = self.lane(b, i, elements, elem, lane, unknown)?;
                // In a routine of one lane an access has one element already.
                operands.push(if lanes == 1 { x } else { self.put(b, i, Op::Extract(lane), vec![x], Some(scalar))? });
                self.put(b, i, Op::Store { elem, place, masked: false }, operands, None);
            }
            return Some(());
        }
        let mut scalars = Vec::new();
        for lane in 0..most {
            let (place, operands) = self.lane(b, i, elements, elem, lane, unknown)?;
            scalars.push(self.put(b, i, Op::Load { elem, place, masked: false }, operands, Some(scalar))?);
        }
        let zero = || if computed == Elem::F32 { Op::Const(Scalar::Float(0.0)) } else { Op::Const(Scalar::Int(0)) };
        if scalars.len() < usize::try_from(lanes).ok()? {
            let mut nothing = self.put(b, i, zero(), Vec::new(), Some(number_type(computed, 1)))?;
            if computed == Elem::Bool {
                nothing = self.put(b, i, Op::MaskOfBits, vec![nothing], Some(scalar))?;
            }
            scalars.resize(usize::try_from(lanes).ok()?, nothing);
        }
        let build = Op::Build;
        match (known, count) {
            (None, Some(count)) => {
                let mask_type = Type::Lanes(Elem::Bool, lanes);
                let mask = self.put(b, i, Op::LanesBelow, vec![count], Some(mask_type))?;
                let x = self.put(b, i, build, scalars, Some(ty))?;
                let operands = if computed == Elem::Bool {
                    vec![x, mask]
                } else {
                    let nothing = self.put(b, i, zero(), Vec::new(), Some(ty))?;
                    vec![mask, x, nothing]
                };
                let op = if computed == Elem::Bool { Op::Binary(BinaryOp::And) } else { Op::Select };
                self.become_of(b, i, op, operands)
            }
            _ => self.become_of(b, i, build, scalars),
        }
    }

    /// Replaces the operation of an instruction in place, keeping its result.
    fn become_of(&mut self, b: Block, i: Inst, op: Op, operands: Vec<Value>) -> Option<()> {
        let data = self.routine.body.inst_mut(i);
        (data.op, data.operands) = (op, operands);
        self.routine.body.block_mut(b).insts.push(i);
        Some(())
    }

    /// Address of a lane's element; with a count, clamped to the last one.
    fn lane(
        &mut self,
        b: Block,
        i: Inst,
        elements: Elements,
        elem: Elem,
        lane: u32,
        count: Option<Value>,
    ) -> Option<(AddressMode, Vec<Value>)> {
        let size = i64::try_from(elem.size()).ok()?;
        let further = |place: AddressMode, bytes: i64| {
            let offset = i32::try_from(i64::from(place.offset).checked_add(bytes)?).ok()?;
            Some(AddressMode { offset, ..place })
        };
        let number = match count.filter(|_| lane > 0) {
            Some(count) => Some(self.clamp(b, i, lane, count)?),
            None => None,
        };
        match (elements, number) {
            (Elements::Unit(place, base, None), Some(n)) => {
                Some((AddressMode { scale: u8::try_from(size).ok()?, ..place }, vec![base, n]))
            }
            (Elements::Unit(place, base, index), _) => {
                let operands = std::iter::once(base).chain(index).collect();
                Some((further(place, size * i64::from(lane))?, operands))
            }
            (Elements::Apart(start, step), n) => {
                let known =
                    self.number(step).and_then(|step| further(AddressMode::HERE, step.checked_mul(i64::from(lane))?));
                if let (Some(place), None) = (known, n) {
                    return Some((place, vec![start]));
                }
                if lane == 0 {
                    return Some((AddressMode::HERE, vec![start]));
                }
                let n = match n {
                    Some(n) => n,
                    None => self.constant(i64::from(lane)),
                };
                let mul = Op::Binary(BinaryOp::Mul);
                let distance = self.put(b, i, mul, vec![n, step], Some(Type::Index))?;
                let add = Op::Binary(BinaryOp::Add);
                let at = self.put(b, i, add, vec![start, distance], Some(Type::Address))?;
                Some((AddressMode::HERE, vec![at]))
            }
        }
    }

    /// The lane number, clamped to `count - 1`.
    fn clamp(&mut self, b: Block, i: Inst, lane: u32, count: Value) -> Option<Value> {
        if let Some(v) = self.clamped.get(&(count, lane)) {
            return Some(*v);
        }
        let last = match self.clamped.get(&(count, u32::MAX)) {
            Some(last) => *last,
            None => {
                let minus = self.constant(-1);
                let last = self.put(b, i, Op::Binary(BinaryOp::Add), vec![count, minus], Some(Type::Index))?;
                self.clamped.insert((count, u32::MAX), last);
                last
            }
        };
        let lane_number = self.constant(i64::from(lane));
        let v = self.put(b, i, Op::Binary(BinaryOp::Min), vec![lane_number, last], Some(Type::Index))?;
        self.clamped.insert((count, lane), v);
        Some(v)
    }

    /// Upper bound of an index, if it is a remainder.
    fn below(&self, v: Value) -> Option<u32> {
        let data = self.routine.body.def_inst(v).filter(|data| data.op == Op::Binary(BinaryOp::Rem))?;
        let divisor = self.number(*data.operands.get(1)?).filter(|n| *n > 0)?;
        u32::try_from(divisor - 1).ok()
    }

    /// The value of a constant index.
    fn number(&self, v: Value) -> Option<i64> {
        let Op::Const(s) = self.routine.body.def_inst(v)?.op else { return None };
        Some(s.as_i64())
    }

    fn constant(&mut self, n: i64) -> Value {
        let body = &mut self.routine.body;
        let (_, v) = self.constants.entry(n).or_insert_with(|| {
            let i = body.make_inst(Op::Const(Scalar::Int(n)), Vec::new(), Some(Type::Index), Loc::default());
            (i, body.inst(i).result.unwrap_or(Value::from_u32(0)))
        });
        *v
    }

    /// Appends an instruction to a block, as part of the replacement of `old`.
    fn put(&mut self, b: Block, old: Inst, op: Op, operands: Vec<Value>, ty: Option<Type>) -> Option<Value> {
        let body = &mut self.routine.body;
        let loc = body.inst(old).loc;
        let i = body.make_inst(op, operands, ty, loc);
        body.block_mut(b).insts.push(i);
        (self.made)(i, old);
        body.inst(i).result
    }
}

/// The type of constants for lanes: booleans are made from integers.
fn number_type(elem: Elem, lanes: u32) -> Type {
    Type::Lanes(if elem == Elem::Bool { Elem::I32 } else { elem }, lanes)
}
