//! The schedule of a block over time, as a picture or text:
//! `attnc run --backend ptx-sim --schedule FILE`.
//!
//! Horizontally: cycles of the simulator's model of a multiprocessor. Vertically: the warps, each
//! with its main activity in a time slice; tensor cores and copies in flight; the parts of shared
//! memory, being filled or holding data. In: the timeline of a block, names of warps. Out: SVG or
//! text. Must not know: how a timeline is recorded.

use std::fmt::Write as _;

use crate::ptx::sim::{Activity, Interval, Span, Timeline};
use crate::svg::{self, escape, text};

/// A row of a schedule: its label, and a cell for each time slice.
struct Row {
    label: String,
    cells: Vec<Cell>,
}

/// The content of a time slice.
#[derive(Clone, Copy, PartialEq)]
enum Cell {
    Nothing,
    /// The main activity of a warp.
    Warp(Activity),
    /// Utilisation, as a digit from 1 to 9.
    Level(u8),
    /// Shared memory is being filled.
    Fills,
    Holds,
    /// Both: one part is being filled while another is read.
    Both,
}

/// The rows of a timeline, in three groups: warps, units, shared memory.
fn rows(t: &Timeline, roles: &[String], columns: usize) -> [Vec<Row>; 3] {
    let stretch = |n: usize| -> Interval {
        let at = |n: usize| t.time.0 + t.cycles() * n as u64 / columns as u64;
        (at(n), at(n + 1).max(at(n) + 1))
    };
    let stretches: Vec<Interval> = (0..columns).map(stretch).collect();
    let of_warps = t.warps.iter().enumerate().map(|(n, spans)| Row {
        label: match roles.get(n) {
            Some(role) => format!("{role} {n}"),
            None => format!("warp {n}"),
        },
        cells: most(spans, &stretches),
    });
    let tensor: Vec<u64> =
        stretches.iter().map(|s| t.tensor.iter().flatten().map(|busy| common(*busy, *s)).sum()).collect();
    let levels = |values: &[f64]| values.iter().map(|v| level(*v)).collect::<Vec<Cell>>();
    let busy: Vec<f64> =
        tensor.iter().zip(&stretches).map(|(busy, s)| *busy as f64 / (4 * (s.1 - s.0)) as f64).collect();
    let flying: Vec<f64> = stretches
        .iter()
        .map(|s| {
            t.flights.iter().map(|f| u64::from(f.bytes) * common(f.time, *s)).sum::<u64>() as f64 / (s.1 - s.0) as f64
        })
        .collect();
    let highest = flying.iter().copied().fold(0.0, f64::max);
    let mut units = Vec::new();
    if t.tensor.iter().any(|core| !core.is_empty()) {
        units.push(Row { label: "tensor cores".to_string(), cells: levels(&busy) });
    }
    if !t.flights.is_empty() {
        let share: Vec<f64> = flying.iter().map(|bytes| bytes / highest.max(1.0)).collect();
        units.push(Row { label: "copies under way".to_string(), cells: levels(&share) });
    }
    let shared = t.stages.iter().map(|stage| {
        let is = |all: &[Interval], s: &Interval| all.iter().any(|i| common(*i, *s) > 0);
        let cell = |s: &Interval| match (is(&stage.fills, s), is(&stage.holds, s)) {
            (true, true) => Cell::Both,
            (true, false) => Cell::Fills,
            (false, true) => Cell::Holds,
            (false, false) => Cell::Nothing,
        };
        let bytes = stage.bytes.1 - stage.bytes.0;
        Row { label: format!("{:#07x} {}", stage.bytes.0, size(bytes)), cells: stretches.iter().map(cell).collect() }
    });
    [of_warps.collect(), units, shared.collect()]
}

/// The cycles that two intervals have in common.
fn common(a: Interval, b: Interval) -> u64 {
    a.1.min(b.1).saturating_sub(a.0.max(b.0))
}

/// The main activity of a warp in each time slice.
fn most(spans: &[Span], stretches: &[Interval]) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut first = 0;
    for s in stretches {
        while spans.get(first).is_some_and(|span| span.to <= s.0) {
            first += 1;
        }
        let mut cycles = [0u64; Activity::ALL.len()];
        for span in spans.iter().skip(first).take_while(|span| span.from < s.1) {
            if let Some(n) = Activity::ALL.iter().position(|what| *what == span.what).and_then(|n| cycles.get_mut(n)) {
                *n += common((span.from, span.to), *s);
            }
        }
        let best = Activity::ALL
            .iter()
            .zip(cycles)
            .filter(|(_, n)| *n > 0)
            .max_by_key(|(what, n)| (*n, std::cmp::Reverse(**what)));
        cells.push(best.map_or(Cell::Nothing, |(what, _)| Cell::Warp(*what)));
    }
    cells
}

fn level(share: f64) -> Cell {
    if share <= 0.0 { Cell::Nothing } else { Cell::Level((share * 9.0).ceil().clamp(1.0, 9.0) as u8) }
}

/// A size in bytes: `512 B`, `4 KiB`.
fn size(bytes: usize) -> String {
    if bytes >= 1024 && bytes.is_multiple_of(1024) { format!("{} KiB", bytes / 1024) } else { format!("{bytes} B") }
}

/// The title of a schedule.
fn title(t: &Timeline) -> [String; 2] {
    let [x, y, z] = t.block;
    let blocks: u64 = t.grid.iter().map(|n| u64::from(*n)).product();
    let place = if t.grid[1] == 1 && t.grid[2] == 1 { format!("{x}") } else { format!("({x}, {y}, {z})") };
    let mut facts = vec![
        format!("{} cycles of a simple model of {}, not measured", t.cycles(), t.target),
        format!("{} of shared memory, {} used at a time", size(t.shared_bytes), size(t.most_used())),
    ];
    if t.tensor_share() > 0.0 {
        facts.push(format!("tensor cores busy for {:.0} %", 100.0 * t.tensor_share()));
    }
    let flying: u64 = t.flights.iter().map(|f| u64::from(f.bytes)).sum();
    if flying > 0 {
        facts.push(format!("{} copied", size(flying as usize)));
    }
    [format!("{}: block {place} of {blocks}, {} warps", t.kernel, t.warps.len()), facts.join(" · ")]
}

/// The activities that a timeline has.
fn used(t: &Timeline) -> Vec<Activity> {
    Activity::ALL.into_iter().filter(|what| t.warps.iter().flatten().any(|span| span.what == *what)).collect()
}

/// Time slices of the text.
const COLUMNS: usize = 96;

/// The schedule as text. `roles` are the names of warps, where they have some.
pub fn schedule_text(t: &Timeline, roles: &[String]) -> String {
    let groups = rows(t, roles, COLUMNS);
    let width = groups.iter().flatten().map(|row| row.label.chars().count()).max().unwrap_or(0);
    let [first, second] = title(t);
    let mut out = format!("{first}\n{second}\n");
    let headings = ["", "", "shared memory"];
    for (group, heading) in groups.iter().zip(headings) {
        if group.is_empty() {
            continue;
        }
        let _ = writeln!(out, "{heading}");
        for row in group {
            let cells: String = row.cells.iter().map(|cell| letter(*cell)).collect();
            let _ = writeln!(out, "{:width$} {}", row.label, cells.trim_end());
        }
    }
    let legend: Vec<String> = used(t).into_iter().map(|what| format!("{} {}", what.letter(), what.name())).collect();
    let _ = writeln!(out, "\n{}", legend.join(" · "));
    let _ = writeln!(out, "1 to 9: share of the peak · shared memory: - is filled, # holds data, + both");
    out
}

fn letter(cell: Cell) -> char {
    match cell {
        Cell::Nothing => ' ',
        Cell::Warp(what) => what.letter(),
        Cell::Level(n) => char::from(b'0' + n),
        Cell::Fills => '-',
        Cell::Holds => '#',
        Cell::Both => '+',
    }
}

/// Width of the picture, and the edges of the plot area.
const WIDTH: f64 = 1200.0;
const PLANE: (f64, f64) = (190.0, 980.0);
const TOP: f64 = 66.0;
/// Height of a row, including spacing.
const ROW: f64 = 14.0;
/// Time slices of the picture.
const FINE: usize = 790;

/// Colours, shared by light and dark mode, except for those close to the background.
const STYLE: &str = "\
    .arithmetic { fill: #7d8fa9 } .function { fill: #c98a2b } .global { fill: #8c5fb0 } .shared { fill: #4f9fc4 }
    .copy { fill: #3a8f5c } .product { fill: #c0392b } .wait { fill: #d9d9d9 } .wait-a { fill: #cfd6df }
    .wait-c { fill: #cfe3d6 } .wait-p { fill: #edcfca }
    .fills { fill: #a9d3b8 } .holds { fill: #3f77b5 } .both { fill: #6ba5a0 } .level { fill: #c0392b } .flying { fill: #3a8f5c }
    .small { font-size: 11px }
    @media (prefers-color-scheme: dark) {
      .wait { fill: #33363b } .wait-a { fill: #2f3640 } .wait-c { fill: #2a3a31 } .wait-p { fill: #43302d }
    }";

fn class(what: Activity) -> &'static str {
    match what {
        Activity::Arithmetic => "arithmetic",
        Activity::Function => "function",
        Activity::Global => "global",
        Activity::Shared => "shared",
        Activity::Copy => "copy",
        Activity::Product => "product",
        Activity::Barrier => "wait",
        Activity::Mbarrier => "wait-a",
        Activity::CopyWait => "wait-c",
        Activity::ProductWait => "wait-p",
    }
}

/// The schedule as an SVG. `roles` are the names of warps, where they have some.
pub fn schedule_svg(t: &Timeline, roles: &[String]) -> String {
    let groups = rows(t, roles, FINE);
    let count: usize = groups.iter().map(Vec::len).sum();
    let legend = used(t).len() + 5;
    let height = (TOP + ROW * count as f64 + 3.0 * 24.0 + 40.0).max(TOP + 18.0 * legend as f64 + 20.0);
    let [first, second] = title(t);
    let mut svg = svg::begin((WIDTH, height), STYLE, &first);
    text(&mut svg, "ink title", (16.0, 24.0), "start", &first);
    text(&mut svg, "faint", (16.0, 44.0), "start", &second);
    let mut y = TOP;
    let headings = ["", "under way", "shared memory"];
    for (group, heading) in groups.iter().zip(headings) {
        if group.is_empty() {
            continue;
        }
        if !heading.is_empty() {
            y += 22.0;
            text(&mut svg, "faint", (16.0, y - 5.0), "start", heading);
        }
        for row in group {
            text(&mut svg, "ink small", (PLANE.0 - 8.0, y + ROW - 4.0), "end", &row.label);
            draw(&mut svg, t, row, y);
            y += ROW;
        }
    }
    axis(&mut svg, t, y);
    key(&mut svg, t, groups.last().is_some_and(|shared| !shared.is_empty()));
    svg += "</svg>\n";
    svg
}

/// Draws the cells of a row; equal adjacent cells are merged.
fn draw(svg: &mut String, t: &Timeline, row: &Row, y: f64) {
    let step = (PLANE.1 - PLANE.0) / FINE as f64;
    let mut n = 0;
    while let Some(cell) = row.cells.get(n) {
        let len = row.cells.iter().skip(n).take_while(|other| *other == cell).count();
        let (x, width) = (PLANE.0 + n as f64 * step, len as f64 * step);
        let cycle = |n: usize| t.cycles() * n as u64 / FINE as u64;
        let (full, what) = (ROW - 2.0, format!("{}, cycles {} to {}", row.label, cycle(n), cycle(n + len)));
        let shown = match cell {
            Cell::Nothing => None,
            Cell::Warp(what) => Some((class(*what), 1.0, what.name())),
            Cell::Level(n) if row.label.starts_with("tensor") => Some(("level", f64::from(*n) / 9.0, "busy")),
            Cell::Level(n) => Some(("flying", f64::from(*n) / 9.0, "under way")),
            Cell::Fills => Some(("fills", 1.0, "being filled")),
            Cell::Holds => Some(("holds", 1.0, "holds data")),
            Cell::Both => Some(("both", 1.0, "filled and read")),
        };
        if let Some((class, part, name)) = shown {
            let (top, height) = (y + full * (1.0 - part), full * part);
            let _ = writeln!(
                svg,
                "  <rect class=\"{class}\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"><title>{}</title></rect>",
                escape(&format!("{what}: {name}"))
            );
        }
        n += len;
    }
}

/// Cycles below the rows.
fn axis(svg: &mut String, t: &Timeline, y: f64) {
    let cycles = t.cycles().max(1);
    // A round number of cycles, for about eight ticks.
    let rough = cycles as f64 / 8.0;
    let ten = 10f64.powf(rough.max(1.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * ten).find(|n| *n >= rough).unwrap_or(ten).max(1.0);
    let mut at = 0.0;
    while at <= cycles as f64 {
        let x = PLANE.0 + at / cycles as f64 * (PLANE.1 - PLANE.0);
        let _ = writeln!(svg, "  <path class=\"grid\" d=\"M{x:.1} {TOP} V{y:.1}\"/>");
        text(svg, "faint small", (x, y + 16.0), "middle", &format!("{at:.0}"));
        at += step;
    }
    text(svg, "ink", (f64::midpoint(PLANE.0, PLANE.1), y + 34.0), "middle", "cycles of the model");
}

/// The legend, right of the plot area.
fn key(svg: &mut String, t: &Timeline, has_shared: bool) {
    let mut lines: Vec<(&str, &str)> = used(t).into_iter().map(|what| (class(what), what.name())).collect();
    if has_shared {
        lines.extend([("fills", "is being filled"), ("holds", "holds data"), ("both", "both")]);
    }
    for (n, (class, name)) in lines.into_iter().enumerate() {
        let y = TOP + 18.0 * n as f64;
        let x = PLANE.1 + 24.0;
        let _ = writeln!(svg, "  <rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"14\" height=\"12\"/>");
        text(svg, "ink", (x + 22.0, y + 11.0), "start", name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::sim::{Flight, Stage};

    /// Two warps: one copies, one waits for the copy and multiplies.
    fn example() -> Timeline {
        let span = |from, to, what| Span { from, to, what };
        Timeline {
            kernel: "example".to_string(),
            target: "sm_90a".to_string(),
            block: [1, 0, 0],
            grid: [4, 1, 1],
            time: (1000, 1960),
            shared_bytes: 4096,
            warps: vec![
                vec![span(1000, 1100, Activity::Copy), span(1100, 1960, Activity::Barrier)],
                vec![span(1000, 1500, Activity::Mbarrier), span(1500, 1960, Activity::Product)],
            ],
            tensor: [vec![(1500, 1980)], vec![], vec![], vec![]],
            flights: vec![Flight { time: (1050, 1500), bytes: 2048 }],
            stages: vec![
                Stage { bytes: (0, 2048), fills: vec![(1050, 1500)], holds: vec![(1500, 1960)] },
                Stage { bytes: (4032, 4096), fills: vec![], holds: vec![(1000, 1010)] },
            ],
        }
    }

    #[test]
    fn a_schedule_as_text() {
        let text = schedule_text(&example(), &["producer".to_string(), "consumer".to_string()]);
        let line = |label: &str| {
            text.lines().find_map(|l| l.strip_prefix(label)).unwrap_or_else(|| panic!("{text}")).trim_start()
        };
        assert_eq!(line("producer 0"), format!("{}{}", "C".repeat(10), "b".repeat(86)));
        assert_eq!(line("consumer 1"), format!("{}{}", "m".repeat(50), "P".repeat(46)));
        // One of four cores: a quarter is 2.25 of 9.
        assert_eq!(line("tensor cores"), "3".repeat(46));
        assert_eq!(line("copies under way"), "9".repeat(45));
        assert_eq!(line("0x00000 2 KiB"), format!("{}{}", "-".repeat(45), "#".repeat(46)));
        assert_eq!(line("0x00fc0 64 B"), "#");
        assert!(
            text.starts_with("example: block 1 of 4, 2 warps\n960 cycles of a simple model of sm_90a, not measured"),
            "{text}"
        );
        assert!(
            text.contains("4 KiB of shared memory, 2 KiB used at a time")
                && text.contains("tensor cores busy for 12 %"),
            "{text}"
        );
    }

    #[test]
    fn a_schedule_as_a_picture() {
        let svg = schedule_svg(&example(), &[]);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
        for part in [
            "warp 1, cycles 500 to 960: matrix products",
            "0x00000 2 KiB, cycles 49 to 500: being filled",
            "waits at a barrier",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        // An empty timeline can be drawn too.
        let empty = Timeline {
            time: (5, 5),
            warps: vec![vec![]],
            tensor: Default::default(),
            flights: vec![],
            stages: vec![],
            ..example()
        };
        assert!(!schedule_svg(&empty, &[]).contains("NaN") && schedule_text(&empty, &[]).contains("warp 0"));
    }
}
