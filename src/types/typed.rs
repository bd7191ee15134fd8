//! The typed AST: every name resolved, every expression with its element type and symbolic shape.
//!
//! Made by [`super::check`], read by the lowering to graph IR and by the dumps. Each function is here once, checked
//! for all values of its dimensions; a call says what the callee's dimensions and `..` are in terms of the caller's.
//! A [`Dim`] in a layer's fields is over that layer's generics; in a function it is over the generics of its layer, its
//! own, and the dimensions of its signature. There are no errors in it: a program with errors is not handed on.

use std::collections::BTreeMap;

use super::axes::{Axis, Shape};
use super::pattern;
use crate::scalar::{AxisOp, BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp};
use crate::shape::{Dim, Elem, Fact};
use crate::source::Span;
pub use crate::syntax::ast::LayerKind;

/// A layer of a [`Program`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LayerId(pub u32);

/// A function of a [`Program`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FunctionId(pub u32);

/// A variable of a [`Function`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LocalId(pub u32);

/// A checked program: the user's file and the modules it uses.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The layers and models, by [`LayerId`]; those of modules first.
    pub layers: Vec<Layer>,
    /// The functions, of layers and free ones, by [`FunctionId`]. Those of modules have arguments, variables and a body
    /// only if the user's file calls them, directly or through others.
    pub functions: Vec<Function>,
}

impl Program {
    /// The layer of an id of this program.
    pub fn layer(&self, id: LayerId) -> &Layer {
        &self.layers[id.0 as usize]
    }

    /// The function of an id of this program.
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
    /// `layer` or `model`.
    pub kind: LayerKind,
    /// Its name.
    pub name: String,
    /// Its doc comment.
    pub docs: String,
    /// The module it is from (`std.nn`); none for the user's file.
    pub module: Option<&'static str>,
    /// Its dimensions and constants, in order.
    pub generics: Vec<Generic>,
    /// What must hold for its generics: its own `where` clauses and those of its sub-layers, over its generics.
    pub conditions: Vec<Condition>,
    /// The generics that its `where` clauses fix, and what each equals, over the others. Every shape is written without them.
    pub equal: BTreeMap<String, Dim>,
    /// Its parameters and sub-layers, in order.
    pub fields: Vec<Field>,
    /// Its functions, in order.
    pub functions: Vec<FunctionId>,
    /// The whole declaration.
    pub span: Span,
}

/// A generic dimension or constant.
#[derive(Clone, Debug)]
pub struct Generic {
    /// Its name.
    pub name: String,
    /// Dimension or constant, with the default.
    pub kind: GenericKind,
    /// Its place.
    pub span: Span,
}

/// What a generic stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum GenericKind {
    /// A dimension; the default may use the generics before it.
    Dim {
        /// Its value where none is given.
        default: Option<Dim>,
    },
    /// A scalar constant.
    Const {
        /// Its type.
        elem: Elem,
        /// Its value where none is given.
        default: Option<Scalar>,
    },
    /// An element type. Each layer is checked for each element type that it is used with: which one it is here.
    Elem(Elem),
}

/// A field of a layer.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its doc comment.
    pub docs: String,
    /// Its part of the path in a weights file: the name, or what `#[name = ".."]` says.
    pub stored_name: String,
    /// What it is.
    pub ty: FieldType,
    /// The whole field.
    pub span: Span,
}

/// What a field is.
#[derive(Clone, Debug)]
pub enum FieldType {
    /// A parameter. Its shape has no `..`.
    Param(Tensor),
    /// What a session keeps between calls: a tensor that is zero when the session begins. Its shape has no `..`.
    State(Tensor),
    /// A sub-layer.
    Layer(Instance),
    /// An array of layers and its length.
    Array(Instance, Dim),
}

/// A layer with its generics bound.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The layer.
    pub layer: LayerId,
    /// What its generic dimensions are, over the names of the layer that holds it.
    pub dims: BTreeMap<String, Dim>,
    /// What its generic constants are.
    pub constants: BTreeMap<String, Constant>,
}

/// A value for a generic constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// A literal.
    Literal(Scalar),
    /// A generic constant of the layer or function where it is.
    Generic(String),
}

/// Something about dimensions that must hold; where it cannot be decided with the bound values, on entry to the call.
#[derive(Clone, Debug)]
pub struct Condition {
    /// What must hold.
    pub fact: Fact,
    /// Where it comes from: a `where` clause, a slice.
    pub span: Span,
    /// The fields and calls through which it came here, the outermost first; empty where it is here itself.
    pub through: Vec<Span>,
}

/// Element type and symbolic shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tensor {
    /// Element type.
    pub elem: Elem,
    /// Its axes; empty for a scalar.
    pub shape: Shape,
}

/// The type of an expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A tensor or scalar.
    Tensor(Tensor),
    /// Several values; of a function without result, none.
    Tuple(Vec<Type>),
}

/// A function, checked for all values of its dimensions.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its doc comment.
    pub docs: String,
    /// True for the entry points of a model.
    pub is_entry: bool,
    /// The layer that it belongs to.
    pub owner: Option<LayerId>,
    /// Its own generics.
    pub generics: Vec<Generic>,
    /// The dimensions that its arguments bind, in order of their first appearance.
    pub dims: Vec<String>,
    /// Its arguments, in order; each is a local.
    pub params: Vec<Param>,
    /// The type of its value.
    pub result: Type,
    /// What must hold at a call: its `where` clauses, the slices in it and what it calls, as far as the facts do not
    /// prove them. Not those of its layer.
    pub conditions: Vec<Condition>,
    /// The dimensions of its arguments, and its generics, that its `where` clauses fix, and what each equals, over the others. Every shape is written without them.
    pub equal: BTreeMap<String, Dim>,
    /// The dimensions that have their values in it, in the order of the text. Conditions that name them are its own alone.
    pub lengths: Vec<String>,
    /// Its variables, by [`LocalId`], the arguments first.
    pub locals: Vec<Local>,
    /// Its body; the value is there unless the result is the empty tuple.
    pub body: Block,
    /// From `fn` to `}`.
    pub span: Span,
}

impl Function {
    /// The variable of an id of this function.
    pub fn local(&self, id: LocalId) -> &Local {
        &self.locals[id.0 as usize]
    }
}

/// An argument of a function.
#[derive(Clone, Debug)]
pub struct Param {
    /// The variable that holds it.
    pub local: LocalId,
    /// Its doc comment.
    pub docs: String,
}

/// A variable.
#[derive(Clone, Debug)]
pub struct Local {
    /// Its name, or empty for the counter of a loop over layers and for what goes from one layer of a `Sequential` to the next. Several may have the same name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// Is it assigned after its declaration?
    pub is_assigned: bool,
    /// Where it is declared.
    pub span: Span,
}

/// Statements and a value.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// The statements, in order.
    pub statements: Vec<Stmt>,
    /// The value.
    pub value: Option<Box<Expr>>,
}

impl Block {
    /// Does control never come to the end of the block, because every way through it breaks a loop?
    pub fn breaks(&self) -> bool {
        self.statements.last().is_some_and(|last| last.kind.breaks())
    }
}

/// A statement.
#[derive(Clone, Debug)]
pub struct Stmt {
    /// What it does.
    pub kind: StmtKind,
    /// Its place.
    pub span: Span,
}

/// The forms of [`Stmt`].
#[derive(Clone, Debug)]
pub enum StmtKind {
    /// `let`, `var` or an assignment: the parts of the value go to the variables of the pattern.
    Set {
        /// The variables.
        pattern: Pattern,
        /// The value.
        value: Expr,
    },
    /// The value becomes what the session keeps as a state of the function's own layer.
    SetState {
        /// The field's place in [`Layer::fields`].
        field: usize,
        /// The value, of the state's type.
        value: Expr,
    },
    /// `let dim N = value where N <= C`: a dimension has its value.
    Length {
        /// Its name, which no other dimension of the function has.
        name: String,
        /// Its value: an `i32` or `i64` scalar.
        value: Expr,
        /// What it is at most: known on entry, over the names of the function.
        most: Dim,
    },
    /// `tap name`
    Tap {
        /// The variable.
        local: LocalId,
    },
    /// A loop over `start..end`.
    For {
        /// The counter, an `i32` scalar.
        counter: LocalId,
        /// The first number.
        start: Bound,
        /// The number after the last.
        end: Bound,
        /// The variables from outside of the body that the body assigns, in order.
        carried: Vec<LocalId>,
        /// The body; its value is the empty tuple.
        body: Block,
        /// True for a loop over an array of layers, whose calls are tapped by their path; false for a loop over numbers.
        over_layers: bool,
    },
    /// A loop for as long as a condition holds, tested before each iteration.
    While {
        /// A `bool` scalar.
        condition: Expr,
        /// The variables from outside that the condition or the body assigns, in order.
        carried: Vec<LocalId>,
        /// The body; its value is the empty tuple.
        body: Block,
    },
    /// The end of the innermost loop around. Nothing follows it in its block.
    Break,
    /// An `if` without value.
    If {
        /// A `bool` scalar.
        condition: Expr,
        /// Where it is true.
        then: Block,
        /// Where it is false.
        otherwise: Block,
        /// The variables from outside that either branch assigns, in order.
        carried: Vec<LocalId>,
    },
    /// A block for its effects, or an expression without value.
    Expr(Expr),
}

impl StmtKind {
    /// Does control never come to what follows the statement?
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

/// An end of the range of a loop.
#[derive(Clone, Debug)]
pub enum Bound {
    /// Known from the dimensions.
    Dim(Dim),
    /// Computed: an `i32` or `i64` scalar.
    Value(Expr),
}

/// Where the parts of a value go.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// To a variable.
    Local(LocalId),
    /// Nowhere.
    Ignore,
    /// Each part of a tuple by itself.
    Tuple(Vec<Pattern>),
}

/// The way from the layer of a function to one of its sub-layers; empty for the layer itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerPath {
    /// The fields on the way.
    pub steps: Vec<Step>,
}

/// A step of a [`LayerPath`].
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The field's place in [`Layer::fields`].
    pub field: usize,
    /// Which element, for an array of layers.
    pub element: Option<Element>,
}

/// An element of an array of layers.
#[derive(Clone, Debug, PartialEq)]
pub enum Element {
    /// The one at a known place.
    At(Dim),
    /// The one at `factor * counter + offset`.
    Counter {
        /// The counter of a loop.
        counter: LocalId,
        /// What it is multiplied by.
        factor: i64,
        /// What is added.
        offset: Dim,
    },
}

impl Element {
    /// The one at the counter of a loop.
    pub fn counter(counter: LocalId) -> Element {
        Element::Counter { counter, factor: 1, offset: Dim::zero() }
    }
}

/// An expression.
#[derive(Clone, Debug)]
pub struct Expr {
    /// What it computes.
    pub kind: ExprKind,
    /// The type of its value.
    pub ty: Type,
    /// Its place.
    pub span: Span,
}

/// The forms of [`Expr`]. An axis is a place in the operand's [`Shape::axes`], where `..` counts as one; see
/// [`Shape::expanded_axis`].
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
    /// A parameter of the layer at the path, or what a state of it is here.
    Param {
        /// The layer.
        path: LayerPath,
        /// The field's place in [`Layer::fields`].
        field: usize,
    },
    /// On each element.
    Unary(UnaryOp, Box<Expr>),
    /// On pairs of elements of one type, broadcast.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// On pairs of elements of one type, broadcast.
    Compare(CmpOp, Box<Expr>, Box<Expr>),
    /// `where(condition, a, b)`, broadcast.
    Where(Box<Expr>, Box<Expr>, Box<Expr>),
    /// To the element type of the expression's type.
    Cast(Box<Expr>),
    /// `a @ b`. A left operand of one axis is a row, a right one a column, and the axis is gone in the result.
    Matmul(Box<Expr>, Box<Expr>),
    /// `x.T`: the last two axes change places.
    Transpose(Box<Expr>),
    /// `einsum`. Every name of the pattern is one dimension.
    Einsum(pattern::Einsum, Vec<Expr>),
    /// `rearrange`.
    Rearrange {
        /// The operand.
        x: Box<Expr>,
        /// The axes before and after.
        pattern: pattern::Rearrange,
        /// The length of every name in the pattern.
        sizes: BTreeMap<String, Dim>,
    },
    /// Operands one after another along an axis.
    Concat(Vec<Expr>, usize),
    /// Equal parts along an axis, the axis kept: a tuple.
    Split {
        /// The operand.
        x: Box<Expr>,
        /// The axis.
        axis: usize,
        /// How many parts.
        parts: usize,
    },
    /// The slices along an axis, the axis gone: a tuple.
    Unbind {
        /// The operand.
        x: Box<Expr>,
        /// The axis.
        axis: usize,
    },
    /// `low` and `high` elements of a scalar before and after an axis.
    Pad {
        /// The operand.
        x: Box<Expr>,
        /// The axis.
        axis: usize,
        /// How many before.
        low: Dim,
        /// How many after.
        high: Dim,
        /// The scalar.
        value: Box<Expr>,
    },
    /// `x[..]`: one entry for each axis of the operand, in order (`..` as one).
    Index {
        /// The operand.
        base: Box<Expr>,
        /// What is taken of each axis.
        entries: Vec<Entry>,
    },
    /// A tensor with part of it replaced: of each axis what its entry says, none a gather. The value has the shape of the part,
    /// or broadcasts to it.
    Update {
        /// The tensor.
        base: Box<Expr>,
        /// What is replaced of each axis.
        entries: Vec<Entry>,
        /// What replaces it.
        value: Box<Expr>,
    },
    /// `0, 1, .., n-1`
    Iota(Dim),
    /// A scalar, repeated over the shape of the expression's type.
    Full(Box<Expr>),
    /// `bool`-free one-hot rows: 1 where the class is the operand's element, else 0; the classes are a new last axis.
    OneHot(Box<Expr>, Dim),
    /// `causal(q_len, kv_len)`
    Causal(Dim, Dim),
    /// A reduction over axes, in ascending order.
    Reduce {
        /// What is computed.
        kind: ReduceKind,
        /// The operand.
        x: Box<Expr>,
        /// The axes; `..` may be among them, for all that it stands for.
        axes: Vec<usize>,
        /// Do the axes stay, with length 1?
        keep: bool,
    },
    /// Along an axis.
    Along(AxisOp, Box<Expr>, usize),
    /// The first elements along an axis in order, equal ones in the order of their indices.
    Ordered {
        /// What is taken of them.
        order: Order,
        /// The operand.
        x: Box<Expr>,
        /// The axis.
        axis: usize,
        /// The greatest first?
        descending: bool,
        /// How many.
        first: Dim,
    },
    /// Of each line along an axis the elements at the indices of the same line of another tensor.
    TakeAlong {
        /// The operand.
        x: Box<Expr>,
        /// The indices; its other axes are those of the operand.
        at: Box<Expr>,
        /// The axis.
        axis: usize,
    },
    /// Windows of an axis, which becomes two: how many there are, and how long they are.
    Windows {
        /// The operand.
        x: Box<Expr>,
        /// The axis.
        axis: usize,
        /// From one window to the next.
        stride: Dim,
    },
    /// Each so-manieth element of an axis, from the first on.
    Every {
        /// The operand.
        x: Box<Expr>,
        /// The axis.
        axis: usize,
        /// From one element to the next.
        step: Dim,
    },
    /// A tensor with slices along an axis written at indices, or added there, in the order of the indices.
    Scatter {
        /// The tensor.
        x: Box<Expr>,
        /// The indices.
        at: Box<Expr>,
        /// The slices: the axes of the indices take the axis's place. It has that shape, or broadcasts to it.
        value: Box<Expr>,
        /// The axis.
        axis: usize,
        /// Are they added?
        add: bool,
    },
    /// A call.
    Call(Box<Call>),
    /// Several values.
    Tuple(Vec<Expr>),
    /// An `if` with a value. The branches assign nothing outside of them unless `carried` says so.
    If {
        /// A `bool` scalar.
        condition: Box<Expr>,
        /// Where it is true.
        then: Block,
        /// Where it is false.
        otherwise: Block,
        /// The variables from outside that either branch assigns, in order.
        carried: Vec<LocalId>,
    },
    /// A block with a value.
    Block(Block),
}

/// What is taken of elements in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The elements.
    Values,
    /// Their indices.
    Places,
    /// The elements and their indices, as a tuple.
    Both,
}

/// What is taken of an axis.
#[derive(Clone, Debug)]
pub enum Entry {
    /// All of it (also for `..`).
    All,
    /// Elements `start..stop`.
    Range(Dim, Dim),
    /// So many elements from a computed one on: an `i32` or `i64` scalar. A window that leaves the axis is an error of the call.
    Window(Expr, Dim),
    /// One element, the axis gone: an `i32` or `i64` scalar. An index out of range is an error of the call.
    At(Expr),
    /// The elements at a tensor of indices, whose axes take the axis's place.
    Gather(Expr),
}

/// A call of a function, of a sub-layer or a free one.
#[derive(Clone, Debug)]
pub struct Call {
    /// The function.
    pub function: FunctionId,
    /// The layer whose function it is; none for a free function. The generics of that layer follow from the instances
    /// on the path.
    pub receiver: Option<LayerPath>,
    /// The callee's own generics and the dimensions of its signature, over the caller's names.
    pub dims: BTreeMap<String, Dim>,
    /// The callee's own generic constants.
    pub constants: BTreeMap<String, Constant>,
    /// What the callee's `..` stands for, if it has one. Arguments with fewer leading axes are broadcast to it.
    pub rest: Vec<Axis>,
    /// The arguments, one for each parameter.
    pub args: Vec<Expr>,
}
