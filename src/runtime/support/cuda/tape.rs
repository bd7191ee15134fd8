//! Recorded launches that are not yet queued, in order.
//!
//! In: a kernel, its grid, and the words passed by the plan. Out: parameters in the driver's
//! format, or all of them launched individually. `graphs.rs` decides whether they become a graph.

use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::null_mut;

use super::driver::{Address, KernelNode, TensorMap};
use super::memory::Queue;
use super::module::{Loaded, Module};
use crate::abi::cuda::{MAX_WORDS, TOGETHER};
use crate::error::{Error, Result, fail};

/// Maximum number of tensor maps of a kernel.
pub(crate) const MAX_MAPS: usize = 8;
/// Size of a tensor map in words.
const MAP_WORDS: usize = size_of::<TensorMap>() / 8;
/// Maximum number of parameters of a kernel.
const MAX_PARAMS: usize = MAX_WORDS + 1 + MAX_MAPS;

/// A recorded launch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// Kernel number.
    pub(crate) kernel: u64,
    pub(crate) grid: [u32; 3],
    /// Index of its first word in the tape.
    start: usize,
}

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Tape {
    steps: Vec<Step>,
    /// Parameter values of all launches: for each, the plan's words, the address of the report, the
    /// tensor maps.
    words: Vec<u64>,
}

/// The addresses of a launch's parameters.
pub(crate) type Params = [*mut c_void; MAX_PARAMS];

impl Tape {
    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    pub(crate) fn clear(&mut self) {
        self.steps.clear();
        self.words.clear();
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The parameter values of a launch.
    pub(crate) fn words(&self, index: usize) -> &[u64] {
        let start = self.steps.get(index).map_or(usize::MAX, |s| s.start);
        let end = self.steps.get(index + 1).map_or(self.words.len(), |s| s.start);
        self.words.get(start..end).unwrap_or(&[])
    }

    /// Makes this tape a copy of another.
    pub(crate) fn copy(&mut self, from: &Tape) -> Result<()> {
        self.clear();
        if self.steps.try_reserve(from.steps.len()).is_err() || self.words.try_reserve(from.words.len()).is_err() {
            return Err(Error::memory(from.words.len() as u64 * 8, "a graph"));
        }
        self.steps.extend_from_slice(&from.steps);
        self.words.extend_from_slice(&from.words);
        Ok(())
    }

    /// Appends a launch.
    pub(crate) fn push(
        &mut self,
        kernel: u64,
        grid: [u32; 3],
        words: &[u64],
        fault: Address,
        maps: &[TensorMap],
    ) -> Result<()> {
        let more = words.len() + 1 + maps.len() * MAP_WORDS;
        if self.steps.try_reserve(1).is_err() || self.words.try_reserve(more).is_err() {
            return Err(Error::memory(more as u64 * 8, "the launches of a call"));
        }
        self.steps.push(Step { kernel, grid, start: self.words.len() });
        self.words.extend_from_slice(words);
        self.words.push(fault);
        for map in maps {
            self.words.extend(map.0.as_chunks().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)));
        }
        Ok(())
    }

    /// The driver's description of a launch; it points into `params`, which points into the tape.
    pub(crate) fn node(&self, index: usize, module: &Module, params: &mut Params) -> Result<KernelNode> {
        let found = self.steps.get(index).and_then(|s| Some((s, module.kernel(s.kernel)?)));
        let Some((step, Loaded { function, desc, .. })) = found else { fail!(Internal, "a launch of no kernel") };
        let words = self.words(index);
        // One word each up to the address of the report, then tensor maps.
        let single = (desc.symbols + desc.params) as usize + 1;
        let singles = words.iter().take(single);
        let maps = words.get(single..).unwrap_or(&[]).chunks(MAP_WORDS).filter_map(<[u64]>::first);
        for (param, at) in params.iter_mut().zip(singles.chain(maps)) {
            *param = (&raw const *at).cast_mut().cast();
        }
        let [x, y, z] = desc.threads.map(|n| n as u32);
        let shared = desc.shared as u32;
        let [width, height, depth] = step.grid;
        let (block, grid) = ([x, y, z], [width, height, depth]);
        Ok(KernelNode { function, grid, block, shared, params: params.as_mut_ptr(), extra: null_mut() })
    }

    /// Queues all launches individually; with `each`, waits after each.
    ///
    /// # Safety
    /// Parameters match their kernels.
    pub(crate) unsafe fn launch(&self, module: &Module, queue: Queue<'_>, each: bool) -> Result<()> {
        let mut params = [null_mut(); MAX_PARAMS];
        for (i, step) in self.steps.iter().enumerate() {
            let n = self.node(i, module, &mut params)?;
            let ([x, y, z], [width, height, depth]) = (n.block, n.grid);
            let kernel = module.kernel(step.kernel);
            // SAFETY: by the contract above; the driver copies the parameters.
            let code = unsafe {
                let driver = &queue.gpu.driver;
                match kernel.is_some_and(|k| k.desc.persistent == TOGETHER) {
                    // Its blocks synchronise with each other.
                    true => {
                        let launch = driver.launch_together;
                        launch(n.function, width, height, depth, x, y, z, n.shared, queue.stream, n.params)
                    }
                    false => {
                        let launch = driver.launch;
                        launch(n.function, width, height, depth, x, y, z, n.shared, queue.stream, n.params, n.extra)
                    }
                }
            };
            let name = kernel.map_or("", |k| k.desc.name.get());
            let launching = |e: Error| Error { status: e.status, text: alloc::format!("kernel {name}: {}", e.text) };
            queue.gpu.check(code, "the launch failed").map_err(launching)?;
            if each {
                queue.wait("the kernel failed").map_err(launching)?;
            }
        }
        Ok(())
    }
}

/// No parameters.
pub(crate) fn no_params() -> Params {
    [null_mut(); MAX_PARAMS]
}
