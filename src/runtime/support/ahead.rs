//! Prefetching by idle threads: while a thread waits for others, it prefetches the beginning of its
//! part of the next weights.
//!
//! In: the addresses of the weights, which the plan passes with each launch. Out: lines in the L2
//! cache. A launch of few rows is bound by memory bandwidth, which is unused while threads wait for
//! each other or run a small kernel; with prefetching, the next launch finds its first weights in
//! the cache. Results are never affected: a prefetch loads no value.
//!
//! A thread's part is determined by `ranges`: weights are stored in the order of the grid points,
//! with the same number of bytes for each.
//!
//! It must not know what the weights are.

/// Limit on the bytes a thread prefetches: a quarter of a typical L2 cache, half of a small one.
const MAX_PREFETCH: u64 = 256 << 10;
/// Bytes of a cache line; and bytes prefetched before the thread checks for work again.
const LINE: usize = 64;
const STEP: usize = 4 * LINE;

/// Memory that will be read soon, in address order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) start: *const u8,
    pub(crate) bytes: u64,
}

impl Next {
    /// No memory.
    pub(crate) const NOTHING: Next = Next { start: core::ptr::null(), bytes: 0 };
}

/// The direction of launches that read the same weights repeatedly: it alternates. If the weights
/// do not fit the cache, it holds the end of the last pass, which is then read first; in a fixed
/// direction, each line would be evicted before it is read again.
pub(crate) struct Turns {
    /// Weights read by the last such launch.
    read: Next,
    backward: bool,
}

impl Turns {
    /// Initially no launch has run.
    pub(crate) fn new() -> Turns {
        Turns { read: Next::NOTHING, backward: false }
    }

    /// Returns what to prefetch during a launch with this hint, and whether it runs backward.
    /// `own`: the launch itself reads these weights.
    pub(crate) fn launch(&mut self, next: Next, own: bool) -> (Next, bool) {
        let again = next == self.read && next.bytes > 0;
        if own {
            self.backward = again && !self.backward;
            self.read = next;
        }
        // After reversing, the weights read first are still cached.
        (if own || again { Next::NOTHING } else { next }, own && self.backward)
    }
}

/// Prefetching state of a thread.
pub(crate) struct Ahead {
    next: Next,
    at: *const u8,
    /// Bytes left, starting at `at`.
    left: usize,
}

impl Ahead {
    /// Starts prefetching the part of thread `thread` of `threads`.
    pub(crate) fn new(next: Next, thread: usize, threads: usize) -> Ahead {
        let threads = threads.max(1) as u64;
        let part = next.bytes / threads;
        let at = next.start.wrapping_add(part.saturating_mul(thread as u64) as usize);
        Ahead { next, at, left: part.min(MAX_PREFETCH) as usize }
    }

    /// The same, but continues if `next` is already being prefetched.
    pub(crate) fn go_on(&mut self, next: Next, thread: usize, threads: usize) {
        if next != self.next {
            *self = Ahead::new(next, thread, threads);
        }
    }

    /// Prefetches a few lines. Returns false if nothing is left.
    pub(crate) fn fetch(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        for line in 0..STEP / LINE {
            fetch_line(self.at.wrapping_add(line * LINE));
        }
        self.at = self.at.wrapping_add(STEP);
        self.left = self.left.saturating_sub(STEP);
        true
    }
}

/// Prefetches a cache line; any address is valid.
pub(crate) fn fetch_line(at: *const u8) {
    // SAFETY: a prefetch hint has no semantic effect, whatever the address.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(at.cast());
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!("prfm pldl2keep, [{at}]", at = in(reg) at, options(nostack, readonly, preserves_flags));
    }
}
