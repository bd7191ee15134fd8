//! Scope of a function while it is inlined: its layer's position in the model, its dimensions and
//! its variables.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::ir::{Scalar, Value};
use crate::shape::Dim;
use crate::types::typed::{Function, LayerId, LocalId};

/// The value of a variable or an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Local {
    Tensor(Value),
    /// The counter of a loop: an index.
    Counter(Value),
    Tuple(Vec<Local>),
}

impl Local {
    pub(super) fn unit() -> Local {
        Local::Tuple(Vec::new())
    }
}

/// Scope of a function being inlined.
pub(super) struct Frame<'a> {
    pub(super) function: &'a Function,
    /// The instance of the layer that it is a method of.
    pub(super) place: Option<Rc<LayerInstance>>,
    /// Dimensions in scope, as expressions over the run-time dimensions of the entry point.
    pub(super) dims: BTreeMap<String, Dim>,
    pub(super) constants: BTreeMap<String, Scalar>,
    /// The axes of `..`.
    pub(super) rest: Vec<Dim>,
    /// Indexed by [`LocalId`].
    pub(super) locals: Vec<Option<Local>>,
}

impl<'a> Frame<'a> {
    pub(super) fn new(function: &'a Function, place: Option<Rc<LayerInstance>>) -> Frame<'a> {
        let (dims, constants) = place.as_ref().map(|p| (p.dims.clone(), p.constants.clone())).unwrap_or_default();
        Frame { function, place, dims, constants, rest: Vec::new(), locals: vec![None; function.locals.len()] }
    }

    pub(super) fn local(&self, id: LocalId) -> Option<&Local> {
        self.locals.get(id.0 as usize)?.as_ref()
    }

    pub(super) fn set(&mut self, id: LocalId, value: Local) {
        if let Some(slot) = self.locals.get_mut(id.0 as usize) {
            *slot = Some(value);
        }
    }
}

/// A layer at its position in the model.
#[derive(Clone, Debug)]
pub(super) struct LayerInstance {
    pub(super) layer: LayerId,
    pub(super) dims: BTreeMap<String, Dim>,
    pub(super) constants: BTreeMap<String, Scalar>,
    /// Its path in the weights file, `*` for each index; empty for the model.
    pub(super) path: String,
    /// The operands for each `*` of the path.
    pub(super) indices: Vec<Value>,
    /// The lengths of these arrays.
    pub(super) lengths: Vec<Dim>,
    /// Its path in the program, for taps: `*` where the index is not known here.
    pub(super) tap_path: String,
    /// The operands for each `*` of the tap path, each with the length of its array.
    pub(super) tap_indices: Vec<(Value, Dim)>,
}

impl LayerInstance {
    pub(super) fn model(
        layer: LayerId,
        dims: BTreeMap<String, Dim>,
        constants: BTreeMap<String, Scalar>,
    ) -> LayerInstance {
        LayerInstance {
            layer,
            dims,
            constants,
            path: String::new(),
            indices: Vec::new(),
            lengths: Vec::new(),
            tap_path: String::new(),
            tap_indices: Vec::new(),
        }
    }
}
