//! The picture of `attnc train --plot`: losses over steps.

use crate::svg::{begin, text};
use std::fmt::Write as _;

const SIZE: (f64, f64) = (860.0, 420.0);
/// Left, top, right and bottom of the axes.
const FRAME: (f64, f64, f64, f64) = (70.0, 50.0, 840.0, 370.0);
/// Most points of a line; more are averaged.
const POINTS: usize = 600;
const STYLE: &str = "    .loss { fill: none; stroke: #3b76c4; stroke-width: 1.3 }
    .held { fill: none; stroke: #c8553d; stroke-width: 1.8 } .dot { fill: #c8553d }";

/// Draws the loss of each step, and held-out losses.
pub(super) fn picture(losses: &[(u64, f32)], held_out: &[(u64, f32)]) -> String {
    let drawn = averaged(losses);
    let held: Vec<(f64, f64)> = held_out.iter().filter(|p| p.1.is_finite()).map(point).collect();
    let all = || drawn.iter().chain(&held).copied();
    let last = all().map(|(x, _)| x).fold(1.0, f64::max);
    let (low, high) = all().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), (_, y)| (a.min(y), b.max(y)));
    // Without a finite loss, the axis is from 0 to 1.
    let (low, high) = if high >= low { (low, high) } else { (0.0, 1.0) };
    let step = tick(if high > low { high - low } else { high.abs().max(1.0) });
    let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
    let high = if high > low { high } else { low + step };
    let (left, top, right, bottom) = FRAME;
    let x = |at: f64| left + (right - left) * at / last;
    let y = |at: f64| bottom - (bottom - top) * (at - low) / (high - low);

    let mut svg = begin(SIZE, STYLE, "Loss");
    text(&mut svg, "ink title", (left, 30.0), "start", "Loss over steps");
    let grid = |svg: &mut String, [x0, y0, x1, y1]: [f64; 4]| {
        let _ = writeln!(svg, "  <line class=\"grid\" x1=\"{x0:.1}\" y1=\"{y0:.1}\" x2=\"{x1:.1}\" y2=\"{y1:.1}\"/>");
    };
    for i in 0..=((high - low) / step).round() as u32 {
        let value = low + f64::from(i) * step;
        grid(&mut svg, [left, y(value), right, y(value)]);
        let digits = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
        text(&mut svg, "faint", (left - 8.0, y(value) + 4.0), "end", &format!("{value:.digits$}"));
    }
    let step = tick(last).max(1.0);
    for i in 0..=(last / step) as u32 {
        let value = f64::from(i) * step;
        grid(&mut svg, [x(value), top, x(value), bottom]);
        text(&mut svg, "faint", (x(value), bottom + 20.0), "middle", &format!("{value:.0}"));
    }
    let mut key = 200.0;
    for (class, name, points) in [("loss", "loss", &drawn), ("held", "held out", &held)] {
        let line: Vec<String> = points.iter().map(|(a, b)| format!("{:.1},{:.1}", x(*a), y(*b))).collect();
        if line.is_empty() {
            continue;
        }
        let _ = writeln!(svg, "  <polyline class=\"{class}\" points=\"{}\"/>", line.join(" "));
        let _ = writeln!(svg, "  <path class=\"{class}\" d=\"M{key:.1} 26h22\"/>");
        text(&mut svg, "ink", (key + 28.0, 30.0), "start", name);
        key += 90.0;
    }
    for (a, b) in &held {
        let _ = writeln!(svg, "  <circle class=\"dot\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>", x(*a), y(*b));
    }
    svg + "</svg>\n"
}

fn point((step, loss): &(u64, f32)) -> (f64, f64) {
    (*step as f64, f64::from(*loss))
}

/// The means of as many neighbours as there must be.
fn averaged(losses: &[(u64, f32)]) -> Vec<(f64, f64)> {
    let finite: Vec<(f64, f64)> = losses.iter().filter(|p| p.1.is_finite()).map(point).collect();
    let mean = |part: &[(f64, f64)]| {
        let n = part.len() as f64;
        (part.iter().map(|p| p.0).sum::<f64>() / n, part.iter().map(|p| p.1).sum::<f64>() / n)
    };
    finite.chunks(finite.len().div_ceil(POINTS).max(1)).map(mean).collect()
}

/// A distance of grid lines, 1, 2 or 5 times a power of ten, for about six of them.
fn tick(range: f64) -> f64 {
    let power = 10f64.powf((range / 6.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| range / step <= 8.0).unwrap_or(power * 10.0)
}

#[cfg(test)]
mod tests {
    use super::picture;

    #[test]
    fn every_picture_is_drawn() {
        let line: Vec<(u64, f32)> = (1..=5000).map(|i| (i, 4.0 / i as f32)).collect();
        for (losses, held) in [
            (&line[..], &[(1000u64, 1.5f32), (5000, f32::NAN)][..]),
            (&line[..1], &[]),
            (&[(1, 0.0), (2, 0.0)], &[]),
            (&[(1, f32::NAN)], &[]),
            (&[(3, -1e30), (4, 1e30)], &[(4, 1e-30)]),
        ] {
            let svg = picture(losses, held);
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"), "{svg}");
            assert!(!svg.contains("NaN") && !svg.contains("inf") && svg.len() < 40_000, "{svg}");
        }
        let svg = picture(&line, &[(1000, 1.5), (5000, 1.25)]);
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<circle").count()), (2, 2));
    }
}
