//! Divisibility analysis of indices, for matmuls that process k in pairs, and for 16-byte copies.
//!
//! In: a body and an index or an extent in it. Out: whether it is provably a multiple of a number
//! for all inputs. An index is one if its operands are; a block argument is if every jump passes
//! one, by induction over loop iterations. It must not know matmuls or instruction sets.

use std::collections::{BTreeMap, BTreeSet};

use super::{Block, BlockCall, Body, Extent, Op, Value, ValueDef};
use crate::scalar::{BinaryOp, Scalar};

impl Extent {
    /// Is it provably even, including its maximum?
    pub fn is_even(self, body: &Body) -> bool {
        match self {
            Extent::Static(n) => n % 2 == 0,
            Extent::Bounded { value, max } => max % 2 == 0 && is_multiple(body, value, 2),
        }
    }
}

/// Is an index provably a multiple of `n`?
pub(crate) fn is_multiple(body: &Body, index: Value, n: i64) -> bool {
    let by_itself = |v: Value| match body.def_inst(v).map(|d| &d.op) {
        Some(Op::Const(Scalar::Int(literal))) => literal % n == 0,
        Some(Op::DimValue(d)) => d.is_multiple_of(n),
        _ => false,
    };
    let mut jumps: Option<BTreeMap<Block, Vec<&BlockCall>>> = None;
    let mut seen = BTreeSet::from([index]);
    let mut open = vec![index];
    while let Some(v) = open.pop() {
        if by_itself(v) {
            continue;
        }
        // Everything that must be a multiple for this one to be.
        let from: Vec<Value> = match body.def(v) {
            ValueDef::Param => return false,
            ValueDef::Arg(block, place) => {
                let jumps = jumps.get_or_insert_with(|| jumps_of(body));
                let calls = jumps.get(&block).map_or(&[][..], Vec::as_slice);
                match calls.iter().map(|c| c.args.get(place).copied()).collect::<Option<Vec<Value>>>() {
                    Some(given) if !given.is_empty() => given,
                    _ => return false,
                }
            }
            ValueDef::Result(i) => {
                let data = body.inst(i);
                match data.op {
                    Op::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Min | BinaryOp::Max) => data.operands.clone(),
                    Op::Binary(BinaryOp::Mul) if data.operands.iter().any(|x| by_itself(*x)) => Vec::new(),
                    _ => return false,
                }
            }
        };
        open.extend(from.into_iter().filter(|x| seen.insert(*x)));
    }
    true
}

/// The jumps to each block.
fn jumps_of(body: &Body) -> BTreeMap<Block, Vec<&BlockCall>> {
    let mut jumps: BTreeMap<Block, Vec<&BlockCall>> = BTreeMap::new();
    for b in &body.layout {
        for call in body.block(*b).terminator.targets() {
            jumps.entry(call.block).or_default().push(call);
        }
    }
    jumps
}

#[cfg(test)]
mod tests {
    use crate::source::SourceMap;
    use crate::tile::{ValueDef, text, verify};

    /// A loop over 2304 k indices, at most 2048 at a time, as in matmuls.
    const LOOP: &str = r#"module "loop"

kernel @k(%n: index) grid(%i: ceil(8, 1)) {
^bb0:
  %start = const 0                          : index
  %end = const 2304                         : index
  %most = const 2048                        : index
  br ^steps(%start)
^steps(%at: index):
  %more = lt %at, %end                      : bool
  br_if %more, ^step, ^done
^step:
  %rest = sub %end, %at                     : index
  %count = min %rest, %most                 : index
  %next = add %at, %most                    : index
  br ^steps(%next)
^done:
  %twice = mul %i, %most                    : index
  %more_or_less = add %twice, %n            : index
  return
}
"#;

    /// The names of the indices that are provably even.
    fn even(source: &str) -> Vec<String> {
        let mut sources = SourceMap::new();
        let file = sources.add("multiples.tir", source);
        let module = text::parse(source, file).unwrap_or_else(|_| panic!("the text is wrong")).module;
        verify::verify(&module).unwrap_or_else(|e| panic!("{e}"));
        let body = &module.kernels[0].body;
        let args = body.layout.iter().flat_map(|b| body.block(*b).args.clone());
        let results = body.insts().filter_map(|(_, _, d)| d.result);
        let all = args.chain(results).filter(|v| *body.ty(*v) == crate::tile::Type::Index);
        let even = all.filter(|v| !matches!(body.def(*v), ValueDef::Param) && super::is_multiple(body, *v, 2));
        even.map(|v| body.name(v).to_string()).collect()
    }

    #[test]
    fn multiples_of_eight() {
        let mut sources = SourceMap::new();
        let file = sources.add("multiples.tir", LOOP);
        let module = text::parse(LOOP, file).unwrap_or_else(|_| panic!("the text is wrong")).module;
        let body = &module.kernels[0].body;
        let named = |name: &str| {
            let args = body.layout.iter().flat_map(|b| body.block(*b).args.clone());
            let mut all = args.chain(body.insts().filter_map(|(_, _, d)| d.result));
            all.find(|v| body.name(*v) == name).unwrap()
        };
        for (name, n, is) in
            [("at", 2048, true), ("at", 4096, false), ("rest", 256, true), ("rest", 512, false), ("twice", 2048, true)]
        {
            assert_eq!(super::is_multiple(body, named(name), n), is, "{name} {n}");
        }
    }

    #[test]
    fn steps_of_an_even_number_are_even_and_no_others() {
        assert_eq!(even(LOOP), ["at", "start", "end", "most", "rest", "count", "next", "twice"]);
        // With an odd extent, the rest is odd.
        let odd = LOOP.replace("const 2304", "const 2303");
        assert_eq!(even(&odd), ["at", "start", "most", "next", "twice"]);
        // From an odd start, every second index is odd.
        let odd = LOOP.replace("const 0 ", "const 1 ");
        assert_eq!(even(&odd), ["end", "most", "twice"]);
        let odd = LOOP.replace("const 2048", "const 2047");
        assert_eq!(even(&odd), ["start", "end"]);
    }
}
