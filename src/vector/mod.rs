//! Vector IR: operations on vectors of any number of lanes, for all back ends and all widths.
//!
//! It has two parts. [`routine`] has control flow, memory and reductions: what a loop nest over tiles becomes. The rest is about
//! elementary functions, which routines name by their operation (`exp`).
//!
//! In: the texts of elementary functions (`functions/*.vec`). Out: straight-line SSA over lanes, which Cranelift's back end
//! prints for 4 lanes, our own for 8 and 16, and LLVM for any number. What this must not know: instructions of a machine,
//! tiles, tensors.
//!
//! A [`Function`] is a list of operations on vectors of N lanes, any N: each operation does the same to every lane. A lane
//! has 32 bits, of type `f32`, `i32` or `mask` (a truth value, however a machine stores it). The operations are the table
//! in [`op`]; [`text`] is their text form, [`verify()`] checks types and names, [`interp`] computes one lane exactly as
//! compiled code does.
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
//! A function may have several bodies, each for machines that have certain [`Features`]; the first whose `requires` holds is
//! taken. [`expand`] makes the straight line that a back end prints: calls are inlined, polynomials become Horner's
//! scheme, and `fma` a product and a sum where the machine has no such instruction. So what differs between machines is
//! said in the text of a function, where a reader sees it, not in a back end.

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

/// What a lane holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// An IEEE 754 single.
    F32,
    /// 32 bits, a signed integer in two's complement where it matters.
    I32,
    /// A truth value.
    Mask,
}

impl Type {
    /// All of them.
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

/// What instructions a machine has beyond the plain ones.
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
    /// None: what every machine has.
    pub const PLAIN: Features = Features { fma: false, round: false, scale: false };
    /// AVX2 with FMA.
    pub const AVX2: Features = Features { fma: true, round: true, scale: false };
    /// AVX-512.
    pub const AVX512: Features = Features { fma: true, round: true, scale: true };

    /// How many sets of features there are.
    pub const SETS: usize = 8;

    /// The number of this set among all of them.
    pub fn number(self) -> usize {
        self.named().iter().rev().fold(0, |n, (_, is)| 2 * n + usize::from(*is))
    }

    /// Each feature with its name in the text form.
    fn named(self) -> [(&'static str, bool); 3] {
        [("fma", self.fma), ("round", self.round), ("scale", self.scale)]
    }

    /// Are all of these there?
    pub fn include(self, others: Features) -> bool {
        self.named().iter().zip(others.named()).all(|((_, own), (_, other))| *own || !other)
    }

    /// Names of those that are there.
    pub fn names(self) -> Vec<&'static str> {
        self.named().into_iter().filter_map(|(name, is)| is.then_some(name)).collect()
    }

    /// Adds the feature of this name; is there one?
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
    /// By its number: parameters first, then the results of instructions.
    pub fn from_index(index: usize) -> Value {
        Value(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// Its number.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An operation on every lane.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// What is done, with its attributes.
    pub op: Op,
    /// Its operands.
    pub operands: Vec<Value>,
    /// The type of its result.
    pub ty: Type,
    /// The result's name in the text form.
    pub name: String,
}

/// An elementary function, or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name, `exp`; a part of a function is named after it, `exp.bounded`.
    pub name: String,
    /// Names and types of its parameters.
    pub params: Vec<(String, Type)>,
    /// The type of its result.
    pub result_type: Type,
    /// What its result may be off by; parts of functions say nothing.
    pub bound: Option<Bound>,
    /// What this body requires of a machine.
    pub requires: Features,
    /// Its instructions; each may use parameters and the results of those before it.
    pub insts: Vec<Inst>,
    /// What it returns.
    pub result: Value,
}

impl Function {
    /// The type of a value, if there is such a value.
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

    /// Appends an instruction; its result.
    pub fn push(&mut self, op: Op, operands: Vec<Value>, ty: Type, name: String) -> Value {
        self.insts.push(Inst { op, operands, ty, name });
        Value::from_index(self.params.len() + self.insts.len() - 1)
    }
}

#[cfg(test)]
pub(crate) mod tests;
