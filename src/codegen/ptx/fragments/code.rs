//! State of the compilation of a kernel: named registers, indices, dimensions, scalars.
//!
//! In: a scheduled kernel. Out: its head (parameters, grid), and the lines that the other files
//! here add. Indices have 64 bits; those known at compile time stay constants, which resolves
//! barrier numbers and removes branches.

use std::collections::{BTreeMap, HashMap};

use super::TensorMap;
use super::layout::{Panels, Share};
use crate::codegen::ptx::emit::Emit;
use crate::codegen::ptx::kernel::SHARED;
use crate::ptx::words::{Compare, Ftz, Half, Sat};
use crate::ptx::{self, Address, Base, Op as P, Operand, ParamType, Reg, RegType, Special, Threads, Type as W};
use crate::scalar::{BinaryOp, CmpOp};
use crate::shape::Elem;
use crate::ssa::Use;
use crate::tile::alignment::needed;
use crate::tile::{Body, BufferType, Extent, Inst, Kernel, Space, TileType, Type, Value};
use cranelift_entity::SecondaryMap;

/// An index: a constant, or a 64-bit register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Known(i64),
    Reg(Reg),
}

/// A tile in shared memory, or free space for one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    pub(super) at: Reg,
    /// In a ring: its full and empty barriers, with the parity of the full phase.
    pub(super) barriers: Option<Barriers>,
}

/// The barriers of a ring's tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Barriers {
    /// Address of the full barrier; the empty one is at a fixed distance.
    pub(super) full: Reg,
    pub(super) empty: i32,
    /// Parity of the full barrier's phase.
    pub(super) parity: Reg,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    pub(super) tiles: i64,
    pub(super) barriers: i64,
    pub(super) stages: i64,
    pub(super) bytes: i64,
}

/// Location of a value.
#[derive(Clone, Debug)]
pub(super) enum ValueLocation {
    Number(Number),
    Scalar(Reg),
    /// A buffer: the address of its first element, and its strides in elements.
    Buffer(Reg, Vec<Number>),
    /// This thread's elements of an accumulator, a row or a column.
    Elements(Vec<Reg>),
    /// This thread's part of a matmul operand, two elements in a register.
    Operand(Vec<Reg>),
    /// A matmul operand that is loaded from shared memory at its use.
    Unread(Shared),
    /// A tile in shared memory, or free space for one.
    Shared(Shared),
    Ring(Ring),
}

/// Named barriers of a block. The first ones are named by tile IR (0 is for all threads); each role
/// has one of the others.
pub(super) const NAMED_BARRIERS: i64 = 16;
pub(super) const ROLE_BARRIERS: i64 = 8;

/// The threads that share tiles: the whole block, or a role.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) warps: i64,
    /// The named barrier of the group.
    pub(super) barrier: i64,
    /// Prefix of labels.
    pub(super) prefix: String,
    /// Is it a single thread?
    pub(super) is_single: bool,
    /// Index of this thread in the group, of its warp, of its lane; 32 bits each.
    pub(super) thread: Reg,
    pub(super) warp: Reg,
    pub(super) lane: Reg,
    /// Lane / 4, and 2 * (lane % 4).
    pub(super) row: Reg,
    pub(super) col: Reg,
}

pub(super) struct Code<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) body: &'a Body,
    pub(super) e: Emit,
    pub(super) held: HashMap<Value, ValueLocation>,
    pub(super) uses: SecondaryMap<Value, Vec<Use>>,
    pub(super) maps: Vec<TensorMap>,
    pub(super) group: Group,
    pub(super) symbols: BTreeMap<String, Number>,
    texts: BTreeMap<Inst, String>,
}

/// The register type of a computed element.
pub(super) fn register_type(elem: Elem) -> RegType {
    match elem {
        Elem::F32 | Elem::BF16 | Elem::F16 => RegType::F32,
        Elem::I8 | Elem::I32 => RegType::B32,
        Elem::I64 => RegType::B64,
        Elem::Bool => RegType::Pred,
    }
}

/// The same, as the type of `mov`.
pub(super) fn moved_type(elem: Elem) -> W {
    match elem {
        Elem::F32 | Elem::BF16 | Elem::F16 => W::F32,
        Elem::I8 | Elem::I32 => W::B32,
        Elem::I64 => W::B64,
        Elem::Bool => W::Pred,
    }
}

pub(super) fn word(r: Reg) -> Operand {
    Operand::Reg(r)
}

pub(super) fn int(n: i64) -> Operand {
    Operand::Int(n)
}

pub(super) fn float(x: f32) -> Operand {
    Operand::F32(x.to_bits())
}

pub(super) fn address(base: Reg, offset: i64) -> Result<Operand, String> {
    let offset = i32::try_from(offset).map_err(|_| "a distance in memory is too large")?;
    Ok(Operand::Address(Address { base: Base::Reg(base), offset }))
}

/// A constant extent.
pub(super) fn known(e: Extent) -> Result<i64, String> {
    match e {
        Extent::Static(n) => Ok(n),
        Extent::Bounded { .. } => Err("a fragment needs constant extents".into()),
    }
}

/// The comparison in an opcode; `ne` of floats is true for NaN.
pub(super) fn comparison(op: CmpOp, is_float: bool) -> Compare {
    match op {
        CmpOp::Eq => Compare::Eq,
        CmpOp::Ne if is_float => Compare::NeUnordered,
        CmpOp::Ne => Compare::Ne,
        CmpOp::Lt => Compare::Lt,
        CmpOp::Le => Compare::Le,
        CmpOp::Gt => Compare::Gt,
        CmpOp::Ge => Compare::Ge,
    }
}

impl<'a> Code<'a> {
    pub(super) fn new(kernel: &'a Kernel, name: &str, warps: i64) -> Result<Code<'a>, String> {
        let none = Reg(0);
        let group = Group {
            warps,
            barrier: 0,
            prefix: String::new(),
            is_single: false,
            thread: none,
            warp: none,
            lane: none,
            row: none,
            col: none,
        };
        let mut code = Code {
            kernel,
            body: &kernel.body,
            e: Emit::new(name),
            held: HashMap::new(),
            uses: kernel.body.uses(),
            maps: Vec::new(),
            group,
            symbols: BTreeMap::new(),
            texts: crate::tile::text::lines_of_kernel(kernel),
        };
        // Otherwise ptxas spills to allow more blocks per multiprocessor.
        code.e.kernel.min_blocks = Some(1);
        code.e.kernel.threads =
            Threads::Exactly([u32::try_from(warps * 32).map_err(|_| "a block has too many threads")?, 1, 1]);
        Ok(code)
    }

    // Registers and lines.

    /// A new register with a unique name.
    pub(super) fn reg(&mut self, name: &str, ty: RegType) -> Reg {
        match name.starts_with(|c: char| c.is_ascii_digit()) {
            true => self.e.reg(&format!("v{name}"), ty),
            false => self.e.reg(name, ty),
        }
    }

    /// Name of a value in the PTX text.
    pub(super) fn name(&self, v: Value) -> String {
        if let Some((inst, _)) = self.body.definition(v)
            && let Some((name, _)) = self.texts.get(&inst).and_then(|t| t.trim().strip_prefix('%')?.split_once(" = "))
        {
            return name.to_string();
        }
        match self.body.name(v) {
            "" => format!("v{}", v.as_u32()),
            name => name.to_string(),
        }
    }

    pub(super) fn push(&mut self, op: P, operands: impl Into<Vec<Operand>>) {
        self.e.kernel.push(op, operands);
    }

    /// An instruction whose result is a new register.
    pub(super) fn make(&mut self, name: &str, ty: RegType, op: P, operands: &[Operand]) -> Reg {
        let r = self.reg(name, ty);
        let all: Vec<Operand> = std::iter::once(word(r)).chain(operands.iter().cloned()).collect();
        self.e.kernel.push(op, all);
        r
    }

    /// A unique label.
    pub(super) fn label(&mut self, what: &str) -> String {
        let name = format!("{}{what}", self.group.prefix);
        self.e.new_label(&name)
    }

    /// Adds a comment with the operation that follows.
    pub(super) fn note(&mut self, inst: Inst) {
        if let Some(text) = self.texts.get(&inst) {
            let mut text = text.trim().to_string();
            let loc = self.body.inst(inst).loc;
            if loc.line > 0 {
                text = format!("{text} ({}:{})", loc.line, loc.column);
            }
            self.e.kernel.comment(&text);
        }
    }

    // 32-bit arithmetic.

    pub(super) fn add32(&mut self, name: &str, a: Reg, b: Operand) -> Reg {
        if b == int(0) {
            return a;
        }
        self.make(name, RegType::B32, P::Add { sat: Sat::Wrap, ty: W::U32 }, &[word(a), b])
    }

    pub(super) fn mul32(&mut self, name: &str, a: Reg, b: i64) -> Reg {
        self.make(name, RegType::B32, P::Mul { half: Half::Low, ty: W::U32 }, &[word(a), int(b)])
    }

    pub(super) fn and32(&mut self, name: &str, a: Reg, b: i64) -> Reg {
        self.make(name, RegType::B32, P::And { ty: W::B32 }, &[word(a), int(b)])
    }

    pub(super) fn shr32(&mut self, name: &str, a: Reg, n: i64) -> Reg {
        self.make(name, RegType::B32, P::Shr { ty: W::U32 }, &[word(a), int(n)])
    }

    pub(super) fn shl32(&mut self, name: &str, a: Reg, n: i64) -> Reg {
        self.make(name, RegType::B32, P::Shl { ty: W::B32 }, &[word(a), int(n)])
    }

    pub(super) fn compare32(&mut self, name: &str, op: Compare, a: Reg, b: i64) -> Reg {
        self.make(name, RegType::Pred, P::SetP { compare: op, ftz: Ftz::Keep, ty: W::U32 }, &[word(a), int(b)])
    }

    /// Zero-extends 32 bits to 64.
    pub(super) fn widened(&mut self, name: &str, a: Reg) -> Reg {
        self.make(name, RegType::B64, P::CvtInt { sat: Sat::Wrap, to: W::U64, from: W::U32 }, &[word(a)])
    }

    /// The low 32 bits of an index.
    pub(super) fn low32(&mut self, name: &str, n: Number) -> Operand {
        match n {
            Number::Known(n) => int(i64::from(n as i32)),
            Number::Reg(r) => {
                word(self.make(name, RegType::B32, P::CvtInt { sat: Sat::Wrap, to: W::U32, from: W::U64 }, &[word(r)]))
            }
        }
    }

    /// An operand of 32 bits in a register.
    pub(super) fn in_register32(&mut self, name: &str, o: Operand) -> Reg {
        match o {
            Operand::Reg(r) => r,
            other => self.make(name, RegType::B32, P::Mov { ty: W::B32 }, &[other]),
        }
    }

    // The head of the kernel.

    /// Emits parameters, grid indices, thread indices.
    pub(super) fn head(&mut self) -> Result<(), String> {
        for s in &self.kernel.symbols {
            let name = format!("dim_{s}");
            self.param(&name, ParamType::Scalar(W::U64));
            let r = self.make(s, RegType::B64, P::LdParam { ty: W::U64 }, &[of_param(&name)]);
            self.symbols.insert(s.clone(), Number::Reg(r));
        }
        for (n, p) in self.kernel.params.iter().enumerate() {
            let name = format!("{}_{n}", identifier(&self.name(p.value)));
            let value = self.name(p.value);
            match self.body.ty(p.value) {
                Type::Buffer(b) => {
                    let align = u32::try_from(needed(self.kernel, p.value)).unwrap_or(1);
                    self.param(&name, ParamType::Pointer(align));
                    let base = self.make(&value, RegType::B64, P::LdParam { ty: W::U64 }, &[of_param(&name)]);
                    let base = self.make(&value, RegType::B64, P::CvtaToGlobal {}, &[word(base)]);
                    let strides = self.strides(b)?;
                    self.held.insert(p.value, ValueLocation::Buffer(base, strides));
                }
                _ => {
                    self.param(&name, ParamType::Scalar(W::U64));
                    let r = self.make(&value, RegType::B64, P::LdParam { ty: W::U64 }, &[of_param(&name)]);
                    self.held.insert(p.value, ValueLocation::Number(Number::Reg(r)));
                }
            }
        }
        self.param("fault", ParamType::Pointer(8));
        self.grid()?;
        self.threads(0)
    }

    fn param(&mut self, name: &str, ty: ParamType) {
        self.e.kernel.params.push(ptx::Param { name: name.to_string(), ty });
    }

    /// Indices of the grid point along its axes, the last one fastest.
    fn grid(&mut self) -> Result<(), String> {
        let kernel = self.kernel;
        if kernel.grid.is_empty() {
            return Ok(());
        }
        let mut rest = self.make("block", RegType::B32, P::Mov { ty: W::U32 }, &[Operand::Special(Special::Ctaid(0))]);
        for (n, axis) in kernel.grid.iter().enumerate().rev() {
            let name = self.name(axis.value);
            let point = if n == 0 {
                rest
            } else {
                let extent = self.dim(&axis.extent)?;
                let up = self.arithmetic("points", BinaryOp::Add, extent, Number::Known(axis.step - 1))?;
                let count = self.arithmetic("points", BinaryOp::Div, up, Number::Known(axis.step))?;
                let count = self.low32("points", count);
                let whole = self.make("rest", RegType::B32, P::Div { ty: W::U32 }, &[word(rest), count.clone()]);
                let point = self.make(&name, RegType::B32, P::Rem { ty: W::U32 }, &[word(rest), count]);
                rest = whole;
                point
            };
            let point = self.widened(&name, point);
            self.held.insert(axis.value, ValueLocation::Number(Number::Reg(point)));
        }
        Ok(())
    }

    /// Thread indices relative to thread `first`.
    pub(super) fn threads(&mut self, first: i64) -> Result<(), String> {
        let all = self.make("tid", RegType::B32, P::Mov { ty: W::U32 }, &[Operand::Special(Special::Tid(0))]);
        let thread = self.add32("thread", all, int(-first));
        let warp = self.shr32("warp", thread, 5);
        let lane = self.and32("lane", thread, 31);
        let row = self.shr32("row", lane, 2);
        let rest = self.and32("col", lane, 3);
        let col = self.shl32("col", rest, 1);
        self.group = Group { thread, warp, lane, row, col, ..self.group.clone() };
        Ok(())
    }

    // Values.

    pub(super) fn tile(&self, v: Value) -> Result<&'a TileType, String> {
        self.body.ty(v).any_tile().ok_or_else(|| format!("{v} is not a tile"))
    }

    /// How the warps share a tile of fragments.
    pub(super) fn share(&self, t: &TileType) -> Result<Share, String> {
        let share = Share { rows: known(t.rows)?, cols: known(t.cols)?, warps: self.group.warps };
        Ok(share)
    }

    /// Layout of a tile in shared memory.
    pub(super) fn panels(&self, t: &TileType) -> Result<Panels, String> {
        let Space::Shared { swizzle } = t.space else { return Err("the tile is not in shared memory".into()) };
        let size = i64::try_from(t.elem.size()).unwrap_or(1);
        let panels = Panels { rows: known(t.rows)?, row_bytes: known(t.cols)? * size, swizzle: i64::from(swizzle) };
        if panels.row_bytes % 16 != 0 || panels.row_bytes % panels.pitch() != 0 {
            return Err(format!("rows of {} bytes are not made of chunks of 16", panels.row_bytes));
        }
        Ok(panels)
    }

    pub(super) fn shared(&self, v: Value) -> Result<Shared, String> {
        match self.held.get(&v) {
            Some(ValueLocation::Shared(s)) => Ok(*s),
            _ => Err(format!("{v} is not in shared memory")),
        }
    }

    /// The strides of a buffer; 0 along an axis of one element, so that addresses past it (which
    /// are not read) stay aligned to chunks.
    fn strides(&mut self, ty: &BufferType) -> Result<Vec<Number>, String> {
        let mut strides = vec![Number::Known(0); ty.strides.len()];
        for (axis, stride) in ty.neighbours() {
            if let Some(at) = strides.get_mut(axis) {
                *at = self.dim(stride)?;
            }
        }
        Ok(strides)
    }

    pub(super) fn buffer(&self, v: Value) -> Result<(Reg, Vec<Number>, &'a BufferType), String> {
        match (self.held.get(&v), self.body.ty(v).buffer()) {
            (Some(ValueLocation::Buffer(base, strides)), Some(ty)) => Ok((*base, strides.clone(), ty)),
            _ => Err(format!("{v} is not a buffer")),
        }
    }

    pub(super) fn scalar(&self, v: Value) -> Result<Reg, String> {
        match self.held.get(&v) {
            Some(ValueLocation::Scalar(r)) => Ok(*r),
            _ => Err(format!("{v} is not a scalar")),
        }
    }

    pub(super) fn elements(&self, v: Value) -> Result<Vec<Reg>, String> {
        match self.held.get(&v) {
            Some(ValueLocation::Elements(list)) => Ok(list.clone()),
            _ => Err(format!("{v} is not in registers")),
        }
    }

    /// Address `offset` bytes into shared memory.
    pub(super) fn shared_base(&mut self, offset: i64) -> Reg {
        let base = self.make("shared", RegType::B32, P::Mov { ty: W::U32 }, &[Operand::Symbol(SHARED.into())]);
        self.add32("shared", base, int(offset))
    }

    /// Address of a buffer's element: base + indices * strides.
    pub(super) fn element_address(
        &mut self,
        name: &str,
        base: Reg,
        strides: &[Number],
        indices: &[Number],
        size: i64,
    ) -> Result<Reg, String> {
        let mut at = Number::Reg(base);
        for (stride, index) in strides.iter().zip(indices) {
            let step = self.arithmetic(name, BinaryOp::Mul, *stride, Number::Known(size))?;
            let way = self.arithmetic(name, BinaryOp::Mul, *index, step)?;
            at = self.arithmetic(name, BinaryOp::Add, at, way)?;
        }
        Ok(self.in_register(name, at))
    }
}

fn of_param(name: &str) -> Operand {
    Operand::Address(Address { base: Base::Symbol(name.to_string()), offset: 0 })
}

/// A valid PTX identifier.
fn identifier(name: &str) -> String {
    let clean: String = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
    if clean.starts_with(|c: char| c.is_ascii_alphabetic()) { clean } else { format!("p{clean}") }
}
