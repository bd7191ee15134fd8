//! Tensors in the GPU's memory that kernels cannot be given as they are: strided ones, those that begin anywhere, other types of
//! integers. They are copied on the GPU, in the order of the call's stream; the host waits for nothing.
//!
//! In: a [`Detour`], and memory for its elements as kernels want them. Out: copies that are queued. Which bytes go where is decided
//! by `strided.rs`; the kernel is `copy.ptx`, which stands behind the kernels of each variant.

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

/// Threads of a block.
const THREADS: u32 = 256;
/// Parameters that are addresses and the like, and that are numbers of 32 bits.
const WORDS: usize = 5;
const NUMBERS: usize = 3;

/// Numbers of what the kernel does with an element; those before are copies of elements of 1, 2, 4 and 8 bytes.
mod kind {
    pub(super) const NARROW: u32 = 4;
    pub(super) const WIDEN: u32 = 5;
    pub(super) const TRUTH: u32 = 6;
}

/// Where a tensor of a call lies, as kernels see it.
pub(crate) enum At<'a> {
    /// In the host's memory.
    Host,
    /// In the GPU's, as kernels want it.
    Device,
    /// In the GPU's, and not so.
    Detour(Detour<'a>),
}

/// See the head of this file.
#[derive(Clone, Copy)]
pub(crate) struct Detour<'a> {
    pub(crate) view: View<'a>,
    /// Bytes of an element of it.
    pub(crate) size: u64,
    /// What kernels want of an element.
    pub(crate) how: Conversion,
}

impl Detour<'_> {
    /// Bytes of its elements, one after another.
    fn bytes(&self) -> u64 {
        self.view.count.saturating_mul(self.size)
    }

    /// Do elements begin at multiples of their size?
    fn is_aligned(&self) -> bool {
        (self.view.data as u64).checked_rem(self.size) == Some(0)
    }

    /// Bytes of memory that it takes beside that for its elements as kernels want them: an element that begins anywhere is copied before it
    /// is converted.
    pub(crate) fn spare(&self) -> u64 {
        if self.is_converted() && !self.is_aligned() { self.bytes() } else { 0 }
    }

    fn is_converted(&self) -> bool {
        self.how != Conversion::Same
    }

    /// The axes of a copy between this tensor and elements of `size` bytes one after another; `scatters` is a copy to it.
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
        // The bytes of an element, where they are only moved.
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

// SAFETY: names of the driver's, which any thread may use.
unsafe impl Send for Copier {}
// SAFETY: as above.
unsafe impl Sync for Copier {}

/// Where an integer that does not fit is reported.
#[derive(Clone, Copy)]
pub(crate) struct Report {
    pub(crate) fault: Address,
    /// What is written there first.
    pub(crate) site: u64,
}

impl Copier {
    /// The one of a variant's code, which stays loaded as long as this is used.
    pub(crate) fn of(module: &Module) -> Copier {
        Copier { gpu: module.gpu.clone(), function: module.copies }
    }

    /// Copies the tensor to elements of `size` bytes one after another, as kernels want them.
    ///
    /// # Safety
    /// The tensor's memory is readable as it says; `to` has room, and `spare` for as many bytes as [`Detour::spare`] says.
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
            // The first of all axes.
            let _ = axes.push(Axis { count: plain.view.count, from: plain.size.cast_signed(), to: size.cast_signed() });
            self.elements(queue, &axes, spare, to, kind, report)
        }
    }

    /// Copies elements that lie one after another to where the tensor has them.
    ///
    /// # Safety
    /// The tensor's memory is writable as it says; `from` has as many elements.
    pub(crate) unsafe fn scatter(&self, queue: Queue<'_>, tensor: &Detour<'_>, from: Address) -> Result<()> {
        let axes = tensor.axes(tensor.size, true)?;
        // SAFETY: by the contract above.
        unsafe { self.bytes(queue, &axes, from, tensor.view.data as u64) }
    }

    /// # Safety
    /// Both ends have all the bytes.
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
    /// Both ends have all the elements.
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
            // SAFETY: by the contract above, of which this is a part.
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
        // The kernel's axes begin with the fastest.
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
        // SAFETY: the kernel's parameters, in order, which the driver copies; memory as the caller promises.
        let code = unsafe {
            let launch = self.gpu.driver.launch;
            launch(self.function, blocks, 1, 1, THREADS, 1, 1, 0, queue.stream, params.as_ptr(), core::ptr::null())
        };
        self.gpu.check(code, "a copy of a tensor")
    }
}

/// Is a tensor in the GPU's memory as kernels want it?
pub(crate) fn is_direct(view: &View<'_>) -> bool {
    view.is_contiguous() && (view.data as u64).is_multiple_of(ARGUMENT_ALIGN)
}
