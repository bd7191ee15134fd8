//! separate-taps: recomputes tapped values outside of the kernels that the results are fused into.
//!
//! ```text
//! func @f(%0 "q": f32[S, 64], %1 "k": f32[S, 64], %2 "v": f32[S, 64]) -> (f32[S, 64]) {
//!   tapped
//! ^bb0:
//!   %3 = transpose %1, perm=[1, 0]        : f32[64, S]
//!   %4 = matmul %0, %3                    : f32[S, S]
//!   %5 = mul %4, 0.125                    : f32[S, S]
//!   %6 = softmax %5, axis=1               : f32[S, S]
//!   tap %6, "weights"
//!   tap %2, "values"
//!   %7 = matmul %6, %2                    : f32[S, 64]
//!   return %7
//! }
//! ->
//! func @f(%0 "q": f32[S, 64], %1 "k": f32[S, 64], %2 "v": f32[S, 64]) -> (f32[S, 64]) {
//!   tapped
//! ^bb0:
//!   %3 = transpose %1, perm=[1, 0]        : f32[64, S]
//!   %4 = matmul %0, %3                    : f32[S, S]
//!   %5 = mul %4, 0.125                    : f32[S, S]
//!   %6 = softmax %5, axis=1               : f32[S, S]
//!   %7 = transpose %1, perm=[1, 0]        : f32[64, S]
//!   %8 = matmul %0, %7                    : f32[S, S]
//!   %9 = mul %8, 0.125                    : f32[S, S]
//!   %10 = softmax %9, axis=1              : f32[S, S]
//!   tap %10, "weights"
//!   tap %2, "values"
//!   %11 = matmul %6, %2                   : f32[S, 64]
//!   return %11
//! }
//! ```
//!
//! A tap is a use, and a value with two uses cannot stay inside a kernel: a single tap of attention
//! weights would prevent every attention from being fused, and a tap of a sum before an activation
//! every such matmul. The copies that this pass makes are needed by their tap alone
//! (`ir::needed_without_taps`), so lowering guards them with a branch: a call computes them only if
//! it requests the tap, layer by layer, and the results are fused as they are without taps. Other
//! passes keep the two apart: `cse` and `merge-matmuls` do not merge an operation that only taps
//! need with one that is needed anyway.
//!
//! # Copied operations
//!
//! From the tapped value back to values that are in memory in any case. These are, by their
//! definition: arguments, parameters, sources, results of gathers and concatenations, and results
//! that are fused already. And by their uses, not counting taps: any value that
//!
//! * leaves its block, or is an operand of a matmul, moved or not; except for the weights of an
//!   attention, which are recognised by the softmax (or `exp` and `sum`) between them and the
//!   previous matmul;
//! * is used after a later matmul, as a residual is;
//! * is the result of a matmul, with its elementwise epilogue, that goes into a reduction or a
//!   softmax outside of attention.
//!
//! Movement in between is copied too, since it is a view. The pass guesses what later passes will
//! fuse; a wrong guess makes a tap more expensive than necessary, or prevents a fusion. It never
//! changes a value, because operations without effects are copied entirely. So it is exact.
//!
//! # Limits
//!
//! The column of a sink is concatenated to the scores in memory, so a tap of such weights prevents
//! their attention from being fused in the variant with taps. A tap that needs more than 32
//! operations remains a use. Operations that two taps share are copied for each of them.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_entity::SecondaryMap;

use super::rewrite::remove_unused;
use super::{Changed, Condition, Context, Edit};
use crate::ir::{Block, Class, Function, Inst, Op, Use, Value, needed_without_taps};
use crate::scalar::{ReduceKind, UnaryOp};

/// The maximum number of operations that are copied for one tap.
const MAX_COPIED: usize = 32;

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let taps: Vec<(Block, Inst)> =
        f.insts().filter(|(_, _, d)| matches!(d.op, Op::Tap { .. })).map(|(b, i, _)| (b, i)).collect();
    if taps.is_empty() {
        return Changed::No;
    }
    let facts = Facts::new(f);
    let mut copied = 0;
    for (block, tap) in taps {
        let (Some(v), Op::Tap { name, .. }) = (f.inst(tap).operands.first().copied(), &f.inst(tap).op) else {
            continue;
        };
        let (name, loc) = (name.clone(), f.inst(tap).loc);
        match facts.slice(f, v) {
            Slice::Nothing => {}
            Slice::TooLong => {
                let text =
                    format!("the tap `{name}` needs more than {MAX_COPIED} operations whose results are not in memory");
                ctx.missed_with(f, loc, Condition::Size, text, Vec::new(), vec![Edit::Remove(loc)]);
            }
            Slice::Of(insts) => {
                let computing = insts.iter().map(|i| f.inst(*i).op.info()).filter(|o| o.class != Class::Movement);
                let names: Vec<&str> = computing.map(|o| o.name).collect();
                copy(f, &insts, block, tap);
                copied += insts.len();
                if !names.is_empty() {
                    let names = names.join(", ");
                    ctx.done(f, loc, format!("calls that request the tap `{name}` also compute: {names}"));
                }
            }
        }
    }
    if copied > 0 {
        remove_unused(f);
    }
    ctx.count("operations copied", copied);
    Changed::from(copied > 0)
}

/// Copies instructions before a tap, which then shows the copy.
fn copy(f: &mut Function, insts: &[Inst], block: Block, tap: Inst) {
    let mut copies: BTreeMap<Value, Value> = BTreeMap::new();
    let copy_of = |copies: &BTreeMap<Value, Value>, v: Value| copies.get(&v).copied().unwrap_or(v);
    for i in insts {
        let data = f.inst(*i).clone();
        let ty = data.result.map(|v| f.ty(v).clone());
        let operands = data.operands.iter().map(|v| copy_of(&copies, *v)).collect();
        let new = f.make_inst(data.op, operands, ty, data.loc);
        f.insert_before(block, tap, new);
        if let (Some(old), Some(made)) = (data.result, f.inst(new).result) {
            copies.insert(old, made);
        }
    }
    if let Some(v) = f.inst_mut(tap).operands.first_mut() {
        *v = copy_of(&copies, *v);
    }
}

/// The operations that must be copied for a tap, in topological order.
enum Slice {
    Nothing,
    TooLong,
    Of(Vec<Inst>),
}

/// The operations between a value and the matmuls before it.
#[derive(Clone, Copy, Default)]
struct Since {
    /// The length of the longest chain of matmuls before it.
    stage: u32,
    /// Is it a matmul, or elementwise work on one?
    product: bool,
    softmax: bool,
    exp: bool,
    sum: bool,
}

/// Facts about a function before anything is copied.
struct Facts {
    needed: SecondaryMap<Value, bool>,
    /// The block and the overall position of an instruction.
    position: SecondaryMap<Inst, Option<(Block, usize)>>,
    /// Results that are stored in any case.
    in_memory: SecondaryMap<Value, bool>,
}

fn is_movement(op: &Op) -> bool {
    matches!(op, Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Slice { .. })
}

/// Is it elementwise, row by row, or a matmul, on tensors alone?
fn computes(f: &Function, i: Inst) -> bool {
    let d = f.inst(i);
    let known = matches!(d.op, Op::Reduce { .. } | Op::Softmax { .. } | Op::LogSoftmax { .. } | Op::Matmul);
    let elementwise = d.op.info().class == Class::Elementwise;
    (known || elementwise) && d.operands.iter().chain(&d.result).all(|v| f.tensor(*v).is_some())
}

impl Facts {
    fn new(f: &Function) -> Facts {
        let needed = needed_without_taps(f);
        let mut position: SecondaryMap<Inst, Option<(Block, usize)>> = SecondaryMap::new();
        let mut since: SecondaryMap<Value, Since> = SecondaryMap::new();
        let mut order = Vec::new();
        for b in f.reverse_postorder() {
            for i in &f.block(b).insts {
                position[*i] = Some((b, order.len()));
                order.push(*i);
                if let Some(v) = f.inst(*i).result {
                    since[v] = since_products(f, *i, &since);
                }
            }
        }
        let inner = inside_attention(f, &order, &needed, &since);
        let uses = f.uses();
        let mut stays: SecondaryMap<Value, bool> = SecondaryMap::new();
        let mut in_memory: SecondaryMap<Value, bool> = SecondaryMap::new();
        for i in order.iter().rev() {
            let Some(v) = f.inst(*i).result else { continue };
            let block = position[*i].map(|(b, _)| b);
            stays[v] = uses[v].iter().any(|u| match u {
                Use::Terminator(_) => true,
                Use::Operand(user, _) => {
                    let d = f.inst(*user);
                    let Some(result) = d.result.filter(|r| needed[*r]) else { return false };
                    if position[*user].map(|(b, _)| b) != block {
                        return true;
                    }
                    match &d.op {
                        op if is_movement(op) => stays[result],
                        Op::Matmul => !inner[v],
                        _ if !computes(f, *user) => true,
                        Op::Reduce { .. } | Op::Softmax { .. } | Op::LogSoftmax { .. } => {
                            since[v].product && !inner[v] || since[result].stage > since[v].stage
                        }
                        _ => since[result].stage > since[v].stage,
                    }
                }
            });
            in_memory[v] = !is_movement(&f.inst(*i).op) && (stays[v] || !computes(f, *i));
        }
        Facts { needed, position, in_memory }
    }

    /// The operations needed by the tap of a value whose results are not in memory.
    fn slice(&self, f: &Function, v: Value) -> Slice {
        let (mut found, mut work) = (BTreeSet::new(), vec![v]);
        while let Some(v) = work.pop() {
            let Some((i, data)) = f.definition(v) else { continue };
            let Some((_, at)) = self.position[i].filter(|_| f.tensor(v).is_some()) else { continue };
            if self.needed[v] && self.in_memory[v] || !found.insert((at, i)) {
                continue;
            }
            if found.len() > MAX_COPIED {
                return Slice::TooLong;
            }
            work.extend(&data.operands);
        }
        // An operation that only taps need is copied if it depends on a copy.
        let mut copied: BTreeSet<Value> = BTreeSet::new();
        let (mut insts, mut again) = (Vec::new(), false);
        for (_, i) in found {
            let d = f.inst(i);
            let Some(v) = d.result else { continue };
            if self.needed[v] || d.operands.iter().any(|x| copied.contains(x)) {
                copied.insert(v);
                again |= self.needed[v] && !is_movement(&d.op);
                insts.push(i);
            }
        }
        // A view of a value in memory may have any number of users, so views alone need no copy.
        if again { Slice::Of(insts) } else { Slice::Nothing }
    }
}

/// The operations between an instruction's result and the matmuls before it.
fn since_products(f: &Function, i: Inst, since: &SecondaryMap<Value, Since>) -> Since {
    let d = f.inst(i);
    let mut all = Since::default();
    for v in &d.operands {
        let own = since[*v];
        all = Since {
            stage: all.stage.max(own.stage),
            product: all.product || own.product,
            softmax: all.softmax || own.softmax,
            exp: all.exp || own.exp,
            sum: all.sum || own.sum,
        };
    }
    match &d.op {
        Op::Matmul | Op::Attention { .. } => Since { stage: all.stage + 1, product: true, ..Since::default() },
        op if is_movement(op) => all,
        _ if !computes(f, i) => Since { stage: all.stage, ..Since::default() },
        Op::Softmax { .. } => Since { softmax: true, product: false, ..all },
        Op::LogSoftmax { .. } => Since { product: false, ..all },
        Op::Reduce { kind, .. } => Since { sum: all.sum || *kind == ReduceKind::Sum, product: false, ..all },
        Op::Unary(UnaryOp::Exp) => Since { exp: true, ..all },
        _ => all,
    }
}

/// The values between the two matmuls of an attention: scores, weights, and the steps between them.
fn inside_attention(
    f: &Function,
    order: &[Inst],
    needed: &SecondaryMap<Value, bool>,
    since: &SecondaryMap<Value, Since>,
) -> SecondaryMap<Value, bool> {
    let mut inner: SecondaryMap<Value, bool> = SecondaryMap::new();
    let products = order.iter().map(|i| f.inst(*i)).filter(|d| d.op == Op::Matmul);
    let mut work: Vec<Value> = products
        .filter(|d| d.result.is_some_and(|v| needed[v]))
        .flat_map(|d| &d.operands)
        .filter(|v| since[**v].softmax || (since[**v].exp && since[**v].sum))
        .copied()
        .collect();
    while let Some(v) = work.pop() {
        let Some((i, d)) = f.definition(v) else { continue };
        if !(is_movement(&d.op) || computes(f, i)) || std::mem::replace(&mut inner[v], true) {
            continue;
        }
        if d.op != Op::Matmul {
            work.extend(&d.operands);
        }
    }
    inner
}

/// For a function with taps: which values are needed without them.
pub(super) fn apart(f: &Function) -> Option<SecondaryMap<Value, bool>> {
    let has_taps = f.insts().any(|(_, _, d)| matches!(d.op, Op::Tap { .. }));
    has_taps.then(|| needed_without_taps(f))
}
