//! Device selection: from the caller's request or `ATTNC_DEVICE`, and the variants of the library.
//!
//! In: `cpu`, `cuda`, `cuda:N`, `auto` or nothing. Out: a GPU and the variant for it; or the CPU,
//! with the reason if it was chosen only because no GPU can be used. That happens for `auto` alone:
//! a slow CPU is never chosen silently.

use alloc::string::String;
use alloc::sync::Arc;
use core::ffi::c_char;

use super::device::Gpu;
use super::driver::Driver;
use crate::abi::cuda::CudaDesc;
use crate::abi::{ModelDesc, VariantDesc};
use crate::error::{Result, Shown, Status, fail};
use crate::sys;

/// A device as requested by users.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// No request: a GPU if the library has code for one, else the CPU.
    Any,
    Cpu,
    Cuda(i32),
    /// A GPU if it can be used, else the CPU.
    Auto,
}

/// The chosen device.
pub(crate) enum Choice {
    /// The CPU, and why not a GPU (or an empty string).
    Cpu(String),
    /// A GPU; if loading fails and `else_cpu` is set, fall back to the CPU.
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

/// The GPU part of a variant, if it has one.
pub(crate) fn for_cuda(variant: &'static VariantDesc) -> Option<&'static CudaDesc> {
    variant.cuda.get().first()
}

/// Chooses the device.
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

/// The best variant that the GPU supports.
fn on(model: &'static ModelDesc, ordinal: i32) -> Result<Choice> {
    let gpu = Gpu::open(ordinal)?;
    let version = Driver::get()?.version()?;
    let all = model.variants.get().iter().filter_map(|v| for_cuda(v).map(|c| (v, c)));
    let runs = |c: &CudaDesc| if c.only != 0 { gpu.capability == c.capability } else { gpu.capability >= c.capability };
    let mut too_old = None;
    for (variant, cuda) in all.clone().filter(|(_, c)| runs(c)) {
        // Machine code does not depend on the PTX versions that the driver supports.
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
