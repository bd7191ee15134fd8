//! An assembler for leaf functions: instructions on physical registers, labels, constants, and comments.
//!
//! In: `iced-x86` instructions in order, and labels that they refer to. Out: the bytes, without relocations, and the comments by
//! offset. Each instruction is encoded at once: a backward jump is as short as possible, a forward reference has a displacement
//! of four bytes, which is patched at the end. It knows nothing of tiles.

use iced_x86::{Code, Encoder, IcedError, Instruction};

use super::super::origins::Comments;

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// A distance of four bytes that is still to be filled in.
#[derive(Clone, Copy, Debug)]
struct Reference {
    /// Its location.
    at: usize,
    /// The end of its instruction, from where it counts.
    end: usize,
    label: Label,
}

/// Code under construction. The first mistake in an instruction is kept and reported at the end.
pub(super) struct Asm {
    encoder: Encoder,
    /// Bytes so far.
    length: usize,
    /// Where they are, in bytes from the start.
    labels: Vec<Option<usize>>,
    references: Vec<Reference>,
    /// What is said before an instruction, if it is wanted.
    comments: Comments,
    commented: bool,
    error: Option<String>,
}

impl Asm {
    /// No code yet. `commented`: are comments wanted?
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

    /// Adds an instruction.
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

    /// A label that is put somewhere later.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Puts a label here.
    pub(super) fn bind(&mut self, label: Label) {
        if let Some(l) = self.labels.get_mut(label.0) {
            *l = Some(self.length);
        }
    }

    /// A label that is here.
    pub(super) fn here(&mut self) -> Label {
        let l = self.label();
        self.bind(l);
        l
    }

    /// Jumps, with `code` the conditional or unconditional near form.
    pub(super) fn jump(&mut self, code: Code, label: Label) {
        let target = self.labels.get(label.0).copied().flatten();
        let mut i = match Instruction::with_branch(code, target.unwrap_or(self.length) as u64) {
            Ok(i) => i,
            Err(e) => return self.fail(e.to_string()),
        };
        match target {
            Some(target) => {
                // A short jump is two bytes, and its distance is one of them.
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

    /// Adds an instruction whose operand in memory, addressed by `rip`, is at a label further on.
    pub(super) fn emit_of(&mut self, mut instruction: Instruction, label: Label) {
        let start = self.length;
        instruction.set_memory_displacement64(start as u64);
        self.write(&instruction);
        let at = start + self.encoder.get_constant_offsets().displacement_offset();
        self.references.push(Reference { at, end: self.length, label });
    }

    /// Adds bytes that are no instruction.
    pub(super) fn data(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.encoder.write_u8(*b));
        self.length += bytes.len();
    }

    /// Says something of what follows.
    pub(super) fn comment(&mut self, text: impl Into<String>) {
        if self.commented {
            self.comments.push((u32::try_from(self.length).unwrap_or(u32::MAX), text.into()));
        }
    }

    /// The bytes and, if wanted, the comments.
    ///
    /// # Errors
    /// An instruction that cannot be encoded, or a label that was never put anywhere.
    pub(super) fn finish(mut self) -> Result<(Vec<u8>, Comments), String> {
        if let Some(e) = self.error {
            return Err(e);
        }
        let mut bytes = self.encoder.take_buffer();
        for r in &self.references {
            let place = self.labels.get(r.label.0).copied().flatten().ok_or("a label was never put anywhere")?;
            let distance = i64::try_from(place).unwrap_or(i64::MAX) - i64::try_from(r.end).unwrap_or(0);
            let distance = i32::try_from(distance).map_err(|_| "code is too long for a jump")?;
            let field = bytes.get_mut(r.at..r.at + 4).ok_or("a distance that has no place")?;
            field.copy_from_slice(&distance.to_le_bytes());
        }
        Ok((bytes, self.comments))
    }
}
