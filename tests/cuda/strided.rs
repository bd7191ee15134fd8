//! Copies between layouts on the GPU: which pieces they are cut into, and the kernel that copies one.

#[path = "../../src/runtime/support/cuda/strided.rs"]
mod axes;

use std::collections::BTreeMap;
use std::convert::Infallible;

use attnc::ptx::sim::{Device, Launch, Mode, Module};
use attnc::ptx::{text, verify};
use attnc::random::Random;

use self::axes::{Axes, Axis, KERNEL_AXES};
use crate::cubins::tools;

const KERNEL: &str = include_str!("../../src/runtime/support/cuda/copy.ptx");

/// A tensor of up to `most` axes, some of them as they would lie one after another, some not.
fn random_axes(rng: &mut Random, most: usize) -> Vec<Axis> {
    let rank = rng.below(most + 1);
    let (mut from, mut to) = (1i64, 1i64);
    let mut list = Vec::new();
    for _ in 0..rank {
        let count = [1, 2, 3, 5][rng.below(4)];
        let turned = if rng.below(4) == 0 { -1 } else { 1 };
        list.insert(0, Axis { count, from: turned * from, to });
        from = from * count as i64 + if rng.below(3) == 0 { 1 } else { 0 };
        to = to * count as i64 + if rng.below(5) == 0 { 2 } else { 0 };
    }
    list
}

/// Where each element lies on both sides, in order.
fn places(list: &[Axis]) -> Vec<(i64, i64)> {
    let mut out = vec![(0, 0)];
    for axis in list {
        let steps = 0..axis.count as i64;
        out = out.iter().flat_map(|(f, t)| steps.clone().map(move |i| (f + i * axis.from, t + i * axis.to))).collect();
    }
    out
}

fn joined(list: &[Axis]) -> Axes {
    let mut axes = Axes::new();
    assert!(list.iter().all(|axis| axes.push(*axis)));
    axes
}

#[test]
fn pieces_cover_every_element_once_in_order() {
    let mut rng = Random::new(1);
    let (mut cut, mut fewer) = (0, 0);
    for _ in 0..400 {
        let list = random_axes(&mut rng, 11);
        let wanted = places(&list);
        if wanted.len() > 20_000 {
            continue;
        }
        let axes = joined(&list);
        fewer += usize::from(axes.get().len() < list.iter().filter(|a| a.count > 1).count());
        for most in [1, 2, 7, 64, 1 << 30] {
            let (mut got, mut pieces) = (Vec::new(), 0);
            let done = axes.pieces_of(most, &mut |p| {
                assert!(p.axes.len() <= KERNEL_AXES && p.count <= most.max(1));
                assert_eq!((p.first, p.count), (got.len() as u64, p.axes.iter().map(|a| a.count).product()));
                got.extend(places(p.axes).iter().map(|(f, t)| (f + p.from, t + p.to)));
                pieces += 1;
                Ok::<(), Infallible>(())
            });
            assert!(done.is_ok());
            assert_eq!(got, wanted, "{list:?} by {most}");
            cut += usize::from(pieces > 1);
        }
    }
    assert!(cut > 100 && fewer > 100, "{cut} {fewer}");
    let mut all = 0;
    let whole = joined(&[Axis { count: 1 << 33, from: 4, to: 8 }]);
    let done = whole.pieces(&mut |p| {
        assert_eq!((p.first, p.from, p.to, p.count), (all, 4 * all as i64, 8 * all as i64, 1 << 30));
        all += p.count;
        Ok::<(), Infallible>(())
    });
    assert!(done.is_ok() && all == 1 << 33);
}

#[test]
fn elements_are_as_wide_as_all_places_allow() {
    let axis = |count, from, to| Axis { count, from, to };
    let widened = |list: &[Axis], from, to| {
        let (axes, width) = joined(list).widened(from, to);
        (axes.get().to_vec(), width)
    };
    let rows = [axis(3, 48, 24), axis(24, 1, 1)];
    assert_eq!(widened(&rows, 512, 768), (vec![axis(3, 48, 24), axis(3, 8, 8)], 8));
    assert_eq!(widened(&rows, 516, 768), (vec![axis(3, 48, 24), axis(6, 4, 4)], 4));
    assert_eq!(widened(&rows, 512, 770).1, 2);
    assert_eq!(widened(&rows, 511, 768).1, 1);
    assert_eq!(widened(&[axis(3, 46, 24), axis(24, 1, 1)], 0, 0).1, 2);
    assert_eq!(widened(&[axis(3, -40, 24), axis(16, 1, 1)], 0, 0).1, 8);
    // A column of numbers.
    assert_eq!(widened(&[axis(5, 64, 4), axis(4, 1, 1)], 256, 256), (vec![axis(5, 64, 4)], 4));
    assert_eq!(joined(&[axis(3, 24, 24), axis(24, 1, 1)]).run(), Some(72));
    assert_eq!(joined(&[]).run(), Some(1));
    assert_eq!(joined(&rows).run(), None);
}

#[test]
fn the_kernel_is_right_and_assembles() {
    let module = text::parse(KERNEL).expect("PTX");
    verify(&module).unwrap_or_else(|errors| panic!("{}", errors[0]));
    assert_eq!((module.version, module.target), module.lowest());
    let Some(home) = tools() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("copy.ptx"), KERNEL).expect("written");
    for processor in ["sm_80", "sm_90a", "sm_100"] {
        let mut ptxas = std::process::Command::new(home.join("bin/ptxas"));
        ptxas.current_dir(folder.path()).args(["-v", "-arch", processor, "-o", "copy.cubin", "copy.ptx"]);
        let done = ptxas.output().expect("ptxas runs");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && super::bench::nothing_is_spilled(&said), "{processor}: {said}");
    }
}

/// Where a copy writes.
struct Copied {
    bytes: BTreeMap<i64, u8>,
    fault: [u64; 4],
}

/// Copies one piece on the simulator: `input` lies at place 0, from `low` on.
fn copied(kind: u32, list: &[Axis], input: &[u8], low: i64, size: usize) -> Copied {
    let module = Module::load(KERNEL).expect("a module");
    let mut device = Device::new();
    let ends = |of: fn(&(i64, i64)) -> i64| {
        let places = places(list);
        (places.iter().map(of).min().unwrap_or(0), places.iter().map(of).max().unwrap_or(0))
    };
    let (first, last) = ends(|p| p.1);
    let (from, to) = (device.alloc(input.len()), device.alloc((last - first) as usize + size));
    let fault = device.alloc(32);
    device.write(from, input).expect("written");
    device.write(to, &vec![0xaa; (last - first) as usize + size]).expect("written");
    device.write(fault, &[0; 32]).expect("written");
    let count: u64 = list.iter().map(|a| a.count).product();
    let mut params: Vec<Vec<u8>> = Vec::new();
    for word in [from.wrapping_add_signed(-low), to.wrapping_add_signed(-first), fault, 7, 1000] {
        params.push(word.to_le_bytes().to_vec());
    }
    for number in [count as u32, kind, list.len() as u32] {
        params.push(number.to_le_bytes().to_vec());
    }
    let axis = |i: usize| list.len().checked_sub(i + 1).map_or(Axis { count: 1, from: 0, to: 0 }, |i| list[i]);
    params.extend((0..KERNEL_AXES).map(|i| (axis(i).count as u32).to_le_bytes().to_vec()));
    params.extend((0..KERNEL_AXES).map(|i| axis(i).from.to_le_bytes().to_vec()));
    params.extend((0..KERNEL_AXES).map(|i| axis(i).to.to_le_bytes().to_vec()));
    let params: Vec<&[u8]> = params.iter().map(Vec::as_slice).collect();
    let blocks = (count as u32).div_ceil(256);
    let launch = Launch {
        kernel: "attnc_copy",
        grid: [blocks, 1, 1],
        block: [256, 1, 1],
        cluster: None,
        shared_bytes: 0,
        cooperative: false,
        params: &params,
    };
    device.launch(&module, &launch, Mode::LATEST).unwrap_or_else(|report| panic!("{report}"));
    let out = device.read(to, (last - first) as usize + size).expect("read");
    let fault = device.read(fault, 32).expect("read");
    let fault = std::array::from_fn(|i| u64::from_le_bytes(fault[8 * i..8 * i + 8].try_into().expect("8 bytes")));
    Copied { bytes: (first..).zip(out).collect(), fault }
}

#[test]
fn the_kernel_copies_elements_of_all_sizes() {
    let mut rng = Random::new(2);
    for n in 0..60 {
        let kind = n % 4;
        let size = 1i64 << kind;
        let list = random_axes(&mut rng, KERNEL_AXES);
        let list: Vec<Axis> = list.iter().map(|a| Axis { from: a.from * size, to: a.to * size, ..*a }).collect();
        let places = places(&list);
        if places.len() > 3000 {
            continue;
        }
        let low = places.iter().map(|p| p.0).min().unwrap_or(0);
        let high = places.iter().map(|p| p.0).max().unwrap_or(0) + size;
        let input: Vec<u8> = (low..high).map(|_| rng.word() as u8).collect();
        let mut wanted: BTreeMap<i64, u8> = BTreeMap::new();
        for (from, to) in places {
            for byte in 0..size {
                wanted.insert(to + byte, input[(from - low + byte) as usize]);
            }
        }
        let got = copied(kind, &list, &input, low, size as usize);
        for (at, byte) in &got.bytes {
            assert_eq!(*byte, wanted.get(at).copied().unwrap_or(0xaa), "{list:?}, kind {kind}, byte {at}");
        }
        assert_eq!(got.fault, [0; 4]);
    }
}

#[test]
fn the_kernel_converts_elements() {
    let numbers = [0i64, 5, -1, i64::from(i32::MAX), i64::from(i32::MIN)];
    let wide: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    let narrow: Vec<u8> = numbers.iter().flat_map(|n| (*n as i32).to_le_bytes()).collect();
    let turned = |bytes: &[u8], size: usize| bytes.rchunks(size).flatten().copied().collect::<Vec<u8>>();
    let list = |from, to| [Axis { count: 5, from, to }];
    // From the last to the first.
    let got = copied(4, &list(-8, 4), &wide, -32, 4);
    assert_eq!(got.bytes.into_values().collect::<Vec<_>>(), turned(&narrow, 4));
    assert_eq!(got.fault, [0; 4]);
    let got = copied(5, &list(-4, 8), &narrow, -16, 8);
    assert_eq!(got.bytes.into_values().collect::<Vec<_>>(), turned(&wide, 8));
    let got = copied(6, &list(1, 1), &[0, 1, 2, 255, 0], 0, 1);
    assert_eq!(got.bytes.into_values().collect::<Vec<_>>(), [0, 1, 1, 1, 0]);
    for wrong in [1 << 31, -(1 << 31) - 1, 1 << 32, i64::MIN] {
        let input: Vec<u8> = [3i64, wrong, 4].iter().flat_map(|n| n.to_le_bytes()).collect();
        let got = copied(4, &[Axis { count: 3, from: 8, to: 4 }], &input, 0, 4);
        assert_eq!(got.fault, [7, 1001, wrong as u64, 0]);
        assert_eq!(got.bytes.into_values().collect::<Vec<_>>(), [3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0]);
    }
}
