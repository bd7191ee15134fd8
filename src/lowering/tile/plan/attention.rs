//! Which kernel computes an attention, and where it reads its keys and values from.
//!
//! In: a region that is an attention, and where its operands lie. Out: its launch. A kernel of attention goes through keys
//! and values once for each tile of queries. Heads that lie beside each other (`[S, H * D]`, as a projection leaves them)
//! are read in place badly then: each row of a head is on a page of its own, and the rows fall into few sets of the caches.
//! Where there are many queries, each head's keys and values are first copied to lie row after row, as `f32`; so are those
//! of other types, which the kernel would convert for each tile of queries again. A few queries, one after another, have a
//! kernel of their own (`attention::QueryLayout`). Where all are `bf16` and the target multiplies pairs of such steps, several queries
//! have a kernel that does so: keys are laid row after row as they are, values in panels for blocks of keys. How many queries there are may be known only in the call, which then has all
//! these ways.

use super::super::attention::{self, QueryLayout};
use super::super::region::{Operand, buffer_type};
use super::super::{Call, map};
use super::Lowering;
use crate::ir::{self, Function, Op, Terminator, Value};
use crate::scalar::CmpOp;
use crate::shape::{Dim, Elem, TensorType};
use crate::tile::{View, in_columns, with_repeats, without_repeats};

/// From so many queries on, keys and values that lie apart are copied. Measured on 12 heads of 64: of the time with all in
/// place, that saves a twentieth for 256 queries, a quarter for 1024, two fifths for 2048.
const MANY: i64 = 256;
/// The same where each tile of queries would convert them again.
const SEVERAL: i64 = 64;

impl Lowering<'_> {
    /// Launches the kernel of an attention that writes `to`, after copies of keys and values where they pay.
    pub(super) fn attention(&mut self, body: &Function, operands: &[Operand], to: &View) -> Result<(), String> {
        let (_, _, data) =
            body.insts().find(|(_, _, d)| matches!(d.op, Op::Attention { .. })).ok_or("no attention in its region")?;
        let args = &body.block(body.entry()).args;
        let place = |i: usize| args.iter().position(|v| data.operands.get(i) == Some(v)).ok_or("an operand is no view");
        let (queries, keys, values) = (place(0)?, place(1)?, place(2)?);
        let rows = |i: usize| operands.get(i).and_then(Operand::view)?.shape.iter().rev().nth(1).cloned();
        let (Some(count), Some(others)) = (rows(queries), rows(keys)) else {
            return self.attention_of(body, operands, to, QueryLayout::InLanes);
        };
        let (counts, kv) = ([&count, &others], [keys, values]);
        match self.paired(operands, [queries, keys, values], to) {
            // Fewer queries pay for no copies.
            Some(parts) => self.from(&count, SEVERAL, |plan, enough| match enough {
                true => plan.in_pairs(body, operands, to, keys, &parts),
                false => plan.of_f32(body, operands, to, counts, kv, false),
            }),
            None => self.of_f32(body, operands, to, counts, kv, true),
        }
    }

    /// Launches a kernel that computes in `f32` whatever the operands are, after copies if they may pay.
    fn of_f32(
        &mut self,
        body: &Function,
        operands: &[Operand],
        to: &View,
        [count, others]: [&Dim; 2],
        keys_and_values: [usize; 2],
        copies: bool,
    ) -> Result<(), String> {
        let tiles = |plan: &mut Self| match copies {
            true => plan.many(body, operands, to, count, keys_and_values),
            false => plan.attention_of(body, operands, to, QueryLayout::InLanes),
        };
        // As many keys as queries are no work where they are few.
        let side_by_side = keys_and_values.iter().all(|i| operands.get(*i).is_some_and(is_row_after_row));
        if !side_by_side || count == others {
            return tiles(self);
        }
        self.from(count, self.target.single_queries + 1, |plan, enough| match enough {
            true => tiles(plan),
            false => plan.attention_of(body, operands, to, QueryLayout::KeysInLanes),
        })
    }

    /// Two ways to do something, for `least` of `count` and more, and for less: the one that is known to be taken, or both
    /// and a choice in the call.
    fn from(
        &mut self,
        count: &Dim,
        least: i64,
        mut way: impl FnMut(&mut Self, bool) -> Result<(), String>,
    ) -> Result<(), String> {
        if let Some(n) = count.as_const() {
            return way(self, n >= least);
        }
        let (count, least) = (self.builder.dim(count), self.builder.index(least));
        let enough = self.builder.compare_scalars(CmpOp::Ge, count, least);
        let (more, _) = self.builder.new_block(Vec::new());
        let (less, _) = self.builder.new_block(Vec::new());
        let (done, _) = self.builder.new_block(Vec::new());
        self.builder.br_if(enough, (more, &[]), (less, &[]));
        for (block, enough) in [(more, true), (less, false)] {
            self.builder.switch_to(block);
            way(self, enough)?;
            self.builder.br(done, &[]);
        }
        self.builder.switch_to(done);
        Ok(())
    }

    /// Launches the kernel for tiles of queries, after copies where they pay.
    fn many(
        &mut self,
        body: &Function,
        operands: &[Operand],
        to: &View,
        count: &Dim,
        keys_and_values: [usize; 2],
    ) -> Result<(), String> {
        let mut moved = Vec::new();
        let mut enough = i64::MAX;
        for i in keys_and_values {
            if let Some(Operand::View(from)) = operands.get(i)
                && let Some(least) = queries_that_pay(from)
                && !moved.contains(&i)
            {
                moved.push(i);
                enough = enough.min(least);
            }
        }
        if moved.is_empty() {
            return self.attention_of(body, operands, to, QueryLayout::InLanes);
        }
        self.from(count, enough, |plan, enough| match enough {
            true => plan.after_copies(body, operands, to, &moved),
            false => plan.attention_of(body, operands, to, QueryLayout::InLanes),
        })
    }

    /// Keys and values of an attention whose products take pairs of `bf16` steps, with the result's leading axes; `None` where
    /// they do not: the target has no such products, operands are of other types, or heads of an odd or unknown width.
    fn paired(&self, operands: &[Operand], parts: [usize; 3], to: &View) -> Option<[View; 2]> {
        let lead = to.shape.get(..to.shape.len().checked_sub(2)?)?;
        let view = |i: usize| {
            let view = operands.get(i).and_then(Operand::view).filter(|v| v.elem == Elem::BF16)?;
            let own = view.shape.last_chunk::<2>()?;
            Some(view.broadcast(&[lead, own].concat()))
        };
        let [q, k, v] = [view(parts[0])?, view(parts[1])?, view(parts[2])?];
        let width = |v: &View| v.shape.last().and_then(Dim::as_const);
        let fits = width(&q).is_some_and(|d| d > 0 && d % 2 == 0) && width(&v).is_some_and(|e| e > 0);
        (self.target.pairs.is_some() && fits).then_some([k, v])
    }

    /// Launches the kernel of products of pairs, after keys and values have been laid for it.
    fn in_pairs(
        &mut self,
        body: &Function,
        operands: &[Operand],
        to: &View,
        keys: usize,
        [k, v]: &[View; 2],
    ) -> Result<(), String> {
        let mut operands = operands.to_vec();
        let in_order = |v: &View| matches!(v.strides.as_slice(), [.., row, _] if Some(row) == v.shape.last());
        if let Some(operand) = operands.get_mut(keys)
            && !(in_order(k) && is_row_after_row(operand))
        {
            *operand = Operand::View(self.row_after_row(k, Elem::BF16)?);
        }
        let rank = v.shape.len();
        let mut turned: Vec<usize> = (0..rank).collect();
        turned.swap(rank - 1, rank - 2);
        let root = self.fresh_root();
        let packed = in_columns("values", attention::KEYS, &v.transpose(&turned), root);
        self.add_room(root, packed.bytes, buffer_type(&packed.whole));
        let buffers = [packed.sources, vec![packed.whole]].concat();
        self.launch(Call { kernel: packed.kernel, buffers })?;
        let layout = QueryLayout::InLanePairs;
        let call =
            attention::attention("attention", self.target.columns, body, &operands, to, layout, Some(&packed.panels))?;
        self.launch(call)
    }

    /// Launches a kernel on the operands where they lie.
    fn attention_of(
        &mut self,
        body: &Function,
        operands: &[Operand],
        to: &View,
        layout: QueryLayout,
    ) -> Result<(), String> {
        let call = attention::attention("attention", self.target.columns, body, operands, to, layout, None)?;
        self.launch(call)
    }

    /// Copies some of an attention's operands, then launches its kernel on the copies.
    fn after_copies(
        &mut self,
        body: &Function,
        operands: &[Operand],
        to: &View,
        moved: &[usize],
    ) -> Result<(), String> {
        let mut operands = operands.to_vec();
        for i in moved {
            if let Some(Operand::View(from)) = operands.get_mut(*i) {
                *from = self.row_after_row(from, Elem::F32)?;
            }
        }
        self.attention_of(body, &operands, to, QueryLayout::InLanes)
    }

    /// A copy of a view as `f32`, or as it is, in row-major order but for the axes along which it repeats.
    fn row_after_row(&mut self, view: &View, elem: Elem) -> Result<View, String> {
        let (from, kept) = without_repeats(view);
        let root = self.fresh_root();
        let whole = View::whole(root, &TensorType::new(elem, from.shape.clone()));
        self.add_slot(root, &whole);
        let order = order_in_memory(&from);
        let (from, to) = (from.transpose(&order), whole.transpose(&order));
        let call = map::map("heads", &as_elements(&from, elem)?, &[Operand::View(from)], &to)?;
        self.launch(call)?;
        let (shape, strides) = with_repeats(view, &kept, &whole.shape, &whole.strides);
        Ok(View { shape, strides, ..whole })
    }
}

/// The number of queries from which on it pays to copy keys or values; `None` where it never does.
fn queries_that_pay(from: &View) -> Option<i64> {
    let [.., row, col] = from.strides.as_slice() else { return None };
    let width = from.shape.last()?;
    let dense = |stride: &Dim| stride.as_const() == Some(1);
    if from.elem != Elem::F32 || !dense(row) && !dense(col) {
        return Some(SEVERAL);
    }
    // Row after row already, or the other way round.
    if dense(row) || row == width { None } else { Some(MANY) }
}

/// Do the elements of each row lie side by side?
fn is_row_after_row(o: &Operand) -> bool {
    o.view().is_some_and(|v| v.strides.last().is_some_and(|d| d.as_const() == Some(1)))
}

/// The axes of a view, heads after rows where they lie beside each other in a row: so they are read in order.
fn order_in_memory(from: &View) -> Vec<usize> {
    let mut order: Vec<usize> = (0..from.shape.len()).collect();
    if let [.., heads, rows, _] = from.strides.as_slice()
        && let (Some(heads), Some(rows)) = (heads.as_const(), rows.as_const())
        && heads < rows
    {
        let n = order.len();
        order.swap(n - 3, n - 2);
    }
    order
}

/// The body of a region that gives its operand as elements of a type.
fn as_elements(from: &View, to: Elem) -> Result<Function, String> {
    let mut body = Function::new("");
    let entry = body.entry();
    let tensor = |elem| ir::Type::Tensor(TensorType::new(elem, from.shape.clone()));
    let mut v: Value = body.add_block_arg(entry, tensor(from.elem));
    if from.elem != to {
        let op = Op::Cast { elem: to };
        v = body
            .push(entry, op, vec![v], Some(tensor(to)), ir::Loc::default())
            .ok_or("a conversion without a result")?;
    }
    body.terminate(entry, Terminator::Return(vec![v]));
    Ok(body)
}
