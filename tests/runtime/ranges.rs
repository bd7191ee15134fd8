//! Grid points: each is handed out once, whatever the threads do.

#[path = "../../src/runtime/support/ranges.rs"]
mod handed_out;

use handed_out::Ranges;

/// More ranges than any test has points: what is handed out again and again must come to an end.
const MAX_RANGES: usize = 20_000;

/// Takes ranges until there are none.
fn all_of(ranges: &Ranges, thread: usize, most: u32) -> Vec<(u32, u32)> {
    std::iter::from_fn(|| ranges.take(thread, most)).take(MAX_RANGES).collect()
}

fn points(taken: impl IntoIterator<Item = (u32, u32)>) -> Vec<u32> {
    let mut all: Vec<u32> = taken.into_iter().flat_map(|(start, end)| start..end).collect();
    all.sort_unstable();
    all
}

#[test]
fn one_thread_gets_every_point_once() {
    for threads in [1, 2, 3, 7, 64] {
        let ranges = Ranges::new(threads).expect("memory");
        assert_eq!(ranges.take(0, u32::MAX), None, "{threads}");
        for total in [0, 1, 2, 3, 63, 1000] {
            for most in [1, 5, u32::MAX] {
                for backward in [false, true] {
                    ranges.reset(total, backward);
                    let taken = all_of(&ranges, threads - 1, most);
                    assert_eq!(points(taken), (0..total).collect::<Vec<_>>(), "{threads} {total} {most} {backward}");
                }
            }
        }
    }
}

#[test]
fn parts_lie_apart() {
    let ranges = Ranges::new(3).expect("memory");
    assert_eq!(ranges.threads(), 3);
    // Two lines, since some processors fetch them in pairs.
    let places = [0, 1, 2].map(|n| ranges.line_of(n) as usize);
    assert!(places[0] + 128 <= places[1] && places[1] + 128 <= places[2], "{places:x?}");
    assert!(ranges.line_of(3).is_null());
}

#[test]
fn many_threads_get_every_point_once() {
    for (threads, total) in [(2, 72), (3, 10_000), (8, 5), (16, 1001)] {
        let ranges = Ranges::new(threads).expect("memory");
        for n in 0..200 {
            ranges.reset(total, n % 2 == 1);
            let taken = std::thread::scope(|scope| {
                let ranges = &ranges;
                let handles: Vec<_> = (0..threads).map(|n| scope.spawn(move || all_of(ranges, n, u32::MAX))).collect();
                handles.into_iter().flat_map(|h| h.join().expect("it does not panic")).collect::<Vec<_>>()
            });
            assert_eq!(points(taken), (0..total).collect::<Vec<_>>(), "{threads} {total}");
        }
    }
}

/// A thread goes through its own part from end to end, and then takes the end of another's.
#[test]
fn parts_are_gone_through_in_order() {
    let ranges = Ranges::new(2).expect("memory");
    ranges.reset(100, false);
    assert_eq!(ranges.take(1, u32::MAX), Some((50, 62)));
    assert_eq!(ranges.take(0, 3), Some((0, 3)));
    let mut at = 62;
    while at < 100 {
        let (start, end) = ranges.take(1, u32::MAX).expect("there is more");
        assert_eq!(start, at);
        at = end;
    }
    // 3..50 is left to the first; a quarter of the upper half of 3..50.
    assert_eq!(ranges.take(1, u32::MAX), Some((26, 32)));
    assert_eq!(ranges.take(0, u32::MAX), Some((3, 8)));
}

/// The same from the other end: each thread has the part that it has forward, and a thief takes its start.
#[test]
fn parts_are_gone_through_backward() {
    let ranges = Ranges::new(2).expect("memory");
    ranges.reset(100, true);
    assert_eq!(ranges.take(1, u32::MAX), Some((88, 100)));
    assert_eq!(ranges.take(0, 3), Some((47, 50)));
    let mut at = 88;
    while at > 50 {
        let (start, end) = ranges.take(1, u32::MAX).expect("there is more");
        assert_eq!(end, at);
        at = start;
    }
    // 0..47 is left to the first; a quarter of the lower half of it.
    assert_eq!(ranges.take(1, u32::MAX), Some((18, 24)));
    assert_eq!(ranges.take(0, u32::MAX), Some((42, 47)));
}

#[test]
fn the_largest_number_of_points() {
    let ranges = Ranges::new(3).expect("memory");
    ranges.reset(u32::MAX, false);
    let taken = all_of(&ranges, 1, u32::MAX);
    assert_eq!(taken.iter().map(|(start, end)| u64::from(end - start)).sum::<u64>(), u64::from(u32::MAX));
    assert_eq!(taken.iter().map(|(_, end)| *end).max(), Some(u32::MAX));
    assert!(taken.len() < 3000, "{}", taken.len());
}
