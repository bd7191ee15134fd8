//! Compiles a scheduled kernel to a function over a range of its grid.
//!
//! In: a kernel scheduled for a CPU, and the parameters of a function of the runtime's `Kernel`
//! type. Out: the function's body. `args` holds the run-time dimensions that the kernel names, in
//! order, then its parameters (addresses and indices). It iterates over the flat range of grid
//! points, computes the indices of each, and runs the body, whose blocks are LLVM blocks.

use cranelift_entity::SecondaryMap;
use inkwell::basic_block::BasicBlock;
use inkwell::values::{IntValue, PhiValue, PointerValue};

use super::code::{Code, CodeValue};
use super::emit::EmitResult;
use crate::tile::{self, Kernel, Op, Terminator, Type};

/// The parameters of a kernel's function, except for the context.
#[derive(Clone, Copy)]
pub(super) struct KernelParams<'c> {
    pub(super) args: PointerValue<'c>,
    /// The first grid point.
    pub(super) start: IntValue<'c>,
    /// One past the last.
    pub(super) end: IntValue<'c>,
    pub(super) scratch: PointerValue<'c>,
}

impl<'c> Code<'_, '_, 'c> {
    /// Emits a kernel. It ends in the current block, where the caller emits the return, or returns
    /// through `stop`.
    pub(super) fn kernel(&mut self, kernel: &Kernel, given: KernelParams<'c>) -> EmitResult<()> {
        let mut words = 0i64..;
        let mut word = |code: &Self| code.e.offset(given.args, code.e.int(8 * words.next().unwrap_or_default()));
        for s in &kernel.symbols {
            let v = self.e.b.build_load(self.e.cx.i64_type(), word(self)?, "")?.into_int_value();
            self.symbols.insert(s.clone(), v);
        }
        for p in &kernel.params {
            let at = word(self)?;
            let val = match kernel.body.ty(p.value) {
                Type::Buffer(ty) => {
                    let base = self.e.b.build_load(self.e.pointer(), at, "")?.into_pointer_value();
                    self.make_buffer(base, ty)?
                }
                Type::Index => CodeValue::Index(self.e.b.build_load(self.e.cx.i64_type(), at, "")?.into_int_value()),
                _ => return Err("a parameter is neither a buffer nor an index".into()),
            };
            self.values[p.value] = Some(val);
        }
        // Grid points along each axis.
        let mut counts = Vec::new();
        for g in &kernel.grid {
            let step = g.step.max(1);
            let sum = self.e.b.build_int_add(self.dim(&g.extent)?, self.e.int(step - 1), "")?;
            counts.push(self.e.b.build_int_signed_div(sum, self.e.int(step), "")?);
        }
        self.counted(given.start, given.end, 1, |code, point| {
            let mut rest = point;
            for (g, count) in kernel.grid.iter().zip(&counts).rev() {
                let place = code.e.b.build_int_signed_rem(rest, *count, "")?;
                rest = code.e.b.build_int_signed_div(rest, *count, "")?;
                code.values[g.value] = Some(CodeValue::Index(place));
            }
            code.kernel_body(kernel, given.scratch)
        })?;
        Ok(())
    }

    fn kernel_body(&mut self, kernel: &Kernel, scratch: PointerValue<'c>) -> EmitResult<()> {
        let body = &kernel.body;
        let next = self.e.block();
        let order = body.reverse_postorder();
        let mut blocks: SecondaryMap<tile::Block, Option<BasicBlock<'c>>> = SecondaryMap::new();
        let mut phis: SecondaryMap<tile::Value, Option<PhiValue<'c>>> = SecondaryMap::new();
        let first = self.e.here()?;
        for block in &order {
            let here = self.e.block();
            blocks[*block] = Some(here);
            self.e.b.position_at_end(here);
            for v in &body.block(*block).args {
                if *body.ty(*v) == Type::Index {
                    let phi = self.e.b.build_phi(self.e.cx.i64_type(), "")?;
                    phis[*v] = Some(phi);
                    self.values[*v] = Some(CodeValue::Index(phi.as_basic_value().into_int_value()));
                }
            }
        }
        self.e.b.position_at_end(first);
        let entry = body.layout.first().and_then(|b| blocks[*b]).ok_or("a kernel without blocks")?;
        self.e.b.build_unconditional_branch(entry)?;
        for block in order {
            self.e.b.position_at_end(blocks[block].ok_or("a block without a counterpart")?);
            for inst in &body.block(block).insts {
                let data = body.inst(*inst).clone();
                match &data.op {
                    Op::Run { rows, cols, insts } => self.run((*rows, *cols), insts, scratch)?,
                    Op::Dot { mode: Some(mode) } => self.dot(&data, *mode, scratch)?,
                    Op::Transpose => self.transpose(&data, scratch)?,
                    Op::PairRows => self.pair_rows(&data, scratch)?,
                    Op::Element => {
                        let (Some(x), Some(v)) = (data.operands.first(), data.result) else {
                            return Err("an element without an operand".into());
                        };
                        let t = self.tile(*x)?;
                        let at = self.in_scratch(&t, scratch)?;
                        self.values[v] = Some(CodeValue::Scalar(self.e.load_scratch(t.elem, at, 1)?));
                    }
                    // Emitted by their users.
                    Op::Window { .. } | Op::LoadScaled { .. } | Op::LoadPairs => {}
                    op => {
                        if !self.simple(&data)? {
                            return Err(format!("{} cannot occur here", op.info().name).into());
                        }
                    }
                }
            }
            let from = self.e.here()?;
            let go = |code: &Self, c: &tile::BlockCall| -> EmitResult<BasicBlock<'c>> {
                for (v, x) in body.block(c.block).args.iter().zip(&c.args) {
                    if let Some(phi) = phis[*v] {
                        phi.add_incoming(&[(&code.index(*x)?, from)]);
                    }
                }
                Ok(blocks[c.block].ok_or("a block without a counterpart")?)
            };
            match &body.block(block).terminator {
                Terminator::Return(_) => {
                    self.e.b.build_unconditional_branch(next)?;
                }
                Terminator::Br(c) => {
                    let target = go(self, c)?;
                    self.e.b.build_unconditional_branch(target)?;
                }
                Terminator::BrIf { condition, then, otherwise } => {
                    let condition = self.e.first_int(self.scalar(*condition)?)?;
                    let (then, otherwise) = (go(self, then)?, go(self, otherwise)?);
                    self.e.b.build_conditional_branch(condition, then, otherwise)?;
                }
                Terminator::Roles(_) => return Err("warp roles cannot be compiled for a CPU".into()),
            }
        }
        self.e.b.position_at_end(next);
        Ok(())
    }
}
