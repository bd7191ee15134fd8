//! Shared parts of SVG pictures: escaped text, and colours for light and dark mode.
//!
//! In: strings and coordinates. Out: SVG elements. This must not know what a picture shows.

use std::fmt::Write as _;

/// The style of background, text and grid lines; pictures add their own classes.
pub const STYLE: &str = "\
    .ground { fill: #ffffff } .ink { fill: #1c1c1c } .faint { fill: #6a6a6a }
    .grid { stroke: #e4e4e4 }
    text { font: 13px system-ui, sans-serif } .title { font-size: 16px; font-weight: 600 }
    @media (prefers-color-scheme: dark) {
      .ground { fill: #14161a } .ink { fill: #ececec } .faint { fill: #a0a0a0 }
      .grid { stroke: #2c3036 }
    }";

/// Begins a picture of this size with a title; `style` is added to [`STYLE`].
pub fn begin((width, height): (f64, f64), style: &str, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n  <style>\n{STYLE}\n{style}\n  </style>\n  \
         <title>{}</title>\n  <rect class=\"ground\" width=\"{width}\" height=\"{height}\"/>\n",
        escape(title)
    )
}

/// Adds a line of text whose start, middle or end (`anchor`) is at this point.
pub fn text(svg: &mut String, class: &str, (x, y): (f64, f64), anchor: &str, content: &str) {
    let content = escape(content);
    let _ =
        writeln!(svg, "  <text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>");
}

/// Escapes the special characters of XML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
