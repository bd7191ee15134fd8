//! Loads, stores, threads: values and reports.

use attnc::ptx::sim::Fault;

use super::{report, words};

#[test]
fn threads_load_and_store() {
    let x: Vec<u32> = (0..64).map(|n| 100 + n).collect();
    let found = words(
        "sm_80",
        64,
        "",
        "mad.wide.u32 %d0, %t, 4, %x;\nld.global.u32 %r0, [%d0];\nadd.u32 %r0, %r0, %t;\nmad.wide.u32 %d1, %t, 4, %y;\nst.global.u32 [%d1], %r0;",
        &x,
        64,
    );
    assert_eq!(found, (0..64).map(|n| 100 + 2 * n).collect::<Vec<u32>>());
}

#[test]
fn faults_of_accesses_are_reported() {
    let at = |body: &str| report("sm_80", 32, ".shared .align 16 .b8 tile[256];", body, 1);
    let r = at("mad.wide.u32 %d0, %t, 256, %x;\nld.global.u32 %r0, [%d0];");
    assert_eq!(r.fault, Fault::OutOfBounds, "{r}");
    assert!(r.to_string().contains("`ld.global.u32 %r0, [%d0]`"), "{r}");
    assert!(r.to_string().contains("thread (16, 0, 0)"), "{r}");
    let r = at("mad.wide.u32 %d0, %t, 2, %x;\nld.global.u32 %r0, [%d0];");
    assert_eq!(r.fault, Fault::Misaligned, "{r}");
    let r = at("mad.wide.u32 %d0, %t, 4, %y;\nld.global.u32 %r0, [%d0];");
    assert_eq!(r.fault, Fault::Uninitialised, "{r}");
    let r = at("mov.u32 %r1, tile;\nmad.lo.u32 %r1, %t, 4, %r1;\nst.shared.u32 [%r1+8192], %t;");
    assert_eq!(r.fault, Fault::OutOfBounds, "{r}");
    let r = at("ld.shared.u32 %r0, [tile];");
    assert_eq!(r.fault, Fault::Uninitialised, "{r}");
    let r = at("st.shared.u32 [tile], %t;");
    assert_eq!(r.fault, Fault::Race, "{r}");
    let r = at("trap;");
    assert_eq!(r.fault, Fault::Trap, "{r}");
}

/// Each thread writes, and reads what another warp wrote: with a barrier between, and without.
#[test]
fn barriers_order_accesses() {
    let body = |bar: &str| {
        format!(
            "mov.u32 %r1, more;\nmad.lo.u32 %r2, %t, 4, %r1;\nst.shared.u32 [%r2], %t;\n{bar}\nxor.b32 %r3, %t, 32;\n\
             mad.lo.u32 %r3, %r3, 4, %r1;\nld.shared.u32 %r4, [%r3];\nmad.wide.u32 %d1, %t, 4, %y;\nst.global.u32 [%d1], %r4;"
        )
    };
    let found = words("sm_80", 64, "", &body("bar.sync 0;"), &[0], 64);
    assert_eq!(found, (0..64).map(|n| n ^ 32).collect::<Vec<u32>>());
    let r = report("sm_80", 64, "", &body(""), 1);
    assert!(matches!(r.fault, Fault::Race | Fault::Uninitialised), "{r}");
    // Within a warp too.
    let near = |bar: &str| body(bar).replace("%t, 32", "%t, 1");
    let found = words("sm_80", 64, "", &near("bar.warp.sync -1;"), &[0], 64);
    assert_eq!(found, (0..64).map(|n| n ^ 1).collect::<Vec<u32>>());
    let r = report("sm_80", 64, "", &near(""), 1);
    assert_eq!(r.fault, Fault::Race, "{r}");
}
