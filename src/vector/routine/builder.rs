//! Building a routine instruction by instruction.
//!
//! In: calls from lowering. Out: a [`Routine`], and for each of its instructions the tile operation
//! that it comes from. Constants are deduplicated at the start of the entry. A type error is
//! recorded and reported by `finish`.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;

use super::{AddressMode, Body, Op, Routine, Terminator, Type};
use crate::scalar::BinaryOp;
use crate::scalar::Scalar;
use crate::shape::Elem;
use crate::source::Loc;
use crate::ssa::{Block, BlockCall, Inst, Value};
use crate::table::OperandTypes;
use crate::vector::Features;

/// A number as a key: its bits, and is it a float?
type Key = (u64, bool);

fn key(s: Scalar) -> Key {
    match s {
        Scalar::Float(x) => (x.to_bits(), true),
        Scalar::Int(_) | Scalar::Bool(_) => (s.as_i64().cast_unsigned(), false),
    }
}

/// A routine under construction.
pub struct Builder {
    routine: Routine,
    now: Block,
    /// Constants, and their number at the start of the entry.
    constants: BTreeMap<(Key, Type), Value>,
    /// The tile operation that the next instructions come from.
    origin: Option<Inst>,
    origins: SecondaryMap<Inst, Option<Inst>>,
    order: Vec<Block>,
    wrong: Option<String>,
}

impl Builder {
    /// An empty routine with `lanes` lanes per vector.
    pub fn new(name: &str, lanes: u32, features: Features) -> Builder {
        let body = Body::new();
        let now = body.entry();
        let routine = Routine { name: name.to_string(), lanes, features, params: Vec::new(), body };
        Builder {
            routine,
            now,
            constants: BTreeMap::new(),
            origin: None,
            origins: SecondaryMap::new(),
            order: vec![now],
            wrong: None,
        }
    }

    /// The type of a full vector of these elements.
    pub fn vector(&self, elem: Elem) -> Type {
        Type::Lanes(elem, self.routine.lanes)
    }

    /// Type of a value.
    pub fn ty(&self, v: Value) -> Type {
        *self.routine.body.ty(v)
    }

    /// Adds a parameter.
    pub fn param(&mut self, ty: Type) -> Value {
        let v = self.routine.body.add_param(ty);
        self.routine.params.push((v, String::new()));
        v
    }

    /// Sets the tile operation that the next instructions come from.
    pub fn code_of(&mut self, origin: Option<Inst>) {
        self.origin = origin;
    }

    /// The current tile operation.
    pub fn origin(&self) -> Option<Inst> {
        self.origin
    }

    fn append(&mut self, op: Op, operands: &[Value], declared: Option<Type>) -> Option<Value> {
        let types: Vec<&Type> = operands.iter().map(|v| self.routine.body.ty(*v)).collect();
        let ty = match op.rule(OperandTypes { types: &types, declared: declared.as_ref() }) {
            Ok(ty) => ty,
            Err(message) => {
                self.wrong.get_or_insert(format!("{}: `{op}` {message}", self.routine.name));
                declared
            }
        };
        let inst = self.routine.body.make_inst(op, operands.to_vec(), ty, Loc::default());
        self.routine.body.block_mut(self.now).insts.push(inst);
        self.origins[inst] = self.origin;
        self.routine.body.inst(inst).result
    }

    /// An instruction whose type follows from its operands.
    pub fn inst(&mut self, op: Op, operands: &[Value]) -> Value {
        // An operation without a result is a recorded error.
        self.append(op, operands, None).unwrap_or(Value::from_u32(0))
    }

    /// An instruction with this type.
    pub fn typed(&mut self, op: Op, operands: &[Value], ty: Type) -> Value {
        self.append(op, operands, Some(ty)).unwrap_or(Value::from_u32(0))
    }

    /// An instruction without a result.
    pub fn effect(&mut self, op: Op, operands: &[Value]) {
        self.append(op, operands, None);
    }

    /// A constant: the same number in every lane, or an index.
    pub fn constant(&mut self, s: Scalar, ty: Type) -> Value {
        if let Some(v) = self.constants.get(&(key(s), ty)) {
            return *v;
        }
        let body = &mut self.routine.body;
        let inst = body.make_inst(Op::Const(s), Vec::new(), Some(ty), Loc::default());
        let entry = body.entry();
        let at = self.constants.len();
        body.block_mut(entry).insts.insert(at, inst);
        let v = body.inst(inst).result.unwrap_or(Value::from_u32(0));
        self.constants.insert((key(s), ty), v);
        v
    }

    /// A constant index.
    pub fn index(&mut self, n: i64) -> Value {
        self.constant(Scalar::Int(n), Type::Index)
    }

    /// An integer in every lane.
    pub fn int(&mut self, n: i32) -> Value {
        let ty = self.vector(Elem::I32);
        self.constant(Scalar::Int(i64::from(n)), ty)
    }

    /// The sum of two indices, or of an address and an index.
    pub fn add(&mut self, a: Value, b: Value) -> Value {
        self.inst(Op::Binary(BinaryOp::Add), &[a, b])
    }

    /// Loads contiguous elements, or a single one.
    pub fn load(&mut self, elem: Elem, at: &MemoryOperand, mask: Option<Value>, ty: Type) -> Value {
        let mut operands = at.operands();
        operands.extend(mask);
        self.typed(Op::Load { elem, place: at.place, masked: mask.is_some() }, &operands, ty)
    }

    /// Stores contiguous elements, or a single one.
    pub fn store(&mut self, elem: Elem, at: &MemoryOperand, x: Value, mask: Option<Value>) {
        let mut operands = at.operands();
        operands.push(x);
        operands.extend(mask);
        self.effect(Op::Store { elem, place: at.place, masked: mask.is_some() }, &operands);
    }

    /// A block to be started later, with arguments of the same types as these values.
    pub fn block_for(&mut self, values: &[Value]) -> Block {
        let block = self.routine.body.add_block();
        for v in values {
            let ty = self.ty(*v);
            self.routine.body.add_block_arg(block, ty);
        }
        block
    }

    /// Continues in this block; returns its arguments.
    pub fn start(&mut self, block: Block) -> Vec<Value> {
        self.now = block;
        self.order.push(block);
        self.routine.body.block(block).args.clone()
    }

    /// Ends the current block with a jump.
    pub fn jump(&mut self, block: Block, args: &[Value]) {
        let call = BlockCall { block, args: args.to_vec() };
        self.routine.body.terminate(self.now, Terminator::Br(call));
    }

    /// Ends the current block with a branch: to `then` if the condition holds, else to `otherwise`.
    pub fn branch(&mut self, condition: Value, then: (Block, &[Value]), otherwise: (Block, &[Value])) {
        let call = |(block, args): (Block, &[Value])| BlockCall { block, args: args.to_vec() };
        let (then, otherwise) = (call(then), call(otherwise));
        self.routine.body.terminate(self.now, Terminator::BrIf { condition, then, otherwise });
    }

    /// Finishes the routine; returns the origin of each instruction. Dead instructions are kept,
    /// since back ends drop them anyway.
    ///
    /// # Errors
    /// A type error: a bug in lowering.
    pub fn finish(self) -> Result<(Routine, SecondaryMap<Inst, Option<Inst>>), String> {
        let Builder { mut routine, origins, order, wrong, .. } = self;
        if let Some(message) = wrong {
            return Err(message);
        }
        routine.body.layout = order;
        Ok((routine, origins))
    }
}

/// An addressing mode with its operands.
#[derive(Clone, Copy, Debug)]
pub struct MemoryOperand {
    /// The base address.
    pub base: Value,
    /// The index, if there is a scale.
    pub index: Option<Value>,
    /// Scale and offset.
    pub place: AddressMode,
}

impl MemoryOperand {
    /// The address `base`.
    pub fn new(base: Value) -> MemoryOperand {
        MemoryOperand { base, index: None, place: AddressMode::HERE }
    }

    /// Adds `bytes` to the offset.
    #[must_use]
    pub fn plus(self, bytes: i32) -> MemoryOperand {
        MemoryOperand { place: AddressMode { offset: self.place.offset.wrapping_add(bytes), ..self.place }, ..self }
    }

    /// Adds a scaled index.
    #[must_use]
    pub fn indexed(self, index: Value, scale: u8) -> MemoryOperand {
        MemoryOperand { index: Some(index), place: AddressMode { scale, ..self.place }, ..self }
    }

    /// Its operands: base, and index if any.
    pub fn operands(&self) -> Vec<Value> {
        std::iter::once(self.base).chain(self.index).collect()
    }
}
