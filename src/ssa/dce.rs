//! Dead code elimination.

use std::cell::Cell;

use cranelift_entity::SecondaryMap;

use super::{Body, Dialect, Terminator, Value, ValueDef};

/// The live values: used by operations that write ([`super::Effects::is_kept`]), by conditions of
/// jumps and by results. A live block argument makes live what every jump passes for it; so an
/// argument that only feeds itself around a loop is dead.
pub fn live<D: Dialect>(body: &Body<D>) -> SecondaryMap<Value, bool> {
    let predecessors = body.predecessors();
    let mut work: Vec<Value> = Vec::new();
    for (_, i, data) in body.insts() {
        if D::effects(&data.op).is_kept() {
            body.for_each_use(i, |v| work.push(v));
        }
    }
    for b in &body.layout {
        match &body.block(*b).terminator {
            Terminator::Br(_) | Terminator::Roles(_) => {}
            Terminator::BrIf { condition, .. } => work.push(*condition),
            Terminator::Return(vs) => work.extend(vs),
        }
    }
    let mut live: SecondaryMap<Value, bool> = SecondaryMap::new();
    while let Some(v) = work.pop() {
        if std::mem::replace(&mut live[v], true) {
            continue;
        }
        match body.def(v) {
            ValueDef::Param => {}
            ValueDef::Result(i) => body.for_each_use(i, |v| work.push(v)),
            ValueDef::Arg(block, at) => {
                D::for_each_value_of_type(body.ty(v), &mut |v| work.push(v));
                for p in &predecessors[block] {
                    let calls = body.block(*p).terminator.targets().into_iter().filter(|c| c.block == block);
                    work.extend(calls.filter_map(|c| c.args.get(at)));
                }
            }
        }
    }
    live
}

/// Removes dead instructions and dead block arguments (except the entry's). Returns the number of
/// each.
pub fn remove_dead<D: Dialect>(body: &mut Body<D>) -> (usize, usize) {
    let live = live(body);
    let removed = Cell::new(0);
    body.remove_insts(|_, d| {
        let dead = !d.result.is_some_and(|v| live[v]) && !D::effects(&d.op).is_kept();
        removed.set(removed.get() + usize::from(dead));
        dead
    });
    let mut arguments = 0;
    for b in body.layout.clone().into_iter().skip(1) {
        let dead: Vec<bool> = body.block(b).args.iter().map(|v| !live[*v]).collect();
        if dead.contains(&true) {
            arguments += dead.iter().filter(|d| **d).count();
            body.remove_block_args(b, |i| dead.get(i) == Some(&true));
        }
    }
    (removed.get(), arguments)
}
