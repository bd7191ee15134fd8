//! File I/O of attnc: the outputs of a command appear together or not at all.
//!
//! In: paths and bytes. Out: files; and temporary folders, which are removed when their value is
//! dropped, when a signal ends the process, or, if the process was killed, by the next process. It
//! does not interpret the bytes.
//!
//! * A regular file is written to a temporary folder beside it, and renamed when all outputs of the
//!   command are complete ([`Batch`]), so that an error, a full disk or a killed process leaves the
//!   old file.
//! * Nothing is written through a symbolic link, whatever its target: another user may have made
//!   it. Exceptions are the system's links to open files (`/dev/stdout`, `/dev/fd/1`), and links to
//!   folders within a path.
//! * Character devices, pipes, and open files in `/proc` are written directly. It is an error if
//!   the other end of a pipe is not opened within [`PATIENCE`].
//! * Temporary folders are called `.attnc-PROCESS-NUMBER` and locked (`flock`) while their process
//!   lives, which distinguishes the folders of killed processes from those in use.
//!
//! The crate `tempfile` (used only in tests) would replace the search for a free name. But its
//! folders stay when a signal ends the process, it cannot distinguish folders of killed processes
//! from those in use, and it renames one file at a time.

mod signals;

pub use signals::{clean_up_on_signals, interrupts};

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Prefix of every temporary name.
const PREFIX: &str = ".attnc-";
/// How long to wait for the other end of a pipe.
const PATIENCE: Duration = Duration::from_secs(1);
/// Number of temporary names to try.
const TRIES: usize = 1000;

/// Current temporary paths, for [`remove_all`].
static LIVE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// Folders that this process has cleaned of leftovers.
static LOOKED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn lock(set: &Mutex<BTreeSet<PathBuf>>) -> MutexGuard<'_, BTreeSet<PathBuf>> {
    set.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file that a path refers to: outputs with equal identities are one file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// An existing regular file, by device and inode.
    Existing(u64, u64),
    /// A file that does not exist yet, by its folder's device and inode, and its name.
    New(u64, u64, OsString),
}

/// The identity of a regular file, existing or new; `None` for devices, pipes, folders, and
/// dangling paths.
pub fn identity(path: &Path) -> Option<Identity> {
    match fs::metadata(path) {
        Ok(found) => found.is_file().then(|| Identity::Existing(found.dev(), found.ino())),
        Err(_) => {
            let folder = fs::metadata(folder_of(path)).ok()?;
            Some(Identity::New(folder.dev(), folder.ino(), path.file_name()?.to_owned()))
        }
    }
}

/// Reads a file, a device or a pipe, up to `limit` bytes.
///
/// # Errors
/// An I/O error; or the path is a folder, or a pipe without a writer.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let found = fs::metadata(path)?;
    if found.is_dir() {
        return Err(io::Error::other("it is a directory"));
    }
    let mut bytes = Vec::new();
    if !found.file_type().is_fifo() {
        File::open(path)?.take(limit).read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    // A blocking open of a pipe would wait for a writer for ever.
    let mut pipe = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let start = Instant::now();
    let mut first = [0; 1];
    loop {
        match pipe.read(&mut first) {
            // There is no writer, and the pipe is empty.
            Ok(0) if start.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(5)),
            Ok(0) => return Err(io::Error::other("it is a pipe that no process writes to")),
            Ok(_) => {
                bytes.extend(first);
                break;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    blocking(&pipe)?;
    pipe.take(limit.saturating_sub(bytes.len() as u64)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Makes reads and writes of an open file blocking again.
fn blocking(file: &File) -> io::Result<()> {
    // SAFETY: only reads and sets the flags of an open file.
    let done = unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
        libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK)
    };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Writes a single file, atomically.
///
/// # Errors
/// As for [`Batch::write`] and [`Batch::commit`].
pub fn write(path: &Path, content: &[u8], executable: bool) -> io::Result<()> {
    let mut batch = Batch::default();
    batch.write(path, &|out| out.write_all(content), executable)?;
    batch.commit().map_err(|(_, error)| error)
}

/// A callback that writes the content of a file. It may be called twice.
pub type Content<'c> = dyn Fn(&mut dyn Write) -> io::Result<()> + 'c;

/// Checks, as far as possible without content, whether a file can be written here.
///
/// # Errors
/// The path is a link or a folder, or its folder does not exist.
pub fn check(path: &Path) -> io::Result<()> {
    match destination(path)? {
        Destination::Over(None) => fs::metadata(folder_of(path)).map(|_| ()),
        Destination::Over(Some(_)) | Destination::Into(_) => Ok(()),
    }
}

/// Regular files that appear together, when [`Batch::commit`] is called, or else not at all.
#[derive(Default)]
pub struct Batch {
    /// A temporary folder in each target folder.
    folders: BTreeMap<PathBuf, Folder>,
    pending: Vec<Pending>,
}

/// A file that has not been committed.
enum Pending {
    /// The content is in a temporary file.
    Renamed(PathBuf, PathBuf),
    /// The target itself must be overwritten: it is a mount point, or no file can be created beside
    /// it.
    InPlace(PathBuf, Vec<u8>),
}

impl Batch {
    /// Adds a file. A new one gets execute permission if `executable`; an existing one keeps its
    /// permissions. A target that is not a regular file is written immediately.
    ///
    /// # Errors
    /// An I/O error, or the path is a link.
    pub fn write(&mut self, path: &Path, content: &Content<'_>, executable: bool) -> io::Result<()> {
        let old = match destination(path)? {
            Destination::Into(found) => return content(&mut opened(path, &found)?),
            Destination::Over(old) => old,
        };
        // Do not replace a file without write permission.
        if old.is_some()
            && let Err(error) = over().open(path)
            && error.kind() == ErrorKind::PermissionDenied
        {
            return Err(error);
        }
        let pending = match self.temporary(path, old.as_ref(), content, executable) {
            Ok(made) => Pending::Renamed(made, path.to_path_buf()),
            Err(error) if old.is_some() && is_of_the_folder(&error) => {
                let mut bytes = Vec::new();
                content(&mut bytes)?;
                Pending::InPlace(path.to_path_buf(), bytes)
            }
            Err(error) => return Err(error),
        };
        self.pending.push(pending);
        Ok(())
    }

    /// Writes the content to a temporary file beside the target.
    fn temporary(
        &mut self,
        path: &Path,
        old: Option<&Metadata>,
        content: &Content<'_>,
        executable: bool,
    ) -> io::Result<PathBuf> {
        let beside = folder_of(path);
        if !self.folders.contains_key(beside) {
            self.folders.insert(beside.to_path_buf(), Folder::within(beside)?);
        }
        let made = self.folders[beside].path().join(self.pending.len().to_string());
        let mode = if executable { 0o777 } else { 0o666 };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&made)?;
        content(&mut file)?;
        if let Some(old) = old {
            file.set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
            // Only root may change the owner; for others it is the same anyway.
            let _ = std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()));
        }
        Ok(made)
    }

    /// Renames all files to their targets.
    ///
    /// # Errors
    /// The first target that failed, with its error. Earlier ones have been renamed.
    pub fn commit(&mut self) -> Result<(), (PathBuf, io::Error)> {
        for pending in std::mem::take(&mut self.pending) {
            let (path, done) = match pending {
                Pending::Renamed(made, path) => match fs::rename(&made, &path) {
                    Err(error) if is_of_the_folder(&error) && path.is_file() => {
                        let done = fs::read(&made).and_then(|bytes| in_place(&path, &bytes));
                        (path, done)
                    }
                    done => (path, done),
                },
                Pending::InPlace(path, bytes) => {
                    let done = in_place(&path, &bytes);
                    (path, done)
                }
            };
            done.map_err(|error| (path, error))?;
        }
        self.folders.clear();
        Ok(())
    }
}

/// Options to overwrite an existing file.
fn over() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_NOFOLLOW);
    options
}

fn in_place(path: &Path, bytes: &[u8]) -> io::Result<()> {
    over().truncate(true).open(path)?.write_all(bytes)
}

/// How to write to a path.
enum Destination {
    /// Write into the existing object.
    Into(Metadata),
    /// Replace a regular file, or create one.
    Over(Option<Metadata>),
}

/// How to write to this path.
fn destination(path: &Path) -> io::Result<Destination> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => {
            // These links refer to open files, whatever target they show.
            let folder = folder_of(path).canonicalize()?;
            if folder == Path::new("/dev") || folder.starts_with("/proc") {
                return fs::metadata(path).map(Destination::Into);
            }
            Err(io::Error::other("it is a symbolic link, and nothing is written through links"))
        }
        Ok(found) if found.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(found) if found.is_file() => Ok(Destination::Over(Some(found))),
        Ok(found) if found.file_type().is_block_device() => Err(io::Error::other("it is a block device")),
        Ok(found) => Ok(Destination::Into(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => match path.file_name() {
            Some(_) if !path.to_string_lossy().ends_with('/') => Ok(Destination::Over(None)),
            _ => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Opens a target that is not a regular file, for appending.
fn opened(path: &Path, found: &Metadata) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true);
    if !found.file_type().is_fifo() {
        return options.open(path);
    }
    // A blocking open of a pipe would wait for a reader for ever.
    options.custom_flags(libc::O_NONBLOCK);
    let start = Instant::now();
    loop {
        match options.open(path) {
            Ok(pipe) => return blocking(&pipe).map(|()| pipe),
            Err(error) if error.raw_os_error() != Some(libc::ENXIO) => return Err(error),
            Err(_) if start.elapsed() > PATIENCE => {
                return Err(io::Error::other("it is a pipe that no process reads"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn is_of_the_folder(error: &io::Error) -> bool {
    use ErrorKind::{CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(error.kind(), CrossesDevices | PermissionDenied | ReadOnlyFilesystem | ResourceBusy)
}

/// A temporary folder, which is removed on drop.
pub struct Folder {
    path: PathBuf,
    /// Holds the lock.
    _lock: File,
}

impl Folder {
    /// Creates a temporary folder in the system's location, or else beside `near`.
    ///
    /// # Errors
    /// The error for the last location that was tried.
    pub fn new(near: Option<&Path>) -> io::Result<Folder> {
        match (Folder::within(&std::env::temp_dir()), near) {
            (Err(_), Some(near)) => Folder::within(folder_of(near)),
            (made, _) => made,
        }
    }

    /// Creates a temporary folder in this folder.
    fn within(folder: &Path) -> io::Result<Folder> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if lock(&LOOKED).insert(folder.to_path_buf()) {
            remove_left(folder);
        }
        for _ in 0..TRIES {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{PREFIX}{}-{number}", std::process::id()));
            lock(&LIVE).insert(path.clone());
            let file = match DirBuilder::new().mode(0o700).create(&path).and_then(|()| File::open(&path)) {
                Ok(file) => file,
                Err(error) => {
                    lock(&LIVE).remove(&path);
                    match error.kind() {
                        // `NotFound`: another process took the new folder for a leftover before it
                        // was locked, and removed it.
                        ErrorKind::AlreadyExists | ErrorKind::NotFound if folder.is_dir() => continue,
                        _ => return Err(error),
                    }
                }
            };
            // Another process may have taken it for a leftover before it was locked. If files
            // cannot be locked, this does not happen.
            let lost = matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock));
            let same = |there: &Metadata| file.metadata().is_ok_and(|own| own.ino() == there.ino());
            if !lost && fs::symlink_metadata(&path).is_ok_and(|there| same(&there)) {
                return Ok(Folder { path, _lock: file });
            }
            lock(&LIVE).remove(&path);
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Its path, valid until it is dropped.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        remove(&self.path);
        lock(&LIVE).remove(&self.path);
    }
}

/// Removes a file or a folder; ignores errors.
fn remove(path: &Path) {
    if fs::remove_file(path).is_err() {
        let _ = fs::remove_dir_all(path);
    }
}

/// Removes all temporary paths, because the process ends.
fn remove_all() {
    lock(&LIVE).iter().for_each(|path| remove(path));
}

/// Removes leftovers of this user's killed processes from a folder.
fn remove_left(folder: &Path) {
    // SAFETY: geteuid has no arguments and cannot fail.
    let own = unsafe { libc::geteuid() };
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    for path in entries.filter(|e| e.file_name().to_string_lossy().starts_with(PREFIX)).map(|e| e.path()) {
        let ours = |found: &Metadata| (found.is_file() || found.is_dir()) && found.uid() == own;
        if !fs::symlink_metadata(&path).is_ok_and(|found| ours(&found)) {
            continue;
        }
        if let Ok(file) = File::open(&path)
            && file.try_lock().is_ok()
        {
            remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn links_stay_and_nothing_goes_through_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "old").unwrap();
        fs::set_permissions(path("file"), Permissions::from_mode(0o640)).unwrap();
        symlink("file", path("link")).unwrap();
        symlink("none", path("dangling")).unwrap();
        symlink("loop", path("loop")).unwrap();
        symlink("/dev/null", path("null")).unwrap();
        fs::hard_link(path("file"), path("hard")).unwrap();
        for link in ["link", "dangling", "loop", "null"] {
            for done in [write(&path(link), b"new", true), check(&path(link))] {
                assert!(done.unwrap_err().to_string().contains("symbolic link"), "{link}");
            }
            assert!(fs::symlink_metadata(path(link)).unwrap().is_symlink());
        }
        let old = fs::metadata(path("file")).unwrap();
        write(&path("file"), b"new", true).unwrap();
        assert_eq!(fs::read(path("file")).unwrap(), b"new");
        let new = fs::metadata(path("file")).unwrap();
        assert_eq!(new.mode(), old.mode());
        assert_ne!(new.ino(), old.ino(), "what others have open stays as it was");
        assert_eq!(fs::read(path("hard")).unwrap(), b"old", "another name of the file that was there");
        assert!(write(folder.path(), b"", false).is_err());
        assert!(write(&path("folder/"), b"", false).is_err());
        // A link to a folder within a path is accepted.
        symlink(folder.path(), path("here")).unwrap();
        write(&path("here/made"), b"made", false).unwrap();
        assert_eq!(names(folder.path()), ["dangling", "file", "hard", "here", "link", "loop", "made", "null"]);
    }

    #[test]
    fn files_of_a_batch_appear_together() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("sub")).unwrap();
        fs::write(path("old"), "old").unwrap();
        let all = |batch: &mut Batch| {
            for name in ["old", "new", "sub/new"] {
                batch.write(&path(name), &|out| out.write_all(name.as_bytes()), false).unwrap();
            }
        };
        let mut batch = Batch::default();
        all(&mut batch);
        assert!(batch.write(&path("none/new"), &|_| Ok(()), false).is_err());
        assert!(batch.write(&path("bad"), &|_| Err(ErrorKind::StorageFull.into()), false).is_err());
        drop(batch);
        assert_eq!((names(folder.path()), names(&path("sub"))), (vec!["old".into(), "sub".into()], vec![]));
        assert_eq!(fs::read(path("old")).unwrap(), b"old");
        let mut batch = Batch::default();
        all(&mut batch);
        batch.commit().unwrap();
        assert_eq!(
            (names(folder.path()), names(&path("sub"))),
            (["new", "old", "sub"].map(String::from).to_vec(), vec!["new".into()])
        );
        for name in ["old", "new", "sub/new"] {
            assert_eq!(fs::read(path(name)).unwrap(), name.as_bytes());
        }
    }

    #[test]
    fn one_file_has_one_identity() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "").unwrap();
        fs::hard_link(path("file"), path("hard")).unwrap();
        symlink("file", path("soft")).unwrap();
        let file = identity(&path("file"));
        assert!(file.is_some());
        for other in ["hard", "soft", "./file"] {
            assert_eq!(identity(&path(other)), file, "{other}");
        }
        assert!(identity(&path("new")).is_some());
        assert_eq!(identity(&path("./new")), identity(&path("new")));
        assert_ne!(identity(&path("new")), identity(&path("newer")));
        for none in [folder.path(), Path::new("/dev/null"), Path::new("/nowhere/at/all")] {
            assert_eq!(identity(none), None, "{}", none.display());
        }
    }

    #[test]
    fn what_was_left_goes_and_what_is_used_stays() {
        let folder = tempfile::tempdir().unwrap();
        let left = [folder.path().join(".attnc-1-0"), folder.path().join(".attnc-1-1")];
        fs::create_dir(&left[0]).unwrap();
        fs::write(left[0].join("0.o"), "").unwrap();
        fs::write(&left[1], "").unwrap();
        let used = folder.path().join(".attnc-1-2");
        fs::write(&used, "").unwrap();
        let held = File::open(&used).unwrap();
        held.try_lock().unwrap();
        fs::write(folder.path().join("attnc-1-3"), "").unwrap();
        remove_left(folder.path());
        assert_eq!(names(folder.path()), [".attnc-1-2", "attnc-1-3"]);
    }

    #[test]
    fn folders_go_with_their_value() {
        let made = Folder::new(None).unwrap();
        let path = made.path().to_path_buf();
        fs::write(path.join("x"), "").unwrap();
        assert!(lock(&LIVE).contains(&path));
        drop(made);
        assert!(!path.exists() && !lock(&LIVE).contains(&path));
    }
}
