//! Rings of tiles: barriers in shared memory (`mbarrier`), TMA copies, named barriers.
//!
//! In: rings with their stages, uses of a ring by iteration. Out: `mbarrier` instructions. Stage
//! and phase of iteration `n` follow from `n`: its tile is number `n` mod stages, and the barriers
//! of that tile are in phase `n` / stages. A wait for parity `p` ends when the phase of parity `p`
//! has completed; so initially empty tiles are acquired with the parity of the phase before the
//! first one, which counts as completed.
//!
//! A *full* barrier expects one arrival, of the thread that starts the copies and sets the expected
//! bytes; an *empty* one expects an arrival of each reading warp.

use super::TensorMap;
use super::code::{Barriers, Code, Number, ROLE_BARRIERS, Ring, Shared, ValueLocation, address, int, word};
use crate::ptx::words::{Compare, Hint, Multicast, Rank};
use crate::ptx::{self, Op as P, Operand, ParamType, Reg, RegType, Type as W};
use crate::scalar::BinaryOp;
use crate::tile::{GpuOp, InstData, Op, Type, Value};

impl Code<'_> {
    /// Allocates a ring; its barriers are initialised before the warps split into roles.
    pub(super) fn ring(&mut self, data: &InstData, offset: u32, barriers: u32) -> Result<(), String> {
        let v = data.result.ok_or("no result")?;
        let Type::Ring { stages, tile } = self.body.ty(v) else { return Err("no ring".into()) };
        let panels = self.panels(tile)?;
        let ring = Ring {
            tiles: i64::from(offset),
            barriers: i64::from(barriers),
            stages: i64::from(*stages),
            bytes: panels.count() * panels.panel_bytes(),
        };
        self.held.insert(v, ValueLocation::Ring(ring));
        Ok(())
    }

    /// Initialises the barriers of all rings.
    pub(super) fn begin_barriers(&mut self) -> Result<(), String> {
        let mut rings = Vec::new();
        for (_, _, data) in self.body.insts() {
            if let (Op::Gpu(GpuOp::Ring { readers, .. }), Some(v)) = (&data.op, data.result)
                && let Some(ValueLocation::Ring(ring)) = self.held.get(&v)
            {
                rings.push((*ring, i64::from(*readers)));
            }
        }
        if rings.is_empty() {
            return Ok(());
        }
        self.e.kernel.comment("the barriers of the rings");
        let base = self.shared_base(0);
        let thread = self.group.thread;
        let others = self.compare32("others", Compare::Ne, thread, 0);
        let end = self.label("barriers");
        self.e.kernel.push_if(others, false, P::Bra {}, [Operand::Label(end.clone())]);
        for (ring, readers) in rings {
            for n in 0..ring.stages {
                self.push(P::BarrierInit {}, [address(base, ring.barriers + 8 * n)?, int(1)]);
            }
            for n in ring.stages..2 * ring.stages {
                self.push(P::BarrierInit {}, [address(base, ring.barriers + 8 * n)?, int(readers)]);
            }
        }
        self.push(P::FenceBarrierInit {}, []);
        self.e.kernel.label(end);
        self.push(P::BarSync {}, [int(0)]);
        Ok(())
    }

    fn ring_of(&self, data: &InstData) -> Result<Ring, String> {
        match data.operands.first().and_then(|v| self.held.get(v)) {
            Some(ValueLocation::Ring(ring)) => Ok(*ring),
            _ => Err("no ring".into()),
        }
    }

    /// The tile of an iteration of a ring, with its barriers.
    fn stage(&mut self, name: &str, ring: Ring, n: Number) -> Result<Shared, String> {
        let stages = Number::Known(ring.stages);
        let stage = self.arithmetic("stage", BinaryOp::Rem, n, stages)?;
        let phase = self.arithmetic("phase", BinaryOp::Div, n, stages)?;
        let (stage, phase) = (self.low32("stage", stage), self.low32("phase", phase));
        let stage = self.in_register32("stage", stage);
        let phase = self.in_register32("phase", phase);
        let parity = self.and32("parity", phase, 1);
        let tiles = self.shared_base(ring.tiles);
        let way = self.mul32(name, stage, ring.bytes);
        let at = self.add32(name, way, word(tiles));
        let barriers = self.shared_base(ring.barriers);
        let way = self.shl32("full", stage, 3);
        let full = self.add32("full", way, word(barriers));
        let empty = i32::try_from(8 * ring.stages).map_err(|_| "a ring has too many stages")?;
        Ok(Shared { at, barriers: Some(Barriers { full, empty, parity }) })
    }

    /// Waits until the phase of a parity has completed.
    pub(super) fn wait_for_phase(&mut self, barrier: Reg, offset: i64, parity: Operand) -> Result<(), String> {
        let again = self.label("wait");
        self.e.kernel.label(again.clone());
        let over = self.make("over", RegType::Pred, P::BarrierTryWait {}, &[address(barrier, offset)?, parity]);
        self.e.kernel.push_if(over, true, P::Bra {}, [Operand::Label(again)]);
        Ok(())
    }

    /// Waits until a ring's tile is empty.
    pub(super) fn ring_acquire(&mut self, data: &InstData) -> Result<(), String> {
        let (ring, v) = (self.ring_of(data)?, data.result.ok_or("no result")?);
        let n = self.index(*data.operands.get(1).ok_or("an operand is missing")?)?;
        let name = self.name(v);
        let shared = self.stage(&name, ring, n)?;
        let barriers = shared.barriers.ok_or("a ring without barriers")?;
        let before = self.make("before", RegType::B32, P::Xor { ty: W::B32 }, &[word(barriers.parity), int(1)]);
        self.wait_for_phase(barriers.full, i64::from(barriers.empty), word(before))?;
        self.held.insert(v, ValueLocation::Shared(shared));
        Ok(())
    }

    /// Waits until a ring's tile is full.
    pub(super) fn ring_wait(&mut self, data: &InstData) -> Result<(), String> {
        let (ring, v) = (self.ring_of(data)?, data.result.ok_or("no result")?);
        let n = self.index(*data.operands.get(1).ok_or("an operand is missing")?)?;
        let name = self.name(v);
        let shared = self.stage(&name, ring, n)?;
        let barriers = shared.barriers.ok_or("a ring without barriers")?;
        self.wait_for_phase(barriers.full, 0, word(barriers.parity))?;
        self.held.insert(v, ValueLocation::Shared(shared));
        Ok(())
    }

    /// Signals that this warp no longer reads a tile.
    pub(super) fn ring_release(&mut self, data: &InstData) -> Result<(), String> {
        let tile = self.shared(*data.operands.get(1).ok_or("an operand is missing")?)?;
        let barriers = tile.barriers.ok_or("a tile without a ring")?;
        let lane = self.group.lane;
        let first = self.compare32("first", Compare::Eq, lane, 0);
        let state = self.reg("state", RegType::B64);
        let at = address(barriers.full, i64::from(barriers.empty))?;
        self.e.kernel.push_if(first, false, P::BarrierArrive {}, [word(state), at]);
        Ok(())
    }

    /// Fills a ring's tile by TMA: one box for each panel.
    pub(super) fn tma_load(&mut self, data: &InstData, axes: [Option<usize>; 2]) -> Result<(), String> {
        let [Some(rows), Some(cols)] = axes else {
            return Err("a box of a single row or column".into());
        };
        if !self.group.is_single {
            return Err("a TMA copy must be issued by a single-thread role".into());
        }
        let (slot, buffer) = match data.operands.as_slice() {
            [slot, buffer, ..] => (*slot, *buffer),
            _ => return Err("an operand is missing".into()),
        };
        let t = self.tile(slot)?.clone();
        let (panels, to) = (self.panels(&t)?, self.shared(slot)?);
        let barriers = to.barriers.ok_or("the destination is not in a ring")?;
        let indices: Vec<Value> = data.operands.iter().skip(2).copied().collect();
        let ty = self.body.ty(buffer).buffer().ok_or("no buffer")?;
        if !ty.is_dense(cols) {
            return Err("a box of columns that are not contiguous".into());
        }
        let size = i64::try_from(t.elem.size()).unwrap_or(1);
        let width = panels.pitch() / size;
        let box_extent = |n: i64| u32::try_from(n).ok().filter(|n| (1..=256).contains(n)).ok_or("a box is too large");
        // Columns, rows, and the other axes except broadcast ones.
        let mut axes = vec![cols, rows];
        let mut extents = vec![box_extent(width)?, box_extent(panels.rows)?];
        for (axis, stride) in ty.strides.iter().enumerate().rev() {
            if axis != rows && axis != cols && stride.as_const() != Some(0) {
                axes.push(axis);
                extents.push(1);
            }
        }
        let rank = u8::try_from(axes.len()).ok().filter(|n| *n <= 5).ok_or("a box of too many axes")?;
        let param = self.kernel.params.iter().position(|p| p.value == buffer).ok_or("no parameter")?;
        let map = TensorMap { param, axes: axes.clone(), extents, elem: t.elem, swizzle: panels.swizzle };
        let map = self.map(map);
        let bytes = panels.count() * panels.panel_bytes();
        self.push(P::BarrierArriveExpect {}, [Operand::Sink, address(barriers.full, 0)?, int(bytes)]);
        let name = format!("map{map}");
        let map = self.make(&name, RegType::B64, P::Mov { ty: W::B64 }, &[Operand::Symbol(name.clone())]);
        let map = self.make(&name, RegType::B64, P::CvtaParam {}, &[word(map)]);
        let mut at = Vec::new();
        for axis in &axes {
            let n = self.index(*indices.get(*axis).ok_or("an index is missing")?)?;
            let low = self.low32("at", n);
            at.push(self.in_register32("at", low));
        }
        for panel in 0..panels.count() {
            let mut at = at.clone();
            if panel > 0
                && let Some(first) = at.first_mut()
            {
                *first = self.add32("at", *first, int(panel * width));
            }
            let room = self.add32("room", to.at, int(panel * panels.panel_bytes()));
            let op = P::BoxLoad { rank: Rank(rank), multicast: Multicast::One, hint: Hint::None };
            self.push(op, [address(room, 0)?, Operand::Tensor(map, at), address(barriers.full, 0)?]);
        }
        Ok(())
    }

    /// The index of a tensor map; equal maps are shared.
    fn map(&mut self, map: TensorMap) -> usize {
        if let Some(n) = self.maps.iter().position(|m| *m == map) {
            return n;
        }
        self.maps.push(map);
        let n = self.maps.len() - 1;
        self.e.kernel.params.push(ptx::Param { name: format!("map{n}"), ty: ParamType::Bytes(64, 128) });
        n
    }

    pub(super) fn named_barrier(&mut self, data: &InstData, threads: u32, wait: bool) -> Result<(), String> {
        let n = self.index(*data.operands.first().ok_or("an operand is missing")?)?;
        // With the number in a register, the hardware reserves all barriers.
        let Number::Known(n) = n else { return Err("the number of a named barrier must be a constant".into()) };
        if !(0..ROLE_BARRIERS).contains(&n) {
            return Err(format!("barrier {n}, but there are only {ROLE_BARRIERS}"));
        }
        let operands = [int(n), int(i64::from(threads))];
        if wait {
            self.push(P::BarSync {}, operands);
        } else {
            self.push(P::BarArrive {}, operands);
        }
        Ok(())
    }
}
