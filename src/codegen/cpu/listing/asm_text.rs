//! Instructions as text from which the GNU assembler makes exactly the same bytes.
//!
//! In: a decoded instruction, its bytes, its text. Out: the text, with a pseudo-prefix where the
//! assembler would choose another encoding; or `.byte` with the text as a comment, where no prefix
//! helps. The assembler prefers the shortest jump, displacement and immediate, VEX to EVEX, a
//! prefix of two bytes to one of three, and for two registers the store form; `{disp32}`, `{evex}`,
//! `{vex3}`, `{load}` and others override that.

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

/// An instruction in assembler syntax.
pub(super) enum AsmText {
    Text(String),
    /// Emitted as `.byte`, with this comment.
    Bytes(String),
}

/// The encoding prefix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prefix {
    Legacy {
        rex: Option<u8>,
    },
    Vex2,
    /// Its second and third byte.
    Vex3(u8, u8),
    Evex,
}

/// Splits off the prefix; the rest starts with the opcode.
fn parts(bytes: &[u8]) -> (Prefix, &[u8]) {
    let start = bytes.iter().take_while(|b| matches!(b, 0x66 | 0xf2 | 0xf3 | 0x2e | 0x3e | 0xf0)).count();
    let rest = bytes.get(start..).unwrap_or_default();
    match rest {
        [0x62, _, _, _, op @ ..] => (Prefix::Evex, op),
        [0xc4, a, b, op @ ..] => (Prefix::Vex3(*a, *b), op),
        [0xc5, _, op @ ..] => (Prefix::Vex2, op),
        [rex @ 0x40..=0x4f, op @ ..] => (Prefix::Legacy { rex: Some(*rex) }, op),
        op => (Prefix::Legacy { rex: None }, op),
    }
}

fn fits(n: i64) -> bool {
    i8::try_from(n).is_ok()
}

/// Formats an instruction. `named`: does it refer to a label?
pub(super) fn asm_text(i: &Instruction, bytes: &[u8], text: String, named: bool) -> AsmText {
    let (prefix, op) = parts(bytes);
    let memory = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory);
    if by_bytes(i, prefix, op, memory) {
        return AsmText::Bytes(text);
    }
    let mut before = String::new();
    if i.op0_kind() == OpKind::NearBranch64 {
        // Four displacement bytes although one would do.
        let near = i64::try_from(i.near_branch_target()).unwrap_or(0);
        let start = i64::try_from(i.ip()).unwrap_or(0);
        let end = if near > start { start + i64::try_from(bytes.len()).unwrap_or(0) } else { start + 2 };
        if named && bytes.len() > 2 && i.mnemonic() != Mnemonic::Call && fits(near - end) {
            before += "{disp32} ";
        }
        return AsmText::Text(before + &text);
    }
    match prefix {
        Prefix::Evex if !needs_evex(i) => before += "{evex} ",
        // The disassembler lists these under AVX-512, where they first appeared.
        Prefix::Vex2 | Prefix::Vex3(..) if is_dot_of_bytes(i.mnemonic()) => before += "{vex} ",
        Prefix::Vex3(a, b) if a & 0x1f == 1 && b & 0x80 == 0 && a & 0x40 != 0 && !(memory && a & 0x20 == 0) => {
            before += "{vex3} ";
        }
        Prefix::Legacy { rex: Some(0x40) } if !(0..i.op_count()).any(|n| needs_rex(i.op_register(n))) => {
            before += "{rex} ";
        }
        _ => {}
    }
    if memory && !i.is_ip_rel_memory_operand() {
        before += displacement(i, prefix);
    }
    let registers = i.op_count() >= 2 && !memory;
    if registers && loads(prefix, op) {
        before += "{load} ";
    } else if registers && stores(prefix, op) {
        before += "{store} ";
    }
    AsmText::Text(before + &renamed(i, &text))
}

/// Must it be emitted as bytes, because no assembler syntax selects this encoding?
fn by_bytes(i: &Instruction, prefix: Prefix, op: &[u8], memory: bool) -> bool {
    let immediate = |n: u32| match i.op_kind(n) {
        OpKind::Immediate32to64 => Some(i.immediate32to64()),
        OpKind::Immediate32 => Some(i64::from(i.immediate32().cast_signed())),
        _ => None,
    };
    let long = immediate(i.op_count().saturating_sub(1));
    let Prefix::Legacy { .. } = prefix else { return false };
    match op {
        // A four-byte immediate where one byte would do, or where there is a shorter accumulator
        // encoding.
        [0x81 | 0x69, ..] if long.is_some_and(fits) => true,
        [0x81 | 0xf7 | 0x80 | 0xf6, ..] if is_accumulator(i.op0_register()) && has_immediate(i) => {
            matches!(op, [0x81 | 0x80, ..]) || i.mnemonic() == Mnemonic::Test
        }
        // `mov r32, imm32` has an encoding without a ModRM byte.
        [0xc7, ..] if !memory && i.code() == Code::Mov_rm32_imm32 => true,
        [0xc1 | 0xc0, ..] if i.immediate8() == 1 => true,
        // The assembler picks a shorter encoding for memory.
        _ if matches!(i.code(), Code::Movq_xmm_rm64 | Code::Movq_rm64_xmm) && memory => true,
        // A multi-byte `nop`.
        [0x0f, 0x1f, ..] => true,
        _ => matches!(i.mnemonic(), Mnemonic::Nop) && op.len() > 1,
    }
}

fn has_immediate(i: &Instruction) -> bool {
    (0..i.op_count()).any(|n| !matches!(i.op_kind(n), OpKind::Register | OpKind::Memory))
}

fn is_accumulator(r: Register) -> bool {
    matches!(r, Register::AL | Register::AX | Register::EAX | Register::RAX)
}

fn needs_rex(r: Register) -> bool {
    matches!(r, Register::SPL | Register::BPL | Register::SIL | Register::DIL)
}

/// Is it an instruction that AVX-512 had first and VEX later?
fn is_dot_of_bytes(m: Mnemonic) -> bool {
    matches!(m, Mnemonic::Vpdpbusd | Mnemonic::Vpdpbusds | Mnemonic::Vpdpwssd | Mnemonic::Vpdpwssds)
}

/// Is EVEX required, for a feature that VEX lacks?
fn needs_evex(i: &Instruction) -> bool {
    let high = |r: Register| {
        let n = r.number();
        r.is_zmm() || (r.is_vector_register() && n >= 16) || r.is_k()
    };
    let registers = (0..i.op_count()).filter(|n| i.op_kind(*n) == OpKind::Register).map(|n| i.op_register(n));
    registers.into_iter().any(high)
        || high(i.memory_index())
        || i.has_op_mask()
        || i.is_broadcast()
        || i.zeroing_masking()
}

/// The pseudo-prefix for a displacement longer than necessary.
fn displacement(i: &Instruction, prefix: Prefix) -> &'static str {
    let n = i.memory_displacement64().cast_signed();
    let base = i.memory_base();
    let bare = base == Register::None;
    let scaled = i64::try_from(i.memory_size().size()).unwrap_or(1).max(1);
    let short = match prefix {
        Prefix::Evex => n % scaled == 0 && fits(n / scaled),
        _ => fits(n),
    };
    match i.memory_displ_size() {
        1 if n == 0 && !matches!(base, Register::RBP | Register::R13 | Register::EBP | Register::R13D) => "{disp8} ",
        4 | 8 if short && !bare => "{disp32} ",
        _ => "",
    }
}

/// Is it the load encoding of a register-register instruction that also has a store encoding?
fn loads(prefix: Prefix, op: &[u8]) -> bool {
    let Prefix::Legacy { .. } = prefix else { return false };
    matches!(
        op,
        [
            0x02 | 0x03
                | 0x0a
                | 0x0b
                | 0x12
                | 0x13
                | 0x1a
                | 0x1b
                | 0x22
                | 0x23
                | 0x2a
                | 0x2b
                | 0x32
                | 0x33
                | 0x3a
                | 0x3b
                | 0x8a
                | 0x8b,
            ..
        ]
    )
}

/// Is it the store encoding of a vector register move?
fn stores(prefix: Prefix, op: &[u8]) -> bool {
    matches!(
        (prefix, op),
        (Prefix::Legacy { .. }, [0x0f, 0x11 | 0x29 | 0x7f, ..])
            | (Prefix::Vex2 | Prefix::Vex3(..) | Prefix::Evex, [0x11 | 0x29 | 0x7f, ..])
    )
}

/// Renames mnemonics to the GNU assembler's.
fn renamed(i: &Instruction, text: &str) -> String {
    match i.code() {
        Code::Mov_r64_imm64 => text.replacen("mov ", "movabs ", 1),
        _ => text.to_string(),
    }
}
