//! Code over registers: blocks with parameters, each with instructions and a terminator.
//!
//! In: calls of [`Builder`]'s methods (`build`), from instruction selection. Out: a [`Function`] over virtual registers,
//! of which `allocate` makes one over physical registers, and `encode` bytes. `print` writes either as text, `verify` checks the
//! rules below. What this must not know: tiles.
//!
//! Virtual registers are SSA: each is defined once, by an instruction or as a parameter of a block, and the definition dominates
//! the uses. A jump passes arguments to the parameters of its target. Registers are of three
//! classes: vectors of the whole width, masks (at AVX-512 only) and general registers of 64 bits.
//!
//! An instruction writes at most one register. Where the machine's instruction also reads what it writes (`FMA`, additions
//! of general registers), the operand that it takes from there is *tied* to the result: both get one register. Constants
//! are set once, at the beginning; the allocator may leave them in memory and fold them into their uses.
//!
//! ```text
//! ^bb1(%4: general, %5: vector):
//!   %6 = load [%0 + %4*4]
//!   %7 = fma tied(%6), %1, %5
//!   %8 = plus_imm tied(%4), 16
//!   branch %8 < 128, ^bb1(%8, %7), ^bb2
//! ```

mod build;
mod op;
mod print;
#[cfg(test)]
mod read;
mod verify;

use std::fmt;

use cranelift_entity::entity_impl;

pub(super) use build::Builder;
pub(super) use op::{Op, View};
pub(super) use print::{Note, print, print_allocated};
#[cfg(test)]
pub(super) use read::parse;
pub(super) use verify::verify;

use crate::tile::{self, Width};

/// A virtual register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Reg(pub(super) u32);

impl Reg {
    /// Its number.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// A register of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Physical {
    /// Its class.
    pub(super) class: Class,
    /// Its number in the encoding.
    pub(super) number: u8,
}

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Class {
    /// A vector of the whole width.
    Vector,
    /// A bit for each lane.
    Mask,
    /// 64 bits.
    General,
}

impl Class {
    /// Every class.
    pub(super) const ALL: [Class; 3] = [Class::Vector, Class::Mask, Class::General];

    /// Name in the text form.
    pub(super) fn name(self) -> &'static str {
        match self {
            Class::Vector => "vector",
            Class::Mask => "mask",
            Class::General => "general",
        }
    }

    /// The copy from register to register.
    pub(super) fn copy(self) -> Op {
        match self {
            Class::Vector => Op::Copy,
            Class::Mask => Op::MaskCopy,
            Class::General => Op::Mov,
        }
    }
}

/// A block, by its place in the layout.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Block(u32);
entity_impl!(Block, "^bb");

/// What an address starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base<R = Reg> {
    /// A general register.
    Reg(R),
    /// The words that the leaf was called with.
    Words,
    /// The frame on the stack.
    Frame,
    /// A constant; at AVX-512 one element, which the instruction spreads.
    Pool(u32),
}

/// A place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mem<R = Reg> {
    /// From where.
    pub(super) base: Base<R>,
    /// An index, and its scale.
    pub(super) index: Option<(R, u8)>,
    /// Bytes further.
    pub(super) offset: i32,
}

impl<R: Copy> Mem<R> {
    /// An address in a register.
    pub(super) fn at(base: R) -> Mem<R> {
        Mem { base: Base::Reg(base), index: None, offset: 0 }
    }

    /// A word of the call.
    pub(super) fn word(n: usize) -> Mem<R> {
        Mem { base: Base::Words, index: None, offset: i32::try_from(8 * n).unwrap_or(i32::MAX) }
    }

    /// So many bytes from the start of the frame.
    pub(super) fn frame(offset: i32) -> Mem<R> {
        Mem { base: Base::Frame, index: None, offset }
    }

    /// A constant.
    pub(super) fn pool(n: u32) -> Mem<R> {
        Mem { base: Base::Pool(n), index: None, offset: 0 }
    }

    /// So many bytes further.
    pub(super) fn plus(self, offset: i32) -> Mem<R> {
        Mem { offset: self.offset.wrapping_add(offset), ..self }
    }

    /// An index register further.
    pub(super) fn indexed(self, index: R, scale: u8) -> Mem<R> {
        Mem { index: Some((index, scale)), ..self }
    }

    /// The registers that it reads.
    pub(super) fn regs(&self) -> impl Iterator<Item = R> + use<R> {
        let base = match self.base {
            Base::Reg(r) => Some(r),
            Base::Words | Base::Frame | Base::Pool(_) => None,
        };
        base.into_iter().chain(self.index.map(|(r, _)| r))
    }
}

/// An operand that is read (or, for a store, the place that is written).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand<R = Reg> {
    /// A register.
    Reg(R),
    /// Memory.
    Mem(Mem<R>),
    /// A number.
    Imm(i32),
}

impl<R: Copy> Operand<R> {
    /// The registers that it reads.
    pub(super) fn regs(&self) -> impl Iterator<Item = R> + use<R> {
        let (own, memory) = match self {
            Operand::Reg(r) => (Some(*r), None),
            Operand::Mem(m) => (None, Some(m.regs())),
            Operand::Imm(_) => (None, None),
        };
        own.into_iter().chain(memory.into_iter().flatten())
    }
}

impl From<Reg> for Operand {
    fn from(r: Reg) -> Operand {
        Operand::Reg(r)
    }
}

impl From<Mem> for Operand {
    fn from(m: Mem) -> Operand {
        Operand::Mem(m)
    }
}

/// An instruction.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Inst<R = Reg> {
    /// Which.
    pub(super) op: Op,
    /// What it writes.
    pub(super) dst: Option<R>,
    /// The operand that is in the register of the result before.
    pub(super) tied: Option<R>,
    /// The other operands, in the order of the encoding.
    pub(super) srcs: Vec<Operand<R>>,
    /// The lanes that it works on (AVX-512), and whether the others become zero.
    pub(super) mask: Option<(R, bool)>,
    /// The operation of the tile IR that it is made from.
    pub(super) origin: Option<tile::Inst>,
}

impl<R: Copy> Inst<R> {
    /// What it reads.
    pub(super) fn reads(&self) -> impl Iterator<Item = R> {
        self.srcs.iter().flat_map(Operand::regs).chain(self.mask.map(|m| m.0)).chain(self.tied)
    }

    /// The same, to be changed.
    pub(super) fn reads_mut(&mut self) -> impl Iterator<Item = &mut R> {
        let srcs = self.srcs.iter_mut().flat_map(|s| {
            let (own, base, index) = match s {
                Operand::Reg(r) => (Some(r), None, None),
                Operand::Mem(Mem { base: Base::Reg(r), index, .. }) => (None, Some(r), index.as_mut()),
                Operand::Mem(Mem { index, .. }) => (None, None, index.as_mut()),
                Operand::Imm(_) => (None, None, None),
            };
            own.into_iter().chain(base).chain(index.map(|(r, _)| r))
        });
        srcs.chain(self.mask.as_mut().map(|m| &mut m.0)).chain(&mut self.tied)
    }
}

/// When a branch is taken, after a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Signed less.
    Less,
    /// Signed greater or equal.
    GreaterEqual,
}

impl When {
    /// When the other way is taken.
    pub(super) fn opposite(self) -> When {
        match self {
            When::Less => When::GreaterEqual,
            When::GreaterEqual => When::Less,
        }
    }
}

/// Where a jump goes, and what the block's parameters are then.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target<R = Reg> {
    /// The block.
    pub(super) block: Block,
    /// A value for each of its parameters.
    pub(super) args: Vec<R>,
}

/// How a block ends.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Terminator<R = Reg> {
    /// Goes on elsewhere.
    Jump(Target<R>),
    /// Goes on at one of two blocks.
    Branch {
        /// Compares two operands: [`Op::Compare`] or [`Op::CompareImm`].
        compare: Inst<R>,
        /// What must hold of the first and the second.
        when: When,
        /// Where it goes if that holds, and if not.
        targets: [Target<R>; 2],
    },
    /// Leaves the function.
    Return,
}

impl<R> Terminator<R> {
    /// Where it may go.
    pub(super) fn targets(&self) -> &[Target<R>] {
        match self {
            Terminator::Jump(t) => std::slice::from_ref(t),
            Terminator::Branch { targets, .. } => targets,
            Terminator::Return => &[],
        }
    }

    /// The same, to be changed.
    pub(super) fn targets_mut(&mut self) -> &mut [Target<R>] {
        match self {
            Terminator::Jump(t) => std::slice::from_mut(t),
            Terminator::Branch { targets, .. } => targets,
            Terminator::Return => &mut [],
        }
    }

    /// The comparison that it makes.
    pub(super) fn compare(&self) -> Option<&Inst<R>> {
        match self {
            Terminator::Branch { compare, .. } => Some(compare),
            Terminator::Jump(_) | Terminator::Return => None,
        }
    }
}

/// A block.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BlockData<R = Reg> {
    /// What it is given.
    pub(super) params: Vec<R>,
    /// What it does.
    pub(super) insts: Vec<Inst<R>>,
    /// How it ends.
    pub(super) end: Terminator<R>,
}

/// A constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Constant {
    /// The same 32 bits in every lane.
    Same(u32),
    /// 0, 1, 2, ..
    Count,
}

/// A function: of no arguments but the words, and no results.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Function<R = Reg> {
    /// How wide its vectors are.
    pub(super) width: Width,
    /// Its blocks, in the order of the code; the first is the entry.
    pub(super) blocks: Vec<BlockData<R>>,
    /// The class of each virtual register.
    pub(super) classes: Vec<Class>,
    /// Constants, in order.
    pub(super) pool: Vec<Constant>,
    /// Bytes of the frame, a multiple of 64.
    pub(super) frame: i32,
}

impl<R> Function<R> {
    /// Is this AVX-512?
    pub(super) fn wide(&self) -> bool {
        self.width == Width::V512
    }

    /// The blocks with their names, in order.
    pub(super) fn named_blocks(&self) -> impl Iterator<Item = (Block, &BlockData<R>)> {
        (0u32..).map(Block).zip(&self.blocks)
    }

    /// Room in the frame, a multiple of 64 bytes.
    pub(super) fn room(&mut self, bytes: i32) -> i32 {
        let at = self.frame;
        self.frame += (bytes + 63) / 64 * 64;
        at
    }
}

impl Function {
    /// A register's class.
    pub(super) fn class(&self, r: Reg) -> Class {
        self.classes.get(r.index()).copied().unwrap_or(Class::General)
    }
}
