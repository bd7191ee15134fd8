//! The typed AST: every name resolved, every expression with its element type and symbolic shape.
//!
//! Built by [`super::check`], consumed by the lowering to graph IR and by the dumps. Each function
//! occurs once, checked for all values of its dimensions; a call gives the callee's dimensions and
//! `..` in terms of the caller's. A [`Dim`] in a layer's fields is over that layer's generics; in a
//! function it is over the generics of its layer, its own, and the dimensions of its signature. A
//! program with errors is never represented.

use std::collections::BTreeMap;

use super::axes::Axis;
pub use super::declared::{
    Condition, Constant, Field, FieldType, FunctionId, Generic, GenericKind, Instance, LayerId, LocalId, Tensor, Type,
};
use super::pattern;
use crate::scalar::{AxisOp, BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp};
use crate::shape::Dim;
use crate::source::Span;
pub use crate::syntax::ast::LayerKind;

/// A checked program: the user's file and the modules it uses.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The layers and models, by [`LayerId`]; module layers first.
    pub layers: Vec<Layer>,
    /// The functions, of layers and of files, by [`FunctionId`]. Module functions have arguments,
    /// variables and a body only if the user's file calls them, directly or indirectly.
    pub functions: Vec<Function>,
}

impl Program {
    /// The layer with an id of this program.
    pub fn layer(&self, id: LayerId) -> &Layer {
        &self.layers[id.0 as usize]
    }

    /// The function with an id of this program.
    pub fn function(&self, id: FunctionId) -> &Function {
        &self.functions[id.0 as usize]
    }

    /// The models, in the order of the text.
    pub fn models(&self) -> impl Iterator<Item = (LayerId, &Layer)> {
        let ids = (0..).map(LayerId);
        ids.zip(&self.layers).filter(|(_, layer)| layer.kind == LayerKind::Model)
    }
}

/// A layer or a model.
#[derive(Clone, Debug)]
pub struct Layer {
    /// `layer`, `model` or `rule`.
    pub kind: LayerKind,
    /// As declared; generated for lists.
    pub name: String,
    /// Doc comment of the source.
    pub docs: String,
    /// The path of its module (`std.nn`); `None` for the user's file.
    pub module: Option<&'static str>,
    /// In order of declaration.
    pub generics: Vec<Generic>,
    /// Conditions on its generics: its own `where` clauses, and the conditions of its sub-layers.
    pub conditions: Vec<Condition>,
    /// Generics that its `where` clauses determine, with their values over the others. Shapes do
    /// not contain them.
    pub equal: BTreeMap<String, Dim>,
    /// Parameters and sub-layers, in order of declaration.
    pub fields: Vec<Field>,
    /// In order of declaration.
    pub functions: Vec<FunctionId>,
    /// From the keyword to `}`.
    pub span: Span,
}

/// A function, checked for all values of its dimensions.
#[derive(Clone, Debug)]
pub struct Function {
    /// As declared.
    pub name: String,
    /// Doc comment of the source.
    pub docs: String,
    /// Is it an entry point of a model?
    pub is_entry: bool,
    /// Its layer; `None` for a function of a file.
    pub owner: Option<LayerId>,
    /// For functions of files.
    pub generics: Vec<Generic>,
    /// The dimensions that its arguments bind, in order of their first appearance.
    pub dims: Vec<String>,
    /// In order; each is a local variable.
    pub params: Vec<Param>,
    /// Type of the function's value.
    pub result: Type,
    /// Conditions on a call: its `where` clauses, and conditions of slices and callees in it,
    /// unless the facts prove them. The layer's conditions are not included.
    pub conditions: Vec<Condition>,
    /// Dimensions of its arguments, and generics, that its `where` clauses determine, with their
    /// values over the others. Shapes do not contain them.
    pub equal: BTreeMap<String, Dim>,
    /// The dimensions that it sets, in the order of the text. Conditions that mention them are only
    /// its own.
    pub lengths: Vec<String>,
    /// Its variables, by [`LocalId`], arguments first.
    pub locals: Vec<Local>,
    /// Each `train` of its body.
    pub trains: Vec<Train>,
    /// Has a value unless the result is the empty tuple.
    pub body: Block,
    /// From `fn` to `}`.
    pub span: Span,
}

impl Function {
    /// The variable with an id of this function.
    pub fn local(&self, id: LocalId) -> &Local {
        &self.locals[id.0 as usize]
    }
}

/// An argument of a function.
#[derive(Clone, Debug)]
pub struct Param {
    /// The variable that holds it.
    pub local: LocalId,
    /// Doc comment of the source.
    pub docs: String,
}

/// A variable or argument of a function.
#[derive(Clone, Debug)]
pub struct Local {
    /// Not necessarily unique; empty for the counter of a loop over layers and for intermediate
    /// values of a `Sequential`.
    pub name: String,
    /// Fixed by the declaration or the first value.
    pub ty: Type,
    /// Is it assigned after its declaration?
    pub is_assigned: bool,
    /// Range of the declaration.
    pub span: Span,
}

/// Statements and a value.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Executed in order.
    pub statements: Vec<Stmt>,
    /// `None` if the block has no value.
    pub value: Option<Box<Expr>>,
}

impl Block {
    /// Does every path through the block end in a `break`?
    pub fn breaks(&self) -> bool {
        self.statements.last().is_some_and(|last| last.kind.breaks())
    }
}

/// A statement with its range in the source.
#[derive(Clone, Debug)]
pub struct Stmt {
    /// The variant, with its parts.
    pub kind: StmtKind,
    /// Range in the source.
    pub span: Span,
}

/// The variants of [`Stmt`].
#[derive(Clone, Debug)]
pub enum StmtKind {
    /// `let`, `var` or an assignment: assigns the parts of the value to the variables of the
    /// pattern.
    Set {
        /// The assigned variables.
        pattern: Pattern,
        /// Evaluated before the assignment.
        value: Expr,
    },
    /// Sets a state of the function's own layer.
    SetState {
        /// Index in [`Layer::fields`].
        field: usize,
        /// Has the state's type.
        value: Expr,
    },
    /// `let dim N = value where N <= C`: sets a dimension.
    Length {
        /// Its name, unique in the function.
        name: String,
        /// An `i32` or `i64` scalar.
        value: Expr,
        /// Its upper bound: known on entry, over the names of the function.
        most: Dim,
    },
    /// `tap name`
    Tap {
        /// The variable that is made observable.
        local: LocalId,
    },
    /// A loop over `start..end`.
    For {
        /// An `i32` scalar.
        counter: LocalId,
        /// The first value of the counter.
        start: Bound,
        /// One past the last value.
        end: Bound,
        /// The outer variables that the body assigns, in order.
        carried: Vec<LocalId>,
        /// The body; its value is the empty tuple.
        body: Block,
        /// Is it a loop over an array of layers, whose calls are tapped by their path, rather than
        /// over numbers?
        over_layers: bool,
    },
    /// A loop for as long as a condition holds, tested before each iteration.
    While {
        /// A `bool` scalar.
        condition: Expr,
        /// The outer variables that the condition or the body assigns, in order.
        carried: Vec<LocalId>,
        /// The body; its value is the empty tuple.
        body: Block,
    },
    /// Leaves the innermost loop. It is the last statement of its block.
    Break,
    /// An `if` without value.
    If {
        /// A `bool` scalar.
        condition: Expr,
        /// Executed if it is true.
        then: Block,
        /// Executed if it is false.
        otherwise: Block,
        /// The outer variables that either branch assigns, in order.
        carried: Vec<LocalId>,
    },
    /// A block for its effects, or an expression without value.
    Expr(Expr),
}

impl StmtKind {
    /// Does every path through the statement end in a `break`?
    pub fn breaks(&self) -> bool {
        match self {
            StmtKind::Break => true,
            StmtKind::If { then, otherwise, .. } => then.breaks() && otherwise.breaks(),
            StmtKind::Expr(Expr { kind: ExprKind::Block(block), .. }) => block.breaks(),
            StmtKind::Expr(Expr { kind: ExprKind::If { then, otherwise, .. }, .. }) => {
                then.breaks() && otherwise.breaks()
            }
            StmtKind::Set { .. }
            | StmtKind::SetState { .. }
            | StmtKind::Tap { .. }
            | StmtKind::Length { .. }
            | StmtKind::For { .. }
            | StmtKind::While { .. }
            | StmtKind::Expr(_) => false,
        }
    }
}

/// A bound of a loop over a range.
#[derive(Clone, Debug)]
pub enum Bound {
    /// A dimension expression.
    Dim(Dim),
    /// Computed: an `i32` or `i64` scalar.
    Value(Expr),
}

/// The targets of a value's parts.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// Assigns to this variable.
    Local(LocalId),
    /// The part is dropped.
    Ignore,
    /// One pattern for each part of a tuple.
    Tuple(Vec<Pattern>),
}

/// The path from the layer of a function to one of its sub-layers; empty for the layer itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerPath {
    /// From the outermost field to the innermost.
    pub steps: Vec<Step>,
}

/// A step of a [`LayerPath`].
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Index in [`Layer::fields`].
    pub field: usize,
    /// The element, if the field is an array of layers.
    pub element: Option<Element>,
}

/// An element of an array of layers.
#[derive(Clone, Debug, PartialEq)]
pub enum Element {
    /// The element at a dimension.
    At(Dim),
    /// The element at `factor * counter + offset`.
    Counter {
        /// The counter of an enclosing loop.
        counter: LocalId,
        /// Not 0.
        factor: i64,
        /// A dimension expression.
        offset: Dim,
    },
}

impl Element {
    /// The element at the counter of a loop.
    pub fn counter(counter: LocalId) -> Element {
        Element::Counter { counter, factor: 1, offset: Dim::zero() }
    }
}

/// An expression with its type and range in the source.
#[derive(Clone, Debug)]
pub struct Expr {
    /// The variant, with its operands.
    pub kind: ExprKind,
    /// Type of the value.
    pub ty: Type,
    /// Range in the source.
    pub span: Span,
}

/// The variants of [`Expr`]. An axis is an index into the operand's [`Shape::axes`], where `..`
/// counts as one; see [`Shape::expanded_axis`].
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// A literal scalar.
    Const(Scalar),
    /// The value of a dimension expression, as a scalar of the expression's type.
    Dim(Dim),
    /// The value of a generic constant.
    Generic(String),
    /// The value of a variable.
    Local(LocalId),
    /// A parameter of the layer at the path, or the current value of a state.
    Param {
        /// The layer that contains it.
        path: LayerPath,
        /// Index in [`Layer::fields`].
        field: usize,
    },
    /// An operation on each element.
    Unary(UnaryOp, Box<Expr>),
    /// An operation on pairs of elements of one type, broadcast.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// A comparison of pairs of elements of one type, broadcast.
    Compare(CmpOp, Box<Expr>, Box<Expr>),
    /// `where(condition, a, b)`, broadcast.
    Where(Box<Expr>, Box<Expr>, Box<Expr>),
    /// Converts to the element type of the expression's type.
    Cast(Box<Expr>),
    /// `a @ b`. A left operand of one axis is a row, a right one a column; the result lacks that
    /// axis.
    Matmul(Box<Expr>, Box<Expr>),
    /// `x.T`: swaps the last two axes.
    Transpose(Box<Expr>),
    /// `einsum`. Every name of the pattern is one dimension.
    Einsum(pattern::Einsum, Vec<Expr>),
    /// `rearrange`, with all lengths resolved.
    Rearrange {
        /// The tensor that is rearranged.
        x: Box<Expr>,
        /// The axes before and after.
        pattern: pattern::Rearrange,
        /// The length of every name in the pattern.
        sizes: BTreeMap<String, Dim>,
    },
    /// Concatenates the operands along an axis.
    Concat(Vec<Expr>, usize),
    /// Equal parts along an axis, which is kept: a tuple.
    Split {
        /// The tensor that is split.
        x: Box<Expr>,
        /// The axis that is divided.
        axis: usize,
        /// At least 1.
        parts: usize,
    },
    /// The slices along an axis, which is removed: a tuple.
    Unbind {
        /// The tensor that is split.
        x: Box<Expr>,
        /// The axis that is removed.
        axis: usize,
    },
    /// Adds `low` and `high` elements of a scalar before and after, along an axis.
    Pad {
        /// The tensor that is padded.
        x: Box<Expr>,
        /// The axis that grows.
        axis: usize,
        /// Number of elements before.
        low: Dim,
        /// Number of elements after.
        high: Dim,
        /// The padding, a scalar.
        value: Box<Expr>,
    },
    /// `x[..]`: one entry for each axis of the operand, in order (`..` as one).
    Index {
        /// The indexed tensor.
        base: Box<Expr>,
        /// One for each axis.
        entries: Vec<Entry>,
    },
    /// A tensor with a part replaced, which the entries select as in an index; none is a gather.
    /// The value has the shape of the part, or broadcasts to it.
    Update {
        /// The original tensor.
        base: Box<Expr>,
        /// One for each axis.
        entries: Vec<Entry>,
        /// The new part.
        value: Box<Expr>,
    },
    /// `0, 1, .., n-1`
    Iota(Dim),
    /// A scalar, repeated over the shape of the expression's type.
    Full(Box<Expr>),
    /// One-hot rows: 1 where the class equals the operand's element, else 0; the classes are a new
    /// last axis.
    OneHot(Box<Expr>, Dim),
    /// A number for each element of the operand, which no other call or layer has.
    Counters(Box<Expr>),
    /// A gradient, of the type of its second operand.
    Grad {
        /// One float.
        loss: Box<Expr>,
        /// A variable, a parameter, or a tuple of these.
        of: Box<Expr>,
        /// As it is written, for messages.
        name: String,
    },
    /// The operand, as a constant for gradients.
    Stop(Box<Expr>),
    /// Index in [`Function::trains`]; the value is the norm of the gradient.
    Train(usize),
    /// `causal(q_len, kv_len)`
    Causal(Dim, Dim),
    /// A reduction over axes, in ascending order.
    Reduce {
        /// Sum, mean, minimum, maximum and so on.
        kind: ReduceKind,
        /// The tensor that is reduced.
        x: Box<Expr>,
        /// The axes; may include `..`, for all axes that it stands for.
        axes: Vec<usize>,
        /// Are the axes kept, with length 1?
        keep: bool,
    },
    /// An operation along an axis.
    Along(AxisOp, Box<Expr>, usize),
    /// The first elements along an axis in sorted order, equal ones by index.
    Ordered {
        /// Elements, indices or both.
        order: Order,
        /// The tensor that is sorted.
        x: Box<Expr>,
        /// The axis that is sorted along.
        axis: usize,
        /// Largest first?
        descending: bool,
        /// The number of elements returned.
        first: Dim,
    },
    /// For each line along an axis, the elements at the indices in the same line of another tensor.
    TakeAlong {
        /// The tensor that is indexed.
        x: Box<Expr>,
        /// The indices; all other axes equal the operand's.
        at: Box<Expr>,
        /// The axis that is indexed.
        axis: usize,
    },
    /// Windows of an axis, which becomes two: their number and their length.
    Windows {
        /// The tensor of the windows.
        x: Box<Expr>,
        /// The axis that is split.
        axis: usize,
        /// The distance between the starts of adjacent windows.
        stride: Dim,
    },
    /// Every `step`-th element of an axis, starting at the first.
    Every {
        /// The tensor that is indexed.
        x: Box<Expr>,
        /// The axis that is indexed.
        axis: usize,
        /// The distance between elements, at least 1.
        step: Dim,
    },
    /// A tensor with slices along an axis written or added at indices, in the order of the indices.
    Scatter {
        /// The original tensor.
        x: Box<Expr>,
        /// Integers along `axis`.
        at: Box<Expr>,
        /// The slices: their shape has the axes of the indices in place of the axis, or broadcasts
        /// to that.
        value: Box<Expr>,
        /// The axis that is indexed.
        axis: usize,
        /// Are slices added instead of written?
        add: bool,
    },
    /// A call of a function, see [`Call`].
    Call(Box<Call>),
    /// Elements of a tuple, in order.
    Tuple(Vec<Expr>),
    /// An `if` with a value. The branches assign only the outer variables in `carried`.
    If {
        /// A `bool` scalar.
        condition: Box<Expr>,
        /// Its value if the condition is true.
        then: Block,
        /// Its value if the condition is false.
        otherwise: Block,
        /// The outer variables that either branch assigns, in order.
        carried: Vec<LocalId>,
    },
    /// A block with a value.
    Block(Block),
}

/// The results of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The sorted elements.
    Values,
    /// The indices of the sorted elements.
    Places,
    /// The elements and their indices, as a tuple.
    Both,
}

/// The selection along one axis.
#[derive(Clone, Debug)]
pub enum Entry {
    /// The whole axis (also for `..`).
    All,
    /// Elements `start..stop`.
    Range(Dim, Dim),
    /// This many elements starting at a computed index, an `i32` or `i64` scalar. A window that
    /// leaves the axis is an error of the call.
    Window(Expr, Dim),
    /// The slice at an index, an `i32` or `i64` scalar; the axis is removed. An index out of range
    /// is an error of the call.
    At(Expr),
    /// The slices at a tensor of indices, whose axes replace the axis.
    Gather(Expr),
}

/// A call of a function of a sub-layer or of a file.
#[derive(Clone, Debug)]
pub struct Call {
    /// The callee.
    pub function: FunctionId,
    /// The layer whose function it is; `None` for a function of a file. The generics of that layer
    /// follow from the instances on the path.
    pub receiver: Option<LayerPath>,
    /// The callee's own generics and the dimensions of its signature, over the caller's names.
    pub dims: BTreeMap<String, Dim>,
    /// The callee's own generic constants.
    pub constants: BTreeMap<String, Constant>,
    /// The axes that the callee's `..` stands for, if it has one. Arguments with fewer leading axes
    /// are broadcast to it.
    pub rest: Vec<Axis>,
    /// One for each parameter.
    pub args: Vec<Expr>,
}

/// A checked `train`.
#[derive(Clone, Debug)]
pub struct Train {
    /// One float.
    pub loss: Expr,
    /// The largest norm of the gradient, an `f32`.
    pub clip: Option<Expr>,
    /// The largest magnitude of its elements, an `f32`.
    pub clip_value: Option<Expr>,
    /// In order; a parameter goes to the first that fits.
    pub arms: Vec<Arm>,
    /// Range in the source.
    pub span: Span,
}

/// A rule for some of the parameters.
#[derive(Clone, Debug)]
pub struct Arm {
    /// Paths from the model, `*` for any text.
    pub pattern: String,
    /// Range of the pattern in the source.
    pub pattern_span: Span,
    /// Comparisons of the number of axes.
    pub ranks: Vec<(CmpOp, u64)>,
    /// The rule and its `step`; `None` if the parameters stay as they are.
    pub rule: Option<(LayerId, FunctionId)>,
    /// The arguments of `step` after the parameter and its gradient: scalars.
    pub args: Vec<Expr>,
    /// Range in the source.
    pub span: Span,
}
