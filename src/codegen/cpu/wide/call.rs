//! Calls of leaf functions from kernels: if an operation of a scheduled kernel has a leaf, its
//! arguments are written to a stack slot and the leaf is called; if not, the caller emits the
//! portable code. The mode of a matmul selects its leaf.
//!
//! In: an operation of a kernel for 256 or 512 bits. Out: CLIF, and an entry in the list of leaves
//! that the function calls.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, StackSlotData, StackSlotKind, Value, types};

use super::super::code::{Code, CodeValue, Stride};
use super::super::function::Callee;
use super::super::lanes::{little, plain};
use super::super::target::signature;
use super::dot::{Ahead, DotShape, LINE, Right};
use super::dot_ahead::ROWS_ARGUMENT;
use super::dot_group::{GroupShape, MAX_PANELS, most_rows};
use super::leaves::LeafKind;
use super::transpose::TransposeShape;
use super::{Declined, Word, run_leaf};
use crate::runtime::abi::context;
use crate::shape::Elem;
use crate::tile::{self, Cpu, DotMode, Extent, Inst, InstData, MAX_PANEL_PITCH, Op, Space, TileType, Type, Width};

/// Number of vectors in a tile's row, if it is in scratch in full vectors.
pub(super) fn vectors(t: &TileType, width: Width) -> Option<i32> {
    if t.cols.is_one() || t.element_bytes() != 4 {
        return None;
    }
    i32::try_from(t.cols.capacity().max(1)).ok().map(|n| (n + lanes(width) - 1) / lanes(width))
}

/// Row stride of a tile in scratch, in bytes, if it fits a displacement.
pub(super) fn pitch(t: &TileType) -> Option<i32> {
    i32::try_from(t.pitch()).ok().filter(|p| *p < 1 << 24)
}

fn lanes(width: Width) -> i32 {
    super::registers::bytes(width) / 4
}

/// Cache lines of a result row to prefetch during the matmul. Wide tiles would prefetch too much,
/// and repeatedly, once for each two vectors of columns.
fn lines(shape: &DotShape, place: Destination, width: Width) -> i32 {
    let bytes = place.size * shape.vectors * lanes(width);
    if shape.ahead == Ahead::Panel && shape.vectors <= 2 { (bytes + LINE - 1) / LINE } else { 0 }
}

/// An internal error: the verifier rejects modes without a leaf.
pub(super) const UNFIT: &str = "a matmul does not fit its mode";

/// Left operand of a matmul leaf: address, stride in bytes, and is the inner axis dense?
type Left = (Value, Value, bool);

/// Right operand of a matmul leaf.
struct RightOperand {
    start: Value,
    /// Bytes from row to row.
    pitch: i32,
    /// Element type in memory.
    elements: Right,
    /// Address of the scales, if it has any.
    scales: Option<Value>,
    /// The operand that is prefetched meanwhile. (Leaves for quantised weights always assume a next
    /// panel.)
    ahead: Ahead,
    /// The rows of a buffer that are copied next, if this was copied: address and stride in bytes.
    rows: Option<(Value, Value)>,
}

/// Where a leaf leaves the result of a matmul.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::codegen::cpu) enum Dotted {
    /// In scratch.
    InScratch,
    /// In the target of the next instruction, a store, which is thereby done.
    Stored,
}

/// Destination of a store: address of the first element, row stride and element size in bytes.
#[derive(Clone, Copy)]
struct Destination {
    start: Value,
    pitch: Value,
    size: i32,
}

impl Code<'_, '_> {
    /// Emits a matmul of mode `Fma` or `Groups` as a call; `next` is the instruction after it.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(in crate::codegen::cpu) fn wide_dot(
        &mut self,
        level: Cpu,
        (mode, data): (DotMode, &InstData),
        next: Option<Inst>,
        scratch: Value,
    ) -> Result<Dotted, String> {
        let [a, b, acc] = data.operands.as_slice() else { return Err("a matmul needs three operands".into()) };
        let tile = |v| self.body.ty(v).tile().cloned().ok_or("a matmul operand is not a tile");
        let (ta, tb) = (tile(*a)?, tile(*b)?);
        let result = tile(data.result.ok_or("a matmul without a result")?)?;
        let width = level.width();
        let vectors = vectors(&result, width).ok_or(UNFIT)?;
        let (acc_pitch, right) = (pitch(&result).ok_or(UNFIT)?, self.right(*b, &tb, scratch)?.ok_or(UNFIT)?);
        let (a_start, stride, inner_dense) = self.left(*a, &ta, scratch)?.ok_or(UNFIT)?;
        let (rows, inner) = (self.extent(result.rows)?, self.extent(ta.cols)?);
        let filled = matches!(self.body.ty(*acc), Type::Scalar(_));
        let start = if filled {
            self.word(&Word::Scalar(*acc), scratch)?
        } else {
            let from = tile(*acc)?;
            if result.space != from.space {
                self.copy_rows(&from, &result, rows, scratch)?;
            }
            self.int(0)
        };
        let target = self.in_scratch(&result, scratch)?;
        let scales = match right.scales {
            Some(scales) => scales,
            None => self.int(0),
        };
        let shape = DotShape {
            inner_dense,
            b_pitch: right.pitch,
            acc_pitch,
            vectors,
            right: right.elements,
            groups: mode == DotMode::Groups,
            filled,
            ahead: if right.pitch <= MAX_PANEL_PITCH { right.ahead } else { Ahead::Nothing },
            result: 0,
            direct: false,
        };
        let words = [a_start, stride, right.start, target, rows, inner, scales, start];
        let may_store = width == Width::V512 && vectors <= 2 && !right.elements.scaled();
        let place = match (may_store, next) {
            (true, Some(next)) => self.stored_at(data, next)?,
            _ => None,
        };
        let Some(place) = place else {
            return self.call_dot(width, shape, words, right.rows).map(|()| Dotted::InScratch);
        };
        let (one, columns) = (self.int(1), self.extent(result.cols)?);
        let beyond = self.b.ins().ishl(one, columns);
        let mask = self.b.ins().iadd_imm_s(beyond, -1);
        let shape = DotShape { result: lines(&shape, place, width), direct: true, ..shape };
        self.call_dot_with(width, shape, words, &[place.start, place.pitch, mask], right.rows)?;
        Ok(Dotted::Stored)
    }

    /// Emits consecutive matmuls of few rows as one call, if they have the same left operand,
    /// initial value and panel layout. Returns how many were emitted; `None` if fewer than two
    /// qualify.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(in crate::codegen::cpu) fn wide_dot_group(
        &mut self,
        level: Cpu,
        products: &[&InstData],
        scratch: Value,
    ) -> Result<Option<usize>, String> {
        let width = level.width();
        let Some((first, shape)) = self.group_shape(width, products)? else { return Ok(None) };
        let group = products.get(..usize::try_from(shape.panels).unwrap_or(0)).unwrap_or_default();
        let (Some(a), Some(start), Some(result)) = (first.operands.first(), first.operands.get(2), first.result) else {
            return Ok(None);
        };
        let tile = |v: tile::Value| self.body.ty(v).tile().cloned().ok_or("a matmul operand is not a tile");
        let (ta, result) = (tile(*a)?, tile(result)?);
        let Some((from, stride, true)) = self.left(*a, &ta, scratch)? else { return Ok(None) };
        let (rows, steps) = (self.extent(result.rows)?, self.extent(ta.cols)?);
        let start = self.word(&Word::Scalar(*start), scratch)?;
        let (mut panels, mut sums) = (Vec::new(), Vec::new());
        for product in group {
            let [_, b, _] = product.operands.as_slice() else { return Err("a matmul needs three operands".into()) };
            let (panel, _, _) = self.window(*b)?.ok_or(UNFIT)?;
            panels.push(panel);
            let sum = self.body.ty(product.result.ok_or("a matmul without a result")?).tile().cloned();
            sums.push(self.in_scratch(&sum.ok_or("a matmul operand is not a tile")?, scratch)?);
        }
        let leaf = self.leaves.of_kind(LeafKind::DotGroup(width, shape));
        self.call_leaf(leaf, &[&[from, stride, steps, rows, start][..], &panels, &sums].concat())?;
        Ok(Some(group.len()))
    }

    /// The first matmul and the common layout, if it and at least the next one can be computed
    /// together.
    fn group_shape<'d>(
        &mut self,
        width: Width,
        products: &[&'d InstData],
    ) -> Result<Option<(&'d InstData, GroupShape)>, String> {
        let Some(first) = products.first() else { return Ok(None) };
        let [a, _, start] = first.operands.as_slice() else { return Ok(None) };
        let Some(result) = first.result.and_then(|v| self.body.ty(v).tile()).cloned() else { return Ok(None) };
        let is_fma = first.op == Op::Dot { mode: Some(DotMode::Fma) };
        let (Some(vectors), Some(acc_pitch)) = (vectors(&result, width), pitch(&result)) else { return Ok(None) };
        // The left operand must be dense along the inner axis.
        let Some((_, [_, Stride::Const(1)], Elem::F32)) = self.window_strides(*a) else { return Ok(None) };
        let few = result.rows.capacity() <= i64::from(most_rows(width));
        if !is_fma || !few || vectors > 2 || !matches!(self.body.ty(*start), Type::Scalar(_)) {
            return Ok(None);
        }
        let mut b_pitch = None;
        let mut panels = 0;
        for product in products.iter().take(MAX_PANELS) {
            let [left, b, from] = product.operands.as_slice() else { break };
            let sums = product.result.and_then(|v| self.body.ty(v).tile());
            let alike = (left, from) == (a, start)
                && sums.is_some_and(|t| (t.rows, t.cols, t.elem) == (result.rows, result.cols, result.elem));
            let Some((_, [Stride::Const(row), Stride::Const(1)], Elem::F32)) = self.window_strides(*b) else { break };
            let bytes = row.checked_mul(4).and_then(|n| i32::try_from(n).ok()).filter(|n| (0..1 << 24).contains(n));
            if !alike || bytes.is_none() || *b_pitch.get_or_insert(bytes) != bytes {
                break;
            }
            panels += 1;
        }
        let Some(b_pitch) = b_pitch.flatten().filter(|_| panels > 1) else { return Ok(None) };
        Ok(Some((first, GroupShape { panels, vectors, b_pitch, acc_pitch })))
    }

    /// Calls a matmul leaf with its arguments, and with the destination of the result, if known.
    pub(super) fn call_dot(
        &mut self,
        width: Width,
        shape: DotShape,
        words: [Value; 8],
        rows: Option<(Value, Value)>,
    ) -> Result<(), String> {
        let place = if shape.ahead == Ahead::Panel { self.result_place()? } else { None };
        let shape = DotShape { result: place.map_or(0, |place| lines(&shape, place, width)), ..shape };
        let place = place.map_or(Vec::new(), |place| vec![place.start, place.pitch]);
        self.call_dot_with(width, shape, words, &place, rows)
    }

    fn call_dot_with(
        &mut self,
        width: Width,
        shape: DotShape,
        words: [Value; 8],
        place: &[Value],
        rows: Option<(Value, Value)>,
    ) -> Result<(), String> {
        let leaf = self.leaves.of_kind(LeafKind::Dot(width, shape));
        let mut words = [&words[..], &[self.in_order()], place].concat();
        if let (Ahead::Rows, Some((start, pitch))) = (shape.ahead, rows) {
            let unused = self.int(0);
            words.resize(usize::try_from(ROWS_ARGUMENT).unwrap_or(0), unused);
            words.extend([start, pitch]);
        }
        self.call_leaf(leaf, &words)
    }

    /// The destination of the instruction after a matmul, if it is a store of the unchanged result
    /// and its only use.
    fn stored_at(&mut self, product: &InstData, next: Inst) -> Result<Option<Destination>, String> {
        let Op::Run { insts, .. } = &self.body.inst(next).op else { return Ok(None) };
        let [store] = insts.as_slice() else { return Ok(None) };
        let store = self.body.inst(*store);
        let uses = self.body.insts().flat_map(|(_, _, d)| &d.operands);
        let uses = uses.filter(|v| Some(**v) == product.result).count();
        let goes_on = self.body.layout.iter().flat_map(|b| self.body.block(*b).terminator.targets());
        let goes_on = goes_on.flat_map(|c| &c.args).any(|v| Some(*v) == product.result);
        if store.operands.last().copied() != product.result || uses != 1 || goes_on {
            return Ok(None);
        }
        // Rows are stored while others are still computed. Operands do not alias the destination:
        // no buffer that is written is read in place.
        Ok(self.store_place(&store.clone())?.filter(|place| place.size == 4))
    }

    /// The destination of the kernel's only store, if its rows are dense and its indices are
    /// already computed, in the entry block or earlier in this block.
    fn result_place(&mut self) -> Result<Option<Destination>, String> {
        let blocks = || self.body.layout.iter().map(|b| self.body.block(*b));
        let here = blocks().find(|b| self.here.is_some_and(|inst| b.insts.contains(&inst)));
        let all = |b: &tile::BlockData| b.insts.iter().flat_map(|i| self.body.with_inner(*i)).collect::<Vec<Inst>>();
        let of = |insts: Vec<Inst>| {
            insts.into_iter().map(|i| self.body.inst(i)).filter(|d| matches!(d.op, Op::Store { .. }))
        };
        let is = |b: &tile::BlockData, wanted: fn(&Op) -> bool| all(b).iter().any(|i| wanted(&self.body.inst(*i).op));
        let last_steps =
            blocks().any(|b| is(b, |op| matches!(op, Op::Store { .. })) && is(b, |op| matches!(op, Op::Dot { .. })));
        // If the matmul is in a loop over `k`, the store is after the loop.
        let mut stores = of(here.map_or(Vec::new(), all));
        let mut everywhere = of(blocks().flat_map(all).collect());
        let store = match (stores.next(), stores.next()) {
            (Some(store), None) => store.clone(),
            // The remainder of `k` may be there too; its matmul then prefetches the destination.
            (None, _) => match (everywhere.next(), everywhere.next()) {
                (Some(store), None) if !last_steps => store.clone(),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let [_, indices @ .., _] = store.operands.as_slice() else { return Ok(None) };
        let known = [blocks().next(), here];
        let early = |v: &tile::Value| {
            let made = |i: &Inst| self.body.inst(*i).result == Some(*v);
            let is_there = |b: &&tile::BlockData| b.args.contains(v) || b.insts.iter().any(made);
            self.values[*v].is_some() && known.iter().flatten().any(is_there)
        };
        if indices.iter().all(early) { self.store_place(&store) } else { Ok(None) }
    }

    /// The destination of a store, if its rows are dense; its indices must be known.
    fn store_place(&mut self, store: &InstData) -> Result<Option<Destination>, String> {
        let (Op::Store { rows, cols: Some(cols) }, [buffer, indices @ .., _]) = (&store.op, store.operands.as_slice())
        else {
            return Ok(None);
        };
        let (_, strides, elem) = self.buffer(*buffer)?;
        let along = |axis: usize| strides.get(axis).copied();
        let (Some(Stride::Const(1)), Ok(size)) = (along(*cols), i32::try_from(elem.size())) else { return Ok(None) };
        let pitch = rows.and_then(along).unwrap_or(Stride::Const(0));
        let (start, pitch) = (self.address(*buffer, indices)?, self.stride_bytes(pitch, elem));
        Ok(Some(Destination { start, pitch, size }))
    }

    /// Loads the processor's preferred prefetch order, an argument of leaves.
    pub(super) fn in_order(&mut self) -> Value {
        self.b.ins().load(types::I64, plain(), self.context, context::IN_ORDER)
    }

    pub(super) fn in_scratch(&mut self, t: &TileType, scratch: Value) -> Result<Value, String> {
        let Space::L1(offset, _) = t.space else { return Err("a tile is not in scratch".into()) };
        Ok(self.b.ins().iadd_imm_s(scratch, i64::from(offset)))
    }

    /// The buffer access of a window: start address, strides along rows and columns, element type.
    pub(super) fn window(&mut self, v: tile::Value) -> Result<Option<(Value, [Stride; 2], Elem)>, String> {
        let Some(data) = self.body.def_inst(v).cloned() else { return Ok(None) };
        let Some((buffer, both, elem)) = self.window_strides(v) else { return Ok(None) };
        let start = self.address(buffer, data.operands.get(1..).unwrap_or_default())?;
        Ok(Some((start, both, elem)))
    }

    /// The buffer of a window, its strides along rows and columns, element type.
    fn window_strides(&self, v: tile::Value) -> Option<(tile::Value, [Stride; 2], Elem)> {
        let data = self.body.def_inst(v)?;
        let Op::Window { rows, cols } = data.op else { return None };
        let buffer = *data.operands.first()?;
        let Some(CodeValue::Buffer { strides, elem, .. }) = &self.values[buffer] else { return None };
        let along = |axis: Option<usize>| axis.and_then(|i| strides.get(i)).copied().unwrap_or(Stride::Const(0));
        Some((buffer, [along(rows), along(cols)], *elem))
    }

    fn left(&mut self, v: tile::Value, t: &TileType, scratch: Value) -> Result<Option<Left>, String> {
        if matches!(t.space, Space::L1(..)) {
            let start = self.in_scratch(t, scratch)?;
            let pitch = self.int(i64::from(t.pitch()));
            return Ok(Some((start, pitch, true)));
        }
        let Some((start, [rows, cols], Elem::F32)) = self.window(v)? else { return Ok(None) };
        Ok(match (rows, cols) {
            (rows, Stride::Const(1)) => Some((start, self.stride_bytes(rows, Elem::F32), true)),
            (Stride::Const(1), cols) => Some((start, self.stride_bytes(cols, Elem::F32), false)),
            // A single row or a single step: no stride is ever used along it.
            (rows, _) if t.cols.is_one() => Some((start, self.stride_bytes(rows, Elem::F32), true)),
            (_, cols) if t.rows.is_one() => Some((start, self.stride_bytes(cols, Elem::F32), false)),
            _ => None,
        })
    }

    /// The right operand, if the leaf can read it.
    fn right(&mut self, v: tile::Value, t: &TileType, scratch: Value) -> Result<Option<RightOperand>, String> {
        let bytes = |n: i64| i32::try_from(n).ok().filter(|p| *p < 1 << 24);
        if matches!(t.space, Space::L1(..)) {
            let (start, rows) = (self.in_scratch(t, scratch)?, self.next_rows(v)?);
            let pitch = i32::try_from(t.pitch()).ok();
            return Ok(pitch.map(|pitch| RightOperand {
                start,
                pitch,
                elements: Right::F32,
                scales: None,
                ahead: if rows.is_some() { Ahead::Rows } else { Ahead::Nothing },
                rows,
            }));
        }
        if let Some(data) = self.body.def_inst(v).filter(|d| matches!(d.op, Op::LoadScaled { .. })).cloned() {
            let panel = self.scaled_panel(&data)?;
            let elements = if panel.bits == 4 { Right::Nibbles } else { Right::Bytes };
            // The leaf assumes that a row of scales has as many elements as a row of the panel.
            let pitch = bytes(panel.row).filter(|_| panel.group == panel.row.saturating_mul(4));
            let (start, scales) = (panel.start, Some(panel.scales));
            let ahead = Ahead::Nothing;
            return Ok(pitch.map(|pitch| RightOperand { start, pitch, elements, scales, ahead, rows: None }));
        }
        Ok(match self.window(v)? {
            Some((start, [Stride::Const(row), Stride::Const(1)], elem @ (Elem::F32 | Elem::BF16))) => {
                let (elements, size) = if elem == Elem::F32 { (Right::F32, 4) } else { (Right::Bf16, 2) };
                let pitch = bytes(row.saturating_mul(size));
                let ahead = Ahead::Panel;
                pitch.map(|pitch| RightOperand { start, pitch, elements, scales: None, ahead, rows: None })
            }
            _ => None,
        })
    }

    /// If tile `v` was copied from rows of a buffer: the address of the rows that are copied next,
    /// and their stride in bytes. After the last rows, these are the first in the next columns.
    fn next_rows(&mut self, v: tile::Value) -> Result<Option<(Value, Value)>, String> {
        let Some(InstData { op, operands, .. }) = self.body.def_inst(v).cloned() else { return Ok(None) };
        let (Op::Load { rows: Some(rows), cols: Some(cols) }, [buffer, indices @ ..]) = (op, operands.as_slice())
        else {
            return Ok(None);
        };
        let (Some(t), Type::Buffer(ty)) = (self.body.ty(v).tile(), self.body.ty(*buffer)) else { return Ok(None) };
        let (count, width, dim) = (t.rows, t.cols.capacity(), ty.shape.get(rows).cloned());
        let (_, strides, elem) = self.buffer(*buffer)?;
        let (Some(Stride::Const(1)), Some(stride), Some(dim), Some(first), Elem::F32) =
            (strides.get(cols), strides.get(rows), dim, indices.get(rows), elem)
        else {
            return Ok(None);
        };
        let (start, pitch) = (self.address(*buffer, indices)?, self.stride_bytes(*stride, elem));
        let (first, count, dim) = (self.index(*first)?, self.extent(count)?, self.dim(&dim)?);
        let [down, up] = [count, first].map(|n| self.b.ins().imul(n, pitch));
        let (below, top) = (self.b.ins().iadd(start, down), self.b.ins().isub(start, up));
        let beside = self.b.ins().iadd_imm_s(top, width * 4);
        let end = self.b.ins().iadd(first, count);
        let is_last = self.b.ins().icmp(IntCC::SignedGreaterThanOrEqual, end, dim);
        Ok(Some((self.b.ins().select(is_last, beside, below), pitch)))
    }

    /// Emits a transposition as a call. False if there is no leaf for it.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(in crate::codegen::cpu) fn wide_transpose(
        &mut self,
        level: Cpu,
        data: &InstData,
        scratch: Value,
    ) -> Result<bool, String> {
        let (Some(x), Some(y)) = (data.operands.first(), data.result) else {
            return Err("`transpose` needs an operand and a result".into());
        };
        let tile = |v| self.body.ty(v).tile().cloned().ok_or("an operand of `transpose` is not a tile");
        let (from, to) = (tile(*x)?, tile(y)?);
        let width = level.width();
        if width == Width::V128 || vectors(&from, width).is_none() || vectors(&to, width).is_none() {
            return Ok(false);
        }
        let number = |n: i64| i32::try_from(n).ok().filter(|n| (1..1 << 20).contains(n));
        let (Some(rows), Some(cols), Some(pitch), Some(result_pitch)) =
            (number(from.rows.capacity()), number(from.cols.capacity()), pitch(&from), pitch(&to))
        else {
            return Ok(false);
        };
        let shape = TransposeShape { rows, cols, pitch, result_pitch };
        let (source, target) = (self.in_scratch(&from, scratch)?, self.in_scratch(&to, scratch)?);
        let leaf = self.leaves.of_kind(LeafKind::Transpose(width, shape));
        self.call_leaf(leaf, &[source, target])?;
        Ok(true)
    }

    /// Emits a run as a call. False if there is no leaf for it.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(in crate::codegen::cpu) fn wide_run(
        &mut self,
        level: Cpu,
        (rows, cols): (Extent, Extent),
        insts: &[Inst],
        scratch: Value,
    ) -> Result<bool, String> {
        if level.width() == Width::V128 {
            return Ok(false);
        }
        let leaf = match run_leaf(level, self.body, rows, cols, insts) {
            Ok(leaf) => leaf,
            Err(Declined::Wrong(message)) => return Err(message),
            Err(Declined::Form(inst, reason)) => {
                self.leaves.decline(inst, reason);
                return Ok(false);
            }
        };
        let mut words = Vec::new();
        for w in &leaf.words {
            words.push(self.word(w, scratch)?);
        }
        let leaf = self.leaves.of_code(leaf);
        self.call_leaf(leaf, &words)?;
        Ok(true)
    }

    /// Computes an argument.
    pub(in crate::codegen::cpu) fn word(&mut self, word: &Word, scratch: Value) -> Result<Value, String> {
        match word {
            Word::Index(v) => self.index(*v),
            Word::Scalar(v) => {
                let x = self.scalar(*v)?;
                Ok(match x.elem {
                    Elem::F32 | Elem::BF16 | Elem::F16 => {
                        let bits = self.b.ins().bitcast(types::I32, little(), x.value);
                        self.b.ins().uextend(types::I64, bits)
                    }
                    Elem::I32 | Elem::I8 | Elem::Bool => self.b.ins().uextend(types::I64, x.value),
                    Elem::I64 => x.value,
                })
            }
            Word::Address { buffer, indices } => self.address(*buffer, indices),
            Word::StrideBytes { buffer, axis } => {
                let (_, strides, elem) = self.buffer(*buffer)?;
                let stride = strides.get(*axis).copied().ok_or("a leaf refers to an axis that does not exist")?;
                Ok(self.stride_bytes(stride, elem))
            }
            Word::Scratch => Ok(scratch),
        }
    }

    /// Calls a leaf, given its index in `leaves`, with its arguments.
    pub(super) fn call_leaf(&mut self, leaf: usize, words: &[Value]) -> Result<(), String> {
        let size = u32::try_from(words.len().max(1) * 8).map_err(|_| "too many words")?;
        let slot = self.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, size, 3));
        for (i, v) in words.iter().enumerate() {
            let offset = i32::try_from(i * 8).map_err(|_| "too many words")?;
            self.b.ins().stack_store(types::I64, *v, slot, offset);
        }
        let convention = self.b.func.signature.call_conv;
        let place = u32::try_from(leaf).map_err(|_| "too many leaves")?;
        let function = Callee::Leaf(place).declare(self.b.func, signature(convention, 1, false), true);
        let words = self.b.ins().stack_addr(types::I64, slot, 0);
        self.b.ins().call(function, &[words]);
        Ok(())
    }
}
