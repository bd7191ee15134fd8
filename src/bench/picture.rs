//! A report as a roofline picture: an SVG that is read in light and in dark.
//!
//! Across: operations for each byte that must be moved. Up: operations a second. The slope is what memory can feed, the
//! roof what multiply-adds reach; a dot is a kernel, its area the share of the call's time that it takes.

use super::{Bound, Report, Site};
use std::fmt::Write as _;

/// Size of the picture.
const SIZE: (f64, f64) = (960.0, 600.0);
/// The plane's edges: left, top, right, bottom.
const PLANE: (f64, f64, f64, f64) = (80.0, 64.0, 930.0, 530.0);

const STYLE: &str = "\
    .ground { fill: #ffffff } .ink { fill: #1c1c1c } .faint { fill: #6a6a6a }
    .grid { stroke: #e4e4e4 } .roof { stroke: #1c1c1c; stroke-width: 2; fill: none }
    .compute { fill: #b3471d } .memory { fill: #1d63b3 } circle { fill-opacity: 0.8 }
    .lead { stroke: #9a9a9a }
    text { font: 13px system-ui, sans-serif } .title { font-size: 16px; font-weight: 600 }
    @media (prefers-color-scheme: dark) {
      .ground { fill: #14161a } .ink { fill: #ececec } .faint { fill: #a0a0a0 }
      .grid { stroke: #2c3036 } .roof { stroke: #ececec } .lead { stroke: #70757d }
      .compute { fill: #ff8a5c } .memory { fill: #6db0ff }
    }";

/// Both axes: powers of ten from the first exponent to the last.
struct Axes {
    across: (i32, i32),
    up: (i32, i32),
}

impl Axes {
    /// What shows every dot and the ridge, where slope and roof meet.
    fn of(report: &Report, dots: &[&Site]) -> Axes {
        let c = &report.ceilings;
        let ridge = (c.flops / c.bandwidth.max(1.0), c.flops);
        let places = dots.iter().map(|s| place(report, s)).chain([ridge]);
        let (mut across, mut up) = ((f64::MAX, f64::MIN), (f64::MAX, f64::MIN));
        for (x, y) in places {
            across = (across.0.min(x), across.1.max(x));
            up = (up.0.min(y), up.1.max(y));
        }
        let decades = |(low, high): (f64, f64)| {
            // Some room below the lowest and above the highest.
            let low = (low * 0.7).max(1e-9).log10().floor() as i32;
            (low, ((high.max(1e-9) * 1.5).log10().ceil() as i32).max(low + 1))
        };
        Axes { across: decades(across), up: decades(up) }
    }

    fn x(&self, value: f64) -> f64 {
        let (low, high) = self.across;
        PLANE.0 + (value.max(1e-12).log10() - f64::from(low)) / f64::from(high - low) * (PLANE.2 - PLANE.0)
    }

    fn y(&self, value: f64) -> f64 {
        let (low, high) = self.up;
        PLANE.3 - (value.max(1e-12).log10() - f64::from(low)) / f64::from(high - low) * (PLANE.3 - PLANE.1)
    }
}

/// Operations for each byte, and a second.
fn place(report: &Report, site: &Site) -> (f64, f64) {
    let rates = report.rates(site.flops, site.bytes, site.seconds);
    (site.flops as f64 / (site.bytes as f64).max(1.0), rates.flops)
}

/// The picture.
pub fn picture(report: &Report) -> String {
    let (dots, others): (Vec<&Site>, Vec<&Site>) = report.sites.iter().partition(|s| s.flops > 0);
    let axes = Axes::of(report, &dots);
    let (left, _, right, bottom) = PLANE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\">\n  <style>\n{STYLE}\n  </style>\n",
        SIZE.0, SIZE.1
    );
    let title = format!("{}.{}: each kernel and the ceilings of this machine", report.model, report.entry);
    let _ = writeln!(svg, "  <title>{}</title>", escape(&title));
    let _ = writeln!(svg, "  <rect class=\"ground\" width=\"{}\" height=\"{}\"/>", SIZE.0, SIZE.1);
    text(&mut svg, "ink title", (left, 28.0), "start", &title);
    let sizes: Vec<String> = report.sizes.iter().map(|(name, n)| format!("{name}={n}")).collect();
    let c = &report.ceilings;
    let threads = if c.threads == 1 { "1 thread".to_string() } else { format!("{} threads", c.threads) };
    let mut parts = vec![format!("{:.3} ms", report.seconds * 1e3), format!("{} code", report.variant), threads];
    parts.extend((!sizes.is_empty()).then(|| sizes.join(", ")));
    text(&mut svg, "faint", (left, 48.0), "start", &parts.join(" · "));
    grid(&mut svg, &axes);
    roof(&mut svg, report, &axes);
    labels(&mut svg, report, &axes, &dots);
    if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(|s| s.kernel.as_str()).collect();
        let note = format!("without floating-point operations: {}", names.join(", "));
        text(&mut svg, "faint", (right, bottom + 56.0), "end", &note);
    }
    svg += "</svg>\n";
    svg
}

fn grid(svg: &mut String, axes: &Axes) {
    let (left, top, right, bottom) = PLANE;
    for n in axes.across.0..=axes.across.1 {
        let x = axes.x(10f64.powi(n));
        let _ = writeln!(svg, "  <path class=\"grid\" d=\"M{x:.1} {top} V{bottom}\"/>");
        text(svg, "faint", (x, bottom + 18.0), "middle", &number(n));
    }
    for n in axes.up.0..=axes.up.1 {
        let y = axes.y(10f64.powi(n));
        let _ = writeln!(svg, "  <path class=\"grid\" d=\"M{left} {y:.1} H{right}\"/>");
        text(svg, "faint", (left - 8.0, y + 4.0), "end", &number(n - 9));
    }
    text(svg, "ink", ((left + right) / 2.0, bottom + 38.0), "middle", "FLOP for each byte that must be moved");
    text(svg, "ink", (left - 8.0, top - 16.0), "end", "GFLOP/s");
}

/// A power of ten as people write it.
fn number(exponent: i32) -> String {
    match exponent {
        -3..0 => format!("{:.*}", exponent.unsigned_abs() as usize, 10f64.powi(exponent)),
        0..6 => format!("{}", 10i64.pow(exponent.unsigned_abs())),
        _ => format!("1e{exponent}"),
    }
}

/// The slope of memory up to where it meets the roof of multiply-adds.
fn roof(svg: &mut String, report: &Report, axes: &Axes) {
    let (left, _, right, bottom) = PLANE;
    let c = &report.ceilings;
    let (x, y) = (axes.x(c.flops / c.bandwidth.max(1.0)), axes.y(c.flops));
    // The slope begins at the left or at the lower edge.
    let lowest = 10f64.powi(axes.across.0) * c.bandwidth;
    let (x0, y0) = if lowest >= 10f64.powi(axes.up.0) {
        (left, axes.y(lowest))
    } else {
        (axes.x(10f64.powi(axes.up.0) / c.bandwidth.max(1.0)), bottom)
    };
    let _ = writeln!(svg, "  <path class=\"roof\" d=\"M{x0:.1} {y0:.1} L{x:.1} {y:.1} H{right}\"/>");
    let peak = format!("{:.0} GFLOP/s, {}", c.flops / 1e9, c.vectors);
    text(svg, "ink", (right, y - 8.0), "end", &peak);
    let (mx, my) = ((x0 + x) / 2.0, (y0 + y) / 2.0);
    let angle = (y - y0).atan2(x - x0).to_degrees();
    let _ = writeln!(
        svg,
        "  <text class=\"ink\" text-anchor=\"middle\" transform=\"translate({:.1} {:.1}) rotate({angle:.1})\">{}</text>",
        mx,
        my - 10.0,
        escape(&format!("{:.0} GB/s from memory", c.bandwidth / 1e9))
    );
}

/// The dots with their names, which keep out of each other's way.
fn labels(svg: &mut String, report: &Report, axes: &Axes, dots: &[&Site]) {
    let mut placed: Vec<(f64, f64)> = Vec::new();
    // From the top down, so that names that move down do not cross.
    let mut dots = dots.to_vec();
    dots.sort_by(|a, b| place(report, b).1.total_cmp(&place(report, a).1));
    for site in dots {
        let rates = report.rates(site.flops, site.bytes, site.seconds);
        let (intensity, speed) = place(report, site);
        let (x, y) = (axes.x(intensity), axes.y(speed));
        let share = (site.seconds / report.seconds.max(1e-12)).clamp(0.0, 1.0);
        let radius = 3.0 + 18.0 * share.sqrt();
        let (class, of) = match rates.bound {
            Bound::Compute => ("compute", rates.of_flops),
            Bound::Memory => ("memory", rates.of_bandwidth),
        };
        let _ = writeln!(
            svg,
            "  <circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"><title>{}</title></circle>",
            escape(&format!("{}: {:.1} % of the time, {:.1} % of its ceiling", site.kernel, share * 100.0, of * 100.0))
        );
        let name = format!("{} {:.0}%", site.kernel, of * 100.0);
        let to_left = x + radius + 8.0 * name.len() as f64 > PLANE.2;
        let at = if to_left { x - radius - 6.0 } else { x + radius + 6.0 };
        let mut line = y + 4.0;
        while placed.iter().any(|(px, py)| (px - at).abs() < 150.0 && (py - line).abs() < 15.0) && line < PLANE.3 - 4.0
        {
            line += 15.0;
        }
        placed.push((at, line));
        if line > y + 8.0 {
            let _ = writeln!(svg, "  <path class=\"lead\" d=\"M{x:.1} {y:.1} L{at:.1} {:.1}\"/>", line - 4.0);
        }
        text(svg, "ink", (at, line), if to_left { "end" } else { "start" }, &name);
    }
}

fn text(svg: &mut String, class: &str, (x, y): (f64, f64), anchor: &str, content: &str) {
    let content = escape(content);
    let _ =
        writeln!(svg, "  <text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_a_dot_for_each_kernel_that_computes() {
        let svg = picture(&super::super::example());
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<circle").count(), 2);
        for part in
            ["matmul.1 83%", "rows.0 17%", "480 GFLOP/s", "46 GB/s", "without floating-point operations: gather.2"]
        {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        // Every dot is on the plane.
        for dot in svg.lines().filter(|line| line.contains("<circle")) {
            let value = |name: &str| -> f64 {
                let (_, rest) = dot.split_once(&format!(" {name}=\"")).unwrap();
                rest.split('"').next().unwrap().parse().unwrap()
            };
            assert!((PLANE.0..=PLANE.2).contains(&value("cx")) && (PLANE.1..=PLANE.3).contains(&value("cy")), "{dot}");
        }
    }

    #[test]
    fn an_empty_report_has_a_picture_too() {
        let mut report = super::super::example();
        report.sites.clear();
        report.model = "<&>".to_string();
        let svg = picture(&report);
        assert!(svg.contains("&lt;&amp;&gt;.forward") && !svg.contains("NaN"), "{svg}");
    }
}
