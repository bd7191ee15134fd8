//! Room on the stack for recursion over programs.
//!
//! In: work that recurses at most as deep as programs nest ([`crate::syntax::ast::MAX_DEPTH`]), or as calls nest that are
//! inlined (4,000 levels). Out: its result. Debug builds need many kilobytes for each level, more than the stack of a test
//! or worker thread has.

use std::cell::Cell;

thread_local! {
    /// Has this thread been started with enough stack, by [`with_room`]?
    static HAS_ROOM: Cell<bool> = const { Cell::new(false) };
}

/// Bytes of stack for the work; reserved, and used only as far as the work goes.
const ROOM: usize = 256 << 20;

/// Runs `work` with enough stack, on a thread of its own; where no thread can be had, or within such work, on this one. So who does
/// much work of this kind, such as a fuzzer, does all of it within one.
pub fn with_room<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if HAS_ROOM.get() {
        return work();
    }
    let mut work = Some(work);
    let mut result = None;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(ROOM).spawn_scoped(scope, || {
            HAS_ROOM.set(true);
            result = work.take().map(|work| work());
        });
        if let Ok(thread) = thread
            && let Err(panic) = thread.join()
        {
            std::panic::resume_unwind(panic);
        }
    });
    match (result, work) {
        (Some(result), _) => result,
        (None, Some(work)) => work(),
        (None, None) => unreachable!("the work was taken and has given its result"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn deep_recursion_has_room() {
        fn depth(n: u64) -> u64 {
            let bytes = std::hint::black_box([n; 512]);
            if n == 0 { bytes[0] } else { depth(n - 1) + 1 }
        }
        assert_eq!(super::with_room(|| depth(10_000)), 10_000);
    }

    #[test]
    fn work_within_work_starts_no_thread() {
        let thread = || std::thread::current().id();
        assert_ne!(super::with_room(thread), thread());
        let (outer, inner) = super::with_room(|| (thread(), super::with_room(thread)));
        assert_eq!(outer, inner);
    }
}
