//! Code generation shared by kernels and plans: run-time dimensions, indices, scalars, buffers.
//!
//! In: single instructions of a body. Out: CLIF. An index is an `I64`; a scalar is a single
//! [`Lane`]; a buffer is the address of its first element and its strides.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, BlockArg, FuncRef, InstBuilder, SigRef, SourceLoc, Value, types};
use cranelift_entity::SecondaryMap;
use cranelift_frontend::{FunctionBuilder, Variable};

use super::lanes::{Lane, Width, plain};
use super::math::Lanes;
use super::wide::LeafCalls;
use crate::runtime::abi::context;
use crate::scalar::BinaryOp;
use crate::shape::{Dim, Elem, Factor};
use crate::tile::{self, Body, BufferType, Extent, Inst, InstData, Op, Terminator, Type};

/// A stride in elements.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stride {
    Const(i64),
    Value(Value),
}

/// The CLIF counterpart of a tile IR value. Tiles have none: they are in scratch, or inside a run.
#[derive(Clone, Debug)]
pub(super) enum CodeValue {
    Index(Value),
    Scalar(Lane),
    /// A buffer: address of its first element, strides, element type.
    Buffer {
        base: Value,
        strides: Vec<Stride>,
        elem: Elem,
    },
}

/// A function under construction.
pub(super) struct Code<'a, 'b> {
    pub(super) b: &'a mut FunctionBuilder<'b>,
    /// The tile IR being compiled.
    pub(super) body: &'a Body,
    pub(super) symbols: BTreeMap<String, Value>,
    /// Run-time dimensions that the plan computes (`length`): undefined before that instruction.
    pub(super) lengths: BTreeSet<String>,
    pub(super) values: SecondaryMap<tile::Value, Option<CodeValue>>,
    /// In a plan: each kernel's number and its function, by name; GPU kernels have no function.
    pub(super) kernels: BTreeMap<String, (usize, Option<FuncRef>)>,
    /// Leaf functions called so far.
    pub(super) leaves: &'a mut LeafCalls,
    /// The runtime's call context.
    pub(super) context: Value,
    /// Signature of the runtime's `fail`.
    pub(super) fail: SigRef,
    /// The block that returns after an error.
    pub(super) stop: Block,
    /// Are instructions labelled with the operation that they come from?
    pub(super) places: bool,
    /// The operation being compiled.
    pub(super) here: Option<Inst>,
}

type Done = Result<(), String>;

impl<'a, 'b> Code<'a, 'b> {
    /// Sets the operation that the next instructions belong to; returns the previous one.
    pub(super) fn at(&mut self, inst: Option<Inst>) -> Option<Inst> {
        if self.places {
            self.b.set_srcloc(inst.map_or(SourceLoc::default(), place));
        }
        std::mem::replace(&mut self.here, inst)
    }

    pub(super) fn lanes(&mut self) -> Lanes<'_, 'b> {
        Lanes { builder: self.b }
    }

    pub(super) fn int(&mut self, n: i64) -> Value {
        self.b.ins().iconst(types::I64, n)
    }

    pub(super) fn index(&self, v: tile::Value) -> Result<Value, String> {
        match &self.values[v] {
            Some(CodeValue::Index(x)) => Ok(*x),
            _ => Err(format!("{v} is not an index")),
        }
    }

    pub(super) fn scalar(&self, v: tile::Value) -> Result<Lane, String> {
        match &self.values[v] {
            Some(CodeValue::Scalar(x)) => Ok(*x),
            _ => Err(format!("{v} is not a scalar")),
        }
    }

    /// A buffer: its first element, strides, element type.
    pub(super) fn buffer(&self, v: tile::Value) -> Result<(Value, Vec<Stride>, Elem), String> {
        match &self.values[v] {
            Some(CodeValue::Buffer { base, strides, elem }) => Ok((*base, strides.clone(), *elem)),
            _ => Err(format!("{v} is not a buffer")),
        }
    }

    /// Evaluates a dimension.
    pub(super) fn dim(&mut self, d: &Dim) -> Result<Value, String> {
        if let Some(n) = d.as_const() {
            return Ok(self.int(n));
        }
        let (terms, (divisor, factors)) = d.as_fraction();
        let mut sum = None;
        for (coefficient, factors) in &terms {
            let term = self.product(*coefficient, factors)?;
            sum = Some(match sum {
                None => term,
                Some(s) => self.b.ins().iadd(s, term),
            });
        }
        let sum = match sum {
            Some(s) => s,
            None => self.int(0),
        };
        if divisor == 1 && factors.is_empty() {
            return Ok(sum);
        }
        let divisor = self.product(divisor, &factors)?;
        Ok(self.divide_exactly(sum, divisor))
    }

    /// A division known to be exact. By zero (a dimension of size 0) it yields zero and does not
    /// trap.
    fn divide_exactly(&mut self, x: Value, y: Value) -> Value {
        let one = self.int(1);
        let zero = self.int(0);
        let is_zero = self.b.ins().icmp_imm_s(IntCC::Equal, y, 0);
        let safe = self.b.ins().select(is_zero, one, y);
        let q = self.b.ins().sdiv(x, safe);
        self.b.ins().select(is_zero, zero, q)
    }

    /// Division that rounds down. The entry point has checked that the divisor is at least 1; for
    /// any other divisor the result is unspecified, but it does not trap.
    fn divide_rounded(&mut self, x: Value, y: Value) -> Value {
        let one = self.int(1);
        let y = self.b.ins().smax(y, one);
        let q = self.b.ins().sdiv(x, y);
        let back = self.b.ins().imul(q, y);
        let below = self.b.ins().icmp(IntCC::SignedLessThan, x, back);
        let less = self.b.ins().uextend(types::I64, below);
        self.b.ins().isub(q, less)
    }

    fn product(&mut self, coefficient: i128, factors: &[(Factor, u32)]) -> Result<Value, String> {
        let n = i64::try_from(coefficient).map_err(|_| "a coefficient of a dimension is too large")?;
        let mut out = self.int(n);
        for (f, exponent) in factors {
            let x = match f {
                Factor::Symbol(s) => {
                    *self.symbols.get(&**s).ok_or_else(|| format!("the dimension {s} is not known"))?
                }
                Factor::Quotient(a, b) => {
                    let (a, b) = (self.dim(a)?, self.dim(b)?);
                    self.divide_exactly(a, b)
                }
                Factor::Floor(a, b) => {
                    let (a, b) = (self.dim(a)?, self.dim(b)?);
                    self.divide_rounded(a, b)
                }
                Factor::Min(all) | Factor::Max(all) => {
                    let least = matches!(f, Factor::Min(_));
                    let mut found = None;
                    for d in all {
                        let d = self.dim(d)?;
                        found = Some(match found {
                            None => d,
                            Some(x) if least => self.b.ins().smin(x, d),
                            Some(x) => self.b.ins().smax(x, d),
                        });
                    }
                    found.ok_or("a `min` or `max` without dimensions")?
                }
            };
            for _ in 0..*exponent {
                out = self.b.ins().imul(out, x);
            }
        }
        Ok(out)
    }

    /// A buffer whose first element is at `base`.
    pub(super) fn make_buffer(&mut self, base: Value, ty: &BufferType) -> Result<CodeValue, String> {
        let mut strides = Vec::new();
        for d in &ty.strides {
            strides.push(match d.as_const() {
                Some(n) => Stride::Const(n),
                None => Stride::Value(self.dim(d)?),
            });
        }
        Ok(CodeValue::Buffer { base, strides, elem: ty.elem })
    }

    /// Converts a stride to bytes.
    pub(super) fn stride_bytes(&mut self, s: Stride, elem: Elem) -> Value {
        let size = i64::try_from(elem.size()).unwrap_or(1);
        match s {
            Stride::Const(n) => self.int(n.wrapping_mul(size)),
            Stride::Value(v) => self.b.ins().imul_imm_s(v, size),
        }
    }

    /// The address of an element.
    pub(super) fn address(&mut self, buffer: tile::Value, indices: &[tile::Value]) -> Result<Value, String> {
        let (base, strides, elem) = self.buffer(buffer)?;
        if strides.len() != indices.len() {
            return Err("a buffer is indexed with the wrong number of indices".into());
        }
        let mut at = base;
        for (s, i) in strides.into_iter().zip(indices) {
            if matches!(s, Stride::Const(0)) {
                continue;
            }
            let i = self.index(*i)?;
            let bytes = self.stride_bytes(s, elem);
            let step = self.b.ins().imul(i, bytes);
            at = self.b.ins().iadd(at, step);
        }
        Ok(at)
    }

    /// Ends a block; a return goes to `end`. Of a jump's arguments only indices are passed: tiles
    /// stay where they are in scratch.
    pub(super) fn terminator(
        &mut self,
        terminator: &Terminator,
        blocks: &SecondaryMap<tile::Block, Option<Block>>,
        end: Block,
    ) -> Result<(), String> {
        let call = |code: &Self, c: &tile::BlockCall| -> Result<(Block, Vec<BlockArg>), String> {
            let target = blocks[c.block].ok_or("a block without a counterpart")?;
            let indices = c.args.iter().filter(|v| *code.body.ty(**v) == Type::Index);
            let args = indices.map(|v| code.index(*v).map(BlockArg::Value)).collect::<Result<_, _>>()?;
            Ok((target, args))
        };
        match terminator {
            Terminator::Return(_) => {
                self.b.ins().jump(end, &[]);
            }
            Terminator::Br(c) => {
                let (target, args) = call(self, c)?;
                self.b.ins().jump(target, &args);
            }
            Terminator::BrIf { condition, then, otherwise } => {
                let condition = self.condition(*condition)?;
                let ((a, x), (b, y)) = (call(self, then)?, call(self, otherwise)?);
                self.b.ins().brif(condition, a, &x, b, &y);
            }
            Terminator::Roles(_) => return Err("warp roles cannot be compiled for a CPU".into()),
        }
        Ok(())
    }

    /// `floor(a / b)`, the remainder, or another operation on two indices.
    pub(super) fn index_binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        let lane = |value| Lane { value, elem: Elem::I64, width: Width::One };
        self.lanes().lane_arithmetic(op, lane(a), lane(b)).value
    }

    /// An instruction on indices and scalars, the same in kernels and plans. False if it is another
    /// kind.
    pub(super) fn simple(&mut self, data: &InstData) -> Result<bool, String> {
        let body = self.body;
        let operand = |i: usize| data.operands.get(i).copied().ok_or("an operand is missing");
        let Some(result) = data.result else { return Ok(false) };
        let ty = body.ty(result).clone();
        let value = match (&data.op, &ty) {
            (Op::Const(s), Type::Index) => CodeValue::Index(self.int(s.as_i64())),
            (Op::Const(s), Type::Scalar(e)) => CodeValue::Scalar(self.lanes().constant(*s, *e, Width::One)),
            (Op::DimValue(d), Type::Index) => CodeValue::Index(self.dim(d)?),
            (Op::DimValue(d), Type::Scalar(e)) => {
                let value = self.dim(d)?;
                CodeValue::Scalar(self.number(value, *e))
            }
            (Op::Unary(op), Type::Scalar(_)) => {
                let x = self.scalar(operand(0)?)?;
                CodeValue::Scalar(self.lanes().lane_unary(*op, x)?)
            }
            (Op::Narrow { elem }, Type::Scalar(_)) => {
                let x = self.scalar(operand(0)?)?;
                CodeValue::Scalar(self.lanes().lane_narrow(x, *elem))
            }
            (Op::Binary(op), Type::Index) => {
                let (a, b) = (self.index(operand(0)?)?, self.index(operand(1)?)?);
                CodeValue::Index(self.index_binary(*op, a, b))
            }
            (Op::Binary(op), Type::Scalar(_)) => {
                let (a, b) = (self.scalar(operand(0)?)?, self.scalar(operand(1)?)?);
                CodeValue::Scalar(self.lanes().lane_binary(*op, a, b)?)
            }
            (Op::Compare(op), Type::Scalar(_)) => {
                let (a, b) = (self.as_lane(operand(0)?)?, self.as_lane(operand(1)?)?);
                CodeValue::Scalar(self.lanes().lane_compare(*op, a, b))
            }
            (Op::Select, Type::Scalar(_) | Type::Index) => {
                let c = self.scalar(operand(0)?)?;
                let (a, b) = (self.as_lane(operand(1)?)?, self.as_lane(operand(2)?)?);
                let y = self.lanes().lane_select(c, a, b);
                if ty == Type::Index { CodeValue::Index(y.value) } else { CodeValue::Scalar(y) }
            }
            (Op::Cast, Type::Index) => {
                let x = self.as_lane(operand(0)?)?;
                CodeValue::Index(self.lanes().lane_cast(x, Elem::I64).value)
            }
            (Op::Cast, Type::Scalar(e)) => {
                let x = self.as_lane(operand(0)?)?;
                CodeValue::Scalar(self.lanes().lane_cast(x, *e))
            }
            (Op::LoadScalar, Type::Scalar(_)) => {
                let buffer = operand(0)?;
                let at = self.address(buffer, data.operands.get(1..).unwrap_or_default())?;
                let (_, _, elem) = self.buffer(buffer)?;
                CodeValue::Scalar(self.lanes().load(elem, Width::One, at, 0))
            }
            (Op::CheckIndex { site }, Type::Index) => {
                let (i, bound) = (self.index(operand(0)?)?, self.index(operand(1)?)?);
                self.check(i, bound, *site);
                CodeValue::Index(i)
            }
            _ => return Ok(false),
        };
        self.values[result] = Some(value);
        Ok(true)
    }

    /// An index or a scalar as a single lane.
    fn as_lane(&self, v: tile::Value) -> Result<Lane, String> {
        match &self.values[v] {
            Some(CodeValue::Index(value)) => Ok(Lane { value: *value, elem: Elem::I64, width: Width::One }),
            Some(CodeValue::Scalar(x)) => Ok(*x),
            _ => Err(format!("{v} is neither index nor scalar")),
        }
    }

    /// Converts a 64-bit integer to a scalar of type `elem`.
    fn number(&mut self, value: Value, elem: Elem) -> Lane {
        let x = Lane { value, elem: Elem::I64, width: Width::One };
        self.lanes().lane_cast(x, elem)
    }

    /// Reports an index out of range and returns from the function.
    fn check(&mut self, index: Value, bound: Value, site: u32) {
        // A negative bound, compared as unsigned, would accept everything.
        let zero = self.int(0);
        let least = self.b.ins().smax(bound, zero);
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, index, least);
        let (good, bad) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(bad);
        self.b.ins().brif(inside, good, &[], bad, &[]);
        self.b.switch_to_block(bad);
        self.b.seal_block(bad);
        let fail = self.b.ins().load(types::I64, plain(), self.context, context::FAIL);
        let site = self.int(i64::from(site));
        let zero = self.int(0);
        self.b.ins().call_indirect(self.fail, fail, &[self.context, site, index, bound, zero]);
        self.b.ins().jump(self.stop, &[]);
        self.b.switch_to_block(good);
        self.b.seal_block(good);
    }

    /// Evaluates a number of rows or columns.
    pub(super) fn extent(&mut self, e: Extent) -> Result<Value, String> {
        match e {
            Extent::Static(n) => Ok(self.int(n)),
            Extent::Bounded { value, .. } => self.index(value),
        }
    }

    /// A loop over `variable` that runs while `variable < end` and adds `step` after each
    /// iteration.
    pub(super) fn counted(
        &mut self,
        variable: Variable,
        end: Value,
        step: i64,
        body: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let (head, inner, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        self.b.ins().jump(head, &[]);
        self.b.switch_to_block(head);
        let now = self.b.use_var(variable);
        let more = self.b.ins().icmp(IntCC::SignedLessThan, now, end);
        self.b.ins().brif(more, inner, &[], done, &[]);
        self.b.switch_to_block(inner);
        self.b.seal_block(inner);
        body(self)?;
        let now = self.b.use_var(variable);
        let next = self.b.ins().iadd_imm_s(now, step);
        self.b.def_var(variable, next);
        self.b.ins().jump(head, &[]);
        self.b.seal_block(head);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        Ok(())
    }

    /// The condition of a branch, as CLIF.
    pub(super) fn condition(&self, v: tile::Value) -> Result<Value, String> {
        Ok(self.scalar(v)?.value)
    }

    pub(super) fn unknown(data: &InstData) -> Done {
        Err(format!("{} cannot occur here", data.op.info().name))
    }
}

/// Encodes an operation as a `SourceLoc`. Cranelift stores differences to the first one, and -1
/// means "none", so only even numbers are used.
pub(super) fn place(inst: Inst) -> SourceLoc {
    SourceLoc::new(2 * inst.as_u32())
}

/// Decodes [`place`].
pub(super) fn inst_at(place: SourceLoc) -> Option<Inst> {
    (!place.is_default()).then(|| Inst::from_u32(place.bits() / 2))
}
