//! The syntax tree: what the parser builds and the type checker reads.
//!
//! In: the parser's actions. Out: one [`File`] for each source text, every node with its [`Span`].
//! The tree says what was written and nothing more: no name is resolved, no shape is known, and
//! dimensions are ordinary expressions. Trees are at most [`MAX_DEPTH`] levels deep (the parser
//! replaces what is deeper by [`ExprKind::Error`] and reports it), so recursion over them, and
//! dropping them, is safe.

use crate::shape::Elem;
use crate::source::Span;

/// How deep expressions, types and blocks may nest; deeper ones are an error of the program.
pub const MAX_DEPTH: u16 = 256;

/// A name with its place.
#[derive(Clone, PartialEq, Debug)]
pub struct Ident {
    /// The name as written.
    pub name: String,
    /// Its place.
    pub span: Span,
}

/// A whole source text.
#[derive(Clone, PartialEq, Debug)]
pub struct File {
    /// The items in the order of the text.
    pub items: Vec<Item>,
    /// The whole text.
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
    /// The place of the whole item, without its docs.
    pub fn span(&self) -> Span {
        match self {
            Item::Use(item) => item.span,
            Item::Layer(item) => item.span,
            Item::Function(item) => item.span,
        }
    }
}

/// `use std.nn`: makes the layers and functions of a module known.
#[derive(Clone, PartialEq, Debug)]
pub struct Use {
    /// The parts of the path, at least one.
    pub path: Vec<Ident>,
    /// The whole item.
    pub span: Span,
}

/// Whether a [`Layer`] was declared with `layer` or with `model`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayerKind {
    /// A part with parameters, made to be a field of others.
    Layer,
    /// A layer whose `pub fn`s are entry points of the compiled program.
    Model,
}

/// Several layers as one value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayerList {
    /// `(Linear<D, F>, GELU)`: a tuple, each layer used by itself.
    Tuple,
    /// `Sequential<Linear<D, F>, GELU>`: a call applies them in turn.
    Sequential,
}

/// A `layer` or a `model`.
#[derive(Clone, PartialEq, Debug)]
pub struct Layer {
    /// `layer` or `model`.
    pub kind: LayerKind,
    /// What it is where the type of a field stands for it, its fields named by numbers; the parser makes none of these.
    pub list: Option<LayerList>,
    /// The doc comment, lines joined by `\n`; empty where there is none.
    pub docs: String,
    /// `#[name = ".."]` and the like.
    pub attributes: Vec<Attribute>,
    /// Its name.
    pub name: Ident,
    /// `<D, H = 12, eps: f32 = 1e-5>`
    pub generics: Vec<GenericParam>,
    /// The conditions after `where`.
    pub where_clauses: Vec<Expr>,
    /// Parameters, sub-layers and state, in the order of the text.
    pub fields: Vec<Field>,
    /// The functions, in the order of the text.
    pub functions: Vec<Function>,
    /// The whole declaration.
    pub span: Span,
}

/// `#[name = "value"]` or `#[flag]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Attribute {
    /// The attribute's name.
    pub name: Ident,
    /// The value after `=` (a literal), if there is one.
    pub value: Option<Expr>,
    /// From `#` to `]`.
    pub span: Span,
}

/// One parameter in `<..>`: a dimension (`D`, `D = 768`), a constant (`eps = 1e-5`, `eps: f32`) or an element type (`E = f32`).
#[derive(Clone, PartialEq, Debug)]
pub struct GenericParam {
    /// Its name.
    pub name: Ident,
    /// The type after `:`; none means a dimension, or the type that the default shows.
    pub ty: Option<Type>,
    /// The value after `=`.
    pub default: Option<Expr>,
    /// The element type after `=`.
    pub elem: Option<Elem>,
    /// The whole parameter.
    pub span: Span,
}

/// A field of a layer or model.
#[derive(Clone, PartialEq, Debug)]
pub struct Field {
    /// The doc comment, lines joined by `\n`; empty where there is none.
    pub docs: String,
    /// `#[name = ".."]` and the like.
    pub attributes: Vec<Attribute>,
    /// True for `state k: f32[..]`, which lives as long as the session.
    pub is_state: bool,
    /// Its name.
    pub name: Ident,
    /// A tensor (a parameter, or state), a layer, or an array of layers.
    pub ty: Type,
    /// The start value after `=`, for state.
    pub init: Option<Expr>,
    /// The whole field.
    pub span: Span,
}

/// A function, free or of a layer.
#[derive(Clone, PartialEq, Debug)]
pub struct Function {
    /// The doc comment, lines joined by `\n`; empty where there is none.
    pub docs: String,
    /// `#[..]`
    pub attributes: Vec<Attribute>,
    /// True for `pub fn`: an entry point, where it stands in a model.
    pub is_pub: bool,
    /// Its name.
    pub name: Ident,
    /// `<..>` after the name, for free functions.
    pub generics: Vec<GenericParam>,
    /// The parameters.
    pub params: Vec<Param>,
    /// The type after `->`.
    pub result: Option<Type>,
    /// The conditions after `where`.
    pub where_clauses: Vec<Expr>,
    /// The body.
    pub body: Block,
    /// From `pub` or `fn` to `}`.
    pub span: Span,
}

/// A parameter of a function.
#[derive(Clone, PartialEq, Debug)]
pub struct Param {
    /// The doc comment, lines joined by `\n`; empty where there is none.
    pub docs: String,
    /// Its name.
    pub name: Ident,
    /// Its type.
    pub ty: Type,
    /// The value after `=`, for arguments that may be omitted.
    pub default: Option<Expr>,
    /// The whole parameter.
    pub span: Span,
}

/// A type as written.
#[derive(Clone, PartialEq, Debug)]
pub struct Type {
    /// What is written.
    pub kind: TypeKind,
    /// Its place.
    pub span: Span,
    /// Levels of nesting, this one included.
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

/// The forms of [`Type`].
#[derive(Clone, PartialEq, Debug)]
pub enum TypeKind {
    /// `f32`, `f32[.., S, D]`
    Tensor {
        /// The element type.
        elem: Elem,
        /// The dimensions; empty for a scalar.
        dims: Vec<DimSpec>,
    },
    /// `E[.., S, D]`, the element type a generic.
    Generic {
        /// The name of the element type.
        elem: Ident,
        /// The dimensions.
        dims: Vec<DimSpec>,
    },
    /// `LayerNorm<D, eps = 1e-5>`, or any other name.
    Named {
        /// The parts of the path, at least one (`nn.Linear` has two).
        path: Vec<Ident>,
        /// What stands in `<..>`.
        generics: Vec<GenericArg>,
    },
    /// `[Block<D>; L]`
    Array {
        /// The type of each element.
        element: Box<Type>,
        /// How many.
        length: Box<Expr>,
    },
    /// `(f32[S], f32[S])`
    Tuple(Vec<Type>),
    /// Where a type could not be read; the error is reported already.
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
    /// What is given.
    pub value: GenericValue,
    /// The whole entry.
    pub span: Span,
}

/// What a generic parameter is given.
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
    /// The statements before the value.
    pub statements: Vec<Stmt>,
    /// The last expression, the block's value, if the block ends with an expression.
    pub value: Option<Box<Expr>>,
    /// From `{` to `}`.
    pub span: Span,
    /// Levels of nesting, this one included.
    pub depth: u16,
}

/// A statement.
#[derive(Clone, PartialEq, Debug)]
pub struct Stmt {
    /// What it does.
    pub kind: StmtKind,
    /// Its place, without the newline or `;` that ends it.
    pub span: Span,
}

/// The forms of [`Stmt`].
#[derive(Clone, PartialEq, Debug)]
pub enum StmtKind {
    /// `let pattern: T = value`
    Let {
        /// What is bound.
        pattern: Pattern,
        /// The type after `:`.
        ty: Option<Type>,
        /// The value.
        value: Expr,
    },
    /// `let dim N = value where N <= C`: a dimension with a value that is computed.
    Length {
        /// Its name.
        name: Ident,
        /// Its value.
        value: Expr,
        /// What must hold of it.
        where_clauses: Vec<Expr>,
    },
    /// `var pattern: T = value`: may be assigned again.
    Var {
        /// What is bound.
        pattern: Pattern,
        /// The type after `:`.
        ty: Option<Type>,
        /// The value.
        value: Expr,
    },
    /// `target = value`; the target is a name, a tuple of names, or an indexed name (`k[.., t] = v`).
    Assign {
        /// What is written to.
        target: Expr,
        /// The value.
        value: Expr,
    },
    /// `tap name`
    Tap {
        /// The variable that is made observable.
        name: Ident,
    },
    /// `reset k`: gives a state its start value again.
    Reset {
        /// The state.
        name: Ident,
    },
    /// `for pattern in iterable { .. }`
    For {
        /// The variable of the loop.
        pattern: Pattern,
        /// What is gone through.
        iterable: Iterable,
        /// The body; its value, if any, is not used.
        body: Block,
    },
    /// `while condition { .. }`
    While {
        /// Tested before each iteration.
        condition: Expr,
        /// The body.
        body: Block,
    },
    /// `break`
    Break,
    /// An expression whose value is not used (an `if` or a block for its effects).
    Expr(Expr),
    /// Where a statement could not be read; the error is reported already.
    Error,
}

/// What a `for` goes through.
#[derive(Clone, PartialEq, Debug)]
pub enum Iterable {
    /// `a..b`
    Range {
        /// The first number.
        start: Expr,
        /// The number after the last one.
        end: Expr,
    },
    /// An array of layers, or a tensor's first axis.
    Expr(Expr),
}

/// What a `let`, `var` or `for` binds.
#[derive(Clone, PartialEq, Debug)]
pub enum Pattern {
    /// A name.
    Name(Ident),
    /// `_`: bound to nothing.
    Ignore(Span),
    /// `(a, b, _)`
    Tuple {
        /// The parts, at least one.
        parts: Vec<Pattern>,
        /// From `(` to `)`.
        span: Span,
    },
}

impl Pattern {
    /// The place of the pattern.
    pub fn span(&self) -> Span {
        match self {
            Pattern::Name(name) => name.span,
            Pattern::Ignore(span) => *span,
            Pattern::Tuple { span, .. } => *span,
        }
    }
}

/// An expression. Parentheses leave no node, but the span of what they enclose holds them.
#[derive(Clone, PartialEq, Debug)]
pub struct Expr {
    /// What is written.
    pub kind: ExprKind,
    /// Its place.
    pub span: Span,
    /// Levels of nesting, this one included; at most [`MAX_DEPTH`].
    pub depth: u16,
}

/// The forms of [`Expr`].
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
    /// `[S, D]`, the list form that `full` and others take.
    List(Vec<Expr>),
    /// `-x`, `+x`, `not x`
    Unary {
        /// The operator.
        op: UnaryOp,
        /// Its place.
        op_span: Span,
        /// What it applies to.
        operand: Box<Expr>,
    },
    /// `a + b`, `a @ b`, `a <= b`, `a and b`
    Binary {
        /// The operator.
        op: BinaryOp,
        /// Its place.
        op_span: Span,
        /// The left operand.
        left: Box<Expr>,
        /// The right operand.
        right: Box<Expr>,
    },
    /// `f(x, axis = -1)`, `cast<bf16>(x)`, `random.uniform(seed, i)`, `block(x)`
    Call {
        /// What is called: a name or a path (nested [`ExprKind::Field`]), or an indexed layer array.
        callee: Box<Expr>,
        /// What stands in `<..>`.
        generics: Vec<GenericArg>,
        /// The arguments.
        args: Vec<Arg>,
    },
    /// `x.T`, `block.attn`, `random.uniform`
    Field {
        /// What stands before the dot.
        base: Box<Expr>,
        /// The name after the dot.
        name: Ident,
    },
    /// `x[a..b, .., 0]`, `wte[tokens]`
    Index {
        /// What is indexed.
        base: Box<Expr>,
        /// One entry for each axis that is named.
        indices: Vec<Index>,
    },
    /// `if c { a } else { b }`
    If {
        /// The condition.
        condition: Box<Expr>,
        /// Where it is true.
        then: Block,
        /// Where it is not: a block, or another `if` (an [`ExprKind::If`] or [`ExprKind::Block`]).
        otherwise: Option<Box<Expr>>,
    },
    /// `{ .. }`
    Block(Block),
    /// Where an expression could not be read; the error is reported already.
    Error,
}

/// An argument of a call.
#[derive(Clone, PartialEq, Debug)]
pub struct Arg {
    /// The name in `axis = -1`.
    pub name: Option<Ident>,
    /// The value.
    pub value: Expr,
    /// The whole argument.
    pub span: Span,
}

/// One entry of `x[..]`.
#[derive(Clone, PartialEq, Debug)]
pub enum Index {
    /// `..`: all axes that no other entry names.
    Rest(Span),
    /// `i`, or a tensor of indices.
    Expr(Expr),
    /// `a..b`; `a..` and `..b` leave one end out.
    Range {
        /// The first position; the axis's start where omitted.
        start: Option<Expr>,
        /// The position after the last; the axis's end where omitted.
        end: Option<Expr>,
        /// From one element to the next; 1 where omitted.
        step: Option<Expr>,
        /// The whole entry.
        span: Span,
    },
}

impl Index {
    /// From one element to the next, where that is written.
    pub fn step(&self) -> Option<&Expr> {
        match self {
            Index::Range { step, .. } => step.as_ref(),
            Index::Rest(_) | Index::Expr(_) => None,
        }
    }

    /// The place of the entry.
    pub fn span(&self) -> Span {
        match self {
            Index::Rest(span) => *span,
            Index::Expr(expr) => expr.span,
            Index::Range { span, .. } => *span,
        }
    }
}

/// Operators before one operand.
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
    /// The operator as it is written.
    pub fn symbol(self) -> &'static str {
        match self {
            UnaryOp::Neg => "-",
            UnaryOp::Plus => "+",
            UnaryOp::Not => "not",
        }
    }
}

/// Operators between two operands, weakest last.
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
    /// The operator as it is written.
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

    /// True for `== != < <= > >=`.
    pub fn is_comparison(self) -> bool {
        matches!(self, BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge)
    }
}
