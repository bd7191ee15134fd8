//! Replaces a loop that runs exactly once by its body; a rewrite of `simplify-cfg`.
//!
//! In: a function. Out: the function without such loops. They arise from arrays of a single layer:
//! the counter enters as 0, which is less than 1, and comes back as 1, which is not.
//!
//! ```text
//! ^bb0:
//!   br ^bb1(0, %0)
//! ^bb1(%1: index, %2: f32[S]):
//!   %3 = lt %1, 1
//!   br_if %3, ^bb2, ^bb3
//! ^bb2:                                   // the body
//!   %4 = exp %2
//!   %5 = add %1, 1
//!   br ^bb1(%5, %4)
//! ^bb3:                                   // the exit
//!   return %2
//! ->
//! ^bb0:
//!   br ^bb1(0, %0)
//! ^bb1(%1: index, %2: f32[S]):            // entered once, so `simplify-cfg` removes its arguments and merges it
//!   br ^bb2
//! ^bb2:
//!   %4 = exp %2
//!   %5 = add %1, 1
//!   br ^bb3(%5, %4)
//! ^bb3(%6: index, %7: f32[S]):
//!   return %7
//! ```
//!
//! The back edge is threaded to the exit, because the header's branch is known to go there. The
//! header's arguments then have the values with which the loop was entered. Behind the exit, where
//! they stood for the values that came back, the exit's own arguments replace them.
//!
//! # Conditions
//!
//! One jump enters the loop, and there is one back edge. The header only computes indices and its
//! condition, whose value is known for both jumps. Results of the header that depend on its
//! arguments are not used behind the exit. The arguments are used there only where the exit
//! dominates, i.e. where no `break` has joined. It is exact.

use cranelift_entity::SecondaryMap;

use crate::ir::{Block, BlockCall, Cfg, Function, Loop, Op, Scalar, Terminator, Value};
use crate::scalar::BinaryOp;

/// Straightens all loops that run exactly once; returns their number.
pub(super) fn straighten(f: &mut Function) -> usize {
    let mut straightened = 0;
    // Each rewrite changes reachability, so the CFG is computed again.
    loop {
        let cfg = f.cfg();
        let Some(once) = cfg.loops().iter().find_map(|l| find(f, &cfg, l)) else { return straightened };
        thread(f, &cfg, once);
        straightened += 1;
    }
}

/// A loop that runs exactly once.
struct Once {
    header: Block,
    /// The source of the back edge.
    latch: Block,
    body: BlockCall,
    exit: BlockCall,
    /// The values that the back edge passes for the header's arguments.
    returned: Vec<Value>,
}

fn find(f: &Function, cfg: &Cfg, l: &Loop) -> Option<Once> {
    let Terminator::BrIf { condition, then, otherwise } = &f.block(l.header).terminator else { return None };
    let (body, exit, stays) = match (l.blocks.contains(&then.block), l.blocks.contains(&otherwise.block)) {
        (true, false) => (then, otherwise, true),
        (false, true) => (otherwise, then, false),
        _ => return None,
    };
    let (inside, outside): (Vec<_>, Vec<_>) =
        jumps_to(f, cfg, l.header).into_iter().partition(|(b, _)| l.blocks.contains(b));
    let ([(latch, returned)], [(_, entered)]) = (inside.as_slice(), outside.as_slice()) else { return None };
    if body.block == l.header || f.block(l.header).insts.iter().any(|i| !is_computed(&f.inst(*i).op)) {
        return None;
    }

    let args = &f.block(l.header).args;
    let first = |v: Value| place(args, v).and_then(|at| integer(f, *entered.get(at)?, &|_| None));
    let second = |v: Value| place(args, v).and_then(|at| integer(f, *returned.get(at)?, &first));
    if truth(f, *condition, &first)? != stays || truth(f, *condition, &second)? == stays {
        return None;
    }
    let once =
        Once { header: l.header, latch: *latch, body: body.clone(), exit: exit.clone(), returned: returned.clone() };
    is_separate(f, cfg, &once).then_some(once)
}

/// The jumps to a block, with the values that they pass.
fn jumps_to(f: &Function, cfg: &Cfg, to: Block) -> Vec<(Block, Vec<Value>)> {
    let mut jumps = Vec::new();
    for p in cfg.predecessors(to).iter().filter(|p| cfg.is_reachable(**p)) {
        let targets = f.block(*p).terminator.targets();
        jumps.extend(targets.into_iter().filter(|c| c.block == to).map(|c| (*p, c.args.clone())));
    }
    jumps
}

fn place(args: &[Value], v: Value) -> Option<usize> {
    args.iter().position(|a| *a == v)
}

/// May the header compute this? Yes if it cannot fail and has a known value for known operands.
fn is_computed(op: &Op) -> bool {
    matches!(
        op,
        Op::Const(_) | Op::DimValue(_) | Op::Compare(_) | Op::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul)
    )
}

/// The value of an index, if `given` knows the header's arguments in it.
fn integer(f: &Function, v: Value, given: &dyn Fn(Value) -> Option<i64>) -> Option<i64> {
    if let Some(n) = given(v) {
        return Some(n);
    }
    if f.tensor(v).is_some() {
        return None;
    }
    let inst = f.def_inst(v)?;
    match (&inst.op, inst.operands.as_slice()) {
        (Op::Const(Scalar::Int(n)), _) => Some(*n),
        (Op::DimValue(d), _) => d.as_const(),
        // A counter is incremented by one addition: no chain is followed.
        (Op::Binary(BinaryOp::Add), [a, b]) => leaf(f, *a, given)?.checked_add(leaf(f, *b, given)?),
        _ => None,
    }
}

fn leaf(f: &Function, v: Value, given: &dyn Fn(Value) -> Option<i64>) -> Option<i64> {
    given(v).or_else(|| match f.as_const(v)? {
        Scalar::Int(n) => Some(n),
        Scalar::Float(_) | Scalar::Bool(_) => None,
    })
}

/// The value of the loop's condition, if known.
fn truth(f: &Function, condition: Value, given: &dyn Fn(Value) -> Option<i64>) -> Option<bool> {
    let inst = f.def_inst(condition)?;
    match (&inst.op, inst.operands.as_slice()) {
        (Op::Compare(cmp), [a, b]) => Some(cmp.eval(integer(f, *a, given)?, integer(f, *b, given)?)),
        _ => None,
    }
}

/// Is every use of the header's values known to belong to the first or to the last iteration?
fn is_separate(f: &Function, cfg: &Cfg, once: &Once) -> bool {
    let mut varies: SecondaryMap<Value, bool> = SecondaryMap::new();
    let mut argument: SecondaryMap<Value, bool> = SecondaryMap::new();
    for v in &f.block(once.header).args {
        (varies[*v], argument[*v]) = (true, true);
    }
    for i in &f.block(once.header).insts {
        let inst = f.inst(*i);
        if let Some(v) = inst.result {
            varies[v] = inst.operands.iter().any(|o| varies[*o]);
        }
    }
    let takes = has_one_jump(f, cfg, once.exit.block);
    let behind = |b: Block| takes && cfg.dominates(once.exit.block, b);
    let is_fine = |b: Block, v: Value| !varies[v] || (argument[v] && behind(b));
    // A value computed from the arguments and passed to the exit does not exist after the body.
    once.exit.args.iter().all(|v| !varies[*v] || argument[*v])
        && reachable_without(f, once.exit.block, once.header).into_iter().all(|b| {
            let mut fine = true;
            for i in &f.block(b).insts {
                f.for_each_use(*i, |v| fine &= is_fine(b, v));
            }
            f.block(b).terminator.for_each_value(|v| fine &= is_fine(b, v));
            fine
        })
}

/// Is there only one jump to the block?
fn has_one_jump(f: &Function, cfg: &Cfg, b: Block) -> bool {
    jumps_to(f, cfg, b).len() == 1
}

/// The blocks that can be reached from `from` without going through `without`.
fn reachable_without(f: &Function, from: Block, without: Block) -> Vec<Block> {
    let mut seen: SecondaryMap<Block, bool> = SecondaryMap::new();
    seen[without] = true;
    let (mut found, mut work) = (Vec::new(), vec![from]);
    while let Some(b) = work.pop() {
        if !std::mem::replace(&mut seen[b], true) {
            found.push(b);
            work.extend(f.block(b).terminator.targets().iter().map(|c| c.block));
        }
    }
    found
}

fn thread(f: &mut Function, cfg: &Cfg, once: Once) {
    let args = f.block(once.header).args.clone();
    let came_back = |v: Value| place(&args, v).map_or(v, |at| once.returned[at]);
    let mut given: Vec<Value> = once.exit.args.iter().map(|v| came_back(*v)).collect();
    if has_one_jump(f, cfg, once.exit.block) {
        let mut replaced: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
        for (arg, v) in args.iter().zip(&once.returned) {
            let ty = f.ty(*arg).clone();
            replaced[*arg] = Some(f.add_block_arg(once.exit.block, ty));
            given.push(*v);
        }
        let behind: Vec<Block> = f.layout.iter().copied().filter(|b| cfg.dominates(once.exit.block, *b)).collect();
        f.replace_uses_in(&behind, &replaced);
    }
    f.terminate(once.header, Terminator::Br(once.body));
    for call in f.block_mut(once.latch).terminator.targets_mut() {
        if call.block == once.header {
            *call = BlockCall { block: once.exit.block, args: given.clone() };
        }
    }
}
