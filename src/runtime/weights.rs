//! Weights for the interpreter: tensors of a safetensors file by name.
//!
//! In: the path of an untrusted file. Out: the model's parameters, all checked before any is read.
//! (A `model.so` does the same itself, in `support/weights.rs`.)

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use memmap2::Mmap;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::descriptor::Param;
use crate::shape::Elem;
use crate::tensor::Tensor;

/// Suffix of an index file, which lists the files of a checkpoint.
const INDEX: &str = ".json";
/// Maximum size of an index file.
const MAX_INDEX: u64 = 64 << 20;

/// A safetensors file, or several files listed by an index, mapped into memory.
pub struct WeightsFile {
    maps: Vec<Mmap>,
}

/// Result of [`WeightsFile::read`].
#[derive(Debug, Default)]
pub struct Read {
    /// By name.
    pub tensors: Vec<(String, Tensor)>,
    /// Names of the tensors that were converted to `f32`.
    pub converted: Vec<String>,
}

impl WeightsFile {
    /// Opens a file and checks its header; if it is an index (`*.json`), also the files it lists.
    ///
    /// # Errors
    /// A message about a file that cannot be read or is not a safetensors file.
    pub fn open(path: &Path) -> Result<WeightsFile, String> {
        if !path.as_os_str().as_encoded_bytes().ends_with(INDEX.as_bytes()) {
            return Ok(WeightsFile { maps: vec![mapped(path)?] });
        }
        let shown = path.display();
        let (mut maps, mut names) = (Vec::new(), BTreeSet::new());
        for file in indexed(path)? {
            let map = mapped(&path.with_file_name(file))?;
            let tensors = SafeTensors::deserialize(&map).map_err(|e| format!("weights file `{shown}`: {e}"))?;
            for name in tensors.names() {
                if !names.insert(name.to_owned()) {
                    let name = name.escape_debug();
                    return Err(format!("weights file `{shown}`: two of its files have a tensor `{name}`"));
                }
            }
            maps.push(map);
        }
        Ok(WeightsFile { maps })
    }

    /// The parsed files, which `open` has already validated.
    fn files(&self) -> Vec<SafeTensors<'_>> {
        self.maps.iter().filter_map(|map| SafeTensors::deserialize(map).ok()).collect()
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        let files = self.files();
        let mut names: Vec<String> = files.iter().flat_map(|file| file.names()).map(str::to_owned).collect();
        names.sort();
        names
    }

    /// The metadata of all files.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let read = self.maps.iter().filter_map(|map| SafeTensors::read_metadata(map).ok());
        read.filter_map(|(_, found)| found.metadata().clone()).flatten().collect()
    }

    /// All tensors and their shapes, outermost extent first, by name.
    pub fn shapes(&self) -> BTreeMap<String, Vec<u64>> {
        let files = self.files();
        let all = files.iter().flat_map(|file| file.iter());
        all.map(|(name, view)| (name.to_owned(), view.shape().iter().map(|extent| *extent as u64).collect())).collect()
    }

    /// The element types of the tensors, by name, as far as the language has them.
    pub fn elems(&self) -> BTreeMap<String, Elem> {
        let files = self.files();
        let all = files.iter().flat_map(|file| file.iter());
        all.filter_map(|(name, view)| Some((name.to_owned(), elem_of(view.dtype())?))).collect()
    }

    /// The tensor of this name, if its element type exists in the language. Truth values are
    /// normalised to 0 or 1.
    pub fn tensor(&self, name: &str) -> Option<Tensor> {
        copied(&self.files().iter().find_map(|file| file.tensor(name).ok())?)
    }

    /// Reads every parameter of a model, including arrays of layers. Parameters of type `f32` that
    /// are stored as `bf16` or `f16` are converted.
    ///
    /// # Errors
    /// All parameters that are missing or have another shape or type, one per line.
    pub fn read(&self, params: &[Param]) -> Result<Read, String> {
        let (mut found, mut wrong) = (Read::default(), Vec::new());
        let files = self.files();
        for p in params {
            let shape: Option<Vec<usize>> =
                p.dims.iter().map(|d| d.dim.as_const().and_then(|n| usize::try_from(n).ok())).collect();
            let Some(shape) = shape else { return Err(format!("the shape of {} is not known", p.pattern)) };
            for name in members(&p.pattern, &p.extents) {
                let wanted = format!("{}{shape:?}", p.elem);
                let Some(view) = files.iter().find_map(|file| file.tensor(&name).ok()) else {
                    wrong.push(format!("missing: {name}: {wanted}"));
                    continue;
                };
                let stored = format!("{:?}{:?}", view.dtype(), view.shape()).to_lowercase();
                let mut tensor = copied(&view).filter(|t| t.shape() == shape);
                if let Some(t) = tensor.as_ref().filter(|t| p.elem == Elem::F32 && is_half(t.elem())) {
                    tensor = Tensor::from_f32(shape.clone(), &t.to_f32());
                    found.converted.push(name.clone());
                }
                match tensor.filter(|t| t.elem() == p.elem) {
                    Some(t) => found.tensors.push((name, t)),
                    None => wrong.push(format!("{name}: {stored} in the file, {wanted} in the program")),
                }
            }
        }
        if wrong.is_empty() {
            return Ok(found);
        }
        let (shown, rest) = wrong.split_at(wrong.len().min(40));
        let mut text = format!("the weights file does not match: {} tensors\n  {}", wrong.len(), shown.join("\n  "));
        if !rest.is_empty() {
            text += &format!("\n  ... and {} more", rest.len());
        }
        Err(text)
    }
}

/// Copies a tensor if its element type exists in the language.
fn copied(view: &TensorView<'_>) -> Option<Tensor> {
    let elem = elem_of(view.dtype())?;
    let mut bytes = view.data().to_vec();
    if elem == Elem::Bool {
        bytes.iter_mut().for_each(|b| *b = u8::from(*b != 0));
    }
    Tensor::new(elem, view.shape().to_vec(), bytes)
}

/// Maps a safetensors file and checks its header.
fn mapped(path: &Path) -> Result<Mmap, String> {
    let shown = path.display();
    let file = regular(path)?;
    // SAFETY: a read-only mapping; the user must not change the file while it is mapped, as in a
    // model.so.
    let map = unsafe { Mmap::map(&file) }.map_err(|e| format!("cannot read weights file `{shown}`: {e}"))?;
    if let Some(name) = header(&map).and_then(|header| twice(header, None)) {
        return Err(format!("weights file `{shown}`: it has two tensors `{}`", name.escape_debug()));
    }
    SafeTensors::deserialize(&map).map_err(|e| format!("weights file `{shown}`: {e}"))?;
    Ok(map)
}

/// Opens a regular file.
fn regular(path: &Path) -> Result<File, String> {
    let shown = path.display();
    let unreadable = |e: std::io::Error| format!("cannot read weights file `{shown}`: {e}");
    if path.is_dir() {
        return Err(format!("cannot read weights file `{shown}`: it is a directory"));
    }
    // Checked before opening: opening a pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(format!("cannot read weights file `{shown}`: it is not a regular file"));
    }
    File::open(path).map_err(unreadable)
}

/// The distinct files that an index lists; they must be in the same folder.
fn indexed(path: &Path) -> Result<Vec<String>, String> {
    let shown = path.display();
    let mut text = String::new();
    let read = regular(path)?.take(MAX_INDEX).read_to_string(&mut text);
    read.map_err(|e| format!("cannot read weights file `{shown}`: {e}"))?;
    let index: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| format!("weights file `{shown}`: it is not JSON: {e}"))?;
    let Some(map) = index.get("weight_map").and_then(|map| map.as_object()) else {
        return Err(format!("weights file `{shown}`: it has no object `weight_map`"));
    };
    if let Some(name) = twice(text.as_bytes(), Some("weight_map")) {
        return Err(format!("weights file `{shown}`: it has `{}` twice", name.escape_debug()));
    }
    let mut files = BTreeSet::new();
    for file in map.values() {
        let Some(name) = file.as_str().filter(|name| !name.is_empty() && !name.contains(['/', '\0'])) else {
            return Err(format!("weights file `{shown}`: it names the file `{file}`, which is not beside it"));
        };
        files.insert(name.to_owned());
    }
    Ok(files.into_iter().collect())
}

/// Is it a 2-byte float?
fn is_half(elem: Elem) -> bool {
    matches!(elem, Elem::BF16 | Elem::F16)
}

/// The header of a safetensors file.
fn header(file: &[u8]) -> Option<&[u8]> {
    let (length, rest) = file.split_first_chunk::<8>()?;
    rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)
}

/// The first duplicate key of a JSON object; given `within`, of the object under that key, or that
/// key itself if it is duplicated. The text need not be valid otherwise.
fn twice(header: &[u8], within: Option<&str>) -> Option<String> {
    let mut names = BTreeSet::new();
    let (mut is_within, mut was_within) = (within.is_none(), false);
    let wanted = if within.is_some() { 2 } else { 1 };
    let (mut depth, mut at) = (0usize, 0);
    // Keys are the strings followed by a colon; everything else is skipped.
    while let Some(byte) = header.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let start = at;
                at += 1;
                while header.get(at).is_some_and(|b| *b != b'"') {
                    at += if header.get(at) == Some(&b'\\') { 2 } else { 1 };
                }
                let is_name =
                    || header.get(at + 1..)?.iter().find(|b| !b.is_ascii_whitespace()).filter(|b| **b == b':');
                if (depth == 1 || depth == wanted) && is_name().is_some() {
                    let name: String = serde_json::from_slice(header.get(start..=at)?).ok()?;
                    if depth < wanted {
                        is_within = within == Some(name.as_str());
                        if is_within && std::mem::replace(&mut was_within, true) {
                            return Some(name);
                        }
                    } else if is_within && !names.insert(name.clone()) {
                        return Some(name);
                    }
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The type that a file has for one of the language.
fn dtype(elem: Elem) -> Dtype {
    match elem {
        Elem::F32 => Dtype::F32,
        Elem::BF16 => Dtype::BF16,
        Elem::F16 => Dtype::F16,
        Elem::I8 => Dtype::I8,
        Elem::I32 => Dtype::I32,
        Elem::I64 => Dtype::I64,
        Elem::Bool => Dtype::BOOL,
    }
}

/// The language's element type for a stored type.
fn elem_of(stored: Dtype) -> Option<Elem> {
    Elem::ALL.into_iter().find(|elem| dtype(*elem) == stored)
}

/// The beginning of a safetensors file: the length of its header, and the header. It has metadata,
/// and the names, types and shapes of the tensors, whose elements follow in this order without
/// gaps.
pub fn header_for<'a>(
    metadata: &[(&str, String)],
    tensors: impl IntoIterator<Item = (&'a str, Elem, &'a [usize])>,
) -> Vec<u8> {
    // The library would order metadata by a hash, and files must be the same in each run.
    let json = |text: &str| serde_json::Value::from(text).to_string();
    let mut entries = Vec::new();
    if !metadata.is_empty() {
        let pairs: Vec<String> = metadata.iter().map(|(key, value)| format!("{}:{}", json(key), json(value))).collect();
        entries.push(format!("\"__metadata__\":{{{}}}", pairs.join(",")));
    }
    let mut at = 0;
    for (name, elem, shape) in tensors {
        let end = at + shape.iter().product::<usize>() * usize::try_from(elem.size()).unwrap_or(4);
        let (name, kind) = (json(name), dtype(elem));
        entries.push(format!("{name}:{{\"dtype\":\"{kind:?}\",\"shape\":{shape:?},\"data_offsets\":[{at},{end}]}}"));
        at = end;
    }
    let mut text = format!("{{{}}}", entries.join(","));
    text.push_str(&" ".repeat(text.len().next_multiple_of(8) - text.len()));
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// The member names of a family: each `*` of `pattern` ranges over its extent, the last one
/// fastest.
pub fn members(pattern: &str, extents: &[u64]) -> Vec<String> {
    let mut names = vec![String::new()];
    for (i, part) in pattern.split('*').enumerate() {
        if i > 0 {
            let extent = extents.get(i - 1).copied().unwrap_or(0);
            names = names.iter().flat_map(|n| (0..extent).map(move |j| format!("{n}{j}"))).collect();
        }
        names.iter_mut().for_each(|n| n.push_str(part));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::descriptor::DimText;
    use crate::shape::Dim;

    fn param(pattern: &str, extents: &[u64], elem: Elem, shape: &[i64]) -> Param {
        let dims = shape.iter().map(|d| DimText::canonical(Dim::from(*d))).collect();
        Param { pattern: pattern.to_owned(), extents: extents.to_vec(), elem, dims }
    }

    #[test]
    fn narrower_floats_are_converted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let header = r#"{"b":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"h":{"dtype":"F16","shape":[2],"data_offsets":[4,8]}}"#;
        let data = [0xc020u16, 0x0001, 0x3555, 0x0001].into_iter().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()).unwrap();
        let weights = WeightsFile::open(&path).unwrap();
        let read = weights.read(&[param("b", &[], Elem::F32, &[2]), param("h", &[], Elem::F32, &[2])]).unwrap();
        assert_eq!(read.converted, ["b", "h"]);
        assert_eq!(read.tensors[0].1.to_f32(), [-2.5, f32::from_bits(1 << 16)]);
        assert_eq!(read.tensors[1].1.to_f32(), [0.333_251_95, (-24f32).exp2()]);
        let kept = weights.read(&[param("b", &[], Elem::BF16, &[2])]).unwrap();
        assert!(kept.converted.is_empty() && kept.tensors[0].1.elem() == Elem::BF16);
        let e = weights.read(&[param("h", &[], Elem::BF16, &[2])]).unwrap_err();
        assert!(e.ends_with("h: f16[2] in the file, bf16[2] in the program"), "{e}");
    }

    #[test]
    fn families_count_last_fastest() {
        assert_eq!(members("a.*.b.*", &[2, 2]), ["a.0.b.0", "a.0.b.1", "a.1.b.0", "a.1.b.1"]);
        assert_eq!(members("plain", &[]), ["plain"]);
        assert!(members("a.*", &[0]).is_empty());
    }

    #[test]
    fn parameters_are_read_and_checked_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let header = r#"{"h.0.w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"h.1.w":{"dtype":"I8","shape":[2],"data_offsets":[8,10]}}"#;
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(header.as_bytes());
        file.extend_from_slice(&[0; 10]);
        std::fs::write(&path, &file).unwrap();
        let weights = WeightsFile::open(&path).unwrap();
        assert_eq!(weights.names(), ["h.0.w", "h.1.w"]);
        let one = weights.read(&[param("h.0.w", &[], Elem::F32, &[2])]).unwrap();
        assert_eq!((one.tensors.len(), one.tensors[0].1.shape(), one.converted.len()), (1, &[2usize][..], 0));
        let e = weights.read(&[param("h.*.w", &[3], Elem::F32, &[2]), param("h.0.w", &[], Elem::F32, &[3])]);
        assert_eq!(
            e.unwrap_err(),
            "the weights file does not match: 3 tensors\n  h.1.w: i8[2] in the file, f32[2] in the program\n  \
             missing: h.2.w: f32[2]\n  h.0.w: f32[2] in the file, f32[3] in the program"
        );
        let other = header.replace("h.1.w", "h.\\u0030.w");
        let two = [(other.len() as u64).to_le_bytes().as_slice(), other.as_bytes(), &[0; 10]].concat();
        std::fs::write(&path, &two).unwrap();
        let e = WeightsFile::open(&path).err().unwrap();
        assert!(e.ends_with("it has two tensors `h.0.w`"), "{e}");
        // Metadata may have arbitrary names.
        let metadata = header.replacen('{', r#"{"__metadata__":{"h.0.w":"a \" {","h.1.w":"h.0.w"}, "#, 1);
        let good = [(metadata.len() as u64).to_le_bytes().as_slice(), metadata.as_bytes(), &[0; 10]].concat();
        std::fs::write(&path, &good).unwrap();
        assert_eq!(WeightsFile::open(&path).unwrap().names(), ["h.0.w", "h.1.w"]);
        for cut in [0, 4, 20, file.len() - 1] {
            std::fs::write(&path, &file[..cut]).unwrap();
            assert!(WeightsFile::open(&path).is_err(), "cut to {cut}");
        }
        assert!(WeightsFile::open(folder.path()).is_err());
    }
}
