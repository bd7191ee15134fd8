//! Links `model.o` with the support library into `model.so`.
//!
//! In: the object file from `codegen`, which defines
//! [`abi::DESCRIPTOR_SYMBOL`](super::abi::DESCRIPTOR_SYMBOL). Out: a shared object that exports
//! only the `attnc_` functions and imports only the C library. The same objects and the same linker
//! give identical bytes; the output is written atomically ([`crate::files`]).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::files::{self, Folder};
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSymbol as _};

use super::abi::{LIBRARY_PREFIX, LIBRARY_SYMBOL, NAME_PREFIX};

/// The support library as one object file, built by `build.rs`.
pub const SUPPORT_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/support.o"));

/// Exported symbols: the functions that return the function table, and Python's entry point.
/// Everything else is hidden, so that two models in one process do not interfere.
const VERSION_SCRIPT: &str = "{ global: attnc_library*; PyInit_*; local: *; };\n";
/// Name of the file with the version script.
const SCRIPT: &str = "exports.map";

/// Why linking failed.
#[derive(Debug)]
pub enum LinkError {
    /// No linker on this machine.
    NoLinker {
        /// The linkers that were tried, in order.
        tried: Vec<String>,
    },
    /// A file that could not be written.
    File {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The linker could not be started, or failed.
    Failed {
        /// Its command line.
        command: String,
        /// Its output, or why it could not be started.
        output: String,
    },
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkError::NoLinker { tried } => write!(
                f,
                "no linker found (looked for {}); install a C compiler or LLVM's lld, or emit an object file with `--emit obj`",
                tried.join(", ")
            ),
            LinkError::File { path, error } => write!(f, "cannot write `{}`: {error}", path.display()),
            LinkError::Failed { command, output } => {
                write!(f, "the linker failed: {}\n  command: {command}", output.trim_end())
            }
        }
    }
}

impl std::error::Error for LinkError {}

/// Properties of a shared object, apart from its contents.
struct LibraryInfo<'a> {
    /// The suffix of the symbol that programs link it by, after [`LIBRARY_PREFIX`].
    name: Option<String>,
    /// Python module name.
    module: Option<&'a str>,
    /// Whether it needs libm.
    libm: bool,
    /// Whether it has line tables.
    lines: bool,
    /// Whether it stays loaded (`-z nodelete`).
    stays: bool,
}

/// A linker and how to invoke it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linker {
    /// Its path.
    pub program: PathBuf,
    /// Is it a compiler driver (`cc`), which knows where the C library is, or a bare linker?
    pub driver: bool,
    /// Whether to pass a linker flavour, as `rust-lld` requires.
    pub flavor: bool,
}

/// Linker names in the order they are tried: name, whether it is a driver, whether it needs a
/// flavour.
const NAMES: [(&str, bool, bool); 4] =
    [("cc", true, false), ("ld.lld", false, false), ("rust-lld", false, true), ("ld", false, false)];

impl Linker {
    /// The first linker found in the folders of `path` (the variable `PATH`) and, for `rust-lld`,
    /// in Rust's own folders.
    ///
    /// # Errors
    /// [`LinkError::NoLinker`].
    pub fn find(path: Option<OsString>) -> Result<Linker, LinkError> {
        // Absolute, because the linker is started in another folder.
        let folders: Vec<PathBuf> =
            path.iter().flat_map(std::env::split_paths).filter_map(|p| std::path::absolute(p).ok()).collect();
        for (name, driver, flavor) in NAMES {
            let mut places: Vec<PathBuf> = folders.iter().map(|f| f.join(name)).collect();
            if flavor {
                places.extend(rust_folders().into_iter().map(|f| f.join(name)));
            }
            if let Some(program) = places.into_iter().find(|p| is_program(p)) {
                return Ok(Linker { program, driver, flavor });
            }
        }
        Err(LinkError::NoLinker { tried: NAMES.iter().map(|(n, _, _)| (*n).to_owned()).collect() })
    }

    /// Links the object files into `output` with the exports of `script`; all are given as file
    /// names relative to the linker's working directory, so that no path gets into its output. libm
    /// is only linked if needed: reading its symbols takes a fifth of the linker's time. Line
    /// tables are stripped unless the model has some, because parts of the support library have
    /// them.
    fn command(&self, objects: &[String], script: &str, made: &LibraryInfo<'_>, output: &str) -> Command {
        let mut c = Command::new(&self.program);
        let script = format!("--version-script={script}");
        let mut flags = vec!["-z", "defs", "-z", "noexecstack", "-z", "relro", "-z", "now"];
        flags.extend(made.stays.then_some(["-z", "nodelete"]).into_iter().flatten());
        let mut long = vec!["--build-id=none", "-Bsymbolic", "--hash-style=gnu", "--as-needed"];
        long.extend((!made.lines).then_some("--strip-debug"));
        let own = made.name.iter().map(|name| format!("--defsym={LIBRARY_PREFIX}{name}={LIBRARY_SYMBOL}"));
        let entry = made.module.iter().map(|name| format!("--defsym=PyInit_{name}=attnc_python_init"));
        let aliases = own.chain(entry);
        if self.driver {
            // -fno-lto keeps gcc from loading its plugin; no start-up code is needed.
            c.args(["-shared", "-nostdlib", "-fno-lto"]);
            c.args(flags.chunks(2).map(|f| format!("-Wl,{}", f.join(","))));
            c.args(long.iter().map(|l| format!("-Wl,{l}")));
            c.arg(format!("-Wl,{script}"));
            c.args(aliases.map(|a| format!("-Wl,{a}")));
            c.arg("-o").arg(output).args(objects);
            c.args(made.libm.then_some("-lm")).args(["-lpthread", "-ldl", "-lc"]);
            return c;
        }
        if self.flavor {
            c.args(["-flavor", "gnu"]);
        }
        c.arg("-shared").args(&flags).args(&long).arg(script).args(aliases).arg("-o").arg(output).args(objects);
        c.args(library_files(made.libm));
        c
    }

    /// Combines object files into one (`-r`).
    fn joining(&self, objects: &[String], output: &str) -> Command {
        let mut c = Command::new(&self.program);
        if self.flavor {
            c.args(["-flavor", "gnu"]);
        }
        if self.driver {
            c.args(["-nostdlib", "-fno-lto"]);
        }
        c.args(["-r", "-o", output]).args(objects);
        c
    }
}

/// Is it an executable file?
pub(crate) fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Where rustup and cargo keep `rust-lld`; toolchains with the lexically last name first.
fn rust_folders() -> Vec<PathBuf> {
    let home = std::env::var_os("RUSTUP_HOME").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("HOME")?;
        Some(PathBuf::from(home).join(".rustup"))
    });
    let mut toolchains: Vec<PathBuf> = home
        .and_then(|h| std::fs::read_dir(h.join("toolchains")).ok())
        .map(|entries| entries.filter_map(|e| e.ok()).map(|e| e.path()).collect())
        .unwrap_or_default();
    toolchains.sort();
    toolchains.reverse();
    toolchains.extend([PathBuf::from("/usr"), PathBuf::from("/usr/local")]);
    toolchains.into_iter().map(|t| t.join("lib/rustlib").join(TRIPLE).join("bin")).collect()
}

#[cfg(target_arch = "aarch64")]
const TRIPLE: &str = "aarch64-unknown-linux-gnu";
#[cfg(not(target_arch = "aarch64"))]
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// The C library for a bare linker, which does not know where it is: the shared objects themselves,
/// which are present on every machine that runs programs, even without development files.
fn library_files(libm: bool) -> Vec<PathBuf> {
    let arch = TRIPLE.split('-').next().unwrap_or_default();
    let folders = [
        format!("/lib/{arch}-linux-gnu"),
        format!("/usr/lib/{arch}-linux-gnu"),
        "/lib64".to_owned(),
        "/usr/lib64".to_owned(),
        "/usr/lib".to_owned(),
        "/lib".to_owned(),
    ];
    let musl = format!("ld-musl-{arch}.so.1");
    let found = |names: &[&str]| {
        folders.iter().flat_map(|f| names.iter().map(move |n| Path::new(f).join(n))).find(|p| p.is_file())
    };
    let separate =
        ["libm.so.6", "libpthread.so.0", "libdl.so.2"].into_iter().filter(|name| libm || *name != "libm.so.6");
    separate.map(|name| found(&[name])).chain([found(&["libc.so.6", musl.as_str()])]).flatten().collect()
}

/// Links `objects` (the bytes of object files) with the support library and writes `output`, with
/// the first linker on `PATH`. The library is for this process, which closes its handles before it
/// unloads it.
///
/// # Errors
/// No linker, a file that cannot be written, or a linker failure.
pub fn link(objects: &[&[u8]], output: &Path) -> Result<(), LinkError> {
    link_with(&Linker::find(std::env::var_os("PATH"))?, objects, output)
}

/// Like [`link`], but for arbitrary programs. Once loaded, the library stays in memory: unloading
/// it while a model is open would remove the code of the model's threads. Python can import it:
/// `import model` finds the library before a `model.py` beside it, and gets that module from it
/// (`support/python.rs`). If the file name is not a valid module name, the library cannot be
/// imported.
///
/// # Errors
/// As [`link`].
pub fn link_library(objects: &[&[u8]], output: &Path) -> Result<(), LinkError> {
    written(output, &library(objects, output)?)
}

/// The bytes that [`link_library`] writes.
///
/// # Errors
/// As [`link`].
pub fn library(objects: &[&[u8]], output: &Path) -> Result<Vec<u8>, LinkError> {
    let importable = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    // Python takes `NAME.so` and `NAME.abi3.so` for the module `NAME`.
    let file = output.file_name().and_then(|name| name.to_str()).and_then(|name| name.split('.').next());
    let module = file.filter(importable);
    link_as(&Linker::find(std::env::var_os("PATH"))?, objects, module, true, output)
}

/// [`link`] with a given linker.
///
/// # Errors
/// As [`link`].
pub fn link_with(linker: &Linker, objects: &[&[u8]], output: &Path) -> Result<(), LinkError> {
    written(output, &link_as(linker, objects, None, false, output)?)
}

fn written(output: &Path, library: &[u8]) -> Result<(), LinkError> {
    files::write(output, library, true).map_err(file(output))
}

fn file(path: &Path) -> impl Fn(std::io::Error) -> LinkError {
    let path = path.to_owned();
    move |error| LinkError::File { path: path.clone(), error }
}

/// Combines several object files into one, without the support library.
///
/// # Errors
/// As [`link`].
pub fn join(objects: &[&[u8]]) -> Result<Vec<u8>, LinkError> {
    let linker = Linker::find(std::env::var_os("PATH"))?;
    start(objects.iter().copied(), None, |names, to| linker.joining(names, to))
}

fn link_as(
    linker: &Linker,
    objects: &[&[u8]],
    module: Option<&str>,
    stays: bool,
    output: &Path,
) -> Result<Vec<u8>, LinkError> {
    let (libm, name) = survey(objects);
    let lines = objects.iter().any(|object| has_lines(object));
    let made = LibraryInfo { name, module, libm, lines, stays };
    let all = objects.iter().copied().chain([SUPPORT_OBJECT]);
    start(all, Some(output), |names, to| linker.command(names, SCRIPT, &made, to))
}

/// Does an object have a line table?
fn has_lines(object: &[u8]) -> bool {
    ElfFile64::<Endianness>::parse(object).is_ok_and(|file| file.section_by_name(".debug_line").is_some())
}

/// Do the objects have undefined symbols that none of them defines? They do not use the support
/// library, so these are in libm. Files that are not valid ELF objects count as having some. Also
/// returns the model's name, from the symbol after [`NAME_PREFIX`].
fn survey(objects: &[&[u8]]) -> (bool, Option<String>) {
    let (mut defined, mut wanted) = (BTreeSet::new(), BTreeSet::new());
    for object in objects {
        let Ok(file) = ElfFile64::<Endianness>::parse(*object) else { return (true, None) };
        for symbol in file.symbols() {
            let Ok(name) = symbol.name_bytes() else { return (true, None) };
            let set = if symbol.is_undefined() { &mut wanted } else { &mut defined };
            set.insert(name);
        }
    }
    let own = |name: &&[u8]| std::str::from_utf8(name.strip_prefix(NAME_PREFIX.as_bytes())?).ok().map(str::to_owned);
    let libm = wanted.iter().any(|name| !name.is_empty() && !defined.contains(name));
    (libm, defined.iter().find_map(own))
}

/// Runs a linker on objects; `command` receives their file names and that of the output. The
/// working directory is a temporary one, created beside `near` if there is no other place.
fn start<'o>(
    objects: impl Iterator<Item = &'o [u8]>,
    near: Option<&Path>,
    command: impl FnOnce(&[String], &str) -> Command,
) -> Result<Vec<u8>, LinkError> {
    let work = Folder::new(near).map_err(file(near.unwrap_or(&std::env::temp_dir())))?;
    let write = |name: &str, bytes: &[u8]| {
        let path = work.path().join(name);
        std::fs::write(&path, bytes).map_err(file(&path))
    };
    let mut names = Vec::new();
    for (i, bytes) in objects.enumerate() {
        let name = format!("{i}.o");
        write(&name, bytes)?;
        names.push(name);
    }
    write(SCRIPT, VERSION_SCRIPT.as_bytes())?;
    let mut command = command(&names, "linked");
    command.current_dir(work.path()).stdin(Stdio::null());
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let shown = words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ");
    match command.output() {
        Err(error) => return Err(LinkError::Failed { command: shown, output: error.to_string() }),
        Ok(done) if !done.status.success() => {
            let said = String::from_utf8_lossy(&done.stderr);
            let output = if said.trim().is_empty() { done.status.to_string() } else { said.into_owned() };
            return Err(LinkError::Failed { command: shown, output });
        }
        Ok(_) => {}
    }
    let linked = work.path().join("linked");
    std::fs::read(&linked).map_err(file(&linked))
}
