//! Plans in tile IR made at random: launches in loops and branches, slots that are read and written again, states, a length that is
//! computed, views. Their kernels are those of `gen_tile`, of which every machine computes the same bits.
//!
//! In: a seed. Out: a [`Planned`] entry point, of a name of its own. A test program takes it in by
//! `#[path = "../common/gen_plan.rs"] mod gen_plan;`, beside `gen_tile`.

use attnc::ir::{ArgDecl, EntryDecl, ResultDecl, StateDecl};
use attnc::random::Random;
use attnc::scalar::{BinaryOp, CmpOp, Scalar};
use attnc::shape::{Dim, Elem, TensorType};
use attnc::tile::{BufferType, Kernel, Op, Plan, PlanBuilder, PlanOp, PlanVariant, Type, Value};

use crate::gen_tile::{make_over, types};

/// An entry point with what it needs.
pub(crate) struct Planned {
    pub(crate) entry: EntryDecl,
    pub(crate) plan: Plan,
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) states: Vec<StateDecl>,
}

/// A plan being made.
struct Maker {
    rng: Random,
    plan: PlanBuilder,
    kernels: Vec<String>,
    /// The arguments, of the types that kernels take, in order.
    args: Vec<Value>,
    /// What kernels write beside their result, and nobody reads.
    unread: [Value; 2],
    /// What has been written, and so may be read.
    filled: Vec<Value>,
    /// What may be written.
    written: Vec<Value>,
}

impl Maker {
    /// A kernel reads one buffer and writes another one.
    fn launch(&mut self) {
        let from = self.rng.pick(&self.filled);
        let others: Vec<Value> = self.written.iter().copied().filter(|v| *v != from).collect();
        let to = self.rng.pick(&others);
        let kernel = self.rng.pick(&self.kernels);
        self.launch_of(&kernel, from, to);
    }

    fn launch_of(&mut self, kernel: &str, from: Value, to: Value) {
        let mut operands = vec![from];
        operands.extend(&self.args[1..]);
        operands.push(to);
        operands.extend(self.unread);
        self.plan.launch(kernel, operands);
    }

    fn launches(&mut self) {
        for _ in 0..1 + self.rng.below(2) {
            self.launch();
        }
    }

    /// A loop of some iterations.
    fn repeated(&mut self) {
        let zero = self.plan.index(0);
        let end = self.plan.index(self.rng.below(4) as i64);
        let (head, args) = self.plan.new_block(vec![Type::Index]);
        let (body, _) = self.plan.new_block(Vec::new());
        let (after, _) = self.plan.new_block(Vec::new());
        self.plan.br(head, &[zero]);
        self.plan.switch_to(head);
        let more = self.plan.compare_scalars(CmpOp::Lt, args[0], end);
        self.plan.br_if(more, (body, &[]), (after, &[]));
        self.plan.switch_to(body);
        self.launches();
        let next = self.plan.plus(args[0], 1);
        self.plan.br(head, &[next]);
        self.plan.switch_to(after);
    }

    /// One side or the other, by a comparison of dimensions, or of an element where there certainly is one.
    fn branch(&mut self, ty: &BufferType) {
        let known = ty.shape.iter().all(|d| d.as_const().is_some_and(|n| n > 0));
        let condition = if known && self.rng.chance(70) {
            let from = self.rng.pick(&self.filled);
            let zero = self.plan.index(0);
            let element = self.plan.load_scalar(from, &[zero, zero]);
            let limit = self.plan.value(Op::Const(Scalar::Float(0.25)), Vec::new(), Type::Scalar(Elem::F32));
            self.plan.compare_scalars(CmpOp::Lt, element, limit)
        } else {
            let (a, b) = (self.plan.dim(&ty.shape[0]), self.plan.dim(&ty.shape[1]));
            self.plan.compare_scalars(CmpOp::Lt, a, b)
        };
        let (then, _) = self.plan.new_block(Vec::new());
        let (other, _) = self.plan.new_block(Vec::new());
        let (join, _) = self.plan.new_block(Vec::new());
        self.plan.br_if(condition, (then, &[]), (other, &[]));
        for side in [then, other] {
            self.plan.switch_to(side);
            self.launches();
            self.plan.br(join, &[]);
        }
        self.plan.switch_to(join);
    }

    /// The first rows alone, as many as a length says that is computed, by a kernel over that length.
    fn part(&mut self, name: &str, all: &[BufferType]) -> Kernel {
        let (r, n) = (all[0].shape[0].clone(), Dim::symbol("N"));
        let rows = self.plan.dim(&r);
        let few = self.plan.index(self.rng.below(5) as i64);
        let value = self.plan.index_binary(BinaryOp::Min, rows, few);
        self.plan.length(value, "N", r.clone());
        // The same windows of fewer rows.
        let short = |ty: &BufferType| {
            let shape = ty.shape.iter().map(|d| if *d == r { n.clone() } else { d.clone() }).collect();
            BufferType { shape, ..ty.clone() }
        };
        let mut own: Vec<BufferType> = all.iter().map(short).collect();
        // Where the columns are as many as the rows, they stay.
        for (own, all) in own.iter_mut().zip(all).filter(|(own, _)| own.shape.len() == 2) {
            if all.shape[0] == all.shape[1] {
                *own = all.clone();
            }
        }
        let kernel = make_over(name, &mut self.rng, true, &own);
        let (from, to) = (self.filled[0], self.written[0]);
        let mut operands = vec![from];
        operands.extend(&self.args[1..]);
        operands.push(self.written.iter().copied().find(|v| *v != from).unwrap_or(to));
        operands.extend(self.unread);
        let views = operands
            .into_iter()
            .zip(&own)
            .zip(all)
            .map(|((v, own), all)| if own == all { v } else { self.plan.view(v, Dim::zero(), &[], own.clone()) });
        let views: Vec<Value> = views.collect();
        self.plan.launch(name, views);
        kernel
    }
}

/// The plan of a seed.
pub(crate) fn make(seed: u64) -> Planned {
    let mut rng = Random::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(17));
    let name = format!("p{seed}");
    let is_static = rng.chance(50);
    let dim = |rng: &mut Random, symbol: &str, known: &[i64]| {
        if is_static { Dim::from(rng.pick(known)) } else { Dim::symbol(symbol) }
    };
    // The rows differ from the others, so that they can be told apart.
    let r = dim(&mut rng, "R", &[1, 7, 9]);
    let (c, k) = (dim(&mut rng, "C", &[2, 5, 16]), dim(&mut rng, "K", &[0, 3, 4]));
    let all = types(&r, &c, &k);
    let mut kernels: Vec<Kernel> = (0..2).map(|n| make_over(&format!("{name}.k{n}"), &mut rng, true, &all)).collect();

    let mut entry = EntryDecl { name: name.clone(), ..EntryDecl::default() };
    let symbols: Vec<String> = if is_static { Vec::new() } else { ["C", "K", "R"].map(String::from).to_vec() };
    let mut plan = PlanBuilder::new(&name, PlanVariant::Plain, symbols, Vec::new());
    let mut args = Vec::new();
    for ty in &all[..6] {
        let shape = TensorType::new(ty.elem, ty.shape.clone());
        args.push(plan.value(Op::Plan(PlanOp::Arg(entry.args.len() as u32)), Vec::new(), Type::Buffer(ty.clone())));
        entry.args.push(ArgDecl { name: format!("a{}", entry.args.len()), ty: shape, batch: false });
    }
    let whole = &all[0];
    let mut outs = Vec::new();
    for n in 0..2 {
        outs.push(plan.value(Op::Plan(PlanOp::Out(n)), Vec::new(), Type::Buffer(whole.clone())));
        entry.results.push(ResultDecl { ty: TensorType::new(Elem::F32, whole.shape.clone()), batch: false });
    }
    let bytes = Dim::product(&whole.shape).mul(&Dim::from(4));
    let slots: Vec<Value> = (0..4).map(|_| plan.slot(bytes.clone(), whole.clone())).collect();
    let (mut filled, mut written) = (vec![args[0]], vec![slots[2], slots[3]]);
    let mut states = Vec::new();
    if is_static && rng.chance(70) {
        let state = format!("{name}.s");
        let v = plan.value(Op::Plan(PlanOp::State { name: state.clone() }), Vec::new(), Type::Buffer(whole.clone()));
        states.push(StateDecl { name: state, ty: TensorType::new(Elem::F32, whole.shape.clone()) });
        filled.push(v);
        written.push(v);
    }
    let names = kernels.iter().map(|k| k.name.clone()).collect();
    let mut m = Maker { rng, plan, kernels: names, args, unread: [slots[0], slots[1]], filled, written };
    // Every slot is written before it may be read.
    for slot in [slots[2], slots[3]] {
        let (kernel, from) = (m.rng.pick(&m.kernels), m.rng.pick(&m.filled));
        m.launch_of(&kernel, from, slot);
        m.filled.push(slot);
    }
    let mut has_length = false;
    for _ in 0..2 + m.rng.below(4) {
        match m.rng.below(5) {
            0 | 1 => m.repeated(),
            2 => m.branch(whole),
            3 if !has_length => {
                has_length = true;
                kernels.push(m.part(&format!("{name}.n"), &all));
            }
            _ => m.launches(),
        }
    }
    for (out, slot) in outs.into_iter().zip([slots[2], slots[3]]) {
        let kernel = m.rng.pick(&m.kernels);
        m.launch_of(&kernel, slot, out);
    }
    Planned { entry, plan: m.plan.finish(), kernels, states }
}
