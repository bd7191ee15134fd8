//! How long kernels take in the simulator's model of a multiprocessor.

use std::collections::BTreeMap;

use attnc::codegen::ptx::compile;
use attnc::ptx::sim::Mode;
use attnc::ptx::text::print;
use attnc::shape::Elem;
use attnc::simulated::Simulated;
use attnc::tensor::Tensor;
use attnc::tile::{self, GpuArch, PlanVariant};

use crate::tensor_cores::for_gpu;

/// Two warpgroups multiply 64 x 128 x 128 twice for each tile of keys: 2048 cycles of the tensor cores. With keys and values of a tile
/// copied together, and values waited for before the scores are started, it were 2519.
#[test]
fn attention_on_hopper_waits_little_for_its_copies() {
    let source = "model Test {\n    pub fn forward(q: bf16[S, 128], k: bf16[T, 128], v: bf16[T, 128]) -> bf16[S, 128] {\n        softmax(q @ k.T / sqrt(128)) @ v\n    }\n}\n";
    let tiles = for_gpu(source, GpuArch::Sm90a).unwrap_or_else(|e| panic!("{e}"));
    let (module, infos) = compile(&tiles, GpuArch::Sm90a).unwrap_or_else(|e| panic!("{e}"));
    let cycles = |tiles_of_keys: usize| {
        let kernel = Some("attention.0".to_string());
        let simulated = Simulated::new(&print(&module), infos.clone(), &[Mode::EAGER]).expect("PTX").watching(kernel);
        let (queries, keys) = (128, 128 * tiles_of_keys);
        let zeros = |rows: usize| Tensor::from_floats(Elem::BF16, vec![rows, 128], &vec![0.0; rows * 128]);
        let args = [queries, keys, keys].map(|rows| zeros(rows).expect("a tensor"));
        let symbols = [("S", queries), ("T", keys)].map(|(name, n)| (name.to_string(), n as i64));
        let call = tile::interp::Call {
            plan: "forward",
            variant: PlanVariant::Plain,
            symbols: &BTreeMap::from(symbols),
            args: &args,
            params: &BTreeMap::new(),
            limits: tile::interp::Limits::default(),
        };
        let verified = tile::verify::verify(&tiles).expect("tiles");
        tile::interp::run_on(verified, &call, &mut Default::default(), &simulated).expect("a result");
        simulated.longest().expect("a launch").1.cycles()
    };
    let of_a_tile = (cycles(12) - cycles(6)) / 6;
    assert!((2048..=2150).contains(&of_a_tile), "{of_a_tile}");
}
