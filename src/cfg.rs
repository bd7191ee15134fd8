//! The control-flow graph of any IR: reachability, block orders, dominators, natural loops.
//!
//! In: blocks and their jumps ([`Flow`]), all to blocks of the layout. Out: answers that hold until
//! the jumps change. Dominators are computed by petgraph (Cooper, Harvey & Kennedy 2001, "A Simple,
//! Fast Dominance Algorithm"). It does not know the contents of blocks.

use std::collections::BTreeSet;

use cranelift_entity::{EntityRef, SecondaryMap};
use petgraph::algo::dominators::simple_fast;
use petgraph::graph::{DiGraph, NodeIndex};

/// A body of blocks with jumps between them.
pub trait Flow {
    /// Identifies a block.
    type Block: EntityRef + Ord;
    /// The blocks, entry first.
    fn layout(&self) -> &[Self::Block];
    /// The targets of a block's jumps, in order.
    fn targets(&self, block: Self::Block) -> Vec<Self::Block>;
}

/// Predecessors of each block, in order of the layout.
pub fn predecessors<F: Flow>(f: &F) -> SecondaryMap<F::Block, Vec<F::Block>> {
    let mut out: SecondaryMap<F::Block, Vec<F::Block>> = SecondaryMap::new();
    for b in f.layout() {
        for to in f.targets(*b) {
            out[to].push(*b);
        }
    }
    out
}

/// The reachable blocks, each after all blocks that dominate it.
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

/// The control-flow graph of a [`Flow`].
pub struct Cfg<B: EntityRef> {
    blocks: Vec<B>,
    predecessors: SecondaryMap<B, Vec<B>>,
    /// Position in the dominator tree; `None` for unreachable blocks.
    tree: SecondaryMap<B, Option<TreeNode<B>>>,
}

/// A block's position in the dominator tree.
#[derive(Clone, Copy, Debug)]
struct TreeNode<B> {
    parent: Option<B>,
    /// The entry has depth 1.
    depth: u32,
    /// The block's preorder number, and the last one in its subtree: a block dominates the blocks
    /// numbered in this range, so that a query takes constant time, however deep the tree.
    first: u32,
    last: u32,
}

/// A natural loop: a header that dominates the sources of its back edges, and the blocks in
/// between.
#[derive(Clone, Debug)]
pub struct Loop<B> {
    /// The block through which every path enters the loop.
    pub header: B,
    /// All its blocks, including the header.
    pub blocks: BTreeSet<B>,
}

impl<B: EntityRef + Ord> Cfg<B> {
    /// Computes the dominator tree and the predecessors of all blocks.
    pub fn new(f: &impl Flow<Block = B>) -> Cfg<B> {
        let blocks = f.layout().to_vec();
        // Most kernels have a single block, which dominates nothing else.
        let children = if blocks.len() > 1 { dominator_tree(f) } else { SecondaryMap::new() };
        Cfg { tree: places(blocks.first().copied(), &children), blocks, predecessors: predecessors(f) }
    }

    /// Is the block reachable from the entry?
    pub fn is_reachable(&self, b: B) -> bool {
        self.tree[b].is_some()
    }

    /// The immediate dominator of `b`; `None` for the entry and unreachable blocks.
    pub fn immediate_dominator(&self, b: B) -> Option<B> {
        self.tree[b]?.parent
    }

    /// Does every path from the entry to `b` go through `a`? A block dominates itself.
    pub fn dominates(&self, a: B, b: B) -> bool {
        match (self.tree[a], self.tree[b]) {
            (Some(above), Some(below)) => above.first <= below.first && below.last <= above.last,
            _ => a == b,
        }
    }

    /// The reachable blocks, each after its immediate dominator; siblings in order of the layout.
    pub fn dominator_order(&self) -> Vec<B> {
        let mut order: Vec<B> = self.blocks.iter().copied().filter(|b| self.is_reachable(*b)).collect();
        order.sort_by_key(|b| self.tree[*b].map(|place| place.depth));
        order
    }

    /// Predecessors of a block, in order of the layout.
    pub fn predecessors(&self, b: B) -> &[B] {
        &self.predecessors[b]
    }

    /// The natural loops, inner loops before outer ones. All back edges to one header form one
    /// loop.
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

/// The blocks that each block immediately dominates, in order of the layout.
fn dominator_tree<F: Flow>(f: &F) -> SecondaryMap<F::Block, Vec<F::Block>> {
    let mut graph: DiGraph<F::Block, ()> = DiGraph::new();
    let mut nodes: SecondaryMap<F::Block, Option<NodeIndex>> = SecondaryMap::new();
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
    let mut children: SecondaryMap<F::Block, Vec<F::Block>> = SecondaryMap::new();
    for b in f.layout() {
        let parent = nodes[*b].and_then(|node| dominators.immediate_dominator(node));
        if let Some(parent) = parent.and_then(|node| graph.node_weight(node)) {
            children[*parent].push(*b);
        }
    }
    children
}

/// Numbers a dominator tree by a depth-first walk with an explicit stack.
fn places<B: EntityRef>(root: Option<B>, children: &SecondaryMap<B, Vec<B>>) -> SecondaryMap<B, Option<TreeNode<B>>> {
    let mut tree: SecondaryMap<B, Option<TreeNode<B>>> = SecondaryMap::new();
    let mut count = 0;
    let mut stack = Vec::new();
    let mut enter = |tree: &mut SecondaryMap<B, Option<TreeNode<B>>>, b: B, parent, depth| {
        count += 1;
        tree[b] = Some(TreeNode { parent, depth, first: count, last: count });
        count
    };
    if let Some(root) = root {
        enter(&mut tree, root, None, 1);
        stack.push((root, 0, 1));
    }
    let mut newest = 1;
    while let Some((b, next, depth)) = stack.pop() {
        match children[b].get(next) {
            Some(child) => {
                stack.push((b, next + 1, depth));
                newest = enter(&mut tree, *child, Some(b), depth + 1);
                stack.push((*child, 0, depth + 1));
            }
            None => {
                if let Some(place) = &mut tree[b] {
                    place.last = newest;
                }
            }
        }
    }
    tree
}
