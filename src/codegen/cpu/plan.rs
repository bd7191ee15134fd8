//! Plans: the host program of an entry point as a function of the runtime's `Plan` type.
//!
//! In: a plan and the kernels that it launches. Out: a CLIF function. Slots follow each other in
//! the arena, each start rounded up to 64 bytes; a launch writes its arguments into a stack slot
//! and calls the runtime, with prefetch hints (`ahead`).

use std::collections::BTreeSet;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, SigRef, StackSlotData, StackSlotKind, Value, types};
use cranelift_entity::SecondaryMap;

use super::code::{Code, CodeValue};
use super::lanes::{Width, plain};
use crate::runtime::abi::context;
use crate::runtime::expr::Expr;
use crate::tile::{self, InstData, Module, Op, Plan, PlanOp, TapPart, Type};

/// Module and runtime signatures that a plan's code refers to.
pub(super) struct Launching<'a> {
    /// The module, for its parameters.
    pub(super) module: &'a Module,
    /// Signature of the runtime's `launch`.
    pub(super) launch: SigRef,
    /// Signature of the runtime's `read`, for plans of a GPU: the host cannot load from its memory.
    pub(super) read: Option<SigRef>,
}

/// Arena size of a plan in bytes. `None` where the expression is too large for the runtime to
/// evaluate.
pub(super) fn arena(plan: &Plan) -> Option<Expr> {
    let mut sum = Expr::constant(0);
    for s in &plan.slots {
        sum = sum.plus(Expr::from_dim(&s.bytes, &plan.symbols)?.round_up(64));
    }
    Some(sum)
}

/// Headers of loops that may iterate without a launch: they would never check whether the caller
/// cancelled the call.
fn silent_loops(body: &tile::Body) -> BTreeSet<tile::Block> {
    let launches = |b: tile::Block| {
        body.block(b).insts.iter().any(|i| matches!(body.inst(*i).op, Op::Plan(PlanOp::Launch { .. })))
    };
    let cfg = body.cfg();
    let mut headers = BTreeSet::new();
    for l in cfg.loops() {
        let mut back = cfg.predecessors(l.header).iter().filter(|b| l.blocks.contains(b));
        if !launches(l.header) && back.any(|b| !launches(*b)) {
            headers.insert(l.header);
        }
    }
    headers
}

impl Code<'_, '_> {
    /// Emits a plan. It ends in the current block, where the caller emits the return.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(super) fn plan(&mut self, plan: &Plan, launching: &Launching<'_>) -> Result<(), String> {
        let dims = self.b.ins().load(types::I64, plain(), self.context, context::DIMS);
        for (i, s) in plan.symbols.iter().enumerate() {
            let offset = i32::try_from(i * 8).map_err(|_| "too many dimensions")?;
            let v = self.b.ins().load(types::I64, plain(), dims, offset);
            self.symbols.insert(s.clone(), v);
        }
        let mut at = self.b.ins().load(types::I64, plain(), self.context, context::ARENA);
        let mut slots = Vec::new();
        for s in &plan.slots {
            slots.push(at);
            let bytes = self.dim(&s.bytes)?;
            let up = self.b.ins().iadd_imm_s(bytes, 63);
            let size = self.b.ins().band_imm_s(up, -64);
            at = self.b.ins().iadd(at, size);
        }

        let body = &plan.body;
        let finish = self.b.create_block();
        let mut blocks: SecondaryMap<tile::Block, Option<cranelift_codegen::ir::Block>> = SecondaryMap::new();
        for (n, block) in body.layout.iter().enumerate() {
            let b = self.b.create_block();
            blocks[*block] = Some(b);
            for v in &body.block(*block).args {
                if *body.ty(*v) != Type::Index {
                    return Err("a block parameter of a plan is not an index".into());
                }
                let x = self.b.append_block_param(b, types::I64);
                self.values[*v] = Some(CodeValue::Index(x));
            }
            if n == 0 {
                self.b.ins().jump(b, &[]);
            }
        }
        let silent = silent_loops(body);
        for block in body.reverse_postorder() {
            self.b.switch_to_block(blocks[block].ok_or("a block without a counterpart")?);
            if silent.contains(&block) {
                self.ask_to_go_on(launching);
            }
            for (at, inst) in body.block(block).insts.iter().enumerate() {
                let data = body.inst(*inst).clone();
                self.at(Some(*inst));
                if let Op::Plan(PlanOp::Launch { kernel }) = &data.op {
                    self.launch(kernel, &data, (block, at), launching)?;
                } else if let (Op::LoadScalar, Some(read)) = (&data.op, launching.read)
                    && !self.is_asked_part(&data)
                {
                    self.read_scalar(&data, read)?;
                } else if !self.simple(&data)? {
                    self.plan_op(plan, &data, &slots, launching)?;
                }
            }
            self.at(None);
            self.terminator(&body.block(block).terminator, &blocks, finish)?;
        }
        for block in &body.layout {
            if let Some(b) = blocks[*block] {
                self.b.seal_block(b);
            }
        }
        self.b.switch_to_block(finish);
        self.b.seal_block(finish);
        Ok(())
    }

    /// Checks for cancellation, as each launch does: an empty launch, recognised by its null
    /// arguments.
    fn ask_to_go_on(&mut self, launching: &Launching<'_>) {
        let launch = self.b.ins().load(types::I64, plain(), self.context, context::LAUNCH);
        let zero = self.int(0);
        // The kernel's address must not be null, but is never called.
        let args = [self.context, launch, zero, zero, zero, zero, zero];
        let call = self.b.ins().call_indirect(launching.launch, launch, &args);
        let failed = self.b.inst_results(call)[0];
        let go_on = self.b.create_block();
        self.b.ins().brif(failed, self.stop, &[], go_on, &[]);
        self.b.switch_to_block(go_on);
        self.b.seal_block(go_on);
    }

    /// Is it loaded from the table of requested taps? That is in host memory, also for a GPU.
    fn is_asked_part(&self, load: &InstData) -> bool {
        let root = load.operands.first().map(|v| self.root(*v));
        let op = root.and_then(|v| self.body.def_inst(v)).map(|d| &d.op);
        matches!(op, Some(Op::Plan(PlanOp::Tap { name })) if TapPart::read(name).1 == TapPart::Asked)
    }

    /// Reads an element of GPU memory through the runtime, which waits for earlier launches.
    fn read_scalar(&mut self, data: &InstData, read: SigRef) -> Result<(), String> {
        let buffer = data.operands.first().copied().ok_or("a load without a buffer")?;
        let result = data.result.ok_or("a load without a result")?;
        let from = self.address(buffer, data.operands.get(1..).unwrap_or_default())?;
        let (_, _, elem) = self.buffer(buffer)?;
        let slot = self.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 8, 3));
        let to = self.b.ins().stack_addr(types::I64, slot, 0);
        let bytes = self.int(i64::try_from(elem.size()).unwrap_or(8));
        let function = self.b.ins().load(types::I64, plain(), self.context, context::READ);
        let call = self.b.ins().call_indirect(read, function, &[self.context, from, bytes, to]);
        let failed = self.b.inst_results(call)[0];
        let go_on = self.b.create_block();
        self.b.ins().brif(failed, self.stop, &[], go_on, &[]);
        self.b.switch_to_block(go_on);
        self.b.seal_block(go_on);
        let value = self.lanes().load(elem, Width::One, to, 0);
        self.values[result] = Some(CodeValue::Scalar(value));
        Ok(())
    }

    /// Loads an address from a table of the context.
    fn table(&mut self, table: i32, index: usize) -> Result<Value, String> {
        let table = self.b.ins().load(types::I64, plain(), self.context, table);
        let offset = i32::try_from(index * 8).map_err(|_| "a table is too long")?;
        Ok(self.b.ins().load(types::I64, plain(), table, offset))
    }

    fn plan_op(
        &mut self,
        plan: &Plan,
        data: &InstData,
        slots: &[Value],
        launching: &Launching<'_>,
    ) -> Result<(), String> {
        if let Op::Length { name, .. } = &data.op {
            let value = self.index(data.operands.first().copied().ok_or("a length without a value")?)?;
            self.symbols.insert(name.clone(), value);
            self.lengths.insert(name.clone());
            return Ok(());
        }
        let number = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        let base = match &data.op {
            Op::Plan(PlanOp::Arg(n)) => self.table(context::ARGS, number(*n))?,
            Op::Plan(PlanOp::Out(n)) => self.table(context::OUTS, number(*n))?,
            Op::Plan(PlanOp::Tap { name }) => {
                // Three sections: data of all taps, written extents, requested ranges.
                let (tap, part) = TapPart::read(name);
                let behind = match part {
                    TapPart::Data => 0,
                    TapPart::Written => 1,
                    TapPart::Asked => 2,
                };
                let i = plan.taps.iter().position(|t| t == tap).ok_or_else(|| format!("no tap {name}"))?;
                self.table(context::TAPS, behind * plan.taps.len() + i)?
            }
            Op::Plan(PlanOp::State { name }) => {
                let at = launching.module.states.iter().position(|s| s.name == *name);
                self.table(context::STATES, at.ok_or_else(|| format!("no state {name}"))?)?
            }
            Op::Plan(PlanOp::Slot(n)) => *slots.get(number(*n)).ok_or("a slot is missing")?,
            Op::Plan(PlanOp::Packed { .. } | PlanOp::View { .. }) => return self.packed(data),
            Op::Plan(PlanOp::Param { name }) => self.parameter(name, data, launching.module)?,
            _ => return Code::unknown(data),
        };
        self.name_buffer(data, base)
    }

    /// Packed weights, or a view.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(super) fn packed(&mut self, data: &InstData) -> Result<(), String> {
        let base = match &data.op {
            Op::Plan(PlanOp::Packed { offset }) => {
                let offset = i64::try_from(*offset).map_err(|_| "the packed area is too large")?;
                let packed = self.b.ins().load(types::I64, plain(), self.context, context::PACKED);
                self.b.ins().iadd_imm_s(packed, offset)
            }
            Op::Plan(PlanOp::View { offset, strides }) => {
                let buffer = data.operands.first().copied().ok_or("a view without a buffer")?;
                let (base, _, elem) = self.buffer(buffer)?;
                let mut elements = self.dim(offset)?;
                for (v, stride) in data.operands.iter().skip(1).zip(strides) {
                    let (i, s) = (self.index(*v)?, self.dim(stride)?);
                    let step = self.b.ins().imul(i, s);
                    elements = self.b.ins().iadd(elements, step);
                }
                let bytes = self.b.ins().imul_imm_s(elements, i64::try_from(elem.size()).unwrap_or(1));
                self.b.ins().iadd(base, bytes)
            }
            _ => return Code::unknown(data),
        };
        self.name_buffer(data, base)
    }

    /// Defines the result of an instruction as the buffer at `base`.
    fn name_buffer(&mut self, data: &InstData, base: Value) -> Result<(), String> {
        let result = data.result.ok_or("a buffer without a name")?;
        let Type::Buffer(ty) = self.body.ty(result).clone() else { return Err("a buffer without a type".into()) };
        let val = self.make_buffer(base, &ty)?;
        self.values[result] = Some(val);
        Ok(())
    }

    /// Address of a parameter's data, from its table of tensors.
    fn parameter(&mut self, name: &str, data: &InstData, module: &Module) -> Result<Value, String> {
        let at = module.params.iter().position(|p| p.name == name).ok_or_else(|| format!("no parameter {name}"))?;
        let counts = module.params.get(at).map(|p| p.counts.clone()).unwrap_or_default();
        let tensors = self.table(context::PARAMS, at)?;
        let mut flat = self.int(0);
        for (v, count) in data.operands.iter().zip(&counts) {
            let i = self.index(*v)?;
            let count = i64::try_from(*count).map_err(|_| "an array of layers is too long")?;
            let scaled = self.b.ins().imul_imm_s(flat, count);
            flat = self.b.ins().iadd(scaled, i);
        }
        let bytes = self.b.ins().imul_imm_s(flat, 8);
        let place = self.b.ins().iadd(tensors, bytes);
        Ok(self.b.ins().load(types::I64, plain(), place, 0))
    }

    fn launch(
        &mut self,
        name: &str,
        data: &InstData,
        (block, at): (tile::Block, usize),
        launching: &Launching<'_>,
    ) -> Result<(), String> {
        let (number, function) = *self.kernels.get(name).ok_or_else(|| format!("no kernel {name}"))?;
        let kernel = launching.module.kernels.iter().find(|k| k.name == name).ok_or("a kernel is missing")?;
        let words = kernel.symbols.len() + data.operands.len();
        let size = u32::try_from(words.max(1) * 8).map_err(|_| "too many arguments")?;
        let slot = self.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, size, 3));
        // A tap that is not requested has no memory: skip the launch.
        let go_on = self.b.create_block();
        for base in self.taps_of(data) {
            let asked = self.b.create_block();
            self.b.ins().brif(base, asked, &[], go_on, &[]);
            self.b.switch_to_block(asked);
            self.b.seal_block(asked);
        }
        let mut values = Vec::new();
        for s in &kernel.symbols {
            values.push(*self.symbols.get(s).ok_or_else(|| format!("the dimension {s} is not known"))?);
        }
        for v in &data.operands {
            values.push(match &self.values[*v] {
                Some(CodeValue::Buffer { base, .. }) => *base,
                Some(CodeValue::Index(i)) => *i,
                _ => return Err("a kernel argument is neither a buffer nor an index".into()),
            });
        }
        for (i, v) in values.iter().enumerate() {
            let offset = i32::try_from(i * 8).map_err(|_| "too many arguments")?;
            self.b.ins().stack_store(types::I64, *v, slot, offset);
        }
        let mut total = self.int(1);
        for g in &kernel.grid {
            let extent = self.dim(&g.extent)?;
            let step = g.step.max(1);
            let sum = self.b.ins().iadd_imm_s(extent, step - 1);
            let step = self.int(step);
            let count = self.b.ins().sdiv(sum, step);
            total = self.b.ins().imul(total, count);
        }
        let bytes = self.given_bytes(data)?;
        let (next, next_bytes) = self.next_weights(block, at + 1)?;
        // A negative size marks weights that this launch reads itself.
        let next_bytes = match self.weights_of(data)? {
            Some((own, _)) => {
                let same = self.b.ins().icmp(IntCC::Equal, own, next);
                let negative = self.b.ins().ineg(next_bytes);
                self.b.ins().select(same, negative, next_bytes)
            }
            None => next_bytes,
        };
        let code = match function {
            Some(function) => self.b.ins().func_addr(types::I64, function),
            None => self.int(i64::try_from(number).map_err(|_| "too many kernels")?),
        };
        let args = self.b.ins().stack_addr(types::I64, slot, 0);
        let launch = self.b.ins().load(types::I64, plain(), self.context, context::LAUNCH);
        let call = self.b.ins().call_indirect(
            launching.launch,
            launch,
            &[self.context, code, args, total, bytes, next, next_bytes],
        );
        let failed = self.b.inst_results(call)[0];
        self.b.ins().brif(failed, self.stop, &[], go_on, &[]);
        self.b.switch_to_block(go_on);
        self.b.seal_block(go_on);
        Ok(())
    }

    /// The buffer underlying a chain of views.
    fn root(&self, buffer: tile::Value) -> tile::Value {
        let mut v = buffer;
        while let Some(InstData { op: Op::Plan(PlanOp::View { .. }), operands, .. }) = self.body.def_inst(v)
            && let Some(of) = operands.first()
        {
            v = *of;
        }
        v
    }

    /// Start addresses of the taps passed to a launch, whole or in part, without duplicates.
    fn taps_of(&self, launch: &InstData) -> Vec<Value> {
        let mut bases = Vec::new();
        for operand in &launch.operands {
            let v = self.root(*operand);
            let is_tap = self.body.def_inst(v).is_some_and(|d| matches!(d.op, Op::Plan(PlanOp::Tap { .. })));
            if let (true, Some(CodeValue::Buffer { base, .. })) = (is_tap, &self.values[v])
                && !bases.contains(base)
            {
                bases.push(*base);
            }
        }
        bases
    }
}
