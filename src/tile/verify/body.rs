//! Checks of all bodies: structure, dominance, types, jumps, symbols, and where operations may
//! occur.

use std::collections::BTreeSet;

use super::Sink;
use crate::shape::Dim;
use crate::ssa::Dialect;
use crate::ssa::verify::{self, Definitions};
use crate::table::Gives;
use crate::tile::fits::is_computable;
use crate::tile::text::ErrorLocation;
use crate::tile::{
    AllowedIn, Block, Body, Extent, Inst, Kernel, MAX_EXTENT, Module, Op, ParamMode, Plan, PlanOp, Space, State,
    Terminator, TileIr, Type, Value, ValueDef, View, rules,
};

/// A kernel or a plan.
#[derive(Clone, Copy)]
pub(super) enum Unit<'a> {
    /// A kernel.
    Kernel(&'a Kernel),
    /// A plan.
    Plan(&'a Plan),
}

impl<'a> Unit<'a> {
    fn body(self) -> &'a Body {
        match self {
            Unit::Kernel(k) => &k.body,
            Unit::Plan(p) => &p.body,
        }
    }

    fn has_dim(self, name: &str) -> bool {
        match self {
            Unit::Kernel(k) => k.symbols.iter().any(|s| s == name),
            Unit::Plan(p) => p.has_dim(name),
        }
    }

    fn allows(self, place: AllowedIn) -> bool {
        match (self, place) {
            (_, AllowedIn::Both) | (Unit::Plan(_), AllowedIn::Plan) | (Unit::Kernel(_), AllowedIn::Kernel) => true,
            (Unit::Kernel(k), AllowedIn::Scheduled) => k.state != State::Unscheduled,
            (Unit::Kernel(k), AllowedIn::CpuKernel) => matches!(k.state, State::Cpu(_)),
            (Unit::Kernel(k), AllowedIn::GpuKernel) => matches!(k.state, State::Gpu { .. }),
            (Unit::Plan(_), AllowedIn::Launching) => true,
            (Unit::Kernel(k), AllowedIn::Launching | AllowedIn::Persistent) => {
                matches!(k.state, State::Gpu { .. }) && k.is_persistent()
            }
            (
                Unit::Plan(_),
                AllowedIn::Kernel
                | AllowedIn::Scheduled
                | AllowedIn::CpuKernel
                | AllowedIn::GpuKernel
                | AllowedIn::Persistent,
            )
            | (Unit::Kernel(_), AllowedIn::Plan) => false,
        }
    }
}

struct Checker<'a, 's> {
    unit: Unit<'a>,
    body: &'a Body,
    module: &'a Module,
    sink: &'s mut Sink,
}

/// Checks a body.
pub(super) fn check(module: &Module, unit: Unit, sink: &mut Sink) {
    let mut c = Checker { unit, body: unit.body(), module, sink };
    let before = c.sink.list.len();
    if let Unit::Kernel(k) = unit {
        c.parameters(k);
    }
    let given: Vec<Value> = match unit {
        Unit::Kernel(k) => k.params.iter().map(|p| p.value).chain(k.grid.iter().map(|g| g.value)).collect(),
        Unit::Plan(_) => Vec::new(),
    };
    let definitions = verify::structure(c.body, given, &mut |at, message| c.sink.error(at, message));
    if c.sink.list.len() == before {
        c.contents(&definitions);
    }
}

impl Checker<'_, '_> {
    fn parameters(&mut self, k: &Kernel) {
        let mut seen = BTreeSet::new();
        let values = k.params.iter().map(|p| p.value).chain(k.grid.iter().map(|g| g.value));
        for v in values {
            if !self.body.has_value(v) || self.body.def(v) != ValueDef::Param || !seen.insert(v) {
                self.sink.error(ErrorLocation::Head, "a parameter or grid index is not a value of its own");
                return;
            }
        }
        for p in &k.params {
            if p.aligned && !(self.unit.allows(AllowedIn::GpuKernel) && self.body.ty(p.value).buffer().is_some()) {
                self.sink.error(ErrorLocation::Head, "only buffers of kernels for a GPU are `aligned`");
            }
            match self.body.ty(p.value) {
                Type::Buffer(_) => {}
                Type::Index if p.mode == ParamMode::In => {}
                ty => self.sink.error(ErrorLocation::Head, format!("a parameter of type {ty}")),
            }
        }
        for g in &k.grid {
            if *self.body.ty(g.value) != Type::Index {
                self.sink.error(ErrorLocation::Head, "the index of a grid axis does not have type `index`");
            }
            if g.step < 1 {
                self.sink.error(ErrorLocation::Head, format!("a grid axis has steps of {}", g.step));
            }
            self.dim(ErrorLocation::Head, &g.extent);
            if !is_computable(&g.extent.add(&Dim::from(g.step.saturating_sub(1)))) {
                self.sink.error(
                    ErrorLocation::Head,
                    format!("an axis of {} points in steps of {} is too long", g.extent, g.step),
                );
            }
        }
    }

    fn contents(&mut self, definitions: &Definitions) {
        let body = self.body;
        verify::uses(body, definitions, &body.cfg(), &mut |at, message| self.sink.error(at, message));
        if !body.block(body.entry()).args.is_empty() {
            self.sink.error(ErrorLocation::Block(body.entry()), "the entry block has arguments");
        }
        let mut read = Vec::new();
        for b in &body.layout {
            let data = body.block(*b);
            for v in &data.args {
                self.ty(ErrorLocation::Block(*b), *v);
            }
            for i in &data.insts {
                self.inst(*i, None, definitions, &mut read);
                for held in TileIr::inner(&body.inst(*i).op) {
                    self.inst(*held, Some(*i), definitions, &mut read);
                }
            }
            self.terminator(*b, &data.terminator, definitions);
        }
        if let Unit::Kernel(k) = self.unit {
            self.modes(k, &read);
        }
    }

    fn inst(&mut self, i: Inst, run: Option<Inst>, definitions: &Definitions, accesses: &mut Vec<(Inst, Value, bool)>) {
        let body = self.body;
        let data = body.inst(i);
        let name = data.op.info().name;
        if data.result.is_some() != (data.op.info().gives != Gives::Nothing) {
            let what = if data.result.is_some() { "has no result" } else { "has a result" };
            return self.sink.error(ErrorLocation::Inst(i), format!("{name}: {what}"));
        }
        let mut misplaced = None;
        body.for_each_use(i, |v| misplaced = misplaced.take().or_else(|| self.misplaced(v, run, definitions)));
        if let Some(e) = misplaced {
            return self.sink.error(ErrorLocation::Inst(i), format!("{name}: {e}"));
        }
        if let Op::Run { rows, cols, .. } = &data.op {
            [rows, cols].into_iter().for_each(|e| self.extent(ErrorLocation::Inst(i), *e));
        }
        if !self.unit.allows(data.op.info().class) {
            self.sink.error(ErrorLocation::Inst(i), format!("{name}: does not stand here"));
            return;
        }
        if let Some(v) = data.result {
            self.ty(ErrorLocation::Inst(i), v);
        }
        let types: Vec<&Type> = data.operands.iter().map(|v| self.body.ty(*v)).collect();
        let declared = data.result.map(|v| self.body.ty(v));
        match rules::result_type(&data.op, &types, declared) {
            Err(e) => self.sink.error(ErrorLocation::Inst(i), format!("{name}: {e}")),
            Ok(ty) if ty.as_ref() != declared => {
                let ty = ty.map_or("nothing".to_string(), |t| t.to_string());
                self.sink.error(ErrorLocation::Inst(i), format!("{name}: makes {ty}"));
            }
            Ok(_) => {}
        }
        data.op.dims().into_iter().for_each(|d| self.dim(ErrorLocation::Inst(i), d));
        if let Op::CheckIndex { site } = &data.op
            && *site as usize >= self.module.sites.len()
        {
            self.sink.error(ErrorLocation::Inst(i), format!("{name}: the module has no site {site}"));
        }
        if let Op::Plan(PlanOp::View { .. }) = data.op {
            // The accesses of a window happen where it is used.
        } else if let Some(b) = data.op.accessed().and_then(|at| data.operands.get(at)) {
            accesses.push((i, *b, matches!(data.op, Op::Store { .. })));
        }
        if let (Op::Plan(PlanOp::Launch { kernel }), Unit::Kernel(_)) = (&data.op, self.unit) {
            let launched = self.module.kernels.iter().find(|k| k.name == *kernel);
            for (p, v) in launched.iter().flat_map(|k| &k.params).zip(&data.operands) {
                let buffer = body.ty(*v).buffer().is_some();
                accesses.extend((buffer && p.mode != ParamMode::Out).then_some((i, *v, false)));
                accesses.extend((buffer && p.mode != ParamMode::In).then_some((i, *v, true)));
            }
        }
        if let (Op::LoadScaled { .. }, Some(scales)) = (&data.op, data.operands.last()) {
            accesses.push((i, *scales, false));
        }
    }

    /// Rule 9: how buffers are used.
    fn modes(&mut self, k: &Kernel, accesses: &[(Inst, Value, bool)]) {
        for (i, b, writes) in accesses {
            let root = View::trace(&k.body, *b).map_or(*b, |view| view.root);
            let mode = k.params.iter().find(|p| p.value == root).map(|p| p.mode);
            match (mode, writes) {
                (Some(ParamMode::In), true) => self.sink.error(ErrorLocation::Inst(*i), "writes a buffer that is `in`"),
                (Some(ParamMode::Out), false) => {
                    self.sink.error(ErrorLocation::Inst(*i), "reads a buffer that is `out`")
                }
                (Some(_), _) => {}
                (None, _) => self.sink.error(ErrorLocation::Inst(*i), "the buffer is not a parameter of the kernel"),
            }
        }
    }

    fn terminator(&mut self, b: Block, t: &Terminator, definitions: &Definitions) {
        let mut misplaced = None;
        t.for_each_value(|v| misplaced = misplaced.take().or_else(|| self.misplaced(v, None, definitions)));
        if let Some(e) = misplaced {
            return self.sink.error(ErrorLocation::Terminator(b), e);
        }
        match t {
            Terminator::Return(values) if !values.is_empty() => {
                self.sink.error(ErrorLocation::Terminator(b), "a kernel or plan returns nothing");
            }
            Terminator::Roles(_) if !self.unit.allows(AllowedIn::GpuKernel) => {
                self.sink.error(ErrorLocation::Terminator(b), "`roles` does not stand here");
            }
            Terminator::Br(_) | Terminator::BrIf { .. } | Terminator::Return(_) | Terminator::Roles(_) => {}
        }
    }

    /// Rule 4: results in a run's registers are used only inside it.
    fn misplaced(&self, v: Value, run: Option<Inst>, definitions: &Definitions) -> Option<String> {
        let home = definitions.holder(v)?;
        let reduced = self.body.def_inst(v).is_some_and(|d| matches!(d.op, Op::Reduce { .. }));
        if run == Some(home) {
            return reduced.then(|| format!("{v}, the result of a reduction, is there only after its run"));
        }
        let in_registers = self.body.ty(v).tile().is_some_and(|t| t.space == Space::Reg);
        in_registers.then(|| format!("{v} is in registers of another run"))
    }

    /// Rule 6, and the symbols of a type.
    fn ty(&mut self, at: ErrorLocation, v: Value) {
        if let Type::Buffer(b) = self.body.ty(v) {
            if b.shape.len() != b.strides.len() {
                self.sink.error(at, "a buffer has as many strides as axes");
            }
            b.shape.iter().chain(&b.strides).for_each(|d| self.dim(at, d));
        }
        if let Some(t) = self.body.ty(v).any_tile() {
            self.extent(at, t.rows);
            self.extent(at, t.cols);
            if crate::tile::computed(t.elem) != t.elem && !matches!(t.space, Space::Shared { .. } | Space::Fragment(_))
            {
                self.sink.error(at, format!("a tile of {} is in the memory of a GPU alone", t.elem));
            }
        }
    }

    fn extent(&mut self, at: ErrorLocation, e: Extent) {
        if !(1..=MAX_EXTENT).contains(&e.capacity()) {
            self.sink.error(at, format!("the extent {} is not between 1 and 2^20", e.capacity()));
        }
        if let Extent::Bounded { value, .. } = e
            && *self.body.ty(value) != Type::Index
        {
            self.sink.error(at, "the bound of an extent is not an index");
        }
    }

    fn dim(&mut self, at: ErrorLocation, d: &Dim) {
        for s in d.symbols() {
            if !self.unit.has_dim(&s) {
                self.sink.error(at, format!("the dimension {s} is not one of the symbols"));
            }
        }
        if !is_computable(d) {
            self.sink.error(at, format!("{d} is computed from numbers beyond 64 bits"));
        }
    }
}
