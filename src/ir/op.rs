//! The operations of the graph IR, declared once.
//!
//! [`Op`] carries an operation's attributes; the table below it has a row for each (the columns are
//! explained in `crate::table`): name, operands, attributes, class, effects, shape rule, meaning.
//! Printer, parser, verifier, passes and the operation reference read it. To add an operation, add
//! a variant and a row; every `match` on [`Op`] that decides something lists all variants, so the
//! compiler's errors lead to the remaining code.

use std::fmt;

use crate::ir::{Function, Type, rules};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp, round_to};
use crate::shape::{Dim, Elem};
use crate::ssa::Effects;
use crate::table::operations;

/// One operation on the scores of an [`Op::Attention`], in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MaskKind {
    /// `-inf` where `causal(q_len, kv_len)` is false. No operand.
    Causal,
    /// Adds a tensor that broadcasts to the scores. One operand.
    Add,
    /// Keeps the score where a condition that broadcasts to the scores holds, else takes a fill
    /// value (usually `-inf`). Two operands: the condition (`bool`) and the fill (a scalar).
    Keep,
    /// Soft cap: `c * tanh(score)` for a number `c`. One operand, a scalar `f32`. (A division by
    /// `c` before it is part of the scale.)
    Cap,
    /// A sink: an additional score in each row, which takes its weight in the softmax and has no
    /// value. One operand, which broadcasts to the scores with one column. It is the last step.
    Sink,
}

impl MaskKind {
    /// In the order of declaration.
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

    /// Parses the name of a kind.
    pub fn from_name(name: &str) -> Option<MaskKind> {
        MaskKind::ALL.into_iter().find(|k| k.name() == name)
    }

    /// The number of operands of the attention that belong to it.
    pub fn operands(self) -> usize {
        match self {
            MaskKind::Causal => 0,
            MaskKind::Add | MaskKind::Cap | MaskKind::Sink => 1,
            MaskKind::Keep => 2,
        }
    }
}

/// The operands of an [`Op::Attention`] with these masks that may be computed in its region:
/// conditions, and added masks.
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

/// The kind of a fused region, by its main operation; determines the kind of its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FusionKind {
    /// One matmul with an elementwise epilogue.
    Matmul,
    /// One attention with an elementwise epilogue.
    Attention,
    /// A matmul or a reduction of a tensor that is computed from other matmuls, tile by tile, and
    /// never stored.
    Chain,
    /// Reductions over the last axis and elementwise operations around them: norms, softmax with
    /// adjacent operations.
    Rows,
    /// Elementwise operations only.
    Map,
}

impl FusionKind {
    /// Name in dumps.
    pub fn name(self) -> &'static str {
        match self {
            FusionKind::Matmul => "matmul",
            FusionKind::Attention => "attention",
            FusionKind::Chain => "chain",
            FusionKind::Rows => "rows",
            FusionKind::Map => "map",
        }
    }

    /// Parses the name of a kind.
    pub fn from_name(name: &str) -> Option<FusionKind> {
        [FusionKind::Matmul, FusionKind::Attention, FusionKind::Chain, FusionKind::Rows, FusionKind::Map]
            .into_iter()
            .find(|k| k.name() == name)
    }
}

/// An operation with its attributes. The instruction holds its operands and result.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A literal, splatted over the declared type.
    Const(Scalar),
    /// The value of a dimension expression as an index or a scalar of the declared type.
    DimValue(Dim),
    /// 0, 1, 2, ... along an axis of the declared type.
    Iota {
        /// The axis along which the values increase.
        axis: usize,
    },
    /// `j <= i + kv_len - q_len` over the declared type `bool[q_len, kv_len]`.
    Causal,
    /// A parameter of the model, of the declared type; operands index the arrays of layers on its
    /// path. An index out of range is an error of the call.
    Param {
        /// Its path, with `*` for each array index.
        name: String,
    },
    /// The current value of a state of the session. States are read and written in program order.
    State {
        /// Name of a declared state.
        name: String,
    },
    /// Sets a state of the session to the operand. No result.
    SetState {
        /// Name of a declared state.
        name: String,
    },
    /// Sets a run-time dimension to its operand, an integer scalar or an index. Only types and
    /// attributes dominated by this instruction may mention it. A value outside of `0..=most` is an
    /// error of the call. No result.
    Length {
        /// The dimension's name, which no argument uses.
        name: String,
        /// Its upper bound, which determines allocations. Known on entry.
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
    /// Conversion to another element type: to a narrower float rounds to nearest even, float to
    /// integer truncates towards zero and saturates (NaN gives 0), integer to integer wraps, to
    /// `bool` is `!= 0`.
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
    /// Elements `start..stop` along an axis. A range outside of the axis is an error of the call,
    /// on entry.
    Slice {
        /// The axis that is sliced.
        axis: usize,
        /// Index of the first element.
        start: Dim,
        /// One past the last element.
        stop: Dim,
    },
    /// Windows of an axis at a constant stride, which may overlap. The declared type has two axes
    /// in place of the axis: the number of windows, and their length. With a negative stride, the
    /// first window ends at the end of the axis, and each begins `-stride` elements before the
    /// previous one. Windows that leave the axis are an error of the call, on entry.
    Windows {
        /// The axis that is split in two.
        axis: usize,
        /// Elements from the start of a window to the start of the next; not 0.
        stride: i64,
    },
    /// The slice at an index of an axis, which is removed. An index out of range is an error of the
    /// call.
    Index {
        /// The axis that is removed.
        axis: usize,
    },
    /// Concatenates the operands along an axis.
    Concat {
        /// The axis that grows.
        axis: usize,
    },
    /// The operand with `low` and `high` elements of the second operand (a scalar) before and after
    /// it along an axis. Negative numbers are an error of the call, on entry.
    Pad {
        /// The axis that grows.
        axis: usize,
        /// Number of elements before.
        low: Dim,
        /// Number of elements after.
        high: Dim,
    },
    /// Slices of the first operand along an axis, at the integers of the second, whose axes replace
    /// the axis. The operands may share their first axes: then each slice is taken from the part
    /// with the same indices along these. An integer out of range is an error of the call, unless
    /// the result has no elements.
    Gather {
        /// The axis of the first operand that is indexed.
        axis: usize,
        /// The number of leading axes that the operands share, all before `axis`.
        batch: usize,
    },
    /// A window of the first operand: along some axes it begins at an index (an integer scalar or
    /// an index), and the declared type has its extents. A window that leaves the axis is an error
    /// of the call.
    Extract {
        /// The axes, ascending; an index operand for each.
        axes: Vec<usize>,
    },
    /// The first operand with a window replaced by the second operand. As in [`Op::Extract`], the
    /// window begins at an index along some axes. The second operand has the window's extents.
    Update {
        /// The axes, ascending; an index operand for each.
        axes: Vec<usize>,
    },
    /// The first operand with slices of the third, taken along an axis, written or added at the
    /// integers of the second. In order: of two slices for one index the later one remains, or is
    /// added later, each sum rounded to the element type. An integer out of range is an error of
    /// the call, unless another axis is empty.
    Scatter {
        /// The axis of the first operand that is indexed.
        axis: usize,
        /// Are slices added instead of written?
        add: bool,
    },
    /// A reduction over axes.
    Reduce {
        /// Sum, mean, minimum, maximum and so on.
        kind: ReduceKind,
        /// The axes, ascending, not empty (one for `argmax`).
        axes: Vec<usize>,
        /// Are the axes kept, with extent 1?
        keep: bool,
    },
    /// `exp(x - max) / sum` over an axis; a row that is all `-inf` yields zeros.
    Softmax {
        /// The axis that is normalised.
        axis: usize,
    },
    /// `x - max - log(sum(exp(x - max)))` over an axis: the logarithm of the softmax, so a row that
    /// is all `-inf` yields `-inf`, the logarithm of 0.
    LogSoftmax {
        /// The axis that is normalised.
        axis: usize,
    },
    /// Inclusive prefix sums along an axis, in ascending order.
    Cumsum {
        /// The axis that is summed along.
        axis: usize,
    },
    /// The indices (`i32`) of the first elements along an axis, in ascending or descending order;
    /// equal elements stay in order of index. NaN is greater than every number, and equal to
    /// itself. Requesting more elements than the axis has, or sorting an axis of more than
    /// [`crate::scalar::ARGMAX_LENGTH`], is an error of the call.
    Argsort {
        /// The axis that is sorted along.
        axis: usize,
        /// Largest first?
        descending: bool,
        /// The number of indices returned.
        first: Dim,
    },
    /// Matmul over the last two axes, the leading axes broadcast. `i8` operands have an `i32`
    /// result; rank-1 operands are not allowed.
    Matmul,
    /// `softmax(mask(q @ k^T * scale)) @ v` over the last two axes, the leading axes broadcast.
    /// Operands: `q[.., S, D]`, `k[.., T, D]`, `v[.., T, E]`, `scale` (a scalar `f32`), then the
    /// operands of the masks in order; each of any float type. Never written by an author; created
    /// by `fuse-attention`. A row without a finite score yields zeros. Everything is computed in
    /// `f32`, and the result rounded to the type of the values; weights may be rounded to that
    /// type, if it is narrower, before the second matmul, either before or after the division by
    /// their sum.
    Attention {
        /// Operations on the scores, in order: masks, a soft cap, a sink.
        masks: Vec<MaskKind>,
    },
    /// The gradient of the first operand, a float scalar, with respect to the second: of its type,
    /// a derivative for each element, along all paths from the second to the first. With one
    /// operand: with respect to all reads of a parameter of the model, stacked along the arrays of
    /// layers on its path. `differentiate` replaces it by operations that compute it, before any
    /// other pass.
    Grad {
        /// The parameter's path; of an operand, its name in messages, perhaps empty.
        of: String,
    },
    /// The operand, through which no gradient goes. `differentiate` replaces it by the operand.
    Stop,
    /// A straight-line region that becomes one kernel. The operands are the arguments of `body`'s
    /// only block.
    Fused {
        /// Determines the kind of kernel.
        kind: FusionKind,
        /// The region; it returns one value.
        body: Box<Function>,
    },
    /// Makes its first operand observable under a path. The other operands are indices: first an
    /// index for each array of layers on the path, then one for each enclosing loop over time,
    /// along which the tap is stacked. An index outside of its extent is an error of the call. No
    /// result.
    Tap {
        /// The path, with `*` for each array index.
        name: String,
        /// The extent of each index operand; constants for arrays of layers.
        extents: Vec<Dim>,
    },
}

/// How the result depends on the operands; used by passes and lowering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// No tensor operands: constants, counters, parameters.
    Source,
    /// Each element of the result depends on one element of each operand, at the broadcast
    /// position.
    Elementwise,
    /// Moves elements, computes none.
    Movement,
    /// Combines many elements into one.
    Contraction,
    /// Has an effect; is kept even if its result is unused.
    Effect,
    /// Created by fusion.
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

    State { name } "state", [], own, Source Effects::READS, Declared rules::state, "the current value of a state of the session";
    SetState { name } "set_state", ["x"], own, Effect Effects::WRITES, Nothing rules::set_state,
        "sets a state of the session";
    Length { name, most } "length", ["x"], [name: String, most: Dim], Effect Effects { fails: true, ..Effects::WRITES },
        Nothing rules::length, "sets a run-time dimension";

    Unary(op) each op: UnaryOp, ["x"], [], Elementwise NONE, Computed rules::unary,;
    Binary(op) each op: BinaryOp, ["a", "b"], [], Elementwise NONE, Computed rules::binary,;
    Compare(op) each op: CmpOp, ["a", "b"], [], Elementwise NONE, Computed rules::compare,;
    Where "where", ["condition", "a", "b"], [], Elementwise NONE, Computed rules::select,
        "condition ? a : b, broadcast";
    Cast { elem } "cast", ["x"], own, Elementwise NONE, Declared rules::cast, "conversion to another element type";

    Reshape "reshape", ["x"], [], Movement NONE, Declared rules::reshape, "the same elements under another shape";
    Transpose { perm } "transpose", ["x"], [perm: Vec<usize>], Movement NONE, Computed rules::transpose,
        "permutes the axes";
    Broadcast "broadcast", ["x"], [], Movement NONE, Declared rules::broadcast_to, "repeated to a larger shape";
    Slice { axis, start, stop } "slice", ["x"], [axis: usize, start: Dim, stop: Dim], Movement FAILS, Computed rules::slice,
        "elements start..stop along an axis";
    Windows { axis, stride } "windows", ["x"], [axis: usize, stride: i64], Movement FAILS, Declared rules::windows,
        "windows of an axis at a constant stride, which may overlap";
    Index { axis } "index", ["x", "at"], [axis: usize], Movement FAILS, Computed rules::index,
        "the slice at an index of an axis, which is removed";
    Concat { axis } "concat", ["x*"], [axis: usize], Movement NONE, Computed rules::concat,
        "concatenation along an axis";
    Pad { axis, low, high } "pad", ["x", "value"], [axis: usize, low: Dim, high: Dim], Movement FAILS, Computed rules::pad,
        "padding before and after, along an axis";
    Gather { axis, batch } "gather", ["table", "at"], [axis: usize, batch: usize = 0], Movement FAILS, Computed rules::gather,
        "slices of a table at integer indices";
    Extract { axes } "extract", ["x", "index*"], [axes: Vec<usize>], Movement FAILS, Declared rules::extract,
        "a window that begins at the given indices";
    Update { axes } "update", ["target", "value", "index*"], [axes: Vec<usize>], Movement FAILS, Computed rules::update,
        "the target with a window replaced by the value";

    Scatter { axis, add } "scatter", ["target", "at", "value"], [axis: usize, add: bool = false], Movement FAILS,
        Computed rules::scatter, "the target with slices written or added at integer indices";

    Reduce { kind, axes, keep } each kind: ReduceKind, ["x"], [axes: Vec<usize>, keep: bool = false],
        Contraction if *kind == ReduceKind::ArgMax { FAILS } else { NONE }, Computed rules::reduce,;
    Softmax { axis } "softmax", ["x"], [axis: usize], Contraction NONE, Computed rules::softmax,
        "exp(x - max) / sum; all -inf yields 0";
    LogSoftmax { axis } "log_softmax", ["x"], [axis: usize], Contraction NONE, Computed rules::softmax,
        "log of the softmax; all -inf yields -inf";
    Cumsum { axis } "cumsum", ["x"], [axis: usize], Contraction NONE, Computed rules::cumsum,
        "inclusive prefix sums along an axis";
    Argsort { axis, descending, first } "argsort", ["x"], [axis: usize, descending: bool = false, first: Dim],
        Contraction FAILS, Computed rules::argsort, "indices that sort an axis";
    Matmul "matmul", ["a", "b"], [], Contraction NONE, Computed rules::matmul,
        "matmul, leading axes broadcast";
    Attention { masks } "attention", ["q", "k", "v", "scale", "mask*"], own, Contraction NONE, Computed rules::attention,
        "softmax(mask(q @ k^T * scale)) @ v";

    Grad { of } "grad", ["loss", "x*"], own, Contraction NONE, Declared rules::grad,
        "the gradient of a scalar with respect to a value, or to the parameter of that name";
    Stop "stop", ["x"], [], Movement NONE, Computed rules::stop, "the operand, as a constant for `grad`";
    Fused { kind, body } "fused", ["x*"], own, Fused FAILS, Computed rules::fused, "a region that becomes one kernel";
    Tap { name, extents } "tap", ["x", "index*"], own, Effect Effects { fails: true, ..Effects::WRITES }, Nothing rules::tap,
        "makes a value observable by name";
}

impl Op {
    /// Rounds a constant of a small float type to that type; other operations are unchanged.
    pub fn rounded(self, ty: Option<&Type>) -> Op {
        let elem = ty.and_then(Type::tensor).map(|t| t.elem);
        match (self, elem) {
            (Op::Const(Scalar::Float(x)), Some(elem @ (Elem::BF16 | Elem::F16))) => {
                Op::Const(Scalar::Float(round_to(elem, x)))
            }
            (op, _) => op,
        }
    }

    /// Is it a constant or a counter, which a region contains a copy of?
    pub fn is_copied(&self) -> bool {
        matches!(self, Op::Const(_) | Op::DimValue(_) | Op::Iota { .. } | Op::Causal)
    }

    /// The dimensions in its attributes.
    pub fn dims(&self) -> Vec<&Dim> {
        match self {
            Op::DimValue(d) => vec![d],
            Op::Tap { extents, .. } => extents.iter().collect(),
            op => op.listed_dims(),
        }
    }

    /// Must the operation be kept even if its result is unused?
    pub fn has_effect(&self) -> bool {
        self.info().effects.is_kept()
    }

    /// The original operations that an operation was fused from. For an attention: the matmul of
    /// the scores, their scale, the masks, and the softmax (the attention's own location is that of
    /// the second matmul).
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
    /// Writes the name only; the text form prints attributes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}
