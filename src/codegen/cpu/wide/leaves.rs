//! The leaf functions of an object: each is made once and put into the object as bytes.
//!
//! In: the leaves that the functions of the object call ([`LeafCalls`]), each by its kind or its code. Out: the functions to
//! call. Two leaves with the same code become one.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_codegen::isa::CallConv;
use cranelift_module::{FuncId, Linkage, Module as _};
use cranelift_object::ObjectModule;

use super::super::origins::{Comments, Places};
use super::super::target::signature;
use super::amx::{TilesShape, tiles};
use super::dot::{DotShape, Right, dot};
use super::dot_group::{GroupShape, dot_group};
use super::pair_rows::{PairRowsShape, pair_rows};
use super::transpose::{TransposeShape, transpose};
use super::{Leaf, Stages};
use crate::threads;
use crate::tile::{Inst, Width};

/// Leaves that are named by what they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A product.
    Dot(Width, DotShape),
    /// Products of a few rows by several panels.
    DotGroup(Width, GroupShape),
    /// A product of tiles of `bf16`.
    Tiles(TilesShape),
    /// A transposition.
    Transpose(Width, TransposeShape),
    /// Rows of `bf16` side by side.
    PairRows(PairRowsShape),
}

impl Kind {
    /// For symbols.
    fn name(self) -> String {
        match self {
            Kind::Dot(_, shape) if shape.right == Right::Pairs => "dot.avx512bf16".to_string(),
            Kind::Dot(Width::V256, shape) if shape.groups => "dot.avx2vnni".to_string(),
            Kind::Dot(width, _) => format!("dot.{}", width.name()),
            Kind::DotGroup(width, _) => format!("dot_group.{}", width.name()),
            Kind::Tiles(_) => "dot.amx".to_string(),
            Kind::Transpose(width, _) => format!("transpose.{}", width.name()),
            Kind::PairRows(_) => "pair_rows".to_string(),
        }
    }

    /// Its bytes and, if wanted, comments on them.
    ///
    /// # Errors
    /// A form that cannot be encoded, a bug in attnc.
    fn make(self, commented: bool) -> Result<(Vec<u8>, Comments), String> {
        match self {
            Kind::Dot(width, shape) => dot(width, shape, commented),
            Kind::DotGroup(width, shape) => dot_group(width, shape, commented),
            Kind::Tiles(shape) => tiles(shape, commented),
            Kind::Transpose(width, shape) => transpose(width, shape, commented),
            Kind::PairRows(shape) => pair_rows(shape, commented),
        }
    }
}

/// A leaf that a function calls.
#[derive(Clone, Debug)]
enum Request {
    /// By what it does.
    Kind(Kind),
    /// By its code.
    Code {
        /// For symbols.
        name: String,
        /// The bytes.
        code: Vec<u8>,
        /// Where the code of each operation begins.
        places: Places,
        /// What the code was before, if what leaves come from is wanted.
        stages: Option<Box<Stages>>,
    },
}

impl Request {
    fn name(&self) -> String {
        match self {
            Request::Kind(kind) => kind.name(),
            Request::Code { name, .. } => name.clone(),
        }
    }
}

/// The leaves that a function calls, in the order in which it asked for them.
#[derive(Clone, Debug)]
pub(in crate::codegen::cpu) struct LeafCalls {
    /// Each with the operation that it is made from.
    list: Vec<(Request, Option<Inst>)>,
    /// The operations that have none, and why.
    declined: Vec<(Inst, String)>,
    origins: bool,
    now: Option<Inst>,
}

impl LeafCalls {
    /// None yet. `origins`: is it wanted what they are made from?
    pub(in crate::codegen::cpu) fn new(origins: bool) -> LeafCalls {
        LeafCalls { list: Vec::new(), declined: Vec::new(), origins, now: None }
    }

    /// Says what operation the next leaf is made from.
    pub(in crate::codegen::cpu) fn next_is(&mut self, inst: Inst) {
        self.now = Some(inst);
    }

    /// Notes an operation that has no leaf at a level that has leaves, and why.
    pub(in crate::codegen::cpu) fn decline(&mut self, inst: Inst, reason: String) {
        self.declined.push((inst, reason));
    }

    /// The operations that have no leaf, and why.
    pub(in crate::codegen::cpu) fn declined(&self) -> &[(Inst, String)] {
        &self.declined
    }

    /// Asks for the leaf of a kind; its place among those of the function.
    pub(super) fn of_kind(&mut self, kind: Kind) -> usize {
        self.ask(Request::Kind(kind))
    }

    /// Asks for the leaf with this code.
    pub(super) fn of_code(&mut self, leaf: Leaf) -> usize {
        let Leaf { name, code, places, stages, words: _ } = leaf;
        let stages = self.origins.then(|| Box::new(stages));
        self.ask(Request::Code { name, code, places, stages })
    }

    fn ask(&mut self, wanted: Request) -> usize {
        self.list.push((wanted, self.now));
        self.list.len() - 1
    }
}

/// What a leaf in the object comes from.
#[derive(Clone, Debug)]
pub(in crate::codegen::cpu) struct LeafOrigin {
    /// Its symbol.
    pub(in crate::codegen::cpu) name: String,
    /// The operation that it does, in the body of the first function that calls it.
    pub(in crate::codegen::cpu) inst: Inst,
    /// The functions that call it.
    pub(in crate::codegen::cpu) callers: Vec<FuncId>,
    /// Where the code of each part of the operation begins.
    pub(in crate::codegen::cpu) places: Places,
    /// What else is said of its code.
    pub(in crate::codegen::cpu) comments: Comments,
    /// What the code was before; `None` where its registers follow from its shape.
    pub(in crate::codegen::cpu) stages: Option<Box<Stages>>,
}

/// The leaves of an object.
pub(in crate::codegen::cpu) struct Leaves {
    /// The bytes of those that are named by what they do, and comments on them.
    kinds: BTreeMap<Kind, (Vec<u8>, Comments)>,
    /// Those that are in the object.
    defined: BTreeMap<Vec<u8>, FuncId>,
    /// What each that is in the object comes from, where that is wanted.
    pub(in crate::codegen::cpu) origins: BTreeMap<FuncId, LeafOrigin>,
}

impl Leaves {
    /// Makes what functions call, on several threads.
    ///
    /// # Errors
    /// A form that cannot be encoded, a bug in attnc.
    pub(in crate::codegen::cpu) fn make<'a>(
        calls: impl Iterator<Item = &'a LeafCalls>,
        threads: usize,
    ) -> Result<Leaves, String> {
        let (mut kinds, mut commented) = (BTreeSet::new(), false);
        for call in calls {
            commented |= call.origins;
            kinds.extend(call.list.iter().filter_map(|(wanted, _)| match wanted {
                Request::Kind(kind) => Some(*kind),
                Request::Code { .. } => None,
            }));
        }
        // The widest first: they are the longest.
        let made = threads::each(kinds.into_iter().rev(), threads, |kind| {
            let made = kind.make(commented).map_err(|e| format!("{}: {e}", kind.name()))?;
            Ok((kind, made))
        });
        let kinds = made.into_iter().collect::<Result<_, String>>()?;
        Ok(Leaves { kinds, defined: BTreeMap::new(), origins: BTreeMap::new() })
    }

    /// The functions of what a function calls, in its order; those that are not yet in the object are put there.
    ///
    /// # Errors
    /// What the object refuses, a bug in attnc.
    pub(in crate::codegen::cpu) fn define(
        &mut self,
        object: &mut ObjectModule,
        caller: FuncId,
        calls: LeafCalls,
    ) -> Result<Vec<FuncId>, String> {
        let convention = object.isa().default_call_conv();
        let mut ids = Vec::new();
        for (wanted, inst) in calls.list {
            let (code, comments) = match &wanted {
                Request::Kind(kind) => self.kinds.get(kind).map(|(code, c)| (code, c.as_slice())),
                Request::Code { code, .. } => Some((code, [].as_slice())),
            }
            .ok_or("a leaf that was not made")?;
            let id = match self.defined.get(code) {
                Some(id) => *id,
                None => {
                    let name = format!("leaf.{}.{}", wanted.name(), self.defined.len());
                    let id = put(object, &name, convention, code)?;
                    if let Some(inst) = inst.filter(|_| calls.origins) {
                        let comments = comments.to_vec();
                        let (places, stages) = match &wanted {
                            Request::Kind(_) => (Places::new(), None),
                            Request::Code { places, stages, .. } => (places.clone(), stages.clone()),
                        };
                        let origin = LeafOrigin { name, inst, callers: Vec::new(), places, comments, stages };
                        self.origins.insert(id, origin);
                    }
                    self.defined.insert(code.clone(), id);
                    id
                }
            };
            if let Some(origin) = self.origins.get_mut(&id)
                && !origin.callers.contains(&caller)
            {
                origin.callers.push(caller);
            }
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
