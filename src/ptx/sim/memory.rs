//! Memory of a device and of a block: bytes, which of them are initialised, and recorded accesses.
//!
//! Buffers have gaps between them, so that an out-of-bounds index does not reach another buffer.

use super::shadow::Shadow;

/// A range of bytes with their state.
#[derive(Default)]
pub(super) struct Region {
    pub(super) bytes: Vec<u8>,
    /// 1 for each initialised byte.
    pub(super) known: Vec<u8>,
    /// Accesses of the current launch.
    pub(super) shadow: Shadow,
}

impl Region {
    /// A region of uninitialised bytes.
    pub(super) fn new(bytes: usize) -> Region {
        Region { bytes: vec![0; bytes], known: vec![0; bytes], shadow: Shadow::default() }
    }

    /// Up to 8 bytes as a little-endian integer, if in bounds.
    pub(super) fn load(&self, at: usize, n: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..at.checked_add(n)?)?;
        let mut word = [0; 8];
        word.get_mut(..n)?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(word))
    }

    /// Are all of these bytes initialised?
    pub(super) fn is_known(&self, at: usize, n: usize) -> bool {
        self.known.get(at..at + n).is_some_and(|known| known.iter().all(|k| *k == 1))
    }

    /// Writes the low bytes of an integer; does nothing out of bounds.
    pub(super) fn store(&mut self, at: usize, n: usize, value: u64) {
        if let (Some(bytes), Some(known)) = (self.bytes.get_mut(at..at + n), self.known.get_mut(at..at + n)) {
            bytes.copy_from_slice(&value.to_le_bytes()[..n]);
            known.fill(1);
        }
    }

    /// Writes bytes.
    pub(super) fn fill(&mut self, at: usize, data: &[u8]) {
        let end = at + data.len();
        if let (Some(bytes), Some(known)) = (self.bytes.get_mut(at..end), self.known.get_mut(at..end)) {
            bytes.copy_from_slice(data);
            known.fill(1);
        }
    }
}

/// A buffer in global memory.
struct Buffer {
    start: u64,
    region: Region,
}

pub(super) struct Global {
    buffers: Vec<Buffer>,
    next: u64,
    /// Index of the buffer that was found last.
    last: usize,
    /// An empty region.
    nothing: Region,
}

/// Address of the first buffer.
const FIRST: u64 = 0x7000_0000_0000;
/// Alignment of buffers, and the minimum gap between them.
const GAP: u64 = 4096;

impl Global {
    pub(super) fn new() -> Global {
        Global { buffers: Vec::new(), next: FIRST, last: 0, nothing: Region::default() }
    }

    /// Allocates an uninitialised buffer. Addresses are never reused.
    pub(super) fn alloc(&mut self, bytes: usize) -> u64 {
        let start = self.next;
        self.next = (start + bytes as u64).next_multiple_of(GAP) + GAP;
        self.buffers.push(Buffer { start, region: Region::new(bytes) });
        start
    }

    /// Frees a buffer. False if no buffer begins there.
    pub(super) fn free(&mut self, start: u64) -> bool {
        match self.buffers.binary_search_by_key(&start, |b| b.start) {
            Ok(at) => {
                self.buffers.remove(at);
                self.last = 0;
                true
            }
            Err(_) => false,
        }
    }

    /// Number of buffers.
    pub(super) fn count(&self) -> usize {
        self.buffers.len()
    }

    /// Total size of all buffers.
    pub(super) fn bytes(&self) -> u64 {
        self.buffers.iter().map(|b| b.region.bytes.len() as u64).sum()
    }

    fn find(&mut self, address: u64) -> Option<usize> {
        let inside = |b: &Buffer| (b.start..b.start + b.region.bytes.len() as u64).contains(&address);
        if self.buffers.get(self.last).is_some_and(inside) {
            return Some(self.last);
        }
        let at = self.buffers.partition_point(|b| b.start <= address).checked_sub(1)?;
        self.last = at;
        self.buffers.get(at).filter(|b| inside(b)).map(|_| at)
    }

    /// The buffer that contains these bytes, and their offset in it.
    pub(super) fn at(&mut self, address: u64, n: usize) -> Option<(&mut Region, usize)> {
        let at = match self.find(address) {
            Some(at) => at,
            // An empty range is valid at any address.
            None if n == 0 => return Some((&mut self.nothing, 0)),
            None => return None,
        };
        let buffer = self.buffers.get_mut(at)?;
        let offset = usize::try_from(address.checked_sub(buffer.start)?).ok()?;
        (offset.checked_add(n)? <= buffer.region.bytes.len()).then_some((&mut buffer.region, offset))
    }

    /// Describes the buffer nearest to an invalid address.
    pub(super) fn nearest(&self, address: u64) -> String {
        let before = self.buffers.partition_point(|b| b.start <= address).checked_sub(1);
        match before.and_then(|at| self.buffers.get(at)) {
            Some(b) => {
                let bytes = b.region.bytes.len() as u64;
                format!("byte {} of a buffer of {bytes} bytes", address - b.start)
            }
            None => "before every buffer".to_string(),
        }
    }

    /// Begins a launch: earlier accesses are ordered before it.
    pub(super) fn begin(&mut self) {
        for b in &mut self.buffers {
            b.region.shadow = Shadow::default();
        }
    }
}
