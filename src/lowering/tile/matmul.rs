//! Kernels of matrix products with what is done to their results.
//!
//! Leading axes are merged into the rows where every operand allows it, so a batch of sequences times one weight is one
//! tall product.
//!
//! ```text
//! grid (batch.., ceil(M, ROWS), ceil(N, NR))
//!   acc = 0 + A tile @ B panel;  epilogue;  store
//! ```
//!
//! How many of a known number of steps are summed at a time is the schedule's to say (`tile::schedule`, its `steps`). Where the number is
//! known at run time alone, they are summed 512 at a time, in a loop; without an epilogue the last of them come after it,
//! next to the store. The sum of STEPS products begins with 0 ([`tile::Op::Dot`]), and these are added in order: an element is
//! off by at most `(STEPS + K / STEPS) 2^-24` times the sum of its products' sizes, and by less as a rule, where one chain
//! would be off by `K 2^-24`. STEPS depend on K, the machine and the right operand alone, so an element's bits depend on neither
//! rows nor tiles.
//!
//! A tile is one panel wide: NR columns, as many as a register tile of the target has. The sizes follow from where the
//! operands have to lie while they are used again and again:
//!
//! * the tile's rows of A, all K steps of them, are gone through once for each panel, by the grid points that follow each
//!   other, so they should stay in the second-level cache, beside panels that pass through it: `ROWS` is 64, 128 or 256,
//!   such that `ROWS x K` floats take at most 384 KiB, a fifth to a third of that cache (but not below 64 rows);
//! * a panel of B is gone through once for each register tile of rows, from the second-level cache: a register tile of
//!   14 rows takes 14 cycles for a step's 128 bytes. It comes from memory once for each `ROWS` rows, half a byte to two
//!   bytes in a cycle; while one panel is used, the leaf function fetches the next one (`far`), or every first
//!   register tile would wait for memory. `STEPS` bounds what is fetched ahead: 512 x 32 floats are 64 KiB;
//! * the accumulator goes to scratch and back once for each STEPS steps, one cycle in some hundred;
//! * a panel that is not packed yet is copied once for each ROWS rows: at 128 rows two cycles in a hundred, if it is near.
//!   Parameters are packed before all calls, and what many rows are multiplied by just before (`packing`).
//!
//! Where both operands are `bf16` and the target multiplies such pairs, panels have the steps in pairs (`pairs`), the left
//! operand is read as it lies, and as many bytes are twice the steps.

use super::packing::Panels;
use super::pairs;
use super::region::{Env, Operand, Position, Region, Role, buffer_type, counts_along_axes, merge_axes, tile_size};
use super::views::View;
use super::{Call, as_tile, output_buffer};
use crate::ir::{Function, Op, Scalar, Terminator};
use crate::scalar::BinaryOp;
use crate::shape::{Dim, Elem};
use crate::tile::{self, Extent, KernelBuilder, ParamMode, Target, Type, computed};

/// Rows of a tile of the result, at least and at most.
const LEAST_ROWS: i64 = 64;
const MOST_ROWS: i64 = 256;
/// Elements of the left operand that a tile may read, all steps together.
const LEFT_ELEMENTS: i64 = 128 * 768;
/// How much of the inner dimension is taken at a time where it is not known.
const STEPS: i64 = 512;
/// What it is taken for then.
const UNKNOWN_STEPS: i64 = 1024;

/// The same of a product of `bf16` that is: twice as many bytes, for it takes steps several times as fast, and panels must
/// come from memory so much more seldom.
const LEFT_PAIRS: i64 = 4 * LEFT_ELEMENTS;

/// Rows of a tile of the result of a product with so many steps.
fn tile_rows(k: &Dim, in_pairs: bool) -> i64 {
    let steps = k.as_const().unwrap_or(UNKNOWN_STEPS).max(1);
    let most = if in_pairs { LEFT_PAIRS } else { LEFT_ELEMENTS };
    let mut rows = MOST_ROWS;
    while rows > LEAST_ROWS && rows.saturating_mul(steps) > most {
        rows /= 2;
    }
    rows
}

/// The kernel that computes a body of one matmul and elementwise operations on its result into `out`. `panels` gives the
/// right operand `[batch.., K, N]` of so many rows as packed panels `[batch.., P, K, NR]`, if it has them; in pairs, if that
/// is asked for and can be. Panels of integers have scales for groups of steps, of which STEPS is a multiple.
///
/// # Errors
/// A body of another form, a bug in attnc.
pub(super) fn matmul(
    name: &str,
    machine: &Target,
    body: &Function,
    operands: &[Operand],
    out: &View,
    panels: impl FnOnce(&View, &Dim, bool) -> Result<Option<Panels>, String>,
) -> Result<Call, String> {
    let (_, _, product) =
        body.insts().find(|(_, _, d)| d.op == Op::Matmul).ok_or("a matmul region without a matmul")?;
    let product_value = product.result.ok_or("a matmul without a result")?;
    let [a, b] = product.operands.as_slice() else { return Err("a matmul has two operands".into()) };
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
    // What else reads an operand of the matmul reads it elementwise.
    let elementwise = |i: usize| {
        let Some(v) = body.block(body.entry()).args.get(i) else { return false };
        body.insts().any(|(_, _, d)| d.op != Op::Matmul && d.operands.contains(v)) || result == *v
    };

    // The iteration space [batch.., M, N]; A has no N, B has no M.
    let mut shape = out.shape.clone();
    let rank = shape.len();
    let (lead, n) = (rank - 2, shape.last().cloned().unwrap_or_default());
    let k = a.shape.last().cloned().unwrap_or_default();
    let with_lead = |v: &View| {
        let mut full = shape.get(..lead).unwrap_or_default().to_vec();
        full.extend(v.shape.iter().skip(v.shape.len() - 2).cloned());
        v.broadcast(&full)
    };
    let (a, b) = (with_lead(a), with_lead(b));
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
    // The axis before the last is the rows, along which B does not vary. Where it was dropped, put one back.
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

    let wanted = pairs::are_wanted(machine, &a2, &b2);
    let packed = panels(&b2, &shape[rank - 2], wanted)?;
    let in_pairs = packed.as_ref().is_some_and(|p| p.in_pairs);
    let mut scales = packed.as_ref().and_then(|p| p.scales.clone());
    let mut own: Vec<usize> = (0..rank - 2).collect();
    if let Some(p) = &packed {
        b2 = p.numbers.clone();
        // Panels of integers have axes of known extents alone: those along which they repeat are left out.
        if let Some((view, _)) = &mut scales {
            for i in (0..rank - 2).rev().filter(|i| p.numbers.strides.get(*i) == Some(&zero())) {
                (b2, *view) = (b2.select(i, &zero()), view.select(i, &zero()));
                own.remove(i);
            }
        }
    }
    let mut kb = KernelBuilder::new(name);
    kb.at(product.loc);
    let buffer_a = kb.buffer(buffer_type(&a2), ParamMode::In);
    let buffer_b = kb.buffer(buffer_type(&b2), ParamMode::In);
    let scales = scales.as_ref().map(|(view, bits)| (view, kb.buffer(buffer_type(view), ParamMode::In), *bits));
    let mut region = Region::new(body, views, now);
    region.declare(&mut kb, elementwise);
    let buffer = output_buffer(&mut kb, &target);
    let (mut axes, mut grid) = (Vec::new(), Vec::new());
    let (mut rows, mut cols) = (Extent::Static(1), Extent::Static(1));
    for (i, extent) in shape.iter().enumerate() {
        let (role, max) = match rank - i {
            1 => (Role::Cols, tile_size(extent, machine.columns)),
            2 => (Role::Rows, tile_size(extent, tile_rows(&k, in_pairs))),
            _ => (Role::Point, 1),
        };
        let point = kb.grid_axis(extent, max);
        grid.push(point);
        let start = kb.times(point, max);
        match role {
            Role::Cols => cols = kb.extent_at(extent, start, max),
            Role::Rows => rows = kb.extent_at(extent, start, max),
            Role::Point => {}
        }
        axes.push((role, start));
    }
    // Along the last axis each point has a panel.
    let panel = *grid.last().ok_or("a matmul without axes")?;
    let at = Position { axes, rows, cols };
    let starts = at.starts();
    let (points, row_start, col_start) = (&starts[..rank - 2], starts[rank - 2], starts[rank - 1]);

    // i8 and the integers accumulate in their own type, floats in f32.
    let elem = computed(a.elem);
    let init = if elem == Elem::F32 { Scalar::Float(0.0) } else { Scalar::Int(0) };
    let acc = kb.full(init, elem, rows, cols);
    let product_at = |kb: &mut KernelBuilder, kk, inner: Extent, acc| {
        let ia = [points, &[row_start, kk]].concat();
        let ta = kb.load(buffer_a, &ia, (Some(rank - 2), Some(rank - 1)), rows, inner);
        let tb = match (&packed, scales) {
            (_, Some((_, scales, bits))) => {
                // Bytes of half numbers have two steps.
                let steps = kb.index(i64::from(8 / bits));
                let (row, first) = (kb.index_binary(BinaryOp::Div, kk, steps), kb.index(0));
                let points: Vec<tile::Value> = own.iter().map(|i| points[*i]).collect();
                let operands = [&[buffer_b], points.as_slice(), &[panel, row, first, scales]].concat();
                let ty = Type::Tile(KernelBuilder::tile_type(Elem::F32, inner, cols));
                kb.value(tile::Op::LoadScaled { bits }, operands, ty)
            }
            (Some(_), None) if in_pairs => {
                let (two, first) = (kb.index(2), kb.index(0));
                let pair = kb.index_binary(BinaryOp::Div, kk, two);
                let operands = [&[buffer_b], points, &[panel, pair, first, first]].concat();
                let ty = Type::Tile(KernelBuilder::tile_type(Elem::F32, inner, cols));
                kb.value(tile::Op::LoadPairs, operands, ty)
            }
            (Some(_), None) => {
                let first = kb.index(0);
                let ib = [points, &[panel, kk, first]].concat();
                kb.load(buffer_b, &ib, (Some(rank - 1), Some(rank)), inner, cols)
            }
            (None, None) => {
                let ib = [points, &[kk, col_start]].concat();
                kb.load(buffer_b, &ib, (Some(rank - 2), Some(rank - 1)), inner, cols)
            }
        };
        kb.dot(ta, tb, acc)
    };
    // The last steps of a product with which nothing else is done stand right before its store, so that the sums need not
    // go through scratch.
    let is_plain = result == product_value;
    let product_tile = match k.as_const().filter(|n| *n > 0) {
        Some(all) => {
            let start = kb.index(0);
            product_at(&mut kb, start, Extent::Static(all), acc)
        }
        None => kb.summed(&k, tile_size(&k, STEPS), is_plain, acc, product_at),
    };
    let product_elem = body.tensor(product_value).ok_or("a matmul of indices")?.elem;
    let mut env = Env::new();
    env[product_value] = Some(kb.narrow(product_tile, product_elem));
    region.eval(&mut kb, &mut env, &at, &[result])?;
    let tile = env[result].ok_or("the result was not evaluated")?;
    let tile = as_tile(&mut kb, tile, &at);
    kb.store(buffer, &starts, at.tile_axes(), tile);
    let mut buffers = vec![a2, b2];
    buffers.extend(scales.map(|(view, ..)| view.clone()));
    buffers.extend(region.declared());
    buffers.push(target);
    Ok(Call { kernel: kb.finish(), buffers })
}
