//! For tests: runs leaf functions in this process, and looks at what they are made of.

use iced_x86::{CpuidFeature, Decoder, DecoderOptions, Mnemonic};

use crate::tile::CpuLevel;

/// Has this machine the instructions of a level?
pub(super) fn has(level: CpuLevel) -> bool {
    #[cfg(target_arch = "x86_64")]
    return match level {
        CpuLevel::Avx512 => {
            is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vnni")
                && is_x86_feature_detected!("avx512vbmi")
        }
        CpuLevel::Avx2 => {
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
        }
        CpuLevel::Avx2Vnni => has(CpuLevel::Avx2) && has_byte_sums(),
        CpuLevel::Avx512Bf16 => has(CpuLevel::Avx512) && is_x86_feature_detected!("avx512bf16"),
        CpuLevel::Amx => has(CpuLevel::Avx512) && has_tiles(),
        CpuLevel::Portable => true,
    };
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Has this machine AVX-VNNI?
#[cfg(target_arch = "x86_64")]
fn has_byte_sums() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).eax >= 1 && __cpuid_count(7, 1).eax >> 4 & 1 == 1
}

/// Has this machine tiles of `bf16`, and lets the system this process use them? To ask is to get them.
#[cfg(target_arch = "x86_64")]
fn has_tiles() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let known = __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx >> 22 & 0b101 == 0b101;
    let (mut answer, request, tile_data) = (158_i64, 0x1023_u64, 18_u64);
    // SAFETY: arch_prctl (158) with ARCH_REQ_XCOMP_PERM takes two numbers and touches no memory.
    unsafe {
        std::arch::asm!("syscall", inout("rax") answer, in("rdi") request, in("rsi") tile_data,
            out("rcx") _, out("r11") _, options(nostack));
    }
    known && cfg!(target_os = "linux") && answer == 0
}

/// A leaf that can be called.
pub(super) struct Executable(memmap2::Mmap);

impl Executable {
    /// Checks the code of a leaf ([`decodes`]) and makes it callable; `None`, and a word about it, where this machine
    /// cannot run it.
    pub(super) fn new(level: CpuLevel, code: &[u8]) -> Option<Executable> {
        decodes(level, code);
        if !has(level) {
            println!("not run: this machine lacks {}", level.name());
            return None;
        }
        let mut map = memmap2::MmapMut::map_anon(code.len()).expect("memory for code");
        map.copy_from_slice(code);
        Some(Executable(map.make_exec().expect("memory that may be executed")))
    }

    /// Calls the leaf.
    ///
    /// # Safety
    /// What the words point to is as the leaf wants it.
    pub(super) unsafe fn call(&self, words: &[u64]) {
        // SAFETY: the bytes are a function of this signature, made by this module.
        let f = unsafe { std::mem::transmute::<*const u8, extern "C" fn(*const u64)>(self.0.as_ptr()) };
        f(words.as_ptr());
    }
}

/// Every byte up to the return belongs to an instruction that a processor of the level has; after it may come constants.
pub(super) fn decodes(level: CpuLevel, code: &[u8]) {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    while decoder.can_decode() {
        let i = decoder.decode();
        assert!(!i.is_invalid(), "no instruction at byte {}", i.ip());
        for f in i.cpuid_features() {
            let base = matches!(
                f,
                CpuidFeature::INTEL8086
                    | CpuidFeature::INTEL386
                    | CpuidFeature::INTEL486
                    | CpuidFeature::X64
                    | CpuidFeature::CMOV
                    | CpuidFeature::SSE
                    // A hint, which processors without it take for a long `nop`.
                    | CpuidFeature::PREFETCHW
            );
            let avx2 = matches!(f, CpuidFeature::AVX | CpuidFeature::AVX2 | CpuidFeature::FMA | CpuidFeature::F16C);
            let avx512 = matches!(
                f,
                CpuidFeature::AVX512F
                    | CpuidFeature::AVX512VL
                    | CpuidFeature::AVX512DQ
                    | CpuidFeature::AVX512BW
                    // Of kernels with whole numbers alone, whose variant asks for these.
                    | CpuidFeature::AVX512_VNNI
                    | CpuidFeature::AVX512_VBMI
            );
            let sums = level == CpuLevel::Avx2Vnni && *f == CpuidFeature::AVX_VNNI;
            let pairs = level == CpuLevel::Avx512Bf16 && *f == CpuidFeature::AVX512_BF16;
            let tiles = level == CpuLevel::Amx && matches!(f, CpuidFeature::AMX_TILE | CpuidFeature::AMX_BF16);
            let allowed = match level.vectors() {
                CpuLevel::Portable => base,
                CpuLevel::Avx2 => base || avx2 || sums,
                _ => base || avx2 || avx512 || pairs || tiles,
            };
            assert!(allowed, "{f:?} at {} for {}", i.ip(), level.name());
        }
        if i.mnemonic() == Mnemonic::Ret {
            return;
        }
    }
    panic!("code without a return");
}
