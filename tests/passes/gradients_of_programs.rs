//! Gradients through control flow, of parameters and of gradients, against the tape; and what is refused.

use std::borrow::Cow;

use attnc::interp::Params;
use attnc::ir::text;
use attnc::passes::{Collected, Options, find_pass, run_passes};
use attnc::random::Random;
use attnc::tensor::Tensor;

use crate::gradients::compare;

/// Random parameters of these shapes, the same for each path.
struct Weights(Vec<usize>);

impl Params for Weights {
    fn tensor(&self, path: &str) -> Option<Cow<'_, Tensor>> {
        let mut random = Random::new(path.bytes().map(u64::from).sum());
        let count: usize = self.0.iter().product();
        let values: Vec<f64> = (0..count).map(|_| (random.below(61) as f64 - 30.0) / 32.0).collect();
        Tensor::from_floats(attnc::shape::Elem::F32, self.0.clone(), &values).map(Cow::Owned)
    }
}

/// Compares the gradients of a function of `%x: f32[S, 3]` and `%k: i32[]`, for several sizes.
fn agrees(head: &str, results: &str, body: &str) {
    let source =
        format!("module \"m\"\n{head}\nfunc @f(%x \"x\": f32[S, 3], %k \"k\": i32[]) -> ({results}) {{\n{body}\n}}\n");
    let module = match text::parse(&source, Default::default()) {
        Ok(parsed) => parsed.module,
        Err(d) => panic!("{source}\n{:?}", d.sorted()),
    };
    let mut random = Random::new(7);
    for rows in [2, 1, 3, 0] {
        for k in 0..3 {
            let values: Vec<f64> = (0..rows * 3).map(|_| (random.below(61) as f64 - 30.0) / 32.0).collect();
            let x = Tensor::from_floats(attnc::shape::Elem::F32, vec![rows, 3], &values).expect("a tensor");
            let k = Tensor::from_ints(attnc::shape::Elem::I32, vec![], &[k]).expect("a tensor");
            let meant = compare(&module, &[x, k], &Weights(vec![3, 3]))
                .unwrap_or_else(|e| panic!("{rows} rows: {e}\n{source}"));
            let is_something = meant.iter().flatten().any(|g| *g != 0.0);
            assert!(rows == 0 || is_something, "all gradients are zero: {source}");
        }
    }
}

const LAYERS: &str = "param \"h.*.w\" [4] : f32[3, 3]";

#[test]
fn a_parameter_of_layers_in_a_loop() {
    agrees(
        LAYERS,
        "f32[4, 3, 3], f32[S, 3]",
        "^start:
  br ^head(0, %x)
^head(%i: index, %h: f32[S, 3]):
  %c = lt %i, 4 : bool[]
  br_if %c, ^body, ^after
^body:
  %w = param \"h.*.w\"[%i] : f32[3, 3]
  %a = matmul %h, %w : f32[S, 3]
  %t = tanh %a : f32[S, 3]
  %n = add %h, %t : f32[S, 3]
  %j = add %i, 1 : index
  br ^head(%j, %n)
^after:
  %loss = reduce_sum %h, axes=[0, 1] : f32[]
  %g = grad %loss, \"h.*.w\" : f32[4, 3, 3]
  %gx = grad %loss, %x : f32[S, 3]
  return %g, %gx",
    );
}

#[test]
fn a_parameter_that_is_read_in_several_places() {
    agrees(
        LAYERS,
        "f32[4, 3, 3]",
        "^start:
  %w = param \"h.*.w\"[1] : f32[3, 3]
  %a = matmul %x, %w : f32[S, 3]
  br ^head(1, %a)
^head(%i: index, %h: f32[S, 3]):
  %c = lt %i, 3 : bool[]
  br_if %c, ^body, ^after
^body:
  %v = param \"h.*.w\"[%i] : f32[3, 3]
  %u = param \"h.*.w\"[2] : f32[3, 3]
  %b = matmul %h, %v : f32[S, 3]
  %n = matmul %b, %u : f32[S, 3]
  %j = add %i, 1 : index
  br ^head(%j, %n)
^after:
  %m = mul %h, %h : f32[S, 3]
  %loss = reduce_sum %m, axes=[0, 1] : f32[]
  %g = grad %loss, \"h.*.w\" : f32[4, 3, 3]
  return %g",
    );
}

#[test]
fn a_recurrence_over_time_that_stacks_its_states() {
    agrees(
        "param \"w\" : f32[3, 3]",
        "f32[3, 3], f32[S, 3]",
        "^start:
  %zero = const 0.25 : f32[1, 3]
  %empty = const 0.0 : f32[S, 3]
  %n = dim S : index
  br ^head(0, %zero, %empty)
^head(%t: index, %h: f32[1, 3], %out: f32[S, 3]):
  %c = lt %t, %n : bool[]
  br_if %c, ^body, ^after
^body:
  %w = param \"w\" : f32[3, 3]
  %now = extract %x, %t, axes=[0] : f32[1, 3]
  %a = matmul %h, %w : f32[1, 3]
  %b = add %a, %now : f32[1, 3]
  %next = tanh %b : f32[1, 3]
  %stacked = update %out, %next, %t, axes=[0] : f32[S, 3]
  %j = add %t, 1 : index
  br ^head(%j, %next, %stacked)
^after:
  %q = mul %out, %out : f32[S, 3]
  %s = reduce_sum %q, axes=[0, 1] : f32[]
  %e = reduce_sum %h, axes=[0, 1] : f32[]
  %loss = add %s, %e : f32[]
  %g = grad %loss, \"w\" : f32[3, 3]
  %gx = grad %loss, %x : f32[S, 3]
  return %g, %gx",
    );
}

#[test]
fn a_loop_in_a_loop_with_a_branch() {
    agrees(
        LAYERS,
        "f32[4, 3, 3], f32[S, 3]",
        "^start:
  %n = dim S : index
  br ^head(0, %x)
^head(%i: index, %h: f32[S, 3]):
  %c = lt %i, 4 : bool[]
  br_if %c, ^body, ^after
^body:
  %w = param \"h.*.w\"[%i] : f32[3, 3]
  %a = matmul %h, %w : f32[S, 3]
  br ^inner(0, %a)
^inner(%t: index, %p: f32[S, 3]):
  %d = lt %t, %n : bool[]
  br_if %d, ^step, ^done
^step:
  %row = extract %p, %t, axes=[0] : f32[1, 3]
  %sum = reduce_sum %row, axes=[0, 1] : f32[]
  %up = gt %sum, 0.0 : bool[]
  br_if %up, ^then, ^else
^then:
  %r1 = mul %row, %row : f32[1, 3]
  %r1b = mul %r1, %sum : f32[1, 3]
  br ^join(%r1b)
^else:
  %v = param \"h.*.w\"[2] : f32[3, 3]
  %r2 = matmul %row, %v : f32[1, 3]
  br ^join(%r2)
^join(%r: f32[1, 3]):
  %sin = sin %r : f32[1, 3]
  %q = update %p, %sin, %t, axes=[0] : f32[S, 3]
  %u = add %t, 1 : index
  br ^inner(%u, %q)
^done:
  %z = add %p, %x : f32[S, 3]
  %j = add %i, 1 : index
  br ^head(%j, %z)
^after:
  %loss = reduce_sum %h, axes=[0, 1] : f32[]
  %g = grad %loss, \"h.*.w\" : f32[4, 3, 3]
  %gx = grad %loss, %x : f32[S, 3]
  return %g, %gx",
    );
}

#[test]
fn a_branch_of_which_one_arm_is_empty() {
    agrees(
        "param \"w\" : f32[3, 3]",
        "f32[3, 3], f32[S, 3]",
        "^start:
  %c = eq %k, i32(1) : bool[]
  br_if %c, ^then, ^join(%x)
^then:
  %w = param \"w\" : f32[3, 3]
  %a = matmul %x, %w : f32[S, 3]
  br ^join(%a)
^join(%h: f32[S, 3]):
  %w2 = param \"w\" : f32[3, 3]
  %y = matmul %h, %w2 : f32[S, 3]
  %m = mul %y, %y : f32[S, 3]
  %loss = reduce_sum %m, axes=[0, 1] : f32[]
  %g = grad %loss, \"w\" : f32[3, 3]
  %gx = grad %loss, %x : f32[S, 3]
  return %g, %gx",
    );
}

#[test]
fn a_gradient_in_a_loop_is_of_one_iteration() {
    agrees(
        "param \"w\" : f32[3, 3]",
        "f32[S, 3]",
        "^start:
  br ^head(0, %x, %x)
^head(%i: index, %h: f32[S, 3], %m: f32[S, 3]):
  %c = lt %i, 3 : bool[]
  br_if %c, ^body, ^after
^body:
  %w = param \"w\" : f32[3, 3]
  %a = matmul %h, %w : f32[S, 3]
  %b = mul %a, %h : f32[S, 3]
  %d = mul %b, %m : f32[S, 3]
  %loss = reduce_sum %d, axes=[0, 1] : f32[]
  %g = grad %loss, %h : f32[S, 3]
  %n = mul %m, 0.5 : f32[S, 3]
  %o = add %n, %g : f32[S, 3]
  %p = mul %o, 0.125 : f32[S, 3]
  %next = sub %h, %p : f32[S, 3]
  %j = add %i, 1 : index
  br ^head(%j, %next, %o)
^after:
  return %h",
    );
}

#[test]
fn the_result_of_a_loop_is_a_variable() {
    agrees(
        "",
        "f32[S, 3], f32[S, 3]",
        "^start:
  br ^head(0, %x)
^head(%i: index, %h: f32[S, 3]):
  %c = lt %i, 3 : bool[]
  br_if %c, ^body, ^after
^body:
  %n = sin %h : f32[S, 3]
  %j = add %i, 1 : index
  br ^head(%j, %n)
^after:
  %m = mul %h, %h : f32[S, 3]
  %z = mul %m, %x : f32[S, 3]
  %loss = reduce_sum %z, axes=[0, 1] : f32[]
  %g = grad %loss, %h : f32[S, 3]
  %gx = grad %loss, %x : f32[S, 3]
  return %g, %gx",
    );
}

#[test]
fn a_gradient_of_a_gradient() {
    agrees(
        LAYERS,
        "f32[S, 3], f32[4, 3, 3]",
        "^start:
  br ^head(0, %x)
^head(%i: index, %h: f32[S, 3]):
  %c = lt %i, 4 : bool[]
  br_if %c, ^body, ^after
^body:
  %w = param \"h.*.w\"[%i] : f32[3, 3]
  %a = matmul %h, %w : f32[S, 3]
  %t = tanh %a : f32[S, 3]
  %n = mul %h, %t : f32[S, 3]
  %j = add %i, 1 : index
  br ^head(%j, %n)
^after:
  %loss = reduce_sum %h, axes=[0, 1] : f32[]
  %g = grad %loss, %x : f32[S, 3]
  %q = mul %g, %g : f32[S, 3]
  %norm = reduce_sum %q, axes=[0, 1] : f32[]
  %gx = grad %norm, %x : f32[S, 3]
  %gw = grad %norm, \"h.*.w\" : f32[4, 3, 3]
  return %gx, %gw",
    );
}

/// Where a gradient happens to be 0, its own gradient is not.
#[test]
fn a_gradient_of_a_gradient_that_is_zero() {
    agrees(
        "",
        "f32[S, 3]",
        "^start:
  %z = mul %x, 0.0 : f32[S, 3]
  %e = exp %x : f32[S, 3]
  %p = mul %z, %e : f32[S, 3]
  %q = mul %p, %p : f32[S, 3]
  %l = reduce_sum %q, axes=[0, 1] : f32[]
  %g = grad %l, %z : f32[S, 3]
  %norm = reduce_sum %g, axes=[0, 1] : f32[]
  %gz = grad %norm, %z : f32[S, 3]
  return %gz",
    );
}

/// The error of a function of `%x: f32[S, 3]`, and its notes.
fn refused(body: &str) -> (String, Vec<String>) {
    let source = format!(
        "module \"m\"\nparam \"w\" : f32[3, 3]\nfunc @f(%x \"x\": f32[S, 3]) -> (f32[S, 3]) {{\n^start:\n{body}\n}}\n"
    );
    let mut module = match text::parse(&source, Default::default()) {
        Ok(parsed) => parsed.module,
        Err(d) => panic!("{source}\n{:?}", d.sorted()),
    };
    let pass = find_pass("differentiate").expect("a pass");
    let error = run_passes(&mut module, &[pass], &Options::default(), &mut Collected::default()).expect_err("an error");
    let refusal = error.refused.first().expect("an error in the program").clone();
    (refusal.message, refusal.notes.into_iter().map(|(_, text)| text).collect())
}

#[test]
fn what_is_refused_says_why() {
    let (message, notes) = refused(
        "  %a = cast %x : i32[S, 3]\n  %b = cast %a : f32[S, 3]\n  %l = reduce_sum %b, axes=[0, 1] : f32[]\n  %g = grad %l, %x, \"x\" : f32[S, 3]\n  return %g",
    );
    assert_eq!(message, "no gradient reaches `x`");
    assert_eq!(notes, ["it stops at `cast`, which passes none on"]);
    let (message, _) = refused(
        "  %b = const 1.0 : f32[S, 3]\n  %l = reduce_sum %b, axes=[0, 1] : f32[]\n  %g = grad %l, %x, \"x\" : f32[S, 3]\n  return %g",
    );
    assert_eq!(message, "no gradient reaches `x`: the loss does not depend on it");
    let (message, _) = refused(
        "  br ^head(%x)
^head(%h: f32[S, 3]):
  %s = reduce_sum %h, axes=[0, 1] : f32[]
  %c = lt %s, 1.0 : bool[]
  br_if %c, ^body, ^after
^body:
  %n = add %h, 1.0 : f32[S, 3]
  br ^head(%n)
^after:
  %g = grad %s, %x : f32[S, 3]
  return %g",
    );
    assert_eq!(
        message,
        "no gradient goes through this: the number of iterations is not a function of the dimensions: of a `while`, or between computed values"
    );
    let (message, _) = refused(
        "  br ^head(0, %x, %x)
^head(%i: index, %h: f32[S, 3], %o: f32[S, 3]):
  %c = lt %i, 3 : bool[]
  br_if %c, ^body, ^after
^body:
  %w = param \"w\" : f32[3, 3]
  %n = matmul %h, %w : f32[S, 3]
  %l = reduce_sum %n, axes=[0, 1] : f32[]
  %g = grad %l, %x : f32[S, 3]
  %j = add %i, 1 : index
  br ^head(%j, %n, %g)
^after:
  return %o",
    );
    assert!(message.starts_with("the gradient would have to go through the earlier iterations"), "{message}");
}
