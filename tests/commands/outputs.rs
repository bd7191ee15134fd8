//! Where do outputs go, and what is there when something goes wrong?
//!
//! Regular files appear together or not at all, pipes and devices are written into, nothing is written through a link, nothing
//! that is read is overwritten, and nothing temporary stays.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/02_self_attention.attn");
const KINDS: [(&str, &str); 14] = [
    ("tokens", "tokens"),
    ("ast", "ast"),
    ("types", "types"),
    ("ir", "air"),
    ("dot", "dot"),
    ("tile", "tir"),
    ("vector", "vir"),
    ("clif", "clif"),
    ("mir", "mir"),
    ("asm", "s"),
    ("obj", "o"),
    ("so", "so"),
    ("header", "h"),
    ("python", "py"),
];

/// A folder, with one in it for temporary files.
struct Sandbox {
    folder: tempfile::TempDir,
}

impl Sandbox {
    fn new() -> Sandbox {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("tmp")).expect("a folder");
        Sandbox { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).env("TMPDIR", self.path("tmp")).stdin(Stdio::null());
        command
    }

    /// Exit code and stderr.
    fn attnc(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.command(env!("CARGO_BIN_EXE_attnc")).args(args).output().expect("attnc starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// The names of all files, those in `tmp` too.
    fn names(&self) -> Vec<String> {
        let of = |folder: &Path| {
            let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
            entries.map(|name| name.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let mut names = of(self.folder.path());
        names.retain(|name| name != "tmp");
        names.extend(of(&self.path("tmp")).into_iter().map(|name| format!("tmp/{name}")));
        names.sort();
        names
    }
}

#[test]
fn an_ending_that_does_not_agree_names_the_flag() {
    let place = Sandbox::new();
    for (args, named) in [
        (&["-o", "out.s"][..], "`--emit asm=out.s`"),
        (&["-o", "out.o"], "`--emit obj=out.o`"),
        (&["-o", "out.air"], "`--emit ir=out.air`"),
        (&["-o", "out.py"], "`--emit python=out.py`"),
        (&["-o", "out.h"], "`--emit header=out.h`"),
        (&["-o", "out.attn"], "a program"),
        (&["-o", "out.dll"], "`--emit so=out.dll`"),
        (&["--emit", "asm", "-o", "out.so"], "`--emit so=out.so`"),
        (&["--emit", "tile", "-o", "out.air"], "`--emit ir=out.air`"),
        (&["--emit", "tile=out.air"], "`--emit ir=out.air`"),
        (&["--emit", "header,python", "-o", "out.so"], "add `so` to `--emit`"),
        (&["--emit", "ir,tile", "-o", "out.attn"], "`-o out`"),
    ] {
        let (code, err) = place.attnc(&[&[EXAMPLE], args].concat());
        assert_eq!(code, Some(2), "{args:?}: {err}");
        assert!(err.contains(named), "{args:?}: {err}");
    }
    assert_eq!(place.names(), [""; 0]);
    for args in
        [&["-o", "model"][..], &["-o", "model.so.1"], &["--emit", "so=model.bin"], &["--emit", "ir", "-o", "ir.txt"]]
    {
        assert_eq!(place.attnc(&[&[EXAMPLE], args].concat()), (Some(0), String::new()), "{args:?}");
    }
    assert_eq!(place.attnc(&[EXAMPLE, "--emit", "header,python", "-o", "m.v2"]), (Some(0), String::new()));
    assert_eq!(place.names(), ["ir.txt", "m.v2.h", "m.v2.py", "model", "model.bin", "model.so.1"]);
    let (code, err) = place.attnc(&["run", EXAMPLE, "--random", "--size", "S=2", "--output", "out.npz"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("out.npy"), "{err}");
}

/// Pipes and devices stay what they are and get the bytes; a link stays, and what it leads to is as it was.
#[test]
fn pipes_devices_and_links_stay_what_they_are() {
    let place = Sandbox::new();
    fs::create_dir(place.path("expected")).expect("a folder");
    for (kind, ending) in KINDS {
        // A library contains the name by which Python imports it, so the expected file has the same name, in another folder.
        let expected = |name: &str| {
            let path = place.path(&format!("expected/{name}.{ending}"));
            assert_eq!(place.attnc(&[EXAMPLE, "--emit", &format!("{kind}={}", path.display())]).0, Some(0));
            fs::read(path).expect("an output")
        };

        let pipe = place.path(&format!("pipe.{ending}"));
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        let reader = {
            let pipe = pipe.clone();
            std::thread::spawn(move || fs::read(pipe).expect("a pipe"))
        };
        let (code, err) = place.attnc(&[EXAMPLE, "--emit", &format!("{kind}={}", pipe.display())]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{kind}");
        assert!(reader.join().expect("a reader") == expected("pipe"), "{kind}");
        assert!(fs::symlink_metadata(&pipe).expect("the pipe").file_type().is_fifo(), "{kind}");

        let (link, target) = (place.path(&format!("link.{ending}")), place.path(&format!("target.{ending}")));
        symlink(&target, &link).expect("a link");
        for old in [None, Some("old")] {
            if let Some(old) = old {
                fs::write(&target, old).expect("a file");
            }
            let (code, err) = place.attnc(&[EXAMPLE, "--emit", &format!("{kind}={}", link.display())]);
            assert_eq!(code, Some(3), "{kind}: {err}");
            assert!(err.contains("it is a symbolic link"), "{kind}: {err}");
            assert_eq!(fs::read_to_string(&target).ok().as_deref(), old, "{kind}");
            assert!(fs::symlink_metadata(&link).expect("the link").is_symlink(), "{kind}");
        }
    }
    // A device of our own, since an attnc with a bug would replace it. Only root can make one.
    let null = place.path("null");
    let made = Command::new("mknod").arg(&null).args(["c", "1", "3"]).stderr(Stdio::null()).status().expect("mknod");
    if made.success() && fs::write(&null, "x").is_ok() {
        for args in [&["-o", "null"][..], &["--emit", "ir=null,tile=null"]] {
            assert_eq!(place.attnc(&[&[EXAMPLE], args].concat()), (Some(0), String::new()), "{args:?}");
            assert!(fs::symlink_metadata(&null).expect("the device").file_type().is_char_device());
        }
    }
    // The open files of a process are not separate files.
    let log = fs::OpenOptions::new().create(true).append(true).open(place.path("log")).expect("a file");
    fs::write(place.path("log"), "before\n").expect("a file");
    let mut command = place.command(env!("CARGO_BIN_EXE_attnc"));
    let status = command.args([EXAMPLE, "--emit", "tokens=/dev/stdout"]).stdout(log).status().expect("attnc");
    assert!(status.success());
    let text = fs::read_to_string(place.path("log")).expect("the log");
    assert!(text.starts_with("before\n") && text.lines().count() > 5, "{text}");
}

/// Two paths may lead to one file; what is read is never overwritten.
#[test]
fn nothing_that_is_read_is_overwritten() {
    let place = Sandbox::new();
    let program = "model M { pub fn f(x: f32[S]) -> f32[S] { x } }\n";
    let air = "module \"m\"\n\nfunc @f(%0 \"x\": f32[S]) -> (f32[S]) {\n^bb0:\n  return %0\n}\n";
    fs::write(place.path("p.txt"), program).expect("a program");
    fs::write(place.path("m.air"), air).expect("a text");
    symlink("p.txt", place.path("soft")).expect("a link");
    fs::hard_link(place.path("p.txt"), place.path("hard")).expect("a link");
    fs::create_dir(place.path("folder")).expect("a folder");
    for args in [
        &["p.txt", "--emit", "ast=p.txt"][..],
        &["p.txt", "--emit", "ast=./folder/../p.txt"],
        &["p.txt", "--emit", "so=soft"],
        &["p.txt", "--emit", "so=hard"],
        &["soft", "--emit", "ast=p.txt"],
        &["soft", "-o", "p.txt", "--emit", "ast"],
        &["hard", "--emit", "ast=soft"],
        &["p.txt", "--emit", "tokens=a,ast=./a"],
        &["opt", "m.air", "-o", "m.air"],
        &["opt", "m.air", "-o", "./folder/../m.air"],
        &["bench", "p.txt", "--size", "S=1", "--json", "hard"],
        &["bench", "p.txt", "--size", "S=1", "--json", "a", "--svg", "./a"],
    ] {
        let (code, err) = place.attnc(args);
        assert_eq!(code, Some(2), "{args:?}: {err}");
        assert!(err.contains("would overwrite") || err.contains("two outputs have the path"), "{args:?}: {err}");
        assert_eq!(fs::read_to_string(place.path("p.txt")).expect("the program"), program, "{args:?}");
        assert_eq!(fs::read_to_string(place.path("m.air")).expect("the text"), air, "{args:?}");
    }
    assert_eq!(place.names(), ["folder", "hard", "m.air", "p.txt", "soft"]);
    let run = |args: &[&str]| place.attnc(&[&["run", "p.txt"], args].concat());
    assert_eq!(run(&["--input", "x=[1, 2]", "--output", "x.npy"]).0, Some(0));
    let (code, err) = run(&["--input", "x=x.npy", "--output", "./x.npy"]);
    assert_eq!(code, Some(2), "{err}");
}

/// Each command, and each of its outputs.
#[test]
fn no_command_writes_through_a_link() {
    let place = Sandbox::new();
    let program = "model M { pub fn f(x: f32[S]) -> (f32[S], f32[S]) { (x, x * 2.0) } }\n";
    fs::write(place.path("p.attn"), program).expect("a program");
    fs::write(place.path("m.air"), "module \"m\"\n").expect("a text");
    for folder in ["d", "dumps"] {
        fs::create_dir(place.path(folder)).expect("a folder");
    }
    let links = ["l.air", "l.so", "l.npy", "l.json", "l.svg", "d/result.1.npy", "dumps/00-parsed.air"];
    for link in links {
        symlink("/nowhere/at/all", place.path(link)).expect("a link");
    }
    let dumps: Vec<String> = {
        let args = ["opt", "m.air", "-o", "-", "--dump-dir", "there", "--print-after", "all"];
        assert_eq!(place.attnc(&args).0, Some(0));
        fs::read_dir(place.path("there")).map_or(Vec::new(), |entries| {
            entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
        })
    };
    for name in &dumps {
        let _ = symlink("/nowhere/at/all", place.path(&format!("dumps/{name}")));
    }
    let before = place.names();
    let run = ["run", "p.attn", "--input", "x=[1, 2]", "--output"];
    let bench = ["bench", "p.attn", "--size", "S=1", "--seconds", "0.01"];
    for args in [
        &["p.attn", "-o", "l.so"][..],
        &["p.attn", "--emit", "ir=new.air,so=l.so"],
        &["opt", "m.air", "-o", "l.air"],
        &["opt", "m.air", "-o", "-", "--dump-dir", "dumps", "--print-after", "all"],
        &[&run[..], &["d"]].concat(),
        &[&bench[..], &["--json", "l.json"]].concat(),
        &[&bench[..], &["--json", "new.json", "--svg", "l.svg"]].concat(),
    ] {
        let (code, err) = place.attnc(args);
        assert_eq!(code, Some(3), "{args:?}: {err}");
        assert!(err.contains("it is a symbolic link"), "{args:?}: {err}");
        assert_eq!(place.names(), before, "{args:?}");
    }
    assert!(!place.path("d/result.0.npy").exists(), "the results of a call appear together");
}

/// All of the files that a command writes, or none.
#[test]
fn outputs_appear_together() {
    let place = Sandbox::new();
    fs::write(place.path("bad.attn"), "model M { pub fn f(x: f32[S]) -> f32[S] { y } }\n").expect("a program");
    // A linker that makes nothing is known to be one after everything else.
    fs::write(place.path("tmp/cc"), "#!/bin/sh\nexit 1\n").expect("a script");
    fs::set_permissions(place.path("tmp/cc"), fs::Permissions::from_mode(0o755)).expect("a script");
    for (program, outputs, code) in [
        (EXAMPLE, "ast=a,ir=/nowhere/x", 3),
        (EXAMPLE, "ast=a,ir=none/x", 3),
        (EXAMPLE, "ast=a,ir=tmp", 3),
        (EXAMPLE, "ast=a,ir=b,so=m.so", 3),
        ("bad.attn", "tokens=a,ast=b", 1),
    ] {
        let mut command = place.command(env!("CARGO_BIN_EXE_attnc"));
        let output = command.args([program, "--emit", outputs]).env("PATH", place.path("tmp")).output().expect("attnc");
        assert_eq!(output.status.code(), Some(code), "{outputs}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(place.names(), ["bad.attn", "tmp/cc"], "{outputs}");
    }
}

/// A pipe whose other end nobody opens.
#[test]
fn a_pipe_without_another_end_is_an_error() {
    let place = Sandbox::new();
    assert!(Command::new("mkfifo").arg(place.path("pipe")).status().expect("mkfifo").success());
    fs::write(place.path("p.attn"), "model M { pub fn f(x: f32[S]) -> f32[S] { x } }\n").expect("a program");
    for (args, why) in [
        (&["check", "pipe"][..], "no process writes"),
        (&["run", "p.attn", "--calls", "pipe"], "no process writes"),
        (&["p.attn", "--emit", "ir=pipe"], "no process reads"),
        (&["run", "p.attn", "--input", "x=[1]", "--output", "pipe.npy"], "no process reads"),
    ] {
        if args.contains(&"pipe.npy") {
            fs::rename(place.path("pipe"), place.path("pipe.npy")).expect("a pipe");
        }
        let (code, err) = place.attnc(args);
        assert_eq!(code, Some(3), "{args:?}: {err}");
        assert!(err.contains(why), "{args:?}: {err}");
    }
    // One that comes late, and one that is gone already.
    for line in
        ["mkfifo late; { sleep 0.2; cat p.attn >late; } & \"$0\" check late", "cat p.attn | \"$0\" check /dev/stdin"]
    {
        let output = place.command("sh").args(["-c", line, env!("CARGO_BIN_EXE_attnc")]).output().expect("sh");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A file that cannot grow is not there at all, or as it was.
#[test]
fn a_full_disk_leaves_what_was_there() {
    let place = Sandbox::new();
    // Without leaf functions there is almost nothing to write.
    for (kind, ending) in KINDS {
        for old in [None, Some("old")] {
            let name = format!("m.{ending}");
            if let Some(old) = old {
                fs::write(place.path(&name), old).expect("a file");
            }
            let line = format!("ulimit -f 1; exec \"$0\" {EXAMPLE} --cpu avx2 --emit {kind}={name}");
            let output = place.command("sh").args(["-c", &line, env!("CARGO_BIN_EXE_attnc")]).output().expect("sh");
            let err = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{kind}: {err}");
            assert!(err.starts_with("error[E00"), "{kind}: {err}");
            let left: Vec<String> = old.iter().map(|_| name.clone()).collect();
            assert_eq!(place.names(), left, "{kind}: {err}");
            if let Some(old) = old {
                assert_eq!(fs::read_to_string(place.path(&name)).expect("the file"), old, "{kind}");
                fs::remove_file(place.path(&name)).expect("a file");
            }
        }
    }
}

/// The variable `PATH` with a linker that takes its time and makes nothing, so that attnc can be ended while it works.
fn path_with_slow_linker(place: &Sandbox) -> OsString {
    let linker = place.path("cc");
    // Once: one that runs cannot be written.
    if !linker.exists() {
        fs::write(&linker, "#!/bin/sh\nexec sleep 3\n").expect("a script");
        fs::set_permissions(&linker, fs::Permissions::from_mode(0o755)).expect("a script");
    }
    let mut path = place.folder.path().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}

/// Starts attnc, which ignores SIGHUP if it `ignores`, waits until it links, and sends it a signal; how it ended.
fn ended_by(place: &Sandbox, signal: &str, ignores: bool) -> ExitStatus {
    let mut command = place.command(env!("CARGO_BIN_EXE_attnc"));
    command.args([EXAMPLE, "-o", "m.so"]).env("PATH", path_with_slow_linker(place)).stderr(Stdio::null());
    let hup = if ignores { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: `signal` may be called between fork and exec. Whoever started the tests may ignore these signals.
    unsafe {
        command.pre_exec(move || {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            libc::signal(libc::SIGTERM, libc::SIG_DFL);
            libc::signal(libc::SIGHUP, hup);
            Ok(())
        });
    }
    let mut child = command.spawn().expect("attnc starts");
    let start = Instant::now();
    let linking = || place.names().iter().any(|name| name.starts_with("tmp/"));
    while !linking() && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(linking(), "attnc links in the folder for temporary files");
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill").success());
    child.wait().expect("attnc ends")
}

#[test]
fn what_ends_attnc_leaves_nothing() {
    let place = Sandbox::new();
    for (signal, number) in [("-INT", 2), ("-TERM", 15), ("-HUP", 1)] {
        assert_eq!(ended_by(&place, signal, false).signal(), Some(number), "{signal}");
        assert_eq!(place.names(), ["cc"], "{signal}");
    }
    // Only the next process can clean up after this one.
    assert_eq!(ended_by(&place, "-KILL", false).signal(), Some(9));
    assert!(place.names().iter().any(|name| name.starts_with("tmp/")));
    assert_eq!(place.attnc(&[EXAMPLE, "-o", "m.so"]), (Some(0), String::new()));
    assert_eq!(place.names(), ["cc", "m.so"]);
}

/// A signal that is ignored stays so.
#[test]
fn an_ignored_signal_ends_nothing() {
    let place = Sandbox::new();
    // The linker makes nothing, which is an error of the environment, not a signal.
    assert_eq!(ended_by(&place, "-HUP", true).code(), Some(3));
}

/// What has no end, or nobody who writes it, is refused at once.
#[test]
fn devices_and_pipes_are_no_data() {
    let place = Sandbox::new();
    fs::write(place.path("p.attn"), "model M {\n    w: f32[2]\n    pub fn f(x: f32[S, 2]) -> f32[S, 2] { x * w }\n}\n")
        .expect("a program");
    assert!(Command::new("mkfifo").arg(place.path("pipe")).status().expect("mkfifo").success());
    for source in ["/dev/zero", "pipe"] {
        for backend in ["interp", "cpu"] {
            let run = ["run", "p.attn", "--backend", backend];
            let input = format!("x={source}");
            for args in [&["--random", "--input", &input][..], &["--input", "x=[[1, 2]]", "--weights", source]] {
                let (code, err) = place.attnc(&[&run[..], args].concat());
                assert_eq!(code, Some(3), "{args:?}: {err}");
                assert!(err.contains("it is not a regular file"), "{args:?}: {err}");
            }
        }
        let (code, err) = place.attnc(&["bench", "p.attn", "--size", "S=1", "--weights", source]);
        assert_eq!(code, Some(3), "{err}");
    }
}

/// Memory that the system does not give is no bug in attnc.
#[test]
fn memory_that_is_used_up_is_exit_code_3() {
    let place = Sandbox::new();
    fs::write(place.path("p.attn"), "model M { pub fn f(x: f32[S]) -> f32[S] { x } }\n").expect("a program");
    let line = "ulimit -v 2000000; exec \"$0\" run p.attn --random --size S=2000000000";
    let output = place.command("sh").args(["-c", line, env!("CARGO_BIN_EXE_attnc")]).output().expect("sh");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(err.contains("not enough memory") && !err.contains("internal error"), "{err}");
}

/// Output that stdout does not take is told, whatever command it is of.
#[test]
fn a_full_stdout_is_told() {
    let place = Sandbox::new();
    for args in
        [&["explain"][..], &["list", "ops"], &["completions", "bash"], &["std", "nn"], &[EXAMPLE, "--emit", "ir=-"]]
    {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let mut command = place.command(env!("CARGO_BIN_EXE_attnc"));
        let output = command.args(args).stdout(full).stderr(Stdio::piped()).output().expect("attnc starts");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {err}");
        assert!(err.contains("cannot write stdout: no space left"), "{args:?}: {err}");
    }
}

/// A library and its wrapper have the same hash of the build, be they made together or alone; another program, or another text of it,
/// has another, and the same has the same again.
#[test]
fn builds_are_told_from_each_other() {
    let place = Sandbox::new();
    let program =
        |doc: &str, body: &str| format!("/// {doc}\nmodel M {{ pub fn forward(x: f32[S]) -> f32[S] {{ {body} }} }}\n");
    let build = |text: &str, more: &[&str]| {
        fs::write(place.path("m.attn"), text).expect("a program");
        let (code, told) = place.attnc(&[&["m.attn"], more].concat());
        assert_eq!((code, told.as_str()), (Some(0), ""));
        let wrapper = fs::read_to_string(place.path("m.py")).expect("a wrapper");
        wrapper.split("_BUILD = \"").nth(1).and_then(|rest| rest.split('"').next()).expect("a build").to_string()
    };
    let alone: &[&str] = &["--emit", "python=m.py"];
    let first = build(&program("Adds.", "x + 1.0"), &["-o", "m.so", "--emit", "so,python"]);
    let library = fs::read(place.path("m.so")).expect("a library");
    assert!(library.windows(first.len()).any(|name| name == first.as_bytes()), "{first}");
    assert_eq!(build(&program("Adds.", "x + 1.0"), alone), first);
    let all = [
        first,
        build(&program("Adds.", "x * 10.0"), alone),
        build(&program("Adds one.", "x + 1.0"), alone),
        build(&program("Adds.", "x + 1.0"), &["--emit", "python=m.py", "--cpu", "portable"]),
    ];
    assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len(), "{all:?}");
}
