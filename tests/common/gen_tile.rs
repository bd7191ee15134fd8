//! Kernels in tile IR made at random: loads along any axes, broadcasting, reductions along both axes, transpositions,
//! products, loops that carry tiles, extents bounded at run time.
//!
//! A test program takes it in by `#[path = "../common/gen_tile.rs"] mod gen_tile;`.

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
    rows: Extent,
    cols: Extent,
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
        let v = match self.rng.below(12) {
            0 => {
                let ops = [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Relu, UnaryOp::Tanh, UnaryOp::Sigmoid];
                let op = self.rng.pick(if self.exact { &ops[..3] } else { &ops });
                self.kb.unary(op, a)
            }
            1 | 2 => {
                let op = self.rng.pick(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Max, BinaryOp::Min]);
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
            7 => {
                let n = self.kb.cast(a, Elem::I32);
                let m = self.kb.cast(b, Elem::I32);
                let sum = self.kb.binary(BinaryOp::Add, n, m);
                self.kb.cast(sum, Elem::F32)
            }
            _ => {
                let whole: Vec<Value> = self
                    .tiles
                    .iter()
                    .copied()
                    .filter(|v| self.extents(*v) == (self.rows, self.cols) && self.is(*v, Elem::F32))
                    .collect();
                let acc = self.rng.pick(&whole);
                match self.factors {
                    Some((x, y)) => self.kb.dot(x, y, acc),
                    None => self.kb.narrow(acc, Elem::BF16),
                }
            }
        };
        self.tiles.push(v);
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
        // Vectors sum a row in another order; columns are summed in order.
        let kind = self.rng.pick(if self.exact && axis == 1 { &kinds[..3] } else { &kinds });
        let y = self.kb.reduce(kind, axis, x);
        self.kb.cast(y, Elem::F32)
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

    /// A loop of three rounds that carries some tiles.
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

/// A kernel of these buffers. `exact`: every machine computes the same bits.
pub(crate) fn make(name: &str, rng: &mut Random, exact: bool) -> Kernel {
    make_of(name, rng, exact, [[3, 4, 8], [4, 5, 16]], 32)
}

/// The same, with tiles of one of three numbers of rows and one of three of columns, and products over so many steps at most.
pub(crate) fn make_of(name: &str, rng: &mut Random, exact: bool, [highs, wides]: [[i64; 3]; 2], steps: i64) -> Kernel {
    let mut kb = KernelBuilder::new(name);
    kb.at(Loc::default());
    let high = rng.pick(&highs);
    let wide = rng.pick(&wides);
    let buffers: Vec<Value> =
        BUFFERS.iter().map(|(elem, shape, mode)| kb.buffer(buffer(*elem, shape), *mode)).collect();
    let [x, turned, column, row, left, right, out, sums, tops] = buffers[..] else { panic!("nine buffers") };
    let (r, c, k) = (Dim::symbol("R"), Dim::symbol("C"), Dim::symbol("K"));
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
    let mut m = Maker { rng, kb, tiles, factors, exact, rows, cols };
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
