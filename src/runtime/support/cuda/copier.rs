//! Copies for tensors in GPU memory that kernels cannot access directly: strided or unaligned ones,
//! and other integer types. The copies run on the GPU in stream order; the host does not wait.
//!
//! In: a [`Detour`], and memory for its elements in the form that kernels require. Out: queued
//! copies. `strided.rs` computes the copies; the kernel is `copy.ptx`, which is appended to the
//! kernels of each variant.

use alloc::sync::Arc;
use core::ffi::c_void;
use core::ptr::null_mut;

use super::device::Gpu;
use super::driver::{Address, Function};
use super::memory::{ARGUMENT_ALIGN, Queue};
use super::module::Module;
use super::strided::{Axes, Axis, KERNEL_AXES, Piece};
use crate::dlpack::{Conversion, View};
use crate::error::{Result, fail};

/// Block size.
const THREADS: u32 = 256;
/// Numbers of 64-bit and of 32-bit parameters before the axes.
const WORDS: usize = 5;
const NUMBERS: usize = 3;

/// Kernel modes that convert elements; 0 to 3 copy elements of 1, 2, 4 and 8 bytes.
mod kind {
    pub(super) const NARROW: u32 = 4;
    pub(super) const WIDEN: u32 = 5;
    pub(super) const TRUTH: u32 = 6;
}

/// Where a tensor of a call is, from the perspective of kernels.
pub(crate) enum TensorLocation<'a> {
    /// In host memory.
    Host,
    /// In GPU memory, directly usable.
    Device,
    /// In GPU memory, but needs a copy.
    Detour(Detour<'a>),
}

/// See the head of this file.
#[derive(Clone, Copy)]
pub(crate) struct Detour<'a> {
    pub(crate) view: View<'a>,
    /// Element size in bytes.
    pub(crate) size: u64,
    /// How elements are converted for kernels.
    pub(crate) how: Conversion,
}

impl Detour<'_> {
    /// Total size of its elements.
    fn bytes(&self) -> u64 {
        self.view.count.saturating_mul(self.size)
    }

    /// Are elements aligned to their size?
    fn is_aligned(&self) -> bool {
        (self.view.data as u64).checked_rem(self.size) == Some(0)
    }

    /// Bytes of temporary memory needed besides the converted elements: unaligned elements are
    /// copied before they are converted.
    pub(crate) fn spare(&self) -> u64 {
        if self.is_converted() && !self.is_aligned() { self.bytes() } else { 0 }
    }

    fn is_converted(&self) -> bool {
        self.how != Conversion::Same
    }

    /// The axes of a copy between this tensor and contiguous elements of `size` bytes; `scatters`:
    /// the tensor is the destination.
    fn axes(&self, size: u64, scatters: bool) -> Result<Axes> {
        let mut axes = Axes::new();
        let mut rest = self.view.count;
        let mut fits = true;
        for (count, step) in self.view.steps(self.size) {
            rest = rest.checked_div(count).unwrap_or(0);
            let packed = rest.saturating_mul(size).cast_signed();
            let (from, to) = if scatters { (packed, step) } else { (step, packed) };
            fits &= axes.push(Axis { count, from, to });
        }
        // If elements are only moved, their bytes are the innermost axis.
        if !self.is_converted() {
            fits &= axes.push(Axis { count: self.size, from: 1, to: 1 });
        }
        if fits { Ok(axes) } else { fail!(Internal, "a tensor of too many axes") }
    }
}

/// The kernel that copies.
pub(crate) struct Copier {
    gpu: Arc<Gpu>,
    function: Function,
}

// SAFETY: driver handles, which any thread may use.
unsafe impl Send for Copier {}
// SAFETY: as above.
unsafe impl Sync for Copier {}

/// Where an out-of-range integer is reported.
#[derive(Clone, Copy)]
pub(crate) struct Report {
    pub(crate) fault: Address,
    /// Value of the first word of the report.
    pub(crate) site: u64,
}

impl Copier {
    /// The copy kernel of a module, which stays loaded as long as the copier is used.
    pub(crate) fn from_module(module: &Module) -> Copier {
        Copier { gpu: module.gpu.clone(), function: module.copies }
    }

    /// Copies the tensor to contiguous elements of `size` bytes, converted for kernels.
    ///
    /// # Safety
    /// The tensor's memory is readable as described; `to` is large enough, and `spare` has
    /// [`Detour::spare`] bytes.
    pub(crate) unsafe fn gather(
        &self,
        queue: Queue<'_>,
        tensor: &Detour<'_>,
        size: u64,
        to: Address,
        spare: Address,
        report: Report,
    ) -> Result<()> {
        let kind = match tensor.how {
            Conversion::Same => None,
            Conversion::Narrow => Some(kind::NARROW),
            Conversion::Widen => Some(kind::WIDEN),
            Conversion::Truth => Some(kind::TRUTH),
        };
        let data = tensor.view.data as u64;
        // SAFETY: by the contract above.
        unsafe {
            let Some(kind) = kind else { return self.bytes(queue, &tensor.axes(size, false)?, data, to) };
            if tensor.spare() == 0 {
                return self.elements(queue, &tensor.axes(size, false)?, data, to, kind, report);
            }
            let plain = Detour { how: Conversion::Same, ..*tensor };
            self.bytes(queue, &plain.axes(plain.size, false)?, data, spare)?;
            let mut axes = Axes::new();
            // The first axis always fits.
            let _ = axes.push(Axis { count: plain.view.count, from: plain.size.cast_signed(), to: size.cast_signed() });
            self.elements(queue, &axes, spare, to, kind, report)
        }
    }

    /// Copies contiguous elements to the tensor.
    ///
    /// # Safety
    /// The tensor's memory is writable as described; `from` has as many elements.
    pub(crate) unsafe fn scatter(&self, queue: Queue<'_>, tensor: &Detour<'_>, from: Address) -> Result<()> {
        let axes = tensor.axes(tensor.size, true)?;
        // SAFETY: by the contract above.
        unsafe { self.bytes(queue, &axes, from, tensor.view.data as u64) }
    }

    /// # Safety
    /// Both source and destination have all the bytes.
    unsafe fn bytes(&self, queue: Queue<'_>, axes: &Axes, from: Address, to: Address) -> Result<()> {
        // SAFETY: by the contract above.
        unsafe {
            if let Some(bytes) = axes.run() {
                return queue.copy_within(to, from, bytes, "a copy of a tensor");
            }
            let (axes, width) = axes.clone().widened(from, to);
            self.elements(queue, &axes, from, to, width.trailing_zeros(), Report { fault: 0, site: 0 })
        }
    }

    /// # Safety
    /// Both source and destination have all the elements.
    unsafe fn elements(
        &self,
        queue: Queue<'_>,
        axes: &Axes,
        from: Address,
        to: Address,
        kind: u32,
        report: Report,
    ) -> Result<()> {
        axes.pieces(&mut |piece| {
            // SAFETY: by the contract above, of which this piece is a part.
            unsafe { self.launch(queue, piece, from, to, kind, report) }
        })
    }

    /// # Safety
    /// As [`Copier::elements`].
    unsafe fn launch(
        &self,
        queue: Queue<'_>,
        piece: Piece<'_>,
        from: Address,
        to: Address,
        kind: u32,
        report: Report,
    ) -> Result<()> {
        if piece.count == 0 {
            return Ok(());
        }
        let at = |start: Address, bytes: i64| start.wrapping_add_signed(bytes);
        let mut words: [u64; WORDS] = [at(from, piece.from), at(to, piece.to), report.fault, report.site, piece.first];
        let mut numbers: [u32; NUMBERS] = [piece.count as u32, kind, piece.axes.len() as u32];
        let mut counts = [1u32; KERNEL_AXES];
        let mut steps = [[0i64; KERNEL_AXES]; 2];
        let [from_steps, to_steps] = &mut steps;
        let places = counts.iter_mut().zip(from_steps.iter_mut()).zip(to_steps.iter_mut());
        // The kernel's axes are innermost first.
        for (((n, from), to), axis) in places.zip(piece.axes.iter().rev()) {
            (*n, *from, *to) = (axis.count as u32, axis.from, axis.to);
        }
        let mut params = [null_mut::<c_void>(); WORDS + NUMBERS + 3 * KERNEL_AXES];
        let given = words.iter_mut().map(|w| (&raw mut *w).cast());
        let given = given.chain(numbers.iter_mut().map(|n| (&raw mut *n).cast()));
        let given = given.chain(counts.iter_mut().map(|n| (&raw mut *n).cast()));
        let given = given.chain(steps.iter_mut().flatten().map(|n| (&raw mut *n).cast()));
        for (param, at) in params.iter_mut().zip(given) {
            *param = at;
        }
        let blocks = (piece.count as u32).div_ceil(THREADS);
        // SAFETY: the kernel's parameters in order, which the driver copies; memory as the caller
        // promises.
        let code = unsafe {
            let launch = self.gpu.driver.launch;
            launch(self.function, blocks, 1, 1, THREADS, 1, 1, 0, queue.stream, params.as_ptr(), core::ptr::null())
        };
        self.gpu.check(code, "a copy of a tensor")
    }
}

/// Can kernels access a tensor in GPU memory directly?
pub(crate) fn is_direct(view: &View<'_>) -> bool {
    view.is_contiguous() && (view.data as u64).is_multiple_of(ARGUMENT_ALIGN)
}
