//! Decomposes a copy between two layouts of a tensor into pieces that one kernel launch can copy.
//!
//! In: extents, and for each axis its stride in bytes in both layouts. Out: [`Axes`], merged where
//! possible; [`Axes::pieces`] enumerates parts of at most [`MAX_LAUNCH_ELEMENTS`] elements along at most
//! [`KERNEL_AXES`] axes. This file must not access memory or call the driver.

/// Number of axes in the kernel's parameters.
pub(crate) const KERNEL_AXES: usize = 8;
/// Limit on elements per launch; the kernel counts them in 32 bits.
pub(crate) const MAX_LAUNCH_ELEMENTS: u64 = 1 << 30;
/// Maximum rank of a tensor, plus an axis for the bytes of its elements.
const MAX_AXES: usize = 65;
/// Maximum number of bytes moved at once.
const WIDEST: u64 = 8;

/// An axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    /// Number of elements.
    pub(crate) count: u64,
    /// Stride in bytes in the source and in the destination.
    pub(crate) from: i64,
    pub(crate) to: i64,
}

const ONE: Axis = Axis { count: 1, from: 0, to: 0 };

/// The axes of a copy, outermost first.
#[derive(Clone, Debug)]
pub(crate) struct Axes {
    list: [Axis; MAX_AXES],
    length: usize,
}

/// The part copied by one launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    /// Outermost first; at most [`KERNEL_AXES`].
    pub(crate) axes: &'a [Axis],
    /// Byte offset of its first element in the source and the destination.
    pub(crate) from: i64,
    pub(crate) to: i64,
    /// Index of its first element, in the order of the tensor.
    pub(crate) first: u64,
    /// Number of elements.
    pub(crate) count: u64,
}

impl Axes {
    /// Rank 0: a single element.
    pub(crate) fn new() -> Axes {
        Axes { list: [ONE; MAX_AXES], length: 0 }
    }

    /// Adds an innermost axis; merges it with the previous one if their strides permit. Returns
    /// false if there are too many axes.
    #[must_use]
    pub(crate) fn push(&mut self, axis: Axis) -> bool {
        if axis.count == 1 {
            return true;
        }
        let goes_on = |outer: i64, inner: i64| {
            i64::try_from(axis.count).ok().and_then(|n| inner.checked_mul(n)).is_some_and(|all| all == outer)
        };
        if let Some(last) = self.length.checked_sub(1).and_then(|i| self.list.get_mut(i))
            && goes_on(last.from, axis.from)
            && goes_on(last.to, axis.to)
            && let Some(count) = last.count.checked_mul(axis.count)
        {
            *last = Axis { count, ..axis };
            return true;
        }
        let Some(place) = self.list.get_mut(self.length) else { return false };
        *place = axis;
        self.length += 1;
        true
    }

    pub(crate) fn get(&self) -> &[Axis] {
        self.list.get(..self.length).unwrap_or(&[])
    }

    /// The number of bytes, if both layouts are contiguous.
    pub(crate) fn run(&self) -> Option<u64> {
        match self.get() {
            [] => Some(1),
            [Axis { count, from: 1, to: 1 }] => Some(*count),
            _ => None,
        }
    }

    /// Replaces bytes by the widest elements to which all offsets and strides are aligned; returns
    /// the width as well.
    pub(crate) fn widened(mut self, from: u64, to: u64) -> (Axes, u64) {
        let last = self.length.checked_sub(1);
        let Some(Axis { count, from: 1, to: 1 }) = last.and_then(|i| self.list.get(i)).copied() else {
            return (self, 1);
        };
        let outer = self.list.get(..self.length - 1).unwrap_or(&[]);
        let places = outer.iter().fold(from | to | count, |all, a| all | a.from.unsigned_abs() | a.to.unsigned_abs());
        let width = WIDEST.min(1 << places.trailing_zeros().min(63));
        self.length -= 1;
        let (step, count) = (width.cast_signed(), count / width.max(1));
        // An axis was removed before, so there is space.
        let _ = self.push(Axis { count, from: step, to: step });
        (self, width)
    }

    /// Calls `f` with pieces that cover every element once, in order; stops at the first error.
    pub(crate) fn pieces<E>(&self, f: &mut impl FnMut(Piece<'_>) -> Result<(), E>) -> Result<(), E> {
        pieces(self.get(), MAX_LAUNCH_ELEMENTS, (0, 0), 0, f)
    }

    /// The same with `most` elements per launch.
    #[cfg(test)]
    pub(crate) fn pieces_of<E>(&self, most: u64, f: &mut impl FnMut(Piece<'_>) -> Result<(), E>) -> Result<(), E> {
        pieces(self.get(), most, (0, 0), 0, f)
    }
}

/// Number of elements.
fn count_of(axes: &[Axis]) -> u64 {
    axes.iter().fold(1u64, |n, a| n.saturating_mul(a.count))
}

fn pieces<E>(
    axes: &[Axis],
    most: u64,
    (from, to): (i64, i64),
    first: u64,
    f: &mut impl FnMut(Piece<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let count = count_of(axes);
    let (Some((outer, rest)), true) = (axes.split_first(), axes.len() > KERNEL_AXES || count > most) else {
        return f(Piece { axes, from, to, first, count });
    };
    let inside = count_of(rest);
    // The number of outer iterations per piece.
    let some = if rest.len() < KERNEL_AXES { most / inside.max(1) } else { 0 };
    let mut done = 0;
    while done < outer.count {
        let at = |start: i64, step: i64| start.wrapping_add(step.wrapping_mul(done.cast_signed()));
        let (from, to) = (at(from, outer.from), at(to, outer.to));
        let first = first.saturating_add(inside.saturating_mul(done));
        let now = some.max(1).min(outer.count - done);
        if some < 2 {
            pieces(rest, most, (from, to), first, f)?;
        } else {
            let mut part = [ONE; KERNEL_AXES];
            let part = part.get_mut(..axes.len()).unwrap_or(&mut []);
            part.copy_from_slice(axes);
            if let Some(axis) = part.first_mut() {
                axis.count = now;
            }
            f(Piece { axes: part, from, to, first, count: inside.saturating_mul(now) })?;
        }
        done += now;
    }
    Ok(())
}
