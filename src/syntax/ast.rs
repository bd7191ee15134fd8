//! The syntax tree: what the parser builds and the type checker reads.
//!
//! In: the parser's actions. Out: one [`File`] for each source text, every node with its [`Span`].
//! The tree represents the text literally: no name is resolved, no shape is known, and dimensions
//! are ordinary expressions. Trees are at most [`MAX_DEPTH`] levels deep (the parser replaces
//! deeper nodes by [`ExprKind::Error`] and reports them), so recursion over them, and dropping
//! them, is safe.

use crate::shape::Elem;
use crate::source::Span;

/// The maximum nesting of expressions, types and blocks; deeper nesting is an error of the program.
pub const MAX_DEPTH: u16 = 256;

/// A name with its range in the source.
#[derive(Clone, PartialEq, Debug)]
pub struct Ident {
    /// The name as written.
    pub name: String,
    /// Range in the source.
    pub span: Span,
}

/// A whole source text.
#[derive(Clone, PartialEq, Debug)]
pub struct File {
    /// In the order of the text.
    pub items: Vec<Item>,
    /// From the first byte to the last.
    pub span: Span,
}

/// A top-level declaration.
#[derive(Clone, PartialEq, Debug)]
pub enum Item {
    /// `use std.nn`
    Use(Use),
    /// `layer Name<..> where .. { .. }` or `model Name<..> { .. }`
    Layer(Layer),
    /// `fn name<..>(..) -> T { .. }` outside layers
    Function(Function),
}

impl Item {
    /// The range of the whole item, without its docs.
    pub fn span(&self) -> Span {
        match self {
            Item::Use(item) => item.span,
            Item::Layer(item) => item.span,
            Item::Function(item) => item.span,
        }
    }
}

/// `use std.nn`: brings the layers and functions of a module into scope.
#[derive(Clone, PartialEq, Debug)]
pub struct Use {
    /// The parts of the path, at least one.
    pub path: Vec<Ident>,
    /// From `use` to the end of the path.
    pub span: Span,
}

/// Whether a [`Layer`] was declared with `layer`, `model` or `rule`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayerKind {
    /// A component with parameters, used as a field of others.
    Layer,
    /// A layer whose `pub fn`s are entry points of the compiled program.
    Model,
    /// A rule by which `train` changes parameters: states for each, and a function `step`.
    Rule,
}

impl LayerKind {
    /// The keyword that declares it.
    pub fn keyword(self) -> &'static str {
        match self {
            LayerKind::Layer => "layer",
            LayerKind::Model => "model",
            LayerKind::Rule => "rule",
        }
    }
}

/// A value made of several layers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayerList {
    /// `(Linear<D, F>, GELU)`: a tuple, whose layers are used individually.
    Tuple,
    /// `Sequential<Linear<D, F>, GELU>`: a call applies them in turn.
    Sequential,
}

/// A `layer`, a `model` or a `rule`.
#[derive(Clone, PartialEq, Debug)]
pub struct Layer {
    /// `layer`, `model` or `rule`.
    pub kind: LayerKind,
    /// Set if the type checker made it for a list of layers, with fields named by numbers; the
    /// parser never sets it.
    pub list: Option<LayerList>,
    /// The doc comment, lines joined by `\n`; empty if absent.
    pub docs: String,
    /// `#[name = ".."]` and the like.
    pub attributes: Vec<Attribute>,
    /// In the scope of the file.
    pub name: Ident,
    /// `<D, H = 12, eps: f32 = 1e-5>`
    pub generics: Vec<GenericParam>,
    /// Comparisons, in order.
    pub where_clauses: Vec<Expr>,
    /// Parameters, sub-layers and state, in the order of the text.
    pub fields: Vec<Field>,
    /// In the order of the text.
    pub functions: Vec<Function>,
    /// From the keyword to `}`.
    pub span: Span,
}

/// `#[name = "value"]` or `#[flag]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Attribute {
    /// Such as `name`.
    pub name: Ident,
    /// The value after `=` (a literal), if there is one.
    pub value: Option<Expr>,
    /// From `#` to `]`.
    pub span: Span,
}

/// One parameter in `<..>`: a dimension (`D`, `D = 768`), a constant (`eps = 1e-5`, `eps: f32`) or
/// an element type (`E = f32`).
#[derive(Clone, PartialEq, Debug)]
pub struct GenericParam {
    /// In the scope of its layer or function.
    pub name: Ident,
    /// The type after `:`; `None` for a dimension, or if the default determines the type.
    pub ty: Option<Type>,
    /// The expression after `=`.
    pub default: Option<Expr>,
    /// The element type after `=`.
    pub elem: Option<Elem>,
    /// From the name to the default.
    pub span: Span,
}

/// A field of a layer or model.
#[derive(Clone, PartialEq, Debug)]
pub struct Field {
    /// The doc comment, lines joined by `\n`; empty if absent.
    pub docs: String,
    /// `#[name = ".."]` and the like.
    pub attributes: Vec<Attribute>,
    /// True for `state k: f32[..]`, which lives as long as the session.
    pub is_state: bool,
    /// Unique in its layer.
    pub name: Ident,
    /// A tensor (a parameter, or state), a layer, or an array of layers.
    pub ty: Type,
    /// The initial value after `=`, for state.
    pub init: Option<Expr>,
    /// From `state` or the name to the end.
    pub span: Span,
}

/// A function of a file or of a layer.
#[derive(Clone, PartialEq, Debug)]
pub struct Function {
    /// The doc comment, lines joined by `\n`; empty if absent.
    pub docs: String,
    /// `#[..]`
    pub attributes: Vec<Attribute>,
    /// True for `pub fn`: an entry point, if it is in a model.
    pub is_pub: bool,
    /// In the scope of its file or layer.
    pub name: Ident,
    /// `<..>` after the name, for free functions.
    pub generics: Vec<GenericParam>,
    /// In the order of the signature.
    pub params: Vec<Param>,
    /// The type after `->`.
    pub result: Option<Type>,
    /// Comparisons, in order.
    pub where_clauses: Vec<Expr>,
    /// The function's value is the value of this block.
    pub body: Block,
    /// From `pub` or `fn` to `}`.
    pub span: Span,
}

/// A parameter of a function.
#[derive(Clone, PartialEq, Debug)]
pub struct Param {
    /// The doc comment, lines joined by `\n`; empty if absent.
    pub docs: String,
    /// In the scope of the function.
    pub name: Ident,
    /// Always present in the source.
    pub ty: Type,
    /// The value after `=`, for arguments that may be omitted.
    pub default: Option<Expr>,
    /// From the name to the default.
    pub span: Span,
}

/// A type as written.
#[derive(Clone, PartialEq, Debug)]
pub struct Type {
    /// The variant, with its parts.
    pub kind: TypeKind,
    /// Range in the source.
    pub span: Span,
    /// Levels of nesting, including this one.
    pub depth: u16,
}

impl Type {
    /// The dimensions of a tensor type.
    pub fn dims(&self) -> Option<&[DimSpec]> {
        match &self.kind {
            TypeKind::Tensor { dims, .. } | TypeKind::Generic { dims, .. } => Some(dims),
            TypeKind::Named { .. } | TypeKind::Array { .. } | TypeKind::Tuple(_) | TypeKind::Error => None,
        }
    }
}

/// The variants of [`Type`].
#[derive(Clone, PartialEq, Debug)]
pub enum TypeKind {
    /// `f32`, `f32[.., S, D]`
    Tensor {
        /// After rounding or wrapping.
        elem: Elem,
        /// The dimensions; empty for a scalar.
        dims: Vec<DimSpec>,
    },
    /// `E[.., S, D]`, whose element type is a generic.
    Generic {
        /// Name of the generic.
        elem: Ident,
        /// Outermost first; empty for a scalar.
        dims: Vec<DimSpec>,
    },
    /// `LayerNorm<D, eps = 1e-5>`, or any other name.
    Named {
        /// The parts of the path, at least one (`nn.Linear` has two).
        path: Vec<Ident>,
        /// The arguments in `<..>`.
        generics: Vec<GenericArg>,
    },
    /// `[Block<D>; L]`
    Array {
        /// The type of each element.
        element: Box<Type>,
        /// The number of elements, a dimension.
        length: Box<Expr>,
    },
    /// `(f32[S], f32[S])`
    Tuple(Vec<Type>),
    /// A type with a syntax error, which was reported.
    Error,
}

/// One entry of a shape.
#[derive(Clone, PartialEq, Debug)]
pub enum DimSpec {
    /// `..`: any leading dimensions.
    Rest(Span),
    /// A dimension expression.
    Dim(Expr),
}

/// One entry of `<..>` after a name.
#[derive(Clone, PartialEq, Debug)]
pub struct GenericArg {
    /// The name in `eps = 1e-5`.
    pub name: Option<Ident>,
    /// A dimension, constant, element type or layer.
    pub value: GenericValue,
    /// Including the name.
    pub span: Span,
}

/// The value of a generic argument.
#[derive(Clone, PartialEq, Debug)]
pub enum GenericValue {
    /// A dimension or constant.
    Expr(Expr),
    /// An element type, as in `cast<bf16>(x)`.
    Elem(Elem),
    /// A layer with generics of its own, as in `Sequential<Linear<D, F>, GELU>`.
    Layer(Type),
}

/// `{ statements; value }`
#[derive(Clone, PartialEq, Debug)]
pub struct Block {
    /// All statements before the value.
    pub statements: Vec<Stmt>,
    /// The last expression, the block's value, if the block ends with an expression.
    pub value: Option<Box<Expr>>,
    /// From `{` to `}`.
    pub span: Span,
    /// Levels of nesting, including this one.
    pub depth: u16,
}

/// A statement with its range in the source.
#[derive(Clone, PartialEq, Debug)]
pub struct Stmt {
    /// The variant, with its parts.
    pub kind: StmtKind,
    /// Range in the source, without the newline or `;` that ends it.
    pub span: Span,
}

/// The variants of [`Stmt`].
#[derive(Clone, PartialEq, Debug)]
pub enum StmtKind {
    /// `let pattern: T = value`
    Let {
        /// The names that it declares.
        pattern: Pattern,
        /// The type after `:`.
        ty: Option<Type>,
        /// Evaluated once.
        value: Expr,
    },
    /// `let dim N = value where N <= C`: a dimension with a computed value.
    Length {
        /// Name of the dimension.
        name: Ident,
        /// An integer scalar.
        value: Expr,
        /// Facts about the dimension.
        where_clauses: Vec<Expr>,
    },
    /// `var pattern: T = value`: may be assigned again.
    Var {
        /// The names that it declares.
        pattern: Pattern,
        /// The type after `:`.
        ty: Option<Type>,
        /// The initial value.
        value: Expr,
    },
    /// `target = value`; the target is a name, a tuple of names, or an indexed name (`k[.., t] =
    /// v`).
    Assign {
        /// A name, a tuple of names, or an indexed name.
        target: Expr,
        /// Evaluated before the assignment.
        value: Expr,
    },
    /// `tap name`
    Tap {
        /// The variable that is made observable.
        name: Ident,
    },
    /// `reset k`: sets a state to its initial value.
    Reset {
        /// Name of the state.
        name: Ident,
    },
    /// `for pattern in iterable { .. }`
    For {
        /// The loop variable.
        pattern: Pattern,
        /// A range or an array of layers.
        iterable: Iterable,
        /// The body; its value, if any, is unused.
        body: Block,
    },
    /// `while condition { .. }`
    While {
        /// Tested before each iteration.
        condition: Expr,
        /// Executed while the condition holds.
        body: Block,
    },
    /// `break`
    Break,
    /// An expression whose value is unused (an `if` or a block for its effects).
    Expr(Expr),
    /// A statement with a syntax error, which was reported.
    Error,
}

/// The operand of `for .. in`.
#[derive(Clone, PartialEq, Debug)]
pub enum Iterable {
    /// `a..b`
    Range {
        /// The first value.
        start: Expr,
        /// One past the last value.
        end: Expr,
    },
    /// An array of layers, or a tensor's first axis.
    Expr(Expr),
}

/// The left side of a `let`, `var` or `for`.
#[derive(Clone, PartialEq, Debug)]
pub enum Pattern {
    /// Declares a variable.
    Name(Ident),
    /// `_`: drops the value.
    Ignore(Span),
    /// `(a, b, _)`
    Tuple {
        /// One pattern for each element of the tuple, at least one.
        parts: Vec<Pattern>,
        /// From `(` to `)`.
        span: Span,
    },
}

impl Pattern {
    /// Range in the source.
    pub fn span(&self) -> Span {
        match self {
            Pattern::Name(name) => name.span,
            Pattern::Ignore(span) => *span,
            Pattern::Tuple { span, .. } => *span,
        }
    }
}

/// An expression. Parentheses have no node of their own, but are included in the span of their
/// contents.
#[derive(Clone, PartialEq, Debug)]
pub struct Expr {
    /// The variant, with its parts.
    pub kind: ExprKind,
    /// Range in the source.
    pub span: Span,
    /// Levels of nesting, including this one; at most [`MAX_DEPTH`].
    pub depth: u16,
}

/// The variants of [`Expr`].
#[derive(Clone, PartialEq, Debug)]
pub enum ExprKind {
    /// `12`, `0x1f`
    Int(u64),
    /// `1.5`, `1e-5`
    Float(f64),
    /// `true`, `false`
    Bool(bool),
    /// `inf`
    Inf,
    /// `"s (h d) -> h s d"`, escapes resolved.
    Str(String),
    /// A name: variable, field, dimension, function.
    Name(Ident),
    /// `(a, b)`
    Tuple(Vec<Expr>),
    /// `[S, D]`, the list argument of `full` and others.
    List(Vec<Expr>),
    /// `-x`, `+x`, `not x`
    Unary {
        /// Negation, identity or `not`.
        op: UnaryOp,
        /// Range of the operator.
        op_span: Span,
        /// The expression after it.
        operand: Box<Expr>,
    },
    /// `a + b`, `a @ b`, `a <= b`, `a and b`
    Binary {
        /// Arithmetic, comparison or logic.
        op: BinaryOp,
        /// Range of the operator.
        op_span: Span,
        /// Left of the operator.
        left: Box<Expr>,
        /// Right of the operator.
        right: Box<Expr>,
    },
    /// `f(x, axis = -1)`, `cast<bf16>(x)`, `random.uniform(seed, i)`, `block(x)`
    Call {
        /// A name or a path (nested [`ExprKind::Field`]), or an indexed layer array.
        callee: Box<Expr>,
        /// The arguments in `<..>`.
        generics: Vec<GenericArg>,
        /// Positional arguments first.
        args: Vec<Arg>,
    },
    /// `x.T`, `block.attn`, `random.uniform`
    Field {
        /// The expression before the dot.
        base: Box<Expr>,
        /// The name after the dot.
        name: Ident,
    },
    /// `x[a..b, .., 0]`, `wte[tokens]`
    Index {
        /// The expression before the bracket.
        base: Box<Expr>,
        /// One entry for each axis that is indexed.
        indices: Vec<Index>,
    },
    /// `if c { a } else { b }`
    If {
        /// A `bool` scalar.
        condition: Box<Expr>,
        /// The block if it is true.
        then: Block,
        /// The `else` branch: a block, or another `if` (an [`ExprKind::If`] or
        /// [`ExprKind::Block`]).
        otherwise: Option<Box<Expr>>,
    },
    /// `{ .. }`
    Block(Block),
    /// `train loss, clip = 1.0 { "h.*" where rank == 2: Muon(..) }`
    Train(Box<Train>),
    /// An expression with a syntax error, which was reported.
    Error,
}

/// Changes parameters along the gradient of a loss; the value is the norm of the gradient.
#[derive(Clone, PartialEq, Debug)]
pub struct Train {
    /// One float.
    pub loss: Expr,
    /// `clip = 1.0` and the like, all with names.
    pub settings: Vec<Arg>,
    /// In order; a parameter goes to the first that fits.
    pub arms: Vec<Arm>,
}

/// `"pattern" where rank == 2: Rule(..)`
#[derive(Clone, PartialEq, Debug)]
pub struct Arm {
    /// Paths of parameters, `*` for any text.
    pub pattern: String,
    /// Range of the string.
    pub pattern_span: Span,
    /// Comparisons, in order.
    pub where_clauses: Vec<Expr>,
    /// The rule, by its path.
    pub rule: Vec<Ident>,
    /// Its arguments; `None` without parentheses.
    pub args: Option<Vec<Arg>>,
    /// From the pattern to the end.
    pub span: Span,
}

/// An argument of a call.
#[derive(Clone, PartialEq, Debug)]
pub struct Arg {
    /// The name in `axis = -1`.
    pub name: Option<Ident>,
    /// The value passed.
    pub value: Expr,
    /// Including the name.
    pub span: Span,
}

/// One entry of `x[..]`.
#[derive(Clone, PartialEq, Debug)]
pub enum Index {
    /// `..`: all axes without an entry of their own.
    Rest(Span),
    /// `i`, or a tensor of indices.
    Expr(Expr),
    /// `a..b`; `a..` and `..b` omit one end.
    Range {
        /// The first index; `None` for the start of the axis.
        start: Option<Expr>,
        /// One past the last index; `None` for the end of the axis.
        end: Option<Expr>,
        /// The distance between elements; `None` for 1.
        step: Option<Expr>,
        /// Range in the source.
        span: Span,
    },
}

impl Index {
    /// The distance between elements, if it is given.
    pub fn step(&self) -> Option<&Expr> {
        match self {
            Index::Range { step, .. } => step.as_ref(),
            Index::Rest(_) | Index::Expr(_) => None,
        }
    }

    /// Range in the source.
    pub fn span(&self) -> Span {
        match self {
            Index::Rest(span) => *span,
            Index::Expr(expr) => expr.span,
            Index::Range { span, .. } => *span,
        }
    }
}

/// Prefix operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnaryOp {
    /// `-`
    Neg,
    /// `+`
    Plus,
    /// `not`
    Not,
}

impl UnaryOp {
    /// The operator in source text.
    pub fn symbol(self) -> &'static str {
        match self {
            UnaryOp::Neg => "-",
            UnaryOp::Plus => "+",
            UnaryOp::Not => "not",
        }
    }
}

/// Infix operators, from strongest to weakest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BinaryOp {
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Rem,
    /// `@`
    MatMul,
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `and`
    And,
    /// `or`
    Or,
}

impl BinaryOp {
    /// The operator in source text.
    pub fn symbol(self) -> &'static str {
        match self {
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::Rem => "%",
            BinaryOp::MatMul => "@",
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Eq => "==",
            BinaryOp::Ne => "!=",
            BinaryOp::Lt => "<",
            BinaryOp::Le => "<=",
            BinaryOp::Gt => ">",
            BinaryOp::Ge => ">=",
            BinaryOp::And => "and",
            BinaryOp::Or => "or",
        }
    }

    /// Is it one of `== != < <= > >=`?
    pub fn is_comparison(self) -> bool {
        matches!(self, BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge)
    }
}
