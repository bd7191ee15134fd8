//! The record of a compilation (`--emit record`, `--emit html`): what the driver hands over of each
//! stage.
//!
//! In: a session whose record was begun, and the result of a stage. Out: the record in the session,
//! and at the end its files. Without one of these outputs every function returns at once.

use super::outputs::Outputs;
use super::session::{CommandError, Session};
use crate::bench::{self, Report};
use crate::cli::EmitKind;
use crate::diagnostics::{Fix, Suggestion, json};
use crate::passes::{self, Changed, Outcome, Step};
use crate::record::{Change, Edit, Expression, File, Format, KernelCost, Plan, Record, Remark};
use crate::source::Loc;
use crate::tile::cost::{self, Launch, Setting};
use crate::tile::text::Owner;
use crate::tile::{Cpu, PlanVariant};
use crate::types::{self, typed::Program};
use crate::vector::routine::text::print_with;
use crate::{ir, lowering, report, tile};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The value of each run-time dimension for which memory and costs are evaluated.
const SIZE: i64 = 128;

/// Begins a record, if it is an output.
pub(super) fn begin(s: &mut Session, out: &Outputs) {
    if is_asked(out) {
        start(s, out.command());
    }
}

/// Begins a record.
pub(super) fn start(s: &mut Session, command: &str) {
    let mut record = Box::new(Record::default());
    record.command = command.to_string();
    record.files = files(s);
    s.record = Some(record);
}

/// Records the measurements of `attnc bench`, which are JSON, and their picture.
pub(super) fn measured(s: &mut Session, report: &Report) {
    let Some(record) = s.record.as_deref_mut() else { return };
    let mut numbers: Value = serde_json::from_str(&bench::json(report)).unwrap_or_default();
    numbers["picture"] = bench::picture(report).into();
    record.measured = numbers;
}

/// Is a record or its page an output?
pub(super) fn is_asked(out: &Outputs) -> bool {
    out.has(EmitKind::Record) || out.has(EmitKind::Html)
}

/// The sources so far.
fn files(s: &Session) -> Vec<File> {
    s.sources.files().map(|(_, f)| File { name: f.name().to_string(), text: f.text().to_string() }).collect()
}

/// Records the typed program.
pub(super) fn typed(s: &mut Session, program: &Program) {
    let Some(mut record) = s.record.take() else { return };
    record.files = files(s);
    for (n, (id, file)) in s.sources.files().enumerate() {
        for (span, op, ty) in types::dump::expressions(program, id) {
            let (from, to) = (file.line_column(span.start), file.line_column(span.end));
            let start = (n, from.line, from.column);
            record.expressions.push(Expression { start, end: (to.line, to.column), op, ty });
        }
    }
    s.record = Some(record);
}

/// Records graph IR before the passes.
pub(super) fn graph(record: &mut Record, name: &str, module: &ir::Module) {
    record.step(Format::Graph, name, &ir::text::print_with_entities(module));
}

/// Records a run of a pass.
pub(super) fn pass(record: &mut Record, step: &Step<'_>) {
    match step.changed {
        Changed::Yes => graph(record, step.pass, step.module),
        Changed::No => record.unchanged(Format::Graph, step.pass),
    }
    for remark in step.remarks {
        let remark = recorded(record, step.module, remark);
        record.remark(Format::Graph, remark);
    }
}

fn recorded(record: &Record, module: &ir::Module, remark: &passes::Remark) -> Remark {
    let place = |loc: Loc| record.place(loc.file_name(&module.name, &module.files), loc.line, loc.column);
    let missed = match remark.outcome {
        Outcome::Done => None,
        Outcome::Missed(condition) => Some(condition.name().to_string()),
    };
    let notes = remark.notes.iter().map(|(loc, text)| (place(*loc), text.clone())).collect();
    let (pass, function, message) = (remark.pass.to_string(), remark.function.clone(), remark.message.clone());
    Remark { pass, at: place(remark.loc), function, missed, message, notes, edit: None }
}

/// Records what missed remarks propose, by their number.
pub(super) fn proposals(
    s: &mut Session,
    module: &ir::Module,
    remarks: &[passes::Remark],
    found: &BTreeMap<usize, Suggestion>,
) {
    let Some(mut record) = s.record.take() else { return };
    for (n, proposal) in found {
        let change = |fix: &Fix| {
            let file = s.sources.get(fix.span.file)?;
            let (from, to) = (file.line_column(fix.span.start), file.line_column(fix.span.end));
            let start = record.place(file.base_name(), from.line, from.column)?;
            Some(Change { start, end: (to.line, to.column), text: fix.text.clone() })
        };
        let changes = proposal.fixes.iter().filter_map(change).collect();
        let Some(like) = remarks.get(*n).map(|remark| recorded(&record, module, remark)) else { continue };
        record.propose(&like, &Edit { title: proposal.title.clone(), changes });
    }
    s.record = Some(record);
}

/// Records the kernels before and after the schedule, with the memory and costs of the plans.
/// `remarks` are lines about each.
pub(super) fn tiles(
    s: &mut Session,
    (unscheduled, scheduled): (Option<&tile::Module>, &tile::Module),
    (target, is_gpu): (&str, bool),
    remarks: (&str, &str),
) {
    let Some(record) = s.record.as_deref_mut() else { return };
    record.target = target.to_string();
    if let Some(module) = unscheduled {
        record.step(Format::Tile, "lowering", &tile::text::print(module));
        record.operations.insert(Format::Tile, operations(module));
        record.remark_lines(Format::Tile, "lowering", remarks.0);
    }
    record.result(Format::Scheduled, "schedule", &tile::text::print(scheduled));
    record.operations.insert(Format::Scheduled, operations(scheduled));
    record.remark_lines(Format::Scheduled, "schedule", remarks.1);
    let setting = Setting { work: unscheduled.filter(|_| is_gpu), ..Setting::default() };
    record.plans.extend(scheduled.plans.iter().filter_map(|plan| plan_of(scheduled, plan, &setting)));
}

/// The kernels with the operations that they are launched for.
fn operations(module: &tile::Module) -> BTreeSet<(String, usize, u32)> {
    let all = module.plans.iter().flat_map(|plan| plan.body.insts());
    let launched = all.filter_map(|(_, _, data)| {
        let tile::Op::Plan(tile::PlanOp::Launch { kernel }) = &data.op else { return None };
        let (function, value) = data.loc.graph_operation()?;
        Some((kernel.clone(), function, value))
    });
    launched.collect()
}

/// Memory and costs of a plan of an entry point.
fn plan_of(module: &tile::Module, plan: &tile::Plan, setting: &Setting<'_>) -> Option<Plan> {
    let suffix = match plan.variant {
        PlanVariant::Plain => "",
        PlanVariant::Tapped => " tapped",
        PlanVariant::Prepare => return None,
    };
    let size = |name: &String| (name.clone(), if name == "batch" { 1 } else { SIZE });
    let sizes: BTreeMap<String, i64> = plan.symbols.iter().map(size).collect();
    let bytes = |slot: &tile::SlotData| (slot.bytes.to_string(), slot.bytes.eval(&|s| sizes.get(s).copied()).ok());
    let slots = plan.slots.iter().map(bytes).collect();
    let (costs, note) = match cost::plan_in(module, &plan.name, plan.variant, &sizes, setting) {
        Ok(walked) => (by_kernel(&walked.launches), None),
        Err(reason) => (Vec::new(), Some(reason)),
    };
    Some(Plan { name: format!("plan {}{suffix}", plan.name), sizes, slots, costs, note })
}

/// Sums the costs of launches by kernel, in the order of first launches.
fn by_kernel(launches: &[Launch]) -> Vec<KernelCost> {
    let mut costs: Vec<KernelCost> = Vec::new();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for launch in launches {
        let n = *known.entry(&launch.kernel).or_insert_with(|| {
            costs.push(KernelCost { kernel: launch.kernel.clone(), exact: true, ..KernelCost::default() });
            costs.len() - 1
        });
        let Some(sum) = costs.get_mut(n) else { continue };
        let cost = &launch.cost;
        sum.launches += 1;
        sum.flops = sum.flops.saturating_add(cost.flops);
        sum.read = sum.read.saturating_add(cost.read);
        sum.weights = sum.weights.saturating_add(launch.weights);
        sum.written = sum.written.saturating_add(cost.written);
        sum.exact &= cost.exact && !cost.uncounted;
    }
    costs
}

/// Records vector IR: each instruction with the tile operation that it was made from.
pub(super) fn vectors(s: &mut Session, module: &tile::Module, cpu: Cpu) {
    let Some(record) = s.record.as_deref_mut() else { return };
    let printed = tile::text::print_with_anchors(module);
    let mut text = String::new();
    for (n, kernel) in module.kernels.iter().enumerate() {
        let owner = Owner::Kernel(n);
        let own = printed.lines.iter().filter(|(anchor, _)| anchor.owner == owner);
        let head = own.clone().map(|(_, line)| *line).min().unwrap_or(0);
        let line_of: BTreeMap<tile::Inst, usize> = own
            .filter_map(|(anchor, line)| match anchor.at {
                tile::text::ErrorLocation::Inst(i) => Some((i, line - head)),
                tile::text::ErrorLocation::Head
                | tile::text::ErrorLocation::Block(_)
                | tile::text::ErrorLocation::Terminator(_) => None,
            })
            .collect();
        for (run, lowered) in lowering::vector::runs(kernel, cpu) {
            let Ok(mut lowered) = lowered else { continue };
            for (_, label) in &mut lowered.routine.params {
                *label = tile::text::with_names(label, owner, module);
            }
            // The loops belong to the run.
            let origin = |i: Option<_>| {
                let of = i.and_then(|i| lowered.origins[i]).unwrap_or(run);
                line_of.get(&of).map(|line| format!("of {line}"))
            };
            text += &print_with(&lowered.routine, origin);
            text.push('\n');
        }
    }
    record.step(Format::Vector, "lowering", &text);
}

/// Records the text of code.
pub(super) fn code(s: &mut Session, format: Format, text: &str) {
    let Some(record) = s.record.as_deref_mut() else { return };
    record.step(format, "code", text);
}

/// Ends the record with the diagnostics, and writes it. A program with errors has one of the stages
/// that it reached.
pub(super) fn finish(
    s: &mut Session,
    out: &[(EmitKind, PathBuf)],
    result: Result<(), CommandError>,
) -> Result<(), CommandError> {
    let Some(mut record) = s.record.take() else { return result };
    let files = files(s);
    if files.len() > record.files.len() {
        record.files = files;
    }
    record.diagnostics = json::objects(&s.diagnostics, &s.sources);
    let document = record.json();
    for (kind, path) in out {
        let content = if *kind == EmitKind::Html { report::page(&document) } else { document.clone() };
        match result {
            Err(CommandError::Program) if path != Path::new("-") => s.write_now(path, content.as_bytes())?,
            Err(CommandError::Program) | Ok(()) => s.write(path, content.as_bytes())?,
            Err(_) => {}
        }
    }
    result
}
