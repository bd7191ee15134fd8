//! An assembler for leaf functions: instructions on physical registers, labels, constants, and
//! comments.
//!
//! In: `iced-x86` instructions in order, and labels that they refer to. Out: the bytes, without
//! relocations, and the comments by offset. Each instruction is encoded at once: backward jumps are
//! as short as possible, forward references have four-byte displacements that are patched at the
//! end. Must not know: tiles.

use iced_x86::{Code, Encoder, IcedError, Instruction};

use super::super::origins::Comments;

/// A label, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// A four-byte displacement to be patched.
#[derive(Clone, Copy, Debug)]
struct Reference {
    at: usize,
    /// The end of its instruction, which the displacement is relative to.
    end: usize,
    label: Label,
}

/// Code under construction. The first encoding error is kept and reported by `finish`.
pub(super) struct Asm {
    encoder: Encoder,
    /// Bytes so far.
    length: usize,
    /// Offsets in bytes; `None` until bound.
    labels: Vec<Option<usize>>,
    references: Vec<Reference>,
    /// Comments before instructions, if requested.
    comments: Comments,
    commented: bool,
    error: Option<String>,
}

impl Asm {
    /// An empty assembler. `commented`: are comments recorded?
    pub(super) fn new(commented: bool) -> Asm {
        Asm {
            encoder: Encoder::new(64),
            length: 0,
            labels: Vec::new(),
            references: Vec::new(),
            comments: Vec::new(),
            commented,
            error: None,
        }
    }

    /// Bytes so far.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    fn fail(&mut self, error: String) {
        self.error.get_or_insert(error);
    }

    pub(super) fn emit(&mut self, instruction: Result<Instruction, IcedError>) {
        match instruction {
            Ok(i) => self.write(&i),
            Err(e) => self.fail(e.to_string()),
        }
    }

    fn write(&mut self, i: &Instruction) {
        match self.encoder.encode(i, self.length as u64) {
            Ok(bytes) => self.length += bytes,
            Err(e) => self.fail(e.to_string()),
        }
    }

    /// A label to bind later.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds a label here.
    pub(super) fn bind(&mut self, label: Label) {
        if let Some(l) = self.labels.get_mut(label.0) {
            *l = Some(self.length);
        }
    }

    /// A new label, bound here.
    pub(super) fn here(&mut self) -> Label {
        let l = self.label();
        self.bind(l);
        l
    }

    /// Emits a jump; `code` is the near encoding, conditional or not.
    pub(super) fn jump(&mut self, code: Code, label: Label) {
        let target = self.labels.get(label.0).copied().flatten();
        let mut i = match Instruction::with_branch(code, target.unwrap_or(self.length) as u64) {
            Ok(i) => i,
            Err(e) => return self.fail(e.to_string()),
        };
        match target {
            Some(target) => {
                // A short jump has two bytes, one of them the displacement.
                if self.length + 2 - target <= 128 {
                    i.as_short_branch();
                }
                self.write(&i);
            }
            None => {
                self.write(&i);
                self.references.push(Reference { at: self.length.saturating_sub(4), end: self.length, label });
            }
        }
    }

    /// Emits an instruction with a `rip`-relative memory operand at a label bound later.
    pub(super) fn emit_of(&mut self, mut instruction: Instruction, label: Label) {
        let start = self.length;
        instruction.set_memory_displacement64(start as u64);
        self.write(&instruction);
        let at = start + self.encoder.get_constant_offsets().displacement_offset();
        self.references.push(Reference { at, end: self.length, label });
    }

    /// Emits data.
    pub(super) fn data(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.encoder.write_u8(*b));
        self.length += bytes.len();
    }

    /// Adds a comment before the next instruction.
    pub(super) fn comment(&mut self, text: impl Into<String>) {
        if self.commented {
            self.comments.push((u32::try_from(self.length).unwrap_or(u32::MAX), text.into()));
        }
    }

    /// Patches references and returns the bytes and, if requested, the comments.
    ///
    /// # Errors
    /// An instruction that cannot be encoded, or a label that was never bound.
    pub(super) fn finish(mut self) -> Result<(Vec<u8>, Comments), String> {
        if let Some(e) = self.error {
            return Err(e);
        }
        let mut bytes = self.encoder.take_buffer();
        for r in &self.references {
            let place = self.labels.get(r.label.0).copied().flatten().ok_or("a label was never bound")?;
            let distance = i64::try_from(place).unwrap_or(i64::MAX) - i64::try_from(r.end).unwrap_or(0);
            let distance = i32::try_from(distance).map_err(|_| "code is too long for a jump")?;
            let field = bytes.get_mut(r.at..r.at + 4).ok_or("a displacement outside of the code")?;
            field.copy_from_slice(&distance.to_le_bytes());
        }
        Ok((bytes, self.comments))
    }
}
