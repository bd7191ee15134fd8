//! Do calls give the same bits with any number of threads, at every level, from many callers at once, in a forked process;
//! and do idle threads leave the processor alone?

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use attnc::codegen::cpu;
use attnc::runtime::load::CompiledModel;
use attnc::tensor::Tensor;

/// Products, attention of many queries and of few, reductions of rows: whatever a kernel could cut differently.
const PROGRAM: &str = "
model Work {
    pub fn forward(x: f32[S, 96], y: f32[96, 80]) -> f32[S, 80] {
        let z = gelu(x @ y)
        let a = softmax(where(causal(S, S), z @ z.T / 9.0, -inf)) @ z
        let centred = a - mean(a, axis = -1, keep = true)
        let few = softmax(y[0..3] @ z.T / 9.0) @ z
        centred * rsqrt(mean(centred * centred, axis = -1, keep = true) + 1e-5) + z + mean(few, axis = 0)
    }
}
";

/// The library whose best code is of this level.
fn library(level: &str) -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    static MADE: OnceLock<Vec<(String, PathBuf)>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().expect("a folder")).path();
    let make = |level: String| {
        let program = folder.join("work.attn");
        std::fs::write(&program, PROGRAM).expect("a program");
        let so = folder.join(format!("{level}.so"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
        let done = command.arg(&program).args(["--cpu", &level, "-o"]).arg(&so).output().expect("attnc starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        (level, so)
    };
    let made = MADE.get_or_init(|| cpu::levels().iter().map(|level| make(level.name())).collect());
    made.iter().find(|(name, _)| *name == level).map(|(_, so)| so.as_path()).expect("a level of this machine")
}

fn open(so: &Path, threads: i32) -> CompiledModel {
    // SAFETY: attnc made the library.
    unsafe { CompiledModel::open(so, None, threads) }.expect("a model that opens")
}

fn arguments(rows: usize) -> [Tensor; 2] {
    let values = |n: usize| (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 64.0).collect::<Vec<_>>();
    [(rows, 96), (96, 80)].map(|(m, n)| Tensor::from_f32(vec![m, n], &values(m * n)).expect("a tensor"))
}

fn call(model: &CompiledModel, rows: usize) -> Vec<u8> {
    let mut session = model.session().expect("a session");
    session.call(0, &arguments(rows)).expect("a result")[0].bytes().to_vec()
}

const ROWS: [usize; 5] = [0, 1, 37, 129, 500];

#[test]
fn the_number_of_threads_changes_no_bit() {
    for level in cpu::levels() {
        let one = open(library(&level.name()), 1);
        let expected = ROWS.map(|rows| call(&one, rows));
        for threads in [2, 3, 5, 16] {
            let model = open(library(&level.name()), threads);
            for _ in 0..3 {
                for (rows, expected) in ROWS.iter().zip(&expected) {
                    assert!(call(&model, *rows) == *expected, "{} rows, {threads} threads, {}", rows, level.name());
                }
            }
        }
    }
}

/// Two models with pools of their own, each called by several threads, more at once than there are processors.
#[test]
fn many_callers_do_not_disturb_each_other() {
    let so = library(&cpu::levels()[0].name());
    let models = [open(so, 2), open(so, 3)];
    let expected = ROWS.map(|rows| call(&models[0], rows));
    std::thread::scope(|scope| {
        for caller in 0..6 {
            let (model, expected) = (&models[caller % 2], &expected);
            scope.spawn(move || {
                for turn in 0..20 {
                    let at = (caller + turn) % ROWS.len();
                    assert!(call(model, ROWS[at]) == expected[at], "{} rows, caller {caller}", ROWS[at]);
                }
            });
        }
    });
}

/// A call inside of another's thread pool: every caller is one of many threads, and opens a model of its own.
#[test]
fn models_are_opened_and_closed_in_threads() {
    let so = library(&cpu::levels()[0].name());
    let expected = call(&open(so, 1), 129);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let model = open(so, 4);
                    assert!(call(&model, 129) == expected);
                }
            });
        }
    });
}

/// Starts this test program again for one question, which it must have a process for.
fn in_another_process(question: &str) {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "threads::asked_in_another_process", "--nocapture", "--test-threads", "1"]);
    command.env("ATTNC_TEST_QUESTION", question).env("ATTNC_TEST_SO", library(&cpu::levels()[0].name()));
    let done = command.output().expect("this test starts");
    let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && text.contains("answered"), "{text}");
}

#[test]
fn idle_threads_sleep() {
    in_another_process("idle");
}

#[test]
fn a_forked_process_computes_alone() {
    in_another_process("fork");
}

/// Not a question of its own: what the others start as a process.
#[test]
fn asked_in_another_process() {
    let (Ok(question), Some(so)) = (std::env::var("ATTNC_TEST_QUESTION"), std::env::var_os("ATTNC_TEST_SO")) else {
        return;
    };
    let model = open(Path::new(&so), 4);
    let expected = call(&model, 500);
    for _ in 0..3 {
        assert!(call(&model, 500) == expected);
    }
    // A moment to fall asleep.
    std::thread::sleep(Duration::from_millis(100));
    match question.as_str() {
        "idle" => {
            let Some(before) = busy() else {
                println!("answered: this system does not tell");
                return;
            };
            std::thread::sleep(Duration::from_millis(500));
            let spent = busy().expect("as before") - before;
            assert!(spent < Duration::from_millis(10), "idle for 500 ms, and busy for {spent:?} of them");
            // And they wake up again.
            assert!(call(&model, 500) == expected);
        }
        "fork" => forked(|| call(&model, 500) == expected),
        other => panic!("{other}"),
    }
    println!("answered");
}

/// How long the threads of this process have been on a processor.
fn busy() -> Option<Duration> {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        sum += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(sum))
}

/// Asks a copy of this process, which has this thread alone.
fn forked(question: impl Fn() -> bool) {
    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
        fn _exit(status: i32) -> !;
    }
    // SAFETY: the child computes, and leaves without unwinding into what belongs to its parent.
    unsafe {
        let child = fork();
        assert!(child >= 0, "no other process");
        if child == 0 {
            let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&question)).unwrap_or(false);
            _exit(i32::from(!good));
        }
        let mut status = -1;
        assert_eq!(waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0, "the child's result differs");
    }
    // The parent's threads are still there.
    assert!(question());
}
