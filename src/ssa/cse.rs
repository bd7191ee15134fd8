//! Common subexpressions: what was computed before is not computed again.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use cranelift_entity::SecondaryMap;

use super::{Block, Body, Dialect, Inst, InstData, Value};

/// Merges instructions that are the same: operation, attributes, operands (of a commutative operation in either order) and
/// type. The earlier one stands in a block that dominates the later one's, or before it in the same block. What reads or
/// writes what may change stays ([`super::Effects::is_repeatable`]), and what an operation holds stays in it.
///
/// `group` says of the instruction that makes a value whether it takes part, and with which others: those of its group
/// alone. Gives how many instructions are gone.
pub fn merge_common<D: Dialect>(
    body: &mut Body<D>,
    group: impl Fn(&Body<D>, &InstData<D::Op>, Value) -> Option<u8>,
) -> usize {
    let cfg = body.cfg();
    // What may be the same by a number that is computed from all of it but the type; then it is compared.
    let mut known: BTreeMap<(u64, u8), Vec<(Inst, Block)>> = BTreeMap::new();
    let mut replaced: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    let mut dead: SecondaryMap<Inst, bool> = SecondaryMap::new();
    let mut merged = 0;
    // Dominators come first, so operands are already those that stay.
    for b in cfg.dominator_order() {
        for at in 0..body.block(b).insts.len() {
            let i = body.block(b).insts[at];
            for v in &mut body.inst_mut(i).operands {
                if let Some(w) = replaced[*v] {
                    *v = w;
                }
            }
            let inst = body.inst(i);
            let Some(result) = inst.result.filter(|_| D::effects(&inst.op).is_repeatable()) else { continue };
            let Some(group) = group(body, inst, result) else { continue };
            let candidates = known.entry((digest::<D>(inst), group)).or_default();
            let same = candidates.iter().find_map(|(j, place)| {
                let earlier = body.inst(*j);
                let v = earlier.result?;
                let alike = earlier.op == inst.op
                    && same_operands::<D>(earlier, inst)
                    && body.ty(v) == body.ty(result)
                    && cfg.dominates(*place, b);
                alike.then_some(v)
            });
            match same {
                Some(v) => {
                    replaced[result] = Some(v);
                    dead[i] = true;
                    merged += 1;
                }
                None => candidates.push((i, b)),
            }
        }
    }
    if merged > 0 {
        body.replace_uses(&replaced);
        body.remove_insts(|i, _| dead[i]);
    }
    merged
}

fn same_operands<D: Dialect>(a: &InstData<D::Op>, b: &InstData<D::Op>) -> bool {
    match (a.operands.as_slice(), b.operands.as_slice()) {
        ([p, q], [r, s]) if D::is_commutative(&a.op) => (p, q) == (r, s) || (p, q) == (s, r),
        (a, b) => a == b,
    }
}

/// A number that is the same for instructions that are the same.
fn digest<D: Dialect>(inst: &InstData<D::Op>) -> u64 {
    let mut h = DefaultHasher::new();
    D::digest(&inst.op).hash(&mut h);
    match inst.operands.as_slice() {
        [a, b] if D::is_commutative(&inst.op) => (a.min(b), a.max(b)).hash(&mut h),
        operands => operands.hash(&mut h),
    }
    h.finish()
}
