//! Does the schedule keep every bit of every kernel? Kernels are made at random: loads along any axes, broadcasting,
//! reductions, products, loops that carry tiles, extents bounded at run time. Each is verified, printed, read back, and run
//! unscheduled and scheduled.

use std::collections::BTreeMap;

use attnc::ir::Loc;
use attnc::ir::interp::Limits;
use attnc::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use attnc::shape::{Dim, Elem};
use attnc::syntax::span::SourceMap;
use attnc::tile::interp::{Argument, run_kernel};
use attnc::tile::{
    BufferType, CpuLevel, Extent, Kernel, KernelBuilder, Module, ParamMode, State, Type, Value, row_major, schedule,
    text, verify,
};

/// How many kernels are made.
const KERNELS: u64 = 400;

/// SplitMix64 (Steele, Lea & Flood 2014).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

const ONE: Extent = Extent::Static(1);

fn buffer(elem: Elem, shape: &[&str]) -> BufferType {
    let shape: Vec<Dim> = shape.iter().map(|s| Dim::symbol(s)).collect();
    BufferType { elem, strides: row_major(&shape), shape }
}

/// A kernel being made: what is there to work on.
struct Maker<'r> {
    rng: &'r mut Rng,
    kb: KernelBuilder,
    tiles: Vec<Value>,
    /// Loaded for products: `[rows, inner]` and `[inner, cols]`.
    factors: Option<(Value, Value)>,
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
        let v = match self.rng.below(9) {
            0 => {
                let op = self.rng.pick(&[UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Relu, UnaryOp::Tanh, UnaryOp::Sigmoid]);
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
            5 | 6 => {
                let wide: Vec<Value> = self
                    .tiles
                    .iter()
                    .copied()
                    .filter(|v| self.extents(*v).1 == self.cols && self.is(*v, Elem::F32))
                    .collect();
                let x = self.rng.pick(&wide);
                self.kb.reduce(self.rng.pick(&[ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min]), 1, x)
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
        // What was made inside is not there after the loop.
        self.tiles.truncate(inside);
    }
}

/// A kernel and the sizes of its buffers: `x[R, C]`, its transpose, a column, a row, factors of a product, two results.
fn make(rng: &mut Rng) -> Kernel {
    let mut kb = KernelBuilder::new("random");
    kb.at(Loc::default());
    let high = rng.pick(&[3i64, 4, 8]);
    let wide = rng.pick(&[4i64, 5, 16]);
    let x = kb.buffer(buffer(Elem::F32, &["R", "C"]), ParamMode::In);
    let turned = kb.buffer(buffer(Elem::F32, &["C", "R"]), ParamMode::In);
    let column = kb.buffer(buffer(Elem::BF16, &["R"]), ParamMode::In);
    let row = kb.buffer(buffer(Elem::F32, &["C"]), ParamMode::In);
    let left = kb.buffer(buffer(Elem::F32, &["R", "K"]), ParamMode::In);
    let right = kb.buffer(buffer(Elem::F32, &["K", "C"]), ParamMode::In);
    let out = kb.buffer(buffer(Elem::F32, &["R", "C"]), ParamMode::Out);
    let sums = kb.buffer(buffer(Elem::F32, &["R", "C"]), ParamMode::Out);
    let (r, c, k) = (Dim::symbol("R"), Dim::symbol("C"), Dim::symbol("K"));
    let i = kb.grid_axis(&r, high);
    let j = kb.grid_axis(&c, wide);
    let (at, to) = (kb.times(i, high), kb.times(j, wide));
    let rows = kb.extent_at(&r, at, high);
    let cols = kb.extent_at(&c, to, wide);
    let zero = kb.index(0);
    let inner = kb.extent_at(&k, zero, 32);
    let mut tiles = vec![
        kb.load(x, &[at, to], (Some(0), Some(1)), rows, cols),
        kb.load(turned, &[to, at], (Some(1), Some(0)), rows, cols),
        kb.load(column, &[at], (Some(0), None), rows, ONE),
        kb.load(row, &[to], (None, Some(0)), ONE, cols),
    ];
    let counts = kb.iota(1, to, Elem::I32, rows, cols);
    tiles.push(kb.cast(counts, Elem::F32));
    let factors = (rng.below(2) == 0).then(|| {
        let a = kb.load(left, &[at, zero], (Some(0), Some(1)), rows, inner);
        (a, kb.load(right, &[zero, to], (Some(0), Some(1)), inner, cols))
    });
    let mut m = Maker { rng, kb, tiles, factors, rows, cols };
    for _ in 0..2 + m.rng.below(3) {
        for _ in 0..m.rng.below(5) {
            m.step();
        }
        if m.rng.below(2) == 0 {
            m.round_and_round();
        }
    }
    let last: Vec<Value> =
        m.tiles.iter().copied().filter(|v| m.extents(*v) == (rows, cols) && m.is(*v, Elem::F32)).collect();
    m.kb.store(out, &[at, to], (Some(0), Some(1)), last[last.len() - 1]);
    let thin: Vec<Value> =
        m.tiles.iter().copied().filter(|v| m.extents(*v) == (rows, ONE) && m.is(*v, Elem::F32)).collect();
    if let Some(v) = thin.last() {
        m.kb.store(sums, &[at, j], (Some(0), None), *v);
    }
    m.kb.finish()
}

fn args(rng: &mut Rng, r: usize, c: usize, k: usize) -> Vec<Argument> {
    let mut floats = |n: usize| {
        let xs = (0..n).flat_map(|_| ((rng.below(401) as f32 - 200.0) / 100.0).to_le_bytes());
        Argument::Buffer(xs.collect())
    };
    let mut out = vec![floats(r * c), floats(r * c), floats(0), floats(c), floats(r * k), floats(k * c)];
    // bf16: the upper half of 1.0 and of -0.5.
    let halves = (0..r).flat_map(|i| if i % 2 == 0 { [0x80, 0x3f] } else { [0x00, 0xbf] });
    out[2] = Argument::Buffer(halves.collect());
    out.extend([floats(r * c), floats(r * c)]);
    out
}

fn verified(kernel: &Kernel, what: &str) -> String {
    let module = Module { name: "random".into(), kernels: vec![kernel.clone()], ..Module::default() };
    if let Err(e) = verify::verify(&module) {
        panic!("{what}:\n{e}");
    }
    let printed = text::print(&module);
    let mut sources = SourceMap::new();
    let file = sources.add("random.tir", printed.as_str());
    match text::parse(&printed, file) {
        Ok(p) => assert_eq!(text::print(&p.module), printed),
        Err(d) => panic!("{what}: {}", attnc::diagnostics::render_all(&d, &sources, false)),
    }
    printed
}

#[test]
fn the_schedule_keeps_every_bit() {
    for seed in 0..KERNELS {
        let mut rng = Rng(seed);
        let open = make(&mut rng);
        let before = verified(&open, &format!("kernel {seed}, unscheduled"));
        let mut scheduled = open.clone();
        if let Err(e) = schedule(&mut scheduled, CpuLevel::Portable) {
            panic!("kernel {seed}: {e}\n{before}");
        }
        assert_eq!(scheduled.state, State::Cpu(CpuLevel::Portable));
        let after = verified(&scheduled, &format!("kernel {seed}, scheduled"));
        for (r, c, k) in [(0, 3, 2), (1, 1, 0), (9, 17, 5), (7, 0, 1)] {
            let symbols: BTreeMap<String, i64> =
                [("R", r), ("C", c), ("K", k)].into_iter().map(|(s, n)| (s.to_string(), n as i64)).collect();
            let mut a = args(&mut Rng(seed), r, c, k);
            let mut b = a.clone();
            run_kernel(&open, &symbols, &mut a, Limits::default()).unwrap_or_else(|e| panic!("{seed}: {e}\n{before}"));
            run_kernel(&scheduled, &symbols, &mut b, Limits::default())
                .unwrap_or_else(|e| panic!("{seed}: {e}\n{before}\n{after}"));
            assert!(a == b, "kernel {seed} at {symbols:?} gives other bits when scheduled\n{before}\n{after}");
        }
    }
}
