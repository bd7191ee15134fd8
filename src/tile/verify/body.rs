//! What holds of every body: structure, dominance, types, jumps, symbols, places of operations.

use std::collections::BTreeSet;

use cranelift_entity::SecondaryMap;

use super::Sink;
use crate::cfg::Cfg;
use crate::shape::Dim;
use crate::tile::text::At;
use crate::tile::{
    Block, Body, Extent, Inst, Kernel, Module, Op, ParamMode, Place, Plan, Space, State, Terminator, Type, Value,
    ValueDef, rules,
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

    fn symbols(self) -> &'a [String] {
        match self {
            Unit::Kernel(k) => &k.symbols,
            Unit::Plan(p) => &p.symbols,
        }
    }

    fn allows(self, place: Place) -> bool {
        match (self, place) {
            (_, Place::Both) | (Unit::Plan(_), Place::Plan) | (Unit::Kernel(_), Place::Kernel) => true,
            (Unit::Kernel(k), Place::CpuKernel) => matches!(k.state, State::Cpu(_)),
            (Unit::Kernel(k), Place::GpuKernel) => matches!(k.state, State::Gpu { .. }),
            (Unit::Plan(_), Place::Kernel | Place::CpuKernel | Place::GpuKernel) | (Unit::Kernel(_), Place::Plan) => {
                false
            }
        }
    }
}

/// Where a value is made: block, number of the instruction in it, number in its run (0 outside of one).
type Position = (Block, usize, usize);

/// Positions of definitions; what is there from the start has none but is known.
struct Definitions {
    at: SecondaryMap<Value, Option<Position>>,
    known: SecondaryMap<Value, bool>,
    /// The run that makes a value.
    run: SecondaryMap<Value, Option<Inst>>,
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
    let definitions = c.structure();
    if c.sink.list.len() == before {
        c.contents(&definitions);
    }
}

impl Checker<'_, '_> {
    fn parameters(&mut self, k: &Kernel) {
        let mut seen = BTreeSet::new();
        let values = k.params.iter().map(|p| p.value).chain(k.grid.iter().map(|g| g.value));
        for v in values {
            if !self.body.is_value(v) || self.body.def(v) != ValueDef::Param || !seen.insert(v) {
                self.sink.error(At::Head, "a parameter or grid index is no value of its own");
                return;
            }
        }
        for p in &k.params {
            match self.body.ty(p.value) {
                Type::Buffer(_) => {}
                Type::Index if p.mode == ParamMode::In => {}
                ty => self.sink.error(At::Head, format!("a parameter of type {ty}")),
            }
        }
        for g in &k.grid {
            if *self.body.ty(g.value) != Type::Index {
                self.sink.error(At::Head, "the index of a grid axis is no index");
            }
            if g.step < 1 {
                self.sink.error(At::Head, format!("a grid axis has steps of {}", g.step));
            }
            self.dim(At::Head, &g.extent);
        }
    }

    fn structure(&mut self) -> Definitions {
        let mut d = Definitions { at: SecondaryMap::new(), known: SecondaryMap::new(), run: SecondaryMap::new() };
        if let Unit::Kernel(k) = self.unit {
            for v in k.params.iter().map(|p| p.value).chain(k.grid.iter().map(|g| g.value)) {
                d.known[v] = true;
            }
        }
        let mut blocks = BTreeSet::new();
        let mut insts = BTreeSet::new();
        if self.body.layout.is_empty() {
            self.sink.error(At::Head, "there are no blocks");
        }
        for b in &self.body.layout {
            if !self.body.is_block(*b) || !blocks.insert(*b) {
                self.sink.error(At::Head, format!("{b} is no block, or stands twice"));
                return d;
            }
        }
        for b in &self.body.layout {
            let data = self.body.block(*b);
            if *b == self.body.entry() && !data.args.is_empty() {
                self.sink.error(At::Block(*b), "the entry block has arguments");
            }
            for (i, v) in data.args.iter().enumerate() {
                if !self.body.is_value(*v) || self.body.def(*v) != ValueDef::Arg(*b, i) {
                    self.sink.error(At::Block(*b), format!("argument {i} is no value of this block"));
                    return d;
                }
                d.known[*v] = true;
                d.at[*v] = Some((*b, 0, 0));
            }
            for (n, i) in data.insts.iter().enumerate() {
                if !self.instruction(*i, (*b, n + 1, 0), None, &mut insts, &mut d) {
                    return d;
                }
                if let Op::Run { insts: inner, .. } = &self.body.inst(*i).op {
                    for (m, k) in inner.iter().enumerate() {
                        if !self.instruction(*k, (*b, n + 1, m + 1), Some(*i), &mut insts, &mut d) {
                            return d;
                        }
                        if matches!(self.body.inst(*k).op, Op::Run { .. }) {
                            self.sink.error(At::Inst(*i), "a run in a run");
                            return d;
                        }
                    }
                }
            }
            for c in data.terminator.targets() {
                if !blocks.contains(&c.block) {
                    self.sink.error(At::Terminator(*b), "jumps to a block that is not there");
                } else if c.block == self.body.entry() {
                    self.sink.error(At::Terminator(*b), "jumps to the entry");
                }
            }
        }
        d
    }

    /// Is the instruction where it may be? Notes what it makes.
    fn instruction(
        &mut self,
        i: Inst,
        at: Position,
        run: Option<Inst>,
        seen: &mut BTreeSet<Inst>,
        d: &mut Definitions,
    ) -> bool {
        if !self.body.is_inst(i) || !seen.insert(i) {
            self.sink.error(At::Block(at.0), format!("{i} is no instruction, or stands twice"));
            return false;
        }
        let data = self.body.inst(i);
        if data.result.is_some() != data.op.info().has_result {
            let what = if data.result.is_some() { "has no result" } else { "has a result" };
            self.sink.error(At::Inst(i), format!("{}: {what}", data.op.info().name));
            return false;
        }
        if let Some(v) = data.result {
            if !self.body.is_value(v) || self.body.def(v) != ValueDef::Result(i) {
                self.sink.error(At::Inst(i), "the result is no value of this instruction");
                return false;
            }
            d.known[v] = true;
            d.at[v] = Some(at);
            d.run[v] = run;
        }
        true
    }

    fn contents(&mut self, d: &Definitions) {
        let uses = Uses { body: self.body, d, cfg: Cfg::new(self.body) };
        let mut read = Vec::new();
        for b in &self.body.layout {
            let data = self.body.block(*b);
            for v in &data.args {
                for bound in self.body.ty(*v).bounds() {
                    // A bound is there before the block begins.
                    if let Err(e) = uses.check(bound, (*b, 0, 0), None, true) {
                        self.sink.error(At::Block(*b), e);
                    }
                }
                self.ty(At::Block(*b), *v);
            }
            for (n, i) in data.insts.iter().enumerate() {
                self.inst(*i, (*b, n + 1, 0), None, &uses, &mut read);
                if let Op::Run { insts, .. } = &self.body.inst(*i).op {
                    for (m, k) in insts.iter().enumerate() {
                        self.inst(*k, (*b, n + 1, m + 1), Some(*i), &uses, &mut read);
                    }
                }
            }
            self.terminator(*b, &data.terminator, &uses);
        }
        if let Unit::Kernel(k) = self.unit {
            self.modes(k, &read);
        }
    }

    fn inst(&mut self, i: Inst, at: Position, run: Option<Inst>, uses: &Uses, accesses: &mut Vec<(Inst, Value, bool)>) {
        let data = self.body.inst(i);
        let name = data.op.info().name;
        let mut used = data.operands.clone();
        if let Some(v) = data.result {
            used.extend(self.body.ty(v).bounds());
        }
        if let Op::Run { rows, cols, .. } = &data.op {
            for e in [rows, cols] {
                self.extent(At::Inst(i), *e);
                if let Extent::Bounded { value, .. } = e {
                    used.push(*value);
                }
            }
        }
        for v in used {
            if let Err(e) = uses.check(v, at, run, false) {
                self.sink.error(At::Inst(i), format!("{name}: {e}"));
                return;
            }
        }
        if !self.unit.allows(data.op.info().place) {
            self.sink.error(At::Inst(i), format!("{name}: does not stand here"));
            return;
        }
        if let Some(v) = data.result {
            self.ty(At::Inst(i), v);
        }
        let types: Vec<&Type> = data.operands.iter().map(|v| self.body.ty(*v)).collect();
        let declared = data.result.map(|v| self.body.ty(v));
        match rules::result_type(&data.op, &types, declared) {
            Err(e) => self.sink.error(At::Inst(i), format!("{name}: {e}")),
            Ok(ty) if ty.as_ref() != declared => {
                let ty = ty.map_or("nothing".to_string(), |t| t.to_string());
                self.sink.error(At::Inst(i), format!("{name}: makes {ty}"));
            }
            Ok(_) => {}
        }
        match &data.op {
            Op::DimValue(d) => self.dim(At::Inst(i), d),
            Op::View { offset, strides } => {
                std::iter::once(offset).chain(strides).for_each(|d| self.dim(At::Inst(i), d));
            }
            Op::CheckIndex { site } if *site as usize >= self.module.sites.len() => {
                self.sink.error(At::Inst(i), format!("{name}: the module has no site {site}"));
            }
            _ => {}
        }
        if let Some(b) = data.op.accessed().and_then(|at| data.operands.get(at)) {
            accesses.push((i, *b, matches!(data.op, Op::Store { .. })));
        }
        if let (Op::LoadScaled { .. }, Some(scales)) = (&data.op, data.operands.last()) {
            accesses.push((i, *scales, false));
        }
    }

    /// Rule 9: how buffers are used.
    fn modes(&mut self, k: &Kernel, accesses: &[(Inst, Value, bool)]) {
        for (i, b, writes) in accesses {
            let mode = k.params.iter().find(|p| p.value == *b).map(|p| p.mode);
            match (mode, writes) {
                (Some(ParamMode::In), true) => self.sink.error(At::Inst(*i), "writes a buffer that is `in`"),
                (Some(ParamMode::Out), false) => self.sink.error(At::Inst(*i), "reads a buffer that is `out`"),
                (Some(_), _) => {}
                (None, _) => self.sink.error(At::Inst(*i), "the buffer is no parameter of the kernel"),
            }
        }
    }

    fn terminator(&mut self, b: Block, t: &Terminator, uses: &Uses) {
        let at = (b, usize::MAX, 0);
        for v in t.values() {
            if let Err(e) = uses.check(v, at, None, false) {
                self.sink.error(At::Terminator(b), e);
                return;
            }
        }
        if let Terminator::BrIf { condition, .. } = t
            && *self.body.ty(*condition) != Type::Scalar(crate::shape::Elem::Bool)
        {
            self.sink.error(At::Terminator(b), format!("the condition is {}", self.body.ty(*condition)));
        }
        if let (Terminator::Roles(_), false) = (t, self.unit.allows(Place::GpuKernel)) {
            self.sink.error(At::Terminator(b), "`roles` does not stand here");
        }
        for c in t.targets() {
            let args = &self.body.block(c.block).args;
            if args.len() != c.args.len() {
                let message = format!("{} values for a block of {} arguments", c.args.len(), args.len());
                self.sink.error(At::Terminator(b), message);
                continue;
            }
            for (v, a) in c.args.iter().zip(args) {
                let (given, wanted) = (self.body.ty(*v), self.body.ty(*a));
                if given != wanted {
                    let message = format!("the value {v} is {given}, and the block takes {wanted}");
                    self.sink.error(At::Terminator(b), message);
                }
            }
        }
    }

    /// Rule 6, and the symbols of a type.
    fn ty(&mut self, at: At, v: Value) {
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

    fn extent(&mut self, at: At, e: Extent) {
        if !(1..=1 << 20).contains(&e.capacity()) {
            self.sink.error(at, format!("the extent {} is not between 1 and 2^20", e.capacity()));
        }
        if let Extent::Bounded { value, .. } = e
            && self.body.is_value(value)
            && *self.body.ty(value) != Type::Index
        {
            self.sink.error(at, "the bound of an extent is no index");
        }
    }

    fn dim(&mut self, at: At, d: &Dim) {
        for s in d.symbols() {
            if !self.unit.symbols().iter().any(|t| **t == *s) {
                self.sink.error(at, format!("the dimension {s} is none of the symbols"));
            }
        }
    }
}

/// Rule 4: what is used must be there.
struct Uses<'a> {
    body: &'a Body,
    d: &'a Definitions,
    cfg: Cfg<Block>,
}

impl Uses<'_> {
    /// May `v` be used at a position, in a run or not? `before`: by the block's own head.
    fn check(&self, v: Value, at: Position, run: Option<Inst>, before: bool) -> Result<(), String> {
        if !self.body.is_value(v) || !self.d.known[v] {
            return Err(format!("{v} is not defined"));
        }
        let Some(def) = self.d.at[v] else { return Ok(()) };
        let late = || Err(format!("{v} is used where it is not defined yet"));
        if def.0 == at.0 {
            if before || def >= at {
                return late();
            }
        } else {
            // What cannot be reached uses what it likes.
            if !self.cfg.is_reachable(at.0) {
                return Ok(());
            }
            if !self.cfg.dominates(def.0, at.0) {
                return late();
            }
        }
        if let Some(home) = self.d.run[v] {
            let data = self.body.def_inst(v);
            let reduced = data.is_some_and(|d| matches!(d.op, Op::Reduce { .. }));
            if run == Some(home) {
                if reduced {
                    return Err(format!("{v}, the result of a reduction, is there only after its run"));
                }
            } else if self.body.ty(v).tile().is_some_and(|t| t.space == Space::Reg) {
                return Err(format!("{v} is in registers of another run"));
            }
        }
        Ok(())
    }
}
