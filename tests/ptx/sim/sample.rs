//! A kernel with its launch: runs it, or a text in its place, and says what the result is.

use attnc::ptx::sim::tensor_map::TensorMap;
use attnc::ptx::sim::{Device, Launch, Mode, Module, Report, Stats, Timeline};
use attnc::ptx::{Swizzle, Type};

/// A buffer of a launch.
pub(crate) enum Given {
    /// A pointer to these bytes.
    Bytes(Vec<u8>),
    /// A pointer to a buffer of so many bytes without values: the result.
    Result(usize),
    /// A map of the tensor in these bytes: elements, extents, bytes between rows, box.
    Map(Vec<u8>, Type, [u64; 2], u64, [u32; 2], Swizzle),
    /// The same of the result.
    ResultMap(usize, Type, [u64; 2], u64, [u32; 2]),
    /// A number.
    Word(u32),
}

/// A kernel with its launch.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    pub(crate) grid: u32,
    pub(crate) threads: u32,
    pub(crate) cluster: u32,
    pub(crate) shared: u32,
    pub(crate) given: Vec<Given>,
    pub(crate) wanted: Vec<f32>,
}

impl Sample {
    /// Runs a text in the kernel's place: the result as floats, or the report.
    pub(crate) fn run(&self, text: &str, mode: Mode) -> Result<(Vec<f32>, Stats), Box<Report>> {
        self.on(text, |device, module, launch| device.launch(module, launch, mode))
    }

    /// The same in time, with what the first block did.
    pub(crate) fn in_time(&self, text: &str) -> Result<(Vec<f32>, Stats, Timeline), Box<Report>> {
        let (found, (stats, timeline)) = self.on(text, |device, module, launch| device.timeline(module, launch, 0))?;
        Ok((found, stats, timeline.expect("a first block")))
    }

    /// Launches a text in the kernel's place: the result as floats, and what the launch gives.
    fn on<T>(
        &self,
        text: &str,
        launched: impl FnOnce(&mut Device, &Module, &Launch<'_>) -> Result<T, Box<Report>>,
    ) -> Result<(Vec<f32>, T), Box<Report>> {
        let module = Module::load(text).unwrap_or_else(|e| panic!("{}: {e}\n{text}", self.name));
        let mut device = Device::new();
        let mut result = (0, 0);
        let mut params: Vec<Vec<u8>> = Vec::new();
        let map = |address: u64, elem: Type, extents: &[u64; 2], stride: u64, window: &[u32; 2], swizzle: Swizzle| {
            let map = TensorMap {
                address,
                elem,
                extents: extents.to_vec(),
                strides: vec![stride],
                window: window.to_vec(),
                steps: vec![1, 1],
                swizzle,
                fill_nan: false,
            };
            map.check().expect("a map");
            map.encode().to_vec()
        };
        for given in &self.given {
            params.push(match given {
                Given::Bytes(data) => {
                    let at = device.alloc(data.len());
                    device.write(at, data).expect("in the buffer");
                    at.to_le_bytes().to_vec()
                }
                Given::Result(bytes) => {
                    result = (device.alloc(*bytes), *bytes);
                    result.0.to_le_bytes().to_vec()
                }
                Given::Map(data, elem, extents, stride, window, swizzle) => {
                    let at = device.alloc(data.len());
                    device.write(at, data).expect("in the buffer");
                    map(at, *elem, extents, *stride, window, *swizzle)
                }
                Given::ResultMap(bytes, elem, extents, stride, window) => {
                    result = (device.alloc(*bytes), *bytes);
                    map(result.0, *elem, extents, *stride, window, Swizzle::None)
                }
                Given::Word(n) => n.to_le_bytes().to_vec(),
            });
        }
        let params: Vec<&[u8]> = params.iter().map(Vec::as_slice).collect();
        let launch = Launch {
            kernel: self.name,
            grid: [self.grid, 1, 1],
            block: [self.threads, 1, 1],
            cluster: (self.cluster > 1).then_some([self.cluster, 1, 1]),
            shared_bytes: self.shared,
            cooperative: false,
            params: &params,
        };
        let stats = launched(&mut device, &module, &launch)?;
        let bytes = device.read(result.0, result.1).expect("in the buffer");
        Ok((bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes"))).collect(), stats))
    }
}

/// Small integers, which `bf16` has exactly, as have `f32` their sums of products.
pub(crate) fn small(seed: u64, n: usize) -> Vec<f32> {
    let mut random = attnc::random::Random::new(seed);
    (0..n).map(|_| random.below(9) as f32 - 4.0).collect()
}

pub(crate) fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub(crate) fn brains(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes()).collect()
}

/// The product of rows of `a` with rows of `b`.
pub(crate) fn product(a: &[f32], b: &[f32], depth: usize) -> Vec<f32> {
    let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>() as f32;
    a.chunks(depth).flat_map(|x| b.chunks(depth).map(move |y| dot(x, y))).collect()
}

/// The head of a kernel of dynamic shared memory `more`.
pub(crate) fn head(name: &str, target: &str, params: &str, threads: u32) -> String {
    let version = if target == "sm_80" { "7.8" } else { "8.0" };
    format!(
        ".version {version}\n.target {target}\n.address_size 64\n.extern .shared .align 1024 .b8 more[];\n\
         .visible .entry {name}({params})\n.reqntid {threads}\n{{\n"
    )
}
