//! Prefetch hints of launches: which packed weights are read next, and how much memory a launch reads.
//!
//! In: the position of a launch in a plan. Out: CLIF values, for the hints of the runtime's `Launch`. Idle threads prefetch the
//! beginning of those weights, so their addresses must be known before the launch that reads them. The plan is followed from
//! the launch on, as it will run: jumps pass arguments to blocks, indices are computed from these, and both targets of a
//! branch are followed, so at the end of a loop's body the hint is the next iteration's weights or those after the loop.
//!
//! Hints never affect results: where the path is too long, or contains what cannot be computed twice, there is none.

use cranelift_codegen::ir::{InstBuilder, Value};

use super::code::{Code, CodeValue};
use crate::scalar::BinaryOp;
use crate::shape::Dim;
use crate::tile::{self, Block, BlockCall, Body, BufferType, InstData, Op, PlanOp, TapPart, Terminator, Type};

/// Weights of fewer bytes are not worth fetching ahead.
const LEAST: i64 = 64 << 10;
/// Instructions and jumps that a way may have.
const LONGEST: u32 = 256;

/// Memory: its start, and its bytes.
pub(super) type ByteRange = (Value, Value);

/// Values that were replaced, the last one last.
type Replaced = Vec<(tile::Value, Option<CodeValue>)>;

fn buffer_type(body: &Body, v: tile::Value) -> Option<&BufferType> {
    match body.ty(v) {
        Type::Buffer(t) => Some(t),
        _ => None,
    }
}

fn bytes(t: &BufferType) -> Dim {
    // An axis that repeats has one element.
    let extents = t.shape.iter().zip(&t.strides).filter(|(_, stride)| **stride != Dim::zero());
    let size = Dim::from(i64::try_from(t.elem.size()).unwrap_or(1));
    Dim::product(extents.map(|(extent, _)| extent).chain([&size]))
}

/// Is it packed weights, or a part of them?
fn is_packed(body: &Body, v: tile::Value) -> bool {
    match body.def_inst(v) {
        Some(InstData { op: Op::Plan(PlanOp::Packed { .. }), .. }) => true,
        Some(InstData { op: Op::Plan(PlanOp::View { .. }), operands, .. }) => {
            operands.first().is_some_and(|v| is_packed(body, *v))
        }
        _ => false,
    }
}

/// Is it read from the part of a tap that a call requests?
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
    /// Bytes of the buffers that a launch is given.
    ///
    /// # Errors
    /// A dimension that is not known.
    pub(super) fn given_bytes(&mut self, launch: &InstData) -> Result<Value, String> {
        let mut sum = self.int(0);
        for t in launch.operands.iter().filter_map(|v| buffer_type(self.body, *v)) {
            let n = self.dim(&bytes(t))?;
            sum = self.b.ins().iadd(sum, n);
        }
        Ok(sum)
    }

    /// The packed weights that are read first from an instruction of a block on; no bytes where there are none.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(super) fn next_weights(&mut self, block: Block, from: usize) -> Result<ByteRange, String> {
        let mut replaced = Vec::new();
        let found = self.follow(block, from, &mut { LONGEST }, &mut replaced)?;
        self.restore(replaced, 0);
        Ok(match found {
            Some(place) => place,
            None => (self.int(0), self.int(0)),
        })
    }

    /// Puts back what was replaced, down to a length.
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

    /// Are the dimensions of an operation known on entry? One that the plan computes may have no value yet, or have it in another branch.
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

    /// Goes on at a block.
    fn jump(&mut self, call: &BlockCall, left: &mut u32, replaced: &mut Replaced) -> Result<Option<ByteRange>, String> {
        let Some(less) = left.checked_sub(1) else { return Ok(None) };
        *left = less;
        // All at once: they may be each other's.
        let given: Vec<_> = call.args.iter().map(|v| self.values[*v].clone()).collect();
        for (v, x) in self.body.block(call.block).args.iter().zip(given) {
            self.replace(*v, x, replaced);
        }
        self.follow(call.block, 0, left, replaced)
    }

    /// The packed weights that a launch reads: of several those with the most bytes. None if they are few, or depend on
    /// what is not known.
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
