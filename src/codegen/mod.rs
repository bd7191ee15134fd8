//! Code generation: scheduled tile IR in, machine code out. Makes no decision that the tile IR could carry.
//!
//! Two back ends make the kernels, from the same modules: `cpu` (Cranelift, and leaf functions of our own) and, if attnc
//! is built with the cargo feature `llvm`, LLVM. [`compile`] is the entry point to both. [`ptx`] makes kernels for GPUs.

pub mod cpu;
pub mod descriptor;
#[cfg(feature = "llvm")]
pub mod llvm;
pub mod ptx;

use crate::runtime::descriptor::ModelDescriptor;
use cpu::{Compiled, EmitOptions, Tier};

/// Which back end makes the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generator {
    /// Cranelift, and leaf functions of our own.
    Cranelift,
    /// LLVM.
    Llvm,
}

impl Generator {
    /// Is it there? If not, how to get it.
    ///
    /// # Errors
    /// What to do, for a user of the command.
    pub fn available(self) -> Result<(), &'static str> {
        if self == Generator::Llvm && !cfg!(feature = "llvm") {
            return Err("this attnc is built without LLVM; build it with `cargo build --release --features llvm`, \
                        which needs LLVM 19 (Debian: `apt-get install llvm-19-dev libpolly-19-dev libzstd-dev`)");
        }
        Ok(())
    }
}

/// Compiles a model that was lowered for several levels, best first. `model` has everything but sites and code.
///
/// # Errors
/// A back end that is not there, a form that the verifier refuses, or that a code generator does.
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
