//! Does the verifier see what is wrong with a kernel that launches others? A loop that is right, `h = h / 2 + x[t]`, and changes to it, each
//! wrong in one way.

use crate::tile_scheduled::{check, refused};

const LOOP: &str = r#"module "persistent"
site "index {0} is out of range for an axis of {1}"

kernel @step(%x: in f32[16] aligned, %h: inout f32[16] aligned) grid(%i: ceil(16, 16)) gpu(sm_80, 2) scratch(64) {
^bb0:
  %n = const 16                             : index
  %half = const 0.5                         : f32
  %at = mul %i, %n                          : index
  run (1, 16) {
    %a = load %h[%at], cols=0               : tile f32[1, 16] @reg
    %b = mul %a, %half                      : tile f32[1, 16] @reg
    %c = load %x[%at], cols=0               : tile f32[1, 16] @reg
    %d = add %b, %c                         : tile f32[1, 16] @reg
    store %h[%at], %d, cols=0
  }
  return
}

kernel @some(%h: inout f32[16]) grid(%i: 16) {
^bb0:
  %n = load %h[%i], rows=0                  : tile f32[1, 1]
  store %h[%i], %n, rows=0
  return
}

kernel @loop(%x: in f32[S, 16] aligned, %h: inout f32[16] aligned) symbols(S) grid(%g: 4) gpu(sm_80, 4) scratch(128) {
^bb0:
  %zero = const 0                           : index
  %one = const 1                            : index
  %n = dim S                                : index
  br ^head(%zero)
^head(%t: index):
  %more = lt %t, %n                         : bool
  br_if %more, ^step, ^done
^step:
  %i = check_index %t, %n, site=0           : index
  %row = view %x[%i], strides=[16]          : buf f32[16]
  grid_barrier
  launch @step(%row, %h)
  %next = add %t, %one                      : index
  br ^head(%next)
^done:
  return
}

plan @forward symbols(S) slots(64) {
^bb0:
  %0 = arg 0                                : buf f32[S, 16]
  %1 = slot 0                               : buf f32[16]
  launch @loop(%0, %1)
  return
}
"#;

#[test]
fn a_right_loop_is_accepted() {
    check(LOOP).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn wrong_loops_are_refused() {
    let changes = [
        // Its grid and its block.
        ("grid(%g: 4)", "grid(%g: ceil(8, 2))", "one axis in steps of 1"),
        ("grid(%g: 4)", "grid(%g: 4, %f: 4)", "one axis in steps of 1"),
        ("gpu(sm_80, 4)", "gpu(sm_80, 3)", "1, 2, 4, 8, 16 or 32 warps, not 3"),
        ("gpu(sm_80, 4)", "gpu(sm_80, 0)", "a block has 1 to 32 warps, not 0"),
        // Blocks that do not all go the same way.
        ("br ^head(%zero)", "br ^head(%g)", "which block this is must not matter"),
        ("lt %t, %n  ", "lt %g, %n  ", "which block this is must not matter"),
        ("br ^head(%next)", "br ^again(%more)\n^again(%b: bool):\n  br ^head(%next)", "launches others take indices"),
        // What it launches.
        ("launch @step(%row, %h)", "launch @stop(%row, %h)", "launches @stop, which is not a kernel of the module"),
        ("launch @step(%row, %h)", "launch @step(%row)", "@step takes 2 operands, not 1"),
        ("launch @step(%row, %h)", "launch @step(%x, %h)", "operand 0 of @step is buf f32[S, 16]"),
        ("launch @step(%row, %h)", "launch @some(%h)", "@some does not work in runs on sm_80"),
        ("launch @step(%row, %h)", "launch @loop(%x, %h)", "@loop does not work in runs on sm_80"),
        ("gpu(sm_80, 2)", "gpu(sm_90a, 2)", "@step does not work in runs on sm_80 by at most 4 warps"),
        ("gpu(sm_80, 2)", "gpu(sm_80, 8)", "@step does not work in runs on sm_80 by at most 4 warps"),
        ("gpu(sm_80, 2) scratch(64)", "cpu(portable) scratch(64)", "@step does not work in runs on sm_80"),
        ("scratch(64)", "scratch(192)", "@step needs 192 bytes of scratch; there are 128"),
        (
            "%half = const 0.5                         : f32",
            "%all = blocks                             : index\n  %half = const 0.5                         : f32",
            "@step divides its points among blocks itself",
        ),
        (
            "%h: inout f32[16] aligned) grid(%i: ceil(16, 16))",
            "%h: inout f32[16] aligned) symbols(B) grid(%i: ceil(16, 16))",
            "@step uses the dimension B, which is not a symbol here",
        ),
        // What else stands in it.
        ("  grid_barrier\n", "  barrier\n  grid_barrier\n", "barrier: does not stand in a kernel that launches others"),
        (
            "  grid_barrier\n",
            "  %e = load %x[%i, %zero], cols=1           : tile f32[1, 16]\n  grid_barrier\n",
            "load: does not stand in a kernel that launches others",
        ),
        (
            "  grid_barrier\n",
            "  %e = load_scalar %x[%i, %zero]            : f32\n  %f = full %e                              : tile f32[1, 16]\n  %k = neg %f                               : tile f32[1, 16]\n  grid_barrier\n",
            "neg: a kernel that launches others has no tiles",
        ),
        (
            "  grid_barrier\n",
            "  run (1, 16) {\n    %e = load %x[%i, %zero], cols=1         : tile f32[1, 16] @reg\n  }\n  grid_barrier\n",
            "run: does not stand in a kernel that launches others",
        ),
        // Windows that nobody proved, and one that is written though it is read only.
        ("check_index %t, %n, site=0", "add %t, %one             ", "%row may end beyond what it is part of"),
        ("view %x[%i], strides=[16] ", "view %x[%i], strides=[32] ", "%row may end beyond what it is part of"),
        ("launch @step(%row, %h)", "launch @step(%row, %row)", "writes a buffer that is `in`"),
        // Where others stand.
        ("  launch @loop(%0, %1)", "  grid_barrier\n  launch @loop(%0, %1)", "grid_barrier: does not stand here"),
        ("  return\n}\n\nkernel @some", "  grid_barrier\n  return\n}\n\nkernel @some", "grid_barrier: does not stand"),
    ];
    for (from, to, message) in changes {
        refused(LOOP, from, to, message);
    }
}

/// Of a buffer without elements, whose rows overlap, there is no element.
#[test]
fn a_buffer_without_elements_has_no_part() {
    let line = |code: &str, ty: &str| format!("  {code:<41} : {ty}\n");
    let text = |before: &str| {
        let part = line("%part = view %y", "buf f32[7]");
        let rows = line("%2 = view %0", "buf f32[S, 8] strides[1, 1]");
        LOOP.replace("%x: in f32[S, 16] aligned, ", "%x: in f32[S, 16] aligned, %y: in f32[S, 8] strides[1, 1], ")
            .replace("  br ^head(%zero)\n", &format!("{before}{part}  br ^head(%zero)\n"))
            .replace("  launch @loop(%0, %1)", &format!("{rows}  launch @loop(%0, %2, %1)"))
    };
    check(&text(&line("%some = check_index %zero, %n, site=0", "index"))).unwrap_or_else(|e| panic!("{e}"));
    let found = check(&text("")).unwrap_err();
    assert!(found.contains("view: %part may end beyond what it is part of"), "{found}");
}
