//! The leaf functions of an object: each is made once and put into the object as bytes.
//!
//! In: what a leaf shall do, or its code. Out: the function to call. Two leaves with the same code are one.

use std::collections::BTreeMap;

use cranelift_codegen::ir::{AbiParam, types};
use cranelift_module::{FuncId, Linkage, Module as _};
use cranelift_object::ObjectModule;

use super::amx::{TilesShape, tiles};
use super::dot::{DotShape, dot};
use super::pair_rows::{PairRowsShape, pair_rows};
use super::transpose::{TransposeShape, transpose};
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

/// The object under construction and its leaves, as a function under construction sees them.
pub(in crate::codegen::cpu) struct Objects<'a> {
    /// The object.
    pub(in crate::codegen::cpu) object: &'a mut ObjectModule,
    /// Its leaves.
    pub(in crate::codegen::cpu) leaves: &'a mut Leaves,
}

impl Objects<'_> {
    /// The leaf of a kind.
    ///
    /// # Errors
    /// A form that cannot be encoded, a mistake of ours.
    pub(super) fn leaf(&mut self, kind: Kind) -> Result<FuncId, String> {
        self.leaves.of_kind(self.object, kind)
    }

    /// The leaf with this code.
    ///
    /// # Errors
    /// What the object refuses, a mistake of ours.
    pub(super) fn add(
        &mut self,
        what: &str,
        code: Vec<u8>,
        listing: impl FnOnce(&[u8]) -> String,
    ) -> Result<FuncId, String> {
        self.leaves.add(self.object, what, code, listing)
    }
}

/// All leaves of an object so far.
#[derive(Default)]
pub(in crate::codegen::cpu) struct Leaves {
    kinds: BTreeMap<Kind, FuncId>,
    codes: BTreeMap<Vec<u8>, FuncId>,
    listings: bool,
    /// The tile IR that the next leaf is made from, for its listing.
    from: String,
    /// The listing of each leaf, where they are wanted.
    pub(in crate::codegen::cpu) texts: BTreeMap<FuncId, String>,
    /// The leaves that were asked for since this was emptied.
    pub(in crate::codegen::cpu) used: Vec<FuncId>,
}

impl Leaves {
    /// Where listings are wanted, says what tile IR the next leaf is made from.
    pub(in crate::codegen::cpu) fn next_is(&mut self, kernel: &Kernel, inst: Inst) {
        if self.listings {
            self.from = print_inst(kernel, inst);
        }
    }

    /// None yet. `listings`: is their text wanted?
    pub(in crate::codegen::cpu) fn new(listings: bool) -> Leaves {
        Leaves { listings, ..Leaves::default() }
    }

    /// The leaf of a kind.
    ///
    /// # Errors
    /// A form that cannot be encoded, a mistake of ours.
    fn of_kind(&mut self, object: &mut ObjectModule, kind: Kind) -> Result<FuncId, String> {
        if let Some(id) = self.kinds.get(&kind) {
            self.used.push(*id);
            return Ok(*id);
        }
        let (name, made) = match kind {
            Kind::Dot(level, shape) => (format!("dot.{}", level.name()), dot(level, shape, self.listings)?),
            Kind::Tiles(shape) => ("dot.amx".to_string(), tiles(shape, self.listings)?),
            Kind::PairRows(shape) => ("pair_rows".to_string(), pair_rows(shape, self.listings)?),
            Kind::Transpose(level, shape) => {
                (format!("transpose.{}", level.name()), transpose(level, shape, self.listings)?)
            }
        };
        let id = self.add(object, &name, made.0, |_| made.1)?;
        self.kinds.insert(kind, id);
        Ok(id)
    }

    /// The leaf with this code.
    ///
    /// # Errors
    /// What the object refuses, a mistake of ours.
    fn add(
        &mut self,
        object: &mut ObjectModule,
        what: &str,
        code: Vec<u8>,
        listing: impl FnOnce(&[u8]) -> String,
    ) -> Result<FuncId, String> {
        if let Some(id) = self.codes.get(&code) {
            self.used.push(*id);
            return Ok(*id);
        }
        let mut signature = object.make_signature();
        signature.params.push(AbiParam::new(types::I64));
        let name = format!("leaf.{what}.{}", self.codes.len());
        let id = object.declare_function(&name, Linkage::Local, &signature).map_err(|e| e.to_string())?;
        object.define_function_bytes(id, 64, &code, &[]).map_err(|e| format!("{name}: {e:?}"))?;
        if self.listings {
            let from: String = self.from.lines().map(|line| format!("  ; {line}\n")).collect();
            self.texts.insert(id, format!("{name}:\n{from}{}\n", listing(&code)));
        }
        self.codes.insert(code, id);
        self.used.push(id);
        Ok(id)
    }
}
