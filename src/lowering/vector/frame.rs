//! Analysis of a run: along which axes values vary, and where tiles and buffers are stored.
//!
//! In: a run of a scheduled kernel. Out: a [`Frame`]. A run over a single column is transposed, so
//! that its rows become the lanes: a tile with one column is dense. "Rows" and "columns" below
//! refer to the transposed frame; columns are the lanes. Each value varies along rows, columns,
//! both or neither, which determines the loop in which it is computed.

use std::collections::{BTreeMap, BTreeSet};

use super::Word;
use crate::shape::Elem;
use crate::tile::{Body, Extent, Inst, InstData, Op, Space, TileType, Type, Value};

/// How many rows or columns there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// A constant.
    Static(i64),
    /// In this word of the call, with an upper bound.
    Word(usize, i64),
}

impl Count {
    /// The largest possible count.
    pub(super) fn most(self) -> i64 {
        match self {
            Count::Static(n) | Count::Word(_, n) => n,
        }
    }
}

/// The axes along which a value varies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Varies {
    /// From row to row.
    pub(super) rows: bool,
    /// From column to column.
    pub(super) cols: bool,
}

impl Varies {
    fn or(self, other: Varies) -> Varies {
        Varies { rows: self.rows || other.rows, cols: self.cols || other.cols }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distance {
    /// A constant.
    Bytes(i64),
    /// In this word of the call.
    Word(usize),
}

/// The column stride of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The same element in all columns (stride 0).
    Same,
    /// Contiguous.
    Unit,
    /// Any other stride.
    Apart(Distance),
}

/// A load or store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    /// The word with the address of the first element.
    pub(super) start: usize,
    /// Row stride; `None`: all rows are the same.
    pub(super) row: Option<Distance>,
    pub(super) col: Step,
    pub(super) elem: Elem,
}

/// The axis of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    /// Along a row.
    Cols,
    /// Over rows, per column.
    Rows,
    /// Of one element.
    One,
}

/// A run with the results of the analysis.
pub(super) struct Frame<'a> {
    pub(super) body: &'a Body,
    pub(super) insts: &'a [Inst],
    /// Is the frame transposed?
    turned: bool,
    pub(super) rows: Count,
    pub(super) cols: Count,
    /// Columns are the outer loop; this is the case where rows are reduced.
    pub(super) cols_outside: bool,
    /// Arguments of the routine.
    pub(super) words: Vec<Word>,
    pub(super) varies: BTreeMap<Value, Varies>,
    pub(super) accesses: BTreeMap<Inst, Access>,
    /// Values defined in the run.
    pub(super) made: BTreeSet<Value>,
    /// Offsets in scratch that the run writes inside the row loop (not only at a row's end).
    pub(super) written: BTreeSet<u32>,
    /// Row strides of tiles in scratch.
    pub(super) pitches: BTreeSet<u32>,
}

impl<'a> Frame<'a> {
    /// Analyses a run; `None` if it cannot be lowered.
    pub(super) fn new(body: &'a Body, rows: Extent, cols: Extent, insts: &'a [Inst]) -> Option<Frame<'a>> {
        let turned = cols.is_one() && !rows.is_one();
        let mut frame = Frame {
            body,
            insts,
            turned,
            rows: Count::Static(1),
            cols: Count::Static(1),
            cols_outside: false,
            words: Vec::new(),
            varies: BTreeMap::new(),
            accesses: BTreeMap::new(),
            made: BTreeSet::new(),
            written: BTreeSet::new(),
            pitches: BTreeSet::new(),
        };
        let (rows, cols) = if turned { (cols, rows) } else { (rows, cols) };
        (frame.rows, frame.cols) = (frame.count(rows), frame.count(cols));
        let mut reduces = BTreeSet::new();
        for i in insts {
            let data = body.inst(*i);
            frame.made.extend(data.result);
            for v in data.operands.iter().chain(&data.result) {
                let Some(t) = body.ty(*v).tile() else { continue };
                let varies = frame.extents(t);
                if let Space::L1(..) = t.space
                    && varies.rows
                    && varies.cols
                {
                    frame.pitches.insert(t.pitch());
                }
            }
            if let Op::Reduce { axis, .. } = data.op {
                reduces.insert(format!("{:?}", frame.along(axis)));
                frame.cols_outside |= frame.along(axis) == Along::Rows;
            }
            if let Some(t) = data.result.and_then(|v| body.ty(v).tile())
                && let Space::L1(offset, _) = t.space
            {
                frame.written.insert(offset);
            }
            if let Op::Load { rows, cols } | Op::Store { rows, cols } = data.op {
                let access = frame.access(data, rows, cols)?;
                frame.accesses.insert(*i, access);
            }
            if let Some(v) = data.result {
                let varies = frame.varies_as(*i, data)?;
                frame.varies.insert(v, varies);
            }
        }
        (!reduces.contains("Rows") || !reduces.contains("Cols")).then_some(frame)
    }

    /// Index of an argument word, which is added if it is new.
    pub(super) fn word(&mut self, w: Word) -> usize {
        match self.words.iter().position(|x| *x == w) {
            Some(n) => n,
            None => {
                self.words.push(w);
                self.words.len() - 1
            }
        }
    }

    fn count(&mut self, e: Extent) -> Count {
        match e {
            Extent::Static(n) => Count::Static(n),
            Extent::Bounded { value, max } => Count::Word(self.word(Word::Index(value)), max),
        }
    }

    /// The direction of a reduction over `axis`.
    pub(super) fn along(&self, axis: usize) -> Along {
        let cols = (axis == 1) != self.turned;
        match (cols, self.rows) {
            (true, _) => Along::Cols,
            (false, Count::Static(1)) => Along::One,
            (false, _) => Along::Rows,
        }
    }

    /// Does `iota` along this axis count columns?
    fn counts_cols(&self, axis: usize) -> bool {
        (axis == 1) != self.turned
    }

    /// The axes along which a tile has more than one element.
    pub(super) fn extents(&self, t: &TileType) -> Varies {
        let (rows, cols) = if self.turned { (t.cols, t.rows) } else { (t.rows, t.cols) };
        Varies { rows: !rows.is_one(), cols: !cols.is_one() }
    }

    pub(super) fn operand(&self, v: Value) -> Varies {
        match (self.varies.get(&v), self.body.ty(v)) {
            (Some(x), _) => *x,
            (None, Type::Tile(t)) => self.extents(t),
            (None, _) => Varies::default(),
        }
    }

    /// Does the run have many rows, and read or write tiles in scratch? Then its stores are mostly
    /// matmul results, which took long to compute, and whose destination is not in the cache yet.
    pub(super) fn stores_a_product(&self) -> bool {
        !self.turned && self.rows.most() >= 32 && !self.pitches.is_empty()
    }

    /// Does the run write tiles with several rows and a single column?
    pub(super) fn writes_single_columns(&self) -> bool {
        let results = self.insts.iter().filter_map(|i| {
            let t = self.body.inst(*i).result.and_then(|v| self.body.ty(v).tile())?;
            (matches!(t.space, Space::L1(..)) && self.extents(t) == Varies { rows: true, cols: false }).then_some(())
        });
        results.count() > 0
    }

    fn varies_as(&self, i: Inst, data: &InstData) -> Option<Varies> {
        let result = data.result.and_then(|v| self.body.ty(v).tile())?;
        let most = self.extents(result);
        let varies = match data.op {
            Op::Load { .. } => {
                let access = self.accesses.get(&i)?;
                Varies { rows: access.row.is_some(), cols: access.col != Step::Same }
            }
            Op::Iota { axis } => {
                let cols = self.counts_cols(axis);
                Varies { rows: !cols, cols }
            }
            _ => data.operands.iter().fold(Varies::default(), |a, v| a.or(self.operand(*v))),
        };
        Some(Varies { rows: varies.rows && most.rows, cols: varies.cols && most.cols })
    }

    fn access(&mut self, data: &InstData, rows: Option<usize>, cols: Option<usize>) -> Option<Access> {
        let store = matches!(data.op, Op::Store { .. });
        let buffer = *data.operands.first()?;
        let indices = data.operands.get(1..data.operands.len() - usize::from(store))?.to_vec();
        let tile = if store { *data.operands.last()? } else { data.result? };
        let extents = self.extents(self.body.ty(tile).tile()?);
        let ty = self.body.ty(buffer).buffer()?;
        let size = i64::try_from(ty.elem.size()).ok()?;
        let (rows, cols) = if self.turned { (cols, rows) } else { (rows, cols) };
        let mut along = |there: bool, axis: Option<usize>| -> Option<Option<Distance>> {
            let Some(axis) = axis.filter(|_| there) else { return Some(None) };
            match ty.strides.get(axis)?.as_const() {
                Some(0) => Some(None),
                Some(n) => Some(Some(Distance::Bytes(n.checked_mul(size)?))),
                None => Some(Some(Distance::Word(self.word(Word::StrideBytes { buffer, axis })))),
            }
        };
        let row = along(extents.rows, rows)?;
        let col = match along(extents.cols, cols)? {
            // One element is stored as a vector of one lane.
            None if store && !extents.cols => Step::Unit,
            // The last column's store wins.
            None if store => Step::Apart(Distance::Bytes(0)),
            None => Step::Same,
            Some(Distance::Bytes(n)) if n == size => Step::Unit,
            Some(d) => Step::Apart(d),
        };
        let start = self.word(Word::Address { buffer, indices });
        Some(Access { start, row, col, elem: ty.elem })
    }
}

/// Does a store write several elements to the same address (stride 0)?
pub(super) fn repeats(body: &Body, data: &InstData) -> bool {
    let (Op::Store { rows, cols }, Some(buffer)) = (&data.op, data.operands.first()) else { return false };
    let strides = body.ty(*buffer).buffer().map(|b| &b.strides);
    let tile = data.operands.last().and_then(|v| body.ty(*v).tile());
    let (Some(strides), Some(t)) = (strides, tile) else { return false };
    let repeats = |extent: Extent, axis: Option<usize>| {
        let stride = axis.and_then(|a| strides.get(a));
        !extent.is_one() && stride.is_none_or(|d| d.as_const() == Some(0))
    };
    repeats(t.rows, *rows) || repeats(t.cols, *cols)
}
