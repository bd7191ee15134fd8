//! Modules, functions, blocks and instructions, and the edits that passes make.
//!
//! What an instruction *is* (`insts`) stands apart from the *order* of instructions (`BlockData::insts`) and of blocks
//! (`layout`); places in the source are a side table. An instruction that is no longer in a block is dead; nothing
//! points to it, and printing renumbers.

use std::fmt;

use cranelift_entity::{PrimaryMap, SecondaryMap};

use super::{Block, Inst, Op, Scalar, Value};
use crate::cfg::{self, Flow};
use crate::shape::{Elem, Fact, TensorType};

/// Type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A tensor.
    Tensor(TensorType),
    /// A loop counter or a dimension: a 64-bit integer that is no tensor.
    Index,
}

impl Type {
    /// The tensor type, if it is one.
    pub fn tensor(&self) -> Option<&TensorType> {
        match self {
            Type::Tensor(t) => Some(t),
            Type::Index => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tensor(t) => t.fmt(f),
            Type::Index => f.write_str("index"),
        }
    }
}

/// A place in the source: file (0 is the module's own, others index `Module::files` from 1), line and column from 1.
/// Line 0 means that there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Loc {
    /// Number of the file.
    pub file: u32,
    /// Line, from 1; 0 where there is no place.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl Loc {
    /// The name of the place's file; `own` is the module's, `files` are the others.
    pub fn file_name<'a>(self, own: &'a str, files: &'a [String]) -> &'a str {
        match usize::try_from(self.file).ok().and_then(|n| n.checked_sub(1)) {
            None => own,
            Some(n) => files.get(n).map_or("?", String::as_str),
        }
    }

    /// `gpt2.attn:22:26`, or the file's name alone where there is no place.
    pub fn text(self, own: &str, files: &[String]) -> String {
        let file = self.file_name(own, files);
        if self.line == 0 { file.to_string() } else { format!("{file}:{}:{}", self.line, self.column) }
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueDef {
    /// The result of an instruction.
    Result(Inst),
    /// An argument of a block, and which.
    Arg(Block, usize),
}

#[derive(Clone, Debug)]
struct ValueData {
    ty: Type,
    def: ValueDef,
}

/// An instruction: operation, operands, result, place.
#[derive(Clone, Debug)]
pub struct InstData {
    /// The operation with its attributes.
    pub op: Op,
    /// The operands.
    pub operands: Vec<Value>,
    /// The result, unless the operation has only an effect.
    pub result: Option<Value>,
    /// Place in the source.
    pub loc: Loc,
    /// Of an operation that was made of several, the places of its steps, in the order of [`InstData::steps`]; else empty.
    pub parts: Vec<Loc>,
}

impl InstData {
    /// Names of the steps that an operation was made of: of an attention the product that makes the scores, their scale, what
    /// is done to them, and the softmax (its own place is that of the product with the values).
    pub fn steps(&self) -> Vec<&'static str> {
        match &self.op {
            Op::Attention { masks } => {
                let masks = masks.iter().map(|m| m.name());
                ["scores", "scale"].into_iter().chain(masks).chain(["softmax"]).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// A jump to a block with its arguments.
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
    /// Goes on at the first block if the condition (`bool[]`) holds, else at the second.
    BrIf {
        /// The condition.
        condition: Value,
        /// Where it goes if the condition holds.
        then: BlockCall,
        /// Where it goes if not.
        otherwise: BlockCall,
    },
    /// Leaves the function with its results.
    Return(Vec<Value>),
}

impl Terminator {
    /// The jumps, in order.
    pub fn targets(&self) -> Vec<&BlockCall> {
        match self {
            Terminator::Br(c) => vec![c],
            Terminator::BrIf { then, otherwise, .. } => vec![then, otherwise],
            Terminator::Return(_) => Vec::new(),
        }
    }

    /// The jumps, to be changed.
    pub fn targets_mut(&mut self) -> Vec<&mut BlockCall> {
        match self {
            Terminator::Br(c) => vec![c],
            Terminator::BrIf { then, otherwise, .. } => vec![then, otherwise],
            Terminator::Return(_) => Vec::new(),
        }
    }

    /// Calls `f` on every value that is used.
    pub fn for_each_value(&self, mut f: impl FnMut(Value)) {
        match self {
            Terminator::Br(c) => c.args.iter().for_each(|v| f(*v)),
            Terminator::BrIf { condition, then, otherwise } => {
                f(*condition);
                then.args.iter().chain(&otherwise.args).for_each(|v| f(*v));
            }
            Terminator::Return(vs) => vs.iter().for_each(|v| f(*v)),
        }
    }

    /// Calls `f` on every value that is used, to be changed.
    pub fn for_each_value_mut(&mut self, mut f: impl FnMut(&mut Value)) {
        match self {
            Terminator::Br(c) => c.args.iter_mut().for_each(f),
            Terminator::BrIf { condition, then, otherwise } => {
                f(condition);
                then.args.iter_mut().chain(&mut otherwise.args).for_each(f);
            }
            Terminator::Return(vs) => vs.iter_mut().for_each(f),
        }
    }
}

/// A basic block.
#[derive(Clone, Debug)]
pub struct BlockData {
    /// Its arguments.
    pub args: Vec<Value>,
    /// Its instructions, in order.
    pub insts: Vec<Inst>,
    /// How it ends.
    pub terminator: Terminator,
}

/// An argument of an entry point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgDecl {
    /// Name in the program.
    pub name: String,
    /// Its type.
    pub ty: TensorType,
    /// Is its first axis the flattened `..` of the source: any number of leading axes, collapsed at the door?
    pub batch: bool,
}

/// A result of an entry point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultDecl {
    /// Its type.
    pub ty: TensorType,
    /// Is its first axis the flattened `..`?
    pub batch: bool,
}

/// A parameter of a model: one tensor, or as many as the arrays of layers on its path have elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamDecl {
    /// Its path in a weights file, with `*` for each array index.
    pub name: String,
    /// Extents of the arrays, outermost first; one for each `*`.
    pub counts: Vec<u64>,
    /// Type of each tensor.
    pub ty: TensorType,
}

/// The parameter of this name. They are in order of name, so that one of many layers is found in few steps; a text that
/// has them otherwise is gone through.
pub fn param_named<'a>(params: &'a [ParamDecl], name: &str) -> Option<&'a ParamDecl> {
    let found = params.binary_search_by(|p| p.name.as_str().cmp(name));
    match found {
        Ok(at) => params.get(at),
        Err(_) => params.iter().find(|p| p.name == name),
    }
}

/// What is compiled as one: the parameters of a model and its entry points.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// Base name of the source file.
    pub name: String,
    /// The other source files (of the standard library), by the number that places use, from 1.
    pub files: Vec<String>,
    /// Name of the model; empty where a text has none.
    pub model: String,
    /// Documentation of the model.
    pub doc: String,
    /// Parameters, in order of name.
    pub params: Vec<ParamDecl>,
    /// Entry points, in the order of the source.
    pub functions: Vec<Function>,
}

/// An entry point, or the body of a fused region.
#[derive(Clone, Debug)]
pub struct Function {
    /// Name of the entry point; empty for the body of a fused region.
    pub name: String,
    /// Documentation from the source.
    pub doc: String,
    /// Arguments; the entry block's arguments are their values, in order. Empty for the body of a fused region.
    pub args: Vec<ArgDecl>,
    /// Results. Empty for the body of a fused region.
    pub results: Vec<ResultDecl>,
    /// Facts about run-time dimensions that the call must check at its door, each with its place.
    pub checks: Vec<(Fact, Loc)>,
    /// Is this the variant of the entry point that fills its taps?
    pub tapped: bool,
    values: PrimaryMap<Value, ValueData>,
    insts: PrimaryMap<Inst, InstData>,
    blocks: PrimaryMap<Block, BlockData>,
    /// Blocks in order; the first is the entry.
    pub layout: Vec<Block>,
}

/// Who uses a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// An instruction, as its operand number `.1`.
    Operand(Inst, usize),
    /// The terminator of a block.
    Terminator(Block),
}

/// A use of a value.
pub type Use = User;

/// Bodies are compared by structure, for `Op`'s equality: same text.
impl PartialEq for Function {
    fn eq(&self, o: &Function) -> bool {
        self.structure() == o.structure()
    }
}

impl Default for Function {
    fn default() -> Self {
        Function::new("")
    }
}

impl Function {
    /// A function with an empty entry block that returns nothing yet.
    pub fn new(name: &str) -> Function {
        let mut f = Function {
            name: name.to_string(),
            doc: String::new(),
            args: Vec::new(),
            results: Vec::new(),
            checks: Vec::new(),
            tapped: false,
            values: PrimaryMap::new(),
            insts: PrimaryMap::new(),
            blocks: PrimaryMap::new(),
            layout: Vec::new(),
        };
        f.add_block();
        f
    }

    fn structure(&self) -> String {
        // Values in order of appearance, so that numbering does not matter.
        let mut numbers: SecondaryMap<Value, u32> = SecondaryMap::new();
        let mut next = 0;
        let mut out = String::new();
        for b in &self.layout {
            for v in &self.blocks[*b].args {
                next += 1;
                numbers[*v] = next;
                out += &format!("a{}:{};", next, self.ty(*v));
            }
            for i in &self.blocks[*b].insts {
                let d = &self.insts[*i];
                if let Some(v) = d.result {
                    next += 1;
                    numbers[v] = next;
                    out += &format!("{}:{}=", next, self.ty(v));
                }
                let operands: Vec<u32> = d.operands.iter().map(|v| numbers[*v]).collect();
                out += &format!("{:?}{operands:?};", d.op);
            }
            out += &format!("{:?};", self.blocks[*b].terminator.targets().iter().map(|c| c.block).collect::<Vec<_>>());
            self.blocks[*b].terminator.for_each_value(|v| out += &format!("{},", numbers[v]));
        }
        out
    }

    /// The entry block.
    pub fn entry(&self) -> Block {
        self.layout.first().copied().unwrap_or(Block::from_u32(0))
    }

    /// Adds an empty block at the end; it returns nothing until it gets a terminator.
    pub fn add_block(&mut self) -> Block {
        let b = self.blocks.push(BlockData {
            args: Vec::new(),
            insts: Vec::new(),
            terminator: Terminator::Return(Vec::new()),
        });
        self.layout.push(b);
        b
    }

    /// Adds an argument to a block.
    pub fn add_block_arg(&mut self, block: Block, ty: Type) -> Value {
        let index = self.blocks[block].args.len();
        let v = self.values.push(ValueData { ty, def: ValueDef::Arg(block, index) });
        self.blocks[block].args.push(v);
        v
    }

    /// Makes an instruction that is in no block yet. A constant of a small float type is rounded to it: what is printed is what
    /// passes see.
    pub fn make_inst(&mut self, op: Op, operands: Vec<Value>, ty: Option<Type>, loc: Loc) -> Inst {
        let op = op.rounded(ty.as_ref());
        let inst = self.insts.push(InstData { op, operands, result: None, loc, parts: Vec::new() });
        if let Some(ty) = ty {
            let v = self.values.push(ValueData { ty, def: ValueDef::Result(inst) });
            self.insts[inst].result = Some(v);
        }
        inst
    }

    /// Appends an instruction whose type the caller knows; its result (for an operation without one: `None`).
    pub fn push(&mut self, block: Block, op: Op, operands: Vec<Value>, ty: Option<Type>, loc: Loc) -> Option<Value> {
        let inst = self.make_inst(op, operands, ty, loc);
        self.blocks[block].insts.push(inst);
        self.insts[inst].result
    }

    /// Appends an instruction, its type computed by the operation's rule.
    ///
    /// # Errors
    /// The rule's complaint about the operands, in words.
    pub fn append(
        &mut self,
        block: Block,
        op: Op,
        operands: Vec<Value>,
        declared: Option<Type>,
        loc: Loc,
    ) -> Result<Option<Value>, String> {
        let types: Vec<&Type> = operands.iter().map(|v| self.ty(*v)).collect();
        let ty = super::result_type(&op, &types, declared.as_ref())?;
        Ok(self.push(block, op, operands, ty, loc))
    }

    /// Says where the steps stand of the operation that makes a value.
    pub fn set_parts(&mut self, v: Value, parts: &[Loc]) {
        if let ValueDef::Result(inst) = self.values[v].def {
            self.insts[inst].parts = parts.to_vec();
        }
    }

    /// Appends a scalar constant.
    pub fn push_const(&mut self, block: Block, value: Scalar, elem: Elem, loc: Loc) -> Value {
        let ty = Type::Tensor(TensorType::scalar(elem));
        let inst = self.make_inst(Op::Const(value), Vec::new(), Some(ty), loc);
        self.blocks[block].insts.push(inst);
        match self.insts[inst].result {
            Some(v) => v,
            None => unreachable!("a constant has a result"),
        }
    }

    /// Inserts an instruction made by [`Function::make_inst`] before another one of the block.
    pub fn insert_before(&mut self, block: Block, before: Inst, inst: Inst) {
        let list = &mut self.blocks[block].insts;
        let at = list.iter().position(|i| *i == before).unwrap_or(list.len());
        list.insert(at, inst);
    }

    /// Type of a value.
    pub fn ty(&self, v: Value) -> &Type {
        &self.values[v].ty
    }

    /// Tensor type of a value, if it is a tensor.
    pub fn tensor(&self, v: Value) -> Option<&TensorType> {
        self.values[v].ty.tensor()
    }

    /// Where a value comes from.
    pub fn def(&self, v: Value) -> ValueDef {
        self.values[v].def
    }

    /// The instruction that makes a value, if one does.
    pub fn def_inst(&self, v: Value) -> Option<(Inst, &InstData)> {
        match self.values[v].def {
            ValueDef::Result(i) => Some((i, &self.insts[i])),
            ValueDef::Arg(..) => None,
        }
    }

    /// The literal that a value is, if its instruction is a constant.
    pub fn as_const(&self, v: Value) -> Option<Scalar> {
        match self.def_inst(v)?.1.op {
            Op::Const(s) => Some(s),
            _ => None,
        }
    }

    /// An instruction.
    pub fn inst(&self, i: Inst) -> &InstData {
        &self.insts[i]
    }

    /// An instruction, to be changed. Its result's type is the caller's responsibility.
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

    /// How many values there are, dead ones included; for dense maps.
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// Is this a block of the function, in the layout or not?
    pub fn has_block(&self, b: Block) -> bool {
        self.blocks.is_valid(b)
    }

    /// Is this an instruction of the function, in a block or not?
    pub fn has_inst(&self, i: Inst) -> bool {
        self.insts.is_valid(i)
    }

    /// Is this a value of the function, used or not?
    pub fn has_value(&self, v: Value) -> bool {
        self.values.is_valid(v)
    }

    /// Every instruction in a block, in order, with its block.
    pub fn insts(&self) -> impl Iterator<Item = (Block, Inst, &InstData)> {
        self.layout.iter().flat_map(move |b| self.blocks[*b].insts.iter().map(move |i| (*b, *i, &self.insts[*i])))
    }

    /// Removes instructions from their blocks.
    pub fn remove_insts(&mut self, dead: impl Fn(Inst, &InstData) -> bool) {
        let insts = &self.insts;
        for b in &self.layout {
            self.blocks[*b].insts.retain(|i| !dead(*i, &insts[*i]));
        }
    }

    /// All uses of all values, in order of appearance.
    pub fn uses(&self) -> SecondaryMap<Value, Vec<User>> {
        let mut out: SecondaryMap<Value, Vec<User>> = SecondaryMap::new();
        for b in &self.layout {
            for i in &self.blocks[*b].insts {
                for (k, v) in self.insts[*i].operands.iter().enumerate() {
                    out[*v].push(User::Operand(*i, k));
                }
            }
            self.blocks[*b].terminator.for_each_value(|v| out[v].push(User::Terminator(*b)));
        }
        out
    }

    /// Replaces values wherever they are used; chains in `by` are followed.
    pub fn replace_uses(&mut self, by: &SecondaryMap<Value, Option<Value>>) {
        let resolve = |mut v: Value| {
            // A chain is at most as long as there are values; a cycle would be a pass's mistake and must not hang.
            for _ in 0..=by.keys().len() {
                match by[v] {
                    Some(w) if w != v => v = w,
                    _ => break,
                }
            }
            v
        };
        for b in &self.layout {
            for i in &self.blocks[*b].insts {
                for v in &mut self.insts[*i].operands {
                    *v = resolve(*v);
                }
            }
            self.blocks[*b].terminator.for_each_value_mut(|v| *v = resolve(*v));
        }
    }

    /// Removes arguments of a block, and what the jumps to it give for them. Nothing may use them any more.
    pub fn remove_block_args(&mut self, block: Block, dead: impl Fn(usize) -> bool) {
        let keep = |list: &mut Vec<Value>| {
            let mut at = 0;
            list.retain(|_| {
                at += 1;
                !dead(at - 1)
            });
        };
        keep(&mut self.blocks[block].args);
        for (at, v) in self.blocks[block].args.iter().enumerate() {
            self.values[*v].def = ValueDef::Arg(block, at);
        }
        for b in &self.layout {
            for c in self.blocks[*b].terminator.targets_mut() {
                if c.block == block {
                    keep(&mut c.args);
                }
            }
        }
    }

    /// Predecessors of each block that is in the layout, in order.
    pub fn predecessors(&self) -> SecondaryMap<Block, Vec<Block>> {
        cfg::predecessors(self)
    }

    /// Blocks so that each comes after those that dominate it; unreachable ones are left out.
    pub fn reverse_postorder(&self) -> Vec<Block> {
        cfg::reverse_postorder(self)
    }
}

impl Flow for Function {
    type Block = Block;

    fn layout(&self) -> &[Block] {
        &self.layout
    }

    fn targets(&self, block: Block) -> Vec<Block> {
        self.blocks[block].terminator.targets().iter().map(|c| c.block).collect()
    }
}
