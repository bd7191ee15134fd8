//! Can the scheduled form carry Ampere's asynchronous copies and Hopper's pipelines of specialised warps? Two kernels of attention
//! written by hand parse, verify and print back the same. Each change below breaks a pipeline, and the verifier must say how.

use attnc::source::SourceMap;
use attnc::tile::{Module, text, verify};

const SM80: &str = include_str!("../witnesses/attention_sm80.tir");
const SM90A: &str = include_str!("../witnesses/attention_sm90a.tir");

fn parse(source: &str) -> Module {
    let mut sources = SourceMap::new();
    let file = sources.add("witness.tir", source);
    match text::parse(source, file) {
        Ok(p) => p.module,
        Err(d) => panic!("{}", attnc::diagnostics::render_all(&d, &sources, false)),
    }
}

/// The text without the comment at its head.
fn code(source: &str) -> String {
    source.lines().skip_while(|l| l.starts_with("//")).flat_map(|l| [l, "\n"]).collect()
}

#[test]
fn witnesses_verify_and_print_back() {
    for (name, source) in [("attention_sm80", SM80), ("attention_sm90a", SM90A)] {
        let module = parse(source);
        if let Err(e) = verify::verify(&module) {
            panic!("{name}:\n{e}");
        }
        assert_eq!(text::print(&module), code(source), "{name}");
    }
}

/// A change that makes a witness wrong.
enum Change {
    /// Every occurrence of a text becomes another.
    All(&'static str, &'static str),
    /// The line that has a text becomes another, or goes away.
    Line(&'static str, &'static str),
    /// The line that has the first text goes before the line that has the second.
    Before(&'static str, &'static str),
}
use Change::{All, Before, Line};

fn change(source: &str, c: &Change) -> String {
    let at = |lines: &[&str], what: &str| match lines.iter().position(|l| l.contains(what)) {
        Some(i) => i,
        None => panic!("no line has {what}"),
    };
    let mut lines: Vec<&str> = source.lines().collect();
    match c {
        All(from, to) => {
            assert!(source.contains(from), "the text has no {from}");
            return source.replace(from, to);
        }
        Line(what, to) => {
            let i = at(&lines, what);
            lines[i] = to;
            if to.is_empty() {
                lines.remove(i);
            }
        }
        Before(what, other) => {
            let i = at(&lines, what);
            let line = lines.remove(i);
            let k = at(&lines, other);
            lines.insert(k, line);
        }
    }
    lines.iter().flat_map(|l| [*l, "\n"]).collect()
}

fn refused(source: &str, changes: &[(Change, &str)]) {
    let mut missed = Vec::new();
    for (c, message) in changes {
        let text = change(source, c);
        match verify::verify(&parse(&text)) {
            Ok(_) => missed.push(format!("accepted, though wrong: {message}")),
            Err(e) if e.list.iter().any(|(_, m)| m.contains(message)) => {}
            Err(e) => {
                let list: Vec<String> = e.list.iter().map(|(_, m)| format!("  {m}")).collect();
                missed.push(format!("wanted: {message}; found:\n{}", list.join("\n")));
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn wrong_copies_are_refused() {
    refused(
        SM80,
        &[
            (All("load_fragment %kt", "load_fragment %kg"), "operand 0 must be a tile"),
            (All("wait %kg, pending=1 ", "wait %kg, pending=0 "), "1 later groups are under way, not 0"),
            (All("wait %vg, pending=1", "wait %vg, pending=2"), "1 later groups are under way, not 2"),
            (All("wait %qgroup, pending=2", "wait %vgroup, pending=0"), "not the oldest group"),
            (Before("%kfree1 = release %kt", "%kb = load_fragment %kt"), "was released and is read"),
            (All("copy_async %vfree", "copy_async %kfree"), "was used already"),
            (All("copy_async %vfree", "copy_async %kfree1"), "was used already"),
            (Line("%vend = wait %vg", ""), "is never waited for"),
            (
                Line(
                    "  return",
                    "  %again = release %vend : slot tile bf16[64, 64] @shared(128)\n  %more1 = copy_async %again, %v[%h, %zero, %zero], rows=1, cols=2 : pending(copy) tile bf16[64, 64] @shared(128)\n  return",
                ),
                "may still be read: the block has not met",
            ),
            (All("%kg1, %vg1, %kfree1", "%vg1, %kg1, %kfree1"), "a group is under way on one way"),
            (All("mma %qa, %kb, %s0", "mma %kb, %qa, %s0"), "mma: takes `a`, `b` or `bt`"),
            (
                Line("%qa = load_fragment", "  %qa = load_fragment %qtile : tile bf16[64, 64] @fragment(acc)"),
                "into `a`, `b` or `bt`",
            ),
            (All("offset=32768 ", "offset=28672 "), "overlaps other shared memory"),
            (All("offset=24576 ", "offset=24832 "), "not aligned to 1024"),
            (All("scratch(40960)", "scratch(40000)"), "of 40000 bytes of shared memory"),
            (All("gpu(sm_80, 4)", "gpu(sm_80, 8)"), "not made of whole tiles of the unit"),
            (All("gpu(sm_80, 4)", "gpu(sm_80, 0)"), "a block has 1 to 32 warps, not 0"),
            (All("gpu(sm_80, 4)", "gpu(sm_80, 33)"), "a block has 1 to 32 warps, not 33"),
            (All("@shared(128)", "@shared(96)"), "0, 32, 64 or 128 bytes, not 96"),
            (All("reduce_max %scores, axis=1", "reduce_max %scores, axis=0"), "makes tile f32[1, 64] @fragment(row)"),
        ],
    );
}

#[test]
fn wrong_pipelines_are_refused() {
    refused(
        SM90A,
        &[
            (All("mul %s1, %scale", "mul %sp, %scale"), "takes scalars and tiles, not pending(mma)"),
            (All("wait %sg, pending=1", "wait %sg, pending=0"), "1 later groups are under way, not 0"),
            (Line("  wgmma_fence", ""), "was written since the last `wgmma_fence`"),
            (Before("ring_release %kring, %kt", "%s1 = wait"), "a product that is under way reads"),
            (Before("ring_release %vring, %vt", "%acc1 = wait"), "a product that is under way reads"),
            (Line("ring_release %vring, %vt", ""), "a tile of a ring is held on one way"),
            (Line("ring_release %qring, %qt", ""), "is never released"),
            (Line("ring_release %vring, %vt", "  ring_release %vring, %kt"), "did not come from this ring"),
            (Line("tma_load %vslot", "  tma_load %kslot, %v[%h, %at, %zero], rows=1, cols=2"), "was used already"),
            (All("registers(24) ^produce", "registers(40) ^produce"), "of 65536"),
            (All("\"producer\" warps(4)", "\"producer\" warps(8)"), "do not part the 12 warps"),
            (All("\"producer\" warps(4)", "\"producer\" warps(4294967292)"), "do not part the 12 warps"),
            (All("registers(24) ^produce", "registers(4294967288) ^produce"), "of 65536"),
            (Line("^feed(%turn: index):", "^feed(%turn: index):\n  barrier"), "after its warps have parted"),
            (All("gpu(sm_90a, 12)", "gpu(sm_80, 12)"), "sm_80 has no such unit"),
            (All("barriers=163872", "barriers=163856"), "overlaps other shared memory"),
            (All("wgmma %pa, %vt", "wgmma %p, %vt"), "does not dominate it"),
            (All("threads=256, wait=true", "threads=250, wait=true"), "whole warps"),
        ],
    );
}

/// The rules of places, layouts and copies that nothing above breaks, each broken once.
#[test]
fn wrong_fragments_are_refused() {
    // One more line in the entry block.
    let beside = |line: &str| {
        let both = format!("  %l0 = full %nothing : tile f32[64, 1] @fragment(row)\n  {line}");
        Line("%l0 = full", Box::leak(both.into_boxed_str()))
    };
    let strided = |strides: &'static str| All("%k: in bf16[H, T, 64]", strides);
    refused(
        SM80,
        &[
            (
                All("%k[%h, %zero, %zero]", "%k[%h, %zero, %h]"),
                "the first column is not proved a multiple of 8 elements",
            ),
            (strided("%k: in bf16[H, T, 64] strides[72*T, 68, 1]"), "the stride 68 is not a multiple of 8 elements"),
            (strided("%k: in bf16[H, T, 64] strides[64*T + 4, 64, 1]"), "is not a multiple of 8 elements"),
            (strided("%k: in bf16[H, T, 64] strides[128*T, 128, 2]"), "columns lie side by side"),
            (All("bf16[64, 64] @shared(128)", "bf16[64, 64] @fragment(a)"), "room for a tile is in shared memory"),
            (beside("%bad = full %nothing : tile f32[64, 64]"), "a tile of a GPU is in shared memory or in fragments"),
            (beside("%bad = full %nothing : tile f32[64, 64] @fragment(row)"), "`row` is the layout of a column"),
            (beside("%bad = full %nothing : tile f32[64, 1] @fragment(col)"), "`col` is the layout of a row"),
            (beside("%bad = full %nothing : tile f32[64, 1] @fragment(acc)"), "full: makes `@fragment(row)`"),
            (beside("%bad = full %last : tile i32[64, 64] @fragment(a)"), "operands of products are"),
            (
                beside("%bad = shared offset=0 : slot tile bf16[%row<=64, 64] @shared(128)"),
                "a tile in shared memory has static extents",
            ),
            (
                beside("%bad = shared offset=0 : slot tile bf16[56, 72] @shared(128)"),
                "a row of 144 bytes is not divided into panels of 128",
            ),
            (
                Line(
                    "%s0 = full",
                    "  %s0 = full %nothing : tile f32[64, 64] @fragment(acc)\n  %again = copy %qa : tile bf16[64, 64] @fragment(acc)",
                ),
                "copy: works on accumulators, rows and columns",
            ),
            (Line("store %o", "  store %o[%h, %row, %zero], %qa, rows=1, cols=2"), "store: writes accumulators"),
            (
                Line("%pa = pack", "  %pa = pack %p : tile bf16[64, 64] @fragment(b)"),
                "pack: makes `a` of an accumulator",
            ),
            (
                Line(
                    "%s0 = full",
                    "  %s0 = full %nothing : tile f32[64, 64] @fragment(acc)\n  %over = transpose %s0 : tile f32[64, 64] @fragment(acc)",
                ),
                "transpose: does not stand in a kernel scheduled for a GPU",
            ),
            (
                Line(
                    "%next = add",
                    "  %next = add %j, %step : index\n  %late = shared offset=0 : slot tile bf16[64, 64] @shared(128)",
                ),
                "shared: stands in the entry block",
            ),
        ],
    );
}

/// The rules of rings, roles and products of warpgroups that nothing above breaks, each broken once.
#[test]
fn wrong_roles_are_refused() {
    let roles = "roles \"producer\" warps(4) registers(24) ^produce, \"consumer\" warps(4) registers(240) ^consume(%zero), \"consumer\" warps(4) registers(240) ^consume(%one)";
    let again: &'static str = Box::leak(
        format!("^produce:\n  %room = shared offset=163936 : slot tile bf16[64, 128] @shared(128)\n  {roles}\n^never:")
            .into_boxed_str(),
    );
    refused(
        SM90A,
        &[
            (All("\"producer\" warps(4)", "\"producer\" warps(6)"), "\"producer\" is not made of groups of four warps"),
            (All("registers(24) ^produce", "registers(28) ^produce"), "28 registers: 24 to 256, a multiple of 8"),
            (All("registers(24) ^produce", "registers(16) ^produce"), "16 registers: 24 to 256, a multiple of 8"),
            (Line("^produce:", again), "the warps have parted already"),
            (All("@shared(128)", "@shared(0)"), "wgmma: takes `a` or a swizzled tile"),
            (
                Line(
                    "%row1 = add",
                    "  %row1 = add %row, %half : index\n  %late = ring offset=0, barriers=0, readers=4 : ring(2) tile bf16[64, 128] @shared(128)",
                ),
                "ring: stands in the entry block",
            ),
            (
                Line(
                    "tma_load %kslot",
                    "  %copied = copy_async %kslot, %k[%h, %at, %zero], rows=1, cols=2 : pending(copy) tile bf16[128, 128] @shared(128)",
                ),
                "is of a ring, which `tma_load` fills",
            ),
            (
                All("%k: in bf16[H, T, 128]", "%k: in bf16[H, T, 128] strides[136*T, 132, 1]"),
                "the stride 132 is not a multiple of 8",
            ),
            (Line("tma_load %kslot", ""), "a slot or a pending tile is left on one way"),
            (
                Line(
                    "%more = lt %n, %count",
                    "  %more = lt %n, %count : bool\n  %kept2 = ring_wait %kring, %n : tile bf16[128, 128] @shared(128)",
                ),
                "is never released",
            ),
            (Line("%sg0 = commit", "  %sg0 = commit %sp0 : group(mma) tile f32[64, 128] @fragment(row)"), "commit"),
        ],
    );
}
