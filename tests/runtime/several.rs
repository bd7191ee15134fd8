//! Several models in one process: each is called under its own name, whichever way it came there, and none stands in for
//! another. And what becomes of a library that is unloaded while its model is open.

use std::path::{Path, PathBuf};
use std::process::Command;

use attnc::runtime::{header, link, python};

use crate::toy;
use crate::wrappers::{fixture, is_there, python_with_numpy, run};

/// A folder with libraries, headers and wrappers of two models that differ in their code alone, `plus` and `minus`, and
/// one more that is called `Plus` too and subtracts, `other`.
fn built(name: &str) -> PathBuf {
    let folder = toy::folder().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    for (stem, name, id, adds) in [("plus", "Plus", 1, true), ("minus", "Minus", 2, false), ("other", "Plus", 3, false)]
    {
        let model = toy::combining(name, id, adds);
        let so = folder.join(stem).with_extension("so");
        link::link_library(&[&toy::descriptor_object(&model), toy::kernels()], &so).unwrap();
        std::fs::write(so.with_extension("h"), header::header(&model)).unwrap();
        std::fs::write(so.with_extension("py"), python::python(&model)).unwrap();
    }
    folder
}

/// A program of these sources and libraries, which finds them in its own folder.
fn compiled(folder: &Path, compiler: &[&str], sources: &[PathBuf], libraries: &[&str]) -> PathBuf {
    let program = folder.join("program");
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(folder).args(sources);
    command.args(["-x", "none"]).args(libraries.iter().map(|l| folder.join(l)));
    command.args(["-ldl", "-Wl,-rpath,$ORIGIN", "-o"]).arg(&program);
    run(&mut command);
    program
}

const COMPILERS: [&[&str]; 3] =
    [&["cc", "-std=c89"], &["cc", "-std=c11", "-no-pie"], &["c++", "-x", "c++", "-std=c++11", "-pedantic-errors"]];

#[test]
fn two_models_in_one_program() {
    let folder = built("two");
    for compiler in COMPILERS.into_iter().filter(|c| is_there(c[0])) {
        for libraries in [["plus.so", "minus.so"], ["minus.so", "plus.so"]] {
            let program = compiled(&folder, compiler, &[fixture("several.c")], &libraries);
            assert_eq!(run(&mut Command::new(program)), "ok\n", "{compiler:?} {libraries:?}");
        }
    }
}

/// A header in each of two files; the models may even be of one name.
#[test]
fn a_model_for_each_file_of_a_program() {
    let folder = built("files");
    for other in ["minus", "other"] {
        let name = if other == "other" { "plus" } else { other };
        let mut sources = Vec::new();
        for (stem, name) in [("plus", "plus"), (other, name)] {
            let file = folder.join(format!("use_{stem}.c"));
            let text = format!(
                "#include \"{stem}.h\"\n#define NAME use_{stem}\n#define COMBINE {name}_combine\n#include \"each.h\"\n"
            );
            std::fs::write(&file, text).unwrap();
            sources.push(file);
        }
        std::fs::copy(fixture("each.h"), folder.join("each.h")).unwrap();
        let main = folder.join("main.c");
        let text = format!(
            "#include <stdio.h>\nfloat use_plus(float, float);\nfloat use_{other}(float, float);\nint main(void)\n{{\n    \
             printf(\"%g %g\\n\", use_plus(5, 3), use_{other}(5, 3));\n    return 0;\n}}\n"
        );
        std::fs::write(&main, text).unwrap();
        sources.push(main);
        for compiler in COMPILERS.into_iter().filter(|c| is_there(c[0]) && c[0] == "cc") {
            for libraries in
                [["plus.so".to_owned(), format!("{other}.so")], [format!("{other}.so"), "plus.so".to_owned()]]
            {
                let libraries = libraries.each_ref().map(String::as_str);
                let program = compiled(&folder, compiler, &sources, &libraries);
                assert_eq!(run(&mut Command::new(program)), "8 2\n", "{compiler:?} {libraries:?}");
            }
        }
    }
}

#[test]
fn what_would_be_ambiguous_does_not_compile() {
    if !is_there("cc") {
        return;
    }
    let folder = built("ambiguous");
    let file = folder.join("t.c");
    for (text, said) in [
        (
            "#include \"plus.h\"\n#include \"minus.h\"\nint f(attnc_model **m) { return attnc_model_open(0, 0, m); }\n",
            "several_models_are_included",
        ),
        ("#include \"plus.h\"\n#include \"other.h\"\n", "two models are called plus"),
    ] {
        std::fs::write(&file, text).unwrap();
        let done = Command::new("cc").args(["-fsyntax-only", "-I"]).arg(&folder).arg(&file).output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && told.contains(said), "{text}: {told}");
    }
    // The same header twice is no mistake.
    std::fs::write(
        &file,
        "#include \"plus.h\"\n#include \"plus.h\"\nint f(attnc_model **m) { return attnc_model_open(0, 0, m); }\n",
    )
    .unwrap();
    run(Command::new("cc").args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I"]).arg(&folder).arg(&file));
}

#[test]
fn two_models_in_python() {
    let Some(python) = python_with_numpy() else { return };
    let folder = built("two_python");
    let mut test = Command::new(python);
    test.arg("-B").arg(fixture("several_test.py")).arg(&folder);
    assert_eq!(run(&mut test), "ok\n");
}

#[test]
fn a_library_is_unloaded_while_its_model_is_open() {
    if !is_there("cc") {
        return;
    }
    let folder = built("unloaded");
    let program = compiled(&folder, &["cc", "-std=gnu99"], &[fixture("unload.c")], &[]);
    assert_eq!(run(Command::new(program).arg(folder.join("plus.so"))), "ok\n");
}
