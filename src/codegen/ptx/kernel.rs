//! Compiles a kernel with runs: parameters, grid indices, indices and scalars, control flow.
//!
//! In: a kernel with runs, scheduled for a GPU. Out: a PTX kernel and its launch info.
//!
//! All threads of a block compute indices and scalars redundantly and take the same path through
//! the blocks of the body. Work on elements is divided among them: runs ([`super::run`]), matmuls
//! ([`super::dot`]). Barriers precede operations that read what other threads wrote, or overwrite
//! what they read ([`super::hazards`]).

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;

use super::emit::{Emit, at};
use super::hazards::{Hazards, Meeting};
use super::info::{Grid, KernelInfo, ParamInfo};
use super::lanes::Lane;
use super::multiples::Multiples;
use crate::ptx::words::{Compare, Ordering, Sat, Scope, Space, StoreCache, Vector};
use crate::ptx::{self, Op as P, Operand, ParamType, Reg, RegType, Special, Threads, Type as PtxType};
use crate::shape::Elem;
use crate::source::Loc;
use crate::tile::alignment::needed;
use crate::tile::text::{lines_of_kernel, names_of_kernel};
use crate::tile::{
    Block, BlockCall, Body, DotMode, Extent, GpuOp, GridAxis, Inst, InstData, Kernel, Op, ParamMode, PlanOp, State,
    Terminator, TileType, Type, Value,
};

/// The name of the block's shared memory.
pub(super) const SHARED: &str = "scratch";
/// Its alignment in bytes.
pub(super) const SHARED_ALIGN: u32 = 128;
/// The threads of a warp.
pub(super) const WARP: u32 = 32;
/// Registers of a multiprocessor (CUDA C++ Programming Guide, "Technical Specifications per Compute
/// Capability").
const REGISTERS: u32 = 65536;

/// The PTX counterpart of a tile IR value. Tiles have none: they are in shared memory, or inside a
/// run.
#[derive(Clone, Debug)]
pub(super) enum CodeValue {
    /// An index, 64 bits.
    Index(Operand),
    Scalar(Lane),
    /// A buffer: address of its first element, strides in elements, element type, is it never
    /// written?
    Buffer {
        base: Operand,
        strides: Vec<Operand>,
        elem: Elem,
        read_only: bool,
    },
}

/// State of barriers of the grid.
#[derive(Clone)]
pub(super) struct GridMeeting {
    /// Address of the fault report, followed by the counters of barriers.
    pub(super) fault: Operand,
    /// Blocks of the grid, in 64 bits and in 32.
    pub(super) blocks: [Operand; 2],
    /// Number of arrivals that the next barrier waits for.
    pub(super) target: Reg,
    /// The flag in shared memory, if some check can fail.
    pub(super) leave: Option<Operand>,
    /// Was a barrier of the block just emitted?
    pub(super) met: bool,
}

/// A kernel under construction.
pub(super) struct Code<'a> {
    pub(super) e: Emit,
    /// The tile IR being compiled.
    pub(super) body: &'a Body,
    /// Known divisors of its indices.
    pub(super) multiples: Multiples,
    /// Does each warp own its rows, in all runs?
    pub(super) rows_by_warp: bool,
    /// Threads of a block.
    pub(super) threads: u32,
    /// The number of this thread in its block.
    pub(super) tid: Operand,
    /// Address of shared memory.
    pub(super) shared: Operand,
    /// Offset of temporary storage that is used within one operation: partial results, slices of
    /// operands.
    pub(super) transient: u32,
    /// Size of the temporary storage in bytes, so far.
    pub(super) transient_bytes: u32,
    pub(super) symbols: BTreeMap<String, Operand>,
    pub(super) values: SecondaryMap<Value, Option<CodeValue>>,
    pub(super) names: SecondaryMap<Value, String>,
    pub(super) lines: BTreeMap<Inst, String>,
    pub(super) files: (&'a str, &'a [String]),
    pub(super) end: String,
    /// The kernels of the module, for one that launches others.
    pub(super) kernels: &'a [Kernel],
    /// State of grid barriers, if it has any.
    pub(super) meeting: Option<GridMeeting>,
}

/// Compiles a kernel, one of `kernels`.
///
/// # Errors
/// IR that the verifier rejects, or that is not supported.
pub(super) fn kernel(
    kernel: &Kernel,
    kernels: &[Kernel],
    name: &str,
    files: (&str, &[String]),
) -> Result<(ptx::Kernel, KernelInfo), String> {
    let State::Gpu { warps, .. } = kernel.state else { return Err("it is not scheduled for a GPU".into()) };
    let threads = warps * WARP;
    let mut e = Emit::new(name);
    e.kernel.threads = Threads::Exactly([threads, 1, 1]);
    // As many blocks as fit with 128 registers per thread; otherwise ptxas uses fewer registers,
    // and spills.
    e.kernel.min_blocks = Some((REGISTERS / 128 / threads).max(1));
    let scratch = u32::try_from(kernel.scratch).map_err(|_| "its shared memory is too large")?;
    let mut code = Code {
        end: e.new_label("end"),
        e,
        body: &kernel.body,
        multiples: Multiples::analyse(kernel),
        rows_by_warp: super::mapping::rows_by_warp(kernel, warps),
        threads,
        tid: Operand::Int(0),
        shared: Operand::Int(0),
        transient: scratch.next_multiple_of(64),
        transient_bytes: 0,
        symbols: BTreeMap::new(),
        values: SecondaryMap::new(),
        names: names_of_kernel(kernel),
        lines: lines_of_kernel(kernel),
        files,
        kernels,
        meeting: None,
    };
    let params = code.parameters(kernel)?;
    if kernel.is_persistent() {
        code.begin_meetings(kernel)?;
    } else if !kernel.grid.is_empty() {
        let point = Operand::Special(Special::Ctaid(0));
        let point = code.e.make("point", P::Mov { ty: PtxType::U32 }, PtxType::U32, &[point]);
        code.place_in_grid(kernel, point)?;
    }
    code.blocks(kernel)?;
    let end = code.end.clone();
    code.e.label(&end);
    code.end_meetings();
    code.e.push(P::Ret {}, []);
    let dynamic_shared = match code.transient_bytes {
        0 => scratch,
        more => code.transient + more,
    };
    let info = KernelInfo {
        name: name.to_string(),
        kernel: kernel.name.clone(),
        symbols: kernel.symbols.clone(),
        params,
        threads: [threads, 1, 1],
        grid: Grid::for_kernel(kernel),
        static_shared: 0,
        dynamic_shared,
        tensor_maps: Vec::new(),
        cluster: None,
    };
    Ok((code.e.kernel, info))
}

impl Code<'_> {
    /// The name of a value in the tile IR text, as a register name: a number gets a letter in
    /// front.
    pub(super) fn name(&self, v: Value) -> String {
        let name = &self.names[v];
        if name.bytes().all(|c| c.is_ascii_digit()) { format!("v{name}") } else { name.clone() }
    }

    /// Adds a comment with the next operation.
    pub(super) fn comment(&mut self, i: Inst, depth: usize) {
        let Some(line) = self.lines.get(&i) else { return };
        let loc = self.body.inst(i).loc;
        let text = if loc == Loc::default() || loc.line == 0 {
            line.clone()
        } else {
            format!("{line}  {}:{}:{}", loc.file_name(self.files.0, self.files.1), loc.line, loc.column)
        };
        let dots = if depth > 0 { "| " } else { "" };
        self.e.kernel.comment(&format!("{dots}{text}"));
    }

    fn parameters(&mut self, kernel: &Kernel) -> Result<Vec<ParamInfo>, String> {
        let mut infos = Vec::new();
        for s in &kernel.symbols {
            let name = self.parameter(&format!("dim_{s}"), ParamType::Scalar(PtxType::U64));
            let x = self.read_parameter(s, &name);
            self.symbols.insert(s.clone(), x);
        }
        for p in &kernel.params {
            let own = self.name(p.value);
            let value = match self.body.ty(p.value) {
                Type::Buffer(ty) => {
                    let align = u32::try_from(needed(kernel, p.value)).unwrap_or(1);
                    let name = self.parameter(&format!("buffer_{own}"), ParamType::Pointer(align));
                    let pointer = self.read_parameter(&own, &name);
                    let base = self.e.make(&own, P::CvtaToGlobal {}, PtxType::U64, &[pointer]);
                    let (read, written) = (p.mode != ParamMode::Out, p.mode != ParamMode::In);
                    infos.push(ParamInfo::Buffer { read, written });
                    let strides = ty.strides.iter().map(|d| self.dim(d)).collect::<Result<_, String>>()?;
                    CodeValue::Buffer { base, strides, elem: ty.elem, read_only: !written }
                }
                Type::Index => {
                    infos.push(ParamInfo::Index);
                    let name = self.parameter(&format!("index_{own}"), ParamType::Scalar(PtxType::U64));
                    CodeValue::Index(self.read_parameter(&own, &name))
                }
                _ => return Err("a parameter is neither a buffer nor an index".into()),
            };
            self.values[p.value] = Some(value);
        }
        self.parameter("fault", ParamType::Pointer(8));
        self.tid =
            self.e.make("thread", P::Mov { ty: PtxType::U32 }, PtxType::U32, &[Operand::Special(Special::Tid(0))]);
        if kernel.scratch > 0 {
            let symbol = Operand::Symbol(SHARED.to_string());
            self.shared = self.e.make("shared", P::Mov { ty: PtxType::U32 }, PtxType::U32, &[symbol]);
        }
        Ok(infos)
    }

    /// Declares a parameter; returns its name.
    fn parameter(&mut self, wish: &str, ty: ParamType) -> String {
        let clean: String = wish.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let mut name = clean.clone();
        let mut n = 1;
        while self.e.kernel.params.iter().any(|p| p.name == name) {
            n += 1;
            name = format!("{clean}_{n}");
        }
        self.e.kernel.params.push(ptx::Param { name: name.clone(), ty });
        name
    }

    pub(super) fn read_parameter(&mut self, name: &str, parameter: &str) -> Operand {
        let address = at(&Operand::Symbol(parameter.to_string()), 0);
        self.e.make(name, P::LdParam { ty: PtxType::U64 }, PtxType::U64, &[address])
    }

    /// Delinearises the block's number into the indices of its point. The number and the extent of
    /// each axis have 31 bits.
    pub(super) fn place_in_grid(&mut self, kernel: &Kernel, point: Operand) -> Result<(), String> {
        let mut rest = point;
        let from = P::CvtInt { sat: Sat::Wrap, to: PtxType::S64, from: PtxType::U32 };
        for (n, g) in kernel.grid.iter().enumerate().rev() {
            let name = self.name(g.value);
            let mut place = rest.clone();
            if n > 0 {
                // The remaining quotient is the index of the first axis.
                let count = self.count(g)?;
                let ty = PtxType::U32;
                place = self.e.make(&name, P::Rem { ty }, ty, &[rest.clone(), count.clone()]);
                rest = self.e.make("rest", P::Div { ty }, ty, &[rest, count]);
            }
            let wide = self.e.make(&name, from, PtxType::S64, &[place]);
            self.values[g.value] = Some(CodeValue::Index(wide));
        }
        Ok(())
    }

    /// The points of an axis, in 32 bits.
    pub(super) fn count(&mut self, g: &GridAxis) -> Result<Operand, String> {
        let extent = self.dim(&g.extent)?;
        let sum = self.e.add("extent", PtxType::S64, &extent, &Operand::Int(g.step.max(1) - 1));
        let count = match (&sum, g.step.max(1)) {
            (sum, 1) => sum.clone(),
            (Operand::Int(n), step) => Operand::Int(n.div_euclid(step)),
            // An extent is not negative, so a shift replaces the expensive division.
            (sum, step) if step.count_ones() == 1 => {
                let bits = Operand::Int(i64::from(step.trailing_zeros()));
                let op = P::Shr { ty: PtxType::U64 };
                self.e.make("count", op, PtxType::S64, &[sum.clone(), bits])
            }
            (sum, step) => {
                let op = P::Div { ty: PtxType::S64 };
                self.e.make("count", op, PtxType::S64, &[sum.clone(), Operand::Int(step)])
            }
        };
        Ok(self.e.low("count", &count))
    }

    pub(super) fn blocks(&mut self, kernel: &Kernel) -> Result<(), String> {
        let body = self.body;
        let order = body.reverse_postorder();
        let mut labels: SecondaryMap<Block, String> = SecondaryMap::new();
        for (n, block) in order.iter().enumerate() {
            let data = body.block(*block);
            let wish = if data.name.is_empty() { format!("bb{n}") } else { data.name.clone() };
            labels[*block] = self.e.new_label(&wish);
            for v in &data.args {
                match body.ty(*v) {
                    Type::Index => {
                        let reg = self.e.reg(&self.name(*v), RegType::B64);
                        self.values[*v] = Some(CodeValue::Index(Operand::Reg(reg)));
                    }
                    Type::Tile(_) => {}
                    _ => return Err("a block parameter is neither an index nor a tile".into()),
                }
            }
        }
        let mut hazards = Hazards::analyse(kernel, self.rows_by_warp);
        for (n, block) in order.iter().enumerate() {
            if n > 0 {
                let label = labels[*block].clone();
                self.e.label(&label);
            }
            self.apart();
            hazards.start(*block);
            for inst in &body.block(*block).insts {
                self.comment(*inst, 0);
                if let Some(who) = hazards.before(*inst) {
                    self.meet(who);
                }
                self.operation(*inst)?;
            }
            let next = order.get(n + 1).copied();
            self.terminator(&body.block(*block).terminator, &labels, next)?;
        }
        Ok(())
    }

    pub(super) fn meet(&mut self, who: Meeting) {
        match who {
            Meeting::Warp => self.e.barrier_of_warp(),
            Meeting::Block => self.e.barrier(),
        }
    }

    fn operation(&mut self, inst: Inst) -> Result<(), String> {
        let body = self.body;
        let data = body.inst(inst);
        match &data.op {
            Op::Run { rows, cols, insts } => self.run(*rows, *cols, insts),
            Op::Dot { mode: Some(DotMode::Split) } => self.split(data),
            Op::Dot { .. } => self.dot(data),
            Op::Transpose => self.transpose(data),
            Op::Element => self.element(data),
            Op::Plan(PlanOp::Launch { kernel }) => self.launch(kernel, &data.operands),
            Op::Plan(PlanOp::View { .. }) => self.view(data),
            Op::Gpu(GpuOp::GridBarrier) => {
                self.grid_barrier();
                Ok(())
            }
            // Emitted by their users.
            Op::Window { .. } | Op::LoadScaled { .. } => Ok(()),
            _ => match self.simple(data)? {
                true => Ok(()),
                false => Err(format!("{} is not supported here", data.op.info().name)),
            },
        }
    }

    /// Reads the only element of a 1x1 tile.
    fn element(&mut self, data: &InstData) -> Result<(), String> {
        let t = data.operands.first().and_then(|x| self.body.ty(*x).tile());
        let (Some(t), Some(v)) = (t, data.result) else { return Err("the operand of `element` is not a tile".into()) };
        let (offset, elem) = (offset_of(t)?, t.elem);
        let x = self.e.load_shared(&self.name(v), elem, &self.shared.clone(), offset);
        self.values[v] = Some(CodeValue::Scalar(x));
        Ok(())
    }

    pub(super) fn index(&self, v: Value) -> Result<Operand, String> {
        match &self.values[v] {
            Some(CodeValue::Index(x)) => Ok(x.clone()),
            _ => Err(format!("{v} is not an index")),
        }
    }

    pub(super) fn scalar(&self, v: Value) -> Result<Lane, String> {
        match &self.values[v] {
            Some(CodeValue::Scalar(x)) => Ok(x.clone()),
            _ => Err(format!("{v} is not a scalar")),
        }
    }

    /// An index or a scalar as an element.
    fn as_lane(&self, v: Value) -> Result<Lane, String> {
        match &self.values[v] {
            Some(CodeValue::Index(value)) => Ok(Lane { value: value.clone(), elem: Elem::I64 }),
            Some(CodeValue::Scalar(x)) => Ok(x.clone()),
            _ => Err(format!("{v} is neither index nor scalar")),
        }
    }

    /// A buffer: address of its first element, strides in elements, element type, is it never
    /// written?
    pub(super) fn buffer(&self, v: Value) -> Result<(Operand, Vec<Operand>, Elem, bool), String> {
        match &self.values[v] {
            Some(CodeValue::Buffer { base, strides, elem, read_only }) => {
                Ok((base.clone(), strides.clone(), *elem, *read_only))
            }
            _ => Err(format!("{v} is not a buffer")),
        }
    }

    /// The address of an element of a buffer.
    pub(super) fn address(&mut self, buffer: Value, indices: &[Value]) -> Result<Operand, String> {
        let (base, strides, elem, _) = self.buffer(buffer)?;
        if strides.len() != indices.len() {
            return Err("a buffer is indexed with the wrong number of indices".into());
        }
        let mut address = base;
        for (stride, i) in strides.iter().zip(indices) {
            let i = self.index(*i)?;
            let bytes = self.stride_bytes(stride, elem);
            address = self.e.mad("at", &i, &bytes, &address);
        }
        Ok(address)
    }

    /// Converts a stride to bytes.
    pub(super) fn stride_bytes(&mut self, stride: &Operand, elem: Elem) -> Operand {
        let size = i64::try_from(elem.size()).unwrap_or(1);
        self.e.mul("stride", PtxType::S64, stride, &Operand::Int(size))
    }

    /// Evaluates a number of rows or columns, in 32 bits.
    pub(super) fn extent(&mut self, extent: Extent) -> Result<Operand, String> {
        match extent {
            Extent::Static(n) => Ok(Operand::Int(n)),
            Extent::Bounded { value, .. } => {
                let x = self.index(value)?;
                let name = self.name(value);
                Ok(self.e.low(&name, &x))
            }
        }
    }

    /// An operation on indices and scalars. False if it is another kind.
    fn simple(&mut self, data: &InstData) -> Result<bool, String> {
        let operand = |i: usize| data.operands.get(i).copied().ok_or("an operand is missing");
        let Some(result) = data.result else { return Ok(false) };
        let ty = self.body.ty(result).clone();
        let name = self.name(result);
        let value = match (&data.op, &ty) {
            (Op::Const(s), Type::Index) => CodeValue::Index(Operand::Int(s.as_i64())),
            (Op::Const(s), Type::Scalar(e)) => CodeValue::Scalar(self.e.literal(*s, *e)),
            (Op::DimValue(d), Type::Index) => CodeValue::Index(self.dim(d)?),
            (Op::Gpu(GpuOp::Blocks), Type::Index) => {
                let blocks = Operand::Special(Special::Nctaid(0));
                let blocks = self.e.make(&name, P::Mov { ty: PtxType::U32 }, PtxType::U32, &[blocks]);
                let from = P::CvtInt { sat: Sat::Wrap, to: PtxType::S64, from: PtxType::U32 };
                CodeValue::Index(self.e.make(&name, from, PtxType::S64, &[blocks]))
            }
            (Op::DimValue(d), Type::Scalar(e)) => {
                let value = self.dim(d)?;
                CodeValue::Scalar(self.e.cast(&name, &Lane { value, elem: Elem::I64 }, *e))
            }
            (Op::Binary(op), Type::Index) => {
                let lane = |value| Lane { value, elem: Elem::I64 };
                let (a, b) = (lane(self.index(operand(0)?)?), lane(self.index(operand(1)?)?));
                CodeValue::Index(self.e.binary(&name, *op, &a, &b)?.value)
            }
            (_, Type::Scalar(_)) if self.is_elementwise(data) => {
                let xs = data.operands.iter().map(|v| self.as_lane(*v)).collect::<Result<Vec<_>, String>>()?;
                CodeValue::Scalar(self.lanewise(&name, data, &xs, &ty)?)
            }
            (Op::Select, Type::Index) => {
                let c = self.scalar(operand(0)?)?;
                let (a, b) = (self.as_lane(operand(1)?)?, self.as_lane(operand(2)?)?);
                CodeValue::Index(self.e.select_lanes(&name, &c, &a, &b).value)
            }
            (Op::Cast, Type::Index) => {
                let x = self.as_lane(operand(0)?)?;
                CodeValue::Index(self.e.cast(&name, &x, Elem::I64).value)
            }
            (Op::LoadScalar, Type::Scalar(_)) => {
                let buffer = operand(0)?;
                let address = self.address(buffer, data.operands.get(1..).unwrap_or_default())?;
                let (_, _, elem, read_only) = self.buffer(buffer)?;
                CodeValue::Scalar(self.e.load(&name, elem, &address, read_only, None))
            }
            (Op::CheckIndex { site }, Type::Index) => {
                let (i, bound) = (self.index(operand(0)?)?, self.index(operand(1)?)?);
                self.check(&i, &bound, *site);
                CodeValue::Index(i)
            }
            _ => return Ok(false),
        };
        self.values[result] = Some(value);
        Ok(true)
    }

    /// Is it an elementwise operation?
    pub(super) fn is_elementwise(&self, data: &InstData) -> bool {
        matches!(
            data.op,
            Op::Unary(_)
                | Op::Binary(_)
                | Op::Compare(_)
                | Op::Select
                | Op::Cast
                | Op::Narrow { .. }
                | Op::Full
                | Op::Copy
        )
    }

    /// Computes an elementwise operation; `ty` is the result's type.
    pub(super) fn lanewise(&mut self, name: &str, data: &InstData, xs: &[Lane], ty: &Type) -> Result<Lane, String> {
        let elem = ty.elem().unwrap_or(Elem::I64);
        Ok(match (&data.op, xs) {
            (Op::Unary(op), [x]) => self.e.unary(name, *op, x)?,
            (Op::Binary(op), [x, y]) => self.e.binary(name, *op, x, y)?,
            (Op::Compare(op), [x, y]) => self.e.compare_lanes(name, *op, x, y),
            (Op::Select, [c, x, y]) => self.e.select_lanes(name, c, x, y),
            (Op::Cast, [x]) => self.e.cast(name, x, elem),
            (Op::Narrow { elem }, [x]) => self.e.narrow(name, x, *elem),
            (Op::Full | Op::Copy, [x]) => x.clone(),
            _ => return Err(format!("{} with the wrong operands", data.op.info().name)),
        })
    }

    /// Reports an index out of range and leaves the kernel (for a kernel launched by another: the
    /// current point).
    fn check(&mut self, index: &Operand, bound: &Operand, site: u32) {
        let (ty, unsigned) = (PtxType::S64, PtxType::U64);
        // A negative bound, compared as unsigned, would accept everything.
        let least = self.e.make("bound", P::Max { ty }, ty, &[bound.clone(), Operand::Int(0)]);
        let inside = self.e.compare("inside", Compare::Lt, unsigned, index, &least);
        let good = self.e.new_label("inside");
        self.e.jump_if(&inside, false, true, &good);
        // All threads find the same failure; the first one reports it, unless there is already a
        // report.
        let end = self.end.clone();
        let other = self.e.compare("other", Compare::Ne, PtxType::U32, &self.tid.clone(), &Operand::Int(0));
        self.e.jump_if(&other, false, false, &end);
        let fault = match &self.meeting {
            Some(meeting) => meeting.fault.clone(),
            None => {
                let fault = self.read_parameter("fault", "fault");
                self.e.make("fault", P::CvtaToGlobal {}, unsigned, &[fault])
            }
        };
        self.let_all_leave();
        let cas = P::Cas { order: Ordering::Relaxed, scope: Scope::Gpu, space: Space::Global, ty: PtxType::B64 };
        let number = Operand::Int(i64::from(site) + 1);
        let before = self.e.make("before", cas, PtxType::B64, &[at(&fault, 0), Operand::Int(0), number]);
        let late = self.e.compare("late", Compare::Ne, unsigned, &before, &Operand::Int(0));
        self.e.jump_if(&late, false, false, &end);
        let store = P::St { cache: StoreCache::Default, vector: Vector::One, ty: unsigned };
        for (offset, x) in [(8, index), (16, bound)] {
            let x = self.e.in_reg(x, unsigned);
            self.e.push(store, [at(&fault, offset), x]);
        }
        self.e.push(P::Bra {}, [Operand::Label(end)]);
        self.e.label(&good);
    }

    /// Ends a block. Of a jump's arguments only indices are passed: tiles stay where they are in
    /// shared memory.
    fn terminator(
        &mut self,
        terminator: &Terminator,
        labels: &SecondaryMap<Block, String>,
        next: Option<Block>,
    ) -> Result<(), String> {
        match terminator {
            Terminator::Return(_) => {
                let end = self.end.clone();
                if next.is_some() {
                    self.e.jump(&end);
                }
            }
            Terminator::Br(call) => self.go(call, labels, next)?,
            Terminator::BrIf { condition, then, otherwise } => {
                let p = self.scalar(*condition)?.value;
                if self.moves(otherwise) == 0 {
                    self.e.jump_if(&p, true, true, &labels[otherwise.block]);
                } else {
                    let aside = self.e.new_label("else");
                    self.e.jump_if(&p, true, true, &aside);
                    self.go(then, labels, None)?;
                    self.e.label(&aside);
                    return self.go(otherwise, labels, next);
                }
                self.go(then, labels, next)?;
            }
            Terminator::Roles(_) => return Err("warp roles are not supported in a kernel with runs".into()),
        }
        Ok(())
    }

    /// Number of indices that a jump passes.
    fn moves(&self, call: &BlockCall) -> usize {
        call.args.iter().filter(|v| *self.body.ty(**v) == Type::Index).count()
    }

    /// Passes arguments as a parallel move, and jumps to a block unless it comes next.
    fn go(
        &mut self,
        call: &BlockCall,
        labels: &SecondaryMap<Block, String>,
        next: Option<Block>,
    ) -> Result<(), String> {
        let args = &self.body.block(call.block).args;
        let mut moves: Vec<(Reg, Operand)> = Vec::new();
        for (arg, v) in args.iter().zip(&call.args) {
            if *self.body.ty(*v) == Type::Index
                && let Operand::Reg(to) = self.index(*arg)?
            {
                moves.push((to, self.index(*v)?));
            }
        }
        let ty = PtxType::S64;
        // If an argument's register is also a source, all go through new registers.
        let crosses =
            moves.iter().enumerate().any(|(n, (_, x))| moves.iter().take(n).any(|(to, _)| *x == Operand::Reg(*to)));
        if crosses {
            for (_, x) in &mut moves {
                *x = self.e.make("next", P::Mov { ty }, ty, std::slice::from_ref(x));
            }
        }
        for (to, x) in moves {
            self.e.assign(to, ty, &x);
        }
        if next != Some(call.block) {
            let label = labels[call.block].clone();
            self.e.jump(&label);
        }
        Ok(())
    }

    /// Allocates temporary storage within one operation; returns its offset.
    pub(super) fn transient_room(&mut self, bytes: u32) -> u32 {
        self.transient_bytes = self.transient_bytes.max(bytes);
        self.transient
    }
}

/// Offset of a tile in shared memory.
///
/// # Errors
/// A tile that is not in shared memory.
pub(super) fn offset_of(t: &TileType) -> Result<i32, String> {
    match t.space {
        crate::tile::Space::L1(offset, _) => {
            i32::try_from(offset).map_err(|_| "the offset of a tile is too large".to_string())
        }
        _ => Err("a tile that is not in shared memory".into()),
    }
}
