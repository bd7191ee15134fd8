//! Kernels, plans and the module that holds them.

use std::collections::{BTreeMap, BTreeSet};

use super::description::Compute;
use super::{Body, BufferType, Cpu, GpuOp, Inst, Op, PlanOp, Space, Terminator, Type, Value};
use crate::interface::{EntryDecl, Interface, ParamDecl, StateDecl};
use crate::shape::Dim;
use crate::source::Loc;

/// How a kernel accesses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParamMode {
    /// Reads it.
    In,
    /// Writes it.
    Out,
    /// Reads and writes it, each element by the grid point that owns it.
    InOut,
}

/// A parameter of a kernel: a buffer, or an index (`In`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its value, whose type is a buffer or an index.
    pub value: Value,
    /// How the kernel accesses it.
    pub mode: ParamMode,
    /// For GPU kernels with runs: is the buffer aligned to 16 bytes, so that neighbouring elements
    /// can be accessed together?
    pub aligned: bool,
}

impl Param {
    /// A parameter without known alignment.
    pub fn new(value: Value, mode: ParamMode) -> Param {
        Param { value, mode, aligned: false }
    }
}

/// An axis of the grid: `ceil(extent / step)` points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridAxis {
    /// The index of the grid point along this axis, from 0.
    pub value: Value,
    /// The number of elements that are divided among the grid points.
    pub extent: Dim,
    /// Elements per grid point, at least 1.
    pub step: i64,
}

/// GPU architectures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GpuArch {
    /// Ampere and later: `cp.async`, `ldmatrix`, `mma.sync`.
    Sm80,
    /// Hopper: tensor memory accelerator, barriers in memory, `wgmma`.
    Sm90a,
}

impl GpuArch {
    /// All architectures, oldest first.
    pub const ALL: [GpuArch; 2] = [GpuArch::Sm80, GpuArch::Sm90a];

    /// Name in the IR text.
    pub fn name(self) -> &'static str {
        match self {
            GpuArch::Sm80 => "sm_80",
            GpuArch::Sm90a => "sm_90a",
        }
    }
}

/// The target that a kernel is scheduled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Not scheduled: tiles are values that have no memory assigned.
    Unscheduled,
    /// A CPU.
    Cpu(Cpu),
    /// A GPU; `Kernel::scratch` is the shared memory of a block.
    Gpu {
        /// The architecture.
        arch: GpuArch,
        /// Warps per block.
        warps: u32,
    },
}

/// The code of one fused region.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Name, unique in the module: `matmul.3`.
    pub name: String,
    /// Names of the run-time dimensions that occur in it, sorted.
    pub symbols: Vec<String>,
    /// Parameters, in order.
    pub params: Vec<Param>,
    /// Axes of the grid, the last one going fastest. No axes: one grid point.
    pub grid: Vec<GridAxis>,
    /// Bytes of scratch per worker (on a GPU: of shared memory per block); 0 until it is scheduled.
    pub scratch: u64,
    /// The target that it is scheduled for.
    pub state: State,
    /// The description that its loops were expanded from, if it has one and is unscheduled.
    pub compute: Option<Compute>,
    /// The decisions of the schedule for a GPU about its tiles, between two of its steps.
    pub tiled: Option<Tiled>,
    /// The code of a grid point.
    pub body: Body,
}

/// Decisions of the schedule's step `size-tiles` about an unscheduled kernel, whose tiles have
/// their final sizes: the step `place` reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tiled {
    /// Warps per block, if not derived from the work.
    pub warps: Option<u32>,
    /// Do not duplicate a load that several runs use.
    pub loads_once: bool,
    /// Loads and stores in runs of their own. Other runs find the tiles of these loads in scratch,
    /// with padded rows, and write the tiles of these stores there.
    pub apart: BTreeSet<Inst>,
}

impl Kernel {
    /// The type of the parameter with this index, if it is a buffer.
    pub(crate) fn buffer_type(&self, n: usize) -> Option<&BufferType> {
        self.body.ty(self.params.get(n)?.value).buffer()
    }

    /// The types of its parameters, if all are buffers.
    pub(crate) fn buffer_types(&self) -> Option<Vec<BufferType>> {
        self.params.iter().map(|p| self.body.ty(p.value).buffer().cloned()).collect()
    }

    /// Sets `symbols` to the names of all run-time dimensions that occur in it.
    pub(crate) fn find_symbols(&mut self) {
        let mut names: Vec<String> = Vec::new();
        let mut add = |d: &Dim| names.extend(d.symbols().iter().map(|s| s.to_string()));
        self.grid.iter().for_each(|g| add(&g.extent));
        for p in &self.params {
            if let Type::Buffer(b) = self.body.ty(p.value) {
                b.shape.iter().chain(&b.strides).for_each(&mut add);
            }
        }
        for (_, _, data) in self.body.insts() {
            data.op.dims().into_iter().for_each(&mut add);
            if let Some(Type::Buffer(b)) = data.result.map(|v| self.body.ty(v)) {
                b.shape.iter().chain(&b.strides).for_each(&mut add);
            }
        }
        names.sort();
        names.dedup();
        self.symbols = names;
    }

    /// Does it launch other kernels? Such a kernel executes part of a plan on the GPU. It is
    /// launched with as many blocks as can be resident at a time, and these divide the grid points
    /// of each kernel that it launches among themselves.
    pub fn is_persistent(&self) -> bool {
        self.launched().next().is_some()
    }

    /// The names of the kernels that it launches, one for each launch instruction.
    pub fn launched(&self) -> impl Iterator<Item = &str> {
        launched(&self.body)
    }

    /// Does it work in runs? All CPU kernels do, and GPU kernels whose tiles are not fragments.
    pub fn works_in_runs(&self) -> bool {
        let in_place =
            |v| self.body.ty(v).tile().is_some_and(|t| matches!(t.space, Space::Reg | Space::L1(..) | Space::Window));
        match self.state {
            State::Unscheduled => false,
            State::Cpu(_) => true,
            State::Gpu { .. } => {
                let tiles = self.body.insts().filter_map(|(_, _, d)| d.result);
                let args = self.body.layout.iter().flat_map(|b| self.body.block(*b).args.iter().copied());
                let is_run = |(_, _, d): (_, _, &super::InstData)| matches!(d.op, Op::Run { .. });
                self.body.insts().any(is_run) || tiles.chain(args).any(in_place)
            }
        }
    }

    /// The role of each warp of a block; empty if all warps run the same code.
    pub fn warp_names(&self) -> Vec<String> {
        let roles = self.body.layout.iter().find_map(|b| match &self.body.block(*b).terminator {
            Terminator::Roles(roles) => Some(roles),
            _ => None,
        });
        let names = roles.into_iter().flatten().flat_map(|r| (0..r.warps).map(|_| r.name.clone()));
        names.collect()
    }

    /// Does it read quantised weights (integers with scales)?
    pub fn loads_scaled(&self) -> bool {
        self.body.insts().any(|(_, _, d)| matches!(d.op, Op::LoadScaled { .. } | Op::Gpu(GpuOp::MmaScaled { .. })))
    }
}

/// A temporary buffer in the arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotData {
    /// Its size in bytes. Slots follow each other, each start rounded up to 64 bytes.
    pub bytes: Dim,
}

/// The variant of an entry point that a plan implements, or parameter preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PlanVariant {
    /// Computes the results only.
    Plain,
    /// Computes the results and fills the taps.
    Tapped,
    /// Not an entry point: runs once, after the parameters are loaded, and fills the packed area.
    Prepare,
}

impl PlanVariant {
    /// Suffix of a plan's name in symbols and on the command line.
    pub fn suffix(self) -> &'static str {
        match self {
            PlanVariant::Plain => "",
            PlanVariant::Tapped => ".tapped",
            PlanVariant::Prepare => ".prepare",
        }
    }
}

/// The host program of an entry point, or of the preparation before the first call.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the entry point.
    pub name: String,
    /// The variant of the entry point.
    pub variant: PlanVariant,
    /// Names of the entry's run-time dimensions, sorted: the order of the context's `dims`.
    pub symbols: Vec<String>,
    /// Names of the taps, in the order of the context's `taps`.
    pub taps: Vec<String>,
    /// Temporary buffers in the arena, in order.
    pub slots: Vec<SlotData>,
    /// The host code.
    pub body: Body,
}

impl Plan {
    /// The dimensions that are bound while it runs, with their maxima.
    pub fn lengths(&self) -> impl Iterator<Item = (&str, &Dim)> {
        self.body.insts().filter_map(|(_, _, d)| match &d.op {
            Op::Length { name, most } => Some((name.as_str(), most)),
            _ => None,
        })
    }

    /// Has it a dimension of this name?
    pub fn has_dim(&self, name: &str) -> bool {
        self.symbols.iter().any(|s| s == name) || self.lengths().any(|(own, _)| own == name)
    }

    /// The names of the kernels that it launches.
    pub fn launched(&self) -> BTreeSet<&str> {
        launched(&self.body).collect()
    }

    /// The names of the kernels that it launches, directly or from persistent kernels.
    pub fn reached<'a>(&'a self, kernels: &'a [Kernel]) -> BTreeSet<&'a str> {
        let mut names = self.launched();
        let persistent = kernels.iter().filter(|k| names.contains(k.name.as_str())).collect::<Vec<_>>();
        names.extend(persistent.into_iter().flat_map(Kernel::launched));
        names
    }
}

/// The names of the kernels that a body launches.
fn launched(body: &Body) -> impl Iterator<Item = &str> {
    body.insts().filter_map(|(_, _, d)| match &d.op {
        Op::Plan(PlanOp::Launch { kernel }) => Some(kernel.as_str()),
        _ => None,
    })
}

/// A compilation unit: the kernels and plans of a model, with its interface.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// Base name of the source file.
    pub name: String,
    /// The other source files: a location's file number `n >= 1` is `files[n - 1]`.
    pub files: Vec<String>,
    /// Name of the model; empty if the IR text has none.
    pub model: String,
    /// Documentation of the model.
    pub doc: String,
    /// The entry points as callers see them; each has a plan.
    pub entries: Vec<EntryDecl>,
    /// Parameters, in order of name: the order of the context's `params`.
    pub params: Vec<ParamDecl>,
    /// Tensors that a session keeps, in the order of the context's `states`.
    pub states: Vec<StateDecl>,
    /// Messages of run-time errors; `{0}` is the index and `{1}` its bound.
    pub sites: Vec<String>,
    /// Bytes of the packed area: parameters in the order in which kernels read them.
    pub packed: u64,
    /// The last step of the schedule that has run, if others are to follow.
    pub scheduled: Option<String>,
    /// The unscheduled kernels that scheduled ones come from, by the names of the latter. Not in
    /// the text: only costs read it.
    pub origins: BTreeMap<String, Origin>,
    /// Kernels, in the order in which they were added; names are unique.
    pub kernels: Vec<Kernel>,
    /// Plans: one or two per entry point, and the preparation.
    pub plans: Vec<Plan>,
}

/// How a scheduled kernel comes from an unscheduled one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It computes the same from the same parameters as the kernel of this name.
    Whole(String),
    /// It computes a part of the keys of the attention of this name; all parts together multiply as
    /// much as that.
    Part(String),
}

/// A kernel or a plan, by its index in the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelOrPlan {
    /// Index into `Module::kernels`.
    Kernel(usize),
    /// Index into `Module::plans`.
    Plan(usize),
}

impl Module {
    /// The interface that callers see.
    pub fn interface(&self) -> Interface<'_> {
        let entries = self.entries.as_slice().into();
        Interface { params: &self.params, states: &self.states, entries, file: &self.name, files: &self.files }
    }

    /// The base name of the file of a location.
    pub fn file(&self, loc: Loc) -> &str {
        loc.file_name(&self.name, &self.files)
    }

    /// The kernels with a GPU entry point of their own: all except the ones launched only by other
    /// kernels.
    pub fn entry_kernels(&self) -> impl Iterator<Item = &Kernel> {
        let inner: BTreeSet<&str> = self.kernels.iter().flat_map(Kernel::launched).collect();
        let of_plans: BTreeSet<&str> = self.plans.iter().flat_map(Plan::launched).collect();
        let is_entry = move |name: &str| of_plans.contains(name) || !inner.contains(name);
        self.kernels.iter().filter(move |k| is_entry(&k.name))
    }

    /// The names of all kernels and plans, by which [`Module::part`] finds them.
    pub fn part_names(&self) -> Vec<String> {
        let plans = self.plans.iter().map(|p| format!("{}{}", p.name, p.variant.suffix()));
        self.kernels.iter().map(|k| k.name.clone()).chain(plans).collect()
    }

    /// The kernel or plan with this name. A kernel hides a plan of the same name.
    pub fn part(&self, name: &str) -> Option<KernelOrPlan> {
        let place = self.part_names().iter().position(|other| other == name)?;
        let kernels = self.kernels.len();
        Some(if place < kernels { KernelOrPlan::Kernel(place) } else { KernelOrPlan::Plan(place - kernels) })
    }
}
