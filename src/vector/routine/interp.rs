//! The interpreter of routines: executes a routine lane by lane, bit for bit like compiled code.
//!
//! In: a routine, its arguments, and a [`Memory`] that checks each access. Out: memory. Elementary
//! functions are computed by the interpreter of vector IR ([`crate::vector::interp`]), so the
//! results have the same bits as compiled code. (Where one instruction rounds to `bf16`, compiled
//! code flushes subnormals to 0; here they are kept.)

use cranelift_entity::SecondaryMap;

use super::{AddressMode, Body, InstData, Op, Routine, Terminator, Type};
use crate::scalar::Scalar;
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use crate::shape::Elem;
use crate::ssa::{BlockCall, Value};
use crate::vector::{self, Features, expand, interp, library};

/// The address of a byte: storage and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// Number of the storage, interpreted by the [`Memory`].
    pub storage: usize,
    /// Bytes from its start.
    pub at: i64,
}

/// Memory that a routine accesses.
pub trait Memory {
    /// Reads bytes.
    ///
    /// # Errors
    /// A range that must not be read.
    fn read(&self, from: Pointer, bytes: &mut [u8]) -> Result<(), String>;

    /// Writes bytes.
    ///
    /// # Errors
    /// A range that must not be written.
    fn write(&mut self, to: Pointer, bytes: &[u8]) -> Result<(), String>;
}

/// A value of a routine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeValue {
    /// The bits of each lane; a boolean is 0 or 1.
    Lanes(Vec<u64>),
    /// A 64-bit integer.
    Index(i64),
    /// The address of a byte.
    Address(Pointer),
}

struct Interpreter<'a> {
    body: &'a Body,
    features: Features,
    values: SecondaryMap<Value, Option<RuntimeValue>>,
    memory: &'a mut dyn Memory,
}

/// Runs a verified routine; `work` limits the number of instructions.
///
/// # Errors
/// Arguments of wrong types, an access that the memory rejects, or too much work.
pub fn run(routine: &Routine, args: &[RuntimeValue], memory: &mut dyn Memory, work: &mut u64) -> Result<(), String> {
    let body = &routine.body;
    let mut m = Interpreter { body, features: routine.features, values: SecondaryMap::new(), memory };
    if args.len() != routine.params.len() {
        return Err(format!(
            "@{} has {} parameters, and {} were given",
            routine.name,
            routine.params.len(),
            args.len()
        ));
    }
    for ((v, _), x) in routine.params.iter().zip(args) {
        m.values[*v] = Some(x.clone());
    }
    let mut block = body.entry();
    loop {
        let data = body.block(block);
        for i in &data.insts {
            let inst = body.inst(*i);
            let x = m.instruction(inst).map_err(|e| format!("@{}: `{}`: {e}", routine.name, inst.op))?;
            if let Some(v) = inst.result {
                m.values[v] = x;
            }
        }
        let done = u64::try_from(data.insts.len()).unwrap_or(u64::MAX).saturating_add(1);
        *work = work.checked_sub(done).ok_or("the work is beyond the limit")?;
        let call = match &data.terminator {
            Terminator::Return(_) => return Ok(()),
            Terminator::Br(call) => call,
            Terminator::BrIf { condition, then, otherwise } => {
                if m.lane(*condition)? != 0 {
                    then
                } else {
                    otherwise
                }
            }
            Terminator::Roles(roles) => match *roles {},
        };
        m.jump(call)?;
        block = call.block;
    }
}

fn wrong<T>() -> Result<T, String> {
    Err("a value of another type".to_string())
}

impl Interpreter<'_> {
    /// Takes a jump: a parallel assignment to the target's arguments.
    fn jump(&mut self, call: &BlockCall) -> Result<(), String> {
        let given = call.args.iter().map(|v| self.value(*v).cloned()).collect::<Result<Vec<RuntimeValue>, String>>()?;
        for (arg, x) in self.body.block(call.block).args.iter().zip(given) {
            self.values[*arg] = Some(x);
        }
        Ok(())
    }

    fn value(&self, v: Value) -> Result<&RuntimeValue, String> {
        self.values[v].as_ref().ok_or_else(|| format!("{v} has no value"))
    }

    fn lanes(&self, v: Value) -> Result<&[u64], String> {
        match self.value(v)? {
            RuntimeValue::Lanes(x) => Ok(x),
            RuntimeValue::Index(_) | RuntimeValue::Address(_) => wrong(),
        }
    }

    /// The first lane.
    fn lane(&self, v: Value) -> Result<u64, String> {
        self.lanes(v)?.first().copied().map_or_else(wrong, Ok)
    }

    fn index(&self, v: Value) -> Result<i64, String> {
        match self.value(v)? {
            RuntimeValue::Index(n) => Ok(*n),
            RuntimeValue::Lanes(_) | RuntimeValue::Address(_) => wrong(),
        }
    }

    fn pointer(&self, v: Value) -> Result<Pointer, String> {
        match self.value(v)? {
            RuntimeValue::Address(p) => Ok(*p),
            RuntimeValue::Lanes(_) | RuntimeValue::Index(_) => wrong(),
        }
    }

    /// Splits off an addressing mode: address, remaining operands.
    fn place<'o>(&self, place: AddressMode, operands: &'o [Value]) -> Result<(Pointer, &'o [Value]), String> {
        let (of_place, rest) = operands.split_at(place.operands().min(operands.len()));
        let Some(base) = of_place.first() else { return wrong() };
        let mut p = self.pointer(*base)?;
        if let Some(index) = of_place.get(1) {
            p.at = p.at.wrapping_add(self.index(*index)?.wrapping_mul(i64::from(place.scale)));
        }
        p.at = p.at.wrapping_add(i64::from(place.offset));
        Ok((p, rest))
    }

    #[warn(clippy::wildcard_enum_match_arm, reason = "a new operation is reported as an error here")]
    fn instruction(&mut self, inst: &InstData) -> Result<Option<RuntimeValue>, String> {
        let operand = |n: usize| inst.operands.get(n).copied().map_or_else(wrong, Ok);
        let elem_of = |n: usize| Ok::<_, String>(self.body.ty(operand(n)?).elem());
        let ty = inst.result.map(|v| *self.body.ty(v));
        let count = match ty {
            Some(Type::Lanes(_, n)) => n as usize,
            _ => 0,
        };
        let lanes = |x: Vec<u64>| Ok(Some(RuntimeValue::Lanes(x)));
        match &inst.op {
            Op::Const(s) => match ty {
                Some(Type::Index) => Ok(Some(RuntimeValue::Index(s.as_i64()))),
                Some(Type::Lanes(elem, n)) => lanes(vec![bits_of(*s, elem); n as usize]),
                _ => wrong(),
            },
            Op::Lanes => lanes((0..count as u64).collect()),
            Op::Unary(op) => {
                let (Some(elem), x) = (elem_of(0)?, self.lanes(operand(0)?)?) else { return wrong() };
                lanes(x.iter().map(|x| unary(*op, elem, *x, self.features)).collect::<Result<_, _>>()?)
            }
            Op::Binary(op) => match (self.value(operand(0)?)?, self.value(operand(1)?)?) {
                (RuntimeValue::Index(a), RuntimeValue::Index(b)) => Ok(Some(RuntimeValue::Index(op.eval_int(*a, *b)))),
                (RuntimeValue::Address(p), RuntimeValue::Index(n)) => {
                    Ok(Some(RuntimeValue::Address(Pointer { at: p.at.wrapping_add(*n), ..*p })))
                }
                (RuntimeValue::Lanes(x), RuntimeValue::Lanes(y)) => {
                    let Some(elem) = elem_of(0)? else { return wrong() };
                    let pairs = x.iter().zip(y);
                    lanes(pairs.map(|(x, y)| binary(*op, elem, *x, *y, self.features)).collect::<Result<_, _>>()?)
                }
                _ => wrong(),
            },
            Op::Compare(op) => match (self.value(operand(0)?)?, self.value(operand(1)?)?) {
                (RuntimeValue::Index(a), RuntimeValue::Index(b)) => lanes(vec![u64::from(op.eval(*a, *b))]),
                (RuntimeValue::Lanes(x), RuntimeValue::Lanes(y)) => {
                    let Some(elem) = elem_of(0)? else { return wrong() };
                    lanes(x.iter().zip(y).map(|(x, y)| u64::from(compare(*op, elem, *x, *y))).collect())
                }
                _ => wrong(),
            },
            Op::Select => {
                let (c, x, y) = (self.lanes(operand(0)?)?, self.lanes(operand(1)?)?, self.lanes(operand(2)?)?);
                lanes(c.iter().zip(x.iter().zip(y)).map(|(c, (x, y))| if *c != 0 { *x } else { *y }).collect())
            }
            Op::Cast => {
                let (Some(from), Some(Type::Lanes(to, _))) = (elem_of(0)?, ty) else { return wrong() };
                lanes(self.lanes(operand(0)?)?.iter().map(|x| cast(from, to, *x)).collect())
            }
            Op::Narrow(elem) => lanes(self.lanes(operand(0)?)?.iter().map(|x| narrow(*elem, *x)).collect()),
            Op::BitAnd | Op::BitOr => {
                let pairs = self.lanes(operand(0)?)?.iter().zip(self.lanes(operand(1)?)?);
                let is_and = inst.op == Op::BitAnd;
                lanes(pairs.map(|(x, y)| if is_and { x & y } else { x | y }).collect())
            }
            Op::MaxOrSecond | Op::MinOrSecond => {
                let pairs = self.lanes(operand(0)?)?.iter().zip(self.lanes(operand(1)?)?);
                let is_max = inst.op == Op::MaxOrSecond;
                let is_first = |x: f32, y: f32| if is_max { x > y } else { x < y };
                lanes(pairs.map(|(x, y)| if is_first(float(*x), float(*y)) { *x } else { *y }).collect())
            }
            Op::Unordered => {
                let pairs = self.lanes(operand(0)?)?.iter().zip(self.lanes(operand(1)?)?);
                lanes(pairs.map(|(x, y)| u64::from(float(*x).is_nan() || float(*y).is_nan())).collect())
            }
            Op::Beats => {
                let Some(elem) = elem_of(0)? else { return wrong() };
                let pairs = self.lanes(operand(0)?)?.iter().zip(self.lanes(operand(1)?)?);
                let beats = |x: u64, y: u64| {
                    let is_number = elem != Elem::F32 || !float(y).is_nan();
                    is_number && (elem == Elem::F32 && float(x).is_nan() || compare(CmpOp::Gt, elem, x, y))
                };
                lanes(pairs.map(|(x, y)| u64::from(beats(*x, *y))).collect())
            }
            Op::Splat => match (self.value(operand(0)?)?, ty) {
                (RuntimeValue::Lanes(x), _) => lanes(vec![x.first().copied().map_or_else(wrong, Ok)?; count]),
                (RuntimeValue::Index(n), Some(Type::Lanes(elem, _))) => {
                    lanes(vec![bits_of(Scalar::Int(*n), elem); count])
                }
                _ => wrong(),
            },
            Op::LanesBelow => {
                let n = self.index(operand(0)?)?;
                lanes((0i64..).take(count).map(|lane| u64::from(lane < n)).collect())
            }
            Op::MaskBits => {
                lanes(self.lanes(operand(0)?)?.iter().map(|x| if *x != 0 { u64::from(u32::MAX) } else { 0 }).collect())
            }
            Op::MaskOfBits => lanes(self.lanes(operand(0)?)?.iter().map(|x| x >> 31 & 1).collect()),
            Op::Reduce(kind) => {
                let Some(elem) = elem_of(0)? else { return wrong() };
                let mut x = self.lanes(operand(0)?)?.to_vec();
                while x.len() > 1 {
                    let (low, high) = x.split_at(x.len() / 2);
                    let pairs = low.iter().zip(high);
                    x = pairs.map(|(x, y)| combine(kind.kind(), elem, *x, *y)).collect::<Result<_, _>>()?;
                }
                lanes(x)
            }
            Op::First => lanes(vec![self.lane(operand(0)?)?]),
            Op::Extract(lane) => {
                lanes(vec![self.lanes(operand(0)?)?.get(*lane as usize).copied().map_or_else(wrong, Ok)?])
            }
            Op::Build => lanes(inst.operands.iter().map(|v| self.lane(*v)).collect::<Result<_, _>>()?),
            Op::Exchange(distance) => {
                let x = self.lanes(operand(0)?)?;
                let other = |n: usize| x.get(n ^ *distance as usize).copied().map_or_else(wrong, Ok);
                lanes((0..x.len()).map(other).collect::<Result<_, _>>()?)
            }
            Op::Address(place) => Ok(Some(RuntimeValue::Address(self.place(*place, &inst.operands)?.0))),
            Op::Load { elem, place, masked } => {
                let (p, rest) = self.place(*place, &inst.operands)?;
                let mask = rest.first().filter(|_| *masked).map(|v| self.lanes(*v)).transpose()?;
                let is_read = |lane: usize| mask.is_none_or(|m| m.get(lane).is_some_and(|x| *x != 0));
                lanes(self.load(*elem, p, size(*elem), count, is_read)?)
            }
            Op::LoadApart(elem) => {
                let (p, step) = (self.pointer(operand(0)?)?, self.index(operand(1)?)?);
                let most = inst.operands.get(2).map(|v| self.index(*v)).transpose()?;
                lanes(self.load(*elem, p, step, count, |lane| most.is_none_or(|n| (lane as i64) < n))?)
            }
            Op::Store { elem, place, masked } => {
                let (p, rest) = self.place(*place, &inst.operands)?;
                let x = rest.first().map_or_else(wrong, |v| self.lanes(*v))?.to_vec();
                let mask = rest.get(1).filter(|_| *masked).map(|v| self.lanes(*v)).transpose()?.map(<[u64]>::to_vec);
                let is_written = |lane: usize| mask.as_ref().is_none_or(|m| m.get(lane).is_some_and(|x| *x != 0));
                self.store(*elem, p, size(*elem), &x, is_written)?;
                Ok(None)
            }
            Op::StoreApart(elem) => {
                let (p, step) = (self.pointer(operand(0)?)?, self.index(operand(1)?)?);
                let x = self.lanes(operand(2)?)?.to_vec();
                let most = inst.operands.get(3).map(|v| self.index(*v)).transpose()?;
                self.store(*elem, p, step, &x, |lane| most.is_none_or(|n| (lane as i64) < n))?;
                Ok(None)
            }
            Op::Prefetch(_) => Ok(None),
        }
    }

    fn load(
        &self,
        elem: Elem,
        from: Pointer,
        step: i64,
        lanes: usize,
        is_read: impl Fn(usize) -> bool,
    ) -> Result<Vec<u64>, String> {
        let mut out = vec![0; lanes];
        let mut p = from;
        for (lane, x) in out.iter_mut().enumerate() {
            if is_read(lane) {
                let mut bytes = [0; 8];
                let n = usize::try_from(elem.size()).unwrap_or(8);
                self.memory.read(p, &mut bytes[..n])?;
                *x = from_memory(elem, u64::from_le_bytes(bytes));
            }
            p.at = p.at.wrapping_add(step);
        }
        Ok(out)
    }

    fn store(
        &mut self,
        elem: Elem,
        to: Pointer,
        step: i64,
        lanes: &[u64],
        is_written: impl Fn(usize) -> bool,
    ) -> Result<(), String> {
        let mut p = to;
        for (lane, x) in lanes.iter().enumerate() {
            if is_written(lane) {
                let n = usize::try_from(elem.size()).unwrap_or(8);
                self.memory.write(p, &to_memory(elem, *x).to_le_bytes()[..n])?;
            }
            p.at = p.at.wrapping_add(step);
        }
        Ok(())
    }
}

fn size(elem: Elem) -> i64 {
    i64::try_from(elem.size()).unwrap_or(8)
}

fn float(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn bits(x: f32) -> u64 {
    u64::from(x.to_bits())
}

/// Decodes an integer or boolean.
fn int(elem: Elem, bits: u64) -> i64 {
    match elem {
        Elem::I32 => i64::from(bits as i32),
        Elem::I8 => i64::from(bits as i8),
        _ => bits.cast_signed(),
    }
}

/// Encodes an integer, wrapped to the element type.
fn of_int(elem: Elem, n: i64) -> u64 {
    match elem {
        Elem::I32 => u64::from((n as i32).cast_unsigned()),
        Elem::Bool => u64::from(n != 0),
        _ => n.cast_unsigned(),
    }
}

fn bits_of(s: Scalar, elem: Elem) -> u64 {
    if elem == Elem::F32 { bits(s.as_f64() as f32) } else { of_int(elem, s.as_i64()) }
}

/// Converts bytes of memory to a lane.
fn from_memory(elem: Elem, raw: u64) -> u64 {
    match elem {
        Elem::BF16 => bits(half::bf16::from_bits(raw as u16).to_f32()),
        Elem::F16 => bits(half::f16::from_bits(raw as u16).to_f32()),
        Elem::I8 => of_int(Elem::I32, int(Elem::I8, raw)),
        Elem::Bool => u64::from(raw != 0),
        Elem::F32 | Elem::I32 | Elem::I64 => raw,
    }
}

/// Converts a lane to bytes of memory.
fn to_memory(elem: Elem, lane: u64) -> u64 {
    match elem {
        Elem::BF16 => u64::from(half::bf16::from_f32(float(lane)).to_bits()),
        Elem::F16 => u64::from(half::f16::from_f32(float(lane)).to_bits()),
        Elem::F32 | Elem::I8 | Elem::I32 | Elem::I64 | Elem::Bool => lane,
    }
}

/// Evaluates a library function on one lane.
fn function(name: &str, args: &[u64], features: Features) -> Result<u64, String> {
    let args: Vec<u32> = args.iter().map(|x| *x as u32).collect();
    interp::eval(&expand::expanded(name, features)?.function, &args).map(u64::from)
}

fn unary(op: UnaryOp, elem: Elem, x: u64, features: Features) -> Result<u64, String> {
    match (elem, library::unary(op)) {
        (Elem::F32, Some(name)) => function(name, &[x], features),
        (Elem::F32, None) => Ok(bits(op.eval_f32(float(x)))),
        _ => op.eval_int(int(elem, x)).map(|n| of_int(elem, n)).map_or_else(wrong, Ok),
    }
}

fn binary(op: BinaryOp, elem: Elem, x: u64, y: u64, features: Features) -> Result<u64, String> {
    let ty = match elem {
        Elem::F32 => Some(vector::Type::F32),
        Elem::I32 => Some(vector::Type::I32),
        _ => None,
    };
    Ok(match (elem, ty.and_then(|ty| library::binary(op, ty))) {
        (_, Some(name)) => function(name, &[x, y], features)?,
        (Elem::F32, None) => bits(op.eval_f32(float(x), float(y))),
        _ => of_int(elem, op.eval_int(int(elem, x), int(elem, y))),
    })
}

fn compare(op: CmpOp, elem: Elem, x: u64, y: u64) -> bool {
    if elem == Elem::F32 { op.eval(float(x), float(y)) } else { op.eval(int(elem, x), int(elem, y)) }
}

fn cast(from: Elem, to: Elem, x: u64) -> u64 {
    match (from, to) {
        (Elem::F32, Elem::F32) => x,
        (Elem::F32, Elem::I32) => of_int(to, i64::from(float(x) as i32)),
        (Elem::F32, Elem::Bool) => u64::from(float(x) != 0.0),
        (Elem::F32, _) => of_int(to, float(x) as i64),
        (_, Elem::F32) => bits(int(from, x) as f32),
        (_, _) => of_int(to, int(from, x)),
    }
}

fn narrow(elem: Elem, x: u64) -> u64 {
    match elem {
        Elem::BF16 | Elem::F16 => from_memory(elem, to_memory(elem, x)),
        _ => of_int(Elem::I32, int(elem, x)),
    }
}

fn combine(kind: ReduceKind, elem: Elem, x: u64, y: u64) -> Result<u64, String> {
    match (kind, kind.combination()) {
        (ReduceKind::All, _) => Ok(x & y),
        (ReduceKind::Any, _) => Ok(x | y),
        (_, Some(op)) => binary(op, elem, x, y, Features::PLAIN),
        (_, None) => wrong(),
    }
}
