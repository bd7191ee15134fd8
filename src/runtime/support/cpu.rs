//! Tuning by CPU vendor; feature detection is in `../processor.rs`.

/// Is code for these features slower on this CPU than code for the next lower ones? Intel CPUs
/// execute BF16 dot products of AVX-512 at a half or a quarter of the speed of FMA; code for AMX
/// uses tiles for its matmuls instead.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_slow(features: u64) -> bool {
    use crate::abi::feature;
    is_by(*b"Genu") && features & (feature::AVX512_BF16 | feature::AMX_BF16) == feature::AVX512_BF16
}

/// Upper limit of cache per core on any known CPU; few have a third of it.
pub(crate) const MAX_CACHE: u64 = 96 << 20;

/// Does a core read memory fastest in address order? AMD's do: interleaving four pages makes a Zen
/// 5 a fifth slower. The prefetchers of Intel's CPUs follow few lines of a page ahead, and are
/// faster with several pages at once.
#[cfg(target_arch = "x86_64")]
pub(crate) fn reads_in_order() -> bool {
    is_by(*b"Auth") || is_by(*b"Hygo")
}

/// Does the CPU's vendor string begin with `name`?
#[cfg(target_arch = "x86_64")]
fn is_by(name: [u8; 4]) -> bool {
    core::arch::x86_64::__cpuid(0).ebx == u32::from_le_bytes(name)
}

/// Not used by code for other architectures.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn reads_in_order() -> bool {
    false
}

/// Other architectures have a single variant.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn is_slow(_: u64) -> bool {
    false
}
