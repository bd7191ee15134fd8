//! The thread pool of a model: distributes a launch's grid points over threads, in ranges
//! (`ranges`).
//!
//! A pool has one thread fewer than the model was opened with, because the calling thread works
//! too. One launch at a time uses the pool; a concurrent launch of another session runs on its
//! calling thread alone. Which thread runs a grid point never affects results, because grid points
//! are independent. The caller never waits for a thread that has not entered the launch, so a
//! forked process, which has lost the threads, is only slower.
//!
//! A token needs a hundred launches in a few milliseconds, so a launch must transfer few cache
//! lines between cores; each transfer takes as long as reading memory if cores share no cache. The
//! description of a launch, and the number of threads in it, is one cache line ([`Board`]), which
//! idle threads poll; only sleeping threads use locks. While polling, threads prefetch what they
//! will read next (`ahead`). The caller runs small launches alone.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, Ordering};

use crate::abi::{Kernel, PlanContext};
use crate::ahead::{self, Ahead, Next};
use crate::float_mode::DefaultMode;
use crate::ranges::Ranges;
use crate::sys::{Buffer, Condition, Mutex, Thread, clock, process, processors, try_box};

/// Maximum number of threads of a model.
const MAX_THREADS: usize = 256;
/// Polls of a flag, with a pause after each, before a thread goes to sleep: 0.1 to 0.2 ms.
/// Consecutive launches are closer together.
const SPINS: u32 = 4000;
/// Sleeping threads are woken only for at least this much work, in nanoseconds. Threads that are
/// awake always take part.
const WORTHWHILE: i64 = 15_000;
/// One in this many points is timed to estimate the time of the rest.
const TRIED: u32 = 64;
/// A kernel with fewer bytes of buffers is too small to be worth publishing to the pool, whatever
/// the state of its threads: it takes about as long as publishing, or less.
const SMALL: i64 = 8 << 10;
/// Limit on points distributed at a time.
const MAX_POINTS: i64 = u32::MAX as i64;

/// An error reported by generated code, and where.
#[derive(Clone, Copy)]
pub(crate) struct Report {
    /// First grid point of the range in which it occurred; `i64::MAX` if there is no error.
    pub(crate) start: i64,
    pub(crate) site: i64,
    pub(crate) values: [i64; 3],
}

impl Report {
    /// No error.
    pub(crate) const NONE: Report = Report { start: i64::MAX, site: -1, values: [0; 3] };

    /// The report of the lower range.
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
    /// Scratch of the first thread, and its stride in bytes per thread.
    pub(crate) scratch: *mut u8,
    pub(crate) stride: usize,
    /// Total size of the kernel's buffers.
    pub(crate) bytes: i64,
    /// Weights that a later launch will read.
    pub(crate) next: Next,
    /// Start with the last points.
    pub(crate) backward: bool,
}

/// A backward launch on a single thread runs this many parts in reverse order, each part forward.
const PARTS: i64 = 16;

impl Work {
    /// Runs all points on this thread; returns the report of the lowest range that has one.
    ///
    /// # Safety
    /// As [`Work::run`].
    pub(crate) unsafe fn run_all(&self, ctx: *const PlanContext) -> Report {
        let (mut lowest, mut end) = (Report::NONE, self.end);
        let size = if self.backward { self.end.saturating_sub(self.start) / PARTS } else { i64::MAX };
        while end > self.start {
            let start = end.saturating_sub(size.max(1)).max(self.start);
            // SAFETY: as the caller promises.
            lowest = lowest.lower(unsafe { self.run(ctx, start, end, 0) });
            end = start;
        }
        lowest
    }

    /// Runs a range on this thread, with a copy of the context for its report.
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

/// The current launch of the pool, as its threads see it. Aligned to a cache line, which the fields
/// up to `stride` fill.
#[repr(C)]
struct Board {
    /// Launch counter in the high bits, then [`AWAITED`], [`OPEN`] and the number of threads in the
    /// launch, without the caller.
    state: AtomicU64,
    args: AtomicPtr<u64>,
    ctx: AtomicPtr<PlanContext>,
    /// The other fields of the launch. Written by the caller while no thread is inside; read by the
    /// threads inside.
    kernel: UnsafeCell<Option<Kernel>>,
    start: UnsafeCell<i64>,
    end: UnsafeCell<i64>,
    scratch: UnsafeCell<*mut u8>,
    stride: UnsafeCell<usize>,
    next: UnsafeCell<Next>,
    /// Ranges at or above this point are skipped: a lower one reported an error.
    stop: AtomicI64,
}

/// Threads may enter the launch.
const OPEN: u64 = 1 << 16;
/// The caller sleeps until the last thread leaves.
const AWAITED: u64 = 1 << 17;
/// Increment of the launch counter.
const LAUNCH: u64 = 1 << 18;
/// Mask of the number of threads.
const INSIDE: u64 = OPEN - 1;

impl Board {
    /// No launch yet.
    fn new() -> Board {
        Board {
            state: AtomicU64::new(0),
            args: AtomicPtr::default(),
            ctx: AtomicPtr::default(),
            kernel: UnsafeCell::new(None),
            start: UnsafeCell::new(0),
            end: UnsafeCell::new(0),
            scratch: UnsafeCell::new(core::ptr::null_mut()),
            stride: UnsafeCell::new(0),
            next: UnsafeCell::new(Next::NOTHING),
            stop: AtomicI64::new(0),
        }
    }

    /// The launch counter of a state.
    fn launch_of(state: u64) -> u64 {
        state / LAUNCH
    }

    /// Publishes `work` to all threads.
    ///
    /// # Safety
    /// The last launch is closed, and no thread is in it.
    unsafe fn post(&self, ctx: *const PlanContext, work: &Work) {
        // SAFETY: no thread reads it, by the contract above.
        unsafe {
            *self.kernel.get() = Some(work.kernel);
            *self.start.get() = work.start;
            *self.end.get() = work.end;
            *self.scratch.get() = work.scratch;
            *self.stride.get() = work.stride;
            *self.next.get() = work.next;
        }
        self.args.store(work.args.cast_mut(), Ordering::Relaxed);
        self.ctx.store(ctx.cast_mut(), Ordering::Relaxed);
        self.stop.store(work.end, Ordering::Relaxed);
        let launch = Board::launch_of(self.state.load(Ordering::Relaxed)).wrapping_add(1);
        self.state.store((launch * LAUNCH) | OPEN, Ordering::Release);
    }

    /// Enters the launch of `state`; false if it is closed or superseded.
    fn enter(&self, mut state: u64) -> bool {
        let launch = Board::launch_of(state);
        while state & OPEN != 0 && Board::launch_of(state) == launch {
            match self.state.compare_exchange_weak(state, state + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// The launch, for threads inside it.
    ///
    /// # Safety
    /// This thread has entered, and has not left.
    unsafe fn work(&self) -> Option<(Work, *const PlanContext)> {
        // SAFETY: the caller waits for the threads inside before it writes again.
        let work = unsafe {
            Work {
                kernel: (*self.kernel.get())?,
                args: self.args.load(Ordering::Relaxed),
                start: *self.start.get(),
                end: *self.end.get(),
                scratch: *self.scratch.get(),
                stride: *self.stride.get(),
                bytes: 0,
                next: *self.next.get(),
                backward: false,
            }
        };
        Some((work, self.ctx.load(Ordering::Relaxed)))
    }

    /// Runs a range, unless a lower one reported an error.
    ///
    /// # Safety
    /// As [`Pool::run`].
    unsafe fn range(&self, ctx: *const PlanContext, work: &Work, worker: usize, (start, end): (u32, u32)) -> Report {
        let (start, end) = (work.start + i64::from(start), work.start + i64::from(end));
        if start >= self.stop.load(Ordering::Relaxed) {
            return Report::NONE;
        }
        // SAFETY: as the caller promises.
        let report = unsafe { work.run(ctx, start, end, worker) };
        if report.site >= 0 {
            self.stop.fetch_min(start, Ordering::Relaxed);
        }
        report
    }
}

struct Shared {
    /// A [`Board`], aligned to cache lines.
    board: Buffer,
    /// A launch is using the pool.
    busy: AtomicBool,
    /// Number of sleeping threads. Changed under the lock.
    sleepers: AtomicU64,
    lock: Mutex,
    /// Signals a launch, or that threads shall stop.
    wake: Condition,
    /// Signals that all threads have left the launch.
    done: Condition,
    /// The points of the current launch.
    ranges: Ranges,
    /// Threads shall exit. Changed under the lock, before the state of the board.
    stop: AtomicBool,
    /// Report of the pool's threads in this launch; guarded by the lock.
    report: UnsafeCell<Report>,
}

// SAFETY: `report` is used under the lock; for the board see there.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn board(&self) -> &Board {
        // SAFETY: initialised by `Pool::new`, and the buffer lives as long as `self`.
        unsafe { &*self.board.pointer().cast::<Board>() }
    }

    /// Runs ranges until none is left; returns the report of this thread's lowest range that has
    /// one.
    ///
    /// # Safety
    /// As [`Pool::run`].
    unsafe fn work(&self, ctx: *const PlanContext, work: &Work, worker: usize) -> Report {
        let mut lowest = Report::NONE;
        while let Some(range) = self.ranges.take(worker, u32::MAX) {
            // SAFETY: as the caller promises.
            lowest = lowest.lower(unsafe { self.board().range(ctx, work, worker, range) });
        }
        lowest
    }
}

/// The thread pool of a model.
pub(crate) struct Pool {
    shared: ManuallyDrop<Box<Shared>>,
    threads: Vec<Thread>,
    /// Process id at creation: a forked process has no threads to join.
    process: i32,
}

/// The argument of a new thread.
struct Start {
    shared: *const Shared,
    worker: usize,
}

impl Pool {
    /// A pool with `threads` threads, including the caller's; 0 means one per processor. There are
    /// fewer if the system refuses to start some. `None` if out of memory.
    pub(crate) fn new(threads: usize) -> Option<Pool> {
        let wanted = if threads == 0 { processors() } else { threads }.clamp(1, MAX_THREADS);
        let board = Buffer::new(size_of::<Board>() as u64)?;
        // SAFETY: the buffer is large enough, and more strictly aligned.
        unsafe { board.pointer().cast::<Board>().write(Board::new()) };
        let shared = try_box(Shared {
            board,
            busy: AtomicBool::new(false),
            sleepers: AtomicU64::new(0),
            lock: Mutex::new()?,
            wake: Condition::new()?,
            done: Condition::new()?,
            ranges: Ranges::new(wanted)?,
            stop: AtomicBool::new(false),
            report: UnsafeCell::new(Report::NONE),
        })?;
        let mut threads = Vec::new();
        threads.try_reserve_exact(wanted).ok()?;
        for worker in 1..wanted {
            let Some(start) = try_box(Start { shared: &raw const *shared, worker }) else { break };
            let start = Box::into_raw(start);
            // SAFETY: the thread takes the box; the pool joins it before `shared` is dropped.
            match unsafe { Thread::start(enter, start.cast()) } {
                Some(t) => threads.push(t),
                None => {
                    // SAFETY: no thread has taken it.
                    drop(unsafe { Box::from_raw(start) });
                    break;
                }
            }
        }
        Some(Pool { shared: ManuallyDrop::new(shared), threads, process: process() })
    }

    /// Number of threads that may work concurrently, including the caller.
    pub(crate) fn width(&self) -> usize {
        self.threads.len() + 1
    }

    /// Does the pool have threads? A forked process has none, and a lost thread may have held the
    /// lock.
    pub(crate) fn has_threads(&self) -> bool {
        !self.threads.is_empty() && self.process == process()
    }

    /// Runs `work`, in parallel where that is profitable; returns the report of the lowest range
    /// that has one.
    ///
    /// # Safety
    /// The kernel, its arguments and the context belong together; there is scratch for
    /// [`Pool::width`] threads; and [`Pool::has_threads`] is true.
    pub(crate) unsafe fn run(&self, ctx: *const PlanContext, work: Work) -> Report {
        // SAFETY: passed on.
        unsafe {
            let alone = work.end.saturating_sub(work.start) < 2 || work.bytes < SMALL;
            if alone || self.shared.busy.swap(true, Ordering::Acquire) {
                return work.run_all(ctx);
            }
            let (mut report, mut start) = (Report::NONE, work.start);
            while start < work.end && report.site < 0 {
                let end = work.end.min(start.saturating_add(MAX_POINTS));
                report = self.share(ctx, Work { start, end, ..work });
                start = end;
            }
            self.shared.busy.store(false, Ordering::Release);
            report
        }
    }

    /// [`Pool::run`] on all threads; this launch has acquired the pool.
    unsafe fn share(&self, ctx: *const PlanContext, work: Work) -> Report {
        let (shared, board) = (&**self.shared, self.shared.board());
        let total = u32::try_from(work.end - work.start).unwrap_or(0);
        shared.ranges.reset(total, work.backward);
        // SAFETY: this launch has the pool, and the previous one has closed the board.
        unsafe { board.post(ctx, &work) };
        // Threads that are awake see the launch. Whether to wake the others is decided after its
        // first points.
        let sleep = || shared.sleepers.load(Ordering::Relaxed) > 0;
        let mut own = Report::NONE;
        let known = if sleep() { (total / TRIED).max(1) } else { u32::MAX };
        let before = clock();
        if let Some((start, end)) = shared.ranges.take(0, known) {
            // SAFETY: as the caller promises.
            own = unsafe { board.range(ctx, &work, 0, (start, end)) };
            // Without a fence, a thread that went to sleep while the launch was posted is visible
            // only now, and has not seen the launch.
            if own.site < 0 && sleep() {
                let taken = i64::from(end - start);
                let left = (clock() - before).max(0).saturating_mul(i64::from(total) - taken) / taken;
                if left >= WORTHWHILE {
                    let _held = shared.lock.lock();
                    shared.wake.wake_all();
                }
            }
        }
        // SAFETY: as the caller promises.
        own = own.lower(unsafe { shared.work(ctx, &work, 0) });
        // No thread can enter any more; threads inside will finish soon.
        let inside = |state: u64| state & INSIDE > 0;
        if inside(board.state.fetch_and(!OPEN, Ordering::AcqRel)) {
            let mut ahead = Ahead::new(work.next, 0, shared.ranges.threads());
            let left = || !inside(board.state.load(Ordering::Acquire));
            if !spin(&mut ahead, left) {
                let held = shared.lock.lock();
                board.state.fetch_or(AWAITED, Ordering::AcqRel);
                while !left() {
                    shared.done.wait(&held);
                }
            }
        }
        // A range that reported an error has stopped later ones.
        if board.stop.load(Ordering::Relaxed) < work.end {
            let _held = shared.lock.lock();
            // SAFETY: the lock is held.
            let theirs = unsafe { core::mem::replace(&mut *shared.report.get(), Report::NONE) };
            own = own.lower(theirs);
        }
        own
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.process != process() {
            return;
        }
        {
            let _held = self.shared.lock.lock();
            self.shared.stop.store(true, Ordering::Relaxed);
            // A launch that no thread may enter, to make all threads check `stop`.
            self.shared.board().state.fetch_add(LAUNCH, Ordering::Release);
            self.shared.wake.wake_all();
        }
        for t in self.threads.drain(..) {
            t.join();
        }
        // SAFETY: not used again, and no thread refers to it.
        unsafe { ManuallyDrop::drop(&mut self.shared) };
    }
}

/// Polls `holds` for a while, prefetching meanwhile.
fn spin(ahead: &mut Ahead, holds: impl Fn() -> bool) -> bool {
    for _ in 0..SPINS {
        if holds() {
            return true;
        }
        if !ahead.fetch() {
            core::hint::spin_loop();
        }
    }
    holds()
}

/// Entry point of the pool's threads.
unsafe extern "C" fn enter(start: *mut u8) -> *mut u8 {
    // SAFETY: the box from `Pool::new`, passed to this thread alone; the pool outlives the thread.
    let (shared, worker) = unsafe {
        let start = Box::from_raw(start.cast::<Start>());
        (&*start.shared, start.worker)
    };
    let _mode = DefaultMode::enter();
    let (board, threads) = (shared.board(), shared.ranges.threads());
    let mut ahead = Ahead::new(Next::NOTHING, worker, threads);
    let mut seen = 0;
    loop {
        let is_new = || Board::launch_of(board.state.load(Ordering::Acquire)) != seen;
        if !spin(&mut ahead, is_new) {
            let held = shared.lock.lock();
            shared.sleepers.fetch_add(1, Ordering::Relaxed);
            while !is_new() {
                shared.wake.wait(&held);
            }
            shared.sleepers.fetch_sub(1, Ordering::Relaxed);
        }
        let state = board.state.load(Ordering::Acquire);
        seen = Board::launch_of(state);
        // The other data is on other cache lines, which can all be fetched concurrently.
        ahead::fetch_line(board.args.load(Ordering::Relaxed).cast());
        ahead::fetch_line(board.ctx.load(Ordering::Relaxed).cast());
        ahead::fetch_line(shared.ranges.line_of(worker));
        if shared.stop.load(Ordering::Relaxed) {
            return core::ptr::null_mut();
        }
        if !board.enter(state) {
            continue;
        }
        // SAFETY: this thread is in the launch, whose caller waits for it.
        if let Some((work, ctx)) = unsafe { board.work() } {
            // SAFETY: the caller of the launch guarantees the contract of `work`.
            let report = unsafe { shared.work(ctx, &work, worker) };
            if report.site >= 0 {
                let _held = shared.lock.lock();
                // SAFETY: the lock is held.
                unsafe { *shared.report.get() = (*shared.report.get()).lower(report) };
            }
            ahead.go_on(work.next, worker, threads);
        }
        let before = board.state.fetch_sub(1, Ordering::AcqRel);
        if before & INSIDE == 1 && before & AWAITED != 0 {
            let _held = shared.lock.lock();
            shared.done.wake_all();
        }
    }
}
