//! Blocks, instructions and values, and queries.

use cranelift_entity::{PrimaryMap, SecondaryMap};

use super::{Block, Dialect, Inst, Jumps, Terminator, Value};
use crate::cfg::{self, Cfg, Flow};
use crate::source::Loc;

/// The definition of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueDef {
    /// Defined outside of the blocks: a parameter of a kernel, an index of its grid.
    Param,
    /// The result of an instruction.
    Result(Inst),
    /// An argument of a block, and which.
    Arg(Block, usize),
}

#[derive(Clone, Debug)]
pub(super) struct ValueData<T> {
    pub(super) ty: T,
    pub(super) def: ValueDef,
}

/// An instruction: operation, operands, result, location.
#[derive(Clone, Debug)]
pub struct InstData<O> {
    /// The operation with its attributes.
    pub op: O,
    /// Operands, in the order of the operation.
    pub operands: Vec<Value>,
    /// The result, if it has one.
    pub result: Option<Value>,
    /// Source location.
    pub loc: Loc,
    /// For an operation fused from several: the locations of its parts, in order; else empty.
    pub parts: Vec<Loc>,
}

/// A basic block: arguments, instructions, terminator.
#[derive(Clone, Debug)]
pub struct BlockData<R> {
    /// Name in the text form; empty for a number.
    pub name: String,
    /// Block arguments; each jump passes one value for each.
    pub args: Vec<Value>,
    /// Its instructions, in order.
    pub insts: Vec<Inst>,
    /// The end of the block.
    pub terminator: Terminator<R>,
}

/// Blocks, instructions and values.
#[derive(Clone, Debug)]
pub struct Body<D: Dialect> {
    pub(super) values: PrimaryMap<Value, ValueData<D::Type>>,
    pub(super) insts: PrimaryMap<Inst, InstData<D::Op>>,
    pub(super) blocks: PrimaryMap<Block, BlockData<D::Roles>>,
    /// Names of values in the text form; empty for a number.
    names: SecondaryMap<Value, String>,
    /// Blocks in order; the first is the entry.
    pub layout: Vec<Block>,
}

/// A body without blocks.
impl<D: Dialect> Default for Body<D> {
    fn default() -> Self {
        Body {
            values: PrimaryMap::new(),
            insts: PrimaryMap::new(),
            blocks: PrimaryMap::new(),
            names: SecondaryMap::new(),
            layout: Vec::new(),
        }
    }
}

impl<D: Dialect> Body<D> {
    /// A body with an empty entry block.
    pub fn new() -> Self {
        let mut b = Body::default();
        b.add_block();
        b
    }

    /// The entry block: the first of the layout.
    pub fn entry(&self) -> Block {
        self.layout.first().copied().unwrap_or(Block::from_u32(0))
    }

    /// Type of a value.
    pub fn ty(&self, v: Value) -> &D::Type {
        &self.values[v].ty
    }

    /// The definition of a value.
    pub fn def(&self, v: Value) -> ValueDef {
        self.values[v].def
    }

    /// The instruction that defines a value, if any.
    pub fn def_inst(&self, v: Value) -> Option<&InstData<D::Op>> {
        self.definition(v).map(|(_, data)| data)
    }

    /// The instruction that defines a value, with its id, if any.
    pub fn definition(&self, v: Value) -> Option<(Inst, &InstData<D::Op>)> {
        match self.values[v].def {
            ValueDef::Result(i) => Some((i, &self.insts[i])),
            ValueDef::Param | ValueDef::Arg(..) => None,
        }
    }

    /// The block in the layout that has an instruction, if any.
    pub fn block_of(&self, i: Inst) -> Option<Block> {
        self.layout.iter().copied().find(|b| self.blocks[*b].insts.contains(&i))
    }

    /// The data of an instruction.
    pub fn inst(&self, i: Inst) -> &InstData<D::Op> {
        &self.insts[i]
    }

    /// The data of a block.
    pub fn block(&self, b: Block) -> &BlockData<D::Roles> {
        &self.blocks[b]
    }

    /// Is this a block of the body, in the layout or not?
    pub fn has_block(&self, b: Block) -> bool {
        self.blocks.is_valid(b)
    }

    /// Is this an instruction of the body, in a block or not?
    pub fn has_inst(&self, i: Inst) -> bool {
        self.insts.is_valid(i)
    }

    /// Is this a value of the body, used or not?
    pub fn has_value(&self, v: Value) -> bool {
        self.values.is_valid(v)
    }

    /// Number of values, dead ones included; for dense maps.
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// Name of a value in the text form; empty for a number.
    pub fn name(&self, v: Value) -> &str {
        &self.names[v]
    }

    /// Names a value in the text form (letters, digits and `_`, not digits alone).
    pub fn set_name(&mut self, v: Value, name: &str) {
        self.names[v] = name.to_string();
    }

    /// Removes the names of all values.
    pub fn forget_names(&mut self) {
        self.names.clear();
    }

    /// Every instruction in the blocks, in order, with its block; nested instructions follow the
    /// operation that holds them.
    pub fn insts(&self) -> impl Iterator<Item = (Block, Inst, &InstData<D::Op>)> {
        self.layout.iter().flat_map(move |b| {
            let insts = self.blocks[*b].insts.iter().flat_map(move |i| self.with_inner(*i));
            insts.map(move |i| (*b, i, &self.insts[i]))
        })
    }

    /// An instruction, followed by its nested ones.
    pub fn with_inner(&self, i: Inst) -> impl Iterator<Item = Inst> {
        std::iter::once(i).chain(D::inner(&self.insts[i].op).iter().copied())
    }

    /// Calls `f` on every value that an instruction uses: operands, and values in its attributes
    /// and its result's type.
    pub fn for_each_use(&self, i: Inst, mut f: impl FnMut(Value)) {
        let data = &self.insts[i];
        data.operands.iter().for_each(|v| f(*v));
        D::for_each_value_of_op(&data.op, &mut f);
        if let Some(v) = data.result {
            D::for_each_value_of_type(&self.values[v].ty, &mut f);
        }
    }

    /// Predecessors of each block that is in the layout, in order.
    pub fn predecessors(&self) -> SecondaryMap<Block, Vec<Block>> {
        cfg::predecessors(self)
    }

    /// Blocks in reverse postorder: each comes after its dominators; unreachable ones are omitted.
    pub fn reverse_postorder(&self) -> Vec<Block> {
        cfg::reverse_postorder(self)
    }

    /// Dominators and loops; valid until jumps change.
    pub fn cfg(&self) -> Cfg<Block> {
        Cfg::new(self)
    }
}

impl<D: Dialect> Flow for Body<D> {
    type Block = Block;

    fn layout(&self) -> &[Block] {
        &self.layout
    }

    fn targets(&self, block: Block) -> Vec<Block> {
        match &self.blocks[block].terminator {
            Terminator::Br(c) => vec![c.block],
            Terminator::BrIf { then, otherwise, .. } => vec![then.block, otherwise.block],
            Terminator::Return(_) => Vec::new(),
            Terminator::Roles(roles) => roles.targets().into_iter().map(|c| c.block).collect(),
        }
    }
}
