//! Measures the ceilings of a GPU: multiply-adds per second, with tensor cores (16-bit floats,
//! `tf32`) and without, and bytes read per second from the L2 cache and from memory.
//!
//! In: the number of a device. Out: [`Ceilings`], and the device's name. The loops are PTX
//! (`loops`), verified and printed like kernels. Their operands are as random as in models,
//! since a GPU that multiplies zeros draws less power and runs faster. The best of several rounds
//! counts, as on a CPU. It must not know the kernels of models.
//!
//! On a simulated GPU each loop runs once, to test that it is correct; no ceilings are reported.

mod driver;
mod loops;

use self::driver::{Gpu, Launch, LoadedKernel};
use super::Products;
use super::ceilings::{Ceilings, Memory};
use crate::ptx::{Module, Target, text, verify};

/// Number of rounds of each measurement.
const ROUNDS: usize = 7;
/// Minimum duration of a round in seconds.
const ROUND: f64 = 0.01;
/// Blocks per multiprocessor for multiply-adds, for reads, and for warpgroups.
const MULTIPLYING: u32 = 8;
const READING: u32 = 4;
const GROUPS: u32 = 2;
/// Bytes that a block reads at a time, 16 per load.
const BLOCK: u64 = (loops::THREADS * loops::LOADS * 16) as u64;
/// Maximum and minimum size of the buffer read from memory.
const BUFFERS: (u64, u64) = (2 << 30, 64 << 20);

/// The measured device.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The driver's name for the GPU.
    pub name: String,
    /// A simulated GPU, whose ceilings are meaningless.
    pub simulated: bool,
    /// Its ceilings.
    pub ceilings: Ceilings,
}

/// Is the GPU of this number simulated?
///
/// # Errors
/// The error of the driver.
pub fn is_simulated(ordinal: i32) -> Result<bool, String> {
    Gpu::open(ordinal).map(|gpu| gpu.simulated)
}

/// Measures the GPU of this number.
///
/// # Errors
/// The error of the driver.
pub fn measure(ordinal: i32) -> Result<Measured, String> {
    let gpu = Gpu::open(ordinal)?;
    let common = gpu.load(&checked(&loops::common())?)?;
    let hopper = if gpu.capability == 90 { Some(gpu.load(&checked(&loops::hopper())?)?) } else { None };
    let sms = if gpu.simulated { 1 } else { gpu.multiprocessors };
    let round = BLOCK * u64::from(READING * sms);
    let whole = |bytes: u64| (bytes / round).max(1) * round;
    let out = gpu.allocate(16)?;
    let mut bytes = if gpu.simulated { round } else { whole((8 * gpu.second_cache).clamp(BUFFERS.1, BUFFERS.0)) };
    let data = loop {
        match gpu.allocate(usize::try_from(bytes).unwrap_or(usize::MAX)) {
            Err(_) if bytes > BUFFERS.1 => bytes = whole(bytes / 2),
            done => break done?,
        }
    };
    let launch = |blocks: u32, threads: u32, bytes: u64| Launch {
        blocks: blocks * sms,
        threads,
        data: &data,
        count: bytes / 16,
        out: &out,
    };
    let mut ceilings = Ceilings {
        workers: usize::try_from(gpu.multiprocessors).unwrap_or(1),
        products: Vec::new(),
        vectors: "f32 multiply-adds",
        memories: Vec::new(),
        buffer: usize::try_from(bytes).unwrap_or(usize::MAX),
        steadiness: 1.0,
    };
    let wide = launch(MULTIPLYING, loops::THREADS, 0);
    let threads = f64::from(wide.blocks * loops::THREADS);
    let floats = rate(&gpu, &common.kernel("fma")?, &wide, threads * f64::from(loops::FMAS) * 2.0)?;
    // The best rate of several tensor core loops; a matmul adds `depth` terms to each sum.
    let tensor = |names: [&str; 2], depth: u32| {
        let products = |rows: u32, columns: u32| 2.0 * f64::from(loops::PRODUCTS * rows * columns * depth);
        let every = rate(&gpu, &common.kernel(names[0])?, &wide, threads / 32.0 * products(16, 8))?;
        let Some(hopper) = &hopper else { return Ok::<f64, String>(every) };
        let groups = launch(GROUPS, loops::GROUP, 0);
        let step = f64::from(groups.blocks) * products(64, 256);
        Ok(every.max(rate(&gpu, &hopper.kernel(names[1])?, &groups, step)?))
    };
    let tf32 = tensor(["tensor_tf32", "tensor_hopper_tf32"], 8)?;
    let half = tensor(["tensor", "tensor_hopper"], 16)?;
    let read = common.kernel("read")?;
    let memory = rate(&gpu, &read, &launch(READING, loops::THREADS, bytes), bytes as f64)?;
    let part = whole(gpu.second_cache / 2).min(bytes);
    let cache = rate(&gpu, &read, &launch(READING, loops::THREADS, part), part as f64)?.max(memory);
    if !gpu.simulated {
        ceilings.products =
            vec![(Products::Floats, floats), (Products::Tf32TensorCores, tf32), (Products::TensorCores, half)];
        let cached = Memory { name: "L2", bytes: gpu.second_cache, bandwidth: cache };
        ceilings.memories = vec![cached, Memory { name: "memory", bytes: u64::MAX, bandwidth: memory }];
    }
    Ok(Measured { name: gpu.name.clone(), simulated: gpu.simulated, ceilings })
}

/// Verifies loops and prints them as PTX.
fn checked(loops: &Module) -> Result<String, String> {
    match verify(loops) {
        Ok(()) => Ok(text::print(loops)),
        Err(errors) => {
            let first = errors.first().map_or(String::new(), ToString::to_string);
            Err(format!("the loops that measure the GPU: {first}"))
        }
    }
}

/// The PTX of all loops with their target, for tests that assemble it.
///
/// # Errors
/// The verifier's errors.
pub fn texts() -> Result<Vec<(Target, String)>, String> {
    [loops::common(), loops::hopper()].iter().map(|module| Ok((module.target, checked(module)?))).collect()
}

/// The best rate of a loop that does `amount` of work per step.
fn rate(gpu: &Gpu, kernel: &LoadedKernel<'_>, launch: &Launch<'_>, amount: f64) -> Result<f64, String> {
    // SAFETY: loops read `count` pieces of `data`, which is that long, and write only `out`.
    let time = |steps: u32| unsafe { gpu.time(kernel, launch, steps) };
    let mut steps = 1;
    if gpu.simulated {
        return time(steps).map(|_| 0.0);
    }
    while time(steps)? < ROUND && steps < 1 << 28 {
        steps *= 2;
    }
    let mut best = 0f64;
    for _ in 0..ROUNDS {
        best = best.max(amount * f64::from(steps) / time(steps)?.max(1e-9));
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::{Kernel, Line, Op};

    #[test]
    fn the_loops_are_right() {
        let expected: [&[&str]; 2] =
            [&["fma", "tensor", "tensor_tf32", "read"], &["tensor_hopper", "tensor_hopper_tf32"]];
        for (module, names) in [loops::common(), loops::hopper()].into_iter().zip(expected) {
            assert_eq!((module.version, module.target), module.lowest());
            assert_eq!(module.kernels.iter().map(|k| k.name.as_str()).collect::<Vec<_>>(), names);
            assert_eq!(text::parse(&checked(&module).unwrap()).unwrap(), module);
        }
    }

    /// Counts the work between a step's label and its back edge.
    #[test]
    fn a_step_does_the_work_that_is_counted() {
        let is_work = |op: &Op| matches!(op, Op::Fma { .. } | Op::Mma { .. } | Op::Wgmma { .. } | Op::Ld { .. });
        let work = |kernel: &Kernel| {
            let at = |label: &str| kernel.body.iter().position(|line| *line == Line::Label(label.into())).unwrap();
            let step = &kernel.body[at("$step")..at("$step_end")];
            step.iter().filter(|line| matches!(line, Line::Inst(inst) if is_work(&inst.op))).count()
        };
        let all = [loops::common(), loops::hopper()].map(|module| module.kernels.iter().map(work).collect::<Vec<_>>());
        assert_eq!(all, [vec![64, 8, 8, 4], vec![8, 8]]);
        assert_eq!((loops::FMAS, loops::PRODUCTS, loops::LOADS), (64, 8, 4));
    }
}
