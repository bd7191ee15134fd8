//! Random well-typed programs of the language, as text: layers, loops, branches, rearranges, broadcasting, softmax and attention
//! in their many forms, states, several entry points, lengths that are computed, odd sizes, dimensions that are known only at run time.
//!
//! In: a seed. Out: a [`Generated`] program with an entry point `forward` and perhaps another one, and what their arguments look like.
//! The same seed gives the same text. Every program is right by construction: the generator keeps the type of each variable, with
//! dimensions as the compiler's own [`Dim`]s, and writes only what the rules of the language allow. Values stay of
//! moderate size, so that errors do not grow without bound.
//!
//! A test program takes it in by `#[path = "../common/gen_source/mod.rs"] mod gen_source;`.

#![allow(dead_code, reason = "each test program that takes this module in uses its own part of it")]

mod blocks;
pub(crate) mod inputs;
mod kept;
mod library;
mod masks;
mod moves;
mod steps;

use attnc::random::Random;
use attnc::shape::{Dim, Elem};

/// A program and how to call it.
#[derive(Clone, Debug)]
pub(crate) struct Generated {
    /// The text.
    pub(crate) source: String,
    /// Its entry points; the first is `forward`.
    pub(crate) entries: Vec<Entry>,
}

/// An entry point.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its arguments, in order.
    pub(crate) args: Vec<Arg>,
    /// The run-time dimensions of its arguments, in order of name.
    pub(crate) symbols: Vec<String>,
}

/// An argument.
#[derive(Clone, Debug)]
pub(crate) struct Arg {
    /// Its name.
    pub(crate) name: String,
    /// Its element type.
    pub(crate) elem: Elem,
    /// Does its type begin with `..`?
    pub(crate) rest: bool,
    /// The other axes; generics are replaced by their values.
    pub(crate) shape: Vec<Dim>,
    /// Which elements it may hold.
    pub(crate) values: Values,
}

/// Which elements an argument may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// Floats of moderate size.
    Floats,
    /// Whole numbers from 0, below this one.
    Below(i64),
    /// Truth values.
    Truths,
}

impl Arg {
    /// Its shape for a call: `lead` for `..`, and a value for each run-time dimension.
    pub(crate) fn shape_for(&self, lead: &[usize], symbol: &dyn Fn(&str) -> i64) -> Vec<usize> {
        let own = self.shape.iter().map(|dim| {
            let value = dim.eval(&|name| Some(symbol(name))).expect("a dimension of an argument has a value");
            usize::try_from(value).expect("a dimension is not negative")
        });
        if self.rest { lead.iter().copied().chain(own).collect() } else { own.collect() }
    }
}

/// The stream of a program's choices: near seeds give streams that share nothing.
pub(crate) fn stream(seed: u64) -> Random {
    Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1)
}

/// A float in -2..2, roughly bell-shaped.
fn float(random: &mut Random) -> f64 {
    (0..4).map(|_| random.unit()).sum::<f64>() - 2.0
}

/// A variable of the program.
#[derive(Clone, Debug)]
struct Var {
    name: String,
    elem: Elem,
    /// Does the shape begin with `..`?
    rest: bool,
    shape: Vec<Dim>,
    /// Binary logarithm of how large its elements may get, roughly.
    size: f64,
}

impl Var {
    fn rank(&self) -> usize {
        self.shape.len()
    }

    fn last(&self) -> Option<&Dim> {
        self.shape.last()
    }

    fn is_float(&self) -> bool {
        self.elem == Elem::F32
    }

    /// Its type as it is written.
    fn type_text(&self) -> String {
        type_text(self.elem, self.rest, &self.shape)
    }
}

fn type_text(elem: Elem, rest: bool, shape: &[Dim]) -> String {
    let lead = rest.then(|| "..".to_string());
    let dims: Vec<String> = lead.into_iter().chain(shape.iter().map(Dim::to_string)).collect();
    if dims.is_empty() { elem.to_string() } else { format!("{elem}[{}]", dims.join(", ")) }
}

/// A program while it is written.
struct Gen {
    random: Random,
    /// Generic dimensions of the model and their defaults.
    generics: Vec<(String, i64)>,
    /// Declarations before the model.
    items: Vec<String>,
    /// Fields of the model: parameters and layers, and states.
    fields: Vec<String>,
    kept: Vec<String>,
    /// The states, which are variables of every entry point.
    states: Vec<Var>,
    next: usize,

    // Of the entry point that is being written.
    args: Vec<Arg>,
    facts: Vec<String>,
    lines: Vec<String>,
    vars: Vec<Var>,
    /// The rows of `x`.
    rows: Dim,
    /// Names of lengths that are computed.
    lengths: Vec<String>,
}

/// The program of a seed.
pub(crate) fn generate(seed: u64) -> Generated {
    let mut random = stream(seed);
    let heads = random.pick(&[1, 2, 3, 4]);
    let width = heads * random.pick(&[1, 2, 3, 4, 5, 8]);
    let generics = vec![
        ("D".to_string(), width),
        ("H".to_string(), heads),
        ("F".to_string(), random.pick(&[1, 3, 4, 6, 7, 16, 17])),
        ("V".to_string(), random.pick(&[2, 5, 11])),
    ];
    let mut generator = Gen {
        random,
        generics,
        items: Vec::new(),
        fields: Vec::new(),
        kept: Vec::new(),
        states: Vec::new(),
        next: 0,
        args: Vec::new(),
        facts: Vec::new(),
        lines: Vec::new(),
        vars: Vec::new(),
        rows: Dim::symbol("S"),
        lengths: Vec::new(),
    };
    let length = generator.random.below(12) + 3;
    let mut entries = vec![generator.entry("forward", length)];
    // What one keeps, the other sees.
    if generator.random.chance(if generator.kept.is_empty() { 8 } else { 70 }) {
        let length = generator.random.below(7) + 1;
        entries.push(generator.entry("again", length));
    }
    generator.finish(entries)
}

impl Gen {
    /// An entry point of some steps, with its text.
    fn entry(&mut self, name: &'static str, steps: usize) -> (Entry, String) {
        self.lengths.clear();
        self.lines.clear();
        self.facts.clear();
        self.args.clear();
        self.vars.clone_from(&self.states);
        self.arguments();
        for _ in 0..steps {
            self.step();
        }
        self.written(name)
    }

    fn arguments(&mut self) {
        // The rows may be even, as the type says, or not few, as a fact says.
        self.rows = match self.random.below(10) {
            0 => Dim::symbol("N").mul(&Dim::from(2)),
            _ => Dim::symbol("S"),
        };
        if self.random.chance(8) {
            let least = self.random.pick(&[1, 2]);
            self.facts.push(format!("{} >= {least}", self.rows));
        }
        let rest = self.random.chance(25);
        let lead = match self.random.below(4) {
            _ if rest => Vec::new(),
            0 => vec![Dim::symbol("B")],
            1 => vec![Dim::from(2)],
            _ => Vec::new(),
        };
        let shape = |last: &[Dim]| lead.iter().cloned().chain(last.iter().cloned()).collect::<Vec<_>>();
        let (s, t, d) = (self.rows.clone(), Dim::symbol("T"), Dim::symbol("D"));
        self.argument("x", Elem::F32, rest, shape(&[s.clone(), d.clone()]), Values::Floats);
        if self.random.chance(50) {
            self.argument("memory", Elem::F32, rest, shape(&[t.clone(), d]), Values::Floats);
        }
        if self.random.chance(35) {
            self.argument("keep", Elem::Bool, rest, shape(std::slice::from_ref(&s)), Values::Truths);
        }
        if self.random.chance(30) {
            self.argument("bias", Elem::F32, rest, shape(&[s.clone(), s.clone()]), Values::Floats);
        }
        if self.random.chance(35) {
            let classes = self.value(&Dim::symbol("V")).unwrap_or(1);
            self.argument("tokens", Elem::I32, rest, shape(&[s]), Values::Below(classes));
        }
        if self.random.chance(40) {
            self.argument("flag", Elem::Bool, false, Vec::new(), Values::Truths);
        }
        if self.random.chance(15) {
            self.argument("y", Elem::BF16, false, vec![t, Dim::from(3)], Values::Floats);
        }
    }

    fn argument(&mut self, name: &str, elem: Elem, rest: bool, shape: Vec<Dim>, values: Values) {
        self.vars.push(Var { name: name.to_string(), elem, rest, shape: shape.clone(), size: 1.0 });
        self.args.push(Arg { name: name.to_string(), elem, rest, shape, values });
    }

    /// The value of a dimension that is known when the program is compiled.
    fn value(&self, dim: &Dim) -> Option<i64> {
        dim.eval(&|name| self.generics.iter().find(|(n, _)| n == name).map(|(_, v)| *v)).ok()
    }

    /// A new name.
    fn name(&mut self, stem: &str) -> String {
        self.next += 1;
        format!("{stem}{}", self.next)
    }

    /// Writes `let v = text` and keeps the variable.
    fn bind(&mut self, text: &str, elem: Elem, rest: bool, shape: Vec<Dim>, size: f64) -> Var {
        let name = self.name("v");
        self.lines.push(format!("let {name} = {text}"));
        self.keep(Var { name, elem, rest, shape, size })
    }

    /// The same for a float with the axes of another variable.
    fn bind_like(&mut self, text: &str, like: &Var, size: f64) -> Var {
        self.bind(text, like.elem, like.rest, like.shape.clone(), size)
    }

    fn keep(&mut self, var: Var) -> Var {
        if self.random.chance(6) && !self.is_local(&var) {
            self.lines.push(format!("tap {}", var.name));
        }
        self.vars.push(var.clone());
        var
    }

    /// Does a dimension name a length that is computed?
    fn names_length(&self, dim: &Dim) -> bool {
        dim.symbols().iter().any(|s| self.lengths.iter().any(|n| **n == **s))
    }

    /// Does its shape name such a length? Then it is no result, and no tap.
    fn is_local(&self, var: &Var) -> bool {
        var.shape.iter().any(|d| self.names_length(d))
    }

    /// The names of those of which this is not so.
    fn closed(&self) -> Vec<String> {
        self.vars.iter().filter(|v| !self.is_local(v)).map(|v| v.name.clone()).collect()
    }

    /// A parameter of the model.
    fn parameter(&mut self, elem: Elem, shape: Vec<Dim>) -> Var {
        let name = self.name("p");
        self.fields.push(format!("{name}: {}", type_text(elem, false, &shape)));
        Var { name, elem, rest: false, shape, size: 0.0 }
    }

    /// A variable that fits; later ones are likelier.
    fn choose(&mut self, fits: impl Fn(&Var) -> bool) -> Option<Var> {
        let all: Vec<&Var> = self.vars.iter().filter(|var| fits(var)).collect();
        let n = all.len();
        if n == 0 {
            return None;
        }
        let (a, b) = (self.random.below(n), self.random.below(n));
        all.get(a.max(b)).map(|var| (*var).clone())
    }

    /// A float variable that fits and is not large.
    fn choose_float(&mut self, fits: impl Fn(&Var) -> bool) -> Option<Var> {
        let var = self.choose(|var| var.is_float() && fits(var))?;
        if var.size <= 6.0 {
            return Some(var);
        }
        let text = format!("tanh({})", var.name);
        Some(self.bind_like(&text, &var, 0.0))
    }

    /// A size that is known when the program is compiled.
    fn known_dim(&mut self) -> Dim {
        match self.random.below(6) {
            0 => Dim::from(self.random.pick(&[1, 2, 3, 5, 8, 13])),
            1 => Dim::symbol("F"),
            2 => Dim::symbol("D").mul(&Dim::from(2)),
            3 => Dim::symbol("V"),
            _ => Dim::symbol("D"),
        }
    }

    /// How often a name is in the text.
    fn uses(&self, name: &str) -> usize {
        let text = self.lines.join("\n");
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let alone = |i: usize| {
            !is_word(text.get(..i).and_then(|before| before.chars().next_back()))
                && !is_word(text.get(i + name.len()..).and_then(|after| after.chars().next()))
        };
        text.match_indices(name).filter(|(i, _)| alone(*i)).count()
    }

    /// Sums what is as long as a computed length, so that it can be a result.
    fn sum_lengths(&mut self) {
        let open: Vec<Var> =
            self.vars.iter().filter(|v| self.is_local(v) && self.uses(&v.name) <= 1).cloned().collect();
        for var in open {
            let (gone, left): (Vec<usize>, Vec<usize>) =
                (0..var.rank()).partition(|i| self.names_length(&var.shape[*i]));
            let axes: Vec<String> = gone.iter().map(|i| format!("-{}", var.rank() - i)).collect();
            let x = if var.is_float() { var.name.clone() } else { format!("cast<f32>({})", var.name) };
            let text = format!("sum({x}, axis = [{}]) * 0.125", axes.join(", "));
            let shape = left.into_iter().map(|i| var.shape[i].clone()).collect();
            self.bind(&text, Elem::F32, var.rest, shape, var.size + 2.0);
        }
    }

    /// The entry point that has been written, with its results.
    fn written(&mut self, name: &'static str) -> (Entry, String) {
        self.sum_lengths();
        // Unused values become results, so that little of the program is dead.
        let is_argument = |var: &Var| self.args.iter().any(|arg| arg.name == var.name);
        let is_result = |var: &Var| !is_argument(var) && !self.is_local(var);
        let mut results: Vec<Var> =
            self.vars.iter().filter(|var| is_result(var) && self.uses(&var.name) <= 1).cloned().collect();
        let last = self.vars.iter().rfind(|var| is_result(var));
        results.extend(last.filter(|_| results.is_empty()).cloned());
        while results.len() > 3 {
            results.remove(self.random.below(results.len()));
        }
        if results.is_empty() {
            let x = self.vars.iter().find(|v| v.name == "x").cloned().expect("every entry point has it");
            results.push(self.bind_like("x * 2", &x, 2.0));
        }
        let types: Vec<String> = results.iter().map(Var::type_text).collect();
        let names: Vec<String> = results.iter().map(|var| var.name.clone()).collect();
        let (result, value) = match (types.as_slice(), names.as_slice()) {
            ([ty], [name]) => (ty.clone(), name.clone()),
            _ => (format!("({})", types.join(", ")), format!("({})", names.join(", "))),
        };
        let params: Vec<String> = self
            .args
            .iter()
            .map(|arg| format!("{}: {}", arg.name, type_text(arg.elem, arg.rest, &arg.shape)))
            .collect();
        let facts = if self.facts.is_empty() { String::new() } else { format!(" where {}", self.facts.join(", ")) };
        let mut text = format!("\n    pub fn {name}({}) -> {result}{facts} {{\n", params.join(", "));
        for line in &self.lines {
            text += &format!("        {line}\n");
        }
        text += &format!("        {value}\n    }}\n");
        let mut args = self.args.clone();
        let mut symbols = Vec::new();
        for arg in &mut args {
            for dim in &mut arg.shape {
                let known = |name: &str| self.generics.iter().find(|(n, _)| n == name).map(|(_, v)| Dim::from(*v));
                *dim = dim.substitute(&known).expect("no divisor is zero");
                symbols.extend(dim.symbols().iter().map(|s| s.to_string()));
            }
        }
        symbols.sort();
        symbols.dedup();
        (Entry { name, args, symbols }, text)
    }

    fn finish(self, entries: Vec<(Entry, String)>) -> Generated {
        let generics: Vec<String> = self.generics.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let mut source = String::from("use std.decode\nuse std.nn\nuse std.random\n\n");
        for item in &self.items {
            source += item;
            source += "\n";
        }
        source += &format!("model M<{}> where D % H == 0 {{\n", generics.join(", "));
        for field in self.fields.iter().chain(&self.kept) {
            source += &format!("    {field}\n");
        }
        source.extend(entries.iter().map(|(_, text)| text.as_str()));
        source += "}\n";
        Generated { source, entries: entries.into_iter().map(|(entry, _)| entry).collect() }
    }
}
