//! The threads of a model: a launch's grid points are handed out to them in ranges (`ranges`).
//!
//! A pool has one thread less than the model was opened with; the calling thread works too. One launch has the pool at
//! a time, and another session's launch meanwhile runs on its own thread alone: which thread does what changes no
//! result, because grid points are independent. The caller never waits for a thread that has not begun, so that a
//! process that was forked, and has lost the threads, only loses time.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;
use core::ptr::null;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use crate::abi::{Kernel, PlanContext};
use crate::float_mode::DefaultMode;
use crate::ranges::Ranges;
use crate::sys::{Condition, Mutex, Thread, clock, process, processors};

/// Threads that a model may have.
const MOST_THREADS: usize = 256;
/// Looks at a flag before a thread goes to sleep; some 20 microseconds.
const SPINS: u32 = 4000;
/// No thread is woken for what would take less than this, in nanoseconds. Those that are awake take part in any case.
const WORTHWHILE: i64 = 15_000;
/// One in so many points tells how long the others will take.
const TRIED: u32 = 64;
/// Points that are handed out at a time.
const MOST_POINTS: i64 = u32::MAX as i64;

/// What generated code reported, and where.
#[derive(Clone, Copy)]
pub(crate) struct Report {
    /// First grid point of the range in which it happened; `i64::MAX` where nothing did.
    pub(crate) start: i64,
    pub(crate) site: i64,
    pub(crate) values: [i64; 3],
}

impl Report {
    /// Nothing.
    pub(crate) const NONE: Report = Report { start: i64::MAX, site: -1, values: [0; 3] };

    /// The one of two that happened in the lower range.
    fn lower(self, other: Report) -> Report {
        if other.start < self.start { other } else { self }
    }
}

/// A kernel and its grid points.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    pub(crate) kernel: Kernel,
    pub(crate) args: *const u64,
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Scratch of the first thread, and bytes to that of the next.
    pub(crate) scratch: *mut u8,
    pub(crate) stride: usize,
}

impl Work {
    /// Runs a range on this thread, with a context of its own to report to.
    ///
    /// # Safety
    /// The kernel, its arguments and the context belong together; `worker` has scratch.
    pub(crate) unsafe fn run(&self, ctx: *const PlanContext, start: i64, end: i64, worker: usize) -> Report {
        let mut report = Report::NONE;
        // SAFETY: as the caller promises; a copy of the context is as good as itself to a kernel.
        unsafe {
            let mut own = ctx.read();
            own.runtime = (&raw mut report).cast();
            let scratch = self.scratch.wrapping_add(worker * self.stride);
            own.scratch = scratch;
            (self.kernel)(self.args, start, end, scratch, &raw mut own);
        }
        if report.site >= 0 {
            report.start = start;
        }
        report
    }
}

/// A launch that the pool is doing.
struct Job {
    work: Work,
    ctx: *const PlanContext,
    /// What is left of its points, counted from the first.
    ranges: *const Ranges,
    /// No range from here on is of interest: a lower one had a report.
    end: AtomicI64,
}

struct Shared {
    lock: Mutex,
    /// There is a job, or it is time to stop.
    wake: Condition,
    /// No thread is at work any more.
    done: Condition,
    /// Counts jobs; threads watch it without the lock.
    generation: AtomicU64,
    /// Threads in the job, the caller not counted. Changed under the lock.
    active: AtomicU64,
    /// A launch has the pool.
    busy: AtomicBool,
    /// The points of the job.
    ranges: Ranges,
    inner: UnsafeCell<Inner>,
}

/// What the lock guards.
struct Inner {
    job: *const Job,
    stop: bool,
    sleepers: u64,
    report: Report,
}

// SAFETY: `inner` is used under the lock; a job outlives the threads that are in it.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// The threads of a model.
pub(crate) struct Pool {
    shared: ManuallyDrop<Box<Shared>>,
    threads: Vec<Thread>,
    /// A process that was forked from this one has no threads to join.
    process: i32,
}

/// What a new thread is told.
struct Start {
    shared: *const Shared,
    worker: usize,
}

impl Pool {
    /// A pool for `threads` threads, the caller's among them; 0 is one for each processor. Where the system refuses
    /// some, there are fewer.
    pub(crate) fn new(threads: usize) -> Pool {
        let wanted = if threads == 0 { processors() } else { threads }.clamp(1, MOST_THREADS);
        let inner = Inner { job: null(), stop: false, sleepers: 0, report: Report::NONE };
        let shared = Box::new(Shared {
            lock: Mutex::new(),
            wake: Condition::new(),
            done: Condition::new(),
            generation: AtomicU64::new(0),
            active: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            ranges: Ranges::new(wanted),
            inner: UnsafeCell::new(inner),
        });
        let mut threads = Vec::new();
        for worker in 1..wanted {
            let start = Box::into_raw(Box::new(Start { shared: &raw const *shared, worker }));
            // SAFETY: the thread takes the box; the pool joins it before `shared` goes.
            match unsafe { Thread::start(enter, start.cast()) } {
                Some(t) => threads.push(t),
                None => {
                    // SAFETY: no thread has taken it.
                    drop(unsafe { Box::from_raw(start) });
                    break;
                }
            }
        }
        Pool { shared: ManuallyDrop::new(shared), threads, process: process() }
    }

    /// Threads that may work at once, the caller among them.
    pub(crate) fn width(&self) -> usize {
        self.threads.len() + 1
    }

    /// Runs `work`, in parallel where that pays, and gives the report of the lowest range that had one.
    ///
    /// # Safety
    /// The kernel, its arguments and the context belong together; there is scratch for [`Pool::width`] threads.
    pub(crate) unsafe fn run(&self, ctx: *const PlanContext, work: Work) -> Report {
        // SAFETY: passed on.
        unsafe {
            let total = work.end.saturating_sub(work.start);
            // A process that was forked has none of the threads, and one of them may have held the lock.
            let alone = self.threads.is_empty() || total < 2 || self.process != process();
            if alone || self.shared.busy.swap(true, Ordering::Acquire) {
                return work.run(ctx, work.start, work.end, 0);
            }
            let (mut report, mut start) = (Report::NONE, work.start);
            while start < work.end && report.site < 0 {
                let end = work.end.min(start.saturating_add(MOST_POINTS));
                report = self.share(ctx, Work { start, end, ..work });
                start = end;
            }
            self.shared.busy.store(false, Ordering::Release);
            report
        }
    }

    /// As [`Pool::run`], by all threads; this launch has the pool.
    unsafe fn share(&self, ctx: *const PlanContext, work: Work) -> Report {
        let shared = &**self.shared;
        let total = u32::try_from(work.end - work.start).unwrap_or(0);
        shared.ranges.reset(total);
        let job = Job { work, ctx, ranges: &raw const shared.ranges, end: AtomicI64::new(work.end) };
        let asleep = {
            let _held = shared.lock.lock();
            // SAFETY: the lock is held.
            let inner = unsafe { &mut *shared.inner.get() };
            inner.job = &raw const job;
            inner.report = Report::NONE;
            shared.generation.fetch_add(1, Ordering::Release);
            inner.sleepers > 0
        };
        // Threads that are awake see the job. Whether it is worth while to wake the others, its first points tell.
        let mut own = Report::NONE;
        if asleep && let Some((start, end)) = shared.ranges.take(0, (total / TRIED).max(1)) {
            let (taken, before) = (i64::from(end - start), clock());
            // SAFETY: as the caller promises.
            own = unsafe { job.range(0, start, end) };
            let left = (clock() - before).max(0).saturating_mul(i64::from(total) - taken) / taken;
            if own.site < 0 && left >= WORTHWHILE {
                let _held = shared.lock.lock();
                shared.wake.wake_all();
            }
        }
        // SAFETY: as the caller promises.
        let rest = unsafe { job.run(0) };
        own = own.lower(rest);
        // Those that are in the job will soon be done with it.
        spin(|| shared.active.load(Ordering::Acquire) == 0);
        let held = shared.lock.lock();
        // SAFETY: the lock is held, here and after each wait.
        unsafe {
            (*shared.inner.get()).job = null();
            while shared.active.load(Ordering::Acquire) > 0 {
                shared.done.wait(&held);
            }
            let theirs = (*shared.inner.get()).report;
            own.lower(theirs)
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.process != process() {
            return;
        }
        {
            let _held = self.shared.lock.lock();
            // SAFETY: the lock is held.
            unsafe { (*self.shared.inner.get()).stop = true };
            self.shared.generation.fetch_add(1, Ordering::Release);
            self.shared.wake.wake_all();
        }
        for t in self.threads.drain(..) {
            t.join();
        }
        // SAFETY: not used again, and no thread has it.
        unsafe { ManuallyDrop::drop(&mut self.shared) };
    }
}

impl Job {
    /// Runs a range, unless a lower one had a report; ranges above one that has it are not run any more.
    ///
    /// # Safety
    /// As [`Pool::run`].
    unsafe fn range(&self, worker: usize, start: u32, end: u32) -> Report {
        let (start, end) = (self.work.start + i64::from(start), self.work.start + i64::from(end));
        if start >= self.end.load(Ordering::Relaxed) {
            return Report::NONE;
        }
        // SAFETY: as the caller promises.
        let report = unsafe { self.work.run(self.ctx, start, end, worker) };
        if report.site >= 0 {
            self.end.fetch_min(start, Ordering::Relaxed);
        }
        report
    }

    /// Takes ranges until none is left; gives the report of the lowest of this thread that had one.
    ///
    /// # Safety
    /// As [`Pool::run`].
    unsafe fn run(&self, worker: usize) -> Report {
        let mut lowest = Report::NONE;
        // SAFETY: the pool has its ranges as long as its threads run.
        let ranges = unsafe { &*self.ranges };
        while let Some((start, end)) = ranges.take(worker, u32::MAX) {
            // SAFETY: as the caller promises.
            lowest = lowest.lower(unsafe { self.range(worker, start, end) });
        }
        lowest
    }
}

/// Looks at `holds` for a while.
fn spin(holds: impl Fn() -> bool) -> bool {
    for _ in 0..SPINS {
        if holds() {
            return true;
        }
        core::hint::spin_loop();
    }
    holds()
}

/// What a thread of the pool does, from beginning to end.
unsafe extern "C" fn enter(start: *mut u8) -> *mut u8 {
    // SAFETY: the box of `Pool::new`, for this thread alone; the pool outlives the thread.
    let (shared, worker) = unsafe {
        let start = Box::from_raw(start.cast::<Start>());
        (&*start.shared, start.worker)
    };
    let _mode = DefaultMode::enter();
    let mut seen = 0;
    loop {
        spin(|| shared.generation.load(Ordering::Acquire) != seen);
        let held = shared.lock.lock();
        let inner = shared.inner.get();
        // SAFETY: the lock is held where `inner` is used; the job outlives the threads that are counted as in it.
        unsafe {
            while shared.generation.load(Ordering::Acquire) == seen && !(*inner).stop {
                (*inner).sleepers += 1;
                shared.wake.wait(&held);
                (*inner).sleepers -= 1;
            }
            if (*inner).stop {
                return core::ptr::null_mut();
            }
            seen = shared.generation.load(Ordering::Acquire);
            let job = (*inner).job;
            if job.is_null() {
                continue;
            }
            shared.active.fetch_add(1, Ordering::AcqRel);
            drop(held);
            let report = (*job).run(worker);
            let _held = shared.lock.lock();
            if report.start < (*inner).report.start {
                (*inner).report = report;
            }
            if shared.active.fetch_sub(1, Ordering::AcqRel) == 1 {
                shared.done.wake_all();
            }
        }
    }
}
