//! Panics of code that is not ours, caught where it is called.
//!
//! In: a function that calls such code on user input. Out: its result, or the message of its panic;
//! nothing is printed. A panic of our own is a bug, and is never caught here.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Is this thread inside [`catch`], so that its panics must not be printed?
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Calls `work` on this thread and catches a panic in it.
///
/// # Errors
/// The first line of the panic's message.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let shown = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !CAUGHT.get() {
                shown(info);
            }
        }));
    });
    let before = CAUGHT.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    CAUGHT.set(before);
    done.map_err(|payload| {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("panic");
        text.lines().next().unwrap_or_default().to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::catch;

    #[test]
    fn a_panic_is_its_message() {
        assert_eq!(catch(|| 3), Ok(3));
        assert_eq!(catch(|| std::panic::panic_any("nothing\nat all")), Err::<(), _>("nothing".to_string()));
        assert_eq!(catch(|| panic!("{} and {}", 1, 2)), Err::<(), _>("1 and 2".to_string()));
    }
}
