//! What waiting threads fetch: the beginning of their part of what is read next, and no more. And which way launches go.

#[path = "../../src/runtime/support/ahead.rs"]
mod fetched;

use fetched::{Ahead, Next, Turns};

/// How often there is something to fetch; 256 bytes each time.
fn times(ahead: &mut Ahead) -> usize {
    std::iter::from_fn(|| ahead.fetch().then_some(())).count()
}

/// Memory that is not there: it is never read.
fn next(bytes: u64) -> Next {
    Next { start: std::ptr::without_provenance(1 << 40), bytes }
}

#[test]
fn a_thread_fetches_its_part_and_not_much() {
    for (bytes, threads, expected) in [
        (0, 2, 0),
        (1, 1, 1),
        (1, 2, 0),
        (256, 1, 1),
        (257, 1, 2),
        (2000, 2, 4),
        (1 << 40, 2, 1024),
        (1 << 40, 64, 1024),
    ] {
        for thread in 0..threads {
            assert_eq!(times(&mut Ahead::new(next(bytes), thread, threads)), expected, "{bytes} {thread} of {threads}");
        }
    }
    assert_eq!(times(&mut Ahead::new(Next::NOTHING, 0, 0)), 0);
}

#[test]
fn what_is_said_again_is_not_fetched_again() {
    let mut ahead = Ahead::new(Next::NOTHING, 1, 2);
    ahead.go_on(next(4096), 1, 2);
    assert!(ahead.fetch());
    ahead.go_on(next(4096), 1, 2);
    assert_eq!(times(&mut ahead), 7);
    ahead.go_on(next(8192), 1, 2);
    assert_eq!(times(&mut ahead), 16);
    // Any address may be prefetched.
    fetched::fetch_line(std::ptr::null());
}

/// Launches that read the same weights again and again go to and fro, and fetch nothing of them ahead.
#[test]
fn the_same_weights_are_read_to_and_fro() {
    let (weights, others) = (next(4096), next(8192));
    let mut turns = Turns::new();
    let told = |turns: &mut Turns, next: Next, own: bool| {
        let (ahead, backward) = turns.launch(next, own);
        (ahead.bytes, backward)
    };
    // Before a loop, and in it a launch that reads the weights and one that does not.
    assert_eq!(told(&mut turns, weights, false), (4096, false));
    for backward in [false, true, false, true] {
        assert_eq!(told(&mut turns, weights, true), (0, backward));
        assert_eq!(told(&mut turns, weights, false), (0, false));
    }
    // The last step's launch, which others follow.
    assert_eq!(told(&mut turns, others, false), (8192, false));
    assert_eq!(told(&mut turns, others, true), (0, false));
    assert_eq!(told(&mut turns, Next::NOTHING, false), (0, false));
    assert_eq!(told(&mut turns, weights, true), (0, false));
}
