//! Building a function: instructions are appended to the current block; blocks follow in the order
//! in which they are started.
//!
//! In: calls from instruction selection. Out: a [`Function`] without dead instructions. Must not
//! know: tiles, physical registers.

use std::collections::{BTreeMap, BTreeSet};

use super::{Block, BlockData, Class, Constant, Function, Inst, Mem, Op, Operand, Reg, Target, Terminator, When};
use crate::tile::{self, Width};

/// A function under construction.
pub(in super::super) struct Builder {
    function: Function,
    now: usize,
    /// Started blocks, in order.
    layout: Vec<usize>,
    /// Instructions at the start of the entry block: constants.
    prelude: Vec<Inst>,
    /// The tile operation that the next instructions belong to.
    origin: Option<tile::Inst>,
    /// Registers whose lanes are `bf16` values: the lower halves are zero.
    pub(in super::super) short: BTreeSet<Reg>,
    /// Does one instruction round to `bf16`? It flushes subnormals to 0.
    pub(in super::super) shortens: bool,
    /// For registers rounded by it, the half vectors that it produced.
    pub(in super::super) halves: BTreeMap<Reg, Reg>,
    /// An error in a function of the library: a bug in attnc.
    pub(in super::super) wrong: Option<String>,
    known: BTreeMap<Constant, Reg>,
}

impl Builder {
    /// An empty function.
    pub(in super::super) fn new(width: Width) -> Builder {
        let entry = BlockData { params: Vec::new(), insts: Vec::new(), end: Terminator::Return };
        let (classes, pool) = (Vec::new(), Vec::new());
        Builder {
            function: Function { width, blocks: vec![entry], classes, pool, frame: 0 },
            now: 0,
            layout: vec![0],
            prelude: Vec::new(),
            origin: None,
            short: BTreeSet::new(),
            shortens: false,
            halves: BTreeMap::new(),
            wrong: None,
            known: BTreeMap::new(),
        }
    }

    /// The tile operation that the next instructions belong to.
    pub(in super::super) fn origin(&self) -> Option<tile::Inst> {
        self.origin
    }

    /// The vector width.
    pub(in super::super) fn width(&self) -> Width {
        self.function.width
    }

    /// Is AVX-512 used?
    pub(in super::super) fn wide(&self) -> bool {
        self.function.wide()
    }

    /// `f32` lanes of a vector.
    pub(in super::super) fn lanes(&self) -> i64 {
        i64::from(self.function.width.lanes())
    }

    /// Sets the tile operation that the next instructions belong to.
    pub(in super::super) fn code_of(&mut self, inst: Option<tile::Inst>) {
        self.origin = inst;
    }

    fn reg(&mut self, class: Class) -> Reg {
        let r = Reg(u32::try_from(self.function.classes.len()).unwrap_or(u32::MAX));
        self.function.classes.push(class);
        r
    }

    pub(in super::super) fn class(&self, r: Reg) -> Class {
        self.function.class(r)
    }

    fn instruction(&self, op: Op, dst: Option<Reg>, srcs: Vec<Operand>) -> Inst {
        Inst { op, dst, tied: None, srcs, mask: None, origin: self.origin }
    }

    fn push(&mut self, inst: Inst) {
        if let Some(block) = self.function.blocks.get_mut(self.now) {
            block.insts.push(inst);
        }
    }

    /// An instruction with a new register as its result.
    pub(in super::super) fn make(&mut self, class: Class, op: Op, srcs: Vec<Operand>) -> Reg {
        let dst = self.reg(class);
        let inst = self.instruction(op, Some(dst), srcs);
        self.push(inst);
        dst
    }

    /// An instruction with a new vector as its result.
    pub(in super::super) fn vector(&mut self, op: Op, srcs: Vec<Operand>) -> Reg {
        self.make(Class::Vector, op, srcs)
    }

    /// The same under a mask (AVX-512): other lanes are zero, or defined by the instruction.
    pub(in super::super) fn masked(&mut self, op: Op, mask: Reg, zero: bool, srcs: Vec<Operand>) -> Reg {
        let dst = self.reg(Class::Vector);
        let inst = self.instruction(op, Some(dst), srcs);
        self.push(Inst { mask: Some((mask, zero)), ..inst });
        dst
    }

    /// An instruction on two vectors.
    pub(in super::super) fn two(&mut self, op: Op, a: Reg, b: Reg) -> Reg {
        self.vector(op, vec![a.into(), b.into()])
    }

    /// An instruction whose result takes the register of an operand.
    pub(in super::super) fn tied(&mut self, op: Op, tied: Reg, srcs: Vec<Operand>) -> Reg {
        let dst = self.reg(self.class(tied));
        let inst = self.instruction(op, Some(dst), srcs);
        self.push(Inst { tied: Some(tied), ..inst });
        dst
    }

    /// An instruction without a result.
    pub(in super::super) fn effect(&mut self, op: Op, srcs: Vec<Operand>) {
        let inst = self.instruction(op, None, srcs);
        self.push(inst);
    }

    /// The same under a mask (AVX-512), if there is one.
    pub(in super::super) fn masked_effect(&mut self, op: Op, mask: Option<Reg>, srcs: Vec<Operand>) {
        let inst = self.instruction(op, None, srcs);
        self.push(Inst { mask: mask.map(|k| (k, false)), ..inst });
    }

    /// Copies a register to a new one.
    pub(in super::super) fn copy(&mut self, r: Reg) -> Reg {
        let class = self.class(r);
        self.make(class, class.copy(), vec![r.into()])
    }

    /// A constant: it stays in its register (or in memory) throughout the function.
    pub(in super::super) fn constant(&mut self, c: Constant) -> Reg {
        if let Some(r) = self.known.get(&c) {
            return *r;
        }
        let dst = self.reg(Class::Vector);
        let n = u32::try_from(self.function.pool.len()).unwrap_or(u32::MAX);
        let op = if c == Constant::Count { Op::Load } else { Op::Spread };
        let inst = self.instruction(op, Some(dst), vec![Mem::pool(n).into()]);
        self.prelude.push(Inst { origin: None, ..inst });
        self.function.pool.push(c);
        self.known.insert(c, dst);
        dst
    }

    /// An `f32` in every lane.
    pub(in super::super) fn float(&mut self, x: f32) -> Reg {
        self.constant(Constant::Same(x.to_bits()))
    }

    /// An `i32` in every lane.
    pub(in super::super) fn int(&mut self, n: i32) -> Reg {
        self.constant(Constant::Same(n.cast_unsigned()))
    }

    /// A constant in a general register.
    pub(in super::super) fn number(&mut self, n: i32) -> Reg {
        self.make(Class::General, Op::MovImm, vec![Operand::Imm(n)])
    }

    /// The function's own 64-byte slot at the start of the frame.
    pub(in super::super) fn staging(&mut self) -> Mem {
        if self.function.frame == 0 {
            self.function.room(64);
        }
        Mem::frame(0)
    }

    /// A block that is started later, with parameters of these classes.
    pub(in super::super) fn block(&mut self, params: &[Class]) -> Block {
        let params = params.iter().map(|class| self.reg(*class)).collect();
        self.function.blocks.push(BlockData { params, insts: Vec::new(), end: Terminator::Return });
        Block(u32::try_from(self.function.blocks.len() - 1).unwrap_or(u32::MAX))
    }

    /// A block to be started later, with parameters of the same classes as these values.
    pub(in super::super) fn block_for(&mut self, values: &[Reg]) -> Block {
        let classes: Vec<Class> = values.iter().map(|r| self.class(*r)).collect();
        self.block(&classes)
    }

    /// Continues in this block; returns its parameters.
    pub(in super::super) fn start(&mut self, block: Block) -> Vec<Reg> {
        self.now = block.0 as usize;
        self.layout.push(self.now);
        self.function.blocks.get(self.now).map_or(Vec::new(), |b| b.params.clone())
    }

    fn end(&mut self, end: Terminator) {
        if let Some(block) = self.function.blocks.get_mut(self.now) {
            block.end = end;
        }
    }

    /// Ends the current block with a jump.
    pub(in super::super) fn jump(&mut self, to: Block, args: &[Reg]) {
        self.end(Terminator::Jump(Target { block: to, args: args.to_vec() }));
    }

    /// Ends the current block with a branch: to the first target if the comparison holds, else to
    /// the second.
    pub(in super::super) fn branch(
        &mut self,
        (a, when, b): (Reg, When, Operand),
        then: (Block, &[Reg]),
        otherwise: (Block, &[Reg]),
    ) {
        let op = if matches!(b, Operand::Imm(_)) { Op::CompareImm } else { Op::Compare };
        let compare = self.instruction(op, None, vec![a.into(), b]);
        let targets = [then, otherwise].map(|(block, args)| Target { block, args: args.to_vec() });
        self.end(Terminator::Branch { compare, when, targets });
    }

    /// Jumps to a block and continues there; returns its parameters.
    pub(in super::super) fn join(&mut self, block: Block, args: &[Reg]) -> Vec<Reg> {
        self.jump(block, args);
        self.start(block)
    }

    /// Begins a loop that runs at least once; returns its block, and the values carried into each
    /// iteration.
    pub(in super::super) fn begin_loop(&mut self, carried: &[Reg]) -> (Block, Vec<Reg>) {
        let top = self.block_for(carried);
        let params = self.join(top, carried);
        (top, params)
    }

    /// Ends a loop: the next iteration begins, with these values, if the comparison holds; else
    /// execution continues.
    pub(in super::super) fn end_loop(&mut self, top: Block, condition: (Reg, When, Operand), carried: &[Reg]) {
        let next = self.block(&[]);
        self.branch(condition, (top, carried), (next, &[]));
        self.start(next);
    }

    /// Does this width have the instruction?
    pub(in super::super) fn uses(&self, op: Op) -> bool {
        self.function.blocks.iter().flat_map(|b| &b.insts).any(|i| i.op == op)
    }

    /// Finishes the function; its last block returns. Unused registers are removed.
    pub(in super::super) fn finish(self) -> Function {
        let Builder { mut function, layout, mut prelude, .. } = self;
        let mut places = vec![0; function.blocks.len()];
        for (place, block) in (0u32..).zip(&layout) {
            places[*block] = place;
        }
        let empty = || BlockData { params: Vec::new(), insts: Vec::new(), end: Terminator::Return };
        let mut all = std::mem::take(&mut function.blocks);
        function.blocks = layout.iter().map(|n| std::mem::replace(&mut all[*n], empty())).collect();
        for target in function.blocks.iter_mut().flat_map(|b| b.end.targets_mut()) {
            target.block = Block(places[target.block.0 as usize]);
        }
        if let Some(entry) = function.blocks.first_mut() {
            prelude.append(&mut entry.insts);
            entry.insts = prelude;
        }
        remove_unchanged(&mut function);
        remove_unread(&mut function);
        function
    }
}

/// Removes trivial block parameters: every jump passes the same value, or the parameter itself
/// (Braun, Buchwald, Hack, Leißa, Mallon & Zwinkau 2013, "Simple and Efficient Construction of
/// Static Single Assignment Form").
fn remove_unchanged(function: &mut Function) {
    // The replacement of each register; itself if not removed.
    let mut same: Vec<Reg> = (0u32..).map(Reg).take(function.classes.len()).collect();
    fn representative(same: &[Reg], mut r: Reg) -> Reg {
        while same[r.index()] != r {
            r = same[r.index()];
        }
        r
    }
    // The arguments that jumps pass to a parameter.
    #[derive(Clone, Copy)]
    enum PassedArg {
        Nothing,
        One(Reg),
        Several,
    }
    let mut removed = false;
    loop {
        let mut given = vec![PassedArg::Nothing; function.classes.len()];
        for target in function.blocks.iter().flat_map(|b| b.end.targets()) {
            for (param, arg) in function.blocks[target.block.0 as usize].params.iter().zip(&target.args) {
                let arg = representative(&same, *arg);
                let known = &mut given[param.index()];
                *known = match *known {
                    _ if arg == *param => *known,
                    PassedArg::Nothing => PassedArg::One(arg),
                    PassedArg::One(other) if other == arg => PassedArg::One(arg),
                    PassedArg::One(_) | PassedArg::Several => PassedArg::Several,
                };
            }
        }
        let mut changed = false;
        for param in function.blocks.iter().flat_map(|b| &b.params) {
            if let PassedArg::One(arg) = given[param.index()]
                && same[param.index()] == *param
                && representative(&same, arg) != *param
            {
                same[param.index()] = representative(&same, arg);
                changed = true;
            }
        }
        removed |= changed;
        if !changed {
            break;
        }
    }
    if !removed {
        return;
    }
    keep_parameters(function, |p| same[p.index()] == p);
    for block in &mut function.blocks {
        block.insts.iter_mut().flat_map(Inst::reads_mut).for_each(|r| *r = representative(&same, *r));
        if let Terminator::Branch { compare, .. } = &mut block.end {
            compare.reads_mut().for_each(|r| *r = representative(&same, *r));
        }
        block.end.targets_mut().iter_mut().flat_map(|t| &mut t.args).for_each(|r| *r = representative(&same, *r));
    }
}

/// Removes the other parameters and their arguments.
fn keep_parameters(function: &mut Function, keeps: impl Fn(Reg) -> bool) {
    for b in 0..function.blocks.len() {
        let mut end = std::mem::replace(&mut function.blocks[b].end, Terminator::Return);
        for target in end.targets_mut() {
            let mut params = function.blocks[target.block.0 as usize].params.iter();
            target.args.retain(|_| params.next().is_some_and(|p| keeps(*p)));
        }
        function.blocks[b].end = end;
    }
    function.blocks.iter_mut().for_each(|block| block.params.retain(|p| keeps(*p)));
}

/// Dead code elimination of instructions and block parameters.
fn remove_unread(function: &mut Function) {
    /// The definition of a register: an instruction or a parameter, by index.
    #[derive(Clone, Copy)]
    enum Maker {
        Nothing,
        Inst(usize, usize),
        Param(usize, usize),
    }
    let mut makers = vec![Maker::Nothing; function.classes.len()];
    // The arguments for each block's parameters.
    let mut given: Vec<Vec<&Target>> = vec![Vec::new(); function.blocks.len()];
    let mut read = vec![false; function.classes.len()];
    let mut open = Vec::new();
    for (b, block) in function.blocks.iter().enumerate() {
        for (n, param) in block.params.iter().enumerate() {
            makers[param.index()] = Maker::Param(b, n);
        }
        for (n, inst) in block.insts.iter().enumerate() {
            match inst.dst {
                Some(dst) => makers[dst.index()] = Maker::Inst(b, n),
                None => open.extend(inst.reads()),
            }
        }
        open.extend(block.end.compare().into_iter().flat_map(Inst::reads));
        for target in block.end.targets() {
            given[target.block.0 as usize].push(target);
        }
    }
    while let Some(r) = open.pop() {
        if std::mem::replace(&mut read[r.index()], true) {
            continue;
        }
        match makers[r.index()] {
            Maker::Inst(b, n) => open.extend(function.blocks[b].insts[n].reads()),
            Maker::Param(b, n) => open.extend(given[b].iter().filter_map(|t| t.args.get(n))),
            Maker::Nothing => {}
        }
    }
    keep_parameters(function, |p| read[p.index()]);
    for block in &mut function.blocks {
        block.insts.retain(|i| i.dst.is_none_or(|d| read[d.index()]));
    }
}
