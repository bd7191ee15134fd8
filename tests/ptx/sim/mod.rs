//! The simulator: each instruction against an independent model, synchronisation, asynchronous effects, planted faults.

mod arithmetic;
mod every_op;
mod exact;
mod floats;
mod hints;
mod hopper;
mod kernels;
mod memory;
mod others;
mod planted;
mod products;
mod sample;
mod samples;
mod timeline;
mod warps;

use attnc::ptx::sim::{Device, Launch, Mode, Module, Report, Stats};

/// Both orders of asynchronous effects, each with several orders in which warps run.
pub(crate) fn modes() -> Vec<Mode> {
    (0..3).flat_map(|seed| [Mode::EAGER.seeded(seed), Mode::LATEST.seeded(seed)]).collect()
}

/// A module with one kernel `k` for any processor, of so many threads, with two buffers `x` and `y` whose addresses are in `%x` and
/// `%y`, the thread's number in `%t`, and registers `%r<9>`, `%d<9>`, `%f<9>`, `%g<9>`, `%h<9>`, `%p<9>`.
pub(crate) fn text(target: &str, threads: u32, declared: &str, body: &str) -> String {
    let version = if target == "sm_80" { "7.8" } else { "8.0" };
    format!(
        ".version {version}\n.target {target}\n.address_size 64\n.extern .shared .align 1024 .b8 more[];\n\
         .visible .entry k(.param .u64 .ptr .global .align 16 x, .param .u64 .ptr .global .align 16 y)\n.reqntid {threads}\n{{\n\
         .reg .b64 %x, %y, %d<9>;\n.reg .b32 %t, %r<9>;\n.reg .b16 %h<9>;\n.reg .f32 %f<9>;\n.reg .f64 %g<9>;\n.reg .pred %p<9>;\n\
         {declared}\nld.param.u64 %x, [x];\nld.param.u64 %y, [y];\nmov.u32 %t, %tid.x;\n{body}\nret;\n}}\n"
    )
}

/// A device with the buffers of such a kernel.
pub(crate) struct Case {
    pub(crate) device: Device,
    pub(crate) module: Module,
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) threads: u32,
}

impl Case {
    pub(crate) fn new(text: &str, threads: u32, x: &[u8], y: usize) -> Case {
        let module = Module::load(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let mut device = Device::new();
        let (a, b) = (device.alloc(x.len()), device.alloc(y));
        device.write(a, x).expect("in a buffer");
        Case { device, module, x: a, y: b, threads }
    }

    pub(crate) fn launch(&mut self, blocks: u32, shared_bytes: u32, mode: Mode) -> Result<Stats, Box<Report>> {
        let (x, y) = (self.x.to_le_bytes(), self.y.to_le_bytes());
        let launch = Launch {
            kernel: "k",
            grid: [blocks, 1, 1],
            block: [self.threads, 1, 1],
            cluster: None,
            shared_bytes,
            cooperative: false,
            params: &[&x, &y],
        };
        self.device.launch(&self.module, &launch, mode)
    }

    pub(crate) fn words(&mut self, n: usize) -> Vec<u32> {
        let bytes = self.device.read(self.y, 4 * n).expect("in a buffer");
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().expect("4 bytes"))).collect()
    }
}

/// Runs a body with one block in all modes; what the first words of `y` are then, the same in all.
pub(crate) fn words(target: &str, threads: u32, declared: &str, body: &str, x: &[u32], n: usize) -> Vec<u32> {
    let text = text(target, threads, declared, body);
    let x: Vec<u8> = x.iter().flat_map(|v| v.to_le_bytes()).collect();
    let mut results = modes().into_iter().map(|mode| {
        let mut case = Case::new(&text, threads, &x, 4 * n);
        case.launch(1, 4096, mode).unwrap_or_else(|r| panic!("{mode:?}: {r}\n{text}"));
        case.words(n)
    });
    let first = results.next().expect("a mode");
    assert!(results.all(|r| r == first), "orders differ");
    first
}

/// The report that a body must give in each mode.
pub(crate) fn report(target: &str, threads: u32, declared: &str, body: &str, blocks: u32) -> Report {
    let text = text(target, threads, declared, body);
    let mut first = None;
    for mode in modes() {
        let mut case = Case::new(&text, threads, &[7; 4096], 4096);
        match case.launch(blocks, 4096, mode) {
            Ok(_) => panic!("{mode:?}: no report\n{text}"),
            Err(r) => {
                let first = first.get_or_insert_with(|| r.clone());
                assert_eq!(first.fault, r.fault, "{mode:?}: {first}\n{r}");
            }
        }
    }
    *first.expect("a mode")
}
