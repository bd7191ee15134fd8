//! What a function sees while it is inlined: its layer's place in the model, its dimensions, its variables.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::ir::{Scalar, Value};
use crate::shape::Dim;
use crate::types::typed::{Function, LayerId, LocalId};

/// What a variable or an expression is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Local {
    /// A tensor.
    Tensor(Value),
    /// The counter of a loop: an index.
    Counter(Value),
    /// Several values.
    Tuple(Vec<Local>),
}

impl Local {
    /// No value.
    pub(super) fn unit() -> Local {
        Local::Tuple(Vec::new())
    }
}

/// A function while it is inlined: its names and variables.
pub(super) struct Frame<'a> {
    /// The function.
    pub(super) function: &'a Function,
    /// Where its layer is.
    pub(super) place: Option<Rc<LayerInstance>>,
    /// Every dimension in scope, over the run-time dimensions of the entry point.
    pub(super) dims: BTreeMap<String, Dim>,
    /// Every generic constant in scope.
    pub(super) constants: BTreeMap<String, Scalar>,
    /// What `..` stands for.
    pub(super) rest: Vec<Dim>,
    /// The variables, by id.
    pub(super) locals: Vec<Option<Local>>,
}

impl<'a> Frame<'a> {
    /// A function whose variables have no values yet.
    pub(super) fn new(function: &'a Function, place: Option<Rc<LayerInstance>>) -> Frame<'a> {
        let (dims, constants) = place.as_ref().map(|p| (p.dims.clone(), p.constants.clone())).unwrap_or_default();
        Frame { function, place, dims, constants, rest: Vec::new(), locals: vec![None; function.locals.len()] }
    }

    /// The value of a variable.
    pub(super) fn local(&self, id: LocalId) -> Option<&Local> {
        self.locals.get(id.0 as usize)?.as_ref()
    }

    /// Gives a variable its value.
    pub(super) fn set(&mut self, id: LocalId, value: Local) {
        if let Some(slot) = self.locals.get_mut(id.0 as usize) {
            *slot = Some(value);
        }
    }
}

/// A layer at its place in the model.
#[derive(Clone, Debug)]
pub(super) struct LayerInstance {
    /// The layer.
    pub(super) layer: LayerId,
    /// Its generic dimensions.
    pub(super) dims: BTreeMap<String, Dim>,
    /// Its generic constants.
    pub(super) constants: BTreeMap<String, Scalar>,
    /// Its path in the weights file, `*` for each index; empty for the model.
    pub(super) path: String,
    /// The operands for each `*` of the path.
    pub(super) indices: Vec<Value>,
    /// Its path in the program, for taps: `*` where the index is not known here.
    pub(super) tap_path: String,
    /// The operands for each `*` of the tap path, each with the length of its array.
    pub(super) tap_indices: Vec<(Value, Dim)>,
}

impl LayerInstance {
    /// The model itself.
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
            tap_path: String::new(),
            tap_indices: Vec::new(),
        }
    }
}
