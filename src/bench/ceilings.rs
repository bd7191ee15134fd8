//! Measures the ceilings of a CPU: multiply-adds per second, and bytes read per second from each
//! cache and from memory.
//!
//! In: a number of threads. Out: [`Ceilings`]. The loops are handwritten machine code, so that they
//! are the same in every build. Some execute only multiply-adds on independent registers, with the
//! widest `f32` vectors and with every other kind that the CPU supports (`products`). The others
//! read a buffer: parts that fit into each cache, repeatedly, or one much larger than the caches,
//! on huge pages as weights are, in each of the access patterns that are fastest on some CPU. The
//! best of several rounds counts: a ceiling is what an undisturbed machine reaches. It must not
//! know kernels.

use super::Products;
use super::machine::{BLOCK, LINES, Unit, Way};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// A cache, or main memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// `L1`, `L2`, `L3`, `memory`.
    pub name: &'static str,
    /// Total capacity for all threads, in bytes.
    pub bytes: u64,
    /// Read bandwidth of all threads together, in bytes per second.
    pub bandwidth: f64,
}

/// The ceilings of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Ceilings {
    /// Number of threads; for a GPU, of multiprocessors.
    pub workers: usize,
    /// Operations per second for each kind of multiplication: `f32` first, then the others that the
    /// machine supports.
    pub products: Vec<(Products, f64)>,
    /// The `f32` vectors used: `512-bit FMA`.
    pub vectors: &'static str,
    /// Caches, nearest first, then main memory.
    pub memories: Vec<Memory>,
    /// Size of the buffer that was read from memory, in bytes.
    pub buffer: usize,
    /// Median round relative to the best one, in the least steady measurement: near 1 on an idle
    /// machine.
    pub steadiness: f64,
}

impl Ceilings {
    /// `f32` operations per second.
    pub fn flops(&self) -> f64 {
        self.products.first().map_or(0.0, |(_, flops)| *flops)
    }

    /// Operations per second of a kind; at least the rate of `f32`, which is always an alternative.
    pub fn products(&self, of: Products) -> f64 {
        let own = self.products.iter().find(|(products, _)| *products == of);
        own.map_or(0.0, |(_, flops)| *flops).max(self.flops())
    }

    /// The nearest memory that holds this many bytes.
    pub fn memory_of(&self, bytes: u64) -> Memory {
        let none = Memory { name: "memory", bytes: u64::MAX, bandwidth: 0.0 };
        self.memories.iter().find(|m| bytes <= m.bytes).or(self.memories.last()).copied().unwrap_or(none)
    }

    /// Memory bandwidth in bytes per second.
    pub fn bandwidth(&self) -> f64 {
        self.memories.last().map_or(0.0, |m| m.bandwidth)
    }
}

/// Number of rounds of each measurement.
const ROUNDS: usize = 7;
/// Duration of a round per thread.
const ROUND: Duration = Duration::from_millis(15);
/// Warm-up time before the first round.
const WARM: Duration = Duration::from_millis(700);
/// Size of the buffer relative to the largest cache.
const CACHES: usize = 4;

/// Measures with this many threads, at least one.
pub fn measure(threads: usize) -> Ceilings {
    let threads = threads.clamp(1, 1024);
    let unit = Unit::best();
    let steps = steps_of(&|steps| unit.multiply(steps));
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
    let steadiness = std::cell::Cell::new(1.0f64);
    let best_rate = |amount: f64, work: &(dyn Fn(usize) + Sync)| {
        let (best, median) = rates(threads, amount, work);
        steadiness.set(steadiness.get().min(median / best.max(1.0)));
        best
    };
    let flops = best_rate(steps as f64 * unit.flops_per_step(), &|_| unit.multiply(steps));
    let mut products = vec![(Products::Floats, flops)];
    for other in Products::here() {
        let steps = steps_of(&|steps| other.multiply(steps));
        let operations = steps as f64 * other.operations_per_step();
        products.push((other, best_rate(operations, &|_| other.multiply(steps))));
    }

    let buffer = buffer_bytes().max(threads * BLOCK);
    let memory = on_large_pages(buffer);
    let share = buffer / threads / BLOCK * BLOCK;
    let own = |thread: usize| memory.get(thread * share..(thread + 1) * share).unwrap_or_default();
    let rate = |way: Way| best_rate(share as f64, &|thread| unit.read(way, own(thread)));
    let mut bandwidth = rate(Way::Places).max(rate(Way::Order));
    let mut memories = vec![Memory { name: "memory", bytes: u64::MAX, bandwidth }];
    // From the farthest cache to the nearest: a nearer one is never slower.
    for cache in caches(threads).into_iter().rev() {
        // Half of a cache, to leave space for other data.
        let part = cache.read.min(share) / LINES * LINES;
        let bytes = |thread: usize| own(thread).get(..part).unwrap_or_default();
        let passes = steps_of(&|passes| unit.read_again(bytes(0), passes));
        let amount = part as f64 * passes as f64;
        bandwidth = best_rate(amount, &|thread| unit.read_again(bytes(thread), passes)).max(bandwidth);
        memories.insert(0, Memory { name: cache.name, bytes: cache.bytes, bandwidth });
    }
    Ceilings { workers: threads, products, vectors: unit.name(), memories, buffer, steadiness: steadiness.get() }
}

/// Number of steps that fill a round on this machine.
fn steps_of(work: &dyn Fn(u64)) -> u64 {
    let mut steps = 1;
    while time(|| work(steps)) < ROUND && steps < 1 << 40 {
        steps *= 2;
    }
    steps
}

/// Initialised memory, on huge pages if the system provides them.
fn on_large_pages(size: usize) -> Box<dyn std::ops::Deref<Target = [u8]> + Sync> {
    let Ok(mut memory) = memmap2::MmapMut::map_anon(size) else { return Box::new(vec![1u8; size]) };
    // Only advice: otherwise the pages are small.
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

/// The best and the median total rate over the rounds; each thread does `amount` of work per round.
fn rates(threads: usize, amount: f64, work: &(dyn Fn(usize) + Sync)) -> (f64, f64) {
    let mut rates = vec![0.0f64];
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
            rates.push(amount * times.len() as f64 / seconds);
        }
    }
    rates.sort_unstable_by(f64::total_cmp);
    (rates.last().copied().unwrap_or(0.0), rates.get(rates.len() / 2).copied().unwrap_or(0.0))
}

/// Size of the buffer: several times the largest cache, at most a quarter of the free memory.
fn buffer_bytes() -> usize {
    let wanted = (largest_cache() * CACHES).clamp(256 << 20, 2 << 30);
    let free = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.split_whitespace().next()?.parse::<usize>().ok()
    });
    let limit = free.map_or(256 << 20, |kib| (kib / 4).saturating_mul(1 << 10));
    wanted.min(limit).max(1 << 20) / BLOCK * BLOCK
}

/// Size of the largest cache as reported by the system, or else 32 MiB.
fn largest_cache() -> usize {
    listed().into_iter().map(|(_, size, _)| size).max().unwrap_or(32 << 20)
}

/// A cache, from the perspective of threads.
struct Cache {
    name: &'static str,
    /// Total capacity for all threads, in bytes.
    bytes: u64,
    /// Bytes that a thread reads to measure it.
    read: usize,
}

/// The data caches, nearest first; typical ones if the system does not report them.
fn caches(threads: usize) -> Vec<Cache> {
    let mut found: Vec<Cache> = Vec::new();
    for (level, size, sharing) in listed() {
        let Some(name) = ["L1", "L2", "L3", "L4"].get(usize::from(level).wrapping_sub(1)).copied() else { continue };
        let sharing = sharing.clamp(1, threads);
        let nearer = found.last().map_or(0, |c| c.read);
        // Of a cache shared by many cores, a part that exceeds the nearer caches is enough.
        let read = (size / 2 / sharing).min((4 * nearer).max(1 << 20));
        if read > nearer {
            found.push(Cache { name, bytes: (size * threads.div_ceil(sharing)) as u64, read });
        }
    }
    if found.is_empty() {
        for (name, size) in [("L1", 32 << 10), ("L2", 512 << 10)] {
            found.push(Cache { name, bytes: (size * threads) as u64, read: size / 2 });
        }
    }
    found
}

/// Level, size and number of sharing processors of each data cache that the system reports.
fn listed() -> Vec<(u8, usize, usize)> {
    let cache = |index: u32| {
        let read = |what: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}");
            Some(std::fs::read_to_string(path).ok()?.trim().to_string())
        };
        if read("type")? == "Instruction" {
            return None;
        }
        let size = read("size")?;
        let (digits, unit) = match size.strip_suffix('K') {
            Some(digits) => (digits, 1 << 10),
            None => (size.strip_suffix('M')?, 1 << 20),
        };
        let size = digits.parse::<usize>().ok()?.checked_mul(unit)?;
        // `0-1,8-9`
        let count = |part: &str| match part.split_once('-') {
            Some((a, b)) => Some(b.parse::<usize>().ok()?.checked_sub(a.parse().ok()?)? + 1),
            None => part.parse::<usize>().ok().map(|_| 1),
        };
        let sharing = read("shared_cpu_list").and_then(|list| list.split(',').map(count).sum::<Option<usize>>());
        Some((read("level")?.parse().ok()?, size, sharing.unwrap_or(1)))
    };
    let mut all: Vec<_> = (0..8).filter_map(cache).collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_does_something() {
        let ceilings = measure(1);
        // Plausible for any machine of this century.
        let sane = |x: f64| (1e8..1e14).contains(&x);
        assert!(ceilings.products.iter().all(|(_, flops)| sane(*flops)), "{ceilings:?}");
        assert_eq!(ceilings.products.first().map(|p| p.0), Some(Products::Floats));
        assert!(ceilings.memories.iter().all(|m| sane(m.bandwidth)), "{ceilings:?}");
        assert!(ceilings.buffer >= BLOCK && ceilings.buffer.is_multiple_of(BLOCK), "{ceilings:?}");
        assert!(ceilings.steadiness > 0.0 && ceilings.steadiness <= 1.0, "{ceilings:?}");
        // Nearer memories are smaller and not slower; main memory is last.
        let pairs = ceilings.memories.windows(2);
        assert!(pairs.clone().count() > 0 && pairs.clone().all(|m| m[0].bytes < m[1].bytes), "{ceilings:?}");
        assert!(ceilings.memories.windows(2).all(|m| m[0].bandwidth >= m[1].bandwidth), "{ceilings:?}");
        assert_eq!(ceilings.memory_of(u64::MAX).name, "memory");
        assert_eq!(ceilings.memory_of(1).name, "L1");
    }
}
