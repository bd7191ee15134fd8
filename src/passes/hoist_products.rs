//! hoist-products: replaces a loop's row-by-row matmuls of an unchanging tensor by one matmul
//! before the loop.
//!
//! ```text
//! param "b"                               : f32[64]
//! param "u"                               : f32[64, 64]
//! param "w"                               : f32[32, 64]
//!
//! func @f(%0 "x": f32[S, B, 32], %1 "h": f32[B, 64]) -> (f32[B, 64]) {
//! ^bb0:
//!   %2 = dim S                            : index
//!   %3 = param "w"                        : f32[32, 64]
//!   %4 = param "b"                        : f32[64]
//!   %5 = param "u"                        : f32[64, 64]
//!   br ^bb1(0, %1)
//! ^bb1(%6: index, %7: f32[B, 64]):
//!   %8 = lt %6, %2                        : bool[]
//!   br_if %8, ^bb2, ^bb3
//! ^bb2:
//!   %9 = index %0, %6, axis=0             : f32[B, 32]
//!   %10 = matmul %9, %3                   : f32[B, 64]
//!   %11 = add %10, %4                     : f32[B, 64]
//!   %12 = matmul %7, %5                   : f32[B, 64]
//!   %13 = add %11, %12                    : f32[B, 64]
//!   %14 = tanh %13                        : f32[B, 64]
//!   %15 = add %6, 1                       : index
//!   br ^bb1(%15, %14)
//! ^bb3:
//!   return %7
//! }
//! ->
//! param "b"                               : f32[64]
//! param "u"                               : f32[64, 64]
//! param "w"                               : f32[32, 64]
//!
//! func @f(%0 "x": f32[S, B, 32], %1 "h": f32[B, 64]) -> (f32[B, 64]) {
//! ^bb0:
//!   %2 = dim S                            : index
//!   %3 = param "w"                        : f32[32, 64]
//!   %4 = param "b"                        : f32[64]
//!   %5 = param "u"                        : f32[64, 64]
//!   %6 = matmul %0, %3                    : f32[S, B, 64]
//!   %7 = add %6, %4                       : f32[S, B, 64]
//!   br ^bb1(0, %1)
//! ^bb1(%8: index, %9: f32[B, 64]):
//!   %10 = lt %8, %2                       : bool[]
//!   br_if %10, ^bb2, ^bb3
//! ^bb2:
//!   %11 = index %7, %8, axis=0            : f32[B, 64]
//!   %12 = matmul %9, %5                   : f32[B, 64]
//!   %13 = add %11, %12                    : f32[B, 64]
//!   %14 = tanh %13                        : f32[B, 64]
//!   %15 = add %8, 1                       : index
//!   br ^bb1(%15, %14)
//! ^bb3:
//!   return %9
//! }
//! ```
//!
//! A step of a recurrent network has two matmuls: one of its input, which is known for all steps,
//! and one of its state. In the loop, each reads all of its weights in every step, for only as many
//! rows as there are sequences. Before the loop, the first one reads its weights once, which halves
//! the work of a step.
//!
//! # Why it is right
//!
//! Call a value of the loop *stepped* if it is `X[i]` for a tensor X from before the loop, or an
//! operation on stepped values with the same i and values from before the loop, which acts on each
//! `X[i]` separately: elementwise, `reshape`, `transpose` or `slice` of the other axes, `gather`
//! from a table, `matmul` by a matrix. Then `op(X[i])` is `op'(X)[i]`, where `op'` is the same
//! operation with one more leading axis. So the value is the same for every i, whether or not the
//! loop reaches it; `X[i]` is replaced by `Y[i]` at the same point, which is in range exactly if
//! `X[i]` was.
//!
//! It is exact, because a row of a matmul does not depend on the number of rows (with the exception
//! that the crate's documentation states for computed `bf16` right operands).
//!
//! # Conditions
//!
//! * `steps`: The loop is entered by one unconditional jump, counts by 1 from a number or a
//!   dimension to another one, and has no other exit. The index i is the counter, plus or minus an
//!   invariant. The axis of X is as long as the loop has iterations, up to a constant; so at most
//!   that many rows are computed in vain. A loop that a `break` may end keeps its matmuls.
//! * The matmul is computed in every iteration, and not for taps alone.
//! * `size`: the right operand has at most 64 times as many columns as rows, so the result for all
//!   steps, which is kept in memory during the loop, is at most 64 times as large as the left
//!   operand for all steps.
//! * Nothing fails before the loop that does not fail in it. A `gather`, whose indices may be out
//!   of range, is hoisted only if the axis is exactly as long as the loop has iterations, so that
//!   every row is reached, and if the loop sets no state.
//!
//! Operations on the result, such as the bias and an activation, are hoisted with it while they are
//! stepped, do not depend on a second matmul, and nothing else uses the result: one tensor is kept
//! for each matmul.
//!
//! # Limits
//!
//! A matmul whose operand combines stepped values with others, `concat(x[t], h) @ w`, stays: two
//! matmuls would sum in another order. Reductions of rows (a norm of `x[t]`) and windows of several
//! rows are not hoisted. Loops that use only every second row are not treated specially: they have
//! fewer iterations than there are rows, which fails `steps`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cranelift_entity::SecondaryMap;

use super::licm::preheader;
use super::outline::names;
use super::rewrite::{Cursor, Uses, remove_unused, replace_result};
use super::separate_taps::apart;
use super::{Changed, Condition, Context, Edit};
use crate::ir::{Block, Cfg, Class, Function, Inst, Loop, Op, Scalar, Terminator, Type, Use, Value};
use crate::scalar::{BinaryOp, CmpOp};
use crate::shape::{Dim, TensorType};

/// The maximum number of columns of a right operand per row.
const WIDEST: i64 = 64;
/// The maximum depth to which the expression of a counter is searched.
const MAX_DEPTH: usize = 8;

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let cfg = f.cfg();
    let mut hoisted = 0;
    // Inner loops first: hoisted values may be stepped in an outer loop.
    for l in cfg.loops() {
        if let Some(before) = preheader(f, &cfg, &l)
            && let Some(counted) = counted(f, &cfg, &l, before)
        {
            hoisted += hoist(f, ctx, &cfg, &l, before, &counted);
        }
    }
    if hoisted > 0 {
        remove_unused(f);
    }
    ctx.count("matmuls hoisted", hoisted);
    Changed::from(hoisted > 0)
}

/// A loop that counts.
struct Counted {
    counter: Value,
    /// The trip count, if nothing else ends the loop.
    trips: Dim,
    /// May it end before?
    ends_early: bool,
}

/// Matches `lt i, n` in the header of a loop that adds 1 to i.
fn counted(f: &Function, cfg: &Cfg, l: &Loop, before: Block) -> Option<Counted> {
    let header = f.block(l.header);
    let Terminator::BrIf { condition, then, otherwise } = &header.terminator else { return None };
    if !l.blocks.contains(&then.block) || l.blocks.contains(&otherwise.block) {
        return None;
    }
    let data = f.def_inst(*condition)?;
    let (Op::Compare(CmpOp::Lt), [counter, end]) = (&data.op, data.operands.as_slice()) else { return None };
    let place = header.args.iter().position(|v| v == counter)?;
    let given = |from: Block| {
        let calls = f.block(from).terminator.targets().into_iter().filter(|c| c.block == l.header);
        calls.map(|c| c.args.get(place).copied()).collect::<Vec<_>>()
    };
    let mut starts = given(before).into_iter();
    let start = number(f, starts.next()??)?;
    let adds_one = |v: Option<Value>| {
        v.and_then(|v| f.def_inst(v)).is_some_and(|d| {
            let one = |v: &Value| number(f, *v).is_some_and(|n| n == Dim::one());
            match (&d.op, d.operands.as_slice()) {
                (Op::Binary(BinaryOp::Add), [a, b]) => (a == counter && one(b)) || (b == counter && one(a)),
                _ => false,
            }
        })
    };
    let mut back = latches(cfg, l).flat_map(given);
    if !back.all(adds_one) {
        return None;
    }
    let leaves = |b: &&Block| f.block(**b).terminator.targets().iter().any(|c| !l.blocks.contains(&c.block));
    let ends_early = l.blocks.iter().filter(|b| **b != l.header).any(|b| leaves(&b));
    Some(Counted { counter: *counter, trips: number(f, *end)?.sub(&start), ends_early })
}

/// The blocks that jump back to the header.
fn latches<'a>(cfg: &'a Cfg, l: &'a Loop) -> impl Iterator<Item = Block> + 'a {
    cfg.predecessors(l.header).iter().copied().filter(|b| l.blocks.contains(b))
}

/// A literal or a dimension.
fn number(f: &Function, v: Value) -> Option<Dim> {
    match &f.def_inst(v)?.op {
        Op::Const(Scalar::Int(n)) => Some(Dim::from(*n)),
        Op::DimValue(d) => Some(d.clone()),
        _ => None,
    }
}

/// The source of the rows of a stepped value: `X[i]`.
#[derive(Clone, PartialEq)]
struct Rows {
    /// The index i.
    at: Value,
    /// The number of rows of X.
    extent: Dim,
    /// The first instruction that reads a row, and its block; the row of the hoisted result is read
    /// there.
    taken: (Block, Inst),
    /// Is the row read as a window that keeps the axis with extent 1?
    window: bool,
}

/// A stepped value.
#[derive(Clone)]
struct Stepped {
    rows: Rows,
    /// The last matmul in its expression.
    product: Option<Inst>,
}

/// The loop being analysed.
struct Scene<'a> {
    f: &'a Function,
    counted: &'a Counted,
    uses: &'a Uses,
    /// Values defined in the loop.
    inside: SecondaryMap<Value, bool>,
    stepped: BTreeMap<Value, Stepped>,
    /// May an operation that can fail be hoisted?
    may_fail: bool,
    /// Matmuls whose right operand is too wide.
    wide: Vec<Inst>,
    /// Dimensions whose values are set in the loop.
    lengths: BTreeSet<Arc<str>>,
}

fn hoist(f: &mut Function, ctx: &mut Context, cfg: &Cfg, l: &Loop, before: Block, counted: &Counted) -> usize {
    let uses = f.uses();
    let needed = apart(f);
    let for_taps = |v: Value| needed.as_ref().is_some_and(|needed| !needed[v]);
    let mut inside: SecondaryMap<Value, bool> = SecondaryMap::new();
    for b in &l.blocks {
        f.block(*b).args.iter().for_each(|v| inside[*v] = true);
        f.block(*b).insts.iter().filter_map(|i| f.inst(*i).result).for_each(|v| inside[v] = true);
    }
    let sets_state = |b: &Block| f.block(*b).insts.iter().any(|i| matches!(f.inst(*i).op, Op::SetState { .. }));
    let may_fail = !l.blocks.iter().any(sets_state);
    let (stepped, wide, lengths) = (BTreeMap::new(), Vec::new(), f.lengths_in(&l.blocks));
    let mut scene = Scene { f, counted, uses: &uses, inside, stepped, may_fail, wide, lengths };
    // In dominator order, definitions come before uses.
    for b in cfg.dominator_order().into_iter().filter(|b| l.blocks.contains(b)) {
        if latches(cfg, l).all(|latch| cfg.dominates(b, latch)) {
            f.block(b).insts.iter().for_each(|i| scene.look_at(b, *i));
        }
    }
    let found = scene.wanted(&for_taps);
    for inst in scene.wide {
        let text = format!("the matmul has more than {WIDEST} times as many columns as terms to sum");
        ctx.missed(f, f.inst(inst).loc, Condition::Size, text, Vec::new());
    }
    let stepped = scene.stepped;
    let mut whole = Whole { before, stepped: &stepped, made: BTreeMap::new(), insts: Vec::new() };
    let mut hoisted = 0;
    for v in found {
        let Some(Stepped { rows, product: Some(product) }) = stepped.get(&v) else { continue };
        let loc = f.inst(*product).loc;
        let Some((inst, _)) = f.definition(v) else { continue };
        if let Some(text) = too_few(counted, rows) {
            let (_, row) = rows.taken;
            let with = format!("{{0}}[0..{}][{{=1}}]", counted.trips);
            let edit = Edit::replace(f, row, with, &[(row, 0), (row, 1)]);
            ctx.missed_with(f, loc, Condition::Steps, text, Vec::new(), vec![edit]);
            continue;
        }
        whole.insts.clear();
        // An error of a rule means that the rewrite does not fit; the function is left unchanged.
        let Ok(all) = whole.make(f, v) else { continue };
        let Ok(row) = take(f, rows, all, v) else { continue };
        let computing = |i: &Inst| f.inst(*i).op.info().class != Class::Movement;
        let members: Vec<Inst> = whole.insts.iter().copied().filter(computing).collect();
        let text = format!("one matmul for all {} steps, before the loop: {}", rows.extent, names(f, &members));
        ctx.done(f, loc, text);
        replace_result(f, inst, row);
        hoisted += 1;
    }
    hoisted
}

/// The reason, if the loop may not reach all rows.
fn too_few(counted: &Counted, rows: &Rows) -> Option<String> {
    if counted.ends_early {
        return Some(format!("the loop may end before it reaches all {} rows", rows.extent));
    }
    let fits = rows.extent.sub(&counted.trips).as_const().is_some();
    (!fits).then(|| format!("the loop has {} iterations for {} rows", counted.trips, rows.extent))
}

impl Scene<'_> {
    /// Decides whether the result of an instruction is stepped.
    fn look_at(&mut self, block: Block, inst: Inst) {
        let d = self.f.inst(inst);
        // An operation that mentions a dimension set in the loop stays in it.
        if let Some(v) = d.result
            && self.f.tensor(v).is_some()
            && (self.lengths.is_empty() || self.f.dimensions_of(d).is_disjoint(&self.lengths))
            && let Some(stepped) = self.stepped_by(block, inst, v)
        {
            self.stepped.insert(v, stepped);
        }
    }

    fn stepped_by(&mut self, block: Block, inst: Inst, v: Value) -> Option<Stepped> {
        let d = self.f.inst(inst);
        let shape = |v: Value| self.f.tensor(v).map(|t| t.shape.as_slice());
        match (&d.op, d.operands.as_slice()) {
            (Op::Index { axis }, [x, at]) if !self.inside[*x] && self.counts(*at, MAX_DEPTH) => {
                let extent = shape(*x)?.get(*axis)?.clone();
                let rows = Rows { at: *at, extent, taken: (block, inst), window: false };
                return Some(Stepped { rows, product: None });
            }
            (Op::Extract { axes }, [x, at]) if !self.inside[*x] && self.counts(*at, MAX_DEPTH) => {
                let [axis] = axes.as_slice() else { return None };
                let extent = shape(*x)?.get(*axis)?.clone();
                let single = shape(v)?.get(*axis)?.as_const() == Some(1);
                let rows = Rows { at: *at, extent, taken: (block, inst), window: true };
                return single.then_some(Stepped { rows, product: None });
            }
            _ => {}
        }
        // All stepped operands must have the same rows.
        let mut inside = d.operands.iter().filter(|v| self.inside[**v]);
        let first = self.stepped.get(inside.next()?)?.clone();
        let others = inside.map(|v| self.stepped.get(v)).collect::<Option<Vec<&Stepped>>>()?;
        if others.iter().any(|s| s.rows.at != first.rows.at || s.rows.extent != first.rows.extent) {
            return None;
        }
        let mut product = others.iter().fold(first.product, |p, s| p.or(s.product));
        match (&d.op, d.operands.as_slice()) {
            (Op::Matmul, [left, right]) => {
                if !self.inside[*left] || self.inside[*right] {
                    return None;
                }
                let [steps, columns] = shape(*right)? else { return None };
                if !columns.at_most_by_form(&steps.mul(&Dim::from(WIDEST))) {
                    self.wide.push(inst);
                    return None;
                }
                product = Some(inst);
            }
            (Op::Gather { axis: 0, batch: 0 }, [table, _]) => {
                let exactly = first.rows.extent == self.counted.trips && !self.counted.ends_early;
                if self.inside[*table] || !self.may_fail || !exactly || product.is_some() {
                    return None;
                }
            }
            (Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Where | Op::Cast { .. }, operands) => {
                let own = shape(v)?;
                let fits = |v: &Value| match shape(*v) {
                    Some(s) => !self.inside[*v] || s == own,
                    None => false,
                };
                if !operands.iter().all(fits) {
                    return None;
                }
            }
            (Op::Reshape | Op::Transpose { .. } | Op::Slice { .. }, [_]) => {}
            _ => return None,
        }
        // The operation after a matmul is hoisted with it only if it is the only user; else both
        // results would be kept.
        let is_product = |v: &Value| self.stepped.get(v).is_some_and(|s| s.product.is_some());
        let alone = d.operands.iter().filter(|v| is_product(v)).all(|v| self.uses[*v].len() == 1);
        (alone || d.op == Op::Matmul).then_some(Stepped { rows: first.rows, product })
    }

    /// Does the value differ in each iteration: the counter, plus or minus an invariant?
    fn counts(&self, v: Value, depth: usize) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        if v == self.counted.counter {
            return true;
        }
        let Some(d) = self.f.def_inst(v) else { return false };
        match (&d.op, d.operands.as_slice()) {
            (Op::Binary(BinaryOp::Add), [a, b]) => {
                (self.counts(*a, depth) && !self.inside[*b]) || (self.counts(*b, depth) && !self.inside[*a])
            }
            (Op::Binary(BinaryOp::Sub), [a, b]) => {
                (self.counts(*a, depth) && !self.inside[*b]) || (self.counts(*b, depth) && !self.inside[*a])
            }
            (Op::Index { axis: 0 }, [list, at]) => {
                let is_iota = self.f.def_inst(*list).is_some_and(|d| d.op == Op::Iota { axis: 0 });
                let is_list = self.f.tensor(*list).is_some_and(|t| t.rank() == 1);
                is_iota && is_list && self.counts(*at, depth)
            }
            _ => false,
        }
    }

    /// The stepped results of matmuls that the loop needs one row at a time, in order.
    fn wanted(&self, for_taps: &impl Fn(Value) -> bool) -> Vec<Value> {
        let is_product = |v: Value| self.stepped.get(&v).is_some_and(|s| s.product.is_some());
        let taken = |u: &Use| match u {
            Use::Operand(i, _) => self.f.inst(*i).result.is_some_and(is_product),
            Use::Terminator(_) => false,
        };
        let is_wanted = |v: &Value| is_product(*v) && !for_taps(*v) && !self.uses[*v].iter().all(taken);
        self.stepped.keys().copied().filter(is_wanted).collect()
    }
}

/// Emits stepped values for all steps at once, at the end of the preheader.
struct Whole<'a> {
    before: Block,
    stepped: &'a BTreeMap<Value, Stepped>,
    /// Emitted values, by the value of one step.
    made: BTreeMap<Value, Value>,
    /// Instructions emitted for the current value.
    insts: Vec<Inst>,
}

impl Whole<'_> {
    /// The value for all steps, `[rows, ..]`.
    fn make(&mut self, f: &mut Function, v: Value) -> Result<Value, String> {
        let Some(Stepped { rows, .. }) = self.stepped.get(&v) else { return Ok(v) };
        if let Some(made) = self.made.get(&v) {
            return Ok(*made);
        }
        let (inst, _) = f.definition(v).ok_or("a stepped value that is not a result")?;
        let d = f.inst(inst).clone();
        let one = f.tensor(v).ok_or("a stepped index")?.clone();
        let shape = [std::slice::from_ref(&rows.extent), one.shape.as_slice()].concat();
        let all = TensorType::new(one.elem, shape);
        let made = if matches!(d.op, Op::Index { .. } | Op::Extract { .. }) {
            let x = *d.operands.first().ok_or("an operand is missing")?;
            let axis = match &d.op {
                Op::Index { axis } => *axis,
                Op::Extract { axes } => *axes.first().ok_or("a window without an axis")?,
                _ => return Err("rows are taken by an index".into()),
            };
            let rank = f.tensor(x).ok_or("an index of an index")?.rank();
            let perm: Vec<usize> = std::iter::once(axis).chain((0..rank).filter(|i| *i != axis)).collect();
            let first = if axis == 0 { x } else { self.add(f, Op::Transpose { perm }, vec![x], None, inst)? };
            if f.tensor(first) == Some(&all) { first } else { self.add(f, Op::Reshape, vec![first], Some(all), inst)? }
        } else {
            let mut operands = Vec::new();
            for x in &d.operands {
                operands.push(self.make(f, *x)?);
            }
            let (op, declared) = match d.op {
                Op::Transpose { perm } => {
                    (Op::Transpose { perm: std::iter::once(0).chain(perm.iter().map(|i| i + 1)).collect() }, None)
                }
                Op::Slice { axis, start, stop } => (Op::Slice { axis: axis + 1, start, stop }, None),
                op @ (Op::Reshape | Op::Cast { .. }) => (op, Some(all.clone())),
                op => (op, None),
            };
            let made = self.add(f, op, operands, declared, inst)?;
            if f.tensor(made) != Some(&all) {
                return Err("a rule infers another type".into());
            }
            made
        };
        self.made.insert(v, made);
        Ok(made)
    }

    /// Appends an instruction to the preheader, with the source location of another.
    fn add(
        &mut self,
        f: &mut Function,
        op: Op,
        operands: Vec<Value>,
        declared: Option<TensorType>,
        like: Inst,
    ) -> Result<Value, String> {
        let loc = f.inst(like).loc;
        let made = f.append(self.before, op, operands, declared.map(Type::Tensor), loc)?.ok_or("no result")?;
        self.insts.extend(f.definition(made).map(|(i, _)| i));
        Ok(made)
    }
}

/// Reads one step of the hoisted result where the first of its rows was read: an index out of range
/// is reported there, as before.
fn take(f: &mut Function, rows: &Rows, all: Value, one: Value) -> Result<Value, String> {
    let (block, inst) = rows.taken;
    let at = Cursor::before(f, block, inst);
    if !rows.window {
        return at.insert(f, Op::Index { axis: 0 }, vec![all, rows.at]);
    }
    let ty = f.tensor(one).ok_or("a stepped index")?.clone();
    let window = TensorType::new(ty.elem, [&[Dim::one()], ty.shape.as_slice()].concat());
    let taken = at.insert_as(f, Op::Extract { axes: vec![0] }, vec![all, rows.at], Some(window))?;
    at.insert_as(f, Op::Reshape, vec![taken], Some(ty))
}
