//! Round trips, canonical text, and errors.

use std::collections::BTreeSet;

use super::{parse, print};
use crate::diagnostics::render_all;
use crate::ir::Op;
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use crate::source::SourceMap;
use crate::table::Family;

/// Every operation and every kind of line, in canonical form.
const ALL: &str = include_str!("all.air");

fn canonical(text: &str) -> String {
    let mut sources = SourceMap::new();
    let file = sources.add("test.air", text);
    match parse(text, file) {
        Ok(p) => print(&p.module),
        Err(d) => panic!("{}", render_all(&d, &sources, false)),
    }
}

#[test]
fn canonical_text_reads_back() {
    assert_eq!(canonical(ALL), ALL);
}

#[test]
fn variants_become_canonical() {
    let text = "// a comment\nmodule \"a.attn\"\n\nfunc @f(%x \"x\": f32[S + S, 4],\n  %y \"y\" batch: f32[2*S,4]) -> (f32[S*2, 4]) {\n\
        ^start:\n  %z = const 1.50 : f32[]\n  %k = const 2 : index\n  %a = mul %x, %z : f32[2*S, 4] loc(1:2)\n\
        \n  %b = add %a, f32(1) : f32[2*S, 4]\n  br ^end(%b, %k)\n^end(%b0: f32[2*S, 4], %i: index):\n\
        \n  %c = add %b0, 0.1000000000001 : f32[2*S, 4]\n  return %c\n}";
    insta::with_settings!({
        snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/ir"),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::assert_snapshot!("text_variants", format!("{text}\n----------\n{}", canonical(text)));
    });
    assert_eq!(canonical(&canonical(text)), canonical(text));
}

#[test]
fn floats_read_back_exactly() {
    for bits in [0u32, 0x8000_0000, 1, 0x0080_0000, 0x3dcc_cccd, 0x7f7f_ffff, 0x7f80_0000, 0xff80_0000, 0x4b80_0001] {
        let x = f32::from_bits(bits);
        let text = format!(
            "module \"m\"\n\nfunc @f() -> (f32[2]) {{\n^bb0:\n  %0 = const {x:?}{} : f32[2]\n  return %0\n}}\n",
            " ".repeat(26usize.saturating_sub(format!("{x:?}").len() + 1))
        );
        let parsed = parse(&text, Default::default()).unwrap();
        let f = &parsed.module.functions[0];
        let v = f.insts().next().and_then(|(_, _, d)| d.result).unwrap();
        assert_eq!((f.as_const(v).unwrap().as_f64() as f32).to_bits(), bits);
        assert_eq!(canonical(&canonical(&text)), canonical(&text));
    }
}

#[test]
fn constants_of_small_floats_are_rounded() {
    for (elem, written, shown) in [("bf16", "1.001", "1.0"), ("f16", "1.0001", "1.0"), ("f16", "70000.0", "inf")] {
        let text = format!(
            "module \"m\"\nfunc @f(%0 \"x\": {elem}[2]) -> ({elem}[2], {elem}[2]) {{\n^bb0:\n  %1 = div %0, {elem}({written}) : {elem}[2]\n  \
             %2 = const {written} : {elem}[2]\n  return %1, %2\n}}\n"
        );
        let f = &parse(&text, Default::default()).unwrap().module.functions[0];
        let constants: Vec<f64> = f
            .insts()
            .filter_map(|(_, _, d)| match d.op {
                Op::Const(s) => Some(s.as_f64()),
                _ => None,
            })
            .collect();
        let wanted: f64 = shown.parse().unwrap();
        assert_eq!(constants, [wanted, wanted], "{elem} {written}");
    }
}

/// A new operation must be added to `all.air`, which shows its syntax. (Families of operations have
/// one example.)
#[test]
fn every_form_is_shown() {
    let words: BTreeSet<&str> = ALL.split_whitespace().collect();
    let alike = |name: &str| {
        let reduces = ReduceKind::named(name).is_some();
        reduces || UnaryOp::named(name).is_some() || BinaryOp::named(name).is_some() || CmpOp::named(name).is_some()
    };
    for row in Op::table().iter().filter(|row| !alike(row.name)) {
        assert!(words.contains(row.name), "`{}` is not in src/ir/text/all.air", row.name);
    }
}
