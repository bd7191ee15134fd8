//! Kernels of attention: tiles of queries against blocks of keys with an online softmax, so that the score matrix never
//! exists (Milakov & Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135, algorithm 1; normalised once
//! at the end as in Dao 2023, arXiv:2307.08691, section 3.1).
//!
//! Tiles lie on their sides: queries are columns, so that each lane of a vector register has a query of its own, and a
//! maximum or a sum over keys has no horizontal steps. Keys and values need no packing: they are left operands of
//! products, read in place, an element at a time.
//!
//! ```text
//! grid (batch and heads.., ceil(S, Q), ceil(E, 256))          Q: columns of a product's register tile
//!   qt = transpose(q tile * (scale * log2 e))                  [D, Q]
//!   for each 256 keys:                                         (`keys`)
//!     s  = k block @ qt;  masks                                [256, Q]
//!     m' = max(m, columns' max of s);  p = 2^(s - m');  c = 2^(m - m')
//!     l  = l c + columns' sum of p;  acc = acc c + v block^T @ p     [1, Q], [E, Q]
//!   y = transpose(acc * (1 / l));  epilogue;  store            [Q, E]
//! ```
//!
//! Where queries, keys and values are `bf16` and the target multiplies pairs of such steps ([`QueryLayout::InLanePairs`]), both products
//! do. Queries on their sides are rounded to pairs (which changes nothing: they were `bf16`), keys are read in place; the
//! weights of a block are rounded to `bf16`, pairs of keys side by side, and the values lie as panels for each block of keys,
//! turned, so that the keys of a column are neighbours (the plan packs them before).
//!
//! ```text
//!     s  = k block @ pair_rows(qt)                             [256, Q], the scale not in it
//!     p  = 2^((s - m') (scale * log2 e))
//!     acc = acc c + v panel @ pair_rows(p)                     the sum is of p as it was
//! ```
//!
//! So a call with one query costs as much as one with all lanes full. Where there are few, and heads lie side by side in
//! the rows of keys and values, each query is a grid point of its own ([`QueryLayout::KeysInLanes`]): a score is the sum of a row
//! of `k block * q`, the result that of the columns of `v block * p`, and both are read once, row after row, whatever type
//! they are.
//!
//! A soft cap is a `tanh` and a product among the masks. A sink is where the running maximum and sum begin: at its score and at
//! 1, instead of at `-inf` and 0, as if a key with no value had been seen. So no row is without a weight, unless its sink is
//! `-inf`, and a row that sees no key gives zeros.
//!
//! With a causal mask last, keys that no query of the tile sees are not visited. Blocks of keys that every query of the
//! tile sees come first, in a loop without the mask. Any head width works: up to 256 the queries are one tile, beyond
//! it the scores are summed over chunks of the width, and the result's columns are divided among grid points. Keys and
//! values that are no `f32`, or have no dense axis, go through scratch, in smaller blocks; the plan copies them before
//! where there are many queries (`plan::attention`).
//!
//! Numerics: rows that have seen only masked keys take 0 for `m'`, so nothing becomes NaN, and a row that ends with `l = 0`
//! gives zeros. A key that a mask hides contributes nothing, even if its value is NaN or infinite, in every form and on
//! every instruction set (`keys`); unfused, its weight of 0 is multiplied by it, which is NaN. Each rescaling rounds once,
//! so the relative error grows by at most one unit of the last place for each block of keys that raises the maximum; the sum
//! is at least 1, and its inverse rounds once too. Where keys or values are no `f32`, or have no dense axis, a row's bits
//! depend on the number of queries of the call: blocks are of 64 keys below 64 queries, of 256 from there on
//! (`plan::attention`).
//!
//! A scale that is a literal between 2^-20 and 1 is multiplied into the queries: each term of a score then rounds once more,
//! by half a unit of the term's last place. Other scales are multiplied into the scores, as written: they may not be
//! finite, or may overflow. A single query's sums are those of reductions: its bits are not those of the same query among
//! many.
//!
//! With pairs, a weight is rounded to `bf16` before it is divided by the sum, where the program as written rounds it after: by
//! one part in 2^8 at most either way, so the result is off by at most 2^-8 times the sum of the weights' products with the
//! values' sizes. (How far the program as written may be off, whose scores are rounded too: `passes::fuse_attention`.) Weights
//! below 2^-126 of the largest are 0, and so are subnormal queries, keys and values: a product with one is lost, which may be
//! as much as 2^-126 times the other factor, up to 4. Steps go in pairs, so behind an odd number of keys the value of a key that
//! the causal mask hides from the tile may be multiplied by 0: if that makes the sums NaN, they are computed again.
//!
//! Powers are powers of two, which cost half of what powers of e do: `e^x = 2^(x log2 e)`. Where the scale goes into
//! the queries and the masks are literals, so does `log2 e`: the scores are 1.44 times what was written and overflow
//! beyond 2.3e38 (scale times `log2 e` is rounded to `f32`, which moves all scores by one and the same part, at most
//! 2^-24). Else it is multiplied into `s - m'`, which rounds by half a unit of the last place of a number that is at
//! most twice as large as a score: no more than the scores themselves were rounded. Where there is a soft cap, `log2 e` goes
//! into the number that `tanh` is multiplied by, if the masks behind it are literals. A cap or a sink that is read at run time
//! is multiplied by it too, and overflows beyond 2.3e38.

mod keys;

use std::f64::consts::LOG2_E;

use super::region::{Env, Operand, Position, Region, Role, buffer_type, counts_along_axes, literal, tile_size};
use super::{Call, as_tile, output_buffer};
use crate::ir::{Function, InstData, Loc, MaskKind, Op, Scalar, Terminator};
use crate::scalar::{BinaryOp, CmpOp, round_to};
use crate::shape::{Dim, Elem};
use crate::tile::{self, Extent, KernelBuilder, ParamMode, View, computed};

/// Widest head that is one tile.
const WIDTH: i64 = 256;
/// How much of a wider head is taken at a time.
const CHUNK: i64 = 64;
/// Keys of a block whose keys and values are read in place.
pub(in crate::lowering::tile) const KEYS: i64 = 256;
/// Keys of a block that is copied to scratch.
const COPIED_KEYS: i64 = 64;

const ONE: Extent = Extent::Static(1);

/// What a mask or the scale is: in a buffer, or the same everywhere.
enum Source {
    Buffer(tile::Value),
    Literal(Scalar, Elem),
    Dim(Dim, Elem),
}

/// What the lanes of vectors hold in a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lowering::tile) enum QueryLayout {
    /// Queries, in transposed tiles.
    InLanes,
    /// The same in `bf16`, with products of pairs of steps: the values are given as panels `[batch.., P, E, KEYS]`, a panel for
    /// each block of keys.
    InLanePairs,
    /// Keys or columns: one query for each grid point.
    KeysInLanes,
}

/// How the scale comes in.
#[derive(Clone, Copy, Default)]
struct Scale {
    /// What the queries are multiplied by.
    queries: Option<tile::Value>,
    /// What the scores are multiplied by.
    scores: Option<tile::Value>,
    /// What differences of scores are multiplied by to be exponents of 2, if they are not yet.
    exponents: Option<tile::Value>,
}

/// A mask or a soft cap, in order of application.
struct Mask {
    kind: MaskKind,
    loc: Loc,
    operand: Option<Source>,
    /// The score of what a `keep` does not keep; what a cap multiplies by.
    number: Option<tile::Value>,
}

/// What is done to the scores, as it is written.
struct Written {
    kind: MaskKind,
    loc: Loc,
    operand: Option<Source>,
    /// The fill, or the cap.
    number: Option<Source>,
}

/// Where the program says what a kernel does.
#[derive(Clone, Copy)]
struct Places {
    /// The product of queries and keys.
    scores: Loc,
    scale: Loc,
    sink: Loc,
    softmax: Loc,
    /// The product with the values: the place of what nothing else asks for.
    values: Loc,
}

/// The places of an attention's steps and of what is done to its scores: the whole's, where they are not known.
fn places(d: &InstData, masks: &[MaskKind]) -> (Places, Vec<Loc>) {
    let at = |i: usize| d.parts.get(i).copied().filter(|loc| loc.line > 0).unwrap_or(d.loc);
    let of_masks: Vec<Loc> = (0..masks.len()).map(|i| at(2 + i)).collect();
    let sink = of_masks.last().copied().unwrap_or(d.loc);
    (Places { scores: at(0), scale: at(1), sink, softmax: at(2 + masks.len()), values: d.loc }, of_masks)
}

/// What the parts of the kernel share.
struct Attention {
    places: Places,
    layout: QueryLayout,
    /// Rank of the buffers; the last two axes are rows and columns.
    rank: usize,
    /// The place along the leading axes.
    points: Vec<tile::Value>,
    /// Buffers of queries, keys and values.
    q: tile::Value,
    k: tile::Value,
    v: tile::Value,
    /// Width of a head, number of keys.
    d: Dim,
    t: Dim,
    /// First query and column of the result; how many there are.
    row: tile::Value,
    col: tile::Value,
    queries: Extent,
    width: Extent,
    /// Keys of a block.
    block: i64,
    /// Number of keys minus number of queries.
    shift: tile::Value,
    scale: Scale,
    masks: Vec<Mask>,
    /// One more score in each row, which has no value.
    sink: Option<Source>,
}

/// The kernel that computes a body of one attention and elementwise operations on its result into `out`, as many queries to a tile
/// where they are in lanes.
///
/// # Errors
/// A body of another form, a bug in attnc.
pub(super) fn attention(
    name: &str,
    tile_queries: i64,
    body: &Function,
    operands: &[Operand],
    out: &View,
    layout: QueryLayout,
    panels: Option<&View>,
) -> Result<Call, String> {
    let (masks, attention) = body
        .insts()
        .find_map(|(_, _, d)| match &d.op {
            Op::Attention { masks } => Some((masks.clone(), d)),
            _ => None,
        })
        .ok_or("an attention region without an attention")?;
    let attention_value = attention.result.ok_or("an attention without a result")?;
    let entry = body.block(body.entry());
    let Terminator::Return(results) = &entry.terminator else {
        return Err("a region does not return".into());
    };
    let result = *results.first().ok_or("a region without a result")?;
    // An operand of the attention: an argument of the region, or a literal inside it.
    let source = |i: usize| -> Result<Operand, String> {
        let v = *attention.operands.get(i).ok_or("an operand is missing")?;
        if let Some(k) = entry.args.iter().position(|x| *x == v) {
            return operands.get(k).cloned().ok_or_else(|| "an operand is not bound".into());
        }
        match body.definition(v).map(|(_, d)| &d.op) {
            Some(Op::Const(s)) => Ok(Operand::Literal(*s)),
            Some(Op::DimValue(d)) => Ok(Operand::Dim(d.clone())),
            _ => Err("an operand of an attention is computed inside the region".into()),
        }
    };
    let elementwise = |i: usize| {
        let Some(v) = entry.args.get(i) else { return false };
        body.insts().any(|(_, _, d)| !matches!(d.op, Op::Attention { .. }) && d.operands.contains(v)) || result == *v
    };
    let view = |i: usize| match source(i)? {
        Operand::View(v) => Ok(v),
        Operand::Literal(_) | Operand::Dim(_) => Err("an attention of something that is not in memory".to_string()),
    };
    let (q, k, v) = (view(0)?, view(1)?, view(2)?);
    let rank = out.shape.len();
    let lead = rank - 2;
    let last_two = |x: &View| (x.shape[x.shape.len() - 2].clone(), x.shape[x.shape.len() - 1].clone());
    let ((s, d), (t, _), (_, e)) = (last_two(&q), last_two(&k), last_two(&v));
    let with_lead = |x: &View, rows: &Dim, cols: &Dim| {
        let mut full = out.shape.get(..lead).unwrap_or_default().to_vec();
        full.extend([rows.clone(), cols.clone()]);
        x.broadcast(&full)
    };
    let (q, k) = (with_lead(&q, &s, &d), with_lead(&k, &t, &d));
    let v = panels.map_or_else(|| with_lead(&v, &t, &e), View::clone);

    let mut kb = KernelBuilder::new(name);
    kb.at(attention.loc);
    let (places, places_of_masks) = places(attention, &masks);
    let mut buffers = vec![q.clone(), k.clone(), v.clone()];
    let bq = kb.buffer(buffer_type(&q), ParamMode::In);
    let bk = kb.buffer(buffer_type(&k), ParamMode::In);
    let bv = kb.buffer(buffer_type(&v), ParamMode::In);
    // The scale, then what the masks read, over the scores' axes.
    let mut sources = Vec::new();
    for i in 3..attention.operands.len() {
        let ty = body.tensor(attention.operands[i]).ok_or("an index in a region")?.clone();
        sources.push(match source(i)? {
            Operand::Literal(x) => Source::Literal(x, ty.elem),
            Operand::Dim(x) => Source::Dim(x, ty.elem),
            Operand::View(x) => {
                let is_sink = i + 1 == attention.operands.len() && masks.last() == Some(&MaskKind::Sink);
                let x = match ty.rank() {
                    0 => x,
                    _ if is_sink => with_lead(&x, &s, &Dim::one()),
                    _ => with_lead(&x, &s, &t),
                };
                let b = kb.buffer(buffer_type(&x), ParamMode::In);
                buffers.push(x);
                Source::Buffer(b)
            }
        });
    }
    let mut views: Vec<Operand> = operands.to_vec();
    for (i, o) in views.iter_mut().enumerate() {
        if let Operand::View(x) = o
            && elementwise(i)
        {
            *x = x.broadcast(&out.shape);
        }
    }
    debug_assert!(!counts_along_axes(body) || lead + 2 == rank, "axes are not merged here");
    let mut region = Region::new(body, views, (0..rank).map(Some).collect());
    region.declare(&mut kb, elementwise);
    buffers.extend(region.declared());
    let target = output_buffer(&mut kb, out);
    buffers.push(out.clone());

    // The grid.
    let mut points = Vec::new();
    for extent in &out.shape[..lead] {
        points.push(kb.grid_axis(extent, 1));
    }
    let tile_of = |kb: &mut KernelBuilder, extent: &Dim, most: i64| {
        let size = tile_size(extent, most);
        let point = kb.grid_axis(extent, size);
        let start = kb.times(point, size);
        (start, kb.extent_at(extent, start, size))
    };
    let (row, queries) = match layout {
        QueryLayout::InLanes | QueryLayout::InLanePairs => tile_of(&mut kb, &s, tile_queries),
        QueryLayout::KeysInLanes => (kb.grid_axis(&s, 1), ONE),
    };
    let (col, width) = tile_of(&mut kb, &e, WIDTH);

    let mut sources = sources.into_iter();
    let scale = sources.next().ok_or("an attention without a scale")?;
    let (mut written, mut sink) = (Vec::new(), None);
    for (kind, loc) in masks.into_iter().zip(places_of_masks) {
        let mut next = || sources.next().ok_or("a mask without its operand");
        let (operand, number) = match kind {
            MaskKind::Causal => (None, None),
            MaskKind::Add => (Some(next()?), None),
            MaskKind::Keep => (Some(next()?), Some(next()?)),
            MaskKind::Cap => (None, Some(next()?)),
            MaskKind::Sink => {
                sink = Some(next()?);
                continue;
            }
        };
        written.push(Written { kind, loc, operand, number });
    }
    let last_cap = written.iter().rposition(|m| m.kind == MaskKind::Cap);
    let behind_cap = last_cap.map_or(0, |n| n + 1);
    kb.at(places.scale);
    let scale = match layout {
        QueryLayout::InLanes | QueryLayout::KeysInLanes => scale_of(&mut kb, &scale, &written, behind_cap),
        QueryLayout::InLanePairs => scale_of_pairs(&mut kb, &scale, &written, behind_cap, sink.is_some()),
    };
    let mut read = Vec::new();
    for (n, Written { kind, loc, operand, number }) in written.into_iter().enumerate() {
        kb.at(loc);
        // A fill or a cap is a scalar, read once. From the last cap on, scores are exponents of 2 where nothing is added to them.
        let exponents = scale.exponents.is_none() && last_cap.is_none_or(|cap| n >= cap);
        let number = number.map(|x| if exponents { exponent_of(&mut kb, &x) } else { scalar_of(&mut kb, &x) });
        read.push(Mask { kind, loc, operand, number });
    }
    kb.at(places.values);
    let copied = layout == QueryLayout::InLanes && !(in_place(&kb, bk) && in_place(&kb, bv));
    let block = if copied { COPIED_KEYS } else { KEYS };
    let parts = Attention {
        places,
        layout,
        rank,
        points,
        q: bq,
        k: bk,
        v: bv,
        block: tile_size(&t, block),
        shift: kb.dim(&t.sub(&s)),
        d,
        t,
        row,
        col,
        queries,
        width,
        scale,
        masks: read,
        sink,
    };
    let [sum, acc] = parts.all_keys(&mut kb)?;

    kb.at(places.softmax);
    let zero = kb.scalar(Scalar::Float(0.0), Elem::F32);
    let empty = kb.compare(CmpOp::Eq, sum, zero);
    let one = kb.scalar(Scalar::Float(1.0), Elem::F32);
    let inverse = kb.binary(BinaryOp::Div, one, sum);
    let mean = kb.binary(BinaryOp::Mul, acc, inverse);
    let y = kb.select(empty, zero, mean);
    kb.at(places.values);
    let y = if layout == QueryLayout::KeysInLanes { y } else { kb.transpose(y) };
    let elem = body.tensor(attention_value).ok_or("an attention of indices")?.elem;
    let mut env = Env::new();
    env[attention_value] = Some(kb.narrow(y, elem));
    let mut place: Vec<(Role, tile::Value)> = parts.points.iter().map(|p| (Role::Point, *p)).collect();
    place.extend([(Role::Rows, row), (Role::Cols, col)]);
    let at = Position { axes: place, rows: queries, cols: width };
    region.eval(&mut kb, &mut env, &at, &[result])?;
    let tile = env[result].ok_or("the result was not evaluated")?;
    let tile = as_tile(&mut kb, tile, &at);
    kb.store(target, &at.starts(), at.tile_axes(), tile);
    Ok(Call { kernel: kb.finish(), buffers })
}

/// Is an axis of a buffer dense?
fn is_dense(kb: &KernelBuilder, buffer: tile::Value, axis: usize) -> bool {
    kb.ty(buffer).buffer().is_some_and(|b| b.is_dense(axis))
}

/// Can a product read tiles of the last two axes in place?
fn in_place(kb: &KernelBuilder, buffer: tile::Value) -> bool {
    kb.ty(buffer).buffer().is_some_and(|b| b.is_left_operand(b.shape.len() - 2, b.shape.len() - 1))
}

/// A tile whose rows go along one axis and columns along another; where only the rows' axis is dense, it is read the other
/// way round and turned. `factor` is multiplied into it on the way, as its place says.
fn load_turned(
    kb: &mut KernelBuilder,
    buffer: tile::Value,
    at: &[tile::Value],
    axes: (usize, usize),
    extents: (Extent, Extent),
    factor: Option<(tile::Value, Loc)>,
) -> tile::Value {
    let turn = is_dense(kb, buffer, axes.0) && !is_dense(kb, buffer, axes.1);
    let ((rows, cols), (high, wide)) = if turn { ((axes.1, axes.0), (extents.1, extents.0)) } else { (axes, extents) };
    let mut x = kb.load(buffer, at, (Some(rows), Some(cols)), high, wide);
    if let Some((f, loc)) = factor {
        x = kb.placed(loc, |kb| kb.binary(BinaryOp::Mul, x, f));
    }
    if turn { kb.transpose(x) } else { x }
}

/// What is put in the scores' place can be multiplied beforehand, what is added to them cannot.
fn are_literals(masks: &[Written]) -> bool {
    masks.iter().all(|m| match m.kind {
        MaskKind::Causal => true,
        MaskKind::Keep => matches!(m.number, Some(Source::Literal(..))),
        MaskKind::Add | MaskKind::Cap | MaskKind::Sink => false,
    })
}

/// How the scale comes in, and `log2 e`: into the queries or the last cap, where no mask `behind_cap` forbids it.
fn scale_of(kb: &mut KernelBuilder, s: &Source, masks: &[Written], behind_cap: usize) -> Scale {
    let float = |kb: &mut KernelBuilder, x| kb.scalar(Scalar::Float(x), Elem::F32);
    let literals = are_literals(masks.get(behind_cap..).unwrap_or_default());
    let exponents = |kb| Some(float(kb, LOG2_E));
    let into_cap = literals && behind_cap > 0;
    match s {
        Source::Literal(x, elem) if (2f64.powi(-20)..=1.0).contains(&x.as_f64().abs()) => {
            let x = round_to(*elem, x.as_f64());
            if literals && !into_cap {
                Scale { queries: Some(float(kb, exponent(x))), ..Scale::default() }
            } else {
                let queries = if x == 1.0 { None } else { Some(float(kb, x)) };
                Scale { queries, exponents: if into_cap { None } else { exponents(kb) }, ..Scale::default() }
            }
        }
        _ => {
            let scores = Some(scalar_of(kb, s));
            Scale { scores, exponents: if into_cap { None } else { exponents(kb) }, ..Scale::default() }
        }
    }
}

/// The scale where queries stay as they are, for products take them as `bf16`. Where masks put nothing but `-inf` in place of
/// scores, and nothing else is compared with these, a scale that keeps their order is multiplied into what their powers are
/// taken of.
fn scale_of_pairs(kb: &mut KernelBuilder, s: &Source, masks: &[Written], behind_cap: usize, has_sink: bool) -> Scale {
    let hides = |m: &Written| match (m.kind, &m.number) {
        (MaskKind::Causal, _) => true,
        (MaskKind::Keep, Some(Source::Literal(x, _))) => x.as_f64() == f64::NEG_INFINITY,
        _ => false,
    };
    match s {
        Source::Literal(x, elem)
            if !has_sink && masks.iter().all(hides) && (2f64.powi(-20)..=1.0).contains(&x.as_f64()) =>
        {
            let factor = exponent(round_to(*elem, x.as_f64()));
            Scale { exponents: Some(kb.scalar(Scalar::Float(factor), Elem::F32)), ..Scale::default() }
        }
        _ => {
            let into_cap = behind_cap > 0 && are_literals(masks.get(behind_cap..).unwrap_or_default());
            let exponents = if into_cap { None } else { Some(kb.scalar(Scalar::Float(LOG2_E), Elem::F32)) };
            Scale { scores: Some(scalar_of(kb, s)), exponents, ..Scale::default() }
        }
    }
}

/// What `e` to the `x` is 2 to the power of; what was finite stays so.
fn exponent(x: f64) -> f64 {
    let y = x * LOG2_E;
    if x.is_finite() { y.clamp(-f64::from(f32::MAX), f64::from(f32::MAX)) } else { y }
}

/// A number as an exponent of 2 instead of `e`.
fn exponent_of(kb: &mut KernelBuilder, s: &Source) -> tile::Value {
    if let Source::Literal(x, elem) = s {
        return kb.scalar(Scalar::Float(exponent(round_to(*elem, x.as_f64()))), Elem::F32);
    }
    let (x, factor) = (scalar_of(kb, s), kb.scalar(Scalar::Float(LOG2_E), Elem::F32));
    kb.binary(BinaryOp::Mul, x, factor)
}

fn scalar_of(kb: &mut KernelBuilder, s: &Source) -> tile::Value {
    match s {
        Source::Buffer(b) => kb.load_scalar(*b, &[]),
        Source::Literal(x, elem) => literal(kb, *x, *elem),
        Source::Dim(d, elem) => {
            let v = kb.dim_scalar(d, computed(*elem));
            kb.narrow(v, *elem)
        }
    }
}
