//! Prefetch hints of launches: which packed weights are read next, and how much memory a launch
//! reads.
//!
//! In: the position of a launch in a plan. Out: CLIF values for the hints of the runtime's
//! `Launch`. Idle threads prefetch the beginning of the weights, so their addresses must be known
//! before the launch that reads them. Starting at the launch, the plan is followed as it will run:
//! jumps pass arguments to blocks, indices are computed from these, and both targets of a branch
//! are followed, so at the end of a loop's body the hint is the next iteration's weights or those
//! after the loop.
//!
//! Hints never affect results. A launch has no hint if the path is too long, or contains an
//! operation that cannot be evaluated twice.

use cranelift_codegen::ir::{InstBuilder, Value};

use super::code::{Code, CodeValue};
use crate::scalar::BinaryOp;
use crate::shape::Dim;
use crate::tile::{self, Block, BlockCall, Body, BufferType, InstData, Op, PlanOp, TapPart, Terminator, Type};

/// Smaller weights are not prefetched; in bytes.
const LEAST: i64 = 64 << 10;
/// At most this many instructions and jumps are followed.
const MAX_FOLLOWED: u32 = 256;

/// Start address and size in bytes.
pub(super) type ByteRange = (Value, Value);

/// Undo log: overwritten values, most recent last.
type Replaced = Vec<(tile::Value, Option<CodeValue>)>;

fn buffer_type(body: &Body, v: tile::Value) -> Option<&BufferType> {
    match body.ty(v) {
        Type::Buffer(t) => Some(t),
        _ => None,
    }
}

fn bytes(t: &BufferType) -> Dim {
    // A broadcast axis has one element.
    let extents = t.shape.iter().zip(&t.strides).filter(|(_, stride)| **stride != Dim::zero());
    let size = Dim::from(i64::try_from(t.elem.size()).unwrap_or(1));
    Dim::product(extents.map(|(extent, _)| extent).chain([&size]))
}

/// Is `v` packed weights, or a view of them?
fn is_packed(body: &Body, v: tile::Value) -> bool {
    match body.def_inst(v) {
        Some(InstData { op: Op::Plan(PlanOp::Packed { .. }), .. }) => true,
        Some(InstData { op: Op::Plan(PlanOp::View { .. }), operands, .. }) => {
            operands.first().is_some_and(|v| is_packed(body, *v))
        }
        _ => false,
    }
}

/// Is `v` loaded from the table of taps that the call requests?
fn asks_for_a_tap(body: &Body, v: tile::Value) -> bool {
    match body.def_inst(v) {
        Some(InstData { op: Op::Plan(PlanOp::Tap { name }), .. }) => TapPart::read(name).1 == TapPart::Asked,
        Some(InstData { op: Op::Plan(PlanOp::View { .. }) | Op::LoadScalar, operands, .. }) => {
            operands.first().is_some_and(|v| asks_for_a_tap(body, *v))
        }
        _ => false,
    }
}

impl Code<'_, '_> {
    /// Total size in bytes of the buffers passed to a launch.
    ///
    /// # Errors
    /// An unknown dimension.
    pub(super) fn given_bytes(&mut self, launch: &InstData) -> Result<Value, String> {
        let mut sum = self.int(0);
        for t in launch.operands.iter().filter_map(|v| buffer_type(self.body, *v)) {
            let n = self.dim(&bytes(t))?;
            sum = self.b.ins().iadd(sum, n);
        }
        Ok(sum)
    }

    /// The packed weights that are read first, starting at instruction `from` of `block`; an empty
    /// range if none are read.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(super) fn next_weights(&mut self, block: Block, from: usize) -> Result<ByteRange, String> {
        let mut replaced = Vec::new();
        let found = self.follow(block, from, &mut { MAX_FOLLOWED }, &mut replaced)?;
        self.restore(replaced, 0);
        Ok(match found {
            Some(place) => place,
            None => (self.int(0), self.int(0)),
        })
    }

    /// Undoes replacements until `length` of them are left.
    fn restore(&mut self, mut replaced: Replaced, length: usize) -> Replaced {
        while replaced.len() > length {
            if let Some((v, before)) = replaced.pop() {
                self.values[v] = before;
            }
        }
        replaced
    }

    fn replace(&mut self, v: tile::Value, by: Option<CodeValue>, replaced: &mut Replaced) {
        let before = std::mem::replace(&mut self.values[v], by);
        replaced.push((v, before));
    }

    /// Are the dimensions of an operation known on entry? A dimension that the plan computes may
    /// not have a value yet, or only in another branch.
    fn has_dims(&self, op: &Op) -> bool {
        let has = |d: &Dim| {
            let known = |s: &str| self.symbols.contains_key(s) && !self.lengths.contains(s);
            d.symbols().iter().all(|s| known(s))
        };
        match op {
            Op::DimValue(d) => has(d),
            Op::Plan(PlanOp::View { offset, strides }) => has(offset) && strides.iter().all(has),
            _ => true,
        }
    }

    fn follow(
        &mut self,
        block: Block,
        from: usize,
        left: &mut u32,
        replaced: &mut Replaced,
    ) -> Result<Option<ByteRange>, String> {
        let body = self.body;
        let data = body.block(block);
        for inst in data.insts.iter().skip(from) {
            let Some(less) = left.checked_sub(1) else { return Ok(None) };
            *left = less;
            let data = body.inst(*inst);
            if let Op::Plan(PlanOp::Launch { .. }) = data.op {
                if let Some(place) = self.weights_of(data)? {
                    return Ok(Some(place));
                }
                continue;
            }
            let Some(result) = data.result else { continue };
            self.replace(result, None, replaced);
            let known = data.operands.iter().all(|v| self.values[*v].is_some()) && self.has_dims(&data.op);
            match &data.op {
                Op::Const(_) | Op::DimValue(_) | Op::Compare(_) | Op::Select if known => {
                    self.simple(data)?;
                }
                Op::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Min | BinaryOp::Max) if known => {
                    self.simple(data)?;
                }
                Op::Plan(PlanOp::Packed { .. } | PlanOp::View { .. }) if known && is_packed(body, result) => {
                    self.packed(data)?
                }
                _ => {}
            }
        }
        match &data.terminator {
            Terminator::Return(_) | Terminator::Roles(_) => Ok(None),
            Terminator::Br(call) => self.jump(call, left, replaced),
            Terminator::BrIf { condition, then, otherwise } => {
                if self.values[*condition].is_none() {
                    // Most calls request few taps, so the path without them is followed.
                    let past = asks_for_a_tap(self.body, *condition);
                    return if past { self.jump(otherwise, left, replaced) } else { Ok(None) };
                }
                let condition = self.condition(*condition)?;
                let length = replaced.len();
                let a = self.jump(then, left, replaced)?;
                *replaced = self.restore(std::mem::take(replaced), length);
                let b = self.jump(otherwise, left, replaced)?;
                let none = (self.int(0), self.int(0));
                Ok((a.is_some() || b.is_some()).then(|| {
                    let ((x, m), (y, n)) = (a.unwrap_or(none), b.unwrap_or(none));
                    (self.b.ins().select(condition, x, y), self.b.ins().select(condition, m, n))
                }))
            }
        }
    }

    /// Follows a jump.
    fn jump(&mut self, call: &BlockCall, left: &mut u32, replaced: &mut Replaced) -> Result<Option<ByteRange>, String> {
        let Some(less) = left.checked_sub(1) else { return Ok(None) };
        *left = less;
        // A parallel assignment: arguments may be parameters of the same block.
        let given: Vec<_> = call.args.iter().map(|v| self.values[*v].clone()).collect();
        for (v, x) in self.body.block(call.block).args.iter().zip(given) {
            self.replace(*v, x, replaced);
        }
        self.follow(call.block, 0, left, replaced)
    }

    /// The largest packed weights that a launch reads. `None` if they are small, or depend on
    /// unknown values.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(super) fn weights_of(&mut self, launch: &InstData) -> Result<Option<ByteRange>, String> {
        let body = self.body;
        let packed = launch.operands.iter().filter(|v| is_packed(body, **v));
        let sizes = packed.filter_map(|v| Some((*v, bytes(buffer_type(body, *v)?).as_const()?)));
        let Some((v, size)) = sizes.max_by_key(|(_, size)| *size).filter(|(_, size)| *size >= LEAST) else {
            return Ok(None);
        };
        if self.values[v].is_none() {
            return Ok(None);
        }
        let (start, ..) = self.buffer(v)?;
        Ok(Some((start, self.int(size))))
    }
}
