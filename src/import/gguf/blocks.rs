//! Quantised blocks of GGUF files: `scale * integer - minimum` for each element, in `f32`, as
//! llama.cpp computes it.
//!
//! In: the bytes of a block. Out: its elements. The formats differ in how many bits an integer has,
//! how many elements share a scale, and where the bits are: a row of [`FORMATS`] each.

use half::f16;

/// The layout of a quantised type.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    pub(super) number: u32,
    pub(super) name: &'static str,
    /// Elements of a block, and its bytes.
    pub(super) size: (usize, usize),
    /// Number of elements that share a scale.
    group: usize,
    /// Scale and minimum of a group.
    scale: fn(&[u8], usize) -> (f32, f32),
    /// The integer of an element.
    integer: fn(&[u8], usize) -> i32,
}

/// The quantised types that are read, by their numbers in files.
pub(super) static FORMATS: [Blocks; 10] = [
    Blocks {
        number: 2,
        name: "Q4_0",
        size: (32, 18),
        group: 32,
        scale: |b, _| (half(b, 0), 0.0),
        integer: |b, i| nibble(&b[2..], i) - 8,
    },
    Blocks {
        number: 3,
        name: "Q4_1",
        size: (32, 20),
        group: 32,
        scale: |b, _| (half(b, 0), -half(b, 2)),
        integer: |b, i| nibble(&b[4..], i),
    },
    Blocks {
        number: 6,
        name: "Q5_0",
        size: (32, 22),
        group: 32,
        scale: |b, _| (half(b, 0), 0.0),
        integer: |b, i| (nibble(&b[6..], i) | bits(&b[2..], i / 8, i % 8, 1) << 4) - 16,
    },
    Blocks {
        number: 7,
        name: "Q5_1",
        size: (32, 24),
        group: 32,
        scale: |b, _| (half(b, 0), -half(b, 2)),
        integer: |b, i| nibble(&b[8..], i) | bits(&b[4..], i / 8, i % 8, 1) << 4,
    },
    Blocks {
        number: 8,
        name: "Q8_0",
        size: (32, 34),
        group: 32,
        scale: |b, _| (half(b, 0), 0.0),
        integer: |b, i| i32::from(b[2 + i].cast_signed()),
    },
    Blocks {
        number: 10,
        name: "Q2_K",
        size: (256, 84),
        group: 16,
        scale: |b, group| (half(b, 80) * small(b, group, 0, 4), half(b, 82) * small(b, group, 4, 4)),
        integer: |b, i| pair(&b[16..], i),
    },
    Blocks {
        number: 11,
        name: "Q3_K",
        size: (256, 110),
        group: 16,
        scale: |b, group| {
            let low = bits(&b[96..], group % 8, group / 8 * 4, 4);
            let high = bits(&b[104..], group % 4, group / 4 * 2, 2);
            (half(b, 108) * ((low | high << 4) - 32) as f32, 0.0)
        },
        integer: |b, i| (pair(&b[32..], i) | bits(b, i % 32, i / 32, 1) << 2) - 4,
    },
    Blocks {
        number: 12,
        name: "Q4_K",
        size: (256, 144),
        group: 32,
        scale: six_bits,
        integer: |b, i| halves(&b[16..], i, 32),
    },
    Blocks {
        number: 13,
        name: "Q5_K",
        size: (256, 176),
        group: 32,
        scale: six_bits,
        integer: |b, i| halves(&b[48..], i, 32) | bits(&b[16..], i % 32, i / 32, 1) << 4,
    },
    Blocks {
        number: 14,
        name: "Q6_K",
        size: (256, 210),
        group: 16,
        scale: |b, group| (half(b, 208) * f32::from(b[192 + group].cast_signed()), 0.0),
        integer: |b, i| (halves(b, i, 64) | pair(&b[128..], i) << 4) - 32,
    },
];

impl Blocks {
    /// Appends the elements of whole blocks, as bytes of `f32`.
    pub(super) fn floats(&self, data: &[u8], out: &mut Vec<u8>) {
        for block in data.chunks_exact(self.size.1) {
            for group in 0..self.size.0 / self.group {
                let (scale, minimum) = (self.scale)(block, group);
                let all = group * self.group..(group + 1) * self.group;
                all.for_each(|i| out.extend((scale * (self.integer)(block, i) as f32 - minimum).to_le_bytes()));
            }
        }
    }
}

fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// `count` bits of a byte, from `shift` on.
fn bits(bytes: &[u8], at: usize, shift: usize, count: u32) -> i32 {
    i32::from(bytes[at]) >> shift & ((1 << count) - 1)
}

fn small(bytes: &[u8], at: usize, shift: usize, count: u32) -> f32 {
    bits(bytes, at, shift, count) as f32
}

/// 4 bits, of a block of 32.
fn nibble(bytes: &[u8], i: usize) -> i32 {
    halves(bytes, i, 16)
}

/// 4 bits: of each `2 * width` elements, the first ones have the lower bits of `width` bytes.
fn halves(bytes: &[u8], i: usize, width: usize) -> i32 {
    bits(bytes, i / (2 * width) * width + i % width, i / width % 2 * 4, 4)
}

/// 2 bits: of each 128 elements, the first 32 have the lowest bits of 32 bytes.
fn pair(bytes: &[u8], i: usize) -> i32 {
    bits(bytes, i / 128 * 32 + i % 32, i / 32 % 4 * 2, 2)
}

/// Scale and minimum of 6 bits each. The bytes of the first four groups also have the upper two
/// bits of the last four.
fn six_bits(block: &[u8], group: usize) -> (f32, f32) {
    let b = &block[4..16];
    let (scale, minimum) = match group {
        0..4 => (bits(b, group, 0, 6), bits(b, group + 4, 0, 6)),
        _ => (
            bits(b, group + 4, 0, 4) | bits(b, group - 4, 6, 2) << 4,
            bits(b, group + 4, 4, 4) | bits(b, group, 6, 2) << 4,
        ),
    };
    (half(block, 0) * scale as f32, half(block, 2) * minimum as f32)
}
