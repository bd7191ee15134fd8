//! attnc as a child process, with limits of time and memory.
//!
//! In: arguments, files, input. Out: what it printed and the files that it wrote, or the limit at
//! which it was stopped. It runs in an empty temporary folder, which is removed afterwards.

use crate::files::Folder;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The most that a child may print, in bytes.
const MAX_OUTPUT: u64 = 64 << 20;
/// The largest file that it may write, in bytes: random weights are one.
const MAX_FILE: u64 = 1 << 30;

/// The limits of a child process.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long it may run. All its threads together may compute twice as long.
    pub seconds: u64,
    /// Its address space.
    pub bytes: u64,
}

/// A folder in which children run.
pub(super) struct Room<'a> {
    attnc: &'a Path,
    limits: Limits,
    folder: Folder,
}

/// The end of a child.
pub(super) struct Done {
    pub(super) is_ok: bool,
    pub(super) out: Vec<u8>,
    /// Its messages, and at the end which limit stopped it.
    pub(super) messages: String,
    /// Did a limit stop it?
    pub(super) is_stopped: bool,
}

impl<'a> Room<'a> {
    /// An empty folder.
    pub(super) fn new(attnc: &'a Path, limits: Limits) -> io::Result<Room<'a>> {
        Ok(Room { attnc, limits, folder: Folder::new(None)? })
    }

    /// A file in it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs attnc with this input, until it ends or a limit is reached.
    pub(super) fn run<A: AsRef<std::ffi::OsStr>>(&self, args: &[A], input: &[u8]) -> io::Result<Done> {
        let mut command = Command::new(self.attnc);
        command.args(args).current_dir(self.folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Its temporary files vanish with the folder. Each thread's allocator would reserve address
        // space, which is what the limit counts.
        command.env("TMPDIR", self.folder.path()).env("MALLOC_ARENA_MAX", "2").env("NO_COLOR", "1");
        command.process_group(0);
        let limits = self.limits;
        // SAFETY: `restrict` calls only prctl and setrlimit, which are async-signal-safe.
        unsafe { command.pre_exec(move || restrict(limits)) };
        let mut child = command.spawn()?;
        let group = child.id();
        let (mut to, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (status, out, err) = std::thread::scope(|scope| {
            scope.spawn(move || {
                // A child that ends before it has read everything is judged by its status.
                let _ = to.as_mut().map_or(Ok(()), |to| to.write_all(input));
            });
            let out = scope.spawn(|| all(out));
            let err = scope.spawn(|| all(err));
            let status = wait(&mut child, Duration::from_secs(limits.seconds), || end(group));
            (status, out.join().unwrap_or_default(), err.join().unwrap_or_default())
        });
        let (status, is_late) = status?;
        let mut messages = String::from_utf8_lossy(&err).into_owned();
        let limit = limit(status, is_late, &messages, limits);
        if let Some(limit) = &limit {
            messages += &format!("error: stopped: {limit}\n");
        } else if let Some(signal) = status.signal() {
            messages += &format!("error: ended by signal {signal}\n");
        }
        Ok(Done { is_ok: status.success(), out, messages, is_stopped: limit.is_some() })
    }
}

/// Everything that a pipe has, up to the limit.
fn all(pipe: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = pipe.map(|pipe| pipe.take(MAX_OUTPUT).read_to_end(&mut bytes));
    bytes
}

/// Waits for a child; one that is late is ended.
fn wait(child: &mut std::process::Child, limit: Duration, end: impl Fn()) -> io::Result<(ExitStatus, bool)> {
    let start = Instant::now();
    let mut is_late = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, is_late));
        }
        if start.elapsed() >= limit && !is_late {
            is_late = true;
            end();
        }
        let pause = if start.elapsed() < Duration::from_millis(100) { 1 } else { 10 };
        std::thread::sleep(Duration::from_millis(pause));
    }
}

/// Ends a child and its own children, such as a linker.
fn end(group: u32) {
    if let Ok(group) = libc::pid_t::try_from(group) {
        // SAFETY: the group was made for the child, which has not been waited for.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
}

/// The limit that a child has reached.
fn limit(status: ExitStatus, is_late: bool, messages: &str, limits: Limits) -> Option<String> {
    let Limits { seconds, bytes } = limits;
    if is_late || status.signal() == Some(libc::SIGXCPU) {
        return Some(format!("it took more than {seconds} s, the limit of time (`attnc play --seconds`)"));
    }
    if status.signal() == Some(libc::SIGXFSZ) {
        return Some(format!("it wrote a file of more than {} MiB", MAX_FILE >> 20));
    }
    let lacks = ["not enough memory", "out of memory", "Cannot allocate memory"];
    if !status.success() && lacks.iter().any(|text| messages.contains(text)) {
        return Some(format!("it needs more than {} MiB, the limit of memory (`attnc play --memory`)", bytes >> 20));
    }
    None
}

/// Sets the limits of the calling process.
fn restrict(limits: Limits) -> io::Result<()> {
    let processor = limits.seconds.saturating_mul(2);
    // It does not outlive the server.
    // SAFETY: prctl and setrlimit read only their arguments, which live until they return.
    let mut is_set = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } == 0;
    for (what, soft, hard) in [
        (libc::RLIMIT_CPU, processor, processor.saturating_add(1)),
        (libc::RLIMIT_AS, limits.bytes, limits.bytes),
        (libc::RLIMIT_FSIZE, MAX_FILE, MAX_FILE),
        (libc::RLIMIT_CORE, 0, 0),
    ] {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        // SAFETY: as above.
        is_set &= unsafe { libc::setrlimit(what, &limit) } == 0;
    }
    if is_set { Ok(()) } else { Err(io::Error::last_os_error()) }
}
