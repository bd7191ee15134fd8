//! merge-matmuls: products of one tensor by several parameters become one product.
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
//! Queries, keys and values are made so, and one product instead of three reads its left operand once and has columns enough
//! for all threads. Parameters are put together when a model is opened, not in each call.
//!
//! # Conditions
//!
//! * Elements are `f32` or `bf16`. The left operand is the same value, no parameter; the right ones are parameters of one shape
//!   except for their columns, all extents known, at least two columns each, read as they are, transposed, or cut at known places.
//!   Parameters of an array of layers are of the same array at the same index.
//! * The products are in one block, at most four, and none is after a `matmul` or an `attention` of what became of
//!   another. Up to there all of them are kept in any case. So the keys and values that twelve layers, one after the other,
//!   take of the same memory are twelve products, not one that is kept throughout.
//! * No product is needed by taps alone: a call that does not ask for them does not compute it.
//! * If what uses a product is one `add` of a parameter with an element for each column, in the same block, that goes along;
//!   products with such an `add` and products without it are not merged with each other.
//! * `shape`: the columns of each but the last are a multiple of 32, which is the widest panel of weights that any level of the
//!   CPU has. Where a product ends inside a panel, the merged one would be a launch for each part and save nothing.
//! * `shape`: the rows of the result are as far apart as the merged product is wide. So no `reshape` of the result, nor of its
//!   transposition, makes one axis of rows and columns: that would copy them in each call.
//! * `uses`: elementwise work of the product's shape, if nothing else uses the product, would be lost as its epilogue (in
//!   `silu(gate(x)) * up(x)` both products stay), and what the function gives back, transposed and reshaped or not, is written in
//!   place by a product of its own. Anything else may use it, and after other movement anything may follow.
//!
//! It is exact: each element is the same sum in the same order.
//!
//! # What it does not do
//!
//! It adds no transposition. The merged product is where the first stood, with the columns in the order of the products: one
//! that ends inside a panel is not put last. A `reshape` of what was cut out of the result is not looked at, and one after a
//! transposition may be refused where it copies in any case.

use std::collections::BTreeMap;

use super::rewrite::{Cursor, Uses, remove_unused, replace_result};
use super::separate_taps::apart;
use super::{Changed, Condition, Context};
use crate::ir::{Block, Class, Function, Inst, Op, Use, Value};
use crate::scalar::BinaryOp;
use crate::shape::{Dim, Elem};

/// The most steps of movement between a parameter and a product.
const FARTHEST: usize = 4;

/// The most products that become one: queries, keys, values, and one more.
const MOST: usize = 4;

/// The columns of the widest panel of weights that any level of the CPU has; the other levels' divide it.
const WIDEST_PANEL: i64 = 32;

/// A product that may be merged with others.
struct Product {
    matmul: Inst,
    /// The parameters' side: the right operand.
    weight: Value,
    columns: i64,
    /// The addition of a bias, and the bias.
    bias: Option<(Inst, Value)>,
    /// What is used by others.
    result: Value,
}

/// What products that become one have in common: the left operand, steps, element type, the arrays and indices of weight and
/// bias.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    left: Value,
    steps: i64,
    elem: Elem,
    weight: (String, Vec<Value>),
    bias: Option<(String, Vec<Value>)>,
}

/// Products with the same key, in the order of the block.
#[derive(Default)]
struct Group {
    fit: Vec<Product>,
    /// Those that would lose something.
    lost: Vec<(Product, Loss)>,
    /// Where in the block one of those that fit is contracted first.
    until: Option<usize>,
}

/// What a product would lose, the condition that says so, and the user because of whom.
struct Loss {
    condition: Condition,
    user: Option<Inst>,
    text: String,
}

/// Runs the pass.
pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut merged = 0;
    let mut uses = f.uses();
    let needed = apart(f);
    let for_taps = |v: Value| needed.as_ref().is_some_and(|needed| !needed[v]);
    for block in f.layout.clone() {
        let before = merged;
        for Group { fit, lost, .. } in groups(f, &uses, block, &for_taps, ctx) {
            // A missed merge is reported only where others are merged.
            for (p, loss) in lost.into_iter().filter(|_| !fit.is_empty()) {
                let notes = loss.user.map(|i| (f.inst(i).loc, "here".to_string())).into_iter().collect();
                ctx.missed(f, f.inst(p.matmul).loc, loss.condition, loss.text, notes);
            }
            let loc = fit.first().map(|p| f.inst(p.matmul).loc).unwrap_or_default();
            let count = fit.len();
            if count > 1 && merge(f, block, &fit).is_ok() {
                let with = if fit[0].bias.is_some() { " and their biases" } else { "" };
                ctx.done(f, loc, format!("one product: {count} products of the same left operand{with}"));
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
    ctx.count("products merged", merged);
    Changed::from(merged > 0)
}

/// The products of a block that may become one, and those beside them that would lose by it.
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
                ctx.missed(f, f.inst(product.matmul).loc, Condition::Shape, text, notes);
            }
            full = ends_inside || group.fit.len() == MOST;
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

/// Where in the block a value, or what became of it, is first contracted.
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

/// A product by a parameter, with the bias that is added to it, if nothing else uses it.
fn candidate(f: &Function, uses: &Uses, block: Block, inst: Inst) -> Option<(Key, Product)> {
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
        // The index of the weight is known before the product.
        let known = |(_, indices): &(String, Vec<Value>)| indices.is_empty() || *indices == weight_key.1;
        if let Some(key) = parameter(f, other).filter(|key| fits && known(key)) {
            (bias, bias_key, last) = (Some((*user, other)), Some(key), sum);
        }
    }
    let elem = f.tensor(*left).map(|t| t.elem).filter(|e| matches!(e, Elem::F32 | Elem::BF16))?;
    let key = Key { left: *left, steps, elem, weight: weight_key, bias: bias_key };
    Some((key, Product { matmul: inst, weight: *weight, columns, bias, result: last }))
}

/// The array of a parameter, or nothing in its place, with the indices, if the value is the parameter or movement of it that a
/// layout can express.
fn parameter(f: &Function, v: Value) -> Option<(String, Vec<Value>)> {
    let mut v = v;
    for _ in 0..FARTHEST {
        let (_, data) = f.definition(v)?;
        match &data.op {
            Op::Param { name } => {
                // Up to the last index: what lies there has as many tensors.
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

/// What a product would lose, if anything.
fn loss(f: &Function, uses: &Uses, product: &Product) -> Option<Loss> {
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
        let text = format!("`{}` is done in the product's kernel", f.inst(*user).op);
        return Some(Loss { condition: Condition::Uses, user: Some(*user), text });
    }
    // Moved results, and which of their axes are columns.
    let columns: Vec<bool> = (1..=own.len()).map(|i| i == own.len()).collect();
    let mut work = vec![(product.result, columns)];
    while let Some((v, columns)) = work.pop() {
        for u in &uses[v] {
            let Use::Operand(user, _) = u else {
                let text = "the result leaves its block".to_string();
                return Some(Loss { condition: Condition::Uses, user: None, text });
            };
            let data = f.inst(*user);
            // A result that is only moved and then returned is written directly, too.
            let moved = match &data.op {
                Op::Transpose { perm } => perm.iter().map(|i| columns.get(*i).copied()).collect(),
                Op::Reshape => recut(shape(v)?, &columns, data.result.and_then(shape)?),
                _ => continue,
            };
            let (Some(result), Some(columns)) = (data.result, moved) else {
                let text = format!("`{}` makes one axis of rows and columns, which would be a copy", data.op);
                return Some(Loss { condition: Condition::Shape, user: Some(*user), text });
            };
            work.push((result, columns));
        }
    }
    None
}

/// Which axes of a reshaped tensor are columns, if each is made of columns or of rows alone.
fn recut(from: &[Dim], columns: &[bool], to: &[Dim]) -> Option<Vec<bool>> {
    // From the last axis on: neighbours that are both rows or both columns, and how many elements they have together.
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

/// Puts one product where the first one stands, and slices of it in the places of all.
fn merge(f: &mut Function, block: Block, products: &[Product]) -> Result<(), String> {
    let first = products.first().ok_or("no products")?.matmul;
    let left = f.inst(first).operands.first().copied().ok_or("a product without operands")?;
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
    let axis = f.tensor(all).map(|t| t.rank().saturating_sub(1)).ok_or("a product of indices")?;
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

/// Moves a parameter, and what moves its elements, before the cursor, if it is after.
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

    /// `[S, 32]`, or what became of it, to another shape: its axes, columns as 1, or nothing.
    fn cut(from: &[i64], columns: &[u8], to: &[i64]) -> Option<Vec<u8>> {
        // No program has 0 here: it stands for an extent that is not known.
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
        // Heads before positions, each regrouped for itself.
        assert_eq!(cut(&[4, 0, 8], &[1, 0, 1], &[2, 2, 0, 8]), Some(vec![1, 1, 0, 1]));
        for to in [&[4, 128][..], &[64, 8], &[512], &[32, 16]] {
            assert_eq!(cut(&[16, 32], &[0, 1], to), None, "{to:?}");
        }
        // The last extent stays, and yet heads and rows become one axis.
        assert_eq!(cut(&[16, 4, 8], &[0, 1, 1], &[64, 8]), None);
        assert_eq!(cut(&[32, 16], &[1, 0], &[512]), None);
    }
}
