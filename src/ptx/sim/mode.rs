//! Execution modes of a launch: order of effects, order of warps.

/// When effects happen that hardware may delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// As soon as they are issued.
    Eager,
    /// As late as is legal.
    Latest,
}

/// Execution mode of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mode {
    /// When effects happen that hardware may delay.
    pub order: Order,
    /// Determines the order of warps.
    pub seed: u64,
    /// Maximum number of warp instructions.
    pub limit: u64,
}

impl Mode {
    /// Effects as soon as they are issued.
    pub const EAGER: Mode = Mode { order: Order::Eager, seed: 0, limit: 1 << 36 };
    /// Effects as late as is legal.
    pub const LATEST: Mode = Mode { order: Order::Latest, seed: 0, limit: 1 << 36 };

    /// The same with another order of warps.
    #[must_use]
    pub const fn seeded(self, seed: u64) -> Mode {
        Mode { seed, ..self }
    }
}
