//! The ways in from C, C++ and Python: `model.h` and `model.py`, each against the toy.

use std::path::{Path, PathBuf};
use std::process::Command;

use attnc::runtime::descriptor::Entry;
use attnc::runtime::{header, link, python};

use crate::toy;

/// Runs a command that must succeed; gives its standard output.
pub(crate) fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {}\n{out}{err}", done.status);
    out.into_owned()
}

pub(crate) fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success())
}

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runtime").join(name)
}

/// A folder with what `attnc -o toy.so --emit so,header,python` leaves, and weights.
fn built(name: &str) -> PathBuf {
    let folder = toy::folder().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let model = toy::descriptor();
    link::link_library(&[&toy::descriptor_object(&model), toy::kernels()], &folder.join("toy.so")).unwrap();
    std::fs::write(folder.join("toy.h"), header::header(&model)).unwrap();
    std::fs::write(folder.join("toy.py"), python::python(&model)).unwrap();
    std::fs::copy(toy::weights(), folder.join("toy.safetensors")).unwrap();
    folder
}

#[test]
fn header_and_wrapper_are_these() {
    let model = toy::descriptor();
    insta::with_settings!({
        snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/runtime"),
        prepend_module_to_snapshot => false,
    }, {
        let text = header::header(&model);
        let own = text.split("#endif /* ATTNC_RUNTIME_H */").nth(1).expect("the model's own part");
        insta::assert_snapshot!("header", own);
        let text = python::python(&model);
        insta::assert_snapshot!("python", text.split("# The model.").nth(1).expect("the model's own part"));
    });
}

/// Names and texts that would break a careless wrapper.
#[test]
fn no_name_breaks_a_wrapper() {
    let model = toy::bare_descriptor();
    let folder = toy::folder().join("names");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("bare.h"), header::header(&model)).unwrap();
    std::fs::write(folder.join("bare.py"), python::python(&model)).unwrap();
    for (compiler, language, standard) in
        [("cc", "c", "-std=c89"), ("cc", "c", "-std=c11"), ("c++", "c++", "-std=c++17")]
    {
        if is_there(compiler) {
            let flags = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", standard, "-x", language];
            run(Command::new(compiler).args(flags).arg(folder.join("bare.h")));
        }
    }
    if is_there("python3") {
        let compile = "import ast, sys; t = ast.parse(open(sys.argv[1]).read()); print(ast.get_docstring(t))";
        let doc = run(Command::new("python3").args(["-c", compile]).arg(folder.join("bare.py")));
        assert!(doc.contains("Ends */ comments /* and \"\"\" docstrings \\"), "{doc}");
    }
    let own = header::header(&model);
    assert!(own.contains("model9_lives_class(attnc_session *session, int64_t batch_, const float *lambda"), "{own}");
    assert!(python::python(&model).contains("def class_(self, lambda_, batch, *, taps=None):"));
    // Names that mean something to Python's classes, or are the wrapper's own, and such that become the same.
    let mut model = model;
    let entry = model.entries[0].clone();
    for name in
        ["__init__", "_call", "__x", "session", "session_", "class", "library", "model_open", "lib_dlpack", "lib"]
    {
        model.entries.push(Entry { name: name.to_owned(), ..entry.clone() });
        model.variants.iter_mut().for_each(|v| v.plans.push(v.plans[0].clone()));
    }
    std::fs::write(folder.join("odd.h"), header::header(&model)).unwrap();
    if is_there("cc") {
        let flags = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-std=c89", "-x", "c"];
        run(Command::new("cc").args(flags).arg(folder.join("odd.h")));
    }
    let text = python::python(&model);
    let methods: Vec<&str> = text
        .split("class _Entries:")
        .nth(1)
        .and_then(|rest| rest.split("class Session(").next())
        .unwrap()
        .lines()
        .filter_map(|l| l.strip_prefix("    def ")?.split('(').next())
        .collect();
    assert_eq!(
        methods,
        [
            "class_",
            "entry__init__",
            "entry_call",
            "entry__x",
            "session_",
            "session__",
            "class__",
            "library",
            "model_open",
            "lib_dlpack",
            "lib"
        ]
    );
}

#[test]
fn c_programs_call_the_model() {
    if !is_there("cc") {
        eprintln!("no C compiler: not checked");
        return;
    }
    let folder = built("c");
    let main = fixture("main.c");
    for (compiler, flags) in [
        ("cc", &["-std=c89", "-Wall", "-Wextra", "-Werror"][..]),
        ("cc", &["-std=c99", "-pedantic-errors", "-Wall", "-Wextra", "-Werror"]),
        ("c++", &["-x", "c++", "-std=c++11", "-pedantic-errors", "-Wall", "-Wextra", "-Werror"]),
    ] {
        if !is_there(compiler) {
            continue;
        }
        let program = folder.join("program");
        let mut compile = Command::new(compiler);
        compile.args(flags).arg("-I").arg(&folder).arg(&main).args(["-x", "none"]).arg(folder.join("toy.so"));
        compile.arg("-Wl,-rpath,$ORIGIN").arg("-o").arg(&program);
        run(&mut compile);
        let weights = folder.join("toy.safetensors");
        assert_eq!(run(Command::new(&program).arg(&weights)), "ok\n");
        if is_there("valgrind") {
            let mut checked = Command::new("valgrind");
            checked.args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=all"]);
            assert_eq!(run(checked.arg(&program).arg(&weights)), "ok\n");
        } else {
            eprintln!("no valgrind: memory not checked");
        }
    }
}

/// Where the system has no memory, calls end with a status.
#[test]
fn no_allocation_that_is_refused_ends_the_process() {
    // The allocator that is replaced is glibc's.
    if !is_there("cc") || !cfg!(target_env = "gnu") {
        return;
    }
    let folder = built("no_memory");
    let large = folder.join("large.safetensors");
    let program = folder.join("program");
    let mut compile = Command::new("cc");
    compile.args(["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-fno-builtin", "-I"]).arg(&folder);
    compile.arg(fixture("no_memory.c")).arg(folder.join("toy.so")).arg("-Wl,-rpath,$ORIGIN").arg("-o").arg(&program);
    run(&mut compile);
    let weights = folder.join("toy.safetensors");
    assert_eq!(run(Command::new(&program).args([&weights, &large])), "ok\n");
}

/// A Python with NumPy, or `None` with a note.
pub(crate) fn python_with_numpy() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/bin/python");
    let python = std::env::var_os("ATTNC_TEST_PYTHON").map_or(own, PathBuf::from);
    let python = if python.is_file() { python } else { PathBuf::from("python3") };
    if Command::new(&python).args(["-c", "import numpy"]).output().is_ok_and(|o| o.status.success()) {
        return Some(python);
    }
    eprintln!("no Python with NumPy: not checked");
    None
}

/// The package `python/attnc`, which compiles with the command: calls, errors, dumps, weights, and that a program that is changed gives
/// the new numbers.
#[test]
fn the_package_compiles_and_calls() {
    let Some(python) = python_with_numpy() else { return };
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/check.py");
    run(Command::new(&python).arg("-B").arg(check).env("ATTNC", env!("CARGO_BIN_EXE_attnc")));
}

/// The library and its wrapper lie side by side, and Python finds the library first: linked before or after, by the name under which the
/// library was linked.
#[test]
fn python_imports_the_pair_by_its_name() {
    let Some(python) = python_with_numpy() else { return };
    let folder = toy::folder().join("imports");
    let model = toy::descriptor();
    let link = |stem: &str| {
        std::fs::create_dir_all(&folder).unwrap();
        let so = folder.join(format!("{stem}.so"));
        link::link_library(&[&toy::descriptor_object(&model), toy::kernels()], &so).unwrap();
        so
    };
    let wrapper = |stem: &str| std::fs::write(folder.join(stem).with_extension("py"), python::python(&model)).unwrap();
    let import = |statement: &str| {
        let mut python = Command::new(&python);
        python.args(["-B", "-c", statement]).current_dir(&folder).output().unwrap()
    };
    link("before");
    wrapper("before");
    wrapper("after");
    link("after");
    for (linked, name) in [("X2", "X2"), ("_hidden", "_hidden"), ("tagged.abi3", "tagged")] {
        link(linked);
        wrapper(name);
    }
    // Two libraries of one model are two modules.
    let names = ["before", "after", "X2", "_hidden", "tagged"];
    for name in names {
        let done = import(&format!("from {name} import Model; print(Model.__module__)"));
        let told = String::from_utf8_lossy(&done.stderr);
        assert_eq!(String::from_utf8_lossy(&done.stdout), format!("{name}\n"), "{told}");
    }
    let all = names.map(|name| format!("import {name}; assert {name}.Model.__module__ == '{name}'")).join("; ");
    assert!(import(&all).status.success());
    // Without the wrapper the error says what is missing.
    let done = import("import from_nowhere");
    assert!(!done.status.success());
    let alone = link("alone");
    let told = String::from_utf8_lossy(&import("import alone").stderr).into_owned();
    assert!(told.contains("alone.py is missing: generate it with `--emit python`"), "{told}");
    // A library that was renamed has the function of its former name.
    std::fs::copy(alone, folder.join("renamed.so")).unwrap();
    wrapper("renamed");
    let told = String::from_utf8_lossy(&import("import renamed").stderr).into_owned();
    assert!(told.contains("(PyInit_renamed)"), "{told}");
}

#[test]
fn python_calls_the_model() {
    let Some(python) = python_with_numpy() else { return };
    let folder = built("python");
    let preloaded = std::env::var_os("ATTNC_TEST_ASAN").map(|_| watched(&folder));
    for test in ["wrapper_test.py", "handles_test.py"] {
        let mut command = Command::new(&python);
        if let Some(library) = &preloaded {
            command.env("LD_PRELOAD", library).env("ASAN_OPTIONS", "detect_leaks=0");
        }
        assert!(run(command.arg("-B").arg(fixture(test)).arg(&folder)).starts_with("ok"), "{test}");
    }
}

/// Links the toy of a folder with a support library whose accesses AddressSanitizer watches, for `ATTNC_TEST_ASAN=1`; gives the library
/// that a process must have loaded before. The flag of rustc is one of its nightly channel, so rustc is told to be of that.
fn watched(folder: &Path) -> PathBuf {
    let model = toy::descriptor();
    let name = format!("attnc_library_{}", model.symbol());
    std::fs::write(folder.join("toy.o"), toy::descriptor_object(&model)).unwrap();
    std::fs::write(folder.join("kernels.o"), toy::kernels()).unwrap();
    let mut rustc = Command::new("rustc");
    rustc.args([
        "--edition",
        "2024",
        "--crate-name",
        "attnc_support",
        "--crate-type",
        "staticlib",
        "-Zsanitizer=address",
    ]);
    rustc.args([
        "-Cpanic=abort",
        "-Copt-level=1",
        "-Ccodegen-units=1",
        "-Crelocation-model=pic",
        "-g",
        "-o",
        "support.a",
    ]);
    rustc.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/runtime/support/lib.rs"));
    run(rustc.env("RUSTC_BOOTSTRAP", "1").current_dir(folder));
    let mut cc = Command::new("cc");
    cc.args([
        "-shared",
        "-nostdlib",
        "-Wl,-z,nodelete,-z,muldefs,-Bsymbolic",
        "-Wl,-u,attnc_library,-u,attnc_python_init",
    ]);
    cc.arg(format!("-Wl,--defsym={name}=attnc_library,--defsym=PyInit_toy=attnc_python_init"));
    cc.args(["-o", "toy.so", "toy.o", "kernels.o", "support.a", "-lasan", "-lpthread", "-ldl", "-lc"]);
    run(cc.current_dir(folder));
    PathBuf::from(run(Command::new("cc").arg("-print-file-name=libasan.so")).trim())
}

/// Adds in the first and third build, and subtracts in the second.
const BUILDS: &str = "
import importlib, os, sys
import numpy as np
import again
def value(model):
    return float(model.combine(np.float32([3] * 4), np.float32([2] * 4))[0])
def other_build(**options):
    try:
        again.Model(**options)
    except again.AttncError as error:
        assert 'is of another build than this module' in str(error), error
    else:
        raise AssertionError('no error')
first = again.Model()
assert value(first) == 5
os.replace('2/again.so', 'again.so')
other_build()
os.replace('2/again.py', 'again.py')
other_build()
assert importlib.reload(again) is again
second = again.Model()
assert (value(first), value(second), value(again.Model())) == (5, 1, 1)
os.replace('3/again.so', 'again.so')
os.replace('3/again.py', 'again.py')
del sys.modules['again']
import again
assert (value(first), value(second), value(again.Model()), value(again.Model('again.so'))) == (5, 1, 5, 5)
other_build(path='4.so')
os.replace('4.so', 'again.so')
os.replace('4/again.py', 'again.py')
importlib.reload(again)
assert value(again.Model()) == 1
assert value(importlib.reload(again).Model()) == 1
";

/// A library that is compiled again to the same path is another one, also in a process that has loaded the first; and a wrapper takes no
/// library but that of its own build.
#[test]
fn python_runs_the_build_that_it_imported() {
    let Some(python) = python_with_numpy() else { return };
    let folder = toy::folder().join("builds");
    for (place, id, adds) in [("", 1, true), ("2", 2, false), ("3", 3, true), ("4", 4, false)] {
        let folder = folder.join(place);
        std::fs::create_dir_all(&folder).unwrap();
        let model = toy::combining("Again", id, adds);
        let objects = [&toy::descriptor_object(&model)[..], toy::kernels()];
        link::link_library(&objects, &folder.join("again.so")).unwrap();
        std::fs::write(folder.join("again.py"), python::python(&model)).unwrap();
    }
    std::fs::rename(folder.join("4/again.so"), folder.join("4.so")).unwrap();
    run(Command::new(&python).args(["-B", "-c", BUILDS]).current_dir(&folder));
}
