//! How a run is gone through: what varies along what, and where tiles and buffers lie.
//!
//! In: a run of a scheduled kernel. Out: a [`Frame`]. A run over one column is turned over, so that its rows are the lanes:
//! a tile of one column is dense. "Rows" and "columns" are meant in the turned frame from here on; columns are the lanes.
//! Each value varies along rows, along columns, both or neither, which says in which loop it is computed.

use std::collections::{BTreeMap, BTreeSet};

use super::Word;
use crate::shape::Elem;
use crate::tile::{Body, Extent, Inst, InstData, Op, Space, TileType, Type, Value};

/// How many rows or columns there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// So many.
    Static(i64),
    /// What a word of the call says, at most this many.
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

/// Along what something varies.
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

/// A distance in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distance {
    /// Known.
    Bytes(i64),
    /// In a word of the call.
    Word(usize),
}

/// How a load or store goes along its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The same element everywhere.
    Same,
    /// Side by side.
    Unit,
    /// So far apart.
    Apart(Distance),
}

/// A load or store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    /// The word with the address of the first element.
    pub(super) start: usize,
    /// From row to row; `None`: all rows are the same.
    pub(super) row: Option<Distance>,
    /// Along the columns.
    pub(super) col: Step,
    /// Element type in memory.
    pub(super) elem: Elem,
}

/// A reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    /// Of the elements of a row.
    Cols,
    /// Of the rows, each column by itself.
    Rows,
    /// Of one element.
    One,
}

/// A run as it is gone through.
pub(super) struct Frame<'a> {
    /// The kernel's body.
    pub(super) body: &'a Body,
    /// Its instructions.
    pub(super) insts: &'a [Inst],
    /// Is it turned over?
    turned: bool,
    /// Rows.
    pub(super) rows: Count,
    /// Columns.
    pub(super) cols: Count,
    /// Are the columns the outer loop? So it is where rows are reduced.
    pub(super) cols_outside: bool,
    /// What the routine is called with.
    pub(super) words: Vec<Word>,
    /// Along what each value varies.
    pub(super) varies: BTreeMap<Value, Varies>,
    /// Loads and stores.
    pub(super) accesses: BTreeMap<Inst, Access>,
    /// Values made in the run.
    pub(super) made: BTreeSet<Value>,
    /// Places in scratch that the run writes other than at a row's end.
    pub(super) written: BTreeSet<u32>,
    /// Distances between rows of tiles in scratch.
    pub(super) pitches: BTreeSet<u32>,
}

impl<'a> Frame<'a> {
    /// The frame of a run; `None` for what is not lowered.
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

    /// Number of a word, which is added if it is new.
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

    /// Along what a reduction goes.
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

    /// Along what the elements of a tile lie.
    pub(super) fn extents(&self, t: &TileType) -> Varies {
        let (rows, cols) = if self.turned { (t.cols, t.rows) } else { (t.rows, t.cols) };
        Varies { rows: !rows.is_one(), cols: !cols.is_one() }
    }

    /// Along what an operand varies.
    pub(super) fn operand(&self, v: Value) -> Varies {
        match (self.varies.get(&v), self.body.ty(v)) {
            (Some(x), _) => *x,
            (None, Type::Tile(t)) => self.extents(t),
            (None, _) => Varies::default(),
        }
    }

    /// Are its rows many, and does it read or write tiles in scratch? What is stored then is mostly sums of a product, which
    /// were long in the making, and whose place in memory has not been touched.
    pub(super) fn stores_a_product(&self) -> bool {
        !self.turned && self.rows.most() >= 32 && !self.pitches.is_empty()
    }

    /// Does it write tiles with rows and a single column?
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
            // The last one stays.
            None if store => Step::Apart(Distance::Bytes(0)),
            None => Step::Same,
            Some(Distance::Bytes(n)) if n == size => Step::Unit,
            Some(d) => Step::Apart(d),
        };
        let start = self.word(Word::Address { buffer, indices });
        Some(Access { start, row, col, elem: ty.elem })
    }
}

/// Does a store put several elements at the same place?
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
