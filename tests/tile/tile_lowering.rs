//! Does a program in tile IR compute what its graph IR says, unscheduled and scheduled? The oracle is the graph IR's
//! interpreter; the schedule must not change a bit.

use crate::front;
use crate::schedule_steps::until;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use attnc::ir::interp::{self, Array, Call, Data, Limits, run_tapped};
use attnc::ir::{self, Module};
use attnc::lowering::tile::lower;
use attnc::passes::{Collected, Options, optimise};
use attnc::random::Random;
use attnc::shape::Elem;
use attnc::source::SourceMap;
use attnc::tensor::Tensor;
use attnc::tile::{self, Cpu, Machine, PlanVariant, WeightChoice, WeightFormat};

/// Numbers from -2 to 2, or such as index an axis of three.
fn tensor(random: &mut Random, elem: Elem, shape: Vec<usize>) -> Tensor {
    let n = shape.iter().product();
    match elem {
        Elem::F32 | Elem::BF16 | Elem::F16 => {
            let xs: Vec<f64> = (0..n).map(|_| random.below(4001) as f64 / 1000.0 - 2.0).collect();
            Tensor::from_floats(elem, shape, &xs).unwrap()
        }
        _ => {
            let xs: Vec<i64> = (0..n).map(|_| random.below(3) as i64).collect();
            Tensor::from_ints(elem, shape, &xs).unwrap()
        }
    }
}

fn parse(source: &str) -> Module {
    let whole = format!("module \"test.attn\"\n{source}");
    let mut sources = SourceMap::new();
    let file = sources.add("test.air", whole.as_str());
    match ir::text::parse(&whole, file) {
        Ok(p) => p.module,
        Err(d) => panic!("{}", attnc::diagnostics::render_all(&d, &sources, false)),
    }
}

fn floats<F: Copy + Into<f64>>(a: &Array<F>) -> Vec<f64> {
    match &a.data {
        Data::Float(xs) => xs.iter().map(|x| (*x).into()).collect(),
        Data::Int(xs) => xs.iter().map(|n| *n as f64).collect(),
        Data::Bool(xs) => xs.iter().map(|b| f64::from(u8::from(*b))).collect(),
    }
}

fn close(name: &str, got: &Tensor, want: &[f64]) {
    let got = got.to_f64();
    assert_eq!(got.len(), want.len(), "{name}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let same = g == w || (g.is_nan() && w.is_nan());
        assert!(same || (g - w).abs() <= 2e-5 * (1.0 + w.abs()), "{name}: element {i} is {g}, not {w}");
    }
}

/// Runs a module both ways at some values of its run-time dimensions.
fn check(name: &str, module: &Module, symbols: &[(&str, i64)]) {
    let verified = match ir::verify(module) {
        Ok(v) => v,
        Err(e) => panic!("{name}: {e}"),
    };
    let f = &module.functions[0];
    let symbols: BTreeMap<String, i64> = symbols.iter().map(|(s, n)| (s.to_string(), *n)).collect();
    let mut rng = Random::new(7);
    let args: Vec<Tensor> = f
        .args
        .iter()
        .map(|a| {
            let shape = a.ty.shape.iter().map(|d| d.eval(&|s| symbols.get(s).copied()).unwrap() as usize).collect();
            tensor(&mut rng, a.ty.elem, shape)
        })
        .collect();
    let mut params: BTreeMap<String, Tensor> = BTreeMap::new();
    for p in &module.params {
        let shape: Vec<usize> = p.ty.shape.iter().map(|d| d.as_const().unwrap() as usize).collect();
        let mut names = vec![p.name.clone()];
        for n in &p.counts {
            names = names.iter().flat_map(|s| (0..*n).map(move |i| s.replacen('*', &i.to_string(), 1))).collect();
        }
        for n in names {
            params.insert(n, tensor(&mut rng, p.ty.elem, shape.clone()));
        }
    }
    let call = Call { function: &f.name, args: &args, params: &params, limits: Limits::default() };
    let oracle = run_tapped::<f32>(verified, &call).unwrap_or_else(|e| panic!("{name}: {e}"));

    let tiles = attnc::lowering::tile::lower(verified).unwrap_or_else(|e| panic!("{name}: {e}"));
    let variant = if f.tapped { PlanVariant::Tapped } else { PlanVariant::Plain };
    let run = |m: &tile::Module, state: &str| {
        let verified = tile::verify::verify(m).unwrap_or_else(|e| panic!("{name}, {state}:\n{e}"));
        let text = tile::text::print(m);
        let mut sources = SourceMap::new();
        let file = sources.add("test.tir", text.as_str());
        match tile::text::parse(&text, file) {
            Ok(p) => assert_eq!(tile::text::print(&p.module), text, "{name}"),
            Err(d) => panic!("{name}: {}\n{text}", attnc::diagnostics::render_all(&d, &sources, false)),
        }
        let call = tile::interp::Call {
            plan: &f.name,
            variant,
            symbols: &symbols,
            args: &args,
            params: &params as &dyn interp::Params,
            limits: Limits::default(),
        };
        tile::interp::run(verified, &call).unwrap_or_else(|e| panic!("{name}, {state}: {e}\n{text}"))
    };
    let open = run(&tiles, "unscheduled");
    for (i, (got, want)) in open.results.iter().zip(&oracle.results).enumerate() {
        close(&format!("{name}: result {i} at {symbols:?}"), got, &floats(want));
    }
    // An attention is computed in another order on a machine; from then on, no bit changes.
    let tiles = until(&tiles, &Machine::from(Cpu::PORTABLE), "expand-attention");
    let open = run(&tiles, "in the forms of a machine");
    for (i, (got, want)) in open.results.iter().zip(&oracle.results).enumerate() {
        close(&format!("{name}, in the forms of a machine: result {i} at {symbols:?}"), got, &floats(want));
    }
    let tiles =
        tile::schedule(&tiles, Cpu::PORTABLE, &WeightChoice::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let scheduled = run(&tiles, "scheduled");
    let bits = |o: &tile::interp::Outcome| o.results.iter().chain(o.taps.values()).cloned().collect::<Vec<_>>();
    for (a, b) in bits(&open).iter().zip(&bits(&scheduled)) {
        assert!(a.bytes() == b.bytes(), "{name}: the schedule changes bits at {symbols:?}");
    }
}

/// As written and after all passes.
fn program(name: &str, source: &str, sizes: &[&[(&str, i64)]]) {
    let plain = parse(source);
    let mut fused = plain.clone();
    let mut sink = Collected::default();
    optimise(&mut fused, &Options::default(), &mut sink).unwrap_or_else(|e| panic!("{name}: {e}"));
    for size in sizes {
        check(&format!("{name}, as written"), &plain, size);
        check(&format!("{name}, after passes"), &fused, size);
    }
}

const SIZES: &[&[(&str, i64)]] = &[&[("S", 0)], &[("S", 1)], &[("S", 5)], &[("S", 67)]];

#[test]
fn elementwise() {
    program(
        "elementwise",
        "func @f(%0 \"x\": f32[S, 5], %1 \"y\": f32[5]) -> (f32[S, 5], bool[S, 5]) {\n^bb0:\n\
         %2 = add %0, %1 : f32[S, 5]\n%3 = mul %2, 0.5 : f32[S, 5]\n%4 = gelu %3 : f32[S, 5]\n\
         %5 = lt %4, %1 : bool[S, 5]\n%6 = where %5, %4, -1.0 : f32[S, 5]\nreturn %6, %5\n}",
        SIZES,
    );
}

#[test]
fn movement() {
    program(
        "movement",
        "func @f(%0 \"x\": f32[S, 4, 3]) -> (f32[3, 4, S], f32[S, 12], f32[2*S, 4, 3], f32[S, 6, 3], f32[S, 2, 3]) {\n\
         ^bb0:\n%1 = transpose %0, perm=[2, 1, 0] : f32[3, 4, S]\n%2 = transpose %0, perm=[0, 2, 1] : f32[S, 3, 4]\n\
         %3 = reshape %2 : f32[S, 12]\n%4 = concat %0, %0, axis=0 : f32[2*S, 4, 3]\n\
         %5 = pad %0, 0.5, axis=1, low=1, high=1 : f32[S, 6, 3]\n%6 = slice %0, axis=1, start=1, stop=3 : f32[S, 2, 3]\n\
         return %1, %3, %4, %5, %6\n}",
        SIZES,
    );
}

#[test]
fn rows() {
    program(
        "rows",
        "func @f(%0 \"x\": f32[S, 70], %1 \"w\": f32[70]) -> (f32[S, 70], f32[S, 70], f32[S]) {\n^bb0:\n\
         %2 = reduce_mean %0, axes=[1], keep=true : f32[S, 1]\n%3 = sub %0, %2 : f32[S, 70]\n\
         %4 = mul %3, %3 : f32[S, 70]\n%5 = reduce_mean %4, axes=[1], keep=true : f32[S, 1]\n\
         %6 = add %5, 1e-5 : f32[S, 1]\n%7 = rsqrt %6 : f32[S, 1]\n%8 = mul %3, %7 : f32[S, 70]\n\
         %9 = mul %8, %1 : f32[S, 70]\n%10 = softmax %9, axis=1 : f32[S, 70]\n\
         %11 = reduce_max %0, axes=[1], keep=false : f32[S]\nreturn %9, %10, %11\n}",
        SIZES,
    );
}

/// Rows that are one tile though they are long, and rows of several chunks.
#[test]
fn long_rows() {
    for n in ["1500", "4100", "T"] {
        let source = format!(
            "func @f(%0 \"x\": f32[S, {n}]) -> (f32[S, {n}], f32[S, {n}], i32[S]) {{\n^bb0:\n\
             %1 = reduce_mean %0, axes=[1], keep=true : f32[S, 1]\n%2 = sub %0, %1 : f32[S, {n}]\n\
             %3 = softmax %2, axis=1 : f32[S, {n}]\n%4 = argmax %0, axes=[1], keep=false : i32[S]\nreturn %2, %3, %4\n}}"
        );
        let sizes: &[(&str, i64)] = if n == "T" { &[("S", 3), ("T", 1100)] } else { &[("S", 3)] };
        program("long rows", &source, &[sizes]);
    }
}

#[test]
fn reductions() {
    program(
        "reductions",
        "func @f(%0 \"x\": f32[S, 6, 7], %1 \"n\": i32[4, S]) -> (f32[6, 7], f32[S, 7], f32[S, 6], f32[6], i32[4], i32[6, 7]) {\n^bb0:\n\
         %2 = reduce_sum %0, axes=[0], keep=false : f32[6, 7]\n%3 = reduce_max %0, axes=[1], keep=false : f32[S, 7]\n\
         %4 = reduce_min %0, axes=[2], keep=false : f32[S, 6]\n%5 = reduce_sum %0, axes=[0, 2], keep=false : f32[6]\n\
         %6 = reduce_sum %1, axes=[1], keep=false : i32[4]\n%7 = argmax %0, axes=[0], keep=false : i32[6, 7]\n\
         return %2, %3, %4, %5, %6, %7\n}",
        &SIZES[1..],
    );
}

/// What there is one of for each row is there where rows are empty, too.
#[test]
fn columns_beside_empty_rows() {
    program(
        "columns",
        "func @f(%0 \"x\": f32[S, S, T], %1 \"c\": f32[S, S, 1]) -> (f32[S, S, 1], f32[S, S, T], f32[S, S, 1]) {\n^bb0:\n\
         %2 = reduce_sum %0, axes=[2], keep=true : f32[S, S, 1]\n%3 = mul %2, %1 : f32[S, S, 1]\n\
         %4 = mul %0, %1 : f32[S, S, T]\n%5 = reduce_max %4, axes=[2], keep=true : f32[S, S, 1]\n\
         %6 = sub %4, %5 : f32[S, S, T]\n%7 = exp %1 : f32[S, S, 1]\n%8 = reduce_sum %7, axes=[2], keep=true : f32[S, S, 1]\n\
         %9 = add %8, %5 : f32[S, S, 1]\nreturn %3, %6, %9\n}",
        &[
            &[("S", 3), ("T", 0)],
            &[("S", 0), ("T", 3)],
            &[("S", 2), ("T", 1)],
            &[("S", 3), ("T", 17)],
            &[("S", 2), ("T", 600)],
        ],
    );
}

/// `(S-1)*(S-1)` elements are as many as there are, or none.
#[test]
fn products_of_differences() {
    program(
        "differences",
        "func @f(%0 \"x\": f32[S, 4]) -> (f32[S-1, S-1], f32[S-1, S-1], f32[S*S-2*S+1], i8[2, S-1, S-1, S-1]) {\n^bb0:\n\
         %1 = slice %0, axis=0, start=1, stop=S : f32[S-1, 4]\n%2 = transpose %1, perm=[1, 0] : f32[4, S-1]\n\
         %3 = matmul %1, %2 : f32[S-1, S-1]\n%4 = exp %3 : f32[S-1, S-1]\n%5 = reshape %4 : f32[S*S-2*S+1]\n\
         %6 = neg %5 : f32[S*S-2*S+1]\n%7 = broadcast %4 : f32[2, S-1, S-1, S-1]\n%8 = cast %7 : i8[2, S-1, S-1, S-1]\n\
         return %3, %4, %6, %8\n}",
        &SIZES[1..3],
    );
}

/// Along an axis of 1 that is repeated the count is 0.
#[test]
fn counters_along_axes_of_one() {
    program(
        "counters",
        "func @f(%0 \"x\": f32[S, 5], %1 \"m\": f32[3, S, 5]) -> (f32[S, 5], f32[3, S, 5], f32[S, 5], f32[S, 5]) {\n^bb0:\n\
         %2 = iota axis=0 : f32[1, 5]\n%3 = add %0, %2 : f32[S, 5]\n\
         %4 = iota axis=1 : f32[3, 1, 5]\n%5 = iota axis=0 : f32[3, 1, 1]\n%6 = add %4, %5 : f32[3, 1, 5]\n\
         %7 = add %1, %6 : f32[3, S, 5]\n%8 = causal : bool[1, 5]\n%9 = where %8, %0, 9.0 : f32[S, 5]\n\
         %10 = iota axis=1 : f32[S, 1]\n%11 = iota axis=0 : f32[S, 1]\n%12 = sub %11, %10 : f32[S, 1]\n\
         %13 = mul %0, %12 : f32[S, 5]\nreturn %3, %7, %9, %13\n}",
        SIZES,
    );
}

#[test]
fn matmuls() {
    program(
        "matmuls",
        "param \"w\" : f32[33, 70]\nparam \"b\" : f32[70]\n\
         func @f(%0 \"x\": f32[S, 33], %1 \"y\": f32[3, S, 5]) -> (f32[S, 70], f32[3, S, S], f32[S, 70]) {\n^bb0:\n\
         %2 = param \"w\" : f32[33, 70]\n%3 = matmul %0, %2 : f32[S, 70]\n%4 = param \"b\" : f32[70]\n\
         %5 = add %3, %4 : f32[S, 70]\n%6 = gelu_tanh %5 : f32[S, 70]\n%7 = transpose %1, perm=[0, 2, 1] : f32[3, 5, S]\n\
         %8 = matmul %1, %7 : f32[3, S, S]\n%9 = add %6, %3 : f32[S, 70]\nreturn %6, %8, %9\n}",
        SIZES,
    );
}

#[test]
fn attention() {
    program(
        "attention",
        "func @f(%0 \"q\": f32[2, S, 8], %1 \"k\": f32[2, T, 8], %2 \"v\": f32[2, T, 6], %3 \"keep\": bool[T]) -> (f32[2, S, 6], f32[2, S, 6]) {\n^bb0:\n\
         %4 = transpose %1, perm=[0, 2, 1] : f32[2, 8, T]\n%5 = matmul %0, %4 : f32[2, S, T]\n%6 = mul %5, 0.35 : f32[2, S, T]\n\
         %7 = causal : bool[S, T]\n%8 = where %7, %6, -inf : f32[2, S, T]\n%9 = softmax %8, axis=2 : f32[2, S, T]\n\
         %10 = matmul %9, %2 : f32[2, S, 6]\n%11 = where %3, %6, -inf : f32[2, S, T]\n%12 = softmax %11, axis=2 : f32[2, S, T]\n\
         %13 = matmul %12, %2 : f32[2, S, 6]\nreturn %10, %13\n}",
        &[
            &[("S", 5), ("T", 5)],
            &[("S", 1), ("T", 130)],
            &[("S", 70), ("T", 70)],
            &[("S", 9), ("T", 4)],
            &[("S", 3), ("T", 0)],
            &[("S", 0), ("T", 3)],
        ],
    );
}

#[test]
fn loops_over_layers() {
    program(
        "loops",
        "param \"h.*.w\"[3] : f32[8, 8]\nparam \"wte\" : f32[3, 8]\n\
         func @f(%0 \"tokens\": i32[S]) -> (f32[S, 8]) {\n^bb0:\n%1 = param \"wte\" : f32[3, 8]\n\
         %2 = gather %1, %0, axis=0 : f32[S, 8]\nbr ^bb1(0, %2)\n^bb1(%3: index, %4: f32[S, 8]):\n%5 = lt %3, 3 : bool[]\n\
         br_if %5, ^bb2, ^bb3\n^bb2:\n%6 = param \"h.*.w\"[%3] : f32[8, 8]\n%7 = matmul %4, %6 : f32[S, 8]\n\
         %8 = tanh %7 : f32[S, 8]\n%9 = add %8, %4 : f32[S, 8]\n%10 = add %3, 1 : index\nbr ^bb1(%10, %9)\n^bb3:\nreturn %4\n}",
        SIZES,
    );
}

#[test]
fn narrow_types() {
    program(
        "narrow",
        "func @f(%0 \"x\": bf16[S, 9], %1 \"y\": i8[S, 9], %2 \"z\": f16[9, 4]) -> (bf16[S, 9], i8[S, 9], i64[S, 9], f16[9, 4]) {\n^bb0:\n\
         %3 = mul %0, %0 : bf16[S, 9]\n%4 = add %1, %1 : i8[S, 9]\n%5 = cast %1 : i64[S, 9]\n%6 = exp %2 : f16[9, 4]\nreturn %3, %4, %5, %6\n}",
        SIZES,
    );
}

/// Every example after the passes, with its name; made once for all tests.
fn examples() -> &'static [(String, Module)] {
    static EXAMPLES: OnceLock<Vec<(String, Module)>> = OnceLock::new();
    EXAMPLES.get_or_init(optimised_examples)
}

fn optimised_examples() -> Vec<(String, Module)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "attn"));
    assert!(paths.len() >= 8);
    let optimised = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().to_string();
        let source = std::fs::read_to_string(&path).unwrap();
        let mut module = front::module(&name, &source, &front::options(&[])).unwrap_or_else(|e| panic!("{e}"));
        optimise(&mut module, &Options::default(), &mut Collected::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        (name, module)
    };
    paths.into_iter().map(optimised).collect()
}

/// Every example, through the whole way but for running it: what it becomes is right in both states, and reads back.
#[test]
fn examples_become_kernels() {
    for (name, module) in examples() {
        let verified = ir::verify(module).unwrap_or_else(|e| panic!("{name}: {e}"));
        let tiles = attnc::lowering::tile::lower(verified).unwrap_or_else(|e| panic!("{name}: {e}"));
        let scheduled = tile::schedule(&tiles, Cpu::PORTABLE, &WeightChoice::default());
        for tiles in [tiles, scheduled.unwrap_or_else(|e| panic!("{name}: {e}"))] {
            tile::verify::verify(&tiles).unwrap_or_else(|e| panic!("{name}:\n{e}"));
            let text = tile::text::print(&tiles);
            let mut sources = SourceMap::new();
            let file = sources.add("test.tir", text.as_str());
            match tile::text::parse(&text, file) {
                Ok(p) => assert_eq!(tile::text::print(&p.module), text, "{name}"),
                Err(d) => panic!("{name}: {}", attnc::diagnostics::render_all(&d, &sources, false)),
            }
        }
    }
}

/// Lowering knows no machine: from one unscheduled text, each gets its own kernels. The schedule finds each attention in it.
#[test]
fn one_unscheduled_text_is_scheduled_for_every_target() {
    let bare = Cpu::from_name("512+fma").unwrap();
    let mut attentions = 0;
    for (name, module) in examples() {
        let tiles = lower(ir::verify(module).unwrap_or_else(|e| panic!("{name}: {e}")));
        let text = tile::text::print(&tiles.unwrap_or_else(|e| panic!("{name}: {e}")));
        let file = SourceMap::new().add("test.tir", text.as_str());
        let Ok(read) = tile::text::parse(&text, file) else { panic!("{name} is not read back") };
        let tiles = tile::verify::VerifiedModule::new(read.module).unwrap_or_else(|e| panic!("{name}: {e}"));
        let of = |tiles: &tile::Module| -> Vec<String> {
            let attentions = tiles.kernels.iter().filter(|k| k.name.starts_with("attention."));
            attentions.map(|k| tile::text::print_kernel(k, &[])).collect()
        };
        for kernel in of(&tiles) {
            attentions += 1;
            assert!(kernel.contains("= exp ") && !kernel.contains("exp2"), "{kernel}");
        }
        for cpu in Cpu::NAMED.into_iter().chain([bare]) {
            let tiles = until(&tiles, &Machine::from(cpu), "expand-attention");
            for kernel in of(&tiles) {
                assert!(kernel.contains("= exp2 ") && !kernel.contains("= exp "), "{name}, {cpu}: {kernel}");
            }
        }
    }
    assert!(attentions >= 15, "{attentions} attentions");
}

/// The schedule takes a kernel for the attention that its description says; the verifier demands the body of just that one, and names
/// the first instruction that differs.
#[test]
fn what_is_no_attention_is_not_described_as_one() {
    let source = "func @f(%0 \"q\": f32[S, 32], %1 \"k\": f32[T, 32], %2 \"v\": f32[T, 32], %3 \"m\": f32[S, T]) -> (f32[S, 32]) {\n\
                  ^bb0:\n%4 = attention %0, %1, %2, scale=0.125, mask=[cap(30.0), add(%3), causal] : f32[S, 32]\n\
                  %5 = abs %4 : f32[S, 32]\nreturn %5\n}";
    let mut module = parse(source);
    optimise(&mut module, &Options::default(), &mut Collected::default()).unwrap_or_else(|e| panic!("{e}"));
    let tiles = lower(ir::verify(&module).unwrap_or_else(|e| panic!("{e}"))).unwrap_or_else(|e| panic!("{e}"));
    let source = tile::text::print(&tiles);
    let verified = |source: &str| {
        let file = SourceMap::new().add("test.tir", source);
        let read = tile::text::parse(source, file).unwrap_or_else(|d| panic!("{:?}\n{source}", d.sorted()));
        tile::verify::VerifiedModule::new(read.module).map_err(|e| e.to_string())
    };
    let read = verified(&source).unwrap();
    assert_eq!(tile::text::print(&read), source);
    let forms = until(&read, &Machine::from(Cpu::AVX2), "expand-attention");
    assert!(tile::text::print(&forms).contains("= exp2 "), "{source}");
    let here = |wanted: &str| format!("the kernel's description (`computes`) has `{wanted}` here");
    for (from, to, wanted) in [
        // The body says otherwise.
        ("= max ", "= min ", here("max")),
        ("= tanh ", "= abs ", here("tanh")),
        ("= exp ", "= exp2 ", here("exp")),
        ("= div ", "= mul ", here("div")),
        ("= le ", "= lt ", here("le")),
        // The description does.
        ("%m0 = const 0.125 ", "%m0 = const 0.250 ", here("const 0.25 : f32")),
        ("%m1 = const 30.0 ", "%m1 = const 31.0 ", here("const 31.0 : f32")),
        ("  add %m2\n", "  cap %m2\n", here("load_scalar")),
        ("  causal\n", "", here("max")),
        ("%m2 = buffer 3\n", "%m2 = buffer 2\n", "`load` of other operands or another type here".into()),
        ("%m2 = buffer 3\n", "%m2 = buffer 9\n", "does not fit its parameters or its body".into()),
    ] {
        let other = source.replacen(from, to, 1).replace("0.250", "0.25");
        assert!(other != source, "{from} is not in it:\n{source}");
        let complaint = verified(&other).err().unwrap_or_else(|| panic!("{to} is taken for {from}:\n{other}"));
        assert!(complaint.contains(&wanted), "{from}: {complaint}");
    }
    // What no lowering writes is refused, by the parser or the verifier.
    let long: String = (0..5000).map(|n| format!("%y{} = add %y{n}, %y{n} : f32\n", n + 1)).collect();
    let long = format!("%y0 = const 1.0 : f32\n{long}add %y5000");
    for lines in [
        "",
        "%x = position 99 : i32\nadd %x",
        "%x = position 18446744073709551615 : f16\nadd %x",
        "%x = buffer 18446744073709551615\nadd %x",
        "%x = buffer 99999999999999999999999\nadd %x",
        "%x = const nan : bf16\nadd %x",
        "%x = const -9223372036854775808 : i8\nadd %x",
        "%x = const 1 : f32\nadd %x",
        "%x = dim S*T*S*T-9223372036854775807*S : i8\nadd %x",
        "%x = select : bool\nkeep %x, %x",
        "%x = const true : bool\nkeep %x, %x",
        "%x = const true : bool\n%y = const -inf : f32\nkeep %y, %x",
        "%x = add %x, %x : f32\nadd %x",
        "%x = load %m1 : f32\nadd %x",
        "%x = position 1 : i32\n%x = position 1 : i32\nadd %x",
        "%x = position 1 : i32\n%y = cast %x : i64\n%z = narrow %y, elem=i8 : i64\nsink %z",
        "add %m1",
        "add",
        "causal %m2",
        "scale %m0",
        "dot",
        long.as_str(),
    ] {
        let other = source.replacen("  %m2 = buffer 3\n  add %m2", lines, 1);
        assert!(other != source, "no addition is in it:\n{source}");
        let file = SourceMap::new().add("test.tir", other.as_str());
        let read = tile::text::parse(&other, file).map(|read| tile::verify::VerifiedModule::new(read.module));
        assert!(!matches!(read, Ok(Ok(_))), "{lines} is accepted");
    }
}

/// The forms read keys and values in other orders, or from copies: a kernel that writes the keys, or has the values in what it does
/// to its result, stays as it is.
#[test]
fn attention_whose_operands_are_needed_otherwise_has_no_forms() {
    for source in [include_str!("attention_writes_keys.tir"), include_str!("attention_reads_values.tir")] {
        let file = SourceMap::new().add("test.tir", source);
        let Ok(read) = tile::text::parse(source, file) else { panic!("it is not read:\n{source}") };
        let read = tile::verify::VerifiedModule::new(read.module).unwrap_or_else(|e| panic!("{e}"));
        for cpu in Cpu::NAMED {
            let forms = until(&read, &Machine::from(cpu), "expand-attention");
            let print = |module: &tile::Module| {
                let text = tile::text::print(module);
                text.lines().filter(|line| !line.starts_with("scheduled ")).collect::<Vec<_>>().join("\n")
            };
            assert!(print(&read) == print(&forms), "{cpu}:\n{source}");
        }
    }
}

/// An unscheduled text says all: read back and scheduled, it becomes what the module becomes that it was printed of.
#[test]
fn texts_are_scheduled_as_modules_are() {
    for (name, module) in examples() {
        let verified = ir::verify(module).unwrap_or_else(|e| panic!("{name}: {e}"));
        let tiles = lower(verified).unwrap_or_else(|e| panic!("{name}: {e}"));
        let text = tile::text::print(&tiles);
        let file = SourceMap::new().add("test.tir", text.as_str());
        let Ok(read) = tile::text::parse(&text, file) else { panic!("{name} is not read back") };
        let read = tile::verify::VerifiedModule::new(read.module).unwrap_or_else(|e| panic!("{name}: {e}"));
        for cpu in [Cpu::PORTABLE, Cpu::AVX512, Cpu::AMX] {
            for weights in WeightFormat::ALL.map(WeightChoice::from) {
                let schedule = |tiles| {
                    let scheduled = tile::schedule(tiles, cpu, &weights).unwrap_or_else(|e| panic!("{name}: {e}"));
                    tile::text::print(&scheduled)
                };
                assert!(schedule(&tiles) == schedule(&read), "{name}, {cpu}, {weights:?}");
            }
        }
    }
}

/// Products that no description says, or whose epilogue depends on the size of a tile, keep their tiles and operands; a
/// description of another product is refused.
#[test]
fn other_products_stay_as_they_are() {
    let source = "module \"m\"\n\nkernel @p.0(%a: in f32[S, 16], %b: in f32[16, 128], %y: out f32[S, 128]) symbols(S) \
                  grid(%i: ceil(S, 64), %j: ceil(128, 64)) computes(matmul, plain=false) {\n^bb0:\n  %n = const 64 : index\n  \
                  %r = mul %i, %n : index\n  %s = dim S : index\n  %d = sub %s, %r : index\n  %m = min %d, %n : index\n  \
                  %c = mul %j, %n : index\n  %f = const 0.0 : f32\n  %t = full %f : tile f32[%m<=64, 64]\n  \
                  %z = const 0 : index\n  %x = load %a[%r, %z], rows=0, cols=1 : tile f32[%m<=64, 16]\n  \
                  %w = load %b[%z, %c], rows=0, cols=1 : tile f32[16, 64]\n  %p = dot %x, %w, %t : tile f32[%m<=64, 64]\n  \
                  %q = add %p, %p : tile f32[%m<=64, 64]\n  store %y[%r, %c], %q, rows=0, cols=1\n  return\n}\n";
    let grid = |source: &str| {
        let file = SourceMap::new().add("test.tir", source);
        let module = tile::text::parse(source, file).unwrap_or_else(|d| panic!("{:?}", d.sorted())).module;
        let module = tile::verify::VerifiedModule::new(module).map_err(|e| e.to_string())?;
        let tiles = tile::schedule(&module, Cpu::AVX2, &WeightChoice::default()).unwrap_or_else(|e| panic!("{e}"));
        Ok::<_, String>(tiles.kernels[0].grid.iter().map(|g| g.step).collect::<Vec<i64>>())
    };
    assert_eq!(grid(source), Ok(vec![256, 16]));
    for (from, to) in [
        // Columns are counted from another place, the whole tile is reduced, nothing says that it is a product.
        (
            "%q = add %p, %p : tile",
            "%k = add %c, %n : index\n  %o = iota %k, axis=1 : tile i32[1, 64]\n  %e = cast %o : tile f32[1, 64]\n  \
             %q = add %p, %e : tile",
        ),
        ("%q = add %p, %p :", "%k = reduce_max %p, axis=1 : tile f32[%m<=64, 1]\n  %q = add %p, %k :"),
        (" computes(matmul, plain=false)", ""),
    ] {
        assert_eq!(grid(&source.replace(from, to)), Ok(vec![64, 64]), "{to}");
    }
    for (from, to) in [
        ("%w = load %b[%z, %c]", "%w = load %b[%z, %z]"),
        ("%f = const 0.0", "%f = const 1.0"),
        ("%f = const 0.0", "%k = add %j, %j : index\n  %f = const 0.0"),
        ("matmul, plain=false", "scan, axis=0"),
        ("matmul, plain=false", "copy"),
    ] {
        let complaint = grid(&source.replace(from, to)).expect_err(to);
        assert!(complaint.contains("description (`computes`)"), "{to}: {complaint}");
    }
}

/// A product over many known steps is one in unscheduled tile IR; the schedule sums as many at a time as its machine does.
#[test]
fn the_schedule_says_how_many_steps_are_summed() {
    let source = "func @f(%0 \"x\": f32[S, 4608]) -> (f32[S, 32]) {\n^bb0:\n\
                  %1 = param \"w\" : f32[4608, 32]\n%2 = matmul %0, %1 : f32[S, 32]\n%3 = abs %2 : f32[S, 32]\nreturn %3\n}";
    let mut module = parse(&format!("param \"w\" : f32[4608, 32]\n{source}"));
    optimise(&mut module, &Options::default(), &mut Collected::default()).unwrap_or_else(|e| panic!("{e}"));
    for (format, cpu, steps, mode) in [
        (WeightFormat::F32, Cpu::PORTABLE, 256, "chain"),
        (WeightFormat::F32, Cpu::AVX512, 256, "fma"),
        (WeightFormat::Int8, Cpu::AVX2, 256, "fma"),
        (WeightFormat::Int8, Cpu::AVX2_VNNI, 1024, "groups"),
        (WeightFormat::Int4, Cpu::AVX512, 1024, "groups"),
    ] {
        let verified = ir::verify(&module).unwrap_or_else(|e| panic!("{cpu}: {e}"));
        let tiles = lower(verified).unwrap_or_else(|e| panic!("{cpu}: {e}"));
        let kernel = |tiles: &tile::Module| {
            let found = tiles.kernels.iter().find(|k| k.name.starts_with("matmul")).cloned();
            tile::text::print_kernel(&found.unwrap(), &[])
        };
        let open = kernel(&tiles);
        assert!(open.contains("4608]\n") && !open.contains("^bb1"), "{cpu}: {open}");
        let tiles = tile::schedule(&tiles, cpu, &format.into()).unwrap_or_else(|e| panic!("{cpu}: {e}"));
        tile::verify::verify(&tiles).unwrap_or_else(|e| panic!("{cpu}:\n{e}"));
        let text = kernel(&tiles);
        let block = if 4608 % steps == 0 { format!(", {steps}] @window") } else { format!("<={steps}] @window") };
        assert!(text.contains(&block) && text.contains(&format!("mode={mode}")), "{cpu}: {text}");
    }
}
