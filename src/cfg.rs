//! The control flow of either IR as a graph: reachability, orders of blocks, dominators, natural loops.
//!
//! In: what has blocks ([`Flow`]), its jumps to blocks of its layout. Out: answers that hold until its jumps change. Dominators
//! are petgraph's (Cooper, Harvey & Kennedy 2001, "A Simple, Fast Dominance Algorithm"). What it must not know: what stands
//! in a block.

use std::collections::BTreeSet;

use cranelift_entity::{EntityRef, SecondaryMap};
use petgraph::algo::dominators::{Dominators, simple_fast};
use petgraph::graph::{DiGraph, NodeIndex};

/// What has blocks with jumps between them.
pub trait Flow {
    /// Names of blocks.
    type Block: EntityRef + Ord;
    /// The blocks in order; the first is the entry.
    fn layout(&self) -> &[Self::Block];
    /// Where the jumps of a block go, in order.
    fn targets(&self, block: Self::Block) -> Vec<Self::Block>;
}

/// Predecessors of each block that is in the layout, in order.
pub fn predecessors<F: Flow>(f: &F) -> SecondaryMap<F::Block, Vec<F::Block>> {
    let mut out: SecondaryMap<F::Block, Vec<F::Block>> = SecondaryMap::new();
    for b in f.layout() {
        for to in f.targets(*b) {
            out[to].push(*b);
        }
    }
    out
}

/// Blocks so that each comes after those that dominate it; unreachable ones are left out.
pub fn reverse_postorder<F: Flow>(f: &F) -> Vec<F::Block> {
    let mut seen: SecondaryMap<F::Block, bool> = SecondaryMap::new();
    let mut order = Vec::new();
    let mut stack = Vec::new();
    if let Some(entry) = f.layout().first() {
        stack.push((*entry, 0));
        seen[*entry] = true;
    }
    while let Some((b, next)) = stack.pop() {
        match f.targets(b).get(next) {
            Some(to) => {
                stack.push((b, next + 1));
                if !std::mem::replace(&mut seen[*to], true) {
                    stack.push((*to, 0));
                }
            }
            None => order.push(b),
        }
    }
    order.reverse();
    order
}

/// The control flow of a [`Flow`].
pub struct Cfg<B: EntityRef> {
    dominators: Dominators<NodeIndex>,
    nodes: SecondaryMap<B, Option<NodeIndex>>,
    blocks: Vec<B>,
    predecessors: SecondaryMap<B, Vec<B>>,
    /// Depth in the dominator tree; the entry has 1, blocks that cannot be reached 0.
    depth: SecondaryMap<B, u32>,
}

/// A natural loop: a block that dominates the sources of jumps back to it, and what lies between.
#[derive(Clone, Debug)]
pub struct Loop<B> {
    /// The block that every way into the loop goes through.
    pub header: B,
    /// All its blocks, the header among them.
    pub blocks: BTreeSet<B>,
}

impl<B: EntityRef + Ord> Cfg<B> {
    /// Builds the graph.
    pub fn new(f: &impl Flow<Block = B>) -> Cfg<B> {
        let mut graph: DiGraph<B, ()> = DiGraph::new();
        let mut nodes: SecondaryMap<B, Option<NodeIndex>> = SecondaryMap::new();
        for b in f.layout() {
            nodes[*b] = Some(graph.add_node(*b));
        }
        for b in f.layout() {
            for to in f.targets(*b) {
                if let (Some(from), Some(to)) = (nodes[*b], nodes[to]) {
                    graph.add_edge(from, to, ());
                }
            }
        }
        let root = f.layout().first().and_then(|b| nodes[*b]).unwrap_or_default();
        let dominators = simple_fast(&graph, root);
        let mut cfg = Cfg {
            dominators,
            nodes,
            blocks: f.layout().to_vec(),
            predecessors: predecessors(f),
            depth: SecondaryMap::new(),
        };
        for b in f.layout() {
            let Some(node) = cfg.nodes[*b] else { continue };
            let depth = cfg.dominators.dominators(node).map_or(0, Iterator::count);
            cfg.depth[*b] = u32::try_from(depth).unwrap_or(u32::MAX);
        }
        cfg
    }

    /// Can the block be reached from the entry?
    pub fn is_reachable(&self, b: B) -> bool {
        self.depth[b] > 0
    }

    /// The block that dominates `b` most closely; none for the entry and for blocks that cannot be reached.
    pub fn immediate_dominator(&self, b: B) -> Option<B> {
        let node = self.dominators.immediate_dominator(self.nodes[b]?)?;
        self.blocks.get(node.index()).copied()
    }

    /// Does every way from the entry to `b` go through `a`? A block dominates itself.
    pub fn dominates(&self, a: B, b: B) -> bool {
        if !self.is_reachable(a) || !self.is_reachable(b) {
            return a == b;
        }
        let mut at = b;
        while self.depth[at] > self.depth[a] {
            match self.immediate_dominator(at) {
                Some(up) => at = up,
                None => return false,
            }
        }
        at == a
    }

    /// The blocks that can be reached, each after its immediate dominator; siblings in order of the layout.
    pub fn dominator_order(&self) -> Vec<B> {
        let mut order: Vec<B> = self.blocks.iter().copied().filter(|b| self.is_reachable(*b)).collect();
        order.sort_by_key(|b| self.depth[*b]);
        order
    }

    /// Predecessors of a block, in order of the layout.
    pub fn predecessors(&self, b: B) -> &[B] {
        &self.predecessors[b]
    }

    /// The natural loops, inner ones before those around them. Jumps back to one header make one loop.
    pub fn loops(&self) -> Vec<Loop<B>> {
        let mut loops = Vec::new();
        for header in self.blocks.iter().copied().filter(|b| self.is_reachable(*b)) {
            let back: Vec<B> =
                self.predecessors[header].iter().copied().filter(|p| self.dominates(header, *p)).collect();
            if back.is_empty() {
                continue;
            }
            let mut blocks = BTreeSet::from([header]);
            let mut work = back;
            while let Some(b) = work.pop() {
                if self.is_reachable(b) && blocks.insert(b) {
                    work.extend(&self.predecessors[b]);
                }
            }
            loops.push(Loop { header, blocks });
        }
        loops.sort_by_key(|l| (l.blocks.len(), l.header.index()));
        loops
    }
}
