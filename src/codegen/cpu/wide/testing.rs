//! For tests: runs leaf functions in this process, and disassembles them.

use iced_x86::{CpuidFeature, Decoder, DecoderOptions, Formatter as _, IntelFormatter, Mnemonic};

use super::super::origins::Comments;

use crate::runtime::abi::feature;
use crate::runtime::descriptor::features_of;
use crate::runtime::processor;
use crate::tile::{Cpu, Feature, Width};

/// Does this machine have an instruction set, including the byte dot products?
pub(super) fn has(level: Cpu) -> bool {
    let bytes = if level.width() == Width::V512 { feature::AVX512_VNNI } else { 0 };
    features_of(&level.name()).is_some_and(|features| processor::can_run(features | bytes))
}

/// Disassembles code, one instruction per line; jump targets are offsets.
pub(super) fn listing(code: &[u8], comments: &Comments) -> String {
    let (mut text, mut formatter, mut line) = (String::new(), IntelFormatter::new(), String::new());
    let mut comments = comments.iter().peekable();
    for i in Decoder::with_ip(64, code, 0, DecoderOptions::NONE).iter() {
        while let Some((_, comment)) = comments.next_if(|(at, _)| u64::from(*at) <= i.ip()) {
            text.push_str(&format!("  ; {comment}\n"));
        }
        line.clear();
        formatter.format(&i, &mut line);
        text.push_str(&format!("{:5x}  {line}\n", i.ip()));
    }
    text
}

/// A leaf that can be called.
pub(super) struct Executable(memmap2::Mmap);

impl Executable {
    /// Checks the code of a leaf ([`decodes`]) and makes it callable; `None`, with a message, if
    /// this machine cannot run it.
    pub(super) fn new(level: Cpu, code: &[u8]) -> Option<Executable> {
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
    /// The arguments must point to memory of the size and layout that the leaf expects.
    pub(super) unsafe fn call(&self, words: &[u64]) {
        // SAFETY: the bytes are a function of this signature, made by this module.
        let f = unsafe { std::mem::transmute::<*const u8, extern "C" fn(*const u64)>(self.0.as_ptr()) };
        f(words.as_ptr());
    }
}

/// Asserts that all instructions up to the return belong to the instruction set; constants may
/// follow.
pub(super) fn decodes(level: Cpu, code: &[u8]) {
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
                    // A hint; older processors execute it as a long `nop`.
                    | CpuidFeature::PREFETCHW
            );
            let avx2 = matches!(f, CpuidFeature::AVX | CpuidFeature::AVX2 | CpuidFeature::FMA | CpuidFeature::F16C);
            let avx512 = matches!(
                f,
                CpuidFeature::AVX512F
                    | CpuidFeature::AVX512VL
                    | CpuidFeature::AVX512DQ
                    | CpuidFeature::AVX512BW
                    // Only in kernels with quantised weights, whose variant requires it.
                    | CpuidFeature::AVX512_VNNI
                    | CpuidFeature::AVX512_VBMI
            );
            let sums = level.has(Feature::Vnni) && level.width() == Width::V256 && *f == CpuidFeature::AVX_VNNI;
            let pairs = level.has(Feature::Bf16) && *f == CpuidFeature::AVX512_BF16;
            let tiles = level.has(Feature::Amx) && matches!(f, CpuidFeature::AMX_TILE | CpuidFeature::AMX_BF16);
            let allowed = match level.width() {
                Width::V128 => base,
                Width::V256 => base || avx2 || sums,
                Width::V512 => base || avx2 || avx512 || pairs || tiles,
            };
            assert!(allowed, "{f:?} at {} for {}", i.ip(), level.name());
        }
        if i.mnemonic() == Mnemonic::Ret {
            return;
        }
    }
    panic!("code without a return");
}
