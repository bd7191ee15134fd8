//! Modules and functions: the SSA body (`ssa`) with the operations and types of the graph IR, and
//! declarations.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use cranelift_entity::SecondaryMap;

use super::{Inst, Op};
use crate::interface::{ArgDecl, ParamDecl, ResultDecl, StateDecl};
use crate::scalar::Scalar;
use crate::shape::{Dim, Elem, Fact, TensorType};
use crate::source::Loc;
use crate::ssa::{self, Block, Dialect, Effects, Value};

/// Type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Element type and extents.
    Tensor(TensorType),
    /// A loop counter or a dimension: a 64-bit integer that is not a tensor.
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

/// The instantiation of `ssa` for the graph IR.
#[derive(Clone, Copy, Debug)]
pub struct GraphIr;

impl Dialect for GraphIr {
    type Op = Op;
    type Type = Type;
    type Roles = Infallible;

    const CONDITION: &'static str = "bool[]";

    fn is_condition(ty: &Type) -> bool {
        ty.tensor().is_some_and(|t| t.elem == Elem::Bool && t.rank() == 0)
    }

    fn result_type(op: &Op, operands: &[&Type], declared: Option<&Type>) -> Result<Option<Type>, String> {
        super::result_type(op, operands, declared)
    }

    fn effects(op: &Op) -> Effects {
        op.info().effects
    }

    fn name(op: &Op) -> &'static str {
        op.info().name
    }

    fn digest(op: &Op, h: &mut impl Hasher) {
        op.info().name.hash(h);
        // A function may have many constants that differ in nothing else.
        if let Op::Const(s) = op {
            s.hash(h);
        } else if let Op::Param { name } = op {
            name.hash(h);
        } else if let Op::DimValue(d) = op {
            d.hash(h);
        } else if let Op::Slice { axis, start, stop } = op {
            (axis, start, stop).hash(h);
        }
    }

    fn is_commutative(op: &Op) -> bool {
        matches!(op, Op::Binary(b) if b.is_commutative())
    }

    /// Rounds a constant of a small float type, so that passes see the value that is printed.
    fn canonical(op: Op, ty: Option<&Type>) -> Op {
        op.rounded(ty)
    }
}

/// The SSA body of a function.
pub type Body = ssa::Body<GraphIr>;
/// An instruction: operation, operands, result, source location.
pub type InstData = ssa::InstData<Op>;
/// A basic block: arguments, instructions, terminator.
pub type BlockData = ssa::BlockData<Infallible>;
/// The last instruction of a block.
pub type Terminator = ssa::Terminator<Infallible>;

/// A unit of compilation: the parameters of a model and its entry points.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// Base name of the source file.
    pub name: String,
    /// Other source files (of the standard library); source locations refer to them by index, from
    /// 1.
    pub files: Vec<String>,
    /// Name of the model; empty if the text has none.
    pub model: String,
    /// Documentation of the model.
    pub doc: String,
    /// Parameters, sorted by name.
    pub params: Vec<ParamDecl>,
    /// Values that a session keeps between calls.
    pub states: Vec<StateDecl>,
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
    /// Arguments; the entry block's arguments are their values, in order. Empty for the body of a
    /// fused region.
    pub args: Vec<ArgDecl>,
    /// Results. Empty for the body of a fused region.
    pub results: Vec<ResultDecl>,
    /// Facts about run-time dimensions that a call must check on entry, each with its source
    /// location.
    pub checks: Vec<(Fact, Loc)>,
    /// Is this the variant of the entry point that computes taps?
    pub tapped: bool,
    body: Body,
}

/// A function is a body with a signature, and has all methods of a body.
impl Deref for Function {
    type Target = Body;

    fn deref(&self) -> &Body {
        &self.body
    }
}

impl DerefMut for Function {
    fn deref_mut(&mut self) -> &mut Body {
        &mut self.body
    }
}

/// Bodies are compared by structure, up to numbering: two are equal if they print the same.
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
        Function {
            name: name.to_string(),
            doc: String::new(),
            args: Vec::new(),
            results: Vec::new(),
            checks: Vec::new(),
            tapped: false,
            body: Body::new(),
        }
    }

    fn structure(&self) -> String {
        // Number values in order of appearance, so that numbering does not matter.
        let mut numbers: SecondaryMap<Value, u32> = SecondaryMap::new();
        let mut next = 0;
        let mut out = String::new();
        for b in &self.layout {
            let data = self.block(*b);
            for v in &data.args {
                next += 1;
                numbers[*v] = next;
                out += &format!("a{}:{};", next, self.ty(*v));
            }
            for i in &data.insts {
                let d = self.inst(*i);
                if let Some(v) = d.result {
                    next += 1;
                    numbers[v] = next;
                    out += &format!("{}:{}=", next, self.ty(v));
                }
                let operands: Vec<u32> = d.operands.iter().map(|v| numbers[*v]).collect();
                out += &format!("{:?}{operands:?};", d.op);
            }
            out += &format!("{:?};", data.terminator.targets().iter().map(|c| c.block).collect::<Vec<_>>());
            data.terminator.for_each_value(|v| out += &format!("{},", numbers[v]));
        }
        out
    }
}

impl Body {
    /// Appends a scalar constant.
    pub fn push_const(&mut self, block: Block, value: Scalar, elem: Elem, loc: Loc) -> Value {
        let ty = Type::Tensor(TensorType::scalar(elem));
        match self.push(block, Op::Const(value), Vec::new(), Some(ty), loc) {
            Some(v) => v,
            None => unreachable!("an instruction that is given a type has a result"),
        }
    }

    /// The dimensions that an instruction mentions in its attributes, its result type and its
    /// region.
    pub fn dimensions_of(&self, inst: &InstData) -> BTreeSet<Arc<str>> {
        let mut names: BTreeSet<Arc<str>> = inst.op.dims().into_iter().flat_map(Dim::symbols).collect();
        let ty = inst.result.and_then(|v| self.tensor(v));
        names.extend(ty.into_iter().flat_map(|t| t.shape.iter().flat_map(Dim::symbols)));
        if let Op::Fused { body, .. } = &inst.op {
            names.extend(body.insts().flat_map(|(_, _, d)| body.dimensions_of(d)));
        }
        names
    }

    /// The dimensions that `length` sets in these blocks; they have no value before.
    pub fn lengths_in<'a>(&self, blocks: impl IntoIterator<Item = &'a Block>) -> BTreeSet<Arc<str>> {
        let insts = blocks.into_iter().flat_map(|b| &self.block(*b).insts);
        let name = |i: &Inst| match &self.inst(*i).op {
            Op::Length { name, .. } => Some(Arc::from(name.as_str())),
            _ => None,
        };
        insts.filter_map(name).collect()
    }

    /// Tensor type of a value, if it is a tensor.
    pub fn tensor(&self, v: Value) -> Option<&TensorType> {
        self.ty(v).tensor()
    }

    /// The literal, if the value is defined by a constant.
    pub fn as_const(&self, v: Value) -> Option<Scalar> {
        match self.def_inst(v)?.op {
            Op::Const(s) => Some(s),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::DefaultHasher;

    /// Operations without operands have distinct digests; else CSE would compare thousands of them
    /// pairwise.
    #[test]
    fn many_operations_without_operands_have_different_digests() {
        let param = |n| Op::Param { name: format!("h.{n}.w") };
        let slice = |n| Op::Slice { axis: 0, start: Dim::from(n), stop: Dim::from(n + 1) };
        let number = |n| Op::DimValue(Dim::symbol("S").add(&Dim::from(n)));
        let all: Vec<Op> = (0..100).flat_map(|n| [param(n), slice(n), number(n)]).collect();
        let digests = all.iter().map(|op| {
            let mut h = DefaultHasher::new();
            <GraphIr as ssa::Dialect>::digest(op, &mut h);
            h.finish()
        });
        assert_eq!(digests.collect::<BTreeSet<u64>>().len(), all.len());
    }
}
