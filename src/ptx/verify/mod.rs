//! The verifier: checks that a module can be assembled and is well defined.
//!
//! In: any module. Out: all errors, each with its kernel, its line in the printed text, and a
//! suggested fix.
//!
//! # Checks, in this order
//!
//! 1. The head: a known processor, a version that names it. Names: valid identifiers, unique, not
//!    reserved.
//! 2. Sizes: declared shared memory (48 KiB), parameters (4352 bytes), threads of a block (1024),
//!    alignments.
//! 3. Each instruction: its opcode is legal, and the module's version and processor have it; its
//!    operands match the table in number and kind: register types, ranges of immediates, existing
//!    names, addresses within variables of known size.
//! 4. Control ends in `ret`, `exit`, `trap` or `bra`, and branches go to labels.
//! 5. Registers are written before they are read, on all paths ([`flow`]).
//! 6. Vector accesses, and accesses of 16 bytes, are provably aligned; no other access is provably
//!    misaligned ([`align`]).
//!
//! # Not checked
//!
//! Bounds of accesses, participation in barriers, races: they depend on the launch, and are checked
//! by the simulator ([`crate::ptx::sim`]).

mod align;
mod flow;
mod inst;

use std::collections::BTreeSet;
use std::fmt;

use super::operand::RESERVED;
use super::text::{is_identifier, print_inst, printed};
use super::{Kernel, Line, Module, Op, Operand, ParamType, Shared, Threads};

/// A violation of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The kernel; `None` for the head of the module.
    pub kernel: Option<String>,
    /// The line of the printed text, from 1.
    pub line: usize,
    /// The text of the instruction.
    pub shown: String,
    /// The violation, and a suggested fix.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(kernel) = &self.kernel {
            write!(f, "kernel `{kernel}`, ")?;
        }
        write!(f, "line {}: ", self.line)?;
        if !self.shown.is_empty() {
            write!(f, "`{}`: ", self.shown)?;
        }
        f.write_str(&self.message)
    }
}

/// An error in a kernel: index in the body (`None` for the head), message.
type Fault = (Option<usize>, String);

/// Maximum bytes of declared shared memory; a launch can add more.
const MAX_SHARED: u64 = 48 << 10;
/// Maximum bytes of parameters.
const MAX_PARAMS: u32 = 4352;

/// Verifies a module.
///
/// # Errors
/// All violations.
pub fn verify(module: &Module) -> Result<(), Vec<Error>> {
    let mut errors = Vec::new();
    let mut head = |message: String| {
        errors.push(Error { kernel: None, line: 1, shown: String::new(), message });
    };
    match module.target.version() {
        None => head(format!("`.target {}` is not a known processor; use sm_80 or sm_90a", module.target)),
        Some(first) if first > module.version => head(format!(
            "`.version {}` does not know {}; the least that does is `.version {first}`",
            module.version, module.target
        )),
        Some(_) => {}
    }
    let mut names = BTreeSet::new();
    for name in module.shared.iter().map(|s| &s.name).chain(module.kernels.iter().map(|k| &k.name)) {
        if !is_identifier(name) || name.starts_with('%') {
            head(format!("`{name}` is not a valid name; begin with a letter, and use letters, digits and `_`"));
        } else if !names.insert(name) {
            head(format!("`{name}` is declared twice; rename one"));
        }
    }
    for message in module.shared.iter().filter_map(|s| shared(s, true)) {
        head(message);
    }
    let mut print = None;
    for (n, k) in module.kernels.iter().enumerate() {
        let mut faults = Vec::new();
        kernel_head(module, k, &mut faults);
        inst::check(module, k, &mut faults);
        control(k, &mut faults);
        // The other analyses rely on existing registers and labels.
        if faults.is_empty() {
            flow::check(k, &mut faults);
            align::check(module, k, &mut faults);
        }
        if faults.is_empty() {
            continue;
        }
        let print = print.get_or_insert_with(|| printed(module));
        for (at, message) in faults {
            let head = print.heads.get(n).copied().unwrap_or(1);
            let line = at.and_then(|at| print.lines.get(n)?.get(at).copied()).unwrap_or(head);
            let shown = match at.and_then(|at| k.body.get(at)) {
                Some(Line::Inst(i)) => print_inst(k, i),
                Some(Line::Label(name)) => format!("{name}:"),
                Some(Line::Comment(_)) | None => String::new(),
            };
            errors.push(Error { kernel: Some(k.name.clone()), line, shown, message });
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// The error of a shared variable, if any.
fn shared(s: &Shared, of_module: bool) -> Option<String> {
    if !s.align.is_power_of_two() || s.align > 1024 {
        return Some(format!("`{}` is aligned to {}; that must be a power of two, 1 to 1024", s.name, s.align));
    }
    match s.bytes {
        None if !of_module => Some(format!("`{}` has no size; declare `.extern .shared` before the kernels", s.name)),
        Some(0) => Some(format!("`{}` has no bytes; remove it", s.name)),
        _ => None,
    }
}

/// Total size of variables laid out in order, each aligned.
fn total<'a>(list: impl Iterator<Item = &'a Shared>) -> u64 {
    list.fold(0, |at, s| at.next_multiple_of(u64::from(s.align.max(1))) + u64::from(s.bytes.unwrap_or(0)))
}

fn kernel_head(module: &Module, k: &Kernel, faults: &mut Vec<Fault>) {
    let mut fault = |message: String| faults.push((None, message));
    // One namespace for names without `%`.
    let mut names: BTreeSet<&str> = module.shared.iter().map(|s| s.name.as_str()).collect();
    let labels = k.body.iter().filter_map(|line| match line {
        Line::Label(name) => Some(name),
        Line::Inst(_) | Line::Comment(_) => None,
    });
    for name in k.params.iter().map(|p| &p.name).chain(k.shared.iter().map(|s| &s.name)).chain(labels) {
        if !is_identifier(name) || name.starts_with('%') {
            fault(format!("`{name}` is not a valid name; begin with a letter, and use letters, digits and `_`"));
        } else if !names.insert(name) {
            fault(format!("`{name}` is declared twice; rename one"));
        }
    }
    let mut registers = BTreeSet::new();
    for r in &k.registers {
        if !is_identifier(&r.name) || !r.name.starts_with('%') {
            fault(format!("`{}` is not the name of a register; write `%x`", r.name));
        } else if RESERVED.contains(&r.name.as_str()) {
            fault(format!("`{}` is a register of the language; rename it", r.name));
        } else if !registers.insert(&r.name) {
            fault(format!("`{}` is declared twice; rename one", r.name));
        }
    }
    for message in k.shared.iter().filter_map(|s| shared(s, false)) {
        fault(message);
    }
    let bytes = total(module.shared.iter().chain(&k.shared));
    if bytes > MAX_SHARED {
        fault(format!(
            "{bytes} bytes of shared memory are declared, but at most {MAX_SHARED} are allowed; declare `.extern .shared` and let the launch give more"
        ));
    }
    for p in &k.params {
        match p.ty {
            ParamType::Scalar(ty) if ty.bits() < 8 => {
                fault(format!("`{}`: a predicate cannot be a parameter; use .u32", p.name))
            }
            ParamType::Pointer(align) | ParamType::Bytes(align, _) if !align.is_power_of_two() || align > 1024 => {
                fault(format!("`{}` is aligned to {align}; that must be a power of two, 1 to 1024", p.name));
            }
            ParamType::Bytes(_, 0) => fault(format!("`{}` has no bytes; remove it", p.name)),
            ParamType::Scalar(_) | ParamType::Pointer(_) | ParamType::Bytes(..) => {}
        }
    }
    let bytes =
        k.params.iter().fold(0u32, |at, p| at.next_multiple_of(p.ty.align().max(1)).saturating_add(p.ty.bytes()));
    if bytes > MAX_PARAMS {
        fault(format!("{bytes} bytes of parameters, but at most {MAX_PARAMS} are allowed; pass a pointer to a table"));
    }
    if let Threads::Exactly(e) | Threads::AtMost(e) = k.threads {
        let all = e.iter().map(|n| u64::from(*n)).try_fold(1u64, u64::checked_mul).unwrap_or(u64::MAX);
        if !(1..=1024).contains(&all) || e[2] > 64 {
            fault(format!(
                "a block of {} x {} x {} threads; it has 1 to 1024, at most 64 of them in z",
                e[0], e[1], e[2]
            ));
        }
    }
    if k.threads == Threads::Any && k.insts().any(|(_, i)| matches!(i.op, Op::SetMaxReg { .. })) {
        fault("`setmaxnreg` is ignored without a fixed number of threads; add `.reqntid`".to_string());
    }
    if let Some(e) = k.cluster {
        let all = e.iter().map(|n| u64::from(*n)).try_fold(1u64, u64::checked_mul).unwrap_or(u64::MAX);
        if !(1..=8).contains(&all) {
            fault(format!("a cluster of {} x {} x {} blocks; all processors have 1 to 8", e[0], e[1], e[2]));
        }
        if module.target.sm < 90 {
            fault(format!("clusters need sm_90, the module is for {}; set `.target sm_90`", module.target));
        }
    }
}

/// Checks that labels exist, and that control does not run off the end.
fn control(k: &Kernel, faults: &mut Vec<Fault>) {
    match k.insts().last() {
        None => faults.push((None, "the kernel has no instruction; end it with `ret`".to_string())),
        Some((at, last)) => {
            let is_last = !k.body.iter().skip(at + 1).any(|line| matches!(line, Line::Label(_)));
            if !last.op.ends() || last.guard.is_some() || !is_last {
                let at = if is_last { at } else { k.body.len() - 1 };
                faults.push((Some(at), "control runs off the end of the kernel; end it with `ret`".to_string()));
            }
        }
    }
    let labels: BTreeSet<&str> = k
        .body
        .iter()
        .filter_map(|line| match line {
            Line::Label(name) => Some(name.as_str()),
            Line::Inst(_) | Line::Comment(_) => None,
        })
        .collect();
    for (at, i) in k.insts() {
        for o in &i.operands {
            if let Operand::Label(name) = o
                && !labels.contains(name.as_str())
            {
                let near = crate::diagnostics::did_you_mean(name, labels.iter().copied());
                let hint = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
                faults.push((Some(at), format!("there is no label `{name}` in this kernel{hint}")));
            }
        }
    }
}
