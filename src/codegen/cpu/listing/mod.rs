//! Disassembly: the functions of an object as text for an assembler.
//!
//! In: functions of an object ([`Function`]): bytes, relocations, and the origins of their code.
//! Out: a listing from which the GNU assembler makes the same bytes. Each instruction has its
//! address, each target of a jump and each constant a label, and a comment stands wherever the code
//! of another tile operation begins.
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

/// A comment before the instruction at an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    /// Offset in bytes from the start of the function.
    pub(super) at: u32,
    pub(super) text: String,
}

/// A relocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// Offset of the four-byte displacement from the start of the function.
    pub(super) at: u64,
    pub(super) symbol: String,
    /// Added to the symbol's address.
    pub(super) addend: i64,
    /// Is it relative to the symbol's entry in the global offset table?
    pub(super) indirect: bool,
}

/// Does this relocation go through the global offset table?
pub(super) fn is_indirect(kind: Reloc) -> bool {
    kind == Reloc::X86GOTPCRel4
}

#[derive(Clone, Debug)]
pub(super) struct Function<'a> {
    pub(super) name: &'a str,
    pub(super) address: u64,
    /// Code, and the constants after it.
    pub(super) bytes: &'a [u8],
    /// Relocations, by ascending offset.
    pub(super) references: Vec<Reference>,
}

/// How a function is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    /// Alignment in bytes.
    pub(super) alignment: u64,
    /// Options of a listing.
    pub(super) starts: Vec<u32>,
    /// Comments, by ascending offset.
    pub(super) notes: Vec<Note>,
}

/// The first lines of a listing.
pub(super) const HEAD: &str = "    .intel_syntax noprefix\n    .text\n";

/// The listing of a function; `number` makes its labels unique. `bytes`: are the bytes of each
/// instruction shown?
pub(super) fn function(number: usize, f: &Function<'_>, shown: &Shown, bytes: bool) -> String {
    x86::Listing::new(number, f, shown, bytes).text()
}

/// A symbol, quoted where the assembler requires it.
pub(super) fn symbol(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '$');
    if !name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        return name.to_string();
    }
    let escape = |c: char| if matches!(c, '"' | '\\') { vec!['\\', c] } else { vec![c] };
    let escaped: String = name.chars().filter(|c| !c.is_control()).flat_map(escape).collect();
    format!("\"{escaped}\"")
}
