//! Helpers that the passes share: queries about values, and edits in the middle of a block.
//!
//! In: a function and one of its values or instructions. Out: an answer, or the function with a new
//! instruction. No rewrite is decided here.

use cranelift_entity::SecondaryMap;

use crate::ir::{Block, Function, Inst, Loc, Op, Scalar, Type, Use, Value, result_type};
use crate::scalar::UnaryOp;
pub(super) use crate::scalar::round_to;
use crate::shape::{Elem, TensorType};

/// All uses of all values, from [`Function::uses`].
pub(super) type Uses = SecondaryMap<Value, Vec<Use>>;

/// The instruction that defines a value, its operation and operands; `None` for a block argument.
pub(super) fn made_by(f: &Function, v: Value) -> Option<(Inst, &Op, &[Value])> {
    let (inst, data) = f.definition(v)?;
    Some((inst, &data.op, &data.operands))
}

/// The source location of the instruction that defines a value.
pub(super) fn loc_of(f: &Function, v: Value) -> Loc {
    f.definition(v).map(|(_, d)| d.loc).unwrap_or_default()
}

/// The literal that all elements of a value equal, seen through `broadcast` and `reshape`.
pub(super) fn splat(f: &Function, v: Value) -> Option<Scalar> {
    let mut v = v;
    // The chain is as long as the program made it; each step goes to an earlier instruction.
    loop {
        match made_by(f, v)? {
            (_, Op::Const(s), _) => return Some(*s),
            (_, Op::Broadcast | Op::Reshape, [x]) => v = *x,
            _ => return None,
        }
    }
}

/// Are all elements of the value the same number, because it has rank 0 or is a splat?
pub(super) fn is_scalar(f: &Function, v: Value) -> bool {
    f.tensor(v).is_some_and(|t| t.rank() == 0) || splat(f, v).is_some()
}

/// The permutation that swaps the last two of `rank` axes.
pub(super) fn swap_last(rank: usize) -> Vec<usize> {
    let mut perm: Vec<usize> = (0..rank).collect();
    if rank >= 2 {
        perm.swap(rank - 2, rank - 1);
    }
    perm
}

/// The insertion point of new instructions: before an instruction of a block, with its source
/// location.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    pub(super) block: Block,
    pub(super) before: Inst,
    pub(super) loc: Loc,
}

impl Cursor {
    pub(super) fn before(f: &Function, block: Block, inst: Inst) -> Cursor {
        Cursor { block, before: inst, loc: f.inst(inst).loc }
    }

    /// Inserts an instruction whose type is inferred from its operands.
    ///
    /// # Errors
    /// The error of its shape rule; the pass then makes no rewrite here.
    pub(super) fn insert(self, f: &mut Function, op: Op, operands: Vec<Value>) -> Result<Value, String> {
        self.insert_as(f, op, operands, None)
    }

    /// Inserts an instruction with a declared type.
    ///
    /// # Errors
    /// The error of its shape rule.
    pub(super) fn insert_as(
        self,
        f: &mut Function,
        op: Op,
        operands: Vec<Value>,
        declared: Option<TensorType>,
    ) -> Result<Value, String> {
        let types: Vec<&Type> = operands.iter().map(|v| f.ty(*v)).collect();
        let ty = result_type(&op, &types, declared.map(Type::Tensor).as_ref())?;
        let inst = f.make_inst(op, operands, ty, self.loc);
        f.insert_before(self.block, self.before, inst);
        f.inst(inst).result.ok_or_else(|| "an instruction without a result".to_string())
    }

    /// Inserts a scalar constant.
    pub(super) fn constant(self, f: &mut Function, value: Scalar, elem: Elem) -> Result<Value, String> {
        self.insert_as(f, Op::Const(value), Vec::new(), Some(TensorType::scalar(elem)))
    }
}

/// Replaces the operation of an instruction; the type of its result stays.
pub(super) fn become_op(f: &mut Function, inst: Inst, op: Op, operands: Vec<Value>) {
    let data = f.inst_mut(inst);
    data.op = op;
    data.operands = operands;
    data.parts = Vec::new();
}

/// Replaces all uses of an instruction's result by `by`; the instruction stays, without uses.
pub(super) fn replace_result(f: &mut Function, inst: Inst, by: Value) {
    if let Some(old) = f.inst(inst).result {
        let mut map: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
        map[old] = Some(by);
        f.replace_uses(&map);
    }
}

/// Removes instructions without effect whose results are unused, and their operands that become
/// unused.
pub(super) fn remove_unused(f: &mut Function) -> usize {
    let mut counts: SecondaryMap<Value, u32> = SecondaryMap::new();
    for (v, uses) in f.uses().iter() {
        counts[v] = u32::try_from(uses.len()).unwrap_or(u32::MAX);
    }
    let unused = |f: &Function, i: Inst, counts: &SecondaryMap<Value, u32>| {
        let d = f.inst(i);
        !d.op.has_effect() && d.result.is_some_and(|v| counts[v] == 0)
    };
    let mut work: Vec<Inst> = f.insts().map(|(_, i, _)| i).filter(|i| unused(f, *i, &counts)).collect();
    let mut dead: SecondaryMap<Inst, bool> = SecondaryMap::new();
    let mut removed = 0;
    while let Some(i) = work.pop() {
        if std::mem::replace(&mut dead[i], true) {
            continue;
        }
        removed += 1;
        for v in f.inst(i).operands.clone() {
            counts[v] = counts[v].saturating_sub(1);
            if let Some((d, _)) = f.definition(v)
                && unused(f, d, &counts)
            {
                work.push(d);
            }
        }
    }
    if removed > 0 {
        f.remove_insts(|i, _| dead[i]);
    }
    removed
}

/// The only use of an instruction's result: the user, and the index of the operand.
pub(super) fn only_user(f: &Function, uses: &Uses, inst: Inst) -> Option<(Inst, usize)> {
    match uses[f.inst(inst).result?].as_slice() {
        [Use::Operand(i, at)] => Some((*i, *at)),
        _ => None,
    }
}

/// The maximum length of the chain to a softmax.
const FARTHEST: usize = 32;

/// Does the result reach a softmax, and nothing else, by scales, masks, casts, soft caps, sinks and
/// movement?
pub(super) fn feeds_softmax(f: &Function, uses: &Uses, inst: Inst) -> bool {
    let mut inst = inst;
    for _ in 0..FARTHEST {
        let Some((user, _)) = only_user(f, uses, inst) else { return false };
        match f.inst(user).op {
            Op::Softmax { .. } => return true,
            Op::Binary(_) | Op::Where | Op::Transpose { .. } | Op::Reshape => inst = user,
            Op::Unary(UnaryOp::Tanh) | Op::Cast { .. } | Op::Concat { .. } | Op::Pad { .. } => inst = user,
            _ => return false,
        }
    }
    false
}

/// Is a value the result of a softmax, perhaps after casts and slices of its columns?
pub(super) fn are_weights(f: &Function, mut v: Value) -> bool {
    for _ in 0..FARTHEST {
        match made_by(f, v) {
            Some((_, Op::Softmax { .. }, _)) => return true,
            Some((_, Op::Cast { .. } | Op::Slice { .. }, [x])) => v = *x,
            _ => return false,
        }
    }
    false
}
