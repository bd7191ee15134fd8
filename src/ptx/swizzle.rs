//! Swizzles: permutations of the 16-byte chunks of rows in shared memory, which avoid bank
//! conflicts of column accesses.
//!
//! In: an unswizzled address. Out: the swizzled one. Must not know: copies, tiles.

/// A swizzle mode of `CUtensorMapSwizzle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swizzle {
    /// No permutation.
    None,
    /// Permutes chunks within 32 bytes.
    Bytes32,
    /// Permutes chunks within 64 bytes.
    Bytes64,
    /// Permutes chunks within 128 bytes.
    Bytes128,
}

impl Swizzle {
    /// All modes, indexed by the driver's value (`CUtensorMapSwizzle`).
    pub const ALL: [Swizzle; 4] = [Swizzle::None, Swizzle::Bytes32, Swizzle::Bytes64, Swizzle::Bytes128];

    /// The driver's value (`CUtensorMapSwizzle`).
    pub const fn code(self) -> u8 {
        match self {
            Swizzle::None => 0,
            Swizzle::Bytes32 => 1,
            Swizzle::Bytes64 => 2,
            Swizzle::Bytes128 => 3,
        }
    }

    /// The swizzled address: bits 4 and up are combined (`xor`) with bits 7 and up.
    pub fn apply(self, address: u64) -> u64 {
        let mask = (1 << self.code()) - 1;
        address ^ (address >> 7 & mask) << 4
    }

    /// Maximum length of a box row in bytes; 0 for no limit.
    pub fn span(self) -> u64 {
        match self {
            Swizzle::None => 0,
            Swizzle::Bytes32 => 32,
            Swizzle::Bytes64 => 64,
            Swizzle::Bytes128 => 128,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Swizzle;

    #[test]
    fn numbers_are_places() {
        for (n, swizzle) in Swizzle::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(swizzle.code()), n);
            // In eight rows, chunk 0 moves to 2^n positions, where n is the driver's value.
            let places: Vec<u64> = (0..8).map(|row| swizzle.apply(row * 128) % 128 / 16).collect();
            assert_eq!(places.iter().max(), Some(&((1 << n) - 1)), "{places:?}");
        }
    }
}
