//! Recurrent networks: do cells give what their formulas say, whatever is hoisted, computed together and written in place; and how
//! many launches has a step?

use crate::{compiled, everywhere};

use attnc::ir;
use attnc::lowering::tile::lower;
use attnc::random::Random;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::tile::{self, Op, PlanOp, PlanVariant};
use everywhere::Everywhere;

fn tensor(shape: &[usize], seed: u64) -> Tensor {
    let mut random = Random::new(seed);
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|_| random.below(2001) as f32 / 2000.0 - 0.5).collect();
    Tensor::from_f32(shape.to_vec(), &values).unwrap()
}

/// The launches of a step: of the block of `f`'s plan in which there is a product of the state, by the stem of the kernel's name.
fn step(program: &Everywhere) -> Vec<String> {
    let verified = ir::verify(&program.optimised).unwrap();
    let tiles = lower(verified).unwrap().into_module();
    let plan = tiles.plans.iter().find(|p| p.name == "f" && p.variant == PlanVariant::Plain).expect("a plan");
    let launches = |b: &tile::Block| -> Vec<String> {
        let insts = plan.body.block(*b).insts.iter();
        let name = |i| match &plan.body.inst(i).op {
            Op::Plan(PlanOp::Launch { kernel }) => kernel.split('.').next().map(str::to_string),
            _ => None,
        };
        insts.filter_map(|i| name(*i)).collect()
    };
    let blocks = plan.body.layout.iter().map(launches);
    blocks.rev().find(|list| list.iter().any(|name| name == "matmul")).expect("a loop with a product")
}

/// A cell over rows of `width`, with its weights.
struct Cell {
    params: Vec<(String, Tensor)>,
    gates: usize,
    input: usize,
    hidden: usize,
}

impl Cell {
    fn new(gates: usize, input: usize, hidden: usize) -> Cell {
        let params = vec![
            ("cell.weight_ih".to_string(), tensor(&[gates * hidden, input], 1)),
            ("cell.weight_hh".to_string(), tensor(&[gates * hidden, hidden], 2)),
            ("cell.bias_ih".to_string(), tensor(&[gates * hidden], 3)),
            ("cell.bias_hh".to_string(), tensor(&[gates * hidden], 4)),
        ];
        Cell { params, gates, input, hidden }
    }

    fn program(&self, source: &str) -> Everywhere {
        let params: Vec<(&str, Tensor)> = self.params.iter().map(|(name, x)| (name.as_str(), x.clone())).collect();
        Everywhere::of(source, &params)
    }

    /// `W x + b` of input and of state, for one row.
    fn sums(&self, x: &[f64], h: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let values: Vec<Vec<f64>> = self.params.iter().map(|(_, t)| t.to_f64()).collect();
        let sum = |weight: &[f64], bias: &[f64], row: &[f64]| -> Vec<f64> {
            let dot = |i: usize| row.iter().zip(&weight[i * row.len()..]).map(|(x, w)| x * w).sum::<f64>();
            (0..self.gates * self.hidden).map(|i| bias[i] + dot(i)).collect()
        };
        (sum(&values[0], &values[2], x), sum(&values[1], &values[3], h))
    }

    /// The states of all steps of one row, `cell` giving the next state and what else is kept.
    fn states(
        &self,
        xs: &[Vec<f64>],
        cell: impl Fn(&[f64], &[f64], &[f64], &[f64]) -> (Vec<f64>, Vec<f64>),
    ) -> Vec<Vec<f64>> {
        let (mut h, mut kept) = (vec![0.0; self.hidden], vec![0.0; self.hidden]);
        let mut out = Vec::new();
        for x in xs {
            let (input, state) = self.sums(x, &h);
            (h, kept) = cell(&input, &state, &h, &kept);
            out.push(h.clone());
        }
        out
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The formula of torch.nn.LSTMCell: gates i, f, g, o.
fn lstm(input: &[f64], state: &[f64], _: &[f64], c: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let n = c.len();
    let gate = |k: usize, j: usize| input[k * n + j] + state[k * n + j];
    let kept: Vec<f64> = (0..n).map(|j| sigmoid(gate(1, j)) * c[j] + sigmoid(gate(0, j)) * gate(2, j).tanh()).collect();
    ((0..n).map(|j| sigmoid(gate(3, j)) * kept[j].tanh()).collect(), kept)
}

/// The formula of torch.nn.GRUCell: gates r, z, n.
fn gru(input: &[f64], state: &[f64], h: &[f64], _: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let n = h.len();
    let next = |j: usize| {
        let (r, z) = (sigmoid(input[j] + state[j]), sigmoid(input[n + j] + state[n + j]));
        (1.0 - z) * (input[2 * n + j] + r * state[2 * n + j]).tanh() + z * h[j]
    };
    ((0..n).map(next).collect(), vec![0.0; n])
}

type Formula = fn(&[f64], &[f64], &[f64], &[f64]) -> (Vec<f64>, Vec<f64>);

/// Runs `f(x: f32[S, B, I]) -> f32[S, B, H]` at several sizes beside a formula.
fn check(cell: &Cell, source: &str, formula: Formula) -> Everywhere {
    let program = cell.program(source);
    for (steps, batch) in [(0, 2), (1, 1), (2, 3), (9, 1), (7, 0), (5, 17)] {
        let x = tensor(&[steps, batch, cell.input], 7);
        let values = x.to_f64();
        let mut want = vec![0.0; steps * batch * cell.hidden];
        for b in 0..batch {
            let row = |t: usize| values[(t * batch + b) * cell.input..][..cell.input].to_vec();
            let xs: Vec<Vec<f64>> = (0..steps).map(row).collect();
            for (t, h) in cell.states(&xs, formula).iter().enumerate() {
                want[(t * batch + b) * cell.hidden..][..cell.hidden].copy_from_slice(h);
            }
        }
        let want = Tensor::from_floats(Elem::F32, vec![steps, batch, cell.hidden], &want).unwrap();
        everywhere::near(source, &want, &program.call("f", &[x]).unwrap()[0]);
    }
    program
}

/// A program of so many inputs and hidden numbers.
type Source = fn(usize, usize) -> String;

fn lstm_program(input: usize, hidden: usize) -> String {
    format!(
        "use std.nn\nmodel M {{\n    cell: LSTMCell<{input}, {hidden}>\n    pub fn f(x: f32[S, B, {input}]) -> f32[S, B, {hidden}] {{\n        \
         var (h, c) = (full<f32>(0, [B, {hidden}]), full<f32>(0, [B, {hidden}]))\n        var out = full<f32>(0, [S, B, {hidden}])\n        \
         for t in 0..S {{\n            let (next, kept) = cell(x[t], h, c)\n            h = next\n            c = kept\n            out[t] = h\n        \
         }}\n        out\n    }}\n}}\n"
    )
}

fn gru_program(input: usize, hidden: usize) -> String {
    format!(
        "use std.nn\nmodel M {{\n    cell: GRUCell<{input}, {hidden}>\n    pub fn f(x: f32[S, B, {input}]) -> f32[S, B, {hidden}] {{\n        \
         var h = full<f32>(0, [B, {hidden}])\n        var out = full<f32>(0, [S, B, {hidden}])\n        \
         for t in 0..S {{\n            h = cell(x[t], h)\n            out[t] = h\n        }}\n        out\n    }}\n}}\n"
    )
}

/// The product of the state, and the gates with the row of the result: neither the input's product nor a copy of anything.
#[test]
fn a_step_of_an_lstm_is_two_kernels() {
    for (input, hidden) in [(3, 5), (7, 33), (1, 1)] {
        let program = check(&Cell::new(4, input, hidden), &lstm_program(input, hidden), lstm);
        assert_eq!(step(&program), ["matmul", "map"], "{input} {hidden}");
    }
}

#[test]
fn a_step_of_a_gru_is_two_kernels() {
    for (input, hidden) in [(3, 5), (7, 33), (1, 1)] {
        let program = check(&Cell::new(3, input, hidden), &gru_program(input, hidden), gru);
        assert_eq!(step(&program), ["matmul", "map"], "{input} {hidden}");
    }
}

/// The bits of a row do not depend on the other rows, whether panels are multiplied side by side (of one row, or two) or one after
/// another; and they are what the formula gives.
#[test]
fn a_few_rows_by_several_panels() {
    let cells: [(usize, Source, Formula); 2] = [(4, lstm_program, lstm), (3, gru_program, gru)];
    for (gates, source, formula) in cells {
        let cell = Cell::new(gates, 6, 256);
        let program = cell.program(&source(6, 256));
        let (steps, most) = (3, 5);
        let x = tensor(&[steps, most, 6], 7).to_f64();
        let row = |b: usize| (0..steps).map(|t| x[(t * most + b) * 6..][..6].to_vec()).collect::<Vec<_>>();
        let folder = tempfile::tempdir().unwrap();
        let params = cell.params.iter().cloned().collect();
        for level in compiled::levels() {
            let tiles = compiled::scheduled(&program.optimised, level);
            let products = |k: &tile::Kernel| {
                let all = |b: &tile::Block| {
                    k.body.block(*b).insts.iter().filter(|i| matches!(k.body.inst(**i).op, Op::Dot { .. })).count()
                };
                k.body.layout.iter().map(all).max().unwrap_or(0)
            };
            // The panels of the state's product that go together: as many as leave eight grid points.
            let expected = match level.width() {
                tile::Width::V128 => 1,
                tile::Width::V256 => 4,
                tile::Width::V512 => gates,
            };
            assert_eq!(tiles.kernels.iter().map(products).max(), Some(expected), "{level:?}");
            let model = compiled::load_at(level, &program.optimised, &params, folder.path());
            let mut session = model.session().unwrap();
            let mut first: Vec<Vec<u32>> = Vec::new();
            for batch in 1..=most {
                let values: Vec<f64> = (0..steps).flat_map(|t| &x[t * most * 6..][..batch * 6]).copied().collect();
                let x = Tensor::from_floats(Elem::F32, vec![steps, batch, 6], &values).unwrap();
                let out = session.call(model.entry("f").unwrap(), &[x]).unwrap().remove(0);
                let values = out.to_f64();
                for b in 0..batch {
                    let got: Vec<f64> =
                        (0..steps).flat_map(|t| &values[(t * batch + b) * 256..][..256]).copied().collect();
                    let bits: Vec<u32> = got.iter().map(|x| (*x as f32).to_bits()).collect();
                    if b < first.len() {
                        assert!(bits == first[b], "{level:?}: row {b} of {batch} has other bits");
                        continue;
                    }
                    let want = cell.states(&row(b), formula).concat();
                    let off = want.iter().zip(&got).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
                    assert!(off < 1e-5, "{level:?}: row {b} of {batch} is off by {off}");
                    first.push(bits);
                }
            }
        }
    }
}

/// Weights that a loop reads with their panels abreast, and other products too: they are packed once, in the way of whichever comes
/// first, and all of them read them so.
#[test]
fn panels_that_lie_abreast_are_read_by_all() {
    let steps = "for t in 0..S {\n            let g = h @ w\n            h = tanh((g[.., 0..256] + g[.., 256..512] + g[.., 512..768] + \
                 g[.., 768..1024]) * 0.02 + x[t])\n        }";
    let zeros = "var h = full<f32>(0, [1, 256])";
    let source = format!(
        "model M {{\n    w: f32[256, 1024]\n    pub fn alone(x: f32[S, 256]) -> f32[1, 256] {{\n        {zeros}\n        {steps}\n        h\n    }}\n    \
         pub fn after(x: f32[S, 256]) -> (f32[1, 256], f32[S, 1024]) {{\n        {zeros}\n        {steps}\n        (h, x @ w)\n    }}\n    \
         pub fn before(x: f32[S, 256]) -> (f32[1, 256], f32[S, 1024]) {{\n        let all = x @ w\n        \
         var h = all[0..1, 0..256] * 0\n        {steps}\n        (h, all)\n    }}\n}}\n"
    );
    let (w, x) = (tensor(&[256, 1024], 1), tensor(&[5, 256], 2));
    let program = Everywhere::of(&source, &[("w", w.clone())]);
    let (weights, rows) = (w.to_f64(), x.to_f64());
    let product = |row: &[f64]| -> Vec<f64> {
        (0..1024).map(|j| row.iter().enumerate().map(|(i, x)| x * weights[i * 1024 + j]).sum()).collect()
    };
    let mut h = vec![0.0; 256];
    for t in 0..5 {
        let g = product(&h);
        h = (0..256).map(|j| (0.02 * (0..4).map(|n| g[n * 256 + j]).sum::<f64>() + rows[t * 256 + j]).tanh()).collect();
    }
    let all = rows.chunks(256).flat_map(product).collect::<Vec<f64>>();
    let folder = tempfile::tempdir().unwrap();
    let params = [("w".to_string(), w)].into_iter().collect();
    for level in compiled::levels() {
        let tiles = compiled::scheduled(&program.optimised, level);
        let packed =
            |k: &tile::Kernel| k.params.iter().any(|p| k.body.ty(p.value).buffer().is_some_and(|b| b.shape.len() == 4));
        let abreast = tiles.kernels.iter().filter(|k| packed(k)).count();
        assert_eq!(abreast > 1, level.width() != tile::Width::V128, "{level:?}: {abreast}");
        let model = compiled::load_at(level, &program.optimised, &params, folder.path());
        for name in ["alone", "after", "before"] {
            let got = model.session().unwrap().call(model.entry(name).unwrap(), std::slice::from_ref(&x)).unwrap();
            for (got, want) in got.iter().zip([&h, &all]) {
                let off = want.iter().zip(got.to_f64()).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
                assert!(got.to_f64().len() == want.len() && off < 1e-4, "{level:?}, {name}: off by {off}");
            }
        }
    }
}

/// One sequence alone, as vectors: what follows a product of one row is in its kernel.
#[test]
fn vectors_are_rows_of_one() {
    let cell = Cell::new(4, 3, 5);
    let batched = lstm_program(3, 5);
    let source =
        batched.replace("[B, 5]", "[5]").replace("x: f32[S, B, 3]", "x: f32[S, 3]").replace("[S, B, 5]", "[S, 5]");
    let program = cell.program(&source);
    let want = cell.program(&batched);
    for steps in [0, 1, 6] {
        let values = tensor(&[steps, 3], 9);
        let x = Tensor::from_floats(Elem::F32, vec![steps, 1, 3], &values.to_f64()).unwrap();
        let (got, want) = (program.call("f", &[values]).unwrap(), want.call("f", &[x]).unwrap());
        assert_eq!(got[0].to_f64(), want[0].to_f64(), "{steps}");
    }
    assert_eq!(step(&program), ["matmul", "map"]);
}

/// Layers of an array, each of which goes through all steps: its weights are chosen once, before the loop over time.
#[test]
fn layers_of_an_array_one_after_another() {
    let source = "use std.nn\nmodel M {\n    cells: [GRUCell<4, 4>; 2]\n    pub fn f(x: f32[S, B, 4]) -> f32[S, B, 4] {\n        var states = x\n        \
                  for cell in cells {\n            var h = full<f32>(0, [B, 4])\n            var out = full<f32>(0, [S, B, 4])\n            \
                  for t in 0..S {\n                h = cell(states[t], h)\n                out[t] = h\n            }\n            states = out\n        }\n        states\n    }\n}\n";
    let cell = Cell::new(3, 4, 4);
    let single = cell.program(&gru_program(4, 4));
    let of_both = cell
        .params
        .iter()
        .flat_map(|(name, x)| [0, 1].map(|i| (name.replace("cell.", &format!("cells.{i}.")), x.clone())));
    let of_both: Vec<(String, Tensor)> = of_both.collect();
    let params: Vec<(&str, Tensor)> = of_both.iter().map(|(name, x)| (name.as_str(), x.clone())).collect();
    let program = Everywhere::of(source, &params);
    for (steps, batch) in [(0, 1), (1, 2), (5, 3)] {
        let x = tensor(&[steps, batch, 4], 11);
        let once = single.call("f", std::slice::from_ref(&x)).unwrap().remove(0);
        let twice = single.call("f", &[once]).unwrap();
        everywhere::near("two layers", &twice[0], &program.call("f", &[x]).unwrap()[0]);
    }
    assert_eq!(step(&program), ["matmul", "map"]);
}

/// A random loop over time: each of three states becomes a random expression of all of them and of the step's input, some of
/// them in terms of what was just computed. Whatever shares memory, the result is that of the program as written.
fn random_program(random: &mut Random) -> String {
    let mut lines = String::new();
    let mut names: Vec<String> = ["a", "b", "c", "x[t]"].map(String::from).to_vec();
    for i in 0..2 + random.below(5) {
        let one = names[random.below(names.len())].clone();
        let other = names[random.below(names.len())].clone();
        let line = match random.below(8) {
            0 => format!("tanh({one} @ w)"),
            1 => format!("sigmoid({one} @ w + {other})"),
            2 => format!("tanh({one} + {other})"),
            3 => format!("{one} * sigmoid({other})"),
            4 => format!("tanh({one} - 0.5 * {other} + v)"),
            5 => format!("tanh(x[S - 1 - t] @ w + {other})"),
            6 => format!("concat({one}[0.., 2..4], {other}[0.., 0..2], axis = -1)"),
            _ => format!("minimum(maximum({one}, {other}), 1)"),
        };
        lines += &format!("            let y{i} = {line}\n");
        names.push(format!("y{i}"));
    }
    for state in ["a", "b", "c"] {
        let new = &names[random.below(names.len())];
        lines += &format!("            let new_{state} = {new}\n");
    }
    let order = random.pick(&[["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]]);
    for state in order {
        lines += &format!("            {state} = new_{state}\n");
    }
    if random.chance(50) {
        lines += &format!("            out[t] = {}\n", random.pick(&["a", "b", "new_c"]));
    }
    if random.chance(25) {
        lines += "            if t == n { break }\n";
    }
    format!(
        "model M {{\n    w: f32[4, 4]\n    v: f32[4]\n    pub fn f(x: f32[S, B, 4], n: i32) -> (f32[B, 4], f32[B, 4], f32[B, 4], f32[S, B, 4]) {{\n        \
         var (a, b) = (full<f32>(0.25, [B, 4]), full<f32>(-0.5, [B, 4]))\n        var c = a\n        var out = full<f32>(0, [S, B, 4])\n        \
         for t in 0..S {{\n{lines}        }}\n        (a, b, c, out)\n    }}\n}}\n"
    )
}

#[test]
fn random_loops_over_time_give_the_same_wherever_they_run() {
    let mut random = Random::new(31);
    let params = [("w", tensor(&[4, 4], 21)), ("v", tensor(&[4], 22))];
    for _ in 0..24 {
        let source = random_program(&mut random);
        println!("{source}");
        let program = Everywhere::of(&source, &params);
        let calls = [(0, 2), (1, 1), (5, 3)].map(|(steps, batch)| {
            let n = Tensor::from_ints(Elem::I32, Vec::new(), &[3]).unwrap();
            ("f", vec![tensor(&[steps, batch, 4], 23), n])
        });
        assert!(program.calls(&calls).iter().all(Result::is_ok));
    }
}
