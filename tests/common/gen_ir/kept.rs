//! What a session keeps, lengths that are computed, and windows.
//!
//! In: a generator at a block. Out: the same with more values in scope, states that are read and set, dimensions that are known.

use attnc::ir::{Op, Scalar, StateDecl, Value};
use attnc::scalar::BinaryOp;
use attnc::shape::{Dim, Elem, TensorType};

use super::Gen;

impl Gen {
    /// What a session keeps, in half of the programs.
    pub(super) fn declare_states(&mut self) {
        if self.rng.chance(50) {
            return;
        }
        for n in 0..1 + self.rng.below(3) {
            let elem = self.elem();
            let shape: Vec<Dim> =
                (0..self.rng.below(3)).map(|_| Dim::from(self.rng.pick(&[0, 1, 3, 4, 4, 4]))).collect();
            self.states.push(StateDecl { name: format!("s{n}"), ty: TensorType::new(elem, shape) });
        }
    }

    /// Reads a state, or sets it: to something of its type, of its shape, or to what it was with a part replaced.
    pub(super) fn keep(&mut self) {
        if self.states.is_empty() {
            return;
        }
        let StateDecl { name, ty } = self.rng.pick(&self.states);
        if self.rng.chance(50) {
            self.add(Op::State { name }, &[], Some(ty));
            return;
        }
        let given = match self.rng.below(3) {
            0 => self.some(|t| *t == ty),
            1 => {
                let same = self.some(|t| t.shape == ty.shape);
                same.and_then(|v| self.add(Op::Cast { elem: ty.elem }, &[v], None))
            }
            _ => {
                let old = self.add(Op::State { name: name.clone() }, &[], Some(ty.clone()));
                old.map(|old| {
                    let number = self.partner(old);
                    let op = self.rng.pick(&[BinaryOp::Add, BinaryOp::Max, BinaryOp::Min]);
                    self.add(Op::Binary(op), &[old, number], None).filter(|v| self.ty(*v) == ty).unwrap_or(old)
                })
            }
        };
        let given = match given {
            Some(given) => given,
            None => {
                let literal = self.literal(ty.elem);
                let Some(given) = self.add(Op::Const(literal), &[], Some(ty)) else { return };
                given
            }
        };
        let loc = self.loc();
        self.f.push(self.block, Op::SetState { name }, vec![given], None, loc);
    }

    /// What a state is set to, for a loop to go on from.
    pub(super) fn kept_before(&mut self) -> Option<Value> {
        if self.states.is_empty() || self.rng.chance(60) {
            return None;
        }
        let StateDecl { name, ty } = self.rng.pick(&self.states);
        let old = self.add(Op::State { name: name.clone() }, &[], Some(ty.clone()))?;
        let number = self.partner(old);
        let new = self.add(Op::Binary(BinaryOp::Max), &[old, number], None).filter(|v| self.ty(*v) == ty)?;
        let loc = self.loc();
        self.f.push(self.block, Op::SetState { name }, vec![new], None, loc);
        Some(new)
    }

    /// A length that is computed: of a dimension, of a counter of a loop, or of an element; with a part of something that is so long.
    pub(super) fn length(&mut self) {
        if self.lengths.len() == 4 {
            return;
        }
        let v = self.any();
        let ty = self.ty(v);
        let axis = self.axis(v);
        let known = |g: &Gen, d: &Dim| !d.symbols().iter().any(|s| g.lengths.contains_key(&**s));
        let along = axis.map(|a| ty.shape[a].clone()).filter(|d| known(self, d));
        let most = along.clone().unwrap_or_else(|| Dim::from(3));
        let Some(n) = self.extent(&most) else { return };
        let Some((value, is)) = self.computed(&most, n) else { return };
        let name = format!("N{}", self.lengths.len());
        let loc = self.loc();
        self.f.push(self.block, Op::Length { name: name.clone(), most }, vec![value], None, loc);
        self.lengths.insert(name.clone(), is);
        self.known.push(name.clone());
        let length = Dim::symbol(&name);
        match (along, axis) {
            (Some(_), Some(axis)) => {
                self.add(Op::Slice { axis, start: Dim::zero(), stop: length }, &[v], None);
            }
            _ => {
                self.add(Op::Iota { axis: 0 }, &[], Some(TensorType::new(Elem::F32, vec![length, Dim::from(2)])));
            }
        }
    }

    /// An integer from 0 to `most`, which is `n` in this call, and what it is, or is at most.
    fn computed(&mut self, most: &Dim, n: i64) -> Option<(Value, i64)> {
        let whole = self.index(Op::DimValue(most.clone()), &[])?;
        match self.rng.below(4) {
            0 => {
                let counters: Vec<(Value, i64)> = self.indices.clone();
                let (i, limit) = if counters.is_empty() { return None } else { self.rng.pick(&counters) };
                Some((self.index(Op::Binary(BinaryOp::Min), &[i, whole])?, limit.min(n)))
            }
            1 => {
                let elem = self.rng.pick(&[Elem::I32, Elem::I64]);
                let x = self.some(|t| t.elem == elem && t.rank() == 0)?;
                let one = self.add(Op::DimValue(most.add(&Dim::one())), &[], Some(TensorType::scalar(elem)))?;
                // Sometimes of what may be negative or too much.
                let value = if self.rng.chance(10) { x } else { self.add(Op::Binary(BinaryOp::Rem), &[x, one], None)? };
                Some((value, n))
            }
            2 => Some((whole, n)),
            _ => {
                let c = self.rng.below(4) as i64;
                let number = self.index(Op::Const(Scalar::Int(c)), &[])?;
                Some((self.index(Op::Binary(BinaryOp::Min), &[whole, number])?, c.min(n)))
            }
        }
    }

    /// Windows of an axis, which may overlap; of an axis of unknown length too.
    pub(super) fn windows(&mut self) {
        let v = self.any();
        let Some(axis) = self.axis(v) else { return };
        let ty = self.ty(v);
        let stride = 1 + self.rng.below(3);
        let size = Dim::from(self.rng.below(4) as i64);
        let step = Dim::from(stride as i64);
        let Some(count) = ty.shape[axis].sub(&size).floor_div(&step).map(|n| n.add(&Dim::one())) else { return };
        let count = if self.rng.chance(15) { Dim::one() } else { count };
        if self.extent(&count).is_none() {
            return;
        }
        let mut shape = ty.shape.clone();
        shape[axis] = count;
        shape.insert(axis + 1, size);
        let stride = if self.rng.chance(30) { -(stride as i64) } else { stride as i64 };
        self.add(Op::Windows { axis, stride }, &[v], Some(TensorType::new(ty.elem, shape)));
    }
}
