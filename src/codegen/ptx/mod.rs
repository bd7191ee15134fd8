//! PTX for NVIDIA GPUs: compiles kernels that are scheduled for a GPU.
//!
//! In: a module whose kernels are scheduled for a GPU. Out: a PTX module with a kernel for each,
//! and their launch info ([`KernelInfo`]). Placement of tiles and warps per block are given by the
//! tile IR. Plans run on the host and are ignored. Must not know: drivers, launches.
//!
//! A kernel with runs is compiled by [`kernel`]: indices and scalars redundantly in all threads,
//! the elements of runs divided among them ([`run`], [`reduce`]), matmuls by rectangles ([`dot`];
//! quantised weights with [`scales`]; few rows in [`split`]), barriers where threads depend on each
//! other ([`hazards`]). Operations on elements are in [`lanes`], with the functions of vector IR.
//!
//! A kernel that launches others contains their code inline, in loops over points, with barriers of
//! the grid in between ([`persistent`]).
//!
//! A kernel whose tiles are tensor core fragments is compiled by [`fragments`].
//!
//! The output is meant to be read: each tile IR operation is a comment before its instructions,
//! with its source location, and registers have the names of its values.

mod dims;
mod dot;
mod emit;
pub mod fragments;
mod hazards;
pub mod info;
mod integers;
mod kernel;
mod lanes;
mod mapping;
mod multiples;
mod partial;
mod persistent;
mod product;
mod reduce;
mod run;
mod scales;
mod slices;
mod split;
mod variant;

use std::collections::BTreeSet;

use crate::ptx::{Module, Shared, Target, verify};
use crate::tile::GpuArch;
use crate::tile::text::head_of_kernel;
use crate::tile::verify::VerifiedModule;
pub use info::KernelInfo;
pub use variant::variant;

/// Compiles the entry kernels of a module for a GPU, in order
/// ([`crate::tile::Module::entry_kernels`]); kernels that only other kernels launch are inlined
/// there.
///
/// # Errors
/// A kernel that is not scheduled for a GPU, or for another GPU, or that is not supported.
pub fn compile(module: &VerifiedModule, arch: GpuArch) -> Result<(Module, Vec<KernelInfo>), String> {
    let mut out = Module::new();
    let mut infos = Vec::new();
    let mut taken = BTreeSet::from([variant::COPIES_NAME.to_string()]);
    for k in module.entry_kernels() {
        let name = identifier(&k.name, &mut taken);
        let files = (module.name.as_str(), module.files.as_slice());
        let made = match fragments::is_of_fragments(k) {
            true => fragments::compile(k, &name),
            false => kernel::kernel(k, &module.kernels, &name, files),
        };
        let (mut made, info) = made.map_err(|why| format!("kernel @{}: {why}", k.name))?;
        made.comments.push(head_of_kernel(k));
        out.kernels.push(made);
        infos.push(info);
    }
    if infos.iter().any(|info| info.dynamic_shared > 0) {
        let has_fragments = module.kernels.iter().any(fragments::is_of_fragments);
        let align = if has_fragments { fragments::SHARED_ALIGN } else { kernel::SHARED_ALIGN };
        out.shared.push(Shared { name: kernel::SHARED.to_string(), align, bytes: None });
    }
    let (version, least) = out.lowest();
    out.version = version;
    out.target = match arch {
        GpuArch::Sm80 => least.max(Target::SM_80),
        GpuArch::Sm90a => Target::SM_90A,
    };
    out.version = out.target.version().map_or(version, |first| first.max(version));
    if let Err(errors) = verify(&out) {
        let all: Vec<String> = errors.iter().take(5).map(ToString::to_string).collect();
        return Err(format!("the generated PTX is invalid: {}", all.join("; ")));
    }
    Ok((out, infos))
}

/// A valid PTX identifier, unique in the module.
fn identifier(name: &str, taken: &mut BTreeSet<String>) -> String {
    let clean: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let clean = if clean.starts_with(|c: char| c.is_ascii_alphabetic()) { clean } else { format!("k{clean}") };
    let mut unique = clean.clone();
    let mut n = 1;
    while unique == kernel::SHARED || !taken.insert(unique.clone()) {
        n += 1;
        unique = format!("{clean}_{n}");
    }
    unique
}
