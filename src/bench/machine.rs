//! Handwritten machine code loops: one that executes multiply-adds at full speed, and one that
//! reads memory.
//!
//! In: a number of steps, or the bytes to read. Out: only the time it takes. Each step of the first
//! loop uses enough registers to avoid stalls on dependencies. The second reads a block of
//! memory with one of two access patterns ([`Way`]), since CPUs differ in which is faster: an Intel
//! core that reads at a single address does not saturate memory, and an AMD core is a fifth slower
//! with several.

/// The access pattern of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// At four addresses at once, prefetching a little ahead of each.
    Places,
    /// In address order, prefetching one page ahead.
    Order,
}

/// Distance between the addresses.
const PLACE: usize = 96 << 10;
/// Bytes that the reading loop processes at a time, at all four addresses; it reads only full
/// blocks.
pub(super) const BLOCK: usize = 4 * PLACE;

/// Bytes that the cache loop reads at a time; it reads only full ones.
pub(super) const LINES: usize = 256;

/// Factors with which sums stay finite and normal, for any number of steps.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
static FACTORS: [f32; 2] = [1.0, 1e-3];

#[cfg(target_arch = "x86_64")]
mod here {
    use super::{BLOCK, FACTORS, LINES, PLACE, Way};
    use std::arch::asm;

    /// The widest vectors of the CPU.
    #[derive(Clone, Copy)]
    pub(crate) enum Unit {
        /// 512-bit FMA.
        Wide,
        /// 256-bit FMA.
        Fused,
        /// 128-bit multiplication and addition.
        Plain,
    }

    /// Loads two factors into registers `$a` and `$b`, zeroes the others, then executes `$line` for
    /// each of them in every step.
    macro_rules! multiply {
        ($steps:ident, $v:literal, $zero:literal, $load:literal, $a:literal, $b:literal, $product:literal, $($n:literal)*) => {
            asm!(
                concat!($load, " ", $v, $a, ", dword ptr [rdx]"),
                concat!($load, " ", $v, $b, ", dword ptr [rdx + 4]"),
                $(concat!($zero, " ", $v, $n, ", ", $v, $n, ", ", $v, $n),)*
                "2:",
                $(concat!($product, " ", $v, $n, ", ", $v, $a, ", ", $v, $b),)*
                "dec rcx",
                "jnz 2b",
                inout("rcx") $steps => _,
                in("rdx") FACTORS.as_ptr(),
                clobber_abi("C"),
                options(nostack, readonly),
            )
        };
    }

    /// Loads `$v` registers, 128 bytes at each of the four addresses per step.
    macro_rules! read {
        ($block:ident, $load:literal, $v:literal, $($at:literal)*) => {
            asm!(
                "2:",
                $(
                    concat!($load, " ", $v, "0, [rcx + ", $at, "]"),
                    concat!($load, " ", $v, "1, [rcx + r8 + ", $at, "]"),
                    concat!($load, " ", $v, "2, [rcx + 2*r8 + ", $at, "]"),
                    concat!($load, " ", $v, "3, [rcx + r9 + ", $at, "]"),
                )*
                "prefetcht0 [rcx + 1024]",
                "prefetcht0 [rcx + 1088]",
                "prefetcht0 [rcx + r8 + 1024]",
                "prefetcht0 [rcx + r8 + 1088]",
                "prefetcht0 [rcx + 2*r8 + 1024]",
                "prefetcht0 [rcx + 2*r8 + 1088]",
                "prefetcht0 [rcx + r9 + 1024]",
                "prefetcht0 [rcx + r9 + 1088]",
                "add rcx, 128",
                "cmp rcx, rdx",
                "jb 2b",
                inout("rcx") $block.as_ptr() => _,
                in("rdx") $block.as_ptr().wrapping_add(PLACE),
                in("r8") PLACE,
                in("r9") 3 * PLACE,
                clobber_abi("C"),
                options(nostack, readonly),
            )
        };
    }

    /// Loads `$v` registers from consecutive addresses, 256 bytes per step.
    macro_rules! read_in_order {
        ($block:ident, $load:literal, $v:literal, $($at:literal)*) => {
            asm!(
                "2:",
                "prefetcht0 [rcx + 4096]",
                "prefetcht0 [rcx + 4160]",
                "prefetcht0 [rcx + 4224]",
                "prefetcht0 [rcx + 4288]",
                $(concat!($load, " ", $v, "0, [rcx + ", $at, "]"),)*
                "add rcx, 256",
                "cmp rcx, rdx",
                "jb 2b",
                inout("rcx") $block.as_ptr() => _,
                in("rdx") $block.as_ptr().wrapping_add(BLOCK),
                clobber_abi("C"),
                options(nostack, readonly),
            )
        };
    }

    /// Loads `$v` registers from consecutive addresses, 256 bytes per step, without prefetching.
    macro_rules! sweep {
        ($bytes:ident, $load:literal, $v:literal, $($at:literal)*) => {
            asm!(
                "2:",
                $(concat!($load, " ", $v, "0, [rcx + ", $at, "]"),)*
                "add rcx, 256",
                "cmp rcx, rdx",
                "jb 2b",
                inout("rcx") $bytes.as_ptr() => _,
                in("rdx") $bytes.as_ptr().wrapping_add($bytes.len()),
                clobber_abi("C"),
                options(nostack, readonly),
            )
        };
    }

    impl Unit {
        /// Repeatedly reads the full [`LINES`] of `bytes`.
        pub(crate) fn read_again(self, bytes: &[u8], passes: u64) {
            let Some(bytes) = bytes.get(..bytes.len() / LINES * LINES).filter(|b| !b.is_empty()) else { return };
            for _ in 0..passes {
                match self {
                    // SAFETY: the CPU has AVX-512, see `best`; readable memory whose size is a
                    // multiple of 256 bytes.
                    Unit::Wide => unsafe { sweep!(bytes, "vmovups", "zmm", "0" "64" "128" "192") },
                    // SAFETY: the CPU has AVX2; as above.
                    Unit::Fused => unsafe {
                        sweep!(bytes, "vmovups", "ymm", "0" "32" "64" "96" "128" "160" "192" "224")
                    },
                    // SAFETY: every x86-64 CPU has SSE2; as above.
                    Unit::Plain => unsafe {
                        sweep!(bytes, "movups", "xmm", "0" "16" "32" "48" "64" "80" "96" "112"
                            "128" "144" "160" "176" "192" "208" "224" "240")
                    },
                }
            }
        }

        pub(crate) fn best() -> Unit {
            if is_x86_feature_detected!("avx512f") {
                Unit::Wide
            } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                Unit::Fused
            } else {
                Unit::Plain
            }
        }

        pub(crate) fn name(self) -> &'static str {
            match self {
                Unit::Wide => "512-bit FMA",
                Unit::Fused => "256-bit FMA",
                Unit::Plain => "128-bit products and sums",
            }
        }

        pub(crate) fn flops_per_step(self) -> f64 {
            match self {
                Unit::Wide => 24.0 * 16.0 * 2.0,
                Unit::Fused => 12.0 * 8.0 * 2.0,
                Unit::Plain => 6.0 * 4.0 * 2.0,
            }
        }

        pub(crate) fn multiply(self, steps: u64) {
            let steps = steps.max(1);
            match self {
                // SAFETY: the CPU has AVX-512, see `best`; only the two factors are read.
                Unit::Wide => unsafe {
                    multiply!(steps, "zmm", "vpxord", "vbroadcastss", "24", "25", "vfmadd231ps",
                        "0" "1" "2" "3" "4" "5" "6" "7" "8" "9" "10" "11"
                        "12" "13" "14" "15" "16" "17" "18" "19" "20" "21" "22" "23")
                },
                // SAFETY: the CPU has AVX2 and FMA; as above.
                Unit::Fused => unsafe {
                    multiply!(steps, "ymm", "vxorps", "vbroadcastss", "12", "13", "vfmadd231ps",
                        "0" "1" "2" "3" "4" "5" "6" "7" "8" "9" "10" "11")
                },
                // SAFETY: every x86-64 CPU has SSE2; as above.
                Unit::Plain => unsafe { multiply_plain(steps) },
            }
        }

        pub(crate) fn read(self, way: Way, memory: &[u8]) {
            for block in memory.chunks_exact(BLOCK) {
                match (self, way) {
                    // SAFETY: the CPU has AVX-512, see `best`; a block of readable memory.
                    (Unit::Wide, Way::Places) => unsafe { read!(block, "vmovups", "zmm", "0" "64") },
                    // SAFETY: the CPU has AVX2; as above.
                    (Unit::Fused, Way::Places) => unsafe { read!(block, "vmovups", "ymm", "0" "32" "64" "96") },
                    // SAFETY: every x86-64 CPU has SSE2; as above.
                    (Unit::Plain, Way::Places) => unsafe {
                        read!(block, "movups", "xmm", "0" "16" "32" "48" "64" "80" "96" "112")
                    },
                    // SAFETY: as for the respective `Places`.
                    (Unit::Wide, Way::Order) => unsafe {
                        read_in_order!(block, "vmovups", "zmm", "0" "64" "128" "192")
                    },
                    // SAFETY: as above.
                    (Unit::Fused, Way::Order) => unsafe {
                        read_in_order!(block, "vmovups", "ymm", "0" "32" "64" "96" "128" "160" "192" "224")
                    },
                    // SAFETY: as above.
                    (Unit::Plain, Way::Order) => unsafe {
                        read_in_order!(block, "movups", "xmm", "0" "16" "32" "48" "64" "80" "96" "112"
                            "128" "144" "160" "176" "192" "208" "224" "240")
                    },
                }
            }
        }
    }

    /// Without FMA: multiplies into one of two registers, then adds.
    ///
    /// # Safety
    /// None beyond SSE2.
    unsafe fn multiply_plain(steps: u64) {
        // SAFETY: only the two factors are read.
        unsafe {
            asm!(
                "movss xmm12, dword ptr [rdx]", "shufps xmm12, xmm12, 0",
                "movss xmm13, dword ptr [rdx + 4]", "shufps xmm13, xmm13, 0",
                "xorps xmm0, xmm0", "xorps xmm1, xmm1", "xorps xmm2, xmm2",
                "xorps xmm3, xmm3", "xorps xmm4, xmm4", "xorps xmm5, xmm5",
                "2:",
                "movaps xmm6, xmm12", "mulps xmm6, xmm13", "addps xmm0, xmm6",
                "movaps xmm7, xmm12", "mulps xmm7, xmm13", "addps xmm1, xmm7",
                "movaps xmm8, xmm12", "mulps xmm8, xmm13", "addps xmm2, xmm8",
                "movaps xmm9, xmm12", "mulps xmm9, xmm13", "addps xmm3, xmm9",
                "movaps xmm10, xmm12", "mulps xmm10, xmm13", "addps xmm4, xmm10",
                "movaps xmm11, xmm12", "mulps xmm11, xmm13", "addps xmm5, xmm11",
                "dec rcx",
                "jnz 2b",
                inout("rcx") steps => _,
                in("rdx") FACTORS.as_ptr(),
                clobber_abi("C"),
                options(nostack, readonly),
            )
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// Every CPU also supports the narrower units.
        #[test]
        fn every_unit_runs() {
            let memory = vec![1u8; 2 * BLOCK];
            let units = match Unit::best() {
                Unit::Wide => &[Unit::Wide, Unit::Fused, Unit::Plain][..],
                Unit::Fused => &[Unit::Fused, Unit::Plain],
                Unit::Plain => &[Unit::Plain],
            };
            for unit in units {
                unit.multiply(1000);
                for bytes in [0, 100, LINES, 10 * LINES + 1] {
                    unit.read_again(memory.get(..bytes).unwrap_or_default(), 2);
                }
                for way in [Way::Places, Way::Order] {
                    unit.read(way, &memory);
                    unit.read(way, &[]);
                    unit.read(way, memory.get(..100).unwrap_or_default());
                }
                assert!(unit.flops_per_step() > 0.0 && !unit.name().is_empty());
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod here {
    use super::{BLOCK, FACTORS, LINES, PLACE, Way};
    use std::arch::asm;

    /// NEON, which every 64-bit Arm CPU has.
    #[derive(Clone, Copy)]
    pub(crate) struct Unit;

    macro_rules! multiply {
        ($steps:ident, $($n:literal)*) => {
            asm!(
                "ld1r {{v24.4s}}, [x1], #4",
                "ld1r {{v25.4s}}, [x1]",
                $(concat!("movi v", $n, ".2d, #0"),)*
                "2:",
                $(concat!("fmla v", $n, ".4s, v24.4s, v25.4s"),)*
                "subs x0, x0, #1",
                "b.ne 2b",
                inout("x0") $steps => _,
                inout("x1") FACTORS.as_ptr() => _,
                clobber_abi("C"),
                options(nostack, readonly),
            )
        };
    }

    impl Unit {
        pub(crate) fn best() -> Unit {
            Unit
        }

        pub(crate) fn name(self) -> &'static str {
            "128-bit FMA"
        }

        pub(crate) fn flops_per_step(self) -> f64 {
            24.0 * 4.0 * 2.0
        }

        pub(crate) fn multiply(self, steps: u64) {
            let steps = steps.max(1);
            // SAFETY: only the two factors are read.
            unsafe {
                multiply!(steps, "0" "1" "2" "3" "4" "5" "6" "7" "8" "9" "10" "11"
                    "12" "13" "14" "15" "16" "17" "18" "19" "20" "21" "22" "23")
            }
        }

        /// Repeatedly reads the full [`LINES`] of `bytes`.
        pub(crate) fn read_again(self, bytes: &[u8], passes: u64) {
            let Some(bytes) = bytes.get(..bytes.len() / LINES * LINES).filter(|b| !b.is_empty()) else { return };
            for _ in 0..passes {
                // SAFETY: readable memory whose size is a multiple of 256 bytes.
                unsafe {
                    asm!(
                        "2:",
                        "ldp q0, q1, [x0]", "ldp q2, q3, [x0, #32]", "ldp q4, q5, [x0, #64]", "ldp q6, q7, [x0, #96]",
                        "ldp q0, q1, [x0, #128]", "ldp q2, q3, [x0, #160]", "ldp q4, q5, [x0, #192]", "ldp q6, q7, [x0, #224]",
                        "add x0, x0, #256",
                        "cmp x0, x4",
                        "b.lo 2b",
                        inout("x0") bytes.as_ptr() => _,
                        in("x4") bytes.as_ptr().wrapping_add(bytes.len()),
                        clobber_abi("C"),
                        options(nostack, readonly),
                    )
                }
            }
        }

        pub(crate) fn read(self, way: Way, memory: &[u8]) {
            for block in memory.chunks_exact(BLOCK) {
                if way == Way::Order {
                    // SAFETY: a block of readable memory.
                    unsafe {
                        asm!(
                            "2:",
                            "ldp q0, q1, [x0]", "ldp q2, q3, [x0, #32]", "ldp q4, q5, [x0, #64]", "ldp q6, q7, [x0, #96]",
                            "add x0, x0, #128",
                            "cmp x0, x4",
                            "b.lo 2b",
                            inout("x0") block.as_ptr() => _,
                            in("x4") block.as_ptr().wrapping_add(BLOCK),
                            clobber_abi("C"),
                            options(nostack, readonly),
                        )
                    }
                    continue;
                }
                // SAFETY: a block of readable memory.
                unsafe {
                    asm!(
                        "2:",
                        "ldp q0, q1, [x0]", "ldp q2, q3, [x1]", "ldp q4, q5, [x2]", "ldp q6, q7, [x3]",
                        "ldp q0, q1, [x0, #32]", "ldp q2, q3, [x1, #32]", "ldp q4, q5, [x2, #32]", "ldp q6, q7, [x3, #32]",
                        "ldp q0, q1, [x0, #64]", "ldp q2, q3, [x1, #64]", "ldp q4, q5, [x2, #64]", "ldp q6, q7, [x3, #64]",
                        "ldp q0, q1, [x0, #96]", "ldp q2, q3, [x1, #96]", "ldp q4, q5, [x2, #96]", "ldp q6, q7, [x3, #96]",
                        "add x0, x0, #128", "add x1, x1, #128", "add x2, x2, #128", "add x3, x3, #128",
                        "cmp x0, x4",
                        "b.lo 2b",
                        inout("x0") block.as_ptr() => _,
                        inout("x1") block.as_ptr().wrapping_add(PLACE) => _,
                        inout("x2") block.as_ptr().wrapping_add(2 * PLACE) => _,
                        inout("x3") block.as_ptr().wrapping_add(3 * PLACE) => _,
                        in("x4") block.as_ptr().wrapping_add(PLACE),
                        clobber_abi("C"),
                        options(nostack, readonly),
                    )
                }
            }
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("attnc makes code for x86-64 and aarch64");

pub(super) use here::Unit;
