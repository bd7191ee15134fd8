//! A graph IR function under construction: instructions with source locations, limits on sizes and
//! lengths, and the checks to make on entry.

use std::collections::{BTreeMap, BTreeSet};

use super::trains::Trains;
use super::{LowerError, Res};
use crate::diagnostics::codes::{entries, shapes};
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::ir::requirements::{Length, is_too_large, lengths, too_large};
use crate::ir::{Block, BlockCall, Function, Loc, Op, Scalar, Terminator, Type, Value};
use crate::shape::{Dim, Elem, Fact, Relation, TensorType};
use crate::source::{FileId, SourceMap, Span};
use crate::types::typed::{FunctionId, LocalId, Program};

/// The most instructions that a function may have.
const MAX_INSTRUCTIONS: usize = 100_000;
/// The deepest nesting of calls, blocks and expressions.
const MAX_NESTING: usize = 4_000;

/// File numbers of source locations: 0 is the file of the model, the others are numbered in order
/// of first use.
#[derive(Default)]
pub(super) struct Files {
    main: Option<FileId>,
    others: Vec<FileId>,
}

impl Files {
    pub(super) fn new(main: FileId) -> Files {
        Files { main: Some(main), others: Vec::new() }
    }

    fn number(&mut self, file: FileId) -> u32 {
        if self.main == Some(file) {
            return 0;
        }
        let at = self.others.iter().position(|f| *f == file).unwrap_or_else(|| {
            self.others.push(file);
            self.others.len() - 1
        });
        at as u32 + 1
    }

    /// Base names of files 1, 2, ...
    pub(super) fn names(&self, sources: &SourceMap) -> Vec<String> {
        self.others.iter().map(|f| sources.get(*f).map_or(String::new(), |s| s.base_name().to_string())).collect()
    }
}

/// An enclosing loop.
#[derive(Clone)]
pub(super) struct Loop {
    /// The counter, if it is an index value (and not a scalar).
    pub(super) counter: Option<Value>,
    /// Start and end (exclusive), where both are functions of the dimensions.
    pub(super) range: Option<(Dim, Dim)>,
    /// Blocks that end with a `break` out of this loop, with the values of the carried variables
    /// there.
    pub(super) breaks: Vec<(Block, Vec<Value>)>,
    /// Variables declared outside of the loop that it assigns.
    pub(super) carried: Vec<LocalId>,
}

/// A state of the model while a function is built.
pub(super) struct State {
    pub(super) name: String,
    /// Value at the current insertion point.
    pub(super) value: Value,
    /// Value on entry to the function.
    pub(super) before: Value,
    /// Is it a parameter that a `train` changes?
    pub(super) is_parameter: bool,
}

/// A function under construction.
pub(super) struct Builder<'a> {
    pub(super) program: &'a Program,
    /// Source texts, for locations.
    pub(super) sources: &'a SourceMap,
    pub(super) diagnostics: &'a mut Diagnostics,
    pub(super) files: &'a mut Files,
    pub(super) f: Function,
    /// Insertion point.
    pub(super) block: Block,
    /// A `break` has left the code being built: nothing is emitted until the next reachable block.
    pub(super) has_left: bool,
    /// Enclosing loops, outermost first.
    pub(super) loops: Vec<Loop>,
    /// Functions being inlined, outermost first.
    pub(super) calls: Vec<FunctionId>,
    /// Taps are emitted (this is the tapped variant).
    pub(super) with_taps: bool,
    /// Paths of the taps seen so far, emitted or not.
    pub(super) taps: Vec<String>,
    /// Loop counters converted to scalars, cached per block and element type.
    pub(super) counters: BTreeMap<(Block, Value, Elem), Value>,
    pub(super) states: Vec<State>,
    /// The number of the next `counters`; each takes one for each iteration of the loops around it.
    pub(super) sites: Dim,
    /// The steps of each `train`.
    pub(super) trains: Trains,
    /// Dimension names in use.
    pub(super) taken: BTreeSet<String>,
    nesting: usize,
    instructions: usize,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        program: &'a Program,
        sources: &'a SourceMap,
        diagnostics: &'a mut Diagnostics,
        files: &'a mut Files,
        name: &str,
    ) -> Builder<'a> {
        let f = Function::new(name);
        let block = f.entry();
        Builder {
            program,
            sources,
            diagnostics,
            files,
            f,
            block,
            has_left: false,
            loops: Vec::new(),
            calls: Vec::new(),
            with_taps: false,
            taps: Vec::new(),
            counters: BTreeMap::new(),
            states: Vec::new(),
            sites: Dim::zero(),
            trains: Trains::new(),
            taken: BTreeSet::new(),
            nesting: 0,
            instructions: 0,
        }
    }

    /// Converts a span to an IR source location.
    pub(super) fn loc(&mut self, span: Span) -> Loc {
        let at = self.sources.line_column(span);
        Loc { file: self.files.number(span.file), line: at.line, column: at.column, ..Loc::default() }
    }

    /// Reports an error of the program.
    pub(super) fn report(&mut self, diagnostic: Diagnostic) -> LowerError {
        self.diagnostics.push(diagnostic);
        LowerError::Reported
    }

    /// An internal error at a source location.
    pub(super) fn bug(&mut self, span: Span, text: &str) -> LowerError {
        let at = self.sources.line_column(span);
        let file = self.sources.get(span.file).map_or("?", |f| f.base_name());
        LowerError::Bug(format!("{file}:{at}: {text}"))
    }

    /// Runs `f` one nesting level deeper.
    pub(super) fn nested<T>(&mut self, span: Span, f: impl FnOnce(&mut Self) -> Res<T>) -> Res<T> {
        if self.nesting >= MAX_NESTING {
            let message = "calls and expressions nest too deeply once the calls are inlined";
            return Err(self.report(Diagnostic::error(entries::PROGRAM_SIZE, message).at(span, "too deep here")));
        }
        self.nesting += 1;
        let result = f(self);
        self.nesting -= 1;
        result
    }

    /// Appends an instruction with a result. `declared` is its type where the operands do not
    /// determine it.
    pub(super) fn emit(&mut self, op: Op, operands: Vec<Value>, declared: Option<Type>, span: Span) -> Res<Value> {
        let loc = self.loc(span);
        self.count(span)?;
        self.check_reach(&op, &operands, span)?;
        match self.f.append(self.block, op, operands, declared, loc) {
            Ok(Some(value)) => {
                if let Type::Tensor(ty) = self.f.ty(value).clone() {
                    self.check_size(&ty, span)?;
                }
                Ok(value)
            }
            Ok(None) => Err(self.bug(span, "an operation without result is used as a value")),
            Err(complaint) => Err(self.bug(span, &complaint)),
        }
    }

    /// Appends an instruction without a result.
    pub(super) fn effect(&mut self, op: Op, operands: Vec<Value>, span: Span) -> Res<()> {
        let loc = self.loc(span);
        self.count(span)?;
        self.check_reach(&op, &operands, span)?;
        self.f.append(self.block, op, operands, None, loc).map_err(|complaint| self.bug(span, &complaint))?;
        Ok(())
    }

    fn count(&mut self, span: Span) -> Res<()> {
        self.instructions += 1;
        if self.instructions <= MAX_INSTRUCTIONS {
            return Ok(());
        }
        let message = format!("with its calls inlined, the entry point has more than {MAX_INSTRUCTIONS} operations");
        let diagnostic = Diagnostic::error(entries::PROGRAM_SIZE, message)
            .at(span, "reached here")
            .help("layers that are alike belong in an array of layers: a loop over it is inlined once");
        Err(self.report(diagnostic))
    }

    /// Rejects tensors larger than any machine could hold; sizes that depend on run-time dimensions
    /// are checked on entry.
    pub(super) fn check_size(&mut self, ty: &TensorType, span: Span) -> Res<()> {
        for dim in &ty.shape {
            match dim.as_const() {
                Some(n) if n >= 0 => {}
                None if !dim.is_const() => self.at_least_zero(dim, span),
                Some(_) | None => {
                    let message = format!("with the values that are bound, the tensor would be {ty}");
                    let diagnostic = Diagnostic::error(entries::BOUND_VALUE, message).at(span, "made here");
                    return Err(self.report(diagnostic.note("a dimension is an integer, 0 or more")));
                }
            }
        }
        if is_too_large(&ty.shape) {
            return Err(self.too_large(&format!("a tensor of type {ty} is too large"), span));
        }
        Ok(())
    }

    fn too_large(&mut self, message: &str, span: Span) -> LowerError {
        let diagnostic = Diagnostic::error(entries::TENSOR_SIZE, message).at(span, "made here");
        self.report(diagnostic.note("a tensor may have at most 2^40 elements"))
    }

    /// Rejects an operation whose intermediate sizes exceed what any machine could hold.
    fn check_reach(&mut self, op: &Op, operands: &[Value], span: Span) -> Res<()> {
        let types: Vec<&Type> = operands.iter().map(|v| self.f.ty(*v)).collect();
        match too_large(op, &types, None) {
            Some(message) => Err(self.too_large(&message, span)),
            None => Ok(()),
        }
    }

    /// Adds an entry check that a run-time dimension is not negative, unless its expression proves
    /// that.
    fn at_least_zero(&mut self, dim: &Dim, span: Span) {
        if dim.is_provably_nonnegative() {
            return;
        }
        let implied = |(fact, _): &(Fact, Loc)| {
            matches!(fact.relation, Relation::Le | Relation::Eq) && fact.right.sub(&fact.left) == *dim
        };
        if !self.f.checks.iter().any(implied) {
            self.require(Fact { left: Dim::zero(), relation: Relation::Le, right: dim.clone() }, span);
        }
    }

    /// Adds a fact to the entry checks.
    pub(super) fn require(&mut self, fact: Fact, span: Span) {
        // A bound that is checked where the dimension gets its value need not be checked again.
        let is_bound = |l: &Length<'_>| {
            fact.relation == Relation::Le && fact.left.as_symbol() == Some(l.name) && fact.right == *l.most
        };
        if fact.left.as_symbol().is_some() && lengths(&self.f).iter().any(is_bound) {
            return;
        }
        let loc = self.loc(span);
        if !self.f.checks.iter().any(|(known, _)| *known == fact) {
            self.f.checks.push((fact, loc));
        }
    }

    /// Ends the current block and continues in another one.
    pub(super) fn finish_block(&mut self, terminator: Terminator, next: Block) {
        self.f.terminate(self.block, terminator);
        self.block = next;
    }

    /// Adds a block with arguments typed like `values`.
    pub(super) fn block_like(&mut self, values: &[Value]) -> (Block, Vec<Value>) {
        let block = self.f.add_block();
        let types: Vec<Type> = values.iter().map(|v| self.f.ty(*v).clone()).collect();
        let args = types.into_iter().map(|ty| self.f.add_block_arg(block, ty)).collect();
        (block, args)
    }

    /// Moves a block to the end of the layout, where its code is about to be emitted.
    pub(super) fn place_last(&mut self, block: Block) {
        self.f.layout.retain(|b| *b != block);
        self.f.layout.push(block);
    }

    /// The type of a value that must be a tensor.
    pub(super) fn tensor(&mut self, value: Value, span: Span) -> Res<TensorType> {
        match self.f.tensor(value) {
            Some(ty) => Ok(ty.clone()),
            None => Err(self.bug(span, "an index is used as a tensor")),
        }
    }

    /// A scalar of an element type.
    pub(super) fn scalar(&mut self, value: Scalar, elem: Elem, span: Span) -> Res<Value> {
        self.splat(value, TensorType::scalar(elem), span)
    }

    /// A constant tensor.
    pub(super) fn splat(&mut self, value: Scalar, ty: TensorType, span: Span) -> Res<Value> {
        let out_of_range = |n: i64| match ty.elem {
            Elem::I8 => i8::try_from(n).is_err(),
            Elem::I32 => i32::try_from(n).is_err(),
            Elem::I64 | Elem::F32 | Elem::BF16 | Elem::F16 | Elem::Bool => false,
        };
        if let Scalar::Int(n) = value
            && out_of_range(n)
        {
            let message = format!("{n} is out of the range of `{}`", ty.elem);
            let diagnostic = Diagnostic::error(shapes::LITERAL, message).at(span, format!("`{}` here", ty.elem));
            return Err(self.report(diagnostic.help("convert it: `cast<i64>(..)`")));
        }
        let value = match ty.elem {
            Elem::F32 | Elem::BF16 | Elem::F16 => Scalar::Float(value.as_f64()),
            Elem::I8 | Elem::I32 | Elem::I64 => Scalar::Int(value.as_i64()),
            Elem::Bool => Scalar::Bool(value.as_i64() != 0),
        };
        self.emit(Op::Const(value), Vec::new(), Some(Type::Tensor(ty)), span)
    }

    /// An index value equal to a dimension.
    pub(super) fn index(&mut self, dim: &Dim, span: Span) -> Res<Value> {
        let op = match dim.as_const() {
            Some(n) => Op::Const(Scalar::Int(n)),
            None => Op::DimValue(dim.clone()),
        };
        self.emit(op, Vec::new(), Some(Type::Index), span)
    }

    /// Reshapes; a no-op if the shape is the same.
    pub(super) fn reshape(&mut self, x: Value, shape: Vec<Dim>, span: Span) -> Res<Value> {
        let ty = self.tensor(x, span)?;
        if ty.shape == shape {
            return Ok(x);
        }
        self.emit(Op::Reshape, vec![x], Some(Type::Tensor(TensorType::new(ty.elem, shape))), span)
    }

    /// Permutes axes; a no-op for the identity.
    pub(super) fn transpose(&mut self, x: Value, perm: Vec<usize>, span: Span) -> Res<Value> {
        if perm.iter().enumerate().all(|(i, p)| i == *p) {
            return Ok(x);
        }
        self.emit(Op::Transpose { perm }, vec![x], None, span)
    }

    /// Broadcasts to a larger shape; a no-op if the shape is the same.
    pub(super) fn broadcast(&mut self, x: Value, shape: Vec<Dim>, span: Span) -> Res<Value> {
        let ty = self.tensor(x, span)?;
        if ty.shape == shape {
            return Ok(x);
        }
        self.emit(Op::Broadcast, vec![x], Some(Type::Tensor(TensorType::new(ty.elem, shape))), span)
    }

    /// Converts to an element type; a no-op if it is the same.
    pub(super) fn cast(&mut self, x: Value, elem: Elem, span: Span) -> Res<Value> {
        if self.tensor(x, span)?.elem == elem {
            return Ok(x);
        }
        self.emit(Op::Cast { elem }, vec![x], None, span)
    }

    /// Elements `start..stop` along an axis; a no-op if that is the whole axis.
    pub(super) fn slice(&mut self, x: Value, axis: usize, start: Dim, stop: Dim, span: Span) -> Res<Value> {
        let ty = self.tensor(x, span)?;
        if start == Dim::zero() && ty.shape.get(axis) == Some(&stop) {
            return Ok(x);
        }
        self.emit(Op::Slice { axis, start, stop }, vec![x], None, span)
    }

    /// The element at an index that is a function of the dimensions; removes the axis.
    pub(super) fn element(&mut self, x: Value, axis: usize, at: &Dim, span: Span) -> Res<Value> {
        let part = self.slice(x, axis, at.clone(), at.add(&Dim::one()), span)?;
        let mut shape = self.tensor(part, span)?.shape;
        if axis < shape.len() {
            shape.remove(axis);
        }
        self.reshape(part, shape, span)
    }

    pub(super) fn to(block: Block, args: Vec<Value>) -> BlockCall {
        BlockCall { block, args }
    }
}
