//! Faults that the verifier names, with the kernel, the line and a way out.

use attnc::ptx::text::{parse, print};
use attnc::ptx::{Line, Module, Op, Operand, Target, Threads, Version, verify};

/// A right kernel: a sum over rows of four floats, with a loop, a branch, shared memory and a reduction over lanes.
const TEXT: &str = "\
.version 7.0
.target sm_80
.address_size 64

.extern .shared .align 16 .b8 more[];

.visible .entry rows(
    .param .u64 .ptr .global .align 16 x,
    .param .u64 .ptr .global .align 4 y,
    .param .u32 n
)
.reqntid 128, 1, 1
{
    .reg .pred %last, %first;
    .reg .b64 %x, %y, %at;
    .reg .b32 %n, %i, %lane, %tile, %bits;
    .reg .f32 %a, %b, %c, %d, %sum, %other;
    .shared .align 16 .b8 tile[512];

    ld.param.u64 %x, [x];
    ld.param.u64 %y, [y];
    ld.param.u32 %n, [n];
    cvta.to.global.u64 %x, %x;
    cvta.to.global.u64 %y, %y;
    mov.u32 %lane, %tid.x;
    mov.u32 %tile, tile;
    mad.lo.u32 %tile, %lane, 4, %tile;
    mov.f32 %sum, 0f00000000;
    mov.u32 %i, %lane;
loop:
    setp.ge.u32 %last, %i, %n;
    @%last bra done;
    mad.wide.u32 %at, %i, 16, %x;
    ld.global.nc.v4.f32 {%a, %b, %c, %d}, [%at];
    add.rn.f32 %sum, %sum, %a;
    fma.rn.f32 %sum, %b, %c, %sum;
    add.rn.f32 %sum, %sum, %d;
    add.u32 %i, %i, 128;
    bra loop;
done:
    st.shared.f32 [%tile], %sum;
    bar.sync 0;
    setp.eq.u32 %first, %lane, 0;
    @!%first bra end;
    ld.shared.f32 %other, [tile+4];
    mov.b32 %bits, %other;
    shfl.sync.bfly.b32 %bits, %bits, 1, 31, -1;
    mov.b32 %other, %bits;
    add.rn.f32 %sum, %sum, %other;
    st.global.f32 [%y], %sum;
end:
    ret;
}
";

/// What is replaced, by what, and what the verifier says of it: the line and the beginning of the message.
const FAULTS: &[(&str, &str, &str)] = &[
    // Heads.
    (
        ".version 7.0",
        ".version 6.5",
        "line 1: `.version 6.5` does not know sm_80; the least that does is `.version 7.0`",
    ),
    ("8 more[]", "8 rows[]", "line 1: `rows` is declared twice; rename one"),
    (
        ".align 16 .b8 more[]",
        ".align 24 .b8 more[]",
        "line 1: `more` is aligned to 24; that must be a power of two, 1 to 1024",
    ),
    (".param .u32 n\n", ".param .u32 y\n", "kernel `rows`, line 7: `y` is declared twice; rename one"),
    ("done:", "tile:", "kernel `rows`, line 7: `tile` is declared twice; rename one"),
    (
        "tile[512]",
        "tile[49153]",
        "kernel `rows`, line 7: 49153 bytes of shared memory are declared, but at most 49152 are allowed; declare `.extern",
    ),
    (
        ".reqntid 128, 1, 1",
        ".reqntid 32, 33, 1",
        "kernel `rows`, line 7: a block of 32 x 33 x 1 threads; it has 1 to 1024",
    ),
    (".reqntid 128, 1, 1", ".reqntid 1, 1, 65", "kernel `rows`, line 7: a block of 1 x 1 x 65 threads"),
    (".reqntid 128, 1, 1", ".reqntid 0", "kernel `rows`, line 7: a block of 0 x 1 x 1 threads"),
    (
        ".reqntid 128, 1, 1",
        ".reqntid 128\n.reqnctapercluster 2",
        "kernel `rows`, line 7: clusters need sm_90, the module is for sm_80; set",
    ),
    (
        ".param .u32 n\n",
        ".param .u32 n, .param .align 4 .b8 big[4336]\n",
        "kernel `rows`, line 7: 4356 bytes of parameters, but at most 4352 are allowed",
    ),
    (".ptr .global .align 4 y", ".ptr .global .align 3 y", "kernel `rows`, line 7: `y` is aligned to 3"),
    // Registers and opcodes.
    (
        "%last, %first;",
        "%last, %first, %tid;",
        "kernel `rows`, line 7: `%tid` is a register of the language; rename it",
    ),
    (
        "add.u32 %i, %i, 128",
        "add.u32 %i, %sum, 128",
        "kernel `rows`, line 38: `add.u32 %i, %sum, 128`: operand a: `%sum` is .f32, expected .b32; move it with mov.b32 first",
    ),
    (
        "add.u32 %i, %i, 128",
        "add.u64 %at, %i, 128",
        "kernel `rows`, line 38: `add.u64 %at, %i, 128`: operand a: `%i` is .b32, expected .b64; convert it with cvt first",
    ),
    (
        "add.u32 %i, %i, 128",
        "add.u32 %i, %i, 4294967296",
        "kernel `rows`, line 38: `add.u32 %i, %i, 4294967296`: operand b: 4294967296 does not fit in 32 bits",
    ),
    (
        "mov.f32 %sum, 0f00000000",
        "mov.f32 %sum, 0",
        "kernel `rows`, line 28: `mov.f32 %sum, 0`: operand a: a number of type .f32 is written by its bits",
    ),
    (
        "add.rn.f32 %sum, %sum, %a",
        "add.rn.bf16 %sum, %sum, %a",
        "needs sm_90 or later, the module is for sm_80; set `.target sm_90`",
    ),
    ("fma.rn.f32 %sum, %b, %c, %sum", "fma.rn.f32 %sum, %b, %c", "3 operands; it takes 4: d, a, b, c"),
    ("st.global.f32 [%y], %sum", "st.global.f32 %y, %sum", "operand a: an address, `[%x+16]`, belongs here"),
    (
        "st.global.f32 [%y], %sum",
        "st.global.f32 [%lane], %sum",
        "operand a: `%lane` is .b32, expected .b64; convert it with cvt first",
    ),
    (
        "st.global.f32 [%y], %sum",
        "st.global.f32 [tile], %sum",
        "operand a: `tile` is not in global memory; use a register",
    ),
    ("{%a, %b, %c, %d}, [%at]", "{%a, %b, %c}, [%at]", "operand d: 3 registers in braces; it takes 4"),
    ("{%a, %b, %c, %d}, [%at]", "{%a, %b, %c, %a}, [%at]", "`%a` is written twice; use another register"),
    ("@%last bra done", "@%lane bra done", "`%lane` is not a predicate; compare it first (`setp.ne`)"),
    ("bar.sync 0", "bar.sync 16", "operand a: 16 is out of range: 0 to 15"),
    ("bar.sync 0", "bar.sync 0, 100", "operand b: 100 is out of range: 32 to 1024, a multiple of 32"),
    (
        "bar.sync 0",
        "mbarrier.init.shared.b64 [tile], 1;\n cp.async.bulk.commit_group",
        "`cp.async.bulk.commit_group`: needs sm_90 or later",
    ),
    ("bar.sync 0", "wgmma.fence.sync.aligned", "needs sm_90a, the module is for sm_80; set `.target sm_90a`"),
    (
        "bar.sync 0",
        "cp.async.cg.shared.global.L2::128B [tile], [%x], 16",
        "came with PTX 7.4, the module has 7.0; set `.version 7.4`",
    ),
    ("bar.sync 0", "cp.async.cg.shared.global [tile], [%x], 8", "operand cp-size: 8 is not allowed; it must be 16"),
    (
        "bar.sync 0",
        "cp.async.ca.shared.global [tile], [%x], 8, 9",
        "operand src-size: 9 is larger than the size of the copy",
    ),
    (
        "mov.u32 %tile, tile",
        "mov.u32 %tile, tiles",
        "operand a: there is no shared variable `tiles`; did you mean `tile`?",
    ),
    ("mov.u32 %tile, tile", "mov.u32 %tile, n", "operand a: the address of parameter `n` has 64 bits; use mov.b64"),
    ("mov.u32 %lane, %tid.x", "mov.u32 %lane, %clock64", "operand a: %clock64 is .u64; use mov.u64"),
    ("mov.u32 %lane, %tid.x", "mov.u32 %lane, %cluster_ctarank", "needs sm_90 or later"),
    ("ld.param.u32 %n, [n]", "ld.param.u32 %n, [m]", "operand a: there is no parameter `m`"),
    ("ld.param.u32 %n, [n]", "ld.param.u32 %n, [n+4]", "operand a: it ends at byte 8, the variable has 4"),
    (
        "ld.shared.f32 %other, [tile+4]",
        "ld.shared.f32 %other, [tile+512]",
        "operand a: it ends at byte 516, the variable has 512",
    ),
    (
        "ld.shared.f32 %other, [tile+4]",
        "ld.shared.f32 %other, [tile+-4]",
        "operand a: it begins 4 bytes before the variable",
    ),
    // Control.
    ("@%last bra done", "@%last bra dome", "there is no label `dome` in this kernel; did you mean `done`?"),
    ("end:\n    ret;", "end:\n    @%first ret;", "control runs off the end of the kernel; end it with `ret`"),
    (
        "    ret;\n",
        "    ret;\nmore_to_do:\n",
        "`more_to_do:`: control runs off the end of the kernel; end it with `ret`",
    ),
    // Definitions.
    (
        "mov.f32 %sum, 0f00000000;\n",
        "\n",
        "`%sum` is not written on every path to here; write it before the branch, or on both sides",
    ),
    ("    mov.u32 %i, %lane;\n", "", "`%i` is not written on every path to here"),
    ("add.rn.f32 %sum, %sum, %d", "add.rn.f32 %sum, %sum, %other", "`%other` is not written on every path to here"),
    ("setp.eq.u32 %first, %lane, 0;", "", "`%first` is never written; write it first"),
    (
        "    ld.shared.f32 %other, [tile+4]",
        "    @!%last ld.shared.f32 %other, [tile+4]",
        "`mov.b32 %bits, %other`: `%other` is not written on every path",
    ),
    // Alignment.
    (
        ".align 16 x",
        ".align 8 x",
        "operand a: the address must be a multiple of 16, but is only known to be a multiple of 8; declare the parameter `.ptr .global .align 16`",
    ),
    (
        "%i, 16, %x",
        "%i, 12, %x",
        "operand a: the address must be a multiple of 16, but is only known to be a multiple of 4",
    ),
    (
        "%c, %d}, [%at]",
        "%c, %d}, [%at+8]",
        "operand a: the address is 8 more than a multiple of 16, but 16 bytes are accessed",
    ),
    ("[tile+4]", "[tile+6]", "operand a: the address is 2 more than a multiple of 4, but 4 bytes are accessed"),
    (
        "mad.lo.u32 %tile, %lane, 4, %tile",
        "mad.lo.u32 %tile, %lane, 4, %tile;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%bits}, [%tile]",
        "operand p: the address must be a multiple of 16, but is only known to be a multiple of 4",
    ),
];

fn errors(module: &Module) -> Vec<String> {
    verify(module).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn the_kernel_is_right() {
    let module = parse(TEXT).expect("it is read");
    assert_eq!(errors(&module), [""; 0]);
    assert_eq!(print(&module), TEXT);
    assert_eq!(module.lowest(), (Version(7, 0), Target::SM_80));
}

#[test]
fn faults_are_named() {
    for (from, to, message) in FAULTS {
        assert!(TEXT.contains(from), "`{from}` is not in the text");
        let module = parse(&TEXT.replacen(from, to, 1)).unwrap_or_else(|e| panic!("{to}: {e}"));
        let errors = errors(&module);
        assert!(errors.iter().any(|e| e.contains(message)), "{from} -> {to}: expected {message}, found {errors:#?}");
        // The line is that of the printed text.
        let text = print(&module);
        for e in verify(&module).expect_err("a fault").iter().filter(|e| !e.shown.is_empty()) {
            assert_eq!(text.lines().nth(e.line - 1).map(|l| l.trim().trim_end_matches(';')), Some(e.shown.as_str()));
        }
    }
}

/// A value that is written under a predicate may be read under it, behind a branch that asks it, or where the other side wrote it too.
#[test]
fn predicates_are_followed() {
    let with = |body: &str| {
        format!(
            ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u32 n)\n{{\n.reg .b32 %n, %x, %y;\n.reg .pred %p, %q;\n\
             ld.param.u32 %n, [n];\nsetp.eq.u32 %p, %n, 1;\nsetp.eq.u32 %q, %n, 2;\n{body}\nret;\n}}\n"
        )
    };
    let right = [
        "@%p mov.u32 %x, 1;\n@%p add.u32 %y, %x, 1;",
        "@%p mov.u32 %x, 1;\n@!%p mov.u32 %x, 2;\nadd.u32 %y, %x, 1;",
        "@!%p bra skip;\nmov.u32 %x, 1;\nskip:\n@%p add.u32 %y, %x, 1;",
        "@%p mov.u32 %x, 1;\n@!%p bra skip;\nadd.u32 %y, %x, 1;\nskip:\n",
        "@%p bra one;\nmov.u32 %x, 1;\nbra both;\none:\nmov.u32 %x, 2;\nboth:\nadd.u32 %y, %x, 1;",
        "@%p bra one;\n@!%p mov.u32 %x, 1;\nbra both;\none:\nmov.u32 %x, 2;\nboth:\nadd.u32 %y, %x, 1;",
        "mov.u32 %x, 0;\nagain:\nadd.u32 %x, %x, 1;\nsetp.lt.u32 %p, %x, 9;\n@%p bra again;",
    ];
    for body in right {
        let module = parse(&with(body)).expect(body);
        assert_eq!(errors(&module), [""; 0], "{body}");
    }
    let wrong = [
        "@%p mov.u32 %x, 1;\nadd.u32 %y, %x, 1;",
        "@%p mov.u32 %x, 1;\n@!%p add.u32 %y, %x, 1;",
        "@%p mov.u32 %x, 1;\n@%q add.u32 %y, %x, 1;",
        "@%p mov.u32 %x, 1;\nsetp.eq.u32 %p, %n, 3;\n@%p add.u32 %y, %x, 1;",
        "@%p mov.u32 %x, 1;\nsetp.eq.u32 %p, %n, 3;\n@!%p mov.u32 %x, 2;\nadd.u32 %y, %x, 1;",
        "@!%p bra skip;\nmov.u32 %x, 1;\nskip:\n@!%p add.u32 %y, %x, 1;",
        "@%p bra one;\nmov.u32 %x, 1;\none:\nadd.u32 %y, %x, 1;",
        "@%p mov.u32 %x, 1;\n@%p bra skip;\nadd.u32 %y, %x, 1;\nskip:\n",
    ];
    for body in wrong {
        let module = parse(&with(body)).expect(body);
        assert!(
            errors(&module).iter().any(|e| e.contains("`%x` is not written on every path")),
            "{body}: {:?}",
            errors(&module)
        );
    }
}

/// Modules that no text can be: registers that are not there, opcodes that are not legal.
#[test]
fn broken_modules_are_refused() {
    let module = parse(TEXT).expect("it is read");
    let change = |f: &dyn Fn(&mut Module)| {
        let mut module = module.clone();
        f(&mut module);
        errors(&module)
    };
    let first = |m: &mut Module, f: &dyn Fn(&mut attnc::ptx::Inst)| {
        for line in &mut m.kernels[0].body {
            if let Line::Inst(i) = line {
                return f(i);
            }
        }
    };
    let missing = change(&|m| first(m, &|i| i.operands[0] = Operand::Reg(attnc::ptx::Reg(99))));
    assert!(missing.iter().any(|e| e.contains("there is no register 99; declare it")), "{missing:?}");
    let illegal =
        change(&|m| first(m, &|i| i.op = Op::Add { sat: attnc::ptx::words::Sat::Clamp, ty: attnc::ptx::Type::F16 }));
    assert!(illegal.iter().any(|e| e.contains("`add.sat.f16` is not a PTX instruction")), "{illegal:?}");
    let empty = change(&|m| m.kernels[0].body.clear());
    assert!(empty.iter().any(|e| e.contains("the kernel has no instruction")), "{empty:?}");
    let unknown = change(&|m| m.target = Target { sm: 70, alone: false });
    assert!(unknown.iter().any(|e| e.contains("`.target sm_70` is not a known processor")), "{unknown:?}");
    let name = change(&|m| m.kernels[0].registers[0].name = "last".into());
    assert!(name.iter().any(|e| e.contains("`last` is not the name of a register; write `%x`")), "{name:?}");
    let huge = change(&|m| m.kernels[0].threads = Threads::AtMost([u32::MAX, u32::MAX, u32::MAX]));
    assert!(huge.iter().any(|e| e.contains("it has 1 to 1024")), "{huge:?}");
}
