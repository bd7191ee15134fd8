//! Machine IR (MIR): blocks with parameters, instructions over registers, terminators.
//!
//! In: calls of [`Builder`]'s methods (`build`), from instruction selection. Out: a [`Function`]
//! over virtual registers; `allocate` assigns physical registers, `encode` produces bytes. `print`
//! writes either as text, `verify` checks the rules below. Must not know: tiles.
//!
//! Virtual registers are SSA: each is defined once, by an instruction or as a parameter of a block,
//! and the definition dominates the uses. A jump passes arguments to the parameters of its target.
//! Registers are of three classes: vectors of the whole width, masks (at AVX-512 only) and general
//! registers of 64 bits.
//!
//! An instruction writes at most one register. Where the machine instruction overwrites one of its
//! operands (`FMA`, additions of general registers), that operand is *tied* to the result: both get
//! one register. Constants are set once, at the beginning; the allocator may leave them in memory
//! and fold them into their uses.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Reg(pub(super) u32);

impl Reg {
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
    pub(super) class: Class,
    /// Its number in the encoding.
    pub(super) number: u8,
}

/// Register classes.
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
    pub(super) const ALL: [Class; 3] = [Class::Vector, Class::Mask, Class::General];

    /// Name in the text form.
    pub(super) fn name(self) -> &'static str {
        match self {
            Class::Vector => "vector",
            Class::Mask => "mask",
            Class::General => "general",
        }
    }

    /// The instruction that copies a register.
    pub(super) fn copy(self) -> Op {
        match self {
            Class::Vector => Op::Copy,
            Class::Mask => Op::MaskCopy,
            Class::General => Op::Mov,
        }
    }
}

/// A block, by its index in the layout.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Block(u32);
entity_impl!(Block, "^bb");

/// Base of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base<R = Reg> {
    Reg(R),
    /// The leaf's argument array.
    Words,
    /// The frame on the stack.
    Frame,
    /// A constant in the pool; with AVX-512 one element, which the instruction broadcasts.
    Pool(u32),
}

/// A memory operand: base + index * scale + offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mem<R = Reg> {
    pub(super) base: Base<R>,
    /// An index, and its scale.
    pub(super) index: Option<(R, u8)>,
    /// In bytes.
    pub(super) offset: i32,
}

impl<R: Copy> Mem<R> {
    /// An address in a register.
    pub(super) fn at(base: R) -> Mem<R> {
        Mem { base: Base::Reg(base), index: None, offset: 0 }
    }

    /// Argument `n` of the leaf.
    pub(super) fn word(n: usize) -> Mem<R> {
        Mem { base: Base::Words, index: None, offset: i32::try_from(8 * n).unwrap_or(i32::MAX) }
    }

    /// `offset` bytes from the start of the frame.
    pub(super) fn frame(offset: i32) -> Mem<R> {
        Mem { base: Base::Frame, index: None, offset }
    }

    pub(super) fn pool(n: u32) -> Mem<R> {
        Mem { base: Base::Pool(n), index: None, offset: 0 }
    }

    /// Adds `offset` bytes.
    pub(super) fn plus(self, offset: i32) -> Mem<R> {
        Mem { offset: self.offset.wrapping_add(offset), ..self }
    }

    /// Adds a scaled index register.
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

/// An operand that is read (or, for a store, the memory that is written).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand<R = Reg> {
    Reg(R),
    Mem(Mem<R>),
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

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Inst<R = Reg> {
    pub(super) op: Op,
    pub(super) dst: Option<R>,
    /// The operand that shares the result's register.
    pub(super) tied: Option<R>,
    /// The other operands, in the order of the encoding.
    pub(super) srcs: Vec<Operand<R>>,
    /// The mask of active lanes (AVX-512), and whether inactive lanes become zero.
    pub(super) mask: Option<(R, bool)>,
    /// The operation of the tile IR that it comes from.
    pub(super) origin: Option<tile::Inst>,
}

impl<R: Copy> Inst<R> {
    pub(super) fn reads(&self) -> impl Iterator<Item = R> {
        self.srcs.iter().flat_map(Operand::regs).chain(self.mask.map(|m| m.0)).chain(self.tied)
    }

    /// The same, mutable.
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

/// The condition of a branch, after a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Signed less.
    Less,
    /// Signed greater or equal.
    GreaterEqual,
}

impl When {
    /// The negated condition.
    pub(super) fn opposite(self) -> When {
        match self {
            When::Less => When::GreaterEqual,
            When::GreaterEqual => When::Less,
        }
    }
}

/// Target of a jump, with arguments.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target<R = Reg> {
    pub(super) block: Block,
    /// One argument for each parameter.
    pub(super) args: Vec<R>,
}

/// Terminator of a block.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Terminator<R = Reg> {
    Jump(Target<R>),
    /// A conditional branch.
    Branch {
        /// Compares two operands: [`Op::Compare`] or [`Op::CompareImm`].
        compare: Inst<R>,
        /// The condition on the first and the second operand.
        when: When,
        /// Targets if the condition holds, and if not.
        targets: [Target<R>; 2],
    },
    Return,
}

impl<R> Terminator<R> {
    /// Possible successors.
    pub(super) fn targets(&self) -> &[Target<R>] {
        match self {
            Terminator::Jump(t) => std::slice::from_ref(t),
            Terminator::Branch { targets, .. } => targets,
            Terminator::Return => &[],
        }
    }

    /// The same, mutable.
    pub(super) fn targets_mut(&mut self) -> &mut [Target<R>] {
        match self {
            Terminator::Jump(t) => std::slice::from_mut(t),
            Terminator::Branch { targets, .. } => targets,
            Terminator::Return => &mut [],
        }
    }

    /// The comparison of a branch.
    pub(super) fn compare(&self) -> Option<&Inst<R>> {
        match self {
            Terminator::Branch { compare, .. } => Some(compare),
            Terminator::Jump(_) | Terminator::Return => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct BlockData<R = Reg> {
    /// Its parameters.
    pub(super) params: Vec<R>,
    pub(super) insts: Vec<Inst<R>>,
    pub(super) end: Terminator<R>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Constant {
    /// A 32-bit pattern, the same in every lane.
    Same(u32),
    /// 0, 1, 2, ..
    Count,
}

/// A leaf function: its only argument is the argument array, and it has no result.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Function<R = Reg> {
    /// The vector width.
    pub(super) width: Width,
    /// Its blocks, in the order of the code; the first is the entry.
    pub(super) blocks: Vec<BlockData<R>>,
    /// The class of each virtual register.
    pub(super) classes: Vec<Class>,
    /// The constant pool, by index.
    pub(super) pool: Vec<Constant>,
    /// Bytes of the frame, a multiple of 64.
    pub(super) frame: i32,
}

impl<R> Function<R> {
    /// Is AVX-512 used?
    pub(super) fn wide(&self) -> bool {
        self.width == Width::V512
    }

    /// The blocks with their names, in order.
    pub(super) fn named_blocks(&self) -> impl Iterator<Item = (Block, &BlockData<R>)> {
        (0u32..).map(Block).zip(&self.blocks)
    }

    /// Reserves space in the frame, rounded up to 64 bytes; returns its offset.
    pub(super) fn room(&mut self, bytes: i32) -> i32 {
        let at = self.frame;
        self.frame += (bytes + 63) / 64 * 64;
        at
    }
}

impl Function {
    pub(super) fn class(&self, r: Reg) -> Class {
        self.classes.get(r.index()).copied().unwrap_or(Class::General)
    }
}
