//! Bindings to the C library: memory, files, locks. Other modules access the system only through
//! these functions, except for `call_lock.rs` and `python.rs`.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;

use alloc::boxed::Box;
use alloc::string::String;

unsafe extern "C" {
    pub(crate) fn malloc(size: usize) -> *mut u8;
    pub(crate) fn free(pointer: *mut u8);
    pub(crate) fn realloc(pointer: *mut u8, size: usize) -> *mut u8;
    fn posix_memalign(out: *mut *mut u8, align: usize, size: usize) -> c_int;
    fn abort() -> !;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn close(file: c_int) -> c_int;
    fn lseek(file: c_int, offset: i64, whence: c_int) -> i64;
    fn write(file: c_int, bytes: *const u8, count: usize) -> isize;
    fn mmap(at: *mut c_void, size: usize, protection: c_int, flags: c_int, file: c_int, offset: i64) -> *mut c_void;
    fn munmap(at: *mut c_void, size: usize) -> c_int;
    fn madvise(at: *mut c_void, size: usize, advice: c_int) -> c_int;
    fn strlen(text: *const c_char) -> usize;
    fn getenv(name: *const c_char) -> *const c_char;
    fn __errno_location() -> *mut c_int;
    fn __xpg_strerror_r(code: c_int, text: *mut c_char, size: usize) -> c_int;
    fn pthread_mutex_init(mutex: *mut c_void, attributes: *const c_void) -> c_int;
    fn pthread_mutex_lock(mutex: *mut c_void) -> c_int;
    fn pthread_mutex_unlock(mutex: *mut c_void) -> c_int;
    fn pthread_mutex_destroy(mutex: *mut c_void) -> c_int;
    fn pthread_cond_init(condition: *mut c_void, attributes: *const c_void) -> c_int;
    fn pthread_cond_wait(condition: *mut c_void, mutex: *mut c_void) -> c_int;
    fn pthread_cond_broadcast(condition: *mut c_void) -> c_int;
    fn pthread_cond_destroy(condition: *mut c_void) -> c_int;
    fn pthread_create(
        thread: *mut usize,
        attributes: *const c_void,
        start: unsafe extern "C" fn(*mut u8) -> *mut u8,
        argument: *mut u8,
    ) -> c_int;
    fn pthread_join(thread: usize, result: *mut *mut u8) -> c_int;
    fn pthread_sigmask(how: c_int, new: *const c_void, old: *mut c_void) -> c_int;
    fn sched_getaffinity(process: c_int, size: usize, mask: *mut u64) -> c_int;
    fn getpid() -> c_int;
    fn syscall(number: i64, ...) -> i64;
    fn clock_gettime(clock: c_int, time: *mut [i64; 2]) -> c_int;
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

const O_RDONLY: c_int = 0;
const O_NONBLOCK: c_int = 0o4000;
const O_CLOEXEC: c_int = 0o2000000;
#[cfg(target_arch = "x86_64")]
const O_DIRECTORY: c_int = 0o200000;
#[cfg(not(target_arch = "x86_64"))]
const O_DIRECTORY: c_int = 0o40000;
const SEEK_END: c_int = 2;
const PROT_READ: c_int = 1;
const MAP_PRIVATE: c_int = 2;
const CLOCK_MONOTONIC: c_int = 1;
const MADV_HUGEPAGE: c_int = 14;
/// Size of a huge page, on machines that have them.
const HUGE: usize = 2 << 20;
const SIG_SETMASK: c_int = 2;
const RTLD_NOW: c_int = 2;
#[cfg(target_arch = "x86_64")]
const GETTID: i64 = 186;
#[cfg(not(target_arch = "x86_64"))]
const GETTID: i64 = 178;

pub(crate) fn abort_process() -> ! {
    // SAFETY: abort takes nothing and does not return.
    unsafe { abort() }
}

/// Writes to standard error; errors are ignored.
pub(crate) fn write_stderr(bytes: &[u8]) {
    // SAFETY: the bytes are readable for their length.
    unsafe { write(2, bytes.as_ptr(), bytes.len()) };
}

/// The bytes of a C string, without its NUL.
///
/// # Safety
/// `text` is a C string that lives as long as `'a`.
pub(crate) unsafe fn c_bytes<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: by the contract above.
    unsafe { core::slice::from_raw_parts(text.cast(), strlen(text)) }
}

/// The error message of the last failed call of the C library.
fn last_error() -> String {
    let mut text = [0u8; 256];
    // SAFETY: the buffer is as large as said; errno is the thread's own.
    let known = unsafe { __xpg_strerror_r(*__errno_location(), text.as_mut_ptr().cast(), text.len()) } == 0;
    let end = text.iter().position(|b| *b == 0).unwrap_or(text.len());
    match text.get(..end) {
        Some(t) if known => String::from_utf8_lossy(t).into_owned(),
        _ => String::from("unknown error"),
    }
}

/// Fallible `Box::new`, for values that live as long as a handle.
pub(crate) fn try_box<T>(value: T) -> Option<Box<T>> {
    const { assert!(size_of::<T>() > 0 && align_of::<T>() <= 16) };
    // SAFETY: malloc takes any size.
    let place = unsafe { malloc(size_of::<T>()) }.cast::<T>();
    if place.is_null() {
        return None;
    }
    // SAFETY: the memory is new, with the size and alignment of `T`, and `Box` frees it with the
    // same allocator.
    unsafe {
        place.write(value);
        Some(Box::from_raw(place))
    }
}

/// Memory aligned to 64 bytes, freed on drop. Large buffers request huge pages: reading weights
/// from end to end would otherwise suffer from TLB misses.
pub(crate) struct Buffer {
    pointer: *mut u8,
    size: usize,
}

impl Buffer {
    /// A buffer without memory.
    pub(crate) const fn empty() -> Buffer {
        Buffer { pointer: null_mut(), size: 0 }
    }

    /// `size` uninitialised bytes; `None` if out of memory. Never null, even for 0 bytes.
    pub(crate) fn new(size: u64) -> Option<Buffer> {
        let size = usize::try_from(size).ok()?;
        if size > isize::MAX as usize - 64 {
            return None;
        }
        let (mut pointer, large) = (null_mut(), size / HUGE * HUGE);
        let align = if large >= 2 * HUGE { HUGE } else { 64 };
        // SAFETY: the alignment is a power of two and a multiple of the pointer size; the advice
        // concerns memory just allocated, and is ignored if not supported.
        let status = unsafe {
            let status = posix_memalign(&mut pointer, align, size.max(64));
            if status == 0 && align == HUGE {
                madvise(pointer.cast(), large, MADV_HUGEPAGE);
            }
            status
        };
        (status == 0 && !pointer.is_null()).then_some(Buffer { pointer, size })
    }

    /// `size` zero bytes.
    pub(crate) fn zeroed(size: u64) -> Option<Buffer> {
        let mut b = Buffer::new(size)?;
        b.clear();
        Some(b)
    }

    /// Zeroes all bytes.
    pub(crate) fn clear(&mut self) {
        if self.size > 0 {
            // SAFETY: the memory is owned and has `size` bytes.
            unsafe { core::ptr::write_bytes(self.pointer, 0, self.size) };
        }
    }

    /// Makes the buffer at least `size` long; its contents are lost. Returns false if out of
    /// memory.
    pub(crate) fn reserve(&mut self, size: u64) -> bool {
        if !self.pointer.is_null() && self.size as u64 >= size {
            return true;
        }
        *self = Buffer::empty();
        match Buffer::new(size) {
            Some(b) => {
                *self = b;
                true
            }
            None => false,
        }
    }

    /// Address of the first byte.
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.pointer
    }

    /// All bytes; they must have been written since [`Buffer::new`].
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.pointer.is_null() {
            return &[];
        }
        // SAFETY: the memory is owned and has `size` bytes.
        unsafe { core::slice::from_raw_parts(self.pointer, self.size) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the pointer is null or came from posix_memalign.
        unsafe { free(self.pointer) };
    }
}

// SAFETY: a buffer owns its memory; users that share one synchronise their accesses.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

/// A file mapped for reading. It must not be changed while it is mapped.
pub(crate) struct Mapping {
    pointer: *mut u8,
    size: usize,
}

impl Mapping {
    /// Maps the file at `path`.
    ///
    /// # Safety
    /// `path` is a C string.
    pub(crate) unsafe fn open(path: *const c_char) -> Result<Mapping, String> {
        // Nonblocking, so that opening a pipe does not hang.
        // SAFETY: by the contract above; the flags take no mode.
        unsafe {
            let folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            if folder >= 0 {
                close(folder);
                return Err(String::from("it is a directory"));
            }
            let file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
            if file < 0 {
                return Err(last_error());
            }
            let mapping = Mapping::of_file(file);
            close(file);
            mapping
        }
    }

    fn of_file(file: c_int) -> Result<Mapping, String> {
        // SAFETY: lseek takes any file.
        let size = unsafe { lseek(file, 0, SEEK_END) };
        if size < 0 {
            return Err(String::from("it is not a regular file"));
        }
        let size = usize::try_from(size).map_err(|_| String::from("it is too large"))?;
        if size == 0 {
            return Ok(Mapping { pointer: null_mut(), size: 0 });
        }
        // SAFETY: a new private mapping does not affect other memory.
        let pointer = unsafe { mmap(null_mut(), size, PROT_READ, MAP_PRIVATE, file, 0) };
        if pointer.is_null() || pointer as isize == -1 {
            return Err(last_error());
        }
        Ok(Mapping { pointer: pointer.cast(), size })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.pointer.is_null() {
            return &[];
        }
        // SAFETY: the mapping is readable for its size and lives as long as `self`.
        unsafe { core::slice::from_raw_parts(self.pointer, self.size) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.pointer.is_null() {
            // SAFETY: exactly the mapping from mmap.
            unsafe { munmap(self.pointer.cast(), self.size) };
        }
    }
}

/// A mutex of the C library. 64 bytes have space for `pthread_mutex_t` of glibc and musl on every
/// 64-bit target.
pub(crate) struct Mutex(Box<[u64; 8]>);

impl Mutex {
    /// An unlocked mutex; `None` if out of memory.
    pub(crate) fn new() -> Option<Mutex> {
        let mut storage = try_box([0u64; 8])?;
        // SAFETY: the storage is large enough, aligned, and does not move.
        unsafe { pthread_mutex_init(storage.as_mut_ptr().cast(), core::ptr::null()) };
        Some(Mutex(storage))
    }

    /// Acquires the lock until the guard is dropped.
    pub(crate) fn lock(&self) -> MutexGuard<'_> {
        // SAFETY: an initialised mutex; it does not move.
        unsafe { pthread_mutex_lock(self.0.as_ptr().cast_mut().cast()) };
        MutexGuard(self)
    }
}

impl Drop for Mutex {
    fn drop(&mut self) {
        // SAFETY: an initialised mutex that nobody holds.
        unsafe { pthread_mutex_destroy(self.0.as_mut_ptr().cast()) };
    }
}

/// Holds a [`Mutex`].
pub(crate) struct MutexGuard<'a>(&'a Mutex);

impl Drop for MutexGuard<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread holds it.
        unsafe { pthread_mutex_unlock(self.0.0.as_ptr().cast_mut().cast()) };
    }
}

/// A condition variable of the C library; 64 bytes have space for it, as for [`Mutex`].
pub(crate) struct Condition(Box<[u64; 8]>);

impl Condition {
    /// `None` if out of memory.
    pub(crate) fn new() -> Option<Condition> {
        let mut storage = try_box([0u64; 8])?;
        // SAFETY: the storage is large enough, aligned, and does not move.
        unsafe { pthread_cond_init(storage.as_mut_ptr().cast(), core::ptr::null()) };
        Some(Condition(storage))
    }

    /// Releases the lock, waits for a wake-up (which may be spurious), and reacquires the lock.
    pub(crate) fn wait(&self, held: &MutexGuard<'_>) {
        // SAFETY: both are initialised and do not move; this thread holds the lock.
        unsafe { pthread_cond_wait(self.0.as_ptr().cast_mut().cast(), held.0.0.as_ptr().cast_mut().cast()) };
    }

    /// Wakes all waiting threads.
    pub(crate) fn wake_all(&self) {
        // SAFETY: initialised, and does not move.
        unsafe { pthread_cond_broadcast(self.0.as_ptr().cast_mut().cast()) };
    }
}

impl Drop for Condition {
    fn drop(&mut self) {
        // SAFETY: initialised, and nobody waits.
        unsafe { pthread_cond_destroy(self.0.as_mut_ptr().cast()) };
    }
}

/// A thread, which must be joined.
pub(crate) struct Thread(usize);

impl Thread {
    /// Starts a thread with all signals blocked. `None` if the system refuses.
    ///
    /// # Safety
    /// `start` may be called with `argument` on another thread.
    pub(crate) unsafe fn start(start: unsafe extern "C" fn(*mut u8) -> *mut u8, argument: *mut u8) -> Option<Thread> {
        // Larger than any `sigset_t`.
        let (all, mut before) = ([u64::MAX; 16], [0u64; 16]);
        let mut thread = 0usize;
        // SAFETY: the masks are readable and writable; a new thread inherits the current mask.
        let status = unsafe {
            pthread_sigmask(SIG_SETMASK, all.as_ptr().cast(), before.as_mut_ptr().cast());
            let status = pthread_create(&mut thread, core::ptr::null(), start, argument);
            pthread_sigmask(SIG_SETMASK, before.as_ptr().cast(), null_mut());
            status
        };
        (status == 0).then_some(Thread(thread))
    }

    /// Waits until the thread has ended.
    pub(crate) fn join(self) {
        // SAFETY: a thread that was started and not yet joined.
        unsafe { pthread_join(self.0, null_mut()) };
    }
}

/// A loaded library, which is never unloaded.
pub(crate) struct Library(*mut c_void);

// SAFETY: a library handle, which is never closed.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Loads a library by its path, or by name from the system's folders; otherwise returns the
    /// loader's message.
    pub(crate) fn open(name: &CStr) -> Result<Library, String> {
        // SAFETY: a C string. Loading runs the library's own code: of the system's driver, or of a
        // file that the user names.
        let handle = unsafe { dlopen(name.as_ptr(), RTLD_NOW) };
        if !handle.is_null() {
            return Ok(Library(handle));
        }
        // SAFETY: returns null or a C string that is valid until this thread's next call.
        let why = unsafe {
            let why = dlerror();
            if why.is_null() { &[][..] } else { c_bytes(why) }
        };
        Err(String::from_utf8_lossy(why).into_owned())
    }

    /// The address of a symbol, if it exists.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the library is loaded.
        let address = unsafe { dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
}

/// Number of processors that this process may use; at least 1.
pub(crate) fn processors() -> usize {
    let mut mask = [0u64; 128];
    // SAFETY: the mask has the size passed.
    let status = unsafe { sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr()) };
    let count: u32 = mask.iter().map(|m| m.count_ones()).sum();
    if status == 0 { (count as usize).max(1) } else { 1 }
}

/// An environment variable; `None` if it is not set or empty.
pub(crate) fn variable(name: &CStr) -> Option<String> {
    // SAFETY: a C string; the result is null or a C string, copied before anything else runs on
    // this thread.
    let bytes = unsafe {
        let value = getenv(name.as_ptr());
        if value.is_null() { &[] } else { c_bytes(value) }
    };
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned())
}

/// Process id.
pub(crate) fn process() -> i32 {
    // SAFETY: getpid has no arguments and does not fail.
    unsafe { getpid() }
}

/// Is this the main thread of the process?
pub(crate) fn is_first_thread() -> bool {
    // SAFETY: gettid has no arguments and does not fail. (The C library has a wrapper only in
    // recent versions.)
    unsafe { syscall(GETTID) == i64::from(getpid()) }
}

/// Monotonic time in nanoseconds.
pub(crate) fn clock() -> i64 {
    let mut time = [0i64; 2];
    // SAFETY: seconds and nanoseconds are 64-bit on every 64-bit system.
    unsafe { clock_gettime(CLOCK_MONOTONIC, &mut time) };
    time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1])
}
