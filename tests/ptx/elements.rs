//! Work on elements in the simulator: every operation of every type, special numbers among its operands, against the interpreter of
//! tile IR; every type in memory; every reduction along both axes; checks of indices.

use std::collections::BTreeMap;

use attnc::ir::interp::Limits;
use attnc::ptx::sim::{Mode, Module as Loaded};
use attnc::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp};
use attnc::shape::{Dim, Elem};
use attnc::tile::interp::{Argument, run_kernel};
use attnc::tile::{BufferType, Extent, GpuArch, Kernel, KernelBuilder, Op, ParamMode, Type, Value, row_major};

use crate::runs::{compiled, launch};

const ONE: Extent = Extent::Static(1);

fn buffer(elem: Elem, shape: &[i64]) -> BufferType {
    let shape: Vec<Dim> = shape.iter().map(|n| Dim::from(*n)).collect();
    BufferType { elem, strides: row_major(&shape), shape }
}

/// Numbers of a type that are worth trying: zeros, limits, fractions, infinities, NaN.
fn numbers(elem: Elem) -> Vec<Scalar> {
    match elem {
        Elem::F32 | Elem::BF16 | Elem::F16 => [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.5,
            1.5,
            2.5,
            -2.5,
            3.0,
            -7.25,
            0.1,
            1e-3,
            20.0,
            -20.0,
            88.0,
            1e-40,
            3e38,
            -3e38,
            1e-8,
            65504.0,
            70000.0,
            2_147_483_648.0,
            -1e19,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ]
        .map(Scalar::Float)
        .to_vec(),
        Elem::I8 | Elem::I32 | Elem::I64 => {
            let limits = match elem {
                Elem::I8 => [127, -128],
                Elem::I32 => [i64::from(i32::MAX), i64::from(i32::MIN)],
                _ => [i64::MAX, i64::MIN],
            };
            [0, 1, -1, 2, -2, 3, 7, -7, 31, 33, 64, 100, -100, limits[0], limits[1]].map(Scalar::Int).to_vec()
        }
        Elem::Bool => [true, false].map(Scalar::Bool).to_vec(),
    }
}

fn bytes(x: Scalar, elem: Elem) -> Vec<u8> {
    match elem {
        Elem::F32 => (x.as_f64() as f32).to_le_bytes().to_vec(),
        Elem::BF16 => half::bf16::from_f64(x.as_f64()).to_le_bytes().to_vec(),
        Elem::F16 => half::f16::from_f64(x.as_f64()).to_le_bytes().to_vec(),
        Elem::I8 => vec![x.as_i64() as i8 as u8],
        Elem::I32 => (x.as_i64() as i32).to_le_bytes().to_vec(),
        Elem::I64 => x.as_i64().to_le_bytes().to_vec(),
        Elem::Bool => vec![u8::from(x.as_f64() != 0.0)],
    }
}

/// Each number beside each other: two buffers of the same length.
fn pairs(elem: Elem) -> [Vec<u8>; 2] {
    let all = numbers(elem);
    let both = || all.iter().flat_map(|x| all.iter().map(move |y| (*x, *y)));
    [both().flat_map(|(x, _)| bytes(x, elem)).collect(), both().flat_map(|(_, y)| bytes(y, elem)).collect()]
}

/// A kernel over two buffers of `n` elements, with what it is given and the type of its result.
struct Case {
    kernel: Kernel,
    given: Vec<Vec<u8>>,
    result: Elem,
    /// Are results the same to the bit (zeros and NaNs aside)?
    exact: bool,
}

/// A kernel that computes an element for each pair.
fn case(
    name: &str,
    elem: Elem,
    result: Elem,
    exact: bool,
    f: impl FnOnce(&mut KernelBuilder, Value, Value) -> Value,
) -> Case {
    let [x, y] = pairs(elem);
    let n = (numbers(elem).len() as i64).pow(2);
    let mut kb = KernelBuilder::new(name);
    let (a, b) = (kb.buffer(buffer(elem, &[n]), ParamMode::In), kb.buffer(buffer(elem, &[n]), ParamMode::In));
    let out = kb.buffer(buffer(result, &[n]), ParamMode::Out);
    let zero = kb.index(0);
    let load = |kb: &mut KernelBuilder, b| kb.load(b, &[zero], (None, Some(0)), ONE, Extent::Static(n));
    let (a, b) = (load(&mut kb, a), load(&mut kb, b));
    let made = f(&mut kb, a, b);
    kb.store(out, &[zero], (None, Some(0)), made);
    let room = vec![0; n as usize * result.size() as usize];
    Case { kernel: kb.finish(), given: vec![x, y, room], result, exact }
}

fn number(bytes: &[u8], elem: Elem) -> f64 {
    match elem {
        Elem::F32 => f64::from(f32::from_le_bytes(bytes.try_into().expect("4 bytes"))),
        Elem::BF16 => half::bf16::from_le_bytes(bytes.try_into().expect("2 bytes")).to_f64(),
        Elem::F16 => half::f16::from_le_bytes(bytes.try_into().expect("2 bytes")).to_f64(),
        _ => 0.0,
    }
}

/// Runs all cases, in the simulator and by the interpreter.
fn check(cases: Vec<Case>) {
    let (scheduled, text, infos) = compiled(cases.iter().map(|c| c.kernel.clone()).collect(), GpuArch::Sm80);
    let loaded = Loaded::load(&text).unwrap_or_else(|e| panic!("{e}"));
    let symbols = BTreeMap::new();
    let mut wrong = Vec::new();
    for (case, info) in cases.iter().zip(&infos) {
        let mut expected: Vec<Argument> = case.given.iter().cloned().map(Argument::Buffer).collect();
        run_kernel(&case.kernel, &symbols, &mut expected, Limits::default()).unwrap_or_else(|e| panic!("{e}"));
        let found = match launch(&loaded, info, &symbols, &case.given, Mode::LATEST) {
            Ok((found, _)) => found,
            Err(report) => panic!("{}: {report}", case.kernel.name),
        };
        let (Some(Argument::Buffer(want)), Some(got)) = (expected.last(), found.last()) else { continue };
        let size = case.result.size() as usize;
        for (n, (a, b)) in want.chunks_exact(size).zip(got.chunks_exact(size)).enumerate() {
            let same = if case.result.is_float() {
                let (x, y) = (number(a, case.result), number(b, case.result));
                let near = (x - y).abs() <= 4e-6 * x.abs() + 1e-9;
                x == y || x.is_nan() && y.is_nan() || !case.exact && near
            } else {
                a == b
            };
            if !same {
                let input = |i: usize| {
                    let all = &case.given[i];
                    let size = all.len() / (want.len() / size).max(1);
                    all.get(n * size..(n + 1) * size).map(<[u8]>::to_vec).unwrap_or_default()
                };
                wrong.push(format!(
                    "{} of {:?} and {:?}: expected {a:?}, found {b:?}",
                    case.kernel.name,
                    input(0),
                    input(1)
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong, such as\n{}",
        wrong.len(),
        wrong.iter().take(12).cloned().collect::<Vec<_>>().join("\n")
    );
    assert_eq!(scheduled.kernels.len(), cases.len());
}

const COMPUTED: [Elem; 4] = [Elem::F32, Elem::I32, Elem::I64, Elem::Bool];

#[test]
fn every_operation_on_elements_is_that_of_the_interpreter() {
    let mut cases = Vec::new();
    for elem in COMPUTED {
        for op in UnaryOp::ALL.iter().filter(|op| op.takes(elem)) {
            // What the interpreter computes in `f64` and rounds, code computes in `f32`.
            let exact = elem != Elem::F32 || !op.is_function();
            cases.push(case(&format!("{op}.{elem}"), elem, elem, exact, |kb, a, _| kb.unary(*op, a)));
        }
        for op in BinaryOp::ALL.iter().filter(|op| op.takes(elem)) {
            let exact = elem != Elem::F32 || !matches!(op, BinaryOp::Pow);
            cases.push(case(&format!("{op}.{elem}"), elem, elem, exact, |kb, a, b| kb.binary(*op, a, b)));
        }
        for op in CmpOp::ALL {
            cases.push(case(&format!("{op}.{elem}"), elem, Elem::Bool, true, |kb, a, b| kb.compare(*op, a, b)));
        }
        cases.push(case(&format!("select.{elem}"), elem, elem, true, |kb, a, b| {
            let first = kb.compare(CmpOp::Le, a, b);
            kb.select(first, a, b)
        }));
        for to in COMPUTED.into_iter().filter(|to| *to != elem) {
            cases.push(case(&format!("cast.{elem}.{to}"), elem, to, true, |kb, a, _| kb.cast(a, to)));
        }
    }
    for to in [Elem::BF16, Elem::F16] {
        cases.push(case(&format!("narrow.{to}"), Elem::F32, Elem::F32, true, |kb, a, _| kb.narrow(a, to)));
    }
    cases.push(case("narrow.i8", Elem::I32, Elem::I32, true, |kb, a, _| kb.narrow(a, Elem::I8)));
    check(cases);
}

#[test]
fn every_type_in_memory_is_read_and_written() {
    let cases = Elem::ALL.map(|elem| case(&format!("copy.{elem}"), elem, elem, true, |_, _, b| b));
    check(cases.into());
}

#[test]
fn every_reduction_is_that_of_the_interpreter() {
    let kinds = |elem: Elem| -> &[ReduceKind] {
        match elem {
            Elem::Bool => &[ReduceKind::All, ReduceKind::Any],
            _ => &[ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::ArgMax],
        }
    };
    let mut cases = Vec::new();
    for elem in COMPUTED {
        // Within a warp, over several warps, by a thread alone, over threads that are apart.
        for (rows, cols) in [(3, 40), (1, 700), (200, 5), (37, 1), (9, 33)] {
            for (kind, axis) in kinds(elem).iter().flat_map(|kind| [(*kind, 0), (*kind, 1)]) {
                let mut kb = KernelBuilder::new(&format!("{kind}.{elem}.{rows}.{cols}.{axis}"));
                let x = kb.buffer(buffer(elem, &[rows, cols]), ParamMode::In);
                let result = if kind == ReduceKind::ArgMax { Elem::I32 } else { elem };
                let out = kb.buffer(buffer(result, &[if axis == 0 { cols } else { rows }]), ParamMode::Out);
                let zero = kb.index(0);
                let tile = kb.load(x, &[zero, zero], (Some(0), Some(1)), Extent::Static(rows), Extent::Static(cols));
                let reduced = kb.reduce(kind, axis, tile);
                let along = if axis == 0 { (None, Some(0)) } else { (Some(0), None) };
                kb.store(out, &[zero], along, reduced);
                // Small integers, whose sums are exact in any order, with equal ones and, in one row, a NaN.
                let value = |n: i64| match elem {
                    Elem::F32 if kind != ReduceKind::Sum && n == 2 * cols + 1 => Scalar::Float(f64::NAN),
                    Elem::Bool => Scalar::Bool(if kind == ReduceKind::All { n % 53 != 7 } else { n % 53 == 7 }),
                    Elem::F32 => Scalar::Float((n * 7919 % 23 - 11) as f64),
                    _ => Scalar::Int(n * 7919 % 23 - 11),
                };
                let given = (0..rows * cols).flat_map(|n| bytes(value(n), elem)).collect();
                let room = vec![0; (if axis == 0 { cols } else { rows }) as usize * result.size() as usize];
                cases.push(Case { kernel: kb.finish(), given: vec![given, room], result, exact: true });
            }
        }
    }
    check(cases);
}

/// A failed check is reported once, with the first index found and its bound, and its block writes nothing more.
#[test]
fn a_failed_check_of_an_index_is_reported() {
    let mut kb = KernelBuilder::new("pick");
    let x = kb.buffer(buffer(Elem::F32, &[5]), ParamMode::In);
    let at = kb.buffer(buffer(Elem::I64, &[4]), ParamMode::In);
    let out = kb.buffer(buffer(Elem::F32, &[4]), ParamMode::Out);
    let point = kb.grid_axis(&Dim::from(4), 1);
    let i = kb.load_scalar(at, &[point]);
    let i = kb.to_index(i);
    let bound = kb.index(5);
    let i = kb.check_index(i, bound, 0);
    let element = kb.load_scalar(x, &[i]);
    let tile = kb.value(Op::Full, vec![element], Type::Tile(KernelBuilder::tile_type(Elem::F32, ONE, ONE)));
    kb.store(out, &[point], (None, None), tile);
    let (_, text, infos) = compiled(vec![kb.finish()], GpuArch::Sm80);
    let loaded = Loaded::load(&text).unwrap_or_else(|e| panic!("{e}"));
    let numbers = |all: [f32; 5]| all.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let indices = |all: [i64; 4]| all.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let x = numbers([1.0, 2.0, 3.0, 4.0, 5.0]);
    let run = |at: [i64; 4]| {
        let given = [x.clone(), indices(at), vec![0; 16]];
        let (found, fault) =
            launch(&loaded, &infos[0], &BTreeMap::new(), &given, Mode::EAGER).unwrap_or_else(|e| panic!("{e}"));
        let out: Vec<f32> =
            found[2].chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes"))).collect();
        (out, fault)
    };
    assert_eq!(run([4, 0, 2, 1]), (vec![5.0, 1.0, 3.0, 2.0], [0, 0, 0]));
    assert_eq!(run([0, -3, 1, 4]), (vec![1.0, 0.0, 2.0, 5.0], [1, -3i64 as u64, 5]));
    assert_eq!(run([0, 1, 1, 5]), (vec![1.0, 2.0, 2.0, 0.0], [1, 5, 5]));
}
