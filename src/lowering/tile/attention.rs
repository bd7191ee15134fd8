//! Kernels of attention.
//!
//! In: a region that is an attention, with elementwise operations on its result, and where its operands lie. Out: the kernel that
//! says what is computed, which `tile::attention` writes: one key after another, with an online softmax. How it is computed is
//! the schedule's (`tile/schedule/attention.rs`).

use super::region::{Env, Operand, Region, buffer_type, counts_along_axes};
use super::{Call, as_tile, output_buffer};
use crate::ir::{Function, InstData, Loc, MaskKind, Op, Terminator};
use crate::shape::Dim;
use crate::tile::attention::{Attention, Change, Places, Source, Step};
use crate::tile::{KernelBuilder, ParamMode, View};

/// The places of an attention's steps and of what is done to its scores: the whole's, where they are not known.
fn places(d: &InstData, masks: &[MaskKind]) -> (Places, Vec<Loc>) {
    let at = |i: usize| d.parts.get(i).copied().filter(|loc| loc.line > 0).unwrap_or(d.loc);
    let of_masks: Vec<Loc> = (0..masks.len()).map(|i| at(2 + i)).collect();
    let sink = of_masks.last().copied().unwrap_or(d.loc);
    (Places { scores: at(0), scale: at(1), sink, softmax: at(2 + masks.len()), values: d.loc }, of_masks)
}

/// The kernel that computes a body of one attention and elementwise operations on its result into `out`.
///
/// # Errors
/// A body of another form, a bug in attnc.
pub(super) fn attention(name: &str, body: &Function, operands: &[Operand], out: &View) -> Result<Call, String> {
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

    let mut kb = KernelBuilder::new(name);
    let (places, places_of_masks) = places(attention, &masks);
    let mut buffers = vec![with_lead(&q, &s, &d), with_lead(&k, &t, &d), with_lead(&v, &t, &e)];
    for x in &buffers {
        kb.buffer(buffer_type(x), ParamMode::In);
    }
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
                kb.buffer(buffer_type(&x), ParamMode::In);
                buffers.push(x);
                Source::Buffer(buffers.len() - 1)
            }
        });
    }
    let mut sources = sources.into_iter();
    let scale = sources.next().ok_or("an attention without a scale")?;
    let (mut steps, mut sink) = (Vec::new(), None);
    for (kind, loc) in masks.into_iter().zip(places_of_masks) {
        let mut next = || sources.next().ok_or("a mask without its operand");
        let change = match kind {
            MaskKind::Causal => Change::Causal,
            MaskKind::Add => Change::Add(next()?),
            MaskKind::Keep => Change::Keep { kept: next()?, fill: next()? },
            MaskKind::Cap => Change::Cap(next()?),
            MaskKind::Sink => {
                sink = Some(next()?);
                continue;
            }
        };
        steps.push(Step { change, loc });
    }

    // What else reads an operand of the attention reads it elementwise.
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

    let what = Attention { places, scale, steps, sink };
    let done = what.write(&mut kb).ok_or("an attention of other operands")?;
    let elem = body.tensor(attention_value).ok_or("an attention of indices")?.elem;
    let mut env = Env::new();
    env[attention_value] = Some(kb.narrow(done.result, elem));
    region.eval(&mut kb, &mut env, &done.at, &[result])?;
    let tile = env[result].ok_or("the result was not evaluated")?;
    let tile = as_tile(&mut kb, tile, &done.at);
    kb.store(target, &done.at.starts(), done.at.tile_axes(), tile);
    Ok(Call { kernel: kb.finish(), buffers })
}
