//! Build script: generates the parsers from `grammar/`, and lists of `src/vector/functions/`, of
//! the exercises and the course; compiles the support library in `src/runtime/support/`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    for made in [parsers(), vector_functions(), exercises(), course(), support_library()] {
        if let Err(error) = made {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}

fn parsers() -> Result<(), String> {
    if !Path::new("grammar").exists() {
        return Ok(());
    }
    println!("cargo:rerun-if-changed=grammar");
    // The default lane table omits valid tokens from the "expected" lists of syntax errors.
    // SAFETY: the build script is single-threaded, so nothing reads the environment concurrently.
    unsafe { env::set_var("LALRPOP_LANE_TABLE", "disabled") };
    lalrpop::Configuration::new().set_in_dir("grammar").process().map_err(|e| format!("grammar: {e}"))
}

/// Lists the elementary functions: `FILES` has each file's name without extension, in order, and
/// its text.
fn vector_functions() -> Result<(), String> {
    let folder = Path::new("src/vector/functions");
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut files = sorted(folder)?;
    files.retain(|path| path.extension().is_some_and(|ending| ending == "vec"));
    let mut list = String::from("const FILES: &[(&str, &str)] = &[\n");
    for path in &files {
        let name = path.file_stem().and_then(|s| s.to_str()).ok_or("a file name that is not UTF-8")?;
        let path = fs::canonicalize(path).map_err(|e| format!("{}: {e}", path.display()))?;
        list += &format!("    ({name:?}, include_str!({:?})),\n", path.display().to_string());
    }
    list += "];\n";
    let out = env::var("OUT_DIR").map_err(|e| format!("OUT_DIR: {e}"))?;
    fs::write(Path::new(&out).join("vector_functions.rs"), list).map_err(|e| format!("vector_functions.rs: {e}"))
}

/// Lists the exercises of the course: `FILES` has the name of each folder, and its files with their
/// texts.
fn exercises() -> Result<(), String> {
    let folder = Path::new("docs/book/exercises");
    println!("cargo:rerun-if-changed={}", folder.display());
    let name = |path: &Path| path.file_name().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
    let mut list = String::from("const FILES: &[(&str, &[(&str, &str)])] = &[\n");
    for exercise in sorted(folder)? {
        list += &format!("    ({:?}, &[\n", name(&exercise));
        for file in sorted(&exercise)? {
            let path = fs::canonicalize(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            list += &format!("        ({:?}, include_str!({:?})),\n", name(&file), path.display().to_string());
        }
        list += "    ]),\n";
    }
    list += "];\n";
    let out = env::var("OUT_DIR").map_err(|e| format!("OUT_DIR: {e}"))?;
    fs::write(Path::new(&out).join("exercises.rs"), list).map_err(|e| format!("exercises.rs: {e}"))
}

/// Lists the texts that `attnc play` shows: `CHAPTERS`, `PICTURES` and `EXAMPLES` have each file's
/// name, in order, and its text. Pictures keep their extension.
fn course() -> Result<(), String> {
    let mut list = String::new();
    for (constant, folder, wanted) in [
        ("CHAPTERS", "docs/book/src", "md"),
        ("PICTURES", "docs/book/src/pictures", "svg"),
        ("EXAMPLES", "examples", "attn"),
    ] {
        println!("cargo:rerun-if-changed={folder}");
        list += &format!("const {constant}: &[(&str, &str)] = &[\n");
        let mut files = sorted(Path::new(folder))?;
        files.retain(|path| path.extension().is_some_and(|ending| ending == wanted));
        for path in files {
            let name = if wanted == "svg" { path.file_name() } else { path.file_stem() };
            let name = name.and_then(|s| s.to_str()).ok_or("a file name that is not UTF-8")?;
            let path = fs::canonicalize(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            list += &format!("    ({name:?}, include_str!({:?})),\n", path.display().to_string());
        }
        list += "];\n";
    }
    let out = env::var("OUT_DIR").map_err(|e| format!("OUT_DIR: {e}"))?;
    fs::write(Path::new(&out).join("course.rs"), list).map_err(|e| format!("course.rs: {e}"))
}

/// The entries of a folder, sorted.
fn sorted(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    Ok(paths)
}

/// Compiles the support library to one object file, `$OUT_DIR/support.o`, which `runtime::link`
/// embeds.
///
/// Link-time optimisation merges the library and the used parts of `core` and `alloc` into the
/// first member of the archive; the others (compiler-builtins) are not needed, which linking with
/// `-z defs` would reveal. The object has some 400 sections, one per function, which
/// [`with_few_sections`] merges, because linking a model takes time for each of them.
fn support_library() -> Result<(), String> {
    println!("cargo:rerun-if-changed=src/runtime/support");
    println!("cargo:rerun-if-changed=src/runtime/abi.rs");
    println!("cargo:rerun-if-changed=src/runtime/abi_cuda.rs");
    println!("cargo:rerun-if-changed=src/runtime/dlpack.rs");
    println!("cargo:rerun-if-changed=src/runtime/processor.rs");
    let variable = |name: &str| env::var(name).map_err(|e| format!("{name}: {e}"));
    let out = PathBuf::from(variable("OUT_DIR")?);
    let archive = out.join("libattnc_support.a");
    let target = variable("TARGET")?;
    // Inline atomics, to avoid calls into compiler-builtins.
    let features = if target.starts_with("aarch64") { "target-feature=-outline-atomics" } else { "target-feature=" };
    let status = Command::new(variable("RUSTC")?)
        .args(["--edition", "2024", "--crate-name", "attnc_support", "--crate-type", "staticlib"])
        .args(["-C", "panic=abort", "-C", "opt-level=3", "-C", "lto=fat", "-C", "codegen-units=1"])
        .args(["-C", "relocation-model=pic", "-C", "debuginfo=0", "-C", "strip=none"])
        .args(["-C", "force-unwind-tables=no"])
        .args(["-C", features, "--target", &target])
        .arg("src/runtime/support/lib.rs")
        .arg("-o")
        .arg(&archive)
        .status()
        .map_err(|e| format!("cannot start rustc for the support library: {e}"))?;
    if !status.success() {
        return Err("the support library does not compile".to_owned());
    }
    let bytes = fs::read(&archive).map_err(|e| format!("{}: {e}", archive.display()))?;
    let object = first_object(&bytes).ok_or("the support library's archive has no object file")?;
    fs::write(out.join("support.o"), object).map_err(|e| format!("support.o: {e}"))?;
    with_few_sections(&out)?;
    fs::remove_file(&archive).map_err(|e| format!("{}: {e}", archive.display()))
}

/// Linker script that merges sections, and discards unwind tables, which `core` still has.
const SECTIONS: &str = "SECTIONS {
    /DISCARD/ : { *(.comment .eh_frame .gcc_except_table .gcc_except_table.* .data.DW.ref.*) }
    .text : { *(.text .text.*) }
    .rodata : { *(.rodata .rodata.*) }
    .data.rel.ro : { *(.data.rel.ro .data.rel.ro.*) }
    .data : { *(.data .data.*) }
    .bss : { *(.bss .bss.*) }
}
";

/// Merges the sections of `support.o` in a folder. If no linker can do that, it stays unchanged.
fn with_few_sections(folder: &Path) -> Result<(), String> {
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).map_err(|e| format!("{name}: {e}"));
    write("sections.ld", SECTIONS)?;
    let made = Command::new("cc")
        .args(["-r", "-nostdlib", "-fno-lto", "-Wl,--strip-debug,-T,sections.ld", "-o", "joined.o", "support.o"])
        .current_dir(folder)
        .output();
    if made.is_ok_and(|done| done.status.success()) {
        fs::rename(folder.join("joined.o"), folder.join("support.o")).map_err(|e| format!("support.o: {e}"))?;
    } else {
        println!("cargo:warning=`cc -r` does not join sections: models are linked more slowly, and are larger");
    }
    fs::remove_file(folder.join("sections.ld")).map_err(|e| format!("sections.ld: {e}"))
}

/// The first member of an `ar` archive that is an object file. A member header has 60 bytes: the
/// name in the first 16 (`/` and `//` are tables), the size in decimal in 10 bytes at offset 48;
/// members start at even offsets.
fn first_object(archive: &[u8]) -> Option<&[u8]> {
    let mut rest = archive.strip_prefix(b"!<arch>\n")?;
    loop {
        let (header, after) = rest.split_at_checked(60)?;
        let size: usize = std::str::from_utf8(header.get(48..58)?).ok()?.trim().parse().ok()?;
        let (member, after) = after.split_at_checked(size)?;
        if member.starts_with(b"\x7fELF") {
            return Some(member);
        }
        rest = if size % 2 == 1 { after.get(1..)? } else { after };
    }
}
