//! Unroll and jam: a matmul with few rows in a loop over time computes several panels in each grid
//! point, interleaved.
//!
//! ```text
//! grid(%i: ceil(B, 256), %j: ceil(1024, 32))            ->  grid(%i: ceil(B, 256), %j: ceil(1024, 128))
//! ^bb0:                                                     ^bb0:
//!   %b = load %w[%j, 0, 0] : tile f32[256, 32]                %few = le %rows, 2
//!   %s = dot %a, %b, 0.0                                      br_if %few, ^few, ^head(0)
//!   ..                                                      ^few:
//!                                                             %b0 = load %w[%p0, 0, 0], %b1 = load %w[%p1, 0, 0] ..
//!                                                             %s0 = dot %a, %b0, 0.0,   %s1 = dot %a, %b1, 0.0 ..
//!                                                             return
//!                                                           ^head(%n: index): as before, panel after panel
//! ```
//!
//! Here the panels are stored one after another. If they are packed for this, they are interleaved:
//! k index 0 of all four, then k index 1, as `f32[8, 256, 4, 32]`, so that a grid point reads
//! memory in order.
//!
//! Every sum of a matmul is one chain of FMAs. A register tile of one row and one panel has two
//! chains, each of which waits for its last FMA: with AVX-512 that reads half a cache line per
//! cycle, which is no more than the L2 cache supplies. The matmuls of several panels are
//! independent, so a back end that interleaves them (`codegen::cpu::wide::dot_group`) reads panels
//! at the speed of the cache. A step of a recurrent network is such a case: one or a few rows,
//! times weights that stay in the cache from step to step. The sums are unchanged.
//!
//! Measured, one step of an LSTM at batch 1 on a Zen 4: with hidden size 256 it takes 0.93 of the
//! time, with 512 and 1024 0.8. More rows have enough chains; with their panels interleaved they
//! took 1.2 times as long, because the sums of four panels and their epilogue do not fit the L1
//! cache. Interleaved storage, on a Zen 5 with two threads: 0.74 of the time of consecutive panels
//! with hidden size 256, where a core keeps its half in its L2 cache, 0.8 with 512, where it keeps
//! the half that was read last (`runtime/support/ahead.rs`, `Turns`), and 1.05 with 1024. With 32
//! rows, which read them panel by panel: 1.0 and, with 512, 1.03.
//!
//! In: a kernel of a matmul that reads packed panels, not scheduled further. Out: the same with
//! fewer grid points, each of which does the work of several. It must not know how a back end
//! multiplies, nor where the kernel is launched (`panels` uses it only for launches that read the
//! same panels in each iteration of a loop).

use std::collections::BTreeMap;

use crate::scalar::{BinaryOp, CmpOp, Scalar};
use crate::shape::Elem;
use crate::source::Loc;
use crate::tile::{Block, BlockCall, Body, Extent, Inst, Kernel, Machine, Op, Terminator, TileType, Type, Value};

/// Possible numbers of panels per grid point, best first.
const PANELS: [i64; 3] = [4, 3, 2];
/// Minimum number of grid points along the columns, for threads to share.
const LEAST_POINTS: i64 = 8;
/// Maximum K that is summed at once.
const MAX_STEPS: i64 = 1024;
/// Maximum size of panels that may stay in a cache from launch to launch. Larger ones come from
/// memory each time, and are best read consecutively.
const MAX_BYTES: i64 = 16 << 20;
/// Maximum size for interleaved storage: a good part must stay in L2 caches. Data from farther away
/// is prefetched better in four streams than in one.
const MAX_ABREAST: i64 = 8 << 20;

/// Makes each grid point of a matmul compute `count` panels ([`panels_at_once`]), interleaved for
/// up to `few` rows.
pub(super) fn jam_panels(kernel: &mut Kernel, count: i64, few: i64) {
    let Some(rows) = rows_of(&kernel.body) else { return };
    let Some(axis) = kernel.grid.last_mut() else { return };
    let point = axis.value;
    let loc = kernel.body.insts().next().map(|(_, _, d)| d.loc).unwrap_or_default();
    axis.step *= count;
    let entry = kernel.body.entry();
    let old = std::mem::take(&mut kernel.body.block_mut(entry).insts);
    let mut jam = Jam { body: &mut kernel.body, loc, block: entry, point, count, split: Vec::new() };
    // With interleaved storage: the number of the wide panel, and the position in it.
    jam.split = old.iter().filter_map(|inst| jam.part_of_panel(*inst)).collect();
    let old: Vec<Inst> = old.into_iter().filter(|inst| jam.part_of_panel(*inst).is_none()).collect();
    // Instructions without tiles that are the same for all panels are computed once.
    let mut of_panel: Vec<Inst> = Vec::new();
    let mut varying: Vec<Value> = jam.split.iter().map(|(v, _)| *v).chain([point]).collect();
    for inst in old {
        let d = jam.body.inst(inst);
        let is_tile = |v: &Value| jam.body.ty(*v).tile().is_some();
        let depends = d.operands.iter().chain(&d.result).any(|v| is_tile(v) || varying.contains(v));
        if depends {
            varying.extend(d.result);
            of_panel.push(inst);
        } else {
            jam.body.block_mut(entry).insts.push(inst);
        }
    }
    let Extent::Bounded { value, max } = rows else { return jam.side_by_side(&of_panel, None) };
    let most = jam.index(few.min(max));
    let are_few = jam.value(Op::Compare(CmpOp::Le), vec![value, most], Type::Scalar(Elem::Bool));
    let first = jam.index(0);
    let [side_by_side, head, next, done] = [(); 4].map(|()| jam.body.add_block());
    let number = jam.body.add_block_arg(head, Type::Index);
    let call = |block: Block, args: Vec<Value>| BlockCall { block, args };
    let then = call(side_by_side, Vec::new());
    let branch = Terminator::BrIf { condition: are_few, then, otherwise: call(head, vec![first]) };
    jam.body.terminate(entry, branch);

    jam.block = side_by_side;
    let value = jam.value(Op::Binary(BinaryOp::Min), vec![value, most], Type::Index);
    jam.side_by_side(&of_panel, Some((rows, Extent::Bounded { value, max: few.min(max) })));

    jam.block = head;
    let all = jam.index(count);
    let more = jam.value(Op::Compare(CmpOp::Lt), vec![number, all], Type::Scalar(Elem::Bool));
    let (then, otherwise) = (call(next, Vec::new()), call(done, Vec::new()));
    jam.body.terminate(head, Terminator::BrIf { condition: more, then, otherwise });
    jam.block = next;
    let panel = jam.panel(number);
    let mut values = jam.of_panel(panel, number);
    for inst in &of_panel {
        jam.copy(*inst, &mut values, None);
    }
    let one = jam.index(1);
    let after = jam.value(Op::Binary(BinaryOp::Add), vec![number, one], Type::Index);
    jam.body.terminate(next, Terminator::Br(call(head, vec![after])));
    jam.body.terminate(done, Terminator::Return(Vec::new()));
}

/// The rows of a matmul's tile.
fn rows_of(body: &Body) -> Option<Extent> {
    let product = body.insts().find(|(_, _, d)| matches!(d.op, Op::Dot { .. }))?.2.result?;
    Some(body.ty(product).tile()?.rows)
}

/// The number of panels per grid point for a matmul with these k indices and columns, if it is
/// suitable: the number of panels is a constant, they are full `f32` panels, and K is summed at
/// once. The kernel has the machine's tile sizes.
pub(super) fn panels_at_once(kernel: &Kernel, [steps, all]: [i64; 2], machine: &Machine) -> Option<i64> {
    let body = &kernel.body;
    let (axis, columns) = (kernel.grid.last()?, machine.panel);
    let straight = body.layout.len() == 1 && matches!(body.block(body.entry()).terminator, Terminator::Return(_));
    let bytes = steps.checked_mul(all)?.checked_mul(4)?;
    let few = match rows_of(body)? {
        Extent::Static(n) => n <= machine.few_rows,
        Extent::Bounded { .. } => machine.few_rows > 0,
    };
    let fits = straight
        && few
        && axis.step == columns
        && axis.extent.as_const() == Some(all)
        && all % columns.max(1) == 0
        && (1..=MAX_STEPS).contains(&steps)
        && bytes <= MAX_BYTES;
    let panels = all / columns.max(1);
    PANELS.into_iter().find(|n| fits && panels % n == 0 && panels / n >= LEAST_POINTS)
}

/// The number of panels whose storage is interleaved, if `count` are computed at once.
pub(super) fn abreast(count: i64, [steps, all]: [i64; 2]) -> i64 {
    if steps.saturating_mul(all).saturating_mul(4) <= MAX_ABREAST { count } else { 1 }
}

/// A kernel being rewritten.
struct Jam<'a> {
    body: &'a mut Body,
    loc: Loc,
    /// Insertion point.
    block: Block,
    /// The grid index along the columns.
    point: Value,
    count: i64,
    /// Quotient and remainder of the panel number by the number of panels per grid point.
    split: Vec<(Value, BinaryOp)>,
}

impl Jam<'_> {
    fn value(&mut self, op: Op, operands: Vec<Value>, ty: Type) -> Value {
        match self.body.push(self.block, op, operands, Some(ty), self.loc) {
            Some(v) => v,
            None => unreachable!("an instruction that is given a type has a result"),
        }
    }

    fn index(&mut self, n: i64) -> Value {
        self.value(Op::Const(Scalar::Int(n)), Vec::new(), Type::Index)
    }

    /// The panel of this number within the grid point.
    fn panel(&mut self, number: Value) -> Value {
        let count = self.index(self.count);
        let first = self.value(Op::Binary(BinaryOp::Mul), vec![self.point, count], Type::Index);
        self.value(Op::Binary(BinaryOp::Add), vec![first, number], Type::Index)
    }

    /// Is it the quotient or the remainder of the panel number by the number of panels per grid
    /// point?
    fn part_of_panel(&self, inst: Inst) -> Option<(Value, BinaryOp)> {
        let d = self.body.inst(inst);
        let (Op::Binary(op @ (BinaryOp::Div | BinaryOp::Rem)), [panel, by]) = (&d.op, d.operands.as_slice()) else {
            return None;
        };
        let literal = self.body.def_inst(*by).map(|d| &d.op);
        let is_count = matches!(literal, Some(Op::Const(Scalar::Int(n))) if *n == self.count);
        Some((d.result?, *op)).filter(|_| *panel == self.point && is_count)
    }

    /// Values that replace a panel's, for its number in the grid point.
    fn of_panel(&self, panel: Value, number: Value) -> BTreeMap<Value, Value> {
        let split = self.split.iter().map(|(v, op)| (*v, if *op == BinaryOp::Div { self.point } else { number }));
        [(self.point, panel)].into_iter().chain(split).collect()
    }

    /// Emits all panels, with the copies of each operation next to each other. `rows`: an extent to
    /// be replaced, and its replacement.
    fn side_by_side(&mut self, of_panel: &[Inst], rows: Option<(Extent, Extent)>) {
        let mut copies: Vec<BTreeMap<Value, Value>> = Vec::new();
        for copy in 0..self.count {
            let number = self.index(copy);
            let panel = self.panel(number);
            copies.push(self.of_panel(panel, number));
        }
        // Values that are the same for all panels.
        let mut shared = BTreeMap::new();
        for inst in of_panel {
            let d = self.body.inst(*inst);
            let depends = d.operands.iter().any(|v| copies.iter().any(|values| values.contains_key(v)));
            if !depends {
                self.copy(*inst, &mut shared, rows);
                continue;
            }
            for values in &mut copies {
                let mut both = shared.clone();
                both.append(&mut values.clone());
                self.copy(*inst, &mut both, rows);
                let result = self.body.inst(*inst).result;
                values.extend(result.and_then(|v| Some((v, *both.get(&v)?))));
            }
        }
        self.body.terminate(self.block, Terminator::Return(Vec::new()));
    }

    /// Copies an operation, replacing its operands.
    fn copy(&mut self, inst: Inst, values: &mut BTreeMap<Value, Value>, rows: Option<(Extent, Extent)>) {
        let data = self.body.inst(inst).clone();
        let operands = data.operands.iter().map(|v| values.get(v).copied().unwrap_or(*v)).collect();
        let ty = data.result.map(|v| match (self.body.ty(v).clone(), rows) {
            (Type::Tile(t), Some((from, to))) if t.rows == from => Type::Tile(TileType { rows: to, ..t }),
            (ty, _) => ty,
        });
        let made = self.body.make_inst(data.op, operands, ty, data.loc);
        self.body.block_mut(self.block).insts.push(made);
        self.body.inst_mut(made).parts = data.parts;
        values.extend(data.result.zip(self.body.inst(made).result));
    }
}
