//! One function of the graph IR under construction: instructions with their places, the limits on sizes and lengths,
//! and what must be checked on entry.

use std::collections::{BTreeMap, BTreeSet};

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

/// The numbers that places use for files: 0 is the file of the model, the others in order of first use.
#[derive(Default)]
pub(super) struct Files {
    main: Option<FileId>,
    others: Vec<FileId>,
}

impl Files {
    /// With the file of the model.
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

    /// Base names of the other files.
    pub(super) fn names(&self, sources: &SourceMap) -> Vec<String> {
        self.others.iter().map(|f| sources.get(*f).map_or(String::new(), |s| s.base_name().to_string())).collect()
    }
}

/// A loop around the place where instructions are made.
#[derive(Clone)]
pub(super) struct Loop {
    /// The counter, if it is an index.
    pub(super) counter: Option<Value>,
    /// First value and one past the last, where they are known from the dimensions.
    pub(super) range: Option<(Dim, Dim)>,
    /// The blocks that end with a `break` of it, each with what the loop's variables are there.
    pub(super) breaks: Vec<(Block, Vec<Value>)>,
    /// The variables from outside that it assigns.
    pub(super) carried: Vec<LocalId>,
}

/// A state of the model while a function is made.
pub(super) struct State {
    /// Its name.
    pub(super) name: String,
    /// What it is where instructions are made.
    pub(super) value: Value,
    /// What it was when the call began.
    pub(super) before: Value,
}

/// A function under construction.
pub(super) struct Builder<'a> {
    /// The program.
    pub(super) program: &'a Program,
    /// The texts, for places.
    pub(super) sources: &'a SourceMap,
    /// Where errors go.
    pub(super) diagnostics: &'a mut Diagnostics,
    /// Numbers of files.
    pub(super) files: &'a mut Files,
    /// The function.
    pub(super) f: Function,
    /// Where instructions go.
    pub(super) block: Block,
    /// Has control left the code being made, by a `break`? Then nothing more is made until a block that is reached.
    pub(super) has_left: bool,
    /// The loops around, outermost first.
    pub(super) loops: Vec<Loop>,
    /// The functions being inlined, outermost first.
    pub(super) calls: Vec<FunctionId>,
    /// Are taps kept?
    pub(super) with_taps: bool,
    /// The taps seen so far, whether kept or not.
    pub(super) taps: Vec<String>,
    /// Scalars of loop counters made in blocks, so that each is made once for each block.
    pub(super) counters: BTreeMap<(Block, Value, Elem), Value>,
    /// The states of the model.
    pub(super) states: Vec<State>,
    /// The names that dimensions have already.
    pub(super) taken: BTreeSet<String>,
    nesting: usize,
    instructions: usize,
}

impl<'a> Builder<'a> {
    /// A function without instructions.
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
            taken: BTreeSet::new(),
            nesting: 0,
            instructions: 0,
        }
    }

    /// A place in the IR's terms.
    pub(super) fn loc(&mut self, span: Span) -> Loc {
        let at = self.sources.line_column(span);
        Loc { file: self.files.number(span.file), line: at.line, column: at.column }
    }

    /// Reports an error of the program.
    pub(super) fn report(&mut self, diagnostic: Diagnostic) -> LowerError {
        self.diagnostics.push(diagnostic);
        LowerError::Reported
    }

    /// A mistake of the compiler at a place.
    pub(super) fn bug(&mut self, span: Span, text: &str) -> LowerError {
        let at = self.sources.line_column(span);
        let file = self.sources.get(span.file).map_or("?", |f| f.base_name());
        LowerError::Bug(format!("{file}:{at}: {text}"))
    }

    /// Goes one level deeper for the time of `f`.
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

    /// Appends an instruction with a result; `declared` where the operands do not fix its type.
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

    /// Refuses what no machine could hold; what depends on the call is checked on its entry.
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

    /// Refuses an operation that reaches beyond what any machine could hold.
    fn check_reach(&mut self, op: &Op, operands: &[Value], span: Span) -> Res<()> {
        let types: Vec<&Type> = operands.iter().map(|v| self.f.ty(*v)).collect();
        match too_large(op, &types, None) {
            Some(message) => Err(self.too_large(&message, span)),
            None => Ok(()),
        }
    }

    /// Adds a check on entry that a run-time dimension is not negative, where its form does not show it.
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

    /// Adds a fact to the checks on entry.
    pub(super) fn require(&mut self, fact: Fact, span: Span) {
        // What is checked where a dimension has its value is no news.
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

    /// A block that replaces the last one in the order, with arguments of the types of `values`.
    pub(super) fn block_like(&mut self, values: &[Value]) -> (Block, Vec<Value>) {
        let block = self.f.add_block();
        let types: Vec<Type> = values.iter().map(|v| self.f.ty(*v).clone()).collect();
        let args = types.into_iter().map(|ty| self.f.add_block_arg(block, ty)).collect();
        (block, args)
    }

    /// Moves a block to the end of the order, where its code is about to be made.
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

    /// An index with the value of a dimension.
    pub(super) fn index(&mut self, dim: &Dim, span: Span) -> Res<Value> {
        let op = match dim.as_const() {
            Some(n) => Op::Const(Scalar::Int(n)),
            None => Op::DimValue(dim.clone()),
        };
        self.emit(op, Vec::new(), Some(Type::Index), span)
    }

    /// The same elements under another shape; nothing where it is the same.
    pub(super) fn reshape(&mut self, x: Value, shape: Vec<Dim>, span: Span) -> Res<Value> {
        let ty = self.tensor(x, span)?;
        if ty.shape == shape {
            return Ok(x);
        }
        self.emit(Op::Reshape, vec![x], Some(Type::Tensor(TensorType::new(ty.elem, shape))), span)
    }

    /// Axes in another order; nothing where it is the same.
    pub(super) fn transpose(&mut self, x: Value, perm: Vec<usize>, span: Span) -> Res<Value> {
        if perm.iter().enumerate().all(|(i, p)| i == *p) {
            return Ok(x);
        }
        self.emit(Op::Transpose { perm }, vec![x], None, span)
    }

    /// Repeated to a larger shape; nothing where it is the same.
    pub(super) fn broadcast(&mut self, x: Value, shape: Vec<Dim>, span: Span) -> Res<Value> {
        let ty = self.tensor(x, span)?;
        if ty.shape == shape {
            return Ok(x);
        }
        self.emit(Op::Broadcast, vec![x], Some(Type::Tensor(TensorType::new(ty.elem, shape))), span)
    }

    /// Conversion to an element type; nothing where it is the same.
    pub(super) fn cast(&mut self, x: Value, elem: Elem, span: Span) -> Res<Value> {
        if self.tensor(x, span)?.elem == elem {
            return Ok(x);
        }
        self.emit(Op::Cast { elem }, vec![x], None, span)
    }

    /// Elements `start..stop` along an axis; nothing where these are all.
    pub(super) fn slice(&mut self, x: Value, axis: usize, start: Dim, stop: Dim, span: Span) -> Res<Value> {
        let ty = self.tensor(x, span)?;
        if start == Dim::zero() && ty.shape.get(axis) == Some(&stop) {
            return Ok(x);
        }
        self.emit(Op::Slice { axis, start, stop }, vec![x], None, span)
    }

    /// The element at a place known from the dimensions, the axis gone.
    pub(super) fn element(&mut self, x: Value, axis: usize, at: &Dim, span: Span) -> Res<Value> {
        let part = self.slice(x, axis, at.clone(), at.add(&Dim::one()), span)?;
        let mut shape = self.tensor(part, span)?.shape;
        if axis < shape.len() {
            shape.remove(axis);
        }
        self.reshape(part, shape, span)
    }

    /// A jump.
    pub(super) fn to(block: Block, args: Vec<Value>) -> BlockCall {
        BlockCall { block, args }
    }
}
