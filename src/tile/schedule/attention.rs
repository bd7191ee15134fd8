//! Attention schedule: replaces each unscheduled attention kernel (`tile::attention`), which states
//! only the algorithm, by kernels for one machine.
//!
//! In: an unscheduled module and a machine's parameters. Out: the same module, in which each tile
//! of queries loops over blocks of keys with an online softmax (Dao et al. 2022, arXiv:2205.14135,
//! algorithm 1; normalised once at the end as in Dao 2023, arXiv:2307.08691, section 3.1), in the
//! variant that fits the call (`variants`); the launches change accordingly (`launches`). The new
//! kernels are still unscheduled: the rest of the schedule treats them like all others. This must
//! not know graph IR or instructions.
//!
//! Tiles are transposed, with queries in lanes: queries are columns, so each lane of a vector
//! register holds a query of its own, and a maximum or sum over keys needs no horizontal
//! operations. Keys and values need no packing: they are left operands of matmuls, read in place
//! one element at a time.
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
//! Where queries, keys and values are `bf16` and the machine multiplies pairs of k steps
//! ([`QueryLayout::InLanePairs`]), both matmuls use these instructions. Transposed queries are
//! rounded to pairs (which is exact: they were `bf16`), keys are read in place; the weights of a
//! block are rounded to `bf16`, with pairs of keys side by side, and the values are stored as
//! transposed panels, one per block of keys, so that the keys of a column are neighbours (the plan
//! packs them first).
//!
//! ```text
//!     s  = k block @ pair_rows(qt)                             [256, Q], the scale not in it
//!     p  = 2^((s - m') (scale * log2 e))
//!     acc = acc c + v panel @ pair_rows(p)                     the sum is of p as it was
//! ```
//!
//! A call with one query therefore costs as much as one that fills all lanes. Where there are few
//! queries, and rows of keys and values are contiguous, each query is a grid point of its own
//! ([`QueryLayout::KeysInLanes`]): a score is the sum of a row of `k block * q`, the result is the
//! column sums of `v block * p`, and both are read once, row by row, whatever their type. On a GPU,
//! a block then processes one part of the keys, for several heads at once if these share keys and
//! values, and another kernel combines the partial results (`parts`).
//!
//! A soft cap is a `tanh` and a multiplication among the masks. A sink sets the initial maximum and
//! sum: its score and 1, instead of `-inf` and 0, as if a key with no value had been seen. So every
//! row has a weight, unless its sink is `-inf`, and a row that sees no key gives zeros.
//!
//! Where a mask is a formula over positions, bounds of the formula show which blocks it hides
//! entirely; these are not visited (`visible`).
//!
//! With a causal mask last, keys that no query of the tile sees are not visited. Blocks of keys
//! that every query of the tile sees come first, in a loop without the mask. Any head width works:
//! up to 256, the queries are one tile; beyond it, the scores are summed over chunks of the width,
//! and the result's columns are divided among grid points. Keys and values that are not `f32`, or
//! have no contiguous axis, go through scratch, in smaller blocks; with many queries, the plan
//! copies them first (`variants`).
//!
//! Numerics: rows that have seen only masked keys use 0 for `m'`, so nothing becomes NaN, and a row
//! that ends with `l = 0` gives zeros. A key that a mask hides contributes nothing, even if its
//! value is NaN or infinite, in every variant and on every instruction set (`keys`); unfused, its
//! value is multiplied by a weight of 0, which gives NaN. Each rescaling rounds once, so the
//! relative error grows by at most one unit in the last place for each block of keys that raises
//! the maximum; the sum is at least 1, and its inverse rounds once too. Where keys or values are
//! not `f32`, or have no contiguous axis, a row's bits depend on the number of queries of the call:
//! blocks have 64 keys below 64 queries, and 256 otherwise (`variants`).
//!
//! A literal scale between 2^-20 and 1 is multiplied into the queries: each term of a score then
//! has one more rounding, by half a unit in its last place. Other scales are multiplied into the
//! scores, as written: they may not be finite, or may overflow. A single query's sums are computed
//! by reductions: its result is not bitwise the same as that of the same query among many.
//!
//! With pairs, a weight is rounded to `bf16` before it is divided by the sum, where the program as
//! written rounds it after: by at most one part in 2^8 either way, so the result is off by at most
//! 2^-8 times the sum of the weights times the absolute values. (`passes::fuse_attention` bounds
//! the error of the program as written, which rounds its scores too.) Weights below 2^-126 of the
//! largest are flushed to 0, and so are subnormal queries, keys and values: this loses a product of
//! at most 2^-126 times the other factor, up to 4. Keys are processed in pairs, so after an odd
//! number of keys the value of a key that the causal mask hides from the tile may be multiplied by
//! 0: if that makes the sums NaN, they are computed again.
//!
//! Exponentials are computed as powers of two, at half the cost: `e^x = 2^(x log2 e)`. Where the
//! scale is multiplied into the queries and the masks are literals, `log2 e` is too: the scores are
//! 1.44 times those written and overflow beyond 2.3e38 (scale times `log2 e` is rounded to `f32`,
//! which changes all scores by the same relative error, at most 2^-24). Otherwise `s - m'` is
//! multiplied by it, which rounds by half a unit in the last place of a number at most twice as
//! large as a score: no more than the scores themselves were rounded. With a soft cap, `log2 e` is
//! folded into the factor of `tanh`, if the masks after it are literals. A cap or sink that is read
//! at run time is multiplied by it too, and overflows beyond 2.3e38.

pub(super) mod expand;
mod keys;
mod launches;
mod parts;
mod spans;
mod variants;
mod visible;
mod visited;

use std::f64::consts::LOG2_E;

use crate::scalar::{BinaryOp, CmpOp, Scalar, round_to};
use crate::shape::{Dim, Elem};
use crate::source::Loc;
use crate::tile::attention::{
    Attention, Described, Formula, KEYS as KEYS_PARAM, Locations, Node, QUERIES, ScoreOp, Step, VALUES,
};
use crate::tile::epilogue::ResultTile;
use crate::tile::{
    AxisRole, BufferType, Extent, Kernel, KernelBuilder, Machine, ParamMode, Position, Value, tile_size,
};
use keys::Total;
pub(super) use launches::may_be_replaced;
use parts::Group;
pub(super) use parts::{
    FEW_QUERIES, KeyRange, PartialResults, Reads, Whole, remark_on_parts, shared_axis, without_results,
};
pub(super) use variants::Divided;
pub(super) use visible::Hiding;

/// Largest head width that is one tile.
const WIDTH: i64 = 256;
/// Chunk of the width that a wider head's scores are summed over at a time.
const CHUNK: i64 = 64;
/// Keys per block, where keys and values are read in place and the machine has room for so large a
/// block.
const KEYS: i64 = 256;
/// Keys per block where blocks may be skipped: smaller blocks skip more of the hidden keys, larger
/// ones rescale the result less often.
const SKIPPED_KEYS: i64 = 128;
/// Keys per block where hidden keys at its ends are not trimmed, because the masks read memory
/// (`visible`).
const SKIPPED_WHOLE: i64 = 64;
/// Keys per block that is copied to scratch.
const COPIED_KEYS: i64 = 64;

const ONE: Extent = Extent::Static(1);

/// Contents of the lanes of a kernel's vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueryLayout {
    /// Queries, in transposed tiles.
    InLanes,
    /// Queries, in `bf16`, with matmuls over pairs of k steps: the values are panels `[batch.., P,
    /// E, KEYS]`, one per block of keys.
    InLanePairs,
    /// Keys (in scores) or columns (in results): one query for each grid point.
    KeysInLanes,
}

/// Where the scale is applied: a factor for each operand that is multiplied.
#[derive(Clone, Copy, Default)]
struct Scale {
    /// Factor of the queries.
    queries: Option<Value>,
    /// Factor of the scores.
    scores: Option<Value>,
    /// Factor that turns differences of scores into exponents of 2, unless they already are.
    exponents: Option<Value>,
}

/// The masks to apply to a block of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Masks {
    /// All.
    All,
    /// All but the causal one, which masks nothing in the block.
    NotCausal,
    /// Only the masks before this step: it and later ones mask nothing in the block.
    Before(usize),
}

impl Masks {
    /// Is a mask applied?
    pub(super) fn have(self, n: usize, op: &ScoreOp) -> bool {
        match self {
            Masks::All => true,
            Masks::NotCausal => *op != ScoreOp::Causal,
            Masks::Before(end) => n < end,
        }
    }
}

fn is_causal(step: &Step) -> bool {
    step.op == ScoreOp::Causal
}

/// The kernel under construction.
struct AttentionKernel<'a> {
    attention: &'a Attention,
    layout: QueryLayout,
    /// Rank of the buffers; the last two axes are rows and columns.
    rank: usize,
    /// Indices along the leading axes, for each head that shares keys and values: one head, except
    /// with keys in lanes on a GPU.
    heads: Vec<Vec<Value>>,
    /// Buffers of queries, keys and values.
    q: Value,
    k: Value,
    v: Value,
    /// Width of a head, number of keys.
    d: Dim,
    t: Dim,
    /// First query and column of the result, then their numbers.
    row: Value,
    col: Value,
    queries: Extent,
    width: Extent,
    /// Keys of a block.
    block: i64,
    /// The part of the keys that the kernel processes, if not all.
    part: Option<KeyRange>,
    /// Whether matmuls read keys and values of any type and order in place.
    reads_in_place: bool,
    /// Number of keys minus number of queries.
    shift: Value,
    scale: Scale,
    /// Scalars of the operations on the scores: the score that `Keep` fills in, the factor of
    /// `Cap`.
    numbers: Vec<Option<Value>>,
}

/// The kernel of a layout that replaces an unscheduled one, with keys and values of these buffer
/// types; `None` where they cannot be operands of an attention.
fn kernel(
    unscheduled: &Kernel,
    found: &Described,
    machine: Machine,
    layout: QueryLayout,
    keys_and_values: [&BufferType; 2],
) -> Option<Kernel> {
    let (mut kb, parts) = begin(unscheduled, found, machine, layout, keys_and_values, None)?;
    let AttentionKernel { attention: Attention { locations, .. }, queries, width, row, col, .. } = parts;
    let totals = parts.all_keys(&mut kb)?;
    for (Total { sum, result: acc, .. }, points) in totals.into_iter().zip(&parts.heads) {
        let y = normalised(&mut kb, *locations, sum, acc);
        let result = if layout == QueryLayout::KeysInLanes { y } else { kb.transpose(y) };
        let mut axes: Vec<(AxisRole, Value)> = points.iter().map(|p| (AxisRole::Point, *p)).collect();
        axes.extend([(AxisRole::Rows, row), (AxisRole::Cols, col)]);
        let at = Position { axes, rows: queries, cols: width };
        found.epilogue.copy(unscheduled, &mut kb, &ResultTile { result, at })?;
    }
    Some(kb.finish())
}

/// The weighted values divided by the sum of weights; zeros where the sum is 0.
fn normalised(kb: &mut KernelBuilder, locations: Locations, sum: Value, acc: Value) -> Value {
    kb.at(locations.softmax);
    let zero = kb.scalar(Scalar::Float(0.0), Elem::F32);
    let empty = kb.compare(CmpOp::Eq, sum, zero);
    let one = kb.scalar(Scalar::Float(1.0), Elem::F32);
    let inverse = kb.binary(BinaryOp::Div, one, sum);
    let mean = kb.binary(BinaryOp::Mul, acc, inverse);
    let y = kb.select(empty, zero, mean);
    kb.at(locations.values);
    y
}

/// The kernel of one part of the keys, the indices of the unscheduled kernel's parameters that it
/// keeps, and the factor that turns differences of its maxima into exponents of 2.
fn part(
    unscheduled: &Kernel,
    found: &Described,
    machine: Machine,
    layout: QueryLayout,
    results: &PartialResults,
) -> Option<(Kernel, Vec<usize>, f64)> {
    let ty = |n: usize| unscheduled.buffer_type(n);
    let (keys, values) = (ty(KEYS_PARAM)?, ty(VALUES)?);
    let (mut kb, parts) = begin(unscheduled, found, machine, layout, [keys, values], Some(results))?;
    let totals = parts.all_keys(&mut kb)?;
    parts.store_part(&mut kb, &totals)?;
    let (kernel, params) = without_results(kb.finish(), unscheduled);
    let exponents = if parts.scale.exponents.is_some() { LOG2_E } else { 1.0 };
    Some((Kernel { name: "attention_part".into(), ..kernel }, params, exponents))
}

/// The kernel up to its loops over keys: parameters, grid, scale and masks; with outputs for
/// partial results if the keys are divided.
fn begin<'a>(
    unscheduled: &Kernel,
    found: &'a Described,
    machine: Machine,
    layout: QueryLayout,
    keys_and_values: [&BufferType; 2],
    divided: Option<&PartialResults>,
) -> Option<(KernelBuilder, AttentionKernel<'a>)> {
    let ty = |n: usize| unscheduled.buffer_type(n);
    let [of_q, of_k, of_v] = [ty(QUERIES)?, ty(KEYS_PARAM)?, ty(VALUES)?];
    let (lead, [s, d]) = of_q.shape.split_last_chunk::<2>()?;
    let (s, d) = (s.clone(), d.clone());
    let (t, e) = (of_k.shape.get(lead.len())?.clone(), of_v.shape.last()?.clone());
    let rank = of_q.shape.len();

    let what = &found.attention;
    let locations = what.locations;
    let mut kb = KernelBuilder::new("attention");
    kb.at(locations.values);
    for (n, p) in unscheduled.params.iter().enumerate() {
        let ty = match n {
            KEYS_PARAM => keys_and_values[0],
            VALUES => keys_and_values[1],
            _ => ty(n)?,
        };
        kb.buffer(ty.clone(), p.mode);
    }
    for ty in divided.iter().flat_map(|results| results.types()) {
        kb.buffer(ty, ParamMode::Out);
    }
    let [q, k, v] = [kb.param(QUERIES)?, kb.param(KEYS_PARAM)?, kb.param(VALUES)?];

    // The grid.
    let group = Group::find(unscheduled, found, machine).filter(|_| layout == QueryLayout::KeysInLanes);
    let mut points: Vec<Value> = Vec::new();
    for (axis, extent) in lead.iter().enumerate() {
        points.push(match &group {
            Some(group) if group.axis == axis => {
                let point = kb.grid_axis(extent, group.heads);
                kb.times(point, group.heads)
            }
            _ => kb.grid_axis(extent, 1),
        });
    }
    let mut heads = vec![points];
    if let Some(Group { axis, heads: count }) = group {
        for n in 1..count {
            let mut points = heads.first()?.clone();
            let point = points.get_mut(axis)?;
            *point = kb.plus(*point, n);
            heads.push(points);
        }
    }
    let tile_of = |kb: &mut KernelBuilder, extent: &Dim, most: i64| {
        let size = tile_size(extent, most);
        let point = kb.grid_axis(extent, size);
        let start = kb.times(point, size);
        (start, kb.extent_at(extent, start, size))
    };
    // A kernel for parts runs only in calls with few queries.
    let (all, most) = match divided {
        Some(results) => (results.queries.clone(), machine.queries.min(FEW_QUERIES)),
        None => (s.clone(), machine.queries),
    };
    let (row, queries) = match layout {
        QueryLayout::InLanes | QueryLayout::InLanePairs => tile_of(&mut kb, &all, most),
        QueryLayout::KeysInLanes => (kb.grid_axis(&all, 1), ONE),
    };
    let (col, width) = tile_of(&mut kb, &e, WIDTH);

    let steps = &what.steps;
    let last_cap = steps.iter().rposition(|m| matches!(m.op, ScoreOp::Cap(_)));
    let behind_cap = last_cap.map_or(0, |n| n + 1);
    kb.at(locations.scale);
    let scale = match layout {
        QueryLayout::InLanes | QueryLayout::KeysInLanes => scale_of(&mut kb, &what.scale, steps, behind_cap)?,
        QueryLayout::InLanePairs => scale_of_pairs(&mut kb, &what.scale, steps, behind_cap, what.sink.is_some())?,
    };
    let mut numbers = Vec::new();
    for (n, step) in steps.iter().enumerate() {
        kb.at(step.loc);
        // A fill or a cap is a scalar, read once. Starting at the last cap, scores are exponents of
        // 2 unless something is added to them.
        let exponents = scale.exponents.is_none() && last_cap.is_none_or(|cap| n >= cap);
        numbers.push(match &step.op {
            ScoreOp::Keep { fill: x, .. } | ScoreOp::Cap(x) if exponents => Some(exponent_of(&mut kb, x)?),
            ScoreOp::Keep { fill: x, .. } | ScoreOp::Cap(x) => Some(x.scalar(&mut kb)?),
            ScoreOp::Causal | ScoreOp::Add(_) => None,
        });
    }
    kb.at(locations.values);
    let in_place = |b| machine.reads_in_place || in_place(&kb, b);
    let copied = layout == QueryLayout::InLanes && !(in_place(k) && in_place(v));
    // Panels of values fix the block size.
    let hiding = first_hiding(steps.iter()).filter(|_| layout != QueryLayout::InLanePairs);
    let most = match hiding {
        Some(n) if steps.iter().skip(n).any(visible::reads) => SKIPPED_WHOLE,
        Some(_) => SKIPPED_KEYS,
        None => KEYS,
    };
    let block = tile_size(&t, if copied { COPIED_KEYS } else { most.min(machine.keys) });
    let part = match divided {
        Some(results) => Some(results.part(&mut kb, unscheduled.params.len(), &t, block)?),
        None => None,
    };
    let shift = kb.dim(&t.sub(&s));
    let parts = AttentionKernel {
        attention: what,
        layout,
        rank,
        heads,
        q,
        k,
        v,
        d,
        t,
        row,
        col,
        queries,
        width,
        block,
        part,
        reads_in_place: machine.reads_in_place,
        shift,
        scale,
        numbers,
    };
    Some((kb, parts))
}

/// The parameter that a formula reads directly, if it has the axes of the scores; `None` for a
/// scalar or a computed formula.
fn buffer_over_scores(kb: &KernelBuilder, source: &Formula) -> Option<Value> {
    let Some(Node::Buffer(n)) = source.leaf() else { return None };
    kb.param(*n).filter(|b| kb.ty(*b).buffer().is_some_and(|ty| !ty.shape.is_empty()))
}

/// Whether a matmul can read tiles of the last two axes in place.
fn in_place(kb: &KernelBuilder, buffer: Value) -> bool {
    kb.ty(buffer).buffer().is_some_and(|b| b.is_left_operand(b.shape.len() - 2, b.shape.len() - 1))
}

/// Loads a tile as [`KernelBuilder::load_dense`], multiplied by `factor`, with the factor's source
/// location.
fn load_transposed(
    kb: &mut KernelBuilder,
    buffer: Value,
    at: &[Value],
    axes: (usize, usize),
    extents: (Extent, Extent),
    factor: Option<(Value, Loc)>,
) -> Value {
    kb.load_dense(buffer, at, axes, extents, |kb, x| match factor {
        Some((f, loc)) => kb.placed(loc, |kb| kb.binary(BinaryOp::Mul, x, f)),
        None => x,
    })
}

/// Whether a mask replaces the scores it hides by `-inf`.
pub(super) fn hides(step: &Step) -> bool {
    match &step.op {
        ScoreOp::Causal => true,
        ScoreOp::Keep { fill, .. } => fill.literal().is_some_and(|(x, _)| x.as_f64() == f64::NEG_INFINITY),
        ScoreOp::Add(_) | ScoreOp::Cap(_) => false,
    }
}

/// The formula that decides which scores a mask keeps, unless it only reads a buffer.
pub(super) fn formula_of(step: &Step) -> Option<&Formula> {
    match &step.op {
        ScoreOp::Keep { kept, .. } => Some(kept).filter(|kept| kept.leaf().is_none()),
        ScoreOp::Causal | ScoreOp::Add(_) | ScoreOp::Cap(_) => None,
    }
}

/// Index of the first of the trailing masks that all hide keys, if one of them is a formula.
pub(super) fn first_hiding<'a>(steps: impl DoubleEndedIterator<Item = &'a Step> + ExactSizeIterator) -> Option<usize> {
    let all = steps.len();
    let last: Vec<&Step> = steps.rev().take_while(|step| hides(step)).collect();
    last.iter().any(|step| formula_of(step).is_some()).then_some(all - last.len())
}

/// Whether the scores can be scaled before these masks: literal fills can be scaled too, addends
/// cannot.
fn are_literals(steps: &[Step]) -> bool {
    steps.iter().all(|step| match &step.op {
        ScoreOp::Causal => true,
        ScoreOp::Keep { fill, .. } => fill.literal().is_some(),
        ScoreOp::Add(_) | ScoreOp::Cap(_) => false,
    })
}

/// Where the scale and `log2 e` are applied: to the queries or in the last cap, unless a mask after
/// that cap (`behind_cap` is the index of the first) prevents it.
fn scale_of(kb: &mut KernelBuilder, s: &Formula, steps: &[Step], behind_cap: usize) -> Option<Scale> {
    let float = |kb: &mut KernelBuilder, x| kb.scalar(Scalar::Float(x), Elem::F32);
    let literals = are_literals(steps.get(behind_cap..).unwrap_or_default());
    let exponents = |kb| Some(float(kb, LOG2_E));
    let into_cap = literals && behind_cap > 0;
    Some(match s.literal() {
        Some((x, elem)) if (2f64.powi(-20)..=1.0).contains(&x.as_f64().abs()) => {
            let x = round_to(elem, x.as_f64());
            if literals && !into_cap {
                Scale { queries: Some(float(kb, exponent(x))), ..Scale::default() }
            } else {
                let queries = if x == 1.0 { None } else { Some(float(kb, x)) };
                Scale { queries, exponents: if into_cap { None } else { exponents(kb) }, ..Scale::default() }
            }
        }
        _ => {
            let scores = Some(s.scalar(kb)?);
            Scale { scores, exponents: if into_cap { None } else { exponents(kb) }, ..Scale::default() }
        }
    })
}

/// The scale where queries stay unscaled, since matmuls read them as `bf16`. Where masks only
/// replace scores by `-inf`, and nothing else is compared with the scores, a positive scale is
/// folded into the exponents.
fn scale_of_pairs(
    kb: &mut KernelBuilder,
    s: &Formula,
    steps: &[Step],
    behind_cap: usize,
    has_sink: bool,
) -> Option<Scale> {
    Some(match s.literal() {
        Some((x, elem)) if !has_sink && steps.iter().all(hides) && (2f64.powi(-20)..=1.0).contains(&x.as_f64()) => {
            let factor = exponent(round_to(elem, x.as_f64()));
            Scale { exponents: Some(kb.scalar(Scalar::Float(factor), Elem::F32)), ..Scale::default() }
        }
        _ => {
            let into_cap = behind_cap > 0 && are_literals(steps.get(behind_cap..).unwrap_or_default());
            let exponents = if into_cap { None } else { Some(kb.scalar(Scalar::Float(LOG2_E), Elem::F32)) };
            Scale { scores: Some(s.scalar(kb)?), exponents, ..Scale::default() }
        }
    })
}

/// The exponent `y` with `2^y = e^x`; finite if `x` is.
fn exponent(x: f64) -> f64 {
    let y = x * LOG2_E;
    if x.is_finite() { y.clamp(-f64::from(f32::MAX), f64::from(f32::MAX)) } else { y }
}

/// A number times `log2 e`.
fn exponent_of(kb: &mut KernelBuilder, s: &Formula) -> Option<Value> {
    if let Some((x, elem)) = s.literal() {
        return Some(kb.scalar(Scalar::Float(exponent(round_to(elem, x.as_f64()))), Elem::F32));
    }
    let (x, factor) = (s.scalar(kb)?, kb.scalar(Scalar::Float(LOG2_E), Elem::F32));
    Some(kb.binary(BinaryOp::Mul, x, factor))
}
