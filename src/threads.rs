//! Parallel map over the items of a list.
//!
//! In: items and a function. Out: the results in the order of the items, whichever thread computed
//! them; so nothing depends on the number of threads. It must not know what the work is.
//!
//! Uses the scoped threads of `std`. The crate `rayon` would replace the queue, but creating a pool
//! with a given number of threads fails if the system cannot start all of them.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder};

/// Stack size of a thread; reserved, and committed only as needed. The same as the main thread's on
/// Linux.
const STACK: usize = 8 << 20;

/// Number of threads that this process may run concurrently.
pub fn all() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Maps `work` over the items on at most `threads` threads, including the current one. Each takes
/// the next remaining item; if fewer threads can be started, those do all the work.
///
/// # Panics
/// If `work` panics, after the other threads have finished.
pub fn each<T, U: Send>(
    items: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator + Send>,
    threads: usize,
    work: impl Fn(T) -> U + Sync,
) -> Vec<U> {
    let items = items.into_iter();
    let others = threads.min(items.len()).saturating_sub(1);
    let queue = Mutex::new(items.enumerate());
    let some = || {
        let mut done = Vec::new();
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((place, item)) = next else { return done };
            done.push((place, work(item)));
        }
    };
    let mut done = thread::scope(|scope| {
        let start = |_| Builder::new().stack_size(STACK).spawn_scoped(scope, some).ok();
        let started: Vec<_> = (0..others).map_while(start).collect();
        let mut done = some();
        for thread in started {
            done.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_order_of_the_items() {
        let squares: Vec<usize> = (0..1000).map(|n| n * n).collect();
        for threads in [0, 1, 2, 7, 2000] {
            assert_eq!(each(0..1000, threads, |n: usize| n * n), squares, "{threads} threads");
        }
        assert_eq!(each(Vec::<u8>::new(), 3, |n| n), Vec::<u8>::new());
    }

    #[test]
    fn a_panic_of_any_thread_is_one_of_the_caller() {
        for (threads, bad) in [(1, 0), (3, 0), (3, 99)] {
            let outcome = std::panic::catch_unwind(|| each(0..100, threads, |n| assert_ne!(n, bad, "the bad one")));
            let panic = outcome.expect_err("one item panics");
            let text = panic.downcast_ref::<String>().expect("a message");
            assert!(text.contains("the bad one"), "{text}");
        }
    }
}
