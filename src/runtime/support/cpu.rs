//! What this processor has, and the floating-point mode that a model runs in.

/// Bits of [`crate::abi::feature`] that this processor and its operating system offer.
#[cfg(target_arch = "x86_64")]
pub(crate) fn features() -> u64 {
    use crate::abi::feature;
    use core::arch::x86_64::{__cpuid, __cpuid_count};

    let all = |word: u32, bits: &[u32]| bits.iter().all(|b| word >> b & 1 == 1);
    let top = __cpuid(0).eax;
    if top < 1 {
        return 0;
    }
    let one = __cpuid(1);
    let mut out = 0;
    // SSE3, SSSE3, SSE4.1, SSE4.2, POPCNT.
    if all(one.ecx, &[0, 9, 19, 20, 23]) {
        out |= feature::SSE42;
    }
    // The operating system saves the wide registers only if it says so in XCR0 (readable where OSXSAVE is set).
    if top < 7 || !all(one.ecx, &[27, 28]) {
        return out;
    }
    let saved: u32;
    // SAFETY: OSXSAVE says that xgetbv may be used.
    unsafe {
        core::arch::asm!("xgetbv", in("ecx") 0, out("eax") saved, out("edx") _, options(nomem, nostack));
    }
    let seven = __cpuid_count(7, 0);
    // The second part of leaf 7 is only there if the first one says so.
    let more = if seven.eax >= 1 { __cpuid_count(7, 1).eax } else { 0 };
    let lzcnt = __cpuid(0x8000_0000).eax > 0x8000_0000 && all(__cpuid(0x8000_0001).ecx, &[5]);
    if !all(saved, &[1, 2]) {
        return out;
    }
    if all(seven.ebx, &[3, 5, 8]) && all(one.ecx, &[22, 29]) && lzcnt {
        out |= feature::AVX2;
    }
    if all(one.ecx, &[12]) {
        out |= feature::FMA;
    }
    if all(more, &[4]) {
        out |= feature::AVX_VNNI;
    }
    if all(saved, &[5, 6, 7]) && all(seven.ebx, &[16, 17, 28, 30, 31]) {
        out |= feature::AVX512;
        if all(more, &[5]) {
            out |= feature::AVX512_BF16;
        }
        if all(seven.ecx, &[1, 11]) {
            out |= feature::AVX512_VNNI;
        }
        // AMX-BF16 and AMX-TILE; the configuration and the data of tiles are saved.
        if all(seven.edx, &[22, 24]) && all(saved, &[17, 18]) {
            out |= feature::AMX_BF16;
        }
    }
    out
}

/// Other processors have one tier.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn features() -> u64 {
    0
}

/// Lets the system this process use tiles (AMX)? To ask is to get them, for all threads; a system that does not know of them,
/// or has no room for them where a signal is handled, refuses.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) fn may_use_tiles() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let mut answer = ARCH_PRCTL;
    // SAFETY: this call takes two numbers and touches no memory of the process; the kernel clobbers rcx and r11.
    unsafe {
        core::arch::asm!(
            "syscall",
            inout("rax") answer,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            out("rcx") _,
            out("r11") _,
            options(nostack)
        );
    }
    answer == 0
}

/// There are no tiles.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(crate) fn may_use_tiles() -> bool {
    false
}

/// Is code for these features slower here than what the features below it give? Intel's processors have the BF16 products of
/// AVX-512 at half the speed of FMA, or a quarter.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_slow(features: u64) -> bool {
    is_by(*b"Genu") && features & crate::abi::feature::AVX512_BF16 != 0
}

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

/// The default floating-point mode (round to nearest, subnormal numbers kept, nothing trapped) while it lives; a
/// program's own mode must not change a model's results.
pub(crate) struct DefaultMode {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    saved: u64,
}

#[cfg(target_arch = "x86_64")]
impl DefaultMode {
    /// Enters the default mode on this thread.
    pub(crate) fn enter() -> DefaultMode {
        let mut saved = 0u32;
        let default = 0x1f80u32;
        // SAFETY: both are readable and writable words; the mode is put back when this is dropped.
        unsafe {
            core::arch::asm!("stmxcsr [{0}]", "ldmxcsr [{1}]", in(reg) &mut saved, in(reg) &default, options(nostack));
        }
        DefaultMode { saved: u64::from(saved) }
    }
}

#[cfg(target_arch = "x86_64")]
impl Drop for DefaultMode {
    fn drop(&mut self) {
        let saved = self.saved as u32;
        // SAFETY: the word was read from the same register.
        unsafe { core::arch::asm!("ldmxcsr [{0}]", in(reg) &saved, options(nostack)) };
    }
}

#[cfg(target_arch = "aarch64")]
impl DefaultMode {
    /// Enters the default mode on this thread.
    pub(crate) fn enter() -> DefaultMode {
        let saved: u64;
        // SAFETY: FPCR is readable and writable; it is put back when this is dropped.
        unsafe { core::arch::asm!("mrs {0}, fpcr", "msr fpcr, xzr", out(reg) saved, options(nomem, nostack)) };
        DefaultMode { saved }
    }
}

#[cfg(target_arch = "aarch64")]
impl Drop for DefaultMode {
    fn drop(&mut self) {
        // SAFETY: the word was read from the same register.
        unsafe { core::arch::asm!("msr fpcr, {0}", in(reg) self.saved, options(nomem, nostack)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl DefaultMode {
    /// Nothing to enter.
    pub(crate) fn enter() -> DefaultMode {
        DefaultMode {}
    }
}
