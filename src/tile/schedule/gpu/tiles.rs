//! Retiling: finds the axes along which a kernel's tiles go, and changes their tile sizes.
//!
//! In: an unscheduled kernel. Out: its axes ([`Axes`]), each with its tile size; [`Axes::resize`]
//! changes one. It must not know machines, nor which sizes are good.
//!
//! An axis is recognised by the start of its tiles:
//!
//! ```text
//! grid(%g: ceil(D, c))                      ^head(%j: index):                 from 0, then add %j, c; while lt %j, D
//!   %start = mul %g, c                        %start = %j
//!   %rest = sub D, %start;  %n = min %rest, c                                 the extent of a tile: %n<=c, or c if c divides D
//!   load %x[.., %start, ..], cols=..
//! ```
//!
//! All tiles that share an axis have the same extent along it: operands and results of elementwise
//! work, block arguments, what matmuls sum over. So an axis can be resized if every tile of its
//! class has the same start, and if nothing else depends on the step: the start is an index where
//! the tile goes along the buffer's axis, the first number of a counter, and the rest of `D` is
//! computed from it; and if partial results of tiles are combined in a way that [`super::parts`]
//! recognises. `D` must be the end of the grid axis or loop: a loop with another end would cover
//! other elements if the step changed. Otherwise, it is not among the axes.

use std::collections::{BTreeMap, BTreeSet};

use super::parts::are_independent_of_size;
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar};
use crate::source::Loc;
use crate::tile::{Block, Body, Extent, Inst, Kernel, Op, Terminator, Type, Value, ValueDef};

/// The grid axis or loop of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    /// A grid axis.
    Grid(usize),
    Loop,
}

#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// The grid axis or loop.
    pub(super) along: Along,
    /// Tile size.
    pub(super) step: i64,
    /// Extent of the axis, if it is a constant.
    pub(super) all: Option<i64>,
    /// Is it the rows of tiles (0), or the columns (1)? `None` if it is both.
    pub(super) side: Option<usize>,
    /// Start of a tile.
    pub(super) start: Value,
    /// The tiles, each with its side along the axis.
    pub(super) nodes: Vec<(Value, usize)>,
    /// Instructions with the step as an operand: the start of a tile, or of the next one; the
    /// extent.
    steps: Vec<Inst>,
}

#[derive(Clone, Debug)]
pub(super) struct Axes(pub(super) Vec<Axis>);

/// Union-find of equal extents.
struct Classes(Vec<usize>);

impl Classes {
    fn find(&mut self, n: usize) -> usize {
        let mut root = n;
        while self.0[root] != root {
            root = self.0[root];
        }
        self.0[n] = root;
        root
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a] = b;
    }
}

fn node(v: Value, side: usize) -> usize {
    2 * v.as_u32() as usize + side
}

fn extent(body: &Body, v: Value, side: usize) -> Option<Extent> {
    body.ty(v).tile().map(|t| t.extent(side))
}

/// The constant that a value is.
fn constant(body: &Body, v: Value) -> Option<i64> {
    match body.def_inst(v).map(|d| &d.op) {
        Some(Op::Const(s)) => Some(s.as_i64()),
        Some(Op::DimValue(d)) => d.as_const(),
        _ => None,
    }
}

impl Axes {
    /// Finds the axes; `None` if a kernel has operations whose axes are not understood.
    pub(super) fn find(kernel: &Kernel) -> Option<Axes> {
        let body = &kernel.body;
        let mut classes = Classes((0..2 * body.value_count()).collect());
        let mut starts: Vec<(usize, Value)> = Vec::new();
        for (_, _, data) in body.insts() {
            let sides = |classes: &mut Classes, v: Value, w: Value, pairs: &[(usize, usize)]| {
                for (a, b) in pairs {
                    if let (Some(x), Some(y)) = (extent(body, v, *a), extent(body, w, *b))
                        && !x.is_one()
                        && !y.is_one()
                    {
                        classes.join(node(v, *a), node(w, *b));
                    }
                }
            };
            match (&data.op, data.result) {
                (Op::Load { rows, cols } | Op::Store { rows, cols }, result) => {
                    let tile = result.or(data.operands.last().copied())?;
                    for (side, axis) in [rows, cols].into_iter().enumerate() {
                        if let Some(start) = axis.and_then(|a| data.operands.get(1 + a)) {
                            starts.push((node(tile, side), *start));
                        }
                    }
                }
                (Op::Iota { axis }, Some(v)) => starts.push((node(v, *axis), *data.operands.first()?)),
                (Op::Reduce { axis, .. }, Some(v)) => {
                    sides(&mut classes, *data.operands.first()?, v, &[(1 - axis, 1 - axis)]);
                }
                (Op::Dot { .. }, Some(v)) => {
                    let [a, b, acc] = data.operands.as_slice() else { return None };
                    sides(&mut classes, *a, v, &[(0, 0)]);
                    sides(&mut classes, *b, v, &[(1, 1)]);
                    sides(&mut classes, *a, *b, &[(1, 0)]);
                    sides(&mut classes, *acc, v, &[(0, 0), (1, 1)]);
                }
                (Op::Transpose, Some(v)) => sides(&mut classes, *data.operands.first()?, v, &[(0, 1), (1, 0)]),
                (op, Some(v)) if super::super::runs::is_elementwise(op) || matches!(op, Op::Full) => {
                    data.operands.iter().for_each(|w| sides(&mut classes, *w, v, &[(0, 0), (1, 1)]));
                }
                (Op::Element, _) => {}
                (_, Some(v)) if body.ty(v).any_tile().is_some() => return None,
                _ if data.operands.iter().any(|v| body.ty(*v).any_tile().is_some()) => return None,
                _ => {}
            }
        }
        for block in &body.layout {
            for call in body.block(*block).terminator.targets() {
                for (arg, v) in body.block(call.block).args.iter().zip(&call.args) {
                    if body.ty(*v).tile().is_some() {
                        (0..2).for_each(|side| classes.join(node(*v, side), node(*arg, side)));
                    }
                }
            }
        }
        Some(Axes(found(kernel, &mut classes, &starts)))
    }

    /// Changes the tile size along an axis. Returns `false`, without any change, if the kernel
    /// assumes that every tile is full and that would no longer be so.
    pub(super) fn resize(&mut self, kernel: &mut Kernel, n: usize, step: i64) -> bool {
        let Some(axis) = self.0.get_mut(n) else { return false };
        let body = &mut kernel.body;
        let full = axis.nodes.iter().any(|(v, side)| matches!(extent(body, *v, *side), Some(Extent::Static(_))));
        if step < 1 || full && axis.all.is_none_or(|all| all % step != 0) {
            return false;
        }
        if step == axis.step {
            return true;
        }
        let inst = body.make_inst(Op::Const(Scalar::Int(step)), Vec::new(), Some(Type::Index), Loc::default());
        let Some(new) = body.inst(inst).result else { return false };
        let entry = body.entry();
        body.block_mut(entry).insts.insert(0, inst);
        for i in &axis.steps {
            let old = body.inst(*i).operands.iter().position(|v| constant(body, *v) == Some(axis.step));
            if let Some(operand) = old.and_then(|at| body.inst_mut(*i).operands.get_mut(at)) {
                *operand = new;
            }
        }
        for (v, side) in &axis.nodes {
            let mut ty = body.ty(*v).clone();
            if let Type::Tile(t) = &mut ty {
                let extent = if *side == 0 { &mut t.rows } else { &mut t.cols };
                *extent = match *extent {
                    Extent::Static(_) => Extent::Static(step),
                    Extent::Bounded { value, .. } => Extent::Bounded { value, max: step },
                };
            }
            body.set_ty(*v, ty);
        }
        if let Along::Grid(g) = axis.along
            && let Some(g) = kernel.grid.get_mut(g)
        {
            g.step = step;
        }
        axis.step = step;
        true
    }

    /// The same along a grid axis, even if its tiles are all full: extents become bounded.
    pub(super) fn resize_bounded(&mut self, kernel: &mut Kernel, n: usize, step: i64) -> bool {
        let Some(axis) = self.0.get_mut(n).filter(|_| step >= 1) else { return false };
        let (Along::Grid(g), [first]) = (axis.along, axis.steps.as_slice()) else { return false };
        let Some(grid) = kernel.grid.get_mut(g) else { return false };
        let (body, first) = (&mut kernel.body, *first);
        let mut make = |op: Op, operands: Vec<Value>| {
            let inst = body.make_inst(op, operands, Some(Type::Index), Loc::default());
            body.inst(inst).result.map(|v| (inst, v))
        };
        let new = |make: &mut dyn FnMut(Op, Vec<Value>) -> Option<(Inst, Value)>| {
            let (c, size) = make(Op::Const(Scalar::Int(step)), Vec::new())?;
            let (d, all) = make(Op::DimValue(grid.extent.clone()), Vec::new())?;
            let (sub, rest) = make(Op::Binary(BinaryOp::Sub), vec![all, axis.start])?;
            let (min, least) = make(Op::Binary(BinaryOp::Min), vec![rest, size])?;
            Some(([c, d], size, [sub, min], least))
        };
        let Some((numbers, size, bound, least)) = new(&mut make) else { return false };
        let old = body.inst(first).operands.iter().position(|v| constant(body, *v) == Some(axis.step));
        let Some(operand) = old.and_then(|at| body.inst_mut(first).operands.get_mut(at)) else { return false };
        *operand = size;
        // The rest is computed after the start.
        for block in body.layout.clone() {
            let insts = &mut body.block_mut(block).insts;
            if let Some(at) = insts.iter().position(|i| *i == first) {
                insts.splice(at + 1..at + 1, bound);
            }
        }
        let entry = body.entry();
        body.block_mut(entry).insts.splice(0..0, numbers);
        for (v, side) in &axis.nodes {
            let mut ty = body.ty(*v).clone();
            if let Type::Tile(t) = &mut ty {
                *(if *side == 0 { &mut t.rows } else { &mut t.cols }) = Extent::Bounded { value: least, max: step };
            }
            body.set_ty(*v, ty);
        }
        grid.step = step;
        axis.step = step;
        axis.steps.push(bound[1]);
        true
    }
}

/// The axes whose classes have a single start.
fn found(kernel: &Kernel, classes: &mut Classes, starts: &[(usize, Value)]) -> Vec<Axis> {
    let body = &kernel.body;
    // The tiles of each class, and the starts of each class.
    let mut tiles: BTreeMap<usize, Vec<(Value, usize)>> = BTreeMap::new();
    let results = body.insts().filter_map(|(_, _, d)| d.result);
    let args = body.layout.iter().flat_map(|b| body.block(*b).args.iter().copied());
    for v in results.chain(args).filter(|v| body.ty(*v).tile().is_some()) {
        for side in 0..2 {
            if extent(body, v, side).is_some_and(|e| !e.is_one()) {
                tiles.entry(classes.find(node(v, side))).or_default().push((v, side));
            }
        }
    }
    let mut begins: BTreeMap<usize, BTreeSet<Value>> = BTreeMap::new();
    for (n, start) in starts {
        let class = classes.find(*n);
        if tiles.contains_key(&class) {
            begins.entry(class).or_default().insert(*start);
        }
    }
    let mut by_start: BTreeMap<Value, Vec<usize>> = BTreeMap::new();
    for (class, all) in &begins {
        all.iter().for_each(|start| by_start.entry(*start).or_default().push(*class));
    }
    let alone = |class: &usize| begins.get(class).is_some_and(|all| all.len() == 1);
    let mut out = Vec::new();
    for (start, classes) in by_start.iter().filter(|(_, classes)| classes.iter().all(alone)) {
        let nodes: Vec<(Value, usize)> = classes.iter().filter_map(|c| tiles.get(c)).flatten().copied().collect();
        out.extend(axis(kernel, *start, nodes));
    }
    out
}

/// The axis of tiles with a start, if they form one.
fn axis(kernel: &Kernel, start: Value, nodes: Vec<(Value, usize)>) -> Option<Axis> {
    let body = &kernel.body;
    let going = Going::find(kernel, start)?;
    let (all, step) = (going.all(kernel), going.step);
    let mut steps = vec![going.inst];
    // Every extent must be the step, or the rest if that is less.
    let mut extents = nodes.iter().map(|(v, side)| extent(body, *v, *side));
    let first = extents.next().flatten()?;
    if extents.any(|e| e != Some(first)) {
        return None;
    }
    let mut rest = None;
    match first {
        Extent::Static(n) if n == step && all.is_none_or(|all| all % step == 0) => {}
        Extent::Bounded { value, max } if max == step => {
            let (least, data) = body.definition(value)?;
            let [left, c] = data.operands.as_slice() else { return None };
            let (i, minus) = body.definition(*left)?;
            let [end, from] = minus.operands.as_slice() else { return None };
            let is_rest = minus.op == Op::Binary(BinaryOp::Sub) && *from == start && going.ends_at(kernel, *end);
            if data.op != Op::Binary(BinaryOp::Min) || constant(body, *c) != Some(step) || !is_rest {
                return None;
            }
            // The rest and the extent must have no other uses.
            let is_alone = users(body, *left).as_slice() == [least] && users(body, value).is_empty();
            if !is_alone || passed(body, *left) + passed(body, value) > 0 {
                return None;
            }
            // A tile with another start may have the same extent.
            let all = body.insts().filter_map(|(_, _, d)| d.result);
            let mut sides = all.flat_map(|v| [(v, 0), (v, 1)]).filter(|(v, s)| extent(body, *v, *s) == Some(first));
            if sides.any(|node| !nodes.contains(&node)) {
                return None;
            }
            steps.push(least);
            rest = Some(i);
        }
        _ => return None,
    }
    let fits = |i: &Inst| {
        let data = body.inst(*i);
        match &data.op {
            Op::Load { rows, cols } | Op::Store { rows, cols } => {
                let places = data.operands.iter().enumerate().skip(1).filter(|(_, v)| **v == start);
                places.map(|(n, _)| Some(n - 1)).all(|axis| axis == *rows || axis == *cols)
            }
            Op::Iota { .. } => true,
            Op::Cast => data.result.is_some_and(|v| makes_places(body, v, &nodes)),
            _ => Some(*i) == rest || Some(*i) == going.compare || steps.contains(i),
        }
    };
    if passed(body, start) > 0 || !users(body, start).iter().all(fits) {
        return None;
    }
    let counter = (going.along == Along::Loop).then_some(start);
    if !are_independent_of_size(body, &nodes, counter) {
        return None;
    }
    let side = nodes.first().map(|(_, side)| *side);
    let side = side.filter(|side| nodes.iter().all(|(_, s)| s == side));
    Some(Axis { along: going.along, step, all, side, start, nodes, steps })
}

/// Is the start, as a number, only added to positions in the tile? The sums are global positions,
/// whatever the step.
fn makes_places(body: &Body, start: Value, nodes: &[(Value, usize)]) -> bool {
    let is_place = |v: &Value| {
        let made = body.def_inst(*v);
        made.is_some_and(|d| match (&d.op, d.operands.first()) {
            (Op::Reduce { kind: ReduceKind::ArgMax, axis }, Some(of)) => nodes.contains(&(*of, *axis)),
            _ => false,
        })
    };
    let is_sum = |i: &Inst| {
        let data = body.inst(*i);
        let mut others = data.operands.iter().filter(|v| **v != start);
        data.op == Op::Binary(BinaryOp::Add) && others.next().is_some_and(is_place)
    };
    passed(body, start) == 0 && users(body, start).iter().all(is_sum)
}

/// How tiles advance along an axis, by their start.
struct Going {
    along: Along,
    step: i64,
    /// The instruction with the step as an operand: the start, or the next one.
    inst: Inst,
    /// In a loop, the comparison that decides whether there is another tile.
    compare: Option<Inst>,
    bound: Option<Value>,
}

impl Going {
    fn find(kernel: &Kernel, start: Value) -> Option<Going> {
        let body = &kernel.body;
        match body.def(start) {
            ValueDef::Result(i) => {
                let data = body.inst(i);
                let [a, b] = data.operands.as_slice() else { return None };
                let (n, g) = kernel.grid.iter().enumerate().find(|(_, g)| g.value == *a || g.value == *b)?;
                let c = if g.value == *a { *b } else { *a };
                let alone = users(body, g.value).as_slice() == [i] && passed(body, g.value) == 0;
                if data.op != Op::Binary(BinaryOp::Mul) || constant(body, c) != Some(g.step) || !alone {
                    return None;
                }
                Some(Going { along: Along::Grid(n), step: g.step, inst: i, compare: None, bound: None })
            }
            ValueDef::Arg(block, n) => {
                let (next, step) = counter(body, start, block, n)?;
                let Terminator::BrIf { condition, then, otherwise } = &body.block(block).terminator else {
                    return None;
                };
                let (compare, data) = body.definition(*condition)?;
                let [counted, bound] = data.operands.as_slice() else { return None };
                // The counter's value after the loop depends on the step.
                let in_loop = then.block != otherwise.block && !is_used_after(body, start, block, otherwise.block);
                if data.op != Op::Compare(CmpOp::Lt) || *counted != start || !in_loop {
                    return None;
                }
                let along = Along::Loop;
                Some(Going { along, step, inst: next, compare: Some(compare), bound: Some(*bound) })
            }
            ValueDef::Param => None,
        }
    }

    /// The extent of the axis, if it is a constant.
    fn all(&self, kernel: &Kernel) -> Option<i64> {
        match self.along {
            Along::Grid(n) => kernel.grid.get(n)?.extent.as_const(),
            Along::Loop => constant(&kernel.body, self.bound?),
        }
    }

    /// Is `end` the extent of the axis?
    fn ends_at(&self, kernel: &Kernel, end: Value) -> bool {
        let body = &kernel.body;
        let dim = |v: Value| match body.def_inst(v).map(|d| &d.op) {
            Some(Op::DimValue(d)) => Some(d.clone()),
            Some(Op::Const(s)) => Some(s.as_i64().into()),
            _ => None,
        };
        match self.along {
            Along::Grid(n) => kernel.grid.get(n).is_some_and(|g| dim(end).as_ref() == Some(&g.extent)),
            Along::Loop => {
                self.bound.is_some_and(|bound| bound == end || dim(end).is_some_and(|d| dim(bound) == Some(d)))
            }
        }
    }
}

/// Is a value used after a loop, on a path from `exit` back to its header or to the end?
fn is_used_after(body: &Body, v: Value, head: Block, exit: Block) -> bool {
    let (mut seen, mut open) = (BTreeSet::from([head, exit]), vec![exit]);
    while let Some(block) = open.pop() {
        let data = body.block(block);
        if data.insts.iter().any(|i| body.inst(*i).operands.contains(&v)) {
            return true;
        }
        open.extend(data.terminator.targets().iter().map(|call| call.block).filter(|b| seen.insert(*b)));
    }
    false
}

/// How often a value is a block argument or a condition.
fn passed(body: &Body, v: Value) -> usize {
    let ends = body.layout.iter().map(|b| &body.block(*b).terminator);
    ends.map(|end| end.values().into_iter().filter(|w| *w == v).count()).sum()
}

/// The instructions that use a value.
fn users(body: &Body, v: Value) -> Vec<Inst> {
    body.insts().filter(|(_, _, d)| d.operands.contains(&v)).map(|(_, i, _)| i).collect()
}

/// A block argument that starts with 0 and is incremented by a constant: the addition, and the
/// constant.
fn counter(body: &Body, v: Value, block: Block, n: usize) -> Option<(Inst, i64)> {
    let mut next = None;
    for from in &body.layout {
        for call in body.block(*from).terminator.targets().into_iter().filter(|c| c.block == block) {
            let given = *call.args.get(n)?;
            if constant(body, given) == Some(0) {
                continue;
            }
            let (i, data) = body.definition(given)?;
            let [a, c] = data.operands.as_slice() else { return None };
            let step = constant(body, *c)?;
            let alone = users(body, given).is_empty() && passed(body, given) == 1;
            if data.op != Op::Binary(BinaryOp::Add) || *a != v || next.is_some() || !alone {
                return None;
            }
            next = Some((i, step));
        }
    }
    next
}
