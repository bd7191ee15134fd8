//! Changes of graph IR and tile IR: removes functions, results and operations.
//!
//! In: the text of a module. Out: the text after some changes, with what is dead then removed; none
//! if the verifier refuses it.
//!
//! * `functions`: an entry point, a kernel, a plan, a declaration
//! * `branches`: a branch always goes one way, so a loop ends, or never begins
//! * `values`: a value becomes a constant, or an operand of its operation with the same type; in
//!   graph IR also a new argument of the function; a result becomes an operand of its operation
//! * `effects`: an operation without a result, a result of the function, a condition on dimensions

use super::{Candidate, Changes};
use crate::interface::ArgDecl;
use crate::ir::{self, Function, Scalar, Type};
use crate::source::{FileId, Loc};
use crate::ssa::{Block, Body, Dialect, Inst, Terminator, Value, ValueDef, remove_dead};
use crate::tile::{self, verify::VerifiedModule};
use cranelift_entity::SecondaryMap;
use std::collections::BTreeSet;

/// Is this valid graph IR?
pub(super) fn reads_graph(text: &str) -> bool {
    ir::Module::read(text).is_some()
}

/// Is this valid tile IR?
pub(super) fn reads_tiles(text: &str) -> bool {
    tile::Module::read(text).is_some()
}

/// The kinds of changes of graph IR.
pub(super) fn graph_kinds() -> Vec<Box<dyn Changes>> {
    kinds::<ir::Module>()
}

/// The kinds of changes of tile IR.
pub(super) fn tile_kinds() -> Vec<Box<dyn Changes>> {
    kinds::<tile::Module>()
}

fn kinds<M: Reducible + 'static>() -> Vec<Box<dyn Changes>> {
    [What::Functions, What::Branches, What::Effects, What::Values]
        .into_iter()
        .map(|what| Box::new(ModuleEdits::<M>(what, std::marker::PhantomData)) as Box<dyn Changes>)
        .collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Functions,
    Branches,
    Values,
    Effects,
}

struct ModuleEdits<M>(What, std::marker::PhantomData<fn() -> M>);

/// A change of a module.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edit {
    /// Removes the declaration of this number: functions, then the others.
    Declaration(usize),
    /// In the body of this number.
    Body(usize, BodyEdit),
    /// Removes a condition on dimensions of a body.
    Check(usize, usize),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyEdit {
    /// The branch at the end of a block always goes this way.
    Branch(Block, bool),
    /// A value becomes another one.
    Replace(Value, Value),
    /// A value becomes a constant.
    Constant(Inst),
    /// A value becomes a new argument.
    Argument(Inst),
    /// Removes an operation without a result.
    Remove(Inst),
    /// Removes a result of the function.
    Result(usize),
    /// Returns another value as a result of the function.
    Return(usize, Value),
    /// Removes an unused argument of the function.
    Unused(usize),
}

/// A module whose bodies can be changed.
trait Reducible: Sized {
    /// Reads a valid module.
    fn read(text: &str) -> Option<Self>;
    /// The text, if the module is valid.
    fn write(self) -> Option<String>;
    /// All changes of a kind.
    fn edits(&self, what: What) -> Vec<Edit>;
    /// Makes a change.
    fn edit(&mut self, edit: Edit);
    /// Removes what is dead.
    fn clean(&mut self);
}

impl<M: Reducible> Changes for ModuleEdits<M> {
    fn name(&self) -> &'static str {
        match self.0 {
            What::Functions => "functions",
            What::Branches => "branches",
            What::Values => "values",
            What::Effects => "effects",
        }
    }

    fn count(&self, text: &str) -> usize {
        M::read(text).map_or(0, |module| module.edits(self.0).len())
    }

    fn make(&self, text: &str, first: usize, n: usize) -> Candidate {
        let mut module = M::read(text)?;
        let edits = module.edits(self.0);
        // Numbers of declarations, results and checks stay valid from the last to the first.
        for edit in edits.get(first..first + n)?.iter().rev() {
            module.edit(*edit);
        }
        module.clean();
        module.write()
    }
}

/// Changes of a body. `constant`: can a value of this type be a constant?
fn body_edits<D: Dialect>(body: &Body<D>, what: What, constant: &dyn Fn(&D::Type) -> bool) -> Vec<BodyEdit> {
    let is_index = |ty: &D::Type| ty.to_string() == "index";
    let mut edits = Vec::new();
    match what {
        What::Functions => {}
        What::Branches => {
            for b in &body.layout {
                if let Terminator::BrIf { .. } = &body.block(*b).terminator {
                    edits.extend([BodyEdit::Branch(*b, false), BodyEdit::Branch(*b, true)]);
                }
            }
        }
        What::Effects => {
            let without = body.insts().filter(|(_, _, data)| data.result.is_none());
            edits.extend(without.map(|(_, i, _)| BodyEdit::Remove(i)));
        }
        What::Values => {
            // A counter that does not count would make its loop endless.
            let jumps = body.layout.iter().flat_map(|b| body.block(*b).terminator.targets());
            let passed: BTreeSet<Value> = jumps.flat_map(|call| call.args.iter().copied()).collect();
            // From the results backwards: most becomes dead by the first changes.
            let all: Vec<_> = body.insts().collect();
            for (_, i, data) in all.into_iter().rev() {
                let Some(v) = data.result.filter(|v| !passed.contains(v) || !is_index(body.ty(*v))) else { continue };
                let same = data.operands.iter().filter(|o| body.ty(**o) == body.ty(v));
                edits.extend(same.map(|o| BodyEdit::Replace(v, *o)));
                if constant(body.ty(v)) {
                    edits.push(BodyEdit::Constant(i));
                }
            }
        }
    }
    edits
}

/// Makes a change that all bodies have.
fn edit_body<D: Dialect>(body: &mut Body<D>, edit: BodyEdit) {
    match edit {
        BodyEdit::Branch(block, way) => {
            if let Terminator::BrIf { then, otherwise, .. } = body.block(block).terminator.clone() {
                body.terminate(block, Terminator::Br(if way { then } else { otherwise }));
            }
        }
        BodyEdit::Replace(v, by) => replace(body, v, by),
        BodyEdit::Remove(inst) => body.remove_insts(|i, _| i == inst),
        BodyEdit::Constant(_) | BodyEdit::Argument(_) => {}
        BodyEdit::Result(_) | BodyEdit::Return(..) | BodyEdit::Unused(_) => {}
    }
}

fn replace<D: Dialect>(body: &mut Body<D>, v: Value, by: Value) {
    let mut map: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    map[v] = Some(by);
    body.replace_uses(&map);
}

/// Can every block reach an end? A loop without a way out would never end.
fn ends<D: Dialect>(body: &Body<D>) -> bool {
    let mut reach: BTreeSet<Block> = BTreeSet::new();
    let targets = |b: &Block| body.block(*b).terminator.targets().into_iter().map(|c| c.block).collect::<Vec<_>>();
    loop {
        let more = body.layout.iter().copied().filter(|b| !reach.contains(b));
        let more: Vec<Block> =
            more.filter(|b| targets(b).is_empty() || targets(b).iter().any(|t| reach.contains(t))).collect();
        if more.is_empty() {
            break;
        }
        reach.extend(more);
    }
    // A way out that depends on nothing in the loop is taken at once, or never.
    let varies = |l: &ir::Loop, v: Value| match body.def(v) {
        ValueDef::Param => false,
        ValueDef::Arg(block, _) => l.blocks.contains(&block),
        ValueDef::Result(i) => {
            let is_constant = D::name(&body.inst(i).op) == "const";
            !is_constant && body.block_of(i).is_some_and(|block| l.blocks.contains(&block))
        }
    };
    let leaves = |l: &ir::Loop| {
        l.blocks.iter().any(|b| match &body.block(*b).terminator {
            Terminator::BrIf { condition, .. } => {
                targets(b).iter().any(|t| !l.blocks.contains(t)) && varies(l, *condition)
            }
            _ => false,
        })
    };
    body.layout.iter().all(|b| reach.contains(b)) && body.cfg().loops().iter().all(leaves)
}

/// Removes unreachable blocks, and what is dead.
fn clean_body<D: Dialect>(body: &mut Body<D>) {
    let reached: BTreeSet<Block> = body.reverse_postorder().into_iter().collect();
    body.layout.retain(|b| reached.contains(b));
    remove_dead(body);
    // A block that only one jump reaches becomes the end of that one's.
    let mut at = 0;
    while let Some(b) = body.layout.get(at).copied() {
        at += 1;
        let Terminator::Br(call) = body.block(b).terminator.clone() else { continue };
        if call.block == b || call.block == body.entry() || body.predecessors()[call.block].len() != 1 {
            continue;
        }
        let next = body.block(call.block).clone();
        let mut map: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
        for (arg, given) in next.args.iter().zip(&call.args) {
            map[*arg] = Some(*given);
        }
        body.block_mut(b).insts.extend(next.insts);
        body.terminate(b, next.terminator);
        body.layout.retain(|other| *other != call.block);
        body.replace_uses(&map);
        at = 0;
    }
}

impl Reducible for ir::Module {
    fn read(text: &str) -> Option<ir::Module> {
        let module = ir::text::parse(text, FileId(0)).ok()?.module;
        ir::verify(&module).is_ok().then_some(module)
    }

    fn write(self) -> Option<String> {
        if !self.functions.iter().all(|f| ends(f)) {
            return None;
        }
        ir::verify(&self).ok()?;
        Some(ir::text::print(&self))
    }

    fn edits(&self, what: What) -> Vec<Edit> {
        if what == What::Functions {
            let declared =
                self.functions.len() + self.params.len() + self.states.len() + usize::from(!self.doc.is_empty());
            return (0..declared).map(Edit::Declaration).collect();
        }
        let mut edits = Vec::new();
        for (n, f) in self.functions.iter().enumerate() {
            let is_tensor = |ty: &Type| ty.tensor().is_some();
            let mut own = body_edits(f, what, &|ty| is_tensor(ty) && ty.tensor().is_some_and(|t| t.rank() == 0));
            if what == What::Values {
                let ends = f.layout.iter().filter_map(|b| match &f.block(*b).terminator {
                    Terminator::Return(list) => Some(list),
                    _ => None,
                });
                for (k, v) in ends.flat_map(|list| list.iter().enumerate()) {
                    let operands = f.def_inst(*v).into_iter().flat_map(|data| &data.operands);
                    own.extend(operands.filter(|o| is_tensor(f.ty(**o))).map(|o| BodyEdit::Return(k, *o)));
                }
                let lengths = f.lengths_in(&f.layout);
                for (_, i, data) in f.insts() {
                    let is_own = matches!(data.op, ir::Op::Const(_));
                    let fits = |ty: &crate::shape::TensorType| {
                        !ty.shape.iter().flat_map(crate::shape::Dim::symbols).any(|s| lengths.contains(&s))
                    };
                    if !is_own && data.result.and_then(|v| f.tensor(v)).is_some_and(fits) {
                        own.push(BodyEdit::Argument(i));
                    }
                }
            }
            if what == What::Effects {
                own.extend((0..f.results.len()).map(BodyEdit::Result));
                own.extend((0..f.args.len()).map(BodyEdit::Unused));
                edits.extend((0..f.checks.len()).map(|c| Edit::Check(n, c)));
            }
            edits.extend(own.into_iter().map(|edit| Edit::Body(n, edit)));
        }
        edits
    }

    fn edit(&mut self, edit: Edit) {
        match edit {
            Edit::Declaration(n) => {
                let (functions, params) = (self.functions.len(), self.params.len());
                match n {
                    _ if n < functions => drop(self.functions.remove(n)),
                    _ if n < functions + params => drop(self.params.remove(n - functions)),
                    _ if n < functions + params + self.states.len() => drop(self.states.remove(n - functions - params)),
                    _ => self.doc.clear(),
                }
            }
            Edit::Check(n, c) => {
                if let Some(f) = self.functions.get_mut(n).filter(|f| c < f.checks.len()) {
                    f.checks.remove(c);
                }
            }
            Edit::Body(n, edit) => {
                if let Some(f) = self.functions.get_mut(n) {
                    edit_function(f, edit);
                }
            }
        }
    }

    fn clean(&mut self) {
        self.functions.iter_mut().for_each(|f| clean_body(f));
    }
}

fn edit_function(f: &mut Function, edit: BodyEdit) {
    match edit {
        BodyEdit::Constant(inst) => {
            let data = f.inst(inst).clone();
            let Some(v) = data.result else { return };
            let Some(elem) = f.tensor(v).map(|t| t.elem) else { return };
            let op = ir::Op::Const(Scalar::zero(elem));
            *f.inst_mut(inst) = ir::InstData { op, operands: Vec::new(), parts: Vec::new(), ..data };
        }
        BodyEdit::Argument(inst) => {
            let Some(v) = f.inst(inst).result else { return };
            let Some(ty) = f.tensor(v).cloned() else { return };
            let mut name = format!("x{}", f.args.len());
            while f.args.iter().any(|arg| arg.name == name) {
                name.push('_');
            }
            let entry = f.entry();
            let arg = f.add_block_arg(entry, Type::Tensor(ty.clone()));
            f.args.push(ArgDecl { name, ty, batch: false });
            replace(f, v, arg);
        }
        BodyEdit::Result(n) => {
            if f.results.len() > n {
                f.results.remove(n);
            }
            for b in f.layout.clone() {
                if let Terminator::Return(list) = &mut f.block_mut(b).terminator
                    && list.len() > n
                {
                    list.remove(n);
                }
            }
        }
        BodyEdit::Return(n, by) => {
            let ty = f.tensor(by).cloned();
            if let (Some(result), Some(ty)) = (f.results.get_mut(n), ty) {
                (result.ty, result.batch) = (ty, false);
            }
            for b in f.layout.clone() {
                if let Terminator::Return(list) = &mut f.block_mut(b).terminator
                    && let Some(v) = list.get_mut(n)
                {
                    *v = by;
                }
            }
        }
        BodyEdit::Unused(n) => {
            let entry = f.entry();
            let Some(v) = f.block(entry).args.get(n).copied() else { return };
            if f.uses()[v].is_empty() && n < f.args.len() {
                f.args.remove(n);
                f.remove_block_args(entry, |i| i == n);
            }
        }
        other => edit_body(f, other),
    }
}

impl tile::Module {
    /// The bodies of kernels, then of plans.
    fn body_mut(&mut self, n: usize) -> Option<&mut tile::Body> {
        let kernels = self.kernels.len();
        match n.checked_sub(kernels) {
            None => self.kernels.get_mut(n).map(|k| &mut k.body),
            Some(n) => self.plans.get_mut(n).map(|p| &mut p.body),
        }
    }
}

impl Reducible for tile::Module {
    fn read(text: &str) -> Option<tile::Module> {
        let module = tile::text::parse(text, FileId(0)).ok()?.module;
        Some((*VerifiedModule::new(module).ok()?).clone())
    }

    fn write(self) -> Option<String> {
        if !self.kernels.iter().map(|k| &k.body).chain(self.plans.iter().map(|p| &p.body)).all(ends) {
            return None;
        }
        Some(tile::text::print(&*VerifiedModule::new(self).ok()?))
    }

    fn edits(&self, what: What) -> Vec<Edit> {
        if what == What::Functions {
            let declared = self.entries.len() + self.kernels.len() + self.plans.len() + self.params.len();
            return (0..declared).map(Edit::Declaration).collect();
        }
        let mut edits = Vec::new();
        let bodies = self.kernels.iter().map(|k| &k.body).chain(self.plans.iter().map(|p| &p.body));
        for (n, body) in bodies.enumerate() {
            let scalar = |ty: &tile::Type| matches!(ty, tile::Type::Scalar(_) | tile::Type::Index);
            edits.extend(body_edits(body, what, &scalar).into_iter().map(|edit| Edit::Body(n, edit)));
        }
        if what == What::Effects {
            for (n, entry) in self.entries.iter().enumerate() {
                edits.extend((0..entry.checks.len()).map(|c| Edit::Check(n, c)));
            }
        }
        edits
    }

    fn edit(&mut self, edit: Edit) {
        match edit {
            Edit::Declaration(mut n) => {
                // An entry goes with its plans, and a kernel with its launches.
                if n < self.entries.len() {
                    let name = self.entries.remove(n).name;
                    self.plans.retain(|p| p.name != name);
                    return;
                }
                n -= self.entries.len();
                if n < self.kernels.len() {
                    let name = self.kernels.remove(n).name;
                    let is_own = |op: &tile::Op| matches!(op, tile::Op::Plan(tile::PlanOp::Launch { kernel }) if *kernel == name);
                    self.plans.iter_mut().for_each(|p| p.body.remove_insts(|_, data| is_own(&data.op)));
                    return;
                }
                n -= self.kernels.len();
                if n < self.plans.len() {
                    self.plans.remove(n);
                } else if n - self.plans.len() < self.params.len() {
                    self.params.remove(n - self.plans.len());
                }
            }
            Edit::Check(n, c) => {
                if let Some(entry) = self.entries.get_mut(n).filter(|entry| c < entry.checks.len()) {
                    entry.checks.remove(c);
                }
            }
            Edit::Body(n, BodyEdit::Constant(inst)) => {
                let Some(body) = self.body_mut(n) else { return };
                let data = body.inst(inst).clone();
                let Some(v) = data.result else { return };
                let zero = match body.ty(v) {
                    tile::Type::Scalar(elem) => Scalar::zero(*elem),
                    _ => Scalar::Int(0),
                };
                let op = tile::Op::Const(zero);
                *body.inst_mut(inst) = tile::InstData { op, operands: Vec::new(), loc: Loc::default(), ..data };
            }
            Edit::Body(n, edit) => {
                if let Some(body) = self.body_mut(n) {
                    edit_body(body, edit);
                }
            }
        }
    }

    fn clean(&mut self) {
        for n in 0..self.kernels.len() + self.plans.len() {
            self.body_mut(n).into_iter().for_each(clean_body);
        }
        let launched: BTreeSet<String> =
            self.plans.iter().flat_map(|p| p.reached(&self.kernels)).map(str::to_string).collect();
        self.kernels.retain(|k| launched.contains(&k.name));
    }
}
