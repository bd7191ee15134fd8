//! The SSA body (`ssa`) of kernels and plans, instantiated with the operations and types of the
//! tile IR.
//!
//! The instructions of a `run` are in the same body, but listed only by the `run`.

use std::hash::{Hash, Hasher};

use super::{Extent, Op, Type, rules};
use crate::shape::Elem;
use crate::ssa::{self, BlockCall, Dialect, Effects, Inst, Jumps, Value};

/// The tile IR as a parameter of [`ssa::Body`].
#[derive(Clone, Copy, Debug)]
pub struct TileIr;

/// Blocks, instructions and values of a kernel or plan. The entry block has no arguments.
pub type Body = ssa::Body<TileIr>;
/// An instruction.
pub type InstData = ssa::InstData<Op>;
/// A basic block.
pub type BlockData = ssa::BlockData<Vec<Role>>;
/// How a block ends. `return` leaves the kernel (for this grid point) or the plan, without a value;
/// `roles` is for GPUs: the warps of a block take different paths.
pub type Terminator = ssa::Terminator<Vec<Role>>;

/// The path of some warps of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Name of the role: `producer`, for example.
    pub name: String,
    /// Number of warps, which follow the warps of the previous roles.
    pub warps: u32,
    /// Registers per thread (`setmaxnreg`).
    pub registers: u32,
    /// Where these warps continue.
    pub target: BlockCall,
}

impl Jumps for Vec<Role> {
    fn targets(&self) -> Vec<&BlockCall> {
        self.iter().map(|r| &r.target).collect()
    }

    fn targets_mut(&mut self) -> Vec<&mut BlockCall> {
        self.iter_mut().map(|r| &mut r.target).collect()
    }
}

impl Dialect for TileIr {
    type Op = Op;
    type Type = Type;
    type Roles = Vec<Role>;

    const CONDITION: &'static str = "bool";

    fn is_condition(ty: &Type) -> bool {
        *ty == Type::Scalar(Elem::Bool)
    }

    fn result_type(op: &Op, operands: &[&Type], declared: Option<&Type>) -> Result<Option<Type>, String> {
        rules::result_type(op, operands, declared)
    }

    fn effects(op: &Op) -> Effects {
        op.info().effects
    }

    fn name(op: &Op) -> &'static str {
        op.info().name
    }

    fn digest(op: &Op, h: &mut impl Hasher) {
        op.hash(h);
    }

    fn is_commutative(op: &Op) -> bool {
        matches!(op, Op::Binary(b) if b.is_commutative())
    }

    fn inner(op: &Op) -> &[Inst] {
        match op {
            Op::Run { insts, .. } => insts,
            _ => &[],
        }
    }

    fn inner_mut(op: &mut Op) -> Option<&mut Vec<Inst>> {
        match op {
            Op::Run { insts, .. } => Some(insts),
            _ => None,
        }
    }

    fn for_each_value_of_type(ty: &Type, f: &mut dyn FnMut(Value)) {
        ty.bounds().for_each(f);
    }

    fn for_each_value_of_type_mut(ty: &mut Type, f: &mut dyn FnMut(&mut Value)) {
        ty.bounds_mut().for_each(f);
    }

    fn for_each_value_of_op(op: &Op, f: &mut dyn FnMut(Value)) {
        if let Op::Run { rows, cols, .. } = op {
            [rows, cols].into_iter().filter_map(|e| e.bound()).for_each(f);
        }
    }

    fn for_each_value_of_op_mut(op: &mut Op, f: &mut dyn FnMut(&mut Value)) {
        if let Op::Run { rows, cols, .. } = op {
            [rows, cols].into_iter().filter_map(Extent::bound_mut).for_each(f);
        }
    }
}
