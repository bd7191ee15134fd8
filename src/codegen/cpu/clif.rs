//! CLIF as text: named functions, printed and parsed.
//!
//! In: text as `--emit clif` writes it: functions, each after a comment with its name. Out: the
//! functions, verified by Cranelift, as text again or as assembly. The text has only functions,
//! without the model around them.

use std::collections::BTreeMap;

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{ExternalName, Function};
use cranelift_codegen::{Context, FinalizedRelocTarget, verify_function};

use super::listing::{self, Reference, Shown};
use super::target::{Arch, Isas};
use crate::panics;

/// A function and its name.
#[derive(Clone, Debug)]
pub struct Named {
    /// `kernel.attention.0`, or empty if no comment names it.
    pub name: String,
    /// The function, verified.
    pub function: Function,
}

/// An error in a CLIF file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClifError {
    /// The line, from 1; 0 where no line is to blame.
    pub line: usize,
    /// The message, without the line.
    pub message: String,
}

/// A comment with the name, if any, then the function.
pub(super) fn print_function(name: &str, function: &Function) -> String {
    if name.is_empty() { format!("{}\n", function.display()) } else { format!("; {name}\n{}\n", function.display()) }
}

/// The functions as text that [`read`] parses.
pub fn print(functions: &[Named]) -> String {
    functions.iter().map(|f| print_function(&f.name, &f.function)).collect()
}

/// The largest number of a block, value or other entity, summed over the functions of a file:
/// Cranelift allocates tables up to the largest number of each function.
const MAX_NUMBERS: u64 = 1 << 22;

/// Prefixes of entity names in CLIF; a number follows: `block3`, `v7`.
const ENTITIES: [&[u8]; 12] =
    [b"block", b"v", b"ss", b"dss", b"gv", b"sig", b"fn", b"jt", b"dt", b"const", b"ex", b"mt"];

/// Parses functions.
///
/// # Errors
/// The first syntax error, or everything that Cranelift's verifier reports about a
/// function; entity numbers above `MAX_NUMBERS`; input on which Cranelift panics.
pub fn read(text: &str, arch: Arch) -> Result<Vec<Named>, ClifError> {
    let (mut names, mut comment, mut starts) = (Vec::new(), "", Vec::new());
    for (i, line) in text.lines().enumerate() {
        if line.starts_with("function ") {
            names.push(std::mem::take(&mut comment).to_string());
            starts.push(i + 1);
        } else {
            comment = line.strip_prefix("; ").unwrap_or_default();
        }
    }
    check_numbers(text)?;
    let functions = panics::catch(|| cranelift_reader::parse_functions(text))
        .map_err(|panic| ClifError { line: 1, message: panicked("reader", &panic) })?
        .map_err(|e| ClifError { line: e.location.line_number, message: e.message })?;
    if functions.is_empty() {
        return Err(ClifError { line: 1, message: "there is no function in this file".to_string() });
    }
    let isas = Isas::new(arch).map_err(|message| ClifError { line: 0, message })?;
    let mut out = Vec::new();
    for (i, function) in functions.into_iter().enumerate() {
        let line = starts.get(i).copied().unwrap_or_default();
        let fail = |message: String| ClifError { line, message };
        // The verifier assumes an entry block.
        if function.layout.entry_block().is_none() {
            return Err(fail("the function has no block".to_string()));
        }
        panics::catch(|| verify_function(&function, isas.kernels.as_ref()))
            .map_err(|panic| fail(panicked("verifier", &panic)))?
            .map_err(|e| fail(e.to_string()))?;
        panics::catch(|| function.display().to_string()).map_err(|panic| fail(panicked("printer", &panic)))?;
        out.push(Named { name: names.get(i).cloned().unwrap_or_default(), function });
    }
    Ok(out)
}

/// An error message for a panic of Cranelift.
fn panicked(part: &str, panic: &str) -> String {
    let panic = panic.strip_prefix("internal error: ").unwrap_or(panic);
    format!("Cranelift's {part} does not support this text: {panic}")
}

/// Adds up the largest numbers of entities, function by function.
fn check_numbers(text: &str) -> Result<(), ClifError> {
    let (mut before, mut largest) = (0u64, [0u64; ENTITIES.len()]);
    for (i, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("function") {
            before = before.saturating_add(largest.iter().sum());
            largest = [0; ENTITIES.len()];
        }
        let code = line.split(';').next().unwrap_or_default().as_bytes();
        let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
        for word in code.split(|b| !is_word(b)) {
            let letters = word.iter().take_while(|b| b.is_ascii_alphabetic()).count();
            let (name, digits) = word.split_at(letters);
            let Some(kind) = ENTITIES.iter().position(|entity| *entity == name) else { continue };
            if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
                continue;
            }
            let number = digits.iter().fold(0u64, |n, d| n.saturating_mul(10).saturating_add(u64::from(d - b'0')));
            if let Some(most) = largest.get_mut(kind) {
                *most = (*most).max(number);
            }
            let sum = largest.iter().fold(before, |sum, n| sum.saturating_add(*n));
            if sum > MAX_NUMBERS {
                let shown = String::from_utf8_lossy(word);
                let message = format!(
                    "`{shown}`: entity numbers may add up to at most {MAX_NUMBERS}, since Cranelift allocates tables up to the largest"
                );
                return Err(ClifError { line: i + 1, message });
            }
        }
    }
    Ok(())
}

/// Disassembles the machine code of functions; `bytes`: with the bytes of each instruction.
///
/// # Errors
/// The error of Cranelift's code generator.
pub fn assembly(functions: &[Named], arch: Arch, bytes: bool) -> Result<String, String> {
    let isas = Isas::new(arch)?;
    let names: BTreeMap<String, &str> =
        functions.iter().map(|f| (f.function.name.to_string(), f.name.as_str())).collect();
    let name_of = |n: usize, f: &Named| if f.name.is_empty() { format!("function.{n}") } else { f.name.clone() };
    let mut out = if arch == Arch::X86 { listing::HEAD.to_string() } else { String::new() };
    let mut address = 0u64;
    for (n, f) in functions.iter().enumerate() {
        let name = name_of(n, f);
        let mut context = Context::for_function(f.function.clone());
        context.set_disasm(arch == Arch::Aarch64);
        let compiled = panics::catch(|| {
            let code = context.compile(isas.for_symbol(&name), &mut ControlPlane::default());
            code.map(drop).map_err(|e| format!("{:?}", e.inner))
        });
        let compiled = compiled.unwrap_or_else(|panic| Err(panicked("code generator", &panic)));
        compiled.map_err(|message| format!("function {}: {message}", f.function.name))?;
        let code = context.compiled_code().ok_or("a function without code")?;
        if arch == Arch::Aarch64 {
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

/// The symbol of a callee: the name of a function of the same file, or its CLIF name.
fn callee(target: &FinalizedRelocTarget, function: &Function, names: &BTreeMap<String, &str>) -> String {
    let text = match target {
        FinalizedRelocTarget::ExternalName(ExternalName::User(user)) => {
            function.params.user_named_funcs()[*user].to_string()
        }
        FinalizedRelocTarget::ExternalName(name) => name.display(Some(&function.params)).to_string(),
        FinalizedRelocTarget::Func(_) => function.name.to_string(),
    };
    names.get(&text).filter(|name| !name.is_empty()).map_or(text, |name| (*name).to_string())
}
