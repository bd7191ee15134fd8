//! Parses GGUF: a header, metadata as key-value pairs, descriptions of tensors, then their data.
//!
//! In: bytes. Out: a [`File`] whose tensors are within them. Counts are never trusted: each counted
//! item takes bytes of the file, so the work is bounded by the file's length.

use super::blocks::{Blocks, FORMATS};
use crate::import::Refusal;
use serde_json::{Map, Value};

/// Maximum length of a metadata list that is kept.
const LONGEST_LIST: u64 = 4096;
/// Maximum number of elements of a tensor.
const MAX_ELEMENTS: u64 = 1 << 40;

/// Storage format of a tensor's elements.
#[derive(Clone, Copy, Debug)]
pub enum StorageType {
    /// 32-bit floats.
    F32,
    /// 16-bit floats.
    F16,
    /// bfloat16.
    BF16,
    /// Quantised blocks.
    Quantised(&'static Blocks),
}

/// The names of all element types by number, for messages; an empty name is a type that was
/// withdrawn.
const KINDS: [&str; 40] = [
    "F32", "F16", "Q4_0", "Q4_1", "", "", "Q5_0", "Q5_1", "Q8_0", "Q8_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
    "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8", "I16", "I32", "I64",
    "F64", "IQ1_M", "BF16", "", "", "", "TQ1_0", "TQ2_0", "", "", "", "MXFP4",
];

impl StorageType {
    fn from_number(number: u32, tensor: &str) -> Result<StorageType, Refusal> {
        Ok(match number {
            0 => StorageType::F32,
            1 => StorageType::F16,
            30 => StorageType::BF16,
            _ => {
                if let Some(blocks) = FORMATS.iter().find(|blocks| blocks.number == number) {
                    return Ok(StorageType::Quantised(blocks));
                }
                let name = KINDS.get(number as usize).copied().filter(|name| !name.is_empty());
                let name = name.map_or(format!("of type {number}"), str::to_owned);
                let known: Vec<&str> = FORMATS.iter().map(|blocks| blocks.name).collect();
                let message =
                    format!("its tensor `{tensor}` is {name}; attnc reads F32, F16, BF16, {}", known.join(", "));
                let help = "make one from the original file: `llama-quantize model-f16.gguf model-q6_k.gguf Q6_K`";
                return Err(Refusal { message, help: Some(help.to_owned()) });
            }
        })
    }

    /// Size of `count` elements; `None` if they are not a whole number of blocks, or too many.
    pub(super) fn bytes(self, count: u64) -> Option<u64> {
        match self {
            StorageType::F32 => count.checked_mul(4),
            StorageType::F16 | StorageType::BF16 => count.checked_mul(2),
            StorageType::Quantised(blocks) => {
                let (elements, bytes) = (blocks.size.0 as u64, blocks.size.1 as u64);
                count.is_multiple_of(elements).then(|| (count / elements).checked_mul(bytes))?
            }
        }
    }

    /// Its name in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            StorageType::F32 => "F32",
            StorageType::F16 => "F16",
            StorageType::BF16 => "BF16",
            StorageType::Quantised(blocks) => blocks.name,
        }
    }
}

/// A tensor in the file.
#[derive(Clone, Debug)]
pub struct Stored<'b> {
    /// Name in the file.
    pub name: String,
    /// Extents, outermost first (the file has them innermost first).
    pub shape: Vec<u64>,
    pub kind: StorageType,
    pub data: &'b [u8],
}

/// The contents of a file.
#[derive(Clone, Debug)]
pub struct File<'b> {
    /// Metadata, except for the tokenizer's.
    pub metadata: Map<String, Value>,
    /// The tensors, in file order.
    pub tensors: Vec<Stored<'b>>,
}

fn wrong(why: impl std::fmt::Display) -> Refusal {
    Refusal { message: format!("it is not a valid GGUF file: {why}"), help: None }
}

/// A cursor over the bytes.
struct Reader<'b> {
    all: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    fn take(&mut self, n: u64) -> Result<&'b [u8], Refusal> {
        let end = usize::try_from(n).ok().and_then(|n| self.at.checked_add(n));
        let part = end.and_then(|end| self.all.get(self.at..end));
        let part = part.ok_or_else(|| wrong(format!("it ends at byte {}, within its header", self.all.len())))?;
        self.at += part.len();
        Ok(part)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        self.take(N as u64)?.try_into().map_err(|_| wrong("it ends too early"))
    }

    fn u32(&mut self) -> Result<u32, Refusal> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Refusal> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<String, Refusal> {
        let length = self.u64()?;
        let bytes = self.take(length)?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Parses a metadata value of this type.
    fn value(&mut self, kind: u32) -> Result<Value, Refusal> {
        Ok(match kind {
            0 => self.array::<1>()?[0].into(),
            1 => i8::from_le_bytes(self.array()?).into(),
            2 => u16::from_le_bytes(self.array()?).into(),
            3 => i16::from_le_bytes(self.array()?).into(),
            4 => self.u32()?.into(),
            5 => i32::from_le_bytes(self.array()?).into(),
            // In its shortest decimal form: 1e-5, not 9.999999747378752e-6.
            6 => f32::from_le_bytes(self.array()?).to_string().parse::<f64>().unwrap_or(f64::NAN).into(),
            7 => (self.array::<1>()?[0] != 0).into(),
            8 => self.text()?.into(),
            9 => return self.list(),
            10 => self.u64()?.into(),
            11 => i64::from_le_bytes(self.array()?).into(),
            12 => f64::from_le_bytes(self.array()?).into(),
            other => return Err(wrong(format!("a value has the unknown type {other}"))),
        })
    }

    /// Parses a list; a long one is skipped.
    fn list(&mut self) -> Result<Value, Refusal> {
        let (kind, count) = (self.u32()?, self.u64()?);
        let size = match kind {
            0 | 1 | 7 => Some(1),
            2 | 3 => Some(2),
            4..=6 => Some(4),
            10..=12 => Some(8),
            8 => None,
            9 => return Err(wrong("a list of lists")),
            other => return Err(wrong(format!("a value has the unknown type {other}"))),
        };
        if count > LONGEST_LIST {
            match size {
                Some(size) => {
                    self.take(count.checked_mul(size).ok_or_else(|| wrong("a list is too long"))?)?;
                }
                None => {
                    for _ in 0..count {
                        let length = self.u64()?;
                        self.take(length)?;
                    }
                }
            }
            return Ok(format!("a list of {count}").into());
        }
        (0..count).map(|_| self.value(kind)).collect::<Result<Vec<Value>, Refusal>>().map(Value::Array)
    }
}

/// Parses a file.
///
/// # Errors
/// The file is not GGUF version 2 or 3, or a tensor is outside of the file or in an unsupported
/// format.
pub fn read(bytes: &[u8]) -> Result<File<'_>, Refusal> {
    let mut reader = Reader { all: bytes, at: 0 };
    if reader.take(4).ok() != Some(b"GGUF") {
        return Err(wrong("it does not begin with `GGUF`"));
    }
    let version = reader.u32()?;
    if !(2..=3).contains(&version) {
        let order = if version.swap_bytes() < 16 { " in big-endian order" } else { "" };
        return Err(wrong(format!("its version is {version}{order}; attnc reads versions 2 and 3, little-endian")));
    }
    let (tensor_count, value_count) = (reader.u64()?, reader.u64()?);
    let mut metadata = Map::new();
    for _ in 0..value_count {
        let name = reader.text()?;
        let kind = reader.u32()?;
        let value = reader.value(kind)?;
        if name.starts_with("tokenizer.") {
            continue;
        }
        // JSON cannot represent infinities and NaN, which became null.
        if value.is_null() || value.as_array().is_some_and(|list| list.iter().any(Value::is_null)) {
            return Err(wrong(format!("`{}` is not a finite number", name.escape_debug())));
        }
        if metadata.insert(name.clone(), value).is_some() {
            return Err(wrong(format!("`{}` is given twice", name.escape_debug())));
        }
    }
    let mut described = Vec::new();
    for _ in 0..tensor_count {
        let name = reader.text()?;
        let rank = reader.u32()?;
        if rank > 4 {
            return Err(wrong(format!("the tensor `{}` has {rank} axes", name.escape_debug())));
        }
        let mut shape = (0..rank).map(|_| reader.u64()).collect::<Result<Vec<u64>, Refusal>>()?;
        shape.reverse();
        described.push((name, shape, reader.u32()?, reader.u64()?));
    }
    let alignment = metadata.get("general.alignment").map_or(Some(32), Value::as_u64);
    let alignment = alignment.filter(|n| n.is_power_of_two() && *n <= 1 << 20);
    let alignment = alignment.ok_or_else(|| wrong("`general.alignment` is not a power of two"))?;
    let start = (reader.at as u64).next_multiple_of(alignment);
    let mut tensors = Vec::new();
    let mut places = Vec::new();
    for (name, shape, kind, offset) in described {
        let shown = name.escape_debug().to_string();
        let kind = StorageType::from_number(kind, &shown)?;
        let count = shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d)).filter(|n| *n <= MAX_ELEMENTS);
        let row = shape.last().copied().unwrap_or(1);
        let Some(size) = count.filter(|_| kind.bytes(row).is_some()).and_then(|n| kind.bytes(n)) else {
            let elements = if let StorageType::Quantised(blocks) = kind { blocks.size.0 } else { 1 };
            let why = match row.is_multiple_of(elements as u64) {
                true => "has too many elements".to_owned(),
                false => format!("is {}, in blocks of {elements} elements, which do not divide its rows", kind.name()),
            };
            return Err(wrong(format!("the tensor `{shown}` of shape {shape:?} {why}")));
        };
        if !offset.is_multiple_of(alignment) {
            let why = format!(
                "the data of the tensor `{shown}` has the offset {offset}, which is not a multiple of the alignment, {alignment}"
            );
            return Err(wrong(why));
        }
        let end = start.checked_add(offset).and_then(|from| Some((from, from.checked_add(size)?)));
        let range = end.and_then(|(from, end)| Some(usize::try_from(from).ok()?..usize::try_from(end).ok()?));
        let data = range.clone().and_then(|range| bytes.get(range));
        let (Some(data), Some(range)) = (data, range) else {
            let (needed, has) = (end.map_or(u64::MAX, |(_, end)| end), bytes.len());
            let why = format!("it is cut off: the tensor `{shown}` ends at byte {needed}, the file at byte {has}");
            return Err(wrong(why));
        };
        if !range.is_empty() {
            places.push((range.start, range.end, shown));
        }
        tensors.push(Stored { name, shape, kind, data });
    }
    places.sort();
    if let Some([(.., first), (.., second)]) = places.array_windows().find(|[a, b]| a.1 > b.0) {
        return Err(wrong(format!("the tensors `{first}` and `{second}` overlap")));
    }
    Ok(File { metadata, tensors })
}
