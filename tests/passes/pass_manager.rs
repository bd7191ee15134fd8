//! Does the pass manager print, verify, stop, skip and count as it is told?

use crate::passes;

use attnc::ir::{Op, text};
use attnc::passes::{
    Changed, Collected, Level, Options, PASSES, Pass, PrintChanged, Select, Watch, find_pass, optimise,
    parse_pass_list, run_passes,
};
use passes::canonical;

const PROGRAM: &str = "
func @forward(%0 \"x\": f32[S, 768], %1 \"w\": f32[768, 768], %2 \"b\": f32[768]) -> (f32[S, 768]) {
^bb0:
  %3 = matmul %0, %1 : f32[S, 768] loc(2:4)
  %4 = add %3, %2 : f32[S, 768] loc(2:8)
  %5 = gelu %4 : f32[S, 768] loc(2:1)
  %6 = mul %5, %5 : f32[S, 768] loc(3:1)
  return %6
}
func @other(%0 \"x\": f32[S, 768]) -> (f32[S, 768]) {
^bb0:
  %1 = exp %0 : f32[S, 768] loc(7:4)
  %2 = neg %1 : f32[S, 768] loc(7:8)
  return %2
}
";

/// Options that differ from the default in what is observed.
fn watched(watch: Watch) -> Options {
    Options { watch, ..Options::default() }
}

fn run(names: &str, options: &Options) -> Collected {
    let mut module = text::parse(&canonical(PROGRAM), Default::default()).expect("a text").module;
    let mut sink = Collected::default();
    run_passes(&mut module, &parse_pass_list(names).expect("names"), options, &mut sink).expect("a run");
    sink
}

fn snapshot(name: &str, text: &str) {
    insta::with_settings!({
        snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/passes"),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::assert_snapshot!(name, text);
    });
}

#[test]
fn dumps_before_and_after_the_named_passes() {
    let options = watched(Watch {
        print_before: Select::parse("fuse-map"),
        print_after: Select::parse("fuse-epilogue, fuse-map"),
        ..Watch::default()
    });
    snapshot("manager_dumps", &run("fuse-epilogue,fuse-rows,fuse-map", &options).text);
}

#[test]
fn dumps_read_back() {
    let options = watched(Watch { print_after: Select::All, ..Watch::default() });
    let text = run("fuse-epilogue,fuse-map", &options).text;
    let mut dumps = 0;
    for dump in text.split("// -----// IR Dump After ").skip(1) {
        let (_, body) = dump.split_once('\n').expect("a header");
        let module = text::parse(body, Default::default()).expect("a dump is a text").module;
        assert_eq!(text::print(&module), format!("{}\n", body.trim_end()));
        dumps += 1;
    }
    assert_eq!(dumps, 2);
}

#[test]
fn shows_what_changed() {
    let options = watched(Watch { print_changed: PrintChanged::Diff, ..Watch::default() });
    snapshot("manager_diff", &run("fuse-epilogue,fuse-rows,fuse-map", &options).text);
    let options = watched(Watch { print_changed: PrintChanged::Whole, ..Watch::default() });
    let text = run("fuse-rows,fuse-map", &options).text;
    assert!(!text.contains("fuse-rows"), "a pass that changes nothing prints nothing:\n{text}");
    assert!(text.starts_with("// -----// IR Dump After fuse-map //----- //\n"));
}

#[test]
fn stops_after_a_pass() {
    let options =
        watched(Watch { print_after: Select::All, stop_after: Some("fuse-epilogue".into()), ..Watch::default() });
    let text = run("fuse-epilogue,fuse-rows,fuse-map", &options).text;
    assert!(text.contains("After fuse-epilogue") && !text.contains("After fuse-rows"), "{text}");
}

#[test]
fn skips_runs_beyond_the_bisection_limit() {
    let options = watched(Watch { bisect_limit: Some(3), print_changed: PrintChanged::Whole, ..Watch::default() });
    snapshot("manager_bisect", &run("fuse-epilogue,fuse-map", &options).text);
}

#[test]
fn reports_counters_remarks_and_times() {
    let options = Options { stats: true, remarks: true, ..Options::default() };
    snapshot("manager_reports", &run("fuse-epilogue,fuse-map", &options).text);
    let options = watched(Watch { time_passes: true, ..Watch::default() });
    let text = run("fuse-epilogue,fuse-map,fuse-map", &options).text;
    assert!(text.contains(" ms   1 x  fuse-epilogue\n") && text.contains(" ms   2 x  fuse-map\n"), "{text}");
}

#[test]
fn hands_out_a_file_after_each_pass() {
    let options = watched(Watch { dump_files: true, ..Watch::default() });
    let files = run("fuse-epilogue,fuse-rows", &options).files;
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["01-fuse-epilogue.air", "02-fuse-rows.air"]);
    assert!(files.iter().all(|(_, text)| text.starts_with("module \"test.attn\"")));
}

#[test]
fn a_pass_that_breaks_the_module_is_told_with_the_text_before() {
    let broken = Pass {
        name: "broken",
        summary: "drops operands",
        exact: false,
        run: |f, _| {
            let first = f.insts().find(|(_, _, d)| d.op == Op::Matmul).map(|(_, i, _)| i);
            first.map(|i| f.inst_mut(i).operands.pop());
            Changed::from(first.is_some())
        },
    };
    let before = canonical(PROGRAM);
    let mut module = text::parse(&before, Default::default()).expect("a text").module;
    let error = run_passes(&mut module, &[broken], &Options::default(), &mut Collected::default());
    let error = error.expect_err("the verifier finds it");
    assert_eq!((error.pass, error.before == before), ("broken", true));
    snapshot("manager_broken_pass", &error.to_string());
}

#[test]
fn level_0_runs_nothing() {
    let before = canonical(PROGRAM);
    let mut module = text::parse(&before, Default::default()).expect("a text").module;
    let options = Options { level: Level::O0, ..watched(Watch { print_after: Select::All, ..Watch::default() }) };
    let mut sink = Collected::default();
    optimise(&mut module, &options, &mut sink).expect("a run");
    assert_eq!((text::print(&module), sink.text), (before, String::new()));
}

#[test]
fn names_of_passes_are_known_or_nearly() {
    for pass in PASSES {
        assert_eq!(find_pass(pass.name), Ok(*pass));
        assert!(!pass.summary.is_empty() && !pass.name.contains(|c: char| !c.is_ascii_lowercase() && c != '-'));
    }
    assert_eq!(parse_pass_list(""), Ok(vec![]));
    assert_eq!(
        parse_pass_list("fuse-atention"),
        Err("there is no pass `fuse-atention`; did you mean `fuse-attention`?".into())
    );
}
