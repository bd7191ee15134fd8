//! Attention and what is nearly attention: scales and masks in any number and order, fills that are finite, masks of counters,
//! softmax written by hand, heads that share keys, parts in blocks of their own.
//!
//! In: a generator at a block. Out: the same with more values in scope, or with none where a shape rule refuses.

use attnc::ir::{MaskKind, Op, Scalar, Value};
use attnc::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use attnc::shape::{Dim, Elem, TensorType};

use super::Gen;

impl Gen {
    /// Something that looks like attention, now and then written otherwise.
    pub(super) fn attention(&mut self) {
        let Some((q, k, v)) = self.operands() else { return };
        let (qt, t) = (self.ty(q), self.ty(k).shape);
        let Some(t) = t.len().checked_sub(2).map(|at| t[at].clone()) else { return };
        if self.rng.chance(15) {
            self.fused(&qt, &t, [q, k, v]);
            return;
        }
        let scale = self.number_of(&[0.5, 0.125, 0.3, 2.0, -0.5], qt.elem);
        let op = self.rng.pick(&[BinaryOp::Mul, BinaryOp::Mul, BinaryOp::Div]);
        let q = if self.rng.chance(30) { self.add(Op::Binary(op), &[q, scale], None).unwrap_or(q) } else { q };
        let Some(keys) = self.transposed(k) else { return };
        // Sometimes with operands exchanged, `(k @ q.T).T`.
        let product = if self.rng.chance(10) {
            let queries = self.transposed(q);
            let turned = queries.and_then(|queries| self.add(Op::Matmul, &[k, queries], None));
            turned.and_then(|y| self.transposed(y))
        } else {
            self.add(Op::Matmul, &[q, keys], None)
        };
        let Some(mut x) = product else { return };
        for _ in 0..self.rng.below(5) {
            x = self.score_step(x, &qt, &t).unwrap_or(x);
        }
        self.between();
        let rank = self.ty(x).rank();
        let axis = if self.rng.chance(90) { rank - 1 } else { rank - 2 };
        let weights =
            if self.rng.chance(25) { self.by_hand(x, axis) } else { self.add(Op::Softmax { axis }, &[x], None) };
        let Some(w) = weights else { return };
        if self.rng.chance(10) {
            self.tap();
        }
        if self.rng.chance(10) {
            // Others use what is inside.
            let inside = self.rng.pick(&[x, w]);
            self.add(Op::Unary(UnaryOp::Tanh), &[inside], None);
        }
        self.between();
        self.add(Op::Matmul, &[w, v], None);
    }

    /// The same as one operation.
    fn fused(&mut self, q: &TensorType, t: &Dim, operands: [Value; 3]) {
        let scale = self.number_of(&[0.25, 0.3, -1.0], Elem::F32);
        let (mut masks, mut operands) = (Vec::new(), [&operands[..], &[scale]].concat());
        for _ in 0..self.rng.below(3) {
            match self.rng.below(3) {
                0 => masks.push(MaskKind::Causal),
                1 => {
                    let Some(mask) = self.additive(q, t) else { continue };
                    masks.push(MaskKind::Add);
                    operands.push(mask);
                }
                _ => {
                    let Some(mask) = self.mask(q, t) else { continue };
                    let fill = self.fill();
                    masks.push(MaskKind::Keep);
                    operands.extend([mask, self.constant(Scalar::Float(fill), q.elem)]);
                }
            }
        }
        self.add(Op::Attention { masks }, &operands, None);
    }

    /// Queries, keys and values; now and then with heads, whose keys are those of fewer heads.
    fn operands(&mut self) -> Option<(Value, Value, Value)> {
        let q = self.some(|t| t.rank() >= 2 && t.rank() <= 4 && t.elem.is_float())?;
        let qt = self.ty(q);
        let d = qt.shape[qt.rank() - 1].clone();
        let k = self.some(|t| t.rank() >= 2 && t.elem == qt.elem && t.shape[t.rank() - 1] == d).unwrap_or(q);
        if self.rng.chance(15) && qt.rank() == 2 && self.ty(k).rank() == 2 {
            let (groups, repeats) = (1 + self.rng.below(2) as i64, 2);
            let q = self.heads(q, &[groups * repeats])?;
            let k = self.heads(k, &[groups])?;
            let keys = self.repeated(k, groups, repeats)?;
            let v = if self.rng.chance(50) { keys } else { self.repeated(k, groups, repeats)? };
            return Some((q, keys, v));
        }
        let kt = self.ty(k);
        let t = kt.shape[kt.rank() - 2].clone();
        let v = self.some(|x| x.rank() >= 2 && x.elem == qt.elem && x.shape[x.rank() - 2] == t).unwrap_or(k);
        Some((q, k, v))
    }

    /// `x` once for each head, each time another: `x * (1, 2, ..)`.
    fn heads(&mut self, x: Value, heads: &[i64]) -> Option<Value> {
        let ty = self.ty(x);
        let axes = |last: usize| heads.iter().map(|n| Dim::from(*n)).chain((0..last).map(|_| Dim::one()));
        let counts = TensorType::new(Elem::F32, heads.iter().map(|n| Dim::from(*n)).collect::<Vec<Dim>>());
        let counts = self.add(Op::Iota { axis: 0 }, &[], Some(counts))?;
        let one = self.constant(Scalar::Float(0.5), Elem::F32);
        let counts = self.add(Op::Binary(BinaryOp::Add), &[counts, one], None)?;
        let counts = self.add(Op::Cast { elem: ty.elem }, &[counts], None).unwrap_or(counts);
        let shape: Vec<Dim> = axes(ty.rank()).collect();
        let counts = self.add(Op::Reshape, &[counts], Some(TensorType::new(ty.elem, shape)))?;
        self.add(Op::Binary(BinaryOp::Mul), &[x, counts], None)
    }

    /// Each of `groups` heads `repeats` times, as keys of grouped queries are.
    fn repeated(&mut self, k: Value, groups: i64, repeats: i64) -> Option<Value> {
        let ty = self.ty(k);
        let own = ty.shape[1..].to_vec();
        let with = |lead: &[i64]| {
            let lead = lead.iter().map(|n| Dim::from(*n));
            TensorType::new(ty.elem, lead.chain(own.iter().cloned()).collect::<Vec<Dim>>())
        };
        let apart = self.add(Op::Reshape, &[k], Some(with(&[groups, 1])))?;
        let many = self.add(Op::Broadcast, &[apart], Some(with(&[groups, repeats])))?;
        // In order of the groups, or, which differs, with all groups repeated.
        let many = if self.rng.chance(20) {
            let perm = [1, 0].into_iter().chain(2..ty.rank() + 1).collect();
            self.add(Op::Transpose { perm }, &[many], None)?
        } else {
            many
        };
        self.add(Op::Reshape, &[many], Some(with(&[groups * repeats])))
    }

    /// Something between two parts of attention: most often nothing, else a branch, or a loop.
    fn between(&mut self) {
        if self.depth < 2 && self.rng.chance(6) {
            if self.rng.chance(50) { self.branch() } else { self.turns() }
        }
    }

    /// Softmax as it is written out, or nearly: exp(x - max(x)) / sum(exp(x - max(x))).
    fn by_hand(&mut self, x: Value, axis: usize) -> Option<Value> {
        let other = if self.rng.chance(90) { axis } else { self.axis(x)? };
        let kind = if self.rng.chance(90) { ReduceKind::Max } else { ReduceKind::Min };
        let of = if self.rng.chance(93) { x } else { self.add(Op::Unary(UnaryOp::Neg), &[x], None)? };
        let most = self.add(Op::Reduce { kind, axes: vec![axis], keep: true }, &[of], None)?;
        let centred = self.add(Op::Binary(BinaryOp::Sub), &[x, most], None)?;
        let e = self.add(Op::Unary(UnaryOp::Exp), &[centred], None)?;
        let kind = if self.rng.chance(90) { ReduceKind::Sum } else { ReduceKind::Mean };
        let of = if self.rng.chance(93) { e } else { self.add(Op::Binary(BinaryOp::Mul), &[e, e], None)? };
        let sum = self.add(Op::Reduce { kind, axes: vec![other], keep: true }, &[of], None)?;
        self.add(Op::Binary(BinaryOp::Div), &[e, sum], None)
    }

    fn number_of(&mut self, list: &[f64], elem: Elem) -> Value {
        let x = self.rng.pick(list);
        self.constant(Scalar::Float(x), elem)
    }

    /// What stands in the place of hidden scores; finite ones are so small that they still count.
    fn fill(&mut self) -> f64 {
        if self.rng.chance(60) { f64::NEG_INFINITY } else { self.rng.pick(&[-1e9, -1e4, -3.0, -0.3, 0.0, 1.0]) }
    }

    /// A scale or a mask on scores.
    fn score_step(&mut self, x: Value, q: &TensorType, t: &Dim) -> Option<Value> {
        let elem = q.elem;
        match self.rng.below(7) {
            0 => {
                let c = self.number_of(&[0.5, 0.125, 0.3, -1.0, 1e-5], elem);
                let pair = if self.rng.chance(70) { [x, c] } else { [c, x] };
                self.add(Op::Binary(BinaryOp::Mul), &pair, None)
            }
            1 => {
                let c = self.number_of(&[8.0, 3.0, 0.1], elem);
                self.add(Op::Binary(BinaryOp::Div), &[x, c], None)
            }
            2 => {
                let s = q.shape[q.rank() - 2].clone();
                let mask = self.add(Op::Causal, &[], Some(TensorType::new(Elem::Bool, vec![s, t.clone()])))?;
                let hidden = if self.rng.chance(70) { f64::NEG_INFINITY } else { self.fill() };
                let hidden = self.constant(Scalar::Float(hidden), elem);
                self.add(Op::Where, &[mask, x, hidden], None)
            }
            3 | 4 => {
                let mask = if self.rng.chance(40) { self.counted(q, t)? } else { self.mask(q, t)? };
                let fill = self.fill();
                let hidden = self.constant(Scalar::Float(fill), elem);
                let pair = if self.rng.chance(60) { [mask, x, hidden] } else { [mask, hidden, x] };
                self.add(Op::Where, &pair, None)
            }
            5 => {
                // A mask of numbers: 0 where a key is visible.
                let mask = self.mask(q, t)?;
                let (zero, fill) = (self.constant(Scalar::Float(0.0), elem), self.fill());
                let hidden = self.constant(Scalar::Float(fill), elem);
                let sides = if self.rng.chance(70) { [mask, zero, hidden] } else { [mask, hidden, zero] };
                let mask = self.add(Op::Where, &sides, None)?;
                self.add(Op::Binary(BinaryOp::Add), &[x, mask], None)
            }
            _ => {
                let mask = self.additive(q, t)?;
                let op = if self.rng.chance(70) { BinaryOp::Add } else { BinaryOp::Sub };
                let pair = if self.rng.chance(70) { [x, mask] } else { [mask, x] };
                self.add(Op::Binary(op), &pair, None)
            }
        }
    }

    /// Numbers along the keys.
    fn additive(&mut self, q: &TensorType, t: &Dim) -> Option<Value> {
        self.some(|m| m.elem == q.elem && m.rank() > 0 && m.shape[m.rank() - 1] == *t)
    }

    /// Truth values of two counters, of queries and of keys: causal, or nearly.
    fn counted(&mut self, q: &TensorType, t: &Dim) -> Option<Value> {
        let s = q.shape[q.rank() - 2].clone();
        let elem = self.rng.pick(&[Elem::I32, Elem::I32, Elem::I32, Elem::I64, Elem::F32]);
        let whole = TensorType::new(elem, vec![s.clone(), t.clone()]);
        let (mut rows, cols) = if self.rng.chance(50) {
            let axes = if self.rng.chance(90) { [0, 1] } else { [1, 0] };
            (
                self.add(Op::Iota { axis: axes[0] }, &[], Some(whole.clone()))?,
                self.add(Op::Iota { axis: axes[1] }, &[], Some(whole))?,
            )
        } else {
            let rows = self.add(Op::Iota { axis: 0 }, &[], Some(TensorType::new(elem, vec![s.clone()])))?;
            let column = TensorType::new(elem, vec![s.clone(), Dim::one()]);
            let rows = self.add(Op::Reshape, &[rows], Some(column))?;
            (rows, self.add(Op::Iota { axis: 0 }, &[], Some(TensorType::new(elem, vec![t.clone()])))?)
        };
        for _ in 0..self.rng.below(3) {
            let by = match self.rng.below(4) {
                0 => {
                    let d = if self.rng.chance(70) { t.sub(&s) } else { s.sub(t) };
                    self.add(Op::DimValue(d), &[], Some(TensorType::scalar(elem)))?
                }
                1 if elem == Elem::F32 => self.constant(Scalar::Float(2.0), elem),
                1 => self.constant(Scalar::Int(2), elem),
                _ if elem == Elem::F32 => self.constant(Scalar::Float(1.0), elem),
                _ => self.constant(Scalar::Int(1), elem),
            };
            let op = self.rng.pick(&[BinaryOp::Add, BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul]);
            rows = self.add(Op::Binary(op), &[rows, by], None)?;
        }
        let op = self.rng.pick(&[CmpOp::Ge, CmpOp::Ge, CmpOp::Gt, CmpOp::Le, CmpOp::Le, CmpOp::Lt, CmpOp::Ne]);
        let pair = if self.rng.chance(50) { [rows, cols] } else { [cols, rows] };
        self.add(Op::Compare(op), &pair, None)
    }

    /// Truth values along the keys, joined and negated.
    fn mask(&mut self, q: &TensorType, t: &Dim) -> Option<Value> {
        let along = |m: &TensorType| m.rank() > 0 && m.shape[m.rank() - 1] == *t;
        let mut mask = match self.some(|m| m.elem == Elem::Bool && along(m)) {
            Some(m) => m,
            None => {
                let x = self.some(|m| m.elem != Elem::Bool && along(m))?;
                let c = self.number(self.ty(x).elem);
                let op = self.rng.pick(CmpOp::ALL);
                self.add(Op::Compare(op), &[x, c], None)?
            }
        };
        for _ in 0..self.rng.below(3) {
            let more = match self.rng.below(4) {
                0 => self.add(Op::Unary(UnaryOp::Not), &[mask], None),
                1 => {
                    let s = q.shape[q.rank() - 2].clone();
                    let c = self.add(Op::Causal, &[], Some(TensorType::new(Elem::Bool, vec![s, t.clone()])))?;
                    let op = self.rng.pick(&[BinaryOp::And, BinaryOp::Or]);
                    self.add(Op::Binary(op), &[mask, c], None)
                }
                2 => {
                    let c = self.counted(q, t)?;
                    let op = self.rng.pick(&[BinaryOp::And, BinaryOp::Or]);
                    self.add(Op::Binary(op), &[mask, c], None)
                }
                _ => {
                    let mut shape = self.ty(mask).shape;
                    shape.insert(0, Dim::one());
                    self.add(Op::Reshape, &[mask], Some(TensorType::new(Elem::Bool, shape)))
                }
            };
            mask = more.unwrap_or(mask);
        }
        Some(mask)
    }
}
