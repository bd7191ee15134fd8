//! The toy model: a descriptor by hand, kernels from `kernels.rs`, linked once for all tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use attnc::runtime::descriptor::{
    Check, Comparison, DimText, Entry, ModelDescriptor, Param, PlanCode, Symbol, Tap, Tensor, Variant,
};
use attnc::runtime::expr::Expr;
use attnc::runtime::load::CompiledModel;
use attnc::runtime::{link, object};
use attnc::shape::{Dim, Elem};
use attnc::tensor::Tensor as Host;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_module::{Linkage, Module, default_libcall_names};
use cranelift_object::{ObjectBuilder, ObjectModule};

/// A folder that lives as long as the tests run.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().expect("a temporary folder")).path()
}

pub(crate) fn dim(text: &str, d: Dim) -> DimText {
    DimText { dim: d, text: text.to_owned() }
}

pub(crate) fn s() -> DimText {
    DimText::canonical(Dim::symbol("S"))
}

fn d() -> DimText {
    dim("D", Dim::from(4))
}

pub(crate) fn tensor(name: &str, elem: Elem, batch: bool, dims: &[DimText]) -> Tensor {
    Tensor { name: name.to_owned(), elem, batch, dims: dims.to_vec() }
}

pub(crate) fn symbol(name: &str, arg: usize, axis: usize) -> Symbol {
    Symbol { name: name.to_owned(), text: name.to_owned(), arg, axis, scale: 1, offset: 0 }
}

pub(crate) fn param(pattern: &str, extents: &[u64], dims: &[DimText]) -> Param {
    Param { pattern: pattern.to_owned(), extents: extents.to_vec(), elem: Elem::F32, dims: dims.to_vec() }
}

pub(crate) fn plan(function: &str, arena: Expr) -> PlanCode {
    PlanCode { plan: function.to_owned(), tapped: None, arena, tapped_arena: Expr::constant(0), scratch: 16 }
}

pub(crate) fn entry(
    name: &str,
    signature: &str,
    symbols: Vec<Symbol>,
    args: Vec<Tensor>,
    results: Vec<Tensor>,
) -> Entry {
    Entry {
        name: name.to_owned(),
        doc: format!("The toy's {name}."),
        signature: format!("{name}{signature}"),
        symbols,
        batch_symbol: None,
        args,
        checks: Vec::new(),
        results,
        taps: Vec::new(),
        sets_states: false,
    }
}

/// The descriptor; its plans are in `kernels.rs`.
pub(crate) fn descriptor() -> ModelDescriptor {
    let mut scale = entry(
        "scale",
        "(x: f32[.., S, D]) -> f32[.., S, D]",
        vec![symbol("..", 0, 0), symbol("S", 0, 0)],
        vec![tensor("x", Elem::F32, true, &[s(), d()])],
        vec![tensor("result", Elem::F32, true, &[s(), d()])],
    );
    scale.batch_symbol = Some(0);
    scale.taps.push(Tap {
        pattern: "h.*.partial".to_owned(),
        extents: vec![3],
        elem: Elem::F32,
        batch: true,
        dims: vec![s(), d()],
        stacked: 0,
        cost: "one more store for each layer".to_owned(),
    });
    let gather = entry(
        "gather",
        "(tokens: i32[S]) -> f32[S, D]",
        vec![symbol("S", 0, 0)],
        vec![tensor("tokens", Elem::I32, false, &[s()])],
        vec![tensor("result", Elem::F32, false, &[s(), d()])],
    );
    let odd = Dim::symbol("S").mul(&Dim::from(2)).add(&Dim::one());
    let mut pair = entry(
        "pair",
        "(x: f32[S], y: f32[2*S + 1]) -> (f32[S], i64[S + 1], bool[]) where S <= 100",
        vec![Symbol { scale: 2, offset: 1, ..symbol("S", 1, 0) }],
        vec![tensor("x", Elem::F32, false, &[s()]), tensor("y", Elem::F32, false, &[dim("2*S + 1", odd)])],
        vec![
            tensor("result.0", Elem::F32, false, &[s()]),
            tensor("result.1", Elem::I64, false, &[dim("S + 1", Dim::symbol("S").add(&Dim::one()))]),
            tensor("result.2", Elem::Bool, false, &[]),
        ],
    );
    pair.checks.push(Check {
        left: Expr::symbol(0),
        comparison: Comparison::Le,
        right: Expr::constant(100),
        text: "S <= 100".to_owned(),
        place: "toy.attn:3:9".to_owned(),
    });
    let kinds = [("a", Elem::BF16), ("b", Elem::F16), ("c", Elem::I8), ("d", Elem::I64), ("e", Elem::Bool)];
    let copy = entry(
        "copy",
        "(a: bf16[S], b: f16[S], c: i8[S], d: i64[S], e: bool[S]) -> (bf16[S], f16[S], i8[S], i64[S], bool[S])",
        vec![symbol("S", 0, 0)],
        kinds.iter().map(|(n, e)| tensor(n, *e, false, &[s()])).collect(),
        kinds.iter().enumerate().map(|(i, (_, e))| tensor(&format!("result.{i}"), *e, false, &[s()])).collect(),
    );
    let count = entry("count", "() -> i32[]", vec![], vec![], vec![tensor("result", Elem::I32, false, &[])]);
    let packed = entry("packed", "() -> f32[]", vec![], vec![], vec![tensor("result", Elem::F32, false, &[])]);
    let mut add = entry(
        "add",
        "(x: f32[.., D], y: f32[.., D]) -> f32[.., D]",
        vec![symbol("..", 0, 0)],
        vec![tensor("x", Elem::F32, true, &[d()]), tensor("y", Elem::F32, true, &[d()])],
        vec![tensor("result", Elem::F32, true, &[d()])],
    );
    add.batch_symbol = Some(0);
    let wait = entry(
        "wait",
        "(n: i64[]) -> i32[]",
        vec![],
        vec![tensor("n", Elem::I64, false, &[])],
        vec![tensor("result", Elem::I32, false, &[])],
    );
    // The same, and a failure loses the states.
    let mut remember = Entry { name: "remember".to_owned(), sets_states: true, ..gather.clone() };
    remember.signature = "remember(tokens: i32[S]) -> f32[S, D]".to_owned();
    let mut linger = Entry { name: "linger".to_owned(), sets_states: true, ..wait.clone() };
    linger.signature = "linger(n: i64[]) -> i32[]".to_owned();
    let count = Entry { sets_states: true, ..count };
    let scale_plan = PlanCode { tapped: Some("toy_scale_tapped".to_owned()), ..plan("toy_scale", Expr::constant(0)) };
    let bytes = Expr::symbol(0).times(Expr::constant(4)).round_up(64);
    let portable = Variant {
        name: "portable".to_owned(),
        features: 0,
        prepare: Some("toy_prepare".to_owned()),
        packed_bytes: 4,
        plans: vec![
            scale_plan,
            plan("toy_gather", Expr::constant(0)),
            plan("toy_pair", bytes),
            plan("toy_copy", Expr::constant(0)),
            plan("toy_count", Expr::constant(0)),
            plan("toy_packed", Expr::constant(0)),
            plan("toy_add", Expr::constant(0)),
            plan("toy_wait", Expr::constant(0)),
            plan("toy_gather", Expr::constant(0)),
            plan("toy_wait", Expr::constant(0)),
        ],
        cuda: None,
    };
    // No processor has all features that there will ever be.
    let tomorrow = Variant { name: "tomorrow".to_owned(), features: 1 << 63, ..portable.clone() };
    ModelDescriptor {
        name: "Toy".to_owned(),
        id: 0x0123_4567_89ab_cdef,
        doc: "A model for the runtime's tests.".to_owned(),
        target: "x86_64-unknown-linux-gnu".to_owned(),
        params: vec![
            param("scale", &[], &[d()]),
            param("h.*.bias", &[3], &[d()]),
            param("table", &[], &[dim("V", Dim::from(5)), d()]),
        ],
        states: vec![tensor("calls", Elem::I32, false, &[])],
        entries: vec![scale, gather, pair, copy, count, packed, add, wait, remember, linger],
        sites: vec!["index out of range: tokens holds {0} at {2}, and table has {1} rows (V)".to_owned()],
        variants: vec![tomorrow, portable],
    }
}

/// A model with nothing but `add`: no parameters, no states. Its names are such as C and Python keep for themselves.
pub(crate) fn bare_descriptor() -> ModelDescriptor {
    let mut model = descriptor();
    model.name = "9 Lives".to_owned();
    model.doc = "Ends */ comments /* and \"\"\" docstrings \\".to_owned();
    (model.params, model.states, model.sites) = (Vec::new(), Vec::new(), Vec::new());
    model.entries.retain(|e| e.name == "add");
    for e in &mut model.entries {
        e.name = "class".to_owned();
        e.doc = model.doc.clone();
        e.symbols[0].text = "int".to_owned();
        e.args[0].name = "lambda".to_owned();
        e.args[1].name = "batch".to_owned();
    }
    for v in &mut model.variants {
        v.prepare = None;
        v.plans.retain(|p| p.plan == "toy_add");
    }
    model
}

/// A model of this name with one entry point, `combine`, which adds or subtracts its arguments. Whatever is outside is the same.
pub(crate) fn combining(name: &str, id: u64, adds: bool) -> ModelDescriptor {
    let mut model = bare_descriptor();
    (model.name, model.id, model.doc) = (name.to_owned(), id, String::new());
    for e in &mut model.entries {
        e.name = "combine".to_owned();
        e.signature = "combine(x: f32[.., D], y: f32[.., D]) -> f32[.., D]".to_owned();
        (e.args[0].name, e.args[1].name) = ("x".to_owned(), "y".to_owned());
        e.symbols[0].text = "..".to_owned();
    }
    for p in model.variants.iter_mut().flat_map(|v| &mut v.plans).filter(|_| !adds) {
        p.plan = "toy_subtract".to_owned();
    }
    model
}

/// The object file with the descriptor of `model`.
pub(crate) fn descriptor_object(model: &ModelDescriptor) -> Vec<u8> {
    let mut flags = settings::builder();
    flags.set("is_pic", "true").expect("a known setting");
    let isa = cranelift_codegen::isa::lookup_by_name(host()).expect("this machine's ISA");
    let isa = isa.finish(settings::Flags::new(flags)).expect("valid flags");
    let builder = ObjectBuilder::new(isa, "toy", default_libcall_names()).expect("an object builder");
    let mut module = ObjectModule::new(builder);
    let signature = module.make_signature();
    for v in &model.variants {
        let functions = v.plans.iter().flat_map(|p| [Some(&p.plan), p.tapped.as_ref()]).chain([v.prepare.as_ref()]);
        for f in functions.flatten() {
            module.declare_function(f, Linkage::Import, &signature).expect("a function");
        }
    }
    object::define(&mut module, model).expect("a descriptor");
    module.finish().emit().expect("an object file")
}

fn host() -> &'static str {
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" }
}

/// The object file with the kernels.
pub(crate) fn kernels() -> &'static [u8] {
    static KERNELS: OnceLock<Vec<u8>> = OnceLock::new();
    KERNELS.get_or_init(|| {
        let object = folder().join("kernels.o");
        let done = Command::new("rustc")
            .args(["--edition", "2021", "--crate-type", "lib", "--emit", "obj", "-C", "panic=abort"])
            .args(["-C", "opt-level=2", "-C", "relocation-model=pic", "-o"])
            .arg(&object)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/runtime/kernels.rs"))
            .output()
            .expect("rustc");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        std::fs::read(object).expect("the kernels' object file")
    })
}

/// The toy's `.so`.
pub(crate) fn so() -> &'static Path {
    static SO: OnceLock<PathBuf> = OnceLock::new();
    SO.get_or_init(|| {
        let so = folder().join("toy.so");
        link::link(&[&descriptor_object(&descriptor()), kernels()], &so).expect("a linked toy");
        so
    })
}

/// A safetensors file from a header and data.
pub(crate) fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(data);
    file
}

/// The header of a good weights file, and its data.
pub(crate) fn good_weights() -> (String, Vec<u8>) {
    let tensors = [("scale", "[4]"), ("h.0.bias", "[4]"), ("h.1.bias", "[4]"), ("h.2.bias", "[4]"), ("table", "[5,4]")];
    let (mut header, mut values) = (String::from("{\"__metadata__\":{\"format\":\"pt\"}"), Vec::new());
    for (i, (name, shape)) in tensors.iter().enumerate() {
        let count = if *name == "table" { 20 } else { 4 };
        let begin = values.len() * 4;
        values.extend((0..count).map(|j| (i * 100 + j) as f32));
        let end = values.len() * 4;
        header += &format!(",\"{name}\":{{\"dtype\":\"F32\",\"shape\":{shape},\"data_offsets\":[{begin},{end}]}}");
    }
    header.push('}');
    (header, values.iter().flat_map(|v| v.to_le_bytes()).collect())
}

/// The good weights as a file.
pub(crate) fn weights() -> &'static Path {
    static WEIGHTS: OnceLock<PathBuf> = OnceLock::new();
    WEIGHTS.get_or_init(|| {
        let path = folder().join("toy.safetensors");
        let (header, data) = good_weights();
        std::fs::write(&path, safetensors(&header, &data)).expect("a weights file");
        path
    })
}

/// The toy, open.
pub(crate) fn open() -> CompiledModel {
    open_with(0)
}

/// The toy, open with as many threads.
pub(crate) fn open_with(threads: i32) -> CompiledModel {
    // SAFETY: the toy is linked from our own objects.
    unsafe { CompiledModel::open(so(), Some(weights()), threads) }.expect("the toy opens")
}

/// `f32` values 0, 1, 2, ... in this shape.
pub(crate) fn counting(shape: &[usize]) -> Host {
    let count: usize = shape.iter().product();
    Host::from_f32(shape.to_vec(), &(0..count).map(|i| i as f32).collect::<Vec<_>>()).expect("values of the shape")
}

/// What `scale` gives for `x`, and its taps.
pub(crate) fn scaled(x: &[f32]) -> (Vec<f32>, Vec<Vec<f32>>) {
    let mut row: Vec<f32> = x.iter().enumerate().map(|(i, v)| v * (i % 4) as f32).collect();
    let mut taps = Vec::new();
    for h in 0..3 {
        for (i, v) in row.iter_mut().enumerate() {
            *v += ((h + 1) * 100 + i % 4) as f32;
        }
        taps.push(row.clone());
    }
    (row, taps)
}
