//! What the printers of both IR levels share: strings, floats, lines with aligned types and places.

use std::fmt::Write as _;

/// The text of a float that reads back to the same `f64`: `0.125`, `1e-5`, `inf`, `-inf`, `nan`.
pub fn float_text(x: f64) -> String {
    if x.is_nan() { "nan".to_string() } else { format!("{x:?}") }
}

/// The shortest text of a float that reads back to the same `f32`.
pub fn float32_text(x: f32) -> String {
    if x.is_nan() { "nan".to_string() } else { format!("{x:?}") }
}

/// A text as a string token.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Text left of a column beyond which nothing is aligned.
const MAX_ALIGNED: usize = 64;

/// A statement that waits for the others of its group.
struct Row {
    left: String,
    ty: String,
    loc: String,
}

/// Writes lines; in each run of rows, types and places stand in columns.
#[derive(Default)]
pub struct Printer {
    out: String,
    indent: usize,
    rows: Vec<Row>,
    /// Lines written so far, the waiting rows included.
    lines: u32,
}

impl Printer {
    /// Nothing written yet.
    pub fn new() -> Printer {
        Printer::default()
    }

    /// A line that is not aligned with others. Returns its number, from 1.
    pub fn line(&mut self, text: &str) -> u32 {
        self.flush();
        self.lines += 1;
        self.put(text);
        self.lines
    }

    /// A statement: `left : ty  loc`. `ty` and `loc` may be empty. Returns the number of its line, from 1.
    pub fn row(&mut self, left: impl Into<String>, ty: impl Into<String>, loc: impl Into<String>) -> u32 {
        self.rows.push(Row { left: left.into(), ty: ty.into(), loc: loc.into() });
        self.lines += 1;
        self.lines
    }

    /// An empty line.
    pub fn blank(&mut self) {
        self.line("");
    }

    /// A line that ends in ` {`; what follows is indented. Returns its number.
    pub fn open(&mut self, text: &str) -> u32 {
        let n = self.line(&format!("{text} {{"));
        self.indent += 1;
        n
    }

    /// Ends what [`Printer::open`] began.
    pub fn close(&mut self) {
        self.flush();
        self.indent = self.indent.saturating_sub(1);
        self.line("}");
    }

    /// The start of a block: one step to the left.
    pub fn label(&mut self, text: &str) -> u32 {
        self.flush();
        self.lines += 1;
        let indent = std::mem::take(&mut self.indent);
        self.indent = indent.saturating_sub(1);
        self.put(text);
        self.indent = indent;
        self.lines
    }

    fn put(&mut self, text: &str) {
        if !text.is_empty() {
            for _ in 0..self.indent {
                self.out.push_str("  ");
            }
            self.out.push_str(text);
        }
        self.out.push('\n');
    }

    fn flush(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        let width = |s: &str| s.chars().count();
        let column = |wide: &dyn Fn(&Row) -> Option<usize>| {
            rows.iter().filter_map(wide).filter(|w| *w <= MAX_ALIGNED).max().unwrap_or(0)
        };
        let left = column(&|r| (!r.ty.is_empty() || !r.loc.is_empty()).then(|| width(&r.left)));
        let ty = column(&|r| (!r.loc.is_empty() && !r.ty.is_empty()).then(|| width(&r.ty)));
        for r in &rows {
            let mut text = r.left.clone();
            if !r.ty.is_empty() || !r.loc.is_empty() {
                pad(&mut text, left, width(&r.left));
            }
            if !r.ty.is_empty() {
                text += " : ";
                text += &r.ty;
            } else if !r.loc.is_empty() && ty > 0 {
                text += "   ";
            }
            if !r.loc.is_empty() {
                pad(&mut text, ty, width(&r.ty));
                text += "  ";
                text += &r.loc;
            }
            self.put(&text);
        }
    }

    /// The text.
    pub fn finish(mut self) -> String {
        self.flush();
        self.out
    }
}

fn pad(text: &mut String, column: usize, width: usize) {
    for _ in width..column {
        text.push(' ');
    }
}
