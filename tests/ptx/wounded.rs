//! Faults that are planted in what the compiler makes: a barrier, a fence, a wait, an arrival is taken out of a kernel's text, and the simulator
//! must say so, or give another result.

use std::collections::BTreeMap;

use attnc::codegen::ptx::{self, KernelInfo};
use attnc::ir::{self, interp};
use attnc::passes;
use attnc::ptx::sim::Mode;
use attnc::ptx::text::print;
use attnc::random::Random;
use attnc::shape::Elem;
use attnc::simulated::Simulated;
use attnc::tensor::Tensor;
use attnc::tile::verify::VerifiedModule;
use attnc::tile::{self, GpuArch, PlanVariant};

use crate::front;

/// What orders threads, or waits: the beginnings of instructions.
const ORDERS: &[&str] = &[
    "bar.sync",
    "bar.arrive",
    "cp.async.wait_group",
    "cp.async.commit_group",
    "cp.async.bulk.wait_group",
    "cp.async.bulk.commit_group",
    "wgmma.fence",
    "wgmma.commit_group",
    "wgmma.wait_group",
    "mbarrier.arrive",
    "mbarrier.init",
    "fence.mbarrier_init",
    "fence.proxy.async",
];

/// A program with kernels, and a call of it.
struct Subject {
    graph: ir::Module,
    tiles: VerifiedModule,
    text: String,
    infos: Vec<KernelInfo>,
    args: Vec<Tensor>,
}

impl Subject {
    fn new(source: &str, arch: GpuArch, sizes: &[(&str, usize)]) -> Subject {
        let mut graph = front::module("wounded.attn", source, &front::options(&[])).unwrap_or_else(|e| panic!("{e}"));
        passes::optimise(&mut graph, &passes::Options::default(), &mut passes::Collected::default())
            .unwrap_or_else(|e| panic!("{e}"));
        let verified = ir::verify(&graph).unwrap_or_else(|e| panic!("{e}"));
        let tiles = attnc::lowering::tile::lower(verified).unwrap_or_else(|e| panic!("{e}"));
        let tiles = tile::schedule_for_gpu(&tiles, arch).unwrap_or_else(|e| panic!("{e}"));
        let (kernels, infos) = ptx::compile(&tiles, arch).unwrap_or_else(|e| panic!("{e}"));
        let mut random = Random::new(3);
        let args = graph.functions[0].args.iter().map(|arg| {
            let size = |d: &attnc::shape::Dim| {
                let named = |name: &str| sizes.iter().find(|(n, _)| *n == name).map(|(_, n)| *n as i64);
                d.eval(&named).expect("a size") as usize
            };
            let shape: Vec<usize> = arg.ty.shape.iter().map(size).collect();
            let values: Vec<f32> = (0..shape.iter().product()).map(|_| (random.unit() * 4.0 - 2.0) as f32).collect();
            let x = Tensor::from_f32(shape.clone(), &values).expect("a tensor");
            if arg.ty.elem == Elem::F32 {
                return x;
            }
            let upper: Vec<u8> = values.iter().flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes()).collect();
            Tensor::new(Elem::BF16, shape, upper).expect("a tensor")
        });
        let args = args.collect();
        Subject { text: print(&kernels), graph, tiles, infos, args }
    }

    /// What a call gives with another text.
    fn run(&self, text: &str, mode: Mode) -> Result<Vec<u8>, String> {
        let simulated = Simulated::new(text, self.infos.clone(), &[mode])?;
        let graph = ir::verify(&self.graph).map_err(|e| e.to_string())?;
        let entered = interp::admit(graph, "forward", &self.args).map_err(|e| e.to_string())?;
        let params = BTreeMap::<String, Tensor>::new();
        let call = tile::interp::Call {
            plan: "forward",
            variant: PlanVariant::Plain,
            symbols: &entered.symbols,
            args: &entered.args,
            params: &params,
            limits: tile::interp::Limits::default(),
        };
        let tiles = tile::verify::verify(&self.tiles).map_err(|e| e.to_string())?;
        let done =
            tile::interp::run_on(tiles, &call, &mut Default::default(), &simulated).map_err(|e| e.to_string())?;
        Ok(done.results.iter().flat_map(|x| x.bytes().to_vec()).collect())
    }

    /// The texts with one instruction less, each with its kind and that instruction: the first few of each kind that orders, and of
    /// the branches back to a wait.
    fn wounds(&self) -> Vec<(&'static str, String, String)> {
        let lines: Vec<&str> = self.text.lines().collect();
        // The first kernel, which the call launches; others are for calls of few queries.
        let end = lines.iter().position(|line| *line == "}").unwrap_or(lines.len());
        let mut waits = false;
        let mut found: Vec<(&str, String, String)> = Vec::new();
        for (n, line) in lines.iter().enumerate().take(end) {
            let words = line.trim().trim_start_matches('@').trim_start_matches('!');
            let inst = if words.starts_with('%') { words.split_once(' ').map_or("", |(_, rest)| rest) } else { words };
            let mut kind = ORDERS.iter().copied().find(|o| inst.starts_with(o));
            if waits && inst.starts_with("bra") {
                kind = Some(WAIT);
            }
            waits = inst.starts_with("mbarrier.try_wait");
            let Some(kind) = kind else { continue };
            if found.iter().filter(|(k, ..)| *k == kind).count() < EACH {
                let rest: Vec<&str> = lines.iter().enumerate().filter(|(i, _)| *i != n).map(|(_, l)| *l).collect();
                found.push((kind, format!("line {}: {}", n + 1, line.trim()), rest.join("\n")));
            }
        }
        found
    }
}

/// The branch back to a wait for an mbarrier.
const WAIT: &str = "bra";
/// How many instructions of each kind are taken out.
const EACH: usize = 3;
/// What may be taken out of these kernels unnoticed, looked at one by one: how many of a kind at most, and why they do no harm in the call that is
/// made.
const HARMLESS: &[(GpuArch, &str, usize, &str)] = &[
    (
        GpuArch::Sm90a,
        "mbarrier.arrive",
        1,
        "frees the room of the queries where there are no keys: a way that this call does not take",
    ),
    (
        GpuArch::Sm90a,
        "wgmma.fence",
        1,
        "that of P V: its registers were last written before the fence of Q K^T, which is issued first",
    ),
    (
        GpuArch::Sm90a,
        WAIT,
        1,
        "the second group waits for keys that the first group, whose barrier it waits for next, has waited for: that orders them too",
    ),
    (
        GpuArch::Sm90a,
        "bar.sync",
        1,
        "that of the last tile: it says which group issues its products first, and orders no data; nobody comes to this barrier again",
    ),
    (
        GpuArch::Sm90a,
        "bar.arrive",
        1,
        "the last one, which lets the other group issue, comes when that has nothing left to do",
    ),
];

const ATTENTION: &str = "model M {
    pub fn forward(q: bf16[S, 64], k: bf16[T, 64], v: bf16[T, 64]) -> bf16[S, 64] { softmax(q @ k.T / 8) @ v }
}
";
#[test]
fn whatever_is_taken_out_is_missed() {
    let (mut noticed, mut unnoticed) = (0, Vec::new());
    for arch in GpuArch::ALL {
        let subject = Subject::new(ATTENTION, arch, &[("S", 20), ("T", 600)]);
        let modes = [Mode::EAGER, Mode::LATEST];
        let wanted = subject.run(&subject.text, modes[0]).unwrap_or_else(|e| panic!("{e}"));
        for (kind, what, text) in subject.wounds() {
            let is_noticed = modes.iter().any(|mode| subject.run(&text, *mode).as_ref() != Ok(&wanted));
            noticed += usize::from(is_noticed);
            if !is_noticed {
                unnoticed.push((arch, kind, format!("{}, {what}", arch.name())));
            }
        }
    }
    assert!(noticed >= 29, "{noticed} of {}: {unnoticed:#?}", noticed + unnoticed.len());
    for (arch, kind, count, why) in HARMLESS {
        let of_kind: Vec<_> = unnoticed.iter().filter(|(a, k, _)| a == arch && k == kind).collect();
        assert!(of_kind.len() <= *count, "{why}: {of_kind:#?}");
    }
    let known = |(arch, kind, _): &(GpuArch, &str, String)| HARMLESS.iter().any(|(a, k, ..)| a == arch && k == kind);
    let wrong: Vec<_> = unnoticed.iter().filter(|one| !known(one)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
