//! CPUs that kernels are scheduled for: vector width and instruction set extensions.
//!
//! In: names (`--cpu`, `cpu(..)` in the text form). Out: a [`Cpu`] and its properties. It must not
//! know how a library detects features (`runtime`), nor how instructions are encoded.
//!
//! CPUs are only partially ordered: one has wider vectors, another byte dot products. Only the
//! width has a total order; whether code for one CPU runs on another is [`Cpu::includes`].

use std::fmt;

/// Width of vector registers in bits.
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
    /// Every width, narrowest first.
    pub const ALL: [Width; 3] = [Width::V128, Width::V256, Width::V512];

    /// `f32` lanes of a vector register.
    pub fn lanes(self) -> u32 {
        match self {
            Width::V128 => 4,
            Width::V256 => 8,
            Width::V512 => 16,
        }
    }

    /// Number of vector registers.
    pub fn registers(self) -> u32 {
        match self {
            Width::V128 | Width::V256 => 16,
            Width::V512 => 32,
        }
    }

    /// Rows of a matmul's register tile. Together with [`Width::dot_cols`], the accumulators, a row
    /// of the right operand and an element of the left one fill the registers.
    pub fn dot_rows(self) -> u32 {
        match self {
            Width::V128 => 4,
            Width::V256 => 6,
            Width::V512 => 14,
        }
    }

    /// Columns of a matmul's register tile, and of a packed panel: two vectors.
    pub fn dot_cols(self) -> u32 {
        2 * self.lanes()
    }

    /// The name of the CPU that has vectors of this width and no optional features.
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

/// Optional instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// Fused multiply-add. All vectors wider than 128 bits have it.
    Fma,
    /// Dot products of bytes (`vpdpbusd`), with at least 256 bits.
    Vnni,
    /// Byte permutations across a 512-bit vector, which byte dot products use there.
    Vbmi,
    /// Dot products of `bf16` pairs (`vdpbf16ps`), and rounding to `bf16` in one instruction, with
    /// 512 bits.
    Bf16,
    /// Tile matmuls of `bf16` (`tdpbf16ps`), in addition to 512-bit vectors with [`Feature::Bf16`].
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

    /// Can a CPU with this width and these other features have it?
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
    /// The set of the listed features.
    pub const fn from_list(list: &[Feature]) -> Features {
        let (mut bits, mut i) = (0, 0);
        while i < list.len() {
            bits |= 1 << list[i] as u8;
            i += 1;
        }
        Features(bits)
    }

    /// Whether it contains `feature`.
    pub const fn has(self, feature: Feature) -> bool {
        self.0 & (1 << feature as u8) != 0
    }

    /// Whether it contains all of `others`.
    pub const fn include(self, others: Features) -> bool {
        self.0 & others.0 == others.0
    }

    /// The union.
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
    pub const AVX2: Cpu = Cpu { width: Width::V256, features: Features::from_list(&[Feature::Fma]) };
    /// The same, with byte dot products (AVX-VNNI).
    pub const AVX2_VNNI: Cpu =
        Cpu { width: Width::V256, features: Features::from_list(&[Feature::Fma, Feature::Vnni]) };
    /// 512-bit vectors with byte dot products. (A library requires VNNI only if its code uses it.)
    pub const AVX512: Cpu =
        Cpu { width: Width::V512, features: Features::from_list(&[Feature::Fma, Feature::Vnni, Feature::Vbmi]) };
    /// The same, with dot products of `bf16` pairs.
    pub const AVX512_BF16: Cpu =
        Cpu { width: Width::V512, features: Cpu::AVX512.features.and(Features::from_list(&[Feature::Bf16])) };
    /// The same, with `bf16` tiles.
    pub const AMX: Cpu =
        Cpu { width: Width::V512, features: Cpu::AVX512_BF16.features.and(Features::from_list(&[Feature::Amx])) };

    /// Named CPUs: the values of `--cpu`, and the variants of a library. The least demanding come
    /// first; a library lists them in reverse.
    pub const NAMED: [Cpu; 6] = [Cpu::PORTABLE, Cpu::AVX2, Cpu::AVX2_VNNI, Cpu::AVX512, Cpu::AVX512_BF16, Cpu::AMX];

    /// A CPU with this width and these features; `None` if no code could be generated for it: wider
    /// vectors require FMA, and some features require others.
    pub fn new(width: Width, features: Features) -> Option<Cpu> {
        let fits = Feature::ALL.into_iter().all(|f| !features.has(f) || f.fits(width, features));
        (fits && (width == Width::V128 || features.has(Feature::Fma))).then_some(Cpu { width, features })
    }

    /// Parses a name, `avx512`, or a width with features, `512+fma+bf16`.
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
            features = features.and(Features::from_list(&[feature]));
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

    /// The inverse of [`Cpu::from_name`].
    pub fn name(self) -> String {
        self.to_string()
    }

    /// Is it one of [`Cpu::NAMED`]?
    pub fn is_named(self) -> bool {
        self.own_name().is_some()
    }

    /// Width of its vectors.
    pub const fn width(self) -> Width {
        self.width
    }

    /// Whether it has a feature.
    pub const fn has(self, feature: Feature) -> bool {
        self.features.has(feature)
    }

    /// Whether it has byte dot products, and everything they require at its width.
    pub fn sums_bytes(self) -> bool {
        self.has(Feature::Vnni) && (self.width < Width::V512 || self.has(Feature::Vbmi))
    }

    /// Does code for `other` run on it?
    pub fn includes(self, other: Cpu) -> bool {
        self.width >= other.width && self.features.include(other.features)
    }

    /// The least CPU that runs code for both.
    #[must_use]
    pub fn with(self, other: Cpu) -> Cpu {
        Cpu { width: self.width.max(other.width), features: self.features.and(other.features) }
    }

    /// The named CPU with the same vectors, but without instructions for `bf16`, and with byte dot
    /// products only if they come with the width: the target of all other code.
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

    /// Number of vector registers.
    pub fn registers(self) -> u32 {
        self.width.registers()
    }

    /// Rows of a matmul's register tile, see [`Width::dot_rows`].
    pub fn dot_rows(self) -> u32 {
        self.width.dot_rows()
    }

    /// Columns of a matmul's register tile, see [`Width::dot_cols`].
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

    /// Every CPU that code can be generated for.
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
        // Wide vectors without FMA, narrow ones with it, tiles without pairs, and invalid names.
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
        // Neither of these two runs the other's code.
        let (bytes, wide) = (Cpu::AVX2_VNNI, Cpu::from_name("512+fma").expect("it has a name"));
        assert!(!bytes.includes(wide) && !wide.includes(bytes));
        assert_eq!(bytes.with(wide).name(), "512+fma+vnni");
    }
}
