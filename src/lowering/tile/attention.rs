//! Kernels of attention.
//!
//! In: a region with an attention and elementwise operations on its result, and the views of its
//! operands. Out: the kernel that defines the computation, written by `tile::attention`: one key
//! after another, with an online softmax. The schedule chooses how it is computed
//! (`tile/schedule/attention.rs`).

use std::collections::BTreeMap;

use super::region::{Env, Operand, Region, buffer_type, counts_along_axes};
use super::{Call, as_tile, output_buffer};
use crate::ir::{self, Function, InstData, Loc, MaskKind, Op, Terminator, mask_operands};
use crate::scalar::{BinaryOp, CmpOp, Scalar};
use crate::shape::{Dim, Elem, TensorType};
use crate::tile::attention::{Attention, Formula, Locations, Node, ScoreOp, Step};
use crate::tile::{self, Compute, Kernel, KernelBuilder, ParamMode, View, computed};

/// Source locations of the parts of an attention and its masks; the location of the whole where a
/// part has none.
fn locations(d: &InstData, masks: &[MaskKind]) -> (Locations, Vec<Loc>) {
    let at = |i: usize| d.parts.get(i).copied().filter(|loc| loc.line > 0).unwrap_or(d.loc);
    let of_masks: Vec<Loc> = (0..masks.len()).map(|i| at(2 + i)).collect();
    let sink = of_masks.last().copied().unwrap_or(d.loc);
    (Locations { scores: at(0), scale: at(1), sink, softmax: at(2 + masks.len()), values: d.loc }, of_masks)
}

/// The kernel that computes an attention and its elementwise epilogue into `out`.
///
/// # Errors
/// A body of another structure, which is a bug in attnc.
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
    let source = |i: usize| -> Result<Operand, String> {
        let v = *attention.operands.get(i).ok_or("an operand is missing")?;
        operand_of(body, operands, v).ok_or_else(|| "an operand of an attention is computed inside the region".into())
    };
    let of_masks = made_for_masks(body, attention, &masks);
    let elementwise = |i: usize| {
        let Some(v) = entry.args.get(i) else { return false };
        let reads = |d: &InstData| !matches!(d.op, Op::Attention { .. }) && d.operands.contains(v);
        body.insts().any(|(_, i, d)| reads(d) && !of_masks.contains(&i)) || result == *v
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
    let (locations, mask_locations) = locations(attention, &masks);
    let mut buffers = vec![with_lead(&q, &s, &d), with_lead(&k, &t, &d), with_lead(&v, &t, &e)];
    for x in &buffers {
        kb.buffer(buffer_type(x), ParamMode::In);
    }
    // The scale and the operands of the masks, over the axes of the scores.
    let scores = [out.shape.get(..lead).unwrap_or_default(), &[s.clone(), t.clone()]].concat();
    let mut sources = Vec::new();
    for (i, v) in attention.operands.iter().enumerate().skip(3) {
        let ty = body.tensor(*v).ok_or("an index in a region")?;
        let is_sink = i + 1 == attention.operands.len() && masks.last() == Some(&MaskKind::Sink);
        let mut read = |operand: Operand, ty: &TensorType| match operand {
            Operand::Literal(x) => Node::literal(x, ty.elem),
            Operand::Dim(x) => Node::Dim(x, ty.elem),
            Operand::View(x) => {
                let x = match ty.rank() {
                    0 => x,
                    _ if is_sink => with_lead(&x, &s, &Dim::one()),
                    _ => with_lead(&x, &s, &t),
                };
                kb.buffer(buffer_type(&x), ParamMode::In);
                buffers.push(x);
                Node::Buffer(buffers.len() - 1)
            }
        };
        sources.push(match operand_of(body, operands, *v) {
            Some(operand) => read(operand, ty).into(),
            None => {
                let operand = |v| operand_of(body, operands, v);
                let mut maker = Maker { body, scores: &scores, formula: Formula::default(), made: BTreeMap::new() };
                maker.value(*v, &mut |v| Some(read(operand(v)?, body.tensor(v)?)))?;
                maker.formula
            }
        });
    }
    let mut sources = sources.into_iter();
    let scale = sources.next().ok_or("an attention without a scale")?;
    let (mut steps, mut sink) = (Vec::new(), None);
    for (kind, loc) in masks.into_iter().zip(mask_locations) {
        let mut next = || sources.next().ok_or("a mask without its operand");
        let op = match kind {
            MaskKind::Causal => ScoreOp::Causal,
            MaskKind::Add => ScoreOp::Add(next()?),
            MaskKind::Keep => ScoreOp::Keep { kept: next()?, fill: next()? },
            MaskKind::Cap => ScoreOp::Cap(next()?),
            MaskKind::Sink => {
                sink = Some(next()?);
                continue;
            }
        };
        steps.push(Step { op, loc });
    }

    // Other uses of the attention's operands read them elementwise.
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

    let what = Attention { locations, scale, steps, sink };
    let written = what.write(&mut kb).ok_or("an attention of other operands")?;
    let elem = body.tensor(attention_value).ok_or("an attention of indices")?.elem;
    let mut env = Env::new();
    env[attention_value] = Some(kb.narrow(written.result, elem));
    region.eval(&mut kb, &mut env, &written.at, &[result])?;
    let tile = env[result].ok_or("the result was not evaluated")?;
    let tile = as_tile(&mut kb, tile, &written.at);
    kb.store(target, &written.at.starts(), written.at.tile_axes(), tile);
    let compute = Some(Compute::Attention(what.into()));
    Ok(Call { kernel: Kernel { compute, ..kb.finish() }, buffers })
}

/// The binding of a value: an argument of the region, or a literal inside it.
fn operand_of(body: &Function, operands: &[Operand], v: ir::Value) -> Option<Operand> {
    if let Some(k) = body.block(body.entry()).args.iter().position(|x| *x == v) {
        return operands.get(k).cloned();
    }
    match body.definition(v).map(|(_, d)| &d.op) {
        Some(Op::Const(s)) => Some(Operand::Literal(*s)),
        Some(Op::DimValue(d)) => Some(Operand::Dim(d.clone())),
        _ => None,
    }
}

/// The instructions that compute the masks of an attention.
fn made_for_masks(body: &Function, attention: &InstData, masks: &[MaskKind]) -> Vec<ir::Inst> {
    let mut work: Vec<ir::Value> =
        mask_operands(masks).into_iter().filter_map(|n| attention.operands.get(n).copied()).collect();
    let mut found = Vec::new();
    while let Some(v) = work.pop() {
        if let Some((i, d)) = body.definition(v)
            && !found.contains(&i)
        {
            found.push(i);
            work.extend(&d.operands);
        }
    }
    found
}

/// Converts the computation of a mask to a formula.
struct Maker<'a> {
    body: &'a Function,
    scores: &'a [Dim],
    formula: Formula,
    made: BTreeMap<ir::Value, usize>,
}

impl Maker<'_> {
    /// Number of a value in the formula; `read` returns the nodes of values that are not computed
    /// in it.
    fn value(&mut self, v: ir::Value, read: &mut dyn FnMut(ir::Value) -> Option<Node>) -> Result<usize, String> {
        if let Some(n) = self.made.get(&v) {
            return Ok(*n);
        }
        let definition = self.body.definition(v).map(|(_, d)| d);
        let loc = definition.map(|d| d.loc).unwrap_or_default();
        let n = match definition {
            Some(d) if !matches!(d.op, Op::Const(_) | Op::DimValue(_)) => {
                let mut operands = Vec::new();
                for x in &d.operands {
                    operands.push(self.value(*x, read)?);
                }
                let ty = self.body.tensor(v).ok_or("an index in a region")?;
                let same = |x: &ir::Value| self.body.tensor(*x).is_some_and(|x| computed(x.elem) == computed(ty.elem));
                match (&d.op, operands.as_slice()) {
                    (Op::Broadcast, [x]) => *x,
                    (Op::Cast { .. }, [x]) if d.operands.iter().all(same) => self.formula.narrow(*x, ty.elem, loc),
                    _ => self.operation(&d.op, ty, operands, loc)?,
                }
            }
            _ => self.formula.add(read(v).ok_or("a mask is made of something else")?, Loc::default()),
        };
        self.made.insert(v, n);
        Ok(n)
    }

    /// The position along an axis of a tensor; 0 for an axis of extent 1.
    fn position(&mut self, shape: &[Dim], axis: usize, elem: Elem, loc: Loc) -> Result<usize, String> {
        let is_one = shape.get(axis).is_none_or(|d| d.as_const() == Some(1));
        let axis = (self.scores.len() + axis).checked_sub(shape.len()).ok_or("a mask has more axes than the scores")?;
        let node = if is_one { Node::Literal(Scalar::Int(0), elem) } else { Node::Position(axis, elem) };
        Ok(self.formula.add(node, loc))
    }

    fn operation(&mut self, op: &Op, ty: &TensorType, x: Vec<usize>, loc: Loc) -> Result<usize, String> {
        let wide = computed(ty.elem);
        let each = |formula: &mut Formula, op: tile::Op| formula.each(op, x.clone(), wide, loc);
        let n = match op {
            Op::Iota { axis } => {
                let counted = if wide == Elem::I64 { Elem::I64 } else { Elem::I32 };
                let n = self.position(&ty.shape, *axis, counted, loc)?;
                if counted == wide { n } else { self.formula.each(tile::Op::Cast, vec![n], wide, loc) }
            }
            Op::Causal => {
                let [q, k] = ty.shape.as_slice() else { return Err("causal has two axes".into()) };
                let key = self.position(&ty.shape, 1, Elem::I32, loc)?;
                let query = self.position(&ty.shape, 0, Elem::I32, loc)?;
                let shift = self.formula.add(Node::Dim(k.sub(q), Elem::I32), loc);
                let last = self.formula.each(tile::Op::Binary(BinaryOp::Add), vec![query, shift], Elem::I32, loc);
                self.formula.each(tile::Op::Compare(CmpOp::Le), vec![key, last], Elem::Bool, loc)
            }
            Op::Unary(op) => each(&mut self.formula, tile::Op::Unary(*op)),
            Op::Binary(op) => each(&mut self.formula, tile::Op::Binary(*op)),
            Op::Compare(op) => each(&mut self.formula, tile::Op::Compare(*op)),
            Op::Where => each(&mut self.formula, tile::Op::Select),
            Op::Cast { .. } => each(&mut self.formula, tile::Op::Cast),
            other => return Err(format!("{other} has no place in a mask")),
        };
        Ok(self.formula.narrow(n, ty.elem, loc))
    }
}
