//! Does a length that is computed (`let dim N = .. where N <= C`) mean the same everywhere: in slices, shapes, loops, functions and
//! products; is it checked where it has its value; and does attention over the part of a cache that is filled go through that
//! part alone?

use crate::{compiled, everywhere, front};

use attnc::diagnostics::render_all;
use attnc::ir::{self, Op};
use attnc::shape::{Dim, Elem};
use attnc::tensor::Tensor;
use attnc::tile::{self, Cpu};
use everywhere::{Everywhere, Given};

fn tensor(shape: &[usize], f: impl Fn(usize) -> f32) -> Tensor {
    let count: usize = shape.iter().product();
    Tensor::from_f32(shape.to_vec(), &(0..count).map(f).collect::<Vec<f32>>()).unwrap()
}

/// Some numbers of moderate size without a pattern.
fn noise(shape: &[usize], seed: usize) -> Tensor {
    tensor(shape, |i| ((i * 37 + seed * 101) % 53) as f32 / 53.0 - 0.5)
}

fn int(elem: Elem, n: i64) -> Tensor {
    Tensor::from_ints(elem, Vec::new(), &[n]).unwrap()
}

fn i64s(n: i64) -> Tensor {
    int(Elem::I64, n)
}

fn program(body: &str) -> Everywhere {
    Everywhere::of(&format!("model M<C = 8, D = 3> {{\n{body}\n}}\n"), &[])
}

fn values(given: &Given) -> Vec<f64> {
    given.as_ref().expect("a result")[0].to_f64()
}

const CACHED: &str = "layer Attention<D, H, C> where D % H == 0 {\n    wqkv: f32[D, 3*D]\n    state k: f32[H, C, D/H]\n    state v: f32[H, C, D/H]\n\n    \
    fn forward(x: f32[S, D], past: i64) -> f32[S, D] {\n        let dim N = past + S where N <= C\n        \
    let (q, new_k, new_v) = unbind(rearrange(x @ wqkv, \"s (n h d) -> n h s d\", n = 3, h = H))\n        \
    k[.., past..past+S, ..] = new_k\n        v[.., past..past+S, ..] = new_v\n        \
    let scores = q @ k[.., 0..N, ..].T / sqrt(D / H)\n        let weights = softmax(where(causal(S, N), scores, -inf))\n        \
    rearrange(weights @ v[.., 0..N, ..], \"h s d -> s (h d)\")\n    }\n}\n\nmodel M<D = 6, H = 2, C = 8, L = 2> {\n    \
    h: [Attention<D, H, C>; L]\n    state n: i64\n\n    pub fn forward(x: f32[S, D]) -> f32[S, D] {\n        var y = x\n        \
    for block in h { y = y + block(y, n) }\n        n = n + S\n        y\n    }\n\n    pub fn step(x: f32[D]) -> f32[D] {\n        \
    forward(rearrange(x, \"d -> 1 d\"))[0]\n    }\n\n    pub fn forget() -> i64 {\n        reset n\n        n\n    }\n}\n";

/// `x + attention(x)` for two layers, as the formula says, in f64.
fn attention(x: &Tensor, weights: &[Tensor]) -> Tensor {
    let (s, d, heads) = (x.shape()[0], 6, 2);
    let mut y = x.to_f64();
    for w in weights.iter().map(Tensor::to_f64) {
        let qkv = |row: usize, column: usize| (0..d).map(|i| y[row * d + i] * w[i * 3 * d + column]).sum::<f64>();
        let mut out = y.clone();
        for row in 0..s {
            for h in 0..heads {
                let at = |part: usize, e: usize| part * d + h * (d / heads) + e;
                let score = |t: usize| {
                    let dot: f64 = (0..d / heads).map(|e| qkv(row, at(0, e)) * qkv(t, at(1, e))).sum();
                    (dot / ((d / heads) as f64).sqrt()).exp()
                };
                let sum: f64 = (0..=row).map(score).sum();
                for e in 0..d / heads {
                    out[row * d + h * (d / heads) + e] +=
                        (0..=row).map(|t| score(t) * qkv(t, at(2, e))).sum::<f64>() / sum;
                }
            }
        }
        y = out;
    }
    Tensor::from_floats(Elem::F32, vec![s, d], &y).unwrap()
}

fn rows(x: &Tensor, from: usize, to: usize) -> Tensor {
    let width: usize = x.shape()[1..].iter().product();
    Tensor::from_floats(x.elem(), vec![to - from, width], &x.to_f64()[from * width..to * width]).unwrap()
}

/// Running all tokens at once is running some, and then the rest from the cache, one by one too; and the formula.
#[test]
fn attention_goes_through_what_is_filled() {
    let weights = [noise(&[6, 18], 1), noise(&[6, 18], 2)];
    let program = Everywhere::of(CACHED, &[("h.0.wqkv", weights[0].clone()), ("h.1.wqkv", weights[1].clone())]);
    for n in [1, 5, 8] {
        let x = noise(&[n, 6], 9);
        let whole = attention(&x, &weights);
        for k in 0..=n {
            let mut calls = vec![("forward", vec![rows(&x, 0, k)])];
            let row = |t: usize| Tensor::from_floats(Elem::F32, vec![6], &rows(&x, t, t + 1).to_f64()).unwrap();
            match k % 2 {
                0 => calls.extend((k..n).map(|t| ("step", vec![row(t)]))),
                _ => calls.push(("forward", vec![rows(&x, k, n)])),
            }
            calls.extend([("forget", Vec::new()), ("forward", vec![x.clone()])]);
            let given = program.calls(&calls);
            let got: Vec<f64> = given[..given.len() - 2].iter().flat_map(values).collect();
            everywhere::near("the formula", &whole, &Tensor::from_floats(Elem::F32, vec![n, 6], &got).unwrap());
            everywhere::near("after `reset`", &whole, &given.last().unwrap().as_ref().unwrap()[0]);
        }
    }
    // Nothing of the capacity is gone through: keys and values are as long as what is filled.
    for f in &program.optimised.functions {
        let attentions = f.insts().filter(|(_, _, d)| matches!(d.op, Op::Attention { .. }));
        let keys_and_values = attentions.flat_map(|(_, _, d)| &d.operands[1..3]);
        let lengths: Vec<&Dim> = keys_and_values.map(|v| &f.tensor(*v).expect("a tensor").shape[1]).collect();
        assert!(f.name == "forget" || lengths.len() == 2, "attention is not found in {}", f.name);
        assert!(lengths.iter().all(|length| **length == Dim::symbol("N")), "{lengths:?}");
    }
    // One more than there is room for.
    let x = noise(&[8, 6], 9);
    let given = program.calls(&[("forward", vec![x.clone()]), ("forward", vec![rows(&x, 0, 1)])]);
    assert!(given[0].is_ok() && given[1].as_ref().is_err_and(|e| e.contains("N must be")), "{given:?}");
}

/// Slices, what is computed of them and lies in memory of its own, constants, counters, products of two such lengths.
#[test]
fn a_length_is_a_dimension_like_others() {
    let x = tensor(&[8, 3], |i| i as f32 - 7.0);
    let xs = x.to_f64();
    let column = |n: usize, j: usize| (0..n).map(move |i| i * 3 + j);
    let p = program(
        "    pub fn f(x: f32[C, D], n: i64) -> (f32[D], f32[C], i64, f32, f32[D], f32) {\n        let dim N = n where N <= C\n        \
         let part = x[0..N]\n        let twice = part * 2 + cast<f32>(rearrange(iota(N), \"n -> n 1\"))\n        \
         let square = part @ part.T\n        let ones = full<f32>(1.0, [N, N])\n        \
         let padded = concat(part[.., 0], full<f32>(-1.0, [C - N]))\n        var total = 0.0\n        \
         for i in 0..N { total = total + part[i, 1] }\n        \
         (sum(twice, axis = 0), padded, N * 2 + 1, sum(sum(square * ones)), sum(softmax(part), axis = 0), total)\n    }",
    );
    for n in [0usize, 1, 3, 8] {
        let given = p.call("f", &[x.clone(), i64s(n as i64)]);
        let given = given.unwrap();
        let sums: Vec<f64> = (0..3).map(|j| column(n, j).map(|i| xs[i] * 2.0 + (i / 3) as f64).sum()).collect();
        assert_eq!(given[0].to_f64(), sums, "{n}");
        let padded: Vec<f64> = (0..8).map(|i| if i < n { xs[i * 3] } else { -1.0 }).collect();
        assert_eq!(given[1].to_f64(), padded);
        assert_eq!(given[2].to_f64(), [(n * 2 + 1) as f64]);
        let square: f64 = (0..3).map(|j| column(n, j).map(|i| xs[i]).sum::<f64>().powi(2)).sum();
        assert_eq!(given[3].to_f64(), [square]);
        let e = |i: usize| (xs[i] - xs[i / 3 * 3 + 2]).exp();
        let total = |i: usize| (0..3).map(|j| e(i / 3 * 3 + j)).sum::<f64>();
        let soft: Vec<f64> = (0..3).map(|j| column(n, j).map(|i| e(i) / total(i)).sum()).collect();
        everywhere::near("softmax", &Tensor::from_floats(Elem::F32, vec![3], &soft).unwrap(), &given[4]);
        assert_eq!(given[5].to_f64(), [column(n, 1).map(|i| xs[i]).sum::<f64>()]);
    }
    for n in [-1, 9, i64::MAX, i64::MIN] {
        assert!(p.call("f", &[x.clone(), i64s(n)]).is_err_and(|e| e.contains('N')), "{n}");
    }
}

/// In a loop a length has another value in each iteration; in a branch it is known there alone; a variable that is as long is
/// carried by a loop.
#[test]
fn lengths_under_control_flow() {
    let p = program(
        "    pub fn f(x: f32[C], n: i32) -> (f32[C], f32) {\n        var out = full(0.0, [C])\n        for i in 0..C {\n            \
         let dim N = i + 1 where N <= C\n            out[i] = sum(x[0..N]) / 2\n            if i == n { break }\n        }\n        \
         var last = 0.0\n        if n > 2 {\n            let dim M = n where M <= C, M >= 3\n            var y = x[0..M]\n            \
         for t in 0..3 { y = y * 2 + x[0..M] }\n            last = sum(y) + y[M - 3]\n        } else {\n            \
         let dim P = n + 1 where P <= C\n            last = max(x[0..P])\n        }\n        (out, last)\n    }",
    );
    let x = tensor(&[8], |i| (i * i % 7) as f32 - 2.0);
    let xs = x.to_f64();
    for n in [0usize, 1, 2, 3, 7, 8] {
        let given = p.call("f", &[x.clone(), int(Elem::I32, n as i64)]).unwrap();
        let out: Vec<f64> = (0..8).map(|i| if i <= n { xs[..=i].iter().sum::<f64>() / 2.0 } else { 0.0 }).collect();
        assert_eq!(given[0].to_f64(), out);
        let last = match n {
            0..=2 => xs[..=n].iter().copied().fold(f64::NEG_INFINITY, f64::max),
            _ => 15.0 * (xs[..n].iter().sum::<f64>() + xs[n - 3]),
        };
        assert_eq!(given[1].to_f64(), [last]);
    }
    assert!(p.call("f", &[x.clone(), int(Elem::I32, 9)]).is_err());
    assert!(p.call("f", &[x, int(Elem::I32, -2)]).is_err());
}

/// Functions take lengths as they take dimensions, and have their own: each call another.
#[test]
fn lengths_in_functions() {
    let source = "fn total(x: f32[T, D], w: f32[S]) -> f32 where S <= T { sum(sum(x)) + sum(w) }\n\
                  fn first(x: f32[C, D], n: i64) -> f32 {\n    let dim N = n where N <= C\n    sum(sum(x[0..N]))\n}\n\
                  model M<C = 8, D = 3> {\n    pub fn f(x: f32[C, D], n: i64, w: f32[S]) -> (f32, f32) {\n        \
                  let dim N = n where N <= C\n        (total(x[0..N], w), first(x, n - 1) * first(x, 2))\n    }\n}\n";
    let p = Everywhere::of(source, &[]);
    let x = tensor(&[8, 3], |i| (i % 5) as f32);
    let xs = x.to_f64();
    let sum = |n: usize| xs[..n * 3].iter().sum::<f64>();
    for (n, s) in [(1usize, 1usize), (4, 2), (8, 8), (3, 0)] {
        let given = p.call("f", &[x.clone(), i64s(n as i64), tensor(&[s], |_| 1.0)]).unwrap();
        assert_eq!(given[0].to_f64(), [sum(n) + s as f64]);
        assert_eq!(given[1].to_f64(), [sum(n - 1) * sum(2)]);
    }
    // A clause of the callee is checked where the caller's length has its value; so is the callee's own length.
    assert!(p.call("f", &[x.clone(), i64s(3), tensor(&[4], |_| 1.0)]).is_err_and(|e| e.contains("S <= N")));
    assert!(p.call("f", &[x, i64s(0), tensor(&[0], |_| 1.0)]).is_err());
}

/// What a slice needs beyond the clauses is checked where the length has its value, and so is each clause.
#[test]
fn what_must_hold_of_a_length_is_checked() {
    let p = program(
        "    pub fn f(x: f32[C], w: f32[S], n: i64) -> f32 {\n        let dim N = n where N <= C, N % 2 == 0, N != 4\n        \
         let halves = rearrange(x[0..N], \"(a b) -> a b\", b = 2)\n        \
         sum(x[N - 2..N]) + sum(max(halves, axis = 1)) + sum(x[0..floor_div(N, 2)]) + sum(w) * sum(x[S..N])\n    }\n\n    \
         pub fn below(x: f32[C], n: i64) -> f32 {\n        let dim N = n where N < C\n        sum(x[0..N])\n    }",
    );
    let x = tensor(&[8], |i| i as f32 + 1.0);
    let call = |n: i64, s: usize| p.call("f", &[x.clone(), tensor(&[s], |_| 1.0), i64s(n)]);
    for (n, s, want) in [(2, 0, 3.0 + 2.0 + 1.0), (6, 2, 11.0 + 12.0 + 6.0 + 36.0), (8, 8, 15.0 + 20.0 + 10.0)] {
        assert_eq!(values(&call(n, s)), [want], "{n} {s}");
    }
    // Odd, excluded, too short for the slice, shorter than what is left out, too long, negative.
    for (n, s, told) in [(5, 0, "N"), (4, 0, "N"), (0, 0, "N"), (2, 3, "S"), (10, 0, "N"), (-2, 0, "N")] {
        assert!(call(n, s).is_err_and(|e| e.contains(told)), "{n} {s}: {:?}", call(n, s));
    }
    // Less than C, which is 8, is 7 at most.
    for (n, want) in [(0, Some(0.0)), (7, Some(28.0)), (8, None), (9, None), (-1, None)] {
        let given = p.call("below", &[x.clone(), i64s(n)]);
        assert_eq!(given.map(|all| all[0].to_f64()[0]).ok(), want, "{n}");
    }
}

/// What names a length is computed without an overflow, or the call is refused: `8*T*T` is beyond 64 bits here, and so is
/// `N*T*T`, in a clause, in a number, and in a shape without elements.
#[test]
fn nothing_that_names_a_length_wraps() {
    let p = program(
        "    pub fn clause(x: f32[S], y: f32[T, 0], n: i64) -> f32 {\n        \
         let dim N = n where N <= 8, N * T * T + N + T <= S\n        sum(x[0..N + T])\n    }\n\n    \
         pub fn number(x: f32[S], y: f32[T, 0], n: i64) -> i64 {\n        let dim N = n where N <= 8\n        \
         S - N * T * T\n    }\n\n    \
         pub fn divided(x: f32[S], y: f32[T, 0], n: i64) -> i64 {\n        let dim N = n where N <= 8, T >= 1\n        \
         floor_div(S, N * T * T + 1) + (S - N * T * T) % 7 + max(S - N * T * T, N)\n    }\n\n    \
         pub fn empty(x: f32[S], y: f32[T, 0], n: i64) -> f32 {\n        let dim N = n where N <= 8\n        \
         sum(sum(full<f32>(1.0, [N * T * T, 0]))) + sum(x)\n    }",
    );
    let x = tensor(&[100], |i| i as f32);
    let y = |t: usize| Tensor::from_f32(vec![t, 0], &[]).unwrap();
    let names = ["clause", "number", "divided", "empty"];
    for (n, t) in [(1_i64, 5_i64), (3, 4), (0, 6), (8, 1)] {
        let square = 100 - n * t * t;
        let k = (n + t) as f64;
        let divided = 100 / (n * t * t + 1) + square.rem_euclid(7) + square.max(n);
        for (name, want) in names.iter().zip([k * (k - 1.0) / 2.0, square as f64, divided as f64, 4950.0]) {
            assert_eq!(values(&p.call(name, &[x.clone(), y(t as usize), i64s(n)])), [want], "{name} {n} {t}");
        }
    }
    for (n, t) in [(1, 3_037_000_500), (2, 1 << 32), (8, 1 << 31)] {
        for name in names {
            assert!(p.call(name, &[x.clone(), y(t), i64s(n)]).is_err(), "{name} {n} {t}");
        }
    }
}

/// There is room for a product of two numbers that are negative: 132 = -12 * -11 elements.
#[test]
fn room_is_made_whatever_the_signs() {
    let p = program(
        "    pub fn f(x: f32[S], y: f32[T], n: i64) -> f32 {\n        let dim N = n where N <= 16\n        \
         sum(cumsum(full<f32>(1.0, [(S - N) * (T - N)]), axis = 0))\n    }",
    );
    for (s, t, n, count) in [(1, 2, 13, 132.0), (9, 6, 2, 28.0), (4, 4, 4, 0.0), (0, 0, 16, 256.0)] {
        let given = p.call("f", &[noise(&[s], 1), noise(&[t], 2), i64s(n)]);
        assert_eq!(values(&given), [count * (count + 1.0) / 2.0], "{s} {t} {n}");
    }
    assert!(p.call("f", &[noise(&[1], 1), noise(&[9], 2), i64s(5)]).is_err(), "-4 * 4 elements");
}

/// What is reported says what is allowed.
#[test]
fn messages_of_checks_say_what_is_allowed() {
    let p = program(
        "    pub fn f(n: i64) -> i64 {\n        let dim N = n where N <= C, N < 5, N % 3 == 2\n        N * 2\n    }",
    );
    let folder = tempfile::tempdir().unwrap();
    let model = compiled::load(&p.optimised, &Default::default(), folder.path());
    let told = |n: i64| {
        let given = model.session().unwrap().call(model.entry("f").unwrap(), &[i64s(n)]);
        given.expect_err("refused").to_string()
    };
    assert_eq!(values(&p.call("f", &[i64s(2)])), [4.0]);
    assert!(told(5).contains("must satisfy N < 5: N may be 4 at most"), "{}", told(5));
    assert!(told(1).contains("must satisfy N % 3 == 2") && !told(1).contains("remainder is"), "{}", told(1));
}

/// What the type checker says where a length is wrong.
#[test]
fn errors_name_the_lengths() {
    for (body, told) in [
        ("let dim N = n where N <= C\n        x[0..N]", "expected f32[C], found f32[N]"),
        ("let dim N = n where N <= C\n        x + x[0..N]", "N"),
        ("let dim N = n\n        x", "E0415"),
        ("let dim N = n where N == C\n        x", "an equality does not bound N"),
        ("let dim N = n where N >= 2\n        x", "E0415"),
        ("let dim N = n where N <= 9223372036854775807\n        x", "N can be too large"),
        ("let dim N = x where N <= C\n        x", "a length must be an integer, found f32[C]"),
        ("let dim C = n where C <= 4\n        x", "`C` is declared twice"),
        ("let dim N = n where N <= C\n        let dim N = n where N <= C\n        x", "`N` is declared twice"),
        ("let dim N = n where N <= K\n        x", "there is no dimension `K`"),
        ("let dim N = n where N <= C, N < 0\n        x", "where"),
        ("let y = {\n            let dim N = n where N <= C\n            x[0..N]\n        }\n        x", "E0418"),
        (
            "let y = {\n            let dim N = n where N <= C\n            (x[0..N], x[0..4])\n        }\n        x",
            "E0418",
        ),
        (
            "let y = {\n            let dim N = n where N <= C\n            (x, (x[0..4], N))\n        }\n        x",
            "E0418",
        ),
        (
            "var y = x[0..2]\n        {\n            let dim N = n where N <= C\n            y = x[0..N]\n        }\n        x",
            "N",
        ),
        ("let dim N = n where N <= C\n        let part = x[0..N]\n        tap part\n        x", "N"),
    ] {
        let source =
            format!("model M<C = 8> {{\n    pub fn f(x: f32[C], n: i64) -> f32[C] {{\n        {body}\n    }}\n}}\n");
        let error = front::module("m.attn", &source, &Default::default()).expect_err(body);
        assert!(error.contains(told), "{body}\n{error}");
    }
    // `dim` is a name like others elsewhere.
    let source =
        "model M {\n    pub fn f(dim: f32[3]) -> f32 {\n        let dim = dim * 2\n        sum(dim)\n    }\n}\n";
    assert!(front::module("m.attn", source, &Default::default()).is_ok());
}

/// The graph IR reads its text back, and refuses dimensions without values.
#[test]
fn texts_are_read_back_and_checked() {
    let text = |body: &str| {
        format!(
            "module \"m\"\nfunc @f(%0 \"x\": f32[C], %1 \"n\": i64[]) -> (f32[]) {{\n^bb0:\n{body}  return %9\n}}\n"
        )
    };
    let good = "  length %1, name=\"N\", most=C\n  %2 = slice %0, axis=0, start=0, stop=N : f32[N]\n  \
                %9 = reduce_sum %2, axes=[0] : f32[]\n";
    let read = |text: &str| {
        let parsed = ir::text::parse(text, Default::default());
        parsed.unwrap_or_else(|d| panic!("{}", render_all(&d, &Default::default(), false))).module
    };
    let module = read(&text(good));
    assert!(ir::verify(&module).is_ok(), "{}", ir::verify(&module).unwrap_err());
    assert_eq!(ir::text::print(&read(&ir::text::print(&module))), ir::text::print(&module));
    let line = "  length %1, name=\"N\", most=C\n";
    for (changed, told) in [
        (good.replacen(line, "", 1), "has the dimension N"),
        (format!("{}{line}", good.replacen(line, "", 1)), "the dimension N is not set here"),
        (format!("{line}{good}"), "the dimension N is set twice"),
        (good.replace("\"N\"", "\"C\""), "the dimension C is set twice"),
        (good.replace("most=C", "most=N"), "N is unknown on entry"),
        (good.replace("length %1", "length %0"), "an integer scalar"),
        (good.replace(line, &format!("{line}  length %1, name=\"M\", most=N\n")), "N is unknown on entry"),
    ] {
        let refused = ir::verify(&read(&text(&changed))).expect_err(told).to_string();
        assert!(refused.contains(told), "{changed}\n{refused}");
    }
}

/// So does the tile IR, which also asks for the proof that the value is in its bounds.
#[test]
fn tile_texts_are_checked() {
    let p = program(
        "    pub fn f(x: f32[C], n: i64) -> f32 {\n        let dim N = n where N <= C\n        sum(exp(x[0..N]) + 1)\n    }",
    );
    let tiles = compiled::scheduled(&p.optimised, Cpu::PORTABLE);
    let text = tile::text::print(&tiles);
    let read = |text: &str| tile::text::parse(text, Default::default()).unwrap_or_else(|_| panic!("{text}")).module;
    assert_eq!(tile::text::print(&read(&text)), text);
    let line = text.lines().find(|l| l.contains("length %")).expect("a length").to_string();
    let checked = line.split_whitespace().nth(1).expect("an operand").trim_end_matches(',').to_string();
    let check =
        text.lines().find(|l| l.trim_start().starts_with(&format!("{checked} = check_index"))).expect("a check");
    let unchecked = check.split("check_index ").nth(1).and_then(|l| l.split(',').next()).expect("an index");
    let early = text
        .replace(&format!("{line}\n"), "")
        .replace(check, &format!("{}\n{check}", line.replace(&checked, unchecked)));
    for (changed, told) in [
        (early, "N may be outside of 0 to"),
        (text.replace(&line, &line.replace("most=8", "most=7")), "N may be outside of 0 to"),
        (text.replace(&line, ""), "the dimension N is not one of the symbols"),
        (text.replace(&line, &format!("{line}\n{line}")), "has a value already"),
    ] {
        let refused = tile::verify::verify(&read(&changed)).expect_err(told).to_string();
        assert!(refused.contains(told), "{refused}");
    }
    // Room is made for the most that there can be.
    let plan = &tiles.plans[0];
    assert!(plan.slots.iter().all(|s| s.bytes.as_const().is_some_and(|bytes| bytes <= 64)), "{text}");
    assert_eq!(plan.lengths().map(|(_, most)| most.clone()).collect::<Vec<Dim>>(), [Dim::from(8)]);
}

/// Extents that are products of what is left of two axes, rounded: no product of theirs is known to be 0 or more by itself.
#[test]
fn rounded_lengths_in_extents() {
    let p = program(
        "    pub fn f(x: f32[S], y: f32[T], n: i64) -> f32 {\n        let dim N = n where N <= S, N <= T\n        \
         sum(full<f32>(1.0, [floor_div(S - N, 2) * floor_div(T - N, 2)]))\n    }",
    );
    for (s, t, n) in [(7usize, 9usize, 2i64), (5, 5, 5), (1, 40, 0), (60, 41, 1)] {
        let given = p.call("f", &[noise(&[s], 1), noise(&[t], 2), i64s(n)]).unwrap();
        let half = |all: usize| (all as i64 - n) / 2;
        assert_eq!(given[0].to_f64(), [(half(s) * half(t)) as f64], "{s} {t} {n}");
    }
}

/// Clauses that name the length and other dimensions are computed where it has its value, not before: launches look for the
/// weights that come next, along the instructions after them and into branches.
#[test]
fn clauses_of_lengths_are_computed_after_them() {
    let m = program(
        "    state rows: f32[C, D]
    state past: i32

    pub fn add(x: f32[S, D]) -> f32[D] where S <= C {
        let dim N = past + S where S <= N, N <= C
        rows[past..past+S] = x
        past = past + S
        sum(rows[0..N], axis = 0)
    }

    pub fn either(x: f32[S, D], n: i32) -> f32[D] where S <= C {
        var y = sum(x, axis = 0)
        if n > 2 {
            let dim P = n where P + 1 <= C, P <= 2*S
            y = y + sum(rows[0..P], axis = 0)
        } else {
            let dim Q = n + 1 where Q + 2 <= C, Q <= S
            y = y - sum(rows[0..Q], axis = 0)
        }
        y
    }",
    );
    let row = |from: usize, n: usize| tensor(&[n, 3], |i| (from * 3 + i) as f32);
    let given = m.calls(&[
        ("add", vec![row(1, 1)]),
        ("add", vec![row(2, 3)]),
        ("either", vec![row(0, 2), int(Elem::I32, 3)]),
        ("either", vec![row(0, 2), int(Elem::I32, 1)]),
        ("either", vec![row(0, 2), int(Elem::I32, 7)]),
        ("add", vec![row(0, 5)]),
    ]);
    assert_eq!(values(&given[0]), [3.0, 4.0, 5.0]);
    assert_eq!(values(&given[1]), [30.0, 34.0, 38.0]);
    assert_eq!(values(&given[2]), [3.0 + 18.0, 5.0 + 21.0, 7.0 + 24.0]);
    assert_eq!(values(&given[3]), [3.0 - 9.0, 5.0 - 11.0, 7.0 - 13.0]);
    assert!(given[4].is_err() && given[5].is_err(), "{given:?}");
}

/// Extents that are rounded, in a slot that was made for more: `floor_div(S, 2)` rows of as many columns after `S` of `S`.
#[test]
fn rounded_extents_share_slots() {
    let p = program(
        "    pub fn f(x: f32[S, 4]) -> f32[floor_div(S, 2), floor_div(S, 2)] {\n        let a = sum(exp(x @ x.T * 0.1), axis = 1)\n        \
         let w = windows(a, 2, stride = 2) * 0.01\n        let m = exp(w @ w.T)\n        m - sum(m, axis = 1, keep = true)\n    }",
    );
    for s in [2usize, 3, 7, 40] {
        assert_eq!(p.call("f", &[noise(&[s, 4], 1)]).unwrap()[0].shape(), [s / 2, s / 2]);
    }
}

/// A slot whose size is not known to be 0 or more by its terms: the square of `floor_div(S - 1, 2)` has negative ones.
#[test]
fn squares_of_rounded_extents_have_slots() {
    let p = program(
        "    pub fn f(x: f32[S, 4]) -> f32[floor_div(S - 1, 2), floor_div(S - 1, 2)] {\n        let a = sum(x, axis = 1)\n        \
         let w = windows(a, 3, stride = 2)\n        let m = w @ w.T\n        m - sum(m, axis = 1, keep = true)\n    }",
    );
    for s in [3usize, 4, 8, 41] {
        assert_eq!(p.call("f", &[noise(&[s, 4], 1)]).unwrap()[0].shape(), [(s - 1) / 2, (s - 1) / 2]);
    }
}

/// A part of a tensor that is not in order, as long as a length that is at most a rounded extent: its last element is before the end of
/// the slot.
#[test]
fn lengths_of_every_other_row() {
    let p = program(
        "    pub fn f(x: f32[.., S, D], n: i32) -> f32[.., D] {\n        let (a, b, c) = split(tanh(concat(x, x * 2, x * 3, axis = -1)), axis = -1, parts = 3)\n        \
         let rows = every(b, 2, axis = -2)\n        let dim N = n where N <= ceil_div(S, 2)\n        sum(rows[.., 0..N, 0..D] * 0.5, axis = -2)\n    }",
    );
    let x = tensor(&[1, 5, 3], |i| i as f32 / 20.0);
    let given = |n: usize| p.call("f", &[x.clone(), int(Elem::I32, n as i64)]);
    let row = |i: usize, column: usize| ((i * 3 + column) as f64 / 10.0).tanh() * 0.5;
    for n in 0..4_usize {
        let sums = (0..3).map(|column| (0..n).map(|i| row(2 * i, column)).sum::<f64>());
        for (got, want) in values(&given(n)).into_iter().zip(sums) {
            assert!((got - want).abs() < 1e-5, "{n}: {got}, not {want}");
        }
    }
    assert!(given(4).is_err());
}

/// Products of matrices without elements, whose inner length is another one in each iteration: the slot where one is packed is empty for
/// all of them, and has no extent from before the length has its value.
#[test]
fn lengths_of_empty_products() {
    let p = program(
        "    pub fn f(x: f32[0, T, T]) -> f32[0, T, T] {\n        var y = x\n        for i in 0..T {\n            \
         let dim N = i where N <= T\n            let a = y[.., .., 0..N]\n            y = (a * 0.5) @ a.T\n        }\n        y\n    }",
    );
    for t in [0usize, 1, 5] {
        assert_eq!(p.call("f", &[noise(&[0, t, t], 1)]).unwrap()[0].shape(), [0, t, t]);
    }
}
