//! Edits of a body, for builders, parsers and passes.

use cranelift_entity::{PrimaryMap, SecondaryMap};

use super::body::ValueData;
use super::{Block, BlockData, Body, Dialect, Inst, InstData, Terminator, Value, ValueDef};
use crate::source::Loc;

/// A use of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// An instruction, as its operand number `.1`.
    Operand(Inst, usize),
    /// The terminator of a block.
    Terminator(Block),
}

impl<D: Dialect> Body<D> {
    /// Adds an empty block at the end; it returns nothing until it gets a terminator.
    pub fn add_block(&mut self) -> Block {
        let terminator = Terminator::Return(Vec::new());
        let data = BlockData { name: String::new(), args: Vec::new(), insts: Vec::new(), terminator };
        let b = self.blocks.push(data);
        self.layout.push(b);
        b
    }

    /// Adds an argument to a block.
    pub fn add_block_arg(&mut self, block: Block, ty: D::Type) -> Value {
        let index = self.blocks[block].args.len();
        let v = self.values.push(ValueData { ty, def: ValueDef::Arg(block, index) });
        self.blocks[block].args.push(v);
        v
    }

    /// Adds a value defined outside of the blocks.
    pub fn add_param(&mut self, ty: D::Type) -> Value {
        self.values.push(ValueData { ty, def: ValueDef::Param })
    }

    /// Creates an instruction without inserting it; the operation is canonicalised
    /// ([`Dialect::canonical`]).
    pub fn make_inst(&mut self, op: D::Op, operands: Vec<Value>, ty: Option<D::Type>, loc: Loc) -> Inst {
        let op = D::canonical(op, ty.as_ref());
        let inst = self.insts.push(InstData { op, operands, result: None, loc, parts: Vec::new() });
        if let Some(ty) = ty {
            let v = self.values.push(ValueData { ty, def: ValueDef::Result(inst) });
            self.insts[inst].result = Some(v);
        }
        inst
    }

    /// Appends an instruction of a given type; returns its result, if any.
    pub fn push(
        &mut self,
        block: Block,
        op: D::Op,
        operands: Vec<Value>,
        ty: Option<D::Type>,
        loc: Loc,
    ) -> Option<Value> {
        let inst = self.make_inst(op, operands, ty, loc);
        self.blocks[block].insts.push(inst);
        self.insts[inst].result
    }

    /// Appends an instruction with the type computed by the operation's rule.
    ///
    /// # Errors
    /// The rule's error message about the operands.
    pub fn append(
        &mut self,
        block: Block,
        op: D::Op,
        operands: Vec<Value>,
        declared: Option<D::Type>,
        loc: Loc,
    ) -> Result<Option<Value>, String> {
        let types: Vec<&D::Type> = operands.iter().map(|v| self.ty(*v)).collect();
        let ty = D::result_type(&op, &types, declared.as_ref())?;
        Ok(self.push(block, op, operands, ty, loc))
    }

    /// Inserts an instruction created by [`Body::make_inst`] before another one of the block.
    pub fn insert_before(&mut self, block: Block, before: Inst, inst: Inst) {
        let list = &mut self.blocks[block].insts;
        let at = list.iter().position(|i| *i == before).unwrap_or(list.len());
        list.insert(at, inst);
    }

    /// Sets the locations of the parts of a value's operation.
    pub fn set_parts(&mut self, v: Value, parts: &[Loc]) {
        if let ValueDef::Result(inst) = self.values[v].def {
            self.insts[inst].parts = parts.to_vec();
        }
    }

    /// Changes the type of a value.
    pub fn set_ty(&mut self, v: Value, ty: D::Type) {
        self.values[v].ty = ty;
    }

    /// Mutable access to an instruction. The result's type is the caller's responsibility.
    pub fn inst_mut(&mut self, i: Inst) -> &mut InstData<D::Op> {
        &mut self.insts[i]
    }

    /// Mutable access to a block.
    pub fn block_mut(&mut self, b: Block) -> &mut BlockData<D::Roles> {
        &mut self.blocks[b]
    }

    /// Sets the terminator of a block.
    pub fn terminate(&mut self, b: Block, t: Terminator<D::Roles>) {
        self.blocks[b].terminator = t;
    }

    /// Removes instructions from their blocks, and from the operations that hold them.
    pub fn remove_insts(&mut self, dead: impl Fn(Inst, &InstData<D::Op>) -> bool) {
        for b in &self.layout {
            let insts = &self.insts;
            self.blocks[*b].insts.retain(|i| !dead(*i, &insts[*i]));
            for i in &self.blocks[*b].insts {
                if D::inner(&self.insts[*i].op).is_empty() {
                    continue;
                }
                let mut held = D::inner_mut(&mut self.insts[*i].op).map(std::mem::take).unwrap_or_default();
                held.retain(|i| !dead(*i, &self.insts[*i]));
                if let Some(list) = D::inner_mut(&mut self.insts[*i].op) {
                    *list = held;
                }
            }
        }
    }

    /// All uses of all values as operands and by terminators, in order of appearance. (Uses in
    /// types are not included.)
    pub fn uses(&self) -> SecondaryMap<Value, Vec<Use>> {
        let mut out: SecondaryMap<Value, Vec<Use>> = SecondaryMap::new();
        for b in &self.layout {
            let data = &self.blocks[*b];
            for i in data.insts.iter().flat_map(|i| self.with_inner(*i)) {
                for (k, v) in self.insts[i].operands.iter().enumerate() {
                    out[*v].push(Use::Operand(i, k));
                }
            }
            data.terminator.for_each_value(|v| out[v].push(Use::Terminator(*b)));
        }
        out
    }

    /// Replaces values wherever they are used, in types too; chains in `by` are followed.
    pub fn replace_uses(&mut self, by: &SecondaryMap<Value, Option<Value>>) {
        self.replace_uses_in(&self.layout.clone(), by);
    }

    /// Replaces values where these blocks use them, in types too; chains in `by` are followed.
    pub fn replace_uses_in(&mut self, blocks: &[Block], by: &SecondaryMap<Value, Option<Value>>) {
        let resolve = |v: &mut Value| {
            // A chain is at most as long as the number of values; a cycle (a bug in a pass) must
            // not hang.
            for _ in 0..=by.keys().len() {
                match by[*v] {
                    Some(w) if w != *v => *v = w,
                    _ => break,
                }
            }
        };
        for b in blocks {
            for arg in &self.blocks[*b].args {
                D::for_each_value_of_type_mut(&mut self.values[*arg].ty, &mut |v| resolve(v));
            }
            for i in &self.blocks[*b].insts {
                for held in D::inner(&self.insts[*i].op).to_vec() {
                    replace_in::<D>(&mut self.insts[held], &mut self.values, &resolve);
                }
                replace_in::<D>(&mut self.insts[*i], &mut self.values, &resolve);
            }
            self.blocks[*b].terminator.for_each_value_mut(resolve);
        }
    }

    /// Removes unused arguments of a block, and the values that jumps pass for them.
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
}

/// Replaces the values that an instruction uses, including those in its result's type.
fn replace_in<D: Dialect>(
    data: &mut InstData<D::Op>,
    values: &mut PrimaryMap<Value, ValueData<D::Type>>,
    resolve: impl Fn(&mut Value),
) {
    data.operands.iter_mut().for_each(&resolve);
    D::for_each_value_of_op_mut(&mut data.op, &mut |v| resolve(v));
    if let Some(v) = data.result {
        D::for_each_value_of_type_mut(&mut values[v].ty, &mut |v| resolve(v));
    }
}
