//! Every kind of `mma.sync` and `wgmma`: results against sums of products, elements put where the language's description says.

use attnc::ptx::sim::{Device, Launch, Mode, Module};
use attnc::random::Random;

/// Types of elements.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Elem {
    Bf16,
    F16,
    Tf32,
    S8,
    U8,
}

impl Elem {
    fn bits(self) -> usize {
        match self {
            Elem::Bf16 | Elem::F16 => 16,
            Elem::Tf32 => 32,
            Elem::S8 | Elem::U8 => 8,
        }
    }

    /// A small integer, as bits.
    fn encode(self, v: i32) -> u32 {
        match self {
            Elem::Bf16 => (v as f32).to_bits() >> 16,
            Elem::F16 => u32::from(half::f16::from_f32(v as f32).to_bits()),
            Elem::Tf32 => (v as f32).to_bits(),
            Elem::S8 | Elem::U8 => v as u32 & 0xff,
        }
    }

    fn some(self, random: &mut Random) -> i32 {
        if self == Elem::U8 { random.below(200) as i32 } else { random.below(9) as i32 - 4 }
    }
}

/// Packs the elements of a fragment into words, the first in the lowest bits.
fn pack(elem: Elem, values: &[i32]) -> Vec<u32> {
    let per = 32 / elem.bits();
    values
        .chunks(per)
        .map(|c| c.iter().enumerate().fold(0, |w, (i, v)| w | elem.encode(*v) << (i * elem.bits())))
        .collect()
}

/// Where element `i` of a lane's fragment of A is: row and column (PTX ISA, "Matrix Fragments for mma", a table for each shape).
fn place_of_a(elem: Elem, k: usize, lane: usize, i: usize) -> (usize, usize) {
    let (g, q) = (lane / 4, lane % 4);
    match (elem.bits(), k) {
        (16, 16) => {
            (if i < 2 || (4..6).contains(&i) { g } else { g + 8 }, 2 * q + (i & 1) + if i >= 4 { 8 } else { 0 })
        }
        (16, _) => (if i < 2 { g } else { g + 8 }, 2 * q + (i & 1)),
        (32, 8) => (g + 8 * (i & 1), if i < 2 { q } else { q + 4 }),
        (32, _) => (if i == 0 { g } else { g + 8 }, q),
        (_, 32) => {
            (if i < 4 || (8..12).contains(&i) { g } else { g + 8 }, 4 * q + (i & 3) + if i >= 8 { 16 } else { 0 })
        }
        _ => (if i < 4 { g } else { g + 8 }, 4 * q + (i & 3)),
    }
}

/// The same of B: depth and column.
fn place_of_b(elem: Elem, lane: usize, i: usize) -> (usize, usize) {
    let (g, q) = (lane / 4, lane % 4);
    match elem.bits() {
        16 => (2 * q + (i & 1) + if i >= 2 { 8 } else { 0 }, g),
        32 => (q + 4 * i, g),
        _ => (4 * q + (i & 3) + if i >= 4 { 16 } else { 0 }, g),
    }
}

fn place_of_d(lane: usize, i: usize) -> (usize, usize) {
    (lane / 4 + if i >= 2 { 8 } else { 0 }, 2 * (lane % 4) + (i & 1))
}

/// Runs a text with a buffer of words; what is then in another of so many.
fn run(text: &str, threads: u32, shared: u32, x: &[u32], n: usize, mode: Mode) -> Vec<u32> {
    let module = Module::load(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut device = Device::new();
    let (a, b) = (device.alloc(4 * x.len()), device.alloc(4 * n));
    device.write(a, &x.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>()).expect("in the buffer");
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    let launch = Launch {
        kernel: "k",
        grid: [1; 3],
        block: [threads, 1, 1],
        cluster: None,
        shared_bytes: shared,
        cooperative: false,
        params: &[&a, &b],
    };
    device.launch(&module, &launch, mode).unwrap_or_else(|r| panic!("{r}\n{text}"));
    let bytes = device.read(u64::from_le_bytes(b), 4 * n).expect("in the buffer");
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().expect("4 bytes"))).collect()
}

fn names(prefix: &str, n: usize) -> String {
    (0..n).map(|i| format!("%{prefix}{i}")).collect::<Vec<_>>().join(", ")
}

#[test]
fn each_kind_of_mma_multiplies() {
    use Elem::{Bf16, F16, S8, Tf32, U8};
    let kinds = [
        ("m16n8k16.row.col.f32.bf16.bf16.f32", 16, Bf16, Bf16),
        ("m16n8k8.row.col.f32.bf16.bf16.f32", 8, Bf16, Bf16),
        ("m16n8k16.row.col.f32.f16.f16.f32", 16, F16, F16),
        ("m16n8k8.row.col.f32.f16.f16.f32", 8, F16, F16),
        ("m16n8k16.row.col.f16.f16.f16.f16", 16, F16, F16),
        ("m16n8k8.row.col.f32.tf32.tf32.f32", 8, Tf32, Tf32),
        ("m16n8k4.row.col.f32.tf32.tf32.f32", 4, Tf32, Tf32),
        ("m16n8k32.row.col.s32.s8.s8.s32", 32, S8, S8),
        ("m16n8k32.row.col.s32.u8.s8.s32", 32, U8, S8),
        ("m16n8k32.row.col.s32.s8.u8.s32", 32, S8, U8),
        ("m16n8k32.row.col.s32.u8.u8.s32", 32, U8, U8),
        ("m16n8k16.row.col.s32.s8.s8.s32", 16, S8, S8),
    ];
    for (kind, k, ta, tb) in kinds {
        let mut random = Random::new(7);
        let a: Vec<i32> = (0..16 * k).map(|_| ta.some(&mut random)).collect();
        let b: Vec<i32> = (0..k * 8).map(|_| tb.some(&mut random)).collect();
        let c: Vec<i32> = (0..16 * 8).map(|_| random.below(9) as i32 - 4).collect();
        let is_half = kind.contains(".f16.f16.f16.f16");
        let is_integer = kind.contains("s32");
        let encode_c = |v: i32| if is_integer { v as u32 } else { (v as f32).to_bits() };
        let mut x = Vec::new();
        for lane in 0..32 {
            let fragment: Vec<i32> =
                (0..16 * k / 32).map(|i| place_of_a(ta, k, lane, i)).map(|(r, c)| a[r * k + c]).collect();
            x.extend(pack(ta, &fragment));
            let fragment: Vec<i32> =
                (0..8 * k / 32).map(|i| place_of_b(tb, lane, i)).map(|(r, c)| b[r * 8 + c]).collect();
            x.extend(pack(tb, &fragment));
            let fragment: Vec<i32> = (0..4).map(|i| place_of_d(lane, i)).map(|(r, col)| c[r * 8 + col]).collect();
            x.extend(if is_half { pack(F16, &fragment) } else { fragment.iter().map(|v| encode_c(*v)).collect() });
        }
        let (na, nb, nd) = (16 * k * ta.bits() / 1024, 8 * k * tb.bits() / 1024, if is_half { 2 } else { 4 });
        let each = na + nb + nd;
        let d_class = if is_half || is_integer { ".b32" } else { ".f32" };
        let mut declared = format!(
            ".reg .b32 {}, {};\n.reg {d_class} {}, {};\n",
            names("a", na),
            names("b", nb),
            names("c", nd),
            names("e", nd)
        );
        declared.push_str(".reg .b64 %at;\n");
        let mut body = format!("mad.wide.u32 %at, %t, {}, %x;\n", 4 * each);
        for (n, name) in (0..na)
            .map(|i| format!("%a{i}"))
            .chain((0..nb).map(|i| format!("%b{i}")))
            .chain((0..nd).map(|i| format!("%c{i}")))
            .enumerate()
        {
            let ty = if name.starts_with("%c") { d_class } else { ".b32" };
            body.push_str(&format!("ld.global{ty} {name}, [%at+{}];\n", 4 * n));
        }
        body.push_str(&format!(
            "mma.sync.aligned.{kind} {{{}}}, {{{}}}, {{{}}}, {{{}}};\nmad.wide.u32 %at, %t, {}, %y;\n",
            names("e", nd),
            names("a", na),
            names("b", nb),
            names("c", nd),
            4 * nd
        ));
        for i in 0..nd {
            body.push_str(&format!("st.global{d_class} [%at+{}], %e{i};\n", 4 * i));
        }
        let found = run(&super::text("sm_80", 32, &declared, &body), 32, 0, &x, 32 * nd, Mode::EAGER);
        for lane in 0..32 {
            for i in 0..4 {
                let (row, column) = place_of_d(lane, i);
                let wanted: i32 = c[row * 8 + column] + (0..k).map(|n| a[row * k + n] * b[n * 8 + column]).sum::<i32>();
                let found = if is_half {
                    let word = found[lane * 2 + i / 2] >> (16 * (i % 2));
                    half::f16::from_bits(word as u16).to_f32() as i32
                } else if is_integer {
                    found[lane * 4 + i] as i32
                } else {
                    f32::from_bits(found[lane * 4 + i]) as i32
                };
                assert_eq!(found, wanted, "{kind}: lane {lane}, element {i}");
            }
        }
    }
}

/// How an operand of `wgmma` lies: the swizzle's bytes (0 for none), and whether its rows are contiguous (MN-major).
#[derive(Clone, Copy, Debug)]
struct Laid {
    swizzle: usize,
    transposed: bool,
}

impl Laid {
    /// The byte of an element of `rows` x `depth`, and a descriptor's distances in bytes. Tiles of whole swizzles follow each other.
    fn byte(self, elem: usize, row: usize, k: usize, rows: usize) -> usize {
        let (wide, tall) = if self.transposed { (row, k) } else { (k, row) };
        let span = if self.swizzle == 0 { 16 } else { self.swizzle };
        let per = span / elem;
        // Parts of `span` bytes by 8 lines; those along the lines' direction first.
        let lines = if self.transposed { 32 / elem } else { rows };
        let part = wide / per * (lines / 8) + tall / 8;
        let linear = part * 8 * span + tall % 8 * span + wide % per * elem;
        match self.swizzle {
            0 => linear,
            s => linear ^ (linear >> 7 & (s / 16 - 1)) << 4,
        }
    }

    fn descriptor(self, elem: usize, rows: usize) -> u64 {
        let span = if self.swizzle == 0 { 16 } else { self.swizzle };
        let lines = if self.transposed { 32 / elem } else { rows };
        // Between parts along the contiguous direction, and between groups of 8 lines.
        let (along, down) = (lines / 8 * 8 * span, 8 * span);
        let (leading, stride) = if self.swizzle == 0 && self.transposed { (down, along) } else { (along, down) };
        let mode = match self.swizzle {
            0 => 0u64,
            128 => 1,
            64 => 2,
            _ => 3,
        };
        mode << 62 | (stride as u64 >> 4) << 32 | (leading as u64 >> 4) << 16
    }
}

#[test]
fn each_kind_of_wgmma_multiplies() {
    use Elem::{Bf16, F16, S8, Tf32};
    let k_major = |swizzle| Laid { swizzle, transposed: false };
    let mn_major = |swizzle| Laid { swizzle, transposed: true };
    let cases = [
        ("f32.bf16.bf16", Bf16, 64, k_major(128), k_major(128)),
        ("f32.bf16.bf16", Bf16, 24, k_major(64), k_major(32)),
        ("f32.f16.f16", F16, 8, k_major(0), k_major(0)),
        ("f32.bf16.bf16", Bf16, 128, mn_major(128), mn_major(128)),
        ("f32.f16.f16", F16, 64, mn_major(64), mn_major(32)),
        ("f32.bf16.bf16", Bf16, 32, mn_major(0), mn_major(0)),
        ("f16.f16.f16", F16, 32, k_major(128), mn_major(64)),
        ("f32.tf32.tf32", Tf32, 16, k_major(128), k_major(64)),
        ("s32.s8.s8", S8, 32, k_major(32), k_major(128)),
    ];
    for (kind, elem, n, of_a, of_b) in cases {
        let mut random = Random::new(n as u64);
        let bytes = elem.bits() / 8;
        let k = 32 / bytes;
        let a: Vec<i32> = (0..64 * k).map(|_| elem.some(&mut random)).collect();
        let b: Vec<i32> = (0..n * k).map(|_| elem.some(&mut random)).collect();
        // 16 KiB for A, and as much for B: what a tile leaves free is never read.
        let mut image = vec![0u8; 32768];
        for (matrix, rows, laid, from) in [(&a, 64, of_a, 0), (&b, n, of_b, 16384)] {
            for row in 0..rows {
                for depth in 0..k {
                    let at = from + laid.byte(bytes, row, depth, rows);
                    image[at..at + bytes].copy_from_slice(&elem.encode(matrix[row * k + depth]).to_le_bytes()[..bytes]);
                }
            }
        }
        let x: Vec<u32> = image.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().expect("4 bytes"))).collect();
        let is_half = kind.starts_with("f16");
        let registers = if is_half { n / 4 } else { n / 2 };
        let class = if is_half || elem == S8 { ".b32" } else { ".f32" };
        let zero = if class == ".f32" { "0f00000000" } else { "0" };
        let declared = format!(
            ".reg {class} {};\n.reg .b64 %left, %right;\n.reg .b32 %to;\n.reg .b64 %from;\n",
            names("e", registers)
        );
        let mut body = String::from(
            "mov.u32 %r0, more;\nmad.lo.u32 %to, %t, 16, %r0;\nmad.wide.u32 %from, %t, 16, %x;\nmov.u32 %r1, 0;\ncopy:\nld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%from];\nst.shared.v4.u32 [%to], {%r2, %r3, %r4, %r5};\nadd.u64 %from, %from, 2048;\nadd.u32 %to, %to, 2048;\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p0, %r1, 16;\n@%p0 bra copy;\nfence.proxy.async;\nbar.sync 0;\n",
        );
        for (name, descriptor, from) in
            [("left", of_a.descriptor(bytes, 64), 0), ("right", of_b.descriptor(bytes, n), 16384)]
        {
            body.push_str(&format!("add.u32 %r1, %r0, {from};\nshr.u32 %r1, %r1, 4;\ncvt.u64.u32 %{name}, %r1;\nor.b64 %{name}, %{name}, {};\n", descriptor as i64));
        }
        for i in 0..registers {
            body.push_str(&format!("mov{class} %e{i}, {zero};\n"));
        }
        let scales = if elem == S8 { "" } else { ", 1, 1" };
        let flag = |laid: Laid| u8::from(laid.transposed);
        let transposes = if bytes == 2 { format!(", {}, {}", flag(of_a), flag(of_b)) } else { String::new() };
        body.push_str(&format!(
            "wgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned.m64n{n}k{k}.{kind} {{{0}}}, %left, %right, 1{scales}{transposes};\n\
             wgmma.mma_async.sync.aligned.m64n{n}k{k}.{kind} {{{0}}}, %left, %right, 1{scales}{transposes};\n\
             wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\nmad.wide.u32 %d0, %t, {1}, %y;\n",
            names("e", registers),
            4 * registers
        ));
        for i in 0..registers {
            body.push_str(&format!("st.global{class} [%d0+{}], %e{i};\n", 4 * i));
        }
        let text = super::text("sm_90a", 128, &declared, &body);
        for mode in [Mode::EAGER, Mode::LATEST] {
            let found = run(&text, 128, 32768, &x, 128 * registers, mode);
            for thread in 0..128 {
                for i in 0..n / 2 {
                    let row = 16 * (thread / 32) + thread % 32 / 4 + 8 * (i >> 1 & 1);
                    let column = 8 * (i >> 2) + 2 * (thread & 3) + (i & 1);
                    let wanted = 2 * (0..k).map(|d| a[row * k + d] * b[column * k + d]).sum::<i32>();
                    let found = match class {
                        ".f32" => f32::from_bits(found[thread * registers + i]) as i32,
                        _ if is_half => {
                            let word = found[thread * registers + i / 2] >> (16 * (i % 2));
                            half::f16::from_bits(word as u16).to_f32() as i32
                        }
                        _ => found[thread * registers + i] as i32,
                    };
                    assert_eq!(found, wanted, "{kind} n{n} {of_a:?} {of_b:?}: thread {thread}, element {i}");
                }
            }
        }
    }
}
