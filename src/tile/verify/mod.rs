//! The verifier: the contract of the tile IR.
//!
//! In: any module. Out: [`Verified`], which back ends and the interpreter require, or all errors
//! found, each with the thing it is about; [`Errors`] prints them under the lines of the module's
//! text.
//!
//! # Checks, in this order
//!
//! For the module:
//! 1. Kernels have unique names; so have plans, plain and tapped ones separately. Parameters have
//!    unique names, and one extent for each `*` of the name.
//!
//! For each kernel and plan (`body`):
//! 2. Parameters of a kernel are buffers and indices, its grid indices are indices, all distinct;
//!    grid steps are at least 1.
//! 3. Every block is in the layout once, every instruction in one block or run; jumps go to blocks
//!    of the layout, never to the entry, which has no arguments. An instruction has a result
//!    exactly if its operation has one. (Rules 3, 4 and 7, which hold for the bodies of every IR,
//!    are checked by [`crate::ssa::verify`].)
//! 4. Every value that is used, by an operand, a jump, or as the bound of an extent in a type, is a
//!    parameter, or its definition dominates the use. Values in a run's registers are used only in
//!    that run, and the result of a reduction only after its run.
//! 5. Operands and result match the operation (`rules`).
//! 6. Static extents are positive, and others bounded by indices; buffers have a stride for each
//!    axis.
//! 7. Jumps pass as many values as the target has arguments, of the same types; conditions are
//!    scalars of `bool`.
//! 8. Operations occur only where the table permits. Dimensions use only the symbols of the kernel
//!    or plan.
//! 9. Sites exist in the module. Kernels do not write `in` parameters, nor read `out`
//!    parameters.
//!
//! For unscheduled kernels (`cpu`):
//! 10. No tile has a space; there are no runs. (Between steps of the schedule there may be windows,
//!     `dot`s with modes and `tiled` clauses, which are checked once the kernel is scheduled.)
//!     Results of `load_scaled`, `load_pairs` and `pair_rows` are only used as right operands of
//!     `dot`. A kernel with a description is equal to its expansion (`tile::compute`); no other
//!     kernel has one.
//!
//! For kernels scheduled for a CPU (`cpu`):
//! 11. Every tile has a space. In a run it is in registers or scratch; between runs there are only
//!     `dot`, `transpose`, `pair_rows`, `window`, `load_scaled` and `load_pairs`.
//! 12. The tiles of a run have its extents, or 1; operands of its stores and reductions have its
//!     extents. It reduces along rows or along columns, not both.
//! 13. Operands of `dot` are in scratch or windows; result and accumulator (which may be a scalar)
//!     are in scratch, possibly at the same offset, and the result does not overlap the other
//!     operands. It has a mode that its CPU has and its operands permit (`tile::dot`). Operand and
//!     result of `transpose` are in scratch and do not overlap; operand and result of `pair_rows`
//!     are in scratch.
//! 14. Scratch tiles are inside scratch, aligned to 64 bytes. Two that are live at the same time do
//!     not overlap. A result overlaps an operand only if both have the same offset and the
//!     extents of the run; `pair_rows`, which writes a pair after reading its rows, may have one
//!     more row. Padded rows are for GPUs, and only for tiles that runs define and use.
//! 15. A window is of a buffer that the kernel does not write; so are results of `load_scaled` and
//!     `load_pairs`.
//! 16. Operands in place that are narrower than their computation type (`bf16` windows,
//!     `load_scaled`, `load_pairs`, `pair_rows`) are only right operands of `dot`; a `bf16` window
//!     may be the left one if the right one is in pairs (`load_pairs`, `pair_rows`). A right
//!     operand in place with more than one column begins at its buffer's first column; the buffer
//!     has a constant number of contiguous columns, at least as many as the full vectors of the
//!     kernel's CPU that cover the tile.
//!
//! For kernels scheduled for a GPU in runs (`cpu`): rules 11 to 15 hold, with the block's shared
//! memory as scratch. The number of warps is a power of 2. There are no
//! pairs; results of `load_scaled` are only right operands of `dot`; float matmuls have the mode
//! `fma` or `split`, others `chain`; windows may have any type and layout.
//!
//! For other kernels scheduled for a GPU (`gpu`):
//! 17. Slots, pending tiles and groups are used exactly once on every path: groups are waited for
//!     in the order in which they were committed, and a wait leaves exactly `pending` later groups
//!     of its queue in flight.
//! 18. Fragments have a layout that suits the operation; matmul operands in shared memory are
//!     swizzled as the unit requires. Copies in 16-byte chunks have contiguous columns, and all
//!     other strides, and if threads copy, the first column, are multiples of a chunk. A shared
//!     memory tile is not read after its release; an operand of a matmul in flight is not released
//!     before its wait; a released slot is filled only after a barrier of the block.
//! 19. Registers written since the last fence are not read by a `wgmma`.
//! 20. Roles partition the warps of the block and share no basic block; barriers have offsets in
//!     shared memory that overlap nothing; rings are created before the warps diverge.
//!
//! For GPU kernels that launch others (`persistent`): rule 30.
//!
//! For plans (`plan`):
//! 21. Launches name a kernel of the module and pass its parameters: buffers of the same types,
//!     indices; the plan has the kernel's symbols. Buffers that a kernel of fragments copies in
//!     16-byte chunks, or writes in pairs, are aligned to that (`tile::alignment`). Slots and taps
//!     belong to the plan, parameters to the module and have its type.
//! 22. A module with a packed area has one plan that prepares it, which has neither dimensions nor
//!     arguments, results, taps and slots. A plan's buffers in the packed area are inside of it,
//!     aligned to 64 bytes, with constant strides; they are written only in the preparing plan, and
//!     read only in the others.
//! 23. Entry points (`entries`) have unique names, and a plain plan, and one that fills the taps if
//!     there are any; a plan with an entry point has its dimensions and taps, and its arguments and
//!     results are contiguous buffers of the declared types.
//!
//! For accesses (`bounds`), for all run-time values of the dimensions, in kernels that work in runs
//! or are not scheduled:
//! 24. All loads, stores and reads in place of a kernel are within the extents of its buffers.
//!     Extents only known at run time are between 0 and their bounds. A grid has no negative
//!     extent. Integers that are loaded are used as indices only after `check_index`.
//! 25. Every buffer of a plan is inside of its argument, result, parameter, tap, slot or packed
//!     area; one whose type exceeds its slot (panels, whose number the type can only bound by that
//!     of the rows) is passed only to kernels whose accesses end before that. Indices of parameters
//!     are in range, sizes of slots not negative; the packed area is no larger than its contents.
//! 26. A launch writes only results, taps, slots and, in the preparing plan, the packed area: no
//!     argument of the caller, and no parameter.
//! 27. A dimension with a divisor is an integer by the conditions of the entry point, or by checks
//!     where its dimensions are bound.
//! 28. A dimension bound by `length` is not a symbol of the plan, is bound in one place, and is
//!     used only where that dominates. Its value is proved to be from 0 to its upper bound, which
//!     is known on entry.
//! 29. An expression over dimensions has 64-bit coefficients. If it is not known whether its value
//!     fits 64 bits, each call checks that on entry ([`crate::tile::fits`]); for a dimension bound
//!     by `length`, the upper bound is used.
//!
//! 30. A kernel that launches others has a grid with one axis in steps of 1 whose index is not
//!     used, no tiles, and blocks whose arguments are indices; it accesses memory only by making
//!     views and loading scalars. The kernels that it launches work in runs, for the same GPU
//!     architecture, with no more warps and no more scratch, and receive what rule 21 requires.
//!     Rules 9 and 25 hold for its buffers, through views: it does not write `in` parameters.
//!
//! A module is rejected if a rule cannot be proved. A plan can make a rule provable with
//! `check_index`, which fails the call at run time: its checks on dimensions before its first
//! launch are assumed in its kernels too, and its checks on a dimension right after that is bound,
//! before the next launch, in kernels that use it.
//!
//! # Not checked
//!
//! Races inside buffers: that grid points write different elements, and that a launch does not read
//! elements that it writes; that memory is initialised before it is read (the interpreter checks
//! it); that loops terminate. Accesses of kernels of fragments, which omit elements out of bounds,
//! before the first element of an axis or beyond the last.

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
use super::text::{Anchor, ErrorLocation, Owner, print_with_anchors, with_names};
use super::{Kernel, Module, PlanVariant, State};

/// A module that passed the verifier.
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

/// An owned module that passed the verifier. It can only be changed in ways that are verified
/// ([`VerifiedModule::changed`]).
#[derive(Clone, Debug)]
pub struct VerifiedModule(Module);

impl VerifiedModule {
    /// Verifies a module and takes ownership.
    ///
    /// # Errors
    /// All violations.
    pub fn new(module: Module) -> Result<VerifiedModule, Errors> {
        check(&module, &Proofs::All).map(|()| VerifiedModule(module))
    }

    /// The form in which interpreters and back ends take it.
    pub fn verified(&self) -> Verified<'_> {
        Verified(&self.0)
    }

    /// The module itself.
    pub fn into_module(self) -> Module {
        self.0
    }

    /// Changes the module in a way that preserves accesses, except in the kernels whose names the
    /// change returns: for these, rule 24 is proved again, and if there are any, rules 25 to 27 of
    /// the plans. All other rules are checked again.
    ///
    /// # Errors
    /// The error of the change, or the violations after it; and the module in its current state.
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

/// Errors in a module.
pub type Errors = crate::irtext::Errors<Anchor>;

/// Collects errors, for one owner at a time.
struct Sink {
    owner: Owner,
    list: Vec<(Anchor, String)>,
}

impl Sink {
    fn error(&mut self, at: ErrorLocation, message: impl Into<String>) {
        self.list.push((Anchor { owner: self.owner, at }, message.into()));
    }
}

/// Verifies a module.
///
/// # Errors
/// All violations.
pub fn verify(module: &Module) -> Result<Verified<'_>, Errors> {
    check(module, &Proofs::All).map(|()| Verified(module))
}

/// Verifies a module after a change that preserves accesses, except in the named kernels.
///
/// # Errors
/// All violations.
pub(crate) fn recheck(module: &Module, changed: &BTreeSet<String>) -> Result<(), Errors> {
    check(module, &Proofs::Of(changed.clone()))
}

/// Verifies a module, except for rules 24 to 27.
///
/// # Errors
/// All other violations.
#[cfg(test)]
pub(crate) fn verify_form(module: &Module) -> Result<(), Errors> {
    check(module, &Proofs::Of(BTreeSet::new()))
}

/// For what accesses are proved to be in bounds.
enum Proofs {
    /// For everything.
    All,
    /// For the kernels with these names.
    Of(BTreeSet<String>),
}

fn check(module: &Module, proofs: &Proofs) -> Result<(), Errors> {
    let mut sink = Sink { owner: Owner::Module, list: Vec::new() };
    let mut names = BTreeSet::new();
    for p in &module.params {
        if p.name.is_empty() || !names.insert(&p.name) {
            sink.error(ErrorLocation::Head, format!("the parameter's name \"{}\" is empty or duplicate", p.name));
        }
        if p.name.matches('*').count() != p.counts.len() {
            sink.error(ErrorLocation::Head, format!("the parameter \"{}\" has not one extent for each `*`", p.name));
        }
    }
    let mut names = BTreeSet::new();
    for s in &module.states {
        if s.name.is_empty() || !names.insert(&s.name) {
            sink.error(ErrorLocation::Head, format!("the state's name \"{}\" is empty or duplicate", s.name));
        }
        let mut counts = s.ty.shape.iter().map(|d| d.as_const().and_then(|n| u64::try_from(n).ok()));
        let bytes = counts.try_fold(s.ty.elem.size(), |all, n| all.checked_mul(n?.max(1)));
        if bytes.is_none_or(|bytes| i64::try_from(bytes).is_err()) {
            let why = "has an extent that is not a number from 0 on, or is too large";
            sink.error(ErrorLocation::Head, format!("the state \"{}\" {why}", s.name));
        }
    }
    entries::module(module, &mut sink);
    let plans = bounds::Plans::new(module);
    let mut names = BTreeSet::new();
    for (i, k) in module.kernels.iter().enumerate() {
        sink.owner = Owner::Kernel(i);
        if k.name.is_empty() || !names.insert(&k.name) {
            sink.error(ErrorLocation::Head, format!("the kernel's name `{}` is empty or duplicate", k.name));
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
        sink.error(
            ErrorLocation::Head,
            "a module with a packed area has one plan that prepares it, and others have none",
        );
    }
    let mut names = BTreeSet::new();
    for (i, p) in module.plans.iter().enumerate() {
        sink.owner = Owner::Plan(i);
        if p.name.is_empty() || !names.insert((&p.name, p.variant)) {
            sink.error(ErrorLocation::Head, format!("the plan's name `{}` is empty or duplicate", p.name));
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

/// Verifies one kernel, for tests of stages that make kernels. Sites are not checked.
///
/// # Errors
/// All violations, each with the line that it is about.
pub fn verify_kernel(k: &Kernel) -> Result<(), Errors> {
    let module =
        Module { kernels: vec![k.clone()], sites: (0..1024).map(|i| i.to_string()).collect(), ..Module::default() };
    verify(&module).map(|_| ())
}

/// Verifies a kernel, including its accesses if the facts of plans are given.
fn kernel(module: &Module, k: &Kernel, plans: Option<&bounds::Plans<'_>>, sink: &mut Sink) {
    let before = sink.list.len();
    body::check(module, body::Unit::Kernel(k), sink);
    // If the structure is invalid, the checks that depend on it are skipped.
    if sink.list.len() != before {
        return;
    }
    if k.state != State::Unscheduled {
        if k.compute.is_some() {
            sink.error(ErrorLocation::Head, "a scheduled kernel has no description (`computes`)");
        }
        if k.tiled.is_some() {
            sink.error(ErrorLocation::Head, "a scheduled kernel has no decisions for its schedule (`tiled`)");
        }
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
        // First: rejects kernels that both launch others and have runs.
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
