//! What a statement may be: one operation, or several that belong together (a product, projections; attention is in
//! `scores`), on values that are there.
//!
//! In: a generator at a block. Out: the same with more values in scope, or with none where a shape rule refuses.

use attnc::ir::{Loc, Op, ParamDecl, Scalar, Type, Value};
use attnc::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use attnc::shape::{Dim, Elem, TensorType};

use super::Gen;

impl Gen {
    pub(super) fn axis(&mut self, v: Value) -> Option<usize> {
        match self.ty(v).rank() {
            0 => None,
            // The last one most often.
            n if self.rng.chance(60) => Some(n - 1),
            n => Some(self.rng.below(n)),
        }
    }

    /// Something that is, or is not quite, what it was: what identities are made for.
    pub(super) fn identity(&mut self) {
        let v = self.any();
        let ty = self.ty(v);
        match self.rng.below(6) {
            0 => {
                let op = self.rng.pick(&[CmpOp::Eq, CmpOp::Ne, CmpOp::Lt, CmpOp::Le, CmpOp::Gt, CmpOp::Ge]);
                self.add(Op::Compare(op), &[v, v], None);
            }
            1 => {
                let op = self.rng.pick(BinaryOp::ALL);
                self.add(Op::Binary(op), &[v, v], None);
            }
            2 => {
                let op = self.rng.pick(&[UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Relu, UnaryOp::Floor, UnaryOp::Not]);
                let w = self.add(Op::Unary(op), &[v], None).unwrap_or(v);
                let op = self.rng.pick(&[op, UnaryOp::Neg, UnaryOp::Abs]);
                self.add(Op::Unary(op), &[w], None);
            }
            3 => {
                let elem = self.elem();
                let w = self.add(Op::Cast { elem }, &[v], None).unwrap_or(v);
                self.add(Op::Cast { elem: ty.elem }, &[w], None);
            }
            _ => {
                let op = self.rng.pick(BinaryOp::ALL);
                let c = match ty.elem {
                    Elem::F32 | Elem::BF16 | Elem::F16 => {
                        let x = match op {
                            BinaryOp::Add | BinaryOp::Sub => self.rng.pick(&[0.0, -0.0]),
                            BinaryOp::Max | BinaryOp::Min => self.rng.pick(&[0.0, f64::INFINITY, f64::NEG_INFINITY]),
                            _ => self.rng.pick(&[1.0, -1.0, 2.0, 0.5, 4.0, 0.0, 1e-38]),
                        };
                        Scalar::Float(x)
                    }
                    Elem::I8 | Elem::I32 | Elem::I64 => Scalar::Int(self.rng.pick(&[0, 1, -1])),
                    Elem::Bool => Scalar::Bool(self.rng.chance(50)),
                };
                let c = self.constant(c, ty.elem);
                let pair = if self.rng.chance(70) { [v, c] } else { [c, v] };
                self.add(Op::Binary(op), &pair, None);
            }
        }
    }

    pub(super) fn select(&mut self) {
        let a = self.any();
        let b = self.partner(a);
        let shape = self.ty(a).shape;
        let fits = |t: &TensorType| t.elem == Elem::Bool && attnc::shape::broadcast(&t.shape, &shape).is_ok();
        let c = match self.some(fits) {
            Some(c) => c,
            None if self.rng.chance(20) => self.number(Elem::Bool),
            None => match self.add(Op::Compare(CmpOp::Le), &[a, b], None) {
                Some(c) => c,
                None => return,
            },
        };
        self.add(Op::Where, &[c, a, b], None);
    }

    pub(super) fn movement(&mut self) {
        let v = self.any();
        let ty = self.ty(v);
        match self.rng.below(10) {
            8 | 9 => self.recut(v),
            0 => {
                // Flat, with axes of 1 added or removed, or with the shape of another value.
                let mut shape = match self.rng.below(3) {
                    0 => vec![ty.count()],
                    1 => ty.shape.iter().filter(|d| d.as_const() != Some(1)).cloned().collect(),
                    _ => ty.shape.clone(),
                };
                if self.rng.chance(50) {
                    let at = self.rng.below(shape.len() + 1);
                    shape.insert(at, Dim::one());
                }
                self.add(Op::Reshape, &[v], Some(TensorType::new(ty.elem, shape)));
            }
            1 => {
                let other = self.some(|t| t.elem == ty.elem && t.count() == ty.count()).unwrap_or(v);
                let shape = self.ty(other).shape;
                self.add(Op::Reshape, &[v], Some(TensorType::new(ty.elem, shape)));
            }
            2 | 3 => {
                let mut perm: Vec<usize> = (0..ty.rank()).collect();
                for i in (1..perm.len()).rev() {
                    perm.swap(i, self.rng.below(i + 1));
                }
                self.add(Op::Transpose { perm }, &[v], None);
            }
            4 => {
                let mut shape = ty.shape.clone();
                for d in shape.iter_mut().filter(|d| d.as_const() == Some(1)) {
                    *d = Dim::from(3);
                }
                if self.rng.chance(60) {
                    let d = self.dim();
                    shape.insert(0, d);
                }
                self.add(Op::Broadcast, &[v], Some(TensorType::new(ty.elem, shape)));
            }
            5 => {
                self.slice(v);
            }
            6 => {
                let Some(axis) = self.axis(v) else { return };
                let other = self.some(|t| t.elem == ty.elem && t.rank() == ty.rank()).unwrap_or(v);
                let parts = if self.rng.chance(20) { vec![v] } else { vec![v, other] };
                if self.add(Op::Concat { axis }, &parts, None).is_none() {
                    self.add(Op::Concat { axis }, &[v, v], None);
                }
            }
            _ => {
                let Some(axis) = self.axis(v) else { return };
                let value = self.number(ty.elem);
                let (low, high) = (Dim::from(self.rng.below(3) as i64), Dim::from(self.rng.below(2) as i64));
                self.add(Op::Pad { axis, low, high }, &[v, value], None);
            }
        }
    }

    /// Axes joined with their neighbours, and parted otherwise: `[S, 4, 3]` as `[2*S, 6]`. Often of a view: what is transposed,
    /// or a part.
    fn recut(&mut self, v: Value) {
        let v = match self.rng.below(4) {
            0 => self.transposed(v).unwrap_or(v),
            1 => self.slice(v).unwrap_or(v),
            _ => v,
        };
        let ty = self.ty(v);
        // Symbols first or last in a joined axis, and the remaining factors spread over some axes.
        let (mut shape, mut known): (Vec<Dim>, i64) = (Vec::new(), 1);
        let mut joined = Dim::one();
        for d in &ty.shape {
            match d.as_const() {
                Some(n) if self.rng.chance(50) => known = known.saturating_mul(n),
                _ if self.rng.chance(50) => joined = joined.mul(d),
                _ => {
                    shape.push(joined.mul(d));
                    joined = Dim::one();
                }
            }
        }
        shape.push(joined);
        while known > 1 {
            let Some(p) = (2..=known).find(|p| known % p == 0) else { break };
            known /= p;
            let at = self.rng.below(shape.len() + 1);
            match shape.get_mut(at) {
                Some(d) if self.rng.chance(60) => *d = d.mul(&Dim::from(p)),
                _ => shape.insert(at.min(shape.len()), Dim::from(p)),
            }
        }
        if known == 0 {
            shape.push(Dim::zero());
        }
        self.add(Op::Reshape, &[v], Some(TensorType::new(ty.elem, shape)));
    }

    fn slice(&mut self, v: Value) -> Option<Value> {
        let axis = self.axis(v)?;
        let d = self.ty(v).shape[axis].clone();
        let (start, stop) = match d.as_const() {
            Some(n) => {
                let a = self.rng.below(n as usize + 1) as i64;
                (a, Dim::from(a + self.rng.below((n - a) as usize + 1) as i64))
            }
            None if self.rng.chance(25) => (0, d.sub(&Dim::one())),
            None => (self.rng.pick(&[0, 0, 0, 1]), d),
        };
        self.add(Op::Slice { axis, start: Dim::from(start), stop }, &[v], None)
    }

    /// `index` and `gather`, mostly in range.
    pub(super) fn picked(&mut self) {
        let v = self.any();
        let Some(axis) = self.axis(v) else { return };
        let d = self.ty(v).shape[axis].clone();
        let n = self.extent(&d).unwrap_or(0);
        if self.rng.chance(50) {
            let at = match self.rng.below(3) {
                0 => self.rng_index(n),
                1 => self.f.push(
                    self.block,
                    Op::Const(Scalar::Int(self.rng.below(n.max(1) as usize) as i64)),
                    vec![],
                    Some(Type::Index),
                    Loc::default(),
                ),
                _ => Some(self.constant(Scalar::Int(0), Elem::I32)),
            };
            if let Some(at) = at {
                self.add(Op::Index { axis }, &[v, at], None);
            }
            return;
        }
        let Some(at) = self.some(|t| matches!(t.elem, Elem::I32 | Elem::I64) && t.rank() <= 2) else { return };
        let elem = self.ty(at).elem;
        let Some(extent) = self.add(Op::DimValue(d), &[], Some(TensorType::scalar(elem))) else { return };
        if let Some(at) = self.add(Op::Binary(BinaryOp::Rem), &[at, extent], None) {
            self.add(Op::Gather { axis, batch: 0 }, &[v, at], None);
        }
    }

    /// A table read at row minus column, or in one of two ways by which is the larger.
    pub(super) fn diagonals(&mut self) {
        let is_some = |d: &Dim| d.as_const().is_some_and(|n| n > 0);
        let Some(table) = self.some(|t| t.shape.iter().any(is_some)) else { return };
        let shape = self.ty(table).shape;
        let axes: Vec<usize> = (0..shape.len()).filter(|a| is_some(&shape[*a])).collect();
        let axis = self.rng.pick(&axes);
        let entries = shape[axis].as_const().unwrap_or(1);
        let elem = self.rng.pick(&[Elem::I32, Elem::I32, Elem::I64]);
        let [rows, columns] = [0, 1].map(|_| Dim::symbol(self.rng.pick(&["S", "T"])));
        let column = TensorType::new(elem, vec![rows, Dim::one()]);
        let counters = [column, TensorType::new(elem, vec![columns])];
        let counters = counters.map(|ty| self.add(Op::Iota { axis: 0 }, &[], Some(ty)));
        let [Some(i), Some(j)] = counters else { return };
        let pair = if self.rng.chance(50) { [i, j] } else { [j, i] };
        let Some(mut at) = self.add(Op::Binary(BinaryOp::Sub), &pair, None) else { return };
        if self.rng.chance(60) {
            let numbers = [self.rng.below(5) as i64 - 2, self.rng.below(9) as i64];
            let [by, other] = numbers.map(|n| self.constant(Scalar::Int(n), elem));
            let op = self.rng.pick(CmpOp::ALL);
            let Some(moved) = self.add(Op::Binary(BinaryOp::Add), &[i, by], None) else { return };
            let Some(which) = self.add(Op::Compare(op), &[moved, j], None) else { return };
            let Some(chosen) = self.add(Op::Where, &[which, other, at], None) else { return };
            at = chosen;
        }
        let entries = self.constant(Scalar::Int(entries), elem);
        if let Some(at) = self.add(Op::Binary(BinaryOp::Rem), &[at, entries], None) {
            self.add(Op::Gather { axis, batch: 0 }, &[table, at], None);
        }
    }

    /// Running sums, sorted lines and scattered slices.
    pub(super) fn ordered(&mut self) {
        let v = self.any();
        let Some(axis) = self.axis(v) else { return };
        let ty = self.ty(v);
        let extent = ty.shape[axis].clone();
        match self.rng.below(4) {
            0 => {
                self.add(Op::Cumsum { axis }, &[v], None);
            }
            1 | 2 => {
                let n = self.extent(&extent).unwrap_or(0);
                let first = match self.rng.below(3) {
                    0 => Dim::from(self.rng.below(n as usize + 1) as i64),
                    _ => extent,
                };
                let descending = self.rng.chance(50);
                let Some(places) = self.add(Op::Argsort { axis, descending, first }, &[v], None) else { return };
                // Of the last axis, the elements in order.
                if axis + 1 == ty.rank() {
                    self.add(Op::Gather { axis, batch: axis }, &[v, places], None);
                }
            }
            _ => {
                let Some(at) = self.some(|t| matches!(t.elem, Elem::I32 | Elem::I64) && t.rank() == 1) else { return };
                let count = self.ty(at).shape[0].clone();
                let elem = self.ty(at).elem;
                let Some(n) = self.add(Op::DimValue(extent), &[], Some(TensorType::scalar(elem))) else { return };
                let Some(at) = self.add(Op::Binary(BinaryOp::Rem), &[at, n], None) else { return };
                let mut shape = ty.shape.clone();
                shape[axis] = count;
                let given = TensorType::new(ty.elem, shape);
                let value = match self.some(|t| *t == given) {
                    Some(value) => value,
                    None => {
                        let number = self.number(ty.elem);
                        let Some(value) = self.add(Op::Broadcast, &[number], Some(given)) else { return };
                        value
                    }
                };
                let add = self.rng.chance(50);
                self.add(Op::Scatter { axis, add }, &[v, at, value], None);
            }
        }
    }

    /// Some axes of a tensor, the extents of a window, and where it begins: mostly in range.
    fn window_of(&mut self, v: Value) -> Option<(Vec<usize>, Vec<Dim>, Vec<Value>)> {
        let ty = self.ty(v);
        let axes: Vec<usize> = (0..ty.rank()).filter(|_| self.rng.chance(60)).collect();
        if axes.is_empty() {
            return None;
        }
        let (mut shape, mut starts) = (ty.shape.clone(), Vec::new());
        for axis in &axes {
            let n = self.extent(&ty.shape[*axis])?;
            let length = match self.rng.below(4) {
                0 | 1 => n.min(1),
                2 => self.rng.below(n as usize + 1) as i64,
                _ => n,
            };
            // The whole axis by its name, another length by its number.
            if length != n || self.rng.chance(50) {
                shape[*axis] = Dim::from(length);
            }
            let most = n - length + i64::from(self.rng.chance(5));
            let looped = if length == 1 { self.rng_index(n) } else { None };
            let number = Scalar::Int(self.rng.below(most as usize + 1) as i64);
            starts.push(match (looped, self.rng.below(3)) {
                (Some(i), 0 | 1) => i,
                (_, 0) => self.constant(number, Elem::I64),
                (_, 1) => self.constant(number, Elem::I32),
                _ => self.index(Op::Const(number), &[])?,
            });
        }
        Some((axes, shape, starts))
    }

    /// A window of a tensor.
    pub(super) fn window(&mut self) {
        let v = self.any();
        if let Some((axes, shape, starts)) = self.window_of(v) {
            let elem = self.ty(v).elem;
            let operands: Vec<Value> = [v].into_iter().chain(starts).collect();
            self.add(Op::Extract { axes }, &operands, Some(TensorType::new(elem, shape)));
        }
    }

    /// A tensor with a window replaced, by a value that is there, part of the tensor itself, or a literal.
    pub(super) fn update(&mut self) {
        let v = self.any();
        let Some((axes, shape, starts)) = self.window_of(v) else { return };
        let ty = TensorType::new(self.ty(v).elem, shape);
        let value = match self.rng.below(3) {
            0 => {
                let operands: Vec<Value> = [v].into_iter().chain(starts.iter().copied()).collect();
                self.add(Op::Extract { axes: axes.clone() }, &operands, Some(ty.clone()))
            }
            1 => {
                let same = ty.clone();
                self.some(|t| *t == same)
            }
            _ => None,
        };
        let value = match value {
            Some(value) => Some(value),
            None => {
                let literal = self.literal(ty.elem);
                self.add(Op::Const(literal), &[], Some(ty))
            }
        };
        if let Some(value) = value {
            let operands: Vec<Value> = [v, value].into_iter().chain(starts).collect();
            self.add(Op::Update { axes }, &operands, None);
        }
    }

    /// An index of a loop that stays below `n`, if there is one.
    fn rng_index(&mut self, n: i64) -> Option<Value> {
        let found: Vec<Value> = self.indices.iter().filter(|(_, limit)| *limit <= n).map(|(v, _)| *v).collect();
        if found.is_empty() { None } else { Some(self.rng.pick(&found)) }
    }

    pub(super) fn reduction(&mut self) {
        let x = self.any();
        let Some(axis) = self.axis(x) else { return };
        let kind = self.rng.pick(ReduceKind::ALL);
        let mut axes = vec![axis];
        if self.rng.chance(25) && kind != ReduceKind::ArgMax {
            axes = (0..self.ty(x).rank()).collect();
        }
        let keep = self.rng.chance(60);
        self.add(Op::Reduce { kind, axes, keep }, &[x], None);
    }

    pub(super) fn transposed(&mut self, v: Value) -> Option<Value> {
        let rank = self.ty(v).rank();
        let mut perm: Vec<usize> = (0..rank).collect();
        perm.swap(rank.checked_sub(2)?, rank - 1);
        self.add(Op::Transpose { perm }, &[v], None)
    }

    pub(super) fn product(&mut self) {
        let Some(a) = self.some(|t| t.rank() >= 2 && t.elem != Elem::Bool) else { return };
        let ty = self.ty(a);
        let inner = ty.shape[ty.rank() - 1].clone();
        let direct = self.some(|t| t.rank() >= 2 && t.elem == ty.elem && t.shape[t.rank() - 2] == inner);
        if let Some(b) = direct
            && self.add(Op::Matmul, &[a, b], None).is_some()
        {
            return;
        }
        let turned = self.some(|t| t.rank() >= 2 && t.elem == ty.elem && t.shape[t.rank() - 1] == inner).unwrap_or(a);
        if let Some(b) = self.transposed(turned) {
            let y = self.add(Op::Matmul, &[a, b], None);
            // Often with something after it.
            if let Some(y) = y
                && self.rng.chance(60)
            {
                let bias = self.partner(y);
                let y = self.add(Op::Binary(BinaryOp::Add), &[y, bias], None).unwrap_or(y);
                self.add(Op::Unary(UnaryOp::Gelu), &[y], None);
            }
        }
    }

    pub(super) fn norm(&mut self) {
        let x = self.float();
        let ty = self.ty(x);
        let Some(axis) = ty.rank().checked_sub(1) else { return };
        let mean = Op::Reduce { kind: ReduceKind::Mean, axes: vec![axis], keep: true };
        let Some(m) = self.add(mean.clone(), &[x], None) else { return };
        let Some(c) = self.add(Op::Binary(BinaryOp::Sub), &[x, m], None) else { return };
        let Some(sq) = self.add(Op::Binary(BinaryOp::Mul), &[c, c], None) else { return };
        let Some(var) = self.add(mean, &[sq], None) else { return };
        let eps = self.constant(Scalar::Float(1e-5), ty.elem);
        let Some(var) = self.add(Op::Binary(BinaryOp::Add), &[var, eps], None) else { return };
        let Some(r) = self.add(Op::Unary(UnaryOp::Rsqrt), &[var], None) else { return };
        self.add(Op::Binary(BinaryOp::Mul), &[c, r], None);
    }

    pub(super) fn source(&mut self) {
        let elem = self.elem();
        let rank = 1 + self.rng.below(2);
        let shape: Vec<Dim> = (0..rank).map(|_| self.dim()).collect();
        let ty = TensorType::new(elem, shape);
        match self.rng.below(4) {
            0 => {
                let axis = self.rng.below(rank);
                self.add(Op::Iota { axis }, &[], Some(ty));
            }
            1 => {
                let s = self.literal(elem);
                self.add(Op::Const(s), &[], Some(ty));
            }
            2 => {
                let d = self.dim();
                self.add(Op::DimValue(d), &[], Some(TensorType::scalar(elem)));
            }
            _ => {
                self.add(Op::Causal, &[], Some(ty.with_elem(Elem::Bool)));
            }
        }
    }

    pub(super) fn parameter(&mut self) {
        let loops: Vec<(Value, i64)> = self.indices.iter().copied().filter(|(_, n)| *n > 0).collect();
        let n = self.params.len();
        // A parameter's type has no symbols.
        let fixed = [0i64, 1, 2, 3, 4];
        let shape: Vec<Dim> = (0..1 + self.rng.below(2)).map(|_| Dim::from(self.rng.pick(&fixed))).collect();
        let shape = if self.rng.chance(60) { vec![Dim::from(4), Dim::from(4)] } else { shape };
        let elem = if self.rng.chance(80) { Elem::F32 } else { self.elem() };
        let ty = TensorType::new(elem, shape);
        if let (true, Some((i, limit))) = (self.rng.chance(70), loops.last()) {
            let name = format!("h.*.p{n}");
            let counts = vec![u64::try_from(*limit).unwrap_or(1)];
            self.params.push(ParamDecl { name: name.clone(), counts, ty: ty.clone() });
            self.add(Op::Param { name }, &[*i], Some(ty));
            return;
        }
        // Sometimes reads again what was read before.
        let known: Vec<ParamDecl> = self.params.iter().filter(|p| p.counts.is_empty()).cloned().collect();
        if !known.is_empty() && self.rng.chance(40) {
            let p = self.rng.pick(&known);
            self.add(Op::Param { name: p.name }, &[], Some(p.ty));
            return;
        }
        let name = format!("p{n}");
        self.params.push(ParamDecl { name: name.clone(), counts: Vec::new(), ty: ty.clone() });
        self.add(Op::Param { name }, &[], Some(ty));
    }

    /// Products of one value by parameters, with biases or without, as queries, keys and values are made.
    pub(super) fn projections(&mut self) {
        let Some(x) = self.some(|t| t.rank() >= 2 && matches!(t.elem, Elem::F32 | Elem::BF16)) else { return };
        let ty = self.ty(x);
        let Some(k) = ty.shape.last().and_then(Dim::as_const) else { return };
        let biased = self.rng.chance(50);
        let layer = self.indices.last().copied().filter(|(_, n)| *n > 0 && self.rng.chance(60));
        // Of the layer of the loop, of the first layer, or of no layer.
        let parameter = |g: &mut Gen, shape: Vec<i64>| {
            let ty = TensorType::new(ty.elem, shape.into_iter().map(Dim::from).collect::<Vec<Dim>>());
            let layer = match layer {
                Some((_, n)) if g.rng.chance(12) => g.index(Op::Const(Scalar::Int(0)), &[]).map(|zero| (zero, n)),
                _ if g.rng.chance(8) => None,
                _ => layer,
            };
            let (name, indices, counts) = match layer {
                Some((i, n)) => (format!("h.*.p{}", g.params.len()), vec![i], vec![u64::try_from(n).unwrap_or(1)]),
                None => (format!("p{}", g.params.len()), Vec::new(), Vec::new()),
            };
            g.params.push(ParamDecl { name: name.clone(), counts, ty: ty.clone() });
            g.add(Op::Param { name }, &indices, Some(ty))
        };
        // Of 32 columns most often, which fill panels and so may be merged, or of a few.
        let width = match self.rng.below(3) {
            0 => 2 + self.rng.below(2) as i64,
            _ => 32,
        };
        let mut made = Vec::new();
        for _ in 0..2 + self.rng.below(4) {
            let n = if self.rng.chance(70) { width } else { 1 + self.rng.below(4) as i64 };
            let turned = self.rng.chance(30);
            let weight = parameter(self, if turned { vec![n, k] } else { vec![k, n] });
            let weight = if turned { weight.and_then(|w| self.transposed(w)) } else { weight };
            let Some(mut y) = weight.and_then(|w| self.add(Op::Matmul, &[x, w], None)) else { return };
            if biased != self.rng.chance(10)
                && let Some(b) = parameter(self, vec![n])
            {
                let pair = if self.rng.chance(70) { [y, b] } else { [b, y] };
                y = self.add(Op::Binary(BinaryOp::Add), &pair, None).unwrap_or(y);
            }
            match self.rng.below(6) {
                0 => {
                    self.add(Op::Unary(UnaryOp::Gelu), &[y], None);
                }
                1 => self.tap(),
                _ => {}
            }
            made.push(y);
        }
        if let [q, .., k] = made.as_slice()
            && let Some(keys) = self.transposed(*k)
        {
            self.add(Op::Matmul, &[*q, keys], None);
        }
        // Each is observed, so that no two may share memory.
        for (y, c) in made.into_iter().zip([2.0, 3.0, 5.0, 7.0, 11.0]) {
            let c = self.constant(Scalar::Float(c), ty.elem);
            if let Some(y) = self.add(Op::Binary(BinaryOp::Mul), &[y, c], None)
                && let Some(axis) = self.axis(y)
            {
                self.add(Op::Reduce { kind: ReduceKind::Max, axes: vec![axis], keep: false }, &[y], None);
            }
        }
    }
}
