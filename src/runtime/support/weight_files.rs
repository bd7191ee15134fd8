//! The files of a checkpoint: one safetensors file, or several that an index lists
//! (`model.safetensors.index.json`).
//!
//! In: a path to untrusted files. Out: all their tensors, sorted by name; names are unique. Whether
//! a model needs them is not checked here.

use alloc::vec::Vec;
use core::ffi::c_char;

use crate::error::{Error, Result, Shown, fail, push};
use crate::header::{self, Entry};
use crate::safetensors::{self, Table};
use crate::sys::{self, Mapping};

/// Purpose of the memory, for messages.
const FILES: &str = "the tensors of the weights files";

/// Mapped files and their tensors.
pub(crate) struct Files {
    files: Vec<(Mapping, Table)>,
    /// File and tensor index, sorted by name.
    order: Vec<(usize, usize)>,
}

impl Files {
    /// Opens the file at `path`, or the files that it lists if it ends with `.json`. `shown` is the
    /// path for messages.
    ///
    /// # Safety
    /// `path` is a C string.
    pub(crate) unsafe fn open(path: *const c_char, shown: &str) -> Result<Files> {
        let mut files = Files { files: Vec::new(), order: Vec::new() };
        // SAFETY: as the caller promises.
        let bytes = unsafe { sys::c_bytes(path) };
        if !bytes.ends_with(b".json") {
            // SAFETY: as above.
            unsafe { files.add(path, shown) }?;
            return files.sorted(shown);
        }
        // SAFETY: as above.
        let index = unsafe { mapped(path, shown) }?;
        let Ok(text) = core::str::from_utf8(index.bytes()) else {
            fail!(Weights, "weights file `{}`: it is not UTF-8", Shown(shown))
        };
        let names = header::parse_index(text).map_err(|e| in_file(e, shown))?;
        let folder = bytes.iter().rposition(|b| *b == b'/').map_or(0, |at| at.saturating_add(1));
        for name in &names {
            // Files must be in the folder of the index.
            if name.is_empty() || name.contains(['/', '\0']) {
                fail!(
                    Weights,
                    "weights file `{}`: it names the file `{}`, which is not beside it",
                    Shown(shown),
                    Shown(name)
                );
            }
            let mut whole = Vec::new();
            for byte in bytes.get(..folder).unwrap_or_default().iter().chain(name.as_bytes()).chain(&[0]) {
                push(&mut whole, *byte, FILES)?;
            }
            let of = alloc::format!("{name}` of `{shown}");
            // SAFETY: its only zero is the last byte.
            unsafe { files.add(whole.as_ptr().cast(), &of) }?;
        }
        files.sorted(shown)
    }

    /// # Safety
    /// `path` is a C string.
    unsafe fn add(&mut self, path: *const c_char, shown: &str) -> Result<()> {
        // SAFETY: as the caller promises.
        let file = unsafe { mapped(path, shown) }?;
        let table = safetensors::parse(file.bytes()).map_err(|e| in_file(e, shown))?;
        for tensor in 0..table.entries().len() {
            push(&mut self.order, (self.files.len(), tensor), FILES)?;
        }
        push(&mut self.files, (file, table), FILES)
    }

    fn sorted(mut self, shown: &str) -> Result<Files> {
        let files = &self.files;
        let name = |at: &(usize, usize)| {
            files.get(at.0).and_then(|(_, table)| table.entries().get(at.1)).map_or("", |e| e.name.as_str())
        };
        self.order.sort_unstable_by(|a, b| name(a).cmp(name(b)));
        for (a, b) in self.order.iter().zip(self.order.iter().skip(1)) {
            if name(a) == name(b) {
                fail!(Weights, "weights file `{}`: two of its files have a tensor `{}`", Shown(shown), Shown(name(a)));
            }
        }
        Ok(self)
    }

    /// Number of tensors.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The tensors, sorted by name.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.order.iter().filter_map(|(file, tensor)| self.files.get(*file)?.1.entries().get(*tensor))
    }

    /// A tensor's entry and data.
    pub(crate) fn tensor(&self, index: usize) -> Option<(&Entry, &[u8])> {
        let (file, tensor) = *self.order.get(index)?;
        let (map, table) = self.files.get(file)?;
        let entry = table.entries().get(tensor)?;
        Some((entry, table.data(map.bytes(), entry)))
    }

    /// Index of the tensor of this name.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        let found = self.order.binary_search_by(|(file, tensor)| {
            let entry = self.files.get(*file).and_then(|(_, table)| table.entries().get(*tensor));
            entry.map_or("", |e| e.name.as_str()).cmp(name)
        });
        found.ok()
    }

    /// The mappings alone.
    pub(crate) fn into_mappings(self) -> Result<Vec<Mapping>> {
        let mut mappings = Vec::new();
        for (map, _) in self.files {
            push(&mut mappings, map, FILES)?;
        }
        Ok(mappings)
    }
}

/// Maps a file. `shown` is its path for messages.
///
/// # Safety
/// `path` is a C string.
unsafe fn mapped(path: *const c_char, shown: &str) -> Result<Mapping> {
    // SAFETY: as the caller promises.
    match unsafe { Mapping::open(path) } {
        Ok(file) => Ok(file),
        Err(why) => fail!(File, "cannot read weights file `{}`: {why}", Shown(shown)),
    }
}

/// Adds the file name to an error.
fn in_file(e: Error, shown: &str) -> Error {
    Error { status: e.status, text: alloc::format!("weights file `{}`: {}", Shown(shown), e.text) }
}
