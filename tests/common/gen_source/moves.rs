//! Steps that move elements or count them: windows, strides, padding, elements taken along an axis or scattered, integers in all their
//! operations, branches with several values.

use attnc::shape::{Dim, Elem};

use super::{Gen, Var};

impl Gen {
    /// One of these steps.
    pub(super) fn movement(&mut self) -> Option<Var> {
        match self.random.below(9) {
            0 | 1 => self.windows(),
            2 | 3 => self.strided(),
            4 => self.padded(),
            5 => self.taken(),
            6 => self.scattered(),
            7 => self.exchanged(),
            _ => self.over_axes(),
        }
    }

    /// A variable and one of its axes that has at least one element, and is not long.
    fn axis_known(&mut self) -> Option<(Var, usize, i64)> {
        let known: Vec<(String, usize, i64)> = self
            .vars
            .iter()
            .filter(|v| v.is_float() && v.rank() <= 3)
            .flat_map(|v| v.shape.iter().enumerate().map(|(i, d)| (v.name.clone(), i, self.value(d))))
            .filter_map(|(name, i, n)| n.filter(|n| (1..=40).contains(n)).map(|n| (name, i, n)))
            .collect();
        let (name, at, n) = if known.is_empty() { return None } else { self.random.pick(&known) };
        let x = self.choose_float(|v| v.name == name)?;
        Some((x, at, n))
    }

    /// Windows of an axis, reduced, or multiplied by weights: a convolution.
    fn windows(&mut self) -> Option<Var> {
        let (x, at, n) = self.axis_known()?;
        let size = self.random.below(n.min(5) as usize) as i64 + 1;
        let stride = self.random.below(3) as i64 + 1;
        let axis = x.rank() - at;
        let count = x.shape[at].sub(&Dim::from(size)).floor_div(&Dim::from(stride))?.add(&Dim::one());
        let text = format!("windows({}, {size}, stride = {stride}, axis = -{axis})", x.name);
        let mut shape = x.shape.clone();
        shape[at] = count;
        match self.random.below(3) {
            0 if x.rank() == 2 && !x.rest && at == 1 && self.value(&x.shape[0]).is_some() => {
                let w = self.parameter(Elem::F32, vec![Dim::from(3), x.shape[0].clone(), Dim::from(size)]);
                let text = format!("tanh(einsum(\"c t k, o c k -> o t\", {text}, {}))", w.name);
                let shape = vec![Dim::from(3), shape[1].clone()];
                Some(self.bind(&text, Elem::F32, false, shape, 0.0))
            }
            1 => Some(self.bind(&format!("sum({text}, axis = -{axis})"), Elem::F32, x.rest, shape, x.size + 3.0)),
            _ => {
                shape.insert(at + 1, Dim::from(size));
                Some(self.bind(&text, Elem::F32, x.rest, shape, x.size))
            }
        }
    }

    /// Every k-th element of an axis, or of a part of it.
    fn strided(&mut self) -> Option<Var> {
        let k = self.random.below(4) as i64 + 1;
        if self.random.chance(50) {
            let x = self.choose_float(|v| v.rank() >= 1)?;
            let at = self.random.below(x.rank());
            let mut shape = x.shape.clone();
            shape[at] = x.shape[at].ceil_div(&Dim::from(k))?;
            let text = format!("every({}, {k}, axis = -{})", x.name, x.rank() - at);
            return Some(self.bind(&text, Elem::F32, x.rest, shape, x.size));
        }
        let (x, at, n) = self.axis_known()?;
        let start = self.random.below(n as usize) as i64;
        let mut shape = x.shape.clone();
        shape[at] = Dim::from(n - start).ceil_div(&Dim::from(k))?;
        let mut entries = vec!["..".to_string(), format!("{start}..{n} step {k}")];
        entries.extend(x.shape.iter().skip(at + 1).map(|d| format!("0..{d}")));
        Some(self.bind(&format!("{}[{}]", x.name, entries.join(", ")), Elem::F32, x.rest, shape, x.size))
    }

    fn padded(&mut self) -> Option<Var> {
        let x = self.choose_float(|v| v.rank() >= 1)?;
        let at = self.random.below(x.rank());
        let (low, high) = (self.random.below(3) as i64, self.random.below(3) as i64);
        let value = self.random.pick(&["", ", value = 0.5", ", value = -1"]);
        let mut shape = x.shape.clone();
        shape[at] = x.shape[at].add(&Dim::from(low + high));
        let text = format!("pad({}, axis = -{}, low = {low}, high = {high}{value})", x.name, x.rank() - at);
        Some(self.bind(&text, Elem::F32, x.rest, shape, x.size.max(1.0)))
    }

    /// Elements at indices of the same line.
    fn taken(&mut self) -> Option<Var> {
        let x = self.choose_float(|v| v.rank() >= 1)?;
        let at = self.random.below(x.rank());
        let axis = x.rank() - at;
        let name = &x.name;
        let down = self.random.chance(50);
        let text = match self.random.below(3) {
            0 => format!("take_along({name}, argsort({name}, axis = -{axis}, descending = {down}), axis = -{axis})"),
            1 => format!("take_along({name} * 0.5, argsort(-{name}, axis = -{axis}), axis = -{axis})"),
            _ => format!("cast<f32>(argsort({name}, axis = -{axis}, descending = {down})) * 0.0625"),
        };
        Some(self.bind_like(&text, &x, x.size.max(2.0)))
    }

    /// Numbers written, added or counted at tokens; and what else integers can do.
    fn scattered(&mut self) -> Option<Var> {
        let (rows, v) = (self.rows.clone(), Dim::symbol("V"));
        let tokens = self.vars.iter().any(|v| v.name == "tokens" && v.rank() == 1 && !v.rest);
        let text = match self.random.below(6) {
            0 | 1 if tokens => {
                let text = match self.random.below(3) {
                    0 => "cast<f32>(scatter_add(full<i32>(0, [V]), tokens, 1)) * 0.25",
                    1 => "scatter(full<f32>(0.5, [V]), tokens, cast<f32>(tokens) * 0.125)",
                    _ => "where(scatter(full(false, [V]), tokens, true), 0.5, -1.0)",
                };
                return Some(self.bind(text, Elem::F32, false, vec![v], 3.0));
            }
            2 => {
                let x = self.choose_float(|v| v.rank() >= 1)?;
                let axis = self.random.below(x.rank()) + 1;
                let text = format!("cast<f32>(cumsum(cast<i32>({} > 0), axis = -{axis})) * 0.0625", x.name);
                return Some(self.bind_like(&text, &x, 2.0));
            }
            3 => format!("cast<f32>((iota({rows}) - 3) * 5 % 7 / 2)"),
            4 => format!("cast<f32>(pow(iota({rows}) % 4, 2) - abs(4 - iota({rows})))"),
            _ => format!("cast<f32>(minimum(maximum(iota<i64>({rows}) - 2, 0), 4) + sign(iota<i64>({rows}) - 1))"),
        };
        Some(self.bind(&format!("{text} * 0.125"), Elem::F32, false, vec![rows], 2.0))
    }

    /// Two values of one branch.
    fn exchanged(&mut self) -> Option<Var> {
        let x = self.choose_float(|_| true)?;
        let y = self.choose_float(|v| v.rest == x.rest && v.shape == x.shape)?;
        self.choose(|v| v.name == "flag")?;
        let (a, b) = (self.name("v"), self.name("v"));
        let (p, q) = (&x.name, &y.name);
        let way = self.random.pick(&["* 0.5", "+ 0.25"]);
        self.lines.push(format!("var ({a}, {b}) = ({p}, {q})"));
        self.lines.push(match self.random.below(2) {
            0 => format!("if flag {{ ({a}, {b}) = ({b}, {a}) }} else {{ {a} = {b} {way} }}"),
            _ => format!("for _ in 0..3 {{ ({a}, {b}) = ({b} {way}, {a}) }}"),
        });
        let size = x.size.max(y.size) + 1.0;
        self.vars.push(Var { name: b, size, ..x.clone() });
        Some(self.keep(Var { name: a, size, ..x }))
    }

    /// Reductions over two axes, and the least element.
    fn over_axes(&mut self) -> Option<Var> {
        let x = self.choose_float(|v| v.rank() >= 2)?;
        let (kind, size) = self.random.pick(&[("sum", 5.0), ("mean", 0.0), ("max", 0.0)]);
        let keep = self.random.chance(50);
        let mut shape = x.shape.clone();
        let dropped = shape.split_off(x.rank() - 2);
        if keep {
            shape.extend([Dim::one(), Dim::one()]);
        }
        let all = dropped.iter().all(|d| self.value(d).is_some_and(|n| n > 0));
        let text = format!("{kind}({}, axis = [-2, -1]{})", x.name, if keep { ", keep = true" } else { "" });
        // Over an axis that may be empty, the result may be infinite, or NaN.
        let text = if kind == "sum" || all { text } else { format!("where(isfinite({text}), {text}, 0.5)") };
        Some(self.bind(&text, Elem::F32, x.rest, shape, x.size + size))
    }
}
