//! Parser of PTX text.
//!
//! It accepts the output of [`super::print()`], and handwritten variations: several statements on a
//! line, ranges of registers (`%r<8>`), hexadecimal numbers, comments anywhere (dropped inside a
//! statement). Not supported: functions, variables outside of `.shared`, nested scopes, `.pragma`.

use std::collections::{BTreeSet, HashMap};

use super::TextError;
use super::lexer::{Placed, Token, tokens};
use crate::diagnostics::did_you_mean;
use crate::ptx::operand::{OperandKind, Slot};
use crate::ptx::{
    Address, Base, Guard, Inst, Kernel, Line, Module, Op, Operand, Param, ParamType, Reg, RegType, Register, Shared,
    Special, Target, Threads, Type, Version,
};

type Read<T> = Result<T, TextError>;

/// Maximum registers of a declaration `%r<n>`, and of a kernel.
const MAX_REGISTERS: usize = 1 << 16;

/// Parses a module.
///
/// # Errors
/// The first syntax error, with its position.
pub fn parse(text: &str) -> Read<Module> {
    let tokens = tokens(text)?;
    let specials = Special::all().into_iter().map(|s| (s.to_string(), s)).collect();
    Parser { tokens: &tokens, at: 0, specials, registers: HashMap::new() }.module()
}

struct Parser<'a> {
    tokens: &'a [Placed],
    at: usize,
    specials: HashMap<String, Special>,
    /// Registers of the current kernel, by name.
    registers: HashMap<String, Reg>,
}

impl Parser<'_> {
    fn here(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|t| &t.token)
    }

    fn error<T>(&self, message: impl Into<String>) -> Read<T> {
        let place = self.tokens.get(self.at).or(self.tokens.last());
        let (line, column) = place.map_or((1, 1), |t| (t.line, t.column));
        Err(TextError { line, column, message: message.into() })
    }

    /// Takes a comment, if there is one.
    fn comment(&mut self) -> Option<String> {
        match self.here() {
            Some(Token::Comment(words)) => {
                let words = words.clone();
                self.at += 1;
                Some(words)
            }
            _ => None,
        }
    }

    fn skip_comments(&mut self) {
        while self.comment().is_some() {}
    }

    fn is(&mut self, mark: char) -> bool {
        self.skip_comments();
        let found = self.here() == Some(&Token::Mark(mark));
        self.at += usize::from(found);
        found
    }

    fn need(&mut self, mark: char) -> Read<()> {
        if self.is(mark) { Ok(()) } else { self.error(format!("expected `{mark}`")) }
    }

    fn is_word(&mut self, word: &str) -> bool {
        self.skip_comments();
        let found = matches!(self.here(), Some(Token::Word(w)) if w == word);
        self.at += usize::from(found);
        found
    }

    fn need_word(&mut self, word: &str) -> Read<()> {
        if self.is_word(word) { Ok(()) } else { self.error(format!("expected `{word}`")) }
    }

    fn word(&mut self, what: &str) -> Read<String> {
        self.skip_comments();
        match self.here() {
            Some(Token::Word(w)) => {
                let w = w.clone();
                self.at += 1;
                Ok(w)
            }
            _ => self.error(format!("expected {what}")),
        }
    }

    /// An integer, possibly negative, as 64 bits.
    fn integer(&mut self) -> Read<i64> {
        let negative = self.is('-');
        self.skip_comments();
        match self.here() {
            Some(Token::Int(n)) if !negative || *n <= 1 << 63 => {
                let n = *n as i64;
                self.at += 1;
                Ok(if negative { n.wrapping_neg() } else { n })
            }
            _ => self.error("expected an integer"),
        }
    }

    fn small(&mut self) -> Read<u32> {
        let n = self.integer()?;
        u32::try_from(n).or_else(|_| {
            self.at -= 1;
            self.error(format!("{n} is out of range"))
        })
    }

    fn module(&mut self) -> Read<Module> {
        let mut module = Module::new();
        // Comments before the head do not belong to a kernel.
        self.need_word(".version")?;
        module.version = self.version()?;
        self.need_word(".target")?;
        let name = self.word("a processor (`sm_80`)")?;
        module.target = Target::named(&name).map_or_else(
            || {
                self.at -= 1;
                let known: Vec<String> = Target::KNOWN.iter().map(|(t, _)| t.to_string()).collect();
                self.error(format!("`{name}` is not a known processor: {}", known.join(", ")))
            },
            Ok,
        )?;
        self.need_word(".address_size")?;
        if self.small()? != 64 {
            self.at -= 1;
            return self.error("`.address_size` must be 64");
        }
        let mut comments = Vec::new();
        while self.here().is_some() {
            if let Some(words) = self.comment() {
                comments.push(words);
            } else if self.is_word(".visible") {
                self.need_word(".entry")?;
                let kernel = self.kernel(std::mem::take(&mut comments))?;
                module.kernels.push(kernel);
            } else if self.is_word(".extern") {
                let shared = self.shared(true)?;
                module.shared.push(shared);
            } else if matches!(self.here(), Some(Token::Word(w)) if w == ".shared") {
                let shared = self.shared(false)?;
                module.shared.push(shared);
            } else {
                return self.error("expected `.visible .entry`, `.shared` or `.extern .shared`");
            }
        }
        Ok(module)
    }

    /// `7.0`, which is a `Word` token after `.version`.
    fn version(&mut self) -> Read<Version> {
        const FORM: &str = "a version is `7.0`";
        let text = self.word(FORM)?;
        let parts = text.split_once('.').and_then(|(a, b)| Some(Version(a.parse().ok()?, b.parse().ok()?)));
        parts.map_or_else(
            || {
                self.at -= 1;
                self.error(FORM)
            },
            Ok,
        )
    }

    /// `.shared .align 16 .b8 tile[512];`
    fn shared(&mut self, dynamic: bool) -> Read<Shared> {
        self.need_word(".shared")?;
        self.need_word(".align")?;
        let align = self.small()?;
        self.need_word(".b8")?;
        let name = self.word("a name")?;
        self.need('[')?;
        let bytes = if dynamic { None } else { Some(self.small()?) };
        self.need(']')?;
        self.need(';')?;
        Ok(Shared { name, align, bytes })
    }

    fn param(&mut self) -> Read<Param> {
        self.need_word(".param")?;
        if self.is_word(".align") {
            let align = self.small()?;
            self.need_word(".b8")?;
            let name = self.word("a name")?;
            self.need('[')?;
            let bytes = self.small()?;
            self.need(']')?;
            return Ok(Param { name, ty: ParamType::Bytes(align, bytes) });
        }
        let ty = self.ty()?;
        if self.is_word(".ptr") {
            self.need_word(".global")?;
            self.need_word(".align")?;
            let align = self.small()?;
            if ty != Type::U64 {
                return self.error("a pointer is `.param .u64 .ptr .global .align 16 name`");
            }
            return Ok(Param { name: self.word("a name")?, ty: ParamType::Pointer(align) });
        }
        Ok(Param { name: self.word("a name")?, ty: ParamType::Scalar(ty) })
    }

    fn ty(&mut self) -> Read<Type> {
        let word = self.word("a type (`.u32`)")?;
        let found = Type::ALL.iter().copied().find(|t| t.text() == word);
        found.map_or_else(
            || {
                self.at -= 1;
                let near = did_you_mean(&word, Type::ALL.iter().map(|t| t.text()));
                self.error(format!("`{word}` is not a type{}", hint(near)))
            },
            Ok,
        )
    }

    fn extents(&mut self) -> Read<[u32; 3]> {
        let mut all = [self.small()?, 1, 1];
        for n in &mut all[1..] {
            if !self.is(',') {
                break;
            }
            *n = self.small()?;
        }
        Ok(all)
    }

    fn kernel(&mut self, comments: Vec<String>) -> Read<Kernel> {
        let mut kernel = Kernel::new(self.word("a kernel's name")?);
        kernel.comments = comments;
        self.registers.clear();
        self.need('(')?;
        if !self.is(')') {
            loop {
                let param = self.param()?;
                kernel.params.push(param);
                if self.is(')') {
                    break;
                }
                self.need(',')?;
            }
        }
        while !self.is('{') {
            let word = self.word("`{` or a directive")?;
            match word.as_str() {
                ".reqntid" => kernel.threads = Threads::Exactly(self.extents()?),
                ".maxntid" => kernel.threads = Threads::AtMost(self.extents()?),
                ".minnctapersm" => kernel.min_blocks = Some(self.small()?),
                ".reqnctapercluster" => kernel.cluster = Some(self.extents()?),
                _ => {
                    self.at -= 1;
                    let known = [".reqntid", ".maxntid", ".minnctapersm", ".reqnctapercluster"];
                    return self.error(format!("`{word}` is not a directive here{}", hint(did_you_mean(&word, known))));
                }
            }
        }
        loop {
            if let Some(words) = self.comment() {
                kernel.body.push(Line::Comment(words));
            } else if self.is('}') {
                return Ok(kernel);
            } else if self.is_word(".reg") {
                self.registers(&mut kernel)?;
            } else if matches!(self.here(), Some(Token::Word(w)) if w == ".shared") {
                let shared = self.shared(false)?;
                kernel.shared.push(shared);
            } else if let (Some(Token::Word(name)), Some(Token::Mark(':'))) =
                (self.here(), self.tokens.get(self.at + 1).map(|t| &t.token))
            {
                kernel.body.push(Line::Label(name.clone()));
                self.at += 2;
            } else {
                let inst = self.inst()?;
                kernel.body.push(Line::Inst(inst));
            }
        }
    }

    /// `.reg .b32 %a, %r<8>;`
    fn registers(&mut self, kernel: &mut Kernel) -> Read<()> {
        let ty = self.ty()?;
        let ty = match ty {
            Type::Pred | Type::F32 | Type::F64 => RegType::for_type(ty),
            // Integers are bits here.
            _ if matches!(ty.bits(), 16..)
                && !matches!(ty, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 | Type::Tf32) =>
            {
                RegType::for_type(ty)
            }
            _ => {
                self.at -= 1;
                return self.error("a register is `.pred`, `.b16`, `.b32`, `.b64`, `.f32` or `.f64`");
            }
        };
        loop {
            let name = self.word("a register (`%x`)")?;
            if self.is('<') {
                let n = self.small()?;
                if kernel.registers.len() + n as usize > MAX_REGISTERS {
                    self.at -= 1;
                    return self.error(format!("a kernel has at most {MAX_REGISTERS} registers"));
                }
                self.need('>')?;
                for i in 0..n {
                    self.register(kernel, format!("{name}{i}"), ty)?;
                }
            } else {
                self.register(kernel, name, ty)?;
            }
            if self.is(';') {
                return Ok(());
            }
            self.need(',')?;
        }
    }

    fn register(&mut self, kernel: &mut Kernel, name: String, ty: RegType) -> Read<()> {
        let reg = Reg(kernel.registers.len() as u32);
        if self.registers.insert(name.clone(), reg).is_some() {
            self.at -= 1;
            return self.error(format!("`{name}` is declared twice"));
        }
        kernel.registers.push(Register { name, ty });
        Ok(())
    }

    fn inst(&mut self) -> Read<Inst> {
        let guard = if self.is('@') {
            let negated = self.is('!');
            Some(Guard { reg: self.reg()?, negated })
        } else {
            None
        };
        let text = self.word("an instruction")?;
        let ops = Op::named(&text);
        if ops.is_empty() {
            self.at -= 1;
            return self.error(unknown(&text));
        }
        let of_label = ops.iter().any(|op| op.slots().iter().any(|s| s.kind == OperandKind::Label));
        let mut operands = Vec::new();
        if !self.is(';') {
            loop {
                let operand = self.operand(of_label)?;
                operands.push(operand);
                if self.is(';') {
                    break;
                }
                if !self.is(',') {
                    return self.error("expected `,` or `;`");
                }
            }
        }
        let fits = |op: &&Op| {
            let slots = op.slots();
            slots.iter().zip(&operands).all(|(slot, o)| has_form(slot, o)) && slots.len() >= operands.len()
        };
        match ops.iter().find(fits).or(ops.first()) {
            Some(op) => Ok(Inst { guard, op: *op, operands }),
            None => self.error(unknown(&text)),
        }
    }

    fn reg(&mut self) -> Read<Reg> {
        let name = self.word("a register (`%x`)")?;
        match self.registers.get(&name) {
            Some(r) => Ok(*r),
            None => {
                self.at -= 1;
                let near = did_you_mean(&name, self.registers.keys().map(String::as_str));
                self.error(format!("`{name}` is not a register of this kernel{}", hint(near)))
            }
        }
    }

    fn list(&mut self) -> Read<Vec<Reg>> {
        let mut regs = vec![self.reg()?];
        while self.is(',') {
            regs.push(self.reg()?);
        }
        self.need('}')?;
        Ok(regs)
    }

    fn operand(&mut self, is_label: bool) -> Read<Operand> {
        self.skip_comments();
        if self.is('{') {
            return Ok(Operand::Vector(self.list()?));
        }
        if self.is('[') {
            return self.address();
        }
        match self.here() {
            Some(Token::F32(bits)) => {
                let bits = *bits;
                self.at += 1;
                Ok(Operand::F32(bits))
            }
            Some(Token::F64(bits)) => {
                let bits = *bits;
                self.at += 1;
                Ok(Operand::F64(bits))
            }
            Some(Token::Int(_) | Token::Mark('-')) => Ok(Operand::Int(self.integer()?)),
            Some(Token::Word(w)) if is_label => {
                let label = w.clone();
                self.at += 1;
                Ok(Operand::Label(label))
            }
            Some(Token::Word(w)) if w == "_" => {
                self.at += 1;
                if self.is('|') { Ok(Operand::Pair(None, Some(self.reg()?))) } else { Ok(Operand::Sink) }
            }
            Some(Token::Word(w)) if w.starts_with('%') => {
                if let (false, Some(s)) = (self.registers.contains_key(w), self.specials.get(w)) {
                    let s = *s;
                    self.at += 1;
                    return Ok(Operand::Special(s));
                }
                let first = self.reg()?;
                if !self.is('|') {
                    return Ok(Operand::Reg(first));
                }
                if self.is_word("_") {
                    Ok(Operand::Pair(Some(first), None))
                } else {
                    Ok(Operand::Pair(Some(first), Some(self.reg()?)))
                }
            }
            Some(Token::Word(w)) => {
                let name = w.clone();
                self.at += 1;
                Ok(Operand::Symbol(name))
            }
            _ => self.error("expected an operand"),
        }
    }

    /// The rest of an address, after `[`.
    fn address(&mut self) -> Read<Operand> {
        self.skip_comments();
        let base = match self.here() {
            Some(Token::Word(w)) if !w.starts_with('%') => {
                let name = w.clone();
                self.at += 1;
                Base::Symbol(name)
            }
            _ => Base::Reg(self.reg()?),
        };
        if let Base::Reg(map) = base
            && self.is(',')
        {
            self.need('{')?;
            let at = self.list()?;
            self.need(']')?;
            return Ok(Operand::Tensor(map, at));
        }
        let offset = if self.is('+') || matches!(self.here(), Some(Token::Mark('-'))) { self.integer()? } else { 0 };
        let Ok(offset) = i32::try_from(offset) else {
            self.at -= 1;
            return self.error("an offset has 32 bits; add the rest to the register");
        };
        self.need(']')?;
        Ok(Operand::Address(Address { base, offset }))
    }
}

/// Does an operand have the syntactic form of the slot, regardless of its type?
fn has_form(slot: &Slot, o: &Operand) -> bool {
    match slot.kind {
        OperandKind::Register(_) => matches!(o, Operand::Reg(_)),
        OperandKind::Sunk(_) => matches!(o, Operand::Reg(_) | Operand::Sink),
        OperandKind::Nothing => matches!(o, Operand::Sink),
        OperandKind::Fraction => matches!(o, Operand::F32(_)),
        OperandKind::Value(_) | OperandKind::Flag(_) | OperandKind::Bytes16 | OperandKind::AtMost(_) => {
            matches!(o, Operand::Reg(_) | Operand::Int(_) | Operand::F32(_) | Operand::F64(_))
        }
        OperandKind::Source(_) => !matches!(o, Operand::Vector(_) | Operand::Address(_)),
        OperandKind::Vector(..) | OperandKind::Fragment(..) => matches!(o, Operand::Vector(_)),
        OperandKind::Pair(_) | OperandKind::SunkPair(_) => matches!(o, Operand::Pair(..)),
        OperandKind::Address(..) | OperandKind::Sized(..) | OperandKind::Opaque(_) => matches!(o, Operand::Address(_)),
        OperandKind::Tensor(_) => matches!(o, Operand::Tensor(..)),
        OperandKind::Number(..) | OperandKind::OneOf(_) => matches!(o, Operand::Int(_)),
        OperandKind::Label => matches!(o, Operand::Label(_)),
    }
}

fn hint(near: Option<&str>) -> String {
    near.map_or(String::new(), |near| format!("; did you mean `{near}`?"))
}

/// The error for an unknown opcode, with a suggestion: the nearest one with the same beginning,
/// preferring opcodes with the most modifiers in common; or the nearest beginning.
fn unknown(text: &str) -> String {
    let words: Vec<&str> = text.split('.').collect();
    let beginning = words.first().copied().unwrap_or_default();
    let shared = |candidate: &str| candidate.split('.').filter(|w| words.contains(w)).count();
    let all = || Op::all().iter().map(|op| op.text());
    let mut alike: Vec<String> = all().filter(|c| c.split('.').next() == Some(beginning)).collect();
    if alike.is_empty() {
        let beginnings: BTreeSet<String> = all().filter_map(|c| Some(c.split('.').next()?.to_string())).collect();
        let near = did_you_mean(beginning, beginnings.iter().map(String::as_str));
        return format!("there is no instruction `{text}`{}", hint(near));
    }
    alike.sort_by_key(|candidate| (std::cmp::Reverse(shared(candidate)), candidate.len().abs_diff(text.len())));
    let near = did_you_mean(text, alike.iter().map(String::as_str).take(200));
    format!("there is no instruction `{text}`{}", hint(near.or(alike.first().map(String::as_str))))
}
