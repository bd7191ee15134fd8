//! The text form, as `--emit mir` shows it.
//!
//! In: a function over virtual or physical registers, and comments on the operations that its code
//! comes from. Out: text. With virtual registers it parses back (`read`), without comments. Virtual
//! registers are numbered in the order of their definitions.
//!
//! ```text
//! leaf @leaf.run.avx512.0, vectors=512, frame=0 {
//!   constant c0, 0.5
//! ^bb0:
//!   %0 = mov [words+8]
//!   %1 = mov_imm 0
//!   jump ^bb1(%1)
//! ^bb1(%2: general):
//!   // model.attn:4:5  %3 = mul %1, %2
//!   %3 = load [%0+%2*4]
//!   %4 = mul %3, [c0]  // 0.5
//!   store [%0+%2*4], %4
//!   %5 = plus_imm tied(%2), 16
//!   branch %5 < 128, ^bb1(%5), ^bb2
//! ^bb2:
//!   return
//! }
//! ```

use std::fmt::Write as _;

use super::{Base, Constant, Function, Inst, Mem, Operand, Physical, Reg, Target, Terminator, When};
use crate::irtext::float32_text;
use crate::tile::{self, Width};

/// Comment for a tile operation, printed before its code.
pub(in super::super) type Note<'a> = &'a dyn Fn(tile::Inst) -> String;

/// A function over virtual registers as text.
pub(in super::super) fn print(name: &str, f: &Function, note: Note<'_>) -> String {
    let mut numbers = vec![0; f.classes.len()];
    let written = f.blocks.iter().flat_map(|b| b.params.iter().copied().chain(b.insts.iter().filter_map(|i| i.dst)));
    for (n, r) in written.enumerate() {
        numbers[r.index()] = n;
    }
    let register = |r: Reg| format!("%{}", numbers[r.index()]);
    let param = |r: Reg| format!("{}: {}", register(r), f.class(r).name());
    Printer { f, register: &register, param: &param, note }.text("leaf", name)
}

/// A function over physical registers as text.
pub(in super::super) fn print_allocated(name: &str, f: &Function<Physical>, note: Note<'_>) -> String {
    let register = |p: Physical| p.name(f.width);
    Printer { f, register: &register, param: &register, note }.text("allocated", name)
}

struct Printer<'a, R> {
    f: &'a Function<R>,
    register: &'a dyn Fn(R) -> String,
    /// A parameter of a block.
    param: &'a dyn Fn(R) -> String,
    note: Note<'a>,
}

impl<R: Copy> Printer<'_, R> {
    fn text(&self, head: &str, name: &str) -> String {
        let bits = 32 * self.f.width.lanes();
        let mut out = format!("{head} @{name}, vectors={bits}, frame={} {{\n", self.f.frame);
        for (n, constant) in self.f.pool.iter().enumerate() {
            let _ = writeln!(out, "  constant c{n}, {}", constant_text(*constant));
        }
        let mut origin = None;
        for (block, data) in self.f.named_blocks() {
            let params: Vec<String> = data.params.iter().map(|r| (self.param)(*r)).collect();
            let params = if params.is_empty() { String::new() } else { format!("({})", params.join(", ")) };
            let _ = writeln!(out, "{block}{params}:");
            for inst in &data.insts {
                if let Some(i) = inst.origin.filter(|_| inst.origin != origin) {
                    let _ = writeln!(out, "  // {}", (self.note)(i));
                }
                origin = inst.origin;
                let _ = writeln!(out, "  {}{}", self.inst(inst), self.constants(inst));
            }
            let _ = writeln!(out, "  {}", self.terminator(&data.end));
        }
        out + "}\n"
    }

    fn inst(&self, inst: &Inst<R>) -> String {
        let result = inst.dst.map_or(String::new(), |r| format!("{} = ", (self.register)(r)));
        let tied = inst.tied.map(|r| format!("tied({})", (self.register)(r)));
        let mask = inst.mask.map(|(r, zero)| {
            let others = if zero { ", zero" } else { "" };
            format!("mask({}{others})", (self.register)(r))
        });
        let srcs = inst.srcs.iter().map(|s| self.operand(s));
        let operands: Vec<String> = tied.into_iter().chain(srcs).chain(mask).collect();
        format!("{result}{} {}", inst.op.name(), operands.join(", "))
    }

    /// A comment with the values of the constants that it reads.
    fn constants(&self, inst: &Inst<R>) -> String {
        let pool = inst.srcs.iter().filter_map(|s| match s {
            Operand::Mem(Mem { base: Base::Pool(n), .. }) => self.f.pool.get(*n as usize),
            _ => None,
        });
        pool.map(|c| format!("  // {}", constant_text(*c))).collect()
    }

    fn operand(&self, operand: &Operand<R>) -> String {
        let m = match operand {
            Operand::Reg(r) => return (self.register)(*r),
            Operand::Imm(n) => return n.to_string(),
            Operand::Mem(m) => m,
        };
        let base = match m.base {
            Base::Reg(r) => (self.register)(r),
            Base::Words => "words".to_string(),
            Base::Frame => "frame".to_string(),
            Base::Pool(n) => format!("c{n}"),
        };
        let index = match m.index {
            Some((r, 1)) => format!("+{}", (self.register)(r)),
            Some((r, scale)) => format!("+{}*{scale}", (self.register)(r)),
            None => String::new(),
        };
        let offset = if m.offset == 0 { String::new() } else { format!("{:+}", m.offset) };
        format!("[{base}{index}{offset}]")
    }

    fn terminator(&self, end: &Terminator<R>) -> String {
        match end {
            Terminator::Return => "return".to_string(),
            Terminator::Jump(to) => format!("jump {}", self.target(to)),
            Terminator::Branch { compare, when, targets: [then, otherwise] } => {
                let operands: Vec<String> = compare.srcs.iter().map(|s| self.operand(s)).collect();
                let when = match when {
                    When::Less => " < ",
                    When::GreaterEqual => " >= ",
                };
                format!("branch {}, {}, {}", operands.join(when), self.target(then), self.target(otherwise))
            }
        }
    }

    fn target(&self, target: &Target<R>) -> String {
        let args: Vec<String> = target.args.iter().map(|r| (self.register)(*r)).collect();
        let args = if args.is_empty() { String::new() } else { format!("({})", args.join(", ")) };
        format!("{}{args}", target.block)
    }
}

/// A constant; subnormals and NaN are printed as integers.
fn constant_text(constant: Constant) -> String {
    match constant {
        Constant::Count => "count".to_string(),
        Constant::Same(bits) => match f32::from_bits(bits) {
            x if x.is_normal() || x.is_infinite() || bits == 1 << 31 => float32_text(x),
            _ => bits.cast_signed().to_string(),
        },
    }
}

/// Names of the general registers, by number.
const GENERAL: [&str; 16] =
    ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];

impl Physical {
    /// The assembler's name at a vector width.
    fn name(self, width: Width) -> String {
        match (self.class, width) {
            (super::Class::Vector, Width::V512) => format!("zmm{}", self.number),
            (super::Class::Vector, Width::V256) => format!("ymm{}", self.number),
            (super::Class::Vector, Width::V128) => format!("xmm{}", self.number),
            (super::Class::Mask, _) => format!("k{}", self.number),
            (super::Class::General, _) => GENERAL.get(usize::from(self.number)).map_or("none", |name| name).to_string(),
        }
    }
}
