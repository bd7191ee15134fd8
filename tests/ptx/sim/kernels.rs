//! Correct kernels with all kinds of synchronisation, how each is launched, and what it must give. Faults are planted in their texts.

use super::hopper::{adds, cluster, registers, ring, stores};
use super::sample::{Given, Sample, brains, floats, head, product, small};

/// Tiles of 2 KiB are copied by `cp.async` into two stages, one after the other; each thread adds what a thread of another warp copied.
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

/// Two warps alternate at a word of shared memory by two named barriers, one to write and one to read.
pub(crate) fn alternating() -> Sample {
    let text = head("alternating", "sm_80", ".param .u64 .ptr .global .align 4 y", 64)
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
        name: "alternating",
        text,
        grid: 1,
        threads: 64,
        cluster: 1,
        shared: 128,
        given: vec![Given::Result(512)],
        wanted,
    }
}

/// All of them.
pub(crate) fn all() -> Vec<Sample> {
    vec![copies(), matrices(), ring(), registers(), stores(), adds(), last_block(), alternating(), cluster()]
}
