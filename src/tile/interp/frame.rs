//! Run-time values of a body.

use std::rc::Rc;

use super::elements::Element;
use super::memory::View;
use super::{EvalError, broken};
use crate::tile::Value;

/// The elements of a tile, in row-major order.
#[derive(Clone, Debug)]
pub(super) struct Tile {
    pub rows: usize,
    pub cols: usize,
    pub data: Rc<Vec<Element>>,
}

impl Tile {
    /// The element at a position, after broadcasting.
    pub(super) fn at(&self, i: usize, j: usize) -> Option<Element> {
        let i = if self.rows == 1 { 0 } else { i };
        let j = if self.cols == 1 { 0 } else { j };
        self.data.get(i.checked_mul(self.cols)?.checked_add(j)?).copied()
    }
}

/// A run-time value.
#[derive(Clone, Debug)]
pub(super) enum RuntimeValue {
    Index(i64),
    Scalar(Element),
    Tile(Tile),
    /// A tile whose elements are in scratch, at the offset in its type.
    Scratch,
    /// A tile whose elements are in a buffer, starting at an index.
    Window {
        view: Rc<View>,
        start: Vec<i64>,
        rows: Option<usize>,
        cols: Option<usize>,
    },
    Buffer(Rc<View>),
}

/// The values of a body, by number.
pub(super) type Frame = Vec<Option<RuntimeValue>>;

pub(super) fn slot(v: Value) -> usize {
    v.as_u32() as usize
}

pub(super) fn get(frame: &Frame, v: Value) -> Result<&RuntimeValue, EvalError> {
    match frame.get(slot(v)) {
        Some(Some(x)) => Ok(x),
        _ => broken(format!("{v} has no value")),
    }
}

pub(super) fn set(frame: &mut Frame, v: Value, x: RuntimeValue) {
    if let Some(s) = frame.get_mut(slot(v)) {
        *s = Some(x);
    }
}

pub(super) fn index(frame: &Frame, v: Value) -> Result<i64, EvalError> {
    match get(frame, v)? {
        RuntimeValue::Index(n) => Ok(*n),
        _ => broken(format!("{v} is not an index")),
    }
}

pub(super) fn indices(frame: &Frame, vs: &[Value]) -> Result<Vec<i64>, EvalError> {
    vs.iter().map(|v| index(frame, *v)).collect()
}

pub(super) fn buffer(frame: &Frame, v: Value) -> Result<Rc<View>, EvalError> {
    match get(frame, v)? {
        RuntimeValue::Buffer(b) => Ok(b.clone()),
        _ => broken(format!("{v} is not a buffer")),
    }
}
