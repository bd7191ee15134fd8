//! Running sums: kernels in which a thread adds one element after another become three, of which every thread has a part.
//!
//! In: an unscheduled module. Out: the same module; a launch of a kernel of running sums ([`scan::find`]) is three, where the axis is long enough and
//! there are not so many rows that each multiprocessor has enough to do as it is ([`pays`]). Totals and offsets of chunks lie in slots of their own.
//! Where a result may be written over what is summed, the kernel stays as it is: a block of the last kernel reads elements that another thread of it writes.

use std::collections::{BTreeMap, BTreeSet};

use crate::shape::Dim;
use crate::tile::scan::{self, CHUNK, Found};
use crate::tile::schedule::plans::{At, in_entry, new_slot, slot_type};
use crate::tile::{BufferType, Kernel, Module, Op, Plan, Value, View};

/// From so many rows on each is summed by a thread. One after another, an element takes half a microsecond, whatever the number of rows up to
/// there; three launches do 128 times the additions, of which a GPU does 10^13 a second.
const ROWS: i64 = 40_000;

/// The kernels that take a kernel's place.
struct Three {
    /// The type of totals and offsets.
    of_chunks: BufferType,
    names: [String; 3],
}

/// Does it; the names of the kernels that are new.
pub(super) fn expand(module: &mut Module) -> BTreeSet<String> {
    let mut changed = BTreeSet::new();
    let mut all: BTreeMap<String, Three> = BTreeMap::new();
    let mut taken: BTreeSet<String> = module.kernels.iter().map(|k| k.name.clone()).collect();
    let mut made: Vec<Kernel> = Vec::new();
    for n in 0..module.kernels.len() {
        let Some(kernel) = module.kernels.get(n) else { continue };
        let Some(found) = scan::find(kernel).filter(pays) else { continue };
        let Some(of_chunks) = scan::of_chunks(&found.x, found.axis) else { continue };
        if !module.plans.iter().all(|plan| may_be_replaced_in(plan, &kernel.name, &of_chunks)) {
            continue;
        }
        let names = ["totals", "offsets", "sums"].map(|kind| {
            let number = (0..).find(|n| !taken.contains(&format!("{kind}.{n}"))).unwrap_or(0);
            format!("{kind}.{number}")
        });
        let Found { x, axis, out } = &found;
        let first = scan::totals(&names[0], x, *axis, &of_chunks);
        made.push(scan::offsets(&names[1], &of_chunks, *axis));
        made.push(scan::chunks(&names[2], x, *axis, &of_chunks, out));
        taken.extend(names.clone());
        changed.extend(names.clone());
        all.insert(kernel.name.clone(), Three { of_chunks, names });
        if let Some(kernel) = module.kernels.get_mut(n) {
            *kernel = first;
        }
    }
    module.kernels.extend(made);
    if !all.is_empty() {
        module.plans.iter_mut().for_each(|plan| launch_all(plan, &all));
    }
    changed
}

/// Is the axis longer than a chunk, as far as is known, and are there few rows?
fn pays(found: &Found) -> bool {
    let shape = found.x.shape.iter().enumerate();
    let rows = shape.filter(|(i, _)| *i != found.axis).map(|(_, d)| d.as_const().unwrap_or(1));
    let is_long = found.x.shape.get(found.axis).is_some_and(|d| d.as_const().is_none_or(|n| n > CHUNK));
    is_long && rows.fold(1, i64::saturating_mul) < ROWS
}

/// The bytes of the totals.
fn bytes(totals: &BufferType) -> Dim {
    let size = i64::try_from(totals.elem.size()).unwrap_or(8);
    Dim::product(&totals.shape).mul(&size.into())
}

/// Can a plan give every launch of a kernel slots for its chunks, and is what each sums apart from where it writes?
fn may_be_replaced_in(plan: &Plan, kernel: &str, of_chunks: &BufferType) -> bool {
    let body = &plan.body;
    let memory = |v: Option<&Value>| {
        let view = View::of(body, *v?)?;
        body.def_inst(view.root).map(|root| (&root.op, &root.operands))
    };
    let mut launches = body.insts().filter(|(_, _, d)| matches!(&d.op, Op::Launch { kernel: own } if own == kernel));
    launches.all(|(_, _, d)| match (memory(d.operands.first()), memory(d.operands.last())) {
        (Some(from), Some(to)) => from != to && slot_type(plan, &bytes(of_chunks), of_chunks) == *of_chunks,
        _ => false,
    })
}

/// Launches three kernels instead of one.
fn launch_all(plan: &mut Plan, all: &BTreeMap<String, Three>) {
    let mut added = BTreeSet::new();
    let launches: Vec<_> = plan.body.insts().map(|(block, inst, data)| (block, inst, data.clone())).collect();
    for (block, inst, data) in launches {
        let Op::Launch { kernel } = &data.op else { continue };
        let Some(three) = all.get(kernel) else { continue };
        let (Some(x), Some(out)) = (data.operands.first().copied(), data.operands.last().copied()) else { continue };
        let at = At { block, inst, loc: data.loc, out: Some(out) };
        let [totals, offsets] = [0, 1].map(|others| {
            let number = new_slot(plan, &bytes(&three.of_chunks), at, others);
            in_entry(plan, &mut added, Op::Slot(number), three.of_chunks.clone(), at)
        });
        let body = &mut plan.body;
        let [first, second, third] = three.names.clone();
        for (kernel, operands) in [(first, vec![x, totals]), (second, vec![totals, offsets])] {
            let launch = body.make_inst(Op::Launch { kernel }, operands, None, data.loc);
            body.insert_before(block, inst, launch);
        }
        let launch = body.inst_mut(inst);
        launch.op = Op::Launch { kernel: third };
        launch.operands = vec![x, offsets, out];
    }
}
