//! An assembler for leaf functions: instructions on physical registers, labels, and the text of what was written.
//!
//! In: `iced-x86` instructions in order, and places to jump to. Out: the bytes, free of relocations, and a listing. It
//! knows nothing of tiles.

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Formatter, IcedError, Instruction, InstructionBlock, NasmFormatter,
};

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// Code under construction. The first mistake in an instruction is kept and reported at the end.
#[derive(Default)]
pub(super) struct Asm {
    instructions: Vec<Instruction>,
    /// For each label the number of the instruction that follows it.
    labels: Vec<Option<usize>>,
    /// Branches: their number and their label.
    branches: Vec<(usize, Label)>,
    /// What the listing says before an instruction.
    comments: Vec<(usize, String)>,
    error: Option<String>,
}

impl Asm {
    /// Adds an instruction.
    pub(super) fn emit(&mut self, instruction: Result<Instruction, IcedError>) {
        match instruction {
            Ok(i) => self.instructions.push(i),
            Err(e) => self.error = self.error.take().or_else(|| Some(e.to_string())),
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
            *l = Some(self.instructions.len());
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
        self.branches.push((self.instructions.len(), label));
        self.emit(Instruction::with_branch(code, 0));
    }

    /// A line of the listing.
    pub(super) fn comment(&mut self, text: impl Into<String>) {
        self.comments.push((self.instructions.len(), text.into()));
    }

    /// The bytes and, if wanted, their listing.
    ///
    /// # Errors
    /// An instruction that cannot be encoded, or a label that was never put anywhere.
    pub(super) fn finish(mut self, listing: bool) -> Result<(Vec<u8>, String), String> {
        if let Some(e) = self.error {
            return Err(e);
        }
        // A label names the instruction after it by its address; until they are laid out, addresses are numbers.
        let address = |n: usize| 1 + u64::try_from(n).unwrap_or(u64::MAX - 1);
        for (n, i) in self.instructions.iter_mut().enumerate() {
            i.set_ip(address(n));
        }
        for (n, label) in &self.branches {
            let target = self.labels.get(label.0).copied().flatten().ok_or("a label was never put anywhere")?;
            if let Some(i) = self.instructions.get_mut(*n) {
                i.set_near_branch64(address(target));
            }
        }
        let block = InstructionBlock::new(&self.instructions, 0);
        let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let out = BlockEncoder::encode(64, block, options).map_err(|e| e.to_string())?;
        let text = if listing { self.listing() } else { String::new() };
        Ok((out.code_buffer, text))
    }

    fn listing(&self) -> String {
        let mut formatter = NasmFormatter::new();
        let mut listing = String::new();
        let mut comments = self.comments.iter().peekable();
        for (n, i) in self.instructions.iter().enumerate() {
            while let Some((_, text)) = comments.next_if(|(at, _)| *at == n) {
                listing.push_str("  ; ");
                listing.push_str(text);
                listing.push('\n');
            }
            if self.labels.contains(&Some(n)) {
                listing.push_str(&format!("L{n}:\n"));
            }
            let mut text = String::new();
            formatter.format(i, &mut text);
            if self.branches.iter().any(|(at, _)| *at == n)
                && let (Some(mnemonic), Some((_, l))) =
                    (text.split(' ').next().map(str::to_string), self.branches.iter().find(|(at, _)| *at == n))
            {
                text = format!("{mnemonic} L{}", self.labels.get(l.0).copied().flatten().unwrap_or(0));
            }
            listing.push_str("    ");
            listing.push_str(&text);
            listing.push('\n');
        }
        listing
    }
}
