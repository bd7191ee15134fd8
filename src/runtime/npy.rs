//! NumPy's `.npy` files, the format of the inputs and results of `attnc run`.
//!
//! In: bytes of an untrusted file. Out: a [`Tensor`] in row-major order, or an error; and the
//! reverse. The header is a Python dict with exactly three keys; anything else is rejected.
//!
//! The crate `npyz` 0.8 and the 16 crates that only it needs, a parser generator among them, take
//! 14 s of CPU time to build (`opt-level = 1`). It does not support `bf16`, and its elements would
//! have to be converted back to bytes.

use crate::shape::Elem;
use crate::tensor::Tensor;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Maximum rank.
const MAX_RANK: usize = 64;

/// Parses a file.
///
/// # Errors
/// A message that continues a sentence beginning with the file name.
pub fn parse(file: &[u8]) -> Result<Tensor, String> {
    let (Header { descr, fortran_order, shape }, data) = opened(file)?;
    let (elem, big_endian) = elem_of(&descr)?;
    let size = elem.size() as usize;
    sized(data, &shape, size)?;
    let mut data = if fortran_order { row_major(data, &shape, size) } else { data.to_vec() };
    if big_endian {
        data.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    Tensor::new(elem, shape, data).ok_or_else(|| "has truth values other than 0 and 1".to_owned())
}

/// Parses a file of tokens, an array of one axis: the size of a token, and all of them,
/// little-endian. Unsigned integers are not an element type of the language.
///
/// # Errors
/// As for [`parse`].
pub fn parse_tokens(file: &[u8]) -> Result<(usize, Vec<u8>), String> {
    let (Header { descr, shape, .. }, data) = opened(file)?;
    if shape.len() != 1 {
        return Err(format!("has the shape {shape:?}; tokens are an array of one axis"));
    }
    let size = match descr.as_str() {
        "|u1" => 1,
        "<u2" => 2,
        "<u4" => 4,
        _ => {
            let tensor = parse(file)?;
            let tokens = tensor.to_i64().into_iter().map(u32::try_from);
            let fits = !tensor.elem().is_float() && tensor.elem() != Elem::Bool;
            let Some(tokens) = tokens.collect::<Result<Vec<u32>, _>>().ok().filter(|_| fits) else {
                return Err(format!("has elements of type {descr:?} that are not all tokens, from 0 to {}", u32::MAX));
            };
            return Ok((4, tokens.into_iter().flat_map(u32::to_le_bytes).collect()));
        }
    };
    sized(data, &shape, size)?;
    Ok((size, data.to_vec()))
}

/// The data must be as long as the shape says.
fn sized(data: &[u8], shape: &[usize], size: usize) -> Result<(), String> {
    let count = if shape.contains(&0) { Some(0) } else { shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)) };
    let bytes = count.and_then(|n| n.checked_mul(size)).ok_or("has a shape too large for memory")?;
    if data.len() != bytes {
        return Err(format!("has {} bytes of data, but its shape {shape:?} needs {bytes}", data.len()));
    }
    Ok(())
}

/// The header and the data of a file.
fn opened(file: &[u8]) -> Result<(Header, &[u8]), String> {
    let rest = file.strip_prefix(MAGIC).ok_or("is not a NumPy file (.npy)")?;
    let ([major, _minor], rest) = rest.split_first_chunk::<2>().ok_or("is truncated")?;
    let (length, rest) = match major {
        1 => rest.split_first_chunk::<2>().map(|(n, rest)| (u32::from(u16::from_le_bytes(*n)), rest)),
        2 | 3 => rest.split_first_chunk::<4>().map(|(n, rest)| (u32::from_le_bytes(*n), rest)),
        _ => return Err(format!("has version {major} of the format, which is not supported")),
    }
    .ok_or("is truncated")?;
    let (header, data) =
        usize::try_from(length).ok().and_then(|n| rest.split_at_checked(n)).ok_or("is truncated in its header")?;
    let header = std::str::from_utf8(header).map_err(|_| "has a header that is not UTF-8")?;
    let parsed = Reader { text: header, at: 0 }.header();
    Ok((parsed.ok_or_else(|| format!("has an invalid header: {header:?}"))?, data))
}

/// Serialises a tensor.
pub fn to_bytes(tensor: &Tensor) -> Vec<u8> {
    let descr = match tensor.elem() {
        Elem::F32 => "<f4",
        Elem::F16 => "<f2",
        // NumPy has no bf16; `V2` is how ml_dtypes stores the two bytes.
        Elem::BF16 => "<V2",
        Elem::I8 => "|i1",
        Elem::I32 => "<i4",
        Elem::I64 => "<i8",
        Elem::Bool => "|b1",
    };
    let dims: String = tensor.shape().iter().map(|d| format!("{d}, ")).collect();
    let shape = if tensor.shape().len() == 1 { dims.trim_end() } else { dims.trim_end_matches(", ") };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    // The data begins at a multiple of 64 bytes: magic, version, length, header, newline.
    let before = MAGIC.len() + 4;
    header.push_str(&" ".repeat((64 - (before + header.len() + 1) % 64) % 64));
    header.push('\n');
    let mut out = MAGIC.to_vec();
    // 64 axes of 20 digits are far below the limit of 65,535 bytes of version 1.
    out.extend_from_slice(&[1, 0]);
    out.extend_from_slice(&u16::try_from(header.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(tensor.bytes());
    out
}

/// The element type of a `descr`, and whether the bytes are big-endian.
fn elem_of(descr: &str) -> Result<(Elem, bool), String> {
    let (order, kind) = descr.split_at_checked(1).unwrap_or(("", descr));
    let elem = match kind {
        "f4" => Elem::F32,
        "f2" => Elem::F16,
        "V2" => Elem::BF16,
        "i1" => Elem::I8,
        "i4" => Elem::I32,
        "i8" => Elem::I64,
        "b1" => Elem::Bool,
        _ => {
            return Err(format!(
                "has elements of type {descr:?}; supported are f32, f16, bf16 (`V2`), i8, i32, i64 and bool, so convert the array \
                 before it is saved, `np.save(path, x.astype(np.float32))`"
            ));
        }
    };
    match order {
        "<" | "|" | "=" => Ok((elem, false)),
        ">" => Ok((elem, elem.size() > 1)),
        _ => Err(format!("has elements of the unsupported type {descr:?}")),
    }
}

/// Converts column-major to row-major order.
fn row_major(data: &[u8], shape: &[usize], size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    let mut index = vec![0usize; shape.len()];
    for _ in 0..data.len() / size.max(1) {
        let mut at = 0;
        for (i, d) in index.iter().zip(shape).rev() {
            at = at * d + i;
        }
        out.extend_from_slice(data.get(at * size..(at + 1) * size).unwrap_or_default());
        for (i, d) in index.iter_mut().zip(shape).rev() {
            *i += 1;
            if *i < *d {
                break;
            }
            *i = 0;
        }
    }
    out
}

struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

/// A cursor in the header.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Consumes `token` after optional space.
    fn take(&mut self, token: &str) -> Option<()> {
        self.at += self.rest().len() - self.rest().trim_start().len();
        self.rest().starts_with(token).then(|| self.at += token.len())
    }

    fn header(&mut self) -> Option<Header> {
        let (mut descr, mut order, mut shape) = (None, None, None);
        self.take("{")?;
        while self.take("}").is_none() {
            let key = self.string()?;
            self.take(":")?;
            let first = match key {
                "descr" => descr.replace(self.string()?.to_owned()).is_none(),
                "fortran_order" => order.replace(self.truth()?).is_none(),
                "shape" => shape.replace(self.shape()?).is_none(),
                _ => return None,
            };
            if !first || (self.take(",").is_none() && !self.rest().trim_start().starts_with('}')) {
                return None;
            }
        }
        self.rest().trim().is_empty().then_some(())?;
        Some(Header { descr: descr?, fortran_order: order?, shape: shape? })
    }

    fn string(&mut self) -> Option<&'a str> {
        let quote = if self.take("'").is_some() { '\'' } else { self.take("\"").map(|()| '"')? };
        let (text, _) = self.rest().split_once(quote)?;
        self.at += text.len() + 1;
        (!text.contains('\\')).then_some(text)
    }

    fn truth(&mut self) -> Option<bool> {
        if self.take("True").is_some() { Some(true) } else { self.take("False").map(|()| false) }
    }

    fn shape(&mut self) -> Option<Vec<usize>> {
        let mut out = Vec::new();
        self.take("(")?;
        while self.take(")").is_none() {
            let digits: &str = self.rest().trim_start();
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            let number = digits.get(..end)?;
            self.take(number)?;
            out.push(number.parse().ok()?);
            if out.len() > MAX_RANK || (self.take(",").is_none() && !self.rest().trim_start().starts_with(')')) {
                return None;
            }
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&[1, 0]);
        out.extend_from_slice(&(header.len() as u16).to_le_bytes());
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(data);
        out
    }

    #[test]
    fn what_is_written_reads_back() {
        for elem in Elem::ALL {
            for shape in [vec![], vec![3], vec![2, 3], vec![0, 4], vec![1, 2, 1]] {
                let count: usize = shape.iter().product();
                let bytes = (0..count * elem.size() as usize).map(|i| (i % 2) as u8).collect();
                let t = Tensor::new(elem, shape, bytes).unwrap();
                let written = to_bytes(&t);
                assert_eq!((written.len() - t.bytes().len()) % 64, 0);
                assert_eq!(parse(&written), Ok(t));
            }
        }
        let t = Tensor::from_f32(vec![1], &[2.0]).unwrap();
        assert!(String::from_utf8_lossy(&to_bytes(&t)).contains("'shape': (1,), }"));
    }

    #[test]
    fn other_orders_become_ours() {
        let h = "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }\n";
        let data: Vec<u8> = [0i32, 3, 1, 4, 2, 5].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(parse(&file(h, &data)).unwrap().to_i64(), [0, 1, 2, 3, 4, 5]);
        let h = "{\"shape\":(2,),\"fortran_order\":False,\"descr\":\">i4\"}";
        let data: Vec<u8> = [7i32, -1].iter().flat_map(|v| v.to_be_bytes()).collect();
        assert_eq!(parse(&file(h, &data)).unwrap().to_i64(), [7, -1]);
    }

    #[test]
    fn broken_files_are_errors() {
        let header = |shape: &str| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
        let good = file(&header("(2,)"), &[0; 8]);
        assert!(parse(&good).is_ok());
        for end in 0..good.len() {
            assert!(parse(&good[..end]).is_err(), "cut to {end}");
        }
        let shapes =
            ["(3,)", "(2", "2", "(-2,)", "(2,,)", "(99999999999999999999,)", "(4294967296, 4294967296)", "(x,)"];
        for shape in shapes {
            assert!(parse(&file(&header(shape), &[0; 8])).is_err(), "{shape}");
        }
        for h in [
            "",
            "{",
            "{}",
            "[]",
            "{'descr': '<f4'}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}",
            "{'descr': 'f4', 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '', 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x",
            "{'descr': '<f4' 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '|b1', 'fortran_order': False, 'shape': (8,), 'more': 1}",
        ] {
            assert!(parse(&file(h, &[0; 8])).is_err(), "{h}");
        }
        let truths = "{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}";
        assert_eq!(parse(&file(truths, &[1, 2])).unwrap_err(), "has truth values other than 0 and 1");
        let mut unknown = good;
        unknown[6] = 9;
        assert!(parse(&unknown).is_err());
    }
}
