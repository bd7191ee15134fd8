//! Encodes allocated functions with `iced-x86`.
//!
//! In: a function over physical registers. Out: machine code that follows the System V calling
//! convention (`rdi` points to the arguments), constants after the code, addressed relative to
//! `rip`; and the offset at which the code of each operation begins.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::super::origins::Places;
use super::allocate::Allocated;
use super::asm::{self, Asm};
use super::machine::{
    Base, Class, Constant, Function, Inst, Mem, Op, Operand, Physical, Target, Terminator, View, When,
};
use crate::tile::{self, Width};

const GENERAL: [[Register; 4]; 16] = {
    use Register as R;
    [
        [R::RAX, R::EAX, R::AX, R::AL],
        [R::RCX, R::ECX, R::CX, R::CL],
        [R::RDX, R::EDX, R::DX, R::DL],
        [R::RBX, R::EBX, R::BX, R::BL],
        [R::RSP, R::ESP, R::SP, R::SPL],
        [R::RBP, R::EBP, R::BP, R::BPL],
        [R::RSI, R::ESI, R::SI, R::SIL],
        [R::RDI, R::EDI, R::DI, R::DIL],
        [R::R8, R::R8D, R::R8W, R::R8L],
        [R::R9, R::R9D, R::R9W, R::R9L],
        [R::R10, R::R10D, R::R10W, R::R10L],
        [R::R11, R::R11D, R::R11W, R::R11L],
        [R::R12, R::R12D, R::R12W, R::R12L],
        [R::R13, R::R13D, R::R13W, R::R13L],
        [R::R14, R::R14D, R::R14W, R::R14L],
        [R::R15, R::R15D, R::R15W, R::R15L],
    ]
};

struct Encoder<'a> {
    function: &'a Function<Physical>,
    asm: Asm,
    /// Labels of the blocks and of the constants.
    blocks: Vec<asm::Label>,
    pool: Vec<asm::Label>,
    places: Places,
    /// The tile operation of the current code.
    origin: Option<tile::Inst>,
}

/// Encodes a function; returns the bytes and the offsets of operations.
pub(super) fn encode(allocated: &Allocated) -> Option<(Vec<u8>, Places)> {
    let mut asm = Asm::new(false);
    let function = &allocated.function;
    let pool = function.pool.iter().map(|_| asm.label()).collect();
    let blocks = function.blocks.iter().map(|_| asm.label()).collect();
    let mut e = Encoder { function, asm, blocks, pool, places: Places::new(), origin: None };
    e.enter(allocated);
    for (n, block) in function.blocks.iter().enumerate() {
        let label = *e.blocks.get(n)?;
        e.asm.bind(label);
        for inst in &block.insts {
            e.made_from(inst.origin)?;
            e.instruction(inst)?;
        }
        e.terminator(n, &block.end, allocated)?;
    }
    e.constants();
    let (bytes, _) = e.asm.finish().ok()?;
    Some((bytes, e.places))
}

impl Encoder<'_> {
    /// Records the origin of the code that follows.
    fn made_from(&mut self, origin: Option<tile::Inst>) -> Option<()> {
        if origin != self.origin {
            self.origin = origin;
            self.places.push((u32::try_from(self.asm.length()).ok()?, origin));
        }
        Some(())
    }

    /// Encodes the terminator of block `n`; a jump to the next block is omitted.
    fn terminator(&mut self, n: usize, end: &Terminator<Physical>, allocated: &Allocated) -> Option<()> {
        let place = |target: &Target<Physical>| target.block.as_u32() as usize;
        match end {
            Terminator::Return => {
                self.made_from(None)?;
                self.leave(allocated);
            }
            Terminator::Jump(to) if place(to) == n + 1 => {}
            Terminator::Jump(to) => {
                self.made_from(None)?;
                self.asm.jump(Code::Jmp_rel32_64, *self.blocks.get(place(to))?);
            }
            Terminator::Branch { compare, when, targets: [then, otherwise] } => {
                self.made_from(compare.origin)?;
                self.instruction(compare)?;
                let (when, to, other) =
                    if place(then) == n + 1 { (when.opposite(), otherwise, then) } else { (*when, then, otherwise) };
                let code = match when {
                    When::Less => Code::Jl_rel32_64,
                    When::GreaterEqual => Code::Jge_rel32_64,
                };
                self.asm.jump(code, *self.blocks.get(place(to))?);
                if place(other) != n + 1 {
                    self.asm.jump(Code::Jmp_rel32_64, *self.blocks.get(place(other))?);
                }
            }
        }
        Some(())
    }

    fn general(n: u8, view: View) -> Register {
        let column = match view {
            View::Full => 0,
            View::Half => 1,
            View::Low => 2,
            View::Byte => 3,
        };
        GENERAL[usize::from(n) % 16][column]
    }

    fn register(&self, p: Physical, view: View) -> Option<Register> {
        let n = p.number;
        let vector = |first: Register| Register::try_from(first as usize + usize::from(n)).ok();
        match (p.class, view) {
            (Class::General, _) => Some(Self::general(n, view)),
            (Class::Mask, _) => Register::try_from(Register::K0 as usize + usize::from(n)).ok(),
            (Class::Vector, View::Full) if self.function.wide() => vector(Register::ZMM0),
            (Class::Vector, View::Full) => vector(Register::YMM0),
            (Class::Vector, View::Half) if self.function.wide() => vector(Register::YMM0),
            (Class::Vector, View::Half | View::Low | View::Byte) => vector(Register::XMM0),
        }
    }

    fn memory(&self, m: &Mem<Physical>) -> Option<MemoryOperand> {
        let base = match m.base {
            Base::Reg(r) => self.register(r, View::Full)?,
            Base::Words => Register::RDI,
            Base::Frame => Register::RSP,
            Base::Pool(_) => return Some(MemoryOperand::with_base_displ(Register::RIP, 0)),
        };
        let offset = i64::from(m.offset);
        Some(match m.index {
            Some((r, scale)) => {
                let index = self.register(r, View::Full)?;
                MemoryOperand::with_base_index_scale_displ_size(
                    base,
                    index,
                    scale.into(),
                    offset,
                    u32::from(offset != 0),
                )
            }
            None => MemoryOperand::with_base_displ_size(base, offset, u32::from(offset != 0)),
        })
    }

    fn instruction(&mut self, inst: &Inst<Physical>) -> Option<()> {
        let code = inst.op.code(self.function.width);
        if code == Code::INVALID {
            return None;
        }
        let mut i = Instruction::default();
        i.set_code(code);
        let mut n = 0;
        let mut constant = None;
        if let Some(d) = inst.dst {
            i.set_op_kind(0, iced_x86::OpKind::Register);
            i.set_op_register(0, self.register(d, inst.op.view(0))?);
            n = 1;
        }
        for s in &inst.srcs {
            match s {
                Operand::Reg(r) => {
                    i.set_op_kind(n, iced_x86::OpKind::Register);
                    i.set_op_register(n, self.register(*r, inst.op.view(usize::try_from(n).unwrap_or(0)))?);
                }
                Operand::Mem(m) => {
                    let place = self.memory(m)?;
                    i.set_op_kind(n, iced_x86::OpKind::Memory);
                    i.set_memory_base(place.base);
                    i.set_memory_index(place.index);
                    i.set_memory_index_scale(place.scale);
                    i.set_memory_displ_size(place.displ_size);
                    i.set_memory_displacement64(place.displacement.cast_unsigned());
                    if let Base::Pool(n) = m.base {
                        constant = Some(*self.pool.get(n as usize)?);
                    }
                    let folded = inst.op.folds() && self.function.wide();
                    if folded && matches!(m.base, Base::Pool(_)) && self.is_same(m) {
                        i.set_is_broadcast(true);
                    }
                }
                Operand::Imm(x) => {
                    let kind = match inst.op {
                        Op::AndImm => iced_x86::OpKind::Immediate8to64,
                        Op::MovImm | Op::PlusImm | Op::CompareImm | Op::TimesImm => iced_x86::OpKind::Immediate32to64,
                        _ => iced_x86::OpKind::Immediate8,
                    };
                    i.set_op_kind(n, kind);
                    match kind {
                        iced_x86::OpKind::Immediate8 => i.set_immediate8(u8::try_from(*x).ok()?),
                        iced_x86::OpKind::Immediate8to64 => i.set_immediate8to64(i64::from(*x)),
                        _ => i.set_immediate32to64(i64::from(*x)),
                    }
                }
            }
            n += 1;
        }
        if let Some((k, zero)) = inst.mask {
            i.set_op_mask(self.register(k, View::Full)?);
            i.set_zeroing_masking(zero);
        }
        match constant {
            Some(label) => self.asm.emit_of(i, label),
            None => self.asm.emit(Ok(shorter(i))),
        }
        Some(())
    }

    fn is_same(&self, m: &Mem<Physical>) -> bool {
        let Base::Pool(n) = m.base else { return false };
        matches!(self.function.pool.get(n as usize), Some(Constant::Same(_)))
    }

    fn enter(&mut self, allocated: &Allocated) {
        let asm = &mut self.asm;
        for n in &allocated.saved {
            asm.emit(Instruction::with1(Code::Push_r64, Self::general(*n, View::Full)));
        }
        if self.function.frame > 0 {
            let (rbp, rsp) = (Register::RBP, Register::RSP);
            asm.emit(Instruction::with1(Code::Push_r64, rbp));
            asm.emit(Instruction::with2(Code::Mov_r64_rm64, rbp, rsp));
            asm.emit(Instruction::with2(Code::Sub_rm64_imm32, rsp, self.function.frame));
            asm.emit(Instruction::with2(Code::And_rm64_imm8, rsp, -64i32));
        }
    }

    fn leave(&mut self, allocated: &Allocated) {
        let asm = &mut self.asm;
        asm.emit(Ok(Instruction::with(Code::VEX_Vzeroupper)));
        if self.function.frame > 0 {
            asm.emit(Instruction::with2(Code::Mov_r64_rm64, Register::RSP, Register::RBP));
            asm.emit(Instruction::with1(Code::Pop_r64, Register::RBP));
        }
        for n in allocated.saved.iter().rev() {
            asm.emit(Instruction::with1(Code::Pop_r64, Self::general(*n, View::Full)));
        }
        asm.emit(Ok(Instruction::with(Code::Retnq)));
    }

    /// Bytes of a constant: one element if its uses broadcast it, else a full vector.
    fn bytes(&self, c: &Constant) -> Vec<u8> {
        match c {
            Constant::Same(x) => x.to_le_bytes().repeat(if self.function.width == Width::V512 { 1 } else { 8 }),
            Constant::Count => (0..self.function.width.lanes()).flat_map(u32::to_le_bytes).collect(),
        }
    }

    /// Emits the constants, aligned to 64 bytes.
    fn constants(&mut self) {
        let constants = self.pool.iter().zip(&self.function.pool).map(|(label, c)| (*label, self.bytes(c)));
        // Full vectors first, so that all are aligned if the first is.
        let mut order: Vec<(asm::Label, Vec<u8>)> = constants.collect();
        order.sort_by_key(|(_, bytes)| std::cmp::Reverse(bytes.len()));
        if !order.is_empty() {
            let end = self.asm.length();
            self.asm.data(&vec![0xcc; end.next_multiple_of(64) - end]);
        }
        for (label, bytes) in order {
            self.asm.bind(label);
            self.asm.data(&bytes);
        }
    }
}

/// Uses the short immediate encoding where possible.
fn shorter(mut i: Instruction) -> Instruction {
    let small = i8::try_from(i.immediate32to64()).is_ok();
    let code = match i.code() {
        Code::Add_rm64_imm32 => Code::Add_rm64_imm8,
        Code::Cmp_rm64_imm32 => Code::Cmp_rm64_imm8,
        _ => return i,
    };
    if small {
        let n = i.immediate32to64();
        i.set_code(code);
        i.set_op_kind(1, iced_x86::OpKind::Immediate8to64);
        i.set_immediate8to64(n);
    }
    i
}
