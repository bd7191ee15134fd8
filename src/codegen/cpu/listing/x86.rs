//! The listing of a function for x86-64.
//!
//! In: its bytes and comments. Out: lines for the GNU assembler, in Intel's syntax. Recursive
//! descent finds the instructions: control flow is followed from the entry, past calls and
//! conditional jumps and to the targets of jumps. The rest are constants and padding. The
//! instruction that reads a constant determines its width and type.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter as _, Instruction, IntelFormatter, MemorySize, OpKind,
    SymbolResolver, SymbolResult,
};

use super::asm_text::{AsmText, asm_text};
use super::{Function, Reference, Shown, symbol};

/// Comments begin at this column, unless the line is longer.
const COMMENT: usize = 72;
/// At most this many bytes of an instruction fit the column.
const BYTES: usize = 11;

/// A function and the labels found in it.
pub(super) struct Listing<'a> {
    function: &'a Function<'a>,
    shown: &'a Shown,
    bytes: bool,
    /// Instructions by offset.
    code: BTreeMap<u64, Instruction>,
    labels: BTreeMap<u64, String>,
    /// Constants: the operand type of the instruction that reads each.
    constants: BTreeMap<u64, MemorySize>,
}

/// Symbols for the disassembler's operands.
struct Names {
    address: u64,
    name: Option<String>,
}

impl SymbolResolver for Names {
    fn symbol(
        &mut self,
        instruction: &Instruction,
        _: u32,
        operand: Option<u32>,
        address: u64,
        _: u32,
    ) -> Option<SymbolResult<'_>> {
        let kind = instruction.op_kind(operand?);
        let is_place = matches!(kind, OpKind::Memory | OpKind::NearBranch64);
        let name = self.name.as_deref().filter(|_| is_place && address == self.address)?;
        Some(SymbolResult::with_str(address, name))
    }
}

impl<'a> Listing<'a> {
    /// Finds instructions, labels and constants.
    pub(super) fn new(number: usize, function: &'a Function<'a>, shown: &'a Shown, bytes: bool) -> Listing<'a> {
        let (code, labels, constants) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut listing = Listing { function, shown, bytes, code, labels, constants };
        let targets = listing.follow();
        for (n, at) in targets.into_iter().enumerate() {
            listing.labels.insert(at, format!(".L{number}_{n}"));
        }
        for (n, at) in listing.constants.keys().enumerate() {
            listing.labels.insert(*at, format!(".LC{number}_{n}"));
        }
        listing
    }

    fn end(&self) -> u64 {
        self.function.bytes.len() as u64
    }

    /// The relocation within the bytes of an instruction.
    fn reference(&self, i: &Instruction) -> Option<&'a Reference> {
        self.function.references.iter().find(|r| (i.ip()..i.next_ip()).contains(&r.at))
    }

    /// Decodes all reachable code and records the constants that it reads; returns the jump
    /// targets.
    fn follow(&mut self) -> BTreeSet<u64> {
        let mut targets = BTreeSet::new();
        let mut open = vec![0];
        open.extend(self.shown.starts.iter().map(|at| u64::from(*at)));
        let mut constants = BTreeMap::new();
        while let Some(start) = open.pop() {
            let Some(bytes) = usize::try_from(start).ok().and_then(|at| self.function.bytes.get(at..)) else {
                continue;
            };
            let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
            while decoder.can_decode() && !self.code.contains_key(&decoder.ip()) {
                let i = decoder.decode();
                if i.is_invalid() {
                    break;
                }
                self.code.insert(i.ip(), i);
                let own = self.reference(&i).is_none();
                let near = i.near_branch_target();
                let jumps =
                    matches!(i.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch);
                if own && jumps && i.op0_kind() == OpKind::NearBranch64 && near < self.end() {
                    targets.insert(near);
                    open.push(near);
                }
                if own && i.is_ip_rel_memory_operand() && i.ip_rel_memory_address() < self.end() {
                    constants.entry(i.ip_rel_memory_address()).or_insert(i.memory_size());
                }
                let goes_on = matches!(
                    i.flow_control(),
                    FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::Call | FlowControl::IndirectCall
                );
                if !goes_on {
                    break;
                }
            }
        }
        // An address of code is not a constant.
        targets.extend(constants.keys().filter(|at| self.code.contains_key(at)));
        constants.retain(|at, _| !self.code.contains_key(at));
        self.constants = constants;
        targets
    }

    pub(super) fn text(&self) -> String {
        let name = symbol(self.function.name);
        let mut out = String::new();
        let _ = writeln!(out, "\n    .balign {}", self.shown.alignment.max(1));
        let _ = writeln!(out, "    .type {name}, @function\n{name}:");
        let mut notes = self.shown.notes.iter().peekable();
        let mut at = 0;
        while at < self.end() {
            while let Some(note) = notes.next_if(|n| u64::from(n.at) <= at) {
                let _ = writeln!(out, "  # {}", note.text);
            }
            if let Some(label) = self.labels.get(&at) {
                let _ = writeln!(out, "{label}:");
            }
            match self.code.get(&at) {
                Some(i) => {
                    self.instruction(&mut out, i);
                    at = i.next_ip().max(at + 1);
                }
                None => at = self.data(&mut out, at),
            }
        }
        let _ = writeln!(out, "    .size {name}, . - {name}");
        out
    }

    /// The bytes at `from..to`.
    fn slice(&self, from: u64, to: u64) -> &'a [u8] {
        let place = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        self.function.bytes.get(place(from)..place(to)).unwrap_or_default()
    }

    /// The left margin: the address and, if requested, bytes.
    fn margin(&self, at: u64, bytes: &[u8]) -> String {
        let address = self.function.address + at;
        if !self.bytes {
            return format!("    /* {address:5x} */  ");
        }
        let hex: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
        format!("    /* {address:5x}: {:<width$} */  ", hex.join(" "), width = 3 * BYTES - 1)
    }

    fn instruction(&self, out: &mut String, i: &Instruction) {
        let bytes = self.slice(i.ip(), i.next_ip());
        let (text, mut comment) = match self.asm_text(i, bytes) {
            AsmText::Text(text) => (text, None),
            AsmText::Bytes(text) => (data(".byte", bytes.iter().map(|b| format!("{b:#04x}"))), Some(text)),
        };
        if i.is_ip_rel_memory_operand()
            && let Some(read) = self.constants.get(&i.ip_rel_memory_address())
        {
            let at = i.ip_rel_memory_address();
            let (size, _) = element(*read);
            let values = self.slice(at, at + read.size().max(size) as u64).chunks(size).map(|w| value(*read, w));
            // The value of all lanes, if it is the same.
            let same = values.reduce(|a, b| if a == b { a } else { None }).flatten();
            comment = comment.or(same);
        }
        let mut line = self.margin(i.ip(), bytes) + &text;
        if let Some(comment) = comment {
            let width = line.chars().count();
            let _ = write!(line, "{:pad$}# {comment}", "", pad = COMMENT.saturating_sub(width).max(2));
        }
        out.push_str(&line);
        out.push('\n');
    }

    /// An instruction in assembler syntax.
    fn asm_text(&self, i: &Instruction, bytes: &[u8]) -> AsmText {
        let reference = self.reference(i);
        let address = if i.is_ip_rel_memory_operand() { i.ip_rel_memory_address() } else { i.near_branch_target() };
        let name = match reference {
            Some(r) => {
                let more = match r.addend + i64::try_from(i.next_ip() - r.at).unwrap_or(0) {
                    0 => String::new(),
                    n => format!("{n:+}"),
                };
                Some(format!("{}{}{more}", symbol(&r.symbol), if r.indirect { "@GOTPCREL" } else { "" }))
            }
            None => self.labels.get(&address).cloned(),
        };
        let inside = name.is_some();
        let mut formatter = IntelFormatter::with_options(Some(Box::new(Names { address, name })), None);
        let options = formatter.options_mut();
        options.set_space_after_operand_separator(true);
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_uppercase_hex(false);
        options.set_rip_relative_addresses(true);
        options.set_show_branch_size(false);
        let signed = |k: OpKind| {
            matches!(
                k,
                OpKind::Immediate8to16 | OpKind::Immediate8to32 | OpKind::Immediate8to64 | OpKind::Immediate32to64
            )
        };
        options.set_signed_immediate_operands((0..i.op_count()).any(|n| signed(i.op_kind(n))));
        let mut text = String::new();
        formatter.format(i, &mut text);
        asm_text(i, bytes, text, inside)
    }

    /// Prints data up to the next label or instruction; returns where that is.
    fn data(&self, out: &mut String, at: u64) -> u64 {
        let next = |map: Option<u64>| map.unwrap_or(self.end());
        let after = (at + 1)..;
        let end = next(self.labels.range(after.clone()).next().map(|(n, _)| *n))
            .min(next(self.code.range(after).next().map(|(n, _)| *n)));
        let bytes = self.slice(at, end);
        let Some(read) = self.constants.get(&at) else {
            // Padding before aligned data.
            let first = bytes.first().copied().unwrap_or_default();
            let text = if bytes.iter().all(|b| *b == first) {
                format!(".fill {}, 1, {first:#04x}", bytes.len())
            } else {
                data(".byte", bytes.iter().map(|b| format!("{b:#04x}")))
            };
            let _ = writeln!(out, "{}{text}", self.margin(at, &[]));
            return end;
        };
        let (size, word) = element(*read);
        let whole = read.size().min(bytes.len()) / size * size;
        let (own, room) = bytes.split_at(whole.max(size.min(bytes.len())));
        for row in own.chunks(16.max(size)) {
            let words = row.chunks(size).map(|w| {
                let digits: String = w.iter().rev().map(|b| format!("{b:02x}")).collect();
                format!("0x{digits}")
            });
            let values: Vec<String> = row.chunks(size).filter_map(|w| value(*read, w)).collect();
            let line = format!("{}{}", self.margin(at, &[]), data(word, words));
            let width = line.chars().count();
            let pad = COMMENT.saturating_sub(width).max(2);
            let comment = match values.as_slice() {
                [] => String::new(),
                [first, others @ ..] if others.iter().all(|v| v == first) => format!("{:pad$}# {first}", ""),
                all => format!("{:pad$}# {}", "", all.join(", ")),
            };
            let _ = writeln!(out, "{line}{comment}");
        }
        if !room.is_empty() {
            let room = room.iter().map(|b| format!("{b:#04x}"));
            let _ = writeln!(out, "{}{}", self.margin(at + own.len() as u64, &[]), data(".byte", room));
        }
        end
    }
}

/// A directive with its values.
fn data(directive: &str, values: impl Iterator<Item = String>) -> String {
    format!("{directive} {}", values.collect::<Vec<_>>().join(", "))
}

/// Element size in bytes, and the directive, for an operand type.
fn element(read: MemorySize) -> (usize, &'static str) {
    match read.element_size() {
        2 => (2, ".short"),
        4 => (4, ".long"),
        8 => (8, ".quad"),
        _ => (1, ".byte"),
    }
}

/// A decimal number for the comment; `None` where hexadecimal is as readable. A subnormal float is
/// shown as an integer: integer vectors are loaded by float instructions, too.
fn value(read: MemorySize, bytes: &[u8]) -> Option<String> {
    Some(match (read.element_type(), bytes) {
        (MemorySize::Float32, [a, b, c, d]) => {
            let x = f32::from_le_bytes([*a, *b, *c, *d]);
            if x.is_subnormal() { x.to_bits().to_string() } else { format!("{x:?}") }
        }
        (MemorySize::Float64, bytes) => format!("{:?}", f64::from_le_bytes(bytes.try_into().ok()?)),
        (MemorySize::Int32 | MemorySize::UInt32, [a, b, c, d]) => format!("{}", i32::from_le_bytes([*a, *b, *c, *d])),
        _ => return None,
    })
}
