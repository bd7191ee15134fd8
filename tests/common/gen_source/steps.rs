//! Steps of one line: elementwise work, reductions, movement of elements, products.

use attnc::shape::{Dim, Elem, broadcast};

use super::{Gen, Var};

impl Gen {
    /// Writes one step, of a kind that fits what there is.
    pub(super) fn step(&mut self) {
        for _ in 0..8 {
            let done = match self.random.below(45) {
                0 | 1 => self.unary(),
                2 | 3 => self.scale(),
                4..=6 => self.binary(),
                7 | 8 => self.linear(),
                9 => self.product(),
                10 => self.softmax(),
                11 => self.reduction(),
                12 => self.rearrange(),
                13 => self.slice(),
                14 => self.concat(),
                15 => self.parts(),
                16 => self.choice(),
                17 => self.integers(),
                18 => self.other_elements(),
                19 => self.einsum(),
                20 => self.norm(),
                21 => self.repeat(),
                22 => self.layers(),
                23 => self.branch(),
                24 => self.products(),
                25 => self.until(),
                26 => self.parts_assigned(),
                27 => self.ordered(),
                28 => self.counted_random(),
                29..=31 => self.state(),
                32 => self.cells(),
                33 | 34 => self.length(),
                35 | 36 => self.function(),
                37 => self.standard(),
                38 => self.tuple(),
                39 => self.decoding(),
                40..=42 => self.movement(),
                _ => self.attention(),
            };
            if done.is_some() {
                return;
            }
        }
    }

    fn unary(&mut self) -> Option<Var> {
        let x = self.choose_float(|_| true)?;
        let name = &x.name;
        let (text, size) = match self.random.below(22) {
            0 => (format!("tanh({name})"), 0.0),
            1 => (format!("sigmoid({name})"), 0.0),
            2 => (format!("erf({name})"), 0.0),
            3 => (format!("sin({name})"), 0.0),
            4 => (format!("cos({name})"), 0.0),
            5 => (format!("relu({name})"), x.size),
            6 => (format!("gelu({name})"), x.size),
            7 => (format!("gelu_tanh({name})"), x.size),
            8 => (format!("silu({name})"), x.size),
            9 => (format!("abs({name})"), x.size),
            10 => (format!("-{name}"), x.size),
            11 => (format!("exp(-abs({name}))"), 0.0),
            12 => (format!("sqrt(abs({name}))"), x.size / 2.0),
            13 => (format!("rsqrt(abs({name}) + 1)"), 0.0),
            14 => (format!("log(abs({name}) + 1)"), 2.0),
            15 => (format!("log1p(abs({name}))"), 2.0),
            16 => (format!("expm1(-abs({name}))"), 0.0),
            17 => (format!("softplus({name})"), x.size.max(1.0)),
            18 => (format!("where(isnan({name}) or isinf({name}), 0, {name})"), x.size),
            19 => {
                let f = self.random.pick(&["round", "trunc", "floor", "ceil"]);
                (format!("{f}({name} * 0.5)"), x.size)
            }
            20 => (format!("minimum(maximum({name}, -1), 1)"), 0.0),
            _ => (format!("pow(abs({name}) + 0.5, 0.25)"), 1.0),
        };
        Some(self.bind_like(&text, &x, size))
    }

    fn scale(&mut self) -> Option<Var> {
        let x = self.choose_float(|_| true)?;
        let name = &x.name;
        let (text, size) = match self.random.below(8) {
            0 => (format!("{name} * 0.5"), x.size),
            1 => (format!("0.25 * {name} - 1"), x.size),
            2 => (format!("{name} / sqrt(D / H)"), x.size),
            3 => (format!("{name} / sqrt(D)"), x.size),
            4 => (format!("1 - {name}"), x.size + 1.0),
            5 => (format!("{name} / 3 + 1e-3"), x.size),
            6 => (format!("{name} * H / D"), x.size),
            _ => (format!("({name} + {name}) * 0.5"), x.size),
        };
        Some(self.bind_like(&text, &x, size))
    }

    /// Two variables, or a variable and a parameter, joined by broadcasting.
    fn binary(&mut self) -> Option<Var> {
        let a = self.choose_float(|_| true)?;
        let b = if self.random.chance(40) {
            let known: Vec<Dim> = a.shape.iter().rev().take_while(|d| self.value(d).is_some()).cloned().collect();
            let rank = self.random.below(known.len() + 1);
            let mut shape: Vec<Dim> = known.into_iter().take(rank).collect();
            shape.reverse();
            if let Some(first) = shape.first_mut()
                && self.random.chance(15)
            {
                *first = Dim::one();
            }
            self.parameter(Elem::F32, shape)
        } else {
            self.choose_float(|b| joined(&a, b).is_some())?
        };
        let (rest, shape) = joined(&a, &b)?;
        let (x, y) = if self.random.chance(50) { (&a.name, &b.name) } else { (&b.name, &a.name) };
        let (text, size) = match self.random.below(4) {
            0 => (format!("{x} - {y}"), a.size.max(b.size) + 1.0),
            1 => (format!("{x} * {y}"), a.size + b.size),
            2 => (format!("{x} / (abs({y}) + 1)"), a.size.max(b.size)),
            _ => (format!("{x} + {y}"), a.size.max(b.size) + 1.0),
        };
        Some(self.bind(&text, Elem::F32, rest, shape, size))
    }

    /// A product with a parameter, in one of the ways to write it.
    fn linear(&mut self) -> Option<Var> {
        let known = |this: &Gen, var: &Var| var.last().is_some_and(|d| this.value(d).is_some());
        let names: Vec<String> = self.vars.iter().filter(|v| known(self, v)).map(|v| v.name.clone()).collect();
        let x = self.choose_float(|v| names.contains(&v.name))?;
        let inner = x.last()?.clone();
        let outer = self.known_dim();
        let mut shape = x.shape.clone();
        shape.pop();
        shape.push(outer.clone());
        let name = x.name.clone();
        let text = match self.random.below(5) {
            0 => {
                let w = self.parameter(Elem::F32, vec![inner.clone(), outer]);
                format!("{name} @ {}", w.name)
            }
            1 => {
                let w = self.parameter(Elem::F32, vec![outer.clone(), inner.clone()]);
                let b = self.parameter(Elem::F32, vec![outer]);
                format!("relu({name} @ {}.T + {})", w.name, b.name)
            }
            2 => {
                let layer = self.name("lin");
                self.fields.push(format!("{layer}: Linear<{inner}, {outer}>"));
                format!("{layer}({name})")
            }
            3 => {
                let layer = self.name("conv");
                self.fields.push(format!("{layer}: Conv1D<{inner}, {outer}>"));
                format!("gelu({layer}({name}))")
            }
            _ => {
                let w = self.parameter(Elem::F32, vec![outer, inner.clone()]);
                format!("{name} @ {}.T / sqrt({inner})", w.name)
            }
        };
        let gain = self.value(&inner).map_or(0.0, |n| (n as f64 + 1.0).log2() / 2.0);
        Some(self.bind(&text, Elem::F32, x.rest, shape, x.size + gain))
    }

    /// A product of two variables over their leading axes.
    fn product(&mut self) -> Option<Var> {
        let a = self.choose_float(|v| v.rank() >= 2)?;
        let inner = a.last()?.clone();
        let lead = |v: &Var| Var { shape: v.shape[..v.rank() - 2].to_vec(), ..v.clone() };
        let fits = |b: &Var, at: usize| b.shape[b.rank() - at] == inner && joined(&lead(&a), &lead(b)).is_some();
        let transposed = self.random.chance(60);
        let at = if transposed { 1 } else { 2 };
        let b = self.choose_float(|b| b.rank() >= 2 && fits(b, at))?;
        let (rest, mut shape) = joined(&lead(&a), &lead(&b))?;
        shape.push(a.shape[a.rank() - 2].clone());
        shape.push(b.shape[b.rank() + at - 3].clone());
        let text = format!("{} @ {}{}", a.name, b.name, if transposed { ".T" } else { "" });
        Some(self.bind(&format!("tanh({text})"), Elem::F32, rest, shape, 0.0))
    }

    pub(super) fn softmax(&mut self) -> Option<Var> {
        let x = self.choose_float(|v| v.rank() >= 1)?;
        let axis = self.random.below(x.rank()) + 1;
        let text = match self.random.below(4) {
            0 => format!("log_softmax({}, axis = -{axis})", x.name),
            1 => format!("softmax({})", x.name),
            2 => format!("softmax(where({0} > 0.25, {0}, -inf), axis = -{axis})", x.name),
            _ => format!("softmax({}, axis = -{axis})", x.name),
        };
        Some(self.bind_like(&text, &x, x.size.max(3.0)))
    }

    fn reduction(&mut self) -> Option<Var> {
        let x = self.choose_float(|v| v.rank() >= 1)?;
        let axis = self.random.below(x.rank()) + 1;
        let keep = self.random.chance(60);
        let kind = self.random.pick(&["sum", "mean", "max", "min"]);
        let mut shape = x.shape.clone();
        let at = x.rank() - axis;
        let symbolic = self.value(&shape[at]).is_none();
        if keep {
            shape[at] = Dim::one();
        } else {
            shape.remove(at);
        }
        let keep = if keep { ", keep = true" } else { "" };
        let text = format!("{kind}({}, axis = -{axis}{keep})", x.name);
        // Over an axis that may be empty, the result may be infinite.
        let text = if symbolic && kind != "sum" { format!("tanh({text})") } else { text };
        Some(self.bind(&text, Elem::F32, x.rest, shape, x.size + 2.0))
    }

    /// Axes in another order; sometimes one is split, or two are joined.
    fn rearrange(&mut self) -> Option<Var> {
        let x = self.choose_float(|v| v.rank() >= 1 && v.rank() <= 4)?;
        let letters = ["a", "b", "c", "d", "e"];
        let mut left = Vec::new();
        // Each part that can be moved, with its extent.
        let mut parts: Vec<(String, Dim)> = Vec::new();
        let mut options = String::new();
        for (dim, letter) in x.shape.iter().zip(letters) {
            // A name stands for one part, so one axis at most is split into heads.
            if options.is_empty() && *dim == Dim::symbol("D") && self.random.chance(50) {
                left.push(format!("(h {letter})"));
                parts.push(("h".to_string(), Dim::symbol("H")));
                parts.push((letter.to_string(), Dim::symbol("D").div(&Dim::symbol("H"))?));
                options = ", h = H".to_string();
            } else {
                left.push(letter.to_string());
                parts.push((letter.to_string(), dim.clone()));
            }
        }
        for i in (1..parts.len()).rev() {
            let j = self.random.below(i + 1);
            parts.swap(i, j);
        }
        let mut right = Vec::new();
        let mut shape = Vec::new();
        let mut parts = parts.into_iter().peekable();
        while let Some((name, dim)) = parts.next() {
            if self.random.chance(8) {
                right.push("1".to_string());
                shape.push(Dim::one());
            }
            if self.random.chance(40)
                && let Some((second, inner)) = parts.next()
            {
                right.push(format!("({name} {second})"));
                shape.push(dim.mul(&inner));
                continue;
            }
            right.push(name);
            shape.push(dim);
        }
        let lead = if x.rest { ".. " } else { "" };
        let text = format!("rearrange({}, \"{lead}{} -> {lead}{}\"{options})", x.name, left.join(" "), right.join(" "));
        Some(self.bind(&text, x.elem, x.rest, shape, x.size))
    }

    fn slice(&mut self) -> Option<Var> {
        let known: Vec<(String, usize, i64)> = self
            .vars
            .iter()
            .filter(|v| v.is_float())
            .flat_map(|v| v.shape.iter().enumerate().map(|(i, d)| (v.name.clone(), i, self.value(d))))
            .filter_map(|(name, i, n)| n.filter(|n| *n >= 1).map(|n| (name, i, n)))
            .collect();
        let (name, at, n) = if known.is_empty() { return None } else { self.random.pick(&known) };
        let x = self.vars.iter().find(|v| v.name == name)?.clone();
        let start = self.random.below(n as usize) as i64;
        let mut shape = x.shape.clone();
        let entry = if self.random.chance(35) {
            shape.remove(at);
            start.to_string()
        } else {
            let stop = start + self.random.below((n - start) as usize) as i64 + 1;
            shape[at] = Dim::from(stop - start);
            format!("{start}..{stop}")
        };
        let mut entries = vec!["..".to_string(), entry];
        entries.extend(x.shape.iter().skip(at + 1).map(|d| format!("0..{d}")));
        Some(self.bind(&format!("{}[{}]", x.name, entries.join(", ")), x.elem, x.rest, shape, x.size))
    }

    fn concat(&mut self) -> Option<Var> {
        let a = self.choose_float(|v| v.rank() >= 1 && !v.rest)?;
        let at = self.random.below(a.rank());
        let fits = |b: &Var| {
            !b.rest
                && b.rank() == a.rank()
                && a.shape.iter().zip(&b.shape).enumerate().all(|(i, (x, y))| i == at || x == y)
        };
        let b = self.choose_float(fits)?;
        let mut shape = a.shape.clone();
        shape[at] = a.shape[at].add(&b.shape[at]);
        let text = format!("concat({}, {}, axis = {at})", a.name, b.name);
        Some(self.bind(&text, Elem::F32, false, shape, a.size.max(b.size)))
    }

    /// `split` and `unbind`.
    fn parts(&mut self) -> Option<Var> {
        let x = self.choose_float(|v| v.rank() >= 1 && v.last() == Some(&Dim::symbol("D")))?;
        let w = self.parameter(Elem::F32, vec![Dim::symbol("D"), Dim::symbol("D").mul(&Dim::from(3))]);
        let (a, b, c) = (self.name("a"), self.name("b"), self.name("c"));
        let text = format!("tanh({} @ {})", x.name, w.name);
        let lead = if x.rest { ".. " } else { "" };
        let names: Vec<&str> = ["i", "j", "k", "l"].into_iter().take(x.rank() - 1).collect();
        let names = names.join(" ");
        let line = match self.random.below(3) {
            0 => format!("let ({a}, {b}, {c}) = split({text}, axis = -1, parts = 3)"),
            1 => format!(
                "let ({a}, {b}, {c}) = unbind(rearrange({text}, \"{lead}{names} (n d) -> n {lead}{names} d\", n = 3))"
            ),
            _ => format!(
                "let ({a}, {b}, {c}) = unbind(rearrange({text}, \"{lead}{names} (d n) -> {lead}{names} d n\", n = 3), axis = -1)"
            ),
        };
        self.lines.push(line);
        for name in [b, c, a.clone()] {
            self.vars.push(Var { name, size: 0.0, ..x.clone() });
        }
        self.vars.last().cloned()
    }

    /// `where` with a comparison, or with the mask that is an argument.
    fn choice(&mut self) -> Option<Var> {
        let a = self.choose_float(|_| true)?;
        let b = self.choose_float(|b| joined(&a, b).is_some())?;
        let (rest, shape) = joined(&a, &b)?;
        let size = a.size.max(b.size);
        let op = self.random.pick(&["<", "<=", ">", ">=", "!="]);
        let text = match self.random.below(4) {
            0 => format!("where({} {op} {}, {0}, 0)", a.name, b.name),
            1 => format!("where({0} > -0.5 and {1} {op} 0.5, {0}, {1})", a.name, b.name),
            2 => format!("where(not ({} {op} 0.125), 1.5, {})", a.name, b.name),
            _ => format!("cast<f32>({} {op} {}) * 0.5", a.name, b.name),
        };
        Some(self.bind(&text, Elem::F32, rest, shape, size))
    }

    /// What is made of integers: tables, counters, one-hot rows.
    fn integers(&mut self) -> Option<Var> {
        let (s, d, v) = (self.rows.clone(), Dim::symbol("D"), Dim::symbol("V"));
        if let Some(tokens) = self.choose(|v| v.name == "tokens")
            && self.random.chance(70)
        {
            let mut shape = tokens.shape.clone();
            if self.random.chance(50) {
                let table = self.parameter(Elem::F32, vec![v, d.clone()]);
                shape.push(d);
                return Some(self.bind(&format!("{}[tokens]", table.name), Elem::F32, tokens.rest, shape, 1.0));
            }
            shape.push(v);
            return Some(self.bind("cast<f32>(one_hot(tokens, V)) - 0.25", Elem::F32, tokens.rest, shape, 0.0));
        }
        match self.random.below(3) {
            0 => Some(self.bind(&format!("cast<f32>(iota({s})) * 0.03125"), Elem::F32, false, vec![s], 1.0)),
            1 => Some(self.bind("full<f32>(0.75, [F, 1])", Elem::F32, false, vec![Dim::symbol("F"), Dim::one()], 0.0)),
            _ => {
                let x = self.choose_float(|x| x.rank() >= 1)?;
                let dims: Vec<bool> = x.shape.iter().map(|d| self.value(d).is_some_and(|n| n > 0)).collect();
                let at = dims.iter().rposition(|known| *known)?;
                let mut shape = x.shape.clone();
                shape.remove(at);
                let which = self.random.pick(&["argmax", "argmin"]);
                let text = format!("cast<f32>({which}({}, axis = -{})) * 0.125", x.name, x.rank() - at);
                Some(self.bind(&text, Elem::F32, x.rest, shape, 2.0))
            }
        }
    }

    /// Products of other element types.
    fn other_elements(&mut self) -> Option<Var> {
        let names: Vec<String> = self
            .vars
            .iter()
            .filter(|v| v.last().is_some_and(|d| self.value(d).is_some()))
            .map(|v| v.name.clone())
            .collect();
        let x = self.choose_float(|v| names.contains(&v.name) && v.rank() >= 2)?;
        let inner = x.last()?.clone();
        let mut shape = x.shape.clone();
        shape.pop();
        shape.push(Dim::from(3));
        let elem = self.random.pick(&[Elem::BF16, Elem::F16, Elem::I8]);
        let w = self.parameter(elem, vec![inner, Dim::from(3)]);
        let text = if elem == Elem::I8 {
            format!("cast<f32>(cast<i8>(tanh({}) * 20) @ {}) * 0.0009765625", x.name, w.name)
        } else {
            format!("cast<f32>(cast<{elem}>({}) @ {})", x.name, w.name)
        };
        Some(self.bind(&text, Elem::F32, x.rest, shape, x.size + 3.0))
    }

    /// Running sums, sorted lines, the first few of them, slices added at indices.
    fn ordered(&mut self) -> Option<Var> {
        let x = self.choose_float(|v| v.rank() >= 1)?;
        let at = self.random.below(x.rank());
        let axis = x.rank() - at;
        let (name, length) = (x.name.clone(), x.shape[at].clone());
        match self.random.below(5) {
            0 | 1 => Some(self.bind_like(&format!("tanh(cumsum({name}, axis = -{axis}))"), &x, 0.0)),
            2 => {
                let text = format!("sort({name}, axis = -{axis}, descending = {})", self.random.chance(50));
                Some(self.bind_like(&text, &x, x.size))
            }
            3 => {
                let k = self.random.below(self.value(&length)? as usize + 1) as i64;
                let (values, places) = (self.name("v"), self.name("at"));
                self.lines.push(format!("let ({values}, {places}) = top_k({name}, {k}, axis = -{axis})"));
                let mut shape = x.shape.clone();
                shape[at] = Dim::from(k);
                let text = format!("{values} + cast<f32>({places}) * 0.0625");
                Some(self.bind(&text, Elem::F32, x.rest, shape, x.size + 1.0))
            }
            _ => {
                let operation = self.random.pick(&["scatter", "scatter_add"]);
                let text = format!("{operation}({name}, iota({length}) / 2, {name} * 0.5, axis = -{axis})");
                Some(self.bind_like(&text, &x, x.size + 1.0))
            }
        }
    }

    /// Random numbers of a counter, and bits of integers.
    fn counted_random(&mut self) -> Option<Var> {
        let dim = self.random.pick(&[self.rows.clone(), Dim::symbol("F")]);
        let d = &dim;
        let seed = self.random.below(1000);
        let text = match self.random.below(3) {
            0 => format!("random.uniform({seed}, cast<i64>(iota({d})) + {seed})"),
            1 => format!("cast<f32>(bitwise_and(random.bits({seed}, cast<i64>(iota({d}))), 255)) * 0.00390625"),
            _ => format!("cast<f32>(bitwise_xor(left_shift(iota({d}), 2), right_shift(iota({d}), 1))) * 0.015625"),
        };
        Some(self.bind(&text, Elem::F32, false, vec![dim], 2.0))
    }

    fn einsum(&mut self) -> Option<Var> {
        let a = self.choose_float(|v| v.rank() == 2)?;
        let lead = if a.rest { ".. " } else { "" };
        let (i, j) = (a.shape[0].clone(), a.shape[1].clone());
        let b = self.choose_float(|b| b.rank() == 2 && b.rest == a.rest && b.shape[1] == j)?;
        let k = b.shape[0].clone();
        let (pattern, shape) = match self.random.below(4) {
            0 => (format!("{lead}i j, {lead}k j -> {lead}i k"), vec![i, k]),
            1 => (format!("{lead}i j, {lead}k j -> {lead}k i"), vec![k, i]),
            2 => (format!("{lead}i j, {lead}k j -> {lead}j"), vec![j]),
            _ => (format!("{lead}i j, {lead}k j -> {lead}i j k"), vec![i, j, k]),
        };
        let text = format!("tanh(einsum(\"{pattern}\", {}, {}))", a.name, b.name);
        Some(self.bind(&text, Elem::F32, a.rest, shape, 0.0))
    }
}

/// What two variables become when they are joined by broadcasting: `..` or not, and the other axes.
pub(super) fn joined(a: &Var, b: &Var) -> Option<(bool, Vec<Dim>)> {
    let shape = broadcast(&a.shape, &b.shape).ok()?;
    let fits = match (a.rest, b.rest) {
        (false, false) => true,
        (true, true) => a.rank() == b.rank(),
        // No axis may reach into what `..` stands for.
        (true, false) => b.rank() <= a.rank(),
        (false, true) => a.rank() <= b.rank(),
    };
    fits.then_some((a.rest || b.rest, shape))
}
