//! Epilogues: the elementwise work on a kernel's result tile, after the loops of its description.
//!
//! In: a kernel with a description, and where its loops end. Out: the same elementwise work on the
//! tile of another kernel with the same parameters. What this must not know: what the loops
//! compute.

use std::collections::BTreeMap;

use super::body::InstData;
use super::{
    AxisRole, Block, Body, Extent, Inst, Kernel, KernelBuilder, Op, Position, Terminator, TileType, Type, Value,
};

/// The tile of the result that a kernel computes.
#[derive(Clone, Debug)]
pub(crate) struct ResultTile {
    /// The result: queries by columns.
    pub(crate) result: Value,
    /// Where it is along each axis, and how many queries and columns it has.
    pub(crate) at: Position,
}

/// Elementwise work on the tile of a result, down to its stores.
pub(crate) struct Epilogue {
    /// The tile in the kernel itself.
    pub(crate) tile: ResultTile,
    /// The instructions that follow it.
    pub(crate) insts: Vec<Inst>,
}

impl Epilogue {
    /// The instructions of the block that returns, where the epilogue is.
    pub(crate) fn last_insts(body: &Body) -> Option<&[Inst]> {
        let returns = |b: &&Block| matches!(body.block(**b).terminator, Terminator::Return(_));
        body.layout.iter().find(returns).map(|b| body.block(*b).insts.as_slice())
    }

    /// What follows a result in a kernel whose grid ends with rows and columns: `loads` read a tile
    /// that has the rows, and one that has the columns.
    pub(crate) fn of(kernel: &Kernel, loads: [&InstData; 2], result: Value, insts: &[Inst]) -> Option<Epilogue> {
        let [of_rows, of_cols] = loads;
        let n = kernel.grid.len();
        let lead = kernel.grid.iter().take(n.checked_sub(2)?).map(|g| (AxisRole::Point, g.value));
        let (row, col) = (*of_rows.operands.get(n - 1)?, *of_cols.operands.get(n)?);
        let axes = lead.chain([(AxisRole::Rows, row), (AxisRole::Cols, col)]).collect();
        let tile = |d: &InstData| d.result.and_then(|v| kernel.body.ty(v).tile().cloned());
        let at = Position { axes, rows: tile(of_rows)?.rows, cols: tile(of_cols)?.cols };
        Some(Epilogue { tile: ResultTile { result, at }, insts: insts.to_vec() })
    }

    /// The kernel with the same parameters and epilogue, and the loops that `write` makes.
    pub(crate) fn after(
        &self,
        kernel: &Kernel,
        write: impl FnOnce(&mut KernelBuilder) -> Option<ResultTile>,
    ) -> Option<Kernel> {
        let mut kb = KernelBuilder::new(&kernel.name);
        for (ty, p) in kernel.buffer_types()?.into_iter().zip(&kernel.params) {
            kb.buffer(ty, p.mode);
        }
        let tile = write(&mut kb)?;
        self.copy(kernel, &mut kb, &tile)?;
        Some(kb.finish())
    }

    /// Applies it to the tile of the result of another kernel with the same parameters.
    pub(crate) fn copy(&self, kernel: &Kernel, kb: &mut KernelBuilder, to: &ResultTile) -> Option<()> {
        let mut made: BTreeMap<Value, Value> = BTreeMap::new();
        for (n, p) in kernel.params.iter().enumerate() {
            made.insert(p.value, kb.param(n)?);
        }
        let (old, new) = (&self.tile.at, &to.at);
        made.extend(old.axes.iter().zip(&new.axes).map(|((_, old), (_, new))| (*old, *new)));
        made.insert(self.tile.result, to.result);
        for inst in &self.insts {
            let data = kernel.body.inst(*inst);
            let mut operands = Vec::new();
            for v in &data.operands {
                operands.push(copied(kernel, kb, &mut made, *v)?);
            }
            let ty = data.result.map(|v| match kernel.body.ty(v) {
                Type::Tile(t) => {
                    let rows = if t.rows == old.rows { new.rows } else { t.rows };
                    let cols = if t.cols == old.cols { new.cols } else { t.cols };
                    Type::Tile(TileType { rows, cols, ..t.clone() })
                }
                other => other.clone(),
            });
            kb.at(data.loc);
            let result = kb.push(data.op.clone(), operands, ty);
            made.extend(data.result.zip(result));
        }
        Some(())
    }

    /// Does it access one of these parameters?
    pub(crate) fn uses(&self, kernel: &Kernel, params: &[usize]) -> bool {
        let values = params.iter().map(|n| kernel.params.get(*n).map(|p| p.value)).collect::<Vec<_>>();
        self.insts.iter().any(|inst| kernel.body.inst(*inst).operands.iter().any(|v| values.contains(&Some(*v))))
    }

    /// Is it elementwise work on its tile, whatever rows and columns this has?
    pub(crate) fn is_elementwise(&self, kernel: &Kernel) -> bool {
        let body = &kernel.body;
        let at = &self.tile.at;
        let axes = [(AxisRole::Rows, at.rows), (AxisRole::Cols, at.cols)].map(|(role, extent)| {
            let number = at.axis(role);
            (number, number.and_then(|n| at.axes.get(n)).map(|(_, start)| *start), extent)
        });
        self.insts.iter().all(|inst| {
            let data = body.inst(*inst);
            let tile = match data.op {
                Op::Store { .. } => data.operands.last().copied(),
                _ => data.result,
            };
            let tile = tile.and_then(|v| body.ty(v).tile()).map(|t| [t.rows, t.cols]);
            let along = |n: usize| match data.op {
                Op::Load { rows, cols } | Op::Store { rows, cols } => Some(([rows, cols][n], 1)),
                Op::Iota { axis } => Some(((axis == n).then_some(0), 0)),
                _ => None,
            };
            data.op.is_elementwise()
                && axes.iter().enumerate().all(|(n, (number, start, extent))| {
                    let own = tile.map(|t| t[n]);
                    let fits = own.is_none_or(|own| own.is_one() || own == *extent);
                    // The operand that is the start, where the operation goes along this axis from
                    // there.
                    let place = along(n).and_then(|(axis, first)| match data.op {
                        Op::Iota { .. } => axis.map(|_| 0),
                        _ => (axis == *number).then(|| axis.map(|axis| axis + first)).flatten(),
                    });
                    let place = place.filter(|_| own == Some(*extent));
                    let is_there = place.is_some_and(|place| data.operands.get(place).copied() == *start);
                    let begins = |i: usize| Some(i) == place;
                    let elsewhere = data.operands.iter().enumerate().any(|(i, v)| Some(*v) == *start && !begins(i));
                    let moves = along(n).is_some_and(|(axis, _)| axis.is_some());
                    fits && !elsewhere && (is_there || !moves || own.is_some_and(Extent::is_one))
                })
        })
    }
}

/// A value of a kernel in a copy of it: one that is there already, or a constant.
fn copied(kernel: &Kernel, kb: &mut KernelBuilder, made: &mut BTreeMap<Value, Value>, v: Value) -> Option<Value> {
    if let Some(v) = made.get(&v) {
        return Some(*v);
    }
    let data = kernel.body.def_inst(v)?;
    let ty = kernel.body.ty(v).clone();
    if !matches!(data.op, Op::Const(_) | Op::DimValue(_)) || !matches!(ty, Type::Index | Type::Scalar(_)) {
        return None;
    }
    let copy = kb.placed(data.loc, |kb| kb.value(data.op.clone(), Vec::new(), ty));
    made.insert(v, copy);
    Some(copy)
}
