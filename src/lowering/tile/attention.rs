//! Kernels of attention: tiles of queries against tiles of keys with an online softmax, so that the score matrix never
//! exists (Milakov & Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135, algorithm 1; normalised once
//! at the end as in Dao 2023, arXiv:2307.08691, section 3.1).
//!
//! For each tile of queries `m` is the running maximum, `l` the running sum, `acc` the running result; a tile of keys
//! with scores `s` does `m' = max(m, rowmax s)`, `p = exp(s - m')`, `c = exp(m - m')`, `l' = l c + rowsum p`,
//! `acc' = acc c + p v`. Rows that have seen only masked keys take 0 for `m'`, so nothing becomes NaN, and a row that
//! ends with `l = 0` gives zeros. Error: each rescaling rounds once, so the relative error grows by at most one unit
//! of the last place for each tile of keys that raises the maximum.
//!
//! ```text
//! grid (batch and heads.., ceil(S, 32), ceil(E, 128))
//! ```
//!
//! With a causal mask last, tiles of keys that no query of the tile sees are not visited. Any head width works: up to
//! 128 the queries are one tile, beyond it the scores are summed over chunks of the width, and the result's columns
//! are divided among grid points.

use super::region::{Env, Operand, Position, Region, Role, buffer_type, counts_along_axes, literal, tile_size};
use super::views::View;
use super::{Call, as_tile, output_buffer};
use crate::ir::{Function, MaskKind, Op, Scalar, Terminator};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use crate::shape::{Dim, Elem};
use crate::tile::{self, CpuLevel, Extent, KernelBuilder, ParamMode, Type, computed};

/// Queries of a tile.
const QUERIES: i64 = 32;
/// Keys of a tile.
const KEYS: i64 = 64;
/// Widest head that is one tile; wider ones are gone through in chunks of this.
const WIDTH: i64 = 128;

/// What a mask reads: its buffer, or what is the same everywhere.
enum Source {
    Buffer(tile::Value),
    Literal(Scalar, Elem),
    Dim(Dim, Elem),
}

/// The kernel that computes a body of one attention and elementwise operations on its result into `out`.
///
/// # Errors
/// A body of another form, a mistake of ours.
pub(super) fn attention(
    name: &str,
    _level: CpuLevel,
    body: &Function,
    operands: &[Operand],
    out: &View,
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
        match body.def_inst(v).map(|(_, d)| &d.op) {
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
    let (q, k, v) = (with_lead(&q, &s, &d), with_lead(&k, &t, &d), with_lead(&v, &t, &e));

    let mut kb = KernelBuilder::new(name);
    kb.at(attention.loc);
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
                let x = if ty.rank() == 0 { x } else { with_lead(&x, &s, &t) };
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
    let queries = tile_size(&s, QUERIES);
    let point = kb.grid_axis(&s, queries);
    let row = kb.times(point, queries);
    let rows = kb.extent_at(&s, row, queries);
    let width = tile_size(&e, WIDTH);
    let point = kb.grid_axis(&e, width);
    let col = kb.times(point, width);
    let cols = kb.extent_at(&e, col, width);

    let mut scalars = Vec::new();
    let mut next = 0;
    let scale = scalar_of(&mut kb, sources.first().ok_or("an attention without a scale")?);
    next += 1;
    for mask in &masks {
        // A fill is a scalar, read once.
        scalars.push(match mask {
            MaskKind::Keep => Some(scalar_of(&mut kb, sources.get(next + 1).ok_or("a mask without a fill")?)),
            MaskKind::Add | MaskKind::Causal => None,
        });
        next += mask.operands();
    }

    let one = Extent::Static(1);
    let shift = kb.dim(&t.sub(&s));
    let end = kb.dim(&t);
    // Skipping is exact only if nothing is added after the causal mask: a NaN there would show.
    let skips = masks.last() == Some(&MaskKind::Causal);
    let end = if skips {
        let r = extent_value(&mut kb, rows);
        let seen = kb.index_binary(BinaryOp::Add, row, r);
        let seen = kb.index_binary(BinaryOp::Add, seen, shift);
        kb.index_binary(BinaryOp::Min, end, seen)
    } else {
        end
    };
    let m0 = kb.full(Scalar::Float(f64::NEG_INFINITY), Elem::F32, rows, one);
    let l0 = kb.full(Scalar::Float(0.0), Elem::F32, rows, one);
    let acc0 = kb.full(Scalar::Float(0.0), Elem::F32, rows, cols);
    let whole = d.as_const().filter(|n| (1..=WIDTH).contains(n));
    let q_index = |c| [points.as_slice(), &[row, c]].concat();
    let axes = (Some(rank - 2), Some(rank - 1));
    let first = kb.index(0);
    let q_tile = whole.map(|n| kb.load(bq, &q_index(first), axes, rows, Extent::Static(n)));

    let zero = kb.index(0);
    let carried = vec![Type::Index, kb.ty(m0).clone(), kb.ty(l0).clone(), kb.ty(acc0).clone()];
    let (head, args) = kb.new_block(carried);
    let (inner, _) = kb.new_block(Vec::new());
    let (done, _) = kb.new_block(Vec::new());
    kb.br(head, &[zero, m0, l0, acc0]);
    kb.switch_to(head);
    let (j, m, l, acc) = (args[0], args[1], args[2], args[3]);
    let more = kb.compare_scalars(CmpOp::Lt, j, end);
    kb.br_if(more, (inner, &[]), (done, &[]));
    kb.switch_to(inner);
    let keys_max = tile_size(&t, KEYS);
    let keys = {
        let rest = kb.index_binary(BinaryOp::Sub, end, j);
        let max = kb.index(keys_max);
        Extent::Bounded { value: kb.index_binary(BinaryOp::Min, rest, max), max: keys_max }
    };

    // The scores of this tile; `k` is read transposed.
    let s0 = kb.full(Scalar::Float(0.0), Elem::F32, rows, keys);
    let across = (Some(rank - 1), Some(rank - 2));
    let k_index = |c| [points.as_slice(), &[j, c]].concat();
    let mut scores = match (whole, q_tile) {
        (Some(n), Some(qt)) => {
            let start = kb.index(0);
            let kt = kb.load(bk, &k_index(start), across, Extent::Static(n), keys);
            kb.dot(qt, kt, s0)
        }
        _ => {
            let start = kb.index(0);
            let (dhead, dargs) = kb.new_block(vec![Type::Index, kb.ty(s0).clone()]);
            let (dbody, _) = kb.new_block(Vec::new());
            let (ddone, _) = kb.new_block(Vec::new());
            kb.br(dhead, &[start, s0]);
            kb.switch_to(dhead);
            let dend = kb.dim(&d);
            let more = kb.compare_scalars(CmpOp::Lt, dargs[0], dend);
            kb.br_if(more, (dbody, &[]), (ddone, &[]));
            kb.switch_to(dbody);
            let part = kb.extent_at(&d, dargs[0], KEYS);
            let qt = kb.load(bq, &q_index(dargs[0]), axes, rows, part);
            let kt = kb.load(bk, &k_index(dargs[0]), across, part, keys);
            let sum = kb.dot(qt, kt, dargs[1]);
            let next = kb.plus(dargs[0], KEYS);
            kb.br(dhead, &[next, sum]);
            kb.switch_to(ddone);
            dargs[1]
        }
    };
    scores = kb.binary(BinaryOp::Mul, scores, scale);
    let mut next = 1;
    for (mask, fill) in masks.iter().zip(&scalars) {
        let read = |kb: &mut KernelBuilder| -> Result<tile::Value, String> {
            Ok(match sources.get(next).ok_or("a mask without its operand")? {
                Source::Buffer(b) => {
                    let rank_of = kb.ty(*b).buffer().map_or(0, |x| x.shape.len());
                    if rank_of == 0 {
                        kb.load_scalar(*b, &[])
                    } else {
                        let at = [points.as_slice(), &[row, j]].concat();
                        kb.load(*b, &at, axes, rows, keys)
                    }
                }
                other => scalar_of(kb, other),
            })
        };
        match mask {
            MaskKind::Causal => {
                let start = kb.index_binary(BinaryOp::Add, row, shift);
                let last = kb.iota(0, start, Elem::I32, rows, one);
                let key = kb.iota(1, j, Elem::I32, one, keys);
                let seen = kb.compare(CmpOp::Le, key, last);
                let bottom = kb.scalar(Scalar::Float(f64::NEG_INFINITY), Elem::F32);
                scores = kb.select(seen, scores, bottom);
            }
            MaskKind::Add => {
                let x = read(&mut kb)?;
                scores = kb.binary(BinaryOp::Add, scores, x);
            }
            MaskKind::Keep => {
                let x = read(&mut kb)?;
                let fill = fill.ok_or("a mask without a fill")?;
                scores = kb.select(x, scores, fill);
            }
        }
        next += mask.operands();
    }

    // The online softmax.
    let highest = kb.reduce(ReduceKind::Max, 1, scores);
    let m1 = kb.binary(BinaryOp::Max, m, highest);
    let bottom = kb.scalar(Scalar::Float(f64::NEG_INFINITY), Elem::F32);
    let nothing = kb.scalar(Scalar::Float(0.0), Elem::F32);
    let unseen = kb.compare(CmpOp::Eq, m1, bottom);
    let base = kb.select(unseen, nothing, m1);
    let centred = kb.binary(BinaryOp::Sub, scores, base);
    let p = kb.unary(UnaryOp::Exp, centred);
    let before = kb.binary(BinaryOp::Sub, m, base);
    let c = kb.unary(UnaryOp::Exp, before);
    let sum = kb.reduce(ReduceKind::Sum, 1, p);
    let l1 = kb.binary(BinaryOp::Mul, l, c);
    let l1 = kb.binary(BinaryOp::Add, l1, sum);
    let kept = kb.binary(BinaryOp::Mul, acc, c);
    let v_index = [points.as_slice(), &[j, col]].concat();
    let vt = kb.load(bv, &v_index, axes, keys, cols);
    let acc1 = kb.dot(p, vt, kept);
    let following = kb.plus(j, keys_max);
    kb.br(head, &[following, m1, l1, acc1]);

    kb.switch_to(done);
    let zero = nothing_scalar(&mut kb);
    let empty = kb.compare(CmpOp::Eq, l, zero);
    let quotient = kb.binary(BinaryOp::Div, acc, l);
    let y = kb.select(empty, zero, quotient);
    let elem = body.tensor(attention_value).ok_or("an attention of indices")?.elem;
    let mut env = Env::new();
    env[attention_value] = Some(kb.narrow(y, elem));
    let mut place: Vec<(Role, tile::Value)> = points.iter().map(|p| (Role::Point, *p)).collect();
    place.extend([(Role::Rows, row), (Role::Cols, col)]);
    let at = Position { axes: place, rows, cols };
    region.eval(&mut kb, &mut env, &at, &[result])?;
    let tile = env[result].ok_or("the result was not evaluated")?;
    let tile = as_tile(&mut kb, tile, &at);
    kb.store(target, &at.starts(), at.tile_axes(), tile);
    Ok(Call { kernel: kb.finish(), buffers })
}

fn nothing_scalar(kb: &mut KernelBuilder) -> tile::Value {
    kb.scalar(Scalar::Float(0.0), Elem::F32)
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

/// An extent as an index.
fn extent_value(kb: &mut KernelBuilder, e: Extent) -> tile::Value {
    match e {
        Extent::Static(n) => kb.index(n),
        Extent::Bounded { value, .. } => value,
    }
}
