//! merge-matmuls: merges matmuls of one tensor by several parameters into one matmul.
//!
//! ```text
//! param "k.bias"                          : f32[64]
//! param "k.weight"                        : f32[64, 64]
//! param "q.bias"                          : f32[64]
//! param "q.weight"                        : f32[64, 64]
//!
//! func @f(%0 "x": f32[S, 64]) -> (f32[S, S]) {
//! ^bb0:
//!   %1 = param "q.weight"                 : f32[64, 64]
//!   %2 = matmul %0, %1                    : f32[S, 64]
//!   %3 = param "q.bias"                   : f32[64]
//!   %4 = add %2, %3                       : f32[S, 64]
//!   %5 = param "k.weight"                 : f32[64, 64]
//!   %6 = matmul %0, %5                    : f32[S, 64]
//!   %7 = param "k.bias"                   : f32[64]
//!   %8 = add %6, %7                       : f32[S, 64]
//!   %9 = transpose %8, perm=[1, 0]        : f32[64, S]
//!   %10 = matmul %4, %9                   : f32[S, S]
//!   return %10
//! }
//! ->
//! param "k.bias"                          : f32[64]
//! param "k.weight"                        : f32[64, 64]
//! param "q.bias"                          : f32[64]
//! param "q.weight"                        : f32[64, 64]
//!
//! func @f(%0 "x": f32[S, 64]) -> (f32[S, S]) {
//! ^bb0:
//!   %1 = param "q.weight"                 : f32[64, 64]
//!   %2 = param "k.weight"                 : f32[64, 64]
//!   %3 = concat %1, %2, axis=1            : f32[64, 128]
//!   %4 = matmul %0, %3                    : f32[S, 128]
//!   %5 = param "q.bias"                   : f32[64]
//!   %6 = param "k.bias"                   : f32[64]
//!   %7 = concat %5, %6, axis=0            : f32[128]
//!   %8 = add %4, %7                       : f32[S, 128]
//!   %9 = slice %8, axis=1, start=0, stop=64 : f32[S, 64]
//!   %10 = slice %8, axis=1, start=64, stop=128 : f32[S, 64]
//!   %11 = transpose %10, perm=[1, 0]      : f32[64, S]
//!   %12 = matmul %9, %11                  : f32[S, S]
//!   return %12
//! }
//! ```
//!
//! Queries, keys and values are computed this way. One matmul instead of three reads its left
//! operand once and has enough columns for all threads. Parameters are concatenated when a model is
//! opened, not in each call.
//!
//! # Conditions
//!
//! * Elements are `f32` or `bf16`. The left operand is the same value, and not a parameter; the
//!   right operands are parameters of the same shape except for their columns, all extents known,
//!   at least two columns each, read directly, transposed, or sliced at known bounds. Parameters of
//!   an array of layers belong to the same array at the same index.
//! * The matmuls are in one block, at most four, and none comes after a `matmul` or an `attention`
//!   that consumes a result of another. All results are live until then in any case. So the keys
//!   and values that twelve consecutive layers compute from the same memory remain twelve matmuls;
//!   a single result would be live throughout.
//! * No result is needed by taps alone: a call that does not request them does not compute it.
//! * If the only user of a result is an `add` of a parameter with one element per column, in the
//!   same block, the addition is merged too; matmuls with and without such an `add` are not merged
//!   with each other.
//! * `shape`: the number of columns of each but the last is a multiple of 32, the width of the
//!   widest panel of weights on any CPU. If a matmul ended inside a panel, the merged one would
//!   need a launch for each part and save nothing.
//! * `shape`: the row stride of the result is the width of the merged matmul. So no `reshape` of
//!   the result, or of its transpose, may combine rows and columns into one axis: that would be a
//!   copy in each call.
//! * `uses`: no result is lost for fusion. Elementwise operations of the result's shape that are
//!   its only users would no longer be its epilogue (in `silu(gate(x)) * up(x)` both matmuls stay),
//!   and a result that the function returns, transposed and reshaped or not, is written in place
//!   only by a matmul of its own. Other users are allowed, and any users after other movement.
//!
//! It is exact: each element is the same sum in the same order.
//!
//! # Limits
//!
//! It adds no transposes. The merged matmul replaces the first one, with the columns in program
//! order: a matmul that ends inside a panel is not moved to the end. A `reshape` of a slice of the
//! result is not analysed, and a `reshape` after a transpose may prevent merging even if it copies
//! in any case.

use std::collections::BTreeMap;

use super::rewrite::{Cursor, Uses, remove_unused, replace_result};
use super::separate_taps::apart;
use super::{Changed, Condition, Context, Edit};
use crate::ir::{Block, Class, Function, Inst, Op, Use, Value};
use crate::scalar::BinaryOp;
use crate::shape::{Dim, Elem};

/// The maximum number of movements between a parameter and a matmul.
const FARTHEST: usize = 4;

/// The maximum number of matmuls that are merged: queries, keys, values, and one more.
const MAX_MERGED: usize = 4;

/// The columns of the widest panel of weights on any CPU; the widths on other instruction sets
/// divide it.
const WIDEST_PANEL: i64 = 32;

/// A matmul that may be merged with others.
struct Mergeable {
    matmul: Inst,
    /// The right operand, computed from a parameter.
    weight: Value,
    columns: i64,
    /// The addition of a bias, and the bias.
    bias: Option<(Inst, Value)>,
    /// The value that others use.
    result: Value,
}

/// The common properties of matmuls that may be merged: the left operand, movements, element type,
/// the arrays and indices of weight and bias.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    left: Value,
    steps: i64,
    elem: Elem,
    weight: (String, Vec<Value>),
    bias: Option<(String, Vec<Value>)>,
}

/// Matmuls with the same key, in the order of the block.
#[derive(Default)]
struct Group {
    fit: Vec<Mergeable>,
    /// Matmuls that would lose a fusion.
    lost: Vec<(Mergeable, Loss)>,
    /// The position in the block where a result of a merged matmul is first contracted.
    until: Option<usize>,
}

/// The fusion that a matmul would lose: the failed condition, and the user concerned.
struct Loss {
    condition: Condition,
    user: Option<Inst>,
    text: String,
}

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut merged = 0;
    let mut uses = f.uses();
    let needed = apart(f);
    let for_taps = |v: Value| needed.as_ref().is_some_and(|needed| !needed[v]);
    for block in f.layout.clone() {
        let before = merged;
        for Group { fit, lost, .. } in groups(f, &uses, block, &for_taps, ctx) {
            // A missed merge is reported only if others are merged.
            for (p, loss) in lost.into_iter().filter(|_| !fit.is_empty()) {
                let notes = loss.user.map(|i| (f.inst(i).loc, "here".to_string())).into_iter().collect();
                ctx.missed(f, f.inst(p.matmul).loc, loss.condition, loss.text, notes);
            }
            let loc = fit.first().map(|p| f.inst(p.matmul).loc).unwrap_or_default();
            let count = fit.len();
            if count > 1 && merge(f, block, &fit).is_ok() {
                let with = if fit[0].bias.is_some() { " and their biases" } else { "" };
                ctx.done(f, loc, format!("merged {count} matmuls of the same left operand{with}"));
                merged += count;
            }
        }
        if merged > before {
            uses = f.uses();
        }
    }
    if merged > 0 {
        remove_unused(f);
    }
    ctx.count("matmuls merged", merged);
    Changed::from(merged > 0)
}

/// The groups of a block's matmuls that can be merged, and the matmuls that would lose a fusion.
fn groups(f: &Function, uses: &Uses, block: Block, for_taps: &impl Fn(Value) -> bool, ctx: &mut Context) -> Vec<Group> {
    let contracted = contracted(f, block);
    let mut open: BTreeMap<Key, Group> = BTreeMap::new();
    let mut done = Vec::new();
    for (at, inst) in f.block(block).insts.iter().enumerate() {
        if f.inst(*inst).result.is_none_or(for_taps) {
            continue;
        }
        let Some((key, product)) = candidate(f, uses, block, *inst) else { continue };
        let loss = loss(f, uses, &product);
        let group = open.entry(key).or_default();
        let mut full = group.until.is_some_and(|end| end < at);
        if let (false, None, Some(before)) = (full, &loss, group.fit.last()) {
            let ends_inside = before.columns % WIDEST_PANEL != 0;
            if ends_inside {
                let text = format!("the {} columns before it do not fill panels of {WIDEST_PANEL}", before.columns);
                let notes = vec![(f.inst(before.matmul).loc, "here".to_string())];
                let (first, second) = (f.inst(before.matmul).loc, f.inst(product.matmul).loc);
                let edit = Edit::Swap(first, second);
                ctx.missed_with(f, second, Condition::Shape, text, notes, vec![edit]);
            }
            full = ends_inside || group.fit.len() == MAX_MERGED;
        }
        if full {
            done.push(std::mem::take(group));
        }
        match loss {
            Some(loss) => group.lost.push((product, loss)),
            None => {
                group.until = [group.until, contracted.get(&product.result).copied()].into_iter().flatten().min();
                group.fit.push(product);
            }
        }
    }
    done.extend(open.into_values());
    done
}

/// For each value, the position in the block where it, or a value computed from it, is first
/// contracted.
fn contracted(f: &Function, block: Block) -> BTreeMap<Value, usize> {
    let mut first: BTreeMap<Value, usize> = BTreeMap::new();
    for (at, inst) in f.block(block).insts.iter().enumerate().rev() {
        let data = f.inst(*inst);
        let own = match data.op {
            Op::Matmul | Op::Attention { .. } | Op::Fused { .. } => Some(at),
            _ => data.result.and_then(|v| first.get(&v).copied()),
        };
        let Some(own) = own else { continue };
        for v in &data.operands {
            first.entry(*v).and_modify(|at| *at = own.min(*at)).or_insert(own);
        }
    }
    first
}

/// Matches a matmul by a parameter, with the bias that is its only user, if any.
fn candidate(f: &Function, uses: &Uses, block: Block, inst: Inst) -> Option<(Key, Mergeable)> {
    let data = f.inst(inst);
    let (Op::Matmul, [left, weight]) = (&data.op, data.operands.as_slice()) else { return None };
    let result = data.result?;
    let [k, n] = f.tensor(*weight)?.shape.as_slice() else { return None };
    let (steps, columns) = (k.as_const().filter(|n| *n > 0)?, n.as_const().filter(|n| *n > 1)?);
    let weight_key = parameter(f, *weight)?;
    if parameter(f, *left).is_some() {
        return None;
    }
    let (mut bias, mut bias_key, mut last) = (None, None, result);
    if let [Use::Operand(user, at)] = uses[result].as_slice()
        && let (Op::Binary(BinaryOp::Add), Some(sum)) = (&f.inst(*user).op, f.inst(*user).result)
        && f.block(block).insts.contains(user)
    {
        let other = f.inst(*user).operands.get(1 - at.min(&1)).copied()?;
        let fits = f.tensor(other).is_some_and(|t| t.shape.as_slice() == [Dim::from(columns)]);
        // The index of the bias must be available before the matmul; the index of the weight is.
        let known = |(_, indices): &(String, Vec<Value>)| indices.is_empty() || *indices == weight_key.1;
        if let Some(key) = parameter(f, other).filter(|key| fits && known(key)) {
            (bias, bias_key, last) = (Some((*user, other)), Some(key), sum);
        }
    }
    let elem = f.tensor(*left).map(|t| t.elem).filter(|e| matches!(e, Elem::F32 | Elem::BF16))?;
    let key = Key { left: *left, steps, elem, weight: weight_key, bias: bias_key };
    Some((key, Mergeable { matmul: inst, weight: *weight, columns, bias, result: last }))
}

/// If a value is a parameter, or movement of one that a layout can express: its array (empty if it
/// is not in one) and its indices.
fn parameter(f: &Function, v: Value) -> Option<(String, Vec<Value>)> {
    let mut v = v;
    for _ in 0..FARTHEST {
        let (_, data) = f.definition(v)?;
        match &data.op {
            Op::Param { name } => {
                // Cut at the last index: all tensors of the array have the same count.
                let array = name.rfind('*').and_then(|end| name.get(..end)).unwrap_or_default();
                return Some((array.to_string(), data.operands.clone()));
            }
            Op::Transpose { .. } => {}
            Op::Slice { start, stop, .. } if start.as_const().is_some() && stop.as_const().is_some() => {}
            _ => return None,
        }
        v = *data.operands.first()?;
    }
    None
}

/// The fusion that a matmul would lose, if any.
fn loss(f: &Function, uses: &Uses, product: &Mergeable) -> Option<Loss> {
    let shape = |v: Value| f.tensor(v).map(|t| t.shape.as_slice());
    let own = shape(product.result)?;
    let elementwise = |u: &Use| match u {
        Use::Operand(i, _) => {
            f.inst(*i).op.info().class == Class::Elementwise && f.inst(*i).result.and_then(shape) == Some(own)
        }
        Use::Terminator(_) => false,
    };
    if let Some(Use::Operand(user, _)) =
        uses[product.result].first().filter(|_| uses[product.result].iter().all(elementwise))
    {
        let text = format!("`{}` is fused into the matmul's kernel", f.inst(*user).op);
        return Some(Loss { condition: Condition::Uses, user: Some(*user), text });
    }
    // Moved results, and which of their axes consist of columns.
    let columns: Vec<bool> = (1..=own.len()).map(|i| i == own.len()).collect();
    let mut work = vec![(product.result, columns)];
    while let Some((v, columns)) = work.pop() {
        for u in &uses[v] {
            let Use::Operand(user, _) = u else {
                let text = "the result leaves its block".to_string();
                return Some(Loss { condition: Condition::Uses, user: None, text });
            };
            let data = f.inst(*user);
            // A result that is only moved and then returned is written in place, too.
            let moved = match &data.op {
                Op::Transpose { perm } => perm.iter().map(|i| columns.get(*i).copied()).collect(),
                Op::Reshape => recut(shape(v)?, &columns, data.result.and_then(shape)?),
                _ => continue,
            };
            let (Some(result), Some(columns)) = (data.result, moved) else {
                let text = format!("`{}` combines rows and columns into one axis, which would be a copy", data.op);
                return Some(Loss { condition: Condition::Shape, user: Some(*user), text });
            };
            work.push((result, columns));
        }
    }
    None
}

/// The axes of a reshaped tensor that consist of columns, if each axis consists of columns or of
/// rows alone.
fn recut(from: &[Dim], columns: &[bool], to: &[Dim]) -> Option<Vec<bool>> {
    // From the last axis: runs of adjacent axes that are all rows or all columns, and their number
    // of elements.
    let mut runs: Vec<(bool, Dim)> = Vec::new();
    for (d, is) in from.iter().zip(columns).rev() {
        match runs.last_mut() {
            Some((last, extent)) if last == is => *extent = extent.mul(d),
            _ => runs.push((*is, d.clone())),
        }
    }
    let (first, rest) = runs.split_last()?;
    let (mut out, mut left) = (Vec::new(), to);
    for (is, extent) in rest {
        let mut have = Dim::one();
        while have != *extent {
            let (d, others) = left.split_last()?;
            have = have.mul(d);
            left = others;
            out.push(*is);
        }
    }
    out.extend(left.iter().map(|_| first.0));
    out.reverse();
    Some(out)
}

/// Replaces the first matmul by the merged one, and all results by slices of it.
fn merge(f: &mut Function, block: Block, products: &[Mergeable]) -> Result<(), String> {
    let first = products.first().ok_or("no matmuls")?.matmul;
    let left = f.inst(first).operands.first().copied().ok_or("a matmul without operands")?;
    let at = Cursor::before(f, block, first);
    let weights: Vec<Value> = products.iter().map(|p| p.weight).collect();
    weights.iter().for_each(|v| hoist(f, at, *v));
    let weight = at.insert(f, Op::Concat { axis: 1 }, weights)?;
    let mut all = at.insert(f, Op::Matmul, vec![left, weight])?;
    let biases: Vec<(Inst, Value)> = products.iter().filter_map(|p| p.bias).collect();
    if let Some((add, _)) = biases.first() {
        let biases: Vec<Value> = biases.iter().map(|(_, v)| *v).collect();
        let at = Cursor { loc: f.inst(*add).loc, ..at };
        biases.iter().for_each(|v| hoist(f, at, *v));
        let bias = at.insert(f, Op::Concat { axis: 0 }, biases)?;
        all = at.insert(f, Op::Binary(BinaryOp::Add), vec![all, bias])?;
    }
    let axis = f.tensor(all).map(|t| t.rank().saturating_sub(1)).ok_or("a matmul of indices")?;
    let mut start = 0i64;
    for p in products {
        let old = p.bias.map_or(p.matmul, |(add, _)| add);
        let stop = start.saturating_add(p.columns);
        let op = Op::Slice { axis, start: Dim::from(start), stop: Dim::from(stop) };
        let part = Cursor { loc: f.inst(old).loc, ..at }.insert(f, op, vec![all])?;
        replace_result(f, old, part);
        start = stop;
    }
    Ok(())
}

/// Moves a parameter, and the movements of it, before the cursor, unless they are there.
fn hoist(f: &mut Function, at: Cursor, v: Value) {
    let mut chain = Vec::new();
    let mut next = f.definition(v);
    while let Some((inst, data)) = next {
        chain.push(inst);
        next = match data.op {
            Op::Param { .. } => None,
            _ => data.operands.first().and_then(|x| f.definition(*x)),
        };
    }
    for inst in chain.into_iter().rev() {
        let insts = &f.block(at.block).insts;
        let position = |i: Inst| insts.iter().position(|x| *x == i);
        if position(inst) > position(at.before) {
            f.block_mut(at.block).insts.retain(|i| *i != inst);
            f.insert_before(at.block, at.before, inst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `[S, 32]`, or a movement of it, to another shape: its axes, columns as 1, or nothing.
    fn cut(from: &[i64], columns: &[u8], to: &[i64]) -> Option<Vec<u8>> {
        // A 0 stands for an unknown extent.
        let dims = |list: &[i64]| -> Vec<Dim> {
            list.iter().map(|n| if *n == 0 { Dim::symbol("S") } else { Dim::from(*n) }).collect()
        };
        let columns: Vec<bool> = columns.iter().map(|c| *c == 1).collect();
        recut(&dims(from), &columns, &dims(to)).map(|axes| axes.into_iter().map(u8::from).collect())
    }

    #[test]
    fn columns_are_cut_up_but_not_joined_with_rows() {
        assert_eq!(cut(&[0, 32], &[0, 1], &[0, 4, 8]), Some(vec![0, 1, 1]));
        assert_eq!(cut(&[6, 32], &[0, 1], &[2, 3, 1, 32, 1]), Some(vec![0, 0, 0, 1, 1]));
        assert_eq!(cut(&[0, 4, 8], &[0, 1, 1], &[0, 32]), Some(vec![0, 1]));
        // Heads before positions, each regrouped separately.
        assert_eq!(cut(&[4, 0, 8], &[1, 0, 1], &[2, 2, 0, 8]), Some(vec![1, 1, 0, 1]));
        for to in [&[4, 128][..], &[64, 8], &[512], &[32, 16]] {
            assert_eq!(cut(&[16, 32], &[0, 1], to), None, "{to:?}");
        }
        // The last extent stays, and yet heads and rows are combined into one axis.
        assert_eq!(cut(&[16, 4, 8], &[0, 1, 1], &[64, 8]), None);
        assert_eq!(cut(&[32, 16], &[1, 0], &[512]), None);
    }
}
