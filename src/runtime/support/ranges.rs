//! How the grid points of a launch are handed out to threads.
//!
//! In: how many points there are. Out: ranges, each point in one of them.
//!
//! This is affinity scheduling with work stealing (Markatos and LeBlanc 1994). All threads begin with parts of equal length. A
//! thread takes a quarter of its remaining part at a time, from the front; when it has none left, it steals half of the longest
//! remaining part. So a thread reads memory in order nearly to the end, which a product of few rows needs: with ranges from one
//! shared counter, each begins at addresses that no prefetcher has seen, and 4-bit weights were read a fifth slower. And until
//! they run out, threads use only their own cache line. A launch that goes backward takes from the back, and steals at the front.
//!
//! What it must not know: what is done with the points.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Of what is left of its part, a thread takes one in this many.
const OWN: u32 = 4;

/// What is left of a thread's part: its end below, its start above. Each lies on lines of its own.
#[repr(C)]
struct Part {
    left: AtomicU64,
    /// Is it taken from the back? The same in all parts.
    backward: AtomicBool,
    apart: [u64; 14],
}

/// The parts of all threads.
pub(crate) struct Ranges(Vec<Part>);

fn packed(start: u32, end: u32) -> u64 {
    u64::from(start) << 32 | u64::from(end)
}

fn unpacked(left: u64) -> (u32, u32) {
    ((left >> 32) as u32, left as u32)
}

impl Ranges {
    /// No points, for this many threads; `None` where there is no memory.
    pub(crate) fn new(threads: usize) -> Option<Ranges> {
        let mut parts = Vec::new();
        parts.try_reserve_exact(threads).ok()?;
        parts.extend((0..threads).map(|_| Part {
            left: AtomicU64::new(0),
            backward: AtomicBool::new(false),
            apart: [0; 14],
        }));
        Some(Ranges(parts))
    }

    /// Threads that have parts.
    pub(crate) fn threads(&self) -> usize {
        self.0.len()
    }

    /// Where the rest of a thread's part is kept.
    pub(crate) fn line_of(&self, thread: usize) -> *const u8 {
        self.0.get(thread).map_or(core::ptr::null(), |part| (&raw const part.left).cast())
    }

    /// Hands out the points `0..total`, those of a part from the back where it goes `backward`; no thread may be taking any.
    pub(crate) fn reset(&self, total: u32, backward: bool) {
        let threads = self.0.len().max(1) as u64;
        // Below 2^64: there are fewer threads than 2^32.
        let from = |n: usize| (u64::from(total) * n as u64 / threads) as u32;
        for (n, part) in self.0.iter().enumerate() {
            part.backward.store(backward, Ordering::Relaxed);
            part.left.store(packed(from(n), from(n + 1)), Ordering::Relaxed);
        }
    }

    /// The next range of this thread, of at most this many points; `None` when all have been handed out, or are about to be
    /// by a thread that has taken them.
    pub(crate) fn take(&self, thread: usize, most: u32) -> Option<(u32, u32)> {
        let Part { left: own, backward, .. } = self.0.get(thread)?;
        let backward = backward.load(Ordering::Relaxed);
        loop {
            let left = own.load(Ordering::Relaxed);
            let (start, end) = unpacked(left);
            if start < end {
                let count = ((end - start) / OWN).min(most).max(1);
                let (taken, rest) = match backward {
                    false => ((start, start + count), (start + count, end)),
                    true => ((end - count, end), (start, end - count)),
                };
                if own.compare_exchange(left, packed(rest.0, rest.1), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                    return Some(taken);
                }
                continue;
            }
            let fullest = self.0.iter().map(|p| (&p.left, p.left.load(Ordering::Relaxed)));
            let (other, left) = fullest.max_by_key(|(_, left)| {
                let (start, end) = unpacked(*left);
                end.saturating_sub(start)
            })?;
            let (start, end) = unpacked(left);
            if start >= end {
                return None;
            }
            // The owner keeps the end that it takes from, and of an odd number the smaller half.
            let middle = if backward { end - (end - start) / 2 } else { start + (end - start) / 2 };
            let (kept, stolen) = match backward {
                false => ((start, middle), (middle, end)),
                true => ((middle, end), (start, middle)),
            };
            if other.compare_exchange(left, packed(kept.0, kept.1), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                // Others leave an empty part alone.
                own.store(packed(stolen.0, stolen.1), Ordering::Relaxed);
            }
        }
    }
}
