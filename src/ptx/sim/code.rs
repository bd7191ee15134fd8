//! Decoded kernels: register numbers, resolved addresses and branch targets.
//!
//! In: a verified module. Out: for each kernel a dense list of instructions, with operands in the
//! order of the table.

use std::collections::HashMap;

use crate::ptx::text::{print_inst, printed};
use crate::ptx::{Base, Line, Module, Op, Operand, Reg, RegType, Special, Threads};

/// Start of a block's shared memory: Hopper reserves the first KiB, so that 0 is not a valid
/// address.
pub(super) const SHARED_BASE: u32 = 1024;
/// Generic addresses of parameters.
pub(super) const PARAM_BASE: u64 = 0x0f00_0000_0000;

#[derive(Clone, Debug)]
pub(super) enum Arg {
    Reg(u32),
    /// The bits of an immediate or address.
    Imm(u64),
    Special(Special),
    Regs(Box<[u32]>),
    /// A memory operand: optional register, offset.
    At(Option<u32>, i64),
    Label(u32),
    Pair(Option<u32>, Option<u32>),
    /// A tensor map and coordinates.
    Tensor(u32, Box<[u32]>),
    /// An unused result.
    Sink,
}

/// Convergence requirement of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Together {
    /// None.
    No,
    /// All lanes of the warp (`.aligned`).
    Warp,
    /// The lanes of the mask in this operand.
    Mask(u32),
}

#[derive(Clone, Debug)]
pub(super) struct Inst {
    pub(super) op: Op,
    pub(super) guard: Option<(u32, bool)>,
    pub(super) args: Box<[Arg]>,
    pub(super) together: Together,
    /// Registers with "is it written?"; only recorded in kernels with `wgmma`.
    pub(super) touched: Box<[(u32, bool)]>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    pub(super) at: u32,
    pub(super) bytes: u32,
    pub(super) align: u32,
    pub(super) is_pointer: bool,
}

#[derive(Debug)]
pub(super) struct Code {
    pub(super) name: String,
    pub(super) insts: Vec<Inst>,
    /// For each instruction its line number in the printed text, and its text.
    pub(super) lines: Vec<(usize, String)>,
    /// Width of each register in bits; 1 for predicates.
    pub(super) widths: Vec<u32>,
    pub(super) names: Vec<String>,
    pub(super) params: Vec<Parameter>,
    pub(super) threads: Threads,
    pub(super) cluster: Option<[u32; 3]>,
    /// Bytes of declared shared memory, including padding before the dynamic part.
    pub(super) static_shared: u32,
    pub(super) has_wgmma: bool,
}

impl Code {
    /// Total size of the parameters in bytes.
    pub(super) fn param_bytes(&self) -> usize {
        self.params.last().map_or(0, |p| (p.at + p.bytes) as usize)
    }
}

/// Decodes a verified module.
pub(super) fn decode(module: &Module) -> Vec<Code> {
    let text = printed(module);
    module
        .kernels
        .iter()
        .enumerate()
        .map(|(n, k)| {
            let mut symbols: HashMap<&str, u64> = HashMap::new();
            let mut at = SHARED_BASE;
            let statics = module.shared.iter().chain(&k.shared);
            for s in statics.clone().filter(|s| s.bytes.is_some()) {
                at = at.next_multiple_of(s.align.max(1));
                symbols.insert(&s.name, u64::from(at));
                at += s.bytes.unwrap_or(0);
            }
            let align = statics.clone().filter(|s| s.bytes.is_none()).map(|s| s.align.max(16)).max().unwrap_or(16);
            if statics.clone().any(|s| s.bytes.is_none()) {
                at = at.next_multiple_of(align);
            }
            for s in statics.filter(|s| s.bytes.is_none()) {
                symbols.insert(&s.name, u64::from(at));
            }
            let mut params = Vec::new();
            let mut end = 0u32;
            for p in &k.params {
                end = end.next_multiple_of(p.ty.align().max(1));
                symbols.insert(&p.name, u64::from(end));
                let is_pointer = matches!(p.ty, crate::ptx::ParamType::Pointer(_));
                let align = match p.ty {
                    crate::ptx::ParamType::Pointer(align) => align,
                    other => other.align(),
                };
                params.push(Parameter { at: end, bytes: p.ty.bytes(), align, is_pointer });
                end += p.ty.bytes();
            }
            let mut labels: HashMap<&str, u32> = HashMap::new();
            let mut pc = 0;
            for line in &k.body {
                match line {
                    Line::Label(name) => {
                        labels.insert(name, pc);
                    }
                    Line::Inst(_) => pc += 1,
                    Line::Comment(_) => {}
                }
            }
            let is_wgmma = |op: Op| matches!(op, Op::Wgmma { .. } | Op::WgmmaRegisters { .. });
            let has_wgmma = k.insts().any(|(_, i)| is_wgmma(i.op));
            let arg = |o: &Operand| match o {
                Operand::Reg(r) => Arg::Reg(r.0),
                Operand::Pair(a, b) => Arg::Pair(a.map(|r| r.0), b.map(|r| r.0)),
                Operand::Int(n) => Arg::Imm(*n as u64),
                Operand::F32(bits) => Arg::Imm(u64::from(*bits)),
                Operand::F64(bits) => Arg::Imm(*bits),
                Operand::Special(s) => Arg::Special(*s),
                Operand::Symbol(s) => Arg::Imm(symbols.get(s.as_str()).copied().unwrap_or(0)),
                Operand::Address(a) => match &a.base {
                    Base::Reg(r) => Arg::At(Some(r.0), i64::from(a.offset)),
                    Base::Symbol(s) => {
                        Arg::At(None, symbols.get(s.as_str()).copied().unwrap_or(0) as i64 + i64::from(a.offset))
                    }
                },
                Operand::Vector(regs) => Arg::Regs(numbers(regs)),
                Operand::Tensor(map, at) => Arg::Tensor(map.0, numbers(at)),
                Operand::Label(name) => Arg::Label(labels.get(name.as_str()).copied().unwrap_or(0)),
                Operand::Sink => Arg::Sink,
            };
            let insts = k.insts().map(|(_, i)| {
                let (uses, defs) = if has_wgmma && !is_wgmma(i.op) { i.uses_and_defs() } else { Default::default() };
                let touched = uses.iter().map(|r| (r.0, false)).chain(defs.iter().map(|r| (r.0, true))).collect();
                let guard = i.guard.map(|g| (g.reg.0, g.negated));
                Inst { op: i.op, guard, args: i.operands.iter().map(arg).collect(), together: together(i.op), touched }
            });
            let lines = k
                .insts()
                .map(|(at, i)| (text.lines.get(n).and_then(|l| l.get(at)).copied().unwrap_or(0), print_inst(k, i)));
            Code {
                name: k.name.clone(),
                insts: insts.collect(),
                lines: lines.collect(),
                widths: k.registers.iter().map(|r| if r.ty == RegType::Pred { 1 } else { r.ty.bits() }).collect(),
                names: k.registers.iter().map(|r| r.name.clone()).collect(),
                params,
                threads: k.threads,
                cluster: k.cluster,
                static_shared: at - SHARED_BASE,
                has_wgmma,
            }
        })
        .collect()
}

fn numbers(regs: &[Reg]) -> Box<[u32]> {
    regs.iter().map(|r| r.0).collect()
}

/// Convergence requirement of an opcode: `.aligned`, or a mask of lanes.
fn together(op: Op) -> Together {
    if matches!(op, Op::BarSync {} | Op::BarArrive {} | Op::BarAny {}) || op.text().contains(".aligned") {
        return Together::Warp;
    }
    match op {
        Op::BarWarp {}
        | Op::Elect {}
        | Op::Ballot {}
        | Op::Vote { .. }
        | Op::Redux { .. }
        | Op::Shfl { .. }
        | Op::ShflPred { .. } => {
            let last = op.slots().len() as u32 - 1;
            Together::Mask(last)
        }
        _ => Together::No,
    }
}

/// Checks a launch against the kernel's declaration.
pub(super) fn fits(code: &Code, block: [u32; 3], shared: u32, params: &[&[u8]]) -> Result<(), String> {
    let threads = block.iter().fold(1u64, |n, e| n * u64::from(*e));
    let fault = |message: String| Err(message);
    if !(1..=1024).contains(&threads) || block[2] > 64 {
        return fault(format!("a block of {} x {} x {} threads; 1 to 1024 are allowed", block[0], block[1], block[2]));
    }
    match code.threads {
        Threads::Exactly(wanted) if wanted != block => {
            return fault(format!("a block of {block:?} threads; the kernel requires {wanted:?}"));
        }
        Threads::AtMost(most) if most.iter().fold(1u64, |n, e| n * u64::from(*e)) < threads => {
            return fault(format!("{threads} threads; the kernel takes at most {most:?}"));
        }
        _ => {}
    }
    let total = u64::from(code.static_shared) + u64::from(shared);
    if total > MAX_SHARED {
        return fault(format!("{total} bytes of shared memory; a block has at most {MAX_SHARED}"));
    }
    if params.len() != code.params.len() {
        return fault(format!("{} parameters; the kernel takes {}", params.len(), code.params.len()));
    }
    for (n, (given, p)) in params.iter().zip(&code.params).enumerate() {
        if given.len() != p.bytes as usize {
            return fault(format!("parameter {n} has {} bytes; the kernel takes {}", given.len(), p.bytes));
        }
        if p.is_pointer {
            let address = given.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
            if !address.is_multiple_of(u64::from(p.align)) {
                return fault(format!("parameter {n} is {address:#x}; the kernel takes a multiple of {}", p.align));
            }
        }
    }
    Ok(())
}

/// Maximum shared memory of a block in bytes.
const MAX_SHARED: u64 = 227 << 10;
