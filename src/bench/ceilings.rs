//! What the machine can do at best, measured here and now: multiply-adds a second, bytes read from memory a second.
//!
//! In: a number of threads. Out: [`Ceilings`]. The loops are machine code by hand, so that they are the same in every
//! build: one does nothing but multiply-adds on independent registers of the widest kind that the processor has, the other
//! reads a buffer much larger than its caches, on large pages as weights are, in every way that is fastest on some processor.
//! The best of several rounds counts: a ceiling is what the machine reaches when nobody disturbs it. It must not know kernels.

use super::machine::{BLOCK, Unit, Way};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// What a machine can do at best.
#[derive(Clone, Debug, PartialEq)]
pub struct Ceilings {
    /// Threads that worked.
    pub threads: usize,
    /// Floating-point operations a second.
    pub flops: f64,
    /// Bytes read from memory a second.
    pub bandwidth: f64,
    /// The vectors that were used: `512-bit FMA`.
    pub vectors: &'static str,
    /// Bytes of the buffer that was read.
    pub buffer: usize,
}

/// Rounds of each measurement.
const ROUNDS: usize = 7;
/// How long a thread multiplies in a round.
const ROUND: Duration = Duration::from_millis(15);
/// How long all threads multiply before the first round.
const WARM: Duration = Duration::from_millis(700);
/// The buffer is this many times the largest cache.
const CACHES: usize = 4;

/// Measures with this many threads; at least one.
pub fn measure(threads: usize) -> Ceilings {
    let threads = threads.clamp(1, 1024);
    let unit = Unit::best();
    let mut steps = 1 << 12;
    // As many steps as fill a round on this machine.
    while time(|| unit.multiply(steps)) < ROUND && steps < 1 << 40 {
        steps *= 2;
    }
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while start.elapsed() < WARM {
                    unit.multiply(steps);
                }
            });
        }
    });
    let operations = steps as f64 * unit.flops_per_step();
    let flops = best_rate(threads, operations, &|_| unit.multiply(steps));

    let buffer = buffer_bytes().max(threads * BLOCK);
    let memory = on_large_pages(buffer);
    let share = buffer / threads / BLOCK * BLOCK;
    let read = |way: Way, thread: usize| {
        unit.read(way, memory.get(thread * share..(thread + 1) * share).unwrap_or_default());
    };
    let rate = |way: Way| best_rate(threads, share as f64, &|thread| read(way, thread));
    let bandwidth = rate(Way::Places).max(rate(Way::Order));
    Ceilings { threads, flops, bandwidth, vectors: unit.name(), buffer }
}

/// Memory that has been written to, on large pages where the system gives them.
fn on_large_pages(size: usize) -> Box<dyn std::ops::Deref<Target = [u8]> + Sync> {
    let Ok(mut memory) = memmap2::MmapMut::map_anon(size) else { return Box::new(vec![1u8; size]) };
    // Advice: without it the pages are small.
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    memory.fill(1);
    Box::new(memory)
}

fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// The best rate of all threads together, where each does `amount` of work in a round.
fn best_rate(threads: usize, amount: f64, work: &(dyn Fn(usize) + Sync)) -> f64 {
    let mut best = 0.0f64;
    for _ in 0..ROUNDS {
        let barrier = Barrier::new(threads);
        let times: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
            let run = |thread: usize| {
                barrier.wait();
                let start = Instant::now();
                work(thread);
                (start, Instant::now())
            };
            let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
            handles.into_iter().filter_map(|h| h.join().ok()).collect()
        });
        let (first, last) = (times.iter().map(|t| t.0).min(), times.iter().map(|t| t.1).max());
        if let (Some(first), Some(last)) = (first, last) {
            let seconds = (last - first).as_secs_f64().max(1e-9);
            best = best.max(amount * times.len() as f64 / seconds);
        }
    }
    best
}

/// Bytes to read: several times the largest cache, at most a quarter of the free memory.
fn buffer_bytes() -> usize {
    let wanted = (largest_cache() * CACHES).clamp(256 << 20, 2 << 30);
    let free = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.split_whitespace().next()?.parse::<usize>().ok()
    });
    let limit = free.map_or(256 << 20, |kib| (kib / 4).saturating_mul(1 << 10));
    wanted.min(limit).max(1 << 20) / BLOCK * BLOCK
}

/// Bytes of the processor's largest cache, as the system tells; 32 MiB where it does not.
fn largest_cache() -> usize {
    let size = |index: u32| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = std::fs::read_to_string(path).ok()?;
        let text = text.trim();
        let (digits, unit) = match text.strip_suffix('K') {
            Some(digits) => (digits, 1 << 10),
            None => (text.strip_suffix('M')?, 1 << 20),
        };
        digits.parse::<usize>().ok()?.checked_mul(unit)
    };
    (0..8).filter_map(size).max().unwrap_or(32 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_does_something() {
        let ceilings = measure(1);
        // Slower than any machine of this century, faster than any of the next years.
        assert!((1e8..1e13).contains(&ceilings.flops), "{ceilings:?}");
        assert!((1e8..1e13).contains(&ceilings.bandwidth), "{ceilings:?}");
        assert!(ceilings.buffer >= BLOCK && ceilings.buffer.is_multiple_of(BLOCK), "{ceilings:?}");
    }
}
