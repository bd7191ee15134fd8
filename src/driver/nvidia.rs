//! NVIDIA's tools, if they are installed: `ptxas`, the PTX assembler, and `nvdisasm`, the
//! disassembler.
//!
//! In: the PTX of a library's variants, or of a dump. Out: cubins in addition to the PTX, or a
//! disassembly. Without the tools a library has only PTX, which the driver compiles. Output is
//! reproducible: the tools run in the folder of their input, so it contains no paths.

use super::bugs;
use super::session::{CommandError, Session, environment_error, message, reason};
use super::stages::temporary;
use super::variants::GpuTier;
use crate::cli::Cubins;
use crate::diagnostics::Severity;
use crate::files::Folder;
use crate::runtime::cuda::Cubin;
use crate::runtime::link::is_program;
use crate::threads;
use std::path::{Path, PathBuf};
use std::process::Command;

/// File names of PTX and machine code.
const PTX: &str = "model.ptx";
const CUBIN: &str = "model.cubin";

/// Finds a tool: the path in an environment variable, or else the first of some names in `PATH` and
/// `CUDA_HOME`.
fn find(variable: &str, names: &[&str]) -> Option<PathBuf> {
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(program) = given(variable) {
        return Some(PathBuf::from(program));
    }
    let path = given("PATH");
    let folders = path.iter().flat_map(std::env::split_paths);
    let folders = folders.chain(given("CUDA_HOME").map(|home| Path::new(&home).join("bin")));
    // Absolute, because it is started in another folder.
    let folders: Vec<PathBuf> = folders.filter_map(|folder| std::path::absolute(folder).ok()).collect();
    names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|file| is_program(file))
}

fn ptxas() -> Option<PathBuf> {
    find("ATTNC_PTXAS", &["ptxas"])
}

/// Why assembling failed.
enum Refusal {
    /// The assembler does not support the PTX version or the GPU.
    TooOld(String),
    /// It reports errors in the PTX.
    Wrong(String),
    /// It cannot be run.
    Unusable(String),
}

/// Assembles PTX for one GPU architecture, in `folder`.
fn assemble(ptxas: &Path, folder: &Folder, text: &str, arch: &str) -> Result<Vec<u8>, Refusal> {
    let file = |action: &str, name: &str, error: &std::io::Error| {
        Refusal::Unusable(format!("cannot {action} `{}`: {}", folder.path().join(name).display(), reason(error)))
    };
    std::fs::write(folder.path().join(PTX), text).map_err(|error| file("write", PTX, &error))?;
    let mut command = Command::new(ptxas);
    command.current_dir(folder.path()).args(["-arch", arch, "-o", CUBIN, PTX]);
    let done = command
        .output()
        .map_err(|error| Refusal::Unusable(format!("cannot run `{}`: {}", ptxas.display(), reason(&error))))?;
    if done.status.success() {
        return std::fs::read(folder.path().join(CUBIN)).map_err(|error| file("read", CUBIN, &error));
    }
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    let unknown = ["Unsupported .version", "is not defined for option 'gpu-name'"];
    if unknown.iter().any(|words| said.contains(words)) {
        return Err(Refusal::TooOld(said));
    }
    // Messages of `ptxas` begin with its name; others come from another program, or from what
    // started it.
    if done.status.code().is_some() && said.lines().any(|line| line.starts_with("ptxas ")) {
        return Err(Refusal::Wrong(said));
    }
    Err(Refusal::Unusable(format!("`{}` failed: {}\n{said}", ptxas.display(), done.status)))
}

/// Reports the failure; errors in the PTX are a bug in attnc, and the PTX is saved.
fn report(refusal: &Refusal, ptxas: &Path, text: &str, arch: &str) -> CommandError {
    match refusal {
        Refusal::Wrong(said) => bugs::wrong_ptx(said, text, &format!("{} -arch {arch} -o /dev/null", ptxas.display())),
        Refusal::TooOld(said) => {
            environment_error(&format!("`{}` is too old for the kernels:\n{}", ptxas.display(), said.trim_end()))
        }
        Refusal::Unusable(why) => environment_error(why.trim_end()),
    }
}

/// Prints a remark about why two machines may produce different libraries.
fn remark(text: &str) {
    let notes = ["with `--cubins never` a library does not depend on what is installed".to_string()];
    message(Severity::Note, text, &notes);
}

/// Adds machine code to the variants of a library. With `remarks`, prints which tool was used, or
/// that none was found.
pub(super) fn add_cubins(
    s: &mut Session,
    wanted: Cubins,
    remarks: bool,
    tiers: &mut [GpuTier],
) -> Result<(), CommandError> {
    if wanted == Cubins::Never {
        return Ok(());
    }
    let Some(ptxas) = ptxas() else {
        let missing = "`--cubins always` needs NVIDIA's `ptxas`: add its folder to PATH, or name it in ATTNC_PTXAS";
        if wanted == Cubins::Always {
            return Err(environment_error(missing));
        }
        if remarks {
            remark("the library has no machine code for GPUs, only PTX: NVIDIA's `ptxas` was not found");
        }
        return Ok(());
    };
    if remarks {
        remark(&format!("`{}` makes the library's machine code for GPUs", ptxas.display()));
    }
    s.stage("ptxas");
    let mut jobs = Vec::new();
    let has_hopper = tiers.iter().any(|tier| tier.kernels.cuda.only);
    for (n, tier) in tiers.iter().enumerate() {
        let cuda = &tier.kernels.cuda;
        jobs.push((n, cuda.capability, tier.kernels.name.clone(), temporary(s)?));
        // If there is no variant for Hopper only, this one gets machine code for Hopper too.
        if cuda.capability < 90 && !has_hopper {
            jobs.push((n, 90, "sm_90".to_string(), temporary(s)?));
        }
    }
    let made = threads::each(jobs, threads::all(), |(n, capability, arch, folder)| {
        let text = tiers.get(n).map_or("", |tier| &tier.kernels.cuda.ptx);
        (n, capability, assemble(&ptxas, &folder, text, &arch), arch)
    });
    for (n, capability, made, arch) in made {
        let Some(cuda) = tiers.get_mut(n).map(|tier| &mut tier.kernels.cuda) else { continue };
        match made {
            Ok(image) => cuda.cubins.push(Cubin { capability, image }),
            Err(Refusal::TooOld(said)) if wanted == Cubins::Auto => {
                let text = format!(
                    "the library has no machine code for {arch}: `{}` is too old: {}",
                    ptxas.display(),
                    said.trim_end()
                );
                message(Severity::Note, &text, &["the driver compiles the PTX when a model is opened".to_string()]);
            }
            Err(refusal) => return Err(report(&refusal, &ptxas, &cuda.ptx, &arch)),
        }
    }
    Ok(())
}

/// The disassembled machine code of PTX for one GPU architecture.
pub(super) fn disassembled(s: &mut Session, text: &str, arch: &str) -> Result<String, CommandError> {
    let missing = |what: &str, variable: &str| {
        environment_error(&format!(
            "`--emit sass` needs NVIDIA's {what}: add its folder to PATH, or name it in {variable}; `--emit ptx` needs nothing"
        ))
    };
    let ptxas = ptxas().ok_or_else(|| missing("`ptxas`", "ATTNC_PTXAS"))?;
    let shower = find("ATTNC_NVDISASM", &["nvdisasm", "cuobjdump"])
        .ok_or_else(|| missing("`nvdisasm` or `cuobjdump`", "ATTNC_NVDISASM"))?;
    s.stage("ptxas");
    let folder = temporary(s)?;
    assemble(&ptxas, &folder, text, arch).map_err(|refusal| report(&refusal, &ptxas, text, arch))?;
    s.stage("disassemble");
    let is_cuobjdump = shower.file_name().is_some_and(|name| name.to_string_lossy().contains("cuobjdump"));
    let flag = if is_cuobjdump { "-sass" } else { "-c" };
    let done = Command::new(&shower).current_dir(folder.path()).args([flag, CUBIN]).output();
    let done = done.map_err(|e| environment_error(&format!("cannot run `{}`: {}", shower.display(), reason(&e))))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let text = format!("`{}` failed: {}\n{}", shower.display(), done.status, said.trim_end());
        return Err(environment_error(&text));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
