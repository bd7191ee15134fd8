//! Storage, and views of it.

use std::collections::BTreeMap;

use super::elements::Element;
use super::{EvalError, broken, dim, fail};
use crate::shape::Elem;
use crate::tensor::Tensor;
use crate::tile::BufferType;

/// Bytes, and which of them are initialised.
pub(super) struct Storage {
    pub bytes: Vec<u8>,
    pub written: Vec<bool>,
}

impl Storage {
    pub(super) fn full(bytes: Vec<u8>) -> Storage {
        Storage { written: vec![true; bytes.len()], bytes }
    }

    pub(super) fn empty(size: usize) -> Storage {
        Storage { bytes: vec![0; size], written: vec![false; size] }
    }

    /// The bytes at an offset, initialised or not.
    pub(super) fn at(&self, at: i64, size: usize) -> Result<&[u8], EvalError> {
        Ok(&self.bytes[self.range(at, size)?])
    }

    fn range(&self, at: i64, size: usize) -> Result<std::ops::Range<usize>, EvalError> {
        let start = usize::try_from(at).ok();
        match start.and_then(|s| Some(s..s.checked_add(size)?)).filter(|r| r.end <= self.bytes.len()) {
            Some(r) => Ok(r),
            None => broken(format!("byte {at} is outside of storage of {} bytes", self.bytes.len())),
        }
    }

    pub(super) fn read(&self, at: i64, size: usize) -> Result<&[u8], EvalError> {
        let r = self.range(at, size)?;
        if !self.written[r.clone()].iter().all(|w| *w) {
            return broken(format!("byte {at} is read, and was never written"));
        }
        Ok(&self.bytes[r])
    }

    pub(super) fn write(&mut self, at: i64, value: &[u8]) -> Result<(), EvalError> {
        let r = self.range(at, value.len())?;
        self.bytes[r.clone()].copy_from_slice(value);
        self.written[r].fill(true);
        Ok(())
    }
}

/// A strided view of storage.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// Storage number.
    pub storage: usize,
    /// Byte offset of the first element.
    pub start: i64,
    pub elem: Elem,
    pub shape: Vec<i64>,
    /// Strides in elements.
    pub strides: Vec<i64>,
}

impl View {
    /// A view with the shape of a buffer type, starting at a byte of storage.
    pub(super) fn new(
        storage: usize,
        start: i64,
        ty: &BufferType,
        symbols: &BTreeMap<String, i64>,
    ) -> Result<View, EvalError> {
        let all =
            |ds: &[crate::shape::Dim]| ds.iter().map(|d| dim(d, symbols)).collect::<Result<Vec<i64>, EvalError>>();
        let (shape, strides) = (all(&ty.shape)?, all(&ty.strides)?);
        match shape.iter().find(|n| **n < 0) {
            Some(n) => fail(format!("an extent is {n}")),
            None => Ok(View { storage, start, elem: ty.elem, shape, strides }),
        }
    }

    /// Bytes from the start to the end of the last element; negative strides reach before the
    /// start.
    pub(super) fn span(&self) -> Option<i64> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        let mut last = 0i64;
        for (n, s) in self.shape.iter().zip(&self.strides) {
            last = last.checked_add(n.checked_sub(1)?.checked_mul((*s).max(0))?)?;
        }
        last.checked_add(1)?.checked_mul(self.size())
    }

    fn size(&self) -> i64 {
        i64::try_from(self.elem.size()).unwrap_or(8)
    }

    /// The byte offset of an element; checks the index.
    pub(super) fn at(&self, index: &[i64]) -> Result<i64, EvalError> {
        let mut element = 0i64;
        for (axis, ((i, n), s)) in index.iter().zip(&self.shape).zip(&self.strides).enumerate() {
            if !(0..*n).contains(i) {
                return broken(format!("index {i} of axis {axis} is outside of an extent of {n}"));
            }
            element = element.wrapping_add(i.wrapping_mul(*s));
        }
        Ok(self.start.wrapping_add(element.wrapping_mul(self.size())))
    }

    /// All elements. Elements that were never written, or have no storage because no grid point
    /// owns them, are zeros.
    pub(super) fn tensor(&self, memory: &[Storage]) -> Result<Tensor, EvalError> {
        let Some(s) = memory.get(self.storage) else { return broken("no such storage") };
        let shape: Vec<usize> = self.shape.iter().filter_map(|n| usize::try_from(*n).ok()).collect();
        let (count, size) = (shape.iter().product::<usize>(), usize::try_from(self.elem.size()).unwrap_or(8));
        let (mut bytes, mut index) = (Vec::with_capacity(count * size), vec![0i64; shape.len()]);
        for _ in 0..count {
            let element = s.at(self.at(&index)?, size).unwrap_or(&[]);
            bytes.extend(element.iter().chain(&[0; 8]).take(size));
            for (i, n) in index.iter_mut().zip(&self.shape).rev() {
                *i += 1;
                if *i < *n {
                    break;
                }
                *i = 0;
            }
        }
        match Tensor::new(self.elem, shape, bytes) {
            Some(tensor) => Ok(tensor),
            None => broken("a buffer is not a tensor of its type"),
        }
    }

    pub(super) fn read(&self, memory: &[Storage], index: &[i64]) -> Result<Element, EvalError> {
        let at = self.at(index)?;
        let Some(s) = memory.get(self.storage) else { return broken("no such storage") };
        let size = usize::try_from(self.elem.size()).unwrap_or(8);
        Ok(Element::from_bytes(self.elem, s.read(at, size)?))
    }

    pub(super) fn write(&self, memory: &mut [Storage], index: &[i64], x: Element) -> Result<(), EvalError> {
        let at = self.at(index)?;
        let Some(s) = memory.get_mut(self.storage) else { return broken("no such storage") };
        let (bytes, size) = x.to_bytes(self.elem);
        s.write(at, &bytes[..size])
    }
}
