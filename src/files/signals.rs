//! Removes temporary files when a signal ends the process.
//!
//! In: nothing; `main` calls it once, before starting threads. Out: a thread that waits for the
//! signals by which users and systems end programs, removes temporary files, and then lets the
//! signal take its default action. A command that handles Ctrl-C itself calls [`interrupts`], and
//! gets the first one as a flag.
//!
//! The crate `signal-hook` would replace the mask and the wait, but cannot detect that a signal is
//! ignored, as under `nohup`, and installs a handler, where no code runs in a handler here.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals by which users and systems end programs.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// A command polls [`INTERRUPTED`].
static LOOKED_AT: AtomicBool = AtomicBool::new(false);
/// An interrupt has occurred since then.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// A flag that the next interrupt (Ctrl-C) sets instead of ending the process. The one after that
/// ends the process again.
pub fn interrupts() -> &'static AtomicBool {
    LOOKED_AT.store(true, Ordering::Relaxed);
    &INTERRUPTED
}

/// Makes those signals remove temporary files first. Also ignores SIGXFSZ, so that exceeding the
/// user's file size limit is a write error rather than a signal.
pub fn clean_up_on_signals() {
    // SAFETY: no handler is installed; the signal is ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let signals: Vec<libc::c_int> = ENDING.into_iter().filter(|signal| is_default(*signal)).collect();
    if signals.is_empty() {
        return;
    }
    let set = set_of(&signals);
    change(libc::SIG_BLOCK, &set);
    let waiting = std::thread::Builder::new().stack_size(1 << 17).spawn(move || wait(&set));
    if waiting.is_err() {
        change(libc::SIG_UNBLOCK, &set);
    }
}

/// Does the signal have its default action? An ignored one (`nohup`) remains ignored.
fn is_default(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: queries the action of a signal without setting one; it is read only if it was
    // written.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_DFL
    }
}

fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises it before anything reads it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

/// Changes the signal mask of this thread, which new threads inherit.
fn change(how: libc::c_int, set: &libc::sigset_t) {
    // SAFETY: both pointers are valid sets, or null, which requests nothing.
    unsafe { libc::pthread_sigmask(how, set, ptr::null_mut()) };
}

/// Is it the first interrupt, which a command polls?
fn is_looked_at(signal: libc::c_int) -> bool {
    let is_first = || !INTERRUPTED.swap(true, Ordering::Relaxed);
    signal == libc::SIGINT && LOOKED_AT.load(Ordering::Relaxed) && is_first()
}

/// Waits for one of the signals, and ends the process with it.
fn wait(set: &libc::sigset_t) {
    let mut signal = 0;
    // SAFETY: both pointers are valid, and every thread has the signals blocked.
    while unsafe { libc::sigwait(set, &mut signal) } != 0 || is_looked_at(signal) {}
    super::remove_all();
    // SAFETY: the signal's action is the default, which ends the process as soon as the signal is
    // unblocked.
    unsafe { libc::raise(signal) };
    change(libc::SIG_UNBLOCK, set);
}
