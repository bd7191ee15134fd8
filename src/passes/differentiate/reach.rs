//! Which values depend on the variables by paths that a gradient takes, and where such paths stop.
//!
//! In: the nodes before a gradient, and its variables. Out: the active values. An operation whose
//! derivative is zero everywhere passes nothing on, nor does one whose result is an integer or a
//! boolean.

use std::collections::BTreeSet;

use cranelift_entity::SecondaryMap;

use super::structure::Node;
use crate::ir::{Block, Function, Inst, Loc, Op, Terminator, Value, ValueDef};
use crate::scalar::Slope;

/// The variables of a gradient.
#[derive(Clone, Debug, Default)]
pub(super) struct Variables {
    pub values: BTreeSet<Value>,
    pub params: BTreeSet<String>,
    /// Values that are computed outside of all loops before the gradient, which may read them slice
    /// by slice: states, and values of the iteration around it.
    pub whole: BTreeSet<Value>,
}

/// Does a gradient go from the result of the operation to operand `k`?
fn goes(op: &Op, k: usize) -> bool {
    match op {
        Op::Unary(op) => op.slope() != Slope::Number(0.0),
        Op::Binary(op) => op.slopes().get(k) != Some(&Slope::Number(0.0)),
        Op::Stop => false,
        _ => true,
    }
}

fn is_float(f: &Function, v: Value) -> bool {
    f.tensor(v).is_some_and(|t| t.elem.is_float())
}

/// Facts about all values before a gradient.
pub(super) struct Reach<'a> {
    variables: &'a Variables,
    pub active: SecondaryMap<Value, bool>,
    changed: bool,
}

impl<'a> Reach<'a> {
    pub(super) fn new(f: &Function, nodes: &[Node], variables: &'a Variables) -> Reach<'a> {
        let mut reach = Reach { variables, active: SecondaryMap::new(), changed: true };
        while std::mem::take(&mut reach.changed) {
            reach.nodes(f, nodes);
        }
        reach
    }

    fn set(&mut self, v: Value) {
        self.changed |= !std::mem::replace(&mut self.active[v], true);
    }

    fn pass(&mut self, f: &Function, from: Value, to: Value) {
        if (self.active[from] || self.variables.values.contains(&to)) && is_float(f, to) {
            self.set(to);
        }
    }

    fn inst(&mut self, f: &Function, i: Inst) {
        let d = f.inst(i);
        let Some(v) = d.result.filter(|v| is_float(f, *v)) else { return };
        let read = matches!(&d.op, Op::Param { name } if self.variables.params.contains(name));
        let passes = d.operands.iter().enumerate().any(|(k, x)| self.active[*x] && goes(&d.op, k));
        if read || passes || self.variables.values.contains(&v) {
            self.set(v);
        }
    }

    fn nodes(&mut self, f: &Function, nodes: &[Node]) {
        for v in f.block(f.entry()).args.clone() {
            if self.variables.values.contains(&v) {
                self.set(v);
            }
        }
        for node in nodes {
            match node {
                Node::Inst(i) => self.inst(f, *i),
                Node::Same(pairs) => pairs.iter().for_each(|(arg, passed)| self.pass(f, *passed, *arg)),
                Node::Branch(region, _, arms) => {
                    for arm in arms {
                        self.nodes(f, &arm.nodes);
                        region.args.iter().zip(&arm.passed).for_each(|(arg, v)| self.pass(f, *v, *arg));
                    }
                }
                Node::Loop(region, l) => {
                    // To a fixed point, by the repetition of the whole.
                    l.args.iter().zip(&l.first).for_each(|(arg, v)| self.pass(f, *v, *arg));
                    l.args.iter().zip(&l.next).for_each(|(arg, v)| self.pass(f, *v, *arg));
                    self.nodes(f, &l.head);
                    self.nodes(f, &l.body);
                    region.args.iter().zip(&l.passed).for_each(|(arg, v)| self.pass(f, *v, *arg));
                }
                Node::Opaque(region, _) => {
                    let blocks = region.blocks.iter().chain([&region.enter, &region.exit]).copied().collect();
                    self.blocks(f, &region.blocks, &blocks);
                    self.arguments(f, &region.args, &blocks);
                }
                Node::Around(args, blocks, _) => {
                    // Of the variables outside of the loop only: others have one value for each
                    // iteration.
                    let mut outer = Reach {
                        variables: &Variables { values: BTreeSet::new(), ..self.variables.clone() },
                        active: self.active.clone(),
                        changed: true,
                    };
                    for b in blocks.iter().map(|b| f.block(*b)) {
                        let results = b.insts.iter().filter_map(|i| f.inst(*i).result);
                        b.args.iter().copied().chain(results).for_each(|v| outer.active[v] = false);
                    }
                    let list: Vec<Block> = blocks.iter().copied().collect();
                    while std::mem::take(&mut outer.changed) {
                        outer.blocks(f, &list, &f.layout.iter().copied().collect());
                    }
                    for v in args {
                        if outer.active[*v] || self.variables.values.contains(v) {
                            self.set(*v);
                        }
                    }
                }
            }
        }
    }

    /// All instructions and arguments of blocks, in any order.
    fn blocks(&mut self, f: &Function, blocks: &[Block], from: &BTreeSet<Block>) {
        for b in blocks {
            self.arguments(f, &f.block(*b).args, from);
            f.block(*b).insts.iter().for_each(|i| self.inst(f, *i));
        }
    }

    fn arguments(&mut self, f: &Function, args: &[Value], from: &BTreeSet<Block>) {
        for arg in args {
            let ValueDef::Arg(block, at) = f.def(*arg) else { continue };
            for c in from.iter().flat_map(|b| f.block(*b).terminator.targets()).filter(|c| c.block == block) {
                if let Some(v) = c.args.get(at) {
                    self.pass(f, *v, *arg);
                }
            }
        }
    }

    /// The first operation that a value or parameter goes into on its way to the loss, and from
    /// whose result no gradient comes back.
    pub(super) fn stops(&self, f: &Function, loss: Value) -> Option<(Loc, &'static str)> {
        let needed = ancestors(f, vec![loss], |_| true);
        let stops = |i: &Inst| {
            let d = f.inst(*i);
            let result = d.result.filter(|v| needed[*v] && !self.active[*v])?;
            let _ = result;
            d.operands.iter().any(|x| self.active[*x]).then(|| (d.loc, d.op.info().name))
        };
        f.layout.iter().flat_map(|b| &f.block(*b).insts).find_map(stops)
    }
}

/// The values that these are computed from, themselves included, by paths through some blocks.
pub(super) fn ancestors(
    f: &Function,
    mut work: Vec<Value>,
    through: impl Fn(Block) -> bool,
) -> SecondaryMap<Value, bool> {
    let predecessors = f.predecessors();
    let mut found: SecondaryMap<Value, bool> = SecondaryMap::new();
    while let Some(v) = work.pop() {
        if std::mem::replace(&mut found[v], true) {
            continue;
        }
        match f.def(v) {
            ValueDef::Param => {}
            ValueDef::Result(i) => work.extend(&f.inst(i).operands),
            ValueDef::Arg(block, at) => {
                for p in predecessors[block].iter().filter(|p| through(**p)) {
                    let terminator = &f.block(*p).terminator;
                    if let Terminator::BrIf { condition, .. } = terminator {
                        work.push(*condition);
                    }
                    let calls = terminator.targets().into_iter().filter(|c| c.block == block);
                    work.extend(calls.filter_map(|c| c.args.get(at)));
                }
            }
        }
    }
    found
}
