//! Does an assignment at an index change that part and nothing else, wherever the program runs; is it done in place where
//! nothing reads the old value any more, and only there; and is an index out of range an error of the call?

use crate::{compiled, everywhere, front};

use attnc::ir;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::tile::{self, Op, PlanOp, PlanVariant};
use everywhere::Everywhere;

fn tensor(shape: &[usize], f: impl Fn(usize) -> f32) -> Tensor {
    let count: usize = shape.iter().product();
    Tensor::from_f32(shape.to_vec(), &(0..count).map(f).collect::<Vec<f32>>()).unwrap()
}

fn counted(shape: &[usize]) -> Tensor {
    tensor(shape, |i| i as f32 - 2.0)
}

fn int(n: i64) -> Tensor {
    Tensor::from_ints(Elem::I32, Vec::new(), &[n]).unwrap()
}

fn program(body: &str) -> Everywhere {
    Everywhere::of(&format!("model M {{\n    pub fn f{body}\n}}\n"), &[])
}

fn values(given: &everywhere::Given) -> Vec<Vec<f64>> {
    given.as_ref().expect("a result").iter().map(Tensor::to_f64).collect()
}

/// The plan of `f`: for each block its launches, by the stem of the kernel's name.
fn launches(program: &Everywhere) -> Vec<Vec<String>> {
    let verified = ir::verify(&program.optimised).unwrap();
    let tiles = attnc::lowering::tile::lower(verified).unwrap().into_module();
    let plan = tiles.plans.iter().find(|p| p.name == "f" && p.variant == PlanVariant::Plain).expect("a plan");
    let block = |b: &tile::Block| {
        let insts = plan.body.block(*b).insts.iter();
        let name = |i| match &plan.body.inst(i).op {
            Op::Plan(PlanOp::Launch { kernel }) => kernel.split('.').next().map(str::to_string),
            _ => None,
        };
        insts.filter_map(|i| name(*i)).collect()
    };
    plan.body.layout.iter().map(block).collect()
}

const RNN: &str = "model M<I = 3, H = 5> {\n    w: f32[I, H]\n    u: f32[H, H]\n    pub fn f(x: f32[S, I]) -> f32[S, H] {\n        \
    var h = full(0.0, [H])\n        var out = full(0.0, [S, H])\n        for t in 0..S {\n            h = tanh(x[t] @ w + h @ u)\n            \
    out[t] = h\n        }\n        out\n    }\n}\n";

/// A loop that stacks its results writes one row in each step, and nothing else of the size of the whole.
#[test]
fn a_loop_stacks_its_results_in_place() {
    let (w, u) = (tensor(&[3, 5], |i| (i % 4) as f32 * 0.2 - 0.3), tensor(&[5, 5], |i| (i % 3) as f32 * 0.25 - 0.2));
    let program = Everywhere::of(RNN, &[("w", w.clone()), ("u", u.clone())]);
    let (w, u) = (w.to_f64(), u.to_f64());
    for steps in [0, 1, 2, 7] {
        let x = tensor(&[steps, 3], |i| (i % 5) as f32 * 0.3 - 0.5);
        let xs = x.to_f64();
        let mut h = [0.0; 5];
        let mut out = Vec::new();
        for t in 0..steps {
            let next = |j: usize| {
                let input: f64 = (0..3).map(|i| xs[t * 3 + i] * w[i * 5 + j]).sum();
                let state: f64 = (0..5).map(|i| h[i] * u[i * 5 + j]).sum();
                (input + state).tanh()
            };
            h = std::array::from_fn(next);
            out.extend(h);
        }
        let want = Tensor::from_floats(Elem::F32, vec![steps, 5], &out).unwrap();
        everywhere::near("the loop", &want, &program.call("f", &[x]).unwrap()[0]);
    }
    let plan = launches(&program);
    let body = plan.iter().find(|block| block.iter().any(|name| name == "matmul")).expect("a body");
    // The product of the state with what follows it, the row, the state for the next step; that of the inputs is before the loop.
    assert_eq!(body.len(), 3, "{body:?}");
    let verified = ir::verify(&program.optimised).unwrap();
    let tiles = attnc::lowering::tile::lower(verified).unwrap().into_module();
    let whole = tiles.plans[0].slots.iter().filter(|s| s.bytes.as_const().is_none()).count();
    assert_eq!(whole, 2, "slots of the size of the result: itself, and the products of the inputs");
}

/// What a step computes is stacked by the kernel that computes it: along any axis, of any type, and whole. Where the step reads what
/// is stacked, or something is assigned that is not the state itself, a copy is what it is.
#[test]
fn what_a_step_computes_is_stacked_by_its_kernel() {
    // A body, the launches of a step, and the rule of one number: state, input, what was stacked before, the new state and stacked number.
    type Rule = fn(f64, f64, f64) -> (f64, f64);
    let cases: [(&str, &[&str], Rule); 5] = [
        ("h = h * 0.5 + x[t]\n            out[.., t] = h", &["map"], |h, x, _| (h * 0.5 + x, h * 0.5 + x)),
        ("let g = x[t] - h\n            h = g * h\n            out[.., t] = h", &["map"], |h, x, _| {
            ((x - h) * h, (x - h) * h)
        }),
        ("h = h - x[t]\n            out[.., t] = h\n            out[.., t] = h", &["map", "update"], |h, x, _| {
            (h - x, h - x)
        }),
        ("h = h * 0.5 + x[t]\n            out[.., t] = -h", &["map"], |h, x, _| (h * 0.5 + x, -(h * 0.5 + x))),
        (
            "h = h * 0.5 + out[.., (t + S - 1) % S]\n            out[.., t] = h + x[t]",
            &["fill", "map", "map", "update"],
            |h, x, before| (h * 0.5 + before, h * 0.5 + before + x),
        ),
    ];
    for (body, step, rule) in cases {
        let program = program(&format!(
            "(x: f32[S, B]) -> (f32[B, S], f32[B]) {{\n        var h = full<f32>(1, [B])\n        var out = full<f32>(0, [B, S])\n        \
             for t in 0..S {{\n            {body}\n        }}\n        (out, h)\n    }}"
        ));
        for (steps, batch) in [(0, 2), (1, 1), (3, 4), (5, 0), (2, 19)] {
            let x = tensor(&[steps, batch], |i| (i % 5) as f32 * 0.25 - 0.5);
            let xs = x.to_f64();
            let (mut want, mut last) = (vec![0.0; batch * steps], vec![1.0; batch]);
            for b in 0..batch {
                for t in 0..steps {
                    let before = want[b * steps + t.saturating_sub(1)];
                    (last[b], want[b * steps + t]) = rule(last[b], xs[t * batch + b], before);
                }
            }
            let got = program.call("f", &[x]).unwrap();
            let of = |shape: Vec<usize>, values: &[f64]| Tensor::from_floats(Elem::F32, shape, values).unwrap();
            everywhere::near(body, &of(vec![batch, steps], &want), &got[0]);
            everywhere::near(body, &of(vec![batch], &last), &got[1]);
        }
        let plan = launches(&program);
        let launched =
            plan.iter().max_by_key(|block| block.iter().filter(|name| *name == "map" || *name == "update").count());
        assert_eq!(launched.expect("a body"), step, "{body}");
    }
}

/// One loop in another, a branch, and a way out, in place.
#[test]
fn updates_under_control_flow_are_in_place() {
    let program = program(
        "(x: f32[S, T], n: i32) -> f32[S, T] {\n        var y = x * 2\n        for i in 0..S {\n            for j in 0..T {\n                \
         if j == n { break }\n                if i == j { y[i, j] = -1 } else { y[i, j] = x[i, j] + y[i, 0] }\n            }\n        }\n        y\n    }",
    );
    for (rows, columns, n) in [(3, 4, 2), (4, 3, -1), (1, 1, 0), (0, 3, 1), (2, 1, 0)] {
        let x = counted(&[rows, columns]);
        let xs = x.to_f64();
        let mut want: Vec<f64> = xs.iter().map(|x| x * 2.0).collect();
        for i in 0..rows {
            for j in 0..columns {
                if j as i64 == n {
                    break;
                }
                let first = want[i * columns];
                want[i * columns + j] = if i == j { -1.0 } else { xs[i * columns + j] + first };
            }
        }
        assert_eq!(values(&program.call("f", &[x, int(n)])), [want], "{rows} {columns} {n}");
    }
    // One copy of the whole: into the result, after the loops.
    let copies =
        launches(&program).into_iter().flatten().filter(|name| ["carry", "copy", "result"].contains(&name.as_str()));
    assert_eq!(copies.count(), 1);
}

/// What is read later keeps its old value: the target itself, a view of it, the other variable of an exchange.
#[test]
fn old_values_stay_what_they_were() {
    let x = counted(&[3, 2]);
    for (body, want) in [
        // An argument of the caller.
        (
            "(x: f32[3, 2]) -> (f32[3, 2], f32[3, 2]) {\n        var y = x\n        y[0] = 7\n        (y, x)\n    }",
            [vec![7.0, 7.0, 0.0, 1.0, 2.0, 3.0], vec![-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]],
        ),
        // A copy.
        (
            "(x: f32[3, 2]) -> (f32[3, 2], f32[3, 2]) {\n        var y = x * 2\n        let z = y\n        y[1] = 7\n        (y, z)\n    }",
            [vec![-4.0, -2.0, 7.0, 7.0, 4.0, 6.0], vec![-4.0, -2.0, 0.0, 2.0, 4.0, 6.0]],
        ),
        // A view of the earlier value.
        (
            "(x: f32[3, 2]) -> (f32[3, 2], f32[3, 2]) {\n        var y = x * 2\n        let z = y.T\n        y[1] = 7\n        (y, z.T)\n    }",
            [vec![-4.0, -2.0, 7.0, 7.0, 4.0, 6.0], vec![-4.0, -2.0, 0.0, 2.0, 4.0, 6.0]],
        ),
        // Rows that are read and written at once.
        (
            "(x: f32[3, 2]) -> (f32[3, 2], f32[3, 2]) {\n        var y = x * 2\n        y[1..3] = y[0..2]\n        var z = x * 2\n        \
          z[0..2] = z[1..3]\n        (y, z)\n    }",
            [vec![-4.0, -2.0, -4.0, -2.0, 0.0, 2.0], vec![0.0, 2.0, 4.0, 6.0, 4.0, 6.0]],
        ),
        // Two variables that are exchanged, one of them updated.
        (
            "(x: f32[3, 2]) -> (f32[3, 2], f32[3, 2]) {\n        var y = x * 1\n        var z = x * 2\n        for i in 0..3 {\n            \
          y[i] = 10\n            (y, z) = (z, y)\n        }\n        (y, z)\n    }",
            [vec![-4.0, -2.0, 10.0, 10.0, 4.0, 6.0], vec![10.0, 10.0, 0.0, 1.0, 10.0, 10.0]],
        ),
        // The value before the last update.
        (
            "(x: f32[3, 2]) -> (f32[3, 2], f32[3, 2]) {\n        var y = x * 1\n        var z = x * 1\n        for i in 0..3 {\n            \
          z = y\n            y[i] = y[i] + 10\n        }\n        (y, z)\n    }",
            [vec![8.0, 9.0, 10.0, 11.0, 12.0, 13.0], vec![8.0, 9.0, 10.0, 11.0, 2.0, 3.0]],
        ),
        // Either way.
        (
            "(x: f32[3, 2]) -> (f32[3, 2], f32[3, 2]) {\n        var y = x * 1\n        let old = y\n        if any(x[0] < 0) { y[0] = 5 } \
          else { y[2] = 5 }\n        (y, old)\n    }",
            [vec![5.0, 5.0, 0.0, 1.0, 2.0, 3.0], vec![-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]],
        ),
    ] {
        assert_eq!(values(&program(body).call("f", std::slice::from_ref(&x))), want, "{body}");
    }
}

/// Windows along several axes, with ends that are computed and ends that are not; values that are broadcast.
#[test]
fn windows_are_read_and_written() {
    let program = program(
        "(x: f32[S, T], i: i32, j: i64, p: f32[P]) -> (f32[S, T], f32[2, P]) where S >= 2, P <= T {\n        var y = x\n        \
         y[i..i+2, j..j+P] = p\n        y[.., 0] = 0.5\n        y[1, ..] = y[0, ..]\n        (y, x[i..i+2, j..P+j] * 2)\n    }",
    );
    let x = counted(&[4, 5]);
    let xs = x.to_f64();
    for (i, j, p) in
        [(0, 0, 5), (2, 1, 3), (1, 5, 0), (2, 4, 1), (3, 0, 1), (-1, 0, 1), (0, 3, 3), (0, -1, 2), (0, 6, 0)]
    {
        let given =
            program.call("f", &[x.clone(), int(i), Tensor::from_ints(Elem::I64, vec![], &[j]).unwrap(), counted(&[p])]);
        let fits = (0..=2).contains(&i) && j >= 0 && j + p as i64 <= 5;
        if !fits {
            assert!(given.is_err(), "{i} {j} {p}");
            continue;
        }
        let (i, j) = (i as usize, j as usize);
        let mut y = xs.clone();
        let mut part = Vec::new();
        for a in 0..2 {
            for b in 0..p {
                y[(i + a) * 5 + j + b] = b as f64 - 2.0;
                part.push(xs[(i + a) * 5 + j + b] * 2.0);
            }
        }
        (0..4).for_each(|a| y[a * 5] = 0.5);
        (0..5).for_each(|b| y[5 + b] = y[b]);
        assert_eq!(values(&given), [y, part], "{i} {j} {p}");
    }
}

/// Every element type; one element; a tensor with leading axes of any number.
#[test]
fn all_types_and_ranks() {
    for (elem, value) in [("bf16", "1.5"), ("f16", "1.5"), ("i8", "3"), ("i32", "3"), ("i64", "3"), ("bool", "true")] {
        let program = program(&format!(
            "(x: {elem}[S, 3], i: i32) -> {elem}[S, 3] {{\n        var y = x\n        y[i, 1] = {value}\n        y[i, 2] = y[i, 0]\n        y\n    }}"
        ));
        let elem = Elem::from_name(elem).unwrap();
        let x =
            Tensor::from_ints(if elem.is_float() { Elem::I32 } else { elem }, vec![2, 3], &[0, 0, 1, 1, 0, 1]).unwrap();
        let x = if elem.is_float() { Tensor::from_floats(elem, vec![2, 3], &x.to_f64()).unwrap() } else { x };
        let new = if elem == Elem::Bool { 1.0 } else { value.parse().unwrap() };
        assert_eq!(values(&program.call("f", &[x, int(1)])), [[0.0, 0.0, 1.0, 1.0, new, 1.0]]);
    }
    let program = program(
        "(x: f32[.., S], i: i32) -> f32[.., S] {\n        var y = x * 1\n        y[.., i] = 0.25\n        y\n    }",
    );
    for (shape, at) in [(&[3][..], 1), (&[2, 3], 2), (&[2, 0, 3], 0), (&[2, 1, 2, 3], 4)] {
        let x = counted(shape);
        let got = program.call("f", &[x.clone(), int(1)]).unwrap();
        assert_eq!(got[0].shape(), shape);
        assert_eq!(got[0].to_f64().iter().filter(|x| **x == 0.25).count(), at, "{shape:?}");
        for (n, (a, b)) in x.to_f64().into_iter().zip(got[0].to_f64()).enumerate() {
            assert_eq!(b, if n % 3 == 1 { 0.25 } else { a }, "{shape:?} {n}");
        }
    }
    assert!(program.call("f", &[counted(&[3]), int(3)]).is_err());
    assert!(program.call("f", &[counted(&[2, 3]), int(-1)]).is_err());
}

/// What only a tap needs is read where the tap stands, and shows what was there before the update.
#[test]
fn taps_see_the_value_of_their_place() {
    let source = "model M {\n    pub fn f(x: f32[S]) -> f32[S] {\n        var y = x * 2\n        let before = exp(y)\n        y[0] = 1\n        \
                  let after = y * 3\n        tap before\n        tap after\n        y\n    }\n}\n";
    let module = front::module("m.attn", source, &Default::default()).unwrap();
    let module = compiled::optimised(module, &Default::default());
    let folder = tempfile::tempdir().unwrap();
    let model = compiled::load(&module, &Default::default(), folder.path());
    let mut session = model.session().unwrap();
    let x = tensor(&[2], |i| i as f32);
    let (results, taps) = session.call_with_taps(model.entry("f").unwrap(), &[x], &["*"]).unwrap();
    assert_eq!(results[0].to_f64(), [1.0, 2.0]);
    let tap = |name: &str| taps.iter().find(|(path, _)| path == name).expect("a tap").1.to_f64();
    assert_eq!(tap("after"), [3.0, 6.0]);
    assert!((tap("before")[0] - 1.0).abs() < 1e-6 && (tap("before")[1] - 2.0f64.exp()).abs() < 1e-5);
}

/// A value that is another view of the slot it is updated in: transposed in each step.
#[test]
fn other_views_of_the_slot_are_read_before_it_is_written() {
    let program = program(
        "(a: f32[3, 3]) -> f32[3, 3] {\n        var x = a * 1.0\n        for i in 0..3 {\n            x = x.T\n            x[i, 0] = 100.0\n        }\n        x\n    }",
    );
    let a = counted(&[3, 3]);
    let mut want: Vec<Vec<f64>> = a.to_f64().chunks(3).map(<[f64]>::to_vec).collect();
    for i in 0..3 {
        want = (0..3).map(|r| (0..3).map(|c| want[c][r]).collect()).collect();
        want[i][0] = 100.0;
    }
    assert_eq!(values(&program.call("f", &[a])), [want.concat()]);
}

/// The right side and the index are computed before the tensor is read: what they assign stays.
#[test]
fn what_the_right_side_assigns_stays() {
    let program = program(
        "(a: f32[3]) -> f32[3] {\n        var x = a * 1.0\n        x[0] = {\n            x[1] = 5.0\n            x[2] + 1.0\n        }\n        x\n    }",
    );
    assert_eq!(values(&program.call("f", &[counted(&[3])])), [vec![1.0, 5.0, 0.0]]);
}

/// A window that is longer than its axis is an error of the call, wherever it would begin, also in a text; a loop that does
/// nothing asks for nothing.
#[test]
fn windows_longer_than_their_axis() {
    let update = "module \"m\"\n\nfunc @f(%0 \"a\": f32[S], %1 \"b\": f32[T], %2 \"i\": i32[]) -> (f32[S]) {\n^bb0:\n  \
                  %3 = update %0, %1, %2, axes=[0] : f32[S]\n  return %3\n}\n";
    let extract = "module \"m\"\n\nfunc @f(%0 \"a\": f32[S], %1 \"b\": f32[T], %2 \"i\": i32[]) -> (f32[T]) {\n^bb0:\n  \
                   %3 = extract %0, %2, axes=[0] : f32[T]\n  return %3\n}\n";
    for text in [update, extract] {
        let module = ir::text::parse(text, Default::default()).unwrap_or_else(|_| panic!("{text}")).module;
        let program = Everywhere::of_module(module, &[]);
        for (s, t, i, fits) in [
            (3, 2, 1, true),
            (3, 3, 0, true),
            (3, 2, 2, false),
            (3, 4, 0, false),
            (3, 5, 0, false),
            (0, 1, 0, false),
            (3, 2, -1, false),
        ] {
            let given = program.call("f", &[counted(&[s]), counted(&[t]), int(i)]);
            assert_eq!(given.is_ok(), fits, "{s} {t} {i}: {text}");
        }
    }
    let program = program(
        "(a: f32[S]) -> f32[S] {\n        var x = a\n        for t in 0..S { x[t..t+1] = x[t..t+1] * 2.0 }\n        x\n    }",
    );
    assert_eq!(values(&program.call("f", &[counted(&[0])])), [Vec::<f64>::new()]);
    assert_eq!(values(&program.call("f", &[counted(&[3])])), [vec![-4.0, -2.0, 0.0]]);
}

/// Which assignments copy a whole tensor is told at their places, with the reason; so is what goes from element to element.
#[test]
fn what_copies_is_told() {
    let told = |body: &str| {
        let program = program(body);
        let (_, remarks) = attnc::lowering::tile::lower_with_remarks(ir::verify(&program.optimised).unwrap()).unwrap();
        remarks
    };
    let none: [&str; 0] = [];
    assert_eq!(told("(x: f32[S, 3]) -> f32[S, 3] where S >= 1 {\n var y = tanh(x)\n y[0] = 1.0\n y\n }"), none);
    assert_eq!(
        told("(x: f32[S, 3]) -> f32[S, 3] {\n var y = full<f32>(0, [S, 3])\n for t in 0..S { y[t] = x[t] }\n y\n }"),
        none
    );
    assert_eq!(
        told(
            "(x: f32[S, 3]) -> (f32[S, 3], f32[S, 3]) where S >= 1 {\n var y = tanh(x)\n let old = y\n y[0] = 1.0\n (old, y)\n }"
        ),
        ["m.attn:5:2: the assignment copies the whole f32[S, 3]: the old value is needed afterwards"]
    );
    assert_eq!(
        told("(x: f32[S, 3]) -> f32[S, 3] where S >= 1 {\n var y = x\n y[0] = 1.0\n y\n }"),
        ["m.attn:4:2: the assignment copies the whole f32[S, 3]: arguments and parameters are not written"]
    );
    assert_eq!(
        told(
            "(x: f32[S], y: f32[S, 3]) -> (f32[S], f32[S, 3], f32[S]) {\n (cumsum(x),\n cumsum(y, axis = 0),\n sort(x))\n }"
        ),
        [
            "m.attn:3:3: on a CPU, S elements are added one by one, without vectors: there is no other axis",
            "m.attn:5:2: on a CPU, S elements are sorted one by one, without vectors",
        ]
    );
}
