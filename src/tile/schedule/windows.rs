//! Selects matmul operands that are read in place, without a copy in scratch.
//!
//! In: an unscheduled kernel. Out: the same kernel, with eligible loads turned into [`Op::Window`].
//! A load is eligible if only matmuls use it, the kernel does not write its buffer, and
//! * as a left operand, its elements are `f32`, contiguous along its rows or along its columns; or
//!   they are `bf16`, contiguous along the columns (k), and the right operand has interleaved pairs
//!   of k indices (`load_pairs`, `pair_rows`);
//! * as a right operand, its elements are `f32` or `bf16` and its columns start a row of full
//!   registers, as in a packed panel. Panels of integers (`load_scaled`) and of pairs
//!   (`load_pairs`) are always read in place.
//!
//! It must not know registers, nor where other tiles live.

use std::collections::{BTreeMap, BTreeSet};

use crate::scalar::Scalar;
use crate::shape::Elem;
use crate::tile::{Cpu, Inst, InstData, Kernel, Op, ParamMode, Space, TileType, Type, Value};

/// Turns eligible loads into windows.
pub(super) fn make_windows(kernel: &mut Kernel, level: Cpu) {
    let panels = kernel.body.insts().filter(|(_, _, d)| matches!(d.op, Op::LoadScaled { .. } | Op::LoadPairs));
    let panels: Vec<Inst> = panels.map(|(_, i, _)| i).collect();
    for inst in candidates(kernel, level).into_iter().chain(panels) {
        let data = kernel.body.inst_mut(inst);
        if let Op::Load { rows, cols } = data.op {
            data.op = Op::Window { rows, cols };
        }
        let Some(v) = data.result else { continue };
        if let Type::Tile(t) = kernel.body.ty(v).clone() {
            kernel.body.set_ty(v, Type::Tile(TileType { space: Space::Window, ..t }));
        }
    }
}

fn candidates(kernel: &Kernel, level: Cpu) -> Vec<Inst> {
    let body = &kernel.body;
    let mut loads: BTreeMap<Value, Inst> = BTreeMap::new();
    let mut refused: BTreeSet<Value> = BTreeSet::new();
    for block in &body.layout {
        for i in &body.block(*block).insts {
            let data = body.inst(*i);
            loads.extend(data.result.filter(|_| in_place(kernel, data)).map(|v| (v, *i)));
        }
    }
    for block in &body.layout {
        let block = body.block(*block);
        refused.extend(block.terminator.values());
        for i in &block.insts {
            let user = body.inst(*i);
            for (n, v) in user.operands.iter().enumerate() {
                let fits = match (&user.op, n) {
                    (Op::Dot { .. }, 0) => {
                        let right = user.operands.get(1).and_then(|b| body.def_inst(*b));
                        let in_pairs = right.is_some_and(|d| matches!(d.op, Op::LoadPairs | Op::PairRows));
                        loads.get(v).is_some_and(|load| is_left(kernel, body.inst(*load), in_pairs))
                    }
                    (Op::Dot { .. }, 1) => loads.get(v).is_some_and(|load| is_right(kernel, body.inst(*load), level)),
                    _ => false,
                };
                if !fits {
                    refused.insert(*v);
                }
            }
        }
    }
    loads.into_iter().filter(|(v, _)| !refused.contains(v)).map(|(_, i)| i).collect()
}

/// Is it a load of `f32` or `bf16` from a read-only buffer?
fn in_place(kernel: &Kernel, data: &InstData) -> bool {
    let (Op::Load { .. }, Some(b)) = (&data.op, data.operands.first()) else { return false };
    let read_only = kernel.params.iter().any(|p| p.value == *b && p.mode == ParamMode::In);
    read_only && kernel.body.ty(*b).buffer().is_some_and(|b| matches!(b.elem, Elem::F32 | Elem::BF16))
}

/// Can a load be the left operand of a matmul as a window? `in_pairs`: the right one has
/// interleaved pairs of k indices.
fn is_left(kernel: &Kernel, data: &InstData, in_pairs: bool) -> bool {
    let (Op::Load { rows, cols }, Some(b)) = (&data.op, data.operands.first()) else { return false };
    let Some(buffer) = kernel.body.ty(*b).buffer() else { return false };
    // A missing axis has a single row or column.
    let none = buffer.strides.len();
    let (rows, cols) = (rows.unwrap_or(none), cols.unwrap_or(none));
    buffer.is_left_operand(rows, cols) || buffer.elem == Elem::BF16 && in_pairs && buffer.is_dense(cols)
}

/// Can a load be the right operand of a matmul as a window?
fn is_right(kernel: &Kernel, data: &InstData, level: Cpu) -> bool {
    let (Op::Load { rows: Some(rows), cols: Some(cols) }, [b, indices @ ..]) = (&data.op, data.operands.as_slice())
    else {
        return false;
    };
    let Some(buffer) = kernel.body.ty(*b).buffer() else { return false };
    let stride = |axis: usize| buffer.strides.get(axis).and_then(|d| d.as_const());
    let first = indices.get(*cols).and_then(|v| kernel.body.def_inst(*v));
    buffer.is_dense(*cols)
        && stride(*rows).is_some()
        && first.is_some_and(|d| d.op == Op::Const(Scalar::Int(0)))
        && buffer.shape.get(*cols).and_then(|d| d.as_const()) == Some(i64::from(level.dot_cols()))
}
