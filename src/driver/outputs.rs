//! Outputs of a compilation: formats, paths, and the first line of each dump.
//!
//! In: the options of `compile`. Out: a path for each requested output format. Nothing is compiled
//! here.

use super::levels;
use super::session::{CommandError, Session};
use crate::cli::{CompileOptions, EmitKind, FloatMode, Gpu, MatmulPrecision, Target, WeightPacking};
use clap::ValueEnum as _;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The kind of an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// A program; any extension not listed below.
    Program,
    /// `.air`: graph IR.
    Graph,
    /// `.tir`: tile IR.
    Tile,
    /// `.vir`: vector IR.
    Vector,
    /// `.clif`: Cranelift's IR.
    Clif,
}

impl Source {
    /// Determined by the extension of the file; for stdin, by the first words.
    pub(super) fn detect(path: &Path, text: &str) -> Source {
        if path == Path::new("-") {
            return Source::of_text(text);
        }
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("air") => Source::Graph,
            Some("tir") => Source::Tile,
            Some("vir") => Source::Vector,
            Some("clif") => Source::Clif,
            _ => Source::Program,
        }
    }

    fn of_text(text: &str) -> Source {
        let mut lines = text.lines().filter(|line| !line.starts_with("//") && !line.starts_with(';'));
        match lines.find(|line| !line.trim().is_empty()) {
            Some(line) if line.starts_with("function ") => Source::Clif,
            Some(line) if line.starts_with("run @") => Source::Vector,
            Some(line) if line.starts_with("module \"") => {
                let is_tile = |line: &str| ["entry @", "kernel @", "plan @"].iter().any(|word| line.starts_with(word));
                if lines.any(is_tile) { Source::Tile } else { Source::Graph }
            }
            _ => Source::Program,
        }
    }

    /// The first output format that can be produced from it.
    fn first(self) -> EmitKind {
        match self {
            Source::Program => EmitKind::Tokens,
            Source::Graph => EmitKind::Ir,
            Source::Tile => EmitKind::Tile,
            Source::Vector => EmitKind::Vector,
            Source::Clif => EmitKind::Clif,
        }
    }
}

/// The outputs of a compilation.
#[derive(Clone, Debug)]
pub(super) struct Outputs {
    places: Vec<(EmitKind, PathBuf)>,
    command: String,
    /// Show only this kernel or plan (`--kernel`).
    kernel: Option<String>,
    /// Show only this entry point (`--function`).
    function: Option<String>,
    /// Also show virtual-register code after register allocation.
    mir_registers: bool,
    /// Show bytes in assembly.
    asm_bytes: bool,
}

/// Formats that show kernels.
const OF_KERNELS: [EmitKind; 7] =
    [EmitKind::Tile, EmitKind::Vector, EmitKind::Clif, EmitKind::Mir, EmitKind::Asm, EmitKind::Ptx, EmitKind::Sass];

/// Formats that show entry points of graph IR.
const OF_FUNCTIONS: [EmitKind; 2] = [EmitKind::Ir, EmitKind::Dot];

impl Outputs {
    /// The requested formats (a shared library by default), each with its path.
    pub(super) fn from_options(options: &CompileOptions) -> Result<Outputs, String> {
        let (mir_registers, asm_bytes) = (options.mir_registers, options.asm_bytes);
        let (places, command, kernel) = (places(options)?, command(options), options.kernel.clone());
        let function = options.function.clone();
        let outputs = Outputs { places, command, kernel, function, mir_registers, asm_bytes };
        if options.kernel.is_some() && !OF_KERNELS.into_iter().any(|kind| outputs.has(kind)) {
            return Err(
                "`--kernel` needs one of `--emit tile`, `vector`, `clif`, `mir`, `asm`, `ptx` and `sass`".into()
            );
        }
        if options.function.is_some() && !OF_FUNCTIONS.into_iter().any(|kind| outputs.has(kind)) {
            return Err("`--function` needs `--emit ir` or `dot`".into());
        }
        if mir_registers && !outputs.has(EmitKind::Mir) {
            return Err("`--mir-registers` needs `--emit mir`".into());
        }
        if asm_bytes && !outputs.has(EmitKind::Asm) {
            return Err("`--asm-bytes` needs `--emit asm`".into());
        }
        Ok(outputs)
    }

    /// Can they be produced from this kind of input?
    pub(super) fn check(&self, source: Source) -> Result<(), String> {
        match self.places.iter().find(|(kind, _)| *kind < source.first()) {
            Some((kind, _)) => {
                let first = source.first().name();
                Err(format!("`--emit {}` is an earlier stage than the input, `{first}`", kind.name()))
            }
            None => Ok(()),
        }
    }

    /// Checks that no output overwrites the program or another output.
    pub(super) fn claim(&self, session: &mut Session) -> Result<(), CommandError> {
        self.places.iter().try_for_each(|(_, path)| session.claim(path))
    }

    /// The path of this format, if it was requested.
    pub(super) fn path(&self, kind: EmitKind) -> Option<&Path> {
        self.places.iter().find(|(asked, _)| *asked == kind).map(|(_, path)| path.as_path())
    }

    /// Was this format requested?
    pub(super) fn has(&self, kind: EmitKind) -> bool {
        self.path(kind).is_some()
    }

    /// Is a later stage than the one that produces this format needed?
    pub(super) fn go_beyond(&self, kind: EmitKind) -> bool {
        self.places.iter().any(|(asked, _)| *asked > kind)
    }

    /// The record and its page, if they were requested.
    pub(super) fn of_record(&self) -> Vec<(EmitKind, PathBuf)> {
        let is_one = |(kind, _): &&(EmitKind, PathBuf)| [EmitKind::Record, EmitKind::Html].contains(kind);
        self.places.iter().filter(is_one).cloned().collect()
    }

    /// The command that reproduces the outputs, without them.
    pub(super) fn command(&self) -> &str {
        &self.command
    }

    /// Writes an output if it was requested; `make` runs only then.
    pub(super) fn emit<T: AsRef<[u8]>>(
        &self,
        session: &mut Session,
        kind: EmitKind,
        make: impl FnOnce(&Session) -> T,
    ) -> Result<(), CommandError> {
        let Some(path) = self.path(kind) else { return Ok(()) };
        let mut content = self.first_line(kind).into_bytes();
        content.extend_from_slice(make(session).as_ref());
        session.write(path, &content)
    }

    /// The first line of a dump: the command that reproduces it; empty for other outputs.
    fn first_line(&self, kind: EmitKind) -> String {
        let comment = match kind {
            EmitKind::Ir
            | EmitKind::Dot
            | EmitKind::Tile
            | EmitKind::Vector
            | EmitKind::Mir
            | EmitKind::Ptx
            | EmitKind::Sass => "//",
            EmitKind::Clif => ";",
            EmitKind::Asm => "#",
            EmitKind::Tokens | EmitKind::Ast | EmitKind::Types => return String::new(),
            EmitKind::Obj | EmitKind::So | EmitKind::Header | EmitKind::Python => return String::new(),
            EmitKind::Record | EmitKind::Html => return String::new(),
        };
        let kernel = self.kernel.as_ref().filter(|_| OF_KERNELS.contains(&kind));
        let kernel = kernel.map_or(String::new(), |name| format!(" --kernel {name}"));
        let function = self.function.as_ref().filter(|_| OF_FUNCTIONS.contains(&kind));
        let function = function.map_or(String::new(), |name| format!(" --function {name}"));
        let more = match kind {
            EmitKind::Asm if self.asm_bytes => " --asm-bytes",
            EmitKind::Mir if self.mir_registers => " --mir-registers",
            _ => "",
        };
        format!("{comment} {}{kernel}{function}{more} --emit {}\n", self.command, kind.name())
    }
}

/// The command without its outputs: only options that differ from their defaults, and no paths.
fn command(options: &CompileOptions) -> String {
    let file = options.file.file_name().map_or("-".into(), |name| name.to_string_lossy());
    let mut text = format!("attnc {file}");
    if let Some(entry) = &options.program.entry {
        let _ = write!(text, " --entry {entry}");
    }
    for dim in &options.program.dims {
        let _ = write!(text, " --dim {}={}", dim.name, dim.value);
    }
    if options.target.is_for(Target::Cuda) {
        text += if options.target.is_for(Target::Cpu) { " --target cpu,cuda" } else { " --target cuda" };
        if options.target.gpu != Gpu::Sm80 {
            let name = options.target.gpu.to_possible_value();
            let _ = write!(text, " --gpu {}", name.as_ref().map_or("", |name| name.get_name()));
        }
    }
    if let Some(level) = options.target.cpu {
        // `native` has another meaning on other hosts.
        let _ = write!(text, " --cpu {}", levels::tier(level).name());
    }
    if options.target.pack != WeightPacking::F32 {
        let _ = write!(text, " --pack {}", options.target.pack.name());
    }
    if options.target.matmul_precision == MatmulPrecision::Tf32 {
        text += " --matmul-precision tf32";
    }
    for pattern in &options.target.keep {
        let _ = write!(text, " --keep \"{pattern}\"");
    }
    if options.target.level != 2 {
        let _ = write!(text, " -O{}", options.target.level);
    }
    match options.target.float {
        FloatMode::Contract => {}
        FloatMode::Strict => text += " --float strict",
        FloatMode::Fast => text += " --float fast",
    }
    if let Some(pass) = &options.passes.stop_after {
        let _ = write!(text, " --stop-after {pass}");
    }
    if let Some(limit) = options.passes.bisect_limit {
        let _ = write!(text, " --bisect-limit {limit}");
    }
    // A file name may contain anything; the result must remain one line.
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// The requested formats (a shared library if none), each with its path.
fn places(options: &CompileOptions) -> Result<Vec<(EmitKind, PathBuf)>, String> {
    let mut kinds: Vec<(EmitKind, Option<PathBuf>)> = Vec::new();
    for emit in &options.emit {
        if kinds.iter().any(|(kind, _)| *kind == emit.kind) {
            return Err(format!("`--emit {}` is given twice", emit.kind.name()));
        }
        kinds.push((emit.kind, emit.path.clone()));
    }
    if kinds.is_empty() {
        kinds.push((EmitKind::So, None));
    }
    let open = kinds.iter().filter(|(_, path)| path.is_none()).count();
    let stdout = Path::new("-");
    if open > 1 && options.output.as_deref() == Some(stdout) {
        return Err("`-o -` takes one kind of output; give each its place: `--emit ir=-,tile=-`".to_string());
    }
    let place = |(kind, path): (EmitKind, Option<PathBuf>)| -> Result<(EmitKind, PathBuf), String> {
        if let Some(path) = path {
            agrees(kind, &path, &format!("--emit {}=", kind.name()))?;
            return Ok((kind, path));
        }
        let path = match &options.output {
            Some(output) if open == 1 => {
                agrees(kind, output, "-o ")?;
                output.clone()
            }
            Some(output) => beside(output, kind),
            // Without `-o`, outputs go to the current folder, and are named after the program.
            None if options.file == stdout => beside(Path::new("model"), kind),
            None => {
                let name = options.file.file_name().map_or(PathBuf::from("model"), PathBuf::from);
                name.with_extension(kind.extension())
            }
        };
        Ok((kind, path))
    };
    let asked: Vec<EmitKind> = kinds.iter().filter(|(_, path)| path.is_none()).map(|(kind, _)| *kind).collect();
    if let Some(output) = options.output.as_deref().filter(|_| open > 1) {
        stem_agrees(&asked, output)?;
    }
    let places: Vec<_> = kinds.into_iter().map(place).collect::<Result<_, String>>()?;
    for (i, (kind, path)) in places.iter().enumerate() {
        if *path == options.file && path != stdout {
            return Err(format!("`--emit {}` would overwrite the program `{}`", kind.name(), path.display()));
        }
        // Devices can receive several outputs.
        let is_file = |path: &Path| std::fs::metadata(path).map_or(true, |found| found.is_file());
        if path != stdout && is_file(path) && places.iter().take(i).any(|(_, other)| other == path) {
            return Err(format!("two outputs have the path `{}`", path.display()));
        }
    }
    Ok(places)
}

/// The extension of programs.
const PROGRAM: &str = "attn";

/// The extension of a path, if it identifies a format.
fn telling(path: &Path) -> Option<&str> {
    let ending = path.extension().and_then(|ending| ending.to_str())?;
    (ending == PROGRAM || EmitKind::of_extension(ending).is_some()).then_some(ending)
}

/// Does the extension of a path match the format? A shared library must have its own or none
/// (`lib.so.1` and devices are accepted too); other formats may have any extension except that of
/// another format. `flag` is the option before the path.
pub(super) fn agrees(kind: EmitKind, path: &Path, flag: &str) -> Result<(), String> {
    let shown = path.display();
    let written = kind.noun();
    let own = format!("the extension of {written} is `.{}`", kind.extension());
    match telling(path) {
        Some(PROGRAM) => {
            return Err(format!("`{flag}{shown}` has the extension of a program, but the output is {written}; {own}"));
        }
        Some(ending) => {
            let Some(other) = EmitKind::of_extension(ending).filter(|other| *other != kind) else { return Ok(()) };
            return Err(format!(
                "`{flag}{shown}` has the extension of {}, but the output is {written}; `--emit {}={shown}` writes {0}, and {own}",
                other.noun(),
                other.name()
            ));
        }
        None => {}
    }
    let ending = path.extension();
    let name = path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    let is_device = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    if kind != EmitKind::So || flag != "-o " || ending.is_none() || name.contains(".so.") || is_device {
        return Ok(());
    }
    Err(format!(
        "`-o {shown}`: the output is {written}, whose extension is `.so`; `--emit so={shown}` writes it under any name, \
         `--emit KIND={shown}` another format (`attnc list emit`)"
    ))
}

/// Does the extension of the path that several outputs share match one of them?
fn stem_agrees(kinds: &[EmitKind], output: &Path) -> Result<(), String> {
    let Some(ending) = telling(output) else { return Ok(()) };
    let written = EmitKind::of_extension(ending).filter(|kind| kinds.contains(kind));
    if written.is_some() {
        return Ok(());
    }
    let stem = output.with_extension("");
    let shown = output.display();
    let what = match EmitKind::of_extension(ending) {
        Some(kind) => format!("{}, which is not requested; add `{}` to `--emit`, or", kind.noun(), kind.name()),
        None => "a program;".to_string(),
    };
    Err(format!("`-o {shown}` has the extension of {what} give the name without an extension: `-o {}`", stem.display()))
}

/// The path of one of several outputs: its extension replaces that of another format. Other
/// extensions are part of the name (`model.v2`).
fn beside(path: &Path, kind: EmitKind) -> PathBuf {
    if telling(path).is_some() {
        return path.with_extension(kind.extension());
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(kind.extension());
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_agree_with_kinds() {
        let of = |kind, path: &str, flag| agrees(kind, Path::new(path), flag);
        for (kind, path) in [
            (EmitKind::So, "m.so"),
            (EmitKind::So, "m"),
            (EmitKind::So, "libm.so.1"),
            (EmitKind::So, "m.cpython-313-x86_64-linux-gnu.so"),
            (EmitKind::So, "-"),
            (EmitKind::So, "/dev/null"),
            (EmitKind::Asm, "m.s"),
            (EmitKind::Asm, "m.S"),
            (EmitKind::Ir, "m.txt"),
            (EmitKind::Obj, "m.o"),
        ] {
            assert_eq!(of(kind, path, "-o "), Ok(()), "{path}");
        }
        for (kind, path, named) in [
            (EmitKind::So, "out.s", "--emit asm=out.s"),
            (EmitKind::So, "out.o", "--emit obj=out.o"),
            (EmitKind::So, "d.1/out.air", "--emit ir=d.1/out.air"),
            (EmitKind::So, "out.py", "--emit python=out.py"),
            (EmitKind::So, "out.dll", "--emit so=out.dll"),
            (EmitKind::So, "out.attn", "a program"),
            (EmitKind::Ir, "out.tir", "--emit tile=out.tir"),
            (EmitKind::Asm, "out.so", "--emit so=out.so"),
        ] {
            assert!(of(kind, path, "-o ").is_err_and(|text| text.contains(named)), "{path}");
        }
        assert_eq!(of(EmitKind::So, "out.bin", "--emit so="), Ok(()));
        assert!(of(EmitKind::So, "out.s", "--emit so=").is_err());
    }

    #[test]
    fn several_outputs_share_a_name() {
        let of = |path, kind| beside(Path::new(path), kind).to_string_lossy().into_owned();
        assert_eq!(of("a/m.so", EmitKind::Header), "a/m.h");
        assert_eq!(of("a/m", EmitKind::So), "a/m.so");
        assert_eq!(of("m.v2", EmitKind::So), "m.v2.so");
        let kinds = [EmitKind::Header, EmitKind::Python];
        assert_eq!(stem_agrees(&kinds, Path::new("m.h")), Ok(()));
        assert_eq!(stem_agrees(&kinds, Path::new("m.v2")), Ok(()));
        assert!(stem_agrees(&kinds, Path::new("m.so")).is_err_and(|text| text.contains("add `so`")));
        assert!(stem_agrees(&kinds, Path::new("m.attn")).is_err_and(|text| text.ends_with("`-o m`")));
    }

    #[test]
    fn texts_from_stdin_show_what_they_are() {
        let of = |text: &str| Source::detect(Path::new("-"), text);
        assert_eq!(of("// attnc\nuse std.nn\n"), Source::Program);
        assert_eq!(of("model M {}\n"), Source::Program);
        assert_eq!(of("// attnc m.attn --emit ir\nmodule \"m.attn\"\n\nfunc @f() {\n"), Source::Graph);
        assert_eq!(of("module \"m.attn\"\n\nentry @f() -> () {\n"), Source::Tile);
        assert_eq!(of("; attnc m.attn --emit clif\n; kernel.f\nfunction u0:0() {\n"), Source::Clif);
        assert_eq!(of(""), Source::Program);
        assert_eq!(Source::detect(Path::new("m.air"), ""), Source::Graph);
    }
}
