//! Steps that call something: functions of the file with defaults and several results, layers of the standard library, tuples of layers,
//! recurrent cells in loops, the filters of `std.decode`.

use attnc::shape::{Dim, Elem};

use super::{Gen, Var};

impl Gen {
    /// A function of the file, some of whose arguments have defaults.
    pub(super) fn function(&mut self) -> Option<Var> {
        let f = self.name("g");
        let x = self.choose_float(|v| v.rank() >= 2)?;
        let name = x.name.clone();
        match self.random.below(4) {
            0 => {
                self.items.push(format!(
                    "fn {f}(x: f32[.., S, D], k: f32 = 0.5, n: i32 = 2) -> f32[.., S, D] {{\n    tanh(x * k) * cast<f32>(n)\n}}\n"
                ));
                let more = self.random.pick(&["", ", 0.25", ", n = 3", ", k = 1.5, n = 1", ", 0.75, 0"]);
                Some(self.bind_like(&format!("{f}({name}{more})"), &x, 2.0))
            }
            1 => {
                self.items.push(format!(
                    "fn {f}(x: f32[.., S, D], mask: bool[.., S, S] = true, bias: f32[.., S, S] = 0) -> f32[.., S, D] {{\n    \
                     softmax(where(mask, x @ x.T * 0.25 + bias, -inf)) @ x\n}}\n"
                ));
                let rows = &x.shape[x.rank() - 2];
                let more = match self.random.below(4) {
                    0 => format!(", causal({rows}, {rows})"),
                    1 => format!(", mask = iota({rows}) <= rearrange(iota({rows}), \"s -> s 1\") + 1"),
                    2 => format!(", bias = cast<f32>(causal({rows}, {rows})) * 0.125"),
                    _ => String::new(),
                };
                // A default takes the place of an argument of that type, whose axes must be named.
                Some(self.bind_like(&format!("{f}({name}{more})"), &x, x.size))
            }
            2 => {
                self.items.push(format!(
                    "fn {f}(x: f32[.., S, D], up: bool = true) -> (f32[.., S, D], f32[.., S]) {{\n    let y = if up {{ x * 0.5 }} else {{ -x }}\n    \
                     (tanh(y), sum(tanh(y)))\n}}\n"
                ));
                let more = self.random.pick(&["", ", false", ", up = true"]);
                let (a, b) = (self.name("v"), self.name("v"));
                self.lines.push(format!("let ({a}, {b}) = {f}({name}{more})"));
                let mut shape = x.shape.clone();
                shape.pop();
                self.vars.push(Var { name: b, shape, size: 4.0, ..x.clone() });
                Some(self.keep(Var { name: a, size: 0.0, ..x }))
            }
            _ => {
                let way = self.random.pick(&["y = y * 0.5 + x", "y = tanh(y - x)", "y = x - y"]);
                self.items.push(format!(
                    "fn {f}<N = 3>(x: f32[.., S, D]) -> f32[.., S, D] {{\n    var y = x * 0\n    for i in 0..N {{\n        \
                     {way}\n        if i == 1 {{ break }}\n    }}\n    y\n}}\n"
                ));
                Some(self.bind_like(&format!("{f}({name})"), &x, x.size + 1.5))
            }
        }
    }

    /// Layers of the standard library.
    pub(super) fn standard(&mut self) -> Option<Var> {
        let d = Dim::symbol("D");
        // Layers of the library have taps, whose shapes must be known on entry.
        let closed = self.closed();
        let fits = |v: &Var| v.rank() >= 2 && v.rank() <= 3 && v.last() == Some(&d) && v.size <= 3.0;
        let x = self.choose_float(|v| fits(v) && closed.contains(&v.name))?;
        let rows = x.shape[x.rank() - 2].clone();
        let (layer, name) = (self.name("layer"), x.name.clone());
        let lead = x.shape[..x.rank() - 2].to_vec();
        let keep = self.vars.iter().any(|v| {
            v.name == "keep" && v.rest == x.rest && v.last() == Some(&rows) && v.shape[..v.rank() - 1] == *lead
        });
        let (ty, call) = match self.random.below(6) {
            0 | 1 => {
                let more = match self.random.below(4) {
                    0 => format!(", causal({rows}, {rows})"),
                    1 if keep => ", keep = keep".to_string(),
                    2 if keep => format!(", mask = causal({rows}, {rows}), keep = keep"),
                    _ => String::new(),
                };
                let of = self.random.pick(&[
                    "SelfAttention<D, H>",
                    "TransformerEncoderLayer<D, H, F>",
                    "PreNormEncoderLayer<D, H, 3>",
                ]);
                (of.to_string(), format!("{layer}({name}{more})"))
            }
            2 | 3 => {
                let fits = |v: &Var| {
                    v.rest == x.rest && v.rank() == x.rank() && v.last() == Some(&d) && v.shape[..v.rank() - 2] == *lead
                };
                let memory = self.choose_float(|v| fits(v) && closed.contains(&v.name))?;
                let keys = &memory.shape[memory.rank() - 2];
                match self.random.below(3) {
                    0 => ("TransformerDecoderLayer<D, H, F>".to_string(), format!("{layer}({name}, {})", memory.name)),
                    1 => (
                        "MultiHeadAttention<D, H>".to_string(),
                        format!("{layer}({name}, {0}, {0}, mask = causal({rows}, {keys}))", memory.name),
                    ),
                    _ => ("MultiHeadAttention<D, H>".to_string(), format!("{layer}({name}, {0}, {0})", memory.name)),
                }
            }
            4 => {
                let w = self.parameter(Elem::F32, vec![d, Dim::symbol("F").mul(&Dim::from(2))]);
                self.fields.push(format!("{layer}: RotaryEmbedding<2*F, 100.0>"));
                let mut shape = x.shape.clone();
                shape.pop();
                shape.push(Dim::symbol("F").mul(&Dim::from(2)));
                let text = format!("{layer}(tanh({name} @ {}))", w.name);
                return Some(self.bind(&text, Elem::F32, x.rest, shape, 1.0));
            }
            _ => return self.recurrent(&x),
        };
        self.fields.push(format!("{layer}: {ty}"));
        Some(self.bind_like(&format!("tanh({call})"), &x, 0.0))
    }

    /// A recurrent network over the rows, each of whose results is kept in its place.
    fn recurrent(&mut self, x: &Var) -> Option<Var> {
        if x.rest {
            return None;
        }
        let (d, f) = (Dim::symbol("D"), Dim::symbol("F"));
        let rows = x.shape[x.rank() - 2].clone();
        let lead = x.shape[..x.rank() - 2].to_vec();
        let shape: Vec<Dim> = lead.iter().cloned().chain([f.clone()]).collect();
        let whole: Vec<Dim> = lead.iter().cloned().chain([rows.clone(), f]).collect();
        let list = |shape: &[Dim]| shape.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ");
        let (cell, h, c, out, t) = (self.name("cell"), self.name("h"), self.name("c"), self.name("v"), self.name("t"));
        let kind = self.random.pick(&["RNNCell", "GRUCell", "LSTMCell"]);
        self.fields.push(format!("{cell}: {kind}<{d}, F>"));
        self.lines.push(format!("var {h} = full<f32>(0, [{}])", list(&shape)));
        self.lines.push(format!("var {out} = full<f32>(0, [{}])", list(&whole)));
        let row = format!("{}[.., {t}, 0..{d}]", x.name);
        let step = if kind == "LSTMCell" {
            self.lines.push(format!("var {c} = {h} + 0.25"));
            format!("({h}, {c}) = {cell}({row}, {h}, {c})")
        } else {
            format!("{h} = {cell}({row}, {h})")
        };
        self.lines.push(format!("for {t} in 0..{rows} {{"));
        self.lines.push(format!("    {step}"));
        self.lines.push(match lead.len() {
            0 => format!("    {out}[{t}] = {h}"),
            _ => format!("    {out}[0..{}, {t}, ..] = {h}", lead[0]),
        });
        self.lines.push("}".to_string());
        self.vars.push(Var { name: h, elem: Elem::F32, rest: false, shape, size: 1.0 });
        Some(self.keep(Var { name: out, elem: Elem::F32, rest: false, shape: whole, size: 1.0 }))
    }

    /// Layers of different types in one field, called by place, in a loop, or as a `Sequential`.
    pub(super) fn tuple(&mut self) -> Option<Var> {
        let x = self.choose_float(|v| v.rank() >= 1 && v.last() == Some(&Dim::symbol("D")) && v.size <= 3.0)?;
        let (field, name) = (self.name("net"), x.name.clone());
        match self.random.below(4) {
            0 | 1 => {
                let inner = self.random.pick(&["F", "2*D", "3"]);
                let middle = self.random.pick(&["GELU", "Tanh", "ReLU", "SiLU"]);
                self.fields.push(format!("{field}: Sequential<Linear<D, {inner}>, {middle}, Linear<{inner}, D>>"));
                let text = if self.random.chance(60) {
                    format!("{field}({name})")
                } else {
                    format!("{field}.2(sigmoid({field}.0({name})))")
                };
                Some(self.bind_like(&text, &x, x.size + 3.0))
            }
            2 => {
                self.fields.push(format!("{field}: (LayerNorm<D>, RMSNorm<D>, Sigmoid)"));
                let v = self.name("v");
                self.lines.push(format!("var {v} = {name}"));
                self.lines.push(format!("for norm in {field} {{ {v} = norm({v} + 0.5) }}"));
                Some(self.keep(Var { name: v, size: 2.0, ..x }))
            }
            _ => {
                self.fields.push(format!("{field}: (Linear<D, D>, Identity, Mlp<D, F>)"));
                let (v, i) = (self.name("v"), self.name("at"));
                self.lines.push(format!("var {v} = {name}"));
                self.lines.push(format!(
                    "for ({i}, part) in enumerate({field}) {{ {v} = tanh(part({v})) - cast<f32>({i}) * 0.25 }}"
                ));
                Some(self.keep(Var { name: v, size: 1.0, ..x }))
            }
        }
    }

    /// Filters of scores, and the tokens that they leave.
    pub(super) fn decoding(&mut self) -> Option<Var> {
        let names: Vec<String> = self
            .vars
            .iter()
            .filter(|v| v.rank() == 2 && !v.rest && v.last().is_some_and(|d| self.value(d).is_some_and(|n| n > 0)))
            .map(|v| v.name.clone())
            .collect();
        let x = self.choose_float(|v| names.contains(&v.name))?;
        let name = &x.name;
        let k = self.random.below(4);
        let text = match self.random.below(4) {
            0 => format!("softmax(decode.keep_top_k(decode.temperature({name}, 0.75), {k}))"),
            1 => format!("softmax(decode.keep_top_p({name}, 0.8))"),
            2 => format!("softmax(decode.repetition_penalty({name}, {name} > 0.5, 1.25))"),
            _ => {
                let rows = &x.shape[0];
                let t = self.random.pick(&["0", "0.5", "1.25"]);
                let text = format!("decode.next({name}, {t}, {k}, 0.9, 7, cast<i64>(iota({rows})))");
                let text = format!("cast<f32>({text}) * 0.0625");
                return Some(self.bind(&text, Elem::F32, false, vec![rows.clone()], 2.0));
            }
        };
        Some(self.bind_like(&text, &x, 0.0))
    }
}
