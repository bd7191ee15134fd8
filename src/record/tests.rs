//! Tests of the record on texts small enough to check by hand.

use super::{File, Format, Record, Remark};
use serde_json::{Value, json};

fn record() -> Record {
    let text = "model M {\n}\n".to_string();
    Record { files: vec![File { name: "a/m.attn".into(), text }], ..Record::default() }
}

fn json_of(record: &Record) -> Value {
    serde_json::from_str(&record.json()).expect("JSON")
}

#[test]
fn equal_lines_are_stored_once() {
    let mut r = record();
    r.step(Format::Graph, "lowering", "func @f() {\n  %1 = add %0, %0 loc(4:9)\n  %2 = exp %1 loc(5:9)\n}\n");
    r.step(Format::Graph, "dce", "func @f() {\n  %1 = add %0, %0 loc(4:9)\n}\n");
    r.unchanged(Format::Graph, "cse");
    let j = json_of(&r);
    assert_eq!(j["lines"].as_array().map(Vec::len), Some(4));
    assert_eq!(j["lines"][1], json!(["  %1 = add %0, %0", [[0, 4, 9]]]));
    assert_eq!(j["texts"][1]["runs"], json!([0, 2, 3, 1]));
    let changed: Vec<_> = j["levels"][0]["steps"].as_array().into_iter().flatten().map(|s| &s["changed"]).collect();
    assert_eq!(changed, [&json!(true), &json!(true), &json!(false)]);
}

#[test]
fn the_steps_of_a_level_share_texts_with_others() {
    let mut r = record();
    let tiles = "kernel @k.0(%0: in f32[8]) {\n}\n";
    r.step(Format::Scheduled, "lowering", tiles);
    r.step(Format::Scheduled, "place", &format!("scheduled \"place\"\n{}", tiles.replace("k.0", "k.1")));
    r.result(Format::Scheduled, "schedule", &tiles.replace("k.0", "k.1"));
    r.step(Format::Tile, "lowering", tiles);
    r.result(Format::Tile, "schedule", "");
    let j = json_of(&r);
    // Levels are in the order of the pipeline, whichever came first; a known result adds no step.
    let steps: Vec<_> = (0..2).map(|n| json!([j["levels"][n]["name"], j["levels"][n]["steps"]])).collect();
    let step = |name: &str, text: usize| json!({"name": name, "changed": true, "text": text, "remarks": []});
    assert_eq!(steps[0], json!(["tile", [step("lowering", 0), step("schedule", 2)]]));
    assert_eq!(steps[1], json!(["scheduled", [step("lowering", 0), step("place", 1)]]));
}

#[test]
fn locations_are_read_with_files_and_parts() {
    let mut r = record();
    r.files.push(File { name: "std/nn.attn".into(), text: String::new() });
    r.step(
        Format::Graph,
        "lowering",
        "doc \"a loc(1:1)\"\n  %1 = fused map(%2 = %0) : f32[2] loc(\"nn.attn\":41:9, scores 3:17) {\n",
    );
    let j = json_of(&r);
    assert_eq!(j["lines"][0], json!(["doc \"a loc(1:1)\""]));
    assert_eq!(j["lines"][1], json!(["  %1 = fused map(%2 = %0) : f32[2] {", [[1, 41, 9], [0, 3, 17]]]));
}

#[test]
fn code_names_the_line_of_its_operation() {
    let mut r = record();
    let tiles = "kernel @k.0(%0: in f32[8], %1: out f32[8]) cpu(portable) {\n^bb0:\n  run (1, 8) loc(4:9) {\n    \
                 %2 = load %0[%3]     : tile f32[1, 8] @reg loc(4:9)\n  }\n}\n\nplan @f {\n  launch @k.0(%4, %5) loc(4:3)\n}\n";
    r.step(Format::Scheduled, "schedule", tiles);
    r.step(
        Format::Asm,
        "code",
        "portable.kernel.k.0:\n  # control flow\n    /*   0 */  push rbp\n  # m.attn:4:9  %2 = load %0[%3] : tile f32[1, 8] @reg\n    /*  1f */  mov rax, rbx\n",
    );
    r.step(
        Format::Ptx,
        "code",
        "// kernel @k.0(%0)\n    // | %2 = load %0[%3] : tile f32[1, 8] @reg  m.attn:4:9\n    ld.f32;\n",
    );
    let j = json_of(&r);
    let lines = j["lines"].as_array().cloned().unwrap_or_default();
    let of = |text: &str| lines.iter().find(|l| l[0] == text).map(|l| l[2].clone());
    assert_eq!(of("    push rbp"), Some(json!(0)));
    assert_eq!(of("    mov rax, rbx"), Some(json!(3)));
    assert_eq!(of("    ld.f32;"), Some(json!(3)));
}

#[test]
fn operations_without_a_location_have_that_of_the_launch() {
    let mut r = record();
    r.step(
        Format::Tile,
        "lowering",
        "kernel @k.0(%0: in f32[8]) {\n^bb0:\n  %1 = const 16\n}\nplan @f {\n  launch @k.0(%4) loc(4:3)\n}\n",
    );
    assert_eq!(json_of(&r)["lines"][2], json!(["  %1 = const 16", [[0, 4, 3]]]));
}

#[test]
fn buffers_live_from_the_first_to_the_last_launch() {
    let mut r = record();
    let text = "kernel @k.0(%0: in f32[8], %1: out f32[8]) cpu(portable) {\n}\nplan @f slots(32, 32, 32) {\n^bb0:\n  \
                %0 = arg 0 : buf f32[8]\n  %1 = slot 0 : buf f32[8]\n  %2 = slot 1 : buf f32[8]\n  %3 = slot 2 : buf f32[8]\n  \
                launch @k.0(%0, %1)\n  br ^bb1\n^bb1:\n  launch @k.0(%1, %2)\n  launch @k.0(%2, %3)\n  \
                br_if %9, ^bb1, ^bb2\n^bb2:\n  launch @k.0(%3, %8)\n}\n";
    r.step(Format::Scheduled, "schedule", text);
    let slots = vec![("32".to_string(), Some(32)); 3];
    r.plans.push(super::Plan { name: "plan f".into(), sizes: [].into(), slots, costs: Vec::new(), note: None });
    let plan = json_of(&r)["plans"][0].clone();
    let lives: Vec<_> =
        plan["buffers"].as_array().into_iter().flatten().map(|b| json!([b["slot"], b["first"], b["last"]])).collect();
    // Slot 0 is read in each iteration; slot 1 is written before it is read; slot 2 is read after
    // the loop.
    assert_eq!(lives, [json!([0, 0, 2]), json!([1, 1, 2]), json!([2, 1, 3])]);
    assert_eq!(plan["slots"][2]["offset"], 128);
}

#[test]
fn remarks_of_stages_have_a_location() {
    let mut r = record();
    r.step(Format::Graph, "lowering", "func @f() {\n}\n");
    r.remark_lines(Format::Graph, "lowering", "remark: m.attn:4:9: not fused: a: b\nremark: general\n");
    let at = Some((0, 4, 9));
    r.remark(
        Format::Graph,
        Remark {
            pass: "dce".into(),
            at,
            function: "f".into(),
            missed: Some("axis".into()),
            message: "x".into(),
            notes: Vec::new(),
            edit: None,
        },
    );
    let j = json_of(&r);
    assert_eq!(j["remarks"][0]["at"], json!([0, 4, 9]));
    assert_eq!(j["remarks"][0]["message"], "not fused: a: b");
    assert_eq!(j["remarks"][1]["at"], Value::Null);
    assert_eq!(j["levels"][0]["steps"][0]["remarks"], json!([0, 1, 2]));
}
