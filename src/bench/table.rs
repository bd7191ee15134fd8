//! A report as a table for people, and as JSON for programs.

use super::{Bound, Ceilings, Products, Rates, Report, Site};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The table, a line for each launch of the plan.
pub fn table(report: &Report) -> String {
    let sizes: Vec<String> = report.sizes.iter().map(|(name, n)| format!("{name}={n}")).collect();
    let sizes = if sizes.is_empty() { String::new() } else { format!(" at {}", sizes.join(", ")) };
    let c = &report.ceilings;
    let mut text = format!(
        "{}.{}{sizes}: {} code, {} thread{}, median of {} calls\n",
        report.model,
        report.entry,
        report.variant,
        c.threads,
        if c.threads == 1 { "" } else { "s" },
        report.calls
    );
    let products: Vec<String> =
        c.products.iter().map(|(p, flops)| format!("{:.1} GFLOP/s {}", flops / 1e9, unit(c, *p))).collect();
    let memories: Vec<String> =
        c.memories.iter().map(|m| format!("{:.1} GB/s {}", m.bandwidth / 1e9, m.name)).collect();
    let _ = writeln!(text, "this machine, measured: {}", products.join(", "));
    let _ = writeln!(text, "                        {}\n", memories.join(", "));
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
    text += NOTES;
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

/// What the columns are.
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

/// What the numbers mean.
const NOTES: &str = "\
FLOP: what the kernels do; an exp is one, and so is each half of a multiply-add. Bytes: what must be moved at least, each buffer once.
Of peak, of bandwidth: beside the products that the kernel uses, and the memory that its data comes from at best: a cache that
holds what a launch touches, for parameters one that holds what the whole call touches.
";

/// Columns of text, which begin at the left; the others end at the right.
fn is_text(column: usize) -> bool {
    matches!(HEAD.get(column), Some(&("kernel" | "source" | "bound by")))
}

/// Rows of cells as lines whose columns are as wide as they must be, two blanks apart.
fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().filter_map(|r| r.get(column)).map(|c| c.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
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

/// The cells of a kernel's launches; for all of them together no bound is reported, since each has its own.
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
        format!("{:.3}", site.flops as f64 / 1e6),
        format!("{:.3}", site.bytes as f64 / 1e6),
        format!("{:.2}", rates.flops / 1e9),
        format!("{:.2}", rates.bandwidth / 1e9),
        of(rates.of_flops),
        of(rates.of_bandwidth),
        if single { format!("{by}{mark}") } else { mark.trim().to_string() },
    ]
}

/// What multiplies, in words.
fn unit(c: &Ceilings, products: Products) -> &'static str {
    match products {
        Products::Floats => c.vectors,
        other => other.name(),
    }
}

fn percent(part: f64) -> String {
    format!("{:.1}%", part * 100.0)
}

/// The same as JSON.
pub fn json(report: &Report) -> String {
    let c = &report.ceilings;
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
            "seconds": s.seconds,
            "share": s.seconds / report.seconds.max(1e-12),
            "flops": s.flops,
            "bytes": s.bytes,
            "exact": s.exact,
        });
        if let (Value::Object(value), Value::Object(rates)) = (&mut value, rates(&report.rates(s))) {
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
        "seconds": report.seconds,
        "ceilings": {
            "threads": c.threads,
            "flops_per_second": c.flops(),
            "bytes_per_second": c.bandwidth(),
            "products": c.products.iter().map(|(p, flops)| (p.name().to_string(), json!(flops))).collect::<serde_json::Map<_, _>>(),
            "memories": c.memories.iter().map(|m| (m.name.to_string(), json!(m.bandwidth))).collect::<serde_json::Map<_, _>>(),
            "vectors": c.vectors,
            "buffer_bytes": c.buffer,
        },
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

kernel           source           launches       ms   share     MFLOP      MB  GFLOP/s    GB/s  of peak  of bandwidth  bound by
rows.0           example.attn:7         12   1.0000    9.9%     4.000   8.000     4.00    8.00     0.8%          4.0%  memory (L2)
matmul.1         example.attn:9         12   8.0000   79.2%  3200.000  20.000   400.00    2.50    16.7%          5.0%  compute (AMX tiles)
gather.2         example.attn:12         1   0.5000    5.0%     0.000   0.400     0.00    0.80     0.0%          0.4%  memory (L2) (at most)
carry.0                                  1   0.1000    1.0%     0.000  12.000     0.00  120.00     0.0%        100.0%  memory
all kernels                             26   9.6000   95.0%  3204.000  40.400   333.75    4.21                         (at most)
between kernels                              0.5000    5.0%
the call                                    10.1000  100.0%

FLOP: what the kernels do; an exp is one, and so is each half of a multiply-add. Bytes: what must be moved at least, each buffer once.
Of peak, of bandwidth: beside the products that the kernel uses, and the memory that its data comes from at best: a cache that
holds what a launch touches, for parameters one that holds what the whole call touches.
carry: copies a value that a loop hands to its next iteration, where it cannot be computed in place.
";
        assert_eq!(text, expected);
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
        assert_eq!(value["ceilings"]["threads"], 2);
        let share: f64 = value["kernels"].as_array().unwrap().iter().map(|k| k["share"].as_f64().unwrap()).sum();
        assert!((share - 0.9505).abs() < 1e-3, "{share}");
    }
}
