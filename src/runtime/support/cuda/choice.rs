//! Which device a model runs on: what the caller, or `ATTNC_DEVICE`, asks for, and what the library has code for.
//!
//! In: `cpu`, `cuda`, `cuda:N`, `auto` or nothing. Out: the variant for a GPU with that GPU, or that it is the CPU's turn, with the reason
//! if it is only its turn because no GPU can be used. That happens for `auto` alone: nobody is given a slow CPU silently.

use alloc::string::String;
use alloc::sync::Arc;
use core::ffi::c_char;

use super::device::Gpu;
use super::driver::Driver;
use crate::abi::cuda::CudaDesc;
use crate::abi::{ModelDesc, VariantDesc};
use crate::error::{Result, Shown, Status, fail};
use crate::sys;

/// A device as users name it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// Nothing is said: a GPU if the library has code for one, else the CPU.
    Any,
    Cpu,
    Cuda(i32),
    /// A GPU if it can be used, else the CPU.
    Auto,
}

/// Where a model runs.
pub(crate) enum Choice {
    /// On the CPU; why not on a GPU, or an empty text.
    Cpu(String),
    /// On a GPU; or on the CPU, where the GPU turns out to be of no use and that may be.
    Cuda { gpu: Arc<Gpu>, variant: &'static VariantDesc, cuda: &'static CudaDesc, else_cpu: bool },
}

fn read(text: &str) -> Option<Asked> {
    match text {
        "" => Some(Asked::Any),
        "cpu" => Some(Asked::Cpu),
        "auto" => Some(Asked::Auto),
        "cuda" => Some(Asked::Cuda(0)),
        _ => {
            let digits = text.strip_prefix("cuda:")?;
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            digits.parse().ok().filter(|_| plain).map(Asked::Cuda)
        }
    }
}

/// The row of a variant that is for GPUs.
pub(crate) fn for_cuda(variant: &'static VariantDesc) -> Option<&'static CudaDesc> {
    variant.cuda.get().first()
}

/// Chooses.
///
/// # Safety
/// `device` is null or a C string.
pub(crate) unsafe fn choose(model: &'static ModelDesc, device: *const c_char) -> Result<Choice> {
    const EXPECTED: &str = "expected cpu, cuda, cuda:N or auto";
    let own = if device.is_null() {
        Asked::Any
    } else {
        // SAFETY: by the contract above.
        let bytes = unsafe { sys::c_bytes(device) };
        let text = String::from_utf8_lossy(bytes);
        match read(&text) {
            Some(asked) => asked,
            None => fail!(Call, "the device is `{}`; {EXPECTED}", Shown(&text)),
        }
    };
    let asked = match sys::variable(c"ATTNC_DEVICE") {
        Some(text) if own == Asked::Any => match read(&text) {
            Some(asked) => asked,
            None => fail!(Call, "ATTNC_DEVICE is `{}`; {EXPECTED}", Shown(&text)),
        },
        _ => own,
    };
    let variants = model.variants.get();
    let has_cuda = variants.iter().any(|v| for_cuda(v).is_some());
    let has_cpu = variants.iter().any(|v| for_cuda(v).is_none());
    let name = model.name.get();
    match asked {
        Asked::Cuda(_) if !has_cuda => {
            fail!(Device, "{name} has no code for GPUs: compile it with `--target cuda` or `--target cpu,cuda`")
        }
        Asked::Cpu if !has_cpu => {
            fail!(Device, "{name} has code for GPUs only: compile it with `--target cpu,cuda` to run it on the CPU too")
        }
        Asked::Cpu => Ok(Choice::Cpu(String::new())),
        Asked::Any | Asked::Auto if !has_cuda => Ok(Choice::Cpu(String::new())),
        Asked::Any => on(model, 0).map_err(|mut e| {
            if has_cpu && e.status == Status::Device {
                e.text += "\n(the library has code for the CPU too: open it on the device `cpu` or `auto`)";
            }
            e
        }),
        Asked::Cuda(ordinal) => on(model, ordinal),
        Asked::Auto => match on(model, 0) {
            Err(e) if has_cpu && e.status == Status::Device => Ok(Choice::Cpu(e.text)),
            Ok(Choice::Cuda { gpu, variant, cuda, .. }) => Ok(Choice::Cuda { gpu, variant, cuda, else_cpu: has_cpu }),
            other => other,
        },
    }
}

/// The best variant that a GPU runs.
fn on(model: &'static ModelDesc, ordinal: i32) -> Result<Choice> {
    let gpu = Gpu::open(ordinal)?;
    let version = Driver::get()?.version()?;
    let all = model.variants.get().iter().filter_map(|v| for_cuda(v).map(|c| (v, c)));
    let runs = |c: &CudaDesc| if c.only != 0 { gpu.capability == c.capability } else { gpu.capability >= c.capability };
    let mut too_old = None;
    for (variant, cuda) in all.clone().filter(|(_, c)| runs(c)) {
        // Machine code does not depend on what PTX the driver knows.
        if version >= cuda.driver || !cuda.cubins.get().is_empty() {
            return Ok(Choice::Cuda { gpu, variant, cuda, else_cpu: false });
        }
        too_old = Some(cuda.driver);
    }
    let shown = |version: u64| alloc::format!("{}.{}", version / 1000, version % 1000 / 10);
    if let Some(needed) = too_old {
        let (has, needs) = (shown(version), shown(needed));
        fail!(
            Device,
            "the driver is too old: it is for CUDA {has}, and the kernels of {} need {needs}",
            model.name.get()
        );
    }
    let names: alloc::vec::Vec<&str> = all.map(|(v, _)| v.name.get()).collect();
    fail!(
        Device,
        "{} was compiled for {}, which cuda:{ordinal} ({}, compute capability {}.{}) does not run",
        model.name.get(),
        names.join(", "),
        gpu.name,
        gpu.capability / 10,
        gpu.capability % 10
    )
}
