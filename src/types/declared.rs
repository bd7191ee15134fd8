//! The parts of the typed AST that declarations consist of: fields, generics, types, conditions.
//!
//! They are exported by `typed`, and refer to no expression.

use std::collections::BTreeMap;

use super::axes::Shape;
use crate::scalar::Scalar;
use crate::shape::{Dim, Elem, Fact};
use crate::source::Span;

/// A layer of a [`Program`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LayerId(pub u32);

/// A function of a [`Program`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FunctionId(pub u32);

/// A variable of a [`Function`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LocalId(pub u32);

/// A generic dimension or constant.
#[derive(Clone, Debug)]
pub struct Generic {
    /// As declared.
    pub name: String,
    /// Dimension, constant or element type, with the default.
    pub kind: GenericKind,
    /// Range in the source.
    pub span: Span,
}

/// The kind of a generic, with its default.
#[derive(Clone, Debug, PartialEq)]
pub enum GenericKind {
    /// A dimension; the default may use the generics before it.
    Dim {
        /// Its value if none is given.
        default: Option<Dim>,
    },
    /// A scalar constant.
    Const {
        /// Type of the constant.
        elem: Elem,
        /// Its value if none is given.
        default: Option<Scalar>,
    },
    /// An element type. Each layer is checked for each element type that it is used with; this is
    /// the current one.
    Elem(Elem),
}

/// A field of a layer.
#[derive(Clone, Debug)]
pub struct Field {
    /// As declared.
    pub name: String,
    /// Doc comment of the source.
    pub docs: String,
    /// Its component of the path in a weights file: the name, or the value of `#[name = ".."]`.
    pub stored_name: String,
    /// Parameter, state or layers.
    pub ty: FieldType,
    /// Range of the declaration.
    pub span: Span,
}

/// The type of a field.
#[derive(Clone, Debug)]
pub enum FieldType {
    /// A parameter. Its shape has no `..`.
    Param(Tensor),
    /// A value that a session keeps between calls: a tensor that is zero when the session begins.
    /// Its shape has no `..`.
    State(Tensor),
    /// A single sub-layer.
    Layer(Instance),
    /// An array of layers and its length.
    Array(Instance, Dim),
}

/// A layer with its generics bound.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The layer that is instantiated.
    pub layer: LayerId,
    /// Its generic dimensions, over the names of the layer that contains it.
    pub dims: BTreeMap<String, Dim>,
    /// Its generic constants, by name.
    pub constants: BTreeMap<String, Constant>,
}

/// A value for a generic constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// A value known at compile time.
    Literal(Scalar),
    /// A generic constant of the enclosing layer or function.
    Generic(String),
}

/// A condition on dimensions; if the bound values do not decide it, it is checked on entry to the
/// call.
#[derive(Clone, Debug)]
pub struct Condition {
    /// The fact that must hold.
    pub fact: Fact,
    /// Its origin: a `where` clause, a slice.
    pub span: Span,
    /// The fields and calls through which it propagated, outermost first; empty if it originated
    /// here.
    pub through: Vec<Span>,
}

/// Element type and symbolic shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tensor {
    /// After rounding or wrapping.
    pub elem: Elem,
    /// Its axes; empty for a scalar.
    pub shape: Shape,
}

/// The type of an expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A tensor or scalar.
    Tensor(Tensor),
    /// Several values; empty for a function without result.
    Tuple(Vec<Type>),
}
