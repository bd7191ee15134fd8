//! gather-diagonals: gathers a table once per diagonal, if the indices depend only on row minus
//! column.
//!
//! ```text
//! func @f(%0 "x": f32[H, S, T], %1 "table": f32[32, H]) -> (f32[H, S, T]) {
//! ^bb0:
//!   %2 = iota axis=0                      : i32[T]
//!   %3 = iota axis=0                      : i32[S, 1]
//!   %4 = sub %2, %3                       : i32[S, T]
//!   %5 = abs %4                           : i32[S, T]
//!   %6 = min %5, i32(31)                  : i32[S, T]
//!   %7 = gather %1, %6, axis=0            : f32[S, T, H]
//!   %8 = transpose %7, perm=[2, 0, 1]     : f32[H, S, T]
//!   %9 = add %0, %8                       : f32[H, S, T]
//!   return %9
//! }
//! ->
//! func @f(%0 "x": f32[H, S, T], %1 "table": f32[32, H]) -> (f32[H, S, T]) {
//! ^bb0:
//!   %2 = iota axis=0                      : i32[S+T]
//!   %3 = dim T                            : i32[]
//!   %4 = sub %2, %3                       : i32[S+T]
//!   %5 = sub i32(0), %4                   : i32[S+T]
//!   %6 = abs %5                           : i32[S+T]
//!   %7 = min %6, i32(31)                  : i32[S+T]
//!   %8 = iota axis=0                      : i32[S+T]
//!   %9 = ne %8, i32(0)                    : bool[S+T]
//!   %10 = dim min(2*S*T, S+T)             : i32[]
//!   %11 = lt %8, %10                      : bool[S+T]
//!   %12 = and %9, %11                     : bool[S+T]
//!   %13 = where %12, %7, i32(0)           : i32[S+T]
//!   %14 = transpose %1, perm=[1, 0]       : f32[H, 32]
//!   %15 = gather %14, %13, axis=1         : f32[H, S+T]
//!   %16 = windows %15, axis=1, stride=-1  : f32[H, T, S]
//!   %17 = transpose %16, perm=[2, 1, 0]   : f32[S, T, H]
//!   %18 = transpose %17, perm=[2, 0, 1]   : f32[H, S, T]
//!   %19 = add %0, %18                     : f32[H, S, T]
//!   return %19
//! }
//! ```
//!
//! A learned bias of relative positions (T5's buckets, clipped distances) has as many distinct
//! elements as a matrix has diagonals, S + T - 1. Only these are computed, and the matrix is a view
//! of them: the next row is the next element, the next column the previous one. Element p of the
//! vector is diagonal i - j = p - T; element 0 belongs to no pair, and keeps the length of the
//! vector non-negative when S and T are 0. Neighbouring rows are neighbours in memory, since
//! attention has queries in the lanes of vectors.
//!
//! # Conditions
//!
//! * The indices are a matrix, of more than one row and column as far as is known, computed from
//!   counters, numbers, and tensors of rank 0, by elementwise operations and movement of counters.
//!   Counters only occur as i - j plus or minus a value that is the same for all pairs, or in
//!   comparisons, plus or minus literals: `where(j > i + 2, ..)`.
//! * The table has at least one element along its axis, as far as is known: if there are no pairs,
//!   and for element 0, the index is 0, so that no index is newly out of range.
//!
//! It is exact: the index of a diagonal is computed by the same operations, with p - T as row and 0
//! as column. Integers wrap, so differences are the same however large their operands are. Operands
//! of comparisons must not wrap: literals beyond 2^30 are rejected, and S + T is assumed to fit the
//! type of the counters, as for masks ([`super::counters`]).
//!
//! # Limits
//!
//! Formulas without a table stay: they are computed in their consumer (`fuse-mask`).

use std::collections::BTreeMap;

use super::rewrite::{Cursor, become_op, remove_unused};
use super::{Changed, Context};
use crate::ir::{Block, Class, Function, Inst, Op, Scalar, Value};
use crate::scalar::{BinaryOp, CmpOp, UnaryOp};
use crate::shape::{Dim, Elem, TensorType};

/// The maximum number of operations that compute an index.
const MAX_OPERATIONS: usize = 64;
/// The largest number that may be added to a counter before a comparison.
const MAX_ADDED: i64 = 1 << 30;

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut gathers = Vec::new();
    for (block, inst, d) in f.insts() {
        if matches!(d.op, Op::Gather { batch: 0, .. }) {
            gathers.push((block, inst));
        }
    }
    let mut changed = 0;
    for (block, inst) in gathers {
        let Some(what) = found(f, inst) else { continue };
        // An error of a rule means that the rewrite does not fit; the function is left unchanged.
        let Ok(()) = rewrite(f, (block, inst), &what) else { continue };
        let [rows, columns] = &what.shape;
        let text = format!("the table is read once for each diagonal of [{rows}, {columns}]");
        ctx.done(f, f.inst(inst).loc, text);
        changed += 1;
    }
    if changed > 0 {
        remove_unused(f);
    }
    ctx.count("tables read by diagonals", changed);
    Changed::from(changed > 0)
}

/// The meaning of the axes of a value in the matrix of indices, last axis first.
type Axes = [Axis; 2];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Axis {
    Row,
    Column,
    /// It has one element, or the value has fewer axes.
    None,
}

/// How a value depends on row i and column j.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dependence {
    /// A linear function of i and j with these coefficients, plus a value that is the same
    /// everywhere: `Some` if it is a known number.
    Linear { row: i64, column: i64, added: Option<i64> },
    /// A function of i - j alone.
    Difference,
}

impl Dependence {
    const SAME: Dependence = Dependence::Linear { row: 0, column: 0, added: None };

    fn is_same(self) -> bool {
        matches!(self, Dependence::Linear { row: 0, column: 0, .. })
    }

    fn is_difference(self) -> bool {
        match self {
            Dependence::Linear { row, column, .. } => row.checked_add(column) == Some(0),
            Dependence::Difference => true,
        }
    }

    /// Does i - j determine the comparison of two integers? Each must be a counter or nothing, plus
    /// a known number.
    fn compares_by_difference(self, other: Dependence) -> bool {
        let parts = |d: Dependence| match d {
            Dependence::Linear { row: row @ 0..=1, column: column @ 0..=1, added: Some(_) } => Some((row, column)),
            Dependence::Linear { .. } | Dependence::Difference => None,
        };
        parts(self).zip(parts(other)).is_some_and(|((i, j), (k, l))| i + j == k + l)
    }
}

/// A gather that can be rewritten to read diagonals.
struct Found {
    table: Value,
    axis: usize,
    index: Value,
    /// The element type of the indices.
    elem: Elem,
    /// Extents: rows, columns.
    shape: [Dim; 2],
}

/// Matches a gather whose indices depend on the diagonal alone.
fn found(f: &Function, inst: Inst) -> Option<Found> {
    let d = f.inst(inst);
    let (Op::Gather { axis, batch: 0 }, [table, index]) = (&d.op, d.operands.as_slice()) else { return None };
    let at = f.tensor(*index)?;
    let [rows, columns] = at.shape.as_slice() else { return None };
    let is_one = |d: &Dim| d.as_const().is_some_and(|n| n <= 1);
    let entries = f.tensor(*table)?.shape.get(*axis)?.as_const()?;
    if entries < 1 || is_one(rows) || is_one(columns) || !matches!(at.elem, Elem::I32 | Elem::I64) {
        return None;
    }
    let mut reader = Reader { f, known: BTreeMap::new() };
    let how = reader.dependence(*index, [Axis::Column, Axis::Row])?;
    let shape = [rows.clone(), columns.clone()];
    (how.is_difference() && !how.is_same()).then_some(Found {
        table: *table,
        axis: *axis,
        index: *index,
        elem: at.elem,
        shape,
    })
}

/// The axes of the operand of a reshape, if it only adds or drops axes of 1.
fn before_reshape(axes: Axes, from: &[Dim], to: &[Dim]) -> Option<Axes> {
    let long = |shape: &[Dim]| -> Vec<(usize, Dim)> {
        let from_right = shape.iter().rev().cloned().enumerate();
        from_right.filter(|(_, d)| d.as_const() != Some(1)).collect()
    };
    let (from, to) = (long(from), long(to));
    if from.len() != to.len() || from.iter().zip(&to).any(|((_, a), (_, b))| a != b) {
        return None;
    }
    let mut before = [Axis::None; 2];
    for ((own, _), (at, _)) in from.into_iter().zip(to) {
        *before.get_mut(own)? = *axes.get(at)?;
    }
    Some(before)
}

/// For an operation that may move counters: its operand, and the axes of the operand.
fn before(f: &Function, v: Value, axes: Axes) -> Option<(Value, Axes)> {
    let (_, d) = f.definition(v)?;
    let [x] = *d.operands.as_slice() else { return None };
    let (from, to) = (f.tensor(x)?, f.tensor(v)?);
    Some(match &d.op {
        Op::Reshape => (x, before_reshape(axes, &from.shape, &to.shape)?),
        // Broadcasting repeats an axis of one element.
        Op::Broadcast => (x, axes),
        Op::Transpose { perm } if perm.as_slice() == [1, 0] => (x, [axes[1], axes[0]]),
        _ => return None,
    })
}

/// The axis that a counter counts.
fn counted(axis: usize, shape: &[Dim], axes: Axes) -> Option<Axis> {
    if shape.get(axis)?.as_const() == Some(1) {
        return Some(Axis::None);
    }
    axes.get(shape.len().checked_sub(axis + 1)?).copied()
}

struct Reader<'a> {
    f: &'a Function,
    known: BTreeMap<(Value, Axes), Option<Dependence>>,
}

impl Reader<'_> {
    fn dependence(&mut self, v: Value, axes: Axes) -> Option<Dependence> {
        if let Some(known) = self.known.get(&(v, axes)) {
            return *known;
        }
        if self.known.len() >= MAX_OPERATIONS {
            return None;
        }
        // Counts towards the limit; operands are defined earlier, so there is no cycle.
        self.known.insert((v, axes), None);
        let how = self.made(v, axes);
        self.known.insert((v, axes), how);
        how
    }

    fn made(&mut self, v: Value, axes: Axes) -> Option<Dependence> {
        let f = self.f;
        let t = f.tensor(v)?;
        if t.rank() == 0 {
            let added = match f.definition(v).map(|(_, d)| &d.op) {
                Some(Op::Const(Scalar::Int(n))) if n.abs() <= MAX_ADDED => Some(*n),
                _ => None,
            };
            return Some(Dependence::Linear { row: 0, column: 0, added });
        }
        let (_, d) = f.definition(v)?;
        if let Op::Iota { axis } = d.op {
            let (row, column) = match counted(axis, &t.shape, axes)? {
                Axis::Row => (1, 0),
                Axis::Column => (0, 1),
                Axis::None => (0, 0),
            };
            let is_whole = matches!(t.elem, Elem::I32 | Elem::I64);
            return is_whole.then_some(Dependence::Linear { row, column, added: Some(0) });
        }
        if let Some((x, axes)) = before(f, v, axes) {
            return self.dependence(x, axes);
        }
        if d.op.info().class != Class::Elementwise {
            return None;
        }
        let operands = d.operands.iter().map(|x| self.dependence(*x, axes)).collect::<Option<Vec<Dependence>>>()?;
        let is_whole = matches!(t.elem, Elem::I32 | Elem::I64);
        if let (true, Some(linear)) = (is_whole, linear(&d.op, &operands)) {
            return Some(linear);
        }
        if operands.iter().all(|x| x.is_same()) {
            return Some(Dependence::SAME);
        }
        if let (Op::Compare(_), [a, b]) = (&d.op, operands.as_slice())
            && a.compares_by_difference(*b)
        {
            return Some(Dependence::Difference);
        }
        operands.iter().all(|x| x.is_difference()).then_some(Dependence::Difference)
    }
}

/// A sum, difference or multiple of linear functions.
fn linear(op: &Op, operands: &[Dependence]) -> Option<Dependence> {
    type Counts = (i64, i64, Option<i64>);
    let both = |sign: i64, [a, b]: [Counts; 2]| {
        let sum = |a: i64, b: i64| a.checked_add(b.checked_mul(sign)?);
        let added = a.2.zip(b.2).and_then(|(a, b)| sum(a, b)).filter(|n| n.abs() <= MAX_ADDED);
        Some(Dependence::Linear { row: sum(a.0, b.0)?, column: sum(a.1, b.1)?, added })
    };
    let counts = |x: &Dependence| match x {
        Dependence::Linear { row, column, added } => Some((*row, *column, *added)),
        Dependence::Difference => None,
    };
    match (op, operands) {
        (Op::Binary(BinaryOp::Add), [a, b]) => both(1, [counts(a)?, counts(b)?]),
        (Op::Binary(BinaryOp::Sub), [a, b]) => both(-1, [counts(a)?, counts(b)?]),
        (Op::Unary(UnaryOp::Neg), [x]) => both(-1, [(0, 0, Some(0)), counts(x)?]),
        _ => None,
    }
}

/// Emits the operations of an index again, once per diagonal.
struct Writer<'a> {
    f: &'a mut Function,
    cursor: Cursor,
    shape: &'a [Dim; 2],
    made: BTreeMap<(Value, Axes), Value>,
}

impl Writer<'_> {
    /// The value per diagonal: a vector, or a scalar if it is the same for all.
    fn value(&mut self, v: Value, axes: Axes) -> Result<Value, String> {
        if let Some(made) = self.made.get(&(v, axes)) {
            return Ok(*made);
        }
        let made = self.again(v, axes)?;
        self.made.insert((v, axes), made);
        Ok(made)
    }

    fn again(&mut self, v: Value, axes: Axes) -> Result<Value, String> {
        let t = self.f.tensor(v).ok_or("an index made of something else")?.clone();
        if t.rank() == 0 {
            return Ok(v);
        }
        let (_, d) = self.f.definition(v).ok_or("an index made of an argument")?;
        let (op, operands, loc) = (d.op.clone(), d.operands.clone(), d.loc);
        let cursor = Cursor { loc, ..self.cursor };
        if let Op::Iota { axis } = op {
            return match counted(axis, &t.shape, axes) {
                Some(Axis::Row) => self.diagonals(t.elem),
                _ => cursor.constant(self.f, Scalar::Int(0), t.elem),
            };
        }
        if let Some((x, axes)) = before(self.f, v, axes) {
            return self.value(x, axes);
        }
        let operands = operands.iter().map(|x| self.value(*x, axes)).collect::<Result<Vec<Value>, String>>()?;
        let shape = operands.iter().filter_map(|x| self.f.tensor(*x)).find(|t| t.rank() > 0).map(|t| t.shape.clone());
        let declared = TensorType::new(t.elem, shape.unwrap_or_default());
        let cast = matches!(op, Op::Cast { .. });
        cursor.insert_as(self.f, op, operands, cast.then_some(declared))
    }

    /// Positions p in the vector of diagonals.
    fn places(&mut self, elem: Elem) -> Result<Value, String> {
        let [rows, columns] = self.shape;
        let ty = TensorType::new(elem, vec![rows.add(columns)]);
        self.cursor.insert_as(self.f, Op::Iota { axis: 0 }, Vec::new(), Some(ty))
    }

    /// i - j, i.e. p - T, for each diagonal.
    fn diagonals(&mut self, elem: Elem) -> Result<Value, String> {
        let places = self.places(elem)?;
        let columns = self.number(&self.shape[1].clone(), elem)?;
        self.cursor.insert(self.f, Op::Binary(BinaryOp::Sub), vec![places, columns])
    }

    /// The value of a dimension, as a tensor of rank 0.
    fn number(&mut self, d: &Dim, elem: Elem) -> Result<Value, String> {
        match d.as_const() {
            Some(n) => self.cursor.constant(self.f, Scalar::Int(n), elem),
            None => self.cursor.insert_as(self.f, Op::DimValue(d.clone()), Vec::new(), Some(TensorType::scalar(elem))),
        }
    }

    /// The index per diagonal; 0 if the diagonal belongs to no pair.
    fn index(&mut self, index: Value, elem: Elem) -> Result<Value, String> {
        let index = self.value(index, [Axis::Column, Axis::Row])?;
        let places = self.places(elem)?;
        let zero = self.number(&Dim::zero(), elem)?;
        let mut kept = self.cursor.insert(self.f, Op::Compare(CmpOp::Ne), vec![places, zero])?;
        let [rows, columns] = self.shape;
        if !(rows.is_const() && columns.is_const()) {
            // The number of valid positions: 0 without rows or columns, else the length of the
            // vector.
            let pairs = rows.mul(columns).mul(&Dim::from(2));
            let length = self.number(&pairs.min_with(&rows.add(columns)), elem)?;
            let is_some = self.cursor.insert(self.f, Op::Compare(CmpOp::Lt), vec![places, length])?;
            kept = self.cursor.insert(self.f, Op::Binary(BinaryOp::And), vec![kept, is_some])?;
        }
        self.cursor.insert(self.f, Op::Where, vec![kept, index, zero])
    }
}

fn rewrite(f: &mut Function, (block, inst): (Block, Inst), what: &Found) -> Result<(), String> {
    let cursor = Cursor::before(f, block, inst);
    let mut writer = Writer { f, cursor, shape: &what.shape, made: BTreeMap::new() };
    let index = writer.index(what.index, what.elem)?;
    let t = f.tensor(what.table).ok_or("a table that is not a tensor")?.clone();
    // Move the axis of the table last; the others keep their order.
    let (axis, last) = (what.axis, t.rank().checked_sub(1).ok_or("a table without axes")?);
    let mut table = what.table;
    if axis != last {
        let perm = (0..=last).filter(|n| *n != axis).chain([axis]).collect();
        table = cursor.insert(f, Op::Transpose { perm }, vec![table])?;
    }
    let taken = cursor.insert(f, Op::Gather { axis: last, batch: 0 }, vec![table, index])?;
    let [rows, columns] = what.shape.clone();
    let mut shape = t.shape.clone();
    shape.remove(axis);
    shape.extend([columns, rows]);
    let op = Op::Windows { axis: last, stride: -1 };
    let matrix = cursor.insert_as(f, op, vec![taken], Some(TensorType::new(t.elem, shape)))?;
    let perm = (0..axis).chain([last + 1, last]).chain(axis..last).collect();
    become_op(f, inst, Op::Transpose { perm }, vec![matrix]);
    Ok(())
}
