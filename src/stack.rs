//! A large stack for recursion over programs.
//!
//! In: work that recurses at most as deep as programs nest ([`crate::syntax::ast::MAX_DEPTH`]), or as inlined calls nest
//! (4,000 levels). Out: its result. Debug builds need many kilobytes for each level, more than the stack of a test or worker
//! thread has.
//!
//! The crate `stacker` (built with a C compiler) would move the work to a stack on the same thread; but an overflow on its stacks is a
//! bare SIGSEGV, where on a thread's it is reported as what it is.

use std::cell::Cell;

/// Bytes of stack: address space that is reserved; pages are used only as far as the recursion goes.
const STACK: usize = 256 << 20;

thread_local! {
    /// Was this thread made by [`with_large_stack`]?
    static IS_LARGE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` on a thread with a 256 MiB stack: on this one if it has been made so, else on a new one. Where no thread can be
/// had, it runs on this one all the same.
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
