//! Instruction selection for runs: vector IR to machine IR.
//!
//! In: a `run`. Out: its leaf. `lowering::vector` has built the loops; here is one case for each
//! operation of a routine. A scalar is broadcast to a vector. An address is loaded into a register
//! at the beginning; other parameters are loaded from the argument array where they are used.
//!
//! Declined: routines that compute one element at a time ([`single`]), and strides of 2^31 bytes or
//! more.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;

use super::access::{Distance, Spot};
use super::machine::{Block, Builder, Class, Constant, Mem, Op as Do, Operand, Reg, When};
use super::{Leaf, Stages};
use crate::lowering::vector::{Declined, Lowered, declined, lower_for, single};
use crate::scalar::{BinaryOp, CmpOp, Scalar};
use crate::shape::Elem;
use crate::ssa::{self, BlockCall, Value};
use crate::tile::{Body, Cpu, Extent, Feature, Inst};
use crate::vector::routine::{AddressMode, InstData, Op, Reduction, Routine, Terminator, Type};

/// The leaf of a run on a CPU that has leaves, or why it has none.
pub(super) fn select(level: Cpu, body: &Body, rows: Extent, cols: Extent, insts: &[Inst]) -> Result<Leaf, Declined> {
    if let Some((inst, reason)) = single(body, insts) {
        return Err(Declined::Form(inst, reason));
    }
    let Lowered { routine, words, origins } = lower_for(level, "run", body, (rows, cols), insts)?;
    let mut m = Builder::new(level.width());
    m.shortens = level.has(Feature::Bf16);
    let mut p =
        Print { m, routine: &routine, held: SecondaryMap::new(), blocks: BTreeMap::new(), known: BTreeMap::new() };
    let done = p.routine(&origins);
    let mut m = p.m;
    if let Some(message) = m.wrong.take() {
        return Err(Declined::Wrong(message));
    }
    if done.is_none() {
        return Err(declined(body, m.origin(), insts));
    }
    let level = if m.uses(Do::Shorten) { level } else { level.vectors() };
    let wrong = |what: &str| Declined::Wrong(what.to_string());
    let selected = m.finish();
    let allocated =
        super::allocate::allocate(&selected).ok_or_else(|| wrong("register allocation of a leaf failed"))?;
    let (code, places) = super::encode::encode(&allocated).ok_or_else(|| wrong("a leaf cannot be encoded"))?;
    let stages = Stages { selected, allocated: allocated.function };
    Ok(Leaf { name: format!("run.{}", level.name()), code, places, words, stages })
}

/// Location of a value.
#[derive(Clone, Copy, Debug)]
enum ValueLocation {
    /// In a register.
    Reg(Reg),
    /// In the argument array, by index.
    Word(usize),
    /// A constant, materialised where it is used.
    Number(Scalar, Type),
}

/// Key of a register that is set at first use and valid in the blocks that follow: a constant, or
/// the n-th copy of a value that is the initial value of several block parameters.
type SharedValue = (Value, usize);

struct Print<'a> {
    m: Builder,
    routine: &'a Routine,
    held: SecondaryMap<Value, Option<ValueLocation>>,
    blocks: BTreeMap<ssa::Block, Block>,
    known: BTreeMap<SharedValue, Reg>,
}

impl Print<'_> {
    /// Translates the whole routine.
    fn routine(&mut self, origins: &SecondaryMap<ssa::Inst, Option<Inst>>) -> Option<()> {
        let routine = self.routine;
        let body = &routine.body;
        for (n, (v, _)) in routine.params.iter().enumerate() {
            self.held[*v] = Some(ValueLocation::Word(n));
        }
        self.hold_addresses();
        for b in body.layout.iter().skip(1) {
            let classes: Vec<Class> =
                body.block(*b).args.iter().map(|v| self.class(*body.ty(*v))).collect::<Option<_>>()?;
            let block = self.m.block(&classes);
            self.blocks.insert(*b, block);
        }
        let predecessors = body.predecessors();
        for (n, b) in body.layout.iter().enumerate() {
            if n > 0 {
                let before = body.layout.get(n - 1)?;
                if predecessors[*b].as_slice() != [*before] {
                    self.known.clear();
                }
                let regs = self.m.start(*self.blocks.get(b)?);
                for (v, r) in body.block(*b).args.iter().zip(regs) {
                    self.held[*v] = Some(ValueLocation::Reg(r));
                }
            }
            for i in &body.block(*b).insts {
                self.m.code_of(origins[*i]);
                let inst = body.inst(*i);
                let held = self.instruction(inst)?;
                if let Some(v) = inst.result {
                    self.held[v] = held;
                }
            }
            self.m.code_of(None);
            self.end(&body.block(*b).terminator)?;
        }
        Some(())
    }

    /// Loads addresses that are used directly into registers.
    fn hold_addresses(&mut self) {
        let body = &self.routine.body;
        let used: Vec<Value> = body
            .insts()
            .filter(|(_, _, inst)| inst.op.place().is_some())
            .filter_map(|(_, _, inst)| inst.operands.first().copied())
            .collect();
        for (n, (v, _)) in self.routine.params.iter().enumerate() {
            if *body.ty(*v) == Type::Address && used.contains(v) {
                let r = self.m.make(Class::General, Do::Mov, vec![Mem::word(n).into()]);
                self.held[*v] = Some(ValueLocation::Reg(r));
            }
        }
    }

    fn class(&self, ty: Type) -> Option<Class> {
        match ty {
            Type::Lanes(Elem::Bool, 1) | Type::Lanes(Elem::I64, _) => None,
            Type::Lanes(Elem::Bool, _) => Some(self.m.truth()),
            Type::Lanes(..) => Some(Class::Vector),
            Type::Index | Type::Address => Some(Class::General),
        }
    }

    /// An index as an operand: a register, an argument in memory, or an immediate.
    fn operand(&mut self, v: Value) -> Option<Operand> {
        Some(match self.held[v]? {
            ValueLocation::Reg(r) => r.into(),
            ValueLocation::Word(n) => Mem::word(n).into(),
            ValueLocation::Number(s, _) => Operand::Imm(i32::try_from(s.as_i64()).ok()?),
        })
    }

    /// A value in a register.
    fn reg(&mut self, v: Value) -> Option<Reg> {
        match self.held[v]? {
            ValueLocation::Reg(r) => Some(r),
            ValueLocation::Word(n) => Some(self.m.make(Class::General, Do::Mov, vec![Mem::word(n).into()])),
            ValueLocation::Number(s, Type::Index) => {
                if let Some(r) = self.known.get(&(v, 0)) {
                    return Some(*r);
                }
                let r = self.m.number(i32::try_from(s.as_i64()).ok()?);
                self.known.insert((v, 0), r);
                Some(r)
            }
            ValueLocation::Number(s, Type::Lanes(Elem::F32, _)) => Some(self.m.float(s.as_f64() as f32)),
            ValueLocation::Number(s, Type::Lanes(Elem::I32, _)) => Some(self.m.int(i32::try_from(s.as_i64()).ok()?)),
            ValueLocation::Number(..) => None,
        }
    }

    /// Arguments of a jump, each in a register that the parameter may share: constants, parameters
    /// and values passed several times are copied.
    fn args(&mut self, call: &BlockCall) -> Option<Vec<Reg>> {
        let mut regs = Vec::new();
        for (n, v) in call.args.iter().enumerate() {
            let before = call.args.iter().take(n).filter(|w| *w == v).count();
            if let Some(r) = self.known.get(&(*v, before)) {
                regs.push(*r);
                continue;
            }
            let word = self.routine.params.iter().position(|(param, _)| param == v);
            let is_shared = call.args.iter().filter(|w| *w == v).count() > 1;
            let r = match (self.held[*v]?, word) {
                (_, Some(n)) => self.m.make(Class::General, Do::Mov, vec![Mem::word(n).into()]),
                (ValueLocation::Number(_, Type::Index), _) => {
                    regs.push(self.reg(*v)?);
                    continue;
                }
                (ValueLocation::Reg(r), _) if !is_shared => {
                    regs.push(r);
                    continue;
                }
                _ => {
                    let r = self.reg(*v)?;
                    self.m.copy(r)
                }
            };
            self.known.insert((*v, before), r);
            regs.push(r);
        }
        Some(regs)
    }

    fn end(&mut self, t: &Terminator) -> Option<()> {
        match t {
            Terminator::Return(_) => {}
            Terminator::Br(call) => {
                let args = self.args(call)?;
                self.m.jump(*self.blocks.get(&call.block)?, &args);
            }
            Terminator::BrIf { condition, then, otherwise } => {
                let test = self.routine.body.def_inst(*condition)?;
                let (Op::Compare(op), [a, b]) = (&test.op, test.operands.as_slice()) else { return None };
                let when = match op {
                    CmpOp::Lt => When::Less,
                    CmpOp::Ge => When::GreaterEqual,
                    _ => return None,
                };
                let (a, b) = (self.reg(*a)?, self.operand(*b)?);
                let (to, other) = (*self.blocks.get(&then.block)?, *self.blocks.get(&otherwise.block)?);
                let (given, rest) = (self.args(then)?, self.args(otherwise)?);
                self.m.branch((a, when, b), (to, &given), (other, &rest));
            }
            Terminator::Roles(roles) => match *roles {},
        }
        Some(())
    }

    /// Splits off an addressing mode: memory operand, remaining operands.
    fn place<'o>(&mut self, place: AddressMode, operands: &'o [Value]) -> Option<(Mem, &'o [Value])> {
        let (of_place, rest) = operands.split_at_checked(place.operands())?;
        let mut mem = Mem::at(self.reg(*of_place.first()?)?).plus(place.offset);
        if let Some(index) = of_place.get(1) {
            mem = mem.indexed(self.reg(*index)?, place.scale);
        }
        Some((mem, rest))
    }

    /// The stride in a value.
    fn distance(&self, v: Value) -> Option<Distance> {
        match self.held[v]? {
            ValueLocation::Number(s, _) => Some(Distance::Bytes(i32::try_from(s.as_i64()).ok()?)),
            ValueLocation::Word(n) => Some(Distance::Word(n)),
            ValueLocation::Reg(_) => None,
        }
    }

    fn instruction(&mut self, inst: &InstData) -> Option<Option<ValueLocation>> {
        let ty = inst.result.map(|v| *self.routine.body.ty(v));
        match (&inst.op, ty) {
            (Op::Const(s), Some(ty)) => return Some(Some(ValueLocation::Number(*s, ty))),
            // Emitted by the branch.
            (Op::Compare(_), Some(Type::Lanes(_, 1))) => return Some(None),
            (Op::Store { elem, place, masked }, _) => {
                let (mem, rest) = self.place(*place, &inst.operands)?;
                self.store(*elem, mem, rest, *masked)?;
                return Some(None);
            }
            (Op::StoreApart(elem), _) => {
                let [start, step, x, count @ ..] = inst.operands.as_slice() else { return None };
                let spot = Spot::Apart(self.reg(*start)?, self.distance(*step)?);
                let (x, count) = (self.reg(*x)?, self.count(count)?);
                self.m.store(*elem, x, spot, None, count)?;
                return Some(None);
            }
            (Op::Prefetch(place), _) => {
                let (mem, _) = self.place(*place, &inst.operands)?;
                self.m.effect(Do::Fetch, vec![mem.into()]);
                return Some(None);
            }
            _ => {}
        }
        let r = match (ty?, inst.operands.as_slice()) {
            (Type::Index | Type::Address, operands) => self.index(&inst.op, operands)?,
            (ty, operands) => self.lanes(&inst.op, operands, ty)?,
        };
        Some(Some(ValueLocation::Reg(r)))
    }

    fn count(&mut self, operands: &[Value]) -> Option<Option<Operand>> {
        match operands {
            [] => Some(None),
            [v] => self.operand(*v).map(Some),
            _ => None,
        }
    }

    fn store(&mut self, elem: Elem, mem: Mem, rest: &[Value], masked: bool) -> Option<()> {
        let x = *rest.first()?;
        let is_one = matches!(self.routine.body.ty(x), Type::Lanes(_, 1));
        let x = self.reg(x)?;
        if is_one {
            self.m.effect(Do::StoreLow, vec![mem.into(), x.into()]);
            return (elem.size() == 4).then_some(());
        }
        let mask = match rest.get(1).filter(|_| masked) {
            Some(v) => Some(self.reg(*v)?),
            None => None,
        };
        self.m.store(elem, x, Spot::Unit(mem), mask, None)
    }

    /// Operations on indices and addresses.
    fn index(&mut self, op: &Op, operands: &[Value]) -> Option<Reg> {
        match (op, operands) {
            (Op::Address(place), _) => {
                let (mem, _) = self.place(*place, operands)?;
                Some(self.m.make(Class::General, Do::Lea, vec![mem.into()]))
            }
            (Op::Binary(BinaryOp::Add), [a, b]) => match (self.held[*a]?, self.operand(*b)?) {
                (_, imm @ Operand::Imm(_)) => {
                    let a = self.reg(*a)?;
                    Some(self.m.tied(Do::PlusImm, a, vec![imm]))
                }
                // The scaled distance is not used again.
                (ValueLocation::Reg(a), Operand::Reg(b)) => Some(self.m.tied(Do::Plus, b, vec![a.into()])),
                (_, b) => {
                    let a = self.reg(*a)?;
                    Some(self.m.tied(Do::Plus, a, vec![b]))
                }
            },
            (Op::Binary(BinaryOp::Mul), [a, b]) => {
                let a = self.reg(*a)?;
                Some(match self.operand(*b)? {
                    imm @ Operand::Imm(_) => self.m.make(Class::General, Do::TimesImm, vec![a.into(), imm]),
                    b => self.m.tied(Do::Times, a, vec![b]),
                })
            }
            (Op::Binary(BinaryOp::Rem), [a, b]) => {
                let a = self.reg(*a)?;
                match self.operand(*b)? {
                    Operand::Imm(n) if n.cast_unsigned().is_power_of_two() => {
                        Some(self.m.tied(Do::AndImm, a, vec![Operand::Imm(n - 1)]))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn lanes(&mut self, op: &Op, operands: &[Value], ty: Type) -> Option<Reg> {
        let Type::Lanes(to, count) = ty else { return None };
        let elem = operands.first().and_then(|v| self.routine.body.ty(*v).elem());
        match (op, operands) {
            (Op::Load { elem, place, masked }, _) => {
                let (mem, rest) = self.place(*place, operands)?;
                if count == 1 {
                    return self.m.load_same(*elem, mem);
                }
                let mask = match rest.first().filter(|_| *masked) {
                    Some(v) => Some(self.reg(*v)?),
                    None => None,
                };
                return self.m.load(*elem, Spot::Unit(mem), mask, None);
            }
            (Op::LoadApart(elem), [start, step, count @ ..]) => {
                let spot = Spot::Apart(self.reg(*start)?, self.distance(*step)?);
                let count = self.count(count)?;
                return self.m.load(*elem, spot, None, count);
            }
            (Op::Splat, [x]) => return self.splat(*x, to),
            (Op::LanesBelow, [n]) => {
                let n = self.reg(*n)?;
                let n = self.m.spread(n);
                let lane = self.m.constant(Constant::Count);
                return self.m.compare(CmpOp::Gt, Elem::I32, n, lane);
            }
            _ => {}
        }
        let mut xs = Vec::new();
        for v in operands {
            xs.push(self.reg(*v)?);
        }
        match (op, xs.as_slice()) {
            (Op::Lanes, []) => Some(self.m.constant(Constant::Count)),
            (Op::Unary(op), [x]) => self.m.unary(*op, to, *x),
            (Op::Binary(op), [x, y]) => self.m.binary(*op, to, *x, *y),
            (Op::Compare(op), [x, y]) => self.m.compare(*op, elem?, *x, *y),
            (Op::Select, [c, x, y]) => Some(self.m.select(to, *c, *x, *y)),
            (Op::Cast, [x]) => self.m.cast(elem?, to, *x),
            (Op::Narrow(elem), [x]) => self.m.narrow(*x, *elem),
            (Op::BitAnd, [x, y]) => Some(self.m.two(Do::And, *x, *y)),
            (Op::BitOr, [x, y]) => Some(self.m.two(Do::Or, *x, *y)),
            (Op::MaxOrSecond, [x, y]) => Some(self.m.two(Do::Max, *x, *y)),
            (Op::MinOrSecond, [x, y]) => Some(self.m.two(Do::Min, *x, *y)),
            (Op::Unordered, [x, y]) => Some(self.m.unordered_pair(*x, *y)),
            (Op::Beats, [x, y]) => self.m.beats(elem?, *x, *y),
            (Op::MaskBits, [x]) => Some(self.m.mask_to_vector(*x)),
            (Op::MaskOfBits, [x]) => Some(self.m.vector_to_mask(*x)),
            (Op::Reduce(kind @ (Reduction::All | Reduction::Any)), [x]) => self.m.across(kind.kind(), Elem::Bool, *x),
            (Op::Reduce(kind), [x]) => self.m.across(kind.kind(), to, *x),
            // A scalar is broadcast, so the vector itself serves as its first lane.
            (Op::First, [x]) => Some(*x),
            (Op::Exchange(distance), [x]) => self.m.exchange(*distance, *x),
            _ => None,
        }
    }

    /// Broadcasts a scalar, or the low bits of an index.
    fn splat(&mut self, x: Value, elem: Elem) -> Option<Reg> {
        let is_index = *self.routine.body.ty(x) == Type::Index;
        match self.held[x]? {
            ValueLocation::Word(n) => {
                let r = self.m.vector(Do::Spread, vec![Mem::word(n).into()]);
                Some(if elem == Elem::Bool { self.m.not_zero(r) } else { r })
            }
            _ if is_index => {
                let r = self.reg(x)?;
                Some(self.m.spread(r))
            }
            _ => self.reg(x),
        }
    }
}
