//! The operations of the graph IR, declared once.
//!
//! [`Op`] carries an operation's attributes; the table below it has a row for each (the columns are explained in
//! `crate::table`): name, operands, attributes, class, effects, shape rule, meaning. Printer, parser, verifier, passes and
//! the operation reference read it. An operation is added by a variant and a row; every `match` on [`Op`] that decides
//! something lists all of them, so the errors of the compiler lead to the other places.

use std::fmt;

use crate::ir::{Function, Type, rules};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp, round_to};
use crate::shape::{Dim, Elem};
use crate::ssa::Effects;
use crate::table::operations;

/// One step of what is done to the scores of an [`Op::Attention`], in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MaskKind {
    /// `-inf` where `causal(q_len, kv_len)` is false. No operand.
    Causal,
    /// Adds a tensor that broadcasts to the scores. One operand.
    Add,
    /// Keeps the score where a condition that broadcasts to the scores holds, else takes a fill value (usually `-inf`).
    /// Two operands: the condition (`bool`) and the fill (a scalar).
    Keep,
    /// Soft cap: `c * tanh(score)` for a number `c`. One operand, a scalar `f32`. (What is divided by `c` before is in the scale.)
    Cap,
    /// A sink: one more score in each row, which takes its weight in the softmax and has no value. One operand, which
    /// broadcasts to the scores with one column. It is the last step.
    Sink,
}

impl MaskKind {
    /// All kinds.
    const ALL: [MaskKind; 5] = [MaskKind::Causal, MaskKind::Add, MaskKind::Keep, MaskKind::Cap, MaskKind::Sink];

    /// Name in dumps.
    pub fn name(self) -> &'static str {
        match self {
            MaskKind::Causal => "causal",
            MaskKind::Add => "add",
            MaskKind::Keep => "keep",
            MaskKind::Cap => "cap",
            MaskKind::Sink => "sink",
        }
    }

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<MaskKind> {
        MaskKind::ALL.into_iter().find(|k| k.name() == name)
    }

    /// How many operands of the attention belong to it.
    pub fn operands(self) -> usize {
        match self {
            MaskKind::Causal => 0,
            MaskKind::Add | MaskKind::Cap | MaskKind::Sink => 1,
            MaskKind::Keep => 2,
        }
    }
}

/// The operands of an [`Op::Attention`] with these masks that may be computed in its region: conditions, and what is added.
pub(crate) fn mask_operands(masks: &[MaskKind]) -> Vec<usize> {
    let mut next = 4;
    let mut found = Vec::new();
    for kind in masks {
        if matches!(kind, MaskKind::Add | MaskKind::Keep) {
            found.push(next);
        }
        next += kind.operands();
    }
    found
}

/// What a fused region is built around, and so which kind of kernel it becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FusionKind {
    /// One matmul and what is done to its result, element by element.
    Matmul,
    /// One attention and what is done to its result, element by element.
    Attention,
    /// Reductions over the last axis and elementwise work around them: norms, softmax with what surrounds it.
    Rows,
    /// Elementwise work alone.
    Map,
}

impl FusionKind {
    /// Name in dumps.
    pub fn name(self) -> &'static str {
        match self {
            FusionKind::Matmul => "matmul",
            FusionKind::Attention => "attention",
            FusionKind::Rows => "rows",
            FusionKind::Map => "map",
        }
    }

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<FusionKind> {
        [FusionKind::Matmul, FusionKind::Attention, FusionKind::Rows, FusionKind::Map]
            .into_iter()
            .find(|k| k.name() == name)
    }
}

/// An operation with its attributes. Operands and result stand beside it in the instruction.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A literal, splatted over the declared type.
    Const(Scalar),
    /// The value of a dimension expression as an index or a scalar of the declared type.
    DimValue(Dim),
    /// 0, 1, 2, ... along an axis of the declared type.
    Iota {
        /// The axis along which it counts.
        axis: usize,
    },
    /// `j <= i + kv_len - q_len` over the declared type `bool[q_len, kv_len]`.
    Causal,
    /// A parameter of the model, of the declared type; operands index the arrays of layers on its path. An index out of range
    /// is an error of the call.
    Param {
        /// Its path, `*` for each array index.
        name: String,
    },
    /// What the session keeps under a name, as it is here. Reading and writing a state happen in the order of the text.
    State {
        /// Its name.
        name: String,
    },
    /// Makes its operand what the session keeps under a name. No result.
    SetState {
        /// Its name.
        name: String,
    },
    /// Gives a dimension of the program its value: its operand, an integer scalar or an index. The types and attributes of what
    /// this dominates may name it, and nothing else may. A value that is not from 0 to `most` is an error of the call. No result.
    Length {
        /// The dimension's name, which no argument has.
        name: String,
        /// What it is at most: what room is made for. Known on entry.
        most: Dim,
    },
    /// An operation on each element.
    Unary(UnaryOp),
    /// An operation on pairs of elements, broadcast. Also on two indices.
    Binary(BinaryOp),
    /// A comparison of pairs of elements, broadcast. Also of two indices.
    Compare(CmpOp),
    /// `condition ? a : b` for each element, broadcast.
    Where,
    /// Conversion to another element type: to a narrower float rounds to nearest even, float to integer truncates
    /// towards zero and saturates (NaN gives 0), integer to integer wraps, to `bool` is `!= 0`.
    Cast {
        /// The element type of the result.
        elem: Elem,
    },
    /// The same elements in row-major order under the declared shape.
    Reshape,
    /// Axes in another order: axis `i` of the result is axis `perm[i]` of the operand.
    Transpose {
        /// A permutation of the axes.
        perm: Vec<usize>,
    },
    /// The operand broadcast to the declared shape.
    Broadcast,
    /// Elements `start..stop` along an axis. A range that is not in the axis is an error of the call, on entry.
    Slice {
        /// The axis.
        axis: usize,
        /// First element.
        start: Dim,
        /// One past the last element.
        stop: Dim,
    },
    /// Windows of an axis, each a number of elements after the one before, which may overlap: in the declared type the axis is two,
    /// how many windows there are, and how long they are. With a negative stride the first window ends where the axis does, and
    /// each begins so many elements before the one before. Windows that leave the axis are an error of the call, on entry.
    Windows {
        /// The axis.
        axis: usize,
        /// From the first element of a window to that of the next one; not 0.
        stride: i64,
    },
    /// One element along an axis, the axis gone. An index out of range is an error of the call.
    Index {
        /// The axis.
        axis: usize,
    },
    /// Operands one after another along an axis.
    Concat {
        /// The axis.
        axis: usize,
    },
    /// The operand with `low` and `high` elements of the second operand (a scalar) before and after it along an axis.
    /// Negative numbers are an error of the call, on entry.
    Pad {
        /// The axis.
        axis: usize,
        /// How many before.
        low: Dim,
        /// How many after.
        high: Dim,
    },
    /// Slices of the first operand along an axis at the integers of the second, whose axes take the axis's place. The first
    /// axes of both may be the same: then each slice is of the part at the same place along them. An integer out of range is an
    /// error of the call, unless the result has no elements.
    Gather {
        /// The axis.
        axis: usize,
        /// How many first axes the operands share, all of them before the axis.
        batch: usize,
    },
    /// A window of the first operand: along each of some axes it begins at an index (an integer scalar or an index), and
    /// the declared type says how long it is. A window that leaves the axis is an error of the call.
    Extract {
        /// The axes, ascending; an index operand for each.
        axes: Vec<usize>,
    },
    /// The first operand with a window of it replaced by the second: along each of some axes the window begins at an index, as
    /// of [`Op::Extract`]. The second operand has the window's extents.
    Update {
        /// The axes, ascending; an index operand for each.
        axes: Vec<usize>,
    },
    /// The first operand with slices of the third, taken along an axis, written at the integers of the second, or added there.
    /// In order: of two slices for one place the later one stays, or its addition is the later one, each rounded to the element
    /// type. An integer out of range is an error of the call, unless another axis is empty.
    Scatter {
        /// The axis.
        axis: usize,
        /// Are the slices added?
        add: bool,
    },
    /// A reduction over axes.
    Reduce {
        /// What is computed.
        kind: ReduceKind,
        /// The axes, ascending, not empty (one for `argmax`).
        axes: Vec<usize>,
        /// Do the axes stay, with extent 1?
        keep: bool,
    },
    /// `exp(x - max) / sum` over an axis; a line that is all `-inf` gives zeros.
    Softmax {
        /// The axis.
        axis: usize,
    },
    /// `x - max - log(sum(exp(x - max)))` over an axis: the logarithm of the softmax, so a line that is all `-inf` gives
    /// `-inf`, the logarithms of the zeros that softmax gives.
    LogSoftmax {
        /// The axis.
        axis: usize,
    },
    /// The sum along an axis up to each element, that element included, in ascending order.
    Cumsum {
        /// The axis.
        axis: usize,
    },
    /// The indices (`i32`) of the first elements along an axis in ascending order, or in descending order, equal ones in the
    /// order of their indices. NaN is greater than every number, and equal to itself. More elements than there are, or an axis of
    /// more than [`crate::scalar::ARGMAX_LENGTH`], are an error of the call.
    Argsort {
        /// The axis.
        axis: usize,
        /// The greatest first?
        descending: bool,
        /// How many.
        first: Dim,
    },
    /// Matrix product over the last two axes, the leading ones broadcast. `i8` gives `i32`; a rank-1 operand is not allowed.
    Matmul,
    /// `softmax(mask(q @ k^T * scale)) @ v` over the last two axes, the leading ones broadcast. Operands: `q[.., S, D]`,
    /// `k[.., T, D]`, `v[.., T, E]`, `scale` (a scalar `f32`), then those of the masks in order; each of a float type of its
    /// own. Never written by an author; made by `fuse-attention`. A row with no finite score gives zeros. All is computed in
    /// `f32`, and the result rounded to the values' type; weights may be rounded to that type, if it is a narrower one, before
    /// they meet the values, divided by their sum or not yet.
    Attention {
        /// What is done to the scores, in order: masks, a soft cap, a sink.
        masks: Vec<MaskKind>,
    },
    /// A straight-line region that becomes one kernel. The operands are the arguments of `body`'s only block.
    Fused {
        /// What it is built around.
        kind: FusionKind,
        /// The region; it returns one value.
        body: Box<Function>,
    },
    /// Makes its first operand observable under a path. The other operands are indices: first those of the arrays of
    /// layers on the path, then those of the loops over time around it, along which the tap is stacked. An index
    /// that is not within its extent is an error of the call. No result.
    Tap {
        /// The path, `*` for each array index.
        name: String,
        /// The extent of each index operand; those of the arrays of layers are numbers.
        extents: Vec<Dim>,
    },
}

/// How an operation's work is shaped; passes and lowering use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// No tensor operands: constants, counters, parameters.
    Source,
    /// Each element of the result needs one element of each operand, at the broadcast position.
    Elementwise,
    /// Moves elements, computes nothing.
    Movement,
    /// Combines many elements into one.
    Contraction,
    /// Has an effect; is kept though nothing uses it.
    Effect,
    /// Made by fusion.
    Fused,
}

impl Class {
    /// Name in the reference.
    pub fn text(self) -> &'static str {
        match self {
            Class::Source => "source: no tensor operands",
            Class::Elementwise => "elementwise",
            Class::Movement => "movement",
            Class::Contraction => "contraction: many elements become one",
            Class::Effect => "effect",
            Class::Fused => "fused region",
        }
    }
}

const NONE: Effects = Effects::NONE;
const FAILS: Effects = Effects::FAILS;

operations! {
    Op of Class, types Type;

    Const(value) "const", [], own, Source NONE, Declared rules::constant, "a literal, splatted over the type";
    DimValue(value) "dim", [], own, Source FAILS, Declared rules::dimension, "the value of a dimension expression";
    Iota { axis } "iota", [], [axis: usize], Source NONE, Declared rules::iota, "0, 1, 2, ... along an axis";
    Causal "causal", [], [], Source NONE, Declared rules::causal, "query i sees key j where j <= i + kv_len - q_len";
    Param { name } "param", ["index*"], own, Source Effects::PARAMETERS, Declared rules::param,
        "a parameter of the model";

    State { name } "state", [], own, Source Effects::READS, Declared rules::state, "what the session keeps";
    SetState { name } "set_state", ["x"], own, Effect Effects::WRITES, Nothing rules::set_state,
        "makes a value what the session keeps";
    Length { name, most } "length", ["x"], [name: String, most: Dim], Effect Effects { fails: true, ..Effects::WRITES },
        Nothing rules::length, "gives a dimension its value";

    Unary(op) each op: UnaryOp, ["x"], [], Elementwise NONE, Computed rules::unary,;
    Binary(op) each op: BinaryOp, ["a", "b"], [], Elementwise NONE, Computed rules::binary,;
    Compare(op) each op: CmpOp, ["a", "b"], [], Elementwise NONE, Computed rules::compare,;
    Where "where", ["condition", "a", "b"], [], Elementwise NONE, Computed rules::select,
        "condition ? a : b, broadcast";
    Cast { elem } "cast", ["x"], own, Elementwise NONE, Declared rules::cast, "conversion to another element type";

    Reshape "reshape", ["x"], [], Movement NONE, Declared rules::reshape, "the same elements under another shape";
    Transpose { perm } "transpose", ["x"], [perm: Vec<usize>], Movement NONE, Computed rules::transpose,
        "axes in another order";
    Broadcast "broadcast", ["x"], [], Movement NONE, Declared rules::broadcast_to, "repeated to a larger shape";
    Slice { axis, start, stop } "slice", ["x"], [axis: usize, start: Dim, stop: Dim], Movement FAILS, Computed rules::slice,
        "elements start..stop along an axis";
    Windows { axis, stride } "windows", ["x"], [axis: usize, stride: i64], Movement FAILS, Declared rules::windows,
        "windows of an axis, which may overlap";
    Index { axis } "index", ["x", "at"], [axis: usize], Movement FAILS, Computed rules::index,
        "one element along an axis, the axis gone";
    Concat { axis } "concat", ["x*"], [axis: usize], Movement NONE, Computed rules::concat,
        "operands one after another along an axis";
    Pad { axis, low, high } "pad", ["x", "value"], [axis: usize, low: Dim, high: Dim], Movement FAILS, Computed rules::pad,
        "elements before and after, along an axis";
    Gather { axis, batch } "gather", ["table", "at"], [axis: usize, batch: usize = 0], Movement FAILS, Computed rules::gather,
        "slices of a table at integers";
    Extract { axes } "extract", ["x", "index*"], [axes: Vec<usize>], Movement FAILS, Declared rules::extract,
        "a window that begins at indices";
    Update { axes } "update", ["target", "value", "index*"], [axes: Vec<usize>], Movement FAILS, Computed rules::update,
        "the target with a window replaced by the value";

    Scatter { axis, add } "scatter", ["target", "at", "value"], [axis: usize, add: bool = false], Movement FAILS,
        Computed rules::scatter, "the target with slices written, or added, at integers";

    Reduce { kind, axes, keep } each kind: ReduceKind, ["x"], [axes: Vec<usize>, keep: bool = false],
        Contraction if *kind == ReduceKind::ArgMax { FAILS } else { NONE }, Computed rules::reduce,;
    Softmax { axis } "softmax", ["x"], [axis: usize], Contraction NONE, Computed rules::softmax,
        "exp(x - max) / sum; all -inf gives 0";
    LogSoftmax { axis } "log_softmax", ["x"], [axis: usize], Contraction NONE, Computed rules::softmax,
        "log of the softmax; all -inf gives -inf";
    Cumsum { axis } "cumsum", ["x"], [axis: usize], Contraction NONE, Computed rules::cumsum,
        "the sum along an axis up to each element";
    Argsort { axis, descending, first } "argsort", ["x"], [axis: usize, descending: bool = false, first: Dim],
        Contraction FAILS, Computed rules::argsort, "indices along an axis in the order of the elements";
    Matmul "matmul", ["a", "b"], [], Contraction NONE, Computed rules::matmul,
        "matrix product, leading axes broadcast";
    Attention { masks } "attention", ["q", "k", "v", "scale", "mask*"], own, Contraction NONE, Computed rules::attention,
        "softmax(mask(q @ k^T * scale)) @ v";

    Fused { kind, body } "fused", ["x*"], own, Fused FAILS, Computed rules::fused, "a region that becomes one kernel";
    Tap { name, extents } "tap", ["x", "index*"], own, Effect Effects { fails: true, ..Effects::WRITES }, Nothing rules::tap,
        "makes a value observable by name";
}

impl Op {
    /// A constant of a small float type rounded to it; every other operation as it is.
    pub fn rounded(self, ty: Option<&Type>) -> Op {
        let elem = ty.and_then(Type::tensor).map(|t| t.elem);
        match (self, elem) {
            (Op::Const(Scalar::Float(x)), Some(elem @ (Elem::BF16 | Elem::F16))) => {
                Op::Const(Scalar::Float(round_to(elem, x)))
            }
            (op, _) => op,
        }
    }

    /// The dimensions in its attributes.
    pub fn dims(&self) -> Vec<&Dim> {
        match self {
            Op::DimValue(d) => vec![d],
            Op::Tap { extents, .. } => extents.iter().collect(),
            op => op.listed_dims(),
        }
    }

    /// Must the operation be kept though nothing uses its result?
    pub fn has_effect(&self) -> bool {
        self.info().effects.is_kept()
    }

    /// Names of the steps that an operation was made of: of an attention the product that makes the scores, their scale, what
    /// is done to them, and the softmax (its own place is that of the product with the values).
    pub fn steps(&self) -> Vec<&'static str> {
        match self {
            Op::Attention { masks } => {
                let masks = masks.iter().map(|m| m.name());
                ["scores", "scale"].into_iter().chain(masks).chain(["softmax"]).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for Op {
    /// The name alone; attributes are the text form's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}
