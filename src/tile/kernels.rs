//! Names and deduplicates the kernels of a module under construction.
//!
//! In: kernels named by their kinds. Out: their names in the module, kinds with numbers, and the
//! distinct kernels in order of insertion. This must not know what a kernel computes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::encode::{self, Encoding};
use super::{Kernel, Op, simplify};
use crate::source::Loc;

/// The kind in a kernel's numbered name: `map` of `map.0`.
fn numbered_kind(name: &str) -> Option<&str> {
    let (kind, number) = name.rsplit_once('.')?;
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(kind)
}

/// The source location of a kernel: that of its last store.
pub(crate) fn place(kernel: &Kernel) -> Loc {
    let stores = kernel.body.insts().filter(|(_, _, d)| matches!(d.op, Op::Store { .. }));
    stores.map(|(_, _, d)| d.loc).last().unwrap_or_default()
}

/// The encoding of a kernel without names and locations.
fn encoded(kernel: &Kernel) -> Vec<u8> {
    encode::kernel(kernel, Encoding { name: false, places: false, state: kernel.state })
}

/// Kernels under unique names.
#[derive(Default)]
pub(crate) struct Kernels {
    /// The name of each kernel so far, by its encoding without names and locations.
    known: HashMap<Vec<u8>, String>,
    /// The next number of each kind.
    counts: BTreeMap<String, usize>,
    /// Names that must not be given.
    taken: BTreeSet<String>,
    /// The kernels, in order of insertion.
    pub(crate) list: Vec<Kernel>,
}

impl Kernels {
    /// An empty list that does not give these names.
    pub(crate) fn beside(taken: BTreeSet<String>) -> Kernels {
        Kernels { taken, ..Kernels::default() }
    }

    /// An empty list for these kernels, which keep their names, and others: one that equals one of
    /// these gets its name.
    pub(crate) fn among<'k>(kept: impl Iterator<Item = &'k Kernel>) -> Kernels {
        let mut kernels = Kernels::default();
        for k in kept {
            kernels.known.entry(encoded(k)).or_insert_with(|| k.name.clone());
            kernels.taken.insert(k.name.clone());
        }
        kernels
    }

    /// Adds a kernel under its present name, unless that is in the list. Returns the name.
    pub(crate) fn keep(&mut self, kernel: &Kernel) -> String {
        if !self.list.iter().any(|k| k.name == kernel.name) {
            self.list.push(kernel.clone());
        }
        kernel.name.clone()
    }

    /// Adds a kernel that was derived from another and still has its name. Returns the new name:
    /// one in `taken` is kept, as is the first one without a number; others are numbered anew.
    pub(crate) fn add_again(&mut self, mut kernel: Kernel) -> String {
        if self.taken.contains(&kernel.name) {
            return self.keep(&kernel);
        }
        match numbered_kind(&kernel.name) {
            Some(kind) => kernel.name = kind.to_string(),
            // The first one keeps its name.
            None if !self.taken.contains(&kernel.name) && !self.list.iter().any(|k| k.name == kernel.name) => {
                simplify(&mut kernel.body);
                self.list.push(kernel.clone());
                return kernel.name;
            }
            None => {}
        }
        self.add(kernel)
    }

    /// Adds a kernel, unless an equal one is in the list. Returns its name in the module.
    pub(crate) fn add(&mut self, mut kernel: Kernel) -> String {
        simplify(&mut kernel.body);
        self.add_as_it_is(kernel)
    }

    /// The same for a kernel that is already simplified, because it was in a module before.
    pub(crate) fn add_as_it_is(&mut self, mut kernel: Kernel) -> String {
        let bytes = encoded(&kernel);
        if let Some(name) = self.known.get(&bytes) {
            return name.clone();
        }
        let number = self.counts.entry(kernel.name.clone()).or_default();
        let name = loop {
            let name = format!("{}.{number}", kernel.name);
            *number += 1;
            if !self.taken.contains(&name) && !self.list.iter().any(|k| k.name == name) {
                break name;
            }
        };
        kernel.name = name.clone();
        self.known.insert(bytes, name.clone());
        self.list.push(kernel);
        name
    }
}
