//! Random well-typed programs of the graph IR, with arguments to call them with.
//!
//! In: a seed. Out: a [`Program`] and a session of calls of it; the same seed gives the same program. Operations are drawn at random and tried on
//! values that are there; what a shape rule refuses is dropped, so whatever comes out is well typed. It may still fail
//! when it runs (an empty `argmax`, an index out of range): then it must fail with an error.
//!
//! Here: programs, values, control flow; what the operations are is in `operations` and `scores`. A test program takes it in by
//! `#[path = "../common/gen_ir/mod.rs"] mod gen_ir;`.

#![allow(dead_code, reason = "each test program that takes this module in uses its own part of it")]

mod kept;
mod operations;
mod scores;

use std::collections::BTreeMap;

use attnc::ir::{
    ArgDecl, Block, BlockCall, Function, Loc, Module, Op, ParamDecl, ResultDecl, Scalar, StateDecl, Terminator, Type,
    Value, interp, result_type, verify,
};
use attnc::random::Random;
use attnc::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use attnc::shape::{Dim, Elem, TensorType};
use attnc::tensor::Tensor;

/// A program with one entry point, `main`, and calls of it.
pub(crate) struct Program {
    pub(crate) module: Module,
    /// The arguments of each call of a session, of the same shapes. There is one call where nothing is kept.
    pub(crate) calls: Vec<Vec<Tensor>>,
    pub(crate) params: BTreeMap<String, Tensor>,
    /// The values that the arguments give to the symbols.
    pub(crate) symbols: BTreeMap<String, i64>,
    /// Are all inputs finite and of moderate size? Else there are NaN, infinities, `-0.0` and very large numbers.
    pub(crate) tame: bool,
}

/// Extents that symbols take.
const EXTENTS: [i64; 10] = [0, 1, 1, 2, 3, 3, 4, 5, 5, 7];
/// Elements of the largest tensor.
const LARGEST: i64 = 2048;

struct Gen {
    rng: Random,
    f: Function,
    block: Block,
    /// Tensors that may be used here.
    scope: Vec<Value>,
    /// Indices that may be used here, each below its extent.
    indices: Vec<(Value, i64)>,
    params: Vec<ParamDecl>,
    states: Vec<StateDecl>,
    bindings: BTreeMap<String, i64>,
    /// What each length that is computed has as its value, or is at most.
    lengths: BTreeMap<String, i64>,
    /// Those that are known here.
    known: Vec<String>,
    depth: usize,
    taps: usize,
    lines: u32,
}

/// The program of a seed.
pub(crate) fn program(seed: u64) -> Program {
    let mut rng = Random::new(seed);
    let bindings = BTreeMap::from([("S".to_string(), rng.pick(&EXTENTS)), ("T".to_string(), rng.pick(&EXTENTS))]);
    let f = Function::new("main");
    let block = f.entry();
    let tame = rng.chance(70);
    let mut g = Gen {
        rng,
        f,
        block,
        scope: Vec::new(),
        indices: Vec::new(),
        params: Vec::new(),
        states: Vec::new(),
        bindings,
        lengths: BTreeMap::new(),
        known: Vec::new(),
        depth: 0,
        taps: 0,
        lines: 0,
    };
    g.arguments();
    g.declare_states();
    let length = 6 + g.rng.below(18);
    g.statements(length);
    // What other programs draw does not depend on it.
    if seed % 8 == 5 {
        let others = std::mem::replace(&mut g.rng, Random::new(seed ^ 0xd1a9));
        g.diagonals();
        g.rng = others;
    }
    g.finish();
    let decls = g.f.args.clone();
    let count = if g.states.is_empty() { 1 } else { 3 };
    let calls = (0..count).map(|_| decls.iter().map(|a| g.tensor(&a.ty, tame)).collect()).collect();
    let mut params = BTreeMap::new();
    for p in g.params.clone() {
        match p.counts.first() {
            None => {
                params.insert(p.name.clone(), g.tensor(&p.ty, tame));
            }
            Some(n) => {
                for i in 0..*n {
                    params.insert(p.name.replace('*', &i.to_string()), g.tensor(&p.ty, tame));
                }
            }
        }
    }
    let module = Module {
        name: "random.attn".into(),
        params: g.params,
        states: g.states,
        functions: vec![g.f],
        ..Module::default()
    };
    Program { module, calls, params, symbols: g.bindings, tame }
}

impl Program {
    /// The module without its taps.
    pub(crate) fn untapped(&self) -> Module {
        let mut module = self.module.clone();
        for f in &mut module.functions {
            f.remove_insts(|_, inst| matches!(inst.op, Op::Tap { .. }));
            f.tapped = false;
        }
        module
    }

    /// What the interpreter gives for the session's calls, up to the first that fails.
    pub(crate) fn interpreted<F: interp::Real>(
        &self,
        module: &Module,
        limits: interp::Limits,
    ) -> Result<Vec<interp::Outcome<F>>, interp::EvalError> {
        let verified = verify(module).unwrap_or_else(|e| panic!("{e}"));
        let mut states = interp::States::default();
        let call = |args: &Vec<Tensor>| {
            let call = interp::Call { function: "main", args, params: &self.params, limits };
            interp::run_in::<F>(verified, &call, &mut states)
        };
        self.calls.iter().map(call).collect()
    }
}

impl Gen {
    fn arguments(&mut self) {
        let (s, t) = (Dim::symbol("S"), Dim::symbol("T"));
        // The symbols are bound here, whatever the other arguments are.
        let mut types = vec![
            TensorType::new(Elem::F32, vec![s.clone(), Dim::from(4)]),
            TensorType::new(Elem::F32, vec![t.clone(), Dim::from(4)]),
        ];
        for _ in 0..1 + self.rng.below(4) {
            let elem = self.elem();
            let rank = self.rng.below(4);
            let shape = (0..rank).map(|_| self.dim()).collect::<Vec<Dim>>();
            types.push(TensorType::new(elem, shape));
        }
        for (i, ty) in types.into_iter().enumerate() {
            if self.elements(&ty).is_none() {
                continue;
            }
            let v = self.f.add_block_arg(self.block, Type::Tensor(ty.clone()));
            self.f.args.push(ArgDecl { name: format!("a{i}"), ty, batch: false });
            self.scope.push(v);
        }
    }

    fn elem(&mut self) -> Elem {
        use Elem::{BF16, Bool, F16, F32, I8, I32, I64};
        self.rng.pick(&[F32, F32, F32, F32, F32, BF16, F16, I8, I32, I32, I64, Bool])
    }

    fn dim(&mut self) -> Dim {
        let (s, t) = (Dim::symbol("S"), Dim::symbol("T"));
        match self.rng.below(10) {
            0..5 if self.rng.chance(25) && !self.known.is_empty() => Dim::symbol(&self.rng.pick(&self.known)),
            0..3 => s,
            3..5 => t,
            n => Dim::from([0, 1, 2, 3, 4][n - 5]),
        }
    }

    /// The extent of a dimension in this call, if it is one.
    fn extent(&self, d: &Dim) -> Option<i64> {
        d.eval(&|s| self.bindings.get(s).or_else(|| self.lengths.get(s)).copied()).ok().filter(|n| *n >= 0)
    }

    /// The number of elements, if it is moderate.
    fn elements(&self, ty: &TensorType) -> Option<i64> {
        ty.shape.iter().try_fold(1i64, |n, d| n.checked_mul(self.extent(d)?.max(1)).filter(|n| *n <= LARGEST))
    }

    fn loc(&mut self) -> Loc {
        self.lines += 1;
        Loc { line: self.lines, column: 1, ..Loc::default() }
    }

    /// Appends an operation if its rule allows it and its result is not too large.
    fn add(&mut self, op: Op, operands: &[Value], declared: Option<TensorType>) -> Option<Value> {
        let types: Vec<&Type> = operands.iter().map(|v| self.f.ty(*v)).collect();
        let ty = result_type(&op, &types, declared.map(Type::Tensor).as_ref()).ok()??;
        let Type::Tensor(t) = &ty else { return None };
        if t.rank() > 5 || self.elements(t).is_none() {
            return None;
        }
        let loc = self.loc();
        let v = self.f.push(self.block, op, operands.to_vec(), Some(ty), loc)?;
        self.scope.push(v);
        Some(v)
    }

    fn index(&mut self, op: Op, operands: &[Value]) -> Option<Value> {
        self.f.push(self.block, op, operands.to_vec(), Some(Type::Index), Loc::default())
    }

    fn ty(&self, v: Value) -> TensorType {
        self.f.tensor(v).cloned().expect("a tensor")
    }

    /// A value that fits, the later ones rather.
    fn some(&mut self, fits: impl Fn(&TensorType) -> bool) -> Option<Value> {
        let found: Vec<Value> = self.scope.iter().copied().filter(|v| fits(&self.ty(*v))).collect();
        if found.is_empty() {
            return None;
        }
        let late = self.rng.chance(60);
        let from = if late { found.len().saturating_sub(4) } else { 0 };
        Some(self.rng.pick(&found[from..]))
    }

    fn any(&mut self) -> Value {
        self.some(|_| true).expect("an argument")
    }

    /// A value whose type names no length that is computed.
    fn closed(&mut self) -> Value {
        let lengths = self.lengths.clone();
        self.some(|t| !t.shape.iter().any(|d| d.symbols().iter().any(|s| lengths.contains_key(&**s))))
            .expect("an argument")
    }

    fn float(&mut self) -> Value {
        self.some(|t| t.elem.is_float()).expect("a float argument")
    }

    fn literal(&mut self, elem: Elem) -> Scalar {
        match elem {
            Elem::F32 | Elem::BF16 | Elem::F16 => Scalar::Float(self.rng.pick(&[
                0.0,
                -0.0,
                1.0,
                -1.0,
                2.0,
                0.5,
                8.0,
                -3.0,
                0.125,
                1e-5,
                0.1,
                // Rounded by the smaller types, below or beyond their normal numbers.
                -0.3,
                257.0,
                1.001,
                3e-5,
                1e-40,
                70_000.0,
                f64::NEG_INFINITY,
                f64::INFINITY,
            ])),
            Elem::I8 => Scalar::Int(self.rng.pick(&[0, 1, -1, 2, 3, 7, 100, 127, -128])),
            Elem::I32 => Scalar::Int(self.rng.pick(&[0, 1, -1, 2, 3, 7, 300, -70_000, i64::from(i32::MAX)])),
            Elem::I64 => Scalar::Int(self.rng.pick(&[0, 1, -1, 2, 3, 7, 300, -70_000, 1 << 40])),
            Elem::Bool => Scalar::Bool(self.rng.chance(50)),
        }
    }

    fn number(&mut self, elem: Elem) -> Value {
        let s = self.literal(elem);
        self.constant(s, elem)
    }

    fn constant(&mut self, s: Scalar, elem: Elem) -> Value {
        self.f.push_const(self.block, s, elem, Loc::default())
    }

    /// A value or literal that meets `v` in an elementwise operation.
    fn partner(&mut self, v: Value) -> Value {
        let ty = self.ty(v);
        if self.rng.chance(30) {
            return self.number(ty.elem);
        }
        let shape = ty.shape.clone();
        self.some(|t| t.elem == ty.elem && attnc::shape::broadcast(&t.shape, &shape).is_ok()).unwrap_or(v)
    }

    fn statements(&mut self, n: usize) {
        for _ in 0..n {
            self.statement();
        }
    }

    fn statement(&mut self) {
        match self.rng.below(50) {
            32..36 => self.identity(),
            36..38 => self.projections(),
            38 => self.window(),
            39..41 => self.update(),
            41..44 => self.ordered(),
            44..46 => self.keep(),
            46..48 => self.length(),
            48 => self.windows(),
            0..3 => {
                let v = self.any();
                let op = self.rng.pick(UnaryOp::ALL);
                self.add(Op::Unary(op), &[v], None);
            }
            3..8 => {
                let a = self.any();
                let b = self.partner(a);
                let op = self.rng.pick(BinaryOp::ALL);
                let pair = if self.rng.chance(50) { [a, b] } else { [b, a] };
                // Powers of large integers are meaningless, and slow.
                self.add(Op::Binary(op), &pair, None);
            }
            8 => {
                let a = self.any();
                let b = self.partner(a);
                let op = self.rng.pick(CmpOp::ALL);
                self.add(Op::Compare(op), &[a, b], None);
            }
            9 => self.select(),
            10 => {
                let (v, elem) = (self.any(), self.elem());
                self.add(Op::Cast { elem }, &[v], None);
            }
            11..15 => self.movement(),
            15 => self.picked(),
            16..18 => self.reduction(),
            18 => {
                let x = self.float();
                if let Some(axis) = self.axis(x) {
                    let op = if self.rng.chance(80) { Op::Softmax { axis } } else { Op::LogSoftmax { axis } };
                    self.add(op, &[x], None);
                }
            }
            19..21 => self.product(),
            21..24 => self.attention(),
            24 if self.rng.chance(60) => self.attention(),
            24 => self.norm(),
            25 => self.source(),
            26 => self.parameter(),
            27 => self.tap(),
            28 if self.depth < 2 => self.turns(),
            29 if self.depth < 2 => self.branch(),
            30 => self.again(),
            _ => {
                let x = self.float();
                let op = self.rng.pick(&[UnaryOp::Gelu, UnaryOp::Tanh, UnaryOp::Neg, UnaryOp::Relu, UnaryOp::Exp]);
                self.add(Op::Unary(op), &[x], None);
            }
        }
    }

    fn tap(&mut self) {
        let v = self.closed();
        self.taps += 1;
        let mut operands = vec![v];
        operands.extend(self.indices.iter().map(|(i, _)| *i));
        let extents: Vec<Dim> = self.indices.iter().map(|(_, n)| Dim::from(*n)).collect();
        let stars = "*.".repeat(extents.len());
        let loc = self.loc();
        self.f.push(self.block, Op::Tap { name: format!("t.{stars}{}", self.taps), extents }, operands, None, loc);
        self.f.tapped = true;
    }

    /// Says something again that was said before, for `cse` to find.
    fn again(&mut self) {
        let v = self.any();
        let Some((_, inst)) = self.f.definition(v) else { return };
        let (op, operands) = (inst.op.clone(), inst.operands.clone());
        let ty = self.ty(v);
        self.add(op, &operands, Some(ty));
    }

    /// A loop that carries values.
    fn turns(&mut self) {
        let mut carried: Vec<Value> = (0..1 + self.rng.below(3)).map(|_| self.any()).collect();
        carried.extend(self.kept_before());
        let (count, limit) = if self.rng.chance(75) {
            let n = self.rng.below(4) as i64;
            (Op::Const(Scalar::Int(n)), n)
        } else if self.rng.chance(30) && !self.known.is_empty() {
            let name = self.rng.pick(&self.known);
            (Op::DimValue(Dim::symbol(&name)), self.lengths[&name])
        } else {
            (Op::DimValue(Dim::symbol("S")), self.bindings["S"])
        };
        // A loop over all rows of an argument may multiply each by a matrix from before the loop, for hoist-products to find.
        let rows = self.f.block(self.f.entry()).args.get(..2).map(<[Value]>::to_vec).unwrap_or_default();
        let over_rows = matches!(count, Op::DimValue(_)) && self.rows_of_four(&rows);
        let matrix = match rows.as_slice() {
            [_, other] if over_rows => {
                let turned = self.add(Op::Transpose { perm: vec![1, 0] }, &[*other], None);
                turned.and_then(|turned| self.add(Op::Matmul, &[turned, *other], None))
            }
            _ => None,
        };
        let zero = self.index(Op::Const(Scalar::Int(0)), &[]).expect("an index");
        let (header, body, after) = (self.f.add_block(), self.f.add_block(), self.f.add_block());
        let args = std::iter::once(zero).chain(carried.iter().copied()).collect();
        self.f.terminate(self.block, Terminator::Br(BlockCall { block: header, args }));
        let i = self.f.add_block_arg(header, Type::Index);
        let outer = self.scope.clone();
        let known = self.known.clone();
        let inside: Vec<Value> = carried
            .iter()
            .map(|v| {
                let ty = self.f.ty(*v).clone();
                self.f.add_block_arg(header, ty)
            })
            .collect();
        self.block = header;
        self.scope.extend(&inside);
        let in_header = self.scope.clone();
        let n = self.index(count, &[]).expect("an index");
        let condition = self
            .f
            .push(
                header,
                Op::Compare(CmpOp::Lt),
                vec![i, n],
                Some(Type::Tensor(TensorType::scalar(Elem::Bool))),
                Loc::default(),
            )
            .expect("a condition");
        let go = |block| BlockCall { block, args: Vec::new() };
        self.f.terminate(header, Terminator::BrIf { condition, then: go(body), otherwise: go(after) });

        self.block = body;
        self.depth += 1;
        self.indices.push((i, limit));
        if let (Some(matrix), Some(x)) = (matrix, rows.first()) {
            let row = self.add(Op::Index { axis: 0 }, &[*x, i], None);
            let row = row.and_then(|row| {
                self.add(Op::Reshape, &[row], Some(TensorType::new(Elem::F32, vec![Dim::one(), Dim::from(4)])))
            });
            if let Some(product) = row.and_then(|row| self.add(Op::Matmul, &[row, matrix], None)) {
                self.add(Op::Binary(BinaryOp::Mul), &[product, *x], None);
            }
        }
        // Exits at the beginning of the body, and in its middle.
        for length in [self.rng.below(3), 2 + self.rng.below(5)] {
            if self.rng.chance(20)
                && let Some(condition) = self.condition()
            {
                let rest = self.f.add_block();
                let (then, otherwise) = if self.rng.chance(50) { (go(rest), go(after)) } else { (go(after), go(rest)) };
                self.f.terminate(self.block, Terminator::BrIf { condition, then, otherwise });
                self.block = rest;
            }
            self.statements(length);
        }
        let next: Vec<Value> = inside
            .iter()
            .map(|v| {
                let ty = self.ty(*v);
                self.some(|t| *t == ty).unwrap_or(*v)
            })
            .collect();
        let one = self.index(Op::Const(Scalar::Int(1)), &[]).expect("an index");
        let step = self.index(Op::Binary(BinaryOp::Add), &[i, one]).expect("an index");
        let args = std::iter::once(step).chain(next).collect();
        self.f.terminate(self.block, Terminator::Br(BlockCall { block: header, args }));
        self.indices.pop();
        self.known = known;
        self.depth -= 1;

        self.block = after;
        self.scope = if self.rng.chance(80) { in_header } else { outer };
    }

    /// Are both `f32[.., 4]`, the first with a row for each S?
    fn rows_of_four(&self, rows: &[Value]) -> bool {
        let is = |v: &Value, n: &str| {
            self.f.tensor(*v) == Some(&TensorType::new(Elem::F32, vec![Dim::symbol(n), Dim::from(4)]))
        };
        matches!(rows, [x, y] if is(x, "S") && is(y, "T"))
    }

    fn condition(&mut self) -> Option<Value> {
        let v = match self.rng.below(4) {
            0 => {
                let (a, b) = (
                    self.index(Op::DimValue(Dim::symbol("S")), &[])?,
                    self.index(Op::DimValue(Dim::symbol("T")), &[])?,
                );
                let ty = Some(Type::Tensor(TensorType::scalar(Elem::Bool)));
                self.f.push(self.block, Op::Compare(CmpOp::Lt), vec![a, b], ty, Loc::default())?
            }
            1 => self.number(Elem::Bool),
            _ => {
                let x = self.some(|t| t.elem == Elem::Bool && t.rank() > 0)?;
                let axes = (0..self.ty(x).rank()).collect();
                self.add(Op::Reduce { kind: ReduceKind::Any, axes, keep: false }, &[x], None)?
            }
        };
        Some(v)
    }

    fn branch(&mut self) {
        let Some(condition) = self.condition() else { return };
        let types: Vec<TensorType> = (0..1 + self.rng.below(2))
            .map(|_| {
                let v = self.any();
                self.ty(v)
            })
            .collect();
        let (then, otherwise, join) = (self.f.add_block(), self.f.add_block(), self.f.add_block());
        let go = |block| BlockCall { block, args: Vec::new() };
        self.f.terminate(self.block, Terminator::BrIf { condition, then: go(then), otherwise: go(otherwise) });
        let outer = self.scope.clone();
        let known = self.known.clone();
        for side in [then, otherwise] {
            self.block = side;
            self.scope = outer.clone();
            self.known.clone_from(&known);
            self.depth += 1;
            let length = self.rng.below(5);
            self.statements(length);
            self.depth -= 1;
            let args = types.iter().map(|ty| self.some(|t| t == ty).expect("one was there")).collect();
            self.f.terminate(self.block, Terminator::Br(BlockCall { block: join, args }));
        }
        self.block = join;
        self.scope = outer;
        self.known = known;
        for ty in types {
            let v = self.f.add_block_arg(join, Type::Tensor(ty));
            self.scope.push(v);
        }
    }

    fn finish(&mut self) {
        // Many, since only results are compared.
        let results: Vec<Value> = (0..2 + self.rng.below(9)).map(|_| self.closed()).collect();
        self.f.results = results.iter().map(|v| ResultDecl { ty: self.ty(*v), batch: false }).collect();
        self.f.terminate(self.block, Terminator::Return(results));
    }

    /// A tensor for an argument or a parameter.
    fn tensor(&mut self, ty: &TensorType, tame: bool) -> Tensor {
        let shape: Vec<usize> = ty.shape.iter().map(|d| self.extent(d).unwrap_or(0) as usize).collect();
        let n: usize = shape.iter().product();
        if ty.elem.is_float() {
            let values: Vec<f64> = (0..n).map(|_| self.element(tame)).collect();
            return Tensor::from_floats(ty.elem, shape, &values).expect("a tensor");
        }
        let values: Vec<i64> = (0..n)
            .map(|_| match ty.elem {
                Elem::Bool => self.rng.below(2) as i64,
                _ if !tame && self.rng.chance(20) => self.rng.pick(&[127, -128, 300, -70_000, 1 << 30]),
                _ => self.rng.below(12) as i64 - 3,
            })
            .collect();
        Tensor::from_ints(ty.elem, shape, &values).expect("a tensor")
    }

    fn element(&mut self, tame: bool) -> f64 {
        if !tame && self.rng.chance(12) {
            return self.rng.pick(&[
                0.0,
                -0.0,
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                1e30,
                -1e30,
                1e-40,
                65504.0,
            ]);
        }
        if self.rng.chance(6) {
            return self.rng.pick(&[0.0, -0.0, 1.0]);
        }
        (self.rng.word() >> 40) as f64 / f64::from(1 << 22) - 2.0
    }
}
