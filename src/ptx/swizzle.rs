//! Swizzles: how 16-byte parts of rows change places in shared memory, so that columns of a tile lie in different banks.
//!
//! In: an address. Out: where a byte goes. What this must not know: who copies, what a tile is.

/// A swizzle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swizzle {
    /// None.
    None,
    /// Among the parts of 32 bytes.
    Bytes32,
    /// Among the parts of 64 bytes.
    Bytes64,
    /// Among the parts of 128 bytes.
    Bytes128,
}

impl Swizzle {
    /// All of them; the place is the number that the driver gives it (`CUtensorMapSwizzle`).
    pub const ALL: [Swizzle; 4] = [Swizzle::None, Swizzle::Bytes32, Swizzle::Bytes64, Swizzle::Bytes128];

    /// The number that the driver gives it (`CUtensorMapSwizzle`).
    pub const fn code(self) -> u8 {
        match self {
            Swizzle::None => 0,
            Swizzle::Bytes32 => 1,
            Swizzle::Bytes64 => 2,
            Swizzle::Bytes128 => 3,
        }
    }

    /// Where a byte goes: address bits from 4 on are combined with those from 7 on.
    pub fn apply(self, address: u64) -> u64 {
        let mask = (1 << self.code()) - 1;
        address ^ (address >> 7 & mask) << 4
    }

    /// Bytes that a row of a box has at most; 0 for no limit.
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
            // Eight rows of a pattern change places among 2 to the power of its number.
            let places: Vec<u64> = (0..8).map(|row| swizzle.apply(row * 128) % 128 / 16).collect();
            assert_eq!(places.iter().max(), Some(&((1 << n) - 1)), "{places:?}");
        }
    }
}
