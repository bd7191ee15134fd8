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
//! * The left operand is the same value, no parameter; the right ones are parameters of one shape but for their columns, all
//!   extents known, at least two columns each, read as they are, transposed, or cut at known places. Parameters of an array
//!   of layers are of the same array at the same index.
//! * The products stand in one block. If what uses a product is one `add` of a parameter with an element for each column, in the
//!   same block, that goes along; products with such an `add` and products without it are not merged with each other.
//! * `uses`: what then uses the result moves it, contracts it (`matmul`, `attention`), or taps it. Elementwise work would be
//!   lost as the epilogue of a product (in `silu(gate(x)) * up(x)` both products stay), and what the function gives back is
//!   written in place by a product of its own.
//!
//! It is exact: each element is the same sum in the same order.
//!
//! # What it does not do
//!
//! It adds no transposition and moves no product behind another: the merged one stands where the first stood.

use std::collections::BTreeMap;

use super::rewrite::{Cursor, Uses, remove_unused, replace_result};
use super::{Changed, Condition, Context};
use crate::ir::{Block, Class, Function, Inst, Op, Use, Value};
use crate::scalar::BinaryOp;
use crate::shape::{Dim, Elem};

/// The most steps of movement between a parameter and a product.
const FARTHEST: usize = 4;

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

/// Runs the pass.
pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut merged = 0;
    for block in f.layout.clone() {
        let uses = f.uses();
        let mut groups: BTreeMap<Key, Vec<Product>> = BTreeMap::new();
        for inst in f.block(block).insts.clone() {
            if let Some((key, product)) = candidate(f, &uses, block, inst) {
                groups.entry(key).or_default().push(product);
            }
        }
        for products in groups.into_values().filter(|g| g.len() > 1) {
            let (fit, lost): (Vec<Product>, Vec<Product>) =
                products.into_iter().partition(|p| spoiler(f, &uses, p).is_none());
            // Where none can be merged, the author means something else.
            for p in lost.iter().filter(|_| !fit.is_empty()) {
                if let Some((user, text)) = spoiler(f, &uses, p) {
                    let notes = user.map(|i| (f.inst(i).loc, "here".to_string())).into_iter().collect();
                    ctx.missed(f, f.inst(p.matmul).loc, Condition::Uses, text, notes);
                }
            }
            let loc = fit.first().map(|p| f.inst(p.matmul).loc).unwrap_or_default();
            let count = fit.len();
            if count > 1 && merge(f, block, &fit).is_ok() {
                let with = if fit[0].bias.is_some() { " and their biases" } else { "" };
                ctx.done(f, loc, format!("one product: {count} products of the same left operand{with}"));
                merged += count;
            }
        }
    }
    if merged > 0 {
        remove_unused(f);
    }
    ctx.count("products merged", merged);
    Changed::from(merged > 0)
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
        // What the weight is taken by is known before the product.
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
        let (_, data) = f.def_inst(v)?;
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

/// What would be lost, and the user because of whom.
fn spoiler(f: &Function, uses: &Uses, product: &Product) -> Option<(Option<Inst>, String)> {
    let (mut work, mut next) = (vec![product.result], 0);
    while let Some(v) = work.get(next).copied() {
        for u in &uses[v] {
            let Use::Operand(user, _) = u else {
                return Some((None, "the result leaves its block".to_string()));
            };
            let data = f.inst(*user);
            match (&data.op, data.op.info().class) {
                // What is merely moved and then given back is written in its place, too.
                (Op::Reshape | Op::Transpose { .. }, _) => work.extend(data.result),
                (Op::Matmul | Op::Attention { .. } | Op::Tap { .. }, _) | (_, Class::Movement) => {}
                (op, _) if next == 0 => return Some((Some(*user), format!("`{op}` is done in the product's kernel"))),
                _ => {}
            }
        }
        next += 1;
    }
    None
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

/// Moves a parameter, and what moves its elements, before the cursor, if it stands behind.
fn hoist(f: &mut Function, at: Cursor, v: Value) {
    let mut chain = Vec::new();
    let mut next = f.def_inst(v);
    while let Some((inst, data)) = next {
        chain.push(inst);
        next = match data.op {
            Op::Param { .. } => None,
            _ => data.operands.first().and_then(|x| f.def_inst(*x)),
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
