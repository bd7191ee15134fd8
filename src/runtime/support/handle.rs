//! Handles: models (weights, read-only once open) and their sessions (memory of calls).
//!
//! A model is freed when it and all its sessions are closed, in any order. Each handle has its own
//! error message and its own lock: several threads may use different sessions concurrently; calls
//! on one session wait for each other.

use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::ffi::c_char;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use crate::abi::{ABI_VERSION, Head, VariantDesc, mark};
use crate::call;
use crate::call_lock::{CallLock, Refused};
use crate::cpu;
use crate::cuda::call as gpu;
use crate::cuda::choice::{self, Choice};
use crate::cuda::upload::{Loaded, name_of};
use crate::desc::{head, model};
use crate::environment;
use crate::error::{CText, Error, Result, Status, fail};
use crate::pool::Pool;
use crate::processor;
use crate::request::Memory;
use crate::sys::{Buffer, try_box};
use crate::weights::Weights;

/// A model handle.
#[repr(C)]
pub struct Model {
    head: Head,
    /// Number of live handles: the model's and its sessions'.
    references: AtomicU64,
    lock: CallLock,
    error: UnsafeCell<CText>,
    opened: Option<Opened>,
}

/// The contents of a successfully opened model.
pub(crate) struct Opened {
    pub(crate) weights: Weights,
    pub(crate) variant: &'static VariantDesc,
    pub(crate) packed: Buffer,
    /// See [`crate::abi::PlanContext::in_order`].
    pub(crate) in_order: i64,
    pub(crate) pool: Pool,
    /// The GPU part, if it runs on a GPU.
    pub(crate) cuda: Option<Loaded>,
    /// The device that it runs on, in the form that users write.
    pub(crate) device: CText,
    /// Why `auto` chose the CPU; empty otherwise.
    pub(crate) device_note: CText,
}

impl Opened {
    /// The number of the GPU that it runs on.
    pub(crate) fn gpu(&self) -> Option<i32> {
        self.cuda.as_ref().map(Loaded::ordinal)
    }
}

/// A session handle.
#[repr(C)]
pub struct Session {
    head: Head,
    model: *const Model,
    lock: CallLock,
    state: UnsafeCell<State>,
}

struct State {
    error: CText,
    memory: Memory,
}

fn text_of(e: &Error) -> CText {
    CText::new(&e.text)
}

/// The message for a handle that is locked by another call.
fn text_of_refused(refused: Refused) -> &'static [u8] {
    match refused {
        Refused::Nested => b"this thread is in a call of this session: a signal handler cannot use it\0",
        Refused::Forked => {
            b"another thread was in a call of this session when this process was forked: open a new one\0"
        }
    }
}

impl Model {
    /// Opens the model of this `.so`. Also returns a handle if opening fails, for the error
    /// message; null if there is no memory even for that.
    ///
    /// # Safety
    /// `weights` and `device` are null or C strings.
    pub(crate) unsafe fn open(weights: *const c_char, threads: usize, device: *const c_char) -> (*mut Model, Status) {
        // SAFETY: by the contract above.
        let (opened, error, status) = match unsafe { Opened::new(weights, threads, device) } {
            Ok(opened) => (Some(opened), CText::new(""), Status::Ok),
            Err(e) => (None, text_of(&e), e.status),
        };
        let Some(lock) = CallLock::new() else { return (null_mut(), Status::Memory) };
        let model = Model {
            head: head(mark::MODEL),
            references: AtomicU64::new(1),
            lock,
            error: UnsafeCell::new(error),
            opened,
        };
        match try_box(model) {
            Some(model) => (Box::into_raw(model), status),
            None => (null_mut(), Status::Memory),
        }
    }

    /// The model of a handle, if it is one.
    ///
    /// # Safety
    /// `handle` is null, or came from [`Model::open`] and has not been freed.
    pub(crate) unsafe fn get<'a>(handle: *const Model) -> Option<&'a Model> {
        // SAFETY: by the contract above.
        unsafe { handle.as_ref() }.filter(|m| m.head.mark.load(Ordering::Acquire) == mark::MODEL)
    }

    /// The opened contents; an error if opening failed.
    pub(crate) fn opened(&self) -> Result<&Opened> {
        match &self.opened {
            Some(opened) => Ok(opened),
            None => fail!(Call, "the model did not open"),
        }
    }

    /// Calls `f`; stores its error in the model.
    pub(crate) fn guarded(&self, f: impl FnOnce() -> Result<()>) -> Status {
        match f() {
            Ok(()) => Status::Ok,
            Err(e) => {
                // The error that made opening fail is not overwritten.
                if let (Ok(_held), true) = (self.lock.lock(), self.opened.is_some()) {
                    // SAFETY: the lock is held, so nobody else writes or copies it.
                    unsafe { *self.error.get() = text_of(&e) };
                }
                e.status
            }
        }
    }

    /// Calls `f` with the last error message, including its NUL, under the lock.
    pub(crate) fn error<T>(&self, f: impl FnOnce(&[u8]) -> T) -> T {
        match self.lock.lock() {
            // SAFETY: the lock is held.
            Ok(_held) => f(unsafe { (*self.error.get()).bytes() }),
            Err(refused) => f(text_of_refused(refused)),
        }
    }

    /// Drops a reference; the last one frees the model.
    ///
    /// # Safety
    /// `handle` is live, and this handle is not used again.
    pub(crate) unsafe fn release(handle: *const Model) {
        // SAFETY: by the contract above.
        unsafe {
            if (*handle).references.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            fence(Ordering::Acquire);
            (*handle).head.mark.store(0, Ordering::Release);
            drop(Box::from_raw(handle.cast_mut()));
        }
    }
}

impl Opened {
    /// # Safety
    /// `weights` and `device` are null or C strings.
    unsafe fn new(weights: *const c_char, threads: usize, device: *const c_char) -> Result<Opened> {
        let model = model();
        if model.abi_version != ABI_VERSION {
            fail!(Internal, "the model was compiled for ABI {}, its runtime for {ABI_VERSION}", model.abi_version);
        }
        // SAFETY: by the contract above.
        let note = match unsafe { choice::choose(model, device)? } {
            Choice::Cpu(note) => note,
            Choice::Cuda { gpu, variant, cuda, else_cpu } => {
                // SAFETY: by the contract above.
                let mut weights = unsafe { Weights::open(model, weights)? };
                let device = CText::new(&name_of(&gpu));
                match gpu::load(gpu, model, variant, cuda, &weights) {
                    Err(e) if else_cpu && e.status == Status::Device => e.text,
                    loaded => {
                        let cuda = Some(loaded?);
                        weights.forget_tensors();
                        // The calling thread alone queues launches.
                        let Some(pool) = Pool::new(1) else {
                            return Err(Error::memory(size_of::<Pool>() as u64, "the threads"));
                        };
                        let (packed, device_note) = (Buffer::empty(), CText::new(""));
                        return Ok(Opened { weights, variant, packed, in_order: 0, pool, cuda, device, device_note });
                    }
                }
            }
        };
        let allowed = environment::allows()?;
        // A variant that is slower than the next one is used only if requested; the operating
        // system is asked for tiles only when they are about to be used, and may refuse.
        let fits = |v: &&VariantDesc| allowed(v).0 && processor::can_run(v.features);
        let quick = |v: &&VariantDesc| (allowed(v).1 || !cpu::is_slow(v.features)) && fits(v);
        let all = || model.variants.get().iter().filter(|v| choice::for_cuda(v).is_none());
        let Some(variant) = all().find(quick).or_else(|| all().find(fits)) else {
            let names: alloc::vec::Vec<&str> = all().map(|v| v.name.get()).collect();
            fail!(
                Processor,
                "{} was compiled for {}, which this processor does not support",
                model.name.get(),
                names.join(", ")
            )
        };
        // SAFETY: by the contract above.
        let weights = unsafe { Weights::open(model, weights)? };
        let threads = if threads == 0 { environment::threads()? } else { threads };
        let Some(pool) = Pool::new(threads) else { return Err(Error::memory(size_of::<Pool>() as u64, "the threads")) };
        let packed = call::prepare(model, variant, &weights, &pool)?;
        let is_much = variant.packed_bytes / pool.width() as u64 > cpu::MAX_CACHE;
        let in_order = if cpu::reads_in_order() { 1 + i64::from(is_much) } else { 0 };
        let (device, device_note) = (CText::new("cpu"), CText::new(&note));
        Ok(Opened { weights, variant, packed, in_order, pool, cuda: None, device, device_note })
    }
}

impl Session {
    ///
    /// # Safety
    /// `handle` is a live model.
    pub(crate) unsafe fn open(handle: *const Model) -> Result<*mut Session> {
        // SAFETY: by the contract above.
        let opened = unsafe { (*handle).opened()? };
        let state =
            State { error: CText::new(""), memory: Memory::new(model(), &opened.weights, opened.cuda.as_ref())? };
        let none = || Error::memory(size_of::<Session>() as u64, "the session");
        let lock = CallLock::new().ok_or_else(none)?;
        let session = Session { head: head(mark::SESSION), model: handle, lock, state: UnsafeCell::new(state) };
        let session = try_box(session).ok_or_else(none)?;
        // SAFETY: as above.
        unsafe { (*handle).references.fetch_add(1, Ordering::Relaxed) };
        Ok(Box::into_raw(session))
    }

    /// The session of a handle, if it is one.
    ///
    /// # Safety
    /// `handle` is null, or came from [`Session::open`] and has not been closed.
    pub(crate) unsafe fn get<'a>(handle: *const Session) -> Option<&'a Session> {
        // SAFETY: by the contract above.
        unsafe { handle.as_ref() }.filter(|s| s.head.mark.load(Ordering::Acquire) == mark::SESSION)
    }

    /// Calls `f` with the session's memory, after waiting for other calls on it; stores its error
    /// in the session.
    pub(crate) fn guarded(&self, f: impl FnOnce(&Opened, &mut Memory) -> Result<()>) -> Status {
        let Ok(_held) = self.lock.lock() else { return Status::Call };
        // SAFETY: a session holds a reference to its model; the lock is held, so access is
        // exclusive.
        let (opened, state) = unsafe { ((*self.model).opened(), &mut *self.state.get()) };
        match opened.and_then(|o| f(o, &mut state.memory)) {
            Ok(()) => Status::Ok,
            Err(e) => {
                state.error = text_of(&e);
                e.status
            }
        }
    }

    /// Calls `f` with the last error message, including its NUL, under the lock.
    pub(crate) fn error<T>(&self, f: impl FnOnce(&[u8]) -> T) -> T {
        match self.lock.lock() {
            // SAFETY: the lock is held.
            Ok(_held) => f(unsafe { (*self.state.get()).error.bytes() }),
            Err(refused) => f(text_of_refused(refused)),
        }
    }

    /// Frees a session after its current call; does nothing during a call on the same thread.
    ///
    /// # Safety
    /// `handle` is live and not used again.
    pub(crate) unsafe fn close(handle: *mut Session) {
        // SAFETY: by the contract above.
        unsafe {
            if matches!((*handle).lock.lock(), Err(Refused::Nested)) {
                return;
            }
            (*handle).head.mark.store(0, Ordering::Release);
            let session = Box::from_raw(handle);
            let model = session.model;
            drop(session);
            Model::release(model);
        }
    }
}
