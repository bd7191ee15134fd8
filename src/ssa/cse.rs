//! Common subexpression elimination.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use cranelift_entity::SecondaryMap;

use super::{Block, Body, Dialect, Inst, InstData, Value};

/// A simplification found for an instruction.
pub enum Simplified<O> {
    /// Another operation, without operands: a literal.
    Literal(O),
    /// An existing value.
    Value(Value),
}

/// Merges instructions that are the same: operation, attributes, operands (of a commutative
/// operation in either order) and type. The earlier one must dominate the later one. Operations
/// that read or write mutable state are kept ([`super::Effects::is_repeatable`]), and nested
/// instructions stay in their operation.
///
/// `group` maps a value's instruction to a group: only instructions of the same group are merged,
/// and those without one not at all. Returns the number of removed instructions.
pub fn merge_common<D: Dialect>(
    body: &mut Body<D>,
    group: impl Fn(&Body<D>, &InstData<D::Op>, Value) -> Option<u8>,
) -> usize {
    fold_and_merge(body, |_, _, _| None, group)
}

/// The same, combined with folding in one walk: `known` simplifies each instruction, whose operands
/// are already replaced.
pub fn fold_and_merge<D: Dialect>(
    body: &mut Body<D>,
    known: impl Fn(&Body<D>, &InstData<D::Op>, Value) -> Option<Simplified<D::Op>>,
    group: impl Fn(&Body<D>, &InstData<D::Op>, Value) -> Option<u8>,
) -> usize {
    let cfg = body.cfg();
    // Candidates by a hash of everything but the type; equality is then checked. Each links to the
    // previous one with the same hash.
    let mut last: HashMap<(u64, u8), usize, BuildHasherDefault<Mixer>> = HashMap::default();
    let mut seen: Vec<(Inst, Block, Option<usize>)> = Vec::new();
    let mut replaced: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    let mut dead: SecondaryMap<Inst, bool> = SecondaryMap::new();
    let mut gone = 0;
    // Dominators come first, so operands are already replaced.
    for b in cfg.dominator_order() {
        for at in 0..body.block(b).insts.len() {
            let i = body.block(b).insts[at];
            for v in &mut body.inst_mut(i).operands {
                if let Some(w) = replaced[*v] {
                    *v = w;
                }
            }
            let inst = body.inst(i);
            let Some(result) = inst.result else { continue };
            let mut same = match known(body, inst, result) {
                Some(Simplified::Value(v)) => Some(v),
                Some(Simplified::Literal(op)) => {
                    let inst = body.inst_mut(i);
                    (inst.op, inst.operands) = (op, Vec::new());
                    None
                }
                None => None,
            };
            let inst = body.inst(i);
            if same.is_none() && D::effects(&inst.op).is_repeatable() {
                let Some(group) = group(body, inst, result) else { continue };
                let key = (digest::<D>(inst), group);
                let before = last.get(&key).copied();
                let chain = std::iter::successors(before, |at| seen[*at].2);
                same = chain.into_iter().find_map(|at| {
                    let (j, place, _) = seen[at];
                    let earlier = body.inst(j);
                    let v = earlier.result?;
                    let alike = earlier.op == inst.op
                        && same_operands::<D>(earlier, inst)
                        && body.ty(v) == body.ty(result)
                        && cfg.dominates(place, b);
                    alike.then_some(v)
                });
                if same.is_none() {
                    last.insert(key, seen.len());
                    seen.push((i, b, before));
                }
            }
            if same.is_some() {
                replaced[result] = same;
                dead[i] = true;
                gone += 1;
            }
        }
    }
    if gone > 0 {
        body.replace_uses(&replaced);
        body.remove_insts(|i, _| dead[i]);
    }
    gone
}

fn same_operands<D: Dialect>(a: &InstData<D::Op>, b: &InstData<D::Op>) -> bool {
    match (a.operands.as_slice(), b.operands.as_slice()) {
        ([p, q], [r, s]) if D::is_commutative(&a.op) => (p, q) == (r, s) || (p, q) == (s, r),
        (a, b) => a == b,
    }
}

/// A hash that is equal for equal instructions.
fn digest<D: Dialect>(inst: &InstData<D::Op>) -> u64 {
    let mut h = Mixer::default();
    D::digest(&inst.op, &mut h);
    match inst.operands.as_slice() {
        [a, b] if D::is_commutative(&inst.op) => (a.min(b), a.max(b)).hash(&mut h),
        operands => operands.hash(&mut h),
    }
    h.finish()
}

/// A fast hasher that is not collision-resistant: processes 8 bytes in a few instructions.
#[derive(Default)]
struct Mixer(u64);

impl Mixer {
    fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.word(u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.word(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.word(n);
    }

    fn write_usize(&mut self, n: usize) {
        self.word(n as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
