//! Correct kernels give what they must in both orders, whoever goes first.

use attnc::ptx::sim::Mode;

use super::kernels::all;

#[test]
fn correct_kernels_are_correct_in_all_orders() {
    for sample in all() {
        for seed in 0..6 {
            for mode in [Mode::EAGER.seeded(seed), Mode::LATEST.seeded(seed)] {
                let (found, stats) =
                    sample.run(&sample.text, mode).unwrap_or_else(|r| panic!("{}, {mode:?}: {r}", sample.name));
                assert_eq!(found, sample.wanted, "{}, {mode:?}", sample.name);
                assert!(stats.warp_instructions > 0);
            }
        }
    }
}
