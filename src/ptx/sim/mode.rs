//! How a launch is executed: the order of effects, and who goes first.

/// When effects happen that hardware may delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// At once.
    Eager,
    /// As late as is legal.
    Latest,
}

/// How a launch is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mode {
    /// When effects happen that hardware may delay.
    pub order: Order,
    /// Which warps go first.
    pub seed: u64,
    /// How many instructions of warps it may take.
    pub limit: u64,
}

impl Mode {
    /// Effects at once.
    pub const EAGER: Mode = Mode { order: Order::Eager, seed: 0, limit: 1 << 36 };
    /// Effects as late as is legal.
    pub const LATEST: Mode = Mode { order: Order::Latest, seed: 0, limit: 1 << 36 };

    /// The same with another choice of who goes first.
    #[must_use]
    pub const fn seeded(self, seed: u64) -> Mode {
        Mode { seed, ..self }
    }
}
