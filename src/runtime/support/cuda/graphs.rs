//! CUDA graphs: sequences of launches that recur, queued by a single driver call.
//!
//! A decoder makes some hundred launches per token, and each takes the driver some microseconds; a
//! graph of all of them takes hardly longer than one. The plan runs in every call, as it would
//! without graphs: its launches are recorded on a [`Tape`]. When the same sequence of kernels
//! occurs for the second time, it becomes a graph, unless the maximum number of graphs is kept and
//! all of them were used in between. From then on, only launches whose grids or parameters have
//! changed are updated: addresses of other tensors, a longer length. So control flow and sizes
//! remain with the plan, and a graph makes no assumption about what stays the same. When the plan
//! reads GPU memory, the tape ends, because the host waits there.
//!
//! Kernels with grid barriers are cooperative as graph nodes too; if the driver does not support
//! that, graphs are not used.
//!
//! Graphs are built node by node, each depending on the previous one. Stream capture is not used:
//! the stream may be the caller's, and the nodes of a captured graph cannot be listed in order.
//!
//! In: tapes. Out: queued launches. `ATTNC_CUDA_GRAPHS=0` queues every launch individually, for
//! debugging.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr::null_mut;

use super::device::Gpu;
use super::driver::{GraphFunctions, KernelNode, NodeAttribute, Object, attribute};
use super::memory::Queue;
use super::module::Module;
use super::tape::{Tape, no_params};
use crate::abi::cuda::TOGETHER;
use crate::error::{Result, Status, fail};

/// Shorter tapes are queued launch by launch.
const LEAST: usize = 3;
/// Maximum number of launches in a graph.
pub(crate) const MAX_GRAPH_LAUNCHES: usize = 1024;
/// Maximum number of graphs per session.
const KEPT: usize = 16;
/// Maximum number of remembered sequences without a graph.
const SEEN: usize = 64;

/// The graphs of a session.
pub(crate) struct Graphs {
    /// `None` if launches are queued individually.
    functions: Option<GraphFunctions>,
    made: Vec<Graph>,
    /// Sequences that occurred and have no graph, oldest first.
    seen: Vec<Seen>,
    /// Number of tapes so far.
    clock: u64,
}

/// A sequence of kernels without a graph.
struct Seen {
    hash: u64,
    /// `clock` at the last occurrence.
    when: u64,
}

/// A graph, with the parameters of its launches that the driver has.
struct Graph {
    gpu: Arc<Gpu>,
    functions: GraphFunctions,
    graph: Object,
    executable: Object,
    nodes: Vec<Object>,
    tape: Tape,
    /// `clock` at the last launch.
    used: u64,
}

// SAFETY: driver handles, which any thread may use, one at a time.
unsafe impl Send for Graph {}

impl Graphs {
    /// Empty; graphs are never used if the driver lacks them or `wanted` is false.
    pub(crate) fn new(gpu: &Gpu, wanted: bool) -> Graphs {
        let functions = gpu.driver.graphs.filter(|_| wanted);
        Graphs { functions, made: Vec::new(), seen: Vec::new(), clock: 0 }
    }

    /// Are launches to be recorded?
    pub(crate) fn are_used(&self) -> bool {
        self.functions.is_some()
    }

    /// Queues the launches of a tape, and clears it.
    ///
    /// # Safety
    /// Parameters match their kernels.
    pub(crate) unsafe fn launch(
        &mut self,
        tape: &mut Tape,
        gpu: &Arc<Gpu>,
        module: &Module,
        queue: Queue<'_>,
    ) -> Result<()> {
        // SAFETY: by the contract above.
        let done = unsafe {
            match self.graph_of(tape, gpu, module) {
                // If the driver rejects a graph, individual launches will report what is wrong.
                Ok(Some(graph)) => match graph.launch(queue) {
                    Err(e) if !gpu.is_broken() && e.status != Status::Memory => {
                        self.give_up();
                        tape.launch(module, queue, false)
                    }
                    done => done,
                },
                Ok(None) => tape.launch(module, queue, false),
                Err(e) if gpu.is_broken() => Err(e),
                Err(_) => {
                    self.give_up();
                    tape.launch(module, queue, false)
                }
            }
        };
        tape.clear();
        done
    }

    fn give_up(&mut self) {
        self.functions = None;
        self.made.clear();
    }

    /// An up-to-date graph of these launches; `None` if none exists and none is made.
    fn graph_of(&mut self, tape: &Tape, gpu: &Arc<Gpu>, module: &Module) -> Result<Option<&Graph>> {
        let Some(functions) = self.functions else { return Ok(None) };
        if tape.len() < LEAST {
            return Ok(None);
        }
        self.clock += 1;
        if let Some(i) = self.made.iter().position(|g| same_kernels(&g.tape, tape)) {
            let Some(graph) = self.made.get_mut(i) else { return Ok(None) };
            graph.used = self.clock;
            graph.update(tape, module)?;
            return Ok(Some(graph));
        }
        let Some(before) = self.came(hash(tape)) else { return Ok(None) };
        if self.made.len() >= KEPT {
            // A graph that was used since then is not evicted: if more sequences than can be kept
            // recur in turn, each would evict the next.
            let unused = self.made.iter().enumerate().filter(|(_, g)| g.used < before);
            let Some((oldest, _)) = unused.min_by_key(|(_, g)| g.used) else { return Ok(None) };
            drop(self.made.swap_remove(oldest));
        }
        let graph = Graph::new(gpu, functions, tape, module, self.clock)?;
        crate::error::push(&mut self.made, graph, "a graph")?;
        Ok(self.made.last())
    }

    /// Records an occurrence of a sequence without a graph; returns the time of the previous
    /// occurrence, if any.
    fn came(&mut self, hash: u64) -> Option<u64> {
        let before = self.seen.iter().position(|s| s.hash == hash).map(|i| self.seen.remove(i).when);
        if self.seen.len() >= SEEN {
            self.seen.remove(0);
        }
        // If out of memory, it is not remembered.
        if self.seen.try_reserve(1).is_ok() {
            self.seen.push(Seen { hash, when: self.clock });
        }
        before
    }
}

/// Do two tapes launch the same sequence of kernels?
fn same_kernels(a: &Tape, b: &Tape) -> bool {
    a.len() == b.len() && a.steps().iter().zip(b.steps()).all(|(a, b)| a.kernel == b.kernel)
}

/// FNV-1a hash of the kernel numbers.
fn hash(tape: &Tape) -> u64 {
    tape.steps().iter().fold(0xcbf2_9ce4_8422_2325, |hash, step| (hash ^ step.kernel).wrapping_mul(0x0100_0000_01b3))
}

impl Graph {
    fn new(gpu: &Arc<Gpu>, f: GraphFunctions, tape: &Tape, module: &Module, used: u64) -> Result<Graph> {
        const WHAT: &str = "a graph";
        let mut graph = null_mut();
        // SAFETY: an out pointer for a graph.
        gpu.check(unsafe { (f.create)(&mut graph, 0) }, WHAT)?;
        let (nodes, copy) = (Vec::new(), Tape::default());
        // `Drop` releases it from now on, also after an error.
        let mut out = Graph { gpu: gpu.clone(), functions: f, graph, executable: null_mut(), nodes, tape: copy, used };
        out.tape.copy(tape)?;
        let mut params = no_params();
        for i in 0..tape.len() {
            let launch = tape.node(i, module, &mut params)?;
            let before = out.nodes.last();
            let (list, count) = before.map_or((core::ptr::null(), 0), |node| (&raw const *node, 1));
            let mut node = null_mut();
            // SAFETY: an out pointer for a node; as many nodes as said; parameters of this kernel,
            // which the driver copies.
            gpu.check(unsafe { (f.add_kernel)(&mut node, out.graph, list, count, &launch) }, WHAT)?;
            let together = tape.steps().get(i).and_then(|s| module.kernel(s.kernel)).map(|k| k.desc.persistent);
            if together == Some(TOGETHER) {
                let mut value = NodeAttribute([0; 16]);
                value.0[0] = 1;
                // SAFETY: a node of this graph; a value of the size that the driver reads.
                gpu.check(unsafe { (f.set_attribute)(node, attribute::COOPERATIVE, &value) }, WHAT)?;
            }
            crate::error::push(&mut out.nodes, node, WHAT)?;
        }
        // SAFETY: an out pointer for the executable graph; a graph.
        gpu.check(unsafe { (f.instantiate)(&mut out.executable, out.graph, 0) }, WHAT)?;
        Ok(out)
    }

    /// Updates the parameters that differ.
    fn update(&mut self, tape: &Tape, module: &Module) -> Result<()> {
        let mut params = no_params();
        for (i, (new, node)) in tape.steps().iter().zip(&self.nodes).enumerate() {
            let grid = self.tape.steps().get(i).map(|s| s.grid);
            if grid == Some(new.grid) && self.tape.words(i) == tape.words(i) {
                continue;
            }
            let launch: KernelNode = tape.node(i, module, &mut params)?;
            // SAFETY: a node of this graph; parameters of its kernel, which the driver copies.
            let code = unsafe { (self.functions.set_kernel)(self.executable, *node, &launch) };
            self.gpu.check(code, "a graph")?;
        }
        self.tape.copy(tape)
    }

    fn launch(&self, queue: Queue<'_>) -> Result<()> {
        if self.executable.is_null() {
            fail!(Internal, "a graph that was not made");
        }
        // SAFETY: an instantiated graph and an existing stream.
        self.gpu.check(unsafe { (self.functions.launch)(self.executable, queue.stream) }, "the launches failed")
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let Some(_entered) = self.gpu.enter_to_free() else { return };
        // SAFETY: created once and no longer used; if it is still running, the driver frees it when
        // it ends.
        unsafe {
            if !self.executable.is_null() {
                (self.functions.destroy_executable)(self.executable);
            }
            (self.functions.destroy)(self.graph);
        }
    }
}
