//! Random kernels of three runs: all element types, access patterns and shapes; only exact
//! operations.
//!
//! The first run loads and computes, the second continues from values in scratch and may overwrite
//! them, the third does the same for single columns. Only small integers are summed, so that the
//! order does not matter.

use super::check;
use crate::random::Random;
use crate::shape::Elem;
use crate::tile::interp::Argument;

/// Rows and columns of every buffer: more than any tile.
const ROWS: i64 = 41;
const COLS: i64 = 109;

/// A tile, or a scalar.
#[derive(Clone)]
struct RandomValue {
    name: String,
    elem: Elem,
    /// Does the value extend along the run's rows and columns?
    rows: bool,
    cols: bool,
    /// Maximum magnitude, if it holds integers.
    bound: Option<f64>,
    /// Is the sign of zeros unspecified? It depends on the order of reduction.
    unsure: bool,
    /// Offset in scratch.
    place: Option<u32>,
    /// Was it computed by an earlier run?
    old: bool,
}

struct Gen {
    r: Random,
    lines: Vec<String>,
    params: Vec<String>,
    args: Vec<Argument>,
    vals: Vec<RandomValue>,
    rows: String,
    cols: String,
    most: (i64, i64),
    scratch: u32,
    count: usize,
    elems: Vec<Elem>,
}

fn bytes(elem: Elem, n: usize, r: &mut Random, special: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..n {
        let whole = r.below(17) as i32 - 8;
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-41, 0.3, 65519.0, 1e38, -2.5, 1e-5, 3e9, -7e4];
        let float = if special && r.below(4) == 0 { r.pick(&odd) } else { whole as f32 };
        match elem {
            Elem::F32 => out.extend(float.to_le_bytes()),
            Elem::BF16 => out.extend(half::bf16::from_f32(float).to_le_bytes()),
            Elem::F16 => out.extend(half::f16::from_f32(float).to_le_bytes()),
            Elem::I32 if special && r.below(4) == 0 => out.extend(r.pick(&[i32::MIN, i32::MAX, 1 << 20]).to_le_bytes()),
            Elem::I32 => out.extend(whole.to_le_bytes()),
            Elem::I8 if special => out.push(u8::try_from(r.below(256)).expect("a byte")),
            Elem::I8 => out.push((whole as i8).cast_unsigned()),
            _ => out.push(u8::from(whole > 0) * if special { 1 + u8::try_from(r.below(3)).expect("small") } else { 1 }),
        }
    }
    out
}

impl Gen {
    fn new(seed: u64) -> Gen {
        let mut r = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678);
        let sizes = [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40];
        let widths = [1, 3, 8, 15, 16, 17, 31, 32, 33, 48, 64, 65, 100];
        let (rows, cols) = (r.pick(&sizes), r.pick(&widths));
        let (m, c) = (r.below(4), r.below(3));
        let rows = if m == 0 { format!("{}", rows.max(1)) } else { "%m<=40".to_string() };
        let cols = if c == 0 { format!("{cols}") } else { "%n<=100".to_string() };
        let most = (
            if m == 0 { rows.parse().expect("a number") } else { 40 },
            if c == 0 { cols.parse().expect("a number") } else { 100 },
        );
        let pick_rows = r.pick(&sizes);
        let pick_cols = r.pick(&[0, 1, 3, 8, 15, 16, 17, 31, 32, 33, 48, 64, 65, 100]);
        let indices = ["%zero: index", "%one: index", "%two: index", "%m: index", "%n: index"];
        let args = [0, 1, 2, pick_rows, pick_cols].map(Argument::Index);
        let common = r.below(3);
        let elems = match common {
            0 => vec![Elem::F32],
            1 => vec![Elem::F32, Elem::I32, Elem::Bool],
            _ => vec![Elem::F32, Elem::BF16, Elem::F16, Elem::I8, Elem::Bool, Elem::I32],
        };
        Gen {
            r,
            lines: Vec::new(),
            params: indices.map(str::to_string).to_vec(),
            args: args.to_vec(),
            vals: Vec::new(),
            rows,
            cols,
            most,
            scratch: 0,
            count: 0,
            elems,
        }
    }

    fn name(&mut self, prefix: &str) -> String {
        self.count += 1;
        format!("%{prefix}{}", self.count)
    }

    fn extents(&self, rows: bool, cols: bool) -> String {
        format!("[{}, {}]", if rows { &self.rows } else { "1" }, if cols { &self.cols } else { "1" })
    }

    /// A random buffer layout and the access to it, as text.
    fn buffer(&mut self, mode: &str, elem: Elem, special: bool, rows: bool, cols: bool) -> String {
        let name = self.name("b");
        let (r, c) = (ROWS + 2, COLS + 2);
        let (shape, access, strides) = match (rows, cols, self.r.below(6)) {
            (false, false, _) => ("[3]".to_string(), "[%one]", "".to_string()),
            (true, false, _) => (format!("[{r}]"), "[%two], rows=0", "".to_string()),
            (false, true, _) => (format!("[{c}]"), "[%one], cols=0", "".to_string()),
            (true, true, 0) => (format!("[{c}, {r}]"), "[%one, %two], rows=1, cols=0", "".to_string()),
            (true, true, 1) => ("[T, S]".to_string(), "[%two, %one], rows=1, cols=0", "".to_string()),
            (true, true, 2) => ("[S, T]".to_string(), "[%two, %one], rows=0, cols=1", "".to_string()),
            (true, true, 3) if mode == "in" => {
                (format!("[{r}, {c}]"), "[%two, %one], rows=0, cols=1", " strides[0, 1]".to_string())
            }
            (true, true, 4) if mode == "in" => {
                (format!("[{r}, {c}]"), "[%two, %one], rows=0, cols=1", " strides[1, 0]".to_string())
            }
            _ => (format!("[{r}, 3, {c}]"), "[%two, %one, %one], rows=0, cols=2", "".to_string()),
        };
        let n = usize::try_from(3 * r * c).expect("a size");
        self.params.push(format!("{name}: {mode} {elem}{shape}{strides}"));
        self.args.push(Argument::Buffer(bytes(elem, n, &mut self.r, special)));
        // The buffer's type is smaller; the rest is a guard area.
        let wanted = match shape.as_str() {
            "[3]" => 3,
            _ if !cols => r,
            _ if !rows => c,
            _ if strides == " strides[0, 1]" => c,
            _ if strides == " strides[1, 0]" => r,
            _ if shape.contains(", 3,") => 3 * r * c,
            _ => r * c,
        };
        if let Some(Argument::Buffer(b)) = self.args.last_mut() {
            b.truncate(usize::try_from(wanted).expect("a size") * usize::try_from(elem.size()).expect("a size"));
        }
        format!("{name}{access}")
    }

    fn add(&mut self, text: &str, mut val: RandomValue, in_scratch: bool) {
        val.name = self.name("v");
        let mut space = " @reg".to_string();
        if in_scratch {
            let (r, c) = self.most;
            let (r, c) = (if val.rows { r } else { 1 }, if val.cols { c } else { 1 });
            let pitch = if c == 1 { 4 } else { (4 * c + 63) / 64 * 64 };
            // Sometimes over a value that is not read again.
            let old =
                self.vals.iter().position(|v| v.old && (v.rows, v.cols) == (val.rows, val.cols) && self.whole(&val));
            match old.filter(|_| self.r.below(2) == 0) {
                Some(n) => val.place = self.vals.remove(n).place,
                None => {
                    val.place = Some(self.scratch);
                    self.scratch += u32::try_from((r * pitch + 63) / 64 * 64).expect("a size");
                }
            }
        }
        if let Some(p) = val.place {
            space = format!(" @l1({p})");
        }
        let extents = self.extents(val.rows, val.cols);
        self.lines.push(format!("    {} = {text} : tile {}{extents}{space}", val.name, val.elem));
        self.vals.push(val);
    }

    /// Does a value have the extents of the run?
    fn whole(&self, v: &RandomValue) -> bool {
        (v.rows || self.rows == "1") && (v.cols || self.cols == "1")
    }

    fn load(&mut self) {
        let elem = self.elems[self.r.below(self.elems.len())];
        let special = self.r.below(3) == 0;
        let (rows, cols) =
            self.r.pick(&[(true, true), (true, true), (true, true), (true, false), (false, true), (false, false)]);
        let access = self.buffer("in", elem, special, rows, cols);
        let computed = match elem {
            Elem::BF16 | Elem::F16 => Elem::F32,
            Elem::I8 => Elem::I32,
            other => other,
        };
        let bound = (!special).then_some(8.0);
        let val = RandomValue {
            name: String::new(),
            elem: computed,
            rows,
            cols,
            bound,
            unsure: false,
            place: None,
            old: false,
        };
        let in_scratch = self.r.below(3) == 0;
        self.add(&format!("load {access}"), val, in_scratch);
    }

    fn operand(&mut self, elem: Elem) -> Option<RandomValue> {
        let all: Vec<usize> = (0..self.vals.len()).filter(|n| self.vals[*n].elem == elem).collect();
        if all.is_empty() {
            return None;
        }
        let n = self.r.pick(&all);
        Some(self.vals[n].clone())
    }

    fn operation(&mut self, reduce: usize) -> Option<()> {
        let elem = self.r.pick(&[Elem::F32, Elem::F32, Elem::F32, Elem::I32, Elem::Bool]);
        let x = self.operand(elem).filter(|x| !x.name.starts_with("%s"))?;
        let made = |elem, from: &[&RandomValue], bound| RandomValue {
            name: String::new(),
            elem,
            rows: from.iter().any(|v| v.rows),
            cols: from.iter().any(|v| v.cols),
            bound,
            unsure: from.iter().any(|v| v.unsure),
            place: None,
            old: false,
        };
        let in_scratch = self.r.below(3) == 0;
        let both = |x: &RandomValue, y: &RandomValue, f: fn(f64, f64) -> f64| Some(f(x.bound?, y.bound?));
        let compare = ["eq", "ne", "lt", "le", "gt", "ge"];
        match (self.r.below(8), elem) {
            (0, _) => {
                let iota = self.r.below(2);
                let (rows, cols) = if self.r.below(2) == 0 { (true, true) } else { (iota == 0, iota == 1) };
                let mut val = made(Elem::I32, &[], Some(128.0));
                (val.rows, val.cols) = (rows, cols);
                self.add(&format!("iota %two, axis={iota}"), val, in_scratch);
            }
            (1, Elem::F32) => {
                let op = self.r.pick(&["neg", "abs", "relu", "floor", "sqrt"]);
                let bound = if op == "sqrt" { None } else { x.bound };
                self.add(&format!("{op} {}", x.name), made(elem, &[&x], bound), in_scratch);
            }
            (1, Elem::I32) => {
                let op = self.r.pick(&["neg", "abs", "relu"]);
                self.add(&format!("{op} {}", x.name), made(elem, &[&x], x.bound), in_scratch);
            }
            (1, _) => self.add(&format!("not {}", x.name), made(elem, &[&x], None), in_scratch),
            (2, _) => {
                let to = self.r.pick(&[Elem::F32, Elem::I32, Elem::Bool]);
                self.add(
                    &format!("cast {}", x.name),
                    made(to, &[&x], x.bound.or((elem == Elem::Bool).then_some(1.0))),
                    in_scratch,
                );
            }
            (3, Elem::F32) => {
                let to = self.r.pick(&["bf16", "f16"]);
                self.add(&format!("narrow {}, elem={to}", x.name), made(elem, &[&x], None), in_scratch);
            }
            (3, Elem::I32) => {
                self.add(&format!("narrow {}, elem=i8", x.name), made(elem, &[&x], Some(128.0)), in_scratch)
            }
            (4, _) => {
                let y = self.operand(elem)?;
                let op = self.r.pick(&compare);
                self.add(&format!("{op} {}, {}", x.name, y.name), made(Elem::Bool, &[&x, &y], None), in_scratch);
            }
            (5, _) => {
                let (c, y) = (self.operand(Elem::Bool)?, self.operand(elem)?);
                let bound = both(&x, &y, f64::max);
                self.add(
                    &format!("select {}, {}, {}", c.name, x.name, y.name),
                    made(elem, &[&c, &x, &y], bound),
                    in_scratch,
                );
            }
            (6, _) if self.whole(&x) => {
                let large = x.bound.is_none_or(|b| b * 128.0 > 16_777_216.0);
                let op = match elem {
                    Elem::Bool => self.r.pick(&["all", "any"]),
                    Elem::F32 if large => self.r.pick(&["max", "min"]),
                    _ => self.r.pick(&["sum", "max", "min"]),
                };
                let bound = x.bound.map(|b| b * 128.0).filter(|_| elem == Elem::F32);
                let mut val = made(elem, &[&x], bound);
                (val.rows, val.cols) = if reduce == 1 { (true, false) } else { (false, true) };
                val.unsure = elem == Elem::F32;
                val.bound = val.bound.filter(|_| false);
                // It can only be used after the run.
                self.add(&format!("reduce_{op} {}, axis={reduce}", x.name), val, true);
                let last = self.vals.pop()?;
                self.vals.push(RandomValue { elem: Elem::I64, name: format!("{}|{}", last.name, last.elem), ..last });
            }
            (_, Elem::Bool) => {
                let y = self.operand(elem)?;
                let op = self.r.pick(&["and", "or"]);
                self.add(&format!("{op} {}, {}", x.name, y.name), made(elem, &[&x, &y], None), in_scratch);
            }
            _ => {
                let y = self.operand(elem)?;
                let ops: &[&str] = match elem {
                    Elem::F32 if y.unsure => &["add", "sub", "mul", "max", "min"],
                    Elem::F32 => &["add", "sub", "mul", "div", "rem", "max", "min"],
                    _ => &["add", "sub", "mul", "div", "rem", "max", "min"],
                };
                let op = self.r.pick(ops);
                let bound = match op {
                    "add" | "sub" => both(&x, &y, |a, b| a + b),
                    "mul" => both(&x, &y, |a, b| a * b),
                    "div" | "rem" => None,
                    _ => both(&x, &y, f64::max),
                };
                let bound = bound.filter(|b| *b < 1e6);
                self.add(&format!("{op} {}, {}", x.name, y.name), made(elem, &[&x, &y], bound), in_scratch);
            }
        }
        Some(())
    }

    fn store(&mut self) -> Option<()> {
        let elem = self.r.pick(&[Elem::F32, Elem::F32, Elem::I32, Elem::Bool]);
        let x = self.operand(elem)?;
        if !self.whole(&x) || x.name.starts_with("%s") {
            return None;
        }
        let to = match elem {
            Elem::F32 => self.r.pick(&[Elem::F32, Elem::F32, Elem::BF16, Elem::F16]),
            Elem::I32 => self.r.pick(&[Elem::I32, Elem::I8]),
            other => other,
        };
        let (rows, cols) = (x.rows, x.cols);
        let access = self.buffer("out", to, false, rows, cols);
        let (at, along) = match access.split_once(']') {
            Some((at, along)) => (at.to_string(), along.to_string()),
            None => return None,
        };
        self.lines.push(format!("    store {at}], {}{along}", x.name));
        Some(())
    }

    fn run(&mut self, loads: usize, operations: usize) {
        self.lines.push(format!("  run ({}, {}) {{", self.rows, self.cols));
        let reduce = self.r.below(2);
        for _ in 0..loads {
            self.load();
        }
        for _ in 0..operations {
            let _ = self.operation(reduce);
        }
        for _ in 0..3 {
            let _ = self.store();
        }
        self.lines.push("  }".to_string());
        // The next run may use only values in scratch.
        self.vals.retain(|v| v.place.is_some());
        for v in &mut self.vals {
            v.old = !v.name.starts_with("%s");
            if let Some((name, elem)) = v.name.clone().split_once('|') {
                v.name = name.to_string();
                v.elem = Elem::ALL.iter().copied().find(|e| e.to_string() == elem).unwrap_or(Elem::F32);
            }
        }
    }

    fn kernel(mut self) -> (String, Vec<Argument>) {
        for (name, elem, text) in [("%s1", Elem::F32, "1.5"), ("%s2", Elem::I32, "-3"), ("%s3", Elem::Bool, "true")] {
            self.lines.push(format!("  {name} = const {text} : {elem}"));
            let val = RandomValue {
                name: name.to_string(),
                elem,
                rows: false,
                cols: false,
                bound: None,
                unsure: false,
                place: Some(0),
                old: false,
            };
            self.vals.push(val);
        }
        let (loads, operations) = (2 + self.r.below(4), 3 + self.r.below(14));
        self.run(loads, operations);
        let (loads, operations) = (self.r.below(2), 2 + self.r.below(10));
        self.run(loads, operations);
        // Single columns.
        self.cols = "1".to_string();
        self.most.1 = 1;
        self.vals.retain(|v| !v.cols);
        let (loads, operations) = (1 + self.r.below(2), 2 + self.r.below(8));
        self.run(loads, operations);
        let text = format!(
            "module \"m\"\n\nkernel @k({}) symbols(S, T) cpu(avx512) scratch({}) {{\n^bb0:\n{}\n  return\n}}\n",
            self.params.join(", "),
            self.scratch,
            self.lines.join("\n")
        );
        (text, self.args)
    }
}

/// One of the random kernels that [`random_runs_do_as_the_interpreter_says`] runs.
pub(super) fn random_kernel(seed: u64) -> String {
    Gen::new(seed).kernel().0
}

#[test]
fn random_runs_do_as_the_interpreter_says() {
    for seed in 0..120 {
        let (source, args) = Gen::new(seed).kernel();
        check(&source, &[("S", ROWS + 2), ("T", COLS + 2)], &args);
    }
}
