//! Taps: copies an observed value to the caller's buffer, and sets a flag.
//!
//! In: a tap of the graph IR. Out: a branch on whether the call requests it, and two launches.
//! Instructions that only taps need are sunk behind that branch, separately for each tap; any
//! instruction without side effects can be sunk. A call need not reach every tap in every iteration
//! of a loop; the caller zero-fills the buffers, and the flags say which entries were written.

use std::collections::BTreeSet;

use cranelift_entity::SecondaryMap;

use super::super::map;
use super::super::region::buffer_type;
use super::Lowering;
use crate::ir::{self, Function, Inst, Op, Scalar, Terminator, Use, Value, arrays_of};
use crate::shape::{Dim, Elem, TensorType};
use crate::tile::{self, TapPart, View};

/// Limit on the instructions recomputed for one tap. Instructions that several taps need are
/// duplicated for each, so a long chain of taps would make the plan grow quadratically. Beyond the
/// limit they are computed unconditionally in every tapped call.
const MAX_CONDITIONAL: usize = 32;

/// Instructions that only taps need.
pub(super) struct ForTaps {
    needed: SecondaryMap<Value, bool>,
    /// Position of each instruction: definitions come before uses.
    order: SecondaryMap<Inst, Option<usize>>,
}

impl ForTaps {
    /// `None` where there are no taps.
    pub(super) fn analyse(f: &Function) -> Option<ForTaps> {
        let taps: Vec<Value> = f
            .insts()
            .filter(|(_, _, d)| matches!(d.op, Op::Tap { .. }))
            .filter_map(|(_, _, d)| d.operands.first().copied())
            .collect();
        if taps.is_empty() {
            return None;
        }
        let mut order = SecondaryMap::new();
        let blocks = f.reverse_postorder();
        for (at, i) in blocks.iter().flat_map(|b| &f.block(*b).insts).enumerate() {
            order[*i] = Some(at);
        }
        let mut out = ForTaps { needed: ir::needed_without_taps(f), order };
        for v in taps {
            let beside = out.beside(f, v);
            if beside.len() > MAX_CONDITIONAL {
                for v in beside.iter().filter_map(|i| f.inst(*i).result) {
                    out.needed[v] = true;
                }
            }
        }
        Some(out)
    }

    /// Is the value a tensor that only taps need?
    pub(super) fn has(&self, f: &Function, v: Value) -> bool {
        // A state must be read in place: later it may have changed.
        let is_state = || f.def_inst(v).is_some_and(|d| matches!(d.op, Op::State { .. }));
        !self.needed[v] && f.tensor(v).is_some() && !is_state()
    }

    /// The instructions that only taps need and that `value` depends on, definitions before uses.
    fn beside(&self, f: &Function, value: Value) -> Vec<Inst> {
        let mut found = BTreeSet::new();
        let mut work = vec![value];
        while let Some(v) = work.pop() {
            let Some((i, data)) = f.definition(v).filter(|_| self.has(f, v)) else { continue };
            if found.insert((self.order[i], i)) {
                work.extend(&data.operands);
            }
        }
        found.into_iter().map(|(_, i)| i).collect()
    }
}

impl Lowering<'_> {
    /// Do only taps need the instruction's result?
    pub(super) fn is_for_taps(&self, data: &ir::InstData) -> bool {
        data.result.is_some_and(|v| self.for_taps.as_ref().is_some_and(|t| t.has(self.f, v)))
    }

    /// The uses of a value that decide where it is stored; uses by taps alone do not count.
    pub(super) fn leading_uses(&self, v: Value) -> Vec<Use> {
        let uses = &self.uses[v];
        let Some(for_taps) = self.for_taps.as_ref().filter(|t| !t.has(self.f, v)) else { return uses.clone() };
        let leads = |u: &&Use| match u {
            Use::Terminator(_) => true,
            Use::Operand(i, _) => self.f.inst(*i).result.is_some_and(|r| !for_taps.has(self.f, r)),
        };
        uses.iter().filter(leads).copied().collect()
    }

    pub(super) fn tap(&mut self, data: &ir::InstData, name: &str, extents: &[Dim]) -> Result<(), String> {
        let value = data.operands.first().copied().ok_or("an operand is missing")?;
        let indices = self.indices_of_tap(data, extents)?;
        let arrays = arrays_of(name).min(extents.len());
        let (own, each) = (indices.get(..arrays).unwrap_or_default(), extents.get(..arrays).unwrap_or_default());
        let asked = TensorType::new(Elem::Bool, each.to_vec());
        let asked = self.place_of_tap(own, TapPart::Asked.full_name(name), &asked);
        let asked = self.buffer(&asked)?;
        let asked = self.builder.load_scalar(asked, &[]);
        let (shown, _) = self.builder.new_block(Vec::new());
        let (done, _) = self.builder.new_block(Vec::new());
        self.builder.br_if(asked, (shown, &[]), (done, &[]));
        self.builder.switch_to(shown);
        let beside = self.for_taps.as_ref().map_or(Vec::new(), |t| t.beside(self.f, value));
        for i in &beside {
            let data = self.f.inst(*i);
            self.builder.at(data.loc);
            self.instruction(data)?;
        }
        self.builder.at(data.loc);

        let from = self.view(value)?;
        let mut shape = extents.to_vec();
        shape.extend(from.shape.iter().cloned());
        let to = self.place_of_tap(&indices, TapPart::Data.full_name(name), &TensorType::new(from.elem, shape));
        let call = map::copy("tap", &from, &to);
        self.launch(call)?;

        let flags = TensorType::new(Elem::Bool, extents.to_vec());
        let to = self.place_of_tap(&indices, TapPart::Written.full_name(name), &flags);
        let mut body = Function::new("");
        let (entry, ty) = (body.entry(), ir::Type::Tensor(TensorType::new(Elem::Bool, Vec::new())));
        let made = body.push(entry, Op::Const(Scalar::Bool(true)), Vec::new(), Some(ty), data.loc);
        body.terminate(entry, Terminator::Return(vec![made.ok_or("a constant without a value")?]));
        let call = map::map("flag", &body, &[], &to)?;
        self.launch(call)?;
        self.builder.br(done, &[]);
        self.builder.switch_to(done);
        // The block of another tap is not dominated by this one.
        for v in beside.iter().filter_map(|i| self.f.inst(*i).result) {
            self.places[v] = None;
            self.roots[v] = None;
            self.indices[v] = None;
        }
        Ok(())
    }

    /// The indices of a tap, checked to be in range.
    fn indices_of_tap(&mut self, data: &ir::InstData, extents: &[Dim]) -> Result<Vec<Value>, String> {
        let mut indices = Vec::new();
        for index in self.indices_within(data, data.operands.get(1..).unwrap_or_default(), extents)? {
            let name = self.fresh_root();
            self.indices[name] = Some(index);
            indices.push(name);
        }
        Ok(indices)
    }

    /// The view of the tap's buffer at these indices.
    fn place_of_tap(&mut self, indices: &[Value], name: String, ty: &TensorType) -> View {
        let root = self.fresh_root();
        let mut to = View::whole(root, ty);
        let buffer = tile::Type::Buffer(buffer_type(&to));
        self.roots[root] = Some(self.builder.value(tile::Op::Plan(tile::PlanOp::Tap { name }), Vec::new(), buffer));
        for i in indices {
            to = to.select_at(0, *i);
        }
        to
    }
}
