//! The verifier: the contract of the graph IR.
//!
//! In: any module. Out: [`Verified`], which the interpreter and lowering require, or all errors,
//! each attached to a part of the module; [`Errors`] prints them below the lines of the module's
//! text. It runs after every pass.
//!
//! # Checks, in this order
//!
//! Of the module:
//! 1. Parameters have unique, non-empty names; one extent for each `*` of the name.
//! 2. Functions have unique, non-empty names; the variant that computes taps counts separately.
//!
//! Of each function:
//! 3. The entry block's arguments are the function's, with the same types; `batch` marks a first
//!    axis.
//! 4. Every block is in the layout once, every instruction in one block; jumps go to blocks of the
//!    layout, and never to the entry. An instruction has a result exactly if its operation defines
//!    one.
//! 5. Every used value is an argument of a block in the layout or the result of an instruction in
//!    it, and its definition dominates the use (uses in unreachable blocks are exempt).
//! 6. Operands and result fit the operation: `rules` computes the result's type, which must be the
//!    recorded one.
//! 7. A literal fits its type: floats for float types, integers in range for integer types and
//!    indices, booleans.
//! 8. Jumps pass as many values as the target has arguments, of the same types; conditions are
//!    `bool[]`; `return` returns the declared results.
//! 9. Parameters that are read are declared, with this type, and as many indices as their name has
//!    `*`.
//! 10. Dimensions use only the symbols in the arguments' types and the dimensions that `length`
//!     sets: types, attributes and checks may use both; results, taps and the bound of a `length`
//!     only the former. A dimension is set by one instruction, is not a symbol of the arguments,
//!     and is mentioned only where that instruction dominates. If a check mentions several, these
//!     are set one after another.
//! 11. Source locations are in files that the module lists.
//! 12. No extent is a negative number; no size exceeds every machine, as far as constants show
//!     (`requirements::too_large`), and no number of a check exceeds 64 bits.
//! 13. Taps of one path agree in type and extents; no path ends in `?` or `!`, which plans append
//!     to paths. Of the body of a fused region:
//! 14. One block, which returns one value; its arguments have the types of the operands; 4 to 7 and
//!     10 to 12 hold in it.
//! 15. By kind. `map`: elementwise operations, constants and counters (`const`, `dim`, `iota`,
//!     `causal`). `rows`: also `softmax`, `log_softmax` and reductions with `keep=true`, each over
//!     the last axis alone. `matmul` and `attention`: one operation of this name whose operands are
//!     arguments of the region; elementwise operations after it that keep its shape; constants and
//!     counters. The masks of an attention may be computed by elementwise operations and
//!     `broadcast` before it, with no other users. `chain`: see `chain::Chain`. Never a region, a
//!     parameter, other movement or a tap.
//!
//! # Not checked
//!
//! Run-time dimensions may be negative, slices and paddings outside of their axes, and sizes beyond
//! 64 bits: unless the function's checks exclude it, each call checks it (`requirements`). Indices
//! may be out of range: the interpreter and compiled code check each index that is not a loop
//! counter within its bound. Termination of loops, and names of arguments and taps, are not
//! checked.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use cranelift_entity::SecondaryMap;

use super::chain::Chain;
use super::op::mask_operands;
use super::requirements::{Length, MAX_ELEMENTS, is_too_large, lengths, too_large, without_most};
use super::text::{Anchor, PrintedPart, print_with_anchors};
use super::{
    Block, Class, Function, FusionKind, Inst, Loc, Module, Op, ParamDecl, Scalar, Terminator, Type, Value, ValueDef,
    param_named,
};
use crate::shape::{Dim, Elem, TensorType};
use crate::ssa;
use crate::ssa::verify::Definitions;

/// A module that passed the verifier.
#[derive(Clone, Copy, Debug)]
pub struct Verified<'a>(&'a Module);

impl<'a> Verified<'a> {
    /// The verified module.
    pub fn module(self) -> &'a Module {
        self.0
    }
}

impl Deref for Verified<'_> {
    type Target = Module;

    fn deref(&self) -> &Module {
        self.0
    }
}

/// The errors of a module.
pub type Errors = crate::irtext::Errors<Anchor>;

/// Checks a module.
///
/// # Errors
/// All violated invariants.
pub fn verify(module: &Module) -> Result<Verified<'_>, Errors> {
    let mut v = Verifier { module, function: None, fused: None, symbols: BTreeSet::new(), errors: Vec::new() };
    v.module();
    if v.errors.is_empty() {
        return Ok(Verified(module));
    }
    Err(Errors::new(v.errors, &print_with_anchors(module), None, |a| a.function))
}

struct Verifier<'a> {
    module: &'a Module,
    function: Option<usize>,
    fused: Option<Inst>,
    symbols: BTreeSet<Arc<str>>,
    errors: Vec<(Anchor, String)>,
}

impl<'a> Verifier<'a> {
    fn error(&mut self, at: PrintedPart, message: impl Into<String>) {
        self.errors.push((Anchor { function: self.function, fused: self.fused, at }, message.into()));
    }

    fn module(&mut self) {
        let mut names = BTreeSet::new();
        for (i, p) in self.module.params.iter().enumerate() {
            if p.name.is_empty() || !names.insert(&p.name) {
                self.error(PrintedPart::Param(i), format!("the parameter's name \"{}\" is empty or duplicate", p.name));
            }
            self.extents(PrintedPart::Param(i), &p.ty);
            let all = p.ty.shape.iter().map(Dim::magnitude).chain(p.counts.iter().map(|n| i128::from(*n)));
            if is_too_large(&p.ty.shape) || all.fold(1, |n, d| d.max(1).saturating_mul(n)) > MAX_ELEMENTS {
                self.error(PrintedPart::Param(i), format!("the parameter \"{}\" is too large", p.name));
            }
            let stars = p.name.matches('*').count();
            if stars != p.counts.len() {
                self.error(
                    PrintedPart::Param(i),
                    format!("the name has {stars} `*`, and there are {} extents", p.counts.len()),
                );
            }
        }
        let mut names = BTreeSet::new();
        for s in &self.module.states {
            if s.name.is_empty() || !names.insert(&s.name) {
                self.error(PrintedPart::Head, format!("the state's name \"{}\" is empty or duplicate", s.name));
            }
            self.extents(PrintedPart::Head, &s.ty);
            if s.ty.shape.iter().any(|d| d.as_const().is_none()) {
                self.error(PrintedPart::Head, format!("the state \"{}\" has an extent that is not a number", s.name));
            }
            if is_too_large(&s.ty.shape) {
                self.error(PrintedPart::Head, format!("the state \"{}\" is too large", s.name));
            }
        }
        let mut names = BTreeSet::new();
        for (i, f) in self.module.functions.iter().enumerate() {
            self.function = Some(i);
            if f.name.is_empty() || !names.insert((&f.name, f.tapped)) {
                self.error(PrintedPart::Head, format!("the function's name `{}` is empty or duplicate", f.name));
            }
            self.symbols =
                f.args.iter().flat_map(|a| a.ty.shape.iter().flat_map(Dim::symbols)).collect::<BTreeSet<Arc<str>>>();
            self.interface(f);
            self.taps(f);
            self.lengths(f);
            self.checks(f);
            let before = self.errors.len();
            let definitions = self.structure(f);
            // If the structure is invalid, checks that rely on it are skipped.
            if self.errors.len() == before {
                self.contents(f, &definitions);
                self.named_where_known(f);
            }
            if self.errors.len() == before {
                for (dim, loc) in without_most(f) {
                    let place = loc.text(&self.module.name, &self.module.files);
                    self.error(
                        PrintedPart::Head,
                        format!("{place}: at the upper bounds of its lengths, {dim} is too large"),
                    );
                }
            }
        }
    }

    fn interface(&mut self, f: &Function) {
        if f.layout.is_empty() {
            return;
        }
        let entry = &f.block(f.entry()).args;
        if entry.len() != f.args.len() {
            self.error(PrintedPart::Head, format!("{} arguments and {} values for them", f.args.len(), entry.len()));
        }
        for (v, decl) in entry.iter().zip(&f.args) {
            if f.has_value(*v) && f.tensor(*v) != Some(&decl.ty) {
                self.error(
                    PrintedPart::Head,
                    format!("the argument \"{}\" is {}, its value {}", decl.name, decl.ty, f.ty(*v)),
                );
            }
        }
        let batches = f.args.iter().map(|a| (a.batch, &a.ty)).chain(f.results.iter().map(|r| (r.batch, &r.ty)));
        for (batch, ty) in batches {
            self.extents(PrintedPart::Head, ty);
            if is_too_large(&ty.shape) {
                self.error(PrintedPart::Head, format!("{ty} is too large"));
            }
            if batch && ty.rank() == 0 {
                self.error(PrintedPart::Head, format!("{ty} has no axis that `batch` could mark"));
            }
            self.dims(PrintedPart::Head, &ty.shape);
        }
    }

    /// Collects the dimensions that the function sets.
    fn lengths(&mut self, f: &Function) {
        for i in f.layout.iter().filter(|b| f.has_block(**b)).flat_map(|b| &f.block(*b).insts) {
            let Some(Op::Length { name, most }) = f.has_inst(*i).then(|| &f.inst(*i).op) else { continue };
            if most.symbols().iter().any(|s| !f.args.iter().any(|a| a.ty.shape.iter().any(|d| d.symbols().contains(s))))
            {
                self.error(PrintedPart::Inst(*i), format!("{most} is unknown on entry"));
            }
            if !self.symbols.insert(name.as_str().into()) {
                self.error(PrintedPart::Inst(*i), format!("the dimension {name} is set twice"));
            }
        }
    }

    /// Checks that dimensions are mentioned only where they are set.
    fn named_where_known(&mut self, f: &'a Function) {
        let known = lengths(f);
        if known.is_empty() {
            return;
        }
        let cfg = f.cfg();
        let place = |l: &Length<'_>| f.block(l.block).insts.iter().position(|i| *i == l.inst);
        let before = |l: &Length<'_>, b: Block, at: Option<usize>| match l.block == b {
            true => place(l) < at,
            false => cfg.dominates(l.block, b),
        };
        for b in f.reverse_postorder() {
            let mut named: Vec<(PrintedPart, Option<usize>, BTreeSet<Arc<str>>)> = Vec::new();
            let args = f.block(b).args.iter().filter_map(|v| f.tensor(*v));
            named.push((
                PrintedPart::Block(b),
                None,
                args.flat_map(|t| t.shape.iter().flat_map(Dim::symbols)).collect(),
            ));
            for (at, i) in f.block(b).insts.iter().enumerate() {
                named.push((PrintedPart::Inst(*i), Some(at), f.dimensions_of(f.inst(*i))));
            }
            for (at, place, symbols) in named {
                for l in known.iter().filter(|l| symbols.contains(l.name) && !before(l, b, place)) {
                    self.error(at, format!("the dimension {} is not set here", l.name));
                }
            }
        }
        for (n, (fact, _)) in f.checks.iter().enumerate() {
            let names: BTreeSet<Arc<str>> = [&fact.left, &fact.right].into_iter().flat_map(Dim::symbols).collect();
            let mut named = known.iter().filter(|l| names.contains(l.name)).peekable();
            while let Some(l) = named.next() {
                if let Some(next) = named.peek().filter(|next| !before(l, next.block, place(next))) {
                    let what = format!("{} and {} are not set one after the other", l.name, next.name);
                    self.error(PrintedPart::Check(n), what);
                }
            }
        }
    }

    fn checks(&mut self, f: &Function) {
        for (i, (fact, loc)) in f.checks.iter().enumerate() {
            self.dims(PrintedPart::Check(i), [&fact.left, &fact.right]);
            if [&fact.left, &fact.right].iter().any(|d| d.magnitude() > i128::from(i64::MAX)) {
                self.error(PrintedPart::Check(i), "the numbers are beyond 64 bits");
            }
            self.place(PrintedPart::Check(i), *loc);
        }
    }

    /// Checks that all taps of a path agree, because they share memory.
    fn taps(&mut self, f: &Function) {
        let mut known: BTreeMap<&str, (&[Dim], Option<&TensorType>)> = BTreeMap::new();
        for i in f.layout.iter().filter(|b| f.has_block(**b)).flat_map(|b| &f.block(*b).insts) {
            let Some(inst) = f.has_inst(*i).then(|| f.inst(*i)) else { continue };
            let Op::Tap { name, extents } = &inst.op else { continue };
            if name.ends_with(['?', '!']) {
                self.error(
                    PrintedPart::Inst(*i),
                    format!("the path \"{name}\" ends in a mark that plans append to paths"),
                );
            }
            let ty = inst.operands.first().filter(|v| f.has_value(**v)).and_then(|v| f.tensor(*v));
            // The caller must know the size of a tap.
            self.dims(PrintedPart::Inst(*i), extents.iter().chain(ty.into_iter().flat_map(|t| &t.shape)));
            if *known.entry(name).or_insert((extents, ty)) != (extents.as_slice(), ty) {
                self.error(
                    PrintedPart::Inst(*i),
                    format!("another tap of \"{name}\" has another type or other extents"),
                );
            }
        }
    }

    /// Checks blocks, instructions and jumps (4). Returns the definition of each value.
    fn structure(&mut self, f: &Function) -> Definitions {
        ssa::verify::structure(f, [], &mut |at, message| self.error(at.into(), message))
    }

    fn contents(&mut self, f: &'a Function, definitions: &Definitions) {
        ssa::verify::uses(f, definitions, &f.cfg(), &mut |at, message| self.error(at.into(), message));
        for b in &f.layout {
            for v in &f.block(*b).args {
                self.ty(PrintedPart::Block(*b), f.ty(*v));
            }
            for i in &f.block(*b).insts {
                self.inst(f, *i);
            }
            self.terminator(f, *b);
        }
    }

    fn inst(&mut self, f: &'a Function, i: Inst) {
        let at = PrintedPart::Inst(i);
        let inst = f.inst(i);
        self.place(at, inst.loc);
        inst.parts.iter().for_each(|loc| self.place(at, *loc));
        if !inst.parts.is_empty() && inst.parts.len() != inst.op.steps().len() {
            self.error(at, format!("`{}` has locations of other steps than its own", inst.op));
        }
        let types: Vec<&Type> = inst.operands.iter().map(|v| f.ty(*v)).collect();
        let declared = inst.result.map(|v| f.ty(v));
        match super::result_type(&inst.op, &types, declared) {
            Ok(ty) if ty.is_some() != declared.is_some() => {
                self.error(at, format!("`{}` and its result do not fit", inst.op));
            }
            Ok(_) => {}
            Err(message) => self.error(at, format!("`{}`: {message}", inst.op)),
        }
        if let Some(ty) = declared {
            self.ty(at, ty);
        }
        if let Some(message) = too_large(&inst.op, &types, declared) {
            self.error(at, message);
        }
        self.dims(at, inst.op.dims());
        match &inst.op {
            Op::Const(s) => self.literal(at, *s, declared),
            Op::Param { name } => self.param(at, name, inst.operands.len(), declared),
            Op::Grad { of } if types.len() == 1 => self.param_gradient(at, of, declared),
            Op::State { name } => self.state(at, name, declared),
            Op::SetState { name } => self.state(at, name, types.first().copied()),
            Op::Fused { kind, body } => self.region(i, *kind, body),
            _ => {}
        }
    }

    fn literal(&mut self, at: PrintedPart, s: Scalar, ty: Option<&Type>) {
        let fits = match (s, ty) {
            (Scalar::Int(_), Some(Type::Index)) => true,
            (s, Some(Type::Tensor(TensorType { elem, .. }))) => match (s, elem) {
                (Scalar::Float(_), Elem::F32 | Elem::BF16 | Elem::F16) | (Scalar::Bool(_), Elem::Bool) => true,
                (Scalar::Int(n), Elem::I8) => i8::try_from(n).is_ok(),
                (Scalar::Int(n), Elem::I32) => i32::try_from(n).is_ok(),
                (Scalar::Int(_), Elem::I64) => true,
                (Scalar::Float(_) | Scalar::Int(_) | Scalar::Bool(_), _) => false,
            },
            (_, Some(Type::Index) | None) => false,
        };
        if !fits {
            self.error(at, "the literal does not fit its type");
        }
    }

    fn param(&mut self, at: PrintedPart, name: &str, indices: usize, ty: Option<&Type>) {
        match param_named(&self.module.params, name) {
            None => self.error(at, format!("there is no parameter \"{name}\"")),
            Some(p) => {
                if p.counts.len() != indices {
                    self.error(at, format!("the parameter has {} indices, not {indices}", p.counts.len()));
                }
                if ty.and_then(Type::tensor) != Some(&p.ty) {
                    self.error(at, format!("the parameter is {}", p.ty));
                }
            }
        }
    }

    /// The gradient of a parameter has the extents of the arrays on its path, then its own.
    fn param_gradient(&mut self, at: PrintedPart, name: &str, ty: Option<&Type>) {
        match param_named(&self.module.params, name).map(ParamDecl::stacked) {
            None => self.error(at, format!("there is no parameter \"{name}\"")),
            Some(stacked) => {
                if ty.and_then(Type::tensor) != Some(&stacked) {
                    self.error(at, format!("all elements of the parameter are {stacked}"));
                }
            }
        }
    }

    fn state(&mut self, at: PrintedPart, name: &str, ty: Option<&Type>) {
        match self.module.states.iter().find(|s| s.name == name) {
            None => self.error(at, format!("there is no state \"{name}\"")),
            Some(s) if ty.and_then(Type::tensor) != Some(&s.ty) => self.error(at, format!("the state is {}", s.ty)),
            Some(_) => {}
        }
    }

    fn terminator(&mut self, f: &Function, b: Block) {
        let at = PrintedPart::Terminator(b);
        match &f.block(b).terminator {
            Terminator::Br(_) | Terminator::BrIf { .. } => {}
            Terminator::Roles(never) => match *never {},
            Terminator::Return(vs) if self.fused.is_some() => {
                if vs.len() != 1 {
                    self.error(at, "a region yields one value");
                }
            }
            Terminator::Return(vs) => {
                if vs.len() != f.results.len() {
                    self.error(at, format!("{} results are declared, {} returned", f.results.len(), vs.len()));
                }
                for (k, (v, r)) in vs.iter().zip(&f.results).enumerate() {
                    if f.tensor(*v) != Some(&r.ty) {
                        self.error(at, format!("result {} is declared {}, and is {}", k + 1, r.ty, f.ty(*v)));
                    }
                }
            }
        }
    }

    fn ty(&mut self, at: PrintedPart, ty: &Type) {
        if let Type::Tensor(t) = ty {
            self.dims(at, &t.shape);
            self.extents(at, t);
        }
    }

    fn extents(&mut self, at: PrintedPart, t: &TensorType) {
        if let Some(d) = t.shape.iter().find(|d| d.as_const().is_some_and(|n| n < 0)) {
            self.error(at, format!("{t} has the extent {d}"));
        }
    }

    fn dims<'d>(&mut self, at: PrintedPart, dims: impl IntoIterator<Item = &'d Dim>) {
        let unknown: BTreeSet<Arc<str>> =
            dims.into_iter().flat_map(Dim::symbols).filter(|s| !self.symbols.contains(s)).collect();
        for s in unknown {
            self.error(at, format!("no argument has the dimension {s}"));
        }
    }

    fn place(&mut self, at: PrintedPart, loc: Loc) {
        if loc.file as usize > self.module.files.len() {
            self.error(at, "the location is in a file that the module does not list");
        }
    }

    /// Checks the body of a fused region (14, 15).
    fn region(&mut self, i: Inst, kind: FusionKind, body: &'a Function) {
        if self.fused.is_some() {
            return self.error(PrintedPart::Inst(i), "a region cannot contain another");
        }
        // `rules` has compared its block arguments with the operands.
        if body.layout.len() != 1 {
            return;
        }
        self.fused = Some(i);
        let before = self.errors.len();
        let definitions = self.structure(body);
        if self.errors.len() == before {
            self.contents(body, &definitions);
        }
        if self.errors.len() == before {
            self.kind(kind, body);
        }
        self.fused = None;
    }

    fn kind(&mut self, kind: FusionKind, body: &Function) {
        if kind == FusionKind::Chain {
            if let Err(text) = Chain::read(body) {
                self.error(PrintedPart::Terminator(body.entry()), text);
            }
            return;
        }
        let mut contraction: Option<Value> = None;
        let is_arg = |v: &Value| matches!(body.def(*v), ValueDef::Arg(..));
        let formulas = formulas(body);
        let mut after: SecondaryMap<Value, bool> = SecondaryMap::new();
        for i in &body.block(body.entry()).insts {
            let inst = body.inst(*i);
            let at = PrintedPart::Inst(*i);
            let (Some(result), operand) = (inst.result, inst.operands.first()) else {
                self.error(at, format!("`{}` is not allowed in a region", inst.op));
                continue;
            };
            let last = operand.and_then(|v| body.tensor(*v)).map_or(0, TensorType::rank).checked_sub(1);
            let fits = match (&inst.op, kind) {
                (Op::Param { .. } | Op::State { .. }, _) => false,
                (Op::Softmax { axis } | Op::LogSoftmax { axis }, FusionKind::Rows) => Some(*axis) == last,
                (Op::Reduce { axes, keep, .. }, FusionKind::Rows) => {
                    *keep && axes.len() == 1 && axes.first().copied() == last
                }
                (Op::Matmul, FusionKind::Matmul) | (Op::Attention { .. }, FusionKind::Attention) => {
                    let first = contraction.is_none();
                    contraction = Some(result);
                    after[result] = true;
                    let computed = match &inst.op {
                        Op::Attention { masks } => mask_operands(masks),
                        _ => Vec::new(),
                    };
                    first && inst.operands.iter().enumerate().all(|(n, v)| is_arg(v) || computed.contains(&n))
                }
                (op, _) if op.is_copied() => true,
                (op, _) => {
                    let is_apart = formulas[result] || !inst.operands.iter().any(|v| formulas[*v]);
                    let spreads = formulas[result] && *op == Op::Broadcast;
                    is_apart && (spreads || matches!(op.info().class, Class::Elementwise | Class::Source))
                }
            };
            if !fits {
                self.error(at, format!("`{}` is not allowed here in a {} region", inst.op, kind.name()));
            }
            if inst.operands.iter().any(|v| after[*v]) {
                after[result] = true;
                let shape = |v: Value| body.tensor(v).map(|t| t.shape.as_slice());
                if contraction.is_some_and(|c| shape(c) != shape(result)) {
                    self.error(at, "operations after the contraction must keep its shape");
                }
            }
        }
        if matches!(kind, FusionKind::Matmul | FusionKind::Attention) && contraction.is_none() {
            self.error(
                PrintedPart::Terminator(body.entry()),
                format!("a {} region must contain its operation once", kind.name()),
            );
        }
    }
}

/// The values that the masks of a region's attention are computed from, except arguments, constants
/// and counters.
fn formulas(body: &Function) -> SecondaryMap<Value, bool> {
    let mut made: SecondaryMap<Value, bool> = SecondaryMap::new();
    let attention = body.insts().find_map(|(_, _, d)| match &d.op {
        Op::Attention { masks } => Some((d, mask_operands(masks))),
        _ => None,
    });
    let Some((attention, computed)) = attention else { return made };
    let mut work: Vec<Value> = computed.iter().filter_map(|n| attention.operands.get(*n).copied()).collect();
    while let Some(v) = work.pop() {
        if let Some((_, d)) = body.definition(v)
            && !matches!(d.op.info().class, Class::Source)
            && !made[v]
        {
            made[v] = true;
            work.extend(&d.operands);
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::text::parse;

    fn module(body: &str) -> Module {
        let text = format!("module \"m\"\nparam \"w\" : f32[4]\nparam \"h.*.w\"[2] : f32[4, 4]\n\n{body}");
        parse(&text, Default::default()).unwrap_or_else(|d| panic!("{:?}", d.sorted())).module
    }

    fn complaints(body: &str) -> Vec<String> {
        match verify(&module(body)) {
            Ok(_) => Vec::new(),
            Err(e) => e.list.into_iter().map(|(_, message)| message).collect(),
        }
    }

    #[test]
    fn every_operation_verifies() {
        let parsed = parse(include_str!("text/all.air"), Default::default()).unwrap();
        if let Err(e) = verify(&parsed.module) {
            panic!("{e}");
        }
    }

    #[test]
    fn errors_stand_under_their_lines() {
        let module = module(
            "func @f(%0 \"x\": f32[S, 4], %1 \"i\": i32[S]) -> (f32[S, 4]) {\n^bb0:\n  br_if %1, ^bb1(%0), ^bb2\n\
             ^bb1(%2: f32[S, 4]):\n  %3 = matmul %2, %2 : f32[S, 4]\n  %4 = param \"v\" : f32[4]\n  br ^bb2\n\
             ^bb2:\n  %5 = add %3, %2 : f32[S, 4]\n  %6 = fused map(%7 = %5) : f32[S, 4] {\n\
             \n    %8 = exp %7 : f32[T, 4]\n    %9 = reduce_sum %7, axes=[1], keep=true : f32[S, 1]\n    yield %8\n  }\n\
             \n  %10 = const 0.5 : f32[U]\n  return %6, %0\n}\n\nfunc @right() -> () {\n^bb0:\n  return\n}",
        );
        insta::with_settings!({
            snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/ir"),
            prepend_module_to_snapshot => false,
            omit_expression => true,
        }, {
            insta::assert_snapshot!("verify_errors", verify(&module).unwrap_err().to_string());
        });
    }

    #[test]
    fn broken_structures_are_found() {
        let good = "func @f(%0 \"x\": f32[4]) -> (f32[4]) {\n^bb0:\n  %1 = exp %0 : f32[4]\n  return %1\n}";
        assert!(complaints(good).is_empty());
        type Break = fn(&mut Function);
        let breaks: [(&str, Break); 8] = [
            ("1 arguments and 2 values", |f| {
                let entry = f.entry();
                f.add_block_arg(entry, Type::Index);
            }),
            ("no block", |f| f.layout.clear()),
            ("does not exist, or is in two blocks", |f| {
                let entry = f.entry();
                let i = f.block(entry).insts[0];
                f.block_mut(entry).insts.push(i);
            }),
            ("in the layout twice", |f| {
                let entry = f.entry();
                f.layout.push(entry);
            }),
            ("cannot be the target of a jump", |f| {
                let entry = f.entry();
                f.terminate(entry, Terminator::Br(crate::ir::BlockCall { block: entry, args: Vec::new() }));
            }),
            ("defined nowhere", |f| f.remove_insts(|_, _| true)),
            ("file that the module does not list", |f| {
                let i = f.block(f.entry()).insts[0];
                f.inst_mut(i).loc.file = 3;
            }),
            ("locations of other steps than its own", |f| {
                let i = f.block(f.entry()).insts[0];
                f.inst_mut(i).parts.push(crate::ir::Loc::default());
            }),
        ];
        for (wanted, change) in breaks {
            let mut m = module(good);
            change(&mut m.functions[0]);
            let errors = verify(&m).unwrap_err();
            assert!(errors.to_string().contains(wanted), "{wanted}: {errors}");
        }
    }

    #[test]
    fn regions_hold_what_their_kind_allows() {
        let region = |kind: &str, lines: &str| {
            let text = format!(
                "func @f(%0 \"x\": f32[S, 4], %1 \"w\": f32[4, S]) -> (f32[S, S]) {{\n^bb0:\n  \
                 %2 = fused {kind}(%3 = %0, %4 = %1) : f32[S, S] {{\n{lines}\n  }}\n  return %2\n}}"
            );
            complaints(&text).join("; ")
        };
        let product = "    %5 = matmul %3, %4 : f32[S, S]\n";
        assert_eq!(region("matmul", &format!("{product}    %6 = exp %5 : f32[S, S]\n    yield %6")), "");
        for (kind, lines, wanted) in [
            ("map", format!("{product}    yield %5"), "not allowed here in a map region"),
            ("rows", format!("{product}    yield %5"), "not allowed here in a rows region"),
            ("attention", format!("{product}    yield %5"), "must contain its operation once"),
            (
                "matmul",
                "    %6 = exp %3 : f32[S, 4]\n    %5 = matmul %6, %4 : f32[S, S]\n    yield %5".to_string(),
                "not allowed",
            ),
            ("matmul", format!("{product}    %6 = matmul %3, %4 : f32[S, S]\n    yield %6"), "not allowed"),
            ("matmul", format!("{product}    %6 = softmax %5, axis=1 : f32[S, S]\n    yield %6"), "not allowed"),
            ("rows", "    %5 = softmax %3, axis=0 : f32[S, 4]\n    yield %5".to_string(), "not allowed"),
            ("rows", "    %5 = reduce_sum %3, axes=[1] : f32[S]\n    yield %5".to_string(), "not allowed"),
            ("map", "    %5 = param \"w\" : f32[4]\n    yield %5".to_string(), "not allowed"),
            ("map", "    yield %3, %3".to_string(), "yields one value"),
        ] {
            let found = region(kind, &lines);
            assert!(found.contains(wanted), "{kind}: {found}");
        }
    }
}
