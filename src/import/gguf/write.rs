//! Writes the safetensors file: a header, then one tensor at a time, so that only one is in memory.
//!
//! In: a model. Out: bytes. Blocks are converted to `f32`, which represents the product of an `f16`
//! scale and an 8-bit integer exactly.

use super::model::{Layout, Model};
use super::read::{BLOCK, StorageType, Stored};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// A tensor's element type in the output file, and its size in bytes.
fn stored_as(layout: Layout, kind: StorageType) -> (&'static str, u64) {
    match kind {
        StorageType::F16 if layout != Layout::PlusOne => ("F16", 2),
        StorageType::BF16 if layout != Layout::PlusOne => ("BF16", 2),
        _ => ("F32", 4),
    }
}

impl Model<'_> {
    /// Writes the tensors as a safetensors file.
    ///
    /// # Errors
    /// An I/O error.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut header = Map::new();
        let mut at = 0;
        for ((name, shape), (_, layout, stored)) in self.shapes().zip(&self.tensors) {
            let (dtype, size) = stored_as(*layout, stored.kind);
            let end = at + shape.iter().product::<u64>() * size;
            let described = json!({ "dtype": dtype, "shape": shape, "data_offsets": [at, end] });
            header.insert(name.to_owned(), described);
            at = end;
        }
        let mut text = Value::Object(header).to_string();
        // Align the data to 8 bytes.
        text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
        out.write_all(&(text.len() as u64).to_le_bytes())?;
        out.write_all(text.as_bytes())?;
        self.tensors.iter().try_for_each(|(_, layout, stored)| out.write_all(&data(*layout, stored)))
    }
}

/// The data of a tensor in the hub's layout.
fn data(layout: Layout, stored: &Stored<'_>) -> Vec<u8> {
    let (_, size) = stored_as(layout, stored.kind);
    let size = if size == 2 { 2 } else { 4 };
    let elements = match stored.kind {
        StorageType::F32 => stored.data.to_vec(),
        StorageType::F16 | StorageType::BF16 if size == 2 => stored.data.to_vec(),
        StorageType::F16 => floats(stored.data, half::f16::to_f32),
        StorageType::BF16 => floats(stored.data, |x| half::bf16::from_bits(x.to_bits()).to_f32()),
        StorageType::Q8_0 => blocks(stored.data, 34, |quants, i| i32::from(quants[i].cast_signed())),
        StorageType::Q4_0 => blocks(stored.data, 18, |quants, i| match i.checked_sub(BLOCK / 2) {
            None => i32::from(quants[i] & 15) - 8,
            Some(i) => i32::from(quants[i] >> 4) - 8,
        }),
    };
    if elements.is_empty() {
        return elements;
    }
    let rows = stored.shape.first().map_or(1, |n| usize::try_from(*n).unwrap_or(usize::MAX));
    match layout {
        Layout::Same => elements,
        Layout::PlusOne => {
            let less = |x: &[u8]| f32::from_le_bytes([x[0], x[1], x[2], x[3]]) - 1.0;
            elements.chunks_exact(4).flat_map(|x| less(x).to_le_bytes()).collect()
        }
        Layout::Heads(heads) => {
            let bytes = elements.len().checked_div(rows).unwrap_or(0);
            let half = usize::try_from((rows as u64 / 2).checked_div(heads).unwrap_or(0)).unwrap_or(0);
            let place = |row: usize| {
                let (head, within) = (row / (2 * half), row % (2 * half));
                head * 2 * half + within % half * 2 + within / half
            };
            (0..rows).flat_map(|row| elements[place(row) * bytes..][..bytes].iter().copied()).collect()
        }
        Layout::Transposed => {
            let columns = (elements.len() / size).checked_div(rows).unwrap_or(0);
            let places = (0..columns).flat_map(|column| (0..rows).map(move |row| (row * columns + column) * size));
            places.flat_map(|at| elements[at..][..size].iter().copied()).collect()
        }
    }
}

/// 16-bit elements as `f32`.
fn floats(data: &[u8], value: impl Fn(half::f16) -> f32) -> Vec<u8> {
    let of = |x: &[u8]| value(half::f16::from_le_bytes([x[0], x[1]]));
    data.chunks_exact(2).flat_map(|x| of(x).to_le_bytes()).collect()
}

/// Quantised blocks as `f32`; `quant` returns the integer at an index.
fn blocks(data: &[u8], bytes: usize, quant: impl Fn(&[u8], usize) -> i32) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() / bytes * BLOCK * 4);
    for block in data.chunks_exact(bytes) {
        let (scale, quants) = block.split_at(2);
        let scale = half::f16::from_le_bytes([scale[0], scale[1]]).to_f32();
        (0..BLOCK).for_each(|i| out.extend((scale * quant(quants, i) as f32).to_le_bytes()));
    }
    out
}
