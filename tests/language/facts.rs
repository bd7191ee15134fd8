//! Facts in shape arithmetic, rounded dimensions and defaults of arguments: which programs check, and what they compute, in the
//! interpreter and compiled, from arguments whose lengths are known when the call is made.

use std::process::Command;

fn attnc(args: &[&str], program: &str) -> (bool, String) {
    let file = tempfile::Builder::new().suffix(".attn").tempfile().unwrap();
    std::fs::write(file.path(), program).unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_attnc")).args(args).arg(file.path()).output().unwrap();
    let text = [out.stdout, out.stderr].concat();
    (out.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// What an entry point gives: the shape, then the numbers, or the message.
fn run(program: &str, backend: &str, function: &str, inputs: &[&str]) -> (String, Vec<f64>) {
    run_with(program, backend, function, inputs, &[])
}

fn run_with(program: &str, backend: &str, function: &str, inputs: &[&str], more: &[&str]) -> (String, Vec<f64>) {
    let mut args = vec!["run", "--backend", backend, "--function", function];
    args.extend(more);
    inputs.iter().for_each(|input| args.extend(["--input", *input]));
    let (_, text) = attnc(&args, program);
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let numbers = rest.split(|c: char| "[], \n".contains(c)).filter_map(|word| word.parse().ok());
    (first.to_string(), numbers.collect())
}

const PROGRAM: &str = "
fn scaled(x: f32[.., S], keep: bool[.., S] = true, k: f32 = 2, n: i32 = S) -> f32[.., S] {
    where(keep, x * k, -1) + cast<f32>(n)
}
model M {
    pub fn rows(x: f32[S, 2]) -> f32[ceil_div(S, 3), 2] {
        let y = concat(x, full<f32>(0, [3 * ceil_div(S, 3) - S, 2]), axis = 0)
        sum(rearrange(y, \"(p t) d -> p t d\", t = 3), axis = 1)
    }
    pub fn ratio(x: f32[A], y: f32[B]) -> f32[B] where 2*A == 3*B {
        rearrange(rearrange(x, \"(n k) -> n k\", k = 3)[.., 0..2], \"n k -> (n k)\") + y
    }
    pub fn ends(x: f32[S], k: f32[T]) -> f32[min(S, T)] { x[0..min(S, T)] + k[T - min(S, T)..T] }
    pub fn refold(x: f32[A, B], y: f32[C, D]) -> f32[C, D] where A * B == C * D {
        rearrange(rearrange(x, \"a b -> (a b)\"), \"(c d) -> c d\", c = C) + y
    }
    pub fn sixes(x: f32[D]) -> f32[D / 6] where D % 2 == 0, D % 3 == 0 { sum(rearrange(x, \"(a b) -> a b\", b = 6)) }
    pub fn odd(x: f32[D]) -> f32[(D - 1) / 2] where D % 2 == 1 { sum(rearrange(x[1..D], \"(a b) -> a b\", b = 2)) }
    pub fn numbers(x: f32[S]) -> f32[S] { x * (S % 3) + max(S, 4) + floor_div(S, 2) }
    pub fn plain(x: f32[S]) -> f32[S] { scaled(x) }
    pub fn kept(x: f32[S], keep: bool[S]) -> f32[S] { scaled(x, keep, n = 0) }
    pub fn named(x: f32[S]) -> f32[S] { scaled(x, k = 3) }
}
";

#[test]
fn programs_compute_what_they_say() {
    let of = |backend: &str| {
        let six = ["x=[1, 2, 3, 4, 5, 6]"];
        let check = |function: &str, inputs: &[&str], shape: &str, numbers: &[f64]| {
            let (first, given) = run(PROGRAM, backend, function, inputs);
            assert_eq!((first.as_str(), given.as_slice()), (shape, numbers), "{backend}: {function}");
        };
        let refused = |function: &str, inputs: &[&str], code: &str| {
            let (first, _) = run(PROGRAM, backend, function, inputs);
            assert!(first.contains(code), "{backend}: {function}: {first}");
        };
        check("rows", &["x=[[1, 2], [3, 4], [5, 6], [7, 8]]"], "result: f32[2, 2]", &[9.0, 12.0, 7.0, 8.0]);
        check("rows", &["x=[[1, 2]]"], "result: f32[1, 2]", &[1.0, 2.0]);
        check("ratio", &[six[0], "y=[0, 0, 0, 10]"], "result: f32[4]", &[1.0, 2.0, 4.0, 15.0]);
        refused("ratio", &["x=[1, 2, 3, 4, 5]", "y=[0, 0, 0, 0]"], "E0803");
        check("ends", &["x=[1, 2, 3]", "k=[10, 20]"], "result: f32[2]", &[11.0, 22.0]);
        check("ends", &["x=[1]", "k=[10, 20]"], "result: f32[1]", &[21.0]);
        let fold = ["x=[[1, 2, 3], [4, 5, 6]]", "y=[[0, 0], [0, 0], [0, 1]]"];
        check("refold", &fold, "result: f32[3, 2]", &[1.0, 2.0, 3.0, 4.0, 5.0, 7.0]);
        refused("refold", &[fold[0], "y=[[0], [0], [0], [0], [0]]"], "E0803");
        check("sixes", &six, "result: f32[1]", &[21.0]);
        refused("sixes", &["x=[1, 2, 3, 4]"], "E0803");
        check("odd", &["x=[1, 2, 3, 4, 5]"], "result: f32[2]", &[5.0, 9.0]);
        refused("odd", &["x=[1, 2, 3, 4]"], "E0803");
        check("numbers", &["x=[1, 2, 3, 4, 5]"], "result: f32[5]", &[9.0, 11.0, 13.0, 15.0, 17.0]);
        check("plain", &["x=[1, 2]"], "result: f32[2]", &[4.0, 6.0]);
        check("kept", &["x=[1, 2]", "keep=[true, false]"], "result: f32[2]", &[2.0, -1.0]);
        check("named", &["x=[1, 2]"], "result: f32[2]", &[5.0, 8.0]);
    };
    of("interp");
    of("cpu");
}

/// Dimensions that a program names, of an entry point or of the model, have their values from the arguments, a default, `--dim`, or an
/// equality.
#[test]
fn named_dimensions_have_values() {
    let program = "
model M<P, Q> where P == Q + 1 {
    pub fn equal<A, C>(x: f32[A], y: f32[C]) -> f32[C] where A == C { x * y }
    pub fn ratio<A, B, T>(x: f32[2*A], y: f32[3*B]) -> f32[T] where 2*A == 3*B, T == A {
        sum(rearrange(x + y, \"(t k) -> t k\", k = 2), axis = 1)
    }
    pub fn groups<D, H = 4, G>(x: f32[D]) -> f32[D / G] where D % H == 0, H % G == 0 {
        sum(rearrange(x, \"(n g) -> n g\", g = G))
    }
    pub fn scaled<S, scale: f32 = 3>(x: f32[S]) -> f32[S] { x * scale }
    pub fn rest(x: f32[P], y: f32[Q]) -> f32[Q] { x[1..P] + y }
}
";
    for backend in ["interp", "cpu"] {
        let with = ["--dim", "G=2"];
        let check = |function: &str, inputs: &[&str], shape: &str, numbers: &[f64]| {
            let (first, given) = run_with(program, backend, function, inputs, &with);
            assert_eq!((first.as_str(), given.as_slice()), (shape, numbers), "{backend}: {function}");
        };
        let refused = |function: &str, inputs: &[&str]| {
            let (first, _) = run_with(program, backend, function, inputs, &with);
            assert!(first.contains("E0803"), "{backend}: {function}: {first}");
        };
        check("equal", &["x=[1, 2]", "y=[3, 4]"], "result: f32[2]", &[3.0, 8.0]);
        refused("equal", &["x=[1, 2]", "y=[3]"]);
        let six = "y=[10, 20, 30, 40, 50, 60]";
        check("ratio", &["x=[1, 2, 3, 4, 5, 6]", six], "result: f32[3]", &[33.0, 77.0, 121.0]);
        refused("ratio", &["x=[1, 2]", "y=[1, 2]"]);
        check("groups", &["x=[1, 2, 3, 4]"], "result: f32[2]", &[3.0, 7.0]);
        refused("groups", &["x=[1, 2]"]);
        check("scaled", &["x=[1, 2]"], "result: f32[2]", &[3.0, 6.0]);
        check("rest", &["x=[1, 2, 3]", "y=[10, 20]"], "result: f32[2]", &[12.0, 23.0]);
        refused("rest", &["x=[1, 2]", "y=[10, 20]"]);
    }
    // One that an equality replaces may have a value, too.
    let one_more = "model M { pub fn f(x: f32[S], y: f32[A]) -> f32[A] where S == A + 1 { x[1..S] + y } }";
    let more = ["--dim", "S=3"];
    let (first, given) = run_with(one_more, "cpu", "f", &["x=[1, 2, 3]", "y=[10, 20]"], &more);
    assert_eq!((first.as_str(), given.as_slice()), ("result: f32[2]", &[12.0, 23.0][..]));
    let (first, _) = run_with(one_more, "cpu", "f", &["x=[1, 2]", "y=[10]"], &more);
    assert!(first.contains("E0803"), "{first}");
    // Neither an argument nor a default gives `G` a value.
    let (fine, text) = attnc(&["--emit=ir=-"], program);
    assert!(!fine && text.contains("E0403") && text.contains("`G`"), "{text}");
    let (fine, text) = attnc(&["--emit=ir=-", "--dim", "G=3"], program);
    assert!(!fine && text.contains("`H % G == 0` does not hold"), "{text}");
}

/// An omitted argument leaves no operation: the code is that of a function without it.
#[test]
fn defaults_cost_nothing() {
    let program = |function: &str, call: &str| {
        format!("{function}\nmodel M {{\n    pub fn f(x: f32[S, D]) -> f32[S, S] {{\n        {call}\n    }}\n}}\n")
    };
    let ir = |program: &str| {
        let out = tempfile::Builder::new().suffix(".air").tempfile().unwrap();
        let (fine, text) = attnc(&[&format!("--emit=ir={}", out.path().display())], program);
        assert!(fine, "{text}");
        let text = std::fs::read_to_string(out.path()).unwrap();
        let ops = text.lines().filter(|line| line.starts_with("  "));
        ops.map(|line| line.split(" loc(").next().unwrap().trim_end().to_string()).collect::<Vec<String>>()
    };
    let with = "fn a(x: f32[S, D], mask: bool[S, S] = true, bias: f32[S, S] = 0) -> f32[S, S] \
                { softmax(where(mask, x @ x.T, -inf)) }";
    let without = "fn a(x: f32[S, D]) -> f32[S, S] { softmax(x @ x.T) }";
    let (with, without) = (ir(&program(with, "a(x)")), ir(&program(without, "a(x)")));
    assert!(with.iter().any(|line| line.contains("matmul")) && !with.iter().any(|line| line.contains("where")));
    assert_eq!(with, without);
}

#[test]
fn what_follows_from_facts_needs_no_statement() {
    for program in [
        "fn f(x: f32[D], y: f32[H], z: f32[G]) -> f32[D / G] where D % H == 0, H % G == 0 \
         { sum(rearrange(x, \"(a b) -> a b\", b = G)) }",
        "fn f(x: f32[D], y: f32[H], z: f32[G]) -> f32[D / G] where H % G == 0 and D % H == 0 \
         { sum(rearrange(x, \"(a b) -> a b\", b = G)) }",
        "layer L<D, H> where D / H % 2 == 0, D % H == 0 { w: f32[H, D / H / 2] }",
        "layer L<D, H, E> where E % H == 0, D == E { w: f32[D / H] }",
        "layer L<D, H, E> where D % H == 0, D == E { w: f32[E / H] }",
        "fn f(x: f32[A], y: f32[B]) -> f32[B] where A == B + 1 { x[1..A] + y }",
        "fn f(x: f32[A], y: f32[B]) -> f32[B] where B + 1 == A { x[0..B] + y }",
        "fn f(x: f32[A], y: f32[B]) -> f32[3*B/2] where 2*A == 3*B { x }",
        "fn f(x: f32[H, W, D], y: f32[N, D]) -> f32[N, D] where H * W == N { rearrange(x, \"h w d -> (h w) d\") + y }",
        "fn f(x: f32[S], y: f32[T]) -> f32[S] where S + T == 10 { x[0..S] * y[0] }",
        "fn f(x: f32[D]) -> f32[(D + 1) / 2] where D % 2 == 1 { x[0..(D + 1) / 2] }",
        "fn f(x: f32[S]) -> f32[S % 4] { x[0..S % 4] }",
        "fn f(x: f32[S, P]) -> f32[S + 1] where S != P { pad(x[.., 0], high = 1) }",
        "fn f(x: f32[S]) -> f32[max(S, 4)] { pad(x, high = max(S, 4) - S) }",
        "fn f(x: f32[S], y: f32[floor_div(S, 2)]) -> f32[floor_div(S, 2)] { x[0..floor_div(S, 2)] + y }",
        "fn f(x: f32[S], y: f32[ceil_div(S, 4), 4]) -> f32[4*ceil_div(S, 4)] { rearrange(y, \"a b -> (a b)\") }",
        "fn f(x: f32[A], y: f32[B]) -> f32[A] where floor_div(A, 2) == B, A % 2 == 0 { x }",
    ] {
        let (fine, text) = attnc(&["check"], &format!("{program}\nmodel M {{ pub fn g(x: f32) -> f32 {{ x }} }}\n"));
        assert!(fine, "{program}\n{text}");
    }
}

/// No message proposes what stands in the program already.
#[test]
fn no_help_states_what_is_stated() {
    for (program, says, says_not) in [
        ("fn f(x: f32[D]) -> f32[D / 2] where D % 2 == 1 { x }", "always leaves a remainder", "state it"),
        ("layer L<D, H> where D % 3 == 0 { w: f32[D / 2] }", "state it: `where D % 2 == 0`", "always"),
        ("layer L<D> where D % 2 == 0, D % 2 == 1 { w: f32[D] }", "E0414", "state it"),
        (
            "layer L<D> where D < 4, D % 8 == 5 { w: f32[D] }\nlayer K<D> where D > 3, D < 3 { w: f32[D] }",
            "E0414",
            "state it",
        ),
        ("layer L<D> where D % 2 == 3 { w: f32[D] }", "never holds", "state it"),
    ] {
        let (fine, text) = attnc(&["check"], program);
        assert!(!fine && text.contains(says) && !text.contains(says_not), "{program}\n{text}");
    }
}

/// A product of sums that grows too long when it is multiplied neither contradicts another clause nor proves it.
#[test]
fn what_grows_too_long_is_no_contradiction() {
    let program = "model M { pub fn f(a0: f32[A0], b0: f32[B0], a1: f32[A1], b1: f32[B1], a2: f32[A2], b2: f32[B2], \
        a3: f32[A3], b3: f32[B3], x: f32[X], y: f32[Y]) -> f32[X] \
        where 1 <= (A0+B0)*(A1+B1)*(A2+B2)*(A3+B3), X <= Y { x } }";
    let (fine, text) = attnc(&["check"], program);
    assert!(fine && !text.contains("E0408") && !text.contains("E0414"), "{text}");
}

/// A slice up to a product of sums, of an axis that is another one: that it is long enough is checked on entry.
#[test]
fn long_bounds_are_checked_on_entry() {
    for many in [1, 2, 4, 6] {
        let all = |f: &dyn Fn(usize) -> String, by: &str| (0..many).map(f).collect::<Vec<String>>().join(by);
        let arguments = all(&|i| format!("a{i}: f32[A{i}], b{i}: f32[B{i}], c{i}: f32[C{i}], e{i}: f32[E{i}]"), ", ");
        let (p, q) = (all(&|i| format!("(A{i}+B{i})"), "*"), all(&|i| format!("(C{i}+E{i})"), "*"));
        let program = format!("model M {{ pub fn f({arguments}, x: f32[{q}]) -> f32[{p}] {{ x[0..{p}] }} }}");
        let one = "[1]".to_string();
        for (b, refused) in [("[]", false), ("[1]", true)] {
            let mut inputs = vec!["x=[5]".to_string()];
            for i in 0..many {
                let b = if i == 0 { b } else { "[]" };
                inputs.extend([format!("a{i}={one}"), format!("b{i}={b}"), format!("c{i}={one}"), format!("e{i}=[]")]);
            }
            let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
            let (first, given) = run(&program, "interp", "f", &inputs);
            if refused {
                assert!(first.contains("E0803"), "{many}: {first}");
            } else {
                assert_eq!((first.as_str(), given.as_slice()), ("result: f32[1]", [5.0].as_slice()), "{many}");
            }
        }
    }
}

/// Rounded quotients in rounded quotients take no time that doubles with each.
#[test]
fn deep_rounding_is_soon_checked() {
    let deep = (0..20).fold("floor_div(S-T, P)".to_string(), |d, _| format!("floor_div(3*{d}+U, floor_div(z, y))"));
    let program = format!(
        "model M {{ pub fn f(a: f32[S], b: f32[T], c: f32[P], d: f32[U], e: f32[z], g: f32[y]) -> f32[S] \
         where 0 <= {deep} {{ a }} }}"
    );
    let start = std::time::Instant::now();
    let (fine, text) = attnc(&["check"], &program);
    assert!(fine, "{text}");
    assert!(start.elapsed().as_secs() < 100, "{:?}", start.elapsed());
}
