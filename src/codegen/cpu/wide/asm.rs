//! An assembler for leaf functions: instructions on physical registers, labels, constants, and the text of what was written.
//!
//! In: `iced-x86` instructions in order, and places in the code that they refer to. Out: the bytes, free of relocations, and a
//! listing. Each instruction becomes bytes at once: a jump back is as short as it may be, what refers to a place
//! further on has four bytes for the distance, which are filled in at the end. It knows nothing of tiles.

use iced_x86::{Code, Encoder, Formatter, IcedError, Instruction, NasmFormatter};

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// Where a label is.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// In bytes from the start.
    byte: usize,
    /// The number of the instruction that follows.
    instruction: usize,
}

/// A distance of four bytes that is still to be filled in.
#[derive(Clone, Copy, Debug)]
struct Reference {
    /// Where it stands.
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
    labels: Vec<Option<Place>>,
    references: Vec<Reference>,
    /// How many instructions there are, and, where a listing is wanted, what they are.
    count: usize,
    listing: bool,
    instructions: Vec<Instruction>,
    /// Jumps: their number and their label.
    jumps: Vec<(usize, Label)>,
    /// What the listing says before an instruction.
    comments: Vec<(usize, String)>,
    error: Option<String>,
}

impl Asm {
    /// No code yet. `listing`: is its text wanted?
    pub(super) fn new(listing: bool) -> Asm {
        Asm {
            encoder: Encoder::new(64),
            length: 0,
            labels: Vec::new(),
            references: Vec::new(),
            count: 0,
            listing,
            instructions: Vec::new(),
            jumps: Vec::new(),
            comments: Vec::new(),
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
        if self.listing {
            self.instructions.push(*i);
        }
        self.count += 1;
    }

    /// A label that is put somewhere later.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Puts a label here.
    pub(super) fn bind(&mut self, label: Label) {
        if let Some(l) = self.labels.get_mut(label.0) {
            *l = Some(Place { byte: self.length, instruction: self.count });
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
        if self.listing {
            self.jumps.push((self.count, label));
        }
        let target = self.labels.get(label.0).copied().flatten();
        let mut i = match Instruction::with_branch(code, target.map_or(self.length, |t| t.byte) as u64) {
            Ok(i) => i,
            Err(e) => return self.fail(e.to_string()),
        };
        match target {
            Some(target) => {
                // A short jump is two bytes, and its distance is one of them.
                if self.length + 2 - target.byte <= 128 {
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

    /// A line of the listing.
    pub(super) fn comment(&mut self, text: impl Into<String>) {
        self.comments.push((self.count, text.into()));
    }

    /// The bytes and, if wanted, their listing.
    ///
    /// # Errors
    /// An instruction that cannot be encoded, or a label that was never put anywhere.
    pub(super) fn finish(mut self) -> Result<(Vec<u8>, String), String> {
        if let Some(e) = self.error {
            return Err(e);
        }
        let mut bytes = self.encoder.take_buffer();
        for r in &self.references {
            let place = self.labels.get(r.label.0).copied().flatten().ok_or("a label was never put anywhere")?;
            let distance = i64::try_from(place.byte).unwrap_or(i64::MAX) - i64::try_from(r.end).unwrap_or(0);
            let distance = i32::try_from(distance).map_err(|_| "code is too long for a jump")?;
            let field = bytes.get_mut(r.at..r.at + 4).ok_or("a distance that has no place")?;
            field.copy_from_slice(&distance.to_le_bytes());
        }
        let text = self.text();
        Ok((bytes, text))
    }

    fn text(&self) -> String {
        let mut formatter = NasmFormatter::new();
        let mut listing = String::new();
        let mut comments = self.comments.iter().peekable();
        let number = |l: Label| self.labels.get(l.0).copied().flatten().map(|place| place.instruction);
        for (n, i) in self.instructions.iter().enumerate() {
            while let Some((_, text)) = comments.next_if(|(at, _)| *at == n) {
                listing.push_str("  ; ");
                listing.push_str(text);
                listing.push('\n');
            }
            if self.labels.iter().flatten().any(|place| place.instruction == n) {
                listing.push_str(&format!("L{n}:\n"));
            }
            let mut text = String::new();
            formatter.format(i, &mut text);
            if let Some((_, label)) = self.jumps.iter().find(|(at, _)| *at == n)
                && let (Some(mnemonic), Some(target)) = (text.split(' ').next(), number(*label))
            {
                text = format!("{mnemonic} L{target}");
            }
            listing.push_str("    ");
            listing.push_str(&text);
            listing.push('\n');
        }
        listing
    }
}
