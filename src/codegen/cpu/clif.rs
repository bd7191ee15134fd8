//! CLIF as text: functions under their names, printed and read back.
//!
//! In: a text as `--emit clif` writes it: functions, each after a comment with its name. Out: the functions, verified by
//! Cranelift, as text again or as assembly. A text has functions alone; the model around them is not in it.

use std::fmt::Write as _;

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::{Context, ir::Function, verify_function};

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

/// The machine code of functions, as text.
///
/// # Errors
/// What the code generator cannot compile.
pub fn assembly(functions: &[Named], machine: Machine) -> Result<String, String> {
    let isa = target(machine)?;
    let mut out = String::new();
    for f in functions {
        let mut context = Context::for_function(f.function.clone());
        context.set_disasm(true);
        let code = context.compile(isa.as_ref(), &mut ControlPlane::default());
        let code = code.map_err(|e| format!("{}: {:?}", f.name, e.inner))?;
        let _ = writeln!(out, "{}:\n{}", f.name, code.vcode.as_deref().unwrap_or_default());
    }
    Ok(out)
}
