//! The floating-point mode in which a model runs.

/// Sets the default floating-point mode (round to nearest, no flushing of subnormals, no traps) and
/// restores the caller's mode on drop: a program's mode must not change a model's results.
pub(crate) struct DefaultMode {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    saved: u64,
}

#[cfg(target_arch = "x86_64")]
impl DefaultMode {
    /// Sets the default mode on this thread.
    pub(crate) fn enter() -> DefaultMode {
        let mut saved = 0u32;
        let default = 0x1f80u32;
        // SAFETY: both words are valid memory; the mode is restored on drop.
        unsafe {
            core::arch::asm!("stmxcsr [{0}]", "ldmxcsr [{1}]", in(reg) &mut saved, in(reg) &default, options(nostack));
        }
        DefaultMode { saved: u64::from(saved) }
    }
}

#[cfg(target_arch = "x86_64")]
impl Drop for DefaultMode {
    fn drop(&mut self) {
        let saved = self.saved as u32;
        // SAFETY: the word was read from the same register.
        unsafe { core::arch::asm!("ldmxcsr [{0}]", in(reg) &saved, options(nostack)) };
    }
}

#[cfg(target_arch = "aarch64")]
impl DefaultMode {
    /// Sets the default mode on this thread.
    pub(crate) fn enter() -> DefaultMode {
        let saved: u64;
        // SAFETY: FPCR is readable and writable; it is restored on drop.
        unsafe { core::arch::asm!("mrs {0}, fpcr", "msr fpcr, xzr", out(reg) saved, options(nomem, nostack)) };
        DefaultMode { saved }
    }
}

#[cfg(target_arch = "aarch64")]
impl Drop for DefaultMode {
    fn drop(&mut self) {
        // SAFETY: the word was read from the same register.
        unsafe { core::arch::asm!("msr fpcr, {0}", in(reg) self.saved, options(nomem, nostack)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl DefaultMode {
    /// A no-op.
    pub(crate) fn enter() -> DefaultMode {
        DefaultMode {}
    }
}
