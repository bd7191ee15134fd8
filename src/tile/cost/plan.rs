//! The cost of a plan: evaluates its control flow on indices and on a session's counters, and
//! counts each launch.
//!
//! In: a plan of a module, values of its dimensions and states. Out: a [`PlanCost`]. A kernel that
//! launches others counts as one launch with the sum of their costs.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use cranelift_entity::SecondaryMap;

use super::contents::{BufferStart, Contents, Operand, Root};
use super::kernel::{self, AbstractValue, Done, dims_of};
use super::{Cost, Launch, MAX_STEPS, PlanCost, Setting, dim};
use crate::shape::Dim;
use crate::tile::{AllowedIn, Body, Inst, Kernel, Module, Op, Origin, Plan, PlanOp, Type, Value};

#[derive(Clone, Debug, Default)]
enum PlanValue {
    Known(AbstractValue),
    Buffer(Rc<BufferStart>),
    #[default]
    None,
}

pub(super) fn walk(
    module: &Module,
    plan: &Plan,
    symbols: &BTreeMap<String, i64>,
    setting: &Setting<'_>,
) -> Result<PlanCost, String> {
    let kernels: BTreeMap<&str, (usize, &Kernel)> =
        module.kernels.iter().enumerate().map(|(i, k)| (k.name.as_str(), (i, k))).collect();
    let body = &plan.body;
    // A dimension that is bound later has its upper bound until then.
    let mut all = symbols.clone();
    for (name, most) in plan.lengths() {
        all.insert(name.to_string(), dim(most, symbols)?);
    }
    let launches = body.insts().filter(|(_, _, d)| matches!(d.op, Op::Plan(PlanOp::Launch { .. })));
    let sites = launches.enumerate().map(|(n, (_, i, _))| (i, n)).collect();
    let dims = dims_of(body, &all)?;
    let mut w = Walk {
        body,
        symbols: all,
        kernels,
        work: setting.work.map(|work| (work.kernels.as_slice(), &module.origins)),
        sites,
        dims,
        frame: SecondaryMap::new(),
        known: BTreeMap::new(),
        contents: Contents::begin(plan, &setting.states),
        unknown_lengths: BTreeSet::new(),
        steps: MAX_STEPS,
        out: PlanCost::default(),
    };
    w.run().map_err(|e| format!("plan {}: {e}", plan.name))?;
    Ok(w.out)
}

struct Walk<'a> {
    /// The body of the plan, or of a kernel that launches others.
    body: &'a Body,
    symbols: BTreeMap<String, i64>,
    kernels: BTreeMap<&'a str, (usize, &'a Kernel)>,
    /// The kernels before scheduling for a GPU, and which of these later ones come from.
    work: Option<(&'a [Kernel], &'a BTreeMap<String, Origin>)>,
    sites: BTreeMap<Inst, usize>,
    dims: SecondaryMap<Inst, i64>,
    frame: SecondaryMap<Value, PlanValue>,
    /// Cache of evaluated kernels, by number and indices.
    known: BTreeMap<(usize, Vec<i64>), Done>,
    contents: Contents,
    /// Dimensions that still have their upper bounds.
    unknown_lengths: BTreeSet<String>,
    steps: u64,
    out: PlanCost,
}

impl Walk<'_> {
    fn known(&self, v: Value) -> AbstractValue {
        match &self.frame[v] {
            PlanValue::Known(x) => *x,
            PlanValue::Buffer(_) | PlanValue::None => AbstractValue::Nothing,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        let body = self.body;
        let mut block = body.entry();
        loop {
            for i in &body.block(block).insts {
                self.steps = self.steps.checked_sub(1).ok_or("it is too long to count")?;
                self.instruction(*i)?;
            }
            let Some(call) = kernel::target(&body.block(block).terminator, &|v| self.known(v))? else { return Ok(()) };
            let values: Vec<PlanValue> = call.args.iter().map(|v| self.frame[*v].clone()).collect();
            for (arg, x) in body.block(call.block).args.iter().zip(values) {
                self.frame[*arg] = x;
            }
            block = call.block;
        }
    }

    fn instruction(&mut self, i: Inst) -> Result<(), String> {
        let body = self.body;
        let data = body.inst(i);
        if let Some(x) = kernel::simple(body, i, &self.dims, &|v| self.known(v)) {
            if let Some(v) = data.result {
                self.frame[v] = PlanValue::Known(x);
            }
            return Ok(());
        }
        if let Op::Plan(PlanOp::Launch { kernel }) = &data.op {
            let kernel = kernel.clone();
            return self.launch(i, &kernel);
        }
        match (&data.op, data.operands.as_slice()) {
            (Op::Length { name, most }, [n]) => return self.length(name, most, self.known(*n)),
            (Op::LoadScalar, [buffer, indices @ ..]) => {
                let number = self.element(*buffer, indices)?;
                if let Some(v) = data.result {
                    self.frame[v] = PlanValue::Known(number.map_or(AbstractValue::Nothing, AbstractValue::Number));
                }
                return Ok(());
            }
            _ => {}
        }
        let Some(result) = data.result.filter(|v| body.ty(*v).buffer().is_some()) else { return Ok(()) };
        let place = match &data.op {
            Op::Plan(PlanOp::View { offset, strides }) => {
                let Some((base, rest)) = data.operands.split_first() else { return Ok(()) };
                let PlanValue::Buffer(base) = self.frame[*base].clone() else { return Ok(()) };
                let mut element = base.element.wrapping_add(dim(offset, &self.symbols)?);
                for (v, stride) in rest.iter().zip(strides) {
                    let AbstractValue::Number(n) = self.known(*v) else {
                        return Err("data decides what is viewed".into());
                    };
                    element = element.wrapping_add(n.wrapping_mul(dim(stride, &self.symbols)?));
                }
                BufferStart { root: base.root.clone(), element }
            }
            // Slots, results, parameters: identified by the operation and its indices.
            op => {
                let indices: Vec<AbstractValue> = data.operands.iter().map(|v| self.known(*v)).collect();
                BufferStart { root: Root::from_op(op, &indices), element: 0 }
            }
        };
        self.frame[result] = PlanValue::Buffer(Rc::new(place));
        Ok(())
    }

    /// An element of a buffer, if it is a known integer.
    fn element(&self, buffer: Value, indices: &[Value]) -> Result<Option<i64>, String> {
        let (PlanValue::Buffer(place), Some(ty)) = (&self.frame[buffer], self.body.ty(buffer).buffer()) else {
            return Ok(None);
        };
        let mut element = place.element;
        for (v, stride) in indices.iter().zip(&ty.strides) {
            let AbstractValue::Number(n) = self.known(*v) else { return Ok(None) };
            element = element.wrapping_add(n.wrapping_mul(dim(stride, &self.symbols)?));
        }
        Ok(self.contents.first(&BufferStart { root: place.root.clone(), element }, ty.elem))
    }

    /// Binds a dimension.
    fn length(&mut self, name: &str, most: &Dim, value: AbstractValue) -> Result<(), String> {
        let most = dim(most, &self.symbols)?;
        let n = match value {
            AbstractValue::Number(n) if (0..=most).contains(&n) => {
                self.unknown_lengths.remove(name);
                n
            }
            AbstractValue::Number(n) => return Err(format!("`{name}` would be {n}, and is at most {most}")),
            AbstractValue::From(_) | AbstractValue::Nothing => {
                self.unknown_lengths.insert(name.to_string());
                most
            }
        };
        if self.symbols.insert(name.to_string(), n) != Some(n) {
            self.known.clear();
            self.dims = dims_of(self.body, &self.symbols)?;
        }
        Ok(())
    }

    /// The work of a kernel.
    fn done(&mut self, k: &Kernel, indices: &[i64]) -> Result<Done, String> {
        let Some((work, origins)) = self.work else {
            return kernel::walk(k, &self.symbols, indices, &mut self.steps);
        };
        let points = kernel::points(k, &self.symbols)?;
        let before = |name: &String| work.iter().find(|k| k.name == *name);
        let (whole, of_parts) = match origins.get(&k.name) {
            Some(Origin::Whole(name)) => (before(name), None),
            Some(Origin::Part(name)) => (None, before(name)),
            None => (None, None),
        };
        // Operations on fragments and shared memory tiles cannot be counted.
        let of_gpu = k.body.insts().any(|(_, _, d)| matches!(d.op.info().class, AllowedIn::GpuKernel));
        for kernel in whole.into_iter().chain(Some(k).filter(|_| !of_gpu)) {
            if let Some(mut done) = self.counted(kernel, indices) {
                done.points = points;
                return Ok(done);
            }
        }
        let mut done = kernel::all_of(k, points, &self.symbols)?;
        if let Some(counted) = of_parts.and_then(|whole| self.counted(whole, indices)) {
            done.multiplies_as(&counted);
        }
        Ok(done)
    }

    /// The work of a kernel, unless that takes too long to evaluate. Each kernel has its share of
    /// the time limit, so that a long one leaves some for later ones.
    fn counted(&mut self, k: &Kernel, indices: &[i64]) -> Option<Done> {
        let mut steps = self.steps / 4;
        let some = steps;
        let done = kernel::walk(k, &self.symbols, indices, &mut steps);
        self.steps = self.steps.saturating_sub(some - steps).max(1);
        done.ok()
    }

    /// The total work of a kernel that launches others.
    fn persistent(&mut self, k: &Kernel, operands: &[Value], site: usize) -> Result<Launch, String> {
        let mut inner = Walk {
            body: &k.body,
            symbols: self.symbols.clone(),
            kernels: self.kernels.clone(),
            work: self.work,
            sites: BTreeMap::new(),
            dims: dims_of(&k.body, &self.symbols)?,
            frame: SecondaryMap::new(),
            known: std::mem::take(&mut self.known),
            contents: std::mem::take(&mut self.contents),
            unknown_lengths: self.unknown_lengths.clone(),
            steps: self.steps,
            out: PlanCost::default(),
        };
        for (p, v) in k.params.iter().zip(operands) {
            inner.frame[p.value] = self.frame[*v].clone();
        }
        let done = inner.run();
        let Walk { known, contents, steps, out, .. } = inner;
        (self.known, self.contents, self.steps) = (known, contents, steps);
        done?;
        for (arg, bound) in out.bounds {
            let least = self.out.bounds.entry(arg).or_insert(bound);
            *least = bound.min(*least);
        }
        let points = kernel::points(k, &self.symbols)?;
        let mut all =
            Launch { site, kernel: k.name.clone(), points, cost: Cost { exact: true, ..Cost::default() }, weights: 0 };
        for Launch { cost, weights, .. } in out.launches {
            let sum = &mut all.cost;
            sum.flops = sum.flops.saturating_add(cost.flops);
            sum.read = sum.read.saturating_add(cost.read);
            sum.written = sum.written.saturating_add(cost.written);
            sum.exact &= cost.exact;
            sum.uncounted |= cost.uncounted;
            all.weights = all.weights.saturating_add(weights);
        }
        Ok(all)
    }

    fn launch(&mut self, i: Inst, name: &str) -> Result<(), String> {
        let operands = self.body.inst(i).operands.clone();
        let &(number, k) = self.kernels.get(name).ok_or_else(|| format!("there is no kernel {name}"))?;
        if k.is_persistent() {
            let site = self.sites.get(&i).copied().unwrap_or_default();
            let launch = self.persistent(k, &operands, site)?;
            self.out.launches.push(launch);
            return Ok(());
        }
        let mut indices = Vec::new();
        for (v, p) in operands.iter().zip(&k.params) {
            if *k.body.ty(p.value) == Type::Index {
                let AbstractValue::Number(n) = self.known(*v) else {
                    return Err(format!("data decides what {name} gets"));
                };
                indices.push(n);
            }
        }
        // Identical views of the same memory are read once.
        let place = |v: &Value| match &self.frame[*v] {
            PlanValue::Buffer(p) => Some((p.clone(), self.body.ty(*v))),
            PlanValue::Known(_) | PlanValue::None => None,
        };
        let places: Vec<_> = operands.iter().map(place).collect();
        let same: Vec<Option<usize>> = (0..places.len())
            .map(|i| places.get(i)?.as_ref().and_then(|p| places.iter().take(i).position(|q| q.as_ref() == Some(p))))
            .collect();
        let args: Vec<Option<u32>> = places
            .iter()
            .map(|p| match p.as_ref().map(|(p, _)| &p.root) {
                Some(Root::Arg(n)) => Some(*n),
                Some(Root::Weights(_) | Root::Other(_)) | None => None,
            })
            .collect();
        let key = (number, indices);
        if !self.known.contains_key(&key) {
            let done = self.done(k, &key.1)?;
            self.known.insert(key.clone(), done);
        }
        let given: Vec<Operand<'_>> = operands
            .iter()
            .map(|v| match &self.frame[*v] {
                PlanValue::Known(x) => Operand::Index(*x),
                PlanValue::Buffer(place) => Operand::Buffer(place),
                PlanValue::None => Operand::Nothing,
            })
            .collect();
        self.contents.launch(k, &given, &self.symbols);
        let Some(done) = self.known.get(&key) else { return Ok(()) };
        for (param, bound) in &done.bounds {
            if let Some(arg) = args.get(*param).copied().flatten() {
                let least = self.out.bounds.entry(arg).or_insert(*bound);
                *least = (*bound).min(*least);
            }
        }
        let site = self.sites.get(&i).copied().unwrap_or_default();
        let (points, mut cost) = (done.points, done.cost(&same));
        cost.exact &= self.unknown_lengths.is_empty();
        let is_weight = |i: usize| matches!(places.get(i), Some(Some((p, _))) if matches!(p.root, Root::Weights(_)));
        let weights = done.read_of(|i| is_weight(i) && same.get(i).copied().flatten().is_none());
        self.out.launches.push(Launch { site, kernel: name.to_string(), points, cost, weights });
        Ok(())
    }
}
