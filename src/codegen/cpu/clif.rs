//! CLIF as text: functions under their names, printed and read back.
//!
//! In: a text as `--emit clif` writes it: functions, each after a comment with its name. Out: the functions, verified by
//! Cranelift, as text again or as assembly. A text has functions alone; the model around them is not in it.

use std::collections::BTreeMap;

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{ExternalName, Function};
use cranelift_codegen::{Context, FinalizedRelocTarget, verify_function};

use super::function::LIBM;
use super::listing::{self, Reference, Shown};
use super::object::{Machine, target};

/// A function and its name.
#[derive(Clone, Debug)]
pub struct Named {
    /// `kernel.attention.0`, or empty.
    pub name: String,
    /// The function.
    pub function: Function,
}

/// What is wrong with a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClifError {
    /// The line, from 1; 0 where there is none.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

/// A function under its name, as text.
pub(super) fn print_function(name: &str, function: &Function) -> String {
    if name.is_empty() { format!("{}\n", function.display()) } else { format!("; {name}\n{}\n", function.display()) }
}

/// The functions as text.
pub fn print(functions: &[Named]) -> String {
    functions.iter().map(|f| print_function(&f.name, &f.function)).collect()
}

/// Reads functions.
///
/// # Errors
/// The first thing that Cranelift's reader does not understand, or all that its verifier says of a function.
pub fn read(text: &str, machine: Machine) -> Result<Vec<Named>, ClifError> {
    let (mut names, mut comment, mut starts) = (Vec::new(), "", Vec::new());
    for (i, line) in text.lines().enumerate() {
        if line.starts_with("function ") {
            names.push(std::mem::take(&mut comment).to_string());
            starts.push(i + 1);
        } else {
            comment = line.strip_prefix("; ").unwrap_or_default();
        }
    }
    let functions = cranelift_reader::parse_functions(text)
        .map_err(|e| ClifError { line: e.location.line_number, message: e.message })?;
    if functions.is_empty() {
        return Err(ClifError { line: 1, message: "there is no function in this text".to_string() });
    }
    let isa = target(machine).map_err(|message| ClifError { line: 0, message })?;
    let mut out = Vec::new();
    for (i, function) in functions.into_iter().enumerate() {
        let line = starts.get(i).copied().unwrap_or_default();
        verify_function(&function, isa.as_ref()).map_err(|e| ClifError { line, message: e.to_string() })?;
        out.push(Named { name: names.get(i).cloned().unwrap_or_default(), function });
    }
    Ok(out)
}

/// The machine code of functions, as text; `bytes`: with the bytes of each instruction.
///
/// # Errors
/// What the code generator cannot compile.
pub fn assembly(functions: &[Named], machine: Machine, bytes: bool) -> Result<String, String> {
    let isa = target(machine)?;
    let names: BTreeMap<String, &str> =
        functions.iter().map(|f| (f.function.name.to_string(), f.name.as_str())).collect();
    let name_of = |n: usize, f: &Named| if f.name.is_empty() { format!("function.{n}") } else { f.name.clone() };
    let mut out = if machine == Machine::X86 { listing::HEAD.to_string() } else { String::new() };
    let mut address = 0u64;
    for (n, f) in functions.iter().enumerate() {
        let name = name_of(n, f);
        let mut context = Context::for_function(f.function.clone());
        context.set_disasm(machine == Machine::Aarch64);
        let code = context.compile(isa.as_ref(), &mut ControlPlane::default());
        let code = code.map_err(|e| format!("{}: {:?}", f.name, e.inner))?;
        if machine == Machine::Aarch64 {
            out += &listing::arm_text(&name, code.vcode.as_deref().unwrap_or_default());
            continue;
        }
        let alignment = u64::from(code.buffer.alignment).max(1);
        address = address.next_multiple_of(alignment);
        let starts = code.buffer.get_srclocs_sorted().iter().map(|s| s.start).collect();
        let references = code.buffer.relocs().iter().map(|r| Reference {
            at: u64::from(r.offset),
            symbol: callee(&r.target, &f.function, &names),
            addend: r.addend,
            indirect: listing::is_indirect(r.kind),
        });
        let function =
            listing::Function { name: &name, address, bytes: code.code_buffer(), references: references.collect() };
        out += &listing::function(n, &function, &Shown { alignment, starts, notes: Vec::new() }, bytes);
        address += code.code_buffer().len() as u64;
    }
    Ok(out)
}

/// The symbol of what a function calls: the name of a function of the same text, of libm, or as CLIF has it.
fn callee(target: &FinalizedRelocTarget, function: &Function, names: &BTreeMap<String, &str>) -> String {
    let text = match target {
        FinalizedRelocTarget::ExternalName(ExternalName::User(user)) => {
            let user = &function.params.user_named_funcs()[*user];
            match (user.namespace, usize::try_from(user.index).ok().and_then(|n| LIBM.get(n))) {
                (3, Some((name, _))) => (*name).to_string(),
                _ => user.to_string(),
            }
        }
        FinalizedRelocTarget::ExternalName(name) => name.display(Some(&function.params)).to_string(),
        FinalizedRelocTarget::Func(_) => function.name.to_string(),
    };
    names.get(&text).filter(|name| !name.is_empty()).map_or(text, |name| (*name).to_string())
}
