//! The operations of the graph IR, declared once.
//!
//! [`Op`] carries an operation's attributes; [`Op::info`] is the table that printer, parser, verifier, interpreter and
//! the reference read: name, operands, class and what it computes. The shape rules stand in `rules`, and every `match`
//! on [`Op`] lists all of them, so that the compiler says where a new operation must be taught.

use std::fmt;

use crate::ir::{Function, Type};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp, round_to};
use crate::shape::{Dim, Elem};
use crate::ssa::Effects;

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
    /// Slices of the first operand along an axis at the integers of the second, whose axes take the axis's place. An
    /// integer out of range is an error of the call.
    Gather {
        /// The axis.
        axis: usize,
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

/// How an operation's work is shaped; passes and lowering ask for it.
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

/// A row of the table of operations.
#[derive(Clone, Copy, Debug)]
pub struct OpInfo {
    /// Name in the text form.
    pub name: &'static str,
    /// Names of the operands; a last one that ends in `*` stands for any number.
    pub operands: &'static [&'static str],
    /// How its work is shaped.
    pub class: Class,
    /// What it reads and writes besides operands and result.
    pub effects: Effects,
    /// Is the result's type declared in the text, because the operands do not fix it?
    pub declares_type: bool,
    /// One line for the reference.
    pub summary: &'static str,
}

const fn row(
    name: &'static str,
    operands: &'static [&'static str],
    class: Class,
    effects: Effects,
    declares_type: bool,
    summary: &'static str,
) -> OpInfo {
    OpInfo { name, operands, class, effects, declares_type, summary }
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

    /// The table of operations.
    pub fn info(&self) -> OpInfo {
        use Class::{Contraction, Effect, Elementwise, Fused, Movement, Source};
        const NONE: Effects = Effects::NONE;
        const FAILS: Effects = Effects::FAILS;
        match self {
            Op::Const(_) => row("const", &[], Source, NONE, true, "a literal, splatted over the type"),
            Op::DimValue(_) => row("dim", &[], Source, FAILS, true, "the value of a dimension expression"),
            Op::Iota { .. } => row("iota", &[], Source, NONE, true, "0, 1, 2, ... along an axis"),
            Op::Causal => row("causal", &[], Source, NONE, true, "query i sees key j where j <= i + kv_len - q_len"),
            Op::Param { .. } => {
                row("param", &["index*"], Source, Effects::PARAMETERS, true, "a parameter of the model")
            }
            Op::Unary(op) => row(op.name(), &["x"], Elementwise, NONE, false, "an operation on each element"),
            Op::Binary(op) => row(op.name(), &["a", "b"], Elementwise, NONE, false, "an operation on pairs, broadcast"),
            Op::Compare(op) => {
                row(op.name(), &["a", "b"], Elementwise, NONE, false, "a comparison of pairs, broadcast")
            }
            Op::Where => {
                row("where", &["condition", "a", "b"], Elementwise, NONE, false, "condition ? a : b, broadcast")
            }
            Op::Cast { .. } => row("cast", &["x"], Elementwise, NONE, false, "conversion to another element type"),
            Op::Reshape => row("reshape", &["x"], Movement, NONE, true, "the same elements under another shape"),
            Op::Transpose { .. } => row("transpose", &["x"], Movement, NONE, false, "axes in another order"),
            Op::Broadcast => row("broadcast", &["x"], Movement, NONE, true, "repeated to a larger shape"),
            Op::Slice { .. } => row("slice", &["x"], Movement, FAILS, false, "elements start..stop along an axis"),
            Op::Index { .. } => {
                row("index", &["x", "at"], Movement, FAILS, false, "one element along an axis, the axis gone")
            }
            Op::Concat { .. } => {
                row("concat", &["x*"], Movement, NONE, false, "operands one after another along an axis")
            }
            Op::Pad { .. } => {
                row("pad", &["x", "value"], Movement, FAILS, false, "elements before and after, along an axis")
            }
            Op::Gather { .. } => {
                row("gather", &["table", "at"], Movement, FAILS, false, "slices of a table at integers")
            }
            Op::Reduce { kind, .. } => {
                let effects = if *kind == ReduceKind::ArgMax { FAILS } else { NONE };
                row(kind.op_name(), &["x"], Contraction, effects, false, "a reduction over axes")
            }
            Op::Softmax { .. } => {
                row("softmax", &["x"], Contraction, NONE, false, "exp(x - max) / sum; all -inf gives 0")
            }
            Op::LogSoftmax { .. } => {
                row("log_softmax", &["x"], Contraction, NONE, false, "log of the softmax; all -inf gives -inf")
            }
            Op::Matmul => {
                row("matmul", &["a", "b"], Contraction, NONE, false, "matrix product, leading axes broadcast")
            }
            Op::Attention { .. } => row(
                "attention",
                &["q", "k", "v", "scale", "mask*"],
                Contraction,
                NONE,
                false,
                "softmax(mask(q @ k^T * scale)) @ v",
            ),
            Op::Fused { .. } => row("fused", &["x*"], Fused, FAILS, false, "a region that becomes one kernel"),
            Op::Tap { .. } => {
                let effects = Effects { fails: true, ..Effects::WRITES };
                row("tap", &["x", "index*"], Effect, effects, false, "makes a value observable by name")
            }
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
