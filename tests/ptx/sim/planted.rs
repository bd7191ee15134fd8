//! Faults that are planted in correct kernels: each is caught, in both orders, whoever goes first.

use attnc::ptx::sim::{Fault, Mode};

use super::kernels::all;
use super::sample::Sample;

use Fault::{
    BadOperand, BarrierMisuse, Deadlock, Divergence, MbarrierMisuse, MissingProxyFence, MissingWait, MissingWgmmaFence,
    OutOfBounds, OverArrival, Race, Uninitialised,
};

/// What a planted fault must give: one of these reports, or, where there is none, another result.
type Wanted = &'static [Fault];
/// Another result.
const OTHER: Wanted = &[];

/// A fault: the kernel; what is replaced, which of its places (from 0), by what; what is reported.
type Planted = (&'static str, &'static str, usize, &'static str, Wanted);

const FAULTS: &[Planted] = &[
    // Copies by groups.
    ("copies", "cp.async.wait_group 1;", 0, "", &[Race]),
    ("copies", "cp.async.wait_group 1;", 0, "cp.async.wait_group 2;", &[Race]),
    ("copies", "cp.async.commit_group;", 1, "", &[Race]),
    ("copies", "bar.sync 0;", 0, "", &[Race]),
    ("copies", "bar.sync 1;", 0, "", &[Race]),
    ("copies", "bar.sync 1;", 0, "bar.sync 1, 64;", &[BarrierMisuse, Race]),
    ("copies", "and.b32 %stage, %next, 1;", 0, "and.b32 %stage, %next, 0;", &[Race, Uninitialised]),
    ("copies", "and.b32 %stage, %i, 1;", 0, "and.b32 %stage, %next, 1;", &[Race, Uninitialised]),
    ("copies", "xor.b32 %other, %t, 32;", 0, "add.u32 %other, %t, 32;", &[Race, Uninitialised]),
    ("copies", "@%more cp.async", 0, "cp.async", &[OutOfBounds]),
    (
        "copies",
        "cp.async.cg.shared.global [%to], [%from], 16;",
        1,
        "cp.async.ca.shared.global [%to], [%from], 8;",
        &[Uninitialised],
    ),
    ("copies", "add.u64 %from, %from, 2048;", 0, "add.u64 %from, %from, 1024;", OTHER),
    ("copies", "setp.ge.u32 %done, %i, %n;", 0, "setp.gt.u32 %done, %i, %n;", OTHER),
    // Matrices of a warp.
    ("matrices", "bar.sync 0;", 0, "", &[Race, Uninitialised]),
    ("matrices", "bar.sync 0;", 0, "bar.warp.sync -1;", &[Race, Uninitialised]),
    ("matrices", "mad.lo.u32 %at, %row, 32, %at;", 0, "mad.lo.u32 %at, %row, 48, %at;", OTHER),
    ("matrices", "[%at_b+1024]", 0, "[%at_b+1536]", &[OutOfBounds, Uninitialised]),
    ("matrices", "{%a0, %a1, %a2, %a3}, {%b0, %b1}", 0, "{%a0, %a2, %a1, %a3}, {%b0, %b1}", OTHER),
    ("matrices", "{%b2, %b3}", 0, "{%b3, %b2}", OTHER),
    (
        "matrices",
        "shr.u32 %to_row, %lane, 2;",
        0,
        "shr.u32 %to_row, %lane, 2;\nsetp.ne.u32 %few, %lane, 3;\n@%few mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%d0, %d1, %d2, %d3}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, {%c0, %c1, %c2, %c3};",
        &[Divergence],
    ),
    // A ring of mbarriers, copies of boxes, products of a warpgroup.
    ("ring", "@!%ok bra wait_full;", 0, "", &[Race]),
    ("ring", "@!%ok bra wait_empty;", 0, "", &[Race, OverArrival]),
    ("ring", "_, [%at_full], 16384;", 0, "_, [%at_full], 8192;", &[Race, OverArrival]),
    ("ring", "_, [%at_full], 16384;", 0, "_, [%at_full], 32768;", &[Deadlock]),
    ("ring", "mov.u32 %parity, 1;", 0, "mov.u32 %parity, 0;", &[Deadlock]),
    ("ring", "mov.u32 %parity, 0;", 0, "mov.u32 %parity, 1;", &[Race, Deadlock]),
    ("ring", "wgmma.fence.sync.aligned;", 0, "", &[MissingWgmmaFence]),
    ("ring", "wgmma.wait_group.sync.aligned 0;", 0, "", &[MissingWait, Race]),
    ("ring", "wgmma.wait_group.sync.aligned 0;", 0, "wgmma.wait_group.sync.aligned 1;", &[MissingWait, Race]),
    ("ring", "wgmma.commit_group.sync.aligned;", 0, "", &[MissingWait, Race]),
    ("ring", "fence.mbarrier_init.release.cluster;", 0, "", &[MissingProxyFence]),
    ("ring", "bar.sync 0;", 0, "", &[Race, MbarrierMisuse]),
    ("ring", "@%first mbarrier.arrive.shared.b64 %state, [%at_empty];", 0, "", &[Deadlock]),
    ("ring", "@%first mbarrier.arrive", 0, "mbarrier.arrive", &[OverArrival, Deadlock, Race]),
    ("ring", "[%empty], 4;", 0, "[%empty], 5;", &[Deadlock]),
    ("ring", "[%empty], 4;", 0, "[%empty], 3;", &[OverArrival, Race, Deadlock]),
    ("ring", "@%wraps xor.b32 %parity, %parity, 1;", 0, "", &[Race, OverArrival]),
    ("ring", "@%wraps xor.b32 %parity, %parity, 1;", 1, "", &[Race, Deadlock, OverArrival]),
    (
        "ring",
        "mad.lo.u32 %at_empty, %stage, 8, %empty;",
        0,
        "mad.lo.u32 %at_empty, %stage, 8, %full;",
        &[Race, Deadlock],
    ),
    ("ring", "add.u64 %right, %left, 512;", 0, "add.u64 %right, %left, 448;", OTHER),
    ("ring", "add.u64 %left, %left, 2;", 1, "add.u64 %left, %left, 4;", OTHER),
    (
        "ring",
        "add.u64 %right, %left, 512;",
        0,
        "cvt.u64.u32 %right, %t;\nshr.u64 %right, %right, 5;\nadd.u64 %right, %right, %left;",
        &[Divergence],
    ),
    (
        "ring",
        "[%tile+8192], [%b, {%column, %zero}], [%at_full];",
        0,
        "[%tile+8192], [%b, {%column, %zero}], [%full];",
        &[Race, Deadlock, OverArrival],
    ),
    // The left operand from registers.
    ("registers", "fence.proxy.async;", 0, "", &[MissingProxyFence]),
    ("registers", "@!%ok bra wait;", 0, "", &[Race]),
    ("registers", "wgmma.fence.sync.aligned;", 0, "", &[MissingWgmmaFence]),
    ("registers", "wgmma.fence.sync.aligned;", 0, "wgmma.fence.sync.aligned;\nmov.b32 %a7, %a6;", &[MissingWgmmaFence]),
    (
        "registers",
        "wgmma.commit_group.sync.aligned;",
        0,
        "wgmma.commit_group.sync.aligned;\nmov.b32 %a7, 0;",
        &[MissingWait],
    ),
    ("registers", "wgmma.wait_group.sync.aligned 0;", 0, "", &[MissingWait]),
    ("registers", "_, [%full], 8192;", 0, "_, [%full], 7680;", &[OverArrival, Race]),
    ("registers", "1, 1, 1;", 0, "1, 1, 0;", OTHER),
    ("registers", "add.u64 %right, %right, 128;", 0, "add.u64 %right, %right, 64;", OTHER),
    // Copies of boxes to global memory.
    ("stores", "fence.proxy.async.shared::cta;", 0, "", &[MissingProxyFence]),
    ("stores", "bar.sync 0;", 0, "", &[Race, Uninitialised]),
    ("stores", "bar.sync 0;", 1, "", &[Race]),
    ("stores", "@%first cp.async.bulk.wait_group.read 0;", 0, "", &[Race]),
    ("stores", "@%first cp.async.bulk.commit_group;", 0, "", &[Race]),
    ("stores", "add.u32 %row, %row, 4;", 0, "add.u32 %row, %row, 5;", OTHER),
    ("adds", "@%first cp.async.bulk.wait_group 0;", 0, "", &[Race]),
    // Blocks that wait for each other.
    ("last_block", "fence.acq_rel.gpu;", 0, "", &[Race]),
    ("last_block", "fence.acq_rel.gpu;", 1, "", &[Race]),
    ("last_block", "atom.relaxed.gpu.global", 0, "atom.relaxed.cta.global", &[Race]),
    ("last_block", "bar.sync 0;", 0, "", &[Race, Uninitialised]),
    ("last_block", "bar.sync 0;", 1, "", &[Race, Uninitialised]),
    ("last_block", "2, 31, -1;", 0, "2, 31, 65535;", &[Divergence]),
    ("last_block", "@!%first bra end;", 0, "", &[Race]),
    // Named barriers.
    ("alternating", "bar.sync 2, 64;", 0, "", &[Race, BarrierMisuse]),
    ("alternating", "bar.sync 1, 64;", 0, "", &[Race, Uninitialised, BarrierMisuse]),
    ("alternating", "bar.arrive 2, 64;", 0, "bar.arrive 3, 64;", &[BarrierMisuse, Deadlock]),
    ("alternating", "bar.arrive 1, 64;", 0, "bar.arrive 1, 96;", &[BarrierMisuse, Deadlock]),
    ("alternating", "bar.arrive 1, 64;", 0, "setp.lt.u32 %reads, %lane, 16;\n@%reads bar.arrive 1, 64;", &[Divergence]),
    // Clusters.
    ("cluster", "barrier.cluster.wait.acquire.aligned;", 0, "", &[MbarrierMisuse, Race]),
    ("cluster", "@!%ok bra wait;", 0, "", &[Race]),
    ("cluster", "mov.b16 %both, 3;", 0, "mov.b16 %both, 1;", &[Deadlock]),
    ("cluster", "[%told], 64;", 0, "[%told], 32;", &[OverArrival, Deadlock]),
    ("cluster", "fence.mbarrier_init.release.cluster;", 0, "", &[MissingProxyFence]),
    ("cluster", "xor.b32 %other, %rank, 1;", 0, "add.u32 %other, %rank, 1;", &[BadOperand]),
];

/// The text with the fault.
fn planted(sample: &Sample, (_, from, which, to, _): &Planted) -> String {
    let at = sample.text.match_indices(from).nth(*which).unwrap_or_else(|| panic!("{}: no `{from}`", sample.name)).0;
    format!("{}{to}{}", &sample.text[..at], &sample.text[at + from.len()..])
}

#[test]
fn every_planted_fault_is_caught() {
    assert!(FAULTS.len() >= 40);
    let samples = all();
    let mut missed = Vec::new();
    for fault in FAULTS {
        let sample = samples.iter().find(|s| s.name == fault.0).expect("a kernel");
        let text = planted(sample, fault);
        for seed in 0..3 {
            for mode in [Mode::EAGER.seeded(seed), Mode::LATEST.seeded(seed)] {
                let said = match sample.run(&text, mode) {
                    Err(r) if fault.4.contains(&r.fault) => continue,
                    // Who reads too early meets bytes that are not there yet.
                    Err(r) if fault.4.contains(&Race) && r.fault == Uninitialised => continue,
                    Err(r) if fault.4.is_empty() && matches!(r.fault, OutOfBounds | Uninitialised | Race) => continue,
                    Err(r) => r.to_string(),
                    Ok((found, _)) if found != sample.wanted => {
                        if fault.4.is_empty() {
                            continue;
                        }
                        "another result, and no report".to_string()
                    }
                    Ok(_) => "nothing".to_string(),
                };
                missed.push(format!("{}: `{}` ({}) -> `{}`, {mode:?}: {said}", fault.0, fault.1, fault.2, fault.3));
            }
        }
    }
    assert!(missed.is_empty(), "{} of {}:\n{}", missed.len(), FAULTS.len(), missed.join("\n"));
}
