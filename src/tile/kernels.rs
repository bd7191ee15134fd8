//! The kernels of a module that is being made: each is there once.
//!
//! In: kernels whose names are their kinds. Out: the names that they have in the module, kinds with
//! numbers, and the kernels in the order in which they came. What this must not know: what a kernel
//! does.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::encode::{self, Encoding};
use super::{Kernel, Op, simplify};
use crate::source::Loc;

/// The kind of a kernel that has a number, by its name: `map` of `map.0`.
pub(crate) fn numbered_kind(name: &str) -> Option<&str> {
    let (kind, number) = name.rsplit_once('.')?;
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(kind)
}

/// The counterpart of a kernel before or after a schedule, which may renumber kernels: of those of
/// the same kind with the same parameters, the one from the same source location; where that is
/// ambiguous, the one with the same name, or the only one.
pub(crate) fn counterpart<'k>(kernel: &Kernel, others: &'k [Kernel]) -> Option<&'k Kernel> {
    let params = |k: &Kernel| k.params.iter().map(|p| (k.body.ty(p.value).clone(), p.mode)).collect::<Vec<_>>();
    let own = params(kernel);
    let kind = numbered_kind(&kernel.name);
    let is_alike = |k: &&Kernel| k.name == kernel.name || kind.is_some() && numbered_kind(&k.name) == kind;
    let alike: Vec<&Kernel> = others.iter().filter(is_alike).filter(|k| params(k) == own).collect();
    let here: Vec<&Kernel> = alike.iter().copied().filter(|k| place(k) == place(kernel)).collect();
    let alike = if here.is_empty() { alike } else { here };
    match alike.as_slice() {
        [only] => Some(only),
        several => several.iter().find(|k| k.name == kernel.name).copied(),
    }
}

/// Where a kernel is in the source: where its last value is stored.
pub(crate) fn place(kernel: &Kernel) -> Loc {
    let stores = kernel.body.insts().filter(|(_, _, d)| matches!(d.op, Op::Store { .. }));
    stores.map(|(_, _, d)| d.loc).last().unwrap_or_default()
}

/// Kernels with names of their own.
#[derive(Default)]
pub(crate) struct Kernels {
    /// The names of the kernels so far, by what they are without name and places.
    known: HashMap<Vec<u8>, String>,
    /// The next number of each kind.
    counts: BTreeMap<String, usize>,
    /// Names that others have.
    taken: BTreeSet<String>,
    /// The kernels.
    pub(crate) list: Vec<Kernel>,
}

impl Kernels {
    /// None yet, beside others that have these names.
    pub(crate) fn beside(taken: BTreeSet<String>) -> Kernels {
        Kernels { taken, ..Kernels::default() }
    }

    /// Takes a kernel with the name that it has, unless it is there; the name.
    pub(crate) fn keep(&mut self, kernel: &Kernel) -> String {
        if !self.list.iter().any(|k| k.name == kernel.name) {
            self.list.push(kernel.clone());
        }
        kernel.name.clone()
    }

    /// The name of a kernel that was made of another and has its name still, in the module: the
    /// same kind, with a number if it had one.
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

    /// The name of a kernel in the module: one that is there already is not added again.
    pub(crate) fn add(&mut self, mut kernel: Kernel) -> String {
        simplify(&mut kernel.body);
        self.add_as_it_is(kernel)
    }

    /// The same of a kernel that needs no simplification, because it was in a module before.
    pub(crate) fn add_as_it_is(&mut self, mut kernel: Kernel) -> String {
        let bytes = encode::kernel(&kernel, Encoding { name: false, places: false, state: kernel.state });
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
