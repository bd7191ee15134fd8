//! What is known of a product before its leaf is made: layouts, what the right operand is made of, the words of the call.
//!
//! In: nothing. Out: plain data that calls and leaves share. What this must not know: instructions.

/// What is known of the operands when the code is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct DotShape {
    /// Is `a` dense along the inner index? Else it is along its rows.
    pub(super) inner_dense: bool,
    /// Bytes from a row of `b` to the next.
    pub(super) b_pitch: i32,
    /// Bytes from a row of the accumulator to the next.
    pub(super) acc_pitch: i32,
    /// Vectors of columns.
    pub(super) vectors: i32,
    /// What `b` is made of.
    pub(super) right: Right,
    /// Are elements of `a` rounded in groups, where `b` is whole numbers and the steps are whole groups, and multiplied as
    /// bytes?
    pub(super) groups: bool,
    /// Do all sums start with one number? Else they start with 0, and what lies in the accumulator's place is added.
    pub(super) filled: bool,
    /// Does `b` come from memory, where what follows it is wanted next? It is then fetched into the second-level cache
    /// meanwhile, a little in each turn of the inner loop, so that the first register tile does not wait for it.
    pub(super) far: bool,
    /// Lines of a row of the result that are fetched for writing while the sums are made; none if it is not known where
    /// the result goes.
    pub(super) result: i32,
    /// Do the sums go to the place of the result, not back to the accumulator's? AVX-512 alone; two vectors at most.
    pub(super) direct: bool,
}

/// Elements of a right operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Right {
    /// Of 32 bits.
    F32,
    /// The upper half of an `f32`.
    Bf16,
    /// Two `bf16`, of two steps: a step of this code is a pair of both operands (`vdpbf16ps`).
    Pairs,
    /// `i8`, times a scale.
    Bytes,
    /// Numbers from -8 to 7 in half a byte, times a scale: a byte has the elements of two steps, the lower half that of
    /// the first. A row of `b` is then two steps.
    Nibbles,
}

impl Right {
    pub(super) fn scaled(self) -> bool {
        matches!(self, Right::Bytes | Right::Nibbles)
    }

    /// What the elements of a row of `a` are rounded by, where `b` is whole numbers (`dot_whole`): the bits of the least
    /// magnitude, twice, for magnitudes are compared as twice their bits, which have no sign; of the largest number; and of
    /// its inverse, by the sixteen that half bytes are larger.
    pub(super) fn rounding(self) -> [u32; 3] {
        let largest = 127.0_f32;
        let part = 1.0 / if self == Right::Nibbles { largest * 16.0 } else { largest };
        [1e-30_f32.to_bits() << 1, largest.to_bits(), part.to_bits()]
    }
}

/// The words, by number.
pub(super) mod word {
    pub(in super::super) const A: usize = 0;
    pub(in super::super) const STRIDE: usize = 1;
    pub(in super::super) const B: usize = 2;
    pub(in super::super) const ACC: usize = 3;
    pub(in super::super) const ROWS: usize = 4;
    pub(in super::super) const INNER: usize = 5;
    pub(in super::super) const SCALES: usize = 6;
    pub(in super::super) const FIRST: usize = 7;
    pub(in super::super) const WAY: usize = 8;
    pub(in super::super) const RESULT: usize = 9;
    pub(in super::super) const RESULT_PITCH: usize = 10;
    pub(in super::super) const MASKS: usize = 11;
}
