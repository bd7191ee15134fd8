//! Printing and reading back.

use std::collections::BTreeSet;

use attnc::ptx::text::{parse, print};
use attnc::ptx::{Line, Op, Operand, RegType, verify};

use crate::generate;

/// Every opcode with random operands, labels, comments, guards: what is read back is what was printed.
#[test]
fn random_modules_are_read_back() {
    let (mut count, mut opcodes) = (0, BTreeSet::new());
    for seed in 0..400 {
        let module = generate::module(seed);
        let text = print(&module);
        let back = parse(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
        assert_eq!(back, module, "seed {seed}\n{text}");
        assert_eq!(print(&back), text, "seed {seed}");
        count += generate::count(&module);
        for line in module.kernels.iter().flat_map(|k| &k.body) {
            if let Line::Inst(i) = line {
                opcodes.insert(i.op.text());
            }
        }
        // What is generated is right, but for modules of two generations.
        if let Err(errors) = verify(&module) {
            let mixed = |e: &attnc::ptx::verify::Error| e.message.contains("needs sm_");
            assert!(errors.iter().all(mixed), "seed {seed}: {}\n{text}", errors[0]);
        }
    }
    assert!(count > 20_000, "{count}");
    assert!(opcodes.len() > 1500, "{}", opcodes.len());
}

/// A text decides the opcode: alone, or with the form of the operands.
#[test]
fn opcodes_have_one_text() {
    assert!(Op::all().len() > 2500, "{}", Op::all().len());
    for op in Op::all() {
        let same = Op::named(&op.text());
        assert!(same.contains(op), "{}", op.text());
        let forms: BTreeSet<String> = same.iter().map(|op| format!("{:?}", op.slots())).collect();
        assert_eq!(forms.len(), same.len(), "{} has two meanings", op.text());
        assert!(op.is_legal() && !op.meaning().is_empty() && op.section().contains(": "), "{}", op.text());
    }
}

/// What people write: several statements on a line, ranges of registers, hexadecimal numbers, comments between.
#[test]
fn other_styles_are_read() {
    let text = "\
// a module
.version 7.0
.target sm_80
.address_size 64
.shared .align 16 .b8 both[64];
/* the first
   kernel */
.visible .entry one(.param .u64 .ptr .global .align 16 x, .param .u32 n)
.maxntid 64
{ .reg .pred %p<2>; .reg .u32 %r<3>; .reg .b64 %x; // registers
  ld.param.u64 %x, [x]; ld.param.u32 %r0, [n];
  mov.u32 %r1, /* here */ -0x10; mov.u32 %r2, both;
  setp.eq.s32 %p0, %r0, %r1; @!%p0 bra END;
  st.shared.u32 [%r2 + 0x4], %r1; st.shared.u32 [%r2-4], %r1; END: ret;
}
";
    let module = parse(text).expect("it is read");
    let printed = print(&module);
    let expected = "\
.version 7.0
.target sm_80
.address_size 64

.shared .align 16 .b8 both[64];

// a module
.visible .entry one(
    .param .u64 .ptr .global .align 16 x,
    .param .u32 n
)
.maxntid 64, 1, 1
{
    .reg .pred %p0, %p1;
    .reg .b32 %r0, %r1, %r2;
    .reg .b64 %x;

    // registers
    ld.param.u64 %x, [x];
    ld.param.u32 %r0, [n];
    mov.u32 %r1, -16;
    mov.u32 %r2, both;
    setp.eq.s32 %p0, %r0, %r1;
    @!%p0 bra END;
    st.shared.u32 [%r2+4], %r1;
    st.shared.u32 [%r2+-4], %r1;
END:
    ret;
}
";
    // The comment before the head belongs to nobody.
    assert_eq!(printed, expected.replace("// a module\n", ""));
    assert_eq!(parse(&printed).expect("read again"), module);
}

/// Names that are taken, or that the language keeps, get another.
#[test]
fn registers_have_names_of_their_own() {
    let mut k = attnc::ptx::Kernel::new("names");
    let names: Vec<_> = ["row", "row", "tid", "a.b", "", "laneid"].map(|n| k.register(n, RegType::B32)).into();
    let names: Vec<&str> = names.iter().map(|r| k.reg(*r).expect("declared").name.as_str()).collect();
    assert_eq!(names, ["%row", "%row_1", "%tid_1", "%a_b", "%_1", "%laneid_1"]);
}

/// Each error names its place and, where a name is nearly right, the name that is meant.
#[test]
fn errors_of_texts_have_places() {
    let text = |body: &str| {
        format!(
            ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u32 n)\n{{\n.reg .b32 %row, %sum;\n.reg .f32 %x;\n{body}\nret;\n}}\n"
        )
    };
    let cases = [
        ("add.u33 %row, %row, 1;", "8:1: there is no instruction `add.u33`; did you mean `add.u32`?"),
        ("fma.f32 %x, %x, %x, %x;", "8:1: there is no instruction `fma.f32`; did you mean `fma.rn.f32`?"),
        (
            "ld.global.v4.f16 %x, [%x];",
            "8:1: there is no instruction `ld.global.v4.f16`; did you mean `ld.global.v4.b16`?",
        ),
        (
            "shfl.sync.bfly %row, %row, 1, 31, -1;",
            "8:1: there is no instruction `shfl.sync.bfly`; did you mean `shfl.sync.bfly.b32`?",
        ),
        ("adds.u32 %row, %row, 1;", "8:1: there is no instruction `adds.u32`; did you mean `add`?"),
        ("mov.u32 %row, %sun;", "8:15: `%sun` is not a register of this kernel; did you mean `%sum`?"),
        ("mov.u32 %row %sum;", "8:14: expected `,` or `;`"),
        ("mov.u32 %row, 1.5;", "8:15: this is not a number in PTX"),
        ("mov.u32 %row, 0f3F80;", "8:15: this is not a number in PTX"),
        ("mov.u32 %row, [%row+4294967296];", "8:21: an offset has 32 bits"),
        ("mov.u32 %row, #;", "8:15: unexpected `#`"),
        (".reg .f16 %h;", "8:6: a register is `.pred`"),
        (".reg .b32 %row;", "8:11: `%row` is declared twice"),
        (".reg .b32 %r<99999999>;", "8:14: a kernel has at most 65536 registers"),
    ];
    for (body, message) in cases {
        let error = parse(&text(body)).expect_err(body).to_string();
        assert!(error.starts_with(message), "{body}: {error}");
    }
    for (from, to, message) in [
        (".target sm_80", ".target sm_70", "2:9: `sm_70` is not a known processor: sm_80, "),
        (".version 7.0", ".version seven", "1:10: a version is `7.0`"),
        (".address_size 64", ".address_size 32", "3:15: `.address_size` must be 64"),
        (".visible .entry", ".entry", "4:1: expected `.visible .entry`, `.shared` or `.extern .shared`"),
        ("\n{\n", "\n.reqntids 32\n{\n", "5:1: `.reqntids` is not a directive here; did you mean `.reqntid`?"),
        ("ret;\n}\n", "ret;\n", "9:4: expected an instruction"),
    ] {
        let error = parse(&text("").replacen(from, to, 1)).expect_err(from).to_string();
        assert!(error.starts_with(message), "{from}: {error}");
    }
}

/// Any text is an error or a module: broken texts of all kinds, cut and stirred.
#[test]
fn broken_texts_are_errors() {
    let mut random = attnc::random::Random::new(7);
    let mut errors = 0;
    for seed in 0..60 {
        let text: Vec<char> = print(&generate::module(seed)).chars().collect();
        for _ in 0..20 {
            let mut broken = text.clone();
            for _ in 0..1 + random.below(4) {
                let (at, other) = (random.below(broken.len()), random.below(broken.len()));
                match random.below(4) {
                    0 => broken.swap(at, other),
                    1 => _ = broken.remove(at),
                    2 => broken.truncate(at.max(1)),
                    _ => broken.insert(at, random.pick(&['{', '-', '[', '%', ';', '0', '\u{e9}', '|', ':'])),
                }
            }
            let broken: String = broken.iter().collect();
            match parse(&broken) {
                Ok(module) => {
                    // The verifier takes everything that is read.
                    let _ = verify(&module);
                    assert_eq!(parse(&print(&module)).expect("read again"), module);
                }
                Err(_) => errors += 1,
            }
        }
    }
    assert!(errors > 500, "{errors}");
}

/// The operands of an instruction name its registers, those that it reads and those that it writes.
#[test]
fn uses_and_definitions() {
    let mut random = attnc::random::Random::new(3);
    for op in Op::all() {
        let mut g = generate::start("k", 2, &mut random);
        let at = g.add(*op, true, &mut random);
        let Line::Inst(i) = &g.kernel.body[at] else { panic!("an instruction") };
        let (uses, defs) = i.uses_and_defs();
        let all: BTreeSet<_> = i.operands.iter().flat_map(Operand::regs).chain(i.guard.map(|g| g.reg)).collect();
        assert_eq!(uses.into_iter().chain(defs).collect::<BTreeSet<_>>(), all, "{}", op.text());
    }
}
