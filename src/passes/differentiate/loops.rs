//! The gradient of a counted loop: a loop from its last iteration to its first.
//!
//! In: a loop, and the gradients of its results. Out: the gradients of its initial values, and of
//! the values from before it that its body reads, each added up over the iterations. An iteration
//! first computes its values again from its initial ones. The loop itself stacks these along the
//! iterations, where they are needed, and the results of its matmuls.

use std::collections::BTreeMap;

use super::Res;
use super::reach::ancestors;
use super::structure::{Counted, Node, Region};
use super::sweep::{Gradients, Here, ParamGradient, Sweep};
use crate::ir::{Block, BlockCall, Inst, Op, Terminator, Type, Value};
use crate::scalar::{BinaryOp, CmpOp};
use crate::shape::{Dim, TensorType};

/// The blocks of the loop whose iterations are reversed: the function's own, or of a copy.
struct Forward {
    enter: Block,
    header: Block,
    latch: Block,
}

/// The loop backwards.
struct Backward {
    header: Block,
    body: Block,
    after: Block,
    /// The iteration whose gradient is computed, counted from 0.
    iteration: Value,
    /// Arguments of the body that stand for values of the iteration, and these values.
    stands_for: BTreeMap<Value, Value>,
}

/// Is the result kept rather than computed again?
fn is_kept(op: &Op) -> bool {
    matches!(op, Op::Matmul | Op::Argsort { .. } | Op::Cumsum { .. })
}

impl Sweep<'_> {
    pub(super) fn counted(&mut self, region: &Region, l: &Counted, here: &Here, to: &mut Gradients) -> Res<()> {
        for (arg, passed) in region.args.iter().zip(&l.passed) {
            if let Some(g) = self.take(to, *arg) {
                self.add(to, *passed, g)?;
            }
        }
        // The header's last execution, whose values the code after the loop may read.
        self.nodes(&l.head, here, to)?;
        let given: Vec<Option<Value>> = l.args.iter().map(|v| self.take(to, *v)).collect();
        if given.iter().all(Option::is_none) {
            return Ok(());
        }
        // The arguments that the given ones depend on, by any number of iterations.
        let roots = l.args.iter().zip(&given).filter(|(_, g)| g.is_some()).map(|(v, _)| *v).collect();
        let found = ancestors(self.e.f, roots, |b| region.blocks.contains(&b));
        let is_carried = |k: &usize| self.active[l.args[*k]] && found[l.args[*k]];
        let carried: Vec<usize> = (0..l.args.len()).filter(is_carried).collect();
        self.e.loc = region.loc;
        let mut entering = vec![self.e.index(&Dim::zero())?];
        for k in &carried {
            entering.push(match given[*k] {
                Some(g) => g,
                None => self.e.zeros_like(l.args[*k])?,
            });
        }
        let from = self.e.block;
        let (back, args, mut inside) = self.begin(l, here.without(self.e.f, &region.blocks), &entering)?;
        self.copy(&l.head, &mut inside)?;
        self.copy(&l.body, &mut inside)?;
        let mut own = Gradients::default();
        for (k, g) in carried.iter().zip(args.iter().skip(1)) {
            self.add(&mut own, l.next[*k], *g)?;
        }
        self.nodes(&l.body, &inside, &mut own)?;
        self.nodes(&l.head, &inside, &mut own)?;
        let mut next = Vec::new();
        for k in &carried {
            next.push(match own.values.remove(&l.args[*k]) {
                Some(g) => g,
                None => self.e.zeros_like(l.args[*k])?,
            });
        }
        let sums = self.outer(from, &back, &mut entering, &mut next, own)?;
        self.finish(from, &back, args[0], (entering, next.clone()))?;
        self.load(l, here, &back, &next)?;
        self.e.block = back.after;
        for (k, g) in carried.iter().zip(args.iter().skip(1)) {
            self.add(to, l.first[*k], *g)?;
        }
        for (v, g) in sums.0 {
            self.add(to, v, g)?;
        }
        for (name, g) in sums.1 {
            to.params.entry(name).or_default().push(ParamGradient::Whole(g));
        }
        Ok(())
    }

    /// The blocks of the backward loop, the header's arguments, and the values of an iteration.
    fn begin(&mut self, l: &Counted, mut inside: Here, entering: &[Value]) -> Res<(Backward, Vec<Value>, Here)> {
        let (header, args) = self.e.add_block(entering);
        // Arguments of the body until it is known which of these values are needed.
        let mut stand_ins: Vec<Value> = Vec::new();
        for (k, v) in l.args.iter().enumerate() {
            if k != l.counter && self.e.f.tensor(*v).is_some() {
                stand_ins.push(*v);
            }
        }
        for node in &l.body {
            if let Node::Inst(i) = node
                && is_kept(&self.e.f.inst(*i).op)
                && !self.weights.are_scores(*i)
            {
                stand_ins.extend(self.e.f.inst(*i).result);
            }
        }
        let (body, stands) = self.e.add_block(&stand_ins);
        let (after, _) = self.e.add_block(&[]);
        inside.values.extend(stand_ins.iter().copied().zip(stands.iter().copied()));

        self.e.block = header;
        let count = self.e.index(&l.count)?;
        let condition = self.e.compare(CmpOp::Lt, args[0], count)?;
        let then = BlockCall { block: body, args: stands.clone() };
        let otherwise = BlockCall { block: after, args: Vec::new() };
        self.e.f.terminate(header, Terminator::BrIf { condition, then, otherwise });

        self.e.block = body;
        let last = self.e.index(&l.count.sub(&Dim::one()))?;
        let iteration = self.e.binary(BinaryOp::Sub, last, args[0])?;
        let counter = if l.start == Dim::zero() {
            iteration
        } else {
            let start = self.e.index(&l.start)?;
            self.e.binary(BinaryOp::Add, iteration, start)?
        };
        inside.values.insert(l.args[l.counter], counter);
        let stands_for = stands.into_iter().zip(stand_ins).collect();
        Ok((Backward { header, body, after, iteration, stands_for }, args, inside))
    }

    /// The gradients of values and parameters from before the loop, as sums that it carries.
    #[allow(clippy::type_complexity, reason = "values with their sums, and parameters with theirs")]
    fn outer(
        &mut self,
        from: Block,
        back: &Backward,
        entering: &mut Vec<Value>,
        next: &mut Vec<Value>,
        own: Gradients,
    ) -> Res<(Vec<(Value, Value)>, Vec<(String, Value)>)> {
        let latch = self.e.block;
        let (mut values, mut params) = (Vec::new(), Vec::new());
        let mut carry = |this: &mut Self, ty: TensorType| {
            this.e.block = from;
            let zeros = this.e.splat(0.0, ty.clone());
            this.e.block = latch;
            entering.push(zeros?);
            Ok(this.e.f.add_block_arg(back.header, Type::Tensor(ty)))
        };
        for (v, g) in own.values {
            let ty = self.e.ty(v)?;
            let sum = carry(self, ty)?;
            next.push(self.e.binary(BinaryOp::Add, sum, g)?);
            values.push((v, sum));
        }
        for (name, parts) in own.params {
            let Some(ty) = self.stacked.get(&name).cloned() else {
                return self.e.refuse(format!("there is no parameter `{name}`"));
            };
            let sum = carry(self, ty)?;
            // One tensor for each iteration: nothing was added before.
            let once = matches!(parts.as_slice(), [ParamGradient::At(at, _)] if at.contains(&back.iteration));
            next.push(self.sum_of_parts(&name, Some(sum), &parts, once)?);
            params.push((name, sum));
        }
        Ok((values, params))
    }

    /// The jumps into the backward loop, and back to its header.
    fn finish(
        &mut self,
        from: Block,
        back: &Backward,
        counter: Value,
        (entering, next): (Vec<Value>, Vec<Value>),
    ) -> Res<()> {
        let one = self.e.index(&Dim::one())?;
        let following = self.e.binary(BinaryOp::Add, counter, one)?;
        let again = [&[following], next.as_slice()].concat();
        self.e.f.terminate(self.e.block, Terminator::Br(BlockCall { block: back.header, args: again }));
        self.e.f.terminate(from, Terminator::Br(BlockCall { block: back.header, args: entering }));
        Ok(())
    }

    /// Replaces the arguments of the body by slices of what the forward loop stacks.
    fn load(&mut self, l: &Counted, here: &Here, back: &Backward, next: &[Value]) -> Res<()> {
        let own: Vec<Block> = self.e.made.iter().copied().skip_while(|b| *b != back.header).collect();
        let conditions = own.iter().filter_map(|b| match &self.e.f.block(*b).terminator {
            Terminator::BrIf { condition, .. } => Some(*condition),
            Terminator::Br(_) | Terminator::Return(_) | Terminator::Roles(_) => None,
        });
        let mut needed: BTreeMap<Value, bool> = BTreeMap::new();
        let roots: Vec<Value> = next.iter().copied().chain(conditions).collect();
        let found = ancestors(self.e.f, roots, |_| true);
        for v in back.stands_for.keys() {
            needed.insert(*v, found[*v]);
        }
        let forward = Forward { enter: here.block(l.enter), header: here.block(l.header), latch: here.block(l.latch) };
        let rest: Vec<Inst> = std::mem::take(&mut self.e.f.block_mut(back.body).insts);
        let mut by = cranelift_entity::SecondaryMap::new();
        for (stand, value) in &back.stands_for {
            let loaded = if needed.get(stand) == Some(&true) {
                let stack = self.stack(l, here, &forward, *value)?;
                self.e.block = back.body;
                // The iteration's number is computed first.
                let first = self.iteration_again(l, back)?;
                self.e.op(Op::Index { axis: 0 }, &[stack, first])?
            } else {
                self.e.block = back.body;
                self.e.zeros_like(*value)?
            };
            by[*stand] = Some(loaded);
        }
        self.e.f.block_mut(back.body).insts.extend(rest);
        self.e.f.remove_block_args(back.body, |_| true);
        self.e.f.replace_uses(&by);
        Ok(())
    }

    /// The number of the iteration, at the start of the body.
    fn iteration_again(&mut self, l: &Counted, back: &Backward) -> Res<Value> {
        let last = self.e.index(&l.count.sub(&Dim::one()))?;
        let Some(counter) = self.e.f.block(back.header).args.first().copied() else {
            return self.e.refuse("a loop has no counter");
        };
        self.e.binary(BinaryOp::Sub, last, counter)
    }

    /// Makes the forward loop stack a value of each iteration; returns the stack after the loop.
    fn stack(&mut self, l: &Counted, here: &Here, forward: &Forward, v: Value) -> Res<Value> {
        let ty = self.e.ty(v)?;
        let shape = |first: Dim| std::iter::once(first).chain(ty.shape.iter().cloned()).collect::<Vec<Dim>>();
        let whole = TensorType::new(ty.elem, shape(l.count.clone()));
        self.e.block = forward.enter;
        let zeros = self.e.splat(0.0, whole.clone())?;
        let stack = self.e.f.add_block_arg(forward.header, Type::Tensor(whole));
        self.e.block = forward.latch;
        let counter = here.current(l.args[l.counter]);
        let at = if l.start == Dim::zero() {
            counter
        } else {
            let start = self.e.index(&l.start)?;
            self.e.binary(BinaryOp::Sub, counter, start)?
        };
        let row = self.e.reshape(here.current(v), shape(Dim::one()))?;
        let next = self.e.op(Op::Update { axes: vec![0] }, &[stack, row, at])?;
        for (block, value) in [(forward.enter, zeros), (forward.latch, next)] {
            for c in self.e.f.block_mut(block).terminator.targets_mut() {
                if c.block == forward.header {
                    c.args.push(value);
                }
            }
        }
        Ok(stack)
    }
}
