//! The CPUs that kernels are scheduled for: vector width and instruction set extensions.
//!
//! In: names (`--cpu`, `cpu(..)` of a text). Out: a [`Cpu`], and answers to what it has. What it must not know: how a
//! library asks the processor (`runtime`), and how an instruction is encoded.
//!
//! CPUs are only partially ordered: one has wider vectors, another has byte dot products. Only the width has an order here;
//! whether code for one CPU runs on another is [`Cpu::includes`].

use std::fmt;

/// Bits of a vector register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Width {
    /// 128, 16 registers: any 64-bit processor.
    V128,
    /// 256, 16 registers (AVX2).
    V256,
    /// 512, 32 registers (AVX-512).
    V512,
}

impl Width {
    /// Every width, the narrowest first.
    pub const ALL: [Width; 3] = [Width::V128, Width::V256, Width::V512];

    /// `f32` lanes of a vector register.
    pub fn lanes(self) -> u32 {
        match self {
            Width::V128 => 4,
            Width::V256 => 8,
            Width::V512 => 16,
        }
    }

    /// Vector registers.
    pub fn registers(self) -> u32 {
        match self {
            Width::V128 | Width::V256 => 16,
            Width::V512 => 32,
        }
    }

    /// Rows of a product's register tile. With [`Width::dot_cols`] the accumulators, a row of the right operand and
    /// an element of the left one fill the registers.
    pub fn dot_rows(self) -> u32 {
        match self {
            Width::V128 => 4,
            Width::V256 => 6,
            Width::V512 => 14,
        }
    }

    /// Columns of a product's register tile, which are those of a packed panel: two vectors.
    pub fn dot_cols(self) -> u32 {
        2 * self.lanes()
    }

    /// The name of the machine that has vectors of this width and no more.
    pub fn name(self) -> &'static str {
        match self {
            Width::V128 => "portable",
            Width::V256 => "avx2",
            Width::V512 => "avx512",
        }
    }

    fn bits(self) -> u32 {
        32 * self.lanes()
    }
}

/// Instructions that a CPU may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// Products and sums rounded once. All vectors wider than 128 bits have them.
    Fma,
    /// Sums of products of bytes (`vpdpbusd`), of 256 bits at least.
    Vnni,
    /// Permutations of bytes across a vector of 512 bits; sums of products of bytes use them there.
    Vbmi,
    /// Products of pairs of `bf16` (`vdpbf16ps`) and rounding to it in one instruction, of 512 bits.
    Bf16,
    /// Products of tiles of `bf16` (`tdpbf16ps`), beside vectors of 512 bits with [`Feature::Bf16`].
    Amx,
}

impl Feature {
    /// Every feature.
    pub const ALL: [Feature; 5] = [Feature::Fma, Feature::Vnni, Feature::Vbmi, Feature::Bf16, Feature::Amx];

    /// Name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Feature::Fma => "fma",
            Feature::Vnni => "vnni",
            Feature::Vbmi => "vbmi",
            Feature::Bf16 => "bf16",
            Feature::Amx => "amx",
        }
    }

    /// Can a CPU of vectors of this width, with these others, have it?
    fn fits(self, width: Width, others: Features) -> bool {
        match self {
            Feature::Fma | Feature::Vnni => width >= Width::V256,
            Feature::Vbmi | Feature::Bf16 => width == Width::V512,
            Feature::Amx => others.has(Feature::Bf16),
        }
    }
}

/// A set of features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(u8);

impl Features {
    /// The set of some.
    pub const fn of(list: &[Feature]) -> Features {
        let (mut bits, mut i) = (0, 0);
        while i < list.len() {
            bits |= 1 << list[i] as u8;
            i += 1;
        }
        Features(bits)
    }

    /// Is a feature among them?
    pub const fn has(self, feature: Feature) -> bool {
        self.0 & (1 << feature as u8) != 0
    }

    /// Are all of these among them?
    pub const fn include(self, others: Features) -> bool {
        self.0 & others.0 == others.0
    }

    /// Those of both.
    #[must_use]
    pub const fn and(self, others: Features) -> Features {
        Features(self.0 | others.0)
    }
}

/// A CPU that kernels are scheduled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cpu {
    width: Width,
    features: Features,
}

impl Cpu {
    /// 128-bit vectors: any 64-bit processor.
    pub const PORTABLE: Cpu = Cpu { width: Width::V128, features: Features(0) };
    /// 256-bit vectors with FMA.
    pub const AVX2: Cpu = Cpu { width: Width::V256, features: Features::of(&[Feature::Fma]) };
    /// The same, with sums of products of bytes (AVX-VNNI).
    pub const AVX2_VNNI: Cpu = Cpu { width: Width::V256, features: Features::of(&[Feature::Fma, Feature::Vnni]) };
    /// 512-bit vectors, with sums of products of bytes. (A library asks a processor for these only where it has such.)
    pub const AVX512: Cpu =
        Cpu { width: Width::V512, features: Features::of(&[Feature::Fma, Feature::Vnni, Feature::Vbmi]) };
    /// The same, with products of pairs of `bf16`.
    pub const AVX512_BF16: Cpu =
        Cpu { width: Width::V512, features: Cpu::AVX512.features.and(Features::of(&[Feature::Bf16])) };
    /// The same, with products of tiles of `bf16`.
    pub const AMX: Cpu =
        Cpu { width: Width::V512, features: Cpu::AVX512_BF16.features.and(Features::of(&[Feature::Amx])) };

    /// The machines that have names: what `--cpu` takes and a library may have code for. Those that need less come first: a
    /// library has the code of the later ones before that of the earlier ones.
    pub const NAMED: [Cpu; 6] = [Cpu::PORTABLE, Cpu::AVX2, Cpu::AVX2_VNNI, Cpu::AVX512, Cpu::AVX512_BF16, Cpu::AMX];

    /// A CPU with vectors of a width and some features; `None` where no code could be made for it: wider vectors come with
    /// FMA, and some features need others.
    pub fn new(width: Width, features: Features) -> Option<Cpu> {
        let fits = Feature::ALL.into_iter().all(|f| !features.has(f) || f.fits(width, features));
        (fits && (width == Width::V128 || features.has(Feature::Fma))).then_some(Cpu { width, features })
    }

    /// The CPU of a name: `avx512`, or its bits and features, `512+fma+bf16`.
    pub fn from_name(name: &str) -> Option<Cpu> {
        if let Some(cpu) = Cpu::NAMED.into_iter().find(|cpu| cpu.own_name() == Some(name)) {
            return Some(cpu);
        }
        let mut parts = name.split('+');
        let bits = parts.next()?;
        let width = Width::ALL.into_iter().find(|w| w.bits().to_string() == bits)?;
        let mut features = Features::default();
        for part in parts {
            let feature = Feature::ALL.into_iter().find(|f| f.name() == part)?;
            features = features.and(Features::of(&[feature]));
        }
        Cpu::new(width, features)
    }

    fn own_name(self) -> Option<&'static str> {
        Some(match self {
            Cpu::PORTABLE => "portable",
            Cpu::AVX2 => "avx2",
            Cpu::AVX2_VNNI => "avx2vnni",
            Cpu::AVX512 => "avx512",
            Cpu::AVX512_BF16 => "avx512bf16",
            Cpu::AMX => "amx",
            _ => return None,
        })
    }

    /// Its name, see [`Cpu::from_name`].
    pub fn name(self) -> String {
        self.to_string()
    }

    /// Has it a name of its own, or only a list of what it has?
    pub fn is_named(self) -> bool {
        self.own_name().is_some()
    }

    /// How wide its vectors are.
    pub const fn width(self) -> Width {
        self.width
    }

    /// Has it a feature?
    pub const fn has(self, feature: Feature) -> bool {
        self.features.has(feature)
    }

    /// Has it sums of products of bytes, and all that they need at its width?
    pub fn sums_bytes(self) -> bool {
        self.has(Feature::Vnni) && (self.width < Width::V512 || self.has(Feature::Vbmi))
    }

    /// Does code for the other run here?
    pub fn includes(self, other: Cpu) -> bool {
        self.width >= other.width && self.features.include(other.features)
    }

    /// The least CPU that code for both runs on.
    #[must_use]
    pub fn with(self, other: Cpu) -> Cpu {
        Cpu { width: self.width.max(other.width), features: self.features.and(other.features) }
    }

    /// The named CPU of the same vectors that has no instructions of its own for products of `bf16`, and of bytes only those
    /// that come with the width: what all other code is made for.
    pub fn vectors(self) -> Cpu {
        match self.width {
            Width::V128 => Cpu::PORTABLE,
            Width::V256 => Cpu::AVX2,
            Width::V512 => Cpu::AVX512,
        }
    }

    /// `f32` lanes of a vector register.
    pub fn lanes(self) -> u32 {
        self.width.lanes()
    }

    /// Vector registers.
    pub fn registers(self) -> u32 {
        self.width.registers()
    }

    /// Rows of a product's register tile, see [`Width::dot_rows`].
    pub fn dot_rows(self) -> u32 {
        self.width.dot_rows()
    }

    /// Columns of a product's register tile, see [`Width::dot_cols`].
    pub fn dot_cols(self) -> u32 {
        self.width.dot_cols()
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.own_name() {
            return f.write_str(name);
        }
        write!(f, "{}", self.width.bits())?;
        let own = Feature::ALL.into_iter().filter(|feature| self.has(*feature));
        own.map(Feature::name).try_for_each(|name| write!(f, "+{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Cpu, Feature, Features, Width};

    /// Every CPU that code could be made for.
    fn all() -> Vec<Cpu> {
        let sets = (0..1u8 << Feature::ALL.len()).map(Features);
        sets.flat_map(|set| Width::ALL.map(|width| Cpu::new(width, set))).flatten().collect()
    }

    #[test]
    fn names_read_back() {
        assert_eq!(all().len(), 15);
        for cpu in all() {
            assert_eq!(Cpu::from_name(&cpu.name()), Some(cpu), "{cpu}");
        }
        let named = Cpu::NAMED.map(Cpu::name);
        assert_eq!(named, ["portable", "avx2", "avx2vnni", "avx512", "avx512bf16", "amx"]);
        assert!(Cpu::NAMED.iter().all(|cpu| all().contains(cpu)));
        let bare = Cpu::from_name("512+fma").expect("it has a name");
        assert!(bare.has(Feature::Fma) && !bare.has(Feature::Vnni) && bare.width() == Width::V512);
        assert_eq!(Cpu::from_name("512+bf16+fma").map(Cpu::name).as_deref(), Some("512+fma+bf16"));
        // Wide vectors without FMA, narrow ones with it, tiles without pairs, and no name at all.
        for none in ["512", "256+vnni", "128+fma", "256+fma+bf16", "512+fma+amx", "avx", "", "512+"] {
            assert_eq!(Cpu::from_name(none), None, "{none}");
        }
    }

    #[test]
    fn a_cpu_includes_what_it_has_all_of() {
        for (a, b) in all().iter().flat_map(|a| all().into_iter().map(move |b| (*a, b))) {
            let features = Feature::ALL.into_iter().all(|f| a.has(f) || !b.has(f));
            assert_eq!(a.includes(b), features && a.lanes() >= b.lanes(), "{a} and {b}");
            assert!(a.with(b).includes(a) && a.with(b).includes(b), "{a} and {b}");
        }
        // Of these two neither runs the other's code.
        let (bytes, wide) = (Cpu::AVX2_VNNI, Cpu::from_name("512+fma").expect("it has a name"));
        assert!(!bytes.includes(wide) && !wide.includes(bytes));
        assert_eq!(bytes.with(wide).name(), "512+fma+vnni");
    }
}
