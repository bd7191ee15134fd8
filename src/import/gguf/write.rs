//! Writes the safetensors file: a header, then one row at a time.
//!
//! In: a model. Out: bytes. Quantised blocks are converted to `f32`.

use super::model::{Layout, Model};
use super::read::{StorageType, Stored};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
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
    /// The number of quantised tensors by type, and their bytes here and in the output file.
    pub fn expanded(&self) -> (BTreeMap<&'static str, usize>, u64, u64) {
        let (mut kinds, mut here, mut there) = (BTreeMap::new(), 0, 0);
        for (_, _, stored) in &self.tensors {
            if let StorageType::Quantised(blocks) = stored.kind {
                *kinds.entry(blocks.name).or_default() += 1;
                here += stored.data.len() as u64;
                there += stored.shape.iter().product::<u64>() * 4;
            }
        }
        (kinds, here, there)
    }

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
        self.tensors.iter().try_for_each(|(_, layout, stored)| data(*layout, stored, out))
    }
}

/// Writes the data of a tensor in the hub's layout.
fn data(layout: Layout, stored: &Stored<'_>, out: &mut dyn Write) -> io::Result<()> {
    // An unquantised vector has elements for rows: some are in the order of heads.
    let is_one = matches!(stored.kind, StorageType::Quantised(_)) && stored.shape.len() < 2;
    let rows = stored.shape.first().filter(|_| !is_one).map_or(1, |n| usize::try_from(*n).unwrap_or(usize::MAX));
    let Some(bytes) = stored.data.len().checked_div(rows).filter(|bytes| *bytes > 0) else { return Ok(()) };
    let row = |at: usize| elements(layout, stored.kind, &stored.data[at * bytes..][..bytes]);
    match layout {
        Layout::Same | Layout::PlusOne => (0..rows).try_for_each(|at| out.write_all(&row(at))),
        Layout::Heads(heads) => {
            let half = usize::try_from((rows as u64 / 2).checked_div(heads).unwrap_or(0)).unwrap_or(0);
            let place = |row: usize| {
                let (head, within) = (row / (2 * half), row % (2 * half));
                head * 2 * half + within % half * 2 + within / half
            };
            (0..rows).try_for_each(|at| out.write_all(&row(place(at))))
        }
        Layout::Transposed => {
            let all: Vec<Vec<u8>> = (0..rows).map(row).collect();
            let size = if stored_as(layout, stored.kind).1 == 2 { 2 } else { 4 };
            let columns = 0..all.first().map_or(0, Vec::len) / size;
            let mut columns = columns.map(|at| all.iter().flat_map(move |row| &row[at * size..][..size]).copied());
            columns.try_for_each(|column| out.write_all(&column.collect::<Vec<u8>>()))
        }
    }
}

/// The elements of some whole blocks, in the type of the output file.
fn elements(layout: Layout, kind: StorageType, data: &[u8]) -> Vec<u8> {
    let mut elements = match kind {
        StorageType::F16 if layout == Layout::PlusOne => floats(data, half::f16::to_f32),
        StorageType::BF16 if layout == Layout::PlusOne => floats(data, |x| half::bf16::from_bits(x.to_bits()).to_f32()),
        StorageType::F32 | StorageType::F16 | StorageType::BF16 => data.to_vec(),
        StorageType::Quantised(blocks) => {
            let mut out = Vec::new();
            blocks.floats(data, &mut out);
            out
        }
    };
    if layout == Layout::PlusOne {
        for x in elements.as_chunks_mut::<4>().0 {
            *x = (f32::from_le_bytes(*x) - 1.0).to_le_bytes();
        }
    }
    elements
}

/// 16-bit elements as `f32`.
fn floats(data: &[u8], value: impl Fn(half::f16) -> f32) -> Vec<u8> {
    data.as_chunks::<2>().0.iter().flat_map(|x| value(half::f16::from_le_bytes(*x)).to_le_bytes()).collect()
}
