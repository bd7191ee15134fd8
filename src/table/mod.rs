//! Tables of operations: the single definition of each IR's operations.
//!
//! In: the rows that graph IR (`ir::op`), tile IR (`tile::op`) and vector IR (`vector::op` for
//! elementary functions, `vector::routine::op` for routines) pass to `operations!`. Out: code
//! generated from them: the [`Row`] of an operation, all rows for the reference, printing and
//! parsing of attributes, the check of operands and result. So an operation is added by a variant
//! and a row, and printer, parser, names and reference include it. It does not know any operation.
//!
//! A row has columns, in this order:
//!
//! ```text
//! Slice { axis, start, stop }  "slice"  ["x"]  [axis: usize, start: Dim, stop: Dim]  Movement FAILS Computed  rules::slice  "..";
//! ```
//!
//! * the variant with its fields;
//! * its name in the text, or `each kind: T` for a [`Family`], which has the names and meanings of
//!   its operations;
//! * names of the operands; a name that ends in `*` stands for any number of operands, one that
//!   ends in `?` is optional (and is printed with its name, `mask=%m`);
//! * attributes with their types ([`Attribute`]); one with `= default` is omitted from the text if
//!   it has this value. `own` instead of attributes or after them: the operation has a syntax of
//!   its own, which printer and parser know;
//! * its class ([`Row::class`]), which each IR defines;
//! * its [`Effects`];
//! * how the result's type is determined ([`Gives`]);
//! * the rule that checks operands and result: a function of the types ([`OperandTypes`]) and of
//!   the fields;
//! * its meaning, in one line.
//!
//! `Op of Class, types T, with Gpu: GpuOp;` says that the variant `Op::Gpu` holds a `GpuOp`, which
//! has a table of its own.

mod attribute;

pub use attribute::{Attribute, Attributes};

use crate::diagnostics::codes::ir as codes;
use crate::diagnostics::{Code, did_you_mean};
use crate::irtext::{TextError, TextSpan};
use crate::ssa::Effects;

/// An error in a text, with its code.
pub type CodedError = (Code, TextError);

/// Operations that differ only in the function computed: each has its own name and meaning.
pub trait Family: Copy + 'static {
    /// All members, in the order of the reference.
    const MEMBERS: &'static [Self];

    /// Name as an operation of an IR.
    fn operation(self) -> &'static str;

    /// A one-line description.
    fn meaning(self) -> &'static str;

    /// The member with this name.
    fn named(name: &str) -> Option<Self> {
        Self::MEMBERS.iter().copied().find(|member| member.operation() == name)
    }
}

/// How the type of an operation's result is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// Declared in the text, because operands and attributes do not determine it completely.
    Declared,
    /// Computed from operands and attributes.
    Computed,
    /// There is no result.
    Nothing,
}

/// An attribute in a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeRow {
    /// Name in the text form.
    pub name: &'static str,
    /// Name of its type ([`Attribute::KIND`]).
    pub kind: &'static str,
    /// May it be omitted?
    pub optional: bool,
}

/// A row of a table of operations. `C` is the IR's type of operation classes.
#[derive(Clone, Copy, Debug)]
pub struct Row<C> {
    /// Name in the text form.
    pub name: &'static str,
    /// Names of the operands; one that ends in `*` stands for any number, one that ends in `?` is
    /// optional.
    pub operands: &'static [&'static str],
    /// The attributes, in order of printing; `None` if the operation has a syntax of its own.
    pub attributes: Option<&'static [AttributeRow]>,
    /// How the result depends on the operands, or where the operation may occur.
    pub class: C,
    /// Memory and state that it accesses besides operands and result.
    pub effects: Effects,
    /// Declared, computed, or absent.
    pub gives: Gives,
    /// One line for the reference.
    pub meaning: &'static str,
}

impl<C> Row<C> {
    /// Checks the number of operands. For a name that stands for any number, the rule checks it.
    ///
    /// # Errors
    /// The wrong number, in words that follow the operation's name.
    pub fn count(&self, operands: usize) -> Result<(), String> {
        let most = self.operands.len();
        let least = most - self.operands.iter().filter(|name| name.ends_with('?')).count();
        if (least..=most).contains(&operands) || self.operands.iter().any(|name| name.ends_with('*')) {
            return Ok(());
        }
        let wanted = if least == most { most.to_string() } else { format!("{least} to {most}") };
        Err(format!("takes {wanted} operand{}, has {operands}", if most == 1 { "" } else { "s" }))
    }

    /// Its syntax: name, operands, attributes.
    pub fn form(&self) -> String {
        let (given, optional): (Vec<&str>, Vec<&str>) = self.operands.iter().partition(|name| !name.ends_with('?'));
        let operands = given.into_iter().map(|name| match name.strip_suffix('*') {
            Some(name) => format!("{name}.."),
            None => name.to_string(),
        });
        let optional = optional.into_iter().map(|name| format!("[{}=value]", name.trim_end_matches('?')));
        let attributes = self.attributes.unwrap_or_default().iter().map(|a| match a.optional {
            true => format!("[{}={}]", a.name, a.kind),
            false => format!("{}={}", a.name, a.kind),
        });
        let words: Vec<String> = operands.chain(attributes).chain(optional).collect();
        format!("{} {}", self.name, words.join(", ")).trim_end().to_string()
    }
}

/// The error for an unknown name, with the nearest existing one.
pub fn unknown<C>(name: &str, place: TextSpan, table: &[Row<C>]) -> CodedError {
    let near = did_you_mean(name, table.iter().map(|row| row.name));
    let hint = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
    (codes::UNKNOWN_NAME, TextError::new(place, format!("there is no operation `{name}`{hint}")))
}

/// The types that a rule checks.
#[derive(Clone, Copy, Debug)]
pub struct OperandTypes<'a, T> {
    /// The types of the operands.
    pub types: &'a [&'a T],
    /// The declared type of the result.
    pub declared: Option<&'a T>,
}

/// Declares the table of an IR; the module's documentation describes the columns.
macro_rules! operations {
    (
        $op:ident of $class:ty, types $ty:ty $(, with $part:ident: $part_op:ident)*;
        $(
            $variant:ident $(( $($arg:ident),* ))? $({ $($field:ident),* })?
            $($name:literal)? $(each $k:ident: $kty:ty)?,
            $operands:expr,
            $([$($attribute:ident: $aty:ty $(= $default:expr)?),*])? $($own:ident)?,
            $place:ident $effects:expr, $gives:ident $rule:path, $($meaning:literal)?;
        )*
    ) => {
        impl $op {
            /// Its row in the table.
            pub fn info(&self) -> $crate::table::Row<$class> {
                match self {
                    $($op::$variant $(( $($arg),* ))? $({ $($field),* })? => {
                        $($(let _ = $arg;)*)?
                        $($(let _ = $field;)*)?
                        $crate::table::operations!(@row $place $class, $gives, { $($name)? } { $($k: $kty)? } { $($meaning)? }
                            $operands, { $([$($attribute: $aty $(= $default)?),*])? } $effects)
                    })*
                    $($op::$part(op) => op.info(),)*
                }
            }

            /// The table: a row for each operation, and for each member of a family.
            pub fn table() -> Vec<$crate::table::Row<$class>> {
                let mut rows = Vec::new();
                $($crate::table::operations!(@each rows { $($k: $kty)? }
                    $crate::table::operations!(@row $place $class, $gives, { $($name)? } { $($k: $kty)? } { $($meaning)? }
                        $operands, { $([$($attribute: $aty $(= $default)?),*])? } $effects));)*
                $(rows.extend($part_op::table());)*
                rows
            }

            /// The printed attributes; `None` if the operation has a syntax of its own.
            pub fn attributes(&self) -> Option<Vec<(&'static str, String)>> {
                match self {
                    $($op::$variant $(( $($arg),* ))? $({ $($field),* })? => {
                        $($(let _ = $arg;)*)?
                        $($(let _ = $field;)*)?
                        $crate::table::operations!(@write { $([$($attribute: $aty $(= $default)?),*])? })
                    })*
                    $($op::$part(op) => op.attributes(),)*
                }
            }

            /// The dimensions in the attributes that its row lists.
            pub fn listed_dims(&self) -> Vec<&$crate::shape::Dim> {
                match self {
                    $($op::$variant $(( $($arg),* ))? $({ $($field),* })? => {
                        $($(let _ = $arg;)*)?
                        $($(let _ = $field;)*)?
                        $crate::table::operations!(@dims { $([$($attribute: $aty $(= $default)?),*])? })
                    })*
                    $($op::$part(op) => op.listed_dims(),)*
                }
            }

            /// Parses the attributes of the operation with this name; `None` if there is no such
            /// operation, or it has a syntax of its own.
            ///
            /// # Errors
            /// An attribute that is missing or of another kind.
            pub fn read(
                name: &str,
                from: &mut $crate::table::Attributes<'_>,
            ) -> Result<Option<$op>, $crate::table::CodedError> {
                let _ = &from;
                $($crate::table::operations!(@read name from { $($own)? } { $($name)? } { $($k: $kty)? }
                    { $([$($attribute: $aty $(= $default)?),*])? }
                    $op::$variant $(( $($arg),* ))? $({ $($field),* })?);)*
                $(if let Some(op) = $part_op::read(name, from)? {
                    return Ok(Some($op::$part(op)));
                })*
                Ok(None)
            }

            /// Infers the type of its result from the operand types and the declared type, by the
            /// rule of its row.
            pub(crate) fn rule(&self, given: $crate::table::OperandTypes<'_, $ty>) -> Result<Option<$ty>, String> {
                self.info().count(given.types.len())?;
                match self {
                    $($op::$variant $(( $($arg),* ))? $({ $($field),* })? => {
                        $rule(given $($(, $arg)*)? $($(, $field)*)?)
                    })*
                    $($op::$part(op) => op.rule(given),)*
                }
            }
        }
    };

    (@row $place:ident $class:ty, $gives:ident, { $($name:literal)? } { $($k:ident: $kty:ty)? } { $($meaning:literal)? }
        $operands:expr, { $([$($attribute:ident: $aty:ty $(= $default:expr)?),*])? } $effects:expr) => {
        $crate::table::Row {
            name: $($name)? $(<$kty as $crate::table::Family>::operation(*$k))?,
            operands: &$operands,
            attributes: $crate::table::operations!(@list { $([$($attribute: $aty $(= $default)?),*])? }),
            class: <$class>::$place,
            effects: $effects,
            gives: $crate::table::Gives::$gives,
            meaning: $($meaning)? $(<$kty as $crate::table::Family>::meaning(*$k))?,
        }
    };

    (@list {}) => { None };
    (@list { [$($attribute:ident: $aty:ty $(= $default:expr)?),*] }) => {
        Some(const { &[$($crate::table::AttributeRow {
            name: stringify!($attribute),
            kind: <$aty as $crate::table::Attribute>::KIND,
            optional: $crate::table::operations!(@optional $($default)?),
        }),*] })
    };
    (@optional) => { false };
    (@optional $default:expr) => { true };

    (@each $rows:ident {} $row:expr) => { $rows.push($row) };
    (@each $rows:ident { $k:ident: $kty:ty } $row:expr) => {
        for $k in <$kty as $crate::table::Family>::MEMBERS {
            $rows.push($row);
        }
    };

    (@write {}) => { None };
    (@write { [] }) => { Some(Vec::new()) };
    (@write { [$($attribute:ident: $aty:ty $(= $default:expr)?),+] }) => {
        Some([$($crate::table::operations!(@written $attribute $aty, $($default)?)),+].into_iter().flatten().collect())
    };
    (@written $attribute:ident $aty:ty,) => {
        Some((stringify!($attribute), <$aty as $crate::table::Attribute>::text($attribute)))
    };
    (@written $attribute:ident $aty:ty, $default:expr) => {
        (*$attribute != $default).then(|| (stringify!($attribute), <$aty as $crate::table::Attribute>::text($attribute)))
    };

    (@dims {}) => { Vec::new() };
    (@dims { [] }) => { Vec::new() };
    (@dims { [$($attribute:ident: $aty:ty $(= $default:expr)?),+] }) => {{
        let mut dims: Vec<&$crate::shape::Dim> = Vec::new();
        $(dims.extend(<$aty as $crate::table::Attribute>::dims($attribute));)+
        dims
    }};

    (@read $n:ident $from:ident { $own:ident } $($row:tt)*) => {};
    (@read $n:ident $from:ident {} { $name:literal } {} { [$($attribute:ident: $aty:ty $(= $default:expr)?),*] } $($make:tt)*) => {
        if $n == $name {
            $(let $attribute = $crate::table::operations!(@take $from $attribute $aty, $($default)?);)*
            return Ok(Some($($make)*));
        }
    };
    (@read $n:ident $from:ident {} {} { $k:ident: $kty:ty } { [$($attribute:ident: $aty:ty $(= $default:expr)?),*] } $($make:tt)*) => {
        if let Some($k) = <$kty as $crate::table::Family>::named($n) {
            $(let $attribute = $crate::table::operations!(@take $from $attribute $aty, $($default)?);)*
            return Ok(Some($($make)*));
        }
    };
    (@take $from:ident $attribute:ident $aty:ty,) => { $from.take::<$aty>(stringify!($attribute), None)? };
    (@take $from:ident $attribute:ident $aty:ty, $default:expr) => {
        $from.take::<$aty>(stringify!($attribute), Some($default))?
    };
}

pub(crate) use operations;
