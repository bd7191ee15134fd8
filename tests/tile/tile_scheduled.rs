//! Does the verifier see what is wrong with a kernel scheduled for a CPU? Kernels that are right (a row softmax times a
//! matrix; a softmax in tiles that lie on their sides; products of weights in fewer bytes), and changes to them, each wrong in one way.

use attnc::source::SourceMap;
use attnc::tile::{text, verify};

const KERNEL: &str = r#"module "scheduled"

kernel @k(%x: in f32[S, 8], %w: in f32[8, 8], %y: out f32[S, 8]) symbols(S) grid(%i: ceil(S, 4)) cpu(portable) scratch(1088) {
^bb0:
  %four = const 4                           : index
  %at = mul %i, %four                       : index
  %all = dim S                              : index
  %rest = sub %all, %at                     : index
  %m = min %rest, %four                     : index
  %zero = const 0                           : index
  %none = const 0.0                         : f32
  run (%m<=4, 8) {
    %t = load %x[%at, %zero], rows=0, cols=1 : tile f32[%m<=4, 8] @l1(0)
    %high = reduce_max %t, axis=1           : tile f32[%m<=4, 1] @l1(256)
  }
  run (%m<=4, 8) {
    %d = sub %t, %high                      : tile f32[%m<=4, 8] @reg
    %p = exp %d                             : tile f32[%m<=4, 8] @l1(0)
    %sum = reduce_sum %p, axis=1            : tile f32[%m<=4, 1] @l1(256)
    %acc0 = full %none                      : tile f32[%m<=4, 8] @l1(832)
  }
  run (8, 8) {
    %b = load %w[%zero, %zero], rows=0, cols=1 : tile f32[8, 8] @l1(320)
  }
  %acc1 = dot %p, %b, %acc0, mode=chain     : tile f32[%m<=4, 8] @l1(832)
  run (%m<=4, 8) {
    %q = div %acc1, %sum                    : tile f32[%m<=4, 8] @reg
    store %y[%at, %zero], %q, rows=0, cols=1
  }
  return
}
"#;

pub(crate) fn check(source: &str) -> Result<(), String> {
    let mut sources = SourceMap::new();
    let file = sources.add("scheduled.tir", source);
    let parsed = text::parse(source, file).map_err(|d| attnc::diagnostics::render_all(&d, &sources, false))?;
    assert_eq!(text::print(&parsed.module), source);
    verify::verify(&parsed.module).map(|_| ()).map_err(|e| e.to_string())
}

#[test]
fn a_right_schedule_is_accepted() {
    check(KERNEL).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn wrong_schedules_are_refused() {
    let changes = [
        // `%p` would be in the matrix's memory before the product has read it.
        ("tile f32[8, 8] @l1(320)", "tile f32[8, 8] @l1(0)", "which is still needed"),
        ("tile f32[%m<=4, 1] @l1(256)\n    %acc0", "tile f32[%m<=4, 1] @l1(832)\n    %acc0", "which is still needed"),
        ("scratch(1088)", "scratch(1024)", "ends at byte 1088 of 1024"),
        ("@l1(832)\n  run", "@l1(512)\n  run", "%acc1 overwrites %b while it is read"),
        // The accumulator is overwritten, but it is an operand besides.
        (
            "%acc1 = dot %p, %b, %acc0, mode=chain     : tile f32[%m<=4, 8] @l1(832)",
            "%acc1 = dot %p, %b, %p, mode=chain        : tile f32[%m<=4, 8] @l1(0)",
            "%acc1 overwrites %p while it is read",
        ),
        // In place, but not the same place.
        (
            "%p = exp %d                             : tile f32[%m<=4, 8] @l1(0)",
            "%p = exp %d                             : tile f32[%m<=4, 8] @l1(64)",
            "while it is read",
        ),
        (
            "%d = sub %t, %high                      : tile f32[%m<=4, 8] @reg",
            "%d = sub %t, %high                      : tile f32[%m<=4, 8]",
            "in no space of a run",
        ),
        (
            "%high = reduce_max %t, axis=1           : tile f32[%m<=4, 1] @l1(256)",
            "%high = reduce_max %t, axis=1           : tile f32[%m<=4, 1] @reg",
            "%high is in registers of another run",
        ),
        ("%q = div %acc1, %sum ", "%q = div %acc1, %d ", "in registers of another run"),
        ("%d = sub %t, %high ", "%d = sub %t, %sum ", "operand 2 does not dominate it"),
        ("%p = exp %d ", "%p = exp %b ", "operand 1 does not dominate it"),
        ("run (8, 8) {", "run (%m<=4, 8) {", "has other extents than the run"),
        (
            "%acc1 = dot %p, %b, %acc0, mode=chain     : tile f32[%m<=4, 8] @l1(832)",
            "%acc1 = dot %p, %b, %acc0, mode=chain     : tile f32[%m<=4, 8] @reg",
            "accumulator and result are in scratch",
        ),
        (
            "  %none = const 0.0                         : f32\n",
            "  %none = const 0.0                         : f32\n  %f = full %none                           : tile f32[4, 4] @l1(0)\n",
            "full: work on elements stands in a run",
        ),
        (
            "  %none = const 0.0                         : f32\n",
            "  %none = const 0.0                         : f32\n  %f = load %x[%at, %zero], rows=0, cols=1  : tile f32[%m<=4, 8] @l1(0)\n",
            "work on elements stands in a run",
        ),
        ("cpu(portable) scratch(1088) ", "", "run: does not stand here"),
        ("store %y[%at, %zero], %q", "store %y[%at, %zero], %sum", "has the extents of the run"),
        ("store %y[%at, %zero], %q", "store %x[%at, %zero], %q", "writes a buffer that is `in`"),
        ("@l1(320)", "@l1(328)", "not aligned to 64 bytes"),
        ("@l1(320)", "@l1(320, padded)", "padded rows in a kernel that is scheduled for a CPU"),
        (
            "    %high = reduce_max %t, axis=1",
            "    %low = reduce_min %t, axis=0            : tile f32[1, 8] @l1(1024)\n    %high = reduce_max %t, axis=1",
            "reduces along both axes",
        ),
        ("  return", "  br ^bb0", "the entry cannot be the target of a jump"),
    ];
    for (from, to, message) in changes {
        refused(KERNEL, from, to, message);
    }
}

/// The other orientation: a tile is turned, its columns' softmax is taken with reductions along the rows, and it is turned
/// back.
const TURNED: &str = r#"module "scheduled"

kernel @k(%x: in f32[S, 8], %y: out f32[S, 8]) symbols(S) grid(%i: ceil(S, 4)) cpu(avx512) scratch(1088) {
^bb0:
  %four = const 4                           : index
  %at = mul %i, %four                       : index
  %all = dim S                              : index
  %rest = sub %all, %at                     : index
  %m = min %rest, %four                     : index
  %zero = const 0                           : index
  run (%m<=4, 8) {
    %t = load %x[%at, %zero], rows=0, cols=1 : tile f32[%m<=4, 8] @l1(0)
  }
  %u = transpose %t                         : tile f32[8, %m<=4] @l1(256)
  run (8, %m<=4) {
    %high = reduce_max %u, axis=0           : tile f32[1, %m<=4] @l1(0)
  }
  run (8, %m<=4) {
    %d = sub %u, %high                      : tile f32[8, %m<=4] @reg
    %p = exp %d                             : tile f32[8, %m<=4] @l1(256)
    %sum = reduce_sum %p, axis=0            : tile f32[1, %m<=4] @l1(0)
  }
  run (8, %m<=4) {
    %q = div %p, %sum                       : tile f32[8, %m<=4] @l1(256)
  }
  %v = transpose %q                         : tile f32[%m<=4, 8] @l1(768)
  run (%m<=4, 8) {
    store %y[%at, %zero], %v, rows=0, cols=1
  }
  return
}
"#;

#[test]
fn columns_are_reduced_and_tiles_turned() {
    check(TURNED).unwrap_or_else(|e| panic!("{e}"));
    let changes = [
        ("tile f32[%m<=4, 8] @l1(768)", "tile f32[%m<=4, 8] @l1(256)", "%v overwrites %q while it is read"),
        ("tile f32[8, %m<=4] @l1(256)\n  run", "tile f32[8, %m<=4] @l1(0)\n  run", "%u overwrites %t while it is read"),
        ("tile f32[8, %m<=4] @l1(256)\n  run", "tile f32[8, %m<=4] @reg\n  run", "operand and result are in scratch"),
        ("%v = transpose %q", "%v = transpose %d", "in registers of another run"),
        ("tile f32[1, %m<=4] @l1(0)", "tile f32[1, %m<=4] @l1(512)", "which is still needed"),
        ("tile f32[1, %m<=4] @l1(0)", "tile f32[1, %m<=4] @reg", "in registers of another run"),
        (
            "%v = transpose %q                         : tile f32[%m<=4, 8]",
            "%v = transpose %q                         : tile f32[8, %m<=4]",
            "makes tile f32[%m<=4, 8]",
        ),
        ("%d = sub %u, %high ", "%d = sub %u, %sum ", "operand 2 does not dominate it"),
        (
            "  run (%m<=4, 8) {\n    store",
            "  run (%m<=4, 8) {\n    %w = transpose %v                       : tile f32[8, %m<=4] @l1(256)\n    store",
            "does not stand in a run",
        ),
    ];
    for (from, to, message) in changes {
        refused(TURNED, from, to, message);
    }
}

#[test]
fn padded_rows_are_for_runs_alone() {
    let gpu = TURNED.replace("cpu(avx512)", "gpu(sm_80, 1)");
    check(&gpu).unwrap_or_else(|e| panic!("{e}"));
    refused(&gpu, "tile f32[%m<=4, 8] @l1(0)", "tile f32[%m<=4, 8] @l1(0, padded)", "made and read by runs alone");
    // What a run makes over what it reads lies as that does.
    let over = "%p = exp %d                             : tile f32[8, %m<=4] @l1(256)";
    refused(&gpu, over, &over.replace("(256)", "(256, padded)"), "%p overwrites %u while it is read");
}

const NARROW: &str = r#"module "narrow"

kernel @k(%x: in f32[4, 40], %w: in i8[2, 20, 8], %s: in f32[2, 2, 8], %h: in bf16[2, 40, 8], %y: out f32[4, 16]) grid(%i: ceil(16, 8)) cpu(portable) scratch(1024) {
^bb0:
  %zero = const 0                           : index
  %none = const 0.0                         : f32
  %eight = const 8                          : index
  %at = mul %i, %eight                      : index
  %a = window %x[%zero, %zero], rows=0, cols=1 : tile f32[4, 40] @window
  %b = load_scaled %w[%i, %zero, %zero], %s, bits=4 : tile f32[40, 8] @window
  %first = dot %a, %b, %none, mode=chain    : tile f32[4, 8] @l1(0)
  %c = window %h[%i, %zero, %zero], rows=1, cols=2 : tile f32[40, 8] @window
  %second = dot %a, %c, %first, mode=chain  : tile f32[4, 8] @l1(0)
  run (4, 8) {
    store %y[%zero, %at], %second, rows=0, cols=1
  }
  return
}
"#;

#[test]
fn narrow_operands_are_those_of_products() {
    check(NARROW).unwrap_or_else(|e| panic!("{e}"));
    let changes = [
        ("%s: in f32[2, 2, 8]", "%s: in f32[2, 1, 8]", "the scales have not the extents [2, 2, 8]"),
        ("%s: in f32[2, 2, 8]", "%s: in bf16[2, 2, 8]", "element types bf16 and f32 differ"),
        ("%s: in f32[2, 2, 8]", "%s: out f32[2, 2, 8]", "reads a buffer that is `out`"),
        ("%s: in f32[2, 2, 8]", "%s: inout f32[2, 2, 8]", "the buffers are `in`"),
        ("%w: in i8[2, 20, 8]", "%w: in i32[2, 20, 8]", "element types i32 and i8 differ"),
        ("%w: in i8[2, 20, 8]", "%w: in i8[2, 19, 8]", "the tile is larger than the buffer"),
        ("%w: in i8[2, 20, 8]", "%w: in i8[2, 20, 8] strides[320, 16, 2]", "columns dense"),
        ("bits=4", "bits=8", "the tile is larger than the buffer"),
        ("bits=4", "bits=3", "8 or 4 bits, not 3"),
        ("bits=4 : tile f32[40, 8] @window", "bits=4 : tile f32[40, 8] @l1(256)", "the tile is `@window`"),
        ("%w[%i, %zero, %zero], %s", "%w[%i, %zero], %s", "needs an index for each of the 3 axes"),
        ("%x: in f32", "%x: in bf16", "the right operand of `dot` alone"),
        ("%h: in bf16", "%h: inout bf16", "window: the buffer is `in`"),
        ("%h: in bf16", "%h: in f16", "element types f16 and f32 differ"),
        ("store %y[%zero, %at], %second", "store %y[%zero, %at], %b", "the right operand of `dot` alone"),
        ("%c, %first, mode=chain", "%c, %first, mode=fma", "dot: mode `fma`: portable does not support it"),
        // Panels of eight columns are half a vector there.
        ("cpu(portable)", "cpu(avx512)", "whole vectors of 16 lanes"),
        ("%w[%i, %zero, %zero], %s", "%w[%i, %zero, %at], %s", "whole vectors of 4 lanes"),
        ("%h[%i, %zero, %zero]", "%h[%i, %zero, %at]", "whole vectors of 4 lanes"),
        ("%h: in bf16[2, 40, 8]", "%h: in bf16[2, 40, 8] strides[320, 1, 40]", "whole vectors of 4 lanes"),
        // The last row has no elements at the row stride.
        ("%h: in bf16[2, 40, 8]", "%h: in bf16[2, 40, 7] strides[320, 8, 1]", "whole vectors of 4 lanes"),
    ];
    for (from, to, message) in changes {
        refused(NARROW, from, to, message);
    }
}

const PAIRS: &str = r#"module "pairs"

kernel @k(%x: in bf16[4, 40], %w: in bf16[20, 32, 2], %y: out f32[4, 20]) grid(%i: 1) cpu(avx512bf16) scratch(512) {
^bb0:
  %zero = const 0                           : index
  %one = const 1                            : index
  %none = const 0.0                         : f32
  %a = window %x[%zero, %zero], rows=0, cols=1 : tile f32[4, 40] @window
  %b = load_pairs %w[%zero, %zero, %zero]   : tile f32[40, 20] @window
  %c = dot %a, %b, %none, mode=pairs        : tile f32[4, 20] @l1(0)
  run (4, 20) {
    store %y[%zero, %zero], %c, rows=0, cols=1
  }
  return
}
"#;

#[test]
fn panels_of_pairs_have_whole_vectors() {
    check(PAIRS).unwrap_or_else(|e| panic!("{e}"));
    let changes = [
        ("%w: in bf16[20, 32, 2]", "%w: in bf16[20, 31, 2]", "whole vectors of 16 lanes"),
        ("%w: in bf16[20, 32, 2]", "%w: in bf16[20, 20, 2] strides[64, 2, 1]", "whole vectors of 16 lanes"),
        ("%w[%zero, %zero, %zero]", "%w[%zero, %one, %zero]", "whole vectors of 16 lanes"),
        ("%w[%zero, %zero, %zero]", "%w[%zero, %zero, %one]", "whole vectors of 16 lanes"),
        (", mode=pairs        :", "                    :", "a scheduled product has a mode"),
        ("cpu(avx512bf16)", "cpu(avx512)", "mode `pairs`: avx512 does not support it"),
        ("mode=pairs", "mode=tiles", "mode `tiles`: avx512bf16 does not support it"),
        ("mode=pairs", "mode=groups", "mode `groups`: the left operand must be `f32`"),
        ("mode=pairs", "mode=fma", "mode `fma`: the left operand must be `f32`"),
        ("%w: in bf16[20, 32, 2]", "%w: in bf16[20, 32, 2] strides[2050, 2, 1]", "near each other"),
        ("const 0.0 ", "const 1.0 ", "start with 0 or go on from a tile"),
    ];
    for (from, to, message) in changes {
        refused(PAIRS, from, to, message);
    }
    // Tiles take an odd number of steps too, pairs do not.
    let odd = PAIRS.replace("tile f32[4, 40]", "tile f32[4, 39]").replace("tile f32[40, 20]", "tile f32[39, 20]");
    let tiles = odd.replace("mode=pairs", "mode=tiles").replace("cpu(avx512bf16)", "cpu(amx)");
    check(&tiles).unwrap_or_else(|e| panic!("{e}"));
    refused(&tiles, "mode=tiles", "mode=pairs", "the number of steps must be even");
}

const PAIR_ROWS: &str = r#"module "pair_rows"

kernel @k(%x: in bf16[4, 40], %w: in f32[40, 20], %y: out f32[4, 20]) grid(%i: 1) cpu(avx512bf16) scratch(6144) {
^bb0:
  %zero = const 0                           : index
  %none = const 0.0                         : f32
  run (39, 20) {
    %l = load %w[%zero, %zero], rows=0, cols=1 : tile f32[39, 20] @l1(0)
  }
  %b = pair_rows %l                         : tile f32[40, 20] @l1(0)
  %a = window %x[%zero, %zero], rows=0, cols=1 : tile f32[4, 40] @window
  %c = dot %a, %b, %none, mode=pairs        : tile f32[4, 20] @l1(5120)
  run (4, 20) {
    store %y[%zero, %zero], %c, rows=0, cols=1
  }
  return
}
"#;

#[test]
fn pairs_of_rows_are_right_operands_alone() {
    check(PAIR_ROWS).unwrap_or_else(|e| panic!("{e}"));
    let changes = [
        (
            "%b = pair_rows %l                         : tile f32[40, 20] @l1(0)",
            "%b = pair_rows %l : tile f32[39, 20] @l1(0)",
            "one more to be even",
        ),
        (
            "%b = pair_rows %l                         : tile f32[40, 20] @l1(0)",
            "%b = pair_rows %l : tile f32[40, 19] @l1(0)",
            "the columns differ",
        ),
        (
            "%b = pair_rows %l                         : tile f32[40, 20] @l1(0)",
            "%b = pair_rows %l : tile f32[40, 20] @reg",
            "operand and result are in scratch",
        ),
        (
            "%b = pair_rows %l                         : tile f32[40, 20] @l1(0)",
            "%b = pair_rows %l : tile f32[40, 20] @l1(128)",
            "while it is read",
        ),
        (
            "store %y[%zero, %zero], %c, rows=0, cols=1",
            "store %y[%zero, %zero], %b, rows=0, cols=1",
            "the right operand of `dot` alone",
        ),
    ];
    for (from, to, message) in changes {
        refused(PAIR_ROWS, from, to, message);
    }
}

const GROUPS: &str = r#"module "groups"

kernel @k(%x: in f32[4, 96], %w: in i8[1, 96, 16], %s: in f32[1, 3, 16], %y: out f32[4, 16]) grid(%i: 1) cpu(avx2vnni) scratch(512) {
^bb0:
  %zero = const 0                           : index
  %none = const 0.0                         : f32
  %a = window %x[%zero, %zero], rows=0, cols=1 : tile f32[4, 96] @window
  %b = load_scaled %w[%i, %zero, %zero], %s, bits=8 : tile f32[96, 16] @window
  %c = dot %a, %b, %none, mode=groups       : tile f32[4, 16] @l1(0)
  run (4, 16) {
    store %y[%zero, %zero], %c, rows=0, cols=1
  }
  return
}
"#;

#[test]
fn groups_are_of_whole_panels() {
    check(GROUPS).unwrap_or_else(|e| panic!("{e}"));
    let changes = [
        ("cpu(avx2vnni)", "cpu(avx2)", "mode `groups`: avx2 does not support it"),
        // A panel of 32 columns there.
        ("cpu(avx2vnni)", "cpu(avx512)", "a panel of 32 columns"),
        ("%x: in f32[4, 96]", "%x: in f32[4, 96] strides[1, 4]", "32 steps side by side"),
        ("mode=groups", "mode=pairs", "mode `pairs`: avx2vnni does not support it"),
    ];
    for (from, to, message) in changes {
        refused(GROUPS, from, to, message);
    }
}

/// How products are summed is the schedule's to say.
#[test]
fn an_unscheduled_product_has_no_mode() {
    let open = r#"module "open"

kernel @k(%x: in f32[4, 8], %y: out f32[4, 4]) grid(%i: 1) {
^bb0:
  %zero = const 0                           : index
  %none = const 0.0                         : f32
  %a = load %x[%zero, %zero], rows=0, cols=1 : tile f32[4, 8]
  %b = load %x[%zero, %zero], rows=1, cols=0 : tile f32[8, 4]
  %c = dot %a, %b, %none                    : tile f32[4, 4]
  store %y[%zero, %zero], %c, rows=0, cols=1
  return
}
"#;
    check(open).unwrap_or_else(|e| panic!("{e}"));
}

pub(crate) fn refused(kernel: &str, from: &str, to: &str, message: &str) {
    assert!(kernel.contains(from), "the kernel has no {from:?}");
    let wrong = kernel.replacen(from, to, 1);
    let mut sources = SourceMap::new();
    let file = sources.add("scheduled.tir", wrong.as_str());
    let parsed = match text::parse(&wrong, file) {
        Ok(p) => p,
        Err(d) => panic!("{}", attnc::diagnostics::render_all(&d, &sources, false)),
    };
    match verify::verify(&parsed.module) {
        Ok(_) => panic!("accepted, though: {message}"),
        Err(e) => assert!(e.list.iter().any(|(_, m)| m.contains(message)), "wanted: {message}\n{e}"),
    }
}

/// A product of one row, whose columns lie side by side.
const SPLIT: &str = r#"module "split"

kernel @k(%x: in f32[1, 8] aligned, %w: in f32[8, 8192] aligned, %y: out f32[1, 8192]) grid(%i: 1, %j: ceil(8192, 64)) gpu(sm_80, 8) scratch(1024) {
^bb0:
  %n = const 64                             : index
  %none = const 0.0                         : f32
  %zero = const 0                           : index
  %at = mul %j, %n                          : index
  %a = window %x[%i, %zero], rows=0, cols=1 : tile f32[1, 8] @window
  %b = window %w[%zero, %at], rows=0, cols=1 : tile f32[8, 64] @window
  %c = dot %a, %b, %none, mode=split        : tile f32[1, 64] @l1(0)
  run (1, 64) {
    store %y[%i, %at], %c, rows=0, cols=1
  }
  return
}
"#;

/// Each column is a thread's in the end, and a warp has all of them: no more than threads, no more than 32 chunks of 16 bytes.
#[test]
fn a_block_has_threads_for_the_columns_of_a_split_product() {
    check(SPLIT).unwrap_or_else(|e| panic!("{e}"));
    check(&SPLIT.replace("gpu(sm_80, 8)", "gpu(sm_80, 2)")).unwrap_or_else(|e| panic!("{e}"));
    refused(SPLIT, "gpu(sm_80, 8)", "gpu(sm_80, 1)", "there must be at most 32 columns");
    refused(&SPLIT.replace("64", "256"), "gpu(sm_80, 8)", "gpu(sm_80, 16)", "there must be at most 128 columns");
}
