//! Steps of several lines: norms, layers of one's own in arrays, loops, branches, products of one tensor by several weights, and
//! attention in its many forms.

use attnc::shape::{Dim, Elem};

use super::{Gen, Var};

impl Gen {
    /// A norm over the last axis, by a layer or by hand.
    pub(super) fn norm(&mut self) -> Option<Var> {
        let names: Vec<String> = self
            .vars
            .iter()
            .filter(|v| v.last().is_some_and(|d| self.value(d).is_some_and(|n| n > 0)))
            .map(|v| v.name.clone())
            .collect();
        let x = self.choose_float(|v| names.contains(&v.name))?;
        let width = x.last()?.clone();
        let name = x.name.clone();
        let text = match self.random.below(4) {
            0 => {
                let layer = self.name("ln");
                self.fields.push(format!("{layer}: LayerNorm<{width}>"));
                format!("{layer}({name})")
            }
            1 => {
                let layer = self.name("rms");
                self.fields.push(format!("{layer}: RMSNorm<{width}, eps = 1e-3>"));
                format!("{layer}({name})")
            }
            2 => {
                let centred =
                    self.bind_like(&format!("{name} - mean({name}, axis = -1, keep = true)"), &x, x.size + 1.0);
                let c = &centred.name;
                format!("{c} / sqrt(mean({c} * {c}, axis = -1, keep = true) + 0.01)")
            }
            _ => format!("{name} / (sqrt(sum({name} * {name}, axis = -1, keep = true)) + 0.5)"),
        };
        Some(self.bind_like(&text, &x, 3.0))
    }

    /// A loop over numbers that carries one or two variables.
    pub(super) fn repeat(&mut self) -> Option<Var> {
        let x = self.choose_float(|v| v.rank() >= 1)?;
        let turns = self.random.below(4);
        let start = self.random.below(2);
        let (v, w) = (self.name("v"), self.name("w"));
        let counter = self.name("turn");
        let axis = self.random.below(x.rank()) + 1;
        let two = self.random.chance(40);
        self.lines.push(format!("var {v} = {}", x.name));
        if two {
            self.lines.push(format!("var {w} = {} * 0.5", x.name));
        }
        self.lines.push(format!("for {counter} in {start}..{} {{", start + turns));
        let step = match self.random.below(4) {
            0 => format!("{v} = tanh({v} + 0.5)"),
            1 => format!("{v} = {v} * 0.5 + softmax({v}, axis = -{axis})"),
            2 => format!("{v} = tanh({v} * (cast<f32>({counter}) + 1))"),
            _ => format!("{v} = gelu({v}) - 0.25 * {v}"),
        };
        self.lines.push(format!("    {step}"));
        if two {
            self.lines.push(format!("    {w} = {v} - {w} * 0.5"));
        }
        self.lines.push("}".to_string());
        let var = Var { name: v, size: x.size.max(1.0) + 1.0, ..x.clone() };
        if two {
            self.vars.push(Var { name: w, size: x.size.max(1.0) + 2.0, ..x });
        }
        Some(self.keep(var))
    }

    /// A loop that ends when its variable has grown, after some iterations, or in the middle of one.
    pub(super) fn until(&mut self) -> Option<Var> {
        let x = self.choose_float(|v| v.rank() >= 1 && !v.rest)?;
        let (v, n) = (self.name("v"), self.name("n"));
        let most = self.random.below(5);
        let bound = self.random.pick(&["0.25", "1.5", "40"]);
        self.lines.push(format!("var {v} = {}", x.name));
        self.lines.push(format!("var {n} = 0"));
        let step = match self.random.below(3) {
            0 => format!("{v} * 0.5 + 0.25"),
            1 => format!("tanh({v}) * 1.25"),
            _ => format!("{v} - sigmoid({v}) * 0.5"),
        };
        // `any` reduces one axis.
        let any = |condition: &str| format!("{}{condition}{}", "any(".repeat(x.rank()), ")".repeat(x.rank()));
        let (head, more) = match self.random.below(4) {
            0 => (format!("while {n} < {most} {{"), String::new()),
            1 => (format!("while {n} < {most} and not {} {{", any(&format!("abs({v}) > {bound}"))), String::new()),
            2 => (format!("for _ in 0..{most} {{"), format!("if {n} == 2 {{ break }}")),
            _ => ("while true {".to_string(), format!("if {n} >= {most} {{ break }}")),
        };
        self.lines.push(head);
        if !more.is_empty() {
            self.lines.push(format!("    {more}"));
        }
        self.lines.push(format!("    {v} = {step}"));
        self.lines.push(format!("    {n} = {n} + 1"));
        if self.random.chance(30) {
            self.lines
                .push(format!("    if {} {{ break }} else {{ {v} = {v} * 0.75 }}", any(&format!("abs({v}) > 100"))));
        }
        self.lines.push("}".to_string());
        let count = Var { name: n, elem: Elem::I32, rest: false, shape: Vec::new(), size: 3.0 };
        self.vars.push(count);
        Some(self.keep(Var { name: v, size: x.size.max(1.0) + 1.0, ..x }))
    }

    /// A variable of which parts are assigned, alone, in a loop, or on some condition.
    pub(super) fn parts_assigned(&mut self) -> Option<Var> {
        let names: Vec<String> = self
            .vars
            .iter()
            .filter(|v| !v.rest && v.shape.first().is_some_and(|d| self.value(d).is_none_or(|n| n > 0)))
            .map(|v| v.name.clone())
            .collect();
        let x = self.choose_float(|v| names.contains(&v.name))?;
        let rows = x.shape.first()?.clone();
        let (v, i) = (self.name("v"), self.name("at"));
        let start = self.random.pick(&["", " * 0.5"]);
        self.lines.push(format!("var {v} = {}{start}", x.name));
        let all = if x.rank() > 1 && self.random.chance(30) { ", .." } else { "" };
        let part = format!("{v}[{i}{all}]");
        let value = match self.random.below(4) {
            0 => "0.25".to_string(),
            1 => format!("tanh({}[{i}])", x.name),
            2 => format!("{part} * 0.5 + {}[{i}] * 0.25", x.name),
            _ => format!("{v}[{i}] - 1"),
        };
        let old = self.random.chance(20).then(|| self.name("v"));
        if let Some(old) = &old {
            self.lines.push(format!("let {old} = {v}"));
        }
        let assigned = match self.random.below(3) {
            0 => format!("{part} = {value}"),
            1 => format!("if {i} % 2 == 0 {{ {part} = {value} }}"),
            _ => format!("{v}[{i}..{i}+1] = {v}[{i}..1+{i}] * 0.5"),
        };
        self.lines.push(format!("for {i} in 0..{rows} {{ {assigned} }}"));
        // An axis that may be empty at run time has no first element.
        if self.random.chance(30) && self.value(&rows).is_some_and(|n| n > 0) {
            self.lines.push(format!("{v}[0] = 1.5"));
        }
        if let Some(name) = old {
            self.vars.push(Var { name, ..x.clone() });
        }
        Some(self.keep(Var { name: v, size: x.size.max(1.0) + 1.0, ..x }))
    }

    /// One of two ways, by an argument; around what may be fused, or in a loop.
    pub(super) fn branch(&mut self) -> Option<Var> {
        self.choose(|v| v.name == "flag")?;
        let x = self.choose_float(|v| v.rank() >= 1)?;
        let name = x.name.clone();
        let axis = self.random.below(x.rank()) + 1;
        let square = x.rank() >= 2 && x.last() == Some(&Dim::symbol("D"));
        let way = |this: &mut Gen, name: &str| match this.random.below(if square { 7 } else { 5 }) {
            0 => format!("tanh({name}) * 0.5"),
            1 => format!("softmax({name}, axis = -{axis})"),
            2 => format!("{name} - max({name}, axis = -{axis}, keep = true) * 0"),
            3 => name.to_string(),
            4 => format!("sigmoid({name} + 1)"),
            5 => {
                let w = this.parameter(Elem::F32, vec![Dim::symbol("D"), Dim::symbol("D")]);
                format!("tanh({name} @ {})", w.name)
            }
            _ => format!("softmax({name} @ {name}.T * 0.25) @ {name}"),
        };
        let looped = self.random.chance(40);
        let v = if looped { self.name("v") } else { name.clone() };
        let (a, b) = (way(self, &v), way(self, &v));
        // A maximum over an empty axis times 0 is NaN.
        let known = x.shape.get(x.rank() - axis).is_some_and(|d| self.value(d).is_some_and(|n| n > 0));
        if !known && (a.contains(" - max(") || b.contains(" - max(")) {
            return None;
        }
        if !looped {
            return Some(self.bind_like(&format!("if flag {{ {a} }} else {{ {b} }}"), &x, x.size.max(1.0)));
        }
        let turn = self.name("turn");
        self.lines.push(format!("var {v} = {name}"));
        self.lines.push(format!("for {turn} in 0..{} {{", self.random.below(4)));
        self.lines.push(format!("    if {turn} % 2 == 0 {{ {v} = {a} }} else if flag {{ {v} = {b} }}"));
        self.lines.push("}".to_string());
        Some(self.keep(Var { name: v, size: x.size.max(1.0), ..x }))
    }

    /// Several products of one tensor, by weights as wide as panels are, or not, with biases or without.
    pub(super) fn products(&mut self) -> Option<Var> {
        let names: Vec<String> = self
            .vars
            .iter()
            .filter(|v| v.rank() >= 2 && v.last().is_some_and(|d| self.value(d).is_some()))
            .map(|v| v.name.clone())
            .collect();
        let x = self.choose_float(|v| names.contains(&v.name))?;
        let inner = x.last()?.clone();
        let biased = self.random.chance(50);
        let mut last = None;
        for n in 0..3 + self.random.below(2) {
            let width = Dim::from(self.random.pick(&[32, 32, 32, 64, 5]));
            let w = self.parameter(Elem::F32, vec![inner.clone(), width.clone()]);
            let bias = match biased {
                true => format!(" + {}", self.parameter(Elem::F32, vec![width.clone()]).name),
                false => String::new(),
            };
            let f = self.random.pick(&["tanh", "gelu", "sin", ""]);
            let mut shape = x.shape.clone();
            shape.pop();
            shape.push(width);
            let text = format!("{f}({} @ {}{bias}) * {}", x.name, w.name, n + 1);
            last = Some(self.bind(&text, Elem::F32, x.rest, shape, x.size + 5.0));
        }
        last
    }

    /// A layer of one's own, as a field or as an array that a loop goes through.
    pub(super) fn layers(&mut self) -> Option<Var> {
        let closed = self.closed();
        let fits = |v: &Var| v.rank() >= 2 && v.last() == Some(&Dim::symbol("D"));
        let x = self.choose_float(|v| fits(v) && closed.contains(&v.name))?;
        let layer = self.name("Block");
        let tap = if self.random.chance(40) { "        tap y\n" } else { "" };
        let item = match self.random.below(4) {
            // Products of one tensor, as wide as panels are.
            3 => format!(
                "layer {layer}<D, K> {{\n    wq: f32[D, 32]\n    wk: f32[D, 32]\n    wv: f32[D, 32]\n    bq: f32[32]\n    bk: f32[32]\n    bv: f32[32]\n    \
                 up: Linear<32, D>\n\n    fn forward(x: f32[.., D]) -> f32[.., D] {{\n        let q = x @ wq + bq\n        let k = x @ wk + bk\n        \
                 let v = x @ wv + bv\n        let y = up(tanh(q) * 0.5 - gelu(k) * 0.25 + v * 0.125)\n{tap}        x * 0.5 + tanh(y)\n    }}\n}}\n"
            ),
            0 => format!(
                "layer {layer}<D, K> {{\n    ln: LayerNorm<D>\n    mlp: Mlp<D, K>\n\n    fn forward(x: f32[.., D]) -> f32[.., D] {{\n        \
                 let y = mlp(ln(x))\n{tap}        x + y\n    }}\n}}\n"
            ),
            1 => format!(
                "layer {layer}<D, K> {{\n    w: f32[D, K]\n    up: Linear<K, D>\n\n    fn forward(x: f32[.., D]) -> f32[.., D] {{\n        \
                 let y = tanh(x @ w)\n{tap}        x * 0.5 + up(y)\n    }}\n}}\n"
            ),
            _ => format!(
                "layer {layer}<D, K> {{\n    gate: SwiGlu<D, K>\n    scale: f32[D]\n\n    fn forward(x: f32[.., D]) -> f32[.., D] {{\n        \
                 let y = gate(x * scale)\n{tap}        tanh(x + y)\n    }}\n}}\n"
            ),
        };
        // Sometimes the element type is a generic.
        let item = if self.random.chance(30) {
            let item = item.replace("<D, K> {", "<D, K, E = f32> {").replace("f32[", "E[");
            item.replace("Linear<K, D>", "Linear<K, D, E>").replace("Mlp<D, K>", "Mlp<D, K, E = E>")
        } else {
            item
        };
        self.items.push(item);
        // Sometimes one that has an array of them.
        let layer = if self.random.chance(25) {
            let rows = self.name("Rows");
            self.items.push(format!(
                "layer {rows}<D, K> {{\n    each: [{layer}<D, K>; 3]\n\n    fn forward(x: f32[.., D]) -> f32[.., D] {{\n        var y = x\n        \
                 for one in each {{ y = tanh(one(y)) }}\n        y\n    }}\n}}\n"
            ));
            rows
        } else {
            layer
        };
        let inner = self.random.pick(&["F", "2*D", "3"]);
        let field = self.name("blocks");
        let name = x.name.clone();
        if self.random.chance(30) {
            self.fields.push(format!("{field}: {layer}<D, {inner}>"));
            return Some(self.bind_like(&format!("{field}({name})"), &x, x.size + 3.0));
        }
        let count = self.random.below(4);
        self.fields.push(format!("{field}: [{layer}<D, {inner}>; {count}]"));
        let v = self.name("v");
        self.lines.push(format!("var {v} = {name}"));
        let turn = self.name("turn");
        self.lines.push(match self.random.below(4) {
            0 => format!("for {turn} in 0..{count} {{ {v} = tanh({field}[{turn}]({v})) }}"),
            1 => format!("for ({turn}, block) in enumerate({field}) {{ {v} = tanh(block({v}) + cast<f32>({turn})) }}"),
            _ => format!("for block in {field} {{ {v} = tanh(block({v})) }}"),
        });
        if count > 0 && self.random.chance(30) {
            self.lines.push(format!("{v} = {v} + {field}[{}]({v})", count - 1));
        }
        // By a formula of the counter.
        if count > 1 && self.random.chance(40) {
            let (ends, at) = self.random.pick(&[("1..", "- 1"), ("1..", "")]);
            let last = count - 1;
            self.lines.push(match self.random.below(2) {
                0 => format!("for {turn} in {ends}{count} {{ {v} = tanh({field}[{turn} {at}]({v})) }}"),
                _ => format!("for {turn} in 0..{count} {{ {v} = tanh({field}[{last} - {turn}]({v})) }}"),
            });
        }
        let var = Var { name: v, size: x.size + 3.0, ..x };
        Some(self.keep(var))
    }

    /// `softmax(mask(q @ k.T * scale)) @ v` in one of its many forms.
    pub(super) fn attention(&mut self) -> Option<Var> {
        let d = Dim::symbol("D");
        let x = self.choose_float(|v| v.rank() >= 2 && v.rank() <= 5 && v.last() == Some(&d))?;
        let lead = x.shape[..x.rank() - 2].to_vec();
        let fits = |v: &Var| {
            v.rest == x.rest && v.rank() == x.rank() && v.last() == Some(&d) && v.shape[..v.rank() - 2] == *lead
        };
        let memory = if self.random.chance(40) { self.choose_float(fits)? } else { x.clone() };
        let heads = self.random.chance(65);
        let (queries, keys) = (x.shape[x.rank() - 2].clone(), memory.shape[x.rank() - 2].clone());
        let project = |this: &mut Gen, of: &Var| -> String {
            let w = this.parameter(Elem::F32, vec![d.clone(), d.clone()]);
            format!("{} @ {} / sqrt(D)", of.name, w.name)
        };
        let names: Vec<&str> = ["b", "c", "e"].into_iter().take(lead.len()).collect();
        let outer: String =
            if x.rest { ".. ".to_string() } else { names.iter().map(|name| format!("{name} ")).collect() };
        let mut made = Vec::new();
        for of in [&x, &memory, &memory] {
            let text = project(self, of);
            let text =
                if heads { format!("rearrange({text}, \"{outer}s (h d) -> {outer}h s d\", h = H)") } else { text };
            let name = self.name("q");
            self.lines.push(format!("let {name} = {text}"));
            made.push(name);
        }
        let (q, k, v) = (&made[0], &made[1], &made[2]);
        let width = if heads { "D / H" } else { "D" };
        let scores = match self.random.below(5) {
            0 => format!("{q} @ {k}.T"),
            1 => format!("({q} / sqrt({width})) @ {k}.T"),
            2 => format!("0.125 * ({q} @ {k}.T)"),
            3 => format!("{q} @ {k}.T * rsqrt({width})"),
            _ => format!("{q} @ {k}.T / sqrt({width})"),
        };
        let mut masked = scores;
        for _ in 0..self.random.pick(&[1, 1, 1, 2, 3]) {
            let name = self.name("scores");
            self.lines.push(format!("let {name} = {masked}"));
            masked = self.mask(&name, &x, &queries, &keys, heads, &outer);
        }
        let weights = self.name("weights");
        // Over another axis than the last it is not attention, and must not be fused as attention.
        let axis = if self.random.chance(10) { ", axis = -2" } else { "" };
        self.lines.push(format!("let {weights} = softmax({masked}{axis})"));
        if self.random.chance(25) && !self.is_local(&x) && !self.is_local(&memory) {
            self.lines.push(format!("tap {weights}"));
        }
        let text = if heads {
            format!("rearrange({weights} @ {v}, \"{outer}h s d -> {outer}s (h d)\")")
        } else {
            format!("{weights} @ {v}")
        };
        let name = self.name("v");
        self.lines.push(format!("let {name} = {text}"));
        let mut shape = lead;
        shape.push(queries);
        shape.push(d);
        let var = Var { name, elem: Elem::F32, rest: x.rest, shape, size: x.size.max(memory.size) };
        Some(self.keep(var))
    }
}
