//! Kernels of matmuls with their epilogues.
//!
//! Leading axes are merged into the rows where every operand permits it, so a batch of sequences
//! times one weight is a single tall matmul.
//!
//! ```text
//! grid (batch.., ceil(M, 64), ceil(N, 64))
//!   acc = 0 + A tile @ B tile;  epilogue;  store
//! ```
//!
//! The right operand is read in its original layout, in tiles that are independent of the machine;
//! the schedule chooses other tiles and layouts (`tile::schedule`, `panels`).
//!
//! The schedule also chooses how many of a constant number of k iterations are summed at a time
//! (its `steps`). Where K is not a constant, or exceeds 2^20, STEPS = 256 of them are summed at a
//! time, in a loop; without an epilogue the last ones come after the loop, next to the store. Each
//! partial sum of STEPS products starts at 0 ([`Op::Dot`](crate::tile::Op::Dot)), and the partial
//! sums are added in order. The error of an element is at most `(STEPS + K / STEPS) 2^-24` times
//! the sum of the absolute products, and usually less; one chain would have `K 2^-24`. STEPS
//! depends on K, the machine and the right operand alone, so an element's bits depend on neither
//! the number of rows nor the tiles.

use super::region::{Env, Operand, Region, buffer_type, counts_along_axes, merge_axes, with_lead};
use super::{Call, as_tile, output_buffer};
use crate::ir::{Function, Op, Terminator};
use crate::shape::Dim;
use crate::tile::epilogue::ResultTile;
use crate::tile::{self, Compute, Kernel, KernelBuilder, Matmul, ParamMode, View};

/// The kernel that computes a matmul and its elementwise epilogue into `out`.
///
/// # Errors
/// A body of another structure, which is a bug in attnc.
pub(super) fn matmul(name: &str, body: &Function, operands: &[Operand], out: &View) -> Result<Call, String> {
    let (_, _, product) =
        body.insts().find(|(_, _, d)| d.op == Op::Matmul).ok_or("a matmul region without a matmul")?;
    let product_value = product.result.ok_or("a matmul without a result")?;
    let [a, b] = product.operands.as_slice() else { return Err("a matmul must have two operands".into()) };
    let argument = |v| body.block(body.entry()).args.iter().position(|x| *x == v);
    let (Some(ia), Some(ib)) = (argument(*a), argument(*b)) else {
        return Err("a matmul's operands are not the region's arguments".into());
    };
    let view = |i: usize| operands.get(i).and_then(Operand::view).ok_or("a matmul of something that is not in memory");
    let (a, b) = (view(ia)?, view(ib)?);
    let Terminator::Return(results) = &body.block(body.entry()).terminator else {
        return Err("a region does not return".into());
    };
    let result = *results.first().ok_or("a region without a result")?;
    // Other uses of the matmul's operands read them elementwise.
    let elementwise = |i: usize| {
        let Some(v) = body.block(body.entry()).args.get(i) else { return false };
        body.insts().any(|(_, _, d)| d.op != Op::Matmul && d.operands.contains(v)) || result == *v
    };

    // Iteration space [batch.., M, N]; A has no N axis, B has no M axis.
    let mut shape = out.shape.clone();
    let rank = shape.len();
    let (lead, n) = (rank - 2, shape.last().cloned().unwrap_or_default());
    let k = a.shape.last().cloned().unwrap_or_default();
    let (a, b) = (with_lead(a, &shape[..lead]), with_lead(b, &shape[..lead]));
    let mut views: Vec<Operand> = operands.to_vec();
    for (i, o) in views.iter_mut().enumerate() {
        if let Operand::View(v) = o
            && elementwise(i)
        {
            *v = v.broadcast(&shape);
        }
    }
    let mut target = out.clone();
    let zero = Dim::zero;
    let mut strides = vec![target.strides.clone()];
    strides.push([&a.strides[..rank - 1], &[zero()]].concat());
    strides.push([&b.strides[..lead], &[zero(), b.strides[rank - 1].clone()]].concat());
    for (i, o) in views.iter().enumerate() {
        if let (Operand::View(v), true) = (o, elementwise(i)) {
            strides.push(v.strides.clone());
        }
    }
    let counts = counts_along_axes(body);
    let mut now = merge_axes(&mut shape, &mut strides, |i| counts || i == rank - 1);
    // The axis before the last is the rows, along which B does not vary. Reinsert it if it was
    // dropped.
    let last = shape.len() - 1;
    let has_rows = last.checked_sub(1).and_then(|i| strides.get(2)?.get(i)).is_some_and(|s| *s == zero());
    if !has_rows {
        shape.insert(last, Dim::one());
        strides.iter_mut().for_each(|s| s.insert(last, zero()));
        now.iter_mut().flatten().filter(|i| **i >= last).for_each(|i| *i += 1);
    }
    let rank = shape.len();
    let mut merged = strides.into_iter();
    target.shape = shape.clone();
    target.strides = merged.next().unwrap_or_default();
    let (mut a2, mut b2) = (a.clone(), b.clone());
    let sa = merged.next().unwrap_or_default();
    let sb = merged.next().unwrap_or_default();
    a2.shape = [&shape[..rank - 1], std::slice::from_ref(&k)].concat();
    a2.strides = [&sa[..rank - 1], &[a.strides.last().cloned().unwrap_or_default()]].concat();
    b2.shape = [&shape[..rank - 2], &[k.clone(), n.clone()]].concat();
    b2.strides = [&sb[..rank - 2], &b.strides[b.strides.len() - 2..]].concat();
    for (i, o) in views.iter_mut().enumerate() {
        if let (Operand::View(v), true) = (o, elementwise(i)) {
            v.shape = shape.clone();
            v.strides = merged.next().unwrap_or_default();
        }
    }

    let mut kb = KernelBuilder::new(name);
    kb.at(product.loc);
    kb.buffer(buffer_type(&a2), ParamMode::In);
    kb.buffer(buffer_type(&b2), ParamMode::In);
    let mut region = Region::new(body, views, now);
    region.declare(&mut kb, elementwise);
    let buffer = output_buffer(&mut kb, &target);
    let description = Matmul::new(result == product_value);
    let ResultTile { result: product_tile, at } =
        tile::matmul::write(&mut kb, &description).ok_or("a matmul of other operands")?;
    let product_elem = body.tensor(product_value).ok_or("a matmul of indices")?.elem;
    let mut env = Env::new();
    env[product_value] = Some(kb.narrow(product_tile, product_elem));
    region.eval(&mut kb, &mut env, &at, &[result])?;
    let tile = env[result].ok_or("the result was not evaluated")?;
    let tile = as_tile(&mut kb, tile, &at);
    kb.store(buffer, &at.starts(), at.tile_axes(), tile);
    let mut buffers = vec![a2, b2];
    buffers.extend(region.declared());
    buffers.push(target);
    let compute = Some(Compute::Matmul(description));
    Ok(Call { kernel: Kernel { compute, ..kb.finish() }, buffers })
}
