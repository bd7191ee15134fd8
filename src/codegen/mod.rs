//! Code generation: scheduled tile IR in, machine code out. Makes no decision that the tile IR
//! could express.
//!
//! Two back ends compile CPU kernels from the same modules: `cpu` (Cranelift, and our own leaf
//! functions) and, if attnc is built with the cargo feature `llvm`, LLVM. [`compile`] is the entry
//! point to both. [`ptx`] compiles kernels for GPUs.

pub mod cpu;
pub mod descriptor;
#[cfg(feature = "llvm")]
pub mod llvm;
pub mod ptx;

use crate::runtime::descriptor::ModelDescriptor;
use cpu::{Compiled, EmitOptions, Tier};

/// The back end that compiles CPU kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generator {
    /// Cranelift, and our own leaf functions.
    Cranelift,
    /// LLVM 19, with the cargo feature `llvm`.
    Llvm,
}

impl Generator {
    /// Fails, with install instructions, if this back end was not built in.
    ///
    /// # Errors
    /// How to get it, for a user of the command.
    pub fn available(self) -> Result<(), &'static str> {
        if self == Generator::Llvm && !cfg!(feature = "llvm") {
            return Err("this attnc is built without LLVM; build it with `cargo build --release --features llvm`, \
                        which needs LLVM 19 (Debian: `apt-get install llvm-19-dev libpolly-19-dev libzstd-dev`)");
        }
        Ok(())
    }
}

/// Compiles a model that was scheduled for several instruction sets, best first. `model` has
/// everything but diagnostics sites and code.
///
/// # Errors
/// A back end that was not built in, or IR that the verifier or a code generator rejects.
pub fn compile(
    generator: Generator,
    tiers: &[Tier<'_>],
    model: &ModelDescriptor,
    wanted: EmitOptions,
) -> Result<Compiled, String> {
    generator.available()?;
    match generator {
        Generator::Cranelift => cpu::compile(tiers, model, wanted),
        #[cfg(feature = "llvm")]
        Generator::Llvm => {
            let kernels = llvm::kernels(tiers, wanted)?;
            let mut compiled = cpu::compile(tiers, model, EmitOptions { kernels_elsewhere: true, ..wanted })?;
            compiled.others = kernels.objects;
            compiled.asm += &kernels.asm;
            Ok(compiled)
        }
        #[cfg(not(feature = "llvm"))]
        Generator::Llvm => Err("built without LLVM".into()),
    }
}
