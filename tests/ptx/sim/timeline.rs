//! Launches in time: the same results, and a schedule whose parts agree with each other and with what the kernels say.

use attnc::ptx::sim::{Activity, Interval, Timeline};

use super::hopper::ring;
use super::kernels::all;
use super::sample::Sample;

/// What a sample does over time, checked for what holds of every schedule.
fn timeline(sample: &Sample, text: &str) -> Timeline {
    let (found, stats, t) = sample.in_time(text).unwrap_or_else(|r| panic!("{}: {r}", sample.name));
    assert_eq!(found, sample.wanted, "{}", sample.name);
    assert!(stats.warp_instructions > 0 && t.cycles() > 0);
    assert_eq!(t.warps.len() as u32, sample.threads.div_ceil(32));
    for spans in &t.warps {
        // From the beginning on, without gaps, to its last instruction.
        let mut at = t.time.0;
        for span in spans {
            assert!(span.from == at && span.to > at, "{}: {span:?} at {at}", sample.name);
            at = span.to;
        }
        assert!(at <= t.time.1);
    }
    for stage in &t.stages {
        assert!(stage.bytes.0 < stage.bytes.1 && stage.bytes.1 <= t.shared_bytes, "{stage:?}");
        for pair in [&stage.fills, &stage.holds].into_iter().flat_map(|all| all.windows(2)) {
            assert!(pair[0].1 < pair[1].0, "{}: {pair:?}", sample.name);
        }
    }
    t
}

fn overlap(a: &[Interval], b: &[Interval]) -> bool {
    a.iter().any(|a| b.iter().any(|b| a.0.max(b.0) < a.1.min(b.1)))
}

fn cycles(t: &Timeline, warp: usize, what: Activity) -> u64 {
    t.warps[warp].iter().filter(|s| s.what == what).map(|s| s.to - s.from).sum()
}

#[test]
fn kernels_give_the_same_in_time() {
    for sample in all() {
        timeline(&sample, &sample.text);
    }
}

/// Five tiles of 16 KiB through a ring of two stages.
#[test]
fn a_ring_is_seen() {
    let sample = ring();
    let t = timeline(&sample, &sample.text);
    let stages: Vec<_> = t.stages.iter().filter(|s| !s.fills.is_empty()).collect();
    let shown: Vec<_> = stages.iter().map(|s| (s.bytes, s.fills.len(), s.holds.len())).collect();
    assert_eq!(shown, [((0, 16384), 3, 3), ((16384, 32768), 2, 2)]);
    for stage in &stages {
        // A tile is held when it has arrived, and nothing is copied over it until then.
        assert!(!overlap(&stage.fills, &stage.holds), "{stage:?}");
        assert!(stage.fills.iter().zip(&stage.holds).all(|(fill, hold)| fill.1 == hold.0), "{stage:?}");
    }
    // The second tile is on its way before the first has arrived.
    assert!(stages[1].fills[0].0 < stages[0].fills[0].1);
    assert_eq!(t.most_used(), 32768);
    assert_eq!(t.flights.iter().map(|f| f.bytes).sum::<u32>(), 5 * 16384);
    // 64 x 64 x 64 for each tile, a quarter of it on each tensor core, 512 a cycle.
    for core in &t.tensor {
        assert_eq!(core.iter().map(|(from, to)| to - from).sum::<u64>(), 5 * 64 * 64 * 64 / 4 / 512);
    }
    // The first warp copies and waits for room, the fifth waits for tiles and for products.
    assert!(cycles(&t, 0, Activity::Copy) > 0 && cycles(&t, 0, Activity::Product) == 0);
    assert!(cycles(&t, 4, Activity::Product) > 0 && cycles(&t, 4, Activity::Copy) == 0);
    assert!(cycles(&t, 4, Activity::Mbarrier) > 500 && cycles(&t, 4, Activity::ProductWait) > 100);

    // With one stage, each copy waits for the products before it.
    let one = sample.text.replace("setp.eq.u32 %wraps, %stage, 2;", "setp.eq.u32 %wraps, %stage, 1;");
    let slow = timeline(&sample, &one);
    assert!(slow.cycles() > t.cycles() * 3 / 2, "{} and {}", slow.cycles(), t.cycles());
    assert_eq!(slow.stages.iter().filter(|s| !s.fills.is_empty()).count(), 1);
}

/// Faults are reported in time as well.
#[test]
fn faults_are_reported_in_time() {
    let sample = ring();
    for (from, to) in [("@!%ok bra wait_full;", ""), ("[%empty], 4;", "[%empty], 5;"), ("@!%ok bra wait_empty;", "")] {
        let text = sample.text.replacen(from, to, 1);
        assert!(text != sample.text && sample.in_time(&text).is_err(), "{from}");
    }
}
