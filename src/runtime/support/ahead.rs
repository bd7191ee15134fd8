//! Prefetching by idle threads: while a thread waits for others, it prefetches the beginning of its part of the next weights.
//!
//! In: their addresses, which the plan passes with each launch. Out: lines in the second-level cache. A launch of few rows is
//! bound by memory bandwidth, which is unused while threads wait for each other or do something small; so the next launch
//! starts with cached weights. It never affects results: a prefetch loads no value.
//!
//! A thread's part is that of `ranges`: weights are stored in the order of the grid points, equally many bytes for each.
//!
//! What it must not know: what the weights are.

/// Bytes that a thread fetches at most: a quarter of a second-level cache of these days, a half of a small one.
const MOST: u64 = 256 << 10;
/// Bytes of a cache line, and of what is fetched before the thread looks for work again.
const LINE: usize = 64;
const STEP: usize = 4 * LINE;

/// Memory that is read in a while, in order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) start: *const u8,
    pub(crate) bytes: u64,
}

impl Next {
    /// No memory.
    pub(crate) const NOTHING: Next = Next { start: core::ptr::null(), bytes: 0 };
}

/// Which way launches go that read the same weights again and again: to and fro. What a cache has kept of weights that do not fit
/// is what was read last, and is read first then; in one direction, each line is gone before its turn comes.
pub(crate) struct Turns {
    /// The weights that the last such launch read.
    read: Next,
    backward: bool,
}

impl Turns {
    /// There was no launch.
    pub(crate) fn new() -> Turns {
        Turns { read: Next::NOTHING, backward: false }
    }

    /// What to fetch ahead during a launch with this hint, which reads these weights itself (`own`) or not, and whether it goes
    /// backward.
    pub(crate) fn launch(&mut self, next: Next, own: bool) -> (Next, bool) {
        let again = next == self.read && next.bytes > 0;
        if own {
            self.backward = again && !self.backward;
            self.read = next;
        }
        // What is read first after a turn was read last.
        (if own || again { Next::NOTHING } else { next }, own && self.backward)
    }
}

/// How far a thread has come.
pub(crate) struct Ahead {
    next: Next,
    at: *const u8,
    /// Bytes from there on.
    left: usize,
}

impl Ahead {
    /// Nothing has been fetched of the part of thread `thread` of this many.
    pub(crate) fn new(next: Next, thread: usize, threads: usize) -> Ahead {
        let threads = threads.max(1) as u64;
        let part = next.bytes / threads;
        let at = next.start.wrapping_add(part.saturating_mul(thread as u64) as usize);
        Ahead { next, at, left: part.min(MOST) as usize }
    }

    /// The same, unless it is what is being fetched.
    pub(crate) fn go_on(&mut self, next: Next, thread: usize, threads: usize) {
        if next != self.next {
            *self = Ahead::new(next, thread, threads);
        }
    }

    /// Fetches a little. False if there is nothing left to fetch.
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

/// Fetches the line of an address, which may be any.
pub(crate) fn fetch_line(at: *const u8) {
    // SAFETY: a hint, which has no effect on what a program means, whatever the address.
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
