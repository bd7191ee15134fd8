//! Distribution of a launch's grid points to threads.
//!
//! In: the number of points. Out: disjoint ranges that cover all of them.
//!
//! Affinity scheduling with work stealing (Markatos and LeBlanc 1994). All threads start with parts
//! of equal length. A thread takes a quarter of its remaining part at a time, from the front; when
//! it has none left, it steals half of the longest remaining part. So a thread reads memory
//! sequentially nearly to the end, as matmuls with few rows require: if ranges came from one shared
//! counter, each would begin at an address unknown to the prefetcher, and 4-bit weights were read a
//! fifth slower. And until parts run out, threads use only their own cache line. A backward launch
//! takes from the back, and steals at the front.
//!
//! It must not know what is done with the points.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A thread takes one in this many of its remaining points.
const OWN: u32 = 4;

/// The rest of a thread's part: its end in the low half, its start in the high half. Each has cache
/// lines of its own.
#[repr(C)]
struct ThreadRange {
    left: AtomicU64,
    /// Points are taken from the back. The same in all parts.
    backward: AtomicBool,
    apart: [u64; 14],
}

pub(crate) struct Ranges(Vec<ThreadRange>);

fn packed(start: u32, end: u32) -> u64 {
    u64::from(start) << 32 | u64::from(end)
}

fn unpacked(left: u64) -> (u32, u32) {
    ((left >> 32) as u32, left as u32)
}

impl Ranges {
    /// No points yet, for this many threads; `None` if out of memory.
    pub(crate) fn new(threads: usize) -> Option<Ranges> {
        let mut parts = Vec::new();
        parts.try_reserve_exact(threads).ok()?;
        parts.extend((0..threads).map(|_| ThreadRange {
            left: AtomicU64::new(0),
            backward: AtomicBool::new(false),
            apart: [0; 14],
        }));
        Some(Ranges(parts))
    }

    /// Number of threads.
    pub(crate) fn threads(&self) -> usize {
        self.0.len()
    }

    /// Address of the cache line with a thread's part.
    pub(crate) fn line_of(&self, thread: usize) -> *const u8 {
        self.0.get(thread).map_or(core::ptr::null(), |part| (&raw const part.left).cast())
    }

    /// Distributes the points `0..total`, taken from the back if `backward`; no thread may be
    /// taking points concurrently.
    pub(crate) fn reset(&self, total: u32, backward: bool) {
        let threads = self.0.len().max(1) as u64;
        // Below 2^64: there are fewer threads than 2^32.
        let from = |n: usize| (u64::from(total) * n as u64 / threads) as u32;
        for (n, part) in self.0.iter().enumerate() {
            part.backward.store(backward, Ordering::Relaxed);
            part.left.store(packed(from(n), from(n + 1)), Ordering::Relaxed);
        }
    }

    /// The next range of this thread, of at most `most` points; `None` when all have been
    /// distributed, or have just been stolen by a thread that will distribute them.
    pub(crate) fn take(&self, thread: usize, most: u32) -> Option<(u32, u32)> {
        let ThreadRange { left: own, backward, .. } = self.0.get(thread)?;
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
            // The owner keeps the end that it takes from; of an odd number, it keeps the smaller
            // half.
            let middle = if backward { end - (end - start) / 2 } else { start + (end - start) / 2 };
            let (kept, stolen) = match backward {
                false => ((start, middle), (middle, end)),
                true => ((middle, end), (start, middle)),
            };
            if other.compare_exchange(left, packed(kept.0, kept.1), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                // No other thread changes an empty part.
                own.store(packed(stolen.0, stolen.1), Ordering::Relaxed);
            }
        }
    }
}
