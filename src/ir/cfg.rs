//! The control flow of a function as a graph: reachability, dominators, natural loops.
//!
//! In: a function whose jumps go to blocks of its layout. Out: answers that hold until its jumps change. Dominators are
//! petgraph's (Cooper, Harvey & Kennedy 2001, "A Simple, Fast Dominance Algorithm").

use std::collections::BTreeSet;

use cranelift_entity::{EntityRef, SecondaryMap};
use petgraph::algo::dominators::{Dominators, simple_fast};
use petgraph::graph::{DiGraph, NodeIndex};

use super::{Block, Function};

/// The control flow of a function.
pub struct Cfg {
    dominators: Dominators<NodeIndex>,
    nodes: SecondaryMap<Block, Option<NodeIndex>>,
    blocks: Vec<Block>,
    predecessors: SecondaryMap<Block, Vec<Block>>,
    /// Depth in the dominator tree; the entry has 1, blocks that cannot be reached 0.
    depth: SecondaryMap<Block, u32>,
}

/// A natural loop: a block that dominates the sources of jumps back to it, and what lies between.
#[derive(Clone, Debug)]
pub struct Loop {
    /// The block that every way into the loop goes through.
    pub header: Block,
    /// All its blocks, the header among them.
    pub blocks: BTreeSet<Block>,
}

impl Cfg {
    /// Builds the graph.
    pub fn new(f: &Function) -> Cfg {
        let mut graph: DiGraph<Block, ()> = DiGraph::new();
        let mut nodes: SecondaryMap<Block, Option<NodeIndex>> = SecondaryMap::new();
        for b in &f.layout {
            nodes[*b] = Some(graph.add_node(*b));
        }
        for b in &f.layout {
            for c in f.block(*b).terminator.targets() {
                if let (Some(from), Some(to)) = (nodes[*b], nodes[c.block]) {
                    graph.add_edge(from, to, ());
                }
            }
        }
        let root = nodes[f.entry()].unwrap_or_default();
        let dominators = simple_fast(&graph, root);
        let mut cfg = Cfg {
            dominators,
            nodes,
            blocks: f.layout.clone(),
            predecessors: f.predecessors(),
            depth: SecondaryMap::new(),
        };
        for b in &f.layout {
            let Some(node) = cfg.nodes[*b] else { continue };
            let depth = cfg.dominators.dominators(node).map_or(0, Iterator::count);
            cfg.depth[*b] = u32::try_from(depth).unwrap_or(u32::MAX);
        }
        cfg
    }

    /// Can the block be reached from the entry?
    pub fn is_reachable(&self, b: Block) -> bool {
        self.depth[b] > 0
    }

    /// The block that dominates `b` most closely; none for the entry and for blocks that cannot be reached.
    pub fn immediate_dominator(&self, b: Block) -> Option<Block> {
        let node = self.dominators.immediate_dominator(self.nodes[b]?)?;
        self.blocks.get(node.index()).copied()
    }

    /// Does every way from the entry to `b` go through `a`? A block dominates itself.
    pub fn dominates(&self, a: Block, b: Block) -> bool {
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
    pub fn dominator_order(&self) -> Vec<Block> {
        let mut order: Vec<Block> = self.blocks.iter().copied().filter(|b| self.is_reachable(*b)).collect();
        order.sort_by_key(|b| self.depth[*b]);
        order
    }

    /// Predecessors of a block, in order of the layout.
    pub fn predecessors(&self, b: Block) -> &[Block] {
        &self.predecessors[b]
    }

    /// The natural loops, inner ones before those around them. Jumps back to one header make one loop.
    pub fn loops(&self) -> Vec<Loop> {
        let mut loops = Vec::new();
        for header in self.blocks.iter().copied().filter(|b| self.is_reachable(*b)) {
            let back: Vec<Block> =
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
