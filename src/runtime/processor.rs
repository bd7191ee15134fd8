//! CPU feature detection.
//!
//! In: nothing. Out: the bits of [`feature`](super::abi::feature) that the processor supports, and
//! whether the operating system permits features that a process must request (AMX tiles). The
//! support library selects a model's code by them; tests run the instruction sets that the machine
//! supports.

/// The features supported by the processor and the operating system.
#[cfg(target_arch = "x86_64")]
pub fn features() -> u64 {
    use super::abi::feature;
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
    // The operating system saves the wide registers only if XCR0 says so (XGETBV requires OSXSAVE).
    if top < 7 || !all(one.ecx, &[27, 28]) {
        return out;
    }
    let saved: u32;
    // SAFETY: OSXSAVE says that xgetbv may be used.
    unsafe {
        core::arch::asm!("xgetbv", in("ecx") 0, out("eax") saved, out("edx") _, options(nomem, nostack));
    }
    let seven = __cpuid_count(7, 0);
    // Leaf 7, subleaf 1 exists only if subleaf 0 says so.
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

/// Other architectures have a single variant.
#[cfg(not(target_arch = "x86_64"))]
pub fn features() -> u64 {
    0
}

/// Requests permission to use AMX tiles, for all threads. The operating system refuses if it does
/// not support them, or if a signal stack is too small to save them.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub fn may_use_tiles() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let mut answer = ARCH_PRCTL;
    // SAFETY: this system call takes two numbers and accesses no memory of the process; the kernel
    // clobbers rcx and r11.
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

/// Tiles are not supported.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub fn may_use_tiles() -> bool {
    false
}

/// Can code that needs these features run in this process? Requests permission for tiles if they
/// are among them.
pub fn can_run(needed: u64) -> bool {
    needed & !features() == 0 && (needed & super::abi::feature::AMX_BF16 == 0 || may_use_tiles())
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::super::abi::feature;
    use super::features;

    /// Compares with the standard library's detection.
    #[test]
    fn features_are_those_that_rust_finds() {
        macro_rules! has {
            ($($name:tt)*) => { $(is_x86_feature_detected!($name))&&* };
        }
        let found = [
            (feature::SSE42, has!("sse3" "ssse3" "sse4.1" "sse4.2" "popcnt")),
            (feature::AVX2, has!("avx2" "bmi1" "bmi2" "f16c" "lzcnt" "movbe")),
            (feature::FMA, has!("avx" "fma")),
            (feature::AVX512, has!("avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl")),
            (feature::AVX512_BF16, has!("avx512f" "avx512bf16")),
            (feature::AVX512_VNNI, has!("avx512f" "avx512vnni" "avx512vbmi")),
            (feature::AVX_VNNI, has!("avx" "avxvnni")),
        ];
        for (bit, is_there) in found {
            assert_eq!(features() & bit != 0, is_there, "bit {bit:#x}");
        }
    }
}
