//! Kernels that work in runs: random ones of tile IR, scheduled for a GPU, give in the simulator what the interpreter of tile IR says.
//! Loads along any axes, broadcasting, reductions along both, transpositions, products, loops that carry tiles, extents that are
//! bounded at run time, empty ones too.

use std::collections::BTreeMap;

use attnc::codegen::ptx::info::{Grid, ParamInfo};
use attnc::codegen::ptx::{self, KernelInfo};
use attnc::ir::interp::Limits;
use attnc::ptx::sim::{Device, Launch, Mode, Module as Loaded};
use attnc::ptx::text::print;
use attnc::random::Random;
use attnc::tile::interp::{Argument, run_kernel};
use attnc::tile::verify::VerifiedModule;
use attnc::tile::{GpuArch, Kernel, Module, schedule_for_gpu, text};

use crate::gen_tile::{contents, make, make_of, sizes};

/// How many kernels are made.
const KERNELS: u64 = 48;
/// How many of them have large tiles.
const LARGE: u64 = 5;

/// Schedules kernels and compiles them.
pub(crate) fn compiled(kernels: Vec<Kernel>, arch: GpuArch) -> (VerifiedModule, String, Vec<KernelInfo>) {
    let module = Module { name: "random".into(), kernels, sites: vec!["{0} of {1}".into()], ..Module::default() };
    let module = VerifiedModule::new(module).unwrap_or_else(|e| panic!("{e}"));
    let scheduled = schedule_for_gpu(&module, arch).unwrap_or_else(|e| panic!("{e}"));
    // What the schedule made is verified again, with every proof.
    let scheduled = VerifiedModule::new(scheduled.into_module()).unwrap_or_else(|e| panic!("{e}"));
    let (module, infos) = ptx::compile(&scheduled, arch).unwrap_or_else(|e| panic!("{e}"));
    (scheduled, print(&module), infos)
}

/// How many blocks a launch has.
fn blocks(info: &KernelInfo, symbols: &BTreeMap<String, i64>) -> u32 {
    let Grid::Axes(axes) = &info.grid else { panic!("a grid of axes") };
    let count = |(extent, step): &(attnc::shape::Dim, i64)| {
        let n = extent.eval(&|s| symbols.get(s).copied()).expect("a number");
        (n + step - 1) / step
    };
    u32::try_from(axes.iter().map(count).product::<i64>()).expect("few blocks")
}

/// Launches a kernel on copies of buffers; what they hold then, and what the launch says of a failed check.
pub(crate) fn launch(
    loaded: &Loaded,
    info: &KernelInfo,
    symbols: &BTreeMap<String, i64>,
    buffers: &[Vec<u8>],
    mode: Mode,
) -> Result<(Vec<Vec<u8>>, [u64; 3]), String> {
    let mut device = Device::new();
    let mut words: Vec<[u8; 8]> = info.symbols.iter().map(|s| symbols[s].to_le_bytes()).collect();
    let mut places = Vec::new();
    let params = info.params.iter().zip(buffers);
    for (param, bytes) in params {
        assert!(matches!(param, ParamInfo::Buffer { .. }), "only buffers");
        let at = device.alloc(bytes.len().max(1));
        // What a kernel leaves out stays as it was.
        device.write(at, bytes)?;
        places.push((at, bytes.len()));
        words.push(at.to_le_bytes());
    }
    let fault = device.alloc(32);
    device.write(fault, &[0; 32])?;
    words.push(fault.to_le_bytes());
    let grid = blocks(info, symbols);
    if grid > 0 {
        let params: Vec<&[u8]> = words.iter().map(<[u8; 8]>::as_slice).collect();
        let launch = Launch {
            kernel: &info.name,
            grid: [grid, 1, 1],
            block: info.threads,
            cluster: None,
            shared_bytes: info.dynamic_shared,
            cooperative: false,
            params: &params,
        };
        device.launch(loaded, &launch, mode).map_err(|report| report.to_string())?;
    }
    let out = places.iter().map(|(at, n)| device.read(*at, *n)).collect::<Result<_, String>>()?;
    let said = device.read(fault, 24)?;
    let word = |n: usize| u64::from_le_bytes(said[8 * n..8 * n + 8].try_into().expect("8 bytes"));
    Ok((out, [word(0), word(1), word(2)]))
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Are the floats of two buffers the same but for what another order of sums changes?
fn near(a: &[u8], b: &[u8]) -> Result<(), String> {
    for (n, (x, y)) in floats(a).iter().zip(&floats(b)).enumerate() {
        let same = x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= 1e-4 * (1.0 + x.abs().max(y.abs()));
        if !same {
            return Err(format!("element {n}: expected {x}, found {y}"));
        }
    }
    Ok(())
}

/// Compares kernels with the interpreter, at some sizes.
fn compare(arch: GpuArch, kernels: Vec<(u64, Kernel)>, sizes: &[BTreeMap<String, i64>]) {
    let open: Vec<Kernel> = kernels.iter().map(|(_, k)| k.clone()).collect();
    let (scheduled, text_of, infos) = compiled(open, arch);
    let loaded = Loaded::load(&text_of).unwrap_or_else(|e| panic!("{e}"));
    for ((seed, open), (kernel, info)) in kernels.iter().zip(scheduled.kernels.iter().zip(&infos)) {
        for symbols in sizes {
            let given = contents(&mut Random::new(*seed), symbols);
            let mut expected: Vec<Argument> = given.iter().cloned().map(Argument::Buffer).collect();
            let mut again = expected.clone();
            let what = || format!("kernel {seed} at {symbols:?}\n{}", text::print_kernel(kernel, &[]));
            run_kernel(open, symbols, &mut expected, Limits::default()).unwrap_or_else(|e| panic!("{e}\n{}", what()));
            // The scheduled kernel, interpreted, and its code in both orders.
            run_kernel(kernel, symbols, &mut again, Limits::default()).unwrap_or_else(|e| panic!("{e}\n{}", what()));
            let modes = [Mode::EAGER.seeded(*seed), Mode::LATEST.seeded(seed + 1)];
            let given = modes.map(|mode| {
                launch(&loaded, info, symbols, &given, mode).unwrap_or_else(|e| panic!("{e}\n{}", what())).0
            });
            assert_eq!(given[0], given[1], "the orders differ: {}", what());
            for (n, argument) in expected.iter().enumerate() {
                let (Argument::Buffer(want), Argument::Buffer(scheduled)) = (argument, &again[n]) else { continue };
                near(want, scheduled).unwrap_or_else(|e| panic!("scheduled, buffer {n}, {e}: {}", what()));
                near(want, &given[0][n]).unwrap_or_else(|e| panic!("code, buffer {n}, {e}: {}", what()));
            }
        }
    }
}

#[test]
fn random_kernels_give_what_the_interpreter_does() {
    for (arch, seeds) in [(GpuArch::Sm80, 0..KERNELS), (GpuArch::Sm90a, KERNELS..KERNELS + 4)] {
        let named = |seed| (seed, Kernel { name: format!("random.{seed}"), ..make("", &mut Random::new(seed), true) });
        compare(arch, seeds.map(named).collect(), &sizes());
    }
}

/// With tiles for several warps: results that more threads than a warp's compute, products in several blocks and slices.
#[test]
fn random_kernels_of_several_warps_give_what_the_interpreter_does() {
    let tiles = [[2, 24, 40], [1, 40, 130]];
    let named = |seed| {
        let kernel = make_of("", &mut Random::new(seed), true, tiles, 40);
        (seed, Kernel { name: format!("large.{seed}"), ..kernel })
    };
    let sizes = [(50, 140, 37), (3, 41, 16)]
        .map(|(r, c, k)| [("R", r), ("C", c), ("K", k)].map(|(s, n)| (s.to_string(), n)).into());
    compare(GpuArch::Sm90a, (0..LARGE).map(named).collect(), &sizes);
}
