//! The verifier: the contract of the tile IR.
//!
//! In: a module, from anywhere. Out: [`Verified`], which back ends and the interpreter require, or every error found, each with
//! what it is about; [`Errors`] prints them under the lines of the module's text.
//!
//! # What is checked, in this order
//!
//! Of the module:
//! 1. Kernels have names, each once; so have plans, plain and tapped apart. Parameters have names, each once, and one
//!    extent for each `*` of the name.
//!
//! Of each kernel and plan (`body`):
//! 2. Parameters of a kernel are buffers and indices, its grid's are indices, all different; steps are at least 1.
//! 3. Every block is in the layout once, every instruction in one block or run; jumps go to blocks of the layout, never to
//!    the entry, which has no arguments. An instruction has a result exactly if its operation gives one. (What holds of every
//!    IR's bodies, rules 3, 4 and 7, is checked by [`crate::ssa::verify`].)
//! 4. Every value that is used, by an operand, a jump, or as the bound of an extent in a type, is a parameter, or its
//!    definition dominates the use. What a run keeps in registers is used in that run alone, and the result of a
//!    reduction only after its run.
//! 5. Operands and result fit the operation (`rules`).
//! 6. Extents are positive where they are static, and bounded by indices; buffers have a stride for each axis.
//! 7. Jumps give as many values as the target has arguments, of the same types; conditions are scalars of `bool`.
//! 8. Operations stand where the table allows them. Dimensions use only the symbols of the kernel or plan.
//! 9. Sites are those of the module. Kernels do not write what they take as `in`, nor read what they take as `out`.
//!
//! Of unscheduled kernels (`cpu`):
//! 10. No tile has a space, no `dot` a mode; there are no runs. What `load_scaled`, `load_pairs` and `pair_rows` make is the right operand
//!     of `dot` alone. One with a description is what this expands to (`tile::compute`); no other kernel has one.
//!
//! Of kernels scheduled for a CPU (`cpu`):
//! 11. Every tile has a space. In a run it is in registers or scratch; between runs there are only `dot`, `transpose`,
//!     `pair_rows`, `window`, `load_scaled`, `load_pairs`, `dot_panels` and `full` in vector registers.
//! 12. The tiles of a run have its extents, or 1; what it stores and reduces has its extents. It reduces along one axis,
//!     rows or columns, not both.
//! 13. Operands of `dot` are in scratch or windows; result and accumulator (which may be a scalar) are in scratch, perhaps
//!     in one place, and the result does not overlap the other operands. It has a mode that its CPU has and its operands fit
//!     (`tile::dot`). Operand and result of `transpose` are in
//!     scratch and do not overlap; those of `pair_rows` are in scratch. `dot_panels` has its accumulator in vector registers
//!     of the processor's width; no more registers are taken at a time than there are.
//! 14. Tiles in scratch lie inside of it, aligned to 64 bytes. Two that are there at the same time do not overlap. What an
//!     operation makes overlaps what it reads only where both begin in one place and have the same extents, those of the
//!     run; `pair_rows`, which writes a pair when it has read its rows, may make a row more. Padded rows are for a GPU, and for what runs
//!     make and read.
//! 15. A window is of a buffer that the kernel does not write; so is what `load_scaled` and `load_pairs` make.
//! 16. What is narrower in place than what is computed (`bf16` windows, `load_scaled`, `load_pairs`, `pair_rows`) is the
//!     right operand of `dot` alone; a `bf16` window may be the left one where the right one is in pairs (`load_pairs`,
//!     `pair_rows`). A right operand in place of more than one column begins at its buffer's first column; the buffer has
//!     a known number of columns, side by side, and at least as many as the full vectors of the kernel's level that the
//!     tile takes.
//!
//! Of kernels scheduled for a GPU in runs (`cpu`): rules 11 to 15 hold, scratch being the block's shared memory. The number of warps is a power of 2. There are no vector registers and no
//! pairs; what `load_scaled` makes is the right operand of `dot` alone; products of floats have the mode `fma` or `split`, others
//! `chain`; windows may have any type and order.
//!
//! Of other kernels scheduled for a GPU (`gpu`):
//! 17. Slots, pending tiles and groups are used exactly once on every path: groups are waited for in the order in which they
//!     were committed, and a wait leaves exactly `pending` later groups of its queue in flight.
//! 18. Fragments have a layout that fits the operation; operands of products in shared memory are swizzled as the unit
//!     requires. What is copied in chunks of 16 bytes has its columns side by side and its other strides, and where threads copy
//!     it its first column, at multiples of a chunk. A tile of shared memory is not read after its release; what a product in flight reads is not released before
//!     its wait; a released slot is filled only after a barrier of the block.
//! 19. Registers that were written since the last fence are not read by a `wgmma`.
//! 20. Roles partition the warps of the block and share no basic block; barriers have places in shared memory that overlap
//!     nothing; rings are made before the warps diverge.
//!
//! Of kernels scheduled for a GPU that launch others (`persistent`): rule 30.
//!
//! Of plans (`plan`):
//! 21. Launches name a kernel of the module and give it its parameters: buffers of the same types, indices; the plan has
//!     the kernel's symbols. What a kernel of fragments copies by 16 bytes, or writes in pairs, begins at a multiple of that (`tile::alignment`). Slots and taps are those of the plan, parameters are those of the module with this type.
//! 22. A module with a packed area has one plan that prepares it, which has neither dimensions nor arguments, results, taps
//!     and slots. What a plan has of the packed area lies inside of it, at a multiple of 64 bytes, with strides that are
//!     known; it is written in the plan that prepares it alone, and read in the others alone.
//! 23. Entry points (`entries`) have names, each once, and a plain plan, and one that fills the taps if there are any; a plan
//!     with an entry point has its dimensions and taps, and takes and gives contiguous buffers of the declared types.
//!
//! Of accesses (`bounds`), for all values that the dimensions can have at run time, in kernels that work in runs or are not scheduled:
//! 24. Whatever a kernel loads, stores or reads in place lies within the extents of its buffer. Extents that are known at run
//!     time alone are between 0 and their bounds. A grid has no negative extent. Numbers that are loaded are indices only after
//!     `check_index`.
//! 25. Every buffer of a plan lies inside of its argument, result, parameter, tap, slot or packed area; one whose type
//!     reaches beyond the end of its slot (panels, of which a type can only say that they are no more than the rows) is
//!     launched only with kernels whose accesses end before that. Indices of parameters are in range, sizes of slots not
//!     negative; the packed area is no larger than what lies in it.
//! 26. A launch writes results, taps, slots and, in the plan that prepares it, the packed area alone: no argument of the
//!     caller's, and no parameter.
//! 27. A dimension with a divisor is an integer by the conditions of the entry point, or by what is checked where its dimensions
//!     have their values.
//! 28. A dimension that `length` gives its value is no symbol of the plan, has its value in one place, and is named only in
//!     what that place dominates. Its value is proved to be from 0 to what it is at most, which is known on entry.
//!
//! 29. A form of dimensions has coefficients of 64 bits. Whether its value has, each call checks on entry where it is not known
//!     ([`crate::tile::fits`]); of one that names a length, what it can be at most is known there.
//!
//! 30. A kernel that launches others has a grid of one axis in steps of 1 whose index is not used, no tiles, and blocks that take indices;
//!     of memory it makes windows and loads scalars alone. What it launches works in runs, for the same kind of GPU, by no more warps
//!     and with no more scratch, and gets what rule 21 says. Rules 9 and 25 hold of its buffers, through windows: it does not write what
//!     it takes as `in`.
//!
//! What cannot be proved is rejected. A plan can make it provable by `check_index`, an error of the call where it fails: what it
//! checks of dimensions before its first launch is known in its kernels too, and what it checks of a dimension right after that
//! has its value, before the next launch, in those that name it.
//!
//! # What is not checked
//!
//! That grid points write different elements, and that a launch does not read what it writes (a race, inside of the buffers);
//! that what is read was written before (the interpreter checks it); that loops end. Accesses of kernels of fragments, which leave
//! out what is outside, before the first element of an axis or beyond the last.

mod body;
mod bounds;
mod cpu;
mod entries;
mod gpu;
mod persistent;
mod plan;

use std::collections::BTreeSet;
use std::ops::Deref;

use super::compute::difference;
use super::text::{Anchor, At, Owner, print_with_anchors, with_names};
use super::{Kernel, Module, PlanVariant, State};

/// A module that the verifier found right.
#[derive(Clone, Copy, Debug)]
pub struct Verified<'a>(&'a Module);

impl<'a> Verified<'a> {
    /// The module, for as long as it is borrowed.
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

/// A module with the proof that the verifier found it right. Nobody changes it, but for what keeps the proof
/// ([`VerifiedModule::changed`]).
#[derive(Clone, Debug)]
pub struct VerifiedModule(Module);

impl VerifiedModule {
    /// Checks a module and keeps it.
    ///
    /// # Errors
    /// Every invariant that does not hold.
    pub fn new(module: Module) -> Result<VerifiedModule, Errors> {
        check(&module, &Proofs::All).map(|()| VerifiedModule(module))
    }

    /// The module as interpreters and back ends take it.
    pub fn verified(&self) -> Verified<'_> {
        Verified(&self.0)
    }

    /// The module alone.
    pub fn into_module(self) -> Module {
        self.0
    }

    /// Changes the module in a way that keeps accesses as they were, but for those of the kernels whose names the change gives:
    /// of these, rule 24 is proved again, and if there are any, rules 25 to 27 of the plans. All others are checked again.
    ///
    /// # Errors
    /// What the change complains of, or the invariants that do not hold after it; and the module as it was left.
    pub fn changed(
        mut self,
        change: impl FnOnce(&mut Module) -> Result<BTreeSet<String>, String>,
    ) -> Result<VerifiedModule, (Box<Module>, String)> {
        let changed = change(&mut self.0)
            .and_then(|names| check(&self.0, &Proofs::Of(names)).map_err(|errors| errors.to_string()));
        match changed {
            Ok(()) => Ok(self),
            Err(complaint) => Err((Box::new(self.0), complaint)),
        }
    }
}

impl Deref for VerifiedModule {
    type Target = Module;

    fn deref(&self) -> &Module {
        &self.0
    }
}

/// What is wrong with a module.
pub type Errors = crate::irtext::Errors<Anchor>;

/// Errors as they are found, of one owner at a time.
struct Sink {
    owner: Owner,
    list: Vec<(Anchor, String)>,
}

impl Sink {
    fn error(&mut self, at: At, message: impl Into<String>) {
        self.list.push((Anchor { owner: self.owner, at }, message.into()));
    }
}

/// Checks a module.
///
/// # Errors
/// Every invariant that does not hold.
pub fn verify(module: &Module) -> Result<Verified<'_>, Errors> {
    check(module, &Proofs::All).map(|()| Verified(module))
}

/// Checks a module but for rules 24 to 27.
///
/// # Errors
/// Every other invariant that does not hold.
#[cfg(test)]
pub(crate) fn verify_form(module: &Module) -> Result<(), Errors> {
    check(module, &Proofs::Of(BTreeSet::new()))
}

/// Of what it is proved that accesses are in bounds.
enum Proofs {
    /// Of everything.
    All,
    /// Of the kernels of these names.
    Of(BTreeSet<String>),
}

fn check(module: &Module, proofs: &Proofs) -> Result<(), Errors> {
    let mut sink = Sink { owner: Owner::Module, list: Vec::new() };
    let mut names = BTreeSet::new();
    for p in &module.params {
        if p.name.is_empty() || !names.insert(&p.name) {
            sink.error(At::Head, format!("the parameter's name \"{}\" is empty or duplicate", p.name));
        }
        if p.name.matches('*').count() != p.counts.len() {
            sink.error(At::Head, format!("the parameter \"{}\" has not one extent for each `*`", p.name));
        }
    }
    let mut names = BTreeSet::new();
    for s in &module.states {
        if s.name.is_empty() || !names.insert(&s.name) {
            sink.error(At::Head, format!("the state's name \"{}\" is empty or duplicate", s.name));
        }
        let mut counts = s.ty.shape.iter().map(|d| d.as_const().and_then(|n| u64::try_from(n).ok()));
        let bytes = counts.try_fold(s.ty.elem.size(), |all, n| all.checked_mul(n?.max(1)));
        if bytes.is_none_or(|bytes| i64::try_from(bytes).is_err()) {
            let why = "has an extent that is not a number from 0 on, or is too large";
            sink.error(At::Head, format!("the state \"{}\" {why}", s.name));
        }
    }
    entries::module(module, &mut sink);
    let plans = bounds::Plans::new(module);
    let mut names = BTreeSet::new();
    for (i, k) in module.kernels.iter().enumerate() {
        sink.owner = Owner::Kernel(i);
        if k.name.is_empty() || !names.insert(&k.name) {
            sink.error(At::Head, format!("the kernel's name `{}` is empty or duplicate", k.name));
        }
        let accesses = match proofs {
            Proofs::All => true,
            Proofs::Of(names) => names.contains(&k.name),
        };
        kernel(module, k, accesses.then_some(&plans), &mut sink);
    }
    plan::packed_area(module, &mut sink);
    if module.plans.iter().filter(|p| p.variant == PlanVariant::Prepare).count() != usize::from(module.packed > 0) {
        sink.owner = Owner::Module;
        sink.error(At::Head, "a module with a packed area has one plan that prepares it, and others have none");
    }
    let mut names = BTreeSet::new();
    for (i, p) in module.plans.iter().enumerate() {
        sink.owner = Owner::Plan(i);
        if p.name.is_empty() || !names.insert((&p.name, p.variant)) {
            sink.error(At::Head, format!("the plan's name `{}` is empty or duplicate", p.name));
        }
        let before = sink.list.len();
        body::check(module, body::Unit::Plan(p), &mut sink);
        if sink.list.len() == before {
            plan::check(module, p, &mut sink);
            let proved = match proofs {
                Proofs::All => true,
                Proofs::Of(names) => !names.is_empty(),
            };
            if proved && sink.list.len() == before {
                bounds::plan(module, p, &mut sink);
            }
            let entry = module.entries.iter().find(|e| e.name == p.name && p.variant != PlanVariant::Prepare);
            if let Some(e) = entry {
                entries::plan(e, p, &mut sink);
            }
        }
    }
    result(module, sink)
}

fn result(module: &Module, sink: Sink) -> Result<(), Errors> {
    if sink.list.is_empty() {
        return Ok(());
    }
    let list: Vec<(Anchor, String)> =
        sink.list.into_iter().map(|(a, m)| (a, with_names(&m, a.owner, module))).collect();
    Err(Errors::new(list, &print_with_anchors(module), Owner::Module, |a| a.owner))
}

/// Checks one kernel, for tests of stages that make kernels. Sites are not looked at.
///
/// # Errors
/// Every invariant that does not hold, each with the line that it is about.
pub fn verify_kernel(k: &Kernel) -> Result<(), Errors> {
    let module =
        Module { kernels: vec![k.clone()], sites: (0..1024).map(|i| i.to_string()).collect(), ..Module::default() };
    verify(&module).map(|_| ())
}

/// Checks a kernel, and its accesses if it is given what the plans know.
fn kernel(module: &Module, k: &Kernel, plans: Option<&bounds::Plans<'_>>, sink: &mut Sink) {
    let before = sink.list.len();
    body::check(module, body::Unit::Kernel(k), sink);
    // Where the structure is broken, the checks that rely on it are skipped.
    if sink.list.len() != before {
        return;
    }
    if k.compute.is_some() && k.state != State::Unscheduled {
        sink.error(At::Head, "a scheduled kernel has no description (`computes`)");
    }
    match k.state {
        State::Unscheduled => {
            cpu::unscheduled(k, sink);
            if sink.list.len() == before
                && let Some((at, message)) = difference(k)
            {
                sink.error(at, message);
            }
        }
        State::Cpu(level) => cpu::scheduled(k, level, sink),
        // First: what launches others and has runs besides is refused.
        State::Gpu { arch, warps } if k.is_persistent() => persistent::check(module, k, (arch, warps), sink),
        State::Gpu { warps, .. } if k.works_in_runs() => {
            gpu::block_of_runs(warps, sink);
            cpu::scheduled_in_blocks(k, sink);
        }
        State::Gpu { arch, warps } => return gpu::scheduled(k, arch, warps, sink),
    }
    if let Some(plans) = plans.filter(|_| sink.list.len() == before) {
        bounds::kernel(plans, k, sink);
    }
}
