//! The leaf functions of an object: each is made once and put into the object as bytes.
//!
//! In: what the functions of the object call ([`LeafCalls`]), by what a leaf shall do, or by its code. Out: the functions to
//! call. Two leaves with the same code are one.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_codegen::isa::CallConv;
use cranelift_module::{FuncId, Linkage, Module as _};
use cranelift_object::ObjectModule;

use super::super::function::signature;
use super::amx::{TilesShape, tiles};
use super::dot::{DotShape, dot};
use super::encode::listing;
use super::pair_rows::{PairRowsShape, pair_rows};
use super::transpose::{TransposeShape, transpose};
use crate::threads;
use crate::tile::text::print_inst;
use crate::tile::{CpuLevel, Inst, Kernel};

/// Leaves that are named by what they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A product.
    Dot(CpuLevel, DotShape),
    /// A product of tiles of `bf16`.
    Tiles(TilesShape),
    /// A transposition.
    Transpose(CpuLevel, TransposeShape),
    /// Rows of `bf16` side by side.
    PairRows(PairRowsShape),
}

impl Kind {
    /// For symbols and listings.
    fn name(self) -> String {
        match self {
            Kind::Dot(level, _) => format!("dot.{}", level.name()),
            Kind::Tiles(_) => "dot.amx".to_string(),
            Kind::Transpose(level, _) => format!("transpose.{}", level.name()),
            Kind::PairRows(_) => "pair_rows".to_string(),
        }
    }

    /// Its bytes and, if wanted, their listing.
    ///
    /// # Errors
    /// A form that cannot be encoded, a mistake of ours.
    fn make(self, listing: bool) -> Result<(Vec<u8>, String), String> {
        match self {
            Kind::Dot(level, shape) => dot(level, shape, listing),
            Kind::Tiles(shape) => tiles(shape, listing),
            Kind::Transpose(level, shape) => transpose(level, shape, listing),
            Kind::PairRows(shape) => pair_rows(shape, listing),
        }
    }
}

/// A leaf that a function calls.
#[derive(Clone, Debug)]
enum Wanted {
    /// By what it does.
    Kind(Kind),
    /// By its code.
    Code {
        /// For symbols and listings.
        name: String,
        /// The bytes.
        code: Vec<u8>,
        /// How many of them are instructions.
        instructions: usize,
    },
}

impl Wanted {
    fn name(&self) -> String {
        match self {
            Wanted::Kind(kind) => kind.name(),
            Wanted::Code { name, .. } => name.clone(),
        }
    }
}

/// The leaves that a function calls, in the order in which it asked for them.
#[derive(Clone, Debug)]
pub(in crate::codegen::cpu) struct LeafCalls {
    /// Each with the tile IR that it is made from, where listings are wanted.
    list: Vec<(Wanted, String)>,
    listings: bool,
    from: String,
}

impl LeafCalls {
    /// None yet. `listings`: is their text wanted?
    pub(in crate::codegen::cpu) fn new(listings: bool) -> LeafCalls {
        LeafCalls { list: Vec::new(), listings, from: String::new() }
    }

    /// Where listings are wanted, says what tile IR the next leaf is made from.
    pub(in crate::codegen::cpu) fn next_is(&mut self, kernel: &Kernel, inst: Inst) {
        if self.listings {
            self.from = print_inst(kernel, inst);
        }
    }

    /// Asks for the leaf of a kind; its place among those of the function.
    pub(super) fn of_kind(&mut self, kind: Kind) -> usize {
        self.ask(Wanted::Kind(kind))
    }

    /// Asks for the leaf with this code, of which so many bytes are instructions.
    pub(super) fn of_code(&mut self, name: String, code: Vec<u8>, instructions: usize) -> usize {
        self.ask(Wanted::Code { name, code, instructions })
    }

    fn ask(&mut self, wanted: Wanted) -> usize {
        self.list.push((wanted, self.from.clone()));
        self.list.len() - 1
    }
}

/// The leaves of an object.
pub(in crate::codegen::cpu) struct Leaves {
    /// The bytes and listings of those that are named by what they do.
    kinds: BTreeMap<Kind, (Vec<u8>, String)>,
    /// Those that are in the object.
    defined: BTreeMap<Vec<u8>, FuncId>,
    /// The listing of each that is in the object, where listings are wanted.
    pub(in crate::codegen::cpu) texts: BTreeMap<FuncId, String>,
}

impl Leaves {
    /// Makes what functions call, on several threads.
    ///
    /// # Errors
    /// A form that cannot be encoded, a mistake of ours.
    pub(in crate::codegen::cpu) fn make<'a>(
        calls: impl Iterator<Item = &'a LeafCalls>,
        threads: usize,
    ) -> Result<Leaves, String> {
        let (mut kinds, mut listings) = (BTreeSet::new(), false);
        for call in calls {
            listings |= call.listings;
            kinds.extend(call.list.iter().filter_map(|(wanted, _)| match wanted {
                Wanted::Kind(kind) => Some(*kind),
                Wanted::Code { .. } => None,
            }));
        }
        // The best level's first: they are the longest.
        let made = threads::each(kinds.into_iter().rev(), threads, |kind| {
            let made = kind.make(listings).map_err(|e| format!("{}: {e}", kind.name()))?;
            Ok((kind, made))
        });
        let kinds = made.into_iter().collect::<Result<_, String>>()?;
        Ok(Leaves { kinds, defined: BTreeMap::new(), texts: BTreeMap::new() })
    }

    /// The functions of what a function calls, in its order; those that are not yet in the object are put there.
    ///
    /// # Errors
    /// What the object refuses, a mistake of ours.
    pub(in crate::codegen::cpu) fn define(
        &mut self,
        object: &mut ObjectModule,
        calls: LeafCalls,
    ) -> Result<Vec<FuncId>, String> {
        let convention = object.isa().default_call_conv();
        let mut ids = Vec::new();
        for (wanted, from) in calls.list {
            let code = match &wanted {
                Wanted::Kind(kind) => &self.kinds.get(kind).ok_or("a leaf that was not made")?.0,
                Wanted::Code { code, .. } => code,
            };
            if let Some(id) = self.defined.get(code) {
                ids.push(*id);
                continue;
            }
            let name = format!("leaf.{}.{}", wanted.name(), self.defined.len());
            let id = put(object, &name, convention, code)?;
            if calls.listings {
                let from: String = from.lines().map(|line| format!("  ; {line}\n")).collect();
                let text = match &wanted {
                    Wanted::Kind(kind) => self.kinds.get(kind).map_or(String::new(), |(_, text)| text.clone()),
                    Wanted::Code { instructions, .. } => listing(code.get(..*instructions).unwrap_or_default()),
                };
                self.texts.insert(id, format!("{name}:\n{from}{text}\n"));
            }
            self.defined.insert(code.clone(), id);
            ids.push(id);
        }
        Ok(ids)
    }
}

/// Puts a leaf into an object.
fn put(object: &mut ObjectModule, name: &str, convention: CallConv, code: &[u8]) -> Result<FuncId, String> {
    let id =
        object.declare_function(name, Linkage::Local, &signature(convention, 1, false)).map_err(|e| e.to_string())?;
    object.define_function_bytes(id, 64, code, &[]).map_err(|e| format!("{name}: {e:?}"))?;
    Ok(id)
}
