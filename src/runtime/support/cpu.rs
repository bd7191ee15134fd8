//! Tuning by the processor's vendor; its features are in `../processor.rs`.

/// Is code for these features slower here than what the features below it give? Intel's processors have the BF16 products of
/// AVX-512 at half the speed of FMA, or a quarter; code for tiles takes those for its products.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_slow(features: u64) -> bool {
    use crate::abi::feature;
    is_by(*b"Genu") && features & (feature::AVX512_BF16 | feature::AMX_BF16) == feature::AVX512_BF16
}

/// No processor has more bytes of cache for each of its cores than this; few have a third of it.
pub(crate) const MOST_CACHE: u64 = 96 << 20;

/// Does a core read memory fastest in the order of addresses? AMD's do: at four pages a time, a Zen 5 is a fifth slower. Intel's
/// follow few lines of a page ahead, and are faster with several pages at once.
#[cfg(target_arch = "x86_64")]
pub(crate) fn reads_in_order() -> bool {
    is_by(*b"Auth") || is_by(*b"Hygo")
}

/// Does the name of this processor's maker begin so?
#[cfg(target_arch = "x86_64")]
fn is_by(name: [u8; 4]) -> bool {
    core::arch::x86_64::__cpuid(0).ebx == u32::from_le_bytes(name)
}

/// Code for other processors does not ask.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn reads_in_order() -> bool {
    false
}

/// Other processors have one tier.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn is_slow(_: u64) -> bool {
    false
}
