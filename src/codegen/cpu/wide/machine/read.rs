//! Parser of the text form, which proves that the text is complete.
//!
//! In: the text of leaves over virtual registers. Out: their names and functions, without the
//! comments.

use std::collections::BTreeMap;

use super::{
    Base, Block, BlockData, Class, Constant, Function, Inst, Mem, Op, Operand, Reg, Target, Terminator, When, verify,
};
use crate::irtext::syntax::{BinaryKind, CompareKind};
use crate::irtext::{self, Expr, ExprKind, Line, Phrase, Statement, TextError, TextSpan, read};
use crate::tile::Width;

type Read<T> = Result<T, TextError>;

fn fail<T>(place: TextSpan, message: impl Into<String>) -> Read<T> {
    Err(TextError::new(place, message))
}

/// Parses leaves.
///
/// # Errors
/// The first error, with its position.
pub(in super::super) fn parse(text: &str) -> Read<Vec<(String, Function)>> {
    let leaf = |line: &Line| match line {
        Line::Statement(s) if s.head == "leaf" => {
            let (name, function) = Reader::leaf(s)?;
            verify(&function).map_err(|complaint| TextError::new(s.place, complaint))?;
            Ok((name, function))
        }
        Line::Statement(s) => fail(s.place, "expected a leaf"),
        Line::Block(b) => fail(b.place, "expected a leaf"),
    };
    irtext::parse(text)?.iter().map(leaf).collect()
}

struct Reader {
    function: Function,
    registers: BTreeMap<String, Reg>,
}

impl Reader {
    fn leaf(s: &Statement) -> Read<(String, Function)> {
        let [name, vectors, frame] = s.args.as_slice() else {
            return fail(s.place, "expected `leaf @name, vectors=N, frame=N`");
        };
        let ExprKind::Global(name) = &read::single(name)?.kind else {
            return fail(s.place, "expected the name of the leaf");
        };
        let number = |p: &Phrase| p.value.first().map_or_else(|| fail(p.place, "expected a number"), read::integer);
        let width = match number(vectors)? {
            512 => Width::V512,
            256 => Width::V256,
            _ => return fail(vectors.place, "`vectors` must be 256 or 512"),
        };
        let frame: i32 = number(frame)?;
        let (blocks, classes, pool) = (Vec::new(), Vec::new(), Vec::new());
        let function = Function { width, blocks, classes, pool, frame };
        let mut reader = Reader { function, registers: BTreeMap::new() };
        for line in s.body.as_deref().unwrap_or_default() {
            match line {
                Line::Block(b) => reader.block(b)?,
                Line::Statement(s) => reader.statement(s)?,
            }
        }
        Ok((name.clone(), reader.function))
    }

    /// Defines a register.
    fn define(&mut self, name: &str, class: Class) -> Reg {
        let r = Reg(u32::try_from(self.function.classes.len()).expect("few registers"));
        self.function.classes.push(class);
        self.registers.insert(name.to_string(), r);
        r
    }

    fn register(&self, e: &Expr) -> Read<Reg> {
        let name = read::value(e)?;
        self.registers.get(name).copied().map_or_else(|| fail(e.place, "undefined register"), Ok)
    }

    fn block(&mut self, b: &irtext::Block) -> Read<()> {
        if b.name != format!("bb{}", self.function.blocks.len()) {
            return fail(b.place, "blocks must be numbered in order");
        }
        let mut params = Vec::new();
        for p in &b.args {
            let ([name], [class]) = (p.terms.as_slice(), p.types.as_slice()) else {
                return fail(p.place, "a parameter is `%name: class`");
            };
            let word = read::word(class)?;
            let Some(class) = Class::ALL.into_iter().find(|c| c.name() == word) else {
                return fail(class.place, "a class is `vector`, `mask` or `general`");
            };
            params.push(self.define(read::value(name)?, class));
        }
        self.function.blocks.push(BlockData { params, insts: Vec::new(), end: Terminator::Return });
        Ok(())
    }

    fn statement(&mut self, s: &Statement) -> Read<()> {
        let end = match (s.head.as_str(), s.args.as_slice()) {
            ("constant", [_, value]) => {
                let e = read::single(value)?;
                let constant = match read::literal(e) {
                    Some(read::Literal::Float(x)) => Constant::Same((x as f32).to_bits()),
                    Some(read::Literal::Int(_)) => Constant::Same(read::integer::<i32>(e)?.cast_unsigned()),
                    _ if read::word(e)? == "count" => Constant::Count,
                    _ => return fail(e.place, "expected a constant"),
                };
                self.function.pool.push(constant);
                return Ok(());
            }
            ("return", []) => Terminator::Return,
            ("jump", [to]) => Terminator::Jump(self.target(to)?),
            ("branch", [condition, then, otherwise]) => self.branch(condition, [then, otherwise])?,
            _ => return self.instruction(s),
        };
        if let Some(block) = self.function.blocks.last_mut() {
            block.end = end;
        }
        Ok(())
    }

    fn branch(&self, condition: &Phrase, [then, otherwise]: [&Phrase; 2]) -> Read<Terminator> {
        let e = read::single(condition)?;
        let ExprKind::Compare(kind, a, b) = &e.kind else { return fail(e.place, "expected a comparison") };
        let when = match kind {
            CompareKind::Lt => When::Less,
            CompareKind::Ge => When::GreaterEqual,
            _ => return fail(e.place, "expected `<` or `>=`"),
        };
        let srcs = vec![self.operand(a)?, self.operand(b)?];
        let op = if matches!(srcs[1], Operand::Imm(_)) { Op::CompareImm } else { Op::Compare };
        let compare = Inst { op, dst: None, tied: None, srcs, mask: None, origin: None };
        Ok(Terminator::Branch { compare, when, targets: [self.target(then)?, self.target(otherwise)?] })
    }

    /// A block with arguments.
    fn target(&self, p: &Phrase) -> Read<Target> {
        let e = read::single(p)?;
        let (label, args) = match &e.kind {
            ExprKind::Call(label, args) => (&label.kind, args.as_slice()),
            kind => (kind, &[][..]),
        };
        let number = match label {
            ExprKind::Label(name) => name.strip_prefix("bb").and_then(|n| n.parse().ok()),
            _ => None,
        };
        let Some(number) = number else { return fail(e.place, "expected a block") };
        // A register may be defined in a later block.
        let args = args.iter().map(|p| self.register(read::single(p)?)).collect::<Read<_>>()?;
        Ok(Target { block: Block(number), args })
    }

    fn instruction(&mut self, s: &Statement) -> Read<()> {
        let Some(op) = Op::ALL.iter().copied().find(|op| op.name() == s.head) else {
            return fail(s.place, format!("there is no instruction `{}`", s.head));
        };
        let mut inst = Inst { op, dst: None, tied: None, srcs: Vec::new(), mask: None, origin: None };
        for p in &s.args {
            let e = read::single(p)?;
            match &e.kind {
                ExprKind::Call(name, args) if read::word(name)? == "tied" => {
                    inst.tied = args.first().map(|p| self.register(read::single(p)?)).transpose()?;
                }
                ExprKind::Call(_, args) => {
                    let mask = args.first().map(|p| self.register(read::single(p)?)).transpose()?;
                    inst.mask = mask.map(|mask| (mask, args.len() > 1));
                }
                _ => inst.srcs.push(self.operand(e)?),
            }
        }
        if let [result] = s.results.as_slice() {
            let Some(class) = op.result(self.function.wide()) else {
                return fail(s.place, "this instruction has no result");
            };
            inst.dst = Some(self.define(read::value(result)?, class));
        }
        match self.function.blocks.last_mut() {
            Some(block) => block.insts.push(inst),
            None => return fail(s.place, "instruction outside of a block"),
        }
        Ok(())
    }

    fn operand(&self, e: &Expr) -> Read<Operand> {
        Ok(match &e.kind {
            ExprKind::Value(_) => Operand::Reg(self.register(e)?),
            ExprKind::List(items) => match items.as_slice() {
                [p] => Operand::Mem(self.memory(read::single(p)?)?),
                _ => return fail(e.place, "expected an address"),
            },
            _ => Operand::Imm(read::integer(e)?),
        })
    }

    fn memory(&self, e: &Expr) -> Read<Mem> {
        let (first, rest) = match &e.kind {
            ExprKind::Chain(first, rest) => (&**first, rest.as_slice()),
            _ => (e, &[][..]),
        };
        let base = match &first.kind {
            ExprKind::Value(_) => Base::Reg(self.register(first)?),
            ExprKind::Word(word) => match (word.as_str(), word.strip_prefix('c').and_then(|n| n.parse().ok())) {
                ("words", _) => Base::Words,
                ("frame", _) => Base::Frame,
                (_, Some(n)) => Base::Pool(n),
                _ => return fail(first.place, "an address starts from a register, `words`, `frame` or a constant"),
            },
            _ => return fail(first.place, "an address starts from a register, `words`, `frame` or a constant"),
        };
        let mut m = Mem { base, index: None, offset: 0 };
        for (op, e) in rest {
            match (op, &e.kind) {
                (BinaryKind::Add, ExprKind::Value(_)) => m.index = Some((self.register(e)?, 1)),
                (BinaryKind::Add, ExprKind::Chain(index, scale)) => {
                    let [(BinaryKind::Mul, scale)] = scale.as_slice() else {
                        return fail(e.place, "an index is `%name*scale`");
                    };
                    m.index = Some((self.register(index)?, read::integer(scale)?));
                }
                (BinaryKind::Add, _) => m.offset = read::integer(e)?,
                (BinaryKind::Sub, _) => {
                    let n: i64 = read::integer(e)?;
                    m.offset = i32::try_from(-n).or_else(|_| fail(e.place, "the number is out of range"))?;
                }
                _ => return fail(e.place, "an address is a sum"),
            }
        }
        Ok(m)
    }
}
