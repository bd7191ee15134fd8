//! Leaf functions: machine code of our own for what a kernel does innermost, at the full width of the processor.
//!
//! Cranelift has no vector wider than 128 bits on x86-64. From 256 bits on, Cranelift still compiles the loops of a kernel; each `run`, `dot`, `transpose` and `pair_rows` becomes a call of a *leaf*: `extern "C" fn(words: *const
//! u64)`, specialised for extents, offsets in scratch, strides and element types. What is known only at run time is in the words,
//! which the kernel writes before the call.
//!
//! In: an instruction of a scheduled kernel. Out: a [`Leaf`], or why the leaf generator declines; the kernel then has
//! Cranelift's code inline, which reads and writes the same scratch, and a remark says so. What the generators must not know:
//! Cranelift, plans, the runtime; only `call` and `leaves` put leaves into kernels and objects.
//!
//! * `registers`: the registers and basic instructions of each width;
//! * `asm`: instructions, labels and their encoding;
//! * `dot` (`dot_few`: of few rows; `dot_group`: by several panels at a time; `dot_whole`, `dot_bytes`: by quantised weights), `amx`, `transpose`, `pair_rows`: leaves whose
//!   registers follow from the shape alone; `pairs`: which of them a product of `bf16` calls;
//! * `run`: the routine of vector IR that `lowering::vector` makes of a run, printed over virtual registers (`lanes`, `math`,
//!   `access`);
//! * `machine`: code over registers, blocks with parameters, with a text form (`--emit mir`); `allocate` gives virtual registers
//!   physical ones, `encode` makes bytes of them;
//! * `leaves`: what functions call; each leaf is made once;
//! * `call`: from a kernel to a leaf.
//!
//! The code is position independent, its constants follow it, it has no relocations and calls nothing. It leaves the
//! upper halves of the vector registers clean (`vzeroupper`).

mod access;
mod allocate;
mod amx;
mod asm;
mod call;
mod dot;
mod dot_bytes;
mod dot_few;
mod dot_group;
mod dot_whole;
mod encode;
mod lanes;
mod leaves;
mod machine;
mod math;
mod pair_rows;
mod pairs;
mod registers;
mod run;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod transpose;

pub(super) use call::Dotted;
pub(super) use leaves::{LeafCalls, LeafOrigin, Leaves};

use super::origins::Places;
use crate::lowering::vector::{Declined, Word};
use crate::tile::{Body, Cpu, Extent, Inst};

/// A function in machine code.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    /// What it does, for symbols: `run`.
    pub(super) name: String,
    /// Its bytes, constants included; to be placed at a multiple of 64.
    pub(super) code: Vec<u8>,
    /// Where the code of each operation begins.
    pub(super) places: Places,
    /// What it is called with.
    pub(super) words: Vec<Word>,
    /// What the code was before.
    pub(super) stages: Stages,
}

/// The code of a leaf on its way, as `--emit mir` shows it.
#[derive(Clone, Debug)]
pub(super) struct Stages {
    /// As it was selected, over virtual registers.
    selected: machine::Function,
    /// With its registers.
    allocated: machine::Function<machine::Physical>,
}

impl Stages {
    /// Its text, under the leaf's name; `registers`: is it shown with its registers, too? `note` says what operation code
    /// is made from.
    ///
    /// # Errors
    /// Code that breaks a rule, a bug in attnc.
    pub(super) fn text(&self, name: &str, registers: bool, note: machine::Note<'_>) -> Result<String, String> {
        machine::verify(&self.selected).map_err(|complaint| format!("{name}: {complaint}"))?;
        let mut text = machine::print(name, &self.selected, note);
        if registers {
            text.push('\n');
            text += &machine::print_allocated(name, &self.allocated, note);
        }
        Ok(text)
    }
}

/// Operations of virtual-register code, each with what it takes, what it gives and its meaning.
pub(super) fn machine_operations() -> Vec<(String, &'static str)> {
    machine::Op::ALL.iter().map(|op| (op.form(), op.meaning())).collect()
}

/// The leaf of a `run` on a CPU that has leaves, or why it has none.
pub(super) fn run_leaf(level: Cpu, body: &Body, rows: Extent, cols: Extent, insts: &[Inst]) -> Result<Leaf, Declined> {
    run::select(level, body, rows, cols, insts)
}
