//! What a GPU can do at best, measured here and now: multiply-adds a second, on tensor cores (16-bit floats, `tf32`) and without, bytes read a second from the
//! second cache and from memory.
//!
//! In: the number of a device. Out: [`Ceilings`], and whose they are. The loops are PTX (`ceilings.ptx`, `ceilings_hopper.ptx`), which goes through
//! `ptx` as kernels do: read, verified, printed. They do nothing but what is measured, with numbers as random as those of models, since a GPU
//! that multiplies zeros takes less power and is faster. The best of several rounds counts, as on a processor. It must not know
//! kernels of models.
//!
//! On a simulator of a GPU the loops run once, so that it is seen that they are right; there are no ceilings then.

mod driver;

use self::driver::{Gpu, Kernel, Launch};
use super::Products;
use super::ceilings::{Ceilings, Memory};
use crate::ptx::{Module, text, verify};

/// The loops, for all GPUs and for Hopper.
const LOOPS: &str = include_str!("ceilings.ptx");
const HOPPER: &str = include_str!("ceilings_hopper.ptx");

/// Rounds of each measurement.
const ROUNDS: usize = 7;
/// How many seconds a round takes at least.
const ROUND: f64 = 0.01;
/// Blocks on each multiprocessor where threads multiply, where they read, and where groups of warps multiply.
const MULTIPLYING: u32 = 8;
const READING: u32 = 4;
const GROUPS: u32 = 2;
/// Bytes that a block reads at a time: 256 threads, four pieces of 16 bytes.
const BLOCK: u64 = 256 * 4 * 16;
/// Bytes to read from memory, at most and at least.
const BUFFERS: (u64, u64) = (2 << 30, 64 << 20);

/// Whose ceilings were measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What the driver calls the GPU.
    pub name: String,
    /// Is it simulated? Then nothing was measured.
    pub simulated: bool,
    /// What it can do.
    pub ceilings: Ceilings,
}

/// Is the GPU of this number simulated?
///
/// # Errors
/// What the driver said, in words.
pub fn is_simulated(ordinal: i32) -> Result<bool, String> {
    Gpu::open(ordinal).map(|gpu| gpu.simulated)
}

/// Measures the GPU of this number.
///
/// # Errors
/// What the driver said, in words.
pub fn measure(ordinal: i32) -> Result<Measured, String> {
    let gpu = Gpu::open(ordinal)?;
    let loops = gpu.load(&checked(LOOPS)?)?;
    let hopper = if gpu.capability == 90 { Some(gpu.load(&checked(HOPPER)?)?) } else { None };
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
    let wide = launch(MULTIPLYING, 256, 0);
    let threads = f64::from(wide.blocks) * 256.0;
    let floats = rate(&gpu, &loops.kernel("fma")?, &wide, threads * 64.0 * 2.0)?;
    // The rate of tensor cores, the best of the loops, which take so many steps of the sums at a time.
    let tensor = |names: [&str; 2], steps: u32| {
        let product = |rows: u32, columns: u32| 2.0 * f64::from(rows * columns * steps);
        let every = rate(&gpu, &loops.kernel(names[0])?, &wide, threads / 32.0 * 8.0 * product(16, 8))?;
        let Some(hopper) = &hopper else { return Ok::<f64, String>(every) };
        let groups = launch(GROUPS, 128, 0);
        let step = f64::from(groups.blocks) * 8.0 * product(64, 256);
        Ok(every.max(rate(&gpu, &hopper.kernel(names[1])?, &groups, step)?))
    };
    let tf32 = tensor(["tensor_tf32", "tensor_hopper_tf32"], 8)?;
    let half = tensor(["tensor", "tensor_hopper"], 16)?;
    let read = loops.kernel("read")?;
    let memory = rate(&gpu, &read, &launch(READING, 256, bytes), bytes as f64)?;
    let part = whole(gpu.second_cache / 2).min(bytes);
    let cache = rate(&gpu, &read, &launch(READING, 256, part), part as f64)?.max(memory);
    if !gpu.simulated {
        ceilings.products =
            vec![(Products::Floats, floats), (Products::Tf32TensorCores, tf32), (Products::TensorCores, half)];
        let cached = Memory { name: "L2", bytes: gpu.second_cache, bandwidth: cache };
        ceilings.memories = vec![cached, Memory { name: "memory", bytes: u64::MAX, bandwidth: memory }];
    }
    Ok(Measured { name: gpu.name.clone(), simulated: gpu.simulated, ceilings })
}

/// The text of loops, after it was read and verified.
fn checked(loops: &str) -> Result<String, String> {
    let module: Module = text::parse(loops).map_err(|e| format!("the loops that measure the GPU: {e}"))?;
    match verify(&module) {
        Ok(()) => Ok(text::print(&module)),
        Err(errors) => {
            let first = errors.first().map_or(String::new(), ToString::to_string);
            Err(format!("the loops that measure the GPU: {first}"))
        }
    }
}

/// The best rate of a loop that does `amount` of work in a step.
fn rate(gpu: &Gpu, kernel: &Kernel<'_>, launch: &Launch<'_>, amount: f64) -> Result<f64, String> {
    // SAFETY: loops read `count` pieces of the data, which has them, and write nothing but `out`.
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

    #[test]
    fn the_loops_are_right() {
        for (loops, names) in
            [(LOOPS, &["fma", "tensor", "tensor_tf32", "read"][..]), (HOPPER, &["tensor_hopper", "tensor_hopper_tf32"])]
        {
            let module = text::parse(loops).unwrap();
            assert_eq!((module.version, module.target), module.lowest());
            assert_eq!(module.kernels.iter().map(|k| k.name.as_str()).collect::<Vec<_>>(), names);
            assert_eq!(text::parse(&checked(loops).unwrap()).unwrap(), module);
        }
    }
}
