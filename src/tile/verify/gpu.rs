//! Checks of GPU kernels: memory spaces of tiles, shapes supported by the matrix units,
//! asynchronous operations.

mod flow;

use super::Sink;
use crate::scalar::{ReduceKind, Scalar};
use crate::shape::Elem;
use crate::tile::alignment::CHUNK;
use crate::tile::multiples::is_multiple;
use crate::tile::text::ErrorLocation;
use crate::tile::{
    Block, Body, Extent, Fragment, GpuArch, GpuOp, Inst, Kernel, Op, Role, Space, Terminator, TileType, Type, Value,
};

/// Rules 17 to 20.
pub(super) fn scheduled(k: &Kernel, arch: GpuArch, warps: u32, sink: &mut Sink) {
    let before = sink.list.len();
    block(warps, sink);
    // The other rules divide by properties of the block.
    if sink.list.len() != before {
        return;
    }
    let mut c = Checker { k, body: &k.body, arch, warps, sink };
    for b in &k.body.layout {
        for v in &k.body.block(*b).args {
            c.place(ErrorLocation::Block(*b), k.body.ty(*v));
        }
        for i in &k.body.block(*b).insts {
            if let Some(v) = k.body.inst(*i).result {
                c.place(ErrorLocation::Inst(*i), k.body.ty(v));
            }
            c.operation(*b, *i);
        }
    }
    c.shared();
    c.roles();
    if c.sink.list.len() == before {
        flow::check(&k.body, c.sink);
    }
}

/// Checks the size of a block.
fn block(warps: u32, sink: &mut Sink) {
    if !(1..=32).contains(&warps) {
        sink.error(ErrorLocation::Head, format!("a block has 1 to 32 warps, not {warps}"));
    }
}

/// The size of a block that works in runs: its threads are divided into rows and columns by powers
/// of 2.
pub(super) fn block_of_runs(warps: u32, sink: &mut Sink) {
    block(warps, sink);
    if !warps.is_power_of_two() && warps != 0 {
        sink.error(
            ErrorLocation::Head,
            format!("a block that works in runs has 1, 2, 4, 8, 16 or 32 warps, not {warps}"),
        );
    }
}

struct Checker<'a, 's> {
    k: &'a Kernel,
    body: &'a Body,
    arch: GpuArch,
    warps: u32,
    sink: &'s mut Sink,
}

const ONE: Extent = Extent::Static(1);

/// Size of a tile in shared memory.
fn bytes(t: &TileType) -> u64 {
    let n = |e: Extent| e.capacity().max(0).unsigned_abs();
    t.elem.size().saturating_mul(n(t.rows)).saturating_mul(n(t.cols))
}

impl Checker<'_, '_> {
    /// Rule 18: a memory space that suits the type.
    fn place(&mut self, at: ErrorLocation, ty: &Type) {
        let message = match ty {
            Type::Index | Type::Scalar(_) | Type::Buffer(_) => return,
            Type::Slot(t)
            | Type::Ring { tile: t, .. }
            | Type::Pending(crate::tile::Queue::Copy, t)
            | Type::Group(crate::tile::Queue::Copy, t) => match t.space {
                Space::Shared { .. } => self.swizzled(t),
                _ => Some("room for a tile is in shared memory".to_string()),
            },
            Type::Pending(crate::tile::Queue::Mma, t) | Type::Group(crate::tile::Queue::Mma, t) => match t.space {
                Space::Fragment(Fragment::Acc) => None,
                _ => Some("a product is made in an accumulator's layout".to_string()),
            },
            Type::Tile(t) => match t.space {
                Space::Shared { .. } => self.swizzled(t),
                Space::Fragment(f) => match f {
                    Fragment::Row if t.cols != ONE => {
                        Some("`row` is the layout of a column of one element a row".into())
                    }
                    Fragment::Col if t.rows != ONE => Some("`col` is the layout of a row".into()),
                    Fragment::A | Fragment::B | Fragment::BT
                        if !matches!(t.elem, Elem::BF16 | Elem::F16 | Elem::F32) =>
                    {
                        Some(format!("operands of products are bf16, f16 or f32, not {}", t.elem))
                    }
                    _ => None,
                },
                _ => Some("a tile of a GPU is in shared memory or in fragments".to_string()),
            },
        };
        if let Some(m) = message {
            self.sink.error(at, m);
        }
    }

    fn swizzled(&self, t: &TileType) -> Option<String> {
        let Space::Shared { swizzle } = t.space else { return None };
        if !matches!((t.rows, t.cols), (Extent::Static(_), Extent::Static(_))) {
            return Some("a tile in shared memory has static extents".into());
        }
        let row = t.elem.size().saturating_mul(t.cols.capacity().max(0).unsigned_abs());
        match swizzle {
            0 => None,
            32 | 64 | 128 if row.is_multiple_of(u64::from(swizzle)) => None,
            32 | 64 | 128 => Some(format!("a row of {row} bytes is not divided into panels of {swizzle}")),
            _ => Some(format!("chunks are exchanged within 0, 32, 64 or 128 bytes, not {swizzle}")),
        }
    }

    fn space(&self, i: Inst, n: usize) -> Option<Space> {
        self.body.inst(i).operands.get(n).and_then(|v| self.body.ty(*v).any_tile()).map(|t| t.space)
    }

    fn is_fragment(&self, i: Inst, n: usize, wanted: &[Fragment]) -> bool {
        matches!(self.space(i, n), Some(Space::Fragment(f)) if wanted.contains(&f))
    }

    #[warn(clippy::wildcard_enum_match_arm, reason = "a new operation is met by an error here")]
    fn operation(&mut self, block: Block, i: Inst) {
        let data = self.body.inst(i);
        let name = data.op.info().name;
        let result = data.result.and_then(|v| self.body.ty(v).any_tile()).cloned();
        let mut wrong = |m: String| self.sink.error(ErrorLocation::Inst(i), format!("{name}: {m}"));
        match &data.op {
            Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Select
            | Op::Cast
            | Op::Narrow { .. }
            | Op::Copy
            | Op::Full
            | Op::Iota { .. }
            | Op::Load { .. }
            | Op::Reduce { .. } => {
                if let Some(t) = &result {
                    let layout = match (t.rows == ONE, t.cols == ONE) {
                        (false, true) => Fragment::Row,
                        (true, false) => Fragment::Col,
                        (false, false) | (true, true) => Fragment::Acc,
                    };
                    // An accumulator of matmuls by integers is initialised with a constant.
                    let begins = data.op == Op::Full && t.space == Space::Fragment(Fragment::Quads);
                    if t.space != Space::Fragment(layout) && !begins {
                        wrong(format!("makes `@fragment({})`", layout.name()));
                    }
                }
                // A reduction by `any` along columns is evaluated by all warps together.
                let asks = matches!(data.op, Op::Reduce { kind: ReduceKind::Any, .. });
                let first = data.operands.first().and_then(|v| self.body.ty(*v).any_tile());
                let of_rows = asks && first.is_some_and(|t| t.space == Space::Fragment(Fragment::Row));
                if matches!(data.op, Op::Reduce { axis, .. } if axis != 1 && !of_rows) {
                    wrong("reduces along columns".into());
                }
                let plain = [Fragment::Acc, Fragment::Row, Fragment::Col];
                for (n, v) in data.operands.iter().enumerate() {
                    if self.body.ty(*v).tile().is_some() && !self.is_fragment(i, n, &plain) {
                        self.sink
                            .error(ErrorLocation::Inst(i), format!("{name}: works on accumulators, rows and columns"));
                        break;
                    }
                }
            }
            Op::Store { .. } => {
                let n = data.operands.len().saturating_sub(1);
                if !self.is_fragment(i, n, &[Fragment::Acc, Fragment::Row, Fragment::Col]) {
                    self.sink.error(ErrorLocation::Inst(i), "store: writes accumulators, rows and columns");
                }
            }
            Op::Element => {
                if !self.is_fragment(i, 0, &[Fragment::Acc]) {
                    self.sink.error(ErrorLocation::Inst(i), "element: reads a fragment");
                }
            }
            Op::Transpose | Op::Dot { .. } | Op::LoadScaled { .. } | Op::LoadPairs | Op::PairRows => {
                wrong("does not stand in a kernel scheduled for a GPU".into())
            }
            Op::Gpu(op) => self.gpu(block, i, op),
            // Operations of other kernels and of plans were rejected before.
            Op::Const(_)
            | Op::DimValue(_)
            | Op::LoadScalar
            | Op::CheckIndex { .. }
            | Op::Length { .. }
            | Op::Run { .. }
            | Op::Window { .. }
            | Op::Plan(_) => {}
        }
    }

    fn gpu(&mut self, block: Block, i: Inst, op: &GpuOp) {
        let data = self.body.inst(i);
        let name = data.op.info().name;
        let result = data.result.and_then(|v| self.body.ty(v).any_tile()).cloned();
        let hopper = self.arch == GpuArch::Sm90a;
        let mut wrong = |m: String| self.sink.error(ErrorLocation::Inst(i), format!("{name}: {m}"));
        match op {
            GpuOp::LoadFragment => {
                let ok = matches!(self.space(i, 0), Some(Space::Shared { .. }))
                    && result
                        .is_some_and(|t| matches!(t.space, Space::Fragment(Fragment::A | Fragment::B | Fragment::BT)));
                if !ok {
                    self.sink.error(ErrorLocation::Inst(i), "load_fragment: reads shared memory into `a`, `b` or `bt`");
                }
            }
            GpuOp::Pack => {
                let ok = self.is_fragment(i, 0, &[Fragment::Acc])
                    && result.is_some_and(|t| t.space == Space::Fragment(Fragment::A));
                if !ok {
                    self.sink.error(ErrorLocation::Inst(i), "pack: makes `a` of an accumulator");
                }
            }
            GpuOp::Mma => {
                let fits = self.is_fragment(i, 0, &[Fragment::A])
                    && self.is_fragment(i, 1, &[Fragment::B, Fragment::BT])
                    && self.is_fragment(i, 2, &[Fragment::Acc]);
                if !fits {
                    self.sink.error(ErrorLocation::Inst(i), "mma: takes `a`, `b` or `bt`, and an accumulator");
                }
                self.unit(i, 16 * i64::from(self.warps), 8, false);
            }
            GpuOp::MmaScaled { .. } => {
                let in_panels = |n: usize, bytes: u32| self.space(i, n) == Some(Space::Shared { swizzle: bytes });
                let fits = self.is_fragment(i, 0, &[Fragment::A])
                    && in_panels(1, 32)
                    && in_panels(2, 128)
                    && self.is_fragment(i, 3, &[Fragment::Quads]);
                if !fits {
                    let m = "mma_scaled: takes `a`, tiles in panels of 32 and 128 bytes, and an accumulator of `quads`";
                    self.sink.error(ErrorLocation::Inst(i), m);
                }
                self.unit(i, 16 * i64::from(self.warps), 32, false);
            }
            GpuOp::ConvertLayout => {
                let ok = self.is_fragment(i, 0, &[Fragment::Quads])
                    && result.is_some_and(|t| t.space == Space::Fragment(Fragment::Acc));
                if !ok {
                    self.sink.error(ErrorLocation::Inst(i), "convert_layout: makes `acc` of `quads`");
                }
            }
            GpuOp::Wgmma { .. } => {
                if !hopper {
                    wrong(format!("{} has no such unit", self.arch.name()));
                }
                let swizzled = |s: Option<Space>| matches!(s, Some(Space::Shared { swizzle: 64 | 128 }));
                let left = self.is_fragment(i, 0, &[Fragment::A]) || swizzled(self.space(i, 0));
                if !left || !swizzled(self.space(i, 1)) || !self.is_fragment(i, 2, &[Fragment::Acc]) {
                    let m = "wgmma: takes `a` or a swizzled tile, a swizzled tile, and an accumulator";
                    self.sink.error(ErrorLocation::Inst(i), m);
                }
                self.unit(i, 64, 8, true);
            }

            GpuOp::Ring { .. } | GpuOp::RingAcquire | GpuOp::RingWait | GpuOp::RingRelease | GpuOp::WgmmaFence
                if !hopper =>
            {
                wrong(format!("{} has no such unit", self.arch.name()));
            }
            GpuOp::Ring { .. } | GpuOp::SharedSlot { .. } if block != self.body.entry() => {
                wrong("stands in the entry block".into());
            }
            GpuOp::CopyAsync { cols: Some(cols), panels: Some(_), .. }
                if data.operands.get(2 + cols).and_then(|v| self.body.def_inst(*v)).map(|d| &d.op)
                    != Some(&Op::Const(Scalar::Int(0))) =>
            {
                wrong("the first column is that of a panel".into());
            }
            GpuOp::CopyAsync { cols, .. } | GpuOp::TmaLoad { cols, .. } => {
                let is_copy = matches!(op, GpuOp::CopyAsync { .. });
                if let Some(message) = self.chunks(i, *cols, is_copy) {
                    self.sink.error(ErrorLocation::Inst(i), format!("{name}: {message}"));
                }
            }
            GpuOp::RingRelease => {
                // The tile must come from this ring.
                let ring = data.operands.first();
                let from = data.operands.get(1).and_then(|v| self.body.def_inst(*v));
                if !from.is_some_and(|d| d.op == Op::Gpu(GpuOp::RingWait) && d.operands.first() == ring) {
                    wrong("the tile did not come from this ring".into());
                }
            }
            GpuOp::NamedBarrier { threads, .. } if threads % 32 != 0 || *threads == 0 || *threads > 32 * self.warps => {
                wrong("whole warps of the block take part".into());
            }
            GpuOp::SharedSlot { .. }
            | GpuOp::Commit
            | GpuOp::Wait { .. }
            | GpuOp::Release
            | GpuOp::Barrier
            | GpuOp::Ring { .. }
            | GpuOp::RingAcquire
            | GpuOp::RingWait
            | GpuOp::WgmmaFence
            | GpuOp::Blocks
            | GpuOp::NamedBarrier { .. }
            | GpuOp::GridBarrier => {}
        }
    }

    /// Errors in a copy in 16-byte chunks: its columns must be contiguous, all other strides
    /// multiples of a chunk; and if threads copy, the first column too.
    fn chunks(&self, i: Inst, cols: Option<usize>, by_threads: bool) -> Option<String> {
        let data = self.body.inst(i);
        let b = data.operands.get(1).and_then(|v| self.body.ty(*v).buffer())?;
        let chunk = i64::try_from(CHUNK / b.elem.size().max(1)).unwrap_or(1);
        let dense = cols.filter(|axis| b.is_dense(*axis));
        let Some(cols) = dense else { return Some("columns lie side by side".to_string()) };
        let mut others = b.neighbours().filter(|(axis, _)| *axis != cols);
        if let Some((_, stride)) = others.find(|(_, stride)| !stride.is_multiple_of(chunk)) {
            return Some(format!("the stride {stride} is not a multiple of {chunk} elements, {CHUNK} bytes"));
        }
        let first = data.operands.get(2 + cols)?;
        (by_threads && !is_multiple(self.body, *first, chunk))
            .then(|| format!("the first column is not proved a multiple of {chunk} elements, {CHUNK} bytes"))
    }

    /// The shape of a matmul: whole tiles of the matrix unit.
    fn unit(&mut self, i: Inst, rows: i64, cols: i64, exact: bool) {
        let data = self.body.inst(i);
        let (Some(a), Some(acc)) = (
            data.operands.first().and_then(|v| self.body.ty(*v).any_tile()),
            data.result.and_then(|v| self.body.ty(v).any_tile()),
        ) else {
            return;
        };
        let (m, n, k) = (acc.rows.capacity(), acc.cols.capacity(), a.cols.capacity());
        // A k step of the unit covers 32 bytes of a row.
        let step = if a.elem == Elem::F32 { 8 } else { 16 };
        let whole = if exact { m == rows && n <= 256 } else { m % rows == 0 };
        if !whole || n % cols != 0 || k % step != 0 {
            let name = data.op.info().name;
            self.sink.error(
                ErrorLocation::Inst(i),
                format!("{name}: a product of {m} x {n} x {k} is not made of whole tiles of the unit"),
            );
        }
    }

    /// Rule 20: offsets in shared memory.
    fn shared(&mut self) {
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for (_, i, data) in self.body.insts() {
            let Some(t) = data.result.and_then(|v| self.body.ty(v).any_tile()) else { continue };
            let align = match t.space {
                Space::Shared { swizzle: 128 } => 1024,
                Space::Shared { swizzle: 64 } => 512,
                Space::Shared { swizzle: 32 } => 256,
                _ => 16,
            };
            let ranges = match (&data.op, data.result.map(|v| self.body.ty(v))) {
                (Op::Gpu(GpuOp::SharedSlot { offset }), _) => vec![(u64::from(*offset), bytes(t), align)],
                (Op::Gpu(GpuOp::Ring { offset, barriers, .. }), Some(Type::Ring { stages, .. })) => {
                    let n = u64::from(*stages);
                    vec![(u64::from(*offset), bytes(t).saturating_mul(n), align), (u64::from(*barriers), 16 * n, 8)]
                }
                _ => continue,
            };
            for (start, size, align) in ranges {
                let end = start.saturating_add(size);
                if end > self.k.scratch {
                    self.sink.error(
                        ErrorLocation::Inst(i),
                        format!("ends at byte {end} of {} bytes of shared memory", self.k.scratch),
                    );
                }
                if start % align != 0 {
                    self.sink.error(ErrorLocation::Inst(i), format!("byte {start} is not aligned to {align}"));
                }
                if taken.iter().any(|(a, b)| start < *b && *a < end) {
                    self.sink.error(ErrorLocation::Inst(i), "overlaps other shared memory");
                }
                taken.push((start, end));
            }
        }
    }

    /// Rule 20: roles.
    fn roles(&mut self) {
        for b in &self.body.layout {
            let Terminator::Roles(roles) = &self.body.block(*b).terminator else { continue };
            let at = ErrorLocation::Terminator(*b);
            if roles.iter().map(|r| u64::from(r.warps)).sum::<u64>() != u64::from(self.warps) {
                self.sink.error(at, format!("the roles do not part the {} warps of the block", self.warps));
            }
            for r in roles {
                if r.warps % 4 != 0 {
                    self.sink.error(at, format!("\"{}\" is not made of groups of four warps", r.name));
                }
                if r.registers % 8 != 0 || !(24..=256).contains(&r.registers) {
                    self.sink.error(at, format!("{} registers: 24 to 256, a multiple of 8", r.registers));
                }
            }
            let of_role = |r: &Role| u64::from(r.registers).saturating_mul(32 * u64::from(r.warps));
            let registers = roles.iter().map(of_role).fold(0, u64::saturating_add);
            if registers > 65_536 {
                self.sink.error(at, format!("the roles take {registers} registers of 65536"));
            }
            // Warps that have diverged do not synchronise again, and do not diverge further.
            let mut seen = vec![];
            let mut next: Vec<Block> = roles.iter().map(|r| r.target.block).collect();
            while let Some(n) = next.pop() {
                if seen.contains(&n) {
                    continue;
                }
                seen.push(n);
                let data = self.body.block(n);
                next.extend(data.terminator.targets().iter().map(|c| c.block));
                if matches!(data.terminator, Terminator::Roles(_)) {
                    self.sink.error(ErrorLocation::Terminator(n), "the warps have parted already");
                }
                for i in &data.insts {
                    let meets = match self.body.inst(*i).op {
                        Op::Gpu(GpuOp::Barrier) => true,
                        Op::Gpu(GpuOp::Wait { .. }) => self.waits_for_copies(*i),
                        _ => false,
                    };
                    if meets {
                        self.sink.error(ErrorLocation::Inst(*i), "the block meets, after its warps have parted");
                    }
                }
            }
        }
    }

    fn waits_for_copies(&self, i: Inst) -> bool {
        let group: Option<Value> = self.body.inst(i).operands.first().copied();
        group.is_some_and(|v| matches!(self.body.ty(v), Type::Group(crate::tile::Queue::Copy, _)))
    }
}
