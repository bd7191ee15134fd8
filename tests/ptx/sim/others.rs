//! Loads, stores and atomic operations in all their variants: types, vectors, caches, orders, scopes, spaces.

use attnc::ptx::sim::Mode;
use attnc::ptx::words::{Atomic, Space};
use attnc::ptx::{Op, Type};
use attnc::random::Random;

use super::Case;
use super::every_op::{class, mask, value};

/// Does a loop of this file execute an opcode?
pub(crate) fn covers(op: &Op) -> bool {
    access(*op).is_some() || matches!(op, Op::Atom { .. } | Op::Cas { .. } | Op::Red { .. })
}

/// The space, elements and type of a load or a store, and whether it loads.
fn access(op: Op) -> Option<(Space, u32, Type, bool)> {
    Some(match op {
        Op::Ld { vector, ty, .. } | Op::LdReadOnly { vector, ty, .. } => (Space::Global, vector.count(), ty, true),
        Op::LdShared { vector, ty } => (Space::Shared, vector.count(), ty, true),
        Op::LdOrdered { space, ty, .. } => (space, 1, ty, true),
        Op::St { vector, ty, .. } => (Space::Global, vector.count(), ty, false),
        Op::StShared { vector, ty } => (Space::Shared, vector.count(), ty, false),
        Op::StOrdered { space, ty, .. } => (space, 1, ty, false),
        _ => return None,
    })
}

fn target(op: Op) -> String {
    let least = op.needs().least();
    if least.sm < 90 { "sm_80".to_string() } else { least.to_string() }
}

/// A register, or several in braces.
fn list(n: u32) -> String {
    let names: Vec<String> = (0..n).map(|i| format!("%e{i}")).collect();
    if n == 1 { names.concat() } else { format!("{{{}}}", names.join(", ")) }
}

/// Each thread moves 16 bytes of `x` at most through registers to `y`, once by the opcode and once by plain accesses.
#[test]
fn loads_and_stores_move_what_they_say() {
    const THREADS: u32 = 32;
    let mut random = Random::new(21);
    let x: Vec<u8> = (0..THREADS * 16).map(|_| random.word() as u8).collect();
    let mut count = 0;
    for op in Op::all() {
        let Some((space, n, ty, loads)) = access(*op) else { continue };
        count += 1;
        let (class, _) = class(ty);
        let bytes = n * ty.bytes();
        let declared = format!(
            ".reg .b64 %from, %to, %all; .reg .b32 %place; .reg .{class} {};",
            (0..4).map(|i| format!("%e{i}")).collect::<Vec<_>>().join(", ")
        );
        let mut body = String::from(
            "mad.wide.u32 %from, %t, 16, %x;\nmad.wide.u32 %to, %t, 32, %y;\nmov.u32 %place, more;\nmad.lo.u32 %place, %t, 16, %place;\n",
        );
        // Plain accesses, an element at a time; registers that are wider than the type are stored whole.
        let plain = |body: &mut String, way: &str, base: &str, whole: bool| {
            for i in 0..n {
                let at = i * ty.bytes();
                match way {
                    "ld" => body.push_str(&format!("ld.{base}{} %e{i}, [%from+{at}];\n", dot(ty))),
                    _ if whole => {
                        body.push_str(&format!("cvt.u64.u16 %all, %e{i};\nst.global.u64 [%to+{}], %all;\n", 8 * i))
                    }
                    _ => body.push_str(&format!("st.global{} [%to+{at}], %e{i};\n", dot(ty))),
                }
            }
        };
        let place = if space == Space::Shared {
            "%place"
        } else if loads {
            "%from"
        } else {
            "%to"
        };
        let is_wide = ty.bits() == 8 && loads && n == 1;
        if loads {
            if space == Space::Shared {
                for i in 0..4 {
                    body.push_str(&format!(
                        "ld.global.b32 %r0, [%from+{}];\nst.shared.b32 [%place+{}], %r0;\n",
                        4 * i,
                        4 * i
                    ));
                }
            }
            body.push_str(&format!("{} {}, [{place}];\n", op.text(), list(n)));
            plain(&mut body, "st", "global", is_wide);
        } else {
            plain(&mut body, "ld", "global", false);
            body.push_str(&format!("{} [{place}], {};\n", op.text(), list(n)));
            if space == Space::Shared {
                for i in 0..n {
                    let at = i * ty.bytes();
                    body.push_str(&format!(
                        "ld.shared{} %e{i}, [%place+{at}];\nst.global{} [%to+{at}], %e{i};\n",
                        dot(ty),
                        dot(ty)
                    ));
                }
            }
        }
        let text = super::text(&target(*op), THREADS, &declared, &body);
        for mode in [Mode::EAGER, Mode::LATEST] {
            let mut case = Case::new(&text, THREADS, &x, 32 * THREADS as usize);
            case.launch(1, 4096, mode).unwrap_or_else(|r| panic!("{r}\n{text}"));
            for t in 0..THREADS as usize {
                let wanted = if is_wide {
                    // The register has the byte with its sign, if the type has one.
                    let v = value(u64::from(x[16 * t]), ty) as u64 & mask(16);
                    v.to_le_bytes().to_vec()
                } else {
                    x[16 * t..16 * t + bytes as usize].to_vec()
                };
                let found = case.device.read(case.y + 32 * t as u64, wanted.len()).expect("in a buffer");
                assert_eq!(found, wanted, "{}, thread {t}", op.text());
                let known = case.device.written(case.y + 32 * t as u64, 32).expect("in a buffer");
                assert_eq!(known.iter().filter(|k| **k).count(), wanted.len(), "{}", op.text());
            }
        }
    }
    assert!(count > 300, "{count}");
}

fn dot(ty: Type) -> String {
    let mut text = String::new();
    attnc::ptx::words::Word::put(&ty, &mut text);
    text
}

/// What an update makes of a word and an operand.
fn updated(op: Atomic, ty: Type, old: u64, b: u64) -> u64 {
    let (x, y) = (value(old, ty), value(b, ty));
    let word = |v: i128| v as u64 & mask(ty.bits());
    match (op, ty) {
        (Atomic::Add, Type::F32) => u64::from((f32::from_bits(old as u32) + f32::from_bits(b as u32)).to_bits()),
        (Atomic::Add, Type::F64) => (f64::from_bits(old) + f64::from_bits(b)).to_bits(),
        (Atomic::Add, _) => word(x + y),
        (Atomic::Min, _) => word(x.min(y)),
        (Atomic::Max, _) => word(x.max(y)),
        (Atomic::And, _) => old & b,
        (Atomic::Or, _) => old | b,
        (Atomic::Xor, _) => old ^ b,
        (Atomic::Increment, _) => {
            if x >= y {
                0
            } else {
                word(x + 1)
            }
        }
        (Atomic::Decrement, _) => {
            if x == 0 || x > y {
                b
            } else {
                word(x - 1)
            }
        }
        (Atomic::Exchange, _) => b,
    }
}

/// One thread updates a word, several times; what each update gives and leaves.
#[test]
fn updates_give_what_was_there_and_leave_what_they_say() {
    const TIMES: usize = 12;
    let mut random = Random::new(22);
    let mut count = 0;
    for op in Op::all() {
        let (space, ty, update, gives) = match *op {
            Op::Atom { space, op, ty, .. } => (space, ty, Some(op), true),
            Op::Red { space, op, ty, .. } => (space, ty, Some(op), false),
            Op::Cas { space, ty, .. } => (space, ty, None, true),
            _ => continue,
        };
        count += 1;
        let is_float = matches!(ty, Type::F32 | Type::F64);
        let mut word = || match ty {
            Type::F32 => u64::from(((random.unit() - 0.5) as f32 * 8.0).to_bits()),
            Type::F64 => (random.unit() - 0.5).to_bits(),
            // Small ones, so that counters wrap and words are met again.
            _ if random.chance(60) => random.word() % 4,
            _ => random.word() & mask(ty.bits()),
        };
        let rows: Vec<[u64; 2]> = (0..=TIMES).map(|_| [word(), word()]).collect();
        let (class, load) = class(ty);
        let declared = format!(".reg .b32 %place; .reg .{class} %old, %b, %c, %new;\n.reg .pred %others;");
        let space_name = if space == Space::Shared { "shared" } else { "global" };
        let at = if space == Space::Shared { "[%place]" } else { "[%y]" };
        let mut body = format!(
            "setp.ne.u32 %others, %t, 0;\n@%others bra end;\nmov.u32 %place, more;\nld.global.{load} %new, [%x];\nst.{space_name}.{load} {at}, %new;\n"
        );
        for n in 1..=TIMES {
            body.push_str(&format!(
                "ld.global.{load} %b, [%x+{}];\nld.global.{load} %c, [%x+{}];\n",
                16 * n,
                16 * n + 8
            ));
            let operands = if update.is_some() { "%b" } else { "%b, %c" };
            if gives {
                body.push_str(&format!(
                    "{} %old, {at}, {operands};\nst.global.{load} [%y+{}], %old;\n",
                    op.text(),
                    16 * n
                ));
            } else {
                body.push_str(&format!("{} {at}, {operands};\n", op.text()));
            }
            body.push_str(&format!(
                "ld.{space_name}.{load} %new, {at};\nst.global.{load} [%y+{}], %new;\n",
                16 * n + 8
            ));
        }
        body.push_str("end:");
        let text = super::text(&target(*op), 32, &declared, &body);
        let x: Vec<u8> = rows.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
        let mut case = Case::new(&text, 32, &x, 16 * (TIMES + 1));
        case.launch(1, 64, Mode::EAGER).unwrap_or_else(|r| panic!("{r}\n{text}"));
        let bytes = ty.bytes() as usize;
        let mut now = rows[0][0];
        for (n, [b, c]) in rows.iter().enumerate().skip(1) {
            let read = |case: &mut Case, at: u64| {
                let found = case.device.read(case.y + at, bytes).expect("in a buffer");
                found.iter().rev().fold(0u64, |v, byte| v << 8 | u64::from(*byte))
            };
            if gives {
                assert_eq!(read(&mut case, 16 * n as u64), now, "{}", op.text());
            }
            now = match update {
                Some(update) => updated(update, ty, now, *b),
                None => {
                    if now == *b {
                        *c
                    } else {
                        now
                    }
                }
            };
            assert_eq!(read(&mut case, 16 * n as u64 + 8), now, "{} (float: {is_float})", op.text());
        }
    }
    assert!(count > 300, "{count}");
}
