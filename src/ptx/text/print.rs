//! Printer of PTX text.

use std::fmt::Write as _;

use crate::ptx::{Address, Base, Inst, Kernel, Line, Module, Operand, ParamType, Reg, Shared, Threads};

/// Maximum columns of a line of declarations.
const WIDTH: usize = 120;

/// Printed text with the line numbers of kernels.
#[derive(Clone, Debug)]
pub struct Printed {
    /// The text of the module.
    pub text: String,
    /// For each kernel the line number (from 1) of its head.
    pub heads: Vec<usize>,
    /// For each kernel and each line of its body the line number.
    pub lines: Vec<Vec<usize>>,
}

/// Prints a module.
pub fn print(module: &Module) -> String {
    printed(module).text
}

/// Prints a module, with line numbers.
pub fn printed(module: &Module) -> Printed {
    let mut out = Printed { text: String::new(), heads: Vec::new(), lines: Vec::new() };
    let text = &mut out.text;
    let _ = writeln!(text, ".version {}\n.target {}\n.address_size 64", module.version, module.target);
    if !module.shared.is_empty() {
        text.push('\n');
    }
    for s in &module.shared {
        shared(text, s);
    }
    for k in &module.kernels {
        out.text.push('\n');
        kernel(&mut out, k);
    }
    out
}

fn shared(out: &mut String, s: &Shared) {
    let _ = match s.bytes {
        Some(bytes) => writeln!(out, ".shared .align {} .b8 {}[{bytes}];", s.align, s.name),
        None => writeln!(out, ".extern .shared .align {} .b8 {}[];", s.align, s.name),
    };
}

fn kernel(out: &mut Printed, k: &Kernel) {
    for line in &k.comments {
        comment(&mut out.text, "", line);
    }
    out.heads.push(out.text.matches('\n').count() + 1);
    let text = &mut out.text;
    let _ = write!(text, ".visible .entry {}(", k.name);
    for (n, p) in k.params.iter().enumerate() {
        text.push_str(if n == 0 { "\n    " } else { ",\n    " });
        let _ = match p.ty {
            ParamType::Scalar(ty) => write!(text, ".param {ty} {}", p.name),
            ParamType::Pointer(align) => write!(text, ".param .u64 .ptr .global .align {align} {}", p.name),
            ParamType::Bytes(align, bytes) => write!(text, ".param .align {align} .b8 {}[{bytes}]", p.name),
        };
    }
    text.push_str(if k.params.is_empty() { ")\n" } else { "\n)\n" });
    let _ = match k.threads {
        Threads::Any => Ok(()),
        Threads::Exactly([x, y, z]) => writeln!(text, ".reqntid {x}, {y}, {z}"),
        Threads::AtMost([x, y, z]) => writeln!(text, ".maxntid {x}, {y}, {z}"),
    };
    if let Some(n) = k.min_blocks {
        let _ = writeln!(text, ".minnctapersm {n}");
    }
    if let Some([x, y, z]) = k.cluster {
        let _ = writeln!(text, ".reqnctapercluster {x}, {y}, {z}");
    }
    text.push_str("{\n");
    registers(text, k);
    for s in &k.shared {
        text.push_str("    ");
        shared(text, s);
    }
    if !(k.registers.is_empty() && k.shared.is_empty()) {
        text.push('\n');
    }
    let first = text.matches('\n').count() + 1;
    for line in &k.body {
        match line {
            Line::Label(name) => {
                let _ = writeln!(text, "{name}:");
            }
            Line::Comment(words) => comment(text, "    ", words),
            Line::Inst(i) => {
                let _ = writeln!(text, "    {};", inst(k, i));
            }
        }
    }
    text.push_str("}\n");
    out.lines.push((first..first + k.body.len()).collect());
}

/// Consecutive registers of one type share a declaration, up to the line width.
fn registers(out: &mut String, k: &Kernel) {
    let mut now = None;
    let mut length = 0;
    for r in &k.registers {
        if now == Some(r.ty) && length + r.name.len() + 3 <= WIDTH {
            let _ = write!(out, ", {}", r.name);
            length += r.name.len() + 2;
        } else {
            if now.is_some() {
                out.push_str(";\n");
            }
            let start = format!("    .reg {} {}", r.ty, r.name);
            length = start.len();
            out.push_str(&start);
            now = Some(r.ty);
        }
    }
    if now.is_some() {
        out.push_str(";\n");
    }
}

fn comment(out: &mut String, indent: &str, words: &str) {
    let line = format!("{indent}// {words}");
    out.push_str(line.trim_end());
    out.push('\n');
}

/// Prints an instruction, without its semicolon.
pub fn inst(k: &Kernel, i: &Inst) -> String {
    let mut out = String::new();
    if let Some(g) = i.guard {
        let _ = write!(out, "@{}{} ", if g.negated { "!" } else { "" }, name(k, g.reg));
    }
    out.push_str(&i.op.text());
    for (n, o) in i.operands.iter().enumerate() {
        out.push_str(if n == 0 { " " } else { ", " });
        operand(&mut out, k, o);
    }
    out
}

fn name(k: &Kernel, reg: Reg) -> String {
    k.reg(reg).map_or_else(|| format!("%missing{}", reg.0), |r| r.name.clone())
}

fn list(out: &mut String, k: &Kernel, regs: &[Reg]) {
    out.push('{');
    for (n, r) in regs.iter().enumerate() {
        out.push_str(if n == 0 { "" } else { ", " });
        out.push_str(&name(k, *r));
    }
    out.push('}');
}

fn operand(out: &mut String, k: &Kernel, o: &Operand) {
    let sunk = |r: &Option<Reg>| r.map_or("_".to_string(), |r| name(k, r));
    let _ = match o {
        Operand::Reg(r) => write!(out, "{}", name(k, *r)),
        Operand::Pair(a, b) => write!(out, "{}|{}", sunk(a), sunk(b)),
        Operand::Int(n) => write!(out, "{n}"),
        Operand::F32(bits) => write!(out, "0f{bits:08X}"),
        Operand::F64(bits) => write!(out, "0d{bits:016X}"),
        Operand::Special(s) => write!(out, "{s}"),
        Operand::Symbol(s) | Operand::Label(s) => write!(out, "{s}"),
        Operand::Address(a) => address(out, k, a),
        Operand::Vector(regs) => {
            list(out, k, regs);
            Ok(())
        }
        Operand::Tensor(map, at) => {
            let _ = write!(out, "[{}, ", name(k, *map));
            list(out, k, at);
            out.push(']');
            Ok(())
        }
        Operand::Sink => write!(out, "_"),
    };
}

fn address(out: &mut String, k: &Kernel, a: &Address) -> std::fmt::Result {
    let base = match &a.base {
        Base::Reg(r) => name(k, *r),
        Base::Symbol(s) => s.clone(),
    };
    if a.offset == 0 { write!(out, "[{base}]") } else { write!(out, "[{base}+{}]", a.offset) }
}
