//! Executes plans, launches, and kernels on their own.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::frame::{Frame, RuntimeValue, buffer, get, index, indices, set};
use super::kernel::{KernelRun, Next, jump, scalar_operation};
use super::memory::{Storage, View};
use super::{
    Argument, Budget, Call, EvalError, Limits, Others, Outcome, Runs, States, Watch, broken, dim, fail, launches,
    located,
};
use crate::interface::param_named;
use crate::shape::{ADDRESS_BITS, Dim, Fact};
use crate::tensor::Tensor;
use crate::tile::fits;
use crate::tile::{
    Body, BufferType, GpuOp, Inst, InstData, Kernel, Module, Op, ParamMode, Plan, PlanOp, PlanVariant, State, TapPart,
    Type, row_major,
};

/// Runs a plan.
pub(super) fn run<'a>(
    module: &'a Module,
    call: &'a Call<'a>,
    others: Others<'a>,
    states: &mut States,
) -> Result<Outcome, EvalError> {
    let Some(plan) = module.plans.iter().find(|p| p.name == call.plan && p.variant == call.variant) else {
        return fail(format!("there is no plan `{}`", call.plan));
    };
    enter(module, call)?;
    let mut runner = Runner::new(module, plan, call, others);
    if let Some(prepare) = module.plans.iter().find(|p| p.variant == PlanVariant::Prepare) {
        let mut first = Runner::new(module, prepare, call, others);
        first.run()?;
        let packed = first.packed.and_then(|at| first.memory.into_iter().nth(at));
        runner.packed = packed.map(|storage| runner.add(storage));
    }
    let sets = module.entries.iter().any(|e| e.name == call.plan && e.sets_states);
    states.call(call.plan, sets, |kept| {
        for (name, bytes) in kept.iter() {
            let storage = runner.add(Storage::full(bytes.clone()));
            runner.states.insert(name.clone(), storage);
        }
        runner.run()?;
        for (name, storage) in &runner.states {
            kept.insert(name.clone(), runner.memory.get(*storage).map(|s| s.bytes.clone()).unwrap_or_default());
        }
        Ok(())
    })?;
    let mut results = Vec::new();
    for (i, (n, out)) in runner.outs.iter().enumerate() {
        if usize::try_from(*n) != Ok(i) {
            return broken(format!("result {i} is not written"));
        }
        results.push(out.tensor(&runner.memory, &format!("result {n}"), true)?);
    }
    let mut taps = BTreeMap::new();
    for (name, out) in runner.taps.iter().filter(|(name, _)| TapPart::read(name).1 == TapPart::Data) {
        taps.insert(name.clone(), out.tensor(&runner.memory, name, false)?);
    }
    Ok(Outcome { results, taps, work: runner.budget.spent, flops: runner.budget.flops })
}

/// The checks on dimensions on entry to a call: sizes of arguments, the facts stated in the module,
/// and those derived from it.
fn enter(module: &Module, call: &Call<'_>) -> Result<(), EvalError> {
    let entry = module.entries.iter().find(|e| e.name == call.plan);
    for a in entry.iter().flat_map(|e| &e.args) {
        let mut bytes = Some(i128::from(a.ty.elem.size()));
        for d in &a.ty.shape {
            let extent = i128::from(dim(d, call.symbols)?).abs().max(1);
            bytes = bytes.and_then(|n| n.checked_mul(extent));
        }
        if bytes.is_none_or(|n| n >> ADDRESS_BITS > 0) {
            return fail(format!("`{}` is too large", a.name));
        }
    }
    let stated = entry.iter().flat_map(|e| e.checks.iter().map(|(fact, _)| fact.clone()));
    for fact in stated.chain(fits::unstated(module, call.plan)) {
        let value = |d: &Dim| dim(d, call.symbols).map(Dim::from);
        let holds = match (value(&fact.left), value(&fact.right)) {
            (Ok(left), Ok(right)) => Fact { left, relation: fact.relation, right }.decide() == Some(true),
            _ => false,
        };
        if !holds {
            return fail(format!("the call must satisfy {fact}"));
        }
    }
    Ok(())
}

/// Storage for an output of a call.
struct Out {
    storage: usize,
    ty: BufferType,
    shape: Vec<i64>,
}

impl Out {
    /// Converts an output to a tensor; a result must be written in `full`, unwritten elements of a
    /// tap are zeros.
    fn tensor(&self, memory: &[Storage], name: &str, full: bool) -> Result<Tensor, EvalError> {
        let Some(s) = memory.get(self.storage) else { return broken("no such storage") };
        if full && let Some(at) = s.written.iter().position(|w| !w) {
            return broken(format!("byte {at} of {name} is never written"));
        }
        let shape: Vec<usize> = self.shape.iter().filter_map(|n| usize::try_from(*n).ok()).collect();
        match Tensor::new(self.ty.elem, shape, s.bytes.clone()) {
            Some(t) => Ok(t),
            None => broken(format!("{name} is not a tensor of its type")),
        }
    }
}

struct Runner<'a> {
    /// Values of the dimensions, including those bound during the call.
    symbols: BTreeMap<String, i64>,
    module: &'a Module,
    plan: &'a Plan,
    call: &'a Call<'a>,
    memory: Vec<Storage>,
    args: BTreeMap<u32, usize>,
    outs: BTreeMap<u32, Out>,
    taps: BTreeMap<String, Out>,
    slots: BTreeMap<u32, usize>,
    params: BTreeMap<String, usize>,
    states: BTreeMap<String, usize>,
    packed: Option<usize>,
    budget: Budget,
    others: Others<'a>,
}

impl<'a> Runner<'a> {
    fn new(module: &'a Module, plan: &'a Plan, call: &'a Call<'a>, others: Others<'a>) -> Runner<'a> {
        Runner {
            symbols: call.symbols.clone(),
            module,
            plan,
            call,
            memory: Vec::new(),
            args: BTreeMap::new(),
            outs: BTreeMap::new(),
            taps: BTreeMap::new(),
            slots: BTreeMap::new(),
            params: BTreeMap::new(),
            states: BTreeMap::new(),
            packed: None,
            budget: Budget::new(call.limits),
            others,
        }
    }

    fn add(&mut self, s: Storage) -> usize {
        self.memory.push(s);
        self.memory.len() - 1
    }

    fn run(&mut self) -> Result<(), EvalError> {
        let body = &self.plan.body;
        self.execute(body, vec![None; body.value_count()])
    }

    /// Executes the body of a plan, or of a kernel that launches others, with these initial values.
    fn execute(&mut self, body: &'a Body, mut frame: Frame) -> Result<(), EvalError> {
        let mut block = body.entry();
        loop {
            for i in &body.block(block).insts {
                let data = body.inst(*i);
                if let (Op::Length { name, most }, [v]) = (&data.op, data.operands.as_slice()) {
                    let (n, limit) = (index(&frame, *v)?, dim(most, &self.symbols)?);
                    if !(0..=limit).contains(&n) {
                        return broken(format!("{name} is {n}, which is not in 0 to {limit}"));
                    }
                    self.symbols.insert(name.clone(), n);
                    continue;
                }
                let x = self.instruction(body, data, &mut frame).map_err(|e| located(e, data.loc))?;
                if let (Some(v), Some(x)) = (data.result, x) {
                    set(&mut frame, v, x);
                }
                if let (Op::Plan(PlanOp::Launch { kernel }), Some(watch)) = (&data.op, self.others.watch)
                    && std::ptr::eq(body, &raw const self.plan.body)
                {
                    self.watched(kernel, *i, data, &frame, watch)?;
                }
            }
            self.budget.spend(1)?;
            match jump(body, &mut frame, &body.block(block).terminator)? {
                Next::Block(b) => block = b,
                Next::Return => return Ok(()),
            }
        }
    }

    /// Shows what a launch has written.
    fn watched(
        &self,
        kernel: &str,
        launch: Inst,
        data: &InstData,
        frame: &Frame,
        watch: Watch<'_>,
    ) -> Result<(), EvalError> {
        let Some(k) = self.module.kernels.iter().find(|k| k.name == *kernel) else { return Ok(()) };
        for (n, (param, v)) in k.params.iter().zip(&data.operands).enumerate() {
            if let (ParamMode::Out | ParamMode::InOut, RuntimeValue::Buffer(view)) = (param.mode, get(frame, *v)?) {
                watch(launch, n, view.tensor(&self.memory)?);
            }
        }
        Ok(())
    }

    /// Executes a kernel that launches others. Blocks run one after another here, so barriers do
    /// nothing.
    fn persistent(&mut self, k: &'a Kernel, args: Vec<RuntimeValue>) -> Result<(), EvalError> {
        let mut frame: Frame = vec![None; k.body.value_count()];
        for (p, x) in k.params.iter().zip(args) {
            set(&mut frame, p.value, x);
        }
        self.execute(&k.body, frame)
    }

    /// Allocates uninitialised storage of this many bytes.
    fn room(&mut self, bytes: i64) -> Result<usize, EvalError> {
        let limit = self.call.limits.elements.saturating_mul(8);
        match usize::try_from(bytes) {
            Ok(n) if n as u64 <= limit => Ok(self.add(Storage::empty(n))),
            _ => fail(format!("a buffer of {bytes} bytes is beyond the limit")),
        }
    }

    fn out(&mut self, ty: &BufferType) -> Result<Out, EvalError> {
        let contiguous = BufferType { strides: row_major(&ty.shape), ..ty.clone() };
        let view = View::new(0, 0, &contiguous, &self.symbols)?;
        let Some(bytes) = view.span() else { return fail("a result is too large") };
        let storage = self.room(bytes)?;
        Ok(Out { storage, ty: contiguous, shape: view.shape })
    }

    #[warn(clippy::wildcard_enum_match_arm, reason = "a new operation is met by an error here")]
    fn instruction(
        &mut self,
        body: &'a Body,
        data: &InstData,
        frame: &mut Frame,
    ) -> Result<Option<RuntimeValue>, EvalError> {
        self.budget.spend(1)?;
        let plan = self.plan;
        let symbols = &self.symbols.clone();
        if let Some(x) = scalar_operation(body, data, frame, symbols, &self.module.sites)? {
            return Ok(Some(x));
        }
        let declared = match data.result.map(|v| body.ty(v)) {
            Some(Type::Buffer(b)) => Some(b),
            _ => None,
        };
        let (storage, start) = match &data.op {
            Op::Plan(PlanOp::Arg(n)) => {
                let storage = match self.args.get(n) {
                    Some(s) => *s,
                    None => {
                        let Some(t) = self.call.args.get(*n as usize) else {
                            return fail(format!("argument {n} is missing"));
                        };
                        if declared.is_some_and(|b| b.elem != t.elem()) {
                            return fail(format!("argument {n} has elements of {}", t.elem()));
                        }
                        let s = self.add(Storage::full(t.bytes().to_vec()));
                        self.args.insert(*n, s);
                        s
                    }
                };
                (storage, 0)
            }
            Op::Plan(PlanOp::Out(n)) => {
                if !self.outs.contains_key(n) {
                    let Some(ty) = declared else { return broken("a result without a type") };
                    let out = self.out(ty)?;
                    self.outs.insert(*n, out);
                }
                (self.outs.get(n).map_or(0, |o| o.storage), 0)
            }
            Op::Plan(PlanOp::Tap { name }) => {
                if !self.taps.contains_key(name) {
                    let Some(ty) = declared else { return broken("a tap without a type") };
                    let out = self.out(ty)?;
                    // All taps are requested.
                    if TapPart::read(name).1 == TapPart::Asked
                        && let Some(asked) = self.memory.get_mut(out.storage)
                    {
                        *asked = Storage::full(vec![1; asked.bytes.len()]);
                    }
                    self.taps.insert(name.clone(), out);
                }
                (self.taps.get(name).map_or(0, |o| o.storage), 0)
            }
            Op::Plan(PlanOp::Param { name }) => (self.param(name, &indices(frame, &data.operands)?)?, 0),
            Op::Plan(PlanOp::State { name }) => {
                let storage = match self.states.get(name) {
                    Some(s) => *s,
                    None => {
                        let Some(ty) = declared else { return broken("a state without a type") };
                        let storage = self.out(ty)?.storage;
                        let initial = self.initial(name)?;
                        // Zeros, unless it is a parameter.
                        if let Some(s) = self.memory.get_mut(storage) {
                            *s = Storage::full(initial.unwrap_or_else(|| vec![0; s.bytes.len()]));
                        }
                        self.states.insert(name.clone(), storage);
                        storage
                    }
                };
                (storage, 0)
            }
            Op::Plan(PlanOp::Slot(n)) => {
                let storage = match self.slots.get(n) {
                    Some(s) => *s,
                    None => {
                        let Some(slot) = plan.slots.get(*n as usize) else { return broken("no such slot") };
                        let s = self.room(dim(&slot.bytes, symbols)?)?;
                        self.slots.insert(*n, s);
                        s
                    }
                };
                (storage, 0)
            }
            Op::Plan(PlanOp::Packed { offset }) => {
                let storage = match self.packed {
                    Some(s) => s,
                    None => self.room(i64::try_from(self.module.packed).unwrap_or(i64::MAX))?,
                };
                self.packed = Some(storage);
                (storage, i64::try_from(*offset).unwrap_or(i64::MAX))
            }
            Op::Plan(PlanOp::View { offset, strides }) => {
                let Some((base, rest)) = data.operands.split_first() else { return broken("a view of nothing") };
                let base = buffer(frame, *base)?;
                let mut element = dim(offset, symbols)?;
                for (i, s) in indices(frame, rest)?.into_iter().zip(strides) {
                    element = element.wrapping_add(i.wrapping_mul(dim(s, symbols)?));
                }
                let size = i64::try_from(base.elem.size()).unwrap_or(8);
                (base.storage, base.start.wrapping_add(element.wrapping_mul(size)))
            }
            Op::Gpu(GpuOp::GridBarrier) => return Ok(None),
            Op::LoadScalar => {
                let Some((b, rest)) = data.operands.split_first() else { return broken("a load of nothing") };
                let x = buffer(frame, *b)?.read(&self.memory, &indices(frame, rest)?)?;
                return Ok(Some(RuntimeValue::Scalar(x)));
            }
            Op::Plan(PlanOp::Launch { kernel }) => {
                let Some(k) = self.module.kernels.iter().find(|k| k.name == *kernel) else {
                    return broken(format!("there is no kernel {kernel}"));
                };
                let args = data.operands.iter().map(|v| get(frame, *v).cloned()).collect::<Result<Vec<_>, _>>()?;
                let done = match self.others.launches {
                    Some(by) => launches::launch(by, (self.module, kernel), symbols, &args, &mut self.memory),
                    // All its blocks do the same, and share the points of the kernels it launches.
                    None if k.is_persistent() => self.persistent(k, args),
                    None => {
                        let runs = (self.others.runs)(kernel);
                        launch(k, args, &mut self.memory, symbols, &self.module.sites, &mut self.budget, runs)
                    }
                };
                done.map_err(|e| EvalError { message: format!("@{kernel}: {}", e.message), ..e })?;
                return Ok(None);
            }
            // Scalars other than indices.
            Op::Binary(op) => return binary_scalar(frame, data, |a, b, e| super::elements::binary(*op, a, b, e), body),
            Op::Compare(op) => return binary_scalar(frame, data, |a, b, _| super::elements::compare(*op, a, b), body),
            Op::Cast => {
                return match (data.operands.first().map(|v| get(frame, *v)), data.result.map(|v| body.ty(v))) {
                    (Some(Ok(RuntimeValue::Scalar(x))), Some(Type::Scalar(e))) => {
                        Ok(Some(RuntimeValue::Scalar(x.cast(*e))))
                    }
                    _ => broken("a cast of no scalar"),
                };
            }
            // Handled earlier (`scalar_operation`), or only in kernels.
            Op::Const(_)
            | Op::DimValue(_)
            | Op::Unary(_)
            | Op::Select
            | Op::Narrow { .. }
            | Op::CheckIndex { .. }
            | Op::Length { .. }
            | Op::Load { .. }
            | Op::Store { .. }
            | Op::Full
            | Op::Copy
            | Op::Iota { .. }
            | Op::Reduce { .. }
            | Op::Element
            | Op::Transpose
            | Op::LoadScaled { .. }
            | Op::LoadPairs
            | Op::PairRows
            | Op::Dot { .. }
            | Op::Run { .. }
            | Op::Window { .. }
            | Op::Gpu(_) => return broken(format!("{} in a plan", data.op.info().name)),
        };
        let Some(ty) = declared else { return broken("a buffer without a type") };
        Ok(Some(RuntimeValue::Buffer(Rc::new(View::new(storage, start, ty, symbols)?))))
    }

    /// The values with which a state begins that has the name of a parameter.
    fn initial(&mut self, name: &str) -> Result<Option<Vec<u8>>, EvalError> {
        let Some(decl) = param_named(&self.module.params, name) else { return Ok(None) };
        let mut bytes = Vec::new();
        for member in 0..decl.counts.iter().product() {
            let mut rest: u64 = member;
            let mut indices = vec![0i64; decl.counts.len()];
            for (i, n) in indices.iter_mut().zip(&decl.counts).rev() {
                (*i, rest) = ((rest % n) as i64, rest / n);
            }
            let storage = self.param(name, &indices)?;
            bytes.extend(self.memory.get(storage).iter().flat_map(|s| &s.bytes));
        }
        Ok(Some(bytes))
    }

    fn param(&mut self, pattern: &str, indices: &[i64]) -> Result<usize, EvalError> {
        let Some(decl) = param_named(&self.module.params, pattern) else {
            return broken(format!("there is no parameter {pattern}"));
        };
        let mut path = pattern.to_string();
        for (i, n) in indices.iter().zip(&decl.counts) {
            if !u64::try_from(*i).is_ok_and(|i| i < *n) {
                return broken(format!("index {i} of {pattern} is outside of {n}"));
            }
            path = path.replacen('*', &i.to_string(), 1);
        }
        if let Some(s) = self.params.get(&path) {
            return Ok(*s);
        }
        let Some(t) = self.call.params.tensor(&path) else {
            return fail(format!("the parameter {path} is missing"));
        };
        let wanted: Option<Vec<usize>> =
            decl.ty.shape.iter().map(|d| d.as_const().and_then(|n| usize::try_from(n).ok())).collect();
        if t.elem() != decl.ty.elem || wanted.is_some_and(|w| w != t.shape()) {
            return fail(format!("the parameter {path} is not {}", decl.ty));
        }
        let s = self.add(Storage::full(t.bytes().to_vec()));
        self.params.insert(path, s);
        Ok(s)
    }
}

fn binary_scalar(
    frame: &Frame,
    data: &InstData,
    f: impl Fn(super::elements::Element, super::elements::Element, crate::shape::Elem) -> super::elements::Element,
    body: &Body,
) -> Result<Option<RuntimeValue>, EvalError> {
    let elem = data.result.and_then(|v| body.ty(v).elem()).unwrap_or(crate::shape::Elem::F32);
    match data.operands.as_slice() {
        [a, b] => match (get(frame, *a)?, get(frame, *b)?) {
            (RuntimeValue::Scalar(a), RuntimeValue::Scalar(b)) => Ok(Some(RuntimeValue::Scalar(f(*a, *b, elem)))),
            _ => broken("an operation on no scalars"),
        },
        _ => broken("two operands belong here"),
    }
}

/// Runs a kernel over its grid.
fn launch(
    k: &Kernel,
    args: Vec<RuntimeValue>,
    memory: &mut Vec<Storage>,
    symbols: &BTreeMap<String, i64>,
    sites: &[String],
    budget: &mut Budget,
    runs: Option<&dyn Runs>,
) -> Result<(), EvalError> {
    if matches!(k.state, State::Gpu { .. }) && !k.works_in_runs() {
        return fail("a kernel scheduled for a GPU in fragments, or that launches others, is not run alone");
    }
    let mut frame: Frame = vec![None; k.body.value_count()];
    for (p, x) in k.params.iter().zip(args) {
        set(&mut frame, p.value, x);
    }
    let mut counts = Vec::new();
    for g in &k.grid {
        let extent = dim(&g.extent, symbols)?;
        let step = g.step.max(1);
        counts.push(extent.max(0).saturating_add(step - 1) / step);
    }
    let points = counts.iter().try_fold(1i64, |n, c| n.checked_mul(*c));
    let Some(points) = points else { return fail("the grid is too large") };
    let scratch = usize::try_from(k.scratch).ok().filter(|n| *n <= 1 << 32);
    let Some(scratch) = scratch else { return fail("the scratch is too large") };
    let mut machine = KernelRun { memory, symbols, sites, budget, scratch: Storage::empty(scratch), runs };
    for point in 0..points {
        let mut rest = point;
        for (g, n) in k.grid.iter().zip(&counts).rev() {
            set(&mut frame, g.value, RuntimeValue::Index(rest % n));
            rest /= n;
        }
        machine.point(k, &mut frame)?;
    }
    Ok(())
}

/// Runs one kernel on its own; returns which bytes of each buffer are initialised.
pub(super) fn run_kernel(
    k: &Kernel,
    symbols: &BTreeMap<String, i64>,
    args: &mut [Argument],
    limits: Limits,
    runs: Option<&dyn Runs>,
) -> Result<Vec<Vec<bool>>, EvalError> {
    if args.len() != k.params.len() {
        return fail(format!("{} takes {} arguments, not {}", k.name, k.params.len(), args.len()));
    }
    let mut memory = Vec::new();
    let mut values = Vec::new();
    for (a, p) in args.iter().zip(&k.params) {
        match (a, k.body.ty(p.value)) {
            (Argument::Index(n), Type::Index) => values.push(RuntimeValue::Index(*n)),
            (Argument::Buffer(bytes), Type::Buffer(ty)) => {
                let mut storage = Storage::full(bytes.clone());
                // An output buffer is initially uninitialised.
                if p.mode == crate::tile::ParamMode::Out {
                    storage.written.fill(false);
                }
                memory.push(storage);
                values.push(RuntimeValue::Buffer(Rc::new(View::new(memory.len() - 1, 0, ty, symbols)?)));
            }
            _ => return fail("an argument does not fit its parameter"),
        }
    }
    let mut budget = Budget::new(limits);
    launch(k, values, &mut memory, symbols, &[], &mut budget, runs)?;
    let mut memory = memory.into_iter();
    let mut written = Vec::new();
    for a in args {
        if let Argument::Buffer(bytes) = a
            && let Some(s) = memory.next()
        {
            *bytes = s.bytes;
            written.push(s.written);
        }
    }
    Ok(written)
}
