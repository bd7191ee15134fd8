//! The SSA body that kernels and plans have: blocks, instructions, values.
//!
//! What an instruction *is* stands apart from the *order* of instructions and blocks; places are part of the instruction.
//! The instructions of a `run` are in the same body and listed by the `run` alone.

use cranelift_entity::PrimaryMap;

use super::{Block, Inst, Op, Type, Value};
use crate::cfg::{self, Flow};
use crate::ir::Loc;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueDef {
    /// A parameter of the kernel, or an index of its grid.
    Param,
    /// A result of an instruction.
    Result(Inst),
    /// An argument of a block, and which.
    Arg(Block, usize),
}

#[derive(Clone, Debug)]
struct ValueData {
    ty: Type,
    def: ValueDef,
    name: String,
}

/// An instruction.
#[derive(Clone, Debug)]
pub struct InstData {
    /// The operation with its attributes.
    pub op: Op,
    /// The operands.
    pub operands: Vec<Value>,
    /// The result, if it has one.
    pub result: Option<Value>,
    /// Place in the source.
    pub loc: Loc,
}

/// A jump with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockCall {
    /// The target.
    pub block: Block,
    /// Values for the target's arguments.
    pub args: Vec<Value>,
}

/// How a block ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Terminator {
    /// Goes on at a block.
    Br(BlockCall),
    /// Goes on at the first block if the condition (a `bool` scalar) holds, else at the second.
    BrIf {
        /// The condition.
        condition: Value,
        /// Where it goes if the condition holds.
        then: BlockCall,
        /// Where it goes if not.
        otherwise: BlockCall,
    },
    /// Leaves the kernel (for this grid point) or the plan.
    Return,
    /// GPU: the warps of a block part, each role with blocks of its own; they do not join again.
    Roles(Vec<Role>),
}

/// What some warps of a block do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// What they are.
    pub name: String,
    /// How many warps, counted on from those of the roles before.
    pub warps: u32,
    /// Registers that each thread gets (`setmaxnreg`).
    pub registers: u32,
    /// Where they go on.
    pub target: BlockCall,
}

impl Terminator {
    /// The jumps, in order.
    pub fn targets(&self) -> Vec<&BlockCall> {
        match self {
            Terminator::Br(c) => vec![c],
            Terminator::BrIf { then, otherwise, .. } => vec![then, otherwise],
            Terminator::Return => Vec::new(),
            Terminator::Roles(roles) => roles.iter().map(|r| &r.target).collect(),
        }
    }

    /// The values that are used.
    pub fn values(&self) -> Vec<Value> {
        let condition = match self {
            Terminator::BrIf { condition, .. } => Some(*condition),
            Terminator::Br(_) | Terminator::Return | Terminator::Roles(_) => None,
        };
        condition.into_iter().chain(self.targets().into_iter().flat_map(|c| c.args.iter().copied())).collect()
    }
}

/// A basic block.
#[derive(Clone, Debug)]
pub struct BlockData {
    /// Name in the text form; empty for a number.
    pub name: String,
    /// Its arguments.
    pub args: Vec<Value>,
    /// Its instructions, in order.
    pub insts: Vec<Inst>,
    /// How it ends.
    pub terminator: Terminator,
}

/// Blocks, instructions and values.
#[derive(Clone, Debug, Default)]
pub struct Body {
    values: PrimaryMap<Value, ValueData>,
    insts: PrimaryMap<Inst, InstData>,
    blocks: PrimaryMap<Block, BlockData>,
    /// Blocks in order; the first is the entry and has no arguments.
    pub layout: Vec<Block>,
}

impl Body {
    /// A body with an empty entry block.
    pub fn new() -> Body {
        let mut b = Body::default();
        b.add_block();
        b
    }

    /// The entry block.
    pub fn entry(&self) -> Block {
        self.layout.first().copied().unwrap_or(Block::from_u32(0))
    }

    /// Adds an empty block at the end; it returns until it gets a terminator.
    pub fn add_block(&mut self) -> Block {
        let data =
            BlockData { name: String::new(), args: Vec::new(), insts: Vec::new(), terminator: Terminator::Return };
        let b = self.blocks.push(data);
        self.layout.push(b);
        b
    }

    /// Adds an argument to a block.
    pub fn add_block_arg(&mut self, block: Block, ty: Type) -> Value {
        let index = self.blocks[block].args.len();
        let v = self.values.push(ValueData { ty, def: ValueDef::Arg(block, index), name: String::new() });
        self.blocks[block].args.push(v);
        v
    }

    /// Adds a value that is there from the start: a parameter, or an index of the grid.
    pub fn add_param(&mut self, ty: Type) -> Value {
        self.values.push(ValueData { ty, def: ValueDef::Param, name: String::new() })
    }

    /// Makes an instruction that is in no block yet.
    pub fn make_inst(&mut self, op: Op, operands: Vec<Value>, ty: Option<Type>, loc: Loc) -> Inst {
        let inst = self.insts.push(InstData { op, operands, result: None, loc });
        if let Some(ty) = ty {
            let v = self.values.push(ValueData { ty, def: ValueDef::Result(inst), name: String::new() });
            self.insts[inst].result = Some(v);
        }
        inst
    }

    /// Appends an instruction to a block; its result, if it has one.
    pub fn push(&mut self, block: Block, op: Op, operands: Vec<Value>, ty: Option<Type>, loc: Loc) -> Option<Value> {
        let inst = self.make_inst(op, operands, ty, loc);
        self.blocks[block].insts.push(inst);
        self.insts[inst].result
    }

    /// Type of a value.
    pub fn ty(&self, v: Value) -> &Type {
        &self.values[v].ty
    }

    /// Changes the type of a value: the schedule gives tiles their place.
    pub fn set_ty(&mut self, v: Value, ty: Type) {
        self.values[v].ty = ty;
    }

    /// Where a value comes from.
    pub fn def(&self, v: Value) -> ValueDef {
        self.values[v].def
    }

    /// The instruction that makes a value, if one does.
    pub fn def_inst(&self, v: Value) -> Option<&InstData> {
        match self.values[v].def {
            ValueDef::Result(i) => Some(&self.insts[i]),
            ValueDef::Param | ValueDef::Arg(..) => None,
        }
    }

    /// An instruction.
    pub fn inst(&self, i: Inst) -> &InstData {
        &self.insts[i]
    }

    /// An instruction, to be changed.
    pub fn inst_mut(&mut self, i: Inst) -> &mut InstData {
        &mut self.insts[i]
    }

    /// A block.
    pub fn block(&self, b: Block) -> &BlockData {
        &self.blocks[b]
    }

    /// A block, to be changed.
    pub fn block_mut(&mut self, b: Block) -> &mut BlockData {
        &mut self.blocks[b]
    }

    /// Sets how a block ends.
    pub fn terminate(&mut self, b: Block, t: Terminator) {
        self.blocks[b].terminator = t;
    }

    /// Is this number a value of the body?
    pub fn is_value(&self, v: Value) -> bool {
        self.values.is_valid(v)
    }

    /// Is this number an instruction of the body?
    pub fn is_inst(&self, i: Inst) -> bool {
        self.insts.is_valid(i)
    }

    /// Is this number a block of the body?
    pub fn is_block(&self, b: Block) -> bool {
        self.blocks.is_valid(b)
    }

    /// Name of a value in the text form; empty for a number.
    pub fn name(&self, v: Value) -> &str {
        &self.values[v].name
    }

    /// Names a value in the text form (letters, digits and `_`, not digits alone).
    pub fn set_name(&mut self, v: Value, name: &str) {
        self.values[v].name = name.to_string();
    }

    /// Every instruction, in order, those of runs after the run itself.
    pub fn insts(&self) -> Vec<Inst> {
        let mut out = Vec::new();
        for b in &self.layout {
            for i in &self.blocks[*b].insts {
                out.push(*i);
                if let Op::Run { insts, .. } = &self.insts[*i].op {
                    out.extend(insts);
                }
            }
        }
        out
    }

    /// How many values there are; for dense maps.
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// Blocks so that each comes after those that dominate it; unreachable ones are left out.
    pub fn reverse_postorder(&self) -> Vec<Block> {
        cfg::reverse_postorder(self)
    }
}

impl Flow for Body {
    type Block = Block;

    fn layout(&self) -> &[Block] {
        &self.layout
    }

    fn targets(&self, block: Block) -> Vec<Block> {
        self.blocks[block].terminator.targets().iter().map(|c| c.block).collect()
    }
}
