//! Correct kernels of what Hopper has: mbarriers, copies of boxes, products of warpgroups, clusters.

use attnc::ptx::{Swizzle, Type};

use super::sample::{Given, Sample, brains, floats, head, product, small};

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

/// The same with each tile copied, and then added to what is there.
pub(crate) fn adds() -> Sample {
    let sample = stores();
    let store = "@%first cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%y, {%zero, %row}], [%base];\n";
    let add =
        "@%first cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%y, {%zero, %row}], [%base];\n";
    let both = format!("{store}@%first cp.async.bulk.commit_group;\n@%first cp.async.bulk.wait_group 0;\n{add}");
    let text = sample.text.replace(store, &both).replace("entry stores(", "entry adds(");
    let text = text.replace("loop:\n", "prefetch.tensormap [%y];\nloop:\n");
    let wanted = sample.wanted.iter().map(|v| 2.0 * v).collect();
    Sample { name: "adds", text, wanted, ..sample }
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
