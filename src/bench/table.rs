//! A report as a table for people, and as JSON for programs.

use super::{Rates, Report, Site};
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
    let _ = writeln!(
        text,
        "this machine, measured: {:.1} GFLOP/s ({}), {:.1} GB/s read from memory\n",
        c.flops / 1e9,
        c.vectors,
        c.bandwidth / 1e9
    );
    let all = report.all();
    let width = report.sites.iter().map(|s| s.kernel.chars().count()).max().unwrap_or(0).max("between kernels".len());
    let _ = writeln!(
        text,
        "{:width$} {:>8} {:>10} {:>6} {:>10} {:>10} {:>9} {:>8} {:>7} {:>9}  bound by",
        "kernel", "launches", "ms", "share", "MFLOP", "MB", "GFLOP/s", "GB/s", "of peak", "of memory"
    );
    for site in report.sites.iter().chain([&all]) {
        let rates = report.rates(site.flops, site.bytes, site.seconds);
        let mark = if site.exact { "" } else { " (at most)" };
        let _ = writeln!(
            text,
            "{:width$} {:>8} {:>10.4} {:>6} {:>10.3} {:>10.3} {:>9.2} {:>8.2} {:>7} {:>9}  {}{mark}",
            site.kernel,
            site.launches,
            site.seconds * 1e3,
            percent(site.seconds / report.seconds.max(1e-12)),
            site.flops as f64 / 1e6,
            site.bytes as f64 / 1e6,
            rates.flops / 1e9,
            rates.bandwidth / 1e9,
            percent(rates.of_flops),
            percent(rates.of_bandwidth),
            rates.bound.name(),
        );
    }
    let between = report.seconds - all.seconds;
    let (label, share) = ("between kernels", percent(between / report.seconds.max(1e-12)));
    let _ = writeln!(text, "{label:width$} {:>8} {:>10.4} {share:>6}", "", between * 1e3);
    let _ = writeln!(text, "{:width$} {:>8} {:>10.4} {:>6}", "the call", "", report.seconds * 1e3, percent(1.0));
    text += "\nFLOP: what the kernels do; an exp is one, and so is each half of a multiply-add. \
             Bytes: what must be moved at least, each buffer once.\n";
    text
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
        })
    };
    let site = |s: &Site| {
        let mut value = json!({
            "kernel": s.kernel,
            "launches": s.launches,
            "seconds": s.seconds,
            "share": s.seconds / report.seconds.max(1e-12),
            "flops": s.flops,
            "bytes": s.bytes,
            "exact": s.exact,
        });
        if let (Value::Object(value), Value::Object(rates)) =
            (&mut value, rates(&report.rates(s.flops, s.bytes, s.seconds)))
        {
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
            "flops_per_second": c.flops,
            "bytes_per_second": c.bandwidth,
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
this machine, measured: 480.0 GFLOP/s (512-bit FMA), 46.0 GB/s read from memory

kernel          launches         ms  share      MFLOP         MB   GFLOP/s     GB/s of peak of memory  bound by
rows.0                12     1.0000   9.9%      4.000      8.000      4.00     8.00    0.8%     17.4%  memory
matmul.1              12     8.0000  79.2%   3200.000     20.000    400.00     2.50   83.3%      5.4%  compute
gather.2               1     0.5000   5.0%      0.000      0.400      0.00     0.80    0.0%      1.7%  memory (at most)
all kernels           25     9.5000  94.1%   3204.000     28.400    337.26     2.99   70.3%      6.5%  compute (at most)
between kernels              0.6000   5.9%
the call                    10.1000 100.0%

FLOP: what the kernels do; an exp is one, and so is each half of a multiply-add. \
Bytes: what must be moved at least, each buffer once.
";
        assert_eq!(text, expected);
    }

    #[test]
    fn json_says_the_same() {
        let value: Value = serde_json::from_str(&json(&super::super::example())).unwrap();
        assert_eq!(value["kernels"][1]["kernel"], "matmul.1");
        assert_eq!(value["kernels"][1]["flops"], 3_200_000_000u64);
        assert_eq!(value["kernels"][1]["bound"], "compute");
        assert_eq!(value["all"]["launches"], 25);
        assert_eq!(value["sizes"]["S"], 128);
        assert_eq!(value["ceilings"]["threads"], 2);
        let share: f64 = value["kernels"].as_array().unwrap().iter().map(|k| k["share"].as_f64().unwrap()).sum();
        assert!((share - 0.9406).abs() < 1e-3, "{share}");
    }
}
