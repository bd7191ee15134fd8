//! What happens when a signal ends the process: temporary files go first.
//!
//! In: nothing; `main` asks for it once, before there are threads. Out: a thread that waits for the signals that end a
//! program from outside, removes what is temporary, and lets the signal do what it would have done. A command that ends by
//! itself at Ctrl-C asks for [`interrupts`], and gets the first one as a flag.
//!
//! The crate `signal-hook` would replace the mask and the wait, but cannot say whether a signal is ignored, as `nohup` has it, and sets a
//! handler where here no code runs in one.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals by which users and systems end programs.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Does a command look at [`INTERRUPTED`]?
static LOOKED_AT: AtomicBool = AtomicBool::new(false);
/// Was there an interrupt since then?
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// A flag that the next interrupt (Ctrl-C) sets instead of ending the process. The one after it ends the process again.
pub fn interrupts() -> &'static AtomicBool {
    LOOKED_AT.store(true, Ordering::Relaxed);
    &INTERRUPTED
}

/// From now on those signals first remove what is temporary. A file that grows beyond the user's limit is an error of
/// writing from now on, and no signal.
pub fn clean_up_on_signals() {
    // SAFETY: no handler is set, the signal is only ignored.
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

/// Does the signal end the process? One that is ignored (`nohup`) stays so.
fn is_default(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: asks for the action of a signal, and sets none; the action is read only where it was written.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_DFL
    }
}

fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` makes it a set before anything reads it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

/// Changes which signals this thread, and those that it starts, leave to others.
fn change(how: libc::c_int, set: &libc::sigset_t) {
    // SAFETY: both pointers are those of sets, or null, which asks for nothing.
    unsafe { libc::pthread_sigmask(how, set, ptr::null_mut()) };
}

/// Is it an interrupt that a command looks at, the first one?
fn is_looked_at(signal: libc::c_int) -> bool {
    let is_first = || !INTERRUPTED.swap(true, Ordering::Relaxed);
    signal == libc::SIGINT && LOOKED_AT.load(Ordering::Relaxed) && is_first()
}

/// Waits for one of the signals, and ends the process by it.
fn wait(set: &libc::sigset_t) {
    let mut signal = 0;
    // SAFETY: both pointers are valid, and every thread has the signals blocked.
    while unsafe { libc::sigwait(set, &mut signal) } != 0 || is_looked_at(signal) {}
    super::remove_all();
    // SAFETY: the signal's action is the default, which ends the process as soon as the signal is not blocked.
    unsafe { libc::raise(signal) };
    change(libc::SIG_UNBLOCK, set);
}
