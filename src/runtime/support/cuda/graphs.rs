//! Graphs: launches that come again in the same order, queued by one call of the driver.
//!
//! A decoder makes some hundred launches for each token, and the driver takes some microseconds for each; for a graph of all of them it takes
//! hardly more than for one. The plan runs in every call, as it would without: its launches are put on a [`Tape`], and where the same kernels
//! follow each other for the second time, they become a graph, unless as many as are kept were all used in between. From then on only the launches whose grids or
//! parameters have changed are told to the driver: addresses of other tensors, a length that has grown. So control flow and sizes are the plan's, and
//! nothing must stay as it was for a graph to be right. What a plan reads of the GPU's memory ends a tape: the host waits there.
//!
//! A kernel whose blocks wait for each other says so as a node too, and where the driver does not take that, there are no graphs.
//!
//! Graphs are built node by node, each after the one before. Nothing is recorded from a stream: the stream may be the caller's,
//! and a graph that is recorded does not tell its nodes in order.
//!
//! In: tapes. Out: queued launches. `ATTNC_CUDA_GRAPHS=0` is for finding errors: every launch is queued by itself.

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

/// Fewer launches are queued one by one.
const LEAST: usize = 3;
/// More do not become one graph.
pub(crate) const MOST: usize = 1024;
/// Graphs that a session keeps.
const KEPT: usize = 16;
/// Orders of kernels without a graph that it remembers.
const SEEN: usize = 64;

/// A session's graphs.
pub(crate) struct Graphs {
    /// `None` where launches are queued one by one.
    functions: Option<GraphFunctions>,
    made: Vec<Graph>,
    /// Orders that came and have no graph, the oldest first.
    seen: Vec<Seen>,
    /// How many tapes came.
    clock: u64,
}

/// An order of kernels without a graph.
struct Seen {
    hash: u64,
    /// When it came last.
    when: u64,
}

/// A graph, with what the driver knows of its launches.
struct Graph {
    gpu: Arc<Gpu>,
    functions: GraphFunctions,
    graph: Object,
    executable: Object,
    nodes: Vec<Object>,
    tape: Tape,
    /// When it was launched last.
    used: u64,
}

// SAFETY: names of the driver's, which any thread may use, one at a time.
unsafe impl Send for Graph {}

impl Graphs {
    /// None yet; none ever where the driver has no graphs or `wanted` is false.
    pub(crate) fn new(gpu: &Gpu, wanted: bool) -> Graphs {
        let functions = gpu.driver.graphs.filter(|_| wanted);
        Graphs { functions, made: Vec::new(), seen: Vec::new(), clock: 0 }
    }

    /// Are launches to be put on a tape?
    pub(crate) fn are_used(&self) -> bool {
        self.functions.is_some()
    }

    /// Queues what is on a tape, which is empty then.
    ///
    /// # Safety
    /// Parameters are those of their kernels.
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
                // Where the driver does not take a graph, the launches themselves say what is wrong with them.
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

    /// A graph of these launches, up to date; `None` where there is none and none is made.
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
            // A graph that was used since then makes no room: of more orders than are kept that come in turns, each would take the place of
            // the next.
            let unused = self.made.iter().enumerate().filter(|(_, g)| g.used < before);
            let Some((oldest, _)) = unused.min_by_key(|(_, g)| g.used) else { return Ok(None) };
            drop(self.made.swap_remove(oldest));
        }
        let graph = Graph::new(gpu, functions, tape, module, self.clock)?;
        crate::error::push(&mut self.made, graph, "a graph")?;
        Ok(self.made.last())
    }

    /// Remembers that an order without a graph came now, and tells when it came before, if it did.
    fn came(&mut self, hash: u64) -> Option<u64> {
        let before = self.seen.iter().position(|s| s.hash == hash).map(|i| self.seen.remove(i).when);
        if self.seen.len() >= SEEN {
            self.seen.remove(0);
        }
        // Without memory for it, it is forgotten.
        if self.seen.try_reserve(1).is_ok() {
            self.seen.push(Seen { hash, when: self.clock });
        }
        before
    }
}

/// Do the same kernels follow each other?
fn same_kernels(a: &Tape, b: &Tape) -> bool {
    a.len() == b.len() && a.steps().iter().zip(b.steps()).all(|(a, b)| a.kernel == b.kernel)
}

/// FNV-1a of the kernels' numbers.
fn hash(tape: &Tape) -> u64 {
    tape.steps().iter().fold(0xcbf2_9ce4_8422_2325, |hash, step| (hash ^ step.kernel).wrapping_mul(0x0100_0000_01b3))
}

impl Graph {
    fn new(gpu: &Arc<Gpu>, f: GraphFunctions, tape: &Tape, module: &Module, used: u64) -> Result<Graph> {
        const WHAT: &str = "a graph";
        let mut graph = null_mut();
        // SAFETY: a place for a graph.
        gpu.check(unsafe { (f.create)(&mut graph, 0) }, WHAT)?;
        let (nodes, copy) = (Vec::new(), Tape::default());
        // Dropped from here on.
        let mut out = Graph { gpu: gpu.clone(), functions: f, graph, executable: null_mut(), nodes, tape: copy, used };
        out.tape.copy(tape)?;
        let mut params = no_params();
        for i in 0..tape.len() {
            let launch = tape.node(i, module, &mut params)?;
            let before = out.nodes.last();
            let (list, count) = before.map_or((core::ptr::null(), 0), |node| (&raw const *node, 1));
            let mut node = null_mut();
            // SAFETY: a place for a node; as many nodes as said; parameters of this kernel, which the driver copies.
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
        // SAFETY: a place for what can be launched; a graph.
        gpu.check(unsafe { (f.instantiate)(&mut out.executable, out.graph, 0) }, WHAT)?;
        Ok(out)
    }

    /// Tells the driver what is different.
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
        // SAFETY: what was instantiated, on a stream that is there.
        self.gpu.check(unsafe { (self.functions.launch)(self.executable, queue.stream) }, "the launches failed")
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let Some(_entered) = self.gpu.enter_to_free() else { return };
        // SAFETY: created once, and nobody uses them any more; what still runs is freed by the driver when it ends.
        unsafe {
            if !self.executable.is_null() {
                (self.functions.destroy_executable)(self.executable);
            }
            (self.functions.destroy)(self.graph);
        }
    }
}
