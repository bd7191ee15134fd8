//! Machine code loops that multiply in other ways than `f32` FMA: pairs of `bf16`, tiles of `bf16`,
//! bytes.
//!
//! In: the kind of multiplication, and a number of steps. Out: only the time it takes. As in
//! [`super::machine`], each step uses enough registers to avoid stalls on dependencies. If
//! the CPU lacks the instructions, or the operating system does not permit them, the loops do
//! nothing.

use super::Products;

impl Products {
    /// The kinds that this CPU supports in addition to `f32` FMA.
    pub(super) fn here() -> Vec<Products> {
        [Products::Pairs, Products::Tiles, Products::Bytes]
            .into_iter()
            .filter(|p| loops::operations(*p) > 0.0)
            .collect()
    }

    /// Operations per step; 0 if not supported.
    pub(super) fn operations_per_step(self) -> f64 {
        loops::operations(self)
    }

    /// Runs the loop.
    pub(super) fn multiply(self, steps: u64) {
        if self.operations_per_step() > 0.0 {
            loops::multiply(self, steps.max(1));
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod loops {
    use super::Products;
    use crate::runtime::abi::feature;
    use crate::runtime::processor::can_run;
    use std::arch::asm;

    /// Tile configuration: 16 rows of 64 bytes each.
    #[repr(align(64))]
    struct Tiles([u8; 64]);

    static TILES: Tiles = {
        let mut bytes = [0; 64];
        bytes[0] = 1;
        let mut tile = 0;
        while tile < 8 {
            bytes[16 + 2 * tile] = 64;
            bytes[48 + tile] = 16;
            tile += 1;
        }
        Tiles(bytes)
    };

    const PAIRS: u64 = feature::AVX512 | feature::AVX512_BF16;
    const WIDE_BYTES: u64 = feature::AVX512 | feature::AVX512_VNNI;
    const BYTES: u64 = feature::AVX2 | feature::AVX_VNNI;

    pub(super) fn operations(products: Products) -> f64 {
        match products {
            Products::Pairs if can_run(PAIRS) => 24.0 * 16.0 * 2.0 * 2.0,
            Products::Tiles if can_run(feature::AVX512 | feature::AMX_BF16) => 4.0 * 16.0 * 16.0 * 32.0 * 2.0,
            Products::Bytes if can_run(WIDE_BYTES) => 24.0 * 16.0 * 4.0 * 2.0,
            Products::Bytes if can_run(BYTES) => 12.0 * 8.0 * 4.0 * 2.0,
            _ => 0.0,
        }
    }

    /// Zeroes all registers, then executes `$line` for each in every step.
    macro_rules! multiply {
        ($steps:ident, $zero:literal, $v:literal, $product:literal, $($n:literal)*) => {
            asm!(
                concat!($zero, " ", $v, "14, ", $v, "14, ", $v, "14"),
                concat!($zero, " ", $v, "15, ", $v, "15, ", $v, "15"),
                $(concat!($zero, " ", $v, $n, ", ", $v, $n, ", ", $v, $n),)*
                "2:",
                $(concat!($product, " ", $v, $n, ", ", $v, "14, ", $v, "15"),)*
                "dec rcx",
                "jnz 2b",
                inout("rcx") $steps => _,
                clobber_abi("C"),
                options(nostack, nomem),
            )
        };
    }

    pub(super) fn multiply(products: Products, steps: u64) {
        match products {
            // SAFETY: the CPU has these instructions, see `operations`; only registers are
            // accessed.
            Products::Pairs => unsafe {
                multiply!(steps, "vpxord", "zmm", "vdpbf16ps",
                    "0" "1" "2" "3" "4" "5" "6" "7" "8" "9" "10" "11"
                    "16" "17" "18" "19" "20" "21" "22" "23" "24" "25" "26" "27")
            },
            // SAFETY: as above.
            Products::Bytes if can_run(WIDE_BYTES) => unsafe {
                multiply!(steps, "vpxord", "zmm", "vpdpbusd",
                    "0" "1" "2" "3" "4" "5" "6" "7" "8" "9" "10" "11"
                    "16" "17" "18" "19" "20" "21" "22" "23" "24" "25" "26" "27")
            },
            // SAFETY: as above.
            Products::Bytes => unsafe {
                multiply!(steps, "vpxor", "ymm", "{{vex}} vpdpbusd",
                    "0" "1" "2" "3" "4" "5" "6" "7" "8" "9" "10" "11")
            },
            // SAFETY: the CPU has tiles and the operating system has permitted them, see
            // `operations`; only the configuration is read.
            Products::Tiles => unsafe {
                asm!(
                    "ldtilecfg [rdx]",
                    "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                    "tilezero tmm4", "tilezero tmm5", "tilezero tmm6", "tilezero tmm7",
                    "2:",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                    "dec rcx",
                    "jnz 2b",
                    "tilerelease",
                    inout("rcx") steps => _,
                    in("rdx") TILES.0.as_ptr(),
                    options(nostack, readonly),
                )
            },
            Products::Floats | Products::Tf32TensorCores | Products::TensorCores => {}
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod loops {
    use super::Products;

    pub(super) fn operations(_: Products) -> f64 {
        0.0
    }

    pub(super) fn multiply(_: Products, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_runs_where_it_is_there() {
        for products in [Products::Floats, Products::Pairs, Products::Tiles, Products::Bytes] {
            products.multiply(100);
            assert!(products.operations_per_step() >= 0.0);
        }
        assert!(Products::here().iter().all(|p| *p != Products::Floats && p.operations_per_step() > 0.0));
    }
}
