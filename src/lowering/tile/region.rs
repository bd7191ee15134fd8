//! Emits a region's elementwise work on one tile.
//!
//! In: the body of a fused region, the bindings of its arguments, and the tile's position in the
//! iteration space. Out: instructions of a kernel. Every operand is accessed through a view that is
//! broadcast to the iteration space, so all loads have the same indices; constants and dimensions
//! are never loaded.

#![warn(clippy::wildcard_enum_match_arm, reason = "a new operation is met by an error here")]

use cranelift_entity::SecondaryMap;

use crate::ir::{self, Function, Op, Scalar};
use crate::scalar::{BinaryOp, CmpOp};
use crate::shape::{Dim, Elem};
use crate::tile::{self, BufferType, Extent, KernelBuilder, ParamMode, View, computed};
pub(super) use crate::tile::{AxisRole, Position, merge_axes, tile_size};

/// The binding of a region's argument.
#[derive(Clone, Debug)]
pub(super) enum Operand {
    /// A view of memory.
    View(View),
    Literal(Scalar),
    Dim(Dim),
}

impl Operand {
    pub(super) fn view(&self) -> Option<&View> {
        match self {
            Operand::View(v) => Some(v),
            Operand::Literal(_) | Operand::Dim(_) => None,
        }
    }
}

/// The buffer type of a view.
pub(super) fn buffer_type(v: &View) -> BufferType {
    v.buffer_type()
}

/// A view of matrices, repeated along these leading axes.
pub(super) fn with_lead(v: &View, lead: &[Dim]) -> View {
    let last = v.shape.get(v.shape.len().saturating_sub(2)..).unwrap_or_default();
    v.broadcast(&[lead, last].concat())
}

/// A region being lowered: its body, the bindings of its arguments, and their buffers.
pub(super) struct Region<'a> {
    pub(super) body: &'a Function,
    /// Binding of each argument, views broadcast to the iteration space.
    pub(super) operands: Vec<Operand>,
    /// Buffers of the arguments that are views and are loaded by the elementwise work.
    buffers: Vec<Option<tile::Value>>,
    /// Rank of the iteration space before axes were merged; sources index by it.
    rank: usize,
    /// Maps each original axis to its current axis, for sources that count along axes.
    now: Vec<Option<usize>>,
}

/// Tile values of the body's values that were emitted so far.
pub(super) type Env = SecondaryMap<ir::Value, Option<tile::Value>>;

impl<'a> Region<'a> {
    /// A region over an iteration space whose axes have been merged or dropped: `now` maps the
    /// original axes.
    pub(super) fn new(body: &'a Function, operands: Vec<Operand>, now: Vec<Option<usize>>) -> Region<'a> {
        let buffers = vec![None; operands.len()];
        Region { body, operands, buffers, rank: now.len(), now }
    }

    /// Declares a kernel buffer for each view whose argument number satisfies `wanted`, in order.
    pub(super) fn declare(&mut self, kb: &mut KernelBuilder, wanted: impl Fn(usize) -> bool) {
        for (i, operand) in self.operands.iter().enumerate() {
            if let Operand::View(v) = operand
                && wanted(i)
            {
                self.buffers[i] = Some(kb.buffer(buffer_type(v), ParamMode::In));
            }
        }
    }

    /// Binds an argument to a buffer that the kernel has declared itself.
    pub(super) fn bind(&mut self, argument: usize, buffer: tile::Value) {
        if let Some(place) = self.buffers.get_mut(argument) {
            *place = Some(buffer);
        }
    }

    /// Views of the declared buffers, in order.
    pub(super) fn declared(&self) -> Vec<View> {
        let pairs = self.operands.iter().zip(&self.buffers);
        pairs.filter(|(_, b)| b.is_some()).filter_map(|(o, _)| o.view().cloned()).collect()
    }

    /// Emits everything that `targets` depend on at a tile, except for values already in `env`.
    ///
    /// # Errors
    /// An operation that cannot occur in a region, which is a bug in attnc.
    pub(super) fn eval(
        &self,
        kb: &mut KernelBuilder,
        env: &mut Env,
        at: &Position,
        targets: &[ir::Value],
    ) -> Result<(), String> {
        // Collect the needed values backwards, then emit in order.
        let mut needed: SecondaryMap<ir::Value, bool> = SecondaryMap::new();
        let mut work: Vec<ir::Value> = targets.to_vec();
        while let Some(v) = work.pop() {
            if needed[v] || env[v].is_some() {
                continue;
            }
            needed[v] = true;
            if let Some((_, data)) = self.body.definition(v) {
                work.extend(data.operands.iter().copied());
            }
        }
        let entry = self.body.block(self.body.entry());
        for (i, v) in entry.args.iter().enumerate() {
            if needed[*v] {
                env[*v] = Some(self.argument_tile(kb, at, *v, i)?);
            }
        }
        for inst in &entry.insts {
            let data = self.body.inst(*inst);
            let Some(result) = data.result else { continue };
            if !needed[result] || env[result].is_some() {
                continue;
            }
            // Constants have no location in the text form of the graph IR, so they have none here.
            kb.at(if matches!(data.op, Op::Const(_)) { ir::Loc::default() } else { data.loc });
            let mut operands = Vec::new();
            for v in &data.operands {
                operands.push(env[*v].ok_or("an operand was not evaluated")?);
            }
            env[result] = Some(self.operation(kb, at, result, &data.op, &operands)?);
        }
        Ok(())
    }

    fn elem(&self, v: ir::Value) -> Result<Elem, String> {
        Ok(self.body.tensor(v).ok_or("an index in a region")?.elem)
    }

    fn argument_tile(
        &self,
        kb: &mut KernelBuilder,
        at: &Position,
        v: ir::Value,
        i: usize,
    ) -> Result<tile::Value, String> {
        let elem = self.elem(v)?;
        match (self.operands.get(i), self.buffers.get(i)) {
            (Some(Operand::Literal(s)), _) => Ok(kb.literal(*s, elem)),
            (Some(Operand::Dim(d)), _) => Ok(kb.dim_literal(d, elem)),
            (Some(Operand::View(view)), Some(Some(buffer))) => {
                let (mut starts, (rows, cols)) = (at.starts(), at.tile_axes());
                // A value with one element per row is loaded as a column, and one with an element
                // per column as a row, which every operation broadcasts.
                let one = Extent::Static(1);
                let mut along = |axis: Option<usize>, extent: Extent| match axis {
                    Some(n) if extent != one && view.shape.get(n).and_then(Dim::as_const) == Some(1) => {
                        starts[n] = kb.index(0);
                        (None, one)
                    }
                    _ => (axis, extent),
                };
                let ((cols, wide), (rows, high)) = (along(cols, at.cols), along(rows, at.rows));
                Ok(kb.load(*buffer, &starts, (rows, cols), high, wide))
            }
            _ => Err("an argument of a region has no buffer".into()),
        }
    }

    /// The counter along an axis of a source of this rank: an `i32` or `i64` tile or scalar.
    fn counter(&self, kb: &mut KernelBuilder, at: &Position, rank: usize, axis: usize, elem: Elem) -> tile::Value {
        let original = axis + self.rank.saturating_sub(rank);
        let one = Extent::Static(1);
        match self.now.get(original).copied().flatten().and_then(|a| at.axes.get(a)) {
            Some((AxisRole::Rows, start)) => kb.iota(0, *start, elem, at.rows, one),
            Some((AxisRole::Cols, start)) => kb.iota(1, *start, elem, one, at.cols),
            Some((AxisRole::Point, start)) => kb.value(tile::Op::Cast, vec![*start], tile::Type::Scalar(elem)),
            // The axis has extent 1.
            None => kb.scalar(Scalar::Int(0), elem),
        }
    }

    fn operation(
        &self,
        kb: &mut KernelBuilder,
        at: &Position,
        result: ir::Value,
        op: &Op,
        x: &[tile::Value],
    ) -> Result<tile::Value, String> {
        let ty = self.body.tensor(result).ok_or("an index in a region")?;
        let elem = ty.elem;
        let wide = computed(elem);
        let get = |i: usize| x.get(i).copied().ok_or("an operand is missing");
        let y = match op {
            Op::Const(s) => return Ok(kb.literal(*s, elem)),
            Op::DimValue(d) => return Ok(kb.dim_literal(d, elem)),
            Op::Iota { axis } => {
                let counted = if wide == Elem::I64 { Elem::I64 } else { Elem::I32 };
                let extent_one = ty.shape.get(*axis).is_some_and(|d| d.as_const() == Some(1));
                let n = if extent_one {
                    kb.scalar(Scalar::Int(0), counted)
                } else {
                    self.counter(kb, at, ty.rank(), *axis, counted)
                };
                kb.cast(n, wide)
            }
            Op::Causal => {
                let (Some(q), Some(k)) = (ty.shape.first(), ty.shape.get(1)) else {
                    return Err("causal has two axes".into());
                };
                // An axis of extent 1 may be broadcast, so it must not be counted.
                let count = |kb: &mut KernelBuilder, axis: usize, d: &Dim| match d.as_const() {
                    Some(1) => kb.scalar(Scalar::Int(0), Elem::I32),
                    _ => self.counter(kb, at, 2, axis, Elem::I32),
                };
                let (rows, cols) = (count(kb, 0, q), count(kb, 1, k));
                let shift = kb.dim_literal(&k.sub(q), Elem::I32);
                let last = kb.binary(BinaryOp::Add, rows, shift);
                kb.compare(CmpOp::Le, cols, last)
            }
            Op::Unary(op) => kb.unary(*op, get(0)?),
            Op::Binary(op) => kb.binary(*op, get(0)?, get(1)?),
            Op::Compare(op) => kb.compare(*op, get(0)?, get(1)?),
            Op::Where => kb.select(get(0)?, get(1)?, get(2)?),
            // Computed as `i32`, which saturates at other bounds; NaN becomes 0.
            Op::Cast { elem: Elem::I8 } if self.casts_a_float(result) => {
                let bound = |kb: &mut KernelBuilder, x: i8| kb.scalar(Scalar::Float(f64::from(x)), Elem::F32);
                let (low, high) = (bound(kb, i8::MIN), bound(kb, i8::MAX));
                let y = kb.binary(BinaryOp::Max, get(0)?, low);
                let y = kb.binary(BinaryOp::Min, y, high);
                kb.cast(y, wide)
            }
            Op::Cast { elem } => kb.cast(get(0)?, computed(*elem)),
            // Every tile already has the shape of the iteration space.
            Op::Broadcast => get(0)?,
            Op::Param { .. }
            | Op::State { .. }
            | Op::SetState { .. }
            | Op::Length { .. }
            | Op::Reshape
            | Op::Transpose { .. }
            | Op::Slice { .. }
            | Op::Windows { .. }
            | Op::Index { .. }
            | Op::Extract { .. }
            | Op::Update { .. }
            | Op::Concat { .. }
            | Op::Pad { .. }
            | Op::Gather { .. }
            | Op::Scatter { .. }
            | Op::Cumsum { .. }
            | Op::Argsort { .. }
            | Op::Reduce { .. }
            | Op::Softmax { .. }
            | Op::LogSoftmax { .. }
            | Op::Matmul
            | Op::Grad { .. }
            | Op::Stop
            | Op::Attention { .. }
            | Op::Fused { .. }
            | Op::Tap { .. } => return Err(format!("{op} cannot be part of a region's elementwise work")),
        };
        Ok(kb.narrow(y, elem))
    }

    /// Is the operand of the instruction that defines `result` a float?
    fn casts_a_float(&self, result: ir::Value) -> bool {
        let operand = self.body.definition(result).and_then(|(_, d)| d.operands.first());
        operand.and_then(|v| self.body.tensor(*v)).is_some_and(|t| t.elem.is_float())
    }
}

/// Does the body count along axes (with `iota` or `causal`)? Then its axes must not be merged.
pub(super) fn counts_along_axes(body: &Function) -> bool {
    body.insts().any(|(_, _, d)| matches!(d.op, Op::Iota { .. } | Op::Causal))
}
