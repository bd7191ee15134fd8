//! What the machine can do at best, measured here and now: multiply-adds a second, bytes read a second from each cache and from
//! memory.
//!
//! In: a number of threads. Out: [`Ceilings`]. The loops are machine code by hand, so that they are the same in every
//! build: some do nothing but multiply-adds on independent registers, of the widest `f32` and of every other kind that
//! the processor has (`products`); the others read a buffer: parts that fit into each cache, again and again, or one
//! much larger than the caches, on large pages as weights are, in every way that is fastest on some processor.
//! The best of several rounds counts: a ceiling is what the machine reaches when nobody disturbs it. It must not know kernels.

use super::Products;
use super::machine::{BLOCK, LINES, Unit, Way};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// A cache, or memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// `L1`, `L2`, `L3`, `memory`.
    pub name: &'static str,
    /// Bytes that all threads together have space for in it.
    pub bytes: u64,
    /// Bytes read a second, by all threads together.
    pub bandwidth: f64,
}

/// What a machine can do at best.
#[derive(Clone, Debug, PartialEq)]
pub struct Ceilings {
    /// Threads that worked; of a GPU, its multiprocessors.
    pub workers: usize,
    /// Operations a second, by what multiplies: `f32` first, then what else the processor has.
    pub products: Vec<(Products, f64)>,
    /// The vectors of `f32` that were used: `512-bit FMA`.
    pub vectors: &'static str,
    /// Caches, the nearest first, then memory.
    pub memories: Vec<Memory>,
    /// Bytes of the buffer that was read from memory.
    pub buffer: usize,
    /// The median round as a part of the best one, in the measurement where that is least: near 1 on an idle machine.
    pub steadiness: f64,
}

impl Ceilings {
    /// Operations a second of `f32`.
    pub fn flops(&self) -> f64 {
        self.products.first().map_or(0.0, |(_, flops)| *flops)
    }

    /// Operations a second where some may be products of a kind: those of `f32` are never out of reach.
    pub fn products(&self, of: Products) -> f64 {
        let own = self.products.iter().find(|(products, _)| *products == of);
        own.map_or(0.0, |(_, flops)| *flops).max(self.flops())
    }

    /// The nearest memory that holds this many bytes.
    pub fn memory_of(&self, bytes: u64) -> Memory {
        let none = Memory { name: "memory", bytes: u64::MAX, bandwidth: 0.0 };
        self.memories.iter().find(|m| bytes <= m.bytes).or(self.memories.last()).copied().unwrap_or(none)
    }

    /// Bytes a second from memory.
    pub fn bandwidth(&self) -> f64 {
        self.memories.last().map_or(0.0, |m| m.bandwidth)
    }
}

/// Rounds of each measurement.
const ROUNDS: usize = 7;
/// How long a thread multiplies, or reads from a cache, in a round.
const ROUND: Duration = Duration::from_millis(15);
/// How long all threads multiply before the first round.
const WARM: Duration = Duration::from_millis(700);
/// The buffer is this many times the largest cache.
const CACHES: usize = 4;

/// Measures with this many threads; at least one.
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
    // From the farthest on: what is nearer is no slower.
    for cache in caches(threads).into_iter().rev() {
        // Half of a cache: the other half is left for other data.
        let part = cache.read.min(share) / LINES * LINES;
        let bytes = |thread: usize| own(thread).get(..part).unwrap_or_default();
        let passes = steps_of(&|passes| unit.read_again(bytes(0), passes));
        let amount = part as f64 * passes as f64;
        bandwidth = best_rate(amount, &|thread| unit.read_again(bytes(thread), passes)).max(bandwidth);
        memories.insert(0, Memory { name: cache.name, bytes: cache.bytes, bandwidth });
    }
    Ceilings { workers: threads, products, vectors: unit.name(), memories, buffer, steadiness: steadiness.get() }
}

/// As many steps as fill a round on this machine.
fn steps_of(work: &dyn Fn(u64)) -> u64 {
    let mut steps = 1;
    while time(|| work(steps)) < ROUND && steps < 1 << 40 {
        steps *= 2;
    }
    steps
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

/// The best and the median rate of all threads together over the rounds, where each thread does `amount` of work in a round.
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

/// Bytes of the processor's largest cache, as the system reports; 32 MiB where it does not.
fn largest_cache() -> usize {
    listed().into_iter().map(|(_, size, _)| size).max().unwrap_or(32 << 20)
}

/// A cache as threads see it.
struct Cache {
    name: &'static str,
    /// Bytes that all threads together have space for.
    bytes: u64,
    /// Bytes that a thread reads of it to find out how fast it is.
    read: usize,
}

/// The caches for data, the nearest first; those of most processors where the system does not report them.
fn caches(threads: usize) -> Vec<Cache> {
    let mut found: Vec<Cache> = Vec::new();
    for (level, size, sharing) in listed() {
        let Some(name) = ["L1", "L2", "L3", "L4"].get(usize::from(level).wrapping_sub(1)).copied() else { continue };
        let sharing = sharing.clamp(1, threads);
        let nearer = found.last().map_or(0, |c| c.read);
        // For a cache that many cores share, a part that is in no nearer cache is enough.
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

/// Levels, bytes and the number of processors that share it, of each cache for data that the system reports.
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
        // Slower than any machine of this century, faster than any of the next years.
        let sane = |x: f64| (1e8..1e14).contains(&x);
        assert!(ceilings.products.iter().all(|(_, flops)| sane(*flops)), "{ceilings:?}");
        assert_eq!(ceilings.products.first().map(|p| p.0), Some(Products::Floats));
        assert!(ceilings.memories.iter().all(|m| sane(m.bandwidth)), "{ceilings:?}");
        assert!(ceilings.buffer >= BLOCK && ceilings.buffer.is_multiple_of(BLOCK), "{ceilings:?}");
        assert!(ceilings.steadiness > 0.0 && ceilings.steadiness <= 1.0, "{ceilings:?}");
        // What is nearer is smaller and no slower; memory is last and holds everything.
        let pairs = ceilings.memories.windows(2);
        assert!(pairs.clone().count() > 0 && pairs.clone().all(|m| m[0].bytes < m[1].bytes), "{ceilings:?}");
        assert!(ceilings.memories.windows(2).all(|m| m[0].bandwidth >= m[1].bandwidth), "{ceilings:?}");
        assert_eq!(ceilings.memory_of(u64::MAX).name, "memory");
        assert_eq!(ceilings.memory_of(1).name, "L1");
    }
}
