//! Does `attnc bench` measure each kernel of a call, say the same as table, JSON and picture, and refuse what does not fit?

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

const PROGRAM: &str = "
use std.nn

/// A little of everything: indices, norms that repeat, attention, a linear map.
model Small<D = 32, V = 11, L = 3> {
    table:  f32[V, D]
    layers: [LayerNorm<D>; L]
    out:    Linear<D, D>

    pub fn forward(tokens: i32[S], keep: bool[S, T], memory: f32[T, D]) -> f32[S, D] {
        var x = table[tokens]
        for layer in layers {
            x = layer(x)
        }
        let scores = x @ memory.T / sqrt(D)
        out(softmax(where(keep, scores, -inf)) @ memory)
    }
}
";

/// Exit code, stdout and stderr.
fn attnc(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
    let output = command.args(args).current_dir(folder).output().expect("attnc starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("small.attn"), PROGRAM).expect("a program");
    folder
}

#[test]
fn each_kernel_is_measured() {
    let folder = folder();
    let (code, tiles, err) = attnc(folder.path(), &["small.attn", "--emit", "tile=-"]);
    assert_eq!(code, 0, "{err}");
    let kernels: BTreeSet<&str> = tiles
        .lines()
        .filter_map(|line| line.strip_prefix("kernel @"))
        .filter_map(|rest| rest.split('(').next())
        .collect();
    let line = ["bench", "small.attn", "--size", "S=33,T=70", "--threads", "2", "--seconds", "0", "--cpu", "portable"];
    let (code, table, err) = attnc(folder.path(), &[&line[..], &["--json", "out.json", "--svg", "out.svg"]].concat());
    assert_eq!((code, err.as_str()), (0, ""), "{table}");
    assert!(table.starts_with("Small.forward at S=33, T=70: portable code, 2 threads, median of 5 calls\n"), "{table}");

    let json = std::fs::read_to_string(folder.path().join("out.json")).expect("JSON");
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let svg = std::fs::read_to_string(folder.path().join("out.svg")).expect("a picture");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("prefers-color-scheme"), "{svg}");
    let number = |v: &Value, name: &str| v[name].as_f64().unwrap_or_else(|| panic!("{name} in {v}"));
    let sites = report["kernels"].as_array().expect("kernels");
    let named: BTreeSet<&str> = sites.iter().filter_map(|s| s["kernel"].as_str()).collect();
    assert!(!named.is_empty() && named.is_subset(&kernels), "{named:?} {kernels:?}");
    for site in sites {
        let name = site["kernel"].as_str().expect("a name");
        assert!(table.lines().any(|line| line.starts_with(&format!("{name} "))), "{name} in\n{table}");
        assert!(svg.contains(name), "{name}: {svg}");
        assert!(number(site, "seconds") > 0.0 && number(site, "launches") >= 1.0, "{site}");
        assert!((0.0..=1.0).contains(&number(site, "share")), "{site}");
        // Each has the ceilings of the resources that it uses, including the caches in which its data may be.
        assert!((0.0..=1.0).contains(&number(site, "of_flops_ceiling")), "{site}");
        assert!((0.0..=1.0).contains(&number(site, "of_bandwidth_ceiling")), "{site}");
        assert!(["compute", "memory"].contains(&site["bound"].as_str().expect("a bound")), "{site}");
        // A line of the program, or of the library that it uses.
        let (file, line) = site["source"].as_str().and_then(|s| s.split_once(':')).unwrap_or(("", "0"));
        let lines = if file == "small.attn" { PROGRAM.lines().count() } else { 1000 };
        let line: usize = line.parse().expect("a line");
        let is_copy = ["carry", "heads"].iter().any(|kind| name.starts_with(kind));
        assert!(is_copy || (["small.attn", "nn.attn"].contains(&file) && line > 0 && line <= lines), "{site}");
    }
    // Columns are apart: two blanks at least between the cells of the head, and as many cells in each line.
    let head = table.lines().find(|line| line.starts_with("kernel ")).expect("a head");
    let names: Vec<&str> = head.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(names.len(), 12, "{head}");
    assert!(names.contains(&"source") && names.contains(&"of bandwidth"), "{head}");
    for line in table
        .lines()
        .filter(|line| sites.iter().any(|s| line.starts_with(&format!("{} ", s["kernel"].as_str().unwrap_or("?")))))
    {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).count();
        assert!((11..=12).contains(&cells), "{line}");
    }
    // A norm is launched once for each layer.
    assert!(sites.iter().any(|s| s["launches"] == 3), "{report}");
    // Q K^T, P V and the linear map: a lower bound.
    let (s, t, d) = (33.0, 70.0, 32.0);
    let products = 2.0 * s * d * t * 2.0 + 2.0 * s * d * d;
    let flops = number(&report["all"], "flops");
    assert!((products..2.0 * products).contains(&flops), "{flops}, {products} in products");
    assert!(number(&report["all"], "bytes") > 4.0 * (s * d * 2.0 + t * d + d * d), "{report}");
    for (name, least) in [("flops_per_second", 1e8), ("bytes_per_second", 1e8), ("threads", 2.0)] {
        assert!(number(&report["ceilings"], name) >= least, "{report}");
    }
    assert_eq!((report["calls"].as_i64(), report["variant"].as_str()), (Some(5), Some("portable")));
    assert_eq!(report["sizes"], serde_json::json!({"S": 33, "T": 70}));
}

/// What goes to stdout goes there alone; a model without parameters or dimensions needs neither.
#[test]
fn json_and_pictures_go_to_stdout() {
    let folder = folder();
    let program = "model M {\n    pub fn forward(x: f32[.., 8]) -> f32[.., 8] { x * 2.0 }\n}\n";
    std::fs::write(folder.path().join("m.attn"), program).expect("a program");
    let line = ["bench", "m.attn", "--seconds", "0", "--threads", "1"];
    let (code, out, err) = attnc(folder.path(), &[&line[..], &["--json", "-"]].concat());
    assert_eq!((code, err.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(report["sizes"], serde_json::json!({"batch": 1}));
    assert_eq!(report["all"]["flops"], 8);
    assert_eq!(report["all"]["bytes"], 64);
    let (code, out, _) = attnc(folder.path(), &[&line[..], &["--svg", "-", "--size", "batch=5"]].concat());
    assert!(code == 0 && out.starts_with("<svg ") && out.contains("batch=5"), "{out}");
}

/// A head with a cache that has room for 64 keys.
const CACHED: &str = "
/// One head.
model Cached<D = 32, T = 64> {
    state keys: f32[T, D]
    state past: i32
    state seen: bool[T]

    /// One more key.
    pub fn step(x: f32[1, D]) -> f32[1, D] {
        let dim N = past + 1 where N <= T
        keys[past..past+1, ..] = x
        let k = keys[0..N, ..]
        past = past + 1
        softmax(x @ k.T) @ k
    }
}
";

/// Each call begins with the same cache, however many calls there are, and is counted with it.
#[test]
fn a_cache_is_as_full_as_is_said() {
    let folder = folder();
    std::fs::write(folder.path().join("cached.attn"), CACHED).expect("a program");
    let bench = |options: &[&str]| {
        let line = [&["bench", "cached.attn", "--threads", "1", "--json", "-"], options].concat();
        let (code, out, err) = attnc(folder.path(), &line);
        assert_eq!((code, err.as_str()), (0, ""), "{options:?}");
        serde_json::from_str::<Value>(&out).expect("JSON")
    };
    let attention = |report: &Value| {
        let kernels = report["kernels"].as_array().expect("kernels");
        let site = kernels.iter().find(|k| k["kernel"].as_str().is_some_and(|name| name.starts_with("attention")));
        let site = site.unwrap_or_else(|| panic!("{report}"));
        assert_eq!(site["exact"], true, "{report}");
        (site["flops"].as_u64().expect("operations"), site["bytes"].as_u64().expect("bytes"))
    };
    // More calls than there is room for keys.
    let report = bench(&["--state", "past=40", "--seconds", "0.3"]);
    assert!(report["calls"].as_i64() > Some(64), "{report}");
    assert_eq!(report["sizes"], serde_json::json!({"past": 40}));
    let counted = attention(&report);
    let at = |past: u32| attention(&bench(&["--state", &format!("past={past}"), "--seconds", "0"]));
    // A new session has no keys; the call adds one. Each is read once, and multiplied by the query and by its weight.
    let (fewer, most, none) = (at(20), at(63), attention(&bench(&["--seconds", "0"])));
    assert_eq!(none, at(0));
    for (n, (flops, bytes)) in [(1, none), (21, fewer), (41, counted), (64, most)] {
        let products = 4 * 32 * n;
        assert!((products..products + 8 * n + 200).contains(&flops), "{n} keys: {flops}");
        assert_eq!(bytes, 4 * 32 * (n + 2), "{n} keys");
    }
}

/// Empty axes: kernels without grid points are launches all the same.
#[test]
fn nothing_to_do_is_measured_too() {
    let folder = folder();
    let line = ["bench", "small.attn", "--size", "S=0,T=0", "--seconds", "0", "--json", "-"];
    let (code, out, err) = attnc(folder.path(), &line);
    assert_eq!((code, err.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(report["all"]["flops"], 0, "{report}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = folder();
    std::fs::write(folder.path().join("empty.safetensors"), b"\x02\0\0\0\0\0\0\0{}").expect("a file");
    std::fs::write(folder.path().join("cached.attn"), CACHED).expect("a program");
    for (args, code, text) in [
        (
            &["small.attn"][..],
            2,
            "the run-time dimensions `S`, `T` of `forward` must have a value; set them with `--size S=N,T=N`",
        ),
        (
            &["small.attn", "--size", "S=3"],
            2,
            "the run-time dimension `T` of `forward` must have a value; set it with `--size T=N`",
        ),
        (&["small.attn", "--size", "S=3,U=4"], 2, "`forward` has no run-time dimension `U`"),
        (&["small.attn", "--size", "D=4"], 2, "are bound with `--dim`"),
        (&["small.attn", "--size", "S=3,T=4,S=5"], 2, "given twice"),
        (&["small.attn", "--size", "S=99999999999,T=1"], 2, "too large shape"),
        (&["small.attn", "--size", "S=3,T=4", "--function", "backward"], 2, "no entry point `backward`"),
        (&["small.attn", "--size", "S=3,T=4", "--weights", "absent.safetensors"], 3, "E0801"),
        (&["small.attn", "--size", "S=3,T=4", "--weights", "empty.safetensors"], 3, "E0801"),
        (&["small.attn", "--size", "S=3,T=4", "--seconds", "0", "--json", "no/folder/out.json"], 3, "E0004"),
        (&["cached.attn", "--state", "past=64"], 2, "`N` would be 65, and is at most 64"),
        (&["cached.attn", "--state", "past=-1", "--seconds", "0"], 1, "index -1 is out of range for an axis of 64"),
        (&["cached.attn", "--state", "past=2147483648"], 2, "`past` is i32, which 2147483648 does not fit"),
        (&["cached.attn", "--state", "past=1,past=2"], 2, "`--state past` is given twice"),
        (&["cached.attn", "--state", "pas=1"], 2, "no state `pas` of a few integers; did you mean `past`?"),
        (&["cached.attn", "--state", "seen=1"], 2, "no state `seen` of a few integers"),
        (&["cached.attn", "--state", "past=x"], 2, "`x`: invalid digit"),
        (&["absent.attn", "--size", "S=3"], 3, "E0001"),
        (&["x.tir"], 3, "E0001"),
    ] {
        let (exit, out, err) = attnc(folder.path(), &[&["bench"][..], args].concat());
        assert_eq!((exit, out.as_str()), (code, ""), "{args:?}: {err}");
        assert!(err.contains(text) && !err.contains("internal error"), "{args:?}: {err}");
    }
    let example = Path::new(ROOT).join("examples/03_masks.attn");
    let (code, _, err) = attnc(folder.path(), &["bench", &example.to_string_lossy(), "--size", "S=4"]);
    assert!(code == 2 && err.contains("--function"), "{err}");
}
