//! The leaf functions of an object: each is generated once and defined as bytes.
//!
//! In: the leaves that the functions of the object call ([`LeafCalls`]), by kind or by code. Out:
//! the functions to call. Leaves with the same code are merged.

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

/// Leaves identified by operation and layout, generated on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LeafKind {
    Dot(Width, DotShape),
    /// A few rows by several panels.
    DotGroup(Width, GroupShape),
    /// A `bf16` matmul with AMX.
    Tiles(TilesShape),
    Transpose(Width, TransposeShape),
    /// `pair_rows`.
    PairRows(PairRowsShape),
}

impl LeafKind {
    fn name(self) -> String {
        match self {
            LeafKind::Dot(_, shape) if shape.right == Right::Pairs => "dot.avx512bf16".to_string(),
            LeafKind::Dot(Width::V256, shape) if shape.groups => "dot.avx2vnni".to_string(),
            LeafKind::Dot(width, _) => format!("dot.{}", width.name()),
            LeafKind::DotGroup(width, _) => format!("dot_group.{}", width.name()),
            LeafKind::Tiles(_) => "dot.amx".to_string(),
            LeafKind::Transpose(width, _) => format!("transpose.{}", width.name()),
            LeafKind::PairRows(_) => "pair_rows".to_string(),
        }
    }

    /// Generates the code and, if requested, comments.
    ///
    /// # Errors
    /// A form that cannot be encoded, a bug in attnc.
    fn make(self, commented: bool) -> Result<(Vec<u8>, Comments), String> {
        match self {
            LeafKind::Dot(width, shape) => dot(width, shape, commented),
            LeafKind::DotGroup(width, shape) => dot_group(width, shape, commented),
            LeafKind::Tiles(shape) => tiles(shape, commented),
            LeafKind::Transpose(width, shape) => transpose(width, shape, commented),
            LeafKind::PairRows(shape) => pair_rows(shape, commented),
        }
    }
}

/// A leaf that a function calls.
#[derive(Clone, Debug)]
enum Request {
    /// By operation and layout.
    LeafKind(LeafKind),
    Code {
        name: String,
        /// The code, constants included.
        code: Vec<u8>,
        /// Offset at which the code of each operation begins.
        places: Places,
        /// Earlier stages of the code, if origins are recorded.
        stages: Option<Box<Stages>>,
    },
}

impl Request {
    fn name(&self) -> String {
        match self {
            Request::LeafKind(kind) => kind.name(),
            Request::Code { name, .. } => name.clone(),
        }
    }
}

/// The leaves that a function calls, in the order of its requests.
#[derive(Clone, Debug)]
pub(in crate::codegen::cpu) struct LeafCalls {
    /// Each with the operation that it computes.
    list: Vec<(Request, Option<Inst>)>,
    /// Operations without a leaf, and why.
    declined: Vec<(Inst, String)>,
    origins: bool,
    now: Option<Inst>,
}

impl LeafCalls {
    /// No leaves yet. `origins`: are their origins recorded?
    pub(in crate::codegen::cpu) fn new(origins: bool) -> LeafCalls {
        LeafCalls { list: Vec::new(), declined: Vec::new(), origins, now: None }
    }

    /// Sets the operation that the next leaf computes.
    pub(in crate::codegen::cpu) fn next_is(&mut self, inst: Inst) {
        self.now = Some(inst);
    }

    /// Records an operation without a leaf, on an instruction set that has leaves, and why.
    pub(in crate::codegen::cpu) fn decline(&mut self, inst: Inst, reason: String) {
        self.declined.push((inst, reason));
    }

    /// Operations without a leaf, and why.
    pub(in crate::codegen::cpu) fn declined(&self) -> &[(Inst, String)] {
        &self.declined
    }

    /// Requests the leaf of a kind; returns its index.
    pub(super) fn of_kind(&mut self, kind: LeafKind) -> usize {
        self.ask(Request::LeafKind(kind))
    }

    /// Requests a leaf with given code; returns its index.
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

/// The origin of a leaf in the object.
#[derive(Clone, Debug)]
pub(in crate::codegen::cpu) struct LeafOrigin {
    pub(in crate::codegen::cpu) name: String,
    /// The operation that it computes, in the body of the first function that calls it.
    pub(in crate::codegen::cpu) inst: Inst,
    /// The functions that call it.
    pub(in crate::codegen::cpu) callers: Vec<FuncId>,
    /// Offset at which the code of each part of the operation begins.
    pub(in crate::codegen::cpu) places: Places,
    /// Comments of its generator.
    pub(in crate::codegen::cpu) comments: Comments,
    /// Earlier stages of the code; `None` for leaves generated without virtual registers.
    pub(in crate::codegen::cpu) stages: Option<Box<Stages>>,
}

/// The leaves of an object.
pub(in crate::codegen::cpu) struct Leaves {
    /// Code and comments of the leaves identified by kind.
    kinds: BTreeMap<LeafKind, (Vec<u8>, Comments)>,
    /// Leaves already defined in the object, by code.
    defined: BTreeMap<Vec<u8>, FuncId>,
    /// Origins of the defined leaves, if recorded.
    pub(in crate::codegen::cpu) origins: BTreeMap<FuncId, LeafOrigin>,
}

impl Leaves {
    /// Generates the leaves that functions call, on several threads.
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
                Request::LeafKind(kind) => Some(*kind),
                Request::Code { .. } => None,
            }));
        }
        // The widest first: they take longest.
        let made = threads::each(kinds.into_iter().rev(), threads, |kind| {
            let made = kind.make(commented).map_err(|e| format!("{}: {e}", kind.name()))?;
            Ok((kind, made))
        });
        let kinds = made.into_iter().collect::<Result<_, String>>()?;
        Ok(Leaves { kinds, defined: BTreeMap::new(), origins: BTreeMap::new() })
    }

    /// Function ids of the leaves that a function calls, in its order; defines the missing ones.
    ///
    /// # Errors
    /// The error of the object writer, a bug in attnc.
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
                Request::LeafKind(kind) => self.kinds.get(kind).map(|(code, c)| (code, c.as_slice())),
                Request::Code { code, .. } => Some((code, [].as_slice())),
            }
            .ok_or("a leaf that was not generated")?;
            let id = match self.defined.get(code) {
                Some(id) => *id,
                None => {
                    let name = format!("leaf.{}.{}", wanted.name(), self.defined.len());
                    let id = put(object, &name, convention, code)?;
                    if let Some(inst) = inst.filter(|_| calls.origins) {
                        let comments = comments.to_vec();
                        let (places, stages) = match &wanted {
                            Request::LeafKind(_) => (Places::new(), None),
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

/// Defines a leaf in an object.
fn put(object: &mut ObjectModule, name: &str, convention: CallConv, code: &[u8]) -> Result<FuncId, String> {
    let id =
        object.declare_function(name, Linkage::Local, &signature(convention, 1, false)).map_err(|e| e.to_string())?;
    object.define_function_bytes(id, 64, code, &[]).map_err(|e| format!("{name}: {e:?}"))?;
    Ok(id)
}
