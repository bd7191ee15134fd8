//! Compiles a scheduled kernel to a function over a range of its grid.
//!
//! In: a kernel scheduled for this back end. Out: a CLIF function of the runtime's `Kernel` type.
//! `args` holds the run-time dimensions that the kernel names, in order, then its parameters
//! (addresses and indices). It iterates over the flat range of grid points, computes the indices of
//! each, and runs the body, whose blocks are CLIF blocks.

use cranelift_codegen::ir::{InstBuilder, types};
use cranelift_entity::SecondaryMap;

use super::code::{Code, CodeValue};
use super::lanes::{Width, plain};
use super::wide::Dotted;
use crate::shape::Elem;
use crate::tile::{self, Cpu, DotMode, InstData, Kernel, Op, Space, Type};

impl Code<'_, '_> {
    /// Emits the body of a kernel, given its parameters `args`, `start`, `end` and `scratch`;
    /// returns through `stop`.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(super) fn kernel(
        &mut self,
        kernel: &Kernel,
        [args, start, end, scratch]: [cranelift_codegen::ir::Value; 4],
    ) -> Result<(), String> {
        let mut offset = 0;
        for s in &kernel.symbols {
            let v = self.b.ins().load(types::I64, plain(), args, offset);
            self.symbols.insert(s.clone(), v);
            offset += 8;
        }
        for p in &kernel.params {
            let v = self.b.ins().load(types::I64, plain(), args, offset);
            offset += 8;
            let val = match kernel.body.ty(p.value) {
                Type::Buffer(ty) => self.make_buffer(v, ty)?,
                Type::Index => CodeValue::Index(v),
                _ => return Err("a parameter is neither a buffer nor an index".into()),
            };
            self.values[p.value] = Some(val);
        }
        // Grid points along each axis.
        let mut counts = Vec::new();
        for g in &kernel.grid {
            let extent = self.dim(&g.extent)?;
            let step = g.step.max(1);
            let sum = self.b.ins().iadd_imm_s(extent, step - 1);
            let step = self.int(step);
            counts.push(self.b.ins().sdiv(sum, step));
        }
        let point = self.b.declare_var(types::I64);
        self.b.def_var(point, start);
        self.counted(point, end, 1, |code| {
            let mut rest = code.b.use_var(point);
            for (g, count) in kernel.grid.iter().zip(&counts).rev() {
                // The outermost axis needs no division: the remaining quotient is its index.
                let place = code.b.ins().srem(rest, *count);
                rest = code.b.ins().sdiv(rest, *count);
                code.values[g.value] = Some(CodeValue::Index(place));
            }
            code.kernel_body(kernel, scratch)
        })
    }

    fn kernel_body(&mut self, kernel: &Kernel, scratch: cranelift_codegen::ir::Value) -> Result<(), String> {
        let body = &kernel.body;
        let tile::State::Cpu(level) = kernel.state else {
            return Err("the kernel is not scheduled for a CPU".into());
        };
        let next = self.b.create_block();
        let mut blocks: SecondaryMap<tile::Block, Option<cranelift_codegen::ir::Block>> = SecondaryMap::new();
        for (n, block) in body.layout.iter().enumerate() {
            let b = self.b.create_block();
            blocks[*block] = Some(b);
            for v in &body.block(*block).args {
                match body.ty(*v) {
                    Type::Index => {
                        let x = self.b.append_block_param(b, types::I64);
                        self.values[*v] = Some(CodeValue::Index(x));
                    }
                    Type::Tile(_) => {}
                    _ => return Err("a block parameter is neither an index nor a tile".into()),
                }
            }
            if n == 0 {
                self.b.ins().jump(b, &[]);
            }
        }
        for block in body.reverse_postorder() {
            let here = blocks[block].ok_or("a block without a counterpart")?;
            self.b.switch_to_block(here);
            let mut all = body.block(block).insts.iter().peekable();
            while let Some(inst) = all.next() {
                let data = body.inst(*inst).clone();
                self.leaves.next_is(*inst);
                self.at(Some(*inst));
                match &data.op {
                    Op::Run { rows, cols, insts } => {
                        if !self.wide_run(level, (*rows, *cols), insts, scratch)? {
                            self.run(*rows, *cols, insts, scratch)?;
                        }
                    }
                    Op::Dot { mode: Some(DotMode::Chain) } => {
                        self.declined(level, *inst);
                        self.dot(&data, scratch)?;
                    }
                    Op::Dot { mode: Some(DotMode::Pairs) } => self.wide_pairs(level, &data, scratch)?,
                    Op::Dot { mode: Some(DotMode::Tiles) } => self.wide_tiles(level, &data, scratch)?,
                    Op::Dot { mode: Some(mode @ (DotMode::Fma | DotMode::Groups)) } => {
                        // Adjacent matmuls may be computed by one leaf.
                        let beside = all.clone().map_while(|i| Some(body.inst(*i)).filter(|d| d.op == data.op));
                        let group: Vec<&InstData> = std::iter::once(&data).chain(beside).collect();
                        if let Some(count) = self.wide_dot_group(level, &group, scratch)? {
                            all.by_ref().take(count - 1).for_each(drop);
                            continue;
                        }
                        let next = all.peek().map(|next| **next);
                        if self.wide_dot(level, (*mode, &data), next, scratch)? == Dotted::Stored {
                            // The store was done by the matmul's leaf.
                            all.next();
                        }
                    }
                    Op::Transpose => {
                        if !self.wide_transpose(level, &data, scratch)? {
                            self.declined(level, *inst);
                            self.transpose(&data, scratch)?;
                        }
                    }
                    Op::PairRows => {
                        if !self.wide_pair_rows(level, &data, scratch)? {
                            self.declined(level, *inst);
                            self.pair_rows(&data, scratch)?;
                        }
                    }
                    Op::Element => self.only_element(&data, scratch)?,
                    // Emitted by their users.
                    Op::Window { .. } | Op::LoadScaled { .. } | Op::LoadPairs => {}
                    _ => {
                        if !self.simple(&data)? {
                            Code::unknown(&data)?;
                        }
                    }
                }
            }
            self.at(None);
            self.terminator(&body.block(block).terminator, &blocks, next)?;
        }
        for block in &body.layout {
            if let Some(b) = blocks[*block] {
                self.b.seal_block(b);
            }
        }
        self.b.switch_to_block(next);
        self.b.seal_block(next);
        Ok(())
    }

    /// Records an operation without a leaf, on an instruction set that has leaves.
    fn declined(&mut self, level: Cpu, inst: tile::Inst) {
        if level.width() != tile::Width::V128 {
            let data = self.body.inst(inst);
            let elem = data.result.and_then(|v| self.body.ty(v).elem());
            let elem = elem.map_or(String::new(), |elem| format!(" of {elem}"));
            self.leaves.decline(inst, format!("`{}`{elem}", data.op.info().name));
        }
    }

    /// Reads the only element of a 1x1 tile.
    fn only_element(&mut self, data: &InstData, scratch: cranelift_codegen::ir::Value) -> Result<(), String> {
        let t = data.operands.first().and_then(|x| self.body.ty(*x).tile());
        let (Some(t), Some(v)) = (t, data.result) else { return Err("the operand of `element` is not a tile".into()) };
        let Space::L1(offset, _) = t.space else { return Err("an element of a tile that is not in scratch".into()) };
        let at = self.b.ins().iadd_imm_s(scratch, i64::from(offset));
        // In scratch, booleans are masks of 4 bytes.
        let elem = if t.elem == Elem::Bool { Elem::I32 } else { t.elem };
        let mut x = self.lanes().load(elem, Width::One, at, 0);
        if t.elem == Elem::Bool {
            x = self.lanes().mask_of_bits(x);
        }
        self.values[v] = Some(CodeValue::Scalar(x));
        Ok(())
    }
}
