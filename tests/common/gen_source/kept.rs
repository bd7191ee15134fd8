//! Steps about what a session keeps and about lengths that are known at run time alone: states that are read, assigned whole, in parts
//! and in loops, and reset; layers with states; `let dim N = ..`.

use attnc::shape::{Dim, Elem};

use super::steps::joined;
use super::{Gen, Var};

impl Gen {
    /// Reads or sets a state, an old one or a new one.
    pub(super) fn state(&mut self) -> Option<Var> {
        if self.states.is_empty() || self.random.chance(25) {
            self.new_state();
        }
        let state = self.random.pick(&self.states);
        if state.elem == Elem::I32 {
            return Some(self.count(&state));
        }
        match self.random.below(6) {
            0 | 1 => self.whole(&state)?,
            2 | 3 => self.rows_kept(&state)?,
            4 => self.window_kept(&state)?,
            _ => self.lines.push(self.conditionally(&format!("reset {}", state.name))),
        }
        Some(self.bind_like(&format!("{} * 0.5 + 0.25", state.name), &state, state.size))
    }

    fn new_state(&mut self) {
        let name = self.name("s");
        let (elem, shape) = match self.random.below(5) {
            0 | 1 => (Elem::I32, Vec::new()),
            n => (Elem::F32, (0..n - 1).map(|_| self.known_dim()).collect::<Vec<Dim>>()),
        };
        let state = Var { name, elem, rest: false, shape, size: 1.0 };
        self.kept.push(format!("state {}: {}", state.name, state.type_text()));
        self.states.push(state.clone());
        self.vars.push(state);
    }

    /// A statement, sometimes on a condition.
    fn conditionally(&self, statement: &str) -> String {
        let flag = self.vars.iter().any(|v| v.name == "flag");
        let count = self.vars.iter().find(|v| v.elem == Elem::I32 && v.shape.is_empty());
        match (flag, count, self.next % 3) {
            (true, _, 0) => format!("if flag {{ {statement} }}"),
            (_, Some(n), 1) => format!("if {} % 2 == 0 {{ {statement} }}", n.name),
            _ => statement.to_string(),
        }
    }

    /// A counter that goes on.
    fn count(&mut self, state: &Var) -> Var {
        let n = &state.name;
        let line = match self.random.below(4) {
            0 => format!("{n} = {n} + 1"),
            1 => format!("{n} = ({n} + {}) % 7", self.rows),
            2 => format!("for _ in 0..3 {{ {n} = minimum({n} + 1, 5) }}"),
            _ => self.conditionally(&format!("reset {n}")),
        };
        self.lines.push(line);
        self.bind(&format!("cast<f32>({n} % 8) * 0.125"), Elem::F32, false, Vec::new(), 0.0)
    }

    /// The whole state becomes a function of itself and of something that broadcasts to it.
    fn whole(&mut self, state: &Var) -> Option<()> {
        let fits = |v: &Var| joined(state, v).is_some_and(|(rest, shape)| !rest && shape == state.shape);
        let x = self.choose_float(fits)?;
        let (s, x) = (&state.name, &x.name);
        let line = match self.random.below(4) {
            0 => format!("{s} = tanh({s} * 0.5 + {x})"),
            1 => format!("{s} = {s} * 0.5 + tanh({x})"),
            2 => format!("for _ in 0..2 {{ {s} = tanh({x} - {s}) }}"),
            _ => format!("{s} = sigmoid({s} - {x})"),
        };
        let line = self.conditionally(&line);
        self.lines.push(line);
        Some(())
    }

    /// A place in an axis, of a counter or a number.
    fn place(&mut self, extent: &Dim) -> String {
        let count = self.choose(|v| v.elem == Elem::I32 && v.shape.is_empty());
        match count {
            Some(n) if self.random.chance(70) => format!("{} % ({extent})", n.name),
            _ => "0".to_string(),
        }
    }

    /// Rows of the state, one or in a loop over the rows of something else.
    fn rows_kept(&mut self, state: &Var) -> Option<()> {
        let rows = state.shape.first()?.clone();
        self.value(&rows).filter(|n| *n > 0)?;
        let s = state.name.clone();
        let fits = |v: &Var| !v.rest && v.rank() == state.rank() && v.shape[1..] == state.shape[1..] && v.name != s;
        let Some(x) = self.choose_float(fits) else {
            let at = self.place(&rows);
            let line = format!("{s}[{at}] = {s}[{at}] * 0.5 - 0.25");
            let line = self.conditionally(&line);
            self.lines.push(line);
            return Some(());
        };
        let (i, x, count) = (self.name("at"), x.name, x.shape[0].clone());
        let line = match self.random.below(4) {
            0 => format!("{s}[{i} % ({rows})] = tanh({x}[{i}])"),
            1 => format!("{s}[{i} % ({rows})] = tanh({s}[({i} + 1) % ({rows})] + {x}[{i}])"),
            2 => format!("if {i} % 2 == 0 {{ {s}[{i} % ({rows})] = sigmoid({x}[{i}]) }}"),
            _ => format!("{s} = {s} * 0.5 + tanh({x}[{i}])"),
        };
        self.lines.push(format!("for {i} in 0..{count} {{ {line} }}"));
        Some(())
    }

    /// A window of the state, whose place is computed.
    fn window_kept(&mut self, state: &Var) -> Option<()> {
        let rows = state.shape.first()?.clone();
        let n = self.value(&rows).filter(|n| *n > 0)?;
        let length = self.random.below(n as usize) as i64 + 1;
        let at = self.name("at");
        let place = self.place(&Dim::from(n - length + 1));
        let s = &state.name;
        self.lines.push(format!("let {at} = {place}"));
        let part = format!("{s}[{at}..{at}+{length}{}]", if state.rank() > 1 { ", .." } else { "" });
        let line = match self.random.below(3) {
            0 => format!("{part} = 0.5"),
            1 => format!("{part} = {part} * 0.5 + 0.125"),
            _ => format!("{part} = tanh({s}[0..{length}]) - 0.5"),
        };
        let line = self.conditionally(&line);
        self.lines.push(line);
        Some(())
    }

    /// Layers with states, one or an array, that go through the rows of something; or a cache that is filled and attended to.
    pub(super) fn cells(&mut self) -> Option<Var> {
        let d = Dim::symbol("D");
        let closed = self.closed();
        let x = self.choose_float(|v| v.rank() == 2 && !v.rest && v.shape[1] == d && closed.contains(&v.name))?;
        let (layer, field) = (self.name("Cell"), self.name("cells"));
        let name = x.name.clone();
        // More rows than a cache has are refused.
        let rows = self.value(&x.shape[0]).unwrap_or(0);
        let capacities: Vec<i64> = [16, 40, 64].into_iter().filter(|c| rows <= *c).collect();
        if self.random.chance(35) && !capacities.is_empty() {
            let capacity = self.random.pick(&capacities);
            self.items.push(format!(
                "layer {layer}<D, C> {{\n    w: f32[D, 3*D]\n    state k: f32[C, D]\n    state v: f32[C, D]\n    state n: i32\n\n    \
                 fn forward(x: f32[S, D]) -> f32[S, D] {{\n        let dim N = n + S where N <= C\n        \
                 let (q, a, b) = split(tanh(x @ w), parts = 3)\n        k[n..n+S, ..] = a\n        v[n..n+S, ..] = b\n        n = n + S\n        \
                 softmax(where(causal(S, N), q @ k[0..N].T / sqrt(D), -inf)) @ v[0..N]\n    }}\n}}\n"
            ));
            self.fields.push(format!("{field}: {layer}<D, {capacity}>"));
            return Some(self.bind_like(&format!("{field}({name})"), &x, 0.0));
        }
        self.items.push(format!(
            "layer {layer}<D> {{\n    w: f32[D, D]\n    state h: f32[D]\n    state n: i32\n\n    fn forward(x: f32[D]) -> f32[D] {{\n        \
             h = tanh(x @ w + h * 0.5)\n        n = n + 1\n        if n > 40 {{ reset n }}\n        h - cast<f32>(n % 4) * 0.125\n    }}\n}}\n"
        ));
        let (v, t) = (self.name("v"), self.name("t"));
        self.lines.push(format!("var {v} = {name}"));
        if self.random.chance(50) {
            self.fields.push(format!("{field}: {layer}<D>"));
            self.lines.push(format!("for {t} in 0..{} {{ {v}[{t}] = {field}({v}[{t}]) }}", x.shape[0]));
        } else {
            self.fields.push(format!("{field}: [{layer}<D>; 2]"));
            self.lines.push(format!("for {t} in 0..{} {{", x.shape[0]));
            self.lines.push(format!("    for cell in {field} {{ {v}[{t}] = cell({v}[{t}]) }}"));
            self.lines.push("}".to_string());
        }
        Some(self.keep(Var { name: v, size: 1.0, ..x }))
    }

    /// A length that is computed, and what has it.
    pub(super) fn length(&mut self) -> Option<Var> {
        if self.random.chance(25) {
            return self.running();
        }
        let x = self.choose_float(|v| v.rank() >= 1)?;
        let at = self.random.below(x.rank());
        let bound = x.shape[at].clone();
        if self.names_length(&bound) {
            return None;
        }
        let value = self.computed(&x, &bound)?;
        let n = self.name("N");
        self.lines.push(format!("let dim {n} = {value} where {n} <= {bound}"));
        self.lengths.push(n.clone());
        let length = Dim::symbol(&n);
        if self.random.chance(20) {
            let text = format!("cast<f32>(iota({n})) * 0.0625");
            self.bind(&text, Elem::F32, false, vec![length.clone()], 1.0);
        }
        let mut shape = x.shape.clone();
        shape[at] = length;
        let mut entries = vec!["..".to_string(), format!("0..{n}")];
        entries.extend(x.shape.iter().skip(at + 1).map(|d| format!("0..{d}")));
        let text = format!("{}[{}]", x.name, entries.join(", "));
        let scaled = if self.random.chance(50) { " * 0.5" } else { "" };
        Some(self.bind(&format!("{text}{scaled}"), Elem::F32, x.rest, shape, x.size))
    }

    /// An integer from 0 to `bound`, which is the first axis of `x` perhaps.
    fn computed(&mut self, x: &Var, bound: &Dim) -> Option<String> {
        let count = self.choose(|v| v.elem == Elem::I32 && v.shape.is_empty());
        let plain = !x.rest && !self.is_local(x) && self.value(bound) != Some(0);
        Some(match (self.random.below(5), count) {
            (0 | 1, Some(n)) => format!("minimum({}, {bound})", n.name),
            (2, Some(n)) => format!("{} % ({bound} + 1)", n.name),
            (3, _) if plain && x.rank() == 1 => format!("sum(cast<i32>({} > 0.25))", x.name),
            (3, _) if plain && x.rank() == 2 && x.shape[0] == *bound => {
                self.value(&x.shape[1]).filter(|n| *n > 0)?;
                format!("sum(cast<i32>({}[.., 0] > 0.25))", x.name)
            }
            (4, _) => format!("cast<i32>({bound}) / 2"),
            _ => format!("minimum(cast<i32>({bound}), {})", self.random.below(4)),
        })
    }

    /// In each iteration another length: what is before a row.
    fn running(&mut self) -> Option<Var> {
        let rows = self.rows.clone();
        let x = self.choose_float(|v| !v.rest && v.rank() >= 1 && v.shape[0] == rows)?;
        let (v, i, n) = (self.name("v"), self.name("at"), self.name("N"));
        self.lines.push(format!("var {v} = {} * 0.5", x.name));
        self.lines.push(format!("for {i} in 0..{rows} {{"));
        let one = self.random.pick(&["", " + 1"]);
        self.lines.push(format!("    let dim {n} = {i}{one} where {n} <= {rows}"));
        let part = format!("{}[0..{n}]", x.name);
        let value = match self.random.below(3) {
            0 if x.rank() == 2 => format!("tanh(softmax({v}[{i}] @ {part}.T * 0.25) @ {part})"),
            1 => format!("tanh(sum({part} * 0.5, axis = 0))"),
            _ => format!("tanh(sum(softmax({part}, axis = 0) * {part}, axis = 0))"),
        };
        self.lines.push(format!("    {v}[{i}] = {value}"));
        self.lines.push("}".to_string());
        Some(self.keep(Var { name: v, ..x }))
    }
}
