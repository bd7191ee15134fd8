//! Attributes of operations: their kinds, printing and parsing.

use std::collections::BTreeMap;

use super::CodedError;
use crate::diagnostics::codes::ir as codes;
use crate::irtext::{Expr, ExprKind, Statement, TextError, TextSpan, read};
use crate::shape::{Dim, Elem};

/// A type of attribute.
pub trait Attribute: Sized + PartialEq {
    /// Name of the kind, for the reference.
    const KIND: &'static str;

    /// The printed attribute.
    fn text(&self) -> String;

    /// Parses an attribute.
    ///
    /// # Errors
    /// The term is of another kind.
    fn read(e: &Expr) -> Result<Self, TextError>;

    /// The dimensions that it mentions.
    fn dims(&self) -> &[Dim] {
        &[]
    }
}

fn list<T: ToString>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    format!("[{}]", items.join(", "))
}

/// Parses the items in square brackets.
fn items<T>(e: &Expr, item: impl Fn(&Expr) -> Result<T, TextError>) -> Result<Vec<T>, TextError> {
    match &e.kind {
        ExprKind::List(items) => items.iter().map(|p| item(read::single(p)?)).collect(),
        _ => Err(TextError::new(e.place, "expected a list in square brackets")),
    }
}

/// Integer attributes, each kind with its name.
macro_rules! numbers {
    ($($ty:ty = $kind:literal,)*) => { $(
        impl Attribute for $ty {
            const KIND: &'static str = $kind;

            fn text(&self) -> String {
                self.to_string()
            }

            fn read(e: &Expr) -> Result<$ty, TextError> {
                read::integer(e)
            }
        }
    )* };
}

numbers! {
    usize = "axis",
    u8 = "number",
    u32 = "number",
    u64 = "number",
    i64 = "number",
}

impl Attribute for Option<usize> {
    const KIND: &'static str = "axis";

    fn text(&self) -> String {
        self.map_or(String::new(), |axis| axis.to_string())
    }

    fn read(e: &Expr) -> Result<Option<usize>, TextError> {
        read::integer(e).map(Some)
    }
}

impl Attribute for Vec<usize> {
    const KIND: &'static str = "axes";

    fn text(&self) -> String {
        list(self)
    }

    fn read(e: &Expr) -> Result<Vec<usize>, TextError> {
        items(e, read::integer)
    }
}

impl Attribute for String {
    const KIND: &'static str = "name";

    fn text(&self) -> String {
        crate::irtext::quoted(self)
    }

    fn read(e: &Expr) -> Result<String, TextError> {
        read::text(e).map(str::to_string)
    }
}

impl Attribute for Dim {
    const KIND: &'static str = "dimension";

    fn text(&self) -> String {
        self.to_string()
    }

    fn read(e: &Expr) -> Result<Dim, TextError> {
        read::dim(e)
    }

    fn dims(&self) -> &[Dim] {
        std::slice::from_ref(self)
    }
}

impl Attribute for Vec<Dim> {
    const KIND: &'static str = "dimensions";

    fn text(&self) -> String {
        list(self)
    }

    fn read(e: &Expr) -> Result<Vec<Dim>, TextError> {
        items(e, read::dim)
    }

    fn dims(&self) -> &[Dim] {
        self
    }
}

impl Attribute for bool {
    const KIND: &'static str = "true or false";

    fn text(&self) -> String {
        self.to_string()
    }

    fn read(e: &Expr) -> Result<bool, TextError> {
        match read::literal(e) {
            Some(read::Literal::Bool(b)) => Ok(b),
            _ => Err(TextError::new(e.place, "expected `true` or `false`")),
        }
    }
}

impl Attribute for Elem {
    const KIND: &'static str = "element type";

    fn text(&self) -> String {
        self.to_string()
    }

    fn read(e: &Expr) -> Result<Elem, TextError> {
        read::elem(e)
    }
}

/// The attributes of a statement, by name. Each is taken once.
pub struct Attributes<'a> {
    named: BTreeMap<&'a str, (&'a [Expr], TextSpan)>,
    place: TextSpan,
    head: &'a str,
}

impl<'a> Attributes<'a> {
    /// Collects the phrases `name=value`.
    ///
    /// # Errors
    /// A name that occurs twice.
    pub fn new(s: &'a Statement) -> Result<Attributes<'a>, CodedError> {
        let mut named = BTreeMap::new();
        for p in &s.args {
            if let Some((name, value)) = read::named(p)
                && named.insert(name, (value, p.place)).is_some()
            {
                return Err((codes::DEFINED_TWICE, TextError::new(p.place, format!("`{name}` is given twice"))));
            }
        }
        Ok(Attributes { named, place: s.place, head: &s.head })
    }

    /// No attributes, for an operation given by name alone.
    pub fn none(head: &'a str) -> Attributes<'a> {
        Attributes { named: BTreeMap::new(), place: TextSpan::default(), head }
    }

    /// The value of an attribute, if it is given.
    ///
    /// # Errors
    /// More than one term.
    pub fn find(&mut self, name: &str) -> Result<Option<&'a Expr>, CodedError> {
        match self.named.remove(name) {
            None => Ok(None),
            Some(([e], _)) => Ok(Some(e)),
            Some((_, place)) => {
                Err((codes::FORM, TextError::new(place, format!("expected one term as the value of `{name}`"))))
            }
        }
    }

    /// The value of a required attribute.
    ///
    /// # Errors
    /// Missing, or more than one term.
    pub fn need(&mut self, name: &str) -> Result<&'a Expr, CodedError> {
        self.find(name)?
            .ok_or_else(|| (codes::ATTRIBUTE, TextError::new(self.place, format!("`{}` needs `{name}`", self.head))))
    }

    /// Takes an attribute; `default` if it may be omitted.
    ///
    /// # Errors
    /// Missing, or of another kind.
    pub fn take<T: Attribute>(&mut self, name: &str, default: Option<T>) -> Result<T, CodedError> {
        let e = match default {
            None => self.need(name)?,
            Some(default) => match self.find(name)? {
                None => return Ok(default),
                Some(e) => e,
            },
        };
        T::read(e).map_err(|e| (codes::FORM, TextError::new(e.place, format!("`{name}`: {}", e.message))))
    }

    /// Checks that every attribute was taken.
    ///
    /// # Errors
    /// An attribute that the operation does not have.
    pub fn finish(self) -> Result<(), CodedError> {
        match self.named.iter().next() {
            None => Ok(()),
            Some((name, (_, place))) => {
                let message = format!("`{}` has no attribute `{name}`", self.head);
                Err((codes::ATTRIBUTE, TextError::new(*place, message)))
            }
        }
    }
}
