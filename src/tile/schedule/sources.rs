//! Operations that are duplicated into each run that uses them, and accesses that get runs of their
//! own.
//!
//! In: a kernel's body, and what was decided about its tiles. Out: the operations that each run
//! duplicates. It must not know where tiles live.

use std::collections::{BTreeMap, BTreeSet};

use super::runs::{extents, is_elementwise, run_shape, tile};
use crate::tile::{Block, Body, Inst, Op, Tiled, Value, ValueDef};

/// The operations that are duplicated into each run that uses them, because that is as cheap as a
/// trip through scratch: fills, counters, loads without uses in other blocks (a tile that a loop
/// uses repeatedly is loaded once); and work on such tiles alone that has a single use, in a run of
/// the same extents. With `loads_once`, a load must have a single use too. Operations in `apart`
/// are never duplicated, and the operand of a store in `apart` is loaded and computed with the
/// rest.
pub(super) fn sources(body: &Body, tiled: &Tiled) -> BTreeSet<Inst> {
    let mut out = BTreeSet::new();
    let stored: BTreeSet<Value> = tiled.apart.iter().filter_map(|i| stored(body, *i)).collect();
    let stays = |i: &Inst| tiled.apart.contains(i) || body.inst(*i).result.is_some_and(|v| stored.contains(&v));
    let mut home = BTreeMap::new();
    let mut uses: BTreeMap<Value, Vec<(Block, Option<Inst>)>> = BTreeMap::new();
    for block in &body.layout {
        let data = body.block(*block);
        for inst in &data.insts {
            let d = body.inst(*inst);
            if matches!(d.op, Op::Load { .. } | Op::Full | Op::Iota { .. }) && !stays(inst) {
                out.insert(*inst);
                home.extend(d.result.map(|v| (v, (*inst, *block))));
            }
            d.operands.iter().for_each(|v| uses.entry(*v).or_default().push((*block, Some(*inst))));
        }
        data.terminator.values().iter().for_each(|v| uses.entry(*v).or_default().push((*block, None)));
    }
    for (v, (inst, block)) in &home {
        let again = |u: &Vec<_>| u.iter().any(|(at, _)| at != block) || tiled.loads_once && u.len() > 1;
        let elsewhere = uses.get(v).is_some_and(again);
        if elsewhere && matches!(body.inst(*inst).op, Op::Load { .. }) {
            out.remove(inst);
        }
    }
    for block in &body.layout {
        for inst in &body.block(*block).insts {
            let d = body.inst(*inst);
            let Some((v, shape)) = d.result.and_then(|v| Some((v, extents(body, v)?))) else { continue };
            let once = match uses.get(&v).map(Vec::as_slice) {
                Some([(at, Some(user))]) => at == block && run_shape(body, *user) == Some(shape),
                _ => false,
            };
            let from_sources = d.operands.iter().filter(|v| tile(body, **v).is_some()).all(|v| match body.def(*v) {
                ValueDef::Result(i) => out.contains(&i),
                _ => false,
            });
            if once && from_sources && is_elementwise(&d.op) && !stays(inst) {
                out.insert(*inst);
            }
        }
    }
    out
}

/// The tile operand of a store.
pub(super) fn stored(body: &Body, inst: Inst) -> Option<Value> {
    let data = body.inst(inst);
    if matches!(data.op, Op::Store { .. }) { data.operands.last().copied() } else { None }
}
