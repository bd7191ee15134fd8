//! What waiting threads fetch: the beginning of their part of what is read next, and no more.

#[path = "../../src/runtime/support/ahead.rs"]
mod fetched;

use fetched::{Ahead, Next};

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
