//! Range analysis: indices that are in range because of the loops around them.
//!
//! In: a function, a block, an index value and an extent. Out: whether the index is at least 0 and
//! below the extent whenever the block is reached. Indices that cannot be proved are checked at run
//! time.
//!
//! Constants are proved, and induction variables as lowering generates them: a block argument that
//! starts at a constant or at a non-negative dimension, is incremented by a small constant in each
//! iteration, and is compared with a bound before the block is reached.
//!
//! ```text
//! ^bb0:
//!   br ^bb1(0)
//! ^bb1(%i: index):
//!   %c = lt %i, 12                        : bool[]
//!   br_if %c, ^bb2, ^bb3                  // in ^bb2, and in what it dominates, 0 <= %i < 12
//! ^bb2:
//!   %j = add %i, 1                        : index
//!   br ^bb1(%j)
//! ```

use super::{Block, Cfg, Function, Op, Terminator, Value, ValueDef};
use crate::scalar::{BinaryOp, CmpOp};
use crate::shape::Dim;

/// The maximum increment of a counter: no program iterates often enough to overflow 64 bits.
const MAX_STEP: i64 = 1 << 10;

/// Is the index provably within `0..extent` in a block?
pub fn in_range(f: &Function, cfg: &Cfg, at: Block, index: Value, extent: &Dim) -> bool {
    if let Some(n) = number(f, index) {
        return n >= 0 && Dim::from(n).add(&Dim::one()).at_most_by_form(extent);
    }
    let ValueDef::Arg(header, position) = f.def(index) else { return false };
    if header == f.entry() || !cfg.dominates(header, at) {
        return false;
    }
    let incoming = cfg.predecessors(header).iter().flat_map(|p| f.block(*p).terminator.targets());
    let mut given = incoming.filter(|c| c.block == header).map(|c| c.args.get(position).copied());
    let grows = given.all(|v| v.is_some_and(|v| begins(f, v) || steps(f, v, index)));
    grows && guarded(f, cfg, at, header, index, extent)
}

/// The value of a constant index.
fn number(f: &Function, v: Value) -> Option<i64> {
    match &f.definition(v)?.1.op {
        Op::Const(s) => Some(s.as_i64()),
        Op::DimValue(d) => d.as_const(),
        _ => None,
    }
}

/// Is the initial value non-negative?
fn begins(f: &Function, v: Value) -> bool {
    number(f, v).is_some_and(|n| n >= 0)
        || f.definition(v).is_some_and(|(_, d)| matches!(&d.op, Op::DimValue(d) if d.is_provably_nonnegative()))
}

/// Is it the counter, or the counter plus a small constant?
fn steps(f: &Function, v: Value, counter: Value) -> bool {
    let Some((_, d)) = f.definition(v) else { return v == counter };
    let small = |v: Value| number(f, v).is_some_and(|n| (0..=MAX_STEP).contains(&n));
    match (&d.op, d.operands.as_slice()) {
        (Op::Binary(BinaryOp::Add), [a, b]) => (*a == counter && small(*b)) || (*b == counter && small(*a)),
        _ => false,
    }
}

/// Is the block reached only if the header found the counter below a bound that is at most the
/// extent?
fn guarded(f: &Function, cfg: &Cfg, at: Block, header: Block, counter: Value, extent: &Dim) -> bool {
    let Terminator::BrIf { condition, then, otherwise } = &f.block(header).terminator else { return false };
    let body = then.block;
    // The branch on the comparison must be the only edge into the body.
    let alone = cfg.predecessors(body) == [header] && otherwise.block != body;
    let below = bound(f, *condition, counter);
    alone && cfg.dominates(body, at) && below.is_some_and(|bound| bound.at_most_by_form(extent))
}

/// The bound that a loop's header finds a counter of the loop below, in the blocks in which the
/// counter is in range; `None` without such a comparison.
pub fn bound_of_counter(f: &Function, cfg: &Cfg, at: Block, header: Block, counter: Value) -> Option<Dim> {
    let Terminator::BrIf { condition, .. } = f.block(header).terminator else { return None };
    bound(f, condition, counter).filter(|bound| in_range(f, cfg, at, counter, bound))
}

/// The `n` of a condition `counter < n`, if it is a dimension.
fn bound(f: &Function, condition: Value, counter: Value) -> Option<Dim> {
    let (_, compare) = f.definition(condition)?;
    let bound = match (&compare.op, compare.operands.as_slice()) {
        (Op::Compare(CmpOp::Lt), [a, b]) if *a == counter => *b,
        (Op::Compare(CmpOp::Gt), [a, b]) if *b == counter => *a,
        _ => return None,
    };
    match (number(f, bound), f.definition(bound).map(|(_, d)| &d.op)) {
        (Some(n), _) => Some(Dim::from(n)),
        (None, Some(Op::DimValue(d))) => Some(d.clone()),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::text::parse;

    /// Is the first index of the tap proved in range for this extent, in a loop like this one?
    fn proved(head: &str, start: &str, compare: &str, step: &str, extent: &Dim) -> bool {
        let text = format!(
            "module \"m\"\nfunc @f(%0 \"x\": f32[S]) -> () {{\n^bb0:\n  %1 = dim S : index\n  %2 = dim S-1 : index\n  \
             br ^bb1({start})\n^bb1(%3: index):\n  %4 = {compare} : bool[]\n  {head}\n^bb2:\n  \
             tap %0, \"x\"[%3 < 9]\n  %5 = {step} : index\n  br ^bb1(%5)\n^bb3:\n  return\n}}"
        );
        let module = parse(&text, Default::default()).unwrap_or_else(|d| panic!("{:?}", d.sorted())).module;
        let f = &module.functions[0];
        let cfg = f.cfg();
        let (at, _, tap) = f.insts().find(|(_, _, d)| matches!(d.op, Op::Tap { .. })).unwrap();
        in_range(f, &cfg, at, tap.operands[1], extent)
    }

    #[test]
    fn counters_are_proved() {
        let usual = "br_if %4, ^bb2, ^bb3";
        let (nine, s) = (Dim::from(9), Dim::symbol("S"));
        let ok = |start: &str, compare: &str, step: &str, extent: &Dim| proved(usual, start, compare, step, extent);
        assert!(ok("0", "lt %3, 9", "add %3, 1", &nine));
        assert!(ok("0", "lt %3, 8", "add %3, 2", &nine));
        assert!(ok("%1", "gt 9, %3", "add 1, %3", &nine));
        assert!(ok("0", "lt %3, %1", "add %3, 1", &s));
        assert!(ok("0", "lt %3, %1", "add %3, 1", &s.add(&Dim::one())));
        for (start, compare, step) in [
            ("-1", "lt %3, 9", "add %3, 1"),
            ("%2", "lt %3, 9", "add %3, 1"),
            ("0", "lt %3, 10", "add %3, 1"),
            ("0", "le %3, 9", "add %3, 1"),
            ("0", "lt %3, %1", "add %3, 1"),
            ("0", "gt %3, 9", "add %3, 1"),
            ("0", "lt %1, 9", "add %3, 1"),
            ("0", "lt %3, 9", "sub %3, 1"),
            ("0", "lt %3, 9", "add %3, -1"),
            ("0", "lt %3, 9", "add %3, 4611686018427387904"),
            ("0", "lt %3, 9", "mul %3, 3"),
            ("0", "lt %3, 9", "add %1, 1"),
        ] {
            assert!(!ok(start, compare, step, &nine), "{start}, {compare}, {step}");
        }
        assert!(!proved("br_if %4, ^bb3, ^bb2", "0", "lt %3, 9", "add %3, 1", &nine));
        assert!(!proved("br ^bb2", "0", "lt %3, 9", "add %3, 1", &nine));
        assert!(!proved("br_if %4, ^bb2, ^bb2", "0", "lt %3, 9", "add %3, 1", &nine));
    }
}
