//! PTX for NVIDIA's GPUs: kernels that are scheduled for one, printed.
//!
//! In: a module whose kernels are scheduled for a GPU. Out: a PTX module with a kernel for each, and what a launch must know of them
//! ([`KernelInfo`]). Nothing is decided here that the tile IR says: which tiles are in shared memory, how many warps a block has. Plans are
//! not looked at: they run on the host. What this must not know: drivers, launches.
//!
//! A kernel that works in runs is made by [`kernel`]: indices and scalars by all threads alike, the elements of runs divided among them
//! ([`run`], [`reduce`]), products by rectangles ([`dot`], of weights with [`scales`]; of few rows by [`split`]), barriers where threads need each other's results ([`hazards`]). Work on
//! elements is [`lanes`], with the functions of vector IR.
//!
//! One that launches others has the code of each where it launches it, in a loop over points, and barriers of the grid ([`persistent`]).
//!
//! One whose tiles are fragments of tensor cores is made by [`fragments`].
//!
//! The text is meant to be read: each operation of the tile IR stands before its instructions, with its place in the source, and registers have
//! the names of its values.

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

/// Compiles the kernels of a module for a GPU that have code of their own, in order ([`crate::tile::Module::entry_kernels`]): what only other
/// kernels launch is in these.
///
/// # Errors
/// A kernel that is not scheduled for a GPU, or that needs another; what is not made here; in words.
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
        return Err(format!("the PTX that was made is wrong: {}", all.join("; ")));
    }
    Ok((out, infos))
}

/// A name as PTX takes it, which no other kernel has.
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
