//! A report as a table for users, and as JSON for programs.

use super::{Bound, Ceilings, Products, Rates, Report, Site};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Formats the table, with one line per launch site.
pub fn table(report: &Report) -> String {
    let sizes: Vec<String> = report.sizes.iter().map(|(name, n)| format!("{name}={n}")).collect();
    let sizes = if sizes.is_empty() { String::new() } else { format!(" at {}", sizes.join(", ")) };
    let c = &report.ceilings;
    let title = format!("{}.{}{sizes}: {} code", report.model, report.entry, report.variant);
    if let Some(gpu) = report.gpu.as_ref().filter(|gpu| gpu.simulated) {
        return counts(report, &format!("{title}, on `{}`, a simulated GPU.\n", gpu.name));
    }
    let workers = report.workers();
    let on = report.gpu.as_ref().map_or_else(|| workers.clone(), |gpu| format!("{} with {workers}", gpu.name));
    let mut text = format!("{title}, {on}, median of {} calls\n", report.calls);
    let products: Vec<String> =
        c.products.iter().map(|(p, flops)| format!("{:.1} GFLOP/s {}", flops / 1e9, unit(c, *p))).collect();
    let memories: Vec<String> =
        c.memories.iter().map(|m| format!("{:.1} GB/s {}", m.bandwidth / 1e9, m.name)).collect();
    let _ = writeln!(text, "this machine, measured: {}", products.join(", "));
    let _ = writeln!(text, "                        {}", memories.join(", "));
    for warning in report.warnings() {
        let _ = writeln!(text, "warning: {warning}");
    }
    text.push('\n');
    let all = report.all();
    let mut rows: Vec<Vec<String>> = vec![HEAD.map(str::to_string).to_vec()];
    for site in &report.sites {
        rows.push(row(report, site, true));
    }
    rows.push(row(report, &all, false));
    let between = report.seconds - all.seconds;
    for (label, seconds) in [("between kernels", between), ("the call", report.seconds)] {
        let share = percent(seconds / report.seconds.max(1e-12));
        let none = String::new;
        rows.push(vec![label.to_string(), none(), none(), format!("{:.4}", seconds * 1e3), share]);
    }
    text += &aligned(&rows);
    text.push('\n');
    text += if report.gpu.is_some() { NOTES_OF_GPUS } else { NOTES };
    text += &explanations(report);
    text
}

/// The columns that need no timing: how often each kernel is launched, and its work.
fn counts(report: &Report, title: &str) -> String {
    const COLUMNS: [usize; 5] = [0, 1, 2, 5, 6];
    let chosen = |cells: Vec<String>| COLUMNS.iter().filter_map(|n| cells.get(*n).cloned()).collect::<Vec<_>>();
    let mut rows = vec![chosen(HEAD.map(str::to_string).to_vec())];
    let all = report.all();
    for site in report.sites.iter().chain([&all]) {
        rows.push(chosen(row(report, site, false)));
    }
    let is_text = |column: usize| COLUMNS.get(column).is_some_and(|n| is_text(*n));
    let lines = aligned_by(&rows, COLUMNS.len(), &is_text);
    let note = "Times are not shown, because a simulator does not predict them.";
    format!("{title}{note}\n\n{lines}\n{}", explanations(report))
}

/// Explains kernels without a source line.
fn explanations(report: &Report) -> String {
    let mut text = String::new();
    let mut explained: Vec<(&str, &str)> = Vec::new();
    for site in &report.sites {
        let kind = site.kernel.split('.').next().unwrap_or_default();
        if let Some(what) = super::explained(&site.kernel).filter(|_| !explained.iter().any(|(k, _)| *k == kind)) {
            explained.push((kind, what));
        }
    }
    for (kind, what) in explained {
        let _ = writeln!(text, "{kind}: {what}.");
    }
    text
}

/// Column headings.
const HEAD: [&str; 12] = [
    "kernel",
    "source",
    "launches",
    "ms",
    "share",
    "MFLOP",
    "MB",
    "GFLOP/s",
    "GB/s",
    "of peak",
    "of bandwidth",
    "bound by",
];

/// Explanations below the table.
const NOTES: &str = "\
FLOP: what the kernels do; an exp is one, and so is each half of a multiply-add. Bytes: what must be moved at least, each buffer once.
Of peak: relative to the peak of the dot instructions that the kernel uses. Of bandwidth: relative to the fastest memory that can
hold its data: a cache as large as the data of a launch; for parameters, as large as the data of the whole call.
";

/// The same for a GPU.
const NOTES_OF_GPUS: &str = "\
The times of kernels are between two events on the GPU, each launch by itself, so that short ones seem longer; the call is timed
without that, with its launches as a graph, and with the copies of arguments and results.
FLOP and bytes: counted in the kernels before scheduling; an exp is one, and so is each half of a multiply-add.
Bytes: what must be moved at least, each buffer once. `?`: too long to count.
Of peak: relative to the tensor cores, for the kernel's type, if the kernel uses them. Of bandwidth: relative to the fastest memory
that can hold its data.
";

/// Text columns are left-aligned; the others are right-aligned.
fn is_text(column: usize) -> bool {
    matches!(HEAD.get(column), Some(&("kernel" | "source" | "bound by")))
}

/// Formats rows in aligned columns, two spaces apart.
fn aligned(rows: &[Vec<String>]) -> String {
    aligned_by(rows, HEAD.len(), &is_text)
}

/// The same for any number of columns; `is_text` says which are text.
fn aligned_by(rows: &[Vec<String>], columns: usize, is_text: &dyn Fn(usize) -> bool) -> String {
    let width = |column: usize| rows.iter().filter_map(|r| r.get(column)).map(|c| c.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            if is_text(column) {
                let _ = write!(line, "{gap}{cell:width$}");
            } else {
                let _ = write!(line, "{gap}{cell:>width$}");
            }
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// The cells of a launch site; the total has no single bound, since each site has its own.
fn row(report: &Report, site: &Site, single: bool) -> Vec<String> {
    let rates = report.rates(site);
    let mark = if site.exact { "" } else { " (at most)" };
    let by = match rates.bound {
        Bound::Compute => format!("compute ({})", unit(&report.ceilings, site.products)),
        Bound::Memory if rates.memory == "memory" => "memory".to_string(),
        Bound::Memory => format!("memory ({})", rates.memory),
    };
    let of = |part: f64| if single { percent(part) } else { String::new() };
    vec![
        site.kernel.clone(),
        site.source.clone(),
        site.launches.to_string(),
        format!("{:.4}", site.seconds * 1e3),
        percent(site.seconds / report.seconds.max(1e-12)),
        if site.uncounted { "?".to_string() } else { format!("{:.3}", site.flops as f64 / 1e6) },
        format!("{:.3}", site.bytes as f64 / 1e6),
        format!("{:.2}", rates.flops / 1e9),
        format!("{:.2}", rates.bandwidth / 1e9),
        of(rates.of_flops),
        of(rates.of_bandwidth),
        if single { format!("{by}{mark}") } else { mark.trim().to_string() },
    ]
}

/// Display name of the multiplication.
fn unit(c: &Ceilings, products: Products) -> &'static str {
    match products {
        Products::Floats => c.vectors,
        other => other.name(),
    }
}

fn percent(part: f64) -> String {
    format!("{:.1}%", part * 100.0)
}

/// Formats the report as JSON.
pub fn json(report: &Report) -> String {
    let c = &report.ceilings;
    // A simulator has no meaningful times.
    let timed = report.gpu.as_ref().is_none_or(|gpu| !gpu.simulated);
    let number = |x: f64| if timed { json!(x) } else { Value::Null };
    let rates = |r: &Rates| {
        json!({
            "flops_per_second": r.flops,
            "bytes_per_second": r.bandwidth,
            "of_flops_ceiling": r.of_flops,
            "of_bandwidth_ceiling": r.of_bandwidth,
            "bound": r.bound.name(),
            "memory": r.memory,
        })
    };
    let site = |s: &Site| {
        let mut value = json!({
            "kernel": s.kernel,
            "source": s.source,
            "products": s.products.name(),
            "launches": s.launches,
            "seconds": number(s.seconds),
            "share": number(s.seconds / report.seconds.max(1e-12)),
            "flops": if s.uncounted { Value::Null } else { json!(s.flops) },
            "bytes": s.bytes,
            "exact": s.exact,
        });
        if let (true, Value::Object(value), Value::Object(rates)) = (timed, &mut value, rates(&report.rates(s))) {
            value.extend(rates);
        }
        value
    };
    let sizes: serde_json::Map<String, Value> = report.sizes.iter().map(|(n, v)| (n.clone(), json!(v))).collect();
    let value = json!({
        "model": report.model,
        "entry": report.entry,
        "sizes": sizes,
        "variant": report.variant,
        "calls": report.calls,
        "seconds": number(report.seconds),
        "gpu": report.gpu.as_ref().map(|gpu| json!({ "name": gpu.name, "simulated": gpu.simulated })),
        "ceilings": if !timed { Value::Null } else { json!({
            "threads": if report.gpu.is_none() { json!(c.workers) } else { Value::Null },
            "multiprocessors": if report.gpu.is_some() { json!(c.workers) } else { Value::Null },
            "flops_per_second": c.flops(),
            "bytes_per_second": c.bandwidth(),
            "products": c.products.iter().map(|(p, flops)| (p.name().to_string(), json!(flops))).collect::<serde_json::Map<_, _>>(),
            "memories": c.memories.iter().map(|m| (m.name.to_string(), json!(m.bandwidth))).collect::<serde_json::Map<_, _>>(),
            "vectors": c.vectors,
            "buffer_bytes": c.buffer,
            "steadiness": c.steadiness,
        }) },
        "warnings": if timed { report.warnings() } else { Vec::new() },
        "kernels": report.sites.iter().map(site).collect::<Vec<_>>(),
        "all": site(&report.all()),
    });
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_a_line_for_each_launch() {
        let text = table(&super::super::example());
        let expected = "\
Example.forward at S=128, batch=1: portable code, 2 threads, median of 9 calls
this machine, measured: 480.0 GFLOP/s 512-bit FMA, 2400.0 GFLOP/s AMX tiles
                        800.0 GB/s L1, 200.0 GB/s L2, 46.0 GB/s memory
warning: faster than the ceilings that were measured: carry.0

kernel           source           launches       ms   share     MFLOP      MB  GFLOP/s    GB/s  of peak  of bandwidth  bound by
rows.0           example.attn:7         12   1.0000    9.9%     4.000   8.000     4.00    8.00     0.8%          4.0%  memory (L2)
matmul.1         example.attn:9         12   8.0000   79.2%  3200.000  20.000   400.00    2.50    16.7%          5.0%  compute (AMX tiles)
gather.2         example.attn:12         1   0.5000    5.0%     0.000   0.400     0.00    0.80     0.0%          0.4%  memory (L2) (at most)
carry.0                                  1   0.1000    1.0%     0.000  12.000     0.00  120.00     0.0%        100.0%  memory
all kernels                             26   9.6000   95.0%  3204.000  40.400   333.75    4.21                         (at most)
between kernels                              0.5000    5.0%
the call                                    10.1000  100.0%

FLOP: what the kernels do; an exp is one, and so is each half of a multiply-add. Bytes: what must be moved at least, each buffer once.
Of peak: relative to the peak of the dot instructions that the kernel uses. Of bandwidth: relative to the fastest memory that can
hold its data: a cache as large as the data of a launch; for parameters, as large as the data of the whole call.
carry: copies a value that a loop hands to its next iteration, where it cannot be computed in place.
";
        assert_eq!(text, expected);
    }

    /// A report on a real or a simulated GPU.
    fn on_gpu(simulated: bool) -> Report {
        let mut report = super::super::example();
        report.variant = "sm_90a".to_string();
        report.gpu = Some(super::super::Device { name: "A GPU".to_string(), simulated });
        report.ceilings.workers = 132;
        report.ceilings.vectors = "f32 multiply-adds";
        report.ceilings.products =
            vec![(Products::Floats, 480e9), (Products::Tf32TensorCores, 1200e9), (Products::TensorCores, 2400e9)];
        report.sites[1].products = Products::TensorCores;
        report.sites[2].uncounted = true;
        report
    }

    #[test]
    fn a_gpu_has_ceilings_of_its_own() {
        let text = table(&on_gpu(false));
        for line in [
            "Example.forward at S=128, batch=1: sm_90a code, A GPU with 132 multiprocessors, median of 9 calls",
            "this machine, measured: 480.0 GFLOP/s f32 multiply-adds, 1200.0 GFLOP/s tf32 tensor cores, 2400.0 GFLOP/s tensor cores",
            "matmul.1         example.attn:9         12   8.0000   79.2%  3200.000  20.000   400.00    2.50    16.7%          5.0%  compute (tensor cores)",
            "gather.2         example.attn:12         1   0.5000    5.0%         ?   0.400     0.00    0.80     0.0%          0.4%  memory (L2) (at most)",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let value: Value = serde_json::from_str(&json(&on_gpu(false))).unwrap();
        assert_eq!(value["gpu"]["name"], "A GPU");
        assert_eq!(value["ceilings"]["products"]["tensor cores"], 2400e9);
        assert_eq!(value["kernels"][2]["flops"], Value::Null);
        assert_eq!((&value["ceilings"]["threads"], &value["ceilings"]["multiprocessors"]), (&Value::Null, &json!(132)));
        // tf32 matmuls are compared with a ceiling of their own.
        let mut report = on_gpu(false);
        report.sites[1].products = Products::Tf32TensorCores;
        let line = "matmul.1         example.attn:9         12   8.0000   79.2%  3200.000  20.000   400.00    2.50    33.3%          5.0%  compute (tf32 tensor cores)";
        assert!(table(&report).lines().any(|found| found == line), "{}", table(&report));
    }

    #[test]
    fn a_simulator_has_counts_and_no_times() {
        let text = table(&on_gpu(true));
        let expected = "\
Example.forward at S=128, batch=1: sm_90a code, on `A GPU`, a simulated GPU.
Times are not shown, because a simulator does not predict them.

kernel       source           launches     MFLOP      MB
rows.0       example.attn:7         12     4.000   8.000
matmul.1     example.attn:9         12  3200.000  20.000
gather.2     example.attn:12         1         ?   0.400
carry.0                              1     0.000  12.000
all kernels                         26         ?  40.400

carry: copies a value that a loop hands to its next iteration, where it cannot be computed in place.
";
        assert_eq!(text, expected);
        let value: Value = serde_json::from_str(&json(&on_gpu(true))).unwrap();
        assert_eq!(value["gpu"]["simulated"], true);
        for key in ["seconds", "share", "flops_per_second", "bound"] {
            assert_eq!(value["kernels"][1][key], Value::Null, "{key}");
        }
        assert_eq!((&value["seconds"], &value["ceilings"]), (&Value::Null, &Value::Null));
        assert_eq!(value["kernels"][1]["bytes"], 20_000_000u64);
    }

    #[test]
    fn json_says_the_same() {
        let value: Value = serde_json::from_str(&json(&super::super::example())).unwrap();
        assert_eq!(value["kernels"][1]["kernel"], "matmul.1");
        assert_eq!(value["kernels"][1]["flops"], 3_200_000_000u64);
        assert_eq!(value["kernels"][1]["bound"], "compute");
        assert_eq!(value["kernels"][1]["source"], "example.attn:9");
        assert_eq!(value["kernels"][1]["products"], "AMX tiles");
        assert_eq!(value["ceilings"]["memories"]["L2"], 200e9);
        assert_eq!(value["all"]["launches"], 26);
        assert_eq!(value["sizes"]["S"], 128);
        assert_eq!((&value["ceilings"]["threads"], &value["ceilings"]["multiprocessors"]), (&json!(2), &Value::Null));
        let share: f64 = value["kernels"].as_array().unwrap().iter().map(|k| k["share"].as_f64().unwrap()).sum();
        assert!((share - 0.9505).abs() < 1e-3, "{share}");
    }
}
