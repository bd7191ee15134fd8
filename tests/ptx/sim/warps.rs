//! What lanes of a warp do together, atomic operations, control flow: against what their definitions say.

use attnc::ptx::sim::{Fault, Mode};

use super::{Case, report, text, words};

/// A value of each lane after a body whose result is `%r0`.
fn lanes(body: &str) -> Vec<u32> {
    let body = format!("{body}\nmad.wide.u32 %d0, %t, 4, %y;\nst.global.u32 [%d0], %r0;");
    words("sm_80", 32, "", &body, &[0], 32)
}

#[test]
fn shuffles_take_the_lane_that_is_meant() {
    let t: Vec<u32> = (0..32).collect();
    let with = |f: &dyn Fn(u32) -> u32| t.iter().map(|l| f(*l)).collect::<Vec<u32>>();
    let value = "mul.lo.u32 %r1, %t, 10;\n";
    let shuffle = |what: &str| lanes(&format!("{value}shfl.sync.{what}, -1;"));
    assert_eq!(shuffle("bfly.b32 %r0, %r1, 5, 31"), with(&|l| (l ^ 5) * 10));
    assert_eq!(shuffle("up.b32 %r0, %r1, 3, 0"), with(&|l| l.checked_sub(3).unwrap_or(l) * 10));
    assert_eq!(shuffle("down.b32 %r0, %r1, 3, 31"), with(&|l| if l + 3 < 32 { l + 3 } else { l } * 10));
    assert_eq!(shuffle("idx.b32 %r0, %r1, 7, 31"), with(&|_| 70));
    // Segments of eight: 0x1800 keeps the lanes' upper two bits.
    assert_eq!(shuffle("idx.b32 %r0, %r1, 3, 6175"), with(&|l| (l / 8 * 8 + 3) * 10));
    assert_eq!(shuffle("down.b32 %r0, %r1, 3, 6175"), with(&|l| if l % 8 < 5 { l + 3 } else { l } * 10));
    let found = lanes(&format!("{value}shfl.sync.down.b32 %r2|%p0, %r1, 9, 31, -1;\nselp.b32 %r0, 1, 0, %p0;"));
    assert_eq!(found, with(&|l| u32::from(l + 9 < 32)));
}

#[test]
fn votes_and_reductions_see_all_lanes() {
    let even = "and.b32 %r1, %t, 1;\nsetp.eq.u32 %p0, %r1, 0;\n";
    assert_eq!(lanes(&format!("{even}vote.sync.ballot.b32 %r0, %p0, -1;")), [0x5555_5555; 32]);
    let asked = |vote: &str| lanes(&format!("{even}vote.sync.{vote}.pred %p1, %p0, -1;\nselp.b32 %r0, 1, 0, %p1;"))[3];
    assert_eq!([asked("all"), asked("any"), asked("uni")], [0, 1, 0]);
    assert_eq!(lanes("redux.sync.add.u32 %r0, %t, -1;"), [496; 32]);
    assert_eq!(lanes("sub.s32 %r1, %t, 5;\nredux.sync.min.s32 %r0, %r1, -1;"), [(-5i32) as u32; 32]);
    assert_eq!(lanes("sub.s32 %r1, %t, 5;\nredux.sync.max.u32 %r0, %r1, -1;"), [u32::MAX; 32]);
    // Half of the lanes, each half by itself.
    let halves = "setp.lt.u32 %p0, %t, 16;\n@!%p0 bra upper;\nredux.sync.add.u32 %r0, %t, 65535;\nbra both;\nupper:\nredux.sync.add.u32 %r0, %t, -65536;\nboth:\n";
    let found = lanes(halves);
    assert_eq!((found[0], found[31]), (120, 376));
    assert_eq!(lanes("activemask.b32 %r0;"), [u32::MAX; 32]);
    assert_eq!(lanes("mov.u32 %r0, %lanemask_lt;"), (0..32).map(|l| (1 << l) - 1).collect::<Vec<u32>>());
    assert_eq!(lanes("mov.u32 %r0, %lanemask_ge;"), (0..32).map(|l| u32::MAX << l).collect::<Vec<u32>>());
}

/// A barrier that answers: is there a thread for which something holds?
#[test]
fn barriers_tell_what_holds_in_any_thread() {
    let asked = |thread: u32, id: u32, count: u32| {
        let body = format!(
            "setp.eq.u32 %p0, %t, {thread};\nmov.u32 %r0, 7;\nsetp.ge.u32 %p2, %t, {count};\n@%p2 bra done;\nbar.red.or.pred %p1, {id}, {count}, %p0;\n\
             selp.b32 %r0, 1, 0, %p1;\ndone:\nbar.sync 0;\nmad.wide.u32 %d0, %t, 4, %y;\nst.global.u32 [%d0], %r0;"
        );
        words("sm_80", 128, "", &body, &[0], 128)
    };
    assert_eq!(asked(70, 3, 128), [1; 128]);
    assert_eq!(asked(500, 0, 128), [0; 128]);
    // The first two warps alone.
    assert_eq!(asked(40, 2, 64), [[1; 64], [7; 64]].concat());
    assert_eq!(asked(70, 2, 64), [[0; 64], [7; 64]].concat());
    let mixed = "setp.lt.u32 %p0, %t, 32;\n@%p0 bra asks;\nbar.sync 1, 64;\nbra done;\nasks:\nbar.red.or.pred %p1, 1, 64, %p0;\ndone:";
    let r = report("sm_80", 64, "", mixed, 1);
    assert_eq!(r.fault, Fault::BarrierMisuse, "{r}");
    // It waits, so it orders accesses too; and it says what all were told, not what was known before.
    let ordered = |inst: &str| {
        format!(
            "mov.u32 %r0, more;\nmad.lo.u32 %r1, %t, 4, %r0;\nst.shared.u32 [%r1], %t;\nsetp.eq.u32 %p0, %t, 5;\n{inst}\nxor.b32 %r2, %t, 63;\n\
             mad.lo.u32 %r1, %r2, 4, %r0;\nld.shared.u32 %r3, [%r1];\nmad.wide.u32 %d0, %t, 4, %y;\nst.global.u32 [%d0], %r3;"
        )
    };
    let ordered_by = words("sm_80", 64, "", &ordered("bar.red.or.pred %p1, 0, 64, %p0;"), &[0], 64);
    assert_eq!(ordered_by, (0..64).map(|t| t ^ 63).collect::<Vec<u32>>());
    let r = report("sm_80", 64, "", &ordered(""), 1);
    assert_eq!(r.fault, Fault::Uninitialised, "{r}");
}

#[test]
fn lanes_meet_again_where_branches_join() {
    // Each lane adds up to its own number; all meet at the sum over the warp.
    let body = "mov.u32 %r1, 0;\nmov.u32 %r2, 0;\nloop:\nsetp.ge.u32 %p0, %r2, %t;\n@%p0 bra done;\nadd.u32 %r2, %r2, 1;\nadd.u32 %r1, %r1, %r2;\nbra loop;\ndone:\nredux.sync.add.u32 %r0, %r1, -1;";
    let wanted: u32 = (0..32u32).map(|t| t * (t + 1) / 2).sum();
    assert_eq!(lanes(body), [wanted; 32]);
    // A barrier that only some lanes reach is divergence; so is a shuffle.
    let some = |inst: &str| {
        report("sm_80", 64, "", &format!("setp.lt.u32 %p0, %t, 7;\n@!%p0 bra skip;\n{inst}\nskip:\nbar.sync 1;"), 1)
    };
    for inst in [
        "bar.sync 0;",
        "shfl.sync.idx.b32 %r0, %t, 0, 31, -1;",
        "vote.sync.any.pred %p1, %p0, -1;",
        "bar.warp.sync -1;",
    ] {
        let r = some(inst);
        assert_eq!(r.fault, Fault::Divergence, "{inst}: {r}");
    }
    let r = report("sm_80", 32, "", "setp.lt.u32 %p0, %t, 7;\n@%p0 shfl.sync.idx.b32 %r0, %t, 0, 31, -1;", 1);
    assert_eq!(r.fault, Fault::Divergence, "{r}");
}

#[test]
fn atomic_operations_are_one_step() {
    type Update = fn(u32, u32) -> u32;
    let ops: &[(&str, &str, u32, Update)] = &[
        ("add.u32", "u32", 7, |a, t| a.wrapping_add(t)),
        ("min.s32", "u32", 9, |a, t| (a as i32).min(t as i32) as u32),
        ("max.u32", "u32", 9, |a, t| a.max(t)),
        ("and.b32", "u32", 0xff, |a, t| a & t),
        ("or.b32", "u32", 0x100, |a, t| a | t),
        ("xor.b32", "u32", 0x100, |a, t| a ^ t),
        ("inc.u32", "u32", 0, |a, t| if a >= t { 0 } else { a + 1 }),
        ("exch.b32", "u32", 5, |_, t| t),
    ];
    for (op, _, first, model) in ops {
        for space in ["global", "shared"] {
            // One lane after another does it, so that the order is known: lane t, when a counter is t.
            let (before, place) = if *space == *"global" {
                (format!("setp.eq.u32 %p0, %t, 0;\nmov.u32 %r1, {first};\n@%p0 st.global.u32 [%y], %r1;"), "[%y]")
            } else {
                (format!("setp.eq.u32 %p0, %t, 0;\nmov.u32 %r1, {first};\n@%p0 st.shared.u32 [more], %r1;"), "[more]")
            };
            let body = format!(
                "{before}\nbar.sync 0;\nmov.u32 %r2, 0;\nmov.u32 %r3, 0;\nnext:\nsetp.eq.u32 %p1, %r2, %t;\n@%p1 atom.relaxed.gpu.{space}.{op} %r3, {place}, %t;\nbar.warp.sync -1;\nadd.u32 %r2, %r2, 1;\nsetp.lt.u32 %p2, %r2, 32;\n@%p2 bra next;\nbar.sync 0;\nld.{space}.u32 %r4, {place};\nmad.wide.u32 %d0, %t, 4, %y;\nst.global.u32 [%d0+128], %r3;\n@%p0 st.global.u32 [%y+256], %r4;"
            );
            let found = words("sm_80", 32, "", &body, &[0], 65);
            let mut value = *first;
            for t in 0..32 {
                assert_eq!(found[32 + t as usize], value, "{space} {op}, lane {t}");
                value = model(value, t);
            }
            assert_eq!(found[64], value, "{space} {op}");
        }
    }
}

/// A lock: each thread adds 1 under it; without the lock's order it is a race.
#[test]
fn locks_order_what_they_guard() {
    let body = |acquire: &str| {
        format!(
            "setp.ne.u32 %p0, %t, 0;\nmov.u32 %r5, 0;\n@%p0 bra ready;\nst.shared.u32 [more], %r5;\nst.shared.u32 [more+4], %r5;\nready:\nbar.sync 0;\nand.b32 %r6, %t, 31;\nsetp.ne.u32 %p0, %r6, 0;\n@%p0 bra done;\nmov.u32 %r1, 0;\nmov.u32 %r2, 1;\n\
             lock:\natom.{acquire}.cta.shared.cas.b32 %r3, [more], %r1, %r2;\nsetp.ne.u32 %p1, %r3, 0;\n@%p1 bra lock;\nld.shared.u32 %r4, [more+4];\nadd.u32 %r4, %r4, 1;\nst.shared.u32 [more+4], %r4;\n\
             st.release.cta.shared.u32 [more], %r1;\ndone:\nbar.sync 0;\nld.shared.u32 %r4, [more+4];\nmad.wide.u32 %d0, %t, 4, %y;\nst.global.u32 [%d0], %r4;"
        )
    };
    assert_eq!(words("sm_80", 128, "", &body("acquire"), &[0], 128), [4; 128]);
    let r = report("sm_80", 128, "", &body("relaxed"), 1);
    assert_eq!(r.fault, Fault::Race, "{r}");
}

/// Blocks that wait for each other by a counter in global memory: it works where they can be there together.
#[test]
fn a_barrier_of_the_grid_works() {
    // `x` has a counter, then a word for each block. Each writes its word, waits for all, and reads its neighbour's.
    let body = "mov.u32 %r0, %ctaid.x;\nmov.u32 %r1, %nctaid.x;\nsetp.ne.u32 %p0, %t, 0;\n@%p0 bra end;\nmad.wide.u32 %d0, %r0, 4, %x;\nmad.lo.u32 %r2, %r0, 3, 1;\nst.global.u32 [%d0+4], %r2;\n\
        atom.acq_rel.gpu.global.add.u32 %r3, [%x], 1;\nwait:\nld.acquire.gpu.global.u32 %r4, [%x];\nsetp.lt.u32 %p1, %r4, %r1;\n@%p1 bra wait;\nadd.u32 %r5, %r0, 1;\nrem.u32 %r5, %r5, %r1;\n\
        mad.wide.u32 %d1, %r5, 4, %x;\nld.global.u32 %r6, [%d1+4];\nmad.wide.u32 %d2, %r0, 4, %y;\nst.global.u32 [%d2], %r6;\nend:";
    let blocks = 9;
    for mode in super::modes() {
        let run = |body: &str| {
            let text = text("sm_80", 32, "", body);
            let mut case = Case::new(&text, 32, &[0; 64], 64);
            case.launch(blocks, 0, mode).map(|_| case.words(blocks as usize))
        };
        let wanted: Vec<u32> = (0..blocks).map(|n| (n + 1) % blocks * 3 + 1).collect();
        assert_eq!(run(body).unwrap_or_else(|r| panic!("{r}")), wanted);
        let relaxed = run(&body.replace("ld.acquire", "ld.relaxed")).expect_err("a race");
        assert_eq!(relaxed.fault, Fault::Race, "{relaxed}");
        let near = run(&body.replace("acq_rel.gpu", "acq_rel.cta")).expect_err("a race");
        assert_eq!(near.fault, Fault::Race, "{near}");
        let more =
            run(&body.replace("setp.lt.u32 %p1, %r4, %r1", "setp.le.u32 %p1, %r4, %r1")).expect_err("a deadlock");
        assert_eq!(more.fault, Fault::Deadlock, "{more}");
    }
}

/// Counts: conflicts of banks, sectors, instructions.
#[test]
fn accesses_are_counted() {
    let count = |body: &str| {
        let text = text("sm_80", 32, "", body);
        let mut case = Case::new(&text, 32, &[7; 8192], 64);
        case.launch(1, 8192, Mode::EAGER).unwrap_or_else(|r| panic!("{r}"))
    };
    let stride = |n: u32| {
        count(&format!("mov.u32 %r0, more;\nmad.lo.u32 %r1, %t, {n}, %r0;\nst.shared.u32 [%r1], %t;")).bank_conflicts
    };
    assert_eq!([4, 8, 16, 128, 132].map(stride), [0, 1, 3, 31, 0]);
    let wide = "mov.u32 %r0, more;\nmad.lo.u32 %r1, %t, 16, %r0;\nst.shared.v4.u32 [%r1], {%t, %t, %t, %t};";
    assert_eq!(count(wide).bank_conflicts, 0);
    let sectors = |n: u32| count(&format!("mad.wide.u32 %d0, %t, {n}, %x;\nld.global.u32 %r0, [%d0];")).global_sectors;
    assert_eq!([0, 4, 32, 64].map(sectors), [1, 4, 32, 32]);
}

#[test]
fn endless_loops_end() {
    let text = text("sm_80", 32, "", "again:\nadd.u32 %t, %t, 1;\nbra again;");
    let mut case = Case::new(&text, 32, &[0; 4], 4);
    let mode = Mode { limit: 10_000, ..Mode::EAGER };
    assert_eq!(case.launch(1, 0, mode).expect_err("a limit").fault, Fault::Limit);
}

#[test]
fn launches_must_fit() {
    let text = text("sm_80", 32, "", "");
    let mut case = Case::new(&text, 64, &[0; 4], 4);
    let r = case.launch(1, 0, Mode::EAGER).expect_err("other threads");
    assert_eq!(r.fault, Fault::Launch, "{r}");
    assert!(r.message.contains("a block of [64, 1, 1] threads"), "{r}");
    case.threads = 32;
    let r = case.launch(1, 300_000, Mode::EAGER).expect_err("too much memory");
    assert!(r.message.contains("at most 232448"), "{r}");
    let r = case.launch(0, 0, Mode::EAGER).expect_err("no blocks");
    assert_eq!(r.fault, Fault::Launch, "{r}");
    case.x += 8;
    let r = case.launch(1, 0, Mode::EAGER).expect_err("a pointer of another alignment");
    assert!(r.message.contains("a multiple of 16"), "{r}");
}
