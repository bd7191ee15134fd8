//! Instructions that results do not depend on, or little: hints, fences, policies, registers of a warp, ends of threads.

use super::{report, words};
use attnc::ptx::sim::Fault;

/// Each thread writes its number, with instructions before that change nothing.
#[test]
fn hints_change_nothing() {
    let store = "mad.wide.u32 %d0, %t, 4, %y;\nst.global.u32 [%d0], %t;";
    let wanted: Vec<u32> = (0..128).collect();
    let sm_80 = [
        "prefetch.global.L2 [%x];\nprefetch.global.L1 [%x];",
        "createpolicy.fractional.L2::evict_first.b64 %d1, 0f3F800000;\ncreatepolicy.fractional.L2::evict_last.b64 %d2, 0f3F000000;",
        "fence.acq_rel.cta;\nfence.acq_rel.gpu;\nfence.acq_rel.sys;\nfence.sc.gpu;",
        "cp.async.wait_all;",
        "bra.uni on;\non:",
    ];
    let pointer = "cvta.to.global.u64 %d1, %x;\nsub.u64 %d1, %d1, %x;\ncvt.u32.u64 %r1, %d1;\nadd.u32 %t, %t, %r1;";
    for hint in sm_80.into_iter().chain([pointer]) {
        assert_eq!(words("sm_80", 128, "", &format!("{hint}\n{store}"), &[0], 128), wanted, "{hint}");
    }
    let hopper = [
        "setmaxnreg.dec.sync.aligned.u32 40;",
        "griddepcontrol.wait;\ngriddepcontrol.launch_dependents;",
        "fence.proxy.async;\nfence.proxy.async.shared::cta;\nfence.proxy.async.shared::cluster;\nfence.acq_rel.cluster;",
    ];
    for hint in hopper {
        assert_eq!(words("sm_90a", 128, "", &format!("{hint}\n{store}"), &[0], 128), wanted, "{hint}");
    }
    // Threads that end, one way or the other, do no more.
    for end in ["exit;", "ret;"] {
        let body = format!("{store}\nsetp.lt.u32 %p0, %t, 200;\n@%p0 {end}\ntrap;");
        assert_eq!(words("sm_80", 128, "", &body, &[0], 128), wanted, "{end}");
    }
    assert_eq!(report("sm_80", 32, "", "trap;", 1).fault, Fault::Trap);
}

/// One lane of a warp is elected, and only one; halves of registers are taken apart and put together.
#[test]
fn lanes_are_elected_and_registers_are_halved() {
    let store = "mad.wide.u32 %d0, %t, 4, %y;\nst.global.u32 [%d0], %r0;";
    let body = format!("elect.sync %r1|%p0, -1;\nselp.b32 %r0, 1, 0, %p0;\n{store}");
    let elected = words("sm_90", 64, "", &body, &[0], 64);
    assert_eq!([elected[..32].iter().sum::<u32>(), elected[32..].iter().sum()], [1, 1]);
    let body = format!(
        "mad.lo.u32 %r1, %t, 65537, 131072;\nmov.b32 {{%h0, %h1}}, %r1;\nmov.b32 %r2, {{%h1, %h0}};\n\
         mov.b64 %d1, {{%r2, %r1}};\nmov.b64 {{%r3, %r4}}, %d1;\nsub.u32 %r0, %r3, 2;\n{store}"
    );
    let wanted: Vec<u32> = (0..64).map(|t| ((t << 16) | (t + 2)) - 2).collect();
    assert_eq!(words("sm_80", 64, "", &body, &[0], 64), wanted);
}

/// Copies by `cp.async` of 4, 8 and 16 bytes, of which some bytes may be left out and become 0.
#[test]
fn parts_of_copies_become_zeros() {
    let x: Vec<u32> = (1..=32 * 4).collect();
    for (size, used) in [(4, 4), (8, 8), (16, 16), (16, 8), (8, 0), (4, 1)] {
        let body = format!(
            "mov.u32 %r1, more;\nmad.lo.u32 %r1, %t, 16, %r1;\nmov.u32 %r2, 0;\nst.shared.v4.u32 [%r1], {{%t, %t, %t, %t}};\n\
             mad.wide.u32 %d0, %t, 16, %x;\nmov.u32 %r3, {used};\ncp.async.ca.shared.global [%r1], [%d0], {size}, %r3;\n\
             cp.async.commit_group;\ncp.async.wait_group 0;\nld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r1];\n\
             mad.wide.u32 %d1, %t, 16, %y;\nst.global.v4.u32 [%d1], {{%r4, %r5, %r6, %r7}};"
        );
        let wanted: Vec<u32> = (0..32u32)
            .flat_map(|t| {
                // What is not copied keeps the thread's number.
                let mut bytes: Vec<u8> = [t; 4].iter().flat_map(|v| v.to_le_bytes()).collect();
                let from: Vec<u8> = x[4 * t as usize..][..4].iter().flat_map(|v| v.to_le_bytes()).collect();
                for (n, byte) in bytes.iter_mut().enumerate().take(size) {
                    *byte = if n < used { from[n] } else { 0 };
                }
                bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect::<Vec<u32>>()
            })
            .collect();
        assert_eq!(words("sm_80", 32, "", &body, &x, 128), wanted, "{size} {used}");
    }
}

/// 8 x 8 matrices are stored where `ldmatrix` reads them, and as rows: one, two and four, transposed and not.
#[test]
fn matrices_are_stored_as_rows() {
    for (count, trans, opcode) in [
        (1, false, "stmatrix.sync.aligned.m8n8.x1.shared.b16"),
        (2, false, "stmatrix.sync.aligned.m8n8.x2.shared.b16"),
        (4, false, "stmatrix.sync.aligned.m8n8.x4.shared.b16"),
        (1, true, "stmatrix.sync.aligned.m8n8.x1.trans.shared.b16"),
        (2, true, "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16"),
        (4, true, "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16"),
    ] {
        let list: Vec<String> = (0..count).map(|n| format!("%r{}", 3 + n)).collect();
        let list = list.join(", ");
        // Element c of a lane's register n is 256 n + 2 lane + c, as 16 bits.
        let mut body = String::from("mov.u32 %r1, more;\nmad.lo.u32 %r2, %t, 16, %r1;\n");
        for n in 0..count {
            body.push_str(&format!(
                "mul.lo.u32 %r0, %t, 2;\nadd.u32 %r0, %r0, {};\nmad.lo.u32 %r{}, %r0, 65537, 65536;\n",
                256 * n,
                3 + n
            ));
        }
        body.push_str(&format!("{opcode} [%r2], {{{list}}};\nbar.warp.sync -1;\n"));
        for n in 0..count {
            // A word of each matrix for each lane.
            body.push_str(&format!(
                "mad.lo.u32 %r0, %t, 4, %r1;\nld.shared.u32 %r8, [%r0+{}];\nmad.wide.u32 %d0, %t, 4, %y;\nst.global.u32 [%d0+{}], %r8;\n",
                128 * n, 128 * n
            ));
        }
        let found = words("sm_90", 32, "", &body, &[0], 32 * count);
        let element = |n: usize, row: usize, column: usize| {
            // Lane 4 row + column / 2 has the element, of the transpose if that is stored.
            let (row, column) = if trans { (column, row) } else { (row, column) };
            (256 * n + 2 * (4 * row + column / 2) + column % 2) as u32
        };
        let wanted: Vec<u32> = (0..count)
            .flat_map(|n| (0..32).map(move |w| (n, w / 4, 2 * (w % 4))))
            .map(|(n, row, column)| element(n, row, column) | element(n, row, column + 1) << 16)
            .collect();
        assert_eq!(found, wanted, "{count} {trans}");
    }
}

/// Bytes go to shared memory and back by bulk copies, counted at a barrier that is asked by both kinds of tests and ended.
#[test]
fn bulk_copies_move_bytes() {
    let body = "\
mov.u32 %r1, more;
add.u32 %r2, %r1, 1024;
setp.ne.u32 %p0, %t, 0;
@%p0 bra ready;
mbarrier.init.shared.b64 [%r2], 1;
fence.mbarrier_init.release.cluster;
mbarrier.expect_tx.relaxed.cta.shared.b64 [%r2], 512;
mbarrier.arrive.shared.b64 %d1, [%r2];
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%x], 512, [%r2];
ready:
bar.sync 0;
wait:
mbarrier.test_wait.parity.shared.b64 %p1, [%r2], 0;
@!%p1 bra wait;
mad.lo.u32 %r3, %t, 4, %r1;
ld.shared.u32 %r4, [%r3];
add.u32 %r4, %r4, 5;
st.shared.u32 [%r3], %r4;
fence.proxy.async;
bar.sync 0;
@%p0 bra done;
mbarrier.inval.shared.b64 [%r2];
cp.async.bulk.global.shared::cta.bulk_group [%y], [%r1], 512;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
done:";
    let x: Vec<u32> = (0..128).map(|n| n * n).collect();
    let wanted: Vec<u32> = x.iter().map(|v| v + 5).collect();
    assert_eq!(words("sm_90", 128, "", body, &x, 128), wanted);
    // A barrier that was ended is none.
    let again = body.replace(
        "mbarrier.inval.shared.b64 [%r2];",
        "mbarrier.inval.shared.b64 [%r2];\nmbarrier.arrive.shared.b64 %d1, [%r2];",
    );
    assert_eq!(report("sm_90", 128, "", &again, 1).fault, Fault::MbarrierMisuse);
}
