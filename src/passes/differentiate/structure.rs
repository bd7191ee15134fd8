//! The structure of what was executed before an instruction: a list of operations, branches and
//! loops, which can be read backwards.
//!
//! In: a function and an instruction. Out: the [`Node`]s that dominate it, in order. A loop that is
//! not counted, or is left by a `break`, is opaque: it is in the list with the reason. It knows no
//! derivatives.

use std::collections::{BTreeMap, BTreeSet};

use super::Refusal;
use crate::ir::{Block, Cfg, Function, Inst, Loc, Op, Scalar, Terminator, Type, Value};
use crate::scalar::{BinaryOp, CmpOp};
use crate::shape::Dim;

/// A part of what was executed.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// One instruction.
    Inst(Inst),
    /// Block arguments, and what the only jump to the block passes for them.
    Same(Vec<(Value, Value)>),
    /// A branch, both of whose arms come to the block after it.
    Branch(Region, Value, [Arm; 2]),
    /// A counted loop.
    Loop(Region, Box<Counted>),
    /// A loop or branch of another kind, and why no gradient goes through it.
    Opaque(Region, String),
    /// The loop around the instruction, which has begun: its arguments, and its blocks.
    Around(Vec<Value>, BTreeSet<Block>, Loc),
}

/// The blocks of a branch or loop.
#[derive(Clone, Debug)]
pub(super) struct Region {
    /// The block whose jump leads into it.
    pub enter: Block,
    /// Its blocks, in the order of the layout.
    pub blocks: Vec<Block>,
    /// The block after it.
    pub exit: Block,
    /// The arguments of the block after it.
    pub args: Vec<Value>,
    /// A location in it.
    pub loc: Loc,
}

/// One arm of a branch.
#[derive(Clone, Debug)]
pub(super) struct Arm {
    pub nodes: Vec<Node>,
    /// The values for the arguments of the block after the branch.
    pub passed: Vec<Value>,
}

/// A loop that counts from a dimension to another, and ends nowhere else.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    /// The block that jumps to the header from outside.
    pub enter: Block,
    pub header: Block,
    pub latch: Block,
    /// The header's arguments, their initial values, and their values in the next iteration.
    pub args: Vec<Value>,
    pub first: Vec<Value>,
    pub next: Vec<Value>,
    /// Which of the arguments is the counter.
    pub counter: usize,
    pub start: Dim,
    /// The number of iterations.
    pub count: Dim,
    /// The header's instructions, which are executed once more than the body.
    pub head: Vec<Node>,
    pub body: Vec<Node>,
    /// The values that the header passes to the block after it.
    pub passed: Vec<Value>,
}

/// The parts of the function before `at`, an instruction of `block`.
pub(super) fn before(f: &Function, block: Block, at: Inst) -> Result<Vec<Node>, Refusal> {
    let cfg = f.cfg();
    let loops = cfg.loops().into_iter().map(|l| (l.header, l.blocks)).collect();
    let reader = Reader { f, cfg: &cfg, loops, block, at };
    let mut nodes = Vec::new();
    match reader.sequence(f.entry(), None, &mut nodes)? {
        End::Found => Ok(nodes),
        End::At(..) | End::Returned => Err(reader.unreadable(block)),
    }
}

struct Reader<'f> {
    f: &'f Function,
    cfg: &'f Cfg,
    loops: BTreeMap<Block, BTreeSet<Block>>,
    block: Block,
    at: Inst,
}

/// How a sequence ends.
enum End {
    /// It holds the instruction.
    Found,
    /// It jumps to the block at which it was to stop, with these arguments, from this block.
    At(Block, Vec<Value>),
    /// It returns.
    Returned,
}

impl Reader<'_> {
    fn unreadable(&self, b: Block) -> Refusal {
        Refusal::new(self.loc_of(b), "no gradient goes through this control flow")
    }

    fn loc_of(&self, b: Block) -> Loc {
        let locs = self.f.block(b).insts.iter().map(|i| self.f.inst(*i).loc);
        locs.into_iter().find(|l| l.line > 0).unwrap_or_default()
    }

    /// Reads from a block up to `stop`, or up to the instruction.
    fn sequence(&self, mut b: Block, stop: Option<Block>, out: &mut Vec<Node>) -> Result<End, Refusal> {
        let mut entered: BTreeSet<Block> = BTreeSet::new();
        loop {
            if let Some(inside) = self.loops.get(&b)
                && !entered.contains(&b)
                && inside.contains(&self.block)
            {
                entered.insert(b);
                out.push(Node::Around(self.f.block(b).args.clone(), inside.clone(), self.loc_of(b)));
            }
            for i in &self.f.block(b).insts {
                if *i == self.at {
                    return Ok(End::Found);
                }
                out.push(Node::Inst(*i));
            }
            let next = match &self.f.block(b).terminator {
                Terminator::Return(_) => return Ok(End::Returned),
                Terminator::Roles(never) => match *never {},
                Terminator::Br(c) if Some(c.block) == stop => return Ok(End::At(b, c.args.clone())),
                Terminator::Br(c) => match self.loops.get(&c.block) {
                    Some(blocks) if !blocks.contains(&self.block) => self.counted(b, c.block, blocks, out)?,
                    _ => {
                        let args = &self.f.block(c.block).args;
                        if self.cfg.predecessors(c.block).len() == 1 && !args.is_empty() {
                            out.push(Node::Same(args.iter().copied().zip(c.args.iter().copied()).collect()));
                        }
                        c.block
                    }
                },
                Terminator::BrIf { then, otherwise, .. } => {
                    let within = |c: &crate::ir::BlockCall| self.cfg.dominates(c.block, self.block);
                    // A branch around the instruction: on the way to it, one arm was taken.
                    let arms = [then, otherwise];
                    let single = |c: &&&crate::ir::BlockCall| {
                        self.cfg.predecessors(c.block).len() == 1 && within(c) && c.block != b
                    };
                    match arms.iter().find(single) {
                        Some(arm) => {
                            let args = &self.f.block(arm.block).args;
                            if !args.is_empty() {
                                out.push(Node::Same(args.iter().copied().zip(arm.args.iter().copied()).collect()));
                            }
                            // The arm may also be the code after a loop that was entered before.
                            arm.block
                        }
                        None => match self.branch(b, stop, out)? {
                            Some(next) => next,
                            None => return Err(self.unreadable(b)),
                        },
                    }
                }
            };
            if Some(next) == stop {
                return Err(self.unreadable(b));
            }
            b = next;
        }
    }

    /// The blocks that `first` dominates, up to (without) the block `end` and what it dominates.
    fn dominated(&self, first: &[Block], end: Block) -> Vec<Block> {
        let inside =
            |b: &Block| first.iter().any(|a| *a != end && self.cfg.dominates(*a, *b)) && !self.cfg.dominates(end, *b);
        self.f.layout.iter().copied().filter(inside).collect()
    }

    /// Reads a branch at the end of a block; returns the block where its arms meet.
    fn branch(&self, b: Block, stop: Option<Block>, out: &mut Vec<Node>) -> Result<Option<Block>, Refusal> {
        let Terminator::BrIf { condition, then, otherwise } = &self.f.block(b).terminator else { return Ok(None) };
        let arms = [then, otherwise];
        let own = |c: Block| self.cfg.predecessors(c).len() == 1;
        let below = |c: &Block| self.cfg.immediate_dominator(*c) == Some(b);
        let meets = |c: &Block| below(c) && !arms.iter().any(|a| a.block == *c && own(*c));
        let Some(exit) = self.f.layout.iter().copied().find(meets).filter(|e| Some(*e) != stop) else {
            return Ok(None);
        };
        let firsts: Vec<Block> = arms.iter().map(|a| a.block).filter(|a| *a != exit).collect();
        let region = Region {
            enter: b,
            blocks: self.dominated(&firsts, exit),
            exit,
            args: self.f.block(exit).args.clone(),
            loc: self.loc_of(firsts.first().copied().unwrap_or(exit)),
        };
        let mut read = Vec::new();
        for arm in arms {
            if arm.block == exit {
                read.push(Arm { nodes: Vec::new(), passed: arm.args.clone() });
                continue;
            }
            let mut nodes = Vec::new();
            let args = &self.f.block(arm.block).args;
            nodes.push(Node::Same(args.iter().copied().zip(arm.args.iter().copied()).collect()));
            match self.sequence(arm.block, Some(exit), &mut nodes) {
                Ok(End::At(_, passed)) => read.push(Arm { nodes, passed }),
                Ok(End::Found | End::Returned) | Err(_) => {
                    out.push(Node::Opaque(region, "the branch is left elsewhere".to_string()));
                    return Ok(Some(exit));
                }
            }
        }
        if let Ok(arms) = <[Arm; 2]>::try_from(read) {
            out.push(Node::Branch(region, *condition, arms));
        }
        Ok(Some(exit))
    }

    /// Reads the loop with this header, which `enter` jumps to; returns the block after it.
    fn counted(
        &self,
        enter: Block,
        header: Block,
        blocks: &BTreeSet<Block>,
        out: &mut Vec<Node>,
    ) -> Result<Block, Refusal> {
        let Terminator::BrIf { condition, then, otherwise } = &self.f.block(header).terminator else {
            return Err(self.unreadable(header));
        };
        if !blocks.contains(&then.block) || blocks.contains(&otherwise.block) {
            return Err(self.unreadable(header));
        }
        let exit = otherwise.block;
        let mut all: BTreeSet<Block> = blocks.clone();
        // Arms that leave by a `break` are not part of the natural loop.
        all.extend(self.dominated(&[then.block], exit));
        let region = Region {
            enter,
            blocks: self.f.layout.iter().copied().filter(|b| all.contains(b)).collect(),
            exit,
            args: self.f.block(exit).args.clone(),
            loc: self.loc_of(header),
        };
        let node = match self.read_loop(&region, header, *condition, &then.args, &otherwise.args) {
            Ok(counted) => Node::Loop(region, Box::new(counted)),
            Err(why) => Node::Opaque(region, why),
        };
        out.push(node);
        Ok(exit)
    }

    fn read_loop(
        &self,
        region: &Region,
        header: Block,
        condition: Value,
        to_body: &[Value],
        passed: &[Value],
    ) -> Result<Counted, String> {
        let f = self.f;
        let outside = |b: &&Block| !region.blocks.contains(b);
        if self.cfg.predecessors(region.exit).len() > 1 {
            return Err("the loop is left by `break`".to_string());
        }
        let (Terminator::Br(into), 1) =
            (&f.block(region.enter).terminator, self.cfg.predecessors(header).iter().filter(outside).count())
        else {
            return Err("the loop is entered from several places".to_string());
        };
        let Terminator::BrIf { then, .. } = &f.block(header).terminator else {
            return Err("the loop has no test".to_string());
        };
        let args = f.block(header).args.clone();
        let head: Vec<Node> = f.block(header).insts.iter().map(|i| Node::Inst(*i)).collect();
        let mut body = Vec::new();
        let body_args = &f.block(then.block).args;
        body.push(Node::Same(body_args.iter().copied().zip(to_body.iter().copied()).collect()));
        let Ok(End::At(latch, next)) = self.sequence(then.block, Some(header), &mut body) else {
            return Err("the loop is left in its body".to_string());
        };
        let (counter, start, count) = self.count(condition, &args, &into.args, &next).ok_or(
            "the number of iterations is not a function of the dimensions: of a `while`, or between computed values",
        )?;
        let (enter, first, passed) = (region.enter, into.args.clone(), passed.to_vec());
        Ok(Counted { enter, header, latch, args, first, next, counter, start, count, head, body, passed })
    }

    /// The counter's position, its start, and the number of iterations.
    fn count(&self, condition: Value, args: &[Value], first: &[Value], next: &[Value]) -> Option<(usize, Dim, Dim)> {
        let test = self.f.def_inst(condition)?;
        let (Op::Compare(CmpOp::Lt), [i, last]) = (&test.op, test.operands.as_slice()) else { return None };
        let at = args.iter().position(|a| a == i)?;
        if *self.f.ty(*i) != Type::Index {
            return None;
        }
        let step = self.f.def_inst(*next.get(at)?)?;
        let (Op::Binary(BinaryOp::Add), [a, one]) = (&step.op, step.operands.as_slice()) else { return None };
        if a != i || self.dim(*one)? != Dim::one() {
            return None;
        }
        let (start, end) = (self.dim(*first.get(at)?)?, self.dim(*last)?);
        let count = end.sub(&start);
        let count = if count.is_provably_nonnegative() { count } else { count.max_with(&Dim::zero()) };
        Some((at, start, count))
    }

    fn dim(&self, v: Value) -> Option<Dim> {
        match &self.f.def_inst(v)?.op {
            Op::DimValue(d) => Some(d.clone()),
            Op::Const(Scalar::Int(n)) => Some(Dim::from(*n)),
            _ => None,
        }
    }
}
