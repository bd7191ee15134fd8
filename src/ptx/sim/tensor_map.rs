//! Tensor maps: descriptions of tensors in global memory for tensor copies. The hardware's 128-byte
//! format is undocumented; the simulator uses the format of [`TensorMap::encode`].

use crate::ptx::{Swizzle, Type};

/// Fields of `cuTensorMapEncodeTiled`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// Address of the first element.
    pub address: u64,
    /// Element type.
    pub elem: Type,
    /// Extents, the contiguous axis first; 1 to 5 of them.
    pub extents: Vec<u64>,
    /// Strides in bytes of all axes but the first.
    pub strides: Vec<u64>,
    /// Extents of a box.
    pub window: Vec<u32>,
    /// Element strides of a box, along each axis.
    pub steps: Vec<u32>,
    /// Swizzle of rows in shared memory.
    pub swizzle: Swizzle,
    /// Are elements outside of the tensor NaN instead of 0?
    pub fill_nan: bool,
}

/// Bytes of an encoded map.
pub const BYTES: usize = 128;
const MAGIC: u32 = 0x7e50_4a91;
const ELEMS: [Type; 11] = [
    Type::U8,
    Type::U16,
    Type::U32,
    Type::S32,
    Type::U64,
    Type::S64,
    Type::F16,
    Type::F32,
    Type::F64,
    Type::Bf16,
    Type::Tf32,
];

impl TensorMap {
    /// Checks the restrictions of `cuTensorMapEncodeTiled`.
    ///
    /// # Errors
    /// The first violation, with the allowed values.
    pub fn check(&self) -> Result<(), String> {
        let rank = self.extents.len();
        let size = u64::from(self.elem.bytes());
        if !(1..=5).contains(&rank) {
            return Err(format!("{rank} axes; a tensor map has 1 to 5"));
        }
        if self.strides.len() + 1 != rank || self.window.len() != rank || self.steps.len() != rank {
            return Err("strides, box and element strides must be as many as the axes, strides one less".to_string());
        }
        if !ELEMS.contains(&self.elem) {
            return Err(format!("elements of type {} cannot be copied by a map", self.elem));
        }
        if !self.address.is_multiple_of(16) {
            return Err(format!("address {:#x}; it must be a multiple of 16", self.address));
        }
        if let Some(e) = self.extents.iter().find(|e| !(1..=1 << 32).contains(*e)) {
            return Err(format!("an extent of {e}; 1 to 2^32 are allowed"));
        }
        if let Some(s) = self.strides.iter().find(|s| !s.is_multiple_of(16) || **s >= 1 << 40) {
            return Err(format!("a stride of {s} bytes; it must be a multiple of 16 below 2^40"));
        }
        if let Some(w) = self.window.iter().find(|w| !(1..=256).contains(*w)) {
            return Err(format!("a box of {w}; 1 to 256 are allowed"));
        }
        if let Some(s) = self.steps.iter().find(|s| !(1..=8).contains(*s)) {
            return Err(format!("an element stride of {s}; 1 to 8 are allowed"));
        }
        let row = u64::from(self.window[0].div_ceil(self.steps[0])) * size;
        if !row.is_multiple_of(16) {
            return Err(format!("a row of the box has {row} bytes; it must be a multiple of 16"));
        }
        let span = self.swizzle.span();
        if span > 0 && row > span {
            return Err(format!("a row of the box has {row} bytes; with this swizzle it has at most {span}"));
        }
        // Shorter rows are legal, but their layout is undocumented (they seem to take the space of
        // full ones), so they are rejected.
        if row < span {
            return Err(format!("a row of the box has {row} bytes; with this swizzle it should have {span}"));
        }
        if self.fill_nan && !matches!(self.elem, Type::F16 | Type::F32 | Type::F64 | Type::Bf16 | Type::Tf32) {
            return Err(format!("elements of type {} have no NaN", self.elem));
        }
        Ok(())
    }

    /// Encodes the 128 bytes that [`TensorMap::decode`] reads.
    pub fn encode(&self) -> [u8; BYTES] {
        let mut out = [0; BYTES];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            if let Some(to) = out.get_mut(at..at + bytes.len()) {
                to.copy_from_slice(bytes);
            }
            at += bytes.len();
        };
        put(&MAGIC.to_le_bytes());
        let elem = ELEMS.iter().position(|e| *e == self.elem).unwrap_or(0) as u8;
        put(&[elem, self.extents.len() as u8, self.swizzle.code(), u8::from(self.fill_nan)]);
        put(&self.address.to_le_bytes());
        let five = |list: &[u64]| -> [u64; 5] { std::array::from_fn(|i| list.get(i).copied().unwrap_or(0)) };
        five(&self.extents).iter().for_each(|n| put(&n.to_le_bytes()));
        five(&self.strides).iter().take(4).for_each(|n| put(&n.to_le_bytes()));
        for n in 0..5 {
            put(&(self.window.get(n).copied().unwrap_or(0) as u16).to_le_bytes());
        }
        for n in 0..5 {
            put(&[self.steps.get(n).copied().unwrap_or(0) as u8]);
        }
        out
    }

    /// Decodes 128 bytes.
    ///
    /// # Errors
    /// Bytes that are not a map.
    pub fn decode(bytes: &[u8]) -> Result<TensorMap, String> {
        let word = |at: usize, n: usize| -> Option<u64> {
            Some(bytes.get(at..at + n)?.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b)))
        };
        let read = || {
            if word(0, 4)? != u64::from(MAGIC) {
                return None;
            }
            let rank = usize::try_from(word(5, 1)?).ok()?;
            let list = |from: usize, n: usize, count: usize| {
                (0..count).map(|i| word(from + i * n, n)).collect::<Option<Vec<u64>>>()
            };
            let small = |from: usize, n: usize| Some(list(from, n, rank)?.into_iter().map(|v| v as u32).collect());
            let map = TensorMap {
                elem: *ELEMS.get(word(4, 1)? as usize)?,
                swizzle: *Swizzle::ALL.get(word(6, 1)? as usize)?,
                fill_nan: word(7, 1)? == 1,
                address: word(8, 8)?,
                extents: list(16, 8, rank.min(5))?,
                strides: list(56, 8, rank.clamp(1, 5) - 1)?,
                window: small(88, 2)?,
                steps: small(98, 1)?,
            };
            Some(map)
        };
        let map = read().ok_or("these 128 bytes are not a tensor map")?;
        map.check()?;
        Ok(map)
    }

    /// Bytes of a box.
    pub fn box_bytes(&self) -> u32 {
        self.counts().iter().product::<u32>() * self.elem.bytes()
    }

    /// Number of elements of a box along each axis.
    fn counts(&self) -> Vec<u32> {
        self.window.iter().zip(&self.steps).map(|(w, s)| w.div_ceil(*s)).collect()
    }

    /// The addresses of a box's elements, in the order of shared memory; `None` for elements
    /// outside of the tensor.
    pub fn elements(&self, at: &[i32]) -> Vec<Option<u64>> {
        let counts = self.counts();
        let size = u64::from(self.elem.bytes());
        let mut out = Vec::new();
        let mut index = vec![0u32; counts.len()];
        loop {
            let mut address = Some(self.address);
            for (axis, i) in index.iter().enumerate() {
                let n = i64::from(at.get(axis).copied().unwrap_or(0)) + i64::from(i * self.steps[axis]);
                let stride = if axis == 0 { size } else { self.strides[axis - 1] };
                let inside = (0..self.extents[axis] as i64).contains(&n);
                address = if inside { address.map(|a| a + n as u64 * stride) } else { None };
            }
            out.push(address);
            let mut axis = 0;
            loop {
                let Some(i) = index.get_mut(axis) else { return out };
                *i += 1;
                if *i < counts[axis] {
                    break;
                }
                *i = 0;
                axis += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TensorMap;
    use crate::ptx::{Swizzle, Type};

    /// With a swizzle, rows of a box must be exactly as long as its span.
    #[test]
    fn rows_of_a_box_are_as_long_as_its_swizzle() {
        let map = |swizzle: Swizzle, columns: u32| TensorMap {
            address: 256,
            elem: Type::Bf16,
            extents: vec![512, 8],
            strides: vec![1024],
            window: vec![columns, 8],
            steps: vec![1, 1],
            swizzle,
            fill_nan: false,
        };
        for swizzle in [Swizzle::Bytes32, Swizzle::Bytes64, Swizzle::Bytes128] {
            let whole = swizzle.span() as u32 / 2;
            assert_eq!(map(swizzle, whole).check(), Ok(()));
            assert!(map(swizzle, 2 * whole).check().expect_err("too long").contains("it has at most"));
            assert!(map(swizzle, whole / 2).check().expect_err("too short").contains("it should have"));
        }
        assert_eq!(map(Swizzle::None, 24).check(), Ok(()));
    }
}
