//! Correct kernels with all kinds of synchronisation, how each is launched, and what it must give. Faults are planted in their texts.

use attnc::ptx::Type;
use attnc::ptx::sim::tensor_map::{Swizzle, TensorMap};
use attnc::ptx::sim::{Device, Launch, Mode, Module, Report, Stats};

/// A buffer of a launch.
pub(crate) enum Given {
    /// A pointer to these bytes.
    Bytes(Vec<u8>),
    /// A pointer to a buffer of so many bytes without values: the result.
    Result(usize),
    /// A map of the tensor in these bytes: elements, extents, bytes between rows, box.
    Map(Vec<u8>, Type, [u64; 2], u64, [u32; 2], Swizzle),
    /// The same of the result.
    ResultMap(usize, Type, [u64; 2], u64, [u32; 2]),
    /// A number.
    Word(u32),
}

/// A kernel with its launch.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    pub(crate) grid: u32,
    pub(crate) threads: u32,
    pub(crate) cluster: u32,
    pub(crate) shared: u32,
    pub(crate) given: Vec<Given>,
    pub(crate) wanted: Vec<f32>,
}

impl Sample {
    /// Runs a text in the kernel's place: the result as floats, or the report.
    pub(crate) fn run(&self, text: &str, mode: Mode) -> Result<(Vec<f32>, Stats), Box<Report>> {
        let module = Module::load(text).unwrap_or_else(|e| panic!("{}: {e}\n{text}", self.name));
        let mut device = Device::new();
        let mut result = (0, 0);
        let mut params: Vec<Vec<u8>> = Vec::new();
        let map = |address: u64, elem: Type, extents: &[u64; 2], stride: u64, window: &[u32; 2], swizzle: Swizzle| {
            let map = TensorMap {
                address,
                elem,
                extents: extents.to_vec(),
                strides: vec![stride],
                window: window.to_vec(),
                steps: vec![1, 1],
                swizzle,
                fill_nan: false,
            };
            map.check().expect("a map");
            map.encode().to_vec()
        };
        for given in &self.given {
            params.push(match given {
                Given::Bytes(data) => {
                    let at = device.alloc(data.len());
                    device.write(at, data).expect("in the buffer");
                    at.to_le_bytes().to_vec()
                }
                Given::Result(bytes) => {
                    result = (device.alloc(*bytes), *bytes);
                    result.0.to_le_bytes().to_vec()
                }
                Given::Map(data, elem, extents, stride, window, swizzle) => {
                    let at = device.alloc(data.len());
                    device.write(at, data).expect("in the buffer");
                    map(at, *elem, extents, *stride, window, *swizzle)
                }
                Given::ResultMap(bytes, elem, extents, stride, window) => {
                    result = (device.alloc(*bytes), *bytes);
                    map(result.0, *elem, extents, *stride, window, Swizzle::None)
                }
                Given::Word(n) => n.to_le_bytes().to_vec(),
            });
        }
        let params: Vec<&[u8]> = params.iter().map(Vec::as_slice).collect();
        let launch = Launch {
            kernel: self.name,
            grid: [self.grid, 1, 1],
            block: [self.threads, 1, 1],
            cluster: (self.cluster > 1).then_some([self.cluster, 1, 1]),
            shared_bytes: self.shared,
            params: &params,
        };
        let stats = device.launch(&module, &launch, mode)?;
        let bytes = device.read(result.0, result.1).expect("in the buffer");
        Ok((bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes"))).collect(), stats))
    }
}

/// Small integers, which `bf16` has exactly, as have `f32` their sums of products.
pub(crate) fn small(seed: u64, n: usize) -> Vec<f32> {
    let mut random = attnc::random::Random::new(seed);
    (0..n).map(|_| random.below(9) as f32 - 4.0).collect()
}

pub(crate) fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub(crate) fn brains(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes()).collect()
}

/// The product of rows of `a` with rows of `b`.
pub(crate) fn product(a: &[f32], b: &[f32], depth: usize) -> Vec<f32> {
    let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>() as f32;
    a.chunks(depth).flat_map(|x| b.chunks(depth).map(move |y| dot(x, y))).collect()
}

/// The head of a kernel of dynamic shared memory `more`.
fn head(name: &str, target: &str, params: &str, threads: u32) -> String {
    let version = if target == "sm_80" { "7.8" } else { "8.0" };
    format!(
        ".version {version}\n.target {target}\n.address_size 64\n.extern .shared .align 1024 .b8 more[];\n\
         .visible .entry {name}({params})\n.reqntid {threads}\n{{\n"
    )
}

/// Tiles of 2 KiB are copied by `cp.async` into two stages in turn; each thread adds what a thread of another warp copied.
pub(crate) fn copies() -> Sample {
    let tiles = 5;
    let text = head(
        "copies",
        "sm_80",
        ".param .u64 .ptr .global .align 16 x, .param .u64 .ptr .global .align 4 y, .param .u32 tiles",
        128,
    ) + "\
.reg .b64 %x, %y, %from;
.reg .b32 %t, %n, %i, %next, %stage, %to, %at, %base, %other;
.reg .f32 %sum, %a, %b, %c, %d;
.reg .pred %done, %more;
ld.param.u64 %x, [x];
ld.param.u64 %y, [y];
ld.param.u32 %n, [tiles];
mov.u32 %t, %tid.x;
mov.u32 %base, more;
mad.lo.u32 %to, %t, 16, %base;
mad.wide.u32 %from, %t, 16, %x;
cp.async.cg.shared.global [%to], [%from], 16;
cp.async.commit_group;
mov.f32 %sum, 0f00000000;
mov.u32 %i, 0;
loop:
setp.ge.u32 %done, %i, %n;
@%done bra finish;
add.u32 %next, %i, 1;
and.b32 %stage, %next, 1;
mad.lo.u32 %to, %stage, 2048, %base;
mad.lo.u32 %to, %t, 16, %to;
setp.lt.u32 %more, %next, %n;
add.u64 %from, %from, 2048;
@%more cp.async.cg.shared.global [%to], [%from], 16;
cp.async.commit_group;
cp.async.wait_group 1;
bar.sync 0;
and.b32 %stage, %i, 1;
mad.lo.u32 %at, %stage, 2048, %base;
xor.b32 %other, %t, 32;
mad.lo.u32 %at, %other, 16, %at;
ld.shared.v4.f32 {%a, %b, %c, %d}, [%at];
add.rn.f32 %a, %a, %b;
add.rn.f32 %c, %c, %d;
add.rn.f32 %a, %a, %c;
add.rn.f32 %sum, %sum, %a;
bar.sync 1;
mov.u32 %i, %next;
bra loop;
finish:
mad.wide.u32 %y, %t, 4, %y;
st.global.f32 [%y], %sum;
ret;
}
";
    let x = small(1, tiles * 512);
    let wanted =
        (0..128).map(|t| (0..tiles).map(|i| x[i * 512 + (t ^ 32) * 4..][..4].iter().sum::<f32>()).sum()).collect();
    Sample {
        name: "copies",
        text,
        grid: 1,
        threads: 128,
        cluster: 1,
        shared: 4096,
        given: vec![Given::Bytes(floats(&x)), Given::Result(512), Given::Word(tiles as u32)],
        wanted,
    }
}

/// A product of 32 x 16 by 16 x 16 with `ldmatrix` and `mma.sync`: each of two warps has 16 rows.
pub(crate) fn matrices() -> Sample {
    let text = head("matrices", "sm_80", ".param .u64 .ptr .global .align 16 a, .param .u64 .ptr .global .align 16 b, .param .u64 .ptr .global .align 16 y", 64)
        + "\
.reg .b64 %a, %b, %y, %from, %away;
.reg .b32 %t, %lane, %warp, %to, %at, %base, %row, %half, %at_b, %row_b, %half_b, %to_row;
.reg .b32 %w0, %w1, %w2, %w3, %a0, %a1, %a2, %a3, %b0, %b1, %b2, %b3;
.reg .f32 %c0, %c1, %c2, %c3, %d0, %d1, %d2, %d3;
.reg .pred %few;
ld.param.u64 %a, [a];
ld.param.u64 %b, [b];
ld.param.u64 %y, [y];
mov.u32 %t, %tid.x;
mov.u32 %lane, %laneid;
shr.u32 %warp, %t, 5;
mov.u32 %base, more;
mad.lo.u32 %to, %t, 16, %base;
mad.wide.u32 %from, %t, 16, %a;
ld.global.v4.b32 {%w0, %w1, %w2, %w3}, [%from];
st.shared.v4.b32 [%to], {%w0, %w1, %w2, %w3};
setp.lt.u32 %few, %t, 32;
mad.wide.u32 %from, %t, 16, %b;
@%few ld.global.v4.b32 {%w0, %w1, %w2, %w3}, [%from];
@%few st.shared.v4.b32 [%to+1024], {%w0, %w1, %w2, %w3};
bar.sync 0;
and.b32 %row, %lane, 15;
shr.u32 %half, %lane, 4;
mad.lo.u32 %at, %warp, 512, %base;
mad.lo.u32 %at, %row, 32, %at;
mad.lo.u32 %at, %half, 16, %at;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%a0, %a1, %a2, %a3}, [%at];
and.b32 %row_b, %lane, 7;
mad.lo.u32 %row_b, %half, 8, %row_b;
mad.lo.u32 %at_b, %row_b, 32, %base;
shr.u32 %half_b, %lane, 3;
and.b32 %half_b, %half_b, 1;
mad.lo.u32 %at_b, %half_b, 16, %at_b;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%b0, %b1, %b2, %b3}, [%at_b+1024];
mov.f32 %c0, 0f00000000;
mov.f32 %c1, 0f00000000;
mov.f32 %c2, 0f00000000;
mov.f32 %c3, 0f00000000;
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%d0, %d1, %d2, %d3}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, {%c0, %c1, %c2, %c3};
shr.u32 %to_row, %lane, 2;
mad.lo.u32 %to_row, %warp, 16, %to_row;
mul.lo.u32 %to_row, %to_row, 64;
and.b32 %half, %lane, 3;
mad.lo.u32 %to_row, %half, 8, %to_row;
cvt.u64.u32 %away, %to_row;
add.u64 %y, %y, %away;
st.global.f32 [%y], %d0;
st.global.f32 [%y+4], %d1;
st.global.f32 [%y+512], %d2;
st.global.f32 [%y+516], %d3;
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%d0, %d1, %d2, %d3}, {%a0, %a1, %a2, %a3}, {%b2, %b3}, {%c0, %c1, %c2, %c3};
st.global.f32 [%y+32], %d0;
st.global.f32 [%y+36], %d1;
st.global.f32 [%y+544], %d2;
st.global.f32 [%y+548], %d3;
ret;
}
";
    let (a, b) = (small(2, 32 * 16), small(3, 16 * 16));
    Sample {
        name: "matrices",
        text,
        grid: 1,
        threads: 64,
        cluster: 1,
        shared: 2048,
        given: vec![Given::Bytes(brains(&a)), Given::Bytes(brains(&b)), Given::Result(2048)],
        wanted: product(&a, &b, 16),
    }
}

fn list(prefix: &str, n: usize) -> String {
    (0..n).map(|i| format!("%{prefix}{i}")).collect::<Vec<_>>().join(", ")
}

/// Stores a warpgroup's 64 x 64 results to `%y`; `%t` is the thread in its group.
fn store_results() -> String {
    let mut out = String::from(
        "shr.u32 %row, %t, 5;\nand.b32 %lane, %t, 31;\nshr.u32 %column, %lane, 2;\nmad.lo.u32 %row, %row, 16, %column;\n\
         and.b32 %column, %lane, 3;\nmul.lo.u32 %column, %column, 8;\nmad.lo.u32 %row, %row, 256, %column;\ncvt.u64.u32 %at, %row;\nadd.u64 %at, %at, %y;\n",
    );
    for i in 0..32 {
        let offset = (8 * (i >> 1 & 1) * 64 + 8 * (i >> 2) + (i & 1)) * 4;
        out.push_str(&format!("st.global.f32 [%at+{offset}], %d{i};\n"));
    }
    out
}

/// Results that begin with 0, so that the verifier finds them written on all ways.
fn zeros() -> String {
    (0..32).map(|i| format!("mov.f32 %d{i}, 0f00000000;\n")).collect()
}

/// Where tiles are described: rows of 128 bytes, swizzled.
const DESCRIBE: &str = "shr.u32 %low, %tile, 4;\nand.b32 %low, %low, 16383;\ncvt.u64.u32 %left, %low;\nor.b64 %left, %left, 4611686293305360384;\n";

/// A product of 64 x (64 n) by its transpose: a producer fills a ring of two stages with copies of boxes, a warpgroup multiplies.
pub(crate) fn ring() -> Sample {
    let tiles = 5usize;
    let d = list("d", 32);
    let mut text = head(
        "ring",
        "sm_90a",
        ".param .align 64 .b8 a[128], .param .align 64 .b8 b[128], .param .u64 .ptr .global .align 16 y, .param .u32 tiles",
        256,
    );
    text.push_str(&format!(".reg .f32 {d};\n"));
    text.push_str(
        "\
.reg .b64 %a, %b, %y, %at, %left, %right, %state;
.reg .b32 %t, %n, %i, %stage, %parity, %full, %empty, %base, %at_full, %at_empty, %tile, %column, %zero, %low, %row, %lane;
.reg .pred %other, %consumes, %done, %ok, %wraps, %adds, %first;
mov.b64 %a, a;
cvta.param.u64 %a, %a;
mov.b64 %b, b;
cvta.param.u64 %b, %b;
ld.param.u64 %y, [y];
ld.param.u32 %n, [tiles];
mov.u32 %t, %tid.x;
mov.u32 %base, more;
add.u32 %full, %base, 32768;
add.u32 %empty, %base, 32784;
mov.u32 %zero, 0;
mov.u32 %i, 0;
mov.u32 %stage, 0;
setp.ne.u32 %other, %t, 0;
@%other bra ready;
mbarrier.init.shared.b64 [%full], 1;
mbarrier.init.shared.b64 [%full+8], 1;
mbarrier.init.shared.b64 [%empty], 4;
mbarrier.init.shared.b64 [%empty+8], 4;
fence.mbarrier_init.release.cluster;
ready:
bar.sync 0;
setp.ge.u32 %consumes, %t, 128;
@%consumes bra consumer;
setmaxnreg.dec.sync.aligned.u32 40;
@%other bra end;
mov.u32 %parity, 1;
produce:
setp.ge.u32 %done, %i, %n;
@%done bra end;
mad.lo.u32 %at_full, %stage, 8, %full;
mad.lo.u32 %at_empty, %stage, 8, %empty;
mad.lo.u32 %tile, %stage, 16384, %base;
wait_empty:
mbarrier.try_wait.parity.shared.b64 %ok, [%at_empty], %parity;
@!%ok bra wait_empty;
mbarrier.arrive.expect_tx.shared.b64 _, [%at_full], 16384;
mul.lo.u32 %column, %i, 64;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%tile], [%a, {%column, %zero}], [%at_full];
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%tile+8192], [%b, {%column, %zero}], [%at_full];
add.u32 %i, %i, 1;
add.u32 %stage, %stage, 1;
setp.eq.u32 %wraps, %stage, 2;
@%wraps mov.u32 %stage, 0;
@%wraps xor.b32 %parity, %parity, 1;
bra produce;
consumer:
setmaxnreg.inc.sync.aligned.u32 232;
sub.u32 %t, %t, 128;
and.b32 %lane, %t, 31;
setp.eq.u32 %first, %lane, 0;
mov.u32 %parity, 0;
ZEROS
consume:
setp.ge.u32 %done, %i, %n;
@%done bra finish;
mad.lo.u32 %at_full, %stage, 8, %full;
mad.lo.u32 %at_empty, %stage, 8, %empty;
mad.lo.u32 %tile, %stage, 16384, %base;
wait_full:
mbarrier.try_wait.parity.shared.b64 %ok, [%at_full], %parity;
@!%ok bra wait_full;
",
    );
    let mut text = text.replace("ZEROS\n", &zeros());
    text.push_str(DESCRIBE);
    text.push_str("add.u64 %right, %left, 512;\nsetp.ne.u32 %adds, %i, 0;\nwgmma.fence.sync.aligned;\n");
    for k in 0..4 {
        let adds = if k == 0 { "%adds" } else { "1" };
        text.push_str(&format!(
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{{d}}}, %left, %right, {adds}, 1, 1, 0, 0;\nadd.u64 %left, %left, 2;\nadd.u64 %right, %right, 2;\n"
        ));
    }
    text.push_str(
        "\
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
@%first mbarrier.arrive.shared.b64 %state, [%at_empty];
add.u32 %i, %i, 1;
add.u32 %stage, %stage, 1;
setp.eq.u32 %wraps, %stage, 2;
@%wraps mov.u32 %stage, 0;
@%wraps xor.b32 %parity, %parity, 1;
bra consume;
finish:
",
    );
    text.push_str(&store_results());
    text.push_str("end:\nret;\n}\n");
    let depth = 64 * tiles;
    let (a, b) = (small(4, 64 * depth), small(5, 64 * depth));
    let map = |data: &[f32]| {
        Given::Map(brains(data), Type::Bf16, [depth as u64, 64], 2 * depth as u64, [64, 64], Swizzle::Bytes128)
    };
    Sample {
        name: "ring",
        text,
        grid: 1,
        threads: 256,
        cluster: 1,
        shared: 32768 + 32,
        given: vec![map(&a), map(&b), Given::Result(64 * 64 * 4), Given::Word(tiles as u32)],
        wanted: product(&a, &b, depth),
    }
}

/// A product of 64 x 64 by 64 x 64 with the left operand from registers and the right one as it lies, depth first, of which the last
/// rows lie outside of the tensor.
pub(crate) fn registers() -> Sample {
    let d = list("d", 32);
    let mut text = head(
        "registers",
        "sm_90a",
        ".param .u64 .ptr .global .align 16 a, .param .align 64 .b8 b[128], .param .u64 .ptr .global .align 16 y",
        128,
    );
    text.push_str(&format!(".reg .f32 {d};\n.reg .b32 {};\n", list("a", 16)));
    text.push_str(
        "\
.reg .b64 %a, %b, %y, %at, %left, %right;
.reg .b32 %t, %base, %full, %tile, %zero, %low, %row, %column, %lane;
.reg .pred %other, %ok;
ld.param.u64 %a, [a];
mov.b64 %b, b;
cvta.param.u64 %b, %b;
ld.param.u64 %y, [y];
mov.u32 %t, %tid.x;
mov.u32 %base, more;
add.u32 %full, %base, 8192;
mov.u32 %zero, 0;
setp.ne.u32 %other, %t, 0;
@%other bra ready;
mbarrier.init.shared.b64 [%full], 1;
fence.proxy.async;
mbarrier.arrive.expect_tx.shared.b64 _, [%full], 8192;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%base], [%b, {%zero, %zero}], [%full];
ready:
bar.sync 0;
shr.u32 %row, %t, 5;
and.b32 %lane, %t, 31;
shr.u32 %column, %lane, 2;
mad.lo.u32 %row, %row, 16, %column;
and.b32 %column, %lane, 3;
mul.lo.u32 %column, %column, 4;
mad.lo.u32 %row, %row, 128, %column;
cvt.u64.u32 %at, %row;
add.u64 %at, %at, %a;
",
    );
    for k in 0..4 {
        for r in 0..4 {
            let offset = 32 * k + 1024 * (r & 1) + 16 * (r >> 1);
            text.push_str(&format!("ld.global.b32 %a{}, [%at+{offset}];\n", 4 * k + r));
        }
    }
    text.push_str(
        "wait:\nmbarrier.try_wait.parity.shared.b64 %ok, [%full], 0;\n@!%ok bra wait;\nmov.u32 %tile, %base;\n",
    );
    text.push_str(DESCRIBE);
    text.push_str(&zeros());
    text.push_str("mov.b64 %right, %left;\nwgmma.fence.sync.aligned;\n");
    for k in 0..4 {
        let a = (0..4).map(|r| format!("%a{}", 4 * k + r)).collect::<Vec<_>>().join(", ");
        let adds = i32::from(k > 0);
        text.push_str(&format!(
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{{d}}}, {{{a}}}, %right, {adds}, 1, 1, 1;\nadd.u64 %right, %right, 128;\n"
        ));
    }
    text.push_str("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n");
    text.push_str(&store_results());
    text.push_str("ret;\n}\n");
    let (a, mut b) = (small(6, 64 * 64), small(7, 64 * 64));
    // The tensor has 60 rows; the copy fills the others with zeros.
    b.truncate(60 * 64);
    let across: Vec<f32> = (0..64 * 64).map(|i| b.get(i % 64 * 64 + i / 64).copied().unwrap_or(0.0)).collect();
    Sample {
        name: "registers",
        text,
        grid: 1,
        threads: 128,
        cluster: 1,
        shared: 8192 + 16,
        given: vec![
            Given::Bytes(brains(&a)),
            Given::Map(brains(&b), Type::Bf16, [64, 60], 128, [64, 64], Swizzle::Bytes128),
            Given::Result(64 * 64 * 4),
        ],
        wanted: product(&a, &across, 64),
    }
}

/// Threads write tiles to shared memory, one of them copies each to a tensor; two tiles through one buffer.
pub(crate) fn stores() -> Sample {
    let text = head("stores", "sm_90", ".param .u64 .ptr .global .align 16 x, .param .align 64 .b8 y[128]", 128)
        + "\
.reg .b64 %x, %y;
.reg .b32 %t, %base, %at, %zero, %row;
.reg .f32 %v;
.reg .pred %first, %again;
ld.param.u64 %x, [x];
mov.b64 %y, y;
cvta.param.u64 %y, %y;
mov.u32 %t, %tid.x;
mov.u32 %base, more;
mov.u32 %zero, 0;
mov.u32 %row, 0;
setp.eq.u32 %first, %t, 0;
mad.wide.u32 %x, %t, 4, %x;
mad.lo.u32 %at, %t, 4, %base;
loop:
ld.global.f32 %v, [%x];
add.u64 %x, %x, 512;
st.shared.f32 [%at], %v;
fence.proxy.async.shared::cta;
bar.sync 0;
@%first cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%y, {%zero, %row}], [%base];
@%first cp.async.bulk.commit_group;
@%first cp.async.bulk.wait_group.read 0;
bar.sync 0;
add.u32 %row, %row, 4;
setp.lt.u32 %again, %row, 8;
@%again bra loop;
ret;
}
";
    let x = small(8, 256);
    Sample {
        name: "stores",
        text,
        grid: 1,
        threads: 128,
        cluster: 1,
        shared: 512,
        given: vec![Given::Bytes(floats(&x)), Given::ResultMap(1024, Type::F32, [32, 8], 128, [32, 4])],
        wanted: x,
    }
}

/// Blocks add up their parts; the last one to come adds up the sums. The counter is the last word of the partial sums.
pub(crate) fn last_block() -> Sample {
    let text = head(
        "last_block",
        "sm_80",
        ".param .u64 .ptr .global .align 4 x, .param .u64 .ptr .global .align 4 sums, .param .u64 .ptr .global .align 4 y",
        64,
    ) + "\
.reg .b64 %x, %sums, %y, %at, %counter;
.reg .b32 %t, %block, %blocks, %bits, %other, %lane, %before, %i, %flag;
.reg .f32 %v, %w, %total;
.reg .pred %leads, %first, %is_last, %done;
.shared .align 4 .b8 parts[8];
.shared .align 4 .b8 said[4];
ld.param.u64 %x, [x];
ld.param.u64 %sums, [sums];
ld.param.u64 %y, [y];
mov.u32 %t, %tid.x;
mov.u32 %block, %ctaid.x;
mov.u32 %blocks, %nctaid.x;
mad.lo.u32 %i, %block, 64, %t;
mad.wide.u32 %at, %i, 4, %x;
ld.global.f32 %v, [%at];
mov.b32 %bits, %v;
";
    let mut text = text;
    for n in [16, 8, 4, 2, 1] {
        text.push_str(&format!(
            "shfl.sync.bfly.b32 %other, %bits, {n}, 31, -1;\nmov.b32 %w, %other;\nadd.rn.f32 %v, %v, %w;\nmov.b32 %bits, %v;\n"
        ));
    }
    text.push_str(
        "\
and.b32 %lane, %t, 31;
setp.eq.u32 %leads, %lane, 0;
shr.u32 %i, %t, 5;
mov.u32 %other, parts;
mad.lo.u32 %other, %i, 4, %other;
@%leads st.shared.f32 [%other], %v;
bar.sync 0;
setp.eq.u32 %first, %t, 0;
mad.wide.u32 %counter, %blocks, 4, %sums;
@!%first bra ask;
ld.shared.f32 %v, [parts];
ld.shared.f32 %w, [parts+4];
add.rn.f32 %v, %v, %w;
mad.wide.u32 %at, %block, 4, %sums;
st.global.f32 [%at], %v;
fence.acq_rel.gpu;
atom.relaxed.gpu.global.add.u32 %before, [%counter], 1;
fence.acq_rel.gpu;
st.shared.u32 [said], %before;
ask:
bar.sync 0;
ld.shared.u32 %flag, [said];
sub.u32 %i, %blocks, 1;
setp.ne.u32 %is_last, %flag, %i;
@%is_last bra end;
@!%first bra end;
mov.f32 %total, 0f00000000;
mov.u32 %i, 0;
again:
setp.ge.u32 %done, %i, %blocks;
@%done bra write;
mad.wide.u32 %at, %i, 4, %sums;
ld.global.f32 %v, [%at];
add.rn.f32 %total, %total, %v;
add.u32 %i, %i, 1;
bra again;
write:
st.global.f32 [%y], %total;
end:
ret;
}
",
    );
    let blocks = 5;
    let x = small(9, 64 * blocks);
    let wanted = vec![x.iter().sum()];
    Sample {
        name: "last_block",
        text,
        grid: blocks as u32,
        threads: 64,
        cluster: 1,
        shared: 0,
        given: vec![Given::Bytes(floats(&x)), Given::Bytes(vec![0; 4 * (blocks + 1)]), Given::Result(4)],
        wanted,
    }
}

/// Two warps take turns with a word of shared memory by two named barriers, one to write and one to read.
pub(crate) fn turns() -> Sample {
    let text = head("turns", "sm_80", ".param .u64 .ptr .global .align 4 y", 64)
        + "\
.reg .b64 %y, %at;
.reg .b32 %t, %lane, %i, %place, %v;
.reg .f32 %f;
.reg .pred %reads, %again;
ld.param.u64 %y, [y];
mov.u32 %t, %tid.x;
and.b32 %lane, %t, 31;
mov.u32 %place, more;
mad.lo.u32 %place, %lane, 4, %place;
mov.u32 %i, 0;
setp.ge.u32 %reads, %t, 32;
@%reads bra reader;
writer:
mad.lo.u32 %v, %i, 100, %lane;
st.shared.u32 [%place], %v;
bar.arrive 1, 64;
bar.sync 2, 64;
add.u32 %i, %i, 1;
setp.lt.u32 %again, %i, 4;
@%again bra writer;
bra end;
reader:
bar.sync 1, 64;
ld.shared.u32 %v, [%place];
bar.arrive 2, 64;
cvt.rn.f32.u32 %f, %v;
mad.lo.u32 %v, %i, 32, %lane;
mad.wide.u32 %at, %v, 4, %y;
st.global.f32 [%at], %f;
add.u32 %i, %i, 1;
setp.lt.u32 %again, %i, 4;
@%again bra reader;
end:
ret;
}
";
    let wanted = (0..128).map(|n| (n / 32 * 100 + n % 32) as f32).collect();
    Sample {
        name: "turns",
        text,
        grid: 1,
        threads: 64,
        cluster: 1,
        shared: 128,
        given: vec![Given::Result(512)],
        wanted,
    }
}

/// Two blocks of a cluster: the first sends a tile to both, each adds its own number, tells the other, and they end together.
pub(crate) fn cluster() -> Sample {
    let text = head("cluster", "sm_90", ".param .align 64 .b8 x[128], .param .u64 .ptr .global .align 4 y", 64)
        + "\
.reg .b64 %x, %y;
.reg .b32 %t, %rank, %other, %base, %full, %told, %at, %zero, %i;
.reg .b16 %both;
.reg .f32 %v, %n;
.reg .pred %first, %sends, %ok;
mov.b64 %x, x;
cvta.param.u64 %x, %x;
ld.param.u64 %y, [y];
mov.u32 %t, %tid.x;
mov.u32 %rank, %cluster_ctarank;
mov.u32 %base, more;
add.u32 %full, %base, 256;
add.u32 %told, %base, 264;
mov.u32 %zero, 0;
mov.b16 %both, 3;
setp.eq.u32 %first, %t, 0;
@!%first bra ready;
mbarrier.init.shared.b64 [%full], 1;
mbarrier.init.shared.b64 [%told], 64;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared.b64 _, [%full], 256;
ready:
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
setp.eq.u32 %sends, %rank, 0;
and.pred %sends, %sends, %first;
@%sends cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%base], [%x, {%zero, %zero}], [%full], %both;
wait:
mbarrier.try_wait.parity.shared.b64 %ok, [%full], 0;
@!%ok bra wait;
mad.lo.u32 %at, %t, 4, %base;
ld.shared.f32 %v, [%at];
cvt.rn.f32.u32 %n, %rank;
add.rn.f32 %v, %v, %n;
mad.lo.u32 %i, %rank, 64, %t;
mad.wide.u32 %y, %i, 4, %y;
st.global.f32 [%y], %v;
xor.b32 %other, %rank, 1;
mapa.shared::cluster.u32 %at, %told, %other;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%at];
wait_told:
mbarrier.try_wait.parity.shared.b64 %ok, [%told], 0;
@!%ok bra wait_told;
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
ret;
}
";
    let x = small(10, 64);
    let wanted = x.iter().copied().chain(x.iter().map(|v| v + 1.0)).collect();
    Sample {
        name: "cluster",
        text,
        grid: 2,
        threads: 64,
        cluster: 2,
        shared: 512,
        given: vec![Given::Map(floats(&x), Type::F32, [32, 2], 128, [32, 2], Swizzle::None), Given::Result(512)],
        wanted,
    }
}

/// All of them.
pub(crate) fn all() -> Vec<Sample> {
    vec![copies(), matrices(), ring(), registers(), stores(), last_block(), turns(), cluster()]
}
