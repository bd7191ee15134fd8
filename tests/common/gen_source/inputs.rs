//! Arguments and parameters for a generated program, from a seed.

use std::collections::BTreeMap;

use attnc::ir::{Module, ParamDecl};
use attnc::random::Random;
use attnc::shape::Elem;
use attnc::tensor::Tensor;

use super::{Entry, Generated, Values, float, stream};

/// Sizes of a call: what `..` stands for, and the run-time dimensions by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// The axes of `..`, where the program has it.
    pub(crate) lead: Vec<usize>,
    /// The run-time dimensions.
    pub(crate) symbols: BTreeMap<String, i64>,
}

/// A call of an entry point.
#[derive(Clone, Debug)]
pub(crate) struct GivenCall {
    /// The entry point.
    pub(crate) entry: &'static str,
    /// Its sizes.
    pub(crate) sizes: Sizes,
    /// Its arguments.
    pub(crate) args: Vec<Tensor>,
}

impl Generated {
    /// Does a session keep nothing?
    pub(crate) fn is_stateless(&self) -> bool {
        !self.source.contains("    state ")
    }

    /// So many calls, for one session.
    pub(crate) fn calls(&self, seed: u64, count: u64) -> Vec<GivenCall> {
        let mut random = stream(seed ^ 0x2b2b);
        let call = |n: u64| {
            let entry = if n == 0 { &self.entries[0] } else { &self.entries[random.below(self.entries.len())] };
            let sizes = entry.sizes(seed.wrapping_add(n * 7919));
            let args = entry.inputs(seed.wrapping_add(n), &sizes);
            GivenCall { entry: entry.name, sizes, args }
        };
        (0..count).map(call).collect()
    }

    /// Sizes for a call of `forward`.
    pub(crate) fn sizes(&self, seed: u64) -> Sizes {
        self.entries[0].sizes(seed)
    }

    /// The arguments of a call of `forward`.
    pub(crate) fn inputs(&self, seed: u64, sizes: &Sizes) -> Vec<Tensor> {
        self.entries[0].inputs(seed, sizes)
    }
}

impl Entry {
    /// Sizes for a call, small and often odd; now and then 0 or 1.
    pub(crate) fn sizes(&self, seed: u64) -> Sizes {
        let mut random = stream(seed ^ 0x5151);
        let symbols = self.symbols.iter().map(|name| (name.clone(), random.pick(&[0, 1, 2, 3, 5, 7, 8, 13, 17, 33])));
        let symbols = symbols.collect();
        let lead = random.pick(&[&[][..], &[2], &[3], &[2, 3], &[1, 1], &[0]]).to_vec();
        Sizes { lead, symbols }
    }

    /// The arguments of a call.
    pub(crate) fn inputs(&self, seed: u64, sizes: &Sizes) -> Vec<Tensor> {
        let mut random = stream(seed ^ 0x1a1a);
        let symbol = |name: &str| sizes.symbols.get(name).copied().unwrap_or(1);
        let tensor = |arg: &super::Arg| {
            let shape = arg.shape_for(&sizes.lead, &symbol);
            let count: usize = shape.iter().product();
            let ints = |random: &mut Random, limit: i64| -> Vec<i64> {
                (0..count).map(|_| random.below(usize::try_from(limit).unwrap_or(1)) as i64).collect()
            };
            match arg.values {
                Values::Floats => floats(arg.elem, shape, &mut random, 1.0),
                Values::Below(limit) => {
                    let values = ints(&mut random, limit);
                    Tensor::from_ints(arg.elem, shape, &values).expect("as many elements as the shape says")
                }
                Values::Truths => {
                    let values = ints(&mut random, 2);
                    Tensor::from_ints(Elem::Bool, shape, &values).expect("as many elements as the shape says")
                }
            }
        };
        self.args.iter().map(tensor).collect()
    }
}

/// Parameters for a module, by path.
pub(crate) fn parameters(module: &Module, seed: u64) -> BTreeMap<String, Tensor> {
    let mut out = BTreeMap::new();
    for decl in &module.params {
        for path in paths(decl) {
            let mut random = stream(path.bytes().fold(seed, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b))));
            let shape: Vec<usize> = decl
                .ty
                .shape
                .iter()
                .map(|d| d.as_const().and_then(|n| usize::try_from(n).ok()).expect("a parameter has a known shape"))
                .collect();
            let tensor = match decl.ty.elem {
                Elem::F32 | Elem::BF16 | Elem::F16 => floats(decl.ty.elem, shape, &mut random, 0.5),
                elem => {
                    let count: usize = shape.iter().product();
                    let values: Vec<i64> = (0..count).map(|_| random.below(41) as i64 - 20).collect();
                    Tensor::from_ints(elem, shape, &values).expect("as many elements as the shape says")
                }
            };
            out.insert(path, tensor);
        }
    }
    out
}

fn floats(elem: Elem, shape: Vec<usize>, random: &mut Random, scale: f64) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|_| float(random) * scale).collect();
    Tensor::from_floats(elem, shape, &values).expect("as many elements as the shape says")
}

/// The path of each tensor of a family.
fn paths(decl: &ParamDecl) -> Vec<String> {
    let mut paths = vec![decl.name.clone()];
    for count in &decl.counts {
        paths = paths.iter().flat_map(|path| (0..*count).map(move |i| path.replacen('*', &i.to_string(), 1))).collect();
    }
    paths
}
