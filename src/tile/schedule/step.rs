//! The signature of the steps of the schedule, and their context.
//!
//! In: the options of the schedule. Out: types that each step uses. It must not know any step.

use std::collections::{BTreeMap, BTreeSet};

use super::formats::WeightChoice;
use crate::source::Loc;
use crate::tile::kernels::place;
use crate::tile::{Kernel, Machine, Module, Origin, ParamMode, State, Type};

/// The names of kernels whose accesses changed: these are proved again to stay in bounds.
pub(super) type Changed = BTreeSet<String>;

/// Options of a schedule: what it may reduce in precision, and what it tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduleOptions {
    /// Format of weights: if narrower than in the program, they are packed once for all calls
    /// (`panels`).
    pub weights: WeightChoice,
    /// May operands of `f32` matmuls on a GPU be rounded to `tf32`, for tensor cores?
    pub tf32: bool,
    /// Are remarks wanted that take time to make?
    pub remarks: bool,
}

/// The decisions of the steps about a kernel or a loop of the unscheduled module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Its source location.
    pub loc: Loc,
    /// The kernel or loop, the machine, and the decisions, the last one first.
    pub text: String,
}

/// For the name of a kernel, the names of the kernels that compute the same from now on.
pub(super) type Replacements = BTreeMap<String, Vec<String>>;

/// Context of a step: options, and the remarks so far.
pub(super) struct Log<'a> {
    pub(super) options: &'a ScheduleOptions,
    machine: String,
    kernels: Vec<KernelRemarks>,
    loops: Vec<Remark>,
}

/// The remarks on a kernel of the unscheduled module.
struct KernelRemarks {
    name: String,
    loc: Loc,
    /// Its parameters.
    params: Vec<(Type, ParamMode)>,
    /// The kernels that compute the same now; none if several share its work.
    now: Vec<String>,
    /// New kernels that compute the same in some calls, or a part of an attention's keys.
    in_some_calls: Vec<String>,
    of_keys: Vec<String>,
    /// How it is computed.
    form: Option<String>,
    /// Further decisions, in order.
    notes: Vec<String>,
}

impl<'a> Log<'a> {
    /// A log without remarks, for the unscheduled kernels of a module.
    pub(super) fn new(options: &'a ScheduleOptions, module: &Module, machine: &Machine) -> Log<'a> {
        let open = module.kernels.iter().filter(|k| k.state == State::Unscheduled);
        let kernels = open.map(|k| KernelRemarks {
            name: k.name.clone(),
            loc: place(k),
            params: params(k),
            now: vec![k.name.clone()],
            in_some_calls: Vec::new(),
            of_keys: Vec::new(),
            form: None,
            notes: Vec::new(),
        });
        Log { options, machine: machine.name(), kernels: kernels.collect(), loops: Vec::new() }
    }

    fn entries(&mut self, kernel: &str) -> impl Iterator<Item = &mut KernelRemarks> {
        self.kernels.iter_mut().filter(move |k| k.now.iter().any(|name| name == kernel))
    }

    /// Remarks how a kernel is computed, unless that was decided before.
    pub(super) fn form(&mut self, kernel: &str, form: &str) {
        self.entries(kernel).for_each(|k| _ = k.form.get_or_insert_with(|| form.to_string()));
    }

    /// Was it decided how a kernel is computed?
    pub(super) fn has_form(&mut self, kernel: &str) -> bool {
        self.entries(kernel).any(|k| k.form.is_some())
    }

    /// Remarks on another decision about a kernel.
    pub(super) fn note(&mut self, kernel: &str, note: &str) {
        self.entries(kernel).for_each(|k| k.notes.push(note.to_string()));
    }

    /// Remarks on a loop of a plan.
    pub(super) fn on_loop(&mut self, plan: &str, loc: Loc, text: &str) {
        let text = format!("the loop of {plan} at {}: {text}", self.machine);
        self.loops.push(Remark { loc, text });
    }

    /// Follows kernels to their replacements.
    pub(super) fn replaced(&mut self, names: &Replacements) {
        for k in &mut self.kernels {
            let old = std::mem::take(&mut k.now);
            k.now = old.into_iter().flat_map(|name| names.get(&name).cloned().unwrap_or_else(|| vec![name])).collect();
        }
    }

    /// Notes new kernels that compute the same as one in some calls, or a part of an attention's
    /// keys.
    pub(super) fn made(&mut self, kernel: &str, in_some_calls: &[String], of_keys: &[String]) {
        for k in self.entries(kernel) {
            k.in_some_calls.extend_from_slice(in_some_calls);
            k.of_keys.extend_from_slice(of_keys);
        }
    }

    /// The unscheduled kernels that a module's kernels come from.
    pub(super) fn origins(&self, module: &Module) -> BTreeMap<String, Origin> {
        let mut origins = BTreeMap::new();
        for k in &self.kernels {
            // Packed operands, for instance, are other parameters.
            let is_same =
                |name: &&String| module.kernels.iter().any(|new| new.name == **name && params(new) == k.params);
            for name in k.now.iter().chain(&k.in_some_calls).filter(is_same) {
                origins.entry(name.clone()).or_insert_with(|| Origin::Whole(k.name.clone()));
            }
            for name in &k.of_keys {
                origins.entry(name.clone()).or_insert_with(|| Origin::Part(k.name.clone()));
            }
        }
        origins
    }

    /// Forgets the names of kernels that are gone, before others get them.
    pub(super) fn forget(&mut self, module: &Module) {
        let names: BTreeSet<&str> = module.kernels.iter().map(|k| k.name.as_str()).collect();
        for k in &mut self.kernels {
            for list in [&mut k.now, &mut k.in_some_calls, &mut k.of_keys] {
                list.retain(|name| names.contains(name.as_str()));
            }
        }
    }

    /// The remarks, those on kernels first.
    pub(super) fn finish(self) -> Vec<Remark> {
        let of_kernel = |k: KernelRemarks| {
            let parts: Vec<String> = k.form.into_iter().chain(k.notes.into_iter().rev()).collect();
            let text = format!("@{} at {}: {}", k.name, self.machine, parts.join("; "));
            (!parts.is_empty()).then_some(Remark { loc: k.loc, text })
        };
        self.kernels.into_iter().filter_map(of_kernel).chain(self.loops).collect()
    }
}

/// The types of a kernel's parameters, and how it accesses them.
fn params(k: &Kernel) -> Vec<(Type, ParamMode)> {
    k.params.iter().map(|p| (k.body.ty(p.value).clone(), p.mode)).collect()
}

/// A step: name, summary and function.
#[derive(Clone, Copy)]
pub struct Step {
    /// Name on the command line and in dumps. Steps of both tables with one name are one function.
    pub name: &'static str,
    /// One line for `attnc list passes`.
    pub summary: &'static str,
    /// Is there no code without it? Then `--bisect-limit` does not count it.
    pub required: bool,
    pub(super) run: fn(&mut Module, &Machine, &mut Log<'_>) -> Result<Changed, String>,
}

/// The kernels that are not scheduled yet.
pub(super) fn unscheduled(module: &mut Module) -> impl Iterator<Item = &mut Kernel> {
    module.kernels.iter_mut().filter(|k| k.state == State::Unscheduled)
}
