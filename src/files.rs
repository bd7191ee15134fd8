//! Files that attnc writes: a regular file appears whole or not at all; what is no regular file is written into.
//!
//! In: paths and bytes. Out: files; folders for intermediate files, which go away with their value, when a signal ends the
//! process, or, after a process that was killed, with the next one. It knows nothing of what the bytes mean.
//!
//! * A regular file is written under a temporary name in its folder and renamed, so that a full disk or a killed process
//!   leaves what was there. A symbolic link stays, and the file that it leads to is replaced.
//! * Devices, pipes, and the open files in `/proc` are written into.
//! * What is temporary is called `.attnc-PROCESS-NUMBER` and is locked (`flock`) as long as its process lives. So what a
//!   killed process left can be distinguished from what another one is using.

mod signals;

pub use signals::{clean_up_on_signals, interrupts};

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The beginning of every temporary name.
const PREFIX: &str = ".attnc-";
/// Symbolic links that are followed one after another.
const LINKS: usize = 40;
/// Names that are tried for something temporary.
const TRIES: usize = 1000;

/// What is temporary now, for [`remove_all`].
static LIVE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// Folders in which this process has looked for what others left.
static LOOKED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn lock(set: &Mutex<BTreeSet<PathBuf>>) -> MutexGuard<'_, BTreeSet<PathBuf>> {
    set.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a path names, however it is written: two outputs of equal identity are one file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// A regular file, by its device and inode.
    Existing(u64, u64),
    /// A file that is not there yet, by its folder's device and inode, and its name.
    New(u64, u64, OsString),
}

/// The identity of a regular file, or of one that would be made; `None` for devices, pipes, folders, and paths that lead
/// nowhere.
pub fn identity(path: &Path) -> Option<Identity> {
    match destination(path).ok()? {
        Destination::Over(_, Some(old)) => Some(Identity::Existing(old.dev(), old.ino())),
        Destination::Over(path, None) => {
            let folder = fs::metadata(folder_of(&path)).ok()?;
            Some(Identity::New(folder.dev(), folder.ino(), path.file_name()?.to_owned()))
        }
        // An open file in /proc may be a regular one.
        Destination::Into(path) => {
            let file = fs::metadata(path).ok().filter(Metadata::is_file)?;
            Some(Identity::Existing(file.dev(), file.ino()))
        }
    }
}

/// Writes a file. A new one gets the permissions of a program if it is `executable`; an old one keeps its own.
///
/// # Errors
/// What the system says. What was there is then as it was, unless it is no regular file.
pub fn write(path: &Path, content: &[u8], executable: bool) -> io::Result<()> {
    write_by(path, &|out| out.write_all(content), executable)
}

/// What writes the content of a file. It may be called twice.
pub type Content<'c> = dyn Fn(&mut dyn Write) -> io::Result<()> + 'c;

/// Writes a file as [`write`] does, with content that need not lie in memory at once.
///
/// # Errors
/// As [`write`].
pub fn write_by(path: &Path, content: &Content<'_>, executable: bool) -> io::Result<()> {
    match destination(path)? {
        Destination::Into(path) => content(&mut OpenOptions::new().append(true).open(path)?),
        Destination::Over(path, old) => replace(&path, old.as_ref(), content, executable),
    }
}

/// Where bytes go.
enum Destination {
    /// Into what is there.
    Into(PathBuf),
    /// In the place of a regular file, or of nothing.
    Over(PathBuf, Option<Metadata>),
}

/// Follows symbolic links to the file that would be written.
fn destination(path: &Path) -> io::Result<Destination> {
    let mut at = path.to_path_buf();
    for _ in 0..LINKS {
        match fs::symlink_metadata(&at) {
            Ok(found) if found.is_symlink() => {
                // The links in /proc stand for open files, whatever path they show.
                let folder = folder_of(&at);
                if folder.canonicalize().is_ok_and(|folder| folder.starts_with("/proc")) {
                    return Ok(Destination::Into(at));
                }
                at = folder.join(fs::read_link(&at)?);
            }
            Ok(found) if found.is_dir() => return Err(ErrorKind::IsADirectory.into()),
            Ok(found) if found.is_file() => return Ok(Destination::Over(at, Some(found))),
            Ok(_) => return Ok(Destination::Into(at)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return match at.file_name() {
                    Some(_) if !at.to_string_lossy().ends_with('/') => Ok(Destination::Over(at, None)),
                    _ => Err(error),
                };
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn replace(path: &Path, old: Option<&Metadata>, content: &Content<'_>, executable: bool) -> io::Result<()> {
    if let Some(old) = old {
        // A file that may not be written is not replaced either.
        match OpenOptions::new().write(true).open(path) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(error),
            Ok(_) | Err(_) => {}
        }
        let in_place = || content(&mut OpenOptions::new().write(true).truncate(true).open(path)?);
        return match through_temporary(path, Some(old), content, executable) {
            // A single file that is mounted, or a folder in which nothing may be made.
            Err(error) if is_of_the_folder(&error) => in_place(),
            done => done,
        };
    }
    through_temporary(path, None, content, executable)
}

fn is_of_the_folder(error: &io::Error) -> bool {
    use ErrorKind::{CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(error.kind(), CrossesDevices | PermissionDenied | ReadOnlyFilesystem | ResourceBusy)
}

fn through_temporary(path: &Path, old: Option<&Metadata>, content: &Content<'_>, executable: bool) -> io::Result<()> {
    let mode = if executable { 0o777 } else { 0o666 };
    let make = |at: &Path| OpenOptions::new().write(true).create_new(true).mode(mode).open(at);
    let mut temporary = Temporary::new(folder_of(path), make)?;
    content(&mut temporary.file)?;
    if let Some(old) = old {
        temporary.file.set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
        // Only root may give files away; for others they are theirs already.
        let _ = std::os::unix::fs::fchown(&temporary.file, Some(old.uid()), Some(old.gid()));
    }
    fs::rename(&temporary.path, path)?;
    temporary.keep();
    Ok(())
}

/// A folder for intermediate files, removed with this value.
pub struct Folder(Temporary);

impl Folder {
    /// Makes one where the system keeps such folders, or else beside `near`.
    ///
    /// # Errors
    /// What the system says of the last place that was tried.
    pub fn new(near: Option<&Path>) -> io::Result<Folder> {
        let make = |at: &Path| {
            DirBuilder::new().mode(0o700).create(at)?;
            // Another process may have removed it again, as what was left, before it is locked: then another name is tried.
            File::open(at).map_err(|error| match error.kind() {
                ErrorKind::NotFound => ErrorKind::AlreadyExists.into(),
                _ => error,
            })
        };
        let usual = Temporary::new(&std::env::temp_dir(), make);
        match (usual, near) {
            (Err(_), Some(near)) => Temporary::new(folder_of(near), make),
            (made, _) => made,
        }
        .map(Folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0.path
    }
}

/// A file or folder under a temporary name.
struct Temporary {
    path: PathBuf,
    /// Locked as long as it is open.
    file: File,
}

impl Temporary {
    fn new(folder: &Path, make: impl Fn(&Path) -> io::Result<File>) -> io::Result<Temporary> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if lock(&LOOKED).insert(folder.to_path_buf()) {
            remove_left(folder);
        }
        for _ in 0..TRIES {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{PREFIX}{}-{number}", std::process::id()));
            lock(&LIVE).insert(path.clone());
            let file = match make(&path) {
                Ok(file) => file,
                Err(error) => {
                    lock(&LIVE).remove(&path);
                    match error.kind() {
                        ErrorKind::AlreadyExists => continue,
                        _ => return Err(error),
                    }
                }
            };
            // Another process may have taken it for something that was left, before it was locked. Where files cannot be
            // locked, nobody takes them.
            let lost = matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock));
            let same = |there: &Metadata| file.metadata().is_ok_and(|own| own.ino() == there.ino());
            if !lost && fs::symlink_metadata(&path).is_ok_and(|there| same(&there)) {
                return Ok(Temporary { path, file });
            }
            lock(&LIVE).remove(&path);
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// It has another name now, and stays.
    fn keep(&mut self) {
        lock(&LIVE).remove(&self.path);
        self.path = PathBuf::new();
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            remove(&self.path);
            lock(&LIVE).remove(&self.path);
        }
    }
}

/// Removes a file or a folder; what cannot be removed stays.
fn remove(path: &Path) {
    if fs::remove_file(path).is_err() {
        let _ = fs::remove_dir_all(path);
    }
}

/// Removes all that is temporary now, for the process ends.
fn remove_all() {
    lock(&LIVE).iter().for_each(|path| remove(path));
}

/// Removes from a folder what processes of this user left that were killed.
fn remove_left(folder: &Path) {
    // SAFETY: geteuid takes nothing and cannot fail.
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
    fn links_stay_and_their_files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "old").unwrap();
        fs::set_permissions(path("file"), Permissions::from_mode(0o640)).unwrap();
        symlink("file", path("link")).unwrap();
        symlink("none", path("dangling")).unwrap();
        symlink("loop", path("loop")).unwrap();
        let old = fs::metadata(path("file")).unwrap();
        write(&path("link"), b"new", true).unwrap();
        assert_eq!(fs::read(path("file")).unwrap(), b"new");
        assert!(fs::symlink_metadata(path("link")).unwrap().is_symlink());
        let new = fs::metadata(path("file")).unwrap();
        assert_eq!(new.mode(), old.mode());
        assert_ne!(new.ino(), old.ino(), "what others have open stays as it was");
        write(&path("dangling"), b"made", false).unwrap();
        assert_eq!(fs::read(path("none")).unwrap(), b"made");
        assert_eq!(write(&path("loop"), b"", false).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert!(write(folder.path(), b"", false).is_err());
        assert!(write(&path("folder/"), b"", false).is_err());
        assert_eq!(names(folder.path()), ["dangling", "file", "link", "loop", "none"]);
    }

    #[test]
    fn one_file_has_one_identity() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "").unwrap();
        fs::hard_link(path("file"), path("hard")).unwrap();
        symlink("file", path("soft")).unwrap();
        symlink("new", path("dangling")).unwrap();
        let file = identity(&path("file"));
        assert!(file.is_some());
        for other in ["hard", "soft", "./file"] {
            assert_eq!(identity(&path(other)), file, "{other}");
        }
        assert!(identity(&path("new")).is_some());
        assert_eq!(identity(&path("dangling")), identity(&path("new")));
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
