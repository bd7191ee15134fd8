//! Kernels in tile IR made at random: loads along any axes and at computed indices, broadcasting, integers, reductions along both
//! axes, transpositions, products, loops that carry tiles and may end early, branches, extents bounded at run time.
//!
//! A test program takes it in by `#[path = "../common/gen_tile.rs"] mod gen_tile;`.

#![allow(dead_code, reason = "each test program that takes this module in uses its own part of it")]

use std::collections::BTreeMap;

use attnc::ir::Loc;
use attnc::random::Random;
use attnc::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use attnc::shape::{Dim, Elem};
use attnc::tile::{BufferType, Extent, Kernel, KernelBuilder, ParamMode, Type, Value, row_major};

const ONE: Extent = Extent::Static(1);

/// A contiguous buffer of run-time dimensions.
pub(crate) fn buffer(elem: Elem, shape: &[&str]) -> BufferType {
    let shape: Vec<Dim> = shape.iter().map(|s| Dim::symbol(s)).collect();
    BufferType { elem, strides: row_major(&shape), shape }
}

/// A kernel being made: what is there to work on.
struct Maker<'r> {
    rng: &'r mut Random,
    kb: KernelBuilder,
    tiles: Vec<Value>,
    /// Loaded for products: `[rows, inner]` and `[inner, cols]`.
    factors: Option<(Value, Value)>,
    /// Only what every machine computes to the same bits.
    exact: bool,
    /// All kinds of operations, or few.
    all: bool,
    rows: Extent,
    cols: Extent,
    /// The first buffer and the column at which this grid point begins, and how many rows there are.
    source: (Value, Value),
    height: Dim,
}

impl Maker<'_> {
    fn extents(&self, v: Value) -> (Extent, Extent) {
        match self.kb.ty(v) {
            Type::Tile(t) => (t.rows, t.cols),
            _ => (ONE, ONE),
        }
    }

    fn is(&self, v: Value, elem: Elem) -> bool {
        self.kb.ty(v).elem() == Some(elem)
    }

    fn any(&mut self, elem: Elem) -> Value {
        let fit: Vec<Value> = self.tiles.iter().copied().filter(|v| self.is(*v, elem)).collect();
        self.rng.pick(&fit)
    }

    /// One more tile.
    fn step(&mut self) {
        let a = self.any(Elem::F32);
        let b = self.any(Elem::F32);
        let v = match self.rng.below(if self.all { 18 } else { 12 }) {
            0 => {
                let ops = [
                    UnaryOp::Neg,
                    UnaryOp::Abs,
                    UnaryOp::Relu,
                    UnaryOp::Floor,
                    UnaryOp::Round,
                    UnaryOp::Sign,
                    UnaryOp::Sqrt,
                    UnaryOp::Tanh,
                    UnaryOp::Sigmoid,
                    UnaryOp::Exp,
                    UnaryOp::Log1p,
                    UnaryOp::Erf,
                    UnaryOp::Cos,
                ];
                let few = [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Relu, UnaryOp::Tanh, UnaryOp::Sigmoid];
                let op = self.rng.pick(match (self.exact, self.all) {
                    (true, true) => &ops[..7],
                    (false, true) => &ops,
                    (true, false) => &few[..3],
                    (false, false) => &few,
                });
                self.kb.unary(op, a)
            }
            1 | 2 => {
                let ops = [
                    BinaryOp::Add,
                    BinaryOp::Sub,
                    BinaryOp::Mul,
                    BinaryOp::Max,
                    BinaryOp::Min,
                    BinaryOp::Div,
                    BinaryOp::Rem,
                ];
                let op = self.rng.pick(if self.all { &ops } else { &ops[..5] });
                self.kb.binary(op, a, b)
            }
            3 => {
                let c = self.kb.compare(self.rng.pick(CmpOp::ALL), a, b);
                let d = self.any(Elem::F32);
                self.kb.select(c, a, d)
            }
            4 => {
                let x = self.kb.scalar(attnc::ir::Scalar::Float(0.5), Elem::F32);
                self.kb.binary(BinaryOp::Mul, x, a)
            }
            5 | 6 => self.reduction(1),
            8 | 9 => self.reduction(0),
            10 => self.turned(a),
            11 => {
                let c = self.kb.compare(self.rng.pick(CmpOp::ALL), a, b);
                let c = self.kb.transpose(c);
                let c = self.kb.transpose(c);
                let d = self.any(Elem::F32);
                self.kb.select(c, a, d)
            }
            7 if self.all => self.integers(a, b),
            7 => {
                let n = self.kb.cast(a, Elem::I32);
                let m = self.kb.cast(b, Elem::I32);
                let sum = self.kb.binary(BinaryOp::Add, n, m);
                self.kb.cast(sum, Elem::F32)
            }
            12 => {
                let narrow = self.rng.pick(&[Elem::BF16, Elem::F16]);
                self.kb.narrow(a, narrow)
            }
            13 => {
                let number = self.number(a);
                let op = self.rng.pick(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Max]);
                self.kb.binary(op, b, number)
            }
            14 => self.truths(a, b),
            15 => self.gathered(a),
            16 => self.branch(a),
            _ => {
                let whole: Vec<Value> = self
                    .tiles
                    .iter()
                    .copied()
                    .filter(|v| self.extents(*v) == (self.rows, self.cols) && self.is(*v, Elem::F32))
                    .collect();
                let acc = self.rng.pick(&whole);
                match self.factors {
                    // How a product is summed depends on the machine.
                    Some((x, y)) if !self.exact => self.kb.dot(x, y, acc),
                    _ => self.kb.binary(BinaryOp::Max, acc, a),
                }
            }
        };
        self.tiles.push(v);
    }

    /// Two tiles as integers of one type.
    fn integers(&mut self, a: Value, b: Value) -> Value {
        let elem = self.rng.pick(&[Elem::I32, Elem::I32, Elem::I64]);
        let n = self.kb.cast(a, elem);
        let m = self.kb.cast(b, elem);
        let op = self.rng.pick(&[
            BinaryOp::Add,
            BinaryOp::Sub,
            BinaryOp::Mul,
            BinaryOp::Max,
            BinaryOp::Div,
            BinaryOp::Rem,
            BinaryOp::BitAnd,
            BinaryOp::BitXor,
            BinaryOp::ShiftLeft,
            BinaryOp::ShiftRight,
        ]);
        let out = self.kb.binary(op, n, m);
        let out = if elem == Elem::I32 && self.rng.chance(20) { self.kb.narrow(out, Elem::I8) } else { out };
        self.kb.cast(out, Elem::F32)
    }

    /// The greatest or the least element of a tile, as a scalar.
    fn number(&mut self, x: Value) -> Value {
        let kind = self.rng.pick(&[ReduceKind::Max, ReduceKind::Min]);
        let row = self.kb.reduce(kind, 0, x);
        let one = self.kb.reduce(kind, 1, row);
        let one = self.positive_zero(one);
        self.kb.element(one)
    }

    /// A choice by what holds anywhere along an axis, or everywhere.
    fn truths(&mut self, a: Value, b: Value) -> Value {
        let holds = self.kb.compare(self.rng.pick(CmpOp::ALL), a, b);
        let kind = self.rng.pick(&[ReduceKind::Any, ReduceKind::All]);
        let holds = self.kb.reduce(kind, self.rng.below(2), holds);
        let c = self.any(Elem::F32);
        self.kb.select(holds, b, c)
    }

    /// A row of the first buffer, at an index that is computed and checked.
    fn gathered(&mut self, a: Value) -> Value {
        let number = self.number(a);
        let number = self.kb.cast(number, Elem::I32);
        let index = self.kb.to_index(number);
        let bound = self.kb.dim(&self.height.clone());
        let index = self.kb.index_binary(BinaryOp::Rem, index, bound);
        let index = self.kb.check_index(index, bound, 0);
        let (x, to) = self.source;
        self.kb.load(x, &[index, to], (None, Some(1)), ONE, self.cols)
    }

    /// One tile or another of the same type, by a comparison.
    fn branch(&mut self, a: Value) -> Value {
        let ty = self.kb.ty(a).clone();
        let condition = self.condition();
        let (then, _) = self.kb.new_block(Vec::new());
        let (other, _) = self.kb.new_block(Vec::new());
        let (join, args) = self.kb.new_block(vec![ty.clone()]);
        self.kb.br_if(condition, (then, &[]), (other, &[]));
        let before = self.tiles.len();
        for side in [then, other] {
            self.kb.switch_to(side);
            let x = self.any(Elem::F32);
            let x = self.kb.unary(UnaryOp::Neg, x);
            self.tiles.push(x);
            let fit: Vec<Value> = self.tiles.iter().copied().filter(|v| *self.kb.ty(*v) == ty).collect();
            let given = fit.last().copied().unwrap_or(a);
            self.kb.br(join, &[given]);
            self.tiles.truncate(before);
        }
        self.kb.switch_to(join);
        args[0]
    }

    fn condition(&mut self) -> Value {
        let x = self.any(Elem::F32);
        let number = self.number(x);
        let limit = self.kb.scalar(attnc::ir::Scalar::Float(0.75), Elem::F32);
        self.kb.compare_scalars(self.rng.pick(&[CmpOp::Lt, CmpOp::Ge]), number, limit)
    }

    /// A reduction of a tile that is as long along the axis as there is.
    fn reduction(&mut self, axis: usize) -> Value {
        let whole = |m: &Self, v: &Value| {
            let (rows, cols) = m.extents(*v);
            if axis == 0 { rows == m.rows } else { cols == m.cols }
        };
        let fit: Vec<Value> = self.tiles.iter().copied().filter(|v| whole(self, v) && self.is(*v, Elem::F32)).collect();
        let x = self.rng.pick(&fit);
        self.reduced(x, axis)
    }

    fn reduced(&mut self, x: Value, axis: usize) -> Value {
        let kinds = [ReduceKind::Max, ReduceKind::Min, ReduceKind::ArgMax, ReduceKind::Sum, ReduceKind::Sum];
        // Vectors sum a row in another order, and a tile of one column as a row; other columns are summed in order.
        let as_row = axis == 1 || self.extents(x).1 == ONE;
        let kind = self.rng.pick(if self.exact && as_row { &kinds[..3] } else { &kinds });
        let y = self.kb.reduce(kind, axis, x);
        if self.exact && matches!(kind, ReduceKind::Max | ReduceKind::Min) {
            self.positive_zero(y)
        } else {
            self.kb.cast(y, Elem::F32)
        }
    }

    /// A maximum or minimum whose zeros are positive. Which one of `0.0` and `-0.0` is taken depends on the order, and so on the
    /// machine.
    fn positive_zero(&mut self, x: Value) -> Value {
        let zero = self.kb.scalar(attnc::ir::Scalar::Float(0.0), Elem::F32);
        self.kb.binary(BinaryOp::Add, x, zero)
    }

    /// A tile that was on its side for a while.
    fn turned(&mut self, a: Value) -> Value {
        let mut t = self.kb.transpose(a);
        if self.rng.below(2) == 0 {
            t = self.kb.unary(UnaryOp::Neg, t);
        }
        if self.rng.below(2) == 0 {
            let axis = self.rng.below(2);
            t = self.reduced(t, axis);
        }
        self.kb.transpose(t)
    }

    /// A loop of three rounds, or fewer, that carries some tiles.
    fn round_and_round(&mut self) {
        let carried: Vec<Value> = (0..1 + self.rng.below(3)).map(|_| self.any(Elem::F32)).collect();
        let mut types = vec![Type::Index];
        types.extend(carried.iter().map(|v| self.kb.ty(*v).clone()));
        let zero = self.kb.index(0);
        let (head, args) = self.kb.new_block(types);
        let (body, _) = self.kb.new_block(Vec::new());
        let (after, _) = self.kb.new_block(Vec::new());
        let mut given = vec![zero];
        given.extend(&carried);
        self.kb.br(head, &given);
        self.kb.switch_to(head);
        let three = self.kb.index(3);
        let more = self.kb.compare_scalars(CmpOp::Lt, args[0], three);
        self.kb.br_if(more, (body, &[]), (after, &[]));
        self.kb.switch_to(body);
        let outside = self.tiles.len();
        self.tiles.extend(&args[1..]);
        let inside = self.tiles.len();
        for _ in 0..1 + self.rng.below(4) {
            self.step();
        }
        let next = self.kb.plus(args[0], 1);
        let mut given = vec![next];
        for a in &args[1..] {
            let wanted = self.kb.ty(*a).clone();
            let fit: Vec<Value> = self.tiles[outside..].iter().copied().filter(|v| *self.kb.ty(*v) == wanted).collect();
            given.push(self.rng.pick(&fit));
        }
        if self.all && self.rng.chance(30) {
            let ends = self.condition();
            // A conditional jump takes no tiles.
            let (on, _) = self.kb.new_block(Vec::new());
            self.kb.br_if(ends, (after, &[]), (on, &[]));
            self.kb.switch_to(on);
        }
        self.kb.br(head, &given);
        self.kb.switch_to(after);
        // Values made in the loop cannot be used after it.
        self.tiles.truncate(inside);
    }
}

/// The buffers of a kernel: element type, shape, and what is done with them. `x`, its transpose, a column, a row, factors
/// of a product; a result, its reductions along rows and along columns.
pub(crate) const BUFFERS: [(Elem, &[&str], ParamMode); 9] = [
    (Elem::F32, &["R", "C"], ParamMode::In),
    (Elem::F32, &["C", "R"], ParamMode::In),
    (Elem::BF16, &["R"], ParamMode::In),
    (Elem::F32, &["C"], ParamMode::In),
    (Elem::F32, &["R", "K"], ParamMode::In),
    (Elem::F32, &["K", "C"], ParamMode::In),
    (Elem::F32, &["R", "C"], ParamMode::Out),
    (Elem::F32, &["R", "C"], ParamMode::Out),
    (Elem::F32, &["R", "C"], ParamMode::Out),
];

/// What is reported of an index that is out of range, by the number that kernels use.
pub(crate) const SITES: [&str; 1] = ["index {0} is out of range for {1} rows"];

/// The types of the buffers for these dimensions.
pub(crate) fn types(r: &Dim, c: &Dim, k: &Dim) -> Vec<BufferType> {
    let dim = |name: &&str| {
        if *name == "R" {
            r.clone()
        } else if *name == "C" {
            c.clone()
        } else {
            k.clone()
        }
    };
    let ty = |(elem, shape, _): &(Elem, &[&str], ParamMode)| {
        let shape: Vec<Dim> = shape.iter().map(dim).collect();
        BufferType { elem: *elem, strides: row_major(&shape), shape }
    };
    BUFFERS.iter().map(ty).collect()
}

/// A kernel of these buffers. `exact`: every machine computes the same bits.
pub(crate) fn make(name: &str, rng: &mut Random, exact: bool) -> Kernel {
    let (r, c, k) = (Dim::symbol("R"), Dim::symbol("C"), Dim::symbol("K"));
    let sizes = ([[3, 4, 8], [4, 5, 16]], 32);
    made(name, rng, (exact, true), sizes, &types(&r, &c, &k))
}

/// The same over buffers of other types, of the same kinds.
pub(crate) fn make_over(name: &str, rng: &mut Random, exact: bool, types: &[BufferType]) -> Kernel {
    made(name, rng, (exact, true), ([[3, 4, 8], [4, 5, 16]], 32), types)
}

/// A kernel of few kinds of operations, with tiles of one of three numbers of rows and one of three of columns, and products over so
/// many steps at most.
pub(crate) fn make_of(name: &str, rng: &mut Random, exact: bool, tiles: [[i64; 3]; 2], steps: i64) -> Kernel {
    let (r, c, k) = (Dim::symbol("R"), Dim::symbol("C"), Dim::symbol("K"));
    made(name, rng, (exact, false), (tiles, steps), &types(&r, &c, &k))
}

fn made(
    name: &str,
    rng: &mut Random,
    (exact, all): (bool, bool),
    ([highs, wides], steps): ([[i64; 3]; 2], i64),
    types: &[BufferType],
) -> Kernel {
    let mut kb = KernelBuilder::new(name);
    kb.at(Loc::default());
    let high = rng.pick(&highs);
    let wide = rng.pick(&wides);
    let buffers: Vec<Value> =
        BUFFERS.iter().zip(types).map(|((_, _, mode), ty)| kb.buffer(ty.clone(), *mode)).collect();
    let [x, turned, column, row, left, right, out, sums, tops] = buffers[..] else { panic!("nine buffers") };
    let (r, c, k) = (types[0].shape[0].clone(), types[0].shape[1].clone(), types[4].shape[1].clone());
    let i = kb.grid_axis(&r, high);
    let j = kb.grid_axis(&c, wide);
    let (at, to) = (kb.times(i, high), kb.times(j, wide));
    let rows = kb.extent_at(&r, at, high);
    let cols = kb.extent_at(&c, to, wide);
    let zero = kb.index(0);
    let inner = kb.extent_at(&k, zero, steps);
    let mut tiles = vec![
        kb.load(x, &[at, to], (Some(0), Some(1)), rows, cols),
        kb.load(turned, &[to, at], (Some(1), Some(0)), rows, cols),
        kb.load(column, &[at], (Some(0), None), rows, ONE),
        kb.load(row, &[to], (None, Some(0)), ONE, cols),
    ];
    let counts = kb.iota(rng.below(2), to, Elem::I32, rows, cols);
    tiles.push(kb.cast(counts, Elem::F32));
    let b = kb.load(right, &[zero, to], (Some(0), Some(1)), inner, cols);
    let factors = match rng.below(3) {
        0 => None,
        1 => Some((kb.load(left, &[at, zero], (Some(0), Some(1)), rows, inner), b)),
        _ => {
            let a = kb.load(left, &[at, zero], (Some(1), Some(0)), inner, rows);
            Some((kb.transpose(a), b))
        }
    };
    let mut m = Maker { rng, kb, tiles, factors, exact, all, rows, cols, source: (x, to), height: r.clone() };
    for _ in 0..2 + m.rng.below(3) {
        for _ in 0..m.rng.below(5) {
            m.step();
        }
        if m.rng.below(2) == 0 {
            m.round_and_round();
        }
    }
    let last = |m: &Maker<'_>, rows, cols| {
        m.tiles.iter().copied().rfind(|v| m.extents(*v) == (rows, cols) && m.is(*v, Elem::F32))
    };
    let result = last(&m, rows, cols).expect("a whole tile");
    m.kb.store(out, &[at, to], (Some(0), Some(1)), result);
    if let Some(v) = last(&m, rows, ONE) {
        m.kb.store(sums, &[at, j], (Some(0), None), v);
    }
    if let Some(v) = last(&m, ONE, cols) {
        m.kb.store(tops, &[i, to], (None, Some(1)), v);
    }
    m.kb.finish()
}

/// Contents of the buffers at some sizes.
pub(crate) fn contents(rng: &mut Random, sizes: &BTreeMap<String, i64>) -> Vec<Vec<u8>> {
    let one = |(elem, shape, _): &(Elem, &[&str], ParamMode)| {
        let n: usize = shape.iter().map(|s| sizes[*s] as usize).product();
        match elem {
            // The upper half of 1.0 and of -0.5.
            Elem::BF16 => (0..n).flat_map(|i| if i % 2 == 0 { [0x80, 0x3f] } else { [0x00, 0xbf] }).collect(),
            _ => (0..n).flat_map(|_| ((rng.below(401) as f32 - 200.0) / 100.0).to_le_bytes()).collect(),
        }
    };
    BUFFERS.iter().map(one).collect()
}

/// Sizes worth trying.
pub(crate) fn sizes() -> Vec<BTreeMap<String, i64>> {
    let all = [(0, 3, 2), (1, 1, 0), (9, 17, 5), (7, 0, 1)];
    all.iter().map(|(r, c, k)| [("R", *r), ("C", *c), ("K", *k)].map(|(s, n)| (s.to_string(), n)).into()).collect()
}
