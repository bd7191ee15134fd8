//! A model's parameters: finds them in a weights file, checks all of them, and builds the tables
//! that plans index.

use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::c_char;
use core::fmt::Write;

use crate::abi::{ModelDesc, ParamDesc, elem};
use crate::desc::{TypeText, elem_name, elem_size};
use crate::error::{CText, Error, List, Result, Shown, Status, fail, push};
use crate::expr::eval;
use crate::glob::{family_size, member_name};
use crate::header::Entry;
use crate::safetensors;
use crate::sys::{self, Buffer, Mapping};
use crate::weight_files::Files;

/// Maximum length of a path in a message, in bytes.
const LONGEST_PATH: usize = 1 << 12;
/// Maximum number of lines per kind of problem in a message.
const MAX_LINES: usize = 40;

/// Purposes of memory, for messages.
const NAMES: &str = "names of tensors";
const TABLES: &str = "the tables of weights";

/// The parameters of an opened model.
pub(crate) struct Weights {
    /// Addresses of the tensors of each family.
    tables: Vec<Vec<*const u8>>,
    /// Address of each of `tables`.
    roots: Vec<*const *const u8>,
    /// Names in the file that the model does not use, in order.
    unused: Vec<CText>,
    /// Names of tensors converted to `f32`, in the order of the parameters.
    converted: Vec<CText>,
    /// Keeps the memory that `tables` points into.
    _files: Vec<Mapping>,
    _copies: Vec<Buffer>,
}

impl Weights {
    /// The tables in the form that plans receive: a pointer to each family's table.
    pub(crate) fn roots(&self) -> *const *const *const u8 {
        self.roots.as_ptr()
    }

    /// Addresses of the tensors of each family.
    pub(crate) fn tables(&self) -> &[Vec<*const u8>] {
        &self.tables
    }

    /// Frees the tensors once they have been copied elsewhere; the names stay.
    pub(crate) fn forget_tensors(&mut self) {
        (self.tables, self.roots) = (Vec::new(), Vec::new());
        (self._files, self._copies) = (Vec::new(), Vec::new());
    }

    /// Names in the file that the model does not use.
    pub(crate) fn unused(&self) -> &[CText] {
        &self.unused
    }

    /// Names of the tensors that have a narrower type in the file.
    pub(crate) fn converted(&self) -> &[CText] {
        &self.converted
    }

    /// Opens the weights file at `path`, which may be null for a model without parameters.
    ///
    /// # Safety
    /// `path` is null or a C string.
    pub(crate) unsafe fn open(model: &'static ModelDesc, path: *const c_char) -> Result<Weights> {
        let params = model.params.get();
        if path.is_null() {
            let Some(first) = params.first() else {
                return Ok(Weights::none());
            };
            let count = params.iter().filter_map(|p| family_size(p.extents.get())).fold(0u64, u64::saturating_add);
            fail!(
                Weights,
                "{} needs a weights file: it has {count} tensors, `{}` first",
                model.name.get(),
                member_name(first.pattern.get(), first.extents.get(), 0)
            );
        }
        // SAFETY: a C string, as the caller promises.
        let shown = unsafe { sys::c_bytes(path) };
        let shown = String::from_utf8_lossy(shown.get(..LONGEST_PATH).unwrap_or(shown)).into_owned();
        // SAFETY: as above.
        let files = unsafe { Files::open(path, &shown) }?;
        let place =
            |e: Error| Error { status: e.status, text: alloc::format!("weights file `{}`: {}", Shown(&shown), e.text) };
        let (found, used) = resolve(model, &files).map_err(place)?;
        let mut weights = Weights::none();
        // A checkpoint of training has states, too.
        let is_state = |e: &Entry| model.states.get().iter().any(|s| s.name.get() == e.name);
        for (e, _) in files.entries().zip(&used).filter(|(e, used)| !**used && !is_state(e)) {
            let Some(name) = CText::try_new(&e.name) else { return Err(Error::memory(e.name.len() as u64, NAMES)) };
            push(&mut weights.unused, name, NAMES)?;
        }
        for (p, members) in params.iter().zip(found) {
            let mut pointers = Vec::new();
            for index in members {
                let Some((e, data)) = files.tensor(index) else { fail!(Internal, "a tensor is not in the file") };
                let pointer = match narrower(&e.dtype, p.elem) {
                    Some(widen) => weights.convert(&e.name, data, widen)?,
                    None => weights.place(p.elem, data)?,
                };
                push(&mut pointers, pointer, TABLES)?;
            }
            push(&mut weights.roots, pointers.as_ptr(), TABLES)?;
            push(&mut weights.tables, pointers, TABLES)?;
        }
        weights._files = files.into_mappings()?;
        Ok(weights)
    }

    fn none() -> Weights {
        Weights {
            tables: Vec::new(),
            roots: Vec::new(),
            unused: Vec::new(),
            converted: Vec::new(),
            _files: Vec::new(),
            _copies: Vec::new(),
        }
    }

    /// Converts a tensor with 2-byte elements in the file to `f32`; returns the address.
    fn convert(&mut self, name: &str, data: &[u8], widen: fn(u16) -> u32) -> Result<*const u8> {
        let bytes = (data.len() as u64).saturating_mul(2);
        let Some(copy) = Buffer::new(bytes) else {
            return Err(Error::memory(bytes, &alloc::format!("`{}` as f32", Shown(name))));
        };
        let pointer = copy.pointer().cast::<u32>();
        for (i, pair) in data.as_chunks::<2>().0.iter().enumerate() {
            // SAFETY: four bytes are allocated for each two of the data, with sufficient alignment.
            unsafe { pointer.add(i).write(widen(u16::from_le_bytes(*pair))) };
        }
        push(&mut self._copies, copy, TABLES)?;
        let Some(name) = CText::try_new(name) else { return Err(Error::memory(name.len() as u64, NAMES)) };
        push(&mut self.converted, name, NAMES)?;
        Ok(pointer.cast())
    }

    /// The address of a tensor's data, which is copied if it is not aligned or has a truth value
    /// other than 0 and 1.
    fn place(&mut self, code: u64, data: &[u8]) -> Result<*const u8> {
        let aligned = (data.as_ptr() as usize as u64).checked_rem(elem_size(code)) == Some(0);
        let odd = code == elem::BOOL && data.iter().any(|b| *b > 1);
        if aligned && !odd {
            return Ok(data.as_ptr());
        }
        let Some(copy) = Buffer::new(data.len() as u64) else {
            return Err(Error::memory(data.len() as u64, "a copy of a weight"));
        };
        let pointer = copy.pointer();
        // SAFETY: the copy is as long as the data, and new.
        unsafe { core::ptr::copy_nonoverlapping(data.as_ptr(), pointer, data.len()) };
        if odd {
            for i in 0..data.len() {
                // SAFETY: within the copy, which was written above.
                unsafe { *pointer.add(i) = u8::from(*pointer.add(i) != 0) };
            }
        }
        push(&mut self._copies, copy, TABLES)?;
        Ok(pointer)
    }
}

/// A kind of problem: its first [`MAX_LINES`] lines, and the total number.
#[derive(Default)]
struct Problems {
    lines: String,
    count: usize,
}

impl Problems {
    fn add(&mut self, line: core::fmt::Arguments<'_>) {
        self.count += 1;
        if self.count <= MAX_LINES {
            let _ = writeln!(self.lines, "  {line}");
        }
    }

    fn print(&self, out: &mut String) {
        out.push_str(&self.lines);
        if self.count > MAX_LINES {
            let _ = writeln!(out, "  ... and {} more", self.count - MAX_LINES);
        }
    }
}

/// The indices in `files` of every family's members, and which of the tensors in `files` are used.
fn resolve(model: &'static ModelDesc, files: &Files) -> Result<(Vec<Vec<usize>>, Vec<bool>)> {
    let mut used = Vec::new();
    if used.try_reserve_exact(files.len()).is_err() {
        return Err(Error::memory(files.len() as u64, TABLES));
    }
    used.resize(files.len(), false);
    let mut found = Vec::new();
    // The first missing tensors, and their total number.
    let mut absent: Vec<(&ParamDesc, String)> = Vec::new();
    let mut absent_count = 0usize;
    let mut unfit = Problems::default();
    for p in model.params.get() {
        let shape = shape_of(p)?;
        let Some(count) = family_size(p.extents.get()) else { fail!(Internal, "too many parameters") };
        let mut members = Vec::new();
        for i in 0..count {
            let name = member_name(p.pattern.get(), p.extents.get(), i);
            let Some(index) = files.find(&name) else {
                if absent.len() <= MAX_LINES {
                    absent.push((p, name));
                }
                absent_count += 1;
                continue;
            };
            if let (Some(u), Some((e, _))) = (used.get_mut(index), files.tensor(index)) {
                *u = true;
                compare(p, &shape, e, &mut unfit);
            }
            push(&mut members, index, TABLES)?;
        }
        push(&mut found, members, TABLES)?;
    }
    if absent_count + unfit.count == 0 {
        return Ok((found, used));
    }
    let mut unused: Vec<&Entry> = Vec::new();
    for (e, _) in files.entries().zip(&used).filter(|(_, used)| !**used) {
        push(&mut unused, e, NAMES)?;
    }
    let mut missing = Problems::default();
    for (p, name) in &absent {
        // Finding nearest names is expensive, so it is done only for lines that are shown.
        match if missing.count < MAX_LINES { nearest(name, &unused) } else { None } {
            Some(near) => missing.add(format_args!("missing: {name}: {} (nearest: {})", type_of(p), Shown(near))),
            None => missing.add(format_args!("missing: {name}: {}", type_of(p))),
        }
    }
    missing.count = absent_count;
    let mut notes = Problems::default();
    for e in &unused {
        notes.add(format_args!("unused: {}: {}{}", Shown(&e.name), safetensors::type_name(&e.dtype), List(&e.shape)));
    }
    let mut text = alloc::format!(
        "it does not fit {} (missing: {}, of another shape or type: {}, unused: {})\n",
        model.name.get(),
        missing.count,
        unfit.count,
        notes.count
    );
    missing.print(&mut text);
    unfit.print(&mut text);
    notes.print(&mut text);
    text.truncate(text.trim_end().len());
    Err(Error { status: Status::Weights, text })
}

fn shape_of(p: &ParamDesc) -> Result<Vec<u64>> {
    p.dims
        .get()
        .iter()
        .map(|d| match u64::try_from(eval(&d.expr, &[])?) {
            Ok(n) => Ok(n),
            Err(_) => fail!(Internal, "parameter {} has a negative dimension", p.pattern.get()),
        })
        .collect()
}

fn type_of(p: &ParamDesc) -> TypeText {
    TypeText { elem: p.elem, batch: false, dims: p.dims.get() }
}

/// The exact conversion to `f32` for a parameter that is stored in a narrower type, if there is
/// one.
fn narrower(dtype: &str, wanted: u64) -> Option<fn(u16) -> u32> {
    match (dtype, wanted) {
        ("BF16", elem::F32) => Some(|bits| u32::from(bits) << 16),
        ("F16", elem::F32) => Some(f32_of_f16),
        _ => None,
    }
}

/// Converts an `f16` to an `f32`, both as bits.
fn f32_of_f16(half: u16) -> u32 {
    let sign = u32::from(half & 0x8000) << 16;
    let (exponent, fraction) = (u32::from(half >> 10 & 0x1f), u32::from(half & 0x3ff));
    sign | match exponent {
        // Subnormal or zero: `fraction` times 2^-24.
        0 => (fraction as f32 * f32::from_bits(0x3380_0000)).to_bits(),
        31 => 0x7f80_0000 | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    }
}

/// Adds a line if the file's tensor differs from the declaration.
fn compare(p: &ParamDesc, shape: &[u64], e: &Entry, unfit: &mut Problems) {
    let stored = safetensors::type_name(&e.dtype);
    let wanted = elem_name(p.elem);
    if e.shape != shape {
        let dims: Vec<&str> = p.dims.get().iter().map(|d| d.text.get()).collect();
        unfit.add(format_args!(
            "shape: {}: {} in the file, {} ({wanted}{}) in the program",
            Shown(&e.name),
            List(&e.shape),
            List(shape),
            List(&dims)
        ));
    }
    if stored != wanted && narrower(&e.dtype, p.elem).is_none() {
        let rounds =
            matches!(p.elem, elem::BF16 | elem::F16) && matches!(stored.as_str(), "f64" | "f32" | "bf16" | "f16");
        let advice = if rounds {
            "this would round: convert the file, or declare the parameter with the type in the file"
        } else {
            "only bf16 and f16 are converted, to f32"
        };
        unfit.add(format_args!(
            "type: {}: {} in the file, {wanted} in the program ({advice})",
            Shown(&e.name),
            Shown(&stored)
        ));
    }
}

/// The name nearest to `name` among the unused tensors, if any is near enough.
fn nearest<'a>(name: &str, unused: &[&'a Entry]) -> Option<&'a str> {
    const MAX_NAMES: usize = 1024;
    const SHORTEST_TAIL: usize = 3;
    let last = |n: &str| n.rsplit('.').next().map(String::from);
    let mut best: Option<(usize, &str)> = None;
    for e in unused.iter().copied().take(MAX_NAMES) {
        // A name with a prefix added or removed (`transformer.`) counts as near, however long the
        // prefix is.
        let tail = e.name.ends_with(name) || name.ends_with(e.name.as_str());
        let distance =
            if tail && name.len().min(e.name.len()) >= SHORTEST_TAIL { 1 } else { edit_distance(name, &e.name) };
        if best.is_none_or(|(d, _)| distance < d) {
            best = Some((distance, &e.name));
        }
    }
    let (distance, found) = best?;
    let near = distance * 3 <= name.len().max(3) || (distance * 2 <= name.len() && last(name) == last(found));
    near.then_some(found)
}

/// Levenshtein distance in bytes; long names count as far.
fn edit_distance(a: &str, b: &str) -> usize {
    const LONGEST: usize = 128;
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() > LONGEST || b.len() > LONGEST {
        return if a == b { 0 } else { usize::MAX / 4 };
    }
    let mut row = [0usize; LONGEST + 1];
    for (i, r) in row.iter_mut().enumerate() {
        *r = i;
    }
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        row[0] = left;
        for (r, y) in row.iter_mut().skip(1).zip(b) {
            let replaced = diagonal + usize::from(x != y);
            diagonal = *r;
            left = replaced.min(*r + 1).min(left + 1);
            *r = left;
        }
    }
    row.get(b.len()).copied().unwrap_or(usize::MAX / 4)
}
