//! Persistent kernels: the inlined code of the kernels that they launch, and barriers of the whole
//! grid.
//!
//! In: the launches, windows and barriers of such a kernel. Out: PTX. The placement of barriers is
//! given by the tile IR.
//!
//! **A launch** is a grid-stride loop of each block over points, with the kernel's code inside. It
//! uses as many threads as the kernel has; the other warps of the block skip it. Launches share
//! memory, so there is a barrier before each and between points. Only buffers that the whole kernel
//! takes as `in` are read through the read-only path (`ld.global.nc`): a barrier would not refresh
//! it for memory that any launch writes.
//!
//! **A barrier of the grid** counts arrivals in global memory, in a counter that each launch of the
//! whole kernel leaves at 0 (`super::info`):
//!
//! ```text
//! bar.sync 0                                   // what the block's threads wrote comes before ...
//! thread 0:
//!   red.release.gpu.add [arrivals], 1          // ... its arrival,
//!   until ld.acquire.gpu [arrivals] >= target  // which comes before what is done after all have arrived,
//! bar.sync 0                                   // by any thread
//! ```
//!
//! The target grows by the number of blocks from barrier to barrier, so nothing is reset in
//! between. The last block to end, found by a second counter, sets both to 0.
//!
//! **A failed check** in a block must not keep others waiting. The block sets a bit of the arrivals
//! above any possible count, and continues to the next barrier. From then on no block waits, and
//! each ends at its next barrier, where it finds the bit. Thread 0 decides for its block, through a
//! flag in shared memory: otherwise threads might read different values.

use super::emit::{Emit, at};
use super::kernel::{Code, CodeValue, GridMeeting, SHARED, SHARED_ALIGN, WARP};
use super::multiples::Multiples;
use crate::ptx::words::{Atomic, Compare, Ordering, Sat, Scope, Space, Vector};
use crate::ptx::{Op as P, Operand, RegType, Special, Type as PtxType};
use crate::runtime::abi::cuda::fault;
use crate::tile::text::{lines_of_kernel, names_of_kernel};
use crate::tile::{InstData, Kernel, Op, PlanOp, State, Type, Value};

/// The bit of the arrivals that makes all blocks leave.
const LEAVE: u32 = 62;
/// Bytes of shared memory before the launches' part, for the flag by which a block decides to
/// leave.
const OWN_SHARED: u32 = SHARED_ALIGN;

fn word(n: usize) -> i32 {
    i32::try_from(8 * n).unwrap_or(0)
}

impl Code<'_> {
    /// Prologue of a persistent kernel.
    pub(super) fn begin_meetings(&mut self, kernel: &Kernel) -> Result<(), String> {
        let pointer = self.read_parameter("fault", "fault");
        let fault = self.e.make("fault", P::CvtaToGlobal {}, PtxType::U64, &[pointer]);
        let count = Operand::Special(Special::Nctaid(0));
        let few = self.e.make("blocks", P::Mov { ty: PtxType::U32 }, PtxType::U32, &[count]);
        let op = P::CvtInt { sat: Sat::Wrap, to: PtxType::U64, from: PtxType::U32 };
        let wide = self.e.make("blocks", op, PtxType::U64, std::slice::from_ref(&few));
        let target = self.e.reg("target", RegType::B64);
        self.e.assign(target, PtxType::U64, &Operand::Int(0));
        let launched = kernel.launched().filter_map(|name| self.kernels.iter().find(|k| k.name == name));
        let checks = |k: &Kernel| k.body.insts().any(|(_, _, d)| matches!(d.op, Op::CheckIndex { .. }));
        let leave = match checks(kernel) || launched.into_iter().any(checks) {
            false => None,
            true => {
                let symbol = Operand::Symbol(SHARED.to_string());
                let own = self.e.make("leave", P::Mov { ty: PtxType::U32 }, PtxType::U32, &[symbol]);
                self.shared = self.e.add("shared", PtxType::U32, &own, &Operand::Int(i64::from(OWN_SHARED)));
                Some(own)
            }
        };
        // Launches need as much space as the largest of them.
        self.transient = leave.as_ref().map_or(0, |_| OWN_SHARED);
        self.transient_bytes = u32::try_from(kernel.scratch).map_err(|_| "its shared memory is too large")?;
        if leave.is_some() {
            self.transient_bytes = self.transient_bytes.max(16);
        }
        self.meeting = Some(GridMeeting { fault, blocks: [wide, few], target, leave, met: false });
        Ok(())
    }

    /// Begins another block of the body: no barrier is known to precede it.
    pub(super) fn apart(&mut self) {
        if let Some(meeting) = &mut self.meeting {
            meeting.met = false;
        }
    }

    pub(super) fn grid_barrier(&mut self) {
        let Some(mut meeting) = self.meeting.take() else { return };
        let (ty, e) = (PtxType::U64, &mut self.e);
        let target = Operand::Reg(meeting.target);
        e.push(P::Add { sat: Sat::Wrap, ty }, [target.clone(), target.clone(), meeting.blocks[0].clone()]);
        let arrivals = at(&meeting.fault, word(fault::ARRIVALS));
        e.barrier();
        let (poll, together) = (e.new_label("poll"), e.new_label("together"));
        let other = e.compare("other", Compare::Ne, PtxType::U32, &self.tid, &Operand::Int(0));
        e.jump_if(&other, false, false, &together);
        let (scope, space) = (Scope::Gpu, Space::Global);
        let arrive = P::Red { order: Ordering::Release, scope, space, op: Atomic::Add, ty };
        e.push(arrive, [arrivals.clone(), Operand::Int(1)]);
        e.label(&poll);
        let load = P::LdOrdered { order: Ordering::Acquire, scope, space, ty };
        let seen = e.make("arrivals", load, ty, &[arrivals]);
        let fewer = e.compare("fewer", Compare::Lt, ty, &seen, &target);
        e.jump_if(&fewer, false, false, &poll);
        if let Some(leave) = &meeting.leave {
            let bit = e.make("leave", P::Shr { ty }, ty, &[seen, Operand::Int(i64::from(LEAVE))]);
            let bit = e.low("leave", &bit);
            let bit = e.in_reg(&bit, PtxType::U32);
            e.push(P::StShared { vector: Vector::One, ty: PtxType::U32 }, [at(leave, 0), bit]);
        }
        e.label(&together);
        e.barrier();
        if let Some(leave) = &meeting.leave {
            let load = P::LdShared { vector: Vector::One, ty: PtxType::U32 };
            let bit = e.make("leave", load, PtxType::U32, &[at(leave, 0)]);
            let leaves = e.compare("leaves", Compare::Ne, PtxType::U32, &bit, &Operand::Int(0));
            e.jump_if(&leaves, false, true, &self.end);
        }
        meeting.met = true;
        self.meeting = Some(meeting);
    }

    /// Makes all blocks leave after a failed check. Executed by one thread of a block.
    pub(super) fn let_all_leave(&mut self) {
        let Some(meeting) = &self.meeting else { return };
        let (scope, space) = (Scope::Gpu, Space::Global);
        let op = P::Red { order: Ordering::Relaxed, scope, space, op: Atomic::Or, ty: PtxType::B64 };
        let arrivals = at(&meeting.fault, word(fault::ARRIVALS));
        self.e.push(op, [arrivals, Operand::Int(1 << LEAVE)]);
    }

    /// Epilogue of a persistent kernel: the last block resets the counters of barriers.
    pub(super) fn end_meetings(&mut self) {
        let Some(meeting) = self.meeting.take() else { return };
        let (ty, e) = (PtxType::U64, &mut self.e);
        let [arrivals, ended] = [fault::ARRIVALS, fault::ENDED].map(|n| at(&meeting.fault, word(n)));
        let out = e.new_label("out");
        let other = e.compare("other", Compare::Ne, PtxType::U32, &self.tid, &Operand::Int(0));
        e.jump_if(&other, false, false, &out);
        let (scope, space) = (Scope::Gpu, Space::Global);
        let count = P::Atom { order: Ordering::AcquireRelease, scope, space, op: Atomic::Add, ty };
        let before = e.make("ended", count, ty, &[ended.clone(), Operand::Int(1)]);
        let all = e.add("ended", ty, &before, &Operand::Int(1));
        let others = e.compare("others", Compare::Ne, ty, &all, &meeting.blocks[0]);
        e.jump_if(&others, false, false, &out);
        let zero = e.in_reg(&Operand::Int(0), ty);
        let store = P::StOrdered { order: Ordering::Relaxed, scope, space, ty };
        e.push(store, [arrivals, zero.clone()]);
        e.push(store, [ended, zero]);
        e.label(&out);
    }

    /// A window of a buffer.
    pub(super) fn view(&mut self, data: &InstData) -> Result<(), String> {
        let Op::Plan(PlanOp::View { offset, strides }) = &data.op else { return Err("no window".into()) };
        let (Some(v), Some((buffer, indices))) = (data.result, data.operands.split_first()) else {
            return Err("a window without a buffer".into());
        };
        let Type::Buffer(ty) = self.body.ty(v).clone() else { return Err("a window without a type".into()) };
        let (mut base, _, elem, read_only) = self.buffer(*buffer)?;
        let skipped = self.dim(offset)?;
        let bytes = self.stride_bytes(&skipped, elem);
        base = self.e.add("at", PtxType::S64, &base, &bytes);
        for (i, stride) in indices.iter().zip(strides) {
            let (i, stride) = (self.index(*i)?, self.dim(stride)?);
            let bytes = self.stride_bytes(&stride, elem);
            base = self.e.mad("at", &i, &bytes, &base);
        }
        let strides = ty.strides.iter().map(|d| self.dim(d)).collect::<Result<_, _>>()?;
        self.values[v] = Some(CodeValue::Buffer { base, strides, elem, read_only });
        Ok(())
    }

    /// Inlines a kernel, its points divided among the blocks.
    pub(super) fn launch(&mut self, name: &str, operands: &[Value]) -> Result<(), String> {
        let kernels = self.kernels;
        let kernel = kernels.iter().find(|k| k.name == name).ok_or_else(|| format!("there is no kernel @{name}"))?;
        let State::Gpu { warps, .. } = kernel.state else { return Err(format!("@{name} is not scheduled for a GPU")) };
        let Some(meeting) = self.meeting.clone() else { return Err("a launch outside of a persistent kernel".into()) };
        if !meeting.met {
            self.e.barrier();
        }
        let ty = PtxType::U32;
        let mut total = Operand::Int(1);
        for g in &kernel.grid {
            let count = self.count(g)?;
            total = self.e.mul("points", ty, &total, &count);
        }
        let threads = warps * WARP;
        let (points, next, launched) =
            (self.e.new_label("points"), self.e.new_label("next"), self.e.new_label("launched"));
        if threads < self.threads {
            let idle = self.e.compare("idle", Compare::Ge, ty, &self.tid, &Operand::Int(i64::from(threads)));
            self.e.jump_if(&idle, false, false, &launched);
            self.e.meeting = Some(threads);
        }
        let point = self.e.reg("point", RegType::B32);
        self.e.assign(point, ty, &Operand::Special(Special::Ctaid(0)));
        self.e.label(&points);
        let none = self.e.compare("none", Compare::Ge, ty, &Operand::Reg(point), &total);
        self.e.jump_if(&none, false, true, &launched);

        let scratch = u32::try_from(kernel.scratch).map_err(|_| "its shared memory is too large")?;
        let mut code = Code {
            e: std::mem::replace(&mut self.e, Emit::new("")),
            body: &kernel.body,
            multiples: Multiples::analyse(kernel),
            rows_by_warp: super::mapping::rows_by_warp(kernel, warps),
            threads,
            tid: self.tid.clone(),
            shared: self.shared.clone(),
            transient: scratch.next_multiple_of(64),
            transient_bytes: 0,
            symbols: self.symbols.clone(),
            values: Default::default(),
            names: names_of_kernel(kernel),
            lines: lines_of_kernel(kernel),
            files: self.files,
            end: next.clone(),
            kernels,
            meeting: Some(meeting),
        };
        for (p, v) in kernel.params.iter().zip(operands) {
            code.values[p.value] = self.values[*v].clone();
        }
        let done = code.place_in_grid(kernel, Operand::Reg(point)).and_then(|()| code.blocks(kernel));
        let used = if code.transient_bytes > 0 { code.transient + code.transient_bytes } else { scratch };
        self.e = code.e;
        done?;
        self.transient_bytes = self.transient_bytes.max(used);

        self.e.label(&next);
        if used > 0 {
            self.e.barrier();
        }
        let op = P::Add { sat: Sat::Wrap, ty };
        let step = self.meeting.as_ref().map_or(Operand::Int(1), |m| m.blocks[1].clone());
        self.e.push(op, [Operand::Reg(point), Operand::Reg(point), step]);
        self.e.jump(&points);
        self.e.label(&launched);
        self.e.meeting = None;
        self.apart();
        Ok(())
    }
}
