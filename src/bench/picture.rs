//! A report as a roofline plot: an SVG for light and dark backgrounds.
//!
//! X axis: operations per byte that must be moved. Y axis: operations per second. A slope is the
//! bandwidth of a memory or cache, a roof the rate of one kind of multiplication; the plot shows
//! the lines that limit some kernel, and always memory and `f32`. A dot is a kernel, with an area
//! proportional to its share of the call's time. Kernels are labelled where the label covers no
//! line, dot or other label; the legend has everything else, and the labels for which there was no
//! space.

use super::{Bound, Memory, Products, Report, Site};
use crate::svg::{self, escape, text};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Size of the SVG.
const SIZE: (f64, f64) = (1200.0, 600.0);
/// Edges of the plot area: left, top, right, bottom.
const PLANE: (f64, f64, f64, f64) = (80.0, 64.0, 930.0, 530.0);

const STYLE: &str = "\
    .roof { stroke: #1c1c1c; stroke-width: 1.6; fill: none }
    .compute { fill: #b3471d } .memory { fill: #1d63b3 } circle { fill-opacity: 0.8 }
    .lead { stroke: #9a9a9a }
    @media (prefers-color-scheme: dark) {
      .roof { stroke: #ececec } .lead { stroke: #70757d }
      .compute { fill: #ff8a5c } .memory { fill: #6db0ff }
    }";

/// Both axes: powers of ten from the first exponent to the last.
struct Axes {
    across: (i32, i32),
    up: (i32, i32),
}

impl Axes {
    /// Axes that include every dot and the points where the lines of the ceilings meet.
    fn enclosing(report: &Report, dots: &[&Site], ceilings: &Drawn) -> Axes {
        let ridges = ceilings
            .memories
            .iter()
            .flat_map(|m| ceilings.products.iter().map(|(_, flops)| (flops / m.bandwidth.max(1.0), *flops)));
        let places = dots.iter().map(|s| place(report, s)).chain(ridges);
        let (mut across, mut up) = ((f64::MAX, f64::MIN), (f64::MAX, f64::MIN));
        for (x, y) in places {
            across = (across.0.min(x), across.1.max(x));
            up = (up.0.min(y), up.1.max(y));
        }
        let decades = |(low, high): (f64, f64)| {
            // Leave some space below the lowest and above the highest.
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

/// Operations per byte, and per second.
fn place(report: &Report, site: &Site) -> (f64, f64) {
    let rates = report.rates(site);
    (site.flops as f64 / (site.bytes as f64).max(1.0), rates.flops)
}

/// The ceilings to draw.
struct Drawn {
    /// Nearest first.
    memories: Vec<Memory>,
    products: Vec<(Products, f64)>,
}

impl Drawn {
    /// The ceilings that limit some kernel, and memory and `f32`.
    fn select(report: &Report) -> Drawn {
        let c = &report.ceilings;
        let near = |s: &Site| c.memory_of(s.bytes / u64::try_from(s.launches).unwrap_or(1).max(1)).name;
        let names = report.sites.iter().flat_map(|s| [report.rates(s).memory, near(s)]);
        let used: BTreeSet<&str> = names.chain(c.memories.last().map(|m| m.name)).collect();
        let kinds: BTreeSet<Products> = report.sites.iter().map(|s| s.products).chain([Products::Floats]).collect();
        Drawn {
            memories: c.memories.iter().filter(|m| used.contains(m.name)).copied().collect(),
            products: c.products.iter().filter(|(p, _)| kinds.contains(p)).copied().collect(),
        }
    }
}

/// Draws the plot.
pub fn picture(report: &Report) -> String {
    let (dots, others): (Vec<&Site>, Vec<&Site>) = report.sites.iter().partition(|s| s.flops > 0);
    let ceilings = Drawn::select(report);
    let axes = Axes::enclosing(report, &dots, &ceilings);
    let left = PLANE.0;
    let title = format!("{}.{}: each kernel and the ceilings of this machine", report.model, report.entry);
    let mut svg = svg::begin(SIZE, STYLE, &title);
    text(&mut svg, "ink title", (left, 24.0), "start", &title);
    let sizes: Vec<String> = report.sizes.iter().map(|(name, n)| format!("{name}={n}")).collect();
    let (time, code) = (format!("{:.3} ms", report.seconds * 1e3), format!("{} code", report.variant));
    let mut parts = vec![time, code, report.workers()];
    parts.extend((!sizes.is_empty()).then(|| sizes.join(", ")));
    text(&mut svg, "faint", (left, 42.0), "start", &parts.join(" · "));
    grid(&mut svg, &axes);
    let lines = roofs(&mut svg, &ceilings, &axes);
    let unnamed = names(&mut svg, report, &axes, &dots, &lines);
    legend(&mut svg, report, &ceilings, &unnamed, &others);
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
    text(svg, "ink", (left - 8.0, top - 10.0), "end", "GFLOP/s");
}

/// A power of ten in words.
fn number(exponent: i32) -> String {
    match exponent {
        -3..0 => format!("{:.*}", exponent.unsigned_abs() as usize, 10f64.powi(exponent)),
        0..6 => format!("{}", 10i64.pow(exponent.unsigned_abs())),
        _ => format!("1e{exponent}"),
    }
}

/// A line segment, from one end to the other.
type Segment = ((f64, f64), (f64, f64));

/// Dash pattern of the n-th ceiling; all are distinct. The roofs come first, with `f32` solid, then
/// the slopes.
fn dashes(n: usize) -> &'static str {
    ["none", "12 4", "7 4", "2 3", "9 3 2 3", "1 5", "14 3 5 3", "9 3 2 3 2 3", "4 8"].get(n).copied().unwrap_or("1 9")
}

/// Draws the slopes of memories, up to the highest roof, and the roofs, starting at the steepest
/// slope.
fn roofs(svg: &mut String, ceilings: &Drawn, axes: &Axes) -> Vec<Segment> {
    let (left, _, right, bottom) = PLANE;
    let (mut lines, roofs) = (Vec::new(), ceilings.products.len());
    let highest = ceilings.products.iter().map(|p| p.1).fold(0.0, f64::max);
    let fastest = ceilings.memories.iter().map(|m| m.bandwidth).fold(1.0, f64::max);
    for (n, m) in ceilings.memories.iter().rev().enumerate() {
        let bandwidth = m.bandwidth.max(1.0);
        // It starts at the left or the lower edge.
        let lowest = 10f64.powi(axes.across.0) * bandwidth;
        let from = if lowest >= 10f64.powi(axes.up.0) {
            (left, axes.y(lowest))
        } else {
            (axes.x(10f64.powi(axes.up.0) / bandwidth), bottom)
        };
        lines.push((roofs + n, (from, (axes.x(highest / bandwidth), axes.y(highest)))));
    }
    for (n, (_, flops)) in ceilings.products.iter().enumerate() {
        lines.push((n, ((axes.x(flops / fastest), axes.y(*flops)), (right, axes.y(*flops)))));
    }
    for (n, ((x0, y0), (x1, y1))) in &lines {
        let dash = dashes(*n);
        let _ = writeln!(
            svg,
            "  <path class=\"roof\" stroke-dasharray=\"{dash}\" d=\"M{x0:.1} {y0:.1} L{x1:.1} {y1:.1}\"/>"
        );
    }
    lines.into_iter().map(|(_, line)| line).collect()
}

/// A box: left, top, right, bottom.
type Frame = (f64, f64, f64, f64);

fn overlap(a: Frame, b: Frame) -> bool {
    a.0 < b.2 && b.0 < a.2 && a.1 < b.3 && b.1 < a.3
}

/// Does a segment intersect a box? (Liang and Barsky 1984.)
fn crosses(((x0, y0), (x1, y1)): Segment, frame: Frame) -> bool {
    let (mut from, mut to) = (0.0f64, 1.0f64);
    for (p, q) in [(x0 - x1, x0 - frame.0), (x1 - x0, frame.2 - x0), (y0 - y1, y0 - frame.1), (y1 - y0, frame.3 - y0)] {
        if p == 0.0 {
            if q < 0.0 {
                return false;
            }
        } else if p < 0.0 {
            from = from.max(q / p);
        } else {
            to = to.min(q / p);
        }
    }
    from <= to
}

/// Height of a line of text, and an upper bound of the average width of a character.
const TEXT: (f64, f64) = (15.0, 7.4);

fn radius(report: &Report, site: &Site) -> f64 {
    3.0 + 18.0 * (site.seconds / report.seconds.max(1e-12)).clamp(0.0, 1.0).sqrt()
}

/// The label of a kernel, the colour class of the ceiling that limits it, and its rate relative to
/// that ceiling.
fn label(report: &Report, site: &Site) -> (String, &'static str) {
    let rates = report.rates(site);
    let (class, of) = match rates.bound {
        Bound::Compute => ("compute", rates.of_flops),
        Bound::Memory => ("memory", rates.of_bandwidth),
    };
    // Several launch sites of one kernel are distinguished by their lines.
    let is_alone = report.sites.iter().filter(|s| s.kernel == site.kernel).count() == 1;
    let line = site.source.rsplit(':').next().filter(|line| !is_alone && !line.is_empty());
    let line = line.map_or(String::new(), |line| format!(":{line}"));
    (format!("{}{line} {:.0}%", site.kernel, of * 100.0), class)
}

/// Draws the dots with labels that overlap nothing; returns the labels without space.
fn names(svg: &mut String, report: &Report, axes: &Axes, dots: &[&Site], lines: &[Segment]) -> Vec<String> {
    let circles: Vec<Frame> = dots
        .iter()
        .map(|s| {
            let ((x, y), r) = (place(report, s), radius(report, s));
            let (x, y) = (axes.x(x), axes.y(y));
            (x - r, y - r, x + r, y + r)
        })
        .collect();
    let (mut placed, mut unnamed): (Vec<Frame>, Vec<String>) = (Vec::new(), Vec::new());
    for (site, circle) in dots.iter().zip(&circles) {
        let (x, y, r) = ((circle.0 + circle.2) / 2.0, (circle.1 + circle.3) / 2.0, radius(report, site));
        let (name, class) = label(report, site);
        let share = (site.seconds / report.seconds.max(1e-12)).clamp(0.0, 1.0);
        let source = if site.source.is_empty() { String::new() } else { format!(" ({})", site.source) };
        let _ = writeln!(
            svg,
            "  <circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r:.1}\"><title>{}</title></circle>",
            escape(&format!("{name} of its ceiling, {:.1}% of the time{source}", share * 100.0))
        );
        let (height, width) = (TEXT.0, TEXT.1 * name.chars().count() as f64 + 4.0);
        let free = |frame: &Frame| {
            frame.0 >= PLANE.0
                && frame.1 >= PLANE.1
                && frame.2 <= PLANE.2
                && frame.3 <= PLANE.3
                && !placed.iter().chain(&circles).any(|other| overlap(*frame, *other))
                && !lines.iter().any(|line| crosses(*line, *frame))
        };
        // Try beside the dot, then farther away, in all directions.
        let rings = (0..14).flat_map(|ring| (0..16).map(move |turn| (f64::from(ring), f64::from(turn))));
        let mut places = rings.map(|(ring, turn)| {
            let (sin, cos) = (turn * std::f64::consts::TAU / 16.0).sin_cos();
            let (far_x, far_y) = (r + 4.0 + 18.0 * ring + width / 2.0, r + 2.0 + 14.0 * ring + height / 2.0);
            let middle = (x + far_x * cos, y + far_y * sin);
            (middle.0 - width / 2.0, middle.1 - height / 2.0, middle.0 + width / 2.0, middle.1 + height / 2.0)
        });
        let Some(frame) = places.find(free) else {
            unnamed.push(name);
            continue;
        };
        // A leader to the nearest point of the label, unless that is beside the dot.
        let near = (x.clamp(frame.0, frame.2), y.clamp(frame.1, frame.3));
        if (near.0 - x).hypot(near.1 - y) > r + 12.0 {
            let _ = writeln!(svg, "  <path class=\"lead\" d=\"M{x:.1} {y:.1} L{:.1} {:.1}\"/>", near.0, near.1);
        }
        placed.push(frame);
        text(svg, "ink name", ((frame.0 + frame.2) / 2.0, frame.3 - 4.0), "middle", &name);
    }
    unnamed
}

/// Draws the legend, right of the plot area.
fn legend(svg: &mut String, report: &Report, ceilings: &Drawn, unnamed: &[String], others: &[&Site]) {
    let (at, end) = (PLANE.2 + 24.0, SIZE.0 - 12.0);
    let mut y = PLANE.1 + 8.0;
    let mut line = |svg: &mut String, mark: Option<String>, class: &str, words: &str| {
        let indent = if mark.is_some() { 36.0 } else { 0.0 };
        if let Some(mark) = mark {
            let _ = writeln!(svg, "  {}", mark.replace("{y}", &format!("{:.1}", y - 4.0)));
        }
        // Wrap lines that are too long.
        let room = ((end - at - indent) / TEXT.1) as usize;
        let mut rest = words;
        while !rest.is_empty() {
            let cut = match rest.char_indices().nth(room) {
                Some((most, _)) => rest.get(..most).and_then(|r| r.rfind(' ')).filter(|n| *n > 0).unwrap_or(most),
                None => rest.len(),
            };
            let (now, later) = rest.split_at(cut);
            text(svg, class, (at + indent, y), "start", now);
            rest = later.trim_start();
            y += 18.0;
        }
    };
    line(svg, None, "ink title", "Ceilings");
    let stroke = |n: usize| {
        let (x, dash) = (at, dashes(n));
        Some(format!("<path class=\"roof\" stroke-dasharray=\"{dash}\" d=\"M{x:.1} {{y}} h28\"/>"))
    };
    for (n, (products, flops)) in ceilings.products.iter().enumerate() {
        let name = if *products == Products::Floats { report.ceilings.vectors } else { products.name() };
        line(svg, stroke(n), "ink", &format!("{:.0} GFLOP/s, {name}", flops / 1e9));
    }
    for (n, m) in ceilings.memories.iter().rev().enumerate() {
        line(
            svg,
            stroke(ceilings.products.len() + n),
            "ink",
            &format!("{:.0} GB/s from {}", m.bandwidth / 1e9, m.name),
        );
    }
    line(svg, None, "ink title", "Kernels");
    let dot = |class: &str, r: f64| {
        Some(format!("<ellipse class=\"{class}\" cx=\"{:.1}\" cy=\"{{y}}\" rx=\"{r}\" ry=\"{r}\"/>", at + 14.0))
    };
    line(svg, dot("compute", 6.0), "ink", "bound by products");
    line(svg, dot("memory", 6.0), "ink", "bound by memory or a cache");
    line(svg, dot("compute", 4.8), "ink", "1 % of the call's time");
    line(svg, dot("compute", 8.7), "ink", "10 %");
    line(svg, None, "faint", "%: of the nearest ceiling that the kernel has");
    if !unnamed.is_empty() {
        line(svg, None, "faint", &format!("not named: {}", unnamed.join(", ")));
    }
    if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(|s| s.kernel.as_str()).collect();
        line(svg, None, "faint", &format!("without floating-point operations: {}", names.join(", ")));
    }
    for warning in report.warnings() {
        line(svg, None, "ink", &format!("Warning: {warning}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of an attribute.
    fn value(element: &str, name: &str) -> f64 {
        let (_, rest) = element.split_once(&format!(" {name}=\"")).unwrap_or_else(|| panic!("{name} in {element}"));
        rest.split('"').next().unwrap().parse().unwrap()
    }

    /// The labels of a plot with lower bounds of their boxes: seven units per character.
    fn boxes(svg: &str) -> Vec<(String, Frame)> {
        let names = svg.lines().filter(|line| line.contains("class=\"ink name\""));
        let boxes = names.map(|line| {
            let words = line.split_once('>').unwrap().1.split('<').next().unwrap();
            let (x, y, half) = (value(line, "x"), value(line, "y"), 3.5 * words.chars().count() as f64);
            (words.to_string(), (x - half, y - 10.0, x + half, y + 3.0))
        });
        boxes.collect()
    }

    /// Points on all lines of ceilings, one unit apart.
    fn points(svg: &str) -> Vec<(f64, f64)> {
        let mut points = Vec::new();
        for line in svg.lines().filter(|line| line.contains("class=\"roof\"") && line.contains(" L")) {
            let path = line.split_once(" d=\"M").unwrap().1.trim_end_matches("\"/>").replace('L', "");
            let n: Vec<f64> = path.split_whitespace().map(|n| n.parse().unwrap()).collect();
            let steps = (n[2] - n[0]).hypot(n[3] - n[1]).ceil() as usize + 1;
            points.extend((0..=steps).map(|k| {
                let part = k as f64 / steps as f64;
                (n[0] + part * (n[2] - n[0]), n[1] + part * (n[3] - n[1]))
            }));
        }
        points
    }

    #[test]
    fn a_picture_has_a_dot_for_each_kernel_that_computes() {
        let svg = picture(&super::super::example());
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<circle").count(), 2);
        for part in [
            "matmul.1 17%",
            "rows.0 4%",
            "480 GFLOP/s, 512-bit FMA",
            "2400 GFLOP/s, AMX tiles",
            "46 GB/s from memory",
            "200 GB/s from L2",
            "(example.attn:9)",
            "gather.2, carry.0",
            "bound by products",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        // All ceilings have distinct dash patterns, which agree with the legend.
        let dashed = |part: &str| -> Vec<&str> {
            let lines = svg.lines().filter(|line| line.contains("class=\"roof\"") && line.contains(part));
            lines.filter_map(|line| line.split("stroke-dasharray=\"").nth(1)?.split('"').next()).collect()
        };
        let (mut plane, mut legend) = (dashed(" L"), dashed(" h28"));
        plane.sort_unstable();
        legend.sort_unstable();
        assert_eq!(plane, legend);
        plane.dedup();
        assert!(plane.len() == legend.len() && plane.len() >= 4, "{plane:?}");
        // No kernel has its data in L1.
        assert!(!svg.contains("from L1") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        // Every dot is in the plot area.
        for dot in svg.lines().filter(|line| line.contains("<circle")) {
            let (x, y) = (value(dot, "cx"), value(dot, "cy"));
            assert!((PLANE.0..=PLANE.2).contains(&x) && (PLANE.1..=PLANE.3).contains(&y), "{dot}");
        }
    }

    /// Labels overlap no line of a ceiling, no other label and no dot. Labels without space are
    /// listed.
    #[test]
    fn names_cross_nothing() {
        let mut rng = crate::random::Random::new(3);
        for count in [1, 5, 12, 40] {
            let mut report = super::super::example();
            let one = report.sites[1].clone();
            report.sites = (0..count)
                .map(|n| {
                    let flops = 10f64.powf(6.0 + 4.0 * rng.unit());
                    // Close to each other, and many close to a ceiling.
                    let (bytes, seconds) =
                        (flops / 10f64.powf(2.5 * rng.unit()), flops / (400e9 * rng.unit().max(0.05)));
                    let (flops, bytes) = (flops as u64, bytes as u64);
                    let products = if rng.unit() < 0.5 { Products::Floats } else { Products::Tiles };
                    Site { kernel: format!("matmul.{n}"), flops, bytes, seconds, products, launches: 1, ..one.clone() }
                })
                .collect();
            report.seconds = report.sites.iter().map(|s| s.seconds).sum();
            let svg = picture(&report);
            let named = boxes(&svg);
            let listed = svg.replace("</text>", "");
            for site in &report.sites {
                let (name, _) = label(&report, site);
                let is_named = named.iter().any(|(words, _)| *words == name);
                assert!(is_named || listed.contains(site.kernel.as_str()), "{name}: {svg}");
            }
            assert!(named.len() * 2 >= count, "{} of {count} have names", named.len());
            let inside = |(x, y): (f64, f64), f: &Frame| x > f.0 && x < f.2 && y > f.1 && y < f.3;
            let on_lines = points(&svg);
            assert!(on_lines.len() > 500);
            for (n, (words, frame)) in named.iter().enumerate() {
                assert!(
                    frame.0 >= PLANE.0 && frame.2 <= PLANE.2 && frame.1 >= PLANE.1 && frame.3 <= PLANE.3,
                    "{words}"
                );
                assert!(!on_lines.iter().any(|p| inside(*p, frame)), "{words} crosses a line: {svg}");
                for (other, f) in named.iter().skip(n + 1) {
                    let apart = frame.2 <= f.0 || f.2 <= frame.0 || frame.3 <= f.1 || f.3 <= frame.1;
                    assert!(apart, "{words} and {other}: {svg}");
                }
                for dot in svg.lines().filter(|line| line.contains("<circle")) {
                    assert!(!inside((value(dot, "cx"), value(dot, "cy")), frame), "{words}: {dot}");
                }
            }
        }
    }

    #[test]
    fn launches_of_one_kernel_are_told_apart() {
        let mut report = super::super::example();
        report.sites.push(Site { source: "example.attn:30".to_string(), ..report.sites[0].clone() });
        let svg = picture(&report);
        assert!(
            svg.contains(">rows.0:7 4%<") && svg.contains(">rows.0:30 4%<") && svg.contains(">matmul.1 17%<"),
            "{svg}"
        );
    }

    #[test]
    fn who_worked_is_named_as_in_the_table() {
        let mut report = super::super::example();
        assert!(picture(&report).contains("portable code · 2 threads · "));
        report.gpu = Some(super::super::Device { name: "A GPU".to_string(), simulated: false });
        report.ceilings.workers = 132;
        assert!(picture(&report).contains("portable code · 132 multiprocessors · "));
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
