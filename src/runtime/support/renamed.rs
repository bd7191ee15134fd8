//! `import NAME` for a library that was renamed after it was linked, together with its wrapper.
//!
//! Python asks a library `NAME.so` for the function `PyInit_NAME`, which the linker has given it under the name that the
//! library had then (`python.rs`). So that another name will do, the linker adds spare names of that function too, each long
//! enough for any other. When Python loads the library, one of them is made `PyInit_NAME` in this process' copy of the table of
//! names, before anybody looks it up; the file stays as it is. Spares end in consecutive digits, and so have consecutive hashes:
//! whatever number of buckets up to theirs a linker has chosen, each has one.
//!
//! Wherever something is not as expected, nothing is done: such a library cannot be imported, which Python then says. It must
//! not know what is imported.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null;

use crate::sys::c_bytes;

/// Begins a spare name; `link.rs` makes them.
const SPARE: &[u8] = b"PyInit_attnc_spare_";
/// What Python puts before a module's name.
const PREFIX: &[u8] = b"PyInit_";

const PAGE: usize = 4096;
const READ: c_int = 1;
const WRITE: c_int = 2;
/// A segment that may be read, and nothing else.
const READ_ONLY: u32 = 4;
const LOADED: u32 = 1;
const DYNAMIC: u32 = 2;
const STRINGS: i64 = 5;
const SYMBOLS: i64 = 6;
const HASHES: i64 = 0x6fff_fef5;

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dladdr(address: *const c_void, found: *mut DlInfo) -> c_int;
    fn mprotect(start: *mut c_void, size: usize, protection: c_int) -> c_int;
}

/// The C library's `Dl_info`.
#[repr(C)]
struct DlInfo {
    file: *const c_char,
    base: *mut u8,
    symbol: *const c_char,
    address: *mut c_void,
}

/// ELF's program header.
#[repr(C)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    in_file: u64,
    in_memory: u64,
    align: u64,
}

/// ELF's symbol.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;

extern "C" fn on_load() {
    // SAFETY: a null library means all that the process has loaded.
    if unsafe { dlsym(core::ptr::null_mut(), c"PyModuleDef_Init".as_ptr()) }.is_null() {
        return;
    }
    let mut place =
        DlInfo { file: null(), base: core::ptr::null_mut(), symbol: null(), address: core::ptr::null_mut() };
    // SAFETY: an address of this library, and space for what is found.
    unsafe {
        if dladdr(on_load as *const c_void, &mut place) != 0 && !place.base.is_null() && !place.file.is_null() {
            let _ = Library { base: place.base }.take_name(module_of(c_bytes(place.file)));
        }
    }
}

/// `NAME` of `FOLDER/NAME.so` or `FOLDER/NAME.cpython-311-x86_64-linux-gnu.so`.
fn module_of(path: &[u8]) -> &[u8] {
    let file = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
    file.split(|b| *b == b'.').next().unwrap_or(file)
}

/// The hash of a name in the table of a library (`DT_GNU_HASH`).
fn hash_of(parts: [&[u8]; 2]) -> u32 {
    parts.into_iter().flatten().fold(5381u32, |h, b| h.wrapping_mul(33).wrapping_add(u32::from(*b)))
}

/// A library in memory, this one.
struct Library {
    base: *mut u8,
}

impl Library {
    /// Makes a spare name `PyInit_MODULE`, unless that is a name already. `None` where nothing was done.
    ///
    /// # Safety
    /// The base is that of a library which is being loaded, and which nobody else looks at yet.
    unsafe fn take_name(&self, module: &[u8]) -> Option<()> {
        if module.is_empty() || !module.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_') {
            return None;
        }
        // SAFETY: the tables are those that the dynamic linker has just used; what is written lies in this library.
        unsafe {
            let strings = self.table(STRINGS)?;
            let symbols = self.table(SYMBOLS)?.cast::<Symbol>();
            let hashes = self.table(HASHES)?.cast::<u32>();
            let word = |i: usize| hashes.add(i).read() as usize;
            let (buckets, first, blooms, shift) = (word(0), word(1), word(2), word(3));
            if buckets == 0 || !blooms.is_power_of_two() {
                return None;
            }
            let bloom = hashes.add(4).cast::<u64>();
            let bucket = bloom.add(blooms).cast::<u32>();
            let chain = bucket.add(buckets);
            let hash = hash_of([PREFIX, module]);
            let mut i = bucket.add(hash as usize % buckets).read() as usize;
            let mut spare = None;
            while i >= first {
                let name = strings.add((*symbols.add(i)).name as usize);
                let known = CStr::from_ptr(name.cast()).to_bytes();
                if known.strip_prefix(PREFIX) == Some(module) {
                    return None;
                }
                if known.starts_with(SPARE) && known.len() >= PREFIX.len() + module.len() {
                    spare = Some((name, chain.add(i - first)));
                }
                if chain.add(i - first).read() & 1 == 1 {
                    break;
                }
                i += 1;
            }
            let (name, link) = spare?;
            let filter = bloom.add((hash as usize / 64) & (blooms - 1));
            let bits = 1u64 << (hash % 64) | 1u64 << ((hash >> (shift % 32)) % 64);
            self.write(filter.cast(), &(filter.read_unaligned() | bits).to_ne_bytes())?;
            self.write(link.cast(), &(hash & !1 | link.read() & 1).to_ne_bytes())?;
            // The name is written last, its terminator first: at any time it is a name of this function.
            self.write(name.add(PREFIX.len() + module.len()), &[0])?;
            self.write(name.add(PREFIX.len()), module)
        }
    }

    fn segments(&self) -> &[Segment] {
        // SAFETY: a library begins with ELF's header, which says where its program headers are.
        unsafe {
            let offset = self.base.add(32).cast::<u64>().read_unaligned() as usize;
            let count = self.base.add(56).cast::<u16>().read_unaligned() as usize;
            core::slice::from_raw_parts(self.base.add(offset).cast(), count)
        }
    }

    /// The table that an entry of the dynamic section points to.
    unsafe fn table(&self, kind: i64) -> Option<*mut u8> {
        let dynamic = self.segments().iter().find(|s| s.kind == DYNAMIC)?;
        // SAFETY: the dynamic section is pairs of numbers, the last of which begins with 0.
        unsafe {
            let mut entry = self.base.add(dynamic.address as usize).cast::<[i64; 2]>();
            while (*entry)[0] != 0 {
                let [own, value] = *entry;
                if own == kind {
                    // Some dynamic linkers have made it an address, others have left it relative to the base.
                    let value = value as usize;
                    let address = if value < self.base as usize { self.base as usize + value } else { value };
                    return Some(self.base.with_addr(address));
                }
                entry = entry.add(1);
            }
        }
        None
    }

    /// Writes to a segment that is read only.
    ///
    /// # Safety
    /// The bytes lie in this library, which nobody else looks at yet.
    unsafe fn write(&self, to: *mut u8, bytes: &[u8]) -> Option<()> {
        let start = (to as usize).checked_sub(self.base as usize)? as u64;
        let end = start + bytes.len() as u64;
        let holds = |s: &&Segment| s.kind == LOADED && s.address <= start && end <= s.address + s.in_memory;
        if self.segments().iter().find(holds)?.flags != READ_ONLY {
            return None;
        }
        let (low, high) = (to as usize / PAGE * PAGE, (to as usize + bytes.len()).div_ceil(PAGE) * PAGE);
        // SAFETY: the pages are of that segment, and are as they were afterwards; by the contract above.
        unsafe {
            let pages = to.with_addr(low).cast();
            if mprotect(pages, high - low, READ | WRITE) != 0 {
                return None;
            }
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            mprotect(pages, high - low, READ);
        }
        Some(())
    }
}
