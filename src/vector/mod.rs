//! Vector IR: operations on vectors of any number of lanes, for all back ends and all widths.
//!
//! It has two parts. [`routine`] has control flow, memory and reductions: loop nests over tiles are
//! lowered to it. The rest defines elementary functions, which routines refer to by operation
//! (`exp`).
//!
//! In: the sources of elementary functions (`functions/*.vec`). Out: straight-line SSA over lanes,
//! which the Cranelift back end translates for 4 lanes, our own for 8 and 16, and LLVM for any
//! number. Must not know: machine instructions, tiles, tensors.
//!
//! A [`Function`] is a list of operations on vectors of N lanes, any N: each operation does the
//! same to every lane. A lane has 32 bits, of type `f32`, `i32` or `mask` (a boolean, in any
//! representation). The operations are the table in [`op`]; [`text`] is their text form,
//! [`verify()`] checks types and names, [`interp`] computes one lane exactly as compiled code does.
//!
//! ```text
//! func @sigmoid(%x: f32) -> f32 error(4, ulp) {
//!   %n = neg_abs %x                             : f32
//!   %e = call @exp(%n)                          : f32
//!   ..
//!   return %y
//! }
//! ```
//!
//! A function may have several bodies for different [`Features`]; the first one whose `requires`
//! holds is used. [`expand`] produces straight-line code for back ends: calls are inlined,
//! polynomials become Horner's scheme, and `fma` a product and a sum if the machine lacks it. So
//! differences between machines are visible in the source of a function, not hidden in back ends.

mod bound;
pub mod expand;
pub mod interp;
pub mod library;
pub mod op;
pub mod routine;
mod rules;
pub mod text;
mod verify;

use std::fmt;

pub use bound::Bound;
pub use op::Op;
pub use verify::verify;

/// The type of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// An IEEE 754 single.
    F32,
    /// A 32-bit integer, two's complement where signedness matters.
    I32,
    /// A boolean, in any representation.
    Mask,
}

impl Type {
    /// All types, in the order of declaration.
    pub const ALL: [Type; 3] = [Type::F32, Type::I32, Type::Mask];

    /// Name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Type::F32 => "f32",
            Type::I32 => "i32",
            Type::Mask => "mask",
        }
    }

    /// The type of this name.
    pub fn from_name(name: &str) -> Option<Type> {
        Type::ALL.into_iter().find(|t| t.name() == name)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Optional instructions of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Features {
    /// `fma` and `fnma`, rounded once.
    pub fma: bool,
    /// `floor`, and `nearest`, which rounds to integers.
    pub round: bool,
    /// `scale` and `fraction` (AVX-512).
    pub scale: bool,
}

impl Features {
    /// No optional instructions.
    pub const PLAIN: Features = Features { fma: false, round: false, scale: false };
    /// AVX2 with FMA: everything but `scale` and `fraction`.
    pub const AVX2: Features = Features { fma: true, round: true, scale: false };
    /// AVX-512: everything.
    pub const AVX512: Features = Features { fma: true, round: true, scale: true };

    /// Number of possible feature sets.
    pub const SETS: usize = 8;

    /// Index of this set, below [`Self::SETS`].
    pub fn number(self) -> usize {
        self.named().iter().rev().fold(0, |n, (_, is)| 2 * n + usize::from(*is))
    }

    /// Each feature with its name in the text form.
    fn named(self) -> [(&'static str, bool); 3] {
        [("fma", self.fma), ("round", self.round), ("scale", self.scale)]
    }

    /// Does the set include all of `others`?
    pub fn include(self, others: Features) -> bool {
        self.named().iter().zip(others.named()).all(|((_, own), (_, other))| *own || !other)
    }

    /// Names of the features in the set.
    pub fn names(self) -> Vec<&'static str> {
        self.named().into_iter().filter_map(|(name, is)| is.then_some(name)).collect()
    }

    /// Adds a feature by name; false if the name is unknown.
    pub fn add(&mut self, name: &str) -> bool {
        match name {
            "fma" => self.fma = true,
            "round" => self.round = true,
            "scale" => self.scale = true,
            _ => return false,
        }
        true
    }
}

/// A value: a parameter, or the result of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(u32);

impl Value {
    /// From its index: parameters first, then the results of instructions.
    pub fn from_index(index: usize) -> Value {
        Value(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// Index: parameters first, then the results of instructions.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An operation on every lane.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// The operation, with its attributes.
    pub op: Op,
    /// Operands, in the order of the table.
    pub operands: Vec<Value>,
    /// The type of its result.
    pub ty: Type,
    /// The result's name in the text form.
    pub name: String,
}

/// An elementary function, or a helper of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name, `exp`; helper functions are named `exp.bounded`.
    pub name: String,
    /// Names and types of its parameters.
    pub params: Vec<(String, Type)>,
    /// The type of its result.
    pub result_type: Type,
    /// Maximum error of the result; helpers have none.
    pub bound: Option<Bound>,
    /// Features that this body requires.
    pub requires: Features,
    /// Its instructions; each may use parameters and earlier results.
    pub insts: Vec<Inst>,
    /// The returned value.
    pub result: Value,
}

impl Function {
    /// The type of a value, if it exists.
    pub fn ty(&self, v: Value) -> Option<Type> {
        match v.index().checked_sub(self.params.len()) {
            None => self.params.get(v.index()).map(|(_, ty)| *ty),
            Some(i) => self.insts.get(i).map(|inst| inst.ty),
        }
    }

    /// The name of a value.
    pub fn name_of(&self, v: Value) -> &str {
        match v.index().checked_sub(self.params.len()) {
            None => self.params.get(v.index()).map_or("?", |(name, _)| name),
            Some(i) => self.insts.get(i).map_or("?", |inst| &inst.name),
        }
    }

    /// Appends an instruction; returns its result.
    pub fn push(&mut self, op: Op, operands: Vec<Value>, ty: Type, name: String) -> Value {
        self.insts.push(Inst { op, operands, ty, name });
        Value::from_index(self.params.len() + self.insts.len() - 1)
    }
}

#[cfg(test)]
pub(crate) mod tests;
