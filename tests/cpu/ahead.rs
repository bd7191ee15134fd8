//! Does a plan tell with each launch which packed weights a later one will read? Plans are run without their kernels, by a
//! runtime of three lines that writes down what it is told.

use std::process::Command;

use attnc::runtime::abi::{Kernel, ModelDesc, PlanContext, Slice};

/// GPT-2, small enough to be quick and large enough for its weights to be worth fetching.
const SIZES: [(&str, usize); 4] = [("L", 3), ("D", 128), ("H", 2), ("V", 600)];
/// An address that nothing is read from.
const PACKED: u64 = 1 << 40;

/// What the runtime is told of what comes next: the place in the packed weights, and bytes.
type Next = (u64, i64);

/// What is behind `PlanContext::runtime` here.
#[derive(Default)]
struct Told {
    next: Vec<Next>,
    bytes: Vec<i64>,
}

unsafe extern "C" fn launch(
    ctx: *mut PlanContext,
    _: Kernel,
    _: *const u64,
    _: i64,
    bytes: i64,
    next: *const u8,
    next_bytes: i64,
) -> i32 {
    // SAFETY: `told_by` has put it there.
    let told = unsafe { &mut *(*ctx).runtime.cast::<Told>() };
    told.next.push(((next as u64).wrapping_sub(PACKED), next_bytes));
    told.bytes.push(bytes);
    0
}

fn rows<T>(slice: &Slice<T>) -> &[T] {
    // SAFETY: a descriptor's tables are as long as they say.
    unsafe { std::slice::from_raw_parts(slice.ptr, slice.len as usize) }
}

fn output(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(out.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn attnc(emit: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/08_gpt2.attn"));
    command.args(["--entry", "Gpt2", "--cpu", "portable", "--emit", emit]);
    command.args(SIZES.map(|(name, n)| format!("--dim={name}={n}")));
    command
}

/// What the plan tells with each launch, at so many rows.
fn told_by(model: &ModelDesc, tokens: i64) -> Told {
    let mut told = Told::default();
    let tensors = vec![std::ptr::null::<u8>(); 64];
    let tables = vec![tensors.as_ptr(); rows(&model.params).len()];
    let (dims, places) = ([tokens], [std::ptr::null_mut::<u8>(); 8]);
    let mut context = PlanContext {
        dims: dims.as_ptr(),
        args: places.as_ptr().cast(),
        outs: places.as_ptr(),
        params: tables.as_ptr(),
        taps: places.as_ptr(),
        arena: std::ptr::null_mut(),
        scratch: std::ptr::null_mut(),
        packed: std::ptr::without_provenance_mut(PACKED as usize),
        states: places.as_ptr(),
        launch: Some(launch),
        fail: None,
        failed: 0,
        in_order: 0,
        read: None,
        runtime: (&raw mut told).cast(),
    };
    let plan = rows(&rows(&model.variants)[0].entries)[0].plan.expect("a plan");
    // SAFETY: the context has all tables that the plan looks into, and kernels are not run.
    assert_eq!(unsafe { plan(&mut context) }, 0);
    told
}

/// The packed areas of the plan's text: offset, and the extents of panels in each layer.
fn packed_areas() -> Vec<(u64, Vec<u64>)> {
    let text = output(attnc("tile=-").args(["-o", "-"]));
    let plan = text.split("\nplan @forward symbols").nth(1).and_then(|p| p.split("\n}").next()).expect("the plan");
    let area = |line: &str| {
        let (offset, rest) = line.split_once("= packed ")?.1.split_once(' ')?;
        let shape = rest.split_once("f32[")?.1.split_once(']')?.0;
        Some((offset.parse().ok()?, shape.split(", ").map(|n| n.parse().ok()).collect::<Option<_>>()?))
    };
    plan.lines().filter_map(area).collect()
}

#[test]
fn plans_tell_what_is_read_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    output(attnc("obj").arg("-o").arg(file("model.o")));
    std::fs::write(
        file("exported.c"),
        "extern char attnc_model_descriptor;\nvoid *descriptor(void) { return &attnc_model_descriptor; }\n",
    )
    .expect("a file");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).args(["plans.so", "exported.c", "model.o"].map(file)).arg("-lm");
    output(&mut cc);
    // SAFETY: it has no code that runs when it is opened.
    let library = unsafe { libloading::Library::new(file("plans.so")) }.expect("it opens");
    // SAFETY: the descriptor is one, and lives as long as the library.
    let model =
        unsafe { &*library.get::<unsafe extern "C" fn() -> *const ModelDesc>(b"descriptor").expect("a function")() };

    // The order in which the program reads weights.
    let areas = packed_areas();
    let d = SIZES[1].1 as u64;
    let of = |panels: u64, inner: u64| {
        let is = |shape: &[u64]| shape.ends_with(&[panels, inner, 8]) || shape == [panels, inner, 8];
        areas.iter().find(|(_, shape)| is(shape)).unwrap_or_else(|| panic!("{panels} x {inner} in {areas:?}")).0
    };
    let mut reads: Vec<Next> = Vec::new();
    for layer in 0..SIZES[0].1 as u64 {
        for (columns, inner) in [(3 * d, d), (d, d), (4 * d, d), (d, 4 * d)] {
            let bytes = 4 * columns * inner;
            reads.push((of(columns / 8, inner) + layer * bytes, bytes as i64));
        }
    }
    let vocabulary = SIZES[3].1 as u64;
    reads.push((of(vocabulary / 8, d), (4 * vocabulary * d) as i64));
    reads.push((0u64.wrapping_sub(PACKED), 0));

    // Attention is one kernel or three, as there are few tokens or many.
    for (tokens, launches) in [(1, 2 + 3 * 7 + 2), (300, 2 + 3 * 9 + 2)] {
        let told = told_by(model, tokens);
        assert_eq!(told.next.len(), launches, "{tokens}");
        let mut next = told.next.clone();
        next.dedup();
        assert_eq!(next, reads, "{tokens}");
        // Once for each launch that reads no weights, and for the one that reads the weights before.
        let first = told.next.iter().take_while(|n| **n == reads[0]).count();
        assert_eq!(first, 3, "{tokens}");
        // The last launch is given its weights, a row for each token, and their results.
        let last = 4 * (vocabulary * d + tokens as u64 * (d + vocabulary));
        assert_eq!(told.bytes.last(), Some(&(last as i64)), "{tokens}");
    }
}
