//! Memory and costs of plans.
//!
//! In: sizes of slots and costs of launches, and the text of a plan. Out: JSON, with the buffers
//! that live in each slot and the launches from the first to the last that needs each.

use super::lines::Text;
use super::{Format, Record};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A plan, evaluated for some sizes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of its part in the scheduled tile IR: `plan forward`.
    pub name: String,
    /// The run-time dimensions with the values that bytes and costs are for.
    pub sizes: BTreeMap<String, i64>,
    /// Size of each slot of the arena as a formula, and in bytes where it can be evaluated.
    pub slots: Vec<(String, Option<i64>)>,
    /// Costs in the order of first launches.
    pub costs: Vec<KernelCost>,
    /// Why there are no costs.
    pub note: Option<String>,
}

/// The cost of all launches of a kernel in one call.
#[derive(Clone, Debug, Default)]
pub struct KernelCost {
    /// Its name.
    pub kernel: String,
    /// The number of launches.
    pub launches: u64,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes read.
    pub read: u64,
    /// The part of them that are weights.
    pub weights: u64,
    /// Bytes written.
    pub written: u64,
    /// Are the numbers exact rather than upper bounds?
    pub exact: bool,
}

impl Plan {
    pub(super) fn json(&self, record: &Record) -> Value {
        let text = record.last(Format::Scheduled).map(|text| &record.texts[text]);
        let buffers = text.map(|text| buffers(record, text, &self.name)).unwrap_or_default();
        let mut offset = Some(0_i64);
        let mut slots = Vec::new();
        for (formula, bytes) in &self.slots {
            slots.push(json!({"formula": formula, "bytes": bytes, "offset": offset}));
            // Slots are aligned to 64 bytes in the arena.
            offset =
                offset.zip(*bytes).and_then(|(at, bytes)| at.checked_add(bytes)?.checked_add(63).map(|end| end & !63));
        }
        let costs: Vec<Value> = self
            .costs
            .iter()
            .map(|c| {
                json!({"kernel": c.kernel, "launches": c.launches, "flops": c.flops, "read": c.read,
                       "weights": c.weights, "written": c.written, "exact": c.exact})
            })
            .collect();
        json!({"name": self.name, "sizes": self.sizes, "slots": slots, "buffers": buffers, "costs": costs,
               "note": self.note})
    }
}

/// One use of a value by a launch.
struct Access {
    launch: usize,
    written: bool,
}

/// The buffers in slots: `{value, slot, type, first, last}`, where `first` and `last` count the
/// launches of the plan in textual order. A buffer whose content is needed in the next iteration
/// of a loop lives throughout the loop.
fn buffers(record: &Record, text: &Text, plan: &str) -> Vec<Value> {
    let modes = modes(record, text);
    let mut root: BTreeMap<String, usize> = BTreeMap::new();
    let mut list: Vec<(String, u64, String)> = Vec::new();
    let mut uses: BTreeMap<usize, Vec<Access>> = BTreeMap::new();
    let mut blocks: BTreeMap<String, usize> = BTreeMap::new();
    let (mut launch, mut loops) = (0, Vec::new());
    for id in text.part(plan) {
        let line = record.lines.get(*id).text.trim();
        let (name, op) = line.split_once(" = ").unwrap_or(("", line));
        if let Some(label) = line.strip_prefix('^') {
            blocks.insert(label.split([':', '(']).next().unwrap_or("").to_string(), launch);
        } else if let Some(rest) = op.strip_prefix("slot ") {
            let (slot, ty) = rest.split_once(':').unwrap_or((rest, ""));
            root.insert(name.to_string(), list.len());
            list.push((name.to_string(), slot.trim().parse().unwrap_or(0), ty.trim().to_string()));
        } else if let Some(rest) = op.strip_prefix("view ") {
            let base = rest.split(['[', ',', ' ', ':']).next().unwrap_or("");
            if let Some(buffer) = root.get(base).copied() {
                root.insert(name.to_string(), buffer);
            }
        } else if let Some(rest) = op.strip_prefix("launch @") {
            let (kernel, args) = rest.trim_end_matches(')').split_once('(').unwrap_or((rest, ""));
            let modes = modes.get(kernel);
            for (n, arg) in args.split(", ").enumerate() {
                let Some(buffer) = root.get(arg) else { continue };
                let written = modes.and_then(|m| m.get(n)).is_some_and(|mode| mode == "out");
                uses.entry(*buffer).or_default().push(Access { launch, written });
            }
            launch += 1;
        } else if line.starts_with("br") {
            let targets = line.split('^').skip(1).map(|t| t.split([',', '(', ' ']).next().unwrap_or(""));
            loops.extend(targets.filter_map(|t| blocks.get(t)).map(|start| (*start, launch)));
        }
    }
    let one = |(n, (value, slot, ty)): (usize, &(String, u64, String))| {
        let all = uses.get(&n)?;
        let (mut first, mut last) = (all.first()?.launch, all.last()?.launch);
        for (start, end) in &loops {
            let inside = |a: &&Access| (*start..*end).contains(&a.launch);
            let Some(entry) = all.iter().find(inside) else { continue };
            if !entry.written || !all.iter().all(|a| inside(&a)) {
                (first, last) = (first.min(*start), last.max(end.saturating_sub(1)));
            }
        }
        Some(json!({"value": value, "slot": slot, "type": ty, "first": first, "last": last}))
    };
    list.iter().enumerate().filter_map(one).collect()
}

/// The modes (`in`, `out`, `inout`) of the parameters of each kernel.
fn modes(record: &Record, text: &Text) -> BTreeMap<String, Vec<String>> {
    let head = |(name, start): &(String, usize)| {
        let line = &record.lines.get(*text.ids.get(*start)?).text;
        let params = line.split_once('(')?.1.split(") ").next()?;
        let mode = |param: &str| Some(param.split_once(": ")?.1.split(' ').next()?.to_string());
        Some((name.strip_prefix("kernel ")?.to_string(), params.split(", %").filter_map(mode).collect()))
    };
    text.parts.iter().filter_map(head).collect()
}
