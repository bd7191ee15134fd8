//! Remarks on GPU kernels: the chosen variant of each, and why a matmul or an attention does not
//! use tensor cores.
//!
//! In: a module before and after scheduling for a GPU. Out: a line for each kernel, with its source
//! location. The reason most likely to be actionable comes first. It must not know how variants are
//! made.

use std::collections::BTreeSet;
use std::fmt;

use super::super::attention::{FEW_QUERIES, Whole, may_be_replaced, parts_in_runs};
use super::super::products::MatmulParts;
use super::super::tensor_cores::parts_of_keys;
use super::{candidates, long_rows, scans, transposes};
use crate::shape::Elem;
use crate::source::Loc;
use crate::tile::alignment::{CHUNK, launches_give};
use crate::tile::attention::{Described, KEYS, QUERIES, VALUES, is_part};
use crate::tile::kernels::{counterpart, place};
use crate::tile::matmul::{LEFT, RIGHT};
use crate::tile::{BufferType, GpuArch, GpuOp, Kernel, Machine, Module, Op, State};

/// Maximum head width of attention on tensor cores.
const WIDTH: i64 = 256;

/// The variant chosen for a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuForm {
    /// Name of the kernel.
    pub kernel: String,
    /// Its source location.
    pub loc: Loc,
    /// The GPU architecture.
    pub arch: GpuArch,
    /// A description of the variant.
    pub form: String,
    /// How an attention reads its keys in calls with few queries.
    pub keys: Option<String>,
    /// Why it does not use tensor cores, if it has a matmul.
    pub why: Option<String>,
}

impl fmt::Display for GpuForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{} at {}: {}", self.kernel, self.arch.name(), self.form)?;
        if let Some(keys) = &self.keys {
            write!(f, "; {keys}")?;
        }
        match &self.why {
            Some(why) => write!(f, "; not on tensor cores: {why}"),
            None => Ok(()),
        }
    }
}

/// The variants of the kernels of a module, in order.
pub fn gpu_forms(unscheduled: &Module, scheduled: &Module, arch: GpuArch) -> Vec<GpuForm> {
    let form = |k: &Kernel| {
        // Kernels that read packed weights have other parameters.
        let packed = || scheduled.kernels.iter().find(|new| new.name == k.name && new.loads_scaled());
        let new = counterpart(k, &scheduled.kernels).or_else(packed);
        // For a single query, for example, there may be only kernels for parts of the keys.
        let keys = parts_of_keys(unscheduled, k, arch).filter(|_| may_be_replaced(unscheduled, k));
        let part = || scheduled.kernels.iter().filter(|new| is_part(new, k)).find_map(on_tensor_cores);
        let of_cores = new.and_then(on_tensor_cores).or_else(|| keys.and_then(|_| part()));
        let why = if of_cores.is_some() { None } else { reason(unscheduled, k) };
        // An attention that was not expanded, because its result aliases an operand, for example.
        let one_by_one = Described::from_kernel(k).is_some() && !may_be_replaced(unscheduled, k);
        let form = of_cores.unwrap_or_else(|| match new.map(|new| new.state) {
            Some(State::Gpu { warps, .. }) => {
                let packed = if new.is_some_and(Kernel::loads_scaled) { ", which read packed weights" } else { "" };
                let keys = if one_by_one { ", one key after another" } else { "" };
                format!("elements are divided among the threads of {}{packed}{keys}", count(warps))
            }
            _ => "it became several kernels, whose elements are divided among threads".to_string(),
        });
        let ordered = scans::form(unscheduled, k).or_else(|| candidates::form(unscheduled, k));
        let form = ordered.unwrap_or(form);
        let form = match (long_rows::division(unscheduled, k), new) {
            (Some(division), Some(_)) => format!("{form}; {division}"),
            (Some(division), None) => division.to_string(),
            (None, _) => form,
        };
        let form = match new.and_then(|new| transposes::form(k, new)) {
            Some(turned) => format!("{form}; {turned}"),
            None => form,
        };
        let found = Described::from_kernel(k).filter(|_| !one_by_one);
        let in_runs = || parts_in_runs(k, found.as_ref()?, Machine::from(arch));
        let keys = keys.or_else(in_runs).map(of_few_queries);
        GpuForm { kernel: k.name.clone(), loc: place(k), arch, form, keys, why }
    };
    unscheduled.kernels.iter().filter(|k| k.state == State::Unscheduled).map(form).collect()
}

/// How calls with few queries read their keys.
fn of_few_queries(parts: Result<i64, Whole>) -> String {
    let why = match parts {
        Ok(parts) => return format!("calls of at most {FEW_QUERIES} queries divide their keys into {parts} parts"),
        Err(Whole::ManyQueries) => format!("there are more than {FEW_QUERIES} queries"),
        Err(Whole::AsManyKeys) => "there are as many as queries".to_string(),
        Err(Whole::EnoughBlocks) => "heads alone are work for all multiprocessors".to_string(),
        Err(Whole::FewKeys) => "there are too few".to_string(),
        Err(Whole::FewBytes) => "reading them takes less than another launch".to_string(),
    };
    format!("keys are not divided among blocks: {why}")
}

fn count(warps: u32) -> String {
    if warps == 1 { "1 warp".to_string() } else { format!("{warps} warps") }
}

/// A description of a kernel with fragments.
fn on_tensor_cores(k: &Kernel) -> Option<String> {
    let State::Gpu { warps, .. } = k.state else { return None };
    let has = |op: &dyn Fn(&Op) -> bool| k.body.insts().any(|(_, _, d)| op(&d.op));
    let (unit, copies) = if has(&|op| matches!(op, Op::Gpu(GpuOp::Wgmma { .. }))) {
        ("wgmma", "TMA")
    } else if has(&|op| matches!(op, Op::Gpu(GpuOp::Mma | GpuOp::MmaScaled { .. }))) {
        ("mma.sync", if has(&|op| matches!(op, Op::Gpu(GpuOp::CopyAsync { .. }))) { "cp.async" } else { "loads" })
    } else {
        return None;
    };
    let mut roles: Vec<(String, usize)> = Vec::new();
    for name in k.warp_names() {
        match roles.last_mut() {
            Some((last, n)) if *last == name => *n += 1,
            _ => roles.push((name, 1)),
        }
    }
    let roles: Vec<String> = roles.iter().map(|(name, n)| format!("{n} {name}")).collect();
    let roles = if roles.is_empty() { String::new() } else { format!(" ({})", roles.join(", ")) };
    let shared = k.scratch.div_ceil(1024);
    Some(format!("tensor cores by {unit}, tiles by {copies}, {}{roles}, {shared} KiB of shared memory", count(warps)))
}

/// Why a kernel with a matmul does not use tensor cores.
fn reason(module: &Module, k: &Kernel) -> Option<String> {
    let buffer = |n: usize| k.params.get(n).and_then(|p| k.body.ty(p.value).buffer());
    if Described::from_kernel(k).is_some() {
        let operands = [QUERIES, KEYS, VALUES];
        let wide = operands.iter().filter_map(|n| buffer(*n)?.shape.last()?.as_const()).find(|n| *n > WIDTH);
        let over = "its result is written over what it reads, or it is computed before all calls";
        let replaced = may_be_replaced(module, k);
        return (!replaced)
            .then(|| over.to_string())
            .or_else(|| of_operands(module, k, &operands))
            .or_else(|| wide.map(|n| format!("heads of {n} elements are wider than {WIDTH}")))
            .or_else(|| Some("its form of attention has none there".to_string()));
    }
    let dots = k.body.insts().filter(|(_, _, d)| matches!(d.op, Op::Dot { .. })).count();
    if dots == 0 {
        return None;
    }
    if MatmulParts::find(k).is_none() {
        return Some("it is not one product of two buffers with elementwise work on its result".to_string());
    }
    if let Some(why) = of_operands(module, k, &[LEFT, RIGHT]) {
        return Some(why);
    }
    let steps = buffer(LEFT).and_then(|b| b.shape.last()).map(|d| (d.as_const(), d.to_string()));
    if let Some((None, steps)) = steps {
        return Some(format!("the number of its steps, {steps}, is known only at run time"));
    }
    let [.., rows, cols] = k.grid.as_slice() else { return None };
    Some(format!("it has {} rows and {} columns, or an epilogue that has no form there", rows.extent, cols.extent))
}

/// Properties of operands that prevent tensor cores: types, row strides, alignment.
fn of_operands(module: &Module, k: &Kernel, operands: &[usize]) -> Option<String> {
    let all: Vec<(usize, &BufferType)> =
        operands.iter().filter_map(|n| Some((*n, k.body.ty(k.params.get(*n)?.value).buffer()?))).collect();
    let types: BTreeSet<&str> = all.iter().map(|(_, b)| b.elem.name()).collect();
    let names: Vec<&str> = types.iter().copied().collect();
    if types.len() > 1 || all.iter().any(|(_, b)| !matches!(b.elem, Elem::BF16 | Elem::F16)) {
        let exact = if types.contains("f32") { "; products of f32 stay exact" } else { "" };
        return Some(format!("operands of {}, where all must be bf16, or all f16{exact}", names.join(" and ")));
    }
    for (n, b) in &all {
        let size = i64::try_from(b.elem.size()).unwrap_or(1);
        let chunk = i64::try_from(CHUNK).unwrap_or(1) / size;
        let apart = b.neighbours().filter(|(_, d)| !d.is_multiple_of(chunk)).count();
        if apart > 1 || (apart == 1 && !(0..b.shape.len()).any(|axis| b.is_dense(axis))) {
            return Some(format!("rows of an operand ({}) are not a multiple of {CHUNK} bytes apart", shown(b)));
        }
        if !launches_give(module, &k.name, *n, CHUNK) {
            return Some(format!("an operand ({}) may not begin at a multiple of {CHUNK} bytes", shown(b)));
        }
    }
    None
}

fn shown(b: &BufferType) -> String {
    let shape: Vec<String> = b.shape.iter().map(ToString::to_string).collect();
    format!("{}[{}]", b.elem, shape.join(", "))
}
