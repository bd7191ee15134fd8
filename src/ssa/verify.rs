//! Checks of every body, whatever its operations: structure, dominance, jumps.
//!
//! In: a body, possibly invalid, and the values defined outside of its blocks. Out: all errors,
//! with locations. There are two phases: dominators are meaningless if the [`structure`] is
//! invalid, so [`uses`] requires a valid structure. Each IR checks the rules of its own operations.

use cranelift_entity::SecondaryMap;

use super::{Block, Body, Dialect, Inst, Terminator, Value, ValueDef};
use crate::cfg::Cfg;

/// Location of an error in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorLocation {
    /// The body as a whole: the head of its text.
    Head,
    /// The head of a block.
    Block(Block),
    /// At an instruction.
    Inst(Inst),
    /// The terminator of a block.
    Terminator(Block),
}

/// A position: block, index in the block (0 for its arguments), index in the holding instruction (0
/// if not nested).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The block that contains it.
    pub block: Block,
    /// Index of the instruction in the block, from 1; 0 before all.
    pub place: usize,
    /// Index in the holding instruction, from 1; 0 if not nested.
    pub inner: usize,
}

/// Definitions of all values of a body.
pub struct Definitions {
    at: SecondaryMap<Value, Option<Position>>,
    holder: SecondaryMap<Value, Option<Inst>>,
}

impl Definitions {
    /// The instruction that holds a value's nested definition, if any.
    pub fn holder(&self, v: Value) -> Option<Inst> {
        self.holder[v]
    }

    /// Is a value defined on every path to a position? At unreachable positions, every value is.
    pub fn is_visible(&self, cfg: &Cfg<Block>, v: Value, from: Position) -> bool {
        match self.at[v] {
            Some(at) if at.block == from.block => (at.place, at.inner) < (from.place, from.inner),
            Some(at) => !cfg.is_reachable(from.block) || cfg.dominates(at.block, from.block),
            None => false,
        }
    }
}

/// Checks that blocks, instructions, values and jumps exist, that each occurs once, and that every
/// used value is defined. `given`: the values defined outside of the blocks. Returns all
/// definitions.
pub fn structure<D: Dialect>(
    body: &Body<D>,
    given: impl IntoIterator<Item = Value>,
    complain: &mut dyn FnMut(ErrorLocation, String),
) -> Definitions {
    let mut s = Structure {
        body,
        definitions: Definitions { at: SecondaryMap::new(), holder: SecondaryMap::new() },
        blocks: SecondaryMap::new(),
        insts: SecondaryMap::new(),
        complain,
    };
    if body.layout.is_empty() {
        s.error(ErrorLocation::Head, "there is no block");
        return s.definitions;
    }
    for v in given.into_iter().filter(|v| body.has_value(*v)) {
        s.definitions.at[v] = Some(Position { block: body.entry(), place: 0, inner: 0 });
    }
    for b in &body.layout {
        if !body.has_block(*b) {
            s.error(ErrorLocation::Head, format!("the layout names {b}, which is not a block"));
        } else if std::mem::replace(&mut s.blocks[*b], true) {
            s.error(ErrorLocation::Block(*b), "the block is in the layout twice");
        } else {
            s.block(*b);
        }
    }
    for b in body.layout.iter().filter(|b| body.has_block(**b)) {
        s.jumps(*b);
        s.undefined(*b);
    }
    s.definitions
}

struct Structure<'a, D: Dialect> {
    body: &'a Body<D>,
    definitions: Definitions,
    /// The blocks of the layout.
    blocks: SecondaryMap<Block, bool>,
    /// The instructions in the body.
    insts: SecondaryMap<Inst, bool>,
    complain: &'a mut dyn FnMut(ErrorLocation, String),
}

impl<D: Dialect> Structure<'_, D> {
    fn error(&mut self, at: ErrorLocation, message: impl Into<String>) {
        (self.complain)(at, message.into());
    }

    fn block(&mut self, b: Block) {
        let data = self.body.block(b);
        for (k, v) in data.args.iter().enumerate() {
            if self.body.has_value(*v) && self.body.def(*v) == ValueDef::Arg(b, k) {
                self.definitions.at[*v] = Some(Position { block: b, place: 0, inner: 0 });
            } else {
                self.error(ErrorLocation::Block(b), format!("argument {k} is a value of something else"));
            }
        }
        for (k, i) in data.insts.iter().enumerate() {
            if !self.inst(*i, Position { block: b, place: k + 1, inner: 0 }, None) {
                continue;
            }
            for (m, held) in D::inner(&self.body.inst(*i).op).iter().enumerate() {
                let known = self.inst(*held, Position { block: b, place: k + 1, inner: m + 1 }, Some(*i));
                if known && !D::inner(&self.body.inst(*held).op).is_empty() {
                    let name = D::name(&self.body.inst(*i).op);
                    self.error(ErrorLocation::Inst(*i), format!("a `{name}` in a `{name}`"));
                }
            }
        }
    }

    /// Records an instruction and its result; false if it does not exist.
    fn inst(&mut self, i: Inst, at: Position, holder: Option<Inst>) -> bool {
        if !self.body.has_inst(i) || std::mem::replace(&mut self.insts[i], true) {
            let place = if holder.is_some() { at.inner } else { at.place };
            self.error(
                ErrorLocation::Block(at.block),
                format!("instruction {} does not exist, or is in two blocks", place - 1),
            );
            return false;
        }
        match self.body.inst(i).result {
            Some(v) if self.body.has_value(v) && self.body.def(v) == ValueDef::Result(i) => {
                self.definitions.at[v] = Some(at);
                self.definitions.holder[v] = holder;
            }
            None => {}
            Some(_) => self.error(ErrorLocation::Inst(i), "the result is a value of something else"),
        }
        true
    }

    fn jumps(&mut self, b: Block) {
        for c in self.body.block(b).terminator.targets() {
            if !self.body.has_block(c.block) || !self.blocks[c.block] {
                self.error(ErrorLocation::Terminator(b), "the jump goes to no block of the layout");
            } else if c.block == self.body.entry() {
                self.error(ErrorLocation::Terminator(b), "the entry cannot be the target of a jump");
            }
        }
    }

    /// Reports uses of undefined values.
    fn undefined(&mut self, b: Block) {
        let body = self.body;
        let data = body.block(b);
        let mut nowhere = Vec::new();
        for arg in data.args.iter().filter(|v| body.has_value(**v)) {
            D::for_each_value_of_type(body.ty(*arg), &mut |v| {
                if self.definitions.at[v].is_none() {
                    nowhere.push((ErrorLocation::Block(b), "what bounds an extent is defined nowhere".to_string()));
                }
            });
        }
        for i in data.insts.iter().filter(|i| body.has_inst(**i)).flat_map(|i| body.with_inner(*i)) {
            if !body.has_inst(i) {
                continue;
            }
            for (n, v) in body.inst(i).operands.iter().enumerate() {
                if self.definitions.at[*v].is_none() {
                    nowhere.push((ErrorLocation::Inst(i), format!("operand {} is defined nowhere", n + 1)));
                }
            }
            for_each_bound(body, i, &mut |v| {
                if self.definitions.at[v].is_none() {
                    nowhere.push((ErrorLocation::Inst(i), "what bounds an extent is defined nowhere".to_string()));
                }
            });
        }
        let mut count = 0;
        data.terminator.for_each_value(|v| count += usize::from(self.definitions.at[v].is_none()));
        if count > 0 {
            nowhere.push((ErrorLocation::Terminator(b), format!("{count} of the values are defined nowhere")));
        }
        for (at, message) in nowhere {
            self.error(at, message);
        }
    }
}

/// Calls `f` on the values that an instruction's attributes and result type refer to.
fn for_each_bound<D: Dialect>(body: &Body<D>, i: Inst, f: &mut dyn FnMut(Value)) {
    let data = body.inst(i);
    D::for_each_value_of_op(&data.op, f);
    if let Some(v) = data.result.filter(|v| body.has_value(*v)) {
        D::for_each_value_of_type(body.ty(v), f);
    }
}

/// Checks that definitions dominate uses (except in unreachable blocks), jumps match their targets'
/// arguments, and conditions are booleans.
pub fn uses<D: Dialect>(
    body: &Body<D>,
    definitions: &Definitions,
    cfg: &Cfg<Block>,
    complain: &mut dyn FnMut(ErrorLocation, String),
) {
    for b in &body.layout {
        let data = body.block(*b);
        let before = Position { block: *b, place: 0, inner: 0 };
        for arg in &data.args {
            // Values in an argument's type must be defined before the block begins.
            D::for_each_value_of_type(body.ty(*arg), &mut |v| {
                if !definitions.is_visible(cfg, v, before) {
                    complain(
                        ErrorLocation::Block(*b),
                        "the definition of an extent's bound does not dominate it".to_string(),
                    );
                }
            });
        }
        for (k, i) in data.insts.iter().enumerate() {
            for (m, i) in body.with_inner(*i).enumerate() {
                let from = Position { block: *b, place: k + 1, inner: m };
                for (n, v) in body.inst(i).operands.iter().enumerate() {
                    if !definitions.is_visible(cfg, *v, from) {
                        complain(
                            ErrorLocation::Inst(i),
                            format!("the definition of operand {} does not dominate it", n + 1),
                        );
                    }
                }
                for_each_bound(body, i, &mut |v| {
                    if !definitions.is_visible(cfg, v, from) {
                        complain(
                            ErrorLocation::Inst(i),
                            "the definition of an extent's bound does not dominate it".to_string(),
                        );
                    }
                });
            }
        }
        terminator(body, *b, definitions, cfg, complain);
    }
}

fn terminator<D: Dialect>(
    body: &Body<D>,
    b: Block,
    definitions: &Definitions,
    cfg: &Cfg<Block>,
    complain: &mut dyn FnMut(ErrorLocation, String),
) {
    let t = &body.block(b).terminator;
    let end = Position { block: b, place: usize::MAX, inner: 0 };
    let mut hidden = 0;
    t.for_each_value(|v| hidden += usize::from(!definitions.is_visible(cfg, v, end)));
    if hidden > 0 {
        complain(ErrorLocation::Terminator(b), format!("the definitions of {hidden} of the values do not dominate it"));
    }
    for c in t.targets() {
        let args = &body.block(c.block).args;
        if args.len() != c.args.len() {
            let message = format!("the target has {} arguments, the jump gives {}", args.len(), c.args.len());
            complain(ErrorLocation::Terminator(b), message);
        }
        for (k, (v, arg)) in c.args.iter().zip(args).enumerate() {
            let (given, wanted) = (body.ty(*v), body.ty(*arg));
            if given != wanted {
                let message = format!("argument {} of the target is {wanted}, the jump gives {given}", k + 1);
                complain(ErrorLocation::Terminator(b), message);
            }
        }
    }
    if let Terminator::BrIf { condition, .. } = t
        && !D::is_condition(body.ty(*condition))
    {
        let message = format!("the condition is {}, not {}", body.ty(*condition), D::CONDITION);
        complain(ErrorLocation::Terminator(b), message);
    }
}
