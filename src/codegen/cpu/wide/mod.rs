//! Leaf functions: our own machine code for the innermost work of a kernel, at the full vector
//! width of the processor.
//!
//! Cranelift has no vectors wider than 128 bits on x86-64. For wider ones, Cranelift still compiles
//! the loops of a kernel, but each `run`, `dot`, `transpose` and `pair_rows` becomes a call of a
//! *leaf*: `extern "C" fn(words: *const u64)`, specialised for extents, offsets in scratch, strides
//! and element types. Run-time values are passed in the array `words`, which the kernel writes
//! before the call.
//!
//! In: an instruction of a scheduled kernel. Out: a [`Leaf`], or the reason why it cannot be
//! compiled; the kernel then has Cranelift's code inline, which reads and writes the same scratch,
//! and a remark says so. The generators must not know: Cranelift, plans, the runtime; only `call`
//! and `leaves` put leaves into kernels and objects.
//!
//! * `registers`: the registers and basic instructions of each width;
//! * `asm`: instructions, labels and their encoding;
//! * `dot` (`dot_few`: few rows; `dot_group`: several panels at a time; `dot_whole`, `dot_bytes`:
//!   quantised weights), `amx`, `transpose`, `pair_rows`: leaves with a fixed register assignment
//!   that follows from the shape; `pairs`: calls of the `bf16` matmul leaves;
//! * `run`: instruction selection for the vector IR routine of a run (`lanes`, `math`, `access`);
//! * `machine`: machine IR, with a text form (`--emit mir`); `allocate`: register allocation;
//!   `encode`: machine code;
//! * `leaves`: the leaves of an object; each is generated once;
//! * `call`: calls from a kernel to a leaf.
//!
//! The code is position independent, its constants follow it, it has no relocations and calls
//! nothing. It leaves the upper halves of the vector registers clean (`vzeroupper`).

mod access;
mod allocate;
mod amx;
mod asm;
mod call;
mod dot;
mod dot_ahead;
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
    /// The operation, for symbols: `run`.
    pub(super) name: String,
    /// Code, constants included; must be aligned to 64 bytes.
    pub(super) code: Vec<u8>,
    /// Offset at which the code of each operation begins.
    pub(super) places: Places,
    /// Its arguments.
    pub(super) words: Vec<Word>,
    /// Earlier stages of the code.
    pub(super) stages: Stages,
}

/// The code of a leaf in its stages, as `--emit mir` shows it.
#[derive(Clone, Debug)]
pub(super) struct Stages {
    /// After instruction selection, over virtual registers.
    selected: machine::Function,
    allocated: machine::Function<machine::Physical>,
}

impl Stages {
    /// The MIR text; `registers`: also after register allocation? `note`: comments for tile
    /// operations.
    ///
    /// # Errors
    /// Code that the verifier rejects, a bug in attnc.
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

/// Operations of virtual-register code: name, operands and result as text; meaning.
pub(super) fn machine_operations() -> Vec<(String, &'static str)> {
    machine::Op::ALL.iter().map(|op| (op.form(), op.meaning())).collect()
}

/// The leaf of a `run` on a CPU that has leaves, or why it has none.
pub(super) fn run_leaf(level: Cpu, body: &Body, rows: Extent, cols: Extent, insts: &[Inst]) -> Result<Leaf, Declined> {
    run::select(level, body, rows, cols, insts)
}
