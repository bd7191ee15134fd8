//! A large stack for recursion over programs.
//!
//! In: work whose recursion depth is limited by the nesting of programs
//! ([`crate::syntax::ast::MAX_DEPTH`]) or of inlined calls (4,000). Out: its result. Debug builds
//! need many kilobytes per level, more than the stack of a test or worker thread has.
//!
//! The crate `stacker` (which needs a C compiler) would switch stacks on the same thread; but an
//! overflow of its stacks is a plain SIGSEGV, while an overflow of a thread's stack is reported as
//! such.

use std::cell::Cell;

/// Stack size: reserved address space, of which only used pages are committed.
const STACK: usize = 256 << 20;

thread_local! {
    /// This thread was started by [`with_large_stack`].
    static IS_LARGE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` on a thread with a 256 MiB stack: on the current one if it was started for this, or
/// else on a new one. If no thread can be started, it runs on the current one.
pub fn with_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if IS_LARGE.get() {
        return work();
    }
    let mut work = Some(work);
    let mut result = None;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || {
            IS_LARGE.set(true);
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
    use super::with_large_stack;

    #[test]
    fn deep_recursion_has_room() {
        fn depth(n: u64) -> u64 {
            let bytes = std::hint::black_box([n; 512]);
            if n == 0 { bytes[0] } else { depth(n - 1) + 1 }
        }
        assert_eq!(with_large_stack(|| depth(10_000)), 10_000);
    }

    #[test]
    fn nested_work_stays_on_the_thread() {
        let id = || std::thread::current().id();
        let (outer, inner) = with_large_stack(|| (id(), with_large_stack(id)));
        assert_eq!(outer, inner);
        assert_ne!(outer, id());
    }
}
