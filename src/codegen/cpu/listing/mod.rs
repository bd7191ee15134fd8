//! Disassembly: the functions of an object as text for an assembler.
//!
//! In: functions as they are in an object ([`Function`]): bytes, references, and what the pieces of their code come from.
//! Out: a text from which the GNU assembler makes the same bytes. Each instruction has its address, each target of a jump and
//! each constant a label, and a comment stands wherever the code of another tile operation begins.
//!
//! * `read`: the functions of an object file;
//! * `x86`: x86-64;
//! * `asm_text`: instructions as text that assembles to the same bytes;
//! * `arm`: aarch64, as Cranelift prints it.

mod arm;
mod asm_text;
mod read;
mod x86;

pub(super) use arm::text as arm_text;
pub(super) use read::functions;

use cranelift_codegen::binemit::Reloc;

/// A comment before the instruction at a byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    /// The byte, from the start of the function.
    pub(super) at: u32,
    /// What it says.
    pub(super) text: String,
}

/// What an instruction refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// Where the four bytes of the distance stand, from the start of the function.
    pub(super) at: u64,
    /// The symbol.
    pub(super) symbol: String,
    /// What is added to its address.
    pub(super) addend: i64,
    /// Is it the symbol's entry in the global offset table that is meant?
    pub(super) indirect: bool,
}

/// Is this kind of reference one by the global offset table?
pub(super) fn is_indirect(kind: Reloc) -> bool {
    kind == Reloc::X86GOTPCRel4
}

/// A function.
#[derive(Clone, Debug)]
pub(super) struct Function<'a> {
    /// Its symbol.
    pub(super) name: &'a str,
    /// Its address.
    pub(super) address: u64,
    /// Its bytes, constants included.
    pub(super) bytes: &'a [u8],
    /// What it refers to, in the order of the bytes.
    pub(super) references: Vec<Reference>,
}

/// How a function is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    /// It begins at a multiple of this.
    pub(super) alignment: u64,
    /// Bytes at which instructions begin, as far as they are known: code that only an indirect jump reaches has no others.
    pub(super) starts: Vec<u32>,
    /// Comments, in the order of the bytes.
    pub(super) notes: Vec<Note>,
}

/// What comes before all functions.
pub(super) const HEAD: &str = "    .intel_syntax noprefix\n    .text\n";

/// The text of a function, the `number`-th of the text, which its labels have in their names. `bytes`: are those of each
/// instruction shown?
pub(super) fn function(number: usize, f: &Function<'_>, shown: &Shown, bytes: bool) -> String {
    x86::Listing::new(number, f, shown, bytes).text()
}

/// A symbol as the assembler takes it.
pub(super) fn symbol(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '$');
    if !name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        return name.to_string();
    }
    let escape = |c: char| if matches!(c, '"' | '\\') { vec!['\\', c] } else { vec![c] };
    let escaped: String = name.chars().filter(|c| !c.is_control()).flat_map(escape).collect();
    format!("\"{escaped}\"")
}
